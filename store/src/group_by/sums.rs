//! Sums of groups, column by column: of the greatest ones, and of the others.

use std::collections::HashMap;
use std::sync::Arc;

use detect::Metric;
use filter::Facts;
use wire::FlowKey;

use super::dimension::PartContext;
use super::{Dimension, Part, TrafficQuery};
use crate::facts;
use crate::hasher::Seeded;
use crate::spans::{SeriesKey, SpanSum};
use crate::traffic::{Columns, Counted, EventGroup, Tally};

/// The sums of the values of a column.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Sums {
    /// The number of values.
    pub count: u64,
    /// The sum of the values.
    pub sum: u64,
    /// The greatest of the values.
    pub max: u64,
    /// Number of reports that have a value: reports may lack latencies.
    pub valued: u64,
}

/// A group of the answer: its parts, and its sums by column.
pub type Group = (Vec<Part>, Vec<Option<Sums>>);

/// The answer to a query about traffic. The sums of a column are `None` where nothing was stored at all, where it is not known yet, or where it was not counted.
#[derive(Clone, PartialEq, Debug)]
pub struct Traffic {
    /// The columns of the answer.
    pub columns: Columns,
    /// The greatest groups, the greatest first.
    pub groups: Vec<Group>,
    /// The number of other groups, and their sums.
    pub others: (u64, Vec<Option<Sums>>),
    /// The sums of all values, each counted once.
    pub total: Vec<Option<Sums>>,
    /// Earlier columns were not counted.
    pub counted_from: Option<u64>,
    /// There are more groups, flows or paths than are considered.
    pub truncated: bool,
}

/// Adds values up by group.
#[derive(Debug)]
pub struct Grouping {
    query: Arc<TrafficQuery>,
    columns: Columns,
    /// Sums of flows in the whole span, if a filter asks for them.
    sums: HashMap<FlowKey, SpanSum>,
    /// Groups by their parts, and their values as a whole.
    groups: HashMap<Vec<Part>, u32>,
    ranks: Vec<Sums>,
    /// Only the groups that are known are counted apart; the others are one.
    is_closed: bool,
    /// The number of other groups.
    others: u64,
    cells: Cells,
    rest: Vec<Sums>,
    total: Vec<Sums>,
    seen: Vec<bool>,
    /// The groups of a value, by its number.
    memberships: Vec<Vec<u32>>,
    numbers: HashMap<Vec<u32>, u32>,
    /// Flows that are the same in events, unless the filter tests the flow key.
    alike: Option<HashMap<Vec<Part>, u32>>,
    /// Numbers of flows by the parts that the query needs: each file asks for its flows.
    flow_numbers: HashMap<(Option<FlowKey>, Vec<u32>), u32, Seeded>,
    /// Numbers of events of which the query needs the flow alone.
    event_numbers: HashMap<FlowKey, u32, Seeded>,
    is_full: bool,
    /// A value is in more groups than are combined, or there are more combinations than are considered.
    is_cut: bool,
}

/// The columns of groups, up to a maximum size.
#[derive(Debug)]
struct Cells {
    columns: usize,
    /// Values are only counted: `sums` is not used.
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

    /// Returns true if this number of groups is within the maximum size.
    fn fits(&self, groups: usize) -> bool {
        let most = if self.is_count {
            MAX_CELLS * size_of::<Sums>() / size_of::<u64>()
        } else {
            MAX_CELLS
        };
        groups.saturating_mul(self.columns) <= most
    }

    /// Replaces the groups by this number of empty ones.
    fn clear(&mut self, groups: usize) {
        self.counts = Vec::new();
        self.sums = Vec::new();
        self.grow(groups);
    }

    fn grow(&mut self, groups: usize) {
        if self.is_count {
            self.counts.resize(groups * self.columns, 0);
        } else {
            self.sums.resize(groups * self.columns, Sums::default());
        }
    }

    #[inline]
    fn add(&mut self, group: u32, column: usize, sum: &SpanSum) {
        let cell = group as usize * self.columns + column;
        if self.is_count {
            if let Some(count) = self.counts.get_mut(cell) {
                *count = count.saturating_add(sum.count);
            }
        } else if let Some(sums) = self.sums.get_mut(cell) {
            sums.add(sum);
        }
    }

