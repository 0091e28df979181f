//! Columnar, bit-packed copy of the events, for counting and grouping them: about six bytes per event.
//!
//! A row of `event_data` holds all fields of one event, and SQLite needs ten seconds or more to count a day of such
//! rows. The fields by which events are grouped are therefore also stored as bit-packed columns in blocks, which take a
//! fraction of a second to read. A block belongs to one minute and is written in the transaction of its events, so rows
//! and blocks never disagree. Transactions are short and leave small blocks behind; these are joined when there are too
//! many of them, and once more when their minute has passed.
//!
//! # Format
//!
//! ```text
//! version (1 byte)
//! locations: count, then node, interface, queue of each       each distinct location once
//! classes:   count, then for each class
//!     kind, metric, rule, drop reason, flags (which optional columns follow)
//!     number of events; seconds: count, then (second of the minute, events in it) of each
//!     columns: location index, flow, [path], [value], [first flow latency, first hop latency]
//! padding (8 bytes)
//! ```
//!
//! Counts and IDs are LEB128 varints; an optional field is stored plus one, with 0 for `None`. A column is its bit
//! width, its minimum (frame of reference) and the differences from it, as many bits each as the largest needs.

use std::collections::HashMap;
use std::collections::btree_map::{BTreeMap, Entry};
use std::hash::{Hash, Hasher};

use rusqlite::{Connection, OptionalExtension as _, params};

use crate::hasher::Seeded;

const VERSION: u8 = 2;
/// Maximum events in a block. Readers limit a value to 1 MiB, and an event takes 60 bytes in the worst case.
pub(crate) const MAX_ROWS: usize = 16_384;
/// A block of fewer events is joined with others.
const SMALL_BLOCK: usize = 8_192;
/// Small blocks of a minute at which they are joined.
const MAX_SMALL_BLOCKS: usize = 15;
/// Maximum minutes in one transaction, and maximum minutes whose small blocks are remembered.
const MAX_MINUTES: usize = 64;
/// Maximum width in bits of a packed number: with a bit offset of up to 7 it still fits into a 64-bit load.
const MAX_PACKED_WIDTH: u32 = 56;
/// Zero bytes after the last column, so that an eight-byte load of any number stays within the block.
const PADDING: usize = 8;
/// Low bits of a block's ID, which count the blocks of a minute. The high bits are the minute.
const ID_BITS: u32 = 24;
/// Nanoseconds of a minute.
const MINUTE: i64 = 60_000_000_000;

/// Place where an event was measured: node, interface and queue, as far as known.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Location {
    pub(crate) node: Option<u32>,
    pub(crate) interface: Option<u32>,
    pub(crate) queue: Option<u8>,
}

/// Kind, metric, rule and drop reason of an event: the fields that repeat most.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub(crate) struct Class {
    /// Index of the kind in [`collector::Kind::ALL`].
    pub(crate) kind: u8,
    /// Number of the metric; `None` if the event has no metric.
    pub(crate) metric: Option<u8>,
    /// Interned ID of the rule in this file; 0 if the event has no rule.
    pub(crate) rule: u32,
    pub(crate) reason: Option<u8>,
}

/// The fields of an event by which it is counted. Flow and path are IDs interned in the file; 0 means none.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Counted {
    pub(crate) class: Class,
    pub(crate) location: Location,
    pub(crate) flow: u32,
    pub(crate) path: u32,
    pub(crate) values: Values,
}

/// The first latencies of a new flow, ns.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub(crate) struct FirstLatencies {
    pub(crate) flow: Option<u64>,
    /// The largest of the first hop latencies.
    pub(crate) hop: Option<u64>,
}

/// The values that an event reports.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub(crate) struct Values {
    pub(crate) value: Option<u64>,
    /// First latencies, if the event reports a new flow.
    pub(crate) first: Option<FirstLatencies>,
}

