//! The measurements of a switch, as the input of a reporter's mappings.

use wire::int::Stack;
use wire::{FlowKey, Hop};

wire::named! {
    /// The event that causes a report.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
    pub enum Trigger, name {
        /// A sink removed a packet's INT and reports its path: `stack` and `metadata`.
        Path => "path",
        /// A node measured a packet and reports only its own record (INT-MX, postcards).
        Hop => "hop",
        /// A sink of SF-INT removed INT with one node's record, a part of a path.
        Sample => "sample",
        /// A watched packet was dropped here.
        Drop => "drop",
        /// A queue became congested, or recovered.
        Queue => "queue",
        /// A packet passed a congested queue.
        CongestedPacket => "congested_packet",
        /// A packet passed: every packet.
        Packet => "packet",
        /// A record of a table was evicted by another.
        Evicted => "evicted",
        /// A table's period ended: one of its records.
        Period => "period",
        /// A record of a table now meets a condition.
        Passed => "passed",
        /// A table's period ended: its totals.
        Window => "window",
    }
}

settings::named_setting! {
    Trigger = "\"path\", \"hop\", \"sample\", \"drop\", \"queue\", \"congested_packet\", \"packet\", \"evicted\", \"period\", \"passed\" or \"window\"";
}

impl Trigger {
    /// Returns whether it is about one record of a table, or all of them.
    pub fn is_of_a_table(self) -> bool {
        matches!(self, Self::Evicted | Self::Period | Self::Passed | Self::Window)
    }
}

/// The measurements of one packet, record or table. `None`: unknown.
#[derive(Clone, Copy, Debug)]
pub struct Context<'a> {
    /// The event that causes the report.
    pub trigger: Trigger,
    /// Node id of the switch.
    pub node: u32,
    /// The packet's flow, as it was before INT.
    pub flow: Option<&'a FlowKey>,
    /// Records of nodes before this one, the most recent first.
    pub stack: Stack<'a>,
    /// The measurement of this node, unless it is on the stack.
    pub metadata: Option<&'a Hop>,
    /// The device's code of the drop reason.
    pub reason: Option<u8>,
    /// The queue is congested. For [`Trigger::Queue`] and [`Trigger::CongestedPacket`].
    pub congested: Option<bool>,
    /// Fields of the packet itself.
    pub packet: PacketFacts,
    /// The record of a table.
    pub counter: Option<&'a Counter<'a>>,
    /// All records of a table, if the report is about the whole table.
    pub window: Option<&'a Window<'a>>,
}

/// Fields of a packet other than its flow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PacketFacts {
    /// A number that all switches on the path compute identically, and that differs between packets of a flow: computed from fields
    /// that no switch changes (see [`packet_id`]). PINT selects by it.
    pub id: u32,
    /// Length of the IP packet at ingress, bytes.
    pub bytes: u32,
    /// TTL or hop limit at egress; 0 is unknown.
    pub hop_limit: u8,
    /// Whether the packet arrived from a host.
    pub from_edge: bool,
    /// Whether the packet goes to a host.
    pub to_edge: bool,
}

/// The record of a table about one key.
#[derive(Clone, Copy, Debug)]
pub struct Counter<'a> {
    /// The key, from the table's fields.
    pub key: &'a [u8],
    /// Sums since the last report of the key.
    pub since: Sums,
    /// Sums since the key was inserted into the table.
    pub total: Sums,
    /// Time at which the key was inserted, ns.
    pub first: u64,
    /// Time at which a packet was last counted, ns.
    pub last: u64,
}

/// The counters of a table's record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sums {
    /// Number of packets that passed.
    pub packets: u64,
    /// Number of bytes of these packets.
    pub bytes: u64,
    /// Packets that were dropped here.
    pub drops: u64,
}

impl Sums {
    pub(super) const ZERO: Self = Self {
        packets: 0,
        bytes: 0,
        drops: 0,
    };

