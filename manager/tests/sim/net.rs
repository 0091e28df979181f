//! The simulated network: switches with rules, queues, hosts. It executes rules as a switch does and judges nothing.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use detect::Prefix;
use manager::device::{Answer, Change, Election, Etag, NodeId, PortId, Request, Restart, Rule, Rules, State};
use manager::instruction::{self, Bits};

/// What a cable leads to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum End {
    /// A host, by its number.
    Host(u8),
    /// A port of a switch.
    Port(NodeId, PortId),
}

/// A switch.
#[derive(Debug)]
pub(crate) struct Switch {
    pub(crate) restart: Restart,
    pub(crate) rules: Rules,
    pub(crate) up: bool,
    version: u64,
    highest: Election,
    /// Somebody else executes what it accepts, later and one by one.
    pub(crate) is_slow: bool,
    accepted: Vec<Change>,
}

impl Switch {
    fn execute(&mut self, change: &Change) {
        match change {
            Change::Add(rule) => self.rules.insert(rule.clone()),
            Change::Remove(rule) => self.rules.remove(rule),
        };
    }
}

/// A packet.
#[derive(Clone, Debug)]
pub(crate) struct Packet {
    pub(crate) src: u8,
    pub(crate) dst: u8,
    /// The instruction bits, if it carries INT.
    pub(crate) int: Option<Bits>,
    /// Nodes that added their record.
    pub(crate) records: Vec<NodeId>,
    /// Nodes that it passed since it carries INT.
    pub(crate) path: Vec<NodeId>,
    pub(crate) hops: u8,
}

/// What a switch did with a packet.
pub(crate) enum Step {
    /// It is in the queue of this port; a report was made of the INT that it carried.
    Queued(PortId, Option<(Vec<NodeId>, Vec<NodeId>)>),
    Dropped,
}

/// The network.
#[derive(Debug, Default)]
pub(crate) struct Net {
    pub(crate) switches: BTreeMap<NodeId, Switch>,
    pub(crate) cables: BTreeMap<(NodeId, PortId), End>,
    /// Ends of links that are down.
    pub(crate) down: BTreeSet<(NodeId, PortId)>,
    versions: u64,
}

pub(crate) fn address(host: u8) -> std::net::IpAddr {
    std::net::Ipv4Addr::new(10, 0, host / 4, host).into()
}

impl Net {
    pub(crate) fn add(&mut self, node: NodeId, restart: Restart) {
        self.versions += 1;
        let version = self.versions;
        let (rules, highest, accepted) = (Rules::new(), Election::default(), Vec::new());
        let switch = Switch { restart, rules, up: true, version, highest, is_slow: false, accepted };
        self.switches.insert(node, switch);
    }

    /// A slow switch executes one of the changes that it has accepted.
    pub(crate) fn execute_late(&mut self, node: NodeId, choice: usize) {
        let Some(switch) = self.switches.get_mut(&node).filter(|one| one.up && !one.accepted.is_empty())
        else {
            return;
        };
        self.versions += 1;
        switch.version = self.versions;
        let change = switch.accepted.swap_remove(choice % switch.accepted.len());
        switch.execute(&change);
    }

    pub(crate) fn forwards(&self, node: NodeId) -> bool {
        let switch = &self.switches[&node];
        switch.up && (switch.restart != Restart::Waits || switch.rules.contains(&Rule::Forwarding))
    }

    /// Starts a switch that crashed.
    pub(crate) fn start(&mut self, node: NodeId) {
        self.versions += 1;
        let Some(switch) = self.switches.get_mut(&node) else { return };
        switch.up = true;
        switch.version = self.versions;
        if switch.restart != Restart::Keeps {
            switch.rules.clear();
        }
    }

    pub(crate) fn host_port(&self, host: u8) -> Option<(NodeId, PortId)> {
        self.cables.iter().find(|(_, end)| **end == End::Host(host)).map(|(port, _)| *port)
    }

