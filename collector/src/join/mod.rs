//! Joins the records of SF-INT reports into whole paths (wire-formats section 3.5; Xiong et al., APNet 2024).
//!
//! An SF-INT packet carries the record of one node, possibly of an earlier packet. All records of one packet have the same
//! packet ID, but reach the collector in several reports; together they are the INT stack of that packet. Many sets stay
//! incomplete: with more than three nodes the registers skip most packets, and lost reports and overwritten registers cost
//! others. **A set counts as whole only with proof:**
//!
//! - A report of state Medium opens a set. Every node wrote into its packet, so the sink's own record in this report is also
//!   of this packet. In all other reports, the sink's record is of an unknown packet: a sample of the sink, never part of a
//!   path.
//! - Records of state High with the same flow and packet ID extend the set. Records of state Low belong to packets that some
//!   node did not write into; they are samples of their node.
//! - A set is **whole** when it has as many different nodes as wrote into the packet. The hop count gives that number for
//!   exactly this packet ID ([`length`]). No other evidence counts: not that no more records arrive, not that the next packet
//!   ID has begun, not the length of the flow's other paths, and not the IP TTL (it counts routers, not nodes, from an
//!   unknown initial value).
//! - Records are sorted by the sequence numbers of the sink's reports, last node first, regardless of the order in which the
//!   network delivered the reports. This is the **order of the path** if synchronised clocks (a setting of the profile) prove
//!   it by timestamps, or else if the hop counts do: [`length::expected_writers`] shows where the network reordered two
//!   packets. A path is confirmed when [`JoinConfig::confirmations`] consecutive sets have proven it; from then on any whole
//!   set in this order is accepted.
//! - A set that has a node twice with different values is closed as incomplete. A set that was whole and then grew proves the
//!   hop count wrong, and joining is suspended for the flow for [`SUSPENSION`]. (If nodes decrement the hop count wrongly,
//!   the first report of each set looks complete and the second contradicts it, before the path is confirmed.)
//!
//! Sets are keyed by flow and packet ID. A flow has up to four, to tolerate reordered reports; a fifth evicts the oldest. A
//! set ends after [`JoinConfig::timeout`], or when its ID is 2^15 or more behind, because 16-bit IDs repeat. Tables have a
//! fixed size: `admission` decides which flow is evicted (a flood never evicts an established flow that still reports); sets
//! are evicted by age.
//!
//! Reports without a flow (compact ones) are keyed by their sink and subsystem. If several flows report through one subsystem,
//! their packet IDs mix, and so may their records: such sets update nodes, and never a path.
//!
//! Urgent reports contain whole stacks and are not joined.

pub(crate) mod flow;
mod length;
mod record;
mod set;
mod stage;
#[cfg(test)]
mod tests;

use wire::FlowKey;
use wire::int::sf::State as Priority;

use crate::admission::Admission;
use crate::config::{JoinConfig, Units};
use crate::decode::{EndTimestamps, Head, ReadHops, Reading};
use crate::event::{Nanos, follow_clock};
use crate::index::NO_SLOT;
use crate::stats::{JoinStats, Reason, Table, Unadmitted};

use flow::{Flow, Flows, Path, PathStatus, SETS};
use length::{HopCounts, expected_writers};
use set::{SetPool, SfRecord, Status, is_in_order};
pub(crate) use stage::{SfBurst, SfInt};

/// Time for which joining is suspended after one of a flow's complete sets grew, ns.
const SUSPENSION: Nanos = 10_000_000_000;

/// Maximum reordering of reports, in packet IDs.
const MAX_REORDERING: u16 = 1024;

/// Idle time after which a flow is removed, ns; its stored state is useless by then.
const FLOW_TIMEOUT: Nanos = 60_000_000_000;

/// Maximum number of sets, and of flows, that one tick visits.
const PER_TICK: u32 = 4096;

/// An SF-INT report as input of the joiner.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SfReport<'a> {
    /// Head of the report with its flow; without a flow, [`keyed_by_sink`] gives it a key.
    pub(crate) head: &'a Head,
    pub(crate) priority: Priority,
    pub(crate) packet_id: u16,
    /// The E bit: a node could not add data because the hop count was used up.
    pub(crate) exceeded: bool,
    pub(crate) carried: SfRecord,
    pub(crate) sink_record: Option<SfRecord>,
    pub(crate) units: Units,
}

