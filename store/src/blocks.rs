//! Events in blocks, to be counted: what is counted of the events of a minute, in some six bytes for each.
//!
//! A row of `event_data` says everything of one event; to count a day of them row by row takes SQLite ten seconds and more. So what events can be
//! grouped by is also kept as columns of bits: read as numbers, a day takes a fraction of a second. A block belongs to one minute and to the transaction
//! of its events, so that both never disagree. Transactions are short: their small blocks are joined as they become many, and when the minute has passed.
//!
//! # Format
//!
//! The version; the places, each once: node, interface and queue; then the classes, each once: kind, metric, rule and drop reason, which columns there are,
//! and how many events. Of each class: how many events there are in which second of the minute, and in that order their columns: places by
//! their position, flows, and if there are any paths, values, and first latencies. Numbers are varints, columns have as many bits for each value as the largest needs.

use std::collections::HashMap;
use std::collections::btree_map::{BTreeMap, Entry};
use std::hash::{Hash, Hasher};

use rusqlite::{Connection, OptionalExtension as _, Row as SqlRow, params};

use crate::hasher::Seeded;

/// Where an event happened.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Place {
    pub(crate) node: Option<u32>,
    pub(crate) interface: Option<u32>,
    pub(crate) queue: Option<u8>,
}

/// What an event is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub(crate) struct Class {
    /// The kind, by its place among all.
    pub(crate) kind: u8,
    /// The metric, by its number.
    pub(crate) metric: Option<u8>,
    /// The rule, by its number in the file; 0: none.
    pub(crate) rule: u32,
    pub(crate) reason: Option<u8>,
}

/// An event, as far as it is counted. Flow and path are numbers of the file; 0: none.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Counted {
    pub(crate) class: Class,
    pub(crate) place: Place,
    pub(crate) flow: u32,
    pub(crate) path: u32,
    pub(crate) values: Values,
}

/// The first latencies of a new flow.
type First = (Option<u64>, Option<u64>);

/// What was measured.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub(crate) struct Values {
    pub(crate) value: Option<u64>,
    /// Of a new flow: its first flow latency, and the largest of its first hop latencies.
    pub(crate) first: Option<First>,
}

/// The blocks of an open transaction, and what is known of those that are stored.
#[derive(Default, Debug)]
pub(crate) struct Blocks {
    /// The minute where almost all events belong.
    minute: i64,
    builder: Builder,
    others: BTreeMap<i64, Builder>,
    /// Minutes of which something was stored lately.
    open: BTreeMap<i64, Stored>,
}

/// What is known of the blocks of a minute.
#[derive(Default, Debug)]
struct Stored {
    /// Those of few events.
    small: Vec<i64>,
    /// They were joined when the minute had passed.
    is_past: bool,
}

/// Events of one minute, while they are collected.
#[derive(Default, Debug)]
struct Builder {
    places: Numbered<Place>,
    /// With what their events have.
    classes: Numbered<(Class, Has)>,
    rows: Vec<Vec<Row>>,
    count: usize,
    /// Blocks that are full, with the number of their events.
    full: Vec<(usize, Vec<u8>)>,
}

#[derive(Clone, Copy, Debug)]
struct Row {
    second: u8,
    place: u32,
    flow: u32,
    path: u32,
    values: Values,
}

/// Which columns there are besides places and flows.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Has {
    paths: bool,
    values: bool,
    first: bool,
}

impl Has {
    fn of(event: &Counted) -> Self {
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

/// A stored block.
#[derive(Debug)]
pub(crate) struct Block<'a> {
    pub(crate) places: Vec<Place>,
    pub(crate) runs: Vec<Run<'a>>,
}

/// The events of one class in a block, by the second.
#[derive(Debug)]
pub(crate) struct Run<'a> {
    pub(crate) class: Class,
    /// Seconds of the minute, and how many events they have.
    pub(crate) seconds: Vec<(u8, usize)>,
    /// Positions among the places. Those of a damaged file may be as much as twice as many.
    pub(crate) places: Column<'a>,
    pub(crate) flows: Column<'a>,
    /// `None`: they have none.
    pub(crate) paths: Option<Column<'a>>,
    values: Option<Column<'a>>,
    /// Each with 1 added; 0: none.
    first: Option<(Column<'a>, Column<'a>)>,
}

