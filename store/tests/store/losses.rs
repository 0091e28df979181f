//! What was lost: dropped packets by place, packets that the next node did not report, and lost reports.
#![allow(clippy::unwrap_used, reason = "a failed test says where")]

use collector::event::Loss;
use collector::{Batch, Drop, Event, Kind, Output as _};
use detect::Metric;
use store::{Config, DropKey, DropSum, LinkCount, Losses, Reader, ReportRow, ReporterLoss, Span, Store};
use testkit::records::{Dir, SECOND, START, bare, flow};
use wire::Hop;
use wire::report::Flags;

fn dropped(number: u32, ts: u64, egress_if: Option<u32>) -> Drop {
    Drop {
        ts,
        id: ts,
        flow: Some(flow(number)),
        tunnel: None,
        node: Some(7),
        ingress_if: Some(1),
        egress_if,
        queue: Some(3),
        reason: Some(71),
    }
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
        latencies: Vec::new(),
        hops: vec![Hop {
            node_id: Some(node),
            ..Hop::default()
        }],
        is_path: true,
    }
}

fn stored(batch: Batch, reports: Vec<ReportRow>) -> (Dir, Reader) {
    let dir = Dir::new("losses");
    let store = Store::open(Config {
        reports_table: true,
        ..Config::new(dir.path())
    })
    .unwrap();
    store.submit(batch);
    store.submit_reports(reports);
    store.close();
    let reader = Reader::open(dir.path()).unwrap();
    (dir, reader)
}

fn span() -> Span {
    Span::new(START, START + 60 * SECOND)
}

fn drop_key(egress_if: Option<u32>) -> DropKey {
    DropKey {
        node: Some(7),
        egress_if,
        queue: Some(3),
        reason: Some(71),
    }
}

fn drop_sum(packets: u64, flows: u64, first: u64, last: u64) -> DropSum {
    DropSum {
        packets,
        flows,
        first: START + first * SECOND,
        last: START + last * SECOND,
    }
}

#[test]
fn drops_are_counted_by_place_and_reason_and_lost_reports_apart() {
    let mut batch = Batch::with_capacity(64);
    for number in [1, 1, 2] {
        batch.drop_report(&dropped(number, START + u64::from(number) * SECOND, Some(2)));
    }
    batch.drop_report(&dropped(1, START + 5 * SECOND, None));
    batch.drop_report(&dropped(1, START + 60 * SECOND, Some(2)));
    let loss = Loss {
        ts: START,
        node: Some(4),
        source: [1; 16],
        hw_id: 0,
        lost: 5,
        reordered: 1,
        duplicated: 2,
    };
    batch.loss(&loss);
    batch.loss(&Loss {
        node: None,
        lost: 3,
        ..loss
    });
    let (_dir, reader) = stored(batch, Vec::new());
    let expected = Losses {
        drops: [
            (drop_key(Some(2)), drop_sum(3, 2, 1, 2)),
            (drop_key(None), drop_sum(1, 1, 5, 5)),
        ]
        .into(),
        reporters: [(
            4,
            ReporterLoss {
                lost: 5,
                duplicated: 2,
            },
        )]
        .into(),
        concerning: [(
            4,
            ReporterLoss {
                lost: 5,
                duplicated: 2,
            },
        )]
        .into(),
        unknown_reporters: ReporterLoss {
            lost: 3,
            duplicated: 2,
        },
        ..Losses::default()
    };
    assert_eq!(reader.losses_in(span(), Some(u64::MAX)).unwrap(), expected);
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
    for (number, node, count, flags) in [
        // Of the first flow ten packets: two are lost before node 2, which drops one; node 3 gets seven.
        (1, 1, 10, Flags::FLOW),
        (1, 2, 7, Flags::FLOW),
        (1, 3, 7, Flags::FLOW),
        (1, 2, 1, Flags::DROP),
        // Node 9 reports nothing.
        (2, 1, 4, Flags::FLOW),
        (2, 2, 4, Flags::FLOW),
        // The path of the third one changed.
        (3, 1, 5, Flags::FLOW),
    ] {
        reports.extend((0..count).map(|at| postcard(START + 2 * SECOND + at, number, node, flags)));
    }
    // A report of a whole path is of its last node alone.
    let whole = ReportRow {
        node: Some(3),
        hops: [1, 2, 3]
            .map(|node| Hop {
                node_id: Some(node),
                ..Hop::default()
            })
            .to_vec(),
        ..postcard(START + SECOND, 1, 3, Flags::FLOW)
    };
    reports.push(whole);
    let (_dir, reader) = stored(batch, reports);
    let counted = reader.losses_in(span(), Some(u64::MAX)).unwrap();
    assert_eq!(
        counted.links,
        [((1, 2), (14, 12, 2)), ((2, 3), (7, 7, 1))]
            .map(|(link, (sent, arrived, flows))| (
                link,
                LinkCount {
                    sent,
                    arrived,
                    flows,
                    ..LinkCount::default()
                }
            ))
            .into()
    );
    assert_eq!(counted.silent, [(2, 9)].into());
    assert_eq!((counted.left_out, counted.counted_until), (1, None));
    let without = reader.losses_in(span(), None).unwrap();
    assert_eq!((without.links.len(), without.left_out), (0, 0));
}

