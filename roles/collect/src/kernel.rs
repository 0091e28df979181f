//! The user-space end of detection in the kernel. The XDP program filters reports in front of the collector; this module keeps
//! the state of the two in step.
//!
//! - The program passes **records** (whole frames in a BPF ring buffer) to the collector. The sequence numbers suppressed
//!   before a record are applied first.
//! - The collector learns of **suppressed** reports about once per [`ROUND`], which reads the program's tables in steps:
//!   sequence numbers as runs, and values, which it applies without raising events.
//! - Whatever the collector **removes** is deleted in the kernel, so that its next report is a significant change in both.
//! - **Changed** thresholds and rules are applied in the kernel first. The collector switches between the last record under
//!   the old ones and the first under the new ones.
//! - Each datagram is **counted** once: by the program if it suppressed or dropped it, otherwise here.
//!
//! [`collector::suppressed`] states which results equal those without a filter. If several inputs work in this mode, or
//! datagrams of a flow bypass the program (as fragments do), each program compares values only with those that it has passed
//! on itself.
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

/// Longest delay of suppressed reports, ns. A shorter flow timeout shortens it.
pub const ROUND: Nanos = 1_000_000_000;

/// Describes where the rules run: a line with the number of rules in the kernel, and a line for each rule that needs user
/// space. Empty without rules.
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

/// The ring buffer and the tables (BPF maps) of a kernel program.
pub trait Kernel: Send {
    /// Passes at most `most` records to `take`, oldest first. Returns the number passed.
    fn drain(&mut self, most: usize, take: &mut dyn FnMut(&KernelRecord<'_>)) -> usize;

    /// Returns the capacity of the ring in records.
    fn records(&self) -> usize;

    /// Waits for a record, at most `timeout_ms`.
    ///
    /// # Errors
    /// A system call failed.
    fn wait(&mut self, timeout_ms: u32) -> Result<(), nic::Error>;

    /// Detaches the program from the interface; its state no longer changes.
    fn detach(&mut self);

    /// Returns the number of slots for streams. A stream stays in its slot until it is removed.
    fn streams(&self) -> u32;

    /// Returns the stream in a slot and its current run. The run's count continues across runs, modulo 2^31.
    fn stream(&self, slot: u32) -> Option<(StreamId, Run)>;

    /// Frees the slot of a stream.
    fn forget_stream(&mut self, slot: u32);

    /// Returns the number of slots for flows.
    fn flows(&self) -> u32;

    /// Returns the number of suppressed reports of the flow in a slot, modulo 2^32, or `None` for an empty slot.
    fn flow_reports(&self, slot: u32) -> Option<u32>;

    /// Copies the flow in a slot. Returns `false` if the slot is empty or changed during the copy.
    fn flow(&self, slot: u32, copy: &mut FlowCopy) -> bool;

    /// Removes a flow and frees its slot.
    fn forget_flow(&mut self, key: &FlowKey);

    /// Removes a flow's path, latency and reported values when its next report arrives.
    fn forget_path(&mut self, key: &FlowKey);

    /// Returns the number of slots for one metric's keys (a node and a queue or link).
    fn keys(&self, metric: Metric) -> u32;

    /// Returns the key in a slot, and the number of suppressed values that no flow holds, modulo 2^32.
    fn key(&self, metric: Metric, slot: u32) -> Option<(SuppressedKey, u32)>;

    /// Removes a metric's key and frees its slot.
    fn forget_key(&mut self, metric: Metric, node: u32, part: u32);

    /// Applies thresholds and rules. Returns their generation, which [`KernelRecord::generation`] of records under them has.
    ///
    /// # Errors
    /// A system call failed; the old ones stay in effect.
    fn set_detection(&mut self, detection: &Detection) -> Result<u32, nic::Error>;

    /// Returns the program's counters.
    ///
    /// # Errors
    /// A system call failed.
    fn counters(&mut self) -> Result<Counters, nic::Error>;
}

/// A datagram that the kernel program passed to user space.
#[derive(Clone, Copy, Debug)]
pub struct KernelRecord<'a> {
    /// Time at which the program wrote the record, monotonic clock.
    pub at: Nanos,
    /// The stream's slot and the stream; `None` if the kernel does not track its sequence numbers.
    pub stream: Option<(u32, StreamId)>,
    /// The run of suppressed reports that this one ended or continues, not including this one; `None` if it began the stream.
    pub before: Option<Run>,
    /// The index of the listener on its port.
    pub listener: u16,
    /// The generation of the thresholds and rules in effect.
    pub generation: u32,
    /// The frame, starting with its Ethernet header.
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
    /// The method that yielded the flow's latency.
    pub basis: Option<collector::event::Basis>,
    /// The hops of its path.
    pub hops: Vec<collector::SuppressedHop>,
}

/// The counters of the kernel program. They do not include records, which the receiver counts.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counters {
    /// Suppressed reports, counted as the collector would have.
    pub suppressed: collector::Stats,
    /// Reports lost because the ring was full or another CPU held its lock.
    pub ring_full: u64,
    /// Malformed frames to telemetry ports, by [`Refusal::index`](wire::Refusal::index).
    pub refused_frames: RefusalCounts,
}

/// An input with detection in the kernel. Its thread passes the program's records to the collector and keeps the state of both
/// in step. Works with a single worker only.
pub trait KernelRxSource: Send {
    /// Waits at most `timeout_ms` for records, passes them to the collector, and synchronises the kernel's tables with the
    /// collector. Holds the worker's lock only while there is work. Returns the number of records.
    ///
    /// # Errors
    /// A system call failed. The input is then closed and reopened.
    fn receive(&mut self, timeout_ms: u32, worker: &Mutex<Worker>) -> Result<usize, nic::Error>;

    /// Returns the watermark after a receive that began at `before`: the collector has everything that arrived earlier.
    fn processed_until(&self, before: Nanos) -> Nanos;

    /// Ends the input: detaches the program and applies everything that it suppressed to the collector.
    ///
    /// # Errors
    /// A system call failed.
    fn finish(&mut self, worker: &Mutex<Worker>) -> Result<(), nic::Error>;

    /// Returns the statistics. `datagrams` counts all processed ones, in the kernel or here.
    fn stats(&mut self) -> Stats;
}
