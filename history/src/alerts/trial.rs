//! Trial run of a rule: computes when it would have fired, by evaluating it over stored events in time order.
//!
//! The collector evaluates rules for every report, but most reports leave no stored event. A stored value is therefore assumed
//! to hold until the next event of its source, which comes when it changes by more than its threshold, or until the stored data
//! show that reports stopped ([`Holding`]). A silent flow is not evaluated; as in the collector, a firing rule keeps firing
//! until the flow's next report or its expiry. Queue events name no flow, and flows do not tell their queue, so a flow sees the
//! fullest queue and the busiest link of each node on its path.
//!
//! The events of one report have one time, and come in any order. So a flow is evaluated once all events of a time were read:
//! in between, old values of some nodes would stand beside new ones of others.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};

use collector::{Event, Kind, Location};
use detect::{HopValues, Metric, Observation, RuleSet, observation::NO_NODE};
use store::EventRow;
use wire::FlowKey;

use view::{FiringView, Trial as TrialView};

/// Maximum number of firings returned; more are only counted.
const MAX_FIRINGS: usize = 200;
/// Maximum number of columns.
const MAX_COLUMNS: usize = 1_000;
/// Budget of steps; each hop or level takes about 10 ns.
const MAX_STEPS: u64 = 10_000_000;

/// State of a trial run.
#[derive(Debug)]
pub struct Trial {
    rules: RuleSet,
    range: TrialRange,
    flows: HashMap<FlowKey, FlowState>,
    /// Flows by the nodes on their paths.
    flows_by_node: HashMap<u32, BTreeSet<FlowKey>>,
    nodes: HashMap<u32, NodeLevels>,
    /// Time of the events that were read last, ns.
    now: u64,
    /// Flows to be evaluated at this time.
    due: BTreeSet<FlowKey>,
    /// Values that changed at this time.
    changed: HashSet<Changed>,
    /// Remaining budget of evaluation steps.
    steps_left: u64,
    firing_count: u64,
    counts: Vec<u64>,
    fired_for: BTreeSet<FlowKey>,
    firings: VecDeque<FiringView>,
    /// Number of firings dropped from the front of the list.
    dropped_firings: usize,
    scratch: Vec<HopValues>,
}

/// The time range in which the rule is evaluated.
#[derive(Clone, Copy, Debug)]
pub struct TrialRange {
    /// Start of the range, ns since 1970. Earlier events only give the state at the start.
    pub from: u64,
    /// End of the range, ns since 1970.
    pub to: u64,
    /// Length of the columns in which firings are counted, ns.
    pub column: u64,
}

/// Times after which missing events show that no report came.
#[derive(Clone, Copy, Default, Debug)]
pub struct Holding {
    /// Maximum interval at which an active flow's latest value is stored, ns; 0 if it is not stored periodically.
    pub longest: u64,
    /// Time without reports after which flows, queues and links expire, ns.
    pub timeout: u64,
}

impl Holding {
    /// Returns the time until which each row's value holds, at most `to`. `rows` are newest first.
    pub fn ends(self, rows: &[EventRow], to: u64) -> Vec<u64> {
        let mut nexts = HashMap::new();
        let ends = rows.iter().map(|EventRow { event, .. }| {
            let source = Source::from_event(event);
            let next = source.and_then(|source| nexts.insert(source, (event.ts, event.kind)));
            match next {
                Some((ts, Kind::Expired)) => ts.saturating_sub(self.timeout).max(event.ts),
                next => {
                    let next = next.map_or(to, |(ts, _)| ts);
                    let is_pushed = self.longest > 0 && matches!(source, Some(Source::Flow(_)));
                    let is_silent = is_pushed && next.saturating_sub(event.ts) > self.longest;
                    if is_silent { event.ts } else { next }
                }
            }
        });
        ends.collect()
    }
}

/// The source of values: a flow, or a queue or link of a node.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Source {
    Flow(FlowKey),
    Level(Metric, Location),
}

impl Source {
    /// Returns the source of an event's value or expiry, or `None` if the event has neither.
    fn from_event(event: &Event) -> Option<Self> {
        match (event.flow, event.node) {
            (Some(flow), _) => (has_value(event) || event.kind == Kind::Expired).then_some(Self::Flow(flow)),
            (None, Some(_)) => Some(Self::Level(event.metric?, event.location())),
            (None, None) => None,
        }
    }
}

