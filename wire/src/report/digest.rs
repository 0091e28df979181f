//! Packet digests for postcards: identify a packet across the reports of several nodes, by a hash of fields that are equal
//! at every node, and by its hop limit.

use super::Report;
use crate::bytes::{try_u16, try_u32, u16_at};
use crate::crc::{crc_32c, crc_32c_update};
use crate::ethernet::ethertype::is_tag;
use crate::flow::FlowKey;
use crate::ipv6::Extensions;
use crate::packet::{
    ETHERNET, GENEVE_PORT, GPE_PORT, GRE, IP_IN_IP, IPV4, IPV6, IPV6_IN_IP, LINUX_PORT, TCP, UDP, VXLAN_PORT,
};

/// Possible offsets of the IP header: at the start, or after Ethernet with up to two tags.
const PLACES: [usize; 4] = [0, 14, 18, 22];
/// Maximum nesting of tunnels, as in [`crate::packet`].
const MAX_TUNNELS: usize = 4;
/// Bytes of payload that are part of a digest.
const SNAP: usize = 8;
/// Lowest bit of a digest: IPv4 identification, a checksum or TCP numbers are part of it.
const IDENTIFIED: u32 = 1;

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
    /// checksum if the packet has no INT, which would change it. Lengths, DSCP and ports change with INT and are left out.
    /// For a tunneled packet without INT the inner packet's fields count, because the outer header may be the same for all
    /// packets.
    pub fn of(report: &Report<'_>) -> Self {
        let Some(key) = report.tunnel.or(report.flow) else {
            return Self::default();
        };
        let packet = PLACES
            .iter()
            .find_map(|&at| report.inner.get(at..).filter(|bytes| is_it(bytes, &key)));
        let Some(outer) = packet.and_then(Packet::read) else {
            return Self::default();
        };
        let inner = match (report.tunnel, report.flow) {
            (Some(_), Some(flow)) if report.int.is_none() => outer.find(&flow).unwrap_or(outer),
            _ => outer,
        };
        Self {
            hop_limit: Some(outer.hop_limit),
            digest: digest(&inner, report.int.is_some()),
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

    /// Finds the packet with the addresses of `flow` in nested tunnels.
    fn find(self, flow: &FlowKey) -> Option<Self> {
        let mut packet = self;
        for _ in 0..=MAX_TUNNELS {
            packet = packet.inside()?;
            if is_it(packet.bytes, flow) {
                return Some(packet);
            }
        }
        None
    }

    /// Returns the packet in the tunnel that this one carries.
    fn inside(&self) -> Option<Self> {
        let body = self.body;
        match self.proto {
            IP_IN_IP | IPV6_IN_IP => Self::read(body),
            GRE => {
                let head = body.first_chunk::<4>()?;
                let fields = (head[0] & 0xb0).count_ones() as usize * 4;
                Self::behind(u16_at(head, 2), body.get(4 + fields..)?)
            }
            UDP => {
                let tunnel = body.get(8..)?;
                let head = tunnel.first_chunk::<8>()?;
                match u16_at(body, 2) {
                    VXLAN_PORT | LINUX_PORT => Self::behind(ETHERNET, &tunnel[8..]),
                    // Without the P bit, this is plain VXLAN.
                    GPE_PORT if head[0] & 0x04 == 0 => Self::behind(ETHERNET, &tunnel[8..]),
                    GPE_PORT => match head[3] {
                        1 => Self::behind(IPV4, &tunnel[8..]),
                        2 => Self::behind(IPV6, &tunnel[8..]),
                        3 => Self::behind(ETHERNET, &tunnel[8..]),
                        _ => None,
                    },
                    GENEVE_PORT => {
                        let options = usize::from(head[0] & 0x3f) * 4;
                        Self::behind(u16_at(head, 2), tunnel.get(8 + options..)?)
                    }
                    _ => None,
                }
            }
            _ => None,
        }
    }

    /// Returns the packet after an EtherType: IP, or the IP packet of a frame with up to two tags.
    fn behind(ethertype: u16, bytes: &'a [u8]) -> Option<Self> {
        match ethertype {
            IPV4 | IPV6 => Self::read(bytes),
            ETHERNET => {
                let mut at = 12;
                while at < 20 && is_tag(try_u16(bytes, at)?) {
                    at += 4;
                }
                matches!(try_u16(bytes, at)?, IPV4 | IPV6)
                    .then(|| bytes.get(at + 2..).and_then(Self::read))
                    .flatten()
            }
            _ => None,
        }
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

fn digest(packet: &Packet<'_>, with_int: bool) -> u32 {
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
    let checksum = checksum.unwrap_or(0);
    let checksum = if with_int { 0 } else { checksum };
    // The shim's length is in words, without the shim.
    let skip = match body.get(header + 1) {
        Some(words) if with_int => 4 + usize::from(*words) * 4,
        _ => 0,
    };
    let snap = body.get(header + skip..header + skip + SNAP).unwrap_or_default();
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
    fn udp(ident: u16, ttl: u8, tos: u8, checksum: u16, behind: &[u8]) -> Vec<u8> {
        let mut bytes = vec![
            0x45, tos, 0, 60, 0, 0, 0x40, 0, ttl, UDP, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2,
        ];
        bytes[4..6].copy_from_slice(&ident.to_be_bytes());
        bytes.extend([0x13, 0x88, 0, 80, 0, 40]);
        bytes.extend(checksum.to_be_bytes());
        bytes.extend(behind);
        bytes
    }

    fn of(inner: &[u8]) -> PacketDigest {
        let key = FlowKey::v4([10, 0, 0, 1], [10, 0, 0, 2], Some((5000, 80)), UDP);
        PacketDigest::of(&Report {
            flow: Some(key),
            inner,
            ..Report::EMPTY
        })
    }

    #[test]
    fn one_packet_has_one_digest_wherever_it_is_seen() {
        let first = of(&udp(7, 64, 0, 0xabcd, &[1; 8]));
        let later = of(&udp(7, 61, 0x5c, 0xabcd, &[1; 12]));
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
    fn ethernet_and_tags_are_stepped_over() {
        let packet = udp(7, 64, 0, 0xabcd, &[1; 8]);
        for tags in [14, 18, 22] {
            let mut frame = vec![0x45; tags];
            frame.extend(&packet);
            assert_eq!(of(&frame), of(&packet), "{tags}");
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
        let elsewhere = FlowKey::v4([10, 0, 0, 9], [10, 0, 0, 2], None, UDP);
        let report = Report {
            flow: Some(elsewhere),
            inner: &whole,
            ..Report::EMPTY
        };
        assert_eq!(PacketDigest::of(&report), PacketDigest::default());
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
        let key = FlowKey::v6([1; 16], [2; 16], Some((5000, 80)), UDP);
        let digest = |inner: &[u8]| {
            PacketDigest::of(&Report {
                flow: Some(key),
                inner,
                ..Report::EMPTY
            })
            .digest
        };
        let options = [60, 0, 1, 4, 0, 0, 0, 0, UDP, 0, 1, 4, 0, 0, 0, 0];
        let plain = digest(&v6(&[], UDP, 0x1234));
        assert_eq!(digest(&v6(&options, 0, 0x1234)), plain);
        assert_ne!(digest(&v6(&options, 0, 0x1235)), plain);
        assert!(!PacketDigest::may_repeat(plain));
        assert!(PacketDigest::may_repeat(digest(&v6(&options, 0, 0))));
    }

    #[test]
    fn a_tunnelled_packet_has_the_digest_of_the_inner_one() {
        let flow = FlowKey::v4([10, 0, 0, 1], [10, 0, 0, 2], Some((5000, 80)), UDP);
        let tunnel = FlowKey::v4([10, 0, 0, 1], [10, 0, 0, 2], Some((5000, 4789)), UDP);
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
            let found = PacketDigest::of(&Report {
                flow: Some(flow),
                tunnel: Some(tunnel),
                inner: &packet,
                ..Report::EMPTY
            });
            let expected = of(&inner).digest;
            assert_eq!(
                (found.hop_limit, found.digest),
                (Some(64), expected),
                "{packet:02x?}"
            );
        }
    }
}
