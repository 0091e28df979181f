//! The internet checksum (RFC 1071) with IPv4 and IPv6 pseudo-headers, and its incremental update (RFC 1624).

/// A running sum. Every part but the last must have an even length.
#[derive(Clone, Copy, Default, Debug)]
pub struct Sum(u32);

impl Sum {
    /// Adds bytes to the sum.
    #[must_use]
    #[inline]
    pub fn with(self, bytes: &[u8]) -> Self {
        // The sum of 32-bit words equals the sum of their halves modulo 0xffff, and byte order only swaps the result's
        // bytes (RFC 1071). Carries are folded once, at the end.
        let (words, rest) = bytes.as_chunks::<4>();
        let mut last = [0; 4];
        last[..rest.len()].copy_from_slice(rest);
        let sum = words
            .iter()
            .fold(0, |sum, word| sum + u64::from(u32::from_ne_bytes(*word)));
        let sum = sum + u64::from(u32::from_ne_bytes(last));
        let sum = (sum & 0xffff_ffff) + (sum >> 32);
        let sum = (sum & 0xffff) + (sum >> 16 & 0xffff) + (sum >> 32);
        let sum = (sum & 0xffff) + (sum >> 16);
        let sum = (sum & 0xffff) + (sum >> 16);
        let sum = self.0 + u32::from(u16::from_be(sum as u16));
        Self((sum & 0xffff) + (sum >> 16))
    }

    /// Returns the checksum: the complement of the folded sum.
    #[inline]
    pub fn finish(self) -> u16 {
        let once = (self.0 & 0xffff) + (self.0 >> 16);
        !((once & 0xffff) + (once >> 16)) as u16
    }
}

/// Returns the checksum of `bytes`; 0 if they include their own correct checksum.
#[inline]
pub fn of(bytes: &[u8]) -> u16 {
    Sum::default().with(bytes).finish()
}

/// Returns whether `bytes` begin with a complete IPv4 header, of the length in its first octet, with a correct checksum.
pub(crate) fn holds(bytes: &[u8]) -> bool {
    let len = bytes.first().map_or(0, |first| usize::from(first & 0x0f) * 4);
    bytes.get(..len).is_some_and(|header| of(header) == 0)
}

/// Returns the checksum of an L4 header and its payload with pseudo-header. `addresses` are source and destination as in
/// the IP header: 8 bytes for IPv4 or 32 for IPv6. UDP transmits a checksum of 0 as 0xFFFF; see [`udp`].
pub fn transport(addresses: &[u8], proto: u8, segment: &[u8]) -> u16 {
    let len = segment.len() as u32;
    Sum::default()
        .with(addresses)
        .with(&len.to_be_bytes())
        .with(&[0, 0, 0, proto])
        .with(segment)
        .finish()
}

/// Returns the UDP checksum: like [`transport`], but 0xFFFF instead of 0, which means "no checksum".
pub fn udp(addresses: &[u8], segment: &[u8]) -> u16 {
    match transport(addresses, 17, segment) {
        0 => 0xffff,
        sum => sum,
    }
}

/// Updates a checksum after a covered 16-bit word changed from `old` to `new` (RFC 1624).
#[inline]
pub fn update(checksum: u16, old: u16, new: u16) -> u16 {
    let sum = u32::from(!checksum) + u32::from(!old) + u32::from(new);
    let once = (sum & 0xffff) + (sum >> 16);
    !((once & 0xffff) + (once >> 16)) as u16
}

/// Returns the sum of the big-endian 32-bit words of `bytes`, for [`update_by_sum`]. An incomplete last word is padded with
/// zeros.
#[inline(always)]
pub fn words(bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<4>();
    let mut last = [0; 4];
    last[..rest.len()].copy_from_slice(rest);
    let sum = words.iter().fold(0, |sum: u64, word| {
        sum.wrapping_add(u64::from(u32::from_be_bytes(*word)))
    });
    sum.wrapping_add(u64::from(u32::from_be_bytes(last)))
}

/// Returns the value that subtracts `sum` when passed to [`update_by_sum`].
#[inline(always)]
pub fn complement(sum: u64) -> u64 {
    u64::from(!fold(sum))
}

/// Updates a checksum after the sum of the covered words grew by `more`, a sum of 16-bit or 32-bit words (RFC 1624; 2^16
/// and 2^32 are congruent to 1 modulo 0xffff). Never returns 0xffff.
#[inline(always)]
pub fn update_by_sum(checksum: u16, more: u64) -> u16 {
    // Adding 0xffff does not change the sum modulo 0xffff, but keeps it nonzero.
    !fold(u64::from(!checksum) + 0xffff + u64::from(fold(more)))
}

/// Folds a sum of 16-bit or 32-bit words to 16 bits. The result is 0 only for 0.
#[inline(always)]
fn fold(sum: u64) -> u16 {
    let sum = (sum & 0xffff_ffff) + (sum >> 32);
    let sum = (sum & 0xffff) + (sum >> 16);
    let sum = (sum & 0xffff) + (sum >> 16);
    ((sum & 0xffff) + (sum >> 16)) as u16
}

#[cfg(test)]
mod tests {
    extern crate std;

    use super::*;

    /// The IPv4 header of the first example in `docs/reference/wire-formats.md`, section 1.8.
    const HEADER: [u8; 20] = [
        0x45, 0x00, 0x00, 0x6e, 0x00, 0x01, 0x40, 0x00, 0x3e, 0x11, 0x28, 0x7c, 10, 0, 0, 1, 10, 0, 0, 2,
    ];

    #[test]
    fn a_good_header_sums_to_zero() {
        assert_eq!(of(&HEADER), 0);
    }

    #[test]
    fn an_update_is_what_a_new_sum_would_be() {
        let mut changed = HEADER;
        changed[2..4].copy_from_slice(&0x1234_u16.to_be_bytes());
        let updated = update(0x287c, 0x006e, 0x1234);
        changed[10..12].copy_from_slice(&updated.to_be_bytes());
        assert_eq!(of(&changed), 0);
    }

    #[test]
    fn an_adjusted_sum_is_what_a_new_one_would_be() {
        let mut state = 7_u64;
        for len in 0..200_usize {
            let bytes: std::vec::Vec<u8> = (0..len)
                .map(|_| {
                    state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    if state >> 40 & 3 == 0 {
                        0xff
                    } else {
                        (state >> 56) as u8
                    }
                })
                .collect();
            let (front, back) = bytes.split_at(len / 3 / 4 * 4);
            let whole = of(&bytes);
            if whole == 0xffff {
                continue; // all bytes are zero
            }
            assert_eq!(update_by_sum(of(front), words(back)), whole, "{bytes:02x?}");
            assert_eq!(
                update_by_sum(whole, complement(words(back))),
                update_by_sum(of(front), 0),
                "{bytes:02x?}"
            );
        }
        assert_eq!(update_by_sum(0xffff, 0), 0, "both say nothing");
        assert_eq!(update_by_sum(0x1234, complement(0)), 0x1234);
        assert_eq!(update_by_sum(0x1234, u64::MAX), 0x1234);
    }

    #[test]
    fn an_odd_last_byte_counts_as_its_high_half() {
        assert_eq!(of(&[0x12, 0x34, 0x56]), !(0x1234 + 0x5600));
    }
}
