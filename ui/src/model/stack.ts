import type { FlowDetail, FlowHistory, HistoryPoint } from '../api/types';
import { names } from '../lib/names';

type Column = (number | null)[];

export interface Stack {
  /** One per area, from the first hop up: `leaf1`, or `leaf1 (2)` where a path visits a node twice. */
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

/** Seconds between the end of a value and the gap after it. */
const INSTANT = 0.001;

type Hops = ReadonlyMap<string, number | null>;

/**
 * Latencies of a flow's hops over time as stacked areas. A value holds until the next point; from a point without hops on,
 * the flow is silent: a gap. A burst is drawn for `visible` seconds at least, unless the next one begins before that.
 */
export function stack(series: readonly HistoryPoint[], visible = 0): Stack {
  const points = [...series].sort((a, b) => a.ts - b.ts);
  const keyed = points.map((point) => ({ point, hops: keyHops(point) }));
  const labels = order(keyed.map(({ hops }) => [...hops.keys()]).filter((keys) => keys.length > 0));
  const result: Stack = {
    labels,
    times: [],
    own: labels.map(() => []),
    tops: labels.map(() => []),
    total: [],
  };
  let held: { hops: Hops; total: number | null } | null = null;
  for (const [at, { point, hops }] of keyed.entries()) {
    const last = result.times[result.times.length - 1];
    let time = point.ts / 1e9;
    if (last !== undefined && time <= last) continue;
    // The chart draws nothing from the last value to a gap, so the value is repeated where the gap begins.
    if (hops.size === 0 && held && last !== undefined) {
      const next = keyed.slice(at).find((one) => one.hops.size > 0)?.point.ts ?? Infinity;
      time = Math.max(time, Math.min(last + visible, next / 1e9 - 2 * INSTANT));
      add(result, time, held.hops, held.total);
      time += INSTANT;
    }
    add(result, time, hops, point.flow_latency);
    held = hops.size === 0 ? null : { hops, total: point.flow_latency };
  }
  return result;
}

function keyHops(point: HistoryPoint): Hops {
  const hops = new Map<string, number | null>();
  for (const { node, latency } of point.hops) {
    const name = node === null ? '?' : names.node(node);
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

function add(result: Stack, time: number, hops: Hops, total: number | null): void {
  result.times.push(time);
  result.total.push(total);
  let sum = 0;
  result.labels.forEach((label, i) => {
    const value = hops.get(label) ?? null;
    sum += value ?? 0;
    result.own[i]?.push(value);
    result.tops[i]?.push(hops.size === 0 ? null : sum);
  });
}

/** A flow is silent after this time, or after a few of its usual intervals between reports. */
const SILENT_NS = 2e9;
const SILENT_INTERVALS = 3;

function silentAfter(flow: FlowDetail): number {
  const interval = (flow.last_seen - flow.first_seen) / Math.max(1, flow.reports - 1);
  return Math.max(SILENT_NS, SILENT_INTERVALS * interval);
}

/** The flow's latest packet as one more point of its history; a flow without recent reports gives a gap after it. */
export function sample(flow: FlowDetail, now: number): HistoryPoint {
  const ts = flow.last_seen;
  if (now - ts > silentAfter(flow)) return { ts: ts + INSTANT * 1e9, flow_latency: null, hops: [] };
  const hops = flow.hops.map(({ node, hop_latency }) => ({ node, latency: hop_latency }));
  return { ts, flow_latency: flow.flow_latency, hops };
}

export interface PathChange {
  /** Seconds. */
  time: number;
  path: (number | null)[];
}

/** The times at which the path changed. The path with which the flow was first seen is not a change. */
export function pathChanges(paths: FlowHistory['paths'], firstSeen: number): PathChange[] {
  const sorted = [...paths].sort((a, b) => a.ts - b.ts);
  const isChange = (at: number): boolean => {
    const [now, before] = [sorted[at], sorted[at - 1]];
    if (!now) return false;
    return before ? now.path.join() !== before.path.join() : now.ts - firstSeen > 1e9;
  };
  return sorted.filter((_, at) => isChange(at)).map(({ ts, path }) => ({ time: ts / 1e9, path }));
}
