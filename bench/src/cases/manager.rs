//! Cases `manager-…`: the manager on one core, without I/O: compiling and planning the rules of 10,000 intents for 1,000
//! switches of 64 ports, and filling 200 devices in simulated time.

use std::collections::BTreeMap;
use std::hint::black_box;
use std::sync::Arc;

use detect::Metric;
use manager::compile::{Compiler, DomainSettings};
use manager::device::{
    Answer, Capabilities, Change, Command, Mode, NodeId, Request, Restart, Rule, Rules, State, Watch,
};
use manager::flows::FlowMatch;
use manager::intent::{At, Intent};
use manager::inventory::{
    Device, DevicePorts, DeviceRole, DriverOptions, Host, Inventory, InventoryError, Origin, Peer,
};
use manager::plan::Plan as Changes;
use manager::reconcile::{Order, Reconciler, Target, Targets, Timing};

use super::harness::{Conditions, Failure, Outcome, Plan, measure};
use experiments::figures::failed;
use terminal::CliError;

/// Dimensions of the network: pods of leaves and aggregation switches below a layer of core switches.
#[derive(Clone, Copy)]
struct Size {
    pods: u32,
    leaves: u32,
    aggregations: u32,
    cores: u32,
    intents: u32,
}

const FULL: Size = Size {
    pods: 20,
    leaves: 32,
    aggregations: 16,
    cores: 40,
    intents: 10_000,
};
const SMALL: Size = Size {
    pods: 2,
    leaves: 4,
    aggregations: 2,
    cores: 4,
    intents: 100,
};
const PORTS: u32 = 64;
const HOSTS_OF_LEAF: u32 = 16;

fn add(inventory: &mut Inventory, name: String, node: NodeId) -> Result<(), InventoryError> {
    let driver = String::new();
    let address = String::new();
    let labels = Vec::new();
    inventory.add_device(Device {
        name,
        node,
        driver,
        address,
        options: DriverOptions::default(),
        labels,
        role: DeviceRole::Switch,
    })?;
    for port in 1..=PORTS {
        inventory.add_port((node, port), None, None)?;
    }
    Ok(())
}

/// Adds `count` devices. `node` is the last node ID in use, and is advanced.
fn add_nodes(
    inventory: &mut Inventory,
    node: &mut NodeId,
    kind: &str,
    count: u32,
) -> Result<Vec<NodeId>, InventoryError> {
    let mut nodes = Vec::new();
    for _ in 0..count {
        *node += 1;
        add(inventory, format!("{kind}{node}"), *node)?;
        nodes.push(*node);
    }
    Ok(nodes)
}

/// Returns the first unused port of a device, and marks it as used.
fn next_port(used: &mut BTreeMap<NodeId, u32>, node: NodeId) -> (NodeId, u32) {
    let port = used.entry(node).or_insert(0);
    *port += 1;
    (node, *port)
}

fn network(size: Size) -> Result<Inventory, InventoryError> {
    let mut inventory = Inventory::default();
    let mut node = 0;
    let mut hosts = 0;
    let mut used: BTreeMap<NodeId, u32> = BTreeMap::new();
    let cores = add_nodes(&mut inventory, &mut node, "core", size.cores)?;
    for pod in 0..size.pods {
        let aggregations = add_nodes(&mut inventory, &mut node, "agg", size.aggregations)?;
        for (at, agg) in aggregations.iter().enumerate() {
            for uplink in 0..2 {
                let core = cores[(at * 2 + uplink + pod as usize) % cores.len()];
                let ends = [*agg, core].map(|node| next_port(&mut used, node));
                inventory.add_link(ends[0], ends[1], Origin::File)?;
            }
        }
        for leaf in add_nodes(&mut inventory, &mut node, "leaf", size.leaves)? {
            for agg in &aggregations {
                let ends = [leaf, *agg].map(|node| next_port(&mut used, node));
                inventory.add_link(ends[0], ends[1], Origin::File)?;
            }
            for host in 0..PORTS - size.aggregations {
                let port = next_port(&mut used, leaf);
                inventory.set_peer(port, Some(Peer::Hosts), Origin::Device)?;
                if host < HOSTS_OF_LEAF {
                    hosts += 1;
                    let addresses = vec![std::net::Ipv4Addr::from(0x0a00_0000 + hosts).into()];
                    let host = Host {
                        name: format!("h{hosts}"),
                        addresses,
                        at: Some(port),
                    };
                    inventory.add_host(host, Origin::Device)?;
                }
            }
        }
    }
    Ok(inventory)
}

