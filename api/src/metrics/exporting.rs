//! Metrics of exports and the outlet. HELP and TYPE lines are always written, samples only for configured ones.

use std::fmt::Display;

use super::Text;
use ::export_role::role::view::{ExportView, ExportsView};

/// Returns the labels of an export: export, stream and, for an outlet, partition.
fn export_labels(export: &ExportView) -> Vec<(&'static str, &dyn Display)> {
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

/// Writes the metrics of each stream of each export.
pub(super) fn write_exports(text: &mut Text, view: Option<&ExportsView>) {
    metrics!(text [for view in view; for export in &view.exports] (export_labels(export)) {
        "export_read_total" => export.read,
            "Records read from the store, or from Kafka, for an export: delivered + left_out + rejected + held.";
        "export_delivered_total" => export.delivered, "Records that the server has stored.";
        "export_left_out_total" => export.left_out,
            "Records that do not apply to this system, such as events that are not alerts.";
        "export_silenced_total" => export.silenced, "Silenced alerts among these.";
        "export_rejected_total" => export.rejected, "Records permanently rejected by the server.";
        "export_unwritten_total" => export.unwritten,
            "Rejected records that could not be written to the file of rejected records.";
        "export_held" => export.held, "Records in memory, neither delivered nor rejected yet.";
        "export_waiting" => export.waiting, "Committed records, or messages in Kafka, that are not settled yet.";
        "export_lag_seconds" =>
            export.oldest.map_or(0, |ts| nic::time::now().saturating_sub(ts) / 1_000_000_000),
            "Age of the oldest record in memory, in seconds: how far the export lags; 0 if there is none.";
        "export_memory_bytes" => export.memory, "Bytes of batches, requests and hops in memory.";
        "export_memory_limit_bytes" => export.memory_limit, "Bytes that an export may hold.";
        "export_expired_total" => export.expired,
            "Records that the store, or Kafka, deleted before they were sent.";
        "export_shed_total" => export.shed,
            "Hops dropped because the system accepted them more slowly than they arrived.";
        "export_restarted_total" => export.restarted,
            "Times that the store's count of records, or a partition, was reset; the number of records lost then is unknown.";
        "export_repeated_total" => export.repeated, "Records that were sent again.";
        "export_requests_total" => export.requests, "Requests sent.";
        "export_requests_failed_total" => export.failed, "Requests that failed in a way that may pass.";
        "export_requests_refused_total" => export.refused, "Requests that were refused for their content.";
        "export_requests_unauthorised_total" => export.unauthorised,
            "Requests that were refused for their credentials.";
        "export_requests_timed_out_total" => export.timed_out, "Requests without an answer in time.";
        "export_unsaved_total" => export.unsaved, "Times that the cursor could not be saved.";
    });
    metrics!(text [for view in view; for export in &view.exports; for at in export.last_success] (export_labels(export)) {
        "export_last_success_timestamp_seconds" => at / 1_000_000_000,
            "When a request was last answered for each of its records, seconds since the Unix epoch.";
    });
}
