//! `/queues` and `/recordings`: queues over time, from the store: a heat map of the greatest values, the flows that caused a
//! burst (microburst culprits), and the flight recorder's recordings.
//!
//! A burst is reconstructed from device timestamps, in ns: [`clock`] places them on the collector's clock. At the end, times are
//! shifted so that the peak has the receive time of its report.

mod clock;

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use axum::extract::State;
use collector::Location;
use detect::Metric;
use store::burst::{self, Burst, Passage};
use store::{HeatFilter, MAX_COLUMNS, PassageRow, QueueFilter, RecordingWindow};
use wire::FlowKey;

use super::{
    context::Context,
    names,
    page::{self, Prepared},
    params::{FROM, Form, NODE, Param, Params, Segment, TO},
    query::{history_of, history_permit, respond},
    refusal::Refusal,
};
use history::{Exported, QueueQuery, QueueRecords, RecordingQuery};
use view::{
    BurstView, ChangeView, DropCount, Flow, HeatRowView, HeatView, PartView, PassageView, RecorderView,
    RecordingView, Recordings,
};

const START: Param = Param::new(
    "from",
    "Start of the time; default: 15 minutes before its end.",
    Form::Time,
);
const END: Param = Param::new("to", "End of the time; default: now.", Form::Time);
/// Metrics of nodes, queues and links that a heat map can show.
const METRICS: [Metric; 4] = [
    Metric::QueueOccupancy,
    Metric::QueueCongestion,
    Metric::HopLatency,
    Metric::LinkUtilization,
];
const SECOND: u64 = 1_000_000_000;
const MINUTE: u64 = 60 * SECOND;
/// Latest time that the store can represent, ns: SQLite integers are signed.
const MAX_TIME: u64 = i64::MAX as u64;
/// Maximum span for which one-second rollups are read: half an hour.
const MAX_FINE_SPAN: u64 = 1_800 * SECOND;
/// Default length of a span: 15 minutes.
const DEFAULT_SPAN: u64 = 900 * SECOND;
/// Minimum value of the parameter `columns`.
const MIN_COLUMNS: u64 = 2;
/// Maximum number of reports that are read for one response.
const MAX_PASSAGES: usize = 20_000;
/// Maximum number of recordings in a response.
const MAX_RECORDINGS: usize = 50;
const MAX_PACKETS: usize = 2_000;
const MAX_EVENTS: usize = 5_000;

/// Query parameters of `/queues`.
pub(super) const HEAT: &[Param] = &[
    Param::new(
        "metric",
        "The metric; default: queue_occupancy.",
        Form::OneOf(|| METRICS.map(Metric::name).to_vec()),
    ),
    START,
    END,
    NODE,
    Param::columns("Maximum number of columns.", MIN_COLUMNS, 180, MAX_COLUMNS as u64),
    Param::limit(50, 500),
];

/// Query parameters of `/queues/{node}`.
pub(super) const BURST: &[Param] = &[
    NODE,
    Param::integer("queue", "Only this queue.", 0, u8::MAX as u64),
    Param::integer(
        "interface",
        "Only queues of this egress interface.",
        0,
        u32::MAX as u64 - 1,
    ),
    FROM,
    TO,
    Param::limit(20, 200),
];

/// Query parameters of `/recordings`.
pub(super) const RECORDINGS: &[Param] = &[FROM, TO, NODE, Param::limit(200, 1_000)];

