//! Paths of all lengths share the same memory; those that do not fit are truncated, counted, marked, and stored later.

#![allow(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

use std::ops::Range;

use collector::{Config, Event, FlowView, Kind};
use detect::Metric;
use testkit::reports::{Bench, Node, SECOND, Sent, config, flow, node};
use wire::{Flags, int};

/// Node ids alone, so that long paths fit into a report.
const NODE_ID: u16 = 0x8000;

fn path(length: u32, first: u32) -> Vec<Node> {
    (0..length).map(|hop| node(first + hop)).collect()
}

fn view(bench: &Bench, number: u16) -> FlowView<'_> {
    bench.collector.flow(&flow(number, false)).unwrap()
}

#[test]
fn twelve_hops_in_a_quarter_of_the_table_are_stored_and_every_change_is_reported() {
    let mut bench = Bench::new(Config {
        max_flows: 32_768,
        ..config()
    });
    let latency = |flow: u16, hop: usize, value| {
        let mut hops = path(12, 1);
        hops[hop].latency = Some(value);
        // Node id and hop latency.
        Sent {
            flow,
            hops,
            bitmap: 0xa000,
            ..Sent::default()
        }
    };
    for flow in 0..8000 {
        bench.send(&latency(flow, 0, 1000));
    }
    assert!(
        bench
            .collector
            .flows()
            .all(|flow| flow.path().eq(1..=12) && !flow.truncated)
    );
    bench.log = Default::default();
    // Each flow in turn, then each hop: to a new value and back.
    for change in 0..29_952_usize {
        let (flow, hop) = ((change % 2496) as u16, change / 2496);
        bench.send(&latency(flow, hop, 90_000 + change as u32 * 1000));
    }
    let (changes, others): (Vec<&Event>, Vec<&Event>) = bench
        .log
        .events
        .iter()
        .filter(|event| event.kind == Kind::Change)
        .partition(|event| event.metric == Some(Metric::HopLatency));
    let raised = changes.iter().filter(|event| event.value > Some(80_000)).count();
    assert_eq!(raised, 29_952, "and {} changes of flow latency", others.len());
    let tables = bench.collector.tables();
    assert_eq!((tables.hops.refused, tables.hops.used), (0, 8000 * 12));
}

#[test]
fn paths_of_1_to_16_and_of_64_and_250_hops_lie_side_by_side() {
    let mut bench = Bench::new(Config {
        max_flows: 1024,
        ..config()
    });
    let length = |flow: u16| match flow % 64 {
        0 => 250,
        1..4 => 64,
        other => 1 + u32::from(other) % 16,
    };
    for round in 0..3 {
        for flow in 0..800 {
            // Lengths change in each round.
            let hops = path(length(flow + round * 7), 1);
            bench.send(&Sent {
                flow,
                hops,
                bitmap: NODE_ID,
                ..Sent::default()
            });
        }
        for flow in 0..800 {
            assert!(
                view(&bench, flow).path().eq(1..=length(flow + round * 7)),
                "round {round}, flow {flow}"
            );
        }
    }
    assert_eq!(bench.collector.stats().truncated_paths, 0);
}

#[test]
fn a_truncated_path_is_marked_and_becomes_whole_when_there_is_room() {
    let mut bench = Bench::new(Config {
        max_flows: 64,
        flow_timeout: 90 * SECOND,
        ..config()
    });
    let send = |bench: &mut Bench, flows: Range<u16>| {
        for flow in flows {
            let sent = Sent {
                flow,
                hops: path(250, 1),
                bitmap: NODE_ID,
                ..Sent::default()
            };
            // Twice, so that it is busy.
            bench.send(&sent);
            bench.send(&sent);
        }
    };
    send(&mut bench, 0..60);
    let room = (bench.collector.tables().hops.capacity / 256) as u16;
    let stats = bench.collector.stats();
    assert_eq!(stats.truncated_paths, u64::from(60 - room));
    assert_eq!(stats.truncated_flows, u64::from(60 - room));
    let last = view(&bench, 59);
    assert_eq!(
        (last.truncated, last.path_length, last.hops().len()),
        (true, 250, 0)
    );
    assert!(!view(&bench, 0).truncated);
    // All but the last five fall silent and expire.
    bench.log = Default::default();
    for _ in 0..150 {
        bench.pass(SECOND);
        send(&mut bench, 55..60);
    }
    let last = view(&bench, 59);
    assert!(!last.truncated && last.path().eq(1..=250));
    assert_eq!(bench.collector.stats().truncated_flows, 0);
    let paths = |kind| bench.log.events.iter().filter(|event| event.kind == kind).count();
    assert_eq!(
        (paths(Kind::New), paths(Kind::PathChange)),
        (0, 0),
        "its path is the same as before"
    );
}

#[test]
fn long_paths_of_single_packets_do_not_keep_out_a_flow_that_comes_later() {
    let mut bench = Bench::new(Config {
        max_flows: 1024,
        ..config()
    });
    for flow in 0..900 {
        bench.send(&Sent {
            flow,
            hops: path(230, 1),
            bitmap: NODE_ID,
            ..Sent::default()
        });
    }
    for flow in 2000..2050 {
        bench.send(&Sent {
            flow,
            hops: path(6, 1),
            ..Sent::default()
        });
    }
    assert!((2000..2050).all(|flow| view(&bench, flow).path().eq(1..=6)));
    assert!(bench.collector.tables().hops.evicted > 0);
}

