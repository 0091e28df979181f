//! API responses about the process: `/status` with the loss budget, inputs, tables and store, and `/rates`.

use collector::stats::{Partial, Unjoinable};
#[cfg(feature = "schema")]
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Name, NamedCounts};
#[cfg(feature = "schema")]
use crate::schema;

/// State of the whole program.
#[derive(Serialize, Deserialize, Clone, PartialEq, Default, Debug)]
#[serde(default)]
#[cfg_attr(feature = "schema", derive(JsonSchema), schemars(rename = "Status"))]
pub struct StatusView {
    /// Version of the program.
    pub version: Name,
    /// Seconds since the start.
    pub uptime_s: f64,
    /// Time of the response, nanoseconds since the Unix epoch.
    pub now: u64,
    /// Mean rates of the last five seconds.
    pub rates: Rates,
    /// Losses, stage by stage.
    pub loss_budget: Vec<Stage>,
    /// Refused reports by reason, those inside accepted datagrams included.
    pub refused: NamedCounts,
    /// Sockets and interfaces that receive reports.
    pub inputs: Vec<InputView>,
    /// Sequence-numbered streams of reports, and addresses without a readable report; at most 512. If there are more, these are
    /// those with the most losses and refused reports, then the busiest.
    pub sources: Vec<SourceView>,
    /// Number of all these streams and addresses.
    pub sources_total: u64,
    /// Tables of bounded size.
    pub tables: Vec<TableView>,
    /// The store; null when it is off.
    pub store: Option<StoreView>,
    /// State files, such as cursors, that something else replaced while hopwise ran. They are not written until a restart.
    pub replaced_files: Vec<String>,
    /// Worker threads of the collector.
    pub workers: Vec<WorkerView>,
    /// Clients of the live stream.
    pub streams: StreamsView,
    /// Accounting of postcards and their joins.
    pub postcards: PostcardsView,
    /// Implausible hop latencies, not included in any other metric.
    pub implausible_latencies: u64,
    /// True in a console: it receives nothing, so that there are no rates, losses, inputs and tables to show.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub console: Option<bool>,
}

/// Accounting of postcards: `received = joined + pending + sum of partial + sum of unjoinable`.
#[derive(Serialize, Deserialize, Clone, PartialEq, Default, Debug)]
#[serde(default)]
#[cfg_attr(feature = "schema", derive(JsonSchema), schemars(rename = "Postcards"))]
pub struct PostcardsView {
    /// Number of postcards received.
    pub received: u64,
    /// Postcards of sets that gave or confirmed a path.
    pub joined: u64,
    /// Sets that gave or confirmed a path.
    pub sets: u64,
    /// Postcards that wait for others.
    pub pending: u64,
    /// Postcards that waited and were not joined, by reason.
    pub partial: NamedCounts,
    /// Postcards that never waited, by reason.
    pub unjoinable: NamedCounts,
    /// Postcards whose Flow ID belongs to one known flow.
    pub resolved: u64,
    /// Postcards whose Flow ID belongs to several flows.
    pub ambiguous: u64,
    /// Number of aggregates received.
    pub aggregates: u64,
    /// Number of postcards in aggregates.
    pub unfolded: u64,
    /// Number of summaries in aggregates.
    pub summaries: u64,
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
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct Rates {
    /// Reports received per second.
    pub reports: f64,
    /// Events per second, of any kind.
    pub events: f64,
    /// Datagrams received per second.
    pub datagrams: f64,
}

/// Rates at one time.
#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Default, Debug)]
#[serde(default)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct RatesThen {
    /// Time, nanoseconds since the Unix epoch.
    pub ts: u64,
    #[serde(flatten)]
    /// The rates of that second.
    pub rates: Rates,
}

/// One stage of the loss budget: `in = out + sum of drops + queued`.
#[derive(Serialize, Deserialize, Clone, PartialEq, Default, Debug)]
#[serde(default)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct Stage {
    /// Name of the stage. `nic` exists with interfaces, `fanout` with several workers, `join` with postcards or SF-INT, `export` with
    /// exports: all of them together, so that a record that two systems receive counts twice.
    #[cfg_attr(feature = "schema", schemars(extend("enum" = schema::stages())))]
    pub stage: Name,
    /// Unit of the counter.
    #[cfg_attr(feature = "schema", schemars(extend("enum" = schema::units())))]
    pub unit: Name,
    /// Number of units that entered the stage.
    #[serde(rename = "in")]
    pub into: u64,
    /// Number of units that left it successfully.
    pub out: u64,
    /// Number of units in the stage now.
    pub queued: u64,
    /// Number of dropped units, by reason.
    pub drops: NamedCounts,
    /// Support for `lost`; null for stages other than `network`.
    pub evidence: Option<Evidence>,
}

