//! Prints an aggregate of postcards (`wire::aggregate`): as text with a table of its records, or as one JSON object.

use std::{fmt::Display, net::IpAddr};

use wire::Aggregate;
use wire::aggregate::{Kind, PacketFields, Postcard, Summary, SummaryMetric};

use terminal::json::{self, Object, Text};
use terminal::{Align, Table, units};

/// Appends an aggregate as text or as a line of JSON.
pub(super) fn write(out: &mut String, ts: u64, source: IpAddr, aggregate: &Aggregate<'_>, json: bool) {
    if json {
        object(out, ts, source, aggregate)
    } else {
        text(out, ts, source, aggregate)
    }
}

fn object(out: &mut String, ts: u64, source: IpAddr, aggregate: &Aggregate<'_>) {
    let header = aggregate.header();
    json::object(out, |o| {
        o.field("ts", ts)
            .field("source", Text(source))
            .field("aggregate", header.kind.name());
        o.field("by_timer", header.by_timer)
            .field("aggregator", header.aggregator);
        o.field("seq", header.sequence);
        o.present("node_id", header.node_scope)
            .present("flow_id", header.flow_scope);
        if header.kind.is_correlated() {
            o.objects("summaries", aggregate.summaries(), |summary, o| {
                summary_fields(o, &summary)
            });
        } else {
            o.objects(
                "postcards",
                aggregate.postcards_with_packets(),
                |(postcard, packet), o| {
                    postcard_fields(o, &postcard);
                    if let Some(packet) = packet {
                        packet_fields(o, &packet);
                    }
                },
            );
        }
    });
    out.push('\n');
}

fn postcard_fields(o: &mut Object<'_>, postcard: &Postcard) {
    let queue = postcard.queue();
    o.field("node_id", postcard.node())
        .field("flow_id", postcard.flow_id());
    o.field("ingress_ts", postcard.ingress_ts())
        .field("egress_ts", postcard.egress_ts());
    o.field("queue_id", queue.map(|(id, _)| id))
        .field("queue_occupancy", queue.map(|(_, length)| length));
}

fn packet_fields(o: &mut Object<'_>, packet: &PacketFields) {
    o.field("ingress_if", packet.ingress_if)
        .field("egress_if", packet.egress_if);
    o.field("hop_limit", packet.hop_limit)
        .field("entered", packet.entered)
        .field("left", packet.left);
    o.field("digest", Some(packet.digest).filter(|digest| *digest != 0));
}

fn summary_fields(o: &mut Object<'_>, summary: &Summary) {
    match summary.metric {
        SummaryMetric::HopLatency => o.field("metric", "hop_latency"),
        SummaryMetric::QueueLength => o.field("metric", "queue_occupancy"),
        SummaryMetric::Other(number) => o.field("metric", number),
    };
    o.field("min", summary.min)
        .field("max", summary.max)
        .field("sum", summary.sum);
    o.field("count", summary.count).field("avg", summary.average());
}

/// Returns the name of the kind in the paper's notation.
fn paper_name(kind: Kind) -> &'static str {
    match kind {
        Kind::Agg => "Agg(R)",
        Kind::AggNode => "Agg_N(R)",
        Kind::AggNodeFlow => "Agg_{N,F}(R)",
        Kind::Cor => "Cor(R)",
        Kind::CorNode => "Cor_N(R)",
        Kind::CorNodeFlow => "Cor_{N,F}(R)",
    }
}

fn text(out: &mut String, ts: u64, source: IpAddr, aggregate: &Aggregate<'_>) {
    let header = aggregate.header();
    let kind = paper_name(header.kind);
    let aggregator = header.aggregator;
    let seq = header.sequence;
    let timer = if header.by_timer {
        "  sent by its timer"
    } else {
        ""
    };
    let when = units::date_time(ts);
    out.push_str(&format!(
        "{when}  from {source}  aggregate {kind}  aggregator {aggregator}  seq {seq}{timer}\n"
    ));
    if let Some(node) = header.node_scope {
        out.push_str(&format!("  node {node}\n"));
    }
    if let Some(flow_id) = header.flow_scope {
        out.push_str(&format!("  flow id {flow_id:#010x}\n"));
    }
    let table = if header.kind.is_correlated() {
        summaries(aggregate)
    } else {
        postcards(aggregate)
    };
    out.push_str(&table.render());
    out.push('\n');
}

/// Formats a value, or `?` if it is unavailable.
fn cell(value: Option<impl Display>) -> String {
    value.map_or_else(|| "?".into(), |value| value.to_string())
}

fn postcards(aggregate: &Aggregate<'_>) -> Table {
    let names = [
        "node",
        "flow id",
        "latency",
        "queue",
        "occupancy",
        "ingress ts",
        "egress ts",
    ];
    let mut table = Table::new(names.map(|name| (name, Align::Right))).indented(2);
    for postcard in aggregate.postcards() {
        table.row([
            cell(postcard.node()),
            cell(postcard.flow_id().map(|id| format!("{id:#010x}"))),
            cell(postcard.hop_latency()),
            cell(postcard.queue().map(|(id, _)| id)),
            cell(postcard.queue().map(|(_, length)| length)),
            cell(postcard.ingress_ts()),
            cell(postcard.egress_ts()),
        ]);
    }
    table
}

fn summaries(aggregate: &Aggregate<'_>) -> Table {
    let names = ["min", "mean", "max", "values"].map(|name| (name, Align::Right));
    let mut table = Table::new([("metric", Align::Left)].into_iter().chain(names)).indented(2);
    for summary in aggregate.summaries() {
        let metric = match summary.metric {
            SummaryMetric::HopLatency => "hop latency".into(),
            SummaryMetric::QueueLength => "queue occupancy".into(),
            SummaryMetric::Other(number) => format!("metric {number}"),
        };
        let numbers = [summary.min, summary.average(), summary.max, summary.count];
        table.row(
            [metric]
                .into_iter()
                .chain(numbers.map(|number| number.to_string())),
        );
    }
    table
}
