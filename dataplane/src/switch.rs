//! One INT switch: parses a packet at egress, dispatches it to source, transit or sink, and counts the outcome.
//!
//! All processing takes place at egress, after the queue, because only there the latency and queue occupancy of a packet are
//! known. Packets from hosts pass the source, packets to hosts pass the sink.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};

use detect::Match;
use wire::int::Sf;
use wire::{Profile, Refusal};

pub use crate::config::{Config, ConfigError, Congestion, Mark};
pub use crate::l4_checksum::L4Checksum;
pub use crate::node::Stats;
pub use crate::visit::{Verdict, Visit};

use crate::dta::{Event, SwitchReporter, Trigger};
use crate::export;
use crate::filter::Filters;
use crate::l4_checksum;
use crate::node::{IntOutcome, Node, PacketResult, verdict};
use crate::packet::direct::{self, Common};
use crate::packet::{CarriedInt, Parsed, ParsedPacket};
use crate::report::{Exporter, Outbox};
use crate::sampling::{self, Counted};
use crate::sf::Registers;
use crate::sink;
use crate::source::{self, SourceResult};
use crate::transit;
use crate::watchlist::{Mode, Role, Roles, Watch, Watchlist};

/// Result of forwarding a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// Whether to send the packet.
    pub verdict: Verdict,
    /// Whether this switch's measurement is on the packet's stack, or in a report.
    pub recorded: bool,
    /// SF-INT header with which the packet leaves, or that the sink reported.
    pub sf: Option<Sf>,
}

/// An INT switch without I/O: it gets bytes and measurements, and returns bytes and reports.
///
/// ```
/// use dataplane::report::Outbox;
/// use dataplane::switch::{Config, Verdict, Visit};
/// use dataplane::{Switch, Watch};
/// use wire::{Profile, packet};
///
/// let mut frame = testkit::vectors::bytes("roce_write_only"); // a host's packet: an RDMA write over UDP
/// let original = frame.clone();
/// let mut source = Switch::new(101, Config::default(), Watch::new(detect::Match::default()).into())?;
/// let mut sink = Switch::new(102, Config::default(), Watch::new(detect::Match::default()).into())?;
/// let mut reports = Outbox::default();
/// let visit = Visit {
///     ingress_if: 1, egress_if: 2, ingress_ts: 1_000, egress_ts: 2_500, queue_id: 0, queue_occupancy: 64,
///     tx_utilization: 120, buffer_occupancy: 0, l2_interfaces: [0; 2], mtu: 1500,
///     from_edge: true, to_edge: false, from_border: true,
/// };
/// let step = source.forward(&mut frame, &visit, &mut reports);
/// assert_eq!((step.verdict, step.recorded), (Verdict::Forward, true));
/// let int = packet::contents(&frame, &Profile::default())?.int.expect("the source inserted INT");
/// assert_eq!((int.stack.len(), int.stack.hop(0).node_id), (1, Some(101)));
///
/// // The sink reports the packet and removes INT.
/// sink.forward(&mut frame, &Visit { from_edge: false, from_border: false, to_edge: true, ..visit }, &mut reports);
/// assert_eq!(frame, original);
/// assert_eq!(reports.datagrams().count(), 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Switch {
    node: Node,
    watchlist: Watchlist,
    /// Sampling counters of each entry of the watchlist.
    samplers: Vec<Counted>,
    roles: Roles,
    /// Remaining quota of packet reports per congested queue, by egress interface and queue.
    congested: BTreeMap<(u16, u8), u32>,
    /// Whether common packets take the fast path; tests disable it.
    fast_path: bool,
}

impl Switch {
    /// Creates a switch with the node id `node`.
    ///
    /// # Errors
    /// Returns an error if the configuration contradicts itself or the watchlist.
    pub fn new(node: u32, config: Config, watchlist: Watchlist) -> Result<Self, ConfigError> {
        config.check(&watchlist)?;
        let mut profile = Profile {
            dscp: config.mark.dscp,
            dscp_mask: 0x3f,
            ..Profile::default()
        };
        profile.int_udp_port = config.mark.port.unwrap_or(0);
        let node = Node {
            id: node,
            filters: Filters::default(),
            profile,
            exporter: Exporter::new(node, config.format),
            registers: Registers::new(config.sf),
            cache: direct::Cache::NEW,
            stats: Stats::default(),
            dta: None,
            config,
        };
        let samplers = vec![Counted::default(); watchlist.entries().len()];
        Ok(Self {
            node,
            watchlist,
            samplers,
            roles: Roles::default(),
            congested: BTreeMap::new(),
            fast_path: true,
        })
    }

