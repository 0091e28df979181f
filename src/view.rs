//! What the API answers, as plain types: the JSON of `/api/v1` is exactly these.
//!
//! Times are nanoseconds since the epoch. Ids of 64 bits are hexadecimal texts, because JavaScript's numbers end at 2^53.

use std::collections::BTreeMap;

use collector::event::{Basis, Event, Rollup};
use collector::stats::{Partial, Unjoinable};
use serde::Serialize;
use wire::FlowKey;

/// A node that may be unavailable (all-ones on the wire).
pub(crate) fn node(id: u32) -> Option<u32> {
    (id != u32::MAX).then_some(id)
}

/// A path as it is answered.
pub(crate) fn path(nodes: &[u32]) -> Vec<Option<u32>> {
    nodes.iter().map(|id| node(*id)).collect()
}

/// A 64-bit id.
pub(crate) fn id(id: u64) -> String {
    format!("{id:016x}")
}

/// The name of a basis.
pub(crate) fn basis(basis: Basis) -> &'static str {
    match basis {
        Basis::Measured => "measured",
        Basis::HopSum => "hop_sum",
        Basis::Corrected => "corrected",
        Basis::Unsynchronised => "unsynchronised",
        Basis::HopLimit => "hop_limit",
        Basis::Stamps => "stamps",
        Basis::Topology => "topology",
    }
}

/// A 5-tuple. Where only the Flow ID is known `src` holds it (`flow-id:0x0000f10a`), and `dst` is empty.
#[derive(Serialize, Clone, PartialEq, Debug)]
pub(crate) struct Flow {
    pub(crate) src: String,
    pub(crate) dst: String,
    pub(crate) sport: Option<u16>,
    pub(crate) dport: Option<u16>,
    pub(crate) proto: u8,
}

impl From<FlowKey> for Flow {
    fn from(key: FlowKey) -> Self {
        let (src, dst) = ends(&key);
        Self { src, dst, sport: key.src_port(), dport: key.dst_port(), proto: key.proto() }
    }
}

/// Source and destination as text; of a flow of which only the Flow ID is known, that, and nothing.
pub(crate) fn ends(key: &FlowKey) -> (String, String) {
    match key.known_id() {
        Some(_) => (key.to_string(), String::new()),
        None => (key.src().to_string(), key.dst().to_string()),
    }
}

/// An event.
#[derive(Serialize, Clone, PartialEq, Debug)]
pub(crate) struct EventView {
    pub(crate) ts: u64,
    pub(crate) id: String,
    pub(crate) kind: &'static str,
    pub(crate) metric: Option<&'static str>,
    pub(crate) flow: Option<Flow>,
    pub(crate) text: Option<String>,
    pub(crate) node: Option<u32>,
    pub(crate) interface: Option<u32>,
    pub(crate) queue: Option<u8>,
    pub(crate) value: Option<u64>,
    pub(crate) previous: Option<u64>,
    pub(crate) threshold: Option<u64>,
    pub(crate) rule: Option<String>,
    pub(crate) reason: Option<u8>,
    /// The reason's name, where the profiles agree on one.
    pub(crate) reason_name: Option<String>,
    pub(crate) basis: &'static str,
    pub(crate) path: Vec<Option<u32>>,
}

/// Names of drop reasons by code.
pub(crate) type ReasonNames = BTreeMap<u8, String>;

impl EventView {
    /// An event with its rule's name and its path.
    pub(crate) fn new(event: &Event, rule: Option<&str>, nodes: &[u32], reasons: &ReasonNames) -> Self {
        Self {
            ts: event.ts,
            id: id(event.id),
            kind: event.kind.name(),
            metric: event.metric.map(detect::Metric::name),
            flow: event.flow.map(Flow::from),
            text: event.flow.map(|flow| flow.to_string()),
            node: event.node,
            interface: event.interface,
            queue: event.queue,
            value: event.value,
            previous: event.previous,
            threshold: event.threshold,
            rule: rule.map(str::to_owned),
            reason: event.reason,
            reason_name: event.reason.and_then(|code| reasons.get(&code)).cloned(),
            basis: basis(event.basis),
            path: path(nodes),
        }
    }
}

