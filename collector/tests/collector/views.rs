//! Views of a flow show the values of its own packet.

#![allow(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

use std::net::Ipv4Addr;

use collector::{Datagram, HopView, LatestView};
use testkit::reports::{Bench, Node, SECOND, Sent, config, flow, node};

fn hop(bench: &Bench, number: u16) -> HopView {
    bench
        .collector
        .flow(&flow(number, false))
        .unwrap()
        .hops()
        .next()
        .unwrap()
}

#[test]
fn a_hop_shows_the_values_of_one_packet_and_the_latest_of_its_queue_and_link_apart() {
    let mut bench = Bench::new(config());
    // Node id, interfaces, latency, queue, utilization.
    let all = 0xf100;
    let slow = Node {
        latency: Some(10_800),
        queue: Some((0, 900)),
        utilization: Some(700),
        ..node(1)
    };
    let quick = Node {
        latency: Some(100),
        queue: Some((0, 0)),
        utilization: Some(30),
        ..node(1)
    };
    bench.send(&Sent {
        flow: 1,
        hops: vec![slow],
        bitmap: all,
        ..Sent::default()
    });
    bench.pass(2 * SECOND);
    bench.send(&Sent {
        flow: 2,
        hops: vec![quick],
        bitmap: all,
        ..Sent::default()
    });
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
    let with = |number, bitmap, hop: Node| Sent {
        flow: number,
        hops: vec![hop],
        bitmap,
        ..Sent::default()
    };
    bench.send(&with(
        1,
        0xf100,
        Node {
            queue: Some((3, 900)),
            ..node(1)
        },
    ));
    assert_eq!(
        (hop(&bench, 1).queue, hop(&bench, 1).queue_occupancy),
        (Some(3), Some(900))
    );
    // Node id and latency.
    bench.send(&with(1, 0xa000, node(1)));
    let bare = hop(&bench, 1);
    assert_eq!(
        (bare.queue, bare.queue_occupancy, bare.link_utilization),
        (None, None, None)
    );
    // A queue with another number gets its own series, regardless of the previous one.
    bench.send(&with(
        1,
        0xf100,
        Node {
            queue: Some((255, 7)),
            ..node(1)
        },
    ));
    let mut queues: Vec<_> = bench
        .collector
        .queues()
        .map(|queue| (queue.interface, queue.queue, queue.latest))
        .collect();
    queues.sort_unstable();
    assert_eq!(queues, [(Some(2), Some(3), 900), (Some(2), Some(255), 7)]);
    assert_eq!(
        (hop(&bench, 1).queue, hop(&bench, 1).queue_occupancy),
        (Some(255), Some(7))
    );
}

#[test]
fn values_stay_with_their_hop_when_the_path_changes() {
    let mut bench = Bench::new(config());
    let nodes = |ids: &[u32]| -> Vec<Node> {
        ids.iter()
            .map(|&id| Node {
                queue: Some((0, 10 * id)),
                utilization: Some(id),
                ..node(id)
            })
            .collect()
    };
    for path in [&[1, 2, 3][..], &[1, 4, 2, 3], &[3]] {
        bench.send(&Sent {
            hops: nodes(path),
            bitmap: 0xf100,
            ..Sent::default()
        });
        let view = bench.collector.flow(&flow(1, false)).unwrap();
        let values = |hop: HopView| (hop.node, hop.queue_occupancy, hop.link_utilization);
        let expected = path
            .iter()
            .map(|&id| (Some(id), Some(u64::from(10 * id)), Some(u64::from(id))));
        assert!(view.hops().map(values).eq(expected), "{path:?}");
    }
}

/// Node, interfaces, latency, queue, both timestamps, utilization.
const EVERYTHING: u16 = 0xfd00;

#[test]
fn an_implausible_latency_is_marked_and_counted_and_in_no_other_number() {
    let mut bench = Bench::new(config());
    let stamped = |latency, stamps| Node {
        latency: Some(latency),
        stamps: Some(stamps),
        ..node(1)
    };
    let send = |bench: &mut Bench, first| {
        bench.send(&Sent {
            hops: vec![first, node(2)],
            bitmap: EVERYTHING,
            ..Sent::default()
        });
        bench.collected()
    };
    send(&mut bench, stamped(1000, (5000, 6000)));
    let odd = [
        (stamped(700, (0, 700)), 700),
        (stamped(3_000_000_000, (5000, 3_000_005_000)), 3_000_000_000),
        (
            Node {
                latency: None,
                ..stamped(0, (700, 600))
            },
            4_294_967_196,
        ),
    ];
    for (hop_sent, value) in odd {
        assert_eq!(send(&mut bench, hop_sent), "", "no threshold is exceeded");
        let seen = hop(&bench, 1);
        let shown = seen.implausible_latency.unwrap();
        assert!(
            seen.hop_latency.is_none() && value - shown <= value >> 17,
            "{shown} for {value}"
        );
    }
    assert_eq!(bench.collector.stats().implausible_latencies, 3);
    let series: Vec<_> = bench
        .collector
        .nodes()
        .map(|node| (node.node, node.latest, node.values, node.implausible))
        .collect();
    assert!(
        series.contains(&(1, 1000, 1, 3)) && series.contains(&(2, 1000, 4, 0)),
        "{series:?}"
    );
    let flow_latency = bench.collector.flow(&flow(1, false)).unwrap().row.flow_latency;
    assert_eq!(flow_latency, None, "the latest report has none");
    // A plausible one clears the mark.
    send(&mut bench, stamped(1010, (5000, 6010)));
    assert_eq!(
        (hop(&bench, 1).hop_latency, hop(&bench, 1).implausible_latency),
        (Some(1010), None)
    );
    bench.pass(120 * SECOND);
    let minute = |rollup: &&collector::Rollup| rollup.interval == 60 && rollup.max > 1010;
    let higher: Vec<_> = bench.log.rollups.iter().filter(minute).collect();
    assert!(
        higher
            .iter()
            .all(|rollup| rollup.flow.is_some() && rollup.max <= 2010),
        "{higher:?}"
    );
}

