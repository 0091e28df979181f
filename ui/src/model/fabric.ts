import type { PathUse } from '../api/types';
import { NO_PLACES, type Places } from './places';
import { neighbours, type Graph, type GraphNode, type Neighbours } from './topology';

/** Nodes that are drawn as one until somebody opens them. */
export interface Group {
  /** `g` and the lowest id of its nodes: the same as long as that node is in it. */
  id: string;
  name: string;
  /** Above all pods: spines of a leaf–spine, cores of a fat tree. */
  upper: boolean;
  /** The highest layer of its nodes. */
  layer: number;
  /** Node ids, in the order of their names. */
  members: number[];
}

/** Layers and pods of a network. */
export interface Fabric {
  /** 0 where paths begin and end, then by distance. */
  layers: ReadonlyMap<number, number>;
  /** The upper ones first, from the highest layer down; then by name. */
  groups: Group[];
  groupOf: ReadonlyMap<number, string>;
}

/** With more nodes than this, groups are collapsed. */
export const MAX_PLAIN = 60;

/**
 * Finds layers from the ends of paths, and pods as what is left connected without the upper layers. What the inventory
 * says of a node comes first.
 */
export function findFabric(graph: Graph, paths: readonly PathUse[], places: Places = NO_PLACES): Fabric {
  const near = neighbours(graph);
  const layers = findLayers(graph, near, paths);
  for (const [id, { layer }] of places) if (layer !== null && layers.has(id)) layers.set(id, layer);
  const given = groupBy(
    graph.nodes.map(({ id }) => id).filter((id) => places.get(id)?.pod),
    (id) => places.get(id)?.pod ?? '',
  );
  const { upper, pods } =
    given.size > 0 ? besidePods(near, layers, [...given.values()]) : findPods(near, layers);
  const byId = new Map(graph.nodes.map((node) => [node.id, node]));
  const nodesOf = (ids: readonly number[]): GraphNode[] =>
    ids.flatMap((id) => byId.get(id) ?? []).sort((a, b) => natural(a.name, b.name) || a.id - b.id);
  const drafts = [
    ...upperDrafts(upper, layers, nodesOf),
    ...[...given].map(([name, ids]) => ({ nodes: nodesOf(ids), name, upper: false })),
    ...podDrafts(pods, layers, nodesOf),
  ];
  const groups = named(drafts, layers);
  groups.sort(
    (a, b) =>
      Number(b.upper) - Number(a.upper) || (a.upper ? b.layer - a.layer : 0) || natural(a.name, b.name),
  );
  return {
    layers,
    groups,
    groupOf: new Map(groups.flatMap(({ id, members }) => members.map((m) => [m, id]))),
  };
}

const collator = new Intl.Collator('en', { numeric: true });

/** `leaf2` before `leaf10`. */
export function natural(a: string, b: string): number {
  return collator.compare(a, b);
}

/** What a layer is called: in a fabric of two or three layers as usual, else by its number. */
export function layerName(layer: number, top: number): string {
  if (layer === 0) return 'leaf';
  if (layer === top) return top === 1 ? 'spine' : 'core';
  return layer === 1 ? 'spine' : `layer ${layer}`;
}

/** Distances from the nodes at which most of their flows begin or end. */
function findLayers(graph: Graph, near: Neighbours, paths: readonly PathUse[]): Map<number, number> {
  const layers = new Map<number, number>();
  let front = [...edgesOfNetwork(near, paths)];
  for (let layer = 0; front.length > 0; layer += 1) {
    for (const id of front) layers.set(id, layer);
    front = [...new Set(front.flatMap((id) => [...(near.get(id) ?? [])]))].filter((id) => !layers.has(id));
  }
  for (const { id } of graph.nodes) if (!layers.has(id)) layers.set(id, 0);
  correctByName(graph, layers);
  return layers;
}

