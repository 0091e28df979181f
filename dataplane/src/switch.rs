//! One INT switch: what happens to a packet on its way out, and what is told about it.
//!
//! Everything is done where the egress queue is behind the packet, because only there the time it took and the queue it met
//! are known. A packet that came in from a host is a source's business, one that leaves to a host a sink's.

use std::fmt;

use wire::int::sf::State;
use wire::int::{Flags, Sf, Stack};
use wire::{FlowKey, Profile};

use crate::dta::{Attached, Happened, Occasion};
use crate::filter::{Filters, Own};
use crate::packet::{Carried, Headers, Seen, direct};
use crate::report::{Exporter, Format, Outbox, Told};
use crate::sf::{self, Arrival, Form, Registers, Traded};
use crate::sink;
use crate::source::{self, Inserted};
use crate::transit::{self, Pushed};
use crate::watchlist::{Mode, Role, Roles, Watch, Watchlist};

/// How a switch takes part in INT.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// How packets with INT are told from others, in the whole domain.
    pub mark: Mark,
    /// Instruction bits this switch can deliver (as in an instruction bitmap); for others it writes all-ones. Bit 15 means
    /// that it would compute a checksum complement; it never does, because it updates the L4 checksum itself.
    pub available: u16,
    /// How it reports.
    pub format: Format,
    /// Queue depths it reports.
    pub congestion: Option<Congestion>,
    /// How it takes part in SF-INT.
    pub sf: sf::Config,
}

impl Default for Config {
    /// Marked by DSCP 0x17; level-2 interfaces and buffer occupancy unavailable; Report 2.0.
    fn default() -> Self {
        Self {
            mark: Mark::default(),
            available: 0xfd00,
            format: Format::default(),
            congestion: None,
            sf: sf::Config::default(),
        }
    }
}

/// How packets with INT are told from others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    /// DSCP of packets with INT, 1 to 63.
    pub dscp: u8,
    /// If given, 2.1 packets are marked by this UDP destination port instead, TCP ones by an inserted UDP header.
    pub port: Option<u16>,
}

impl Default for Mark {
    fn default() -> Self {
        Self { dscp: Profile::DSCP, port: None }
    }
}

/// When a queue is reported: once when a packet finds at least `rise` in it, and once when one then finds at most `fall`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Congestion {
    /// Occupancy at which it is congested, queue units.
    pub rise: u32,
    /// Occupancy at which it no longer is; less than `rise`.
    pub fall: u32,
    /// While it is congested, this many packets that pass it are reported too, each with its occupancy and the head of the
    /// packet; then there is silence until it has recovered.
    pub quota: u32,
}

/// Why a configuration was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConfigError {
    /// DSCP 0 marks everything, and more than six bits do not fit.
    BadDscp(u8),
    /// UDP port 0 cannot mark.
    BadPort,
    /// MX, postcards and compact SF-INT reports need Report 2.0.
    NeedsReport20,
    /// An instruction bitmap without any defined bit measures nothing.
    EmptyBitmap,
    /// `fall` must be below `rise`.
    BadCongestion,
    /// SF-INT needs the node id, a hop, and no checksum complement.
    BadSfWatch,
    /// Registers are a power of two, up to 2^20; every how many packets one is urgent, at least 1.
    BadRegisters,
    /// Only Report 2.0 can group, 1 to 64 reports; subsystems are 1 to 64.
    BadFormat,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BadDscp(dscp) => write!(f, "the DSCP that marks INT must be 1 to 63, not {dscp}"),
            Self::BadPort => f.write_str("the UDP port that marks INT must not be 0"),
            Self::NeedsReport20 => {
                f.write_str("INT-MX, postcards and compact SF-INT reports need Report 2.0")
            }
            Self::BadSfWatch => f.write_str(
                "SF-INT needs at least one hop and instruction bit 0 (the node id), and cannot have bit 15",
            ),
            Self::BadRegisters => f.write_str(
                "SF-INT registers must be a power of two up to 1048576, and packets between urgent ones at least 1",
            ),
            Self::EmptyBitmap => f.write_str("a watch needs at least one instruction bit"),
            Self::BadCongestion => f.write_str("queue reports: `fall` must be less than `rise`"),
            Self::BadFormat => {
                f.write_str("groups are 1 to 64 reports (1 for Report 1.0), subsystems 1 to 64")
            }
        }
    }
}

impl std::error::Error for ConfigError {}

/// What a switch knows of one packet beyond its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Visit {
    /// Interface it came in by; 0 is unknown.
    pub ingress_if: u16,
    /// Interface it leaves by; 0 is unknown.
    pub egress_if: u16,
    /// When it came in, ns of the switch's clock.
    pub ingress_ts: u64,
    /// When it leaves, ns of the switch's clock.
    pub egress_ts: u64,
    /// Queue it leaves through.
    pub queue_id: u8,
    /// What it found there, device units; clamped to what 24 bits can say.
    pub queue_occupancy: u32,
    /// Utilisation of the egress link, device units.
    pub tx_utilization: u32,
    /// Largest IP packet that the egress link takes, bytes.
    pub mtu: u16,
    /// It came from outside the domain.
    pub from_edge: bool,
    /// It leaves the domain.
    pub to_edge: bool,
}

