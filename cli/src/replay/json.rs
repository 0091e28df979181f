//! JSON output of `hopwise replay`, one object. Field names are stable; they are documented in `docs/reference/cli-json.md`.

use collect_role::replay::IgnoredTimes;
use collector::event::{Kind, SequenceEvent};
use collector::{Collector, StreamId, StreamView};
use detect::Metric;
use wire::{FlowKey, Refusal};

use super::Summary;
use super::findings::{Extremes, Flow, node_id};
use super::summary::{
    Anomaly, anomaly, evicted_sources, refusal_count, sorted_streams, source_text, version_text,
};
use terminal::json::{self, Object, Text};

/// Formats the results as one JSON object and a newline.
pub(super) fn write(summary: &Summary<'_>) -> String {
    let Summary {
        account,
        collector,
        findings,
        ..
    } = summary;
    let stats = collector.stats();
    let seconds = summary.elapsed.as_secs_f64();
    let mut out = String::new();
    json::object(&mut out, |o| {
        o.field(
            "files",
            summary
                .files
                .iter()
                .map(|file| file.display().to_string())
                .collect::<Vec<_>>(),
        );
        o.field("frames", account.frames)
            .field("datagrams", account.datagrams)
            .field("reports", stats.reports);
        o.object("refused", |o| refused(o, summary));
        for (key, counts) in [
            ("int_refused", &stats.int_refused),
            ("tunnel_refused", &stats.tunnel_refused),
        ] {
            o.object(key, |o| {
                for refusal in Refusal::ALL {
                    let count = counts[refusal.index()];
                    if count > 0 {
                        o.field(refusal.name(), count);
                    }
                }
            });
        }
        o.object("skipped", |o| {
            for (reason, count) in &account.skipped {
                o.field(reason, *count);
            }
        });
        write_times(o, summary);
        o.field("implausible_latencies", stats.implausible_latencies);
        o.field("elapsed_ms", (seconds * 1e6).round() / 1e3);
        o.field(
            "reports_per_s",
            (stats.reports as f64 / seconds.max(1e-9)).round(),
        );
        o.field("flows_total", findings.flows_total());
        o.objects("flows", findings.busiest(summary.limit), |flow, o| {
            write_flow(o, flow)
        });
        write_network(o, summary);
        if stats.sf.records > 0 {
            o.object("sf", |o| write_sf(o, &stats.sf));
        }
        o.object("events", |o| {
            for kind in Kind::ALL {
                o.field(kind.name(), stats.events[kind as usize]);
            }
        });
        write_drops(o, summary);
        o.objects("sources", sorted_streams(collector.streams()), |stream, o| {
            write_source(o, &stream)
        });
        write_evicted(o, collector);
        if let Some(stored) = &summary.store_stats {
            o.object("store", |o| {
                o.field("written", stored.stored())
                    .field("shed", stored.shed)
                    .field("failed", stored.failed);
            });
        }
        if let Some(anomalies) = &findings.anomalies {
            o.objects("sequence", anomalies, |event, o| write_note(o, event));
            o.field("sequence_left_out", findings.anomalies_omitted);
        }
    });
    out.push('\n');
    out
}

/// Writes what was found about the files' clocks and times.
fn write_times(o: &mut Object<'_>, summary: &Summary<'_>) {
    if !summary.differences.is_empty() {
        o.objects("clocks", summary.differences, |difference, o| {
            let [reference, interface] = difference.interfaces;
            o.field("file", difference.file.display().to_string())
                .field("interface", u64::from(interface))
                .field("reference", u64::from(reference))
                .field("ahead_ns", difference.ahead);
        });
    }
    if !summary.unknown_clocks.is_empty() {
        o.objects("unknown_clocks", summary.unknown_clocks, |clock, o| {
            o.field("file", clock.file.display().to_string())
                .field("interface", u64::from(clock.interface));
        });
    }
    if !summary.overlapping.is_empty() {
        let files = summary.overlapping.iter().map(|file| file.display().to_string());
        o.field("overlapping", files.collect::<Vec<_>>());
    }
    write_ignored_times(o, summary.ignored_times);
    if summary.has_unconfirmed_end {
        o.field("unconfirmed_end", true);
    }
}

/// Writes how many times were not used, by reason, if there are any.
fn write_ignored_times(o: &mut Object<'_>, ignored: IgnoredTimes) {
    let counts = [
        ("ahead", ignored.ahead),
        ("behind", ignored.behind),
        ("absent", ignored.absent),
    ];
    if counts.iter().all(|(_, count)| *count == 0) {
        return;
    }
    o.object("ignored_times", |o| {
        for (reason, count) in counts.into_iter().filter(|(_, count)| *count > 0) {
            o.field(reason, count);
        }
    });
}

/// Writes the paths with the most reports, and the nodes with the most values.
fn write_network(o: &mut Object<'_>, summary: &Summary<'_>) {
    let findings = summary.findings;
    let paths = findings.paths();
    o.field("paths_total", paths.len());
    let paths = paths.into_iter().take(summary.limit);
    o.objects("paths", paths, |usage, o| {
        o.field("path", nodes(usage.nodes))
            .field("flows", usage.flows)
            .field("reports", usage.reports);
    });
    let (total, listed) = findings.nodes(summary.limit);
    o.field("nodes_total", total);
    o.objects("nodes", listed, |node, o| write_node(o, summary, node));
    if findings.values_left_out > 0 {
        o.field("values_left_out", findings.values_left_out);
    }
}

