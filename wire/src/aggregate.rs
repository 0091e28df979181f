//! Postcard aggregates: datagrams to UDP port [`PORT`] in which an aggregator combines many INT-XD postcards, or summaries
//! of them (`docs/reference/wire-formats.md`, section 4; Alhamed et al., "P4 Postcard Telemetry Collector in Packet-Optical
//! Networks").
//!
//! ```text
//! │ header, 24 bytes │ record │ record │ …
//! record: postcard (20 bytes), postcard with packet fields (32), or summary (24)
//! ```
//!
//! An aggregate begins like a Telemetry Report 1.0 (version nibble 1), so only the destination port identifies it.
//! [`Aggregate::parse`] checks the whole datagram before it returns anything.

use core::fmt;

use crate::bytes::{flag, put_u16, put_u24, put_u32, put_u64, try_u32, u16_at, u24_at, u32_at};
use crate::refusal::Refusal;

/// Default UDP port of aggregates.
pub const PORT: u16 = 32767;
/// Length of an aggregate's header, bytes.
pub const HEADER_LEN: usize = 24;
/// Length of a [`Postcard`], bytes.
pub const POSTCARD_LEN: usize = 20;
/// Length of a [`Postcard`] with its [`PacketFields`], bytes.
pub const LONG_POSTCARD_LEN: usize = 32;
/// Length of a [`Summary`], bytes.
pub const SUMMARY_LEN: usize = 24;

const VERSION: u8 = 1;
const TIMER: u8 = 0x80;
const PACKET_FIELDS: u8 = 0x40;

mod field {
    // Offsets in the header.
    pub(super) const VERSION_KIND: usize = 0;
    pub(super) const TIMER: usize = 1;
    pub(super) const COUNT: usize = 2;
    pub(super) const RECORD_LEN: usize = 4;
    pub(super) const RESERVED: usize = 6;
    pub(super) const AGGREGATOR: usize = 8;
    pub(super) const SEQUENCE: usize = 12;
    pub(super) const NODE_SCOPE: usize = 16;
    pub(super) const FLOW_SCOPE: usize = 20;
    // Offsets in a postcard.
    pub(super) const NODE: usize = 0;
    pub(super) const FLOW_ID: usize = 4;
    pub(super) const INGRESS_TS: usize = 8;
    pub(super) const EGRESS_TS: usize = 12;
    pub(super) const QUEUE: usize = 16;
    // Offsets in a postcard's packet fields.
    pub(super) const INGRESS_IF: usize = 20;
    pub(super) const EGRESS_IF: usize = 22;
    pub(super) const HOP_LIMIT: usize = 24;
    pub(super) const MARKS: usize = 25;
    pub(super) const DIGEST: usize = 28;
    // Offsets in a summary.
    pub(super) const METRIC: usize = 0;
    pub(super) const MIN: usize = 4;
    pub(super) const MAX: usize = 8;
    pub(super) const SUM: usize = 12;
    pub(super) const SAMPLES: usize = 20;
}

crate::named! {
    /// The kind of an aggregate: which postcards it combines, and whether it contains them or a summary. The discriminants
    /// are the numbers on the wire.
    #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
    #[repr(u8)]
    pub enum Kind, name {
        /// Agg(R): postcards in order of arrival.
        Agg = 1 => "agg",
        /// Agg_N(R): postcards of one node.
        AggNode = 2 => "agg_n",
        /// Agg_{N,F}(R): postcards of one node about one flow.
        AggNodeFlow = 3 => "agg_nf",
        /// Cor(R): summary of postcards in order of arrival.
        Cor = 5 => "cor",
        /// Cor_N(R): summary of postcards of one node.
        CorNode = 6 => "cor_n",
        /// Cor_{N,F}(R): summary of postcards of one node about one flow.
        CorNodeFlow = 7 => "cor_nf",
    }
}

impl Kind {
    /// Returns the kind with this number, or `None` for 0, 4 and numbers above 7.
    #[inline]
    pub const fn from_number(number: u8) -> Option<Self> {
        match number {
            1 => Some(Self::Agg),
            2 => Some(Self::AggNode),
            3 => Some(Self::AggNodeFlow),
            5 => Some(Self::Cor),
            6 => Some(Self::CorNode),
            7 => Some(Self::CorNodeFlow),
            _ => None,
        }
    }