/// Returns the greatest value of each queue, node or link in each interval of a span.
pub(crate) async fn heat(State(context): State<Arc<Context>>, params: Params) -> Result<Prepared, Refusal> {
    let params = params.only(HEAT)?;
    let metric = params.metric().unwrap_or(Metric::QueueOccupancy);
    let (from, to) = span(&params)?;
    let columns = params.required_number("columns")?;
    let Columns {
        width: column,
        interval,
    } = column_grid(to - from, columns);
    // Columns begin at multiples of their width, so that they stay the same while time passes.
    let from = from / column * column;
    let to = to.div_ceil(column).saturating_mul(column);
    let filter = HeatFilter {
        metric,
        from,
        to,
        column,
        interval,
        location: Location::of_node(params.number("node")?),
        limit: params.limit()?,
    };
    let permit = history_permit(&context).await?;
    let heat = history_of(&context)?.heat(filter, Arc::clone(&permit)).await?;
    respond(permit, move || {
        let (rows, _) = page::fill(heat.rows.iter().map(HeatRowView::from), filter.limit);
        let metric = metric.name().into();
        HeatView {
            metric,
            from,
            to,
            column,
            interval,
            rows,
            ..HeatView::new(&heat)
        }
    })
    .await
}

/// Columns of a heat map.
struct Columns {
    /// Width of a column, ns.
    width: u64,
    /// Interval of the rollups to read, seconds.
    interval: u32,
}

/// Divides a span into at most `columns` columns; `columns` is at least [`MIN_COLUMNS`].
fn column_grid(span: u64, columns: u64) -> Columns {
    let unit = if span <= MAX_FINE_SPAN { SECOND } else { MINUTE };
    // `columns - 1`: rounding both ends of the span may add one column.
    let width = span.div_ceil(columns - 1).div_ceil(unit).max(1) * unit;
    // The longest rollup interval that divides the column.
    let interval = [3600, 600, 60]
        .into_iter()
        .find(|interval| unit > SECOND && width.is_multiple_of(u64::from(*interval) * SECOND))
        .unwrap_or(1);
    Columns { width, interval }
}

/// Lists the recordings of the flight recorder, and its counters.
pub(crate) async fn recordings(
    State(context): State<Arc<Context>>,
    params: Params,
) -> Result<Prepared, Refusal> {
    let params = params.only(RECORDINGS)?;
    let from = params.number("from")?.unwrap_or(0);
    let to = params.number("to")?.unwrap_or(u64::MAX);
    let location = Location::of_node(params.number("node")?);
    let limit = params.limit()?;
    let recorder = context.monitor.flight_recorder().map(|recorder| RecorderView {
        memory: recorder.memory,
        reports: recorder.reports,
        recorded: recorder.stats.recorded,
        repeated: recorder.stats.repeated,
        subjects_full: recorder.stats.subjects_full,
        over_budget: recorder.stats.over_budget,
        late: recorder.stats.late,
        shed: recorder.shed,
    });
    let permit = history_permit(&context).await?;
    let query = RecordingQuery {
        span: (from, to),
        location,
        limit: limit + 1,
    };
    let rows = history_of(&context)?
        .recordings(query, Arc::clone(&permit))
        .await?;
    respond(permit, move || {
        let (recordings, more) = page::fill(rows.iter().take(limit).map(RecordingView::from), limit);
        Recordings {
            recordings,
            truncated: more || rows.len() > limit,
            recorder,
        }
    })
    .await
}

/// Returns the burst in a queue: the flows that filled it, and the packets that waited in it.
pub(crate) async fn burst(
    State(context): State<Arc<Context>>,
    Segment(node): Segment,
    params: Params,
) -> Result<Prepared, Refusal> {
    let params = params.only(BURST)?;
    let node = node
        .parse::<u32>()
        .map_err(|_| Refusal::bad_request("invalid node id; /api/v1/nodes lists them"))?;
    let queue = params.number("queue")?;
    let interface = params.number("interface")?;
    let (from, to) = span(&params)?;
    let query = QueueQuery {
        queue: QueueFilter {
            node,
            queue,
            interface,
            from,
            to,
            limit: MAX_PASSAGES,
        },
        recordings: MAX_RECORDINGS,
        events: MAX_EVENTS,
    };
    let max_flows = params.limit()?;
    let reasons = context.active_config.get().collect().drop_reasons();
    let permit = history_permit(&context).await?;
    let records = history_of(&context)?.queue(query, Arc::clone(&permit)).await?;
    let heat = history_of(&context)?
        .heat(occupancy(&query.queue), Arc::clone(&permit))
        .await?;
    let resolver = if records.exported.is_some() {
        TickResolver::NANOS
    } else {
        TickResolver::new(&context)
    };
    let rows = records.passages.iter();
    names::look_up(&context, rows.filter_map(|row| row.passage.flow.as_ref()));
    respond(permit, move || {
        let stamp_ns = resolver.for_rows(node, &records.passages);
        BurstView {
            measured: heat.rows.first().map(|row| row.worst),
            ..burst_view(&records, query.queue, &stamp_ns, &reasons, max_flows)
        }
    })
    .await
}

