//! State that the parts of one switch (source, transit, sink) share: configuration, filters, registers, exporter and counters.

use serde::{Deserialize, Serialize};
use wire::int::{Flags, Sf, Stack, Version};
use wire::{FlowKey, Profile, Refusal};

use crate::config::Config;
use crate::dta::{Event, SwitchReporter, Trigger};
use crate::filter::{Filters, Metadata};
use crate::packet::{CarriedInt, Headers, Parsed, ParsedPacket, direct};
use crate::report::Exporter;
use crate::sf::Registers;
use crate::visit::{Verdict, Visit};

/// INT counters; each packet is in one of the first eight.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(rename = "SwitchInt"))]
pub struct Stats {
    /// Number of packets without INT.
    pub plain: u64,
    /// Packets with malformed or unsupported INT.
    pub refused: u64,
    /// Packets to which this switch added its metadata.
    pub recorded: u64,
    /// SF-INT: packets with metadata of another switch, received or from a register.
    pub swapped: u64,
    /// Remaining hop count was zero (E bit).
    pub hops_exceeded: u64,
    /// Metadata would exceed the MTU (M bit), or INT was not added for this reason.
    pub mtu_exceeded: u64,
    /// INT was not added because a sink could not restore the packet.
    pub not_restorable: u64,
    /// Number of packets that were reported.
    pub reported: u64,
    /// Packets at the sink that `[[switch.filter]]` suppressed.
    pub filtered: u64,
    /// Number of drop reports.
    pub drops_reported: u64,
    /// Number of queue reports.
    pub queues_reported: u64,
    /// Packets reported because they passed a congested queue (`quota`).
    pub congested_reported: u64,
    /// Refused packets of SF-INT with more than one record: a plain INT node is on their path.
    #[serde(skip)]
    pub plain_nodes: u64,
    /// Refused packets with a malformed stack but a valid header. This sink removed their INT, so that no host
    /// receives it.
    #[serde(skip)]
    pub malformed_stripped: u64,
    /// Packets that arrived with INT from outside the domain: INT was removed, and they are counted again by their further
    /// treatment.
    pub edge_stripped: u64,
    /// Refused packets that arrived so, and carried more INT, or its mark, behind it: dropped.
    pub edge_refused: u64,
    /// Number of applications of each rule of SF-INT, by the rule's number; 0: the hop count was used up.
    #[serde(skip)]
    pub sf_rules: [u64; 10],
    /// Packets that this source marked urgent.
    #[serde(skip)]
    pub urgent: u64,
    /// Packets whose L4 checksum was examined after INT was stripped: one of 64.
    pub checksums_examined: u64,
    /// Number of these packets with a wrong checksum, which hosts drop: see `l4_checksum` in `[switch]`.
    pub checksums_wrong: u64,
}

/// The state of a switch that source, transit and sink share.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) id: u32,
    pub(crate) config: Config,
    pub(crate) filters: Filters,
    pub(crate) profile: Profile,
    pub(crate) exporter: Exporter,
    pub(crate) registers: Registers,
    pub(crate) cache: direct::Cache,
    pub(crate) stats: Stats,
    pub(crate) dta: Option<Box<SwitchReporter>>,
}

/// The result of processing a packet.
pub(crate) struct PacketResult {
    pub(crate) outcome: IntOutcome,
    pub(crate) verdict: Verdict,
    pub(crate) sf: Option<Sf>,
}

impl PacketResult {
    pub(crate) fn forward(outcome: IntOutcome) -> Self {
        Self {
            outcome,
            verdict: Verdict::Forward,
            sf: None,
        }
    }
}

/// Selects the outcome counter of [`Stats`] that a packet increments.
pub(crate) enum IntOutcome {
    Plain,
    Refused,
    Recorded,
    Swapped,
    HopsExceeded,
    MtuExceeded,
    NotRestorable,
    Reported,
    Filtered,
}

/// Returns the verdict for a packet: one that leaves the domain with D set is discarded.
pub(crate) fn verdict(flags: Flags, visit: &Visit) -> Verdict {
    if visit.to_edge && flags.contains(Flags::DISCARD) {
        Verdict::Discard
    } else {
        Verdict::Forward
    }
}

