//! The network as the compiler needs it, and the checks of one intent against it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;

use detect::Prefix;

use super::refusal::{Note, Refusal};
use super::{Collector, DomainSettings};
use crate::device::{Capabilities, Filter, FilterAlgorithm, MatchKinds, Mode, NodeId, Restart};
use crate::flows::{ANY_PORT, FlowKey};
use crate::instruction::{self, Bits, HEADER_BYTES};
use crate::intent::{Intent, IntentError, matches_pattern};
use crate::inventory::{Host, Inventory, Topology};

/// Hops that the remaining hop count allows beyond the longest shortest path: failures lengthen paths.
const SPARE_HOPS: u32 = 4;

/// The network as the compiler needs it.
#[derive(Clone, Debug)]
pub(super) struct Network {
    pub(super) topology: Topology,
    pub(super) capabilities: BTreeMap<NodeId, Capabilities>,
    pub(super) settings: DomainSettings,
    pub(super) longest_path: u32,
    inventory: Inventory,
    /// Devices with edge ports.
    edges: BTreeSet<NodeId>,
    /// Bits that at least one device can fill, and those that all can.
    bits: Bits,
    common: Bits,
    /// For each of [`Mode::ALL`], a device that must support it and does not.
    lacking: [Option<NodeId>; 4],
    /// A device that does not treat the L4 checksum as the domain does.
    checksum: Option<NodeId>,
    /// Longest packet of a host and smallest MTU between devices, bytes.
    packet: Option<u32>,
    mtu: Option<u32>,
    leak: Option<String>,
    open: Vec<Note>,
}

/// An intent and where its entries belong.
#[derive(Clone, Debug)]
pub(super) struct Placed {
    pub(super) intent: Arc<Intent>,
    pub(super) keys: Vec<FlowKey>,
    pub(super) mode: Mode,
    pub(super) bits: Bits,
    /// Entries of watchlists.
    pub(super) watched: Vec<(NodeId, FlowKey)>,
    /// Keys whose packets end at these devices.
    pub(super) sunk: Vec<(NodeId, FlowKey)>,
    pub(super) notes: Vec<Note>,
}

impl Placed {
    /// Its filter for `key`.
    pub(super) fn filter(&self, key: FlowKey) -> Option<Filter> {
        let tell = &self.intent.tell;
        let algorithm = tell.filter?;
        let first = tell.thresholds.iter().next();
        let (metric, threshold) =
            first.map_or((detect::Metric::FlowPath, 0), |(metric, value)| (*metric, *value));
        let compares = matches!(algorithm, FilterAlgorithm::PerHop | FilterAlgorithm::PerFlow);
        let (metric, threshold) = if compares {
            (metric, threshold)
        } else {
            (detect::Metric::FlowPath, 0)
        };
        let rule = tell.rule.as_ref().filter(|_| algorithm == FilterAlgorithm::Rule);
        // As a device's driver may return it: on one line.
        let rule = rule.map(|rule| rule.split_whitespace().collect::<Vec<_>>().join(" ").into());
        Some(Filter {
            key,
            algorithm,
            metric,
            threshold,
            rule,
        })
    }
}

