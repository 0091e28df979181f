// Not an SQL engine: fixed answers to the queries of the pages and their examples, selected by their words.
import { events, flows } from './answers.mjs';

export function answer(fabric, sql) {
  const text = sql.toLowerCase().replace(/\s+/g, ' ').trim();
  const table = (columns, rows) => ({
    columns,
    rows,
    truncated: false,
    notes: [],
    elapsed_ms: 3.4071230000000001,
  });
  if (!text.startsWith('select') && !text.startsWith('with')) {
    return {
      error: `near "${sql.trim().split(/\s/)[0]}": only SELECT is allowed here; write SELECT … FROM events`,
    };
  }
  const place = /from (\w+)/.exec(text)?.[1];
  if (!['events', 'rollups', 'flows', 'drops', 'losses', 'reports'].includes(place ?? '')) {
    return { error: `no such table: ${place}; there are events, rollups, flows, drops, losses, reports` };
  }
  if (place === 'rollups') return table(...rollupRows(fabric, text));
  if (place === 'events' && text.includes('group by kind')) return table(...kindRows(fabric));
  if (place === 'events' && text.includes('count(*)')) return table(...eventRates(fabric));
  if (place === 'flows') return table(...flowRows(fabric));
  return table(...eventRows(fabric));
}

function rollupRows(fabric, text) {
  if (text.includes('sum(count)')) return [['minute', 'reports'], [...fabric.minutes].slice(0, -1)];
  const rows = fabric.rollups
    .filter((rollup) => rollup.node === 201)
    .map(({ ts, p50, p99 }) => [ts, p50, p99]);
  return [['ts', 'p50', 'p99'], rows];
}

function kindRows(fabric) {
  const counts = new Map();
  for (const { kind } of fabric.events) counts.set(kind, (counts.get(kind) ?? 0) + 1);
  return [['kind', 'events'], [...counts].sort((a, b) => b[1] - a[1])];
}

function eventRates(fabric) {
  const counts = new Map();
  for (const { ts } of fabric.events)
    counts.set(Math.floor(ts / 1e9), (counts.get(Math.floor(ts / 1e9)) ?? 0) + 1);
  return [['second', 'events'], [...counts].sort((a, b) => a[0] - b[0])];
}

function flowRows(fabric) {
  const list = flows(fabric, new URLSearchParams({ sort: 'latency', limit: '50' })).flows;
  const rows = list.map((row) => [
    row.text,
    row.path.join('>'),
    row.flow_latency,
    row.reports,
    row.last_seen,
  ]);
  return [['flow', 'path', 'flow_latency', 'reports', 'last_seen'], rows];
}

function eventRows(fabric) {
  const list = events(fabric, new URLSearchParams({ limit: '200' })).events;
  const rows = list.map((e) => [e.ts, e.kind, e.metric, e.text, e.node, e.value, e.previous]);
  return [['ts', 'kind', 'metric', 'flow', 'node', 'value', 'previous'], rows];
}
