//! Behind a filter: reports without news are decided elsewhere (in the kernel), and the collector is told of them together.
//!
//! # What the filter owes
//!
//! It gives up every datagram that changes anything on which an event depends, now or later:
//!
//! - a flow or a key of a node that it does not know; another path;
//! - a value further than its threshold from the one **told** last, with the threshold of the report's flow;
//! - E or M bits that are not the flow's, also when they go out;
//! - rules that become true or cease to be, and after a swap of the detection the first report of each flow of which one
//!   is true;
//! - what a node says by itself (a postcard): it is joined with what others say;
//! - dropped packets.
//!
//! It swallows the others, and tells of them: their numbers as runs ([`Collector::receive_run`], before any datagram that
//! came after them), their values from time to time ([`Collector::absorb`], [`Collector::absorb_key`]).
//!
//! # What is then the same, and what is not
//!
//! The **events** are those of a collector that sees every report: kind, metric, ids, value, previous value, threshold,
//! rule, path, record id. So are the totals per numbered stream. Not the same are:
//!
//! - the times of what the clock tells: flows and keys expire, and losses are told, up to one round of absorbing later; so
//!   a loss may be told with the second after its own, and what returns after a silence of about its timeout may have
//!   expired in the one and not in the other. A key that had values in one second only, and is therefore soon forgotten,
//!   may count as one of two;
//! - the pushed latest state: it is the filter's of the last round. Absorbing is silent: it never makes an event;
//! - **roll-ups**: a swallowed value is within the threshold `T` of the value told last. From each absorption a key gets one
//!   value, of the second in which it is absorbed; `count` and `sum` are those of what was told and absorbed, and each
//!   value among them was really reported. So where every threshold that applies to the key is at most `T`, a value that
//!   was swallowed lies within `T` of the one told last and within `2 T` of any that is absorbed before the next is told:
//!   `min` and `max` are each at most `2 T` inside the true ones, at most `T` in an interval in which the last told value
//!   was told, and never outside them but by one round of absorbing, which may bring a value into the next interval;
//! - which flow makes room when the table is full, since how busy the others are is known once per round.
//!
//! What the collector forgets, expired or pushed out, the filter must forget too, so that the next report is news in both:
//! [`Collector::removed`].

use detect::Metric;
use wire::FlowKey;

use crate::collector::Collector;
use crate::event::{Basis, Nanos, Sink};
use crate::flows::{ABSENT, HopState};
use crate::index::NO_SLOT;
use crate::reading::{NO_VALUE, egress};
use crate::series::Key;
use crate::state::{Levels, State};
use crate::update::held;
use crate::{sequence::Run, stream::StreamId};

/// What a filter knows of a flow whose reports it swallowed.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Kept<'a> {
    /// Which flow.
    pub key: FlowKey,
    /// Reports swallowed since this was last told. With 0 there is nothing to tell.
    pub reports: u64,
    /// Latest flow latency, ns; `None` when none was usable.
    pub latency: Option<u64>,
    /// How the latest came about; `None` leaves it as it was.
    pub basis: Option<Basis>,
    /// The hops of its path in forwarding order. Taken when they are on the nodes that the flow is known to pass.
    pub hops: &'a [KeptHop],
    /// When the latest of those reports arrived, as well as is known.
    pub seen: Nanos,
}

/// Latest values of one hop; all-ones stand for what is not known, or was not told since the last time: each value counts
/// as one that was reported.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KeptHop {
    /// The node.
    pub node: u32,
    /// Interfaces of level 1, ingress and egress in a half each; or the egress of level 2.
    pub link: u32,
    /// Is `link` of level 2?
    pub level_2: bool,
    /// Time inside the node, ns.
    pub latency: u64,
    /// Queue id in the high 8 bits, occupancy in the low 24.
    pub queue: u32,
    /// Likewise: congestion status, or the shared buffer's occupancy.
    pub congestion: u32,
    /// Utilisation of the egress link, millionths.
    pub utilization: u64,
}

impl KeptHop {
    /// A hop of which nothing is known.
    pub const NOTHING: Self = Self {
        node: ABSENT,
        link: ABSENT,
        level_2: false,
        latency: NO_VALUE,
        queue: ABSENT,
        congestion: ABSENT,
        utilization: NO_VALUE,
    };
}

/// What a filter knows of a key of a node whose values it swallowed: a queue, a link, or the node itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KeptKey {
    /// One of a node's metrics, or hop latency for the node itself.
    pub metric: Metric,
    /// The node.
    pub node: u32,
    /// Its queue, buffer or egress interface; 0 for the node itself.
    pub part: u32,
    /// Latest value, in the metric's unit.
    pub value: u64,
}

/// Something the collector no longer knows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Removed {
    /// A flow.
    Flow(FlowKey),
    /// A key of a node.
    Key {
        /// Whose values.
        metric: Metric,
        /// The node.
        node: u32,
        /// Its queue, buffer or interface; 0 for the node itself.
        part: u32,
    },
    /// More than could be remembered: whoever keeps a copy must compare all of it.
    Many,
}

/// Removals that nobody has asked for yet.
#[derive(Debug)]
pub(crate) struct Removals {
    list: Vec<Removed>,
    most: usize,
    more: bool,
}

