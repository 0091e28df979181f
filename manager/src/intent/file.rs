//! Reads intents from TOML or JSON: the tables `[[intents]]` of a file, or one intent of a request to the API.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use detect::{Metric, PortRange, Prefix};
use settings::read::{ConfigError, Node, Reader, Value, is_written, node_at, span_of};
use settings::setting::{Chapter, Setting, Shown, tables};
use settings::values::{self, LatencyThreshold, Protocol, QueueThreshold, UtilizationThreshold};
use settings::{choice, section, time};

use super::{At, Intent, IntentError, MAX_INTENTS, Reporting, Scope, Then, Until};
use crate::budget::Budget;
use crate::device::{FilterAlgorithm, Mode};
use crate::flows::{Flows, Ports};

section! {
    /// A file of intents.
    struct IntentFile("the file") {
        /// Flows to measure, and how.
        pub(crate) intents: Vec<IntentSettings> = Vec::new(),
    }
}

section! {
    /// Flows to measure, and how.
    pub struct IntentSettings("[[intents]]") {
        /// The name: letters, digits, `.`, `_` and `-`; unique.
        pub(crate) name: String = String::new(),
        /// Flows to measure. Not set, or `"all"`: all.
        pub(crate) r#match: MatchSettings = MatchSettings::default(),
        /// Also the flows in the opposite direction.
        pub(crate) both_directions: bool = false,
        /// The metrics to measure.
        pub(crate) watch: Vec<MetricName> = Vec::new(),
        /// Mode of the measurement.
        pub(crate) mode: ModeSetting = ModeSetting::Auto,
        /// Share of packets to measure, as `"1 in 10"`. Of several intents for one flow, the largest share applies. If a device
        /// cannot sample, the intent is refused and names it.
        pub(crate) sample: Sample = Sample(1),
        /// Where. Not set: everywhere.
        pub(crate) at: AtSettings = AtSettings::default(),
        /// Reports, events and drill-downs.
        pub(crate) report: ReportingSettings = ReportingSettings::default(),
        /// Maximum reports and events per second, as `"2000 reports/s"`, `"50 events/s"` or both with a comma between. To keep the
        /// budget, the threshold is raised, and fewer packets are measured if `report.coarsest` has a `sample`. Not set: unlimited.
        pub(crate) budget: Option<BudgetSetting> = None,
        /// When it ends: a duration from now on, or a time as `"2026-11-24T08:00:00Z"`. Not set: never.
        pub(crate) until: Option<UntilSetting> = None,
        /// If several intents match a flow, the one with the greatest number determines the mode.
        pub(crate) priority: u32 = 100,
    }
}

section! {
    /// Flows. Each key is one value or a list; a flow matches if it matches each key.
    struct Keys("match") {
        /// Source networks or addresses.
        pub(crate) src: Several<Prefix> = Several::default(),
        /// Destination networks or addresses.
        pub(crate) dst: Several<Prefix> = Several::default(),
        /// Source ports or ranges of ports.
        pub(crate) sport: Several<Port> = Several::default(),
        /// Destination ports or ranges of ports.
        pub(crate) dport: Several<Port> = Several::default(),
        /// IP protocols, by name or number.
        pub(crate) proto: Several<Protocol> = Several::default(),
        /// DSCP, 0 to 63.
        pub(crate) dscp: Several<Dscp> = Several::default(),
    }
}

section! {
    /// Where an intent applies.
    struct AtSettings("at") {
        /// Names or labels of edge devices; `*` stands for any text.
        pub(crate) edges: Vec<String> = Vec::new(),
        /// Two hosts: only the flows between them.
        pub(crate) between: Several<String> = Several::default(),
    }
}

