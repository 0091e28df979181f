//! The reporter of Direct Telemetry Access (DTA): maps measurements of a switch to operations on a collector's memory (the DTA
//! paper, 3.1 and 4.1; wire-formats 5).
//!
//! A [`Mapping`] defines the operation that a [`Trigger`] causes, and the [`Field`]s of its key and data, which are read from
//! the [`Context`]. Triggers are events of single packets, or of [`table`]s, which count per key. [`sketches`] summarise
//! packets and are sent column by column. Tables and sketches have a fixed size. The key, list or sketch of a report selects
//! its collector ([`Spread`]). Essential reports are numbered, buffered, and retransmitted when a translator misses them. Under
//! congestion, reports of low priority are suppressed.
//!
//! No I/O and no clock: the input is packets, events, control messages and the time; the output is reports in an [`Outbox`].
//! All memory is allocated in [`Reporter::new`]. Everything that is not sent is counted by reason.

mod condition;
pub mod context;
mod destination;
mod engine;
pub mod field;
mod mapping;
mod outbox;
pub mod pint;
pub mod sketches;
mod spread;
mod switch_reporter;
pub mod table;
#[cfg(test)]
mod tests;

use std::fmt;

use wire::dta::control::{Body, Cause};
use wire::dta::layout::SketchKind;
use wire::dta::{Control, MAX_DEPTH, Operation, Priority, SKETCH_MERGE_HEADER_LEN};

pub use condition::Condition;
pub use context::{Context, PacketFacts, Sums, Trigger};
pub use destination::{Retransmission, Stats as DestinationStats, WINDOW};
pub use engine::MappingStats;
pub use field::Field;
pub use mapping::{Action, MAX_SPREAD, Mapping, data_len};
pub use outbox::{Datagram, Outbox};
pub use spread::{MAX_COLLECTORS, Spread};
pub(crate) use switch_reporter::Event;
pub use switch_reporter::SwitchReporter;

use engine::Engine;
use sketches::Sketch;
use table::Table;

/// Maximum number of mappings.
pub const MAX_MAPPINGS: usize = 64;
/// Maximum number of tables.
pub const MAX_TABLES: usize = 16;
/// Maximum number of sketches.
pub const MAX_SKETCHES: usize = 16;
/// Maximum number of mappings with [`Trigger::Passed`], which have one bit each in a record.
const MAX_PASSED: usize = 8;
/// Maximum number of reports of a sketch per tick.
const MAX_SKETCH_REPORTS_PER_TICK: usize = 64;
/// Least permitted value of [`Config::max_report_len`], bytes.
const MIN_REPORT_LEN: usize = 64;
/// Maximum payload of a UDP datagram over IPv4, bytes.
const MAX_UDP_PAYLOAD: usize = 65_507;

/// Configuration of a reporter.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Reporter ID, which is the switch's node id.
    pub reporter: u32,
    /// Assignment of reports to collectors.
    pub spread: Spread,
    /// Mappings of measurements to operations.
    pub mappings: Vec<Mapping>,
    /// Tables of counters per key.
    pub tables: Vec<table::Config>,
    /// Sketches of the packets that pass.
    pub sketches: Vec<sketches::Config>,
    /// Retransmission of essential reports.
    pub retransmission: Retransmission,
    /// Maximum length of a report, bytes of UDP payload.
    pub max_report_len: usize,
    /// Maximum length of an essential report of [`Reporter::send`], bytes. The lengths for mappings and sketches follow from
    /// the configuration.
    pub max_essential_len: usize,
    /// Sequence number of the first essential report to each collector. A translator that knows the reporter accepts numbers up
    /// to 32767 ahead of the last one as new, and silently drops all others as old. So this should increase with the time of
    /// the start.
    pub first_sequence: u16,
    /// Hash seed, which keeps senders from targeting one slot of a table.
    pub seed: u64,
}

impl Default for Config {
    /// Returns a configuration with one collector, nothing to report, and reports of at most 1400 bytes.
    fn default() -> Self {
        Self {
            reporter: 0,
            spread: Spread::default(),
            mappings: Vec::new(),
            tables: Vec::new(),
            sketches: Vec::new(),
            retransmission: Retransmission::default(),
            max_report_len: 1400,
            max_essential_len: 0,
            first_sequence: 1,
            seed: 0,
        }
    }
}