    /// Returns whether aggregates of this kind contain summaries.
    #[inline]
    pub const fn is_correlated(self) -> bool {
        self as u8 & 4 != 0
    }

    /// Returns whether an aggregate of this kind covers a single node.
    #[inline]
    pub const fn node_scope(self) -> bool {
        self as u8 & 2 != 0
    }

    /// Returns whether an aggregate of this kind covers a single flow at its node.
    #[inline]
    pub const fn flow_scope(self) -> bool {
        self as u8 & 3 == 3
    }

    /// Returns the length of a record as written, bytes, which is also the minimum length accepted.
    #[inline]
    pub const fn record_len(self) -> usize {
        if self.is_correlated() {
            SUMMARY_LEN
        } else {
            POSTCARD_LEN
        }
    }

    /// Returns the maximum number of postcards (R) in an aggregate of this kind: for Agg kinds, 72 at a path MTU of 1500
    /// over IPv4. A summary's size does not depend on R, so Cor kinds allow the largest possible number.
    pub const fn max_postcards(self, pmtu: u16, over_ipv6: bool) -> usize {
        if self.is_correlated() {
            return u32::MAX as usize;
        }
        Self::max_postcards_of(POSTCARD_LEN, pmtu, over_ipv6)
    }

    /// Returns the maximum number of `len`-byte postcards in one datagram.
    pub const fn max_postcards_of(len: usize, pmtu: u16, over_ipv6: bool) -> usize {
        let headers = HEADER_LEN + 8 + if over_ipv6 { 40 } else { 20 };
        (pmtu as usize).saturating_sub(headers) / len
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// An aggregate's header fields.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Header {
    /// Kind of the postcards or summaries that the datagram contains.
    pub kind: Kind,
    /// T bit: a timer sent the aggregate before R postcards had arrived.
    pub by_timer: bool,
    /// P bit: each postcard has [`PacketFields`].
    pub packet_fields: bool,
    /// Number of records that follow, at least 1.
    pub count: u16,
    /// Length of a record in bytes, at least that of the kind.
    pub record_len: u16,
    /// ID of the aggregator that sent the datagram.
    pub aggregator: u32,
    /// Sequence number per aggregator and destination.
    pub sequence: u32,
    /// Node of all postcards; `Some` exactly if the kind has a node scope.
    pub node_scope: Option<u32>,
    /// Flow ID of all postcards; `Some` exactly if the kind has a flow scope.
    pub flow_scope: Option<u32>,
}

impl Header {
    /// Parses a header and checks the payload's length against it.
    ///
    /// # Errors
    /// [`Refusal`] for every defect that can be found without reading a record.
    pub fn parse(payload: &[u8]) -> Result<Self, Refusal> {
        Self::read(payload, true)
    }

    /// Parses the header of an aggregate of which only the beginning arrived, such as the first fragment.
    ///
    /// # Errors
    /// As for [`Header::parse`], except that the payload may have any length.
    pub fn parse_beginning(payload: &[u8]) -> Result<Self, Refusal> {
        Self::read(payload, false)
    }

    fn read(payload: &[u8], is_whole: bool) -> Result<Self, Refusal> {
        let Some(header) = payload.first_chunk::<HEADER_LEN>() else {
            return Err(Refusal::Truncated);
        };
        let first = header[field::VERSION_KIND];
        if first >> 4 != VERSION {
            return Err(Refusal::UnknownVersion);
        }
        let kind = Kind::from_number(first & 0x0f).ok_or(Refusal::BadAggregateKind)?;
        let count = u16_at(header, field::COUNT);
        let record_len = u16_at(header, field::RECORD_LEN);
        if count == 0 {
            return Err(Refusal::EmptyAggregate);
        }
        let records = usize::from(count) * usize::from(record_len);
        let packet_fields = header[field::TIMER] & PACKET_FIELDS != 0 && !kind.is_correlated();
        let least = if packet_fields {
            LONG_POSTCARD_LEN
        } else {
            kind.record_len()
        };
        if usize::from(record_len) < least || (is_whole && HEADER_LEN + records != payload.len()) {
            return Err(Refusal::BadRecordLength);
        }
        Ok(Self {
            kind,
            by_timer: header[field::TIMER] & TIMER != 0,
            packet_fields,
            count,
            record_len,
            aggregator: u32_at(header, field::AGGREGATOR),
            sequence: u32_at(header, field::SEQUENCE),
            node_scope: scope(u32_at(header, field::NODE_SCOPE), kind.node_scope())?,
            flow_scope: scope(u32_at(header, field::FLOW_SCOPE), kind.flow_scope())?,
        })
    }

