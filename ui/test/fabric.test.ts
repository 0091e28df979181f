import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Flow, Link, Node, PathUse } from '../src/api/types';
import { fit, moved, toNetwork, toScreen, zoomAt } from '../src/model/camera';
import { findFabric, type Fabric } from '../src/model/fabric';
import { hostNames, hostsOf } from '../src/model/hosts';
import { shortened, Taken } from '../src/model/labels';
import { placesOf } from '../src/model/places';
import { ranking } from '../src/model/ranking';
import { groupedScene, type Box, type Scene } from '../src/model/scene';
import { search } from '../src/model/search';
import { buildGraph, type Graph } from '../src/model/topology';

function link(from: number, to: number): Link {
  const nothing = { egress_if: null, ingress_if: null, utilization: null, queue_occupancy: null };
  return { from, to, ...nothing, hop_latency: null, flows: 1, last_seen: 1 };
}

function node(id: number, name: string | null): Node {
  const hop_latency = { latest: null, min: null, max: null, p50: null, p99: null };
  return {
    node: id,
    name,
    reports: 1,
    last_seen: 1,
    hop_latency,
    queues: [],
    drops: 0,
    implausible_latencies: 0,
  };
}

function uses(...list: [path: number[], flows: number][]): PathUse[] {
  return list.map(([path, flows]) => ({ path, flows, reports: flows }));
}

/** Two pods of two leaves and two spines, and two cores. Leaf 13 has no flows. */
const LINKS = [
  ...[11, 12].flatMap((leaf) => [link(leaf, 15), link(leaf, 16)]),
  ...[21, 22].flatMap((leaf) => [link(leaf, 25), link(leaf, 26)]),
  ...[15, 25].map((spine) => link(spine, 31)),
  ...[16, 26].map((spine) => link(32, spine)),
  link(31, 15),
];
const NAMES = [
  ...[11, 12].map((id) => node(id, `a-leaf${id - 10}`)),
  ...[15, 16].map((id) => node(id, `a-spine${id - 14}`)),
  ...[21, 22].map((id) => node(id, `b-leaf${id - 20}`)),
  ...[25, 26].map((id) => node(id, `b-spine${id - 24}`)),
  ...[31, 32].map((id) => node(id, `core${id - 30}`)),
];
const PATHS = uses([[11, 15, 31, 25, 21], 4], [[12, 16, 32, 26, 22], 4], [[11, 15], 1], [[21, 25], 1]);
const FAT_TREE = buildGraph(NAMES, LINKS);

const plain = ({ layers, groups, groupOf }: Fabric): unknown => ({
  layers: [...layers].sort(([a], [b]) => a - b),
  groups: groups.map(({ id, name, upper, layer, members }) => [id, name, upper, layer, ...members]),
  groupOf: [...groupOf].sort(([a], [b]) => a - b),
});

test('a fat tree has layers by distance from the ends of paths, and pods between its cores', () => {
  const layers = [
    [11, 0],
    [12, 0],
    [15, 1],
    [16, 1],
    [21, 0],
    [22, 0],
    [25, 1],
    [26, 1],
    [31, 2],
    [32, 2],
  ];
  const groups = [
    ['g31', 'core', true, 2, 31, 32],
    ['g11', 'a', false, 1, 11, 12, 15, 16],
    ['g21', 'b', false, 1, 21, 22, 25, 26],
  ];
  const groupOf = [11, 12, 15, 16, 21, 22, 25, 26, 31, 32].map((id) => [
    id,
    id > 30 ? 'g31' : id > 20 ? 'g21' : 'g11',
  ]);
  assert.deepEqual(plain(findFabric(FAT_TREE, PATHS)), { layers, groups, groupOf });
  const reversed = buildGraph([...NAMES].reverse(), [...LINKS].reverse());
  assert.deepEqual(plain(findFabric(reversed, [...PATHS].reverse())), { layers, groups, groupOf });
});

