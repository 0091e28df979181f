import type { HopLatencies, LatencySpread, PathChange, PathsOfDirection, UsedPath } from '../api/types';
import { exact } from '../lib/format';
import { names } from '../lib/names';
import type { Sheet } from '../lib/sheet';
import type { Stack } from './stack';

export type Path = readonly (number | null)[];

/** Flows that changed from one path to another at about the same time: one step for a person. */
export interface Step {
  /** In addresses: the time of the first, and both paths. */
  key: string;
  /** Times of the first and the last, ns. */
  first: number;
  last: number;
  before: Path;
  after: Path;
  flows: PathChange[];
}

/** In place of what the page cannot say yet. */
export const NOT_ANSWERED = 'No response yet.';

/** Changes of the same paths this long after each other are one step, ns. */
const TOGETHER = 5e9;

export function pathKey(path: Path): string {
  return path.map((node) => node ?? '?').join('>');
}

/** Steps, newest first; those of many flows first where they began together. */
export function steps(changes: readonly PathChange[]): Step[] {
  const open = new Map<string, Step>();
  const found: Step[] = [];
  for (const change of [...changes].sort((a, b) => a.ts - b.ts)) {
    const ends = `${pathKey(change.before)}/${pathKey(change.after)}`;
    const step = open.get(ends);
    if (step && change.ts - step.last <= TOGETHER) {
      step.flows.push(change);
      step.last = change.ts;
      continue;
    }
    const { ts, before, after } = change;
    const next: Step = {
      key: `${Math.round(ts / 1e6)}/${ends}`,
      first: ts,
      last: ts,
      before,
      after,
      flows: [change],
    };
    open.set(ends, next);
    found.push(next);
  }
  return found.sort((a, b) => b.first - a.first || b.flows.length - a.flows.length);
}

/** Says that not all of a list is there: `Steps: 200 of 312 are listed; the CSV has all.` Empty: all of it is. */
export function listedText(listed: number, all: number, what: string): string {
  return all > listed ? `${what} ${exact(listed)} of ${exact(all)} are listed; the CSV has all.` : '';
}

export interface Difference {
  /** Nodes that only the path before has, and only the path after. */
  left: number[];
  joined: number[];
  /** Links likewise, as `from>to`. */
  leftLinks: string[];
  joinedLinks: string[];
}

function nodesOf(path: Path): Set<number> {
  return new Set(path.filter((node) => node !== null));
}

/** Links of a path, as `from>to`. */
function linksOf(path: Path): Set<string> {
  const links = new Set<string>();
  path.forEach((node, i) => {
    const next = path[i + 1];
    if (node !== null && next !== null && next !== undefined) links.add(`${node}>${next}`);
  });
  return links;
}

export function difference(before: Path, after: Path): Difference {
  const [old, now] = [nodesOf(before), nodesOf(after)];
  const [oldLinks, nowLinks] = [linksOf(before), linksOf(after)];
  return {
    left: [...old].filter((node) => !now.has(node)),
    joined: [...now].filter((node) => !old.has(node)),
    leftLinks: [...oldLinks].filter((link) => !nowLinks.has(link)),
    joinedLinks: [...nowLinks].filter((link) => !oldLinks.has(link)),
  };
}

/** What changed, in words: `spine1 → spine2`. */
export function differenceText({ left, joined, leftLinks, joinedLinks }: Difference): string {
  const list = (nodes: readonly number[]): string => nodes.map((node) => names.node(node)).join(', ');
  if (left.length > 0 && joined.length > 0) return `${list(left)} → ${list(joined)}`;
  if (left.length > 0) return `without ${list(left)}`;
  if (joined.length > 0) return `with ${list(joined)}`;
  if (leftLinks.length > 0 || joinedLinks.length > 0) return 'another order';
  return 'no node';
}

/** Whether two paths may be the same one: they differ, if at all, where the node is unknown. */
function mayBeSame(one: Path, other: Path): boolean {
  return (
    one.length === other.length &&
    one.every((node, i) => node === null || (other[i] ?? null) === null || node === other[i])
  );
}

/** What changed from one path to the other, in words. */
export function changeText(before: Path, after: Path): string {
  const changed = difference(before, after);
  if (pathKey(before) === pathKey(after) || ![...before, ...after].includes(null))
    return differenceText(changed);
  if (mayBeSame(before, after)) return 'possibly nothing: a node is unknown';
  return changed.left.length + changed.joined.length === 0 ? 'no known node' : differenceText(changed);
}

export interface Symmetry {
  text: string;
  state: 'same' | 'differs' | 'unknown';
}

