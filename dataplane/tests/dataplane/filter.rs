//! Values that a sink's filter suppresses are within the threshold of reported ones: a congested fabric runs with and without filters.

#![allow(
    clippy::unwrap_used,
    reason = "a test ends where something is not as it should be"
)]

use std::collections::{BTreeMap, HashMap};

use dataplane::fabric::{Channel, FlowSpec, Transport, Wire};
use dataplane::filter::{Filter, Units};
use dataplane::report::{Format, Version};
use dataplane::watchlist::Mode;
use dataplane::{Action, Config, Fabric, FabricSink, Filters, Pattern, Reporter, Topology, Watch, switch};
use detect::{Algorithm, Detector, Match, Metric};
use wire::Profile;
use wire::report::Decoder;

const MS: u64 = 1_000_000;

/// A report of a sink: its number, its flow, node and queue of each hop, and what distinguishes packets.
type Reported = (u32, String, Vec<(u32, u32)>, u64);

/// The reports of each sink, in their order.
#[derive(Default)]
struct Reports {
    by_sink: BTreeMap<u32, Vec<Reported>>,
}

impl FabricSink for Reports {
    fn report(&mut self, _: u64, from: &Reporter, payload: &[u8]) {
        let mut decoder = Decoder::new(Profile::default());
        for report in decoder.reports(payload) {
            let report = report.unwrap();
            let hops: Vec<_> = report.hops().collect();
            let queues = hops
                .iter()
                .map(|hop| (hop.node_id.unwrap(), hop.queue_occupancy.unwrap()))
                .collect();
            let stamp = hops.first().unwrap().ingress_ts.unwrap();
            self.by_sink.entry(from.node).or_default().push((
                report.seq,
                report.flow.unwrap().to_string(),
                queues,
                stamp,
            ));
        }
    }
}

fn run(format: Format, mode: Mode, filters: Option<&Filters>) -> (Fabric, Reports) {
    let watch = Watch {
        mode,
        drops: false,
        ..Watch::default()
    };
    let config = Config {
        start: 1_790_000_000_000_000_000,
        switch: switch::Config {
            format,
            ..switch::Config::default()
        },
        watchlist: watch.into(),
        channel: Channel::default(),
        ..Config::default()
    };
    let start = config.start;
    let mut fabric = busy(config);
    let nodes: Vec<u32> = fabric.topology().switches().collect();
    for node in nodes {
        if let (Some(filters), Some(switch)) = (filters, fabric.switch_mut(node)) {
            switch.set_filters(filters.clone());
        }
    }
    // Packets in flight at the end would be missing.
    for flow in fabric.flow_ids() {
        fabric.schedule(start + 250 * MS, Action::StopFlow(flow)).unwrap();
    }
    let mut reports = Reports::default();
    fabric.run_until(start + 300 * MS, &mut reports);
    // They do not arrive in the order in which they were sent.
    reports.by_sink.values_mut().for_each(|reports| reports.sort());
    (fabric, reports)
}

/// Flows between the leaves, and bursts of many into one host.
fn busy(config: Config) -> Fabric {
    let wire = Wire {
        rate: 100_000_000,
        delay: 5_000,
        depth: 60_000,
    };
    let topology = Topology::leaf_spine(4, 2, 2, wire).unwrap();
    let start = config.start;
    let mut fabric = Fabric::new(topology, config, 11).unwrap();
    for n in 0..12_u16 {
        let (from, to) = (10_001 + u32::from(n) % 4, 10_005 + u32::from(n) % 3);
        let spec = FlowSpec {
            payload: 400,
            transport: if n % 2 == 0 {
                Transport::Udp
            } else {
                Transport::Tcp
            },
            pattern: Pattern::poisson(1500),
            ..FlowSpec::new(from, to, 5_000 + n, 9)
        };
        fabric.add_flow(&spec).unwrap();
    }
    for at in 0..6_u16 {
        let spec = FlowSpec {
            payload: 900,
            pattern: Pattern::Idle,
            ..FlowSpec::new(10_001 + u32::from(at) % 4, 10_006, 7_000 + at, 9)
        };
        let flow = fabric.add_flow(&spec).unwrap();
        for round in 1..6 {
            fabric
                .schedule(
                    start + round * 40 * MS,
                    Action::Burst {
                        flow,
                        packets: 40,
                        gap: 0,
                    },
                )
                .unwrap();
        }
    }
    fabric
}

