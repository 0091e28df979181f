import type { Burst, Heat, HeatRow } from '../api/types';
import { count, duration, metricValue, percent, plural } from '../lib/format';
import { names } from '../lib/names';

/** What a row of a heat map is about, as people read it: `leaf1 interface eth2 queue 3`. */
export function rowName(row: Pick<HeatRow, 'node' | 'queue' | 'interface'>): string {
  const node = row.node === null ? '?' : names.node(row.node);
  const port = row.interface === null ? '' : names.interface(row.node, row.interface);
  if (row.queue === null) return port === '' ? node : `${node} interface ${port}`;
  return port === '' ? `${node} queue ${row.queue}` : `${node} interface ${port} queue ${row.queue}`;
}

/** `node`, `node.queue` or `node.queue.interface`, for addresses. */
export function rowKey(row: Pick<HeatRow, 'node' | 'queue' | 'interface'>): string {
  if (row.queue === null) return `${row.node}`;
  return row.interface === null ? `${row.node}.${row.queue}` : `${row.node}.${row.queue}.${row.interface}`;
}

/** 0 to 1: the square root of the share of the greatest value: a tenth of it is not the same colour as nothing. */
export function fraction(value: number | null, most: number): number | null {
  if (value === null) return null;
  return most <= 0 ? 0 : Math.sqrt(value / most);
}

/** The greatest of all values. */
export function most(heat: Pick<Heat, 'rows'>): number {
  return heat.rows.reduce((greatest, row) => Math.max(greatest, row.worst), 0);
}

/** What a row's cell says. */
export function cellText(heat: Heat, row: HeatRow, column: number): string {
  const value = row.values[column] ?? null;
  return value === null ? 'nothing measured' : metricValue(heat.metric, value);
}

/** Whether the stored reports do not reach half of what the queue reached: they are not of the packets that filled it. */
function isBelow(burst: Burst): boolean {
  const { occupancy, measured } = burst;
  return occupancy !== null && measured !== null && occupancy * 2 < measured;
}

/** Who filled the queue, in a sentence. */
export function verdict(burst: Burst): string {
  const [first] = burst.flows;
  if (burst.peak === null || first === undefined) return '';
  if (isBelow(burst))
    return (
      `The queue reached ${count(burst.measured ?? 0)}; the packets whose reports are stored saw at most ` +
      `${count(burst.occupancy ?? 0)}. Which flows filled it is unknown.`
    );
  if (burst.occupancy === 0) return 'The packets whose reports are stored saw an empty queue.';
  const share = burst.rise > 0 ? first.rise / burst.rise : 0;
  const many = burst.flows.filter((flow) => flow.rise > 0).length;
  const filled = burst.begun === null ? 0 : burst.peak - burst.begun;
  const time = filled > 0 ? ` in ${duration(filled)}` : '';
  if (first.rise === 0) return 'No packet that filled the queue was reported.';
  const few = share >= 0.5 || many === 1;
  const head = few
    ? `One flow filled it: ${percent(share)} of the packets that arrived while it filled${time}.`
    : `${plural(many, 'flow')} filled it together${time}; the largest sent ${percent(share)} of the packets.`;
  return head;
}

/** What is not known about a burst. */
export function doubts(burst: Burst): string[] {
  const said: string[] = [];
  const every = Math.max(1, ...burst.recordings.map((recording) => recording.every));
  if (every > 1) said.push(`One in ${every} reports was stored; counts are scaled up.`);
  if (burst.recordings.some((recording) => recording.late))
    said.push('Part of the recording was no longer in memory: give the flight recorder more memory.');
  if (burst.truncated) said.push('Not all reports were read: choose a shorter time.');
  const lacks = burst.lacks ?? [];
  said.push(...lacks);
  if (burst.peak !== null && burst.recordings.length === 0 && lacks.length === 0)
    said.push('No recording covers this time; these reports come from the store.');
  return said;
}
