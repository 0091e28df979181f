//! The dimensions by which traffic can be grouped, and the value that a flow, event or time series has in each of them.
//!
//! A value can be in several groups: a flow counts for every node, link and label on its path.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use wire::FlowKey;

use crate::intern::write_path;
use crate::spans::SeriesKey;
use crate::traffic::EventGroup;

/// Maximum number of nodes that a filter names.
const MAX_FILTER_NODES: usize = 64;
/// Maximum number of nodes in a path pattern.
const MAX_PATTERN_NODES: usize = 64;

wire::named! {
    /// A property by which values are grouped.
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
    pub enum Dimension, name {
        /// The source address of the flow.
        Src => "src",
        /// The destination address of the flow.
        Dst => "dst",
        /// A prefix of the source address.
        SrcPrefix => "src_prefix",
        /// A prefix of the destination address.
        DstPrefix => "dst_prefix",
        /// The lower of both ports, usually the service's.
        Port => "port",
        /// The source port of the flow.
        SrcPort => "sport",
        /// The destination port of the flow.
        DstPort => "dport",
        /// The IP protocol of the flow.
        Proto => "proto",
        /// The flow as a whole.
        Flow => "flow",
        /// A node of the path, or the node of an event.
        Node => "node",
        /// Two consecutive nodes on the path.
        Link => "link",
        /// The path of the flow.
        Path => "path",
        /// An inventory label of a node on the path or of the event.
        Label => "label",
        /// A queue of a node.
        Queue => "queue",
        /// An interface of a node.
        Interface => "interface",
        /// The kind of the event.
        Kind => "kind",
        /// The metric of the event.
        Metric => "metric",
        /// The rule of the event.
        Rule => "rule",
        /// The drop reason of the event.
        Reason => "reason",
    }
}

/// A value of a dimension.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Part {
    /// The value is absent or unknown.
    Unknown,
    /// The IP address of a host.
    Address(IpAddr),
    /// A network, and the length of its prefix, bits.
    Prefix(IpAddr, u8),
    /// A port or a drop reason.
    Number(u64),
    /// The number of an IP protocol.
    Proto(u8),
    /// A flow as text.
    Flow(String),
    /// The node IDs of a path; `u32::MAX` = unavailable.
    Path(Vec<u32>),
    /// The id of a node.
    Node(u32),
    /// A link from one node to another.
    Link(u32, u32),
    /// A queue of a node, with its egress interface if that is known.
    Queue(u32, Option<u32>, Option<u8>),
    /// An interface of a node.
    Interface(u32, u32),
    /// The name of a kind or a metric.
    Word(&'static str),
    /// The name of a rule, or a label.
    Text(String),
}

/// The lengths of prefixes, bits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Prefixes {
    /// Length of prefixes of IPv4 addresses.
    pub v4: u8,
    /// Length of prefixes of IPv6 addresses.
    pub v6: u8,
}

/// Query settings that determine an item's groups: prefix lengths and node labels.
#[derive(Clone, Copy, Debug)]
pub(super) struct PartContext<'a> {
    pub(super) prefixes: Prefixes,
    pub(super) labels: &'a BTreeMap<u32, Vec<String>>,
}

impl Dimension {
    /// Returns true if the value depends on the flow key alone.
    pub(super) fn is_of_flow(self) -> bool {
        use Dimension::{Dst, DstPort, DstPrefix, Flow, Port, Proto, Src, SrcPort, SrcPrefix};
        matches!(
            self,
            Src | Dst | SrcPrefix | DstPrefix | SrcPort | DstPort | Port | Proto | Flow
        )
    }

