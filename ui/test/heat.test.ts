import assert from 'node:assert/strict';
import test from 'node:test';
import type { Burst, HeatRow } from '../src/api/types';
import { doubts, fraction, most, rowKey, rowName, verdict } from '../src/model/heat';

const row = (queue: number | null, worst: number, values: (number | null)[]): HeatRow => ({
  node: 101,
  interface: null,
  queue,
  worst,
  count: 1,
  values,
});

const EMPTY: Burst = {
  node: 101,
  queue: 0,
  interface: null,
  recordings: [],
  peak: null,
  occupancy: null,
  measured: null,
  begun: null,
  rise: 0,
  reports: 0,
  truncated: false,
  flows: [],
  total_flows: 0,
  packets: [],
  drops: [],
  changes: [],
};

const part = (rise: number): Burst['flows'][number] => ({
  flow: null,
  text: null,
  rise,
  reports: rise,
  longest: null,
  waited: 0,
  first: 0,
  last: 0,
  path: [],
});

const recording = (every: number, late: boolean): Burst['recordings'][number] => ({
  ts: 1,
  id: '0000000000000001',
  since: 0,
  until: 2,
  kind: 'change',
  metric: 'queue_occupancy',
  flow: null,
  node: 101,
  queue: 0,
  value: 9,
  rule: null,
  reports: 4,
  every,
  late,
});

test('a row is named, and has a key for addresses', () => {
  assert.deepEqual([row(3, 1, []), row(null, 1, [])].map(rowName), ['101 queue 3', '101']);
  assert.deepEqual([row(3, 1, []), row(null, 1, [])].map(rowKey), ['101.3', '101']);
  const ofPort = { ...row(3, 1, []), interface: 7 };
  assert.deepEqual([rowName(ofPort), rowKey(ofPort)], ['101 interface 7 queue 3', '101.3.7']);
});

test('colours follow the square root; nothing measured has none', () => {
  assert.equal(most({ rows: [row(0, 5, []), row(1, 99, [])] }), 99);
  assert.deepEqual(
    [fraction(null, 100), fraction(0, 100), fraction(25, 100), fraction(100, 100)],
    [null, 0, 0.5, 1],
  );
  assert.equal(fraction(0, 0), 0);
});

test('the verdict names one flow or says that there were several', () => {
  assert.equal(verdict(EMPTY), '');
  const burst = { ...EMPTY, begun: 1e6, peak: 3.5e6, rise: 100 };
  const one = { ...burst, flows: [part(80), part(20)] };
  assert.equal(
    verdict(one),
    'One flow filled it: 80 % of the packets that arrived while it filled in 2.5 ms.',
  );
  const four = { ...burst, flows: [part(25), part(25), part(25), part(25), part(0)] };
  assert.equal(verdict(four), '4 flows filled it together in 2.5 ms; the largest sent 25 % of the packets.');
  assert.equal(
    verdict({ ...burst, rise: 0, flows: [part(0)] }),
    'No packet that filled the queue was reported.',
  );
});

test('reports of an emptier queue name nobody', () => {
  const burst = { ...EMPTY, begun: 1e6, peak: 3.5e6, rise: 100, occupancy: 40, flows: [part(80), part(20)] };
  assert.match(verdict({ ...burst, measured: 80 }), /^One flow filled it/);
  assert.equal(
    verdict({ ...burst, measured: 81 }),
    'The queue reached 81; the packets whose reports are stored saw at most 40. Which flows filled it is unknown.',
  );
  assert.equal(
    verdict({ ...burst, occupancy: 0, measured: 0 }),
    'The packets whose reports are stored saw an empty queue.',
  );
});

test('what is not known is said', () => {
  assert.deepEqual(doubts(EMPTY), []);
  const burst = { ...EMPTY, peak: 1, truncated: true, recordings: [recording(1, false), recording(4, true)] };
  assert.deepEqual(doubts(burst), [
    'One in 4 reports was stored; counts are scaled up.',
    'Part of the recording was no longer in memory: give the flight recorder more memory.',
    'Not all reports were read: choose a shorter time.',
  ]);
  // In a console: what it lacks instead.
  assert.deepEqual(doubts({ ...EMPTY, peak: 1, lacks: ['Recordings are elsewhere.'] }), [
    'Recordings are elsewhere.',
  ]);
  assert.deepEqual(doubts({ ...EMPTY, peak: 1 }), [
    'No recording covers this time; these reports come from the store.',
  ]);
});
