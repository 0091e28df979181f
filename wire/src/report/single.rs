//! Fast path for the common SF-INT report, parsed into a [`Single`] at nearly constant offsets
//! (`docs/reference/wire-formats.md`, section 3.7, form (a)), with a template like [`super::brief`].
//!
//! The result equals the full decoder's, or is `None` for unusual, truncated and malformed datagrams; tests compare the
//! two.

use super::{Flags, Single, fast_path};
use crate::bytes::{array_at, u16_at, u32_at};
use crate::flow::FlowKey;
use crate::int;
use crate::int::layout::{Layout, words_2};
use crate::int::sf::{self, State};
use crate::int::shim::Shim2;
use crate::packet::{TCP, UDP};
use crate::profile::Profile;

/// Report type 1, inner type IPv6.
const TYPES: u8 = 0x15;
/// Mask of D, F and I. Only F may be set: D means a drop, I a transit node.
const FLAGS: u8 = 0xb0;
const FLOW: u8 = 0x20;
/// RepMdBits that only affect the layout: neither reserved bits nor the drop reason.
const ITEMS: u16 = 0x7f80;
const DROP_REASON: u16 = 0x0001;
/// PadN with four bytes after an option.
const PADDING: [u8; 4] = [1, 2, 0, 0];
/// Minimum number of bytes after the options: a UDP header.
const PORTS_LEN: usize = 8;

/// Offsets from the start of the UDP payload.
mod head {
    pub(super) const WORD: usize = 0;
    pub(super) const NODE_ID: usize = 4;
    pub(super) const TYPES: usize = 8;
    pub(super) const REPORT_LENGTH: usize = 9;
    pub(super) const MD_LENGTH: usize = 10;
    pub(super) const FLAGS: usize = 11;
    pub(super) const MD_BITS: usize = 12;
    pub(super) const DS_ID: usize = 14;
    /// The sink's own record starts here.
    pub(super) const LEN: usize = 20;
}

/// Offsets from the start of the inner packet, which follows the sink's own record.
mod inner {
    pub(super) const VERSION: usize = 0;
    pub(super) const PAYLOAD_LEN: usize = 4;
    pub(super) const SRC: usize = 8;
    pub(super) const DST: usize = 24;
    pub(super) const EXTENSION: usize = 40;
    pub(super) const EXTENSION_LEN: usize = 41;
    pub(super) const OPTION: usize = 42;
    pub(super) const OPTION_LEN: usize = 43;
    pub(super) const SHIM: usize = 44;
    pub(super) const SHIM_LEN: usize = 45;
    pub(super) const INT: usize = 48;
    pub(super) const STATE: usize = 49;
    pub(super) const HOP_ML: usize = 50;
    pub(super) const REMAINING: usize = 51;
    pub(super) const BITMAP: usize = 52;
    pub(super) const PACKET_ID: usize = 54;
    pub(super) const DOMAIN: usize = 56;
    /// The carried record starts here.
    pub(super) const LEN: usize = 60;
}

type Head = [u8; head::LEN];
type Inner = [u8; inner::LEN];

/// Masks of the compared bits, in little-endian words of eight bytes, which most machines load without a byte swap.
mod mask {
    /// Types, MD length, flags, RepMdBits, Domain Specific ID.
    pub(super) const HEAD: u64 = u64::from_le_bytes([0xff, 0, 0xff, super::FLAGS, 0xff, 0xff, 0xff, 0xff]);
    /// Next header and length of the extension; type and length of the option, and of the shim.
    pub(super) const OPTION: u64 = u64::from_le_bytes([0xff, 0xff, 0xff, 0xff, 0xfc, 0xff, 0, 0]);
    /// Version and SF flag, U flag, words per hop, bitmap.
    pub(super) const INT: u64 = u64::from_le_bytes([0xf1, 0x80, 0x1f, 0, 0xff, 0xff, 0, 0]);
}

/// The fields of a report that a template compares, with the other bits cleared.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct ComparedFields {
    head: u64,
    option: u64,
    int: u64,
}

