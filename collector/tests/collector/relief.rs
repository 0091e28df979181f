//! MTU relief of INT 2.1: a node reports the records of a packet that is too long for a link, and removes them.

#![allow(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

use collector::{FlowView, Kind};
use testkit::reports::{Bench, SECOND, Sent, config, flow, node};
use wire::Flags;

/// The source begins with this hop count.
const INITIAL: u8 = 8;

struct Network {
    bench: Bench,
    seq: u32,
}

impl Network {
    fn new() -> Self {
        Self {
            bench: Bench::new(config()),
            seq: 0,
        }
    }

    fn report(&mut self, nodes: &[u32], remaining: u8, flags: Flags) {
        self.seq += 1;
        let sent = Sent {
            hops: nodes.iter().map(|id| node(*id)).collect(),
            bitmap: 0xa000,
            seq: self.seq,
            initial: remaining + nodes.len() as u8,
            flags,
            ..Sent::default()
        };
        self.bench.deliver(&Sent::v20(&[sent]));
    }

    /// The sink's report of a packet that passed these nodes, and begins with this count.
    fn whole(&mut self, nodes: &[u32], initial: u8) {
        self.report(nodes, initial - nodes.len() as u8, Flags::FLOW);
    }

    /// The report of the node that removed the records of these nodes.
    fn intermediate(&mut self, nodes: &[u32]) {
        let flags = Flags(Flags::FLOW.0 | Flags::INTERMEDIATE.0);
        self.report(nodes, INITIAL - nodes.len() as u8, flags);
    }

    /// The sink's report of a packet that passed four nodes, and has the records of the last ones.
    fn rest(&mut self, nodes: &[u32]) {
        self.report(nodes, INITIAL - 4, Flags::FLOW);
    }

    fn view(&self) -> FlowView<'_> {
        self.bench.collector.flow(&flow(1, false)).unwrap()
    }

    fn path(&self) -> Vec<u32> {
        self.view().path().collect()
    }

    /// Events of the path.
    fn kinds(&self) -> Vec<Kind> {
        let events = self.bench.log.events.iter().map(|event| event.kind);
        events
            .filter(|kind| matches!(kind, Kind::PathChange | Kind::PathLoop))
            .collect()
    }
}

#[test]
fn the_rest_of_a_stack_is_no_path() {
    for is_first in [true, false] {
        let mut network = Network::new();
        for _ in 0..6 {
            network.whole(&[1, 2, 3, 4], INITIAL);
            if is_first {
                network.intermediate(&[1, 2]);
            }
            network.rest(&[3, 4]);
            if !is_first {
                network.intermediate(&[1, 2]);
            }
        }
        assert_eq!((network.path(), network.kinds()), (vec![1, 2, 3, 4], vec![]));
        let view = network.view();
        assert_eq!((view.row.flow_latency, view.incomplete), (Some(4000), false));
        assert_eq!(view.row.reports, 18);
    }
}

#[test]
fn a_flow_of_long_packets_alone_has_no_path() {
    let mut network = Network::new();
    for _ in 0..100 {
        network.intermediate(&[1, 2]);
        network.rest(&[3, 4]);
        network.bench.pass(SECOND / 2);
    }
    assert_eq!((network.path(), network.kinds()), (vec![], vec![]));
    assert_eq!(network.view().row.flow_latency, None);
    network.whole(&[1, 2, 3, 4], INITIAL);
    assert_eq!((network.path(), network.kinds()), (vec![1, 2, 3, 4], vec![]));
}

#[test]
fn a_path_from_a_shortened_stack_is_marked_when_the_rest_is_known() {
    let mut network = Network::new();
    network.rest(&[3, 4]);
    assert_eq!(network.view().row.flow_latency, Some(2000));
    network.intermediate(&[1, 2]);
    network.rest(&[3, 4]);
    let view = network.view();
    assert_eq!((network.path(), view.incomplete), (vec![3, 4], true));
    assert_eq!(view.row.flow_latency, None);
    network.whole(&[1, 2, 3, 4], INITIAL);
    assert_eq!((network.path(), network.kinds()), (vec![1, 2, 3, 4], vec![]));
    assert!(!network.view().incomplete);
}

#[test]
fn intermediate_reports_may_go_to_another_collector() {
    let mut network = Network::new();
    network.whole(&[1, 2, 3, 4], INITIAL);
    for _ in 0..200 {
        network.rest(&[3, 4]);
        network.bench.pass(SECOND / 10);
    }
    assert_eq!((network.path(), network.kinds()), (vec![1, 2, 3, 4], vec![]));
}

#[test]
fn a_shorter_path_of_all_records_is_a_change() {
    let mut network = Network::new();
    network.whole(&[1, 2, 3, 4], INITIAL);
    network.whole(&[3, 4], INITIAL);
    assert_eq!(
        (network.path(), network.kinds()),
        (vec![3, 4], vec![Kind::PathChange])
    );
}

#[test]
fn another_initial_hop_count_is_learned() {
    let mut network = Network::new();
    network.whole(&[1, 2, 3, 4], INITIAL);
    network.whole(&[1, 2, 3, 4], INITIAL - 2);
    network.whole(&[1, 5, 4], INITIAL - 2);
    assert_eq!(
        (network.path(), network.kinds()),
        (vec![1, 5, 4], vec![Kind::PathChange])
    );
    // After an intermediate report a lower count is that of shortened stacks, until none has come for ten seconds.
    network.intermediate(&[1, 2]);
    for _ in 0..60 {
        network.whole(&[1, 6, 4], INITIAL - 2);
        assert_eq!(network.path(), [1, 5, 4]);
        network.bench.pass(SECOND / 5);
    }
    for _ in 0..4 {
        network.whole(&[1, 6, 4], INITIAL - 2);
    }
    assert_eq!(network.path(), [1, 6, 4]);
}
