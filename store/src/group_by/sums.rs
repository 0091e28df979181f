//! Accumulates a measure by group and time column, and returns the largest groups and the sum of the others.
//!
//! [`Grouping`] receives the values of each file through [`Tally`]. A reader first exchanges an item (flow, event, series)
//! for a number with [`Tally::flow`], [`Tally::event`] or [`Tally::series`], and then adds values under that number, so
//! filters and group lookups run once per item. `memberships` maps a number to its groups.
//!
//! Memory is bounded. If the cells (groups times columns) of all groups do not fit, the first pass only ranks groups by their
//! totals; `begin_second_pass` then keeps the largest ones and asks the reader for a second pass.

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

/// Pseudo group of all values that are not summed separately.
const OTHERS: u32 = u32::MAX;
/// Item number of everything that the filter rejects.
const REJECTED: u32 = 0;
/// Maximum number of groups: about 40 MB.
const MAX_GROUPS: usize = 200_000;
/// Maximum number of distinct sets of groups, such as the nodes of a path: about 80 MB.
const MAX_MEMBERSHIPS: usize = 400_000;
/// Maximum number of cached item numbers: about 40 MB.
const MAX_CACHED_ITEMS: usize = 200_000;
/// Maximum number of cells: 32 MB of [`Sums`], or four times as many counts. With more, a second pass reads the largest
/// groups.
const MAX_CELLS: usize = 1 << 20;
/// Maximum number of groups of one item: a flow over 32 nodes and 31 links has fewer.
const MAX_GROUPS_PER_ITEM: usize = 1_024;

/// Aggregates of the values in a column.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Sums {
    /// The number of values.
    pub count: u64,
    /// The sum of the values.
    pub sum: u64,
    /// The maximum of the values.
    pub max: u64,
    /// Number of reports that have a value; some lack latencies.
    pub valued: u64,
}

/// A group in the answer.
#[derive(Clone, PartialEq, Debug)]
pub struct Group {
    /// The group's value in each dimension of the query.
    pub parts: Vec<Part>,
    /// The group's sums per column.
    pub sums: Vec<Option<Sums>>,
}

/// The answer to a query about traffic. Sums of a column are `None` if nothing was stored at all in that time, if it is not
/// complete yet, or if it was not counted.
#[derive(Clone, PartialEq, Debug)]
pub struct Traffic {
    /// The columns of the answer.
    pub columns: Columns,
    /// The largest groups in descending order.
    pub groups: Vec<Group>,
    /// The number of other groups.
    pub other_groups: u64,
    /// The joint sums of the other groups per column.
    pub others: Vec<Option<Sums>>,
    /// Sums of all values per column; a value that belongs to several groups counts once.
    pub total: Vec<Option<Sums>>,
    /// Start of the counted columns, ns, if earlier ones were left out.
    pub counted_from: Option<u64>,
    /// True if there were more groups, flows or paths than the limits allow.
    pub truncated: bool,
}

/// Accumulator of one query: sums by group and column.
#[derive(Debug)]
pub struct Grouping {
    query: Arc<TrafficQuery>,
    columns: Columns,
    /// Sums of flows in the whole span, if a filter asks for them.
    sums: HashMap<FlowKey, SpanSum>,
    /// Group numbers by their values in each dimension.
    groups: HashMap<Vec<Part>, u32>,
    /// The total of each group over all columns, to rank it. Not kept in the second pass.
    ranks: Vec<Sums>,
    /// True in the second pass: only the groups in `groups` are summed separately, all other values go into `others`.
    is_closed: bool,
    /// Number of groups outside `groups` in the second pass.
    other_groups: u64,
    cells: Cells,
    /// Sums per column of all values outside the separately summed groups.
    others: Vec<Sums>,
    total: Vec<Sums>,
    /// Columns in which the store has any record.
    seen: Vec<bool>,
    /// The groups of an item, by the item's number.
    memberships: Vec<Vec<u32>>,
    /// Item numbers by their set of groups: items with the same groups share a number.
    numbers: HashMap<Vec<u32>, u32>,
    /// Classes of flows that no dimension of the query can tell apart; `None` if the filter tests the flow key.
    flow_classes: Option<HashMap<Vec<Part>, u32>>,
    /// Cache of item numbers by flow and path, as far as the query needs them: each file asks for its flows again.
    flow_numbers: HashMap<(Option<FlowKey>, Vec<u32>), u32, Seeded>,
    /// Cache of item numbers of events, for queries that need only the event's flow.
    event_numbers: HashMap<FlowKey, u32, Seeded>,
    /// There were more than [`MAX_GROUPS`] groups.
    is_full: bool,
    /// An item has more than [`MAX_GROUPS_PER_ITEM`] groups, or there are more than [`MAX_MEMBERSHIPS`] sets of groups.
    is_cut: bool,
}