/// Returns true if an event carries a value from a flow's report.
fn has_value(event: &Event) -> bool {
    use Kind::{Change, Latest, New, PathChange, PathLoop};
    matches!(event.kind, New | Change | PathChange | PathLoop | Latest) && event.metric.is_some()
}

/// A value that an event changed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Changed {
    flow: Option<FlowKey>,
    metric: Metric,
    location: Location,
}

impl Changed {
    /// Returns the value that an event changed; `None` for other events.
    fn from_event(event: &Event) -> Option<Self> {
        let is_change = matches!(event.kind, Kind::New | Kind::Change | Kind::PathChange);
        Some(Self {
            flow: event.flow,
            metric: event.metric.filter(|_| is_change)?,
            location: event.location(),
        })
    }
}

/// The state of a flow.
#[derive(Debug, Default)]
struct FlowState {
    /// The flow may send reports until this time, ns.
    until: u64,
    path: Vec<u32>,
    /// The path visits a node twice, ignoring unknown nodes.
    looped: bool,
    flow_latency: Option<u64>,
    /// Hop latencies by node, ns.
    latencies: BTreeMap<u32, u64>,
    /// Set while the rule fires: the number of the firing, or `None` if it began before the range.
    firing: Option<Option<usize>>,
}

/// The state of a node: the latest values of its queues and links.
type NodeLevels = BTreeMap<(Metric, Location), Level>;

/// A value of a queue or link, and the time until which it holds (ns).
#[derive(Clone, Copy, Debug)]
struct Level {
    value: u64,
    until: u64,
}

impl Trial {
    /// Prepares a trial of the first rule of `rules` over a range. The rule must not use history.
    pub fn new(rules: RuleSet, range: TrialRange) -> Self {
        let parts = range.to.saturating_sub(range.from).div_ceil(range.column.max(1));
        let counts = vec![0; usize::try_from(parts).unwrap_or(0).clamp(1, MAX_COLUMNS)];
        Self {
            rules,
            range,
            flows: HashMap::new(),
            flows_by_node: HashMap::new(),
            nodes: HashMap::new(),
            now: 0,
            due: BTreeSet::new(),
            changed: HashSet::new(),
            steps_left: MAX_STEPS,
            firing_count: 0,
            counts,
            fired_for: BTreeSet::new(),
            firings: VecDeque::new(),
            dropped_firings: 0,
            scratch: Vec::new(),
        }
    }

    /// Processes an event whose value holds until `end`. Returns false once the step budget is used up: this event and later
    /// ones are not evaluated.
    pub fn read(&mut self, row: &EventRow, end: u64) -> bool {
        let event = &row.event;
        // A value that changes twice at one time belongs to two reports.
        let changed = Changed::from_event(event);
        if event.ts != self.now || changed.is_some_and(|changed| self.changed.contains(&changed)) {
            self.evaluate_due();
        }
        self.now = event.ts;
        self.changed.extend(changed);
        match (event.flow, event.node) {
            (Some(flow), _) => self.read_flow(flow, row, end),
            (None, Some(node)) => self.read_node(node, event, end),
            (None, None) => {}
        }
        self.steps_left > 0
    }

    fn read_flow(&mut self, flow: FlowKey, row: &EventRow, end: u64) {
        let EventRow {
            event, path, first, ..
        } = row;
        if event.kind == Kind::Expired {
            return self.forget(flow, event.ts);
        }
        let Some(metric) = event.metric.filter(|_| has_value(event)) else {
            return;
        };
        if !path.is_empty() && self.flows.get(&flow).is_none_or(|state| state.path != *path) {
            self.set_path(flow, path);
        }
        let state = self.flows.entry(flow).or_default();
        state.until = end;
        if let Some(first) = first {
            state.flow_latency = first.flow_latency.or(state.flow_latency);
            let latencies = path
                .iter()
                .zip(&first.hop_latencies)
                .filter(|(_, latency)| **latency != u32::MAX);
            state
                .latencies
                .extend(latencies.map(|(node, latency)| (*node, u64::from(*latency))));
        }
        match (metric, event.node, event.value) {
            (Metric::FlowLatency, _, value) => state.flow_latency = value.or(state.flow_latency),
            (Metric::HopLatency, Some(node), Some(value)) => _ = state.latencies.insert(node, value),
            _ => {}
        }
        self.due.insert(flow);
    }