impl Network {
    pub(super) fn new(
        inventory: &Inventory,
        capabilities: &BTreeMap<NodeId, Capabilities>,
        settings: DomainSettings,
    ) -> Self {
        let topology = inventory.topology();
        let known = |node: &NodeId| (*node, capabilities.get(node).cloned().unwrap_or_default());
        let capabilities: BTreeMap<NodeId, Capabilities> = topology.devices.keys().map(known).collect();
        let edges = topology
            .devices
            .iter()
            .filter(|(_, ports)| !ports.edge.is_empty())
            .map(|(node, _)| *node);
        let edges: BTreeSet<NodeId> = edges.collect();
        let of_ports = |links: bool| {
            let ports = topology.devices.iter().flat_map(move |(node, ports)| {
                let (edge, link) = (ports.edge.iter(), ports.links.keys());
                edge.filter(move |_| !links)
                    .chain(link.filter(move |_| links))
                    .map(move |port| (*node, *port))
            });
            ports.filter_map(|port| inventory.mtu(port))
        };
        let (packet, mtu) = (of_ports(false).max(), of_ports(true).min());
        let has_border = |node: &NodeId| topology.devices[node].border().next().is_some();
        let leak = capabilities
            .iter()
            .find(|(node, can)| !can.sink && has_border(node));
        let open = capabilities
            .iter()
            .filter(|(node, can)| can.restart == Restart::Forwards && has_border(node));
        let lacking = Mode::ALL.map(|mode| {
            let needs = |node: &NodeId| mode == Mode::Postcard || edges.contains(node);
            let lacks = capabilities
                .iter()
                .find(|(node, can)| needs(node) && !can.modes.contains(&mode));
            lacks.map(|(node, _)| *node)
        });
        let wanted = settings.encoding.l4_checksum;
        let differs = capabilities
            .iter()
            .find(|(_, can)| !can.l4_checksum.contains(&wanted));
        Self {
            longest_path: topology.longest_path(),
            bits: capabilities.values().fold(0, |bits, can| bits | can.bits),
            common: capabilities.values().fold(Bits::MAX, |bits, can| bits & can.bits),
            lacking,
            checksum: differs.map(|(node, _)| *node),
            leak: leak.map(|(node, _)| inventory.name(*node)),
            open: open
                .map(|(node, _)| Note::OpenAfterRestart(inventory.name(*node)))
                .collect(),
            inventory: inventory.clone(),
            packet,
            mtu,
            edges,
            topology,
            capabilities,
            settings,
        }
    }

    pub(super) fn name(&self, node: NodeId) -> String {
        self.inventory.name(node)
    }

    /// Bytes of INT for which each link has room; `None`: not known.
    pub(super) fn room(&self) -> Option<u32> {
        Some(self.mtu?.saturating_sub(self.packet?))
    }

    /// Remaining hop count of a source: as many records as fit into the MTU at least, so that packets on longer paths are not dropped for
    /// their INT.
    pub(super) fn hops(&self, mode: Mode, bits: Bits) -> u8 {
        let least = self.longest_path + 1;
        let record = instruction::record_bytes(bits).max(1);
        let fit = match (mode, self.room()) {
            (Mode::Md, Some(room)) => room.saturating_sub(HEADER_BYTES) / record,
            _ => u32::MAX,
        };
        fit.clamp(least, least + SPARE_HOPS).min(255) as u8
    }

    /// Whether the packets of hosts have room for INT on each path, with those that a failure leads over one link more.
    ///
    /// # Errors
    /// They do not. `is_union`: several intents ask for the bits.
    pub(super) fn fits(&self, mode: Mode, bits: Bits, is_union: bool) -> Result<(), Refusal> {
        let int = int_bytes(mode, bits, self.longest_path + 1);
        match (self.packet, self.mtu) {
            (Some(packet), Some(mtu)) if packet + int > mtu => Err(Refusal::Mtu {
                packet,
                int,
                mtu,
                is_union,
            }),
            _ => Ok(()),
        }
    }

    /// The collector of each device: of the nearest ones, that with the fewest reporters for its capacity.
    pub(super) fn sessions(&self) -> BTreeMap<NodeId, SocketAddr> {
        let collectors = &self.settings.collectors;
        let distances: Vec<_> = collectors
            .iter()
            .map(|collector| self.distances(collector))
            .collect();
        let mut reporters = vec![0_u64; collectors.len()];
        let mut sessions = BTreeMap::new();
        for node in self.topology.devices.keys() {
            let cost = |index: &usize| {
                let distance = distances[*index].get(node).copied().unwrap_or(u32::MAX);
                // Relative load in 1/2^16, so that whole numbers compare it.
                (
                    distance,
                    (reporters[*index] << 16) / u64::from(collectors[*index].capacity.max(1)),
                    *index,
                )
            };
            if let Some(best) = (0..collectors.len()).min_by_key(cost) {
                reporters[best] += 1;
                sessions.insert(*node, collectors[best].address);
            }
        }
        sessions
    }

