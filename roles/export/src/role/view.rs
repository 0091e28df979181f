//! Views of exports for the API. The doc comments of the view types are the descriptions in the API's schema.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{Budget, ExportStatus, Handle};
use runtime::lock::lock;
use view::Stage;

/// The exports of a process.
#[derive(Serialize, Deserialize, Clone, PartialEq, Debug)]
#[serde(default)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(rename = "Exports"))]
pub struct ExportsView {
    /// Each stream of each export.
    pub exports: Vec<ExportView>,
    /// Bytes that all of them may hold together.
    pub memory: u64,
    /// All of them as a stage of the loss budget.
    pub stage: Stage,
}

impl Default for ExportsView {
    fn default() -> Self {
        Self {
            exports: Vec::new(),
            memory: 0,
            stage: nothing(),
        }
    }
}

/// Returns the stage of an export that has no records yet.
fn nothing() -> Stage {
    Stage {
        stage: "export".into(),
        unit: "records".into(),
        ..Stage::default()
    }
}

/// One stream of one export. `read` = `delivered` + `left_out` + `rejected` + `held`.
#[derive(Serialize, Deserialize, Clone, PartialEq, Default, Debug)]
#[serde(default)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(rename = "Export"))]
pub struct ExportView {
    /// The export: NAME of `[exports.NAME]`.
    pub export: String,
    /// The system that receives.
    pub kind: String,
    /// Address of the system: host and port.
    pub server: String,
    /// Name of the stream, such as `events`.
    pub stream: String,
    /// The partition of the stream's topic, for an outlet; null for an export. An outlet reads Kafka instead of the
    /// store.
    pub partition: Option<u32>,
    /// Records read from the store since the start.
    pub read: u64,
    /// Records that the server has stored.
    pub delivered: u64,
    /// Records that do not apply to this system, such as events that are not alerts; of an outlet, offsets without a message.
    pub left_out: u64,
    /// Number of silenced alerts among these.
    pub silenced: u64,
    /// Records permanently rejected by the server, and for an outlet messages that cannot be read; they are saved to a file, with
    /// the reason.
    pub rejected: u64,
    /// Rejected records that could not be written to that file.
    pub unwritten: u64,
    /// Records in memory, neither delivered nor rejected yet.
    pub held: u64,
    /// Committed records in the store that are still pending, including those in memory.
    pub waiting: u64,
    /// Bytes of its batches, requests and hops in memory.
    pub memory: u64,
    /// Bytes that it may hold: its part of the memory of all exports.
    pub memory_limit: u64,
    /// Bytes of one batch, at most.
    pub batch_size: u64,
    /// When these were counted.
    pub counted: u64,
    /// Time of the oldest record in memory: how far this export lags.
    pub oldest: Option<u64>,
    /// Records that the store, or Kafka, deleted before they were sent; of hops, those of files that were deleted or damaged.
    pub expired: u64,
    /// Hops dropped because the system accepted them more slowly than they arrived.
    pub shed: u64,
    /// Times that the store's count of records, or a partition, was reset; the number of records lost then is unknown.
    pub restarted: u64,
    /// Records that were sent again.
    pub repeated: u64,
    /// Number of requests sent.
    pub requests: u64,
    /// Requests that failed in a way that may pass.
    pub failed: u64,
    /// Requests that were refused for their content.
    pub refused: u64,
    /// Requests that were refused for their credentials.
    pub unauthorised: u64,
    /// Requests without an answer in time.
    pub timed_out: u64,
    /// Times that the cursor could not be saved.
    pub unsaved: u64,
    /// When a request was last answered for each of its records.
    pub last_success: Option<u64>,
    /// Error of the last request, until one succeeds.
    pub last_error: Option<String>,
}

/// Returns the current state of all exports.
pub fn view(handle: &Handle) -> ExportsView {
    let statuses = lock(&handle.statuses).clone();
    // A topic is shown only while it has an error.
    let shown = statuses
        .iter()
        .filter(|status| !status.is_topic || lock(&status.state).last_error.is_some());
    ExportsView {
        exports: shown.map(|status| export_view(status)).collect(),
        memory: handle.memory,
        stage: stage(&statuses),
    }
}

/// Sums all exports to a stage of the loss budget. Records that do not apply to a system count as delivered.
fn stage(statuses: &[Arc<ExportStatus>]) -> Stage {
    let mut stage = nothing();
    for status in statuses {
        let Budget {
            into,
            out,
            rejected,
            unwritten,
            expired,
            shed,
            queued,
        } = lock(&status.state).budget;
        stage.into += into;
        stage.out += out;
        stage.queued += queued;
        let reasons = [
            ("rejected", rejected),
            ("unwritten", unwritten),
            ("expired", expired),
            ("shed", shed),
        ];
        for (reason, count) in reasons {
            stage.drops.add(reason, count);
        }
    }
    stage
}

fn export_view(status: &ExportStatus) -> ExportView {
    let state = lock(&status.state).clone();
    let ledger = state.ledger;
    ExportView {
        export: status.export.clone(),
        kind: status.kind.to_owned(),
        server: status.authority.clone(),
        stream: status.stream.name().to_owned(),
        partition: status.partition,
        read: ledger.read + ledger.left_out,
        delivered: ledger.delivered.saturating_sub(state.left_out),
        left_out: state.left_out + ledger.left_out,
        silenced: state.silenced,
        rejected: ledger.rejected,
        unwritten: ledger.unwritten,
        held: ledger.held,
        waiting: state.waiting,
        memory: state.memory as u64,
        memory_limit: status.share.memory as u64,
        batch_size: status.share.batch as u64,
        counted: state.counted,
        oldest: state.oldest,
        expired: ledger.expired,
        shed: state.shed,
        restarted: state.restarted,
        repeated: ledger.repeated,
        requests: ledger.requests,
        failed: ledger.failed,
        refused: ledger.refused,
        unauthorised: ledger.unauthorised,
        timed_out: ledger.timed_out,
        unsaved: ledger.unsaved,
        last_success: state.last_success,
        last_error: state.last_error,
    }
}