/// Options of a report.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SendOptions {
    /// Under congestion, reports of low priority are dropped first.
    pub priority: Priority,
    /// Reliable delivery: the report is numbered, buffered, and retransmitted if lost.
    pub essential: bool,
    /// Notifies the collector's CPU (RDMA immediate).
    pub immediate: bool,
}

/// The reason why no report was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendError {
    /// Congestion suppresses reports of its priority.
    Suppressed,
    /// The buffer is full, or the report violates the format.
    NoRoom,
}

/// The invalid part of a configuration, and the reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    /// The part of the configuration.
    pub part: Part,
    /// Name of the invalid setting in that part.
    pub key: &'static str,
    /// The error, and its correction.
    pub why: String,
}

/// A part of a configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Settings of the whole reporter.
    Reporter,
    /// A mapping, by its index.
    Mapping(usize),
    /// A table, by its index.
    Table(usize),
    /// A sketch, by its index.
    Sketch(usize),
}

impl Part {
    fn refuse(self, key: &'static str, why: impl Into<String>) -> Result<(), ConfigError> {
        let why = why.into();
        Err(ConfigError { part: self, key, why })
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.part {
            Part::Reporter => write!(f, "{}: {}", self.key, self.why),
            Part::Mapping(index) => write!(f, "mapping {}, {}: {}", index + 1, self.key, self.why),
            Part::Table(index) => write!(f, "table {}, {}: {}", index + 1, self.key, self.why),
            Part::Sketch(index) => write!(f, "sketch {}, {}: {}", index + 1, self.key, self.why),
        }
    }
}

impl std::error::Error for ConfigError {}

/// Counters of a reporter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Packets that were processed.
    pub packets: u64,
    /// Other events that were processed.
    pub triggers: u64,
    /// Reports sent for the first time.
    pub reports: u64,
    /// Control messages that were processed.
    pub controls: u64,
    /// Control messages that could not be read.
    pub bad_controls: u64,
    /// Control messages addressed to another reporter.
    pub misdirected: u64,
    /// SKETCH-NACKs about a sketch that this switch does not have.
    pub unknown_sketches: u64,
}

/// A reporter of Direct Telemetry Access.
#[derive(Debug)]
pub struct Reporter {
    engine: Engine,
    tables: Vec<Table>,
    sketches: Vec<Sketch>,
    stats: Stats,
}

impl Reporter {
    /// Creates a reporter and allocates its memory.
    ///
    /// # Errors
    /// The configuration is invalid.
    pub fn new(config: Config) -> Result<Self, ConfigError> {
        check(&config)?;
        let of_mappings = config
            .mappings
            .iter()
            .filter(|mapping| mapping.options.essential)
            .map(Mapping::max_report_len);
        let of_sketches = config
            .sketches
            .iter()
            .filter(|sketch| sketch.options.essential)
            .map(sketch_report_len);
        let max_essential_len = of_mappings
            .chain(of_sketches)
            .chain([config.max_essential_len])
            .max()
            .unwrap_or(0);
        Ok(Self {
            engine: Engine::new(
                config.reporter,
                config.mappings,
                config.spread,
                config.retransmission,
                max_essential_len,
                config.first_sequence,
            ),
            tables: config
                .tables
                .into_iter()
                .map(|table| Table::new(table, config.seed))
                .collect(),
            sketches: config.sketches.into_iter().map(Sketch::new).collect(),
            stats: Stats::default(),
        })
    }

    /// Replaces the assignment of reports to collectors, also for entries that wait for a full batch. Existing collectors keep
    /// their numbers and sequences. More may be added, whose first essential report has sequence number `first`.
    ///
    /// # Errors
    /// There are fewer collectors than before; nothing is changed then.
    pub fn set_spread(&mut self, spread: Spread, first: u16) -> Result<(), String> {
        self.engine.set_spread(spread, first)
    }

