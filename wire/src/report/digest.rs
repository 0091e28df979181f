//! Packet digests for postcards: identify a packet across the reports of several nodes, by a hash of fields that are equal
//! at every node, and by its hop limit.

use super::Report;
use crate::bytes::{try_u16, try_u32, u16_at};
use crate::crc::{crc_32c, crc_32c_update};
use crate::flow::FlowKey;
use crate::ipv6::Extensions;
use crate::packet::{Encapsulation, TCP, UDP, Walk};

/// Bytes of payload that are part of a digest.
const SNAP: usize = 8;
/// Lowest bit of a digest: IPv4 identification, a checksum or TCP numbers are part of it.
const IDENTIFIED: u32 = 1;

/// The reported packet, with the places of its IP headers and of INT, as its parser found them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Places<'a> {
    bytes: &'a [u8],
    /// Offset of the outermost IP header.
    outer: u16,
    /// Offset of the innermost IP header.
    inner: u16,
    /// End of INT behind the L4 header of the innermost packet. INT in an IPv6 option, or in the header of a tunnel around that
    /// packet, changes neither its checksum nor the place of its payload.
    int_end: Option<u16>,
}

impl<'a> Places<'a> {
    /// The report carries no packet.
    pub(crate) const NONE: Self = Self {
        bytes: &[],
        outer: 0,
        inner: 0,
        int_end: None,
    };

    /// A packet without a tunnel, whose IP header is at `ip`, and whose INT, behind its L4 header, ends at `int_end`.
    #[inline(always)]
    pub(crate) fn plain(bytes: &'a [u8], ip: usize, int_end: usize) -> Self {
        Self {
            bytes,
            outer: ip as u16,
            inner: ip as u16,
            int_end: Some(int_end as u16),
        }
    }

    /// The places in the packet that `walk` has parsed. No packet in a datagram has 2^16 bytes.
    #[inline]
    pub(crate) fn of(walk: &Walk<'_, '_>, packet: &'a [u8]) -> Self {
        let Some(outer) = walk.first_ip else {
            return Self::NONE;
        };
        let int = walk.out.location.filter(|location| {
            location.ip == walk.last_ip && location.encapsulation != Encapsulation::HopByHop
        });
        Self {
            bytes: packet,
            outer: outer as u16,
            inner: walk.last_ip as u16,
            int_end: int.map(|location| location.end as u16),
        }
    }

    /// Reads the packet whose IP header is at this offset.
    fn packet_at(&self, at: u16) -> Option<Packet<'a>> {
        self.bytes.get(usize::from(at)..).and_then(Packet::read)
    }
}

/// Identity of the packet in a report.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct PacketDigest {
    /// TTL or hop limit of its outermost IP header.
    pub hop_limit: Option<u8>,
    /// Digest, equal in all reports of a packet and rarely equal for two packets of a flow; 0: none. See
    /// [`PacketDigest::may_repeat`].
    pub digest: u32,
}

impl PacketDigest {
    /// Computes the digest of a report's packet: the CRC-32C of fields that are equal at every node. These are the IPv4
    /// identification, TCP sequence and acknowledgement numbers, the first bytes of the payload (after INT), and the L4
    /// checksum unless INT follows the L4 header, which changes it. Lengths, DSCP and ports change with INT and are left out.
    /// For a tunneled packet the inner packet's fields count, because the outer header may be the same for all packets.
    pub fn of(report: &Report<'_>) -> Self {
        let places = &report.places;
        let Some(outer) = places.packet_at(places.outer) else {
            return Self::default();
        };
        let inner = places
            .packet_at(places.inner)
            .filter(|packet| report.flow.is_some_and(|flow| is_it(packet.bytes, &flow)));
        let is_inside = report.int.is_some() && inner.is_some();
        let int_end = places.int_end.filter(|_| is_inside);
        Self {
            hop_limit: Some(outer.hop_limit),
            digest: digest(&inner.unwrap_or(outer), int_end, places.bytes),
        }
    }

    /// Returns whether another packet of the flow may have the same digest, because only the first payload bytes tell them
    /// apart.
    pub const fn may_repeat(digest: u32) -> bool {
        digest & IDENTIFIED == 0
    }
}

/// An IP packet with its transport header.
#[derive(Clone, Copy)]
struct Packet<'a> {
    /// Bytes starting at the IP header.
    bytes: &'a [u8],
    hop_limit: u8,
    ident: u16,
    proto: u8,
    body: &'a [u8],
}