/// What is to be done with the packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Send it.
    Forward,
    /// It was made for measurement only (D); its way ends here.
    Discard,
}

/// What became of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// What is to be done with it.
    pub verdict: Verdict,
    /// This switch's measurement is on the packet's stack or in a report.
    pub recorded: bool,
    /// What a packet of SF-INT carries on, or carried when the sink told of it.
    pub sf: Option<Sf>,
}

/// What a switch has done since it was made. Every packet is in one of the first eight.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Packets without INT that stayed so.
    pub plain: u64,
    /// Packets whose INT is malformed or of a kind this switch does not handle; passed on as they were, but for
    /// [`Stats::spoilt_stripped`].
    pub refused: u64,
    /// Packets that carry this switch's record on.
    pub recorded: u64,
    /// Packets of SF-INT that carry another record on: the one they came with, or the one that lay here.
    pub traded: u64,
    /// Packets whose hop count was used up: nothing added, E set.
    pub hops_exceeded: u64,
    /// Packets without room for a record (M set) or, at the source, for INT at all.
    pub mtu_exceeded: u64,
    /// Packets told of: by the sink, or by a node of INT-MX or postcards.
    pub reported: u64,
    /// Packets whose measurement ended here and was not worth a report, as [`Filters`] say.
    pub filtered: u64,
    /// Packets dropped and told of.
    pub drops_reported: u64,
    /// Queues reported.
    pub queues_reported: u64,
    /// Packets reported because they passed a congested queue; see [`Congestion::quota`].
    pub congested_reported: u64,
    /// Of the refused: packets of SF-INT with more than one record, so that a plain INT node is on their way.
    pub plain_nodes: u64,
    /// Of the refused: packets with a stack that cannot be, but a good header, from which this sink took INT, so that no host
    /// sees it.
    pub spoilt_stripped: u64,
    /// How often each rule of SF-INT was applied, by its number; 0: the hop count was used up.
    pub sf_rules: [u64; 10],
    /// Packets that this source has made urgent.
    pub urgent: u64,
}

/// An INT switch. No I/O: bytes and measurements in, bytes and reports out.
#[derive(Debug)]
pub struct Switch {
    node: u32,
    config: Config,
    watchlist: Watchlist,
    roles: Roles,
    filters: Filters,
    profile: Profile,
    exporter: Exporter,
    /// Of each queue that is congested, how many packets may still be reported.
    congested: [Option<u32>; 256],
    registers: Registers,
    cache: direct::Cache,
    /// Common packets are not sent the general way; tests do that.
    strides: bool,
    stats: Stats,
    /// What it reports by DTA.
    dta: Option<Box<Attached>>,
}

impl Switch {
    /// A switch that reports under the id `node`.
    ///
    /// # Errors
    /// When the configuration contradicts itself or the watchlist.
    pub fn new(node: u32, config: Config, watchlist: Watchlist) -> Result<Self, ConfigError> {
        check(&config, &watchlist)?;
        let mut profile = Profile { dscp: config.mark.dscp, dscp_mask: 0x3f, ..Profile::default() };
        profile.int_udp_port = config.mark.port.unwrap_or(0);
        let exporter = Exporter::new(node, config.format);
        let registers = Registers::new(config.sf);
        let (congested, stats) = ([None; 256], Stats::default());
        let (roles, filters) = (Roles::default(), Filters::default());
        Ok(Self {
            node,
            config,
            watchlist,
            roles,
            filters,
            profile,
            exporter,
            congested,
            registers,
            cache: direct::Cache::NEW,
            strides: true,
            stats,
            dta: None,
        })
    }

    /// Empties the registers of SF-INT, as a restart does. Counters go on.
    pub fn wipe_registers(&mut self) {
        self.registers.wipe();
    }

    /// The registers of SF-INT.
    pub fn registers(&self) -> &Registers {
        &self.registers
    }

    /// The registers of SF-INT, to put something in.
    pub fn registers_mut(&mut self) -> &mut Registers {
        &mut self.registers
    }

    /// What it has done.
    pub fn stats(&self) -> &Stats {
        &self.stats
    }

    /// Reports by DTA from now on, instead of by Telemetry Reports or beside them, or no longer.
    pub fn set_dta(&mut self, dta: Option<Attached>) {
        self.dta = dta.map(Box::new);
    }

    /// What it reports by DTA.
    pub fn dta(&self) -> Option<&Attached> {
        self.dta.as_deref()
    }

    /// What it reports by DTA, to take reports out and give control messages in.
    pub fn dta_mut(&mut self) -> Option<&mut Attached> {
        self.dta.as_deref_mut()
    }

