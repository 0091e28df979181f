//! Fields: the parts of a report's key, data or condition. Written as text in a configuration, and as bytes in a report.
//!
//! The text of a field is a name (`flow`, `hop_latency`), a name with a width (`hop_latency:u16`), a list over the first hops
//! of the path (`node[5]`), or a number with its width (`7:u32`). Numbers are big-endian.

mod text;

use std::fmt;
use std::net::IpAddr;

use wire::{FlowKey, Hop};

pub(super) use text::parse_number;

use super::context::{Context, Sums};
use super::pint;

/// Maximum length of a table's key, bytes: an IPv6 flow and a few more bytes.
pub const MAX_KEY: usize = 40;

/// A part of a key, of data, or of a condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    what: FieldKind,
    /// Width in bytes: of each element for a list; of the form in data for addresses and flows.
    width: u8,
    /// Number of elements of a list; 0 if it is not a list.
    count: u8,
}

/// Kind of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FieldKind {
    /// Source, destination, ports, protocol: 13 bytes, or 37 if `wide` (16-byte addresses).
    Flow {
        wide: bool,
    },
    Address {
        source: bool,
        wide: bool,
    },
    /// The key of the table's record, or of the key with the most packets (`top`).
    Key {
        top: bool,
    },
    Number(Number),
    Constant(u64),
}

macro_rules! numbers {
    ($($(#[doc = $doc:literal])+ $name:ident = $word:literal, $width:literal;)+) => {
        /// Numeric fields, which a switch may know.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(super) enum Number { $($(#[doc = $doc])+ $name),+ }

        impl Number {
            const ALL: &[(Self, &str, u8)] = &[$((Self::$name, $word, $width)),+];
        }

        /// All numeric fields: (name, default width in bytes, meaning).
        pub const NUMBERS: &[(&str, u8, &str)] = &[$(($word, $width, concat!($($doc),+))),+];
    };
}

numbers! {
    /// Source port of TCP or UDP.
    SrcPort = "sport", 2;
    /// Destination port of TCP or UDP.
    DstPort = "dport", 2;
    /// Protocol number of the IP header.
    Proto = "proto", 1;
    /// Id of the hop's node; where there is no hop, this switch's.
    Node = "node", 4;
    /// Id of this switch.
    Switch = "switch", 4;
    /// Ingress interface of the packet.
    IngressIf = "ingress_if", 2;
    /// Egress interface of the packet.
    EgressIf = "egress_if", 2;
    /// Time in the node, ns.
    HopLatency = "hop_latency", 4;
    /// ID of the egress queue.
    QueueId = "queue_id", 1;
    /// Queue occupancy when the packet arrived.
    QueueOccupancy = "queue_occupancy", 4;
    /// Time of the packet's arrival at the switch, ns.
    IngressTs = "ingress_ts", 8;
    /// Time of the packet's departure from the switch, ns.
    EgressTs = "egress_ts", 8;
    /// Utilization of the egress link.
    TxUtilization = "tx_utilization", 4;
    /// Occupancy of the shared buffer.
    BufferOccupancy = "buffer_occupancy", 4;
    /// Index of the hop in the path, from 1.
    HopIndex = "hop", 1;
    /// Hops of the path.
    PathLen = "path_len", 1;
    /// Time in all nodes of the path, ns.
    FlowLatency = "flow_latency", 4;
    /// Reason of a drop.
    Reason = "reason", 1;
    /// 1: the queue is congested; 0: it has recovered.
    Congested = "congested", 1;
    /// A number that differs between packets and is the same at every switch.
    PacketId = "packet_id", 4;
    /// Length of the IP packet.
    PacketBytes = "packet_bytes", 4;
    /// TTL or hop limit.
    HopLimit = "hop_limit", 1;
    /// Time of the report, ns.
    Time = "time", 8;
    /// Packets of a table's record since the last report; in a window, of all records.
    Packets = "packets", 8;
    /// Bytes, counted like `packets`.
    Bytes = "bytes", 8;
    /// Likewise packets dropped here.
    Drops = "drops", 8;
    /// Likewise dropped packets in millionths of all.
    LossRate = "loss_rate", 4;
    /// Packets since the record's key was inserted into the table.
    TotalPackets = "total_packets", 8;
    /// Bytes, counted like `total_packets`.
    TotalBytes = "total_bytes", 8;
    /// Likewise packets dropped here.
    TotalDrops = "total_drops", 8;
    /// When the record's key was inserted, ns.
    First = "first", 8;
    /// Time of the last counted packet, ns.
    Last = "last", 8;
    /// Number of records in a window.
    Keys = "keys", 8;
    /// Packets of the window's most frequent key.
    TopPackets = "top_packets", 8;
    /// Bytes of the window's most frequent key.
    TopBytes = "top_bytes", 8;
    /// PINT's n = f(packet), less than the number in brackets.
    PintN = "pint_n", 1;
    /// PINT's digest of the hop that n chooses; the number in brackets as in `pint_n`.
    PintDigest = "pint_digest", 1;
}

/// All other fields: (name, bytes in data, meaning).
pub const NAMES: &[(&str, u8, &str)] = &[
    (
        "flow",
        13,
        "Source, destination, ports, protocol. In a key 13 or 37 bytes; in data 13, and IPv6 is not reported.",
    ),
    (
        "flow6",
        37,
        "The same of either family in 37 bytes, IPv4 as mapped addresses.",
    ),
    (
        "src",
        4,
        "Source address. In a key 4 or 16 bytes; in data 4, and IPv6 is not reported.",
    ),
    ("dst", 4, "Destination address, likewise."),
    ("src6", 16, "Source address of either family, IPv4 mapped."),
    ("dst6", 16, "Destination address, likewise."),
    (
        "key",
        0,
        "The key of a table's record, as the table defines it; in data `key[N]`, and only records whose key has N bytes are reported.",
    ),
    (
        "top_key",
        0,
        "`top_key[N]`: the key of most packets in a window, cut or filled with zeros to N bytes.",
    ),
];

/// The reason why a report cannot be made from the known values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueError {
    /// A part of a key, or a required value, is unknown.
    Absent,
    /// An IPv6 address in a field of four bytes, or a key of another length than the field.
    Size,
}

/// The reason why a text is not a field or condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FieldError {
    /// No field has this name; the value is the text.
    Unknown(String),
    /// The text after the colon is not a width.
    Width(String),
    /// The field has a fixed width, or cannot be a list.
    Fixed(String),
    /// The field needs a number in brackets, from 1 to this maximum.
    Brackets(String, u16),
    /// The text of a condition is not `FIELD OPERATOR NUMBER`.
    Condition(String),
}

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown(text) => {
                write!(
                    f,
                    "there is no field `{text}`; docs/reference/dta-fields.md lists them"
                )
            }
            Self::Width(text) => write!(f, "`{text}`: write a width such as u8, u16, u24, u32, u48 or u64"),
            Self::Fixed(text) => write!(
                f,
                "`{text}` has one size only; write it without a width or number"
            ),
            Self::Brackets(text, most) => {
                write!(
                    f,
                    "`{text}` needs a number from 1 to {most} in brackets, such as `{text}[5]`"
                )
            }
            Self::Condition(text) => {
                write!(
                    f,
                    "`{text}` is not a condition; write a number's field, one of == != < <= > >=, and a number, such as \
                     \"hop_latency > 500us\""
                )
            }
        }
    }
}

