//! What there is: devices, their ports, links and hosts, each fact with its origin.
//!
//! # Contradictions
//! Facts of different origins are kept side by side. If they disagree about a port, or the two ends of a link do, the port is
//! [`PortRole::Disputed`]: it is shown with all claims, and treated as an edge port, because a sink too many costs a report and a
//! sink too few a host its packet. No origin overrules another in silence.
//!
//! # Which facts open a border
//! A wrong link is a leak: INT would leave by a port that leads to a host. So a port is [`PortRole::Fabric`] only by the file, or if
//! the devices at both ends claim the link: one device alone may have heard the forged LLDPDU of a host. Such a claim is a
//! [`Suggestion`] for a person.
//!
//! What the collector learns changes no role at all. Reports may be forged, old, or lack a node, so that they neither open a
//! border nor close a link; what they say is shown as suggestion or contradiction.

mod file;
mod neighbour;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::IpAddr;

pub use self::file::{InventorySettings, checked, of, read};
pub use self::neighbour::Unresolved;

use crate::device::{NodeId, PortId};

/// Devices at most.
pub const MAX_DEVICES: usize = 4096;
/// Ports of a device at most.
pub const MAX_PORTS: usize = 1024;
/// Hosts at most.
pub const MAX_HOSTS: usize = 1 << 17;

/// Where a fact comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Origin {
    /// The inventory file, or a person.
    File,
    /// The device: LLDP or a port description.
    Device,
    /// Learned by the collector from paths and interfaces.
    Learned,
}

impl Origin {
    /// The word in the API.
    pub fn word(self) -> &'static str {
        match self {
            Self::File => "file",
            Self::Device => "device",
            Self::Learned => "learned",
        }
    }
}

/// What a device is to the domain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DeviceRole {
    /// A node of the domain.
    #[default]
    Switch,
    /// Outside the domain: it aggregates postcards before a collector.
    Aggregator,
    /// Outside the domain: it translates DTA reports into writes to collectors' memory.
    Translator,
}

impl DeviceRole {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Switch, Self::Aggregator, Self::Translator];

    /// The word in files and the API.
    pub fn word(self) -> &'static str {
        match self {
            Self::Switch => "switch",
            Self::Aggregator => "aggregator",
            Self::Translator => "translator",
        }
    }

    /// The role of that word.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|role| role.word() == word)
    }

    /// Whether INT ends before it: it has no ports of the domain, and no intent concerns it.
    pub fn is_outside(self) -> bool {
        self != Self::Switch
    }
}

/// A device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Device {
    /// Its name, unique.
    pub name: String,
    /// Its node id, unique, not 0.
    pub node: NodeId,
    /// The kind of its driver: `hopwise`, `p4runtime`, `gnmi`, `files`.
    pub driver: String,
    /// Where the driver finds it.
    pub address: String,
    /// What only some drivers need.
    pub options: DriverOptions,
    /// Labels, for people and for `at.edges`.
    pub labels: Vec<String>,
    /// What it is to the domain.
    pub role: DeviceRole,
}

/// Keys of a device that only some drivers need, as they are written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DriverOptions {
    /// `files`: when the device has what was written.
    pub confirm: Option<String>,
}

/// What is at the other end of a port.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Peer {
    /// A port of a device of this inventory.
    Port(NodeId, PortId),
    /// Hosts; also a network that is not managed.
    Hosts,
}

/// A host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host {
    /// Its name, unique.
    pub name: String,
    /// Its addresses.
    pub addresses: Vec<IpAddr>,
    /// Its port.
    pub at: Option<(NodeId, PortId)>,
}

/// The role of a port in the domain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PortRole {
    /// It leads to a port of another device: INT may pass.
    Fabric(NodeId, PortId),
    /// It leads to hosts: INT begins and ends here.
    Edge,
    /// Neither a link nor a host is known: it is nobody's. A sink, since a host may be connected at any time; not a source.
    Unused,
    /// File and devices contradict each other. A sink until they agree.
    Disputed,
}

