import type { RatesThen, Rollup } from '../api/types';

/** The rates of the program are means of so many seconds. */
export const RATE_SECONDS = 5;

/** 15 minutes of seconds. */
export const WINDOW_SECONDS = 900;

/**
 * Reports/s and events/s of the seconds before `until`, from the store: reports are counted per minute, events per
 * second, and their rate is the mean of RATE_SECONDS, as the program's. A second without events is 0; there are no points
 * before the first count. The minute in which the program was started counts only from its start.
 */
export function pastRates(
  reportsByMinute: ReadonlyMap<number, number>,
  eventsBySecond: ReadonlyMap<number, number>,
  started: number,
  until: number,
): [number, (number | null)[]][] {
  const first = Math.min(...reportsByMinute.keys(), ...eventsBySecond.keys());
  if (!Number.isFinite(first)) return [];
  const begun = started - first < 60 ? Math.max(first, started) : first;
  const start = Math.max(begun, until - WINDOW_SECONDS);
  return Array.from({ length: Math.max(0, until - start) }, (_, i) => {
    const time = start + i;
    const minute = time - (time % 60);
    const perMinute = reportsByMinute.get(minute);
    const seconds = 60 - Math.max(0, begun - minute);
    const passed = Math.min(RATE_SECONDS, time + 1 - begun);
    let events = 0;
    for (let back = 0; back < passed; back += 1) events += eventsBySecond.get(time - back) ?? 0;
    return [time, [perMinute === undefined ? null : perMinute / seconds, events / passed]];
  });
}

/** Points of reports/s and events/s: those of the program, preceded by those of the store. */
export function sinceStart(
  kept: readonly RatesThen[],
  stored: readonly [number, (number | null)[]][],
): [number, (number | null)[]][] {
  const points = kept.map(({ ts, reports, events }): [number, number[]] => [
    Math.round(ts / 1e9),
    [reports, events],
  ]);
  const first = points[0]?.[0] ?? Infinity;
  return [...stored.filter(([time]) => time < first), ...points];
}

/** One column per key (at most `most`, those with the highest values), over the union of times. */
export interface Columns {
  keys: number[];
  /** How many keys there are, shown or not. */
  nodes: number;
  times: number[];
  values: (number | null)[][];
}

/** 99th percentile of each node over time; of several rollups of a node at one time the worst counts. */
export function worstByNode(rollups: readonly Rollup[], most: number): Columns {
  const byNode = new Map<number, Map<number, number>>();
  const times = new Set<number>();
  for (const rollup of rollups) {
    if (rollup.node === null) continue;
    const time = Math.round(rollup.ts / 1e9);
    times.add(time);
    const points = byNode.get(rollup.node) ?? new Map<number, number>();
    byNode.set(rollup.node, points);
    points.set(time, Math.max(points.get(time) ?? 0, rollup.p99 ?? rollup.max));
  }
  const peak = (node: number): number => Math.max(...(byNode.get(node)?.values() ?? []));
  const keys = [...byNode.keys()].sort((a, b) => peak(b) - peak(a)).slice(0, most);
  keys.sort((a, b) => a - b);
  const axis = [...times].sort((a, b) => a - b);
  return {
    keys,
    nodes: byNode.size,
    times: axis,
    values: keys.map((key) => axis.map((time) => byNode.get(key)?.get(time) ?? null)),
  };
}

/** Recent losses: the difference of a total that only grows, or restarts at 0. */
export class LossClock {
  private readonly points: { time: number; total: number }[] = [];

  add(time: number, total: number): void {
    const last = this.points[this.points.length - 1];
    if (last && total < last.total) this.points.length = 0;
    this.points.push({ time, total });
    while ((this.points[1]?.time ?? Infinity) <= time - 60) this.points.shift();
  }

  recent(): number {
    const first = this.points[0];
    const last = this.points[this.points.length - 1];
    return first && last ? last.total - first.total : 0;
  }

  /** The seconds that the difference covers: 60, or less in the first minute of the page or the program. */
  seconds(): number {
    const first = this.points[0];
    const last = this.points[this.points.length - 1];
    return first && last ? Math.min(60, last.time - first.time) : 0;
  }
}
