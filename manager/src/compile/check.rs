//! First stage of the intent compiler: checks one intent against the network, and finds the devices and keys of its entries.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;

use detect::Prefix;

use super::refusal::{Note, Refusal};
use super::{Collector, DomainSettings};
use crate::device::{Capabilities, Filter, FilterAlgorithm, MatchKinds, Mode, NodeId, Restart};
use crate::flows::{ANY_PORT, FlowMatch};
use crate::instruction::{self, Bits, HEADER_BYTES};
use crate::intent::{Intent, IntentError, matches_pattern};
use crate::inventory::{Host, Inventory, Topology};

/// Hops that the remaining hop count permits beyond the longest shortest path, because a failure lengthens paths.
const SPARE_HOPS: u32 = 4;

/// The inventory and capabilities, with everything the checks derive from them.
#[derive(Clone, Debug)]
pub(super) struct Network {
    pub(super) topology: Topology,
    pub(super) capabilities: BTreeMap<NodeId, Capabilities>,
    pub(super) settings: DomainSettings,
    pub(super) longest_path: u32,
    inventory: Inventory,
    /// Devices that have edge ports.
    edges: BTreeSet<NodeId>,
    /// Instruction bits that at least one device can fill.
    known_bits: Bits,
    /// Instruction bits that every device can fill.
    common_bits: Bits,
    /// For each mode of [`Mode::ALL`], a device that would have to support the mode and does not.
    without_mode: [Option<NodeId>; 4],
    /// A device that does not support the domain's treatment of the L4 checksum.
    without_checksum: Option<NodeId>,
    /// Longest packet of a host, bytes; `None` if unknown.
    longest_packet: Option<u32>,
    /// Smallest MTU between devices, bytes; `None` if unknown.
    smallest_mtu: Option<u32>,
    /// Name of a border device that cannot remove INT, so that INT would leak to hosts.
    leaking_device: Option<String>,
    /// Notes about border devices that forward without rules after a restart.
    restart_notes: Vec<Note>,
}

/// An intent together with the devices and keys of its entries.
#[derive(Clone, Debug)]
pub(super) struct Placed {
    pub(super) intent: Arc<Intent>,
    pub(super) keys: Vec<FlowMatch>,
    pub(super) mode: Mode,
    pub(super) bits: Bits,
    /// Watchlist entries: device and key.
    pub(super) watchlist_entries: Vec<(NodeId, FlowMatch)>,
    /// Sink entries: device, and key of the packets that leave the network there.
    pub(super) sink_entries: Vec<(NodeId, FlowMatch)>,
    pub(super) notes: Vec<Note>,
}

