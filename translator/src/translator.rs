//! Processes DTA reports. Each report passes its sender's rate limit, the sequence check if it is essential, and congestion
//! control; then its primitive is executed on the collector's stores and triggers fire.
//!
//! Congestion levels decide on a report: level 1 drops low priority, level 2 also medium priority, and level 3 diverts
//! essential and high-priority reports to local memory, from where [`Translator::tick`] executes them later in order.

use core::net::{IpAddr, SocketAddr};

use rdma::transport::{RemoteAddr, Transport};
use wire::Refusal;
use wire::dta::{Opcode, Operation, PlainAppend, Priority, Report, artifact};

use crate::action::TriggerAction;
use crate::collector::CollectorState;
use crate::config::{Accept, CollectorConfig, Config, ConfigError};
use crate::control::{self, Emitter, Output};
use crate::local::Record;
use crate::meter::Meter;
use crate::received::{Origin, Received, tracker_key};
use crate::reporters::{self, Congestion, Reporters};
use crate::sender::{Fault, Sender};
use crate::sketch::{Merged, Sketch};
use crate::stats::{Cause, Operations, Reason, Stats};
use crate::stores::{Context, Stores};
use crate::tracker::Verdict;

/// Maximum reports executed from local memory per tick.
const REPORTS_PER_TICK: usize = 4096;
/// Retry interval of writes that had no credit, ns.
const RETRY_INTERVAL: u64 = 1_000_000;
/// Reports whose table entries are prefetched together.
const PREFETCH_BATCH: usize = 16;

/// The DTA translator. A driver passes it reports and calls [`tick`](Translator::tick) at its
/// [`deadline`](Translator::deadline).
///
/// ```
/// use translator::{CollectorConfig, Config, ConfigError, StoreEntry, Translator};
/// use wire::dta::layout::{Geometry, Ring};
///
/// // The collector's memory becomes known later, by the exchange with it.
/// let mut translator = Translator::new(Config { collectors: vec![None], ..Config::default() })?;
/// assert_eq!(translator.deadline(), None); // nothing is pending
///
/// let ring = Ring { entry_len: 4, entries: 1024, batch: 16, tagged: true };
/// let geometry = Geometry::Append { lists: 4, first_list: 0, ring };
/// let memory = CollectorConfig { stores: vec![StoreEntry::new(0, 1, geometry)], ..CollectorConfig::default() };
/// translator.attach(0, memory)?;
/// assert!(translator.set_next(0, 3, 18)); // list 3 continues with batch 18
/// assert!(!translator.set_next(0, 4, 1)); // there is no list 4
/// # Ok::<(), ConfigError>(())
/// ```
#[derive(Debug)]
pub struct Translator {
    config: Config,
    stats: Stats,
    operations: Operations,
    collectors: Vec<CollectorState>,
    reporters: Reporters,
    /// Per trigger, the time of its last entry plus one, ns; 0: none yet.
    trigger_times: Vec<u64>,
    messages: Emitter,
    now: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum ReportOutcome {
    Done,
    /// The report went to local memory because of this congestion level.
    Diverted(u8),
    /// The report was dropped because of this congestion level.
    Congested {
        level: u8,
        reason: Reason,
    },
    Dropped(Reason),
    /// Columns of the sketch are missing, from `first_missing` on.
    ColumnGap {
        first_missing: u32,
        send_nack: bool,
    },
}

impl Translator {
    /// Creates a translator and allocates memory for the collectors that are known.
    ///
    /// # Errors
    /// [`ConfigError`] for invalid settings.
    pub fn new(config: Config) -> Result<Self, ConfigError> {
        config.check()?;
        let mut translator = Self {
            stats: Stats::default(),
            operations: Operations::default(),
            collectors: config
                .collectors
                .iter()
                .map(|_| CollectorState::new(config.local))
                .collect(),
            reporters: Reporters::new(&config),
            trigger_times: vec![0; config.triggers.len()],
            messages: Emitter::default(),
            now: 0,
            config,
        };
        for collector in 0..translator.collectors.len() {
            if let Some(memory) = translator.config.collectors[collector].take() {
                translator.attach(collector as u8, memory)?;
            }
        }
        Ok(translator)
    }

