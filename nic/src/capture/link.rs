//! Link-layer header types of captures, and the position of the Ethernet or IP header behind them.

use wire::ethernet::ethertype::is_tag;

const ETHERTYPE_IPV4: u16 = 0x0800;
const ETHERTYPE_IPV6: u16 = 0x86dd;
/// Bytes of a VLAN tag: its control word and the next EtherType.
const TAG_LEN: usize = 4;
/// Maximum number of VLAN tags that are skipped, as in an Ethernet frame.
const MAX_TAGS: usize = 7;
// Header length and EtherType offset of Linux cooked captures, version 1 and 2, bytes.
const SLL_HEADER_LEN: usize = 16;
const SLL_PROTOCOL: usize = 14;
const SLL2_HEADER_LEN: usize = 20;
const SLL2_PROTOCOL: usize = 0;

/// Link-layer header types, by the numbers of the tcpdump registry.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum LinkType {
    /// Address family in the host's byte order, then IP (0).
    Null,
    /// An Ethernet frame (1).
    Ethernet,
    /// IPv4 or IPv6, distinguished by the version (101; 12 and 14 in files of some systems).
    RawIp,
    /// The same as [`LinkType::Null`], in network byte order (108).
    Loop,
    /// Linux "cooked" capture (113), which older versions of `tcpdump -i any` write.
    LinuxSll,
    /// An IPv4 packet alone (228).
    Ipv4,
    /// An IPv6 packet alone (229).
    Ipv6,
    /// Linux "cooked" capture, version 2 (276).
    LinuxSll2,
    /// A link type that is not supported.
    Unknown(u16),
}

/// Start of a frame's Ethernet or network header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Layer<'a> {
    /// The frame begins with an Ethernet header.
    Ethernet(&'a [u8]),
    /// The network packet after a link header that names its protocol, and after any VLAN tags.
    Network {
        /// EtherType of `bytes`: 0x0800 IPv4, 0x86dd IPv6 and so on.
        ethertype: u16,
        /// The rest of the frame.
        bytes: &'a [u8],
    },
    /// The frame is shorter than its link header.
    Cut,
    /// The link type, or a header inside it, is not supported.
    Unsupported,
}

impl LinkType {
    /// Returns the link type with this number.
    pub fn from_code(code: u16) -> Self {
        match code {
            0 => Self::Null,
            1 => Self::Ethernet,
            12 | 14 | 101 => Self::RawIp,
            108 => Self::Loop,
            113 => Self::LinuxSll,
            228 => Self::Ipv4,
            229 => Self::Ipv6,
            276 => Self::LinuxSll2,
            other => Self::Unknown(other),
        }
    }

    /// Returns the number of the link type.
    pub fn code(self) -> u16 {
        match self {
            Self::Null => 0,
            Self::Ethernet => 1,
            Self::RawIp => 101,
            Self::Loop => 108,
            Self::LinuxSll => 113,
            Self::Ipv4 => 228,
            Self::Ipv6 => 229,
            Self::LinuxSll2 => 276,
            Self::Unknown(code) => code,
        }
    }

    /// Returns a frame of this type from its Ethernet or network header on.
    #[inline]
    pub fn layer(self, frame: &[u8]) -> Layer<'_> {
        let ethertype = match self {
            Self::Ipv4 => ETHERTYPE_IPV4,
            Self::Ipv6 => ETHERTYPE_IPV6,
            Self::RawIp => match frame.first().map(|first| first >> 4) {
                None => return Layer::Cut,
                Some(4) => ETHERTYPE_IPV4,
                Some(6) => ETHERTYPE_IPV6,
                Some(_) => return Layer::Unsupported,
            },
            Self::Ethernet => return Layer::Ethernet(frame),
            Self::Null | Self::Loop => return behind_family(frame),
            Self::LinuxSll => return cooked::<{ SLL_HEADER_LEN }, { SLL_PROTOCOL }>(frame),
            Self::LinuxSll2 => return cooked::<{ SLL2_HEADER_LEN }, { SLL2_PROTOCOL }>(frame),
            Self::Unknown(_) => return Layer::Unsupported,
        };
        Layer::Network {
            ethertype,
            bytes: frame,
        }
    }
}

