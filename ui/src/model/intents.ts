import type { Device, Plan } from '../api/manager';

/** What the form of an intent holds: texts as typed. */
export interface Draft {
  name: string;
  src: string;
  dst: string;
  sport: string;
  dport: string;
  proto: string;
  both: boolean;
  watch: string[];
  mode: string;
  edges: string;
  filter: string;
  metric: string;
  threshold: string;
  until: string;
}

export const METRICS = [
  'flow_path',
  'flow_latency',
  'hop_latency',
  'queue_occupancy',
  'queue_congestion',
  'link_utilization',
] as const;

export const EMPTY: Draft = {
  name: '',
  src: '',
  dst: '',
  sport: '',
  dport: '',
  proto: '',
  both: false,
  watch: ['flow_path', 'flow_latency', 'hop_latency'],
  mode: 'auto',
  edges: '',
  filter: '',
  metric: 'hop_latency',
  threshold: '',
  until: '',
};

/** The values of a text with commas or spaces between them. */
export function list(text: string): string[] {
  return text.split(/[\s,]+/).filter((part) => part !== '');
}

/** The intent as the API reads it, with the keys of `[[intents]]`. */
export function toIntent(draft: Draft): Record<string, unknown> {
  const match: Record<string, string[]> = {};
  for (const key of ['src', 'dst', 'sport', 'dport', 'proto'] as const) {
    const values = list(draft[key]);
    if (values.length > 0) match[key] = values;
  }
  const intent: Record<string, unknown> = { name: draft.name.trim(), watch: draft.watch };
  if (Object.keys(match).length > 0) intent['match'] = match;
  if (draft.both) intent['both_directions'] = true;
  if (draft.mode !== 'auto') intent['mode'] = draft.mode;
  const edges = list(draft.edges);
  if (edges.length > 0) intent['at'] = { edges };
  if (draft.filter !== '') {
    const compares = draft.filter !== 'change' && draft.threshold.trim() !== '';
    const thresholds = compares ? { thresholds: { [draft.metric]: draft.threshold.trim() } } : {};
    intent['tell'] = { filter: draft.filter, ...thresholds };
  }
  if (draft.until.trim() !== '') intent['until'] = draft.until.trim();
  return intent;
}

/** A draft from the address of the page, as "watch this" links give it. */
export function fromQuery(query: URLSearchParams): Draft {
  const text = (key: string, usual: string): string => query.get(key) ?? usual;
  const watch = list(text('watch', '')).filter((name) => METRICS.some((metric) => metric === name));
  return {
    ...EMPTY,
    name: text('name', ''),
    src: text('src', ''),
    dst: text('dst', ''),
    sport: text('sport', ''),
    dport: text('dport', ''),
    proto: text('proto', ''),
    edges: text('edges', ''),
    watch: watch.length > 0 ? watch : EMPTY.watch,
  };
}

/** A draft that was kept as JSON; empty values where it does not fit. */
export function fromKept(text: string | null): Draft {
  try {
    const kept = JSON.parse(text ?? '{}') as Partial<Draft>;
    return { ...EMPTY, ...kept };
  } catch {
    return EMPTY;
  }
}

export type Tone = 'ok' | 'warn' | 'bad' | 'none';

/** The meaning of a state of an intent or device. */
export function tone(state: string): Tone {
  if (['complete', 'in_sync'].includes(state)) return 'ok';
  if (['refused', 'silent', 'failed', 'unreachable'].includes(state)) return 'bad';
  if (['stopped', 'standby'].includes(state)) return 'none';
  return 'warn';
}

/** What a plan does to a device. */
export function gets(plan: Plan | null, node: number): { added: number; removed: number } {
  const device = plan?.devices.find((one) => one.node === node);
  return { added: device?.added ?? 0, removed: device?.removed ?? 0 };
}

export interface Place {
  node: number;
  name: string;
  x: number;
  y: number;
}

/** Places of devices on a small map: those with hosts at the bottom, the others above them by distance; 0 to 1. */
export function places(devices: readonly Device[], links: readonly (readonly number[])[]): Place[] {
  const depth = new Map<number, number>();
  let frontier = devices
    .filter((one) => one.ports.some((port) => port.role === 'edge'))
    .map((one) => one.node);
  if (frontier.length === 0) frontier = devices.slice(0, 1).map((one) => one.node);
  for (let level = 0; frontier.length > 0; level += 1) {
    for (const node of frontier) depth.set(node, level);
    const next = links.flatMap(([a = 0, , b = 0]) => {
      if (depth.has(a) && !depth.has(b)) return [b];
      return depth.has(b) && !depth.has(a) ? [a] : [];
    });
    frontier = [...new Set(next)];
  }
  const levels = Math.max(0, ...depth.values());
  const row = (level: number): Device[] => devices.filter((one) => (depth.get(one.node) ?? 0) === level);
  return Array.from({ length: levels + 1 }, (_, level) => row(level)).flatMap((members, level) =>
    members.map((one, index) => ({
      node: one.node,
      name: one.name,
      x: (index + 1) / (members.length + 1),
      y: levels === 0 ? 0.5 : 1 - level / levels,
    })),
  );
}
