import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { TelemetryEvent } from '../src/api/types';
import { EventLog, isFlowText, KINDS, nextPage, sentence } from '../src/model/events';

const PLAIN: TelemetryEvent = {
  ts: 1_795_296_688e9,
  id: '00000000000000aa',
  kind: 'change',
  metric: null,
  flow: null,
  text: null,
  node: null,
  interface: null,
  queue: null,
  value: null,
  previous: null,
  threshold: null,
  rule: null,
  reason: null,
  reason_name: null,
  basis: 'measured',
  path: [],
};

const event = (changes: Partial<TelemetryEvent>): TelemetryEvent => ({ ...PLAIN, ...changes });

test('events are sentences', () => {
  const hop = { metric: 'hop_latency', node: 102 } as const;
  const queue = { metric: 'queue_occupancy', node: 102, queue: 3 } as const;
  const cases: [Partial<TelemetryEvent>, string][] = [
    [
      { ...hop, value: 48_000, previous: 1200, threshold: 5000 },
      'hop latency at 102 rose 1.2 µs → 48 µs (threshold 5 µs)',
    ],
    [{ ...hop, value: 900, previous: 1200, threshold: 0 }, 'hop latency at 102 fell 1.2 µs → 900 ns'],
    [
      { ...hop, value: 597_012_000, previous: 597_000_000, threshold: 2000 },
      'hop latency at 102 rose by 12 µs to 597 ms (threshold 2 µs)',
    ],
    [{ ...queue, value: 60 }, 'queue occupancy at 102 queue 3 is now 60 device units'],
    [{ kind: 'new', metric: 'flow_path', path: [101, 201, 102] }, 'new flow on path 101 › 201 › 102'],
    [{ kind: 'new', metric: 'flow_path', path: [1, 2], previous: 1 }, 'more of the path: 1 › 2'],
    [
      {
        kind: 'new',
        metric: 'flow_path',
        path: [1, 2],
        flow_latency: 30_000,
        latency_basis: 'hop_sum',
        hop_latencies: [null, 3],
      },
      'new flow on path 1 › 2, 30 µs (Σ hops)',
    ],
    [{ kind: 'new', ...queue, value: 0 }, 'queue occupancy at 102 queue 3 first seen: 0 device units'],
    [{ kind: 'path_change', metric: 'flow_path', path: [101, 202, 102] }, 'path changed to 101 › 202 › 102'],
    [{ kind: 'path_loop', path: [1, 2, 1] }, 'path loops: 1 › 2 › 1'],
    [{ kind: 'rule_on', rule: 'deep_queue', node: 201 }, 'rule deep_queue became true at 201'],
    [{ kind: 'rule_off', rule: 'slow' }, 'rule slow became false'],
    [
      { kind: 'drop', node: 201, queue: 0, interface: 2, reason: 71, reason_name: 'tail_drop' },
      'packet dropped at 201 queue 0 interface 2: tail drop',
    ],
    [{ kind: 'drop', node: 201, reason: 71 }, 'packet dropped at 201: reason 71'],
    [
      { kind: 'packet_loss', node: 2, value: 7, path: [1, 2] },
      '7 packets lost between source and sink: 1 › 2',
    ],
    [{ kind: 'loss', node: 103, value: 1 }, '1 report from 103 never arrived'],
    [{ kind: 'loss', value: 12 }, '12 reports never arrived'],
    [{ kind: 'expired', metric: 'flow_path' }, 'flow no longer seen'],
    [{ kind: 'hop_limit', node: 5 }, 'a hop at 5 could not add its data: hop limit reached (E bit)'],
    [{ kind: 'mtu' }, 'a hop could not add its data: packet would exceed the MTU (M bit)'],
    [{ kind: 'latest', metric: 'flow_latency', value: 1e6 }, 'flow latency is 1 ms'],
    [{ kind: 'something_else' as TelemetryEvent['kind'], node: 3 }, 'something else value at 3'],
  ];
  for (const [changes, wanted] of cases) assert.equal(sentence(event(changes)), wanted);
});

test('every kind has a sentence even when nothing else is known', () => {
  for (const kind of KINDS) assert.ok(sentence(event({ kind })).length > 5, kind);
});

test('a flood of one kind does not push out the rare ones', () => {
  const log = new EventLog(10);
  log.add(event({ kind: 'drop', id: 'drop', ts: 1 }));
  for (let i = 0; i < 1000; i += 1) log.add(event({ id: `c${i}`, ts: 100 + i }));
  const all = log.select({ kinds: new Set(), metric: '' }, 1000);
  assert.equal(all.length, 11);
  assert.equal(all[0]?.id, 'c999');
  assert.equal(all[10]?.id, 'drop');
  assert.deepEqual([log.counts.get('change'), log.counts.get('drop')], [1000, 1]);
  assert.equal(log.completeSince, 1089);
  log.grow(5, 12);
  for (let i = 0; i < 5; i += 1) log.add(event({ id: `d${i}`, ts: 2000 + i }));
  assert.equal(log.select({ kinds: new Set(['change']), metric: '' }, 1000).length, 12);
});

test('a duplicate event is removed', () => {
  const log = new EventLog(10);
  assert.equal(log.add(event({})), true);
  assert.equal(log.add(event({})), false);
  assert.equal(log.add(event({ metric: 'hop_latency' })), true);
});

test('filters and limits; older ones that come later stand in their place', () => {
  const log = new EventLog(10);
  log.add(event({ id: 'b', ts: 20, metric: 'hop_latency' }));
  log.add(event({ id: 'c', ts: 30, kind: 'drop' }));
  log.add(event({ id: 'a', ts: 10, text: '10.0.0.1:5000>10.0.0.2:80/17' }));
  const ids = (kinds: string[], metric = '', limit = 9): string[] =>
    log.select({ kinds: new Set(kinds), metric }, limit).map(({ id }) => id);
  assert.deepEqual(ids([]), ['c', 'b', 'a']);
  assert.deepEqual(ids(['change']), ['b', 'a']);
  assert.deepEqual(ids([], 'hop_latency'), ['b']);
  log.add(event({ id: 'push', ts: 40, kind: 'latest' }));
  assert.deepEqual([ids([]), ids(['latest'])], [['c', 'b', 'a'], ['push']]);
  assert.deepEqual(ids([], '', 2), ['c', 'b']);
});

test('the next page goes on where the last one ended, also among events of one time', () => {
  const end = { after: '18ea2-0000000000000007', since: 1_795_296_688_658_000_128 };
  const expected = { after: end.after };
  assert.deepEqual([nextPage(end, null), nextPage(end, end.since)], [expected, expected]);
  // Newer events were forgotten: an exact integer, not before the event itself.
  assert.deepEqual(nextPage(end, end.since + 256), { before: '1795296688658000640' });
  assert.deepEqual(nextPage(null, 1_795_296_688_658_000_128), { before: '1795296688658000384' });
  assert.deepEqual(nextPage(null, null), {});
});

test('complete flow texts are distinguished from parts', () => {
  const flows = ['10.0.0.1:5000>10.0.0.2:80/17', '[2001:db8::1]:5>[2001:db8::2]:6/6', '10.0.0.1>10.0.0.2/1'];
  assert.deepEqual(flows.map(isFlowText), [true, true, true]);
  assert.deepEqual(['10.0.0.1', '10.0.0.1:5000>', 'a > b/6', ''].map(isFlowText), [
    false,
    false,
    false,
    false,
  ]);
});