impl Run<'_> {
    /// The values of an event.
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
    /// With [`PADDING`] behind the last number.
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

impl Hash for Place {
    #[inline]
    fn hash<H: Hasher>(&self, state: &mut H) {
        let more = |part: Option<u32>| part.map_or(0, |part| u64::from(part) + 1);
        state.write_u64(more(self.node) | more(self.queue.map(u32::from)) << 40);
        state.write_u64(more(self.interface));
    }
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
        (minute, second): (i64, u8),
        event: &Counted,
    ) -> rusqlite::Result<()> {
        if minute != self.minute {
            self.turn_to(conn, minute)?;
        }
        self.builder.push(second, event);
        Ok(())
    }

    #[cold]
    fn turn_to(&mut self, conn: &Connection, minute: i64) -> rusqlite::Result<()> {
        if self.others.len() >= MOST_MINUTES {
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
        while self.open.len() > MOST_MINUTES {
            self.open.pop_first();
        }
        // Late events of the minute before are still to come.
        let is_past = |minute: i64| newest.is_some_and(|newest| minute < newest - MINUTE);
        for (minute, stored) in &mut self.open {
            if is_past(*minute) && !stored.is_past {
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
                small: small_ones(conn, minute)?,
                is_past: false,
            }),
        };
        // It has more: that it had passed was the word of an event of the future, or these are late.
        stored.is_past = false;
        match stored.small.len() >= MOST_SMALL {
            true => stored.join(conn, minute, builder),
            false => {
                stored.small.extend(insert(conn, minute, builder)?);
                Ok(())
            }
        }
    }
}

impl Stored {
    /// Joins the small blocks with new events.
    fn join(&mut self, conn: &Connection, minute: i64, mut builder: Builder) -> rusqlite::Result<()> {
        take_out(conn, &self.small, &mut builder)?;
        self.small = insert(conn, minute, builder)?;
        Ok(())
    }
}

fn small_ones(conn: &Connection, minute: i64) -> rusqlite::Result<Vec<i64>> {
    let mut select =
        conn.prepare_cached("SELECT id FROM block_data WHERE id >= ?1 AND id < ?2 AND count < ?3")?;
    let ids = select.query_map([first_id(minute), end_id(minute), SMALL as i64], |row| row.get(0))?;
    ids.collect()
}

/// Adds the events of stored blocks, and deletes those. One that cannot be read stays: readers then count the rows of its events.
fn take_out(conn: &Connection, blocks: &[i64], builder: &mut Builder) -> rusqlite::Result<()> {
    let mut select = conn.prepare_cached("SELECT events FROM block_data WHERE id = ?1")?;
    let mut delete = conn.prepare_cached("DELETE FROM block_data WHERE id = ?1")?;
    for id in blocks {
        let bytes = |row: &SqlRow<'_>| Ok(row.get_ref(0)?.as_blob().unwrap_or_default().to_owned());
        let Some(bytes) = select.query_row([id], bytes).optional()? else {
            continue;
        };
        if let Some(block) = Block::read(&bytes) {
            builder.add(&block);
            delete.execute([id])?;
        }
    }
    Ok(())
}

/// Stores blocks. Returns the small ones.
fn insert(conn: &Connection, minute: i64, mut builder: Builder) -> rusqlite::Result<Vec<i64>> {
    builder.close();
    let (from, to) = (first_id(minute), end_id(minute));
    let mut select = conn.prepare_cached("SELECT max(id) FROM block_data WHERE id >= ?1 AND id < ?2")?;
    let last: Option<i64> = select.query_row([from, to], |row| row.get(0))?;
    let mut insert = conn.prepare_cached("INSERT INTO block_data VALUES (?1, ?2, ?3)")?;
    let mut small = Vec::new();
    for (id, (count, block)) in (last.map_or(from, |last| last + 1)..).zip(&builder.full) {
        insert.execute(params![id, *count as i64, block])?;
        if *count < SMALL {
            small.push(id);
        }
    }
    Ok(small)
}