    /// Attaches a collector's memory after the exchange with it, for the first time or after a restart. Pending data of
    /// stores with the same settings is kept; other pending data is dropped and counted. Allocates.
    ///
    /// # Errors
    /// [`ConfigError`] for invalid stores; nothing has changed.
    pub fn attach(&mut self, collector: u8, memory: CollectorConfig) -> Result<(), ConfigError> {
        memory.check(self.config.postcards)?;
        let index = usize::from(collector);
        let collector_state = self.collectors.get_mut(index).ok_or(ConfigError::NoCollector)?;
        let previous = std::mem::replace(&mut collector_state.stores, Stores::new());
        collector_state.stores = Stores::replace(previous, &memory, &self.config, &mut self.stats);
        collector_state.meter = Meter::new(memory.rate);
        collector_state.attached = true;
        self.config.collectors[index] = Some(memory);
        Ok(())
    }

    /// Returns the epochs of a collector's sketches that accept no more columns, for each sketch the older one first.
    pub fn merged(&self, collector: u8) -> impl Iterator<Item = Merged<'_>> {
        let collectors = self.collectors.get(usize::from(collector)).into_iter();
        collectors
            .flat_map(|memory| memory.stores.sketches())
            .flat_map(Sketch::merged)
    }

    /// Prepares for a collector whose memory may be new and empty after a restart. Call it after [`Translator::attach`] and
    /// before the transport connects. All sketches are written again, because a reader could not detect that earlier
    /// columns are missing.
    pub fn rewrite_sketches(&mut self, collector: u8, transport: &mut impl Transport) {
        let Some(memory) = self.collectors.get_mut(usize::from(collector)) else {
            return;
        };
        for region in memory.stores.rewrite_sketches() {
            transport.give_up(RemoteAddr { collector, region });
        }
    }

    /// Sets where a list continues: the sequence number of the next batch of a tagged list, or the position of the next
    /// entry of a bare one. A restarted translator gets it from the collector. Returns `false` if there is no such list.
    pub fn set_next(&mut self, collector: u8, list: u32, next: u64) -> bool {
        self.collectors
            .get_mut(usize::from(collector))
            .is_some_and(|memory| memory.stores.set_next(list, next))
    }

    /// Returns the index of the first trigger whose entries do not fit its list in this collector's memory. Such a trigger
    /// appends nothing, and its entries count as missed.
    pub fn unfit_trigger(&self, collector: u8) -> Option<usize> {
        let memory = self.collectors.get(usize::from(collector))?;
        self.config.triggers.iter().position(|trigger| {
            let is_for_collector = trigger.collector.is_none_or(|number| number == collector);
            is_for_collector && memory.stores.entry_len(trigger.list) != Some(trigger.entry_len())
        })
    }

    /// Processes the UDP payload of a report that arrived at `now` (ns, monotonic).
    #[inline]
    pub fn process(
        &mut self,
        now: u64,
        origin: Origin,
        payload: &[u8],
        transport: &mut impl Transport,
        out: &mut impl Output,
    ) {
        self.stats.reports.received += 1;
        self.now = now;
        if self.config.accept != Accept::V1
            && (self.config.accept == Accept::Artifact || artifact::is_artifact(payload))
        {
            return self.process_artifact(now, origin, payload, transport, out);
        }
        // Passed by reference, because copying the report costs more than parsing it.
        match &Report::parse(payload) {
            Ok(report) => self.process_report(
                &Received {
                    now,
                    origin,
                    report,
                    payload,
                    artifact: false,
                },
                transport,
                out,
            ),
            Err(_) if self.config.accept == Accept::V1 && artifact::is_artifact(payload) => {
                self.drop(Reason::NotAccepted);
            }
            Err(refusal) => self.process_unreadable(*refusal, now, origin, payload, out),
        }
    }

