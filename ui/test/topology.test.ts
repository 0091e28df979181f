import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Link, Node, PathUse } from '../src/api/types';
import { arrange } from '../src/model/layout';
import { mix } from '../src/model/ramp';
import {
  buildGraph,
  chain,
  edgeValue,
  nodeValues,
  place,
  scaleFor,
  ticks,
  tiers,
  type Graph,
} from '../src/model/topology';

function link(from: number, to: number, changes: Partial<Link> = {}): Link {
  const nothing = {
    egress_if: null,
    ingress_if: null,
    utilization: null,
    queue_occupancy: null,
    hop_latency: null,
  };
  return { from, to, ...nothing, flows: 1, last_seen: 1, ...changes };
}

function paths(...list: number[][]): PathUse[] {
  return list.map((path) => ({ path, flows: 1, reports: 1 }));
}

function graphOf(uses: PathUse[]): Graph {
  const links = uses.flatMap(({ path }) => path.slice(1).map((to, i) => link(path[i] ?? 0, to ?? 0)));
  return buildGraph([], links);
}

test('a leaf–spine stands in two tiers, leaves below', () => {
  const uses = paths([101, 201, 102], [102, 202, 101], [103, 201, 101], [103, 202, 102]);
  const graph = graphOf(uses);
  assert.deepEqual([...(tiers(graph, uses) ?? [])].sort(), [
    [101, 0],
    [102, 0],
    [103, 0],
    [201, 1],
    [202, 1],
  ]);
  const { shape, positions } = arrange(graph, uses);
  assert.equal(shape, 'tiers');
  const ys = (ids: number[]): number[] => ids.map((id) => positions.get(id)?.y ?? NaN);
  assert.deepEqual(ys([101, 102, 103, 201, 202]), [190, 190, 190, 0, 0]);
  const xs = [101, 102, 103].map((id) => positions.get(id)?.x);
  assert.deepEqual(xs, [-170, 0, 170]);
});

test('pods of a fat tree stay together', () => {
  const uses = paths([1, 11, 3], [2, 12, 4], [1, 11, 21, 12, 2], [3, 11, 21, 12, 4]);
  const { positions } = arrange(graphOf(uses), uses);
  const order = [1, 2, 3, 4].sort((a, b) => (positions.get(a)?.x ?? 0) - (positions.get(b)?.x ?? 0));
  assert.deepEqual(order, [1, 3, 2, 4]);
});

test('a line is drawn as a line', () => {
  const uses = paths([5, 3, 9]);
  const graph = graphOf(uses);
  assert.deepEqual(chain(graph), [5, 3, 9]);
  assert.equal(arrange(graph, uses).shape, 'chain');
});

test('a ring or a mesh is neither, and has the same layout each time', () => {
  const uses = paths([1, 2], [2, 3], [3, 1], [3, 4], [4, 1]);
  const graph = graphOf(uses);
  const first = arrange(graph, uses);
  assert.equal(first.shape, 'free');
  assert.deepEqual(first.positions, arrange(graph, uses).positions);
  const points = [...first.positions.values()];
  for (const [i, a] of points.entries()) {
    for (const b of points.slice(i + 1))
      assert.ok(Math.hypot(a.x - b.x, a.y - b.y) > 60, 'nodes do not overlap');
  }
});

test('parallel links are one edge, with the values of the busier one', () => {
  const graph = buildGraph(
    [],
    [link(1, 2, { flows: 1, utilization: 0.1 }), link(1, 2, { flows: 5, utilization: 0.9 })],
  );
  assert.equal(graph.edges.length, 1);
  assert.equal(graph.edges[0]?.link.utilization, 0.9);
});

test('values through the metrics; never reported is null, not zero', () => {
  const spread = { latest: 500, min: 1, max: 2000, p50: 1, p99: 1200 };
  const queues = [3, 9].map((occupancy, queue) => ({
    queue,
    interface: null,
    occupancy: 0,
    max: occupancy,
    unit: 'cells',
  }));
  const node: Node = {
    node: 1,
    name: 'leaf-1',
    reports: 1,
    last_seen: 1,
    hop_latency: spread,
    queues,
    drops: 0,
    implausible_latencies: 0,
  };
  const graph = buildGraph(
    [node],
    [link(1, 2, { utilization: 0.2 }), link(1, 3, { utilization: 0.7, queue_occupancy: 4 })],
  );
  const values = (['latency', 'queue', 'utilization'] as const).map((metric) => [
    ...nodeValues(graph, metric),
  ]);
  assert.deepEqual(values, [
    [
      [1, 1200],
      [2, null],
      [3, null],
    ],
    [
      [1, 9],
      [2, null],
      [3, null],
    ],
    [
      [1, 0.7],
      [2, null],
      [3, null],
    ],
  ]);
  assert.equal(edgeValue(link(1, 2, { queue_occupancy: 4 }), 'queue'), 4);
});

test('scales hold whole decades and only ever widen', () => {
  const first = scaleFor('latency', [1200, 48_000, null], null);
  assert.deepEqual(first, { low: 1000, high: 10_000_000, log: true });
  assert.deepEqual(scaleFor('latency', [2000], first), first);
  assert.deepEqual(scaleFor('latency', [20_000_000], first), { low: 1000, high: 100_000_000, log: true });
  assert.deepEqual(scaleFor('queue', [130], null), { low: 0, high: 150, log: false });
  assert.deepEqual(scaleFor('utilization', [0.3], null), { low: 0, high: 1, log: false });
  assert.deepEqual(ticks(first), [1000, 10_000, 100_000, 1_000_000, 10_000_000]);
});

test('places and colours', () => {
  const scale = { low: 1000, high: 100_000, log: true };
  assert.deepEqual(
    [500, 1000, 10_000, 1e9, null].map((value) => place(scale, value)),
    [0, 0, 0.5, 1, null],
  );
  assert.equal(mix(['#000000', '#ffffff'], 0.5), '#808080');
  assert.equal(mix(['#102030', '#000000'], 0), '#102030');
  assert.equal(mix(['#102030'], null), null);
});
