//! Text output of `hopwise replay`: paragraphs and tables for clocks, paths, flows, nodes, drops, events and sources.

use collector::event::{Basis, Kind};
use detect::Metric;
use wire::{FlowKey, Refusal};

use super::Summary;
use super::findings::{Extremes, node_id};
use super::summary::{
    Anomaly, anomaly, evicted_sources, refusal_count, sorted_streams, source_text, version_text,
};
use collect_role::capture::UnknownClock;
use collect_role::replay::Difference;
use terminal::{Align, Table, units};
use view::Names;

/// Formats the whole summary; empty paragraphs are left out.
pub(super) fn write(summary: &Summary<'_>) -> String {
    let paragraphs = [
        heading(summary) + &clocks(summary),
        sf_sets(summary),
        paths(summary),
        flows(summary),
        nodes(summary),
        drops(summary),
        events(summary),
    ];
    let tail = [sources(summary), sequence(summary), stored(summary)];
    let present: Vec<String> = paragraphs
        .into_iter()
        .chain(tail)
        .filter(|text| !text.is_empty())
        .collect();
    present.join("\n")
}

/// Formats the differences between the clocks of capture interfaces, one per line.
fn clocks(summary: &Summary<'_>) -> String {
    let mut out = String::new();
    for Difference {
        file,
        interfaces: [reference, other],
        ahead,
    } in summary.differences
    {
        out.push_str(&format!(
            "{}: the clocks of interfaces {reference} and {other} differ by {}; times are those of interface {reference}\n",
            file.display(),
            units::nanos(ahead.unsigned_abs())
        ));
    }
    if let Some(sentence) = unknown_clocks(summary.unknown_clocks) {
        out.push_str(&format!("{sentence}\n"));
    }
    out
}

/// Returns a sentence about interfaces whose clocks could not be compared, if there are any.
pub(super) fn unknown_clocks(clocks: &[UnknownClock]) -> Option<String> {
    let UnknownClock { file, interface } = clocks.first()?;
    let others = match clocks.len() {
        1 => String::new(),
        count => format!(", and of {} more,", units::count(count as u64 - 1)),
    };
    Some(format!(
        "{}: the clock of interface {interface}{others} cannot be compared with those of the other interfaces; times are used as they are",
        file.display()
    ))
}

fn heading(summary: &Summary<'_>) -> String {
    let Summary {
        account,
        collector,
        findings,
        elapsed,
        ..
    } = summary;
    let stats = collector.stats();
    let rate = units::short(stats.reports as f64 / elapsed.as_secs_f64().max(1e-9));
    let mut out = format!(
        "{}, {}, {} of {} in {:.2} s ({rate} reports/s)\n",
        units::counted(account.frames, "frame"),
        units::counted(account.datagrams, "datagram"),
        units::counted(stats.reports, "report"),
        units::counted(findings.flows_total(), "flow"),
        elapsed.as_secs_f64()
    );
    let refused: Vec<String> = Refusal::ALL
        .iter()
        .map(|refusal| (refusal.name(), refusal_count(summary, *refusal, &stats)))
        .filter(|(_, count)| *count > 0)
        .map(|(name, count)| format!("{name}: {}", units::count(count)))
        .collect();
    if !refused.is_empty() {
        out.push_str(&format!("refused: {}\n", refused.join(", ")));
    }
    for (label, counts) in [
        (
            "INT or IOAM that cannot be read, left out of reports",
            &stats.int_refused,
        ),
        (
            "reports about tunnels whose contents cannot be read",
            &stats.tunnel_refused,
        ),
    ] {
        let counted: Vec<String> = Refusal::ALL
            .iter()
            .map(|refusal| (refusal.name(), counts[refusal.index()]))
            .filter(|(_, count)| *count > 0)
            .map(|(name, count)| format!("{name}: {}", units::count(count)))
            .collect();
        if !counted.is_empty() {
            out.push_str(&format!("{label}: {}\n", counted.join(", ")));
        }
    }
    if account.skipped_total() > 0 {
        let skipped = account
            .skipped
            .iter()
            .map(|(name, count)| format!("{name}: {}", units::count(*count)));
        out.push_str(&format!(
            "skipped, not telemetry: {}\n",
            skipped.collect::<Vec<_>>().join(", ")
        ));
    }
    if stats.unadmitted_total() > 0 {
        let count = units::count(stats.unadmitted_total());
        out.push_str(&format!(
            "the flow table was full for {count} reports; raise `max_flows` in [collector]\n"
        ));
    }
    if let [first, .., last] = summary.overlapping {
        out.push_str(&format!(
            "{} overlap in time ({} to {}): merged by time\n",
            units::counted(summary.overlapping.len() as u64, "file"),
            first.display(),
            last.display()
        ));
    }
    if summary.ignored_times.ahead > 0 {
        out.push_str(&format!(
            "ignored times, more than 10 s ahead and not confirmed by the next one: {}\n",
            units::count(summary.ignored_times.ahead)
        ));
    }
    if summary.ignored_times.behind > 0 {
        out.push_str(&format!(
            "ignored times, more than 2 s behind the latest one: {}\n",
            units::count(summary.ignored_times.behind)
        ));
    }
    if summary.ignored_times.absent > 0 {
        out.push_str(&format!(
            "reports without a time, counted with those before them: {}\n",
            units::count(summary.ignored_times.absent)
        ));
    }
    if summary.has_unconfirmed_end {
        out.push_str(
            "the last report is more than 10 s later than all others, after a pause or with a wrong time: it counts with those before it\n",
        );
    }
    if stats.implausible_latencies > 0 {
        let count = units::count(stats.implausible_latencies);
        out.push_str(&format!("implausible hop latencies, not used: {count}\n"));
    }
    out
}