    /// Returns whether [`Reporter::packet`] must be called for every packet.
    pub fn needs_packets(&self) -> bool {
        !self.tables.is_empty() || !self.sketches.is_empty() || self.engine.has_mapping_for(Trigger::Packet)
    }

    /// Returns whether a mapping has this trigger.
    pub fn wants(&self, trigger: Trigger) -> bool {
        self.engine.has_mapping_for(trigger) || (trigger == Trigger::Drop && !self.tables.is_empty())
    }

    /// Processes a packet that passes the switch.
    pub fn packet(&mut self, context: &Context<'_>, now: u64, out: &mut Outbox) {
        self.stats.packets += 1;
        let sums = Sums {
            packets: 1,
            bytes: context.packet.bytes.into(),
            drops: 0,
        };
        self.count(context, sums, now, out);
        for sketch in &mut self.sketches {
            sketch.count(context, now);
        }
        self.engine.report(context, None, 0, now, out);
    }

    /// Processes any other event, see [`Trigger`]. Tables count packets that are dropped.
    pub fn report(&mut self, context: &Context<'_>, now: u64, out: &mut Outbox) {
        self.stats.triggers += 1;
        if context.trigger == Trigger::Drop {
            self.count_drop(context, now, out);
        }
        self.engine.report(context, None, 0, now, out);
    }

    /// Counts a dropped packet of an unwatched flow in the tables.
    pub fn count_drop(&mut self, context: &Context<'_>, now: u64, out: &mut Outbox) {
        let dropped = Sums {
            drops: 1,
            ..Sums::ZERO
        };
        self.count(context, dropped, now, out);
    }

    /// Sends an operation without a mapping, to the collector of its key, list or sketch.
    ///
    /// # Errors
    /// The operation was not sent, for the reason returned.
    pub fn send(
        &mut self,
        operation: &Operation<'_>,
        options: SendOptions,
        now: u64,
        out: &mut Outbox,
    ) -> Result<(), SendError> {
        let spread = &self.engine.spread;
        let collector = match operation {
            Operation::Append { list, .. } => spread.of_list(*list),
            Operation::SketchMerge { .. } => spread.of_sketches(),
            _ => operation.key().map_or(0, |key| spread.of_key(key)),
        };
        self.engine.send(collector, operation, options, now, out)
    }

    /// Processes a UDP payload from the translator of the collector with this number. An invalid or misaddressed one is counted and
    /// ignored.
    pub fn control(&mut self, collector: u8, payload: &[u8], now: u64, out: &mut Outbox) {
        let control = match Control::parse(payload) {
            Ok(control) if control.reporter == self.engine.reporter => control,
            Ok(_) => {
                self.stats.misdirected += 1;
                return;
            }
            Err(_) => {
                self.stats.bad_controls += 1;
                return;
            }
        };
        let Engine {
            destinations,
            retransmission,
            ..
        } = &mut self.engine;
        let Some(destination) = destinations.get_mut(usize::from(collector)) else {
            self.stats.misdirected += 1;
            return;
        };
        self.stats.controls += 1;
        match control.body {
            Body::Ack { last } => destination.ack(last),
            Body::Nack {
                cause: Cause::Malformed | Cause::Unknown,
                ..
            } => destination.stats.refused += 1,
            Body::Nack { cause, last, .. } => {
                destination.nack(last, cause == Cause::Overload, now, retransmission, out)
            }
            Body::Congestion {
                level,
                hold_us,
                dropped,
            } => destination.set_level(level, hold_us, dropped, now),
            Body::SketchNack {
                sketch,
                epoch,
                column,
            } => match self.sketches.iter_mut().find(|one| one.config.id == sketch) {
                Some(sketch) => sketch.nack(epoch, column, now),
                None => self.stats.unknown_sketches += 1,
            },
        }
    }

    /// Runs the timers for batches, ends of periods and epochs, and retransmissions. Call it about every millisecond, and at
    /// the time that [`Reporter::next`] returns.
    pub fn tick(&mut self, now: u64, out: &mut Outbox) {
        self.engine.tick(now, out);
        let node = self.engine.reporter;
        for (index, table) in self.tables.iter_mut().enumerate() {
            table.tick(
                node,
                now,
                &mut TableReports {
                    engine: &mut self.engine,
                    index,
                    now,
                    out,
                },
            );
        }
        let collector = self.engine.spread.of_sketches();
        for sketch in &mut self.sketches {
            let options = sketch.config.options;
            sketch.tick(now, MAX_SKETCH_REPORTS_PER_TICK, |operation| {
                self.engine.send(collector, operation, options, now, out)
            });
        }
    }

