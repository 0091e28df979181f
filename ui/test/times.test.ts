import assert from 'node:assert/strict';
import test from 'node:test';
import { activityColumns } from '../src/model/activity';
import type { AddressBar } from '../src/settings';
import { Times, type Anchor } from '../src/times';

const NOW = Date.parse('2026-11-26T12:00:00Z');

class Bar implements AddressBar {
  pushed: string[] = [];
  constructor(public address: string) {}
  hash = (): string => this.address;
  write(hash: string): void {
    this.pushed.push(hash);
    this.address = hash;
  }
}

function at(address: string): { bar: Bar; times: Times } {
  const bar = new Bar(address);
  return { bar, times: new Times(bar, () => NOW * 1e6) };
}

test('without a range in the address everything is live', () => {
  const { times } = at('#/flow/x?sort=reports');
  assert.equal(times.isLive(), true);
  assert.deepEqual([times.query(), times.intervalMs(2000)], [{}, 2000]);
  assert.equal(times.carry('#/events?kind=drop'), '#/events?kind=drop');
});

test('in a console nothing is live', () => {
  const times = new Times(
    new Bar('#/flow'),
    () => NOW * 1e6,
    () => false,
  );
  assert.deepEqual([times.isLive(), times.isUsual(), times.intervalMs(2000)], [false, true, 10_000]);
  assert.deepEqual(times.query(), { from: `${NOW - 900_000}000000`, to: `${NOW}000000` });
});

test('a range is written beside what the page has, and links carry it', () => {
  const { bar, times } = at('#/flow/x?sort=reports');
  let changes = 0;
  times.onChange(() => (changes += 1));
  times.set({ from: NOW - 600_000, to: NOW - 300_000 });
  assert.equal(
    bar.address,
    '#/flow/x?sort=reports&from=2026-11-26T11%3A50%3A00Z&to=2026-11-26T11%3A55%3A00Z',
  );
  times.set({ from: NOW - 600_000, to: NOW - 300_000 });
  assert.deepEqual([changes, bar.pushed.length], [1, 1]);
  assert.equal(
    times.carry('#/events?kind=drop'),
    '#/events?kind=drop&from=2026-11-26T11%3A50%3A00Z&to=2026-11-26T11%3A55%3A00Z',
  );
  // A link to a time of its own stays, and so does one to another place.
  for (const address of ['#/events?last=1h', 'https://example.org/'])
    assert.equal(times.carry(address), address);
  assert.deepEqual(times.query(), {
    from: `${BigInt(NOW - 600_000) * 1_000_000n}`,
    to: `${BigInt(NOW - 300_000) * 1_000_000n}`,
  });
  assert.ok(times.isPast() && times.intervalMs(1000) > 3_600_000, 'what is past is asked once');
  times.set({ last: 900 });
  assert.equal(bar.address, '#/flow/x?sort=reports');
});

test('a range that ends now is refreshed as often as was chosen, or is paused', () => {
  const { bar, times } = at('#/overview?last=6h');
  assert.equal(times.intervalMs(1000), 10_000);
  times.setRefresh(5);
  assert.deepEqual([bar.address, times.intervalMs(1000)], ['#/overview?last=6h&refresh=5s', 5_000]);
  times.setRefresh(0);
  assert.ok(times.intervalMs(1000) > 3_600_000);
  times.setRefresh(10);
  assert.equal(bar.address, '#/overview?last=6h');
  times.pause();
  assert.deepEqual(times.range, { from: NOW - 21_600_000, to: NOW });
});

test('parts in which nothing was received are gaps, and not zero', () => {
  const point = (ts: number, reports: number, events: number, lost = 0) => ({ ts, reports, events, lost });
  const activity = {
    from: 120e9,
    to: 360e9,
    column: 60e9,
    reports_to: 360e9,
    events_to: 360e9,
    points: [point(120e9, 600, 0), point(300e9, 60, 6, 3)],
    kinds: {},
  };
  assert.deepEqual(activityColumns(activity), {
    times: [150, 210, 270, 330],
    reports: [10, null, null, 1],
    events: [0, null, null, 0.1],
    totals: { reports: 660, events: 6, lost: 3 },
  });
});

test('what has not ended is not known, or is the rate of the time that has passed', () => {
  const point = (ts: number, reports: number, events: number) => ({ ts, reports, events, lost: 0 });
  const minutes = {
    from: 0,
    to: 180e9,
    column: 60e9,
    reports_to: 60e9,
    events_to: 130e9,
    points: [point(0, 600, 60), point(60e9, 300, 60), point(120e9, 0, 10)],
    kinds: {},
  };
  const { reports, events } = activityColumns(minutes);
  assert.deepEqual(reports, [10, null, null]);
  assert.deepEqual(events, [1, 1, 1]);
  const long = { ...minutes, column: 180e9, points: [point(0, 600, 130)] };
  assert.deepEqual([activityColumns(long).reports, activityColumns(long).events], [[10], [1]]);
});

test('a link that stays on the page follows the time, back to now too', () => {
  const { bar, times } = at('#/overview?last=6h');
  let href = '#/events?kind=drop';
  const anchor: Anchor = {
    dataset: {},
    getAttribute: () => href,
    setAttribute: (_, value) => (href = value),
  };
  const press = (): string => {
    // Several events complete a link before it is followed.
    for (let i = 0; i < 3; i += 1) times.complete(anchor);
    return href;
  };
  assert.equal(press(), '#/events?kind=drop&last=6h');
  bar.address = '#/overview?last=1h';
  assert.equal(press(), '#/events?kind=drop&last=1h');
  bar.address = '#/overview';
  assert.equal(press(), '#/events?kind=drop');
  // The page has given it another address.
  bar.address = '#/overview?last=1h';
  press();
  href = '#/events?kind=loss';
  assert.equal(press(), '#/events?kind=loss&last=1h');
  href = '#/events?last=24h';
  assert.equal(press(), '#/events?last=24h');
});