/// Table of sums by group and column, up to a maximum size.
#[derive(Debug)]
struct Cells {
    columns: usize,
    /// True if the measure is a count: only `counts` is used, which takes a quarter of the memory.
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

    /// Returns true if a table of this many groups is within the maximum size.
    fn fits(&self, groups: usize) -> bool {
        let max_cells = if self.is_count {
            MAX_CELLS * size_of::<Sums>() / size_of::<u64>()
        } else {
            MAX_CELLS
        };
        groups.saturating_mul(self.columns) <= max_cells
    }

    /// Replaces the table by an empty one with this many groups.
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

    /// Returns the sums over all columns that have values.
    pub fn total(values: &[Option<Self>]) -> Self {
        let mut sums = Self::default();
        for value in values.iter().flatten() {
            sums.join(value);
        }
        sums
    }

    /// Returns the sort key of a group, larger first: the count for counts, otherwise the maximum, then the count.
    fn rank(&self, is_count: bool) -> (u64, u64) {
        if is_count {
            (self.count, 0)
        } else {
            (self.max, self.count)
        }
    }
}

impl Grouping {
    /// Returns an empty grouping. `sums` holds each flow's sums over the whole span, if the filter tests them.
    pub fn new(query: Arc<TrafficQuery>, columns: Columns, sums: HashMap<FlowKey, SpanSum>) -> Self {
        let flow_classes = (!query.filters_flows()).then(HashMap::new);
        let cells = Cells::new(columns.count(), query.measure.is_count());
        let mut grouping = Self {
            query,
            columns,
            sums,
            groups: HashMap::new(),
            ranks: Vec::new(),
            is_closed: false,
            other_groups: 0,
            cells,
            others: Vec::new(),
            total: Vec::new(),
            seen: Vec::new(),
            memberships: Vec::new(),
            numbers: HashMap::new(),
            flow_classes,
            flow_numbers: HashMap::default(),
            event_numbers: HashMap::default(),
            is_full: false,
            is_cut: false,
        };
        grouping.reset();
        grouping
    }

    /// Returns true if the store has no records in any column.
    pub fn is_empty(&self) -> bool {
        !self.seen.contains(&true)
    }

