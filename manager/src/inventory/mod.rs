//! The inventory: devices, their ports, links and hosts, each fact with its origin.
//!
//! # Contradictions
//! Facts from different origins are stored side by side; no origin silently overrules another. If they disagree about a port,
//! or the two ends of a link disagree, the port is [`PortRole::Disputed`]. It is shown with all claims and treated as an edge
//! port, because a sink too many costs a report, while a missing sink costs a host its packet.
//!
//! # Facts that open a border
//! A wrong link is a leak: INT would leave by a port that leads to a host. A port is therefore [`PortRole::Fabric`] only if
//! the file says so, or if the devices at both ends claim the link. A claim of one device is not enough, because a host may
//! have forged the LLDPDU; it becomes a [`Suggestion`] for the operator.
//!
//! Facts that the collector learns never change a role. Reports may be forged, old, or lack a node; therefore such facts are
//! only shown as suggestions or contradictions.

mod file;
mod neighbour;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::IpAddr;

use settings::choice;

pub use self::file::{InventorySettings, checked, from_settings, read};
pub use self::neighbour::Unresolved;

use crate::device::{NodeId, PortId};

/// Maximum number of devices.
pub const MAX_DEVICES: usize = 4096;
/// Maximum number of ports per device.
pub const MAX_PORTS: usize = 1024;
/// Maximum number of hosts.
pub const MAX_HOSTS: usize = 1 << 17;

wire::named! {
    /// The source of a fact.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
    pub enum Origin, name {
        /// The inventory file, or a person.
        File => "file",
        /// The device: LLDP or a port description.
        Device => "device",
        /// Learned by the collector from paths and interfaces.
        Learned => "learned",
    }
}

choice! {
    /// The role of a device in the domain.
    #[derive(PartialOrd, Ord, Hash)]
    pub enum DeviceRole("\"switch\", \"aggregator\" or \"translator\"") {
        /// A node of the domain.
        Switch = "switch",
        /// Outside the domain: it aggregates postcards before a collector.
        Aggregator = "aggregator",
        /// Outside the domain: it translates DTA reports into writes to collectors' memory.
        Translator = "translator",
    }
}

impl DeviceRole {
    /// Returns whether the device is outside the INT domain: it has no ports of the domain, and intents do not apply to it.
    pub fn is_outside(self) -> bool {
        self != Self::Switch
    }
}

/// A device with its driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Device {
    /// Unique name of the device.
    pub name: String,
    /// Unique node id, not 0.
    pub node: NodeId,
    /// Kind of its driver: `hopwise`, `p4runtime`, `gnmi` or `files`.
    pub driver: String,
    /// Address at which the driver reaches the device.
    pub address: String,
    /// Options that only some drivers have.
    pub options: DriverOptions,
    /// Labels, for display and for `at.edges` of intents.
    pub labels: Vec<String>,
    /// Role in the domain.
    pub role: DeviceRole,
}

/// Options that only some drivers have, as written in the file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DriverOptions {
    /// For the driver `files`: when rules count as applied.
    pub confirm: Option<String>,
}

/// The other end of a port.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Peer {
    /// A port of a device of this inventory.
    Port(NodeId, PortId),
    /// Hosts, or a network that is not managed.
    Hosts,
}

/// A host with its addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host {
    /// Unique name of the host.
    pub name: String,
    /// IP addresses of the host.
    pub addresses: Vec<IpAddr>,
    /// Port that the host is connected to, if known.
    pub at: Option<(NodeId, PortId)>,
}

/// The role of a port in the domain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PortRole {
    /// The port leads to a port of another device: INT may pass.
    Fabric(NodeId, PortId),
    /// The port leads to hosts: INT begins and ends here.
    Edge,
    /// No link or host is known. The port is a sink, because a host may be connected at any time, but not a source.
    Unused,
    /// File and devices contradict each other. The port is a sink until they agree.
    Disputed,
}

impl PortRole {
    /// Returns the name of this role in the API.
    pub fn name(self) -> &'static str {
        match self {
            Self::Fabric(..) => "fabric",
            Self::Edge => "edge",
            Self::Unused => "unused",
            Self::Disputed => "disputed",
        }
    }
}

