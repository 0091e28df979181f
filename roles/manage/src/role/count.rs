//! Counts the collector's reports for the flows of each intent, as evidence for the verifier, and estimates the rate of
//! reports of a planned intent.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet, HashMap},
    time::Duration,
};

use collector::{Collector, FlowRow, FlowView};
use detect::Match;
use manager::{
    device::{Mode, NodeId},
    instruction::{self, Bits},
    verify::IntentCounters,
};
use wire::FlowKey;

use super::clock::Now;
use runtime::monitor::CollectorMonitor;
use runtime::slice;

/// Instruction bits whose values the collector stores by flow and node: node ID, hop latency, queue occupancy, link
/// utilization.
const COMPARED: Bits = 0x8000 | 0x2000 | 0x1000 | 0x0100;
const SECOND: Duration = Duration::from_secs(1);
/// Time within which reports yield a flow's path, ns. Not every report carries the path, and postcards must be joined.
const SETTLED: u64 = 10_000_000_000;
/// Maximum number of comparisons of a flow with an entry per count.
const COMPARISONS: usize = 20_000_000;
/// Maximum number of flows per count.
const MAX_FLOWS: usize = 100_000;

/// An intent whose flows are counted.
#[derive(Clone, Debug)]
pub(super) struct Watched {
    /// Name of the intent.
    pub(super) name: String,
    /// Matches of the flows that it measures.
    pub(super) flows: Vec<Match>,
    /// Instruction bits that each node should fill.
    pub(super) bits: Bits,
    /// INT mode of the measurement.
    pub(super) mode: Mode,
    /// True if the intent has a budget of events, so that its events are counted.
    pub(super) events: bool,
}

/// A flow of the collector with its counts.
#[derive(Clone, Debug)]
struct Counted {
    flow: FlowKey,
    /// The worker that tracks it; several workers may have reports of one flow.
    worker: usize,
    reports: u64,
    /// When it was first and last reported, by the clock of the collector as it was set then.
    first_seen: u64,
    last_seen: u64,
    /// The same by the steady clock, once it is compared with the last count.
    seen: Seen,
    /// Reports since the previous count.
    more: NewReports,
    /// Nodes of its path, with the instruction bits that each has filled.
    nodes: Vec<(NodeId, Bits)>,
    /// True if the flow's path is known completely.
    complete: bool,
    /// It has none although it has been reported for [`SETTLED`], and still is; likewise.
    without_path: bool,
}

/// When a flow was first and last reported, ns, by the steady clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Seen {
    first: u64,
    last: u64,
}

/// Numbers of reports that name a node, and of reports with a complete path.
#[derive(Clone, Copy, Debug, Default)]
struct NewReports {
    reports: u64,
    complete: u64,
}

/// A flow at the last count.
#[derive(Clone, Copy, Debug)]
struct LastCount {
    /// When the collector first saw it, by its clock; see [`LastCount::is_same`].
    first_seen: u64,
    reports: u64,
    counted: NewReports,
    seen: Seen,
}

impl LastCount {
    /// Returns whether the collector has had the flow since this count. A flow that came again was first seen later, and so does
    /// not count on; a clock that is set back lowers the time at which a flow was first seen.
    fn is_same(&self, flow: &Counted) -> bool {
        flow.first_seen == self.first_seen
            || flow.first_seen < self.first_seen && flow.reports >= self.reports
    }
}

/// The previous count of each flow. Intents add only increments, so that evicting a flow does not reduce their totals.
#[derive(Debug, Default)]
pub(super) struct Counting {
    /// By worker and flow.
    flows: HashMap<(usize, FlowKey), LastCount>,
    /// Time of the previous count, by both clocks.
    counted_at: Option<Now>,
    /// The previous count covered only part of the flows.
    partial: bool,
}

impl Counting {
    /// Computes the increment of each flow since the previous count.
    fn compare(&mut self, flows: &mut [Counted], partial: bool, now: Now) {
        let mut counted = HashMap::with_capacity(flows.len());
        for flow in flows {
            let all = flow.counted();
            let key = (flow.worker, flow.flow);
            let known = self.flows.get(&key).filter(|before| before.is_same(flow));
            let before = match known {
                Some(before) => before.counted,
                // The flow may have been omitted from the partial count, so its increment is unknown: assume none.
                None if self.partial && self.may_have_been_there(flow, now) => all,
                None => NewReports::default(),
            };
            flow.seen = self.seen(flow, known, now);
            flow.without_path = !flow.complete && is_settled(flow.seen, now.steady);
            flow.more = NewReports {
                reports: all.reports.saturating_sub(before.reports),
                complete: all.complete.saturating_sub(before.complete),
            };
            // Keep the maximum, so that a path that becomes incomplete and complete again does not count twice.
            let most = NewReports {
                reports: all.reports.max(before.reports),
                complete: all.complete.max(before.complete),
            };
            let last = LastCount {
                first_seen: flow.first_seen,
                reports: flow.reports,
                counted: most,
                seen: flow.seen,
            };
            counted.insert(key, last);
        }
        *self = Self {
            flows: counted,
            counted_at: Some(now),
            partial,
        };
    }

