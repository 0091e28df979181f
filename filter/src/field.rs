//! The fields that filters of flows and events can test, with their value types and operators.

use detect::Metric;

const METRICS: &[&str] = &[
    "flow_path",
    "flow_latency",
    "hop_latency",
    "queue_occupancy",
    "queue_congestion",
    "link_utilization",
];

wire::named! {
    /// The kind of rows that a filter selects.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum View, name {
        /// Flows: a row is the current state of a flow.
        Flows => "flows",
        /// Events: a row is one event.
        Events => "events",
    }
}

/// A field of a row, as named in filters.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Field {
    /// The source address of the flow.
    Src,
    /// The destination address of the flow.
    Dst,
    /// Source or destination address.
    Host,
    /// The source port of the flow.
    SrcPort,
    /// The destination port of the flow.
    DstPort,
    /// Source or destination port.
    Port,
    /// The IP protocol's number.
    Proto,
    /// The flow as text.
    Flow,
    /// The node of an event; for a flow, any node of its path.
    Node,
    /// The interface of the event.
    Interface,
    /// The queue of the event.
    Queue,
    /// The nodes of the path, in forwarding order.
    Path,
    /// The number of nodes of the path.
    Hops,
    /// The kind of the event.
    Kind,
    /// The metric of the event.
    Metric,
    /// The rule of the event.
    Rule,
    /// The drop reason of the event.
    Reason,
    /// The number of reports of the flow.
    Reports,
    /// The value of an event of this metric. For a flow, its latest value or the maximum over its nodes.
    Value(Metric),
}

/// The type of a field's values in the filter's text.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Form {
    Address,
    Port,
    Proto,
    Node,
    /// The code of a drop reason, or its name.
    Reason,
    /// A whole number up to this maximum.
    Number(u64),
    /// A time in nanoseconds.
    Time,
    /// A fraction in millionths, written in percent.
    Share,
    Path,
    /// One of these words.
    Word(&'static [&'static str]),
    Text,
}

wire::named! {
    /// A comparison operator. The lexer tries them in order, so longer ones precede their prefixes.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub(crate) enum Operator, text {
        Equal => "==",
        Unequal => "!=",
        AtMost => "<=",
        AtLeast => ">=",
        Less => "<",
        Greater => ">",
        In => "in",
        Contains => "~",
    }
}

const KINDS: &[&str] = &[
    "new",
    "change",
    "path_change",
    "path_loop",
    "rule_on",
    "rule_off",
    "drop",
    "loss",
    "expired",
    "hop_limit",
    "mtu",
    "latest",
    "packet_loss",
];

impl Field {
    /// All fields, in the order of listings and proposals.
    pub const ALL: [Self; 23] = [
        Self::Src,
        Self::Dst,
        Self::Host,
        Self::SrcPort,
        Self::DstPort,
        Self::Port,
        Self::Proto,
        Self::Flow,
        Self::Node,
        Self::Path,
        Self::Hops,
        Self::Interface,
        Self::Queue,
        Self::Value(Metric::FlowLatency),
        Self::Value(Metric::HopLatency),
        Self::Value(Metric::QueueOccupancy),
        Self::Value(Metric::QueueCongestion),
        Self::Value(Metric::LinkUtilization),
        Self::Kind,
        Self::Metric,
        Self::Rule,
        Self::Reason,
        Self::Reports,
    ];