/// A report about a packet that only some nodes could add their data to, in each form that the collector reads in its own way.
fn forms(sent: &Sent) -> [Vec<u8>; 3] {
    let other = Sent {
        flow: 99,
        ..sent.clone()
    };
    [
        sent.v10(),
        Sent::v20(std::slice::from_ref(sent)),
        Sent::v20(&[sent.clone(), other]),
    ]
}

/// Reports that lack hops: with E, with M, and of a node that reports its queue while the flow is tracked.
fn lacking(hops: &[u32]) -> [Sent; 3] {
    let sent = Sent {
        hops: hops.iter().map(|id| node(*id)).collect(),
        ..Sent::default()
    };
    let exceeded = |int_flags| Sent {
        int_flags,
        ..sent.clone()
    };
    [
        exceeded(int::Flags::HOPS_EXCEEDED),
        exceeded(int::Flags::MTU_EXCEEDED),
        Sent {
            flags: Flags(Flags::QUEUE.0 | Flags::FLOW.0),
            ..sent.clone()
        },
    ]
}

/// The events about the path of flow 1, and whether its path is incomplete at the end.
fn paths_of(reports: &[Vec<u8>]) -> (String, bool) {
    let mut bench = Bench::new(config());
    for report in reports {
        bench.deliver(report);
    }
    let collected = bench.collected();
    let paths = collected
        .lines()
        .filter(|line| line.contains("flow_path flow=1 ") && line.contains("path="));
    (paths.collect::<Vec<_>>().join("\n"), view(&bench, 1).incomplete)
}

#[test]
fn a_report_that_lacks_hops_does_not_replace_the_path() {
    let whole = Sent::default().v10();
    for (at, lacking) in [[1], [2], [3]].iter().flat_map(|hops| lacking(hops)).enumerate() {
        for form in forms(&lacking) {
            let (paths, incomplete) = paths_of(&[whole.clone(), form.clone(), whole.clone(), form]);
            assert_eq!(
                (paths.as_str(), incomplete),
                ("new flow_path flow=1 3 path=1>2>3", false),
                "{at}"
            );
        }
    }
}

#[test]
fn the_hops_of_a_report_that_lacks_hops_are_used() {
    for sent in lacking(&[1, 3]) {
        let mut bench = Bench::new(config());
        bench.send(&Sent::default());
        bench.collected();
        let mut sent = sent;
        sent.hops[1].latency = Some(9000);
        sent.hops[1].queue = Some((0, 900));
        bench.send(&sent);
        let collected = bench.collected();
        let values: Vec<&str> = collected
            .lines()
            .filter(|line| line.starts_with("change "))
            .collect();
        assert_eq!(
            values,
            [
                "change hop_latency flow=1 node=3 1000->9000",
                "change queue_occupancy node=3 if=2 queue=0 10->900"
            ]
        );
        let view = view(&bench, 1);
        let latencies: Vec<_> = view.hops().map(|hop| hop.hop_latency).collect();
        assert_eq!(
            (latencies, view.row.flow_latency, view.row.reports),
            (vec![Some(1000), Some(1000), Some(9000)], Some(3000), 2)
        );
    }
}

#[test]
fn a_path_that_lacks_hops_is_completed_without_a_change() {
    for lacking in lacking(&[1, 2]) {
        for form in forms(&lacking) {
            let whole = Sent::default().v10();
            assert_eq!(
                paths_of(std::slice::from_ref(&form)),
                ("new flow_path flow=1 2 path=1>2".into(), true)
            );
            let completed = "new flow_path flow=1 2 path=1>2\nnew flow_path flow=1 2->3 path=1>2>3";
            assert_eq!(paths_of(&[form.clone(), whole, form]), (completed.into(), false));
        }
        // The same hops were all.
        let two = Sent {
            hops: vec![node(1), node(2)],
            ..Sent::default()
        };
        let (paths, incomplete) = paths_of(&[lacking.v10(), two.v10(), Sent::default().v10()]);
        let longer = "new flow_path flow=1 2 path=1>2\npath_change flow_path flow=1 2->3 path=1>2>3";
        assert_eq!((paths.as_str(), incomplete), (longer, false));
    }
}

