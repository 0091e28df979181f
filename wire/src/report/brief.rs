//! Fast path for the most common report: Report 1.0 about an untagged IPv4/UDP packet with INT 1.0, parsed into a [`Brief`]
//! at constant offsets.
//!
//! The fields of the last such report form a [`Template`]. If the next report has the same fields (a few XORs and one
//! branch), it needs no further checks. The result equals the full decoder's, or is `None` for unusual, truncated and
//! malformed datagrams; tests compare the two.

use super::{Brief, Flags, Version, fast_path};
use crate::bytes::{array_at, u16_at, u32_at};
use crate::flow::FlowKey;
use crate::int;
use crate::int::layout::{Layout, Layouts};
use crate::packet::{IPV4, UDP};
use crate::profile::{Dialect, Profile};

/// C of INT 1.0 in the first byte of the header: a replica is not a common report.
pub(super) const REPLICA: u8 = 2;

/// First 17 bits of a common report: version 1, length of four words, Ethernet inner packet, no metadata bits.
pub(super) const PLAIN: u32 = 0x1400_0000 >> 15;

/// First byte of an IPv4 header without options.
const IPV4_WITHOUT_OPTIONS: u8 = 0x45;
/// Type of the shim before INT-MD (hop-by-hop) headers.
const HOP_BY_HOP: u8 = 1;
/// Version 1 in the first byte of the INT header.
const INT_VERSION_1: u8 = 1 << 4;

/// Offsets from the start of the UDP payload.
mod field {
    pub(super) const WORD: usize = 0;
    pub(super) const SWITCH_ID: usize = 4;
    pub(super) const SEQ: usize = 8;
    pub(super) const INGRESS_TS: usize = 12;
    pub(super) const ETHERTYPE: usize = 28;
    pub(super) const IP: usize = 30;
    pub(super) const TOS: usize = 31;
    pub(super) const TOTAL_LEN: usize = 32;
    pub(super) const FRAGMENT: usize = 36;
    pub(super) const TTL: usize = 38;
    pub(super) const PROTO: usize = 39;
    pub(super) const SRC: usize = 42;
    pub(super) const DST: usize = 46;
    pub(super) const SRC_PORT: usize = 50;
    pub(super) const DST_PORT: usize = 52;
    pub(super) const SHIM: usize = 58;
    pub(super) const SHIM_LEN: usize = 60;
    pub(super) const INT: usize = 62;
    pub(super) const INT_M: usize = 63;
    pub(super) const HOP_ML: usize = 64;
    pub(super) const REMAINING: usize = 65;
    pub(super) const BITMAP: usize = 66;
    pub(super) const STACK: usize = 70;
}

/// The part of a payload before the stack.
type FixedPart = [u8; field::STACK];

/// The fields of a report that a template compares.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct ComparedFields {
    /// First word of the report.
    word: u32,
    /// EtherType, IP version and header length, type of service.
    ip: u32,
    /// Fragment offset and protocol.
    fragment: u32,
    /// Shim type and length, INT version and C flag, words per hop.
    int: u64,
    /// Instruction bitmap, or a value above 16 bits that matches none.
    bitmap: u32,
}

/// Fields that made the last report a common one. A report with equal fields is common too, with records of the same
/// layout.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Template {
    fields: ComparedFields,
    /// A UDP destination port without a special meaning.
    dst_port: u16,
    /// Length of all records, bytes.
    records_len: u16,
    /// Length of the packet up to the end of the records, bytes.
    packet_len: u16,
    /// Bit offset of the flags in the first word.
    flags_shift: u8,
    /// Bitmap, words per hop and version, from which [`layout`] finds the layout of the records.
    shape: u64,
}

impl Template {
    /// A template that matches no report.
    pub(crate) const NONE: Self = Self {
        fields: ComparedFields {
            word: 0,
            ip: 0,
            fragment: 0,
            int: 0,
            bitmap: u32::MAX,
        },
        dst_port: 0,
        records_len: 0,
        packet_len: 0,
        flags_shift: 0,
        shape: 0,
    };