    /// Returns the groups of a flow with this path; at least one.
    pub(super) fn flow_parts(self, flow: &FlowKey, path: &[u32], context: PartContext<'_>) -> Vec<Part> {
        let nodes = path.iter().copied().filter(|node| *node != u32::MAX);
        let parts: BTreeSet<Part> = match self {
            Self::Path if !path.is_empty() => BTreeSet::from([Part::Path(path.to_vec())]),
            Self::Node => nodes.map(Part::Node).collect(),
            Self::Label => nodes.flat_map(|node| labels(node, context)).collect(),
            Self::Link => path
                .windows(2)
                .filter(|ends| !ends.contains(&u32::MAX))
                .map(|ends| Part::Link(ends[0], ends[1]))
                .collect(),
            _ if self.is_of_flow() => return vec![self.key_part(flow, context)],
            _ => BTreeSet::new(),
        };
        or_unknown(parts)
    }

    /// Returns the group of a flow, for a dimension that depends on the flow key alone.
    pub(super) fn key_part(self, flow: &FlowKey, context: PartContext<'_>) -> Part {
        match self {
            Self::Flow => Part::Flow(flow.to_string()),
            _ if flow.known_id().is_some() => Part::Unknown,
            Self::Src => Part::Address(flow.src()),
            Self::Dst => Part::Address(flow.dst()),
            Self::SrcPrefix => prefix(flow.src(), context.prefixes),
            Self::DstPrefix => prefix(flow.dst(), context.prefixes),
            Self::SrcPort => port_part(flow.src_port()),
            Self::DstPort => port_part(flow.dst_port()),
            Self::Port => port_part(flow.ports().map(|(src, dst)| src.min(dst))),
            Self::Proto => Part::Proto(flow.proto()),
            _ => Part::Unknown,
        }
    }

    /// Returns the groups of an event; at least one.
    pub(super) fn event_parts(self, event: &EventGroup, context: PartContext<'_>) -> Vec<Part> {
        let part = match self {
            Self::Kind => event.kind.map_or(Part::Unknown, |kind| Part::Word(kind.name())),
            Self::Metric => event
                .metric
                .map_or(Part::Unknown, |metric| Part::Word(metric.name())),
            Self::Rule => event.rule.clone().map_or(Part::Unknown, Part::Text),
            Self::Reason => event
                .reason
                .map_or(Part::Unknown, |code| Part::Number(code.into())),
            Self::Path if !event.path.is_empty() => Part::Path(event.path.clone()),
            Self::Node => event.node.map_or(Part::Unknown, Part::Node),
            Self::Queue => match (event.node, event.queue) {
                (Some(node), Some(queue)) => Part::Queue(node, event.interface, Some(queue)),
                _ => Part::Unknown,
            },
            Self::Interface => match (event.node, event.interface) {
                (Some(node), Some(interface)) => Part::Interface(node, interface),
                _ => Part::Unknown,
            },
            Self::Label => {
                let labels = event.node.map(|node| labels(node, context).collect());
                return or_unknown(labels.unwrap_or_default());
            }
            _ if self.is_of_flow() => event
                .flow
                .map_or(Part::Unknown, |flow| self.key_part(&flow, context)),
            _ => Part::Unknown,
        };
        vec![part]
    }

    /// Returns the groups of a node, queue or link; at least one.
    pub(super) fn series_parts(self, key: &SeriesKey, context: PartContext<'_>) -> Vec<Part> {
        let part = match self {
            Self::Node => Part::Node(key.node),
            Self::Queue => Part::Queue(key.node, key.interface, key.queue),
            Self::Interface => key
                .interface
                .map_or(Part::Unknown, |interface| Part::Interface(key.node, interface)),
            Self::Label => return or_unknown(labels(key.node, context).collect()),
            _ => Part::Unknown,
        };
        vec![part]
    }