test('nodes without names make numbered pods; leaves of a leaf–spine are parted by name, or by number', () => {
  const nameless = findFabric(buildGraph([], LINKS), PATHS);
  assert.deepEqual(
    nameless.groups.map(({ name }) => name),
    ['core', 'pod 1', 'pod 2'],
  );
  const leaves = Array.from({ length: 40 }, (_, i) => i + 101);
  const links = leaves.flatMap((leaf) => [link(leaf, 1), link(leaf, 2)]);
  const paths = uses(...leaves.map((leaf): [number[], number] => [[leaf, 1, leaf === 101 ? 102 : 101], 1]));
  const groupsOf = (nodes: Node[]): unknown =>
    findFabric(buildGraph(nodes, links), paths).groups.map(({ name, members }) => [name, members.length]);
  assert.deepEqual(groupsOf([]), [
    ['spine', 2],
    ['101–120', 20],
    ['121–140', 20],
  ]);
  assert.deepEqual(groupsOf(leaves.map((leaf) => node(leaf, `leaf${leaf - 100}`))), [
    ['spine', 2],
    ['leaf1–20', 20],
    ['leaf21–40', 20],
  ]);
  assert.deepEqual(groupsOf(leaves.map((leaf) => node(leaf, `row${leaf % 3}-leaf${leaf}`))), [
    ['spine', 2],
    ['row0-leaf102–138', 13],
    ['row1-leaf103–139', 13],
    ['row2-leaf101–140', 14],
  ]);
});

test('a leaf without flows is where nodes of such names are; a network without paths has layers as well', () => {
  const links = [...LINKS, link(13, 15), link(13, 16)];
  const nodes = [...NAMES, node(13, 'a-leaf3'), ...[4, 5].map((n) => node(13 + n * 100, `a-leaf${n}`))];
  const ends = uses([[413, 15, 11], 1], [[513, 15, 12], 1]);
  const graph = buildGraph(nodes, [...links, link(413, 15), link(513, 15)]);
  assert.equal(findFabric(graph, [...PATHS, ...ends]).layers.get(13), 0);
  const without = findFabric(FAT_TREE, []);
  assert.deepEqual(
    [11, 21, 15, 31].map((id) => without.layers.get(id)),
    [0, 0, 1, 0],
  );
});

test('labels of the inventory say the layer and the pod, and are believed', () => {
  const labelled = (node: number, ...labels: string[]): { node: number; labels: string[] } => ({
    node,
    labels,
  });
  const places = placesOf([
    labelled(11, 'ams', 'leaf', 'pod-x'),
    labelled(15, 'spine', 'pod-x'),
    labelled(16, 'layer-3'),
    labelled(22, 'pod-', 'podium', 'layer-33'),
  ]);
  assert.deepEqual(
    [...places],
    [
      [11, { layer: 0, pod: 'pod-x' }],
      [15, { layer: 1, pod: 'pod-x' }],
      [16, { layer: 3, pod: null }],
    ],
  );
  const { groups, layers } = findFabric(FAT_TREE, PATHS, places);
  assert.deepEqual([layers.get(16), layers.get(26)], [3, 1]);
  assert.deepEqual(
    groups.map(({ name, upper, members }) => [name, upper, ...members]),
    [
      ['core', true, 16],
      ['layer 2', true, 31, 32],
      ['a-leaf2', false, 12],
      ['b', false, 21, 22, 25, 26],
      ['pod-x', false, 11, 15],
    ],
  );
});

const overlaps = (a: Box, b: Box): boolean =>
  Math.abs(a.x - b.x) < (a.w + b.w) / 2 && Math.abs(a.y - b.y) < (a.h + b.h) / 2;

const pictureOf = ({ items, outlines, lines, bounds }: Scene): unknown => ({
  items: items.map(({ x, y, node, group }) => [node ?? group?.id, x, y]),
  outlines: outlines.map(({ x, y, w, h, group }) => [group.id, x, y, w, h]),
  lines: lines.map(({ from, to, edges, back }) => [
    from.node ?? from.group?.id,
    to.node ?? to.group?.id,
    edges.length,
    back,
  ]),
  bounds,
});

