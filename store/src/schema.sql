-- One file of the store. Tables hold numbers; the views at the end are the documented names.
CREATE TABLE meta (name TEXT PRIMARY KEY, value) WITHOUT ROWID;

-- What repeats is kept once, under a number counted from 1.
CREATE TABLE flow_key (
  id INTEGER PRIMARY KEY, flow TEXT NOT NULL UNIQUE,
  src TEXT NOT NULL, dst TEXT NOT NULL, sport INTEGER, dport INTEGER, proto INTEGER NOT NULL
);
CREATE TABLE path_text (id INTEGER PRIMARY KEY, path TEXT NOT NULL UNIQUE);
CREATE TABLE rule_text (id INTEGER PRIMARY KEY, rule TEXT NOT NULL UNIQUE);
CREATE TABLE kind_name (id INTEGER PRIMARY KEY, kind TEXT NOT NULL UNIQUE);
CREATE TABLE metric_name (id INTEGER PRIMARY KEY, metric TEXT NOT NULL UNIQUE);
CREATE TABLE basis_name (id INTEGER PRIMARY KEY, basis TEXT NOT NULL UNIQUE);

CREATE TABLE event_data (
  ts INTEGER NOT NULL, seq INTEGER NOT NULL, chunk INTEGER NOT NULL, id INTEGER NOT NULL, kind INTEGER NOT NULL,
  metric INTEGER, flow INTEGER, node INTEGER, interface INTEGER, queue INTEGER,
  value INTEGER, previous INTEGER, threshold INTEGER, rule INTEGER, path INTEGER, reason INTEGER,
  basis INTEGER NOT NULL,
  PRIMARY KEY (ts, seq)
) WITHOUT ROWID;
-- What the report measured that showed the path of a new flow: an event has at most one such row. Hop latencies are in the order of
-- the path.
CREATE TABLE first_data (
  ts INTEGER NOT NULL, seq INTEGER NOT NULL, flow_latency INTEGER, basis INTEGER NOT NULL, hop_latencies TEXT,
  PRIMARY KEY (ts, seq)
) WITHOUT ROWID;
CREATE INDEX event_flow ON event_data (chunk, flow, ts) WHERE flow IS NOT NULL;
CREATE INDEX event_kind ON event_data (kind, ts);
CREATE INDEX event_node ON event_data (node, ts) WHERE node IS NOT NULL;

CREATE TABLE rollup_data (
  ts INTEGER NOT NULL, seq INTEGER NOT NULL, chunk INTEGER NOT NULL, interval INTEGER NOT NULL,
  metric INTEGER NOT NULL, flow INTEGER, node INTEGER, interface INTEGER, queue INTEGER,
  count INTEGER NOT NULL, min INTEGER NOT NULL, max INTEGER NOT NULL, sum INTEGER NOT NULL, p50 INTEGER, p99 INTEGER,
  PRIMARY KEY (ts, seq)
) WITHOUT ROWID;
CREATE INDEX rollup_flow ON rollup_data (chunk, flow, ts) WHERE flow IS NOT NULL;
CREATE INDEX rollup_node ON rollup_data (chunk, node, metric, interval, ts) WHERE node IS NOT NULL;

CREATE TABLE flow_data (
  flow INTEGER PRIMARY KEY, path INTEGER, flow_latency INTEGER, basis INTEGER NOT NULL,
  first_seen INTEGER NOT NULL, last_seen INTEGER NOT NULL, reports INTEGER NOT NULL, number INTEGER
);

CREATE TABLE drop_data (
  ts INTEGER NOT NULL, seq INTEGER NOT NULL, chunk INTEGER NOT NULL, id INTEGER NOT NULL,
  flow INTEGER, node INTEGER, ingress_if INTEGER, egress_if INTEGER, queue INTEGER, reason INTEGER, tunnel INTEGER,
  PRIMARY KEY (ts, seq)
) WITHOUT ROWID;
CREATE INDEX drop_flow ON drop_data (chunk, flow, ts) WHERE flow IS NOT NULL;
CREATE INDEX drop_node ON drop_data (node, ts) WHERE node IS NOT NULL;

CREATE TABLE loss_data (
  ts INTEGER NOT NULL, seq INTEGER NOT NULL, node INTEGER, source TEXT NOT NULL, hw_id INTEGER NOT NULL,
  lost INTEGER NOT NULL, reordered INTEGER NOT NULL, duplicated INTEGER NOT NULL,
  PRIMARY KEY (ts, seq)
) WITHOUT ROWID;