/** An incomplete report ends inside the network: so the majority of a node's flows decides. Without paths, the fewest links. */
function edgesOfNetwork(near: Neighbours, paths: readonly PathUse[]): Set<number> {
  const [seen, ends] = [new Map<number, number>(), new Map<number, number>()];
  const add = (counts: Map<number, number>, id: number | null | undefined, by: number): void => {
    if (id !== null && id !== undefined && near.has(id)) counts.set(id, (counts.get(id) ?? 0) + by);
  };
  for (const { path, flows } of paths) {
    const weight = Math.max(1, flows);
    for (const id of new Set(path)) add(seen, id, weight);
    for (const id of new Set([path[0], path[path.length - 1]])) add(ends, id, weight);
  }
  const edges = new Set(
    [...ends].filter(([id, count]) => count * 2 >= (seen.get(id) ?? 0)).map(([id]) => id),
  );
  if (edges.size > 0) return edges;
  const fewest = Math.min(...[...near.values()].map(({ size }) => size).filter((size) => size > 0));
  return new Set([...near].filter(([, others]) => others.size === fewest).map(([id]) => id));
}

/** Of nodes whose names differ in digits only, a few without flows are where the others are. */
function correctByName(graph: Graph, layers: Map<number, number>): void {
  const alike = groupBy(graph.nodes, ({ name }) => name.replace(/\d+/g, '#'));
  for (const [stem, nodes] of alike) {
    if (stem === '#') continue;
    const counts = groupBy(nodes, ({ id }) => layers.get(id) ?? 0);
    for (const [layer, those] of counts) {
      if (those.length < 0.8 * nodes.length) continue;
      for (const { id } of nodes) layers.set(id, layer);
    }
  }
}

/** Removes layers from the top until what remains falls into parts of which none has the majority. */
function findPods(
  near: Neighbours,
  layers: ReadonlyMap<number, number>,
): { upper: number[]; pods: number[][] } {
  const ids = [...near.keys()];
  const layer = (id: number): number => layers.get(id) ?? 0;
  for (let cut = Math.max(0, ...layers.values()); cut > 0; cut -= 1) {
    const below = new Set(ids.filter((id) => layer(id) < cut));
    const pods = components(near, below);
    if (Math.max(...pods.map(({ length }) => length)) * 2 <= below.size)
      return { upper: ids.filter((id) => layer(id) >= cut), pods };
  }
  return { upper: [], pods: components(near, new Set(ids)) };
}

/** Where pods are known, the nodes of none are above them, or parts of their own. */
function besidePods(
  near: Neighbours,
  layers: ReadonlyMap<number, number>,
  given: readonly (readonly number[])[],
): { upper: number[]; pods: number[][] } {
  const known = new Set(given.flat());
  const highest = [...known].reduce((most, id) => Math.max(most, layers.get(id) ?? 0), 0);
  const rest = [...near.keys()].filter((id) => !known.has(id));
  const isAbove = (id: number): boolean => (layers.get(id) ?? 0) > highest;
  const beside = new Set(rest.filter((id) => !isAbove(id)));
  return { upper: rest.filter(isAbove), pods: components(near, beside) };
}

function components(near: Neighbours, among: ReadonlySet<number>): number[][] {
  const left = new Set(among);
  const found: number[][] = [];
  for (const start of among) {
    if (!left.delete(start)) continue;
    const part = [start];
    // Grows while it is walked through.
    for (const id of part) for (const other of near.get(id) ?? []) if (left.delete(other)) part.push(other);
    found.push(part);
  }
  return found;
}

interface Draft {
  nodes: GraphNode[];
  /** Empty: named after its nodes. */
  name: string;
  upper: boolean;
}

type NodesOf = (ids: readonly number[]) => GraphNode[];

function upperDrafts(
  upper: readonly number[],
  layers: ReadonlyMap<number, number>,
  nodesOf: NodesOf,
): Draft[] {
  const top = Math.max(0, ...layers.values());
  const byLayer = groupBy(upper, (id) => layers.get(id) ?? 0);
  return [...byLayer].flatMap(([layer, ids]) => {
    const parts = split(nodesOf(ids));
    return parts.map((nodes) => ({
      nodes,
      name: parts.length === 1 ? layerName(layer, top) : '',
      upper: true,
    }));
  });
}

/** A pod of more nodes is split by its layers. */
const MAX_IN_POD = 128;

