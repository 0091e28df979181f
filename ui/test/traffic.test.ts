import assert from 'node:assert/strict';
import test from 'node:test';
import type { Traffic, TrafficRow } from '../src/api/types';
import { names } from '../src/lib/names';
import { sankey } from '../src/model/sankey';
import {
  curves,
  groupFilter,
  groupName,
  MEASURES,
  DIMENSIONS,
  narrowed,
  remarks,
  sorted,
  tops,
} from '../src/model/traffic';
import { merged, parseViews, viewsText, without } from '../src/model/views';

function row(key: (string | null)[], values: (number | null)[], filters: (string | null)[] = []): TrafficRow {
  const count = values.reduce<number>((sum, value) => sum + (value ?? 0), 0);
  return { key, filters, count, mean: null, max: null, values };
}

function traffic(groups: TrafficRow[], more: Partial<Traffic> = {}): Traffic {
  const columns = groups[0]?.values.length ?? 0;
  const none = Array.from({ length: columns }, () => null);
  const count = groups.reduce((sum, group) => sum + group.count, 0);
  return {
    by: ['src'],
    measure: 'reports',
    unit: 'reports',
    counts: true,
    from: 60e9,
    to: 60e9 + columns * 60e9,
    column: 60e9,
    known_to: 60e9 + columns * 60e9,
    groups,
    others: row([], none),
    other_groups: 0,
    total: { ...row([], none), count },
    overlapping: false,
    counted_from: null,
    truncated: false,
    lacks: [],
    ...more,
  };
}

test('numbers become rates of the time that has passed, and gaps stay', () => {
  const answer = traffic([row(['a'], [60, null, 600, 30])], { known_to: 60e9 + 210e9 });
  const { times, curves: found } = curves(answer);
  assert.deepEqual(times, [90, 150, 210, 270]);
  assert.deepEqual(found, [{ name: 'a', place: 0, values: [1, null, 10, 1] }]);
  // Nothing is known of a column that has not begun.
  const early = curves({ ...answer, known_to: 240e9 });
  assert.deepEqual(early.curves[0]?.values, [1, null, 10, null]);
});

test('more groups than there are colours are among the others, and nothing is lost', () => {
  const groups = Array.from({ length: 11 }, (_, i) => row([`h${i}`], [(11 - i) * 60, 0]));
  const others = row([], [120, null]);
  const found = curves(traffic(groups, { others, other_groups: 5 })).curves;
  assert.equal(found.length, 9);
  assert.deepEqual(found[8], { name: '8 others', place: null, values: [3 + 2 + 1 + 2, 0] });
  const sum = (column: number): number => found.reduce((all, { values }) => all + (values[column] ?? 0), 0);
  assert.equal(sum(0), 66 + 2);
  // Means cannot be added.
  const measured = curves(traffic(groups, { counts: false, other_groups: 5 })).curves;
  assert.deepEqual([measured.length, measured[0]?.values], [8, [660, 0]]);
});

test('areas lie on top of one another, with a gap where nothing is known', () => {
  const curve = (values: (number | null)[]) => ({ name: '', place: 0, values });
  assert.deepEqual(tops([curve([1, null, 3]), curve([2, null, null]), curve([4, null, 0])]), [
    [1, null, 3],
    [3, null, 3],
    [7, null, 3],
  ]);
});

test('groups have the names that there are', () => {
  names.set({
    nodes: [{ node: 101, name: 'leaf1', interfaces: [{ interface: 3, name: 'Ethernet3' }] }],
    hosts: [{ address: '10.0.0.1', name: 'web', origin: 'file' }],
    drop_reasons: [{ code: 71, name: 'queue_full' }],
  });
  const name = (by: string[], ...key: (string | null)[]): string => groupName(by, row(key, []));
  assert.equal(name(['src', 'dport'], '10.0.0.1', '443'), 'web · 443');
  assert.equal(name(['path'], '101>?>7'), 'leaf1 › ? › 7');
  assert.equal(name(['queue', 'interface'], '101.5', '101/3'), 'leaf1 queue 5 · leaf1 Ethernet3');
  assert.equal(name(['queue'], '101/3.5'), 'leaf1 interface Ethernet3 queue 5');
  assert.equal(name(['node', 'rule'], null, 'too slow'), 'unknown · too slow');
  assert.equal(name(['reason', 'reason'], '71', '128'), 'queue full · reason 128');
  assert.equal(name(['flow'], '10.0.0.1:5000>10.0.0.2:80/17'), 'web:5000 → 10.0.0.2:80 UDP');
});

test('a group is added to the filter so that both are true', () => {
  assert.equal(groupFilter(row(['a', 'b'], [], ['src == a', 'dport == 1'])), 'src == a and dport == 1');
  assert.equal(groupFilter(row(['a', null], [], ['src == a', null])), null);
  assert.equal(groupFilter(row([], [])), null);
  assert.equal(narrowed(' ', 'node == 1'), 'node == 1');
  assert.equal(narrowed('port == 80', 'node == 1'), 'port == 80 and node == 1');
  assert.equal(narrowed('port == 80 and node == 1', 'node == 1'), 'port == 80 and node == 1');
  assert.equal(narrowed('port == 80 or port == 81', 'node == 1'), '(port == 80 or port == 81) and node == 1');
  assert.equal(narrowed('10.0.0.1', 'node == 1'), '"10.0.0.1" and node == 1');
  assert.equal(narrowed('rule == "x or y"', 'node == 1'), '(rule == "x or y") and node == 1');
});