    /// Processes a report in the artifact's layout, which has no reporter ID: the sender's address identifies the reporter.
    #[inline(never)]
    fn process_artifact(
        &mut self,
        now: u64,
        origin: Origin,
        payload: &[u8],
        transport: &mut impl Transport,
        out: &mut impl Output,
    ) {
        let key = reporters::address_key(origin.sender.ip());
        let reporter = match origin.sender.ip() {
            IpAddr::V4(address) => address.to_bits(),
            IpAddr::V6(_) => (key ^ key >> 32 ^ key >> 64 ^ key >> 96) as u32,
        };
        match &artifact::parse(payload, reporter) {
            Ok((report, _)) => {
                self.process_report(
                    &Received {
                        now,
                        origin,
                        report,
                        payload,
                        artifact: true,
                    },
                    transport,
                    out,
                );
            }
            Err(refusal) => self.stats.reports.unreadable[refusal.index()] += 1,
        }
    }

    /// Processes a parsed report.
    #[inline(always)]
    fn process_report(
        &mut self,
        received: &Received<'_>,
        transport: &mut impl Transport,
        out: &mut impl Output,
    ) {
        let Received {
            now, origin, report, ..
        } = *received;
        if usize::from(origin.collector) >= self.collectors.len() {
            return self.drop(Reason::NoCollector);
        }
        if !self.reporters.meter(now, origin.sender) {
            return self.process_metered(received, out);
        }
        if report.base.essential {
            return self.process_essential(received, transport, out);
        }
        if matches!(report.operation, Operation::SketchMerge { .. }) {
            return self.process_sketch(received, transport, out);
        }
        let outcome = self.execute(received, transport);
        self.finish_report(received, outcome, transport, out);
    }

    /// Processes columns of a sketch. They bind the reporter's ID to the sender, but only once they are merged.
    fn process_sketch(
        &mut self,
        received: &Received<'_>,
        transport: &mut impl Transport,
        out: &mut impl Output,
    ) {
        let now = received.now;
        let identity = received.identity();
        if let Err(reason) = self.reporters.check_id(now, identity, &self.config) {
            return self.drop(reason);
        }
        let outcome = self.execute(received, transport);
        if matches!(outcome, ReportOutcome::Done | ReportOutcome::Diverted(_)) {
            // Cannot fail, because the ID was checked above.
            if let Ok(tracker) = self.reporters.tracker(now, identity, &self.config) {
                self.reporters.at(tracker).merged_at = now;
            }
        }
        self.finish_report(received, outcome, transport, out);
    }

    /// Processes reports for one collector that arrived together, and prefetches their table entries.
    pub fn process_burst<'a>(
        &mut self,
        now: u64,
        collector: u8,
        burst: impl IntoIterator<Item = (SocketAddr, &'a [u8])>,
        transport: &mut impl Transport,
        out: &mut impl Output,
    ) {
        let no_sender = SocketAddr::from(([0, 0, 0, 0], 0));
        let mut burst = burst.into_iter();
        let mut batch = [(no_sender, &[][..]); PREFETCH_BATCH];
        self.now = now;
        loop {
            let is_fast_path = self.is_fast_path_allowed(now, collector);
            // If lists are in the cache anyway, execute plain Appends at once, without a prefetch pass.
            let skip_prefetch =
                is_fast_path && self.collectors[usize::from(collector)].stores.are_lists_few();
            let Some(first) = burst.find(|(_, payload)| {
                !(skip_prefetch && self.process_plain_append(now, collector, payload, transport))
            }) else {
                return;
            };
            batch[0] = first;
            let mut count = 1;
            for (batch_entry, report) in batch[1..].iter_mut().zip(burst.by_ref()) {
                *batch_entry = report;
                count += 1;
            }
            for (_, payload) in &batch[..count] {
                self.prefetch(collector, payload);
            }
            // The first report was already tried on the fast path.
            let mut is_fast_path = is_fast_path && !skip_prefetch;
            for (sender, payload) in &batch[..count] {
                if is_fast_path && self.process_plain_append(now, collector, payload, transport) {
                    continue;
                }
                self.process(
                    now,
                    Origin {
                        sender: *sender,
                        collector,
                    },
                    payload,
                    transport,
                    out,
                );
                is_fast_path = self.is_fast_path_allowed(now, collector);
            }
        }
    }

