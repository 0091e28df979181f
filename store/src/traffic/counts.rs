//! Events counted in blocks: see the module `blocks`.

use std::collections::HashMap;
use std::ops::Range;

use collector::event::Nanos;
use detect::Metric;
use rusqlite::params;

use super::names::Names;
use super::{Budget, ColumnReader, EventGroup, EventParts, MOST_KNOWN, NO_VALUES, Read, Tally};
use crate::blocks::{Block, Class, Column, Place, Run, Values, first_id, minute_of};
use crate::hasher::{FastMap, Seeded};
use crate::spans::{MINUTE, SECOND, SpanSum};
use crate::taken::int;

/// Reads the blocks of one file.
///
/// What is asked of events is a class (what they are) and at most three more: flow, place and path. With one of these, events are counted in an
/// array by its number; with more, in a map.
pub(super) struct CountReader<'a> {
    names: Names<'a>,
    parts: EventParts,
    /// Where the answer about values may change.
    bounds: [Vec<u64>; Metric::COUNT],
    /// What is left of classes when what is not asked is taken away, with values that stand for others.
    classes: FastMap<(Class, Values), usize>,
    of_class: Vec<OfClass>,
    /// Places where something is counted.
    places: Vec<Place>,
    place_numbers: HashMap<Place, u32, Seeded>,
    /// Whether events there can be wanted.
    wanted_places: Vec<bool>,
    /// Of each flow: one that is the same, `UNKNOWN`, or `UNWANTED`.
    flows: Vec<u32>,
    /// Of flows that are the same by the tally's number of them: the first.
    alike: FastMap<u32, u32>,
    /// Counts of the present column of what is not in an array.
    counts: FastMap<Key, u32>,
    numbers: FastMap<Key, u32>,
    /// How many more elements of arrays there is room for.
    room: usize,
    most_places: usize,
    /// There are more places than that.
    is_full: bool,
    /// What new places cost.
    unpaid: usize,
}

/// The places of a block, with their numbers as far as they were needed.
struct BlockPlaces<'a> {
    places: &'a [Place],
    /// `UNKNOWN`: not yet.
    numbers: Vec<u32>,
}

/// The events of one class.
struct OfClass {
    class: Class,
    values: Values,
    is_wanted: bool,
    /// Counts of the present column.
    counts: Vec<u32>,
    /// Which of them are not 0.
    touched: Vec<u32>,
    /// The numbers that the tally gave; `UNKNOWN`: not yet.
    numbers: Vec<u32>,
}

/// Class, place, flow and path; 0: not asked, or none.
type Key = (u64, u64);

impl<'a> CountReader<'a> {
    pub(super) fn new(
        names: Names<'a>,
        parts: EventParts,
        bounds: [Vec<u64>; Metric::COUNT],
        most_places: usize,
    ) -> Self {
        Self {
            names,
            parts,
            bounds,
            classes: FastMap::default(),
            of_class: Vec::new(),
            places: Vec::new(),
            place_numbers: HashMap::default(),
            wanted_places: Vec::new(),
            flows: Vec::new(),
            alike: FastMap::default(),
            counts: FastMap::default(),
            numbers: FastMap::default(),
            room: MOST_ELEMENTS,
            most_places,
            is_full: false,
            unpaid: 0,
        }
    }

    /// Counts the events of some seconds of a block. Returns what it cost.
    fn block(
        &mut self,
        block: &Block<'_>,
        seconds: &Range<u8>,
        tally: &mut dyn Tally,
    ) -> rusqlite::Result<Option<usize>> {
        let count = if self.parts.place { block.places.len() } else { 0 };
        let mut places = BlockPlaces {
            places: &block.places,
            numbers: vec![UNKNOWN; count],
        };
        let mut cost = None;
        for run in &block.runs {
            let before = |end: u8| -> usize {
                run.seconds
                    .iter()
                    .take_while(|(second, _)| *second < end)
                    .map(|(_, count)| count)
                    .sum()
            };
            let rows = before(seconds.start)..before(seconds.end);
            if rows.is_empty() {
                continue;
            }
            let cost: &mut usize = cost.get_or_insert(0);
            if self.parts.values {
                *cost += self.run_by_value(run, rows, &mut places, tally)?;
            } else {
                let class = self.class(run.class, Values::default(), tally)?;
                if self.of_class[class].is_wanted {
                    *cost += self.run((run, class), rows, &mut places, tally)?;
                }
            }
            *cost += std::mem::take(&mut self.unpaid);
            if self.is_full {
                // The column is not whole, and nothing before it can be counted.
                return Ok(Some(usize::MAX));
            }
        }
        Ok(cost)
    }

