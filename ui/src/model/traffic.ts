import type { Traffic, TrafficRow } from '../api/types';
import { flowTextName, protocol } from '../lib/format';
import { names } from '../lib/names';

/** By what values can be grouped, as people say it. */
export const DIMENSIONS: readonly (readonly [name: string, label: string])[] = [
  ['src', 'Source host'],
  ['dst', 'Destination host'],
  ['src_prefix', 'Source prefix'],
  ['dst_prefix', 'Destination prefix'],
  ['port', 'Application port'],
  ['sport', 'Source port'],
  ['dport', 'Destination port'],
  ['proto', 'Protocol'],
  ['flow', 'Flow'],
  ['node', 'Node'],
  ['link', 'Link'],
  ['path', 'Path'],
  ['label', 'Device label'],
  ['queue', 'Queue'],
  ['interface', 'Interface'],
  ['kind', 'Kind of event'],
  ['metric', 'Metric of event'],
  ['rule', 'Rule'],
  ['reason', 'Drop reason'],
];

export interface Measure {
  name: string;
  label: string;
  /** Which rows a filter is about. */
  view: 'flows' | 'events';
  /** Dimensions that its values have. */
  by: readonly string[];
}

const OF_FLOW = [
  'src',
  'dst',
  'src_prefix',
  'dst_prefix',
  'port',
  'sport',
  'dport',
  'proto',
  'flow',
] as const;
const ON_PATH = [...OF_FLOW, 'node', 'link', 'path', 'label'];

/** What can be added up. */
export const MEASURES: readonly Measure[] = [
  { name: 'reports', label: 'Reports', view: 'flows', by: ON_PATH },
  {
    name: 'events',
    label: 'Events',
    view: 'events',
    by: [...OF_FLOW, 'node', 'path', 'label', 'queue', 'interface', 'kind', 'metric', 'rule', 'reason'],
  },
  { name: 'flow_latency', label: 'Flow latency', view: 'flows', by: ON_PATH },
  { name: 'hop_latency', label: 'Hop latency', view: 'events', by: ['node', 'label'] },
  { name: 'queue_occupancy', label: 'Queue occupancy', view: 'events', by: ['queue', 'node', 'label'] },
  { name: 'queue_congestion', label: 'Queue congestion', view: 'events', by: ['queue', 'node', 'label'] },
  { name: 'link_utilization', label: 'Link utilization', view: 'events', by: ['interface', 'node', 'label'] },
];

/** Groups that have a colour of their own. */
export const COLOURED = 8;

export function dimensionLabel(name: string): string {
  return DIMENSIONS.find(([known]) => known === name)?.[1] ?? name;
}

export function measureOf(name: string): Measure {
  return MEASURES.find((measure) => measure.name === name) ?? (MEASURES[0] as Measure);
}

/** A value of a dimension with the names that there are. */
export function partName(dimension: string, part: string | null): string {
  if (part === null) return 'unknown';
  const node = (id: string): string => (id === '?' ? id : names.node(Number(id)));
  if (dimension === 'flow') return flowTextName(part);
  if (dimension === 'proto' && /^\d+$/.test(part)) return protocol(Number(part));
  if (dimension === 'reason') return names.reason(Number(part));
  if (dimension === 'src' || dimension === 'dst') return names.host(part);
  if (dimension === 'node') return node(part);
  if (dimension === 'link' || dimension === 'path') return part.split('>').map(node).join(' › ');
  if (dimension === 'queue') {
    const [place = '', queue] = part.split('.');
    const [id = '', port] = place.split('/');
    const of =
      port === undefined ? node(id) : `${node(id)} interface ${names.interface(Number(id), Number(port))}`;
    return queue === undefined ? of : `${of} queue ${queue}`;
  }
  if (dimension === 'interface') {
    const [id = '', number = ''] = part.split('/');
    return `${node(id)} ${names.interface(Number(id), Number(number))}`;
  }
  return part;
}

export function groupName(by: readonly string[], row: TrafficRow): string {
  return row.key.map((part, i) => partName(by[i] ?? '', part)).join(' · ');
}

/** The filter that is true of a group; null if there is none. */
export function groupFilter(row: TrafficRow): string | null {
  return row.filters.length === 0 || row.filters.includes(null) ? null : row.filters.join(' and ');
}

