import assert from 'node:assert/strict';
import { test } from 'node:test';
import type {
  HopLatencies,
  LatencySpread,
  LinkLoss,
  LossMap,
  Node,
  PathChange,
  PathsOfDirection,
} from '../src/api/types';
import { sheetCsv } from '../src/lib/sheet';
import {
  droppedByNode,
  dropSheet,
  linkSheet,
  lostOf,
  placeText,
  reasonText,
  reportSheet,
  summaryOf,
  verdictOf,
  withLosses,
} from '../src/model/losses';
import {
  changeText,
  difference,
  drawnSheet,
  differenceText,
  hopRows,
  listedText,
  mainPath,
  pathKey,
  readCompared,
  stackOf,
  steps,
  symmetry,
} from '../src/model/paths';
import { edgeValue, nodeValues, buildGraph } from '../src/model/topology';

const SECOND = 1e9;

function change(at: number, flow: number, before: number[], after: number[]): PathChange {
  const key = { src: `10.0.0.${flow}`, dst: '10.0.1.1', sport: 1, dport: 2, proto: 17 };
  return { ts: at * SECOND, id: `${flow}`, flow: key, text: `flow ${flow}`, before, after };
}

test('changes of the same paths at about the same time are one step, newest first', () => {
  const [upper, lower] = [
    [101, 201, 103],
    [101, 202, 103],
  ];
  const found = steps([
    change(38, 1, lower, upper),
    change(30.2, 1, upper, lower),
    change(30, 2, upper, lower),
    change(30.1, 3, [101, 201, 104], [101, 202, 104]),
    change(90, 1, upper, lower),
  ]);
  assert.deepEqual(
    found.map(({ first, last, before, after, flows }) => [
      first / SECOND,
      last / SECOND,
      pathKey(before),
      pathKey(after),
      flows.length,
    ]),
    [
      [90, 90, '101>201>103', '101>202>103', 1],
      [38, 38, '101>202>103', '101>201>103', 1],
      [30.1, 30.1, '101>201>104', '101>202>104', 1],
      [30, 30.2, '101>201>103', '101>202>103', 2],
    ],
  );
  assert.equal(found[3]?.key, '30000/101>201>103/101>202>103');
});

test('what changed is the nodes that left and those that joined', () => {
  const found = difference([101, 201, 103], [101, 202, 103]);
  assert.deepEqual(found, {
    left: [201],
    joined: [202],
    leftLinks: ['101>201', '201>103'],
    joinedLinks: ['101>202', '202>103'],
  });
  assert.equal(differenceText(found), '201 → 202');
  assert.equal(differenceText(difference([1, 2, 3], [1, 3])), 'without 2');
  assert.equal(differenceText(difference([1, 3], [1, 2, 3])), 'with 2');
  assert.equal(differenceText(difference([1, 2, 3], [1, 3, 2])), 'another order');
  assert.equal(differenceText(difference([1, null, 3], [1, null, 3])), 'no node');
});

test('a node that is unknown in one path is no change', () => {
  assert.equal(changeText([101, 201, 103], [101, 202, 103]), '201 → 202');
  assert.equal(changeText([101, null, 103], [101, 202, 103]), 'possibly nothing: a node is unknown');
  assert.equal(changeText([101, null, 103], [101, null, 103]), 'no node');
  assert.equal(changeText([101, null, 103], [101, 202, 104]), '103 → 202, 104');
  assert.equal(changeText([101, null, 103], [101, 103]), 'no known node');
});

function direction(paths: [(number | null)[], number][], unknown: string | null = null): PathsOfDirection {
  const uses = paths.map(([path, time]) => ({
    path,
    time,
    flows: 1,
    reports: 1,
    share: 1,
    first: 0,
    last: 1,
  }));
  return { flow: null, src: null, dst: null, paths: uses, flows: 1, spread: 60e9, truncated: false, unknown };
}

test('both directions are compared by the path that each took the longest', () => {
  const there = direction([
    [[1, 2, 4], 10],
    [[1, 3, 4], 30],
    [[], 90],
  ]);
  assert.deepEqual(mainPath(there), [1, 3, 4]);
  assert.equal(symmetry(there, direction([[[4, 3, 1], 9]])).state, 'same');
  assert.deepEqual(symmetry(there, direction([[[4, 2, 1], 9]])), {
    state: 'differs',
    text: 'Asymmetric: only the forward path passes 3, only the return path 2.',
  });
  const unsure = symmetry(there, direction([[[4, null, 1], 9]]));
  assert.equal(unsure.state, 'unknown');
  assert.match(unsure.text, /^Possibly symmetric/);
  const both = direction([[[1, null, 4], 9]]);
  assert.equal(symmetry(both, direction([[[4, null, 1], 9]])).state, 'unknown');
  assert.match(
    symmetry(there, direction([[[4, null, 2], 9]])).text,
    /^Asymmetric.* At least one node is unknown/,
  );
  const silent = symmetry(there, direction([], 'the opposite direction is not measured'));
  assert.deepEqual(silent, { state: 'unknown', text: 'The opposite direction is not measured.' });
  assert.equal(symmetry(there, null).state, 'unknown');
});

