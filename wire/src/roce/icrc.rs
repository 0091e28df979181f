//! The invariant CRC (6.4): CRC-32 over what no router may change, other fields as all ones.

use super::BTH_LEN;

/// Bytes of IPv4 header, UDP header and base transport header.
pub(super) const HEAD_V4: usize = 20 + 8 + BTH_LEN;
/// Bytes of IPv6 header, UDP header and base transport header.
pub(super) const HEAD_V6: usize = 40 + 8 + BTH_LEN;

/// The CRC-32 of eight bytes of ones, which stand for the header that InfiniBand has and Ethernet has not.
pub(super) const START: u32 = !0xdebb_20e3;

/// Goes on with a CRC-32; `crc` is that of all before.
#[inline]
pub(super) fn go_on(crc: u32, bytes: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new_with_initial(crc);
    hasher.update(bytes);
    hasher.finalize()
}

/// Puts all ones where the CRC of an IPv4 packet has them.
#[inline]
pub(super) fn mask_v4(head: &mut [u8; HEAD_V4]) {
    head[1] = 0xff; // type of service
    head[8] = 0xff; // time to live
    head[10..12].fill(0xff); // header checksum
    head[26..28].fill(0xff); // UDP checksum
    head[32] = 0xff; // FECN, BECN, reserved
}

/// Puts all ones where the CRC of an IPv6 packet has them.
#[inline]
pub(super) fn mask_v6(head: &mut [u8; HEAD_V6]) {
    head[0] |= 0x0f; // traffic class,
    head[1..4].fill(0xff); // the rest of it, and the flow label
    head[7] = 0xff; // hop limit
    head[46..48].fill(0xff); // UDP checksum
    head[52] = 0xff; // FECN, BECN, reserved
}
