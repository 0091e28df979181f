import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Device, Plan } from '../src/api/manager';
import {
  choices,
  condition,
  costRows,
  intentRows,
  saysMore,
  stoppedText,
  deviceRows,
  drillDownRows,
  EMPTY,
  fromIntent,
  fromKept,
  fromQuery,
  gets,
  neighbourText,
  places,
  toIntent,
  tone,
} from '../src/model/intents';

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
    sample: '10',
    edges: 'leaf*',
    between: 'h1, h9',
    filter: 'per_hop',
    threshold: '20us',
    rule: ' max(queue_occupancy) > 50 ',
    then: 'queue_occupancy, link_utilization',
    thenMatch: 'this queue',
    thenFor: ' 1m ',
    budget: '2000',
    until: '2h',
    priority: '7',
    derived: 'Derived from a flow: its 5-tuple.',
  };
  assert.deepEqual(toIntent(draft), {
    name: 'web',
    watch: ['hop_latency'],
    match: { dst: ['10.0.0.0/8', '10.1.0.0/16'], dport: ['80', '8000-8999'], proto: ['tcp'] },
    both_directions: true,
    mode: 'md',
    sample: '1 in 10',
    at: { edges: ['leaf*'], between: ['h1', 'h9'] },
    report: {
      filter: 'per_hop',
      thresholds: { hop_latency: '20us' },
      rule: 'max(queue_occupancy) > 50',
      then: { watch: ['queue_occupancy', 'link_utilization'], match: 'this queue', for: '1m' },
    },
    budget: '2000 reports/s',
    until: '2h',
    priority: 7,
  });
  // Thresholds need no filter.
  assert.deepEqual(toIntent({ ...EMPTY, threshold: '5us' })['report'], {
    thresholds: { hop_latency: '5us' },
  });
  assert.deepEqual(toIntent({ ...EMPTY, name: 'all' }), { name: 'all', watch: EMPTY.watch });
  assert.deepEqual(toIntent({ ...EMPTY, filter: 'change', threshold: '5' })['report'], { filter: 'change' });
});

