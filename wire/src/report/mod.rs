//! Telemetry Reports 0.5, 1.0 and 2.0: a UDP payload in, reports out (`docs/reference/wire-formats.md`, section 2).
//!
//! [`Decoder::reports`] iterates over a datagram's reports; a [`Report`] borrows its bytes and decodes hops on demand.
//! [`peek`] parses only what sequence accounting and fan-out need. [`v05`], [`v10`] and [`v20`] write reports. Comments
//! mention *rulings*: decisions where the specifications leave a choice, listed in section 9 of that page.

mod brief;
mod brief_any;
mod decoder;
mod digest;
mod fast_path;
mod p4int;
mod recognise;
mod single;
pub mod v05;
pub mod v10;
pub mod v20;

pub use decoder::{Decoder, PeekedReport, Reports, peek, peek_group, peek_header};
pub use digest::{PacketDigest, Places};

use crate::flow::FlowKey;
use crate::hop::{Hop, Items};
use crate::int::layout::Layouts;
use crate::int::{Int, Layout, Mode, Sf, Stack};
use crate::ioam::{self, Ioam};
use crate::packet::{IPV4, IPV6, Purpose, Walk};
use crate::profile::Profile;
use crate::refusal::Refusal;

crate::named! {
    /// The version of a report.
    #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
    pub enum Version, name {
        /// Telemetry Report version 0.5.
        V05 => "0.5",
        /// Telemetry Report version 1.0.
        V10 => "1.0",
        /// Telemetry Report version 2.0.
        V20 => "2.0",
    }
}

/// The fields of a datagram that sequence accounting and fan-out need.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Peek {
    /// Version of the report format.
    pub version: Version,
    /// Node ID of the reporter, if the report has one.
    pub node_id: Option<u32>,
    /// Hardware subsystem of the reporter.
    pub hw_id: u8,
    /// Sequence number: 22 bits in 2.0, 32 bits before.
    pub seq: u32,
    /// Flow of the first report, as the full decoder would return it. If INT is refused and left out, the ports are those
    /// in its shim.
    pub flow: Option<FlowKey>,
}

/// The result of peeking at one version.
pub(crate) struct Peeked<'a> {
    pub(crate) peek: Peek,
    pub(crate) packet: InnerPacket<'a>,
    /// The datagram is a report even if its packet has no recognizable flow.
    pub(crate) is_certain: bool,
    /// A flow proves that it is a report even without an EtherType before the packet (a Report 2.0 without reserved bits).
    /// Before 2.0, more is parsed to decide.
    pub(crate) is_announced: bool,
}

/// The events that caused a report: the flags D, Q, F and I.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Flags(pub u8);

impl Flags {
    /// D: a watched packet was dropped.
    pub const DROP: Self = Self(1);
    /// Q: a watched queue is congested.
    pub const QUEUE: Self = Self(2);
    /// F: the flow is tracked.
    pub const FLOW: Self = Self(4);
    /// I: the report comes from an intermediate (transit) node (2.0).
    pub const INTERMEDIATE: Self = Self(8);

    /// All flags with their names, in output order.
    pub const NAMES: [(Self, &'static str); 4] = [
        (Self::DROP, "drop"),
        (Self::QUEUE, "queue"),
        (Self::FLOW, "flow"),
        (Self::INTERMEDIATE, "intermediate"),
    ];

    /// Returns whether all bits of `other` are set.
    #[inline]
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Returns 1 if all flags of `other` are set, and otherwise 0.
    const fn bit(self, other: Self) -> u32 {
        self.contains(other) as u32
    }

    /// Returns `self` with `other` added if `on`.
    #[inline]
    #[must_use]
    pub const fn with(self, other: Self, on: bool) -> Self {
        if on { Self(self.0 | other.0) } else { self }
    }
}

/// Anomalies of a report that is accepted nevertheless.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Annotations(pub u8);

impl Annotations {
    /// A TLV exceeded the end of the report, and was left out with everything after it (ruling i).
    pub const PARTIAL: Self = Self(1);
    /// There is a drop reason without the drop flag (ruling e).
    pub const UNFLAGGED_DROP_REASON: Self = Self(2);
    /// The reporter is also the top record of the stack, so both are one hop (ruling c).
    pub const MERGED: Self = Self(4);
    /// INT for the destination was skipped.
    pub const DESTINATION: Self = Self(8);
    /// IOAM's overflow flag is set: data of nodes on the path is missing.
    pub const INCOMPLETE: Self = Self(16);