test('closed groups stand as one item each, with all links between two of them in one line', () => {
  const fabric = findFabric(FAT_TREE, PATHS);
  assert.deepEqual(pictureOf(groupedScene(FAT_TREE, fabric, new Set(), 1.5)), {
    items: [
      ['g31', 0, 32],
      ['g11', -95, 186],
      ['g21', 95, 186],
    ],
    outlines: [],
    lines: [
      ['g11', 'g31', 1, true],
      ['g21', 'g31', 1, true],
      ['g31', 'g11', 2, true],
      ['g31', 'g21', 1, true],
    ],
    bounds: { x: 0, y: 109, w: 348, h: 218 },
  });
});

test('an open group has its nodes in layers, and the same picture whatever came first', () => {
  const fabric = findFabric(FAT_TREE, PATHS);
  const scene = groupedScene(FAT_TREE, fabric, new Set(['g11']), 1.5);
  assert.deepEqual(pictureOf(scene), {
    items: [
      ['g31', 0, 32],
      [15, -158, 212],
      [16, -32, 212],
      [11, -158, 304],
      [12, -32, 304],
      ['g21', 153, 186],
    ],
    outlines: [['g11', -95, 273, 274, 238]],
    lines: [
      [11, 15, 1, false],
      [11, 16, 1, false],
      [12, 15, 1, false],
      [12, 16, 1, false],
      [15, 'g31', 1, true],
      ['g21', 'g31', 1, true],
      ['g31', 15, 1, true],
      ['g31', 16, 1, false],
      ['g31', 'g21', 1, true],
    ],
    bounds: { x: 0, y: 196, w: 464, h: 392 },
  });
  const again = groupedScene(
    buildGraph([...NAMES].reverse(), [...LINKS].reverse()),
    fabric,
    new Set(['g11']),
    1.5,
  );
  assert.deepEqual(pictureOf(again), pictureOf(scene));
});

/** Pods of 24 nodes under 40 cores. */
function large(pods: number): { graph: Graph; fabric: Fabric } {
  const links: Link[] = [];
  const paths: [number[], number][] = [];
  for (let pod = 1; pod <= pods; pod += 1) {
    for (let spine = 51; spine <= 54; spine += 1) {
      for (let leaf = 1; leaf <= 20; leaf += 1) {
        links.push(link(pod * 1000 + leaf, pod * 1000 + spine));
        paths.push([[pod * 1000 + leaf, pod * 1000 + spine, pod * 1000 + (leaf % 20) + 1], 1]);
      }
      for (let core = 1; core <= 40; core += 8)
        links.push(link(pod * 1000 + spine, core + ((pod + spine) % 8)));
    }
  }
  const graph = buildGraph([], links);
  return { graph, fabric: findFabric(graph, uses(...paths)) };
}

test('of a thousand nodes none covers another one, whichever groups are open', () => {
  const { graph, fabric } = large(40);
  assert.deepEqual([graph.nodes.length, fabric.groups.length], [1000, 42]);
  for (const open of [[], ['g5001'], ['g1', 'g9001', 'g10001'], fabric.groups.map(({ id }) => id)]) {
    const { items, outlines, bounds } = groupedScene(graph, fabric, new Set(open), 1.3);
    const closed = items.filter(({ group }) => group !== null);
    assert.equal(outlines.length, open.length);
    const boxes = [...closed, ...outlines];
    for (const [i, a] of boxes.entries()) {
      assert.ok(!boxes.slice(i + 1).some((b) => overlaps(a, b)));
      assert.ok(overlaps(a, bounds));
    }
    const nodes = items.filter(({ node }) => node !== null);
    for (const [i, a] of nodes.entries()) assert.ok(!nodes.slice(i + 1).some((b) => overlaps(a, b)));
  }
});

test('the list has closed groups by their worst node, and the nodes of open ones', () => {
  const fabric = findFabric(FAT_TREE, PATHS);
  const values = new Map<number, number | null>([
    [11, 5],
    [12, null],
    [22, 9],
    [25, 8.5],
    [31, 1],
  ]);
  const rows = ranking(FAT_TREE, fabric, new Set(['g11']), values, { low: 0, high: 10, log: false });
  assert.deepEqual(
    rows.map(({ node, group, name, value, bad }) => [node ?? group?.id, name, value, bad]),
    [
      ['g21', 'b', 9, 2],
      [11, 'a-leaf1', 5, 0],
      ['g31', 'core', 1, 0],
      [12, 'a-leaf2', null, 0],
      [15, 'a-spine1', null, 0],
      [16, 'a-spine2', null, 0],
    ],
  );
});

