//! IOAM traces without some nodes or their ids: their values are applied, and a known path remains.

#![allow(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

use collector::{Batch, Collector, Config, Datagram, Kind};
use wire::FlowKey;

const START: u64 = 1_700_000_000_000_000_000;

/// A collector that receives the payloads of vectors, a millisecond apart.
fn receive(names: &[&str]) -> (Collector, Batch) {
    receive_with(Config::default(), names)
}

fn receive_with(config: Config, names: &[&str]) -> (Collector, Batch) {
    let mut collector = Collector::new(config);
    let mut batch = Batch::with_capacity(1 << 10);
    for (name, received) in names.iter().zip((START..).step_by(1_000_000)) {
        let payload = testkit::vectors::bytes(name);
        let datagram = Datagram {
            payload: &payload,
            source: [9; 16],
            src_port: 9,
            listener: 0,
            received,
        };
        collector.handle(&[datagram], &mut batch);
    }
    (collector, batch)
}

fn flow() -> FlowKey {
    "[2001:db8::1]:40000>[2001:db8::2]:9000/17".parse().unwrap()
}

fn kinds(batch: &Batch) -> Vec<Kind> {
    let whole = [Kind::PathChange, Kind::HopLimit];
    batch
        .events()
        .map(|(event, _)| event.kind)
        .filter(|kind| whole.contains(kind))
        .collect()
}

#[test]
fn an_overflow_with_other_nodes_is_another_path() {
    let (collector, batch) = receive(&["tr10_ioam", "tr10_ioam_overflow", "tr10_ioam_overflow"]);
    let view = collector.flow(&flow()).unwrap();
    assert_eq!(
        (view.path().collect::<Vec<_>>(), view.incomplete, view.hop_limit),
        (vec![2, 3], true, true)
    );
    assert_eq!(kinds(&batch), [Kind::PathChange, Kind::HopLimit]);
    let (collector, batch) = receive(&["tr10_ioam", "tr10_ioam_overflow", "tr10_ioam"]);
    assert!(
        !collector.flow(&flow()).unwrap().hop_limit,
        "a complete trace ends it"
    );
    let events = [Kind::PathChange, Kind::HopLimit, Kind::PathChange];
    assert_eq!(kinds(&batch), events);
}

#[test]
fn an_overflow_gives_a_path_until_a_trace_with_all_nodes_comes() {
    let path_of = |names: &[&str]| {
        let (collector, batch) = receive(names);
        let view = collector.flow(&flow()).unwrap();
        let nodes: Vec<_> = view.hops().map(|hop| hop.node).collect();
        assert_eq!(nodes, view.path().map(Some).collect::<Vec<_>>());
        (view.path().collect::<Vec<_>>(), view.incomplete, kinds(&batch))
    };
    let (once, twice) = (["tr10_ioam_overflow"], ["tr10_ioam_overflow"; 2]);
    assert_eq!(path_of(&once), (vec![2, 3], true, vec![Kind::HopLimit]));
    assert_eq!(path_of(&twice), (vec![2, 3], true, vec![Kind::HopLimit]));
    assert_eq!(
        path_of(&["tr10_ioam_overflow", "tr10_ioam"]),
        (vec![1, 2], false, vec![Kind::HopLimit, Kind::PathChange])
    );
}

#[test]
fn a_trace_without_node_ids_gives_a_latency_and_no_node() {
    let (collector, batch) = receive(&["tr10_ioam_no_node_ids"]);
    let view = collector.flow(&flow()).unwrap();
    assert_eq!(
        (view.path().len(), view.hops().len(), view.row.flow_latency),
        (0, 0, Some(2400))
    );
    assert_eq!(collector.nodes().count(), 0);
    let metrics: Vec<_> = batch.events().filter_map(|(event, _)| event.metric).collect();
    assert_eq!(metrics, [detect::Metric::FlowLatency]);
}

#[test]
fn the_transit_delay_is_in_ns_whatever_the_unit_of_latencies() {
    let config = Config {
        default_profile: collector::Profile {
            latency_unit_ns: 1_000,
            ..collector::Profile::default()
        },
        ..Config::default()
    };
    let (collector, _) = receive_with(config, &["tr10_ioam_no_node_ids"]);
    assert_eq!(collector.flow(&flow()).unwrap().row.flow_latency, Some(2400));
}

#[test]
fn a_queue_depth_of_more_than_24_bits_is_no_occupancy() {
    for (name, occupancies) in [
        ("tr20_ioam_depth_own_queue", vec![5]),
        ("tr20_ioam_depth_long", vec![]),
    ] {
        let (collector, _) = receive(&[name]);
        let latest: Vec<u64> = collector.queues().map(|queue| queue.latest).collect();
        assert_eq!(latest, occupancies, "{name}");
    }
}

#[test]
fn what_a_host_has_written_hides_neither_a_trace_nor_int() {
    for (name, path) in [
        ("tr20_bad_ioam_int", vec![1, 2]),
        ("tr20_bad_int_option_ioam", vec![1, 2]),
        ("tr20_bad_int_option_before_ioam", vec![1, 2]),
        ("tr20_bad_shim_ioam", vec![1, 2]),
        ("tr20_bad_shim_ioam_own", vec![1, 2, 3]),
        ("tr20_ioam_second_bad", vec![1, 2]),
    ] {
        let (collector, _) = receive(&[name]);
        let view = collector.flow(&flow()).unwrap();
        assert_eq!(
            (view.path().collect::<Vec<_>>(), view.incomplete),
            (path, false),
            "{name}"
        );
        assert_eq!(collector.stats().int_refused.iter().sum::<u64>(), 1, "{name}");
    }
    // The reporter alone is no path.
    let (collector, _) = receive(&["tr20_bad_ioam_own"]);
    let view = collector.flow(&flow()).unwrap();
    assert_eq!((view.row.reports, view.path().count()), (1, 0));
}
