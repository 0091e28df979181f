//! Counts events from columnar blocks (module `blocks`), by the parts that a query needs.
//!
//! Class and values of an event select a [`ClassCounts`]. If at most one of flow, location and path is needed, a dense array
//! indexed by that part's ID counts the events; with two or more, a hash map by [`Key`] does. A filter on values is constant
//! between its bounds, so values are replaced by the next lower bound, which keeps the number of distinct groups small.

use std::collections::HashMap;
use std::hash::{Hash, Hasher};
use std::ops::Range;

use collector::event::Nanos;
use detect::Metric;
use rusqlite::params;

use super::names::Names;
use super::{Budget, ColumnReader, ColumnSpan, EventGroup, EventParts, MAX_CACHED, Read, Tally};
use crate::blocks::{
    Block, Class, Column, FirstLatencies, Location, Run, Values, block_minute, first_block_id,
};
use crate::hasher::{FastMap, Seeded};
use crate::rows::int;
use crate::spans::{MINUTE, SECOND, SpanSum};

const UNKNOWN: u32 = u32::MAX;
/// Marks a flow that the filter excludes; no file has this many flows.
const EXCLUDED: u32 = u32::MAX - 1;
/// Maximum number of array elements (64 MB), and of flows with a cached representative.
const MAX_ELEMENTS: usize = 8_000_000;
/// Cost of counting an event in the map, relative to an array.
const MAP_COST: usize = 8;
/// Length of the list of recently used values.
const RECENT_VALUES: usize = 8;

/// Reader of the blocks in one file.
pub(super) struct CountReader<'a> {
    names: Names<'a>,
    parts: EventParts,
    /// Values at which the filter's result may change, by metric, ascending.
    bounds: [Vec<u64>; Metric::COUNT],
    /// Indexes into `classes`, by the needed parts of the class and the representative values.
    class_indexes: FastMap<(Class, Values), usize>,
    classes: Vec<ClassCounts>,
    /// The locations of counted events.
    locations: Vec<Location>,
    location_numbers: HashMap<Location, u32, Seeded>,
    /// True for locations that the filter does not exclude, by location number.
    selected_locations: Vec<bool>,
    /// By flow ID: the representative flow of its class of indistinguishable flows, [`UNKNOWN`] or [`EXCLUDED`].
    flows: Vec<u32>,
    /// The representative flow by the tally's number of the class.
    flow_classes: FastMap<u32, u32>,
    /// Counts of the current column that are not in an array.
    counts: FastMap<Key, u32>,
    /// The tally's numbers of these keys.
    numbers: FastMap<Key, u32>,
    /// Array elements that may still be allocated.
    room: usize,
    max_locations: usize,
    /// True if there are more locations than `max_locations`.
    is_full: bool,
    /// Cost of new locations that was not charged to the budget yet.
    uncharged_cost: usize,
}

/// The locations of a block, with their numbers in the reader.
struct BlockLocations<'a> {
    locations: &'a [Location],
    /// [`UNKNOWN`] until a number is needed.
    numbers: Vec<u32>,
}

/// Event counts of one class with one set of values.
struct ClassCounts {
    class: Class,
    values: Values,
    is_selected: bool,
    /// Counts in the current column, by the ID of the one needed part.
    counts: Vec<u32>,
    /// Indexes of the counts that are not 0.
    nonzero: Vec<u32>,
    /// The tally's numbers, or [`UNKNOWN`] if not requested yet.
    numbers: Vec<u32>,
}

/// Key of an event in the map; 0 for a part that is absent or not needed.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Key {
    class: u32,
    location: u32,
    flow: u32,
    path: u32,
}

impl Hash for Key {
    #[inline]
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(u64::from(self.class) << 32 | u64::from(self.location));
        state.write_u64(u64::from(self.flow) << 32 | u64::from(self.path));
    }
}