/// Support for the losses in the network. A datagram received supports the loss of 128 others of its stream.
#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Default, Debug)]
#[serde(default)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct Evidence {
    /// Datagrams missing beyond that: after a long outage that has just ended, or because of forged sequence numbers. Neither in
    /// `in` nor in `drops`.
    pub unconfirmed: u64,
    /// Datagrams received in the streams in which any are missing.
    pub datagrams: u64,
}

/// A listening socket or an interface.
#[derive(Serialize, Deserialize, Clone, PartialEq, Default, Debug)]
#[serde(default)]
#[cfg_attr(feature = "schema", derive(JsonSchema), schemars(rename = "Input"))]
pub struct InputView {
    /// Address or interface, as configured.
    pub listen: String,
    /// Receive path of the input.
    #[cfg_attr(feature = "schema", schemars(extend("enum" = schema::inputs())))]
    pub kind: Name,
    /// True while it receives.
    pub up: bool,
    /// Reason why it does not receive.
    pub message: Option<String>,
    /// True if datagrams with a wrong UDP checksum are dropped. False with AF_XDP (`xdp-…`), which delivers what the NIC accepts: a
    /// report that was damaged on the way is read as it is.
    pub checksums_verified: bool,
    /// Interface; null for a socket.
    pub interface: Option<String>,
    /// Queues of the interface that are read; 0 for a socket.
    pub queues: u32,
    /// Faster receive paths that were not used, with the reason.
    pub tried: Vec<TriedView>,
    /// Times it was reopened.
    pub reopened: u64,
    /// Number of datagrams received.
    pub datagrams: u64,
    /// Datagrams without a significant change, processed in the kernel (`mode = "kernel"`).
    pub handled_in_kernel: u64,
    /// Bytes of these datagrams, without headers; in kernel mode of those passed to user space.
    pub bytes: u64,
    /// Drops in the kernel.
    pub kernel_drops: u64,
    /// Datagrams longer than the buffer.
    pub truncated: u64,
    /// Size of the receive buffer of the socket, bytes.
    pub receive_buffer: u64,
    /// Datagrams addressed to this input and not received, by reason; includes `kernel_drops`.
    pub drops: NamedCounts,
    /// Frames for this input that the XDP program passed to the stack, by reason; a socket receives them.
    pub passed: NamedCounts,
    /// Frames that the interface dropped before the XDP program, for any destination.
    pub device_drops: u64,
}

/// A receive path that was not used.
#[derive(Serialize, Deserialize, Clone, PartialEq, Default, Debug)]
#[serde(default)]
#[cfg_attr(feature = "schema", derive(JsonSchema), schemars(rename = "Tried"))]
pub struct TriedView {
    /// Receive path that was tried.
    pub rx_path: Name,
    /// Reason why it was not used.
    pub reason: String,
}

/// A sequence-numbered stream of reports, or an address without a readable report.
#[derive(Serialize, Deserialize, Clone, PartialEq, Debug, Default)]
#[serde(default)]
#[cfg_attr(feature = "schema", derive(JsonSchema), schemars(rename = "Source"))]
pub struct SourceView {
    /// Address of the reporter.
    pub source: String,
    /// Name of the node, as configured.
    pub name: Option<String>,
    /// Node id, or null if the reports do not carry it.
    pub node: Option<u32>,
    /// Subsystem of the node.
    pub hw_id: Option<u8>,
    /// Version of the reports.
    pub version: String,
    /// Reports with a sequence number.
    pub reports: u64,
    /// Reports lost before the collector.
    pub lost: u64,
    /// Reports missing in addition, more than those received support: not counted as lost.
    pub unconfirmed: u64,
    /// Reports out of order.
    pub reordered: u64,
    /// Number of reports received more than once.
    pub duplicated: u64,
    /// Restarts of the sequence.
    pub restarts: u64,
    /// False when the sequence number has not advanced (also after one report only), or is that of several nodes; then `lost` is meaningless.
    pub countable: bool,
    /// Several nodes send from this address, and their reports do not say which.
    pub mixed: bool,
    /// Receive time of the latest report, nanoseconds since the Unix epoch.
    pub last_seen: u64,
    /// Refused datagrams and reports, by reason.
    pub refused: NamedCounts,
}

