//! What a translator says of itself: `dta` in `/api/v1/translator`.

use rdma::requester::{GivenUp, Refused, Response, State};
use serde::{Deserialize, Serialize};
use translator::{PRIMITIVES, Reason};
use wire::Refusal;

use super::Worker;
use crate::exchange::by_name;
use crate::view::{Name, NamedCounts};

/// `dta` in `/api/v1/translator`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct TranslatorView {
    layout: Name,
    /// Reports taken: = done + dropped + unreadable + waiting.
    pub(crate) reports: u64,
    pub(crate) done: NamedCounts,
    pub(crate) dropped: NamedCounts,
    pub(crate) unreadable: NamedCounts,
    /// What came from collectors, or to where their answers come, and is none.
    pub(crate) answers_unreadable: NamedCounts,
    /// Reports in local memory, until there is room.
    pub(crate) waiting: u64,
    waiting_bytes: u64,
    pub(crate) adds_up: bool,
    pub(crate) writes: u64,
    pub(crate) adds: u64,
    pub(crate) operation_bytes: u64,
    immediates: u64,
    copies: CopiesView,
    pub(crate) entries: HeldView,
    pub(crate) postcards: HeldView,
    pub(crate) essential: EssentialView,
    /// Messages to reporters, by kind.
    pub(crate) messages: NamedCounts,
    pub(crate) collectors: Vec<CollectorView>,
}

/// Copies of Key-Write.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct CopiesView {
    asked: u64,
    written: u64,
    /// Left out under load.
    spared: u64,
    lost: u64,
}

/// What is collected before it is written.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct HeldView {
    pub(crate) taken: u64,
    pub(crate) written: u64,
    pub(crate) held: u64,
    pub(crate) lost: u64,
}

/// Essential reports.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct EssentialView {
    pub(crate) accepted: u64,
    /// Numbers that were asked for again and never came.
    pub(crate) lost: u64,
    reporters: u64,
    restarts: u64,
}

/// A collector.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct CollectorView {
    collector: u8,
    pub(crate) exchange: String,
    /// Where its reports come to.
    listen: String,
    /// down, up or broken.
    pub(crate) state: Name,
    /// Why it is not connected.
    message: Option<String>,
    target: Option<String>,
    /// How many times its memory was another one.
    restarts: u64,
    /// Congestion, 0 to 3.
    pub(crate) level: u8,
    pub(crate) datagrams: u64,
    pub(crate) kernel_drops: u64,
    cut: u64,
    stores: Vec<String>,
    /// Operations that may be lost.
    pub(crate) unkept: u64,
    /// Operations that must arrive: = acknowledged + held + given_up.
    pub(crate) kept: u64,
    pub(crate) acknowledged: u64,
    pub(crate) held: u64,
    pub(crate) given_up: NamedCounts,
    /// Operations that were not taken, by reason.
    pub(crate) refused: NamedCounts,
    pub(crate) frames: u64,
    pub(crate) frame_bytes: u64,
    pub(crate) repeated: u64,
    /// Frames that the kernel did not take.
    pub(crate) unsent: u64,
    pub(crate) heard: NamedCounts,
    timeouts: u64,
    pub(crate) connections: u64,
    pub(crate) broken: u64,
    /// Must the collector prove that it knows a secret?
    exchange_secret: bool,
    /// Times the exchange came to nothing because one side refused the other, by reason.
    pub(crate) exchange_refused: NamedCounts,
    uncertain_adds: u64,
    adds_up: bool,
}