impl<'a> CountReader<'a> {
    pub(super) fn new(
        names: Names<'a>,
        parts: EventParts,
        bounds: [Vec<u64>; Metric::COUNT],
        max_locations: usize,
    ) -> Self {
        Self {
            names,
            parts,
            bounds,
            class_indexes: FastMap::default(),
            classes: Vec::new(),
            locations: Vec::new(),
            location_numbers: HashMap::default(),
            selected_locations: Vec::new(),
            flows: Vec::new(),
            flow_classes: FastMap::default(),
            counts: FastMap::default(),
            numbers: FastMap::default(),
            room: MAX_ELEMENTS,
            max_locations,
            is_full: false,
            uncharged_cost: 0,
        }
    }

    /// Counts the events in some seconds of a block. Returns the cost in rows, or `None` if there are no events.
    fn block(
        &mut self,
        block: &Block<'_>,
        seconds: &Range<u8>,
        tally: &mut dyn Tally,
    ) -> rusqlite::Result<Option<usize>> {
        let count = if self.parts.location {
            block.locations.len()
        } else {
            0
        };
        let mut locations = BlockLocations {
            locations: &block.locations,
            numbers: vec![UNKNOWN; count],
        };
        let mut cost = None;
        for run in &block.runs {
            let rows = rows_before(run, seconds.start)..rows_before(run, seconds.end);
            if rows.is_empty() {
                continue;
            }
            let cost: &mut usize = cost.get_or_insert(0);
            if self.parts.values {
                *cost += self.run_by_value(run, rows, &mut locations, tally)?;
            } else {
                let class = self.class(run.class, Values::default(), tally)?;
                if self.classes[class].is_selected {
                    *cost += self.run(run, class, rows, &mut locations, tally)?;
                }
            }
            *cost += std::mem::take(&mut self.uncharged_cost);
            if self.is_full {
                // The column is incomplete; an infinite cost ends the scan.
                return Ok(Some(usize::MAX));
            }
        }
        Ok(cost)
    }

    /// Counts some events of a class, in its array if possible. Returns the cost.
    fn run(
        &mut self,
        run: &Run<'_>,
        class: usize,
        rows: Range<usize>,
        locations: &mut BlockLocations<'_>,
        tally: &mut dyn Tally,
    ) -> rusqlite::Result<usize> {
        let count = rows.len();
        let paths = if self.parts.path { run.paths } else { None };
        let is_counted = match (self.parts.flow, self.parts.location, paths) {
            (false, false, None) => self.classes[class].add(0, count, &mut self.room),
            (true, false, None) => self.classes[class].column(&run.flows, rows.clone(), &mut self.room),
            (false, false, Some(paths)) => self.classes[class].column(&paths, rows.clone(), &mut self.room),
            (false, true, None) => {
                let counts = self.count_locations(run, rows.clone(), locations, tally);
                let counted = &mut self.classes[class];
                let last = counts.iter().map(|(location, _)| *location).max().unwrap_or(0);
                let fits = counted.reserve(last, &mut self.room);
                if fits {
                    for (location, count) in counts {
                        counted.add(location, count, &mut self.room);
                    }
                }
                fits
            }
            _ => false,
        };
        if is_counted {
            return Ok(count);
        }
        for i in rows {
            self.event(run, class, i, locations, tally)?;
            if self.is_full {
                break;
            }
        }
        Ok(count * MAP_COST)
    }

    /// Returns the numbers of the locations that have events, with their counts.
    fn count_locations(
        &mut self,
        run: &Run<'_>,
        rows: Range<usize>,
        locations: &mut BlockLocations<'_>,
        tally: &mut dyn Tally,
    ) -> Vec<(usize, usize)> {
        let mut counts = vec![0_usize; usize::try_from(run.locations.largest()).unwrap_or(0) + 1];
        rows.for_each(|i| counts[run.locations.get(i) as usize] += 1);
        let mut location_counts = Vec::new();
        for (position, count) in counts.into_iter().enumerate() {
            if count > 0 {
                let Some(location) = self.location(locations, position, tally) else {
                    break;
                };
                location_counts.push((location as usize, count));
            }
        }
        location_counts
    }