fn intents(size: Size) -> Vec<Intent> {
    let hosts = size.pods * size.leaves * HOSTS_OF_LEAF;
    let metrics = [
        Metric::HopLatency,
        Metric::QueueOccupancy,
        Metric::LinkUtilization,
        Metric::FlowPath,
    ];
    (0..size.intents)
        .map(|number| {
            // Pairs of hosts anywhere in the network, a few of which occur in several intents.
            let a = number.wrapping_mul(2_654_435_761) % hosts;
            let b = (number / 2 * 40_503 + 1) % hosts;
            let b = if a == b { (b + 1) % hosts } else { b };
            Intent {
                name: format!("intent{number}"),
                watch: [metrics[number as usize % 4]].into(),
                mode: Some(Mode::Md),
                both_directions: true,
                at: At {
                    between: Some((format!("h{}", a + 1), format!("h{}", b + 1))),
                    ..At::default()
                },
                ..Intent::default()
            }
        })
        .collect()
}

/// Returns the peak resident memory of this process, MiB.
fn peak() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.split_whitespace()
        .next()?
        .parse::<u64>()
        .ok()
        .map(|kib| kib >> 10)
}

/// A network with the capabilities of its devices, and the intents for it.
struct Domain {
    inventory: Inventory,
    capabilities: BTreeMap<NodeId, Capabilities>,
    intents: Vec<Intent>,
}

impl Domain {
    fn new(size: Size) -> Result<Self, CliError> {
        let inventory = network(size).map_err(failed)?;
        let devices = inventory.devices();
        let capabilities = devices.map(|device| {
            let capabilities = Capabilities {
                joint_roles: false,
                ..Capabilities::default()
            };
            (device.node, capabilities)
        });
        let capabilities = capabilities.collect();
        Ok(Self {
            inventory,
            capabilities,
            intents: intents(size),
        })
    }

    /// Compiles all intents of the case.
    fn compiled(&self) -> Result<Compiler, CliError> {
        let mut compiler = Compiler::new(&self.inventory, &self.capabilities, DomainSettings::default());
        match compiler.add_all(&self.intents).first() {
            Some((name, refusal)) => Err(CliError::new(format!("{name}: {refusal}"))),
            None => Ok(compiler),
        }
    }
}

fn size(plan: &Plan) -> Size {
    if plan.is_trial() { SMALL } else { FULL }
}

fn conditions(included: &str, size: Size) -> Conditions {
    let devices = size.cores + size.pods * (size.leaves + size.aggregations);
    Conditions::of("one plan", included)
        .number("devices", devices)
        .number("ports_per_device", PORTS)
        .number("intents", size.intents)
}

/// Measures compiling all intents and planning them for empty devices (`manager-plan`).
pub(super) fn plan_all(name: &'static str, plan: &Plan) -> Result<Outcome, Failure> {
    let size = size(plan);
    let domain = Domain::new(size)?;
    let measured = measure(plan, || {
        let compiler = domain.compiled()?;
        black_box(Changes::between(&BTreeMap::new(), compiler.desired()));
        Ok(1)
    })?;
    let included = "all intents are checked and compiled, and compared with empty devices; no I/O";
    let conditions = conditions(included, size).number("peak_mib", peak().unwrap_or(0));
    Ok(Outcome::measured(name, measured, conditions))
}

/// Measures adding and removing one intent, between two hosts or at all devices with hosts: two plans (`manager-one-more…`).
pub(super) fn plan_one(name: &'static str, plan: &Plan) -> Result<Outcome, Failure> {
    let size = size(plan);
    let domain = Domain::new(size)?;
    let mut compiler = domain.compiled()?;
    let pair = Intent {
        name: "one-more".to_owned(),
        watch: [Metric::QueueOccupancy].into(),
        ..domain.intents[0].clone()
    };
    let one = if name.ends_with("everywhere") {
        Intent {
            at: At::default(),
            ..pair
        }
    } else {
        pair
    };
    let mut devices = 0;
    let measured = measure(plan, || {
        let before = compiler.desired().clone();
        compiler.add(&one).map_err(failed)?;
        let with_it = compiler.desired().clone();
        devices = Changes::between(&before, &with_it).devices.len();
        compiler.remove(&one.name);
        black_box(Changes::between(&with_it, compiler.desired()));
        Ok(2)
    })?;
    let included =
        "an intent is added or removed in turn: checked, compiled, and compared with what was there; no I/O";
    let conditions = conditions(included, size).number("devices_changed", devices);
    Ok(Outcome::measured(name, measured, conditions))
}

