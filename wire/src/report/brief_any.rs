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
/// Offset two bytes before the IPv4 header of a common Report 1.0: after its header of 16 bytes, and 12 bytes of Ethernet.
const V10_IP_OFFSET: usize = 28;
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
    pub(super) const SRC_PORT: usize = 22;
    pub(super) const DST_PORT: usize = 24;
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
    fn from_headers(head: &Head, packet: &Ip, shim: &Shim) -> Self {
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
    fn match_expected(&self, expected: &Self, compared: &Self) -> bool {
        // One branch instead of seven, because a difference is rare.
        let small_difference = self.word & compared.word ^ expected.word
            | self.types & compared.types ^ expected.types
            | self.main & compared.main ^ expected.main
            | self.ip & compared.ip ^ expected.ip
            | self.fragment & compared.fragment ^ expected.fragment
            | self.bitmap & compared.bitmap ^ expected.bitmap;
        (self.int & compared.int ^ expected.int) | u64::from(small_difference) == 0
    }
}

/// The positions of a report's headers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct HeaderOffsets {
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
    offsets: HeaderOffsets,
    version: Version,
    /// Bit offset of the flags in Report 1.0's first word.
    flags_shift: u8,
    proto: u8,
    /// A UDP destination port without a special meaning.
    dst_port: u16,
    /// Length of all records, bytes.
    records_len: u16,
    /// Length of the packet up to the end of the records, bytes.
    packet_len: u16,
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
            offsets: HeaderOffsets {
                ip: 0,
                shim: 0,
                stack: 0,
            },
            version: Version::V20,
            flags_shift: 0,
            proto: 0,
            dst_port: 0,
            records_len: 0,
            packet_len: 0,
            shape: 0,
        }
    };

    /// Creates the template of a report, or returns `None` if it is not a common one.
    #[inline(never)]
    fn from_report(payload: &[u8], profile: &Profile, layouts: &mut Layouts) -> Option<Self> {
        let head = payload.first_chunk::<{ head::LEN }>()?;
        let ReportStart {
            version,
            ip_offset,
            has_ethernet,
        } = report_start(head, profile)?;
        let packet = payload.get(ip_offset..)?.first_chunk::<{ ip::LEN }>()?;
        let proto = packet[ip::PROTO];
        let shim_offset = ip_offset + ip::L4 + l4_len(packet, profile, has_ethernet)?;
        let shim = payload.get(shim_offset..)?.first_chunk::<{ field::LEN }>()?;
        let int = int_header(shim, profile, layouts)?;
        let stack_offset = shim_offset + shim::LEN + int.header_len;
        let is_10 = version == Version::V10;
        let compared = Fields {
            word: if is_10 { mask::WORD_10 } else { mask::WORD_20 },
            types: if is_10 { 0 } else { mask::TYPES },
            main: if !is_10 && head[head::TYPES] & TYPE_1 != 0 {
                u32::MAX
            } else {
                0
            },
            ip: if has_ethernet { mask::IP } else { mask::IP & 0xffff },
            fragment: mask::FRAGMENT,
            bitmap: int.bitmap,
            int: int.compared,
        };
        Some(Self {
            expected: Fields::from_headers(head, packet, shim).and(&compared),
            compared,
            offsets: HeaderOffsets {
                ip: ip_offset as u8,
                shim: shim_offset as u8,
                stack: stack_offset as u8,
            },
            version,
            flags_shift: if profile.dialect == Dialect::Onos { 12 } else { 6 },
            proto,
            dst_port: u16_at(packet, ip::DST_PORT),
            records_len: int.records_len as u16,
            packet_len: (stack_offset - ip_offset - ip::VERSION + int.records_len) as u16,
            shape: int.shape,
        })
    }
}

/// The part of a common report before its IPv4 header.
struct ReportStart {
    version: Version,
    /// Offset two bytes before the IPv4 header.
    ip_offset: usize,
    has_ethernet: bool,
}

/// Parses the header of a report, or returns `None` if it is not a common one.
fn report_start(head: &Head, profile: &Profile) -> Option<ReportStart> {
    let word = u32_at(head, head::WORD);
    if word >> 15 == PLAIN || is_generator(word, profile) {
        return Some(ReportStart {
            version: Version::V10,
            ip_offset: V10_IP_OFFSET,
            has_ethernet: true,
        });
    }
    let types = head[head::TYPES];
    let main = if types & TYPE_1 != 0 {
        super::v20::MAIN_LEN
    } else {
        0
    };
    let has_ethernet = types & 0x0f == ETHERNET;
    // No main metadata, no domain; a tracked flow, not dropped, not from an intermediate node.
    let is_common = word >> 28 == 2
        && matches!(types & !TYPE_1, ETHERNET | IPV4_INNER)
        && u32_at(head, head::TYPES) & 0xffb0 == u32::from(FLOW)
        && (main == 0 || u32_at(head, head::MAIN) == 0);
    let frame = if has_ethernet {
        crate::ethernet::HEADER_LEN
    } else {
        0
    };
    is_common.then_some(ReportStart {
        version: Version::V20,
        ip_offset: head::MAIN + main + frame - ip::VERSION,
        has_ethernet,
    })
}

