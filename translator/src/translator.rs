//! Processes reports: sequence, congestion, operation and triggers.

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

/// Maximum reports from local memory per tick.
const PER_TICK: usize = 4096;
/// Retry interval of writes without credit, ns.
const RETRY: u64 = 1_000_000;
/// Reports whose tables are prefetched together.
const TOGETHER: usize = 16;

/// See the module documentation.
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
    /// For each trigger, the time of its last entry plus one, ns; 0 for none.
    fired: Vec<u64>,
    messages: Emitter,
    now: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Outcome {
    Done,
    /// The report went to local memory, because of this congestion level.
    Diverted(u8),
    /// The report was dropped because of this congestion level.
    Congested(u8, Reason),
    Dropped(Reason),
    /// A sketch's columns are missing: the expected column, and whether to send a NACK.
    ColumnGap(u32, bool),
}

impl Translator {
    /// Returns an empty translator. Allocates all memory for the known collectors.
    ///
    /// # Errors
    /// Settings that cannot be used.
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
            fired: vec![0; config.triggers.len()],
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

    /// Attaches a collector's memory after the exchange with it: for the first time, or again after a restart. Pending data of the
    /// same stores stays; that of others is lost, and counted. Allocates.
    ///
    /// # Errors
    /// Stores that cannot be used; then nothing has changed.
    pub fn attach(&mut self, collector: u8, memory: CollectorConfig) -> Result<(), ConfigError> {
        memory.check(self.config.postcards)?;
        let at = usize::from(collector);
        let known = self.collectors.get_mut(at).ok_or(ConfigError::NoCollector)?;
        let before = std::mem::replace(&mut known.stores, Stores::new());
        known.stores = Stores::replace(before, &memory, &self.config, &mut self.stats);
        known.meter = Meter::new(memory.rate);
        known.attached = true;
        self.config.collectors[at] = Some(memory);
        Ok(())
    }