/// Writer of blocks: the builders of the open transaction, and which small blocks are already stored.
#[derive(Default, Debug)]
pub(crate) struct Blocks {
    /// Start of the minute of the last event, ns: almost all events belong to it.
    minute: i64,
    /// Events of this minute.
    builder: Builder,
    /// Events of other minutes in this transaction.
    other_minutes: BTreeMap<i64, Builder>,
    /// The stored blocks of recent minutes, which may get more.
    recent_minutes: BTreeMap<i64, StoredMinute>,
}

/// The stored blocks of a minute.
#[derive(Default, Debug)]
struct StoredMinute {
    /// IDs of the blocks with fewer than [`SMALL_BLOCK`] events.
    small: Vec<i64>,
    /// True once the small blocks were joined because the minute had passed.
    is_past: bool,
}

/// Events of one minute that are not encoded yet.
#[derive(Default, Debug)]
struct Builder {
    locations: Dictionary<Location>,
    /// Distinct classes, each with the optional columns that its events have.
    classes: Dictionary<(Class, OptionalColumns)>,
    /// The events of each class, by the class's position.
    rows: Vec<Vec<Row>>,
    count: usize,
    encoded: Vec<EncodedBlock>,
}

#[derive(Debug)]
struct EncodedBlock {
    events: usize,
    bytes: Vec<u8>,
}

#[derive(Clone, Copy, Debug)]
struct Row {
    second: u8,
    location: u32,
    flow: u32,
    path: u32,
    values: Values,
}

/// The optional columns of a class. Locations and flows are always present.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct OptionalColumns {
    paths: bool,
    values: bool,
    first: bool,
}

impl OptionalColumns {
    fn from_event(event: &Counted) -> Self {
        Self {
            paths: event.path != 0,
            values: event.values.value.is_some(),
            first: event.values.first.is_some(),
        }
    }

    /// Returns the flags byte of the format.
    fn to_flags(self) -> u8 {
        u8::from(self.paths) | u8::from(self.values) << 1 | u8::from(self.first) << 2
    }

    fn from_flags(flags: u8) -> Self {
        Self {
            paths: flags & 1 != 0,
            values: flags & 2 != 0,
            first: flags & 4 != 0,
        }
    }
}

/// A dictionary that numbers distinct values from 0 in the order of their first use. `last` caches the previous lookup.
#[derive(Debug)]
struct Dictionary<T> {
    values: Vec<T>,
    positions: HashMap<T, u32, Seeded>,
    last: Option<(T, u32)>,
}

/// A decoded block. The columns borrow from its bytes.
#[derive(Debug)]
pub(crate) struct Block<'a> {
    pub(crate) locations: Vec<Location>,
    pub(crate) runs: Vec<Run<'a>>,
}

/// The events of one class in a block, in the order of their seconds.
#[derive(Debug)]
pub(crate) struct Run<'a> {
    pub(crate) class: Class,
    /// The seconds of the minute (0 to 59) that have events, each with the number of its events.
    pub(crate) seconds: Vec<(u8, usize)>,
    /// Positions in [`Block::locations`]. In a damaged file they may be up to twice as large as the list.
    pub(crate) locations: Column<'a>,
    pub(crate) flows: Column<'a>,
    pub(crate) paths: Option<Column<'a>>,
    values: Option<Column<'a>>,
    first: Option<FirstColumns<'a>>,
}

/// Columns of [`FirstLatencies`], each number plus one; 0 means none.
#[derive(Clone, Copy, Debug)]
struct FirstColumns<'a> {
    flow: Column<'a>,
    hop: Column<'a>,
}

impl Run<'_> {
    /// Returns the values of an event.
    #[inline]
    pub(crate) fn values(&self, i: usize) -> Values {
        let first = self.first.map(|columns| FirstLatencies {
            flow: columns.flow.get(i).checked_sub(1),
            hop: columns.hop.get(i).checked_sub(1),
        });
        Values {
            value: self.values.map(|values| values.get(i)),
            first,
        }
    }
}