CREATE TABLE report_data (
  ts INTEGER NOT NULL, seq INTEGER NOT NULL, chunk INTEGER NOT NULL,
  source TEXT NOT NULL, version TEXT NOT NULL, reporter INTEGER, hw_id INTEGER NOT NULL, sequence INTEGER NOT NULL,
  flags TEXT NOT NULL, report_type INTEGER, drop_reason INTEGER, flow INTEGER, path INTEGER,
  hop INTEGER, node INTEGER, ingress_if INTEGER, egress_if INTEGER, hop_latency INTEGER, queue INTEGER,
  queue_occupancy INTEGER, ingress_ts INTEGER, egress_ts INTEGER, l2_ingress_if INTEGER, l2_egress_if INTEGER,
  tx_utilization INTEGER, buffer INTEGER, buffer_occupancy INTEGER, latency INTEGER,
  PRIMARY KEY (ts, seq)
) WITHOUT ROWID;
CREATE INDEX report_flow ON report_data (chunk, flow, ts) WHERE flow IS NOT NULL;

-- Why the reports of some time were recorded by the flight recorder: an event that they concern. Of those reports, one of so many is in
-- report_data.
CREATE TABLE recording_data (
  ts INTEGER NOT NULL, seq INTEGER NOT NULL, since INTEGER NOT NULL, until INTEGER NOT NULL, kind INTEGER NOT NULL,
  metric INTEGER, flow INTEGER, node INTEGER, interface INTEGER, queue INTEGER, value INTEGER, rule INTEGER,
  id INTEGER NOT NULL, reports INTEGER NOT NULL, every INTEGER NOT NULL, late INTEGER NOT NULL,
  PRIMARY KEY (ts, seq)
) WITHOUT ROWID;

-- Rollups of a minute, added up to ten minutes and hours as they are inserted; those of nodes, queues and links also as they are. In the order
-- in which a span of time is read. What a rollup is not about is -1.
CREATE TABLE span_data (
  interval INTEGER NOT NULL, metric INTEGER NOT NULL, ts INTEGER NOT NULL, flow INTEGER NOT NULL, node INTEGER NOT NULL,
  interface INTEGER NOT NULL, queue INTEGER NOT NULL,
  count INTEGER NOT NULL, min INTEGER NOT NULL, max INTEGER NOT NULL, sum INTEGER NOT NULL,
  PRIMARY KEY (interval, metric, ts, flow, node, interface, queue)
) WITHOUT ROWID;

-- From when on a flow took a path.
CREATE TABLE taken_data (
  flow INTEGER NOT NULL, ts INTEGER NOT NULL, path INTEGER NOT NULL,
  PRIMARY KEY (flow, ts)
) WITHOUT ROWID;

-- Events of each kind in each minute, and under the kind -1 reports of flows.
CREATE TABLE minute_data (
  ts INTEGER NOT NULL, kind INTEGER NOT NULL, count INTEGER NOT NULL,
  PRIMARY KEY (ts, kind)
) WITHOUT ROWID;

-- Events in blocks of a minute, as far as they are counted: the format is that of the module `blocks`. The minute is in the number.
CREATE TABLE block_data (id INTEGER PRIMARY KEY, count INTEGER NOT NULL, events BLOB NOT NULL);

-- In which order the records of each stream were committed: those with the numbers from `first` on, which are counted over all files
-- since `base`, lie between these times and have these sequence numbers. (For flows, the number stands in the row.)
CREATE TABLE run_data (
  stream INTEGER NOT NULL, first INTEGER NOT NULL, count INTEGER NOT NULL, base INTEGER NOT NULL,
  from_seq INTEGER NOT NULL, to_seq INTEGER NOT NULL, from_ts INTEGER NOT NULL, to_ts INTEGER NOT NULL,
  PRIMARY KEY (stream, first)
) WITHOUT ROWID;

-- The first join is on a column that is in no index: were it the kind, the planner would take that join for a filter, and
-- scan by the kind's index instead of the table, at ten times the cost.
CREATE VIEW events AS
SELECT e.ts, k.kind, m.metric, f.flow, f.src, f.dst, f.sport, f.dport, f.proto, e.node, e.interface, e.queue,
       e.value, e.previous, e.threshold, r.rule, p.path, e.reason, b.basis, printf('%016x', e.id) AS id,
       x.flow_latency, l.basis AS latency_basis, x.hop_latencies
FROM event_data e
LEFT JOIN metric_name m ON m.id = e.metric
LEFT JOIN kind_name k ON k.id = e.kind
LEFT JOIN flow_key f ON f.id = e.flow
LEFT JOIN rule_text r ON r.id = e.rule
LEFT JOIN path_text p ON p.id = e.path
LEFT JOIN basis_name b ON b.id = e.basis
LEFT JOIN first_data x ON x.ts = e.ts AND x.seq = e.seq
LEFT JOIN basis_name l ON l.id = x.basis;