    fn get(&self, group: u32, column: usize) -> Sums {
        let cell = group as usize * self.columns + column;
        if self.is_count {
            return Sums {
                count: self.counts.get(cell).copied().unwrap_or(0),
                ..Sums::default()
            };
        }
        self.sums.get(cell).copied().unwrap_or_default()
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

    /// Returns the sum of the values that are there.
    pub fn total(values: &[Option<Self>]) -> Self {
        let mut sums = Self::default();
        for value in values.iter().flatten() {
            sums.join(value);
        }
        sums
    }

    /// Returns the rank, greatest first: of counts by their number, of other values by the greatest.
    fn rank(&self, is_count: bool) -> (u64, u64) {
        if is_count {
            (self.count, 0)
        } else {
            (self.max, self.count)
        }
    }
}

impl Grouping {
    /// Returns a grouping without values. `sums`: of flows in the whole span, if the filter asks for them.
    pub fn new(query: Arc<TrafficQuery>, columns: Columns, sums: HashMap<FlowKey, SpanSum>) -> Self {
        let alike = (!query.filters_flows()).then(HashMap::new);
        let cells = Cells::new(columns.count(), query.measure.is_count());
        let mut grouping = Self {
            query,
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
            memberships: Vec::new(),
            numbers: HashMap::new(),
            alike,
            flow_numbers: HashMap::default(),
            event_numbers: HashMap::default(),
            is_full: false,
            is_cut: false,
        };
        grouping.reset();
        grouping
    }

    /// Returns true if nothing was stored at all.
    pub fn is_empty(&self) -> bool {
        !self.seen.contains(&true)
    }

    /// Returns true if the files must be read again: the columns of all groups exceed the maximum size, and those of the greatest ones are
    /// wanted.
    pub fn wants_more(&mut self) -> bool {
        if self.cells.fits(self.groups.len()) || self.is_closed {
            return false;
        }
        self.is_full |= self.groups.len() >= MAX_GROUPS;
        let is_count = self.query.measure.is_count();
        let mut ranked: Vec<((u64, u64), Vec<Part>)> = self
            .groups
            .drain()
            .map(|(parts, group)| (self.ranks[group as usize].rank(is_count), parts))
            .collect();
        ranked.sort_unstable_by(|a, b| b.0.cmp(&a.0).then_with(|| a.1.cmp(&b.1)));
        self.others = ranked.len().saturating_sub(self.query.top) as u64;
        ranked.truncate(self.query.top);
        self.groups = ranked.into_iter().map(|(_, parts)| parts).zip(0..).collect();
        self.is_closed = true;
        self.ranks.clear();
        true
    }

    /// Returns the sums of the columns of a group.
    fn row(&self, group: u32) -> Vec<Sums> {
        (0..self.columns.count())
            .map(|column| self.cells.get(group, column))
            .collect()
    }

    /// Returns the answer. Columns before what was counted, and those that are not known yet, have no values.
    pub fn answer(self, counted: Counted) -> Traffic {
        let columns = self.columns;
        let known_to = self.query.known_to();
        let floor = counted.from.unwrap_or(0);
        let known: Vec<bool> = (0..columns.count())
            .map(|i| {
                let from = columns.from() + i as u64 * columns.column();
                self.seen[i] && from >= floor && from < known_to
            })
            .collect();
        let is_count = self.query.measure.is_count();
        let mut ranked: Vec<(Sums, &Vec<Part>, u32)> = Vec::with_capacity(self.groups.len());
        for (parts, group) in &self.groups {
            let mut sums = Sums::default();
            for column in (0..columns.count()).filter(|column| known[*column]) {
                sums.join(&self.cells.get(*group, column));
            }
            // A group that has values only in columns that are not counted is none.
            if sums.count > 0 {
                ranked.push((sums, parts, *group));
            }
        }
        ranked.sort_unstable_by(|(a, a_parts, _), (b, b_parts, _)| {
            let by_rank = b.rank(is_count).cmp(&a.rank(is_count));
            by_rank.then_with(|| a_parts.cmp(b_parts))
        });
        let beyond = ranked.split_off(ranked.len().min(self.query.top));
        let groups: Vec<Group> = ranked
            .iter()
            .map(|(_, parts, group)| ((*parts).clone(), only_known(&self.row(*group), &known)))
            .collect();
        let others = if self.is_closed {
            self.others
        } else {
            beyond.len() as u64 + u64::from(self.is_full)
        };
        let mut rest = self.rest.clone();
        for (_, _, group) in &beyond {
            for (column, sums) in rest.iter_mut().enumerate() {
                sums.join(&self.cells.get(*group, column));
            }
        }
        Traffic {
            columns,
            groups,
            others: (others, only_known(&rest, &known)),
            total: only_known(&self.total, &known),
            counted_from: counted.from,
            truncated: self.is_full || self.is_cut || counted.truncated,
        }
    }

