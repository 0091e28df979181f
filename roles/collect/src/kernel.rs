//! The user-space end of detection in the kernel: the kernel program is a filter in front of the collector, and this module
//! keeps the two in step.
//!
//! - **Records** (whole frames in a ring) go to the collector, after the sequence numbers that were suppressed before them.
//! - **Suppressed** reports reach the collector about once per [`ROUND`]: sequence numbers as runs, values applied silently. Each
//!   round reads the kernel's tables in steps.
//! - What the collector **removes** is deleted in the kernel, so that its next report is a significant change in both.
//! - Thresholds and rules **change** in the kernel first; the collector changes between the last record under the old ones and
//!   the first under the new.
//! - Each datagram is **counted** once: by the kernel program if it suppressed or dropped it, otherwise here.
//!
//! [`collector::suppressed`] states which results are the same as without a filter. If several inputs work in this mode, or datagrams
//! of a flow bypass the kernel program (fragments do), each program compares values with those that it passed on itself.
//!
//! [`KernelSync`] works against the [`Kernel`] trait, so that tests need no kernel.

mod host;
pub mod live;
#[cfg(test)]
mod same;
mod sync;
#[cfg(test)]
mod tests;

use std::sync::Mutex;

use collector::{Run, StreamId, SuppressedKey, event::Nanos};
use detect::{Detection, Metric, RuleSet, Table};
use nic::source::Stats;
use wire::{FlowKey, RefusalCounts};

pub use sync::KernelSync;

use crate::worker::Worker;

pub use host::CollectorHost;

/// Where each rule runs, for display: a line for all, and one for each rule that does not fit into the kernel program. Empty
/// without rules.
pub fn explain_rules(rules: &RuleSet) -> String {
    if rules.is_empty() {
        return String::new();
    }
    let split = Table::split(rules);
    let mut text = format!(
        "rules in the kernel: {} of {}\n",
        split.kernel.count_ones(),
        rules.len()
    );
    for (name, reason) in split.in_user_space(rules) {
        text.push_str(&format!("rule `{name}` runs in user space: {reason}\n"));
    }
    if split.user_needs_all {
        text.push_str("so every report of a path is passed to user space: mode = \"user\" gives the same events faster\n");
        return text;
    }
    let metrics: Vec<&str> = split.metrics_for_user().map(Metric::name).collect();
    if !metrics.is_empty() {
        let metrics = metrics.join(" or ");
        text.push_str(&format!(
            "so each report whose {metrics} differs from the previous report of its flow is passed to user space\n"
        ));
    }
    text
}

/// Longest delay of suppressed reports, ns. A shorter flow timeout makes it shorter.
pub const ROUND: Nanos = 1_000_000_000;