#[test]
fn the_own_record_of_the_reporter_in_some_reports_is_no_change() {
    let without = Sent {
        hops: vec![node(1), node(2)],
        ..Sent::default()
    };
    let with = Sent {
        metadata: 0x20,
        flags: Flags(Flags::QUEUE.0 | Flags::FLOW.0),
        ..Sent::default()
    };
    let [without, with] = [without.v10(), with.v10()];
    let (paths, incomplete) = paths_of(&[&without, &with, &without, &with].map(Vec::clone));
    assert_eq!(
        (paths.as_str(), incomplete),
        ("new flow_path flow=1 2 path=1>2", false)
    );
    let (paths, incomplete) = paths_of(&[&with, &without, &with, &without].map(Vec::clone));
    let both = "new flow_path flow=1 3 path=1>2>3\nnew flow_path flow=1 3->2 path=1>2";
    assert_eq!((paths.as_str(), incomplete), (both, false));
    // Another node than the reporter behind the path is on it.
    let other = Sent {
        hops: vec![node(1), node(2), node(7)],
        flags: Flags(Flags::QUEUE.0 | Flags::FLOW.0),
        ..Sent::default()
    };
    let changed = "new flow_path flow=1 2 path=1>2\npath_change flow_path flow=1 2->3 path=1>2>7";
    assert_eq!(paths_of(&[without, other.v10()]), (changed.into(), true));
}

#[test]
fn another_node_in_a_report_that_lacks_hops_is_a_change() {
    for lacking in lacking(&[1, 7]) {
        for form in forms(&lacking) {
            let (paths, incomplete) = paths_of(&[Sent::default().v10(), form]);
            let changed = "new flow_path flow=1 3 path=1>2>3\npath_change flow_path flow=1 3->2 path=1>7";
            assert_eq!((paths.as_str(), incomplete), (changed, true));
        }
    }
}

/// Nodes 1 and 3 of reports with Q, in which node 2 may be missing, for `seconds`, ten in a second; `each` comes after each.
fn parts(bench: &mut Bench, seconds: u64, each: Option<&Sent>) {
    let part = Sent {
        hops: vec![node(1), node(3)],
        flags: Flags(Flags::FLOW.0 | Flags::QUEUE.0),
        ..Sent::default()
    };
    for _ in 0..seconds * 10 {
        bench.send(&part);
        if let Some(sent) = each {
            bench.send(sent);
        }
        bench.pass(SECOND / 10);
    }
}

#[test]
fn a_path_ends_when_only_parts_of_it_come() {
    let mut bench = Bench::new(config());
    bench.send(&Sent::default());
    let nodes = |bench: &Bench| view(bench, 1).path().collect::<Vec<_>>();
    parts(&mut bench, 9, None);
    assert_eq!(
        (nodes(&bench), view(&bench, 1).incomplete),
        (vec![1, 2, 3], false)
    );
    // A report with all nodes confirms the path.
    bench.send(&Sent::default());
    parts(&mut bench, 9, None);
    parts(&mut bench, 30, Some(&Sent::default()));
    assert_eq!(nodes(&bench), [1, 2, 3]);
    bench.collected();
    parts(&mut bench, 12, None);
    assert_eq!((nodes(&bench), view(&bench, 1).incomplete), (vec![1, 3], true));
    let changes = bench.collected();
    let changes: Vec<_> = changes
        .lines()
        .filter(|line| line.contains("flow_path"))
        .collect();
    assert_eq!(changes, ["path_change flow_path flow=1 3->2 path=1>3"]);
}

/// Nodes that cannot deliver their ids write all-ones. Whether a stack is read in place depends on the layout, on the reporter's metadata
/// and on units of nodes, and must not decide what is a path.
#[test]
fn a_stack_without_any_node_id_is_no_path() {
    let none = Node {
        id: u32::MAX,
        latency: Some(7000),
        ..node(1)
    };
    let nameless = Sent {
        hops: vec![none, none],
        ..Sent::default()
    };
    let named = Sent {
        hops: path(2, 1),
        ..Sent::default()
    };
    let own_units = vec![(99, collector::Profile::new("other", wire::Profile::default()))];
    let mut events = Vec::new();
    for node_profiles in [Vec::new(), own_units] {
        let mut bench = Bench::new(Config {
            node_profiles,
            ..config()
        });
        bench.send(&nameless).send(&nameless);
        assert_eq!(view(&bench, 1).path().count(), 0);
        for _ in 0..3 {
            bench.send(&named).send(&nameless);
            bench.deliver(&Sent::v20(std::slice::from_ref(&nameless)));
        }
        let view = view(&bench, 1);
        assert!(view.path().eq(1..=2));
        assert_eq!((view.row.reports, view.row.flow_latency), (11, Some(14_000)));
        assert!(view.hops().all(|hop| hop.hop_latency == Some(1000)));
        events.push(bench.collected());
    }
    assert!(!events[0].contains("path_change"), "{}", events[0]);
    assert_eq!(events[0], events[1]);
}

/// A node id that one node of a path cannot deliver does not hide the others.
#[test]
fn a_stack_with_some_node_ids_is_a_path() {
    let mut bench = Bench::new(config());
    let none = Node {
        id: u32::MAX,
        ..node(1)
    };
    let sent = Sent {
        hops: vec![none, node(2)],
        ..Sent::default()
    };
    let nameless = Sent {
        hops: vec![none, none],
        ..Sent::default()
    };
    bench.send(&sent).send(&nameless).send(&sent);
    assert!(view(&bench, 1).path().eq([u32::MAX, 2]));
    assert_eq!(view(&bench, 1).row.reports, 3);
    assert!(!bench.collected().contains("path_change"));
}
