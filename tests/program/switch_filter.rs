//! One rule language: a switch's filter reports exactly the packets for which the collector, which receives all, finds the rule true.

use std::collections::BTreeMap;

use collector::{Batch, Collector, Datagram};
use dataplane::fabric::{Channel, FlowSpec, Wire};
use dataplane::filter::{Filter, Units};
use dataplane::report::{Format, Version};
use dataplane::watchlist::Mode;
use dataplane::{Action, Config, Fabric, FabricSink, Filters, Pattern, Reporter, Topology, Watch, switch};
use detect::{Algorithm, Detection, Detector, Match, Metric, Program, RuleSet, Thresholds};
use wire::report::Decoder;
use wire::{FlowKey, Profile};

const MS: u64 = 1_000_000;
const START: u64 = 1_790_000_000_000_000_000;

/// A datagram: its number, the flow, the first node's stamp, the payload.
type Sent = (u32, String, u64, Vec<u8>);

/// Datagrams of each sink.
#[derive(Default)]
struct Reports(BTreeMap<u32, Vec<Sent>>);

impl FabricSink for Reports {
    fn report(&mut self, _: u64, from: &Reporter, payload: &[u8]) {
        let mut decoder = Decoder::new(Profile::default());
        let report = decoder.reports(payload).next().unwrap().unwrap();
        let stamp = report.hops().next().unwrap().ingress_ts.unwrap();
        let flow = report.flow.unwrap().to_string();
        self.0
            .entry(from.node)
            .or_default()
            .push((report.seq, flow, stamp, payload.to_vec()));
    }
}

fn run(format: Format, mode: Mode, filters: &Filters) -> Reports {
    let watch = Watch {
        mode,
        drops: false,
        ..Watch::new(Match::default())
    };
    let config = Config {
        start: START,
        switch: switch::Config {
            format,
            ..switch::Config::default()
        },
        watchlist: watch.into(),
        channel: Channel::default(),
        ..Config::default()
    };
    let wire = Wire {
        rate: 100_000_000,
        delay: 5_000,
        depth: 60_000,
    };
    let mut fabric = Fabric::new(Topology::leaf_spine(3, 2, 2, wire).unwrap(), config, 5).unwrap();
    for n in 0..8_u16 {
        let (from, to) = (10_001 + u32::from(n) % 4, 10_005 + u32::from(n) % 2);
        let spec = FlowSpec {
            payload: 700,
            pattern: Pattern::poisson(2000),
            ..FlowSpec::new(from, to, 5_000 + n, 9)
        };
        let flow = fabric.add_flow(&spec).unwrap();
        fabric.schedule(START + 120 * MS, Action::StopFlow(flow)).unwrap();
    }
    fabric
        .schedule(START + 60 * MS, Action::CutLink { a: 101, b: 201 })
        .unwrap();
    for node in [101, 102, 103] {
        fabric.switch_mut(node).unwrap().set_filters(filters.clone());
    }
    let mut reports = Reports::default();
    fabric.run_until(START + 200 * MS, &mut reports);
    reports.0.values_mut().for_each(|reports| reports.sort());
    reports
}

#[test]
fn a_rule_decides_alike_in_the_switch_and_in_the_collector() {
    let rules = [
        "max(queue_occupancy) > 3000 and flow_latency > 200us",
        "queue_occupancy@101 > 700 or hops > 3 or loop",
        "change(max(queue_occupancy)) > 1500",
        "average(sum(hop_latency), 0.25) > 300us and not link_utilization > 95%",
        "(max(queue_occupancy) > 1000 and hops == 3) for 3",
        "not (previous(flow_latency) > 200us) or count(queue_occupancy > 700) >= 2 for 2",
    ];
    let v10 = Format {
        version: Version::V10,
        metadata_on_stack: true,
        ..Format::default()
    };
    for (format, mode) in [(Format::default(), Mode::Md21), (v10, Mode::Md10)] {
        let all = run(format, mode, &Filters::default());
        for text in rules {
            let rules = RuleSet::compile(&[("rule".into(), text.into())]).unwrap();
            let algorithm = Algorithm::Rule(Program::new(&rules).unwrap().into());
            let detector = Detector {
                algorithm,
                metric: Metric::FlowPath,
                threshold: 0,
            };
            let filter = Filter {
                flows: Match::default(),
                detector,
            };
            let some = run(
                format,
                mode,
                &Filters::new(vec![filter], 1024, Units::default()).unwrap(),
            );
            let mut counts = [0_u64; 2];
            for (sink, reports) in &all.0 {
                let mut left = some.0[sink].iter().peekable();
                let thresholds = Thresholds::new([u64::MAX; Metric::COUNT], Vec::new()).unwrap();
                let detection = Detection {
                    thresholds,
                    rules: rules.clone(),
                    generation: 1,
                };
                let mut collector = Collector::new(collector::Config {
                    detection: detection.into(),
                    ..collector::Config::default()
                });
                let mut batch = Batch::with_capacity(1024);
                let mut before: BTreeMap<&str, bool> = BTreeMap::new();
                for (number, (_, flow, stamp, payload)) in reports.iter().enumerate() {
                    let source = std::net::Ipv4Addr::new(192, 0, 2, 1).to_ipv6_mapped().octets();
                    let received = START + number as u64 * 1000;
                    collector.handle(
                        &[Datagram {
                            payload,
                            source,
                            src_port: 1,
                            listener: 0,
                            received,
                        }],
                        &mut batch,
                    );
                    batch.clear();
                    let mut decoder = Decoder::new(Profile::default());
                    let key: FlowKey = decoder.reports(payload).next().unwrap().unwrap().flow.unwrap();
                    let fires = collector.flow(&key).unwrap().rules != 0;
                    let expected = fires || before.insert(flow, fires) != Some(false);
                    let reported = left.next_if(|(_, of, at, _)| (of, at) == (flow, stamp)).is_some();
                    assert_eq!(reported, expected, "{text}: {flow} at {stamp}, sink {sink}");
                    before.insert(flow, fires);
                    counts[usize::from(reported)] += 1;
                }
                assert!(left.next().is_none(), "{text}");
            }
            assert!(counts[0] > 50 && counts[1] > 50, "{text}: {counts:?}");
        }
    }
}