    /// Returns the time at which [`Reporter::tick`] is due, ns.
    pub fn next(&self) -> Option<u64> {
        let tables = self.tables.iter().filter_map(Table::next);
        tables
            .chain(self.sketches.iter().filter_map(Sketch::next))
            .chain(self.engine.next())
            .min()
    }

    /// Returns the counters of the reporter.
    pub fn stats(&self) -> Stats {
        Stats {
            reports: self.engine.reports,
            ..self.stats
        }
    }

    /// Returns the mappings with their statistics.
    pub fn mappings(&self) -> impl ExactSizeIterator<Item = (&Mapping, &MappingStats)> {
        self.engine.stats()
    }

    /// Returns the tables with their statistics.
    pub fn tables(&self) -> impl ExactSizeIterator<Item = (&table::Config, &table::Stats)> {
        self.tables.iter().map(|table| (&table.config, &table.stats))
    }

    /// Returns the sketches with their statistics.
    pub fn sketches(&self) -> impl ExactSizeIterator<Item = (&sketches::Config, &sketches::Stats)> {
        self.sketches.iter().map(|sketch| (&sketch.config, &sketch.stats))
    }

    /// Returns the state of each collector: counters, congestion level, number of unsent essential reports, and the last
    /// sequence number.
    pub fn destinations(&self, now: u64) -> impl ExactSizeIterator<Item = Destination> {
        self.engine
            .destinations
            .iter()
            .map(move |destination| Destination {
                stats: destination.stats,
                level: destination.level(now),
                waiting: destination.never_sent_count(),
                last: destination.last_sequence(),
                acknowledged: destination.is_acknowledged(),
            })
    }

    fn count(&mut self, context: &Context<'_>, sums: Sums, now: u64, out: &mut Outbox) {
        let Self { engine, tables, .. } = self;
        for (index, table) in tables.iter_mut().enumerate() {
            table.count(
                context,
                sums,
                now,
                &mut TableReports {
                    engine,
                    index,
                    now,
                    out,
                },
            );
        }
    }
}

/// The reporter's state towards one collector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Destination {
    /// Counters of the destination.
    pub stats: DestinationStats,
    /// Congestion level, 0 to 3.
    pub level: u8,
    /// Number of essential reports that were not sent yet.
    pub waiting: u16,
    /// Sequence number of the last essential report.
    pub last: Option<u16>,
    /// True if the translator has confirmed all essential reports. It confirms the last one when that is retransmitted.
    pub acknowledged: bool,
}

/// Passes the records of a table to the mappings with its triggers.
struct TableReports<'a> {
    engine: &'a mut Engine,
    index: usize,
    now: u64,
    out: &'a mut Outbox,
}

impl table::RecordSink for TableReports<'_> {
    fn report(&mut self, context: &Context<'_>, passed: u8) -> u8 {
        self.engine
            .report(context, Some(self.index), passed, self.now, self.out)
    }
}

/// Returns the length of a report of the sketch, bytes of UDP payload.
fn sketch_report_len(sketch: &sketches::Config) -> usize {
    let column = usize::from(sketch.shape.depth) * usize::from(sketch.shape.width);
    SKETCH_MERGE_HEADER_LEN + usize::from(sketch.per_report) * column
}