    /// Watches other flows from now on.
    ///
    /// # Errors
    /// When the list contradicts the configuration; the old one stays.
    pub fn watch(&mut self, watchlist: Watchlist) -> Result<(), ConfigError> {
        check(&self.config, &watchlist)?;
        self.watchlist = watchlist;
        Ok(())
    }

    /// Takes part in flows as `roles` say from now on, and for others as the ports do.
    pub fn set_roles(&mut self, roles: Roles) {
        self.roles = roles;
    }

    /// Which flows it has a role in, whatever their ports.
    pub fn roles(&self) -> &Roles {
        &self.roles
    }

    /// Reports what `filters` find worth it from now on. Filters that were there before go on with what they know.
    pub fn set_filters(&mut self, filters: Filters) {
        let old = std::mem::take(&mut self.filters);
        self.filters = filters.continuing(old);
    }

    /// The filters, and what they have decided.
    pub fn filters(&self) -> &Filters {
        &self.filters
    }

    /// Reports other queues from now on. One that is congested stays so until it has recovered, with what is left of its
    /// quota; without `congestion` all is forgotten.
    ///
    /// # Errors
    /// `fall` is not below `rise`; what was in force stays.
    pub fn set_congestion(&mut self, congestion: Option<Congestion>) -> Result<(), ConfigError> {
        let config = Config { congestion, ..self.config.clone() };
        check(&config, &self.watchlist)?;
        self.config = config;
        let quota = congestion.map(|limits| limits.quota);
        for left in &mut self.congested {
            *left = quota.and_then(|quota| left.map(|left| left.min(quota)));
        }
        Ok(())
    }

    /// Which flows are watched.
    pub fn watchlist(&self) -> &Watchlist {
        &self.watchlist
    }

    /// Sets which instruction bits it can deliver from now on; see [`Config::available`].
    pub fn set_available(&mut self, bits: u16) {
        self.config.available = bits;
    }

    /// Handles a packet (from its Ethernet header on) that leaves now. Reports go to `out`.
    pub fn forward(&mut self, frame: &mut Vec<u8>, visit: &Visit, out: &mut Outbox) -> Step {
        if self.dta.is_some() {
            self.observe(frame, visit);
        }
        self.watch_queue(frame, visit, out);
        let step = self.measure(frame, visit, out);
        let count = &mut self.stats;
        match step.done {
            Done::Plain => count.plain += 1,
            Done::Refused => count.refused += 1,
            Done::Recorded => count.recorded += 1,
            Done::Traded => count.traded += 1,
            Done::HopsExceeded => count.hops_exceeded += 1,
            Done::MtuExceeded => count.mtu_exceeded += 1,
            Done::Reported => count.reported += 1,
            Done::Filtered => count.filtered += 1,
        }
        let recorded = matches!(step.done, Done::Recorded | Done::Reported);
        Step { verdict: step.verdict, recorded, sf: step.sf }
    }

    /// Tells of a packet that is dropped now for the device's reason `reason`, if its flow is watched for drops. `visit` holds
    /// what is known. True when a report was made.
    pub fn dropped(&mut self, frame: &[u8], visit: &Visit, reason: u8, out: &mut Outbox) -> bool {
        let Ok(seen) = Seen::of(frame, &self.profile) else { return false };
        let watched = seen.flow.and_then(|flow| self.watchlist.find(&flow)).is_some_and(|watch| watch.drops);
        let instead = self.dta.as_mut().is_some_and(|dta| {
            let own = visit.hop(self.node, u16::MAX);
            let happened = Happened { reason: Some(reason), ..Happened::new(Occasion::Drop, &own) };
            if !watched {
                dta.dropped(self.node, frame, &seen, visit);
            }
            watched && dta.tell(self.node, frame, &seen, visit, happened)
        });
        self.stats.drops_reported += u64::from(watched);
        if watched && !instead {
            self.exporter.drop_report(frame, &seen, &visit.hop(self.node, u16::MAX), reason, out);
        }
        watched
    }

    /// Sends reports that wait for their group to fill.
    pub fn flush(&mut self, out: &mut Outbox) {
        self.exporter.flush(out);
    }

    /// Reports wait for their group to fill.
    pub fn holds_reports(&self) -> bool {
        self.exporter.holds_reports()
    }

    /// The flow of a frame, as it was before INT.
    pub fn flow_of(&self, frame: &[u8]) -> Option<wire::FlowKey> {
        Seen::of(frame, &self.profile).ok()?.flow
    }

    /// The frame as it was before INT; `None` when it carries none that this switch handles.
    pub fn without_int(&self, frame: &[u8]) -> Option<Vec<u8>> {
        let carried = Seen::of(frame, &self.profile).ok()?.carried?;
        let mut bare = frame.to_vec();
        sink::strip(&mut bare, &carried);
        Some(bare)
    }