section! {
    /// Reports, events and drill-downs of an intent.
    struct ReportingSettings("report") {
        /// For each metric, the difference above which a change is significant.
        pub(crate) thresholds: ThresholdSettings = ThresholdSettings::default(),
        /// The coarsest detail that the budget may choose. Not set: 64 times the threshold, and the share of packets stays.
        pub(crate) coarsest: CoarsestSettings = CoarsestSettings::default(),
        /// A condition in the language of `[[rules]]`.
        pub(crate) rule: Option<String> = None,
        /// Algorithm by which the sinks select packets. Not set: they report all.
        pub(crate) filter: Option<FilterSetting> = None,
        /// Drill-down: what to measure in addition, for some time, when the rule becomes true.
        pub(crate) then: Option<ThenSettings> = None,
    }
}

section! {
    /// Thresholds, as in `[thresholds]`.
    struct ThresholdSettings("thresholds") {
        /// The difference of `flow_latency`.
        pub(crate) flow_latency: Option<LatencyThreshold> = None,
        /// The difference of `hop_latency`.
        pub(crate) hop_latency: Option<LatencyThreshold> = None,
        /// The difference of `queue_occupancy`.
        pub(crate) queue_occupancy: Option<QueueThreshold> = None,
        /// The difference of `queue_congestion`.
        pub(crate) queue_congestion: Option<QueueThreshold> = None,
        /// The difference of `link_utilization`.
        pub(crate) link_utilization: Option<UtilizationThreshold> = None,
    }
}

section! {
    /// The coarsest acceptable detail: thresholds as in `thresholds`, and the smallest share of packets.
    struct CoarsestSettings("coarsest") {
        /// The greatest difference of `flow_latency`.
        pub(crate) flow_latency: Option<LatencyThreshold> = None,
        /// The greatest difference of `hop_latency`.
        pub(crate) hop_latency: Option<LatencyThreshold> = None,
        /// The greatest difference of `queue_occupancy`.
        pub(crate) queue_occupancy: Option<QueueThreshold> = None,
        /// The greatest difference of `queue_congestion`.
        pub(crate) queue_congestion: Option<QueueThreshold> = None,
        /// The greatest difference of `link_utilization`.
        pub(crate) link_utilization: Option<UtilizationThreshold> = None,
        /// The share of packets, as `"1 in 100"`. Once the threshold has reached its limit, fewer packets are measured.
        pub(crate) sample: Option<Sample> = None,
    }
}

section! {
    /// A drill-down: additional metrics for some time.
    struct ThenSettings("then") {
        /// The additional metrics to measure.
        pub(crate) watch: Vec<MetricName> = Vec::new(),
        /// Flows to which it applies.
        pub(crate) r#match: Scope = Scope::Flow,
        /// Duration of the drill-down.
        pub(crate) r#for: Duration = Duration::from_secs(30),
    }
}

choice! {
    /// Mode of a measurement.
    enum ModeSetting("\"auto\", \"md\", \"mx\", \"postcard\" or \"sf\"") {
        /// The cheapest that gives what is watched.
        Auto = "auto",
        /// INT-MD: packets collect the metadata.
        Md = "md",
        /// INT-MX: packets carry the instructions.
        Mx = "mx",
        /// INT-XD: packets are unchanged.
        Postcard = "postcard",
        /// SF-INT: packets carry a part of the metadata.
        Sf = "sf",
    }
}

choice! {
    /// Algorithm by which sinks select packets.
    enum FilterSetting("\"per_hop\", \"per_flow\", \"change\" or \"rule\"") {
        /// A node's value has changed.
        PerHop = "per_hop",
        /// A flow's value has changed.
        PerFlow = "per_flow",
        /// The path, or a bucket of latency or queue, has changed.
        Change = "change",
        /// `rule` is true, or was true for the flow's previous packet.
        Rule = "rule",
    }
}

/// The setting `match`: a table of keys, or `"all"`.
#[derive(Clone, Debug, Default, PartialEq)]
struct MatchSettings(Keys);

impl Setting for MatchSettings {
    const KIND: &'static str = "a table such as { dst = \"10.20.0.0/16\", proto = \"tcp\" }, or \"all\"";

    fn read(node: &Node<'_>, reader: &mut Reader<'_>) -> Option<Self> {
        match node.get_ref() {
            Value::Table(_) => Keys::read(node, reader).map(Self),
            Value::String(word) if word == "all" => Some(Self::default()),
            _ => values::refuse(node, reader),
        }
    }