function podDrafts(
  pods: readonly number[][],
  layers: ReadonlyMap<number, number>,
  nodesOf: NodesOf,
): Draft[] {
  const apart = (ids: readonly number[]): Draft[] =>
    [...groupBy(ids, (id) => layers.get(id) ?? 0).values()]
      .flatMap((those) => split(nodesOf(those)))
      .map((nodes) => ({ nodes, name: '', upper: false }));
  const whole = pods.filter(({ length }) => length > 1 && length <= MAX_IN_POD).map(nodesOf);
  whole.sort((a, b) => natural(a[0]?.name ?? '', b[0]?.name ?? ''));
  return [
    ...whole.map((nodes, i) => ({ nodes, name: commonName(nodes) || `pod ${i + 1}`, upper: false })),
    ...pods.filter(({ length }) => length > MAX_IN_POD).flatMap(apart),
    ...apart(pods.filter(({ length }) => length === 1).flat()),
  ];
}

const MAX_IN_PART = 32;

/** What names may have in common, by which their nodes are split: `rack3` of `rack3-leaf1`, `ams` of `ams-leaf-1`. */
const STEMS: readonly ((name: string) => string)[] = [
  (name) => name.replace(/\d*$/, '').replace(/\D*$/, ''),
  (name) => name.split(/[-_./ ]/)[0] ?? '',
];

/** By names, where they say something, else in parts of equal size. */
function split(nodes: readonly GraphNode[]): GraphNode[][] {
  const useful = STEMS.map((stem) => [...groupBy(nodes, ({ name }) => stem(name)).values()]).find(
    (parts) => parts.length > 1 && parts.length * 2 <= nodes.length,
  );
  return (useful ?? [[...nodes]]).flatMap(inEqualParts);
}

function inEqualParts(nodes: readonly GraphNode[]): GraphNode[][] {
  const parts = Math.ceil(nodes.length / MAX_IN_PART);
  const size = Math.ceil(nodes.length / parts);
  return Array.from({ length: parts }, (_, i) => nodes.slice(i * size, (i + 1) * size)).filter(
    ({ length }) => length > 0,
  );
}

/** The words that all names begin with: `pod3` of `pod3-leaf1` and `pod3-spine2`. */
function commonName(nodes: readonly GraphNode[]): string {
  const words = nodes.map(({ name }) => name.split(/(?<=[-_./ ])/));
  const first = words[0] ?? [];
  const same = first.findIndex((word, i) => words.some((other) => other[i] !== word));
  return first
    .slice(0, same < 0 ? 0 : same)
    .join('')
    .replace(/[-_./ ]+$/, '');
}

function named(drafts: readonly Draft[], layers: ReadonlyMap<number, number>): Group[] {
  const uses = groupBy(drafts, ({ name }) => name);
  return drafts.map(({ nodes, name, upper }) => {
    const members = nodes.map(({ id }) => id);
    return {
      id: `g${members.reduce((least, id) => Math.min(least, id), Infinity)}`,
      name: name !== '' && uses.get(name)?.length === 1 ? name : fromTo(nodes.map((node) => node.name)),
      upper,
      layer: members.reduce((most, id) => Math.max(most, layers.get(id) ?? 0), 0),
      members,
    };
  });
}

/** `leaf1–32`: the first name, and where the last one differs. */
function fromTo(names: readonly string[]): string {
  const first = names[0] ?? '';
  const last = names[names.length - 1] ?? '';
  if (names.length < 2) return first;
  const stem = /^.*?(?=\d*$)/.exec(first)?.[0] ?? '';
  return /^\d+$/.test(last.slice(stem.length)) && last.startsWith(stem)
    ? `${first}–${last.slice(stem.length)}`
    : `${first} … ${last}`;
}

function groupBy<T, K>(list: readonly T[], key: (one: T) => K): Map<K, T[]> {
  const groups = new Map<K, T[]>();
  for (const one of list) {
    const name = key(one);
    const group = groups.get(name);
    if (group) group.push(one);
    else groups.set(name, [one]);
  }
  return groups;
}