fn some(names: impl IntoIterator<Item = (&'static str, u64)>) -> NamedCounts {
    names.into_iter().filter(|(_, count)| *count > 0).collect()
}

impl Worker {
    /// All of it, now.
    pub(super) fn view(&mut self) -> TranslatorView {
        let stats = self.translator.stats();
        let collectors = (0..self.peers.list.len()).filter_map(|number| self.collector(number)).collect();
        let refusals = |counts: &[u64; Refusal::COUNT]| {
            some(Refusal::ALL.iter().map(|why| (why.name(), counts[why.index()])))
        };
        let [gap, malformed, unknown, overload] = stats.controls.nacks;
        TranslatorView {
            layout: self.settings.layout.word().into(),
            reports: stats.reports.taken,
            done: PRIMITIVES.into_iter().zip(stats.reports.done).collect(),
            dropped: some(Reason::ALL.map(|reason| (reason.name(), stats.reports.dropped[reason as usize]))),
            unreadable: refusals(&stats.reports.unreadable),
            answers_unreadable: refusals(&self.said.unreadable),
            waiting: stats.reports.waiting,
            waiting_bytes: stats.reports.waiting_bytes,
            adds_up: stats.is_balanced(),
            writes: stats.operations.writes,
            adds: stats.operations.fetch_adds,
            operation_bytes: stats.operations.bytes,
            immediates: stats.operations.immediates,
            copies: CopiesView {
                asked: stats.copies.asked,
                written: stats.copies.written,
                spared: stats.copies.spared,
                lost: stats.copies.lost,
            },
            entries: HeldView {
                taken: stats.entries.taken + stats.entries.triggered,
                written: stats.entries.written,
                held: stats.entries.pending,
                lost: stats.entries.lost,
            },
            postcards: HeldView {
                taken: stats.postcards.taken,
                written: stats.postcards.written,
                held: stats.postcards.pending,
                lost: stats.postcards.lost,
            },
            essential: EssentialView {
                accepted: stats.sequences.accepted,
                lost: stats.sequences.lost,
                reporters: stats.sequences.reporters,
                restarts: stats.sequences.restarts,
            },
            messages: some([
                ("ack", stats.controls.acks),
                ("nack_gap", gap),
                ("nack_malformed", malformed),
                ("nack_unknown", unknown),
                ("nack_overload", overload),
                ("sketch_nack", stats.controls.sketch_nacks),
                ("congestion", stats.controls.notices),
            ]),
            collectors,
        }
    }

    fn collector(&mut self, number: usize) -> Option<CollectorView> {
        let collector = u8::try_from(number).ok()?;
        let reports = self.reports.get_mut(number)?;
        let received = reports.receiver.stats();
        let peer = self.peers.list.get(number)?;
        let stats = self.links.stats(collector)?;
        Some(CollectorView {
            collector,
            exchange: peer.exchange.to_string(),
            listen: reports.receiver.local_addr().to_string(),
            state: match self.links.state(collector) {
                State::Down => "down",
                State::Up => "up",
                State::Broken(_) => "broken",
            }
            .into(),
            message: peer.lost.clone(),
            target: peer.target.map(|target| target.to_string()),
            restarts: peer.restarts,
            level: self.translator.level(collector),
            datagrams: received.datagrams,
            kernel_drops: received.kernel_drops,
            cut: reports.cut,
            stores: peer.stores.iter().map(|store| store.name.clone()).collect(),
            unkept: stats.unreliable,
            kept: stats.reliable,
            acknowledged: stats.acknowledged,
            held: stats.unacknowledged,
            given_up: some(GivenUp::ALL.map(|why| (why.name(), stats.given_up[why as usize]))),
            refused: some(Refused::ALL.map(|why| (why.name(), stats.refused[why as usize]))),
            frames: stats.frames,
            frame_bytes: stats.bytes,
            repeated: stats.retransmitted,
            unsent: peer.sent.failed + peer.sent.no_buffers,
            heard: some(Response::ALL.map(|what| (what.name(), stats.responses[what as usize]))),
            timeouts: stats.timeouts,
            connections: stats.connections,
            broken: stats.broken,
            exchange_secret: peer.secured,
            exchange_refused: by_name(&peer.link.refusals().read()),
            uncertain_adds: stats.uncertain_fetch_adds,
            adds_up: stats.is_balanced(),
        })
    }
}