    /// Returns whether the fast path applies: no meter, congestion, queued report, active notice or trigger can affect a
    /// report.
    #[inline(always)]
    fn is_fast_path_allowed(&self, now: u64, collector: u8) -> bool {
        let Some(memory) = self.collectors.get(usize::from(collector)) else {
            return false;
        };
        let is_unmetered = self.reporters.is_unmetered() && memory.meter.is_unlimited();
        let is_uncongested = memory.attached && memory.level == 0 && memory.local.is_empty();
        let accepts_v1 = self.config.accept != Accept::Artifact;
        accepts_v1
            && is_unmetered
            && is_uncongested
            && self.reporters.is_nobody_notified(now)
            && self.config.triggers.is_empty()
    }

    /// Processes a plain Append on the fast path. Returns `false` if nothing was done and the report needs the slow path.
    #[inline(always)]
    fn process_plain_append(
        &mut self,
        now: u64,
        collector: u8,
        payload: &[u8],
        transport: &mut impl Transport,
    ) -> bool {
        let Some(plain) = PlainAppend::parse(payload) else {
            return false;
        };
        let memory = &mut self.collectors[usize::from(collector)];
        let mut sender = Sender {
            transport,
            collector,
            meter: &mut memory.meter,
            stats: &mut self.operations,
        };
        let result = memory
            .stores
            .append_plain(now, &plain, &mut sender, &mut self.stats.entries);
        let reports = &mut self.stats.reports;
        match result {
            Some(Ok(())) => reports.done[Opcode::Append as usize - 1] += 1,
            Some(Err(reason)) => reports.dropped[reason as usize] += 1,
            None => return false,
        }
        reports.received += 1;
        true
    }

    /// Prefetches the table entries that a report will need, judged by its first bytes, which are not validated yet.
    #[inline(always)]
    fn prefetch(&self, collector: u8, payload: &[u8]) {
        let Some(&[first, flags, _, _, a, b, c, d, e, f, g, h]) = payload.first_chunk::<12>() else {
            return;
        };
        if flags & control::ESSENTIAL != 0 {
            self.reporters
                .prefetch(tracker_key(collector, u32::from_be_bytes([a, b, c, d]), false));
        }
        if first == control::APPEND
            && let Some(memory) = self.collectors.get(usize::from(collector))
        {
            memory.stores.prefetch_list(u32::from_be_bytes([e, f, g, h]));
        }
    }

    /// Runs the timers: writes batches, paths and epochs that are due, retries writes that had no credit, and executes
    /// reports from local memory. Call it about every millisecond, and at [`Translator::deadline`].
    pub fn tick(&mut self, now: u64, transport: &mut impl Transport) {
        self.now = now;
        self.reporters.sweep(now, &self.config);
        for collector in 0..self.collectors.len() {
            self.collectors[collector].update_level(now, &mut self.stats);
            if !self.write_pending(collector, Cause::Timer, transport) {
                self.collectors[collector].retry = now.saturating_add(RETRY_INTERVAL);
            }
            self.execute_queued(now, collector as u8, REPORTS_PER_TICK, transport);
        }
    }

    /// Returns when the next timer expires or queued reports are to be retried, ns, or `None` if nothing is pending.
    pub fn deadline(&self) -> Option<u64> {
        let has_queued = self.collectors.iter().any(|memory| !memory.local.is_empty());
        let retry = has_queued.then(|| self.now.saturating_add(RETRY_INTERVAL));
        let timers = self.collectors.iter().filter_map(|memory| {
            let due = memory.stores.deadline(&self.config)?;
            Some(due.max(memory.retry))
        });
        timers.chain(retry).min()
    }

    /// Writes all pending data. Returns `true` when nothing is left; call again otherwise.
    pub fn finish(&mut self, now: u64, transport: &mut impl Transport) -> bool {
        self.now = now;
        let mut is_complete = true;
        for collector in 0..self.collectors.len() {
            self.execute_queued(now, collector as u8, usize::MAX, transport);
            is_complete &= self.write_pending(collector, Cause::Stopped, transport)
                && self.collectors[collector].local.is_empty();
        }
        is_complete
    }