/// Formats how many SF-INT records were joined into complete sets, and the reasons for incomplete ones.
fn sf_sets(summary: &Summary<'_>) -> String {
    let sf = summary.collector.stats().sf;
    if sf.records == 0 {
        return String::new();
    }
    let mut out = format!(
        "SF-INT: {} of {} in {}, {} single\n",
        units::counted(sf.complete.records, "record"),
        units::count(sf.records),
        units::counted(sf.complete.sets, "complete set"),
        units::count(sf.samples()),
    );
    let reasons = collector::stats::Reason::ALL.iter().zip(&sf.partial);
    let sets: Vec<String> = reasons
        .filter(|(_, count)| count.sets > 0)
        .map(|(reason, count)| format!("{}: {}", reason.name(), units::count(count.sets)))
        .collect();
    if !sets.is_empty() {
        out.push_str(&format!("incomplete sets: {}\n", sets.join(", ")));
    }
    out
}

fn path(names: &Names, nodes: &[u32]) -> String {
    let node = |node: &u32| node_id(*node).map_or("?".to_string(), |node| names.node(node));
    if nodes.is_empty() {
        "none reported".into()
    } else {
        nodes.iter().map(node).collect::<Vec<_>>().join(" > ")
    }
}

fn paths(summary: &Summary<'_>) -> String {
    use Align::{Left, Right};
    let paths = summary.findings.paths();
    let mut table = Table::new([("FLOWS", Right), ("REPORTS", Right), ("PATH", Left)]);
    for usage in paths.iter().take(summary.limit) {
        table.row([
            units::count(usage.flows),
            units::count(usage.reports),
            path(&summary.names, usage.nodes),
        ]);
    }
    render_table(&table, paths.len(), summary.limit, "paths")
}

fn flows(summary: &Summary<'_>) -> String {
    use Align::{Left, Right};
    let mut table = Table::new([
        ("REPORTS", Right),
        ("LATENCY", Right),
        ("BASIS", Left),
        ("FLOW", Left),
        ("PATH", Left),
    ]);
    for flow in summary.findings.busiest(summary.limit) {
        let row = &flow.row;
        let basis = if row.flow_latency.is_some() && row.basis != Basis::Measured {
            row.basis.name()
        } else {
            ""
        };
        table.row([
            units::count(row.reports),
            row.flow_latency.map_or("-".into(), units::nanos),
            basis.to_string(),
            flow_text(&summary.names, &row.flow),
            path(&summary.names, &flow.path),
        ]);
    }
    render_table(
        &table,
        summary.findings.flows.len(),
        summary.limit,
        "flows; --limit shows more",
    )
}

