//! Nodes, links and paths are counted when flows appear, change their paths and expire, in bounded tables.

use std::collections::BTreeMap;

use collector::{Collector, Config};
use testkit::reports::{Bench, Node, SECOND, Sent, config, node};

/// Node ids alone.
const NODE_ID: u16 = 0x8000;

type Counts = (
    BTreeMap<u32, u32>,
    BTreeMap<(u32, u32), u32>,
    BTreeMap<Vec<u32>, u32>,
);

/// The counts of the collector.
fn counted(collector: &Collector) -> Counts {
    (
        collector
            .topology_nodes()
            .map(|node| (node.node, node.flows))
            .collect(),
        collector
            .topology_links()
            .map(|link| ((link.from, link.to), link.flows))
            .collect(),
        collector
            .topology_paths()
            .map(|path| (path.nodes.to_vec(), path.flows))
            .collect(),
    )
}

/// The same, gathered from all flows.
fn gathered(collector: &Collector) -> Counts {
    let (mut nodes, mut links, mut paths) = Counts::default();
    for flow in collector.flows() {
        let path: Vec<u32> = flow.path().collect();
        path.iter().for_each(|node| *nodes.entry(*node).or_default() += 1);
        path.windows(2)
            .for_each(|pair| *links.entry((pair[0], pair[1])).or_default() += 1);
        *paths.entry(path).or_default() += 1;
    }
    (nodes, links, paths)
}

fn path(length: u32, first: u32, step: u32) -> Vec<Node> {
    (0..length).map(|hop| node(first + hop * step)).collect()
}

#[test]
fn counts_agree_with_the_flows_whatever_paths_they_take() {
    let tables = Config {
        max_flows: 256,
        max_nodes: 1024,
        max_links: 4096,
        ..config()
    };
    let mut bench = Bench::new(Config {
        flow_timeout: 20 * SECOND,
        ..tables
    });
    let mut state = 7_u32;
    let mut below = |bound: u32| {
        state = state.wrapping_mul(0x9e37_79b1).wrapping_add(0x7f4a_7c15);
        (state >> 8) % bound
    };
    for round in 0..40 {
        for _ in 0..100 {
            let length = 1 + below(if round % 8 == 7 { 60 } else { 9 });
            let hops = path(length, 1 + below(5), 1 + below(3));
            bench.send(&Sent {
                flow: below(400) as u16,
                hops,
                bitmap: NODE_ID,
                ..Sent::default()
            });
        }
        assert_eq!(
            counted(&bench.collector),
            gathered(&bench.collector),
            "round {round}"
        );
        bench.pass(SECOND);
    }
    assert!(bench.collector.tables().flows.evicted > 0);
    bench.pass(60 * SECOND);
    assert_eq!(counted(&bench.collector), Counts::default());
}

#[test]
fn forged_paths_fill_bounded_tables_and_a_flow_is_counted_when_there_is_room() {
    let mut bench = Bench::new(Config {
        max_flows: 4096,
        flow_timeout: 10 * SECOND,
        ..config()
    });
    for n in 0..3000_u32 {
        let hops = path(3, 1000 + 3 * n, 1);
        bench.send(&Sent {
            flow: n as u16,
            hops,
            bitmap: NODE_ID,
            ..Sent::default()
        });
    }
    let tables = bench.collector.tables();
    // The table of nodes fills first: a flow is counted on all nodes and links of its path or on none.
    let refusals = [
        (tables.path_nodes, 64, true),
        (tables.path_links, 256, false),
        (tables.paths, 256, true),
    ];
    for (table, most, refuses) in refusals {
        assert!(table.used <= most && table.capacity == most, "{table:?}");
        assert_eq!(table.refused > 0, refuses, "{table:?}");
    }
    assert!(bench.collector.topology_nodes().count() <= 64);
    let honest = Sent {
        flow: 9000,
        hops: path(3, 1, 1),
        bitmap: NODE_ID,
        ..Sent::default()
    };
    bench.send(&honest);
    assert!(!bench.collector.topology_nodes().any(|node| node.node == 1));
    for _ in 0..20 {
        bench.pass(SECOND);
        bench.send(&honest);
    }
    bench.pass(SECOND);
    let (nodes, links, paths) = counted(&bench.collector);
    assert_eq!(nodes, BTreeMap::from([(1, 1), (2, 1), (3, 1)]));
    assert_eq!(links, BTreeMap::from([((1, 2), 1), ((2, 3), 1)]));
    assert_eq!(paths, BTreeMap::from([(vec![1, 2, 3], 1)]));
}

