//! Traffic over time, stacked by what a person chooses: which dimensions there are, in which groups a flow, an event or a queue is, and the sums
//! of the greatest groups and of the others.

mod dimension;
mod stacks;

use std::{collections::BTreeMap, sync::Arc};

use detect::Metric;
use filter::{Field, Filter};
use store::EventParts;

pub(crate) use self::{
    dimension::{Dimension, Part, Prefixes},
    stacks::{Stacks, Sums, Traffic},
};

/// What is added up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Measure {
    /// Reports of flows.
    Reports,
    /// Latencies of flows.
    FlowLatency,
    /// Events.
    Events,
    /// Values of nodes, queues or links.
    Of(Metric),
}

/// Where the values of a measure come from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Source {
    /// Rollups of flows.
    Flows,
    /// Events.
    Events,
    /// Rollups of nodes, queues and links.
    Series,
}

/// What is asked.
#[derive(Clone, Debug)]
pub(crate) struct TrafficQuestion {
    /// From when until when.
    pub(crate) span: (u64, u64),
    /// The time now.
    pub(crate) now: u64,
    /// At most so many columns.
    pub(crate) columns: u64,
    /// What is added up.
    pub(crate) measure: Measure,
    /// By what: one to three.
    pub(crate) by: Vec<Dimension>,
    /// Lengths of prefixes.
    pub(crate) prefixes: Prefixes,
    /// So many groups are kept apart in the answer.
    pub(crate) top: usize,
    /// Only what it matches.
    pub(crate) condition: Option<Arc<Filter>>,
    /// Labels of nodes in the inventory.
    pub(crate) labels: Arc<BTreeMap<u32, Vec<String>>>,
}

impl Measure {
    /// All.
    pub(crate) const ALL: [Self; 7] = [
        Self::Reports,
        Self::Events,
        Self::FlowLatency,
        Self::Of(Metric::HopLatency),
        Self::Of(Metric::QueueOccupancy),
        Self::Of(Metric::QueueCongestion),
        Self::Of(Metric::LinkUtilization),
    ];

    /// The name in the API.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Reports => "reports",
            Self::Events => "events",
            Self::FlowLatency => Metric::FlowLatency.name(),
            Self::Of(metric) => metric.name(),
        }
    }

    /// Where its values come from.
    pub(crate) fn source(self) -> Source {
        match self {
            Self::Reports | Self::FlowLatency => Source::Flows,
            Self::Events => Source::Events,
            Self::Of(_) => Source::Series,
        }
    }

    /// Whether values are numbers of something, which can be stacked.
    pub(crate) fn is_count(self) -> bool {
        matches!(self, Self::Reports | Self::Events)
    }

    /// The unit of its values.
    pub(crate) fn unit(self) -> &'static str {
        match self {
            Self::Reports => "reports",
            Self::Events => "events",
            Self::FlowLatency | Self::Of(Metric::HopLatency) => "ns",
            Self::Of(Metric::LinkUtilization) => "millionths",
            Self::Of(_) => "as the device counts",
        }
    }

    /// Whether what is added up has a dimension.
    fn has(self, dimension: Dimension) -> bool {
        use Dimension::{Interface, Kind, Label, Link, Metric as OfMetric, Node, Path, Queue, Reason, Rule};
        match self.source() {
            Source::Flows => !matches!(dimension, Queue | Interface | Kind | OfMetric | Rule | Reason),
            Source::Events => dimension != Link,
            Source::Series => match dimension {
                Node | Label => true,
                Queue => matches!(self, Self::Of(Metric::QueueOccupancy | Metric::QueueCongestion)),
                Interface => self == Self::Of(Metric::LinkUtilization),
                Path | Link => false,
                _ => false,
            },
        }
    }

    /// Whether what is added up has a field.
    fn answers(self, field: Field) -> bool {
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
                Field::Queue => self.has(Dimension::Queue),
                Field::Interface => self.has(Dimension::Interface),
                _ => false,
            },
        }
    }
}

impl TrafficQuestion {
    fn fields(&self) -> Vec<Field> {
        self.condition.as_deref().map(Filter::fields).unwrap_or_default()
    }

