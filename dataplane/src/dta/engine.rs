//! Executes the mappings of a reporter: evaluates conditions and sampling, builds DTA operations from measurements, and queues
//! their reports.

use detect::Match;
use wire::dta::{Base, Operation, Report};

use super::context::{Context, Trigger};
use super::destination::{Destination, Retransmission};
use super::field::{self, ReportedHop, ValueError};
use super::mapping::{Action, Mapping, data_len};
use super::outbox::Outbox;
use super::spread::Spread;
use super::{SendError, SendOptions};

/// Outcomes of the reports of a mapping: made = sent + pending + all later fields.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MappingStats {
    /// Operations attempted; for Append, entries.
    pub made: u64,
    /// Reports sent, or stored for later sending because there was no space.
    pub sent: u64,
    /// Entries that wait for a full batch.
    pub pending: u64,
    /// Reports suppressed because of congestion.
    pub suppressed: u64,
    /// Reports for which a part of the key, or the value, was unknown.
    pub absent: u64,
    /// Reports with an IPv6 address in a field of four bytes, or a key of another length than the field.
    pub size: u64,
    /// Reports for which the outbox was full.
    pub queue_full: u64,
}

impl MappingStats {
    /// Returns whether the counts add up.
    pub fn is_balanced(&self) -> bool {
        let without_value = self.absent + self.size;
        self.made == self.sent + self.pending + self.suppressed + without_value + self.queue_full
    }
}

#[derive(Debug)]
pub(super) struct Engine {
    pub(super) reporter: u32,
    mappings: Vec<Compiled>,
    /// Indices of the mappings of each trigger.
    by_trigger: [Vec<u16>; Trigger::ALL.len()],
    pub(super) spread: Spread,
    pub(super) destinations: Vec<Destination>,
    pub(super) retransmission: Retransmission,
    data: Vec<u8>,
    /// Number of reports sent for the first time, with and without a mapping.
    pub(super) reports: u64,
}

#[derive(Debug)]
struct Compiled {
    mapping: Mapping,
    /// True if a field uses the hop that the report is about.
    needs_hop: bool,
    /// Bit of the mapping in a table's record, for [`Trigger::Passed`].
    bit: u8,
    /// Reports counted since the last one in the sample.
    reports_since_sample: u32,
    batches: Vec<PendingBatch>,
    stats: MappingStats,
}

/// Entries of one list that wait for a full batch.
#[derive(Debug)]
struct PendingBatch {
    list: u32,
    collector: u8,
    bytes: Vec<u8>,
    count: u8,
    /// Arrival time of the first entry, ns.
    oldest_arrival: u64,
}

/// The reason why a mapping did not make a report.
enum MappingError {
    Value(ValueError),
    Send(SendError),
}

impl From<ValueError> for MappingError {
    fn from(error: ValueError) -> Self {
        Self::Value(error)
    }
}

impl From<SendError> for MappingError {
    fn from(error: SendError) -> Self {
        Self::Send(error)
    }
}

enum SendOutcome {
    Sent,
    Pending,
}

impl Engine {
    pub(super) fn new(
        reporter: u32,
        mappings: Vec<Mapping>,
        spread: Spread,
        retransmission: Retransmission,
        max_essential_len: usize,
        first: u16,
    ) -> Self {
        let mut by_trigger: [Vec<u16>; Trigger::ALL.len()] = Default::default();
        let mut passed = 0_u8;
        let mut compiled = Vec::with_capacity(mappings.len());
        for (index, mapping) in mappings.into_iter().enumerate() {
            by_trigger[mapping.on as usize].push(index as u16);
            let is_passed = u8::from(mapping.on == Trigger::Passed);
            let bit = is_passed << (passed & 7);
            passed += is_passed;
            compiled.push(Compiled::new(mapping, bit, &spread));
        }
        let longest = compiled
            .iter()
            .map(|mapping| mapping.mapping.max_report_len())
            .max()
            .unwrap_or(0);
        let destinations = (0..spread.collectors())
            .map(|number| Destination::new(number as u8, max_essential_len, first))
            .collect();
        Self {
            reporter,
            mappings: compiled,
            by_trigger,
            spread,
            destinations,
            retransmission,
            data: vec![0; longest],
            reports: 0,
        }
    }