    /// Returns the current congestion level of a collector, 0 to 3.
    pub fn level(&self, collector: u8) -> u8 {
        self.collectors
            .get(usize::from(collector))
            .map_or(0, |memory| memory.level)
    }

    /// Returns the counters. Iterates over all lists and paths to count pending data.
    pub fn stats(&self) -> Stats {
        let mut stats = self.stats;
        stats.operations = self.operations;
        stats.controls = self.messages.counts;
        for memory in &self.collectors {
            let (entries, postcards) = memory.stores.pending();
            let (waiting, bytes) = memory.local.usage();
            stats.entries.pending += entries;
            stats.postcards.pending += postcards;
            stats.reports.queued += waiting;
            stats.reports.queued_bytes += bytes;
        }
        let (senders, reporters) = self.reporters.sizes();
        stats.senders = senders;
        stats.sequences.reporters = reporters;
        stats
    }

    /// Returns the settings, with the collectors as last attached.
    pub fn config(&self) -> &Config {
        &self.config
    }

    #[inline(always)]
    fn drop(&mut self, reason: Reason) {
        self.stats.reports.dropped[reason as usize] += 1;
    }

    /// Executes, diverts or drops a report, depending on the congestion level.
    #[inline(always)]
    fn execute(&mut self, received: &Received<'_>, transport: &mut impl Transport) -> ReportOutcome {
        let collector = received.origin.collector;
        let memory = &mut self.collectors[usize::from(collector)];
        let level = memory.update_level(received.now, &mut self.stats);
        if (level > 0 || !memory.local.is_empty())
            && let Some(outcome) = self.apply_congestion(level, received, transport)
        {
            return outcome;
        }
        let memory = &mut self.collectors[usize::from(collector)];
        let mut sender = Sender {
            transport,
            collector,
            meter: &mut memory.meter,
            stats: &mut self.operations,
        };
        let context = Context {
            now: received.now,
            level,
            artifact: received.artifact,
        };
        match memory.stores.execute(
            context,
            received.report,
            &self.config,
            &mut sender,
            &mut self.stats,
        ) {
            Ok(()) => ReportOutcome::Done,
            Err(Fault::Blocked) => self.divert_or_drop(3, received, transport),
            Err(Fault::Drop(reason)) => ReportOutcome::Dropped(reason),
            Err(Fault::ColumnGap {
                first_missing,
                send_nack,
            }) => ReportOutcome::ColumnGap {
                first_missing,
                send_nack,
            },
        }
    }

    /// Decides on a report under congestion, or behind queued reports. Returns `None` to execute it.
    fn apply_congestion(
        &mut self,
        level: u8,
        received: &Received<'_>,
        transport: &mut impl Transport,
    ) -> Option<ReportOutcome> {
        let collector = received.origin.collector;
        // If queued reports have no credit, important reports get level 3, whatever the meter says.
        let is_closed = level < 3 && self.execute_queued(received.now, collector, 2, transport);
        let is_dropped = match received.report.base.priority {
            _ if received.is_important() => {
                // Queued reports go first, so that an older value does not overwrite a newer one.
                level >= 3 || !self.collectors[usize::from(collector)].local.is_empty()
            }
            Priority::Low => level >= 1,
            _ => level >= 2,
        };
        let announced_level = if is_closed && received.is_important() {
            3
        } else {
            level
        };
        is_dropped.then(|| self.divert_or_drop(announced_level, received, transport))
    }