    /// Returns the compared fields in little-endian order, which most machines load without a byte swap.
    #[inline(always)]
    fn compared_fields(fixed: &FixedPart) -> ComparedFields {
        ComparedFields {
            word: u32::from_le_bytes(array_at(fixed, field::WORD)),
            ip: u32::from_le_bytes(array_at(fixed, field::ETHERTYPE)),
            fragment: u32::from_le_bytes(array_at(fixed, field::FRAGMENT)),
            int: u64::from_le_bytes(array_at(fixed, field::SHIM)),
            bitmap: u32::from(u16_at(fixed, field::BITMAP)),
        }
    }

    /// Returns whether a report has the same fields, ignoring the port.
    #[inline(always)]
    fn matches(&self, fixed: &FixedPart) -> bool {
        // Version, length, next protocol and metadata bits.
        const WORD: u32 = u32::from_le_bytes([0xff, 0xff, 0x80, 0]);
        // Everything except ECN.
        const IP: u32 = u32::from_le_bytes([0xff, 0xff, 0xff, 0xfc]);
        const FRAGMENT: u32 = u32::from_le_bytes([0x1f, 0xff, 0, 0xff]);
        const INT: u64 = u64::from_le_bytes([0xff, 0, 0xff, 0, 0xf0 | REPLICA, 0, 0x1f, 0]);
        let fields = Self::compared_fields(fixed);
        // One branch instead of five, because a difference is rare.
        let small_difference = (fields.word ^ self.fields.word) & WORD
            | (fields.ip ^ self.fields.ip) & IP
            | (fields.fragment ^ self.fields.fragment) & FRAGMENT
            | (fields.bitmap ^ self.fields.bitmap);
        (fields.int ^ self.fields.int) & INT | u64::from(small_difference) == 0
    }

    /// Creates the template of a report, or returns `None` if it is not a common one.
    #[inline(never)]
    fn from_report(fixed: &FixedPart, profile: &Profile, layouts: &mut Layouts) -> Option<Self> {
        let records_len =
            (usize::from(fixed[field::SHIM_LEN]) * 4).checked_sub(field::STACK - field::SHIM)?;
        let shape = common_shape(fixed, records_len, profile, layouts)?;
        Some(Self {
            fields: Self::compared_fields(fixed),
            dst_port: u16_at(fixed, field::DST_PORT),
            records_len: records_len as u16,
            packet_len: (field::STACK - field::IP + records_len) as u16,
            flags_shift: if profile.dialect == Dialect::Onos { 12 } else { 6 },
            shape,
        })
    }
}

#[inline(always)]
pub(crate) fn read<'a>(
    payload: &'a [u8],
    profile: &Profile,
    layouts: &mut Layouts,
    latest: &mut Template,
) -> Option<Brief<'a>> {
    let (fixed, rest) = payload.split_first_chunk::<{ field::STACK }>()?;
    if !latest.matches(fixed) {
        *latest = Template::from_report(fixed, profile, layouts)?;
    }
    // Bytes after the packet's end are padding.
    let records = rest.get(..usize::from(latest.records_len))?;
    let node_id = u32_at(fixed, field::SWITCH_ID);
    let dst_port = u16_at(fixed, field::DST_PORT);
    if u16_at(fixed, field::TOTAL_LEN) < latest.packet_len
        || node_id == u32::MAX
        || (dst_port != latest.dst_port && !is_ordinary(dst_port, profile))
    {
        return None;
    }
    let word = u32_at(fixed, field::WORD);
    Some(Brief {
        version: Version::V10,
        node_id,
        hw_id: (word & 0x3f) as u8,
        seq: u32_at(fixed, field::SEQ),
        ts: u32_at(fixed, field::INGRESS_TS),
        flags: flags(word >> (latest.flags_shift & 31)),
        flow: FlowKey::v4_words(
            u32_at(fixed, field::SRC),
            u32_at(fixed, field::DST),
            Some((u16_at(fixed, field::SRC_PORT), dst_port)),
            UDP,
        ),
        hop_limit: fixed[field::TTL],
        int_flags: int_flags(fixed[field::INT], fixed[field::INT_M]),
        remaining: fixed[field::REMAINING],
        records,
        shape: latest.shape,
    })
}

