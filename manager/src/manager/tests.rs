use detect::Metric;

use super::*;
use crate::device::{Mode, Request, State};
use crate::flows::Flows;
use crate::intent::{Reporting, Then, Until};
use crate::inventory::{self, Origin, Peer};

const S: u64 = 1_000_000_000;

const NETWORK: &str = r#"
devices = [{ name = "leaf1", ports = 3, edge = [2] }, { name = "leaf2", ports = 3, edge = [2] }]
links = [{ between = ["leaf1:1", "leaf2:1"] }]
"#;

fn intent(name: &str) -> Intent {
    Intent {
        name: name.to_owned(),
        watch: [Metric::HopLatency].into(),
        mode: Some(Mode::Md),
        ..Intent::default()
    }
}

/// A manager that starts anew has approved nothing yet, and perhaps has no intent.
#[test]
fn a_restarted_manager_stops_no_device_that_forwards() {
    let forwards = |capabilities: bool| {
        let mut bench = Bench::new(ApplyMode::Manual);
        for node in [1, 2] {
            let waits = Capabilities {
                restart: Restart::Waits,
                ..Capabilities::default()
            };
            // At first, nothing is known of what it can do.
            if capabilities {
                bench.manager.set_capabilities(node, waits, S);
            }
            bench.rules.insert(node, [Rule::Forwarding].into());
        }
        bench.run(S);
        bench.run(5 * S);
        bench
            .rules
            .values()
            .all(|rules| *rules == [Rule::Forwarding].into())
    };
    assert_eq!([true, false].map(forwards), [true, true]);
}

/// Only devices that report by DTA get the map. They keep it when the manager has none, or does not know yet that they do.
#[test]
fn a_map_of_dta_collectors_is_handed_out_and_never_taken_away() {
    let map = |name: &str| {
        Arc::new(DtaMap {
            collectors: vec![name.to_owned()],
            text: name.to_owned(),
        })
    };
    let mut bench = Bench::new(ApplyMode::Auto);
    let reports = |dta| Capabilities {
        dta,
        ..Capabilities::default()
    };
    bench.manager.set_capabilities(1, reports(true), S);
    let maps = |bench: &mut Bench, now: u64| -> [Vec<String>; 2] {
        bench.run(now);
        let map = |rule: &Rule| match rule {
            Rule::DtaMap(map) => Some(map.text.clone()),
            _ => None,
        };
        [1, 2].map(|node| {
            bench
                .rules
                .get(&node)
                .iter()
                .flat_map(|rules| rules.iter().filter_map(map))
                .collect()
        })
    };
    let only = |name: &str| [vec![name.to_owned()], Vec::new()];
    for (second, name) in [(2, "a"), (10, "b")] {
        bench.manager.set_dta_map(Some(map(name)), second * S);
        assert_eq!(maps(&mut bench, (second + 5) * S), only(name));
    }
    bench.manager.set_dta_map(None, 20 * S);
    assert_eq!(maps(&mut bench, 25 * S), only("b"), "no map");
    bench.manager.set_dta_map(Some(map("c")), 30 * S);
    bench.manager.set_capabilities(1, reports(false), 30 * S);
    assert_eq!(maps(&mut bench, 35 * S), only("b"), "not known");
}

/// A manager and devices that execute everything at once.
struct Bench {
    manager: Manager,
    rules: BTreeMap<NodeId, Rules>,
    /// Devices that do not answer.
    down: std::collections::BTreeSet<NodeId>,
    /// Devices refuse requests with an entry for this destination port.
    refused: Option<u16>,
}

impl Bench {
    fn new(apply: ApplyMode) -> Self {
        let mut manager = Manager::new(ManagerSettings {
            apply,
            ..ManagerSettings::default()
        });
        manager.set_inventory(inventory::read(NETWORK, "i.toml").unwrap(), S);
        manager.set_term(Some(1), S);
        Self {
            manager,
            rules: BTreeMap::new(),
            down: Default::default(),
            refused: None,
        }
    }

