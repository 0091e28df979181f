//! Fast path for the other common reports: Report 1.0 or 2.0, about an IPv4 packet with or without Ethernet header, over
//! UDP or TCP, with INT-MD 1.0 or 2.x marked by its DSCP.
//!
//! Header positions come from the last such report, so that a series of similar reports takes one length check per header
//! and one comparison per assumption. The result equals the full decoder's, or is `None` for unusual, truncated and
//! malformed datagrams; tests compare the two.

use super::brief::{PLAIN, REPLICA, flags, is_generator, is_ordinary};
use super::v20::TO_THE_END;
use super::{Brief, Flags, Version};
use crate::bytes::{array_at, u16_at, u32_at};
use crate::flow::FlowKey;
use crate::int::layout::{Layout, Layouts};
use crate::int::{self, header, sf, shim};
use crate::packet::{IPV4, TCP, UDP};
use crate::profile::{Dialect, Profile, TcpShim};

/// Report type 1, and inner types.
const TYPE_1: u8 = 0x10;
const ETHERNET: u8 = 3;
const IPV4_INNER: u8 = 4;
/// F flag of Report 2.0.
const FLOW: u8 = 0x20;

/// Offsets from the start of the UDP payload.
mod head {
    pub(super) const WORD: usize = 0;
    pub(super) const NODE_ID: usize = 4;
    // Offsets in Report 1.0.
    pub(super) const SEQ: usize = 8;
    pub(super) const INGRESS_TS: usize = 12;
    // Offsets in Report 2.0.
    pub(super) const TYPES: usize = 8;
    pub(super) const REPORT_LENGTH: usize = 9;
    pub(super) const MAIN: usize = 12;
    pub(super) const LEN: usize = 16;
}

/// Offsets from two bytes before the IPv4 header, where the EtherType is if there is an Ethernet header.
mod ip {
    pub(super) const ETHERTYPE: usize = 0;
    pub(super) const VERSION: usize = 2;
    pub(super) const TOS: usize = 3;
    pub(super) const TOTAL_LEN: usize = 4;
    pub(super) const FRAGMENT: usize = 8;
    pub(super) const TTL: usize = 10;
    pub(super) const PROTO: usize = 11;
    pub(super) const SRC: usize = 14;
    pub(super) const DST: usize = 18;
    pub(super) const L4: usize = 22;
    pub(super) const SPORT: usize = 22;
    pub(super) const DPORT: usize = 24;
    pub(super) const LEN: usize = 26;
}

/// Offsets from the shim.
mod field {
    pub(super) const SHIM: usize = 0;
    pub(super) const LENGTH_2: usize = 1;
    pub(super) const LENGTH_10: usize = 2;
    pub(super) const INT: usize = 4;
    pub(super) const INT_M: usize = 5;
    pub(super) const HOP_ML: usize = 6;
    pub(super) const REMAINING: usize = 7;
    pub(super) const BITMAP: usize = 8;
    pub(super) const DS_ID: usize = 10;
    pub(super) const LEN: usize = 12;
}

/// Masks of the compared bits.
mod mask {
    /// Report 1.0: version, length, next protocol and metadata bits.
    pub(super) const WORD_10: u32 = 0xffff_8000;
    /// Report 2.0: the version.
    pub(super) const WORD_20: u32 = 0xf000_0000;
    /// Report 2.0: types, MD length and the flags D, F and I.
    pub(super) const TYPES: u32 = 0xff00_ffb0;
    /// EtherType, IP version and header length, DSCP.
    pub(super) const IP: u32 = 0xffff_fffc;
    /// Fragment offset and IP protocol.
    pub(super) const FRAGMENT: u32 = 0x1fff_00ff;
    /// Shim type and length, INT version and C flag, words per hop.
    pub(super) const INT_10: u64 = 0xff00_ff00_f200_1f00;
    /// Shim type and next-protocol type, INT version, SF flag, words per hop.
    pub(super) const INT_2: u64 = 0xffff_0000_f100_1f00;
    /// Bitmap; for INT 2.x also the Domain Specific ID.
    pub(super) const BITMAP_10: u32 = 0xffff_0000;
    pub(super) const BITMAP_2: u32 = 0xffff_ffff;
}