/// A bit-packed column of unsigned numbers: `base` plus a difference of `width` bits each.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Column<'a> {
    base: u64,
    width: u32,
    /// The packed differences, followed by [`PADDING`] bytes.
    bytes: &'a [u8],
}

impl<T> Default for Dictionary<T> {
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

/// Returns the number plus one, or 0 for `None`.
#[inline]
fn plus_one<T: Into<u64>>(number: Option<T>) -> u64 {
    number.map_or(0, |number| number.into() + 1)
}

impl<T: Copy + Eq + Hash> Dictionary<T> {
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
    /// Adds an event to the minute that begins at `minute` (ns); `second` is the second of that minute.
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
        if self.other_minutes.len() >= MAX_MINUTES {
            self.write(conn)?;
        }
        let next = self.other_minutes.remove(&minute).unwrap_or_default();
        let before = std::mem::replace(&mut self.builder, next);
        if !before.is_empty() {
            self.other_minutes.insert(self.minute, before);
        }
        self.minute = minute;
        Ok(())
    }

    /// Stores the blocks of the transaction, before it is committed.
    pub(crate) fn write(&mut self, conn: &Connection) -> rusqlite::Result<()> {
        let builder = std::mem::take(&mut self.builder);
        if !builder.is_empty() {
            self.other_minutes.insert(self.minute, builder);
        }
        let newest = self.other_minutes.keys().next_back().copied();
        while let Some((minute, builder)) = self.other_minutes.pop_first() {
            self.store(conn, minute, builder)?;
        }
        while self.recent_minutes.len() > MAX_MINUTES {
            self.recent_minutes.pop_first();
        }
        // Late events of the previous minute may still arrive, so its blocks are joined a minute later.
        let open_from = newest.map_or(i64::MIN, |newest| newest - MINUTE);
        for (minute, stored) in &mut self.recent_minutes {
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
        let stored = match self.recent_minutes.entry(minute) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(free) => free.insert(StoredMinute {
                small: small_blocks(conn, minute)?,
                is_past: false,
            }),
        };
        // More events arrived for a minute that looked past: late ones, or an event with a future time had closed it
        // too early.
        stored.is_past = false;
        if stored.small.len() >= MAX_SMALL_BLOCKS {
            return stored.join(conn, minute, builder);
        }
        stored.small.extend(insert(conn, minute, builder)?);
        Ok(())
    }
}

impl StoredMinute {
    /// Replaces the small blocks by new ones that also hold the events of `builder`.
    fn join(&mut self, conn: &Connection, minute: i64, mut builder: Builder) -> rusqlite::Result<()> {
        remove_blocks(conn, &self.small, &mut builder)?;
        self.small = insert(conn, minute, builder)?;
        Ok(())
    }
}

fn small_blocks(conn: &Connection, minute: i64) -> rusqlite::Result<Vec<i64>> {
    let mut select =
        conn.prepare_cached("SELECT id FROM block_data WHERE id >= ?1 AND id < ?2 AND count < ?3")?;
    let ids = select.query_map(
        [first_block_id(minute), end_block_id(minute), SMALL_BLOCK as i64],
        |row| row.get(0),
    )?;
    ids.collect()
}

/// Moves the events of stored blocks into `builder`. An unreadable block stays: readers then count the event rows
/// instead.
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

/// Stores the blocks of `builder`. Returns the row IDs of the small ones.
fn insert(conn: &Connection, minute: i64, mut builder: Builder) -> rusqlite::Result<Vec<i64>> {
    builder.encode();
    let first = first_block_id(minute);
    let mut select = conn.prepare_cached("SELECT max(id) FROM block_data WHERE id >= ?1 AND id < ?2")?;
    let last: Option<i64> = select.query_row([first, end_block_id(minute)], |row| row.get(0))?;
    let mut insert = conn.prepare_cached("INSERT INTO block_data VALUES (?1, ?2, ?3)")?;
    let mut small = Vec::new();
    for (id, block) in (last.map_or(first, |last| last + 1)..).zip(&builder.encoded) {
        insert.execute(params![id, block.events as i64, block.bytes])?;
        if block.events < SMALL_BLOCK {
            small.push(id);
        }
    }
    Ok(small)
}