    /// Shows a packet to what counts packets.
    #[inline(never)]
    fn observe(&mut self, frame: &[u8], visit: &Visit) {
        if !self.dta.as_ref().is_some_and(|dta| dta.wants_packets()) {
            return;
        }
        let Ok(seen) = self.see(frame) else { return };
        if let Some(dta) = &mut self.dta {
            dta.packet(self.node, frame, &seen, visit);
        }
    }

    /// Tells by DTA what has happened to a packet. True: that is all, no Telemetry Report is wanted. `bits`: items of its own.
    #[inline]
    fn tell_dta(
        &mut self,
        frame: &[u8],
        (flow, carried): (Option<&FlowKey>, Option<&Carried>),
        (occasion, bits): (Occasion, u16),
        visit: &Visit,
    ) -> bool {
        let Some(dta) = &mut self.dta else { return false };
        let headers = carried.map(|carried| carried.headers).or_else(|| Headers::of(frame));
        let seen = Seen { flow: flow.copied(), headers, carried: carried.copied(), foreign: false };
        let own = visit.hop(self.node, bits);
        dta.tell(self.node, frame, &seen, visit, Happened::new(occasion, &own))
    }

    #[inline]
    fn measure(&mut self, frame: &mut Vec<u8>, visit: &Visit, out: &mut Outbox) -> Measured {
        let Some(common) = direct::read(frame, &self.profile, &mut self.cache) else {
            return self.measure_any(frame, visit, out);
        };
        if let Some(measured) = self.stride(frame, common, visit, out) {
            return measured;
        }
        let seen = common.seen(frame, &self.cache);
        self.treat(frame, &seen, visit, out)
    }

    /// What [`Seen::of`] sees, at once where it can be.
    fn see(&mut self, frame: &[u8]) -> Result<Seen, wire::Refusal> {
        match direct::read(frame, &self.profile, &mut self.cache) {
            Some(common) => Ok(common.seen(frame, &self.cache)),
            None => Seen::of(frame, &self.profile),
        }
    }

    /// The general walk through a packet's headers.
    #[inline(never)]
    fn measure_any(&mut self, frame: &mut Vec<u8>, visit: &Visit, out: &mut Outbox) -> Measured {
        match Seen::of(frame, &self.profile) {
            Ok(seen) => self.treat(frame, &seen, visit, out),
            Err(refusal) => {
                self.stats.plain_nodes += u64::from(refusal == wire::Refusal::BadSfStack);
                match Carried::spoilt(frame, &self.profile).filter(|_| visit.to_edge) {
                    Some(carried) => {
                        self.stats.spoilt_stripped += 1;
                        sink::strip(frame, &carried);
                        Measured { verdict: verdict(&carried, visit), ..Measured::forward(Done::Refused) }
                    }
                    None => Measured::forward(Done::Refused),
                }
            }
        }
    }

    /// What is to be done with a packet that carries this.
    #[inline(never)]
    fn treat(&mut self, frame: &mut Vec<u8>, seen: &Seen, visit: &Visit, out: &mut Outbox) -> Measured {
        let role = seen.flow.and_then(|flow| self.roles.find(&flow));
        if role == Some(Role::Off) {
            return Measured::forward(Done::Plain);
        }
        let visit = &role.map_or(*visit, |role| visit.in_role(role));
        if let Some(carried) = &seen.carried {
            return self.carry(frame, seen.flow.as_ref(), carried, visit, out);
        }
        if seen.foreign {
            return Measured::forward(Done::Refused);
        }
        let (Some(flow), Some(headers)) = (seen.flow, seen.headers) else {
            return Measured::forward(Done::Plain);
        };
        let Some(watch) = self.watchlist.find(&flow).copied() else { return Measured::forward(Done::Plain) };
        if watch.mode == Mode::Postcard {
            let bits = watch.bitmap & self.config.available;
            if self.hides_alone(Some(&flow), bits, visit) {
                return Measured::forward(Done::Filtered);
            }
            if !self.tell_dta(frame, (Some(&flow), None), (Occasion::Hop, bits), visit) {
                self.exporter.postcard(&flow, bits, &visit.hop(self.node, u16::MAX), out);
            }
            return Measured::forward(Done::Reported);
        }
        if !visit.from_edge {
            return Measured::forward(Done::Plain);
        }
        if watch.mode == Mode::Sf {
            return self.start_sf(frame, (&flow, &headers), &watch, visit, out);
        }
        // Behind other options INT is not put.
        if headers.has_option() {
            return Measured::forward(Done::Plain);
        }
        self.start(frame, &headers, &watch, visit, out)
    }

