//! Actions on a running fabric.

use crate::flow::FlowSpec;

/// Identifies a flow of this fabric.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FlowId(pub(super) u32);

/// An action on a running fabric.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Cuts the link between two nodes (the first, if there are several).
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
    /// The link loses packets on the way from `from` to `to`, unseen by both.
    LoseOnLink {
        /// The sending end's id.
        from: u32,
        /// The receiving end's id.
        to: u32,
        /// Packets lost, per million; 0: none.
        loss: u32,
    },
    /// A flow sends `packets` more packets, `gap` ns apart (0: at the rate of its host's link).
    Burst {
        /// The flow that sends.
        flow: FlowId,
        /// Number of packets of the burst.
        packets: u32,
        /// Time between packets, ns.
        gap: u64,
    },
    /// A new flow begins.
    AddFlow(FlowSpec),
    /// A flow sends no more packets.
    StopFlow(FlowId),
    /// Clears the SF-INT registers of a switch, as a restart does.
    Wipe {
        /// Node id of the switch.
        node: u32,
    },
    /// `node` sends all packets for host `to` to its neighbour `via`, regardless of the routes; `None` ends
    /// this. It can cause a loop.
    Divert {
        /// Node id of the switch.
        node: u32,
        /// The destination host's id.
        to: u32,
        /// Node id of the neighbour.
        via: Option<u32>,
    },
}
