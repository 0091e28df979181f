//! What was lost: dropped packets by place, packets that the next node did not report, and lost reports.
#![allow(clippy::unwrap_used, reason = "a failed test says where")]

use collector::event::Loss;
use collector::{Batch, Drop, Event, Kind, Output as _};
use detect::Metric;
use store::{Config, DropPlace, DropSum, LinkCount, Losses, Reader, ReportRow, ReporterLoss, Span, Store};
use testkit::records::{Dir, SECOND, START, bare, flow};
use wire::Hop;
use wire::report::Flags;

fn dropped(number: u32, ts: u64, egress_if: Option<u32>) -> Drop {
    let (node, queue, reason) = (Some(7), Some(3), Some(71));
    Drop { ts, id: ts, flow: Some(flow(number)), node, ingress_if: Some(1), egress_if, queue, reason }
}

/// A report of `node` about a packet that passed it.
fn postcard(ts: u64, number: u32, node: u32, flags: Flags) -> ReportRow {
    ReportRow {
        ts,
        source: [0; 16],
        version: "2.0",
        node: Some(node),
        hw_id: 0,
        seq: 1,
        flags,
        report_type: Some(1),
        drop_reason: None,
        flow: Some(flow(number)),
        hops: vec![Hop { node_id: Some(node), ..Hop::default() }],
    }
}

fn stored(batch: Batch, reports: Vec<ReportRow>) -> (Dir, Reader) {
    let dir = Dir::new("losses");
    let store = Store::open(Config { reports_table: true, ..Config::new(dir.path()) }).unwrap();
    store.submit(batch).unwrap();
    assert!(store.submit_reports(reports));
    store.close();
    let reader = Reader::open(dir.path()).unwrap();
    (dir, reader)
}

fn span() -> Span {
    Span::of(START, START + 60 * SECOND)
}

#[test]
fn drops_are_counted_by_place_and_reason_and_lost_reports_apart() {
    let mut batch = Batch::with_capacity(64);
    for number in [1, 1, 2] {
        batch.drop_report(&dropped(number, START + u64::from(number) * SECOND, Some(2)));
    }
    batch.drop_report(&dropped(1, START + 5 * SECOND, None));
    batch.drop_report(&dropped(1, START + 60 * SECOND, Some(2)));
    let loss =
        Loss { ts: START, node: Some(4), source: [1; 16], hw_id: 0, lost: 5, reordered: 1, duplicated: 2 };
    batch.loss(&loss);
    batch.loss(&Loss { node: None, lost: 3, ..loss });
    let (_dir, reader) = stored(batch, Vec::new());
    let place = |egress_if| DropPlace { node: Some(7), egress_if, queue: Some(3), reason: Some(71) };
    let sum = |packets, flows, first, last| DropSum {
        packets,
        flows,
        first: START + first * SECOND,
        last: START + last * SECOND,
    };
    let expected = Losses {
        drops: [(place(Some(2)), sum(3, 2, 1, 2)), (place(None), sum(1, 1, 5, 5))].into(),
        reporters: [(4, ReporterLoss { lost: 5, duplicated: 2 })].into(),
        unknown_reporters: ReporterLoss { lost: 3, duplicated: 2 },
        ..Losses::default()
    };
    assert_eq!(reader.losses_of(span(), true).unwrap(), expected);
}

#[test]
fn packets_are_counted_at_both_ends_of_a_link_only_where_both_report_them() {
    let mut batch = Batch::with_capacity(64);
    for (number, path) in [(1, [1, 2, 3]), (2, [1, 2, 9]), (3, [1, 2, 3])] {
        let event = Event {
            kind: Kind::New,
            metric: Some(Metric::FlowPath),
            flow: Some(flow(number)),
            ..bare(START + SECOND)
        };
        batch.event(&event, &path);
    }
    let moved = Event {
        kind: Kind::PathChange,
        metric: Some(Metric::FlowPath),
        flow: Some(flow(3)),
        ..bare(START + 9 * SECOND)
    };
    batch.event(&moved, &[1, 4, 3]);
    let mut reports = Vec::new();
    let mut seen = |number, node, count: u64, flags| {
        reports.extend((0..count).map(|at| postcard(START + 2 * SECOND + at, number, node, flags)));
    };
    // Of the first flow ten packets: two are lost before node 2, which drops one; node 3 gets seven.
    for (node, count) in [(1, 10), (2, 7), (3, 7)] {
        seen(1, node, count, Flags::FLOW);
    }
    seen(1, 2, 1, Flags::DROP);
    // Node 9 reports nothing.
    seen(2, 1, 4, Flags::FLOW);
    seen(2, 2, 4, Flags::FLOW);
    // The path of the third one changed.
    seen(3, 1, 5, Flags::FLOW);
    // A report of a whole path is of its last node alone.
    let whole = ReportRow {
        node: Some(3),
        hops: [1, 2, 3].map(|node| Hop { node_id: Some(node), ..Hop::default() }).to_vec(),
        ..postcard(START + SECOND, 1, 3, Flags::FLOW)
    };
    reports.push(whole);
    let (_dir, reader) = stored(batch, reports);
    let counted = reader.losses_of(span(), true).unwrap();
    let count = |sent, arrived, flows| LinkCount { sent, arrived, flows };
    assert_eq!(counted.links, [((1, 2), count(14, 12, 2)), ((2, 3), count(7, 7, 1))].into());
    assert_eq!(counted.silent, [(2, 9)].into());
    assert_eq!((counted.left_out, counted.counted_until), (1, None));
    let without = reader.losses_of(span(), false).unwrap();
    assert_eq!((without.links.len(), without.left_out), (0, 0));
}
