//! Sums of groups, column by column: of the greatest ones, and of the others.

use std::{collections::HashMap, sync::Arc};

use detect::Metric;
use filter::Facts;
use store::{Columns, Counted, EventGroup, SeriesKey, SpanSum, Tally};
use wire::FlowKey;

use super::{Part, TrafficQuestion, dimension::Making};
use crate::facts;

/// Values of a column, added up.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Sums {
    /// How many.
    pub(crate) count: u64,
    /// Their sum.
    pub(crate) sum: u64,
    /// The greatest.
    pub(crate) max: u64,
    /// How many of them have a value: reports may lack latencies.
    pub(crate) valued: u64,
}

/// A group of the answer.
pub(crate) type Group = (Vec<Part>, Vec<Option<Sums>>);

/// The answer. What a column has is `None` where nothing was stored at all, where it is not known yet, or where it was not counted.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Traffic {
    /// The columns.
    pub(crate) columns: Columns,
    /// The greatest groups, the greatest first.
    pub(crate) groups: Vec<Group>,
    /// How many other groups there are, and what is in them.
    pub(crate) others: (u64, Vec<Option<Sums>>),
    /// Everything, each value once.
    pub(crate) total: Vec<Option<Sums>>,
    /// Earlier columns were not counted.
    pub(crate) counted_from: Option<u64>,
    /// There are more groups, flows or paths than are kept apart.
    pub(crate) truncated: bool,
}

/// Adds up.
pub(crate) struct Stacks {
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
    /// Columns of the groups, as far as there is room.
    cells: Vec<Sums>,
    rest: Vec<Sums>,
    total: Vec<Sums>,
    seen: Vec<bool>,
    /// In which groups something is, by its number.
    places: Vec<Vec<u32>>,
    numbers: HashMap<Vec<u32>, u32>,
    is_full: bool,
    /// Something is in more groups than are combined, or there are more combinations than are kept apart.
    is_cut: bool,
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
    pub(crate) fn of(values: &[Option<Self>]) -> Self {
        let mut sums = Self::default();
        values.iter().flatten().for_each(|one| sums.join(one));
        sums
    }

    /// Greatest first: what is counted by its number, other values by the greatest.
    fn rank(&self, is_count: bool) -> (u64, u64) {
        if is_count { (self.count, 0) } else { (self.max, self.count) }
    }
}

impl Stacks {
    /// Nothing yet. `sums`: of flows in the whole span, if the filter asks for them.
    pub(crate) fn new(
        question: Arc<TrafficQuestion>,
        columns: Columns,
        sums: HashMap<FlowKey, SpanSum>,
    ) -> Self {
        let mut stacks = Self {
            question,
            columns,
            sums,
            groups: HashMap::new(),
            ranks: Vec::new(),
            is_closed: false,
            others: 0,
            cells: Vec::new(),
            rest: Vec::new(),
            total: Vec::new(),
            seen: Vec::new(),
            places: Vec::new(),
            numbers: HashMap::new(),
            is_full: false,
            is_cut: false,
        };
        stacks.reset();
        stacks
    }

    /// Whether nothing was stored at all.
    pub(crate) fn is_empty(&self) -> bool {
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
    pub(crate) fn wants_more(&mut self) -> bool {
        let has_room = self.groups.len().saturating_mul(self.columns.count()) <= MOST_CELLS;
        if has_room || self.is_closed {
            return false;
        }
        let top = self.ranked().into_iter().take(self.question.top).map(|(parts, _)| parts.clone());
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
    pub(crate) fn answer(self, counted: Counted) -> Traffic {
        let columns = self.columns;
        let known_to = self.question.known_to();
        let floor = counted.from.unwrap_or(0);
        let is_known = |i: usize| {
            let from = columns.from() + i as u64 * columns.column();
            self.seen[i] && from >= floor && from < known_to
        };
        let known: Vec<bool> = (0..columns.count()).map(is_known).collect();
        let shown = |sums: &[Sums]| -> Vec<Option<Sums>> {
            sums.iter().zip(&known).map(|(sums, known)| known.then_some(*sums)).collect()
        };
        let row = |group: u32| shown(&self.cells[group as usize * columns.count()..][..columns.count()]);
        let is_count = self.question.measure.is_count();
        let mut groups: Vec<Group> =
            self.groups.iter().map(|(parts, group)| (parts.clone(), row(*group))).collect();
        // A group that has something only in columns that are not counted is none.
        groups.retain(|(_, values)| Sums::of(values).count > 0);
        groups.sort_by_cached_key(|(parts, values)| {
            (std::cmp::Reverse(Sums::of(values).rank(is_count)), parts.clone())
        });
        let mut rest = self.rest.clone();
        let beyond = groups.split_off(groups.len().min(self.question.top));
        let mut others = match self.is_closed {
            true => self.others,
            false => beyond.len() as u64,
        };
        others += u64::from(self.is_full && !self.is_closed);
        for (_, values) in &beyond {
            let pairs = rest.iter_mut().zip(values);
            pairs.for_each(|(rest, value)| value.iter().for_each(|value| rest.join(value)));
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
        let length = self.cells.len() + self.columns.count();
        if length <= MOST_CELLS {
            self.cells.resize(length, Sums::default());
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
        if question.condition.as_ref().is_some_and(|condition| !condition.matches(facts)) {
            return UNWANTED;
        }
        let making = Making { prefixes: question.prefixes, labels: &question.labels };
        let parts = question.by.iter().map(|dimension| of(*dimension, making)).collect();
        self.number(parts)
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
        self.cells = vec![Sums::default(); if self.is_closed { self.groups.len() * columns } else { 0 }];
        self.rest = vec![Sums::default(); columns];
        self.total = vec![Sums::default(); columns];
        self.seen = vec![false; columns];
        // The first number is that of what is not wanted: it is in no group.
        (self.places, self.numbers) = (vec![Vec::new()], HashMap::new());
    }

    fn seen(&mut self, column: usize) {
        if let Some(seen) = self.seen.get_mut(column) {
            *seen = true;
        }
    }

    fn flow(&mut self, flow: &FlowKey, path: &[u32]) -> u32 {
        let sum = self.sums.get(flow);
        let mut values = [None; Metric::COUNT];
        values[Metric::FlowLatency as usize] = sum.filter(|sum| sum.has_values()).map(|sum| sum.max);
        let reports = sum.map(|sum| sum.count);
        let facts = Facts { flow: Some(flow), path, reports, values, ..Facts::default() };
        self.number_of(&facts, |dimension, making| dimension.of_flow(flow, path, making))
    }

    fn event(&mut self, event: &EventGroup) -> u32 {
        self.number_of(&facts::of_group(event), |dimension, making| dimension.of_event(event, making))
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
        let Some(places) = self.places.get(number as usize).filter(|_| number != UNWANTED) else { return };
        if column >= columns {
            return;
        }
        self.total[column].add(sum);
        for place in places {
            if *place == REST {
                self.rest[column].add(sum);
                continue;
            }
            if let Some(cell) = self.cells.get_mut(*place as usize * columns + column) {
                cell.add(sum);
            }
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
/// Values of groups and columns: 32 MB. With more groups, those of the greatest are read once more.
const MOST_CELLS: usize = 1 << 20;
/// Groups in which one value can be: a flow of 32 nodes and 31 links is in no more.
const MOST_COMBINED: usize = 1_024;
