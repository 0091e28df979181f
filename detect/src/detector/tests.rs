use std::collections::BTreeMap;

use super::*;
use crate::observation::HopValues;
use crate::random::Random;
use crate::rule::RuleSet;
use crate::rule::tests::{random_hops, random_rule_of};

const LARGE: usize = 1 << 16;

fn detector(algorithm: Algorithm, metric: Metric, threshold: u64) -> Detector {
    Detector {
        algorithm,
        metric,
        threshold,
    }
}

fn monitor(algorithm: Algorithm, metric: Metric, threshold: u64) -> Monitor {
    Monitor::new(detector(algorithm, metric, threshold), LARGE).unwrap()
}

fn flow(number: u64) -> FlowKey {
    let number = number as u16;
    FlowKey::v4([10, 0, 0, 1], [10, 0, 1, 1], Some((number, 80)), 17)
}

fn hop(node: u32, hop_latency: u64, queue_occupancy: u64) -> HopValues {
    HopValues {
        node,
        hop_latency,
        queue_occupancy,
        ..HopValues::NOTHING
    }
}

/// The decisions of a monitor of queues on packets of one flow, each with these hops (node, queue), as letters.
fn course(monitor: &mut Monitor, packets: &[&[(u32, u64)]]) -> String {
    let letters = ['.', 'e', 'k', 'f', 'u', '!'];
    packets
        .iter()
        .map(|hops: &&[(u32, u64)]| {
            let hops: Vec<_> = hops.iter().map(|&(node, queue)| hop(node, 10, queue)).collect();
            let observation = Observation {
                hops: &hops,
                flow_latency: Some(5),
                looped: false,
            };
            letters[monitor.decide(&observation, &flow(1), 0) as usize]
        })
        .collect()
}

#[test]
fn the_algorithms_match_manual_calculations() {
    let queue = Metric::QueueOccupancy;
    // Only an event changes the last reported value: 10, 15, 20 are each within 10 of 10.
    let single = |values: &[u64]| values.iter().map(|value| vec![(7, *value)]).collect::<Vec<_>>();
    let run = |algorithm, values: &[u64]| {
        let packets = single(values);
        let packets: Vec<&[(u32, u64)]> = packets.iter().map(Vec::as_slice).collect();
        course(&mut monitor(algorithm, queue, 10), &packets)
    };
    for algorithm in [Algorithm::PerHop, Algorithm::PerHopOfFlow, Algorithm::PerFlow] {
        assert_eq!(run(algorithm, &[10, 15, 20, 21, 31, 32, 10, ABSENT]), "f..!.!!u");
    }
    assert_eq!(run(Algorithm::Noop, &[1, 1, ABSENT]), "!!!");
    // Half of the new value. Averages 0, 16, 24, 28, 30: reported are 0, 16, 28; 30 is within 10 of 28.
    let half = Algorithm::MovingAverage { alpha: 128 };
    assert_eq!(run(half.clone(), &[0, 32, 32, 32, 32, 32, 0]), "f!.!..!");
    // A single spike of 20 changes the average by 10: not reported, while per-flow reports it twice.
    assert_eq!(run(half, &[100, 120, 100, 100, 120, 120]), "f...!.");
    assert_eq!(run(Algorithm::PerFlow, &[100, 120, 100, 100, 120, 120]), "f!!.!.");
    // Two nodes: each is compared with itself, the sum with the sum.
    let packets: [&[(u32, u64)]; 4] = [
        &[(1, 10), (2, 50)],
        &[(2, 50), (1, 10)],
        &[(1, 21), (2, 40)],
        &[(3, 1), (1, 60)],
    ];
    assert_eq!(
        course(&mut monitor(Algorithm::PerHop, queue, 10), &packets),
        "f.!!"
    );
    assert_eq!(
        course(&mut monitor(Algorithm::PerFlow, queue, 10), &packets),
        "f..."
    );
    // A hop without a node id.
    let packets: [&[(u32, u64)]; 2] = [&[(1, 10)], &[(1, 10), (NO_NODE, 10)]];
    assert_eq!(course(&mut monitor(Algorithm::PerHop, queue, 10), &packets), "fu");
}

