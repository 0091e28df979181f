//! Grouped time series: sums a measure (reports, latency, events, a metric) per time column, by one to three
//! dimensions.
//!
//! The page *Traffic* asks for them with a [`TrafficQuery`]. The answer has the `top` largest groups, and one sum of
//! all other groups.

mod dimension;
mod sums;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use detect::Metric;
use filter::{Field, Filter};

use crate::query::QueryError;
use crate::reader::Reader;
use crate::spans::{MINUTE, SECOND, Span};
use crate::traffic::{Columns, Counted, EventParts};

pub use self::dimension::{Dimension, Part, Prefixes};
pub use self::sums::{Group, Grouping, Sums, Traffic};

const DAY: u64 = 86_400 * SECOND;
/// Delay after the end of a minute until its last reports have been stored, ns: each flow is visited at least every 30 s, and
/// batches are committed at least every 5 s.
const MAX_REPORT_DELAY: u64 = 40 * SECOND;
/// Lengths of columns, seconds.
const COLUMN_SECONDS: [u64; 18] = [
    1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 10_800, 21_600, 43_200, 86_400,
];

/// The values that are summed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Measure {
    /// The number of reports of flows.
    Reports,
    /// The latencies of flows.
    FlowLatency,
    /// The number of events.
    Events,
    /// Values of a metric of nodes, queues or links.
    Of(Metric),
}

/// The records that the values of a measure come from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Source {
    /// The rollups of flows.
    Flows,
    /// The events, one by one or from blocks.
    Events,
    /// Rollups of nodes, queues and links.
    Series,
}

/// A query about traffic over time.
#[derive(Clone, Debug)]
pub struct TrafficQuery {
    /// Start and end of the span, ns since 1970.
    pub span: (u64, u64),
    /// The present time, ns since 1970.
    pub now: u64,
    /// Maximum number of columns.
    pub columns: u64,
    /// The measure to sum.
    pub measure: Measure,
    /// The dimensions to group by: one to three.
    pub by: Vec<Dimension>,
    /// The lengths of prefixes, for dimensions that are prefixes.
    pub prefixes: Prefixes,
    /// Number of groups in the answer. All other groups are summed as one.
    pub top: usize,
    /// Filter that a record must match to be summed.
    pub condition: Option<Arc<Filter>>,
    /// The labels of nodes in the inventory.
    pub labels: Arc<BTreeMap<u32, Vec<String>>>,
}

/// The part of an address that a query needs.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Debug)]
pub enum Needed {
    /// The address is not needed.
    #[default]
    Nothing,
    /// The prefix of the address.
    Prefix,
    /// All bits of the address.
    All,
}

/// The parts of the flow key that a query needs. Flows that agree in them are summed together.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct FlowParts {
    /// All parts of the flow key.
    pub all: bool,
    /// The needed part of the source address.
    pub src: Needed,
    /// The needed part of the destination address.
    pub dst: Needed,
    /// The source port is needed.
    pub src_port: bool,
    /// The destination port is needed.
    pub dst_port: bool,
    /// The IP protocol is needed.
    pub proto: bool,
}

impl FlowParts {
    fn add_dimension(&mut self, dimension: Dimension) {
        match dimension {
            Dimension::Src => self.src = Needed::All,
            Dimension::Dst => self.dst = Needed::All,
            Dimension::SrcPrefix => self.src = self.src.max(Needed::Prefix),
            Dimension::DstPrefix => self.dst = self.dst.max(Needed::Prefix),
            Dimension::SrcPort => self.src_port = true,
            Dimension::DstPort => self.dst_port = true,
            Dimension::Port => {
                self.src_port = true;
                self.dst_port = true;
            }
            Dimension::Proto => self.proto = true,
            Dimension::Flow => self.all = true,
            _ => {}
        }
    }

    fn add_field(&mut self, field: Field) {
        match field {
            Field::Src => self.src = Needed::All,
            Field::Dst => self.dst = Needed::All,
            Field::Host => {
                self.src = Needed::All;
                self.dst = Needed::All;
            }
            Field::SrcPort => self.src_port = true,
            Field::DstPort => self.dst_port = true,
            Field::Port => {
                self.src_port = true;
                self.dst_port = true;
            }
            Field::Proto => self.proto = true,
            // The flow's sums are looked up by its whole key.
            Field::Flow | Field::Reports | Field::Value(_) => self.all = true,
            _ => {}
        }
    }
}

impl Measure {
    /// All measures, in the order in which they are offered.
    pub const ALL: [Self; 7] = [
        Self::Reports,
        Self::Events,
        Self::FlowLatency,
        Self::Of(Metric::HopLatency),
        Self::Of(Metric::QueueOccupancy),
        Self::Of(Metric::QueueCongestion),
        Self::Of(Metric::LinkUtilization),
    ];