    fn set_path(&mut self, flow: FlowKey, path: &[u32]) {
        let state = self.flows.entry(flow).or_default();
        let old_path = std::mem::replace(&mut state.path, path.to_vec());
        state.looped =
            (1..path.len()).any(|index| path[index] != NO_NODE && path[..index].contains(&path[index]));
        for node in old_path {
            if let Some(flows) = self.flows_by_node.get_mut(&node) {
                flows.remove(&flow);
            }
        }
        for node in path {
            self.flows_by_node.entry(*node).or_default().insert(flow);
        }
    }

    fn read_node(&mut self, node: u32, event: &Event, end: u64) {
        let Some(metric) = event.metric else { return };
        let levels = self.nodes.entry(node).or_default();
        let value = event
            .value
            .filter(|_| matches!(event.kind, Kind::New | Kind::Change));
        let level = value.map(|value| Level { value, until: end });
        if value.is_none() && event.kind != Kind::Expired {
            return;
        }
        if matches!(
            metric,
            Metric::FlowPath | Metric::FlowLatency | Metric::HopLatency
        ) {
            return;
        }
        let key = (metric, event.location());
        match level {
            Some(level) => _ = levels.insert(key, level),
            None => _ = levels.remove(&key),
        }
        if self.rules.uses(metric) {
            self.due
                .extend(self.flows_by_node.get(&node).into_iter().flatten());
        }
    }

    fn forget(&mut self, flow: FlowKey, ts: u64) {
        self.set_path(flow, &[]);
        if let Some(FlowState {
            firing: Some(number), ..
        }) = self.flows.remove(&flow)
        {
            self.end(number, ts);
        }
    }

    /// Evaluates the flows with events at the time that was read last.
    fn evaluate_due(&mut self) {
        self.changed.clear();
        for flow in std::mem::take(&mut self.due) {
            self.evaluate(flow, self.now);
        }
    }

    fn evaluate(&mut self, flow: FlowKey, ts: u64) {
        let Some(state) = self
            .flows
            .get_mut(&flow)
            .filter(|state| self.steps_left > 0 && ts <= state.until)
        else {
            return;
        };
        // The cost is the number of values read.
        let levels = state
            .path
            .iter()
            .filter_map(|node| self.nodes.get(node))
            .map(NodeLevels::len)
            .sum::<usize>();
        self.steps_left = self
            .steps_left
            .saturating_sub((1 + state.path.len() + levels) as u64);
        self.scratch.clear();
        self.scratch.extend(
            state
                .path
                .iter()
                .map(|node| hop(*node, state, self.nodes.get(node), ts)),
        );
        let FlowState {
            flow_latency, looped, ..
        } = *state;
        let observation = Observation {
            flow_latency,
            looped,
            hops: &self.scratch,
        };
        let is_true = self.rules.evaluate(&observation) & 1 == 1;
        let previous = state.firing;
        match (previous, is_true) {
            (None, true) if ts < self.range.from => state.firing = Some(None),
            (None, true) => {
                let decisive = self.rules.decisive(0, true, &observation, &[]);
                let node = decisive
                    .and_then(|decisive| self.scratch.get(decisive.hop?))
                    .map(|hop| hop.node);
                self.firings.push_back(FiringView {
                    ts,
                    until: None,
                    flow: flow.into(),
                    text: flow.to_string(),
                    metric: decisive.map(|decisive| decisive.metric().name().into()),
                    value: decisive.and_then(|decisive| decisive.value),
                    node,
                });
                state.firing = Some(Some(self.dropped_firings + self.firings.len() - 1));
                if self.firings.len() > MAX_FIRINGS {
                    self.firings.pop_front();
                    self.dropped_firings += 1;
                }
                self.firing_count += 1;
                self.fired_for.insert(flow);
                let part = ts.saturating_sub(self.range.from) / self.range.column.max(1);
                let last = self.counts.len() - 1;
                self.counts[usize::try_from(part).unwrap_or(last).min(last)] += 1;
            }
            (Some(number), false) => {
                state.firing = None;
                self.end(number, ts);
            }
            _ => {}
        }
    }