    /// The source's part of SF-INT: every packet sets out with the source's own record.
    fn start_sf(
        &mut self,
        frame: &mut Vec<u8>,
        (flow, headers): (&FlowKey, &Headers),
        watch: &Watch,
        visit: &Visit,
        out: &mut Outbox,
    ) -> Measured {
        let mut record = [0; sf::MAX_RECORD];
        let len = usize::from(wire::int::layout::words_2(watch.bitmap)) * 4;
        let record = &mut record[..len];
        visit.write_record(self.node, watch.bitmap, self.config.available, record);
        let number = self.registers.number(sf::tag(flow), visit.queue_occupancy);
        let sf = Sf { urgent: number.urgent, state: State::Medium, packet_id: number.packet_id };
        let mtu = usize::from(visit.mtu);
        let inserted = source::insert_sf(frame, headers, watch, (self.config.mark, sf), record, mtu);
        if inserted == Inserted::MtuExceeded {
            return Measured::forward(Done::MtuExceeded);
        }
        self.stats.urgent += u64::from(number.urgent);
        if !visit.to_edge {
            return Measured { sf: Some(sf), ..Measured::forward(Done::Recorded) };
        }
        // Source and sink at once.
        match self.see(frame).ok().and_then(|seen| seen.carried) {
            Some(carried) => self.carry(frame, Some(flow), &carried, visit, out),
            None => Measured::forward(Done::Refused),
        }
    }

    /// The source's part, and then this switch's as any node's.
    fn start(
        &mut self,
        frame: &mut Vec<u8>,
        headers: &Headers,
        watch: &Watch,
        visit: &Visit,
        out: &mut Outbox,
    ) -> Measured {
        let mtu = usize::from(visit.mtu);
        if source::insert(frame, headers, watch, self.config.mark, mtu) == Inserted::MtuExceeded {
            return Measured::forward(Done::MtuExceeded);
        }
        match self.see(frame) {
            Ok(Seen { carried: Some(carried), flow, .. }) => {
                self.carry(frame, flow.as_ref(), &carried, visit, out)
            }
            _ => Measured::forward(Done::Refused),
        }
    }

    /// A packet with INT: report and strip at the sink, add a record elsewhere.
    fn carry(
        &mut self,
        frame: &mut Vec<u8>,
        flow: Option<&FlowKey>,
        carried: &Carried,
        visit: &Visit,
        out: &mut Outbox,
    ) -> Measured {
        if let Some(sf) = carried.sf.filter(|sf| !sf.urgent) {
            return match flow {
                Some(flow) if visit.to_edge => {
                    let bits = carried.bitmap & self.config.available;
                    if self.tell_dta(frame, (Some(flow), Some(carried)), (Occasion::Sample, bits), visit) {
                        sink::strip(frame, carried);
                        return Measured {
                            done: Done::Reported,
                            verdict: verdict(carried, visit),
                            sf: Some(sf),
                        };
                    }
                    self.tell_sf(frame, carried, sf, visit, out)
                }
                Some(flow) => self.trade(frame, flow, carried, sf, visit),
                None => Measured::forward(Done::Refused),
            };
        }
        if carried.mode == wire::int::Mode::Mx {
            let bits = carried.bitmap & self.config.available;
            let hidden = self.hides_alone(flow, bits, visit);
            if !hidden && !self.tell_dta(frame, (flow, Some(carried)), (Occasion::Hop, bits), visit) {
                self.exporter.card_with_packet(frame, carried, bits, &visit.hop(self.node, u16::MAX), out);
            }
            if visit.to_edge {
                sink::strip(frame, carried);
            }
            let done = if hidden { Done::Filtered } else { Done::Reported };
            return Measured { done, verdict: verdict(carried, visit), sf: None };
        }
        if !visit.to_edge {
            let write = |record: &mut [u8]| self.write_record(carried, visit, record);
            let done = match transit::push(frame, carried, write, usize::from(visit.mtu)) {
                Pushed::Added => Done::Recorded,
                Pushed::HopsExceeded => Done::HopsExceeded,
                Pushed::MtuExceeded => Done::MtuExceeded,
            };
            return Measured { sf: carried.sf, ..Measured::forward(done) };
        }
        if self.hides(frame, flow, carried, visit) {
            sink::strip(frame, carried);
            return Measured { done: Done::Filtered, verdict: verdict(carried, visit), sf: None };
        }
        let bits = carried.bitmap & self.config.available;
        let instead = self.tell_dta(frame, (flow, Some(carried)), (Occasion::Path, bits), visit);
        if instead || !self.config.format.own_on_stack {
            if !instead {
                self.tell_apart(frame, carried, visit, out);
            }
            sink::strip(frame, carried);
            return Measured { done: Done::Reported, verdict: verdict(carried, visit), sf: carried.sf };
        }
        let (done, carried) = self.tell(frame, *carried, visit, out);
        sink::strip(frame, &carried);
        Measured { done, verdict: verdict(&carried, visit), sf: carried.sf }
    }

