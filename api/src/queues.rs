//! Queues over time, from the store: the heat map, bursts and the flows that caused them, and recordings.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use axum::extract::State;
use collector::flight::burst::{self, Burst, Passage};
use detect::Metric;
use store::{HeatFilter, MOST_COLUMNS, PassageRow, QueueFilter};
use wire::FlowKey;

use super::{
    context::Context,
    names,
    page::{self, Prepared},
    params::{FROM, NODE, Param, Params, Segment, TO},
    question::{history_of, place, respond},
    refusal::Refusal,
};
use history::{Exported, QueueQuestion, QueueRecords, RecordingQuestion};
use view::{
    BurstView, ChangeView, DropCount, Flow, HeatRowView, HeatView, PartView, PassageView, RecorderView,
    RecordingView, Recordings,
};

/// The parameters of `/queues`.
pub(super) const HEAT: &[Param] = &[
    Param::new(
        "metric",
        "The metric; default: queue_occupancy.",
        super::params::Form::OneOf(|| METRICS.map(Metric::name).to_vec()),
    ),
    START,
    END,
    NODE,
    Param::new(
        "columns",
        "Maximum number of columns.",
        super::params::Form::Integer {
            min: 1,
            max: MOST_COLUMNS as u64,
            default: Some(180),
        },
    ),
    Param::limit(50, 500),
];

/// The parameters of `/queues/burst`.
pub(super) const BURST: &[Param] = &[
    NODE,
    Param::integer("queue", "Only this queue.", 0, u8::MAX as u64),
    FROM,
    TO,
    Param::limit(20, 200),
];

/// The parameters of `/recordings`.
pub(super) const RECORDINGS: &[Param] = &[FROM, TO, NODE, Param::limit(200, 1_000)];

