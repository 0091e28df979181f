import type { FlowKey } from '../api/types';
import { names } from './names';

/** Numbers, units and times as people read them. Absent values are an en dash, never a zero. */

export const NONE = '–';

type Maybe = number | null | undefined;

function known(value: Maybe): value is number {
  return value !== null && value !== undefined && Number.isFinite(value);
}

/** At most three significant digits, without trailing zeros: 1.2, 48, 999, 1234. */
function digits(value: number): string {
  const magnitude = Math.abs(value);
  if (magnitude >= 100) return value.toFixed(0);
  if (magnitude >= 10) return trim(value.toFixed(1));
  return trim(value.toFixed(2));
}

function trim(text: string): string {
  return text.includes('.') ? text.replace(/\.?0+$/, '') : text;
}

function scaled(value: number, steps: readonly (readonly [number, string])[]): string {
  const magnitude = Math.abs(value);
  for (const [size, unit] of steps) {
    // Half a unit in the last digit: 999.6 reads "1 k", never "1000".
    if (magnitude >= size * 0.9995) return `${digits(value / size)} ${unit}`.trimEnd();
  }
  return digits(value);
}

const TIMES = [
  [1e9, 's'],
  [1e6, 'ms'],
  [1e3, 'µs'],
  [0, 'ns'],
] as const;

/** A duration in nanoseconds: `850 ns`, `1.2 µs`, `48 ms`. */
export function duration(ns: Maybe): string {
  if (!known(ns)) return NONE;
  if (ns === 0) return '0 ns';
  for (const [size, unit] of TIMES) {
    if (size === 0) return `${digits(ns)} ${unit}`;
    if (Math.abs(ns) >= size * 0.9995) return `${digits(ns / size)} ${unit}`;
  }
  return NONE;
}

const COUNTS = [
  [1e12, 'T'],
  [1e9, 'G'],
  [1e6, 'M'],
  [1e3, 'k'],
] as const;

/** A count with an SI prefix: `950`, `12.4 k`, `3.1 M`. */
export function count(value: Maybe): string {
  return known(value) ? scaled(value, COUNTS) : NONE;
}

/** A count to the last digit, grouped: `12 345 678`. For losses, where each one matters. */
export function exact(value: Maybe): string {
  if (!known(value)) return NONE;
  return Math.round(value)
    .toString()
    .replace(/\B(?=(\d{3})+$)/g, '\u202f');
}

const BYTES = [
  [1024 ** 4, 'TiB'],
  [1024 ** 3, 'GiB'],
  [1024 ** 2, 'MiB'],
  [1024, 'KiB'],
] as const;

export function bytes(value: Maybe): string {
  if (!known(value)) return NONE;
  return value < 1023.5 ? `${digits(value)} B` : scaled(value, BYTES);
}

/** A fraction of 1 as per cent. Small ones keep their first digit: `0.003 %`, so that a loss never reads as none. */
export function percent(fraction: Maybe): string {
  if (!known(fraction)) return NONE;
  const value = fraction * 100;
  if (value === 0) return '0 %';
  if (Math.abs(value) >= 0.01) return `${digits(value)} %`;
  return `${Number(value.toPrecision(1)).toString()} %`;
}

/** The time since `ts`, in one unit. Both in nanoseconds. */
export function ago(ts: Maybe, now: number): string {
  if (!known(ts) || ts === 0) return 'never';
  const seconds = (now - ts) / 1e9;
  if (seconds < 1.5) return 'now';
  return `${span(seconds)} ago`;
}

/** A length of time in seconds with its largest unit, two for hours and days: `42 s`, `7 min`, `3 h 20 min`. */
export function span(seconds: number): string {
  if (seconds < 59.5) return `${Math.round(seconds)} s`;
  const minutes = Math.max(1, Math.floor(seconds / 60));
  if (minutes < 60) return `${minutes} min`;
  const hours = Math.floor(minutes / 60);
  if (hours < 24) return `${hours} h ${minutes % 60} min`;
  return `${Math.floor(hours / 24)} d ${hours % 24} h`;
}

/** Local time of day with milliseconds: `21:04:07.123`. */
export function clock(ts: Maybe): string {
  if (!known(ts)) return NONE;
  const date = new Date(ts / 1e6);
  const part = (value: number, width = 2): string => String(value).padStart(width, '0');
  const day = `${part(date.getHours())}:${part(date.getMinutes())}:${part(date.getSeconds())}`;
  return `${day}.${part(date.getMilliseconds(), 3)}`;
}