/// Simulated time of a message to or from a device, ns.
const ONE_WAY: u64 = 10_000_000;
/// Number of devices that are filled.
const FILLED: NodeId = 200;
const MS: u64 = 1_000_000;

/// Creates the targets: eight spines with leaves below, each device with a port to hosts, a watchlist entry and a sink.
fn targets() -> Targets {
    let watch = Watch {
        key: FlowMatch::default(),
        mode: Mode::Md,
        bits: 0xa000,
        hops: 8,
        sample: 1,
        drops: true,
    };
    let rules = Rules::from([
        Rule::Sink(1000),
        Rule::Instruction(0),
        Rule::Instruction(2),
        Rule::Watch(Arc::new(watch)),
    ]);
    let rules = Arc::new(rules);
    let targets = (1..=FILLED).map(|node| {
        // Nodes 1 to 8 are spines. Each leaf has one uplink, to spine 1 + node % 8.
        let links: BTreeMap<_, _> = if node > 8 {
            [(1, (1 + node % 8, node))].into()
        } else {
            (9..=FILLED)
                .filter(|leaf| 1 + leaf % 8 == node)
                .map(|leaf| (leaf, (leaf, 1)))
                .collect()
        };
        let ports = DevicePorts {
            edge: [1000].into(),
            links,
            ..DevicePorts::default()
        };
        let target = Target {
            name: format!("s{node}"),
            ports,
            rules: rules.clone(),
            restart: Restart::Keeps,
            room: None,
            outside: false,
        };
        (node, target)
    });
    targets.collect()
}

/// The answer of a device, until it arrives.
struct AnswerInFlight {
    /// Time of arrival, ns.
    arrival: u64,
    node: NodeId,
    /// ID of the command.
    id: u64,
    answer: Answer,
}

/// Fills all devices. Returns the simulated time that this takes, ns.
fn fill(targets: Targets) -> Result<u64, CliError> {
    let mut reconciler = Reconciler::new(Timing::default(), Order::default());
    reconciler.set_targets(targets, 1);
    reconciler.set_term(Some(1), 1);
    let mut rules: BTreeMap<NodeId, Rules> = BTreeMap::new();
    let mut in_flight: Vec<AnswerInFlight> = Vec::new();
    for step in 0..10_000 {
        let now = 1 + step * MS;
        let (due, rest): (Vec<_>, Vec<_>) = in_flight.into_iter().partition(|answer| answer.arrival <= now);
        in_flight = rest;
        for AnswerInFlight { node, id, answer, .. } in due {
            reconciler.answer(node, id, answer, now);
        }
        if reconciler.in_sync() == reconciler.phases().count() {
            return Ok(now - 1);
        }
        let mut commands = Vec::new();
        reconciler.poll(now, &mut commands);
        for Command {
            node, id, request, ..
        } in commands
        {
            let answer = execute(rules.entry(node).or_default(), request);
            in_flight.push(AnswerInFlight {
                arrival: now + 2 * ONE_WAY,
                node,
                id,
                answer,
            });
        }
    }
    Err(CliError::new(
        "the devices were not filled within 10 s of simulated time",
    ))
}

fn execute(rules: &mut Rules, request: Request) -> Answer {
    match request {
        Request::Claim(_) => Answer::Claimed,
        Request::Read => Answer::State(State {
            rules: rules.clone(),
            ..State::default()
        }),
        Request::Apply { changes, .. } => {
            for change in changes {
                match change {
                    Change::Add(rule) => drop(rules.insert(rule)),
                    Change::Remove(rule) => drop(rules.remove(&rule)),
                }
            }
            Answer::Applied
        }
    }
}

/// Measures the CPU time of filling all devices, whose response times are simulated (`manager-apply-200`).
pub(super) fn apply(name: &'static str, plan: &Plan) -> Result<Outcome, Failure> {
    let targets = targets();
    let mut simulated = 0;
    let measured = measure(plan, || {
        simulated = fill(targets.clone())?;
        Ok(1)
    })?;
    let included = "all devices are claimed, read, and filled in a safe order; their answers take 10 ms each way of simulated time";
    let conditions = Conditions::of("all devices filled", included)
        .number("devices", FILLED)
        .number("simulated_ms", simulated / MS);
    Ok(Outcome::measured(name, measured, conditions))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_hundred_devices_are_filled_in_six_round_trips() {
        // Claim, read, sinks and transits, read, sources, read.
        assert_eq!(fill(targets()).map(|ns| ns / MS).ok(), Some(120));
    }
}