    /// Returns the name in the API.
    pub fn name(self) -> &'static str {
        match self {
            Self::Reports => "reports",
            Self::Events => "events",
            Self::FlowLatency => Metric::FlowLatency.name(),
            Self::Of(metric) => metric.name(),
        }
    }

    /// Returns the records that its values come from.
    pub fn source(self) -> Source {
        match self {
            Self::Reports | Self::FlowLatency => Source::Flows,
            Self::Events => Source::Events,
            Self::Of(_) => Source::Series,
        }
    }

    /// Returns true if values are counts, which can be stacked.
    pub fn is_count(self) -> bool {
        matches!(self, Self::Reports | Self::Events)
    }

    /// Returns the unit of its values.
    pub fn unit(self) -> &'static str {
        match self {
            Self::Reports => "reports",
            Self::Events => "events",
            Self::FlowLatency | Self::Of(Metric::HopLatency) => "ns",
            Self::Of(Metric::LinkUtilization) => "millionths",
            Self::Of(_) => "as the device counts",
        }
    }

    /// Returns true if the values have this dimension.
    fn has_dimension(self, dimension: Dimension) -> bool {
        use Dimension::{Interface, Kind, Label, Link, Metric as EventMetric, Node, Queue, Reason, Rule};
        match self.source() {
            Source::Flows => !matches!(dimension, Queue | Interface | Kind | EventMetric | Rule | Reason),
            Source::Events => dimension != Link,
            Source::Series => match dimension {
                Node | Label => true,
                Queue => matches!(self, Self::Of(Metric::QueueOccupancy | Metric::QueueCongestion)),
                Interface => self == Self::Of(Metric::LinkUtilization),
                _ => false,
            },
        }
    }

    /// Returns true if the values have this field.
    fn has_field(self, field: Field) -> bool {
        match self.source() {
            Source::Flows => !matches!(
                field,
                Field::Value(
                    Metric::HopLatency
                        | Metric::QueueOccupancy
                        | Metric::QueueCongestion
                        | Metric::LinkUtilization
                        | Metric::FlowPath
                )
            ),
            Source::Events => true,
            Source::Series => match field {
                Field::Node | Field::Metric => true,
                Field::Queue => self.has_dimension(Dimension::Queue),
                Field::Interface => self.has_dimension(Dimension::Interface),
                _ => false,
            },
        }
    }
}

impl Reader {
    /// Answers a query. If there are more groups than the limit, the files are read a second time for the largest ones.
    ///
    /// # Errors
    /// The files cannot be read, or it takes longer than 10 s.
    pub fn traffic(&self, query: &Arc<TrafficQuery>) -> Result<Traffic, QueryError> {
        let columns = match query.measure.source() {
            Source::Flows => self
                .flow_columns(query.span, query.columns)?
                .until(query.known_to()),
            Source::Events | Source::Series => Columns::new(query.span.0, query.span.1, query.column()),
        };
        let (sums, has_more) = if query.needs_sums() {
            self.flow_sums(Span::new(columns.from(), columns.to()))?
        } else {
            (HashMap::new(), false)
        };
        let mut grouping = Grouping::new(Arc::clone(query), columns, sums);
        let mut counted = self.add_up(query, &columns, &mut grouping)?;
        if query.measure.source() == Source::Series && columns.column() < MINUTE && grouping.is_empty() {
            // One-second rollups may be disabled while one-minute rollups are stored.
            let columns = Columns::new(query.span.0, query.span.1, MINUTE);
            grouping = Grouping::new(Arc::clone(query), columns, HashMap::new());
            counted = self.add_up(query, &columns, &mut grouping)?;
        }
        counted.truncated |= has_more;
        Ok(grouping.answer(counted))
    }

    /// Sums the values in the files. Reads them again, for the largest groups only, if there were too many groups.
    fn add_up(
        &self,
        query: &TrafficQuery,
        columns: &Columns,
        grouping: &mut Grouping,
    ) -> Result<Counted, QueryError> {
        loop {
            let counted = match query.measure {
                Measure::Reports | Measure::FlowLatency => {
                    self.flow_traffic(columns, query.needs_paths(), grouping)?
                }
                Measure::Events => self.event_traffic(columns, query.event_parts(), grouping)?,
                Measure::Of(metric) => self.series_traffic(columns, metric, grouping)?,
            };
            if !grouping.begin_second_pass() {
                return Ok(counted);
            }
        }
    }
}

impl TrafficQuery {
    fn fields(&self) -> Vec<Field> {
        self.condition.as_deref().map(Filter::fields).unwrap_or_default()
    }