/// A port about which facts contradict each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Contradiction {
    /// Port that the facts are about.
    pub port: (NodeId, PortId),
    /// The claim of each origin about the port. For a link whose ends disagree, also the claims at the other end.
    pub claims: Vec<(Origin, Peer)>,
}

/// A link with too few claims to let INT pass. The operator may add it to the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Suggestion {
    /// Both ends of the link, the lower one first.
    pub between: [(NodeId, PortId); 2],
    /// Each claim's origin, and the end of the link that it is about.
    pub claims: Vec<(Origin, (NodeId, PortId))>,
}

/// The reason why a fact was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InventoryError {
    /// Two devices have the same name.
    DuplicateName(String),
    /// Two devices have the same node id.
    DuplicateNode(NodeId, String),
    /// The node id is 0, which means "unknown" in INT.
    NodeZero(String),
    /// The name is not 1 to 63 letters, digits, `.`, `_`, `-`.
    BadName(String),
    /// No device has this name.
    UnknownDevice(String),
    /// No device has this node id.
    UnknownNode(NodeId),
    /// A link connects a device to itself.
    Loop(String),
    /// Two hosts have the same name or address.
    DuplicateHost(String),
    /// A port, link or host belongs to a device outside the domain.
    Outside(String),
    /// The limit for this kind of object is exceeded.
    TooMany(&'static str, usize),
}

impl fmt::Display for InventoryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::DuplicateName(name) => write!(f, "two devices are named `{name}`; rename one"),
            Self::DuplicateNode(node, name) => {
                write!(
                    f,
                    "node id {node} belongs to `{name}` already; give each device its own"
                )
            }
            Self::NodeZero(name) => {
                write!(
                    f,
                    "`{name}` has node id 0, which means \"unknown\"; use 1 or more"
                )
            }
            Self::BadName(name) => {
                write!(
                    f,
                    "`{name}` is not a name; use 1 to 63 letters, digits, `.`, `_` and `-`"
                )
            }
            Self::UnknownDevice(name) => write!(f, "there is no device `{name}`; add it to the inventory"),
            Self::UnknownNode(node) => {
                write!(
                    f,
                    "there is no device with node id {node}; add it to the inventory"
                )
            }
            Self::Loop(name) => write!(f, "a link leads from `{name}` to itself; correct one of its ends"),
            Self::DuplicateHost(name) => {
                write!(f, "the host name or address `{name}` is used twice; remove one")
            }
            Self::Outside(name) => write!(
                f,
                "`{name}` is outside the domain, which has none of its ports; remove its ports, links and hosts, or write role = \"switch\""
            ),
            Self::TooMany(what, limit) => write!(f, "there are more than {limit} {what}; split the domain"),
        }
    }
}

impl std::error::Error for InventoryError {}

/// Facts about a port, with the peer that each origin claims.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct PortFacts {
    name: Option<String>,
    mtu: Option<u32>,
    peers: BTreeMap<Origin, Peer>,
}

/// All known facts about the network.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Inventory {
    devices: BTreeMap<NodeId, Device>,
    names: BTreeMap<String, NodeId>,
    ports: BTreeMap<NodeId, BTreeMap<PortId, PortFacts>>,
    hosts: BTreeMap<String, Host>,
    /// Name of the host that has each address.
    addresses: BTreeMap<IpAddr, String>,
}

/// Returns whether `name` is valid for devices, hosts and intents.
pub fn is_name(name: &str) -> bool {
    (1..=63).contains(&name.len())
        && name
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || "._-".contains(c))
}

impl Inventory {
    /// Adds a device without ports.
    ///
    /// # Errors
    /// [`InventoryError`] if its name or node id is invalid or used.
    pub fn add_device(&mut self, device: Device) -> Result<(), InventoryError> {
        if !is_name(&device.name) {
            return Err(InventoryError::BadName(device.name));
        }
        if device.node == 0 {
            return Err(InventoryError::NodeZero(device.name));
        }
        if self.names.contains_key(&device.name) {
            return Err(InventoryError::DuplicateName(device.name));
        }
        if let Some(other) = self.devices.get(&device.node) {
            return Err(InventoryError::DuplicateNode(device.node, other.name.clone()));
        }
        if self.devices.len() == MAX_DEVICES {
            return Err(InventoryError::TooMany("devices", MAX_DEVICES));
        }
        self.names.insert(device.name.clone(), device.node);
        self.ports.insert(device.node, BTreeMap::new());
        self.devices.insert(device.node, device);
        Ok(())
    }

