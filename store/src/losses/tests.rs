//! What happens where there is more than is counted.

use collector::{Batch, Event, Kind, Output as _};
use detect::Metric;
use testkit::records::{Dir, SECOND, START, bare, flow};
use wire::Hop;
use wire::report::Flags;

use super::*;
use crate::{Config, ReportRow, Store};

/// A report of `node` about a packet that passed it.
fn postcard(ts: u64, number: u32, node: u32) -> ReportRow {
    ReportRow {
        ts,
        source: [0; 16],
        version: "2.0",
        node: Some(node),
        hw_id: 0,
        seq: 1,
        flags: Flags::FLOW,
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

/// A store with flows on `1>2`, and these reports.
fn stored(flows: u32, reports: Vec<ReportRow>) -> (Dir, Reader) {
    let dir = Dir::new("most-losses");
    let store = Store::open(Config {
        reports_table: true,
        ..Config::new(dir.path())
    })
    .unwrap();
    let mut batch = Batch::with_capacity(16);
    for number in 1..=flows {
        let metric = Some(Metric::FlowPath);
        let flow = Some(flow(number));
        batch.event(
            &Event {
                kind: Kind::New,
                metric,
                flow,
                ..bare(START)
            },
            &[1, 2],
        );
    }
    store.submit(batch);
    // What is given together is stored in one file.
    for report in reports {
        store.submit_reports(vec![report]);
    }
    store.close();
    let reader = Reader::open(dir.path()).unwrap();
    (dir, reader)
}

const DAY: u64 = 24 * 3_600 * SECOND;

/// The losses of two days.
fn counted(reader: &Reader, reports: u64, packets: usize) -> Losses {
    reader
        .losses_within(
            Span::new(START, START + 2 * DAY),
            Some(u64::MAX),
            Limits { reports, packets },
        )
        .unwrap()
}

fn count(sent: u64) -> BTreeMap<(u32, u32), LinkCount> {
    [(
        (1, 2),
        LinkCount {
            sent,
            arrived: sent,
            flows: 1,
            ..LinkCount::default()
        },
    )]
    .into()
}

#[test]
fn of_too_many_reports_none_of_a_packet_is_counted_alone() {
    // Four packets: both ends report each at the same time, the last two the day after.
    let times = [
        START + SECOND,
        START + 2 * SECOND,
        START + DAY,
        START + DAY + SECOND,
    ];
    let reports = times
        .iter()
        .flat_map(|ts| [1, 2].map(|node| postcard(*ts, 1, node)));
    let (_dir, reader) = stored(1, reports.collect());
    let expected = [
        (3, 1, Some(1)),
        (4, 2, Some(2)),
        (5, 2, Some(2)),
        (6, 3, Some(3)),
        (8, 4, None),
    ];
    for (most, sent, cut) in expected {
        let found = counted(&reader, most, MAX_PACKET_COUNTS);
        let link = LinkCount {
            unreceived: 0,
            unsent: 0,
            ..found.links[&(1, 2)]
        };
        assert_eq!(BTreeMap::from([((1, 2), link)]), count(sent), "{most}");
        assert_eq!(found.counted_until, cut.map(|at: usize| times[at]), "{most}");
        assert!(!found.truncated);
    }
}

#[test]
fn a_flow_of_which_a_node_is_not_counted_is_left_out() {
    let reports = (1..=2).flat_map(|number| [1, 2].map(|node| postcard(START + SECOND, number, node)));
    let (_dir, reader) = stored(2, reports.collect());
    for (most, left_out) in [(2, 0), (3, 1)] {
        let found = counted(&reader, MAX_REPORTS, most);
        assert_eq!(
            (&found.links, found.left_out, found.truncated),
            (&count(1), left_out, true),
            "{most}"
        );
    }
    let all = counted(&reader, MAX_REPORTS, 4);
    assert_eq!(
        (all.links[&(1, 2)].flows, all.left_out, all.truncated),
        (2, 0, false)
    );
}

#[test]
fn flows_of_a_key_are_counted_up_to_a_limit() {
    let key = DropKey {
        node: Some(7),
        egress_if: None,
        queue: None,
        reason: None,
    };
    let mut flows = DropFlows::default();
    assert!((0..MAX_FLOWS_PER_KEY as u64).all(|flow| flows.add(key, flow)));
    assert!(flows.add(key, 5), "it is known");
    assert!(!flows.add(key, u64::MAX));
    assert!(flows.add(
        DropKey {
            queue: Some(1),
            ..key
        },
        u64::MAX
    ));
    flows.total = MAX_DROP_FLOWS;
    assert!(!flows.add(
        DropKey {
            queue: Some(2),
            ..key
        },
        1
    ));
}