    /// Counts some events of a class by their values. Returns the cost.
    fn run_by_value(
        &mut self,
        run: &Run<'_>,
        rows: Range<usize>,
        locations: &mut BlockLocations<'_>,
        tally: &mut dyn Tally,
    ) -> rusqlite::Result<usize> {
        let count = rows.len();
        let mut map_events = 0;
        let mut known: Vec<(Values, usize)> = Vec::new();
        for i in rows {
            let values = self.representative(run.class.metric, run.values(i));
            let class = match known.iter().find(|(known, _)| *known == values) {
                Some((_, class)) => *class,
                None => {
                    let class = self.class(run.class, values, tally)?;
                    // A short list of recent values is faster than the map for the few values that are common.
                    known.truncate(RECENT_VALUES - 1);
                    known.push((values, class));
                    class
                }
            };
            if !self.classes[class].is_selected {
                continue;
            }
            let number = match (self.parts.flow, self.parts.location, self.parts.path) {
                (false, false, false) => Some(0),
                (true, false, false) => Some(run.flows.get(i) as usize),
                (false, true, false) => self
                    .location(locations, run.locations.get(i) as usize, tally)
                    .map(|location| location as usize),
                _ => None,
            };
            if self.is_full {
                break;
            }
            let counted = &mut self.classes[class];
            if !number.is_some_and(|number| counted.add(number, 1, &mut self.room)) {
                self.event(run, class, i, locations, tally)?;
                map_events += 1;
            }
        }
        Ok(count * 2 + map_events * MAP_COST)
    }

    /// Returns representative values for which the filter has the same result as for `values`.
    fn representative(&self, metric: Option<u8>, values: Values) -> Values {
        let metric = metric.map_or(usize::MAX, usize::from);
        Values {
            value: values.value.map(|value| self.bound_below(metric, value)),
            first: values.first.map(|FirstLatencies { flow, hop }| FirstLatencies {
                flow: flow.map(|value| self.bound_below(Metric::FlowLatency as usize, value)),
                hop: hop.map(|value| self.bound_below(Metric::HopLatency as usize, value)),
            }),
        }
    }

    /// Returns the largest bound of a metric up to the value, or 0.
    fn bound_below(&self, metric: usize, value: u64) -> u64 {
        let bounds = self.bounds.get(metric).map_or(&[][..], Vec::as_slice);
        let after = bounds.partition_point(|bound| *bound <= value);
        after.checked_sub(1).map_or(0, |i| bounds[i])
    }

    /// Counts an event in the map.
    #[inline]
    fn event(
        &mut self,
        run: &Run<'_>,
        class: usize,
        i: usize,
        locations: &mut BlockLocations<'_>,
        tally: &mut dyn Tally,
    ) -> rusqlite::Result<()> {
        let mut flow = 0;
        if self.parts.flow {
            flow = self.flow(run.flows.get(i), tally)?;
        }
        if flow == EXCLUDED {
            return Ok(());
        }
        let mut location = 0;
        if self.parts.location {
            let Some(number) = self.location(locations, run.locations.get(i) as usize, tally) else {
                return Ok(());
            };
            location = number;
        }
        if self
            .selected_locations
            .get(location as usize)
            .copied()
            .unwrap_or(true)
        {
            let paths = if self.parts.path { run.paths } else { None };
            let key = Key {
                class: class as u32,
                location,
                flow,
                path: paths.map_or(0, |paths| paths.get(i) as u32),
            };
            *self.counts.entry(key).or_default() += 1;
        }
        Ok(())
    }

    /// Returns the index of a class reduced to its needed parts, and adds it if it is new.
    fn class(&mut self, class: Class, values: Values, tally: &mut dyn Tally) -> rusqlite::Result<usize> {
        let mut needed = class;
        if self.parts.any_kind {
            needed.kind = u8::MAX;
        }
        if !self.parts.metric && !self.parts.values {
            needed.metric = None;
        }
        if !self.parts.cause {
            needed.rule = 0;
            needed.reason = None;
        }
        if let Some(index) = self.class_indexes.get(&(needed, values)) {
            return Ok(*index);
        }
        let index = self.classes.len();
        self.class_indexes.insert((needed, values), index);
        let group = self.names.group(&needed, values, Location::default(), 0, 0)?;
        self.classes.push(ClassCounts {
            class: needed,
            values,
            is_selected: !tally.excludes(&group),
            counts: Vec::new(),
            nonzero: Vec::new(),
            numbers: Vec::new(),
        });
        Ok(index)
    }