    /// Diverts important reports to local memory, and drops others.
    #[cold]
    fn divert_or_drop(
        &mut self,
        level: u8,
        received: &Received<'_>,
        transport: &impl Transport,
    ) -> ReportOutcome {
        if !received.is_important() {
            let collector = received.origin.collector;
            let is_available =
                self.collectors[usize::from(collector)].attached && transport.is_connected(collector);
            let is_low_priority = received.report.base.priority == Priority::Low;
            let reason = match (is_available, is_low_priority) {
                (true, true) => Reason::CongestedLow,
                (true, false) => Reason::CongestedMedium,
                (false, true) => Reason::AbsentLow,
                (false, false) => Reason::AbsentMedium,
            };
            return ReportOutcome::Congested { level, reason };
        }
        let Received {
            artifact,
            payload,
            report,
            ..
        } = *received;
        let record = Record {
            reporter: report.base.reporter,
            artifact,
            payload,
        };
        let local = &mut self.collectors[usize::from(received.origin.collector)].local;
        // High-priority reports that are not essential may fill only half of the queue.
        if (report.base.essential || !local.is_half_full()) && local.push(record) {
            self.stats.reports.diverted += 1;
            ReportOutcome::Diverted(level)
        } else {
            ReportOutcome::Congested {
                level,
                reason: Reason::LocalFull,
            }
        }
    }

    /// Executes up to `limit` reports from local memory, oldest first, while the congestion level is below 3. Returns `true`
    /// if the transport had no credit for the oldest.
    fn execute_queued(
        &mut self,
        now: u64,
        collector: u8,
        limit: usize,
        transport: &mut impl Transport,
    ) -> bool {
        for _ in 0..limit {
            let memory = &mut self.collectors[usize::from(collector)];
            if memory.local.is_empty() || memory.update_level(now, &mut self.stats) >= 3 {
                return false;
            }
            let Some(record) = memory.local.peek() else {
                return false;
            };
            let Ok(report) = parse_queued(&record) else {
                // Unreachable: the report was parsed before it was queued.
                memory.local.pop();
                self.drop(Reason::TransportRefused);
                continue;
            };
            let mut sender = Sender {
                transport,
                collector,
                meter: &mut memory.meter,
                stats: &mut self.operations,
            };
            let context = Context {
                now,
                level: memory.level,
                artifact: record.artifact,
            };
            match memory
                .stores
                .execute(context, &report, &self.config, &mut sender, &mut self.stats)
            {
                Err(Fault::Blocked) => return true,
                Ok(()) => {
                    self.stats.reports.done[report.operation.opcode() as usize - 1] += 1;
                    if !self.config.triggers.is_empty() {
                        let mut action = TriggerAction {
                            now,
                            triggers: &self.config.triggers,
                            trigger_times: &mut self.trigger_times,
                            stores: &mut memory.stores,
                            stats: &mut self.stats,
                        };
                        action.run(&report, &mut sender);
                    }
                }
                Err(Fault::Drop(reason)) => self.stats.reports.dropped[reason as usize] += 1,
                Err(Fault::ColumnGap { .. }) => {
                    memory.stores.nack_not_sent(&report);
                    self.stats.reports.dropped[Reason::ColumnGap as usize] += 1;
                }
            }
            memory.local.pop();
        }
        false
    }

    /// Writes pending data of a collector's stores.
    fn write_pending(&mut self, collector: usize, cause: Cause, transport: &mut impl Transport) -> bool {
        let now = self.now;
        let memory = &mut self.collectors[collector];
        if !memory.attached {
            return true;
        }
        let meter = &mut memory.meter;
        let mut sender = Sender {
            transport,
            collector: collector as u8,
            meter,
            stats: &mut self.operations,
        };
        memory
            .stores
            .flush(now, cause, &self.config, &mut sender, &mut self.stats)
    }

    /// Counts a report's outcome, fires triggers, and sends the reporter a congestion notice if one is due.
    #[inline(always)]
    fn finish_report(
        &mut self,
        received: &Received<'_>,
        outcome: ReportOutcome,
        transport: &mut impl Transport,
        out: &mut impl Output,
    ) {
        if outcome == ReportOutcome::Done {
            self.stats.reports.done[received.report.operation.opcode() as usize - 1] += 1;
            if !self.config.triggers.is_empty() {
                self.fire(received, transport);
            }
            let memory = &self.collectors[usize::from(received.origin.collector)];
            if memory.level == 0
                && memory.local.is_empty()
                && let Some(notice) = self.reporters.uncongested(received.now, received.origin.sender)
            {
                self.messages.notify(received, notice, self.config.hold, out);
            }
            return;
        }
        self.finish_unexecuted(received, outcome, out);
    }

