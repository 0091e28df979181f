import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Input } from '../src/api/types';
import { dropText, inputState, listenText, noFlowsText } from '../src/model/inputs';

const input: Input = {
  listen: 'xdp://eth1',
  kind: 'xdp-native',
  up: true,
  message: null,
  interface: 'eth1',
  queues: 4,
  tried: [],
  reopened: 0,
  datagrams: 1,
  bytes: 1,
  truncated: 0,
  receive_buffer: 0,
  kernel_drops: 0,
  drops: {},
  passed: {},
  device_drops: 0,
  handled_in_kernel: 0,
  checksums_verified: false,
};

test('an input on the best receive path has nothing to explain', () => {
  const { tone, text, why } = inputState(input);
  assert.deepEqual([tone, text, why], ['ok', 'xdp-native', '']);
});

test('an input on a lower receive path says why', () => {
  const tried = [
    { rx_path: 'xdp-zerocopy', reason: 'veth cannot' },
    { rx_path: 'xdp-native', reason: 'a program is there' },
  ];
  const { tone, text, why } = inputState({ ...input, kind: 'packet', tried, reopened: 2 });
  const expected = 'not xdp-zerocopy: veth cannot; not xdp-native: a program is there; reopened 2 ×';
  assert.deepEqual([tone, text, why], ['warn', 'packet', expected]);
});

test('an input that is down says so first', () => {
  const { tone, text, why } = inputState({ ...input, up: false, message: 'the interface was removed' });
  assert.deepEqual([tone, text, why], ['bad', 'down', 'the interface was removed; retrying']);
});

test('drops are described in words, the largest first', () => {
  assert.equal(
    dropText({ ring_full: 3, socket_buffer_full: 1_200, new_reason: 2 }),
    '1\u202f200: the socket’s buffer was full\n3: the ring was full\n2: new reason',
  );
});

test('the empty page says where reports are received, and whether there were any', () => {
  const udp = { ...input, listen: 'udp://*:40000' };
  assert.equal(listenText([input, udp]), 'xdp://eth1, udp://*:40000');
  assert.equal(listenText([]), 'no input');
  assert.equal(noFlowsText([]), 'No flows yet. A flow appears with its first report.');
  const text = 'No flows now. Of the 99,170 reports received, none names a flow that is still active.';
  assert.equal(noFlowsText([{ reports: 99_000 }, { reports: 170 }]).replaceAll('\u202f', ','), text);
});
