//! The common report as [`Brief`], by constant offsets: one length check, one comparison per assumption.
//!
//! Its result equals that of the full decoder, or it returns `None`: the full decoder reads unusual, truncated and malformed datagrams. The
//! tests compare the two.

use super::{Brief, Flags, Version, fast_path};
use crate::bytes::{array_at, u16_at, u32_at};
use crate::flow::FlowKey;
use crate::int;
use crate::int::layout::{Layout, Layouts};
use crate::packet::{IPV4, UDP};
use crate::profile::{Dialect, Profile};

/// Offsets from the start of the datagram's payload.
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
    pub(super) const SPORT: usize = 50;
    pub(super) const DPORT: usize = 52;
    pub(super) const SHIM: usize = 58;
    pub(super) const SHIM_LEN: usize = 60;
    pub(super) const INT: usize = 62;
    pub(super) const INT_M: usize = 63;
    pub(super) const HOP_ML: usize = 64;
    pub(super) const REMAINING: usize = 65;
    pub(super) const BITMAP: usize = 66;
    pub(super) const STACK: usize = 70;
}

/// Version 1, four words, Ethernet follows, no metadata bits: the upper 17 bits of the first word.
pub(super) const PLAIN: u32 = 0x1400_0000 >> 15;

/// The fixed part of a payload.
type Fixed = [u8; field::STACK];

/// The fields of the latest common report that make it one: another report with the same fields is also a common report with
/// records of the same layout, and needs no check field by field.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Template {
    /// The report's first word.
    word: u32,
    /// EtherType, IP version and header length, type of service.
    ip: u32,
    /// Fragment offset and protocol.
    fragment: u32,
    /// Shim type and length, INT version, words per hop.
    int: u64,
    /// The instruction bitmap, or a value of more than 16 bits that equals none.
    bitmap: u32,
    /// A destination port without a special meaning.
    dst_port: u16,
    /// Bytes of all records, and of the packet up to their end.
    records: u16,
    packet: u16,
    /// Where the flags of the first word begin.
    flags_at: u8,
    shape: u64,
}

impl Template {
    /// A template that no report matches.
    pub(crate) const NONE: Self = Self {
        word: 0,
        ip: 0,
        fragment: 0,
        int: 0,
        bitmap: u32::MAX,
        dst_port: 0,
        records: 0,
        packet: 0,
        flags_at: 0,
        shape: 0,
    };

    /// The compared fields, in little-endian order: they are only compared, and most machines load that without a swap.
    #[inline(always)]
    fn fields(fixed: &Fixed) -> (u32, u32, u32, u64, u32) {
        (
            u32::from_le_bytes(array_at(fixed, field::WORD)),
            u32::from_le_bytes(array_at(fixed, field::ETHERTYPE)),
            u32::from_le_bytes(array_at(fixed, field::FRAGMENT)),
            u64::from_le_bytes(array_at(fixed, field::SHIM)),
            u32::from(u16_at(fixed, field::BITMAP)),
        )
    }

    /// Whether a report has the same fields, except for the port.
    #[inline(always)]
    fn is_like(&self, fixed: &Fixed) -> bool {
        // Version, length, next protocol and metadata bits.
        const WORD: u32 = u32::from_le_bytes([0xff, 0xff, 0x80, 0]);
        // All but ECN.
        const IP: u32 = u32::from_le_bytes([0xff, 0xff, 0xff, 0xfc]);
        const FRAGMENT: u32 = u32::from_le_bytes([0x1f, 0xff, 0, 0xff]);
        const INT: u64 = u64::from_le_bytes([0xff, 0, 0xff, 0, 0xf0, 0, 0x1f, 0]);
        let (word, ip, fragment, int, bitmap) = Self::fields(fixed);
        // One branch instead of five: a difference is rare.
        let small = (word ^ self.word) & WORD
            | (ip ^ self.ip) & IP
            | (fragment ^ self.fragment) & FRAGMENT
            | (bitmap ^ self.bitmap);
        (int ^ self.int) & INT | u64::from(small) == 0
    }

