//! Sums of groups, column by column: of the greatest ones, and of the others.

use std::collections::HashMap;
use std::sync::Arc;

use detect::Metric;
use filter::Facts;
use wire::FlowKey;

use super::dimension::Making;
use super::{Part, TrafficQuestion};
use crate::facts;
use crate::hasher::Seeded;
use crate::spans::{SeriesKey, SpanSum};
use crate::traffic::{Columns, Counted, EventGroup, Tally};

/// Values of a column, added up.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Sums {
    /// How many.
    pub count: u64,
    /// Their sum.
    pub sum: u64,
    /// The greatest.
    pub max: u64,
    /// How many of them have a value: reports may lack latencies.
    pub valued: u64,
}

/// A group of the answer.
pub type Group = (Vec<Part>, Vec<Option<Sums>>);

/// The answer. What a column has is `None` where nothing was stored at all, where it is not known yet, or where it was not counted.
#[derive(Clone, PartialEq, Debug)]
pub struct Traffic {
    /// The columns.
    pub columns: Columns,
    /// The greatest groups, the greatest first.
    pub groups: Vec<Group>,
    /// How many other groups there are, and what is in them.
    pub others: (u64, Vec<Option<Sums>>),
    /// Everything, each value once.
    pub total: Vec<Option<Sums>>,
    /// Earlier columns were not counted.
    pub counted_from: Option<u64>,
    /// There are more groups, flows or paths than are kept apart.
    pub truncated: bool,
}

/// Adds up.
#[derive(Debug)]
pub struct Stacks {
    question: Arc<TrafficQuestion>,
    columns: Columns,
    /// Sums of flows in the whole span, if a filter asks for them.
    sums: HashMap<FlowKey, SpanSum>,
    /// Groups by their parts, and their values as a whole.
    groups: HashMap<Vec<Part>, u32>,
    ranks: Vec<Sums>,
    /// Only groups that were known before; the others are one.
    is_closed: bool,
    /// How many those are.
    others: u64,
    cells: Cells,
    rest: Vec<Sums>,
    total: Vec<Sums>,
    seen: Vec<bool>,
    /// In which groups something is, by its number.
    places: Vec<Vec<u32>>,
    numbers: HashMap<Vec<u32>, u32>,
    /// Flows that are the same in events, unless the filter asks which flow it is.
    alike: Option<HashMap<Vec<Part>, u32>>,
    /// Numbers of flows, as far as flow and path are asked: each file asks for its flows.
    of_flows: HashMap<(Option<FlowKey>, Vec<u32>), u32, Seeded>,
    /// Numbers of events of which the flow alone is asked.
    of_events: HashMap<FlowKey, u32, Seeded>,
    is_full: bool,
    /// Something is in more groups than are combined, or there are more combinations than are kept apart.
    is_cut: bool,
}

/// Columns of groups, as far as there is room.
#[derive(Debug)]
struct Cells {
    columns: usize,
    /// Of what is counted, the numbers alone.
    is_count: bool,
    counts: Vec<u64>,
    sums: Vec<Sums>,
}

impl Cells {
    fn new(columns: usize, is_count: bool) -> Self {
        Self {
            columns,
            is_count,
            counts: Vec::new(),
            sums: Vec::new(),
        }
    }

    /// Whether there is room for so many groups.
    fn has_room(&self, groups: usize) -> bool {
        let most = if self.is_count {
            MOST_CELLS * size_of::<Sums>() / size_of::<u64>()
        } else {
            MOST_CELLS
        };
        groups.saturating_mul(self.columns) <= most
    }

    /// Makes so many empty groups of it.
    fn clear(&mut self, groups: usize) {
        (self.counts, self.sums) = (Vec::new(), Vec::new());
        self.grow(groups);
    }

    fn grow(&mut self, groups: usize) {
        match self.is_count {
            true => self.counts.resize(groups * self.columns, 0),
            false => self.sums.resize(groups * self.columns, Sums::default()),
        }
    }

    #[inline]
    fn add(&mut self, group: u32, column: usize, sum: &SpanSum) {
        let place = group as usize * self.columns + column;
        match self.is_count {
            true => self
                .counts
                .get_mut(place)
                .iter_mut()
                .for_each(|cell| **cell = cell.saturating_add(sum.count)),
            false => self.sums.get_mut(place).iter_mut().for_each(|cell| cell.add(sum)),
        }
    }

    fn get(&self, group: u32, column: usize) -> Sums {
        let place = group as usize * self.columns + column;
        match self.is_count {
            true => Sums {
                count: self.counts.get(place).copied().unwrap_or(0),
                ..Sums::default()
            },
            false => self.sums.get(place).copied().unwrap_or_default(),
        }
    }
}