#[test]
fn changes_and_durations_match_a_manual_calculation() {
    let change = Change {
        latency_bits: 10,
        queue_bits: 64,
        keep_alive: 1000,
    };
    let mut monitor = monitor(Algorithm::Change(change), Metric::FlowPath, 0);
    let mut decide = |path: &[(u32, u64)], now| {
        let hops: Vec<_> = path
            .iter()
            .map(|&(node, latency)| hop(node, latency, now))
            .collect();
        monitor.decide(
            &Observation {
                hops: &hops,
                ..Observation::default()
            },
            &flow(1),
            now,
        )
    };
    let steps = [
        (vec![(1, 0), (2, 5000)], 0, Decision::First),
        (vec![(1, 1023), (2, 4096)], 999, Decision::Suppressed),
        (vec![(1, 1023), (2, 4096)], 1000, Decision::KeepAlive),
        (vec![(1, 1024), (2, 4096)], 1001, Decision::Event),
        (vec![(1, 1024), (2, 4096)], 2000, Decision::Suppressed),
        (vec![(2, 1024), (1, 4096)], 2000, Decision::Event),
        (vec![(2, ABSENT), (1, 4096)], 2000, Decision::Event),
        // A clock that was set back.
        (vec![(2, ABSENT), (1, 4096)], 1999, Decision::KeepAlive),
    ];
    for (path, now, expected) in steps {
        assert_eq!(decide(&path, now), expected, "{path:?} at {now}");
    }
}

#[test]
fn a_rule_is_reported_while_it_is_true_and_once_after() {
    let program = |text: &str| {
        let rules = RuleSet::compile(&[("r".into(), text.into())]).unwrap();
        Algorithm::Rule(Arc::new(Program::new(&rules).unwrap()))
    };
    let packets = [10, 60, 61, 5, 5, 70].map(|queue| vec![(1, queue)]);
    let packets: Vec<&[(u32, u64)]> = packets.iter().map(Vec::as_slice).collect();
    let run = |text| course(&mut monitor(program(text), Metric::FlowPath, 0), &packets);
    assert_eq!(run("max(queue_occupancy) > 50"), "f!!e.!");
    assert_eq!(run("change(max(queue_occupancy)) > 50"), "f..!e!");
}

/// Result of each algorithm by its definition, with an unbounded map instead of registers.
/// Node, latency bucket and queue bucket of each hop.
type Digest = Vec<(u32, u64, u64)>;

#[derive(Default)]
struct Naive {
    reported: BTreeMap<(String, u32), i128>,
    averages: BTreeMap<String, i128>,
    digests: BTreeMap<String, (Digest, u64)>,
}

impl Naive {
    fn compare(&mut self, key: (String, u32), value: i128, threshold: u64) -> Decision {
        match self.reported.get(&key) {
            None => {
                self.reported.insert(key, value);
                Decision::First
            }
            Some(reported) if (reported - value).abs() > i128::from(threshold) => {
                self.reported.insert(key, value);
                Decision::Event
            }
            Some(_) => Decision::Suppressed,
        }
    }

    fn per_hop(&mut self, flow: &str, values: &[(u32, u64)], threshold: u64) -> Decision {
        let key = |node| (flow.to_owned(), node);
        let named = || values.iter().filter(|(node, _)| *node != NO_NODE);
        let compared = named().map(|&(node, value)| match self.reported.get(&key(node)) {
            None => Decision::First,
            Some(reported) if (reported - i128::from(value)).abs() > threshold.into() => Decision::Event,
            Some(_) => Decision::Suppressed,
        });
        let worst = compared.max().unwrap_or(Decision::MissingValue);
        let anonymous = values.iter().any(|(node, _)| *node == NO_NODE);
        let worst = if anonymous {
            worst.max(Decision::MissingValue)
        } else {
            worst
        };
        // A reader of the report sees all hops of the packet.
        if worst.is_reported() {
            self.reported
                .extend(named().map(|&(node, value)| (key(node), value.into())));
        }
        worst
    }

