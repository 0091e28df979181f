import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Answer, Store } from '../src/api/dta';
import {
  answerText,
  countText,
  expectedText,
  fieldsText,
  queryOf,
  shapeText,
  sketchText,
} from '../src/model/stores';

const store = (more: object): Store =>
  ({
    name: 's',
    id: 1,
    kind: 'key-write',
    fields: null,
    bytes: 0,
    file: null,
    snapshot: null,
    pages: 'small',
    created: 0,
    occupied: null,
    expected: [],
    ...more,
  }) as unknown as Store;

test('stores show their layout', () => {
  assert.equal(shapeText(store({ slots: 1_048_576, data: 20 })), '1.05 M slots of 20 bytes');
  const append = store({ kind: 'append', lists: 1, entries: 4096, entry: 18 });
  assert.equal(shapeText(append), '1 list of 4.1 k entries of 18 bytes');
  assert.equal(shapeText(store({ kind: 'key-increment', slots: 512 })), '512 counters');
  const sketch = store({ kind: 'sketch', sketch: 'count-min', depth: 4, columns: 1000 });
  assert.equal(shapeText(sketch), 'count-min, 4 × 1 k');
  assert.equal(shapeText(store({ kind: 'postcarding', slots: 8, hops: 5 })), '8 paths of 5 hops');
});

test('expected answers are listed by copies', () => {
  assert.equal(expectedText(store({})), '–');
  const expected = [
    { copies: 1, load: 0.5, answered: 0.787 },
    { copies: 2, load: 0.5, answered: 0.83 },
  ];
  assert.match(expectedText(store({ expected })), /^78\.7 % with 1, 83(\.0)? % with 2$/);
});

test('each kind has its query', () => {
  const kinds: [Store['kind'], ReturnType<typeof queryOf>][] = [
    ['key-write', 'get'],
    ['postcarding', 'get'],
    ['key-increment', 'count'],
    ['sketch', 'sketch'],
    ['append', null],
  ];
  for (const [kind, query] of kinds) assert.equal(queryOf(kind), query);
});

const answer = (more: Partial<Answer>): Answer => ({
  store: 's',
  key: 'k',
  answer: 'found',
  copies: 2,
  agreeing: 2,
  data: '0b',
  fields: null,
  path: null,
  missing: null,
  ...more,
});

test('answers are sentences, and state uncertainty', () => {
  assert.deepEqual(answerText(answer({})), { good: true, text: '0b (2 copies of 2 agree)' });
  const fields = { path: [11, null, 13], reason: 71 };
  assert.equal(
    answerText(answer({ fields, agreeing: 1 })).text,
    'path 11 › – › 13, reason 71 (1 copy of 2 agree)',
  );
  assert.equal(answerText(answer({ path: [1, null, 3], copies: null })).text, '1 › ? › 3');
  assert.equal(answerText(answer({ answer: 'empty' })).good, false);
  assert.match(answerText(answer({ answer: 'ambiguous' })).text, /2 copies with different values/);
  assert.match(answerText(answer({ answer: 'torn' })).text, /try again/);
  const unproven = answerText(answer({ answer: 'unproven', path: [11, null], copies: null }));
  assert.deepEqual(unproven, { good: true, text: '11 › ? (unproven: the slot does not identify its key)' });
});

test('counts and sketches state their error', () => {
  const count = {
    store: 's',
    key: 'k',
    estimate: 4242,
    copies: 2,
    total: 9_000_000,
    error: 23.7,
    confidence: 0.865,
  };
  const bound = 'true count: 4\\s?218 to 4\\s?242, with 86\\.5 % probability, if each report adds to';
  assert.match(
    countText(count),
    new RegExp(`^4\\s?242 \\(${bound} at least 2 counters; 9 M in all keys\\)$`),
  );
  assert.match(countText({ ...count, copies: 4 }), / adds to 4 counters; /);
  assert.match(countText({ ...count, error: 0 }), / \(true count: exactly 4\s?242, /);
  const epoch = { epoch: 17, columns: 8, reporters: 1 };
  const sketch = {
    store: 's',
    sketch: 'count-min',
    epoch,
    epochs: [epoch],
    samples: [],
    certain: false,
    key: null,
    question: 'count',
    estimate: 811.6,
    error: 12.3,
    confidence: 0.9,
  };
  assert.equal(
    sketchText(sketch),
    'count 812 ± 13 (epoch 17, 1 reporter merged; columns of a newer epoch may be among them)',
  );
  assert.match(sketchText({ ...sketch, estimate: null }), /nothing to estimate/);
  assert.equal(fieldsText({ a: null, b: [1, 2] }), 'a –, b 1 › 2');
  const drop = { proto: 17, reason: 128, node: 3, reason_name: 'link down' };
  assert.equal(fieldsText(drop), 'proto 17 (udp), reason 128 (link down), node 3');
});
