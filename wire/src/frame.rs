//! Finds the UDP datagram in a captured frame: Ethernet, VLAN and QinQ tags, MPLS labels, IPv4 with options, IPv6 with
//! extension headers. The collector's inputs use it on report frames.

use crate::bytes::{array_at, try_u16, u16_at};
use crate::checksum;
use crate::packet::{IPV4, IPV6, MPLS, MPLS_MULTICAST, UDP, is_tag};
use crate::refusal::Refusal;
use core::net::IpAddr;

/// Maximum number of headers examined among tags and labels, and again among IPv6 extension headers, including the header
/// that ends the search: seven VLAN tags, eight MPLS labels or seven extension headers.
const MAX_TAGS: usize = 8;

/// The first bytes of an IPv4-mapped IPv6 address.
const MAPPED: [u8; 12] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff];

/// A UDP datagram inside a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Datagram<'a> {
    /// Source IP address of the datagram.
    pub src: IpAddr,
    /// Destination IP address of the datagram.
    pub dst: IpAddr,
    /// UDP source port of the datagram.
    pub src_port: u16,
    /// UDP destination port of the datagram.
    pub dst_port: u16,
    /// UDP payload of the length in the UDP header, or what a truncated frame contains of it.
    pub payload: &'a [u8],
}

/// Source address and ports of a frame that [`datagram`] refused, as far as its headers contain them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PartialHeaders<'a> {
    /// Source IP address, or `None` if the frame does not contain it.
    pub src: Option<IpAddr>,
    /// UDP destination port. Only the first fragment of a packet contains it.
    pub dst_port: Option<u16>,
    /// Bytes from the UDP header on; empty if the frame does not contain it.
    udp: &'a [u8],
}

impl<'a> PartialHeaders<'a> {
    /// Parses the headers of an Ethernet frame.
    pub fn of_frame(frame: &'a [u8]) -> Self {
        let mut envelope = Self::default();
        let _ = any_datagram(frame, &mut envelope);
        envelope
    }

    /// Parses the payload of a link header with this EtherType.
    pub fn of_network(ethertype: u16, payload: &'a [u8]) -> Self {
        let mut envelope = Self::default();
        let _ = behind(ethertype, payload, &mut envelope);
        envelope
    }

    /// Returns the UDP source port and the bytes behind the UDP header: the beginning of the datagram's payload if the frame is
    /// a first fragment. Lengths are not checked, so bytes that are not of the datagram may follow.
    pub fn beginning(&self) -> Option<(u16, &'a [u8])> {
        let (header, payload) = self.udp.split_at_checked(8)?;
        Some((u16_at(header, 0), payload))
    }

    fn port_of(&mut self, udp: &'a [u8]) {
        self.dst_port = try_u16(udp, 2);
        self.udp = udp;
    }
}

/// Returns the UDP datagram in an Ethernet frame.
///
/// # Errors
/// [`Refusal`] if there is no UDP datagram, if it is a fragment, or if lengths contradict each other.
///
/// ```
/// let frame = testkit::vectors::bytes("tr20_int");
/// let datagram = wire::datagram(&frame)?;
/// assert_eq!((datagram.src.to_string(), datagram.dst_port), ("192.0.2.1".to_owned(), 32766));
/// assert_eq!(datagram.payload.len(), frame.len() - 42);
///
/// assert_eq!(wire::datagram(&frame[..20]), Err(wire::Refusal::Truncated));
/// # Ok::<(), wire::Refusal>(())
/// ```
#[inline(always)]
pub fn datagram(frame: &[u8]) -> Result<Datagram<'_>, Refusal> {
    match plain(frame) {
        Some(datagram) => Ok(datagram),
        None => any_datagram(frame, &mut PartialHeaders::default()),
    }
}

