//! SQL statements for drops, lost reports and link ends.

use export::sink::clickhouse::ABSENT;
use store::Span;

use super::{Statement, part};

impl Statement {
    /// Counts the dropped packets of a time span by location and reason, most packets first, for at most `limit` + 1 locations.
    pub(in super::super) fn drop_locations(mut self, span: Span, limit: usize) -> Self {
        self.range(Some(span.from()), Some(span.to()));
        let limit = limit + 1;
        let location = "node, egress_if, queue, reason";
        let values = [
            ["any", "flow", "of_flow"],
            ["min", "ts", "earliest"],
            ["max", "ts", "latest"],
        ];
        let each = self.each_once(location, location, &values);
        self.text = format!(
            "SELECT {location}, sum(copies) AS packets, uniqExactIf(of_flow, of_flow != '') AS flows, \
             toUInt64(toUnixTimestamp64Nano(min(earliest))) AS first, toUInt64(toUnixTimestamp64Nano(max(latest))) AS last \
             FROM ({each}) GROUP BY {location} ORDER BY packets DESC, {location} LIMIT {limit}"
        );
        self.in_rows()
    }

    /// Counts lost reports by time column.
    pub(in super::super) fn losses(mut self, span: Span, column: u64) -> Self {
        let lost = self.lost(span, &format!("{} AS key", part(span, column)));
        self.text = format!("SELECT key, sum(piece_lost) AS amount FROM ({lost}) GROUP BY key ORDER BY key");
        self.in_rows()
    }

    /// Counts the lost reports of a time span by reporter, for at most `limit` + 1 nodes.
    pub(in super::super) fn reporters(mut self, span: Span, limit: usize) -> Self {
        let lost = self.lost(span, "0 AS key");
        let limit = limit + 1;
        self.text = format!(
            "SELECT node, sum(piece_lost) AS lost, sum(piece_duplicated) AS duplicated FROM ({lost}) GROUP BY node ORDER BY lost DESC, node LIMIT {limit}"
        );
        self.in_rows()
    }

    /// Returns SQL for the lost reports of each sender by time column. Each collector of a pair counts its own gaps, and the
    /// larger count is used.
    fn lost(&mut self, span: Span, key: &str) -> String {
        self.range(Some(span.from()), Some(span.to()));
        let representative = self.representative();
        let source = self.source();
        let sender = "key, node, source, hw_id";
        format!(
            "SELECT {key}, node, source, hw_id, {representative} AS representative, sum(piece.lost) AS piece_lost, \
             sum(piece.duplicated) AS piece_duplicated \
             FROM (SELECT * FROM {source} LIMIT 1 BY id, collector) AS piece \
             GROUP BY {sender}, collector ORDER BY piece_lost DESC, piece_duplicated DESC LIMIT 1 BY {sender}, representative"
        )
    }

    /// Selects the interfaces at both ends of links, from the latest hops of a time span.
    pub(in super::super) fn ends(mut self, span: Span, hops: usize, links: usize) -> Self {
        // Exclude SF-INT records (0 hops), which do not form a path.
        self.terms.push("hops > 1".to_owned());
        self.range(Some(span.from()), Some(span.to()));
        let source = self.source();
        let limit = links + 1;
        self.text = format!(
            "SELECT (ends.1).2 AS sender, (ends.2).2 AS receiver, argMax((ends.1).4, latest) AS egress_if, \
             argMax((ends.2).3, latest) AS ingress_if \
             FROM (SELECT max(ts) AS latest, arraySort(entry -> entry.1, groupUniqArray((hop, node, ingress_if, egress_if))) AS hops \
             FROM (SELECT report, ts, hop, node, ingress_if, egress_if FROM {source} ORDER BY ts DESC LIMIT {hops}) GROUP BY report) \
             ARRAY JOIN arrayZip(arrayPopBack(hops), arrayPopFront(hops)) AS ends \
             WHERE (ends.1).1 + 1 = (ends.2).1 AND (ends.1).2 != {ABSENT} AND (ends.2).2 != {ABSENT} GROUP BY sender, receiver \
             ORDER BY sender, receiver LIMIT {limit}"
        );
        self.in_rows()
    }

    /// Counts the rows of a span, at most `limit` + 1.
    pub(in super::super) fn row_count(mut self, span: Span, limit: usize) -> Self {
        self.range(Some(span.from()), Some(span.to()));
        let source = self.source();
        let limit = limit + 1;
        self.text = format!("SELECT count() AS amount FROM (SELECT ts FROM {source} LIMIT {limit})");
        self.in_rows()
    }
}
