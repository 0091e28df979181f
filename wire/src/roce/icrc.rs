//! The RoCEv2 invariant CRC (ICRC): CRC-32 over the packet with all fields that routers may change replaced by ones
//! (`docs/reference/wire-formats.md`, section 6.4).

use super::BTH_LEN;
use crate::crc::{Crc32, byte_of};

/// Length of IPv4 header, UDP header and BTH, bytes.
pub(super) const HEAD_V4: usize = 20 + 8 + BTH_LEN;
/// Length of IPv6 header, UDP header and BTH, bytes.
pub(super) const HEAD_V6: usize = 40 + 8 + BTH_LEN;

/// CRC-32 of eight bytes of ones, which stand for InfiniBand's local route header.
pub(super) const START: u32 = !0xdebb_20e3;

/// (Offset, mask) of the bits replaced by ones in an IPv4 packet: type of service, TTL, header checksum, UDP checksum, and
/// the BTH byte with congestion and reserved bits.
const ONES_V4: [(u8, u8); 8] = [
    (1, 0xff),
    (8, 0xff),
    (10, 0xff),
    (11, 0xff),
    (26, 0xff),
    (27, 0xff),
    (32, 0xff),
    (39, 0),
];
/// (Offset, mask) of the bits replaced by ones in an IPv6 packet: traffic class and flow label, hop limit, UDP checksum,
/// BTH congestion bits.
const ONES_V6: [(u8, u8); 8] = [
    (0, 0x0f),
    (1, 0xff),
    (2, 0xff),
    (3, 0xff),
    (7, 0xff),
    (46, 0xff),
    (47, 0xff),
    (52, 0xff),
];
static MASKED_V4: Masked = masked(&ONES_V4, HEAD_V4);
static MASKED_V6: Masked = masked(&ONES_V6, HEAD_V6);
/// Maximum length of the bytes after the headers for this method: enough for a slot of 64 bytes.
const SHORT: usize = 96;
static SHIFTED: [Shift; SHORT / 4 + 1] = shifts();

/// Continues a CRC-32; `crc` is the CRC of the preceding bytes.
#[inline]
pub(super) fn extend(crc: u32, bytes: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new_with_initial(crc);
    hasher.update(bytes);
    hasher.finalize()
}

/// The CRC register after a prefix, from which several CRCs can continue.
#[derive(Clone, Copy, Debug)]
pub(super) struct Running(u32);

impl Running {
    /// Continues from `crc`, the CRC of the preceding bytes.
    pub(super) const fn new(crc: u32) -> Self {
        Self(!crc)
    }

    /// Rewinds `crc` to before its last bytes, `known`, which must be passed to [`finish`](Self::finish) again.
    pub(super) fn rewind(crc: u32, known: &[u8]) -> Self {
        let mut register = !crc;
        for byte in known.iter().rev() {
            for _ in 0..8 {
                let bit = register >> 31;
                register = ((register ^ (0xedb8_8320 * bit)) << 1) | bit;
            }
            register ^= u32::from(*byte);
        }
        Self(register)
    }

    /// Returns how many known bytes (up to twelve) to prepend to `len` others for a multiple of 16, for which CRC
    /// instructions are fastest.
    pub(super) const fn prefix_len(len: usize) -> usize {
        len.wrapping_neg() & 12
    }

    /// Returns whether `bytes` end with the CRC of everything before.
    #[inline(always)]
    pub(super) fn ends_with_crc(self, by: Crc32, bytes: &[u8]) -> bool {
        // The CRC register after data followed by its own CRC is a constant.
        by(self.0, bytes) == 0xdebb_20e3
    }

    /// Continues over `bytes`, and returns the final CRC.
    #[inline(always)]
    pub(super) fn finish(self, by: Crc32, bytes: &[u8]) -> u32 {
        !by(self.0, bytes)
    }
}

/// Replaces the variant bits of an IPv4 packet's headers by ones.
#[inline]
pub(super) fn mask_v4(head: &mut [u8; HEAD_V4]) {
    ONES_V4
        .iter()
        .for_each(|(at, ones)| head[usize::from(*at)] |= ones);
}

/// Replaces the variant bits of an IPv6 packet's headers by ones.
#[inline]
pub(super) fn mask_v6(head: &mut [u8; HEAD_V6]) {
    ONES_V6
        .iter()
        .for_each(|(at, ones)| head[usize::from(*at)] |= ones);
}

/// Computes the ICRC of an IPv4 packet, from its IP header to its last pad byte.
#[inline]
pub(super) fn of_v4(packet: &[u8], head: &[u8; HEAD_V4]) -> u32 {
    match shift_over(packet.len() - HEAD_V4) {
        Some(shift) => extend(START, packet) ^ shifted(shift, difference(head, &ONES_V4, &MASKED_V4)),
        None => {
            let mut masked = *head;
            mask_v4(&mut masked);
            extend(extend(START, &masked), &packet[HEAD_V4..])
        }
    }
}

