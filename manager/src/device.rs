//! Devices as the manager sees them: rules, capabilities, and the messages by which a driver is used.
//!
//! Rules are abstract; a driver translates them into entries of its device's tables and back. It knows no intents, takes no
//! decision, and executes one [`Request`] at a time.
//!
//! # What a driver must keep
//! - **Fencing.** After [`Request::Claim`] with election *e* succeeded, the device executes no `Apply` of an election below *e*, even
//!   if it was delayed in the network. It remembers *e* across restarts, or the leases of managers do not overlap in time. It refuses
//!   a claim with an election that is not above all before, or no two runs of a manager have the same term.
//! - **Precondition.** [`Request::Apply`] is executed only if the device's ETag is the one given. Changes by anybody, claims and
//!   restarts change the ETag.
//! - **Any subset.** Changes of one `Apply` may be executed in part, in order, if the device is not atomic; each is safe alone.
//! - **Ours.** [`State::rules`] has only what the manager installed; everything else is counted in [`State::foreign`].
//! - **Truth.** `Read` asks the device, and never answers from what was written. A device that somebody else configures is
//!   [`Answer::Unconfirmed`] from the moment at which changes were handed over until it is known to have them all.

use std::collections::BTreeSet;
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use detect::Metric;
use serde::{Deserialize, Serialize};
use settings::choice;

use crate::flows::FlowMatch;
use crate::instruction::{self, Bits, HEADER_BYTES};
use crate::rule_limits::RuleLimits;

/// A node id: the `node_id` of INT, and the key of a device everywhere in this crate.
pub type NodeId = u32;

/// A port's number, as in INT's interface ids.
pub type PortId = u32;

choice! {
    /// The way in which watched flows are measured.
    #[derive(PartialOrd, Ord, Hash)]
    pub enum Mode("\"md\", \"mx\", \"postcard\" or \"sf\"") {
        /// INT-MD: the packet collects the records, the sink reports them.
        Md = "md",
        /// INT-MX: the packet carries the instructions, every node reports.
        Mx = "mx",
        /// INT-XD: the packet is unchanged, every node reports by its own watchlist.
        Postcard = "postcard",
        /// SF-INT: packets of constant size, one node's record in each.
        Sf = "sf",
    }
}

impl Mode {
    /// Returns whether packets carry INT, which must not reach a host.
    pub fn embeds(self) -> bool {
        self != Self::Postcard
    }

    /// Returns the instruction bits that it needs besides those of the metrics. Where each node reports by itself, the interfaces
    /// show which node comes next, and prove that none is missing; without them the collector may know no path.
    pub fn bits(self) -> Bits {
        match self {
            Self::Md | Self::Sf => 0,
            Self::Mx | Self::Postcard => instruction::bit(1),
        }
    }
}

choice! {
    /// Treatment of the L4 checksum of packets with INT. All devices of a domain must agree: the sink undoes what the source did.
    #[derive(PartialOrd, Ord, Hash, Default)]
    pub enum L4Checksum("\"update\", \"leave\" or \"zero\"") {
        /// Every node updates the checksum.
        #[default]
        Update = "update",
        /// The checksum is left as the host computed it.
        Leave = "leave",
        /// The checksum of UDP is 0 while the packet carries INT; that of TCP is updated.
        Zero = "zero",
    }
}

/// Settings of INT that must be equal in the whole domain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Encoding {
    /// DSCP that marks packets with INT, 1 to 63.
    pub dscp: u8,
    /// Treatment of the L4 checksum.
    pub l4_checksum: L4Checksum,
}

impl Default for Encoding {
    fn default() -> Self {
        Self {
            dscp: 0x17,
            l4_checksum: L4Checksum::default(),
        }
    }
}

/// An entry of a watchlist: the flows, and how they are measured.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Watch {
    /// The flows; [`FlowMatch::precedence`] orders overlapping entries.
    pub key: FlowMatch,
    /// Mode of the measurement.
    pub mode: Mode,
    /// Instruction bitmap of the packets.
    pub bits: Bits,
    /// Remaining hop count at the source.
    pub hops: u8,
    /// One packet of this many is measured; 1 measures all.
    pub sample: u32,
    /// Dropped packets are reported.
    pub drops: bool,
}

