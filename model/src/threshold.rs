//! Thresholds of significant changes, and rules.

use detect::{Metric, PortRange, Prefix, observation::UTILIZATION_ONE};
use settings::{
    read::{DeValue, Node, Reader},
    section,
    setting::{Setting, Shown},
    values::{
        LatencyThreshold, Protocol, QueueThreshold, UtilizationThreshold, duration_text, integer,
        percent_text, refuse, threshold,
    },
};

section! {
    /// Thresholds of significant changes: a value is reported when it differs from the last reported value by more than the
    /// threshold; 0 reports every change. Each is written as in a rule: a latency as a duration, a queue in the device's unit, a
    /// link as a percentage.
    pub struct ThresholdSettings("[thresholds]") {
        /// Time from the first node's ingress to the last node's egress.
        pub flow_latency: LatencyThreshold = LatencyThreshold(50_000),
        /// Time inside a node.
        pub hop_latency: LatencyThreshold = LatencyThreshold(50_000),
        /// Occupancy of a queue.
        pub queue_occupancy: QueueThreshold = QueueThreshold(50),
        /// Congestion status of a queue or occupancy of its buffer.
        pub queue_congestion: QueueThreshold = QueueThreshold(50),
        /// Utilization of an egress link.
        pub link_utilization: UtilizationThreshold = UtilizationThreshold(50_000),
        /// Thresholds for some flows.
        pub r#override: Vec<OverrideSettings> = Vec::new(),
    }
}

section! {
    /// Thresholds for matching flows; keys that are not set are as in `[thresholds]`. Of several matches, the most specific
    /// applies.
    pub struct OverrideSettings("[[thresholds.override]]") {
        /// Source address of the flow.
        pub src: Option<Prefix> = None,
        /// Destination address of the flow.
        pub dst: Option<Prefix> = None,
        /// Source port.
        pub sport: Option<PortRange> = None,
        /// Destination port.
        pub dport: Option<PortRange> = None,
        /// IP protocol.
        pub proto: Option<Protocol> = None,
        /// See `[thresholds]`.
        pub flow_latency: Option<LatencyThreshold> = None,
        /// See `[thresholds]`.
        pub hop_latency: Option<LatencyThreshold> = None,
        /// See `[thresholds]`.
        pub queue_occupancy: Option<QueueThreshold> = None,
        /// See `[thresholds]`.
        pub queue_congestion: Option<QueueThreshold> = None,
        /// See `[thresholds]`.
        pub link_utilization: Option<UtilizationThreshold> = None,
    }
}

section! {
    /// A condition over the metrics of a flow. An event is emitted when it becomes true or false. At most 64 rules.
    pub struct RuleSettings("[[rules]]") {
        /// The rule's name in events.
        pub name: String = String::new(),
        /// The condition, for example `max(queue_occupancy) > 50 and flow_latency > 5ms`.
        pub when: String = String::new(),
    }
}

/// A threshold of a metric that another key names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Amount(String);

impl Amount {
    /// A value in the smallest unit of its metric: ns, device units, millionths.
    pub fn new(metric: Metric, value: u64) -> Self {
        Self(match metric {
            Metric::FlowLatency | Metric::HopLatency => duration_text(value),
            // A greater difference cannot be.
            Metric::LinkUtilization => percent_text(value.min(UTILIZATION_ONE)),
            _ => value.to_string(),
        })
    }

    /// The value in that unit; `None`: the written unit is not one of the metric's.
    pub fn value(&self, metric: Metric) -> Option<u64> {
        threshold(metric, &self.0)
    }
}

impl Setting for Amount {
    const KIND: &'static str =
        "as in `[thresholds]`: a duration such as \"500us\", a whole number, or a percentage such as \"5%\"";

    fn read(node: &Node<'_>, reader: &mut Reader<'_>) -> Option<Self> {
        let read = match node.get_ref() {
            DeValue::String(text) => Some(text.to_string()),
            DeValue::Float(number) => Some(number.as_str().to_owned()),
            other => integer(other).map(|number| number.to_string()),
        };
        let is_amount = |text: &String| {
            Metric::ALL
                .iter()
                .any(|metric| threshold(*metric, text).is_some())
        };
        read.filter(is_amount).map(Self).or_else(|| refuse(node, reader))
    }

    fn show(&self) -> Shown {
        match self.0.parse::<u64>() {
            Ok(number) => Shown::Plain(number.into()),
            Err(_) => Shown::Plain(self.0.as_str().into()),
        }
    }
}