function flow(src: string, dst: string, path: number[], more: Partial<Flow> = {}): Flow {
  const key = { src, dst, sport: 1, dport: 2, proto: 6 };
  const fixed = {
    id: '',
    text: '',
    flow_latency: null,
    basis: 'measured' as const,
    reports: 1,
    first_seen: 1,
  };
  return { ...fixed, flow: key, path, path_length: path.length, truncated: false, last_seen: 1, ...more };
}

test('hosts are where their latest complete paths begin and end', () => {
  const hosts = hostsOf([
    flow('10.0.0.10', '10.0.0.2', [11, 15, 12]),
    flow('10.0.0.9', '10.0.0.2', [11, 16, 22], { last_seen: 2 }),
    flow('10.0.0.7', '10.0.0.8', [15, 31], { truncated: true }),
    flow('10.0.0.7', '10.0.0.8', [16, 31], { incomplete: true }),
  ]);
  assert.deepEqual(
    [...hosts].sort(([a], [b]) => a - b),
    [
      [11, ['10.0.0.9', '10.0.0.10']],
      [22, ['10.0.0.2']],
    ],
  );
  assert.deepEqual(
    hostNames(['10.0.0.9', '10.0.0.10', '2001:db8::9'], (address) =>
      address.endsWith('9') ? 'h9' : address,
    ),
    ['h9', '10.0.0.10'],
  );
});

test('a search finds ids, names and hosts: whole ones first, then beginnings', () => {
  const hosts = new Map([[31, ['10.0.0.1']]]);
  const find = (text: string): number[] => search(FAT_TREE.nodes, hosts, text, () => 'mail1');
  assert.deepEqual(find('  '), []);
  assert.deepEqual(find('A-LEAF'), [11, 12]);
  assert.deepEqual(find('1'), [11, 12, 15, 16, 21, 25, 31]);
  assert.deepEqual(find('21'), [21]);
  const named = ['a-z', 'z-a', 'z'].map((name, i) => ({ id: i + 1, name, node: null, dropped: null }));
  assert.deepEqual(
    search(named, new Map(), 'z', () => ''),
    [3, 2, 1],
  );
  assert.deepEqual(find('mail'), [31]);
  assert.deepEqual(find('10.0.0.1'), [31]);
});

test('the camera fits, keeps what is under the pointer, and never loses the network', () => {
  const size = { width: 1068, height: 568 };
  const bounds = { x: 100, y: 50, w: 2000, h: 500 };
  const camera = fit(bounds, size);
  assert.deepEqual(camera, { x: 100, y: 50, zoom: 0.5 });
  assert.deepEqual(fit({ ...bounds, w: 10, h: 10 }, size).zoom, 1.45);
  const at = { x: 300, y: 200 };
  const before = toNetwork(camera, size, at.x, at.y);
  const near = zoomAt(camera, 4, at, size, bounds);
  assert.equal(near.zoom, 2);
  assert.deepEqual(toScreen(near, size, before.x, before.y), at);
  assert.deepEqual(moved(near, 20, -10), { ...near, x: near.x - 10, y: near.y + 5 });
  assert.equal(zoomAt(camera, 1e-9, at, size, bounds).zoom, 0.02);
  assert.equal(zoomAt(camera, 1e9, at, size, bounds).zoom, 8);
});

test('labels do not cover each other, and are cut where they do not fit', () => {
  const taken = new Taken();
  assert.deepEqual(
    [taken.take(0, 0, 10, 10), taken.take(9, 0, 10, 10), taken.take(10, 0, 10, 10), taken.take(5, 9, 4, 10)],
    [true, false, true, false],
  );
  const measure = (text: string): number => text.length * 10;
  assert.deepEqual(
    [100, 70, 40, 30].map((width) => shortened('spine-1234', width, measure)),
    ['spine-1234', 'spine-…', 'spi…', ''],
  );
});