test('a drill-down names its intent, and the intent its drill-downs', () => {
  const web = { name: 'web', parent: null, text: '' };
  const child = { name: 'web.drill-1', parent: 'web', text: '' };
  const other = { name: 'other.drill-2', parent: 'other', text: '' };
  assert.deepEqual(drillDownRows(web, [web, child, other]), [
    { name: 'Drill-down', text: 'web.drill-1', to: 'web.drill-1' },
  ]);
  assert.deepEqual(drillDownRows(child, [web, child, other]), [
    { name: 'Drill-down of', text: 'web, whose rule became true', to: 'web' },
  ]);
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

test('choices are values of flows that fit the other fields', () => {
  const flow = (src: string, dport: number) => ({ flow: { src, dst: 'b', sport: 1, dport, proto: 6 } });
  const flows = [flow('a', 80), flow('a', 443), flow('c', 80), flow('c', 80)];
  assert.deepEqual(choices(flows, {}, 'src'), ['a', 'c']);
  assert.deepEqual(choices(flows, { src: 'c' }, 'dport'), ['80']);
  assert.deepEqual(choices(flows, { src: '10.0.0.0/8' }, 'dport'), ['80', '443']);
});

test('costs are rows, and what is not known is said', () => {
  const cost = { mode: 'md', instructions: 'node_id', bytes: [24, 32], goodput: 0.98, expectation: 'why' };
  const rows = costRows({ ...cost, reports: 9960, report_bits: 15.134e6 });
  assert.deepEqual(rows, [
    ['Mode', 'md: node_id'],
    ['Bytes in a packet', '24 on paths of 1 link, 32 on paths of 2 links'],
    ['Goodput', '98 % of the longest path with full packets'],
    ['Reports', '9.96 k/s, 15.1 Mb/s (why)'],
  ]);
  assert.deepEqual(costRows({ ...cost, bytes: [0], reports: null, report_bits: null }).slice(1), [
    ['Bytes in a packet', 'none'],
    ['Goodput', '98 % of the longest path with full packets'],
    ['Reports', 'why'],
  ]);
});

test('equal lengths are said once', () => {
  const cost = { mode: 'sf', instructions: '', bytes: [28, 28, 32], goodput: 1, expectation: 'why' };
  const [, lengths] = costRows({ ...cost, reports: null, report_bits: null });
  assert.deepEqual(lengths, ['Bytes in a packet', '28 on paths of 1 to 2 links, 32 on paths of 3 links']);
});

test('each device of an intent says how far it is', () => {
  const device = { name: 'leaf1', state: 'applying', text: 'applying', missing: 3, extra: 1 };
  assert.deepEqual(deviceRows({ devices: ['leaf1', 'leaf2'] }, [device]), [
    { name: 'leaf1', text: 'applying; 3 rules to add; 1 rule to remove', tone: 'warn' },
    { name: 'leaf2', text: 'not known', tone: 'warn' },
  ]);
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

test('a neighbour that is no link says why', () => {
  const neighbour = { system: 'leaf2', port: 'swp3', note: null };
  assert.equal(neighbourText(neighbour), 'leaf2 swp3');
  const note = 'the other end does not receive LLDP from this device';
  assert.equal(neighbourText({ ...neighbour, note }), `leaf2 swp3: ${note}`);
  assert.equal(neighbourText(null), '–');
});

test('an intent is edited as it is, and replaces only the version that was read', () => {
  const intent = {
    name: 'web',
    watch: ['hop_latency', 'queue_occupancy'],
    match: { dst: '10.0.0.0/8', dport: ['443', '8000-8999'] },
    mode: 'auto',
    report: {
      filter: 'per_hop',
      thresholds: { hop_latency: '20us' },
      rule: 'hops > 2',
      then: { watch: ['queue_occupancy'], match: 'this path', for: '1m' },
    },
    at: { edges: ['leaf*'] },
    budget: '1000 reports/s',
    until: '2026-11-25T00:00:00Z',
    priority: 7,
  };
  const draft = fromIntent({ name: 'web', etag: '2a', intent });
  assert.ok(draft);
  const { mode: _, ...rest } = intent;
  const match = { dst: ['10.0.0.0/8'], dport: ['443', '8000-8999'] };
  assert.deepEqual(toIntent(draft), { ...rest, match });
  assert.deepEqual(condition(draft), { etag: '2a' });
  // Under another name it is another intent.
  assert.equal(condition({ ...draft, name: 'web2' }), 'new');
  assert.equal(condition(EMPTY), 'new');
  // What the form cannot say would be lost.
  const { report } = intent;
  const more = [
    { ...intent, match: { ...intent.match, dscp: [10] } },
    { ...intent, match: 'any' },
    { ...intent, watch: ['new_metric'] },
    { ...intent, report: { ...report, coarsest: { hop_latency: '1ms' } } },
    { ...intent, report: { ...report, thresholds: { hop_latency: '20us', queue_occupancy: '5' } } },
  ];
  for (const one of more) assert.equal(fromIntent({ name: 'web', etag: '2a', intent: one }), null);
});

test('everything that an intent says is shown', () => {
  const intent = {
    match: { dst: ['10.0.0.0/8'], proto: [17, 6], dport: '443' },
    both_directions: true,
    watch: ['hop_latency', 'flow_path'],
    sample: '1 in 10',
    at: { edges: ['leaf*'], between: ['h1', 'h3'] },
    report: {
      filter: 'per_hop',
      thresholds: { hop_latency: 20_000 },
      rule: 'hops > 2',
      then: { watch: ['queue_occupancy'], match: 'this queue', for: '1m' },
    },
    budget: '10 reports/s',
    priority: 7,
  };
  assert.deepEqual(intentRows({ intent, mode: 'md', instructions: 'node_id' }), [
    ['Flows', 'to 10.0.0.0/8; port 443; protocol udp, tcp; both directions'],
    ['Where', 'at leaf*; between h1 and h3'],
    ['Watch', 'hop_latency, flow_path'],
    ['Mode', 'md (the cheapest)'],
    ['Each node adds', 'node_id'],
    ['Sample', '1 in 10'],
    ['Sinks report', 'changes at a hop (per_hop)'],
    ['Threshold', 'hop_latency 20 µs'],
    ['Rule', 'hops > 2'],
    ['When true, watch', 'queue_occupancy of this queue for 1m'],
    ['Budget', '10 reports/s'],
    ['Priority', '7'],
  ]);
  const plain = { match: 'all', watch: ['flow_path'], mode: 'md' };
  assert.deepEqual(intentRows({ intent: plain, mode: null, instructions: null }), [
    ['Flows', 'all'],
    ['Where', 'everywhere'],
    ['Watch', 'flow_path'],
    ['Mode', 'md'],
  ]);
});

test('INT is stopped when all devices have done it', () => {
  assert.equal(stoppedText({ stopped: true, devices: 3, in_sync: 2 }), 'INT is being stopped');
  assert.equal(stoppedText({ stopped: true, devices: 3, in_sync: 3 }), 'all INT is stopped');
  assert.equal(stoppedText({ stopped: false, devices: 3, in_sync: 3 }), '');
});

test('fields that are seldom used are shown when they say something', () => {
  assert.equal(saysMore(EMPTY), false);
  assert.equal(saysMore({ ...EMPTY, dport: '443', name: 'web' }), false);
  assert.equal(saysMore({ ...EMPTY, edges: 'leaf1' }), true);
});