    /// Writes the header, [`HEADER_LEN`] bytes.
    ///
    /// # Panics
    /// If `out` is shorter than [`HEADER_LEN`].
    #[inline]
    pub fn emit(&self, out: &mut [u8]) {
        let out = &mut out[..HEADER_LEN];
        out[field::VERSION_KIND] = VERSION << 4 | self.kind as u8;
        let marks = [(self.by_timer, TIMER), (self.packet_fields, PACKET_FIELDS)];
        out[field::TIMER] = marks
            .iter()
            .filter(|(on, _)| *on)
            .fold(0, |all, (_, mark)| all | mark);
        put_u16(out, field::COUNT, self.count);
        put_u16(out, field::RECORD_LEN, self.record_len);
        put_u16(out, field::RESERVED, 0);
        put_u32(out, field::AGGREGATOR, self.aggregator);
        put_u32(out, field::SEQUENCE, self.sequence);
        put_u32(out, field::NODE_SCOPE, self.node_scope.unwrap_or(u32::MAX));
        put_u32(out, field::FLOW_SCOPE, self.flow_scope.unwrap_or(u32::MAX));
    }
}

/// Decodes a scope, which must be present if `wanted`, and absent otherwise.
fn scope(word: u32, wanted: bool) -> Result<Option<u32>, Refusal> {
    match (word, wanted) {
        (u32::MAX, false) => Ok(None),
        (word, true) if word != u32::MAX => Ok(Some(word)),
        _ => Err(Refusal::BadScope),
    }
}

/// A postcard in an aggregate. All-ones fields are missing values, for which the methods return `None`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Postcard {
    /// ID of the node that sent it.
    pub node: u32,
    /// Flow ID of its packet.
    pub flow_id: u32,
    /// Low 32 bits of the packet's ingress timestamp, ns.
    pub ingress_ts: u32,
    /// Low 32 bits of the packet's egress timestamp, ns.
    pub egress_ts: u32,
    /// Queue through which the packet left.
    pub queue_id: u8,
    /// Occupancy of that queue, 24 bits, device units.
    pub queue_length: u32,
}

impl Postcard {
    /// A postcard without any values.
    pub const EMPTY: Self = Self {
        node: u32::MAX,
        flow_id: u32::MAX,
        ingress_ts: u32::MAX,
        egress_ts: u32::MAX,
        queue_id: u8::MAX,
        queue_length: 0x00ff_ffff,
    };

    /// Parses a record.
    ///
    /// # Panics
    /// If `record` is shorter than [`POSTCARD_LEN`].
    #[inline]
    pub fn read(record: &[u8]) -> Self {
        let record = &record[..POSTCARD_LEN];
        Self {
            node: u32_at(record, field::NODE),
            flow_id: u32_at(record, field::FLOW_ID),
            ingress_ts: u32_at(record, field::INGRESS_TS),
            egress_ts: u32_at(record, field::EGRESS_TS),
            queue_id: record[field::QUEUE],
            queue_length: u24_at(record, field::QUEUE + 1),
        }
    }