    /// The transit node's part of SF-INT: the record that arrives is traded by the nine rules. The packet keeps its size.
    fn trade(
        &mut self,
        frame: &mut [u8],
        flow: &FlowKey,
        carried: &Carried,
        sf: Sf,
        visit: &Visit,
    ) -> Measured {
        let Self { registers, stats, node, config, .. } = self;
        let (header, stack) = (carried.header(), carried.stack());
        let done = carried.headers.change(frame, header..carried.end, |int| {
            let (head, record) = int.split_at_mut(stack - header);
            if carried.remaining == 0 {
                stats.sf_rules[0] += 1;
                if let Ok(mut head) = wire::int::header::Header::new_checked(head) {
                    head.set_hops_exceeded();
                }
                return (Done::HopsExceeded, sf);
            }
            let arrival =
                Arrival { tag: sf::tag(flow), sf, bitmap: carried.bitmap, record, now: visit.egress_ts };
            let own = |record: &mut [u8]| visit.write_record(*node, carried.bitmap, config.available, record);
            let Traded { rule, sf: after, .. } = registers.trade(arrival, own);
            stats.sf_rules[usize::from(rule.number) % 10] += 1;
            let own = rule.forward.0 == sf::Forward::Own;
            if let Ok(mut head) = wire::int::header::Header::new_checked(head) {
                head.set_sf(after);
                head.set_remaining(carried.remaining - u8::from(own));
            }
            (if own { Done::Recorded } else { Done::Traded }, after)
        });
        Measured { sf: Some(done.1), ..Measured::forward(done.0) }
    }

    /// The sink's part of SF-INT: a report of the record carried, and its own record of the packet that carried it.
    fn tell_sf(
        &mut self,
        frame: &mut Vec<u8>,
        carried: &Carried,
        sf: Sf,
        visit: &Visit,
        out: &mut Outbox,
    ) -> Measured {
        let mut after = *carried;
        match self.config.sf.form {
            Form::Full => self.tell_apart(frame, carried, visit, out),
            Form::Compact => {
                let bits = carried.bitmap & self.config.available;
                self.exporter.compact_report(frame, carried, bits, &visit.hop(self.node, u16::MAX), out);
            }
            Form::Stack => {
                let own = visit.hop(self.node, u16::MAX);
                let mut record = [0; sf::MAX_RECORD];
                let record = &mut record[..usize::from(carried.hop_ml) * 4];
                visit.write_record(self.node, carried.bitmap, self.config.available, record);
                after = transit::lay(frame, carried, record);
                self.exporter.flow_report(frame, &after, None, &own, out);
            }
        }
        sink::strip(frame, &after);
        Measured { done: Done::Reported, verdict: verdict(carried, visit), sf: Some(sf) }
    }

    /// A report of a packet as it is, with this switch's own record beside it.
    #[inline]
    fn tell_apart(&mut self, frame: &[u8], carried: &Carried, visit: &Visit, out: &mut Outbox) {
        let bits = carried.bitmap & self.config.available;
        let node = self.node;
        let own = |bits, record: &mut [u8]| {
            visit.write_record(node, bits, u16::MAX, record);
        };
        if !self.exporter.flow_report_direct(
            frame,
            &Told::of(frame, carried),
            (bits, visit.egress_if),
            own,
            out,
        ) {
            let own = visit.hop(node, u16::MAX);
            self.exporter.flow_report(frame, carried, Some(bits), &own, out);
        }
    }

    /// This switch's record in the form of the packet's stack.
    #[inline]
    fn write_record(&self, carried: &Carried, visit: &Visit, record: &mut [u8]) {
        let available = self.config.available;
        if carried.version == wire::int::Version::V2 {
            visit.write_record(self.node, carried.bitmap, available, record);
        } else {
            carried.layout.write(&visit.hop(self.node, available), record);
        }
    }

    /// The sink's report of a packet with its own record on the stack, and where INT lies in the packet afterwards.
    fn tell(
        &mut self,
        frame: &mut Vec<u8>,
        carried: Carried,
        visit: &Visit,
        out: &mut Outbox,
    ) -> (Done, Carried) {
        let own = visit.hop(self.node, u16::MAX);
        // What is pushed here never leaves on a link, so the MTU does not matter.
        let write = |record: &mut [u8]| self.write_record(&carried, visit, record);
        let pushed = transit::push(frame, &carried, write, usize::MAX);
        let after = Seen::of(frame, &self.profile).ok().and_then(|seen| seen.carried).unwrap_or(carried);
        self.exporter.flow_report(frame, &after, None, &own, out);
        let done = match pushed {
            Pushed::Added => Done::Reported,
            Pushed::HopsExceeded => Done::HopsExceeded,
            Pushed::MtuExceeded => Done::MtuExceeded,
        };
        (done, after)
    }

    /// Do the filters find a packet not worth the sink's report?
    #[inline]
    fn hides(&mut self, frame: &[u8], flow: Option<&FlowKey>, carried: &Carried, visit: &Visit) -> bool {
        // A packet of SF-INT that comes here is urgent.
        if self.filters.is_empty() || carried.sf.is_some() {
            return false;
        }
        let Some(flow) = flow else { return false };
        let room = carried.remaining > 0 && carried.holds(usize::from(carried.hop_ml) * 4);
        if self.config.format.own_on_stack && !room {
            return false;
        }
        self.hides_path(flow, carried.flags, &carried.records(frame), carried.bitmap, visit)
    }

