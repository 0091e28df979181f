import { dictionary } from '../lib/dictionary';
import type { Condition } from '../api/client';
import type {
  Device,
  DeviceCapabilities,
  DevicePort,
  Domain,
  Intent,
  IntentCost,
  Plan,
} from '../api/manager';
import type { FlowKey } from '../api/types';
import { count, metricValue, NONE, percent, plural } from '../lib/format';

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
  sample: string;
  edges: string;
  between: string;
  filter: string;
  metric: string;
  threshold: string;
  rule: string;
  /** Metrics of a drill-down; empty: none. */
  then: string;
  thenMatch: string;
  thenFor: string;
  budget: string;
  until: string;
  priority: string;
  /** From what the form was filled in; empty: it was not. */
  derived: string;
  /** The intent that is changed, and its version; empty: a new one. */
  edits: string;
  etag: string;
}

/** The keys of a draft whose values are typed or chosen. */
export type TextKey = Exclude<keyof Draft, 'both' | 'watch' | 'derived' | 'edits' | 'etag'>;

export const METRICS = [
  'flow_path',
  'flow_latency',
  'hop_latency',
  'queue_occupancy',
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
  sample: '',
  edges: '',
  between: '',
  filter: '',
  metric: 'hop_latency',
  threshold: '',
  rule: '',
  then: '',
  thenMatch: 'this flow',
  thenFor: '',
  budget: '',
  until: '',
  priority: '',
  derived: '',
  edits: '',
  etag: '',
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
  const sample = draft.sample.trim();
  if (sample !== '') intent['sample'] = /^\d+$/.test(sample) ? `1 in ${sample}` : sample;
  const at = { edges: list(draft.edges), between: list(draft.between) };
  const places = Object.entries(at).filter(([, names]) => names.length > 0);
  if (places.length > 0) intent['at'] = Object.fromEntries(places);
  const report = toReporting(draft);
  if (Object.keys(report).length > 0) intent['report'] = report;
  const budget = draft.budget.trim();
  if (budget !== '') intent['budget'] = /^\d+$/.test(budget) ? `${budget} reports/s` : budget;
  if (draft.until.trim() !== '') intent['until'] = draft.until.trim();
  const priority = draft.priority.trim();
  // What is no number is sent as it is: the refusal says what is right.
  if (priority !== '') intent['priority'] = /^\d+$/.test(priority) ? Number(priority) : priority;
  return intent;
}

function toReporting({
  filter,
  metric,
  threshold,
  rule,
  then,
  thenMatch,
  thenFor,
}: Draft): Record<string, unknown> {
  const report: Record<string, unknown> = {};
  if (filter !== '') report['filter'] = filter;
  if (filter !== 'change' && threshold.trim() !== '') report['thresholds'] = { [metric]: threshold.trim() };
  if (rule.trim() !== '') report['rule'] = rule.trim();
  const watch = list(then);
  if (watch.length > 0) {
    const length = thenFor.trim() === '' ? {} : { for: thenFor.trim() };
    report['then'] = { watch, match: thenMatch, ...length };
  }
  return report;
}

/** Fields that most intents leave as they are. */
const RARE = [
  'mode',
  'sample',
  'edges',
  'between',
  'filter',
  'threshold',
  'rule',
  'then',
  'budget',
  'until',
  'priority',
] as const;

/** Whether a draft has values in fields that most intents leave as they are. */
export function saysMore(draft: Draft): boolean {
  return RARE.some((key) => draft[key].trim() !== EMPTY[key]);
}

/** The condition under which a draft is put in force: a new intent, or the version that was edited. */
export function condition({ name, edits, etag }: Draft): Condition {
  return edits !== '' && name.trim() === edits ? { etag } : 'new';
}

/** The draft of an intent, to change it; null if it says more than the form can. */
export function fromIntent({ name, etag, intent }: Pick<Intent, 'name' | 'etag' | 'intent'>): Draft | null {
  const [match, at, report] = [table(intent['match']), table(intent['at']), table(intent['report'])];
  const then = table(report['then']);
  const [metric = EMPTY.metric, threshold] = Object.entries(table(report['thresholds']))[0] ?? [];
  const one = (value: unknown, usual = ''): string => (value === undefined ? usual : texts(value).join(', '));
  const draft: Draft = {
    name,
    src: one(match['src']),
    dst: one(match['dst']),
    sport: one(match['sport']),
    dport: one(match['dport']),
    proto: one(match['proto']),
    both: intent['both_directions'] === true,
    watch: texts(intent['watch'] ?? []),
    mode: one(intent['mode'], EMPTY.mode),
    sample: one(intent['sample']),
    edges: one(at['edges']),
    between: one(at['between']),
    filter: one(report['filter']),
    metric,
    threshold: one(threshold),
    rule: one(report['rule']),
    then: one(then['watch']),
    thenMatch: one(then['match'], EMPTY.thenMatch),
    thenFor: one(then['for']),
    budget: one(intent['budget']),
    until: one(intent['until']),
    priority: one(intent['priority']),
    derived: `Changes ${name}: Apply replaces it.`,
    edits: name,
    etag,
  };
  const isKnown = draft.watch.every((watched) => METRICS.some((one) => one === watched));
  return isKnown && canonical(intent) === canonical(toIntent(draft)) ? draft : null;
}