impl PortRole {
    /// The word in the API.
    pub fn word(self) -> &'static str {
        match self {
            Self::Fabric(..) => "fabric",
            Self::Edge => "edge",
            Self::Unused => "unused",
            Self::Disputed => "disputed",
        }
    }
}

/// Facts that contradict each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Contradiction {
    /// The port.
    pub port: (NodeId, PortId),
    /// What each origin claims about it; for a link whose ends disagree, the claim of each end.
    pub claims: Vec<(Origin, Peer)>,
}

/// A link that is claimed, but not by enough to let INT pass: a person may write it into the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Suggestion {
    /// Its ends, the lower one first.
    pub between: [(NodeId, PortId); 2],
    /// Who claims it, and at which end.
    pub claims: Vec<(Origin, (NodeId, PortId))>,
}

/// Why a fact was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InventoryError {
    /// Two devices with one name.
    DuplicateName(String),
    /// Two devices with one node id.
    DuplicateNode(NodeId, String),
    /// Node id 0 means "unknown" in INT.
    NodeZero(String),
    /// Not 1 to 63 letters, digits, `.`, `_`, `-`.
    BadName(String),
    /// No device with this name.
    UnknownDevice(String),
    /// No device with this node id.
    UnknownNode(NodeId),
    /// A link from a device to itself.
    Loop(String),
    /// Two hosts with one name or one address.
    DuplicateHost(String),
    /// A port of a device outside the domain.
    Outside(String),
    /// Too many of something.
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

/// Facts about a port.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct PortFacts {
    name: Option<String>,
    mtu: Option<u32>,
    peers: BTreeMap<Origin, Peer>,
}

/// All that is known about the network.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Inventory {
    devices: BTreeMap<NodeId, Device>,
    names: BTreeMap<String, NodeId>,
    ports: BTreeMap<NodeId, BTreeMap<PortId, PortFacts>>,
    hosts: BTreeMap<String, Host>,
    addresses: BTreeMap<IpAddr, String>,
}

/// Whether `name` is valid for devices, hosts and intents.
pub fn is_name(name: &str) -> bool {
    let valid = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    (1..=63).contains(&name.len()) && name.chars().all(valid)
}

impl Inventory {
    /// Adds a device without ports.
    ///
    /// # Errors
    /// Its name or node id is invalid or used.
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

    /// The lowest node id that is not in use.
    pub fn free_node(&self) -> NodeId {
        (1..=NodeId::MAX)
            .find(|node| !self.devices.contains_key(node))
            .unwrap_or(NodeId::MAX)
    }

    /// Removes a device with its ports. What others claim about links to it is removed as well: those ports are nobody's then.
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

    /// Declares a port, with its interface's name and MTU if known.
    ///
    /// # Errors
    /// The device is unknown, or has too many ports.
    pub fn add_port(
        &mut self,
        (node, port): (NodeId, PortId),
        name: Option<String>,
        mtu: Option<u32>,
    ) -> Result<(), InventoryError> {
        let facts = self.facts_mut((node, port))?;
        facts.name = name.or(facts.name.take());
        facts.mtu = mtu.or(facts.mtu);
        Ok(())
    }

    fn facts_mut(&mut self, (node, port): (NodeId, PortId)) -> Result<&mut PortFacts, InventoryError> {
        let ports = self
            .ports
            .get_mut(&node)
            .ok_or(InventoryError::UnknownNode(node))?;
        if let Some(outside) = self.devices.get(&node).filter(|device| device.role.is_outside()) {
            return Err(InventoryError::Outside(outside.name.clone()));
        }
        if ports.len() >= MAX_PORTS && !ports.contains_key(&port) {
            return Err(InventoryError::TooMany("ports of one device", MAX_PORTS));
        }
        Ok(ports.entry(port).or_default())
    }

    /// States what is at the other end of a port; `None` withdraws the statement of that origin.
    ///
    /// # Errors
    /// A device is unknown, or both ends are the same device.
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

