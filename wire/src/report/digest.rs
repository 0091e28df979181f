//! Which packet a report is about: a digest of the fields that are equal at every node on its path, and its hop limit.

use super::Report;
use crate::bytes::{try_u16, try_u32, u16_at};
use crate::crc::{crc_32c, crc_32c_update};
use crate::flow::FlowKey;

/// Identity of the packet in a report. Wire-formats 4.1.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct PacketDigest {
    /// Time to live or hop limit of its outermost IP header.
    pub hop_limit: Option<u8>,
    /// Equal in all reports of one packet, and rarely equal for two packets of a flow; 0: none.
    pub digest: u32,
}

const TCP: u8 = 6;
const UDP: u8 = 17;

/// Possible offsets of the IP header: at the start, or after Ethernet with up to two tags.
const PLACES: [usize; 4] = [0, 14, 18, 22];

/// Bytes of payload that belong to a digest.
const SNAP: usize = 8;

impl PacketDigest {
    /// Reads the packet in a report. The digest is the CRC-32C of the fields that are equal at every node: IPv4's identification, TCP's
    /// numbers, the first bytes of the payload (after INT), and the L4 checksum if the packet has no INT, which would
    /// change it. Lengths, DSCP and ports change with INT and are left out.
    pub fn of(report: &Report<'_>) -> Self {
        let Some(key) = report.tunnel.or(report.flow) else {
            return Self::default();
        };
        let packet = PLACES
            .iter()
            .find_map(|&at| report.inner.get(at..).filter(|bytes| is_it(bytes, &key)));
        let Some(bytes) = packet else {
            return Self::default();
        };
        let (hop_limit, ident, proto, l4) = match bytes.first_chunk::<20>() {
            Some(header) if !key.is_v6() => (
                header[8],
                u16_at(header, 4),
                header[9],
                usize::from(header[0] & 0x0f) * 4,
            ),
            _ => (bytes[7], 0, bytes[6], 40),
        };
        let body = bytes.get(l4..).unwrap_or_default();
        Self {
            hop_limit: Some(hop_limit),
            digest: digest(ident, proto, body, report.int.is_some()),
        }
    }
}

/// Whether `bytes` begin with an IP header that has the addresses of `key`.
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

fn digest(ident: u16, proto: u8, body: &[u8], with_int: bool) -> u32 {
    let (numbers, checksum, header) = match proto {
        TCP => (
            [4, 8].map(|at| try_u32(body, at).unwrap_or(0)),
            try_u16(body, 16),
            20,
        ),
        UDP => ([0; 2], try_u16(body, 6), 8),
        // ICMP and others: what follows their first word.
        _ => ([0; 2], None, 4),
    };
    let checksum = checksum.unwrap_or(0);
    let checksum = if with_int { 0 } else { checksum };
    // A shim's length is in words, without the shim.
    let skip = match body.get(header + 1) {
        Some(words) if with_int => 4 + usize::from(*words) * 4,
        _ => 0,
    };
    let snap = body.get(header + skip..header + skip + SNAP).unwrap_or_default();
    if ident == 0 && numbers == [0; 2] && checksum == 0 && snap.iter().all(|byte| *byte == 0) {
        return 0;
    }
    let mut fixed = [0; 12];
    fixed[..2].copy_from_slice(&ident.to_be_bytes());
    fixed[2..4].copy_from_slice(&checksum.to_be_bytes());
    fixed[4..8].copy_from_slice(&numbers[0].to_be_bytes());
    fixed[8..].copy_from_slice(&numbers[1].to_be_bytes());
    (!crc_32c_update(!crc_32c(&fixed), snap)).max(1)
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
}