/// The first path of a flow.
fn takes(batch: &mut Batch, number: u32, ts: u64, path: &[u32]) {
    let metric = Some(Metric::FlowPath);
    let flow = Some(flow(number));
    batch.event(
        &Event {
            kind: Kind::New,
            metric,
            flow,
            ..bare(ts)
        },
        path,
    );
}

#[test]
fn a_path_that_passes_a_node_twice_is_not_counted() {
    let mut batch = Batch::with_capacity(16);
    takes(&mut batch, 1, START + SECOND, &[1, 2, 1, 3]);
    // Node 1 reports each of four packets twice, the others once.
    let nodes = [(1, 8), (2, 4), (3, 4)];
    let reports = nodes.iter().flat_map(|(node, count)| {
        (0..*count).map(|at| postcard(START + 2 * SECOND + at, 1, *node, Flags::FLOW))
    });
    let (_dir, reader) = stored(batch, reports.collect());
    let counted = reader.losses_in(span(), Some(u64::MAX)).unwrap();
    assert_eq!((counted.links, counted.left_out), ([].into(), 1));
}

#[test]
fn packets_whose_second_report_may_still_come_are_not_counted() {
    let mut batch = Batch::with_capacity(16);
    takes(&mut batch, 1, START + SECOND, &[1, 2]);
    let (_dir, reader) = stored(
        batch,
        [(1, 2), (2, 2), (1, 4)]
            .map(|(node, second)| postcard(START + second * SECOND, 1, node, Flags::FLOW))
            .to_vec(),
    );
    let counted = reader.losses_in(span(), Some(START + 4 * SECOND)).unwrap();
    assert_eq!(
        counted.links,
        [(
            (1, 2),
            LinkCount {
                sent: 1,
                arrived: 1,
                flows: 1,
                ..LinkCount::default()
            }
        )]
        .into()
    );
    assert_eq!(counted.counted_until, None);
    let before = reader.losses_in(span(), Some(START - SECOND)).unwrap();
    assert_eq!(before.links, [].into());
}

fn flow_postcard(number: u32, node: u32, ts: u64) -> ReportRow {
    postcard(ts, number, node, Flags::FLOW)
}

