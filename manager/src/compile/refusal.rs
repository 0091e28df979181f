//! Reasons why an intent cannot be compiled, and the notes for the operator if it can.

use std::fmt;

use crate::device::{Mode, NodeId};
use crate::flows::FlowMatch;
use crate::instruction::{self, Bits};
use crate::intent::IntentError;

/// Table name, in messages, of the filters by rule.
pub(super) const FILTERS_BY_RULE: &str = "filters by rule";

/// The reason for refusing an intent. `Display` states the problem and a fix in one sentence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The intent contradicts itself.
    Intent(IntentError),
    /// The maximum number of intents (given) is reached.
    TooMany(usize),
    /// The inventory has no device with an edge port.
    NoEdge,
    /// No edge device matches the pattern.
    NoSuchEdge(String),
    /// The inventory has no such host.
    UnknownHost(String),
    /// The host has no address.
    HostWithoutAddress(String),
    /// The flows do not include any between the two hosts.
    NotBetween(String, String),
    /// A device at the edge cannot remove INT.
    Leak(String),
    /// A device does not support the treatment of the L4 checksum.
    Checksum(String, &'static str),
    /// No mode works; lists each mode with the reason.
    NoMode(Vec<(Mode, String)>),
    /// No device can fill these bits.
    Bits(Bits),
    /// A device cannot express a key.
    Match {
        /// Name of the device.
        device: String,
        /// Key of the entry.
        key: Box<FlowMatch>,
        /// The part that the device cannot express, and the nearest alternative.
        why: &'static str,
    },
    /// A device cannot sample packets.
    Sampling(String),
    /// A device does not have this filter.
    Filter(String, &'static str),
    /// A device cannot filter by this rule, for the reason given.
    FilterRule(String, String),
    /// Packets would exceed the MTU.
    Mtu {
        /// Longest packet of a host, bytes.
        packet: u32,
        /// Bytes of INT on a path one link longer than the longest.
        int: u32,
        /// Smallest MTU between devices, bytes.
        mtu: u32,
        /// True if the bits are the union of several intents' for the same flows.
        is_union: bool,
    },
    /// A device's table has too few entries.
    Full {
        /// Name of the device.
        device: String,
        /// Name of the table.
        table: &'static str,
        /// Entries that would be needed.
        needed: usize,
        /// Entries that the table has.
        room: usize,
    },
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Intent(error) => write!(f, "{error}"),
            Self::TooMany(limit) => write!(
                f,
                "there are {limit} intents, and no more are possible; remove some, or use wider prefixes"
            ),
            Self::NoEdge => {
                f.write_str("no device has an edge port; add hosts or edge ports to the inventory")
            }
            Self::NoSuchEdge(pattern) => {
                write!(
                    f,
                    "no device with edge ports is named or labelled `{pattern}`; correct `at.edges`"
                )
            }
            Self::UnknownHost(name) => write!(f, "there is no host `{name}`; add it to the inventory"),
            Self::HostWithoutAddress(name) => {
                write!(f, "the host `{name}` has no address; add one to the inventory")
            }
            Self::NotBetween(a, b) => {
                write!(
                    f,
                    "`match` excludes all flows between {a} and {b}; widen it or remove `at.between`"
                )
            }
            Self::Leak(device) => write!(
                f,
                "{device} has ports to hosts and cannot remove INT, so that hosts would receive it; use mode = \"postcard\", or remove {device} from the inventory"
            ),
            Self::Checksum(device, word) => write!(
                f,
                "{device} does not support l4_checksum = \"{word}\", and all devices of a domain must agree; choose one that all support"
            ),
            Self::NoMode(why) => write!(
                f,
                "no mode provides the watched metrics ({}); watch fewer, or change what is named",
                reasons(why)
            ),
            Self::Bits(bits) => write!(
                f,
                "no device can fill {}; remove the metrics that need it from `watch`",
                instruction::names(*bits)
            ),
            Self::Match { device, key, why } => write!(f, "{device} cannot match `{key}`: {why}"),
            Self::Sampling(device) => {
                write!(
                    f,
                    "{device} cannot sample packets; remove `sample`, or exclude it by `at.edges`"
                )
            }
            Self::Filter(device, word) => write!(
                f,
                "{device} has no filter `{word}`; remove `filter`: the collector then applies the thresholds to all reports"
            ),
            Self::FilterRule(device, why) => write!(
                f,
                "the rule cannot be the filter of {device}: {why}, or remove `filter`: the collector then applies the rule to all reports"
            ),
            Self::Mtu {
                packet,
                int,
                mtu,
                is_union,
            } => write!(
                f,
                "a packet of {packet} bytes grows by up to {int} bytes of INT{} (on the longest path and one link more, since a failure makes paths longer), and the MTU between devices is {mtu}; raise that MTU to {} bytes, watch less, or use mode = \"postcard\"",
                if *is_union {
                    " for all intents of the same flows"
                } else {
                    ""
                },
                packet + int
            ),
            Self::Full {
                device,
                table,
                needed,
                room,
            } => {
                write!(
                    f,
                    "the {table} of {device} would need {needed} entries and has room for {room}; "
                )?;
                f.write_str(room_for(table))
            }
        }
    }
}

impl std::error::Error for Refusal {}

/// Suggests how an intent can use fewer entries of a table.
fn room_for(table: &str) -> &'static str {
    if table == FILTERS_BY_RULE {
        return "each entry of the flows of an intent with filter = \"rule\" is one: use fewer of them, or remove `filter`: the collector then applies the rule to all reports";
    }
    "use wider prefixes, or limit the intent by `at`"
}

fn reasons(why: &[(Mode, String)]) -> String {
    why.iter()
        .map(|(mode, why)| format!("{}: {why}", mode.name()))
        .collect::<Vec<_>>()
        .join("; ")
}

/// A note for the operator about an intent that was accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Note {
    /// A device cannot fill some of the bits.
    Incomplete {
        /// Id of the device.
        node: NodeId,
        /// Name of the device.
        device: String,
        /// Bits that it cannot fill.
        bits: Bits,
    },
    /// After a restart of this device, INT can reach the hosts behind it until its rules are installed again.
    OpenAfterRestart(String),
    /// The MTU of a link or a host is unknown, so the MTU was not checked.
    MtuNotKnown,
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Incomplete { device, bits, .. } => {
                write!(
                    f,
                    "{device} cannot fill {}: its records lack these values",
                    instruction::names(*bits)
                )
            }
            Self::OpenAfterRestart(device) => write!(
                f,
                "{device} forwards without rules after a restart: until it is configured again, its hosts may receive INT"
            ),
            Self::MtuNotKnown => f.write_str("the MTU of links or hosts is not known and was not checked"),
        }
    }
}
