import { dictionary } from '../lib/dictionary';
import type { TelemetryEvent } from '../api/types';
import { metricAmount, metricValue, pathText, plural } from '../lib/format';
import { names, reasonName } from '../lib/names';
import type { Sheet } from '../lib/sheet';

export const KINDS = [
  'rule_on',
  'rule_off',
  'drop',
  'packet_loss',
  'loss',
  'path_change',
  'path_loop',
  'change',
  'new',
  'expired',
  'hop_limit',
  'mtu',
  'latest',
] as const;

/** Reported periodically, changed or not. */
export const PUSHED = 'latest';

/** Rare and important: they are fetched separately, because a flood of changes would hide them. */
export const RARE_KINDS = [
  'rule_on',
  'rule_off',
  'drop',
  'packet_loss',
  'loss',
  'path_change',
  'path_loop',
  'hop_limit',
  'mtu',
] as const;

export const METRICS = [
  'flow_path',
  'flow_latency',
  'hop_latency',
  'queue_occupancy',
  'queue_congestion',
  'link_utilization',
] as const;

export type Tone = 'bad' | 'warn' | 'good' | 'info' | 'quiet';

const TONES = dictionary<Tone>({
  rule_on: 'bad',
  rule_off: 'good',
  drop: 'bad',
  packet_loss: 'bad',
  loss: 'bad',
  path_loop: 'bad',
  path_change: 'warn',
  hop_limit: 'warn',
  mtu: 'warn',
  change: 'info',
});

export function tone(kind: string): Tone {
  return TONES[kind] ?? 'quiet';
}

export function kindLabel(kind: string): string {
  return kind.replaceAll('_', ' ');
}

export function metricLabel(metric: string | null): string {
  return metric === null ? 'value' : metric.replaceAll('_', ' ');
}

/** What the value belongs to, besides the flow: `at 102 queue 3`. */
function where(event: TelemetryEvent): string {
  const parts: string[] = [];
  if (event.node !== null) parts.push(`at ${names.node(event.node)}`);
  if (event.queue !== null) parts.push(`queue ${event.queue}`);
  if (event.interface !== null) parts.push(`interface ${names.interface(event.node, event.interface)}`);
  return parts.join(' ');
}

function subject(event: TelemetryEvent): string {
  return [metricLabel(event.metric), where(event)].filter((part) => part !== '').join(' ');
}

function change(event: TelemetryEvent): string {
  const { metric, previous } = event;
  const value = metricAmount(metric, event.value);
  if (previous === null || event.value === null) return `${subject(event)} is now ${value}`;
  const direction = event.value >= previous ? 'rose' : 'fell';
  const before = metricAmount(metric, previous);
  // Two values can look equal after rounding: then the difference is shown.
  const difference = metricValue(metric, Math.abs(event.value - previous));
  const course =
    before === value ? `by ${difference} to ${value}` : `${metricValue(metric, previous)} → ${value}`;
  const limit = event.threshold ? ` (threshold ${metricValue(metric, event.threshold)})` : '';
  return `${subject(event)} ${direction} ${course}${limit}`;
}

function first(event: TelemetryEvent): string {
  if (event.metric === 'flow_path') {
    const what = event.previous === null ? 'new flow on path' : 'more of the path:';
    const path = event.path?.length ? `${what} ${pathText(event.path)}` : 'new flow';
    const latency = event.flow_latency ?? null;
    if (latency === null) return path;
    const basis = basisMark(event.latency_basis ?? null)?.mark;
    return `${path}, ${metricValue('flow_latency', latency)}${basis ? ` (${basis})` : ''}`;
  }
  const value = event.value === null ? '' : `: ${metricAmount(event.metric, event.value)}`;
  return `${subject(event)} first seen${value}`;
}

function dropped(event: TelemetryEvent): string {
  const reason = event.reason === null ? '' : `: ${reasonOf(event)}`;
  return `packet dropped ${where(event)}`.trimEnd() + reason;
}

