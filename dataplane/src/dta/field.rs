//! Fields: what a report's key, data or condition is made of, as text in a configuration and as bytes in a report.
//!
//! A field is written as its name (`flow`, `hop_latency`), with another width (`hop_latency:u16`), as a list over the first hops
//! of the path (`node[5]`), or as a number with its width (`7:u32`). Numbers are big-endian.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use wire::{FlowKey, Hop};

use super::known::{Known, Sums};
use super::pint;

/// A part of a key, of data, or of a condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    what: What,
    /// Bytes; of a list, of each element. Of addresses and flows: where they are data.
    width: u8,
    /// Of a list: elements. Else 0.
    count: u8,
}

/// What a field is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    /// Source, destination, ports, protocol: 13 bytes, or 37 when it may be IPv6.
    Flow {
        wide: bool,
    },
    Address {
        source: bool,
        wide: bool,
    },
    /// The key of the table's record, or of the most frequent one.
    Key {
        top: bool,
    },
    Number(Number),
    Constant(u64),
}

macro_rules! numbers {
    ($($(#[doc = $doc:literal])+ $name:ident = $word:literal, $width:literal;)+) => {
        /// A number that a switch may know.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(super) enum Number { $($(#[doc = $doc])+ $name),+ }

        impl Number {
            const ALL: &[(Self, &str, u8)] = &[$((Self::$name, $word, $width)),+];
        }

        /// Every number that a field can be: its name, its bytes unless another width is written, and what it is.
        pub const NUMBERS: &[(&str, u8, &str)] = &[$(($word, $width, concat!($($doc),+))),+];
    };
}

numbers! {
    /// Source port.
    SrcPort = "sport", 2;
    /// Destination port.
    DstPort = "dport", 2;
    /// IP protocol.
    Proto = "proto", 1;
    /// Id of the hop's node; where there is no hop, this switch's.
    Node = "node", 4;
    /// Id of this switch.
    Switch = "switch", 4;
    /// Interface the packet came in by.
    IngressIf = "ingress_if", 2;
    /// Interface the packet left by.
    EgressIf = "egress_if", 2;
    /// Time in the node, ns.
    HopLatency = "hop_latency", 4;
    /// Queue.
    QueueId = "queue_id", 1;
    /// What the packet found in the queue.
    QueueOccupancy = "queue_occupancy", 4;
    /// When it came in, ns.
    IngressTs = "ingress_ts", 8;
    /// When it left, ns.
    EgressTs = "egress_ts", 8;
    /// Utilisation of the egress link.
    TxUtilization = "tx_utilization", 4;
    /// Occupancy of the shared buffer.
    BufferOccupancy = "buffer_occupancy", 4;
    /// Which hop of the path, from 1.
    Place = "hop", 1;
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
    /// When it is told, ns.
    Time = "time", 8;
    /// Of a table's record, since it was told last; of a window, of all records: packets.
    Packets = "packets", 8;
    /// Likewise bytes.
    Bytes = "bytes", 8;
    /// Likewise packets dropped here.
    Drops = "drops", 8;
    /// Likewise dropped packets in millionths of all.
    LossRate = "loss_rate", 4;
    /// Packets since the record's key came into the table.
    TotalPackets = "total_packets", 8;
    /// Likewise bytes.
    TotalBytes = "total_bytes", 8;
    /// Likewise packets dropped here.
    TotalDrops = "total_drops", 8;
    /// When the record's key came, ns.
    First = "first", 8;
    /// When something was counted for it last, ns.
    Last = "last", 8;
    /// Records that a window has.
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

/// Fields that are no numbers: name, bytes in data, and what they are.
pub const NAMES: &[(&str, u8, &str)] = &[
    (
        "flow",
        13,
        "Source, destination, ports, protocol. In a key 13 or 37 bytes; in data 13, and IPv6 is not told.",
    ),
    ("flow6", 37, "The same of either family in 37 bytes, IPv4 as mapped addresses."),
    ("src", 4, "Source address. In a key 4 or 16 bytes; in data 4, and IPv6 is not told."),
    ("dst", 4, "Destination address, likewise."),
    ("src6", 16, "Source address of either family, IPv4 mapped."),
    ("dst6", 16, "Destination address, likewise."),
    (
        "key",
        0,
        "The key of a table's record, as the table says; in data `key[N]`, and only records whose key has N bytes are told.",
    ),
    ("top_key", 0, "`top_key[N]`: the key of most packets in a window, cut or filled with zeros to N bytes."),
];

/// Why a report could not be made of what is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unfit {
    /// A part of a key, or a value without which there is no report, is not known.
    Absent,
    /// IPv6 where there are four bytes for an address, or a key of another length than the data has room for.
    Size,
}

/// Why a text is no field or condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FieldError {
    /// Nothing has that name; the nearest that there is.
    Unknown(String),
    /// The text after the colon is no width.
    Width(String),
    /// It cannot have another width, or no list can be made of it.
    Fixed(String),
    /// It needs a number in brackets, from 1 to the one given here.
    Brackets(String, u16),
    /// The text of a condition is not `FIELD OPERATOR NUMBER`.
    Condition(String),
}

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown(text) => {
                write!(f, "there is no field `{text}`; docs/reference/dta-fields.md lists them")
            }
            Self::Width(text) => write!(f, "`{text}`: write a width such as u8, u16, u24, u32, u48 or u64"),
            Self::Fixed(text) => write!(f, "`{text}` has one size only; write it without a width or number"),
            Self::Brackets(text, most) => {
                write!(f, "`{text}` needs a number from 1 to {most} in brackets, such as `{text}[5]`")
            }
            Self::Condition(text) => {
                write!(
                    f,
                    "`{text}` is no condition; write a number's field, one of == != < <= > >=, and a number, such as \
                     \"hop_latency > 500us\""
                )
            }
        }
    }
}