    /// Whether a flow may have been reported before the last count. A step of the clock since then leaves it open.
    fn may_have_been_there(&self, flow: &Counted, now: Now) -> bool {
        self.counted_at
            .is_some_and(|counted| flow.first_seen <= counted.wall || now.is_set_since(counted))
    }

    /// Returns when a flow was reported, by the steady clock. Only reports since the last count are new, so that the collector's times say
    /// when within this span they arrived, and a step of its clock moves them no further.
    fn seen(&self, flow: &Counted, before: Option<&LastCount>, now: Now) -> Seen {
        let counted_at = self.counted_at.map_or(0, |counted| counted.steady);
        let last = now.to_steady(flow.last_seen);
        match before {
            Some(before) if before.reports == flow.reports => before.seen,
            Some(before) => Seen {
                last: last.max(counted_at).min(now.steady),
                ..before.seen
            },
            None => {
                let last = last.min(now.steady);
                let first = now.to_steady(flow.first_seen).min(last);
                Seen { first, last }
            }
        }
    }
}

/// Totals of an intent's reports since they were first counted, because earlier ones prove nothing. They never decrease.
#[derive(Clone, Debug, Default)]
pub(super) struct IntentTotals {
    /// Reports by the node at which the flows end, including flows that the collector has evicted.
    pub(super) ends: BTreeMap<NodeId, u64>,
    /// Nodes on the paths of its flows, as of the last count that found any.
    pub(super) nodes: BTreeSet<NodeId>,
    complete: u64,
}

impl IntentTotals {
    /// Adds an intent's increments to its totals, and replaces them by the totals. The first count only sets the baseline.
    pub(super) fn add_to(all: &mut BTreeMap<String, Self>, name: &str, counters: &mut IntentCounters) {
        let is_new = !all.contains_key(name);
        let since = all.entry(name.to_owned()).or_default();
        if !counters.nodes.is_empty() {
            since.nodes.clone_from(&counters.nodes);
        }
        for (node, edge) in &counters.edges {
            *since.ends.entry(*node).or_default() += if is_new { 0 } else { edge.reports };
        }
        since.complete += if is_new { 0 } else { counters.complete };
        counters.complete = since.complete;
        for (node, reports) in &since.ends {
            counters.edges.entry(*node).or_default().reports = *reports;
        }
    }
}

impl Counted {
    fn new(view: &FlowView<'_>) -> Self {
        let hops = view.hops().filter_map(|hop| Some((hop.node?, filled(&hop))));
        let complete = view.path_length > 0 && !view.truncated && view.path().all(|node| node != u32::MAX);
        Self {
            flow: view.row.flow,
            worker: 0,
            reports: view.row.reports,
            first_seen: view.row.first_seen,
            last_seen: view.row.last_seen,
            seen: Seen::default(),
            more: NewReports::default(),
            nodes: hops.collect(),
            complete,
            without_path: false,
        }
    }

    /// Returns the counts of reports that name a node and of reports with a complete path.
    fn counted(&self) -> NewReports {
        let reports = if self.nodes.is_empty() { 0 } else { self.reports };
        NewReports {
            reports,
            complete: if self.complete { self.reports } else { 0 },
        }
    }
}

/// Returns whether a flow has been reported for [`SETTLED`], and also within the last [`SETTLED`].
fn is_settled(seen: Seen, now: u64) -> bool {
    seen.last >= seen.first.saturating_add(SETTLED) && now <= seen.last.saturating_add(SETTLED)
}

/// Datagrams from a node, by outcome.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Arrived {
    /// Datagrams that arrived here.
    pub(super) datagrams: u64,
    /// Datagrams lost in the network, by sequence numbers.
    pub(super) lost: u64,
}

/// Counts the datagrams that have arrived from each node.
pub(super) fn arrivals(monitor: &impl CollectorMonitor) -> BTreeMap<NodeId, Arrived> {
    let mut arrived: BTreeMap<NodeId, Arrived> = BTreeMap::new();
    for stream in monitor.streams() {
        let Some(node) = stream.id.node else { continue };
        let counts = arrived.entry(node).or_default();
        counts.datagrams += stream.datagrams;
        counts.lost += stream.lost;
    }
    arrived
}

