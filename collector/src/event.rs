//! The results of a collector: events, rollups, flow rows, drops and losses; and the [`Output`] trait that receives them.

use detect::Metric;
use wire::FlowKey;

use crate::hash::fold;
use crate::stream::StreamId;

/// Nanoseconds in a second.
pub const SECOND: Nanos = 1_000_000_000;
/// A time more than this behind the latest one means that the clock was set back, ns. Datagrams that waited, or that another
/// thread received, are behind by less.
pub const SET_BACK: Nanos = 2 * SECOND;
/// Seed of the hash in [`sender_of`].
const SENDERS: u64 = 0x5e4d_e125;

/// Nanoseconds since the Unix epoch (or since the start of simulated time).
pub type Nanos = u64;

/// Limits a stored time, which was at most `ahead` after the clock, to `now + ahead` if the clock was set back since.
pub(crate) fn follow_clock(time: &mut Nanos, ahead: Nanos, now: Nanos) {
    let latest = now.saturating_add(ahead);
    if *time > latest.saturating_add(SET_BACK) {
        *time = latest;
    }
}

wire::named! {
    /// The kind of an event.
    #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
    #[repr(u8)]
    pub enum Kind, name {
        /// A metric key seen for the first time.
        New = 0 => "new",
        /// A value differs from the last reported value by more than its threshold.
        Change = 1 => "change",
        /// A flow's path differs from the previous one.
        PathChange = 2 => "path_change",
        /// A path visits a node twice.
        PathLoop = 3 => "path_loop",
        /// A rule became true for a flow.
        RuleOn = 4 => "rule_on",
        /// A rule became false for a flow.
        RuleOff = 5 => "rule_off",
        /// A drop report arrived.
        Drop = 6 => "drop",
        /// Reports are missing in a reporter's sequence.
        Loss = 7 => "loss",
        /// A flow or key had no reports for its timeout.
        Expired = 8 => "expired",
        /// The E bit: a hop could not add data because the hop count was exceeded. Emitted again after a calendar minute
        /// without the bit.
        HopLimit = 9 => "hop_limit",
        /// The M bit: a hop could not add data because of the MTU. Emitted again after a calendar minute without the bit.
        Mtu = 10 => "mtu",
        /// The latest value, pushed periodically (INTCollector paper 3.4.4). Not a change.
        Latest = 11 => "latest",
        /// Packets of a flow were lost: a sink found gaps in the source's packet numbers (Host-INT). The value is their count,
        /// the path is source and sink.
        PacketLoss = 12 => "packet_loss",
    }
}

wire::named! {
    /// The way in which a latency, or the order of a path, was determined. Displays must show any basis other than `Measured`
    /// with the value.
    #[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
    #[repr(u8)]
    pub enum Basis, name {
        /// Measured by one clock, or by clocks that are synchronised according to the profile.
        #[default]
        Measured = 0 => "measured",
        /// Sum of the hop latencies, without the time on links.
        HopSum = 1 => "hop_sum",
        /// Corrected by an estimated clock offset.
        Corrected = 2 => "corrected",
        /// The clocks disagree (egress before ingress); the value is not usable as a latency.
        Unsynchronised = 3 => "unsynchronised",
        /// Order of a path joined from postcards by the packet's hop limit or TTL.
        HopLimit = 4 => "hop_limit",
        /// Order of a path joined from postcards by timestamps of synchronised clocks.
        Timestamps = 5 => "timestamps",
        /// Order of a path joined from postcards by the configured links.
        Topology = 6 => "topology",
    }
}

