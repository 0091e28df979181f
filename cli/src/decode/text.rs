//! Text output of `hopwise decode`: a headline, lines for flow and annotations, and a table of hops.

use std::{fmt::Display, net::IpAddr};

use wire::int::{Int, Sf};
use wire::packet::Contents;
use wire::report::{Annotations, Flags, Report};
use wire::{Hop, Items};

use super::{RefusedReport, plausibility::SourcePlausibility};
use terminal::{Align, Table, units};

const QUEUE_IDS: &[Items] = &[Items::QUEUE, Items::QUEUE_CONGESTION, Items::QUEUE_ID];

/// Appends a report as text: a header line and a table of hops.
pub(super) fn report(
    out: &mut String,
    ts: u64,
    source: IpAddr,
    report: &Report<'_>,
    plausibility: SourcePlausibility<'_>,
) {
    let node = report
        .node_id
        .map_or(String::new(), |node| format!("  node {node}"));
    let version = report.version.name();
    let hw_id = report.hw_id;
    let seq = report.seq;
    out.push_str(&format!(
        "{}  from {source}  report {version}{node}  hw {hw_id}  seq {seq}{}\n",
        units::date_time(ts),
        flags(report.flags)
    ));
    if let Some(flow) = report.flow {
        out.push_str(&format!("  flow {flow}\n"));
    }
    if let Some(tunnel) = report.tunnel {
        out.push_str(&format!("  in tunnel {tunnel}\n"));
    }
    if let Some(flow_id) = report.flow_id {
        out.push_str(&format!("  flow id {flow_id:#010x}\n"));
    }
    if let Some(reason) = report.drop_reason {
        let reason = plausibility.drop_reason(reason);
        out.push_str(&format!("  dropped, reason {reason}\n"));
    }
    if let Some(gap) = report.gap {
        out.push_str(&format!(
            "  {} packets from node {} are missing, from number {} on\n",
            gap.count, gap.source, gap.seq
        ));
    }
    if let Some(refusal) = report.int_refused {
        out.push_str(&format!(
            "  INT or IOAM that cannot be read, left out: {}\n",
            refusal.name()
        ));
    }
    if let Some(refusal) = report.tunnel_refused {
        out.push_str(&format!(
            "  a tunnel whose contents cannot be read: {}\n",
            refusal.name()
        ));
    }
    for (mark, text) in ANNOTATIONS {
        if report.annotations.contains(mark) {
            out.push_str(&format!("  {text}\n"));
        }
    }
    write_hops(
        out,
        report.int.as_ref(),
        &report.hops().collect::<Vec<_>>(),
        plausibility,
    );
    if report.is_single_record() && report.has_metadata() {
        // In SF-INT the record in the packet describes another packet, unless its state is medium, so the reporter's record
        // is apart.
        out.pop();
        out.push_str("  the reporter's own record, of the packet that it has reported\n");
        write_table(out, &[report.metadata_hop()], plausibility);
        out.push('\n');
    }
}

/// Explanations of a report's annotations.
const ANNOTATIONS: [(Annotations, &str); 5] = [
    (
        Annotations::PARTIAL,
        "partial: a part of it runs over its end and was left out",
    ),
    (
        Annotations::UNFLAGGED_DROP_REASON,
        "anomaly: a drop reason without the drop flag",
    ),
    (
        Annotations::MERGED,
        "the reporter's own data and the last record of the stack are one hop",
    ),
    (
        Annotations::DESTINATION,
        "INT for the destination was stepped over",
    ),
    (
        Annotations::REPLICA,
        "replica: a node copied the packet, so this is not the path of the flow",
    ),
];

/// Writes the INT of one data packet.
pub(super) fn packet(
    out: &mut String,
    ts: u64,
    contents: &Contents<'_>,
    plausibility: SourcePlausibility<'_>,
) {
    out.push_str(&format!("{}  packet\n", units::date_time(ts)));
    if let Some(flow) = contents.flow {
        out.push_str(&format!("  flow {flow}\n"));
    }
    if let Some(tunnel) = contents.tunnel {
        out.push_str(&format!("  in tunnel {tunnel}\n"));
    }
    write_hops(out, contents.int.as_ref(), &super::hops(contents), plausibility);
}

/// Writes a refused frame or report.
pub(super) fn refused(out: &mut String, refused: &RefusedReport) {
    let source = refused
        .source
        .map_or(String::new(), |source| format!("  from {source}"));
    out.push_str(&format!(
        "{}{source}  refused: {}\n\n",
        units::date_time(refused.ts),
        refused.refusal.name()
    ));
}

