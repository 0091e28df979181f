//! Work that a sender left to its NIC and that is still to do: checksums, and cutting long TCP or UDP data
//! into packets. Inside a machine such frames reach a program as they were.

use wire::ethernet::ethertype;
use wire::{checksum, ipv4, ipv6, tcp, udp};

use super::packet;
use crate::packet::{TCP, UDP};

/// Completes a checksum: the field, which holds the pseudo header's sum, is `offset` bytes behind `start`, from which on
/// everything is covered.
///
/// # Errors
/// The places are not in the frame.
#[expect(clippy::result_unit_err, reason = "there is one reason")]
pub fn complete(frame: &mut [u8], start: usize, offset: usize) -> Result<(), ()> {
    /// Where UDP has it. A sum of 0 would mean "none" there.
    const IN_UDP: usize = 6;
    let covered = frame.get_mut(start..).ok_or(())?;
    let sum = checksum::of(covered);
    let sum = if sum == 0 && offset == IN_UDP { 0xffff } else { sum };
    covered.get_mut(offset..offset + 2).ok_or(())?.copy_from_slice(&sum.to_be_bytes());
    Ok(())
}

/// Cuts a frame of TCP or UDP into frames whose payload is at most `size` bytes, as a NIC would, and gives each to `each`.
/// Their checksums are computed anew. `scratch` is overwritten.
///
/// # Errors
/// It is none of IPv4 or IPv6 (without extension headers) with TCP or UDP, or its lengths lie.
#[expect(clippy::result_unit_err, reason = "there is one reason")]
pub fn segment(
    frame: &[u8],
    size: usize,
    scratch: &mut Vec<u8>,
    each: &mut dyn FnMut(&[u8]),
) -> Result<(), ()> {
    let (ethertype, ip) = packet::network(frame).ok_or(())?;
    let v6 = ethertype == ethertype::IPV6;
    let rest = frame.get(ip..).ok_or(())?;
    let (header, proto) = if v6 {
        (ipv6::HEADER_LEN, ipv6::Packet::new_checked(rest).map_err(|_| ())?.next_header())
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
        UDP => udp::Packet::new_checked(segment).map(|_| udp::HEADER_LEN).map_err(|_| ())?,
        _ => return Err(()),
    };
    let (head, payload) = frame.split_at_checked(l4 + l4_len).ok_or(())?;
    if size == 0 || payload.is_empty() {
        return Err(());
    }
    let cut = HeaderOffsets { ip, l4, v6, proto };
    let last = (payload.len() - 1) / size;
    for (index, part) in payload.chunks(size).enumerate() {
        scratch.clear();
        scratch.extend_from_slice(head);
        scratch.extend_from_slice(part);
        cut.fix_headers(scratch, index, index * size, index == last);
        each(scratch);
    }
    Ok(())
}

/// Where the headers are.
struct HeaderOffsets {
    ip: usize,
    l4: usize,
    v6: bool,
    proto: u8,
}

impl HeaderOffsets {
    /// Writes what differs between the parts: `before` bytes of payload came before this one.
    fn fix_headers(&self, frame: &mut [u8], index: usize, before: usize, last: bool) {
        let &Self { ip, l4, v6, proto } = self;
        let len = frame.len();
        let rest = &mut frame[ip..];
        if v6 {
            if let Ok(mut header) = ipv6::Packet::new_checked(rest) {
                header.set_payload_len((len - ip - ipv6::HEADER_LEN) as u16);
            }
        } else {
            let ident = u16::from_be_bytes([rest[4], rest[5]]).wrapping_add(index as u16);
            rest[4..6].copy_from_slice(&ident.to_be_bytes());
            if let Ok(mut header) = ipv4::Packet::new_checked(rest) {
                header.set_total_len((len - ip) as u16);
                header.fill_checksum();
            }
        }
        let (head, segment) = frame.split_at_mut(l4);
        let addresses = if v6 { &head[ip + 8..ip + 40] } else { &head[ip + 12..ip + 20] };
        if proto == TCP {
            const FIN_PSH: u8 = 0x09;
            const CWR: u8 = 0x80;
            let seq = u32::from_be_bytes([segment[4], segment[5], segment[6], segment[7]]);
            segment[4..8].copy_from_slice(&seq.wrapping_add(before as u32).to_be_bytes());
            segment[13] &= !(if last { 0 } else { FIN_PSH } | if index == 0 { 0 } else { CWR });
            if let Ok(mut header) = tcp::Packet::new_checked(segment) {
                header.fill_checksum(addresses);
            }
        } else {
            let udp_len = segment.len() as u16;
            segment[4..6].copy_from_slice(&udp_len.to_be_bytes());
            if let Ok(mut header) = udp::Packet::new_checked(segment) {
                header.fill_checksum(addresses);
            }
        }
    }
}