/** From this length on, a time of day alone does not say which day, ns. */
const LONG = 20 * 3600e9;

/** A local time within a span of `length` ns: `21:04:07`, with its day if the span is long. */
export function timeWithin(ts: Maybe, length: number): string {
  return length > LONG ? dateTime(ts).slice(5, 19) : clock(ts).slice(0, 8);
}

/** Full local date and time, for hover texts. */
export function dateTime(ts: Maybe): string {
  if (!known(ts)) return NONE;
  const date = new Date(ts / 1e6);
  const part = (value: number): string => String(value).padStart(2, '0');
  return `${date.getFullYear()}-${part(date.getMonth() + 1)}-${part(date.getDate())} ${clock(ts)}`;
}

/** The same in UTC, to the second: `2026-11-26 03:12:07 UTC`, for hover texts. */
export function utc(ts: Maybe): string {
  if (!known(ts)) return NONE;
  return `${new Date(ts / 1e6).toISOString().slice(0, 19).replace('T', ' ')} UTC`;
}

/** A local time with the same in UTC, for hover texts. */
export function bothTimes(ts: Maybe): string {
  return known(ts) ? `${dateTime(ts)} here, ${utc(ts)}` : '';
}

/** The unit of a metric's value as events and rollups hold it. */
export function metricUnit(metric: string | null): string {
  if (metric === 'flow_latency' || metric === 'hop_latency') return 'ns';
  if (metric === 'link_utilization') return 'ppm';
  return metric === 'queue_occupancy' || metric === 'queue_congestion' ? 'device units' : '';
}

/** A metric's value as events and rollups hold it: nanoseconds, the device's units, millionths of a link. */
export function metricValue(metric: string | null, value: Maybe): string {
  if (!known(value)) return NONE;
  if (metric === 'flow_latency' || metric === 'hop_latency') return duration(value);
  if (metric === 'link_utilization') return percent(value / 1e6);
  return count(value);
}

/** The same with the unit, where a bare number would have none: `67.8 k device units`. */
export function metricAmount(metric: string | null, value: Maybe): string {
  const text = metricValue(metric, value);
  return known(value) && metricUnit(metric) === 'device units' ? `${text} device units` : text;
}

/** What an error says. */
export function reasonOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

export function plural(value: number, one: string, many = `${one}s`): string {
  return `${exact(value)} ${value === 1 ? one : many}`;
}

const PROTOCOLS: Readonly<Record<number, string>> = {
  1: 'ICMP',
  6: 'TCP',
  17: 'UDP',
  58: 'ICMPv6',
  132: 'SCTP',
};

export function protocol(proto: number): string {
  return PROTOCOLS[proto] ?? `proto ${proto}`;
}

function endpoint(host: string, port: number | null): string {
  if (port === null) return host;
  return host.includes(':') ? `[${host}]:${port}` : `${host}:${port}`;
}

/** A flow as people read it: `10.0.1.5:41000 → db1:443 TCP`. */
export function flowName(flow: FlowKey): string {
  const [src, dst] = [names.host(flow.src), names.host(flow.dst)];
  return `${endpoint(src, flow.sport)} → ${endpoint(dst, flow.dport)} ${protocol(flow.proto)}`;
}

/** A flow given as text, such as `10.0.0.1:5000>10.0.0.2:80/17`, in the same way; another text stays as it is. */
export function flowTextName(text: string): string {
  const parts = /^(.+)>(.+)\/(\d+)$/.exec(text);
  if (parts === null) return text;
  const [src, dst] = [parts[1] ?? '', parts[2] ?? ''].map(readEndpoint);
  if (!src || !dst) return text;
  return flowName({
    src: src.host,
    sport: src.port,
    dst: dst.host,
    dport: dst.port,
    proto: Number(parts[3]),
  });
}

/** `10.0.0.1:80`, `[fd00::1]:80`, or an address alone; null if it is neither. */
function readEndpoint(text: string): { host: string; port: number | null } | null {
  const parts = /^(?:\[([\da-f:.]+)\]|(\d+\.\d+\.\d+\.\d+)):(\d+)$/i.exec(text);
  if (parts !== null) return { host: parts[1] ?? parts[2] ?? '', port: Number(parts[3]) };
  return /^(?=.*[:.])[\da-f:.]+$/i.test(text) ? { host: text, port: null } : null;
}

/** Nodes of a path in forwarding order; an unknown one is a query mark. */
export function pathText(path: readonly (number | null)[] | null): string {
  if (!path || path.length === 0) return NONE;
  return path.map((node) => (node === null ? '?' : names.node(node))).join(' › ');
}
