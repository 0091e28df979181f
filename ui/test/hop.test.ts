import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { FlowDetail, FlowHop } from '../src/api/types';
import { isImplausible, latencyText, linkLatency } from '../src/model/hop';

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

test('a latency from end to end consists of hops and links', () => {
  const flow = (changes: Partial<FlowDetail>): FlowDetail =>
    ({
      flow_latency: 1000,
      basis: 'measured',
      hops: [hop({ hop_latency: 300 }), hop({ hop_latency: 500 })],
      ...changes,
    }) as FlowDetail;
  assert.equal(linkLatency(flow({})), 200);
  assert.equal(linkLatency(flow({ basis: 'hop_sum' })), null);
  assert.equal(linkLatency(flow({ hops: [hop({ hop_latency: 300 }), hop({})] })), null);
  assert.equal(linkLatency(flow({ flow_latency: 700 })), null, 'the values are of different packets');
});