/// Fields of the last such report. A report with equal fields is of the same kind, with records of the same layouts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Template {
    fields: ComparedFields,
    /// A destination port without a special meaning.
    dst_port: u16,
    /// Minimum length of the IPv6 payload.
    min_payload_len: u16,
    proto: u8,
    /// Length of the carried record, bytes.
    record_len: u8,
    /// Padding follows the record.
    has_padding: bool,
    shape: u64,
}

impl Template {
    /// A template that matches no report: it expects bits outside the masks.
    pub(crate) const NONE: Self = Self {
        fields: ComparedFields {
            head: u64::MAX,
            option: u64::MAX,
            int: u64::MAX,
        },
        dst_port: 0,
        min_payload_len: 0,
        proto: 0,
        record_len: 0,
        has_padding: false,
        shape: 0,
    };

    #[inline(always)]
    fn compared_fields(head: &Head, inner: &Inner) -> ComparedFields {
        ComparedFields {
            head: u64::from_le_bytes(array_at(head, head::TYPES)) & mask::HEAD,
            option: u64::from_le_bytes(array_at(inner, inner::EXTENSION)) & mask::OPTION,
            int: u64::from_le_bytes(array_at(inner, inner::INT)) & mask::INT,
        }
    }

    /// Returns whether a report has the same fields, ignoring the port.
    #[inline(always)]
    fn matches(&self, head: &Head, inner: &Inner) -> bool {
        let fields = Self::compared_fields(head, inner);
        // One branch instead of three, because a difference is rare.
        (fields.head ^ self.fields.head)
            | (fields.option ^ self.fields.option)
            | (fields.int ^ self.fields.int)
            == 0
    }

    /// Creates the template of a report, or returns `None` if it is not of this kind.
    #[inline(never)]
    fn from_report(head: &Head, inner: &Inner, profile: &Profile, rest: &[u8]) -> Option<Self> {
        let bits = u16_at(head, head::MD_BITS);
        let bitmap = u16_at(inner, inner::BITMAP);
        let proto = inner[inner::EXTENSION];
        let is_sink_report = head[head::TYPES] == TYPES
            && head[head::FLAGS] & FLAGS == FLOW
            && bits & ITEMS != 0
            && bits & DROP_REASON == 0
            && head[head::MD_LENGTH] == words_2(bits)
            && u16_at(head, head::DS_ID) == 0;
        let words = words_2(bitmap);
        let is_sf_int = matches!(proto, UDP | TCP)
            && inner[inner::OPTION] == sf::OPTION
            && inner[inner::SHIM] & 0xfc == Shim2::SF << 4
            && inner[inner::INT] & 0xf1 == 0x21
            && inner[inner::STATE] & 0x80 == 0
            && inner[inner::HOP_ML] & 0x1f == words
            && sf::check(bitmap, 0, 0).is_ok();
        // The option's data is shim, header and record; the extension adds padding.
        let option_len = 4 + int::header::LEN_2 + usize::from(words) * 4;
        let extension_len = 8 + usize::from(inner[inner::EXTENSION_LEN]) * 8;
        let padding = extension_len.checked_sub(4 + option_len)?;
        let has_matching_lengths = usize::from(inner[inner::OPTION_LEN]) == option_len
            && usize::from(inner[inner::SHIM_LEN]) == option_len / 4 - 1
            && matches!(padding, 0 | 4);
        let record_len = words * 4;
        let ports_offset = usize::from(record_len) + padding;
        let dst_port = u16_at(rest.get(ports_offset..ports_offset + PORTS_LEN)?, 2);
        if !is_unmarked(dst_port, profile) || profile.probe_marker.is_some() {
            return None;
        }
        (is_sink_report && is_sf_int && has_matching_lengths).then_some(Self {
            fields: Self::compared_fields(head, inner),
            dst_port,
            min_payload_len: (extension_len + PORTS_LEN) as u16,
            proto,
            record_len,
            has_padding: padding > 0,
            shape: u64::from(bits) << 16 | u64::from(bitmap),
        })
    }
}

