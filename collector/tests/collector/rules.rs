//! Rules over random traffic: what is reported equals the evaluation of every rule for every report.

#![allow(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

use std::fmt::Write;

use collector::{Config, Event, Kind, Profile};
use detect::{HopValues, Metric, Observation, RuleSet, observation};
use testkit::reports::{Bench, Node, SECOND, Sent, config, detection, node};
use testkit::rng::Rng;

/// A flow as the test follows it.
#[derive(Clone, Debug)]
struct Followed {
    path: Vec<u32>,
    history: Vec<u64>,
    rules: u64,
}

fn term(rng: &mut Rng) -> String {
    const SIGNS: [&str; 6] = ["<", "<=", ">", ">=", "==", "!="];
    let sign = SIGNS[rng.below(6)];
    let metric = [
        "hop_latency",
        "queue_occupancy",
        "queue_congestion",
        "link_utilization",
    ][rng.below(4)];
    let number = match metric {
        "link_utilization" => format!("0.00000{}", rng.below(5)),
        _ => rng.below(5).to_string(),
    };
    let node = if rng.below(4) == 0 {
        format!("@{}", 1 + rng.below(4))
    } else {
        String::new()
    };
    // Beyond what is stored of a hop: only a sum can be.
    if metric == "link_utilization" && rng.below(3) == 0 {
        return format!("sum({metric}{node}) {sign} 2500");
    }
    let aggregate = ["max", "min", "sum", "avg"][rng.below(4)];
    match rng.below(10) {
        0 | 1 => format!("flow_latency {sign} {}", rng.below(12)),
        2 => format!("hops {sign} {}", 1 + rng.below(4)),
        3 => "loop".into(),
        4 => format!("count({metric}{node} {sign} {number}) {sign} {}", rng.below(4)),
        5 => format!("{}({metric}{node} {sign} {number})", ["any", "all"][rng.below(2)]),
        6 => format!("change(max(queue_occupancy{node})) {sign} {}", rng.below(5)),
        7 => format!("average(flow_latency) {sign} {}", rng.below(12)),
        _ => format!("{aggregate}({metric}{node}) {sign} {number}"),
    }
}

fn rule(rng: &mut Rng) -> String {
    let (one, other) = (term(rng), term(rng));
    match rng.below(6) {
        0 => format!("{one} and {other}"),
        1 => format!("{one} or not {other}"),
        2 => format!("({one}) for {}", 2 + rng.below(3)),
        3 => format!("hops > 1 and not (({one}) for 2)"),
        _ => one,
    }
}

/// Values that are mostly below every number in the rules, so that reports stay within regions.
fn vary(rng: &mut Rng, at: &Node) -> Node {
    let small = |rng: &mut Rng| if rng.below(8) == 0 { rng.below(7) as u32 } else { 1 };
    let mut node = Node {
        latency: Some(small(rng)),
        queue: Some((0, small(rng))),
        ..*at
    };
    node.congestion = Some((0, small(rng)));
    node.utilization = Some(small(rng));
    match rng.below(60) {
        0 => node.latency = None,
        1 => node.queue = None,
        2 => node.congestion = None,
        3 => node.utilization = None,
        4 => node.utilization = Some(u32::MAX - 1 - rng.below(2) as u32),
        5 => node.utilization = Some((1 << 31) - 3 + rng.below(4) as u32),
        // Longer than is plausible.
        6 => node.latency = Some(2_000_000_000),
        _ => {}
    }
    node
}

/// The report as rules see it, by the definition.
fn observe(hops: &[Node]) -> Vec<HopValues> {
    let value = |value: Option<u32>| value.map_or(observation::ABSENT, u64::from);
    let seen = |hop: &Node| HopValues {
        hop_latency: value(hop.latency.filter(|latency| *latency <= 1_000_000_000)),
        queue_occupancy: value(hop.queue.map(|(_, level)| level)),
        queue_congestion: value(hop.congestion.map(|(_, level)| level)),
        link_utilization: value(hop.utilization),
        node: hop.id,
    };
    hops.iter().map(seen).collect()
}

/// What is reported of rules when one more report of flow `number` is evaluated in full.
fn expected(rules: &RuleSet, number: usize, flow: &mut Followed, hops: &[HopValues]) -> String {
    let latencies = || hops.iter().map(|hop| hop.hop_latency);
    let known = latencies().all(|latency| latency != observation::ABSENT);
    let looped = (1..flow.path.len()).any(|at| flow.path[..at].contains(&flow.path[at]));
    let report = Observation {
        flow_latency: known.then(|| latencies().sum()),
        looped,
        hops,
    };
    let now = rules.evaluate_with(&report, &mut flow.history);
    let changed = std::mem::replace(&mut flow.rules, now) ^ now;
    let mut lines = String::new();
    for rule in (0..64).filter(|rule| changed >> rule & 1 == 1) {
        let kind = if now >> rule & 1 == 1 {
            "rule_on"
        } else {
            "rule_off"
        };
        writeln!(lines, "{kind} flow={number} rule={rule}").unwrap();
    }
    lines
}

/// The payload of a report 1.0 around an Ethernet frame: the form that is read ahead.
fn framed(sent: &Sent) -> Vec<u8> {
    let mut bytes = sent.v10();
    bytes[1] &= !0xe0;
    bytes.splice(16..16, [2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0]);
    bytes
}

