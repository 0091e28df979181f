//! `/status` and `/rates`.

use collector::stats::{Partial, Unjoinable};
use serde::{Deserialize, Serialize};

#[cfg(test)]
use super::schema;
use super::{Name, NamedCounts};

/// State of the whole program.
#[derive(Serialize, Deserialize, Clone, PartialEq, Default, Debug)]
#[serde(default)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(rename = "Status"))]
pub(crate) struct StatusView {
    /// Version of the program.
    pub(crate) version: Name,
    /// Seconds since the start.
    pub(crate) uptime_s: f64,
    /// Time of the response, nanoseconds since the Unix epoch.
    pub(crate) now: u64,
    /// Mean rates of the last five seconds.
    pub(crate) rates: Rates,
    /// Losses, stage by stage.
    pub(crate) loss_budget: Vec<Stage>,
    /// Refused reports by reason, those inside accepted datagrams included.
    pub(crate) refused: NamedCounts,
    /// Sockets and interfaces.
    pub(crate) inputs: Vec<InputView>,
    /// Sequence-numbered streams of reports, and addresses without a readable report.
    pub(crate) sources: Vec<SourceView>,
    /// Bounded tables.
    pub(crate) tables: Vec<TableView>,
    /// The store; null when it is off.
    pub(crate) store: Option<StoreView>,
    /// Files of state, such as cursors, that something else replaced while hopwise ran. They are not written any more until a restart.
    pub(crate) replaced_files: Vec<String>,
    /// Worker threads.
    pub(crate) workers: Vec<WorkerView>,
    /// Clients of the live stream.
    pub(crate) streams: StreamsView,
    /// Outcome of postcards.
    pub(crate) postcards: PostcardsView,
    /// Hop latencies that were implausible and are in no other number.
    pub(crate) implausible_latencies: u64,
    /// True in a console: it receives nothing, so that there are no rates, losses, inputs and tables to show.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) console: Option<bool>,
}

/// Accounting of postcards: `received = joined + pending + sum of partial + sum of unjoinable`.
#[derive(Serialize, Deserialize, Clone, PartialEq, Default, Debug)]
#[serde(default)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(rename = "Postcards"))]
pub(crate) struct PostcardsView {
    /// Postcards received.
    pub(crate) received: u64,
    /// Postcards of sets that gave or confirmed a path.
    pub(crate) joined: u64,
    /// Sets that gave or confirmed a path.
    pub(crate) sets: u64,
    /// Postcards that wait for others.
    pub(crate) pending: u64,
    /// Postcards that waited and were not joined, by reason.
    pub(crate) partial: NamedCounts,
    /// Postcards that never waited, by reason.
    pub(crate) unjoinable: NamedCounts,
    /// Postcards whose Flow ID belongs to one known flow.
    pub(crate) resolved: u64,
    /// Postcards whose Flow ID belongs to several flows.
    pub(crate) ambiguous: u64,
    /// Aggregates received.
    pub(crate) aggregates: u64,
    /// Postcards in aggregates.
    pub(crate) unfolded: u64,
    /// Summaries in aggregates.
    pub(crate) summaries: u64,
}

impl From<&collector::Stats> for PostcardsView {
    fn from(stats: &collector::Stats) -> Self {
        let counts = &stats.postcards;
        let partial = Partial::ALL
            .iter()
            .map(|why| (why.name(), counts.partial[*why as usize]));
        let unjoinable = Unjoinable::ALL
            .iter()
            .map(|why| (why.name(), counts.unjoinable[*why as usize]));
        Self {
            received: counts.received,
            joined: counts.joined,
            sets: counts.sets,
            pending: counts.accepted - counts.released,
            partial: partial.filter(|(_, count)| *count > 0).collect(),
            unjoinable: unjoinable.filter(|(_, count)| *count > 0).collect(),
            resolved: counts.resolved,
            ambiguous: counts.ambiguous,
            aggregates: stats.aggregates,
            unfolded: stats.aggregate_postcards,
            summaries: stats.summaries,
        }
    }
}

/// Mean rates of the last five seconds.
#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Default, Debug)]
#[serde(default)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Rates {
    /// Reports per second.
    pub(crate) reports: f64,
    /// Events per second.
    pub(crate) events: f64,
    /// Datagrams per second.
    pub(crate) datagrams: f64,
}

/// Rates at one time.
#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Default, Debug)]
#[serde(default)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct RatesThen {
    /// Time, nanoseconds since the Unix epoch.
    pub(crate) ts: u64,
    #[serde(flatten)]
    pub(crate) rates: Rates,
}

