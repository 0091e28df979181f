//! The usual report of SF-INT as [`Single`] (wire-formats section 3.7, form (a)), by offsets that are nearly constant: one
//! comparison per assumption, as in [`super::brief`].
//!
//! Its result equals that of the full decoder, or it returns `None`: the full decoder reads unusual, truncated and malformed datagrams. The
//! tests compare the two.

use super::{Flags, Single, fast_path};
use crate::bytes::{array_at, u16_at, u32_at};
use crate::flow::FlowKey;
use crate::int;
use crate::int::layout::{Layout, words_2};
use crate::int::sf::{self, State};
use crate::int::shim::Shim2;
use crate::packet::{TCP, UDP};
use crate::profile::Profile;

/// Offsets from the start of the datagram's payload.
mod head {
    pub(super) const WORD: usize = 0;
    pub(super) const NODE_ID: usize = 4;
    pub(super) const TYPES: usize = 8;
    pub(super) const REPORT_LENGTH: usize = 9;
    pub(super) const MD_LENGTH: usize = 10;
    pub(super) const FLAGS: usize = 11;
    pub(super) const MD_BITS: usize = 12;
    pub(super) const DS_ID: usize = 14;
    /// The sink's own record.
    pub(super) const LEN: usize = 20;
}

/// Offsets from the start of the packet inside, which follows the sink's own record.
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
    /// The record that the packet carried.
    pub(super) const LEN: usize = 60;
}

type Head = [u8; head::LEN];
type Inner = [u8; inner::LEN];

/// A report of type 1, of an IPv6 packet.
const TYPES: u8 = 0x15;
/// D, F and I. Only F is set: D is of a drop, I of a transit node.
const FLAGS: u8 = 0xb0;
const FLOW: u8 = 0x20;
/// RepMdBits of items that only affect the layout: neither reserved bits nor the drop reason.
const ITEMS: u16 = 0x7f80;
const DROP_REASON: u16 = 0x0001;
/// Four bytes of padding after an option (PadN).
const PADDING: [u8; 4] = [1, 2, 0, 0];
/// Minimum number of bytes after the options: a UDP header.
const PORTS: usize = 8;

/// Masks of the compared bits, in words of eight bytes. They are little-endian because they are only compared, and most
/// machines load that without a swap.
mod mask {
    /// Types, MD Length, flags, RepMdBits, Domain Specific ID.
    pub(super) const HEAD: u64 = u64::from_le_bytes([0xff, 0, 0xff, super::FLAGS, 0xff, 0xff, 0xff, 0xff]);
    /// The protocol after the options and their length; type and length of the option, and of the shim.
    pub(super) const OPTION: u64 = u64::from_le_bytes([0xff, 0xff, 0xff, 0xff, 0xfc, 0xff, 0, 0]);
    /// Version and SF, U, words per hop, bitmap.
    pub(super) const INT: u64 = u64::from_le_bytes([0xf1, 0x80, 0x1f, 0, 0xff, 0xff, 0, 0]);
}

/// The fields of the latest usual report that make it one: another report with the same fields is also a usual report with
/// records of the same layouts, and needs no check field by field.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Template {
    head: u64,
    option: u64,
    int: u64,
    /// A destination port without a special meaning.
    dst_port: u16,
    /// Minimum length of the IPv6 payload.
    least: u16,
    proto: u8,
    /// Bytes of the record carried.
    record: u8,
    /// Padding follows the record.
    padded: bool,
    shape: u64,
}

impl Template {
    /// A template that no report matches: it has bits outside the masks.
    pub(crate) const NONE: Self = Self {
        head: u64::MAX,
        option: u64::MAX,
        int: u64::MAX,
        dst_port: 0,
        least: 0,
        proto: 0,
        record: 0,
        padded: false,
        shape: 0,
    };

    #[inline(always)]
    fn fields(head: &Head, inner: &Inner) -> (u64, u64, u64) {
        (
            u64::from_le_bytes(array_at(head, head::TYPES)) & mask::HEAD,
            u64::from_le_bytes(array_at(inner, inner::EXTENSION)) & mask::OPTION,
            u64::from_le_bytes(array_at(inner, inner::INT)) & mask::INT,
        )
    }

    /// Whether a report has the same fields, except for the port.
    #[inline(always)]
    fn is_like(&self, head: &Head, inner: &Inner) -> bool {
        let fields = Self::fields(head, inner);
        // One branch instead of three: a difference is rare.
        (fields.0 ^ self.head) | (fields.1 ^ self.option) | (fields.2 ^ self.int) == 0
    }