impl Placed {
    /// Returns the intent's filter for `key`, if it has one.
    pub(super) fn filter(&self, key: FlowMatch) -> Option<Filter> {
        let reporting = &self.intent.reporting;
        let algorithm = reporting.filter?;
        let compared = match algorithm {
            FilterAlgorithm::PerHop | FilterAlgorithm::PerFlow => reporting.thresholds.iter().next(),
            _ => None,
        };
        let (metric, threshold) =
            compared.map_or((detect::Metric::FlowPath, 0), |(metric, value)| (*metric, *value));
        let rule = if algorithm == FilterAlgorithm::Rule {
            reporting.rule.as_ref()
        } else {
            None
        };
        // Normalised to one line with single spaces, because a device's driver may read the rule back like that.
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
        let capabilities: BTreeMap<NodeId, Capabilities> = topology
            .devices
            .keys()
            .map(|node| (*node, capabilities.get(node).cloned().unwrap_or_default()))
            .collect();
        let edges: BTreeSet<NodeId> = topology
            .devices
            .iter()
            .filter(|(_, ports)| !ports.edge.is_empty())
            .map(|(node, _)| *node)
            .collect();
        let edge_ports = topology
            .devices
            .iter()
            .flat_map(|(node, ports)| ports.edge.iter().map(|port| (*node, *port)));
        let link_ports = topology
            .devices
            .iter()
            .flat_map(|(node, ports)| ports.links.keys().map(|port| (*node, *port)));
        let longest_packet = edge_ports.filter_map(|port| inventory.mtu(port)).max();
        let smallest_mtu = link_ports.filter_map(|port| inventory.mtu(port)).min();
        let at_border: Vec<(NodeId, &Capabilities)> = capabilities
            .iter()
            .filter(|(node, _)| topology.devices[*node].border().next().is_some())
            .map(|(node, capabilities)| (*node, capabilities))
            .collect();
        let leaking = at_border.iter().find(|(_, capabilities)| !capabilities.sink);
        let forwarding_after_restart = at_border
            .iter()
            .filter(|(_, capabilities)| capabilities.restart == Restart::Forwards);
        let without_mode = Mode::ALL.map(|mode| {
            let candidates = capabilities
                .iter()
                .filter(|(node, _)| mode == Mode::Postcard || edges.contains(node));
            candidates
                .filter(|(_, capabilities)| !capabilities.modes.contains(&mode))
                .map(|(node, _)| *node)
                .next()
        });
        let l4_checksum = settings.encoding.l4_checksum;
        let without_checksum = capabilities
            .iter()
            .find(|(_, capabilities)| !capabilities.l4_checksum.contains(&l4_checksum));
        Self {
            longest_path: topology.longest_path(),
            known_bits: capabilities.values().fold(0, |bits, device| bits | device.bits),
            common_bits: capabilities
                .values()
                .fold(Bits::MAX, |bits, device| bits & device.bits),
            without_mode,
            without_checksum: without_checksum.map(|(node, _)| *node),
            leaking_device: leaking.map(|(node, _)| inventory.name(*node)),
            restart_notes: forwarding_after_restart
                .map(|(node, _)| Note::OpenAfterRestart(inventory.name(*node)))
                .collect(),
            inventory: inventory.clone(),
            longest_packet,
            smallest_mtu,
            edges,
            topology,
            capabilities,
            settings,
        }
    }

    pub(super) fn name(&self, node: NodeId) -> String {
        self.inventory.name(node)
    }

    /// Returns the bytes of INT that fit beside a host's longest packet on every link, or `None` if that is unknown.
    pub(super) fn int_space(&self) -> Option<u32> {
        Some(self.smallest_mtu?.saturating_sub(self.longest_packet?))
    }

    /// Returns the remaining hop count that a source sets: as many records as fit into the MTU, within [`SPARE_HOPS`] of the
    /// longest path. Packets on longer paths then stop growing before they exceed an MTU.
    pub(super) fn hops(&self, mode: Mode, bits: Bits) -> u8 {
        let least = self.longest_path + 1;
        let record = instruction::record_bytes(bits).max(1);
        let fit = match (mode, self.int_space()) {
            (Mode::Md, Some(room)) => room.saturating_sub(HEADER_BYTES) / record,
            _ => u32::MAX,
        };
        fit.clamp(least, least + SPARE_HOPS).min(255) as u8
    }

    /// Checks that hosts' packets have room for INT on every path, including one link more than the longest path in case of a
    /// failure. `is_union` says that the bits are the union of several intents'.
    ///
    /// # Errors
    /// [`Refusal::Mtu`] if there is not enough room.
    pub(super) fn check_mtu(&self, mode: Mode, bits: Bits, is_union: bool) -> Result<(), Refusal> {
        let int = int_bytes(mode, bits, self.longest_path + 1);
        match (self.longest_packet, self.smallest_mtu) {
            (Some(packet), Some(mtu)) if packet + int > mtu => Err(Refusal::Mtu {
                packet,
                int,
                mtu,
                is_union,
            }),
            _ => Ok(()),
        }
    }

    /// Selects each device's collector: among the nearest, the one with the fewest reporters relative to its capacity.
    pub(super) fn sessions(&self) -> BTreeMap<NodeId, SocketAddr> {
        let collectors = &self.settings.collectors;
        let distances: Vec<_> = collectors
            .iter()
            .map(|collector| self.distances(collector))
            .collect();
        let mut reporters = vec![0_u64; collectors.len()];
        let mut sessions = BTreeMap::new();
        for node in self.topology.devices.keys() {
            let best = (0..collectors.len()).min_by_key(|index| {
                let distance = distances[*index].get(node).copied().unwrap_or(u32::MAX);
                // Relative load in units of 2^-16, to compare fractions as integers.
                let load = (reporters[*index] << 16) / u64::from(collectors[*index].capacity.max(1));
                (distance, load, *index)
            });
            if let Some(best) = best {
                reporters[best] += 1;
                sessions.insert(*node, collectors[best].address);
            }
        }
        sessions
    }