impl Sums {
    fn add(&mut self, other: &SpanSum) {
        self.count = self.count.saturating_add(other.count);
        if other.has_values() {
            self.sum = self.sum.saturating_add(other.sum);
            self.max = self.max.max(other.max);
            self.valued = self.valued.saturating_add(other.count);
        }
    }

    fn join(&mut self, other: &Self) {
        self.count = self.count.saturating_add(other.count);
        self.sum = self.sum.saturating_add(other.sum);
        self.max = self.max.max(other.max);
        self.valued = self.valued.saturating_add(other.valued);
    }

    /// The sum of those that there are.
    pub fn of(values: &[Option<Self>]) -> Self {
        let mut sums = Self::default();
        values.iter().flatten().for_each(|one| sums.join(one));
        sums
    }

    /// Greatest first: what is counted by its number, other values by the greatest.
    fn rank(&self, is_count: bool) -> (u64, u64) {
        if is_count {
            (self.count, 0)
        } else {
            (self.max, self.count)
        }
    }
}

impl Stacks {
    /// Nothing yet. `sums`: of flows in the whole span, if the filter asks for them.
    pub fn new(question: Arc<TrafficQuestion>, columns: Columns, sums: HashMap<FlowKey, SpanSum>) -> Self {
        let alike = (!question.filters_flows()).then(HashMap::new);
        let cells = Cells::new(columns.count(), question.measure.is_count());
        let mut stacks = Self {
            question,
            columns,
            sums,
            groups: HashMap::new(),
            ranks: Vec::new(),
            is_closed: false,
            others: 0,
            cells,
            rest: Vec::new(),
            total: Vec::new(),
            seen: Vec::new(),
            places: Vec::new(),
            numbers: HashMap::new(),
            alike,
            of_flows: HashMap::default(),
            of_events: HashMap::default(),
            is_full: false,
            is_cut: false,
        };
        stacks.reset();
        stacks
    }

    /// Whether nothing was stored at all.
    pub fn is_empty(&self) -> bool {
        !self.seen.contains(&true)
    }

    /// Groups by rank.
    fn ranked(&self) -> Vec<(&Vec<Part>, u32)> {
        let is_count = self.question.measure.is_count();
        let mut ranked: Vec<_> = self.groups.iter().map(|(parts, group)| (parts, *group)).collect();
        let rank = |group: u32| self.ranks[group as usize].rank(is_count);
        ranked.sort_by(|(one, a), (other, b)| rank(*b).cmp(&rank(*a)).then(one.cmp(other)));
        ranked
    }

    /// Whether the columns of all groups are there. If not, those of the greatest ones are wanted: the question must be asked again.
    pub fn wants_more(&mut self) -> bool {
        if self.cells.has_room(self.groups.len()) || self.is_closed {
            return false;
        }
        let top = self
            .ranked()
            .into_iter()
            .take(self.question.top)
            .map(|(parts, _)| parts.clone());
        let top: Vec<Vec<Part>> = top.collect();
        self.is_full |= self.groups.len() >= MOST_GROUPS;
        let others = self.groups.len().saturating_sub(top.len()) as u64;
        self.groups = top.into_iter().zip(0..).collect();
        self.is_closed = true;
        self.others = others;
        self.ranks.clear();
        true
    }

    /// The answer. Columns before what was counted, and those that are not known yet, have no values.
    pub fn answer(self, counted: Counted) -> Traffic {
        let columns = self.columns;
        let known_to = self.question.known_to();
        let floor = counted.from.unwrap_or(0);
        let is_known = |i: usize| {
            let from = columns.from() + i as u64 * columns.column();
            self.seen[i] && from >= floor && from < known_to
        };
        let known: Vec<bool> = (0..columns.count()).map(is_known).collect();
        let shown = |sums: &[Sums]| -> Vec<Option<Sums>> {
            sums.iter()
                .zip(&known)
                .map(|(sums, known)| known.then_some(*sums))
                .collect()
        };
        let is_count = self.question.measure.is_count();
        let whole = |group: u32| {
            let mut sums = Sums::default();
            let columns = (0..columns.count()).filter(|column| known[*column]);
            columns.for_each(|column| sums.join(&self.cells.get(group, column)));
            sums
        };
        let mut ranked: Vec<(Sums, &Vec<Part>, u32)> = self
            .groups
            .iter()
            .map(|(parts, group)| (whole(*group), parts, *group))
            .collect();
        // A group that has something only in columns that are not counted is none.
        ranked.retain(|(sums, ..)| sums.count > 0);
        ranked.sort_unstable_by(|(one, parts, _), (other, others_parts, _)| {
            other
                .rank(is_count)
                .cmp(&one.rank(is_count))
                .then_with(|| parts.cmp(others_parts))
        });
        let beyond = ranked.split_off(ranked.len().min(self.question.top));
        let row = |group: u32| -> Vec<Sums> {
            (0..columns.count())
                .map(|column| self.cells.get(group, column))
                .collect()
        };
        let groups: Vec<Group> = ranked
            .iter()
            .map(|(_, parts, group)| ((*parts).clone(), shown(&row(*group))))
            .collect();
        let mut others = match self.is_closed {
            true => self.others,
            false => beyond.len() as u64,
        };
        others += u64::from(self.is_full && !self.is_closed);
        let mut rest = self.rest.clone();
        for (_, _, group) in &beyond {
            (0..columns.count()).for_each(|column| rest[column].join(&self.cells.get(*group, column)));
        }
        Traffic {
            columns,
            groups,
            others: (others, shown(&rest)),
            total: shown(&self.total),
            counted_from: counted.from,
            truncated: self.is_full || self.is_cut || counted.truncated,
        }
    }

