import type { Traffic } from '../api/types';
import { COLOURED, partName } from './traffic';

/** A value of a dimension: a bar. */
export interface Bar {
  /** Its dimension, by its place. */
  level: number;
  name: string;
  /** A filter for it; null: there is none. */
  filter: string | null;
  isOthers: boolean;
  count: number;
  /** Its place among the colours; null: others. */
  place: number | null;
  top: number;
  height: number;
}

/** What is in two bars at once: a band between them. */
export interface Band {
  from: Bar;
  to: Bar;
  count: number;
  /** Where it begins and ends, from above. */
  fromTop: number;
  toTop: number;
  height: number;
}

export interface Sankey {
  bars: Bar[];
  bands: Band[];
}

const GAP = 6;
/** A bar that a person can still see and click. */
const LEAST = 2;

/** Bars of each dimension and bands between them, in a height. Others are a bar of their own, at the bottom. */
export function sankey(traffic: Traffic, height: number): Sankey {
  const levels = traffic.by.length;
  const bars = Array.from({ length: levels }, () => new Map<string, Bar>());
  const bands = Array.from({ length: Math.max(0, levels - 1) }, () => new Map<string, Band>());
  const keys = new Map<Bar, string>();
  const bar = (level: number, key: string | null, name: string, filter: string | null): Bar => {
    const known = bars[level]?.get(key ?? '');
    if (known) return known;
    const made = { level, name, filter, isOthers: key === null, count: 0, place: null, top: 0, height: 0 };
    bars[level]?.set(key ?? '', made);
    keys.set(made, key ?? '');
    return made;
  };
  const add = (row: Bar[], count: number): void => {
    for (const [level, to] of row.entries()) {
      to.count += count;
      const from = row[level - 1];
      if (!from) continue;
      const key = `${keys.get(from)}\n${keys.get(to)}`;
      const band = bands[level - 1]?.get(key) ?? { from, to, count: 0, fromTop: 0, toTop: 0, height: 0 };
      band.count += count;
      bands[level - 1]?.set(key, band);
    }
  };
  for (const row of traffic.groups) {
    const parts = row.key.map((part, level) =>
      bar(level, `=${part ?? '?'}`, partName(traffic.by[level] ?? '', part), row.filters[level] ?? null),
    );
    add(parts, row.count);
  }
  if (traffic.others.count > 0)
    add(
      traffic.by.map((_, level) => bar(level, null, 'others', null)),
      traffic.others.count,
    );
  place(
    bars.map((level) => [...level.values()]),
    height,
  );
  const all = bands.flatMap((level) => [...level.values()]);
  placeBands(all);
  return { bars: bars.flatMap((level) => [...level.values()]), bands: all };
}

/** Pixels of a value, so that the fullest level fits. */
function scale(levels: readonly (readonly Bar[])[], height: number): number {
  const fits = levels.map((bars) => {
    const total = bars.reduce((sum, { count }) => sum + count, 0);
    const room = height - GAP * Math.max(0, bars.length - 1);
    return total > 0 ? Math.max(0, room) / total : Infinity;
  });
  const least = Math.min(...fits);
  return Number.isFinite(least) ? least : 0;
}

function place(levels: Bar[][], height: number): void {
  const pixels = scale(levels, height);
  for (const bars of levels) {
    bars.sort((one, other) => Number(one.isOthers) - Number(other.isOthers) || other.count - one.count);
    let top = 0;
    for (const [i, bar] of bars.entries()) {
      bar.top = top;
      bar.height = Math.max(LEAST, bar.count * pixels);
      bar.place = bar.isOthers || i >= COLOURED ? null : i;
      top += bar.height + GAP;
    }
  }
}

function placeBands(bands: Band[]): void {
  const used = new Map<Bar, { left: number; right: number }>();
  const of = (bar: Bar): { left: number; right: number } => {
    const known = used.get(bar) ?? { left: 0, right: 0 };
    used.set(bar, known);
    return known;
  };
  // From above, so that bands cross as little as they can.
  for (const band of [...bands].sort((one, other) => one.to.top - other.to.top)) {
    const side = of(band.from);
    band.height = band.from.count > 0 ? (band.count / band.from.count) * band.from.height : 0;
    band.fromTop = band.from.top + side.right;
    side.right += band.height;
  }
  for (const band of [...bands].sort((one, other) => one.from.top - other.from.top)) {
    const side = of(band.to);
    band.toTop = band.to.top + side.left;
    side.left += band.to.count > 0 ? (band.count / band.to.count) * band.to.height : 0;
  }
}
