import { dictionary } from '../lib/dictionary';

/** A span of time that a page shows: the last so many seconds, or between two times. It is part of the address. */
export type Range = { last: number } | { from: number; to: number };

/** Lengths that are offered, seconds. */
export const LENGTHS: readonly { seconds: number; label: string; text: string }[] = [
  { seconds: 300, label: '5 min', text: '5m' },
  { seconds: 900, label: '15 min', text: '15m' },
  { seconds: 3600, label: '1 h', text: '1h' },
  { seconds: 6 * 3600, label: '6 h', text: '6h' },
  { seconds: 24 * 3600, label: '24 h', text: '24h' },
  { seconds: 7 * 24 * 3600, label: '7 d', text: '7d' },
];

export const USUAL: Range = { last: 900 };

const UNITS = dictionary<number>({ s: 1, m: 60, h: 3600, d: 86_400 });

/** `15m`, `1h` … in seconds; null if it is not one. */
export function parseLength(text: string): number | null {
  const parts = /^(\d{1,6})([smhd])$/.exec(text);
  const seconds = parts === null ? 0 : Number(parts[1]) * (UNITS[parts[2] ?? ''] ?? 0);
  return seconds > 0 ? seconds : null;
}

export function lengthText(seconds: number): string {
  const known = LENGTHS.find((length) => length.seconds === seconds);
  return known?.text ?? `${seconds}s`;
}

/** A time in ms; NaN if it is none. A time without a zone is UTC, as in the API and in commands. */
function readTime(text: string): number {
  // `Date.parse` reads a date as UTC, but a time without a zone as local.
  const parts = /^(\d{4}-\d{2}-\d{2})[T ](\d{2}:\d{2}(?::\d{2}(?:\.\d+)?)?)$/.exec(text);
  return Date.parse(parts === null ? text : `${parts[1] ?? ''}T${parts[2] ?? ''}Z`);
}

/** The range in an address; the usual one if there is none, or none that can be read. */
export function readRange(query: URLSearchParams): Range {
  const [from, to] = ['from', 'to'].map((name) => readTime(query.get(name) ?? ''));
  if (from !== undefined && to !== undefined && from < to) return { from, to };
  const last = parseLength(query.get('last') ?? '');
  return last === null ? USUAL : { last };
}

/** The range as parts of an address. */
export function writeRange(range: Range): Record<string, string> {
  if ('last' in range)
    return 'last' in USUAL && range.last === USUAL.last ? {} : { last: lengthText(range.last) };
  const text = (ms: number): string => new Date(ms).toISOString().replace(/\.000Z$/, 'Z');
  return { from: text(range.from), to: text(range.to) };
}

/** Its limits in ms, at `now` (ms). */
export function limits(range: Range, now: number): { from: number; to: number } {
  return 'last' in range ? { from: now - range.last * 1000, to: now } : range;
}

/** Twice as long, around the same middle; not beyond `now`. */
export function zoomOut(range: Range, now: number): Range {
  const { from, to } = limits(range, now);
  const length = to - from;
  const end = Math.min(to + length / 2, now);
  return end >= now - 1000 ? { last: Math.round((2 * length) / 1000) } : { from: end - 2 * length, to: end };
}

/** The span before or after, of the same length; the future is not entered. */
export function shift(range: Range, direction: -1 | 1, now: number): Range {
  const { from, to } = limits(range, now);
  const length = to - from;
  const end = to + direction * length;
  if (end >= now) return { last: Math.round(length / 1000) };
  return { from: end - length, to: end };
}

/** A span that a person has drawn, in whole seconds, at least two of them. */
export function between(one: number, other: number): Range {
  const from = Math.floor(Math.min(one, other) / 1000) * 1000;
  const to = Math.max(Math.ceil(Math.max(one, other) / 1000) * 1000, from + 2000);
  return { from, to };
}

/** A time as the API takes it. */
export function nanos(ms: number): string {
  return (BigInt(Math.round(ms)) * 1_000_000n).toString();
}

/** A range as people say it, in the local zone: `03:10–03:20 yesterday`, `the last 6 h`. */
export function rangeText(range: Range, now: number): string {
  if ('last' in range) return `the last ${lengthLabel(range.last)}`;
  const [from, to] = [new Date(range.from), new Date(range.to)];
  const withSeconds = range.from % 60_000 !== 0 || range.to % 60_000 !== 0;
  const [start, end] = [timeOfDay(from, withSeconds), timeOfDay(to, withSeconds)];
  const [first, last] = [dayText(from, now), dayText(to, now)];
  return first === last ? `${start}–${end} ${first}` : `${start} ${first} – ${end} ${last}`;
}

/** The same in UTC, for hover texts. */
export function utcText({ from, to }: { from: number; to: number }): string {
  const text = (ms: number): string =>
    new Date(ms)
      .toISOString()
      .replace('T', ' ')
      .replace(/\.\d+Z$/, '');
  return `${text(from)} to ${text(to)} UTC`;
}

/**
 * The zone of local times from `from` to `to`, in milliseconds: `local time, UTC+02:00`. If the clocks are changed in between, it names
 * both offsets: `local time, UTC+02:00 to UTC+01:00`.
 */
export function zoneText(from: number, to: number): string {
  const [first, last] = [offsetText(from), offsetText(to)];
  if (first !== last) return `local time, ${first} to ${last}`;
  return first === 'UTC' ? first : `local time, ${first}`;
}

/** The offset of local time at a time: `UTC+02:00`, or `UTC`. */
function offsetText(at: number): string {
  const east = -new Date(at).getTimezoneOffset();
  if (east === 0) return 'UTC';
  const minutes = Math.abs(east);
  return `UTC${east < 0 ? '−' : '+'}${two(Math.floor(minutes / 60))}:${two(minutes % 60)}`;
}

function lengthLabel(seconds: number): string {
  return LENGTHS.find((length) => length.seconds === seconds)?.label ?? `${seconds} s`;
}

function two(value: number): string {
  return String(value).padStart(2, '0');
}

function timeOfDay(date: Date, withSeconds: boolean): string {
  const parts = [date.getHours(), date.getMinutes(), ...(withSeconds ? [date.getSeconds()] : [])];
  return parts.map(two).join(':');
}

function dayText(date: Date, now: number): string {
  const day = (at: Date): number => new Date(at.getFullYear(), at.getMonth(), at.getDate()).getTime();
  // Days of 23 and 25 hours are days too.
  const ago = Math.round((day(new Date(now)) - day(date)) / 86_400_000);
  if (ago === 0) return 'today';
  if (ago === 1) return 'yesterday';
  return `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())}`;
}

/** Says that an answer about a range is about a part of it only; empty otherwise. */
export function partText(...answers: { range?: { truncated: boolean } | null }[]): string {
  return answers.some(({ range }) => range?.truncated === true)
    ? 'Incomplete: this time has more flows, nodes or queues than are considered. Choose a shorter time.'
    : '';
}