/// Skips a header of `LEN` bytes with the EtherType at `PROTOCOL`, and any VLAN tags. Values below 1536 are not EtherTypes.
fn cooked<const LEN: usize, const PROTOCOL: usize>(frame: &[u8]) -> Layer<'_> {
    let Some((header, mut bytes)) = frame.split_at_checked(LEN) else {
        return Layer::Cut;
    };
    let mut ethertype = u16::from_be_bytes([header[PROTOCOL], header[PROTOCOL + 1]]);
    for _ in 0..MAX_TAGS {
        if !is_tag(ethertype) {
            break;
        }
        let Some((tag, rest)) = bytes.split_at_checked(TAG_LEN) else {
            return Layer::Cut;
        };
        ethertype = u16::from_be_bytes([tag[2], tag[3]]);
        bytes = without_lost_tpid(ethertype, rest);
    }
    if ethertype < 1536 {
        Layer::Unsupported
    } else {
        Layer::Network { ethertype, bytes }
    }
}

/// Returns the bytes after a tag. `tcpdump -i any` writes stacked tags wrongly: the outer tag has the EtherType of the packet,
/// and the inner tag lacks its TPID, so that its control word and the packet's EtherType follow again, then the packet.
fn without_lost_tpid(ethertype: u16, bytes: &[u8]) -> &[u8] {
    let version = match ethertype {
        ETHERTYPE_IPV4 => 4,
        ETHERTYPE_IPV6 => 6,
        _ => return bytes,
    };
    match bytes {
        [first, _, high, low, packet @ ..]
            if first >> 4 != version
                && u16::from_be_bytes([*high, *low]) == ethertype
                && packet.first().is_some_and(|first| first >> 4 == version) =>
        {
            packet
        }
        _ => bytes,
    }
}