/// Gives a report without a flow a key that is built from its sink. The key is used for joining only.
#[cold]
pub(crate) fn keyed_by_sink(mut head: Head, seed: u64) -> Head {
    let about = &mut head.about;
    let mut sink = [0; 16];
    sink[..8].copy_from_slice(&about.origin.reporter.to_be_bytes());
    about.key = FlowKey::v6(sink, [0; 16], Some((u16::from(about.origin.hw_id), 0)), u8::MAX);
    head.hash = about.key.hash(seed);
    head
}

impl SfReport<'_> {
    fn records(&self) -> u64 {
        1 + u64::from(self.sink_record.is_some())
    }
}

/// Receiver of the joiner's results.
pub(crate) trait JoinOutput {
    /// Receives the whole path of a packet.
    fn path(&mut self, head: &Head, hops: ReadHops<'_>);
    /// Receives values of nodes, which update node metrics only.
    fn nodes(&mut self, head: &Head, hops: ReadHops<'_>);
}

/// The joiner of SF-INT records; see the module documentation.
#[derive(Debug)]
pub(crate) struct Joiner {
    config: JoinConfig,
    flows: Flows,
    sets: SetPool,
    hop_counts: HopCounts,
    seed: u64,
    scratch: Vec<Reading>,
    stats: JoinStats,
    /// Sets evicted because the table was full.
    evicted: u64,
    /// The flow that the expiry sweep visits next.
    sweep_slot: u32,
}

/// Decision about a set after it has grown.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Verdict {
    Incomplete,
    Whole,
    Close(Reason),
}

impl Joiner {
    /// Reserves the memory for the table sizes in `config`.
    pub(crate) fn new(config: JoinConfig, seed: u64) -> Self {
        // The sink's record and at least one more.
        let records_per_set = config.max_nodes.clamp(2, 255);
        Self {
            flows: Flows::with_capacity(config.max_flows),
            sets: SetPool::with_capacity(config.max_sets, records_per_set),
            hop_counts: HopCounts::new(config.hop_limit),
            seed,
            scratch: Vec::with_capacity(records_per_set),
            stats: JoinStats::default(),
            evicted: 0,
            sweep_slot: 0,
            config,
        }
    }

    pub(crate) fn stats(&self) -> JoinStats {
        self.stats
    }

    /// Returns the usage of the tables of flows and sets.
    pub(crate) fn tables(&self) -> [Table; 2] {
        let used = self.sets.used();
        let capacity = self.sets.capacity();
        [
            self.flows.table(),
            Table {
                used,
                capacity,
                evicted: self.evicted,
                refused: 0,
            },
        ]
    }

    /// Processes a report that is not urgent.
    pub(crate) fn apply(&mut self, report: &SfReport<'_>, out: &mut dyn JoinOutput) {
        self.apply_with_hint(NO_SLOT, report, out);
    }

    /// Processes a report that a node before the sink sent, about its queue or a packet that ended there. Its records are
    /// samples.
    fn apply_transit(&mut self, report: &SfReport<'_>, out: &mut dyn JoinOutput) {
        self.stats.reports += 1;
        self.stats.records += report.records();
        self.stats.transit_samples += report.records();
        emit_samples(report, &[Some(&report.carried), report.sink_record.as_ref()], out);
    }

    /// Processes a report like [`Joiner::apply`]. Looks for the flow at slot `hint` first.
    pub(crate) fn apply_with_hint(&mut self, hint: u32, report: &SfReport<'_>, out: &mut dyn JoinOutput) {
        self.stats.reports += 1;
        self.stats.records += report.records();
        let about = &report.head.about;
        let is_medium = report.priority == Priority::Medium;
        self.hop_counts
            .learn(about.profile, report.carried.remaining, is_medium, about.ts);
        if report.priority == Priority::Low {
            self.stats.low_samples += 1;
            self.emit_sink_sample(report, true, out);
            return;
        }
        let flow = match self.find_or_admit(hint, report, out) {
            Ok(flow) => flow,
            Err(reason) => {
                self.stats.unadmitted[reason as usize] += report.records();
                emit_samples(report, &[Some(&report.carried), report.sink_record.as_ref()], out);
                return;
            }
        };
        match report.priority {
            Priority::Medium => self.apply_medium(flow, report, out),
            _ => self.apply_high(flow, report, out),
        }
    }