    /// Returns the number of a value that is in all combinations of these groups, which are those of one dimension each.
    fn number(&mut self, parts: Vec<Vec<Part>>) -> u32 {
        let mut combined: Vec<Vec<Part>> = vec![Vec::new()];
        let all = parts.iter().map(Vec::len).try_fold(1_usize, usize::checked_mul);
        self.is_cut |= all.is_none_or(|all| all > MAX_COMBINED);
        for dimension_parts in parts {
            let mut next = Vec::with_capacity((combined.len() * dimension_parts.len()).min(MAX_COMBINED));
            for before in &combined {
                for part in dimension_parts.iter().take(MAX_COMBINED - next.len()) {
                    let mut parts = before.clone();
                    parts.push(part.clone());
                    next.push(parts);
                }
            }
            combined = next;
        }
        let mut groups: Vec<u32> = combined.into_iter().map(|parts| self.group(parts)).collect();
        if self.memberships.len() >= MAX_MEMBERSHIPS && !self.numbers.contains_key(&groups) {
            self.is_cut = true;
            groups = vec![REST];
        }
        if let Some(number) = self.numbers.get(&groups) {
            return *number;
        }
        let number = u32::try_from(self.memberships.len()).unwrap_or(0);
        self.memberships.push(groups.clone());
        self.numbers.insert(groups, number);
        number
    }

    fn group(&mut self, parts: Vec<Part>) -> u32 {
        if let Some(group) = self.groups.get(&parts) {
            return *group;
        }
        if self.is_closed {
            return REST;
        }
        if self.groups.len() >= MAX_GROUPS {
            self.is_full = true;
            return REST;
        }
        let group = u32::try_from(self.groups.len()).unwrap_or(REST);
        self.groups.insert(parts, group);
        self.ranks.push(Sums::default());
        if self.cells.fits(self.groups.len()) {
            self.cells.grow(self.groups.len());
        }
        group
    }

    /// Returns the number of a value with these facts, from the parts that it has in each dimension; `UNWANTED` if it does not match.
    fn number_with(
        &mut self,
        facts: &Facts<'_>,
        parts: impl Fn(Dimension, PartContext<'_>) -> Vec<Part>,
    ) -> u32 {
        let query = &self.query;
        if let Some(condition) = &query.condition
            && !condition.matches(facts)
        {
            return UNWANTED;
        }
        let context = PartContext {
            prefixes: query.prefixes,
            labels: &query.labels,
        };
        let parts = query
            .by
            .iter()
            .map(|dimension| parts(*dimension, context))
            .collect();
        self.number(parts)
    }

    fn number_flow(&mut self, flow: &FlowKey, path: &[u32]) -> u32 {
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
        self.number_with(&facts, |dimension, context| {
            dimension.flow_parts(flow, path, context)
        })
    }
}

/// Returns the sums of the columns that are known.
fn only_known(sums: &[Sums], known: &[bool]) -> Vec<Option<Sums>> {
    sums.iter()
        .zip(known)
        .map(|(sums, known)| known.then_some(*sums))
        .collect()
}

impl Tally for Grouping {
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
        // The first number is that of values that are not wanted: they are in no group.
        self.memberships = vec![Vec::new()];
        self.numbers = HashMap::new();
        self.flow_numbers.clear();
        self.event_numbers.clear();
    }

