//! Edits common frames: length, DSCP, port and checksums, which are updated by the sums of added and removed bytes.

use wire::checksum::{complement, update_by_sum};
use wire::{tcp, udp};

use super::{Headers, UDP};

/// Shifts the bytes from `at` on by `len`. The gap keeps arbitrary bytes.
#[inline]
pub(crate) fn open_gap(frame: &mut Vec<u8>, at: usize, len: usize) {
    let before = frame.len();
    if before - at >= len {
        frame.extend_from_within(before - len..);
        frame.copy_within(at..before - len, at + len);
    } else {
        frame.resize(before + len, 0);
        frame.copy_within(at..before, at + len);
    }
}

/// Sets the length of the IP packet, and the DSCP if `dscp` has one. Updates the IPv4 checksum.
#[inline(always)]
pub(crate) fn set_length(frame: &mut [u8], headers: Headers, len: usize, dscp: Option<u8>) {
    const ECN: u8 = 0x03;
    const V4: usize = wire::ipv4::HEADER_LEN;
    const V6: usize = wire::ipv6::HEADER_LEN;
    let Some(rest) = frame.get_mut(headers.ip..) else {
        return;
    };
    if headers.v6 {
        let Some(head) = rest.first_chunk_mut::<V6>() else {
            return;
        };
        [head[4], head[5]] = (len.wrapping_sub(V6) as u16).to_be_bytes();
        if let Some(dscp) = dscp {
            head[0] = head[0] & 0xf0 | dscp >> 2;
            head[1] = dscp << 6 | head[1] & (ECN << 4 | 0x0f);
        }
        return;
    }
    let Some(head) = rest.first_chunk_mut::<V4>() else {
        return;
    };
    let before = u64::from(u32::from_be_bytes([head[0], head[1], head[2], head[3]]));
    [head[2], head[3]] = (len as u16).to_be_bytes();
    if let Some(dscp) = dscp {
        head[1] = dscp << 2 | head[1] & ECN;
    }
    let after = u64::from(u32::from_be_bytes([head[0], head[1], head[2], head[3]]));
    let sum = update_by_sum(
        u16::from_be_bytes([head[10], head[11]]),
        after + complement(before),
    );
    [head[10], head[11]] = sum.to_be_bytes();
}

/// Updates the L4 checksum (RFC 1624) after the sum of the covered bytes grew by `more`, and their length by `by`, which UDP
/// counts twice. `dst_port` is a new UDP destination port. A checksum of 0 is treated as in [`Headers`].
#[inline(always)]
pub(crate) fn update_l4(
    frame: &mut [u8],
    headers: Headers,
    by: Option<u16>,
    more: u64,
    dst_port: Option<u16>,
) {
    let Some(rest) = frame.get_mut(headers.l4..) else {
        return;
    };
    let by = by.unwrap_or(0);
    // A shorter length adds the one's complement of the difference.
    let longer = if by >> 15 == 0 {
        u64::from(by)
    } else {
        complement(u64::from(by.wrapping_neg()))
    };
    if headers.proto != UDP {
        if let Some(head) = rest.first_chunk_mut::<{ tcp::HEADER_LEN }>() {
            let sum = update_by_sum(u16::from_be_bytes([head[16], head[17]]), more + longer);
            [head[16], head[17]] = sum.to_be_bytes();
        }
        return;
    }
    let Some(head) = rest.first_chunk_mut::<{ udp::HEADER_LEN }>() else {
        return;
    };
    [head[4], head[5]] = u16::from_be_bytes([head[4], head[5]])
        .wrapping_add(by)
        .to_be_bytes();
    let mut more = more + longer * 2;
    if let Some(port) = dst_port {
        more += u64::from(port) + complement(u64::from(u16::from_be_bytes([head[2], head[3]])));
        [head[2], head[3]] = port.to_be_bytes();
    }
    let old = u16::from_be_bytes([head[6], head[7]]);
    if old != 0 {
        let sum = update_by_sum(old, more);
        [head[6], head[7]] = if sum == 0 { 0xffff } else { sum }.to_be_bytes();
    }
}
