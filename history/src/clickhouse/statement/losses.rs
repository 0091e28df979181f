//! SQL statements for drops, lost reports and link ends.

use export::sink::clickhouse::ABSENT;
use store::Span;

use super::{Statement, part};

impl Statement {
    /// Counts the dropped packets of a time span by location and reason, most packets first, for at most `most` + 1 locations.
    pub(in super::super) fn drop_places(mut self, span: Span, most: usize) -> Self {
        self.range(Some(span.from()), Some(span.to()));
        let most = most + 1;
        let place = "node, egress_if, queue, reason";
        let values = [
            ["any", "flow", "of_flow"],
            ["min", "ts", "earliest"],
            ["max", "ts", "latest"],
        ];
        let each = self.each_once(place, place, &values);
        self.text = format!(
            "SELECT {place}, sum(copies) AS packets, uniqExactIf(of_flow, of_flow != '') AS flows, \
             toUInt64(toUnixTimestamp64Nano(min(earliest))) AS first, toUInt64(toUnixTimestamp64Nano(max(latest))) AS last \
             FROM ({each}) GROUP BY {place} ORDER BY packets DESC, {place} LIMIT {most}"
        );
        self.in_rows()
    }

    /// Counts lost reports by time column.
    pub(in super::super) fn losses(mut self, span: Span, column: u64) -> Self {
        let lost = self.lost(span, &format!("{} AS of", part(span, column)));
        self.text = format!("SELECT of, sum(a) AS n FROM ({lost}) GROUP BY of ORDER BY of");
        self.in_rows()
    }

    /// Counts the lost reports of a time span by reporter, for at most `most` + 1 nodes.
    pub(in super::super) fn reporters(mut self, span: Span, most: usize) -> Self {
        let lost = self.lost(span, "0 AS of");
        let most = most + 1;
        self.text = format!(
            "SELECT node, sum(a) AS lost, sum(b) AS duplicated FROM ({lost}) GROUP BY node ORDER BY lost DESC, node LIMIT {most}"
        );
        self.in_rows()
    }

    /// Returns SQL for the lost reports of each sender by time column. Each collector of a pair counts its own gaps, and the
    /// larger count is used.
    fn lost(&mut self, span: Span, of: &str) -> String {
        self.range(Some(span.from()), Some(span.to()));
        let whose = self.whose();
        let source = self.source();
        let sender = "of, node, source, hw_id";
        format!(
            "SELECT {of}, node, source, hw_id, {whose} AS whose, sum(piece.lost) AS a, sum(piece.duplicated) AS b \
             FROM (SELECT * FROM {source} LIMIT 1 BY id, collector) AS piece \
             GROUP BY {sender}, collector ORDER BY a DESC, b DESC LIMIT 1 BY {sender}, whose"
        )
    }

    /// Selects the interfaces at both ends of links, from the latest hops of a time span.
    pub(in super::super) fn ends(mut self, span: Span, hops: usize, links: usize) -> Self {
        // Exclude SF-INT records (0 hops), which do not form a path.
        self.terms.push("hops > 1".to_owned());
        self.range(Some(span.from()), Some(span.to()));
        let source = self.source();
        let most = links + 1;
        self.text = format!(
            "SELECT (ends.1).2 AS sender, (ends.2).2 AS receiver, argMax((ends.1).4, latest) AS egress_if, \
             argMax((ends.2).3, latest) AS ingress_if \
             FROM (SELECT max(ts) AS latest, arraySort(one -> one.1, groupUniqArray((hop, node, ingress_if, egress_if))) AS hops \
             FROM (SELECT report, ts, hop, node, ingress_if, egress_if FROM {source} ORDER BY ts DESC LIMIT {hops}) GROUP BY report) \
             ARRAY JOIN arrayZip(arrayPopBack(hops), arrayPopFront(hops)) AS ends \
             WHERE (ends.1).1 + 1 = (ends.2).1 AND (ends.1).2 != {ABSENT} AND (ends.2).2 != {ABSENT} GROUP BY sender, receiver \
             ORDER BY sender, receiver LIMIT {most}"
        );
        self.in_rows()
    }

    /// Counts the rows of a span, at most `most` + 1.
    pub(in super::super) fn rows_of(mut self, span: Span, most: usize) -> Self {
        self.range(Some(span.from()), Some(span.to()));
        let source = self.source();
        let most = most + 1;
        self.text = format!("SELECT count() AS n FROM (SELECT ts FROM {source} LIMIT {most})");
        self.in_rows()
    }
}