    fn run(&mut self, now: u64) {
        loop {
            let mut commands = Vec::new();
            self.manager.poll(now, &mut commands);
            if commands.is_empty() {
                return;
            }
            for Command {
                node, id, request, ..
            } in commands
            {
                let mut rules = self.rules.remove(&node).unwrap_or_default();
                let answer = match request {
                    _ if self.down.contains(&node) => Answer::Unreachable("it is off".to_owned()),
                    Request::Claim(_) => Answer::Claimed,
                    Request::Read => Answer::State(State {
                        rules: rules.clone(),
                        ..State::default()
                    }),
                    Request::Apply { changes, .. }
                        if changes.iter().any(|one| self.is_refused(one.rule())) =>
                    {
                        Answer::Refused("table full".to_owned())
                    }
                    Request::Apply { changes, .. } => {
                        for change in changes {
                            match change {
                                crate::device::Change::Add(rule) => drop(rules.insert(rule)),
                                crate::device::Change::Remove(rule) => drop(rules.remove(&rule)),
                            }
                        }
                        Answer::Applied
                    }
                };
                self.rules.insert(node, rules);
                self.manager.answer(node, id, answer, now);
            }
        }
    }

    fn is_refused(&self, rule: &Rule) -> bool {
        matches!(rule, Rule::Watch(watch) if self.refused == Some(watch.key.dport.0))
    }

    fn has(&self, node: NodeId, rule: &Rule) -> bool {
        self.rules.get(&node).is_some_and(|rules| rules.contains(rule))
    }
}

/// A device outside the domain waits for no other, and none waits for it: it is filled although a switch of the domain does not answer, and
/// intents are installed although it does not.
#[test]
fn devices_outside_the_domain_and_switches_do_not_wait_for_each_other() {
    let network = NETWORK.replace(
        "devices = [",
        "devices = [{ name = \"agg\", node = 9, role = \"aggregator\" }, { name = \"dta\", node = 8, role = \"translator\" }, ",
    );
    let start = |down: &[NodeId]| {
        let mut bench = Bench::new(ApplyMode::Auto);
        bench
            .manager
            .set_inventory(inventory::read(&network, "i.toml").unwrap(), S);
        bench.manager.add_intent(intent("web"), S).unwrap();
        bench.down = down.iter().copied().collect();
        (S..20 * S).step_by(S as usize / 2).for_each(|now| bench.run(now));
        bench
    };
    let filled = |bench: &Bench, node| bench.rules.get(&node) == Some(&[Rule::Forwarding].into());
    let bench = start(&[1]);
    assert_eq!(
        (filled(&bench, 9), filled(&bench, 8)),
        (true, true),
        "leaf1 is off"
    );
    assert!(!bench.manager.intent("web").unwrap().installed);

    let mut bench = start(&[9]);
    assert_eq!((filled(&bench, 9), filled(&bench, 8)), (false, true));
    assert!(bench.manager.intent("web").unwrap().installed, "agg is off");
    assert!([1, 2].iter().all(|node| bench.has(*node, &Rule::Sink(2))));
    assert_eq!((bench.manager.devices().len(), bench.manager.in_sync()), (4, 3));
    assert_eq!(bench.manager.compiler().topology().devices.len(), 2);

    // A restarted one has nothing, and is filled again, in manual mode as well.
    bench.down.clear();
    bench.rules.remove(&8);
    bench
        .manager
        .event(8, DeviceEvent::Lost("it was restarted".to_owned()), 20 * S);
    (20 * S..60 * S)
        .step_by(S as usize / 2)
        .for_each(|now| bench.run(now));
    assert_eq!(
        (filled(&bench, 9), filled(&bench, 8), bench.manager.in_sync()),
        (true, true, 4)
    );
    let mut manual = Bench::new(ApplyMode::Manual);
    manual
        .manager
        .set_inventory(inventory::read(&network, "i.toml").unwrap(), S);
    manual.run(2 * S);
    assert!(filled(&manual, 9));
}

#[test]
fn an_intent_is_installed_and_ends_by_itself() {
    let mut bench = Bench::new(ApplyMode::Auto);
    bench.run(3 * S);
    let plan = bench.manager.dry_run(&intent("a"), 3 * S).unwrap().plan;
    assert_eq!(plan.devices.len(), 2);
    assert!(bench.rules.values().all(Rules::is_empty));
    let ends = Intent {
        until: Some(Until::After(60 * S)),
        ..intent("a")
    };
    bench.manager.add_intent(ends, 3 * S).unwrap();
    assert!(!bench.manager.intent("a").unwrap().installed);
    bench.run(3 * S);
    assert!(bench.manager.intent("a").unwrap().installed);
    let nodes: Vec<NodeId> = bench.rules.keys().copied().collect();
    let states: Vec<_> = bench.manager.phases().collect();
    assert_eq!(
        states,
        nodes
            .iter()
            .map(|node| (*node, &Phase::InSync))
            .collect::<Vec<_>>()
    );
    let of = |node| (bench.manager.phase(node), bench.manager.lacking(node));
    assert_eq!(
        (of(nodes[0]), of(99)),
        ((Some(&Phase::InSync), Some(BTreeSet::new())), (None, None))
    );
    assert!(bench.manager.plan().is_empty());
    for second in 60..70 {
        bench.run(second * S);
    }
    assert_eq!(bench.manager.intent("a"), None);
    assert!(bench.rules.values().all(Rules::is_empty));
}