impl Node {
    /// Parses a frame once; its headers are parsed again only if this switch inserts INT.
    #[inline(always)]
    pub(crate) fn parse(&mut self, frame: &[u8]) -> Parsed {
        match direct::read(frame, &self.profile, &mut self.cache) {
            Some(common) => Parsed::Direct(common),
            None => Parsed::Full(self.parse_any(frame)),
        }
    }

    #[inline(never)]
    fn parse_any(&self, frame: &[u8]) -> Result<ParsedPacket, Refusal> {
        ParsedPacket::parse(frame, &self.profile)
    }

    /// Converts `packet` to the full parsed form. `packet` must be the frame that was parsed last.
    pub(crate) fn parse_fully(&self, frame: &[u8], packet: Parsed) -> Result<ParsedPacket, Refusal> {
        match packet {
            Parsed::Direct(common) => Ok(common.parse_fully(frame, &self.cache)),
            Parsed::Full(parsed) => parsed,
        }
    }

    /// Returns the INT of a frame that a sink can remove, even if its stack is malformed.
    pub(crate) fn removable(&self, frame: &[u8]) -> Option<CarriedInt> {
        match ParsedPacket::parse(frame, &self.profile) {
            Ok(parsed) => parsed.carried,
            Err(_) => CarriedInt::malformed(frame, &self.profile),
        }
    }

    /// Returns whether a frame carries neither INT nor an INT mark in front of something else.
    pub(crate) fn is_plain(&self, frame: &[u8]) -> bool {
        let parsed = ParsedPacket::parse(frame, &self.profile);
        parsed.is_ok_and(|parsed| parsed.carried.is_none() && !parsed.unsupported)
    }

    /// Reports a packet by DTA. Returns whether that replaces the Telemetry Report. `bits` selects the items of this node.
    #[inline]
    pub(crate) fn report_dta(
        &mut self,
        frame: &[u8],
        flow: Option<&FlowKey>,
        carried: Option<&CarriedInt>,
        trigger: Trigger,
        bits: u16,
        visit: &Visit,
    ) -> bool {
        let Some(dta) = &mut self.dta else { return false };
        let headers = carried
            .map(|carried| carried.headers)
            .or_else(|| Headers::parse(frame));
        let parsed = ParsedPacket {
            flow: flow.copied(),
            headers,
            carried: carried.copied(),
            unsupported: false,
        };
        let metadata = visit.hop(self.id, bits);
        dta.report(self.id, frame, &parsed, visit, Event::new(trigger, &metadata))
    }

    /// Writes this switch's record in the layout of the packet's stack.
    #[inline]
    pub(crate) fn write_record(&self, carried: &CarriedInt, visit: &Visit, record: &mut [u8]) {
        let available = self.config.available;
        if carried.version == Version::V2 {
            visit.write_record(self.id, carried.bitmap, available, record);
        } else {
            carried.layout.write(&visit.hop(self.id, available), record);
        }
    }

    /// Returns whether the filters suppress the report of a path. Never suppresses a packet on whose path a record did not fit:
    /// its stack is not the whole path.
    #[inline]
    pub(crate) fn suppresses_path(
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
        let on_stack = self.config.format.metadata_on_stack;
        let bits = bitmap & self.config.available;
        let bits = if on_stack {
            Some(bits)
        } else {
            self.exporter.own_bits(bits)
        };
        let metadata = bits.map(|bits| Metadata {
            hop: visit.hop(self.id, bits),
            on_stack,
        });
        let decision = self
            .filters
            .decide(flow, stack, metadata.as_ref(), visit.egress_ts);
        decision.is_some_and(|decision| !decision.is_reported())
    }

    /// Returns whether the filters suppress the report of this switch's own record (a postcard).
    pub(crate) fn suppresses_record(&mut self, flow: Option<&FlowKey>, bits: u16, visit: &Visit) -> bool {
        if self.filters.is_empty() {
            return false;
        }
        let Some(flow) = flow else { return false };
        let hop = visit.hop(self.id, self.exporter.own_bits(bits).unwrap_or(0));
        let metadata = Metadata { hop, on_stack: false };
        let decision = self
            .filters
            .decide(flow, &Stack::EMPTY, Some(&metadata), visit.egress_ts);
        decision.is_some_and(|decision| !decision.is_reported())
    }
}