/// A planned intent's flows, and the intents from which its rate of reports is estimated.
#[derive(Clone, Debug)]
pub struct Expecting {
    /// Matches of the planned intent's flows.
    pub(super) flows: Vec<Match>,
    /// The intents that measure flows now.
    pub(super) measuring: Vec<Measuring>,
    /// When one of them last came or went, ns since 1970; `None`: the system's clock has been set since then.
    pub(super) since: Option<u64>,
}

/// An installed intent that measures flows.
#[derive(Clone, Debug)]
pub(super) struct Measuring {
    /// Matches of its flows.
    pub(super) flows: Vec<Match>,
    /// The N of its sampling of 1 in N packets.
    pub(super) sample: u32,
    /// The mode of its packets.
    pub(super) mode: Mode,
    /// Where intents overlap, the one with the greatest rank decides the mode.
    pub(super) rank: (u32, Reverse<String>),
    /// True if the intent has a filter on devices.
    pub(super) filters: bool,
    /// True if the intent applies wherever a flow enters the network.
    pub(super) everywhere: bool,
}

/// Returns the N of the combined sampling of 1 in N packets, and whether each sampled packet causes exactly one report. The
/// finest sampling wins, and packets are filtered only if every intent has a filter.
fn outcome<'a>(by: impl Iterator<Item = &'a Measuring> + Clone) -> Option<(u32, bool)> {
    let decides = by.clone().max_by_key(|measuring| &measuring.rank)?;
    let sample = by.clone().map(|measuring| measuring.sample).min()?;
    Some((
        sample,
        decides.mode == Mode::Md && by.clone().any(|measuring| !measuring.filters),
    ))
}

/// The expected rate of reports of a planned intent.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Expected {
    /// Number of flows whose packets are all counted.
    known: u64,
    /// Number of flows whose packets are only partly counted.
    unknown: u64,
    /// Packets per second of the known flows.
    packets: f64,
    /// The collector has more flows than were counted.
    partial: bool,
}

impl Expected {
    /// Returns the rate in packets per second, or `None` if no flow is known.
    pub(super) fn rate(&self) -> Option<f64> {
        (self.known > 0).then_some(self.packets)
    }

    /// Describes how the rate was obtained. `fewer`: the intent reports fewer packets than that.
    pub(super) fn text(&self, fewer: bool) -> String {
        let Self {
            known,
            unknown,
            partial,
            ..
        } = *self;
        match (known, unknown) {
            (0, 0) => "not known yet: no report of these flows has arrived".to_owned(),
            (0, _) => format!(
                "not known yet: {unknown} of these flows are seen, but not every packet of them is reported"
            ),
            _ => {
                let most = if fewer { "at most; " } else { "" };
                let others = match unknown {
                    0 => String::new(),
                    _ => format!(", without {unknown} others of which not every packet is reported"),
                };
                let part = if partial { ", which are not all" } else { "" };
                format!("{most}from {known} flows that are measured now{others}{part}")
            }
        }
    }

    /// Adds a flow with this many reports per second, or `None` if the rate is unknown.
    fn add(&mut self, expecting: &Expecting, flow: &FlowKey, rate: Option<f64>) {
        let by = expecting
            .measuring
            .iter()
            .filter(|measuring| is_in(&measuring.flows, flow));
        let all = outcome(by.clone());
        // Intents limited to some edges may not apply to this flow. If they would change the outcome, it is uncertain.
        let sure = outcome(by.filter(|measuring| measuring.everywhere));
        match (all, rate) {
            (Some((sample, true)), Some(rate)) if all == sure => {
                self.known += 1;
                self.packets += rate * f64::from(sample);
            }
            _ => self.unknown += 1,
        }
    }
}

fn is_in(flows: &[Match], flow: &FlowKey) -> bool {
    flows.iter().any(|pattern| pattern.matches(flow))
}

/// Two looks at the flows, and since when they are measured as now, ns since 1970.
#[derive(Clone, Copy, Debug)]
struct Looks {
    since: Option<u64>,
    first: Now,
    second: Now,
}

impl Looks {
    /// Whether a flow has been measured as now since its first report. A time that is still to come is one before the clock was set back.
    fn is_measured_since(&self, row: &FlowRow) -> bool {
        row.first_seen <= self.first.wall && self.since.is_some_and(|since| since <= row.first_seen)
    }

    /// The reports per second of a flow: since its first report if it was measured as now, otherwise between `row` and `later`.
    fn rate(&self, row: &FlowRow, later: Option<&FlowRow>) -> Option<f64> {
        if self.is_measured_since(row) {
            let ns = (self.first.wall - row.first_seen).max(1_000_000_000);
            return Some(row.reports as f64 * 1e9 / ns as f64);
        }
        let more = later?.reports.checked_sub(row.reports)?;
        let ns = self.second.steady.saturating_sub(self.first.steady).max(1);
        Some(more as f64 * 1e9 / ns as f64)
    }
}