CREATE VIEW rollups AS
SELECT e.ts, e.interval, m.metric, f.flow, f.src, f.dst, f.sport, f.dport, f.proto, e.node, e.interface, e.queue,
       e.count, e.min, e.max, e.sum, e.p50, e.p99
FROM rollup_data e
LEFT JOIN metric_name m ON m.id = e.metric
LEFT JOIN flow_key f ON f.id = e.flow;

CREATE VIEW flows AS
SELECT f.flow, f.src, f.dst, f.sport, f.dport, f.proto, p.path, e.flow_latency, b.basis, e.first_seen, e.last_seen,
       e.reports
FROM flow_data e
LEFT JOIN flow_key f ON f.id = e.flow
LEFT JOIN path_text p ON p.id = e.path
LEFT JOIN basis_name b ON b.id = e.basis;

CREATE VIEW drops AS
SELECT e.ts, f.flow, f.src, f.dst, f.sport, f.dport, f.proto, e.node, e.ingress_if, e.egress_if, e.queue, e.reason,
       printf('%016x', e.id) AS id, t.flow AS tunnel
FROM drop_data e
LEFT JOIN flow_key f ON f.id = e.flow
LEFT JOIN flow_key t ON t.id = e.tunnel;

CREATE VIEW losses AS
SELECT ts, node, source, hw_id, lost, reordered, duplicated FROM loss_data;

CREATE VIEW reports AS
SELECT e.ts, e.source, e.version, e.reporter, e.hw_id, e.sequence, e.flags, e.report_type, e.drop_reason, f.flow, f.src,
       f.dst, f.sport, f.dport, f.proto, p.path, e.hop, e.node, e.ingress_if, e.egress_if, e.hop_latency, e.queue,
       e.queue_occupancy, e.ingress_ts, e.egress_ts, e.l2_ingress_if, e.l2_egress_if, e.tx_utilization, e.buffer,
       e.buffer_occupancy, e.latency
FROM report_data e
LEFT JOIN flow_key f ON f.id = e.flow
LEFT JOIN path_text p ON p.id = e.path;

CREATE VIEW recordings AS
SELECT e.ts, e.since, e.until, k.kind, m.metric, f.flow, f.src, f.dst, f.sport, f.dport, f.proto, e.node, e.interface, e.queue,
       e.value, r.rule, printf('%016x', e.id) AS id, e.reports, e.every, e.late
FROM recording_data e
LEFT JOIN metric_name m ON m.id = e.metric
LEFT JOIN kind_name k ON k.id = e.kind
LEFT JOIN flow_key f ON f.id = e.flow
LEFT JOIN rule_text r ON r.id = e.rule;

-- The planner's knowledge of how the columns are spread. Written by hand because it must hold from the first row on, and
-- because counting would cost a scan: rows, then rows per distinct value of each further column of the index.
ANALYZE sqlite_schema;
INSERT INTO sqlite_stat1 (tbl, idx, stat) VALUES
  ('event_data', 'event_data', '20000000 2 1'),
  ('event_data', 'event_flow', '20000000 65536 16 2 1'),
  ('event_data', 'event_kind', '20000000 1600000 2 1'),
  ('event_data', 'event_node', '20000000 200000 2 1'),
  ('first_data', 'first_data', '1000000 2 1'),
  ('rollup_data', 'rollup_data', '20000000 1000 1'),
  ('rollup_data', 'rollup_flow', '20000000 65536 100 1 1'),
  ('rollup_data', 'rollup_node', '20000000 65536 1000 200 100 8 1'),
  ('drop_data', 'drop_data', '1000000 2 1'),
  ('drop_data', 'drop_flow', '1000000 65536 16 2 1'),
  ('drop_data', 'drop_node', '1000000 10000 2 1'),
  ('loss_data', 'loss_data', '1000000 100 1'),
  ('recording_data', 'recording_data', '10000 4 1'),
  ('span_data', 'span_data', '20000000 8000000 2000000 10000 2 2 1 1'),
  ('taken_data', 'taken_data', '100000 2 1'),
  ('minute_data', 'minute_data', '20000 10 1'),
  ('run_data', 'run_data', '100000 20000 1'),
  ('report_data', 'report_data', '20000000 4 1'),
  ('report_data', 'report_flow', '20000000 65536 16 2 1'),
  ('flow_key', 'sqlite_autoindex_flow_key_1', '50000 1'),
  ('path_text', 'sqlite_autoindex_path_text_1', '1000 1'),
  ('rule_text', 'sqlite_autoindex_rule_text_1', '16 1'),
  ('kind_name', 'sqlite_autoindex_kind_name_1', '12 1'),
  ('metric_name', 'sqlite_autoindex_metric_name_1', '6 1'),
  ('basis_name', 'sqlite_autoindex_basis_name_1', '4 1');