    /// There are several IOAM traces with nodes in headers of one kind, so a host may have written the one that gives the
    /// path.
    pub const SEVERAL_TRACES: Self = Self(32);
    /// The packet is a replica ([`Int::is_replica`](crate::Int::is_replica)), so its hops are not the path of the flow.
    pub const REPLICA: Self = Self(64);

    /// All annotations with their names, in output order.
    pub const NAMES: [(Self, &'static str); 7] = [
        (Self::PARTIAL, "partial"),
        (Self::UNFLAGGED_DROP_REASON, "unflagged_drop_reason"),
        (Self::MERGED, "merged"),
        (Self::DESTINATION, "destination"),
        (Self::INCOMPLETE, "incomplete"),
        (Self::SEVERAL_TRACES, "several_traces"),
        (Self::REPLICA, "replica"),
    ];

    /// Returns whether all bits of `other` are set.
    #[inline]
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Returns `self` with `other` added if `on`.
    #[inline]
    #[must_use]
    pub const fn with(self, other: Self, on: bool) -> Self {
        if on { Self(self.0 | other.0) } else { self }
    }
}

/// The reporter's own metadata, from the report's header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReporterMetadata<'a> {
    /// Record with the items.
    pub record: &'a [u8],
    /// Positions of the items in the record.
    pub layout: Layout,
    /// Report 0.5: the hop latency is the egress timestamp minus the header's ingress timestamp.
    latency_from_stamps: bool,
    /// Report 0.5: the packet was dropped before its egress interface and queue were chosen.
    lacks_egress: bool,
}

impl<'a> ReporterMetadata<'a> {
    #[inline]
    pub(crate) fn new(record: &'a [u8], layout: Layout) -> Self {
        Self {
            record,
            layout,
            latency_from_stamps: false,
            lacks_egress: false,
        }
    }
}

/// A gap in a host-int sequence (Report 0.5, kind 3).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Gap {
    /// Node that sent the packets.
    pub source: u32,
    /// Time at which the gap was detected, device units.
    pub ts: u32,
    /// First missing sequence number.
    pub seq: u32,
    /// Number of missing packets.
    pub count: u32,
}

/// A telemetry report. Borrows the datagram; hops are decoded on demand.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Report<'a> {
    /// Version of the report format.
    pub version: Version,
    /// Node ID of the reporter; unknown in some Report 0.5.
    pub node_id: Option<u32>,
    /// Hardware subsystem of the reporter.
    pub hw_id: u8,
    /// Sequence number: of the datagram in 2.0 (22 bits), of the report before (32 bits).
    pub seq: u32,
    /// Index of the report in its datagram, from 0.
    pub index: u16,
    /// The events that caused the report.
    pub flags: Flags,
    /// Anomalies of the report.
    pub annotations: Annotations,
    /// RepType of the report (2.0).
    pub report_type: Option<u8>,
    /// Ingress timestamp of the header (0.5 and 1.0), 32 bits, device units.
    pub ts: Option<u32>,
    /// Drop reason of the packet, as a device code.
    pub drop_reason: Option<u8>,
    /// Flow ID of a postcard.
    pub flow_id: Option<u32>,
    /// Domain Specific ID (2.0).
    pub ds_id: u16,
    /// DSMdstatus of the report (2.0).
    pub ds_status: u16,
    /// The reporter's own metadata, if it has any items.
    pub metadata: Option<ReporterMetadata<'a>>,
    /// Innermost 5-tuple of the reported packet, as far as it is not cut off.
    pub flow: Option<FlowKey>,
    /// Outer 5-tuple, if the packet is tunneled.
    pub tunnel: Option<FlowKey>,
    /// Cause for which the contents of a tunnel could not be parsed. The flow is then that of the innermost IP packet that was,
    /// if there is one.
    pub tunnel_refused: Option<Refusal>,
    /// TTL or hop limit of the packet's outermost IP header.
    pub hop_limit: Option<u8>,
    /// INT of the reported packet.
    pub int: Option<Int<'a>>,
    /// Cause for which bytes marked as INT were left out of a report that is accepted without them, or [`Refusal::BadIoam`] or
    /// [`Refusal::IntTruncated`] if an IOAM option was left out.
    pub int_refused: Option<Refusal>,
    /// IOAM option of the reported packet; of several, the one that gives the path.
    pub ioam: Option<Ioam<'a>>,
    /// All IOAM options of the reported packet, if there are several.
    pub ioam_options: Option<ioam::OptionList<'a>>,
    /// Missing packets that host-int reports.
    pub gap: Option<Gap>,
    /// Domain-specific words of the main metadata (2.0).
    pub domain_words: &'a [u8],
    /// Inner contents, not decoded.
    pub inner: &'a [u8],
    /// The reported packet, with the places of its headers.
    pub places: Places<'a>,
}