/// Returns the query for the greatest occupancy of a queue in a span, or of the fullest of several queues.
fn occupancy(filter: &QueueFilter) -> HeatFilter {
    let Columns { width, interval } = column_grid(filter.to - filter.from, MIN_COLUMNS);
    HeatFilter {
        metric: Metric::QueueOccupancy,
        from: filter.from,
        to: filter.to,
        column: width,
        interval,
        location: filter.location(),
        limit: 1,
    }
}

/// Explains which parts of the response a console cannot provide.
fn missing_parts(exported: &Exported) -> Vec<String> {
    let packets = if exported.hops {
        "The packets are those whose hops are exported: one report in N, or those with an event, as the collector's export is set (`sample`, `hop_reports`); counts include only these packets."
    } else {
        "Single packets are not exported: with the stream `hops`, a collector exports some, or those with an event."
    };
    let recordings = "Recordings of the flight recorder are at the collectors.";
    let more_note = exported
        .more
        .then_some("More collectors than are named here received reports of the node in this time.");
    [packets, recordings]
        .into_iter()
        .chain(more_note)
        .map(str::to_owned)
        .collect()
}

fn drops(records: &QueueRecords, filter: &QueueFilter, reasons: &BTreeMap<u8, String>) -> Vec<DropCount> {
    let mut counts: BTreeMap<Option<u8>, u64> = BTreeMap::new();
    for drop in &records.drops {
        let location = Location {
            node: drop.node,
            interface: drop.egress_if,
            queue: drop.queue,
        };
        // A drop that names no queue or port may be of this one.
        if filter.location().may_equal(&location) {
            *counts.entry(drop.reason).or_default() += 1;
        }
    }
    counts
        .into_iter()
        .map(|(reason, count)| DropCount {
            reason,
            name: reason.and_then(|code| reasons.get(&code).cloned()),
            count,
        })
        .collect()
}

fn changes(records: &QueueRecords, max_flows: usize) -> Vec<ChangeView> {
    let mut by_flow: HashMap<Option<FlowKey>, ChangeView> = HashMap::new();
    for row in &records.changes {
        let flow = row.event.flow;
        let view = by_flow.entry(flow).or_insert_with(|| ChangeView {
            flow: flow.map(Flow::from),
            text: flow.map(|flow| flow.to_string()),
            changes: 0,
            latency: 0,
        });
        view.changes += 1;
        view.latency = view.latency.max(row.event.value.unwrap_or(0));
    }
    let mut views: Vec<ChangeView> = by_flow.into_values().collect();
    views.sort_by(|left, right| right.latency.cmp(&left.latency).then(left.text.cmp(&right.text)));
    views.truncate(max_flows);
    views
}

