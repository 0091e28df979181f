//! The user's end of detection in the kernel: the program there is a filter in front of the collector, and this keeps the
//! two in step.
//!
//! - What the program **tells** (whole frames, in a ring) goes to the collector, after the numbers that were suppressed before
//!   it.
//! - What it **suppressed** is told to the collector about once per [`ROUND`]: numbers as runs, values applied silently. The
//!   rounds go through the kernel's tables a piece at a time.
//! - What the collector **forgets** is deleted there, so that its next report is news in both.
//! - Thresholds and rules **change** there first; the collector changes between the last record that was told under the old
//!   ones and the first under the new.
//! - Each datagram is **counted** once: by the program, if it suppressed or dropped it, else here.
//!
//! See [`collector::suppressed`] for what is then the same as without a filter, and what is not. Where several inputs work in
//! this way, or where datagrams of a flow come in beside its kernel's program (fragments do), each program compares with
//! what it told itself.
//!
//! [`KernelSync`] does all that against the [`Kernel`] trait, so that it is tested without a kernel.

mod host;
pub(crate) mod live;
#[cfg(test)]
mod same;
mod sync;
#[cfg(test)]
mod tests;

use std::sync::Mutex;

use collector::{Run, StreamId, SuppressedKey, event::Nanos};
use detect::{Detection, Metric, RuleSet, Table};
use nic::source::Stats;
use wire::{FlowKey, Refusal};

pub(crate) use sync::KernelSync;

use crate::worker::Worker;

pub(crate) use host::CollectorHost;

/// Where each rule runs, for people: a line for all, and one for each that the kernel's program has no room for. Nothing
/// without rules.
pub(crate) fn explain_rules(rules: &RuleSet) -> String {
    if rules.is_empty() {
        return String::new();
    }
    let split = Table::split(rules);
    let mut text = format!("rules in the kernel: {} of {}\n", split.kernel.count_ones(), rules.len());
    for (name, reason) in split.in_user_space(rules) {
        text.push_str(&format!("rule `{name}` runs in user space: {reason}\n"));
    }
    if split.user_needs_all {
        text.push_str("so every report of a path comes up: mode = \"user\" is as right, and faster\n");
        return text;
    }
    let metrics: Vec<&str> = split.metrics_for_user().map(Metric::name).collect();
    if !metrics.is_empty() {
        let metrics = metrics.join(" or ");
        text.push_str(&format!(
            "so each report whose {metrics} is not as in its flow's report before comes up\n"
        ));
    }
    text
}

/// How long what was suppressed may wait, ns. A shorter timeout of flows makes it shorter.
pub(crate) const ROUND: Nanos = 1_000_000_000;

/// What a program of the kernel tells and keeps.
pub(crate) trait Kernel: Send {
    /// Gives what was told to `take`, the oldest first, at most `most` of it; returns how much it was.
    fn drain(&mut self, most: usize, take: &mut dyn FnMut(&Told<'_>)) -> usize;

    /// What may lie there at once, at most.
    fn records(&self) -> usize;

    /// Waits at most so long until something is told.
    ///
    /// # Errors
    /// The system refused.
    fn wait(&mut self, timeout_ms: u32) -> Result<(), nic::Error>;

    /// Takes the program off the interface: nothing changes any more.
    fn detach(&mut self);

    /// Places for streams; a stream stays in its place until it is forgotten.
    fn streams(&self) -> u32;

    /// The stream in a place, and its present run; the count goes on over runs, modulo 2^31.
    fn stream(&self, place: u32) -> Option<(StreamId, Run)>;

    /// Frees the place of a stream.
    fn forget_stream(&mut self, place: u32);

    /// Places for flows.
    fn flows(&self) -> u32;

    /// Reports suppressed of the flow in a place, modulo 2^32; `None` when there is none.
    fn flow_reports(&self, place: u32) -> Option<u32>;

    /// Copies the flow in a place. `false`: there is none, or it changed meanwhile.
    fn flow(&self, place: u32, copy: &mut FlowCopy) -> bool;

    /// Forgets a flow.
    fn forget_flow(&mut self, key: &FlowKey);

    /// Places for keys of nodes of a metric.
    fn keys(&self, metric: Metric) -> u32;

    /// The key in a place, and the values suppressed that no flow keeps, modulo 2^32.
    fn key(&self, metric: Metric, place: u32) -> Option<(SuppressedKey, u32)>;

    /// Forgets a key.
    fn forget_key(&mut self, metric: Metric, node: u32, part: u32);

    /// Puts thresholds and rules in force, and answers their generation: [`Told::generation`] of what is told under them.
    ///
    /// # Errors
    /// The system refused; the old ones stay.
    fn set_detection(&mut self, detection: &Detection) -> Result<u32, nic::Error>;

    /// What was counted so far.
    ///
    /// # Errors
    /// The system refused.
    fn counters(&mut self) -> Result<Counters, nic::Error>;
}

/// A datagram that came up.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Told<'a> {
    /// When it was told, by the kernel's clock that never goes back.
    pub(crate) at: Nanos,
    /// Its stream and the place of it; `None` when its number is not followed there.
    pub(crate) stream: Option<(u32, StreamId)>,
    /// The run that it ended or goes on with; `None` where it began the stream. It is not counted in it.
    pub(crate) before: Option<Run>,
    /// The listener that its port stands for.
    pub(crate) listener: u16,
    /// The thresholds and rules under which it was told.
    pub(crate) generation: u32,
    /// From the Ethernet header on.
    pub(crate) frame: &'a [u8],
}

/// A flow, copied.
#[derive(Clone, Debug, Default)]
pub(crate) struct FlowCopy {
    pub(crate) key: FlowKey,
    /// Swallowed, modulo 2^32.
    pub(crate) reports: u32,
    /// Latest flow latency, ns.
    pub(crate) latency: Option<u64>,
    pub(crate) basis: Option<collector::event::Basis>,
    /// The hops of its path.
    pub(crate) hops: Vec<collector::SuppressedHop>,
}

/// What the kernel's program counted. What it told is counted again by whoever takes it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Counters {
    /// What it suppressed, as the collector would have counted it.
    pub(crate) suppressed: collector::Stats,
    /// Lost because the ring was full, or because another CPU was busy telling.
    pub(crate) ring_full: u64,
    /// Frames to our ports that held no datagram which can be read, by [`Refusal::index`].
    pub(crate) refused_frames: [u64; Refusal::COUNT],
}

// Arrays of more than 32 have no default of their own.
impl Default for Counters {
    fn default() -> Self {
        Self { suppressed: collector::Stats::default(), ring_full: 0, refused_frames: [0; Refusal::COUNT] }
    }
}

/// An input of which the kernel does a part: it tells up only what the collector must see, and its maps and the collector
/// are kept in step by the thread that reads it. Only with one worker.
pub(crate) trait KernelRxSource: Send {
    /// Waits at most `timeout_ms` for something to come up and gives it to the collector; does what is due between the
    /// kernel's maps and the collector. Returns how many datagrams came up. The lock is held only while there is work.
    ///
    /// # Errors
    /// The system refused; the input is then closed and opened again.
    fn receive(&mut self, timeout_ms: u32, worker: &Mutex<Worker>) -> Result<usize, nic::Error>;

    /// The end: nothing comes up any more, and the collector learns all that was dealt with in the kernel.
    ///
    /// # Errors
    /// The system refused.
    fn finish(&mut self, worker: &Mutex<Worker>) -> Result<(), nic::Error>;

    /// What happened so far. `datagrams` are all that were dealt with, in the kernel or here.
    fn stats(&mut self) -> Stats;
}