    fn end(&mut self, number: Option<usize>, ts: u64) {
        let index = number.and_then(|number| number.checked_sub(self.dropped_firings));
        if let Some(firing) = index.and_then(|index| self.firings.get_mut(index)) {
            firing.until = Some(ts);
        }
    }

    /// Returns the firings. `already` is the number of flows for which the rule fired at the start of the range.
    pub fn finish(mut self, already: usize) -> TrialView {
        self.evaluate_due();
        TrialView {
            from: self.range.from,
            to: self.range.to,
            times: self.firing_count,
            flows: self.fired_for.len(),
            already,
            column: self.range.column,
            counts: self.counts,
            firings: self.firings.into_iter().rev().collect(),
            ..TrialView::default()
        }
    }

    /// Returns the number of flows for which the rule fires after all events that were read.
    pub fn firing(&mut self) -> usize {
        self.evaluate_due();
        self.flows.values().filter(|state| state.firing.is_some()).count()
    }
}

/// Returns a node's values at a time, as a flow sees them.
fn hop(node: u32, state: &FlowState, levels: Option<&NodeLevels>, ts: u64) -> HopValues {
    let mut hop = HopValues {
        node,
        ..HopValues::NOTHING
    };
    hop.hop_latency = state.latencies.get(&node).copied().unwrap_or(hop.hop_latency);
    if let Some(levels) = levels {
        hop.queue_occupancy = max_level(levels, Metric::QueueOccupancy, ts).unwrap_or(hop.queue_occupancy);
        hop.queue_congestion = max_level(levels, Metric::QueueCongestion, ts).unwrap_or(hop.queue_congestion);
        hop.link_utilization = max_level(levels, Metric::LinkUtilization, ts).unwrap_or(hop.link_utilization);
    }
    hop
}

/// Returns the maximum of a metric's values that hold at a time.
fn max_level(levels: &NodeLevels, metric: Metric, ts: u64) -> Option<u64> {
    levels
        .range((metric, Location::default())..)
        .take_while(|((of, _), _)| *of == metric)
        .filter(|(_, level)| ts <= level.until)
        .map(|(_, level)| level.value)
        .max()
}

#[cfg(test)]
mod tests {
    use super::*;
    use store::FirstRow;

    fn flow(port: u16) -> FlowKey {
        format!("10.0.0.1:{port}>10.0.0.2:80/6").parse().unwrap()
    }

    fn row(event: Event) -> EventRow {
        EventRow {
            event,
            rule: None,
            path: Vec::new(),
            first: None,
        }
    }

    fn path(ts: u64, port: u16, path: &[u32]) -> EventRow {
        let event = Event {
            kind: Kind::New,
            metric: Some(Metric::FlowPath),
            flow: Some(flow(port)),
            ..testkit::records::bare(ts)
        };
        let first = FirstRow {
            flow_latency: Some(1_000),
            hop_latencies: vec![400; path.len()],
            ..FirstRow::default()
        };
        EventRow {
            path: path.to_vec(),
            first: Some(first),
            ..row(event)
        }
    }

    fn queue(ts: u64, node: u32, queue: u8, value: u64) -> EventRow {
        let metric = Some(Metric::QueueOccupancy);
        row(Event {
            metric,
            node: Some(node),
            queue: Some(queue),
            value: Some(value),
            ..testkit::records::bare(ts)
        })
    }

    fn latency(ts: u64, port: u16, value: u64) -> EventRow {
        let metric = Some(Metric::FlowLatency);
        row(Event {
            metric,
            flow: Some(flow(port)),
            value: Some(value),
            ..testkit::records::bare(ts)
        })
    }

    fn tried(when: &str, rows: &[EventRow]) -> TrialView {
        tried_with(Holding::default(), when, rows)
    }