/// Estimates the packets per second of a planned intent's flows, since each flow's first report or, if intents have changed
/// meanwhile, over the next second.
pub async fn expect(monitor: &impl CollectorMonitor, expecting: Expecting) -> Expected {
    let entries = expecting.flows.len()
        + expecting
            .measuring
            .iter()
            .map(|measuring| measuring.flows.len())
            .sum::<usize>();
    let most = (COMPARISONS / entries.max(1)).min(MAX_FLOWS);
    // If the collector is too busy to answer, nothing is known.
    let Some((mut rows, partial)) = all_flows(monitor, most).await else {
        return Expected::default();
    };
    let first = Now::read();
    let mut looks = Looks {
        since: expecting.since,
        first,
        second: first,
    };
    let flows = expecting.flows.clone();
    // Run on a blocking thread: many flows and intents would block the API's thread.
    let own = tokio::task::spawn_blocking(move || {
        rows.retain(|row| is_in(&flows, &row.flow));
        rows
    });
    let Ok(rows) = own.await else {
        return Expected::default();
    };
    let mut later = Vec::new();
    if !rows.iter().all(|row| looks.is_measured_since(row)) {
        tokio::time::sleep(SECOND).await;
        later = all_flows(monitor, most)
            .await
            .map(|(rows, _)| rows)
            .unwrap_or_default();
    }
    looks.second = Now::read();
    let compared = tokio::task::spawn_blocking(move || {
        let later: HashMap<FlowKey, FlowRow> = later.into_iter().map(|row| (row.flow, row)).collect();
        let mut expected = Expected {
            partial,
            ..Expected::default()
        };
        for row in &rows {
            expected.add(&expecting, &row.flow, looks.rate(row, later.get(&row.flow)));
        }
        expected
    });
    compared.await.unwrap_or_default()
}

/// Returns at most `most` flows, and whether there are more; `None` if the collector does not answer.
async fn all_flows(monitor: &impl CollectorMonitor, most: usize) -> Option<(Vec<FlowRow>, bool)> {
    let mut rows = Vec::new();
    let mut partial = false;
    let walked = monitor.walk(
        |collector: &Collector, first: u32| {
            let mut part = Vec::new();
            let next = slice::visit_flows(collector, first, |view| part.push(view.row));
            (part, next)
        },
        |_, part| {
            partial |= rows.len() + part.len() > most;
            rows.extend(part.into_iter().take(most.saturating_sub(rows.len())));
        },
    );
    walked.await.ok()?;
    Some((rows, partial))
}

/// Counts the reports of each intent's flows since the previous count. With very many flows or entries it counts only a part,
/// and the results are too low.
pub(super) async fn count(
    counting: &mut Counting,
    monitor: &impl CollectorMonitor,
    watched: &[Watched],
) -> BTreeMap<String, IntentCounters> {
    let entries: usize = watched.iter().map(|watched| watched.flows.len()).sum();
    let most = (COMPARISONS / entries.max(1)).min(MAX_FLOWS);
    let mut flows = Vec::new();
    let mut partial = false;
    let now = Now::read();
    // If the collector is too busy, the next count follows in a second.
    let walked = monitor.walk(
        move |collector: &Collector, first: u32| {
            let mut part = Vec::new();
            let next = slice::visit_flows(collector, first, |view| part.push(Counted::new(&view)));
            (part, next)
        },
        |worker, part| {
            partial |= flows.len() + part.len() > most;
            let of_worker = part.into_iter().map(|flow| Counted { worker, ..flow });
            flows.extend(of_worker.take(most.saturating_sub(flows.len())));
        },
    );
    if walked.await.is_err() {
        return BTreeMap::new();
    }
    counting.compare(&mut flows, partial, now);
    count_intents(watched, &flows)
}

/// The counters of each intent.
fn count_intents(watched: &[Watched], flows: &[Counted]) -> BTreeMap<String, IntentCounters> {
    watched
        .iter()
        .map(|watched| (watched.name.clone(), count_intent(watched, flows)))
        .collect()
}

/// Returns the instruction bits for which a node has ever delivered a value.
fn filled(hop: &collector::HopView) -> Bits {
    let items = [
        (0, hop.node.is_some()),
        (2, hop.hop_latency.is_some() || hop.implausible_latency.is_some()),
        (3, hop.queue_occupancy.is_some()),
        (7, hop.link_utilization.is_some()),
    ];
    items
        .into_iter()
        .filter(|(_, is)| *is)
        .fold(0, |bits, (number, _)| bits | instruction::bit(number))
}

