//! The behaviour of the fabric: queues, links, routes, traffic. INT is tested with the switch and in `tests/`.

use super::*;

/// Logs events, one line each.
#[derive(Default)]
struct EventLog {
    lines: Vec<String>,
    per_path: std::collections::BTreeMap<Vec<u32>, usize>,
}

impl FabricSink for EventLog {
    fn ground_truth(&mut self, truth: &GroundTruth<'_>) {
        let line = match truth {
            GroundTruth::Delivered(trace) => {
                *self.per_path.entry(trace.path()).or_default() += 1;
                let hops: Vec<String> = trace
                    .hops
                    .iter()
                    .map(|hop| format!("{}:{}+{}", hop.node, hop.queue_occupancy, hop.hop_latency()))
                    .collect();
                format!("{:>8} delivered {} {}", trace.ended, trace.packet, hops.join(" "))
            }
            GroundTruth::Dropped {
                trace, node, reason, ..
            } => {
                format!(
                    "{:>8} dropped {} at {node}: {}",
                    trace.ended,
                    trace.packet,
                    reason.name()
                )
            }
            GroundTruth::PathChange { at, old, new, .. } => format!("{at:>8} path {old:?} to {new:?}"),
            GroundTruth::Link { at, a, b, up } => {
                format!("{at:>8} link {a}-{b} {}", if *up { "restored" } else { "cut" })
            }
            GroundTruth::Converged { at } => format!("{at:>8} converged"),
            GroundTruth::Datagram(_) | GroundTruth::Arrival(_) => return,
        };
        self.lines.push(line);
    }
}

fn schedule(fabric: &mut Fabric, at: u64, action: Action) {
    fabric.schedule(at, action).unwrap();
}

fn burst(flow: FlowId, packets: u32) -> Action {
    let gap = 0;
    Action::Burst { flow, packets, gap }
}

fn run(fabric: &mut Fabric, until: u64) -> EventLog {
    let mut log = EventLog::default();
    fabric.run_until(until, &mut log);
    log
}

fn text(lines: &[&str]) -> Vec<String> {
    lines.iter().map(|&line| line.to_owned()).collect()
}

/// 100-byte frames (58 bytes of payload) between hosts at 100 Mb/s.
fn small(from: u32, to: u32, pattern: Pattern) -> FlowSpec {
    FlowSpec {
        payload: 58,
        pattern,
        ..FlowSpec::new(from, to, 5000, 80)
    }
}

/// Hosts at 1 Gb/s, 100 Mb/s between switches: 100 bytes take 800 ns and 8000 ns. No pipeline delay, links of 100 ns.
fn bottleneck(depth: u32, unit: QueueUnit) -> Fabric {
    let edge = Wire {
        rate: 1_000_000_000,
        delay: 100,
        depth,
    };
    let topology = Topology::builder()
        .switch(101)
        .switch(102)
        .host(1, None)
        .host(2, None)
        .link(1, 101, edge)
        .link(
            101,
            102,
            Wire {
                rate: 100_000_000,
                ..edge
            },
        )
        .link(102, 2, edge)
        .build();
    let config = Config {
        pipeline: 0,
        unit,
        convergence: 1_000,
        ..Config::default()
    };
    Fabric::new(topology.unwrap(), config, 1).unwrap()
}

#[test]
fn queues_grow_and_drop_as_computed_by_hand() {
    // Packets leave the host every 800 ns and take 8000 ns on the next link. Packet k is received by 101 at 900 + 800k.
    // Packet 0 is sent at once (900); 1, 2, 3 are queued; a fourth would be 400 > 300 bytes: tail drop. The port is free at 8900.
    let mut fabric = bottleneck(300, QueueUnit::Bytes);
    let flow = fabric.add_flow(&small(1, 2, Pattern::Idle)).unwrap();
    schedule(&mut fabric, 0, burst(flow, 6));
    let log = run(&mut fabric, 1_000_000);
    assert_eq!(
        log.lines,
        text(&[
            "    4100 dropped 4 at 101: queue_full",
            "    4900 dropped 5 at 101: queue_full",
            "    9900 delivered 0 101:0+0 102:0+0",
            "   17900 delivered 1 101:0+7200 102:0+0",
            "   25900 delivered 2 101:100+14400 102:0+0",
            "   33900 delivered 3 101:200+21600 102:0+0",
        ])
    );
    let totals = fabric.flows().next().unwrap();
    assert_eq!((totals.sent, totals.delivered, totals.dropped), (6, 4, 2));
    assert_eq!(fabric.next_event_time(), None);
}

