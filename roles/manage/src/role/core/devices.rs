//! The devices of the inventory: their views for the API, the domain's state, and the merge of the configured inventory with
//! the facts that devices and the collector report.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use manager::{
    device::{NodeId, PortId},
    driver::{Counter, Facts, Neighbour, PortFacts},
    inventory::{Inventory, Origin, Peer, PortRole, Unresolved},
};

use super::{
    super::{
        clock::Now,
        drivers,
        learn::LearnedLink,
        view::{DeviceState, DeviceView, DevicesView, DomainState, DomainView, NeighbourView},
    },
    Core, Error,
    inventory::AllLeaving,
};

/// Maximum number of hosts named for a port.
const MAX_HOSTS_AT_PORT: usize = 3;
/// Maximum number of counters stored per device.
const MAX_COUNTERS: usize = 1024;
/// Maximum number of host names in the view of the domain.
const MAX_HOST_NAMES: usize = 1_000;

impl Core {
    /// Returns all devices with their states, ports and counters.
    pub fn devices(&self, now: Now) -> DevicesView {
        let inventory = self.manager.inventory();
        let mut hosts: BTreeMap<(NodeId, PortId), Vec<&str>> = BTreeMap::new();
        for host in inventory.hosts() {
            if let Some(at) = host.at {
                hosts.entry(at).or_default().push(&host.name);
            }
        }
        let devices = self.manager.devices().into_iter().map(|status| {
            let can = self.manager.compiler().capabilities(status.node);
            let silence = self.silence(status.node, now);
            let node = status.node;
            let mut view = DeviceView::new(status, inventory, can, silence);
            for port in &mut view.ports {
                port.peer = port
                    .peer
                    .take()
                    .or_else(|| hosts.get(&(node, port.port)).map(|names| host_names(names)));
                port.neighbour = self.neighbour(node, port.port);
                port.opening = self.opening.contains(&(node, port.port));
            }
            view.counters = self.device_counters.get(&node).cloned().unwrap_or_default();
            let outside = inventory.device(node).filter(|device| device.role.is_outside());
            view.does = outside.and_then(|device| self.settings.p4runtime.get(&device.name)?.about());
            view.text.push_str(self.leaving_text(node));
            view
        });
        DevicesView {
            devices: devices.collect(),
        }
    }

    /// Returns the states of all devices, for the manager's stream.
    pub(in crate::role) fn device_states(&self, now: Now) -> Vec<DeviceState> {
        let states = self.manager.device_states().map(|status| {
            let silence = self.silence(status.node, now);
            let note = self
                .manager
                .inventory()
                .device(status.node)
                .and_then(drivers::note);
            let leaving = self.leaving_text(status.node);
            let mut state = DeviceState::new(status, silence, note);
            state.text.push_str(leaving);
            state
        });
        states.collect()
    }