/// Sends `reports` random reports of four flows; returns how many changes of rules were seen.
fn follow(rng: &mut Rng, texts: &[String], reports: usize) -> usize {
    let names: Vec<String> = (0..texts.len()).map(|number| format!("rule {number}")).collect();
    let named: Vec<(&str, &str)> = names
        .iter()
        .zip(texts)
        .map(|(name, text)| (name.as_str(), text.as_str()))
        .collect();
    let detection = detection([u64::MAX; 6], &named);
    let rules = detection.rules.clone();
    let profile = Profile {
        utilization_scale: 1e-6,
        ..Profile::default()
    };
    let mut bench = Bench::new(Config {
        detection,
        default_profile: profile,
        ..config()
    });
    let fresh = Followed {
        path: vec![1, 2, 3],
        history: vec![u64::MAX; rules.cells().len()],
        rules: 0,
    };
    let mut flows = vec![fresh; 4];
    let mut changes = 0;
    for _ in 0..reports {
        let number = rng.below(4);
        let flow = &mut flows[number];
        if rng.below(20) == 0 {
            flow.path = (0..1 + rng.below(4)).map(|_| 1 + rng.below(4) as u32).collect();
        }
        let mut hops: Vec<Node> = flow.path.iter().map(|id| vary(rng, &node(*id))).collect();
        // Only INT 0.5 has a congestion status.
        let is_10 = rng.below(4) > 0;
        if is_10 {
            hops.iter_mut().for_each(|hop| hop.congestion = None);
        }
        let lines = expected(&rules, number, flow, &observe(&hops));
        let bitmap = if is_10 { 0xb100 } else { 0xb300 };
        let sent = Sent {
            flow: number as u16,
            hops,
            bitmap,
            ..Sent::default()
        };
        bench.deliver(&if is_10 {
            framed(&sent)
        } else {
            sent.v10_of_int_05()
        });
        let collected = bench.collected();
        let reported: String = collected
            .lines()
            .filter(|line| line.starts_with("rule"))
            .map(|line| format!("{line}\n"))
            .collect();
        assert_eq!(reported, lines, "{texts:?} {sent:?}");
        changes += lines.lines().count();
    }
    changes
}

#[test]
fn rules_that_are_skipped_within_regions_are_reported_as_if_every_report_were_evaluated() {
    let mut rng = Rng(5);
    let mut changes = 0;
    for _ in 0..150 {
        let texts: Vec<String> = (0..1 + rng.below(4)).map(|_| rule(&mut rng)).collect();
        let mut distinct = texts.clone();
        distinct.sort();
        distinct.dedup();
        changes += follow(&mut rng, &distinct, 400);
    }
    assert!(changes > 5000, "{changes}");
}

#[test]
fn a_rule_that_becomes_true_names_the_value_and_the_queue() {
    let rules = [
        ("deep", "hops > 2 and max(queue_occupancy) > 50"),
        ("slow", "flow_latency > 1ms"),
    ];
    let mut bench = Bench::new(Config {
        detection: detection([u64::MAX; 6], &rules),
        ..config()
    });
    let rules = |bench: &mut Bench| {
        let is_rule = |event: &&Event| matches!(event.kind, Kind::RuleOn | Kind::RuleOff);
        let rules: Vec<Event> = bench.log.events.iter().filter(is_rule).copied().collect();
        bench.log.events.clear();
        rules
    };
    let of = |event: &Event| {
        (
            event.kind,
            event.metric,
            event.value,
            event.threshold,
            event.node,
            event.interface,
            event.queue,
            event.flow.is_some(),
        )
    };
    bench.send(&Sent::default());
    assert_eq!(rules(&mut bench), []);
    // Twice: the second one is settled by what was learnt from the first.
    for (occupancy, kind) in [(80, Kind::RuleOn), (20, Kind::RuleOff), (90, Kind::RuleOn)] {
        let mut sent = Sent::default();
        sent.hops[1].queue = Some((3, occupancy));
        bench.send(&sent).send(&sent);
        let seen = rules(&mut bench);
        let expected = (
            kind,
            Some(Metric::QueueOccupancy),
            Some(u64::from(occupancy)),
            Some(50),
            Some(2),
            Some(2),
            Some(3),
            true,
        );
        assert_eq!(seen.iter().map(of).collect::<Vec<_>>(), [expected]);
    }
    // The flow ends: no comparison decided that.
    bench.pass(90 * SECOND);
    let seen = rules(&mut bench);
    assert_eq!(
        seen.iter().map(of).collect::<Vec<_>>(),
        [(Kind::RuleOff, None, None, None, None, None, None, true)]
    );
}

/// The congestion status may be of another queue than the occupancy.
#[test]
fn a_rule_about_congestion_names_the_queue_of_the_congestion_status_and_its_port() {
    let mut bench = Bench::new(Config {
        detection: detection([u64::MAX; 6], &[("congested", "max(queue_congestion) > 50")]),
        ..config()
    });
    let mut sent = Sent {
        bitmap: 0xf200,
        ..Sent::default()
    };
    sent.hops[1].queue = Some((3, 10));
    sent.hops[1].congestion = Some((4, 80));
    sent.hops[1].ports = (1, 7);
    bench.deliver(&sent.v10_of_int_05());
    let on = bench.log.events.iter().find(|event| event.kind == Kind::RuleOn);
    let location = on.map(|event| (event.node, event.interface, event.queue));
    assert_eq!(location, Some((Some(2), Some(7), Some(4))));
}

/// Records without node IDs give a latency of the flow, and rules about it apply.
#[test]
fn rules_apply_to_stacks_without_node_ids() {
    let mut config = config();
    config.detection = detection([100; 6], &[("slow", "flow_latency > 2us")]);
    let mut bench = Bench::new(config);
    let nameless = Sent {
        bitmap: 0x2000,
        ..Sent::default()
    };
    bench.send(&nameless);
    let events: Vec<_> = bench.log.events.iter().map(|event| event.kind).collect();
    assert!(events.contains(&Kind::RuleOn), "{events:?}");
}