/// Returns the id of the first block of a minute.
pub(crate) fn first_block_id(minute: i64) -> i64 {
    minute.div_euclid(MINUTE) << ID_BITS
}

/// Returns the ID after the last possible block of a minute. Computed from this minute: the start of the next one may
/// overflow.
fn end_block_id(minute: i64) -> i64 {
    first_block_id(minute) + (1 << ID_BITS)
}

/// Returns the start of a block's minute, ns.
pub(crate) fn block_minute(id: i64) -> i64 {
    (id >> ID_BITS) * MINUTE
}

impl Builder {
    fn is_empty(&self) -> bool {
        self.count == 0 && self.encoded.is_empty()
    }

    #[inline]
    fn push(&mut self, second: u8, event: &Counted) {
        let class = self
            .classes
            .position((event.class, OptionalColumns::from_event(event))) as usize;
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
            self.encode();
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

    /// Encodes the collected events as a block, if there are any, and starts an empty one.
    fn encode(&mut self) {
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
        for ((class, optional), rows) in self.classes.values.iter().zip(&mut self.rows) {
            bytes.push(class.kind);
            bytes.push(class.metric.map_or(0, |metric| metric.saturating_add(1)));
            varint(&mut bytes, class.rule.into());
            varint(&mut bytes, plus_one(class.reason));
            bytes.push(optional.to_flags());
            // Almost always sorted already, in which case the stable sort needs one comparison per row.
            rows.sort_by_key(|row| row.second);
            varint(&mut bytes, rows.len() as u64);
            let seconds = rows.chunk_by(|a, b| a.second == b.second);
            varint(&mut bytes, seconds.clone().count() as u64);
            for second in seconds {
                bytes.push(second[0].second);
                varint(&mut bytes, second.len() as u64);
            }
            pack(&mut bytes, rows.iter().map(|row| row.location.into()));
            pack(&mut bytes, rows.iter().map(|row| row.flow.into()));
            if optional.paths {
                pack(&mut bytes, rows.iter().map(|row| row.path.into()));
            }
            if optional.values {
                pack(&mut bytes, rows.iter().map(|row| row.values.value.unwrap_or(0)));
            }
            if optional.first {
                let first = rows.iter().map(|row| row.values.first.unwrap_or_default());
                pack(&mut bytes, first.clone().map(|first| latency_code(first.flow)));
                pack(&mut bytes, first.map(|first| latency_code(first.hop)));
            }
        }
        bytes.extend([0; PADDING]);
        let mut encoded = std::mem::take(&mut self.encoded);
        encoded.push(EncodedBlock {
            events: self.count,
            bytes,
        });
        *self = Self {
            encoded,
            ..Self::default()
        };
    }
}

/// Returns a latency plus one, or 0 for `None`.
fn latency_code(latency: Option<u64>) -> u64 {
    latency.map_or(0, |latency| latency.saturating_add(1))
}

impl<'a> Block<'a> {
    /// Decodes a block. Returns `None` if it is damaged or of another format version.
    pub(crate) fn read(bytes: &'a [u8]) -> Option<Self> {
        let mut cursor = Cursor(bytes);
        if cursor.byte()? != VERSION {
            return None;
        }
        let count = cursor.count()?;
        let mut locations = Vec::with_capacity(count);
        for _ in 0..count {
            locations.push(Location {
                node: cursor.optional()?,
                interface: cursor.optional()?,
                queue: cursor.optional()?,
            });
        }
        let classes = cursor.count()?;
        let mut runs = Vec::with_capacity(classes.min(64));
        let mut rows_left = MAX_ROWS;
        for _ in 0..classes {
            let (run, events) = cursor.run(locations.len())?;
            rows_left = rows_left.checked_sub(events)?;
            runs.push(run);
        }
        (cursor.0.len() == PADDING).then_some(Self { locations, runs })
    }
}

impl Column<'_> {
    /// Returns the number at position `i`, which must be less than the column's length.
    #[inline]
    pub(crate) fn get(&self, i: usize) -> u64 {
        let bit = i.wrapping_mul(self.width as usize);
        // One unaligned load of eight bytes covers any width up to 56 bits; a width of 64 starts at whole bytes.
        let word = match self.bytes[bit >> 3..].first_chunk::<8>() {
            Some(word) => u64::from_le_bytes(*word),
            None => 0,
        };
        self.base.wrapping_add(word >> (bit & 7) & self.mask())
    }