test('what is compared is another flow, another time, or the time before', () => {
  const shown = { from: 1000, to: 4000 };
  assert.equal(readCompared('', shown), null);
  assert.deepEqual(readCompared('previous', shown), { range: { from: -2000, to: 1000 } });
  assert.deepEqual(readCompared('2026-11-26T10:00:00Z/2026-11-26T10:05:00Z', shown), {
    range: { from: Date.UTC(2026, 10, 26, 10), to: Date.UTC(2026, 10, 26, 10, 5) },
  });
  const flow = '10.0.0.1:5000>10.0.0.2:80/17';
  assert.deepEqual(readCompared(flow, shown), { flow });
  assert.equal(readCompared('nonsense', shown), null);
  assert.equal(readCompared('2026-11-26T10:05:00Z/2026-11-26T10:00:00Z', shown), null);
});

function spread(node: number | null, means: (number | null)[]): LatencySpread {
  const known = means.filter((mean) => mean !== null);
  const mean = known.reduce((sum, value) => sum + value, 0) / Math.max(1, known.length);
  const quantiles = { p50: mean, p90: mean, p99: mean, max: mean, mean };
  const columns = { means, medians: means, p90s: means, p99s: means, classes: means.map(() => []) };
  return { node, values: 1, time: 1, ...quantiles, ...columns };
}

function latencies(hops: LatencySpread[], flow: LatencySpread | null): HopLatencies {
  const span = { from: 0, to: 20 * SECOND, column: 10 * SECOND };
  return { ...span, bounds: [1000], hops, flow, left_out: 0, truncated: false };
}

test('means of hops are stacked, with a gap where nothing was reported', () => {
  const found = stackOf(
    latencies([spread(1, [100, null]), spread(2, [300, null])], spread(null, [500, null])),
  );
  assert.deepEqual(found, {
    labels: ['1', '2'],
    times: [5, 15],
    own: [
      [100, null],
      [300, null],
    ],
    tops: [
      [100, null],
      [400, null],
    ],
    total: [500, null],
  });
});

test('hops stand beside the same nodes of what they are compared with', () => {
  const here = latencies([spread(1, [100]), spread(2, [300])], spread(null, [500]));
  const there = latencies([spread(1, [50]), spread(3, [70])], null);
  const rows = hopRows(here, there).map(({ label, here: mine, there: other, share }) => [
    label,
    mine?.mean ?? null,
    other?.mean ?? null,
    share,
  ]);
  assert.deepEqual(rows, [
    ['1', 100, 50, 0.25],
    ['2', 300, null, 0.75],
    ['3', null, 70, 0],
    ['flow latency', 500, null, 1],
  ]);
});

test('a hop whose node is unknown is not the latency of the flow', () => {
  const found = hopRows(latencies([spread(null, [100]), spread(2, [300])], spread(null, [500])), null);
  assert.deepEqual(
    found.map(({ key }) => key),
    ['?', '2', 'flow'],
  );
});

function loss(changes: Partial<LinkLoss>): LinkLoss {
  return { from: 1, to: 2, dropped: 0, sent: null, lost: null, lost_most: null, unknown: null, ...changes };
}

test('a loss says by which evidence it is known, and what is not known', () => {
  const counted = loss({ sent: 400, lost: 12, lost_most: 12 });
  assert.equal(verdictOf(counted), '12 of 400 lost on it, 3 % (reports of both ends)');
  assert.match(
    verdictOf(loss({ sent: 400, lost: 0, lost_most: 3 })),
    /^0 to 3 of 400 lost on it: lost or repeated reports/,
  );
  assert.equal(
    verdictOf(loss({ sent: 400, lost: 0, lost_most: 0 })),
    'none of 400 lost on it (reports of both ends)',
  );
  const dropped = loss({ dropped: 7, unknown: 'needs more' });
  assert.equal(verdictOf(dropped), '7 packets dropped before it (drop reports); on it: unknown, needs more');
  assert.match(verdictOf(dropped, 'needs more'), /drop reports\); on it: unknown, see below$/);
  assert.deepEqual([lostOf(counted), lostOf(dropped), lostOf(loss({ unknown: 'x' }))], [12, 7, null]);
});

const LOSSES: LossMap = {
  links: [],
  drops: [],
  unplaced: 0,
  reporters: [],
  counted: true,
  uncounted: null,
  left_out: 0,
  counted_until: null,
  more: 0,
  range: null,
};

const PLACE = {
  node: 7,
  egress_if: 2,
  to: 9,
  queue: 3,
  reason: 71,
  reason_name: null,
  packets: 1,
  flows: 1,
  first: 0,
  last: 0,
  to_unknown: null,
};

