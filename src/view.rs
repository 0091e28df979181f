//! Responses of the API as plain types. They serialise to the JSON of `/api/v1`, and the commands read answers into them.
//!
//! `src/api/openapi.json` and `ui/src/api/generated.ts` are generated from these types. Times are nanoseconds since the Unix
//! epoch. 64-bit ids are hexadecimal strings, because numbers in JavaScript are exact only up to 2^53. Fields missing in an
//! answer get their default, and unknown ones are ignored, so that a command understands servers of other versions.

mod alerts;
mod fill;
mod filters;
mod losses;
mod name;
mod names;
mod network;
mod past;
mod paths;
mod queues;
#[cfg(test)]
pub(crate) mod schema;
mod status;
mod traffic;

use std::collections::BTreeMap;

use collector::event::{Event, FirstValues, Rollup};
use serde::{Deserialize, Serialize};
use wire::FlowKey;

pub(crate) use alerts::{
    AcknowledgedView, AlertView, Alerts, EnabledView, EpisodeView, FiringView, SilenceView, Silences, Trial,
};
pub(crate) use fill::fill;
pub(crate) use filters::{CompletionView, FaultView, FieldView, FilterHelp};
pub(crate) use losses::{DropsView, LinkLoss, LossMap, ReporterView};
pub(crate) use name::{Name, NamedCounts};
pub(crate) use names::{Names, NamesView};
pub(crate) use network::{
    FlowDetail, FlowView, Flows, HistoryView, HopLatency, HopView, LinkView, Links, NodeView, Nodes,
    PathSince, PathView, Paths, PointView, QueueView, Spread,
};
pub(crate) use past::{Activity, ActivityPoint, Latencies, RangeView};
pub(crate) use paths::{
    ChangeGroupView, DirectionView, HopLatencies, LatencySpread, PathChangeView, PathChanges, PathUses,
    UsedPath,
};
pub(crate) use queues::{
    BurstView, ChangeView, DropCount, HeatRowView, HeatView, PartView, PassageView, RecorderView,
    RecordingView, Recordings,
};
pub(crate) use status::{
    Evidence, FileProblemView, InputView, PostcardsView, RateHistory, Rates, RatesThen, SourceView, Stage,
    StatusView, StoreView, StreamsView, TableView, TriedView, WorkerView,
};
pub(crate) use traffic::{TrafficRow, TrafficView};

/// A node that may be unavailable (all-ones on the wire).
pub(crate) fn node(id: u32) -> Option<u32> {
    (id != u32::MAX).then_some(id)
}

/// A path for responses.
pub(crate) fn path(nodes: &[u32]) -> Vec<Option<u32>> {
    nodes.iter().map(|id| node(*id)).collect()
}

/// A 64-bit id.
pub(crate) fn id(id: u64) -> String {
    format!("{id:016x}")
}

/// A 5-tuple. When only the Flow ID is known, `src` holds it (`flow-id:0x0000f10a`) and `dst` is empty.
#[derive(Serialize, Deserialize, Clone, PartialEq, Default, Debug)]
#[serde(default)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Flow {
    /// Source address, or the Flow ID.
    pub(crate) src: String,
    /// Destination address.
    pub(crate) dst: String,
    /// Source port; null where the packet had none.
    pub(crate) sport: Option<u16>,
    /// Destination port; null where the packet had none.
    pub(crate) dport: Option<u16>,
    /// IP protocol number.
    pub(crate) proto: u8,
}

impl From<FlowKey> for Flow {
    fn from(key: FlowKey) -> Self {
        let (src, dst) = ends(&key);
        Self {
            src,
            dst,
            sport: key.src_port(),
            dport: key.dst_port(),
            proto: key.proto(),
        }
    }
}

impl Flow {
    /// The key of the flow; the default key if the addresses cannot be parsed.
    pub(crate) fn key(&self) -> FlowKey {
        match (self.src.parse(), self.dst.parse()) {
            (Ok(src), Ok(dst)) => FlowKey::new(src, dst, self.sport.zip(self.dport), self.proto),
            _ => self.src.parse().unwrap_or_default(),
        }
    }
}

/// Source and destination as text; when only the Flow ID is known, the Flow ID and an empty string.
pub(crate) fn ends(key: &FlowKey) -> (String, String) {
    match key.known_id() {
        Some(_) => (key.to_string(), String::new()),
        None => (key.src().to_string(), key.dst().to_string()),
    }
}

