//! Pages of flows from copies, against pages from a full scan, under random traffic in simulated time.

use std::cmp::Reverse;

use collector::{Collector, Config, FlowOrder, FlowRank, FlowSummary};
use testkit::network::{Network, Random};
use testkit::reports::{Bench, SECOND, Sent, config, node};

use super::{FlowPage, FlowQuery};

const ORDERS: [FlowOrder; 3] = [FlowOrder::LastSeen, FlowOrder::Latency, FlowOrder::Reports];

/// The page by the obvious way: the views of all flows, and a sort of everything.
fn scanned(collector: &Collector, query: &FlowQuery) -> FlowPage {
    let mut all = Vec::new();
    for row in collector.flows().map(|flow| flow.row) {
        let value = match query.order {
            FlowOrder::LastSeen => row.last_seen,
            FlowOrder::Latency => row.flow_latency.unwrap_or(0),
            FlowOrder::Reports => row.reports,
        };
        all.push((FlowRank(value, row.flow.id()), row.flow));
    }
    let total = all.len() as u64;
    all.sort_unstable_by_key(|(rank, _)| Reverse(*rank));
    all.retain(|(rank, _)| query.after.is_none_or(|after| *rank < after));
    let more = all.len() > query.limit;
    all.truncate(query.limit);
    FlowPage {
        flows: all,
        more,
        total,
    }
}

/// The flows, copied in steps of a few slots.
fn copied(collector: &Collector) -> Vec<FlowSummary> {
    let slots = collector.flow_slots();
    (0..slots)
        .step_by(7)
        .flat_map(|first| collector.flow_summaries_in(first..first + 7))
        .collect()
}

/// Compares pages of every order and size, each with the one after it. Returns how many were not empty.
fn compare(collector: &Collector) -> usize {
    let (copies, mut filled) = (copied(collector), 0);
    for order in ORDERS {
        for limit in [1, 3, 50, 10_000] {
            let mut query = FlowQuery {
                limit,
                order,
                after: None,
            };
            for _ in 0..2 {
                let page = FlowPage::select(copies.iter(), &query, |_| true);
                assert_eq!(page, scanned(collector, &query), "{query:?}");
                query.after = page.flows.last().map(|(rank, _)| *rank);
                filled += usize::from(!page.flows.is_empty());
            }
        }
    }
    filled
}

#[test]
fn pages_from_copies_are_those_of_a_full_scan() {
    for seed in 1..=4 {
        let mut random = Random(seed);
        // More flows than there is room for, so that some are evicted.
        let mut bench = Bench::new(Config {
            max_flows: 256,
            flow_timeout: 5 * SECOND,
            ..config()
        });
        let (mut filled, mut evicted) = (0, false);
        for round in 0..12 {
            for _ in 0..random.below(400) {
                let flow = random.below(500) as u16;
                let latency = Some(random.below(50) as u32);
                let hops =
                    (0..random.below(4) as u32).map(|id| testkit::reports::Node { latency, ..node(id) });
                let v6 = flow.is_multiple_of(7);
                bench.send(&Sent {
                    flow,
                    v6,
                    hops: hops.collect(),
                    ..Sent::default()
                });
            }
            filled += compare(&bench.collector);
            bench.pass(random.below(8) * SECOND);
            filled += compare(&bench.collector);
            evicted |= bench.collector.tables().flows.evicted > 0 && round > 0;
        }
        assert!(filled > 160 && evicted, "{filled} pages, {evicted}");
        assert!(bench.collector.stats().expired > 0, "flows expired");
    }
}

#[test]
fn pages_of_a_network_with_every_fault_are_those_of_a_full_scan() {
    let (mut network, mut bench) = (Network::new(5), Bench::new(config()));
    for _ in 0..20 {
        for _ in 0..100 {
            let (payload, source) = network.datagram();
            bench.deliver_from(&payload, source);
        }
        compare(&bench.collector);
        bench.pass(SECOND / 3);
    }
    assert!(bench.collector.flows().count() > 10);
}