fn filters(algorithm: Algorithm, threshold: u64, registers: usize) -> Filters {
    let detector = Detector {
        algorithm,
        metric: Metric::QueueOccupancy,
        threshold,
    };
    Filters::new(
        vec![Filter {
            flows: Match::default(),
            detector,
        }],
        registers,
        Units::default(),
    )
    .unwrap()
}

/// The keys and values by which a packet is compared.
fn values(algorithm: &Algorithm, flow: &str, queues: &[(u32, u32)]) -> Vec<((String, u32), u64)> {
    let each = |flow: &str| {
        queues
            .iter()
            .map(|&(node, queue)| ((flow.to_owned(), node), queue.into()))
            .collect()
    };
    match algorithm {
        Algorithm::PerFlow => {
            vec![(
                (flow.to_owned(), 0),
                queues.iter().map(|(_, queue)| u64::from(*queue)).sum(),
            )]
        }
        Algorithm::PerHop => each(""),
        _ => each(flow),
    }
}

#[test]
fn suppressed_values_are_within_the_threshold_of_the_last_report() {
    let v20 = Format::default();
    let v10 = Format {
        version: Version::V10,
        metadata_on_stack: true,
        ..v20
    };
    let threshold = 2_000_u64;
    for (format, mode) in [(v20, Mode::Md21), (v10, Mode::Md10)] {
        let (_, all) = run(format, mode, None);
        let cases = [
            (Algorithm::PerHop, 1024),
            (Algorithm::PerFlow, 1024),
            (Algorithm::PerFlow, 4),
            (Algorithm::PerHopOfFlow, 64),
        ];
        for (algorithm, registers) in cases {
            let (fabric, some) = run(
                format,
                mode,
                Some(&filters(algorithm.clone(), threshold, registers)),
            );
            let (mut hidden, mut reported) = (0_u64, 0_u64);
            for (sink, reports) in &all.by_sink {
                let mut left = some.by_sink[sink].iter().peekable();
                let mut known: HashMap<(String, u32), Vec<u64>> = HashMap::new();
                for report in reports {
                    let (_, flow, queues, stamp) = report;
                    let values = values(&algorithm, flow, queues);
                    let is_reported = left
                        .next_if(|(_, of, path, at)| (of, path, at) == (flow, queues, stamp))
                        .is_some();
                    (reported, hidden) = (
                        reported + u64::from(is_reported),
                        hidden + u64::from(!is_reported),
                    );
                    for (key, value) in values {
                        let known = known.entry(key.clone()).or_default();
                        let near = known.iter().any(|last| last.abs_diff(value) <= threshold);
                        assert!(
                            is_reported || near,
                            "{algorithm:?} at {sink}: {key:?} {known:?} {value}"
                        );
                        match algorithm {
                            _ if !is_reported => {}
                            // The next values are compared with the reported one, whichever hop was the reason for the report.
                            _ => *known = vec![value],
                        }
                    }
                }
                assert!(
                    left.next().is_none(),
                    "{algorithm:?} at {sink}: reported what did not happen"
                );
            }
            assert!(
                hidden > 500 && reported > 50,
                "{algorithm:?} with {registers}: {hidden} hidden, {reported} reported"
            );
            let filtered: u64 = all
                .by_sink
                .keys()
                .map(|sink| fabric.switch(*sink).unwrap().stats().filtered)
                .sum();
            assert_eq!(filtered, hidden, "{algorithm:?}");
        }
    }
}