function table(value: unknown): Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
    ? (value as Record<string, unknown>)
    : {};
}

function texts(value: unknown): string[] {
  return Array.isArray(value) ? value.map(String) : [String(value)];
}

/** A text that is equal for intents that say the same: keys in order, each value a list of texts, without usual values. */
function canonical(value: unknown): string {
  if (typeof value !== 'object' || value === null || Array.isArray(value))
    return JSON.stringify(texts(value));
  const usual = (key: string, one: unknown): boolean =>
    one === false || (key === 'mode' && one === 'auto') || JSON.stringify(one) === '{}';
  const entries = Object.entries(value).filter(([key, one]) => !usual(key, one));
  entries.sort(([a], [b]) => (a < b ? -1 : 1));
  return `{${entries.map(([key, one]) => `${key}: ${canonical(one)}`).join(', ')}}`;
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

const FLOW_WORDS = [
  ['src', 'from'],
  ['dst', 'to'],
  ['sport', 'source port'],
  ['dport', 'port'],
  ['proto', 'protocol'],
  ['dscp', 'DSCP'],
] as const;
const PROTOCOLS = dictionary<string>({ '6': 'tcp', '17': 'udp' });
const FILTERS = dictionary<string>({
  per_hop: 'changes at a hop',
  per_flow: 'changes of a flow',
  change: 'changes of the path, or of a bucket of latency or queue',
  rule: 'packets for which the rule is true, and the first one after them',
});

/** Everything that an intent says, as rows for people. */
export function intentRows({
  intent,
  mode,
  instructions,
}: Pick<Intent, 'intent' | 'mode' | 'instructions'>): [string, string][] {
  const [match, at, report] = [table(intent['match']), table(intent['at']), table(intent['report'])];
  const listed = (value: unknown): string => (value === undefined ? '' : texts(value).join(', '));
  const flows = FLOW_WORDS.filter(([key]) => match[key] !== undefined).map(([key, word]) => {
    const values = texts(match[key]).map((one) => (key === 'proto' ? (PROTOCOLS[one] ?? one) : one));
    return `${word} ${values.join(', ')}`;
  });
  if (flows.length === 0) flows.push('all');
  if (intent['both_directions'] === true) flows.push('both directions');
  const places = [
    texts(at['edges'] ?? []).length > 0 ? `at ${listed(at['edges'])}` : '',
    texts(at['between'] ?? []).length > 0 ? `between ${texts(at['between']).join(' and ')}` : '',
  ].filter((part) => part !== '');
  const asked = listed(intent['mode']);
  const chosen =
    mode === null ? asked : `${mode}${asked === '' || asked === 'auto' ? ' (the cheapest)' : ''}`;
  const filter = listed(report['filter']);
  const optional: [string, string][] = [
    ['Mode', chosen],
    ['Each node adds', instructions ?? ''],
    ['Sample', listed(intent['sample']).replace(/^1 in 1$/, '')],
    ['Sinks report', filter === '' ? '' : `${FILTERS[filter] ?? ''} (${filter})`.trim()],
    ['Threshold', amounts(table(report['thresholds']))],
    ['Coarsest threshold', amounts(table(report['coarsest']))],
    ['Rule', listed(report['rule'])],
    ['When true, watch', thenText(table(report['then']))],
    ['Budget', listed(intent['budget'])],
    ['Priority', listed(intent['priority'])],
  ];
  return [
    ['Flows', flows.join('; ')],
    ['Where', places.join('; ') || 'everywhere'],
    ['Watch', listed(intent['watch'])],
    ...optional.filter(([, text]) => text !== ''),
  ];
}

/** Amounts by metric; those without a unit are in the metric's. */
function amounts(of: Record<string, unknown>): string {
  const each = Object.entries(of).map(([metric, amount]) => {
    const text = String(amount);
    return `${metric} ${/^\d+$/.test(text) ? metricValue(metric, Number(text)) : text}`;
  });
  return each.join(', ');
}

function thenText(then: Record<string, unknown>): string {
  if (then['watch'] === undefined) return '';
  const [of, length] = [String(then['match'] ?? 'this flow'), String(then['for'] ?? '30s')];
  return `${texts(then['watch']).join(', ')} of ${of} for ${length}`;
}

/** Of what stops: what the page says of it, as the devices are. Empty: nothing is stopped. */
export function stoppedText(domain: Pick<Domain, 'stopped' | 'devices' | 'in_sync'> | null): string {
  if (!domain?.stopped) return '';
  return domain.in_sync === domain.devices ? 'all INT is stopped' : 'INT is being stopped';
}

/** The devices of an intent, and how far each is. */
export function deviceRows(
  intent: Pick<Intent, 'devices'>,
  devices: readonly Pick<Device, 'name' | 'state' | 'text' | 'missing' | 'extra'>[],
): { name: string; text: string; tone: Tone }[] {
  return intent.devices.map((name) => {
    const device = devices.find((one) => one.name === name);
    if (!device) return { name, text: 'not known', tone: 'warn' };
    const rest = [
      device.missing > 0 ? `${plural(device.missing, 'rule')} to add` : '',
      device.extra > 0 ? `${plural(device.extra, 'rule')} to remove` : '',
    ].filter((part) => part !== '');
    const text = [device.text, ...rest].join('; ');
    return { name, text, tone: tone(device.state) };
  });
}

/** The intent that a drill-down belongs to, or the drill-downs of an intent, as rows for people; `to` names an intent. */
export function drillDownRows(
  intent: Pick<Intent, 'name' | 'parent'>,
  intents: readonly Pick<Intent, 'name' | 'parent' | 'text'>[],
): { name: string; text: string; to: string }[] {
  const { name, parent } = intent;
  if (parent !== null)
    return [{ name: 'Drill-down of', text: `${parent}, whose rule became true`, to: parent }];
  const own = intents.filter((one) => one.parent === name);
  return own.map((one) => ({ name: 'Drill-down', text: one.name, to: one.name }));
}

/** The neighbour of a port, and why it is no link. */
export function neighbourText(neighbour: DevicePort['neighbour']): string {
  if (!neighbour) return NONE;
  const who = `${neighbour.system} ${neighbour.port}`;
  return neighbour.note === null ? who : `${who}: ${neighbour.note}`;
}

/** What a device can do, as rows for people. */
export function capabilityRows(can: DeviceCapabilities | null): [string, string][] {
  if (!can) return [['Capabilities', 'not known yet']];
  const yes = (is: boolean): string => (is ? 'yes' : 'no');
  // Without a filter every packet is reported.
  const filters = can.filters.filter((one) => one !== 'noop');
  const restart = dictionary<string>({
    keeps: 'keeps its rules',
    waits: 'forwards nothing until its manager allows it',
    forwards: 'forwards without rules: INT can reach hosts until its sinks are back',
  });
  return [
    ['Modes', can.modes.join(', ') || 'none'],
    ['Instructions', can.instructions || 'none'],
    ['Matches', can.matches.join(', ') || '5-tuples'],
    ['Filters by', filters.join(', ') || 'none'],
    ['Sink', yes(can.sink)],
    ['Sampling', yes(can.sampling)],
    ['L4 checksum', can.l4_checksum.join(', ')],
    ['After a restart', restart[can.restart] ?? can.restart],
  ];
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

export type FlowField = 'src' | 'dst' | 'sport' | 'dport' | 'proto';

const MAX_CHOICES = 50;

/** Values of a field in flows that were seen and that fit what is typed in the other fields, the most frequent first. */
export function choices(
  flows: readonly { flow: FlowKey }[],
  typed: Readonly<Record<string, string>>,
  field: FlowField,
): string[] {
  const value = ({ flow }: { flow: FlowKey }, name: FlowField): string => String(flow[name] ?? '');
  const others = (['src', 'dst', 'sport', 'dport', 'proto'] as const).filter((name) => {
    const text = typed[name] ?? '';
    // Networks, ranges and lists are not compared here.
    return name !== field && flows.some((flow) => value(flow, name) === text.trim());
  });
  const fits = (flow: { flow: FlowKey }): boolean =>
    others.every((name) => value(flow, name) === (typed[name] ?? '').trim());
  const counts = new Map<string, number>();
  for (const flow of flows.filter(fits)) {
    const one = value(flow, field);
    if (one !== '') counts.set(one, (counts.get(one) ?? 0) + 1);
  }
  const sorted = [...counts].sort(([a, x], [b, y]) => y - x || (a < b ? -1 : 1));
  return sorted.slice(0, MAX_CHOICES).map(([one]) => one);
}

/** What a plan costs, as rows for people. */
export function costRows(cost: IntentCost): [string, string][] {
  const { bytes } = cost;
  const lengths = bytes.length === 0 || Math.max(...bytes) === 0 ? 'none' : lengthsText(bytes);
  const rate =
    cost.reports === null
      ? cost.expectation
      : `${count(cost.reports)}/s, ${megabits(cost.report_bits)} (${cost.expectation})`;
  return [
    ['Mode', `${cost.mode}: ${cost.instructions}`],
    ['Bytes in a packet', lengths],
    ['Goodput', `${percent(cost.goodput)} of the longest path with full packets`],
    ['Reports', rate],
  ];
}

/** Bytes on the last of 1, 2, … links; equal ones together. */
function lengthsText(bytes: readonly number[]): string {
  const runs: { size: number; from: number; to: number }[] = [];
  bytes.forEach((size, index) => {
    const last = runs[runs.length - 1];
    if (last?.size === size) last.to = index + 1;
    else runs.push({ size, from: index + 1, to: index + 1 });
  });
  const one = ({ size, from, to }: (typeof runs)[number]): string =>
    from === to
      ? `${size} on paths of ${plural(from, 'link')}`
      : `${size} on paths of ${from} to ${to} links`;
  return runs.map(one).join(', ');
}

function megabits(bits: number | null): string {
  return bits === null ? NONE : `${(bits / 1e6).toPrecision(3)} Mb/s`;
}
