//! The topology of a fabric: standard shapes (line, leaf–spine, fat tree), and a builder for others.

use crate::flow::Address;

/// Nodes and links. Ports of a node are numbered from 1 in the order of its links; a port's number is also the ID of its queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Topology {
    pub(crate) nodes: Vec<Node>,
    pub(crate) links: Vec<Link>,
}

/// A switch or a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// Node id in reports. Hosts have ids too (10001 and up in the standard shapes), but only the ground truth uses them.
    pub id: u32,
    /// Name of the node for users.
    pub name: String,
    /// Kind of the node: switch or host.
    pub kind: Kind,
    /// Offset of this node's clock from true time, ns.
    pub clock_offset: i64,
}

/// Kind of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Forwards packets, and processes INT.
    Switch,
    /// Sends and receives packets; never forwards.
    Host(Address),
}

/// A full-duplex link between two nodes, given as indices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Link {
    pub(crate) a: usize,
    pub(crate) b: usize,
    pub(crate) wire: Wire,
}

/// Properties of a link and the egress queues at its two ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wire {
    /// Rate in bit/s. A frame takes `ceil(bytes * 8e9 / rate)` ns; preamble and inter-packet gap are not counted.
    pub rate: u64,
    /// Propagation delay of the link, ns.
    pub delay: u64,
    /// Depth of the egress queue at each switch end, in the fabric's queue unit, not counting the frame being transmitted.
    pub depth: u32,
}

impl Default for Wire {
    /// Returns a link with 10 Gb/s, 1 µs and 256 KiB.
    fn default() -> Self {
        Self {
            rate: 10_000_000_000,
            delay: 1_000,
            depth: 262_144,
        }
    }
}

impl Topology {
    /// Returns a line of `n` switches 101, 102, …, with a host at each end (10001 left, 10002 right).
    pub fn line(n: u32, wire: Wire) -> Result<Self, String> {
        within("line: the number of switches", n, 1, 99)?;
        let mut plan = Plan::default();
        let switches = plan.layer(100, n, "s");
        plan.host(switches[0], 1, wire);
        plan.host(switches[switches.len() - 1], 2, wire);
        for pair in switches.windows(2) {
            plan.join(pair[0], pair[1], wire);
        }
        plan.finish()
    }

    /// Returns a leaf–spine fabric: leaves 101, 102, …; spines 201, 202, …; `hosts` hosts per leaf, from 10001, leaf by leaf.
    /// Ports of a leaf lead to its hosts first, then to the spines.
    pub fn leaf_spine(leaves: u32, spines: u32, hosts: u32, wire: Wire) -> Result<Self, String> {
        within("leaf-spine: the number of leaves", leaves, 1, 99)?;
        within("leaf-spine: the number of spines", spines, 1, 99)?;
        within("leaf-spine: the number of hosts per leaf", hosts, 1, 150)?;
        let mut plan = Plan::default();
        let leaf = plan.layer(100, leaves, "leaf");
        let spine = plan.layer(200, spines, "spine");
        for (at, &node) in leaf.iter().enumerate() {
            (0..hosts).for_each(|_| plan.host(node, at + 1, wire));
        }
        for &below in &leaf {
            spine.iter().for_each(|&above| plan.join(below, above, wire));
        }
        plan.finish()
    }

    /// Returns a k-ary fat tree: k pods of k/2 edge switches (1001 up) and k/2 aggregation switches (2001 up), (k/2)² cores
    /// (3001 up), and k/2 hosts per edge switch (10001 up).
    pub fn fat_tree(k: u32, wire: Wire) -> Result<Self, String> {
        within("fat-tree: k", k, 2, 16)?; // 1,024 hosts at k = 16; the size of the routes grows with switches times hosts
        if !k.is_multiple_of(2) {
            return Err(format!("fat-tree: k must be even, not {k}"));
        }
        let half = k / 2;
        let mut plan = Plan::default();
        let edges = plan.layer(1000, k * half, "edge");
        let aggregations = plan.layer(2000, k * half, "agg");
        let cores = plan.layer(3000, half * half, "core");
        for (at, &edge) in edges.iter().enumerate() {
            (0..half).for_each(|_| plan.host(edge, at + 1, wire));
        }
        let half = half as usize;
        for (at, &edge) in edges.iter().enumerate() {
            let pod = at / half * half;
            aggregations[pod..pod + half]
                .iter()
                .for_each(|&above| plan.join(edge, above, wire));
        }
        for (at, &aggregation) in aggregations.iter().enumerate() {
            let group = at % half * half;
            cores[group..group + half]
                .iter()
                .for_each(|&above| plan.join(aggregation, above, wire));
        }
        plan.finish()
    }

    /// Returns a builder for a topology of any shape.
    pub fn builder() -> TopologyBuilder {
        TopologyBuilder::default()
    }