    fn show(&self) -> Shown {
        self.0.show()
    }

    fn explain(path: &str, chapters: &mut Vec<Chapter>) {
        Keys::explain(path, chapters);
    }
}

/// A setting that is written as one value or as a list.
#[derive(Clone, Debug, PartialEq)]
struct Several<T>(Vec<T>);

impl<T> Default for Several<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T: Setting> Setting for Several<T> {
    const KIND: &'static str = T::KIND;

    fn read(node: &Node<'_>, reader: &mut Reader<'_>) -> Option<Self> {
        match node.get_ref() {
            Value::Array(list) if list.is_empty() => {
                reader.refuse(
                    node.span(),
                    "an empty list matches nothing; remove the key to match everything",
                );
                None
            }
            Value::Array(_) => Vec::<T>::read(node, reader).map(Self),
            _ => T::read(node, reader).map(|one| Self(vec![one])),
        }
    }

    fn show(&self) -> Shown {
        // An empty list would be refused when the shown text is read again.
        if self.0.is_empty() {
            Shown::Nothing
        } else {
            self.0.show()
        }
    }
}

/// Declares a setting that is parsed from a string or an integer.
macro_rules! text_setting {
    ($(#[doc = $doc:literal])+ $visible:vis $name:ident($inner:ty): $kind:literal, $parse:expr, $show:expr) => {
        $(#[doc = $doc])+
        #[derive(Clone, Debug, PartialEq)]
        $visible struct $name($visible $inner);

        impl Setting for $name {
            const KIND: &'static str = $kind;

            fn read(node: &Node<'_>, reader: &mut Reader<'_>) -> Option<Self> {
                let parse: fn(&str) -> Option<$inner> = $parse;
                let text = match node.get_ref() {
                    Value::String(text) => Some(text.to_string()),
                    other => values::integer(other).map(|number| number.to_string()),
                };
                text.and_then(|text| parse(&text)).map(Self).or_else(|| values::refuse(node, reader))
            }

            fn show(&self) -> Shown {
                let show: fn(&$inner) -> String = $show;
                Shown::Plain(show(&self.0).into())
            }
        }
    };
}

text_setting! {
    /// The name of a metric.
    MetricName(Metric): "\"flow_path\", \"flow_latency\", \"hop_latency\", \"queue_occupancy\", \"queue_congestion\" or \"link_utilization\"",
    Metric::from_name,
    |metric| metric.name().to_owned()
}
text_setting! {
    /// A port or a range.
    Port(PortRange): "a port such as \"443\", or a range, the lower one first, such as \"8000-8999\"; up to 65535",
    |text| text.parse().ok(),
    PortRange::to_string
}
text_setting! {
    /// A DSCP from 0 to 63.
    Dscp(u8): "a DSCP from 0 to 63",
    |text| text.parse().ok().filter(|dscp| *dscp < 64),
    u8::to_string
}
text_setting! {
    /// A share of packets.
    Sample(u32): "\"1 in 10\" or another whole number from 1",
    |text| text.strip_prefix("1 in ")?.trim().parse().ok().filter(|n| *n > 0),
    |n| format!("1 in {n}")
}
text_setting! {
    /// The rates that a budget limits, per second.
    pub BudgetSetting(Budget): "rates above 0: \"2000 reports/s\", \"50 events/s\", or both as \"2000 reports/s, 50 events/s\"",
    |text| text.parse().ok(),
    Budget::to_string
}
text_setting! {
    /// The end of an intent, as a duration or a time.
    UntilSetting(Until): "a duration above 0 such as \"2h\", a date, or a time such as \"2026-11-24T08:00:00Z\"",
    |text| {
        let length = values::nanoseconds(text).filter(|length| *length > 0).map(Until::After);
        length.or_else(|| time::nanoseconds(text).map(Until::At))
    },
    |until| match until {
        Until::After(length) => values::duration_text(*length),
        Until::At(time) => time::text(*time),
    }
}

/// Reads a file of intents. `file` is its name in messages, `now` the time in ns since 1970.
///
/// # Errors
/// [`ConfigError`], which lists every problem with its line and a fix.
pub fn read(text: &str, file: &str, now: u64) -> Result<Vec<Intent>, ConfigError> {
    let settings = read_settings(text, file, now)?;
    Ok(settings.iter().map(IntentSettings::intent).collect())
}

/// Reads a file of intents like [`read`], but returns its checked tables.
///
/// # Errors
/// [`ConfigError`], which lists every problem with its line and a fix.
pub fn read_settings(text: &str, file: &str, now: u64) -> Result<Vec<IntentSettings>, ConfigError> {
    let mut reader = Reader::new(text);
    let mut intents = Vec::new();
    if let Some(root) = reader.parse(tables::<IntentFile>)
        && let Some(settings) = IntentFile::read(&root, &mut reader)
        && reader.has_no_problems()
    {
        // Called for the problems that it reports. Callers build the intents from the tables.
        build_and_check(&settings.intents, &root, &mut reader, now);
        intents = settings.intents;
    }
    reader.finish(file).map(|()| intents)
}

/// Reads one intent from a table with the keys of `[[intents]]`, from TOML or JSON. `now` is in ns since 1970.
///
/// # Errors
/// All problems, joined into one message.
pub fn read_one(table: &Node<'_>, now: u64) -> Result<Intent, String> {
    let mut reader = Reader::new("").with_tables(tables::<IntentFile>);
    let settings = IntentSettings::read(table, &mut reader).filter(|_| reader.has_no_problems());
    let intent = settings.map(|settings| {
        let intent = settings.intent();
        refuse_problems(&settings, &intent, table, &mut reader, now);
        intent
    });
    let problems = reader.messages_by_key(table).into_iter();
    let problems: Vec<String> = problems
        .map(|(keys, message)| {
            // A message about a value does not name its key; add it.
            if message.starts_with("found ") && !keys.is_empty() {
                format!("`{}`: {message}", keys.join("."))
            } else {
                message
            }
        })
        .collect();
    match intent {
        Some(intent) if problems.is_empty() => Ok(intent),
        _ => Err(problems.join("; ")),
    }
}

/// Builds and checks the intents of `[[intents]]` in a file that has other tables as well. `root` is the whole file, where
/// `reader` locates the problems.
pub fn build_and_check(
    settings: &[IntentSettings],
    root: &Node<'_>,
    reader: &mut Reader<'_>,
    now: u64,
) -> Vec<Intent> {
    let mut intents = Vec::new();
    let mut names = BTreeSet::new();
    for (index, settings) in settings.iter().enumerate() {
        let table = node_at(root, &["intents", &index.to_string()]);
        let intent = settings.intent();
        if refuse_problems(settings, &intent, table, reader, now) && !names.insert(intent.name.clone()) {
            let message = format!("two intents are named `{}`; rename one", intent.name);
            reader.refuse(span_of(table, &["name"]), message);
        }
        intents.push(intent);
    }
    if intents.len() > MAX_INTENTS {
        reader.refuse(
            root.span(),
            format!("there are more than {MAX_INTENTS} intents; use wider prefixes"),
        );
    }
    intents
}

/// Returns the reference chapters about the keys of an intent.
pub fn chapters() -> Vec<Chapter> {
    let mut chapters = Vec::new();
    Vec::<IntentSettings>::explain("intents", &mut chapters);
    chapters
}

/// Returns the key to which an error belongs.
fn key_of(error: &IntentError) -> &'static str {
    match error {
        IntentError::BadName(_) => "name",
        IntentError::NothingWatched | IntentError::Congestion => "watch",
        IntentError::Flows(_) => "match",
        IntentError::NoSample => "sample",
        IntentError::Expired => "until",
        IntentError::BudgetWithoutBounds | IntentError::EventBudgetWithoutBounds => "budget",
        _ => "report",
    }
}

/// Reports the problems of an intent that was read from `table`. Returns whether it has none, not counting a problem of
/// `between`: such an intent still has a valid name, which the caller compares with the others.
fn refuse_problems(
    settings: &IntentSettings,
    intent: &Intent,
    table: &Node<'_>,
    reader: &mut Reader<'_>,
    now: u64,
) -> bool {
    if intent.at.between.is_none() && !settings.at.between.0.is_empty() {
        reader.refuse(
            span_of(table, &["at", "between"]),
            "`between` is for two different hosts; write between = [\"h1\", \"h9\"]",
        );
    }
    // If no metric in the list is valid, each one was reported already.
    if is_written(table, &["watch", "0"]) && settings.watch.is_empty() {
        return false;
    }
    let checked = intent.check(now);
    if let Err(error) = &checked {
        reader.refuse(span_of(table, &[key_of(error)]), error.to_string());
    }
    checked.is_ok()
}

impl IntentSettings {
    /// Returns the intent that these settings describe, unchecked.
    pub fn intent(&self) -> Intent {
        let keys = &self.r#match.0;
        let ReportingSettings {
            thresholds,
            coarsest,
            rule,
            filter,
            then,
        } = &self.report;
        Intent {
            name: self.name.clone(),
            flows: Flows {
                src: keys.src.0.clone(),
                dst: keys.dst.0.clone(),
                sport: bounds(&keys.sport),
                dport: bounds(&keys.dport),
                proto: keys.proto.0.iter().map(|proto| proto.0).collect(),
                dscp: keys.dscp.0.iter().map(|dscp| dscp.0).collect(),
            },
            both_directions: self.both_directions,
            watch: metrics(&self.watch),
            mode: Mode::from_name(self.mode.name()),
            sample: self.sample.0,
            at: At {
                edges: self.at.edges.clone(),
                between: match self.at.between.0.as_slice() {
                    [a, b] if a != b => Some((a.clone(), b.clone())),
                    _ => None,
                },
            },
            reporting: Reporting {
                thresholds: amounts([
                    thresholds.flow_latency.map(|amount| amount.0),
                    thresholds.hop_latency.map(|amount| amount.0),
                    thresholds.queue_occupancy.map(|amount| amount.0),
                    thresholds.queue_congestion.map(|amount| amount.0),
                    thresholds.link_utilization.map(|amount| amount.0),
                ]),
                coarsest: amounts([
                    coarsest.flow_latency.map(|amount| amount.0),
                    coarsest.hop_latency.map(|amount| amount.0),
                    coarsest.queue_occupancy.map(|amount| amount.0),
                    coarsest.queue_congestion.map(|amount| amount.0),
                    coarsest.link_utilization.map(|amount| amount.0),
                ]),
                coarsest_sample: coarsest.sample.as_ref().map(|sample| sample.0),
                rule: rule.clone(),
                filter: filter.and_then(|filter| FilterAlgorithm::from_name(filter.name())),
                then: then.as_ref().map(|then| Then {
                    watch: metrics(&then.watch),
                    scope: then.r#match,
                    length: u64::try_from(then.r#for.as_nanos()).unwrap_or(u64::MAX),
                }),
            },
            budget: self.budget.as_ref().map(|budget| budget.0).unwrap_or_default(),
            until: self.until.as_ref().map(|until| until.0),
            priority: self.priority,
        }
    }
}

fn bounds(ports: &Several<Port>) -> Vec<Ports> {
    ports.0.iter().map(|port| port.0.bounds()).collect()
}

fn metrics(names: &[MetricName]) -> BTreeSet<Metric> {
    names.iter().map(|name| name.0).collect()
}

/// Returns the given amounts by metric. `all` has the order of the fields of [`ThresholdSettings`].
fn amounts(all: [Option<u64>; 5]) -> BTreeMap<Metric, u64> {
    let metrics = [
        Metric::FlowLatency,
        Metric::HopLatency,
        Metric::QueueOccupancy,
        Metric::QueueCongestion,
        Metric::LinkUtilization,
    ];
    let given = metrics.into_iter().zip(all);
    given
        .filter_map(|(metric, amount)| Some((metric, amount?)))
        .collect()
}