    /// Emits the sink's record as a sample, and the carried one too if `with_carried` (it belongs to no set).
    fn emit_sink_sample(&mut self, report: &SfReport<'_>, with_carried: bool, out: &mut dyn JoinOutput) {
        self.stats.sink_samples += u64::from(report.sink_record.is_some());
        match &report.sink_record {
            Some(sink_record) if !with_carried => emit_sample(report, sink_record, out),
            sink_record if with_carried => {
                emit_samples(report, &[Some(&report.carried), sink_record.as_ref()], out)
            }
            _ => {}
        }
    }

    /// Returns the slot of the report's flow, and adds the flow if it is new.
    fn find_or_admit(
        &mut self,
        hint: u32,
        report: &SfReport<'_>,
        out: &mut dyn JoinOutput,
    ) -> Result<u32, Unadmitted> {
        let about = &report.head.about;
        let hash = report.head.hash;
        let second = (about.ts / 1_000_000_000) as u32;
        let mut slot = self.flows.find(&about.key, hash, hint);
        if slot == NO_SLOT {
            let new_entry = match self.flows.admit(hash, second) {
                Admission::Free(new_entry) => new_entry,
                Admission::Evict(new_entry, slot) => {
                    self.remove_flow(slot, Reason::Evicted, out);
                    new_entry
                }
                Admission::Refused(reason) => return Err(reason),
            };
            slot = self.flows.insert(new_entry, about.key, hash, about.ts, second);
        }
        self.flows.touch(slot, about.ts, second);
        Ok(slot)
    }

    /// Returns the flow's set with this packet ID. Closes and ignores an expired one.
    fn find_set(&mut self, flow: u32, report: &SfReport<'_>, out: &mut dyn JoinOutput) -> Option<u32> {
        let set = self.flows.get(flow).set(report.packet_id)?;
        if self.is_expired(set, report.head.about.ts) {
            self.close_set(set, Reason::Timeout, out);
            return None;
        }
        Some(set)
    }

    fn is_expired(&self, set: u32, now: Nanos) -> bool {
        now.saturating_sub(self.sets.set(set).opened) >= self.config.timeout
    }

    /// Processes a report of state Medium, which opens a set.
    fn apply_medium(&mut self, flow: u32, report: &SfReport<'_>, out: &mut dyn JoinOutput) {
        self.close_wrapped(flow, report, out);
        let set = match self.find_set(flow, report, out) {
            Some(set) if self.sets.set(set).has_opening => {
                if self.sets.set(set).order == report.carried.order {
                    self.stats.repeated += report.records();
                    return;
                }
                // Same packet ID, other report: the source has restarted, or 65536 packets have passed.
                self.close_set(set, Reason::Wrapped, out);
                self.open_set(flow, report, out)
            }
            Some(set) => set,
            None => self.open_set(flow, report, out),
        };
        if !self.lacks_node(set, report) {
            self.contradict(set, report, out);
            return;
        }
        let stored = self.sets.set_mut(set);
        stored.has_opening = true;
        stored.order = report.carried.order;
        stored.remaining = report.carried.remaining;
        if let Some(sink_record) = report.sink_record {
            self.sets.put_sink_record(set, sink_record);
            self.stats.pending += 1;
        }
        self.add_record(set, report, out);
    }

