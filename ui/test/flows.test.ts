import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Flow } from '../src/api/types';
import { inOrder } from '../src/model/flows';

test('flows are in the order of the values that are shown', () => {
  const flows = [217, 214, 157, null, 189, 214].map(
    (flow_latency, i) => ({ flow_latency, reports: i, last_seen: -i, text: String(i) }) as Flow,
  );
  const order = (sort: string) =>
    inOrder(flows, sort)
      .map(({ text }) => text)
      .join('');
  assert.deepEqual(['latency', 'reports', 'last_seen', 'other'].map(order), [
    '015423',
    '543210',
    '012345',
    '012345',
  ]);
});