/// Counts one intent's flows.
fn count_intent(watched: &Watched, flows: &[Counted]) -> IntentCounters {
    let mut counters = IntentCounters::default();
    let mut filled: BTreeMap<NodeId, Bits> = BTreeMap::new();
    for flow in flows.iter().filter(|flow| is_in(&watched.flows, &flow.flow)) {
        counters.flows += 1;
        counters.complete += flow.more.complete;
        counters.without_path += u64::from(flow.without_path);
        // The sink is the last node of the path.
        if let Some((node, _)) = flow.nodes.last() {
            counters.edges.entry(*node).or_default().reports += flow.more.reports;
        }
        for (node, bits) in &flow.nodes {
            *filled.entry(*node).or_default() |= bits;
        }
        // With INT-MD the first node is the source, which measures. In other modes every node measures, or the order is not
        // the path's.
        let measure = if watched.mode == Mode::Md {
            1
        } else {
            flow.nodes.len()
        };
        for (node, _) in flow.nodes.iter().take(measure) {
            let last = &mut counters.sources.entry(*node).or_default().last_report;
            *last = (*last).max(Some(flow.seen.last));
        }
    }
    counters.nodes = filled.keys().copied().collect();
    let missing = filled
        .into_iter()
        .map(|(node, bits)| (node, watched.bits & COMPARED & !bits));
    counters.missing = missing.filter(|(_, bits)| *bits != 0).collect();
    counters
}

/// Totals of this process's collector since its start.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Totals {
    /// Reports that it decoded.
    pub(super) reports: u64,
    /// Events of all kinds.
    pub(super) events: u64,
    /// Events of flows, by intent with a budget of events.
    pub(super) of_intents: BTreeMap<String, u64>,
    /// Intents with a budget of events that exceed the limit, so that their events are not counted.
    pub(super) uncounted: BTreeSet<String>,
}

/// Returns the totals of the collector, and the events of intents with a budget of events.
pub(super) fn totals(monitor: &impl CollectorMonitor, watched: &[Watched]) -> Totals {
    let budgeted = watched.iter().filter(|watched| watched.events);
    let of_intents = monitor.counted_events(
        budgeted
            .clone()
            .map(|intent| (intent.name.as_str(), &*intent.flows)),
    );
    let without = budgeted.filter(|intent| !of_intents.contains_key(&intent.name));
    Totals {
        reports: monitor.total(|stats| stats.reports),
        events: monitor.total(|stats| stats.events.iter().sum()),
        uncounted: without.map(|intent| intent.name.clone()).collect(),
        of_intents,
    }
}

/// A flow of a simulated collector.
#[cfg(test)]
#[derive(Clone, Copy, Debug)]
pub(super) struct SimulatedFlow {
    /// To this port; an odd one: over a path that is not complete.
    pub(super) dport: u16,
    pub(super) reports: u64,
    /// When it was first and last reported, by the clock of the collector.
    pub(super) first_seen: u64,
    pub(super) last_seen: u64,
}

#[cfg(test)]
impl Counting {
    /// Counts the flows of a simulated collector, as [`count`] does those of another one.
    pub(super) fn count_simulated(
        &mut self,
        flows: &[SimulatedFlow],
        watched: &[Watched],
        now: Now,
    ) -> BTreeMap<String, IntentCounters> {
        let counted = flows.iter().map(|flow| Counted {
            first_seen: flow.first_seen,
            last_seen: flow.last_seen,
            reports: flow.reports,
            ..tests::flow(flow.dport, &[(1, 0xb000), (2, 0xb000)], flow.dport % 2 == 0)
        });
        let mut counted: Vec<Counted> = counted.collect();
        self.compare(&mut counted, false, now);
        count_intents(watched, &counted)
    }
}

#[cfg(test)]
mod tests {
    use manager::{
        budget::{Bounds, Budget, Controller, Detail, Rates},
        verify::{SourceCounters, State, Verifier},
    };

    use super::*;

    fn at(steady: u64, wall: u64) -> Now {
        Now { steady, wall }
    }

    pub(super) fn flow(dport: u16, nodes: &[(NodeId, Bits)], complete: bool) -> Counted {
        let flow = FlowKey::v4([10, 0, 0, 1], [10, 0, 0, 2], Some((1000, dport)), 17);
        Counted {
            flow,
            worker: 0,
            reports: 10,
            first_seen: 1,
            last_seen: u64::from(dport),
            seen: Seen {
                first: 1,
                last: u64::from(dport),
            },
            more: NewReports {
                reports: 10,
                complete: if complete { 10 } else { 0 },
            },
            nodes: nodes.to_vec(),
            complete,
            without_path: !complete,
        }
    }

