//! The reconciler: changes the rules of devices to the desired ones, in an order in which no INT reaches a host.
//!
//! A [`Reconciler`] is a state machine without I/O. The caller passes in answers, events and the time, sends the returned
//! [`Command`](crate::device::Command)s, and calls again at [`Reconciler::next_timeout`]. `docs/design/manager.md` explains
//! why the order is safe.

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

/// Maximum number of notices that wait for the caller; beyond it, the oldest are dropped.
pub const MAX_NOTICES: usize = 1 << 16;

/// The conditions that changes wait for. The default requires all of them; tests prove that each is necessary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Order {
    /// Sources are added only when all borders are closed.
    pub sources_wait_for_sinks: bool,
    /// Sources are added only when all nodes execute the instructions that packets will request.
    pub sources_wait_for_transits: bool,
    /// Instructions are removed only when no device inserts INT that requests them. Without this, they do not wait for the
    /// drain either.
    pub transits_wait_for_sources: bool,
    /// Instructions are removed only when no packet that requests them can be in flight.
    pub transits_wait_for_drain: bool,
    /// Sinks are removed only when no device inserts INT. Without this, they do not wait for the drain either.
    pub sinks_wait_for_sources: bool,
    /// Sinks are removed only when no packet with INT can be in flight.
    pub sinks_wait_for_drain: bool,
    /// A device with unknown rules is assumed to insert INT.
    pub sinks_wait_for_claims: bool,
    /// The encoding changes only when no packet with INT can be in flight.
    pub encodings_wait_for_drain: bool,
    /// The sink on a port to a device is removed only when that device's border is closed.
    pub links_wait_for_peers: bool,
    /// The sink on a port to a device is removed only when no packet in flight has more INT than the link has room for.
    pub links_wait_for_room: bool,
    /// A device that waits after a restart may forward only when its border is closed.
    pub forwarding_waits_for_sinks: bool,
    /// A port is announced as an edge port only when its sink is installed and no packet with INT can be in its queue.
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

/// Timeouts and limits of requests and changes. All times are in ns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// Default timeout of a request. Each timeout doubles the device's limit, up to `longest`; a slow answer raises it, too.
    pub timeout: u64,
    /// Maximum timeout of a request, if greater than `timeout`.
    pub longest: u64,
    /// Interval between reads of a device that reports no changes.
    pub poll: u64,
    /// Grace period: an unready device gets this long before its neighbours close their ports to it.
    pub grace: u64,
    /// Maximum time that a packet with INT can be in flight: the queues and links of the longest path.
    pub drain: u64,
    /// Backoff between attempts: the first and the maximum.
    pub retry: (u64, u64),
    /// Maximum number of changes in one request.
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
    /// Rules that the device should have.
    pub rules: Arc<Rules>,
    /// Behaviour after a restart.
    pub restart: Restart,
    /// Bytes of INT that fit in packets on each link of the domain; `None` if unknown.
    pub room: Option<u32>,
    /// True if the device is outside the INT domain: INT never reaches it, and no device waits for another because of it.
    pub outside: bool,
}

/// The phase of a device. `Display` writes its name and, if there is one, the reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Phase {
    /// The device does not answer.
    Unreachable {
        /// Reason, as text for the operator.
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
    /// The rules differ from the target; the remaining changes wait.
    Drift,
    /// Changes are being applied.
    Applying,
    /// The device refused changes, accepted them without effect, or refuses to be read.
    Failed {
        /// Reason, as text for the operator.
        reason: String,
        /// Time of the next attempt, ns.
        next_try: u64,
    },
    /// The device was handed changes and has not confirmed them.
    Unconfirmed {
        /// The missing confirmation, as text for the operator.
        reason: String,
    },
    /// This manager is in standby; another one is active.
    Standby,
}

impl Phase {
    /// Returns the name of this phase in the API.
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

/// The status of a device, for display.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceStatus {
    /// Node id of the device.
    pub node: NodeId,
    /// Name of the device.
    pub name: String,
    /// Phase of the device.
    pub phase: Phase,
    /// The rules as last read. `None` if they were not read under this lease, or if the caller did not request them.
    pub rules: Option<Rules>,
    /// Numbers of missing rules and of unexpected rules.
    pub difference: (usize, usize),
    /// Condition that the next change waits for.
    pub waits: Option<Wait>,
    /// Entries of other controllers, as text.
    pub foreign: Vec<String>,
    /// Counts of entries in its tables that belong to none of its rules.
    pub others: OtherEntries,
    /// True if the device's border is closed, so that INT that reaches the device stays inside the domain.
    pub ready: bool,
}

/// A notice for the log and the history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// The phase of a device changed.
    Phase(NodeId, Phase),
    /// The changes are being sent to a device.
    Applying(NodeId, Vec<Change>),
    /// An edge port that was in a link has been a sink for long enough; hosts may be connected.
    EdgeReady(NodeId, PortId),
    /// Another manager has a higher election; this one is now in standby.
    Superseded(NodeId),
}

/// The desired state of each device of a domain.
pub type Targets = BTreeMap<NodeId, Target>;

/// Returns the ports of a device that are border ports (edge, unused or disputed) in `new` but not in `old`.
fn new_border_ports(old: &DevicePorts, new: &DevicePorts) -> Vec<PortId> {
    let before: BTreeSet<PortId> = old.border().collect();
    new.border().filter(|port| !before.contains(port)).collect()
}