/** A name where the profiles agree on one, else the device's code. */
function reasonOf({ reason, reason_name }: TelemetryEvent): string {
  if (reason_name) return reasonName(reason_name);
  return reason === null ? '' : names.reason(reason);
}

function rule(event: TelemetryEvent, became: string): string {
  const at = where(event);
  return `rule ${event.rule ?? '?'} became ${became}${at === '' ? '' : ` ${at}`}`;
}

function loss(event: TelemetryEvent): string {
  const whose = event.node === null ? '' : ` from ${names.node(event.node)}`;
  if (event.value === null) return `reports${whose} never arrived`;
  return `${plural(event.value, 'report')}${whose} never arrived`;
}

function missing(event: TelemetryEvent): string {
  const packets = event.value === null ? 'packets' : plural(event.value, 'packet');
  return `${packets} lost between source and sink: ${pathText(event.path)}`;
}

function stuck(event: TelemetryEvent, cause: string): string {
  return `a hop ${where(event)} could not add its data: ${cause}`.replace('  ', ' ');
}

function expired(event: TelemetryEvent): string {
  return event.metric === 'flow_path' ? 'flow no longer seen' : `${subject(event)} no longer seen`;
}

const SENTENCES = dictionary<(event: TelemetryEvent) => string>({
  new: first,
  change,
  path_change: (event) => `path changed to ${pathText(event.path)}`,
  path_loop: (event) => `path loops: ${pathText(event.path)}`,
  rule_on: (event) => rule(event, 'true'),
  rule_off: (event) => rule(event, 'false'),
  drop: dropped,
  packet_loss: missing,
  loss,
  expired,
  hop_limit: (event) => stuck(event, 'hop limit reached (E bit)'),
  mtu: (event) => stuck(event, 'packet would exceed the MTU (M bit)'),
  latest: (event) => `${subject(event)} is ${metricAmount(event.metric, event.value)}`,
});

/** An event as a sentence; the flow, the time and the kind stand beside it. */
export function sentence(event: TelemetryEvent): string {
  const known = SENTENCES[event.kind];
  return known ? known(event) : `${kindLabel(event.kind)} ${subject(event)}`;
}

/** Annotation of a latency that is not a plain measurement, to be shown beside the value. */
export function basisMark(basis: string | null): { mark: string; hint: string } | null {
  if (basis === 'hop_sum' || basis === 'hopsum') {
    return { mark: 'Σ hops', hint: 'Sum of the hop latencies, without the time on the links' };
  }
  if (basis === 'corrected') return { mark: '≈', hint: 'Corrected by an estimated clock offset' };
  if (basis === 'unsynchronised') {
    return { mark: 'clocks disagree', hint: 'Egress before ingress: the clocks are not synchronised' };
  }
  if (basis === 'hop_limit') {
    return { mark: 'by hop limit', hint: 'Joined from postcards, in the order of the packet’s hop limit' };
  }
  if (basis === 'timestamps') {
    return { mark: 'by timestamps', hint: 'Joined from postcards, in the order of their timestamps' };
  }
  if (basis === 'topology') {
    return { mark: 'by links', hint: 'Joined from postcards, in the order of the configured links' };
  }
  return null;
}

export interface Filter {
  /** Empty: all but the periodic push, which is no change. */
  kinds: ReadonlySet<string>;
  /** Empty: all. */
  metric: string;
}

/** A whole flow (`10.0.0.1:5000>10.0.0.2:80/17`), not a part of one. */
export function isFlowText(text: string): boolean {
  return /^[^\s>]+>[^\s>]+\/\d+$/.test(text);
}

function isWanted(kind: string, chosen: ReadonlySet<string>): boolean {
  return chosen.size === 0 ? kind !== PUSHED : chosen.has(kind);
}

/**
 * The newest events of each kind, so that a flood of one kind does not push out the rare ones. Holds at most
 * kinds × `perKind`.
 */