impl<'a> Report<'a> {
    /// An empty report, for [`Reports::read`].
    pub const EMPTY: Self = Self {
        version: Version::V05,
        node_id: None,
        hw_id: 0,
        seq: 0,
        index: 0,
        flags: Flags(0),
        annotations: Annotations(0),
        report_type: None,
        ts: None,
        drop_reason: None,
        flow_id: None,
        ds_id: 0,
        ds_status: 0,
        metadata: None,
        flow: None,
        tunnel: None,
        tunnel_refused: None,
        hop_limit: None,
        int: None,
        int_refused: None,
        ioam: None,
        ioam_options: None,
        gap: None,
        domain_words: &[],
        inner: &[],
        places: Places::NONE,
    };

    /// Resets to an empty report of `version`, field by field, so that only the tag of an absent value is written.
    #[inline(always)]
    pub(crate) fn clear(&mut self, version: Version) {
        self.version = version;
        self.node_id = None;
        self.hw_id = 0;
        self.seq = 0;
        self.index = 0;
        self.flags = Flags(0);
        self.annotations = Annotations(0);
        self.report_type = None;
        self.ts = None;
        self.drop_reason = None;
        self.flow_id = None;
        self.ds_id = 0;
        self.ds_status = 0;
        self.metadata = None;
        self.flow = None;
        self.tunnel = None;
        self.tunnel_refused = None;
        self.hop_limit = None;
        self.int = None;
        self.int_refused = None;
        self.ioam = None;
        self.ioam_options = None;
        self.gap = None;
        self.domain_words = &[];
        self.inner = &[];
        self.places = Places::NONE;
    }

    /// Returns whether the packet of this postcard entered the domain at the reporter, and whether it leaves the domain
    /// there; `false` if the reporter does not tell.
    #[inline]
    pub fn edges(&self) -> (bool, bool) {
        let of_postcard = self.ds_id == v20::POSTCARD_DOMAIN;
        let status = if of_postcard { self.ds_status } else { 0 };
        (
            status & v20::POSTCARD_ENTERED != 0,
            status & v20::POSTCARD_LEFT != 0,
        )
    }

    /// Returns whether the report declares itself a postcard. INT-MD, SF-INT or IOAM in its packet then does not belong to
    /// the reporting domain: a host may have written it.
    #[inline]
    pub fn is_postcard(&self) -> bool {
        // A record from a stack contains its node's ID.
        self.ds_id == v20::POSTCARD_DOMAIN
            && self
                .metadata
                .is_some_and(|metadata| !metadata.layout.carried().contains(Items::NODE_ID))
    }

    /// Returns whether the report is about a local event (a drop or a full queue) and not a tracked flow.
    #[inline]
    fn is_local(&self) -> bool {
        self.flags.0 & (Flags::DROP.0 | Flags::QUEUE.0) != 0 && !self.flags.contains(Flags::FLOW)
    }

