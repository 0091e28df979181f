//! The measurements of a switch ([`Context`]), which are the input of a reporter's mappings, and the [`Trigger`]s of reports.

use wire::int::Stack;
use wire::{FlowKey, Hop};

wire::named! {
    /// The event that causes a report.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
    pub enum Trigger, name {
        /// A sink removed a packet's INT, and reports its path: `stack` and `metadata`.
        Path => "path",
        /// A node measured a packet, and reports only its own record (INT-MX, postcards).
        Hop => "hop",
        /// A sink of SF-INT removed INT with the record of one node, which is part of a path.
        Sample => "sample",
        /// A watched packet was dropped here.
        Drop => "drop",
        /// A queue became congested, or recovered.
        Queue => "queue",
        /// A packet passed a congested queue.
        CongestedPacket => "congested_packet",
        /// A packet passed; this is triggered by every packet.
        Packet => "packet",
        /// A record of a table was evicted by another key.
        Evicted => "evicted",
        /// A table's period ended; triggered for each of its records.
        Period => "period",
        /// A record of a table began to meet a condition.
        Passed => "passed",
        /// A table's period ended; triggered once, with its totals.
        Window => "window",
    }
}

settings::named_setting! {
    Trigger = "\"path\", \"hop\", \"sample\", \"drop\", \"queue\", \"congested_packet\", \"packet\", \"evicted\", \"period\", \"passed\" or \"window\"";
}

impl Trigger {
    /// Returns whether the trigger is about one record or all records of a table.
    pub fn is_of_a_table(self) -> bool {
        matches!(self, Self::Evicted | Self::Period | Self::Passed | Self::Window)
    }
}

/// The measurements of one packet, record or table; `None` means unknown.
#[derive(Clone, Copy, Debug)]
pub struct Context<'a> {
    /// The event that causes the report.
    pub trigger: Trigger,
    /// Node id of the switch.
    pub node: u32,
    /// The packet's flow, without INT.
    pub flow: Option<&'a FlowKey>,
    /// Records of nodes before this one, the most recent first.
    pub stack: Stack<'a>,
    /// The measurement of this node, unless its record is on the stack.
    pub metadata: Option<&'a Hop>,
    /// Drop reason code of the device.
    pub reason: Option<u8>,
    /// True if the queue is congested, for [`Trigger::Queue`] and [`Trigger::CongestedPacket`].
    pub congested: Option<bool>,
    /// Fields of the packet itself.
    pub packet: PacketFacts,
    /// The record of a table.
    pub counter: Option<&'a Counter<'a>>,
    /// Totals of a table, if the report is about the whole table.
    pub window: Option<&'a Window<'a>>,
}

/// Fields of a packet other than its flow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PacketFacts {
    /// A number that all switches on the path compute identically, and that differs between packets of a flow. It comes from
    /// fields that no switch changes (see [`packet_id`]); PINT selects by it.
    pub id: u32,
    /// Length of the IP packet at ingress, bytes.
    pub bytes: u32,
    /// TTL or hop limit at egress; 0 if unknown.
    pub hop_limit: u8,
    /// True if the packet arrived from a host.
    pub from_edge: bool,
    /// True if the packet leaves to a host.
    pub to_edge: bool,
}

/// A table's record about one key.
#[derive(Clone, Copy, Debug)]
pub struct Counter<'a> {
    /// The key, from the table's fields.
    pub key: &'a [u8],
    /// Sums since the key was last reported.
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
    /// Packets dropped at this switch.
    pub drops: u64,
}

impl Sums {
    pub(super) const ZERO: Self = Self {
        packets: 0,
        bytes: 0,
        drops: 0,
    };

    /// Returns the dropped packets in millionths of all packets, or `None` if there were no packets.
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
    /// The key with the most packets.
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

    /// Returns the number of hops of the path, as far as known.
    pub fn hops(&self) -> usize {
        self.stack.len() + usize::from(self.metadata.is_some())
    }

    /// Returns hop `i` of the path, from 0 for the source.
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

    /// Returns the time that the packet spent in nodes, ns, or `None` if a hop does not have it.
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

/// Computes a packet's number from fields that no switch on the path changes: `ident` is the IPv4 identification or the IPv6
/// flow label, `sequence` the TCP sequence number (0 for other protocols).
#[inline]
pub fn packet_id(flow: &FlowKey, ident: u32, sequence: u32) -> u32 {
    let mixed = flow.id() ^ (u64::from(ident) << 32 | u64::from(sequence));
    let mixed = (mixed ^ mixed >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    (mixed ^ mixed >> 32) as u32
}
