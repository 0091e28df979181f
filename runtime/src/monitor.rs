//! Interface through which other roles, such as the manager, use the collector in the same process: queries of its workers,
//! rule events, and live streams.

use std::{
    collections::{BTreeMap, BTreeSet},
    future::Future,
    sync::Arc,
};

use collector::{Collector, Stats, StreamView};
use detect::Match;
use tokio::sync::mpsc;
use wire::FlowKey;

/// Maximum number of flows, over all names, whose events are counted: each event is compared with each of them.
pub const MAX_COUNTED_FLOWS: usize = 1024;

/// Error: a worker of the collector did not answer in time.
#[derive(Clone, Copy, Debug)]
pub struct Busy;

/// A followed rule that started to fire.
#[derive(Clone, PartialEq, Debug)]
pub struct RuleOn {
    /// Name of the rule.
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

/// The collector in this process and its live streams.
pub trait CollectorMonitor: Send + Sync + 'static {
    /// Runs `question` on all workers and returns their answers.
    ///
    /// # Errors
    /// A worker did not answer in time. There is no partial result, because it would look complete.
    fn ask<T: Send + 'static>(
        &self,
        question: impl Fn(&Collector) -> T + Clone + Send + 'static,
    ) -> impl Future<Output = Result<Vec<T>, Busy>> + Send;

    /// Walks a table of all workers in steps. `step` processes some slots from the given one on, and returns the next slot, or
    /// `None` at the end. `process` gets each result with the index of its worker.
    ///
    /// # Errors
    /// A worker did not answer in time.
    fn walk<T: Send + 'static>(
        &self,
        step: impl Fn(&Collector, u32) -> (T, Option<u32>) + Clone + Send + 'static,
        process: impl FnMut(usize, T) + Send,
    ) -> impl Future<Output = Result<(), Busy>> + Send;

    /// Returns the report streams whose sequence numbers are tracked.
    fn streams(&self) -> Vec<StreamView>;

    /// Returns the sum of `count` over all workers.
    fn total(&self, count: fn(&Stats) -> u64) -> u64;

    /// Returns a queue of the given length that receives each followed rule when it starts to fire.
    fn follow_rules(&self, queue: usize) -> mpsc::Receiver<RuleOn>;

    /// Selects the rules to follow.
    fn set_followed(&self, rules: BTreeSet<String>);

    /// Returns the number of rule events lost since the last call because the queue was full.
    fn drain_missed_rules(&self) -> u64;

    /// Counts the events of these flows from now on, by name. Returns the counts of the names that were counted before. Names
    /// beyond [`MAX_COUNTED_FLOWS`] are not counted.
    fn counted_events<'a>(
        &self,
        flows_by_name: impl Iterator<Item = (&'a str, &'a [Match])>,
    ) -> BTreeMap<String, u64>;

    /// Returns the number of clients that the manager's stream has had so far, or `None` if it has none now.
    fn stream_clients(&self) -> Option<u64>;

    /// Sends a change to the clients of the manager's stream without blocking.
    fn publish_change(&self, message: &StreamMessage);
}
