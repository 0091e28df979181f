//! Events in blocks, to be counted: the columns of the events of a minute that are counted, in some six bytes for each.
//!
//! A row of `event_data` says everything of one event; to count a day of them row by row takes SQLite ten seconds and more. So what events can be
//! grouped by is also kept as columns of bits: read as numbers, a day takes a fraction of a second. A block belongs to one minute and to the transaction
//! of its events, so that both never disagree. Transactions are short: their small blocks are joined as they become many, and when the minute has passed.
//!
//! # Format
//!
//! The version; the locations, each once: node, interface and queue; then the classes, each once: kind, metric, rule and drop reason, which columns there are,
//! and how many events. Of each class: how many events there are in which second of the minute, and in that order their columns: locations by
//! their position, flows, and if there are any paths, values, and first latencies. Numbers are varints, columns have as many bits for each value as the largest needs.

use std::collections::HashMap;
use std::collections::btree_map::{BTreeMap, Entry};
use std::hash::{Hash, Hasher};

use rusqlite::{Connection, OptionalExtension as _, params};

use crate::hasher::Seeded;

/// The location of an event.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Location {
    pub(crate) node: Option<u32>,
    pub(crate) interface: Option<u32>,
    pub(crate) queue: Option<u8>,
}

/// The kind of an event, and what caused it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub(crate) struct Class {
    /// The kind, by its index in [`collector::Kind::ALL`].
    pub(crate) kind: u8,
    /// The metric, by its number.
    pub(crate) metric: Option<u8>,
    /// The rule, by its number in the file; 0 for none.
    pub(crate) rule: u32,
    pub(crate) reason: Option<u8>,
}

/// The part of an event that is counted. Flow and path are numbers of the file; 0 for none.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Counted {
    pub(crate) class: Class,
    pub(crate) location: Location,
    pub(crate) flow: u32,
    pub(crate) path: u32,
    pub(crate) values: Values,
}

/// The first latencies of a new flow.
type First = (Option<u64>, Option<u64>);

/// The values that an event reports.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub(crate) struct Values {
    pub(crate) value: Option<u64>,
    /// The first flow latency of a new flow, and the largest of its first hop latencies.
    pub(crate) first: Option<First>,
}

/// The blocks of an open transaction, and the state of those that are stored.
#[derive(Default, Debug)]
pub(crate) struct Blocks {
    /// The minute where almost all events belong.
    minute: i64,
    builder: Builder,
    others: BTreeMap<i64, Builder>,
    /// Minutes with blocks that were stored lately.
    open: BTreeMap<i64, Stored>,
}

/// The stored blocks of a minute.
#[derive(Default, Debug)]
struct Stored {
    /// The ids of blocks with few events.
    small: Vec<i64>,
    /// The small blocks were joined when the minute had passed.
    is_past: bool,
}

/// Events of one minute, while they are collected.
#[derive(Default, Debug)]
struct Builder {
    locations: Numbered<Location>,
    /// The classes, with the columns that their events have.
    classes: Numbered<(Class, Has)>,
    rows: Vec<Vec<Row>>,
    count: usize,
    /// Blocks that are full, with the number of their events.
    full: Vec<(usize, Vec<u8>)>,
}

#[derive(Clone, Copy, Debug)]
struct Row {
    second: u8,
    location: u32,
    flow: u32,
    path: u32,
    values: Values,
}

/// The columns of a class besides locations and flows.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Has {
    paths: bool,
    values: bool,
    first: bool,
}

impl Has {
    fn from_event(event: &Counted) -> Self {
        Self {
            paths: event.path != 0,
            values: event.values.value.is_some(),
            first: event.values.first.is_some(),
        }
    }
}

/// Values, each once, with the position of each.
#[derive(Debug)]
struct Numbered<T> {
    values: Vec<T>,
    positions: HashMap<T, u32, Seeded>,
    last: Option<(T, u32)>,
}

/// A block as it is stored.
#[derive(Debug)]
pub(crate) struct Block<'a> {
    pub(crate) locations: Vec<Location>,
    pub(crate) runs: Vec<Run<'a>>,
}

