//! Tables of counters per key, as in a switch: of fixed size, each key with one slot. A key that hashes to another key's slot
//! evicts it (TurboFlow's microflow records, Marple's key-value cache, Sonata's reduce).

use detect::Match;

use super::condition::Condition;
use super::context::{Context, Counter, Sums, Trigger, Window};
pub use super::field::MAX_KEY;
use super::field::{self, Field, ReportedHop, ValueError};

/// Maximum number of records in a table.
pub const MAX_SLOTS: usize = 1 << 20;
/// Number of records processed per call at the end of a period.
const SWEEP: usize = 4096;

settings::choice! {
    /// The packets that a switch counts, so that not every node on the path counts the same packet.
    #[derive(Default)]
    pub enum At("\"anywhere\", \"source\" or \"sink\"") {
        /// All packets that it forwards.
        #[default]
        Anywhere = "anywhere",
        /// Packets that arrive from hosts.
        Source = "source",
        /// Packets that leave to hosts.
        Sink = "sink",
    }
}

impl At {
    /// Returns whether this switch counts the packet of `context`.
    #[inline]
    pub(super) fn is_here(self, context: &Context<'_>) -> bool {
        match self {
            Self::Anywhere => true,
            Self::Source => context.packet.from_edge,
            Self::Sink => context.packet.to_edge,
        }
    }
}

/// Configuration of a table.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Name by which mappings refer to the table.
    pub name: String,
    /// The fields of the key, at most [`MAX_KEY`] bytes.
    pub key: Vec<Field>,
    /// Flows whose packets are counted.
    pub flows: Match,
    /// Switches at which packets are counted.
    pub at: At,
    /// Number of records, a power of two up to [`MAX_SLOTS`].
    pub slots: usize,
    /// Length of a period, ns; 0 for no periods.
    pub period: u64,
    /// Conditions at the end of a period: records that do not meet all of them are not reported, and are not part of the
    /// window.
    pub having: Vec<Condition>,
}

#[derive(Debug)]
pub(super) struct Table {
    pub(super) config: Config,
    records: Vec<Record>,
    seed: u64,
    /// End of the current period, ns.
    end: u64,
    /// Position of the sweep at the end of a period, while it runs.
    sweep: Option<usize>,
    round: SweepTotals,
    pub(super) stats: Stats,
}

/// Counters of a table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Packets counted, including dropped ones.
    pub counted: u64,
    /// Packets for which the key is unknown, for example of a protocol without ports.
    pub keyless: u64,
    /// Number of records inserted.
    pub made: u64,
    /// Number of records evicted by others.
    pub evicted: u64,
    /// Number of records removed because they were idle for a period.
    pub idle: u64,
    /// Number of finished periods.
    pub periods: u64,
    /// Current number of records.
    pub records: u64,
}

#[derive(Clone, Copy, Debug)]
struct Record {
    key: [u8; MAX_KEY],
    len: u8,
    /// Mappings that have reported this record, one bit each.
    passed: u8,
    total: Sums,
    /// Value of `total` at the last report.
    last_reported: Sums,
    first: u64,
    last: u64,
}

impl Record {
    const EMPTY: Self = Self {
        key: [0; MAX_KEY],
        len: 0,
        passed: 0,
        total: Sums::ZERO,
        last_reported: Sums::ZERO,
        first: 0,
        last: 0,
    };

    fn key(&self) -> &[u8] {
        &self.key[..usize::from(self.len)]
    }

    fn counter(&self) -> Counter<'_> {
        let Self {
            total, first, last, ..
        } = *self;
        Counter {
            key: self.key(),
            since: total.less(&self.last_reported),
            total,
            first,
            last,
        }
    }
}

/// Totals of a sweep.
#[derive(Clone, Copy, Debug)]
struct SweepTotals {
    keys: u64,
    sums: Sums,
    top: Sums,
    /// Copy of the key of `top`, because its slot may have another key by the end of the sweep.
    top_key: [u8; MAX_KEY],
    top_len: u8,
}

impl SweepTotals {
    const NEW: Self = Self {
        keys: 0,
        sums: Sums::ZERO,
        top: Sums::ZERO,
        top_key: [0; MAX_KEY],
        top_len: 0,
    };
}

/// Receives the reports of a table: a record or window, and the mappings (bits) that have already reported it. Returns these
/// bits with the new ones.
pub(super) trait RecordSink {
    fn report(&mut self, context: &Context<'_>, passed: u8) -> u8;
}

impl Table {
    pub(super) fn new(config: Config, seed: u64) -> Self {
        let records = vec![Record::EMPTY; config.slots];
        Self {
            config,
            records,
            seed,
            end: 0,
            sweep: None,
            round: SweepTotals::NEW,
            stats: Stats::default(),
        }
    }