    /// Processes a report of state High, which extends a set.
    fn apply_high(&mut self, flow: u32, report: &SfReport<'_>, out: &mut dyn JoinOutput) {
        let set = match self.find_set(flow, report, out) {
            Some(set) => set,
            None => self.open_set(flow, report, out),
        };
        let node = report.carried.reading.node;
        let known_record = self
            .sets
            .carried(set)
            .iter()
            .find(|record| record.reading.node == node);
        if known_record.is_some_and(|record| record.has_same_values(&report.carried)) {
            self.stats.repeated += 1;
            self.emit_sink_sample(report, false, out);
        } else if self.sets.set(set).status == Status::Done || !self.lacks_node(set, report) {
            if self.sets.set(set).status == Status::Done && self.lacks_node(set, report) {
                self.suspend(flow, report);
            }
            self.contradict(set, report, out);
        } else {
            self.emit_sink_sample(report, false, out);
            self.add_record(set, report, out);
        }
    }

    /// Returns true if the set does not have this record's node yet.
    fn lacks_node(&self, set: u32, report: &SfReport<'_>) -> bool {
        let node = report.carried.reading.node;
        self.sets
            .carried(set)
            .iter()
            .all(|record| record.reading.node != node)
    }

    /// Processes a record that contradicts its set: closes an open set, and treats the record as a sample.
    #[cold]
    fn contradict(&mut self, set: u32, report: &SfReport<'_>, out: &mut dyn JoinOutput) {
        if self.sets.set(set).status == Status::Open {
            self.close_set(set, Reason::Contradicted, out);
        }
        if report.priority == Priority::Medium {
            self.stats.stray += report.records();
            emit_samples(report, &[Some(&report.carried), report.sink_record.as_ref()], out);
        } else {
            self.stats.stray += 1;
            self.emit_sink_sample(report, true, out);
        }
    }

    #[cold]
    fn suspend(&mut self, flow: u32, report: &SfReport<'_>) {
        let until = report.head.about.ts.saturating_add(SUSPENSION);
        self.flows.get_mut(flow).suspend(until);
    }

    /// Adds a carried record to its set, and acts if the set is now complete or contradictory.
    fn add_record(&mut self, set: u32, report: &SfReport<'_>, out: &mut dyn JoinOutput) {
        if !self.sets.has_room(set) {
            self.close_set(set, Reason::TooLong, out);
            self.stats.stray += 1;
            emit_samples(report, &[Some(&report.carried)], out);
            return;
        }
        let stored = self.sets.set_mut(set);
        stored.has_several_subsystems |=
            stored.carried > 0 && stored.about.origin.hw_id != report.head.about.origin.hw_id;
        stored.exceeded |= report.exceeded;
        stored.about = report.head.about;
        self.sets.insert(set, report.carried);
        self.stats.pending += 1;
        match self.decide(set, report) {
            Verdict::Incomplete => {}
            Verdict::Whole => self.complete(set, report, out),
            Verdict::Close(reason @ (Reason::Unconfirmed | Reason::Disordered)) => {
                self.emit_incomplete(set, reason, out);
                self.keep_completed(set);
            }
            Verdict::Close(reason) => {
                if reason == Reason::Contradicted {
                    self.suspend(self.sets.set(set).flow, report);
                }
                self.close_set(set, reason, out);
            }
        }
    }

    /// Decides whether the set is complete and its records are in the order of the path.
    fn decide(&mut self, set_slot: u32, report: &SfReport<'_>) -> Verdict {
        let set = self.sets.set(set_slot);
        if !set.has_opening {
            return Verdict::Incomplete;
        }
        if set.exceeded {
            return Verdict::Close(Reason::HopLimit);
        }
        if !set.has_sink_record {
            return Verdict::Close(Reason::NoOpening);
        }
        // Without the initial hop count the set cannot be complete. It stays open, and may still show a contradiction.
        let Some(initial) = self.hop_counts.initial(report.head.about.profile) else {
            return Verdict::Incomplete;
        };
        let writers = initial.saturating_sub(set.remaining.into());
        let carried = u16::from(set.carried);
        if carried < writers {
            return Verdict::Incomplete;
        }
        if carried > writers {
            return Verdict::Close(Reason::Contradicted);
        }
        if report.head.about.ts < self.flows.get(set.flow).suspended_until {
            return Verdict::Close(Reason::Contradicted);
        }
        self.decide_order(set_slot, initial, report)
    }

