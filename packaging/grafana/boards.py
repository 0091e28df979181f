"""What the Grafana boards show: the one source of the JSON in `prometheus/` and `clickhouse/`, which `scripts/build-boards` writes.

A panel has a query for Prometheus (metrics: docs/reference/metrics.md), for ClickHouse (tables: `hopwise schema show`), or for both; a board
of a back end has the panels with a query for it. A rate is per second unless its unit says otherwise.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Query:
    """A query, and what its series, or its column in a table, are called (Prometheus; the columns of ClickHouse have names)."""

    text: str
    legend: str = ""


@dataclass(frozen=True)
class Panel:
    title: str
    description: str
    # A unit of Grafana; `suffix:reports/s` shows that after the number.
    unit: str
    # "timeseries", "stat" or "table".
    kind: str = "timeseries"
    prometheus: tuple[Query, ...] = ()
    clickhouse: str = ""
    # Of 24.
    width: int = 12
    # Units of the columns of a table that have another one than the panel.
    columns: dict[str, str] = field(default_factory=dict)
    stacked: bool = False


@dataclass(frozen=True)
class Variable:
    """A variable of a board. Without a query it is a text that the user enters."""

    name: str
    label: str
    description: str
    prometheus: str = ""
    clickhouse: str = ""
    text_for: str = ""


@dataclass(frozen=True)
class Board:
    slug: str
    title: str
    description: str
    panels: tuple[Panel, ...]
    variables: tuple[Variable, ...] = ()


# ── Parts of queries ─────────────────────────────────────────────────────────────────────────────────────────────────────────────────

OURS = 'instance=~"$instance"'
NODE = f'{OURS}, node=~"$node"'
NETWORK = f'{OURS}, stage="network"'
HERE = f'{OURS}, stage!="network"'


def rate(metric: str, labels: str = OURS) -> str:
    return f"rate({metric}{{{labels}}}[$__rate_interval])"


def of_kind(kinds: str) -> str:
    return rate("hopwise_events_total", f'{OURS}, kind=~"{kinds}"')


def named(expression: str) -> str:
    """With the label `name` for nodes that have a name; the others stay as they are."""
    return f"({expression}) * on (instance, node) group_left (name) hopwise_node_info or on (instance, node) ({expression})"


def prometheus(text: str, legend: str = "") -> tuple[Query, ...]:
    return (Query(text, legend),)


BY_NODE = "{{name}} {{node}}"

def as_text(column: str) -> str:
    """A number of a place as text, because Grafana takes a column of numbers for values. A place that a record does not have is all ones."""
    return f"if({column} = 4294967295, '', toString({column}))"


NODE_TEXT = as_text("node")
COLLECTORS = "collector IN (${collector:sqlstring})"
NODES = "node IN (${node:csv})"
FLOW = "position(flow, ${flow:sqlstring}) > 0"
# Rollups of a second and of a minute are both stored: the longer one is read where it suffices.
INTERVAL = "interval = if($__interval_s >= 60, 60, 1)"


def over_time(table: str, series: str, value: str, where: str = "") -> str:
    """A value per series and step of the graph."""
    final = " FINAL" if table in ("rollups", "flows") else ""
    more = f" AND {where}" if where else ""
    return (
        f"SELECT $__timeInterval(ts) AS time, {series} AS series, {value} AS value\n"
        f"FROM ${{database}}.{table}{final}\n"
        f"WHERE $__timeFilter(ts) AND {COLLECTORS}{more}\n"
        "GROUP BY time, series ORDER BY time"
    )


def rollups(metric: str, series: str, value: str, where: str = "") -> str:
    more = f" AND {where}" if where else ""
    return over_time("rollups", series, value, f"metric = '{metric}' AND {INTERVAL}{more}")


def one(value: str, table: str, where: str = "") -> str:
    """A single value of the time range."""
    final = " FINAL" if table in ("rollups", "flows") else ""
    more = f" AND {where}" if where else ""
    return f"SELECT {value} AS value\nFROM ${{database}}.{table}{final}\nWHERE $__timeFilter(ts) AND {COLLECTORS}{more}"


def copies(columns: str, where: str, table: str) -> str:
    """Records by `columns` and id, as `copies` of one id. Two collectors may store one record, and an export may be repeated: rows
    of one collector with one id and time are one record. A device that repeats its numbers gives several records one id, at
    different times; so the collector with the most of them counts."""
    keys = ", ".join(re.findall(r" AS (\w+)", columns))
    keys = f"{keys}, " if keys else ""
    columns = f"{columns}, " if columns else ""
    return (
        f"SELECT {keys}id, max(times) AS copies, max(latest) AS last FROM (\n"
        f"    SELECT {columns}id, uniqExact(ts) AS times, max(ts) AS latest FROM ${{database}}.{table}\n"
        f"    WHERE $__timeFilter(ts) AND {COLLECTORS}{where}\n"
        f"    GROUP BY {keys}id, collector)\n"
        f"  GROUP BY {keys}id"
    )


def records_over_time(table: str, series: str, where: str = "") -> str:
    """Distinct records per second, series and step of the graph."""
    each = copies(f"$__timeInterval(ts) AS time, {series} AS series", f" AND {where}" if where else "", table)
    return (
        "SELECT time, series, sum(copies) / $__interval_s AS value\n"
        f"FROM (\n  {each})\n"
        "GROUP BY time, series ORDER BY time"
    )


# ── Boards ───────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────

OVERVIEW = Board(
    "overview",
    "hopwise: network overview",
    "What the network's own packets say about it, at a glance.",
    (
        Panel(
            "Reports", "Valid reports received.", "suffix:reports/s", "stat", width=6,
            prometheus=prometheus(f"sum({rate('hopwise_reports_total')})"),
        ),
        Panel(
            "Flows", "Flows that the collectors know now (Prometheus), or that had a latency in the time range (ClickHouse).", "short", "stat", width=6,
            prometheus=prometheus(f'sum(hopwise_table_entries{{{OURS}, table="flows"}})'),
            clickhouse=one("uniqExact(flow)", "rollups", "metric = 'flow_latency' AND interval = 60"),
        ),
        Panel(
            "Nodes", "Nodes that the collectors know now (Prometheus), or that reported in the time range (ClickHouse).", "short", "stat", width=6,
            prometheus=prometheus(f'max(hopwise_table_entries{{{OURS}, table="nodes"}})'),
            clickhouse=one("uniqExact(node)", "rollups", "metric = 'hop_latency'"),
        ),
        Panel(
            "Events", "Events in the time range. De-duplicated: two collectors that receive the same report count once.", "short", "stat", width=6,
            clickhouse=f"SELECT sum(copies) AS value\nFROM (\n  {copies('', '', 'events')})",
        ),
        Panel(
            "Reports lost in the network", "Share of the reports that switches sent and that never arrived, in the range of a step.", "percentunit", "stat", width=6,
            prometheus=prometheus(
                f"sum({rate('hopwise_drops_total', NETWORK)}) / sum({rate('hopwise_stage_in_total', NETWORK)})"
            ),
        ),
        Panel(
            "Reports lost in the network", "Reports that switches sent and that never arrived.", "short", "stat", width=6,
            clickhouse=one("sum(lost)", "losses"),
        ),
        Panel(
            "Events by kind", "Significant changes, rules, path changes, dropped packets.", "suffix:events/s", stacked=True,
            prometheus=prometheus(f"sum by (kind) ({rate('hopwise_events_total')})", "{{kind}}"),
            clickhouse=records_over_time("events", "kind"),
        ),
        Panel(
            "Hop latency, 99th percentile", "Time inside a node.", "s",
            prometheus=prometheus(named(f"hopwise_hop_latency_p99_seconds{{{OURS}}}"), BY_NODE),
            clickhouse=rollups("hop_latency", NODE_TEXT, "max(p99) / 1e9"),
        ),
        Panel(
            "Longest queue by node", "Largest occupancy of the queues of a node, in the unit of the device.", "short",
            prometheus=prometheus(named(f"max by (instance, node) (hopwise_queue_occupancy{{{OURS}}})"), BY_NODE),
            clickhouse=rollups("queue_occupancy", NODE_TEXT, "max(max)"),
        ),
        Panel(
            "Busiest link by node", "Largest utilization of the egress links of a node.", "percentunit",
            prometheus=prometheus(named(f"max by (instance, node) (hopwise_link_utilization_ratio{{{OURS}}})"), BY_NODE),
            clickhouse=rollups("link_utilization", NODE_TEXT, "max(max) / 1e6"),
        ),
        Panel(
            "Packets dropped by switches", "Reports of dropped packets.", "suffix:packets/s",
            prometheus=prometheus(f"sum by (instance) ({rate('hopwise_drop_reports_total')})", "{{instance}}"),
            clickhouse=records_over_time("drops", NODE_TEXT),
        ),
        Panel(
            "Paths", "New paths, changes and loops.", "suffix:events/s",
            prometheus=prometheus(f"sum by (kind) ({of_kind('path_.*')})", "{{kind}}"),
            clickhouse=records_over_time("events", "kind", "metric = 'flow_path'"),
        ),
    ),
)

FLOW_BOARD = Board(
    "flow",
    "hopwise: flows",
    "Latency and path of flows. Metrics are never per flow, so that single flows are in ClickHouse, in the API and in hopwise's own store only.",
    (
        Panel(
            "Flows known", "Entries of the table of flows.", "short",
            prometheus=prometheus(f'hopwise_table_entries{{{OURS}, table="flows"}}', "{{instance}}"),
        ),
        Panel(
            "New values and changes", "Events of kind new and change: flows, paths and nodes seen for the first time, and significant changes.", "suffix:events/s",
            prometheus=prometheus(f"sum by (kind) ({of_kind('new|change|latest')})", "{{kind}}"),
        ),
        Panel(
            "Path changes and loops", "Flows that took another path, and paths with a node twice.", "suffix:events/s",
            prometheus=prometheus(f"sum by (kind) ({of_kind('path_.*')})", "{{kind}}"),
        ),
        Panel(
            "Rules", "Rules that became true (rule_on) and false (rule_off) for a flow.", "suffix:events/s",
            prometheus=prometheus(f"sum by (kind) ({of_kind('rule_.*')})", "{{kind}}"),
        ),
        Panel(
            "Flows without room", "Flows evicted from, or refused by, a full table of flows.", "suffix:flows/s",
            prometheus=(
                Query(rate("hopwise_table_evicted_total", OURS + ', table="flows"'), "{{instance}} evicted"),
                Query(rate("hopwise_table_refused_total", OURS + ', table="flows"'), "{{instance}} refused"),
            ),
        ),
        Panel(
            "Truncated paths", "Flows whose path is truncated now, because the table of hops was full.", "short",
            prometheus=prometheus(f"hopwise_truncated_flows{{{OURS}}}", "{{instance}}"),
        ),
        Panel(
            "Flow latency, mean", "Mean of a minute, of the ten flows with the largest one.", "s",
            clickhouse=(
                "SELECT $__timeInterval(ts) AS time, flow AS series, sum(sum) / sum(count) / 1e9 AS value\n"
                "FROM ${database}.rollups FINAL\n"
                f"WHERE $__timeFilter(ts) AND {COLLECTORS} AND metric = 'flow_latency' AND interval = 60 AND flow IN (\n"
                "  SELECT flow FROM ${database}.rollups\n"
                f"  WHERE $__timeFilter(ts) AND {COLLECTORS} AND metric = 'flow_latency' AND interval = 60 AND {FLOW}\n"
                "  GROUP BY flow ORDER BY max(max) DESC LIMIT 10)\n"
                "GROUP BY time, series ORDER BY time"
            ),
        ),
        Panel(
            "Flow latency, largest", "Largest of a minute, of the ten flows with the largest one.", "s",
            clickhouse=(
                "SELECT $__timeInterval(ts) AS time, flow AS series, max(max) / 1e9 AS value\n"
                "FROM ${database}.rollups FINAL\n"
                f"WHERE $__timeFilter(ts) AND {COLLECTORS} AND metric = 'flow_latency' AND interval = 60 AND flow IN (\n"
                "  SELECT flow FROM ${database}.rollups\n"
                f"  WHERE $__timeFilter(ts) AND {COLLECTORS} AND metric = 'flow_latency' AND interval = 60 AND {FLOW}\n"
                "  GROUP BY flow ORDER BY max(max) DESC LIMIT 10)\n"
                "GROUP BY time, series ORDER BY time"
            ),
        ),
        Panel(
            "Flows", "Flows by their largest latency.", "s", "table", width=24, columns={"reports": "short", "flow": "string"},
            clickhouse=(
                "SELECT flow, sum(count) AS reports, sum(sum) / sum(count) / 1e9 AS mean, min(min) / 1e9 AS smallest, max(max) / 1e9 AS largest\n"
                "FROM ${database}.rollups FINAL\n"
                f"WHERE $__timeFilter(ts) AND {COLLECTORS} AND metric = 'flow_latency' AND interval = 60 AND {FLOW}\n"
                "GROUP BY flow ORDER BY largest DESC LIMIT 100"
            ),
        ),
        Panel(
            "Paths", "New paths and path changes, newest first.", "string", "table", width=24, columns={"time": "dateTimeAsIso"},
            clickhouse=(
                "SELECT ts AS time, kind, flow, arrayStringConcat(path, ' > ') AS path, basis\n"
                "FROM ${database}.events\n"
                f"WHERE $__timeFilter(ts) AND {COLLECTORS} AND metric = 'flow_path' AND {FLOW}\n"
                "ORDER BY ts DESC LIMIT 1 BY id LIMIT 200"
            ),
        ),
        Panel(
            "Rules", "When rules became true and false for a flow, newest first.", "string", "table", columns={"time": "dateTimeAsIso"},
            clickhouse=(
                "SELECT ts AS time, rule, kind, flow\n"
                "FROM ${database}.events\n"
                f"WHERE $__timeFilter(ts) AND {COLLECTORS} AND kind IN ('rule_on', 'rule_off') AND {FLOW}\n"
                "ORDER BY ts DESC LIMIT 1 BY id LIMIT 200"
            ),
        ),
        Panel(
            "Dropped packets", "Flows by the number of packets of theirs that switches dropped.", "short", "table", columns={"flow": "string", "node": "string", "last": "dateTimeAsIso"},
            clickhouse=(
                "SELECT flow, node, sum(copies) AS packets, max(last) AS last\n"
                f"FROM (\n  {copies(f'flow AS flow, {NODE_TEXT} AS node', f' AND {FLOW}', 'drops')})\n"
                "GROUP BY flow, node ORDER BY packets DESC LIMIT 100"
            ),
        ),
    ),
    (Variable("flow", "Flow contains", "A part of the flow's text, such as 10.0.1.1: or :443/6", text_for="clickhouse"),),
)

NODE_BOARD = Board(
    "node",
    "hopwise: nodes and queues",
    "Latency, queues and links of the chosen nodes.",
    (
        Panel(
            "Hop latency, median", "Time inside a node.", "s",
            prometheus=prometheus(named(f"hopwise_hop_latency_median_seconds{{{NODE}}}"), BY_NODE),
            clickhouse=rollups("hop_latency", NODE_TEXT, "quantileExact(p50) / 1e9", NODES),
        ),
        Panel(
            "Hop latency, 99th percentile", "Time inside a node.", "s",
            prometheus=prometheus(named(f"hopwise_hop_latency_p99_seconds{{{NODE}}}"), BY_NODE),
            clickhouse=rollups("hop_latency", NODE_TEXT, "max(p99) / 1e9", NODES),
        ),
        Panel(
            "Queue occupancy", "Latest (Prometheus) or largest (ClickHouse) occupancy, in the unit of the device.", "short", width=24,
            prometheus=prometheus(named(f"hopwise_queue_occupancy{{{NODE}}}"), "{{name}} {{node}} interface {{interface}} queue {{queue}}"),
            clickhouse=rollups("queue_occupancy", f"concat(toString(node), ' interface ', {as_text('interface')}, ' queue ', {as_text('queue')})", "max(max)", NODES),
        ),
        Panel(
            "Link utilization", "Latest (Prometheus) or largest (ClickHouse) utilization of an egress link.", "percentunit", width=24,
            prometheus=prometheus(named(f"hopwise_link_utilization_ratio{{{NODE}}}"), "{{name}} {{node}} interface {{interface}}"),
            clickhouse=rollups("link_utilization", "concat(toString(node), ' interface ', toString(interface))", "max(max) / 1e6", NODES),
        ),
        Panel(
            "Reports lost", "Reports of a node that never arrived.", "suffix:reports/s",
            prometheus=prometheus(named(f"sum by (instance, node) ({rate('hopwise_source_lost_total', NODE)})"), BY_NODE),
            clickhouse=over_time("losses", NODE_TEXT, "sum(lost) / $__interval_s", NODES),
        ),
        Panel(
            "Packets dropped", "Reports of packets that the node dropped, by reason.", "suffix:packets/s",
            clickhouse=records_over_time("drops", f"concat({NODE_TEXT}, ' reason ', ifNull(toString(reason), '?'))", NODES),
        ),
        Panel(
            "Longest queues", "Queues by their occupancy now.", "short", "table", columns={"node": "string", "interface": "string", "queue": "string", "name": "string"},
            prometheus=prometheus(f"topk(20, {named(f'hopwise_queue_occupancy{{{NODE}}}')})", "occupancy"),
        ),
        Panel(
            "Longest queues", "Queues by their largest occupancy in the time range.", "short", "table", columns={"node": "string", "interface": "string", "queue": "string"},
            clickhouse=(
                f"SELECT {NODE_TEXT} AS node, {as_text('interface')} AS interface, {as_text('queue')} AS queue, max(max) AS largest, sum(sum) / sum(count) AS mean\n"
                "FROM ${database}.rollups FINAL\n"
                f"WHERE $__timeFilter(ts) AND {COLLECTORS} AND metric = 'queue_occupancy' AND {INTERVAL} AND {NODES}\n"
                "GROUP BY node, interface, queue ORDER BY largest DESC LIMIT 20"
            ),
        ),
        Panel(
            "Busiest links", "Links by their utilization now.", "percentunit", "table", columns={"node": "string", "interface": "string", "name": "string"},
            prometheus=prometheus(f"topk(20, {named(f'hopwise_link_utilization_ratio{{{NODE}}}')})", "utilization"),
        ),
        Panel(
            "Events", "Significant changes at the nodes, newest first. Values: ns, device units, millionths of the link rate.", "short", "table", columns={"time": "dateTimeAsIso", "node": "string", "interface": "string", "queue": "string"},
            clickhouse=(
                f"SELECT ts AS time, kind, metric, {NODE_TEXT} AS node, {as_text('interface')} AS interface, {as_text('queue')} AS queue, previous, value\n"
                "FROM ${database}.events\n"
                f"WHERE $__timeFilter(ts) AND {COLLECTORS} AND metric IN ('hop_latency', 'queue_occupancy', 'queue_congestion', 'link_utilization') AND {NODES}\n"
                "ORDER BY ts DESC LIMIT 1 BY id LIMIT 200"
            ),
        ),
    ),
    (
        Variable(
            "node", "Node", "Node ids",
            f"label_values(hopwise_hop_latency_p99_seconds{{{OURS}}}, node)",
            "SELECT DISTINCT node FROM ${database}.rollups WHERE metric = 'hop_latency' ORDER BY node",
        ),
    ),
)

LOSS = Board(
    "loss",
    "hopwise: loss budget",
    "Every report that was sent is received, or counted as lost at a stage, with a reason: in = out + drops + queued.",
    (
        Panel(
            "Stages", "What entered and left each stage since the start.", "short", "table", width=24, columns={"stage": "string", "unit": "string", "instance": "string"},
            prometheus=(
                Query(f"sum by (instance, stage, unit) (hopwise_stage_in_total{{{OURS}}})", "in"),
                Query(f"sum by (instance, stage, unit) (hopwise_stage_out_total{{{OURS}}})", "out"),
                Query(
                    f"sum by (instance, stage, unit) (hopwise_stage_in_total{{{OURS}}} - hopwise_stage_out_total{{{OURS}}} - hopwise_stage_queued{{{OURS}}})",
                    "dropped",
                ),
                Query(f"sum by (instance, stage, unit) (hopwise_stage_queued{{{OURS}}})", "queued"),
            ),
        ),
        Panel(
            "Losses by stage and reason", "All but the network: lost on this machine, or inside hopwise.", "suffix:units/s",
            prometheus=prometheus(
                f"sum by (instance, stage, reason) ({rate('hopwise_drops_total', HERE)})", "{{instance}} {{stage}} {{reason}}"
            ),
        ),
        Panel(
            "Reports lost in the network", "Missing in the reporters' sequence numbers, by node.", "suffix:reports/s",
            prometheus=prometheus(named(f"sum by (instance, node) ({rate('hopwise_source_lost_total')})"), BY_NODE),
            clickhouse=over_time("losses", NODE_TEXT, "sum(lost) / $__interval_s"),
        ),
        Panel(
            "Share lost in the network", "Of the datagrams that switches sent.", "percentunit",
            prometheus=prometheus(
                f"sum by (instance) ({rate('hopwise_drops_total', NETWORK)}) / sum by (instance) ({rate('hopwise_stage_in_total', NETWORK)})",
                "{{instance}}",
            ),
        ),
        Panel(
            "Reordered reports", "By node.", "suffix:reports/s",
            prometheus=prometheus(named(f"sum by (instance, node) ({rate('hopwise_source_reordered_total')})"), BY_NODE),
            clickhouse=over_time("losses", NODE_TEXT, "sum(reordered) / $__interval_s"),
        ),
        Panel(
            "Duplicated reports", "By node.", "suffix:reports/s",
            prometheus=prometheus(named(f"sum by (instance, node) ({rate('hopwise_source_duplicated_total')})"), BY_NODE),
            clickhouse=over_time("losses", NODE_TEXT, "sum(duplicated) / $__interval_s"),
        ),
        Panel(
            "Refused reports", "Reports, or remainders of datagrams, that could not be decoded, by reason.", "suffix:reports/s",
            prometheus=prometheus(f"sum by (instance, reason) ({rate('hopwise_reports_refused_total')})", "{{instance}} {{reason}}"),
        ),
        Panel(
            "Not countable", "Reporters whose losses are unknown, because their sequence number is constant.", "short",
            prometheus=prometheus(f"hopwise_sources_uncountable{{{OURS}}}", "{{instance}}"),
        ),
        Panel(
            "Unconfirmed losses", "Datagrams missing in sequences, and not counted as lost, because the datagrams received do not support it.", "short",
            prometheus=prometheus(f"hopwise_unconfirmed_losses{{{OURS}}}", "{{instance}}"),
        ),
        Panel(
            "Sources", "What is missing of each reporter in the time range, by the collector that noticed it.", "short", "table", width=24, columns={"node": "string", "source": "string", "collector": "string", "last": "dateTimeAsIso"},
            clickhouse=(
                f"SELECT collector, {NODE_TEXT} AS node, toString(source) AS source, sum(lost) AS lost, sum(reordered) AS reordered, sum(duplicated) AS duplicated, max(ts) AS last\n"
                "FROM ${database}.losses\n"
                f"WHERE $__timeFilter(ts) AND {COLLECTORS}\n"
                "GROUP BY collector, node, source ORDER BY lost DESC LIMIT 100"
            ),
        ),
    ),
)

TABLES = ("events", "rollups", "drops", "losses")
EACH_TABLE = "\n  UNION ALL ".join(
    f"SELECT '{table}' AS stream, collector, ts, id FROM ${{database}}.{table} WHERE $__timeFilter(ts) AND {COLLECTORS}" for table in TABLES
)

HEALTH = Board(
    "health",
    "hopwise: collectors",
    "Whether the collectors themselves are well: input, tables, store, exports, processor and memory.",
    (
        Panel(
            "Uptime", "Time since the start.", "s", "stat", width=6,
            prometheus=prometheus(f"hopwise_uptime_seconds{{{OURS}}}", "{{instance}}"),
        ),
        Panel(
            "Inputs down", "Inputs that cannot be opened.", "short", "stat", width=6,
            prometheus=prometheus(f"sum by (instance) (1 - hopwise_input_up{{{OURS}}})", "{{instance}}"),
        ),
        Panel(
            "Store", "1 while the store works.", "bool_on_off", "stat", width=6,
            prometheus=prometheus(f"min by (instance) (hopwise_store_up{{{OURS}}})", "{{instance}}"),
        ),
        Panel(
            "Last commit", "Time since the store committed records.", "s", "stat", width=6,
            prometheus=prometheus(f"time() - hopwise_store_last_commit_seconds{{{OURS}}}", "{{instance}}"),
        ),
        Panel(
            "Datagrams received", "By input.", "pps",
            prometheus=prometheus(rate("hopwise_input_datagrams_total"), "{{instance}} {{listen}}"),
        ),
        Panel(
            "Bytes received", "Payload, by input.", "Bps",
            prometheus=prometheus(rate("hopwise_input_bytes_total"), "{{instance}} {{listen}}"),
        ),
        Panel(
            "Processor", "Cores in use.", "suffix:cores",
            prometheus=prometheus(rate("process_cpu_seconds_total"), "{{instance}}"),
        ),
        Panel(
            "Memory", "Resident.", "bytes",
            prometheus=prometheus(f"process_resident_memory_bytes{{{OURS}}}", "{{instance}}"),
        ),
        Panel(
            "Tables", "Share of the entries in use. A full table evicts or refuses.", "percentunit",
            prometheus=prometheus(f"hopwise_table_entries{{{OURS}}} / hopwise_table_capacity{{{OURS}}}", "{{instance}} {{table}}"),
        ),
        Panel(
            "Entries without room", "Evicted from, or refused by, a full table.", "suffix:entries/s",
            prometheus=prometheus(
                f"sum by (instance, table) ({rate('hopwise_table_evicted_total')} + {rate('hopwise_table_refused_total')})", "{{instance}} {{table}}"
            ),
        ),
        Panel(
            "Records stored", "Committed by the store.", "suffix:records/s",
            prometheus=prometheus(rate("hopwise_store_committed_total"), "{{instance}}"),
        ),
        Panel(
            "Size of the store", "All files.", "bytes",
            prometheus=prometheus(f"hopwise_store_bytes{{{OURS}}}", "{{instance}}"),
        ),
        Panel(
            "Queue before the disk", "Bytes of records that wait for the disk.", "bytes",
            prometheus=prometheus(f"hopwise_store_queue_bytes{{{OURS}}}", "{{instance}}"),
        ),
        Panel(
            "Live stream", "Events that slow clients of the live stream did not get.", "suffix:events/s",
            prometheus=prometheus(rate("hopwise_stream_events_shed_total"), "{{instance}}"),
        ),
        Panel(
            "Exports: delivered", "Records that the other system has stored.", "suffix:records/s",
            prometheus=prometheus(rate("hopwise_export_delivered_total"), "{{instance}} {{export}} {{stream}}"),
        ),
        Panel(
            "Exports: waiting", "Records in the store that are not settled yet.", "short",
            prometheus=prometheus(f"hopwise_export_waiting{{{OURS}}}", "{{instance}} {{export}} {{stream}}"),
        ),
        Panel(
            "Exports: failures", "Requests that failed, timed out, or were refused.", "reqps",
            prometheus=prometheus(
                f"sum by (instance, export, stream) ({rate('hopwise_export_requests_failed_total')} + {rate('hopwise_export_requests_timed_out_total')}"
                f" + {rate('hopwise_export_requests_refused_total')} + {rate('hopwise_export_requests_unauthorised_total')})",
                "{{instance}} {{export}} {{stream}}",
            ),
        ),
        Panel(
            "Exports: lost", "Records that the store deleted before they were sent, and records that the other system will never take.", "short",
            prometheus=(
                Query(f"hopwise_export_expired_total{{{OURS}}}", "{{instance}} {{export}} {{stream}} expired"),
                Query(f"hopwise_export_rejected_total{{{OURS}}}", "{{instance}} {{export}} {{stream}} rejected"),
            ),
        ),
        Panel(
            "Records by collector", "Rows by the time of the record.", "suffix:records/s", stacked=True,
            clickhouse=(
                "SELECT $__timeInterval(ts) AS time, collector AS series, count() / $__interval_s AS value\n"
                f"FROM (\n  {EACH_TABLE})\nGROUP BY time, series ORDER BY time"
            ),
        ),
        Panel(
            "Records by stream", "Rows by the time of the record.", "suffix:records/s", stacked=True,
            clickhouse=(
                "SELECT $__timeInterval(ts) AS time, stream AS series, count() / $__interval_s AS value\n"
                f"FROM (\n  {EACH_TABLE})\nGROUP BY time, series ORDER BY time"
            ),
        ),
        Panel(
            "Collectors", "Rows in the time range, those that are there twice (two collectors, or a replay), and the age of the newest one.", "short", "table", width=24,
            columns={"age": "s", "collector": "string", "stream": "string", "newest": "dateTimeAsIso"},
            clickhouse=(
                "SELECT collector, stream, count() AS rows, count() - uniqExact(id, ts) AS twice, max(ts) AS newest, dateDiff('second', max(ts), now()) AS age\n"
                f"FROM (\n  {EACH_TABLE})\nGROUP BY collector, stream ORDER BY collector, stream"
            ),
        ),
        Panel(
            "Size of the tables", "On disk, compressed.", "bytes", "table", width=24, columns={"rows": "short", "table": "string", "parts": "short"},
            clickhouse=(
                "SELECT table, sum(rows) AS rows, count() AS parts, sum(data_compressed_bytes) AS compressed, sum(data_uncompressed_bytes) AS uncompressed\n"
                "FROM system.parts WHERE active AND database = ${database:sqlstring} GROUP BY table ORDER BY compressed DESC"
            ),
        ),
    ),
)

BOARDS = (OVERVIEW, FLOW_BOARD, NODE_BOARD, LOSS, HEALTH)

# Every board has these.
INSTANCE = Variable("instance", "Collector", "Collectors, as Prometheus names them", prometheus="label_values(hopwise_info, instance)")
DATABASE = Variable("database", "Database", "The database of [exports.NAME]", text_for="clickhouse")
COLLECTOR = Variable(
    "collector", "Collector", "Collectors, by their names",
    clickhouse="SELECT DISTINCT collector FROM ${database}.events ORDER BY collector",
)
