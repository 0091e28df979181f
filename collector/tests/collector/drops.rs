//! What a drop report says about the packet, and about the node that dropped it.

#![allow(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

use collector::{Drop, Kind};
use detect::Metric;
use testkit::reports::{Bench, config};
use testkit::vectors::bytes;
use wire::{Dialect, FlowKey, Profile};

/// The collector after these vectors, each read by the dialect that its name begins with, if any.
fn receive(names: &[&str]) -> Bench {
    let mut config = config();
    if names.iter().any(|name| name.starts_with("gap")) {
        config.default_profile.wire = Profile::new(Dialect::HostInt);
    }
    let mut bench = Bench::new(config);
    for name in names {
        bench.deliver(&bytes(name));
    }
    bench
}

fn key(text: &str) -> Option<FlowKey> {
    Some(text.parse().unwrap())
}

/// The drop that a report makes, without its time and id.
fn drop_of(name: &str) -> Drop {
    let bench = receive(&[name]);
    let [drop] = bench.log.drops[..] else {
        panic!("{:?}", bench.log.drops)
    };
    Drop { ts: 0, id: 0, ..drop }
}

#[test]
fn a_drop_says_nothing_of_the_node_that_only_the_packet_says() {
    let nothing = Drop {
        ts: 0,
        id: 0,
        flow: key("10.0.0.1:40000>10.0.0.2:9000/17"),
        tunnel: None,
        node: None,
        ingress_if: None,
        egress_if: None,
        queue: None,
        reason: None,
    };
    assert_eq!(drop_of("drop_with_int_of_a_host_05"), nothing);
    let of_node = Drop {
        node: Some(9),
        ..nothing
    };
    assert_eq!(drop_of("drop_with_int_of_a_host_10"), of_node);
    assert_eq!(drop_of("drop_with_int_of_a_host_20"), of_node);
    let with_reason = Drop {
        queue: Some(1),
        reason: Some(71),
        ..of_node
    };
    assert_eq!(drop_of("drop_with_reason_and_int_of_a_host"), with_reason);
    // A host can name the reporter, too.
    assert_eq!(drop_of("drop_with_record_of_the_reporter_in_int"), of_node);
    let with_queue = Drop {
        queue: Some(5),
        ..with_reason
    };
    assert_eq!(drop_of("drop_merged_with_record_in_int"), with_queue);
}

#[test]
fn a_drop_header_leaves_the_latency_and_the_queue_of_the_record_in_the_packet() {
    let name = "drop_05_with_own_record_in_int";
    let bench = receive(&[name]);
    let values: Vec<_> = bench
        .log
        .events
        .iter()
        .filter(|event| event.node == Some(9))
        .map(|event| (event.kind, event.metric, event.queue, event.value))
        .collect();
    assert_eq!(
        values,
        [
            (Kind::Drop, None, Some(5), None),
            (Kind::New, Some(Metric::QueueOccupancy), Some(2), Some(100)),
        ]
    );
    let series = bench.collector.nodes().find(|series| series.node == 9);
    assert_eq!(series.map(|series| series.latest), Some(500));
}

#[test]
fn a_dropped_packet_of_a_tunnel_names_the_host_that_sent_it() {
    let drop = drop_of("drop_of_a_tunnelled_packet");
    assert_eq!(
        (drop.flow, drop.tunnel),
        (key("10.9.9.9:40000>10.0.0.2:80/6"), key("10.0.0.66>10.0.0.2/4"))
    );
}

#[test]
fn a_drop_reason_without_d_is_no_drop() {
    let bench = receive(&["e_reason_without_d", "e_reason_without_d"]);
    assert_eq!(bench.log.drops, []);
    assert_eq!(bench.collector.stats().drop_reports, 0);
}

#[test]
fn packets_that_a_sink_misses_are_lost_between_source_and_sink_and_no_drop() {
    let mut bench = receive(&["gap_with_d"]);
    assert_eq!(bench.log.drops, []);
    assert_eq!(bench.collected(), "packet_loss flow=39000 node=2 7 path=1>2\n");
    assert_eq!(bench.collector.stats().reports, 1);
}

/// Two packets that are not IP have no digest, and numbers of a reporter come again.
#[test]
fn drops_of_different_packets_have_different_ids() {
    let one = bytes("tr05_drop_arp");
    let mut other = one.clone();
    *other.last_mut().unwrap() ^= 1;
    let mut bench = Bench::new(config());
    bench.deliver(&one).deliver(&other);
    let [first, second] = &bench.log.drops[..] else {
        panic!("{:?}", bench.log.drops)
    };
    assert_ne!(first.id, second.id);
    let mut again = Bench::new(config());
    again.deliver(&one);
    assert_eq!(again.log.drops[0].id, first.id);
}