/// Of three intents, devices refuse the entry of one; another one shares an entry with it.
#[test]
fn one_change_that_fails_leaves_other_intents_installed() {
    let of_ports = |name: &str, ports: (u16, u16)| Intent {
        flows: Flows {
            dport: vec![ports],
            ..Flows::default()
        },
        ..intent(name)
    };
    let mut bench = Bench::new(ApplyMode::Auto);
    bench.manager.add_intent(of_ports("web", (80, 80)), S).unwrap();
    bench.run(3 * S);
    bench.refused = Some(90);
    bench
        .manager
        .add_intent(of_ports("many", (90, 99)), 4 * S)
        .unwrap();
    bench
        .manager
        .add_intent(of_ports("some", (70, 79)), 4 * S)
        .unwrap();
    bench.run(5 * S);
    let installed =
        |bench: &Bench| ["web", "many", "some"].map(|name| bench.manager.intent(name).unwrap().installed);
    assert_eq!(
        bench.manager.phase(1).map(ToString::to_string).as_deref(),
        Some("failed: table full")
    );
    assert_eq!(
        installed(&bench),
        [true, false, false],
        "one request has both entries"
    );
    assert_eq!(bench.manager.lacking(1), Some(["many", "some"].into()));
    bench.refused = None;
    (6 * S..12 * S).step_by(S as usize).for_each(|now| bench.run(now));
    assert_eq!(installed(&bench), [true; 3]);
    // An entry for what two intents want is lacking for both.
    bench.refused = Some(95);
    bench
        .manager
        .add_intent(of_ports("one", (95, 95)), 12 * S)
        .unwrap();
    bench.run(13 * S);
    assert_eq!(bench.manager.lacking(1), Some(["many", "one"].into()));
}

/// The link becomes an edge port at both ends.
fn cut(manager: &Manager) -> Inventory {
    let mut inventory = manager.inventory().clone();
    inventory
        .set_peer((1, 1), Some(Peer::Hosts), Origin::File)
        .unwrap();
    inventory.set_peer((2, 1), None, Origin::File).unwrap();
    inventory
}

#[test]
fn sinks_come_at_once_and_the_rest_after_the_calm() {
    let mut bench = Bench::new(ApplyMode::Auto);
    bench.manager.add_intent(intent("a"), S).unwrap();
    bench.run(3 * S);
    bench.manager.set_inventory(cut(&bench.manager), 4 * S);
    bench.run(4 * S);
    assert!(bench.has(1, &Rule::Sink(1)) && bench.has(2, &Rule::Sink(1)));
    assert!(!bench.manager.plan().is_empty());
    bench.run(5 * S);
    assert!(bench.manager.plan().is_empty());
    let edge_ready = |notices: Vec<Notice>| notices.contains(&Notice::EdgeReady(1, 1));
    assert!(!edge_ready(bench.manager.drain_notices()));
    bench.run(7 * S);
    assert!(edge_ready(bench.manager.drain_notices()));
}

#[test]
fn a_plan_of_the_topology_can_wait_for_a_person() {
    let mut bench = Bench::new(ApplyMode::Manual);
    bench.manager.add_intent(intent("a"), S).unwrap();
    bench.manager.apply(S);
    bench.run(3 * S);
    assert!(bench.manager.intent("a").unwrap().installed);
    bench.manager.set_inventory(cut(&bench.manager), 4 * S);
    bench.run(60 * S);
    // The border is closed without asking; the rest waits.
    assert!(bench.has(1, &Rule::Sink(1)));
    assert!(!bench.manager.plan().is_empty());
    assert!(bench.manager.needs_approval(&[2, 1].into()) && !bench.manager.needs_approval(&[9].into()));
    bench.manager.apply(60 * S);
    bench.run(60 * S);
    assert!(bench.manager.plan().is_empty() && !bench.manager.needs_approval(&[1, 2].into()));
}