    fn tried_with(holding: Holding, when: &str, rows: &[EventRow]) -> TrialView {
        let rules = RuleSet::compile(&[("r".to_owned(), when.to_owned())]).unwrap();
        let mut trial = Trial::new(
            rules,
            TrialRange {
                from: 100,
                to: 200,
                column: 10,
            },
        );
        let mut already = None;
        let newest_first: Vec<_> = rows.iter().rev().cloned().collect();
        let ends = holding.ends(&newest_first, u64::MAX);
        for (row, end) in rows.iter().zip(ends.into_iter().rev()) {
            if row.event.ts >= 100 && already.is_none() {
                already = Some(trial.firing());
            }
            assert!(trial.read(row, end));
        }
        let already = already.unwrap_or_else(|| trial.firing());
        trial.finish(already)
    }

    #[test]
    fn a_rule_fires_when_stored_values_say_so() {
        let rows = [
            path(10, 1, &[7, 8]),
            path(10, 2, &[9]),
            queue(20, 8, 0, 5),
            queue(110, 8, 0, 80),
            queue(112, 8, 1, 90),
            queue(120, 8, 0, 10),
            queue(130, 8, 1, 10),
            latency(150, 1, 9_000_000),
            queue(155, 8, 0, 60),
        ];
        let found = tried("max(queue_occupancy) > 50", &rows);
        assert_eq!((found.times, found.flows, found.already), (2, 1, 0));
        let of = |firing: &FiringView| {
            (
                firing.ts,
                firing.until,
                firing.text.clone(),
                firing.value,
                firing.node,
            )
        };
        let name = flow(1).to_string();
        assert_eq!(
            found.firings.iter().map(of).collect::<Vec<_>>(),
            [
                (155, None, name.clone(), Some(60), Some(8)),
                (110, Some(130), name, Some(80), Some(8))
            ],
            "the second queue is still full at 120"
        );
        assert_eq!(found.counts, [0, 1, 0, 0, 0, 1, 0, 0, 0, 0]);
        assert_eq!(
            tried("max(queue_occupancy) > 50 and flow_latency > 1ms", &rows).times,
            1
        );
        assert_eq!(
            tried("queue_occupancy@7 > 1", &rows).times,
            0,
            "nothing is known of that queue"
        );
        assert_eq!(
            tried("hops > 1", &rows).already,
            1,
            "true before the range, and not in it"
        );
        assert_eq!(tried("hop_latency > 300ns", &rows).already, 2);
    }

    #[test]
    fn a_flow_that_ends_or_takes_another_path_ends_its_firing() {
        let gone = Event {
            kind: Kind::Expired,
            metric: Some(Metric::FlowPath),
            flow: Some(flow(1)),
            ..testkit::records::bare(130)
        };
        let rows = [
            path(10, 1, &[7]),
            queue(110, 7, 0, 80),
            row(gone),
            queue(140, 7, 0, 90),
        ];
        let found = tried("queue_occupancy > 50", &rows);
        assert_eq!((found.times, found.firings[0].until), (1, Some(130)));
        let mut other = path(120, 1, &[9]);
        other.event.kind = Kind::PathChange;
        let rows = [
            path(10, 1, &[7]),
            queue(110, 7, 0, 80),
            other,
            queue(150, 7, 0, 90),
        ];
        let found = tried("queue_occupancy > 50", &rows);
        assert_eq!((found.times, found.firings[0].until), (1, Some(120)));
    }

    #[test]
    fn what_is_silent_is_not_judged() {
        let holding = Holding {
            longest: 90,
            timeout: 60,
        };
        let found = |rows: &[EventRow]| {
            [Holding::default(), holding].map(|holding| {
                let found = tried_with(holding, "queue_occupancy > 50", rows);
                found
                    .firings
                    .iter()
                    .map(|firing| (firing.ts, firing.until))
                    .collect::<Vec<_>>()
            })
        };
        let expired = |event: Event| {
            row(Event {
                kind: Kind::Expired,
                ..event
            })
        };
        // The flow's latest value is not stored again: it sent nothing before 115.
        let late = [path(10, 1, &[7]), queue(110, 7, 0, 80), latency(115, 1, 1_000)];
        assert_eq!(found(&late), [vec![(110, None)], vec![(115, None)]]);
        assert_eq!(found(&late[..2]), [vec![(110, None)], vec![]]);
        // It expires: it sent nothing for 60 before that.
        let gone = expired(path(150, 1, &[]).event);
        let rows = [path(95, 1, &[7]), queue(110, 7, 0, 80), gone];
        assert_eq!(found(&rows), [vec![(110, Some(150))], vec![]]);
        // The queue expires: the flow takes another one.
        let reports = |ts| latency(ts, 1, 1_000);
        let rows = [
            path(10, 1, &[7]),
            reports(60),
            reports(105),
            queue(110, 7, 0, 80),
            reports(140),
        ];
        let rows = [&rows[..], &[expired(queue(180, 7, 0, 80).event)]].concat();
        assert_eq!(found(&rows), [vec![(110, Some(180))], vec![(110, Some(140))]]);
    }