    /// Returns the nodes, in the order in which they were added.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// Returns the links as pairs of node ids.
    pub fn links(&self) -> impl Iterator<Item = (u32, u32)> + '_ {
        self.links
            .iter()
            .map(|link| (self.nodes[link.a].id, self.nodes[link.b].id))
    }

    /// Returns the ids of the hosts, in order.
    pub fn hosts(&self) -> impl Iterator<Item = u32> + '_ {
        self.nodes
            .iter()
            .filter(|node| node.kind != Kind::Switch)
            .map(|node| node.id)
    }

    /// Returns the ids of the switches, in order.
    pub fn switches(&self) -> impl Iterator<Item = u32> + '_ {
        self.nodes
            .iter()
            .filter(|node| node.kind == Kind::Switch)
            .map(|node| node.id)
    }

    /// Sets a node's clock offset, ns. Returns false if there is no such node.
    pub fn set_clock_offset(&mut self, id: u32, offset: i64) -> bool {
        let node = self.nodes.iter_mut().find(|node| node.id == id);
        node.map(|node| node.clock_offset = offset).is_some()
    }

    pub(crate) fn index(&self, id: u32) -> Option<usize> {
        self.nodes.iter().position(|node| node.id == id)
    }
}

/// Builds a topology. Nothing is checked before [`TopologyBuilder::build`].
#[derive(Clone, Debug, Default)]
pub struct TopologyBuilder {
    nodes: Vec<Node>,
    /// Node ids of the two ends, and the properties of the link.
    links: Vec<(u32, u32, Wire)>,
}

impl TopologyBuilder {
    /// Adds a switch with this node id.
    pub fn switch(mut self, id: u32) -> Self {
        self.nodes.push(Node {
            id,
            name: format!("s{id}"),
            kind: Kind::Switch,
            clock_offset: 0,
        });
        self
    }

    /// Adds a host. Without an address it gets a default one, by its position among the hosts.
    pub fn host(mut self, id: u32, address: Option<Address>) -> Self {
        let hosts = self.nodes.iter().filter(|node| node.kind != Kind::Switch).count() as u32;
        let kind = Kind::Host(address.unwrap_or_else(|| Address::numbered(0, hosts + 1)));
        self.nodes.push(Node {
            id,
            name: format!("h{id}"),
            kind,
            clock_offset: 0,
        });
        self
    }

    /// Connects two nodes with a full-duplex link. Ports of a node are numbered in the order of its links.
    pub fn link(mut self, a: u32, b: u32, wire: Wire) -> Self {
        self.links.push((a, b, wire));
        self
    }

    /// Checks the topology and returns it.
    ///
    /// # Errors
    /// A node id is used twice; a link leads to a node that does not exist or to itself, or has no rate; a host does not have
    /// exactly one link, to a switch; or a switch has more than 255 links.
    pub fn build(self) -> Result<Topology, String> {
        let mut plan = Plan {
            nodes: self.nodes,
            ..Plan::default()
        };
        for (a, b, wire) in self.links {
            let [from, to] = [a, b].map(|id| plan.nodes.iter().position(|node| node.id == id));
            let (Some(from), Some(to)) = (from, to) else {
                return Err(bad_link(a, b));
            };
            plan.join(from, to, wire);
        }
        plan.finish()
    }
}

/// Nodes and links that are not checked yet.
#[derive(Default)]
struct Plan {
    nodes: Vec<Node>,
    links: Vec<Link>,
    hosts: u32,
}

impl Plan {
    /// Adds `count` switches with ids after `base`, and returns their indices.
    fn layer(&mut self, base: u32, count: u32, name: &str) -> Vec<usize> {
        let first = self.nodes.len();
        self.nodes.extend((1..=count).map(|i| Node {
            id: base + i,
            name: format!("{name}{i}"),
            kind: Kind::Switch,
            clock_offset: 0,
        }));
        (first..self.nodes.len()).collect()
    }

    /// Adds a host below `switch`; `at` is the switch's number in the host's address.
    fn host(&mut self, switch: usize, at: usize, wire: Wire) {
        self.hosts += 1;
        let below = 1 + self.links.iter().filter(|link| link.a == switch).count() as u32;
        let kind = Kind::Host(Address::numbered(at, below));
        self.nodes.push(Node {
            id: 10_000 + self.hosts,
            name: format!("h{}", self.hosts),
            kind,
            clock_offset: 0,
        });
        self.join(switch, self.nodes.len() - 1, wire);
    }

    fn join(&mut self, a: usize, b: usize, wire: Wire) {
        self.links.push(Link { a, b, wire });
    }