impl std::error::Error for FieldError {}

impl Number {
    /// Returns whether the field belongs to a hop, so that it can be a list over hops.
    fn is_per_hop(self) -> bool {
        use Number as N;
        matches!(
            self,
            N::Node
                | N::IngressIf
                | N::EgressIf
                | N::HopLatency
                | N::QueueId
                | N::QueueOccupancy
                | N::IngressTs
                | N::EgressTs
                | N::TxUtilization
                | N::BufferOccupancy
        )
    }

    fn is_pint(self) -> bool {
        matches!(self, Self::PintN | Self::PintDigest)
    }

    /// Returns whether a value that does not fit is truncated to its low bits. Other numbers saturate.
    fn wraps(self) -> bool {
        use Number as N;
        matches!(
            self,
            N::IngressTs | N::EgressTs | N::Time | N::First | N::Last | N::PacketId
        )
    }

    fn hop_value(self, hop: &Hop) -> Option<u64> {
        match self {
            Self::Node => hop.node_id.map(u64::from),
            Self::IngressIf => hop.ingress_if.map(u64::from),
            Self::EgressIf => hop.egress_if.map(u64::from),
            Self::HopLatency => hop.hop_latency.map(u64::from),
            Self::QueueId => hop.queue_id.map(u64::from),
            Self::QueueOccupancy => hop.queue_occupancy.map(u64::from),
            Self::IngressTs => hop.ingress_ts,
            Self::EgressTs => hop.egress_ts,
            Self::TxUtilization => hop.tx_utilization.map(u64::from),
            Self::BufferOccupancy => hop.buffer_occupancy.map(u64::from),
            _ => None,
        }
    }