/// Builds the view of the burst that the stored reports of a queue show. `stamp_ns` has the length of a tick of each report's
/// timestamp.
fn burst_view(
    records: &QueueRecords,
    filter: QueueFilter,
    stamp_ns: &[u32],
    reasons: &BTreeMap<u8, String>,
    max_flows: usize,
) -> BurstView {
    let passages = local_passages(&records.passages, &records.windows, stamp_ns);
    let burst = burst::analyse(passages.clone());
    let clock = ClockOffset::new(&burst, &records.passages, &passages);
    let flows = burst.flows.iter().take(max_flows);
    let exported = records.exported.as_ref();
    BurstView {
        node: filter.node,
        queue: filter.queue,
        interface: filter.interface,
        truncated: records.truncated
            || records.drops.len() >= MAX_EVENTS
            || records.changes.len() >= MAX_EVENTS,
        recordings: records.recordings.iter().map(RecordingView::from).collect(),
        peak: burst.peak.map(|(ts, _)| clock.to_local(ts)),
        occupancy: burst.peak.and_then(|(_, occupancy)| occupancy),
        measured: None,
        begun: burst.peak.map(|_| clock.to_local(burst.begun)),
        rise: burst.rise,
        reports: burst.reports,
        total_flows: burst.flows.len(),
        flows: flows.map(|part| flow_view(part, records, &clock)).collect(),
        packets: packets(&burst, passages, &clock, max_flows),
        drops: drops(records, &filter, reasons),
        changes: changes(records, max_flows),
        lacks: exported.map(missing_parts).unwrap_or_default(),
        collectors: exported.map_or_else(Vec::new, |data| data.collectors.clone()),
    }
}

/// Converts stored reports to passages with times in ns, and with weights that compensate sampling. `stamp_ns` has the length
/// of a tick of each report's timestamp.
fn local_passages(rows: &[PassageRow], windows: &[RecordingWindow], stamp_ns: &[u32]) -> Vec<Passage> {
    let times = clock::local_times(rows, stamp_ns);
    let passages = rows.iter().zip(times).map(|(row, ts)| Passage {
        ts,
        weight: weight_at(windows, row.ts),
        ..row.passage
    });
    passages.collect()
}

/// Builds the view of a flow's part in a burst, with the path of its latest report.
fn flow_view(part: &burst::FlowShare, records: &QueueRecords, clock: &ClockOffset) -> PartView {
    let mut rows = records.passages.iter().rev();
    let latest = rows.find(|row| row.passage.flow == part.flow);
    PartView {
        first: clock.to_local(part.first),
        last: clock.to_local(part.last),
        ..PartView::new(part, latest.map_or(&[][..], |row| &row.path[..]))
    }
}

/// Returns the sampling factor at `ts` (1 in this many reports is stored): the largest of the windows that cover `ts`.
fn weight_at(windows: &[RecordingWindow], ts: u64) -> u64 {
    let begun_before = &windows[..windows.partition_point(|window| window.since <= ts)];
    let covering = begun_before.iter().rev().take_while(|window| window.until >= ts);
    covering.map(|window| window.one_in).max().unwrap_or(1)
}

/// Returns the packets in the order of time, thinned evenly to [`MAX_PACKETS`]. The packet at the peak is always included.
fn packets(
    burst: &Burst,
    mut passages: Vec<Passage>,
    clock: &ClockOffset,
    max_flows: usize,
) -> Vec<PassageView> {
    let flow_index: HashMap<Option<FlowKey>, usize> = burst
        .flows
        .iter()
        .take(max_flows)
        .enumerate()
        .map(|(index, part)| (part.flow, index))
        .collect();
    passages.sort_by_key(|passage| passage.ts);
    let stride = passages.len().div_ceil(MAX_PACKETS).max(1);
    let peak = burst
        .peak
        .and_then(|(ts, _)| passages.iter().position(|passage| passage.ts == ts));
    let thinned = passages
        .iter()
        .enumerate()
        .filter(|(index, _)| index % stride == 0 || Some(*index) == peak);
    thinned
        .map(|(_, passage)| PassageView {
            ts: clock.to_local(passage.ts),
            flow: flow_index.get(&passage.flow).copied(),
            occupancy: passage.occupancy,
            latency: passage.latency,
        })
        .collect()
}

/// Shift of all times, after which the peak has the receive time of its report.
struct ClockOffset {
    device_peak: u64,
    local_peak: u64,
}