    fn decide(
        &mut self,
        detector: &Detector,
        observation: &Observation<'_>,
        flow: &str,
        now: u64,
    ) -> Decision {
        let values: Vec<(u32, u64)> = observation
            .hops
            .iter()
            .filter_map(|hop| Some((hop.node, hop.value(detector.metric)?)))
            .collect();
        let total = match detector.metric {
            Metric::FlowLatency => observation.flow_latency.map(i128::from),
            _ => (!values.is_empty()).then(|| values.iter().map(|(_, value)| i128::from(*value)).sum()),
        };
        let flow = flow.to_owned();
        match &detector.algorithm {
            Algorithm::Noop | Algorithm::Rule(_) => Decision::Event,
            Algorithm::PerHop | Algorithm::PerHopOfFlow => {
                let of_flow = detector.algorithm == Algorithm::PerHopOfFlow;
                self.per_hop(if of_flow { &flow } else { "" }, &values, detector.threshold)
            }
            Algorithm::PerFlow => match total {
                Some(total) => self.compare((flow, 0), total, detector.threshold),
                None => Decision::MissingValue,
            },
            Algorithm::MovingAverage { alpha } => {
                let Some(total) = total else {
                    return Decision::MissingValue;
                };
                let average = match self.averages.get(&flow) {
                    None => total * 256,
                    Some(average) => {
                        average + i128::from(*alpha) * total - (average * i128::from(*alpha)).div_euclid(256)
                    }
                };
                self.averages.insert(flow.clone(), average);
                self.compare((flow, 0), average, detector.threshold * 256)
            }
            Algorithm::Change(change) => {
                let bucket = |value, bits| if value == ABSENT { ABSENT } else { value >> bits };
                let digest: Vec<_> = observation
                    .hops
                    .iter()
                    .map(|hop| {
                        let latency = bucket(hop.hop_latency, change.latency_bits);
                        (hop.node, latency, bucket(hop.queue_occupancy, change.queue_bits))
                    })
                    .collect();
                let decision = match self.digests.get(&flow) {
                    None => Decision::First,
                    Some((reported, _)) if *reported != digest => Decision::Event,
                    Some((_, then)) if now - then >= change.keep_alive => Decision::KeepAlive,
                    Some(_) => return Decision::Suppressed,
                };
                self.digests.insert(flow, (digest, now));
                decision
            }
        }
    }
}

fn random_detector(random: &mut Random) -> Detector {
    let metrics = [
        Metric::HopLatency,
        Metric::QueueOccupancy,
        Metric::QueueCongestion,
        Metric::LinkUtilization,
    ];
    let mut metric = metrics[random.below(4) as usize];
    let algorithm = match random.below(6) {
        0 => Algorithm::Noop,
        1 => Algorithm::PerHop,
        2 => Algorithm::PerHopOfFlow,
        3 => Algorithm::PerFlow,
        4 => Algorithm::MovingAverage {
            alpha: 1 + random.below(255) as u8,
        },
        _ => Algorithm::Change(Change {
            latency_bits: random.below(4) as u8,
            queue_bits: random.below(4) as u8,
            keep_alive: 1 + random.below(50),
        }),
    };
    if matches!(algorithm, Algorithm::PerFlow | Algorithm::MovingAverage { .. }) && random.below(3) == 0 {
        metric = Metric::FlowLatency;
    }
    detector(algorithm, metric, random.below(5))
}

#[test]
fn each_algorithm_decides_as_its_definition() {
    let mut random = Random::new(23);
    let mut seen = [0_u64; Decision::COUNT];
    for _ in 0..600 {
        let detector = random_detector(&mut random);
        let mut monitor = Monitor::new(detector.clone(), LARGE).unwrap();
        let mut naive = Naive::default();
        let mut hops = Vec::new();
        for now in 0..200 {
            if random.below(3) == 0 {
                hops = random_hops(&mut random);
            }
            let observation = Observation {
                flow_latency: random.maybe(|r| r.below(9)),
                looped: false,
                hops: &hops,
            };
            let flow = flow(random.below(4));
            let expected = naive.decide(&detector, &observation, &flow.to_string(), now);
            let decision = monitor.decide(&observation, &flow, now);
            assert_eq!(decision, expected, "{detector:?} of {observation:?}");
            seen[decision as usize] += 1;
        }
        assert_eq!(monitor.counts().decisions.iter().sum::<u64>(), 200);
        assert_eq!(
            monitor.counts().collisions,
            0,
            "four flows, four nodes, 65,536 registers"
        );
    }
    assert!(
        seen.iter()
            .enumerate()
            .all(|(kind, count)| *count > 300 || kind == 1),
        "{seen:?}"
    );
}