/// Fast path for the common frame: Ethernet, IPv4 without options, UDP. Returns `None` for any other or malformed frame,
/// for [`any_datagram`].
#[inline(always)]
fn plain(frame: &[u8]) -> Option<Datagram<'_>> {
    let head = frame.first_chunk::<42>()?;
    let common =
        u16_at(head, 12) == IPV4 && head[14] == 0x45 && head[23] == UDP && u16_at(head, 20) & 0x3fff == 0;
    let total = usize::from(u16_at(head, 16));
    let len = usize::from(u16_at(head, 38));
    if !common || len < 8 || len + 20 > total {
        return None;
    }
    Some(Datagram {
        src: IpAddr::from(array_at::<4>(head, 26)),
        dst: IpAddr::from(array_at::<4>(head, 30)),
        src_port: u16_at(head, 34),
        dst_port: u16_at(head, 36),
        payload: frame.get(42..34 + len)?,
    })
}

#[inline(never)]
fn any_datagram<'a>(frame: &'a [u8], envelope: &mut PartialHeaders<'a>) -> Result<Datagram<'a>, Refusal> {
    let ethertype = try_u16(frame, 12).ok_or(Refusal::Truncated)?;
    behind(ethertype, frame.get(14..).unwrap_or(&[]), envelope)
}

/// Returns the UDP datagram in the payload of a link header with this EtherType, for captures of other link layers.
///
/// # Errors
/// As for [`datagram`].
pub fn network(ethertype: u16, payload: &[u8]) -> Result<Datagram<'_>, Refusal> {
    behind(ethertype, payload, &mut PartialHeaders::default())
}

fn behind<'a>(
    mut ethertype: u16,
    mut bytes: &'a [u8],
    envelope: &mut PartialHeaders<'a>,
) -> Result<Datagram<'a>, Refusal> {
    for _ in 0..MAX_TAGS {
        match ethertype {
            IPV4 => return ipv4(bytes, envelope),
            IPV6 => return ipv6(bytes, envelope),
            tag if is_tag(tag) => {
                ethertype = try_u16(bytes, 2).ok_or(Refusal::Truncated)?;
                bytes = &bytes[4..];
            }
            MPLS | MPLS_MULTICAST => {
                let (label, rest) = bytes.split_first_chunk::<4>().ok_or(Refusal::Truncated)?;
                bytes = rest;
                if label[2] & 1 != 0 {
                    return any_ip(bytes, envelope);
                }
            }
            _ => return Err(Refusal::NotIp),
        }
    }
    Err(Refusal::NotIp)
}

fn any_ip<'a>(packet: &'a [u8], envelope: &mut PartialHeaders<'a>) -> Result<Datagram<'a>, Refusal> {
    match packet.first().map(|first| first >> 4) {
        Some(4) => ipv4(packet, envelope),
        Some(6) => ipv6(packet, envelope),
        Some(_) => Err(Refusal::NotIp),
        None => Err(Refusal::Truncated),
    }
}

fn ipv4<'a>(packet: &'a [u8], envelope: &mut PartialHeaders<'a>) -> Result<Datagram<'a>, Refusal> {
    let header = packet.first_chunk::<20>().ok_or(Refusal::Truncated)?;
    let len = usize::from(header[0] & 0x0f) * 4;
    let total = usize::from(u16_at(header, 2));
    if header[0] >> 4 != 4 || len < 20 || total < len {
        return Err(Refusal::BadIpHeader);
    }
    let addresses = (
        IpAddr::from(array_at::<4>(header, 12)),
        IpAddr::from(array_at::<4>(header, 16)),
    );
    envelope.src = Some(addresses.0);
    let payload = packet.get(len..).ok_or(Refusal::Truncated);
    // Nonzero if more fragments follow or this one has an offset.
    let fragment = u16_at(header, 6) & 0x3fff;
    if header[9] == UDP && fragment & 0x1fff == 0 {
        envelope.port_of(payload.unwrap_or(&[]));
    }
    if fragment != 0 {
        return Err(Refusal::Fragment);
    }
    if header[9] != UDP {
        return Err(Refusal::NotUdp);
    }
    udp(payload?, total - len, addresses)
}