    /// Links from each device to a collector; none if its place is not known.
    fn distances(&self, collector: &Collector) -> BTreeMap<NodeId, u32> {
        let Some(at) = collector.at.filter(|at| self.topology.devices.contains_key(at)) else {
            return BTreeMap::new();
        };
        let mut distances = BTreeMap::from([(at, 0)]);
        let mut open = VecDeque::from([(at, 0)]);
        while let Some((node, distance)) = open.pop_front() {
            for (peer, _) in self.topology.devices[&node].links.values() {
                if !distances.contains_key(peer) {
                    distances.insert(*peer, distance + 1);
                    open.push_back((*peer, distance + 1));
                }
            }
        }
        distances
    }

    /// Checks an intent and finds the place of its entries.
    pub(super) fn place(&self, intent: &Intent) -> Result<Placed, Refusal> {
        let keys = self.keys(intent)?;
        let edges = self.sources(intent)?;
        let bits = intent.bits(self.settings.synchronised);
        if bits & !self.bits != 0 {
            return Err(Refusal::Bits(bits & !self.bits));
        }
        let mode = self.mode(intent, bits)?;
        let bits = bits | (mode.bits() & self.bits);
        let mut watched = Vec::new();
        for key in &keys {
            let nodes = if mode.embeds() {
                self.ends(key.src, &edges)
            } else {
                self.all()
            };
            watched.extend(nodes.into_iter().map(|node| (node, *key)));
        }
        for (node, key) in &watched {
            self.check_entry(*node, key, intent)?;
        }
        let mut sunk = Vec::new();
        for key in &keys {
            let nodes = if mode.embeds() {
                self.ends(key.dst, &self.edges)
            } else {
                self.all()
            };
            sunk.extend(nodes.into_iter().map(|node| (node, *key)));
        }
        self.check_filter(intent, &sunk)?;
        let notes = self.notes(bits, mode);
        Ok(Placed {
            intent: Arc::new(intent.clone()),
            keys,
            mode,
            bits,
            watched,
            sunk,
            notes,
        })
    }

    fn all(&self) -> Vec<NodeId> {
        self.topology.devices.keys().copied().collect()
    }

    fn notes(&self, bits: Bits, mode: Mode) -> Vec<Note> {
        // Most intents ask for what every device fills: then there is nothing to look for.
        let fill = self.capabilities.iter().filter(|_| bits & !self.common != 0);
        let lacking = fill.filter(|(_, can)| bits & !can.bits != 0);
        let mut notes: Vec<Note> = lacking
            .map(|(node, can)| Note::Incomplete {
                node: *node,
                device: self.name(*node),
                bits: bits & !can.bits,
            })
            .collect();
        if mode.embeds() {
            notes.extend(self.open.iter().cloned());
            if self.packet.is_none() || (self.mtu.is_none() && self.longest_path > 0) {
                notes.push(Note::MtuNotKnown);
            }
        }
        notes
    }

    /// The intent's keys, reduced to the flows between two hosts if it says so.
    pub(super) fn keys(&self, intent: &Intent) -> Result<Vec<FlowKey>, Refusal> {
        let keys = intent
            .entries()
            .map_err(|error| Refusal::Intent(IntentError::Flows(error)))?;
        let Some((a, b)) = &intent.at.between else {
            return Ok(keys);
        };
        let host = |name: &String| -> Result<&Host, Refusal> {
            let host = self
                .inventory
                .host(name)
                .ok_or_else(|| Refusal::UnknownHost(name.clone()))?;
            if host.addresses.is_empty() {
                Err(Refusal::HostWithoutAddress(name.clone()))
            } else {
                Ok(host)
            }
        };
        let (from, to) = (host(a)?, host(b)?);
        let mut between = BTreeSet::new();
        for (src, dst) in from
            .addresses
            .iter()
            .flat_map(|src| to.addresses.iter().map(move |dst| (*src, *dst)))
        {
            let pair = FlowKey {
                src: Some(src.into()),
                dst: Some(dst.into()),
                ..FlowKey::default()
            };
            let both = [pair, pair.reversed()];
            let pairs = if intent.both_directions {
                &both[..]
            } else {
                &both[..1]
            };
            between.extend(
                pairs
                    .iter()
                    .flat_map(|pair| keys.iter().filter_map(|key| key.intersection(pair))),
            );
        }
        if between.is_empty() {
            return Err(Refusal::NotBetween(a.clone(), b.clone()));
        }
        Ok(between.into_iter().collect())
    }

