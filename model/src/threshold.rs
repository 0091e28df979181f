//! The sections `[thresholds]` and `[[rules]]`: which changes of a metric are significant, and conditions over several
//! metrics.

use detect::{PortRange, Prefix};
use settings::{
    section,
    values::{LatencyThreshold, Protocol, QueueThreshold, UtilizationThreshold},
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
        /// Congestion status of a queue (INT 0.5).
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
        /// Source port of the flow.
        pub sport: Option<PortRange> = None,
        /// Destination port of the flow.
        pub dport: Option<PortRange> = None,
        /// Protocol number of the IP header.
        pub proto: Option<Protocol> = None,
        /// Threshold for the flow latency, as in `[thresholds]`.
        pub flow_latency: Option<LatencyThreshold> = None,
        /// Threshold for hop latencies, as in `[thresholds]`.
        pub hop_latency: Option<LatencyThreshold> = None,
        /// Threshold for queue occupancy, as in `[thresholds]`.
        pub queue_occupancy: Option<QueueThreshold> = None,
        /// Threshold for queue congestion, as in `[thresholds]`.
        pub queue_congestion: Option<QueueThreshold> = None,
        /// Threshold for link utilization, as in `[thresholds]`.
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