    /// The same of a path. Where a record found no room the stack is not the path, and nothing is hidden.
    #[inline]
    fn hides_path(
        &mut self,
        flow: &FlowKey,
        flags: Flags,
        stack: &Stack<'_>,
        bitmap: u16,
        visit: &Visit,
    ) -> bool {
        const NO_ROOM: Flags = Flags::HOPS_EXCEEDED.with(Flags::MTU_EXCEEDED, true);
        if flags.0 & NO_ROOM.0 != 0 {
            return false;
        }
        let on_stack = self.config.format.own_on_stack;
        let bits = bitmap & self.config.available;
        let bits = if on_stack { Some(bits) } else { self.exporter.own_bits(bits) };
        let own = bits.map(|bits| Own { hop: visit.hop(self.node, bits), on_stack });
        let decision = self.filters.decide(flow, stack, own.as_ref(), visit.egress_ts);
        decision.is_some_and(|decision| !decision.is_reported())
    }

    /// The same of this switch's own record by itself: a postcard.
    fn hides_alone(&mut self, flow: Option<&FlowKey>, bits: u16, visit: &Visit) -> bool {
        if self.filters.is_empty() {
            return false;
        }
        let Some(flow) = flow else { return false };
        let hop = visit.hop(self.node, self.exporter.own_bits(bits).unwrap_or(0));
        let own = Own { hop, on_stack: false };
        let decision = self.filters.decide(flow, &wire::int::Stack::EMPTY, Some(&own), visit.egress_ts);
        decision.is_some_and(|decision| !decision.is_reported())
    }

    /// Reports a queue that has become congested, or has recovered, and packets that pass it meanwhile.
    fn watch_queue(&mut self, frame: &[u8], visit: &Visit, out: &mut Outbox) {
        let Some(limits) = self.config.congestion else { return };
        let congested = &mut self.congested[usize::from(visit.queue_id)];
        match congested {
            None if visit.queue_occupancy >= limits.rise => *congested = Some(limits.quota),
            Some(_) if visit.queue_occupancy <= limits.fall => *congested = None,
            Some(left) if *left > 0 => {
                let Ok(seen) = Seen::of(frame, &self.profile) else { return };
                *left -= 1;
                self.stats.congested_reported += 1;
                if let Some(dta) = &mut self.dta {
                    let own = visit.hop(self.node, u16::MAX);
                    let congested =
                        Happened { congested: Some(true), ..Happened::new(Occasion::CongestedPacket, &own) };
                    if dta.tell(self.node, frame, &seen, visit, congested) {
                        return;
                    }
                }
                self.exporter.congested_packet(frame, &seen, &visit.hop(self.node, u16::MAX), out);
                return;
            }
            _ => return,
        }
        self.stats.queues_reported += 1;
        let (own, rises) = (visit.hop(self.node, u16::MAX), congested.is_some());
        let instead = self.dta.as_mut().is_some_and(|dta| dta.queue(self.node, &own, rises, visit.egress_ts));
        if !instead {
            self.exporter.queue_report(&own, out);
        }
    }
}

mod stride;

/// What `measure` did.
struct Measured {
    done: Done,
    verdict: Verdict,
    sf: Option<Sf>,
}

impl Measured {
    fn forward(done: Done) -> Self {
        Self { done, verdict: Verdict::Forward, sf: None }
    }
}

enum Done {
    Plain,
    Refused,
    Recorded,
    Traded,
    HopsExceeded,
    MtuExceeded,
    Reported,
    Filtered,
}

fn verdict(carried: &Carried, visit: &Visit) -> Verdict {
    let discard = visit.to_edge && carried.flags.contains(wire::int::Flags::DISCARD);
    if discard { Verdict::Discard } else { Verdict::Forward }
}

fn check(config: &Config, watchlist: &Watchlist) -> Result<(), ConfigError> {
    let Config { mark, format, congestion, .. } = config;
    if !(1..64).contains(&mark.dscp) {
        return Err(ConfigError::BadDscp(mark.dscp));
    }
    if mark.port == Some(0) {
        return Err(ConfigError::BadPort);
    }
    if congestion.is_some_and(|limits| limits.fall >= limits.rise) {
        return Err(ConfigError::BadCongestion);
    }
    if !format.is_valid() {
        return Err(ConfigError::BadFormat);
    }
    let registers = config.sf.registers;
    if !registers.is_power_of_two() || registers > sf::MAX_REGISTERS || config.sf.urgent.every == Some(0) {
        return Err(ConfigError::BadRegisters);
    }
    if !format.is_20() && config.sf.form == Form::Compact {
        return Err(ConfigError::NeedsReport20);
    }
    for watch in watchlist.entries() {
        if watch.mode == Mode::Sf && (watch.bitmap & 0x8001 != 0x8000 || watch.hops == 0) {
            return Err(ConfigError::BadSfWatch);
        }
        if watch.bitmap == 0 {
            return Err(ConfigError::EmptyBitmap);
        }
        if !format.is_20() && matches!(watch.mode, Mode::Mx21 | Mode::Postcard) {
            return Err(ConfigError::NeedsReport20);
        }
    }
    Ok(())
}

