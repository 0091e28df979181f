import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Device, Plan } from '../src/api/manager';
import { EMPTY, fromKept, fromQuery, gets, places, toIntent, tone } from '../src/model/intents';

test('a form becomes an intent with the keys of the file', () => {
  const draft = {
    ...EMPTY,
    name: ' web ',
    dst: '10.0.0.0/8, 10.1.0.0/16',
    dport: '80 8000-8999',
    proto: 'tcp',
    both: true,
    watch: ['hop_latency'],
    mode: 'md',
    edges: 'leaf*',
    filter: 'per_hop',
    threshold: '20us',
    until: '2h',
  };
  assert.deepEqual(toIntent(draft), {
    name: 'web',
    watch: ['hop_latency'],
    match: { dst: ['10.0.0.0/8', '10.1.0.0/16'], dport: ['80', '8000-8999'], proto: ['tcp'] },
    both_directions: true,
    mode: 'md',
    at: { edges: ['leaf*'] },
    tell: { filter: 'per_hop', thresholds: { hop_latency: '20us' } },
    until: '2h',
  });
  assert.deepEqual(toIntent({ ...EMPTY, name: 'all' }), { name: 'all', watch: EMPTY.watch });
  assert.deepEqual(toIntent({ ...EMPTY, filter: 'change', threshold: '5' })['tell'], { filter: 'change' });
});

test('a link fills the form, and what is kept survives', () => {
  const draft = fromQuery(new URLSearchParams('src=10.0.0.1&dport=80&watch=hop_latency,speed'));
  assert.deepEqual(draft, { ...EMPTY, src: '10.0.0.1', dport: '80', watch: ['hop_latency'] });
  assert.deepEqual(fromKept(JSON.stringify(draft)), draft);
  assert.deepEqual([fromKept(null), fromKept('{')], [EMPTY, EMPTY]);
});

test('states have a tone and plans a count per device', () => {
  assert.deepEqual(['complete', 'refused', 'stopped', 'pending'].map(tone), ['ok', 'bad', 'none', 'warn']);
  const plan = { devices: [{ node: 7, name: 'a', added: 2, removed: 1, changes: [] }] } as unknown as Plan;
  assert.deepEqual(
    [gets(plan, 7), gets(plan, 8), gets(null, 7)],
    [
      { added: 2, removed: 1 },
      { added: 0, removed: 0 },
      { added: 0, removed: 0 },
    ],
  );
});

test('devices with hosts are at the bottom of the map', () => {
  const device = (node: number, role: string): Device =>
    ({ node, name: `d${node}`, ports: [{ role }] }) as unknown as Device;
  const devices = [device(1, 'edge'), device(2, 'edge'), device(3, 'fabric'), device(4, 'fabric')];
  const links = [
    [1, 1, 3, 1],
    [2, 1, 3, 2],
    [3, 3, 4, 1],
  ];
  const placed = places(devices, links).map(({ node, x, y }) => [node, x, y]);
  assert.deepEqual(placed, [
    [1, 1 / 3, 1],
    [2, 2 / 3, 1],
    [3, 0.5, 0.5],
    [4, 0.5, 0],
  ]);
  assert.deepEqual(places([], []), []);
});