    /// The edge devices that an intent names.
    fn sources(&self, intent: &Intent) -> Result<BTreeSet<NodeId>, Refusal> {
        if self.edges.is_empty() {
            return Err(Refusal::NoEdge);
        }
        if intent.at.edges.is_empty() {
            return Ok(self.edges.clone());
        }
        let mut found = BTreeSet::new();
        for pattern in &intent.at.edges {
            let fits = |node: &&NodeId| {
                self.inventory.device(**node).is_some_and(|device| {
                    std::iter::once(&device.name)
                        .chain(&device.labels)
                        .any(|name| matches_pattern(pattern, name))
                })
            };
            let before = found.len();
            found.extend(self.edges.iter().filter(fits));
            if found.len() == before && !self.edges.iter().any(|node| fits(&node)) {
                return Err(Refusal::NoSuchEdge(pattern.clone()));
            }
        }
        Ok(found)
    }

    /// The devices of `edges` where packets with this address enter or leave: one, if it is a host's whose place is known.
    fn ends(&self, prefix: Option<Prefix>, edges: &BTreeSet<NodeId>) -> Vec<NodeId> {
        let single = prefix.filter(|prefix| Prefix::from(prefix.network()) == *prefix);
        let host = single.and_then(|prefix| self.inventory.host_by_address(prefix.network()));
        match host.and_then(|host| host.at) {
            Some((node, _)) => edges.get(&node).copied().into_iter().collect(),
            None => edges.iter().copied().collect(),
        }
    }

    /// The mode: the one that the intent names, or the cheapest that works.
    fn mode(&self, intent: &Intent, bits: Bits) -> Result<Mode, Refusal> {
        if let Some(mode) = intent.mode {
            return self.check_mode(mode, intent, bits).map(|()| mode);
        }
        let mut modes = Mode::ALL;
        modes.sort_by_key(|mode| self.cost(*mode, bits));
        let mut why = Vec::new();
        for mode in modes {
            match self.check_mode(mode, intent, bits) {
                Ok(()) => return Ok(mode),
                Err(refusal) => why.push((mode, refusal)),
            }
        }
        // If postcards are the only problem besides a leak or the MTU, that problem is what the operator can solve.
        let first = why
            .iter()
            .find(|(_, refusal)| !matches!(refusal, Refusal::NoMode(_)));
        if let Some((_, refusal)) = first {
            return Err(refusal.clone());
        }
        let text = |refusal: Refusal| match refusal {
            Refusal::NoMode(mut why) => why.pop().map(|(_, why)| why).unwrap_or_default(),
            other => other.to_string(),
        };
        Err(Refusal::NoMode(
            why.into_iter()
                .map(|(mode, refusal)| (mode, text(refusal)))
                .collect(),
        ))
    }

    /// Bytes that one measured packet causes on the longest path: INT on each link, and reports.
    fn cost(&self, mode: Mode, bits: Bits) -> u32 {
        /// Headers of a report: Ethernet, IPv4, UDP, telemetry report, and the head of the packet.
        const REPORT: u32 = 14 + 20 + 8 + 16 + 60;
        let (record, links) = (instruction::record_bytes(bits), self.longest_path);
        let nodes = links + 1;
        match mode {
            Mode::Md => HEADER_BYTES * links + record * links * nodes / 2 + REPORT + record * nodes,
            Mode::Sf => (HEADER_BYTES + record) * links + REPORT + record,
            Mode::Mx => HEADER_BYTES * links + nodes * (REPORT + record),
            Mode::Postcard => nodes * (REPORT + record),
        }
    }

