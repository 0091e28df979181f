//! Actions that a scenario can schedule on a running fabric: link failures, bursts, new flows, diversions.

use crate::flow::FlowSpec;

/// Identifies a flow of this fabric.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FlowId(pub(super) u32);

/// An action on a running fabric.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Cuts the link between two nodes; the first one, if there are several.
    CutLink {
        /// Node id of one end.
        a: u32,
        /// Node id of the other end.
        b: u32,
    },
    /// Restores the link between two nodes.
    MendLink {
        /// Node id of one end.
        a: u32,
        /// Node id of the other end.
        b: u32,
    },
    /// Makes the link lose packets from `from` to `to`, undetected by both ends.
    LoseOnLink {
        /// The sending end's id.
        from: u32,
        /// The receiving end's id.
        to: u32,
        /// Packets lost, per million; 0 for none.
        loss: u32,
    },
    /// Makes a flow send `packets` more packets, `gap` ns apart (0: at the rate of its host's link).
    Burst {
        /// The flow that sends the packet.
        flow: FlowId,
        /// Number of packets in the burst.
        packets: u32,
        /// Time between packets, ns.
        gap: u64,
    },
    /// Adds a flow, which begins at its start time.
    AddFlow(FlowSpec),
    /// Stops a flow from sending more packets.
    StopFlow(FlowId),
    /// Clears the SF-INT registers of a switch, as a restart does.
    Wipe {
        /// Node id of the switch.
        node: u32,
    },
    /// Makes `node` send all packets for host `to` to its neighbour `via`, regardless of the routes; `None` ends the diversion.
    /// It can cause a loop.
    Divert {
        /// Node id of the switch.
        node: u32,
        /// The destination host's id.
        to: u32,
        /// Node id of the neighbour.
        via: Option<u32>,
    },
}
