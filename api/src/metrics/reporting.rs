//! Metrics of DTA reporters. HELP and TYPE lines are always present, samples only with `[switch.dta]` or `[reporter]`.

use std::fmt::Display;

use super::Text;
use dta_role::reporter::view::ReporterView;
use switch_role::role::{DtaView, MappingView};
use view::ReporterCollector;

/// DTA reports of the switch of this process.
pub(super) fn reporting(text: &mut Text, view: Option<&DtaView>) {
    let help = "DTA reports of the switch, without retransmissions.";
    text.role(view, "switch_dta_reports_total", "counter", help, |view| {
        view.reports
    });
    text.role(
        view,
        "switch_dta_datagrams_total",
        "counter",
        "Datagrams with DTA reports sent.",
        |view| view.sent,
    );
    let help = "Datagrams with DTA reports that could not be sent.";
    text.role(view, "switch_dta_unsent_total", "counter", help, |view| {
        view.unsent
    });
    let help =
        "Reports lost because the manager sent a map with fewer or other collectors while they were pending.";
    text.role(view, "switch_dta_abandoned_total", "counter", help, |view| {
        view.abandoned
    });
    text.role(
        view,
        "switch_dta_controls_total",
        "counter",
        "Control messages of translators processed.",
        |view| view.controls,
    );
    let help = "Control messages refused: malformed, for another reporter, or from an unknown peer.";
    text.role(
        view,
        "switch_dta_controls_refused_total",
        "counter",
        help,
        |view| view.controls_refused,
    );
    to_collectors(text, "switch_dta", view.map_or(&[], |view| &view.collectors));
    mapped(text, view.map_or(&[], |view| &view.mappings));
    let help = "Operations of a table of [switch.dta], by operation.";
    let tables = view.iter().flat_map(|view| &view.tables);
    let tables = tables.map(|table| {
        let counts = [
            ("counted", table.counted),
            ("without_key", table.without_key),
            ("records", table.records),
            ("evicted", table.evicted),
            ("periods", table.periods),
        ];
        (table.name.clone(), counts.to_vec())
    });
    by_what(text, ("switch_dta_table_total", "table", help), tables);
    let help = "Operations of a sketch of [switch.dta], by operation.";
    let sketches = view.iter().flat_map(|view| &view.sketches);
    let sketches = sketches.map(|sketch| {
        let counts = [
            ("counted", sketch.counted),
            ("epochs", sketch.epochs),
            ("columns", sketch.columns),
            ("retransmitted", sketch.retransmitted),
            ("expired", sketch.expired),
            ("suppressed", sketch.suppressed),
            ("nacks", sketch.nacks),
            ("nacks_ignored", sketch.nacks_ignored),
        ];
        (sketch.name.clone(), counts.to_vec())
    });
    by_what(text, ("switch_dta_sketch_total", "sketch", help), sketches);
}

/// The state of the path to each collector; names begin with `prefix`.
fn to_collectors(text: &mut Text, prefix: &str, collectors: &[ReporterCollector]) {
    let help = "Congestion level reported by a collector's translator, 0 to 3.";
    to_collector(
        text,
        prefix,
        collectors,
        ("congestion_level", "gauge", help),
        |to| to.congestion_level.into(),
    );
    to_collector(
        text,
        prefix,
        collectors,
        ("essential_total", "counter", "Essential reports."),
        |to| to.essential,
    );
    let help = "Essential reports in the retransmit buffer.";
    to_collector(
        text,
        prefix,
        collectors,
        ("retransmit_buffered", "gauge", help),
        |to| to.retransmit_buffered.into(),
    );
    let help = "Essential reports overwritten in the retransmit buffer before they were acknowledged.";
    to_collector(
        text,
        prefix,
        collectors,
        ("overwritten_total", "counter", help),
        |to| to.overwritten,
    );
    to_collector(
        text,
        prefix,
        collectors,
        ("retransmitted_total", "counter", "Reports retransmitted."),
        |to| to.retransmitted,
    );
    to_collector(
        text,
        prefix,
        collectors,
        ("nacks_total", "counter", "NACKs received from a translator."),
        |to| to.nacks,
    );
    let help = "NACKs ignored: repeated, beyond the limit of retransmissions, or about reports never sent.";
    to_collector(
        text,
        prefix,
        collectors,
        ("nacks_ignored_total", "counter", help),
        |to| to.nacks_ignored,
    );
    let help = "Reports requested by a NACK and no longer in the retransmit buffer.";
    to_collector(
        text,
        prefix,
        collectors,
        ("unavailable_total", "counter", help),
        |to| to.unavailable,
    );
    let help = "Reports refused by a translator: no such store or list, or malformed.";
    to_collector(
        text,
        prefix,
        collectors,
        ("refused_total", "counter", help),
        |to| to.refused,
    );
    let help = "Reports that a translator dropped because of congestion.";
    to_collector(
        text,
        prefix,
        collectors,
        ("translator_drops_total", "counter", help),
        |to| to.translator_drops,
    );
}