/// Formats a flow with the names of its hosts, if known.
fn flow_text(names: &Names, flow: &FlowKey) -> String {
    let text = flow.to_string();
    let hosts = || names.hosts(&flow.src().to_string(), &flow.dst().to_string());
    match flow.known_id().map_or_else(hosts, |_| None) {
        Some(hosts) => format!("{text} ({hosts})"),
        None => text,
    }
}

/// Renders a table and the number of rows that were left out.
fn render_table(table: &Table, total: usize, limit: usize, noun: &str) -> String {
    if table.is_empty() {
        return String::new();
    }
    let mut out = table.render();
    if total > limit {
        out.push_str(&format!(
            "… and {} more {noun}\n",
            units::count((total - limit) as u64)
        ));
    }
    out
}

fn nodes(summary: &Summary<'_>) -> String {
    use Align::{Left, Right};
    let findings = summary.findings;
    let mut table = Table::new([
        ("NODE", Right),
        ("METRIC", Left),
        ("OF", Left),
        ("VALUES", Right),
        ("MIN", Right),
        ("MEAN", Right),
        ("MAX", Right),
        ("UNIT", Left),
    ]);
    let (total, nodes) = findings.nodes(summary.limit);
    for node in nodes {
        for metric in [
            Metric::HopLatency,
            Metric::QueueOccupancy,
            Metric::QueueCongestion,
            Metric::LinkUtilization,
        ] {
            for (place, extremes) in findings.extremes_of(metric, node) {
                let name = node.map_or("?".into(), |node| summary.names.node(node));
                let queue = place.queue.map(|queue| format!("queue {queue}"));
                let interface = place
                    .interface
                    .map(|interface| format!("interface {}", summary.names.interface(node, interface)));
                let subject = [interface, queue]
                    .into_iter()
                    .flatten()
                    .collect::<Vec<_>>()
                    .join(" ");
                table.row(row(name, metric, subject, extremes, findings.queue_unit(node)));
            }
        }
    }
    let mut out = render_table(&table, total, summary.limit, "nodes; --limit shows more");
    if findings.values_left_out > 0 {
        let count = units::count(findings.values_left_out);
        out.push_str(&format!(
            "values of more nodes, queues and interfaces, not listed: {count}\n"
        ));
    }
    out
}

fn row(node: String, metric: Metric, subject: String, extremes: &Extremes, queue_unit: &str) -> [String; 8] {
    let show = |value: u64| match metric {
        Metric::HopLatency => units::nanos(value),
        Metric::LinkUtilization => format!("{:.1} %", value as f64 / 1e4),
        _ => units::count(value),
    };
    let unit = if metric == Metric::QueueOccupancy {
        queue_unit
    } else {
        ""
    };
    [
        node,
        metric.name().to_string(),
        subject,
        units::count(extremes.count),
        show(extremes.min),
        show(extremes.mean()),
        show(extremes.max),
        unit.to_string(),
    ]
}

fn drops(summary: &Summary<'_>) -> String {
    use Align::{Left, Right};
    let mut table = Table::new([("DROPPED", Right), ("NODE", Right), ("REASON", Left)]);
    let findings = summary.findings;
    let (total, places) = findings.drops(summary.limit);
    for ((node, reason), count) in places {
        let node = node.map_or("?".into(), |node| summary.names.node(node));
        table.row([units::count(count), node, findings.reason(reason)]);
    }
    let mut out = render_table(
        &table,
        total,
        summary.limit,
        "nodes and reasons; --limit shows more",
    );
    if findings.drops_left_out > 0 {
        let count = units::count(findings.drops_left_out);
        out.push_str(&format!("drops at more nodes, not listed: {count}\n"));
    }
    out
}