/** A filter that also wants something else. */
export function narrowed(filter: string, addition: string): string {
  const text = filter.trim();
  if (text === '') return addition;
  const parts = text.split(' and ');
  if (parts.includes(addition)) return text;
  if (/^[^\s"()]+$/.test(text)) return `"${text}" and ${addition}`;
  return /(^|[\s)])or([\s(]|$)/.test(text) ? `(${text}) and ${addition}` : `${text} and ${addition}`;
}

export interface Curve {
  name: string;
  /** Its place among the colours; null: the others. */
  place: number | null;
  values: (number | null)[];
}

export interface Curves {
  /** Seconds: the middle of each column. */
  times: number[];
  curves: Curve[];
}

/** Seconds of a column of which something is known. */
function seconds(traffic: Traffic, column: number): number {
  const begun = traffic.from + column * traffic.column;
  return Math.max(0, Math.min(begun + traffic.column, traffic.known_to) - begun) / 1e9;
}

/** Seconds of which something is known, of all columns; one at least. */
export function knownSeconds(traffic: Traffic): number {
  const known = traffic.total.values.reduce<number>(
    (sum, value, column) => (value === null ? sum : sum + seconds(traffic, column)),
    0,
  );
  return Math.max(1, known);
}

/** The curves of a chart: the greatest groups, and one of all others if numbers are counted. Numbers become rates per second. */
export function curves(traffic: Traffic): Curves {
  const { groups, others, counts } = traffic;
  const lengths = (groups[0] ?? traffic.total).values.map((_, column) => seconds(traffic, column));
  const scaled = (values: readonly (number | null)[]): (number | null)[] =>
    values.map((value, column) => {
      const length = lengths[column] ?? 0;
      if (value === null || !counts) return value;
      return length > 0 ? value / length : null;
    });
  const shown = groups.slice(0, COLOURED).map((row, place) => ({
    name: groupName(traffic.by, row),
    place,
    values: scaled(row.values),
  }));
  const rest = [others, ...groups.slice(COLOURED)];
  const sums = lengths.map((_, column) =>
    rest.reduce<number | null>((sum, { values }) => {
      const value = values[column];
      return value === null || value === undefined ? sum : (sum ?? 0) + value;
    }, null),
  );
  const number = traffic.other_groups + Math.max(0, groups.length - COLOURED);
  const times = lengths.map((_, column) => (traffic.from + (column + 0.5) * traffic.column) / 1e9);
  if (!counts || number === 0) return { times, curves: shown };
  return { times, curves: [...shown, { name: `${number} others`, place: null, values: scaled(sums) }] };
}

/** Values on top of one another, from the first up. A column without any value is a gap. */
export function tops(curves: readonly Curve[]): (number | null)[][] {
  const columns = curves[0]?.values.length ?? 0;
  const below: (number | null)[] = Array.from({ length: columns }, () => null);
  return curves.map(({ values }) => {
    values.forEach((value, column) => {
      if (value !== null) below[column] = (below[column] ?? 0) + value;
    });
    return [...below];
  });
}

/** The rows of the table in an order: the name of a column, and `-` before it for the other direction. */
export function sorted(traffic: Traffic, order: string): TrafficRow[] {
  const isUp = order.startsWith('-');
  const column = isUp ? order.slice(1) : order;
  const rows = [...traffic.groups];
  const value = (row: TrafficRow): number | null =>
    column === 'mean' ? row.mean : column === 'max' ? row.max : row.count;
  rows.sort((one, other) =>
    column === 'name'
      ? groupName(traffic.by, one).localeCompare(groupName(traffic.by, other), undefined, { numeric: true })
      : (value(other) ?? -1) - (value(one) ?? -1),
  );
  return isUp ? rows.reverse() : rows;
}

/** What is not in an answer, in sentences. */
export function remarks(traffic: Traffic, timeText: (ns: number) => string): string[] {
  const label = (name: string): string => dimensionLabel(name).toLowerCase();
  const measure = measureOf(traffic.measure).label.toLowerCase();
  const lacking = traffic.lacks.map(label).join(', ');
  return [
    traffic.lacks.length > 0 ? `The store does not know ${measure} by ${lacking}.` : '',
    traffic.overlapping ? 'A value can be in several groups, so their sum can exceed the total.' : '',
    traffic.counted_from !== null
      ? `Too much data for one response: nothing before ${timeText(traffic.counted_from)} is counted. Choose a shorter time.`
      : '',
    traffic.truncated
      ? 'There are too many groups or path changes to keep separate; some are counted among the others or as unknown.'
      : '',
  ].filter((text) => text !== '');
}