    /// Returns the lowest node id that is not in use.
    pub fn free_node(&self) -> NodeId {
        (1..=NodeId::MAX)
            .find(|node| !self.devices.contains_key(node))
            .unwrap_or(NodeId::MAX)
    }

    /// Removes a device with its ports, and all claims about links to it. Nothing is then known about the other ends of these
    /// links. Hosts at the device remain, without a port.
    pub fn remove_device(&mut self, node: NodeId) {
        if let Some(device) = self.devices.remove(&node) {
            self.names.remove(&device.name);
        }
        self.ports.remove(&node);
        for facts in self.ports.values_mut().flat_map(BTreeMap::values_mut) {
            facts
                .peers
                .retain(|_, peer| !matches!(peer, Peer::Port(other, _) if *other == node));
        }
        for host in self.hosts.values_mut() {
            host.at = host.at.filter(|(other, _)| *other != node);
        }
    }

    /// Declares a port, and updates its interface name and MTU (bytes) if given.
    ///
    /// # Errors
    /// [`InventoryError`] if the device is unknown, outside the domain, or has too many ports.
    pub fn add_port(
        &mut self,
        port: (NodeId, PortId),
        name: Option<String>,
        mtu: Option<u32>,
    ) -> Result<(), InventoryError> {
        let facts = self.facts_mut(port)?;
        facts.name = name.or(facts.name.take());
        facts.mtu = mtu.or(facts.mtu);
        Ok(())
    }

    fn facts(&self, port: (NodeId, PortId)) -> Option<&PortFacts> {
        self.ports.get(&port.0)?.get(&port.1)
    }

    fn facts_mut(&mut self, port: (NodeId, PortId)) -> Result<&mut PortFacts, InventoryError> {
        let node = port.0;
        let ports = self
            .ports
            .get_mut(&node)
            .ok_or(InventoryError::UnknownNode(node))?;
        if let Some(outside) = self.devices.get(&node).filter(|device| device.role.is_outside()) {
            return Err(InventoryError::Outside(outside.name.clone()));
        }
        if ports.len() >= MAX_PORTS && !ports.contains_key(&port.1) {
            return Err(InventoryError::TooMany("ports of one device", MAX_PORTS));
        }
        Ok(ports.entry(port.1).or_default())
    }

    /// Sets this origin's claim about the other end of a port; `None` withdraws the claim.
    ///
    /// # Errors
    /// [`InventoryError`] if a device is unknown or outside the domain, or if both ends are the same device.
    pub fn set_peer(
        &mut self,
        port: (NodeId, PortId),
        peer: Option<Peer>,
        origin: Origin,
    ) -> Result<(), InventoryError> {
        if let Some(Peer::Port(other, _)) = peer {
            let other = self
                .devices
                .get(&other)
                .ok_or(InventoryError::UnknownNode(other))?;
            if other.role.is_outside() {
                return Err(InventoryError::Outside(other.name.clone()));
            }
            if other.node == port.0 {
                return Err(InventoryError::Loop(other.name.clone()));
            }
        }
        let facts = self.facts_mut(port)?;
        match peer {
            Some(peer) => facts.peers.insert(origin, peer),
            None => facts.peers.remove(&origin),
        };
        Ok(())
    }

    /// Sets this origin's claim about a link at both of its ends.
    ///
    /// # Errors
    /// [`InventoryError`] from [`Inventory::set_peer`] for either end.
    pub fn add_link(
        &mut self,
        a: (NodeId, PortId),
        b: (NodeId, PortId),
        origin: Origin,
    ) -> Result<(), InventoryError> {
        self.set_peer(a, Some(Peer::Port(b.0, b.1)), origin)?;
        self.set_peer(b, Some(Peer::Port(a.0, a.1)), origin)
    }