#[test]
fn an_intent_ends_at_once_while_a_plan_of_the_topology_waits() {
    let mut bench = Bench::new(ApplyMode::Manual);
    bench.manager.add_intent(intent("a"), S).unwrap();
    bench
        .manager
        .add_intent(
            Intent {
                watch: [Metric::QueueOccupancy].into(),
                ..intent("b")
            },
            S,
        )
        .unwrap();
    bench.run(3 * S);
    bench.manager.set_inventory(cut(&bench.manager), 4 * S);
    bench.run(60 * S);
    let bits = |bench: &Bench| {
        let bits = |rule: &Rule| {
            if let Rule::Watch(watch) = rule {
                Some(watch.bits)
            } else {
                None
            }
        };
        bench.rules[&1].iter().filter_map(bits).collect::<Vec<_>>()
    };
    let both = bits(&bench);
    assert!(bench.manager.remove_intent("b", 60 * S));
    bench.run(61 * S);
    let one = bits(&bench);
    assert!(
        both.len() == 1 && one.len() == 1 && one[0] != both[0],
        "{both:x?} {one:x?}"
    );
    assert!(bench.manager.remove_intent("a", 62 * S));
    bench.run(63 * S);
    assert!(bits(&bench).is_empty());
    // The border stays closed, and the plan goes on waiting.
    assert!(bench.has(1, &Rule::Sink(1)));
    assert!(!bench.manager.plan().is_empty());
}

#[test]
fn a_version_that_is_refused_ends_the_one_before() {
    let mut bench = Bench::new(ApplyMode::Auto);
    bench.manager.keep_intent(intent("a"), S).unwrap();
    bench.run(3 * S);
    let cannot = Capabilities {
        modes: [Mode::Md, Mode::Sf].into(),
        ..Capabilities::default()
    };
    for node in [1, 2] {
        bench.manager.set_capabilities(node, cannot.clone(), 4 * S);
    }
    let mx = Intent {
        mode: Some(Mode::Mx),
        ..intent("a")
    };
    let refusal = bench.manager.keep_intent(mx.clone(), 5 * S).unwrap_err();
    let status = bench.manager.intent("a").unwrap();
    assert_eq!((status.outcome, status.installed), (Err(refusal), false));
    assert!(
        bench
            .manager
            .compiler()
            .desired()
            .values()
            .all(|rules| rules.is_empty())
    );
    // It is compiled again with the next network.
    for node in [1, 2] {
        bench
            .manager
            .set_capabilities(node, Capabilities::default(), 6 * S);
    }
    assert_eq!(
        bench
            .manager
            .intent("a")
            .unwrap()
            .outcome
            .map(|outcome| outcome.mode),
        Ok(Mode::Mx)
    );
    // One without sense is not kept, nor is its earlier version.
    assert!(
        bench
            .manager
            .keep_intent(
                Intent {
                    watch: [].into(),
                    ..mx
                },
                7 * S
            )
            .is_err()
    );
    assert!(bench.manager.intent("a").is_none());
}

#[test]
fn an_intent_that_a_new_network_refuses_is_kept_and_shown() {
    let mut bench = Bench::new(ApplyMode::Auto);
    bench.manager.add_intent(intent("a"), S).unwrap();
    bench.run(3 * S);
    let cannot = Capabilities {
        sink: false,
        ..Capabilities::default()
    };
    bench.manager.set_capabilities(2, cannot, 4 * S);
    let status = bench.manager.intent("a").unwrap();
    assert!(matches!(status.outcome, Err(Refusal::Leak(_))) && !status.installed);
    bench.manager.set_capabilities(2, Capabilities::default(), 5 * S);
    assert!(bench.manager.intent("a").unwrap().outcome.is_ok());
}

/// An intent whose rule leads to a drill-down of half a minute.
fn with_then(name: &str) -> Intent {
    let then = Then {
        watch: [Metric::QueueOccupancy].into(),
        scope: crate::intent::Scope::Flow,
        length: 30 * S,
    };
    let reporting = Reporting {
        rule: Some("hops > 1".to_owned()),
        then: Some(then),
        ..Reporting::default()
    };
    Intent {
        reporting,
        ..intent(name)
    }
}

fn firing(port: u16, at: &[NodeId]) -> Firing {
    let flow = crate::flows::FlowMatch {
        dport: (port, port),
        ..Default::default()
    };
    Firing {
        flow,
        at: at.to_vec(),
        ..Firing::default()
    }
}

