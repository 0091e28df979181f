//! Traffic over time, stacked by what a person chooses: which dimensions there are, in which groups a flow, an event or a queue is, and the sums
//! of the greatest groups and of the others.

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
pub use self::sums::{Group, Stacks, Sums, Traffic};

/// What is added up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Measure {
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
pub enum Source {
    /// Rollups of flows.
    Flows,
    /// Events.
    Events,
    /// Rollups of nodes, queues and links.
    Series,
}

/// What is asked.
#[derive(Clone, Debug)]
pub struct TrafficQuestion {
    /// From when until when.
    pub span: (u64, u64),
    /// The time now.
    pub now: u64,
    /// At most so many columns.
    pub columns: u64,
    /// What is added up.
    pub measure: Measure,
    /// By what: one to three.
    pub by: Vec<Dimension>,
    /// Lengths of prefixes.
    pub prefixes: Prefixes,
    /// So many groups are kept apart in the answer.
    pub top: usize,
    /// Only what it matches.
    pub condition: Option<Arc<Filter>>,
    /// Labels of nodes in the inventory.
    pub labels: Arc<BTreeMap<u32, Vec<String>>>,
}

/// What is needed of an address.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Default, Debug)]
pub enum Needed {
    /// Nothing.
    #[default]
    Nothing,
    /// Its prefix.
    Prefix,
    /// All of it.
    All,
}

/// What is needed of flows: flows that are the same in it are one.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct FlowParts {
    /// The whole flow.
    pub all: bool,
    /// The source address.
    pub src: Needed,
    /// The destination address.
    pub dst: Needed,
    /// The source port.
    pub src_port: bool,
    /// The destination port.
    pub dst_port: bool,
    /// The protocol.
    pub proto: bool,
}

impl FlowParts {
    fn add(&mut self, other: Self) {
        self.all |= other.all;
        let greater = |one: Needed, other: Needed| if one < other { other } else { one };
        (self.src, self.dst) = (greater(self.src, other.src), greater(self.dst, other.dst));
        self.src_port |= other.src_port;
        self.dst_port |= other.dst_port;
        self.proto |= other.proto;
    }

    fn of_dimension(dimension: Dimension) -> Self {
        let none = Self::default();
        match dimension {
            Dimension::Src => Self {
                src: Needed::All,
                ..none
            },
            Dimension::Dst => Self {
                dst: Needed::All,
                ..none
            },
            Dimension::SrcPrefix => Self {
                src: Needed::Prefix,
                ..none
            },
            Dimension::DstPrefix => Self {
                dst: Needed::Prefix,
                ..none
            },
            Dimension::SrcPort => Self {
                src_port: true,
                ..none
            },
            Dimension::DstPort => Self {
                dst_port: true,
                ..none
            },
            Dimension::Port => Self {
                src_port: true,
                dst_port: true,
                ..none
            },
            Dimension::Proto => Self { proto: true, ..none },
            Dimension::Flow => Self { all: true, ..none },
            _ => none,
        }
    }

    fn of_field(field: Field) -> Self {
        let none = Self::default();
        match field {
            Field::Src => Self {
                src: Needed::All,
                ..none
            },
            Field::Dst => Self {
                dst: Needed::All,
                ..none
            },
            Field::Host => Self {
                src: Needed::All,
                dst: Needed::All,
                ..none
            },
            Field::SrcPort => Self {
                src_port: true,
                ..none
            },
            Field::DstPort => Self {
                dst_port: true,
                ..none
            },
            Field::Port => Self {
                src_port: true,
                dst_port: true,
                ..none
            },
            Field::Proto => Self { proto: true, ..none },
            // What a flow sent is known by the flow.
            Field::Flow | Field::Reports | Field::Value(_) => Self { all: true, ..none },
            _ => none,
        }
    }
}

impl Measure {
    /// All.
    pub const ALL: [Self; 7] = [
        Self::Reports,
        Self::Events,
        Self::FlowLatency,
        Self::Of(Metric::HopLatency),
        Self::Of(Metric::QueueOccupancy),
        Self::Of(Metric::QueueCongestion),
        Self::Of(Metric::LinkUtilization),
    ];