    /// Returns whether an IOAM trace gives the path: it has nodes, and INT names none. Not with INT-MX, where the
    /// reporter's own metadata is a postcard and a host may have written the trace; nor in a local report, because no mark
    /// of the network announces IOAM.
    #[inline]
    pub fn is_traced(&self) -> bool {
        let Some(ioam) = self.ioam.filter(|_| !self.is_postcard() && !self.is_local()) else {
            return false;
        };
        match self.int {
            None => self.int_refused != Some(Refusal::IntBesideTrace),
            Some(int) if int.mode == Mode::Mx && self.metadata.is_some() => false,
            Some(int) => int.sf.is_none() && int.stack.is_empty() && ioam.hop_count() > 0,
        }
    }

    /// Returns whether INT in the packet names nodes that it passed.
    fn has_int_path(&self) -> bool {
        !self.is_postcard() && self.int.is_some_and(|int| !int.stack.is_empty())
    }

    /// Returns whether the reporter adds its own metadata.
    #[inline]
    pub fn has_metadata(&self) -> bool {
        self.metadata.is_some()
    }

    /// Returns whether the reporter's hop latency is the difference of two timestamps, in their unit (Report 0.5 with a
    /// switch-local header).
    #[inline]
    pub fn has_derived_latency(&self) -> bool {
        self.metadata.is_some_and(|metadata| metadata.latency_from_stamps)
    }

    /// Returns whether the report has a field for the reporter. If so, a missing `node_id` means unavailable.
    pub fn has_node_id(&self) -> bool {
        self.node_id.is_some() || self.metadata.is_some() || self.version != Version::V05
    }

    /// Returns whether the report has a field for a drop reason. If so, a missing `drop_reason` means unavailable.
    pub fn has_drop_reason(&self) -> bool {
        self.metadata.is_some_and(|metadata| metadata.layout.has_drop())
    }

    /// Returns the reporter's own metadata as a hop; without items if it has none.
    pub fn metadata_hop(&self) -> Hop {
        let Some(metadata) = &self.metadata else {
            return Hop::default();
        };
        let mut hop = metadata.layout.hop(metadata.record);
        if metadata.lacks_egress {
            (hop.egress_if, hop.queue_id, hop.drop_queue_id) = (None, None, None);
        }
        // A record taken from a stack contains its own node ID.
        if !hop.carried.contains(Items::NODE_ID) {
            hop.carried.insert(Items::NODE_ID);
            hop.node_id = self.node_id;
        }
        if let Some(ts) = self.ts {
            hop.carried.insert(Items::INGRESS_TS);
            let ts = Some(ts).filter(|ts| *ts != u32::MAX);
            hop.ingress_ts = ts.map(u64::from);
            if hop.wide_ts {
                hop.egress_ts = hop.egress_ts.map(low_half);
                hop.wide_ts = false;
            }
            if metadata.latency_from_stamps {
                hop.carried.insert(Items::HOP_LATENCY);
                let stamps = hop.egress_ts.zip(ts);
                hop.hop_latency = stamps.map(|(egress, ingress)| (egress as u32).wrapping_sub(ingress));
            }
        }
        hop
    }

    /// Returns whether the report is about neither a drop nor a queue and contains no node's measurement.
    fn is_empty(&self) -> bool {
        let is_marked =
            self.flags.contains(Flags::INTERMEDIATE) || self.annotations.contains(Annotations::DESTINATION);
        !is_marked && !self.stands_alone()
    }

    /// Returns whether the report is about a drop or a queue.
    fn is_of_loss_or_queue(&self) -> bool {
        self.flags.0 & (Flags::DROP.0 | Flags::QUEUE.0) != 0
    }

    /// Returns whether the report is useful although INT or IOAM of its packet was left out: the other one is there, the
    /// reporter tells a loss or congestion, or it adds a measurement.
    fn stands_alone(&self) -> bool {
        let is_carried = self.int.is_some() || self.ioam.is_some();
        let is_measured = self.metadata.is_some() || !self.domain_words.is_empty() || self.gap.is_some();
        is_carried || is_measured || self.is_of_loss_or_queue()
    }

