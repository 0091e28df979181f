//! The view of the translator for `/api/v1/translator`. The doc comments are the descriptions in the API's schema.

use rdma::requester::{GivenUp, Refused, Response, State};
use serde::{Deserialize, Serialize};
use translator::{Copies, PRIMITIVES, Reason, Sequences};
use wire::{Refusal, RefusalCounts};

use super::{Worker, intercepted::Intercepted, upstream::Upstream};
pub use super::{intercepted::InterceptedView, upstream::UpstreamView};
use crate::exchange::by_name;
use view::{Name, NamedCounts};

/// The translator's state and counters, as `/api/v1/translator` returns them.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(rename = "Translator"))]
pub struct TranslatorView {
    /// Layouts that it accepts: v1, artifact or both.
    layout: Name,
    /// Reports received: = completed + dropped + unreadable + queued.
    pub reports: u64,
    /// Reports completed, by primitive.
    pub completed: NamedCounts,
    /// Reports dropped, by reason.
    pub dropped: NamedCounts,
    /// Reports that could not be decoded, by reason.
    pub unreadable: NamedCounts,
    /// Datagrams received where collectors send responses that are not responses.
    pub responses_unreadable: NamedCounts,
    /// Reports queued in local memory until there is credit.
    pub queued: u64,
    /// Bytes of these reports.
    queued_bytes: u64,
    /// True while the balance holds.
    pub balanced: bool,
    /// RDMA writes sent to collectors.
    pub writes: u64,
    /// RDMA fetch-and-add operations sent to collectors.
    pub fetch_adds: u64,
    /// Bytes of data in writes and fetch-and-add operations.
    pub operation_bytes: u64,
    /// Writes with an immediate value.
    immediates: u64,
    /// Copies of Key-Write reports.
    copies: Copies,
    /// Buffered entries of Append reports.
    pub entries: BufferView,
    /// Buffered values of Postcarding reports.
    pub postcards: BufferView,
    /// Counters of essential reports.
    pub essential: Sequences,
    /// Messages to reporters, by kind.
    pub messages: NamedCounts,
    /// The collectors to which it writes.
    pub collectors: Vec<CollectorView>,
    /// Sketches sent to another translator; null without `[translator.upstream]`.
    pub upstream: Option<UpstreamView>,
    /// Reports that the switch of this process intercepts; null without `intercept`.
    pub intercepted: Option<InterceptedView>,
}

/// Entries or postcards that the translator buffers to write them together.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(rename = "TranslatorBuffer"))]
pub struct BufferView {
    /// Items accepted from reports.
    pub accepted: u64,
    /// Items written to collectors.
    pub written: u64,
    /// Items that wait in buffers now.
    pub buffered: u64,
    /// Items dropped when a collector returned with other stores.
    pub dropped: u64,
}

/// A collector to which the translator writes.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(rename = "TranslatorCollector"))]
pub struct CollectorView {
    /// Number of the collector in reports.
    collector: u8,
    /// Address of its exchange.
    pub exchange: String,
    /// Address that receives its reports.
    listen: String,
    /// down, up or broken.
    pub state: Name,
    /// Reason that it is not connected.
    message: Option<String>,
    /// Destination of RoCEv2; null while not connected.
    target: Option<String>,
    /// Restarts of its memory.
    restarts: u64,
    /// Congestion, 0 to 3.
    pub congestion_level: u8,
    /// Datagrams received for this collector.
    pub datagrams: u64,
    /// Datagrams dropped in the kernel.
    pub kernel_drops: u64,
    /// Datagrams longer than the buffer.
    truncated: u64,
    /// Names of its stores.
    stores: Vec<String>,
    /// Operations sent without acknowledgement.
    pub unreliable: u64,
    /// Operations that need an acknowledgement: = acknowledged + unacknowledged + given_up.
    pub reliable: u64,
    /// Operations that the collector acknowledged.
    pub acknowledged: u64,
    /// Operations not acknowledged yet.
    pub unacknowledged: u64,
    /// Operations given up, by reason.
    pub given_up: NamedCounts,
    /// Operations that the link refused, by reason.
    pub refused: NamedCounts,
    /// RoCEv2 packets sent, without retransmissions.
    pub frames: u64,
    /// Bytes of these packets.
    pub frame_bytes: u64,
    /// Packets sent more than once.
    pub retransmitted: u64,
    /// Frames that the kernel refused.
    pub unsent: u64,
    /// Responses of the collector, by kind.
    pub responses: NamedCounts,
    /// Timeouts of the retransmission timer.
    timeouts: u64,
    /// Connections established since the start.
    pub connections: u64,
    /// Connections that broke since the start.
    pub broken: u64,
    /// Whether the collector must prove that it knows the shared secret.
    exchange_secret: bool,
    /// Exchange attempts that one side refused, by reason.
    pub exchange_refused: NamedCounts,
    /// Fetch-and-add operations that may have been done twice.
    uncertain_fetch_adds: u64,
    /// True while the balance holds.
    balanced: bool,
}