#[test]
fn rules_decide_as_in_the_collector() {
    let mut random = Random::new(29);
    let mut rules = 0;
    let mut events = 0;
    let mut packets = 0;
    while rules < 300 {
        let text = random_rule_of(&mut random, 3, true);
        let Ok(set) = RuleSet::compile(&[("r".into(), text.clone())]) else {
            continue;
        };
        let Ok(program) = Program::new(&set) else { continue };
        rules += 1;
        let mut monitor = monitor(Algorithm::Rule(Arc::new(program)), Metric::FlowPath, 0);
        let mut histories = vec![(vec![EMPTY; set.cells().len()], None); 4];
        for _ in 0..100 {
            let hops = random_hops(&mut random);
            let observation = Observation {
                flow_latency: random.maybe(|r| r.below(6)),
                looped: random.below(2) == 0,
                hops: &hops,
            };
            let number = random.below(4);
            let (cells, before) = &mut histories[number as usize];
            let fires = set.evaluate_with(&observation, cells) != 0;
            let expected = match (fires, before.replace(fires)) {
                (true, _) => Decision::Event,
                (false, None) => Decision::First,
                (false, Some(true)) => Decision::Ended,
                (false, Some(false)) => Decision::Suppressed,
            };
            assert_eq!(monitor.decide(&observation, &flow(number), 0), expected, "{text}");
            events += u64::from(fires);
            packets += 1;
        }
    }
    assert!(
        events > packets / 10 && events < packets * 9 / 10,
        "{events} of {packets}"
    );
}

#[test]
fn a_flood_of_flows_hides_nothing_beyond_the_threshold() {
    let mut random = Random::new(31);
    for algorithm in [Algorithm::PerHopOfFlow, Algorithm::PerFlow, Algorithm::PerHop] {
        let of_node = algorithm == Algorithm::PerHop;
        let mut monitor = Monitor::new(detector(algorithm, Metric::QueueOccupancy, 20), 64).unwrap();
        let mut reported = BTreeMap::new();
        let mut packets = 0;
        for _ in 0..100_000 {
            packets += 1;
            let number = if random.below(3) == 0 {
                random.below(5)
            } else {
                random.below(60_000)
            };
            let node = if of_node { number as u32 } else { 1 };
            let queue = 100 + random.below(50);
            let hops = [hop(node, 1, queue)];
            let observation = Observation {
                hops: &hops,
                ..Observation::default()
            };
            let decision = monitor.decide(&observation, &flow(number), 0);
            if decision.is_reported() {
                reported.insert(number, queue);
            } else {
                let last: u64 = reported[&number];
                assert!(
                    last.abs_diff(queue) <= 20,
                    "{number}: {last} was reported, {queue} is suppressed"
                );
            }
        }
        let counts = monitor.counts();
        assert_eq!(counts.decisions.iter().sum::<u64>(), packets);
        assert!(counts.of(Decision::Suppressed) > 100, "{counts:?}");
        assert_eq!(
            counts.of(Decision::First),
            counts.collisions + 64,
            "each takes a register over, but the first 64"
        );
    }
}

/// What a reader of the reports knows of a node is the value in the last report that shows it, whichever hop caused that report.
#[test]
fn a_suppressed_hop_is_within_the_threshold_of_what_the_last_report_shows() {
    // Node 2 has 15 when node 1 causes a report: then 25 is within 10 of what was reported, and 4 is not.
    let packets: [&[(u32, u64)]; 5] = [
        &[(1, 5), (2, 5)],
        &[(1, 30), (2, 15)],
        &[(1, 30), (2, 25)],
        &[(1, 30), (2, 4)],
        &[(1, 40), (2, 14)],
    ];
    let queue = Metric::QueueOccupancy;
    for algorithm in [Algorithm::PerHop, Algorithm::PerHopOfFlow] {
        assert_eq!(course(&mut monitor(algorithm, queue, 10), &packets), "f!.!.");
    }
    let mut random = Random::new(41);
    for registers in [2, LARGE] {
        let threshold = 20;
        let mut suppressed = 0;
        let mut monitor = Monitor::new(detector(Algorithm::PerHop, queue, threshold), registers).unwrap();
        let mut shown = BTreeMap::new();
        for _ in 0..50_000 {
            // Some nodes twice in a path, some without an id.
            let path = 1 + random.below(4);
            let hops: Vec<_> = (0..path)
                .map(|_| {
                    hop(
                        if random.below(50) == 0 {
                            NO_NODE
                        } else {
                            random.below(5) as u32
                        },
                        1,
                        random.below(30),
                    )
                })
                .collect();
            let observation = Observation {
                hops: &hops,
                ..Observation::default()
            };
            // Now and then a latency was implausible.
            let decision = match random.below(8) {
                0 => monitor.decide_implausible(&observation, &flow(1)),
                _ => monitor.decide(&observation, &flow(1), 0),
            };
            for hop in hops.iter().filter(|hop| hop.node != NO_NODE) {
                if decision.is_reported() {
                    shown.insert(hop.node, hop.queue_occupancy);
                } else if let Some(last) = shown.get(&hop.node) {
                    assert!(
                        hop.queue_occupancy.abs_diff(*last) <= threshold,
                        "{hops:?}, shown {last}"
                    );
                    suppressed += 1;
                }
            }
        }
        assert!(suppressed > 1_000, "{suppressed} with {registers} registers");
    }
}

