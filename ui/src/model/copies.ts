import { address, type Params } from '../api/client';
import { commandLine, quoted, sqlText } from '../lib/quoting';

/** A request to the API: `path` below `/api/v1/`. With a body it is a POST. */
export interface Asked {
  path: string;
  params?: Params;
  body?: unknown;
}

/** The requests as commands of curl, one a line. The token is left out; the shell puts in `$TOKEN`. */
export function curlText(requests: readonly Asked[], base: string, hasToken: boolean): string {
  return requests.map((asked) => curl(asked, base, hasToken)).join('\n');
}

function curl({ path, params, body }: Asked, base: string, hasToken: boolean): string {
  const url = new URL(address(path, params), base).href;
  // A URL has no NUL.
  const parts = ['curl -sS'];
  if (hasToken) parts.push('-H "Authorization: Bearer $TOKEN"');
  if (body !== undefined)
    parts.push("-H 'Content-Type: application/json' --data-raw", quoted(JSON.stringify(body)) ?? "''");
  parts.push(quoted(url) ?? "''");
  return parts.join(' ');
}

/** `hopwise events --limit=200 …`: options without a value are left out. */
export function hopwise(
  command: string,
  options: Readonly<Record<string, string | number | null | undefined>>,
  ...rest: readonly string[]
): string[] {
  const words = Object.entries(options).flatMap(([name, value]) =>
    value === null || value === undefined || value === '' ? [] : [`--${name}=${value}`],
  );
  return ['hopwise', ...command.split(' '), ...words, ...(rest.length === 0 ? [] : ['--', ...rest])];
}

/** A statement as a command. Without `withApi` it reads the files of the store, on the machine of the collector. */
export function queryCommand(sql: string, limit?: number): string[] {
  return hopwise('query', { limit }, sql);
}

/** Whether a command runs a statement. */
export function isQuery(words: readonly string[] | null): words is readonly string[] {
  return words?.[1] === 'query';
}

/** The command of a statement for the program at `url`, on any machine. */
export function withApi(words: readonly string[], url: string): string[] {
  return [...words.slice(0, 2), `--api=${url}`, ...words.slice(2)];
}

/** The command as a line; null where there is none. */
export function lineOf(words: readonly string[] | null): string | null {
  return words === null ? null : commandLine(words);
}

/** A span of time, ns since the Unix epoch as decimal digits: `to` is not in it. */
export interface SqlSpan {
  from: string;
  to: string;
}

const within = ({ from, to }: SqlSpan): string => `ts >= ${from} AND ts < ${to}`;

export interface SqlEvents {
  from?: string | undefined;
  /** Included. */
  to?: string | undefined;
  kinds?: readonly string[];
  node?: string;
  metric?: string;
  flow?: string;
  limit: number;
}

/** The statement of `/events`. */
export function eventsSql({
  from,
  to,
  kinds = [],
  node = '',
  metric = '',
  flow = '',
  limit,
}: SqlEvents): string {
  const conditions = [
    from === undefined ? '' : `ts >= ${from}`,
    to === undefined ? '' : `ts <= ${to}`,
    kinds.length === 0 ? '' : `kind IN (${kinds.map(sqlText).join(', ')})`,
    /^\d+$/.test(node) ? `node = ${node}` : '',
    metric === '' ? '' : `metric = ${sqlText(metric)}`,
    flow === '' ? '' : `flow = ${sqlText(flow)}`,
  ].filter((condition) => condition !== '');
  const where = conditions.length === 0 ? '' : `\nWHERE ${conditions.join(' AND ')}`;
  return `SELECT ts, id, kind, metric, flow, node, interface, queue, value, previous, threshold, rule, path, reason, basis
FROM events${where}
ORDER BY ts DESC
LIMIT ${limit}`;
}

/** The statement of the `kinds` of `/activity`. */
export function kindsSql(span: SqlSpan): string {
  return `SELECT kind, count(*) AS events
FROM events
WHERE ${within(span)}
GROUP BY kind
ORDER BY events DESC, kind`;
}

/** The statement of the events of `/activity` over time. `column`: ns. */
export function eventRatesSql(span: SqlSpan, column: number): string {
  return `SELECT ts - (ts - ${span.from}) % ${column} AS ts, count(*) AS events
FROM events
WHERE ${within(span)}
GROUP BY 1
ORDER BY 1`;
}

/** The statement of the slowest flows of a span of whole minutes. */
export function slowestFlowsSql(span: SqlSpan, limit: number): string {
  return `SELECT flow, max(max) AS flow_latency, sum(count) AS reports
FROM rollups
WHERE ${within(span)} AND interval = 60 AND metric = 'flow_latency' AND flow IS NOT NULL
GROUP BY flow
ORDER BY flow_latency DESC
LIMIT ${limit}`;
}

/** Rollups of a longer time are sums of those of a minute, which the view has. */
const LONGEST_INTERVAL = 60;

/** The statement of a heat map: the greatest value of each row and part of the time that has one. */
export function heatSql(
  span: SqlSpan,
  heat: { metric: string; interval: number; column: number; rows: number },
): string {
  return `WITH cells AS (
  SELECT node, interface, queue, ts - (ts - ${span.from}) % ${heat.column} AS ts, max(max) AS value
  FROM rollups
  WHERE ${within(span)} AND interval = ${Math.min(heat.interval, LONGEST_INTERVAL)} AND metric = ${sqlText(heat.metric)}
    AND flow IS NULL AND node IS NOT NULL
  GROUP BY 1, 2, 3, 4
), worst AS (
  SELECT node, interface, queue, max(value) AS worst
  FROM cells
  GROUP BY 1, 2, 3
  ORDER BY worst DESC
  LIMIT ${heat.rows}
)
SELECT cells.ts, cells.node, cells.interface, cells.queue, cells.value
FROM worst JOIN cells
ON cells.node = worst.node AND cells.interface IS worst.interface AND cells.queue IS worst.queue
ORDER BY worst.worst DESC, cells.node, cells.ts`;
}

/** The statement of `/rollups` of nodes. `from` and `to` are included. */
export function rollupsSql(asked: {
  metric: string;
  interval: number;
  from: string;
  to?: string;
  node?: number;
  limit: number;
}): string {
  const conditions = [
    `ts >= ${asked.from}`,
    ...(asked.to === undefined ? [] : [`ts <= ${asked.to}`]),
    `metric = ${sqlText(asked.metric)}`,
    `interval = ${asked.interval}`,
    ...(asked.node === undefined ? [] : [`node = ${asked.node}`]),
  ];
  return `SELECT ts, node, interface, queue, count, min, max, p50, p99
FROM rollups
WHERE ${conditions.join(' AND ')}
ORDER BY ts DESC
LIMIT ${asked.limit}`;
}