    /// States a link, at both ends.
    ///
    /// # Errors
    /// As [`Inventory::set_peer`].
    pub fn add_link(
        &mut self,
        a: (NodeId, PortId),
        b: (NodeId, PortId),
        origin: Origin,
    ) -> Result<(), InventoryError> {
        self.set_peer(a, Some(Peer::Port(b.0, b.1)), origin)?;
        self.set_peer(b, Some(Peer::Port(a.0, a.1)), origin)
    }

    /// Adds a host; its port is then an edge port by this origin.
    ///
    /// # Errors
    /// Its name or an address is invalid or used, or its device is unknown.
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

    /// The devices, by node id.
    pub fn devices(&self) -> impl Iterator<Item = &Device> {
        self.devices.values()
    }

    /// The devices outside the domain, by node id.
    pub fn outside(&self) -> impl Iterator<Item = &Device> {
        self.devices().filter(|device| device.role.is_outside())
    }

    /// The device with this node id.
    pub fn device(&self, node: NodeId) -> Option<&Device> {
        self.devices.get(&node)
    }

    /// The node id of the device with this name.
    ///
    /// # Errors
    /// There is none.
    pub fn node(&self, name: &str) -> Result<NodeId, InventoryError> {
        self.names
            .get(name)
            .copied()
            .ok_or_else(|| InventoryError::UnknownDevice(name.to_owned()))
    }

    /// A device's name, or its node id as text.
    pub fn name(&self, node: NodeId) -> String {
        self.devices
            .get(&node)
            .map_or_else(|| format!("node {node}"), |device| device.name.clone())
    }

    /// The hosts, by name.
    pub fn hosts(&self) -> impl Iterator<Item = &Host> {
        self.hosts.values()
    }

    /// The host with this name.
    pub fn host(&self, name: &str) -> Option<&Host> {
        self.hosts.get(name)
    }

    /// The host with this address.
    pub fn host_by_address(&self, ip: IpAddr) -> Option<&Host> {
        self.hosts.get(self.addresses.get(&ip.to_canonical())?)
    }

    /// The ports of a device, in ascending order.
    pub fn ports(&self, node: NodeId) -> impl Iterator<Item = PortId> {
        self.ports
            .get(&node)
            .into_iter()
            .flat_map(|ports| ports.keys().copied())
    }

    /// A port's interface name.
    pub fn port_name(&self, (node, port): (NodeId, PortId)) -> Option<&str> {
        self.ports.get(&node)?.get(&port)?.name.as_deref()
    }

    /// A port's MTU, bytes.
    pub fn mtu(&self, (node, port): (NodeId, PortId)) -> Option<u32> {
        self.ports.get(&node)?.get(&port)?.mtu
    }

    /// What each origin claims about a port.
    pub fn claims(&self, (node, port): (NodeId, PortId)) -> Vec<(Origin, Peer)> {
        let facts = self.ports.get(&node).and_then(|ports| ports.get(&port));
        facts.map_or_else(Vec::new, |facts| {
            facts.peers.iter().map(|(o, p)| (*o, p.clone())).collect()
        })
    }

    /// The claim about a port on which file and device agree: `Ok(None)` if there is none.
    fn agreed(&self, (node, port): (NodeId, PortId)) -> Result<Option<&Peer>, ()> {
        let Some(facts) = self.ports.get(&node).and_then(|ports| ports.get(&port)) else {
            return Ok(None);
        };
        let certain = |(origin, _): &(&Origin, &Peer)| **origin != Origin::Learned;
        let mut peers = facts.peers.iter().filter(certain).map(|(_, peer)| peer);
        let first = peers.next();
        if peers.all(|peer| Some(peer) == first) {
            Ok(first)
        } else {
            Err(())
        }
    }

    /// The role of a port.
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