    pub(super) fn set_spread(&mut self, spread: Spread, first: u16) -> Result<(), String> {
        let current_count = self.destinations.len();
        let new_count = spread.collectors();
        if new_count < current_count {
            return Err(format!(
                "there were {current_count} collectors, and now {new_count}; none can be taken away"
            ));
        }
        let longest = self.destinations.first().map_or(0, Destination::longest);
        let added = (current_count..new_count).map(|number| Destination::new(number as u8, longest, first));
        self.destinations.extend(added);
        for batch in self.mappings.iter_mut().flat_map(|mapping| &mut mapping.batches) {
            batch.collector = spread.of_list(batch.list);
        }
        self.spread = spread;
        Ok(())
    }

    /// Returns whether a mapping has this trigger.
    pub(super) fn has_mapping_for(&self, trigger: Trigger) -> bool {
        !self.by_trigger[trigger as usize].is_empty()
    }

    /// Returns the mappings with their statistics.
    pub(super) fn stats(&self) -> impl ExactSizeIterator<Item = (&Mapping, &MappingStats)> {
        self.mappings
            .iter()
            .map(|mapping| (&mapping.mapping, &mapping.stats))
    }

    /// Executes the mappings of a trigger. `passed` is the set of mappings (bits) that have already reported this record.
    /// Returns it together with the new ones.
    pub(super) fn report(
        &mut self,
        context: &Context<'_>,
        table: Option<usize>,
        passed: u8,
        now: u64,
        out: &mut Outbox,
    ) -> u8 {
        let mut reported = passed;
        for i in 0..self.by_trigger[context.trigger as usize].len() {
            let index = usize::from(self.by_trigger[context.trigger as usize][i]);
            let compiled = &self.mappings[index];
            if compiled.mapping.table != table || !compiled.is_for(context) || compiled.bit & reported != 0 {
                continue;
            }
            if self.execute_mapping(index, context, now, out) {
                reported |= self.mappings[index].bit;
            }
        }
        reported
    }

    /// Executes one mapping. Returns true if its conditions were met. The postcards of a path count as one report.
    fn execute_mapping(&mut self, index: usize, context: &Context<'_>, now: u64, out: &mut Outbox) -> bool {
        let compiled = &self.mappings[index];
        let makes_postcards = matches!(compiled.mapping.action, Action::Postcard { .. });
        let is_per_hop = compiled.mapping.each_hop || (makes_postcards && context.trigger == Trigger::Path);
        if !is_per_hop {
            let hop = if compiled.needs_hop {
                context.last_hop()
            } else {
                None
            };
            return self.execute_once(
                index,
                context,
                &ReportedHop {
                    hop,
                    number: hop_number(context),
                },
                now,
                None,
                out,
            );
        }
        let needs_hop = compiled.needs_hop;
        let mut is_met = false;
        // A path is sampled completely or not at all.
        let is_path_sampled = makes_postcards.then(|| compiled.is_next_sampled());
        for i in 0..context.hops().min(usize::from(u8::MAX)) {
            let hop = if needs_hop { context.hop(i) } else { None };
            is_met |= self.execute_once(
                index,
                context,
                &ReportedHop {
                    hop,
                    number: i as u8 + 1,
                },
                now,
                is_path_sampled,
                out,
            );
        }
        if is_met && is_path_sampled.is_some() {
            self.mappings[index].sample();
        }
        is_met
    }

