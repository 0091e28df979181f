//! Views of a flow show the values of its own packet.

#![allow(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

use collector::{HopView, LatestView};
use testkit::reports::{Bench, Node, SECOND, Sent, config, flow, node};

fn hop(bench: &Bench, number: u16) -> HopView {
    bench.collector.flow(&flow(number, false)).unwrap().hops().next().unwrap()
}

#[test]
fn a_hop_shows_the_values_of_one_packet_and_the_latest_of_its_queue_and_link_apart() {
    let mut bench = Bench::new(config());
    // Node id, interfaces, latency, queue, utilization.
    let all = 0xf100;
    let slow = Node { latency: Some(10_800), queue: Some((0, 900)), utilization: Some(700), ..node(1) };
    let quick = Node { latency: Some(100), queue: Some((0, 0)), utilization: Some(30), ..node(1) };
    bench.send(&Sent { flow: 1, hops: vec![slow], bitmap: all, ..Sent::default() });
    bench.pass(2 * SECOND);
    bench.send(&Sent { flow: 2, hops: vec![quick], bitmap: all, ..Sent::default() });
    let values = |hop: &HopView| (hop.hop_latency, hop.queue_occupancy, hop.link_utilization);
    let (first, second) = (hop(&bench, 1), hop(&bench, 2));
    assert_eq!(values(&first), (Some(10_800), Some(900), Some(700)));
    assert_eq!(values(&second), (Some(100), Some(0), Some(30)));
    let latest = |value| Some(LatestView { value, age: 0 });
    assert_eq!((first.queue_latest, first.link_latest), (latest(0), latest(30)));
    bench.pass(3 * SECOND);
    let age = hop(&bench, 1).queue_latest.unwrap().age;
    assert!((2..=4).contains(&age), "{age} s");
}

#[test]
fn values_missing_from_the_latest_packet_are_not_taken_from_earlier_ones() {
    let mut bench = Bench::new(config());
    let with = |number, bitmap, hop: Node| Sent { flow: number, hops: vec![hop], bitmap, ..Sent::default() };
    bench.send(&with(1, 0xf100, Node { queue: Some((3, 900)), ..node(1) }));
    assert_eq!((hop(&bench, 1).queue, hop(&bench, 1).queue_occupancy), (Some(3), Some(900)));
    // Node id and latency.
    bench.send(&with(1, 0xa000, node(1)));
    let bare = hop(&bench, 1);
    assert_eq!((bare.queue, bare.queue_occupancy, bare.link_utilization), (None, None, None));
    // A queue of another number gets its own series, whatever was before.
    bench.send(&with(1, 0xf100, Node { queue: Some((255, 7)), ..node(1) }));
    let mut queues: Vec<_> = bench.collector.queues().map(|queue| (queue.part, queue.latest)).collect();
    queues.sort_unstable();
    assert_eq!(queues, [(3, 900), (255, 7)]);
    assert_eq!((hop(&bench, 1).queue, hop(&bench, 1).queue_occupancy), (Some(255), Some(7)));
}

#[test]
fn values_stay_with_their_hop_when_the_path_changes() {
    let mut bench = Bench::new(config());
    let nodes = |ids: &[u32]| -> Vec<Node> {
        ids.iter().map(|&id| Node { queue: Some((0, 10 * id)), utilization: Some(id), ..node(id) }).collect()
    };
    for path in [&[1, 2, 3][..], &[1, 4, 2, 3], &[3]] {
        bench.send(&Sent { hops: nodes(path), bitmap: 0xf100, ..Sent::default() });
        let view = bench.collector.flow(&flow(1, false)).unwrap();
        let values = |hop: HopView| (hop.node, hop.queue_occupancy, hop.link_utilization);
        let expected = path.iter().map(|&id| (Some(id), Some(u64::from(10 * id)), Some(u64::from(id))));
        assert!(view.hops().map(values).eq(expected), "{path:?}");
    }
}
