//! Changes the rules of devices to the desired ones, in an order in which no INT reaches a host.
//!
//! A [`Reconciler`] is a state machine over `now` and messages: the caller passes in answers, events and the time, sends the
//! [`Command`](crate::device::Command)s that come out, and calls again at [`Reconciler::next_timeout`]. `docs/design/manager.md`
//! explains why the order is safe.

mod device;
mod fleet;
mod guard;
#[cfg(test)]
mod tests;
mod wait;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

pub use self::fleet::Reconciler;
pub use self::wait::Wait;

use crate::device::{Change, NodeId, OtherEntries, PortId, Restart, Rules};
use crate::inventory::DevicePorts;

/// The conditions of each step. The default requires all of them; tests switch some off to prove that each is necessary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Order {
    /// Sources are added when all borders are closed.
    pub sources_wait_for_sinks: bool,
    /// Sources are added when all nodes execute the instructions that packets will ask for.
    pub sources_wait_for_transits: bool,
    /// Instructions are removed when no device inserts INT that asks for them. Without it, they do not wait for the drain either.
    pub transits_wait_for_sources: bool,
    /// Instructions are removed when no packet that asks for them can be in flight.
    pub transits_wait_for_drain: bool,
    /// Sinks are removed when no device inserts INT. Without it, they do not wait for the drain either.
    pub sinks_wait_for_sources: bool,
    /// Sinks are removed when no packet with INT can be in flight.
    pub sinks_wait_for_drain: bool,
    /// A device of which nothing is known inserts INT, as far as this manager knows.
    pub sinks_wait_for_claims: bool,
    /// The encoding changes when no packet with INT can be in flight.
    pub encodings_wait_for_drain: bool,
    /// The sink of a port to a device is removed when that device's border is closed.
    pub links_wait_for_peers: bool,
    /// The sink of a port to a device is removed when no packet can be in flight whose INT has no room there.
    pub links_wait_for_room: bool,
    /// A device that waits after a restart forwards when its border is closed.
    pub forwarding_waits_for_sinks: bool,
    /// A port is announced as an edge port when its sink is there and no packet with INT can be in its queue.
    pub edges_wait_for_sinks: bool,
}

impl Default for Order {
    fn default() -> Self {
        Self {
            sources_wait_for_sinks: true,
            sources_wait_for_transits: true,
            transits_wait_for_sources: true,
            transits_wait_for_drain: true,
            sinks_wait_for_sources: true,
            sinks_wait_for_drain: true,
            sinks_wait_for_claims: true,
            encodings_wait_for_drain: true,
            links_wait_for_peers: true,
            links_wait_for_room: true,
            forwarding_waits_for_sinks: true,
            edges_wait_for_sinks: true,
        }
    }
}

/// Times and limits of requests and changes. All times are in ns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// A request without an answer for this long has failed, until the device has shown that it needs longer: each time that it is late it
    /// gets twice as long.
    pub timeout: u64,
    /// The longest time that a request may take, if that is more.
    pub longest: u64,
    /// A device that reports no change is read again after this time.
    pub poll: u64,
    /// Time that others wait for a device before they close their ports to it.
    pub grace: u64,
    /// The longest time that a packet with INT can be in flight: the sum of the queues and links of the longest path.
    pub drain: u64,
    /// First and longest time between two attempts.
    pub retry: (u64, u64),
    /// Upper limit of the changes in one request.
    pub batch: usize,
}

impl Default for Timing {
    fn default() -> Self {
        const MS: u64 = 1_000_000;
        Self {
            timeout: 2_000 * MS,
            longest: 64_000 * MS,
            poll: 10_000 * MS,
            grace: 3_000 * MS,
            drain: 2_000 * MS,
            retry: (500 * MS, 30_000 * MS),
            batch: 1000,
        }
    }
}

/// The desired state of one device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// Name of the device, for messages.
    pub name: String,
    /// Ports of the device.
    pub ports: DevicePorts,
    /// Rules that it should have.
    pub rules: Arc<Rules>,
    /// Behaviour after a restart.
    pub restart: Restart,
    /// Bytes of INT for which each link of the domain has room; `None` if that is not known.
    pub room: Option<u32>,
    /// It is outside the domain: INT never reaches it, so that it waits for no other device, and none for it.
    pub outside: bool,
}

/// The state of a device. `Display` writes its name and, for people, the reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Phase {
    /// The device does not answer.
    Unreachable {
        /// Reason, as text for people.
        reason: String,
        /// Time of the next attempt, ns.
        next_try: u64,
    },
    /// The device is being claimed.
    Connecting,
    /// The rules are being read.
    Reading,
    /// The device has the desired rules.
    InSync,
    /// The rules differ, and a part of the difference waits.
    Drift,
    /// Changes are being applied.
    Applying,
    /// It refused changes, or accepted them without effect, or refuses to be read.
    Failed {
        /// Reason, as text for people.
        reason: String,
        /// Time of the next attempt, ns.
        next_try: u64,
    },
    /// It was handed changes, and has not confirmed that it has them.
    Unconfirmed {
        /// Missing confirmation, for people.
        reason: String,
    },
    /// Another manager acts instead.
    Standby,
}

impl Phase {
    /// Returns the name of this state in the API.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Unreachable { .. } => "unreachable",
            Self::Connecting => "connecting",
            Self::Reading => "reading",
            Self::InSync => "in_sync",
            Self::Drift => "drift",
            Self::Applying => "applying",
            Self::Failed { .. } => "failed",
            Self::Unconfirmed { .. } => "unconfirmed",
            Self::Standby => "standby",
        }
    }
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreachable { reason, .. } | Self::Failed { reason, .. } | Self::Unconfirmed { reason } => {
                write!(f, "{}: {reason}", self.name())
            }
            _ => f.write_str(self.name()),
        }
    }
}

/// The status of a device for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceStatus {
    /// Node id of the device.
    pub node: NodeId,
    /// Name of the device.
    pub name: String,
    /// State of the device.
    pub phase: Phase,
    /// The rules as last read; `None` if they were never read under this lease, or are left out.
    pub rules: Option<Rules>,
    /// Numbers of missing rules and of unexpected rules.
    pub difference: (usize, usize),
    /// Condition that the next change waits for.
    pub waits: Option<Wait>,
    /// Entries of others, as text.
    pub foreign: Vec<String>,
    /// Entries in its tables that belong to none of its rules.
    pub others: OtherEntries,
    /// The device's border is closed: INT that reaches it stays inside the domain.
    pub ready: bool,
}

/// An event for the log and for the history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// The state of a device changed.
    Phase(NodeId, Phase),
    /// Changes are sent to a device.
    Applying(NodeId, Vec<Change>),
    /// A port that was in a link has been a sink for long enough: hosts may be connected.
    EdgeReady(NodeId, PortId),
    /// Another manager has a higher election: this one no longer acts.
    Superseded(NodeId),
}

/// Upper limit of the notices that are kept until the caller drains them; older ones are dropped first.
pub const MAX_NOTICES: usize = 1 << 16;

/// The desired state of each device of a domain.
pub type Targets = BTreeMap<NodeId, Target>;

/// Returns the ports of a device that became edge or unused ports, compared with `old`.
fn new_border_ports(old: &DevicePorts, new: &DevicePorts) -> Vec<PortId> {
    let before: BTreeSet<PortId> = old.border().collect();
    new.border().filter(|port| !before.contains(port)).collect()
}