    fn decide_order(&mut self, set_slot: u32, initial: u16, report: &SfReport<'_>) -> Verdict {
        let set = self.sets.set(set_slot);
        let carried = self.sets.carried(set_slot);
        let sink_record = self.sets.sink_record(set_slot);
        let sink = sink_record.map(|record| record.reading.node);
        if carried.len() > 1 && carried.iter().any(|record| Some(record.reading.node) == sink) {
            return Verdict::Close(Reason::Contradicted);
        }
        let path = Path::hash_nodes(
            carried.iter().map(|record| record.reading.node).chain(sink),
            self.seed,
        );
        let is_proven_by_clocks = is_in_order(&self.sets, set_slot, report.units);
        if is_proven_by_clocks == Some(false) {
            return Verdict::Close(Reason::Disordered);
        }
        let mut later_records = carried.iter().enumerate().skip(1);
        let is_proven = is_proven_by_clocks == Some(true)
            || !set.has_several_subsystems
                && carried.first().is_some_and(|first| first.order == set.order)
                && later_records.all(|(position, record)| {
                    u16::from(record.remaining) + expected_writers(position) == initial
                });
        match self
            .flows
            .get_mut(set.flow)
            .confirm(path, is_proven, self.config.confirmations)
        {
            PathStatus::Known => Verdict::Whole,
            PathStatus::Candidate => Verdict::Close(Reason::Unconfirmed),
            PathStatus::Unproven => Verdict::Close(Reason::Disordered),
        }
    }

    /// Emits a complete set, and keeps it until the flow completes the next one.
    fn complete(&mut self, set_slot: u32, report: &SfReport<'_>, out: &mut dyn JoinOutput) {
        let records = self.sets.set(set_slot).records();
        self.stats.complete.add(records);
        self.stats.pending -= records as u64;
        let ends = self.sets.readings(set_slot, &mut self.scratch);
        if let [source, sink] = self.scratch[..]
            && source.node == sink.node
        {
            // One node is source and sink. Its record as the sink is the later one; an empty sink record is dropped instead.
            let is_empty_sink_record = sink
                == Reading {
                    node: sink.node,
                    ..Reading::NOTHING
                };
            self.scratch.remove(usize::from(is_empty_sink_record));
        }
        let hops = ReadHops::new(&self.scratch, ends, report.units);
        if report.head.about.has_flow {
            out.path(report.head, hops);
        } else {
            out.nodes(report.head, hops);
        }
        self.keep_completed(set_slot);
    }

    /// Keeps a reported set until the flow's next one, to detect records that repeat or contradict it.
    fn keep_completed(&mut self, set_slot: u32) {
        let flow = self.sets.set(set_slot).flow;
        for set in self.flows.get(flow).sets {
            if set != NO_SLOT && self.sets.set(set).status == Status::Done {
                self.flows.get_mut(flow).forget(set);
                self.sets.close(set);
            }
        }
        self.sets.set_mut(set_slot).status = Status::Done;
    }

    /// Opens a set as the flow's latest. Closes the flow's oldest set, or the oldest set of all, to make room.
    fn open_set(&mut self, flow: u32, report: &SfReport<'_>, out: &mut dyn JoinOutput) -> u32 {
        let oldest = self.flows.get(flow).sets[SETS - 1];
        if oldest != NO_SLOT {
            self.close_set(oldest, Reason::NextId, out);
        }
        if self.sets.is_full()
            && let Some(oldest) = self.sets.oldest()
        {
            self.evicted += u64::from(self.sets.set(oldest).status == Status::Open);
            self.close_set(oldest, Reason::Evicted, out);
        }
        let set = self.sets.open(flow, report.head.about.ts);
        self.flows.get_mut(flow).open(set, report.packet_id);
        set
    }

    /// Closes the flow's sets whose packet ID is so far behind that it will soon be reused.
    fn close_wrapped(&mut self, flow: u32, report: &SfReport<'_>, out: &mut dyn JoinOutput) {
        let Flow { sets, ids, .. } = *self.flows.get(flow);
        for (set, id) in sets.into_iter().zip(ids) {
            if set != NO_SLOT {
                // Differences from -MAX_REORDERING to -1 are reordered reports, not sets that wrapped.
                let behind = report.packet_id.wrapping_sub(id);
                if (1 << 15..MAX_REORDERING.wrapping_neg()).contains(&behind) {
                    self.close_set(set, Reason::Wrapped, out);
                }
            }
        }
    }

