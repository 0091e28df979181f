use detect::Metric;

use super::*;
use crate::device::{Mode, Request, State};
use crate::intent::Until;
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

/// A manager and devices that execute everything at once.
struct Bench {
    manager: Manager,
    rules: BTreeMap<NodeId, Rules>,
}

impl Bench {
    fn new(apply: ApplyMode) -> Self {
        let mut manager = Manager::new(ManagerSettings { apply, ..ManagerSettings::default() });
        manager.set_inventory(inventory::read(NETWORK, "i.toml").unwrap(), S);
        manager.set_term(Some(1), S);
        Self { manager, rules: BTreeMap::new() }
    }

    fn run(&mut self, now: u64) {
        loop {
            let mut commands = Vec::new();
            self.manager.poll(now, &mut commands);
            if commands.is_empty() {
                return;
            }
            for Command { node, id, request } in commands {
                let rules = self.rules.entry(node).or_default();
                let answer = match request {
                    Request::Claim(_) => Answer::Claimed,
                    Request::Read => Answer::State(State { rules: rules.clone(), ..State::default() }),
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
                self.manager.answer(node, id, answer, now);
            }
        }
    }

    fn has(&self, node: NodeId, rule: &Rule) -> bool {
        self.rules.get(&node).is_some_and(|rules| rules.contains(rule))
    }
}

#[test]
fn an_intent_is_installed_and_ends_by_itself() {
    let mut bench = Bench::new(ApplyMode::Auto);
    bench.run(3 * S);
    let (_, plan) = bench.manager.dry_run(&intent("a"), 3 * S).unwrap();
    assert_eq!(plan.devices.len(), 2);
    assert!(bench.rules.values().all(Rules::is_empty));
    let ends = Intent { until: Some(Until::After(60 * S)), ..intent("a") };
    bench.manager.add_intent(ends, 3 * S).unwrap();
    assert!(!bench.manager.intent("a").unwrap().installed);
    bench.run(3 * S);
    assert!(bench.manager.intent("a").unwrap().installed);
    assert!(bench.manager.plan().is_empty());
    for second in 60..70 {
        bench.run(second * S);
    }
    assert_eq!(bench.manager.intent("a"), None);
    assert!(bench.rules.values().all(Rules::is_empty));
}

/// The link becomes an edge port at both ends.
fn cut(manager: &Manager) -> Inventory {
    let mut inventory = manager.inventory().clone();
    inventory.set_peer((1, 1), Some(Peer::Hosts), Origin::File).unwrap();
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
    assert!(!edge_ready(bench.manager.take_notices()));
    bench.run(7 * S);
    assert!(edge_ready(bench.manager.take_notices()));
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
    bench.manager.apply(60 * S);
    bench.run(60 * S);
    assert!(bench.manager.plan().is_empty());
}

#[test]
fn an_intent_that_a_new_network_refuses_is_kept_and_shown() {
    let mut bench = Bench::new(ApplyMode::Auto);
    bench.manager.add_intent(intent("a"), S).unwrap();
    bench.run(3 * S);
    let cannot = Capabilities { sink: false, ..Capabilities::default() };
    bench.manager.set_capabilities(2, cannot, 4 * S);
    let status = bench.manager.intent("a").unwrap();
    assert!(matches!(status.outcome, Err(Refusal::Leak(_))) && !status.installed);
    bench.manager.set_capabilities(2, Capabilities::default(), 5 * S);
    assert!(bench.manager.intent("a").unwrap().outcome.is_ok());
}
