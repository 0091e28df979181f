import type { Link, Node, PathUse } from '../api/types';
import type { Sheet } from '../lib/sheet';

export type MapMetric = 'latency' | 'queue' | 'utilization' | 'loss';

export interface GraphNode {
  id: number;
  name: string;
  node: Node | null;
  /** Packets that it reported as dropped in the time of the losses; null: losses are not shown. */
  dropped: number | null;
}

export interface GraphEdge {
  id: string;
  from: number;
  to: number;
  link: MapLink;
}

/** A link, and the packets that it lost, at least; null or absent: not known. */
export type MapLink = Link & { lost?: number | null };

export interface Graph {
  nodes: GraphNode[];
  edges: GraphEdge[];
  /** The same as long as no node and no link is added or removed. */
  shape: string;
}

export const NO_GRAPH: Graph = { nodes: [], edges: [], shape: '' };

export function edgeId(from: number, to: number): string {
  return `${from}>${to}`;
}

/** A link of which nothing is known but its ends. */
export function bareLink(from: number, to: number): Link {
  const nothing = { egress_if: null, ingress_if: null, utilization: null, queue_occupancy: null };
  return { from, to, ...nothing, hop_latency: null, flows: 0, last_seen: 0 };
}

/**
 * Nodes and links as one graph. Parallel links between two nodes are one edge, with the values of the busier one. `dropped`: packets
 * by the node that dropped them, where losses are shown.
 */
export function buildGraph(
  nodes: readonly Node[],
  links: readonly MapLink[],
  dropped: ReadonlyMap<number, number> | null = null,
): Graph {
  const byId = new Map<number, GraphNode>();
  const droppedBy = (id: number): number | null => (dropped === null ? null : (dropped.get(id) ?? 0));
  for (const node of nodes)
    byId.set(node.node, {
      id: node.node,
      name: node.name ?? String(node.node),
      node,
      dropped: droppedBy(node.node),
    });
  const add = (id: number): void => {
    if (!byId.has(id)) byId.set(id, { id, name: String(id), node: null, dropped: droppedBy(id) });
  };
  for (const id of dropped?.keys() ?? []) add(id);
  const edges = new Map<string, GraphEdge>();
  for (const link of links) {
    for (const id of [link.from, link.to]) add(id);
    const id = edgeId(link.from, link.to);
    const known = edges.get(id);
    if (!known || (link.flows ?? 0) > (known.link.flows ?? 0))
      edges.set(id, { id, from: link.from, to: link.to, link });
  }
  const sorted = [...byId.values()].sort((a, b) => a.id - b.id);
  const sortedEdges = [...edges.values()].sort((a, b) => a.from - b.from || a.to - b.to);
  const shape = [...sorted.map(({ id, name }) => `${id} ${name}`), ...sortedEdges.map(({ id }) => id)].join();
  return { nodes: sorted, edges: sortedEdges, shape };
}

/**
 * Each node's value of the selected metric (metric), in its unit: the maximum or p99 of the last second, so that a burst
 * of a millisecond is visible. Null if the node never reported it.
 */
export function nodeValues(graph: Graph, metric: MapMetric): Map<number, number | null> {
  if (metric === 'loss') return new Map(graph.nodes.map(({ id, dropped }) => [id, dropped]));
  if (metric !== 'utilization')
    return new Map(graph.nodes.map(({ id, node }) => [id, node && ownValue(node, metric)]));
  const busiest = new Map<number, number | null>(graph.nodes.map(({ id }) => [id, null]));
  for (const { from, link } of graph.edges)
    busiest.set(from, most([busiest.get(from) ?? null, link.utilization]));
  return busiest;
}

function ownValue(node: Node, metric: MapMetric): number | null {
  const latency = node.hop_latency;
  if (metric === 'latency') return latency?.p99 ?? latency?.max ?? latency?.latest ?? null;
  return most(node.queues.map((queue) => queue.max ?? queue.occupancy));
}

export function edgeValue(link: MapLink, metric: MapMetric): number | null {
  if (metric === 'loss') return link.lost ?? null;
  if (metric === 'latency') return link.hop_latency;
  return metric === 'queue' ? link.queue_occupancy : link.utilization;
}

/** The greatest of what is known. */
export function most(values: readonly (number | null)[]): number | null {
  return values.reduce((most, value) => (most === null || (value ?? -Infinity) > most ? value : most), null);
}

export type Neighbours = Map<number, Set<number>>;

export function neighbours(graph: Graph): Neighbours {
  const map: Neighbours = new Map(graph.nodes.map((node) => [node.id, new Set<number>()]));
  for (const { from, to } of graph.edges) {
    map.get(from)?.add(to);
    map.get(to)?.add(from);
  }
  return map;
}

/** Nodes where paths begin or end: the edge of the network. */
export function edgeNodes(paths: readonly PathUse[]): Set<number> {
  const ends = new Set<number>();
  for (const { path } of paths) {
    for (const end of [path[0], path[path.length - 1]]) if (end !== null && end !== undefined) ends.add(end);
  }
  return ends;
}

/**
 * Tiers of a leaf–spine or fat tree: 0 where paths begin and end, then by distance. Null where links stay inside a tier
 * or skip one, or where the network is a chain: such a network is not drawn as a tree.
 */
