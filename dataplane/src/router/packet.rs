//! Parses and edits the Ethernet and IP headers of frames in a router.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use wire::ethernet::{self, ethertype};
use wire::{checksum, ipv4, ipv6};

use super::stats::Drop;
use crate::packet::network;

/// EtherType of ARP (RFC 826).
pub(super) const ARP: u16 = 0x0806;
/// Protocol number of ICMP.
pub(super) const ICMP: u8 = 1;
/// Protocol number of ICMPv6.
pub(super) const ICMPV6: u8 = 58;
/// Destination MAC address on a link between switches: locally administered, so no device has it.
pub(super) const PEER: [u8; 6] = [0x02, 0x68, 0xff, 0xff, 0xff, 0xff];

/// The content of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FrameKind {
    /// ARP, at this offset of the frame.
    Arp(usize),
    Ip(Ip),
}

/// A complete IP packet with a valid header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ip {
    /// Offset of the IP packet in the frame.
    pub(super) at: usize,
    pub(super) len: usize,
    /// Length of the IP header, without extension headers.
    pub(super) header: usize,
    pub(super) src: IpAddr,
    pub(super) dst: IpAddr,
    /// TTL or hop limit.
    pub(super) hops: u8,
    /// Protocol, or the first next-header value.
    pub(super) proto: u8,
    /// Whether the packet is a fragment other than the first.
    pub(super) is_later_fragment: bool,
}

impl Ip {
    /// Returns whether the source or destination is never forwarded, such as a multicast or link-local address.
    pub(super) fn is_not_forwarded(&self) -> bool {
        [self.src, self.dst].into_iter().any(|address| match address {
            IpAddr::V4(v4) => {
                v4.is_multicast()
                    || v4.is_broadcast()
                    || v4.is_unspecified()
                    || v4.is_loopback()
                    || v4.is_link_local()
            }
            IpAddr::V6(v6) => {
                v6.is_multicast()
                    || v6.is_unspecified()
                    || v6.is_loopback()
                    || v6.is_unicast_link_local()
                    || v6.to_ipv4_mapped().is_some()
            }
        })
    }
}

/// Classifies a frame. If `ours` is given, unicast frames must be addressed to it; group addresses are accepted as well.
pub(super) fn classify(frame: &[u8], ours: Option<&[u8; 6]>) -> Result<FrameKind, Drop> {
    let header = ethernet::Packet::new_checked(frame).map_err(|_| Drop::Malformed)?;
    let dst = header.dst();
    if ours.is_some_and(|ours| dst[0] & 1 == 0 && dst != *ours) {
        return Err(Drop::NotForUs);
    }
    let (ethertype, at) = network(frame).ok_or(Drop::Malformed)?;
    match ethertype {
        ARP => Ok(FrameKind::Arp(at)),
        ethertype::IPV4 => v4(&frame[at..], at).map(FrameKind::Ip).ok_or(Drop::Malformed),
        ethertype::IPV6 => v6(&frame[at..], at).map(FrameKind::Ip).ok_or(Drop::Malformed),
        _ => Err(Drop::NotIp),
    }
}

/// Returns the IP packet in a frame, or `None` if it is invalid.
pub(super) fn ip_of(frame: &[u8]) -> Option<Ip> {
    match classify(frame, None) {
        Ok(FrameKind::Ip(ip)) => Some(ip),
        _ => None,
    }
}

fn v4(bytes: &[u8], at: usize) -> Option<Ip> {
    // The 13 bits of the fragment offset.
    const OFFSET: u16 = 0x1fff;
    let packet = ipv4::Packet::new_checked(bytes)
        .ok()
        .filter(ipv4::Packet::verify_checksum)?;
    let header = packet.header_len();
    let len = usize::from(packet.total_len());
    if len < header || len > bytes.len() {
        return None;
    }
    Some(Ip {
        at,
        len,
        header,
        src: Ipv4Addr::from(packet.src()).into(),
        dst: Ipv4Addr::from(packet.dst()).into(),
        hops: packet.ttl(),
        proto: packet.proto(),
        is_later_fragment: packet.fragment() & OFFSET != 0,
    })
}

fn v6(bytes: &[u8], at: usize) -> Option<Ip> {
    // Next-header value of a fragment header.
    const FRAGMENT: u8 = 44;
    let packet = ipv6::Packet::new_checked(bytes).ok()?;
    let len = ipv6::HEADER_LEN + usize::from(packet.payload_len());
    if len > bytes.len() {
        return None;
    }
    let proto = packet.next_header();
    let offset = bytes.get(ipv6::HEADER_LEN + 2..ipv6::HEADER_LEN + 4);
    // The only extension header that is read is a fragment header directly after the IPv6 header. Behind others, a later
    // fragment counts as a whole packet, but `proto` is the first extension header, so its payload is not read as UDP or
    // ICMPv6. At worst an error answers it, which RFC 4443 permits for fragments.
    let is_later_fragment =
        proto == FRAGMENT && offset.is_some_and(|two| u16::from_be_bytes([two[0], two[1]]) >> 3 != 0);
    Some(Ip {
        at,
        len,
        header: ipv6::HEADER_LEN,
        src: Ipv6Addr::from(packet.src()).into(),
        dst: Ipv6Addr::from(packet.dst()).into(),
        hops: packet.hop_limit(),
        proto,
        is_later_fragment,
    })
}

/// Decrements the TTL or hop limit, and updates the IPv4 header checksum.
pub(super) fn decrement_hop_limit(frame: &mut [u8], ip: &Ip) {
    let rest = &mut frame[ip.at..];
    if ip.dst.is_ipv6() {
        if let Ok(mut header) = ipv6::Packet::new_checked(rest) {
            header.set_hop_limit(ip.hops.saturating_sub(1));
        }
        return;
    }
    // TTL and protocol form the 16-bit word that changes.
    let hops = ip.hops.saturating_sub(1);
    let [before, after] = [ip.hops, hops].map(|hops| u16::from_be_bytes([hops, ip.proto]));
    if let Ok(header) = ipv4::Packet::new_checked(&mut *rest) {
        let sum = checksum::update(header.checksum(), before, after);
        // TTL, and header checksum.
        rest[8] = hops;
        rest[10..12].copy_from_slice(&sum.to_be_bytes());
    }
}

/// Writes the destination and source MAC address of a frame.
pub(super) fn set_macs(frame: &mut [u8], dst: [u8; 6], src: [u8; 6]) {
    if let Some(addresses) = frame.get_mut(..12) {
        addresses[..6].copy_from_slice(&dst);
        addresses[6..].copy_from_slice(&src);
    }
}

/// Returns the sender's MAC address, if it can be that of a host.
pub(super) fn source_mac(frame: &[u8]) -> Option<[u8; 6]> {
    let mac = ethernet::Packet::new_checked(frame).ok()?.src();
    is_host(mac).then_some(mac)
}

/// Returns whether a MAC address can be that of a single host.
pub(super) fn is_host(mac: [u8; 6]) -> bool {
    mac[0] & 1 == 0 && mac != [0; 6]
}