/// One stage of the loss budget: `in = out + sum of drops + queued`.
#[derive(Serialize, Deserialize, Clone, PartialEq, Default, Debug)]
#[serde(default)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Stage {
    /// Name of the stage. `nic` exists with interfaces, `fanout` with several workers, `join` with postcards or SF-INT, `export` with
    /// exports: all of them together, so that a record that two systems receive counts twice.
    #[cfg_attr(test, schemars(extend("enum" = schema::stages())))]
    pub(crate) stage: Name,
    /// What is counted.
    #[cfg_attr(test, schemars(extend("enum" = schema::units())))]
    pub(crate) unit: Name,
    /// Number in.
    #[serde(rename = "in")]
    pub(crate) into: u64,
    /// Number out.
    pub(crate) out: u64,
    /// In the stage now.
    pub(crate) queued: u64,
    /// Drops by reason.
    pub(crate) drops: NamedCounts,
    /// Support for `lost`; null for stages other than `network`.
    pub(crate) evidence: Option<Evidence>,
}

/// Support for the losses in the network. A datagram received supports the loss of 128 others of its stream.
#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Default, Debug)]
#[serde(default)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Evidence {
    /// Datagrams missing beyond that: after a long outage that has just ended, or because of forged sequence numbers. Neither in
    /// `in` nor in `drops`.
    pub(crate) unconfirmed: u64,
    /// Datagrams received in the streams in which any are missing.
    pub(crate) datagrams: u64,
}

/// A listening socket or an interface.
#[derive(Serialize, Deserialize, Clone, PartialEq, Default, Debug)]
#[serde(default)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(rename = "Input"))]
pub(crate) struct InputView {
    /// Address or interface, as configured.
    pub(crate) listen: String,
    /// How it receives.
    #[cfg_attr(test, schemars(extend("enum" = schema::inputs())))]
    pub(crate) kind: Name,
    /// True while it receives.
    pub(crate) up: bool,
    /// Why it does not receive.
    pub(crate) message: Option<String>,
    /// Interface; null for a socket.
    pub(crate) interface: Option<String>,
    /// Queues of the interface that are read; 0 for a socket.
    pub(crate) queues: u32,
    /// Faster receive paths that were not used, with the reason.
    pub(crate) tried: Vec<TriedView>,
    /// Times it was reopened.
    pub(crate) reopened: u64,
    /// Datagrams received.
    pub(crate) datagrams: u64,
    /// Datagrams without a significant change, processed in the kernel (`mode = "kernel"`).
    pub(crate) handled_in_kernel: u64,
    /// Bytes of these datagrams, without headers; in kernel mode of those passed to user space.
    pub(crate) bytes: u64,
    /// Drops in the kernel.
    pub(crate) kernel_drops: u64,
    /// Datagrams longer than the buffer.
    pub(crate) truncated: u64,
    /// Size of the receive buffer of the socket, bytes.
    pub(crate) receive_buffer: u64,
    /// Datagrams addressed to this input and not received, by reason; includes `kernel_drops`.
    pub(crate) drops: NamedCounts,
    /// Frames for this input that the XDP program passed to the stack, by reason; a socket receives them.
    pub(crate) passed: NamedCounts,
    /// Frames that the interface dropped before the XDP program, for any destination.
    pub(crate) device_drops: u64,
}

/// A receive path that was not used.
#[derive(Serialize, Deserialize, Clone, PartialEq, Default, Debug)]
#[serde(default)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(rename = "Tried"))]
pub(crate) struct TriedView {
    /// Receive path.
    pub(crate) rx_path: Name,
    /// Why it was not used.
    pub(crate) reason: String,
}

/// A sequence-numbered stream of reports, or an address without a readable report.
#[derive(Serialize, Deserialize, Clone, PartialEq, Debug, Default)]
#[serde(default)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(rename = "Source"))]
pub(crate) struct SourceView {
    /// Address of the reporter.
    pub(crate) source: String,
    /// Name of the node, as configured.
    pub(crate) name: Option<String>,
    /// Node id.
    pub(crate) node: Option<u32>,
    /// Subsystem of the node.
    pub(crate) hw_id: Option<u8>,
    /// Version of the reports.
    pub(crate) version: String,
    /// Reports with a sequence number.
    pub(crate) reports: u64,
    /// Reports lost before the collector.
    pub(crate) lost: u64,
    /// Reports missing in addition, more than those received support: not counted as lost.
    pub(crate) unconfirmed: u64,
    /// Reports out of order.
    pub(crate) reordered: u64,
    /// Duplicate reports.
    pub(crate) duplicated: u64,
    /// Restarts of the sequence.
    pub(crate) restarts: u64,
    /// False when the sequence number never advances, or is that of several nodes; then `lost` is meaningless.
    pub(crate) countable: bool,
    /// Several nodes send from this address, and their reports do not say which.
    pub(crate) mixed: bool,
    /// Receive time of the latest report, nanoseconds since the Unix epoch.
    pub(crate) last_seen: u64,
    /// Refused datagrams and reports, by reason.
    pub(crate) refused: NamedCounts,
}