/// Reverses the three bits D, Q and F into [`Flags`].
#[inline(always)]
pub(super) fn flags(bits: u32) -> Flags {
    /// Octal digit `i`, counted from the right, is `i` with its three bits reversed: a lookup table in one register.
    const REVERSED: u32 = 0o7351_6240;
    Flags((REVERSED >> ((bits & 7) * 3) & 7) as u8)
}

/// Returns whether this port marks neither INT nor a tunnel nor telemetry.
#[inline(always)]
pub(super) fn is_ordinary(dst_port: u16, profile: &Profile) -> bool {
    dst_port != profile.int_udp_port && fast_path::is_plain(dst_port, profile)
}

/// Returns the shape of a common report, or `None` if it is not common.
#[inline(never)]
fn common_shape(
    fixed: &FixedPart,
    records_len: usize,
    profile: &Profile,
    layouts: &mut Layouts,
) -> Option<u64> {
    let word = u32_at(fixed, field::WORD);
    let is_common = (word >> 15 == PLAIN || is_generator(word, profile))
        && u16_at(fixed, field::ETHERTYPE) == IPV4
        && fixed[field::IP] == IPV4_WITHOUT_OPTIONS
        && fixed[field::PROTO] == UDP
        && u16_at(fixed, field::FRAGMENT) & 0x1fff == 0
        && fixed[field::SHIM] == HOP_BY_HOP
        && fixed[field::INT] & (0xf0 | REPLICA) == INT_VERSION_1
        && profile.marks(fixed[field::TOS] >> 2)
        && profile.probe_marker.is_none()
        && is_ordinary(u16_at(fixed, field::DST_PORT), profile);
    if !is_common {
        // Return before computing a layout, which would evict the cached one.
        return None;
    }
    let hop_ml = fixed[field::HOP_ML] & 0x1f;
    let bitmap = u16_at(fixed, field::BITMAP);
    let words = Layout::words_10(bitmap, hop_ml, records_len / 4, profile.dialect);
    let (shape, layout) = layouts.int_10_shaped(bitmap, words, profile.dialect)?;
    (layout.records(records_len / 4) * layout.len() == records_len).then_some(shape)
}

/// Returns the layout for a shape from [`read`] or [`super::brief_any::read`].
pub(crate) fn layout(shape: u64, profile: &Profile) -> Layout {
    // A shape contains bitmap, words per hop and version, as `Layouts` combines them.
    let bitmap = shape as u16;
    let words = (shape >> 16) as u8;
    match shape >> 32 {
        1 => Layout::int_10(bitmap, words, profile.dialect),
        _ => Layout::int_2(bitmap, words, false),
    }
    .unwrap_or(Layout::EMPTY)
}

/// Returns whether the first word is INTCollector's generator's: a length below four words and meaningless metadata bits.
/// IPv4 at Report 1.0's offset excludes Report 0.5.
#[inline(always)]
pub(super) fn is_generator(word: u32, profile: &Profile) -> bool {
    profile.dialect == Dialect::IntCollectorGen
        && word >> 28 == 1
        && word >> 24 & 0x0f < 4
        && word >> 21 & 7 == 0
}

/// Decodes the INT 1.0 flags C, E and M.
#[inline(always)]
pub(super) fn int_flags(first: u8, second: u8) -> int::Flags {
    int::Flags((first >> 1 & 1) | (first & 1) << 1 | (second >> 7) << 2)
}

const _: () = assert!(
    int::Flags::DISCARD.0 == 1 && int::Flags::HOPS_EXCEEDED.0 == 2 && int::Flags::MTU_EXCEEDED.0 == 4
);