    #[test]
    fn reports_are_expected_from_flows_whose_packets_are_all_reported() {
        let to = |dport: &str| {
            vec![Match {
                dst_port: dport.parse().unwrap(),
                ..Match::default()
            }]
        };
        let md = |dport: &str, sample| Measuring {
            flows: to(dport),
            sample,
            mode: Mode::Md,
            rank: (100, Reverse("b".to_owned())),
            filters: false,
            everywhere: true,
        };
        let ranked = |priority, name: &str, one: Measuring| Measuring {
            mode: Mode::Sf,
            rank: (priority, Reverse(name.to_owned())),
            ..one
        };
        let filtered = |one: Measuring| Measuring { filters: true, ..one };
        let measuring = vec![
            md("80", 10),
            filtered(md("81", 1)),
            filtered(md("82", 1)),
            md("82", 1),
            md("83", 10),
            Measuring {
                everywhere: false,
                ..md("83", 1)
            },
            // Another intent decides that packets carry SF-INT, by its priority, or by its name; or it does not.
            md("84", 1),
            ranked(200, "c", md("84", 1)),
            md("85", 1),
            ranked(100, "a", md("85", 1)),
            md("86", 1),
            ranked(100, "c", md("86", 1)),
        ];
        let expecting = Expecting {
            flows: to("80-86"),
            measuring,
            since: Some(0),
        };
        let expect = |dport: u16, rate| {
            let mut expected = Expected::default();
            let flow = FlowKey::v4([10, 0, 0, 1], [10, 0, 0, 2], Some((1000, dport)), 17);
            expected.add(&expecting, &flow, rate);
            (expected.known, expected.unknown, expected.rate())
        };
        let rate = Some(20.0);
        // One packet of ten is reported; a filter of another intent holds nothing back.
        assert_eq!(
            (expect(80, rate), expect(82, rate)),
            ((1, 0, Some(200.0)), (1, 0, Some(20.0)))
        );
        assert_eq!(
            (expect(86, rate), expect(86, None)),
            ((1, 0, Some(20.0)), (0, 1, None))
        );
        assert_eq!(
            [81, 83, 84, 85, 87].map(|dport| expect(dport, rate)),
            [(0, 1, None); 5]
        );
        let some = Expected {
            known: 2,
            unknown: 1,
            packets: 5.0,
            partial: false,
        };
        let text = "at most; from 2 flows that are measured now, without 1 others of which not every packet is reported";
        assert_eq!(some.text(true), text);
    }

    #[test]
    fn a_flow_that_was_measured_in_another_way_before_is_counted_anew() {
        let second = 1_000_000_000;
        let row = |reports| FlowRow {
            flow: FlowKey::v4([10, 0, 0, 1], [10, 0, 0, 2], Some((1000, 80)), 17),
            flow_latency: None,
            basis: collector::event::Basis::Measured,
            first_seen: 2 * second,
            last_seen: 7 * second,
            reports,
        };
        let rate = |since: Option<u64>, later: Option<u64>, shown: u64| {
            let looks = Looks {
                since: since.map(|since| since * second),
                first: at(7 * second, shown * second),
                second: at(9 * second, (shown + 2) * second),
            };
            looks.rate(&row(100), later.map(row).as_ref())
        };
        assert_eq!(rate(Some(2), None, 7), Some(20.0));
        // An intent came or went since then.
        assert_eq!(rate(Some(3), Some(130), 7), Some(15.0));
        assert_eq!(rate(Some(3), None, 7), None, "the collector has forgotten it");
        assert_eq!(rate(Some(3), Some(2), 7), None, "it came again");
        // The clock was set after that, or before it, after the first report.
        assert_eq!(rate(None, Some(130), 7), Some(15.0));
        assert_eq!(rate(Some(0), Some(130), 1), Some(15.0));
    }

    #[test]
    fn a_path_is_missed_after_ten_seconds_and_while_reports_arrive() {
        let settled = |first: u64, last: u64, now| {
            let seen = Seen {
                first: first * SETTLED,
                last: last * SETTLED,
            };
            is_settled(seen, now * SETTLED)
        };
        assert!(settled(1, 2, 2) && settled(1, 9, 10));
        assert!(!settled(2, 2, 3), "one report");
        assert!(!settled(1, 2, 4), "it has ended");
    }