#[test]
fn a_link_shows_its_interfaces_and_the_latest_values_and_reports_add_up() {
    let mut bench = Bench::new(config());
    let hop = |id, queue, utilization| Node {
        ports: (7, 8),
        queue: Some((3, queue)),
        utilization: Some(utilization),
        latency: Some(1000 * id),
        ..node(id)
    };
    for (flow, queue) in [(1, 10), (2, 20), (1, 30)] {
        let hops = vec![hop(1, queue, 10 * queue), hop(2, 5, 5)];
        bench.send(&Sent {
            flow,
            hops,
            bitmap: 0xf100,
            ..Sent::default()
        });
    }
    bench.pass(SECOND / 10);
    let links: Vec<_> = bench.collector.topology_links().collect();
    assert_eq!(links.len(), 1);
    let link = links[0];
    assert_eq!((link.from, link.to, link.flows), (1, 2, 2));
    assert_eq!((link.egress_if, link.ingress_if), (Some(8), Some(7)));
    let values = (link.queue_occupancy, link.utilization, link.hop_latency);
    assert_eq!(values, (Some(30), Some(300), Some(1000)));
    let nodes: Vec<_> = bench
        .collector
        .topology_nodes()
        .map(|node| (node.node, node.reports))
        .collect();
    assert_eq!(nodes, [(1, 3), (2, 3)]);
    let paths: Vec<_> = bench
        .collector
        .topology_paths()
        .map(|path| (path.flows, path.reports))
        .collect();
    assert_eq!(paths, [(2, 3)]);
}

#[test]
fn a_flow_that_takes_another_link_leaves_its_interface_there() {
    let mut bench = Bench::new(config());
    let by = |flow, port, next| {
        let first = Node {
            ports: (1, port),
            ..node(1)
        };
        Sent {
            flow,
            hops: vec![first, node(next), node(3)],
            ..Sent::default()
        }
    };
    bench.send(&by(1, 2, 2)).send(&by(2, 2, 2)).send(&by(2, 2, 2));
    // The report of the change says at which interface node 1 sends now.
    bench.send(&by(2, 9, 4));
    let links = bench.collector.topology_links().filter(|link| link.from == 1);
    let mut links: Vec<_> = links.map(|link| (link.to, link.egress_if, link.flows)).collect();
    links.sort_unstable();
    assert_eq!(links, [(2, Some(2), 1), (4, Some(9), 1)]);
}

/// The word of a level-2 interface may be that of the two interfaces of level 1, here 1 and 5.
#[test]
fn a_hop_that_reports_level_2_after_level_1_has_another_port() {
    let mut bench = Bench::new(config());
    let mut deliver = |seq, ports, level_2| {
        let hop = Node {
            ports,
            level_2,
            ..node(1)
        };
        let sent = Sent {
            seq,
            bitmap: 0xff00,
            hops: vec![hop],
            ..Sent::default()
        };
        bench.deliver(&Sent::v20(&[sent]));
        bench.collected()
    };
    deliver(0, (1, 5), None);
    assert_eq!(
        deliver(1, (1, 0xffff), Some(0x1_0005)),
        "new link_utilization node=1 if=65541 500\nnew queue_occupancy node=1 if=65541 queue=0 10\n"
    );
    assert_eq!(deliver(2, (1, 5), None), "", "both are known");
}