    /// Closes a set. An open one counts as incomplete, and its records become samples.
    fn close_set(&mut self, set_slot: u32, reason: Reason, out: &mut dyn JoinOutput) {
        let set = self.sets.set(set_slot);
        let flow = set.flow;
        if set.status == Status::Open && set.records() > 0 {
            self.emit_incomplete(set_slot, reason, out);
        }
        self.flows.get_mut(flow).forget(set_slot);
        self.sets.close(set_slot);
    }

    /// Counts a set as incomplete, and emits its records as samples of their nodes.
    fn emit_incomplete(&mut self, set_slot: u32, reason: Reason, out: &mut dyn JoinOutput) {
        let set = self.sets.set(set_slot);
        let about = set.about;
        let records = set.records();
        let reason = match reason {
            Reason::NextId | Reason::Timeout | Reason::Wrapped | Reason::Ended if !set.has_opening => {
                Reason::NoOpening
            }
            Reason::NextId | Reason::Timeout | Reason::Wrapped | Reason::Ended
                if self.hop_counts.initial(about.profile).is_none() =>
            {
                Reason::NoLength
            }
            reason => reason,
        };
        self.stats.partial[reason as usize].add(records);
        self.stats.pending -= records as u64;
        let ends = self.sets.readings(set_slot, &mut self.scratch);
        let head = Head {
            about,
            ..Head::none()
        };
        out.nodes(&head, ReadHops::new(&self.scratch, ends, Units::NONE));
    }

    /// Closes all sets of a flow, and removes it.
    fn remove_flow(&mut self, flow: u32, reason: Reason, out: &mut dyn JoinOutput) {
        for set in self.flows.get(flow).sets {
            if set != NO_SLOT {
                self.close_set(set, reason, out);
            }
        }
        self.flows.remove(flow);
    }

    /// Closes expired sets and flows, a bounded number per call.
    pub(crate) fn tick(&mut self, now: Nanos, out: &mut dyn JoinOutput) {
        for _ in 0..PER_TICK {
            match self.sets.oldest() {
                Some(oldest) if self.is_expired(oldest, now) => self.close_set(oldest, Reason::Timeout, out),
                _ => break,
            }
        }
        let slots = self.flows.slots();
        for _ in 0..PER_TICK.min(slots) {
            let flow = self.sweep_slot % slots;
            self.sweep_slot = flow + 1;
            if !self.flows.is_used(flow) {
                continue;
            }
            let state = self.flows.get_mut(flow);
            follow_clock(&mut state.last_seen, 0, now);
            follow_clock(&mut state.suspended_until, SUSPENSION, now);
            if now.saturating_sub(state.last_seen) >= FLOW_TIMEOUT {
                self.remove_flow(flow, Reason::Timeout, out);
            }
        }
    }

    /// Closes all sets when the collector stops.
    pub(crate) fn finish(&mut self, out: &mut dyn JoinOutput) {
        while let Some(oldest) = self.sets.oldest() {
            self.close_set(oldest, Reason::Ended, out);
        }
    }
}

/// Applies the values of one node to the node metrics only, not to a flow.
fn emit_sample(report: &SfReport<'_>, record: &SfRecord, out: &mut dyn JoinOutput) {
    let readings = std::slice::from_ref(&record.reading);
    out.nodes(
        report.head,
        ReadHops::new(readings, EndTimestamps::NONE, report.units),
    );
}

/// Applies the values of up to two nodes to the node metrics only, not to a flow.
fn emit_samples(report: &SfReport<'_>, records: &[Option<&SfRecord>], out: &mut dyn JoinOutput) {
    let mut readings = [Reading::NOTHING; 2];
    let records = records.iter().flatten();
    let count = readings
        .iter_mut()
        .zip(records)
        .map(|(to, from)| *to = from.reading)
        .count();
    let hops = ReadHops::new(&readings[..count], EndTimestamps::NONE, report.units);
    out.nodes(report.head, hops);
}