impl<'a> Packet<'a> {
    /// Parses the packet at the start of `bytes`; `None` if its IP header is incomplete.
    fn read(bytes: &'a [u8]) -> Option<Self> {
        if bytes.first()? >> 4 == 6 {
            let header = bytes.first_chunk::<40>()?;
            let mut extensions = Extensions::new(bytes, 40, header[6]);
            extensions.by_ref().for_each(drop);
            return Some(Self {
                bytes,
                hop_limit: header[7],
                ident: 0,
                proto: extensions.next,
                body: bytes.get(extensions.at..).unwrap_or_default(),
            });
        }
        let header = bytes.first_chunk::<20>()?;
        Some(Self {
            bytes,
            hop_limit: header[8],
            ident: u16_at(header, 4),
            proto: header[9],
            body: bytes.get(usize::from(header[0] & 0x0f) * 4..).unwrap_or_default(),
        })
    }
}

/// Returns whether `bytes` start with an IP header with the addresses of `key`.
fn is_it(bytes: &[u8], key: &FlowKey) -> bool {
    let (version, src, dst) = if key.is_v6() {
        (6, 8..24, 24..40)
    } else {
        (4, 12..16, 16..20)
    };
    let skip = 16 - src.len();
    bytes.first().is_some_and(|first| first >> 4 == version)
        && bytes.get(src) == key.src_octets().get(skip..)
        && bytes.get(dst) == key.dst_octets().get(skip..)
}