    /// Clears the registers of SF-INT, as a restart does. Counters continue.
    pub fn wipe_registers(&mut self) {
        self.node.registers.wipe();
    }

    /// Returns the registers of SF-INT.
    pub fn registers(&self) -> &Registers {
        &self.node.registers
    }

    /// Returns the registers of SF-INT for changes.
    pub fn registers_mut(&mut self) -> &mut Registers {
        &mut self.node.registers
    }

    /// Returns the counters of the switch.
    pub fn stats(&self) -> &Stats {
        &self.node.stats
    }

    /// Sets or removes the DTA reporter, whose reports replace Telemetry Reports or are sent in addition.
    pub fn set_dta(&mut self, dta: Option<SwitchReporter>) {
        self.node.dta = dta.map(Box::new);
    }

    /// Returns the DTA reporter, if there is one.
    pub fn dta(&self) -> Option<&SwitchReporter> {
        self.node.dta.as_deref()
    }

    /// Returns the DTA reporter for changes: the caller sends its reports and passes control messages to it.
    pub fn dta_mut(&mut self) -> Option<&mut SwitchReporter> {
        self.node.dta.as_deref_mut()
    }

    /// Replaces the watchlist. An entry with the flows and mode of an old entry keeps its counters.
    ///
    /// # Errors
    /// Returns an error if the list contradicts the configuration; the old one then stays.
    pub fn watch(&mut self, watchlist: Watchlist) -> Result<(), ConfigError> {
        self.node.config.check(&watchlist)?;
        let old: HashMap<Match, (Mode, Counted)> = self
            .matched()
            .map(|(watch, sampler)| (watch.flows, (watch.mode, sampler)))
            .collect();
        let samplers = watchlist
            .entries()
            .iter()
            .map(|watch| match old.get(&watch.flows) {
                Some((mode, sampler)) if *mode == watch.mode => sampler.continuing(watch.sample),
                _ => Counted::default(),
            });
        self.samplers = samplers.collect();
        self.watchlist = watchlist;
        Ok(())
    }

    /// Iterates over the entries of the watchlist, with counters of the matching packets that carry no INT: at a source, or at
    /// any node that sends postcards.
    pub fn matched(&self) -> impl Iterator<Item = (&Watch, Counted)> {
        self.watchlist.entries().iter().zip(self.samplers.iter().copied())
    }

    /// Replaces the roles of flows. Other flows get their role from the ports.
    pub fn set_roles(&mut self, roles: Roles) {
        self.roles = roles;
    }

    /// Returns the flows with a configured role.
    pub fn roles(&self) -> &Roles {
        &self.roles
    }

    /// Replaces the report filters. Filters that existed before keep their state.
    pub fn set_filters(&mut self, filters: Filters) {
        let old = std::mem::take(&mut self.node.filters);
        self.node.filters = filters.continuing(old);
    }

    /// Returns the filters, each with the counts of its decisions.
    pub fn filters(&self) -> &Filters {
        &self.node.filters
    }

    /// Replaces the thresholds of queue reports. A congested queue stays congested until it recovers, with the rest of its
    /// quota; `None` clears this state.
    ///
    /// # Errors
    /// Returns an error if `fall` is not below `rise`; the active configuration then stays.
    pub fn set_congestion(&mut self, congestion: Option<Congestion>) -> Result<(), ConfigError> {
        let config = Config {
            congestion,
            ..self.node.config.clone()
        };
        config.check(&self.watchlist)?;
        self.node.config = config;
        match congestion {
            Some(limits) => self
                .congested
                .values_mut()
                .for_each(|left| *left = limits.quota.min(*left)),
            None => self.congested.clear(),
        }
        Ok(())
    }