    fn execute_once(
        &mut self,
        index: usize,
        context: &Context<'_>,
        subject: &ReportedHop,
        now: u64,
        is_sampled: Option<bool>,
        out: &mut Outbox,
    ) -> bool {
        let compiled = &mut self.mappings[index];
        if !compiled
            .mapping
            .when
            .iter()
            .all(|condition| condition.is_met(context, subject, now))
        {
            return false;
        }
        if !is_sampled.unwrap_or_else(|| compiled.sample()) {
            return true;
        }
        compiled.stats.made += 1;
        let result = self.make_report(index, context, subject, now, out);
        let stats = &mut self.mappings[index].stats;
        match result {
            Ok(SendOutcome::Sent) => stats.sent += 1,
            Ok(SendOutcome::Pending) => stats.pending += 1,
            Err(MappingError::Send(SendError::Suppressed)) => stats.suppressed += 1,
            Err(MappingError::Send(SendError::NoRoom)) => stats.queue_full += 1,
            Err(MappingError::Value(ValueError::Absent)) => stats.absent += 1,
            Err(MappingError::Value(ValueError::Size)) => stats.size += 1,
        }
        true
    }

    fn make_report(
        &mut self,
        index: usize,
        context: &Context<'_>,
        subject: &ReportedHop,
        now: u64,
        out: &mut Outbox,
    ) -> Result<SendOutcome, MappingError> {
        let Self {
            mappings,
            spread,
            destinations,
            retransmission,
            data,
            reporter,
            reports,
            ..
        } = self;
        let mapping = &mappings[index].mapping;
        let mut key = [0; wire::dta::hash::MAX_KEY];
        let operation = match &mapping.action {
            Action::Append { .. } => return self.append(index, context, subject, now, out),
            Action::KeyWrite {
                store,
                copies,
                key: fields,
                data: fields_of_data,
            } => {
                let len = field::write_key(fields, context, subject, now, &mut key)?;
                let end = field::write_data(fields_of_data, context, subject, now, data)?;
                Operation::KeyWrite {
                    copies: *copies,
                    store: *store,
                    key: &key[..len],
                    data: &data[..end],
                }
            }
            Action::KeyIncrement {
                store,
                copies,
                key: fields,
                delta,
            } => {
                let len = field::write_key(fields, context, subject, now, &mut key)?;
                let delta = delta.number(context, subject, now).ok_or(ValueError::Absent)?;
                Operation::KeyIncrement {
                    copies: *copies,
                    store: *store,
                    delta,
                    key: &key[..len],
                }
            }
            Action::Postcard {
                store,
                key: fields,
                value,
            } => {
                let len = field::write_key(fields, context, subject, now, &mut key)?;
                let value = value.number(context, subject, now).ok_or(ValueError::Absent)?;
                let value = u32::try_from(value).map_err(|_| ValueError::Size)?;
                let value = Some(value)
                    .filter(|value| *value != u32::MAX)
                    .ok_or(ValueError::Absent)?;
                let hop = Some(subject.number)
                    .filter(|hop| *hop > 0)
                    .ok_or(ValueError::Absent)?;
                let path_len = if context.trigger == Trigger::Path {
                    context.hops().min(255) as u8
                } else {
                    0
                };
                Operation::Postcard {
                    hop,
                    path_len,
                    store: *store,
                    value,
                    key: &key[..len],
                }
            }
        };
        let collector = operation.key().map_or(0, |key| spread.of_key(key));
        let Some(destination) = destinations.get_mut(usize::from(collector)) else {
            return Err(SendError::NoRoom.into());
        };
        let delivery = Delivery {
            options: mapping.options,
            reporter: *reporter,
            now,
            probe: retransmission.probe,
        };
        send(destination, &operation, delivery, out)?;
        *reports += 1;
        Ok(SendOutcome::Sent)
    }