/// Returns the greatest value of each queue, node or link in each part of a span of time.
pub(crate) async fn heat(State(context): State<Arc<Context>>, params: Params) -> Result<Prepared, Refusal> {
    let params = params.only(HEAT)?;
    let metric = params.metric().unwrap_or(Metric::QueueOccupancy);
    let (from, to) = span(&params)?;
    let columns: u64 = params.number("columns")?.unwrap_or(1).max(1);
    let unit = if to - from <= FINE { SECOND } else { 60 * SECOND };
    // One column more may be needed, because both ends are rounded.
    let column = (to - from).div_ceil((columns - 1).max(1)).div_ceil(unit).max(1) * unit;
    // The longest rollups of which a column has a whole number.
    let interval = [3600, 600, 60]
        .into_iter()
        .find(|interval| unit > SECOND && column.is_multiple_of(u64::from(*interval) * SECOND))
        .unwrap_or(1);
    // Columns begin at whole multiples of their length, so that they stay the same while time passes.
    let from = from / column * column;
    let to = to.div_ceil(column).saturating_mul(column);
    let node = params.number("node")?;
    let filter = HeatFilter {
        metric,
        from,
        to,
        column,
        interval,
        node,
        limit: params.limit()?,
    };
    let place = place(&context).await?;
    let heat = history_of(&context)?.heat(filter, Arc::clone(&place)).await?;
    respond(place, move || {
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

/// Lists the recordings of the flight recorder.
pub(crate) async fn recordings(
    State(context): State<Arc<Context>>,
    params: Params,
) -> Result<Prepared, Refusal> {
    let params = params.only(RECORDINGS)?;
    let from = params.number("from")?.unwrap_or(0);
    let to = params.number("to")?.unwrap_or(u64::MAX);
    let node = params.number("node")?;
    let limit = params.limit()?;
    let recorder = context.monitor.flight_recorder().map(|counts| RecorderView {
        memory: counts.memory,
        reports: counts.reports,
        recorded: counts.stats.recorded,
        repeated: counts.stats.repeated,
        subjects_full: counts.stats.subjects_full,
        over_budget: counts.stats.over_budget,
        late: counts.stats.late,
        shed: counts.shed,
    });
    let place = place(&context).await?;
    let question = RecordingQuestion {
        span: (from, to),
        node,
        limit: limit + 1,
    };
    let rows = history_of(&context)?
        .recordings(question, Arc::clone(&place))
        .await?;
    respond(place, move || {
        let (recordings, more) = page::fill(rows.iter().take(limit).map(RecordingView::from), limit);
        Recordings {
            recordings,
            truncated: more || rows.len() > limit,
            recorder,
        }
    })
    .await
}

/// Returns the burst in a queue: the flows that filled it, and the packets that waited.
pub(crate) async fn burst(
    State(context): State<Arc<Context>>,
    Segment(node): Segment,
    params: Params,
) -> Result<Prepared, Refusal> {
    let params = params.only(BURST)?;
    let node = node.parse::<u32>();
    let node = node.map_err(|_| Refusal::bad("invalid node id; /api/v1/nodes lists them"))?;
    let queue = params.number("queue")?;
    let (from, to) = span(&params)?;
    let question = QueueQuestion {
        queue: QueueFilter {
            node,
            queue,
            from,
            to,
            limit: MOST_PASSAGES,
        },
        recordings: MOST_RECORDINGS,
        events: MOST_EVENTS,
    };
    let flows = params.limit()?;
    let reasons = context.active_config.get().collect().drop_reasons();
    let place = place(&context).await?;
    let records = history_of(&context)?.queue(question, Arc::clone(&place)).await?;
    let units = if records.exported.is_some() {
        Units::NANOS
    } else {
        Units::new(&context)
    };
    names::look_up(
        &context,
        records
            .passages
            .iter()
            .filter_map(|row| row.passage.flow.as_ref()),
    );
    respond(place, move || {
        let QueueRecords {
            recordings,
            windows,
            passages,
            truncated,
            ..
        } = &records;
        BurstView {
            node,
            queue,
            truncated: *truncated
                || records.drops.len() >= MOST_EVENTS
                || records.changes.len() >= MOST_EVENTS,
            recordings: recordings.iter().map(RecordingView::from).collect(),
            drops: drops(&records, queue, &reasons),
            changes: changes(&records, flows),
            lacks: records.exported.as_ref().map(lacks).unwrap_or_default(),
            collectors: records
                .exported
                .as_ref()
                .map(|exported| exported.collectors.clone())
                .unwrap_or_default(),
            ..view(passages, windows, &units, (node, flows))
        }
    })
    .await
}

/// Lists the parts of the answer that a console does not have.
fn lacks(exported: &Exported) -> Vec<String> {
    let packets = match exported.hops {
        true => {
            "The packets are those whose hops are exported: one report in so many, or those with an event, as each collector's export says (`sample`, `hop_reports`). Counts are of these."
        }
        false => {
            "Single packets are not exported: with the stream `hops`, a collector exports some, or those with an event."
        }
    };
    let recordings = "Recordings of the flight recorder are at the collectors.";
    let more = exported
        .more
        .then_some("More collectors than are named here received reports of the node in this time.");
    [packets, recordings]
        .into_iter()
        .chain(more)
        .map(str::to_owned)
        .collect()
}

fn drops(records: &QueueRecords, queue: Option<u8>, reasons: &BTreeMap<u8, String>) -> Vec<DropCount> {
    let mut counts: BTreeMap<Option<u8>, u64> = BTreeMap::new();
    for drop in &records.drops {
        if queue.is_none() || drop.queue.is_none() || drop.queue == queue {
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

fn changes(records: &QueueRecords, most: usize) -> Vec<ChangeView> {
    let mut flows: HashMap<Option<FlowKey>, (u64, u64)> = HashMap::new();
    for row in &records.changes {
        let (changes, latency) = flows.entry(row.event.flow).or_default();
        *changes += 1;
        *latency = (*latency).max(row.event.value.unwrap_or(0));
    }
    let views = flows.into_iter().map(|(flow, (changes, latency))| ChangeView {
        flow: flow.map(Flow::from),
        text: flow.map(|flow| flow.to_string()),
        changes,
        latency,
    });
    let mut all: Vec<ChangeView> = views.collect();
    all.sort_by(|one, other| other.latency.cmp(&one.latency).then(one.text.cmp(&other.text)));
    all.truncate(most);
    all
}

/// Describes the burst that the stored reports of a queue show.
fn view(
    rows: &[PassageRow],
    windows: &[(u64, u64, u64)],
    units: &Units,
    (node, most): (u32, usize),
) -> BurstView {
    let ticks = device_ticks(rows);
    let units = units.of_rows(node, rows);
    // Of reports without a time of the device, it is the receive time less the shortest way of one that has both.
    let lead = rows
        .iter()
        .enumerate()
        .filter_map(|(at, row)| {
            let device_time = ticks[at]?.saturating_mul(units[at].0);
            Some(i128::from(row.ts) - i128::from(device_time))
        })
        .min()
        .unwrap_or(0);
    let passages: Vec<Passage> = rows
        .iter()
        .enumerate()
        .map(|(at, row)| Passage {
            ts: ticks[at].map_or_else(
                || u64::try_from(i128::from(row.ts) - lead).unwrap_or(0),
                |ticks| ticks.saturating_mul(units[at].0),
            ),
            latency: row.passage.latency.map(|ticks| ticks.saturating_mul(units[at].1)),
            weight: weight_at(windows, row.ts),
            ..row.passage
        })
        .collect();
    let burst = burst::read(passages.clone());
    let shown = Shown::new(&burst, rows, &passages);
    let flows: Vec<PartView> = burst
        .flows
        .iter()
        .take(most)
        .map(|part| {
            let path = rows
                .iter()
                .rev()
                .find(|row| row.passage.flow == part.flow)
                .map(|row| &row.path[..]);
            let view = PartView::new(part, path.unwrap_or_default());
            PartView {
                first: shown.at(part.first),
                last: shown.at(part.last),
                ..view
            }
        })
        .collect();
    BurstView {
        peak: burst.peak.map(|(ts, _)| shown.at(ts)),
        occupancy: burst.peak.and_then(|(_, occupancy)| occupancy),
        begun: burst.peak.map(|_| shown.at(burst.begun)),
        rise: burst.rise,
        reports: burst.reports,
        total_flows: burst.flows.len(),
        packets: packets(&burst, passages, &shown, most),
        flows,
        ..BurstView::default()
    }
}

/// Returns the sampling factor in force at `ts`: 1 in this many reports was stored. Windows are in order; the
/// largest factor of those that cover `ts` counts.
fn weight_at(windows: &[(u64, u64, u64)], ts: u64) -> u64 {
    let begun = windows.partition_point(|(since, ..)| *since <= ts);
    let covering = windows[..begun]
        .iter()
        .rev()
        .take_while(|(_, until, _)| *until >= ts);
    covering.map(|(.., every)| *every).max().unwrap_or(1)
}

/// Returns device timestamps in order of arrival, unwrapped. 32-bit nanosecond timestamps wrap every 4.3 s;
/// each is assumed to be within half a wrap of the previous one.
fn device_ticks(rows: &[PassageRow]) -> Vec<Option<u64>> {
    let are_narrow = rows
        .iter()
        .filter(|row| row.by_device)
        .all(|row| row.passage.ts <= u64::from(u32::MAX));
    let mut last: Option<u64> = None;
    let mut all = Vec::with_capacity(rows.len());
    for row in rows {
        let ticks = row.by_device.then_some(row.passage.ts);
        let unwrapped = match ticks {
            Some(ticks) if are_narrow => Some(unwrap_ticks(last, ticks)),
            other => other,
        };
        last = unwrapped.or(last);
        all.push(unwrapped);
    }
    all
}

/// Extends a timestamp of 32 bits. `last` is the extended timestamp before it.
fn unwrap_ticks(last: Option<u64>, ticks: u64) -> u64 {
    match last {
        // Room for what came later and is earlier.
        None => ticks + (1 << 32),
        Some(last) => {
            let step = (ticks as u32).wrapping_sub(last as u32).cast_signed();
            last.saturating_add_signed(i64::from(step))
        }
    }
}

/// Returns the packets in the order of time, thinned evenly. The one that saw the peak is among them.
fn packets(burst: &Burst, mut passages: Vec<Passage>, shown: &Shown, most: usize) -> Vec<PassageView> {
    let places: HashMap<Option<FlowKey>, usize> = burst
        .flows
        .iter()
        .take(most)
        .enumerate()
        .map(|(place, part)| (part.flow, place))
        .collect();
    passages.sort_by_key(|passage| passage.ts);
    let every = passages.len().div_ceil(MOST_PACKETS).max(1);
    let peak = burst
        .peak
        .and_then(|(ts, _)| passages.iter().position(|passage| passage.ts == ts));
    let chosen = passages
        .iter()
        .enumerate()
        .filter(|(at, _)| at % every == 0 || Some(*at) == peak);
    chosen
        .map(|(_, passage)| PassageView {
            ts: shown.at(passage.ts),
            flow: places.get(&passage.flow).copied(),
            occupancy: passage.occupancy,
            latency: passage.latency,
        })
        .collect()
}

/// Turns a device's time into this machine's: both are the same at the peak.
struct Shown {
    device: u64,
    here: u64,
}

impl Shown {
    fn new(burst: &Burst, rows: &[PassageRow], passages: &[Passage]) -> Self {
        let device = burst.peak.map_or(0, |(ts, _)| ts);
        let at = passages.iter().position(|passage| passage.ts == device);
        Self {
            device,
            here: at.and_then(|at| rows.get(at)).map_or(device, |row| row.ts),
        }
    }

    fn at(&self, ts: u64) -> u64 {
        match ts.checked_sub(self.device) {
            Some(later) => self.here.saturating_add(later),
            None => self.here.saturating_sub(self.device - ts),
        }
    }
}

/// Lengths of ticks of timestamps and of hop latencies, ns.
struct Units {
    nodes: BTreeMap<u32, (u64, u64)>,
    sources: Vec<(detect::Prefix, (u64, u64))>,
    default: (u64, u64),
}

impl Units {
    /// The units of exported records.
    const NANOS: Self = Self {
        nodes: BTreeMap::new(),
        sources: Vec::new(),
        default: (1, 1),
    };

    fn new(context: &Context) -> Self {
        let settings = context.active_config.get();
        let (default, by_source) = settings.collect().resolve_profiles();
        let nodes = settings.collect().node_profiles();
        Self {
            nodes: nodes
                .iter()
                .map(|(node, profile)| (*node, profile_units(profile)))
                .collect(),
            sources: by_source
                .iter()
                .map(|(prefix, profile)| (*prefix, profile_units(profile)))
                .collect(),
            default: profile_units(&default),
        }
    }

    /// Returns the tick lengths of each row. Few sources report on a node: each is looked up once.
    fn of_rows(&self, node: u32, rows: &[PassageRow]) -> Vec<(u64, u64)> {
        let mut known: HashMap<&str, (u64, u64)> = HashMap::new();
        rows.iter()
            .map(|row| {
                *known
                    .entry(&row.source)
                    .or_insert_with(|| self.of(node, &row.source))
            })
            .collect()
    }

    fn of(&self, node: u32, source: &str) -> (u64, u64) {
        if let Some(units) = self.nodes.get(&node) {
            return *units;
        }
        let address = source.parse().ok();
        let found = self
            .sources
            .iter()
            .filter(|(prefix, _)| address.is_some_and(|one| prefix.contains(one)));
        found
            .max_by_key(|(prefix, _)| prefix.len())
            .map_or(self.default, |(_, units)| *units)
    }
}

/// Returns the units of timestamps and latencies, ns.
fn profile_units(profile: &collector::Profile) -> (u64, u64) {
    (
        u64::from(profile.timestamp_unit_ns),
        u64::from(profile.latency_unit_ns),
    )
}

/// Parses the time range; the default is the last 15 minutes. A range that ends before it begins is empty.
fn span(params: &Params) -> Result<(u64, u64), Refusal> {
    let to = params.number("to")?.unwrap_or_else(nic::time::now).min(LATEST);
    let from = params
        .number("from")?
        .unwrap_or_else(|| to.saturating_sub(FINE / 2));
    Ok((from.min(to), to))
}

const START: Param = Param::new(
    "from",
    "Start of the time; default: 15 minutes before its end.",
    super::params::Form::Time,
);
const END: Param = Param::new("to", "End of the time; default: now.", super::params::Form::Time);
/// Metrics of nodes, queues and links.
const METRICS: [Metric; 4] = [
    Metric::QueueOccupancy,
    Metric::QueueCongestion,
    Metric::HopLatency,
    Metric::LinkUtilization,
];
const SECOND: u64 = 1_000_000_000;
/// The latest time that the store can hold.
const LATEST: u64 = i64::MAX as u64;
/// Longest time of which rollups of one second are read: half an hour.
const FINE: u64 = 1_800 * SECOND;
/// Reports that are read for one answer.
const MOST_PASSAGES: usize = 20_000;
const MOST_RECORDINGS: usize = 50;
const MOST_PACKETS: usize = 2_000;
const MOST_EVENTS: usize = 5_000;