/// Checks that the configuration can be executed.
///
/// # Errors
/// Returns the first invalid setting.
pub fn check(config: &Config) -> Result<(), ConfigError> {
    for (key, count, most) in [
        ("map", config.mappings.len(), MAX_MAPPINGS),
        ("tables", config.tables.len(), MAX_TABLES),
        ("sketches", config.sketches.len(), MAX_SKETCHES),
    ] {
        if count > most {
            return Part::Reporter.refuse(key, format!("{count} are too many; at most {most}"));
        }
    }
    if !(MIN_REPORT_LEN..=MAX_UDP_PAYLOAD).contains(&config.max_report_len)
        || config.max_essential_len > config.max_report_len
    {
        return Part::Reporter.refuse("longest", "write 64 to 65507 bytes");
    }
    for (index, table) in config.tables.iter().enumerate() {
        check_table(index, table)?;
    }
    for (index, sketch) in config.sketches.iter().enumerate() {
        check_sketch(index, sketch, config.max_report_len)?;
        if config.sketches[..index].iter().any(|other| other.id == sketch.id) {
            let why = format!("there are two sketches {}; renumber one", sketch.id);
            return Part::Sketch(index).refuse("id", why);
        }
    }
    let mut passed = 0;
    for (index, mapping) in config.mappings.iter().enumerate() {
        mapping.check(index, config.tables.len(), config.max_report_len)?;
        passed += usize::from(mapping.on == Trigger::Passed);
        if passed > MAX_PASSED {
            let why = format!("at most {MAX_PASSED} mappings can be on \"passed\"");
            return Part::Mapping(index).refuse("on", why);
        }
    }
    Ok(())
}

fn check_table(index: usize, table: &table::Config) -> Result<(), ConfigError> {
    let part = Part::Table(index);
    mapping::check_key(&table.key, table::MAX_KEY).or_else(|why| part.refuse("key", why))?;
    if let Some(field) = table.key.iter().find(|field| field.needs_table()) {
        return part.refuse(
            "key",
            format!("`{field}` is a field of table records, and cannot be in the key"),
        );
    }
    if !table.slots.is_power_of_two() || table.slots > table::MAX_SLOTS {
        return part.refuse(
            "slots",
            format!("write a power of two up to {}", table::MAX_SLOTS),
        );
    }
    if table.period > 0 && table.period < 1_000_000 {
        return part.refuse("period", "write at least \"1ms\"");
    }
    match table
        .having
        .iter()
        .find(|condition| !condition.field().needs_table())
    {
        Some(condition) => part.refuse(
            "having",
            format!("`{condition}` does not use a field of table records"),
        ),
        None if table.period == 0 && !table.having.is_empty() => part.refuse(
            "having",
            "it is evaluated at the end of a period; add period = \"1s\" or the like",
        ),
        None => Ok(()),
    }
}

fn check_sketch(index: usize, sketch: &sketches::Config, max_report_len: usize) -> Result<(), ConfigError> {
    let part = Part::Sketch(index);
    mapping::check_key(&sketch.key, wire::dta::hash::MAX_KEY).or_else(|why| part.refuse("key", why))?;
    if sketch.key.iter().chain(&sketch.item).any(Field::needs_table) {
        return part.refuse("key", "fields of table records cannot be in a sketch");
    }
    let shape = sketch.shape;
    let aroma = sketch.kind == SketchKind::Aroma;
    if !(1..=MAX_DEPTH).contains(&shape.depth) {
        return part.refuse("depth", "write 1 to 16 rows");
    }
    if shape.columns == 0 || u64::from(shape.columns) * u64::from(shape.depth) > sketches::MAX_COUNTERS {
        return part.refuse(
            "columns",
            "write at least 1; rows and columns make at most 16777216 counters",
        );
    }
    if !(shape.width == 8 || shape.width == 4 && !aroma) {
        return part.refuse("width", "write 4 or 8 bytes for a counter; 8 for samples");
    }
    if aroma != sketch.item.is_some() {
        return part.refuse(
            "item",
            "kind = \"aroma\" needs an item to sample, such as \"flow\"; other kinds have none",
        );
    }
    if sketch.epoch < 1_000_000 {
        return part.refuse("epoch", "write at least \"1ms\"");
    }
    if sketch.per_report == 0 || sketch_report_len(sketch) > max_report_len {
        let column = usize::from(shape.depth) * usize::from(shape.width);
        let most = (max_report_len.saturating_sub(SKETCH_MERGE_HEADER_LEN) / column).min(255);
        return part.refuse("per_report", format!("write 1 to {most} columns in a report"));
    }
    Ok(())
}