    fn sum_value(self, sums: &Sums, total: Option<&Sums>) -> Option<u64> {
        match self {
            Self::Packets => Some(sums.packets),
            Self::Bytes => Some(sums.bytes),
            Self::Drops => Some(sums.drops),
            Self::LossRate => sums.loss_rate(),
            Self::TotalPackets => total.map(|total| total.packets),
            Self::TotalBytes => total.map(|total| total.bytes),
            Self::TotalDrops => total.map(|total| total.drops),
            _ => None,
        }
    }
}

/// The hop that a report is about.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ReportedHop {
    pub(super) hop: Option<Hop>,
    /// Position of the hop on the path, from 1; 0 if unknown.
    pub(super) number: u8,
}

impl ReportedHop {
    /// Returns the default hop, if one of the fields uses it.
    pub(super) fn for_fields<'f>(fields: impl IntoIterator<Item = &'f Field>, context: &Context<'_>) -> Self {
        let hop = if fields.into_iter().any(Field::needs_hop) {
            context.last_hop()
        } else {
            None
        };
        Self { hop, number: 0 }
    }
}

impl Field {
    /// Returns the value if it is a number and known.
    pub(super) fn number(&self, context: &Context<'_>, subject: &ReportedHop, now: u64) -> Option<u64> {
        match self.what {
            FieldKind::Constant(value) => Some(value),
            FieldKind::Number(number) => self.read(number, context, subject, now),
            FieldKind::Flow { .. } | FieldKind::Address { .. } | FieldKind::Key { .. } => None,
        }
    }

    /// Returns the value in 32 bits: an IPv4 address, a Flow ID, or a number (saturated).
    pub(super) fn word(&self, context: &Context<'_>, subject: &ReportedHop, now: u64) -> Option<u32> {
        match self.what {
            FieldKind::Flow { .. } => whole(context.flow).ok().map(FlowKey::flow_id),
            FieldKind::Address { source, .. } => {
                let flow = whole(context.flow).ok()?;
                match if source { flow.src() } else { flow.dst() } {
                    IpAddr::V4(address) => Some(address.into()),
                    IpAddr::V6(_) => None,
                }
            }
            _ => self
                .number(context, subject, now)
                .map(|value| value.min(u64::from(u32::MAX)) as u32),
        }
    }

    fn read(&self, number: Number, context: &Context<'_>, subject: &ReportedHop, now: u64) -> Option<u64> {
        use Number as N;
        let flow = context.flow.filter(|flow| flow.known_id().is_none());
        match number {
            N::SrcPort => flow.and_then(FlowKey::src_port).map(u64::from),
            N::DstPort => flow.and_then(FlowKey::dst_port).map(u64::from),
            N::Proto => flow.map(|flow| u64::from(flow.proto())),
            N::Switch => Some(context.node.into()),
            N::Node => Some(
                subject
                    .hop
                    .and_then(|hop| hop.node_id)
                    .unwrap_or(context.node)
                    .into(),
            ),
            N::HopIndex => nonzero(subject.number.into()),
            N::PathLen => Some(context.hops() as u64).filter(|hops| *hops > 0),
            N::FlowLatency => context.flow_latency(),
            N::Reason => context.reason.map(u64::from),
            N::Congested => context.congested.map(u64::from),
            N::PacketId => Some(context.packet.id.into()),
            N::PacketBytes => nonzero(context.packet.bytes),
            N::HopLimit => nonzero(context.packet.hop_limit.into()),
            N::Time => Some(now),
            N::First => context.counter.map(|counter| counter.first),
            N::Last => context.counter.map(|counter| counter.last),
            N::Keys => context.window.map(|window| window.keys),
            N::TopPackets => context.window.map(|window| window.top.packets),
            N::TopBytes => context.window.map(|window| window.top.bytes),
            N::PintN => Some(pint::n_of(context, self.count).into()),
            N::PintDigest => pint::digest_of(context, self.count).map(u64::from),
            hop if hop.is_per_hop() => subject.hop.as_ref().and_then(|subject| hop.hop_value(subject)),
            sum => match (context.counter, context.window) {
                (Some(counter), _) => sum.sum_value(&counter.since, Some(&counter.total)),
                (None, Some(window)) => sum.sum_value(&window.sums, None),
                (None, None) => None,
            },
        }
    }

    /// Returns whether the field uses the hop that a report is about.
    pub(super) fn needs_hop(&self) -> bool {
        matches!(self.what, FieldKind::Number(number) if number.is_per_hop()) && self.count == 0
    }