/// A significant change. Absent ids are `None`; `value`, `previous` and `threshold` are in the metric's unit.
///
/// The nodes of a path (kinds `New`/`PathChange`/`PathLoop` of `FlowPath`, `Latest` and `PacketLoss`) are passed beside the
/// event as a slice, so that an event has a fixed size.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Event {
    /// Receive time of the report that showed it.
    pub ts: Nanos,
    /// Deterministic record id: a hash of the event's content and of the report that showed it (reporter, sequence number,
    /// timestamp and flow), so that two collectors give the same event the same id. The id of a loss depends on the reporter,
    /// the first missing number, and how many are missing.
    pub id: u64,
    /// The kind of event.
    pub kind: Kind,
    /// The metric, if the event is about one.
    pub metric: Option<Metric>,
    /// The flow, if the event is about one.
    pub flow: Option<FlowKey>,
    /// The node, if the event is about one.
    pub node: Option<u32>,
    /// The interface, always an egress interface (of a link, of a queue, or of a dropped packet).
    pub interface: Option<u32>,
    /// The queue, if the event is about one.
    pub queue: Option<u8>,
    /// The new value, in the metric's unit.
    pub value: Option<u64>,
    /// The last reported value.
    pub previous: Option<u64>,
    /// The threshold that was exceeded.
    pub threshold: Option<u64>,
    /// Index of the rule in the active rule set (`RuleOn`, `RuleOff`). Metric, value, threshold, node, interface and queue then
    /// describe the deciding comparison; a `RuleOff` without a metric means that the flow ended.
    pub rule: Option<u16>,
    /// Drop reason code (`Drop`).
    pub reason: Option<u8>,
    /// The basis of `value`, or of the order of the path.
    pub basis: Basis,
}

/// The node, egress interface and queue that a value, an event or a record is about; each is `None` if it does not apply or is not known.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default, Debug)]
pub struct Location {
    /// The node that measured the value.
    pub node: Option<u32>,
    /// The egress interface, of a link or of a queue.
    pub interface: Option<u32>,
    /// The queue: of the egress interface, or of the node if no interface is known.
    pub queue: Option<u8>,
}

impl Location {
    /// Returns the location of a node without an interface or a queue.
    pub fn of_node(node: Option<u32>) -> Self {
        Self {
            node,
            ..Self::default()
        }
    }

    /// Returns true unless the two are known to differ: a part that is unknown in one of them may be that of the other.
    pub fn may_equal(&self, other: &Self) -> bool {
        may_equal(self.node, other.node)
            && may_equal(self.interface, other.interface)
            && may_equal(self.queue, other.queue)
    }
}

fn may_equal<T: PartialEq>(left: Option<T>, right: Option<T>) -> bool {
    left.is_none() || right.is_none() || left == right
}

impl Event {
    /// Returns the node, interface and queue that the event is about.
    pub fn location(&self) -> Location {
        Location {
            node: self.node,
            interface: self.interface,
            queue: self.queue,
        }
    }

    pub(crate) fn set_location(&mut self, location: Location) {
        self.node = location.node;
        self.interface = location.interface;
        self.queue = location.queue;
    }

    /// Returns an event of this kind without further fields.
    pub(crate) fn blank(ts: Nanos, kind: Kind) -> Self {
        Self {
            ts,
            id: 0,
            kind,
            metric: None,
            flow: None,
            node: None,
            interface: None,
            queue: None,
            value: None,
            previous: None,
            threshold: None,
            rule: None,
            reason: None,
            basis: Basis::Measured,
        }
    }
}

/// Returns the record id of an event found in the report whose hash is `seed`.
pub(crate) fn record_id(seed: u64, event: &Event) -> u64 {
    let what = u64::from(event.kind as u8) << 8 | event.metric.map_or(0xff, |metric| u64::from(metric as u8));
    let part = event.interface.map_or(0, |part| u64::from(part) | 1 << 32)
        ^ event.queue.map_or(0, |queue| u64::from(queue) << 40 | 1 << 48)
        ^ event.rule.map_or(0, |rule| u64::from(rule) << 49 | 1 << 63);
    let node = event.node.map_or(0, |node| u64::from(node) | 1 << 32);
    let whose = fold(event.flow.map_or(0, |flow| flow.id()), node ^ what << 40);
    fold(fold(seed, whose), part ^ event.value.unwrap_or(0).rotate_left(20))
}