    /// Returns an upper bound of the column's numbers.
    pub(crate) fn largest(&self) -> u64 {
        self.base.saturating_add(self.mask())
    }

    #[inline]
    fn mask(&self) -> u64 {
        u64::MAX.checked_shr(u64::BITS - self.width).unwrap_or(0)
    }
}

/// Cursor over the unread bytes of a block. Each method returns `None` if the bytes are damaged.
struct Cursor<'a>(&'a [u8]);

impl<'a> Cursor<'a> {
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

    /// Reads a count. No list in a block has more than [`MAX_ROWS`] entries.
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

    /// Reads the events of one class. Returns them with their number.
    fn run(&mut self, locations: usize) -> Option<(Run<'a>, usize)> {
        let kind = self.byte()?;
        let metric = self.byte()?.checked_sub(1);
        let class = Class {
            kind,
            metric,
            rule: self.number()?.try_into().ok()?,
            reason: self.optional()?,
        };
        let optional = OptionalColumns::from_flags(self.byte()?);
        let count = self.count()?;
        let mut seconds = Vec::with_capacity(self.0.first().map_or(0, |count| usize::from(*count).min(60)));
        for _ in 0..self.count()? {
            seconds.push((self.byte()?, self.count()?));
        }
        let is_ordered = seconds.is_sorted_by(|(earlier, _), (later, _)| earlier < later);
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
            paths: self.optional_column(optional.paths, count)?,
            values: self.optional_column(optional.values, count)?,
            first: if optional.first {
                Some(FirstColumns {
                    flow: self.column(count)?,
                    hop: self.column(count)?,
                })
            } else {
                None
            },
        };
        // `largest` rounds up to a power of two, so a valid index column may reach twice the number of locations.
        (run.locations.largest() <= 2 * locations as u64).then_some((run, count))
    }

    fn optional_column(&mut self, is_present: bool, count: usize) -> Option<Option<Column<'a>>> {
        Some(if is_present {
            Some(self.column(count)?)
        } else {
            None
        })
    }

    fn column(&mut self, count: usize) -> Option<Column<'a>> {
        let width = u32::from(self.byte()?);
        let base = self.number()?;
        let length = (count * width as usize).div_ceil(8);
        if width > MAX_PACKED_WIDTH && width != 64 || self.0.len() < length + PADDING {
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
    let min = numbers.clone().min().unwrap_or(u64::MAX);
    let max = numbers.clone().max().unwrap_or(0);
    let width = u64::BITS - max.saturating_sub(min).leading_zeros();
    if width > MAX_PACKED_WIDTH {
        bytes.push(64);
        bytes.push(0);
        numbers.for_each(|number| bytes.extend(number.to_le_bytes()));
        return;
    }
    bytes.push(width as u8);
    varint(bytes, min);
    let mut word = 0_u64;
    let mut bits = 0;
    for number in numbers {
        word |= (number - min) << bits;
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

#[cfg(test)]
mod tests;
