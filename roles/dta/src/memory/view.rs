//! The view of the collector memory for `/api/v1/dta`. The doc comments are the descriptions in the API's schema.

use std::sync::atomic::Ordering;

use rdma::responder::{QueuePairState, Reason};
use serde::{Deserialize, Serialize};
use wire::Refusal;

use super::Memory;
use super::kernel::{Kernel, KernelStatus};
use super::snapshots::SnapshotSummary;
use crate::exchange::AdmissionView;
use view::{Name, NamedCounts};

/// The memory's state and counters, as `/api/v1/dta` returns them.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(rename = "Memory"))]
pub struct MemoryView {
    /// The responder: socket, xdp or verbs.
    mode: Name,
    /// The responder in the kernel.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub xdp: Option<XdpView>,
    /// Address that receives RoCEv2.
    listen: String,
    /// Address of the exchange with translators.
    exchange: String,
    /// Directory of the regions.
    directory: String,
    /// Policy when copies differ: first, majority or strict.
    policy: Name,
    /// Bytes of all stores.
    bytes: u64,
    /// Datagrams received by the socket.
    pub datagrams: u64,
    /// Datagrams dropped in the kernel.
    pub kernel_drops: u64,
    /// RoCEv2 packets: `packets = executed + duplicates + refused + dropped`.
    pub packets: u64,
    /// Packets whose operation was executed.
    pub executed: u64,
    /// Packets received again, and only acknowledged.
    pub duplicates: u64,
    /// Packets that could not be decoded, by reason.
    pub refused: NamedCounts,
    /// Packets decoded and not executed, by reason.
    pub dropped: NamedCounts,
    /// True while the balance holds.
    balanced: bool,
    /// RDMA writes and fetch-and-add operations done.
    pub messages: u64,
    /// Bytes written into the stores.
    pub written_bytes: u64,
    /// RDMA fetch-and-add operations done.
    pub fetch_adds: u64,
    /// Packets of unreliable queue pairs that are missing: PSNs that were skipped, less those that arrived reordered.
    pub missing: u64,
    /// ACKs sent to translators.
    pub acks: u64,
    /// NAKs sent, by syndrome.
    pub naks: NamedCounts,
    /// Responses that the kernel did not send.
    responses_unsent: u64,
    /// The links of translators to this memory.
    pub links: Vec<LinkView>,
    /// Connections to the exchange.
    pub translators: AdmissionView,
    /// Entries of lists reported as events.
    pub events: EventsView,
    /// Snapshots of the stores.
    pub snapshots: SnapshotsView,
}

/// The responder in the kernel.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(rename = "MemoryXdp"))]
pub struct XdpView {
    /// Network interface of the kernel responder.
    interface: String,
    /// Whether it is attached.
    pub up: bool,
    /// Whether it is attached in native mode, that is in the interface's driver, rather than in generic mode.
    native: bool,
    /// Reason that it is not attached, or not in native mode.
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<String>,
    /// Packets that it processed, included in the total.
    pub packets: u64,
    /// Frames to the RoCEv2 port that it passed to the network stack.
    pub passed: u64,
    /// Responses that could not be sent.
    pub responses_unsent: u64,
}

impl XdpView {
    fn from_status(status: KernelStatus) -> Self {
        Self {
            interface: status.interface,
            up: status.up,
            native: status.native,
            message: status.message,
            packets: status.counted.stats.packets,
            passed: status.counted.passed,
            responses_unsent: status.counted.responses_unsent,
        }
    }
}

/// The link of a translator.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(rename = "MemoryLink"))]
pub struct LinkView {
    /// Random ID of the translator's process.
    pub instance: String,
    /// The number of the link there.
    pub link: u8,
    /// Address of the translator.
    pub from: String,
    /// True while it is connected.
    pub up: bool,
    /// Seconds since it connected or disconnected.
    since_s: f64,
    /// Connections established since the start.
    connections: u64,
    /// State of its unreliable queue pair: ready, error or gone.
    unreliable: Name,
    /// State of its reliable queue pair: ready, error or gone.
    reliable: Name,
}

