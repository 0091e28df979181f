import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { FlowDetail, Rollup } from '../src/api/types';
import { Ring } from '../src/lib/ring';
import { LossClock, pastRates, sinceStart, worstByNode } from '../src/model/rates';
import { order, pathChanges, sample, stack } from '../src/model/stack';

test('a ring keeps the newest points and ignores those out of order', () => {
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

test('past rates: reports by the minute, events by the second, nothing before the first', () => {
  const rates = pastRates(new Map([[120, 600]]), new Map([[179, 4]]), 0, 182);
  assert.equal(rates.length, 62);
  assert.deepEqual(rates[0], [120, [10, 0]]);
  // The mean of five seconds, as in the program.
  assert.deepEqual(rates.slice(-4), [
    [178, [10, 0]],
    [179, [10, 0.8]],
    [180, [null, 0.8]],
    [181, [null, 0.8]],
  ]);
  // Of the first seconds, the mean of those that have passed.
  const burst = new Map([
    [178, 30],
    [179, 0],
  ]);
  assert.deepEqual(
    pastRates(new Map(), burst, 178, 184).map(([, [, events]]) => events),
    [30, 15, 10, 7.5, 6, 0],
  );
  assert.deepEqual(pastRates(new Map(), new Map(), 0, 182), []);
  assert.equal(pastRates(new Map([[0, 1]]), new Map(), 0, 5000).length, 900);
});

test('rates of the program take precedence over those of the store', () => {
  const kept = [10.2, 11.2].map((time) => ({ ts: time * 1e9, reports: time, events: 1, datagrams: 2 }));
  assert.deepEqual(
    sinceStart(kept, [
      [9, [5, 0]],
      [10, [6, 0]],
    ]),
    [
      [9, [5, 0]],
      [10, [10.2, 1]],
      [11, [11.2, 1]],
    ],
  );
  assert.deepEqual(sinceStart([], [[9, [5, 0]]]), [[9, [5, 0]]]);
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
    nodes: 3,
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
  assert.deepEqual([clock.recent(), clock.seconds()], [2, 60]);
  clock.add(111, 1);
  assert.deepEqual([clock.recent(), clock.seconds()], [0, 0]);
});

test('the minute in which the program was started is shorter', () => {
  const rates = pastRates(new Map([[120, 600]]), new Map([[175, 4]]), 174, 180);
  assert.deepEqual(rates[0], [174, [100, 0]]);
  assert.deepEqual(rates[1], [175, [100, 2]]);
  assert.equal(rates.length, 6);
});

const point = (ts: number, hops: [number | null, number | null][], total: number | null = null) => ({
  ts: ts * 1e9,
  flow_latency: total,
  hops: hops.map(([node, latency]) => ({ node, latency })),
});

test('hops are stacked; a path that changed keeps the order of both', () => {
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
  const found = stack(series);
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

test('a point without hops is a gap; a loop has two areas; unknown nodes are named so', () => {
  const loop: [number | null, number][] = [
    [1, 2],
    [1, 3],
    [null, 4],
  ];
  const found = stack([point(1, loop, 9), point(2, []), point(2, loop), point(3, loop)]);
  assert.deepEqual(found.labels, ['1', '1 (2)', '?']);
  assert.deepEqual(found.times, [1, 2, 2.001, 3]);
  assert.deepEqual(found.tops, [
    [2, 2, null, 2],
    [5, 5, null, 5],
    [9, 9, null, 9],
  ]);
});

test('a flow with recent reports gives a point, a silent one a gap', () => {
  const hop = {
    ingress_if: 1,
    egress_if: 2,
    queue: 0,
    queue_occupancy: null,
    queue_congestion: null,
    link_utilization: null,
    latest_queue_occupancy: null,
    latest_queue_age_s: null,
    latest_link_utilization: null,
    latest_link_age_s: null,
  };
  const flow: FlowDetail = {
    id: 'a',
    flow: { src: '10.0.0.1', dst: '10.0.0.2', sport: 1, dport: 2, proto: 6 },
    text: '',
    path: [1],
    path_length: 1,
    truncated: false,
    flow_latency: 9,
    basis: 'measured',
    reports: 60,
    first_seen: 1e9,
    last_seen: 10e9,
    hops: [{ ...hop, node: 1, hop_latency: 9 }],
  };
  // When the packet came, not when it was asked for.
  assert.deepEqual(sample(flow, 12e9), { ts: 10e9, flow_latency: 9, hops: [{ node: 1, latency: 9 }] });
  assert.deepEqual(sample(flow, 12.5e9), { ts: 10.001e9, flow_latency: null, hops: [] });
  const rare = { ...flow, reports: 4 };
  assert.equal(sample(rare, 18e9).flow_latency, 9, 'it sends a report every 3 s');
  assert.equal(sample(rare, 20e9).flow_latency, null);
});

test('a burst is as long as it was, also if the page was open', () => {
  const hops: [number, number][] = [[1, 9]];
  // Stored; seen by the page twice; silent.
  const series = [point(10, hops, 9), point(10.015, hops, 9), { ...point(10.016, []), hops: [] }];
  const found = stack([...series, point(30, hops, 9)]);
  assert.deepEqual(
    found.times.map((time) => Number(time.toFixed(3))),
    [10, 10.015, 10.016, 10.017, 30],
  );
  assert.deepEqual(found.tops, [[9, 9, 9, null, 9]]);
  // Wide enough to be seen, and not up to the next burst.
  const wide = (seconds: number) =>
    stack([...series, point(30, hops, 9)], seconds).times.map((time) => Number(time.toFixed(3)));
  assert.deepEqual(wide(2), [10, 10.015, 12.015, 12.016, 30]);
  assert.deepEqual(wide(60), [10, 10.015, 29.998, 29.999, 30]);
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

test('path changes: the first path is one only when the flow was there before', () => {
  const paths = [
    { ts: 30e9, path: [1, 3] },
    { ts: 10e9, path: [1, 2] },
    { ts: 20e9, path: [1, 2] },
  ];
  const last = { time: 30, path: [1, 3] };
  assert.deepEqual(pathChanges(paths, 10e9), [last]);
  assert.deepEqual(pathChanges(paths, 2e9), [{ time: 10, path: [1, 2] }, last]);
});