/// The values measured by the report that first showed a flow's path. A [`Batch`](crate::Batch) stores them with the event of
/// that path, so that a new flow is one record.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct FirstValues<'a> {
    /// The flow latency, ns.
    pub flow_latency: Option<u64>,
    /// The basis of the flow latency.
    pub basis: Basis,
    /// Hop latencies, ns, in the order of the path; `u32::MAX` = unavailable.
    pub hop_latencies: &'a [u32],
}

impl FirstValues<'_> {
    /// Returns true if nothing was measured.
    pub fn is_empty(&self) -> bool {
        self.flow_latency.is_none() && self.hop_latencies.iter().all(|latency| *latency == u32::MAX)
    }
}

/// A rollup: the values of one metric of one key over one interval.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Rollup {
    /// Start of the interval, ns.
    pub ts: Nanos,
    /// Length of the interval, seconds (1 or 60).
    pub interval: u32,
    /// The metric whose values are summarized.
    pub metric: Metric,
    /// The flow, for per-flow rollups.
    pub flow: Option<FlowKey>,
    /// The node, for rollups of a node's metrics.
    pub node: Option<u32>,
    /// The egress interface, for rollups of a link, and of a queue if its packets carry one.
    pub interface: Option<u32>,
    /// The queue, for rollups of a queue.
    pub queue: Option<u8>,
    /// Number of values. Like `min`, `max` and `sum`, it is exact.
    pub count: u64,
    /// Minimum of the values.
    pub min: u64,
    /// Maximum of the values.
    pub max: u64,
    /// Sum of the values.
    pub sum: u64,
    /// Median, from the sketch; `None` without a sketch.
    pub p50: Option<u64>,
    /// 99th percentile, if there was a sketch.
    pub p99: Option<u64>,
}

/// The latest state of a flow. Its path is passed with it.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct FlowRow {
    /// The key of the flow.
    pub flow: FlowKey,
    /// Latest flow latency, ns.
    pub flow_latency: Option<u64>,
    /// The basis of the flow latency.
    pub basis: Basis,
    /// Receive time of the first report.
    pub first_seen: Nanos,
    /// Receive time of the latest report.
    pub last_seen: Nanos,
    /// Reports of the flow so far.
    pub reports: u64,
}

/// A packet drop that a switch reported.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Drop {
    /// Receive time of the report, ns.
    pub ts: Nanos,
    /// Deterministic ID of the record.
    pub id: u64,
    /// The packet's flow; the inner flow of a tunnelled packet.
    pub flow: Option<FlowKey>,
    /// Addresses of the outermost tunnel, if the packet was tunnelled; the source is the host or switch that sent it.
    pub tunnel: Option<FlowKey>,
    /// The node that dropped the packet.
    pub node: Option<u32>,
    /// The packet's ingress interface.
    pub ingress_if: Option<u32>,
    /// The intended egress interface.
    pub egress_if: Option<u32>,
    /// The queue of the packet.
    pub queue: Option<u8>,
    /// Drop reason code of the device; the reporter's profile has its name.
    pub reason: Option<u8>,
}

/// Lost reports of one reporter in one accounting interval.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Loss {
    /// End of the interval, ns.
    pub ts: Nanos,
    /// The reporter's node id; `None` if the format has none, so that the source address identifies the reporter.
    pub node: Option<u32>,
    /// Source address of the reports (IPv4 mapped into IPv6).
    pub source: [u8; 16],
    /// Subsystem inside the node.
    pub hw_id: u8,
    /// Datagrams lost: their numbers left the reorder window.
    pub lost: u64,
    /// Datagrams that arrived out of order, inside the window.
    pub reordered: u64,
    /// Datagrams that arrived more than once.
    pub duplicated: u64,
}

