//! Metrics of the flight recorder. HELP and TYPE lines are always written, samples only with `[flight_recorder]`.

use super::Text;
use collect_role::flight_recorder::FlightCounts;

/// Writes the metrics of the flight recorder.
pub(super) fn write_flight_recorder(text: &mut Text, counts: Option<FlightCounts>) {
    metrics!(text [for counts in &counts] [] {
        "flight_recorder_memory_bytes" => counts.memory,
            "Bytes that the flight recorder may take for datagrams; it takes them as they arrive.";
        "flight_recorder_reports_total" => counts.reports,
            "Reports that the flight recorder passed on to the store.";
        "flight_recorder_events_recorded_total" => counts.stats.recorded,
            "Events that have a recording. An event that could start one is in this count or in one of the next five.";
        "flight_recorder_events_repeated_total" => counts.stats.repeated,
            "Events whose subject was in the recording already.";
        "flight_recorder_events_subjects_full_total" => counts.stats.subjects_full,
            "Events of more subjects than a recording has.";
        "flight_recorder_events_over_budget_total" => counts.stats.over_budget,
            "Events beyond the recordings of a minute.";
        "flight_recorder_events_late_total" => counts.stats.late,
            "Events that arrived after their recording had ended.";
        "flight_recorder_events_shed_total" => counts.shed,
            "Events that the flight recorder was too busy to look at.";
    });
}