/// Usage of a table of bounded size.
#[derive(Serialize, Deserialize, Clone, PartialEq, Default, Debug)]
#[serde(default)]
#[cfg_attr(feature = "schema", derive(JsonSchema), schemars(rename = "Table"))]
pub struct TableView {
    /// Name of the table.
    pub name: Name,
    /// Number of entries in use.
    pub used: u64,
    /// Maximum number of entries.
    pub capacity: u64,
    /// Entries replaced by newer ones.
    pub evicted: u64,
    /// Entries refused because the table was full.
    pub refused: u64,
}

/// State of the store.
#[derive(Serialize, Deserialize, Clone, PartialEq, Default, Debug)]
#[serde(default)]
#[cfg_attr(feature = "schema", derive(JsonSchema), schemars(rename = "Store"))]
pub struct StoreView {
    /// State of the store.
    #[cfg_attr(feature = "schema", schemars(extend("enum" = schema::store_states())))]
    pub state: Name,
    /// Reason why the state is not `ok`.
    pub message: Option<String>,
    /// Number of records written since the start.
    pub written: u64,
    /// Number of records committed since the start.
    pub committed: u64,
    /// Records in the queue.
    pub queue: u64,
    /// Records dropped because the queue was full.
    pub shed: u64,
    /// Records that could not be written.
    pub failed: u64,
    /// Time of the last commit, nanoseconds since the Unix epoch.
    pub last_commit: Option<u64>,
    /// Size of all files on disk, bytes.
    pub bytes: u64,
    /// Number of files of the store.
    pub files: u64,
    /// Files written without indexes on events at a high rate, and indexed when they were complete.
    pub indexed_later: u64,
    /// Failed attempts to index such a file; until a retry succeeds, queries read the whole file.
    pub index_failures: u64,
    /// Damaged files that were set aside since the start.
    pub set_aside: u64,
    /// Files removed or replaced by anything but retention while hopwise ran.
    pub moved_files: u64,
    /// Records of `committed` that were in files that were removed, replaced or set aside.
    pub removed: u64,
    /// Files that cannot be used or are damaged, as long as they are there, and what happened to files while they were in use.
    pub problems: Vec<FileProblemView>,
    /// Files that cannot be used or are damaged and are not in `problems`, which lists 64 of them.
    pub more_problems: u64,
}

/// A problem of a file of the store.
#[derive(Serialize, Deserialize, Clone, PartialEq, Default, Debug)]
#[serde(default)]
#[cfg_attr(feature = "schema", derive(JsonSchema), schemars(rename = "FileProblem"))]
pub struct FileProblemView {
    /// Name of the file in the store's directory.
    pub file: String,
    /// Kind of the problem.
    #[cfg_attr(feature = "schema", schemars(extend("enum" = schema::file_problems())))]
    pub kind: Name,
    /// The reason and the remedy.
    pub message: String,
    /// When it was found, nanoseconds since the Unix epoch.
    pub found: u64,
    /// Records that this process stored in the file and that are no longer in the store.
    pub records: u64,
}

/// Counters of a worker thread.
#[derive(Serialize, Deserialize, Clone, PartialEq, Default, Debug)]
#[serde(default)]
#[cfg_attr(feature = "schema", derive(JsonSchema), schemars(rename = "Worker"))]
pub struct WorkerView {
    /// Number of the worker, from 0.
    pub worker: usize,
    /// Number of datagrams processed.
    pub datagrams: u64,
    /// Number of reports processed.
    pub reports: u64,
}

/// Clients of the live stream.
#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Default, Debug)]
#[serde(default)]
#[cfg_attr(feature = "schema", derive(JsonSchema), schemars(rename = "Streams"))]
pub struct StreamsView {
    /// Number of clients connected now.
    pub clients: u64,
    /// Number of events sent to clients.
    pub sent: u64,
    /// Events dropped because a client was too slow.
    pub shed: u64,
}

/// The response of `/rates`: rates of the last minutes.
#[derive(Serialize, Deserialize, Clone, PartialEq, Default, Debug)]
#[serde(default)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct RateHistory {
    /// One entry per second, at most the last 15 minutes, oldest first.
    pub rates: Vec<RatesThen>,
}
