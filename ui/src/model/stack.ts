import type { FlowHistory, HistoryPoint } from '../api/types';

type Column = (number | null)[];

export interface Stack {
  /** One per area, from the first hop up: `101`, or `101 (2nd)` where a path visits a node twice. */
  labels: string[];
  /** Seconds. */
  times: number[];
  /** A hop's own latency, ns; for the legend. */
  own: Column[];
  /** Sums from the first hop up, ns; for drawing. */
  tops: Column[];
  /** Flow latency, ns. */
  total: Column;
}

const GAP_SECONDS = 10;

/** Latencies of a flow's hops over time as areas that stand on each other. */
export function stack(history: FlowHistory): Stack {
  const points = [...history.series].sort((a, b) => a.ts - b.ts);
  const keyed = points.map((point) => ({ point, hops: keyHops(point) }));
  const labels = order(keyed.map(({ hops }) => [...hops.keys()]));
  const result: Stack = {
    labels,
    times: [],
    own: labels.map(() => []),
    tops: labels.map(() => []),
    total: [],
  };
  for (const { point, hops } of keyed) {
    const time = point.ts / 1e9;
    const last = result.times[result.times.length - 1];
    if (last !== undefined && time <= last) continue;
    if (last !== undefined && time - last > GAP_SECONDS) gap(result, last + 1);
    add(result, time, hops, point.flow_latency);
  }
  return result;
}

function keyHops(point: HistoryPoint): Map<string, number | null> {
  const hops = new Map<string, number | null>();
  for (const { node, latency } of point.hops) {
    const name = node === null ? '?' : String(node);
    let label = name;
    for (let visit = 2; hops.has(label); visit += 1) label = `${name} (${visit})`;
    hops.set(label, latency);
  }
  return hops;
}

/** All labels so that each path's own order is kept where the paths agree; the newest path decides. */
export function order(paths: readonly (readonly string[])[]): string[] {
  const result = [...(paths[paths.length - 1] ?? [])];
  const seen = new Set(result);
  for (let i = paths.length - 2; i >= 0; i -= 1) {
    const path = paths[i] ?? [];
    path.forEach((label, at) => {
      if (seen.has(label)) return;
      seen.add(label);
      const before = at === 0 ? -1 : result.indexOf(path[at - 1] ?? '');
      result.splice(before + 1, 0, label);
    });
  }
  return result;
}

function add(
  result: Stack,
  time: number,
  hops: ReadonlyMap<string, number | null>,
  total: number | null,
): void {
  result.times.push(time);
  result.total.push(total);
  let sum = 0;
  result.labels.forEach((label, i) => {
    const value = hops.get(label) ?? null;
    sum += value ?? 0;
    result.own[i]?.push(value);
    result.tops[i]?.push(sum);
  });
}

/** A time without reports is drawn as a hole, not as a line across it. */
function gap(result: Stack, time: number): void {
  result.times.push(time);
  result.total.push(null);
  for (const column of [...result.own, ...result.tops]) column.push(null);
}

/** Times in seconds at which the path became another. The first entry is where we came in, not a change. */
export function pathChanges(history: FlowHistory): { time: number; path: (number | null)[] }[] {
  const sorted = [...history.paths].sort((a, b) => a.ts - b.ts);
  return sorted
    .filter((entry, i) => i > 0 && entry.path.join() !== sorted[i - 1]?.path.join())
    .map(({ ts, path }) => ({ time: ts / 1e9, path }));
}
