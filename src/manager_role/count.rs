//! What the collector knows of the flows of each intent: what the verifier compares.

use std::collections::BTreeMap;

use collector::{Collector, FlowRow};
use detect::Match;
use manager::{
    device::{Mode, NodeId},
    instruction::{self, Bits},
    verify::IntentCounters,
};
use wire::FlowKey;

use crate::{monitor::Monitor, worker::slice};

/// An intent whose flows are counted.
#[derive(Clone, Debug)]
pub(super) struct Watched {
    /// Its name.
    pub(super) name: String,
    /// Its flows.
    pub(super) flows: Vec<Match>,
    /// The instruction bits that each node should fill.
    pub(super) bits: Bits,
    /// How they are measured.
    pub(super) mode: Mode,
}

/// A flow, as far as it is counted.
#[derive(Clone, Debug)]
struct Counted {
    flow: FlowKey,
    reports: u64,
    last_seen: u64,
    /// The nodes that report, and the bits that each filled.
    nodes: Vec<(NodeId, Bits)>,
    /// It has a path, and all of it is known.
    complete: bool,
}

/// Datagrams with reports of a node that arrived, and that the network lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Arrived {
    /// Received.
    pub(super) datagrams: u64,
    /// Lost in the network, by sequence numbers.
    pub(super) lost: u64,
}

/// What has arrived of each node.
pub(super) fn arrivals(monitor: &Monitor) -> BTreeMap<NodeId, Arrived> {
    let mut arrived: BTreeMap<NodeId, Arrived> = BTreeMap::new();
    for stream in &monitor.detail().streams {
        let Some(node) = stream.id.node else { continue };
        let of = arrived.entry(node).or_default();
        of.datagrams += stream.datagrams;
        of.lost += stream.lost;
    }
    arrived
}

/// From what the reports of an intent are expected.
#[derive(Clone, Debug)]
pub(crate) struct Expecting {
    /// Its flows.
    pub(super) flows: Vec<Match>,
    /// The intents that measure flows now.
    pub(super) measuring: Vec<Measuring>,
}

/// An intent that measures flows now.
#[derive(Clone, Debug)]
pub(super) struct Measuring {
    /// Its flows.
    pub(super) flows: Vec<Match>,
    /// One packet of this many.
    pub(super) sample: u32,
    /// Each of these packets causes one report.
    pub(super) every_packet: bool,
    /// It does not depend on where a flow enters.
    pub(super) everywhere: bool,
    /// When it was added, ns since 1970.
    pub(super) since: u64,
}

/// What the collector knows of the flows of an intent that is not there yet.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Expected {
    /// Flows whose packets are counted.
    known: u64,
    /// Other flows.
    unknown: u64,
    /// Packets per second of the known ones.
    packets: f64,
    /// There are more flows than were counted.
    partial: bool,
}

impl Expected {
    /// Packets per second; `None`: not known.
    pub(super) fn rate(&self) -> Option<f64> {
        (self.known > 0).then_some(self.packets)
    }

