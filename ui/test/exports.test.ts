import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Export } from '../src/api/generated';
import { health } from '../src/model/exports';

const one: Export = {
  export: 'lake',
  kind: 'clickhouse',
  server: 'lake:8123',
  stream: 'events',
  partition: null,
  read: 0,
  delivered: 0,
  left_out: 0,
  silenced: 0,
  rejected: 0,
  unwritten: 0,
  held: 0,
  waiting: 0,
  memory: 0,
  memory_limit: 0,
  batch_size: 0,
  counted: 0,
  oldest: null,
  expired: 0,
  shed: 0,
  restarted: 0,
  repeated: 0,
  requests: 0,
  failed: 0,
  refused: 0,
  unauthorised: 0,
  timed_out: 0,
  unsaved: 0,
  last_success: null,
  last_error: null,
};

test('an export says whether it works', () => {
  assert.deepEqual(health(one), { text: 'all records sent', class: 'good' });
  assert.deepEqual(health({ ...one, waiting: 1500, requests: 3 }), { text: 'sending, 1.5 k pending' });
  assert.deepEqual(health({ ...one, waiting: 7 }), { text: 'waiting for the first batch' });
  assert.deepEqual(health({ ...one, waiting: 7, requests: 3, last_error: 'no such table' }), {
    text: 'no such table',
    class: 'bad',
    title: 'no such table',
  });
});
