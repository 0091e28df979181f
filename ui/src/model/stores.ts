import type { Answer, CountAnswer, Fields, SketchAnswer, Store } from '../api/dta';
import { count, duration, exact, NONE, percent, plural } from '../lib/format';
import { names } from '../lib/names';

/** The layout of a store, in a few words. */
export function shapeText(store: Store): string {
  switch (store.kind) {
    case 'key-write':
      return `${count(store.slots)} slots of ${plural(store.data ?? 0, 'byte')}`;
    case 'append':
      return `${plural(store.lists ?? 0, 'list')} of ${count(store.entries)} entries of ${plural(store.entry ?? 0, 'byte')}`;
    case 'key-increment':
      return `${count(store.slots)} counters`;
    case 'sketch':
      return `${store.sketch ?? 'sketch'}, ${exact(store.depth)} × ${count(store.columns)}`;
    case 'postcarding':
      return `${count(store.slots)} paths of ${plural(store.hops ?? 0, 'hop')}`;
  }
}

/** The expected share of keys that a query finds, by copies: `93 % with 1, 98 % with 2`. */
export function expectedText(store: Store): string {
  if (store.expected.length === 0) return NONE;
  return store.expected.map((one) => `${percent(one.answered)} with ${one.copies}`).join(', ');
}

/** The kind of query that a store supports. */
export function queryOf(kind: Store['kind']): 'get' | 'count' | 'sketch' | null {
  switch (kind) {
    case 'key-write':
    case 'postcarding':
      return 'get';
    case 'key-increment':
      return 'count';
    case 'sketch':
      return 'sketch';
    case 'append':
      return null;
  }
}

/** Names of common IP protocols. */
const PROTOCOLS: Readonly<Record<number, string>> = {
  1: 'icmp',
  6: 'tcp',
  17: 'udp',
  47: 'gre',
  50: 'esp',
  58: 'icmpv6',
  132: 'sctp',
};

/** Named values as text, codes and ids with their names: `node leaf1, reason 71 (acl deny)`. */
export function fieldsText(fields: Fields): string {
  return Object.entries(fields)
    .filter(([name]) => name !== 'reason_name')
    .map(([name, value]) => `${name} ${named(fields, name, value)}${nameText(fields, name, value)}`)
    .join(', ');
}

/** A value, or what people call it. */
function named(fields: Fields, name: string, value: unknown): string {
  if (Array.isArray(value)) return value.map((one) => named(fields, name, one)).join(' › ');
  if (typeof value === 'number') {
    const node = fields['node'] ?? fields['switch'];
    if (name === 'node' || name === 'switch') return names.node(value);
    if (/latency$/.test(name)) return duration(value);
    if (name.endsWith('gress_if') && typeof node === 'number') return names.interface(node, value);
  }
  if (typeof value === 'string') {
    if (/^(src|dst)6?$/.test(name)) return names.host(value);
    if (/^flow6?$/.test(name)) return flowText(value);
  }
  return valueText(value);
}

/** `10.0.0.1:5000>10.0.0.2:80/17`, with the names of the hosts. */
function flowText(text: string): string {
  const parts = /^\[?(.+?)\]?(:\d+)?>\[?(.+?)\]?(:\d+)?(\/\d+)$/.exec(text);
  if (!parts) return text;
  const [, src = '', sport = '', dst = '', dport = '', proto = ''] = parts;
  const [from, to] = [names.host(src), names.host(dst)];
  return from === src && to === dst ? text : `${from}${sport}>${to}${dport}${proto}`;
}

function nameText(fields: Fields, name: string, value: unknown): string {
  if (name === 'proto' && typeof value === 'number' && PROTOCOLS[value]) return ` (${PROTOCOLS[value]})`;
  if (name === 'reason' && typeof fields['reason_name'] === 'string') return ` (${fields['reason_name']})`;
  return '';
}

function valueText(value: unknown): string {
  return value === null ? NONE : String(value);
}

/** A sentence about the answer, and whether there is one. */
export function answerText(answer: Answer): { good: boolean; text: string } {
  const copies = answer.copies ?? 0;
  switch (answer.answer) {
    case 'found': {
      const path = answer.path ? answer.path.map((hop) => hop ?? '?').join(' › ') : null;
      const what = path ?? (answer.fields ? fieldsText(answer.fields) : (answer.data ?? ''));
      const by =
        copies > 0 ? ` (${plural(answer.agreeing ?? copies, 'copy', 'copies')} of ${copies} agree)` : '';
      return { good: true, text: `${what}${by}` };
    }
    case 'ambiguous':
      return {
        good: false,
        text: `${plural(copies, 'copy', 'copies')} with different values: two keys may share a checksum`,
      };
    case 'unproven': {
      const path = (answer.path ?? []).map((hop) => hop ?? '?').join(' › ');
      return { good: true, text: `${path} (unproven: the slot does not identify its key)` };
    }
    case 'torn':
      return { good: false, text: 'is being written; try again' };
    case 'empty':
      return { good: false, text: 'not found: never reported, or overwritten since' };
  }
}

/** The estimate with the range of the true count, which holds for reports that added to at least as many counters as were read. */
export function countText(answer: CountAnswer): string {
  const { copies, estimate } = answer;
  const lowest = Math.max(0, estimate - Math.ceil(answer.error));
  const range = lowest < estimate ? `${exact(lowest)} to ${exact(estimate)}` : `exactly ${exact(estimate)}`;
  const counters = copies === MAX_COPIES ? `${copies} counters` : `at least ${plural(copies, 'counter')}`;
  const probability = `with ${percent(answer.confidence)} probability`;
  return `${exact(estimate)} (true count: ${range}, ${probability}, if each report adds to ${counters}; ${count(answer.total)} in all keys)`;
}

/** Copies of a counter, at most. */
const MAX_COPIES = 4;

export function sketchText(answer: SketchAnswer): string {
  const epoch = `epoch ${answer.epoch.epoch}, ${plural(answer.epoch.reporters, 'reporter')} merged`;
  const doubt = answer.certain ? '' : '; columns of a newer epoch may be among them';
  if (answer.estimate === null) return `${answer.question}: nothing to estimate (${epoch}${doubt})`;
  const error = answer.error === null ? '' : ` ± ${count(Math.ceil(answer.error))}`;
  return `${answer.question} ${exact(Math.round(answer.estimate))}${error} (${epoch}${doubt})`;
}