impl ClockOffset {
    fn new(burst: &Burst, rows: &[PassageRow], passages: &[Passage]) -> Self {
        let device_peak = burst.peak.map_or(0, |(ts, _)| ts);
        let index = passages.iter().position(|passage| passage.ts == device_peak);
        let row = index.and_then(|index| rows.get(index));
        Self {
            device_peak,
            local_peak: row.map_or(device_peak, |row| row.ts),
        }
    }

    fn to_local(&self, device_ts: u64) -> u64 {
        match device_ts.checked_sub(self.device_peak) {
            Some(later) => self.local_peak.saturating_add(later),
            None => self.local_peak.saturating_sub(self.device_peak - device_ts),
        }
    }
}

/// Lengths of a tick of device timestamps, ns, by node and by source of reports.
struct TickResolver {
    nodes: BTreeMap<u32, u32>,
    sources: Vec<(detect::Prefix, u32)>,
    default: u32,
}

impl TickResolver {
    /// Resolver for exported records, whose times are already in ns.
    const NANOS: Self = Self {
        nodes: BTreeMap::new(),
        sources: Vec::new(),
        default: 1,
    };

    fn new(context: &Context) -> Self {
        let settings = context.active_config.get();
        let (default, by_source) = settings.collect().resolve_profiles();
        let nodes = settings.collect().node_profiles();
        Self {
            nodes: nodes
                .iter()
                .map(|(node, profile)| (*node, profile.timestamp_unit_ns))
                .collect(),
            sources: by_source
                .iter()
                .map(|(prefix, profile)| (*prefix, profile.timestamp_unit_ns))
                .collect(),
            default: default.timestamp_unit_ns,
        }
    }

    /// Returns the tick length of each row. Each source is looked up once, since few sources report on one node.
    fn for_rows(&self, node: u32, rows: &[PassageRow]) -> Vec<u32> {
        let mut by_source: HashMap<&str, u32> = HashMap::new();
        rows.iter()
            .map(|row| {
                *by_source
                    .entry(&row.source)
                    .or_insert_with(|| self.for_source(node, &row.source))
            })
            .collect()
    }

    fn for_source(&self, node: u32, source: &str) -> u32 {
        if let Some(tick) = self.nodes.get(&node) {
            return *tick;
        }
        let address = source.parse().ok();
        let matching = self
            .sources
            .iter()
            .filter(|(prefix, _)| address.is_some_and(|address| prefix.contains(address)));
        matching
            .max_by_key(|(prefix, _)| prefix.len())
            .map_or(self.default, |(_, tick)| *tick)
    }
}

/// Parses the time span; the default is the last 15 minutes. A span that would end before its start is empty.
fn span(params: &Params) -> Result<(u64, u64), Refusal> {
    let to = params.number("to")?.unwrap_or_else(nic::time::now).min(MAX_TIME);
    let from = params
        .number("from")?
        .unwrap_or_else(|| to.saturating_sub(DEFAULT_SPAN));
    Ok((from.min(to), to))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_span_has_more_columns_than_were_asked_for() {
        let columns = HEAT.iter().find(|param| param.name == "columns");
        let Some(Form::Integer { min, max, .. }) = columns.map(|param| param.form) else {
            panic!("columns are a number");
        };
        let spans = [
            0,
            1,
            SECOND - 1,
            59 * SECOND,
            MAX_FINE_SPAN,
            MAX_FINE_SPAN + 1,
            86_400 * SECOND,
        ];
        for span in spans {
            for columns in [min, 3, 180, max] {
                let column = column_grid(span, columns).width;
                // The worst start is just before the end of a column.
                for from in [0, 1, column - 1, 7 * column - 1] {
                    let count = (from + span).div_ceil(column) - from / column;
                    assert!(
                        count <= columns,
                        "{span} ns from {from} ns: {count} columns, not {columns}"
                    );
                }
            }
        }
    }
}