test('the map shows what links lost, and grey where it is not known', () => {
  const link = {
    from: 1,
    to: 2,
    egress_if: null,
    ingress_if: null,
    utilization: null,
    queue_occupancy: null,
    hop_latency: null,
    flows: 1,
    last_seen: 1,
  };
  const losses = { ...LOSSES, links: [loss({ sent: 9, lost: 4, lost_most: 4 })] };
  const links = withLosses([link, { ...link, from: 2, to: 1 }], losses);
  assert.deepEqual(
    links.map((one) => edgeValue(one, 'loss')),
    [4, null],
  );
  const added = withLosses([{ ...link, from: 2, to: 1 }], losses);
  assert.deepEqual(
    added.map((one) => [one.from, one.to, edgeValue(one, 'loss')]),
    [
      [2, 1, null],
      [1, 2, 4],
    ],
  );
  assert.equal(edgeValue(withLosses([link], null)[0] ?? link, 'loss'), null);
  assert.deepEqual([...nodeValues(buildGraph([], links), 'loss').values()], [null, null]);
  assert.equal(summaryOf(losses), 'Most packets were lost at the link 1 → 2: 4 at least.');
  assert.match(summaryOf({ ...losses, links: [], counted: false }), /were not counted/);
  assert.equal(
    summaryOf({ ...losses, unplaced: 3 }),
    'Most packets were lost at the link 1 → 2: 4 at least. 3 packets dropped at no known link.',
  );
  assert.equal(
    summaryOf({ ...losses, unplaced: 5 }),
    '5 packets dropped at no known link. On known links, most were lost at the link 1 → 2: 4 at least.',
  );
  assert.equal(summaryOf({ ...losses, links: [], unplaced: 5 }), '5 packets dropped at no known link.');
  const place = PLACE;
  assert.equal(placeText(place), '7, to 9, queue 3');
  assert.equal(placeText({ ...place, to: null, queue: null, node: null }), 'unknown node, interface 2');
  assert.deepEqual(
    [reasonText(place), reasonText({ ...place, reason_name: 'queue_full' })],
    ['code 71', 'queue full'],
  );
  const one = { ...losses, drops: [place], reporters: [{ node: null, lost: 5, duplicated: 1 }] };
  assert.equal(
    sheetCsv(linkSheet(one, 'cut')),
    'from,to,dropped,sent,lost,lost_most,evidence\r\n1,2,0,9,4,4,"4 of 9 lost on it, 44.4 % (reports of both ends)"\r\n# cut,,,,,,\r\n',
  );
  assert.match(
    sheetCsv(dropSheet(one, '')),
    /^node,egress_if,to,queue,reason,reason_name,packets,flows,first \(UTC\),last \(UTC\),to_unknown\r\n7,2,9,3,71,,1,1,1970-01-01T00:00:00\.000000Z,.*Z,\r\n$/,
  );
  assert.equal(sheetCsv(reportSheet(one, '')), 'node,lost_reports,repeated\r\n,5,1\r\n');
});

test('nodes of the map of losses are of the time of its tables, not since the start', () => {
  const node: Node = {
    node: 7,
    name: 'spine1',
    reports: 1,
    last_seen: 1,
    hop_latency: { latest: null, min: null, max: null, p50: null, p99: null },
    queues: [],
    drops: 7_407,
    implausible_latencies: 0,
  };
  const drop = { ...PLACE, node: 7, packets: 5_000 };
  const losses: LossMap = {
    ...LOSSES,
    drops: [drop, { ...drop, queue: 4, packets: 427 }, { ...drop, node: null }],
  };
  const values = (found: LossMap | null) => [
    ...nodeValues(buildGraph([node, { ...node, node: 8 }], [], droppedByNode(found)), 'loss'),
  ];
  assert.deepEqual(values(losses), [
    [7, 5_427],
    [8, 0],
  ]);
  // A node that is known by its drops only.
  assert.deepEqual(values({ ...losses, drops: [{ ...drop, node: 9, packets: 3 }] }), [
    [7, 0],
    [8, 0],
    [9, 3],
  ]);
  assert.deepEqual(values(null), [
    [7, null],
    [8, null],
  ]);
});

test('what a list leaves out is said, and a file has it', () => {
  assert.equal(listedText(200, 200, 'Steps:'), '');
  assert.equal(listedText(200, 1_312, 'Steps:'), 'Steps: 200 of 1\u{202f}312 are listed; the CSV has all.');
  assert.equal(drawnSheet([null, null]), null);
  const sheet = drawnSheet([
    { path: [1, null], label: 'before' },
    { path: [2], label: 'after' },
  ]);
  assert.deepEqual(sheet?.rows, [
    ['before', 1, 1, '1'],
    ['before', 2, null, null],
    ['after', 1, 2, '2'],
  ]);
});