/// A bounded table.
#[derive(Serialize, Deserialize, Clone, PartialEq, Default, Debug)]
#[serde(default)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(rename = "Table"))]
pub(crate) struct TableView {
    /// Name.
    pub(crate) name: Name,
    /// Entries in use.
    pub(crate) used: u64,
    /// Maximum number of entries.
    pub(crate) capacity: u64,
    /// Entries replaced by newer ones.
    pub(crate) evicted: u64,
    /// Entries refused because the table was full.
    pub(crate) refused: u64,
}

/// State of the store.
#[derive(Serialize, Deserialize, Clone, PartialEq, Default, Debug)]
#[serde(default)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(rename = "Store"))]
pub(crate) struct StoreView {
    /// State.
    #[cfg_attr(test, schemars(extend("enum" = schema::store_states())))]
    pub(crate) state: Name,
    /// Why the state is not `ok`.
    pub(crate) message: Option<String>,
    /// Records written.
    pub(crate) written: u64,
    /// Records committed.
    pub(crate) committed: u64,
    /// Records in the queue.
    pub(crate) queue: u64,
    /// Records dropped because the queue was full.
    pub(crate) shed: u64,
    /// Records that could not be written.
    pub(crate) failed: u64,
    /// Time of the last commit, nanoseconds since the Unix epoch.
    pub(crate) last_commit: Option<u64>,
    /// Bytes on disk.
    pub(crate) bytes: u64,
    /// Files.
    pub(crate) files: u64,
    /// Files written without indexes on events at a high rate, and indexed when they were complete.
    pub(crate) indexed_later: u64,
    /// Attempts at that which failed: queries over such a file read it whole; it is tried again.
    pub(crate) index_failures: u64,
    /// Damaged files that were set aside since the start.
    pub(crate) set_aside: u64,
    /// Files that something else than retention removed or replaced while hopwise ran.
    pub(crate) moved_files: u64,
    /// Records of `committed` that were in files that were removed, replaced or set aside.
    pub(crate) removed: u64,
    /// Files that cannot be used or are damaged, as long as they are there, and what happened to files while they were in use.
    pub(crate) problems: Vec<FileProblemView>,
    /// Files that cannot be used or are damaged and are not in `problems`, which lists 64 of them.
    pub(crate) more_problems: u64,
}

/// What is wrong with a file of the store, or happened to it.
#[derive(Serialize, Deserialize, Clone, PartialEq, Default, Debug)]
#[serde(default)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(rename = "FileProblem"))]
pub(crate) struct FileProblemView {
    /// Name of the file in the store's directory.
    pub(crate) file: String,
    /// The kind.
    #[cfg_attr(test, schemars(extend("enum" = schema::file_problems())))]
    pub(crate) kind: Name,
    /// The reason and the remedy.
    pub(crate) message: String,
    /// When it was found, nanoseconds since the Unix epoch.
    pub(crate) found: u64,
    /// Records that this process had stored in the file and that are not in the store any more.
    pub(crate) records: u64,
}

/// A worker thread.
#[derive(Serialize, Deserialize, Clone, PartialEq, Default, Debug)]
#[serde(default)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(rename = "Worker"))]
pub(crate) struct WorkerView {
    /// Number, from 0.
    pub(crate) worker: usize,
    /// Datagrams processed.
    pub(crate) datagrams: u64,
    /// Reports processed.
    pub(crate) reports: u64,
}

/// Clients of the live stream.
#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Default, Debug)]
#[serde(default)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(rename = "Streams"))]
pub(crate) struct StreamsView {
    /// Clients connected.
    pub(crate) clients: u64,
    /// Events sent.
    pub(crate) sent: u64,
    /// Events dropped because a client was too slow.
    pub(crate) shed: u64,
}

/// `/rates`.
#[derive(Serialize, Deserialize, Clone, PartialEq, Default, Debug)]
#[serde(default)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct RateHistory {
    /// One entry per second, at most the last 15 minutes, oldest first.
    pub(crate) rates: Vec<RatesThen>,
}
