import type { Cell, QueryResult } from '../api/types';

/** Columns that hold an instant in nanoseconds, by their names in the store's tables. */
export function timeColumn(name: string): boolean {
  return ['ts', 'first_seen', 'last_seen', 'time'].includes(name.toLowerCase());
}

export interface Plot {
  names: string[];
  /** Seconds, rising. */
  times: number[];
  columns: (number | null)[][];
}

const MAX_LINES = 8;

/** A result that can be drawn: `ts` first, then at least one column of numbers. */
export function plotColumns(result: QueryResult): Plot | null {
  const [first] = result.columns;
  if (first === undefined || first.toLowerCase() !== 'ts' || result.rows.length < 2) return null;
  const rows = [...result.rows].sort((a, b) => Number(a[0]) - Number(b[0]));
  const numbers = result.columns
    .map((name, at) => ({ name, at }))
    .filter(({ at }) => at > 0 && isMeasure(rows.map((row) => row[at] ?? null)))
    .slice(0, MAX_LINES);
  if (numbers.length === 0) return null;
  return {
    names: numbers.map(({ name }) => name),
    times: rows.map((row) => Number(row[0]) / 1e9),
    columns: numbers.map(({ at }) => rows.map((row) => toNumber(row[at] ?? null))),
  };
}

function isMeasure(cells: readonly Cell[]): boolean {
  const known = cells.filter((cell) => cell !== null);
  return known.length > 0 && known.every((cell) => typeof cell === 'number');
}

function toNumber(cell: Cell): number | null {
  return typeof cell === 'number' ? cell : null;
}