    /// Returns the watchlist: the flows that the switch watches.
    pub fn watchlist(&self) -> &Watchlist {
        &self.watchlist
    }

    /// Replaces the DSCP that marks packets with INT, and the treatment of the L4 checksum. Packets marked by the old DSCP are
    /// no longer recognised, so change it only while no packet in the domain carries INT.
    ///
    /// # Errors
    /// Returns an error if the DSCP contradicts the configuration or the watchlist; the active configuration then stays.
    pub fn set_encoding(&mut self, dscp: u8, l4_checksum: L4Checksum) -> Result<(), ConfigError> {
        let mut config = Config {
            l4_checksum,
            ..self.node.config.clone()
        };
        config.mark.dscp = dscp;
        config.check(&self.watchlist)?;
        self.node.profile.dscp = dscp;
        self.node.cache = direct::Cache::NEW;
        self.node.config = config;
        Ok(())
    }

    /// Returns the active configuration.
    pub fn config(&self) -> &Config {
        &self.node.config
    }

    /// Sets the instruction bits that this switch supports; see [`Config::available`].
    pub fn set_available(&mut self, bits: u16) {
        self.node.config.available = bits;
    }

    /// Processes and forwards a packet, starting at its Ethernet header, that leaves now. Appends reports to `out`.
    pub fn forward(&mut self, frame: &mut Vec<u8>, visit: &Visit, out: &mut Outbox) -> Step {
        let mut direct = direct::read(frame, &self.node.profile, &mut self.node.cache);
        if visit.is_from_outside() && direct.is_none_or(|common| common.int.is_some()) {
            if !self.strip_at_border(frame) {
                return Step {
                    verdict: Verdict::Discard,
                    recorded: false,
                    sf: None,
                };
            }
            direct = direct::read(frame, &self.node.profile, &mut self.node.cache);
        }
        let setting = self.node.config.l4_checksum;
        let original_checksum = l4_checksum::Before::read(frame, setting);
        let outcome = match direct {
            Some(common) => self.process_common(frame, common, visit, out),
            None => self.process_uncommon(frame, visit, out),
        };
        if let Some(original_checksum) = original_checksum {
            if setting == L4Checksum::Leave && matches!(outcome.outcome, IntOutcome::Recorded) {
                original_checksum.complement(frame, &self.node.profile);
            }
            original_checksum.apply(frame, setting, visit.to_edge);
        }
        let stats = &mut self.node.stats;
        match outcome.outcome {
            IntOutcome::Plain => stats.plain += 1,
            IntOutcome::Refused => stats.refused += 1,
            IntOutcome::Recorded => stats.recorded += 1,
            IntOutcome::Swapped => stats.swapped += 1,
            IntOutcome::HopsExceeded => stats.hops_exceeded += 1,
            IntOutcome::MtuExceeded => stats.mtu_exceeded += 1,
            IntOutcome::NotRestorable => stats.not_restorable += 1,
            IntOutcome::Reported => stats.reported += 1,
            IntOutcome::Filtered => stats.filtered += 1,
        }
        let is_reported_or_filtered = matches!(outcome.outcome, IntOutcome::Reported | IntOutcome::Filtered);
        if visit.to_edge
            && is_reported_or_filtered
            && l4_checksum::is_sampled(stats.reported + stats.filtered)
        {
            stats.checksums_examined += 1;
            stats.checksums_wrong += u64::from(!l4_checksum::is_valid(frame));
        }
        let is_recorded = matches!(outcome.outcome, IntOutcome::Recorded | IntOutcome::Reported);
        Step {
            verdict: outcome.verdict,
            recorded: is_recorded,
            sf: outcome.sf,
        }
    }

    /// Removes INT from a packet that arrived from outside the domain. Returns `false` if more INT, or a mark of it, follows,
    /// so that the packet must be dropped.
    #[cold]
    #[inline(never)]
    fn strip_at_border(&mut self, frame: &mut Vec<u8>) -> bool {
        let Some(carried) = self.node.removable(frame) else {
            return true;
        };
        sink::strip(frame, &carried);
        let is_plain = self.node.is_plain(frame);
        let stats = &mut self.node.stats;
        stats.edge_stripped += u64::from(is_plain);
        stats.edge_refused += u64::from(!is_plain);
        stats.refused += u64::from(!is_plain);
        is_plain
    }

