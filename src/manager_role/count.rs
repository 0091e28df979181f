//! What the collector knows of the flows of each intent: what the verifier compares.

use std::collections::BTreeMap;

use collector::Collector;
use detect::Match;
use manager::{
    device::NodeId,
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
}

/// A flow, as far as it is counted.
#[derive(Clone, Debug)]
struct Counted {
    flow: FlowKey,
    reports: u64,
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
    use super::*;

    fn flow(dport: u16, nodes: &[(NodeId, Bits)], complete: bool) -> Counted {
        let flow = FlowKey::v4([10, 0, 0, 1], [10, 0, 0, 2], Some((1000, dport)), 17);
        Counted { flow, reports: 10, nodes: nodes.to_vec(), complete }
    }

    #[test]
    fn flows_are_counted_for_their_intents() {
        let dport = |dport: &str| Match { dst_port: dport.parse().unwrap(), ..Match::default() };
        let watched = Watched { name: "a".to_owned(), flows: vec![dport("80"), dport("443")], bits: 0xb100 };
        let flows = [
            flow(80, &[(11, 0xb100), (12, 0xa000)], true),
            flow(443, &[(11, 0xb000), (13, 0xb100)], false),
            flow(22, &[(14, 0)], true),
        ];
        let counted = of(&watched, &flows);
        assert_eq!((counted.flows, counted.complete), (2, 10));
        let edges: Vec<_> = counted.edges.iter().map(|(node, edge)| (*node, edge.reports)).collect();
        assert_eq!(edges, [(12, 10), (13, 10)]);
        let mut since = counted.clone();
        subtract(&mut since, &counted);
        assert!(since.complete == 0 && since.edges.values().all(|edge| edge.reports == 0));
        // Node 11 filled everything, in one flow or another.
        assert_eq!(counted.missing, BTreeMap::from([(12, 0x1100)]));
    }
}
