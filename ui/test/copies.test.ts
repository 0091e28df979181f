import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { test } from 'node:test';
import { commandLine, quoted, sqlText } from '../src/lib/quoting';
import { curlText, eventsSql, heatSql, hopwise, queryCommand, withApi } from '../src/model/copies';

/** The words that a real shell makes of a command line, and what it wrote to standard error. */
function words(line: string, shell = 'sh'): { words: string[]; error: string } {
  const script = `show() { for word in "$@"; do printf '%s\\0' "$word"; done; }\nshow ${line}`;
  const env = { ...process.env, TOKEN: 'secret' };
  const { stdout, stderr } = spawnSync(shell, ['-c', script], { encoding: 'utf8', env });
  return { words: stdout.split('\0').slice(0, -1), error: stderr };
}

const HOSTILE = [
  '',
  ' ',
  "it's",
  "'",
  "''",
  '"',
  '`touch /tmp/x`',
  '$(touch /tmp/x)',
  '${HOME}',
  '$HOME',
  "'; touch /tmp/x; '",
  "'\"'\"'",
  'a\nb',
  '\n',
  'trailing\n\n',
  '\r\n',
  'tab\there',
  '\x03\x04',
  '\x1b[201~\nrm -rf /\n',
  '\x7f',
  'csi \u009b31m',
  '\\',
  'back\\slash\\n',
  '%s%n%d',
  '!!',
  '~',
  '*',
  '-rf',
  '--help',
  '=ls',
  '#comment',
  'a;b|c&d>e<f(g)h{i}j[k]',
  'ünïcödé → 東京 🙂',
  '\u202eevil',
  'src in 10.0.1.0/24 and path ~ 101>*>103',
];

test('a word that was quoted is the same word for a shell', () => {
  for (const shell of ['sh', 'bash']) {
    const all = words(HOSTILE.map((word) => quoted(word)).join(' '), shell);
    assert.deepEqual(all, { words: HOSTILE, error: '' }, shell);
  }
});

test('a word of any characters is the same word for a shell', () => {
  const alphabet = [
    "'",
    '"',
    '\\',
    '$',
    '(',
    ')',
    '`',
    '\n',
    '\t',
    '\r',
    '\x1b',
    ' ',
    'a',
    '%',
    '{',
    '!',
    'é',
    '\x85',
  ];
  let seed = 7;
  const random = (below: number): number => {
    seed = (seed * 1_103_515_245 + 12_345) % 2 ** 31;
    return Math.floor((seed / 2 ** 31) * below);
  };
  const made = Array.from({ length: 500 }, () =>
    Array.from({ length: random(12) }, () => alphabet[random(alphabet.length)]).join(''),
  );
  assert.deepEqual(words(made.map((word) => quoted(word)).join(' ')), { words: made, error: '' });
});

test('a terminal gets no control character that it could act on, and no program a NUL', () => {
  for (const word of HOSTILE) assert.doesNotMatch(quoted(word) ?? '', /[\0-\x09\x0b-\x1f\x7f-\x9f]/);
  assert.equal(quoted('a\0b'), null);
  assert.equal(commandLine(['hopwise', 'a\0b']), null);
  assert.equal(commandLine(['hopwise', 'events', '--kind=drop']), 'hopwise events --kind=drop');
});

test('curl asks what the page asks, and the shell puts in the token', () => {
  const asked = { path: "flows/10.0.0.1:1>10.0.0.2:2'/6", params: { filter: "a'$(b)", limit: 5, sort: '' } };
  const text = curlText([asked], 'http://hop.example:8080/ui/?x#/flow', true);
  const { words: found, error } = words(text.replace(/^curl/, ''));
  assert.deepEqual([found.slice(0, 3), error], [['-sS', '-H', 'Authorization: Bearer secret'], '']);
  const url = new URL(found[3] ?? '');
  assert.equal(
    url.origin + url.pathname,
    "http://hop.example:8080/ui/api/v1/flows/10.0.0.1:1%3E10.0.0.2:2'/6",
  );
  assert.deepEqual(
    [...url.searchParams],
    [
      ['filter', "a'$(b)"],
      ['limit', '5'],
    ],
  );
  assert.ok(!text.includes('secret'));
  assert.ok(!curlText([asked], 'http://hop.example/', false).includes('TOKEN'));
  const posted = curlText([{ path: 'query', body: { sql: "SELECT '\n$(x)'" } }, asked], 'http://h/', false);
  const [first = ''] = posted.split('\ncurl');
  assert.deepEqual(words(first.replace('curl', '')).words.slice(1), [
    '-H',
    'Content-Type: application/json',
    '--data-raw',
    JSON.stringify({ sql: "SELECT '\n$(x)'" }),
    'http://h/api/v1/query',
  ]);
});

test('commands name only what is set, and a statement is no option', () => {
  const command = hopwise('events', { kind: 'drop', node: '', flow: null, filter: '-x', limit: 50 });
  assert.deepEqual(command, ['hopwise', 'events', '--kind=drop', '--filter=-x', '--limit=50']);
  assert.deepEqual(queryCommand('-- all\nSELECT 1'), ['hopwise', 'query', '--', '-- all\nSELECT 1']);
  assert.deepEqual(withApi(queryCommand('SELECT 1', 5), 'http://h:1'), [
    'hopwise',
    'query',
    '--api=http://h:1',
    '--limit=5',
    '--',
    'SELECT 1',
  ]);
});

test('a text in SQL stays a text', () => {
  assert.equal(sqlText("x' OR '1'='1"), "'x'' OR ''1''=''1'");
  const sql = eventsSql({ from: '1', to: '2', kinds: ['drop', "a'b"], node: '1 OR 1', flow: "f'", limit: 3 });
  assert.match(sql, /WHERE ts >= 1 AND ts <= 2 AND kind IN \('drop', 'a''b'\) AND flow = 'f'''\n/);
  assert.match(eventsSql({ limit: 3 }), /FROM events\nORDER BY ts DESC\nLIMIT 3$/);
  const heat = heatSql({ from: '10', to: '20' }, { metric: "m'", interval: 1, column: 5, rows: 7 });
  assert.match(heat, /metric = 'm'''\n/);
});