    /// Writes a record of [`POSTCARD_LEN`] bytes. A queue occupancy is truncated to 24 bits.
    ///
    /// # Panics
    /// If `out` is shorter than [`POSTCARD_LEN`].
    #[inline]
    pub fn emit(&self, out: &mut [u8]) {
        let out = &mut out[..POSTCARD_LEN];
        put_u32(out, field::NODE, self.node);
        put_u32(out, field::FLOW_ID, self.flow_id);
        put_u32(out, field::INGRESS_TS, self.ingress_ts);
        put_u32(out, field::EGRESS_TS, self.egress_ts);
        out[field::QUEUE] = self.queue_id;
        put_u24(out, field::QUEUE + 1, self.queue_length);
    }

    /// Returns the node ID, if present.
    #[inline]
    pub fn node(&self) -> Option<u32> {
        present(self.node)
    }

    /// Returns the flow ID, if present.
    #[inline]
    pub fn flow_id(&self) -> Option<u32> {
        present(self.flow_id)
    }

    /// Returns the ingress timestamp, if present.
    #[inline]
    pub fn ingress_ts(&self) -> Option<u32> {
        present(self.ingress_ts)
    }

    /// Returns the egress timestamp, if present.
    #[inline]
    pub fn egress_ts(&self) -> Option<u32> {
        present(self.egress_ts)
    }

    /// Returns egress minus ingress timestamp modulo 2^32, ns, if both are present.
    #[inline]
    pub fn hop_latency(&self) -> Option<u32> {
        Some(self.egress_ts()?.wrapping_sub(self.ingress_ts()?))
    }

    /// Returns the queue ID and occupancy, if present. As elsewhere in INT, the pair is missing if its whole word is
    /// all-ones.
    #[inline]
    pub fn queue(&self) -> Option<(u8, u32)> {
        let missing = self.queue_id == u8::MAX && self.queue_length == 0x00ff_ffff;
        (!missing).then_some((self.queue_id, self.queue_length))
    }
}

/// The packet's own fields in a postcard: its interfaces at the node, hop limit and digest, for path verification. A P4
/// aggregator without space for them leaves them out.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct PacketFields {
    /// Ingress interface of the packet, if known.
    pub ingress_if: Option<u16>,
    /// Egress interface of the packet, if known.
    pub egress_if: Option<u16>,
    /// Hop limit (IPv6) or TTL (IPv4) of the packet, if known.
    pub hop_limit: Option<u8>,
    /// The packet entered the domain at this node.
    pub entered: bool,
    /// The packet left the domain at this node.
    pub left: bool,
    /// Digest of the packet, or 0 for none. See [`crate::report::PacketDigest`].
    pub digest: u32,
}

impl PacketFields {
    const HAS_HOP_LIMIT: u8 = 0x80;
    const ENTERED: u8 = 0x40;
    const LEFT: u8 = 0x20;

    /// Parses the fields of a record.
    ///
    /// # Panics
    /// If `record` is shorter than [`LONG_POSTCARD_LEN`].
    #[inline]
    pub fn read(record: &[u8]) -> Self {
        let record = &record[..LONG_POSTCARD_LEN];
        let marks = record[field::MARKS];
        Self {
            ingress_if: Some(u16_at(record, field::INGRESS_IF)).filter(|id| *id != u16::MAX),
            egress_if: Some(u16_at(record, field::EGRESS_IF)).filter(|id| *id != u16::MAX),
            hop_limit: (marks & Self::HAS_HOP_LIMIT != 0).then_some(record[field::HOP_LIMIT]),
            entered: marks & Self::ENTERED != 0,
            left: marks & Self::LEFT != 0,
            digest: u32_at(record, field::DIGEST),
        }
    }

    /// Writes the fields into a record of [`LONG_POSTCARD_LEN`] bytes.
    ///
    /// # Panics
    /// If `out` is shorter than [`LONG_POSTCARD_LEN`].
    #[inline]
    pub fn emit(&self, out: &mut [u8]) {
        let out = &mut out[..LONG_POSTCARD_LEN];
        put_u16(out, field::INGRESS_IF, self.ingress_if.unwrap_or(u16::MAX));
        put_u16(out, field::EGRESS_IF, self.egress_if.unwrap_or(u16::MAX));
        out[field::HOP_LIMIT] = self.hop_limit.unwrap_or(0);
        out[field::MARKS] = flag(self.hop_limit.is_some(), Self::HAS_HOP_LIMIT)
            | flag(self.entered, Self::ENTERED)
            | flag(self.left, Self::LEFT);
        out[field::MARKS + 1..field::DIGEST].fill(0);
        put_u32(out, field::DIGEST, self.digest);
    }
}