    /// Returns whether the path is unknown because INT or IOAM of the packet was left out, and nothing that remains names
    /// the nodes.
    #[inline]
    pub fn is_path_left_out(&self) -> bool {
        let is_beside = self.int_refused == Some(Refusal::IntBesideTrace);
        let has_trace = !is_beside && self.ioam.is_some_and(|ioam| ioam.hop_count() > 0);
        self.int_refused.is_some() && self.int.is_none() && !has_trace
    }

    /// Returns whether the report has a single record of a set (SF-INT) whose others are in other reports. Its hops are
    /// then not a path.
    #[inline]
    pub fn is_single_record(&self) -> bool {
        !self.is_postcard() && self.int.is_some_and(|int| int.is_single_record())
    }

    /// Returns whether the reporter's own record is about another packet than the carried record (SF-INT), so it is not a
    /// hop.
    #[inline]
    fn has_unrelated_metadata(&self) -> bool {
        !self.is_postcard()
            && self
                .int
                .is_some_and(|int| int.sf.is_some_and(|sf| !sf.is_of_one_packet()))
    }

    /// Returns the number of nodes with a record about the same packet. In SF-INT, the reporter's own record and the
    /// carried ones count together only if they are about the same packet; otherwise a drop report counts the reporter's,
    /// and any other report the carried ones. [`Report::int`] and [`Report::metadata`] contain all records.
    #[inline]
    pub fn hop_count(&self) -> usize {
        let metadata = self.metadata.is_some()
            && !self.annotations.contains(Annotations::MERGED)
            && !self.has_unrelated_metadata();
        self.passed() + usize::from(metadata)
    }

    /// Returns the number of nodes with a record in the packet itself.
    #[inline]
    fn passed(&self) -> usize {
        match (&self.int, &self.ioam) {
            _ if self.is_postcard() => 0,
            (_, Some(ioam)) if self.is_traced() => ioam.hop_count(),
            (Some(int), _) => int.stack.len(),
            (None, _) => 0,
        }
    }

    /// Decodes hop `i` in forwarding order, from 0; without items beyond the last.
    pub fn hop(&self, i: usize) -> Hop {
        let passed = self.passed();
        if i == 0
            && self.flags.contains(Flags::DROP)
            && self.metadata.is_some()
            && self.has_unrelated_metadata()
        {
            // The report is about the drop rather than the record that the packet carried.
            return self.metadata_hop();
        }
        if i > passed
            || (i == passed
                && (self.annotations.contains(Annotations::MERGED) || self.has_unrelated_metadata()))
        {
            return Hop::default();
        }
        if i == passed {
            return self.metadata_hop();
        }
        let hop = match (&self.int, &self.ioam) {
            (_, Some(ioam)) if self.is_traced() => ioam.hop(i),
            (Some(int), _) => int.stack.hop(passed - 1 - i),
            (None, _) => Hop::default(),
        };
        if i + 1 == passed && self.annotations.contains(Annotations::MERGED) {
            merge(hop, &self.metadata_hop())
        } else {
            hop
        }
    }

