//! Alerts: rules that are or were true of flows.

use serde::{Deserialize, Serialize};

use super::{FaultView, Flow, Name};
#[cfg(feature = "schema")]
use crate::schema;

/// `/alerts`.
#[derive(Serialize, Deserialize, Clone, PartialEq, Default, Debug)]
#[serde(default)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Alerts {
    /// Beginning of the span, nanoseconds since the Unix epoch.
    pub from: u64,
    /// Its end.
    pub to: u64,
    /// What is wrong now, and what was wrong in the span: worst first.
    pub alerts: Vec<AlertView>,
    /// How many there are, with those beyond the limit.
    pub total: usize,
    /// How many are firing.
    pub firing: usize,
    /// How many of these nobody has acknowledged, and no silence covers.
    pub unacknowledged: usize,
    /// Set if there are more events of rules than are read: only those since this time count, and older alerts are missing.
    pub known_since: Option<u64>,
    /// Whether the collector has confirmed which ones are firing; otherwise they are as stored. A console has none to ask.
    pub confirmed: bool,
}

/// A rule and a flow that it is or was true of.
#[derive(Serialize, Deserialize, Clone, PartialEq, Default, Debug)]
#[serde(default)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(rename = "Alert"))]
pub struct AlertView {
    /// The same for this rule and flow, whenever it comes back: 16 hexadecimal digits. Exports call it `alert`.
    #[cfg_attr(feature = "schema", schemars(regex(pattern = "^[0-9a-f]{16}$")))]
    pub id: String,
    /// The name of the rule.
    pub rule: String,
    /// Its condition, if it is in the configuration.
    pub when: Option<String>,
    /// The flow.
    pub flow: Option<Flow>,
    /// The same as text.
    pub text: Option<String>,
    /// `firing` or `resolved`.
    #[cfg_attr(feature = "schema", schemars(extend("enum" = ["firing", "resolved"])))]
    pub state: Name,
    /// Why it ended: `false`, the rule is no longer true; `flow`, the flow ended; `unheard`, the collector knows of it no longer. Null while
    /// it is firing.
    #[cfg_attr(feature = "schema", schemars(extend("enum" = ["false", "flow", "unheard", null])))]
    pub ended: Option<Name>,
    /// Since when, the last time. Null: its beginning is no longer stored.
    pub since: Option<u64>,
    /// Until when. Null: it is firing, or nobody knows.
    pub until: Option<u64>,
    /// How often it began in the span.
    pub count: u64,
    /// The times it lasted, the latest ones, oldest first.
    pub episodes: Vec<EpisodeView>,
    /// What the comparison compares that made it true the last time.
    #[cfg_attr(feature = "schema", schemars(extend("enum" = schema::nullable(schema::metrics()))))]
    pub metric: Option<Name>,
    /// Its value then, in the unit of the metric.
    pub value: Option<u64>,
    /// What it was compared with.
    pub threshold: Option<u64>,
    /// The node that has the value.
    pub node: Option<u32>,
    /// The queue that has it.
    pub queue: Option<u8>,
    /// Reports around it were recorded: from when, until when.
    pub recorded: Option<EpisodeView>,
    /// Who has acknowledged it since it began.
    pub acknowledged: Option<AcknowledgedView>,
    /// The silence that covers it now.
    pub silence: Option<u64>,
    /// In a console: the collectors that reported it. There it is acknowledged and silenced, and a console does not know whether it is.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub collectors: Vec<String>,
}

/// A time that something lasted.
#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Default, Debug)]
#[serde(default)]
#[cfg_attr(
    feature = "schema",
    derive(schemars::JsonSchema),
    schemars(rename = "Episode")
)]
pub struct EpisodeView {
    /// Its beginning; null: no longer stored.
    pub since: Option<u64>,
    /// Its end; null: it lasts, or nobody knows.
    pub until: Option<u64>,
}

/// Who acknowledged an alert.
#[derive(Serialize, Deserialize, Clone, PartialEq, Default, Debug)]
#[serde(default)]
#[cfg_attr(
    feature = "schema",
    derive(schemars::JsonSchema),
    schemars(rename = "Acknowledged")
)]
pub struct AcknowledgedView {
    /// The name of the token, else what the request said.
    pub by: String,
    /// When.
    pub at: u64,
    /// What else was said.
    pub comment: String,
}

/// `/alerts/silences`.
#[derive(Serialize, Deserialize, Clone, PartialEq, Default, Debug)]
#[serde(default)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Silences {
    /// Those that last and those that ended in the last week, newest first.
    pub silences: Vec<SilenceView>,
}

/// A silence: exports to people leave out the alerts that it covers.
#[derive(Serialize, Deserialize, Clone, PartialEq, Default, Debug)]
#[serde(default)]
#[cfg_attr(
    feature = "schema",
    derive(schemars::JsonSchema),
    schemars(rename = "Silence")
)]
pub struct SilenceView {
    /// Its number.
    pub id: u64,
    /// Which alerts, as a filter of events.
    pub filter: String,
    /// From when.
    pub from: u64,
    /// Until when.
    pub until: u64,
    /// Who made it.
    pub by: String,
    /// Why.
    pub comment: String,
    /// Whether it lasts.
    pub active: bool,
}

/// `/alerts/try`: what a rule would have done.
#[derive(Serialize, Deserialize, Clone, PartialEq, Default, Debug)]
#[serde(default)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Trial {
    /// What is wrong with the rule; null: nothing, and it was tried.
    pub fault: Option<FaultView>,
    /// The span that was judged, which is shorter than the requested one if that has too many events.
    pub from: u64,
    /// Its end.
    pub to: u64,
    /// How often it would have become true.
    pub times: u64,
    /// Whether it would have been that often, and for so many flows, at most: `notes` says why.
    pub at_most: bool,
    /// For how many flows.
    pub flows: usize,
    /// For how many flows it was true already when the span began.
    pub already: usize,
    /// Length of a part, nanoseconds.
    pub column: u64,
    /// How often it would have become true in each part.
    pub counts: Vec<u64>,
    /// When it would have become true: the latest times, newest first.
    pub firings: Vec<FiringView>,
    /// Stored events that were read.
    pub events: u64,
    /// What this answer does not know.
    pub notes: Vec<String>,
}

/// A time at which a rule would have become true.
#[derive(Serialize, Deserialize, Clone, PartialEq, Default, Debug)]
#[serde(default)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(rename = "Firing"))]
pub struct FiringView {
    /// When.
    pub ts: u64,
    /// Until when; null: until the end of the span.
    pub until: Option<u64>,
    /// The flow.
    pub flow: Flow,
    /// The same as text.
    pub text: String,
    /// What the comparison compares that would have decided.
    #[cfg_attr(feature = "schema", schemars(extend("enum" = schema::nullable(schema::metrics()))))]
    pub metric: Option<Name>,
    /// Its value.
    pub value: Option<u64>,
    /// The node that has it.
    pub node: Option<u32>,
}

/// The answer to a rule that was enabled.
#[derive(Serialize, Deserialize, Clone, PartialEq, Default, Debug)]
#[serde(default)]
#[cfg_attr(
    feature = "schema",
    derive(schemars::JsonSchema),
    schemars(rename = "RuleEnabled")
)]
pub struct EnabledView {
    /// True: it is evaluated, and in the configuration file.
    pub enabled: bool,
    /// Why not, if it is not.
    pub reason: Option<String>,
    /// What is in the configuration file, or is to be put there.
    pub text: String,
}
