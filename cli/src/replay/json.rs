//! JSON output of `hopwise replay`, one object. Field names are stable; they are documented in `docs/reference/cli-json.md`.

use collector::event::Kind;
use collector::event::SequenceEvent;
use collector::{StreamId, StreamView};
use detect::Metric;
use wire::{FlowKey, Refusal};

use super::Summary;
use super::findings::{Extremes, Flow, known};
use super::summary::{anomaly, refused_for, sorted, source, version};
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
        o.object("int_refused", |o| {
            for refusal in Refusal::ALL {
                let count = stats.int_refused[refusal.index()];
                if count > 0 {
                    o.field(refusal.name(), count);
                }
            }
        });
        o.object("skipped", |o| {
            for (reason, count) in &account.skipped {
                o.field(reason, *count);
            }
        });
        if !summary.differences.is_empty() {
            o.objects("clocks", summary.differences, |difference, o| {
                let [reference, interface] = difference.interfaces;
                o.field("file", difference.file.display().to_string())
                    .field("interface", u64::from(interface))
                    .field("reference", u64::from(reference))
                    .field("ahead_ns", difference.ahead);
            });
        }
        if !summary.overlapping.is_empty() {
            let files = summary.overlapping.iter().map(|file| file.display().to_string());
            o.field("overlapping", files.collect::<Vec<_>>());
        }
        if summary.wrong_times > 0 {
            o.object("ignored_times", |o| {
                o.field("ahead", summary.wrong_times);
            });
        }
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
        o.objects("sources", sorted(collector.streams()), |stream, o| {
            write_source(o, &stream)
        });
        if let Some(stored) = &summary.stored {
            o.object("store", |o| {
                o.field("written", stored.stored())
                    .field("shed", stored.shed)
                    .field("failed", stored.failed);
            });
        }
        if let Some(notes) = &findings.notes {
            o.objects("sequence", notes, |note, o| write_note(o, note));
            o.field("sequence_left_out", findings.notes_left_out);
        }
    });
    out.push('\n');
    out
}

/// Writes the paths with the most reports, and the nodes with the most values.
fn write_network(o: &mut Object<'_>, summary: &Summary<'_>) {
    let findings = summary.findings;
    let paths = findings.paths();
    o.field("paths_total", paths.len());
    let paths = paths.into_iter().take(summary.limit);
    o.objects("paths", paths, |(path, flows, reports), o| {
        o.field("path", nodes(path))
            .field("flows", flows)
            .field("reports", reports);
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
        let count = refused_for(summary, refusal, &stats);
        if count > 0 {
            o.field(refusal.name(), count);
        }
    }
}

fn nodes(path: &[u32]) -> Vec<Option<u32>> {
    path.iter().map(|node| known(*node)).collect()
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
    if let Some((_, latency)) = findings.of(Metric::HopLatency, node).next() {
        o.object("hop_latency", |o| extremes(o, latency));
    }
    o.objects(
        "queues",
        findings.of(Metric::QueueOccupancy, node),
        |(queue, found), o| {
            o.field("queue", queue);
            extremes(o, found);
            o.field("unit", findings.queue_unit(node));
        },
    );
    o.objects(
        "links",
        findings.of(Metric::LinkUtilization, node),
        |(interface, found), o| {
            o.field("interface", interface);
            extremes(o, found);
        },
    );
}

fn extremes(o: &mut Object<'_>, found: &Extremes) {
    o.field("count", found.count)
        .field("min", found.min)
        .field("mean", found.mean())
        .field("max", found.max);
}

fn write_source(o: &mut Object<'_>, stream: &StreamView) {
    identity(o, &stream.id);
    o.field("version", version(&stream.id))
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

fn identity(o: &mut Object<'_>, id: &StreamId) {
    o.field("source", source(id))
        .field("node", id.node)
        .field("hw_id", id.hw_id);
}

fn write_note(o: &mut Object<'_>, note: &SequenceEvent) {
    let (what, first, count) = anomaly(&note.kind);
    o.field("ts", note.ts);
    identity(o, &note.stream);
    o.field("what", what).field("first", first).field("count", count);
}