    /// Adds a host. This origin then claims its port to be an edge port.
    ///
    /// # Errors
    /// [`InventoryError`] if the name is invalid, the name or an address is in use, or the device is unknown.
    pub fn add_host(&mut self, host: Host, origin: Origin) -> Result<(), InventoryError> {
        if !is_name(&host.name) {
            return Err(InventoryError::BadName(host.name));
        }
        if self.hosts.contains_key(&host.name) {
            return Err(InventoryError::DuplicateHost(host.name));
        }
        if let Some(used) = host
            .addresses
            .iter()
            .find(|ip| self.addresses.contains_key(&ip.to_canonical()))
        {
            return Err(InventoryError::DuplicateHost(used.to_string()));
        }
        if self.hosts.len() == MAX_HOSTS {
            return Err(InventoryError::TooMany("hosts", MAX_HOSTS));
        }
        if let Some(port) = host.at {
            self.set_peer(port, Some(Peer::Hosts), origin)?;
        }
        for ip in &host.addresses {
            self.addresses.insert(ip.to_canonical(), host.name.clone());
        }
        self.hosts.insert(host.name.clone(), host);
        Ok(())
    }

    /// Returns the devices, by node id.
    pub fn devices(&self) -> impl Iterator<Item = &Device> {
        self.devices.values()
    }

    /// Returns the devices outside the domain, by node id.
    pub fn outside(&self) -> impl Iterator<Item = &Device> {
        self.devices().filter(|device| device.role.is_outside())
    }

    /// Returns the device with this node id.
    pub fn device(&self, node: NodeId) -> Option<&Device> {
        self.devices.get(&node)
    }

    /// Returns the node id of the device with this name.
    ///
    /// # Errors
    /// [`InventoryError::UnknownDevice`] if there is none with this name.
    pub fn node(&self, name: &str) -> Result<NodeId, InventoryError> {
        self.names
            .get(name)
            .copied()
            .ok_or_else(|| InventoryError::UnknownDevice(name.to_owned()))
    }

    /// Returns a device's name, or `node N` for an unknown device.
    pub fn name(&self, node: NodeId) -> String {
        self.devices
            .get(&node)
            .map_or_else(|| format!("node {node}"), |device| device.name.clone())
    }

    /// Returns the hosts, by name.
    pub fn hosts(&self) -> impl Iterator<Item = &Host> {
        self.hosts.values()
    }

    /// Returns the host with this name.
    pub fn host(&self, name: &str) -> Option<&Host> {
        self.hosts.get(name)
    }

    /// Returns the host with this address.
    pub fn host_by_address(&self, ip: IpAddr) -> Option<&Host> {
        self.hosts.get(self.addresses.get(&ip.to_canonical())?)
    }

    /// Returns the ports of a device, in ascending order.
    pub fn ports(&self, node: NodeId) -> impl Iterator<Item = PortId> {
        self.ports
            .get(&node)
            .into_iter()
            .flat_map(|ports| ports.keys().copied())
    }

    /// Returns the interface name of a port.
    pub fn port_name(&self, port: (NodeId, PortId)) -> Option<&str> {
        self.facts(port)?.name.as_deref()
    }

    /// Returns the MTU of a port, bytes.
    pub fn mtu(&self, port: (NodeId, PortId)) -> Option<u32> {
        self.facts(port)?.mtu
    }

    /// Returns the claim of each origin about a port.
    pub fn claims(&self, port: (NodeId, PortId)) -> Vec<(Origin, Peer)> {
        let peers = self.facts(port).into_iter().flat_map(|facts| &facts.peers);
        peers.map(|(origin, peer)| (*origin, peer.clone())).collect()
    }

    /// Returns the claim about a port that file and device share; `Ok(None)` if there is none, `Err` if they disagree.
    fn agreed(&self, port: (NodeId, PortId)) -> Result<Option<&Peer>, ()> {
        let Some(facts) = self.facts(port) else {
            return Ok(None);
        };
        let mut peers = facts
            .peers
            .iter()
            .filter(|(origin, _)| **origin != Origin::Learned)
            .map(|(_, peer)| peer);
        let first = peers.next();
        if peers.all(|peer| Some(peer) == first) {
            Ok(first)
        } else {
            Err(())
        }
    }

