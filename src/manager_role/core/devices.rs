//! Devices as the manager's thread knows them: what they say about themselves, whether their reports arrive, and the domain.

use std::collections::BTreeMap;

use manager::{
    device::{NodeId, Rule},
    driver::{Facts, PortFacts},
    inventory::{Inventory, Origin, Peer},
    reconcile::Phase,
    verify::{EdgeCounters, IntentCounters, State},
};

use super::{
    super::{
        count::Arrived,
        drivers,
        view::{DeviceState, DeviceView, DevicesView, DomainState, DomainView},
    },
    Core, Error,
};
use crate::config::values::Listen;

impl Core {
    /// All devices.
    pub(crate) fn devices(&self, now: u64) -> DevicesView {
        let inventory = self.manager.inventory();
        let view = |status: manager::reconcile::DeviceStatus| {
            let can = self.manager.compiler().capabilities(status.node);
            let silence = self.silence(status.node, now);
            DeviceView::new(status, inventory, can, silence)
        };
        DevicesView { devices: self.manager.devices().into_iter().map(view).collect() }
    }

    /// The states of all devices.
    pub(in crate::manager_role) fn device_states(&self, now: u64) -> Vec<DeviceState> {
        let state = |status: manager::reconcile::DeviceStatus| {
            let silence = self.silence(status.node, now);
            let note = self.manager.inventory().device(status.node).and_then(drivers::note);
            DeviceState::new(status, silence, note)
        };
        self.manager.devices().into_iter().map(state).collect()
    }

    /// The state of the domain.
    pub(in crate::manager_role) fn domain_state(&self) -> DomainState {
        let devices = self.manager.devices();
        let plan = self.manager.plan();
        DomainState {
            acting: self.manager.is_acting(),
            stopped: self.stopped,
            devices: devices.len(),
            in_sync: devices.iter().filter(|device| device.phase == Phase::InSync).count(),
            waits: if plan.is_empty() { String::new() } else { plan.to_string() },
        }
    }

    /// One device, by name or node id.
    ///
    /// # Errors
    /// There is none.
    pub(crate) fn device(&self, name: &str, now: u64) -> Result<DeviceView, Error> {
        let named = |device: &DeviceView| device.name == name || name.parse() == Ok(device.node);
        let found = self.devices(now).devices.into_iter().find(named);
        found
            .ok_or_else(|| Error::Unknown(format!("there is no device `{name}`; /api/v1/devices lists them")))
    }

    /// The domain.
    pub(crate) fn domain(&self) -> DomainView {
        let inventory = self.manager.inventory();
        let compiler = self.manager.compiler();
        let domain = compiler.settings();
        let topology = compiler.topology().devices.iter();
        let links = topology.flat_map(|(node, ports)| {
            ports.links.iter().map(|(port, (other, end))| [*node, *port, *other, *end])
        });
        let devices = self.manager.devices();
        let contradiction = |one: manager::inventory::Contradiction| {
            let claims = one.claims.iter().map(|(origin, peer)| match peer {
                Peer::Hosts => format!("hosts ({})", origin.word()),
                Peer::Port(node, port) => format!("{}:{port} ({})", inventory.name(*node), origin.word()),
            });
            let claims: Vec<String> = claims.collect();
            format!("{}:{} leads to {}", inventory.name(one.port.0), one.port.1, claims.join(" and to "))
        };
        DomainView {
            acting: self.manager.is_acting(),
            stopped: self.stopped,
            dscp: domain.encoding.dscp,
            l4_checksum: domain.encoding.l4_checksum.word().to_owned(),
            collectors: domain.collectors.iter().map(|one| one.address.to_string()).collect(),
            devices: devices.len(),
            in_sync: devices.iter().filter(|device| device.phase == Phase::InSync).count(),
            longest_path: compiler.longest_path(),
            links: links.filter(|[a, _, b, _]| a < b).collect(),
            contradictions: inventory.contradictions().into_iter().map(contradiction).collect(),
            hosts: inventory.hosts().take(MAX_HOST_NAMES).map(|host| host.name.clone()).collect(),
        }
    }

    /// Compares what devices have reported with what has arrived here.
    pub(in crate::manager_role) fn compare(&mut self, arrived: &BTreeMap<NodeId, Arrived>, now: u64) {
        for (node, packets) in self.reported.clone() {
            let name = node.to_string();
            if !self.reports_here(node) {
                self.reporters.remove(&name);
                continue;
            }
            let Arrived { datagrams, lost } = arrived.get(&node).copied().unwrap_or_default();
            let edge = EdgeCounters { packets: Some(packets), reports: datagrams, sequence: None, lost };
            let counters = IntentCounters { edges: [(node, edge)].into(), ..IntentCounters::default() };
            self.reporters.set_installed(&name, true, now);
            self.reporters.observe(&name, counters, now);
        }
    }

    /// Whether a device sends its reports to the collector of this process.
    fn reports_here(&self, node: NodeId) -> bool {
        let rules = self.manager.compiler().desired().get(&node);
        let session = rules.into_iter().flat_map(|rules| rules.iter()).find_map(|rule| match rule {
            Rule::Session(to) => Some(*to),
            _ => None,
        });
        session.is_some_and(|to| {
            self.listens.iter().any(|listen| match listen {
                Listen::UdpAny(port) => *port == to.port(),
                Listen::Udp(address) => {
                    address.port() == to.port() && (address.ip().is_unspecified() || address.ip() == to.ip())
                }
                Listen::Xdp { ports, .. } => ports.contains(&to.port()),
            })
        })
    }

    /// The sentence about a device whose reports do not arrive.
    pub(super) fn silence(&self, node: NodeId, now: u64) -> Option<String> {
        let names = |node| self.manager.inventory().name(node);
        match self.reporters.state(&node.to_string(), names, now)? {
            State::Silent(silent) => silent.first().map(|silent| {
                let since = silent.last_report.unwrap_or(silent.installed) / 1_000_000_000;
                format!(
                    "{} reported {} packets in {since} s, and no report of it has arrived since then ({} datagrams lost in the network)",
                    silent.name, silent.packets, silent.lost
                )
            }),
            _ => None,
        }
    }

    /// Takes over what a device says about itself.
    pub(super) fn add_facts(&mut self, node: NodeId, facts: Facts, now: u64) {
        self.manager.set_capabilities(node, facts.capabilities.clone(), now);
        self.facts.insert(node, facts);
        let mut inventory = self.inventory.clone();
        for (node, facts) in &self.facts {
            add_ports(&mut inventory, *node, &facts.ports);
        }
        self.manager.set_inventory(inventory, now);
        self.asking.is_due = true;
    }
}

/// Adds what a device says about its ports.
fn add_ports(inventory: &mut Inventory, node: NodeId, ports: &[PortFacts]) {
    for port in ports {
        let at = (node, port.port);
        let added = inventory.add_port(at, port.name.clone(), port.mtu).and_then(|()| match port.hosts {
            true => inventory.set_peer(at, Some(Peer::Hosts), Origin::Device),
            false => Ok(()),
        });
        if let Err(error) = added {
            tracing::warn!(node, port = port.port, %error, "what the device says about a port is ignored");
        }
    }
}

/// Names of hosts in the view of the domain.
const MAX_HOST_NAMES: usize = 1_000;
