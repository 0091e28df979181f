import assert from 'node:assert/strict';
import { readdirSync, readFileSync } from 'node:fs';
import { test } from 'node:test';
import { dictionary } from '../src/lib/dictionary';
import { stageView } from '../src/model/budget';
import { sentence, tone } from '../src/model/events';
import type { TelemetryEvent } from '../src/api/types';

/** What each plain object answers to, although nobody put it there. */
const INHERITED = ['__proto__', 'constructor', 'toString', 'hasOwnProperty'];

test('a dictionary has what it was made with, and nothing else', () => {
  const found = dictionary<number>({ one: 1 });
  assert.deepEqual(
    [found['one'], ...INHERITED.map((name) => found[name])],
    [1, ...INHERITED.map(() => undefined)],
  );
  assert.deepEqual(
    INHERITED.filter((name) => name in found),
    [],
  );
  assert.deepEqual(Object.keys(found), ['one']);
});

test('a kind or a stage with the name of a method is an unknown one', () => {
  for (const kind of INHERITED) {
    assert.equal(tone(kind), 'quiet');
    assert.equal(
      sentence({ kind, metric: null, node: null, queue: null, interface: null } as TelemetryEvent),
      `${kind.replaceAll('_', ' ')} value`,
    );
    const stage = { stage: kind, unit: null, in: 1, out: 1, drops: {}, queued: 0 };
    assert.equal(stageView(stage as never).title, kind);
  }
});

test('tables by text are dictionaries', () => {
  const folder = new URL(`file://${process.cwd()}/src/`);
  const files = readdirSync(folder, { recursive: true, encoding: 'utf8' }).filter((name) =>
    name.endsWith('.ts'),
  );
  assert.ok(files.length > 50, 'the sources');
  const plain = files.flatMap((name) =>
    (
      readFileSync(new URL(name, folder), 'utf8').match(/const [A-Z_]+: Readonly<Record<string, .*> = \{/g) ??
      []
    ).map((line) => `${name}: ${line}`),
  );
  assert.deepEqual(plain, []);
});