    fn finish_unexecuted(&mut self, received: &Received<'_>, outcome: ReportOutcome, out: &mut impl Output) {
        let (level, reason) = match outcome {
            ReportOutcome::Done => return,
            ReportOutcome::Diverted(level) => (level, None),
            ReportOutcome::Congested { level, reason } => (level, Some(reason)),
            ReportOutcome::Dropped(reason) => return self.drop(reason),
            ReportOutcome::ColumnGap {
                first_missing,
                send_nack,
            } => {
                self.drop(Reason::ColumnGap);
                if send_nack {
                    self.messages.sketch_nack(received, first_missing, out);
                }
                return;
            }
        };
        if let Some(reason) = reason {
            self.drop(reason);
        }
        if level == 0 {
            // The report waits only behind other reports; there is no congestion to announce.
            return;
        }
        let sender = received.origin.sender;
        let congestion = Congestion {
            level,
            is_dropped: reason.is_some(),
            by_rate: false,
        };
        let notice = self
            .reporters
            .congested(received.now, sender, congestion, &self.config);
        if let Some(notice) = notice {
            self.messages.notify(received, notice, self.config.hold, out);
        }
    }

    #[cold]
    fn fire(&mut self, received: &Received<'_>, transport: &mut impl Transport) {
        let collector = received.origin.collector;
        let memory = &mut self.collectors[usize::from(collector)];
        let mut sender = Sender {
            transport,
            collector,
            meter: &mut memory.meter,
            stats: &mut self.operations,
        };
        let mut action = TriggerAction {
            now: received.now,
            triggers: &self.config.triggers,
            trigger_times: &mut self.trigger_times,
            stores: &mut memory.stores,
            stats: &mut self.stats,
        };
        action.run(received.report, &mut sender);
    }

    /// Drops a report above its sender's rate.
    #[cold]
    fn process_metered(&mut self, received: &Received<'_>, out: &mut impl Output) {
        self.drop(Reason::Metered);
        let sender = received.origin.sender;
        let congestion = Congestion {
            level: 2,
            is_dropped: true,
            by_rate: true,
        };
        if let Some(notice) = self
            .reporters
            .congested(received.now, sender, congestion, &self.config)
        {
            self.messages.notify(received, notice, self.config.hold, out);
        }
        // Also tracks a reporter's first report, because its loss would otherwise go unnoticed.
        if received.report.base.essential
            && let Ok(tracker) = self
                .reporters
                .tracker(received.now, received.identity(), &self.config)
            && self
                .reporters
                .at(tracker)
                .is_next(received.report.base.sequence, received.width())
        {
            self.refuse(received, tracker, out);
        }
    }

    /// Processes an essential report: checks its sequence number first.
    fn process_essential(
        &mut self,
        received: &Received<'_>,
        transport: &mut impl Transport,
        out: &mut impl Output,
    ) {
        let tracker = match self
            .reporters
            .tracker(received.now, received.identity(), &self.config)
        {
            Ok(tracker) => tracker,
            Err(reason) => return self.drop(reason),
        };
        let sequence = received.report.base.sequence;
        let last_seen = self.reporters.at(tracker).last_seen;
        let verdict =
            self.reporters
                .at(tracker)
                .classify(sequence, received.width(), received.now, &self.config);
        match verdict {
            Verdict::Duplicate => {
                self.acknowledge_last(received, tracker, last_seen, out);
                return self.drop(Reason::Duplicate);
            }
            Verdict::Gap { send_nack, restart } => {
                self.drop(Reason::Gap);
                self.stats.sequences.restarts += u64::from(restart);
                if send_nack {
                    let last = self.reporters.at(tracker).last(sequence, received.width());
                    self.messages.nack(received, control::Cause::Gap, last, out);
                }
                return;
            }
            Verdict::Due { lost, restart } => {
                self.stats.sequences.lost += u64::from(lost);
                self.stats.sequences.restarts += u64::from(restart);
            }
        }
        let outcome = self.execute(received, transport);
        if let ReportOutcome::Congested { .. } = outcome {
            self.refuse(received, tracker, out);
        } else {
            self.accept(received, tracker, outcome, out);
        }
        self.finish_report(received, outcome, transport, out);
    }

