import { sqlText } from '../lib/quoting';
import type { SqlEvents, SqlSpan } from './copies';

/** What statements about the tables of a console need to know. */
export interface Fleet {
  /** What the names of the tables begin with. */
  prefix: string;
  /** Collectors that hear the same reports. */
  pairs: readonly (readonly string[])[];
}

/** A text in ClickHouse's SQL, in which a backslash is special. */
const quoted = (text: string): string => sqlText(text.replaceAll('\\', '\\\\'));

const at = (ns: string): string => `fromUnixTimestamp64Nano(toInt64(${ns}), 'UTC')`;

const within = ({ from, to }: SqlSpan): string => `ts >= ${at(from)} AND ts < ${at(to)}`;

/** A number that stands for a node, an interface or a queue that there is not. */
const ABSENT = 4294967295;

/** The beginning of the part of a span in which a row is. */
const part = ({ from }: SqlSpan, column: number): string =>
  at(`${from} + intDiv(toUnixTimestamp64Nano(ts) - ${from}, ${column}) * ${column}`);

/** The longest time between the copies of an event, ns. Later rows with its id are of other events: a loss can have the id of another. */
const COPIES_WITHIN = 10_000_000_000;

/** Events, indented, each once: the latest of its copies. Events of one collector with one id, at different times, are no copies. */
function distinctEvents(fleet: Fleet, where: string): string {
  const time = 'toUnixTimestamp64Nano(ts)';
  return `  SELECT * EXCEPT (next, nth)
  FROM (
    SELECT *, leadInFrame(${time}) OVER (PARTITION BY id, nth ORDER BY ts ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING) AS next
    FROM (
      SELECT *, row_number() OVER (PARTITION BY id, collector ORDER BY ts) AS nth
      FROM (
    SELECT DISTINCT * FROM ${fleet.prefix}events${where}
      )
    )
  )
  WHERE (next = 0 OR next > ${time} + ${COPIES_WITHIN})`;
}

/** The events of a span: also those whose later copies follow it, which count there. */
const eventsWithin = (fleet: Fleet, { from, to }: SqlSpan): string =>
  `${distinctEvents(fleet, ` WHERE ${within({ from, to: `${to} + ${COPIES_WITHIN}` })}`)} AND ts < ${at(to)}`;

/** As `eventsSql` of the store: an event that several collectors heard is there once. */
export function eventsSql(fleet: Fleet, asked: SqlEvents): string {
  const { from, to, kinds = [], node = '', metric = '', flow = '', limit } = asked;
  const conditions = [
    from === undefined ? '' : `ts >= ${at(from)}`,
    to === undefined ? '' : `ts <= ${at(to)}`,
    kinds.length === 0 ? '' : `kind IN (${kinds.map(quoted).join(', ')})`,
    /^\d+$/.test(node) ? `node = ${node}` : '',
    metric === '' ? '' : `metric = ${quoted(metric)}`,
    flow === '' ? '' : `flow = ${quoted(flow)}`,
  ].filter((condition) => condition !== '');
  const where = conditions.length === 0 ? '' : `\n    WHERE ${conditions.join(' AND ')}`;
  const place = ['node', 'interface', 'queue']
    .map((name) => `nullIf(${name}, ${ABSENT}) AS ${name}`)
    .join(', ');
  return `SELECT ts, id, kind, metric, flow, ${place}, value, previous, threshold, rule, path, reason, basis
FROM (
${distinctEvents(fleet, where)}
)
ORDER BY ts DESC
LIMIT ${limit}`;
}

/** The statement of the `kinds` of `/activity`. */
export function kindsSql(fleet: Fleet, span: SqlSpan): string {
  return `SELECT kind, count() AS events
FROM (
${eventsWithin(fleet, span)}
)
GROUP BY kind
ORDER BY events DESC, kind`;
}

/**
 * The statement of the events of `/activity` over time. `column`: ns. As there, an event counts in each part that has a copy of it,
 * and where events of one collector share an id, the collector with the most of them counts.
 */
export function eventRatesSql(fleet: Fleet, span: SqlSpan, column: number): string {
  return `SELECT begin, sum(copies) AS events
FROM (
  SELECT begin, kind, id, max(times) AS copies
  FROM (
    SELECT ${part(span, column)} AS begin, kind, id, uniqExact(ts) AS times
    FROM ${fleet.prefix}events
    WHERE ${within(span)}
    GROUP BY begin, kind, id, collector
  )
  GROUP BY begin, kind, id
)
GROUP BY begin
ORDER BY begin`;
}

const KEY = 'ts, node, interface, queue, flow';

/** Rollups, indented: those of a pair of collectors once, the one with more values. Each is the sum of its parts. */
function rollups(fleet: Fleet, conditions: string): string {
  const names = fleet.pairs.flat();
  const first = fleet.pairs.flatMap((pair) => pair.map(() => pair[0] ?? ''));
  const list = (texts: readonly string[]): string => `[${texts.map(quoted).join(', ')}]`;
  const whose =
    names.length === 0
      ? 'toString(collector)'
      : `transform(toString(collector), ${list(names)}, ${list(first)}, toString(collector))`;
  return `  SELECT ${KEY}, ${whose} AS whose, sum(piece.count) AS values, max(piece.max) AS most
  FROM ${fleet.prefix}rollups AS piece FINAL
  WHERE ${conditions}
  GROUP BY ${KEY}, collector
  ORDER BY values DESC
  LIMIT 1 BY ${KEY}, whose`;
}

/** The statement of the slowest flows of a span of whole minutes. */
export function slowestFlowsSql(fleet: Fleet, span: SqlSpan, limit: number): string {
  return `SELECT flow, max(most) AS flow_latency, sum(values) AS reports
FROM (
${rollups(fleet, `${within(span)} AND interval = 60 AND metric = 'flow_latency' AND flow != ''`)}
)
GROUP BY flow
ORDER BY flow_latency DESC, flow
LIMIT ${limit}`;
}

/** Longer rollups are not exported. */
const LONGEST_INTERVAL = 60;

/** The statement of a heat map: the greatest value of each row and part of the time that has one. */
export function heatSql(
  fleet: Fleet,
  span: SqlSpan,
  heat: { metric: string; interval: number; column: number; rows: number },
): string {
  const interval = Math.min(heat.interval, LONGEST_INTERVAL);
  const conditions = `${within(span)} AND interval = ${interval} AND metric = ${quoted(heat.metric)} AND flow = '' AND node != ${ABSENT}`;
  return `WITH cells AS (
  SELECT node, interface, queue, ${part(span, heat.column)} AS begin, max(most) AS value
  FROM (
${rollups(fleet, conditions)}
  )
  GROUP BY node, interface, queue, begin
), worst AS (
  SELECT node, interface, queue, max(value) AS worst
  FROM cells
  GROUP BY node, interface, queue
  ORDER BY worst DESC
  LIMIT ${heat.rows}
)
SELECT begin, node, nullIf(interface, ${ABSENT}) AS egress, nullIf(queue, ${ABSENT}) AS number, value
FROM worst JOIN cells USING (node, interface, queue)
ORDER BY worst DESC, node, begin`;
}