/// The events of one class in a block, by the second.
#[derive(Debug)]
pub(crate) struct Run<'a> {
    pub(crate) class: Class,
    /// The seconds of the minute that have events, and the number of their events.
    pub(crate) seconds: Vec<(u8, usize)>,
    /// Positions in [`Block::locations`]. Those of a damaged file may be as much as twice as large.
    pub(crate) locations: Column<'a>,
    pub(crate) flows: Column<'a>,
    pub(crate) paths: Option<Column<'a>>,
    values: Option<Column<'a>>,
    /// First flow latencies and hop latencies, each with 1 added; 0 for none.
    first: Option<(Column<'a>, Column<'a>)>,
}

impl Run<'_> {
    /// Returns the values of an event.
    #[inline]
    pub(crate) fn values(&self, i: usize) -> Values {
        let first = self
            .first
            .map(|(flow, hop)| (flow.get(i).checked_sub(1), hop.get(i).checked_sub(1)));
        Values {
            value: self.values.map(|values| values.get(i)),
            first,
        }
    }
}

/// Numbers of as many bits as the largest needs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Column<'a> {
    base: u64,
    width: u32,
    /// The numbers, with [`PADDING`] behind the last one.
    bytes: &'a [u8],
}

impl<T> Default for Numbered<T> {
    fn default() -> Self {
        Self {
            values: Vec::new(),
            positions: HashMap::default(),
            last: None,
        }
    }
}

impl Hash for Location {
    #[inline]
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(plus_one(self.node) | plus_one(self.queue) << 40);
        state.write_u64(plus_one(self.interface));
    }
}

/// Returns the number with 1 added, and 0 for none.
#[inline]
fn plus_one<T: Into<u64>>(number: Option<T>) -> u64 {
    number.map_or(0, |number| number.into() + 1)
}

impl<T: Copy + Eq + Hash> Numbered<T> {
    #[inline]
    fn position(&mut self, value: T) -> u32 {
        if let Some((last, position)) = self.last
            && last == value
        {
            return position;
        }
        let next = self.values.len() as u32;
        let position = *self.positions.entry(value).or_insert(next);
        if position == next {
            self.values.push(value);
        }
        self.last = Some((value, position));
        position
    }
}

impl Blocks {
    /// Adds an event of the minute that begins at `minute`, in a second of it.
    #[inline]
    pub(crate) fn event(
        &mut self,
        conn: &Connection,
        minute: i64,
        second: u8,
        event: &Counted,
    ) -> rusqlite::Result<()> {
        if minute != self.minute {
            self.switch_to(conn, minute)?;
        }
        self.builder.push(second, event);
        Ok(())
    }

    #[cold]
    fn switch_to(&mut self, conn: &Connection, minute: i64) -> rusqlite::Result<()> {
        if self.others.len() >= MAX_MINUTES {
            self.write(conn)?;
        }
        let next = self.others.remove(&minute).unwrap_or_default();
        let before = std::mem::replace(&mut self.builder, next);
        if !before.is_empty() {
            self.others.insert(self.minute, before);
        }
        self.minute = minute;
        Ok(())
    }

    /// Stores the blocks of the transaction, before it is committed.
    pub(crate) fn write(&mut self, conn: &Connection) -> rusqlite::Result<()> {
        let builder = std::mem::take(&mut self.builder);
        if !builder.is_empty() {
            self.others.insert(self.minute, builder);
        }
        let newest = self.others.keys().next_back().copied();
        while let Some((minute, builder)) = self.others.pop_first() {
            self.store(conn, minute, builder)?;
        }
        while self.open.len() > MAX_MINUTES {
            self.open.pop_first();
        }
        // Late events of the minute before are still to come.
        let open_from = newest.map_or(i64::MIN, |newest| newest - MINUTE);
        for (minute, stored) in &mut self.open {
            if *minute < open_from && !stored.is_past {
                stored.is_past = true;
                if stored.small.len() > 1 {
                    stored.join(conn, *minute, Builder::default())?;
                }
            }
        }
        Ok(())
    }

    fn store(&mut self, conn: &Connection, minute: i64, builder: Builder) -> rusqlite::Result<()> {
        let stored = match self.open.entry(minute) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(free) => free.insert(Stored {
                small: small_blocks(conn, minute)?,
                is_past: false,
            }),
        };
        // The minute has more events: these are late, or an event with a time in the future made it look past.
        stored.is_past = false;
        if stored.small.len() >= MAX_SMALL {
            return stored.join(conn, minute, builder);
        }
        stored.small.extend(insert(conn, minute, builder)?);
        Ok(())
    }
}