    /// Whether a link on which all claims agree is one by which INT may leave.
    fn is_certain(&self, a: (NodeId, PortId), b: (NodeId, PortId)) -> bool {
        let claims = |(node, port): (NodeId, PortId), origin| {
            let facts = self.ports.get(&node).and_then(|ports| ports.get(&port));
            facts.is_some_and(|facts| facts.peers.contains_key(&origin))
        };
        claims(a, Origin::File)
            || claims(b, Origin::File)
            || (claims(a, Origin::Device) && claims(b, Origin::Device))
    }

    /// Links that are claimed, but not by enough to let INT pass.
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
            let new = || Suggestion {
                between,
                claims: Vec::new(),
            };
            let claims = self.claims(port).into_iter().map(|(origin, _)| (origin, port));
            found.entry(between).or_insert_with(new).claims.extend(claims);
        }
        found.into_values().collect()
    }

    fn learned(&self, (node, port): (NodeId, PortId)) -> Option<&Peer> {
        self.ports.get(&node)?.get(&port)?.peers.get(&Origin::Learned)
    }

    /// All contradictions, by port.
    pub fn contradictions(&self) -> Vec<Contradiction> {
        let other = |port: (NodeId, PortId)| match (self.learned(port), self.agreed(port)) {
            (Some(learned), Ok(Some(agreed))) => learned != agreed,
            _ => false,
        };
        let disputed = |port: &(NodeId, PortId)| self.role(*port) == PortRole::Disputed || other(*port);
        let contradiction = |port: (NodeId, PortId)| {
            let mut claims = self.claims(port);
            if let Ok(Some(&Peer::Port(node, other))) = self.agreed(port) {
                claims.extend(self.claims((node, other)));
            }
            Contradiction { port, claims }
        };
        self.all_ports().filter(disputed).map(contradiction).collect()
    }

    fn all_ports(&self) -> impl Iterator<Item = (NodeId, PortId)> {
        self.ports
            .iter()
            .flat_map(|(node, ports)| ports.keys().map(move |port| (*node, *port)))
    }

    /// The topology that follows from the facts.
    pub fn topology(&self) -> Topology {
        let mut topology = Topology::default();
        for device in self.devices().filter(|device| !device.role.is_outside()) {
            topology.devices.insert(device.node, DevicePorts::default());
        }
        for port in self.all_ports() {
            match self.role(port) {
                // A port of which only the other end knows is in the link, too.
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
    /// Ports to other devices, and the other end.
    pub links: BTreeMap<PortId, (NodeId, PortId)>,
}

impl DevicePorts {
    /// The ports by which INT must never leave, whatever the state of other devices.
    pub fn border(&self) -> impl Iterator<Item = PortId> {
        self.edge.iter().chain(&self.closed).copied()
    }
}

/// Devices and links of the domain.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Topology {
    /// The devices.
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

    /// Links between neighbours along the longest of the shortest paths between two devices with edge ports; 0 if there is at
    /// most one such device, or no path between any.
    pub fn longest_path(&self) -> u32 {
        let index: BTreeMap<NodeId, usize> = self.devices.keys().enumerate().map(|(i, n)| (*n, i)).collect();
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

/// The largest distance from `start` to a member of `targets`, by breadth-first search over sets of bits: one step of the search
/// is a disjunction of rows, so that a thousand devices take milliseconds.
fn eccentricity(start: usize, adjacent: &[Vec<u64>], targets: &[u64]) -> u32 {
    let mut seen = vec![0_u64; targets.len()];
    seen[start / 64] |= 1 << (start % 64);
    let (mut frontier, mut distance, mut farthest) = (seen.clone(), 0, 0);
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

fn set_bits(words: &[u64]) -> impl Iterator<Item = usize> {
    let bits = |(at, word): (usize, &u64)| {
        let mut word = *word;
        std::iter::from_fn(move || {
            let bit = word.trailing_zeros() as usize;
            (word != 0).then(|| {
                word &= word - 1;
                at * 64 + bit
            })
        })
    };
    words.iter().enumerate().flat_map(bits)
}
