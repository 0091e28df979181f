import assert from 'node:assert/strict';
import test from 'node:test';
import {
  between,
  limits,
  parseLength,
  partText,
  rangeText,
  readRange,
  shift,
  utcText,
  writeRange,
  zoneText,
  zoomOut,
  type Range,
} from '../src/model/range';

const NOW = Date.parse('2026-11-26T12:00:00Z');
const read = (text: string): Range => readRange(new URLSearchParams(text));

test('a range is read from an address and written back', () => {
  const cases: [string, Range][] = [
    ['', { last: 900 }],
    ['last=6h', { last: 21_600 }],
    ['last=90s', { last: 90 }],
    [
      'from=2026-11-26T03:12:00Z&to=2026-11-26T03:13:00.500Z',
      { from: Date.parse('2026-11-26T03:12:00Z'), to: Date.parse('2026-11-26T03:13:00.500Z') },
    ],
  ];
  for (const [text, range] of cases) {
    assert.deepEqual(read(text), range);
    assert.equal(decodeURIComponent(new URLSearchParams(writeRange(range)).toString()), text);
  }
});

test('a time without a zone is UTC, wherever the page is opened', () => {
  const zone = process.env.TZ;
  process.env.TZ = 'Europe/Berlin';
  const expected = { from: Date.parse('2026-11-26T03:10:00Z'), to: Date.parse('2026-11-26T03:12:30.500Z') };
  for (const text of [
    'from=2026-11-26T03:10&to=2026-11-26T03:12:30.5',
    'from=2026-11-26 03:10&to=2026-11-26 03:12:30.5',
    'from=2026-11-26T04:10%2B01:00&to=2026-11-26T03:12:30.5Z',
  ])
    assert.deepEqual(read(text), expected, text);
  assert.deepEqual(read('from=2026-11-26&to=2026-11-27'), {
    from: Date.parse('2026-11-26T00:00:00Z'),
    to: Date.parse('2026-11-27T00:00:00Z'),
  });
  if (zone === undefined) delete process.env.TZ;
  else process.env.TZ = zone;
});

test('what cannot be read is the usual range', () => {
  for (const text of ['last=soon', 'last=0m', 'from=x&to=y', 'from=2026-11-26T03:12:00Z', 'last=-5m'])
    assert.deepEqual(read(text), { last: 900 }, text);
  const backwards = 'from=2026-11-26T03:12:00Z&to=2026-11-26T03:11:00Z';
  assert.deepEqual(read(backwards), { last: 900 });
  assert.equal(parseLength('7d'), 604_800);
});

test('a range moves, grows, and never reaches into the future', () => {
  assert.deepEqual(limits({ last: 60 }, NOW), { from: NOW - 60_000, to: NOW });
  assert.deepEqual(shift({ last: 60 }, -1, NOW), { from: NOW - 120_000, to: NOW - 60_000 });
  assert.deepEqual(shift({ from: NOW - 120_000, to: NOW - 60_000 }, 1, NOW), { last: 60 });
  assert.deepEqual(zoomOut({ last: 60 }, NOW), { last: 120 });
  const past = { from: NOW - 4_000_000, to: NOW - 3_900_000 };
  assert.deepEqual(zoomOut(past, NOW), { from: NOW - 4_050_000, to: NOW - 3_850_000 });
});

test('a drawn span has whole seconds, at least two', () => {
  assert.deepEqual(between(NOW + 5_400, NOW + 1_600), { from: NOW + 1_000, to: NOW + 6_000 });
  assert.deepEqual(between(NOW + 100, NOW + 200), { from: NOW, to: NOW + 2_000 });
});

test('a range is said in the local zone, with its day', () => {
  const local = (day: number, hour: number, minute: number, second = 0): number =>
    new Date(2026, 10, day, hour, minute, second).getTime();
  const now = local(26, 12, 0);
  const cases: [Range, string][] = [
    [{ last: 900 }, 'the last 15 min'],
    [{ last: 90 }, 'the last 90 s'],
    [{ from: local(26, 3, 10), to: local(26, 3, 20) }, '03:10–03:20 today'],
    [{ from: local(25, 3, 10), to: local(25, 3, 20, 5) }, '03:10:00–03:20:05 yesterday'],
    [{ from: local(25, 23, 50), to: local(26, 0, 10) }, '23:50 yesterday – 00:10 today'],
    [{ from: local(20, 3, 10), to: local(21, 3, 20) }, '03:10 2026-11-20 – 03:20 2026-11-21'],
  ];
  for (const [range, text] of cases) assert.equal(rangeText(range, now), text);
  const utc = { from: Date.parse('2026-11-26T03:12:00Z'), to: Date.parse('2026-11-26T03:13:00.500Z') };
  assert.equal(utcText(utc), '2026-11-26 03:12:00 to 2026-11-26 03:13:00 UTC');
});

test('the zone is that of the times that are shown, on both sides of a change of the clocks', () => {
  const before = process.env['TZ'];
  try {
    const zones: [string, string, string, string][] = [
      ['Europe/London', '2026-10-24T12:00:00Z', '2026-10-24T13:00:00Z', 'local time, UTC+01:00'],
      ['Europe/London', '2026-11-05T12:00:00Z', '2026-11-05T13:00:00Z', 'UTC'],
      ['Europe/London', '2026-10-24T12:00:00Z', '2026-11-05T12:00:00Z', 'local time, UTC+01:00 to UTC'],
      ['America/St_Johns', '2026-11-05T12:00:00Z', '2026-11-05T12:00:00Z', 'local time, UTC−03:30'],
    ];
    for (const [zone, from, to, text] of zones) {
      process.env['TZ'] = zone;
      assert.equal(zoneText(Date.parse(from), Date.parse(to)), text);
    }
  } finally {
    process.env['TZ'] = before;
    if (before === undefined) delete process.env['TZ'];
  }
});

test('an answer that is not about everything says so', () => {
  const whole = { range: { truncated: false } };
  for (const answers of [[], [{}], [{ range: null }], [whole, {}]]) assert.equal(partText(...answers), '');
  assert.match(partText({}, whole, { range: { truncated: true } }), /^Incomplete/);
});