    /// Returns the number of a location by its position in a block, or `None` if the limit is reached.
    #[inline]
    fn location(
        &mut self,
        locations: &mut BlockLocations<'_>,
        position: usize,
        tally: &mut dyn Tally,
    ) -> Option<u32> {
        match locations.numbers.get(position) {
            Some(number) if *number != UNKNOWN => Some(*number),
            _ => self.add_location(locations, position, tally),
        }
    }

    #[cold]
    fn add_location(
        &mut self,
        locations: &mut BlockLocations<'_>,
        position: usize,
        tally: &mut dyn Tally,
    ) -> Option<u32> {
        let location = locations.locations.get(position).copied().unwrap_or_default();
        let number = match self.location_numbers.get(&location) {
            Some(number) => *number,
            None if self.locations.len() >= self.max_locations => {
                self.is_full = true;
                return None;
            }
            None => {
                let number = self.locations.len() as u32;
                self.location_numbers.insert(location, number);
                self.locations.push(location);
                let group = EventGroup {
                    node: location.node,
                    interface: location.interface,
                    queue: location.queue,
                    ..EventGroup::default()
                };
                self.selected_locations.push(!tally.excludes(&group));
                self.uncharged_cost += MAP_COST;
                number
            }
        };
        if let Some(known) = locations.numbers.get_mut(position) {
            *known = number;
        }
        Some(number)
    }

    /// Returns the representative of a flow, or [`EXCLUDED`] if the filter excludes it.
    #[inline]
    fn flow(&mut self, flow: u64, tally: &mut dyn Tally) -> rusqlite::Result<u32> {
        let index = usize::try_from(flow).unwrap_or(usize::MAX);
        match self.flows.get(index) {
            Some(known) if *known != UNKNOWN => Ok(*known),
            _ if index >= MAX_ELEMENTS => Ok(u32::try_from(flow).unwrap_or(0)),
            _ => self.add_flow(index, tally),
        }
    }

    #[cold]
    fn add_flow(&mut self, number: usize, tally: &mut dyn Tally) -> rusqlite::Result<u32> {
        if self.flows.len() <= number {
            self.flows.resize(number + 1, UNKNOWN);
        }
        let flow = self.names.flow(number as i64)?;
        let class = flow.and_then(|flow| tally.flow_class(&flow));
        let group = EventGroup {
            flow,
            ..EventGroup::default()
        };
        self.flows[number] = match class {
            _ if tally.excludes(&group) => EXCLUDED,
            Some(class) => *self.flow_classes.entry(class).or_insert(number as u32),
            None => number as u32,
        };
        Ok(self.flows[number])
    }

    /// Adds the counts of a column to the tally and resets them. Returns the cost.
    fn add_up(&mut self, column: usize, tally: &mut dyn Tally) -> rusqlite::Result<usize> {
        let mut cost = 0;
        for counted in &mut self.classes {
            for i in counted.nonzero.drain(..) {
                let count = std::mem::take(&mut counted.counts[i as usize]);
                let known = &mut counted.numbers[i as usize];
                if *known == UNKNOWN {
                    // The array index is the one needed part.
                    let mut location = Location::default();
                    let mut flow = 0;
                    let mut path = 0;
                    if self.parts.flow {
                        flow = i64::from(i);
                    } else if self.parts.location {
                        location = self.locations.get(i as usize).copied().unwrap_or_default();
                    } else {
                        path = i64::from(i);
                    }
                    let group = self
                        .names
                        .group(&counted.class, counted.values, location, flow, path)?;
                    *known = tally.event(&group);
                }
                tally.add(*known, column, &SpanSum::counted(count.into()));
            }
        }
        for (key, count) in self.counts.drain() {
            let number = match self.numbers.get(&key) {
                Some(number) => *number,
                None => {
                    let ClassCounts { class, values, .. } = &self.classes[key.class as usize];
                    let mut location = Location::default();
                    if self.parts.location {
                        location = self
                            .locations
                            .get(key.location as usize)
                            .copied()
                            .unwrap_or_default();
                    }
                    let group =
                        self.names
                            .group(class, *values, location, key.flow.into(), key.path.into())?;
                    let number = tally.event(&group);
                    cost += MAP_COST;
                    if self.numbers.len() < MAX_CACHED {
                        self.numbers.insert(key, number);
                    }
                    number
                }
            };
            tally.add(number, column, &SpanSum::counted(count.into()));
        }
        Ok(cost)
    }
}