    /// Returns the frame as [`Self::strip_at_border`] would leave it, without counting; `None` if the packet would be dropped.
    fn without_outside_int<'a>(&self, frame: &'a [u8], visit: &Visit) -> Option<Cow<'a, [u8]>> {
        let carried = visit
            .is_from_outside()
            .then(|| self.node.removable(frame))
            .flatten();
        let Some(carried) = carried else {
            return Some(frame.into());
        };
        let mut stripped = frame.to_vec();
        sink::strip(&mut stripped, &carried);
        self.node.is_plain(&stripped).then(|| stripped.into())
    }

    /// Reports a packet that is dropped with the device's reason code `reason`, if its flow is watched for drops. `visit`
    /// contains the known values. Returns whether the flow is watched for drops.
    pub fn dropped(&mut self, frame: &[u8], visit: &Visit, reason: u8, out: &mut Outbox) -> bool {
        let Some(frame) = self.without_outside_int(frame, visit) else {
            return false;
        };
        let frame = &*frame;
        let node = &mut self.node;
        let Ok(parsed) = ParsedPacket::parse(frame, &node.profile) else {
            return false;
        };
        // Without an entry for the flow, a node reports what the flow's source watches: packets that carry INT.
        let entry = parsed.flow.and_then(|flow| self.watchlist.find(&flow));
        let is_watched = entry.map_or(parsed.carried.is_some(), |watch| watch.drops);
        let metadata = visit.hop(node.id, u16::MAX);
        let is_replaced_by_dta = node.dta.as_mut().is_some_and(|dta| {
            let event = Event {
                reason: Some(reason),
                ..Event::new(Trigger::Drop, &metadata)
            };
            if !is_watched {
                dta.dropped(node.id, frame, &parsed, visit);
            }
            is_watched && dta.report(node.id, frame, &parsed, visit, event)
        });
        node.stats.drops_reported += u64::from(is_watched);
        if is_watched && !is_replaced_by_dta {
            node.exporter.drop_report(frame, &parsed, &metadata, reason, out);
        }
        is_watched
    }

    /// Sends the reports of groups that are not full.
    pub fn flush(&mut self, out: &mut Outbox) {
        self.node.exporter.flush(out);
    }

    /// Returns whether reports wait for their group to fill.
    pub fn has_pending_reports(&self) -> bool {
        self.node.exporter.has_pending_reports()
    }

    /// Returns the flow of a frame, as it was before INT.
    pub fn flow_of(&self, frame: &[u8]) -> Option<wire::FlowKey> {
        ParsedPacket::parse(frame, &self.node.profile).ok()?.flow
    }

    /// Returns the frame without INT, or `None` if it carries no INT that this switch supports.
    pub fn without_int(&self, frame: &[u8]) -> Option<Vec<u8>> {
        let carried = self.carried(frame)?;
        let mut stripped = frame.to_vec();
        sink::strip(&mut stripped, &carried);
        Some(stripped)
    }

    fn carried(&self, frame: &[u8]) -> Option<CarriedInt> {
        ParsedPacket::parse(frame, &self.node.profile).ok()?.carried
    }

    /// Reports and strips the INT of a packet that is consumed here, regardless of the roles of flows. Leaves a packet without
    /// INT unchanged.
    pub fn end_int(&mut self, frame: &mut Vec<u8>, visit: &Visit, out: &mut Outbox) -> Verdict {
        if visit.is_from_outside() && !self.strip_at_border(frame) {
            return Verdict::Discard;
        }
        if self.carried(frame).is_none() {
            return Verdict::Forward;
        }
        let verdict = self
            .forward(
                frame,
                &Visit {
                    to_edge: true,
                    ..*visit
                },
                out,
            )
            .verdict;
        // If the flow is `off` or in transit at this switch, its INT is still there.
        if let Some(carried) = self.carried(frame) {
            sink::strip(frame, &carried);
        }
        verdict
    }

    /// Processes a common packet. Its parsed form stays in CPU registers unless it leaves the fast path.
    #[inline(always)]
    fn process_common(
        &mut self,
        frame: &mut Vec<u8>,
        common: Common,
        visit: &Visit,
        out: &mut Outbox,
    ) -> PacketResult {
        if self.sees_every_packet() {
            self.observe(frame, Parsed::Direct(common), visit, out);
        }
        if let Some(outcome) = self.process_direct(frame, common, visit, out) {
            return outcome;
        }
        let parsed = common.parse_fully(frame, &self.node.cache);
        self.process_any(frame, parsed, visit, out)
    }

    /// Processes a packet that the fast path of the parser does not support.
    #[inline(never)]
    fn process_uncommon(&mut self, frame: &mut Vec<u8>, visit: &Visit, out: &mut Outbox) -> PacketResult {
        let parsed = ParsedPacket::parse(frame, &self.node.profile);
        if self.sees_every_packet() {
            self.observe(frame, Parsed::Full(parsed), visit, out);
        }
        match parsed {
            Ok(parsed) => self.process_any(frame, parsed, visit, out),
            Err(refusal) => self.refuse(frame, refusal, visit),
        }
    }

    /// Returns whether DTA or queue reports must see every packet.
    #[inline(always)]
    fn sees_every_packet(&self) -> bool {
        self.node.dta.is_some() || self.node.config.congestion.is_some()
    }

    /// Passes a packet to the DTA reporter, if that needs every packet, and checks the packet's queue for congestion.
    #[inline(never)]
    fn observe(&mut self, frame: &[u8], packet: Parsed, visit: &Visit, out: &mut Outbox) {
        let node = &mut self.node;
        if node.dta.as_ref().is_some_and(|dta| dta.needs_packets())
            && let Ok(parsed) = node.parse_fully(frame, packet)
            && let Some(dta) = &mut node.dta
        {
            dta.packet(node.id, frame, &parsed, visit);
        }
        self.watch_queue(frame, packet, visit, out);
    }

    /// Processes a common packet with INT on the fast path. Returns `None`, with nothing changed, if the packet needs
    /// [`Self::process_any`].
    #[inline(always)]
    fn process_direct(
        &mut self,
        frame: &mut Vec<u8>,
        common: Common,
        visit: &Visit,
        out: &mut Outbox,
    ) -> Option<PacketResult> {
        let int = common
            .int
            .filter(|_| self.fast_path && self.roles.entries().is_empty())?;
        if !visit.to_edge {
            return transit::process_direct(&mut self.node, frame, common, int, visit);
        }
        if self.node.dta.is_some() {
            return None;
        }
        sink::process_direct(&mut self.node, frame, common, int, visit, out)
    }

    /// Forwards a packet with malformed headers or INT unchanged. A sink removes INT if only the stack is malformed.
    #[inline(never)]
    fn refuse(&mut self, frame: &mut Vec<u8>, refusal: Refusal, visit: &Visit) -> PacketResult {
        let Node { stats, profile, .. } = &mut self.node;
        stats.plain_nodes += u64::from(refusal == Refusal::BadSfStack);
        let Some(carried) = CarriedInt::malformed(frame, profile).filter(|_| visit.to_edge) else {
            return PacketResult::forward(IntOutcome::Refused);
        };
        stats.malformed_stripped += 1;
        sink::strip(frame, &carried);
        PacketResult {
            verdict: verdict(carried.flags, visit),
            ..PacketResult::forward(IntOutcome::Refused)
        }
    }

    /// Processes any parsed packet: at the source if it has no INT, and then at transit or sink.
    #[inline(never)]
    fn process_any(
        &mut self,
        frame: &mut Vec<u8>,
        parsed: ParsedPacket,
        visit: &Visit,
        out: &mut Outbox,
    ) -> PacketResult {
        let role = parsed.flow.and_then(|flow| self.roles.find(&flow));
        if role == Some(Role::Off) {
            return PacketResult::forward(IntOutcome::Plain);
        }
        let visit = &role.map_or(*visit, |role| visit.in_role(role));
        let parsed = match self.apply_source(frame, parsed, visit, out) {
            SourceResult::Continue(parsed) => parsed,
            SourceResult::Finished(outcome) => return outcome,
        };
        let ParsedPacket {
            flow,
            carried: Some(carried),
            ..
        } = &parsed
        else {
            return PacketResult::forward(IntOutcome::Plain);
        };
        let process = if visit.to_edge {
            sink::process
        } else {
            transit::process
        };
        process(&mut self.node, frame, flow.as_ref(), carried, visit, out)
    }

    /// Inserts INT, or sends a postcard, if the packet has no INT and its flow is watched and sampled.
    fn apply_source(
        &mut self,
        frame: &mut Vec<u8>,
        parsed: ParsedPacket,
        visit: &Visit,
        out: &mut Outbox,
    ) -> SourceResult {
        if parsed.carried.is_some() {
            return SourceResult::Continue(parsed);
        }
        let node = &mut self.node;
        let plain = SourceResult::Finished(PacketResult::forward(IntOutcome::Plain));
        if parsed.unsupported {
            return SourceResult::Finished(PacketResult::forward(IntOutcome::Refused));
        }
        let (Some(flow), Some(headers)) = (parsed.flow, parsed.headers) else {
            return plain;
        };
        let Some(index) = self.watchlist.position(&flow) else {
            return plain;
        };
        let watch = &self.watchlist.entries()[index];
        let is_postcard = watch.mode == Mode::Postcard;
        if !is_postcard && !visit.from_edge {
            return plain;
        }
        let sampler = &mut self.samplers[index];
        let is_measured = if is_postcard {
            sampler.select(watch.sample, || sampling::hash(frame, &headers))
        } else {
            sampler.count(watch.sample)
        };
        if !is_measured {
            return plain;
        }
        if is_postcard {
            return SourceResult::Finished(export::postcard(node, frame, &flow, &headers, watch, visit, out));
        }
        source::process(node, frame, &flow, &headers, watch, visit)
    }

    /// Reports a queue that becomes congested or recovers, and the packets that pass it while it is congested.
    #[inline]
    fn watch_queue(&mut self, frame: &[u8], packet: Parsed, visit: &Visit, out: &mut Outbox) {
        let Some(limits) = self.node.config.congestion else {
            return;
        };
        let queue = (visit.egress_if, visit.queue_id);
        let becomes_congested = match self.congested.get_mut(&queue) {
            None if visit.queue_occupancy >= limits.rise => true,
            Some(_) if visit.queue_occupancy <= limits.fall => false,
            Some(quota) if *quota > 0 => {
                let Ok(parsed) = self.node.parse_fully(frame, packet) else {
                    return;
                };
                *quota -= 1;
                return self.report_congested(frame, &parsed, visit, out);
            }
            _ => return,
        };
        if becomes_congested {
            self.congested.insert(queue, limits.quota);
        } else {
            self.congested.remove(&queue);
        }
        let node = &mut self.node;
        node.stats.queues_reported += 1;
        let metadata = visit.hop(node.id, u16::MAX);
        let is_replaced_by_dta = node
            .dta
            .as_mut()
            .is_some_and(|dta| dta.queue(node.id, &metadata, becomes_congested, visit.egress_ts));
        if !is_replaced_by_dta {
            node.exporter.queue_report(&metadata, out);
        }
    }

    /// Reports a packet that passes a congested queue, by DTA or in a queue report.
    fn report_congested(&mut self, frame: &[u8], parsed: &ParsedPacket, visit: &Visit, out: &mut Outbox) {
        let node = &mut self.node;
        node.stats.congested_reported += 1;
        let metadata = visit.hop(node.id, u16::MAX);
        if let Some(dta) = &mut node.dta {
            let event = Event {
                congested: Some(true),
                ..Event::new(Trigger::CongestedPacket, &metadata)
            };
            if dta.report(node.id, frame, parsed, visit, event) {
                return;
            }
        }
        node.exporter.congested_packet(frame, parsed, &metadata, out);
    }
}

#[cfg(test)]
mod border_tests;
#[cfg(test)]
mod fast_path_tests;
#[cfg(test)]
pub(crate) mod tests;
