import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { FlowHop } from '../src/api/types';
import { isImplausible, latencyText } from '../src/model/hop';

function hop(changes: Partial<FlowHop>): FlowHop {
  return { node: 1, hop_latency: null, ...changes } as FlowHop;
}

test('an implausible latency is marked', () => {
  const texts = [
    hop({ hop_latency: 1500 }),
    hop({ implausible_latency: 3_000_000_000 }),
    hop({ implausible_latency: 0 }),
    hop({ implausible_latency: null }),
    hop({}),
  ].map((one) => [latencyText(one), isImplausible(one)]);
  assert.deepEqual(texts, [
    ['1.5 µs', false],
    ['3 s implausible', true],
    ['0 ns implausible', true],
    ['–', false],
    ['–', false],
  ]);
});