    /// Returns whether the field belongs to a table's record or window.
    pub(super) fn needs_table(&self) -> bool {
        use Number as N;
        match self.what {
            FieldKind::Key { .. } => true,
            FieldKind::Number(number) => matches!(
                number,
                N::Packets
                    | N::Bytes
                    | N::Drops
                    | N::LossRate
                    | N::TotalPackets
                    | N::TotalBytes
                    | N::TotalDrops
                    | N::First
                    | N::Last
                    | N::Keys
                    | N::TopPackets
                    | N::TopBytes
            ),
            FieldKind::Flow { .. } | FieldKind::Address { .. } | FieldKind::Constant(_) => false,
        }
    }

    /// Returns whether the field belongs to a packet's flow.
    pub(super) fn needs_flow(&self) -> bool {
        use Number as N;
        match self.what {
            FieldKind::Flow { .. } | FieldKind::Address { .. } => true,
            FieldKind::Number(number) => matches!(number, N::SrcPort | N::DstPort | N::Proto),
            FieldKind::Key { .. } | FieldKind::Constant(_) => false,
        }
    }

    /// Returns whether it is a number, so that it can be a value or part of a condition.
    pub fn is_number(&self) -> bool {
        matches!(self.what, FieldKind::Number(_) | FieldKind::Constant(_))
            && (self.count == 0 || self.is_pint())
    }

    fn is_pint(&self) -> bool {
        matches!(self.what, FieldKind::Number(number) if number.is_pint())
    }

    /// Returns the length in data in bytes, or `None` if it is not fixed.
    pub fn data_len(&self) -> Option<usize> {
        match self.what {
            FieldKind::Key { .. } => (self.count > 0).then_some(usize::from(self.count)),
            FieldKind::Number(_) if self.count > 0 && !self.is_pint() => {
                Some(usize::from(self.width) * usize::from(self.count))
            }
            _ => Some(usize::from(self.width)),
        }
    }

    /// Returns the maximum length in a key, bytes.
    pub fn longest_in_key(&self) -> usize {
        match self.what {
            FieldKind::Flow { .. } => 37,
            FieldKind::Address { .. } => 16,
            FieldKind::Key { top: false } => MAX_KEY,
            _ => self.data_len().unwrap_or(0),
        }
    }

    /// Writes the field as part of a key. All of it must be known.
    fn put_key(
        &self,
        context: &Context<'_>,
        subject: &ReportedHop,
        now: u64,
        out: &mut Scratch<'_>,
    ) -> Result<(), ValueError> {
        match self.what {
            FieldKind::Flow { wide: false } => {
                let flow = whole(context.flow)?;
                put_flow(flow, flow.is_v6(), out)
            }
            FieldKind::Address { source, wide: false } => {
                let flow = whole(context.flow)?;
                match if source { flow.src() } else { flow.dst() } {
                    IpAddr::V4(address) => out.put(&address.octets()),
                    IpAddr::V6(address) => out.put(&address.octets()),
                }
            }
            FieldKind::Key { top: false } if self.count == 0 => out.put(
                context
                    .counter
                    .map(|counter| counter.key)
                    .ok_or(ValueError::Absent)?,
            ),
            FieldKind::Number(_) if self.count == 0 || self.is_pint() => {
                let value = self.number(context, subject, now).ok_or(ValueError::Absent)?;
                out.put_number(self.fitted(value), self.width)
            }
            _ => self.put_data(context, subject, now, out),
        }
    }

    /// Writes the field as part of data. An unknown number is all ones, as in INT.
    fn put_data(
        &self,
        context: &Context<'_>,
        subject: &ReportedHop,
        now: u64,
        out: &mut Scratch<'_>,
    ) -> Result<(), ValueError> {
        match self.what {
            FieldKind::Constant(value) => out.put_number(value, self.width),
            FieldKind::Flow { wide } => {
                let flow = whole(context.flow)?;
                if flow.is_v6() && !wide {
                    Err(ValueError::Size)
                } else {
                    put_flow(flow, wide, out)
                }
            }
            FieldKind::Address { source, wide } => {
                let flow = whole(context.flow)?;
                let octets = if source {
                    flow.src_octets()
                } else {
                    flow.dst_octets()
                };
                match (wide, flow.is_v6()) {
                    (true, _) => out.put(octets),
                    (false, false) => out.put(&octets[12..]),
                    (false, true) => Err(ValueError::Size),
                }
            }
            FieldKind::Key { top } => self.put_table_key(context, top, out),
            FieldKind::Number(number) if self.count > 0 && !number.is_pint() => {
                self.put_list(number, context, out)
            }
            FieldKind::Number(_) => {
                let value = self.number(context, subject, now);
                out.put_number(value.map_or(u64::MAX, |value| self.fitted(value)), self.width)
            }
        }
    }

