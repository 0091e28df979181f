//! Messages from device drivers to the manager: answers to commands, events, capabilities and counters.
//!
//! A driver is a task that executes [`Command`](crate::device::Command)s for one device, one at a time, according to the
//! contract in [`crate::device`], and sends [`Message`]s. It depends on no other part of the program.

use serde::{Deserialize, Serialize};

use crate::device::{Answer, Capabilities, DeviceEvent, Election, NodeId, PortId, RequestId};
use crate::flows::FlowMatch;

/// A message of a driver.
#[derive(Clone, Debug, PartialEq)]
pub enum Message {
    /// The answer to a command.
    Answer(NodeId, RequestId, Answer),
    /// An event that the device reported unasked.
    Event(NodeId, DeviceEvent),
    /// Changed capabilities and ports of the device.
    Facts(NodeId, Box<Facts>),
    /// Counters of the device's reports since it started.
    Reported(NodeId, Reported),
    /// Packets measured by each watchlist entry; entries without packets may be missing. A decreasing counter has been reset.
    Matched(NodeId, Vec<(FlowMatch, u64)>),
    /// Counters of the device's program since the device started.
    Counted(NodeId, Vec<Counter>),
    /// A sentence about the device for the operator, without other effects.
    Note(NodeId, String),
    /// The election of the device's last claim, and the time since that manager renewed its lease, ns, if it reports them.
    Lease(NodeId, Election, u64),
}

/// A counter of a device.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(rename = "DeviceCounter"))]
pub struct Counter {
    /// The filter, mapping or the like of the program that it belongs to, such as `filter 3`; null for the device itself. Objects
    /// that have counted nothing are left out.
    #[serde(default)]
    pub object: Option<String>,
    /// Description of that object, such as the rule of a filter and its flows; null if unknown.
    #[serde(default)]
    pub about: Option<String>,
    /// Meaning of the counter.
    pub name: String,
    /// Packets that were counted.
    pub packets: u64,
}

/// Counters of a device's reports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reported {
    /// Packets to report. At a sink: packets from which it removed INT and that its filters do not suppress.
    pub packets: u64,
    /// Datagrams with reports that the device has sent; `None` if it does not count them.
    pub sent: Option<u64>,
}

/// Capabilities and ports of a device, as it reports them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    /// Capabilities of the device.
    pub capabilities: Capabilities,
    /// Ports of the device.
    pub ports: Vec<PortFacts>,
}

/// Facts about a port, as the device reports them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PortFacts {
    /// Number of the port.
    pub port: PortId,
    /// Name of the interface.
    pub name: Option<String>,
    /// Longest IP packet, bytes.
    pub mtu: Option<u32>,
    /// True if the port leads to hosts according to the device's configuration.
    pub hosts: bool,
    /// The neighbour that LLDP announces on this port.
    pub neighbour: Option<Neighbour>,
}

/// A neighbour announced by LLDP (IEEE 802.1AB).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Neighbour {
    /// System name, or the chassis id if no name is announced.
    pub system: String,
    /// Port id: an interface name or a number.
    pub port: String,
}