    /// Returns true if the files must be read a second time because the cells of all groups exceed the maximum size. It then
    /// keeps only the groups with the largest totals.
    pub fn begin_second_pass(&mut self) -> bool {
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
        self.other_groups = ranked.len().saturating_sub(self.query.top) as u64;
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

    /// Returns the answer. Columns that were not counted or are not complete yet have no values.
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
            // Groups that have values only in unknown columns are left out.
            if sums.count > 0 {
                ranked.push((sums, parts, *group));
            }
        }
        ranked.sort_unstable_by(|(a, a_parts, _), (b, b_parts, _)| {
            let by_rank = b.rank(is_count).cmp(&a.rank(is_count));
            by_rank.then_with(|| a_parts.cmp(b_parts))
        });
        let unlisted = ranked.split_off(ranked.len().min(self.query.top));
        let groups: Vec<Group> = ranked
            .iter()
            .map(|(_, parts, group)| Group {
                parts: (*parts).clone(),
                sums: only_known(&self.row(*group), &known),
            })
            .collect();
        let other_groups = if self.is_closed {
            self.other_groups
        } else {
            unlisted.len() as u64 + u64::from(self.is_full)
        };
        let mut others = self.others.clone();
        for (_, _, group) in &unlisted {
            for (column, sums) in others.iter_mut().enumerate() {
                sums.join(&self.cells.get(*group, column));
            }
        }
        Traffic {
            columns,
            groups,
            other_groups,
            others: only_known(&others, &known),
            total: only_known(&self.total, &known),
            counted_from: counted.from,
            truncated: self.is_full || self.is_cut || counted.truncated,
        }
    }

    /// Returns the number of an item that belongs to every combination of these groups; `parts` has a list for each
    /// dimension.
    fn number(&mut self, parts: Vec<Vec<Part>>) -> u32 {
        let mut combined: Vec<Vec<Part>> = vec![Vec::new()];
        let combinations = parts.iter().map(Vec::len).try_fold(1_usize, usize::checked_mul);
        self.is_cut |= combinations.is_none_or(|count| count > MAX_GROUPS_PER_ITEM);
        for dimension_parts in parts {
            let mut next =
                Vec::with_capacity((combined.len() * dimension_parts.len()).min(MAX_GROUPS_PER_ITEM));
            for prefix in &combined {
                for part in dimension_parts.iter().take(MAX_GROUPS_PER_ITEM - next.len()) {
                    let mut parts = prefix.clone();
                    parts.push(part.clone());
                    next.push(parts);
                }
            }
            combined = next;
        }
        let mut groups: Vec<u32> = combined.into_iter().map(|parts| self.group(parts)).collect();
        if self.memberships.len() >= MAX_MEMBERSHIPS && !self.numbers.contains_key(&groups) {
            self.is_cut = true;
            groups = vec![OTHERS];
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
            return OTHERS;
        }
        if self.groups.len() >= MAX_GROUPS {
            self.is_full = true;
            return OTHERS;
        }
        let group = u32::try_from(self.groups.len()).unwrap_or(OTHERS);
        self.groups.insert(parts, group);
        self.ranks.push(Sums::default());
        if self.cells.fits(self.groups.len()) {
            self.cells.grow(self.groups.len());
        }
        group
    }

    /// Returns the number of an item with these facts, or [`REJECTED`] if the filter rejects it. `parts` returns its groups
    /// in one dimension.
    fn number_with(
        &mut self,
        facts: &Facts<'_>,
        parts: impl Fn(Dimension, PartContext<'_>) -> Vec<Part>,
    ) -> u32 {
        let query = &self.query;
        if let Some(condition) = &query.condition
            && !condition.matches(facts)
        {
            return REJECTED;
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

/// Returns the sums with `None` in unknown columns.
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
        self.others = vec![Sums::default(); columns];
        self.total = vec![Sums::default(); columns];
        self.seen = vec![false; columns];
        // Number 0 is [`REJECTED`], which belongs to no group.
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
        // The cache key omits what the query does not distinguish, so that more flows share an entry.
        let key_path = if by_path { path.to_vec() } else { Vec::new() };
        let key = (by_flow.then_some(*flow), key_path);
        if let Some(number) = self.flow_numbers.get(&key) {
            return *number;
        }
        let number = self.number_flow(flow, path);
        if self.flow_numbers.len() < MAX_CACHED_ITEMS {
            self.flow_numbers.insert(key, number);
        }
        number
    }

    fn event(&mut self, event: &EventGroup) -> u32 {
        // Only events of which no other part is needed are cached; their group depends on the flow alone.
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
            && self.event_numbers.len() < MAX_CACHED_ITEMS
        {
            self.event_numbers.insert(flow, number);
        }
        number
    }

    fn flow_class(&mut self, flow: &FlowKey) -> Option<u32> {
        let classes = self.flow_classes.as_mut()?;
        let context = PartContext {
            prefixes: self.query.prefixes,
            labels: &self.query.labels,
        };
        let by = self.query.by.iter().filter(|dimension| dimension.is_of_flow());
        let parts: Vec<Part> = by.map(|dimension| dimension.key_part(flow, context)).collect();
        if let Some(number) = classes.get(&parts) {
            return Some(*number);
        }
        if classes.len() >= MAX_GROUPS {
            return None;
        }
        let next = u32::try_from(classes.len()).ok()?;
        classes.insert(parts, next);
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
        if number == REJECTED || column >= self.columns.count() {
            return;
        }
        let Some(groups) = self.memberships.get(number as usize) else {
            return;
        };
        self.total[column].add(sum);
        for group in groups {
            if *group == OTHERS {
                self.others[column].add(sum);
                continue;
            }
            self.cells.add(*group, column, sum);
            if !self.is_closed {
                self.ranks[*group as usize].add(sum);
            }
        }
    }
}