impl Watch {
    /// Returns the upper limit of the bytes of INT that packets may carry for it.
    pub fn int_bytes(&self) -> u32 {
        let record = instruction::record_bytes(self.bits);
        match self.mode {
            Mode::Md => HEADER_BYTES + record * u32::from(self.hops),
            Mode::Sf => HEADER_BYTES + record,
            Mode::Mx => HEADER_BYTES,
            Mode::Postcard => 0,
        }
    }
}

choice! {
    /// The algorithm by which a filter detects changes.
    #[derive(PartialOrd, Ord, Hash)]
    pub enum FilterAlgorithm("\"noop\", \"per_hop\", \"per_flow\", \"change\" or \"rule\"") {
        /// Every packet is reported.
        Noop = "noop",
        /// Each node's value, compared with the last one reported for that node.
        PerHop = "per_hop",
        /// The sum over the path, compared with the last one reported for the flow.
        PerFlow = "per_flow",
        /// The path, or a bucket of latency or queue.
        Change = "change",
        /// A condition in the rule language.
        Rule = "rule",
    }
}

/// A filter at a sink: of packets of these flows, only significant changes are reported.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Filter {
    /// Flows that are filtered.
    pub key: FlowMatch,
    /// Algorithm of the filter.
    pub algorithm: FilterAlgorithm,
    /// The metric that is compared.
    pub metric: Metric,
    /// A greater difference is reported, in the metric's unit.
    pub threshold: u64,
    /// The condition of a filter by rule.
    pub rule: Option<Arc<str>>,
}

/// A map of DTA collectors: it assigns keys, lists and sketches to collectors, and says where the reports for each go (DTA,
/// section 3.2). All reporters and queries need the same one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DtaMap {
    /// Names of the collectors, in the order of their numbers.
    pub collectors: Vec<String>,
    /// Canonical text of the map. A manager only compares it for equality.
    pub text: String,
}

/// One rule. The order of the variants is the order in which a batch adds them.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Rule {
    /// INT is encoded like this.
    Encoding(Encoding),
    /// Reports go to this collector.
    Session(SocketAddr),
    /// Reports by DTA go to the collectors of this map. Only of devices with [`Capabilities::dta`].
    DtaMap(Arc<DtaMap>),
    /// Packets that leave by this port lose their INT and are reported.
    Sink(PortId),
    /// The node executes this instruction bit (0 to 15) when it forwards a packet with INT.
    Instruction(u8),
    /// The sink reports only the packets that this filter selects.
    Filter(Arc<Filter>),
    /// The device may forward packets. Only of devices with [`Restart::Waits`].
    Forwarding,
    /// Packets that enter by this port are compared with the watchlist.
    Source(PortId),
    /// An entry of the watchlist.
    Watch(Arc<Watch>),
}

impl Rule {
    /// Returns the instruction bits that packets may carry because of this rule; 0 if it inserts nothing.
    pub fn inserted_bits(&self) -> Bits {
        match self {
            Self::Watch(watch) if watch.mode.embeds() => watch.bits,
            _ => 0,
        }
    }

    /// Returns the upper limit of the bytes of INT that packets may carry because of this rule.
    pub fn int_bytes(&self) -> u32 {
        if let Self::Watch(watch) = self {
            watch.int_bytes()
        } else {
            0
        }
    }

