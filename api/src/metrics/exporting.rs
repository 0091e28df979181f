//! Metrics of exports. HELP and TYPE lines are always present, samples only with `[exports.NAME]`.

use std::fmt::Display;

use super::Text;
use ::export_role::role::view::{ExportView, ExportsView};

/// Export and stream; of an outlet, the partition.
fn labels(export: &ExportView) -> Vec<(&'static str, &dyn Display)> {
    let mut labels: Vec<(&'static str, &dyn Display)> =
        vec![("export", &export.export), ("stream", &export.stream)];
    labels.extend(
        export
            .partition
            .as_ref()
            .map(|partition| ("partition", partition as &dyn Display)),
    );
    labels
}

/// Each stream of each export.
#[expect(clippy::too_many_lines, reason = "a list, in its order")]
pub(super) fn exporting(text: &mut Text, view: Option<&ExportsView>) {
    let help =
        "Records read from the store, or from Kafka, for an export: delivered + left_out + rejected + held.";
    export(text, view, "export_read_total", "counter", help, |one| one.read);
    export(
        text,
        view,
        "export_delivered_total",
        "counter",
        "Records that the server has stored.",
        |one| one.delivered,
    );
    let help = "Records that do not apply to this system, such as events that are not alerts.";
    export(text, view, "export_left_out_total", "counter", help, |one| {
        one.left_out
    });
    let help = "Silenced alerts among these.";
    export(text, view, "export_silenced_total", "counter", help, |one| {
        one.silenced
    });
    export(
        text,
        view,
        "export_rejected_total",
        "counter",
        "Records permanently rejected by the server.",
        |one| one.rejected,
    );
    let help = "Rejected records that could not be written to the file of rejected records.";
    export(text, view, "export_unwritten_total", "counter", help, |one| {
        one.unwritten
    });
    let help = "Records in memory, neither delivered nor rejected yet.";
    export(text, view, "export_held", "gauge", help, |one| one.held);
    export(
        text,
        view,
        "export_waiting",
        "gauge",
        "Committed records, or messages in Kafka, that are not settled yet.",
        |one| one.waiting,
    );
    let help = "Age of the oldest record in memory, in seconds: how far the export lags; 0 if there is none.";
    export(text, view, "export_lag_seconds", "gauge", help, |one| {
        one.oldest
            .map_or(0, |ts| nic::time::now().saturating_sub(ts) / 1_000_000_000)
    });
    let help = "Bytes of batches, requests and hops in memory.";
    export(text, view, "export_memory_bytes", "gauge", help, |one| one.memory);
    export(
        text,
        view,
        "export_memory_limit_bytes",
        "gauge",
        "Bytes that an export may hold.",
        |one| one.memory_limit,
    );
    let help = "Records that the store, or Kafka, deleted before they were sent.";
    export(text, view, "export_expired_total", "counter", help, |one| {
        one.expired
    });
    let help = "Hops dropped because the system accepted them more slowly than they arrived.";
    export(text, view, "export_shed_total", "counter", help, |one| one.shed);
    let help = "Times that the store's count of records, or a partition, was reset; the number of records lost then is unknown.";
    export(text, view, "export_restarted_total", "counter", help, |one| {
        one.restarted
    });
    export(
        text,
        view,
        "export_repeated_total",
        "counter",
        "Records that were sent again.",
        |one| one.repeated,
    );
    export(
        text,
        view,
        "export_requests_total",
        "counter",
        "Requests sent.",
        |one| one.requests,
    );
    let help = "Requests that failed in a way that may pass.";
    export(
        text,
        view,
        "export_requests_failed_total",
        "counter",
        help,
        |one| one.failed,
    );
    let help = "Requests that were refused for their content.";
    export(
        text,
        view,
        "export_requests_refused_total",
        "counter",
        help,
        |one| one.refused,
    );
    let help = "Requests that were refused for their credentials.";
    export(
        text,
        view,
        "export_requests_unauthorised_total",
        "counter",
        help,
        |one| one.unauthorised,
    );
    export(
        text,
        view,
        "export_requests_timed_out_total",
        "counter",
        "Requests without an answer in time.",
        |one| one.timed_out,
    );
    let help = "Times that the cursor could not be saved.";
    export(text, view, "export_unsaved_total", "counter", help, |one| {
        one.unsaved
    });
    let help = "When a request was last answered for each of its records, seconds since the Unix epoch.";
    text.metric("export_last_success_timestamp_seconds", "gauge", help);
    for export in view.iter().flat_map(|view| &view.exports) {
        export.last_success.iter().for_each(|at| {
            text.sample(
                "export_last_success_timestamp_seconds",
                &labels(export),
                at / 1_000_000_000,
            );
        });
    }
}

fn export(
    text: &mut Text,
    view: Option<&ExportsView>,
    name: &str,
    kind: &str,
    help: &str,
    value: fn(&ExportView) -> u64,
) {
    text.metric(name, kind, help);
    for export in view.iter().flat_map(|view| &view.exports) {
        text.sample(name, &labels(export), value(export));
    }
}
