//! One node's metadata about a packet, in a form common to all INT versions and IOAM (`docs/reference/wire-formats.md`,
//! section 1.4).

/// The set of metadata items that a hop's record has, whether or not their values are available. The bits are internal, not
/// from the wire.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Items(pub u16);

impl Items {
    /// ID of the node (switch).
    pub const NODE_ID: Self = Self(1 << 0);
    /// Level-1 ingress and egress interface.
    pub const INTERFACES: Self = Self(1 << 1);
    /// Hop latency: time inside the node.
    pub const HOP_LATENCY: Self = Self(1 << 2);
    /// Queue ID and occupancy.
    pub const QUEUE: Self = Self(1 << 3);
    /// Ingress timestamp of the packet.
    pub const INGRESS_TS: Self = Self(1 << 4);
    /// Egress timestamp of the packet.
    pub const EGRESS_TS: Self = Self(1 << 5);
    /// Level-2 (logical) ingress and egress interface.
    pub const L2_INTERFACES: Self = Self(1 << 6);
    /// Egress interface TX utilization.
    pub const TX_UTILIZATION: Self = Self(1 << 7);
    /// Buffer ID and occupancy.
    pub const BUFFER: Self = Self(1 << 8);
    /// Queue ID and congestion status (INT 0.5 only).
    pub const QUEUE_CONGESTION: Self = Self(1 << 9);
    /// Checksum complement of the record.
    pub const CHECKSUM_COMPLEMENT: Self = Self(1 << 10);
    /// Queue ID alone, next to a drop reason (reports only).
    pub const QUEUE_ID: Self = Self(1 << 11);

    /// Returns whether this set contains all items of `other`.
    #[inline]
    pub fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Adds the items of `other`.
    #[inline]
    pub fn insert(&mut self, other: Self) {
        self.0 |= other.0;
    }

    /// Returns whether the set is empty.
    #[inline]
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }
}

/// The record of one node about one packet. `None` means absent or unavailable (all-ones); `carried` tells which. Values
/// are as on the wire: the device profile defines their units and widths.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Hop {
    /// Items that the record has on the wire.
    pub carried: Items,
    /// Node ID; `None` also if it is all-ones.
    pub node_id: Option<u32>,
    /// Level-1 ingress interface, 16 bits.
    pub ingress_if: Option<u16>,
    /// Level-1 egress interface, 16 bits.
    pub egress_if: Option<u16>,
    /// Time inside the node, device units (ns by default).
    pub hop_latency: Option<u32>,
    /// `hop_latency` is in ns whatever the device's unit, because it is the transit delay of IOAM.
    pub latency_in_ns: bool,
    /// Queue through which the packet left: the queue of the occupancy, else of the congestion status, else of the drop
    /// reason.
    pub queue_id: Option<u8>,
    /// Occupancy of queue `queue_id`, 24 bits, device units.
    pub queue_occupancy: Option<u32>,
    /// Queue of the congestion status, which may differ from `queue_id`.
    pub congestion_queue_id: Option<u8>,
    /// Queue next to a drop reason, which may differ from `queue_id` (reports only).
    pub drop_queue_id: Option<u8>,
    /// Queue congestion status (INT 0.5), 24 bits.
    pub queue_congestion: Option<u32>,
    /// Ingress timestamp, 32 bits unless `wide_ts`.
    pub ingress_ts: Option<u64>,
    /// Egress timestamp, 32 bits unless `wide_ts`.
    pub egress_ts: Option<u64>,
    /// Timestamps are 64 bits wide.
    pub wide_ts: bool,
    /// Logical (level 2) ingress interface.
    pub l2_ingress_if: Option<u32>,
    /// Logical (level 2) egress interface.
    pub l2_egress_if: Option<u32>,
    /// Egress link utilization, device units.
    pub tx_utilization: Option<u32>,
    /// Buffer ID of the buffer occupancy.
    pub buffer_id: Option<u8>,
    /// Buffer occupancy, 24 bits.
    pub buffer_occupancy: Option<u32>,
    /// Checksum complement, as on the wire.
    pub checksum_complement: Option<u32>,
}

impl Hop {
    /// Returns the egress interface: of level 1, or that of level 2 if the hop carries only this one.
    pub fn egress_interface(&self) -> Option<u32> {
        self.egress_if.map(u32::from).or(self.l2_egress_if)
    }

    /// Returns `queue` unless it equals [`Hop::queue_id`].
    pub fn other_queue(&self, queue: Option<u8>) -> Option<u8> {
        queue.filter(|queue| Some(*queue) != self.queue_id)
    }
}