    /// The template of a report, if it is a common one.
    #[inline(never)]
    fn of(fixed: &Fixed, profile: &Profile, layouts: &mut Layouts) -> Option<Self> {
        let records = (usize::from(fixed[field::SHIM_LEN]) * 4).checked_sub(field::STACK - field::SHIM)?;
        let shape = examine(fixed, records, profile, layouts)?;
        let (word, ip, fragment, int, bitmap) = Self::fields(fixed);
        Some(Self {
            word,
            ip,
            fragment,
            int,
            bitmap,
            dst_port: u16_at(fixed, field::DPORT),
            records: records as u16,
            packet: (field::STACK - field::IP + records) as u16,
            flags_at: if profile.dialect == Dialect::Onos { 12 } else { 6 },
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
    if !latest.is_like(fixed) {
        *latest = Template::of(fixed, profile, layouts)?;
    }
    // Bytes after the end of the packet are padding.
    let records = rest.get(..usize::from(latest.records))?;
    let node_id = u32_at(fixed, field::SWITCH_ID);
    let dst_port = u16_at(fixed, field::DPORT);
    if u16_at(fixed, field::TOTAL_LEN) < latest.packet
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
        flags: flags(word >> (latest.flags_at & 31)),
        flow: FlowKey::v4_words(
            u32_at(fixed, field::SRC),
            u32_at(fixed, field::DST),
            Some((u16_at(fixed, field::SPORT), dst_port)),
            UDP,
        ),
        hop_limit: fixed[field::TTL],
        int_flags: int_flags(fixed[field::INT], fixed[field::INT_M]),
        remaining: fixed[field::REMAINING],
        records,
        shape: latest.shape,
    })
}

/// D, Q and F, which are in reverse order in [`Flags`]: a table of eight 3-bit numbers.
#[inline(always)]
pub(super) fn flags(bits: u32) -> Flags {
    Flags((0o73516240_u32 >> ((bits & 7) * 3) & 7) as u8)
}

/// Whether this port marks neither INT nor a tunnel nor telemetry.
#[inline(always)]
pub(super) fn is_ordinary(dst_port: u16, profile: &Profile) -> bool {
    dst_port != profile.int_udp_port && fast_path::is_plain(dst_port, profile)
}

/// The shape of the report if it is a common one.
#[inline(never)]
fn examine(fixed: &Fixed, records: usize, profile: &Profile, layouts: &mut Layouts) -> Option<u64> {
    let word = u32_at(fixed, field::WORD);
    let common = (word >> 15 == PLAIN || is_generator(word, profile))
        && u16_at(fixed, field::ETHERTYPE) == IPV4
        && fixed[field::IP] == 0x45
        && fixed[field::PROTO] == UDP
        && u16_at(fixed, field::FRAGMENT) & 0x1fff == 0
        && fixed[field::SHIM] == 0x01
        && fixed[field::INT] >> 4 == 1
        && profile.marks(fixed[field::TOS] >> 2)
        && profile.probe_marker.is_none()
        && is_ordinary(u16_at(fixed, field::DPORT), profile);
    if !common {
        // Before a layout is computed, which would evict the one in use.
        return None;
    }
    let hop_ml = fixed[field::HOP_ML] & 0x1f;
    let bitmap = u16_at(fixed, field::BITMAP);
    let words = Layout::words_10(bitmap, hop_ml, records / 4, profile.dialect);
    let (shape, layout) = layouts.int_10_shaped(bitmap, words, profile.dialect)?;
    (layout.records(records / 4) * layout.len() == records).then_some(shape)
}

/// The layout of a shape that [`read`] or [`super::brief_any::read`] returned.
pub(crate) fn layout(shape: u64, profile: &Profile) -> Layout {
    // Bitmap, words per hop and version, as `Layouts` combines them.
    let bitmap = shape as u16;
    let words = (shape >> 16) as u8;
    match shape >> 32 {
        1 => Layout::int_10(bitmap, words, profile.dialect),
        _ => Layout::int_2(bitmap, words, false),
    }
    .unwrap_or(Layout::EMPTY)
}

/// INTCollector's generator: a length below four words, and meaningless metadata bits. IPv4 at the offset of a report 1.0
/// excludes a report 0.5.
#[inline(always)]
pub(super) fn is_generator(word: u32, profile: &Profile) -> bool {
    profile.dialect == Dialect::IntCollectorGen
        && word >> 28 == 1
        && word >> 24 & 0x0f < 4
        && word >> 21 & 7 == 0
}

/// C, E and M.
#[inline(always)]
pub(super) fn int_flags(first: u8, second: u8) -> int::Flags {
    int::Flags((first >> 1 & 1) | (first & 1) << 1 | (second >> 7) << 2)
}

const _: () = assert!(
    int::Flags::DISCARD.0 == 1 && int::Flags::HOPS_EXCEEDED.0 == 2 && int::Flags::MTU_EXCEEDED.0 == 4
);