#[inline]
fn present(word: u32) -> Option<u32> {
    (word != u32::MAX).then_some(word)
}

/// The metric of a summary.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum SummaryMetric {
    /// Code 1: egress minus ingress timestamp, ns.
    HopLatency,
    /// Code 2: queue occupancy, device units.
    QueueLength,
    /// An unknown code. Its values must be consistent too.
    Other(u8),
}

impl SummaryMetric {
    /// Returns the metric's code on the wire.
    #[inline]
    pub const fn number(self) -> u8 {
        match self {
            Self::HopLatency => 1,
            Self::QueueLength => 2,
            Self::Other(number) => number,
        }
    }

    /// Returns the metric with this code.
    #[inline]
    pub const fn from_number(number: u8) -> Self {
        match number {
            1 => Self::HopLatency,
            2 => Self::QueueLength,
            other => Self::Other(other),
        }
    }
}

/// Minimum, maximum, sum and count of one metric's values. Missing values are not counted.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Summary {
    /// The metric that is summarised.
    pub metric: SummaryMetric,
    /// Minimum of the values.
    pub min: u32,
    /// Maximum of the values.
    pub max: u32,
    /// Sum of the values.
    pub sum: u64,
    /// Number of values, at least 1.
    pub count: u32,
}

impl Summary {
    /// Parses a record.
    ///
    /// # Panics
    /// If `record` is shorter than [`SUMMARY_LEN`].
    #[inline]
    pub fn read(record: &[u8]) -> Self {
        let record = &record[..SUMMARY_LEN];
        Self {
            metric: SummaryMetric::from_number(record[field::METRIC]),
            min: u32_at(record, field::MIN),
            max: u32_at(record, field::MAX),
            sum: u64::from(u32_at(record, field::SUM)) << 32 | u64::from(u32_at(record, field::SUM + 4)),
            count: u32_at(record, field::SAMPLES),
        }
    }

    /// Writes a record of [`SUMMARY_LEN`] bytes.
    ///
    /// # Panics
    /// If `out` is shorter than [`SUMMARY_LEN`].
    #[inline]
    pub fn emit(&self, out: &mut [u8]) {
        let out = &mut out[..SUMMARY_LEN];
        put_u32(out, field::METRIC, u32::from(self.metric.number()) << 24);
        put_u32(out, field::MIN, self.min);
        put_u32(out, field::MAX, self.max);
        put_u64(out, field::SUM, self.sum);
        put_u32(out, field::SAMPLES, self.count);
    }

    /// Returns the mean, rounded down, or 0 without values. The receiver divides because P4 targets cannot.
    #[inline]
    pub fn average(&self) -> u32 {
        self.sum
            .checked_div(u64::from(self.count))
            .unwrap_or(0)
            .min(u64::from(u32::MAX)) as u32
    }

    /// Returns whether some set of values has this count, minimum, maximum and sum.
    #[inline]
    fn is_consistent(&self) -> bool {
        let count = u64::from(self.count);
        let sums = u64::from(self.min) * count..=u64::from(self.max) * count;
        self.count > 0 && self.min <= self.max && sums.contains(&self.sum)
    }
}

/// A validated aggregate: the number of records matches the header, and no record contradicts the header or itself.
///
/// ```
/// use wire::Aggregate;
///
/// let frame = testkit::vectors::bytes("pc_agg");
/// let aggregate = Aggregate::parse(wire::datagram(&frame)?.payload)?;
/// assert_eq!((aggregate.header().aggregator, aggregate.header().count), (99, 3));
///
/// let first = aggregate.postcards().next().expect("an aggregate is never empty");
/// assert_eq!((first.node(), first.flow_id(), first.hop_latency()), (Some(21), Some(0xf10a), Some(1500)));
/// # Ok::<(), wire::Refusal>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Aggregate<'a> {
    header: Header,
    records: &'a [u8],
}