#[test]
fn a_queue_can_count_packets() {
    let mut fabric = bottleneck(2, QueueUnit::Packets);
    let flow = fabric.add_flow(&small(1, 2, Pattern::Idle)).unwrap();
    schedule(&mut fabric, 0, burst(flow, 4));
    let log = run(&mut fabric, 1_000_000);
    assert_eq!(
        log.lines,
        text(&[
            "    3300 dropped 3 at 101: queue_full",
            "    9900 delivered 0 101:0+0 102:0+0",
            "   17900 delivered 1 101:0+7200 102:0+0",
            "   25900 delivered 2 101:1+14400 102:0+0",
        ])
    );
}

#[test]
fn the_pipeline_is_part_of_the_hop_latency() {
    let topology = Topology::line(
        1,
        Wire {
            rate: 1_000_000_000,
            delay: 100,
            depth: 1_000,
        },
    )
    .unwrap();
    let mut fabric = Fabric::new(
        topology,
        Config {
            pipeline: 450,
            ..Config::default()
        },
        1,
    )
    .unwrap();
    let flow = fabric.add_flow(&small(10_001, 10_002, Pattern::Idle)).unwrap();
    schedule(&mut fabric, 50, burst(flow, 2));
    let log = run(&mut fabric, 1_000_000);
    let lines = ["    2300 delivered 0 101:0+450", "    3100 delivered 1 101:0+450"];
    assert_eq!(log.lines, text(&lines));
}

#[test]
fn a_cut_link_loses_what_is_on_it_and_what_waits_for_it() {
    let mut fabric = bottleneck(1_000, QueueUnit::Bytes);
    let flow = fabric.add_flow(&small(1, 2, Pattern::Idle)).unwrap();
    schedule(&mut fabric, 0, burst(flow, 3));
    schedule(&mut fabric, 3_000, Action::CutLink { a: 102, b: 101 });
    schedule(&mut fabric, 3_500, burst(flow, 1));
    schedule(&mut fabric, 6_000, burst(flow, 1));
    schedule(&mut fabric, 8_000, Action::MendLink { a: 101, b: 102 });
    schedule(&mut fabric, 20_000, burst(flow, 1));
    let log = run(&mut fabric, 1_000_000);
    assert_eq!(
        log.lines,
        text(&[
            "    3000 dropped 1 at 101: link_down",
            "    3000 dropped 2 at 101: link_down",
            "    3000 link 101-102 cut",
            "    4000 converged",
            "    4400 dropped 3 at 101: no_route",
            "    6900 dropped 4 at 101: no_route",
            "    8000 link 101-102 restored",
            "    3000 dropped 0 at 101: lost_on_link", // noticed when it does not arrive, at 9000
            "    9000 converged",
            "   29900 delivered 5 101:0+0 102:0+0",
        ])
    );
}

#[test]
fn packets_are_dropped_at_the_cut_until_convergence_and_rerouted_after() {
    let topology = Topology::leaf_spine(2, 2, 1, Wire::default()).unwrap();
    let config = Config {
        convergence: 50_000,
        ..Config::default()
    };
    let mut fabric = Fabric::new(topology, config, 1).unwrap();
    fabric
        .add_flow(&small(10_001, 10_002, Pattern::Constant { gap: 20_000 }))
        .unwrap();
    let mut log = run(&mut fabric, 10_000);
    let spine = log.per_path.keys().next().unwrap()[1];
    schedule(&mut fabric, 101_000, Action::CutLink { a: 101, b: spine });
    schedule(&mut fabric, 201_000, Action::MendLink { a: 101, b: spine });
    fabric.run_until(300_000, &mut log);
    let reported: Vec<String> = log
        .lines
        .iter()
        .filter(|line| !line.contains("delivered"))
        .map(|line| line.trim_start().to_owned())
        .collect();
    let other = 403 - spine;
    let paths = format!("path [101, {spine}, 102] to [101, {other}, 102]");
    let back = format!("path [101, {other}, 102] to [101, {spine}, 102]");
    assert_eq!(
        reported,
        [
            format!("101000 link 101-{spine} cut"),
            "101580 dropped 5 at 101: link_down".to_owned(),
            "121580 dropped 6 at 101: link_down".to_owned(),
            "141580 dropped 7 at 101: link_down".to_owned(),
            "151000 converged".to_owned(),
            format!("165820 {paths}"),
            format!("201000 link 101-{spine} restored"),
            "251000 converged".to_owned(),
            format!("265820 {back}"),
        ]
    );
}