    /// Dimensions and fields that what is added up does not have: all of it is in the group of what is unknown, or nothing matches.
    pub(crate) fn lacks(&self) -> Vec<&'static str> {
        let dimensions = self.by.iter().filter(|one| !self.measure.has(**one)).map(|one| one.name());
        let fields = self.fields().into_iter().filter(|field| !self.measure.answers(*field));
        let mut lacks: Vec<&str> = dimensions.chain(fields.map(Field::name)).collect();
        lacks.dedup();
        lacks
    }

    /// Whether one value may be in several groups: a report is in each node of its flow's path.
    pub(crate) fn overlaps(&self) -> bool {
        let is_several = |one: &Dimension| match self.measure.source() {
            Source::Flows => matches!(one, Dimension::Node | Dimension::Link | Dimension::Label),
            Source::Events | Source::Series => *one == Dimension::Label,
        };
        self.by.iter().any(is_several)
    }

    /// Whether the paths of flows are needed.
    pub(crate) fn by_path(&self) -> bool {
        let dimension = |one: &Dimension| {
            matches!(one, Dimension::Path | Dimension::Node | Dimension::Link | Dimension::Label)
        };
        self.by.iter().any(dimension) || self.condition.as_deref().is_some_and(Filter::asks_nodes)
    }

    /// Whether sums of flows in the whole span are needed.
    pub(crate) fn by_sum(&self) -> bool {
        let is_sum = |field: &Field| matches!(field, Field::Reports | Field::Value(Metric::FlowLatency));
        self.measure.source() == Source::Flows && self.fields().iter().any(is_sum)
    }

    /// What is needed of events.
    pub(crate) fn event_parts(&self) -> EventParts {
        let by = |wanted: &[Dimension]| self.by.iter().any(|one| wanted.contains(one));
        let fields = self.fields();
        let asks = |wanted: &[Field]| fields.iter().any(|field| wanted.contains(field));
        let of_flow = |field: &Field| {
            use Field::{Dst, DstPort, Flow, Host, Port, Proto, Src, SrcPort};
            matches!(field, Src | Dst | Host | SrcPort | DstPort | Port | Proto | Flow)
        };
        EventParts {
            flow: self.by.iter().any(|one| one.is_of_flow()) || fields.iter().any(of_flow),
            path: by(&[Dimension::Path]) || asks(&[Field::Path, Field::Hops]),
            place: by(&[Dimension::Node, Dimension::Label, Dimension::Queue, Dimension::Interface])
                || asks(&[Field::Node, Field::Queue, Field::Interface]),
            metric: by(&[Dimension::Metric]) || asks(&[Field::Metric]),
            cause: by(&[Dimension::Rule, Dimension::Reason]) || asks(&[Field::Rule, Field::Reason]),
            values: fields.iter().any(|field| matches!(field, Field::Value(_))),
        }
    }

    /// The length of a column of events, or of values of nodes: as long as it must be, at whole multiples.
    pub(crate) fn column(&self) -> u64 {
        let length = self.span.1.saturating_sub(self.span.0);
        let least = length.div_ceil(self.columns.saturating_sub(1).max(1));
        let short = COLUMNS.into_iter().map(|seconds| seconds * SECOND);
        short.into_iter().find(|column| *column >= least).unwrap_or_else(|| least.div_ceil(DAY) * DAY)
    }

    /// Until when everything has been stored. Reports of flows are stored by the minute, after its end.
    pub(crate) fn known_to(&self) -> u64 {
        match self.measure.source() {
            Source::Flows => reports_known_to(self.now),
            Source::Events | Source::Series => self.now,
        }
    }
}

/// Until when, ns, the reports of flows have been stored: whole minutes, some time after their end.
pub(crate) fn reports_known_to(now: u64) -> u64 {
    now.saturating_sub(LATE) / MINUTE * MINUTE
}

const SECOND: u64 = 1_000_000_000;
const MINUTE: u64 = 60 * SECOND;
const DAY: u64 = 86_400 * SECOND;
/// How long after the end of a minute the last of its reports have been stored: flows are visited once in 30 s at most, and batches written
/// once a second.
const LATE: u64 = 35 * SECOND;
/// Lengths of columns, seconds.
const COLUMNS: [u64; 18] =
    [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 10_800, 21_600, 43_200, 86_400];

#[cfg(test)]
mod tests;