export function tiers(graph: Graph, paths: readonly PathUse[]): Map<number, number> | null {
  const near = neighbours(graph);
  const linked = [...near].filter(([, others]) => others.size > 0);
  if (!linked.some(([, others]) => others.size > 2)) return null;
  const tier = distances(near, edgeNodes(paths));
  if (linked.some(([id]) => !tier.has(id))) return null;
  const level = (id: number): number => tier.get(id) ?? 0;
  if (graph.edges.some(({ from, to }) => Math.abs(level(from) - level(to)) !== 1)) return null;
  for (const [id] of near) if (!tier.has(id)) tier.set(id, 0);
  return tier;
}

function distances(near: Neighbours, starts: ReadonlySet<number>): Map<number, number> {
  const found = new Map<number, number>();
  let front = [...starts].filter((id) => near.has(id));
  for (let distance = 0; front.length > 0; distance += 1) {
    for (const id of front) found.set(id, distance);
    front = [...new Set(front.flatMap((id) => [...(near.get(id) ?? [])]))].filter((id) => !found.has(id));
  }
  return found;
}

/** Nodes of a chain from one end to the other; null where the network is no chain. */
export function chain(graph: Graph): number[] | null {
  const near = neighbours(graph);
  const ends = [...near].filter(([, others]) => others.size === 1).map(([id]) => id);
  if (ends.length !== 2 || [...near.values()].some((others) => others.size > 2 || others.size === 0))
    return null;
  const order: number[] = [];
  let at: number | undefined = Math.min(...ends);
  while (at !== undefined) {
    order.push(at);
    at = [...(near.get(at) ?? [])].find((id) => !order.includes(id));
  }
  return order.length === near.size ? order : null;
}

/** Scale of colours, from `low` to `high`. */
export interface Scale {
  low: number;
  high: number;
  log: boolean;
}

/** The least top of the scale of latencies, ns: what is below it by far is no problem, also where everything else is faster. */
const SLOW = 1e7;

/** Whole decades around latencies, up to 10 ms at least; zero to a round number for queues; always 0 to 1 for utilization. */
export function scaleFor(
  metric: MapMetric,
  values: readonly (number | null)[],
  previous: Scale | null,
): Scale {
  if (metric === 'utilization') return { low: 0, high: 1, log: false };
  const known = values.filter((value): value is number => value !== null && value > 0);
  const highest = known.reduce((a, b) => Math.max(a, b), 0);
  if (metric === 'queue' || metric === 'loss') {
    const high = roundUp(Math.max(10, highest));
    return { low: 0, high: Math.max(high, previous?.high ?? 0), log: false };
  }
  const low = 10 ** Math.floor(Math.log10(known.reduce((a, b) => Math.min(a, b), 1e4)));
  const high = 10 ** Math.ceil(Math.log10(Math.max(highest, SLOW)));
  // The scale only widens, so that colours keep their meaning while the page is open.
  return {
    low: Math.min(low, previous?.low ?? low),
    high: Math.max(high, previous?.high ?? high),
    log: true,
  };
}

function roundUp(value: number): number {
  const decade = 10 ** Math.floor(Math.log10(value));
  return ([1, 1.5, 2, 3, 4, 5, 6, 8, 10].find((step) => step * decade >= value) ?? 10) * decade;
}

/** Position of a value on the scale, 0 to 1; null stays null. */
export function place(scale: Scale, value: number | null): number | null {
  if (value === null) return null;
  const { low, high, log } = scale;
  const fraction = log
    ? (Math.log10(Math.max(value, low)) - Math.log10(low)) / (Math.log10(high) - Math.log10(low))
    : (value - low) / (high - low);
  return Math.min(1, Math.max(0, fraction));
}

/** From here up, of the scale, a node is counted as bad: the last fifth. */
const BAD = 0.8;

export function isBad(scale: Scale, value: number | null): boolean {
  return (place(scale, value) ?? 0) >= BAD;
}

/** Values at the ends and steps of the legend. */
export function ticks(scale: Scale): number[] {
  if (!scale.log) return [0, 0.25, 0.5, 0.75, 1].map((part) => scale.low + part * (scale.high - scale.low));
  const decades = Math.round(Math.log10(scale.high / scale.low));
  return Array.from({ length: decades + 1 }, (_, i) => scale.low * 10 ** i);
}

/** The links of the map as rows of a file. */
export function linkSheet(graph: Graph, cut: string): Sheet | null {
  if (graph.edges.length === 0) return null;
  const name = new Map(graph.nodes.map((node) => [node.id, node.name]));
  return {
    columns: [
      { name: 'from' },
      { name: 'from node' },
      { name: 'to' },
      { name: 'to node' },
      { name: 'egress interface' },
      { name: 'ingress interface' },
      { name: 'utilization', unit: 'fraction' },
      { name: 'queue occupancy', unit: 'device units' },
      { name: 'hop latency', unit: 'ns' },
      { name: 'flows' },
      { name: 'last seen', time: true },
    ],
    rows: graph.edges.map(({ from, to, link }) => [
      name.get(from) ?? null,
      from,
      name.get(to) ?? null,
      to,
      link.egress_if,
      link.ingress_if,
      link.utilization,
      link.queue_occupancy,
      link.hop_latency,
      link.flows,
      link.last_seen,
    ]),
    cut,
  };
}