impl<'a> Aggregate<'a> {
    /// Parses and validates a UDP payload.
    ///
    /// # Errors
    /// [`Truncated`](Refusal::Truncated) inside the header; [`UnknownVersion`](Refusal::UnknownVersion);
    /// [`BadAggregateKind`](Refusal::BadAggregateKind); [`EmptyAggregate`](Refusal::EmptyAggregate);
    /// [`BadRecordLength`](Refusal::BadRecordLength) if record length or count contradict the kind or the payload;
    /// [`BadScope`](Refusal::BadScope) if a scope is missing, does not belong to the kind, or differs from a record;
    /// [`BadSummary`](Refusal::BadSummary) for a count, minimum, maximum and sum that no values can have.
    pub fn parse(payload: &'a [u8]) -> Result<Self, Refusal> {
        let header = Header::parse(payload)?;
        let aggregate = Self {
            header,
            records: &payload[HEADER_LEN..],
        };
        if header.kind.is_correlated() {
            if !aggregate
                .records()
                .all(|record| Summary::read(record).is_consistent())
            {
                return Err(Refusal::BadSummary);
            }
        } else if !aggregate.records().all(|record| header.covers(record)) {
            return Err(Refusal::BadScope);
        }
        Ok(aggregate)
    }

    /// Returns the datagram's aggregate header.
    #[inline]
    pub fn header(&self) -> &Header {
        &self.header
    }

    #[inline]
    fn records(&self) -> impl ExactSizeIterator<Item = &'a [u8]> + use<'a> {
        self.records.chunks_exact(usize::from(self.header.record_len))
    }

    /// Iterates over the postcards in order of arrival; empty if the kind has summaries.
    #[inline]
    pub fn postcards(&self) -> impl Iterator<Item = Postcard> + use<'a> {
        let skip = if self.header.kind.is_correlated() {
            usize::MAX
        } else {
            0
        };
        self.records().skip(skip).map(Postcard::read)
    }

    /// Iterates over the postcards like [`postcards`](Self::postcards), with their packet fields if the aggregate contains
    /// them.
    #[inline]
    pub fn postcards_with_packets(&self) -> impl Iterator<Item = (Postcard, Option<PacketFields>)> + use<'a> {
        let skip = if self.header.kind.is_correlated() {
            usize::MAX
        } else {
            0
        };
        let has_fields = self.header.packet_fields;
        self.records().skip(skip).map(move |record| {
            (
                Postcard::read(record),
                has_fields.then(|| PacketFields::read(record)),
            )
        })
    }

    /// Iterates over the summaries; empty if the kind has postcards.
    #[inline]
    pub fn summaries(&self) -> impl Iterator<Item = Summary> + use<'a> {
        let skip = if self.header.kind.is_correlated() {
            0
        } else {
            usize::MAX
        };
        self.records().skip(skip).map(Summary::read)
    }
}