    fn leaving_text(&self, node: NodeId) -> &'static str {
        if self.leaving.contains_key(&node) {
            "; it is no longer in the inventory, and is driven until its INT entries are gone; if it is permanently off: `hopwise device forget`"
        } else {
            ""
        }
    }

    /// Returns the state of the domain, for the manager's stream.
    pub(in crate::role) fn domain_state(&self) -> DomainState {
        DomainState {
            acting: self.manager.is_acting(),
            stopped: self.stopped,
            devices: self.manager.phases().count(),
            in_sync: self.in_sync(),
            waits: self.waits(),
        }
    }

    fn in_sync(&self) -> usize {
        self.manager.in_sync()
    }

    /// Describes the pending changes in a few lines; empty if there are none.
    fn waits(&self) -> String {
        let plan = self.manager.plan();
        if plan.is_empty() {
            String::new()
        } else {
            plan.to_string()
        }
    }

    /// Returns a device by name or node ID.
    ///
    /// # Errors
    /// There is no such device.
    pub fn device(&self, name: &str, now: Now) -> Result<DeviceView, Error> {
        let mut devices = self.devices(now).devices.into_iter();
        let device_of_name = devices.find(|device| device.name == name || name.parse() == Ok(device.node));
        device_of_name.ok_or_else(|| {
            Error::Unknown(format!(
                "there is no device `{name}`; use a name or node id of the list of devices"
            ))
        })
    }

    /// Returns the state and the settings of the domain.
    pub fn domain(&self, now: Now) -> DomainView {
        let inventory = self.manager.inventory();
        let compiler = self.manager.compiler();
        let domain = compiler.settings();
        let topology = compiler.topology().devices.iter();
        let links = topology.flat_map(|(node, ports)| {
            ports
                .links
                .iter()
                .map(|(port, (other, end))| [*node, *port, *other, *end])
        });
        let contradictions = inventory.contradictions().into_iter().map(|contradiction| {
            let claims = contradiction.claims.iter().map(|(origin, peer)| match peer {
                Peer::Hosts => format!("hosts ({})", origin.name()),
                Peer::Port(node, port) => format!("{}:{port} ({})", inventory.name(*node), origin.name()),
            });
            let claims: Vec<String> = claims.collect();
            format!(
                "{}:{} leads to {}",
                inventory.name(contradiction.port.0),
                contradiction.port.1,
                claims.join(" and to ")
            )
        });
        let suggestions = inventory.suggestions().into_iter().map(|suggestion| {
            let claims = suggestion.claims.iter().map(|(origin, at)| match origin {
                Origin::Learned => "by paths that the collector knows".to_owned(),
                origin => format!("by {} ({})", port_name(inventory, *at), origin.name()),
            });
            let mut claims: Vec<String> = claims.collect();
            claims.dedup();
            let [a, b] = suggestion.between.map(|end| port_name(inventory, end));
            format!("[\"{a}\", \"{b}\"] is claimed {}", claims.join(" and "))
        });
        DomainView {
            acting: self.manager.is_acting(),
            stopped: self.stopped,
            dscp: domain.encoding.dscp,
            l4_checksum: domain.encoding.l4_checksum.name().to_owned(),
            collectors: domain
                .collectors
                .iter()
                .map(|collector| collector.address.to_string())
                .collect(),
            dta_collectors: domain
                .dta_map
                .as_ref()
                .map(|map| map.collectors.clone())
                .unwrap_or_default(),
            devices: self.manager.phases().count(),
            in_sync: self.in_sync(),
            longest_path: compiler.longest_path(),
            links: links.filter(|[a, _, b, _]| a < b).collect(),
            contradictions: contradictions.collect(),
            hosts: inventory
                .hosts()
                .take(MAX_HOST_NAMES)
                .map(|host| host.name.clone())
                .collect(),
            suggestions: suggestions.collect(),
            manual: self.manager.is_manual(),
            waits: self.waits(),
            copy: self.copy_text(now),
        }
    }

    /// Returns the addresses of the configured collectors.
    pub(in crate::role) fn collectors(&self) -> BTreeSet<IpAddr> {
        self.manager
            .compiler()
            .settings()
            .collectors
            .iter()
            .map(|collector| collector.address.ip())
            .collect()
    }

    /// Stores the facts that a device reports about itself, and updates the inventory.
    pub(super) fn add_facts(&mut self, node: NodeId, facts: Facts, now: Now) {
        if !self.drivers.contains_key(&node) {
            // A late message: the driver has just been stopped.
            return;
        }
        self.manager
            .set_capabilities(node, facts.capabilities.clone(), now.steady);
        self.facts.insert(node, facts);
        self.join_facts(now);
    }

    /// Stores the counters that a device reports.
    pub(super) fn add_counters(&mut self, node: NodeId, mut counters: Vec<Counter>) {
        if self.drivers.contains_key(&node) {
            counters.truncate(MAX_COUNTERS);
            self.device_counters.insert(node, counters);
        }
    }

    /// Returns the name and counters of each device that has some, ordered by node ID.
    pub fn device_counters(&self) -> Vec<(String, Vec<Counter>)> {
        let inventory = self.manager.inventory();
        self.device_counters
            .iter()
            .map(|(node, counters)| (inventory.name(*node), counters.clone()))
            .collect()
    }

    /// Stores the links that the collector has learned, and updates the inventory.
    pub(in crate::role) fn learn(&mut self, links: BTreeSet<LearnedLink>, now: Now) {
        if self.learned != links {
            self.learned = links;
            self.join_facts(now);
        }
    }

    /// Rebuilds the inventory from the configuration, the facts of devices and the learned links.
    pub(super) fn join_facts(&mut self, now: Now) {
        let mut inventory = self.inventory_of_file();
        let leaving = &self.leaving;
        let facts = self.facts.iter().filter(|(node, _)| !leaving.contains_key(node));
        for (node, facts) in facts.clone() {
            add_ports(&mut inventory, *node, &facts.ports);
        }
        for (node, facts) in facts {
            add_neighbours(&mut inventory, *node, &facts.ports, leaving);
        }
        for [a, b] in self
            .learned
            .iter()
            .filter(|ends| !ends.iter().any(|(node, _)| leaving.contains_key(node)))
        {
            // Ignore links of unknown devices and ports.
            if [a, b]
                .iter()
                .all(|(node, port)| inventory.ports(*node).any(|known| known == *port))
            {
                // This rejects a link from a device to itself.
                let _ = inventory.add_link(*a, *b, Origin::Learned);
            }
        }
        if *self.manager.inventory() != inventory {
            self.note_links(&inventory, now);
            self.note_opening(&inventory);
            self.manager.set_inventory(inventory, now.steady);
            self.detection.is_due = true;
            self.matches.renew();
        }
    }

    /// Records links that appear or disappear in the history.
    fn note_links(&mut self, inventory: &Inventory, now: Now) {
        let before = links(self.manager.inventory());
        let after = links(inventory);
        let appeared = after.difference(&before).map(|link| (link, "leads to"));
        let disappeared = before.difference(&after).map(|link| (link, "no longer leads to"));
        for ([a, b], change) in appeared.chain(disappeared) {
            let subject = port_name(inventory, *a);
            let text = format!("{change} {}", port_name(inventory, *b));
            tracing::info!(port = subject, text, "the topology changed");
            self.note(now, "manager", "link", &subject, &text);
        }
    }

    /// Returns the LLDP neighbour at a port, and a note if the port does not form a link with it.
    fn neighbour(&self, node: NodeId, number: PortId) -> Option<NeighbourView> {
        let port = self
            .facts
            .get(&node)?
            .ports
            .iter()
            .find(|port| port.port == number)?;
        let Neighbour { system, port: end } = port.neighbour.clone()?;
        let inventory = self.manager.inventory();
        let role = inventory.role((node, number));
        let note = match inventory.resolve(&Neighbour {
            system: system.clone(),
            port: end.clone(),
        }) {
            Err(Unresolved::System(system)) => Some(format!(
                "`{system}` is not in the inventory; add it to carry INT over this link"
            )),
            Err(Unresolved::Port(other, port)) => Some(format!(
                "`{}` has no port `{port}` in the inventory; correct its `ports`",
                inventory.name(other)
            )),
            Ok((other, _)) if port.hosts => Some(format!(
                "the device is configured with hosts at this port, yet `{}` announces itself",
                inventory.name(other)
            )),
            Ok((other, end)) if role == PortRole::Unused => Some(format!(
                "`{}` does not receive LLDP from this port: INT crosses the link only once it does, or once the inventory has the link to its port {end}",
                inventory.name(other)
            )),
            Ok(_) => None,
        };
        Some(NeighbourView {
            system,
            port: end,
            note,
        })
    }
}