    /// Returns the role of a port.
    pub fn role(&self, port: (NodeId, PortId)) -> PortRole {
        match self.agreed(port) {
            Err(()) => PortRole::Disputed,
            Ok(None) => PortRole::Unused,
            Ok(Some(Peer::Hosts)) => PortRole::Edge,
            Ok(Some(&Peer::Port(node, other))) => match self.agreed((node, other)) {
                Ok(Some(&Peer::Port(back, end))) if (back, end) != port => PortRole::Disputed,
                Ok(None | Some(Peer::Port(..))) if self.is_certain(port, (node, other)) => {
                    PortRole::Fabric(node, other)
                }
                Ok(None | Some(Peer::Port(..))) => PortRole::Unused,
                _ => PortRole::Disputed,
            },
        }
    }

    /// Returns whether a link without contradicting claims is certain enough to let INT pass.
    fn is_certain(&self, a: (NodeId, PortId), b: (NodeId, PortId)) -> bool {
        self.has_claim(a, Origin::File)
            || self.has_claim(b, Origin::File)
            || (self.has_claim(a, Origin::Device) && self.has_claim(b, Origin::Device))
    }

    /// Returns whether this origin makes a claim about the port.
    fn has_claim(&self, port: (NodeId, PortId), origin: Origin) -> bool {
        self.facts(port)
            .is_some_and(|facts| facts.peers.contains_key(&origin))
    }

    /// Returns the links with too few claims to let INT pass.
    pub fn suggestions(&self) -> Vec<Suggestion> {
        let mut found: BTreeMap<[(NodeId, PortId); 2], Suggestion> = BTreeMap::new();
        for port in self
            .all_ports()
            .filter(|port| self.role(*port) == PortRole::Unused)
        {
            let claim = self.agreed(port).ok().flatten().or_else(|| self.learned(port));
            let Some(&Peer::Port(node, other)) = claim else {
                continue;
            };
            if self.role((node, other)) != PortRole::Unused {
                continue;
            }
            let between = if port < (node, other) {
                [port, (node, other)]
            } else {
                [(node, other), port]
            };
            let suggestion = found.entry(between).or_insert_with(|| Suggestion {
                between,
                claims: Vec::new(),
            });
            let claims = self.claims(port).into_iter().map(|(origin, _)| (origin, port));
            suggestion.claims.extend(claims);
        }
        found.into_values().collect()
    }

    fn learned(&self, port: (NodeId, PortId)) -> Option<&Peer> {
        self.facts(port)?.peers.get(&Origin::Learned)
    }

    /// Returns all contradictions, by port.
    pub fn contradictions(&self) -> Vec<Contradiction> {
        self.all_ports()
            .filter(|port| self.is_contradicted(*port))
            .map(|port| {
                let mut claims = self.claims(port);
                if let Ok(Some(&Peer::Port(node, other))) = self.agreed(port) {
                    claims.extend(self.claims((node, other)));
                }
                Contradiction { port, claims }
            })
            .collect()
    }

    fn is_contradicted(&self, port: (NodeId, PortId)) -> bool {
        let learned_differs = match (self.learned(port), self.agreed(port)) {
            (Some(learned), Ok(Some(agreed))) => learned != agreed,
            _ => false,
        };
        learned_differs || self.role(port) == PortRole::Disputed
    }

    fn all_ports(&self) -> impl Iterator<Item = (NodeId, PortId)> {
        self.ports
            .iter()
            .flat_map(|(node, ports)| ports.keys().map(move |port| (*node, *port)))
    }

    /// Derives the topology from all facts.
    pub fn topology(&self) -> Topology {
        let mut topology = Topology::default();
        for device in self.devices().filter(|device| !device.role.is_outside()) {
            topology.devices.insert(device.node, DevicePorts::default());
        }
        for port in self.all_ports() {
            match self.role(port) {
                // If only the other end claims the link, it is still set at both ends.
                PortRole::Fabric(node, other) => {
                    topology.link(port, (node, other));
                    topology.link((node, other), port);
                }
                PortRole::Edge => topology.add(port, |ports| &mut ports.edge),
                PortRole::Unused | PortRole::Disputed => topology.add(port, |ports| &mut ports.closed),
            }
        }
        for ports in topology.devices.values_mut() {
            ports.closed.retain(|port| !ports.links.contains_key(port));
        }
        topology
    }
}