    /// Returns each device's distance in links from a collector, by breadth-first search; empty if its position is unknown.
    fn distances(&self, collector: &Collector) -> BTreeMap<NodeId, u32> {
        let Some(at) = collector.at.filter(|at| self.topology.devices.contains_key(at)) else {
            return BTreeMap::new();
        };
        let mut distances = BTreeMap::from([(at, 0)]);
        let mut frontier = VecDeque::from([(at, 0)]);
        while let Some((node, distance)) = frontier.pop_front() {
            for (peer, _) in self.topology.devices[&node].links.values() {
                if !distances.contains_key(peer) {
                    distances.insert(*peer, distance + 1);
                    frontier.push_back((*peer, distance + 1));
                }
            }
        }
        distances
    }

    /// Checks an intent and finds the devices and keys of its entries.
    pub(super) fn place(&self, intent: &Intent) -> Result<Placed, Refusal> {
        let keys = self.keys(intent)?;
        let source_devices = self.sources(intent)?;
        let bits = intent.bits(self.settings.synchronised);
        if bits & !self.known_bits != 0 {
            return Err(Refusal::Bits(bits & !self.known_bits));
        }
        let mode = self.mode(intent, bits)?;
        let bits = bits | (mode.bits() & self.known_bits);
        let mut watchlist_entries = Vec::new();
        for key in &keys {
            let nodes = if mode.embeds() {
                self.edges_of(key.src, &source_devices)
            } else {
                self.all()
            };
            watchlist_entries.extend(nodes.into_iter().map(|node| (node, *key)));
        }
        for (node, key) in &watchlist_entries {
            self.check_entry(*node, key, intent)?;
        }
        let mut sink_entries = Vec::new();
        for key in &keys {
            let nodes = if mode.embeds() {
                self.edges_of(key.dst, &self.edges)
            } else {
                self.all()
            };
            sink_entries.extend(nodes.into_iter().map(|node| (node, *key)));
        }
        self.check_filter(intent, &sink_entries)?;
        let notes = self.notes(bits, mode);
        Ok(Placed {
            intent: Arc::new(intent.clone()),
            keys,
            mode,
            bits,
            watchlist_entries,
            sink_entries,
            notes,
        })
    }

    fn all(&self) -> Vec<NodeId> {
        self.topology.devices.keys().copied().collect()
    }

    fn notes(&self, bits: Bits, mode: Mode) -> Vec<Note> {
        let mut notes = Vec::new();
        // Fast path: most intents request only bits that every device can fill.
        if bits & !self.common_bits != 0 {
            for (node, capabilities) in &self.capabilities {
                if bits & !capabilities.bits != 0 {
                    notes.push(Note::Incomplete {
                        node: *node,
                        device: self.name(*node),
                        bits: bits & !capabilities.bits,
                    });
                }
            }
        }
        if mode.embeds() {
            notes.extend(self.restart_notes.iter().cloned());
            if self.longest_packet.is_none() || (self.smallest_mtu.is_none() && self.longest_path > 0) {
                notes.push(Note::MtuNotKnown);
            }
        }
        notes
    }