/// Skips a four-byte address family. It is in the byte order of the capturing machine, but every family fits into one byte,
/// which is therefore at one of the two ends.
fn behind_family(frame: &[u8]) -> Layer<'_> {
    let Some((family, bytes)) = frame.split_at_checked(4) else {
        return Layer::Cut;
    };
    let ethertype = match family {
        [family, 0, 0, 0] | [0, 0, 0, family] => match family {
            2 => ETHERTYPE_IPV4,
            // AF_INET6 of Linux, the BSDs and macOS.
            10 | 24 | 28 | 30 => ETHERTYPE_IPV6,
            _ => return Layer::Unsupported,
        },
        _ => return Layer::Unsupported,
    };
    Layer::Network { ethertype, bytes }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::ethernet::ethertype::TAGS;

    #[test]
    fn codes_convert_to_reasons_and_back() {
        for code in 0..=u16::MAX {
            let expected = if matches!(code, 12 | 14) { 101 } else { code };
            assert_eq!(LinkType::from_code(code).code(), expected);
        }
    }

    #[test]
    fn each_type_begins_where_it_should() {
        let ip4 = Layer::Network {
            ethertype: 0x0800,
            bytes: &[0x45, 1],
        };
        let ip6 = Layer::Network {
            ethertype: 0x86dd,
            bytes: &[0x60, 1],
        };
        let sll = |ethertype: [u8; 2], ip| [&[0; 14][..], &ethertype, &[ip, 1]].concat();
        let sll2 = |ethertype: [u8; 2], ip| [&ethertype[..], &[0; 18], &[ip, 1]].concat();
        let cases: [(LinkType, Vec<u8>, Layer<'_>); 16] = [
            (LinkType::Ethernet, vec![0x45, 1], Layer::Ethernet(&[0x45, 1])),
            (LinkType::RawIp, vec![0x45, 1], ip4),
            (LinkType::RawIp, vec![0x60, 1], ip6),
            (LinkType::RawIp, vec![0x50, 1], Layer::Unsupported),
            (LinkType::RawIp, vec![], Layer::Cut),
            (LinkType::Ipv4, vec![0x45, 1], ip4),
            (LinkType::Ipv6, vec![0x60, 1], ip6),
            (LinkType::Null, vec![2, 0, 0, 0, 0x45, 1], ip4),
            (LinkType::Null, vec![0, 0, 0, 30, 0x60, 1], ip6),
            (LinkType::Loop, vec![0, 0, 0, 2, 0x45, 1], ip4),
            (LinkType::Loop, vec![0, 0, 1, 2, 0x45, 1], Layer::Unsupported),
            (LinkType::LinuxSll, sll([8, 0], 0x45), ip4),
            (LinkType::LinuxSll, sll([0, 4], 0x45), Layer::Unsupported),
            (LinkType::LinuxSll2, sll2([0x86, 0xdd], 0x60), ip6),
            (LinkType::LinuxSll2, vec![8; 19], Layer::Cut),
            (LinkType::Unknown(147), vec![0x45, 1], Layer::Unsupported),
        ];
        for (link, frame, expected) in &cases {
            assert_eq!(link.layer(frame), *expected, "{link:?} {frame:?}");
        }
        for len in 0..16 {
            assert_eq!(LinkType::LinuxSll.layer(&[8; 15][..len.min(15)]), Layer::Cut);
        }
    }

    /// A cooked header that ends or begins with a protocol, then VLAN tags, then IPv4. Ethernet is returned whole, and other
    /// link types have no EtherType that could announce a tag.
    #[test]
    fn cooked_frames_may_have_vlan_tags() {
        let tag_lists = |count: u32| {
            (0..4_usize.pow(count)).map(move |n| (0..count).map(|i| TAGS[n / 4_usize.pow(i) % 4]).collect())
        };
        for tpids in (0..=3).flat_map(tag_lists) {
            let tpids: Vec<u16> = tpids;
            let following = tpids.iter().skip(1).copied().chain([ETHERTYPE_IPV4]);
            let tags: Vec<u8> = following
                .flat_map(|next| [0x60, 100].into_iter().chain(next.to_be_bytes()))
                .collect();
            let tags = &tags[..tpids.len() * TAG_LEN];
            let protocol = tpids.first().copied().unwrap_or(ETHERTYPE_IPV4).to_be_bytes();
            let sll = [&[0; 14][..], &protocol, tags, &[0x45, 1]].concat();
            let sll2 = [&protocol[..], &[0; 18], tags, &[0x45, 1]].concat();
            let expected = Layer::Network {
                ethertype: ETHERTYPE_IPV4,
                bytes: &[0x45, 1],
            };
            assert_eq!(LinkType::LinuxSll.layer(&sll), expected, "{tpids:04x?}");
            assert_eq!(LinkType::LinuxSll2.layer(&sll2), expected, "{tpids:04x?}");
            for cut in SLL_HEADER_LEN..SLL_HEADER_LEN + tags.len() {
                assert_eq!(
                    LinkType::LinuxSll.layer(&sll[..cut]),
                    Layer::Cut,
                    "{tpids:04x?} to {cut}"
                );
            }
        }
        // Two tags, as `tcpdump -i any` writes them.
        for (tpid, next) in [([0x88, 0xa8], [8, 0]), ([0x81, 0], [8, 0])] {
            let sll = [
                &[0; 14][..],
                &tpid,
                &[0, 100],
                &next,
                &[0, 200],
                &next,
                &[0x45, 1],
            ]
            .concat();
            let expected = Layer::Network {
                ethertype: ETHERTYPE_IPV4,
                bytes: &[0x45, 1],
            };
            assert_eq!(LinkType::LinuxSll.layer(&sll), expected);
        }
        let many = [&[0; 14][..], &[0x81, 0], &[0, 100, 0x81, 0].repeat(8), &[0x45, 1]].concat();
        let beyond = Layer::Network {
            ethertype: 0x8100,
            bytes: &many[SLL_HEADER_LEN + MAX_TAGS * TAG_LEN..],
        };
        assert_eq!(LinkType::LinuxSll.layer(&many), beyond);
    }
}