    #[test]
    fn flows_are_counted_for_their_intents() {
        let dport = |dport: &str| Match {
            dst_port: dport.parse().unwrap(),
            ..Match::default()
        };
        let watched = Watched {
            name: "a".to_owned(),
            flows: vec![dport("80"), dport("443")],
            bits: 0xb100,
            mode: Mode::Md,
            events: false,
        };
        let flows = [
            flow(80, &[(11, 0xb100), (12, 0xa000)], true),
            flow(443, &[(11, 0xb000), (13, 0xb100)], false),
            flow(22, &[(14, 0)], true),
        ];
        let counted = count_intent(&watched, &flows);
        assert_eq!(
            (counted.flows, counted.complete, counted.without_path),
            (2, 10, 1)
        );
        let edges: Vec<_> = counted
            .edges
            .iter()
            .map(|(node, edge)| (*node, edge.reports))
            .collect();
        assert_eq!(edges, [(12, 10), (13, 10)]);
        let last = |node, time| {
            (
                node,
                SourceCounters {
                    packets: 0,
                    sample: 0,
                    last_report: Some(time),
                },
            )
        };
        assert_eq!(counted.sources, BTreeMap::from([last(11, 443)]));
        let everywhere = count_intent(
            &Watched {
                mode: Mode::Postcard,
                ..watched
            },
            &flows,
        )
        .sources;
        assert_eq!(
            everywhere,
            BTreeMap::from([last(11, 443), last(12, 80), last(13, 443)])
        );
        // Node 11 filled everything, in one flow or another.
        assert_eq!(counted.missing, BTreeMap::from([(12, 0x1100)]));
    }

    const S: u64 = 1_000_000_000;

    /// An intent whose flows are counted once a second, as the manager does.
    struct Simulated {
        counting: Counting,
        since: BTreeMap<String, IntentTotals>,
        verifier: Verifier,
    }

    impl Simulated {
        fn new() -> Self {
            let mut verifier = Verifier::default();
            verifier.set_installed("slow", true, 0);
            Self {
                counting: Counting::default(),
                since: BTreeMap::new(),
                verifier,
            }
        }

        /// Counts flows: ports, the second of the first report, and reports. Returns the state with its rate.
        fn count(&mut self, second: u64, flows: &[(u16, u64, u64)]) -> (&'static str, Option<f64>) {
            let counted = |(dport, first, reports): &(u16, u64, u64)| Counted {
                first_seen: first * S,
                reports: *reports,
                ..flow(*dport, &[(11, 0xb100), (13, 0xb100)], true)
            };
            let mut flows: Vec<Counted> = flows.iter().map(counted).collect();
            self.counting
                .compare(&mut flows, false, at(second * S, second * S));
            let (name, all) = ("slow".to_owned(), vec![Match::default()]);
            let watched = Watched {
                name,
                flows: all,
                bits: 0x8000,
                mode: Mode::Md,
                events: false,
            };
            let mut counters = count_intent(&watched, &flows);
            IntentTotals::add_to(&mut self.since, "slow", &mut counters);
            self.verifier.observe("slow", counters, second * S);
            let state = self
                .verifier
                .state("slow", |node| node.to_string(), second * S)
                .unwrap();
            let rate = match &state {
                State::Seen(figures) | State::Complete(figures) => Some(figures.rate),
                _ => None,
            };
            (state.name(), rate)
        }
    }

    #[test]
    fn an_intent_stays_complete_when_the_collector_forgets_an_older_flow() {
        let mut intent = Simulated::new();
        // The first flow was there before the intent: its reports are no evidence.
        assert_eq!(intent.count(0, &[(80, 0, 2125)]), ("installed", None));
        assert_eq!(intent.count(1, &[(80, 0, 2125)]), ("installed", None));
        assert_eq!(
            intent.count(2, &[(80, 0, 2125), (81, 2, 25)]),
            ("complete", Some(25.0))
        );
        assert_eq!(
            intent.count(3, &[(80, 0, 2135), (81, 2, 50)]),
            ("complete", Some(35.0))
        );
        // It is forgotten, and the second goes on: a budget reads this rate.
        for second in 4..40 {
            let reports = 25 * (second - 1);
            assert_eq!(
                intent.count(second, &[(81, 2, reports)]),
                ("complete", Some(25.0)),
                "{second}"
            );
        }
        // All are forgotten, and the first comes again, with fewer reports than before.
        assert_eq!(intent.count(40, &[]), ("complete", Some(0.0)));
        // Silence is looked for at the devices at which flows have ended.
        assert_eq!(intent.since["slow"].ends.keys().collect::<Vec<_>>(), [&13]);
        assert_eq!(intent.count(41, &[(80, 41, 7)]), ("complete", Some(7.0)));
        // It was forgotten and came again between two counts, with more reports than before.
        assert_eq!(intent.count(42, &[(80, 42, 9)]), ("complete", Some(9.0)));
    }

