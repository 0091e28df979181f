//! The network of a lab: hosts, switches with their ports, and links. Nodes and links refer to each other by index. `load`
//! builds it from the topology file.

use std::net::IpAddr;

use terminal::CliError;

use crate::file::{Address, LabFile, LinkSettings, P4Program, SwitchKind};

/// Host or switch of the topology, by its index.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Node {
    /// Index of a host.
    Host(usize),
    /// Index of a switch.
    Switch(usize),
}

/// Valid network: names and addresses are unique, and every host has one link.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Topology {
    pub(crate) name: String,
    /// The hosts, in the order of the file.
    pub(crate) hosts: Vec<Host>,
    /// The switches, in the order of the file.
    pub(crate) switches: Vec<Switch>,
    /// The links, in the order of the file.
    pub(crate) links: Vec<Link>,
    /// Parsed topology file, for settings that are passed on unchanged.
    pub(crate) file: LabFile,
}

/// Host with one link to a switch.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Host {
    pub(crate) name: String,
    /// The addresses of the host, IPv4 first.
    pub(crate) addresses: Vec<Address>,
    /// Index of the host's link.
    pub(crate) link: usize,
}

/// Switch with its node id in telemetry.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Switch {
    pub(crate) name: String,
    pub(crate) node: u32,
    /// Ports in the order of the links; the first has the number 1.
    pub(crate) ports: Vec<Port>,
}

/// Switch port, with the link and the node behind it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Port {
    /// Number of the port on its switch.
    pub(crate) number: u16,
    /// Index of the port's link.
    pub(crate) link: usize,
    /// End of the link at this port: 0 or 1.
    pub(crate) end: usize,
    /// Node at the other end.
    pub(crate) peer: Node,
}

/// Link (veth pair) between two nodes.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Link {
    /// Nodes at the two ends.
    pub(crate) ends: [Node; 2],
    /// Interface names of the two ends, each in the namespace of its node. The first is the name of the link.
    pub(crate) interfaces: [String; 2],
    /// Maximum packet size on the link, bytes.
    pub(crate) mtu: u32,
    /// Settings of the link in the file.
    pub(crate) settings: LinkSettings,
}

impl Host {
    /// Returns the host's IPv4 or IPv6 address, if it has one.
    pub(crate) fn address(&self, ipv6: bool) -> Option<IpAddr> {
        self.addresses
            .iter()
            .map(|address| address.ip)
            .find(|ip| ip.is_ipv6() == ipv6)
    }
}

impl Topology {
    /// Returns whether a switch is of kind `bmv2`.
    pub(crate) fn is_bmv2(&self, switch: usize) -> bool {
        self.file
            .switches
            .get(switch)
            .is_some_and(|switch| switch.kind == SwitchKind::Bmv2)
    }

    /// Returns whether a node is a switch of kind `bmv2`.
    pub(crate) fn is_bmv2_node(&self, node: Node) -> bool {
        matches!(node, Node::Switch(index) if self.is_bmv2(index))
    }

    /// Returns whether the lab has a switch of kind `bmv2`.
    pub(crate) fn has_bmv2(&self) -> bool {
        (0..self.switches.len()).any(|switch| self.is_bmv2(switch))
    }

    /// Returns the P4 program of the `bmv2` switches.
    pub(crate) fn p4_program(&self) -> P4Program {
        program_of(&self.file)
    }

    /// Returns the name of a node.
    pub(crate) fn node_name(&self, node: Node) -> &str {
        match node {
            Node::Host(index) => &self.hosts[index].name,
            Node::Switch(index) => &self.switches[index].name,
        }
    }

    /// Finds the node with this name.
    pub(crate) fn find_node(&self, name: &str) -> Option<Node> {
        let host = self
            .hosts
            .iter()
            .position(|host| host.name == name)
            .map(Node::Host);
        host.or_else(|| {
            self.switches
                .iter()
                .position(|switch| switch.name == name)
                .map(Node::Switch)
        })
    }

    /// Returns all nodes, hosts first.
    pub(crate) fn nodes(&self) -> impl Iterator<Item = Node> {
        (0..self.hosts.len())
            .map(Node::Host)
            .chain((0..self.switches.len()).map(Node::Switch))
    }

    /// Finds the index of the link with this name, which may be the name of either interface.
    ///
    /// # Errors
    /// There is no such link; the message lists all links.
    pub(crate) fn find_link(&self, name: &str) -> Result<usize, CliError> {
        let index = self
            .links
            .iter()
            .position(|link| link.interfaces.iter().any(|interface| interface == name));
        index.ok_or_else(|| {
            let names: Vec<&str> = self
                .links
                .iter()
                .map(|link| link.interfaces[0].as_str())
                .collect();
            CliError::new(format!(
                "there is no link `{name}` in the lab {}; there are {}",
                self.name,
                names.join(", ")
            ))
        })
    }
}

/// Returns the P4 program of the `bmv2` switches, which is the same for all of them.
pub(crate) fn program_of(file: &LabFile) -> P4Program {
    file.switches
        .iter()
        .find_map(|switch| switch.program)
        .unwrap_or(P4Program::Int)
}

/// Returns the index of the switch that a host is linked to.
pub(crate) fn attached_switch(topology: &Topology, host: &Host) -> usize {
    let ends = topology.links[host.link].ends;
    ends.iter()
        .find_map(|end| {
            if let Node::Switch(index) = end {
                Some(*index)
            } else {
                None
            }
        })
        .unwrap_or(0)
}