impl std::error::Error for FieldError {}

impl Number {
    /// It belongs to a hop, so that there can be a list of it.
    fn is_of_hops(self) -> bool {
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

    /// When it does not fit, its low bits are what is wanted; of other numbers it is that they are large.
    fn wraps(self) -> bool {
        use Number as N;
        matches!(self, N::IngressTs | N::EgressTs | N::Time | N::First | N::Last | N::PacketId)
    }

    fn of_hop(self, hop: &Hop) -> Option<u64> {
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

    fn of_sums(self, sums: &Sums, total: Option<&Sums>) -> Option<u64> {
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
pub(super) struct Subject {
    pub(super) hop: Option<Hop>,
    /// Its place on the path, from 1; 0: unknown.
    pub(super) number: u8,
}

impl Field {
    /// Its value, if it is a number and known. Of a list the first element.
    pub(super) fn number(&self, known: &Known<'_>, subject: &Subject, now: u64) -> Option<u64> {
        match self.what {
            What::Constant(value) => Some(value),
            What::Number(number) => self.read(number, known, subject, now),
            What::Flow { .. } | What::Address { .. } | What::Key { .. } => None,
        }
    }

    /// Its value as 32 bits: an IPv4 address, a flow's id, or a number that fits.
    pub(super) fn word(&self, known: &Known<'_>, subject: &Subject, now: u64) -> Option<u32> {
        match self.what {
            What::Flow { .. } => whole(known.flow).ok().map(FlowKey::flow_id),
            What::Address { source, .. } => {
                let flow = whole(known.flow).ok()?;
                match if source { flow.src() } else { flow.dst() } {
                    IpAddr::V4(address) => Some(address.into()),
                    IpAddr::V6(_) => None,
                }
            }
            _ => self.number(known, subject, now).map(|value| value.min(u64::from(u32::MAX)) as u32),
        }
    }

    fn read(&self, number: Number, known: &Known<'_>, subject: &Subject, now: u64) -> Option<u64> {
        use Number as N;
        let flow = known.flow.filter(|flow| flow.known_id().is_none());
        let nonzero = |value: u32| (value != 0).then_some(u64::from(value));
        match number {
            N::SrcPort => flow.and_then(FlowKey::src_port).map(u64::from),
            N::DstPort => flow.and_then(FlowKey::dst_port).map(u64::from),
            N::Proto => flow.map(|flow| u64::from(flow.proto())),
            N::Switch => Some(known.node.into()),
            N::Node => Some(subject.hop.and_then(|hop| hop.node_id).unwrap_or(known.node).into()),
            N::Place => nonzero(subject.number.into()),
            N::PathLen => Some(known.hops() as u64).filter(|hops| *hops > 0),
            N::FlowLatency => known.flow_latency(),
            N::Reason => known.reason.map(u64::from),
            N::Congested => known.congested.map(u64::from),
            N::PacketId => Some(known.packet.id.into()),
            N::PacketBytes => nonzero(known.packet.bytes),
            N::HopLimit => nonzero(known.packet.hop_limit.into()),
            N::Time => Some(now),
            N::First => known.counter.map(|counter| counter.first),
            N::Last => known.counter.map(|counter| counter.last),
            N::Keys => known.window.map(|window| window.keys),
            N::TopPackets => known.window.map(|window| window.top.packets),
            N::TopBytes => known.window.map(|window| window.top.bytes),
            N::PintN => Some(pint::n_of(known, self.count).into()),
            N::PintDigest => pint::digest_of(known, self.count).map(u64::from),
            hop if hop.is_of_hops() => subject.hop.as_ref().and_then(|subject| hop.of_hop(subject)),
            sum => match (known.counter, known.window) {
                (Some(counter), _) => sum.of_sums(&counter.since, Some(&counter.total)),
                (None, Some(window)) => sum.of_sums(&window.sums, None),
                (None, None) => None,
            },
        }
    }

    /// It asks for the hop that a report is about.
    pub(super) fn needs_hop(&self) -> bool {
        matches!(self.what, What::Number(number) if number.is_of_hops()) && self.count == 0
    }

    /// It is of a table's record, or of a window.
    pub(super) fn needs_table(&self) -> bool {
        use Number as N;
        match self.what {
            What::Key { .. } => true,
            What::Number(number) => matches!(
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
            What::Flow { .. } | What::Address { .. } | What::Constant(_) => false,
        }
    }

    /// It is of a packet's flow.
    pub(super) fn needs_flow(&self) -> bool {
        use Number as N;
        match self.what {
            What::Flow { .. } | What::Address { .. } => true,
            What::Number(number) => matches!(number, N::SrcPort | N::DstPort | N::Proto),
            What::Key { .. } | What::Constant(_) => false,
        }
    }

    /// It is a number, so that it can be a value, or stand in a condition.
    pub fn is_number(&self) -> bool {
        matches!(self.what, What::Number(_) | What::Constant(_)) && (self.count == 0 || self.is_pint())
    }

    fn is_pint(&self) -> bool {
        matches!(self.what, What::Number(number) if number.is_pint())
    }

    /// How many bytes it has in data; `None`: it has no size of its own there.
    pub fn data_len(&self) -> Option<usize> {
        match self.what {
            What::Key { .. } => (self.count > 0).then_some(usize::from(self.count)),
            What::Number(_) if self.count > 0 && !self.is_pint() => {
                Some(usize::from(self.width) * usize::from(self.count))
            }
            _ => Some(usize::from(self.width)),
        }
    }

    /// The most bytes it has in a key.
    pub fn longest_in_key(&self) -> usize {
        match self.what {
            What::Flow { .. } => 37,
            What::Address { .. } => 16,
            What::Key { top: false } => super::table::MAX_KEY,
            _ => self.data_len().unwrap_or(0),
        }
    }

    /// Writes it as a part of a key: all of it must be known.
    pub(super) fn put_key(
        &self,
        known: &Known<'_>,
        subject: &Subject,
        now: u64,
        out: &mut Scratch<'_>,
    ) -> Result<(), Unfit> {
        match self.what {
            What::Flow { wide: false } => {
                let flow = whole(known.flow)?;
                if flow.is_v6() { put_flow(flow, true, out) } else { put_flow(flow, false, out) }
            }
            What::Address { source, wide: false } => {
                let flow = whole(known.flow)?;
                match if source { flow.src() } else { flow.dst() } {
                    IpAddr::V4(address) => out.put(&address.octets()),
                    IpAddr::V6(address) => out.put(&address.octets()),
                }
            }
            What::Key { top: false } if self.count == 0 => {
                out.put(known.counter.map(|counter| counter.key).ok_or(Unfit::Absent)?)
            }
            What::Number(_) if self.count == 0 || self.is_pint() => {
                let value = self.number(known, subject, now).ok_or(Unfit::Absent)?;
                out.put_number(self.fitted(value), self.width)
            }
            _ => self.put_data(known, subject, now, out),
        }
    }

    /// Writes it as a part of data: a number that is not known is all ones, as in INT.
    pub(super) fn put_data(
        &self,
        known: &Known<'_>,
        subject: &Subject,
        now: u64,
        out: &mut Scratch<'_>,
    ) -> Result<(), Unfit> {
        match self.what {
            What::Constant(value) => out.put_number(value, self.width),
            What::Flow { wide } => {
                let flow = whole(known.flow)?;
                if flow.is_v6() && !wide { Err(Unfit::Size) } else { put_flow(flow, wide, out) }
            }
            What::Address { source, wide } => {
                let flow = whole(known.flow)?;
                let octets = if source { flow.src_octets() } else { flow.dst_octets() };
                match (wide, flow.is_v6()) {
                    (true, _) => out.put(octets),
                    (false, false) => out.put(&octets[12..]),
                    (false, true) => Err(Unfit::Size),
                }
            }
            What::Key { top } => self.put_table_key(known, top, out),
            What::Number(number) if self.count > 0 && !number.is_pint() => self.put_list(number, known, out),
            What::Number(_) => {
                let value = self.number(known, subject, now);
                out.put_number(value.map_or(u64::MAX, |value| self.fitted(value)), self.width)
            }
        }
    }

    fn put_table_key(&self, known: &Known<'_>, top: bool, out: &mut Scratch<'_>) -> Result<(), Unfit> {
        let len = usize::from(self.count);
        if !top {
            let key = known.counter.map(|counter| counter.key).ok_or(Unfit::Absent)?;
            return if key.len() == len { out.put(key) } else { Err(Unfit::Size) };
        }
        let key = known.window.map(|window| window.top_key).ok_or(Unfit::Absent)?;
        let key = &key[..key.len().min(len)];
        out.put(key)?;
        (key.len()..len).try_for_each(|_| out.put(&[0]))
    }

    /// The item of the first hops, the source first; zero for those that the path does not have.
    fn put_list(&self, number: Number, known: &Known<'_>, out: &mut Scratch<'_>) -> Result<(), Unfit> {
        let hops = known.hops();
        for i in 0..usize::from(self.count) {
            let value = match number {
                _ if i >= hops => 0,
                Number::Node => known.node_of(i).map_or(u64::MAX, u64::from),
                other => {
                    let value = known.hop(i).and_then(|hop| other.of_hop(&hop));
                    value.map_or(u64::MAX, |value| self.fitted(value))
                }
            };
            out.put_number(value, self.width)?;
        }
        Ok(())
    }

    /// A number in this field's width: see [`Number::wraps`]. The largest would say that it is not known.
    fn fitted(&self, value: u64) -> u64 {
        let wraps = matches!(self.what, What::Number(number) if number.wraps());
        let most = most(self.width);
        if value <= most || wraps { value } else { most - 1 }
    }
}

/// The largest number of `width` bytes.
fn most(width: u8) -> u64 {
    u64::MAX >> (64 - 8 * u32::from(width.clamp(1, 8)))
}

/// A flow of which more than an id is known.
fn whole(flow: Option<&FlowKey>) -> Result<&FlowKey, Unfit> {
    flow.filter(|flow| flow.known_id().is_none()).ok_or(Unfit::Absent)
}

/// The canonical key of a flow (wire-formats 5.6): source, destination, ports, protocol. `wide`: in the form of IPv6.
fn put_flow(flow: &FlowKey, wide: bool, out: &mut Scratch<'_>) -> Result<(), Unfit> {
    let from = if wide { 0 } else { 12 };
    out.put(&flow.src_octets()[from..])?;
    out.put(&flow.dst_octets()[from..])?;
    let (src_port, dst_port) = flow.ports().unwrap_or((0, 0));
    let ports = u64::from(src_port) << 24 | u64::from(dst_port) << 8 | u64::from(flow.proto());
    out.put_number(ports, 5)
}

/// Bytes that are being put together.
#[derive(Debug)]
pub(super) struct Scratch<'a> {
    bytes: &'a mut [u8],
    len: usize,
}

impl<'a> Scratch<'a> {
    pub(super) fn new(bytes: &'a mut [u8]) -> Self {
        Self { bytes, len: 0 }
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    #[inline]
    pub(super) fn put(&mut self, part: &[u8]) -> Result<(), Unfit> {
        let end = self.len + part.len();
        self.bytes.get_mut(self.len..end).ok_or(Unfit::Size)?.copy_from_slice(part);
        self.len = end;
        Ok(())
    }

    #[inline]
    fn put_number(&mut self, value: u64, width: u8) -> Result<(), Unfit> {
        let bytes = value.to_be_bytes();
        self.put(&bytes[8 - usize::from(width.clamp(1, 8))..])
    }
}

impl FromStr for Field {
    type Err = FieldError;

    fn from_str(text: &str) -> Result<Self, FieldError> {
        let text = text.trim();
        let (rest, width) = match text.split_once(':') {
            Some((rest, width)) => (rest.trim(), Some(width_of(width.trim())?)),
            None => (text, None),
        };
        let (name, count) = match rest.split_once('[') {
            Some((name, count)) => {
                let count = count.strip_suffix(']').and_then(|count| count.trim().parse::<u8>().ok());
                let count = count.filter(|count| *count > 0);
                (name.trim(), Some(count.ok_or_else(|| FieldError::Brackets(name.trim().to_owned(), 255))?))
            }
            None => (rest, None),
        };
        if let Some(value) = number_of(name) {
            let width = width.filter(|width| value <= most(*width) && count.is_none());
            let width = width.ok_or_else(|| FieldError::Width(text.to_owned()))?;
            return Ok(Self { what: What::Constant(value), width, count: 0 });
        }
        if let Some((number, _, usual)) = Number::ALL.iter().find(|(_, word, _)| *word == name) {
            if number.is_pint() && count.is_none() {
                return Err(FieldError::Brackets(name.to_owned(), 255));
            }
            if count.is_some() && !number.is_of_hops() && !number.is_pint() {
                return Err(FieldError::Fixed(text.to_owned()));
            }
            let count = count.unwrap_or(0);
            return Ok(Self { what: What::Number(*number), width: width.unwrap_or(*usual), count });
        }
        named(name, text, width, count)
    }
}

/// One of [`NAMES`].
fn named(name: &str, text: &str, width: Option<u8>, count: Option<u8>) -> Result<Field, FieldError> {
    let what = match name {
        "flow" => What::Flow { wide: false },
        "flow6" => What::Flow { wide: true },
        "src" => What::Address { source: true, wide: false },
        "dst" => What::Address { source: false, wide: false },
        "src6" => What::Address { source: true, wide: true },
        "dst6" => What::Address { source: false, wide: true },
        "key" => What::Key { top: false },
        "top_key" => What::Key { top: true },
        _ => return Err(FieldError::Unknown(name.to_owned())),
    };
    let is_key = matches!(what, What::Key { .. });
    if width.is_some() || (count.is_some() && !is_key) {
        return Err(FieldError::Fixed(text.to_owned()));
    }
    let longest = super::table::MAX_KEY as u8;
    if count.is_some_and(|count| count > longest) || (count.is_none() && name == "top_key") {
        return Err(FieldError::Brackets(name.to_owned(), longest.into()));
    }
    let width = NAMES.iter().find(|(word, ..)| *word == name).map_or(0, |(_, width, _)| *width);
    Ok(Field { what, width, count: count.unwrap_or(0) })
}

fn width_of(text: &str) -> Result<u8, FieldError> {
    let bits = text.strip_prefix('u').and_then(|bits| bits.parse::<u8>().ok());
    let bits = bits.filter(|bits| bits.is_multiple_of(8) && (8..=64).contains(bits));
    bits.map(|bits| bits / 8).ok_or_else(|| FieldError::Width(text.to_owned()))
}

/// A decimal or hexadecimal number, with `_` between digits where it reads better.
fn number_of(text: &str) -> Option<u64> {
    if !text.starts_with(|first: char| first.is_ascii_digit()) {
        return None;
    }
    let text = text.replace('_', "");
    match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

impl fmt::Display for Field {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, usual) = match self.what {
            What::Constant(value) => return write!(f, "{value}:u{}", self.width * 8),
            What::Flow { wide } => (if wide { "flow6" } else { "flow" }, self.width),
            What::Address { source: true, wide } => (if wide { "src6" } else { "src" }, self.width),
            What::Address { source: false, wide } => (if wide { "dst6" } else { "dst" }, self.width),
            What::Key { top } => (if top { "top_key" } else { "key" }, self.width),
            What::Number(number) => {
                let found = Number::ALL.iter().find(|(other, ..)| *other == number);
                found.map_or(("", 0), |(_, word, width)| (*word, *width))
            }
        };
        f.write_str(name)?;
        if self.count > 0 {
            write!(f, "[{}]", self.count)?;
        }
        if self.width != usual {
            write!(f, ":u{}", self.width * 8)?;
        }
        Ok(())
    }
}

/// A comparison of a number with a constant. What is not known meets none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Condition {
    field: Field,
    operator: Operator,
    value: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operator {
    Equal,
    NotEqual,
    Less,
    AtMost,
    More,
    AtLeast,
}

/// Longer ones first: `<=` begins with `<`.
const OPERATORS: [(&str, Operator); 6] = [
    ("==", Operator::Equal),
    ("!=", Operator::NotEqual),
    ("<=", Operator::AtMost),
    (">=", Operator::AtLeast),
    ("<", Operator::Less),
    (">", Operator::More),
];

/// What numbers in conditions may end with: bytes by powers of 1024, times in ns, parts in millionths.
const UNITS: [(&str, u64); 8] = [
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("ns", 1),
    ("us", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("%", 10_000),
    ("", 1),
];

impl Condition {
    /// What is compared.
    pub fn field(&self) -> &Field {
        &self.field
    }

    pub(super) fn is_met(&self, known: &Known<'_>, subject: &Subject, now: u64) -> bool {
        let Some(value) = self.field.number(known, subject, now) else { return false };
        match self.operator {
            Operator::Equal => value == self.value,
            Operator::NotEqual => value != self.value,
            Operator::Less => value < self.value,
            Operator::AtMost => value <= self.value,
            Operator::More => value > self.value,
            Operator::AtLeast => value >= self.value,
        }
    }
}

impl FromStr for Condition {
    type Err = FieldError;

    fn from_str(text: &str) -> Result<Self, FieldError> {
        let refused = || FieldError::Condition(text.to_owned());
        let (at, word, operator) = OPERATORS
            .iter()
            .find_map(|(word, operator)| text.find(word).map(|at| (at, *word, *operator)))
            .ok_or_else(refused)?;
        let field: Field = text[..at].parse()?;
        let written = text[at + word.len()..].trim();
        let (number, factor) = UNITS
            .iter()
            .find_map(|(unit, factor)| written.strip_suffix(unit).map(|number| (number.trim(), *factor)))
            .ok_or_else(refused)?;
        let value = number_of(number).and_then(|number| number.checked_mul(factor)).ok_or_else(refused)?;
        if field.is_number() { Ok(Self { field, operator, value }) } else { Err(refused()) }
    }
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let found = OPERATORS.iter().find(|(_, operator)| *operator == self.operator);
        write!(f, "{} {} {}", self.field, found.map_or("", |(word, _)| *word), self.value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dta::known::{Counter, Occasion, PacketFacts, Window};

    fn field(text: &str) -> Field {
        text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    fn data(text: &str, known: &Known<'_>) -> Result<Vec<u8>, Unfit> {
        let mut bytes = [0xa5; 64];
        let mut out = Scratch::new(&mut bytes);
        let subject = Subject { hop: known.last_hop(), number: 3 };
        field(text).put_data(known, &subject, 0x1122_3344_5566_7788, &mut out)?;
        let len = out.len();
        Ok(bytes[..len].to_vec())
    }

    fn key(text: &str, known: &Known<'_>) -> Result<Vec<u8>, Unfit> {
        let mut bytes = [0xa5; 64];
        let mut out = Scratch::new(&mut bytes);
        field(text).put_key(
            known,
            &Subject { hop: known.last_hop(), number: 3 },
            0x1122_3344_5566_7788,
            &mut out,
        )?;
        let len = out.len();
        Ok(bytes[..len].to_vec())
    }

    #[test]
    fn a_field_reads_back_as_it_is_written() {
        for text in
            ["flow", "flow6", "src", "dst6", "key", "key[13]", "top_key[4]", "node", "node[5]", "7:u32"]
        {
            assert_eq!(field(text).to_string(), text);
        }
        assert_eq!(field(" hop_latency : u16 ").to_string(), "hop_latency:u16");
        assert_eq!(field("hop_latency[3]:u24").to_string(), "hop_latency[3]:u24");
        assert_eq!(field("sport:u16").to_string(), "sport");
        assert_eq!(field("0xff:u8").to_string(), "255:u8");
        for (name, ..) in NUMBERS.iter().filter(|(name, ..)| !name.starts_with("pint")) {
            assert_eq!(field(name).to_string(), *name);
        }
    }

    #[test]
    fn what_is_no_field_is_refused_by_what_is_wrong() {
        let told = |text: &str| text.parse::<Field>().map(|field| field.to_string()).unwrap_err();
        assert_eq!(told("flwo"), FieldError::Unknown("flwo".to_owned()));
        assert_eq!(told("node:32"), FieldError::Width("32".to_owned()));
        assert_eq!(told("node:u12"), FieldError::Width("u12".to_owned()));
        assert_eq!(told("300:u8"), FieldError::Width("300:u8".to_owned()));
        assert_eq!(told("7"), FieldError::Width("7".to_owned()));
        assert_eq!(told("flow:u8"), FieldError::Fixed("flow:u8".to_owned()));
        assert_eq!(told("sport[2]"), FieldError::Fixed("sport[2]".to_owned()));
        assert_eq!(told("node[0]"), FieldError::Brackets("node".to_owned(), 255));
        assert_eq!(told("pint_n"), FieldError::Brackets("pint_n".to_owned(), 255));
        assert_eq!(told("top_key"), FieldError::Brackets("top_key".to_owned(), 40));
        assert_eq!(told("key[41]"), FieldError::Brackets("key".to_owned(), 40));
    }

    #[test]
    fn the_canonical_key_is_that_of_wire_formats_5_6() {
        let flow = FlowKey::v4([10, 0, 0, 1], [10, 0, 0, 2], Some((1234, 80)), 6);
        let known = Known { flow: Some(&flow), ..Known::new(Occasion::Path, 7) };
        let bytes = [0x0a, 0, 0, 1, 0x0a, 0, 0, 2, 0x04, 0xd2, 0, 0x50, 6];
        assert_eq!(key("flow", &known).as_deref(), Ok(&bytes[..]));
        assert_eq!(data("flow", &known).as_deref(), Ok(&bytes[..]));
        assert_eq!(data("src", &known), Ok(vec![10, 0, 0, 1]));
        assert_eq!(
            data("dst6", &known),
            Ok([[0; 12], [0, 0, 0, 0, 0, 0, 0, 0, 10, 0, 0, 2]]
                .concat()
                .split_at(8)
                .1
                .iter()
                .enumerate()
                .map(|(i, byte)| if i == 10 || i == 11 { 0xff } else { *byte })
                .collect())
        );
    }

    #[test]
    fn ipv6_has_a_long_key_and_no_place_in_short_data() {
        let flow = FlowKey::v6([0x20; 16], [0x21; 16], Some((1, 2)), 17);
        let known = Known { flow: Some(&flow), ..Known::new(Occasion::Path, 7) };
        assert_eq!(key("flow", &known).map(|key| key.len()), Ok(37));
        assert_eq!(key("src", &known), Ok(vec![0x20; 16]));
        assert_eq!((data("flow", &known), data("src", &known)), (Err(Unfit::Size), Err(Unfit::Size)));
        assert_eq!(data("flow6", &known).map(|key| key.len()), Ok(37));
        let id = FlowKey::of_id(7);
        let known = Known { flow: Some(&id), ..known };
        assert_eq!((key("flow", &known), data("flow6", &known)), (Err(Unfit::Absent), Err(Unfit::Absent)));
    }

    #[test]
    fn numbers_take_the_width_that_is_written() {
        let own = Hop {
            node_id: Some(11),
            hop_latency: Some(0x0102_0304),
            queue_id: Some(5),
            ingress_ts: Some(0x1_0000_0002),
            ..Hop::default()
        };
        let known = Known { own: Some(&own), reason: Some(0xff), ..Known::new(Occasion::Drop, 11) };
        assert_eq!(data("hop_latency", &known), Ok(vec![1, 2, 3, 4]));
        assert_eq!(data("hop_latency:u48", &known), Ok(vec![0, 0, 1, 2, 3, 4]));
        assert_eq!(
            data("hop_latency:u16", &known),
            Ok(vec![0xff, 0xfe]),
            "too large is not the same as unknown"
        );
        assert_eq!(data("ingress_ts:u32", &known), Ok(vec![0, 0, 0, 2]), "of times the low bits");
        assert_eq!(data("time:u16", &known), Ok(vec![0x77, 0x88]));
        assert_eq!(data("egress_ts:u16", &known), Ok(vec![0xff, 0xff]), "unknown");
        assert_eq!(key("egress_ts:u16", &known), Err(Unfit::Absent));
        assert_eq!(data("reason", &known), Ok(vec![0xff]));
        assert_eq!(data("hop", &known), Ok(vec![3]));
        assert_eq!(data("0x1234:u24", &known), Ok(vec![0, 0x12, 0x34]));
    }

    #[test]
    fn a_list_is_the_path_from_its_source() {
        let layout = wire::int::Layout::int_2(0xa000, 2, false).unwrap();
        // Node and hop latency; the most recent hop first.
        let bytes = [0, 0, 0, 12, 0, 0, 0, 200, 0, 0, 0, 11, 0xff, 0xff, 0xff, 0xff];
        let stack = wire::int::Stack { bytes: &bytes, layout, count: 2 };
        let own = Hop { node_id: Some(13), hop_latency: Some(70_000), ..Hop::default() };
        let known = Known { stack, own: Some(&own), ..Known::new(Occasion::Path, 13) };
        let words = |words: &[u32]| words.iter().flat_map(|word| word.to_be_bytes()).collect::<Vec<_>>();
        assert_eq!(data("node[5]", &known), Ok(words(&[11, 12, 13, 0, 0])));
        assert_eq!(data("node[2]", &known), Ok(words(&[11, 12])));
        assert_eq!(data("hop_latency[3]:u16", &known), Ok(vec![0xff, 0xff, 0, 200, 0xff, 0xfe]));
        assert_eq!(data("path_len", &known), Ok(vec![3]));
        assert_eq!(data("flow_latency", &known), Ok(vec![0xff; 4]), "one hop does not tell");
        let known = Known { stack: wire::int::Stack { bytes: &bytes[..8], count: 1, ..stack }, ..known };
        assert_eq!(data("flow_latency", &known), Ok(words(&[70_200])));
    }

    #[test]
    fn a_tables_record_and_window_are_fields_too() {
        let since = Sums { packets: 90, bytes: 9000, drops: 10 };
        let total = Sums { packets: 1000, bytes: 90_000, drops: 10 };
        let counter = Counter { key: &[1, 2, 3, 4], since, total, first: 1, last: 2 };
        let known = Known { counter: Some(&counter), ..Known::new(Occasion::Evicted, 7) };
        assert_eq!(
            (key("key", &known), data("key[4]", &known)),
            (Ok(vec![1, 2, 3, 4]), Ok(vec![1, 2, 3, 4]))
        );
        assert_eq!(data("key[13]", &known), Err(Unfit::Size));
        assert_eq!(data("packets:u8", &known), Ok(vec![90]));
        assert_eq!(data("total_packets:u16", &known), Ok(vec![3, 0xe8]));
        assert_eq!(data("loss_rate", &known), Ok(100_000_u32.to_be_bytes().to_vec()));
        let window = Window { keys: 3, sums: since, top_key: &[9, 8], top: total };
        let known = Known { window: Some(&window), ..Known::new(Occasion::Window, 7) };
        assert_eq!(data("top_key[4]", &known), Ok(vec![9, 8, 0, 0]));
        assert_eq!(
            (data("keys:u8", &known), data("top_packets:u16", &known)),
            (Ok(vec![3]), Ok(vec![3, 0xe8]))
        );
        assert_eq!(data("total_packets:u8", &known), Ok(vec![0xff]), "a window has no such");
    }

    #[test]
    fn conditions_compare_what_is_known() {
        let own = Hop { node_id: Some(11), hop_latency: Some(500_000), ..Hop::default() };
        let packet = PacketFacts { bytes: 64, ..PacketFacts::default() };
        let known = Known { own: Some(&own), packet, ..Known::new(Occasion::Hop, 11) };
        let subject = Subject { hop: known.last_hop(), number: 0 };
        let met = |text: &str| text.parse::<Condition>().unwrap().is_met(&known, &subject, 0);
        for text in
            ["hop_latency >= 500us", "hop_latency == 500_000", "hop_latency<1ms", "packet_bytes <= 64"]
        {
            assert!(met(text), "{text}");
        }
        for text in ["hop_latency != 500us", "hop_latency > 500us", "queue_occupancy >= 0", "reason == 1"] {
            assert!(!met(text), "{text}");
        }
        let shown = "hop_latency>=500us".parse::<Condition>().unwrap().to_string();
        assert_eq!(shown, "hop_latency >= 500000");
        for text in ["", "hop_latency", "hop_latency = 5", "flow > 5", "node[3] > 5", "hop_latency > 5 weeks"]
        {
            assert!(text.parse::<Condition>().is_err(), "{text}");
        }
    }
}