    /// The egress port towards a host; equal paths are chosen by the source.
    fn route(&self, from: NodeId, packet: &Packet) -> Option<PortId> {
        let (target, port) = self.host_port(packet.dst)?;
        if from == target {
            return Some(port);
        }
        let mut distance = BTreeMap::from([(target, 0_u32)]);
        let mut open = VecDeque::from([target]);
        while let Some(node) = open.pop_front() {
            let next = distance[&node] + 1;
            for (peer, _) in self.links(node).map(|(_, peer)| peer) {
                if self.forwards(peer) && !distance.contains_key(&peer) {
                    distance.insert(peer, next);
                    open.push_back(peer);
                }
            }
        }
        let best = distance.get(&from)?.checked_sub(1)?;
        let ports = self.links(from).filter(|(_, (peer, _))| distance.get(peer) == Some(&best));
        let ports: Vec<PortId> = ports.map(|(port, _)| port).collect();
        ports.get(usize::from(packet.src) % ports.len().max(1)).copied()
    }

    fn links(&self, node: NodeId) -> impl Iterator<Item = (PortId, (NodeId, PortId))> + '_ {
        self.cables.range((node, 0)..(node + 1, 0)).filter_map(move |((_, port), end)| match end {
            End::Port(peer, other) if !self.down.contains(&(node, *port)) => Some((*port, (*peer, *other))),
            _ => None,
        })
    }

    /// A packet arrives at a switch.
    pub(crate) fn arrive(&self, node: NodeId, port: PortId, packet: &mut Packet) -> Step {
        packet.hops += 1;
        if !self.forwards(node) || packet.hops > 8 {
            return Step::Dropped;
        }
        let rules = &self.switches[&node].rules;
        if packet.int.is_none() && rules.contains(&Rule::Source(port)) {
            packet.int = watched(rules, packet);
        }
        if let Some(bits) = packet.int {
            packet.path.push(node);
            if instruction::numbers(bits).all(|number| rules.contains(&Rule::Instruction(number))) {
                packet.records.push(node);
            }
        }
        let Some(egress) = self.route(node, packet) else { return Step::Dropped };
        let mut report = None;
        if rules.contains(&Rule::Sink(egress)) && packet.int.take().is_some() {
            report = Some((std::mem::take(&mut packet.path), std::mem::take(&mut packet.records)));
        }
        Step::Queued(egress, report)
    }

    /// A switch executes a request; of the changes, those whose bit is set in `executes`.
    pub(crate) fn execute(&mut self, node: NodeId, request: Request, executes: u64) -> Answer {
        self.versions += 1;
        let version = self.versions;
        let Some(switch) = self.switches.get_mut(&node) else {
            return Answer::Unreachable("none".to_owned());
        };
        match request {
            Request::Claim(election) if election <= switch.highest => Answer::NotPrimary(switch.highest),
            Request::Claim(election) => {
                switch.highest = election;
                switch.version = version;
                Answer::Claimed
            }
            Request::Read if !switch.accepted.is_empty() => Answer::Unconfirmed("not yet".to_owned()),
            Request::Read => Answer::State(State {
                etag: Etag(switch.version.to_string()),
                rules: switch.rules.clone(),
                foreign: Vec::new(),
            }),
            Request::Apply { election, .. } if election != switch.highest => {
                Answer::NotPrimary(switch.highest)
            }
            Request::Apply { etag, .. } if etag.0 != switch.version.to_string() => Answer::Stale,
            Request::Apply { .. } if !switch.accepted.is_empty() => Answer::Stale,
            Request::Apply { changes, .. } => {
                switch.version = version;
                for (_, change) in changes.iter().enumerate().filter(|(i, _)| executes >> (i % 64) & 1 == 1) {
                    if switch.is_slow {
                        switch.accepted.push(change.clone());
                    } else {
                        switch.execute(change);
                    }
                }
                if executes != u64::MAX { Answer::Refused("busy".to_owned()) } else { Answer::Applied }
            }
        }
    }
}

/// The instruction bits that the source inserts into a packet.
fn watched(rules: &Rules, packet: &Packet) -> Option<Bits> {
    let contains = |prefix: Option<Prefix>, host| prefix.is_none_or(|prefix| prefix.contains(address(host)));
    let entries = rules.iter().filter_map(|rule| match rule {
        Rule::Watch(watch) if watch.mode.embeds() => Some(watch),
        _ => None,
    });
    let fits =
        entries.filter(|watch| contains(watch.key.src, packet.src) && contains(watch.key.dst, packet.dst));
    fits.max_by_key(|watch| watch.key.precedence()).map(|watch| watch.bits)
}