    /// Iterates over the hops in forwarding order.
    pub fn hops(&self) -> impl Iterator<Item = Hop> + '_ {
        (0..self.hop_count()).map(|i| self.hop(i))
    }

    /// Sets the annotations that depend on the whole report.
    #[inline]
    pub(crate) fn finish(&mut self) {
        let odd = self.drop_reason.is_some() && !self.flags.contains(Flags::DROP);
        let is_replica = self.int.is_some_and(|int| int.is_replica());
        self.annotations = self
            .annotations
            .with(Annotations::UNFLAGGED_DROP_REASON, odd)
            .with(Annotations::REPLICA, is_replica);
        if self.is_postcard() {
            return;
        }
        if let (Some(_), Some(node), Some(int)) = (&self.metadata, self.node_id, &self.int)
            && !self.is_traced()
        {
            let stack = &int.stack;
            let top = !stack.is_empty()
                && stack.layout.node_id(stack.record(0)) == node
                && int.sf.is_none_or(Sf::is_of_one_packet);
            self.annotations = self.annotations.with(Annotations::MERGED, top);
        } else if self.ioam.is_some() {
            self.finish_ioam();
        }
    }

    /// Moves the first of two records of an SF-INT packet to the reporter's metadata. Refuses them if the header already
    /// has metadata. There are never three.
    pub(crate) fn split_metadata(&mut self) -> Result<(), Refusal> {
        let is_postcard = self.is_postcard();
        let Some(int) = self
            .int
            .as_mut()
            .filter(|int| int.is_single_record() && int.stack.len() > 1)
        else {
            return Ok(());
        };
        if is_postcard {
            return Ok(());
        }
        if self.metadata.is_some() {
            return Err(Refusal::BadSfStack);
        }
        let Stack { bytes, layout, .. } = int.stack;
        let (metadata, carried) = bytes.split_at_checked(layout.len()).ok_or(Refusal::BadSfStack)?;
        self.metadata = Some(ReporterMetadata::new(metadata, layout));
        int.stack = Stack {
            bytes: carried,
            layout,
            count: 1,
        };
        Ok(())
    }

    /// Compares the newest node of a trace with the reporter, like the top record of a stack.
    #[cold]
    fn finish_ioam(&mut self) {
        let newest = self
            .ioam
            .and_then(|trace| Some(trace.hop(trace.hop_count().checked_sub(1)?)));
        let top = self.metadata.is_some()
            && self.node_id.is_some()
            && newest.and_then(|hop| hop.node_id) == self.node_id;
        self.annotations = self
            .annotations
            .with(Annotations::MERGED, self.is_traced() && top);
    }
}

/// Returns a record's drop reason, or `None` if it is absent or unavailable.
#[inline]
fn drop_reason(layout: &Layout, record: &[u8]) -> Option<u8> {
    let word = layout.drop_word(record);
    (word != u32::MAX).then_some((word >> 16) as u8)
}

/// Returns the low 32 bits of a timestamp.
fn low_half(stamp: u64) -> u64 {
    stamp & u64::from(u32::MAX)
}

/// Merges the timestamps of two records of one hop; those of `header` take precedence. If one is then 32 bits and the other
/// 64 bits wide, both are reduced modulo 2^32, so that they can be compared.
fn merge_stamps(hop: &mut Hop, header: &Hop) {
    let widths = [Items::INGRESS_TS, Items::EGRESS_TS].map(|item| match header.carried.contains(item) {
        true => header.wide_ts,
        false => hop.wide_ts,
    });
    if header.carried.contains(Items::INGRESS_TS) {
        hop.ingress_ts = header.ingress_ts;
    }
    if header.carried.contains(Items::EGRESS_TS) {
        hop.egress_ts = header.egress_ts;
    }
    hop.wide_ts = match (hop.ingress_ts, hop.egress_ts) {
        (None, _) => widths[1],
        (Some(_), None) => widths[0],
        (Some(_), Some(_)) => widths[0] && widths[1],
    };
    if !hop.wide_ts {
        hop.ingress_ts = hop.ingress_ts.map(low_half);
        hop.egress_ts = hop.egress_ts.map(low_half);
    }
}

/// Merges two records of one hop: items of `header` take precedence.
fn merge(stack: Hop, header: &Hop) -> Hop {
    let mut hop = stack;
    let carried = header.carried;
    hop.carried.insert(carried);
    if carried.contains(Items::INTERFACES) {
        (hop.ingress_if, hop.egress_if) = (header.ingress_if, header.egress_if);
    }
    if carried.contains(Items::HOP_LATENCY) {
        hop.hop_latency = header.hop_latency;
        hop.latency_in_ns = header.latency_in_ns;
    }
    // An occupancy keeps its queue ID.
    if carried.contains(Items::QUEUE_ID) && (hop.queue_id.is_none() || hop.queue_occupancy.is_none()) {
        hop.queue_id = header.queue_id;
    }
    hop.drop_queue_id = header.drop_queue_id;
    if carried.contains(Items::QUEUE) {
        (hop.queue_id, hop.queue_occupancy) = (header.queue_id, header.queue_occupancy);
    }
    merge_stamps(&mut hop, header);
    if carried.contains(Items::L2_INTERFACES) {
        (hop.l2_ingress_if, hop.l2_egress_if) = (header.l2_ingress_if, header.l2_egress_if);
    }
    if carried.contains(Items::TX_UTILIZATION) {
        hop.tx_utilization = header.tx_utilization;
    }
    if carried.contains(Items::BUFFER) {
        (hop.buffer_id, hop.buffer_occupancy) = (header.buffer_id, header.buffer_occupancy);
    }
    hop
}