impl Removals {
    pub(crate) fn note(&mut self, removed: Removed) {
        if self.list.len() < self.most {
            self.list.push(removed);
        } else {
            self.more = true;
        }
    }
}

impl Collector {
    /// Takes what a filter knows of a flow, silently. `false`: the flow is not known here, and the filter must forget it.
    /// Only roll-ups of a flow's finished minute may leave. Costs about as much as a report.
    pub fn absorb(&mut self, kept: &Kept<'_>, sink: &mut dyn Sink) -> bool {
        let hash = kept.key.hash(self.seed());
        self.state_mut().absorb(kept, hash, sink)
    }

    /// Takes what a filter knows of a key of a node, silently. `false`: it is not known here, and the filter must forget it.
    pub fn absorb_key(&mut self, kept: &KeptKey) -> bool {
        let key = Key { node: kept.node, part: kept.part };
        let levels = &mut self.state_mut().levels;
        let series = match kept.metric {
            Metric::QueueOccupancy => &mut levels.queues,
            Metric::QueueCongestion => &mut levels.congestion,
            Metric::LinkUtilization => &mut levels.links,
            _ => &mut levels.nodes,
        };
        series.absorb(&mut { NO_SLOT }, key, kept.value, &mut levels.sketches)
    }

    /// Datagrams arrived that a filter swallowed; see [`crate::Sequencer::receive_run`]. Where the collector does not account for
    /// losses this does nothing.
    pub fn receive_run(&mut self, id: &StreamId, run: Run, now: Nanos, sink: &mut dyn Sink) {
        if let Some(sequencer) = self.sequencer_mut() {
            sequencer.receive_run(id, run, now, sink);
        }
    }

    /// From now on remembers what is removed, up to `most` between two calls of [`Collector::removed`].
    pub fn keep_removals(&mut self, most: usize) {
        let list = Vec::with_capacity(most);
        self.state_mut().removals = Some(Removals { list, most, more: false });
    }

    /// Tells what was removed since this was last asked, in its order; [`Removed::Many`] comes last. Nothing unless
    /// [`Collector::keep_removals`] was called.
    pub fn removed(&mut self, mut hear: impl FnMut(Removed)) {
        if let Some(removals) = &mut self.state_mut().removals {
            removals.list.drain(..).for_each(&mut hear);
            if std::mem::take(&mut removals.more) {
                hear(Removed::Many);
            }
        }
    }
}

impl State {
    fn absorb(&mut self, kept: &Kept<'_>, hash: u64, sink: &mut dyn Sink) -> bool {
        let slot = self.flows.find(&kept.key, hash, NO_SLOT);
        if slot == NO_SLOT {
            return false;
        }
        if kept.reports == 0 {
            return true;
        }
        let (flow, ..) = self.flows.parts(slot);
        let before = flow.reports;
        flow.reports = before.saturating_add(kept.reports);
        flow.last_seen = flow.last_seen.max(kept.seen);
        if before < 2 && flow.reports >= 2 {
            self.flows.touch(slot, 1, self.second);
        }
        if self.flows.context(slot) != self.context {
            self.refresh(slot, sink);
        }
        let (flow, cold, states) = self.flows.parts(slot);
        if let Some(latency) = kept.latency {
            flow.latency = latency;
            flow.sum = flow.sum.saturating_add(latency);
            flow.count = flow.count.wrapping_add(1);
            (cold.least, cold.greatest) = (cold.least.min(latency), cold.greatest.max(latency));
        }
        flow.basis = kept.basis.unwrap_or(flow.basis);
        let same = states.len() == kept.hops.len()
            && states.iter().zip(kept.hops).all(|(state, hop)| state.node == hop.node);
        if same {
            states.iter_mut().zip(kept.hops).for_each(|(state, hop)| self.levels.absorb(state, hop));
        }
        true
    }
}

impl Levels {
    /// As [`Levels::take`], silently.
    fn absorb(&mut self, state: &mut HopState, hop: &KeptHop) {
        let Self { nodes, queues, congestion, links, sketches } = self;
        if hop.latency != NO_VALUE {
            state.latest = held(hop.latency);
            let key = Key { node: hop.node, part: 0 };
            nodes.absorb(&mut state.node_slot, key, hop.latency, sketches);
        }
        if (state.link, state.level_2) != (hop.link, hop.level_2) {
            (state.link, state.level_2, state.link_slot) = (hop.link, hop.level_2, NO_SLOT);
        }
        if hop.utilization != NO_VALUE {
            let key = Key { node: hop.node, part: egress(hop.link, hop.level_2) };
            links.absorb(&mut state.link_slot, key, hop.utilization, sketches);
        }
        if hop.queue != ABSENT {
            let queue = hop.queue >> 24;
            if u32::from(state.queue) != queue {
                (state.queue, state.queue_slot) = (queue as u16, NO_SLOT);
            }
            let key = Key { node: hop.node, part: queue };
            queues.absorb(&mut state.queue_slot, key, u64::from(hop.queue & 0x00ff_ffff), sketches);
        }
        if hop.congestion != ABSENT {
            let key = Key { node: hop.node, part: hop.congestion >> 24 };
            congestion.absorb(&mut { NO_SLOT }, key, u64::from(hop.congestion & 0x00ff_ffff), sketches);
        }
    }
}
