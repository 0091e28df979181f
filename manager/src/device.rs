//! The interface between the manager and its device drivers: rules, capabilities, requests and answers.
//!
//! Rules are independent of the device type. A driver translates them into entries of its device's tables and back. It knows
//! no intents, makes no decisions, and executes one [`Request`] at a time.
//!
//! # Driver contract
//! - **Fencing.** After [`Request::Claim`] with election *e* succeeded, the device executes no `Apply` with an election below
//!   *e*, even one that was delayed in the network. The device remembers *e* across restarts, or else the managers' leases
//!   must not overlap in time. It refuses a claim unless its election is greater than all before, or else no two runs of a
//!   manager may have the same term.
//! - **Precondition.** A driver executes [`Request::Apply`] only if the device's ETag equals the given one. Changes by
//!   anybody, claims and restarts change the ETag.
//! - **Any subset.** If the device is not atomic, the changes of an `Apply` may be executed in part, in order. The manager
//!   makes each change safe alone.
//! - **Ownership.** [`State::rules`] contains only rules that the manager installed; everything else is listed in
//!   [`State::foreign`].
//! - **Truth.** `Read` asks the device, and never answers from a cache of the writes. For a device that an agent configures
//!   later, `Read` answers [`Answer::Unconfirmed`] from the hand-over of changes until the device has confirmed all of them.

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

    /// Returns the instruction bits that the mode needs besides the metrics' bits. In modes where each node reports
    /// separately, the interface ids show which node comes next and prove that no report is missing; without them the
    /// collector may know no path.
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

/// A watchlist entry: flows and how to measure them.
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
    /// Sampling: one packet in `sample` is measured; 1 measures all.
    pub sample: u32,
    /// True if dropped packets are reported.
    pub drops: bool,
}

impl Watch {
    /// Returns the maximum bytes of INT that packets may carry because of this entry.
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

/// A filter at a sink, which reports only significant changes of these flows.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Filter {
    /// Flows that are filtered.
    pub key: FlowMatch,
    /// Algorithm of the filter.
    pub algorithm: FilterAlgorithm,
    /// The metric that is compared.
    pub metric: Metric,
    /// Threshold in the metric's unit; greater differences are reported.
    pub threshold: u64,
    /// Condition in the rule language, for [`FilterAlgorithm::Rule`].
    pub rule: Option<Arc<str>>,
}

/// The map of DTA collectors. It assigns keys, lists and sketches to collectors, and gives the destination of each one's
/// reports (DTA, section 3.2). All reporters and queries must use the same map.
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
    /// Encoding of INT in packets, for the whole device.
    Encoding(Encoding),
    /// Address of the collector that receives the reports.
    Session(SocketAddr),
    /// The map that DTA reports follow. Only for devices with [`Capabilities::dta`].
    DtaMap(Arc<DtaMap>),
    /// INT is removed from packets that leave by this port, and reported.
    Sink(PortId),
    /// The node executes this instruction bit (0 to 15) when it forwards a packet with INT.
    Instruction(u8),
    /// The sink reports only packets that this filter selects.
    Filter(Arc<Filter>),
    /// The device may forward packets. Only for devices with [`Restart::Waits`].
    Forwarding,
    /// Packets that enter by this port are matched against the watchlist.
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

    /// Returns the maximum bytes of INT that packets may carry because of this rule.
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
    /// Prefixes are supported; without this, single addresses only.
    pub prefixes: bool,
    /// Fields may be omitted; without this, an entry specifies the full 5-tuple.
    pub wildcards: bool,
    /// Port ranges are supported; without this, one port or all.
    pub ranges: bool,
    /// The DSCP can be matched.
    pub dscp: bool,
    /// The IP protocol can be matched.
    pub protocol: bool,
    /// An entry must specify at least one port.
    pub needs_port: bool,
}

/// The features and limits of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// Modes in which the device can be source and sink.
    pub modes: BTreeSet<Mode>,
    /// Instruction bits that the device can fill.
    pub bits: Bits,
    /// Kinds of keys that its watchlist supports.
    pub matches: MatchKinds,
    /// Capacity of its watchlist, entries.
    pub watch_entries: usize,
    /// Capacity of its filter table, entries; 0 if it cannot filter.
    pub filter_entries: usize,
    /// Algorithms that its filters support.
    pub filters: BTreeSet<FilterAlgorithm>,
    /// Limits on the rules of its filters.
    pub rules: RuleLimits,
    /// True if the device can measure one packet in N.
    pub sampling: bool,
    /// True if the device reports by DTA and accepts a map of collectors.
    pub dta: bool,
    /// True if the device can remove INT from packets.
    pub sink: bool,
    /// True if a port's source and sink roles are one setting, so that the device needs no [`Rule::Source`].
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

/// Opaque version of a device's rules, compared for equality only.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Etag(pub String);

/// Election of the manager that may write: the higher one wins, first by term, then by epoch.
// Corresponds to P4Runtime's election id. The epoch grows with each claim of the manager.
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
    /// Range of managers' terms, which are times in µs from 2017 to 2286. Elections of other controllers are outside.
    pub const TERMS: std::ops::Range<u64> = 1_500_000_000_000_000..9_999_999_999_999_999;
}

/// The number of a request, which its answer repeats. Answers to other requests than the outstanding one are ignored.
pub type RequestId = u64;

/// A request to a driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// Connects if necessary and becomes the only writer, which fences all earlier requests.
    Claim(Election),
    /// Reads the state of the device.
    Read,
    /// Applies changes if the device's ETag still equals `etag`.
    Apply {
        /// Election of the last claim.
        election: Election,
        /// ETag of the state from which the changes were computed.
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
    /// Entries of other controllers, as text for the operator.
    pub foreign: Vec<String>,
    /// Numbers of entries in the device's tables that belong to none of `rules`.
    pub others: OtherEntries,
}

/// Counts of table entries that belong to no rule: other controllers' entries and remnants. They use capacity too.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct OtherEntries {
    /// Count in the watchlist. If it consists of several tables, the maximum of their counts.
    pub watch: usize,
    /// Count in the filter table, the maximum of several tables.
    pub filter: usize,
}

/// A driver's answer to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The claim succeeded; this manager is the only writer.
    Claimed,
    /// Another manager has a higher election.
    NotPrimary(Election),
    /// The state that was read.
    State(State),
    /// The device applies changes asynchronously, after accepting them. It has not confirmed the last ones, may have applied
    /// any part of them, and accepts no further changes until then.
    Unconfirmed(String),
    /// The changes were accepted.
    Applied,
    /// The ETag differs; nothing was changed.
    Stale,
    /// The device refused the request. Earlier changes of the request may have been executed.
    Refused(String),
    /// The device cannot be reached.
    Unreachable(String),
    /// The device did not answer within the command's time limit. The request may have been executed in part.
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
    /// Time limit for the answer, ns, derived from earlier answer times of the device.
    pub limit: u64,
}

impl Command {
    /// Returns the time that a driver waits for its device, 90 % of the limit, so that it answers before the manager gives up.
    pub fn time_limit(&self) -> Duration {
        Duration::from_nanos(self.limit / 10 * 9)
    }
}

/// An event that a driver reports unasked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DeviceEvent {
    /// The device's rules may have changed; the manager reads it at once.
    Changed,
    /// The connection was lost or the device restarted; the manager claims and reads it again.
    Lost(String),
    /// The device runs no program and so has no rules.
    Emptied,
    /// The device's program was loaded, or loading failed. The manager claims it again without backoff.
    Loaded,
}
