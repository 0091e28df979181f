//! Changes to packets in a routed network apart from INT: each packet is numbered, and each switch decrements the TTL or hop
//! limit.

use wire::ethernet;

use crate::packet::{TCP, fill_l4};

/// Writes a packet's number into a copy of its flow's template: as the IPv4 identification, and at the start of the payload.
pub(super) fn write_number(frame: &mut [u8], number: u64) {
    let ip = ethernet::HEADER_LEN;
    let is_v4 = frame[ip] >> 4 == 4;
    let (l4, proto) = if is_v4 {
        (ip + 20, frame[ip + 9])
    } else {
        (ip + 40, frame[ip + 6])
    };
    if is_v4 {
        let before = u32::from(u16::from_be_bytes([frame[ip + 4], frame[ip + 5]]));
        let now = number as u16;
        frame[ip + 4..ip + 6].copy_from_slice(&now.to_be_bytes());
        add_to_checksum(frame, ip + 10, before + u32::from(!now));
    }
    let payload = l4 + if proto == TCP { 20 } else { 8 };
    let room = frame.len().saturating_sub(payload).min(4);
    if room > 0 {
        frame[payload..payload + room].copy_from_slice(&(number as u32).to_be_bytes()[4 - room..]);
        // Compute the L4 checksum again from all bytes.
        let at = l4 + if proto == TCP { 16 } else { 6 };
        frame[at..at + 2].fill(0);
        let length = frame.len() - l4;
        fill_l4(frame, ip, l4, proto, length);
    }
}

/// Decrements a packet's TTL or hop limit.
pub(super) fn decrement_hop_limit(frame: &mut [u8]) {
    let ip = ethernet::HEADER_LEN;
    if frame[ip] >> 4 != 4 {
        frame[ip + 7] = frame[ip + 7].saturating_sub(1);
    } else if frame[ip + 8] > 0 {
        frame[ip + 8] -= 1;
        add_to_checksum(frame, ip + 10, 0x0100);
    }
}

/// Updates a checksum after a header word decreased by `less` (RFC 1624).
fn add_to_checksum(frame: &mut [u8], at: usize, less: u32) {
    let mut sum = u32::from(u16::from_be_bytes([frame[at], frame[at + 1]])) + less;
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    frame[at..at + 2].copy_from_slice(&(sum as u16).to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksums_stay_right() {
        let mut frame = vec![0; 14 + 20 + 8 + 6];
        frame[14..24].copy_from_slice(&[0x45, 0, 0, 34, 0, 0, 0x40, 0, 64, 17]);
        frame[26..34].copy_from_slice(&[10, 0, 0, 1, 10, 0, 0, 2]);
        frame[38..40].copy_from_slice(&[0, 14]);
        let sum = wire::checksum::of(&frame[14..34]);
        frame[24..26].copy_from_slice(&sum.to_be_bytes());
        for value in [1, 0xffff, 0x1_0000, 77] {
            write_number(&mut frame, value);
            decrement_hop_limit(&mut frame);
            assert_eq!(wire::checksum::of(&frame[14..34]), 0, "{value}");
        }
        assert_eq!((frame[22], &frame[18..20]), (60, &[0, 77][..]));
    }
}
