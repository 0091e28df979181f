import type { Device } from '../api/manager';
import type { Flow, FlowDetail, FlowKey, TelemetryEvent } from '../api/types';
import { plural } from '../lib/format';
import { names } from '../lib/names';
import { fromQuery, METRICS, type Draft } from './intents';

/** Links “watch this”: the parameters of the form of an intent. */
type Query = Record<string, string>;

function text(value: number | null): string {
  return value === null ? '' : String(value);
}

function named(name: string): string {
  return name.replace(/[^\w.-]/g, '-');
}

/** This flow. */
export function watchFlow(flow: FlowKey, metrics: readonly string[] = FLOW): Query {
  const ports = { sport: text(flow.sport), dport: text(flow.dport) };
  const name = named(`flow-${flow.src}-${text(flow.dport)}`);
  return { name, src: flow.src, dst: flow.dst, ...ports, proto: String(flow.proto), watch: metrics.join() };
}

const FLOW = ['flow_path', 'flow_latency', 'hop_latency', 'queue_occupancy'];

/** Flows at a node. */
export function watchNode(node: number): Query {
  return {
    from: 'node',
    node: String(node),
    name: `node-${node}`,
    watch: 'flow_path,hop_latency,queue_occupancy',
  };
}

/** Flows through a queue; `queue` null: all queues of the node, or of the egress interface `port`. */
export function watchQueue(node: number, queue: number | null, port: number | null): Query {
  const parts = [queue === null ? 'queues' : 'queue', node, port, queue].filter((part) => part !== null);
  const watch = 'flow_path,hop_latency,queue_occupancy';
  const name = parts.join('-');
  return { from: 'queue', node: String(node), queue: text(queue), port: text(port), name, watch };
}

/** Flows over a link. */
export function watchLink(a: number, b: number): Query {
  const watch = 'flow_path,hop_latency,link_utilization';
  return { from: 'link', node: String(a), to: String(b), name: `link-${a}-${b}`, watch };
}

/** The flow of an event, or where it happened; null: the event has neither. */
export function watchEvent(event: TelemetryEvent): Query | null {
  const metrics = [...new Set(['flow_path', event.metric ?? 'hop_latency'])];
  const from = { from: 'event', kind: event.kind, watch: metrics.join() };
  if (event.flow?.dst) return { ...watchFlow(event.flow), ...from, metric: event.metric ?? '' };
  if (event.node === null) return null;
  return { ...watchQueue(event.node, event.queue, event.interface), ...from, metric: event.metric ?? '' };
}

/** Which flows must be known to fill in the form. */
export interface Place {
  node: number;
  queue: number | null;
  /** The egress interface. */
  port: number | null;
  to: number | null;
}

/** The place that a link names; null: the link names flows. */
export function placeOf(query: URLSearchParams): Place | null {
  const number = (key: string): number | null => {
    const value = query.get(key) ?? '';
    return /^\d+$/.test(value) ? Number(value) : null;
  };
  const node = number('node');
  return node === null ? null : { node, queue: number('queue'), port: number('port'), to: number('to') };
}

/** Whether the path of a flow passes a place, as far as the path says. */
export function passes({ path }: Pick<Flow, 'path'>, { node, to }: Place): boolean {
  return path.some((one, index) => one === node && (to === null || path[index + 1] === to));
}

/** Whether a flow passes the queue or the port of a place; a hop that names none may be in it. */
export function isInQueue(
  hops: readonly Pick<FlowDetail['hops'][number], 'node' | 'queue' | 'egress_if'>[],
  place: Place,
): boolean {
  const may = (wanted: number | null, one: number | null): boolean =>
    wanted === null || one === null || wanted === one;
  return hops.some(
    (hop) => hop.node === place.node && may(place.queue, hop.queue) && may(place.port, hop.egress_if),
  );
}

/** Destinations that are written into a form; more would be a list that nobody reads. */
const MAX_DESTINATIONS = 32;

/** The form for a link, from the flows that pass its place. What was derived is said in `derived`. */
export function derive(query: URLSearchParams, flows: readonly Flow[], devices: readonly Device[]): Draft {
  const draft = fromQuery(query);
  const place = placeOf(query);
  if (place === null) return { ...draft, derived: ofFlow(query) };
  const device = devices.find(({ node }) => node === place.node);
  const name = (node: number): string => devices.find((one) => one.node === node)?.name ?? `node ${node}`;
  const at = where(place, name);
  const isEdge = device?.ports.some(({ role }) => role === 'edge') ?? false;
  if (query.get('from') === 'node' && device && isEdge) {
    const derived = `Derived from ${at}: all flows that enter at it.`;
    return { ...draft, edges: device.name, derived };
  }
  const destinations = [...new Set(flows.map(({ flow }) => flow.dst).filter((dst) => dst !== ''))].sort();
  if (destinations.length === 0 || destinations.length > MAX_DESTINATIONS) {
    const why = destinations.length === 0 ? 'no known flow passes it' : `${destinations.length} destinations`;
    return { ...draft, derived: `Derived from ${at}: ${why}, so all flows of the domain.` };
  }
  const enter = device !== undefined && isEdge && flows.every(({ path }) => path[0] === place.node);
  const one = destinations.length === 1;
  const which = `the ${one ? 'destination' : `${destinations.length} destinations`} of ${plural(flows.length, 'flow')}`;
  const pass = `that ${flows.length === 1 ? 'passes' : 'pass'} it now${enter ? ' and enter there' : ''}`;
  const others = `Other flows to ${one ? 'it' : 'them'} are measured, too.`;
  const derived = `Derived from ${at}: ${which} ${pass}. ${others}`;
  return { ...draft, dst: destinations.join(', '), edges: enter ? device.name : '', derived };
}

function where({ node, queue, port, to }: Place, name: (node: number) => string): string {
  if (to !== null) return `the link ${name(node)} → ${name(to)}`;
  const interface_ = port === null ? [] : [`interface ${names.interface(node, port)}`];
  const parts = [...interface_, ...(queue === null ? [] : [`queue ${queue}`])];
  return parts.length === 0 ? name(node) : `${parts.join(' ')} of ${name(node)}`;
}

function ofFlow(query: URLSearchParams): string {
  if (query.get('from') !== 'event') return query.has('src') ? 'Derived from a flow: its 5-tuple.' : '';
  const metric = METRICS.find((one) => one === query.get('metric'));
  const what = `Derived from an event (${(query.get('kind') ?? '').replaceAll('_', ' ')})`;
  return `${what}: the 5-tuple of its flow${metric ? `, and its metric ${metric}` : ''}.`;
}