    /// Dropped packets, in millionths of all; `None` if there were no packets.
    pub fn loss_rate(&self) -> Option<u64> {
        let all = self.packets.saturating_add(self.drops);
        (all > 0).then(|| (u128::from(self.drops) * 1_000_000 / u128::from(all)) as u64)
    }

    /// Returns whether all counts are 0.
    pub fn is_zero(&self) -> bool {
        *self == Self::ZERO
    }

    pub(super) fn add(&mut self, other: Self) {
        self.packets = self.packets.wrapping_add(other.packets);
        self.bytes = self.bytes.wrapping_add(other.bytes);
        self.drops = self.drops.wrapping_add(other.drops);
    }

    pub(super) fn less(&self, other: &Self) -> Self {
        Self {
            packets: self.packets.wrapping_sub(other.packets),
            bytes: self.bytes.wrapping_sub(other.bytes),
            drops: self.drops.wrapping_sub(other.drops),
        }
    }
}

/// Totals of a period of a table, over the records that meet its conditions.
#[derive(Clone, Copy, Debug)]
pub struct Window<'a> {
    /// Number of records that meet the conditions.
    pub keys: u64,
    /// Counts of these keys in the period.
    pub sums: Sums,
    /// The key with most packets.
    pub top_key: &'a [u8],
    /// The counts of that key.
    pub top: Sums,
}

impl<'a> Context<'a> {
    /// Returns a context with only the trigger and the node.
    pub fn new(trigger: Trigger, node: u32) -> Self {
        Self {
            trigger,
            node,
            flow: None,
            stack: Stack::EMPTY,
            metadata: None,
            reason: None,
            congested: None,
            packet: PacketFacts::default(),
            counter: None,
            window: None,
        }
    }

    /// Hops of the path.
    pub fn hops(&self) -> usize {
        self.stack.len() + usize::from(self.metadata.is_some())
    }

    /// Hop `i` of the path, from 0, the source first.
    pub fn hop(&self, i: usize) -> Option<Hop> {
        let before = self.stack.len();
        if i < before {
            return Some(self.stack.hop(before - 1 - i));
        }
        self.metadata.filter(|_| i == before).copied()
    }

    /// Returns the node id of hop `i`.
    #[inline]
    pub fn node_of(&self, i: usize) -> Option<u32> {
        let before = self.stack.len();
        if i < before {
            let id = self.stack.layout.node_id(self.stack.record(before - 1 - i));
            return Some(id).filter(|id| *id != u32::MAX);
        }
        self.metadata.filter(|_| i == before).and_then(|hop| hop.node_id)
    }

    /// Returns the default hop: this node's, or the last if its record is on the stack.
    pub fn last_hop(&self) -> Option<Hop> {
        self.metadata
            .copied()
            .or_else(|| self.hops().checked_sub(1).and_then(|last| self.hop(last)))
    }

    /// Time that the packet spent in nodes, ns; `None` unless every hop has it.
    pub fn flow_latency(&self) -> Option<u64> {
        let mut total = None;
        for i in 0..self.hops() {
            let hop = self.hop(i)?;
            let latency = match (hop.hop_latency, hop.ingress_ts, hop.egress_ts) {
                (Some(latency), ..) => latency,
                (None, Some(ingress), Some(egress)) => egress.wrapping_sub(ingress) as u32,
                _ => return None,
            };
            total = Some(total.unwrap_or(0_u64) + u64::from(latency));
        }
        total
    }
}

/// Returns a packet's number from fields that no switch on the path changes: `ident` is the IPv4 identification or the IPv6 flow label,
/// `sequence` the TCP sequence number; 0 for other protocols.
#[inline]
pub fn packet_id(flow: &FlowKey, ident: u32, sequence: u32) -> u32 {
    let mixed = flow.id() ^ (u64::from(ident) << 32 | u64::from(sequence));
    let mixed = (mixed ^ mixed >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    (mixed ^ mixed >> 32) as u32
}