type Head = [u8; head::LEN];
type Ip = [u8; ip::LEN];
type Shim = [u8; field::LEN];

/// The fields that make a report a common one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Fields {
    word: u32,
    types: u32,
    main: u32,
    ip: u32,
    fragment: u32,
    bitmap: u32,
    int: u64,
}

impl Fields {
    #[inline(always)]
    fn of(head: &Head, packet: &Ip, shim: &Shim) -> Self {
        Self {
            word: u32_at(head, head::WORD),
            types: u32_at(head, head::TYPES),
            main: u32_at(head, head::MAIN),
            ip: u32_at(packet, ip::ETHERTYPE),
            fragment: u32_at(packet, ip::FRAGMENT),
            bitmap: u32_at(shim, field::BITMAP),
            int: u64::from_be_bytes(array_at(shim, field::SHIM)),
        }
    }

    /// Returns the bits set in both.
    fn and(&self, other: &Self) -> Self {
        Self {
            word: self.word & other.word,
            types: self.types & other.types,
            main: self.main & other.main,
            ip: self.ip & other.ip,
            fragment: self.fragment & other.fragment,
            bitmap: self.bitmap & other.bitmap,
            int: self.int & other.int,
        }
    }

    /// Returns whether the compared bits equal the expected ones. Never true if uncompared bits are expected.
    #[inline(always)]
    fn are(&self, expected: &Self, compared: &Self) -> bool {
        // One branch instead of seven, because a difference is rare.
        let small = self.word & compared.word ^ expected.word
            | self.types & compared.types ^ expected.types
            | self.main & compared.main ^ expected.main
            | self.ip & compared.ip ^ expected.ip
            | self.fragment & compared.fragment ^ expected.fragment
            | self.bitmap & compared.bitmap ^ expected.bitmap;
        (self.int & compared.int ^ expected.int) | u64::from(small) == 0
    }
}

/// The positions of a report's headers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Place {
    /// Offset two bytes before the IPv4 header.
    ip: u8,
    shim: u8,
    stack: u8,
}

/// Fields and positions of the last common report. A report with equal fields is common too, with records of the same
/// layout.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Template {
    expected: Fields,
    compared: Fields,
    place: Place,
    version: Version,
    /// Bit offset of the flags in Report 1.0's first word.
    flags_at: u8,
    proto: u8,
    /// A UDP destination port without a special meaning.
    dst_port: u16,
    /// Length of all records, and of the packet up to their end, bytes.
    records: u16,
    packet: u16,
    shape: u64,
}

impl Template {
    /// A template that matches no report: it expects a bit that is not compared.
    pub(crate) const NONE: Self = {
        let none = Fields {
            word: 0,
            types: 0,
            main: 0,
            ip: 0,
            fragment: 0,
            bitmap: 0,
            int: 0,
        };
        Self {
            expected: Fields { int: 1, ..none },
            compared: none,
            place: Place {
                ip: 0,
                shim: 0,
                stack: 0,
            },
            version: Version::V20,
            flags_at: 0,
            proto: 0,
            dst_port: 0,
            records: 0,
            packet: 0,
            shape: 0,
        }
    };

    /// Creates the template of a report, or returns `None` if it is not a common one.
    #[inline(never)]
    fn of(payload: &[u8], profile: &Profile, layouts: &mut Layouts) -> Option<Self> {
        let head = payload.first_chunk::<{ head::LEN }>()?;
        let (version, ip_at, in_frame) = report(head, profile)?;
        let packet = payload.get(ip_at..)?.first_chunk::<{ ip::LEN }>()?;
        let proto = packet[ip::PROTO];
        let shim_at = ip_at + ip::L4 + l4_len(packet, profile, in_frame)?;
        let shim = payload.get(shim_at..)?.first_chunk::<{ field::LEN }>()?;
        let int = stack(shim, profile, layouts)?;
        let stack_at = shim_at + shim::LEN + int.header;
        let is_10 = version == Version::V10;
        let compared = Fields {
            word: if is_10 { mask::WORD_10 } else { mask::WORD_20 },
            types: if is_10 { 0 } else { mask::TYPES },
            main: if !is_10 && head[head::TYPES] & TYPE_1 != 0 {
                u32::MAX
            } else {
                0
            },
            ip: if in_frame { mask::IP } else { mask::IP & 0xffff },
            fragment: mask::FRAGMENT,
            bitmap: int.bitmap,
            int: int.compared,
        };
        Some(Self {
            expected: Fields::of(head, packet, shim).and(&compared),
            compared,
            place: Place {
                ip: ip_at as u8,
                shim: shim_at as u8,
                stack: stack_at as u8,
            },
            version,
            flags_at: if profile.dialect == Dialect::Onos { 12 } else { 6 },
            proto,
            dst_port: u16_at(packet, ip::DPORT),
            records: int.records as u16,
            packet: (stack_at - ip_at - ip::VERSION + int.records) as u16,
            shape: int.shape,
        })
    }
}