/** Whether the most used path back is the one there, reversed. */
export function symmetry(forward: PathsOfDirection, reverse: PathsOfDirection | null): Symmetry {
  const [there, back] = [mainPath(forward), reverse ? mainPath(reverse) : null];
  if (!reverse) return { state: 'unknown', text: 'Choose a flow or a host to compare both directions.' };
  if (!there)
    return {
      state: 'unknown',
      text: sentence(forward.unknown ?? 'the path of this direction is not stored'),
    };
  if (!back)
    return {
      state: 'unknown',
      text: sentence(reverse.unknown ?? 'the path of the opposite direction is not stored'),
    };
  const isUnknown = [...there, ...back].includes(null);
  if (mayBeSame(there, [...back].reverse()))
    return isUnknown
      ? {
          state: 'unknown',
          text: 'Possibly symmetric: all known nodes are the same, but at least one is unknown.',
        }
      : { state: 'same', text: 'Symmetric: both directions take the same nodes most of the time.' };
  const { left, joined } = difference(there, back);
  const list = (nodes: readonly number[]): string =>
    nodes.map((node) => names.node(node)).join(', ') || 'no other node';
  return {
    state: 'differs',
    text: `Asymmetric: only the forward path passes ${list(left)}, only the return path ${list(joined)}.${isUnknown ? ' At least one node is unknown, and may be one of these.' : ''}`,
  };
}

function sentence(text: string): string {
  return `${text.charAt(0).toUpperCase()}${text.slice(1)}.`;
}

/** The path that was taken the longest, if it is known. */
export function mainPath({ paths }: Pick<PathsOfDirection, 'paths'>): Path | null {
  const known = paths.filter(({ path }) => path.length > 0);
  return (
    known.reduce<UsedPath | null>((most, one) => (most && most.time >= one.time ? most : one), null)?.path ??
    null
  );
}

/** Paths over the map, node by node. */
export function drawnSheet(drawn: readonly ({ path: Path; label: string } | null)[]): Sheet | null {
  const rows = drawn.flatMap((one) =>
    one ? one.path.map((node, i) => [one.label, i + 1, node, node === null ? null : names.node(node)]) : [],
  );
  return rows.length === 0
    ? null
    : { columns: ['path', 'hop', 'node', 'name'].map((name) => ({ name })), rows };
}

/** What is compared: another flow in the same time, or the same flows in another time. */
export type Compared = { flow: string } | { range: { from: number; to: number } };

/** `compare` of an address: `previous`, two times, or a flow's text; null: nothing. `shown`: the range of the page, ms. */
export function readCompared(text: string, shown: { from: number; to: number }): Compared | null {
  if (text === '') return null;
  if (text === 'previous') return { range: { from: 2 * shown.from - shown.to, to: shown.from } };
  const [from, to] = text.split('/').map((part) => Date.parse(part));
  if (from !== undefined && to !== undefined && from < to) return { range: { from, to } };
  return text.includes('>') ? { flow: text } : null;
}

/** The mean of each hop in each column, stacked. */
export function stackOf(latencies: HopLatencies): Stack {
  const { hops } = latencies;
  const columns = hops[0]?.means.length ?? latencies.flow?.means.length ?? 0;
  const at = (i: number): number => (latencies.from + (i + 0.5) * latencies.column) / 1e9;
  const times = Array.from({ length: columns }, (_, i) => at(i));
  const sums = Array.from({ length: columns }, () => 0);
  const measured = times.map((_, i) => hops.some((hop) => (hop.means[i] ?? null) !== null));
  const tops = hops.map((hop) =>
    times.map((_, i) => {
      sums[i] = (sums[i] ?? 0) + (hop.means[i] ?? 0);
      return measured[i] ? (sums[i] ?? null) : null;
    }),
  );
  return {
    labels: hops.map(hopLabel),
    times,
    own: hops.map((hop) => times.map((_, i) => hop.means[i] ?? null)),
    tops,
    total: times.map((_, i) => latencies.flow?.means[i] ?? null),
  };
}

function hopLabel(hop: Pick<LatencySpread, 'node'>): string {
  return hop.node === null ? '?' : names.node(hop.node);
}

export interface HopRow {
  /** In addresses: the node, `?` if it is unknown, or `flow`. */
  key: string;
  label: string;
  node: number | null;
  here: LatencySpread | null;
  there: LatencySpread | null;
  /** The part of the sum of all means, 0 to 1. */
  share: number;
}

function nameOf(hop: Pick<LatencySpread, 'node'>): Pick<HopRow, 'key' | 'label' | 'node'> {
  return { key: hop.node === null ? '?' : String(hop.node), label: hopLabel(hop), node: hop.node };
}

/** Each hop with its share, beside the same node of what it is compared with; the flow's own latency last. */
export function hopRows(here: HopLatencies | null, there: HopLatencies | null): HopRow[] {
  const sum = (here?.hops ?? []).reduce((all, hop) => all + hop.mean, 0);
  const rows = (here?.hops ?? []).map((hop) => ({
    ...nameOf(hop),
    here: hop,
    there: there?.hops.find(({ node }) => node === hop.node) ?? null,
    share: hop.mean / Math.max(1, sum),
  }));
  const others = (there?.hops ?? []).filter(({ node }) => !rows.some((row) => row.node === node));
  const flow = {
    key: 'flow',
    label: 'flow latency',
    node: null,
    here: here?.flow ?? null,
    there: there?.flow ?? null,
    share: 1,
  };
  return [
    ...rows,
    ...others.map((hop) => ({ ...nameOf(hop), here: null, there: hop, share: 0 })),
    ...(flow.here || flow.there ? [flow] : []),
  ];
}