fn flags(flags: Flags) -> String {
    Flags::NAMES
        .iter()
        .filter(|(flag, _)| flags.contains(*flag))
        .map(|(_, name)| format!("  {name}"))
        .collect()
}

/// Writes the INT version and a table of the hops.
fn write_hops(out: &mut String, int: Option<&Int<'_>>, hops: &[Hop], plausibility: SourcePlausibility<'_>) {
    if let Some(int) = int {
        out.push_str(&format!("  INT {}{}\n", int.version.name(), stateful(int)));
    }
    write_table(out, hops, plausibility);
    out.push('\n');
}

/// Formats the fields of SF-INT, or an empty string for other INT.
fn stateful(int: &Int<'_>) -> String {
    let Some(Sf {
        urgent,
        state,
        packet_id,
    }) = int.sf
    else {
        return String::new();
    };
    let urgent = if urgent { "  urgent" } else { "" };
    format!(
        "  stateful{urgent}  packet id {packet_id}  state {}",
        state.name()
    )
}

fn write_table(out: &mut String, hops: &[Hop], plausibility: SourcePlausibility<'_>) {
    if !hops.is_empty() {
        let columns: Vec<&Column> = COLUMNS
            .iter()
            .filter(|column| {
                hops.iter()
                    .any(|hop| column.items.iter().any(|items| hop.carried.contains(*items)))
            })
            .collect();
        let implausible = hops.iter().any(|hop| plausibility.implausible(hop).is_some());
        let note = implausible.then_some(("", Align::Left));
        let heads = columns
            .iter()
            .map(|column| (column.name, Align::Right))
            .chain(note);
        let mut table = Table::new(heads).indented(2);
        for hop in hops {
            let note = note.map(|_| match plausibility.implausible(hop) {
                Some(latency) => format!("implausible latency: {}", units::nanos(latency)),
                None => String::new(),
            });
            table.row(columns.iter().map(|column| column.cell(hop)).chain(note));
        }
        out.push_str(&table.render());
    }
}

/// Column of the hop table; shown if any hop carries one of `items`.
struct Column {
    name: &'static str,
    items: &'static [Items],
    cell: fn(&Hop) -> Option<String>,
}

impl Column {
    const fn new(name: &'static str, items: &'static [Items], cell: fn(&Hop) -> Option<String>) -> Self {
        Self { name, items, cell }
    }

    /// Formats an item of a hop: `?` if it is present but unavailable, empty if it is not in the bitmap.
    fn cell(&self, hop: &Hop) -> String {
        let present = self.items.iter().any(|items| hop.carried.contains(*items));
        let missing = if present { "?" } else { "" };
        (self.cell)(hop)
            .filter(|_| present)
            .unwrap_or_else(|| missing.to_string())
    }
}

fn text(value: Option<impl Display>) -> Option<String> {
    value.map(|value| value.to_string())
}

const COLUMNS: &[Column] = &[
    Column::new("node", &[Items::NODE_ID], |hop| text(hop.node_id)),
    Column::new("in", &[Items::INTERFACES], |hop| text(hop.ingress_if)),
    Column::new("out", &[Items::INTERFACES], |hop| text(hop.egress_if)),
    Column::new("latency", &[Items::HOP_LATENCY], |hop| text(hop.hop_latency)),
    Column::new("queue", QUEUE_IDS, |hop| text(hop.queue_id)),
    Column::new("occupancy", &[Items::QUEUE], |hop| text(hop.queue_occupancy)),
    Column::new("congestion", &[Items::QUEUE_CONGESTION], |hop| {
        text(hop.queue_congestion)
    }),
    Column::new("ingress ts", &[Items::INGRESS_TS], |hop| text(hop.ingress_ts)),
    Column::new("egress ts", &[Items::EGRESS_TS], |hop| text(hop.egress_ts)),
    Column::new("l2 in", &[Items::L2_INTERFACES], |hop| text(hop.l2_ingress_if)),
    Column::new("l2 out", &[Items::L2_INTERFACES], |hop| text(hop.l2_egress_if)),
    Column::new("tx util", &[Items::TX_UTILIZATION], |hop| {
        text(hop.tx_utilization)
    }),
    Column::new("buffer", &[Items::BUFFER], |hop| text(hop.buffer_id)),
    Column::new("buffer occ", &[Items::BUFFER], |hop| text(hop.buffer_occupancy)),
    Column::new("csum", &[Items::CHECKSUM_COMPLEMENT], |hop| {
        hop.checksum_complement.map(|sum| format!("{sum:#010x}"))
    }),
];