/// Entries of lists, and immediates.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(rename = "MemoryEvents"))]
pub struct EventsView {
    /// Entries of lists that were reported as events.
    pub entries: u64,
    /// Batches that were overwritten before they were read.
    pub overwritten: u64,
    /// Batches that were never complete.
    pub missing: u64,
    /// Immediate values received with writes.
    pub immediates: u64,
    /// Immediates discarded because the queue was full; entries of lists are still reported.
    pub immediates_dropped: u64,
}

/// Counters and files of snapshots.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(rename = "MemorySnapshots"))]
pub struct SnapshotsView {
    /// Snapshots written since the start.
    pub taken: u64,
    /// Snapshots that could not be written.
    pub failed: u64,
    /// Number of times that counters were cleared (`clear_every`).
    pub cleared: u64,
    /// The last failure; null after a success.
    message: Option<String>,
    /// Directory of the files.
    directory: String,
}

impl Memory {
    fn events_view(&self) -> EventsView {
        let [entries, overwritten, missing, immediates, immediates_dropped] = self.reported.read();
        EventsView {
            entries,
            overwritten,
            missing,
            immediates,
            immediates_dropped,
        }
    }

    fn snapshots_view(&self) -> SnapshotsView {
        let SnapshotSummary {
            taken,
            failed,
            last_error: message,
        } = self.snapshots.summary();
        let directory = self.snapshot_directory().display().to_string();
        SnapshotsView {
            taken,
            failed,
            cleared: self.snapshots.cleared(),
            message,
            directory,
        }
    }

    /// Returns the current state and counters.
    pub fn view(&self) -> MemoryView {
        let links = self.links();
        let pairs = self.pairs();
        let mut stats = *pairs.responder.stats();
        let mut balanced = stats.is_balanced();
        let links = links.iter().map(|((instance, number), link)| LinkView {
            instance: instance.clone(),
            link: *number,
            from: link.from.to_string(),
            up: link.up,
            since_s: link.since.elapsed().as_secs_f64(),
            connections: link.connections,
            unreliable: state_name(pairs.state(link.unreliable)).into(),
            reliable: state_name(pairs.state(link.reliable)).into(),
        });
        let links = links.collect();
        let xdp = self.kernel.as_ref().map(Kernel::status);
        let mut own = Vec::new();
        if let Some(xdp) = &xdp {
            stats += &xdp.counted.stats;
            balanced &= xdp.counted.is_balanced();
            own.extend([
                ("contended", xdp.counted.contended),
                ("too_long", xdp.counted.too_long),
            ]);
        }
        let dropped = Reason::ALL
            .iter()
            .map(|cause| (cause.name(), stats.dropped[*cause as usize]));
        MemoryView {
            mode: self.settings.mode.name().into(),
            xdp: xdp.map(XdpView::from_status),
            listen: self.listen.to_string(),
            exchange: self.exchange.to_string(),
            directory: self.settings.directory.display().to_string(),
            policy: self.settings.policy.name().into(),
            bytes: self
                .source
                .stores()
                .iter()
                .map(|store| store.store.body_len())
                .sum(),
            datagrams: self.counts.datagrams.load(Ordering::Relaxed),
            kernel_drops: self.counts.kernel_drops.load(Ordering::Relaxed),
            packets: stats.packets,
            executed: stats.executed,
            duplicates: stats.duplicates,
            refused: NamedCounts::nonzero(
                Refusal::ALL.map(|cause| (cause.name(), stats.refused[cause.index()])),
            ),
            dropped: NamedCounts::nonzero(dropped.chain(own)),
            balanced,
            messages: stats.messages,
            written_bytes: stats.bytes,
            fetch_adds: stats.fetch_adds,
            missing: stats.skipped.saturating_sub(stats.out_of_order_by),
            acks: stats.acks + stats.atomic_acks,
            naks: NamedCounts::nonzero(["sequence", "not_ready", "error"].into_iter().zip(stats.naks)),
            responses_unsent: self.counts.responses_unsent.load(Ordering::Relaxed),
            links,
            translators: self.access.view(),
            events: self.events_view(),
            snapshots: self.snapshots_view(),
        }
    }
}

fn state_name(state: Option<QueuePairState>) -> &'static str {
    match state {
        Some(QueuePairState::Ready) => "ready",
        Some(_) => "error",
        None => "gone",
    }
}
