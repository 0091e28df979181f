import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Rollup } from '../src/api/types';
import { Ring } from '../src/lib/ring';
import { LossClock, ratesFromRollups, worstByNode } from '../src/model/rates';
import { order, pathChanges, stack } from '../src/model/stack';

test('a ring keeps the newest and refuses to run back', () => {
  const ring = new Ring(2, 3);
  for (const time of [1, 2, 2, 1, 3, 4]) ring.push(time, [time * 10]);
  assert.deepEqual(ring.data(), [
    [2, 3, 4],
    [20, 30, 40],
    [null, null, null],
  ]);
});

test('a ring takes older points before its own, within its capacity', () => {
  const ring = new Ring(1, 4);
  ring.push(10, [1]);
  ring.prepend([
    [9, [9]],
    [7, [7]],
    [8, [8]],
    [6, [6]],
    [10, [99]],
  ]);
  assert.deepEqual(ring.data(), [
    [7, 8, 9, 10],
    [7, 8, 9, 1],
  ]);
});

const rollup = (ts: number, node: number | null, changes: Partial<Rollup> = {}): Rollup => ({
  ts: ts * 1e9,
  interval: 1,
  metric: 'hop_latency',
  node,
  interface: null,
  queue: null,
  flow: null,
  count: 10,
  min: 1,
  max: 50,
  sum: 100,
  p50: 5,
  p99: 40,
  ...changes,
});

test('rates are counts per second over all keys', () => {
  const rates = ratesFromRollups([
    rollup(2, 1),
    rollup(1, 1),
    rollup(2, 2),
    rollup(60, 1, { interval: 60, count: 120 }),
  ]);
  assert.deepEqual(rates, [
    [1, [10]],
    [2, [20]],
    [60, [2]],
  ]);
});

test('the worst nodes, in the order of their ids, holes as null', () => {
  const rollups = [
    rollup(1, 3, { p99: 9 }),
    rollup(1, 1, { p99: 70 }),
    rollup(2, 2, { p99: null, max: 60 }),
    rollup(2, null),
  ];
  assert.deepEqual(worstByNode(rollups, 2), {
    keys: [1, 2],
    times: [1, 2],
    values: [
      [70, null],
      [null, 60],
    ],
  });
});

test('losses of the last minute, over a restart too', () => {
  const clock = new LossClock();
  assert.equal(clock.recent(), 0);
  for (let time = 0; time <= 100; time += 10) clock.add(time, time < 30 ? 0 : 7);
  assert.equal(clock.recent(), 0);
  clock.add(110, 9);
  assert.equal(clock.recent(), 2);
  clock.add(111, 1);
  assert.equal(clock.recent(), 0);
});

const point = (ts: number, hops: [number | null, number | null][], total: number | null = null) => ({
  ts: ts * 1e9,
  flow_latency: total,
  hops: hops.map(([node, latency]) => ({ node, latency })),
});

test('hops stand on each other; a path that changed keeps the order of both', () => {
  const series = [
    point(
      1,
      [
        [101, 5],
        [201, 7],
        [102, 1],
      ],
      20,
    ),
    point(
      2,
      [
        [101, 6],
        [202, 2],
        [102, 1],
      ],
      12,
    ),
  ];
  const found = stack({ series, paths: [] });
  assert.deepEqual(found, {
    labels: ['101', '201', '202', '102'],
    times: [1, 2],
    own: [
      [5, 6],
      [7, null],
      [null, 2],
      [1, 1],
    ],
    tops: [
      [5, 6],
      [12, 6],
      [12, 8],
      [13, 9],
    ],
    total: [20, 12],
  });
});

test('a silence is a hole; a loop has two areas; unknown nodes are named so', () => {
  const found = stack({
    series: [
      point(1, [
        [1, 2],
        [1, 3],
        [null, 4],
      ]),
      point(60, [[1, 2]]),
    ],
    paths: [],
  });
  assert.deepEqual(
    found.labels,
    ['1', '1 (2)', '?'].sort((a, b) => found.labels.indexOf(a) - found.labels.indexOf(b)),
  );
  assert.deepEqual(found.times, [1, 2, 60]);
  assert.deepEqual(found.tops[0], [2, null, 2]);
});

test('orders of labels', () => {
  assert.deepEqual(
    order([
      ['a', 'b', 'c'],
      ['a', 'x', 'c'],
    ]),
    ['a', 'b', 'x', 'c'],
  );
  assert.deepEqual(order([['b', 'a'], []]), ['b', 'a']);
  assert.deepEqual(order([]), []);
});

test('path changes are those after the first', () => {
  const paths = [
    { ts: 3e9, path: [1, 3] },
    { ts: 1e9, path: [1, 2] },
    { ts: 2e9, path: [1, 2] },
  ];
  assert.deepEqual(pathChanges({ series: [], paths }), [{ time: 3, path: [1, 3] }]);
});
