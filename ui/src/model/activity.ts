import type { Activity, Heat } from '../api/types';

/** Rates over time, for a chart: null where nothing was received. */
export interface ActivityColumns {
  /** Seconds. */
  times: number[];
  reports: (number | null)[];
  events: (number | null)[];
  totals: { reports: number; events: number; lost: number };
}

/** Counts of parts as rates. A part in which nothing was counted is a gap. */
export function activityColumns(activity: Activity): ActivityColumns {
  const { from, to, column, points } = activity;
  const seconds = column / 1e9;
  const known = new Map(points.map((point) => [Math.round((point.ts - from) / column), point]));
  const parts = Math.max(0, Math.ceil((to - from) / column));
  const result: ActivityColumns = {
    times: [],
    reports: [],
    events: [],
    totals: { reports: 0, events: 0, lost: 0 },
  };
  for (let part = 0; part < parts; part += 1) {
    const point = known.get(part);
    // The middle: the part is of all of its time.
    result.times.push((from + (part + 0.5) * column) / 1e9);
    result.reports.push(point ? point.reports / seconds : null);
    result.events.push(point ? point.events / seconds : null);
  }
  for (const { reports, events, lost } of points) {
    result.totals.reports += reports;
    result.totals.events += events;
    result.totals.lost += lost;
  }
  return result;
}

/** Rows of a heat map as lines. */
export function heatColumns(
  heat: Heat,
  nameOf: (node: number) => string,
): { axis: number[]; values: (number | null)[][]; labels: string[] } {
  const columns = heat.rows.reduce((most, row) => Math.max(most, row.values.length), 0);
  return {
    axis: Array.from({ length: columns }, (_, i) => (heat.from + (i + 0.5) * heat.column) / 1e9),
    values: heat.rows.map((row) => row.values),
    labels: heat.rows.map((row) => (row.node === null ? '?' : nameOf(row.node))),
  };
}
