//! The simulated network: switches with rules, queues, hosts. It executes rules as a switch does and judges nothing.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use detect::Prefix;
use manager::device::{
    Answer, Change, Election, Encoding, Etag, NodeId, PortId, Request, Restart, Rule, Rules, State, Watch,
};

use super::packet::{Int, Packet};

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
    pub(crate) highest: Election,
    /// When its manager last claimed it, changed its rules, or renewed its lease.
    pub(crate) renewed: u64,
    /// Somebody else executes what it accepts, later and one by one.
    pub(crate) is_slow: bool,
    /// It adds nothing to a packet that would then exceed the MTU of its link; others drop what is too long.
    pub(crate) respects_mtu: bool,
    /// It executes requests of every election.
    pub(crate) is_unfenced: bool,
    accepted: Vec<Change>,
}

impl Switch {
    fn execute(&mut self, change: &Change) {
        match change {
            Change::Add(rule) => {
                // It has one encoding.
                self.rules
                    .retain(|old| !matches!(old, Rule::Encoding(_)) || !old.same_entry(rule));
                self.rules.insert(rule.clone())
            }
            Change::Remove(rule) => self.rules.remove(rule),
        };
    }

    fn encoding(&self) -> Option<Encoding> {
        self.rules.iter().find_map(|rule| match rule {
            Rule::Encoding(encoding) => Some(*encoding),
            _ => None,
        })
    }

    /// Executes the rules of a packet from one port to another, where it may have `room` bytes.
    fn process(
        &self,
        node: NodeId,
        (from, to): (PortId, PortId),
        packet: &mut Packet,
        room: u32,
    ) -> Option<Int> {
        if let Some(int) = &mut packet.int {
            int.path.push(node);
        }
        let encoding = self.encoding()?;
        if packet.int.is_none()
            && self.rules.contains(&Rule::Source(from))
            && let Some(watch) = watched(&self.rules, packet)
        {
            packet.insert(watch, &encoding, room);
            packet.int.iter_mut().for_each(|int| int.path.push(node));
        }
        if !packet.shows_int(&encoding) {
            return None;
        }
        let executes = |number| self.rules.contains(&Rule::Instruction(number));
        let is_sink = self.rules.contains(&Rule::Sink(to));
        packet.record(node, executes, &encoding, if is_sink { u32::MAX } else { room });
        if is_sink { packet.strip(&encoding) } else { None }
    }
}

/// What a switch did with a packet.
pub(crate) enum Step {
    /// It is in the queue of this port; a report was made of the INT that it carried.
    Queued(PortId, Option<Int>),
    Dropped,
}

/// The network.
#[derive(Debug, Default)]
pub(crate) struct Net {
    pub(crate) switches: BTreeMap<NodeId, Switch>,
    pub(crate) cables: BTreeMap<(NodeId, PortId), End>,
    /// Ends of links that are down.
    pub(crate) down: BTreeSet<(NodeId, PortId)>,
    /// MTU of links, bytes.
    pub(crate) mtu: u32,
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
        let (up, renewed, is_slow, respects_mtu, is_unfenced) = (true, 0, false, false, false);
        let switch = Switch {
            restart,
            rules,
            up,
            version,
            highest,
            renewed,
            is_slow,
            respects_mtu,
            is_unfenced,
            accepted,
        };
        self.switches.insert(node, switch);
    }

    /// A slow switch executes one of the changes that it has accepted.
    pub(crate) fn execute_late(&mut self, node: NodeId, choice: usize) {
        let Some(switch) = self
            .switches
            .get_mut(&node)
            .filter(|one| one.up && !one.accepted.is_empty())
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
        let Some(switch) = self.switches.get_mut(&node) else {
            return;
        };
        switch.up = true;
        switch.version = self.versions;
        if switch.restart != Restart::Keeps {
            switch.rules.clear();
        }
    }

    pub(crate) fn host_port(&self, host: u8) -> Option<(NodeId, PortId)> {
        self.cables
            .iter()
            .find(|(_, end)| **end == End::Host(host))
            .map(|(port, _)| *port)
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
        let ports = self
            .links(from)
            .filter(|(_, (peer, _))| distance.get(peer) == Some(&best));
        let ports: Vec<PortId> = ports.map(|(port, _)| port).collect();
        ports.get(usize::from(packet.src) % ports.len().max(1)).copied()
    }

    fn links(&self, node: NodeId) -> impl Iterator<Item = (PortId, (NodeId, PortId))> + '_ {
        self.cables
            .range((node, 0)..(node + 1, 0))
            .filter_map(move |((_, port), end)| match end {
                End::Port(peer, other) if !self.down.contains(&(node, *port)) => {
                    Some((*port, (*peer, *other)))
                }
                _ => None,
            })
    }

    /// The port by which a switch forwards a packet, INT or not; `None`: it drops it.
    pub(crate) fn egress(&self, node: NodeId, packet: &Packet) -> Option<PortId> {
        if self.forwards(node) && packet.hops <= 8 {
            self.route(node, packet)
        } else {
            None
        }
    }

    fn mtu_of(&self, port: (NodeId, PortId)) -> u32 {
        // A packet with INT must not get lost where it should not be.
        if matches!(self.cables.get(&port), Some(End::Host(_))) {
            u32::MAX
        } else {
            self.mtu
        }
    }

    /// A packet arrives at a switch, which forwards it by `egress`.
    pub(crate) fn arrive(
        &self,
        node: NodeId,
        port: PortId,
        egress: Option<PortId>,
        packet: &mut Packet,
    ) -> Step {
        let Some(egress) = egress else {
            return Step::Dropped;
        };
        let (switch, mtu) = (&self.switches[&node], self.mtu_of((node, egress)));
        let room = if switch.respects_mtu { mtu } else { u32::MAX };
        let report = switch.process(node, (port, egress), packet, room);
        if packet.bytes.len > mtu {
            Step::Dropped
        } else {
            Step::Queued(egress, report)
        }
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
                ..State::default()
            }),
            Request::Apply { election, .. } if election != switch.highest && !switch.is_unfenced => {
                Answer::NotPrimary(switch.highest)
            }
            Request::Apply { etag, .. } if etag.0 != switch.version.to_string() => Answer::Stale,
            Request::Apply { .. } if !switch.accepted.is_empty() => Answer::Stale,
            Request::Apply { changes, .. } => {
                switch.version = version;
                for (_, change) in changes
                    .iter()
                    .enumerate()
                    .filter(|(i, _)| executes >> (i % 64) & 1 == 1)
                {
                    if switch.is_slow {
                        switch.accepted.push(change.clone());
                    } else {
                        switch.execute(change);
                    }
                }
                if executes != u64::MAX {
                    Answer::Refused("busy".to_owned())
                } else {
                    Answer::Applied
                }
            }
        }
    }
}

/// The entry of the watchlist that applies to a packet.
fn watched<'r>(rules: &'r Rules, packet: &Packet) -> Option<&'r Watch> {
    let contains = |prefix: Option<Prefix>, host| prefix.is_none_or(|prefix| prefix.contains(address(host)));
    let entries = rules.iter().filter_map(|rule| match rule {
        Rule::Watch(watch) if watch.mode.embeds() => Some(&**watch),
        _ => None,
    });
    let fits =
        entries.filter(|watch| contains(watch.key.src, packet.src) && contains(watch.key.dst, packet.dst));
    fits.max_by_key(|watch| watch.key.precedence())
}