    #[test]
    fn firings_are_bounded_and_counted() {
        let pulse = |n: u64| [queue(100 + n, 7, 0, 80), queue(100 + n, 7, 0, 10)];
        let rows: Vec<_> = [path(10, 1, &[7])]
            .into_iter()
            .chain((0..500).flat_map(pulse))
            .collect();
        let found = tried("queue_occupancy > 50", &rows);
        assert_eq!(
            (found.times, found.firings.len(), found.firings[0].ts),
            (500, MAX_FIRINGS, 599)
        );
        assert!(found.firings.iter().all(|one| one.until == Some(one.ts)));
        assert_eq!(found.counts.iter().sum::<u64>(), 500);
    }

    #[test]
    fn a_rule_is_evaluated_once_for_all_events_of_a_report() {
        let hop = |ts, node, value| {
            let mut row = latency(ts, 1, value);
            (row.event.metric, row.event.node) = (Some(Metric::HopLatency), Some(node));
            row
        };
        // Each report has one hop above 4 us, by turns the first and the second; its events come in any order.
        let first = FirstRow {
            hop_latencies: vec![100, 5_000],
            ..FirstRow::default()
        };
        let begin = EventRow {
            first: Some(first),
            ..path(110, 1, &[7, 8])
        };
        let mut rows = vec![begin];
        for ts in 111..130 {
            let [slow, fast] = if ts % 2 == 0 { [8, 7] } else { [7, 8] };
            let pair = [hop(ts, fast, 100), hop(ts, slow, 5_000)];
            rows.extend(if ts % 3 == 0 { [1, 0] } else { [0, 1] }.map(|at: usize| pair[at].clone()));
        }
        let found = tried("any(hop_latency > 4us)", &rows);
        let times = found.firings.iter().map(|one| (one.ts, one.until));
        assert_eq!(times.collect::<Vec<_>>(), [(110, None)]);
        assert_eq!(tried("all(hop_latency > 4us)", &rows).times, 0);
        // Two changes of one value at one time are those of two reports.
        let twice = [path(100, 1, &[7]), hop(110, 7, 9_000), hop(110, 7, 10)];
        assert_eq!(tried("hop_latency > 4us", &twice).times, 1);
    }

    #[test]
    fn nodes_that_are_not_known_are_no_loop() {
        let of = |nodes: &[u32]| tried("loop", &[path(110, 1, nodes)]).times;
        assert_eq!(
            [of(&[7, NO_NODE, NO_NODE, 8]), of(&[7, NO_NODE, 7]), of(&[7, 8])],
            [0, 1, 0]
        );
    }

    #[test]
    fn an_evaluation_costs_what_it_reads() {
        let rules = RuleSet::compile(&[("r".to_owned(), "queue_occupancy > 50".to_owned())]).unwrap();
        let mut trial = Trial::new(
            rules,
            TrialRange {
                from: 100,
                to: 200,
                column: 10,
            },
        );
        let mut read = |row| {
            let before = trial.steps_left;
            let goes_on = trial.read(&row, u64::MAX);
            (before - trial.steps_left, goes_on)
        };
        // An event is evaluated when a later one is read.
        assert_eq!(read(path(110, 1, &[7, 8, 9])), (0, true));
        assert_eq!(read(queue(111, 8, 0, 5)), (4, true));
        assert_eq!(read(queue(112, 8, 1, 5)), (5, true));
        assert_eq!(read(queue(113, 8, 1, 90)), (6, true));
        trial.steps_left = 6;
        assert!(
            !trial.read(&queue(114, 8, 1, 5), u64::MAX),
            "it is used up, and nothing is judged any more"
        );
        assert_eq!((trial.steps_left, trial.firing_count, trial.firing()), (0, 1, 1));
    }
}
