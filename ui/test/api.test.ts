import assert from 'node:assert/strict';
import { test } from 'node:test';
import { address } from '../src/api/client';
import { parseExact } from '../src/api/json';
import { Notes, notesIn } from '../src/api/notes';
import { backoff } from '../src/api/poll';
import { shedCount } from '../src/api/stream';
import { toCsv } from '../src/lib/csv';
import { plotColumns } from '../src/model/result';
import { link, parseRoute } from '../src/router';

test('long integers keep all their digits, strings and short numbers stay what they are', () => {
  const text =
    '{"rows":[[1795296688658000128,-1795296688658000128,12,1.5,1e3,"a 1795296688658000128 \\" b",null]]}';
  const wanted = {
    rows: [['1795296688658000128', '-1795296688658000128', 12, 1.5, 1000, 'a 1795296688658000128 " b', null]],
  };
  assert.deepEqual(parseExact(text), wanted);
  assert.deepEqual(parseExact('1234567890123456.5'), 1234567890123456.5);
  assert.deepEqual(parseExact('{"a":65.46964600000001234,"b":1.5e300}'), {
    a: 65.46964600000001,
    b: 1.5e300,
  });
});

test('csv quotes what must be quoted and disarms formulas', () => {
  const rows = [
    ['1795296688658000128', 'a,b', null, -5],
    ['say "hi"', '=1+1', '-12.5', true],
    ['@x', '-x', 'two\nlines', ''],
  ];
  const wanted = [
    'ts,b,c,d',
    '1795296688658000128,"a,b",,-5',
    '"say ""hi""",\'=1+1,-12.5,true',
    '\'@x,\'-x,"two\nlines",',
    '',
  ];
  assert.equal(toCsv(['ts', 'b', 'c', 'd'], rows), wanted.join('\r\n'));
});

test('the wait doubles up to 15 seconds', () => {
  assert.deepEqual(
    [0, 1, 2, 3, 4, 50].map((failures) => backoff(1000, failures)),
    [1000, 2000, 4000, 8000, 15_000, 15_000],
  );
});

test('empty parameters are left out of addresses', () => {
  assert.equal(
    address('events', { kind: '', node: null, flow: 'a>b', limit: 5 }),
    'api/v1/events?flow=a%3Eb&limit=5',
  );
  assert.equal(address('status'), 'api/v1/status');
});

test('shed counts are a number or stand in an object', () => {
  assert.deepEqual(['12', '{"count":7}', 'x', '{}', 'null'].map(shedCount), [12, 7, 0, 0, 0]);
});

test('routes survive a round trip', () => {
  const found = parseRoute(link('flow', 'a/b>c', { find: '10.0.0.1:5>x' }));
  assert.deepEqual([found.page, found.argument, found.query.get('find')], ['flow', 'a/b>c', '10.0.0.1:5>x']);
  assert.deepEqual(parseRoute('').page, '');
});

test('a result is drawn when a time comes first and numbers follow', () => {
  const result = (columns: string[], rows: (string | number | null)[][]) =>
    plotColumns({ columns, rows, truncated: false, notes: [], elapsed_ms: 1 });
  const drawn = result(
    ['ts', 'p50', 'kind'],
    [
      ['1795296689000000000', 2, 'a'],
      ['1795296688000000000', null, 'b'],
    ],
  );
  assert.deepEqual(drawn, { names: ['p50'], times: [1_795_296_688, 1_795_296_689], columns: [[null, 2]] });
  assert.equal(
    result(
      ['kind', 'n'],
      [
        ['a', 1],
        ['b', 2],
      ],
    ),
    null,
  );
  assert.equal(
    result(
      ['ts', 'kind'],
      [
        [1, 'a'],
        [2, 'b'],
      ],
    ),
    null,
  );
  assert.equal(result(['ts', 'n'], [[1, 1]]), null);
});

test('notes are those of the latest answer of each path, each once', () => {
  const notes = new Notes();
  let changes = 0;
  notes.onChange(() => (changes += 1));
  notes.set('events', notesIn('["b","a"]'));
  notes.set('events', notesIn('["b","a"]'));
  notes.set('rollups', notesIn('["b"]'));
  notes.set('status', notesIn(null));
  assert.deepEqual([notes.all(), changes], [['a', 'b'], 2]);
  notes.set('events', []);
  assert.deepEqual(notes.all(), ['b']);
  notes.clear();
  assert.deepEqual([notes.all(), changes], [[], 4]);
  assert.deepEqual(['{"a":1}', 'no', '["a",1]'].map(notesIn), [[], [], ['a']]);
});