test('the table is sorted by what is chosen, both ways', () => {
  const rows = [row(['h10'], [1]), row(['h9'], [3]), row(['h1'], [2])];
  const keys = (order: string): (string | null | undefined)[] =>
    sorted(traffic(rows), order).map(({ key }) => key[0]);
  assert.deepEqual(keys('count'), ['h9', 'h1', 'h10']);
  assert.deepEqual(keys('-count'), ['h10', 'h1', 'h9']);
  assert.deepEqual(keys('name'), ['h1', 'h9', 'h10']);
});

test('what is not in an answer is said', () => {
  assert.deepEqual(
    remarks(traffic([]), () => ''),
    [],
  );
  const cut = traffic([], { overlapping: true, truncated: true, counted_from: 1e9, lacks: ['queue'] });
  const said = remarks(cut, () => 'noon').join(' ');
  for (const part of ['reports by queue', 'can exceed the total', 'nothing before noon', 'keep separate'])
    assert.ok(said.includes(part), `${part}: ${said}`);
});

test('every measure is by dimensions that there are', () => {
  const known = new Set(DIMENSIONS.map(([name]) => name));
  for (const { by } of MEASURES) assert.ok(by.length > 0 && by.every((name) => known.has(name)));
});

test('bars and bands of a Sankey diagram add up', () => {
  const answer = traffic(
    [
      row(['a', 'x'], [60], ['src == a', 'dst == x']),
      row(['a', 'y'], [30], ['src == a', 'dst == y']),
      row(['b', 'x'], [10], ['src == b', 'dst == x']),
    ],
    { by: ['src', 'dst'], others: row([], [20]), other_groups: 4 },
  );
  const { bars, bands } = sankey(answer, 300);
  const bar = (level: number, name: string) => bars.find((one) => one.level === level && one.name === name);
  assert.deepEqual([bar(0, 'a')?.count, bar(0, 'b')?.count, bar(0, 'others')?.count], [90, 10, 20]);
  assert.deepEqual([bar(1, 'x')?.count, bar(1, 'y')?.count], [70, 30]);
  assert.equal(bar(0, 'a')?.filter, 'src == a');
  for (const level of [0, 1]) {
    const of = bars.filter((one) => one.level === level);
    // One above the other, inside the picture, the others last.
    of.forEach((one, i) => {
      const before = of[i - 1];
      assert.ok(before === undefined || one.top >= before.top + before.height, one.name);
      assert.ok(one.top + one.height <= 301, `${one.name} ends at ${one.top + one.height}`);
    });
    assert.equal([...of].sort((one, other) => other.top - one.top)[0]?.name, 'others');
  }
  for (const one of bars) {
    const height = bands
      .filter(({ from, to }) => (one.level === 0 ? from : to) === one)
      .reduce((sum, band) => sum + (band.count / one.count) * one.height, 0);
    assert.ok(Math.abs(height - one.height) < 0.01, `${one.name}: ${height} of ${one.height}`);
  }
  assert.equal(
    bands.reduce((sum, { count }) => sum + count, 0),
    120,
  );
});

test('a host that is called others is not the others', () => {
  names.set({ nodes: [], hosts: [{ address: '10.0.0.9', name: 'others', origin: 'dns' }], drop_reasons: [] });
  const answer = traffic([row(['10.0.0.9', '1'], [5], ['src == 10.0.0.9', 'dport == 1'])], {
    by: ['src', 'dport'],
    others: row([], [7]),
    other_groups: 1,
  });
  const { bars } = sankey(answer, 100);
  assert.deepEqual(
    bars.filter(({ level }) => level === 0).map(({ count, filter }) => [count, filter]),
    [
      [5, 'src == 10.0.0.9'],
      [7, null],
    ],
  );
});

test('views are kept by name, and only addresses of this program are', () => {
  const known = merged([], [{ name: ' night ', address: '#/traffic?by=dst' }]);
  assert.deepEqual(known, [{ name: 'night', address: '#/traffic?by=dst' }]);
  const both = merged(known, [
    { name: 'night', address: '#/events' },
    { name: 'day', address: '#/overview?last=1h' },
  ]);
  assert.deepEqual(both, [
    { name: 'day', address: '#/overview?last=1h' },
    { name: 'night', address: '#/events' },
  ]);
  assert.deepEqual(parseViews(viewsText(both)), { views: both, left: 0 });
  assert.deepEqual(without(both, 'day').length, 1);
  const strange = {
    views: [
      { name: 'a', address: 'javascript:alert(1)' },
      { name: 'b', address: 'https://example.org/#/' },
      { name: '', address: '#/events' },
      { name: 'c', address: `#/${'x'.repeat(9000)}` },
      null,
      7,
      { name: 'd', address: '#/queues' },
    ],
  };
  assert.deepEqual(parseViews(JSON.stringify(strange)), {
    views: [{ name: 'd', address: '#/queues' }],
    left: 6,
  });
  for (const wrong of ['', '{}', '[]', 'null', '{"views":1}'])
    assert.throws(() => parseViews(wrong), /not a file of saved views/);
  const many = Array.from({ length: 300 }, (_, i) => ({ name: `v${i}`, address: '#/events' }));
  assert.equal(merged([], many).length, 200);
});