#[test]
fn flows_spread_over_equal_paths_and_stay_on_theirs() {
    let topology = Topology::fat_tree(4, Wire::default()).unwrap();
    let mut fabric = Fabric::new(topology, Config::default(), 7).unwrap();
    for port in 0..400 {
        let spec = FlowSpec {
            src_port: 1000 + port,
            ..small(10_001, 10_016, Pattern::Constant { gap: 1_000_000 })
        };
        fabric.add_flow(&spec).unwrap();
    }
    let log = run(&mut fabric, 5_500_000);
    assert!(
        log.lines.iter().all(|line| line.contains("delivered")),
        "no path ever changes"
    );
    let counts: Vec<usize> = log.per_path.values().map(|packets| packets / 6).collect();
    assert_eq!(counts.len(), 4, "two aggregation switches with two cores each");
    assert!(
        counts.iter().all(|&flows| (70..130).contains(&flows)),
        "{counts:?}"
    );
}

#[test]
fn a_diversion_makes_a_loop_that_ends() {
    let topology = Topology::line(3, Wire::default()).unwrap();
    let mut fabric = Fabric::new(topology, Config::default(), 7).unwrap();
    let flow = fabric.add_flow(&small(10_001, 10_002, Pattern::Idle)).unwrap();
    schedule(
        &mut fabric,
        0,
        Action::Divert {
            node: 102,
            to: 10_002,
            via: Some(101),
        },
    );
    schedule(&mut fabric, 1, burst(flow, 1));
    schedule(
        &mut fabric,
        1_000_000,
        Action::Divert {
            node: 102,
            to: 10_002,
            via: None,
        },
    );
    schedule(&mut fabric, 1_000_001, burst(flow, 1));
    let log = run(&mut fabric, 9_000_000);
    assert_eq!(log.lines.len(), 2);
    assert!(
        log.lines[0].ends_with("dropped 0 at 101: ttl_zero"),
        "{}",
        log.lines[0]
    );
    assert!(
        log.lines[1].contains("delivered 1 101:0+500 102:0+500 103:0+500"),
        "{}",
        log.lines[1]
    );
}

#[test]
fn unknown_nodes_and_links_are_refused() {
    let mut fabric = bottleneck(300, QueueUnit::Bytes);
    assert_eq!(
        fabric.add_flow(&small(1, 101, Pattern::Idle)).unwrap_err(),
        "node 101 is not a host"
    );
    assert_eq!(
        fabric.schedule(0, Action::CutLink { a: 1, b: 2 }).unwrap_err(),
        "there is no link between 1 and 2"
    );
    assert_eq!(
        fabric.schedule(0, Action::CutLink { a: 1, b: 9 }).unwrap_err(),
        "there is no node 9"
    );
    assert_eq!(
        fabric.schedule(0, Action::StopFlow(FlowId(3))).unwrap_err(),
        "there is no flow 3"
    );
}

#[test]
fn a_stopped_flow_stops_and_an_added_one_starts() {
    let mut fabric = bottleneck(300, QueueUnit::Bytes);
    let flow = fabric
        .add_flow(&small(1, 2, Pattern::Constant { gap: 10_000 }))
        .unwrap();
    schedule(&mut fabric, 25_000, Action::StopFlow(flow));
    let late = FlowSpec {
        stop: 145_000,
        ..small(1, 2, Pattern::Constant { gap: 20_000 })
    };
    schedule(&mut fabric, 100_000, Action::AddFlow(late));
    fabric.run_until(1_000_000, &mut ());
    let totals: Vec<_> = fabric.flows().map(|flow| (flow.sent, flow.delivered)).collect();
    assert_eq!(totals, [(3, 3), (3, 3)]);
}

#[test]
fn utilization_is_what_was_sent() {
    #[derive(Default)]
    struct Last(Vec<(u32, u32)>);
    impl FabricSink for Last {
        fn ground_truth(&mut self, truth: &GroundTruth<'_>) {
            if let GroundTruth::Delivered(trace) = truth {
                self.0 = trace
                    .hops
                    .iter()
                    .map(|hop| (hop.node, hop.tx_utilization))
                    .collect();
            }
        }
    }
    // 100 bytes every 16 µs are 50 Mb/s: half of the middle link, a twentieth of the last.
    let mut fabric = bottleneck(3_000, QueueUnit::Bytes);
    fabric
        .add_flow(&small(1, 2, Pattern::Constant { gap: 16_000 }))
        .unwrap();
    let mut last = Last::default();
    fabric.run_until(100_000_000, &mut last);
    let near = |got: u32, wanted: u32| got.abs_diff(wanted) <= wanted / 100;
    assert!(
        matches!(last.0[..], [(101, a), (102, b)] if near(a, 5_000) && near(b, 500)),
        "{:?}",
        last.0
    );
}