    /// Adds an entry to a list, and sends the batch when it is full.
    fn append(
        &mut self,
        index: usize,
        context: &Context<'_>,
        subject: &ReportedHop,
        now: u64,
        out: &mut Outbox,
    ) -> Result<SendOutcome, MappingError> {
        let Compiled { mapping, batches, .. } = &mut self.mappings[index];
        let Action::Append { spread, entry, .. } = &mapping.action else {
            return Err(ValueError::Absent.into());
        };
        let list_index = match batches.len() {
            1 => 0,
            lists => {
                let mut key = [0; wire::dta::hash::MAX_KEY];
                let len = field::write_key(spread, context, subject, now, &mut key)?;
                let hash = wire::dta::hash::hashes(&key[..len]).checksum;
                ((u64::from(hash) * lists as u64) >> 32) as usize
            }
        };
        let Some(batch) = batches.get_mut(list_index) else {
            return Err(ValueError::Absent.into());
        };
        let destination = self
            .destinations
            .get_mut(usize::from(batch.collector))
            .ok_or(SendError::NoRoom)?;
        if destination.suppresses(mapping.options.priority, now) {
            return Err(SendError::Suppressed.into());
        }
        let len = field::write_data(entry, context, subject, now, &mut self.data)?;
        let start = len * usize::from(batch.count);
        let slot = batch.bytes.get_mut(start..start + len).ok_or(SendError::NoRoom)?;
        slot.copy_from_slice(&self.data[..len]);
        if batch.count == 0 {
            batch.oldest_arrival = now;
        }
        batch.count += 1;
        let is_full = start + 2 * len > batch.bytes.len();
        if !is_full && !mapping.options.immediate {
            return Ok(SendOutcome::Pending);
        }
        let earlier_entries = u64::from(batch.count) - 1;
        let delivery = Delivery {
            options: mapping.options,
            reporter: self.reporter,
            now,
            probe: self.retransmission.probe,
        };
        match flush(batch, len, delivery, destination, out) {
            Ok(()) => {
                self.reports += 1;
                let stats = &mut self.mappings[index].stats;
                stats.pending -= earlier_entries;
                stats.sent += earlier_entries;
                Ok(SendOutcome::Sent)
            }
            // The batch waits until it fits into the outbox.
            Err(_) => Ok(SendOutcome::Pending),
        }
    }

    /// Sends an operation that does not come from a mapping.
    pub(super) fn send(
        &mut self,
        collector: u8,
        operation: &Operation<'_>,
        options: SendOptions,
        now: u64,
        out: &mut Outbox,
    ) -> Result<(), SendError> {
        let destination = self
            .destinations
            .get_mut(usize::from(collector))
            .ok_or(SendError::NoRoom)?;
        send(
            destination,
            operation,
            Delivery {
                options,
                reporter: self.reporter,
                now,
                probe: self.retransmission.probe,
            },
            out,
        )?;
        self.reports += 1;
        Ok(())
    }

    /// Sends batches that have waited long enough, and the due reports of destinations.
    pub(super) fn tick(&mut self, now: u64, out: &mut Outbox) {
        for destination in &mut self.destinations {
            destination.tick(now, &self.retransmission, out);
        }
        for compiled in &mut self.mappings {
            let Compiled {
                mapping,
                batches,
                stats,
                ..
            } = compiled;
            let Action::Append { hold, entry, .. } = &mapping.action else {
                continue;
            };
            let len = data_len(entry).unwrap_or(0);
            for batch in batches.iter_mut().filter(|batch| batch.count > 0) {
                let is_full = len * (usize::from(batch.count) + 1) > batch.bytes.len();
                if !is_full && !mapping.options.immediate && now < batch.oldest_arrival.saturating_add(*hold)
                {
                    continue;
                }
                let Some(destination) = self.destinations.get_mut(usize::from(batch.collector)) else {
                    continue;
                };
                let count = u64::from(batch.count);
                let delivery = Delivery {
                    options: mapping.options,
                    reporter: self.reporter,
                    now,
                    probe: self.retransmission.probe,
                };
                if flush(batch, len, delivery, destination, out).is_ok() {
                    self.reports += 1;
                    stats.pending -= count;
                    stats.sent += count;
                }
            }
        }
    }

    /// Returns the time at which [`Engine::tick`] is due, ns.
    pub(super) fn next(&self) -> Option<u64> {
        let batches = self.mappings.iter().filter_map(Compiled::next_flush);
        self.destinations
            .iter()
            .filter_map(Destination::next_tick)
            .chain(batches)
            .min()
    }
}

