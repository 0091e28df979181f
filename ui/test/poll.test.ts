import assert from 'node:assert/strict';
import { afterEach, beforeEach, mock, test } from 'node:test';
import { Unreachable } from '../src/api/client';
import { poll, type Poll } from '../src/api/poll';

/** The part of `document` that polling uses. */
const page = Object.assign(new EventTarget(), { hidden: false });
Object.assign(globalThis, { document: page });

let requested = 0;
let shown: number[] = [];
let waits: number[] = [];
let answer: () => Promise<number> = () => Promise.resolve(0);
let running: Poll | undefined;

beforeEach(() => {
  mock.timers.enable({ apis: ['setTimeout'] });
  page.hidden = false;
  [requested, shown, waits] = [0, [], []];
  answer = () => Promise.resolve(requested);
});

afterEach(() => {
  running?.stop();
  mock.timers.reset();
});

function begin(): Poll {
  running = poll<number>({
    intervalMs: 1000,
    request: () => {
      requested += 1;
      return answer();
    },
    show: (value) => shown.push(value),
    failed: (_, wait) => waits.push(wait),
  });
  return running;
}

/** Lets pending responses be processed, then advances time. */
async function pass(ms: number): Promise<void> {
  await new Promise(setImmediate);
  mock.timers.tick(ms);
  await new Promise(setImmediate);
}

function hide(hidden: boolean): void {
  page.hidden = hidden;
  page.dispatchEvent(new Event('visibilitychange'));
}

test('polls at once and after each interval', async () => {
  begin();
  await pass(1000);
  await pass(1000);
  assert.deepEqual(shown, [1, 2, 3]);
});

test('never has two requests in flight, however slow the response', async () => {
  answer = () => new Promise(() => undefined);
  begin();
  await pass(60_000);
  assert.equal(requested, 1);
});

test('polls less and less often while it fails, and at the interval again after a success', async () => {
  answer = () => (requested < 4 ? Promise.reject(new Unreachable('down')) : Promise.resolve(requested));
  begin();
  for (const ms of [2000, 4000, 8000, 1000]) await pass(ms);
  assert.deepEqual(waits, [2000, 4000, 8000]);
  assert.deepEqual(shown, [4, 5]);
});

test('pauses while the tab is hidden and polls at once when it is visible again', async () => {
  begin();
  await pass(0);
  hide(true);
  await pass(60_000);
  assert.equal(requested, 1);
  hide(false);
  await pass(0);
  assert.deepEqual(shown, [1, 2]);
});

test('a response that arrives after the end, or after a newer request, is discarded', async () => {
  const resolves: ((value: number) => void)[] = [];
  answer = () => new Promise((resolve) => resolves.push(resolve));
  const polling = begin();
  polling.now();
  resolves[0]?.(1);
  resolves[1]?.(2);
  await pass(0);
  assert.deepEqual(shown, [2]);
  polling.now();
  polling.stop();
  resolves[2]?.(3);
  await pass(0);
  assert.deepEqual(shown, [2]);
});