#[test]
fn a_flow_of_two_files_is_counted_once() {
    const HOURS: u64 = 3_600 * SECOND;
    let midnight = START / (24 * HOURS) * 24 * HOURS + 24 * HOURS;
    let mut batch = Batch::with_capacity(16);
    takes(&mut batch, 1, midnight - 9 * SECOND, &[1, 2]);
    let mut reports = vec![
        flow_postcard(1, 1, midnight - SECOND),
        flow_postcard(2, 1, midnight - SECOND),
    ];
    // The last packet before midnight arrives after it.
    reports.extend([
        flow_postcard(1, 2, midnight),
        flow_postcard(1, 1, midnight + 1),
        flow_postcard(1, 2, midnight + 2),
    ]);
    reports.push(flow_postcard(2, 1, midnight + 3));
    let dir = Dir::new("losses-of-days");
    let store = Store::open(Config {
        reports_table: true,
        ..Config::new(dir.path())
    })
    .unwrap();
    store.submit(batch);
    // What is given together is stored in one file.
    for report in reports {
        store.submit_reports(vec![report]);
    }
    store.close();
    let reader = Reader::open(dir.path()).unwrap();
    let files = std::fs::read_dir(dir.path()).unwrap().flatten();
    let days = files
        .filter(|file| file.path().extension().is_some_and(|name| name == "db"))
        .count();
    assert_eq!(days, 2);
    let counted = reader
        .losses_in(Span::new(START, midnight + HOURS), Some(u64::MAX))
        .unwrap();
    assert_eq!(
        counted.links,
        [(
            (1, 2),
            LinkCount {
                sent: 2,
                arrived: 2,
                flows: 1,
                ..LinkCount::default()
            }
        )]
        .into()
    );
    assert_eq!(counted.left_out, 1, "the second flow's path is not known");
    // The path was taken before midnight, in the file of the day before.
    let after = reader
        .losses_in(Span::new(midnight, midnight + HOURS), Some(u64::MAX))
        .unwrap();
    assert_eq!((after.links[&(1, 2)].flows, after.left_out), (1, 1));
}

#[test]
fn packets_under_way_at_the_ends_of_the_time_are_counted_apart() {
    const MS: u64 = SECOND / 1_000;
    // 200 packets per second for 100 s; the reports of the next node come 50 ms later. The second flow begins and ends within
    // the time.
    let mut batch = Batch::with_capacity(16);
    let begin = START - 20 * SECOND;
    takes(&mut batch, 1, begin, &[1, 2]);
    takes(&mut batch, 2, START + 10 * SECOND, &[1, 2]);
    let mut reports = Vec::new();
    for packet in 0..20_000 {
        let ts = begin + packet * 5 * MS;
        reports.push(flow_postcard(1, 1, ts));
        reports.push(flow_postcard(1, 2, ts + 50 * MS));
    }
    for packet in 0..100 {
        let ts = START + 10 * SECOND + packet * 5 * MS;
        reports.push(flow_postcard(2, 1, ts));
        reports.push(flow_postcard(2, 2, ts + 50 * MS));
    }
    // Lost reports are noticed after the time.
    let loss = |after: u64, lost| Loss {
        ts: START + after,
        node: Some(2),
        source: [1; 16],
        hw_id: 0,
        lost,
        reordered: 0,
        duplicated: 0,
    };
    batch.loss(&loss(62 * SECOND, 7));
    batch.loss(&loss(70 * SECOND, 100));
    let (_dir, reader) = stored(batch, reports);
    let of = |span, until| {
        let losses = reader.losses_in(span, until).unwrap();
        (
            losses.links[&(1, 2)],
            losses.concerning.get(&2).map(|loss| loss.lost),
        )
    };
    let (count, lost) = of(span(), Some(u64::MAX));
    // All at each end that may be under way: those of a second.
    let expected = LinkCount {
        sent: 12_100,
        arrived: 12_100,
        flows: 2,
        unreceived: 400,
        unsent: 400,
    };
    assert_eq!((count, lost), (expected, Some(7)));
    // At the beginning of the flow, none were under way.
    let (count, _) = of(Span::new(begin, START), Some(u64::MAX));
    let expected = LinkCount {
        sent: 4_000,
        arrived: 3_990,
        flows: 1,
        unreceived: 200,
        unsent: 200,
    };
    assert_eq!(count, expected);
    // Nor around the whole flow, for which no bound is needed.
    let (count, _) = of(Span::new(begin - SECOND, START + 90 * SECOND), Some(u64::MAX));
    assert_eq!((count.sent, count.arrived), (20_100, 20_100));
    assert_eq!((count.unreceived, count.unsent), (0, 0));
    // What follows is known, too: counts end a second before the time up to which reports are stored.
    let (count, _) = of(span(), Some(START + 31 * SECOND));
    assert_eq!((count.sent, count.unreceived), (6_100, 400));
}
