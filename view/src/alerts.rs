//! API responses about alerts: firing and past rules, acknowledgements, silences, and trial runs of a rule.

#[cfg(feature = "schema")]
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{FaultView, Flow, Name};
#[cfg(feature = "schema")]
use crate::schema;

/// The response of `/alerts`: alerts that fire now or fired in a span of time.
#[derive(Serialize, Deserialize, Clone, PartialEq, Default, Debug)]
#[serde(default)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct Alerts {
    /// Beginning of the span, nanoseconds since the Unix epoch.
    pub from: u64,
    /// End of the span, nanoseconds since the Unix epoch.
    pub to: u64,
    /// Alerts that fire at the end of the span, and those that fired in it, worst first. If the span ends now, all are listed that the
    /// collector has, whatever is stored.
    pub alerts: Vec<AlertView>,
    /// Total number, including those beyond the limit.
    pub total: usize,
    /// Number of firing alerts.
    pub firing: usize,
    /// Number of these that are neither acknowledged nor silenced.
    pub unacknowledged: usize,
    /// Number of firing alerts whose flow has sent no report for `silent_after_s`: they fire because no report has shown the opposite.
    /// 0 if the collector has not confirmed the alerts.
    pub silent: usize,
    /// Time without reports after which the flow of an alert counts as silent, seconds.
    pub silent_after_s: u64,
    /// Set if there are more rule events than are read: only those since this time are counted, and older alerts are missing.
    pub known_since: Option<u64>,
    /// True if the collector has confirmed which alerts are firing; otherwise they are as stored. A console never has this
    /// confirmation.
    pub confirmed: bool,
}

/// A rule, and a flow for which it is or was true.
#[derive(Serialize, Deserialize, Clone, PartialEq, Default, Debug)]
#[serde(default)]
#[cfg_attr(feature = "schema", derive(JsonSchema), schemars(rename = "Alert"))]
pub struct AlertView {
    /// The same for this rule and flow, whenever it comes back: 16 hexadecimal digits. Exports call it `alert`.
    #[cfg_attr(feature = "schema", schemars(regex(pattern = "^[0-9a-f]{16}$")))]
    pub id: String,
    /// The name of the rule.
    pub rule: String,
    /// Condition of the rule, or null if the rule is not in the configuration.
    pub when: Option<String>,
    /// The flow for which the rule is or was true.
    pub flow: Option<Flow>,
    /// The flow as text.
    pub text: Option<String>,
    /// `firing` while the rule is true, `resolved` afterwards.
    #[cfg_attr(feature = "schema", schemars(extend("enum" = ["firing", "resolved"])))]
    pub state: Name,
    /// Reason for its end: `false`, the rule is no longer true; `flow`, the flow ended; `stale`, no end is stored, and the collector does
    /// not have the alert now, so that the end is unknown. Null while it is firing.
    #[cfg_attr(feature = "schema", schemars(extend("enum" = ["false", "flow", "stale", null])))]
    pub ended: Option<Name>,
    /// Start of the latest occurrence, nanoseconds since the Unix epoch; null if it is not stored, or not yet.
    pub since: Option<u64>,
    /// End of the latest occurrence, nanoseconds since the Unix epoch; null while it is firing, or if the end is unknown.
    pub until: Option<u64>,
    /// Time of the flow's latest report, nanoseconds since the Unix epoch; null unless the collector has confirmed that the alert fires.
    pub last_seen: Option<u64>,
    /// Number of times it started firing in the span.
    pub count: u64,
    /// The latest periods for which it was true, oldest first.
    pub episodes: Vec<EpisodeView>,
    /// The metric in the comparison that last made the rule true.
    #[cfg_attr(feature = "schema", schemars(extend("enum" = schema::nullable(schema::metrics()))))]
    pub metric: Option<Name>,
    /// Value of the metric at that time, in the unit of the metric.
    pub value: Option<u64>,
    /// The value that it was compared with.
    pub threshold: Option<u64>,
    /// The node that has the value.
    pub node: Option<u32>,
    /// The egress interface of the hop that has the value; null if the packet carried none.
    pub interface: Option<u32>,
    /// The queue that has the value.
    pub queue: Option<u8>,
    /// Reports around it were recorded: from when, until when.
    pub recorded: Option<EpisodeView>,
    /// Who has acknowledged it since it began.
    pub acknowledged: Option<AcknowledgedView>,
    /// The silence that covers it now.
    pub silence: Option<u64>,
    /// In a console: the collectors that reported it, where it can be acknowledged and silenced; a console does not have that
    /// state.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub collectors: Vec<String>,
}