impl Loss {
    /// Returns the event that reports the loss, or `None` if nothing was lost. `first` is the first missing number.
    pub(crate) fn event(&self, stream: &StreamId, first: u32) -> Option<Event> {
        if self.lost == 0 {
            return None;
        }
        let mut event = Event::blank(self.ts, Kind::Loss);
        event.node = self.node;
        event.value = Some(self.lost);
        event.id = record_id(fold(stream.hash(0), first.into()), &event);
        Some(event)
    }
}

/// An event in a stream's sequence numbers, as listed by `replay --explain-loss`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SequenceEvent {
    /// Receive time of the datagram that showed it.
    pub ts: Nanos,
    /// The stream whose numbers the event is about.
    pub stream: StreamId,
    /// The kind of event.
    pub kind: SequenceEventKind,
}

/// The kind of a [`SequenceEvent`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SequenceEventKind {
    /// `count` numbers from `first` on were skipped; they may still arrive.
    Gap {
        /// The first missing number.
        first: u32,
        /// The count of missing numbers.
        count: u32,
    },
    /// `count` numbers from `first` on did not arrive in time: lost.
    Lost {
        /// The first lost number.
        first: u32,
        /// The count of lost numbers.
        count: u32,
    },
    /// A missing number arrived late.
    Late(u32),
    /// `count` numbers from `first` on were counted as lost and no longer are, because they arrived after all.
    Recovered {
        /// The first recovered number.
        first: u32,
        /// The count of recovered numbers.
        count: u32,
    },
    /// A number arrived again.
    Duplicate(u32),
    /// A number far from the expected one, which the next datagram did not confirm.
    Stray(u32),
    /// The numbering restarted at this number.
    Restart(u32),
}

/// Identifies the sender of a report by its address (IPv4 mapped into IPv6); never 0. All addresses of an IPv6 /64 count as one
/// sender, because one host can have all of them.
pub fn sender_of(source: &[u8; 16]) -> u32 {
    let [high, low] = [0, 8].map(|at| {
        let mut half = [0; 8];
        half.copy_from_slice(&source[at..at + 8]);
        u64::from_be_bytes(half)
    });
    let address = if high == 0 { low } else { high };
    (fold(SENDERS, address) as u32).max(1)
}

wire::named! {
    /// A kind of result records.
    #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
    pub enum Stream, name {
        /// Events of every [`Kind`]: changes, transitions of rules, losses.
        Events => "events",
        /// A metric of a key over an interval.
        Rollups => "rollups",
        /// The latest state of a flow.
        Flows => "flows",
        /// Dropped packets that switches reported.
        Drops => "drops",
        /// Reports that were lost on the way to the collector.
        Losses => "losses",
    }
}

/// Receives the results of a collector. Every method does nothing by default.
pub trait Output {
    /// Sets the sender of the following events and drops; 0 if they do not come from a report. See [`sender_of`].
    fn sender(&mut self, sender: u32) {
        let _ = sender;
    }
    /// Receives an event. `path` has the flow's nodes in forwarding order (`u32::MAX` = unavailable); empty if not applicable.
    fn event(&mut self, event: &Event, path: &[u32]) {
        let _ = (event, path);
    }
    /// Receives the rollup of a finished interval.
    fn rollup(&mut self, rollup: &Rollup) {
        let _ = rollup;
    }
    /// Receives the latest state of a flow: at the periodic push, and when it expires.
    fn flow(&mut self, row: &FlowRow, path: &[u32]) {
        let _ = (row, path);
    }
    /// Called when a flow leaves the flow table, after its last row. If it is reported again, its count of reports restarts.
    fn flow_removed(&mut self, flow: &FlowKey) {
        let _ = flow;
    }
    /// Receives the report of a dropped packet.
    fn drop_report(&mut self, drop: &Drop) {
        let _ = drop;
    }
    /// Receives the losses of one reporter in one interval.
    fn loss(&mut self, loss: &Loss) {
        let _ = loss;
    }
    /// Receives an event in a reporter's numbering: a gap, a late or repeated number, a restart. For explanations, not for
    /// storage.
    #[inline]
    fn sequence(&mut self, note: &SequenceEvent) {
        let _ = note;
    }
}