/// Formats a port as `DEVICE:PORT`.
fn port_name(inventory: &Inventory, port: (NodeId, PortId)) -> String {
    format!("{}:{}", inventory.name(port.0), port.1)
}

/// Returns the links between devices, each with its lower end first.
fn links(inventory: &Inventory) -> BTreeSet<LearnedLink> {
    let all = inventory.topology().devices.into_iter();
    let ends = all.flat_map(|(node, ports)| {
        let links = ports.links.into_iter();
        links.map(move |(port, other)| [(node, port), other])
    });
    ends.filter(|[a, b]| a < b).collect()
}

/// Adds the ports that a device reports to the inventory.
fn add_ports(inventory: &mut Inventory, node: NodeId, ports: &[PortFacts]) {
    for port in ports {
        let port_of_node = (node, port.port);
        let added = inventory
            .add_port(port_of_node, port.name.clone(), port.mtu)
            .and_then(|()| match port.hosts {
                true => inventory.set_peer(port_of_node, Some(Peer::Hosts), Origin::Device),
                false => Ok(()),
            });
        if let Err(error) = added {
            tracing::warn!(node, port = port.port, %error, "the device's information about a port is ignored");
        }
    }
}

/// Adds the links that a device learns by LLDP, except to devices in `leaving`. All ports must have been added before.
fn add_neighbours(inventory: &mut Inventory, node: NodeId, ports: &[PortFacts], leaving: &AllLeaving) {
    // The device's own configuration takes precedence over LLDP, which anything behind a port can send.
    for port in ports.iter().filter(|port| !port.hosts) {
        let Some(neighbour) = &port.neighbour else {
            continue;
        };
        if let Some((other, end)) = inventory
            .resolve(neighbour)
            .ok()
            .filter(|(other, _)| !leaving.contains_key(other))
        {
            // This rejects a port that receives its own device's LLDP.
            let _ = inventory.set_peer((node, port.port), Some(Peer::Port(other, end)), Origin::Device);
        }
    }
}

/// Lists the first hosts at a port by name.
fn host_names(names: &[&str]) -> String {
    let more = match names.len().saturating_sub(MAX_HOSTS_AT_PORT) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    names
        .iter()
        .take(MAX_HOSTS_AT_PORT)
        .copied()
        .collect::<Vec<_>>()
        .join(", ")
        + &more
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_of_a_port_are_named_up_to_three() {
        let all = ["h1", "h2", "h3", "h4", "h5"];
        let texts = [1, 3, 5].map(|count| host_names(&all[..count]));
        assert_eq!(texts, ["h1", "h1, h2, h3", "h1, h2, h3 and 2 more"]);
    }
}