    /// Where the rate comes from. `fewer`: the intent reports fewer packets than that.
    pub(super) fn text(&self, fewer: bool) -> String {
        let Self { known, unknown, partial, .. } = *self;
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

    /// Adds a flow, if it is one of the intent.
    fn add(&mut self, expecting: &Expecting, row: &FlowRow, now: u64) {
        let is_in = |flows: &[Match]| flows.iter().any(|one| one.matches(&row.flow));
        if !is_in(&expecting.flows) {
            return;
        }
        let by: Vec<&Measuring> = expecting.measuring.iter().filter(|one| is_in(&one.flows)).collect();
        // The finest sampling counts, and a filter holds back packets only if each intent has one.
        let outcome = |is: &dyn Fn(&Measuring) -> bool| {
            let of = || by.iter().filter(|one| is(one));
            Some((of().map(|one| one.sample).min()?, of().any(|one| one.every_packet)))
        };
        let all = outcome(&|_| true);
        // An intent that came later, or perhaps does not apply to this flow, leaves the outcome uncertain if it changes it.
        let sure = outcome(&|one| one.everywhere && one.since <= row.first_seen);
        match all {
            Some((sample, true)) if all == sure => {
                let seconds = now.saturating_sub(row.first_seen).max(1_000_000_000) as f64 / 1e9;
                self.known += 1;
                self.packets += row.reports as f64 * f64::from(sample) / seconds;
            }
            _ => self.unknown += 1,
        }
    }
}

/// The packets per second of flows, since the first report of each.
pub(crate) async fn expect(monitor: &Monitor, expecting: Expecting) -> Expected {
    let entries = expecting.flows.len()
        + expecting.measuring.iter().map(|measuring| measuring.flows.len()).sum::<usize>();
    let most = (COMPARISONS / entries.max(1)).min(MAX_FLOWS);
    let mut rows = Vec::new();
    let step = |collector: &Collector, first: u32| {
        let mut part = Vec::new();
        let next = slice::visit_flows(collector, first, |view| part.push(view.row));
        (part, next)
    };
    let mut partial = false;
    let walked = monitor.walk(step, |_, part| {
        partial |= rows.len() + part.len() > most;
        rows.extend(part.into_iter().take(most.saturating_sub(rows.len())));
    });
    // A collector that is too busy to answer knows nothing now.
    if walked.await.is_err() {
        return Expected::default();
    }
    let now = nic::time::now();
    // Many flows and many intents would keep the API's thread busy.
    let compared = tokio::task::spawn_blocking(move || {
        let mut expected = Expected { partial, ..Expected::default() };
        rows.iter().for_each(|row| expected.add(&expecting, row, now));
        expected
    });
    compared.await.unwrap_or_default()
}

/// Counts the flows of each intent. Of very many flows or entries, a part; then the counters are too low.
pub(super) async fn count(monitor: &Monitor, watched: &[Watched]) -> BTreeMap<String, IntentCounters> {
    let entries: usize = watched.iter().map(|watched| watched.flows.len()).sum();
    let most = (COMPARISONS / entries.max(1)).min(MAX_FLOWS);
    let mut flows = Vec::new();
    let step = |collector: &Collector, first: u32| {
        let mut part = Vec::new();
        let next = slice::visit_flows(collector, first, |view| {
            let known = |node: u32| node != u32::MAX;
            let hops = view.hops().filter_map(|hop| Some((hop.node?, filled(&hop))));
            part.push(Counted {
                flow: view.row.flow,
                reports: view.row.reports,
                last_seen: view.row.last_seen,
                nodes: hops.collect(),
                complete: view.path_length > 0 && !view.truncated && view.path().all(known),
            });
        });
        (part, next)
    };
    // A collector that is too busy to answer is asked again in a second.
    if monitor
        .walk(step, |_, part| flows.extend(part.into_iter().take(most.saturating_sub(flows.len()))))
        .await
        .is_err()
    {
        return BTreeMap::new();
    }
    watched.iter().map(|watched| (watched.name.clone(), of(watched, &flows))).collect()
}

/// The bits of which a node has ever delivered a value.
fn filled(hop: &collector::HopView) -> Bits {
    let items = [
        (0, hop.node.is_some()),
        (2, hop.hop_latency.is_some() || hop.implausible_latency.is_some()),
        (3, hop.queue_occupancy.is_some()),
        (7, hop.link_utilization.is_some()),
    ];
    items.into_iter().filter(|(_, is)| *is).fold(0, |bits, (number, _)| bits | instruction::bit(number))
}

/// Bits whose values the collector keeps by flow and node.
const COMPARED: Bits = 0x8000 | 0x2000 | 0x1000 | 0x0100;

fn of(watched: &Watched, flows: &[Counted]) -> IntentCounters {
    let mut counters = IntentCounters::default();
    let mut filled: BTreeMap<NodeId, Bits> = BTreeMap::new();
    let matches = |flow: &&Counted| watched.flows.iter().any(|one| one.matches(&flow.flow));
    for flow in flows.iter().filter(matches) {
        counters.flows += 1;
        counters.complete += if flow.complete { flow.reports } else { 0 };
        // The sink is the last node of the path.
        if let Some((node, _)) = flow.nodes.last() {
            counters.edges.entry(*node).or_default().reports += flow.reports;
        }
        for (node, bits) in &flow.nodes {
            *filled.entry(*node).or_default() |= bits;
        }
        // INT-MD is inserted by the first node; otherwise each node measures, or the order is not that of the path.
        let measure = if watched.mode == Mode::Md { 1 } else { flow.nodes.len() };
        for (node, _) in flow.nodes.iter().take(measure) {
            let last = &mut counters.sources.entry(*node).or_default().last_report;
            *last = (*last).max(Some(flow.last_seen));
        }
    }
    let missing = filled.into_iter().map(|(node, bits)| (node, watched.bits & COMPARED & !bits));
    counters.missing = missing.filter(|(_, bits)| *bits != 0).collect();
    counters
}

/// Leaves what was counted since `baseline`. A flow that the collector has forgotten since then makes it too small.
pub(super) fn subtract(counters: &mut IntentCounters, baseline: &IntentCounters) {
    counters.complete = counters.complete.saturating_sub(baseline.complete);
    for (node, edge) in &mut counters.edges {
        let before = baseline.edges.get(node).map_or(0, |before| before.reports);
        edge.reports = edge.reports.saturating_sub(before);
    }
}

/// Comparisons of a flow with an entry in one count.
const COMPARISONS: usize = 20_000_000;
/// Flows in one count.
const MAX_FLOWS: usize = 100_000;

#[cfg(test)]
mod tests {
    use manager::verify::SourceCounters;