impl Visit {
    /// The same at a switch of that role.
    fn in_role(&self, role: Role) -> Self {
        let from_edge = matches!(role, Role::Source | Role::SourceAndSink);
        let to_edge = matches!(role, Role::Sink | Role::SourceAndSink);
        Self { from_edge, to_edge, ..*self }
    }

    /// Writes the record of switch `node` for the instruction bitmap `bitmap` of INT 2.x: items that are not `available`, and
    /// whatever of `out` is left, are all-ones. `out` is as long as the bitmap says, or longer. Answers the sum of its words
    /// (see [`wire::checksum::mended`]).
    #[inline(always)]
    pub(crate) fn write_record(&self, node: u32, bitmap: u16, available: u16, out: &mut [u8]) -> u64 {
        const MOST: u32 = 0xff_fffe; // all-ones would say that it is unavailable
        let half = |interface: u16| if interface == 0 { 0xffff } else { u32::from(interface) };
        let wide = |interface: u16| if interface == 0 { u64::from(u32::MAX) } else { u64::from(interface) };
        let latency = self.egress_ts.wrapping_sub(self.ingress_ts) as u32;
        let queue = u32::from(self.queue_id) << 24 | self.queue_occupancy.min(MOST);
        let mut words = Words { rest: out, bitmap, available: available | 0x8000, sum: 0 };
        words.word(0, node);
        words.word(1, half(self.ingress_if) << 16 | half(self.egress_if));
        words.word(2, latency);
        words.word(3, queue);
        words.wide(4, self.ingress_ts);
        words.wide(5, self.egress_ts);
        words.wide(6, wide(self.ingress_if) << 32 | wide(self.egress_if));
        words.word(7, self.tx_utilization);
        // All-ones are nothing in a sum.
        words.rest.fill(0xff);
        words.sum
    }

    /// The record of switch `node`, with the items of the instruction bitmap `bits` that a switch can have.
    pub(crate) fn hop(&self, node: u32, bits: u16) -> wire::Hop {
        const MOST: u32 = 0xff_fffe; // all-ones would say that it is unavailable
        let has = |bit: u32| bits & (0x8000 >> bit) != 0;
        let known = |interface: u16| (interface != 0).then_some(interface);
        let occupancy = self.queue_occupancy.min(MOST);
        let latency = self.egress_ts.wrapping_sub(self.ingress_ts) as u32;
        wire::Hop {
            node_id: Some(node),
            ingress_if: known(self.ingress_if).filter(|_| has(1)),
            egress_if: known(self.egress_if).filter(|_| has(1)),
            hop_latency: has(2).then_some(latency),
            queue_id: has(3).then_some(self.queue_id),
            queue_occupancy: has(3).then_some(occupancy),
            ingress_ts: has(4).then_some(self.ingress_ts),
            egress_ts: has(5).then_some(self.egress_ts),
            l2_ingress_if: known(self.ingress_if).map(u32::from).filter(|_| has(6)),
            l2_egress_if: known(self.egress_if).map(u32::from).filter(|_| has(6)),
            tx_utilization: has(7).then_some(self.tx_utilization),
            ..wire::Hop::default()
        }
    }
}

/// A record that is being written.
struct Words<'a> {
    rest: &'a mut [u8],
    bitmap: u16,
    available: u16,
    sum: u64,
}

impl Words<'_> {
    /// The item of an instruction bit: four bytes.
    #[inline(always)]
    fn word(&mut self, bit: u32, word: u32) {
        let word = if self.available & 0x8000 >> bit != 0 { word } else { u32::MAX };
        if self.bitmap & 0x8000 >> bit != 0 && self.put(word.to_be_bytes()) {
            self.sum = self.sum.wrapping_add(u64::from(word));
        }
    }

    /// The same of eight bytes.
    #[inline(always)]
    fn wide(&mut self, bit: u32, word: u64) {
        let word = if self.available & 0x8000 >> bit != 0 { word } else { u64::MAX };
        if self.bitmap & 0x8000 >> bit != 0 && self.put(word.to_be_bytes()) {
            self.sum = self.sum.wrapping_add((word >> 32) + (word & 0xffff_ffff));
        }
    }

    #[inline(always)]
    fn put<const LEN: usize>(&mut self, bytes: [u8; LEN]) -> bool {
        match std::mem::take(&mut self.rest).split_first_chunk_mut::<LEN>() {
            Some((place, rest)) => {
                *place = bytes;
                self.rest = rest;
                true
            }
            None => false,
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;