/// Returns the length of the L4 header before the shim, or `None` if IPv4 or L4 headers are not common ones.
fn l4_len(packet: &Ip, profile: &Profile, has_ethernet: bool) -> Option<usize> {
    let is_common = (!has_ethernet || u16_at(packet, ip::ETHERTYPE) == IPV4)
        && packet[ip::VERSION] == 0x45
        && u16_at(packet, ip::FRAGMENT) & 0x1fff == 0
        && profile.marks(packet[ip::TOS] >> 2)
        && profile.probe_marker.is_none();
    match packet[ip::PROTO] {
        UDP if is_common && is_ordinary(u16_at(packet, ip::DST_PORT), profile) => Some(8),
        TCP if is_common && profile.tcp_shim == TcpShim::AfterFixed => Some(20),
        _ => None,
    }
}

/// The INT header of a common report.
struct IntHeader {
    /// Length of the header, bytes.
    header_len: usize,
    /// Length of all records, bytes.
    records_len: usize,
    shape: u64,
    bitmap: u32,
    compared: u64,
}

/// Parses shim and INT header, or returns `None` if they are not common ones.
fn int_header(shim: &Shim, profile: &Profile, layouts: &mut Layouts) -> Option<IntHeader> {
    let hop_ml = shim[field::HOP_ML] & 0x1f;
    let bitmap = u16_at(shim, field::BITMAP);
    let version = shim[field::INT] >> 4;
    let (int, shaped_layout) = if shim[field::SHIM] == 0x01 && version == 1 && shim[field::INT] & REPLICA == 0
    {
        let length = (usize::from(shim[field::LENGTH_10]) * 4).checked_sub(shim::LEN + header::LEN_1)?;
        let words = Layout::words_10(bitmap, hop_ml, length / 4, profile.dialect);
        let shaped_layout = layouts.int_10_shaped(bitmap, words, profile.dialect)?;
        let header_len = header::LEN_1;
        let compared = mask::INT_10;
        (
            IntHeader {
                header_len,
                records_len: length,
                shape: 0,
                bitmap: mask::BITMAP_10,
                compared,
            },
            shaped_layout,
        )
    } else {
        // NPT 0 (original DSCP), no SF-INT, no domain.
        let is_common = shim[field::SHIM] >> 2 == 1 << 2
            && version == 2
            && !sf::is_set(u16_at(shim, field::INT))
            && u16_at(shim, field::DS_ID) == 0;
        let length = (usize::from(shim[field::LENGTH_2]) * 4).checked_sub(header::LEN_2)?;
        let shaped_layout = layouts.int_2_shaped(bitmap, hop_ml).filter(|_| is_common)?;
        let header_len = header::LEN_2;
        let compared = mask::INT_2;
        (
            IntHeader {
                header_len,
                records_len: length,
                shape: 0,
                bitmap: mask::BITMAP_2,
                compared,
            },
            shaped_layout,
        )
    };
    let (shape, layout) = shaped_layout;
    let are_whole_records = layout.records(int.records_len / 4) * layout.len() == int.records_len;
    are_whole_records.then_some(IntHeader { shape, ..int })
}

/// The headers of a common report.
#[derive(Clone, Copy)]
struct CommonHeaders<'a> {
    head: &'a Head,
    packet: &'a Ip,
    shim: &'a Shim,
}

/// Returns the headers at a template's positions.
#[inline(always)]
fn split_headers(payload: &[u8], offsets: HeaderOffsets) -> Option<CommonHeaders<'_>> {
    Some(CommonHeaders {
        head: payload.first_chunk()?,
        packet: payload.get(usize::from(offsets.ip)..)?.first_chunk()?,
        shim: payload.get(usize::from(offsets.shim)..)?.first_chunk()?,
    })
}

/// Returns whether a datagram has a single Report 2.0 of the length in its header.
#[inline(always)]
fn is_only_report(payload: &[u8], head: &Head) -> bool {
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
    let mut headers = split_headers(payload, latest.offsets);
    let is_like_latest = headers.is_some_and(|headers| {
        Fields::from_headers(headers.head, headers.packet, headers.shim)
            .match_expected(&latest.expected, &latest.compared)
    });
    if !is_like_latest {
        *latest = Template::from_report(payload, profile, layouts)?;
        headers = split_headers(payload, latest.offsets);
    }
    let CommonHeaders { head, packet, shim } = headers?;
    let stack = usize::from(latest.offsets.stack);
    let records = payload.get(stack..stack + usize::from(latest.records_len))?;
    let node_id = u32_at(head, head::NODE_ID);
    let dst_port = u16_at(packet, ip::DST_PORT);
    if u16_at(packet, ip::TOTAL_LEN) < latest.packet_len
        || node_id == u32::MAX
        || (dst_port != latest.dst_port && latest.proto == UDP && !is_ordinary(dst_port, profile))
    {
        return None;
    }
    let flow = FlowKey::v4_words(
        u32_at(packet, ip::SRC),
        u32_at(packet, ip::DST),
        Some((u16_at(packet, ip::SRC_PORT), dst_port)),
        latest.proto,
    );
    let word = u32_at(head, head::WORD);
    let (flags, hw_id, seq, ts, int_flags);
    if latest.version == Version::V10 {
        (flags, hw_id) = (self::flags(word >> (latest.flags_shift & 31)), word & 0x3f);
        (seq, ts) = (u32_at(head, head::SEQ), u32_at(head, head::INGRESS_TS));
    } else if is_only_report(payload, head) {
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