    /// Returns whether `other` occupies the same entry of a device's table, so that the two cannot exist together.
    pub fn same_entry(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Watch(a), Self::Watch(b)) => a.key == b.key,
            (Self::Filter(a), Self::Filter(b)) => a.key == b.key,
            (Self::Encoding(_), Self::Encoding(_)) | (Self::Session(_), Self::Session(_)) => true,
            (Self::DtaMap(_), Self::DtaMap(_)) => true,
            _ => self == other,
        }
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Encoding(encoding) => {
                write!(
                    f,
                    "INT marked by DSCP {}, L4 checksum {}",
                    encoding.dscp,
                    encoding.l4_checksum.name()
                )
            }
            Self::Session(collector) => write!(f, "reports to {collector}"),
            Self::DtaMap(map) => write!(f, "reports by DTA to {}", map.collectors.join(", ")),
            Self::Sink(port) => write!(f, "port {port}: sink"),
            Self::Source(port) => write!(f, "port {port}: source"),
            Self::Instruction(number) => write!(f, "instruction {}", instruction::name(*number)),
            Self::Filter(filter) if filter.algorithm == FilterAlgorithm::Noop => {
                write!(f, "report every packet: {}", filter.key)
            }
            Self::Filter(filter) if filter.rule.is_some() => {
                write!(
                    f,
                    "report if {}: {}",
                    filter.rule.as_deref().unwrap_or_default(),
                    filter.key
                )
            }
            Self::Filter(filter) => write!(
                f,
                "filter {} of {} above {}: {}",
                filter.algorithm.name(),
                filter.metric,
                crate::instruction::amount_text(filter.metric, filter.threshold),
                filter.key
            ),
            Self::Forwarding => f.write_str("forwarding"),
            Self::Watch(watch) => {
                write!(
                    f,
                    "watch {}: {} with {}",
                    watch.key,
                    watch.mode.name(),
                    instruction::names(watch.bits)
                )?;
                if watch.sample > 1 {
                    write!(f, ", 1 in {}", watch.sample)
                } else {
                    Ok(())
                }
            }
        }
    }
}

/// Rules of a device, in canonical order.
pub type Rules = BTreeSet<Rule>;

/// One change of a device's rules.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Change {
    /// The rule is removed. A removal directly before an addition of the same entry is a modification.
    Remove(Rule),
    /// The rule is added.
    Add(Rule),
}

impl Change {
    /// Returns the rule that is added or removed.
    pub fn rule(&self) -> &Rule {
        let (Self::Remove(rule) | Self::Add(rule)) = self;
        rule
    }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Remove(rule) => write!(f, "remove {rule}"),
            Self::Add(rule) => write!(f, "add {rule}"),
        }
    }
}

choice! {
    /// The behaviour of a device after a restart.
    pub enum Restart("\"keeps\", \"waits\" or \"forwards\"") {
        /// The device keeps its rules.
        Keeps = "keeps",
        /// The device loses its rules and forwards nothing until [`Rule::Forwarding`] is there.
        Waits = "waits",
        /// The device loses its rules and forwards at once. Until its sinks are back, INT can leave by its edge ports: no manager can
        /// prevent that, and every plan says so.
        Forwards = "forwards",
    }
}

/// The kinds of watchlist keys that a device can express.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MatchKinds {
    /// IPv6 addresses are supported.
    pub ipv6: bool,
    /// Prefixes; otherwise single addresses only.
    pub prefixes: bool,
    /// Fields may be left out; otherwise all of the 5-tuple must be given.
    pub wildcards: bool,
    /// Port ranges; otherwise one port or all.
    pub ranges: bool,
    /// The DSCP can be matched.
    pub dscp: bool,
    /// The IP protocol can be matched.
    pub protocol: bool,
    /// At least one port must be given.
    pub needs_port: bool,
}

/// The features and limits of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// Modes in which it can be source and sink.
    pub modes: BTreeSet<Mode>,
    /// Instruction bits that it can fill.
    pub bits: Bits,
    /// Kinds of keys of its watchlist.
    pub matches: MatchKinds,
    /// Capacity of its watchlist, entries.
    pub watch_entries: usize,
    /// Capacity of its filter table, entries; 0 if it cannot filter.
    pub filter_entries: usize,
    /// Algorithms of its filters.
    pub filters: BTreeSet<FilterAlgorithm>,
    /// Limits of the rules of its filters.
    pub rules: RuleLimits,
    /// It can measure one packet of N.
    pub sampling: bool,
    /// It reports by DTA, to the collectors of a map that it is given.
    pub dta: bool,
    /// It can remove INT from packets.
    pub sink: bool,
    /// Source and sink of a port are one setting: it needs no [`Rule::Source`].
    pub joint_roles: bool,
    /// Treatments of the L4 checksum that it supports.
    pub l4_checksum: BTreeSet<L4Checksum>,
    /// Behaviour after a restart.
    pub restart: Restart,
}

