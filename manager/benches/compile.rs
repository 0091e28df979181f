//! Compiling and planning for 1,000 switches of 64 ports and 10,000 intents on one core. `cargo bench -p hopwise-manager --bench compile`.
//!
//! As a test, it runs once over a small network.

use std::collections::BTreeMap;
use std::time::Instant;

use detect::Metric;
use manager::compile::{Compiler, DomainSettings};
use manager::device::{Capabilities, Mode, NodeId};
use manager::intent::{At, Intent};
use manager::inventory::{Device, DriverOptions, Host, Inventory, Origin, Peer};
use manager::plan::Plan;

/// Pods of leaves and aggregation switches below a layer of cores.
#[derive(Clone, Copy)]
struct Size {
    pods: u32,
    leaves: u32,
    aggregations: u32,
    cores: u32,
    intents: u32,
}

const FULL: Size = Size { pods: 20, leaves: 32, aggregations: 16, cores: 40, intents: 10_000 };
const SMALL: Size = Size { pods: 2, leaves: 4, aggregations: 2, cores: 4, intents: 100 };
const PORTS: u32 = 64;
const HOSTS_OF_LEAF: u32 = 16;

type Failure = Box<dyn std::error::Error>;

fn add(inventory: &mut Inventory, name: String, node: NodeId) -> Result<(), Failure> {
    let (driver, address, labels) = (String::new(), String::new(), Vec::new());
    inventory.add_device(Device {
        name,
        node,
        driver,
        address,
        options: DriverOptions::default(),
        labels,
    })?;
    for port in 1..=PORTS {
        inventory.add_port((node, port), None, None)?;
    }
    Ok(())
}

fn network(size: Size) -> Result<Inventory, Failure> {
    let mut inventory = Inventory::default();
    let (mut node, mut hosts) = (0, 0);
    let mut used: BTreeMap<NodeId, u32> = BTreeMap::new();
    let mut next = |node: NodeId| {
        let port = used.entry(node).or_insert(0);
        *port += 1;
        (node, *port)
    };
    let mut new = |inventory: &mut Inventory, kind: &str, count: u32| -> Result<Vec<NodeId>, Failure> {
        let mut nodes = Vec::new();
        for _ in 0..count {
            node += 1;
            add(inventory, format!("{kind}{node}"), node)?;
            nodes.push(node);
        }
        Ok(nodes)
    };
    let cores = new(&mut inventory, "core", size.cores)?;
    for pod in 0..size.pods {
        let aggregations = new(&mut inventory, "agg", size.aggregations)?;
        for (at, agg) in aggregations.iter().enumerate() {
            for uplink in 0..2 {
                let core = cores[(at * 2 + uplink + pod as usize) % cores.len()];
                inventory.add_link(next(*agg), next(core), Origin::File)?;
            }
        }
        for leaf in new(&mut inventory, "leaf", size.leaves)? {
            for agg in &aggregations {
                inventory.add_link(next(leaf), next(*agg), Origin::File)?;
            }
            for host in 0..PORTS - size.aggregations {
                let port = next(leaf);
                inventory.set_peer(port, Some(Peer::Hosts), Origin::Device)?;
                if host < HOSTS_OF_LEAF {
                    hosts += 1;
                    let addresses = vec![std::net::Ipv4Addr::from(0x0a00_0000 + hosts).into()];
                    let host = Host { name: format!("h{hosts}"), addresses, at: Some(port) };
                    inventory.add_host(host, Origin::Device)?;
                }
            }
        }
    }
    Ok(inventory)
}

fn intents(size: Size) -> Vec<Intent> {
    let hosts = size.pods * size.leaves * HOSTS_OF_LEAF;
    let metrics = [Metric::HopLatency, Metric::QueueOccupancy, Metric::LinkUtilization, Metric::FlowPath];
    let intent = |number: u32| {
        // Pairs of hosts anywhere, a few of which occur in several intents.
        let (a, b) = (number.wrapping_mul(2_654_435_761) % hosts, (number / 2 * 40_503 + 1) % hosts);
        let b = if a == b { (b + 1) % hosts } else { b };
        Intent {
            name: format!("intent{number}"),
            watch: [metrics[number as usize % 4]].into(),
            mode: Some(Mode::Md),
            both_directions: true,
            at: At { between: Some((format!("h{}", a + 1), format!("h{}", b + 1))), ..At::default() },
            ..Intent::default()
        }
    };
    (0..size.intents).map(intent).collect()
}

/// Peak resident memory of this process, MiB.
fn peak() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.split_whitespace().next()?.parse::<u64>().ok().map(|kib| kib >> 10)
}

fn main() -> Result<(), Failure> {
    let size = if std::env::args().any(|word| word == "--bench") { FULL } else { SMALL };
    let inventory = network(size)?;
    let intents = intents(size);
    let capabilities: BTreeMap<NodeId, Capabilities> = inventory
        .devices()
        .map(|device| (device.node, Capabilities { joint_roles: false, ..Capabilities::default() }))
        .collect();
    println!("{} devices, {} intents", capabilities.len(), intents.len());
    let ms = |from: Instant| from.elapsed().as_secs_f64() * 1e3;

    let start = Instant::now();
    let mut compiler = Compiler::new(&inventory, &capabilities, DomainSettings::default());
    let refused = compiler.add_all(&intents);
    if let Some((name, refusal)) = refused.first() {
        return Err(format!("{name}: {refusal}").into());
    }
    let compiled = ms(start);
    let plan = Plan::between(&BTreeMap::new(), compiler.desired());
    let rules: usize = compiler.desired().values().map(|rules| rules.len()).sum();
    println!("compile {compiled:.0} ms, with plan {:.0} ms: {rules} rules", ms(start));
    println!("{plan}");
    println!("peak memory {} MiB", peak().unwrap_or(0));

    let watch = [Metric::QueueOccupancy].into();
    let host_pair = Intent { name: "one-more".to_owned(), watch, ..intents[0].clone() };
    let everywhere = Intent { name: "everywhere".to_owned(), at: At::default(), ..intents[0].clone() };
    for (what, intent) in [("one more", host_pair), ("one more, everywhere", everywhere)] {
        let before = compiler.desired().clone();
        let start = Instant::now();
        compiler.add(&intent)?;
        let plan = Plan::between(&before, compiler.desired());
        println!("{what}: {:.2} ms, {} devices", ms(start), plan.devices.len());
    }
    Ok(())
}