/// Computes the ICRC of an IPv6 packet, from its IP header to its last pad byte.
#[inline]
pub(super) fn of_v6(packet: &[u8], head: &[u8; HEAD_V6]) -> u32 {
    match shift_over(packet.len() - HEAD_V6) {
        Some(shift) => extend(START, packet) ^ shifted(shift, difference(head, &ONES_V6, &MASKED_V6)),
        None => {
            let mut masked = *head;
            mask_v6(&mut masked);
            extend(extend(START, &masked), &packet[HEAD_V6..])
        }
    }
}

// For short packets the headers are not copied and masked: wide loads of just-stored bytes stall, and cost more than the
// CRC. Instead, because a CRC is linear, the contribution of the replaced bits is looked up for the headers, shifted over
// the following bytes, and XORed to the CRC of the unmodified packet.

/// Contribution of each replaced byte to the CRC of the headers, by its index and its missing bits.
type Masked = [[u32; 256]; 8];

/// Effect of each byte of a CRC register after a run of zero bytes, indexed by the run's length in words.
type Shift = [[u32; 256]; 4];

/// Returns the change of the headers' CRC when all variant bits are set.
#[inline(always)]
fn difference(head: &[u8], ones: &[(u8, u8); 8], masked: &Masked) -> u32 {
    ones.iter().zip(masked).fold(0, |sum, ((at, ones), place)| {
        let missing = !head[usize::from(*at)] & ones;
        sum ^ place[usize::from(missing)]
    })
}

#[inline(always)]
fn shifted(shift: &Shift, crc: u32) -> u32 {
    let [a, b, c, d] = crc.to_le_bytes().map(usize::from);
    shift[0][a] ^ shift[1][b] ^ shift[2][c] ^ shift[3][d]
}

/// Returns the table that shifts over `len` bytes, or `None` if there is none.
#[inline(always)]
fn shift_over(len: usize) -> Option<&'static Shift> {
    if len.is_multiple_of(4) {
        SHIFTED.get(len / 4)
    } else {
        None
    }
}

/// Returns a CRC register after a zero byte.
const fn over_zero(crc: u32, bytes: &[u32; 256]) -> u32 {
    crc >> 8 ^ bytes[(crc & 0xff) as usize]
}

const fn byte_table() -> [u32; 256] {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        table[byte] = byte_of(0xedb8_8320, byte as u8);
        byte += 1;
    }
    table
}

const fn masked(ones: &[(u8, u8); 8], head: usize) -> Masked {
    let bytes = byte_table();
    let mut table = [[0; 256]; 8];
    let mut entry = 0;
    while entry < 8 * 256 {
        let place = entry / 256;
        let value = entry % 256;
        let mut crc = bytes[value];
        let mut left = head - 1 - ones[place].0 as usize;
        while left > 0 {
            crc = over_zero(crc, &bytes);
            left -= 1;
        }
        table[place][value] = crc;
        entry += 1;
    }
    table
}

const fn shifts() -> [Shift; SHORT / 4 + 1] {
    let bytes = byte_table();
    let mut table = [[[0; 256]; 4]; SHORT / 4 + 1];
    let mut entry = 0;
    while entry < 4 * 256 {
        let place = entry / 256;
        let value = entry % 256;
        let mut crc = (value as u32) << (place * 8);
        let mut words = 0;
        while words <= SHORT / 4 {
            table[words][place][value] = crc;
            crc = over_zero(
                over_zero(over_zero(over_zero(crc, &bytes), &bytes), &bytes),
                &bytes,
            );
            words += 1;
        }
        entry += 1;
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packet_as_it_is_and_its_masked_copy_agree() {
        let mut state = 3_u32;
        let packet: [u8; 600] = core::array::from_fn(|_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 24) as u8
        });
        for len in HEAD_V4..500 {
            for from in 0..3 {
                let packet = &packet[from..from + len];
                let head = packet.first_chunk().expect("long enough");
                let mut copy = *head;
                mask_v4(&mut copy);
                assert_eq!(
                    of_v4(packet, head),
                    extend(extend(START, &copy), &packet[HEAD_V4..]),
                    "{len}"
                );
                let Some(head) = packet.first_chunk() else {
                    continue;
                };
                let mut copy = *head;
                mask_v6(&mut copy);
                assert_eq!(
                    of_v6(packet, head),
                    extend(extend(START, &copy), &packet[HEAD_V6..]),
                    "{len}"
                );
            }
        }
    }
}