/// `metric`: its name after `prefix`, kind and help.
fn to_collector(
    text: &mut Text,
    prefix: &str,
    collectors: &[ReporterCollector],
    metric: (&str, &str, &str),
    value: fn(&ReporterCollector) -> u64,
) {
    let (name, kind, help) = metric;
    let name = format!("{prefix}_{name}");
    text.metric(&name, kind, help);
    for to in collectors {
        text.sample(&name, &[("collector", &to.address as &dyn Display)], value(to));
    }
}

/// DTA reports of this machine's programs; samples only with `[reporter]`.
pub(super) fn host(text: &mut Text, view: Option<&ReporterView>) {
    let help = "Datagrams of programs: = reports + suppressed + queue_full + refused.";
    text.role(view, "reporter_received_total", "counter", help, |view| {
        view.received
    });
    text.role(
        view,
        "reporter_reports_total",
        "counter",
        "DTA reports, without retransmissions.",
        |view| view.reports,
    );
    text.role(
        view,
        "reporter_suppressed_total",
        "counter",
        "Reports suppressed because of congestion.",
        |view| view.suppressed,
    );
    text.role(
        view,
        "reporter_queue_full_total",
        "counter",
        "Reports dropped because the send queue was full.",
        |view| view.queue_full,
    );
    text.role(
        view,
        "reporter_datagrams_total",
        "counter",
        "Datagrams with DTA reports sent.",
        |view| view.sent,
    );
    text.role(
        view,
        "reporter_unsent_total",
        "counter",
        "Datagrams with DTA reports that could not be sent.",
        |view| view.unsent,
    );
    text.role(
        view,
        "reporter_controls_total",
        "counter",
        "Control messages of translators processed.",
        |view| view.controls,
    );
    let help = "Control messages refused: malformed, for another reporter, or from an unknown peer.";
    text.role(view, "reporter_controls_refused_total", "counter", help, |view| {
        view.controls_refused
    });
    let help = "Datagrams of programs that are not reports, by reason.";
    text.metric("reporter_lines_refused_total", "counter", help);
    for (reason, count) in view.iter().flat_map(|view| &view.refused) {
        text.sample("reporter_lines_refused_total", &[("reason", reason)], count);
    }
    to_collectors(text, "reporter", view.map_or(&[], |view| &view.collectors));
}

/// Outcomes of the reports of each mapping.
fn mapped(text: &mut Text, mappings: &[MappingView]) {
    let operations = "switch_dta_operations_total";
    let help = "Operations of a mapping of [switch.dta]: = pending + outcomes.";
    text.metric(operations, "counter", help);
    mappings
        .iter()
        .for_each(|mapping| text.sample(operations, &[("mapping", &mapping.name)], mapping.operations));
    let pending = "switch_dta_pending";
    text.metric(
        pending,
        "gauge",
        "Entries of a mapping that wait for a full batch.",
    );
    mappings
        .iter()
        .for_each(|mapping| text.sample(pending, &[("mapping", &mapping.name)], mapping.pending));
    let name = "switch_dta_outcome_total";
    let help = "Operations of a mapping, by outcome.";
    text.metric(name, "counter", help);
    for mapping in mappings {
        for (outcome, count) in [
            ("sent", mapping.sent),
            ("suppressed", mapping.suppressed),
            ("missing_value", mapping.missing_value),
            ("wrong_size", mapping.wrong_size),
            ("queue_full", mapping.queue_full),
        ] {
            text.sample(name, &[("mapping", &mapping.name), ("outcome", &outcome)], count);
        }
    }
}

/// Counts by a name and a word.
fn by_what(
    text: &mut Text,
    (name, label, help): (&str, &str, &str),
    of: impl Iterator<Item = (String, Vec<(&'static str, u64)>)>,
) {
    text.metric(name, "counter", help);
    for (whose, counts) in of {
        for (what, count) in counts {
            text.sample(name, &[(label, &whose), ("what", &what)], count);
        }
    }
}
