//! Queues over time: heat maps, recordings of the flight recorder, and packets that passed a queue.
#![allow(clippy::unwrap_used, reason = "a failed test says where")]

use collector::flight::{Recording, Trigger};
use collector::{Batch, Event, Location, Output as _, Rollup};
use detect::Metric;
use store::burst::Passage;
use store::{
    Config, Heat, HeatFilter, HeatRow, PassageRow, QueueFilter, Reader, RecordingRow, RecordingWindow,
    ReportRow, Store,
};
use testkit::records::{Dir, SECOND, START, change, flow, rollup};
use wire::Hop;
use wire::report::Flags;

fn queue_rollup(second: u64, node: u32, queue: u8, max: u64) -> Rollup {
    let ts = START + second * SECOND;
    Rollup {
        ts,
        interval: 1,
        metric: Metric::QueueOccupancy,
        flow: None,
        node: Some(node),
        interface: None,
        queue: Some(queue),
        count: 10,
        max,
        ..rollup(ts, 0)
    }
}

fn heat_row(node: u32, queue: u8, values: [Option<u64>; 3], count: u64) -> HeatRow {
    HeatRow {
        key: Location {
            node: Some(node),
            interface: None,
            queue: Some(queue),
        },
        values: values.to_vec(),
        worst: values.into_iter().flatten().max().unwrap(),
        count,
    }
}

#[test]
fn a_heat_map_has_the_greatest_value_of_each_part_the_worst_queue_first() {
    let dir = Dir::new("heat");
    let mut batch = Batch::with_capacity(64);
    for (second, node, queue, max) in [
        (0, 1, 0, 5),
        (1, 1, 0, 9),
        (4, 1, 0, 2),
        (1, 1, 3, 700),
        (5, 2, 0, 40),
        (6, 2, 0, 999),
        (0, 3, 0, 1),
    ] {
        batch.rollup(&queue_rollup(second, node, queue, max));
    }
    // Of another length, another metric, and of a flow: not in it.
    batch.rollup(&Rollup {
        interval: 60,
        ..queue_rollup(1, 1, 0, 5_000)
    });
    batch.rollup(&Rollup {
        metric: Metric::HopLatency,
        ..queue_rollup(1, 1, 0, 5_000)
    });
    batch.rollup(&Rollup {
        flow: Some(flow(1)),
        ..queue_rollup(1, 1, 0, 5_000)
    });
    let store = Store::open(Config::new(dir.path())).unwrap();
    store.submit(batch);
    store.close();
    let filter = HeatFilter {
        metric: Metric::QueueOccupancy,
        from: START,
        to: START + 6 * SECOND,
        column: 2 * SECOND,
        interval: 1,
        location: Location::default(),
        limit: 3,
    };
    let rows = vec![
        heat_row(1, 3, [Some(700), None, None], 10),
        heat_row(2, 0, [None, None, Some(40)], 10),
        heat_row(1, 0, [Some(9), None, Some(2)], 30),
    ];
    let reader = Reader::open(dir.path()).unwrap();
    assert_eq!(
        reader.heat(&filter).unwrap(),
        Heat {
            rows: rows.clone(),
            total: 4,
            truncated: false
        }
    );
    let of = |location| reader.heat(&HeatFilter { location, ..filter }).unwrap();
    let node_2 = Location::of_node(Some(2));
    let queue_3 = Location {
        queue: Some(3),
        ..Location::default()
    };
    for (location, row) in [(node_2, 1), (queue_3, 0)] {
        let expected = Heat {
            rows: vec![rows[row].clone()],
            total: 1,
            truncated: false,
        };
        assert_eq!(of(location), expected);
    }
    // These rows have no interface, so a location with one selects none of them.
    let port = Location {
        interface: Some(2),
        ..queue_3
    };
    assert_eq!(of(port), Heat::default());
}

fn recording(ts: u64, node: Option<u32>, interface: Option<u32>, queue: Option<u8>) -> Recording {
    let event = Event {
        node,
        interface,
        queue,
        flow: Some(flow(7)),
        ..change(ts, flow(7), 0, 9)
    };
    let trigger = Trigger {
        event,
        rule: Some("deep queue".to_owned()),
    };
    Recording {
        trigger,
        from: ts - SECOND,
        to: ts + SECOND,
        reports: 12,
        every: 4,
        late: true,
    }
}