    fn put_table_key(
        &self,
        context: &Context<'_>,
        top: bool,
        out: &mut Scratch<'_>,
    ) -> Result<(), ValueError> {
        let len = usize::from(self.count);
        if !top {
            let key = context
                .counter
                .map(|counter| counter.key)
                .ok_or(ValueError::Absent)?;
            return if key.len() == len {
                out.put(key)
            } else {
                Err(ValueError::Size)
            };
        }
        let key = context
            .window
            .map(|window| window.top_key)
            .ok_or(ValueError::Absent)?;
        let key = &key[..key.len().min(len)];
        out.put(key)?;
        (key.len()..len).try_for_each(|_| out.put(&[0]))
    }

    /// Writes an item of the first hops, the source first; zero for hops beyond the path.
    fn put_list(
        &self,
        number: Number,
        context: &Context<'_>,
        out: &mut Scratch<'_>,
    ) -> Result<(), ValueError> {
        let hops = context.hops();
        for i in 0..usize::from(self.count) {
            let value = match number {
                _ if i >= hops => 0,
                Number::Node => context.node_of(i).map_or(u64::MAX, u64::from),
                other => {
                    let value = context.hop(i).and_then(|hop| other.hop_value(&hop));
                    value.map_or(u64::MAX, |value| self.fitted(value))
                }
            };
            out.put_number(value, self.width)?;
        }
        Ok(())
    }

    /// Fits a number into this field's width: it wraps or saturates, see [`Number::wraps`]. The largest value is reserved for
    /// "unknown".
    fn fitted(&self, value: u64) -> u64 {
        let wraps = matches!(self.what, FieldKind::Number(number) if number.wraps());
        let most = max_of_width(self.width);
        if value <= most || wraps { value } else { most - 1 }
    }
}

fn nonzero(value: u32) -> Option<u64> {
    (value != 0).then_some(u64::from(value))
}

/// Writes a key of these fields into `out`, and returns its length in bytes.
pub(super) fn write_key(
    fields: &[Field],
    context: &Context<'_>,
    subject: &ReportedHop,
    now: u64,
    out: &mut [u8],
) -> Result<usize, ValueError> {
    let mut scratch = Scratch { bytes: out, len: 0 };
    for field in fields {
        field.put_key(context, subject, now, &mut scratch)?;
    }
    Ok(scratch.len)
}

/// Writes data of these fields into `out`, and returns their length in bytes.
pub(super) fn write_data(
    fields: &[Field],
    context: &Context<'_>,
    subject: &ReportedHop,
    now: u64,
    out: &mut [u8],
) -> Result<usize, ValueError> {
    let mut scratch = Scratch { bytes: out, len: 0 };
    for field in fields {
        field.put_data(context, subject, now, &mut scratch)?;
    }
    Ok(scratch.len)
}

/// Returns the largest number of `width` bytes.
fn max_of_width(width: u8) -> u64 {
    u64::MAX >> (64 - 8 * u32::from(width.clamp(1, 8)))
}

/// Returns the flow if its 5-tuple is known, not only its Flow ID.
fn whole(flow: Option<&FlowKey>) -> Result<&FlowKey, ValueError> {
    flow.filter(|flow| flow.known_id().is_none())
        .ok_or(ValueError::Absent)
}

/// Writes the canonical key of a flow (wire-formats 5.6): source, destination, ports, protocol; with 16-byte addresses if
/// `wide`.
fn put_flow(flow: &FlowKey, wide: bool, out: &mut Scratch<'_>) -> Result<(), ValueError> {
    let from = if wide { 0 } else { 12 };
    out.put(&flow.src_octets()[from..])?;
    out.put(&flow.dst_octets()[from..])?;
    let (src_port, dst_port) = flow.ports().unwrap_or((0, 0));
    let ports = u64::from(src_port) << 24 | u64::from(dst_port) << 8 | u64::from(flow.proto());
    out.put_number(ports, 5)
}

/// Cursor over the buffer of a key or data that is being written.
#[derive(Debug)]
struct Scratch<'a> {
    bytes: &'a mut [u8],
    len: usize,
}

impl Scratch<'_> {
    #[inline]
    fn put(&mut self, part: &[u8]) -> Result<(), ValueError> {
        let end = self.len + part.len();
        self.bytes
            .get_mut(self.len..end)
            .ok_or(ValueError::Size)?
            .copy_from_slice(part);
        self.len = end;
        Ok(())
    }

    #[inline]
    fn put_number(&mut self, value: u64, width: u8) -> Result<(), ValueError> {
        let bytes = value.to_be_bytes();
        self.put(&bytes[8 - usize::from(width.clamp(1, 8))..])
    }
}

#[cfg(test)]
mod tests;