impl Stored {
    /// Joins the small blocks with new events.
    fn join(&mut self, conn: &Connection, minute: i64, mut builder: Builder) -> rusqlite::Result<()> {
        remove_blocks(conn, &self.small, &mut builder)?;
        self.small = insert(conn, minute, builder)?;
        Ok(())
    }
}

fn small_blocks(conn: &Connection, minute: i64) -> rusqlite::Result<Vec<i64>> {
    let mut select =
        conn.prepare_cached("SELECT id FROM block_data WHERE id >= ?1 AND id < ?2 AND count < ?3")?;
    let ids = select.query_map([first_id(minute), end_id(minute), SMALL as i64], |row| row.get(0))?;
    ids.collect()
}

/// Moves the events of stored blocks into `builder`. A block that cannot be read stays: readers then count the rows of its events.
fn remove_blocks(conn: &Connection, blocks: &[i64], builder: &mut Builder) -> rusqlite::Result<()> {
    let mut select = conn.prepare_cached("SELECT events FROM block_data WHERE id = ?1")?;
    let mut delete = conn.prepare_cached("DELETE FROM block_data WHERE id = ?1")?;
    for id in blocks {
        let bytes = select.query_row([id], |row| {
            Ok(row.get_ref(0)?.as_blob().unwrap_or_default().to_owned())
        });
        let Some(bytes) = bytes.optional()? else {
            continue;
        };
        if let Some(block) = Block::read(&bytes) {
            builder.add(&block);
            delete.execute([id])?;
        }
    }
    Ok(())
}

/// Stores the blocks of `builder`. Returns the ids of the small ones.
fn insert(conn: &Connection, minute: i64, mut builder: Builder) -> rusqlite::Result<Vec<i64>> {
    builder.close();
    let first = first_id(minute);
    let mut select = conn.prepare_cached("SELECT max(id) FROM block_data WHERE id >= ?1 AND id < ?2")?;
    let last: Option<i64> = select.query_row([first, end_id(minute)], |row| row.get(0))?;
    let mut insert = conn.prepare_cached("INSERT INTO block_data VALUES (?1, ?2, ?3)")?;
    let mut small = Vec::new();
    for (id, (count, block)) in (last.map_or(first, |last| last + 1)..).zip(&builder.full) {
        insert.execute(params![id, *count as i64, block])?;
        if *count < SMALL {
            small.push(id);
        }
    }
    Ok(small)
}

/// Returns the id of the first block of a minute.
pub(crate) fn first_id(minute: i64) -> i64 {
    minute.div_euclid(MINUTE) << ID_BITS
}

/// Returns the id after those of a minute's blocks; the next minute may be later than any time that there is.
fn end_id(minute: i64) -> i64 {
    first_id(minute) + (1 << ID_BITS)
}

/// Returns the minute of a block.
pub(crate) fn minute_of(id: i64) -> i64 {
    (id >> ID_BITS) * MINUTE
}

impl Builder {
    fn is_empty(&self) -> bool {
        self.count == 0 && self.full.is_empty()
    }

    #[inline]
    fn push(&mut self, second: u8, event: &Counted) {
        let class = self.classes.position((event.class, Has::from_event(event))) as usize;
        let location = self.locations.position(event.location);
        if class == self.rows.len() {
            self.rows.push(Vec::new());
        }
        self.rows[class].push(Row {
            second,
            location,
            flow: event.flow,
            path: event.path,
            values: event.values,
        });
        self.count += 1;
        if self.count == MAX_ROWS {
            self.close();
        }
    }

    /// Adds the events of a block.
    fn add(&mut self, block: &Block<'_>) {
        for run in &block.runs {
            let mut i = 0;
            for &(second, count) in &run.seconds {
                for _ in 0..count {
                    let location = block.locations.get(run.locations.get(i) as usize);
                    let event = Counted {
                        class: run.class,
                        location: location.copied().unwrap_or_default(),
                        flow: run.flows.get(i) as u32,
                        path: run.paths.map_or(0, |paths| paths.get(i) as u32),
                        values: run.values(i),
                    };
                    self.push(second, &event);
                    i += 1;
                }
            }
        }
    }

