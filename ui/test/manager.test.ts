import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Device, Domain, Intent, ManagerChange } from '../src/api/manager';
import type { Flow, TelemetryEvent } from '../src/api/types';
import { EMPTY } from '../src/model/intents';
import { tableShare, take, type Known } from '../src/model/manager';
import {
  derive,
  isInQueue,
  passes,
  placeOf,
  watchEvent,
  watchFlow,
  watchLink,
  watchNode,
  watchQueue,
} from '../src/model/watch';

const known = (): Known => ({
  intents: [{ name: 'a', etag: '1', state: 'pending', flows: 0 }] as Intent[],
  devices: [{ node: 1, name: 'leaf1', state: 'in_sync', missing: 0, rules: ['x'] }] as unknown as Device[],
  domain: { acting: true, stopped: false, devices: 1, in_sync: 1, dscp: 23 } as Domain,
});

test('entries of others take room in a table', () => {
  const shares = [
    [2, 0, 63],
    [2, 5, 63],
    [2, 2, 4],
    [0, 0, 0],
  ].map(([used = 0, others = 0, size = 0]) => tableShare({ used, others, size }));
  assert.deepEqual(shares, [
    '2 of 63',
    '7 of 63 (5 of other controllers)',
    '4 of 4 (2 of other controllers): full',
    '0 of 0',
  ]);
});

test('changes are taken over, and what they do not have is read again', () => {
  const all = known();
  const change = (kind: string, change: object): boolean => take(all, { kind, change } as ManagerChange);
  assert.equal(change('device', { node: 1, state: 'applying', missing: 2 }), true);
  assert.equal(change('device', { node: 1, state: 'applying', missing: 1 }), false);
  assert.deepEqual(all.devices, [{ node: 1, name: 'leaf1', state: 'applying', missing: 1, rules: ['x'] }]);
  assert.equal(change('device', { node: 2, state: 'in_sync' }), true);
  assert.equal(change('intent', { name: 'a', etag: '1', state: 'pending', flows: 3 }), false);
  assert.equal(change('intent', { name: 'a', etag: '1', state: 'complete', flows: 3 }), true);
  assert.deepEqual(all.intents, [{ name: 'a', etag: '1', state: 'complete', flows: 3 }]);
  assert.equal(change('intent', { name: 'b', etag: '1', state: 'pending' }), true);
  assert.equal(change('domain', { acting: true, stopped: true, devices: 1, in_sync: 0, waits: 'x' }), false);
  assert.deepEqual(all.domain, { acting: true, stopped: true, devices: 1, in_sync: 0, dscp: 23, waits: 'x' });
  assert.deepEqual([change('removed', { what: 'intent', name: 'a' }), all.intents], [false, []]);
});

const flow = (dst: string, path: number[]): Flow =>
  ({ flow: { src: '10.0.0.1', dst, sport: 7, dport: 80, proto: 6 }, path }) as unknown as Flow;
const device = (node: number, name: string, role: string): Device =>
  ({ node, name, ports: [{ role }] }) as unknown as Device;
const devices = [device(1, 'leaf1', 'edge'), device(9, 'spine1', 'fabric')];
const query = (of: Record<string, string>): URLSearchParams => new URLSearchParams(of);

test('a place is where flows pass', () => {
  const place = placeOf(query(watchLink(1, 9)));
  assert.deepEqual(place, { node: 1, queue: null, port: null, to: 9 });
  assert.deepEqual(placeOf(query(watchFlow(flow('10.0.0.2', []).flow))), null);
  const at = (node: number, to: number | null): boolean =>
    passes({ path: [1, 9, 2] }, { node, to, queue: null, port: null });
  assert.deepEqual(
    [at(1, 9), at(9, 1), at(1, 2), at(9, null), at(3, null)],
    [true, false, false, true, false],
  );
});

test('a queue is one of a port', () => {
  const place = placeOf(query(watchQueue(9, 0, 2)));
  assert.deepEqual(place, { node: 9, queue: 0, port: 2, to: null });
  if (place === null) return;
  const isIn = (queue: number | null, egress_if: number | null, node = 9): boolean =>
    isInQueue([{ node, queue, egress_if }], place);
  assert.deepEqual([isIn(0, 2), isIn(0, 3), isIn(1, 2), isIn(0, 2, 8)], [true, false, false, false]);
  assert.deepEqual([isIn(0, null), isIn(null, 2)], [true, true], 'a hop that names no port may be in it');
});

test('watch this says what it derives', () => {
  const form = (of: Record<string, string>, flows: Flow[]) => derive(query(of), flows, devices);
  const node = form(watchNode(1), []);
  const watch = ['flow_path', 'hop_latency', 'queue_occupancy'];
  const derived = 'Derived from leaf1: all flows that enter at it.';
  assert.deepEqual(node, { ...EMPTY, name: 'node-1', watch, edges: 'leaf1', derived });
  const flows = [flow('10.0.0.3', [1, 9, 2]), flow('10.0.0.2', [1, 9, 3]), flow('10.0.0.2', [1, 9, 3])];
  const link = form(watchLink(1, 9), flows);
  assert.deepEqual([link.dst, link.edges], ['10.0.0.2, 10.0.0.3', 'leaf1']);
  assert.match(
    link.derived,
    /the link leaf1 → spine1: the 2 destinations of 3 flows that pass it now and enter there/,
  );
  const queue = form(watchQueue(9, 0, null), flows.slice(0, 1));
  assert.deepEqual([queue.dst, queue.edges], ['10.0.0.3', '']);
  assert.match(
    queue.derived,
    /^Derived from queue 0 of spine1: the destination of 1 flow that passes it now\. Other flows to it/,
  );
  const none = form(watchQueue(9, 0, 2), []);
  assert.match(none.derived, /^Derived from interface 2 queue 0 of spine1: .*so all flows of the domain\.$/);
  assert.deepEqual([none.dst, none.name], ['', 'queue-9-2-0']);
});

test('an event gives its flow and its metric, or its place', () => {
  const event = (values: object): TelemetryEvent =>
    ({
      flow: null,
      node: null,
      interface: null,
      queue: null,
      metric: null,
      kind: 'change',
      ...values,
    }) as TelemetryEvent;
  const { flow: key } = flow('10.0.0.2', []);
  const draft = derive(query(watchEvent(event({ flow: key, metric: 'queue_occupancy' })) ?? {}), [], []);
  assert.deepEqual(
    [draft.dst, draft.sport, draft.watch],
    ['10.0.0.2', '7', ['flow_path', 'queue_occupancy']],
  );
  const said = 'Derived from an event (change): the 5-tuple of its flow, and its metric queue_occupancy.';
  assert.equal(draft.derived, said);
  assert.deepEqual(placeOf(query(watchEvent(event({ node: 9, queue: 2 })) ?? {})), {
    node: 9,
    queue: 2,
    port: null,
    to: null,
  });
  assert.equal(watchEvent(event({})), null);
});