/// The ring and the tables of a kernel program.
pub trait Kernel: Send {
    /// Passes at most `most` records to `take`, the oldest first; returns their number.
    fn drain(&mut self, most: usize, take: &mut dyn FnMut(&KernelRecord<'_>)) -> usize;

    /// Capacity of the ring, records.
    fn records(&self) -> usize;

    /// Waits for a record, at most this long.
    ///
    /// # Errors
    /// The system refused.
    fn wait(&mut self, timeout_ms: u32) -> Result<(), nic::Error>;

    /// Detaches the program from the interface: nothing changes any more.
    fn detach(&mut self);

    /// Slots for streams; a stream stays in its slot until it is removed.
    fn streams(&self) -> u32;

    /// The stream in a slot, and its current run; the count continues across runs, modulo 2^31.
    fn stream(&self, slot: u32) -> Option<(StreamId, Run)>;

    /// Frees the slot of a stream.
    fn forget_stream(&mut self, slot: u32);

    /// Returns the number of slots for flows.
    fn flows(&self) -> u32;

    /// Suppressed reports of the flow in a slot, modulo 2^32; `None` without a flow.
    fn flow_reports(&self, slot: u32) -> Option<u32>;

    /// Copies the flow in a slot. `false`: there is none, or it changed meanwhile.
    fn flow(&self, slot: u32, copy: &mut FlowCopy) -> bool;

    /// Removes a flow and frees its slot.
    fn forget_flow(&mut self, key: &FlowKey);

    /// Removes path, latency and reported values of a flow, with its next report.
    fn forget_path(&mut self, key: &FlowKey);

    /// Slots for keys of nodes of a metric.
    fn keys(&self, metric: Metric) -> u32;

    /// The key in a slot, and the values suppressed that no flow keeps, modulo 2^32.
    fn key(&self, metric: Metric, slot: u32) -> Option<(SuppressedKey, u32)>;

    /// Removes a key of a node and frees its slot.
    fn forget_key(&mut self, metric: Metric, node: u32, part: u32);

    /// Applies thresholds and rules; returns their generation, the [`KernelRecord::generation`] of records under them.
    ///
    /// # Errors
    /// The system refused; the old ones stay.
    fn set_detection(&mut self, detection: &Detection) -> Result<u32, nic::Error>;

    /// The counters.
    ///
    /// # Errors
    /// The system refused.
    fn counters(&mut self) -> Result<Counters, nic::Error>;
}

/// A datagram that the kernel program passed to user space.
#[derive(Clone, Copy, Debug)]
pub struct KernelRecord<'a> {
    /// When the program wrote the record, monotonic clock.
    pub at: Nanos,
    /// The stream and its slot; `None` when its numbers are not followed in the kernel.
    pub stream: Option<(u32, StreamId)>,
    /// The run that it ended or continues; `None` where it began the stream. It is not counted in it.
    pub before: Option<Run>,
    /// The listener of its port.
    pub listener: u16,
    /// The generation of the thresholds and rules applied.
    pub generation: u32,
    /// From the Ethernet header on.
    pub frame: &'a [u8],
}

/// A copy of a flow's state.
#[derive(Clone, Debug, Default)]
pub struct FlowCopy {
    /// The flow that the values belong to.
    pub key: FlowKey,
    /// Number of suppressed reports, modulo 2^32.
    pub reports: u32,
    /// Latest flow latency, ns.
    pub latency: Option<u64>,
    /// The computation that gave the flow's latency.
    pub basis: Option<collector::event::Basis>,
    /// The hops of its path.
    pub hops: Vec<collector::SuppressedHop>,
}

/// The counters of the kernel program. The receiver counts records again.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counters {
    /// Suppressed reports, as the collector would have counted them.
    pub suppressed: collector::Stats,
    /// Lost because the ring was full, or another CPU held its lock.
    pub ring_full: u64,
    /// Malformed frames to telemetry ports, by [`Refusal::index`](wire::Refusal::index).
    pub refused_frames: RefusalCounts,
}

/// An input with detection in the kernel: the kernel program passes significant changes to user space, and the thread that reads
/// them keeps its maps and the collector in step. Only with one worker.
pub trait KernelRxSource: Send {
    /// Waits at most `timeout_ms` for records, passes them to the collector, and synchronises the kernel's maps with the
    /// collector. Returns the number of records. Holds the lock only while there is work.
    ///
    /// # Errors
    /// The system refused; the input is then closed and opened again.
    fn receive(&mut self, timeout_ms: u32, worker: &Mutex<Worker>) -> Result<usize, nic::Error>;

    /// The time up to which everything that arrived has been passed to the collector, after a receive that began at `before`.
    fn processed_until(&self, before: Nanos) -> Nanos;

    /// The end: no more records, and the collector applies everything suppressed in the kernel.
    ///
    /// # Errors
    /// The system refused.
    fn finish(&mut self, worker: &Mutex<Worker>) -> Result<(), nic::Error>;

    /// The statistics. `datagrams` are all processed ones, in the kernel or here.
    fn stats(&mut self) -> Stats;
}