    /// The number of what is in these groups, which are combined with one another.
    fn number(&mut self, parts: Vec<Vec<Part>>) -> u32 {
        let mut combined: Vec<Vec<Part>> = vec![Vec::new()];
        let all = parts.iter().map(Vec::len).try_fold(1_usize, usize::checked_mul);
        self.is_cut |= all.is_none_or(|all| all > MOST_COMBINED);
        for of_dimension in parts {
            let with = |before: &Vec<Part>, part: &Part| {
                let mut parts = before.clone();
                parts.push(part.clone());
                parts
            };
            combined = combined
                .iter()
                .flat_map(|before| of_dimension.iter().map(move |part| with(before, part)))
                .take(MOST_COMBINED)
                .collect();
        }
        let mut places: Vec<u32> = combined.into_iter().map(|parts| self.place(parts)).collect();
        if self.places.len() >= MOST_PLACES && !self.numbers.contains_key(&places) {
            self.is_cut = true;
            places = vec![REST];
        }
        if let Some(number) = self.numbers.get(&places) {
            return *number;
        }
        let number = u32::try_from(self.places.len()).unwrap_or(0);
        self.places.push(places.clone());
        self.numbers.insert(places, number);
        number
    }

    fn place(&mut self, parts: Vec<Part>) -> u32 {
        if let Some(group) = self.groups.get(&parts) {
            return *group;
        }
        if self.is_closed {
            return REST;
        }
        if self.groups.len() >= MOST_GROUPS {
            self.is_full = true;
            return REST;
        }
        let group = u32::try_from(self.groups.len()).unwrap_or(REST);
        self.groups.insert(parts, group);
        self.ranks.push(Sums::default());
        if self.cells.has_room(self.groups.len()) {
            self.cells.grow(self.groups.len());
        }
        group
    }

    /// The number of something with these facts: that of its parts by all dimensions, if it is wanted.
    fn number_of(
        &mut self,
        facts: &Facts<'_>,
        of: impl Fn(super::Dimension, Making<'_>) -> Vec<Part>,
    ) -> u32 {
        let question = &self.question;
        if question
            .condition
            .as_ref()
            .is_some_and(|condition| !condition.matches(facts))
        {
            return UNWANTED;
        }
        let making = Making {
            prefixes: question.prefixes,
            labels: &question.labels,
        };
        let parts = question
            .by
            .iter()
            .map(|dimension| of(*dimension, making))
            .collect();
        self.number(parts)
    }
}

impl Stacks {
    fn number_of_flow(&mut self, flow: &FlowKey, path: &[u32]) -> u32 {
        let sum = self.sums.get(flow);
        let mut values = [None; Metric::COUNT];
        values[Metric::FlowLatency as usize] = sum.filter(|sum| sum.has_values()).map(|sum| sum.max);
        let reports = sum.map(|sum| sum.count);
        let facts = Facts {
            flow: Some(flow),
            path,
            reports,
            values,
            ..Facts::default()
        };
        self.number_of(&facts, |dimension, making| dimension.of_flow(flow, path, making))
    }
}

impl Tally for Stacks {
    fn reset(&mut self) {
        let columns = self.columns.count();
        if !self.is_closed {
            self.groups.clear();
            self.ranks.clear();
            self.is_full = false;
        }
        self.cells
            .clear(if self.is_closed { self.groups.len() } else { 0 });
        self.rest = vec![Sums::default(); columns];
        self.total = vec![Sums::default(); columns];
        self.seen = vec![false; columns];
        // The first number is that of what is not wanted: it is in no group.
        (self.places, self.numbers) = (vec![Vec::new()], HashMap::new());
        self.of_flows.clear();
        self.of_events.clear();
    }

