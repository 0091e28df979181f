//! A report as text: a headline, a line for the flow, a table of hops.

use std::fmt::Display;
use std::net::IpAddr;

use wire::int::{Int, Sf};
use wire::packet::Contents;
use wire::report::{Annotations, Flags, Report};
use wire::{Hop, Items};

use super::Refused;
use super::plausibility::SourcePlausibility;
use terminal::{Align, Table, units};

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
        // The record in the packet is of another packet, unless its state is medium.
        out.pop();
        out.push_str("  the reporter's own record, of the packet that it has reported\n");
        write_table(out, &[report.metadata_hop()], plausibility);
        out.push('\n');
    }
}

/// The annotations of a report, as text.
const ANNOTATIONS: [(Annotations, &str); 4] = [
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
pub(super) fn refused(out: &mut String, refused: &Refused) {
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

/// Writes the path, and a table of the items that any hop has.
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

/// A column of the table: shown when a hop has one of `items`.
struct Column {
    name: &'static str,
    items: &'static [Items],
    cell: fn(&Hop) -> Option<String>,
}

impl Column {
    /// Formats an item of a hop: `?` if it is present but unavailable, and nothing if it is not in the
    /// bitmap.
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

const QUEUE_IDS: &[Items] = &[Items::QUEUE, Items::QUEUE_CONGESTION, Items::QUEUE_ID];

const COLUMNS: &[Column] = &[
    Column {
        name: "node",
        items: &[Items::NODE_ID],
        cell: |hop| text(hop.node_id),
    },
    Column {
        name: "in",
        items: &[Items::INTERFACES],
        cell: |hop| text(hop.ingress_if),
    },
    Column {
        name: "out",
        items: &[Items::INTERFACES],
        cell: |hop| text(hop.egress_if),
    },
    Column {
        name: "latency",
        items: &[Items::HOP_LATENCY],
        cell: |hop| text(hop.hop_latency),
    },
    Column {
        name: "queue",
        items: QUEUE_IDS,
        cell: |hop| text(hop.queue_id),
    },
    Column {
        name: "occupancy",
        items: &[Items::QUEUE],
        cell: |hop| text(hop.queue_occupancy),
    },
    Column {
        name: "congestion",
        items: &[Items::QUEUE_CONGESTION],
        cell: |hop| text(hop.queue_congestion),
    },
    Column {
        name: "ingress ts",
        items: &[Items::INGRESS_TS],
        cell: |hop| text(hop.ingress_ts),
    },
    Column {
        name: "egress ts",
        items: &[Items::EGRESS_TS],
        cell: |hop| text(hop.egress_ts),
    },
    Column {
        name: "l2 in",
        items: &[Items::L2_INTERFACES],
        cell: |hop| text(hop.l2_ingress_if),
    },
    Column {
        name: "l2 out",
        items: &[Items::L2_INTERFACES],
        cell: |hop| text(hop.l2_egress_if),
    },
    Column {
        name: "tx util",
        items: &[Items::TX_UTILIZATION],
        cell: |hop| text(hop.tx_utilization),
    },
    Column {
        name: "buffer",
        items: &[Items::BUFFER],
        cell: |hop| text(hop.buffer_id),
    },
    Column {
        name: "buffer occ",
        items: &[Items::BUFFER],
        cell: |hop| text(hop.buffer_occupancy),
    },
    Column {
        name: "csum",
        items: &[Items::CHECKSUM_COMPLEMENT],
        cell: |hop| hop.checksum_complement.map(|sum| format!("{sum:#010x}")),
    },
];
