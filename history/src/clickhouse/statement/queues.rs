//! SQL statements for heat maps, and for drops and packets at one node.

use collector::Location;
use export::sink::clickhouse::ABSENT;
use store::{HeatFilter, QueueFilter};

use super::{super::DUPLICATE_SPAN, Statement};

const MINUTE: u64 = 60_000_000_000;

impl Statement {
    /// Selects the maximum of each series in each column of a heat map, for the series with the largest values, and the number
    /// of all series.
    pub(in super::super) fn heat(mut self, filter: &HeatFilter) -> Self {
        let interval = filter.interval.min(60);
        self.equal("metric", "String", Some(filter.metric.name().to_owned()));
        let Location {
            node,
            interface,
            queue,
        } = filter.location;
        for (column, value) in [
            ("node", node),
            ("interface", interface),
            ("queue", queue.map(u32::from)),
        ] {
            self.equal(column, "UInt32", value.map(|value| value.to_string()));
        }
        self.terms.push(format!("flow = '' AND node != {ABSENT}"));
        let latest = self.time("ts >=", filter.latest());
        let seconds_term = if interval > 1 {
            format!(" OR interval = 1 AND {latest}")
        } else {
            String::new()
        };
        self.terms.push(format!("(interval = {interval}{seconds_term})"));
        self.range(Some(filter.from), Some(filter.to));
        let summed = self.summed();
        let limit = filter.limit;
        let from = filter.from;
        let column = filter.column.max(1);
        let key = "node, interface, queue";
        self.text = format!(
            "SELECT {key}, max(cell_max) AS worst, sum(cell_count) AS values, groupArray((cell_index, cell_max)) AS cells, count() OVER () AS total \
             FROM (SELECT {key}, intDiv(toUnixTimestamp64Nano(ts) - {from}, {column}) AS cell_index, max(most) AS cell_max, \
             sumIf(values, interval = {interval}) AS cell_count FROM ({summed}) GROUP BY {key}, cell_index) GROUP BY {key} \
             ORDER BY worst DESC, node, interface != {ABSENT}, interface, queue != {ABSENT}, queue LIMIT {limit}"
        );
        self.in_rows()
    }

    /// Selects the dropped packets at a node, the newest first.
    pub(in super::super) fn drops_at(mut self, filter: &QueueFilter, limit: usize) -> Self {
        self.equal("node", "UInt32", Some(filter.node.to_string()));
        self.range(Some(filter.from), Some(filter.to));
        let numbered = self.numbered("ts DESC");
        self.text = format!(
            "SELECT toUnixTimestamp64Nano(ts) AS time, id, flow, ingress_if, egress_if, queue, reason FROM ({numbered}) \
             ORDER BY ts DESC, id LIMIT 1 BY id, nth LIMIT {limit}"
        );
        self.in_rows()
    }

    /// Selects the packets that passed a queue in time order, each with the path of its report, as far as hops are stored.
    pub(in super::super) fn passages(mut self, filter: &QueueFilter) -> Self {
        self.equal("node", "UInt32", Some(filter.node.to_string()));
        for (column, value) in filter.columns("egress_if") {
            if let Some(value) = value {
                let value = self.value("UInt32", value.to_string());
                self.terms.push(format!("{column} IN ({value}, {ABSENT})"));
            }
        }
        self.range(Some(filter.from), Some(filter.to));
        let earliest = self.time("ts >=", filter.from.saturating_sub(DUPLICATE_SPAN));
        let latest = self.time("ts <", filter.to.saturating_add(DUPLICATE_SPAN));
        let around = format!("{earliest} AND {latest}");
        let table = &self.table;
        let numbered = self.numbered("ts");
        let limit = filter.limit.saturating_add(1);
        // Both collectors of a pair store each hop under the same ID.
        let values = "ts, id, report, flow, queue, egress_if, hop_latency, queue_occupancy, egress_ts";
        let selected =
            format!("SELECT {values} FROM ({numbered}) ORDER BY ts, id LIMIT 1 BY id, nth LIMIT {limit}");
        self.text = format!(
            "SELECT toUnixTimestamp64Nano(found.ts) AS time, found.flow AS flow, found.queue AS queue, found.egress_if AS egress_if, \
             found.hop_latency AS hop_latency, found.queue_occupancy AS queue_occupancy, found.egress_ts AS egress_ts, paths.path AS path \
             FROM ({selected}) AS found LEFT JOIN (SELECT report, if(max(hops) = 0, [], arrayMap(entry -> entry.2, arraySort(groupUniqArray((hop, node))))) AS path \
             FROM {table} WHERE {around} AND report IN (SELECT report FROM ({selected})) GROUP BY report) AS paths \
             ON found.report = paths.report ORDER BY found.ts, found.id"
        );
        self.in_rows()
    }

    /// Selects the collectors that measured something at a node.
    pub(in super::super) fn collectors_of(mut self, filter: &QueueFilter, limit: usize) -> Self {
        self.terms.push(
            "metric IN ('hop_latency', 'queue_occupancy', 'queue_congestion', 'link_utilization') AND flow = ''"
                .to_owned(),
        );
        self.equal("node", "UInt32", Some(filter.node.to_string()));
        // A rollup's time is its start.
        self.range(Some(filter.from.saturating_sub(MINUTE)), Some(filter.to));
        let source = self.source();
        self.text =
            format!("SELECT DISTINCT toString(collector) AS name FROM {source} ORDER BY name LIMIT {limit}");
        self.in_rows()
    }

    /// Counts the tables with this table's name: 0 or 1.
    pub(in super::super) fn exists(mut self) -> Self {
        let table = self.table.clone();
        let (database, name) = table.split_once('.').unwrap_or(("", &table));
        self.equal("database", "String", Some(database.to_owned()));
        self.equal("name", "String", Some(name.to_owned()));
        self.text = format!(
            "SELECT count() AS amount FROM system.tables{}",
            self.where_clause()
        );
        self.in_rows()
    }
}