/// The number of the first block of a minute.
pub(crate) fn first_id(minute: i64) -> i64 {
    minute.div_euclid(MINUTE) << ID_BITS
}

/// The number behind those of a minute's blocks; the next minute may be later than any time that there is.
fn end_id(minute: i64) -> i64 {
    first_id(minute) + (1 << ID_BITS)
}

/// The minute of a block.
pub(crate) fn minute_of(id: i64) -> i64 {
    (id >> ID_BITS) * MINUTE
}

impl Builder {
    fn is_empty(&self) -> bool {
        self.count == 0 && self.full.is_empty()
    }

    #[inline]
    fn push(&mut self, second: u8, event: &Counted) {
        let class = self.classes.position((event.class, Has::of(event))) as usize;
        let place = self.places.position(event.place);
        if class == self.rows.len() {
            self.rows.push(Vec::new());
        }
        self.rows[class].push(Row {
            second,
            place,
            flow: event.flow,
            path: event.path,
            values: event.values,
        });
        self.count += 1;
        if self.count == MOST_ROWS {
            self.close();
        }
    }

    /// Adds the events of a block.
    fn add(&mut self, block: &Block<'_>) {
        for run in &block.runs {
            let mut i = 0;
            for &(second, count) in &run.seconds {
                for _ in 0..count {
                    let place = block
                        .places
                        .get(run.places.get(i) as usize)
                        .copied()
                        .unwrap_or_default();
                    let path = run.paths.map_or(0, |paths| paths.get(i) as u32);
                    let flow = run.flows.get(i) as u32;
                    let values = run.values(i);
                    self.push(
                        second,
                        &Counted {
                            class: run.class,
                            place,
                            flow,
                            path,
                            values,
                        },
                    );
                    i += 1;
                }
            }
        }
    }