export class EventLog {
  private readonly kinds = new Map<string, TelemetryEvent[]>();
  private readonly ids = new Set<string>();
  readonly counts = new Map<string, number>();
  /** Events from this time on are complete; of older ones only rare kinds are present. */
  completeSince = 0;
  /** Kinds of which older events are stored than those that were loaded. */
  readonly cut = new Set<string>();

  constructor(private perKind: number) {}

  /** Increases the capacity, for older events on request. */
  grow(by: number, most: number): void {
    this.perKind = Math.min(most, this.perKind + by);
  }

  /** Returns false for one that is there already. */
  add(event: TelemetryEvent): boolean {
    const id = identity(event);
    if (this.ids.has(id)) return false;
    this.ids.add(id);
    this.counts.set(event.kind, (this.counts.get(event.kind) ?? 0) + 1);
    const list = this.kinds.get(event.kind) ?? [];
    this.kinds.set(event.kind, list);
    insert(list, event);
    if (list.length > this.perKind) this.forget(list.pop());
    return true;
  }

  /** Newest first. */
  select(filter: Filter, limit: number): TelemetryEvent[] {
    const lists = [...this.kinds].filter(([kind]) => isWanted(kind, filter.kinds));
    const all = lists.flatMap(([, list]) => list);
    const matching = all.filter(({ metric }) => filter.metric === '' || metric === filter.metric);
    return matching.sort((a, b) => b.ts - a.ts).slice(0, limit);
  }

  clear(): void {
    this.kinds.clear();
    this.ids.clear();
    this.counts.clear();
    this.cut.clear();
    this.completeSince = 0;
  }

  private forget(event: TelemetryEvent | undefined): void {
    if (!event) return;
    this.ids.delete(identity(event));
    this.completeSince = Math.max(this.completeSince, event.ts);
  }
}

/** The record id is derived from the content; the same change on two metrics or nodes stays two events. */
function identity(event: TelemetryEvent): string {
  return [event.id, event.ts, event.kind, event.metric, event.node, event.queue, event.rule].join('|');
}

/** Newest first; a new event nearly always belongs at the front. */
function insert(list: TelemetryEvent[], event: TelemetryEvent): void {
  let at = 0;
  while (at < list.length && (list[at]?.ts ?? 0) > event.ts) at += 1;
  list.splice(at, 0, event);
}

/** The end of the last page: `next` of the answer, and the time since which events are complete up to there. */
export interface PageEnd {
  after: string;
  since: number;
}

/**
 * The parameter of the next page: it goes on where the last one ended. `gap`: the time of a newer event that was forgotten meanwhile, or
 * null; the page begins there, one step of a double above it, and duplicates are removed by their id.
 */
export function nextPage(end: PageEnd | null, gap: number | null): { after?: string; before?: string } {
  if (end !== null && (gap === null || gap <= end.since)) return { after: end.after };
  return gap === null ? {} : { before: (BigInt(Math.round(gap)) + 256n).toString() };
}

/** Events as rows of a file. */
export function eventSheet(events: readonly TelemetryEvent[], cut: string): Sheet | null {
  if (events.length === 0) return null;
  const names = [
    'id',
    'kind',
    'metric',
    'flow',
    'node',
    'interface',
    'queue',
    'value',
    'previous',
    'threshold',
    'rule',
    'path',
    'reason',
    'reason_name',
    'basis',
  ];
  return {
    columns: [{ name: 'time', time: true }, ...names.map((name) => ({ name }))],
    rows: events.map((event) => [
      event.ts,
      event.id,
      event.kind,
      event.metric,
      event.text,
      event.node,
      event.interface,
      event.queue,
      event.value,
      event.previous,
      event.threshold,
      event.rule,
      event.path.length === 0 ? null : event.path.map((node) => node ?? '?').join('>'),
      event.reason,
      event.reason_name,
      event.basis,
    ]),
    cut,
  };
}