/// A time that something lasted.
#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Default, Debug)]
#[serde(default)]
#[cfg_attr(feature = "schema", derive(JsonSchema), schemars(rename = "Episode"))]
pub struct EpisodeView {
    /// Start, nanoseconds since the Unix epoch, or null if it is no longer stored.
    pub since: Option<u64>,
    /// End, nanoseconds since the Unix epoch; null if it is still firing, or if the end is unknown.
    pub until: Option<u64>,
}

/// Who acknowledged an alert.
#[derive(Serialize, Deserialize, Clone, PartialEq, Default, Debug)]
#[serde(default)]
#[cfg_attr(feature = "schema", derive(JsonSchema), schemars(rename = "Acknowledged"))]
pub struct AcknowledgedView {
    /// The name of the token, otherwise the name in the request.
    pub by: String,
    /// Time of the acknowledgement, nanoseconds since the Unix epoch.
    pub at: u64,
    /// The comment of the person who acknowledged it.
    pub comment: String,
}

/// The response of `/alerts/silences`.
#[derive(Serialize, Deserialize, Clone, PartialEq, Default, Debug)]
#[serde(default)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct Silences {
    /// Active silences and those that ended in the last week, newest first.
    pub silences: Vec<SilenceView>,
}

/// A silence: exports that notify people (webhook, Alertmanager, syslog) leave out the alerts that it covers.
#[derive(Serialize, Deserialize, Clone, PartialEq, Default, Debug)]
#[serde(default)]
#[cfg_attr(feature = "schema", derive(JsonSchema), schemars(rename = "Silence"))]
pub struct SilenceView {
    /// Number of the silence, used to end it.
    pub id: u64,
    /// Filter of events that selects the alerts.
    pub filter: String,
    /// Start, nanoseconds since the Unix epoch.
    pub from: u64,
    /// End, nanoseconds since the Unix epoch.
    pub until: u64,
    /// The name of the token, otherwise the name in the request.
    pub by: String,
    /// Reason for the silence, as entered.
    pub comment: String,
    /// Whether the silence is active now.
    pub active: bool,
}

/// `/alerts/try`: the alerts that a rule would have caused.
#[derive(Serialize, Deserialize, Clone, PartialEq, Default, Debug)]
#[serde(default)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct Trial {
    /// The error in the rule, or null if it is valid and was tried.
    pub fault: Option<FaultView>,
    /// The span that was judged, which is shorter than the requested one if that has too many events.
    pub from: u64,
    /// End of the span, nanoseconds since the Unix epoch.
    pub to: u64,
    /// Number of times it would have become true.
    pub times: u64,
    /// True if these counts are upper bounds; `notes` has the reason.
    pub at_most: bool,
    /// Number of flows for which it would have become true.
    pub flows: usize,
    /// Number of flows for which it was already true at the start of the span.
    pub already: usize,
    /// Length of a part, nanoseconds.
    pub column: u64,
    /// Number of times it would have become true in each part.
    pub counts: Vec<u64>,
    /// The latest times at which it would have become true, newest first.
    pub firings: Vec<FiringView>,
    /// Stored events that were read.
    pub events: u64,
    /// Limits of this result, as sentences.
    pub notes: Vec<String>,
}

/// A time at which a rule would have become true.
#[derive(Serialize, Deserialize, Clone, PartialEq, Default, Debug)]
#[serde(default)]
#[cfg_attr(feature = "schema", derive(JsonSchema), schemars(rename = "Firing"))]
pub struct FiringView {
    /// Time at which it would have become true, nanoseconds since the Unix epoch.
    pub ts: u64,
    /// End time, nanoseconds since the Unix epoch, or null for the end of the span.
    pub until: Option<u64>,
    /// The flow for which it would have become true.
    pub flow: Flow,
    /// The flow as text.
    pub text: String,
    /// The metric in the comparison that would have made the rule true.
    #[cfg_attr(feature = "schema", schemars(extend("enum" = schema::nullable(schema::metrics()))))]
    pub metric: Option<Name>,
    /// Value of the metric at that time, in the unit of the metric.
    pub value: Option<u64>,
    /// The node that has the value.
    pub node: Option<u32>,
}

/// The answer to a rule that was enabled.
#[derive(Serialize, Deserialize, Clone, PartialEq, Default, Debug)]
#[serde(default)]
#[cfg_attr(feature = "schema", derive(JsonSchema), schemars(rename = "RuleEnabled"))]
pub struct EnabledView {
    /// True if it is evaluated and in the configuration file.
    pub enabled: bool,
    /// Reason why the rule is not enabled, or null if it is.
    pub reason: Option<String>,
    /// The text in the configuration file, or to be added there.
    pub text: String,
}