/// Computes the digest of `packet`, which is in `bytes`. `int_end` is the end of INT behind its L4 header.
fn digest(packet: &Packet<'_>, int_end: Option<u16>, bytes: &[u8]) -> u32 {
    let body = packet.body;
    let (numbers, checksum, header) = match packet.proto {
        TCP => (
            [4, 8].map(|at| try_u32(body, at).unwrap_or(0)),
            try_u16(body, 16),
            20,
        ),
        UDP => ([0; 2], try_u16(body, 6), 8),
        // ICMP and others: the bytes after their first word.
        _ => ([0; 2], None, 4),
    };
    let checksum = checksum.filter(|_| int_end.is_none()).unwrap_or(0);
    let payload = match int_end {
        None => body.get(header..),
        Some(end) => bytes.get(usize::from(end)..),
    };
    let snap = payload
        .and_then(|payload| payload.get(..SNAP))
        .unwrap_or_default();
    let is_identified = packet.ident != 0 || checksum != 0 || numbers != [0; 2];
    if !is_identified && snap.iter().all(|byte| *byte == 0) {
        return 0;
    }
    let mut fixed = [0; 12];
    fixed[..2].copy_from_slice(&packet.ident.to_be_bytes());
    fixed[2..4].copy_from_slice(&checksum.to_be_bytes());
    fixed[4..8].copy_from_slice(&numbers[0].to_be_bytes());
    fixed[8..].copy_from_slice(&numbers[1].to_be_bytes());
    let crc = !crc_32c_update(!crc_32c(&fixed), snap);
    if is_identified {
        crc | IDENTIFIED
    } else {
        (crc & !IDENTIFIED).max(2)
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use std::vec;
    use std::vec::Vec;

    use super::*;
    use crate::int::layout::Layouts;
    use crate::profile::Profile;
    use crate::report::{FirstHeader, InnerPacket, inside};
    use crate::vxlan::{GPE_PORT, LINUX_PORT, PORT as VXLAN_PORT};
    use crate::{geneve::PORT as GENEVE_PORT, packet::GRE, packet::IP_IN_IP};

    fn read(first: FirstHeader, packet: &[u8], profile: &Profile) -> PacketDigest {
        let mut report = Report::EMPTY;
        let packet = InnerPacket {
            first,
            packet,
            find_int: true,
        };
        inside(&mut report, packet, profile, &mut Layouts::new()).unwrap();
        PacketDigest::of(&report)
    }

    fn udp(ident: u16, ttl: u8, tos: u8, checksum: u16, behind: &[u8]) -> Vec<u8> {
        let mut bytes = vec![
            0x45, tos, 0, 0, 0, 0, 0x40, 0, ttl, UDP, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2,
        ];
        bytes[4..6].copy_from_slice(&ident.to_be_bytes());
        bytes.extend([0x13, 0x88, 0, 80, 0, 40]);
        bytes.extend(checksum.to_be_bytes());
        bytes.extend(behind);
        bytes
    }

    fn of(inner: &[u8]) -> PacketDigest {
        read(FirstHeader::Ipv4, inner, &Profile::default())
    }

    #[test]
    fn one_packet_has_one_digest_wherever_it_is_seen() {
        let first = of(&udp(7, 64, 0, 0xabcd, &[1; 8]));
        let later = of(&udp(7, 61, 0x28, 0xabcd, &[1; 12]));
        assert_eq!((first.hop_limit, later.hop_limit), (Some(64), Some(61)));
        assert!(first.digest != 0 && first.digest == later.digest);
        for other in [
            udp(8, 64, 0, 0xabcd, &[1; 8]),
            udp(7, 64, 0, 0xabce, &[1; 8]),
            udp(7, 64, 0, 0xabcd, &[2; 8]),
        ] {
            assert_ne!(of(&other).digest, first.digest);
        }
    }

    #[test]
    fn ethernet_tags_and_labels_are_stepped_over() {
        let packet = udp(7, 64, 0, 0xabcd, &[1; 8]);
        let tag = [0x81, 0, 0, 5];
        let links: [&[&[u8]]; 6] = [
            &[&[8, 0]],
            &[&tag, &[8, 0]],
            &[&[0x88, 0xa8, 0, 5], &tag, &[8, 0]],
            &[&tag, &tag, &tag, &[8, 0]],
            &[&[0x88, 0x47], &[0, 0, 0x10, 64], &[0, 0, 0x41, 64]],
            &[
                &[0x88, 0x47],
                &[0, 0, 0x10, 64],
                &[0, 0, 0x10, 64],
                &[0, 0, 0x31, 64],
            ],
        ];
        for link in links {
            let frame = [&[2; 12][..], &link.concat(), &packet].concat();
            assert_eq!(
                read(FirstHeader::Ethernet, &frame, &Profile::default()),
                of(&packet),
                "{link:x?}"
            );
        }
    }

    #[test]
    fn an_empty_or_truncated_packet_has_only_the_fields_that_it_contains() {
        assert_eq!(
            of(&udp(0, 64, 0, 0, &[])),
            PacketDigest {
                hop_limit: Some(64),
                digest: 0
            }
        );
        let whole = udp(7, 64, 0, 1, &[1; 8]);
        for cut in 0..20 {
            assert_eq!(of(&whole[..cut]), PacketDigest::default(), "{cut}");
        }
        for cut in 20..whole.len() {
            assert_eq!(of(&whole[..cut]).hop_limit, Some(64), "{cut}");
        }
    }

    fn v6(extensions: &[u8], next: u8, checksum: u16) -> Vec<u8> {
        let mut bytes = vec![0x60, 0, 0, 0, 0, 0, next, 64];
        bytes.extend([1; 16]);
        bytes.extend([2; 16]);
        bytes.extend(extensions);
        bytes.extend([0x13, 0x88, 0, 80, 0, 24]);
        bytes.extend(checksum.to_be_bytes());
        bytes.extend([7; 8]);
        bytes
    }

    #[test]
    fn extension_headers_are_stepped_over() {
        let digest = |inner: &[u8]| read(FirstHeader::Ipv6, inner, &Profile::default()).digest;
        let options = [60, 0, 1, 4, 0, 0, 0, 0, UDP, 0, 1, 4, 0, 0, 0, 0];
        let plain = digest(&v6(&[], UDP, 0x1234));
        assert_eq!(digest(&v6(&options, 0, 0x1234)), plain);
        assert_ne!(digest(&v6(&options, 0, 0x1235)), plain);
        assert!(!PacketDigest::may_repeat(plain));
        assert!(PacketDigest::may_repeat(digest(&v6(&options, 0, 0))));
    }

    #[test]
    fn a_tunnelled_packet_has_the_digest_of_the_inner_one() {
        let inner = udp(7, 9, 0, 0xabcd, &[1; 8]);
        let mut frame = vec![2; 12];
        frame.extend([8, 0]);
        frame.extend(&inner);
        let mut gre = vec![0x20, 0, 8, 0, 0, 0, 0, 1];
        gre.extend(&inner);
        let outer = |proto: u8, port: u16, head: &[u8], behind: &[u8]| {
            let mut bytes = udp(0, 64, 0, 0, &[head, behind].concat());
            bytes[9] = proto;
            if proto == UDP {
                bytes[22..24].copy_from_slice(&port.to_be_bytes());
            } else {
                bytes.drain(20..28);
            }
            bytes
        };
        let packets = [
            outer(UDP, VXLAN_PORT, &[8, 0, 0, 0, 0, 0, 9, 0], &frame),
            outer(UDP, LINUX_PORT, &[8, 0, 0, 0, 0, 0, 9, 0], &frame),
            outer(UDP, GPE_PORT, &[0x0c, 0, 0, 1, 0, 0, 9, 0], &inner),
            outer(
                UDP,
                GENEVE_PORT,
                &[1, 0, 0x65, 0x58, 0, 0, 9, 0, 1, 2, 3, 0],
                &frame,
            ),
            outer(GRE, 0, &[], &gre),
            outer(IP_IN_IP, 0, &[], &inner),
        ];
        for packet in packets {
            let found = of(&packet);
            let expected = of(&inner).digest;
            assert_eq!(
                (found.hop_limit, found.digest),
                (Some(64), expected),
                "{packet:02x?}"
            );
        }
    }
}