/// Returns a common report's version, the offset two bytes before its IPv4 header, and whether it has an Ethernet header.
fn report(head: &Head, profile: &Profile) -> Option<(Version, usize, bool)> {
    let word = u32_at(head, head::WORD);
    if word >> 15 == PLAIN || is_generator(word, profile) {
        return Some((Version::V10, 28, true));
    }
    let types = head[head::TYPES];
    let main = if types & TYPE_1 != 0 {
        super::v20::MAIN_LEN
    } else {
        0
    };
    let in_frame = types & 0x0f == ETHERNET;
    // No main metadata, no domain; a tracked flow, not dropped, not from an intermediate node.
    let common = word >> 28 == 2
        && matches!(types & !TYPE_1, ETHERNET | IPV4_INNER)
        && u32_at(head, head::TYPES) & 0xffb0 == u32::from(FLOW)
        && (main == 0 || u32_at(head, head::MAIN) == 0);
    let frame = if in_frame { crate::ethernet::HEADER_LEN } else { 0 };
    common.then_some((Version::V20, 12 + main + frame - ip::VERSION, in_frame))
}

/// Returns the length of the L4 header before the shim, or `None` if IPv4 or L4 headers are not common ones.
fn l4_len(packet: &Ip, profile: &Profile, in_frame: bool) -> Option<usize> {
    let common = (!in_frame || u16_at(packet, ip::ETHERTYPE) == IPV4)
        && packet[ip::VERSION] == 0x45
        && u16_at(packet, ip::FRAGMENT) & 0x1fff == 0
        && profile.marks(packet[ip::TOS] >> 2)
        && profile.probe_marker.is_none();
    match packet[ip::PROTO] {
        UDP if common && is_ordinary(u16_at(packet, ip::DPORT), profile) => Some(8),
        TCP if common && profile.tcp_shim == TcpShim::AfterFixed => Some(20),
        _ => None,
    }
}

/// The INT header of a common report.
struct IntHeader {
    /// Length of the header, and of all records, bytes.
    header: usize,
    records: usize,
    shape: u64,
    bitmap: u32,
    compared: u64,
}

/// Parses shim and INT header, or returns `None` if they are not common ones.
fn stack(shim: &Shim, profile: &Profile, layouts: &mut Layouts) -> Option<IntHeader> {
    let hop_ml = shim[field::HOP_ML] & 0x1f;
    let bitmap = u16_at(shim, field::BITMAP);
    let version = shim[field::INT] >> 4;
    let (int, shaped) = if shim[field::SHIM] == 0x01 && version == 1 && shim[field::INT] & REPLICA == 0 {
        let length = (usize::from(shim[field::LENGTH_10]) * 4).checked_sub(shim::LEN + header::LEN_1)?;
        let words = Layout::words_10(bitmap, hop_ml, length / 4, profile.dialect);
        let shaped = layouts.int_10_shaped(bitmap, words, profile.dialect)?;
        let header = header::LEN_1;
        let compared = mask::INT_10;
        (
            IntHeader {
                header,
                records: length,
                shape: 0,
                bitmap: mask::BITMAP_10,
                compared,
            },
            shaped,
        )
    } else {
        // NPT 0 (original DSCP), no SF-INT, no domain.
        let common = shim[field::SHIM] >> 2 == 1 << 2
            && version == 2
            && !sf::is_set(u16_at(shim, field::INT))
            && u16_at(shim, field::DS_ID) == 0;
        let length = (usize::from(shim[field::LENGTH_2]) * 4).checked_sub(header::LEN_2)?;
        let shaped = layouts.int_2_shaped(bitmap, hop_ml).filter(|_| common)?;
        let header = header::LEN_2;
        let compared = mask::INT_2;
        (
            IntHeader {
                header,
                records: length,
                shape: 0,
                bitmap: mask::BITMAP_2,
                compared,
            },
            shaped,
        )
    };
    let (shape, layout) = shaped;
    let whole = layout.records(int.records / 4) * layout.len() == int.records;
    whole.then_some(IntHeader { shape, ..int })
}