    pub(super) fn count(
        &mut self,
        context: &Context<'_>,
        sums: Sums,
        now: u64,
        report: &mut impl RecordSink,
    ) {
        let Some(flow) = context.flow.filter(|_| self.config.at.is_here(context)) else {
            return;
        };
        if self.config.flows != Match::default() && !self.config.flows.matches(flow) {
            return;
        }
        let mut key = [0; MAX_KEY];
        let Ok(len) = self.key_of(context, now, &mut key) else {
            self.stats.keyless += 1;
            return;
        };
        self.stats.counted += 1;
        let at = hash(&key, self.seed) as usize & (self.records.len() - 1);
        let record = &mut self.records[at];
        if record.len != len || record.key != key {
            self.stats.made += 1;
            if record.len > 0 {
                self.stats.evicted += 1;
                let out = Context {
                    counter: Some(&record.counter()),
                    ..Context::new(Trigger::Evicted, context.node)
                };
                report.report(&out, 0);
            } else {
                self.stats.records += 1;
            }
            *record = Record {
                key,
                len,
                first: now,
                ..Record::EMPTY
            };
        }
        record.total.add(sums);
        record.last = now;
        let passed = Context {
            trigger: Trigger::Passed,
            counter: Some(&record.counter()),
            ..*context
        };
        record.passed = report.report(&passed, record.passed);
    }

    fn key_of(&self, context: &Context<'_>, now: u64, key: &mut [u8; MAX_KEY]) -> Result<u8, ValueError> {
        let subject = ReportedHop::for_fields(&self.config.key, context);
        Ok(field::write_key(&self.config.key, context, &subject, now, key)? as u8)
    }

    /// Reports a finished period, a part of the records in each call.
    pub(super) fn tick(&mut self, node: u32, now: u64, report: &mut impl RecordSink) {
        if self.config.period == 0 {
            return;
        }
        if self.end == 0 {
            // Aligned to the clock, so that the periods of all switches end together as far as their clocks agree.
            self.end = (now / self.config.period + 1) * self.config.period;
        }
        let Some(from) = self.sweep.or((now >= self.end).then_some(0)) else {
            return;
        };
        let to = (from + SWEEP).min(self.records.len());
        for at in from..to {
            self.sweep_record(at, node, now, report);
        }
        if to < self.records.len() {
            self.sweep = Some(to);
            return;
        }
        self.finish(node, report);
        self.sweep = None;
        self.end = (now / self.config.period + 1) * self.config.period;
    }

    /// Reports and resets one record at the end of a period; removes it if it was idle.
    fn sweep_record(&mut self, at: usize, node: u32, now: u64, report: &mut impl RecordSink) {
        let record = &mut self.records[at];
        if record.len == 0 {
            return;
        }
        let counter = record.counter();
        let since = counter.since;
        if since.is_zero() {
            self.stats.idle += 1;
            self.stats.records -= 1;
            *record = Record::EMPTY;
            return;
        }
        let context = Context {
            counter: Some(&counter),
            ..Context::new(Trigger::Period, node)
        };
        let subject = ReportedHop::default();
        if self
            .config
            .having
            .iter()
            .all(|condition| condition.is_met(&context, &subject, now))
        {
            report.report(&context, 0);
            self.round.keys += 1;
            self.round.sums.add(since);
            if self.round.top_len == 0 || since.packets > self.round.top.packets {
                self.round.top = since;
                self.round.top_key = record.key;
                self.round.top_len = record.len;
            }
        }
        record.last_reported = record.total;
        record.passed = 0;
    }

    /// Reports the totals of a period at the end of the sweep.
    fn finish(&mut self, node: u32, report: &mut impl RecordSink) {
        let SweepTotals {
            keys,
            sums,
            top,
            top_key,
            top_len,
        } = std::mem::replace(&mut self.round, SweepTotals::NEW);
        let window = Window {
            keys,
            sums,
            top_key: &top_key[..usize::from(top_len)],
            top,
        };
        report.report(
            &Context {
                window: Some(&window),
                ..Context::new(Trigger::Window, node)
            },
            0,
        );
        self.stats.periods += 1;
    }

    /// Returns the time at which [`Table::tick`] is due, ns.
    pub(super) fn next(&self) -> Option<u64> {
        (self.config.period > 0).then_some(if self.sweep.is_some() { 0 } else { self.end })
    }
}

/// Returns the hash of a key. The seed keeps senders from targeting one slot.
#[inline]
fn hash(key: &[u8; MAX_KEY], seed: u64) -> u64 {
    let words = key.as_chunks::<8>().0;
    let state = words.iter().fold(seed ^ 0x9e37_79b9_7f4a_7c15, |state, word| {
        let wide = u128::from(state ^ u64::from_ne_bytes(*word)) * 0xa076_1d64_78bd_642f_u128;
        wide as u64 ^ (wide >> 64) as u64
    });
    state ^ state >> 32
}
