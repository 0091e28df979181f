//! Metrics of exports and the outlet. HELP and TYPE lines are always written, samples only for configured ones.

use std::fmt::Display;

use super::Text;
use ::export_role::role::view::{ExportView, ExportsView};

/// Returns the labels of an export: export, stream and, for an outlet, partition.
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

/// Writes the metrics of each stream of each export.
pub(super) fn exporting(text: &mut Text, view: Option<&ExportsView>) {
    metrics!(text [for view in view; for one in &view.exports] (labels(one)) {
        "export_read_total" => one.read,
            "Records read from the store, or from Kafka, for an export: delivered + left_out + rejected + held.";
        "export_delivered_total" => one.delivered, "Records that the server has stored.";
        "export_left_out_total" => one.left_out,
            "Records that do not apply to this system, such as events that are not alerts.";
        "export_silenced_total" => one.silenced, "Silenced alerts among these.";
        "export_rejected_total" => one.rejected, "Records permanently rejected by the server.";
        "export_unwritten_total" => one.unwritten,
            "Rejected records that could not be written to the file of rejected records.";
        "export_held" => one.held, "Records in memory, neither delivered nor rejected yet.";
        "export_waiting" => one.waiting, "Committed records, or messages in Kafka, that are not settled yet.";
        "export_lag_seconds" =>
            one.oldest.map_or(0, |ts| nic::time::now().saturating_sub(ts) / 1_000_000_000),
            "Age of the oldest record in memory, in seconds: how far the export lags; 0 if there is none.";
        "export_memory_bytes" => one.memory, "Bytes of batches, requests and hops in memory.";
        "export_memory_limit_bytes" => one.memory_limit, "Bytes that an export may hold.";
        "export_expired_total" => one.expired,
            "Records that the store, or Kafka, deleted before they were sent.";
        "export_shed_total" => one.shed,
            "Hops dropped because the system accepted them more slowly than they arrived.";
        "export_restarted_total" => one.restarted,
            "Times that the store's count of records, or a partition, was reset; the number of records lost then is unknown.";
        "export_repeated_total" => one.repeated, "Records that were sent again.";
        "export_requests_total" => one.requests, "Requests sent.";
        "export_requests_failed_total" => one.failed, "Requests that failed in a way that may pass.";
        "export_requests_refused_total" => one.refused, "Requests that were refused for their content.";
        "export_requests_unauthorised_total" => one.unauthorised,
            "Requests that were refused for their credentials.";
        "export_requests_timed_out_total" => one.timed_out, "Requests without an answer in time.";
        "export_unsaved_total" => one.unsaved, "Times that the cursor could not be saved.";
    });
    metrics!(text [for view in view; for one in &view.exports; for at in one.last_success] (labels(one)) {
        "export_last_success_timestamp_seconds" => at / 1_000_000_000,
            "When a request was last answered for each of its records, seconds since the Unix epoch.";
    });
}
