//! What a running hopwise says about itself, as types: the part of `/api/v1` that the commands read.
//!
//! Unknown fields are ignored, so that an older command line understands a newer server.

use std::collections::BTreeMap;
use std::net::IpAddr;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::client::{self, Client};
use terminal::CliError;

/// How to reach a running hopwise.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct Api {
    /// URL of the running hopwise
    #[arg(long = "api", value_name = "URL", default_value = "http://127.0.0.1:8080")]
    pub(crate) url: String,

    /// Its bearer token, if required; HOPWISE_TOKEN in the environment does the same and is not visible in `ps`
    #[arg(long)]
    pub(crate) token: Option<String>,
}

impl Api {
    /// A client of it.
    pub(crate) fn client(&self) -> Result<Client, CliError> {
        let token = self.token.clone().or_else(|| std::env::var("HOPWISE_TOKEN").ok());
        Client::new(&self.url, token).map_err(CliError::from)
    }
}

impl From<client::Error> for CliError {
    fn from(error: client::Error) -> Self {
        Self::new(error.to_string())
    }
}

/// The answer at `path`, as a type.
pub(crate) fn fetch<T: DeserializeOwned>(client: &Client, path: &str) -> Result<T, CliError> {
    serde_json::from_value(client.get(path)?).map_err(|error| {
        CliError::new(format!("{} is no answer of this version's API: {error}", client.url()))
    })
}

/// A flow's 5-tuple. Where only the Flow ID is known `src` holds it (`flow-id:0x0000f10a`), and `dst` is empty.
#[derive(Serialize, Deserialize, Clone, PartialEq, Eq, Debug)]
pub(crate) struct Flow {
    /// Source address.
    pub(crate) src: String,
    /// Destination address.
    pub(crate) dst: String,
    /// Source port, if the packet had one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) sport: Option<u16>,
    /// Destination port, likewise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) dport: Option<u16>,
    /// IP protocol number.
    pub(crate) proto: u8,
}

impl Flow {
    /// As the rest of the program knows it.
    pub(crate) fn key(&self) -> wire::FlowKey {
        match (self.src.parse::<IpAddr>(), self.dst.parse::<IpAddr>()) {
            (Ok(src), Ok(dst)) => wire::FlowKey::new(src, dst, self.sport.zip(self.dport), self.proto),
            _ => self.src.parse().unwrap_or_default(),
        }
    }
}

/// `/status`, the part that is shown.
#[derive(Serialize, Deserialize, Clone, PartialEq, Debug)]
pub(crate) struct Status {
    /// Version of the server.
    pub(crate) version: String,
    /// Seconds since its start.
    pub(crate) uptime_s: f64,
    /// Per second.
    pub(crate) rates: Rates,
    /// Where things were lost, stage by stage.
    pub(crate) loss_budget: Vec<Stage>,
    /// What is listened on.
    #[serde(default)]
    pub(crate) inputs: Vec<Input>,
}

/// An input, the part that is shown.
#[derive(Serialize, Deserialize, Clone, PartialEq, Eq, Debug)]
pub(crate) struct Input {
    /// What is listened on.
    pub(crate) listen: String,
    /// How it receives.
    pub(crate) kind: String,
    /// The interface, if it is one.
    #[serde(default)]
    pub(crate) interface: Option<String>,
    /// Why it does not receive.
    #[serde(default)]
    pub(crate) message: Option<String>,
}

/// Things per second.
#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Default, Debug)]
pub(crate) struct Rates {
    /// Reports handled.
    pub(crate) reports: f64,
    /// Events found.
    pub(crate) events: f64,
    /// Datagrams received.
    pub(crate) datagrams: f64,
}

/// One stage of the loss budget: `in` = `out` + queued + drops.
#[derive(Serialize, Deserialize, Clone, PartialEq, Eq, Debug)]
pub(crate) struct Stage {
    /// Its name.
    pub(crate) stage: String,
    /// What is counted: datagrams, reports, records.
    #[serde(default)]
    pub(crate) unit: Option<String>,
    /// What came in.
    #[serde(rename = "in")]
    pub(crate) entered: u64,
    /// What went on.
    #[serde(rename = "out")]
    pub(crate) left: u64,
    /// What waits in it.
    #[serde(default)]
    pub(crate) queued: u64,
    /// What did not, by reason.
    pub(crate) drops: BTreeMap<String, u64>,
}

