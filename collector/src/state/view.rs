//! The present state of a flow: plain values, copied out.

use super::State;
use super::flows::Flags;
use super::hops::HopState;
use super::series::Key;
use crate::decode::{ABSENT, egress};
use crate::event::{Basis, FlowRow};

/// One hop of a flow, as it last was.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HopView {
    /// The node; `None` when it does not report its id.
    pub node: Option<u32>,
    /// Where the flow comes in.
    pub ingress_if: Option<u16>,
    /// Where it goes out.
    pub egress_if: Option<u32>,
    /// Through which queue.
    pub queue: Option<u8>,
    /// Time inside the node, ns (saturated at 4.29 s).
    pub hop_latency: Option<u64>,
    /// Latest occupancy of the queue, from any reporter.
    pub queue_occupancy: Option<u64>,
    /// Latest utilisation of the link, millionths, from any reporter.
    pub link_utilization: Option<u64>,
}

/// A flow, as it last was. Borrows the collector.
#[derive(Clone, Copy, Debug)]
pub struct FlowView<'a> {
    /// Its row, as at the periodic push.
    pub row: FlowRow,
    /// Nodes that its path has; more than [`FlowView::hops`] where not all could be stored.
    pub path_length: u16,
    /// Not every hop could be stored: the memory for hops was full.
    pub truncated: bool,
    /// Its path visits a node twice.
    pub looped: bool,
    /// The E bit of its latest report: the hop limit was reached.
    pub hop_limit: bool,
    /// The M bit of its latest report: the MTU was.
    pub mtu: bool,
    /// How the order of its path is known: [`Basis::Measured`] where a packet carried it, else by what postcards were joined.
    pub path_basis: Basis,
    /// Bit i: rule i of the rule set is true.
    pub rules: u64,
    state: &'a State,
    states: &'a [HopState],
}

impl<'a> FlowView<'a> {
    /// Its nodes in forwarding order, `u32::MAX` where one does not report its id. None when there were only postcards:
    /// those name nodes, and give their order only when they could be joined.
    pub fn path(&self) -> impl ExactSizeIterator<Item = u32> + use<'a> {
        let on_path = if self.path_length == 0 { &[] } else { self.states };
        on_path.iter().map(|state| state.node)
    }

    /// Its hops in forwarding order; without a path, in the order of their first reports.
    pub fn hops(&self) -> impl ExactSizeIterator<Item = HopView> + use<'a> {
        let state = self.state;
        self.states.iter().map(move |hop| state.hop_view(hop))
    }

    /// The basis of its latency.
    pub fn basis(&self) -> Basis {
        self.row.basis
    }
}

impl State {
    fn hop_view(&self, hop: &HopState) -> HopView {
        let given = |id: u32| (id != ABSENT).then_some(id);
        let egress = egress(hop.link, hop.level_2);
        let ingress = (hop.link >> 16) as u16;
        // A slot may have been given to another key since this flow's last report.
        let of = |part: u32| move |(key, _): &(Key, u64)| (key.node, key.part) == (hop.node, part);
        let queue = self.metrics.queues.latest(hop.queue_slot).filter(of(u32::from(hop.queue)));
        let link = self.metrics.links.latest(hop.link_slot).filter(of(egress));
        HopView {
            node: given(hop.node),
            ingress_if: (!hop.level_2 && ingress != u16::MAX).then_some(ingress),
            egress_if: given(egress),
            queue: u8::try_from(hop.queue).ok(),
            hop_latency: given(hop.latest).map(u64::from),
            queue_occupancy: queue.map(|(_, latest)| latest),
            link_utilization: link.map(|(_, latest)| latest),
        }
    }

    pub(crate) fn view(&self, slot: u32) -> Option<FlowView<'_>> {
        let (flow, cold, states) = self.flows.get(slot)?;
        Some(FlowView {
            row: flow.row(cold),
            path_length: flow.path_length,
            truncated: flow.flags.has(Flags::TRUNCATED),
            looped: flow.flags.has(Flags::LOOP),
            hop_limit: flow.flags.has(Flags::HOP_LIMIT),
            mtu: flow.flags.has(Flags::MTU),
            path_basis: flow.flags.order(),
            rules: if cold.generation == self.detection.generation() { flow.rules } else { 0 },
            state: self,
            states,
        })
    }
}