impl Default for Capabilities {
    /// Returns the capabilities of a hopwise switch.
    fn default() -> Self {
        Self {
            modes: Mode::ALL.into(),
            bits: 0xfd01,
            matches: MatchKinds {
                ipv6: true,
                prefixes: true,
                wildcards: true,
                ranges: true,
                dscp: false,
                protocol: true,
                needs_port: false,
            },
            watch_entries: 4096,
            filter_entries: 256,
            filters: FilterAlgorithm::ALL.into(),
            rules: RuleLimits::default(),
            sampling: true,
            dta: false,
            sink: true,
            joint_roles: true,
            l4_checksum: L4Checksum::ALL.into(),
            restart: Restart::Keeps,
        }
    }
}

/// The opaque version of a device's rules.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Etag(pub String);

/// Election of the manager that may write: the higher one wins, first by term, then by epoch.
// As P4Runtime's election id. The epoch grows with each claim of the manager.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Election {
    /// Term of the manager's lease.
    pub term: u64,
    /// Claims within the term.
    pub epoch: u64,
}

impl Election {
    /// Terms of managers: times in microseconds, from 2017 to 2286. Elections of other controllers are outside.
    pub const TERMS: std::ops::Range<u64> = 1_500_000_000_000_000..9_999_999_999_999_999;
}

/// The number of a request. An answer repeats it; answers to other requests than the outstanding one are ignored.
pub type RequestId = u64;

/// A request to a driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// Connects if necessary and becomes the only writer. Fences everything sent before.
    Claim(Election),
    /// Reads the state of the device.
    Read,
    /// Executes changes, if the state is still that of `etag`.
    Apply {
        /// Election of the last claim.
        election: Election,
        /// The state that the changes were computed from.
        etag: Etag,
        /// The changes, in order.
        changes: Vec<Change>,
    },
}

/// The rules and entries that a device has.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct State {
    /// Version of the rules.
    pub etag: Etag,
    /// Rules that the manager installed.
    pub rules: Rules,
    /// Entries of others, as text for people.
    pub foreign: Vec<String>,
    /// Entries in the device's tables that belong to none of its rules.
    pub others: OtherEntries,
}

/// Entries of tables that belong to no rule: those of other controllers, and remnants. They occupy room as well.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct OtherEntries {
    /// Those in the watchlist: in the one of its tables that has most of them.
    pub watch: usize,
    /// Those among the filters, likewise.
    pub filter: usize,
}

/// A driver's answer to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The claim has succeeded.
    Claimed,
    /// Another manager has a higher election.
    NotPrimary(Election),
    /// The state that was read.
    State(State),
    /// The device executes changes by itself, later than they were accepted. It has not confirmed the last ones, may have any
    /// part of them, and accepts no others until then.
    Unconfirmed(String),
    /// The changes were accepted.
    Applied,
    /// The state has another version; nothing was changed.
    Stale,
    /// The device refused the request. What was executed before is unknown.
    Refused(String),
    /// The device cannot be reached.
    Unreachable(String),
    /// It did not answer within the time limit of the command. What was executed is unknown.
    Late(String),
}

/// A request that is sent to a driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Command {
    /// Node id of the device.
    pub node: NodeId,
    /// Number of the request.
    pub id: RequestId,
    /// The request to execute.
    pub request: Request,
    /// Time limit of the answer, ns: the device has shown that it needs this long.
    pub limit: u64,
}

impl Command {
    /// Returns the time that a driver waits for its device: it answers before the manager gives up.
    pub fn time_limit(&self) -> Duration {
        Duration::from_nanos(self.limit / 10 * 9)
    }
}

/// An event that a driver reports by itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DeviceEvent {
    /// The device's rules may have changed: it is read at once.
    Changed,
    /// The connection was lost, or the device restarted: it is claimed and read again.
    Lost(String),
    /// It has no program, and so none of its rules.
    Emptied,
    /// The device's program has been loaded, or could not be: it is claimed again, without the waiting time of its failures.
    Loaded,
}