/// `/nodes`.
#[derive(Serialize, Deserialize, Clone, PartialEq, Default, Debug)]
pub(crate) struct Nodes {
    /// All nodes seen.
    pub(crate) nodes: Vec<Node>,
}

/// A switch or host that adds a hop.
#[derive(Serialize, Deserialize, Clone, PartialEq, Debug)]
pub(crate) struct Node {
    /// Node id.
    pub(crate) node: u32,
    /// Configured name.
    #[serde(default)]
    pub(crate) name: Option<String>,
    /// Hops seen of it.
    pub(crate) reports: u64,
    /// Receive time of the latest, ns.
    pub(crate) last_seen: u64,
    /// Time inside the node, ns.
    #[serde(default)]
    pub(crate) hop_latency: Option<Latency>,
    /// Its queues.
    #[serde(default)]
    pub(crate) queues: Vec<Queue>,
    /// Drop reports of it.
    #[serde(default)]
    pub(crate) drops: u64,
}

/// Figures of a latency, ns.
#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Eq, Default, Debug)]
#[serde(default)]
pub(crate) struct Latency {
    /// The last value.
    pub(crate) latest: Option<u64>,
    /// The least.
    pub(crate) min: Option<u64>,
    /// The greatest.
    pub(crate) max: Option<u64>,
    /// The median.
    pub(crate) p50: Option<u64>,
    /// 99 % are below.
    pub(crate) p99: Option<u64>,
}

/// A queue of a node.
#[derive(Serialize, Deserialize, Clone, PartialEq, Eq, Debug)]
pub(crate) struct Queue {
    /// Queue id; none: all queues of the node.
    #[serde(default)]
    pub(crate) queue: Option<u8>,
    /// The last value.
    #[serde(default)]
    pub(crate) occupancy: Option<u64>,
    /// The greatest.
    #[serde(default)]
    pub(crate) max: Option<u64>,
    /// What it is counted in.
    #[serde(default)]
    pub(crate) unit: Option<String>,
}

/// `/links`.
#[derive(Serialize, Deserialize, Clone, PartialEq, Default, Debug)]
pub(crate) struct Links {
    /// Links learnt from paths.
    pub(crate) links: Vec<Link>,
}

/// A link between two nodes.
#[derive(Serialize, Deserialize, Clone, PartialEq, Debug)]
pub(crate) struct Link {
    /// Sending node.
    pub(crate) from: u32,
    /// Receiving node.
    pub(crate) to: u32,
    /// Its egress interface.
    #[serde(default)]
    pub(crate) egress_if: Option<u32>,
    /// Fraction of 1.
    #[serde(default)]
    pub(crate) utilization: Option<f64>,
    /// Occupancy of the queue behind it, device units.
    #[serde(default)]
    pub(crate) queue_occupancy: Option<u64>,
    /// Time inside the sending node, ns.
    #[serde(default)]
    pub(crate) hop_latency: Option<u64>,
    /// Flows over it.
    #[serde(default)]
    pub(crate) flows: u64,
    /// Receive time of the latest report, ns.
    pub(crate) last_seen: u64,
}

/// `/flows`.
#[derive(Serialize, Deserialize, Clone, PartialEq, Default, Debug)]
pub(crate) struct Flows {
    /// The flows asked for.
    pub(crate) flows: Vec<FlowState>,
    /// How many there are in all.
    #[serde(default)]
    pub(crate) total: u64,
}