impl Compiled {
    fn new(mapping: Mapping, bit: u8, spread: &Spread) -> Self {
        let needs_hop = mapping.fields().any(|(_, field)| field.needs_hop());
        let mut batches = Vec::new();
        if let Action::Append {
            list,
            lists,
            entry,
            entries,
            ..
        } = &mapping.action
        {
            let len = data_len(entry).unwrap_or(0) * usize::from(*entries);
            batches.extend((0..u32::from(*lists)).map(|offset| {
                let list = list.saturating_add(offset);
                PendingBatch {
                    list,
                    collector: spread.of_list(list),
                    bytes: vec![0; len],
                    count: 0,
                    oldest_arrival: 0,
                }
            }));
        }
        Self {
            mapping,
            needs_hop,
            bit,
            reports_since_sample: 0,
            batches,
            stats: MappingStats::default(),
        }
    }

    /// Returns the time at which the first batch must be sent even if it is not full, ns.
    fn next_flush(&self) -> Option<u64> {
        let Action::Append { hold, .. } = self.mapping.action else {
            return None;
        };
        let pending = self.batches.iter().filter(|batch| batch.count > 0);
        pending
            .map(|batch| batch.oldest_arrival.saturating_add(hold))
            .min()
    }

    /// Advances the sampling of one report in `every`. Returns whether this report is in the sample.
    fn sample(&mut self) -> bool {
        let is_sampled = self.is_next_sampled();
        self.reports_since_sample = (self.reports_since_sample + 1) % self.mapping.every.max(1);
        is_sampled
    }

    /// Returns whether the next report will be in the sample.
    fn is_next_sampled(&self) -> bool {
        self.reports_since_sample == 0
    }

    /// Returns whether the mapping applies to this flow.
    #[inline]
    fn is_for(&self, context: &Context<'_>) -> bool {
        let flows = &self.mapping.flows;
        *flows == Match::default() || context.flow.is_some_and(|flow| flows.matches(flow))
    }
}

/// Returns the position of this switch on the path, from 1; 0 if unknown. A sink is the last one. Elsewhere the position is the
/// distance of the TTL from the usual initial values of hosts (64, 128, 255).
fn hop_number(context: &Context<'_>) -> u8 {
    if context.trigger == Trigger::Path {
        return context.hops().min(usize::from(u8::MAX)) as u8;
    }
    let limit = context.packet.hop_limit;
    let first = [64, 128, 255]
        .into_iter()
        .find(|first| *first >= limit)
        .unwrap_or(u8::MAX);
    if limit == 0 { 0 } else { first - limit }
}

/// Delivery options, reporter and time of a report.
#[derive(Clone, Copy)]
struct Delivery {
    options: SendOptions,
    reporter: u32,
    now: u64,
    probe: u64,
}

/// Sends the entries of a batch. Congestion does not suppress them, because that was decided when they arrived.
fn flush(
    batch: &mut PendingBatch,
    entry_len: usize,
    delivery: Delivery,
    destination: &mut Destination,
    out: &mut Outbox,
) -> Result<(), SendError> {
    let entries = &batch.bytes[..entry_len * usize::from(batch.count)];
    let operation = Operation::Append {
        list: batch.list,
        entry_len: entry_len as u16,
        entries,
    };
    emit(destination, &operation, delivery, out)?;
    batch.count = 0;
    Ok(())
}

/// Sends an operation, unless congestion suppresses it.
fn send(
    destination: &mut Destination,
    operation: &Operation<'_>,
    delivery: Delivery,
    out: &mut Outbox,
) -> Result<(), SendError> {
    if destination.suppresses(delivery.options.priority, delivery.now) {
        return Err(SendError::Suppressed);
    }
    emit(destination, operation, delivery, out)
}

fn emit(
    destination: &mut Destination,
    operation: &Operation<'_>,
    delivery: Delivery,
    out: &mut Outbox,
) -> Result<(), SendError> {
    let SendOptions {
        priority,
        essential,
        immediate,
    } = delivery.options;
    let report = Report {
        base: Base {
            immediate,
            essential,
            priority,
            sequence: 0,
            reporter: delivery.reporter,
        },
        operation: *operation,
    };
    if destination.send(&report, delivery.now, delivery.probe, out) {
        Ok(())
    } else {
        Err(SendError::NoRoom)
    }
}