fn row_of(recording: &Recording) -> RecordingRow {
    let event = &recording.trigger.event;
    RecordingRow {
        ts: event.ts,
        since: recording.from,
        until: recording.to,
        kind: event.kind,
        metric: event.metric,
        flow: event.flow,
        node: event.node,
        interface: event.interface,
        queue: event.queue,
        value: event.value,
        rule: recording.trigger.rule.clone(),
        id: event.id,
        reports: 12,
        every: 4,
        late: true,
    }
}

/// The recordings of seconds `from` to `to`.
fn recordings(reader: &Reader, from: u64, to: u64, location: Location, limit: usize) -> Vec<RecordingRow> {
    let from = START + from * SECOND;
    let to = START + to * SECOND;
    reader.recordings(from, to, location, limit).unwrap()
}

fn some(rows: &[RecordingRow], places: &[usize]) -> Vec<RecordingRow> {
    places
        .iter()
        .map(|place| rows[*place].clone())
        .collect::<Vec<_>>()
}

fn window(second: u64) -> RecordingWindow {
    RecordingWindow {
        since: START + second * SECOND - SECOND,
        until: START + second * SECOND + SECOND,
        one_in: 4,
    }
}

#[test]
fn recordings_are_found_by_time_and_queue() {
    let dir = Dir::new("recordings");
    let all = [
        recording(START, Some(1), Some(5), Some(3)),
        recording(START + 10 * SECOND, Some(1), None, None),
        recording(START + 11 * SECOND, Some(2), None, Some(3)),
        recording(START + 12 * SECOND, None, None, None),
    ];
    let store = Store::open(Config::new(dir.path())).unwrap();
    store.submit_recordings(all.to_vec());
    store.submit_recordings(Vec::new());
    let stats = store.close();
    assert_eq!((stats.submitted, stats.committed), (4, 4));
    let reader = Reader::open(dir.path()).unwrap();
    let rows: Vec<RecordingRow> = all.iter().rev().map(row_of).collect();
    let all_locations = Location::default();
    assert_eq!(recordings(&reader, 0, 100, all_locations, 10), rows);
    assert_eq!(recordings(&reader, 0, 100, all_locations, 1), rows[..1]);
    // The last one ends a second after its event.
    assert_eq!(recordings(&reader, 13, 100, all_locations, 10), rows[..1]);
    assert_eq!(recordings(&reader, 14, 100, all_locations, 10), []);
    // One without a node may be about any.
    for (interface, queue, places) in [
        (None, Some(3), &[0, 2, 3][..]),
        (Some(5), Some(3), &[0, 2, 3]),
        (Some(6), Some(3), &[0, 2]),
        (Some(6), None, &[0, 2]),
        (None, Some(4), &[0, 2]),
        (None, None, &[0, 2, 3]),
    ] {
        let location = Location {
            node: Some(1),
            interface,
            queue,
        };
        let found = recordings(&reader, 0, 100, location, 10);
        assert_eq!(found, some(&rows, places), "{location:?}");
    }
    let windows = reader.recording_windows(START, START + 10 * SECOND).unwrap();
    assert_eq!(windows, [window(0), window(10)]);
}

/// A report whose hops with a hop latency took 40 ns, whatever the device says.
fn report(ts: u64, hops: Vec<Hop>) -> ReportRow {
    let latencies = hops.iter().map(|hop| hop.hop_latency.map(|_| 40)).collect();
    ReportRow {
        ts,
        source: std::net::Ipv4Addr::new(192, 0, 2, 7).to_ipv6_mapped().octets(),
        version: "2.0",
        node: Some(103),
        hw_id: 1,
        seq: 99,
        flags: Flags(0),
        report_type: Some(0),
        drop_reason: None,
        flow: Some(flow(1)),
        hops,
        latencies,
        is_path: true,
    }
}