    #[test]
    fn a_budget_acts_on_the_rate_after_a_flow_is_forgotten() {
        let mut intent = Simulated::new();
        let bounds = Bounds {
            finest: Detail {
                threshold: 0,
                sample: 1,
            },
            coarsest: Detail {
                threshold: 0,
                sample: 64,
            },
            filters: false,
        };
        let mut controller = Controller::new(bounds);
        let budget = Budget {
            reports: Some(10),
            events: None,
        };
        let mut steps = 0;
        for second in 0..40 {
            let old = (second < 4).then_some((80, 0, 2125));
            let flows: Vec<_> = old.into_iter().chain([(81, 2, 25 * second)]).collect();
            let (_, rate) = intent.count(second, &flows);
            let rates = Rates {
                reports: rate.unwrap_or_default(),
                events: 0.0,
            };
            steps += u32::from(
                second >= 4
                    && controller
                        .observe(budget.loads(rates, None), second * S)
                        .is_some(),
            );
        }
        assert!(
            steps > 0 && controller.detail().sample > 1,
            "{:?}",
            controller.detail()
        );
    }

    #[test]
    fn a_step_of_the_clock_moves_reports_within_one_interval_at_most() {
        const HOUR: u64 = 3_600 * S;
        const INTERVAL: u64 = S / 2;
        for seed in 0..200 {
            let mut random = testkit::rng::Rng(seed);
            let mut counting = Counting::default();
            let (mut time, mut wall) = (1_000 * HOUR, 1_000 * HOUR);
            let mut reported = SimulatedFlow {
                dport: 81,
                reports: 1,
                first_seen: wall,
                last_seen: wall,
            };
            let (first, mut last) = (time, time);
            // How far the last report may be moved.
            let mut error = 0;
            let mut sum = 0;
            for round in 0..100 {
                let shown = Counted {
                    reports: reported.reports,
                    first_seen: reported.first_seen,
                    last_seen: reported.last_seen,
                    ..flow(reported.dport, &[(11, 0)], false)
                };
                let mut flows = [shown];
                counting.compare(&mut flows, false, at(time, wall));
                let [counted] = flows;
                sum += counted.more.reports;
                assert_eq!(sum, reported.reports, "seed {seed} round {round}");
                assert_eq!(counted.seen.first, first, "seed {seed} round {round}");
                assert!(
                    counted.seen.last.abs_diff(last) <= error,
                    "seed {seed} round {round}"
                );
                let settled = last >= first + SETTLED + error && time + error <= last + SETTLED;
                assert!(!settled || counted.without_path);
                // A report, and perhaps a step of the clock after it, or before it.
                let moment = random.roll() % INTERVAL;
                let ways = (random.below(3), random.below(6));
                let step = |wall: u64| match ways.1 {
                    0 => wall + HOUR,
                    1 => wall - HOUR,
                    _ => wall,
                };
                (time, wall) = (time + moment, wall + moment);
                if ways.0 == 0 {
                    wall = step(wall);
                }
                if random.below(40) > 0 && round < 60 {
                    reported.reports += 1;
                    (reported.last_seen, last) = (wall, time);
                    error = if ways.0 == 1 && ways.1 < 2 { INTERVAL } else { 0 };
                }
                if ways.0 == 1 {
                    wall = step(wall);
                }
                // The collector lowers times that its clock has not reached yet.
                reported.last_seen = reported.last_seen.min(wall);
                reported.first_seen = reported.first_seen.min(reported.last_seen);
                (time, wall) = (time + INTERVAL - moment, wall + INTERVAL - moment);
            }
        }
    }

    #[test]
    fn what_a_count_left_out_is_not_new_later() {
        let mut counting = Counting::default();
        let mut more = |partial, now, of: &[(u16, u64, u64)]| {
            let mut flows: Vec<_> = of
                .iter()
                .map(|(dport, first_seen, reports)| Counted {
                    first_seen: *first_seen,
                    reports: *reports,
                    ..flow(*dport, &[(11, 0)], true)
                })
                .collect();
            counting.compare(&mut flows, partial, at(now, now));
            flows
                .iter()
                .map(|flow| (flow.more.reports, flow.more.complete))
                .collect::<Vec<_>>()
        };
        assert_eq!(more(true, 10, &[(80, 1, 5)]), [(5, 5)]);
        assert_eq!(
            more(true, 20, &[(80, 1, 6), (81, 2, 100), (82, 15, 3)]),
            [(1, 1), (0, 0), (3, 3)]
        );
        assert_eq!(more(false, 30, &[(81, 2, 101)]), [(1, 1)]);
        assert_eq!(more(false, 40, &[(80, 1, 9)]), [(9, 9)]);
    }
}