    fn seen(&mut self, column: usize) {
        if let Some(seen) = self.seen.get_mut(column) {
            *seen = true;
        }
    }

    fn flow(&mut self, flow: &FlowKey, path: &[u32]) -> u32 {
        let query = &self.query;
        let by_flow = query.condition.is_some() || query.by.iter().any(|dimension| dimension.is_of_flow());
        let by_path = query.needs_paths();
        let key_path = if by_path { path.to_vec() } else { Vec::new() };
        let key = (by_flow.then_some(*flow), key_path);
        if let Some(number) = self.flow_numbers.get(&key) {
            return *number;
        }
        let number = self.number_flow(flow, path);
        if self.flow_numbers.len() < MAX_NUMBERS {
            self.flow_numbers.insert(key, number);
        }
        number
    }

    fn event(&mut self, event: &EventGroup) -> u32 {
        let flow_alone = EventGroup {
            flow: event.flow,
            ..EventGroup::default()
        };
        let flow = if *event == flow_alone { event.flow } else { None };
        if let Some(number) = flow.and_then(|flow| self.event_numbers.get(&flow)) {
            return *number;
        }
        let number = self.number_with(&facts::from_group(event), |dimension, context| {
            dimension.event_parts(event, context)
        });
        if let Some(flow) = flow
            && self.event_numbers.len() < MAX_NUMBERS
        {
            self.event_numbers.insert(flow, number);
        }
        number
    }

    fn alike(&mut self, flow: &FlowKey) -> Option<u32> {
        let alike = self.alike.as_mut()?;
        let context = PartContext {
            prefixes: self.query.prefixes,
            labels: &self.query.labels,
        };
        let by = self.query.by.iter().filter(|dimension| dimension.is_of_flow());
        let parts: Vec<Part> = by.map(|dimension| dimension.key_part(flow, context)).collect();
        if let Some(number) = alike.get(&parts) {
            return Some(*number);
        }
        if alike.len() >= MAX_GROUPS {
            return None;
        }
        let next = u32::try_from(alike.len()).ok()?;
        alike.insert(parts, next);
        Some(next)
    }

    fn bounds(&self) -> Option<[Vec<u64>; Metric::COUNT]> {
        let condition = self.query.condition.as_ref();
        Some(Metric::ALL.map(|metric| condition.map_or_else(Vec::new, |condition| condition.bounds(metric))))
    }

    fn excludes(&self, event: &EventGroup) -> bool {
        let condition = self.query.condition.as_ref();
        condition.is_some_and(|condition| condition.excludes(&facts::from_group(event)))
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
        self.number_with(&facts, |dimension, context| dimension.series_parts(key, context))
    }

    fn add(&mut self, number: u32, column: usize, sum: &SpanSum) {
        if number == UNWANTED || column >= self.columns.count() {
            return;
        }
        let Some(groups) = self.memberships.get(number as usize) else {
            return;
        };
        self.total[column].add(sum);
        for group in groups {
            if *group == REST {
                self.rest[column].add(sum);
                continue;
            }
            self.cells.add(*group, column, sum);
            if !self.is_closed {
                self.ranks[*group as usize].add(sum);
            }
        }
    }
}

/// Stands for the groups that are added up as one.
const REST: u32 = u32::MAX;
/// The number of values that are in no group.
const UNWANTED: u32 = 0;
/// Maximum number of groups: some 40 MB.
const MAX_GROUPS: usize = 200_000;
/// Maximum number of combinations of groups, such as the nodes of a path: some 80 MB.
const MAX_MEMBERSHIPS: usize = 400_000;
/// Maximum number of flows whose numbers are remembered: some 40 MB.
const MAX_NUMBERS: usize = 200_000;
/// Maximum number of cells, which are sums: 32 MB; four times as many counts. With more groups, those of the greatest are read once more.
const MAX_CELLS: usize = 1 << 20;
/// Maximum number of groups of one value: a flow of 32 nodes and 31 links is in no more.
const MAX_COMBINED: usize = 1_024;