fn hop(node: u32, queue: Option<u8>, occupancy: u32) -> Hop {
    Hop {
        node_id: Some(node),
        queue_id: queue,
        queue_occupancy: Some(occupancy),
        hop_latency: Some(50),
        egress_ts: Some(1_000),
        egress_if: Some(8),
        ..Hop::default()
    }
}

#[test]
fn packets_of_a_queue_come_in_the_order_of_time() {
    let dir = Dir::new("passages");
    let blank = Hop {
        node_id: Some(102),
        queue_id: Some(1),
        ..Hop::default()
    };
    let reports = vec![
        report(START + 2, vec![hop(101, Some(0), 1), hop(102, Some(1), 7)]),
        report(START + 1, vec![hop(102, None, 6), hop(103, Some(1), 9)]),
        report(START + 3, vec![blank]),
        report(START + 3, vec![hop(102, Some(2), 5)]),
        report(START + 9, vec![hop(102, Some(1), 8)]),
    ];
    let store = Store::open(Config {
        reports_table: true,
        ..Config::new(dir.path())
    })
    .unwrap();
    store.submit_reports(reports);
    store.close();
    let passage =
        |ts: u64, device: Option<u64>, occupancy: Option<u64>, queue: Option<u8>, path: &[u32]| PassageRow {
            ts: START + ts,
            passage: Passage {
                ts: device.unwrap_or(START + ts),
                flow: Some(flow(1)),
                occupancy,
                latency: device.map(|_| 40),
                weight: 1,
            },
            queue,
            interface: device.map(|_| 8),
            source: "192.0.2.7".to_owned(),
            by_device: device.is_some(),
            path: path.to_vec(),
        };
    let expected = [
        passage(1, Some(1_000), Some(6), None, &[102, 103]),
        passage(2, Some(1_000), Some(7), Some(1), &[101, 102]),
        passage(3, None, None, Some(1), &[102]),
    ];
    let reader = Reader::open(dir.path()).unwrap();
    let filter = QueueFilter {
        node: 102,
        queue: Some(1),
        interface: None,
        from: START,
        to: START + 9,
        limit: 3,
    };
    assert_eq!(reader.passages(&filter).unwrap(), (expected.to_vec(), false));
    let two = QueueFilter { limit: 2, ..filter };
    assert_eq!(reader.passages(&two).unwrap(), (expected[..2].to_vec(), true));
    let all = QueueFilter {
        queue: None,
        to: START + 10,
        limit: 9,
        ..filter
    };
    assert_eq!(reader.passages(&all).unwrap().0.len(), 5);
}

#[test]
fn packets_of_a_port_are_those_of_its_level_1_or_else_level_2_interface() {
    let dir = Dir::new("ports");
    let level_2 = Hop {
        egress_if: None,
        l2_egress_if: Some(70_008),
        ..hop(102, Some(1), 2)
    };
    let both = Hop {
        l2_egress_if: Some(70_009),
        ..hop(102, Some(1), 3)
    };
    let unknown = Hop {
        egress_if: None,
        ..hop(102, Some(1), 4)
    };
    let hops = [hop(102, Some(1), 1), level_2, both, unknown];
    let reports = hops.map(|hop| report(START, vec![hop]));
    let store = Store::open(Config {
        reports_table: true,
        ..Config::new(dir.path())
    })
    .unwrap();
    store.submit_reports(reports.to_vec());
    store.close();
    let reader = Reader::open(dir.path()).unwrap();
    let at = |interface| {
        let filter = QueueFilter {
            node: 102,
            queue: Some(1),
            interface,
            from: START,
            to: START + 1,
            limit: 9,
        };
        let (mut rows, _) = reader.passages(&filter).unwrap();
        rows.sort_by_key(|row| row.passage.occupancy);
        rows.iter()
            .map(|row| (row.passage.occupancy.unwrap(), row.interface))
            .collect::<Vec<_>>()
    };
    let [one, two, three, four] = [(1, Some(8)), (2, Some(70_008)), (3, Some(8)), (4, None)];
    assert_eq!(at(None), [one, two, three, four]);
    assert_eq!(at(Some(8)), [one, three, four]);
    assert_eq!(at(Some(70_008)), [two, four]);
    assert_eq!(at(Some(70_009)), [four]);
}
