import assert from 'node:assert/strict';
import { mock, test } from 'node:test';
import { pageAt, parseRoute } from '../src/router';
import { Settings, type AddressBar } from '../src/settings';

class Bar implements AddressBar {
  readonly written: [string, boolean][] = [];
  constructor(private now: string) {}

  hash(): string {
    return this.now;
  }

  write(hash: string, push: boolean): void {
    this.now = hash;
    this.written.push([hash, push]);
  }
}

const DEFAULTS = { sort: 'latency', filter: '' };

function settingsAt(hash: string): { bar: Bar; settings: Settings<typeof DEFAULTS> } {
  const bar = new Bar(hash);
  return { bar, settings: new Settings(parseRoute(hash), DEFAULTS, bar) };
}

test('a choice is in the address at once, a default is not, and parameters of others stay', () => {
  const { bar, settings } = settingsAt('#/flow/ab?from=1h');
  settings.set({ sort: 'reports' });
  settings.set({ sort: 'reports' });
  settings.set({ filter: 'a b>&?=%' });
  settings.set({ sort: 'latency' });
  settings.go('cd');
  settings.go('cd');
  assert.deepEqual(bar.written, [
    ['#/flow/ab?from=1h&sort=reports', true],
    ['#/flow/ab?from=1h&sort=reports&filter=a+b%3E%26%3F%3D%25', true],
    ['#/flow/ab?from=1h&filter=a+b%3E%26%3F%3D%25', true],
    ['#/flow/cd?from=1h&filter=a+b%3E%26%3F%3D%25', true],
  ]);
  assert.equal(settingsAt(bar.hash()).settings.get('filter'), 'a b>&?=%');
});

test('what is typed is written once the typing pauses, and not when the page was left', () => {
  mock.timers.enable({ apis: ['setTimeout'] });
  const { bar, settings } = settingsAt('#/flow');
  settings.type({ filter: '1' });
  mock.timers.tick(200);
  settings.type({ filter: '10' });
  mock.timers.tick(299);
  assert.deepEqual(bar.written, []);
  mock.timers.tick(1);
  assert.deepEqual(bar.written, [['#/flow?filter=10', false]]);
  settings.type({ filter: '10.0' });
  bar.write('#/sql', true);
  mock.timers.tick(1000);
  assert.deepEqual(bar.written.slice(1), [['#/sql', true]]);
  // The same page, but another one of its kind: a field of the former may speak late.
  bar.write('#/flow', true);
  settings.stop();
  settings.type({ filter: '10.0.9' });
  mock.timers.tick(1000);
  assert.deepEqual(bar.written.slice(2), [['#/flow', true]]);
  mock.timers.reset();
});

test('another address of the page gives its values, and says whether they differ', () => {
  const { settings } = settingsAt('#/flow?sort=reports');
  assert.equal(settings.adopt(parseRoute('#/flow/ab?sort=reports')), false);
  assert.equal(settings.adopt(parseRoute('#/flow/ab')), true);
  assert.deepEqual([settings.get('sort'), settings.get('filter')], ['latency', '']);
});

test('an address that cannot be decoded is taken as it is', () => {
  assert.deepEqual(parseRoute('#/flow/100%?x=%').argument, '100%');
});

test('a page of another program keeps its selection and time', () => {
  const hash = '#/queues?at=101.3%2F1%2F2&last=1h';
  assert.equal(pageAt('https://c1.example.org:8080', hash), `https://c1.example.org:8080/${hash}`);
  assert.equal(pageAt('http://proxy/c1//', hash), `http://proxy/c1/${hash}`);
});