#[test]
fn a_node_with_implausible_latencies_only_has_no_latest_one() {
    let mut bench = Bench::new(config());
    let clone = Node {
        stamps: Some((0, 1000)),
        ..node(9)
    };
    for _ in 0..3 {
        bench.send(&Sent {
            hops: vec![clone],
            bitmap: EVERYTHING,
            ..Sent::default()
        });
    }
    assert!(!bench.collected().contains("hop_latency"));
    let series: Vec<_> = bench
        .collector
        .nodes()
        .map(|node| (node.node, node.values, node.implausible))
        .collect();
    assert_eq!(series, [(9, 0, 3)]);
    let off = collector::Profile {
        max_hop_latency: 0,
        ..collector::Profile::default()
    };
    let mut bench = Bench::new(collector::Config {
        default_profile: off,
        ..config()
    });
    bench.send(&Sent {
        hops: vec![clone],
        bitmap: EVERYTHING,
        ..Sent::default()
    });
    assert_eq!(
        (
            hop(&bench, 1).hop_latency,
            bench.collector.stats().implausible_latencies
        ),
        (Some(1000), 0)
    );
}

/// The later reports of a datagram in another collector: together the two know and count what one does.
#[test]
fn a_datagram_that_two_collectors_share_counts_once() {
    let sent = [1, 2, 3, 4].map(|flow| Sent {
        flow,
        reporter: 3,
        ..Sent::default()
    });
    let datagram = Sent::v20(&sent);
    let mut whole = Bench::new(config());
    whole.deliver(&datagram);
    let mut first = Bench::new(config());
    first.deliver(&Sent::v20(&sent[..2]));
    let mut later = Bench::new(config());
    let rest = Sent::v20(&sent[2..]);
    let part = Datagram {
        payload: &rest,
        source: Ipv4Addr::new(192, 0, 2, 1).to_ipv6_mapped().octets(),
        src_port: 5000,
        listener: 0,
        received: first.now,
    };
    later.collector.handle_later_reports(&[part], 2, &mut later.log);
    let mut sum = first.collector.stats();
    sum += &later.collector.stats();
    let expected = whole.collector.stats();
    // Each collector tracks nodes, queues and links on its own, and both see them for the first time.
    assert!(sum.events[0] > expected.events[0]);
    sum.events[0] = expected.events[0];
    assert_eq!(sum, expected);
    let datagrams = |bench: &Bench| -> u64 { bench.collector.sources().map(|view| view.datagrams).sum() };
    assert_eq!([&whole, &first, &later].map(datagrams), [1, 1, 0]);
    for number in 1..=4 {
        let holder = if number < 3 { &first } else { &later };
        let path = |bench: &Bench| -> Vec<u32> {
            bench
                .collector
                .flow(&flow(number, false))
                .unwrap()
                .path()
                .collect()
        };
        assert_eq!(path(holder), path(&whole), "flow {number}");
    }
}

/// The ID of a buffer is no queue's: its occupancy congests no queue.
#[test]
fn a_shared_buffer_is_not_a_congested_queue() {
    let mut bench = Bench::new(config());
    let buffered = Node {
        queue: Some((1, 5)),
        buffer: Some((1, 90_000)),
        ..node(1)
    };
    // With the queue, as a stack and with a record of the reporter.
    let sent = Sent {
        hops: vec![buffered],
        bitmap: 0x9080,
        ..Sent::default()
    };
    bench.deliver(&Sent::v20(std::slice::from_ref(&sent)));
    bench.deliver(&sent.postcard());
    assert_eq!(hop(&bench, 1).queue_congestion, None);
    assert_eq!(bench.collector.congestion().count(), 0);
    assert!(!bench.collected().contains("queue_congestion"));
    let congested = Node {
        congestion: Some((2, 70)),
        ..node(1)
    };
    let sent = Sent {
        flow: 2,
        hops: vec![congested],
        bitmap: 0x9200,
        ..Sent::default()
    };
    bench.deliver(&sent.v10_of_int_05());
    assert_eq!(hop(&bench, 2).queue_congestion, Some(70));
    assert!(
        bench
            .collected()
            .contains("new queue_congestion node=1 queue=2 70")
    );
}
