//! What drivers report: answers, events, and what devices say about themselves.
//!
//! A driver is a task of the program that executes [`Command`](crate::device::Command)s of one device, one at a time, as [`crate::device`] describes, and
//! sends [`Message`]s. It depends on nothing of the program.

use crate::device::{Answer, Capabilities, DeviceEvent, Election, NodeId, PortId, RequestId};
use crate::flows::FlowKey;

/// What a driver reports.
#[derive(Clone, Debug, PartialEq)]
pub enum Message {
    /// The answer to a command.
    Answer(NodeId, RequestId, Answer),
    /// Something happened.
    Event(NodeId, DeviceEvent),
    /// What the device says about itself, when it changed.
    Facts(NodeId, Box<Facts>),
    /// What it has reported since its start.
    Reported(NodeId, Reported),
    /// Packets that have matched each entry of its watchlist and that it measures; entries without packets may be missing. A number that
    /// falls counts anew.
    Matched(NodeId, Vec<(FlowKey, u64)>),
    /// What the counters of its program have counted since the device started.
    Counted(NodeId, Vec<Counter>),
    /// What an operator should know of the device, in one sentence; nothing follows from it.
    Note(NodeId, String),
    /// The election that it was claimed with, and how long ago that manager renewed its lease, ns. Drivers whose devices can tell.
    Lease(NodeId, Election, u64),
}

/// A counter of a device's program.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Counter {
    /// The filter, mapping or the like that it belongs to, such as `filter 3`; `None`: to the device.
    pub object: Option<String>,
    /// What the object is, such as the rule of a filter; `None`: not known.
    pub about: Option<String>,
    /// What it counts.
    pub name: String,
    /// Packets.
    pub packets: u64,
}

/// What a device counts of its reports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reported {
    /// Packets to report: at a sink, those from which it removed INT, without those that its filters suppress.
    pub packets: u64,
    /// Datagrams with reports that it has sent; `None`: it does not count them.
    pub sent: Option<u64>,
}

/// What a device says about itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    /// What it can do.
    pub capabilities: Capabilities,
    /// Its ports.
    pub ports: Vec<PortFacts>,
}

/// What a device says about a port.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PortFacts {
    /// Its number.
    pub port: PortId,
    /// The name of its interface.
    pub name: Option<String>,
    /// Longest IP packet, bytes.
    pub mtu: Option<u32>,
    /// It leads to hosts, as the device is configured.
    pub hosts: bool,
    /// The neighbour that announces itself by LLDP.
    pub neighbour: Option<Neighbour>,
}

/// A neighbour as LLDP (IEEE 802.1AB) announces it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Neighbour {
    /// Its system name; its chassis id where it announces none.
    pub system: String,
    /// Its port id: an interface name or a number.
    pub port: String,
}