/// The latest state of a flow; `/flows/{id}` has its hops.
#[derive(Serialize, Deserialize, Clone, PartialEq, Debug)]
pub(crate) struct FlowState {
    /// 16 hexadecimal digits.
    pub(crate) id: String,
    /// The 5-tuple.
    pub(crate) flow: Flow,
    /// The same as text.
    pub(crate) text: String,
    /// Nodes in forwarding order, `null` where unavailable.
    pub(crate) path: Vec<Option<u32>>,
    /// Latest latency, ns.
    #[serde(default)]
    pub(crate) flow_latency: Option<u64>,
    /// How it came about.
    #[serde(default)]
    pub(crate) basis: Option<String>,
    /// Reports so far.
    pub(crate) reports: u64,
    /// Receive time of the first report, ns.
    pub(crate) first_seen: u64,
    /// Receive time of the latest, ns.
    pub(crate) last_seen: u64,
    /// Hop by hop.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) hops: Vec<HopState>,
}

/// The latest of one hop of a flow.
#[derive(Serialize, Deserialize, Clone, PartialEq, Default, Debug)]
#[serde(default)]
pub(crate) struct HopState {
    /// Node id.
    pub(crate) node: Option<u32>,
    /// Where packets come in.
    pub(crate) ingress_if: Option<u32>,
    /// Where they leave.
    pub(crate) egress_if: Option<u32>,
    /// Through which queue.
    pub(crate) queue: Option<u8>,
    /// Time inside, ns.
    pub(crate) hop_latency: Option<u64>,
    /// Device units.
    pub(crate) queue_occupancy: Option<u64>,
    /// Fraction of 1.
    pub(crate) link_utilization: Option<f64>,
}

/// `/events`.
#[derive(Serialize, Deserialize, Clone, PartialEq, Default, Debug)]
pub(crate) struct Events {
    /// Newest first.
    pub(crate) events: Vec<Event>,
}

/// A detected event.
#[derive(Serialize, Deserialize, Clone, PartialEq, Debug)]
pub(crate) struct Event {
    /// Receive time, ns.
    pub(crate) ts: u64,
    /// Record id, 16 hexadecimal digits.
    #[serde(default)]
    pub(crate) id: Option<String>,
    /// Kind of event.
    pub(crate) kind: String,
    /// Which metric.
    #[serde(default)]
    pub(crate) metric: Option<String>,
    /// Whose 5-tuple.
    #[serde(default)]
    pub(crate) flow: Option<Flow>,
    /// The same as text.
    #[serde(default)]
    pub(crate) text: Option<String>,
    /// Node.
    #[serde(default)]
    pub(crate) node: Option<u32>,
    /// Interface.
    #[serde(default)]
    pub(crate) interface: Option<u32>,
    /// Queue.
    #[serde(default)]
    pub(crate) queue: Option<u8>,
    /// New value, in the metric's unit.
    #[serde(default)]
    pub(crate) value: Option<u64>,
    /// Previously reported value.
    #[serde(default)]
    pub(crate) previous: Option<u64>,
    /// Threshold that was passed.
    #[serde(default)]
    pub(crate) threshold: Option<u64>,
    /// Rule that became true or false.
    #[serde(default)]
    pub(crate) rule: Option<String>,
    /// Drop reason.
    #[serde(default)]
    pub(crate) reason: Option<u8>,
    /// How the value came about.
    #[serde(default)]
    pub(crate) basis: Option<String>,
    /// The flow's path, of path events.
    #[serde(default)]
    pub(crate) path: Vec<Option<u32>>,
}

/// `101>102>103`, `?` where a node id is unavailable: the form of the store.
pub(crate) fn path_text(path: &[Option<u32>]) -> String {
    let node = |node: &Option<u32>| node.map_or("?".to_string(), |node| node.to_string());
    path.iter().map(node).collect::<Vec<_>>().join(">")
}

/// The nodes of a path in the form of the store.
pub(crate) fn parse_path(text: &str) -> Vec<Option<u32>> {
    text.split('>').filter(|node| !node.is_empty()).map(|node| node.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_survives_its_text() {
        let path = [Some(101), None, Some(103)];
        assert_eq!(path_text(&path), "101>?>103");
        assert_eq!(parse_path("101>?>103"), path);
        assert_eq!(parse_path(""), []);
    }
}
