import assert from 'node:assert/strict';
import test from 'node:test';
import { completed, isUnfinished, marked } from '../src/model/completion';

test('a completion replaces what was begun, and leaves what follows', () => {
  const one = { from: 4, text: 'in ', about: '' };
  assert.deepEqual(completed('src ', 4, one), ['src in ', 7]);
  assert.deepEqual(completed('src i 10.0.0.0/8', 5, one), ['src in 10.0.0.0/8', 7]);
  assert.deepEqual(completed('kind == dr and node == 1', 10, { from: 8, text: 'drop', about: '' }), [
    'kind == drop and node == 1',
    13,
  ]);
});

test('a fault is marked where it is, and at the end as a blank', () => {
  const fault = (position: number, length: number) => ({ position, length, message: '' });
  assert.deepEqual(marked('sorce == 1', fault(0, 5)), ['', 'sorce', ' == 1']);
  assert.deepEqual(marked('src ==', fault(6, 0)), ['src ==', ' ', '']);
});

test('a missing end is no fault while the cursor is there', () => {
  const fault = (position: number, length: number) => ({ position, length, message: '' });
  assert.equal(isUnfinished('src == ', 7, fault(6, 0)), true);
  assert.equal(isUnfinished('src == 10.0.0.300', 17, fault(7, 10)), true);
  assert.equal(isUnfinished('sorce == 10.0.0.1', 17, fault(0, 5)), false);
  assert.equal(isUnfinished('src ==  and dst == 10.0.0.1', 7, fault(6, 0)), false);
});