    /// Returns the epochs of a collector's sketches into which no more columns are merged, for each sketch the older one first.
    pub fn merged(&self, collector: u8) -> impl Iterator<Item = Merged<'_>> {
        let collectors = self.collectors.get(usize::from(collector)).into_iter();
        collectors
            .flat_map(|memory| memory.stores.sketches())
            .flat_map(Sketch::merged)
    }

    /// Prepares for a collector that restarted, and whose memory may be new and empty. Call it between [`Translator::attach`] and
    /// connecting the transport. All sketches are written again as a whole: a reader could not detect that earlier columns are
    /// missing.
    pub fn renew(&mut self, collector: u8, transport: &mut impl Transport) {
        let Some(memory) = self.collectors.get_mut(usize::from(collector)) else {
            return;
        };
        for region in memory.stores.renew() {
            transport.give_up(RemoteAddr { collector, region });
        }
    }

    /// Sets the sequence number of the next batch of a tagged list, or the position of the next entry of a bare one, as the collector
    /// found it in its memory: a restarted translator continues there. False if there is no such list.
    pub fn set_next(&mut self, collector: u8, list: u32, next: u64) -> bool {
        self.collectors
            .get_mut(usize::from(collector))
            .is_some_and(|memory| memory.stores.set_next(list, next))
    }

    /// Returns the first trigger whose entries do not fit its list in this collector's memory, by its index in the settings: it
    /// appends nothing, and its entries are counted as missed.
    pub fn unfit_trigger(&self, collector: u8) -> Option<usize> {
        let memory = self.collectors.get(usize::from(collector))?;
        self.config.triggers.iter().position(|trigger| {
            let is_for = trigger.collector.is_none_or(|number| number == collector);
            is_for && memory.stores.entry_len(trigger.list) != Some(trigger.entry_len())
        })
    }

    /// Processes the UDP payload of a report that arrived at `now`, ns of a monotonic clock.
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
        // Passed on by reference: copying the report costs more than reading it.
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

    /// Processes a report in the artifact's layouts: there the sender's address is the reporter.
    #[inline(never)]
    fn process_artifact(
        &mut self,
        now: u64,
        origin: Origin,
        payload: &[u8],
        transport: &mut impl Transport,
        out: &mut impl Output,
    ) {
        let key = reporters::key_of(origin.sender.ip());
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
        self.settle(received, outcome, transport, out);
    }

    /// Processes columns of a sketch: no other sender may use the ID of a reporter whose columns were merged.
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
        if matches!(outcome, Outcome::Done | Outcome::Diverted(_)) {
            // It cannot fail: the ID was checked.
            if let Ok(at) = self.reporters.tracker(now, identity, &self.config) {
                self.reporters.at(at).merged = now;
            }
        }
        self.settle(received, outcome, transport, out);
    }

    /// Processes several reports for one collector that arrived together: prefetches their entries of large tables.
    pub fn process_burst<'a>(
        &mut self,
        now: u64,
        collector: u8,
        burst: impl IntoIterator<Item = (SocketAddr, &'a [u8])>,
        transport: &mut impl Transport,
        out: &mut impl Output,
    ) {
        let nobody = SocketAddr::from(([0, 0, 0, 0], 0));
        let mut burst = burst.into_iter();
        let mut some = [(nobody, &[][..]); TOGETHER];
        self.now = now;
        loop {
            let smooth = self.is_smooth(now, collector);
            // Reports that need no large table are processed first.
            let at_once = smooth && self.collectors[usize::from(collector)].stores.are_lists_few();
            let Some(first) = burst
                .find(|(_, payload)| !(at_once && self.process_plain(now, collector, payload, transport)))
            else {
                return;
            };
            some[0] = first;
            let mut count = 1;
            for (place, report) in some[1..].iter_mut().zip(burst.by_ref()) {
                *place = report;
                count += 1;
            }
            for (_, payload) in &some[..count] {
                self.prefetch(collector, payload);
            }
            // The first one was tried already.
            let mut smooth = smooth && !at_once;
            for (sender, payload) in &some[..count] {
                if smooth && self.process_plain(now, collector, payload, transport) {
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
                smooth = self.is_smooth(now, collector);
            }
        }
    }

    /// Returns whether processing depends on the report alone: no meter, no congestion, no waiting reports, no active notice, no
    /// trigger.
    #[inline(always)]
    fn is_smooth(&self, now: u64, collector: u8) -> bool {
        let Some(memory) = self.collectors.get(usize::from(collector)) else {
            return false;
        };
        let unmetered = self.reporters.is_unmetered() && memory.meter.is_unlimited();
        let calm = memory.attached && memory.level == 0 && memory.local.is_empty();
        let v1 = self.config.accept != Accept::Artifact;
        v1 && unmetered && calm && self.reporters.is_nobody_notified(now) && self.config.triggers.is_empty()
    }

    /// Processes a plain Append on the fast path. Returns false if nothing was done and the slow path is needed.
    #[inline(always)]
    fn process_plain(
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
        let done = memory
            .stores
            .append_plain(now, &plain, &mut sender, &mut self.stats.entries);
        let reports = &mut self.stats.reports;
        match done {
            Some(Ok(())) => reports.done[Opcode::Append as usize - 1] += 1,
            Some(Err(reason)) => reports.dropped[reason as usize] += 1,
            None => return false,
        }
        reports.received += 1;
        true
    }

    /// Prefetches the memory that a report will need, by its first bytes, which are not validated.
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

    /// Writes batches, paths and epochs whose timers have expired, retries writes without credit, and executes reports from local
    /// memory. Call it about every millisecond, and at [`Translator::deadline`].
    pub fn tick(&mut self, now: u64, transport: &mut impl Transport) {
        self.now = now;
        self.reporters.sweep(now, &self.config);
        for collector in 0..self.collectors.len() {
            self.collectors[collector].update_level(now, &mut self.stats);
            if !self.write_pending(collector, Cause::Timer, transport) {
                self.collectors[collector].retry = now.saturating_add(RETRY);
            }
            self.reinject(now, collector as u8, PER_TICK, transport);
        }
    }

    /// Returns when the next timer expires, or reports in local memory are to be retried.
    pub fn deadline(&self) -> Option<u64> {
        let waits = self.collectors.iter().any(|memory| !memory.local.is_empty());
        let again = waits.then(|| self.now.saturating_add(RETRY));
        let timers = self.collectors.iter().filter_map(|memory| {
            let at = memory.stores.deadline(&self.config)?;
            Some(at.max(memory.retry))
        });
        timers.chain(again).min()
    }

    /// Writes all pending data, as far as the transport accepts it. Returns true when nothing is left.
    pub fn finish(&mut self, now: u64, transport: &mut impl Transport) -> bool {
        self.now = now;
        let mut all = true;
        for collector in 0..self.collectors.len() {
            self.reinject(now, collector as u8, usize::MAX, transport);
            all &= self.write_pending(collector, Cause::Stopped, transport)
                && self.collectors[collector].local.is_empty();
        }
        all
    }

    /// Returns the last congestion level of a collector, 0 to 3.
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
        let (senders, reporters) = self.reporters.known();
        stats.senders = senders;
        stats.sequences.reporters = reporters;
        stats
    }

    /// Returns the settings; the collectors are those last attached.
    pub fn config(&self) -> &Config {
        &self.config
    }

    #[inline(always)]
    fn drop(&mut self, reason: Reason) {
        self.stats.reports.dropped[reason as usize] += 1;
    }

    /// Executes, diverts or drops a report, depending on congestion: wire-formats 5.5.
    #[inline(always)]
    fn execute(&mut self, received: &Received<'_>, transport: &mut impl Transport) -> Outcome {
        let collector = received.origin.collector;
        let memory = &mut self.collectors[usize::from(collector)];
        let level = memory.update_level(received.now, &mut self.stats);
        if (level > 0 || !memory.local.is_empty())
            && let Some(outcome) = self.under_load(level, received, transport)
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
        match memory.stores.perform(
            context,
            received.report,
            &self.config,
            &mut sender,
            &mut self.stats,
        ) {
            Ok(()) => Outcome::Done,
            Err(Fault::Blocked) => self.shed(3, received, transport),
            Err(Fault::Drop(reason)) => Outcome::Dropped(reason),
            Err(Fault::ColumnGap { due, nack }) => Outcome::ColumnGap(due, nack),
        }
    }

    /// Decides on a report under congestion, or behind waiting reports; `None`: execute it.
    fn under_load(
        &mut self,
        level: u8,
        received: &Received<'_>,
        transport: &mut impl Transport,
    ) -> Option<Outcome> {
        let collector = received.origin.collector;
        // If waiting reports have no credit, reporters are notified of level 3, regardless of the meter.
        let is_closed = level < 3 && self.reinject(received.now, collector, 2, transport);
        let is_dropped = match received.report.base.priority {
            _ if received.is_important() => {
                // Waiting reports go first: an older value must not overwrite a newer one.
                level >= 3 || !self.collectors[usize::from(collector)].local.is_empty()
            }
            Priority::Low => level >= 1,
            _ => level >= 2,
        };
        let reported = if is_closed && received.is_important() {
            3
        } else {
            level
        };
        is_dropped.then(|| self.shed(reported, received, transport))
    }

    /// Diverts important reports, and drops others.
    #[cold]
    fn shed(&mut self, level: u8, received: &Received<'_>, transport: &impl Transport) -> Outcome {
        if !received.is_important() {
            let collector = received.origin.collector;
            let is_there =
                self.collectors[usize::from(collector)].attached && transport.is_connected(collector);
            let low = received.report.base.priority == Priority::Low;
            let reason = match (is_there, low) {
                (true, true) => Reason::CongestedLow,
                (true, false) => Reason::CongestedMedium,
                (false, true) => Reason::AbsentLow,
                (false, false) => Reason::AbsentMedium,
            };
            return Outcome::Congested(level, reason);
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
        // Reports of high priority that are not essential may use half of it.
        if (report.base.essential || !local.is_half_full()) && local.push(record) {
            self.stats.reports.diverted += 1;
            Outcome::Diverted(level)
        } else {
            Outcome::Congested(level, Reason::LocalFull)
        }
    }

    /// Executes reports from local memory, the oldest first, below congestion level 3. True if the transport had no credit for the
    /// oldest.
    fn reinject(&mut self, now: u64, collector: u8, most: usize, transport: &mut impl Transport) -> bool {
        for _ in 0..most {
            let memory = &mut self.collectors[usize::from(collector)];
            if memory.local.is_empty() || memory.update_level(now, &mut self.stats) >= 3 {
                return false;
            }
            let Some(record) = memory.local.peek() else {
                return false;
            };
            let Ok(report) = reread(&record) else {
                // Unreachable: the report was parsed before.
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
                .perform(context, &report, &self.config, &mut sender, &mut self.stats)
            {
                Err(Fault::Blocked) => return true,
                Ok(()) => {
                    self.stats.reports.done[report.operation.opcode() as usize - 1] += 1;
                    if !self.config.triggers.is_empty() {
                        let mut action = TriggerAction {
                            now,
                            triggers: &self.config.triggers,
                            fired: &mut self.fired,
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

    /// Counts the outcome of a report, fires triggers, and notifies the reporter.
    #[inline(always)]
    fn settle(
        &mut self,
        received: &Received<'_>,
        outcome: Outcome,
        transport: &mut impl Transport,
        out: &mut impl Output,
    ) {
        if outcome == Outcome::Done {
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
        self.settle_refused(received, outcome, out);
    }

    fn settle_refused(&mut self, received: &Received<'_>, outcome: Outcome, out: &mut impl Output) {
        let (level, reason) = match outcome {
            Outcome::Done => return,
            Outcome::Diverted(level) => (level, None),
            Outcome::Congested(level, reason) => (level, Some(reason)),
            Outcome::Dropped(reason) => return self.drop(reason),
            Outcome::ColumnGap(due, nack) => {
                self.drop(Reason::ColumnGap);
                if nack {
                    self.messages.sketch_nack(received, due, out);
                }
                return;
            }
        };
        if let Some(reason) = reason {
            self.drop(reason);
        }
        if level == 0 {
            // It waits only behind other reports: there is no congestion to report.
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
            fired: &mut self.fired,
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
        // Tracks a reporter's first report too: otherwise its loss would go unnoticed.
        if received.report.base.essential
            && let Ok(at) = self
                .reporters
                .tracker(received.now, received.identity(), &self.config)
            && self
                .reporters
                .at(at)
                .is_next(received.report.base.sequence, received.width())
        {
            self.refuse(received, at, out);
        }
    }

    /// Processes an essential report: checks its sequence first.
    fn process_essential(
        &mut self,
        received: &Received<'_>,
        transport: &mut impl Transport,
        out: &mut impl Output,
    ) {
        let at = match self
            .reporters
            .tracker(received.now, received.identity(), &self.config)
        {
            Ok(at) => at,
            Err(reason) => return self.drop(reason),
        };
        let sequence = received.report.base.sequence;
        let seen = self.reporters.at(at).seen;
        let verdict = self
            .reporters
            .at(at)
            .classify(sequence, received.width(), received.now, &self.config);
        match verdict {
            Verdict::Duplicate => {
                self.acknowledge_last(received, at, seen, out);
                return self.drop(Reason::Duplicate);
            }
            Verdict::Gap { nack, restart } => {
                self.drop(Reason::Gap);
                self.stats.sequences.restarts += u64::from(restart);
                if nack {
                    let last = self.reporters.at(at).last(sequence, received.width());
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
        if let Outcome::Congested(..) = outcome {
            self.refuse(received, at, out);
        } else {
            self.accept(received, at, outcome, out);
        }
        self.settle(received, outcome, transport, out);
    }

    /// Acknowledges the last report of a reporter, which retransmits it because it does not know whether it arrived. `seen`: when the report
    /// before arrived. One of many in a row is enough.
    #[cold]
    fn acknowledge_last(&mut self, received: &Received<'_>, at: usize, seen: u64, out: &mut impl Output) {
        let sequence = received.report.base.sequence;
        let is_last = self.reporters.at(at).last(sequence, received.width()) == sequence;
        if self.config.acknowledge_repeated
            && is_last
            && received.now.saturating_sub(seen) >= self.config.nack_interval
        {
            self.messages.ack(received, sequence, out);
        }
    }

    /// Does not accept a report although it has the expected sequence number: the reporter will send it again.
    #[cold]
    fn refuse(&mut self, received: &Received<'_>, at: usize, out: &mut impl Output) {
        let sequence = received.report.base.sequence;
        let width = received.width();
        if self
            .reporters
            .at(at)
            .refuse(sequence, width, received.now, &self.config)
        {
            let last = self.reporters.at(at).last(sequence, width);
            self.messages.nack(received, control::Cause::Overload, last, out);
        }
    }

    /// Accepts an essential report with the expected sequence number. A report that can never be executed is
    /// accepted too, with a NACK that has the reason: sending it again would not help.
    fn accept(&mut self, received: &Received<'_>, at: usize, outcome: Outcome, out: &mut impl Output) {
        let sequence = received.report.base.sequence;
        let ack = self.reporters.at(at).accept(sequence);
        self.stats.sequences.accepted += 1;
        let cause = match outcome {
            Outcome::Dropped(
                Reason::UnknownStore | Reason::UnknownList | Reason::UnknownSketch | Reason::TransportRefused,
            ) => control::Cause::Unknown,
            Outcome::Dropped(
                Reason::TooMuchData | Reason::WrongEntry | Reason::WrongHop | Reason::WrongShape,
            ) => control::Cause::Malformed,
            _ => {
                if ack && self.config.acks {
                    self.messages.ack(received, sequence, out);
                }
                return;
            }
        };
        if self.reporters.at(at).try_nack(received.now, &self.config) {
            self.messages.nack(received, cause, sequence, out);
        }
    }

    /// Drops a malformed report. If it is essential and its base header is valid, its sequence number is accepted, so that later
    /// reports are not a gap, and it gets a NACK.
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
        let Some(at) = self.reporters.known_tracker(received.identity(), &self.config) else {
            return;
        };
        // After a gap there is nothing to do: the reporter will send it again.
        if self.reporters.at(at).is_next(base.sequence, received.width()) {
            self.reporters.at(at).seen = now;
            self.accept(&received, at, Outcome::Dropped(Reason::WrongShape), out);
        }
    }
}

/// Parses a report from local memory again.
fn reread<'a>(record: &Record<'a>) -> Result<Report<'a>, Refusal> {
    if record.artifact {
        return artifact::parse(record.payload, record.reporter).map(|(report, _)| report);
    }
    Report::parse(record.payload)
}