    /// Acknowledges a reporter's last report, which it retransmits because it does not know that it arrived. `last_seen` is the
    /// arrival time of the report before (ns), so that a series of duplicates gets one ACK per interval.
    #[cold]
    fn acknowledge_last(
        &mut self,
        received: &Received<'_>,
        tracker: usize,
        last_seen: u64,
        out: &mut impl Output,
    ) {
        let sequence = received.report.base.sequence;
        let is_last = self.reporters.at(tracker).last(sequence, received.width()) == sequence;
        if self.config.acknowledge_repeated
            && is_last
            && received.now.saturating_sub(last_seen) >= self.config.nack_interval
        {
            self.messages.ack(received, sequence, out);
        }
    }

    /// Refuses a report with the expected sequence number because of load; the reporter sends it again.
    #[cold]
    fn refuse(&mut self, received: &Received<'_>, tracker: usize, out: &mut impl Output) {
        let sequence = received.report.base.sequence;
        let width = received.width();
        if self
            .reporters
            .at(tracker)
            .refuse(sequence, width, received.now, &self.config)
        {
            let last = self.reporters.at(tracker).last(sequence, width);
            self.messages.nack(received, control::Cause::Overload, last, out);
        }
    }

    /// Accepts an essential report with the expected sequence number. A report that can never be executed is accepted too,
    /// with a NACK that tells the reason, because sending it again would not help.
    fn accept(
        &mut self,
        received: &Received<'_>,
        tracker: usize,
        outcome: ReportOutcome,
        out: &mut impl Output,
    ) {
        let sequence = received.report.base.sequence;
        let ack = self.reporters.at(tracker).accept(sequence);
        self.stats.sequences.accepted += 1;
        let cause = match outcome {
            ReportOutcome::Dropped(
                Reason::UnknownStore | Reason::UnknownList | Reason::UnknownSketch | Reason::TransportRefused,
            ) => control::Cause::Unknown,
            ReportOutcome::Dropped(
                Reason::TooMuchData | Reason::WrongEntry | Reason::WrongHop | Reason::WrongShape,
            ) => control::Cause::Malformed,
            _ => {
                if ack && self.config.acks {
                    self.messages.ack(received, sequence, out);
                }
                return;
            }
        };
        if self.reporters.at(tracker).try_nack(received.now, &self.config) {
            self.messages.nack(received, cause, sequence, out);
        }
    }

    /// Drops a malformed report. If it is essential with a valid base header, its sequence number is accepted, so that
    /// later reports are not a gap, and the reporter gets a NACK.
    #[cold]
    fn process_unreadable(
        &mut self,
        refusal: Refusal,
        now: u64,
        origin: Origin,
        payload: &[u8],
        out: &mut impl Output,
    ) {
        self.stats.reports.unreadable[refusal.index()] += 1;
        let Some(base) = control::essential_base(payload) else {
            return;
        };
        if usize::from(origin.collector) >= self.collectors.len() {
            return;
        }
        let report = &Report {
            base,
            operation: Operation::Append {
                list: 0,
                entry_len: 0,
                entries: &[],
            },
        };
        let received = Received {
            now,
            origin,
            report,
            payload,
            artifact: false,
        };
        let Some(tracker) = self.reporters.known_tracker(received.identity(), &self.config) else {
            return;
        };
        // After a gap nothing is to be done, because the reporter sends it again.
        if self
            .reporters
            .at(tracker)
            .is_next(base.sequence, received.width())
        {
            self.reporters.at(tracker).last_seen = now;
            self.accept(
                &received,
                tracker,
                ReportOutcome::Dropped(Reason::WrongShape),
                out,
            );
        }
    }
}

/// Parses a report from local memory.
fn parse_queued<'a>(record: &Record<'a>) -> Result<Report<'a>, Refusal> {
    if record.artifact {
        return artifact::parse(record.payload, record.reporter).map(|(report, _)| report);
    }
    Report::parse(record.payload)
}