    /// Ends the block, if there is something in it.
    fn close(&mut self) {
        if self.count == 0 {
            return;
        }
        let mut bytes = Vec::with_capacity(self.count * 4);
        bytes.push(VERSION);
        varint(&mut bytes, self.places.values.len() as u64);
        for place in &self.places.values {
            varint(&mut bytes, place.node.map_or(0, |node| u64::from(node) + 1));
            varint(
                &mut bytes,
                place.interface.map_or(0, |interface| u64::from(interface) + 1),
            );
            varint(&mut bytes, place.queue.map_or(0, |queue| u64::from(queue) + 1));
        }
        varint(&mut bytes, self.classes.values.len() as u64);
        for ((class, has), rows) in self.classes.values.iter().zip(&mut self.rows) {
            bytes.push(class.kind);
            bytes.push(class.metric.map_or(0, |metric| metric.saturating_add(1)));
            varint(&mut bytes, class.rule.into());
            varint(&mut bytes, class.reason.map_or(0, |reason| u64::from(reason) + 1));
            bytes.push(u8::from(has.paths) | u8::from(has.values) << 1 | u8::from(has.first) << 2);
            // Almost always they are in order: then it takes one look at each.
            rows.sort_by_key(|row| row.second);
            varint(&mut bytes, rows.len() as u64);
            let seconds = rows.chunk_by(|one, other| one.second == other.second);
            varint(&mut bytes, seconds.clone().count() as u64);
            for second in seconds {
                bytes.push(second[0].second);
                varint(&mut bytes, second.len() as u64);
            }
            pack(&mut bytes, rows.iter().map(|row| row.place.into()));
            pack(&mut bytes, rows.iter().map(|row| row.flow.into()));
            if has.paths {
                pack(&mut bytes, rows.iter().map(|row| row.path.into()));
            }
            if has.values {
                pack(&mut bytes, rows.iter().map(|row| row.values.value.unwrap_or(0)));
            }
            if has.first {
                let first = |of: fn(&First) -> Option<u64>| {
                    rows.iter().map(move |row| {
                        row.values
                            .first
                            .as_ref()
                            .and_then(of)
                            .map_or(0, |latency| latency.saturating_add(1))
                    })
                };
                pack(&mut bytes, first(|first| first.0));
                pack(&mut bytes, first(|first| first.1));
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

impl<'a> Block<'a> {
    /// Reads a block as it is stored. `None`: it is damaged, or of another format.
    pub(crate) fn read(bytes: &'a [u8]) -> Option<Self> {
        let mut rest = Rest(bytes);
        if rest.byte()? != VERSION {
            return None;
        }
        let count = rest.count()?;
        let mut places = Vec::with_capacity(count);
        for _ in 0..count {
            places.push(Place {
                node: rest.optional()?,
                interface: rest.optional()?,
                queue: rest.optional()?,
            });
        }
        let classes = rest.count()?;
        let mut runs = Vec::with_capacity(classes.min(64));
        let mut left = MOST_ROWS;
        for _ in 0..classes {
            let (run, events) = rest.run(places.len())?;
            left = left.checked_sub(events)?;
            runs.push(run);
        }
        (rest.0.len() == PADDING).then_some(Self { places, runs })
    }
}

impl Column<'_> {
    /// The number at a position, which is one of the column's.
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

    /// No number of it is larger.
    pub(crate) fn largest(&self) -> u64 {
        self.base.saturating_add(self.mask())
    }

    #[inline]
    fn mask(&self) -> u64 {
        u64::MAX >> (64 - self.width).min(63) & if self.width == 0 { 0 } else { u64::MAX }
    }
}

/// What is left of a block.
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

    /// Of things of which a block has no more than it may have events.
    fn count(&mut self) -> Option<usize> {
        usize::try_from(self.number()?)
            .ok()
            .filter(|count| *count <= MOST_ROWS)
    }

    fn optional<T: TryFrom<u64>>(&mut self) -> Option<Option<T>> {
        match self.number()? {
            0 => Some(None),
            more => T::try_from(more - 1).ok().map(Some),
        }
    }

    /// The events of a class, and how many they are.
    fn run(&mut self, places: usize) -> Option<(Run<'a>, usize)> {
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
            places: self.column(count)?,
            flows: self.column(count)?,
            paths: if has & 1 != 0 {
                Some(self.column(count)?)
            } else {
                None
            },
            values: if has & 2 != 0 {
                Some(self.column(count)?)
            } else {
                None
            },
            first: if has & 4 != 0 {
                Some((self.column(count)?, self.column(count)?))
            } else {
                None
            },
        };
        // A column has at most one bit more than its largest number needs.
        (run.places.largest() <= 2 * places as u64).then_some((run, count))
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
    let (least, most) = numbers.clone().fold((u64::MAX, 0), |(least, most), one| {
        (least.min(one), most.max(one))
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
    let (mut word, mut bits) = (0_u64, 0);
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
pub(crate) const MOST_ROWS: usize = 16_384;
/// A block of fewer events is joined with others.
const SMALL: usize = 8_192;
/// Small blocks of a minute.
const MOST_SMALL: usize = 15;
/// Minutes of a transaction, and minutes with small blocks, that are kept in mind.
const MOST_MINUTES: usize = 64;
/// Bits of a number that may begin in the middle of a byte.
const WIDEST: u32 = 56;
/// Bytes behind a column, so that each number is read as a part of eight bytes.
const PADDING: usize = 8;
/// Bits of a block's number that count the blocks of a minute.
const ID_BITS: u32 = 24;
const MINUTE: i64 = 60_000_000_000;

#[cfg(test)]
mod tests;
