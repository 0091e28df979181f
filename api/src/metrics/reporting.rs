//! Metrics of DTA reporters. HELP and TYPE lines are always present, samples only with `[switch.dta]` or `[reporter]`.

use std::fmt::Display;

use super::Text;
use dta_role::reporter::view::ReporterView;
use switch_role::role::{DtaView, MappingView, SketchView, TableView};
use view::ReporterCollector;

/// DTA reports of the switch of this process.
pub(super) fn reporting(text: &mut Text, view: Option<&DtaView>) {
    let mut one = |name: &str, help: &str, value: fn(&DtaView) -> u64| {
        text.metric(name, "counter", help);
        view.iter().for_each(|view| text.sample(name, &[], value(view)));
    };
    let help = "DTA reports of the switch, without retransmissions.";
    one("switch_dta_reports_total", help, |view| view.reports);
    one(
        "switch_dta_datagrams_total",
        "Datagrams with DTA reports sent.",
        |view| view.sent,
    );
    let help = "Datagrams with DTA reports that could not be sent.";
    one("switch_dta_unsent_total", help, |view| view.unsent);
    let help =
        "Reports lost because the manager sent a map with fewer or other collectors while they were pending.";
    one("switch_dta_abandoned_total", help, |view| view.abandoned);
    one(
        "switch_dta_controls_total",
        "Control messages of translators processed.",
        |view| view.controls,
    );
    let help = "Control messages refused: malformed, for another reporter, or from an unknown peer.";
    one("switch_dta_controls_refused_total", help, |view| {
        view.controls_refused
    });
    to_collectors(text, "switch_dta", view.map_or(&[], |view| &view.collectors));
    mapped(text, view.map_or(&[], |view| &view.mappings));
    let help = "Operations of a table of [switch.dta], by operation.";
    let of = |table: &TableView| {
        let counts = [
            ("counted", table.counted),
            ("without_key", table.without_key),
            ("records", table.records),
            ("evicted", table.evicted),
            ("periods", table.periods),
        ];
        (table.name.clone(), counts.to_vec())
    };
    let tables = view.iter().flat_map(|view| &view.tables).map(of);
    by_what(text, ("switch_dta_table_total", "table", help), tables);
    let help = "Operations of a sketch of [switch.dta], by operation.";
    let of = |sketch: &SketchView| {
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
    };
    let sketches = view.iter().flat_map(|view| &view.sketches).map(of);
    by_what(text, ("switch_dta_sketch_total", "sketch", help), sketches);
}

/// The state of the path to each collector; names begin with `prefix`.
fn to_collectors(text: &mut Text, prefix: &str, collectors: &[ReporterCollector]) {
    let mut each = |(name, kind, help): (&str, &str, &str), value: fn(&ReporterCollector) -> u64| {
        let name = format!("{prefix}_{name}");
        text.metric(&name, kind, help);
        for to in collectors {
            text.sample(&name, &[("collector", &to.address as &dyn Display)], value(to));
        }
    };
    let help = "Congestion level reported by a collector's translator, 0 to 3.";
    each(("congestion_level", "gauge", help), |to| {
        to.congestion_level.into()
    });
    each(("essential_total", "counter", "Essential reports."), |to| {
        to.essential
    });
    let help = "Essential reports in the retransmit buffer.";
    each(("retransmit_buffered", "gauge", help), |to| {
        to.retransmit_buffered.into()
    });
    let help = "Essential reports overwritten in the retransmit buffer before they were acknowledged.";
    each(("overwritten_total", "counter", help), |to| to.overwritten);
    each(
        ("retransmitted_total", "counter", "Reports retransmitted."),
        |to| to.retransmitted,
    );
    each(
        ("nacks_total", "counter", "NACKs received from a translator."),
        |to| to.nacks,
    );
    let help = "NACKs ignored: repeated, beyond the limit of retransmissions, or about reports never sent.";
    each(("nacks_ignored_total", "counter", help), |to| to.nacks_ignored);
    let help = "Reports requested by a NACK and no longer in the retransmit buffer.";
    each(("unavailable_total", "counter", help), |to| to.unavailable);
    let help = "Reports refused by a translator: no such store or list, or malformed.";
    each(("refused_total", "counter", help), |to| to.refused);
    let help = "Reports that a translator dropped because of congestion.";
    each(("translator_drops_total", "counter", help), |to| {
        to.translator_drops
    });
}

/// DTA reports of this machine's programs; samples only with `[reporter]`.
pub(super) fn host(text: &mut Text, view: Option<&ReporterView>) {
    let mut one = |name: &str, help: &str, value: fn(&ReporterView) -> u64| {
        text.metric(name, "counter", help);
        view.iter().for_each(|view| text.sample(name, &[], value(view)));
    };
    let help = "Datagrams of programs: = reports + suppressed + queue_full + refused.";
    one("reporter_received_total", help, |view| view.received);
    one(
        "reporter_reports_total",
        "DTA reports, without retransmissions.",
        |view| view.reports,
    );
    one(
        "reporter_suppressed_total",
        "Reports suppressed because of congestion.",
        |view| view.suppressed,
    );
    one(
        "reporter_queue_full_total",
        "Reports dropped because the send queue was full.",
        |view| view.queue_full,
    );
    one(
        "reporter_datagrams_total",
        "Datagrams with DTA reports sent.",
        |view| view.sent,
    );
    one(
        "reporter_unsent_total",
        "Datagrams with DTA reports that could not be sent.",
        |view| view.unsent,
    );
    one(
        "reporter_controls_total",
        "Control messages of translators processed.",
        |view| view.controls,
    );
    let help = "Control messages refused: malformed, for another reporter, or from an unknown peer.";
    one("reporter_controls_refused_total", help, |view| {
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