fn refusals(counts: &RefusalCounts) -> NamedCounts {
    NamedCounts::nonzero(Refusal::ALL.map(|refusal| (refusal.name(), counts[refusal.index()])))
}

impl Worker {
    /// Returns the current state and counters.
    pub(super) fn view(&mut self) -> TranslatorView {
        let mut stats = self.translator.stats();
        stats.reports.received += self.not_allowed;
        stats.reports.unreadable[Refusal::SenderNotAllowed.index()] += self.not_allowed;
        let collectors = (0..self.peers.list.len())
            .filter_map(|number| self.collector(number))
            .collect();
        let [gap, malformed, unknown, overload] = stats.controls.nacks;
        TranslatorView {
            layout: self.settings.layout.name().into(),
            reports: stats.reports.received,
            completed: PRIMITIVES.into_iter().zip(stats.reports.done).collect(),
            dropped: NamedCounts::nonzero(
                Reason::ALL.map(|reason| (reason.name(), stats.reports.dropped[reason as usize])),
            ),
            unreadable: refusals(&stats.reports.unreadable),
            responses_unreadable: refusals(&self.messages.unreadable),
            queued: stats.reports.queued,
            queued_bytes: stats.reports.queued_bytes,
            balanced: stats.is_balanced(),
            writes: stats.operations.writes,
            fetch_adds: stats.operations.fetch_adds,
            operation_bytes: stats.operations.bytes,
            immediates: stats.operations.immediates,
            copies: stats.copies,
            entries: BufferView {
                accepted: stats.entries.accepted + stats.entries.triggered,
                written: stats.entries.written,
                buffered: stats.entries.pending,
                dropped: stats.entries.dropped,
            },
            postcards: BufferView {
                accepted: stats.postcards.accepted,
                written: stats.postcards.written,
                buffered: stats.postcards.pending,
                dropped: stats.postcards.dropped,
            },
            essential: stats.sequences,
            messages: NamedCounts::nonzero([
                ("ack", stats.controls.acks),
                ("nack_gap", gap),
                ("nack_malformed", malformed),
                ("nack_unknown", unknown),
                ("nack_overload", overload),
                ("sketch_nack", stats.controls.sketch_nacks),
                ("congestion", stats.controls.notices),
            ]),
            collectors,
            upstream: self.upstream.as_ref().map(Upstream::view),
            intercepted: self.intercepted.as_ref().map(Intercepted::view),
        }
    }

    /// Builds the view of one collector, or `None` beyond the last.
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
            congestion_level: self.translator.level(collector),
            datagrams: received.datagrams,
            kernel_drops: received.kernel_drops,
            truncated: reports.cut,
            stores: peer.stores.iter().map(|store| store.name.clone()).collect(),
            unreliable: stats.unreliable,
            reliable: stats.reliable,
            acknowledged: stats.acknowledged,
            unacknowledged: stats.unacknowledged,
            given_up: NamedCounts::nonzero(
                GivenUp::ALL.map(|cause| (cause.name(), stats.given_up[cause as usize])),
            ),
            refused: NamedCounts::nonzero(
                Refused::ALL.map(|cause| (cause.name(), stats.refused[cause as usize])),
            ),
            frames: stats.frames,
            frame_bytes: stats.bytes,
            retransmitted: stats.retransmitted,
            unsent: peer.sent.failed + peer.sent.no_buffers,
            responses: NamedCounts::nonzero(
                Response::ALL.map(|kind| (kind.name(), stats.responses[kind as usize])),
            ),
            timeouts: stats.timeouts,
            connections: stats.connections,
            broken: stats.broken,
            exchange_secret: peer.secured,
            exchange_refused: by_name(&peer.link.refusals().read()),
            uncertain_fetch_adds: stats.uncertain_fetch_adds,
            balanced: stats.is_balanced(),
        })
    }
}