fn events(summary: &Summary<'_>) -> String {
    let stats = summary.collector.stats();
    let events = Kind::ALL
        .into_iter()
        .map(|kind| (kind.name(), stats.events[kind as usize]));
    let parts: Vec<String> = events
        .filter(|(_, count)| *count > 0)
        .map(|(name, count)| format!("{name} {}", units::count(count)))
        .collect();
    if parts.is_empty() {
        String::new()
    } else {
        format!("events: {}\n", parts.join(", "))
    }
}

fn sources(summary: &Summary<'_>) -> String {
    use Align::{Left, Right};
    let mut table = Table::new([
        ("SOURCE", Left),
        ("NODE", Right),
        ("HW", Right),
        ("VERSION", Right),
        ("DATAGRAMS", Right),
        ("LOST", Right),
        ("LATE", Right),
        ("TWICE", Right),
        ("RESTARTS", Right),
        ("", Left),
    ]);
    for stream in sorted_streams(summary.collector.streams()) {
        let number = |count: u64| {
            if stream.countable {
                units::count(count)
            } else {
                "-".into()
            }
        };
        let note = match stream.unconfirmed {
            _ if stream.mixed => "not countable: several nodes behind one address".to_owned(),
            _ if !stream.countable && stream.datagrams == 1 => "not countable: only one datagram".to_owned(),
            _ if !stream.countable => "not countable: its sequence number has not advanced".to_owned(),
            0 => String::new(),
            more => format!(
                "{} more missing, not confirmed by what follows",
                units::count(more)
            ),
        };
        table.row([
            source_text(&stream.id),
            stream.id.node.map_or("-".into(), |node| summary.names.node(node)),
            stream.id.hw_id.to_string(),
            version_text(&stream.id).to_owned(),
            units::count(stream.datagrams),
            number(stream.lost),
            number(stream.reordered),
            number(stream.duplicated),
            number(stream.restarts),
            note,
        ]);
    }
    if table.is_empty() {
        return String::new();
    }
    let mut out = table.render();
    if let Some(gone) = evicted_sources(summary.collector) {
        out.push_str(&format!(
            "… and {} that left the table (`[collector] max_sources`): {} lost, {} more missing\n",
            units::counted(gone.count, "source"),
            units::count(gone.lost),
            units::count(gone.unconfirmed),
        ));
    }
    out
}

fn sequence(summary: &Summary<'_>) -> String {
    let Some(anomalies) = &summary.findings.anomalies else {
        return String::new();
    };
    if anomalies.is_empty() {
        return "no anomalies of sequence numbers\n".into();
    }
    use Align::{Left, Right};
    let mut table = Table::new([
        ("TIME", Left),
        ("SOURCE", Left),
        ("NODE", Right),
        ("HW", Right),
        ("ANOMALY", Left),
        ("FIRST", Right),
        ("COUNT", Right),
    ]);
    for event in anomalies {
        let Anomaly { name, first, count } = anomaly(&event.kind);
        table.row([
            units::date_time(event.ts),
            source_text(&event.stream),
            event
                .stream
                .node
                .map_or("-".into(), |node| summary.names.node(node)),
            event.stream.hw_id.to_string(),
            name.to_string(),
            first.to_string(),
            units::count(count.into()),
        ]);
    }
    let mut out = table.render();
    if summary.findings.anomalies_omitted > 0 {
        out.push_str(&format!(
            "… and {} more\n",
            units::count(summary.findings.anomalies_omitted)
        ));
    }
    out.push_str("gap: skipped, may still arrive; lost: did not arrive in time, confirmed or not\n");
    out
}

fn stored(summary: &Summary<'_>) -> String {
    let Some(stored) = &summary.store_stats else {
        return String::new();
    };
    let mut out = format!(
        "stored: {} in {}\n",
        units::counted(stored.stored(), "record"),
        units::bytes(stored.bytes)
    );
    if stored.shed + stored.failed > 0 {
        let lost = units::count(stored.shed + stored.failed);
        let reason = stored
            .message
            .as_deref()
            .unwrap_or("the disk could not take them");
        out.push_str(&format!("not stored: {lost} ({reason})\n"));
    }
    out
}