    /// The name in the API.
    pub fn name(self) -> &'static str {
        match self {
            Self::Reports => "reports",
            Self::Events => "events",
            Self::FlowLatency => Metric::FlowLatency.name(),
            Self::Of(metric) => metric.name(),
        }
    }

    /// Where its values come from.
    pub fn source(self) -> Source {
        match self {
            Self::Reports | Self::FlowLatency => Source::Flows,
            Self::Events => Source::Events,
            Self::Of(_) => Source::Series,
        }
    }

    /// Whether values are numbers of something, which can be stacked.
    pub fn is_count(self) -> bool {
        matches!(self, Self::Reports | Self::Events)
    }

    /// The unit of its values.
    pub fn unit(self) -> &'static str {
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
        use Dimension::{Interface, Kind, Label, Link, Metric as OfMetric, Node, Queue, Reason, Rule};
        match self.source() {
            Source::Flows => !matches!(dimension, Queue | Interface | Kind | OfMetric | Rule | Reason),
            Source::Events => dimension != Link,
            Source::Series => match dimension {
                Node | Label => true,
                Queue => matches!(self, Self::Of(Metric::QueueOccupancy | Metric::QueueCongestion)),
                Interface => self == Self::Of(Metric::LinkUtilization),
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

impl Reader {
    /// Adds up what the store has, once more if there are more groups than there is room for.
    ///
    /// # Errors
    /// The files cannot be read, or it takes longer than 10 s.
    pub fn traffic(&self, question: &Arc<TrafficQuestion>) -> Result<Traffic, QueryError> {
        let columns = match question.measure.source() {
            Source::Flows => self
                .flow_columns(question.span, question.columns)?
                .until(question.known_to()),
            Source::Events | Source::Series => Columns::of(question.span, question.column()),
        };
        let (sums, has_more) = match question.by_sum() {
            true => self.flow_sums(Span::of(columns.from(), columns.to()))?,
            false => (HashMap::new(), false),
        };
        let mut stacks = Stacks::new(Arc::clone(question), columns, sums);
        let mut counted = self.added_up(question, &columns, &mut stacks)?;
        if question.measure.source() == Source::Series && columns.column() < MINUTE && stacks.is_empty() {
            // Rollups of seconds may be off, and those of minutes on.
            let columns = Columns::of(question.span, MINUTE);
            stacks = Stacks::new(Arc::clone(question), columns, HashMap::new());
            counted = self.added_up(question, &columns, &mut stacks)?;
        }
        counted.truncated |= has_more;
        Ok(stacks.answer(counted))
    }

    fn added_up(
        &self,
        question: &TrafficQuestion,
        columns: &Columns,
        stacks: &mut Stacks,
    ) -> Result<Counted, QueryError> {
        loop {
            let counted = match question.measure {
                Measure::Reports | Measure::FlowLatency => {
                    self.flow_traffic(columns, question.by_path(), stacks)?
                }
                Measure::Events => self.event_traffic(columns, question.event_parts(), stacks)?,
                Measure::Of(metric) => self.series_traffic(columns, metric, stacks)?,
            };
            if !stacks.wants_more() {
                return Ok(counted);
            }
        }
    }
}

impl TrafficQuestion {
    fn fields(&self) -> Vec<Field> {
        self.condition.as_deref().map(Filter::fields).unwrap_or_default()
    }

    /// Dimensions and fields that what is added up does not have: all of it is in the group of what is unknown, or nothing matches.
    pub fn lacks(&self) -> Vec<&'static str> {
        let dimensions = self
            .by
            .iter()
            .filter(|one| !self.measure.has(**one))
            .map(|one| one.name());
        let fields = self
            .fields()
            .into_iter()
            .filter(|field| !self.measure.answers(*field));
        let mut lacks: Vec<&str> = dimensions.chain(fields.map(Field::name)).collect();
        lacks.dedup();
        lacks
    }

    /// Whether one value may be in several groups: a report is in each node of its flow's path.
    pub fn overlaps(&self) -> bool {
        let is_several = |one: &Dimension| match self.measure.source() {
            Source::Flows => matches!(one, Dimension::Node | Dimension::Link | Dimension::Label),
            Source::Events | Source::Series => *one == Dimension::Label,
        };
        self.by.iter().any(is_several)
    }

    /// Whether the paths of flows are needed.
    pub fn by_path(&self) -> bool {
        let dimension = |one: &Dimension| {
            matches!(
                one,
                Dimension::Path | Dimension::Node | Dimension::Link | Dimension::Label
            )
        };
        self.by.iter().any(dimension) || self.condition.as_deref().is_some_and(Filter::asks_nodes)
    }

    /// Whether sums of flows in the whole span are needed.
    pub fn by_sum(&self) -> bool {
        let is_sum = |field: &Field| matches!(field, Field::Reports | Field::Value(Metric::FlowLatency));
        self.measure.source() == Source::Flows && self.fields().iter().any(is_sum)
    }

    /// Whether the filter asks which flow it is.
    fn filters_flows(&self) -> bool {
        use Field::{Dst, DstPort, Flow, Host, Port, Proto, Src, SrcPort};
        let of_flow =
            |field: &Field| matches!(field, Src | Dst | Host | SrcPort | DstPort | Port | Proto | Flow);
        self.fields().iter().any(of_flow)
    }

    /// What is needed of flows.
    pub fn flow_parts(&self) -> FlowParts {
        let mut parts = FlowParts::default();
        self.by
            .iter()
            .for_each(|one| parts.add(FlowParts::of_dimension(*one)));
        self.fields()
            .into_iter()
            .for_each(|field| parts.add(FlowParts::of_field(field)));
        parts
    }

    /// The same without a condition: for what was chosen before.
    pub fn unconditional(&self) -> Self {
        Self {
            condition: None,
            ..self.clone()
        }
    }

    /// What is needed of events.
    pub fn event_parts(&self) -> EventParts {
        let by = |wanted: &[Dimension]| self.by.iter().any(|one| wanted.contains(one));
        let fields = self.fields();
        let asks = |wanted: &[Field]| fields.iter().any(|field| wanted.contains(field));
        EventParts {
            flow: self.by.iter().any(|one| one.is_of_flow()) || self.filters_flows(),
            path: by(&[Dimension::Path]) || asks(&[Field::Path, Field::Hops]),
            place: by(&[
                Dimension::Node,
                Dimension::Label,
                Dimension::Queue,
                Dimension::Interface,
            ]) || asks(&[Field::Node, Field::Queue, Field::Interface]),
            metric: by(&[Dimension::Metric]) || asks(&[Field::Metric]),
            cause: by(&[Dimension::Rule, Dimension::Reason]) || asks(&[Field::Rule, Field::Reason]),
            values: fields.iter().any(|field| matches!(field, Field::Value(_))),
            any_kind: !by(&[Dimension::Kind]) && !asks(&[Field::Kind]),
        }
    }

    /// The length of a column of events, or of values of nodes: as long as it must be, at whole multiples.
    pub fn column(&self) -> u64 {
        let length = self.span.1.saturating_sub(self.span.0);
        let least = length.div_ceil(self.columns.saturating_sub(1).max(1));
        // Of nodes there is a row for each second: beyond half an hour, those of minutes are enough.
        let is_long = self.measure.source() == Source::Series && length > 30 * MINUTE;
        let least = if is_long { least.max(MINUTE) } else { least };
        let short = COLUMNS.into_iter().map(|seconds| seconds * SECOND);
        short
            .into_iter()
            .find(|column| *column >= least)
            .unwrap_or_else(|| least.div_ceil(DAY) * DAY)
    }

    /// Until when everything has been stored. Reports of flows are stored by the minute, after its end.
    pub fn known_to(&self) -> u64 {
        match self.measure.source() {
            Source::Flows => reports_known_to(self.now),
            Source::Events | Source::Series => self.now,
        }
    }
}

/// Until when, ns, the reports of flows have been stored: whole minutes, some time after their end.
pub fn reports_known_to(now: u64) -> u64 {
    now.saturating_sub(LATE) / MINUTE * MINUTE
}

const DAY: u64 = 86_400 * SECOND;
/// How long after the end of a minute the last of its reports have been stored: flows are visited once in 30 s at most, and batches written
/// once a second.
const LATE: u64 = 35 * SECOND;
/// Lengths of columns, seconds.
const COLUMNS: [u64; 18] = [
    1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 10_800, 21_600, 43_200, 86_400,
];

#[cfg(test)]
mod tests;
