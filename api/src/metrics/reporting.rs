//! Metrics of DTA reporters. HELP and TYPE lines are always written, samples only with `[switch.dta]` or `[reporter]`.

use super::Text;
use dta_role::reporter::view::ReporterView;
use switch_role::role::DtaView;
use view::ReporterCollector;

/// Writes the DTA metrics of the switch role.
pub(super) fn write_switch_dta(text: &mut Text, view: Option<&DtaView>) {
    // The form of `metrics!`: text [loops, outer first] [labels] { name => value, help; … }.
    metrics!(text [for view in view] [] {
        "switch_dta_reports_total" => view.reports, "DTA reports of the switch, without retransmissions.";
        "switch_dta_datagrams_total" => view.sent, "Datagrams with DTA reports sent.";
        "switch_dta_unsent_total" => view.unsent, "Datagrams with DTA reports that could not be sent.";
        "switch_dta_abandoned_total" => view.abandoned,
            "Reports lost because the manager sent a map with fewer or other collectors while they were pending.";
        "switch_dta_controls_total" => view.controls, "Control messages of translators processed.";
        "switch_dta_controls_refused_total" => view.controls_refused,
            "Control messages refused: malformed, for another reporter, or from an unknown peer.";
    });
    collector_paths(text, "switch_dta", view.map_or(&[], |view| &view.collectors));
    metrics!(text [for view in view; for mapping in &view.mappings] ["mapping" = mapping.name] {
        "switch_dta_operations_total" => mapping.operations,
            "Operations of a mapping of [switch.dta]; equals pending plus all outcomes.";
        "switch_dta_pending" => mapping.pending, "Entries of a mapping that wait for a full batch.";
    });
    metrics!(text [
        for view in view;
        for mapping in &view.mappings;
        for (outcome, count) in [
            ("sent", mapping.sent),
            ("suppressed", mapping.suppressed),
            ("missing_value", mapping.missing_value),
            ("wrong_size", mapping.wrong_size),
            ("queue_full", mapping.queue_full),
        ]
    ] ["mapping" = mapping.name, "outcome" = outcome] {
        "switch_dta_outcome_total" => count, "Operations of a mapping, by outcome.";
    });
    metrics!(text [
        for view in view;
        for table in &view.tables;
        for (what, count) in [
            ("counted", table.counted),
            ("without_key", table.without_key),
            ("records", table.records),
            ("evicted", table.evicted),
            ("periods", table.periods),
        ]
    ] ["table" = table.name, "what" = what] {
        "switch_dta_table_total" => count, "Operations of a table of [switch.dta], by operation.";
    });
    metrics!(text [
        for view in view;
        for sketch in &view.sketches;
        for (what, count) in [
            ("counted", sketch.counted),
            ("epochs", sketch.epochs),
            ("columns", sketch.columns),
            ("retransmitted", sketch.retransmitted),
            ("expired", sketch.expired),
            ("suppressed", sketch.suppressed),
            ("nacks", sketch.nacks),
            ("nacks_ignored", sketch.nacks_ignored),
        ]
    ] ["sketch" = sketch.name, "what" = what] {
        "switch_dta_sketch_total" => count, "Operations of a sketch of [switch.dta], by operation.";
    });
}

/// Writes the state of reports to each collector; metric names begin with `prefix`.
fn collector_paths(text: &mut Text, prefix: &str, collectors: &[ReporterCollector]) {
    metrics!(text [for collector in collectors] ["collector" = collector.address] {
        format!("{prefix}_congestion_level") => collector.congestion_level,
            "Congestion level reported by a collector's translator, 0 to 3.";
        format!("{prefix}_essential_total") => collector.essential, "Essential reports sent.";
        format!("{prefix}_retransmit_buffered") => collector.retransmit_buffered,
            "Essential reports in the retransmit buffer.";
        format!("{prefix}_overwritten_total") => collector.overwritten,
            "Essential reports overwritten in the retransmit buffer before they were acknowledged.";
        format!("{prefix}_retransmitted_total") => collector.retransmitted, "Reports retransmitted.";
        format!("{prefix}_nacks_total") => collector.nacks, "NACKs received from a translator.";
        format!("{prefix}_nacks_ignored_total") => collector.nacks_ignored,
            "NACKs ignored: repeated, beyond the limit of retransmissions, or about reports never sent.";
        format!("{prefix}_unavailable_total") => collector.unavailable,
            "Reports requested by a NACK and no longer in the retransmit buffer.";
        format!("{prefix}_refused_total") => collector.refused,
            "Reports refused by a translator: no such store or list, or malformed.";
        format!("{prefix}_translator_drops_total") => collector.translator_drops,
            "Reports that a translator dropped because of congestion.";
    });
}

/// Writes the metrics of the reporter for this machine's programs.
pub(super) fn write_reporter(text: &mut Text, view: Option<&ReporterView>) {
    metrics!(text [for view in view] [] {
        "reporter_received_total" => view.received,
            "Datagrams of programs; equals reports + suppressed + queue_full + refused.";
        "reporter_reports_total" => view.reports, "DTA reports, without retransmissions.";
        "reporter_suppressed_total" => view.suppressed, "Reports suppressed because of congestion.";
        "reporter_queue_full_total" => view.queue_full, "Reports dropped because the send queue was full.";
        "reporter_datagrams_total" => view.sent, "Datagrams with DTA reports sent.";
        "reporter_unsent_total" => view.unsent, "Datagrams with DTA reports that could not be sent.";
        "reporter_controls_total" => view.controls, "Control messages of translators processed.";
        "reporter_controls_refused_total" => view.controls_refused,
            "Control messages refused: malformed, for another reporter, or from an unknown peer.";
    });
    metrics!(text [for view in view; for (reason, count) in &view.refused] ["reason" = reason] {
        "reporter_lines_refused_total" => count, "Datagrams of programs that are not reports, by reason.";
    });
    collector_paths(text, "reporter", view.map_or(&[], |view| &view.collectors));
}