    /// Encodes the events that were collected as a block, if there are any.
    fn close(&mut self) {
        if self.count == 0 {
            return;
        }
        let mut bytes = Vec::with_capacity(self.count * 4);
        bytes.push(VERSION);
        varint(&mut bytes, self.locations.values.len() as u64);
        for location in &self.locations.values {
            varint(&mut bytes, plus_one(location.node));
            varint(&mut bytes, plus_one(location.interface));
            varint(&mut bytes, plus_one(location.queue));
        }
        varint(&mut bytes, self.classes.values.len() as u64);
        for ((class, has), rows) in self.classes.values.iter().zip(&mut self.rows) {
            bytes.push(class.kind);
            bytes.push(class.metric.map_or(0, |metric| metric.saturating_add(1)));
            varint(&mut bytes, class.rule.into());
            varint(&mut bytes, plus_one(class.reason));
            bytes.push(u8::from(has.paths) | u8::from(has.values) << 1 | u8::from(has.first) << 2);
            // They are almost always in order already: then the sort compares each once.
            rows.sort_by_key(|row| row.second);
            varint(&mut bytes, rows.len() as u64);
            let seconds = rows.chunk_by(|one, other| one.second == other.second);
            varint(&mut bytes, seconds.clone().count() as u64);
            for second in seconds {
                bytes.push(second[0].second);
                varint(&mut bytes, second.len() as u64);
            }
            pack(&mut bytes, rows.iter().map(|row| row.location.into()));
            pack(&mut bytes, rows.iter().map(|row| row.flow.into()));
            if has.paths {
                pack(&mut bytes, rows.iter().map(|row| row.path.into()));
            }
            if has.values {
                pack(&mut bytes, rows.iter().map(|row| row.values.value.unwrap_or(0)));
            }
            if has.first {
                let first = rows.iter().map(|row| row.values.first.unwrap_or_default());
                pack(&mut bytes, first.clone().map(|first| latency_code(first.0)));
                pack(&mut bytes, first.map(|first| latency_code(first.1)));
            }
        }
        bytes.extend([0; PADDING]);
        let full = std::mem::take(&mut self.full);
        let count = self.count;
        *self = Self {
            full,
            ..Self::default()
        };
        self.full.push((count, bytes));
    }
}

/// Returns a latency with 1 added, and 0 for none.
fn latency_code(latency: Option<u64>) -> u64 {
    latency.map_or(0, |latency| latency.saturating_add(1))
}

impl<'a> Block<'a> {
    /// Reads a block as it is stored. Returns `None` if it is damaged, or of another format.
    pub(crate) fn read(bytes: &'a [u8]) -> Option<Self> {
        let mut rest = Rest(bytes);
        if rest.byte()? != VERSION {
            return None;
        }
        let count = rest.count()?;
        let mut locations = Vec::with_capacity(count);
        for _ in 0..count {
            locations.push(Location {
                node: rest.optional()?,
                interface: rest.optional()?,
                queue: rest.optional()?,
            });
        }
        let classes = rest.count()?;
        let mut runs = Vec::with_capacity(classes.min(64));
        let mut left = MAX_ROWS;
        for _ in 0..classes {
            let (run, events) = rest.run(locations.len())?;
            left = left.checked_sub(events)?;
            runs.push(run);
        }
        (rest.0.len() == PADDING).then_some(Self { locations, runs })
    }
}

impl Column<'_> {
    /// Returns the number at a position, which is one of the column's.
    #[inline]
    pub(crate) fn get(&self, i: usize) -> u64 {
        let bit = i.wrapping_mul(self.width as usize);
        // Of a width of 64, the numbers begin at whole bytes.
        let word = match self.bytes[bit >> 3..].first_chunk::<8>() {
            Some(word) => u64::from_le_bytes(*word),
            None => 0,
        };
        self.base.wrapping_add(word >> (bit & 7) & self.mask())
    }

    /// Returns a bound that no number of the column exceeds.
    pub(crate) fn largest(&self) -> u64 {
        self.base.saturating_add(self.mask())
    }

    #[inline]
    fn mask(&self) -> u64 {
        u64::MAX >> (64 - self.width).min(63) & if self.width == 0 { 0 } else { u64::MAX }
    }
}

/// The bytes of a block that are still to be read.
struct Rest<'a>(&'a [u8]);

