/** Queries to begin with. Each runs as it stands. */
export const EXAMPLES: readonly { title: string; sql: string }[] = [
  {
    title: 'Newest events',
    sql: 'SELECT ts, kind, metric, flow, node, value, previous\nFROM events\nORDER BY ts DESC\nLIMIT 200',
  },
  {
    title: 'Events by kind',
    sql: 'SELECT kind, count(*) AS events\nFROM events\nGROUP BY kind\nORDER BY events DESC',
  },
  {
    title: 'Hop latency over time (draws lines)',
    sql: "SELECT ts, max(p50) AS p50, max(p99) AS p99\nFROM rollups\nWHERE metric = 'hop_latency' AND interval = 1\nGROUP BY ts\nORDER BY ts",
  },
  {
    title: 'Slowest flows',
    sql: 'SELECT flow, path, flow_latency, reports, last_seen\nFROM flows\nORDER BY flow_latency DESC\nLIMIT 50',
  },
  {
    title: 'Where packets were dropped',
    sql: 'SELECT node, queue, reason, count(*) AS packets\nFROM drops\nGROUP BY node, queue, reason\nORDER BY packets DESC',
  },
  {
    title: 'Reports that never arrived',
    sql: 'SELECT ts, node, hw_id, lost, reordered, duplicated\nFROM losses\nORDER BY ts DESC\nLIMIT 200',
  },
  {
    title: 'Flows that changed path',
    sql: "SELECT ts, flow, path\nFROM events\nWHERE kind = 'path_change'\nORDER BY ts DESC\nLIMIT 200",
  },
];

export const SCHEMA: readonly { table: string; hint: string; columns: string }[] = [
  {
    table: 'events',
    hint: 'significant changes',
    columns:
      'ts, id, kind, metric, flow, src, dst, sport, dport, proto, node, interface, queue, value, previous, threshold, rule, path, reason, basis',
  },
  {
    table: 'rollups',
    hint: 'a metric over 1 s or 1 min',
    columns: 'ts, interval, metric, flow, node, interface, queue, count, min, max, sum, p50, p99',
  },
  {
    table: 'flows',
    hint: 'latest state of a flow',
    columns: 'flow, src, dst, sport, dport, proto, path, flow_latency, basis, first_seen, last_seen, reports',
  },
  {
    table: 'drops',
    hint: 'packets that switches dropped',
    columns: 'ts, id, flow, src, dst, sport, dport, proto, node, ingress_if, egress_if, queue, reason',
  },
  {
    table: 'losses',
    hint: 'reports that never arrived',
    columns: 'ts, node, source, hw_id, lost, reordered, duplicated',
  },
  {
    table: 'reports',
    hint: 'every report, if enabled',
    columns: 'one row per hop, everything it carried',
  },
];
