//! Exports as the API shows them.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{Budget, Gauge, Handle};
use runtime::lock::lock;
use view::Stage;

/// The exports of a process.
#[derive(Serialize, Deserialize, Clone, PartialEq, Debug)]
#[serde(default)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "Exports"))]
pub(crate) struct ExportsView {
    /// Each stream of each export.
    pub(crate) exports: Vec<ExportView>,
    /// Bytes that all of them may hold together.
    pub(crate) memory: u64,
    /// All of them as a stage of the loss budget.
    pub(crate) stage: Stage,
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

/// The stage before anything came.
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
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "Export"))]
pub(crate) struct ExportView {
    /// The export: NAME of `[exports.NAME]`.
    pub(crate) export: String,
    /// The system that receives.
    pub(crate) kind: String,
    /// Its address.
    pub(crate) server: String,
    /// The stream.
    pub(crate) stream: String,
    /// Of an outlet: the partition of the stream's topic. An outlet reads Kafka in place of the store.
    pub(crate) partition: Option<u32>,
    /// Records read from the store since the start.
    pub(crate) read: u64,
    /// Records that the server has stored.
    pub(crate) delivered: u64,
    /// Records that do not apply to this system, such as events that are not alerts; of an outlet, offsets without a message.
    pub(crate) left_out: u64,
    /// Number of silenced alerts among these.
    pub(crate) silenced: u64,
    /// Records permanently rejected by the server, and for an outlet messages that cannot be read; they are saved to a file, with
    /// the reason.
    pub(crate) rejected: u64,
    /// Rejected records that could not be written to that file.
    pub(crate) unwritten: u64,
    /// Records in memory, neither delivered nor rejected yet.
    pub(crate) held: u64,
    /// Committed records in the store that are still pending, including those in memory.
    pub(crate) waiting: u64,
    /// Bytes of its batches, requests and hops in memory.
    pub(crate) memory: u64,
    /// Bytes that it may hold: its part of the memory of all exports.
    pub(crate) memory_limit: u64,
    /// Bytes of one batch, at most.
    pub(crate) batch_size: u64,
    /// When these were counted.
    pub(crate) counted: u64,
    /// Time of the oldest record in memory: how far this export lags.
    pub(crate) oldest: Option<u64>,
    /// Records that the store, or Kafka, deleted before they were sent; of hops, those of files that were deleted or damaged.
    pub(crate) expired: u64,
    /// Hops dropped because the system accepted them more slowly than they arrived.
    pub(crate) shed: u64,
    /// Times that the store's count of records, or a partition, was reset; the number of records lost then is unknown.
    pub(crate) restarted: u64,
    /// Records that were sent again.
    pub(crate) repeated: u64,
    /// Requests sent.
    pub(crate) requests: u64,
    /// Requests that failed in a way that may pass.
    pub(crate) failed: u64,
    /// Requests that were refused for their content.
    pub(crate) refused: u64,
    /// Requests that were refused for their credentials.
    pub(crate) unauthorised: u64,
    /// Requests without an answer in time.
    pub(crate) timed_out: u64,
    /// Times that the cursor could not be saved.
    pub(crate) unsaved: u64,
    /// When a request was last answered for each of its records.
    pub(crate) last_success: Option<u64>,
    /// Error of the last request, until one succeeds.
    pub(crate) last_error: Option<String>,
}

/// What is known of them now.
pub(crate) fn view(handle: &Handle) -> ExportsView {
    let gauges = lock(&handle.gauges).clone();
    // A topic is there as long as something is wrong with it.
    let is_shown = |gauge: &&Arc<Gauge>| !gauge.is_topic || lock(&gauge.state).last_error.is_some();
    let exports: Vec<ExportView> = gauges.iter().filter(is_shown).map(|gauge| of(gauge)).collect();
    ExportsView {
        exports,
        memory: handle.memory,
        stage: stage(&gauges),
    }
}

/// All of them as a stage of the loss budget. What is not for a system leaves the stage as what it has received: nobody misses it.
fn stage(gauges: &[Arc<Gauge>]) -> Stage {
    let mut stage = nothing();
    for gauge in gauges {
        let Budget {
            into,
            out,
            rejected,
            unwritten,
            expired,
            shed,
            queued,
        } = lock(&gauge.state).budget;
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

fn of(gauge: &Gauge) -> ExportView {
    let state = lock(&gauge.state).clone();
    let ledger = state.ledger;
    ExportView {
        export: gauge.export.clone(),
        kind: gauge.kind.to_owned(),
        server: gauge.authority.clone(),
        stream: gauge.stream.name().to_owned(),
        partition: gauge.partition,
        read: ledger.read + ledger.left_out,
        delivered: ledger.delivered.saturating_sub(state.left_out),
        left_out: state.left_out + ledger.left_out,
        silenced: state.silenced,
        rejected: ledger.rejected,
        unwritten: ledger.unwritten,
        held: ledger.held,
        waiting: state.waiting,
        memory: state.memory as u64,
        memory_limit: gauge.share.memory as u64,
        batch_size: gauge.share.batch as u64,
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