impl<'a> Rest<'a> {
    fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    fn number(&mut self) -> Option<u64> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            number |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Some(number);
            }
        }
        None
    }

    /// Reads a count of things of which a block has no more than it may have events.
    fn count(&mut self) -> Option<usize> {
        usize::try_from(self.number()?)
            .ok()
            .filter(|count| *count <= MAX_ROWS)
    }

    fn optional<T: TryFrom<u64>>(&mut self) -> Option<Option<T>> {
        match self.number()? {
            0 => Some(None),
            more => T::try_from(more - 1).ok().map(Some),
        }
    }

    /// Reads the events of a class, and returns their number, too.
    fn run(&mut self, locations: usize) -> Option<(Run<'a>, usize)> {
        let kind = self.byte()?;
        let metric = self.byte()?.checked_sub(1);
        let class = Class {
            kind,
            metric,
            rule: self.number()?.try_into().ok()?,
            reason: self.optional()?,
        };
        let has = self.byte()?;
        let count = self.count()?;
        let mut seconds = Vec::with_capacity(self.0.first().map_or(0, |count| usize::from(*count).min(60)));
        for _ in 0..self.count()? {
            seconds.push((self.byte()?, self.count()?));
        }
        let is_ordered = seconds.is_sorted_by(|(one, _), (other, _)| one < other);
        if !is_ordered || seconds.last().is_some_and(|(second, _)| *second > 59) {
            return None;
        }
        if seconds.iter().map(|(_, count)| count).sum::<usize>() != count {
            return None;
        }
        let run = Run {
            class,
            seconds,
            locations: self.column(count)?,
            flows: self.column(count)?,
            paths: self.optional_column(has & 1 != 0, count)?,
            values: self.optional_column(has & 2 != 0, count)?,
            first: if has & 4 != 0 {
                Some((self.column(count)?, self.column(count)?))
            } else {
                None
            },
        };
        // A column has at most one bit more than its largest number needs.
        (run.locations.largest() <= 2 * locations as u64).then_some((run, count))
    }

    fn optional_column(&mut self, is_there: bool, count: usize) -> Option<Option<Column<'a>>> {
        Some(if is_there { Some(self.column(count)?) } else { None })
    }

    fn column(&mut self, count: usize) -> Option<Column<'a>> {
        let width = u32::from(self.byte()?);
        let base = self.number()?;
        let length = (count * width as usize).div_ceil(8);
        if width > WIDEST && width != 64 || self.0.len() < length + PADDING {
            return None;
        }
        let bytes = &self.0[..length + PADDING];
        self.0 = &self.0[length..];
        Some(Column { base, width, bytes })
    }
}

fn varint(bytes: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
}

fn pack(bytes: &mut Vec<u8>, numbers: impl Iterator<Item = u64> + Clone) {
    let (least, most) = numbers.clone().fold((u64::MAX, 0), |(least, most), number| {
        (least.min(number), most.max(number))
    });
    let width = u64::BITS - most.saturating_sub(least).leading_zeros();
    if width > WIDEST {
        bytes.push(64);
        bytes.push(0);
        numbers.for_each(|number| bytes.extend(number.to_le_bytes()));
        return;
    }
    bytes.push(width as u8);
    varint(bytes, least);
    let mut word = 0_u64;
    let mut bits = 0;
    for number in numbers {
        word |= (number - least) << bits;
        bits += width;
        while bits >= 8 {
            bytes.push(word as u8);
            word >>= 8;
            bits -= 8;
        }
    }
    if bits > 0 {
        bytes.push(word as u8);
    }
}

const VERSION: u8 = 2;
/// Events of a block: the limits of readers allow a value of 1 MiB, and in the worst case an event takes 60 bytes.
pub(crate) const MAX_ROWS: usize = 16_384;
/// A block of fewer events is joined with others.
const SMALL: usize = 8_192;
/// Small blocks of a minute.
const MAX_SMALL: usize = 15;
/// Minutes of a transaction, and minutes with small blocks, that are in memory.
const MAX_MINUTES: usize = 64;
/// Bits of a number that may begin in the middle of a byte.
const WIDEST: u32 = 56;
/// Bytes behind a column, so that each number is read as a part of eight bytes.
const PADDING: usize = 8;
/// Bits of a block's number that count the blocks of a minute.
const ID_BITS: u32 = 24;
const MINUTE: i64 = 60_000_000_000;

#[cfg(test)]
mod tests;
