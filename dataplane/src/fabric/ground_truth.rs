//! The ground truth of a simulation: what really happened to packets, reports and links, for comparison with a collector's
//! results.

use wire::FlowKey;
use wire::int::Sf;

pub use crate::report::ReportKind;

/// The true values of a packet at one switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HopTruth {
    /// Node id of the switch.
    pub node: u32,
    /// Ingress interface of the packet.
    pub ingress_if: u16,
    /// Egress interface of the packet, which is also the queue's ID; 0 if it never reached a queue.
    pub egress_if: u16,
    /// Occupancy of the egress queue on the packet's arrival, in the fabric's queue unit.
    pub queue_occupancy: u32,
    /// Transmit utilization of the egress link when the packet left, in hundredths of a percent.
    pub tx_utilization: u32,
    /// Time at which its last bit arrived, true time, ns.
    pub ingress: u64,
    /// Time at which its first bit left, true time, ns; the time of the drop if it was dropped here.
    pub egress: u64,
    /// Offset of the node's clock from true time, ns.
    pub clock_offset: i64,
    /// True if the switch's record is in the packet's INT stack, or was sent in a separate report.
    pub recorded: bool,
}

impl HopTruth {
    /// Returns the time inside the switch, ns.
    pub fn hop_latency(&self) -> u64 {
        self.egress - self.ingress
    }

    /// Returns the ingress timestamp by the switch's clock, ns.
    pub fn ingress_ts(&self) -> u64 {
        self.ingress.wrapping_add_signed(self.clock_offset)
    }

    /// Returns the egress timestamp by the switch's clock, ns.
    pub fn egress_ts(&self) -> u64 {
        self.egress.wrapping_add_signed(self.clock_offset)
    }
}

/// The path of one packet until it was delivered or dropped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PacketTrace<'a> {
    /// Number of the packet in this run, from 0.
    pub packet: u64,
    /// The 5-tuple of its flow.
    pub flow: FlowKey,
    /// True time at which the traffic generator sent the packet, ns.
    pub sent: u64,
    /// True time at which the packet arrived at the host, or was dropped, ns.
    pub ended: u64,
    /// The switches that it passed, in order.
    pub hops: &'a [HopTruth],
}

impl PacketTrace<'_> {
    /// Returns the ids of the nodes that it passed, in order.
    pub fn path(&self) -> Vec<u32> {
        self.hops.iter().map(|hop| hop.node).collect()
    }
}

wire::named! {
    /// The reason why a packet was dropped. The codes equal the device's drop codes in reports (those of fabric-tna where
    /// it has one).
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
    #[repr(u8)]
    pub enum DropReason, name {
        /// It passed too many switches, because of a loop.
        TooManyHops = 26 => "ttl_zero",
        /// No route to its destination.
        NoRoute = 29 => "no_route",
        /// The egress queue was full (traffic manager).
        QueueFull = 71 => "queue_full",
        /// The egress link was cut while routes had not changed yet, or while the packet was in the queue.
        LinkDown = 128 => "link_down",
        /// It was on a link that was cut, or the link lost it ([`super::Impairments`]). No switch can detect this, so it is
        /// never reported.
        LostOnLink = 0 => "lost_on_link",
    }
}

impl DropReason {
    /// Returns the drop reason byte in reports.
    pub fn code(self) -> u8 {
        self as u8
    }
}

/// The expected contents of one report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReportTruth {
    /// Kind of the report.
    pub kind: ReportKind,
    /// Number of the packet that caused it.
    pub packet: u64,
    /// The 5-tuple of that packet (not contained in a queue report).
    pub flow: FlowKey,
    /// The switches whose records the report has, in forwarding order, the reporter last.
    pub hops: Vec<HopTruth>,
    /// The reason of the drop, for drop reports.
    pub reason: Option<DropReason>,
    /// The carried record of an SF-INT packet that is not urgent; `hops` has the records of one packet only.
    pub sf: Option<SfTruth>,
}

/// The ground truth of a report of SF-INT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SfTruth {
    /// State, and the number that the source gave to the packet of the record.
    pub sf: Sf,
    /// Number of that packet in this run, and its values at the node; `None` if it is too old to be stored.
    pub carried: Option<(u64, HopTruth)>,
    /// Values at the reporter of the packet that caused the report.
    pub reporter: HopTruth,
}

impl ReportTruth {
    /// Returns the ids of the nodes whose records it has.
    pub fn path(&self) -> Vec<u32> {
        self.hops.iter().map(|hop| hop.node).collect()
    }
}

/// Outcome of a report datagram in the channel to the collector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DatagramOutcome {
    /// The datagram arrived once.
    Delivered,
    /// The datagram never arrived.
    Lost,
    /// The datagram arrived twice.
    Duplicated,
    /// The datagram arrived once, later than the channel's delay.
    Delayed,
}

/// A report datagram, recorded when it is sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DatagramTruth {
    /// True time at which the datagram left the node, ns.
    pub sent: u64,
    /// The node that sent it.
    pub node: u32,
    /// Subsystem of that node.
    pub hw_id: u8,
    /// Sequence number of the datagram.
    pub seq: u32,
    /// Outcome of the datagram in the channel.
    pub outcome: DatagramOutcome,
    /// The reports in the datagram, in order.
    pub reports: Vec<ReportTruth>,
}

/// An arrival of a datagram at the collector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// Arrival time at the collector, true time, ns.
    pub at: u64,
    /// The node that sent it.
    pub node: u32,
    /// Subsystem of that node.
    pub hw_id: u8,
    /// Sequence number of the datagram.
    pub seq: u32,
    /// True if the same datagram had already arrived.
    pub duplicate: bool,
    /// True if a datagram that the same subsystem sent later had already arrived.
    pub overtaken: bool,
}

/// An event of the ground truth, in the order of simulated time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GroundTruth<'a> {
    /// A packet reached its host.
    Delivered(PacketTrace<'a>),
    /// A packet was lost at `node`; for [`DropReason::LostOnLink`] the node before the link.
    Dropped {
        /// The path up to the drop; its `ended` is the time of the drop.
        trace: PacketTrace<'a>,
        /// ID of the node that lost it.
        node: u32,
        /// The reason of the drop.
        reason: DropReason,
        /// True if the node sent a drop report.
        reported: bool,
    },
    /// A packet of a flow arrived by another path than the previous packet.
    PathChange {
        /// Arrival time, true time, ns.
        at: u64,
        /// The flow whose path changed.
        flow: FlowKey,
        /// The path of the previous packet.
        old: &'a [u32],
        /// The path of this packet.
        new: &'a [u32],
    },
    /// A report datagram was sent.
    Datagram(&'a DatagramTruth),
    /// A report datagram arrived.
    Arrival(Arrival),
    /// A link was cut or restored.
    Link {
        /// Time of the change, true time, ns.
        at: u64,
        /// Node id of one end.
        a: u32,
        /// Node id of the other end.
        b: u32,
        /// True if the link is up now.
        up: bool,
    },
    /// All switches use the new routes.
    Converged {
        /// Time of the change, true time, ns.
        at: u64,
    },
}