    /// Returns the dimensions and fields that the measure lacks. By such a dimension, all values are in the unknown
    /// group; a condition on such a field matches nothing.
    pub fn lacks(&self) -> Vec<&'static str> {
        let mut lacks = Vec::new();
        for dimension in &self.by {
            if !self.measure.has_dimension(*dimension) {
                lacks.push(dimension.name());
            }
        }
        for field in self.fields() {
            if !self.measure.has_field(field) {
                lacks.push(field.name());
            }
        }
        lacks.dedup();
        lacks
    }

    /// Returns true if one value may count in several groups: a report counts for each node on its flow's path.
    pub fn overlaps(&self) -> bool {
        let overlapping: &[Dimension] = match self.measure.source() {
            Source::Flows => &[Dimension::Node, Dimension::Link, Dimension::Label],
            Source::Events | Source::Series => &[Dimension::Label],
        };
        self.groups_by(overlapping)
    }

    /// Returns true if the query groups by one of these dimensions.
    fn groups_by(&self, dimensions: &[Dimension]) -> bool {
        self.by.iter().any(|dimension| dimensions.contains(dimension))
    }

    /// Returns true if the paths of flows are needed.
    pub fn needs_paths(&self) -> bool {
        let of_paths = [
            Dimension::Path,
            Dimension::Node,
            Dimension::Link,
            Dimension::Label,
        ];
        self.groups_by(&of_paths) || self.condition.as_deref().is_some_and(Filter::asks_nodes)
    }

    /// Returns true if the filter tests sums of flows over the whole span, such as `reports > 100`.
    pub fn needs_sums(&self) -> bool {
        self.measure.source() == Source::Flows
            && self
                .fields()
                .iter()
                .any(|field| matches!(field, Field::Reports | Field::Value(Metric::FlowLatency)))
    }

    /// Returns true if the filter tests the flow key.
    fn filters_flows(&self) -> bool {
        use Field::{Dst, DstPort, Flow, Host, Port, Proto, Src, SrcPort};
        self.fields()
            .iter()
            .any(|field| matches!(field, Src | Dst | Host | SrcPort | DstPort | Port | Proto | Flow))
    }

    /// Returns the parts of flows that are needed.
    pub fn flow_parts(&self) -> FlowParts {
        let mut parts = FlowParts::default();
        for dimension in &self.by {
            parts.add_dimension(*dimension);
        }
        for field in self.fields() {
            parts.add_field(field);
        }
        parts
    }

    /// Returns the query without its condition, for flows that were selected before.
    pub fn unconditional(&self) -> Self {
        Self {
            condition: None,
            ..self.clone()
        }
    }

    /// Returns the parts of events that are needed.
    pub fn event_parts(&self) -> EventParts {
        let fields = self.fields();
        let locations = [
            Dimension::Node,
            Dimension::Label,
            Dimension::Queue,
            Dimension::Interface,
        ];
        EventParts {
            flow: self.by.iter().any(|dimension| dimension.is_of_flow()) || self.filters_flows(),
            path: self.groups_by(&[Dimension::Path]) || has_any(&fields, &[Field::Path, Field::Hops]),
            location: self.groups_by(&locations)
                || has_any(&fields, &[Field::Node, Field::Queue, Field::Interface]),
            metric: self.groups_by(&[Dimension::Metric]) || has_any(&fields, &[Field::Metric]),
            cause: self.groups_by(&[Dimension::Rule, Dimension::Reason])
                || has_any(&fields, &[Field::Rule, Field::Reason]),
            values: fields.iter().any(|field| matches!(field, Field::Value(_))),
            any_kind: !self.groups_by(&[Dimension::Kind]) && !has_any(&fields, &[Field::Kind]),
        }
    }

    /// Returns the length (ns) of a column for events or series: the shortest that gives at most the wanted number of columns.
    pub fn column(&self) -> u64 {
        let length = self.span.1.saturating_sub(self.span.0);
        let min_length = length.div_ceil(self.columns.saturating_sub(1).max(1));
        // Nodes have a rollup per second. Beyond half an hour, one-minute rollups are precise enough and far fewer.
        let is_long = self.measure.source() == Source::Series && length > 30 * MINUTE;
        let min_length = if is_long {
            min_length.max(MINUTE)
        } else {
            min_length
        };
        COLUMN_SECONDS
            .into_iter()
            .map(|seconds| seconds * SECOND)
            .find(|column| *column >= min_length)
            .unwrap_or_else(|| min_length.div_ceil(DAY) * DAY)
    }

    /// Returns the time until which all values have been stored, ns. Flow reports are stored per minute, after its end.
    pub fn known_to(&self) -> u64 {
        match self.measure.source() {
            Source::Flows => reports_known_to(self.now),
            Source::Events | Source::Series => self.now,
        }
    }
}

/// Returns the time, ns, until which all flow reports have been stored: whole minutes, 40 s after their end.
pub fn reports_known_to(now: u64) -> u64 {
    now.saturating_sub(MAX_REPORT_DELAY) / MINUTE * MINUTE
}

fn has_any(fields: &[Field], candidates: &[Field]) -> bool {
    fields.iter().any(|field| candidates.contains(field))
}

#[cfg(test)]
mod tests;