/// Returns whether the port marks neither INT nor a tunnel nor telemetry.
#[inline(always)]
fn is_unmarked(dst_port: u16, profile: &Profile) -> bool {
    dst_port != profile.int_udp_port && fast_path::is_plain(dst_port, profile)
}

/// Checks the fields that differ between reports of this kind.
#[inline(always)]
fn is_single_report(payload: &[u8], head: &Head, inner: &Inner, latest: &Template) -> bool {
    let words = head[head::REPORT_LENGTH];
    let [version, ip_version] = [head[head::WORD] >> 4, inner[inner::VERSION] >> 4];
    // A single report, of the length in its header.
    payload.len() == 12 + usize::from(words) * 4
        && words != super::v20::TO_THE_END
        && version == 2
        && ip_version == 6
        // The first header is the hop-by-hop header.
        && inner[inner::PAYLOAD_LEN + 2] == 0
        && u16_at(inner, inner::PAYLOAD_LEN) >= latest.min_payload_len
        && u32_at(inner, inner::DOMAIN) == 0
        && u32_at(head, head::NODE_ID) != u32::MAX
}

#[inline(always)]
pub(crate) fn read<'a>(payload: &'a [u8], profile: &Profile, latest: &mut Template) -> Option<Single<'a>> {
    let (head, rest) = payload.split_first_chunk::<{ head::LEN }>()?;
    let (metadata, rest) = rest.split_at_checked(usize::from(head[head::MD_LENGTH]) * 4)?;
    let (inner, rest) = rest.split_first_chunk::<{ inner::LEN }>()?;
    if !latest.matches(head, inner) {
        *latest = Template::from_report(head, inner, profile, rest)?;
    }
    let (carried, mut rest) = rest.split_at_checked(usize::from(latest.record_len))?;
    if latest.has_padding {
        let padding;
        (padding, rest) = rest.split_first_chunk::<4>()?;
        if *padding != PADDING {
            return None;
        }
    }
    let ports = rest.first_chunk::<PORTS_LEN>()?;
    let dst_port = u16_at(ports, 2);
    // Marked INT after TCP or UDP would win over the option.
    let dscp = (u16_at(inner, inner::VERSION) >> 6 & 0x3f) as u8;
    if !is_single_report(payload, head, inner, latest)
        || (dst_port != latest.dst_port && !is_unmarked(dst_port, profile))
        || profile.marks(dscp)
    {
        return None;
    }
    let word = u32_at(head, head::WORD);
    Some(Single {
        node_id: u32_at(head, head::NODE_ID),
        hw_id: (word >> 22 & 0x3f) as u8,
        seq: word & 0x003f_ffff,
        // D and I are not set, Q may be.
        flags: Flags(Flags::FLOW.0 | head[head::FLAGS] >> 5 & Flags::QUEUE.0),
        flow: FlowKey::v6(
            array_at(inner, inner::SRC),
            array_at(inner, inner::DST),
            Some((u16_at(ports, 0), dst_port)),
            latest.proto,
        ),
        int_flags: int::Flags(
            inner[inner::INT] >> 3 & 1 | inner[inner::INT] >> 1 & 2 | inner[inner::INT] << 1 & 4,
        ),
        remaining: inner[inner::REMAINING],
        state: State::from_bits(inner[inner::STATE] >> 5)?,
        packet_id: u16_at(inner, inner::PACKET_ID),
        metadata,
        carried,
        shape: latest.shape,
    })
}

/// Returns the layouts of the sink's own record and of the carried one, for a shape from [`read`].
pub(crate) fn layouts(shape: u64) -> [Layout; 2] {
    let bitmap = shape as u16;
    let carried = Layout::int_2(bitmap, words_2(bitmap), false);
    [
        Layout::report_20((shape >> 16) as u16),
        carried.unwrap_or(Layout::EMPTY),
    ]
}