    fn check_mode(&self, mode: Mode, intent: &Intent, bits: Bits) -> Result<(), Refusal> {
        let not = |why: String| Err(Refusal::NoMode(vec![(mode, why)]));
        let of_modes = Mode::ALL.into_iter().zip(self.lacking);
        if let Some((_, Some(node))) = of_modes.into_iter().find(|(one, _)| *one == mode) {
            return not(format!("{} does not support it", self.name(node)));
        }
        if mode == Mode::Sf && intent.watch.contains(&detect::Metric::FlowLatency) {
            return not("its packets do not have the latency of the flow".to_owned());
        }
        if mode == Mode::Sf && intent.tell.filter.is_some() {
            return not("filters do not apply to it".to_owned());
        }
        if !mode.embeds() {
            return Ok(());
        }
        if let Some(device) = &self.leak {
            return Err(Refusal::Leak(device.clone()));
        }
        if let Some(node) = self.checksum {
            return Err(Refusal::Checksum(
                self.name(node),
                self.settings.encoding.l4_checksum.word(),
            ));
        }
        self.fits(mode, bits, false)
    }

    fn check_entry(&self, node: NodeId, key: &FlowKey, intent: &Intent) -> Result<(), Refusal> {
        let can = &self.capabilities[&node];
        if let Some(why) = inexpressible(&can.matches, key) {
            return Err(Refusal::Match {
                device: self.name(node),
                key: Box::new(*key),
                why,
            });
        }
        if intent.samples() && !can.sampling {
            return Err(Refusal::Sampling(self.name(node)));
        }
        Ok(())
    }

    fn check_filter(&self, intent: &Intent, sunk: &[(NodeId, FlowKey)]) -> Result<(), Refusal> {
        let Some(filter) = intent.tell.filter else {
            return Ok(());
        };
        let lacks = |node: &NodeId| {
            let can = &self.capabilities[node];
            can.filter_entries == 0 || !can.filters.contains(&filter)
        };
        if let Some((node, _)) = sunk.iter().find(|(node, _)| lacks(node)) {
            return Err(Refusal::Filter(self.name(*node), filter.word()));
        }
        let Some(rule) = intent
            .tell
            .rule
            .as_ref()
            .filter(|_| filter == FilterAlgorithm::Rule)
        else {
            return Ok(());
        };
        let nodes: BTreeSet<NodeId> = sunk.iter().map(|(node, _)| *node).collect();
        for node in nodes {
            if let Some(why) = self.capabilities[&node].rules.problem(rule) {
                return Err(Refusal::FilterRule(self.name(node), why));
            }
        }
        Ok(())
    }
}

/// Bytes of INT in a packet on the last link of a path of `links` links.
pub(crate) fn int_bytes(mode: Mode, bits: Bits, links: u32) -> u32 {
    if links == 0 {
        return 0;
    }
    match mode {
        Mode::Md => HEADER_BYTES + instruction::record_bytes(bits) * links,
        Mode::Sf => HEADER_BYTES + instruction::record_bytes(bits),
        Mode::Mx => HEADER_BYTES,
        Mode::Postcard => 0,
    }
}

/// What a device cannot express of a key, and the nearest that it can.
fn inexpressible(kinds: &MatchKinds, key: &FlowKey) -> Option<&'static str> {
    let prefixes = [key.src, key.dst];
    let is_single = |prefix: &Prefix| Prefix::from(prefix.network()) == *prefix;
    let ports = [key.sport, key.dport];
    if !kinds.ipv6 && prefixes.iter().flatten().any(Prefix::is_v6) {
        return Some("it matches IPv4 only; use IPv4 prefixes there");
    }
    if !kinds.dscp && key.dscp.is_some() {
        return Some("it does not match DSCP; remove `dscp`");
    }
    if !kinds.prefixes && prefixes.iter().flatten().any(|prefix| !is_single(prefix)) {
        return Some("it matches single addresses only; list the addresses");
    }
    if !kinds.ranges
        && ports
            .iter()
            .any(|&(first, last)| first != last && (first, last) != ANY_PORT)
    {
        return Some("it has no port ranges; list the ports, or leave the ports out");
    }
    if !kinds.protocol && key.proto.is_some() {
        return Some("it does not match the protocol; leave `proto` out: TCP and UDP are measured alike");
    }
    if kinds.needs_port && ports == [ANY_PORT, ANY_PORT] {
        return Some("it would insert INT into packets without ports, which no sink removes; add a port");
    }
    let open =
        prefixes.contains(&None) || ports.contains(&ANY_PORT) || (kinds.protocol && key.proto.is_none());
    if !kinds.wildcards && open {
        return Some("it needs source, destination, both ports and protocol; add what is missing");
    }
    None
}