impl Header {
    /// Returns whether a postcard has this aggregate's node and flow.
    #[inline]
    fn covers(&self, record: &[u8]) -> bool {
        let scopes = [(self.node_scope, field::NODE), (self.flow_scope, field::FLOW_ID)];
        scopes
            .into_iter()
            .all(|(scope, at)| scope.is_none_or(|scope| try_u32(record, at) == Some(scope)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_is_found_by_its_number_and_its_name() {
        for kind in Kind::ALL {
            assert_eq!(Kind::from_number(kind as u8), Some(kind));
            assert_eq!(Kind::from_name(kind.name()), Some(kind));
        }
        let none = (0..=255)
            .filter(|number| Kind::from_number(*number).is_none())
            .count();
        assert_eq!((none, Kind::from_name("max")), (250, None));
    }

    #[test]
    fn kinds_say_what_they_hold() {
        let facts = Kind::ALL.map(|k| (k.is_correlated(), k.node_scope(), k.flow_scope(), k.record_len()));
        assert_eq!(
            facts,
            [
                (false, false, false, 20),
                (false, true, false, 20),
                (false, true, true, 20),
                (true, false, false, 24),
                (true, true, false, 24),
                (true, true, true, 24),
            ]
        );
    }

    #[test]
    fn r_is_limited_by_the_path() {
        assert_eq!(Kind::Agg.max_postcards(1500, false), 72, "section 4.3");
        assert_eq!(
            (
                Kind::Agg.max_postcards(1500, true),
                Kind::AggNode.max_postcards(51, false)
            ),
            (71, 0)
        );
        assert!(Kind::Cor.max_postcards(100, false) > 1_000_000);
    }

    #[test]
    fn missing_values_are_none() {
        assert_eq!(
            (
                Postcard::EMPTY.node(),
                Postcard::EMPTY.flow_id(),
                Postcard::EMPTY.hop_latency(),
                Postcard::EMPTY.queue()
            ),
            (None, None, None, None)
        );
        let postcard = Postcard {
            ingress_ts: 0xffff_ff00,
            egress_ts: 0x100,
            queue_id: 255,
            queue_length: 1,
            ..Postcard::EMPTY
        };
        assert_eq!(
            (postcard.hop_latency(), postcard.queue()),
            (Some(0x200), Some((255, 1))),
            "stamps wrap"
        );
    }

    #[test]
    fn packet_fields_are_read_as_they_were_written() {
        let all = PacketFields {
            ingress_if: Some(0x0102),
            egress_if: Some(0x0304),
            hop_limit: Some(255),
            entered: true,
            left: false,
            digest: 0x0506_0708,
        };
        let left = PacketFields {
            hop_limit: Some(0),
            left: true,
            ..PacketFields::default()
        };
        let postcard = Postcard {
            node: 21,
            flow_id: 7,
            ..Postcard::EMPTY
        };
        let header = Header {
            kind: Kind::Agg,
            by_timer: true,
            packet_fields: true,
            count: 3,
            record_len: LONG_POSTCARD_LEN as u16,
            aggregator: 99,
            sequence: 5,
            node_scope: None,
            flow_scope: None,
        };
        let fields = [all, left, PacketFields::default()];
        let mut bytes = [0xa5; HEADER_LEN + 3 * LONG_POSTCARD_LEN];
        header.emit(&mut bytes);
        for (record, fields) in bytes[HEADER_LEN..]
            .chunks_exact_mut(LONG_POSTCARD_LEN)
            .zip(fields)
        {
            postcard.emit(record);
            fields.emit(record);
        }
        assert_eq!(
            (bytes[1], &bytes[44..56]),
            (0xc0, &[1, 2, 3, 4, 255, 0xc0, 0, 0, 5, 6, 7, 8][..])
        );
        let aggregate = Aggregate::parse(&bytes).unwrap();
        assert_eq!(*aggregate.header(), header);
        assert!(
            aggregate
                .postcards_with_packets()
                .eq(fields.map(|fields| (postcard, Some(fields))))
        );
        assert!(
            aggregate.postcards().eq([postcard; 3]),
            "who does not want them skips them"
        );
        // Without the P flag, the bytes after a postcard have no defined meaning.
        bytes[1] = 0x80;
        let aggregate = Aggregate::parse(&bytes).unwrap();
        assert!(aggregate.postcards_with_packets().eq([(postcard, None); 3]));
        for len in 0..bytes.len() {
            assert!(Aggregate::parse(&bytes[..len]).is_err(), "{len}");
        }
        // With the P flag, a record must be long enough.
        let mut short = [0; HEADER_LEN + 28];
        Header {
            count: 1,
            record_len: 28,
            ..header
        }
        .emit(&mut short);
        assert_eq!(Aggregate::parse(&short), Err(Refusal::BadRecordLength));
    }

    #[test]
    fn an_average_is_rounded_down() {
        let of = |sum, count| {
            Summary {
                metric: SummaryMetric::Other(9),
                min: 0,
                max: u32::MAX,
                sum,
                count,
            }
            .average()
        };
        assert_eq!(
            (of(52, 3), of(0, 1), of(5, 0), of(u64::MAX, 1)),
            (17, 0, 0, u32::MAX)
        );
    }
}