/// A value that is missing beside an implausible one is no reason to report a known node, nor to suppress the first value of another.
#[test]
fn an_implausible_latency_suppresses_no_first_value_of_another_node() {
    let mut monitor = monitor(Algorithm::PerHop, Metric::HopLatency, 10);
    let mut decide = |implausible, hops: &[(u32, u64)]| {
        let hops: Vec<_> = hops
            .iter()
            .map(|&(node, latency)| hop(node, latency, 0))
            .collect();
        let observation = Observation {
            hops: &hops,
            ..Observation::default()
        };
        match implausible {
            true => monitor.decide_implausible(&observation, &flow(1)),
            false => monitor.decide(&observation, &flow(1), 0),
        }
    };
    assert_eq!(decide(true, &[(1, ABSENT), (NO_NODE, 5)]), Decision::MissingValue);
    assert_eq!(decide(false, &[(1, 5)]), Decision::First);
    assert_eq!(decide(true, &[(1, ABSENT), (NO_NODE, 5)]), Decision::Suppressed);
    assert_eq!(
        decide(true, &[(1, ABSENT), (2, 500), (NO_NODE, 5)]),
        Decision::First
    );
    assert_eq!(
        decide(true, &[(1, ABSENT), (2, 510), (NO_NODE, 5)]),
        Decision::Suppressed
    );
    assert_eq!(
        decide(true, &[(1, ABSENT), (2, 511), (NO_NODE, 5)]),
        Decision::Event
    );
}

#[test]
fn values_at_the_ends_of_64_bits_do_not_wrap() {
    let mut random = Random::new(37);
    let edges = [
        0,
        1,
        MAX_VALUE - 1,
        MAX_VALUE,
        MAX_VALUE + 1,
        1 << 63,
        u64::MAX - 1,
    ];
    for _ in 0..2000 {
        let mut detector = random_detector(&mut random);
        detector.threshold = *random.pick(&edges.each_ref());
        let mut monitor = Monitor::new(detector, 4).unwrap();
        for _ in 0..20 {
            let hops: Vec<HopValues> = (0..random.below(5))
                .map(|_| HopValues {
                    hop_latency: *random.pick(&edges.each_ref()),
                    queue_occupancy: *random.pick(&edges.each_ref()),
                    queue_congestion: *random.pick(&edges.each_ref()),
                    link_utilization: *random.pick(&edges.each_ref()),
                    node: random.below(9) as u32,
                })
                .collect();
            let flow_latency = Some(*random.pick(&edges.each_ref()));
            let observation = Observation {
                flow_latency,
                looped: false,
                hops: &hops,
            };
            monitor.decide(
                &observation,
                &flow(random.below(9)),
                *random.pick(&edges.each_ref()),
            );
        }
        assert_eq!(monitor.counts().decisions.iter().sum::<u64>(), 20);
    }
}

#[test]
fn contradictory_settings_are_refused() {
    let refused = |algorithm, metric, registers| {
        Monitor::new(detector(algorithm, metric, 5), registers)
            .map(|_| ())
            .unwrap_err()
            .to_string()
    };
    assert_eq!(
        refused(Algorithm::PerHop, Metric::FlowLatency, 64),
        "flow_latency belongs to the flow: use per-flow, not per-hop"
    );
    assert_eq!(
        refused(Algorithm::PerFlow, Metric::FlowPath, 64),
        "flow_path is not a number: use change to detect path changes"
    );
    assert_eq!(
        refused(Algorithm::MovingAverage { alpha: 0 }, Metric::HopLatency, 64),
        "a moving average needs alpha between 0.004 and 0.996"
    );
    for size in [0, 3, MAX_REGISTERS * 2] {
        assert!(
            refused(Algorithm::PerFlow, Metric::HopLatency, size).contains("a power of two"),
            "{size}"
        );
    }
    assert!(Monitor::new(Detector::noop(), 1).is_ok());
}

#[test]
fn wiped_registers_are_as_new() {
    let mut monitor = monitor(Algorithm::PerFlow, Metric::QueueOccupancy, 10);
    let packet: [&[(u32, u64)]; 2] = [&[(1, 10)], &[(1, 10)]];
    assert_eq!(course(&mut monitor, &packet), "f.");
    monitor.wipe();
    assert_eq!(course(&mut monitor, &packet), "f.");
}