    /// Counts some events of a class.
    fn run(
        &mut self,
        (run, class): (&Run<'_>, usize),
        rows: Range<usize>,
        places: &mut BlockPlaces<'_>,
        tally: &mut dyn Tally,
    ) -> rusqlite::Result<usize> {
        let count = rows.len();
        let paths = run.paths.filter(|_| self.parts.path);
        let at_places = match (self.parts.flow, self.parts.place, paths) {
            (false, true, None) => self.count_places(run, rows.clone(), places, tally),
            _ => Vec::new(),
        };
        let (of_class, room) = (&mut self.of_class[class], &mut self.room);
        let is_counted = match (self.parts.flow, self.parts.place, paths) {
            (false, false, None) => of_class.add(0, count, room),
            (true, false, None) => of_class.column(&run.flows, rows.clone(), room),
            (false, false, Some(paths)) => of_class.column(&paths, rows.clone(), room),
            (false, true, None) => {
                let most = at_places.iter().map(|(place, _)| *place).max().unwrap_or(0);
                of_class.reserve(most, room)
                    && at_places.iter().fold(true, |all, (place, count)| {
                        all & of_class.add(*place, *count, room)
                    })
            }
            _ => false,
        };
        if is_counted {
            return Ok(count);
        }
        for i in rows {
            self.event((run, class), i, places, tally)?;
            if self.is_full {
                break;
            }
        }
        Ok(count * COST)
    }

    /// How many events there are at which places, by their numbers.
    fn count_places(
        &mut self,
        run: &Run<'_>,
        rows: Range<usize>,
        places: &mut BlockPlaces<'_>,
        tally: &mut dyn Tally,
    ) -> Vec<(usize, usize)> {
        let mut counts = vec![0_usize; usize::try_from(run.places.largest()).unwrap_or(0) + 1];
        rows.for_each(|i| counts[run.places.get(i) as usize] += 1);
        let there_are = counts.into_iter().enumerate().filter(|(_, count)| *count > 0);
        there_are
            .map_while(|(at, count)| Some((self.place_in(places, at, tally)? as usize, count)))
            .collect()
    }

    /// The same, of events whose values matter.
    fn run_by_value(
        &mut self,
        run: &Run<'_>,
        rows: Range<usize>,
        places: &mut BlockPlaces<'_>,
        tally: &mut dyn Tally,
    ) -> rusqlite::Result<usize> {
        let (count, mut in_map) = (rows.len(), 0);
        let mut known: Vec<(Values, usize)> = Vec::new();
        for i in rows {
            let values = self.standing_for(run.class.metric, run.values(i));
            let class = match known.iter().find(|(known, _)| *known == values) {
                Some((_, class)) => *class,
                None => {
                    let class = self.class(run.class, values, tally)?;
                    known.truncate(7);
                    known.push((values, class));
                    class
                }
            };
            if !self.of_class[class].is_wanted {
                continue;
            }
            let place = match (self.parts.flow, self.parts.place, self.parts.path) {
                (false, true, false) => self.place_in(places, run.places.get(i) as usize, tally),
                _ => None,
            };
            if self.is_full {
                break;
            }
            let Self { of_class, room, .. } = self;
            let is_counted = match (self.parts.flow, self.parts.place, self.parts.path) {
                (false, false, false) => of_class[class].add(0, 1, room),
                (true, false, false) => of_class[class].add(run.flows.get(i) as usize, 1, room),
                (false, true, false) => {
                    place.is_some_and(|place| of_class[class].add(place as usize, 1, room))
                }
                _ => false,
            };
            if !is_counted {
                self.event((run, class), i, places, tally)?;
                in_map += 1;
            }
        }
        Ok(count * 2 + in_map * COST)
    }

    /// Values about which the answer is the same.
    fn standing_for(&self, metric: Option<u8>, values: Values) -> Values {
        let of = |metric: usize, value: u64| {
            let bounds = self.bounds.get(metric).map_or(&[][..], Vec::as_slice);
            let after = bounds.partition_point(|bound| *bound <= value);
            after.checked_sub(1).map_or(0, |i| bounds[i])
        };
        let metric = metric.map_or(usize::MAX, usize::from);
        let flow = |value| of(Metric::FlowLatency as usize, value);
        let hop = |value| of(Metric::HopLatency as usize, value);
        Values {
            value: values.value.map(|value| of(metric, value)),
            first: values.first.map(|first| (first.0.map(flow), first.1.map(hop))),
        }
    }

    /// Counts an event in the map.
    #[inline]
    fn event(
        &mut self,
        (run, class): (&Run<'_>, usize),
        i: usize,
        places: &mut BlockPlaces<'_>,
        tally: &mut dyn Tally,
    ) -> rusqlite::Result<()> {
        let flow = if self.parts.flow {
            self.flow(run.flows.get(i), tally)?
        } else {
            0
        };
        if flow == UNWANTED {
            return Ok(());
        }
        let place = match self.parts.place {
            true => self.place_in(places, run.places.get(i) as usize, tally),
            false => Some(0),
        };
        let Some(place) = place else { return Ok(()) };
        if self.wanted_places.get(place as usize).copied().unwrap_or(true) {
            let path = run
                .paths
                .filter(|_| self.parts.path)
                .map_or(0, |paths| paths.get(i));
            let key = (
                (class as u64) << 32 | u64::from(place),
                u64::from(flow) << 32 | path,
            );
            *self.counts.entry(key).or_default() += 1;
        }
        Ok(())
    }

    /// The number of a class, as far as it is asked.
    fn class(&mut self, class: Class, values: Values, tally: &mut dyn Tally) -> rusqlite::Result<usize> {
        let Class {
            kind,
            metric,
            rule,
            reason,
        } = class;
        let asked = Class {
            kind: if self.parts.any_kind { u8::MAX } else { kind },
            metric: metric.filter(|_| self.parts.metric || self.parts.values),
            rule: if self.parts.cause { rule } else { 0 },
            reason: reason.filter(|_| self.parts.cause),
        };
        if let Some(number) = self.classes.get(&(asked, values)) {
            return Ok(*number);
        }
        let number = self.of_class.len();
        self.classes.insert((asked, values), number);
        let group = self.names.group((&asked, values), Place::default(), (0, 0))?;
        let is_wanted = !tally.excludes(&group);
        let (counts, touched, numbers) = Default::default();
        self.of_class.push(OfClass {
            class: asked,
            values,
            is_wanted,
            counts,
            touched,
            numbers,
        });
        Ok(number)
    }

    /// The number of a place of a block. `None`: there are too many.
    #[inline]
    fn place_in(&mut self, places: &mut BlockPlaces<'_>, at: usize, tally: &mut dyn Tally) -> Option<u32> {
        match places.numbers.get(at) {
            Some(number) if *number != UNKNOWN => Some(*number),
            _ => self.learn_place(places, at, tally),
        }
    }

    #[cold]
    fn learn_place(&mut self, places: &mut BlockPlaces<'_>, at: usize, tally: &mut dyn Tally) -> Option<u32> {
        let place = places.places.get(at).copied().unwrap_or_default();
        let number = match self.place_numbers.get(&place) {
            Some(number) => *number,
            None if self.places.len() >= self.most_places => {
                self.is_full = true;
                return None;
            }
            None => {
                let number = self.places.len() as u32;
                self.place_numbers.insert(place, number);
                self.places.push(place);
                let Place {
                    node,
                    interface,
                    queue,
                } = place;
                let group = EventGroup {
                    node,
                    interface,
                    queue,
                    ..EventGroup::default()
                };
                self.wanted_places.push(!tally.excludes(&group));
                self.unpaid += COST;
                number
            }
        };
        places
            .numbers
            .get_mut(at)
            .iter_mut()
            .for_each(|known| **known = number);
        Some(number)
    }

    /// A flow that is the same as this one.
    #[inline]
    fn flow(&mut self, flow: u64, tally: &mut dyn Tally) -> rusqlite::Result<u32> {
        let place = usize::try_from(flow).unwrap_or(usize::MAX);
        match self.flows.get(place) {
            Some(known) if *known != UNKNOWN => Ok(*known),
            _ if place >= MOST_ELEMENTS => Ok(u32::try_from(flow).unwrap_or(0)),
            _ => self.learn_flow(place, tally),
        }
    }

    #[cold]
    fn learn_flow(&mut self, number: usize, tally: &mut dyn Tally) -> rusqlite::Result<u32> {
        if self.flows.len() <= number {
            self.flows.resize(number + 1, UNKNOWN);
        }
        let flow = self.names.flow(number as i64)?;
        let alike = flow.and_then(|flow| tally.alike(&flow));
        self.flows[number] = match (
            tally.excludes(&EventGroup {
                flow,
                ..EventGroup::default()
            }),
            alike,
        ) {
            (true, _) => UNWANTED,
            (false, Some(alike)) => *self.alike.entry(alike).or_insert(number as u32),
            (false, None) => number as u32,
        };
        Ok(self.flows[number])
    }

    /// Hands over what was counted in a column.
    fn add_up(&mut self, column: usize, tally: &mut dyn Tally) -> rusqlite::Result<usize> {
        let mut cost = 0;
        let (parts, places) = (self.parts, &self.places);
        for of_class in &mut self.of_class {
            let OfClass {
                class,
                values,
                counts,
                touched,
                numbers,
                ..
            } = of_class;
            for i in touched.drain(..) {
                let count = std::mem::take(&mut counts[i as usize]);
                let known = &mut numbers[i as usize];
                if *known == UNKNOWN {
                    // Of what is asked, it is the number of the first: of more, the others are none.
                    let (is_place, is_path) = (parts.place && !parts.flow, !parts.place && !parts.flow);
                    let place = places
                        .get(i as usize)
                        .copied()
                        .filter(|_| is_place)
                        .unwrap_or_default();
                    let is = |asked| if asked { i64::from(i) } else { 0 };
                    let group = self
                        .names
                        .group((class, *values), place, (is(parts.flow), is(is_path)))?;
                    *known = tally.event(&group);
                }
                tally.add(
                    *known,
                    column,
                    &SpanSum {
                        count: count.into(),
                        ..NO_VALUES
                    },
                );
            }
        }
        for (key, count) in self.counts.drain() {
            let number = match self.numbers.get(&key) {
                Some(number) => *number,
                None => {
                    let OfClass { class, values, .. } = &self.of_class[(key.0 >> 32) as usize];
                    let place = places.get(key.0 as u32 as usize).copied().unwrap_or_default();
                    let names = (i64::from((key.1 >> 32) as u32), i64::from(key.1 as u32));
                    let group = self.names.group(
                        (class, *values),
                        if parts.place { place } else { Place::default() },
                        names,
                    )?;
                    let number = tally.event(&group);
                    cost += COST;
                    if self.numbers.len() < MOST_KNOWN {
                        self.numbers.insert(key, number);
                    }
                    number
                }
            };
            tally.add(
                number,
                column,
                &SpanSum {
                    count: count.into(),
                    ..NO_VALUES
                },
            );
        }
        Ok(cost)
    }
}

impl ColumnReader for CountReader<'_> {
    fn column(
        &mut self,
        (column, from, to): (usize, Nanos, Nanos),
        budget: &mut Budget,
        tally: &mut dyn Tally,
    ) -> rusqlite::Result<Read> {
        let conn = self.names.conn;
        let mut select =
            conn.prepare_cached("SELECT id, events FROM f0.block_data WHERE id >= ?1 AND id < ?2")?;
        let (minute, end) = (from - from % MINUTE, to.div_ceil(MINUTE).saturating_mul(MINUTE));
        let mut rows = select.query(params![first_id(int(minute)), first_id(int(end))])?;
        let mut whole = true;
        while let Some(row) = rows.next()? {
            let minute = u64::try_from(minute_of(row.get(0)?)).unwrap_or(0);
            let second = |ts: Nanos| (ts.saturating_sub(minute).min(MINUTE) / SECOND) as u8;
            let Some(block) = row.get_ref(1)?.as_blob().ok().and_then(Block::read) else {
                return Ok(Read::Damaged);
            };
            if let Some(cost) = self.block(&block, &(second(from)..second(to)), tally)? {
                tally.seen(column);
                whole &= budget.spend(cost);
            }
            if !whole {
                break;
            }
        }
        drop(rows);
        let cost = self.add_up(column, tally)?;
        Ok(Read::of(whole && budget.spend(cost)))
    }
}

impl OfClass {
    /// Makes room for numbers up to `most`. Returns whether there is.
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

    fn add(&mut self, number: usize, count: usize, room: &mut usize) -> bool {
        if !self.reserve(number, room) {
            return false;
        }
        if self.counts[number] == 0 {
            self.touched.push(number as u32);
        }
        self.counts[number] += count as u32;
        true
    }

    /// Counts each of some numbers.
    fn column(&mut self, numbers: &Column<'_>, rows: Range<usize>, room: &mut usize) -> bool {
        if !self.reserve(usize::try_from(numbers.largest()).unwrap_or(usize::MAX), room) {
            return false;
        }
        for i in rows {
            let number = numbers.get(i) as usize;
            let count = &mut self.counts[number];
            if *count == 0 {
                self.touched.push(number as u32);
            }
            *count += 1;
        }
        true
    }
}

const UNKNOWN: u32 = u32::MAX;
/// No file has so many flows.
const UNWANTED: u32 = u32::MAX - 1;
/// Counts in arrays: 64 MB with their numbers, and as many flows of which it is known whether they are wanted.
const MOST_ELEMENTS: usize = 8_000_000;
/// What it costs to count an event in a map, compared with one in an array.
const COST: usize = 8;