    /// Returns the intent's keys. If the intent names two hosts, the keys are narrowed to the flows between them.
    pub(super) fn keys(&self, intent: &Intent) -> Result<Vec<FlowMatch>, Refusal> {
        let keys = intent
            .entries()
            .map_err(|error| Refusal::Intent(IntentError::Flows(error)))?;
        let Some((a, b)) = &intent.at.between else {
            return Ok(keys);
        };
        let from = self.host(a)?;
        let to = self.host(b)?;
        let mut between = BTreeSet::new();
        for (src, dst) in from
            .addresses
            .iter()
            .flat_map(|src| to.addresses.iter().map(move |dst| (*src, *dst)))
        {
            let pair = FlowMatch {
                src: Some(src.into()),
                dst: Some(dst.into()),
                ..FlowMatch::default()
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

    fn host(&self, name: &str) -> Result<&Host, Refusal> {
        let host = self
            .inventory
            .host(name)
            .ok_or_else(|| Refusal::UnknownHost(name.to_owned()))?;
        if host.addresses.is_empty() {
            return Err(Refusal::HostWithoutAddress(name.to_owned()));
        }
        Ok(host)
    }

    /// Returns the edge devices that match the intent's `at.edges`, or all of them if it names none.
    fn sources(&self, intent: &Intent) -> Result<BTreeSet<NodeId>, Refusal> {
        if self.edges.is_empty() {
            return Err(Refusal::NoEdge);
        }
        if intent.at.edges.is_empty() {
            return Ok(self.edges.clone());
        }
        let mut sources = BTreeSet::new();
        for pattern in &intent.at.edges {
            let matching: Vec<NodeId> = self
                .edges
                .iter()
                .copied()
                .filter(|node| self.is_named(*node, pattern))
                .collect();
            if matching.is_empty() {
                return Err(Refusal::NoSuchEdge(pattern.clone()));
            }
            sources.extend(matching);
        }
        Ok(sources)
    }

    /// Returns whether the device's name or one of its labels matches the pattern.
    fn is_named(&self, node: NodeId, pattern: &str) -> bool {
        self.inventory.device(node).is_some_and(|device| {
            std::iter::once(&device.name)
                .chain(&device.labels)
                .any(|name| matches_pattern(pattern, name))
        })
    }

    /// Returns the devices of `edges` where packets with this address enter or leave the network. For a host with a known
    /// port, that is a single device.
    fn edges_of(&self, prefix: Option<Prefix>, edges: &BTreeSet<NodeId>) -> Vec<NodeId> {
        let single = prefix.filter(is_single_address);
        let host = single.and_then(|prefix| self.inventory.host_by_address(prefix.network()));
        match host.and_then(|host| host.at) {
            Some((node, _)) => edges.get(&node).copied().into_iter().collect(),
            None => edges.iter().copied().collect(),
        }
    }

    /// Selects the mode: the one that the intent names, or the cheapest one that works.
    fn mode(&self, intent: &Intent, bits: Bits) -> Result<Mode, Refusal> {
        if let Some(mode) = intent.mode {
            return self.check_mode(mode, intent, bits).map(|()| mode);
        }
        let mut modes = Mode::ALL;
        modes.sort_by_key(|mode| self.cost(*mode, bits));
        let mut refusals = Vec::new();
        for mode in modes {
            match self.check_mode(mode, intent, bits) {
                Ok(()) => return Ok(mode),
                Err(refusal) => refusals.push((mode, refusal)),
            }
        }
        // Report the leak or MTU problem in preference to a lack of support for postcards, because the operator can solve it.
        let first = refusals
            .iter()
            .find(|(_, refusal)| !matches!(refusal, Refusal::NoMode(_)));
        if let Some((_, refusal)) = first {
            return Err(refusal.clone());
        }
        let reasons = refusals.into_iter().map(|(mode, refusal)| match refusal {
            Refusal::NoMode(mut reasons) => {
                (mode, reasons.pop().map(|(_, reason)| reason).unwrap_or_default())
            }
            other => (mode, other.to_string()),
        });
        Err(Refusal::NoMode(reasons.collect()))
    }

    /// Returns the bytes that one measured packet adds on the longest path: INT on each link, and the reports.
    fn cost(&self, mode: Mode, bits: Bits) -> u32 {
        /// Headers of a report: Ethernet, IPv4, UDP, Telemetry Report 2.0, and the truncated packet.
        const REPORT: u32 = 14 + 20 + 8 + 16 + 60;
        let record = instruction::record_bytes(bits);
        let links = self.longest_path;
        let nodes = links + 1;
        match mode {
            Mode::Md => HEADER_BYTES * links + record * links * nodes / 2 + REPORT + record * nodes,
            Mode::Sf => (HEADER_BYTES + record) * links + REPORT + record,
            Mode::Mx => HEADER_BYTES * links + nodes * (REPORT + record),
            Mode::Postcard => nodes * (REPORT + record),
        }
    }

    fn check_mode(&self, mode: Mode, intent: &Intent, bits: Bits) -> Result<(), Refusal> {
        let without_mode = Mode::ALL
            .into_iter()
            .zip(self.without_mode)
            .find(|(supported, _)| *supported == mode);
        let unsupported = if let Some((_, Some(node))) = without_mode {
            Some(format!("{} does not support it", self.name(node)))
        } else if mode == Mode::Sf && intent.watch.contains(&detect::Metric::FlowLatency) {
            Some("its packets do not have the latency of the flow".to_owned())
        } else if mode == Mode::Sf && intent.reporting.filter.is_some() {
            Some("filters do not apply to it".to_owned())
        } else {
            None
        };
        if let Some(reason) = unsupported {
            return Err(Refusal::NoMode(vec![(mode, reason)]));
        }
        if !mode.embeds() {
            return Ok(());
        }
        if let Some(device) = &self.leaking_device {
            return Err(Refusal::Leak(device.clone()));
        }
        if let Some(node) = self.without_checksum {
            return Err(Refusal::Checksum(
                self.name(node),
                self.settings.encoding.l4_checksum.name(),
            ));
        }
        self.check_mtu(mode, bits, false)
    }

    fn check_entry(&self, node: NodeId, key: &FlowMatch, intent: &Intent) -> Result<(), Refusal> {
        let capabilities = &self.capabilities[&node];
        if let Some(why) = inexpressible(&capabilities.matches, key) {
            return Err(Refusal::Match {
                device: self.name(node),
                key: Box::new(*key),
                why,
            });
        }
        if intent.samples() && !capabilities.sampling {
            return Err(Refusal::Sampling(self.name(node)));
        }
        Ok(())
    }

    fn check_filter(&self, intent: &Intent, sink_entries: &[(NodeId, FlowMatch)]) -> Result<(), Refusal> {
        let Some(filter) = intent.reporting.filter else {
            return Ok(());
        };
        let without_filter = sink_entries.iter().map(|(node, _)| *node).find(|node| {
            let capabilities = &self.capabilities[node];
            capabilities.filter_entries == 0 || !capabilities.filters.contains(&filter)
        });
        if let Some(node) = without_filter {
            return Err(Refusal::Filter(self.name(node), filter.name()));
        }
        let Some(rule) = &intent.reporting.rule else {
            return Ok(());
        };
        if filter != FilterAlgorithm::Rule {
            return Ok(());
        }
        let nodes: BTreeSet<NodeId> = sink_entries.iter().map(|(node, _)| *node).collect();
        for node in nodes {
            if let Some(why) = self.capabilities[&node].rules.problem(rule) {
                return Err(Refusal::FilterRule(self.name(node), why));
            }
        }
        Ok(())
    }
}

/// Returns the bytes of INT in a packet on the last link of a path of `links` links.
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

fn is_single_address(prefix: &Prefix) -> bool {
    Prefix::from(prefix.network()) == *prefix
}

/// Returns the part of a key that a device cannot express, with the nearest alternative, or `None` if it can match the key.
fn inexpressible(kinds: &MatchKinds, key: &FlowMatch) -> Option<&'static str> {
    let prefixes = [key.src, key.dst];
    let ports = [key.sport, key.dport];
    if !kinds.ipv6 && prefixes.iter().flatten().any(Prefix::is_v6) {
        return Some("it matches IPv4 only; use IPv4 prefixes there");
    }
    if !kinds.dscp && key.dscp.is_some() {
        return Some("it does not match DSCP; remove `dscp`");
    }
    if !kinds.prefixes && prefixes.iter().flatten().any(|prefix| !is_single_address(prefix)) {
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
    let has_wildcard =
        prefixes.contains(&None) || ports.contains(&ANY_PORT) || (kinds.protocol && key.proto.is_none());
    if !kinds.wildcards && has_wildcard {
        return Some("it needs source, destination, both ports and protocol; add what is missing");
    }
    None
}