fn write_drops(o: &mut Object<'_>, summary: &Summary<'_>) {
    let findings = summary.findings;
    let (total, listed) = findings.drops(summary.limit);
    o.field("drops_total", total);
    o.objects("drops", listed, |((node, reason), count), o| {
        o.field("node", node)
            .field("reason", findings.reason(reason))
            .field("count", count);
    });
    if findings.drops_left_out > 0 {
        o.field("drops_left_out", findings.drops_left_out);
    }
}

/// Writes the results of joining SF-INT records into sets, one record per hop.
fn write_sf(o: &mut Object<'_>, sf: &collector::stats::JoinStats) {
    o.field("reports", sf.reports).field("records", sf.records);
    o.field("complete_sets", sf.complete.sets)
        .field("complete_records", sf.complete.records);
    o.object("partial_sets", |o| {
        for (reason, count) in collector::stats::Reason::ALL.iter().zip(&sf.partial) {
            if count.sets > 0 {
                o.field(reason.name(), count.sets);
            }
        }
    });
    o.field("partial_records", sf.partial().records);
    o.field("sink_samples", sf.sink_samples)
        .field("low_samples", sf.low_samples)
        .field("transit_samples", sf.transit_samples);
    o.field("repeated", sf.repeated)
        .field("stray", sf.stray)
        .field("unadmitted", sf.unadmitted.iter().sum::<u64>());
    o.field("pending", sf.pending);
}

/// Writes the numbers of frames and reports refused, by reason.
fn refused(o: &mut Object<'_>, summary: &Summary<'_>) {
    let stats = summary.collector.stats();
    for refusal in Refusal::ALL {
        let count = refusal_count(summary, refusal, &stats);
        if count > 0 {
            o.field(refusal.name(), count);
        }
    }
}

fn nodes(path: &[u32]) -> Vec<Option<u32>> {
    path.iter().map(|node| node_id(*node)).collect()
}

fn write_flow(o: &mut Object<'_>, flow: &Flow) {
    let row = &flow.row;
    o.field("id", format!("{:016x}", row.flow.id()));
    o.object("flow", |o| key(o, &row.flow));
    o.field("text", Text(row.flow)).field("path", nodes(&flow.path));
    o.field("flow_latency", row.flow_latency)
        .field("basis", row.basis.name());
    o.field("reports", row.reports)
        .field("first_seen", row.first_seen)
        .field("last_seen", row.last_seen);
}

fn key(o: &mut Object<'_>, key: &FlowKey) {
    let (src, dst) = view::ends(key);
    o.field("src", src).field("dst", dst);
    o.present("sport", key.src_port())
        .present("dport", key.dst_port())
        .field("proto", key.proto());
}

fn write_node(o: &mut Object<'_>, summary: &Summary<'_>, node: Option<u32>) {
    let findings = summary.findings;
    o.field("node", node);
    if let Some((_, latency)) = findings.extremes_of(Metric::HopLatency, node).next() {
        o.object("hop_latency", |o| extremes(o, latency));
    }
    o.objects(
        "queues",
        findings.extremes_of(Metric::QueueOccupancy, node),
        |(place, values), o| {
            o.field("queue", place.queue).field("interface", place.interface);
            extremes(o, values);
            o.field("unit", findings.queue_unit(node));
        },
    );
    o.objects(
        "links",
        findings.extremes_of(Metric::LinkUtilization, node),
        |(place, values), o| {
            o.field("interface", place.interface);
            extremes(o, values);
        },
    );
}

fn extremes(o: &mut Object<'_>, values: &Extremes) {
    o.field("count", values.count)
        .field("min", values.min)
        .field("mean", values.mean())
        .field("max", values.max);
}

fn write_source(o: &mut Object<'_>, stream: &StreamView) {
    identity(o, &stream.id);
    o.field("version", version_text(&stream.id))
        .field("reports", stream.datagrams);
    o.field("lost", stream.lost)
        .field("unconfirmed", stream.unconfirmed);
    o.field("recovered", stream.recovered)
        .field("reordered", stream.reordered);
    o.field("duplicated", stream.duplicated)
        .field("restarts", stream.restarts);
    o.field("countable", stream.countable)
        .field("mixed", stream.mixed);
}

/// Writes the losses of sources that left the table, if there are any.
fn write_evicted(o: &mut Object<'_>, collector: &Collector) {
    if let Some(gone) = evicted_sources(collector) {
        o.object("evicted_sources", |o| {
            o.field("count", gone.count)
                .field("lost", gone.lost)
                .field("unconfirmed", gone.unconfirmed);
        });
    }
}

fn identity(o: &mut Object<'_>, id: &StreamId) {
    o.field("source", source_text(id))
        .field("node", id.node)
        .field("hw_id", id.hw_id);
}

fn write_note(o: &mut Object<'_>, event: &SequenceEvent) {
    let Anomaly { name, first, count } = anomaly(&event.kind);
    o.field("ts", event.ts);
    identity(o, &event.stream);
    o.field("what", name).field("first", first).field("count", count);
}
