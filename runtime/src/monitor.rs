//! The collector of a process as other roles see it.

use std::{
    collections::{BTreeMap, BTreeSet},
    future::Future,
    sync::Arc,
};

use collector::{Collector, Stats, StreamView};
use detect::Match;
use tokio::sync::mpsc;
use wire::FlowKey;

/// A worker of the collector did not answer in time.
#[derive(Clone, Copy, Debug)]
pub struct Busy;

/// A followed rule that became true.
#[derive(Clone, PartialEq, Debug)]
pub struct RuleOn {
    /// The name of the rule.
    pub rule: String,
    /// The flow for which it became true.
    pub flow: FlowKey,
}

/// A message to the clients of a live stream.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StreamMessage {
    /// The kind of message; `None` in a stream that has only one kind.
    pub name: Option<&'static str>,
    /// The message as JSON.
    pub text: Arc<str>,
}

/// Flows whose events are counted, of all names together: each event is compared with each.
pub const MAX_COUNTED_FLOWS: usize = 1024;

/// The collector of this process, and its live streams.
pub trait CollectorMonitor: Send + Sync + 'static {
    /// Asks all workers.
    ///
    /// # Errors
    /// A worker does not answer: a partial response would look complete.
    fn ask<T: Send + 'static>(
        &self,
        question: impl Fn(&Collector) -> T + Clone + Send + 'static,
    ) -> impl Future<Output = Result<Vec<T>, Busy>> + Send;

    /// Asks all workers in steps: `step` covers the table slots from one on, and returns the next slot. `process` gets each
    /// response, with the number of its worker.
    ///
    /// # Errors
    /// A worker does not answer.
    fn walk<T: Send + 'static>(
        &self,
        step: impl Fn(&Collector, u32) -> (T, Option<u32>) + Clone + Send + 'static,
        process: impl FnMut(usize, T) + Send,
    ) -> impl Future<Output = Result<(), Busy>> + Send;

    /// Returns the streams of reports, by sequence numbers.
    fn streams(&self) -> Vec<StreamView>;

    /// Returns the sum of `count` over all workers.
    fn total(&self, count: fn(&Stats) -> u64) -> u64;

    /// Queues each rule of [`CollectorMonitor::set_followed`] that becomes true from now on.
    fn follow_rules(&self, queue: usize) -> mpsc::Receiver<RuleOn>;

    /// Selects the rules to follow.
    fn set_followed(&self, rules: BTreeSet<String>);

    /// Returns the rules that became true and found the queue full since the last call.
    fn drain_missed_rules(&self) -> u64;

    /// Counts the events of these flows from now on, by name. Returns those of the names that were counted before. Names with more flows
    /// than there is room for are not counted.
    fn counted_events<'a>(
        &self,
        wanted: impl Iterator<Item = (&'a str, &'a [Match])>,
    ) -> BTreeMap<String, u64>;

    /// Returns the number of clients that the manager's stream has had so far, if there is one now.
    fn stream_clients(&self) -> Option<u64>;

    /// Offers a change to the clients of the manager's stream. Never blocks.
    fn publish_change(&self, message: &StreamMessage);
}
