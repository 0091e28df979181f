//! Metrics of the flight recorder. HELP and TYPE lines are always present, samples only with `[flight_recorder]`.

use super::Text;
use collect_role::flight_recorder::FlightCounts;

/// Metrics of the flight recorder.
pub(super) fn recording(text: &mut Text, counts: Option<FlightCounts>) {
    let counts = counts.as_ref();
    text.role(
        counts,
        "flight_recorder_memory_bytes",
        "gauge",
        "Bytes that the flight recorder may take for datagrams; it takes them as they arrive.",
        |one| one.memory,
    );
    let help = "Reports that the flight recorder passed on to the store.";
    text.role(counts, "flight_recorder_reports_total", "counter", help, |one| {
        one.reports
    });
    let help = "Events that have a recording. An event that could start one is in this count or in one of the next five.";
    text.role(
        counts,
        "flight_recorder_events_recorded_total",
        "counter",
        help,
        |one| one.stats.recorded,
    );
    let help = "Events whose subject was in the recording already.";
    text.role(
        counts,
        "flight_recorder_events_repeated_total",
        "counter",
        help,
        |one| one.stats.repeated,
    );
    let help = "Events of more subjects than a recording has.";
    text.role(
        counts,
        "flight_recorder_events_subjects_full_total",
        "counter",
        help,
        |one| one.stats.subjects_full,
    );
    let help = "Events beyond the recordings of a minute.";
    text.role(
        counts,
        "flight_recorder_events_over_budget_total",
        "counter",
        help,
        |one| one.stats.over_budget,
    );
    let help = "Events that arrived after their recording had ended.";
    text.role(
        counts,
        "flight_recorder_events_late_total",
        "counter",
        help,
        |one| one.stats.late,
    );
    let help = "Events that the flight recorder was too busy to look at.";
    text.role(
        counts,
        "flight_recorder_events_shed_total",
        "counter",
        help,
        |one| one.shed,
    );
}