    /// The template of a report, if it is a usual one.
    #[inline(never)]
    fn of(head: &Head, inner: &Inner, profile: &Profile, rest: &[u8]) -> Option<Self> {
        let bits = u16_at(head, head::MD_BITS);
        let bitmap = u16_at(inner, inner::BITMAP);
        let proto = inner[inner::EXTENSION];
        let reported = head[head::TYPES] == TYPES
            && head[head::FLAGS] & FLAGS == FLOW
            && bits & ITEMS != 0
            && bits & DROP_REASON == 0
            && head[head::MD_LENGTH] == words_2(bits)
            && u16_at(head, head::DS_ID) == 0;
        let words = words_2(bitmap);
        let stateful = matches!(proto, UDP | TCP)
            && inner[inner::OPTION] == sf::OPTION
            && inner[inner::SHIM] & 0xfc == Shim2::SF << 4
            && inner[inner::INT] & 0xf1 == 0x21
            && inner[inner::STATE] & 0x80 == 0
            && inner[inner::HOP_ML] & 0x1f == words
            && sf::check(bitmap, 0, 0).is_ok();
        // Lengths: the option's data are shim, header and record, and the extension's are that and padding.
        let option = 4 + int::header::LEN_2 + usize::from(words) * 4;
        let extension = 8 + usize::from(inner[inner::EXTENSION_LEN]) * 8;
        let padding = extension.checked_sub(4 + option)?;
        let fits = usize::from(inner[inner::OPTION_LEN]) == option
            && usize::from(inner[inner::SHIM_LEN]) == option / 4 - 1
            && matches!(padding, 0 | 4);
        let record = words * 4;
        let at = usize::from(record) + padding;
        let dst_port = u16_at(rest.get(at..at + PORTS)?, 2);
        if !is_unmarked(dst_port, profile) || profile.probe_marker.is_some() {
            return None;
        }
        let (head, option, int) = Self::fields(head, inner);
        (reported && stateful && fits).then_some(Self {
            head,
            option,
            int,
            dst_port,
            least: (extension + PORTS) as u16,
            proto,
            record,
            padded: padding > 0,
            shape: u64::from(bits) << 16 | u64::from(bitmap),
        })
    }
}

/// A port that marks neither INT nor a tunnel nor telemetry.
#[inline(always)]
fn is_unmarked(dst_port: u16, profile: &Profile) -> bool {
    dst_port != profile.int_udp_port && fast_path::is_plain(dst_port, profile)
}

/// Checks of the fields that differ from one usual report to the next.
#[inline(always)]
fn is_sound(payload: &[u8], head: &Head, inner: &Inner, latest: &Template) -> bool {
    let words = head[head::REPORT_LENGTH];
    let [version, ip] = [head[head::WORD] >> 4, inner[inner::VERSION] >> 4];
    // One report, of the length in its header.
    payload.len() == 12 + usize::from(words) * 4
        && words != super::v20::TO_THE_END
        && (version, ip, inner[inner::PAYLOAD_LEN + 2]) == (2, 6, 0)
        && u16_at(inner, inner::PAYLOAD_LEN) >= latest.least
        && u32_at(inner, inner::DOMAIN) == 0
        && u32_at(head, head::NODE_ID) != u32::MAX
}

#[inline(always)]
pub(crate) fn read<'a>(payload: &'a [u8], profile: &Profile, latest: &mut Template) -> Option<Single<'a>> {
    let (head, rest) = payload.split_first_chunk::<{ head::LEN }>()?;
    let (metadata, rest) = rest.split_at_checked(usize::from(head[head::MD_LENGTH]) * 4)?;
    let (inner, rest) = rest.split_first_chunk::<{ inner::LEN }>()?;
    if !latest.is_like(head, inner) {
        *latest = Template::of(head, inner, profile, rest)?;
    }
    let (carried, mut rest) = rest.split_at_checked(usize::from(latest.record))?;
    if latest.padded {
        let padding;
        (padding, rest) = rest.split_first_chunk::<4>()?;
        if *padding != PADDING {
            return None;
        }
    }
    let ports = rest.first_chunk::<PORTS>()?;
    let dst_port = u16_at(ports, 2);
    // INT behind TCP or UDP would win over the option.
    let dscp = (u16_at(inner, inner::VERSION) >> 6 & 0x3f) as u8;
    if !is_sound(payload, head, inner, latest)
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
        // D and I are not set; Q may be.
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

/// The layouts of the sink's own record and of the carried one, for a shape that [`read`] returned.
pub(crate) fn layouts(shape: u64) -> [Layout; 2] {
    let bitmap = shape as u16;
    let carried = Layout::int_2(bitmap, words_2(bitmap), false);
    [
        Layout::report_20((shape >> 16) as u16),
        carried.unwrap_or(Layout::EMPTY),
    ]
}