/// An event. Values are in the unit of the metric.
#[derive(Serialize, Deserialize, Clone, PartialEq, Default, Debug)]
#[serde(default)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(rename = "Event"))]
pub(crate) struct EventView {
    /// Receive time, nanoseconds since the Unix epoch.
    pub(crate) ts: u64,
    /// Record id, derived from the content: 16 hexadecimal digits.
    #[cfg_attr(test, schemars(regex(pattern = "^[0-9a-f]{16}$")))]
    pub(crate) id: String,
    /// Kind of the event.
    #[cfg_attr(test, schemars(extend("enum" = schema::kinds())))]
    pub(crate) kind: Name,
    /// The metric that changed.
    #[cfg_attr(test, schemars(extend("enum" = schema::nullable(schema::metrics()))))]
    pub(crate) metric: Option<Name>,
    /// The flow.
    pub(crate) flow: Option<Flow>,
    /// The flow as text.
    pub(crate) text: Option<String>,
    /// Node id.
    pub(crate) node: Option<u32>,
    /// Interface id.
    pub(crate) interface: Option<u32>,
    /// Queue id.
    pub(crate) queue: Option<u8>,
    /// New value, in the unit of the metric.
    pub(crate) value: Option<u64>,
    /// Value reported before.
    pub(crate) previous: Option<u64>,
    /// Threshold that was exceeded.
    pub(crate) threshold: Option<u64>,
    /// Rule that became true or false.
    pub(crate) rule: Option<String>,
    /// Drop reason, the code of the device.
    pub(crate) reason: Option<u8>,
    /// Name of the reason, where the profiles agree on one.
    pub(crate) reason_name: Option<String>,
    /// How the value was obtained.
    #[cfg_attr(test, schemars(extend("enum" = schema::bases())))]
    pub(crate) basis: Name,
    /// Node ids in forwarding order; null where a node id is unavailable.
    pub(crate) path: Vec<Option<u32>>,
    /// Of a new flow's path: the flow latency of the same report, ns.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) flow_latency: Option<u64>,
    /// How it was obtained.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, schemars(extend("enum" = schema::bases())))]
    pub(crate) latency_basis: Option<Name>,
    /// Of a new flow's path: the hop latencies of the same report, ns, in the order of the path; null where unavailable.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) hop_latencies: Vec<Option<u32>>,
}

/// Names of drop reasons by code.
pub(crate) type ReasonNames = BTreeMap<u8, String>;

impl EventView {
    /// An event with its rule's name, and its path with the first values of a new flow.
    pub(crate) fn new(
        event: &Event,
        rule: Option<&str>,
        (nodes, first): (&[u32], Option<FirstValues<'_>>),
        reasons: &ReasonNames,
    ) -> Self {
        Self {
            ts: event.ts,
            id: id(event.id),
            kind: event.kind.name().into(),
            metric: event.metric.map(|metric| metric.name().into()),
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
            basis: event.basis.name().into(),
            path: path(nodes),
            flow_latency: first.and_then(|first| first.flow_latency),
            latency_basis: first
                .filter(|first| first.flow_latency.is_some())
                .map(|first| first.basis.name().into()),
            // A latency that is unavailable has the value of a node that is.
            hop_latencies: first.map_or_else(Vec::new, |first| path(first.hop_latencies)),
        }
    }
}

/// One metric of one key over one interval.
#[derive(Serialize, Deserialize, Clone, PartialEq, Default, Debug)]
#[serde(default)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(rename = "Rollup"))]
pub(crate) struct RollupView {
    /// Start of the interval, nanoseconds since the Unix epoch.
    pub(crate) ts: u64,
    /// Length of the interval, seconds.
    pub(crate) interval: u32,
    /// Metric.
    #[cfg_attr(test, schemars(extend("enum" = schema::metrics())))]
    pub(crate) metric: Name,
    /// Node id.
    pub(crate) node: Option<u32>,
    /// Interface id.
    pub(crate) interface: Option<u32>,
    /// Queue id.
    pub(crate) queue: Option<u8>,
    /// Flow as text.
    pub(crate) flow: Option<String>,
    /// Number of values.
    pub(crate) count: u64,
    /// Smallest value.
    pub(crate) min: u64,
    /// Largest value.
    pub(crate) max: u64,
    /// Sum of the values.
    pub(crate) sum: u64,
    /// Median.
    pub(crate) p50: Option<u64>,
    /// 99th percentile.
    pub(crate) p99: Option<u64>,
}

impl From<&Rollup> for RollupView {
    fn from(rollup: &Rollup) -> Self {
        Self {
            ts: rollup.ts,
            interval: rollup.interval,
            metric: rollup.metric.name().into(),
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

/// A utilization in millionths as a fraction of 1.
pub(crate) fn fraction(millionths: u64) -> f64 {
    millionths as f64 / 1e6
}

/// `/events`.
#[derive(Serialize, Deserialize, Clone, PartialEq, Default, Debug)]
#[serde(default)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Events {
    /// Events, newest first.
    pub(crate) events: Vec<EventView>,
    /// `before` of the next page; null when there are no more.
    pub(crate) next: Option<u64>,
}

/// `/rollups`.
#[derive(Serialize, Deserialize, Clone, PartialEq, Default, Debug)]
#[serde(default)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Rollups {
    /// Rollups in ascending order of time.
    pub(crate) rollups: Vec<RollupView>,
    /// True when the limits left out older ones.
    pub(crate) truncated: bool,
}