/// Returns the headers at a template's positions.
#[inline(always)]
fn split(payload: &[u8], place: Place) -> Option<(&Head, &Ip, &Shim)> {
    Some((
        payload.first_chunk()?,
        payload.get(usize::from(place.ip)..)?.first_chunk()?,
        payload.get(usize::from(place.shim)..)?.first_chunk()?,
    ))
}

/// Returns whether a datagram has a single Report 2.0 of the length in its header.
#[inline(always)]
fn is_alone(payload: &[u8], head: &Head) -> bool {
    let words = head[head::REPORT_LENGTH];
    let end = head::MAIN + usize::from(words) * 4;
    if words == TO_THE_END {
        payload.len() >= end
    } else {
        payload.len() == end
    }
}

#[inline(always)]
pub(crate) fn read<'a>(
    payload: &'a [u8],
    profile: &Profile,
    layouts: &mut Layouts,
    latest: &mut Template,
) -> Option<Brief<'a>> {
    let mut parts = split(payload, latest.place);
    let is_like_latest = parts.is_some_and(|(head, packet, shim)| {
        Fields::of(head, packet, shim).are(&latest.expected, &latest.compared)
    });
    if !is_like_latest {
        *latest = Template::of(payload, profile, layouts)?;
        parts = split(payload, latest.place);
    }
    let (head, packet, shim) = parts?;
    let at = usize::from(latest.place.stack);
    let records = payload.get(at..at + usize::from(latest.records))?;
    let node_id = u32_at(head, head::NODE_ID);
    let dst_port = u16_at(packet, ip::DPORT);
    if u16_at(packet, ip::TOTAL_LEN) < latest.packet
        || node_id == u32::MAX
        || (dst_port != latest.dst_port && latest.proto == UDP && !is_ordinary(dst_port, profile))
    {
        return None;
    }
    let flow = FlowKey::v4_words(
        u32_at(packet, ip::SRC),
        u32_at(packet, ip::DST),
        Some((u16_at(packet, ip::SPORT), dst_port)),
        latest.proto,
    );
    let word = u32_at(head, head::WORD);
    let (flags, hw_id, seq, ts, int_flags);
    if latest.version == Version::V10 {
        (flags, hw_id) = (self::flags(word >> (latest.flags_at & 31)), word & 0x3f);
        (seq, ts) = (u32_at(head, head::SEQ), u32_at(head, head::INGRESS_TS));
    } else if is_alone(payload, head) {
        // D and I are not set, Q may be.
        flags = Flags(Flags::FLOW.0 | head[head::TYPES + 3] >> 5 & Flags::QUEUE.0);
        (hw_id, seq, ts) = (word >> 22 & 0x3f, word & 0x003f_ffff, 0);
    } else {
        return None;
    }
    let first = shim[field::INT];
    if latest.compared.bitmap == mask::BITMAP_10 {
        int_flags = super::brief::int_flags(first, shim[field::INT_M]);
    } else {
        // Decodes the INT 2.x flags D, E and M.
        int_flags = int::Flags(first >> 3 & 1 | first >> 1 & 2 | first << 1 & 4);
    }
    let version = latest.version;
    let hw_id = hw_id as u8;
    let shape = latest.shape;
    Some(Brief {
        version,
        node_id,
        hw_id,
        seq,
        ts,
        flags,
        flow,
        hop_limit: packet[ip::TTL],
        int_flags,
        remaining: shim[field::REMAINING],
        records,
        shape,
    })
}