/// A common report in compact form, for fast paths: unlike a [`Report`], it fits into registers. It is a datagram with a
/// single Report 1.0 or 2.0 without metadata of the reporter, about a UDP or TCP packet over IPv4 with INT-MD 1.0 or 2.x
/// that is marked by its DSCP.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Brief<'a> {
    /// Version of the report, 1.0 or 2.0.
    pub version: Version,
    /// Node ID of the reporter.
    pub node_id: u32,
    /// Hardware subsystem of the reporter.
    pub hw_id: u8,
    /// Sequence number: 32 bits in Report 1.0, 22 in 2.0.
    pub seq: u32,
    /// Ingress timestamp of the header; 0 in Report 2.0, which has none.
    pub ts: u32,
    /// The events that caused the report.
    pub flags: Flags,
    /// Flow of the reported packet.
    pub flow: FlowKey,
    /// TTL of its outermost IP header.
    pub hop_limit: u8,
    /// Flags of its INT header.
    pub int_flags: crate::int::Flags,
    /// Remaining hop count of its INT header.
    pub remaining: u8,
    /// Records of its stack: [`crate::int::Stack::bytes`].
    pub records: &'a [u8],
    /// Number of the layout: equal shapes from one decoder have equal layouts; see [`Decoder::layout`].
    pub shape: u64,
}

/// A common SF-INT report in compact form: a datagram with a single Report 2.0, with the sink's own record and an IPv6
/// packet that carries a record in its hop-by-hop header. The packet is not urgent, was not dropped, and reached its sink.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Single<'a> {
    /// Node ID of the sink.
    pub node_id: u32,
    /// Hardware subsystem of the sink.
    pub hw_id: u8,
    /// Sequence number, 22 bits.
    pub seq: u32,
    /// The events that caused the report: F, possibly with Q.
    pub flags: Flags,
    /// Flow of the reported packet.
    pub flow: FlowKey,
    /// Flags of its INT header.
    pub int_flags: crate::int::Flags,
    /// Remaining hop count of its INT header.
    pub remaining: u8,
    /// State of the carried record.
    pub state: crate::int::sf::State,
    /// ID of the packet to which the carried record belongs.
    pub packet_id: u16,
    /// The sink's own record.
    pub metadata: &'a [u8],
    /// Record that the packet carried.
    pub carried: &'a [u8],
    /// Number of the layouts: equal shapes have equal layouts, even across decoders; see [`Single::layouts`].
    pub shape: u64,
}

impl Single<'_> {
    /// Returns the layouts of `metadata` and `carried`, in this order.
    pub fn layouts(&self) -> [Layout; 2] {
        single::layouts(self.shape)
    }
}

/// The first header of a report's packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum FirstHeader {
    Ethernet,
    Ipv4,
    Ipv6,
    /// There is no packet.
    Nothing,
}

/// The packet in a report.
#[derive(Clone, Copy, Debug)]
pub(crate) struct InnerPacket<'a> {
    pub(crate) first: FirstHeader,
    pub(crate) packet: &'a [u8],
    /// The packet may carry INT or IOAM.
    pub(crate) find_int: bool,
}

impl InnerPacket<'_> {
    pub(crate) const NOTHING: Self = Self {
        first: FirstHeader::Nothing,
        packet: &[],
        find_int: false,
    };
}

/// Parses the packet in a report, on the fast path if possible.
#[inline(always)]
pub(crate) fn inside<'a>(
    report: &mut Report<'a>,
    inside: InnerPacket<'a>,
    profile: &Profile,
    layouts: &mut Layouts,
) -> Result<(), Refusal> {
    if fast_path::read_inner(report, inside, profile, layouts) {
        return Ok(());
    }
    walk_inside(report, inside, profile, layouts)
}