/// A roll-up.
#[derive(Serialize, Clone, PartialEq, Debug)]
pub(crate) struct RollupView {
    pub(crate) ts: u64,
    pub(crate) interval: u32,
    pub(crate) metric: &'static str,
    pub(crate) node: Option<u32>,
    pub(crate) interface: Option<u32>,
    pub(crate) queue: Option<u8>,
    pub(crate) flow: Option<String>,
    pub(crate) count: u64,
    pub(crate) min: u64,
    pub(crate) max: u64,
    pub(crate) sum: u64,
    pub(crate) p50: Option<u64>,
    pub(crate) p99: Option<u64>,
}

impl From<&Rollup> for RollupView {
    fn from(rollup: &Rollup) -> Self {
        Self {
            ts: rollup.ts,
            interval: rollup.interval,
            metric: rollup.metric.name(),
            node: rollup.node,
            interface: rollup.interface,
            queue: rollup.queue,
            flow: rollup.flow.map(|flow| flow.to_string()),
            count: rollup.count,
            min: rollup.min,
            max: rollup.max,
            sum: rollup.sum,
            p50: rollup.p50,
            p99: rollup.p99,
        }
    }
}

/// `/status`.
#[derive(Serialize, Clone, PartialEq, Debug)]
pub(crate) struct StatusView {
    pub(crate) version: &'static str,
    pub(crate) uptime_s: f64,
    pub(crate) now: u64,
    pub(crate) rates: Rates,
    pub(crate) loss_budget: Vec<Stage>,
    /// Reports refused, by reason, those inside good datagrams too.
    pub(crate) refused: BTreeMap<&'static str, u64>,
    pub(crate) inputs: Vec<InputView>,
    pub(crate) sources: Vec<SourceView>,
    pub(crate) tables: Vec<TableView>,
    pub(crate) store: Option<StoreView>,
    pub(crate) workers: Vec<WorkerView>,
    pub(crate) streams: StreamsView,
    pub(crate) postcards: PostcardsView,
}

/// What became of postcards: `cards = joined + held + sum of partial + sum of unjoinable`.
#[derive(Serialize, Clone, PartialEq, Default, Debug)]
pub(crate) struct PostcardsView {
    pub(crate) cards: u64,
    /// Cards of sets that told, or confirmed, a path; and those sets.
    pub(crate) joined: u64,
    pub(crate) sets: u64,
    /// Waiting for others.
    pub(crate) held: u64,
    /// Held and not joined, by reason.
    pub(crate) partial: BTreeMap<&'static str, u64>,
    /// Not held, by reason.
    pub(crate) unjoinable: BTreeMap<&'static str, u64>,
    /// Cards whose Flow ID stood for a flow that is known, and those whose ID stands for several.
    pub(crate) resolved: u64,
    pub(crate) ambiguous: u64,
    /// Aggregates of a first stage, and the cards and summaries that they held.
    pub(crate) aggregates: u64,
    pub(crate) unfolded: u64,
    pub(crate) summaries: u64,
}

impl From<&collector::Stats> for PostcardsView {
    fn from(stats: &collector::Stats) -> Self {
        let counts = &stats.postcards;
        let partial = Partial::ALL.iter().map(|why| (why.name(), counts.partial[*why as usize]));
        let unjoinable = Unjoinable::ALL.iter().map(|why| (why.name(), counts.unjoinable[*why as usize]));
        Self {
            cards: counts.cards,
            joined: counts.joined,
            sets: counts.sets,
            held: counts.held - counts.released,
            partial: partial.filter(|(_, count)| *count > 0).collect(),
            unjoinable: unjoinable.filter(|(_, count)| *count > 0).collect(),
            resolved: counts.resolved,
            ambiguous: counts.ambiguous,
            aggregates: stats.aggregates,
            unfolded: stats.cards,
            summaries: stats.summaries,
        }
    }
}

/// Things per second, over the last few seconds.
#[derive(Serialize, Clone, Copy, PartialEq, Default, Debug)]
pub(crate) struct Rates {
    pub(crate) reports: f64,
    pub(crate) events: f64,
    pub(crate) datagrams: f64,
}

/// The same at one moment.
#[derive(Serialize, Clone, Copy, PartialEq, Default, Debug)]
pub(crate) struct RatesThen {
    /// ns since the epoch.
    pub(crate) ts: u64,
    #[serde(flatten)]
    pub(crate) rates: Rates,
}