/// The ports of a device by role.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DevicePorts {
    /// Ports to hosts: source and sink.
    pub edge: BTreeSet<PortId>,
    /// Unused and disputed ports: sink only.
    pub closed: BTreeSet<PortId>,
    /// Ports to other devices, each with the port at the other end.
    pub links: BTreeMap<PortId, (NodeId, PortId)>,
}

impl DevicePorts {
    /// Returns the ports that INT must never leave by, whatever the state of other devices.
    pub fn border(&self) -> impl Iterator<Item = PortId> {
        self.edge.iter().chain(&self.closed).copied()
    }
}

/// Devices and links of the domain.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Topology {
    /// Ports of each device, by node id.
    pub devices: BTreeMap<NodeId, DevicePorts>,
}

impl Topology {
    fn link(&mut self, port: (NodeId, PortId), peer: (NodeId, PortId)) {
        if let Some(ports) = self.devices.get_mut(&port.0) {
            ports.links.insert(port.1, peer);
        }
    }

    fn add(&mut self, port: (NodeId, PortId), set: impl Fn(&mut DevicePorts) -> &mut BTreeSet<PortId>) {
        if let Some(ports) = self.devices.get_mut(&port.0) {
            set(ports).insert(port.1);
        }
    }

    /// Returns the number of links on the longest of the shortest paths between two devices with edge ports. Returns 0 if
    /// there is at most one such device or no path between any two.
    pub fn longest_path(&self) -> u32 {
        let index: BTreeMap<NodeId, usize> = self.devices.keys().enumerate().map(|(i, n)| (*n, i)).collect();
        // Adjacency matrix as bit sets, one row of `words` 64-bit words per device.
        let words = index.len().div_ceil(64);
        let mut adjacent = vec![vec![0_u64; words]; index.len()];
        let mut edges = vec![0_u64; words];
        for (at, ports) in self.devices.values().enumerate() {
            for (peer, _) in ports.links.values() {
                if let Some(peer) = index.get(peer) {
                    adjacent[at][peer / 64] |= 1 << (peer % 64);
                }
            }
            edges[at / 64] |= u64::from(!ports.edge.is_empty()) << (at % 64);
        }
        let starts = set_bits(&edges).collect::<Vec<_>>();
        starts
            .iter()
            .map(|start| eccentricity(*start, &adjacent, &edges))
            .max()
            .unwrap_or(0)
    }
}

/// Returns the largest distance from `start` to a member of `targets`, by breadth-first search over bit sets. One step of the
/// search ORs the rows of the frontier, so that a thousand devices take milliseconds.
fn eccentricity(start: usize, adjacent: &[Vec<u64>], targets: &[u64]) -> u32 {
    let mut seen = vec![0_u64; targets.len()];
    seen[start / 64] |= 1 << (start % 64);
    let mut frontier = seen.clone();
    let mut distance = 0;
    let mut farthest = 0;
    while frontier.iter().any(|word| *word != 0) {
        if distance > 0 && frontier.iter().zip(targets).any(|(a, b)| a & b != 0) {
            farthest = distance;
        }
        let mut next = vec![0_u64; targets.len()];
        for node in set_bits(&frontier) {
            next.iter_mut().zip(&adjacent[node]).for_each(|(a, b)| *a |= b);
        }
        next.iter_mut().zip(&seen).for_each(|(a, b)| *a &= !b);
        seen.iter_mut().zip(&next).for_each(|(a, b)| *a |= b);
        frontier = next;
        distance += 1;
    }
    farthest
}

/// Returns the indices of the set bits in ascending order.
fn set_bits(words: &[u64]) -> impl Iterator<Item = usize> {
    words.iter().enumerate().flat_map(|(at, word)| {
        let mut word = *word;
        std::iter::from_fn(move || {
            let bit = word.trailing_zeros() as usize;
            (word != 0).then(|| {
                word &= word - 1;
                at * 64 + bit
            })
        })
    })
}