    /// Returns the name in a filter.
    pub fn name(self) -> &'static str {
        match self {
            Self::Src => "src",
            Self::Dst => "dst",
            Self::Host => "host",
            Self::SrcPort => "sport",
            Self::DstPort => "dport",
            Self::Port => "port",
            Self::Proto => "proto",
            Self::Flow => "flow",
            Self::Node => "node",
            Self::Interface => "interface",
            Self::Queue => "queue",
            Self::Path => "path",
            Self::Hops => "hops",
            Self::Kind => "kind",
            Self::Metric => "metric",
            Self::Rule => "rule",
            Self::Reason => "reason",
            Self::Reports => "reports",
            Self::Value(metric) => metric.name(),
        }
    }

    /// Returns a one-line description with an example.
    pub fn about(self, view: View) -> &'static str {
        match (self, view) {
            (Self::Src, _) => "source address: in 10.0.1.0/24",
            (Self::Dst, _) => "destination address",
            (Self::Host, _) => "source or destination address",
            (Self::SrcPort, _) => "source port: == 443, in (80, 8000-8999)",
            (Self::DstPort, _) => "destination port",
            (Self::Port, _) => "source or destination port",
            (Self::Proto, _) => "protocol: tcp, udp, icmp, or a number",
            (Self::Flow, _) => "the flow as text: ~ \"10.0.1.5:\"",
            (Self::Node, View::Flows) => "a node of the path",
            (Self::Node, View::Events) => "the node of the event",
            (Self::Interface, _) => "interface of the event",
            (Self::Queue, _) => "queue of the event",
            (Self::Path, _) => "nodes of the path: ~ 101>*>103; * is any number of nodes, ? is one",
            (Self::Hops, _) => "number of nodes of the path",
            (Self::Kind, _) => "kind of the event",
            (Self::Metric, _) => "metric of the event",
            (Self::Rule, _) => "rule of the event",
            (Self::Reason, _) => "drop reason of the event: == link_down, or the device's code",
            (Self::Reports, _) => "number of reports of the flow",
            (Self::Value(Metric::FlowLatency), _) => "latency of the flow: > 5ms",
            (Self::Value(Metric::HopLatency), _) => "latency in a node: > 10us",
            (Self::Value(Metric::QueueOccupancy), _) => "occupancy of a queue, in the device's unit",
            (Self::Value(Metric::QueueCongestion), _) => {
                "congestion of a queue (INT 0.5), in the device's unit"
            }
            (Self::Value(Metric::LinkUtilization), _) => "utilization of a link: > 80%",
            (Self::Value(Metric::FlowPath), _) => "number of nodes of a new path",
        }
    }

    pub(crate) fn form(self) -> Form {
        match self {
            Self::Src | Self::Dst | Self::Host => Form::Address,
            Self::SrcPort | Self::DstPort | Self::Port => Form::Port,
            Self::Proto => Form::Proto,
            Self::Flow | Self::Rule => Form::Text,
            Self::Node => Form::Node,
            Self::Interface => Form::Number(u32::MAX as u64),
            Self::Queue => Form::Number(u8::MAX as u64),
            Self::Reason => Form::Reason,
            Self::Path => Form::Path,
            Self::Kind => Form::Word(KINDS),
            Self::Metric => Form::Word(METRICS),
            Self::Value(Metric::FlowLatency | Metric::HopLatency) => Form::Time,
            Self::Value(Metric::LinkUtilization) => Form::Share,
            Self::Hops | Self::Reports | Self::Value(_) => Form::Number(u64::MAX),
        }
    }

    pub(crate) fn operators(self) -> &'static [Operator] {
        use Operator::{AtLeast, AtMost, Contains, Equal, Greater, In, Less, Unequal};
        match self.form() {
            Form::Address | Form::Node | Form::Proto => &[Equal, Unequal, In],
            Form::Word(_) => &[Equal, Unequal, In],
            Form::Text => &[Contains, Equal, Unequal, In],
            Form::Path => &[Contains],
            Form::Port | Form::Reason | Form::Number(_) | Form::Time | Form::Share => {
                &[Equal, Unequal, Less, AtMost, Greater, AtLeast, In]
            }
        }
    }

    /// Returns whether rows of this view have the field.
    pub fn is_of(self, view: View) -> bool {
        match self {
            Self::Interface | Self::Queue | Self::Kind | Self::Metric | Self::Rule | Self::Reason => {
                view == View::Events
            }
            Self::Reports => view == View::Flows,
            _ => true,
        }
    }

    /// Returns the field with this name, or `None` if rows of this view have no such field.
    pub(crate) fn from_name(name: &str, view: View) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|field| field.is_of(view) && field.name() == name)
    }
}