    /// Returns a filter expression that matches a group, or `None` if none can express it.
    pub fn filter(self, part: &Part, labels: &BTreeMap<u32, Vec<String>>) -> Option<String> {
        let field = match self {
            Self::SrcPrefix => "src",
            Self::DstPrefix => "dst",
            _ => self.name(),
        };
        Some(match part {
            Part::Unknown => return None,
            Part::Address(_) | Part::Number(_) | Part::Proto(_) | Part::Node(_) | Part::Word(_) => {
                format!("{field} == {part}")
            }
            Part::Prefix(..) => format!("{field} in {part}"),
            Part::Flow(text) | Part::Text(text) if self != Self::Label => quoted(field, text)?,
            Part::Text(label) | Part::Flow(label) => {
                let nodes = labels
                    .iter()
                    .filter(|(_, node_labels)| node_labels.contains(label))
                    .take(MAX_FILTER_NODES + 1);
                let nodes: Vec<String> = nodes.map(|(node, _)| node.to_string()).collect();
                if nodes.is_empty() || nodes.len() > MAX_FILTER_NODES {
                    return None;
                }
                format!("node in ({})", nodes.join(", "))
            }
            // A path pattern has a maximum length and cannot match an unavailable node.
            Part::Path(path) if path.len() > MAX_PATTERN_NODES || path.contains(&u32::MAX) => return None,
            Part::Path(path) => format!("path ~ {part} and hops == {}", path.len()),
            Part::Link(from, to) => format!("path ~ {from}>{to}"),
            Part::Queue(node, _, None) => format!("node == {node}"),
            Part::Queue(node, None, Some(queue)) => format!("node == {node} and queue == {queue}"),
            Part::Queue(node, Some(interface), Some(queue)) => {
                format!("node == {node} and interface == {interface} and queue == {queue}")
            }
            Part::Interface(node, interface) => format!("node == {node} and interface == {interface}"),
        })
    }
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown => f.write_str("unknown"),
            Self::Address(address) => write!(f, "{address}"),
            Self::Prefix(network, length) => write!(f, "{network}/{length}"),
            Self::Number(number) => write!(f, "{number}"),
            Self::Proto(1) => f.write_str("icmp"),
            Self::Proto(6) => f.write_str("tcp"),
            Self::Proto(17) => f.write_str("udp"),
            Self::Proto(58) => f.write_str("icmpv6"),
            Self::Proto(132) => f.write_str("sctp"),
            Self::Proto(number) => write!(f, "{number}"),
            Self::Flow(text) | Self::Text(text) => f.write_str(text),
            Self::Path(path) => write_path(path, f),
            Self::Node(node) | Self::Queue(node, _, None) => write!(f, "{node}"),
            Self::Link(from, to) => write!(f, "{from}>{to}"),
            Self::Queue(node, None, Some(queue)) => write!(f, "{node}.{queue}"),
            Self::Queue(node, Some(interface), Some(queue)) => write!(f, "{node}/{interface}.{queue}"),
            Self::Interface(node, interface) => write!(f, "{node}/{interface}"),
            Self::Word(word) => f.write_str(word),
        }
    }
}

fn port_part(port: Option<u16>) -> Part {
    port.map_or(Part::Unknown, |port| Part::Number(port.into()))
}

fn or_unknown(parts: BTreeSet<Part>) -> Vec<Part> {
    if parts.is_empty() {
        vec![Part::Unknown]
    } else {
        parts.into_iter().collect()
    }
}

fn labels(node: u32, context: PartContext<'_>) -> impl Iterator<Item = Part> {
    context
        .labels
        .get(&node)
        .into_iter()
        .flatten()
        .cloned()
        .map(Part::Text)
}

fn prefix(address: IpAddr, prefixes: Prefixes) -> Part {
    match address {
        IpAddr::V4(address) => {
            let length = prefixes.v4.min(32);
            let mask = u32::MAX.checked_shl(32 - u32::from(length)).unwrap_or(0);
            let network = Ipv4Addr::from_bits(address.to_bits() & mask);
            Part::Prefix(network.into(), length)
        }
        IpAddr::V6(address) => {
            let length = prefixes.v6.min(128);
            let mask = u128::MAX.checked_shl(128 - u32::from(length)).unwrap_or(0);
            let network = Ipv6Addr::from_bits(address.to_bits() & mask);
            Part::Prefix(network.into(), length)
        }
    }
}

/// Returns a filter that compares a field with a text, or `None` if the text has quotes, which the filter syntax cannot
/// escape.
fn quoted(field: &str, text: &str) -> Option<String> {
    (!text.contains('"')).then(|| format!("{field} == \"{text}\""))
}
