//! Work that a sender left to its NIC: checksums, and segmentation of TCP and UDP. Frames that do not leave the machine, as
//! over a veth pair, arrive with this work undone.

use wire::ethernet::ethertype;
use wire::{checksum, ipv4, ipv6, tcp, udp};

use crate::packet::{TCP, UDP, fill_l4, network};

/// Completes a checksum over everything from `start`. The checksum field, `offset` bytes after `start`, contains the sum of the
/// pseudo-header.
///
/// # Errors
/// Returns an error if the positions are outside the frame.
#[expect(clippy::result_unit_err, reason = "there is one reason")]
pub fn complete(frame: &mut [u8], start: usize, offset: usize) -> Result<(), ()> {
    /// Offset of the checksum in UDP, where 0 means "none".
    const IN_UDP: usize = 6;
    let covered = frame.get_mut(start..).ok_or(())?;
    let sum = checksum::of(covered);
    let sum = if sum == 0 && offset == IN_UDP { 0xffff } else { sum };
    covered
        .get_mut(offset..offset + 2)
        .ok_or(())?
        .copy_from_slice(&sum.to_be_bytes());
    Ok(())
}

/// Segments a TCP or UDP frame into frames with at most `size` bytes of payload, as a NIC does, and calls `each` with each of
/// them. Computes their checksums. Overwrites `scratch`.
///
/// # Errors
/// Returns an error if the frame is not TCP or UDP over IPv4 or IPv6 without extension headers, or its lengths are
/// inconsistent.
#[expect(clippy::result_unit_err, reason = "there is one reason")]
pub fn segment(
    frame: &[u8],
    size: usize,
    scratch: &mut Vec<u8>,
    each: &mut dyn FnMut(&[u8]),
) -> Result<(), ()> {
    let (ethertype, ip) = network(frame).ok_or(())?;
    let v6 = ethertype == ethertype::IPV6;
    let rest = frame.get(ip..).ok_or(())?;
    let (header, proto) = if v6 {
        (
            ipv6::HEADER_LEN,
            ipv6::Packet::new_checked(rest).map_err(|_| ())?.next_header(),
        )
    } else if ethertype == ethertype::IPV4 {
        let packet = ipv4::Packet::new_checked(rest).map_err(|_| ())?;
        (packet.header_len(), packet.proto())
    } else {
        return Err(());
    };
    let l4 = ip + header;
    let segment = frame.get(l4..).ok_or(())?;
    let l4_len = match proto {
        TCP => tcp::Packet::new_checked(segment).map_err(|_| ())?.header_len(),
        UDP => udp::Packet::new_checked(segment)
            .map(|_| udp::HEADER_LEN)
            .map_err(|_| ())?,
        _ => return Err(()),
    };
    let (head, payload) = frame.split_at_checked(l4 + l4_len).ok_or(())?;
    if size == 0 || payload.is_empty() {
        return Err(());
    }
    let offsets = HeaderOffsets { ip, l4, v6, proto };
    let last = (payload.len() - 1) / size;
    for (index, part) in payload.chunks(size).enumerate() {
        scratch.clear();
        scratch.extend_from_slice(head);
        scratch.extend_from_slice(part);
        offsets.fix_headers(scratch, index, index * size, index == last);
        each(scratch);
    }
    Ok(())
}

/// Offsets of the headers in every segment.
struct HeaderOffsets {
    ip: usize,
    l4: usize,
    v6: bool,
    proto: u8,
}

impl HeaderOffsets {
    /// Writes the header fields that differ between segments. `before` is the number of payload bytes in earlier segments.
    fn fix_headers(&self, frame: &mut [u8], index: usize, before: usize, last: bool) {
        let &Self { ip, l4, v6, proto } = self;
        let len = frame.len();
        let rest = &mut frame[ip..];
        if v6 {
            if let Ok(mut header) = ipv6::Packet::new_checked(rest) {
                header.set_payload_len((len - ip - ipv6::HEADER_LEN) as u16);
            }
        } else {
            // The IPv4 identification differs in each segment.
            let ident = u16::from_be_bytes([rest[4], rest[5]]).wrapping_add(index as u16);
            rest[4..6].copy_from_slice(&ident.to_be_bytes());
            if let Ok(mut header) = ipv4::Packet::new_checked(rest) {
                header.set_total_len((len - ip) as u16);
                header.fill_checksum();
            }
        }
        let segment = &mut frame[l4..];
        if proto == TCP {
            const FIN_PSH: u8 = 0x09;
            const CWR: u8 = 0x80;
            // TCP sequence number and flags: FIN and PSH belong to the last segment, CWR to the first.
            let seq = u32::from_be_bytes([segment[4], segment[5], segment[6], segment[7]]);
            segment[4..8].copy_from_slice(&seq.wrapping_add(before as u32).to_be_bytes());
            segment[13] &= !(if last { 0 } else { FIN_PSH } | if index == 0 { 0 } else { CWR });
        } else {
            let udp_len = segment.len() as u16;
            segment[4..6].copy_from_slice(&udp_len.to_be_bytes());
        }
        fill_l4(frame, ip, l4, proto, len - l4);
    }
}