    fn finish(self) -> Result<Topology, String> {
        let Self { nodes, links, .. } = self;
        let mut ids: Vec<u32> = nodes.iter().map(|node| node.id).collect();
        ids.sort_unstable();
        if let Some(pair) = ids.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(format!(
                "node id {} is used twice; give each node its own id",
                pair[0]
            ));
        }
        let mut degree = vec![0usize; nodes.len()];
        for link in &links {
            let a = nodes[link.a].id;
            let b = nodes[link.b].id;
            if link.a == link.b {
                return Err(bad_link(a, b));
            }
            if link.wire.rate == 0 {
                return Err(format!("link {a}-{b}: the rate must be at least 1 bit/s"));
            }
            if nodes[link.a].kind != Kind::Switch && nodes[link.b].kind != Kind::Switch {
                return Err(bad_host(a));
            }
            degree[link.a] += 1;
            degree[link.b] += 1;
        }
        for (node, degree) in nodes.iter().zip(degree) {
            match node.kind {
                Kind::Host(_) if degree != 1 => return Err(bad_host(node.id)),
                Kind::Switch => within("the number of ports of a switch", degree as u32, 0, 255)?,
                Kind::Host(_) => {}
            }
        }
        Ok(Topology { nodes, links })
    }
}

fn within(what: &str, value: u32, low: u32, high: u32) -> Result<(), String> {
    if (low..=high).contains(&value) {
        return Ok(());
    }
    Err(format!("{what} must be {low} to {high}, not {value}"))
}

fn bad_link(a: u32, b: u32) -> String {
    format!("link {a}-{b}: both ends must be different nodes of this topology")
}

fn bad_host(id: u32) -> String {
    format!("host {id} needs exactly one link, to a switch")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn picture(topology: &Topology) -> String {
        topology
            .links()
            .map(|(a, b)| format!("{a}-{b}"))
            .collect::<Vec<_>>()
            .join(" ")
    }

    #[test]
    fn shapes_have_the_links_they_should() {
        let wire = Wire::default();
        assert_eq!(
            picture(&Topology::line(3, wire).unwrap()),
            "101-10001 103-10002 101-102 102-103"
        );
        assert_eq!(
            picture(&Topology::leaf_spine(2, 2, 1, wire).unwrap()),
            "101-10001 102-10002 101-201 101-202 102-201 102-202"
        );
        let tree = Topology::fat_tree(4, wire).unwrap();
        assert_eq!(
            (
                tree.switches().count(),
                tree.hosts().count(),
                tree.links().count()
            ),
            (20, 16, 48)
        );
        assert!(picture(&tree).ends_with("2007-3001 2007-3002 2008-3003 2008-3004"));
    }

    #[test]
    fn hosts_have_addresses_of_their_own() {
        for topology in [
            Topology::fat_tree(8, Wire::default()),
            Topology::leaf_spine(9, 2, 150, Wire::default()),
        ] {
            let topology = topology.unwrap();
            let mut seen = std::collections::HashSet::new();
            for node in topology.nodes() {
                if let Kind::Host(address) = node.kind {
                    assert!(seen.insert(address.v4.to_string()) && seen.insert(address.v6.to_string()));
                    assert!(seen.insert(format!("{:?}", address.mac)));
                }
            }
        }
    }

    #[test]
    fn a_builder_makes_any_shape() {
        let slow = Wire {
            rate: 1_000_000,
            delay: 500,
            depth: 10,
        };
        let mut topology = Topology::builder()
            .switch(101)
            .switch(102)
            .host(10_001, None)
            .host(10_002, None)
            .link(101, 102, slow)
            .link(101, 10_001, Wire::default())
            .link(102, 10_002, Wire::default())
            .build()
            .unwrap();
        assert_eq!(picture(&topology), "101-102 101-10001 102-10002");
        assert_eq!(
            (topology.links[0].wire, topology.links[1].wire),
            (slow, Wire::default())
        );
        assert_eq!(topology.nodes[2].kind, Kind::Host(Address::numbered(0, 1)));
        assert!(topology.set_clock_offset(101, -350) && !topology.set_clock_offset(1, 0));
        assert_eq!(
            (topology.nodes[0].clock_offset, topology.nodes[1].name.as_str()),
            (-350, "s102")
        );
    }

    #[test]
    fn invalid_topologies_are_rejected_with_a_reason() {
        let (builder, wire) = (Topology::builder, Wire::default());
        let refused = |builder: TopologyBuilder| builder.build().unwrap_err();
        let twice = refused(builder().switch(1).switch(1));
        assert_eq!(twice, "node id 1 is used twice; give each node its own id");
        let dangling = refused(builder().switch(1).link(1, 2, wire));
        assert_eq!(
            dangling,
            "link 1-2: both ends must be different nodes of this topology"
        );
        assert_eq!(
            refused(builder().switch(1).link(1, 1, wire)),
            "link 1-1: both ends must be different nodes of this topology"
        );
        assert_eq!(
            refused(builder().host(1, None)),
            "host 1 needs exactly one link, to a switch"
        );
        let stopped = Wire { rate: 0, ..wire };
        assert_eq!(
            refused(builder().switch(1).switch(2).link(1, 2, stopped)),
            "link 1-2: the rate must be at least 1 bit/s"
        );
        assert_eq!(
            Topology::fat_tree(5, Wire::default()).unwrap_err(),
            "fat-tree: k must be even, not 5"
        );
    }
}