    fn seen(&mut self, column: usize) {
        if let Some(seen) = self.seen.get_mut(column) {
            *seen = true;
        }
    }

    fn flow(&mut self, flow: &FlowKey, path: &[u32]) -> u32 {
        let question = &self.question;
        let by_flow = question.condition.is_some() || question.by.iter().any(|one| one.is_of_flow());
        let by_path = question.by_path();
        let key = (
            by_flow.then_some(*flow),
            if by_path { path.to_vec() } else { Vec::new() },
        );
        if let Some(number) = self.of_flows.get(&key) {
            return *number;
        }
        let number = self.number_of_flow(flow, path);
        if self.of_flows.len() < MOST_NUMBERS {
            self.of_flows.insert(key, number);
        }
        number
    }

    fn event(&mut self, event: &EventGroup) -> u32 {
        let flow = event.flow.filter(|_| {
            *event
                == EventGroup {
                    flow: event.flow,
                    ..EventGroup::default()
                }
        });
        if let Some(number) = flow.and_then(|flow| self.of_events.get(&flow)) {
            return *number;
        }
        let number = self.number_of(&facts::of_group(event), |dimension, making| {
            dimension.of_event(event, making)
        });
        if let Some(flow) = flow.filter(|_| self.of_events.len() < MOST_NUMBERS) {
            self.of_events.insert(flow, number);
        }
        number
    }

    fn alike(&mut self, flow: &FlowKey) -> Option<u32> {
        let alike = self.alike.as_mut()?;
        let making = Making {
            prefixes: self.question.prefixes,
            labels: &self.question.labels,
        };
        let by = self.question.by.iter().filter(|dimension| dimension.is_of_flow());
        let parts: Vec<Part> = by.map(|dimension| dimension.of_key(flow, making)).collect();
        let next = u32::try_from(alike.len())
            .ok()
            .filter(|_| alike.len() < MOST_GROUPS);
        match (alike.get(&parts), next) {
            (Some(number), _) => Some(*number),
            (None, Some(next)) => Some(*alike.entry(parts).or_insert(next)),
            (None, None) => None,
        }
    }

    fn bounds(&self) -> Option<[Vec<u64>; Metric::COUNT]> {
        let of = |metric| {
            self.question
                .condition
                .as_ref()
                .map_or_else(Vec::new, |one| one.bounds(metric))
        };
        Some(Metric::ALL.map(of))
    }

    fn excludes(&self, event: &EventGroup) -> bool {
        let condition = self.question.condition.as_ref();
        condition.is_some_and(|condition| condition.excludes(&facts::of_group(event)))
    }

    fn series(&mut self, key: &SeriesKey) -> u32 {
        let metric = Metric::ALL.into_iter().find(|metric| *metric as u8 == key.metric);
        let facts = Facts {
            node: Some(key.node),
            interface: key.interface,
            queue: key.queue,
            metric: metric.map(Metric::name),
            ..Facts::default()
        };
        self.number_of(&facts, |dimension, making| dimension.of_series(key, making))
    }

    fn add(&mut self, number: u32, column: usize, sum: &SpanSum) {
        let columns = self.columns.count();
        let Some(places) = self.places.get(number as usize).filter(|_| number != UNWANTED) else {
            return;
        };
        if column >= columns {
            return;
        }
        self.total[column].add(sum);
        for place in places {
            if *place == REST {
                self.rest[column].add(sum);
                continue;
            }
            self.cells.add(*place, column, sum);
            if !self.is_closed {
                self.ranks[*place as usize].add(sum);
            }
        }
    }
}

/// The place of groups that are not kept apart.
const REST: u32 = u32::MAX;
/// The number of what is in no group.
const UNWANTED: u32 = 0;
/// Groups that are kept apart: some 40 MB.
const MOST_GROUPS: usize = 200_000;
/// Combinations of groups in which something is, such as the nodes of a path: some 80 MB.
const MOST_PLACES: usize = 400_000;
/// Flows whose numbers are kept: some 40 MB.
const MOST_NUMBERS: usize = 200_000;
/// Values of groups and columns: 32 MB; of what is counted, four times as many in as much. With more groups, those of the greatest are read once more.
const MOST_CELLS: usize = 1 << 20;
/// Groups in which one value can be: a flow of 32 nodes and 31 links is in no more.
const MOST_COMBINED: usize = 1_024;