/// Returns the number of events of a run before this second.
fn rows_before(run: &Run<'_>, end: u8) -> usize {
    run.seconds
        .iter()
        .take_while(|(second, _)| *second < end)
        .map(|(_, count)| count)
        .sum()
}

/// Returns the second of the minute at `ts`, clamped to 0..=60.
fn second_of(minute: Nanos, ts: Nanos) -> u8 {
    (ts.saturating_sub(minute).min(MINUTE) / SECOND) as u8
}

impl ColumnReader for CountReader<'_> {
    fn column(
        &mut self,
        column: ColumnSpan,
        budget: &mut Budget,
        tally: &mut dyn Tally,
    ) -> rusqlite::Result<Read> {
        let conn = self.names.conn;
        let mut select =
            conn.prepare_cached("SELECT id, events FROM f0.block_data WHERE id >= ?1 AND id < ?2")?;
        let minute = column.from - column.from % MINUTE;
        let end = column.to.div_ceil(MINUTE).saturating_mul(MINUTE);
        let mut rows = select.query(params![first_block_id(int(minute)), first_block_id(int(end))])?;
        let mut is_complete = true;
        while let Some(row) = rows.next()? {
            let minute = u64::try_from(block_minute(row.get(0)?)).unwrap_or(0);
            let seconds = second_of(minute, column.from)..second_of(minute, column.to);
            let Some(block) = row.get_ref(1)?.as_blob().ok().and_then(Block::read) else {
                return Ok(Read::Damaged);
            };
            if let Some(cost) = self.block(&block, &seconds, tally)? {
                tally.seen(column.index);
                is_complete &= budget.spend(cost);
            }
            if !is_complete {
                break;
            }
        }
        drop(rows);
        let cost = self.add_up(column.index, tally)?;
        Ok(Read::from_whole(is_complete && budget.spend(cost)))
    }
}

impl ClassCounts {
    /// Extends the arrays to index `most`. Returns false if they would be too large.
    fn reserve(&mut self, most: usize, room: &mut usize) -> bool {
        let more = most.saturating_add(1).saturating_sub(self.counts.len());
        if more > *room {
            return false;
        }
        if more > 0 {
            *room -= more;
            self.counts.resize(most + 1, 0);
            self.numbers.resize(most + 1, UNKNOWN);
        }
        true
    }

    /// Adds `count` at index `number`. Returns false if the arrays would be too large.
    fn add(&mut self, number: usize, count: usize, room: &mut usize) -> bool {
        if !self.reserve(number, room) {
            return false;
        }
        if self.counts[number] == 0 {
            self.nonzero.push(number as u32);
        }
        self.counts[number] += count as u32;
        true
    }

    /// Counts each number of a column in some rows. Returns false if the arrays would be too large.
    fn column(&mut self, numbers: &Column<'_>, rows: Range<usize>, room: &mut usize) -> bool {
        if !self.reserve(usize::try_from(numbers.largest()).unwrap_or(usize::MAX), room) {
            return false;
        }
        for i in rows {
            let number = numbers.get(i) as usize;
            let count = &mut self.counts[number];
            if *count == 0 {
                self.nonzero.push(number as u32);
            }
            *count += 1;
        }
        true
    }
}