/// Parses the packet in a report by a walk.
#[inline(never)]
fn walk_inside<'a>(
    report: &mut Report<'a>,
    mut inside: InnerPacket<'a>,
    profile: &Profile,
    layouts: &mut Layouts,
) -> Result<(), Refusal> {
    let annotations = report.annotations;
    let mut result = walk_packet(report, inside, profile, layouts);
    if let Err(refusal) = result
        && inside.find_int
        && refusal != Refusal::IntNotMarked
    {
        // A host may use the marks of INT. They must hide neither IOAM nor the reporter's own statement (ruling g).
        report.annotations = annotations;
        report.int = None;
        report.int_refused = Some(refusal);
        inside.find_int = false;
        result = walk_packet(report, inside, profile, layouts);
    }
    let nested = result?;
    if let Some(refusal) = report.int_refused
        && !report.stands_alone()
    {
        return Err(refusal);
    }
    // INT of reports would be reported endlessly (ruling j). A drop or a queue event happens only once.
    match nested.filter(|_| !report.is_of_loss_or_queue()) {
        Some(payload) if decoder::is_report(payload, profile) => {
            report.annotations = annotations;
            leave_out_nested(report)
        }
        _ => Ok(()),
    }
}

/// Leaves out INT and IOAM of a packet that is a report itself. The report about it is accepted if its reporter adds
/// something.
#[cold]
fn leave_out_nested(report: &mut Report<'_>) -> Result<(), Refusal> {
    report.int = None;
    report.ioam = None;
    report.ioam_options = None;
    report.int_refused = Some(Refusal::Nested);
    if report.stands_alone() {
        Ok(())
    } else {
        Err(Refusal::Nested)
    }
}

/// Parses the packet, and returns the payload of a datagram to a telemetry port.
fn walk_packet<'a>(
    report: &mut Report<'a>,
    inside: InnerPacket<'a>,
    profile: &Profile,
    layouts: &mut Layouts,
) -> Result<Option<&'a [u8]>, Refusal> {
    let mut walk = Walk::new(profile, layouts, Purpose::Report, inside.find_int);
    walk.int_left_out = report.int_refused.is_some();
    start(&mut walk, inside).map_err(|refusal| walk.cause(refusal))?;
    walk.finish();
    report.flow = walk.out.flow;
    report.tunnel = walk.out.tunnel;
    report.tunnel_refused = walk.out.tunnel_refused;
    report.hop_limit = walk.out.hop_limit;
    report.places = Places::of(&walk, inside.packet);
    report.int = walk.out.int;
    report.ioam = walk.out.ioam;
    report.ioam_options = walk.out.ioam_options;
    if let Some(refusal) = walk.option_refused {
        // A host may have written the option, so it must not hide INT after it.
        report.int_refused = Some(refusal);
        if report.int.is_none() {
            return Err(refusal);
        }
    }
    if walk.out.ioam_left_out {
        report.int_refused = report.int_refused.or(Some(Refusal::BadIoam));
    }
    if walk.out.ioam_cut {
        report.int_refused = report.int_refused.or(Some(Refusal::IntTruncated));
    }
    if walk.out.is_traced_by_hop && report.has_int_path() {
        // The network wrote one of the two paths, and a host may have written the other.
        report.int = None;
        report.int_refused = Some(Refusal::IntBesideTrace);
    }
    let nested = walk.nested;
    report.annotations = report
        .annotations
        .with(Annotations::DESTINATION, walk.out.destination)
        .with(Annotations::INCOMPLETE, walk.out.is_incomplete())
        .with(Annotations::SEVERAL_TRACES, walk.out.several_traces);
    if report.is_empty() && walk.has_unmarked_int() {
        return Err(Refusal::IntNotMarked);
    }
    report.split_metadata()?;
    Ok(nested)
}

fn start<'a>(walk: &mut Walk<'a, '_>, inside: InnerPacket<'a>) -> Result<(), Refusal> {
    match inside.first {
        FirstHeader::Ethernet => walk.ethernet(inside.packet, 0),
        FirstHeader::Ipv4 => walk.ethertype(inside.packet, 0, IPV4),
        FirstHeader::Ipv6 => walk.ethertype(inside.packet, 0, IPV6),
        FirstHeader::Nothing => Ok(()),
    }
}
