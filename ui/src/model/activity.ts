import type { Activity, Heat } from '../api/types';

/** Rates over time, for a chart: null where nothing was received. */
export interface ActivityColumns {
  /** Seconds. */
  times: number[];
  reports: (number | null)[];
  events: (number | null)[];
  totals: { reports: number; events: number; lost: number };
}

/** Counts of parts as rates. A part in which nothing was counted is a gap, and so is one of which nothing is known yet. */
export function activityColumns(activity: Activity): ActivityColumns {
  const { from, to, column, points, reports_to: reportsTo, events_to: eventsTo } = activity;
  // Of a part that has not ended, the rate is that of the time that has passed.
  const rate = (value: number, begun: number, until: number): number | null => {
    const seconds = (Math.min(begun + column, until) - begun) / 1e9;
    return seconds > 0 ? value / seconds : null;
  };
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
    const begun = from + part * column;
    result.reports.push(point ? rate(point.reports, begun, reportsTo) : null);
    result.events.push(point ? rate(point.events, begun, eventsTo) : null);
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