#[test]
fn a_rule_that_fires_installs_detail_where_it_happened_and_removes_it() {
    let mut bench = Bench::new(ApplyMode::Manual);
    bench.manager.add_intent(with_then("a"), S).unwrap();
    bench.run(3 * S);
    let before = bench.rules.clone();
    // Leaf 2 does not see the flow enter; a node that is unknown, or has no hosts, is no place.
    let child = bench.manager.fire("a", &firing(80, &[1, 9]), 4 * S).unwrap();
    assert_eq!(
        (child.name.as_str(), &child.at.edges),
        ("a.drill-1", &vec!["leaf1".to_owned()])
    );
    bench.run(4 * S);
    let status = bench.manager.intent("a.drill-1").unwrap();
    assert!(status.installed && status.end == Some(34 * S) && bench.manager.plan().is_empty());
    let watches = |bench: &Bench, node| {
        bench.rules[&node]
            .iter()
            .filter(|rule| matches!(rule, Rule::Watch(_)))
            .count()
    };
    assert_eq!((watches(&bench, 1), watches(&bench, 2)), (2, 1));
    assert!(bench.has(1, &Rule::Instruction(3)) && bench.has(2, &Rule::Instruction(3)));
    // The same reason prolongs it. The manager is asked again when it ends.
    let again = bench.manager.fire("a", &firing(80, &[1]), 10 * S);
    assert_eq!(again, Err(Denied::Prolonged("a.drill-1".to_owned())));
    bench.run(34 * S);
    assert!(bench.manager.intent("a.drill-1").is_some());
    assert!(bench.manager.next_timeout().is_some_and(|next| next <= 40 * S));
    for second in 40..50 {
        bench.run(second * S);
    }
    assert_eq!(bench.manager.intents().collect::<Vec<_>>(), ["a"]);
    assert_eq!(bench.rules, before);
}

#[test]
fn drill_downs_end_with_their_intent_and_are_refused_like_others() {
    let mut bench = Bench::new(ApplyMode::Auto);
    bench.manager.add_intent(with_then("a"), S).unwrap();
    bench.manager.add_intent(intent("a.drill-1"), S).unwrap();
    bench.run(3 * S);
    let fire = |bench: &mut Bench, port| {
        bench
            .manager
            .fire("a", &firing(port, &[]), 4 * S)
            .map(|child| child.name)
    };
    // An operator's intent keeps its name.
    assert_eq!(fire(&mut bench, 80), Ok("a.drill-2".to_owned()));
    assert_eq!(fire(&mut bench, 81), Ok("a.drill-3".to_owned()));
    assert_eq!(bench.manager.drill_downs().count(), 2);
    // A budget that moves a threshold ends none; another `then` does.
    let mut moved = with_then("a");
    moved.reporting.thresholds.insert(Metric::HopLatency, 9);
    bench.manager.add_intent(moved.clone(), 5 * S).unwrap();
    assert_eq!(bench.manager.drill_downs().count(), 2);
    moved.reporting.then.as_mut().unwrap().length = 9 * S;
    bench.manager.add_intent(moved, 5 * S).unwrap();
    assert_eq!(bench.manager.intents().collect::<Vec<_>>(), ["a", "a.drill-1"]);
    assert_eq!(fire(&mut bench, 80), Ok("a.drill-4".to_owned()));
    bench.manager.remove_intent("a", 6 * S);
    assert_eq!(bench.manager.intents().collect::<Vec<_>>(), ["a.drill-1"]);
    // One that an operator puts in place of a drill-down is the operator's.
    bench.manager.add_intent(with_then("a"), 6 * S).unwrap();
    assert_eq!(fire(&mut bench, 80), Ok("a.drill-5".to_owned()));
    bench.manager.add_intent(intent("a.drill-5"), 6 * S).unwrap();
    bench.run(100 * S);
    assert!(bench.manager.intent("a.drill-5").is_some());
    bench.manager.remove_intent("a.drill-5", 6 * S);
    // What the network cannot do is denied, and not kept.
    bench.manager.add_intent(with_then("a"), 7 * S).unwrap();
    let small = Capabilities {
        watch_entries: 2,
        ..Capabilities::default()
    };
    bench.manager.set_capabilities(1, small, 7 * S);
    bench.run(7 * S);
    assert!(bench.manager.fire("a", &firing(80, &[]), 7 * S).is_ok());
    let full = bench.manager.fire("a", &firing(81, &[]), 7 * S);
    assert!(
        matches!(full, Err(Denied::Refused(Refusal::Full { .. }))),
        "{full:?}"
    );
    assert_eq!(bench.manager.drill_downs().count(), 1);
    // A manager on standby installs nothing.
    bench.manager.set_term(None, 8 * S);
    assert_eq!(
        bench.manager.fire("a", &firing(82, &[]), 8 * S),
        Err(Denied::NotAsked)
    );
}