    use super::*;

    fn flow(dport: u16, nodes: &[(NodeId, Bits)], complete: bool) -> Counted {
        let flow = FlowKey::v4([10, 0, 0, 1], [10, 0, 0, 2], Some((1000, dport)), 17);
        Counted { flow, reports: 10, last_seen: u64::from(dport), nodes: nodes.to_vec(), complete }
    }

    #[test]
    fn reports_are_expected_from_flows_whose_packets_are_all_reported() {
        let second = 1_000_000_000;
        let row = |dport: u16, first_seen: u64| FlowRow {
            flow: FlowKey::v4([10, 0, 0, 1], [10, 0, 0, 2], Some((1000, dport)), 17),
            flow_latency: None,
            basis: collector::event::Basis::Measured,
            first_seen,
            last_seen: first_seen,
            reports: 100,
        };
        let to = |dport: &str| vec![Match { dst_port: dport.parse().unwrap(), ..Match::default() }];
        let every = |dport: &str, sample, every_packet| Measuring {
            flows: to(dport),
            sample,
            every_packet,
            everywhere: true,
            since: second,
        };
        let measuring = vec![
            every("80", 10, true),
            every("81", 1, false),
            every("82", 1, false),
            every("82", 1, true),
            every("83", 10, true),
            Measuring { everywhere: false, ..every("83", 1, true) },
            every("84", 1, true),
            Measuring { since: 5 * second, ..every("85", 1, true) },
        ];
        let expecting = Expecting { flows: to("80-86"), measuring };
        let expect = |dport: u16| {
            let mut expected = Expected::default();
            expected.add(&expecting, &row(dport, 2 * second), 7 * second);
            (expected.known, expected.unknown, expected.rate())
        };
        // One packet of ten is reported; a filter of another intent holds nothing back.
        assert_eq!((expect(80), expect(82)), ((1, 0, Some(200.0)), (1, 0, Some(20.0))));
        // A filter, an intent that is not everywhere, one that came later, none, and a flow of others.
        assert_eq!([81, 83, 85, 86].map(expect), [(0, 1, None); 4]);
        assert_eq!((expect(84), expect(22)), ((1, 0, Some(20.0)), (0, 0, None)));
        let some = Expected { known: 2, unknown: 1, packets: 5.0, partial: false };
        let text = "at most; from 2 flows that are measured now, without 1 others of which not every packet is reported";
        assert_eq!(some.text(true), text);
    }

    #[test]
    fn flows_are_counted_for_their_intents() {
        let dport = |dport: &str| Match { dst_port: dport.parse().unwrap(), ..Match::default() };
        let watched = Watched {
            name: "a".to_owned(),
            flows: vec![dport("80"), dport("443")],
            bits: 0xb100,
            mode: Mode::Md,
        };
        let flows = [
            flow(80, &[(11, 0xb100), (12, 0xa000)], true),
            flow(443, &[(11, 0xb000), (13, 0xb100)], false),
            flow(22, &[(14, 0)], true),
        ];
        let counted = of(&watched, &flows);
        assert_eq!((counted.flows, counted.complete), (2, 10));
        let edges: Vec<_> = counted.edges.iter().map(|(node, edge)| (*node, edge.reports)).collect();
        assert_eq!(edges, [(12, 10), (13, 10)]);
        let last = |node, time| (node, SourceCounters { packets: 0, sample: 0, last_report: Some(time) });
        assert_eq!(counted.sources, BTreeMap::from([last(11, 443)]));
        let everywhere = of(&Watched { mode: Mode::Postcard, ..watched }, &flows).sources;
        assert_eq!(everywhere, BTreeMap::from([last(11, 443), last(12, 80), last(13, 443)]));
        let mut since = counted.clone();
        subtract(&mut since, &counted);
        assert!(since.complete == 0 && since.edges.values().all(|edge| edge.reports == 0));
        // Node 11 filled everything, in one flow or another.
        assert_eq!(counted.missing, BTreeMap::from([(12, 0x1100)]));
    }
}
