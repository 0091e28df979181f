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
use length::{Lengths, expected_writers};
use set::{Pool, Record, Status, is_in_order};
pub(crate) use stage::{SfBurst, SfInt};

/// Time for which joining is suspended after one of a flow's complete sets grew, ns.
const SUSPENSION: Nanos = 10_000_000_000;

/// Maximum reordering of reports, in packet IDs.
const DISORDER: u16 = 1024;

/// Idle time after which a flow is removed, ns; its stored state is useless by then.
const SILENCE: Nanos = 60_000_000_000;

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
    pub(crate) carried: Record,
    pub(crate) own: Option<Record>,
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
        1 + u64::from(self.own.is_some())
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
    sets: Pool,
    lengths: Lengths,
    seed: u64,
    scratch: Vec<Reading>,
    stats: JoinStats,
    /// Sets evicted because the table was full.
    evicted: u64,
    /// The flow that the expiry sweep visits next.
    next: u32,
}

/// Decision about a set after it has grown.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Verdict {
    Wait,
    Whole,
    Close(Reason),
}

impl Joiner {
    /// Reserves the memory for the table sizes in `config`.
    pub(crate) fn new(config: JoinConfig, seed: u64) -> Self {
        // The sink's record and at least one more.
        let room = config.max_nodes.clamp(2, 255);
        Self {
            flows: Flows::with_capacity(config.max_flows),
            sets: Pool::with_capacity(config.max_sets, room),
            lengths: Lengths::new(config.hop_limit),
            seed,
            scratch: Vec::with_capacity(room),
            stats: JoinStats::default(),
            evicted: 0,
            next: 0,
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
    pub(crate) fn apply(&mut self, part: &SfReport<'_>, out: &mut dyn JoinOutput) {
        self.apply_at(NO_SLOT, part, out);
    }

    /// Processes a report that a node before the sink sent, about its queue or a packet that ended there. Its records are
    /// samples.
    fn apply_transit(&mut self, part: &SfReport<'_>, out: &mut dyn JoinOutput) {
        self.stats.reports += 1;
        self.stats.records += part.records();
        self.stats.transit_samples += part.records();
        emit(part, &[Some(&part.carried), part.own.as_ref()], out);
    }

    /// Does the same as [`Joiner::apply`]; the flow is probably at slot `hint`.
    pub(crate) fn apply_at(&mut self, hint: u32, part: &SfReport<'_>, out: &mut dyn JoinOutput) {
        self.stats.reports += 1;
        self.stats.records += part.records();
        let about = &part.head.about;
        let medium = part.priority == Priority::Medium;
        self.lengths
            .note(about.profile, part.carried.remaining, medium, about.ts);
        if part.priority == Priority::Low {
            self.stats.low_samples += 1;
            self.samples(part, true, out);
            return;
        }
        let flow = match self.enter(hint, part, out) {
            Ok(flow) => flow,
            Err(reason) => {
                self.stats.unadmitted[reason as usize] += part.records();
                emit(part, &[Some(&part.carried), part.own.as_ref()], out);
                return;
            }
        };
        match part.priority {
            Priority::Medium => self.open_with(flow, part, out),
            _ => self.extend_with(flow, part, out),
        }
    }

    /// Emits the sink's record as a sample, and the carried one too if `lone` (it belongs to no set).
    fn samples(&mut self, part: &SfReport<'_>, lone: bool, out: &mut dyn JoinOutput) {
        self.stats.sink_samples += u64::from(part.own.is_some());
        match &part.own {
            Some(own) if !lone => emit_one(part, own, out),
            own if lone => emit(part, &[Some(&part.carried), own.as_ref()], out),
            _ => {}
        }
    }

    /// Returns the slot of the report's flow, and adds the flow if it is new.
    fn enter(&mut self, hint: u32, part: &SfReport<'_>, out: &mut dyn JoinOutput) -> Result<u32, Unadmitted> {
        let about = &part.head.about;
        let hash = part.head.hash;
        let second = (about.ts / 1_000_000_000) as u32;
        let mut slot = self.flows.find(&about.key, hash, hint);
        if slot == NO_SLOT {
            let room = match self.flows.admit(hash, second) {
                Admission::Free(room) => room,
                Admission::Evict(room, slot) => {
                    self.leave(slot, Reason::Evicted, out);
                    room
                }
                Admission::Refused(reason) => return Err(reason),
            };
            slot = self.flows.insert(room, about.key, hash, about.ts, second);
        }
        self.flows.touch(slot, about.ts, second);
        Ok(slot)
    }

    /// Returns the flow's set with this packet ID. Closes and ignores an expired one.
    fn find(&mut self, flow: u32, part: &SfReport<'_>, out: &mut dyn JoinOutput) -> Option<u32> {
        let set = self.flows.get(flow).set(part.packet_id)?;
        if self.is_over(set, part.head.about.ts) {
            self.close(set, Reason::Timeout, out);
            return None;
        }
        Some(set)
    }

    fn is_over(&self, set: u32, now: Nanos) -> bool {
        now.saturating_sub(self.sets.set(set).opened) >= self.config.timeout
    }

    /// Processes a report of state Medium, which opens a set.
    fn open_with(&mut self, flow: u32, part: &SfReport<'_>, out: &mut dyn JoinOutput) {
        self.wrap(flow, part, out);
        let set = match self.find(flow, part, out) {
            Some(set) if self.sets.set(set).opening => {
                if self.sets.set(set).order == part.carried.order {
                    self.stats.repeated += part.records();
                    return;
                }
                // Same packet ID, other report: the source has restarted, or 65536 packets have passed.
                self.close(set, Reason::Wrapped, out);
                self.open(flow, part, out)
            }
            Some(set) => set,
            None => self.open(flow, part, out),
        };
        if !self.fits(set, part) {
            self.contradict(set, part, out);
            return;
        }
        let head = self.sets.set_mut(set);
        (head.opening, head.order) = (true, part.carried.order);
        head.remaining = part.carried.remaining;
        if let Some(own) = part.own {
            self.sets.put_own(set, own);
            self.stats.pending += 1;
        }
        self.add(set, part, out);
    }

    /// Processes a report of state High, which extends a set.
    fn extend_with(&mut self, flow: u32, part: &SfReport<'_>, out: &mut dyn JoinOutput) {
        let set = match self.find(flow, part, out) {
            Some(set) => set,
            None => self.open(flow, part, out),
        };
        let node = part.carried.reading.node;
        let there = self
            .sets
            .carried(set)
            .iter()
            .find(|record| record.reading.node == node);
        if there.is_some_and(|there| there.has_same_values(&part.carried)) {
            self.stats.repeated += 1;
            self.samples(part, false, out);
        } else if self.sets.set(set).status == Status::Done || !self.fits(set, part) {
            if self.sets.set(set).status == Status::Done && self.fits(set, part) {
                self.suspend(flow, part);
            }
            self.contradict(set, part, out);
        } else {
            self.samples(part, false, out);
            self.add(set, part, out);
        }
    }

    /// Returns true if the set does not have this record's node yet.
    fn fits(&self, set: u32, part: &SfReport<'_>) -> bool {
        let node = part.carried.reading.node;
        self.sets
            .carried(set)
            .iter()
            .all(|record| record.reading.node != node)
    }

    /// Processes a record that contradicts its set: closes an open set, and treats the record as a sample.
    #[cold]
    fn contradict(&mut self, set: u32, part: &SfReport<'_>, out: &mut dyn JoinOutput) {
        if self.sets.set(set).status == Status::Open {
            self.close(set, Reason::Contradicted, out);
        }
        if part.priority == Priority::Medium {
            self.stats.stray += part.records();
            emit(part, &[Some(&part.carried), part.own.as_ref()], out);
        } else {
            self.stats.stray += 1;
            self.samples(part, true, out);
        }
    }

    #[cold]
    fn suspend(&mut self, flow: u32, part: &SfReport<'_>) {
        let until = part.head.about.ts.saturating_add(SUSPENSION);
        self.flows.get_mut(flow).suspend(until);
    }

    /// Adds a carried record to its set, and acts if the set is now complete or contradictory.
    fn add(&mut self, set: u32, part: &SfReport<'_>, out: &mut dyn JoinOutput) {
        if !self.sets.has_room(set) {
            self.close(set, Reason::TooLong, out);
            self.stats.stray += 1;
            emit(part, &[Some(&part.carried)], out);
            return;
        }
        let head = self.sets.set_mut(set);
        head.mixed |= head.carried > 0 && head.about.origin.hw_id != part.head.about.origin.hw_id;
        head.exceeded |= part.exceeded;
        head.about = part.head.about;
        self.sets.insert(set, part.carried);
        self.stats.pending += 1;
        match self.decide(set, part) {
            Verdict::Wait => {}
            Verdict::Whole => self.complete(set, part, out),
            Verdict::Close(reason @ (Reason::Unconfirmed | Reason::Disordered)) => {
                self.give_up(set, reason, out);
                self.keep_completed(set);
            }
            Verdict::Close(reason) => {
                if reason == Reason::Contradicted {
                    self.suspend(self.sets.set(set).flow, part);
                }
                self.close(set, reason, out);
            }
        }
    }

    /// Decides whether the set is complete and its records are in the order of the path.
    fn decide(&mut self, at: u32, part: &SfReport<'_>) -> Verdict {
        let set = self.sets.set(at);
        if !set.opening {
            return Verdict::Wait;
        }
        if set.exceeded {
            return Verdict::Close(Reason::HopLimit);
        }
        if !set.own {
            return Verdict::Close(Reason::NoOpening);
        }
        // Without the initial hop count the set cannot be complete. It stays open, and may still show a contradiction.
        let Some(initial) = self.lengths.initial(part.head.about.profile) else {
            return Verdict::Wait;
        };
        let writers = initial.saturating_sub(set.remaining.into());
        let carried = u16::from(set.carried);
        if carried < writers {
            return Verdict::Wait;
        }
        if carried > writers {
            return Verdict::Close(Reason::Contradicted);
        }
        if part.head.about.ts < self.flows.get(set.flow).suspended_until {
            return Verdict::Close(Reason::Contradicted);
        }
        self.decide_order(at, initial, part)
    }

    fn decide_order(&mut self, at: u32, initial: u16, part: &SfReport<'_>) -> Verdict {
        let set = self.sets.set(at);
        let carried = self.sets.carried(at);
        let own = self.sets.own(at);
        let sink = own.map(|own| own.reading.node);
        if carried.len() > 1 && carried.iter().any(|record| Some(record.reading.node) == sink) {
            return Verdict::Close(Reason::Contradicted);
        }
        let path = Path::of(
            carried.iter().map(|record| record.reading.node).chain(sink),
            self.seed,
        );
        let in_order = is_in_order(&self.sets, at, part.units);
        if in_order == Some(false) {
            return Verdict::Close(Reason::Disordered);
        }
        let mut after = carried.iter().enumerate().skip(1);
        let proven = in_order == Some(true)
            || !set.mixed
                && carried.first().is_some_and(|first| first.order == set.order)
                && after
                    .all(|(later, record)| u16::from(record.remaining) + expected_writers(later) == initial);
        match self
            .flows
            .get_mut(set.flow)
            .confirm(path, proven, self.config.confirmations)
        {
            PathStatus::Known => Verdict::Whole,
            PathStatus::Candidate => Verdict::Close(Reason::Unconfirmed),
            PathStatus::Unproven => Verdict::Close(Reason::Disordered),
        }
    }

    /// Emits a complete set, and keeps it until the flow completes the next one.
    fn complete(&mut self, at: u32, part: &SfReport<'_>, out: &mut dyn JoinOutput) {
        let records = self.sets.set(at).records();
        self.stats.complete.add(records);
        self.stats.pending -= records as u64;
        let ends = self.sets.readings(at, &mut self.scratch);
        if let [source, sink] = self.scratch[..]
            && source.node == sink.node
        {
            // One node is source and sink. Its record as the sink is the later one; an empty sink record is dropped instead.
            let silent = sink
                == Reading {
                    node: sink.node,
                    ..Reading::NOTHING
                };
            self.scratch.remove(usize::from(silent));
        }
        let hops = ReadHops::new(&self.scratch, ends, part.units);
        if part.head.about.has_flow {
            out.path(part.head, hops);
        } else {
            out.nodes(part.head, hops);
        }
        self.keep_completed(at);
    }

    /// Keeps a reported set until the flow's next one, to detect records that repeat or contradict it.
    fn keep_completed(&mut self, at: u32) {
        let flow = self.sets.set(at).flow;
        for set in self.flows.get(flow).sets {
            if set != NO_SLOT && self.sets.set(set).status == Status::Done {
                self.flows.get_mut(flow).forget(set);
                self.sets.close(set);
            }
        }
        self.sets.set_mut(at).status = Status::Done;
    }

    /// Opens a set as the flow's latest. Closes the flow's oldest set, or the oldest set of all, to make room.
    fn open(&mut self, flow: u32, part: &SfReport<'_>, out: &mut dyn JoinOutput) -> u32 {
        let oldest = self.flows.get(flow).sets[SETS - 1];
        if oldest != NO_SLOT {
            self.close(oldest, Reason::NextId, out);
        }
        if self.sets.is_full()
            && let Some(oldest) = self.sets.oldest()
        {
            self.evicted += u64::from(self.sets.set(oldest).status == Status::Open);
            self.close(oldest, Reason::Evicted, out);
        }
        let set = self.sets.open(flow, part.head.about.ts);
        self.flows.get_mut(flow).open(set, part.packet_id);
        set
    }

    /// Closes the flow's sets whose packet ID is so far behind that it will soon be reused.
    fn wrap(&mut self, flow: u32, part: &SfReport<'_>, out: &mut dyn JoinOutput) {
        let Flow { sets, ids, .. } = *self.flows.get(flow);
        for (set, id) in sets.into_iter().zip(ids) {
            if set != NO_SLOT {
                // Differences from -DISORDER to -1 are reordered reports, not sets that wrapped.
                let behind = part.packet_id.wrapping_sub(id);
                if (1 << 15..DISORDER.wrapping_neg()).contains(&behind) {
                    self.close(set, Reason::Wrapped, out);
                }
            }
        }
    }

    /// Closes a set. An open one counts as incomplete, and its records become samples.
    fn close(&mut self, at: u32, reason: Reason, out: &mut dyn JoinOutput) {
        let set = self.sets.set(at);
        let flow = set.flow;
        if set.status == Status::Open && set.records() > 0 {
            self.give_up(at, reason, out);
        }
        self.flows.get_mut(flow).forget(at);
        self.sets.close(at);
    }

    /// Counts a set as incomplete, and emits its records as samples of their nodes.
    fn give_up(&mut self, at: u32, reason: Reason, out: &mut dyn JoinOutput) {
        let set = self.sets.set(at);
        let about = set.about;
        let records = set.records();
        let reason = match reason {
            Reason::NextId | Reason::Timeout | Reason::Wrapped | Reason::Ended if !set.opening => {
                Reason::NoOpening
            }
            Reason::NextId | Reason::Timeout | Reason::Wrapped | Reason::Ended
                if self.lengths.initial(about.profile).is_none() =>
            {
                Reason::NoLength
            }
            reason => reason,
        };
        self.stats.partial[reason as usize].add(records);
        self.stats.pending -= records as u64;
        let ends = self.sets.readings(at, &mut self.scratch);
        let head = Head {
            about,
            ..Head::none()
        };
        out.nodes(&head, ReadHops::new(&self.scratch, ends, Units::NONE));
    }

    /// Closes all sets of a flow, and removes it.
    fn leave(&mut self, flow: u32, reason: Reason, out: &mut dyn JoinOutput) {
        for set in self.flows.get(flow).sets {
            if set != NO_SLOT {
                self.close(set, reason, out);
            }
        }
        self.flows.remove(flow);
    }

    /// Closes expired sets and flows, a bounded number per call.
    pub(crate) fn tick(&mut self, now: Nanos, out: &mut dyn JoinOutput) {
        for _ in 0..PER_TICK {
            match self.sets.oldest() {
                Some(oldest) if self.is_over(oldest, now) => self.close(oldest, Reason::Timeout, out),
                _ => break,
            }
        }
        let slots = self.flows.slots();
        for _ in 0..PER_TICK.min(slots) {
            let flow = self.next % slots;
            self.next = flow + 1;
            if !self.flows.is_used(flow) {
                continue;
            }
            let state = self.flows.get_mut(flow);
            follow_clock(&mut state.last_seen, 0, now);
            follow_clock(&mut state.suspended_until, SUSPENSION, now);
            if now.saturating_sub(state.last_seen) >= SILENCE {
                self.leave(flow, Reason::Timeout, out);
            }
        }
    }

    /// Closes all sets when the collector stops.
    pub(crate) fn finish(&mut self, out: &mut dyn JoinOutput) {
        while let Some(oldest) = self.sets.oldest() {
            self.close(oldest, Reason::Ended, out);
        }
    }
}

/// Applies the values of one node to the node metrics only, not to a flow.
fn emit_one(part: &SfReport<'_>, record: &Record, out: &mut dyn JoinOutput) {
    let readings = std::slice::from_ref(&record.reading);
    out.nodes(
        part.head,
        ReadHops::new(readings, EndTimestamps::NONE, part.units),
    );
}

/// Applies the values of up to two nodes to the node metrics only, not to a flow.
fn emit(part: &SfReport<'_>, records: &[Option<&Record>], out: &mut dyn JoinOutput) {
    let mut readings = [Reading::NOTHING; 2];
    let there = records.iter().flatten();
    let count = readings
        .iter_mut()
        .zip(there)
        .map(|(to, from)| *to = from.reading)
        .count();
    let hops = ReadHops::new(&readings[..count], EndTimestamps::NONE, part.units);
    out.nodes(part.head, hops);
}
