import type { Cell } from '../api/types';
import { toCsv } from './csv';

/** What a column of a file holds. */
export interface SheetColumn {
  name: string;
  /** Of its numbers. */
  unit?: string;
  /** Its numbers are nanoseconds since the Unix epoch. */
  time?: boolean;
}

/** The rows of a table or the points of a chart, for a file. */
export interface Sheet {
  columns: SheetColumn[];
  rows: Cell[][];
  /** The same as the page shows it. */
  texts?: string[][];
  /** What is not in it, in a sentence; empty: it is all there. */
  cut?: string;
}

/** A time as files have it: UTC, with microseconds. */
export function utcTime(ns: number): string {
  const micros = Math.round(ns / 1e3);
  const part = String(((micros % 1e6) + 1e6) % 1e6).padStart(6, '0');
  return `${new Date(Math.floor(micros / 1e6) * 1000).toISOString().slice(0, 19)}.${part}Z`;
}

function heading({ name, unit, time }: SheetColumn): string {
  if (time) return `${name} (UTC)`;
  return unit === undefined || unit === '' ? name : `${name} (${unit})`;
}

function cell(value: Cell, column: SheetColumn | undefined): Cell {
  if (!column?.time) return value;
  // Whole numbers that are long arrive as texts.
  const ns = typeof value === 'string' && /^\d{1,19}$/.test(value) ? Number(value) : value;
  return typeof ns === 'number' && ns >= 0 && ns < 8e18 ? utcTime(ns) : value;
}

/** A sheet as CSV: times in UTC, units in the header. If something was cut, the last row says so. */
export function sheetCsv({ columns, rows, cut = '' }: Sheet): string {
  const note = cut === '' ? [] : [columns.map((_, i) => (i === 0 ? `# ${cut}` : null))];
  const cells = rows.map((row) => row.map((value, i) => cell(value, columns[i])));
  return toCsv(columns.map(heading), [...cells, ...note]);
}

/** `Slowest flows` → `slowest-flows`. */
function slug(text: string): string {
  const plain = text.normalize('NFKD').toLowerCase();
  return (
    plain
      .replace(/[^a-z0-9]+/g, '-')
      .replace(/^-|-$/g, '')
      .slice(0, 48) || 'page'
  );
}

/** `20261126T031000Z`: a file name has no colons everywhere. */
function compact(ms: number): string {
  return new Date(ms).toISOString().replace(/\.\d+|[-:]/g, '');
}

/** The name of a file: page, title and the times that it is about, ms. */
export function fileName(page: string, title: string, times: readonly number[], ending: string): string {
  const parts = [...new Set([slug(page), slug(title)]), ...times.map(compact)];
  return `hopwise_${parts.join('_')}.${ending}`;
}

/** Columns of a chart over time: its times in seconds, then one column for each series. */
export function seriesSheet(
  times: ArrayLike<number>,
  series: readonly { name: string; values: ArrayLike<number | null | undefined> }[],
  unit: string,
): Sheet {
  return {
    columns: [{ name: 'time', time: true }, ...series.map(({ name }) => ({ name, unit }))],
    rows: Array.from(times, (time, i) => [
      Math.round(time * 1e9),
      ...series.map(({ values }) => values[i] ?? null),
    ]),
  };
}