/// One stage of the loss budget: `in = out + sum of drops + held`.
#[derive(Serialize, Clone, PartialEq, Default, Debug)]
pub(crate) struct Stage {
    /// network, nic (with interfaces), kernel, fanout (with several workers), decode, state, queue, store.
    pub(crate) stage: &'static str,
    /// What is counted: datagrams, reports, records.
    pub(crate) unit: &'static str,
    #[serde(rename = "in")]
    pub(crate) into: u64,
    pub(crate) out: u64,
    /// In the stage right now.
    pub(crate) held: u64,
    pub(crate) drops: BTreeMap<&'static str, u64>,
}

/// A listening socket, or an interface.
#[derive(Serialize, Clone, PartialEq, Default, Debug)]
pub(crate) struct InputView {
    pub(crate) listen: String,
    /// How it receives: `udp`, `packet`, `xdp-generic`, `xdp-native`, `xdp-zerocopy`, `kernel-generic`, `kernel-native`.
    pub(crate) kind: &'static str,
    /// Does it receive?
    pub(crate) up: bool,
    /// If not: why.
    pub(crate) message: Option<String>,
    pub(crate) interface: Option<String>,
    /// Queues of the interface that are read.
    pub(crate) queues: u32,
    /// Better ways to receive, and why they were not taken.
    pub(crate) tried: Vec<TriedView>,
    /// Times it was opened again.
    pub(crate) reopened: u64,
    pub(crate) datagrams: u64,
    /// Datagrams among them that held no news and ended in the kernel (kernel mode).
    pub(crate) decided_in_kernel: u64,
    pub(crate) bytes: u64,
    pub(crate) kernel_drops: u64,
    pub(crate) truncated: u64,
    pub(crate) receive_buffer: u64,
    /// Sent to us and not received, by reason; the kernel's drops among them.
    pub(crate) drops: BTreeMap<&'static str, u64>,
    /// Frames of ours that the interface's program left to the kernel's stack, by reason. They come by a socket.
    pub(crate) passed: BTreeMap<&'static str, u64>,
    /// Frames that the interface dropped before any program saw them, whoever they were for.
    pub(crate) device_drops: u64,
}

/// A way to receive that was not taken.
#[derive(Serialize, Clone, PartialEq, Debug)]
pub(crate) struct TriedView {
    pub(crate) rung: &'static str,
    pub(crate) reason: String,
}

/// A stream of numbered reports.
#[derive(Serialize, Clone, PartialEq, Debug, Default)]
pub(crate) struct SourceView {
    pub(crate) source: String,
    pub(crate) name: Option<String>,
    pub(crate) node: Option<u32>,
    pub(crate) hw_id: Option<u8>,
    pub(crate) version: String,
    pub(crate) reports: u64,
    pub(crate) lost: u64,
    pub(crate) reordered: u64,
    pub(crate) duplicated: u64,
    pub(crate) restarts: u64,
    pub(crate) countable: bool,
    pub(crate) last_seen: u64,
    pub(crate) refused: BTreeMap<&'static str, u64>,
}

/// A bounded table.
#[derive(Serialize, Clone, PartialEq, Default, Debug)]
pub(crate) struct TableView {
    pub(crate) name: &'static str,
    pub(crate) used: u64,
    pub(crate) capacity: u64,
    pub(crate) evicted: u64,
    pub(crate) refused: u64,
}

/// The store.
#[derive(Serialize, Clone, PartialEq, Debug)]
pub(crate) struct StoreView {
    pub(crate) state: &'static str,
    pub(crate) message: Option<String>,
    pub(crate) written: u64,
    pub(crate) committed: u64,
    pub(crate) queue: u64,
    pub(crate) shed: u64,
    pub(crate) failed: u64,
    pub(crate) last_commit: Option<u64>,
    pub(crate) bytes: u64,
    pub(crate) files: u64,
}

/// A worker thread.
#[derive(Serialize, Clone, PartialEq, Debug)]
pub(crate) struct WorkerView {
    pub(crate) worker: usize,
    pub(crate) datagrams: u64,
    pub(crate) reports: u64,
}

/// Clients of the live stream.
#[derive(Serialize, Clone, Copy, PartialEq, Default, Debug)]
pub(crate) struct StreamsView {
    pub(crate) clients: u64,
    pub(crate) sent: u64,
    pub(crate) shed: u64,
}