fn ipv6<'a>(packet: &'a [u8], envelope: &mut PartialHeaders<'a>) -> Result<Datagram<'a>, Refusal> {
    let header = packet.first_chunk::<40>().ok_or(Refusal::Truncated)?;
    if header[0] >> 4 != 6 {
        return Err(Refusal::BadIpHeader);
    }
    let total = 40 + usize::from(u16_at(header, 4));
    let addresses = (
        IpAddr::from(array_at::<16>(header, 8)),
        IpAddr::from(array_at::<16>(header, 24)),
    );
    // Such an address stands for an IPv4 node and is on no wire (RFC 4291, 2.5.5.2): its sender would pass for that node.
    let is_mapped = header[8..20] == MAPPED;
    envelope.src = Some(addresses.0).filter(|_| !is_mapped);
    let mut at = 40;
    let mut next = header[6];
    for _ in 0..MAX_TAGS {
        if next == UDP {
            envelope.port_of(packet.get(at..).unwrap_or(&[]));
            if is_mapped {
                return Err(Refusal::BadIpHeader);
            }
            let left = total.checked_sub(at).ok_or(Refusal::BadIpHeader)?;
            return udp(packet.get(at..).ok_or(Refusal::Truncated)?, left, addresses);
        }
        let units = match next {
            // Extension headers: length unit in bytes after the first 8. 51 is AH, 44 the fragment header (no length
            // field).
            0 | 43 | 60 | 135 | 139 | 140 => 8,
            51 => 4,
            44 => 0,
            _ => return Err(Refusal::NotUdp),
        };
        let head = packet.get(at..at + 8).ok_or(Refusal::Truncated)?;
        // An atomic fragment (no offset, no more fragments) is a whole datagram.
        if next == 44 && u16_at(head, 2) & 0xfff9 != 0 {
            if head[0] == UDP && u16_at(head, 2) & 0xfff8 == 0 {
                envelope.port_of(packet.get(at + 8..).unwrap_or(&[]));
            }
            return Err(Refusal::Fragment);
        }
        at += 8 + usize::from(head[1]) * units;
        next = head[0];
    }
    Err(Refusal::NotUdp)
}

/// Returns whether the UDP checksum of `datagram`, which is whole and in this Ethernet frame, is right or absent (0).
pub fn checksum_holds(frame: &[u8], datagram: &Datagram<'_>) -> bool {
    let len = 8 + datagram.payload.len();
    let Some(segment) = PartialHeaders::of_frame(frame).udp.get(..len) else {
        return true;
    };
    let sum = match (datagram.src, datagram.dst) {
        _ if u16_at(segment, 6) == 0 => 0,
        (IpAddr::V4(src), IpAddr::V4(dst)) => {
            checksum::transport([src.octets(), dst.octets()].as_flattened(), UDP, segment)
        }
        (src, dst) => checksum::transport([octets(src), octets(dst)].as_flattened(), UDP, segment),
    };
    sum == 0
}

/// Returns an address as 16 bytes; an IPv4 address is mapped.
fn octets(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
        IpAddr::V6(v6) => v6.octets(),
    }
}

/// Parses a UDP datagram. `ip_payload` is the payload length in the IP header; a truncated capture may contain less.
fn udp(bytes: &[u8], ip_payload: usize, addresses: (IpAddr, IpAddr)) -> Result<Datagram<'_>, Refusal> {
    let (header, body) = bytes.split_at_checked(8).ok_or(Refusal::Truncated)?;
    let len = usize::from(u16_at(header, 4));
    if len < 8 || len > ip_payload {
        return Err(Refusal::BadUdpLength);
    }
    let (src, dst) = addresses;
    let payload = body.get(..len - 8).unwrap_or(body);
    Ok(Datagram {
        src,
        dst,
        src_port: u16_at(header, 0),
        dst_port: u16_at(header, 2),
        payload,
    })
}