/// A node.
#[derive(Serialize, Clone, PartialEq, Debug)]
pub(crate) struct NodeView {
    pub(crate) node: u32,
    pub(crate) name: Option<String>,
    pub(crate) reports: u64,
    pub(crate) last_seen: u64,
    pub(crate) hop_latency: Spread,
    pub(crate) queues: Vec<QueueView>,
    pub(crate) drops: u64,
}

/// Latest, least, greatest and quantiles of a value; null where nothing was measured.
#[derive(Serialize, Clone, Copy, PartialEq, Default, Debug)]
pub(crate) struct Spread {
    pub(crate) latest: Option<u64>,
    pub(crate) min: Option<u64>,
    pub(crate) max: Option<u64>,
    pub(crate) p50: Option<u64>,
    pub(crate) p99: Option<u64>,
}

/// A queue of a node.
#[derive(Serialize, Clone, PartialEq, Debug)]
pub(crate) struct QueueView {
    /// `None`: all queues of the node, of which summaries speak.
    pub(crate) queue: Option<u8>,
    pub(crate) occupancy: Option<u64>,
    pub(crate) max: Option<u64>,
    pub(crate) unit: String,
}

/// A link, as learnt from paths.
#[derive(Serialize, Clone, PartialEq, Debug)]
pub(crate) struct LinkView {
    pub(crate) from: u32,
    pub(crate) to: u32,
    pub(crate) egress_if: Option<u32>,
    pub(crate) ingress_if: Option<u32>,
    pub(crate) utilization: Option<f64>,
    pub(crate) queue_occupancy: Option<u64>,
    pub(crate) hop_latency: Option<u64>,
    pub(crate) flows: u64,
    pub(crate) last_seen: u64,
}

/// A flow's latest state.
#[derive(Serialize, Clone, PartialEq, Debug)]
pub(crate) struct FlowView {
    pub(crate) id: String,
    pub(crate) flow: Flow,
    pub(crate) text: String,
    pub(crate) path: Vec<Option<u32>>,
    pub(crate) flow_latency: Option<u64>,
    pub(crate) basis: &'static str,
    /// How the order of the path is known.
    pub(crate) path_basis: &'static str,
    pub(crate) reports: u64,
    pub(crate) first_seen: u64,
    pub(crate) last_seen: u64,
}

/// A flow with its hops in forwarding order.
#[derive(Serialize, Clone, PartialEq, Debug)]
pub(crate) struct FlowDetail {
    #[serde(flatten)]
    pub(crate) flow: FlowView,
    pub(crate) hops: Vec<HopView>,
}

/// What a hop of a flow said last.
#[derive(Serialize, Clone, PartialEq, Default, Debug)]
pub(crate) struct HopView {
    pub(crate) node: Option<u32>,
    pub(crate) ingress_if: Option<u32>,
    pub(crate) egress_if: Option<u32>,
    pub(crate) queue: Option<u8>,
    pub(crate) hop_latency: Option<u64>,
    pub(crate) queue_occupancy: Option<u64>,
    pub(crate) link_utilization: Option<f64>,
}

/// A path and how much takes it.
#[derive(Serialize, Clone, PartialEq, Debug)]
pub(crate) struct PathView {
    pub(crate) path: Vec<Option<u32>>,
    pub(crate) flows: u64,
    pub(crate) reports: u64,
}

/// A flow over time.
#[derive(Serialize, Clone, PartialEq, Default, Debug)]
pub(crate) struct HistoryView {
    pub(crate) series: Vec<PointView>,
    pub(crate) paths: Vec<PathSince>,
    pub(crate) truncated: bool,
}

/// A flow's latencies at one moment.
#[derive(Serialize, Clone, PartialEq, Debug)]
pub(crate) struct PointView {
    pub(crate) ts: u64,
    pub(crate) flow_latency: Option<u64>,
    pub(crate) basis: &'static str,
    pub(crate) hops: Vec<HopLatency>,
}

/// Time inside one node.
#[derive(Serialize, Clone, Copy, PartialEq, Debug)]
pub(crate) struct HopLatency {
    pub(crate) node: Option<u32>,
    pub(crate) latency: u64,
}

/// A path and since when a flow took it.
#[derive(Serialize, Clone, PartialEq, Debug)]
pub(crate) struct PathSince {
    pub(crate) ts: u64,
    pub(crate) path: Vec<Option<u32>>,
}

/// A utilisation in millionths as a fraction of 1.
pub(crate) fn fraction(millionths: u64) -> f64 {
    millionths as f64 / 1e6
}
