import assert from 'node:assert/strict';
import test from 'node:test';
import type { Alert, Alerts, Trial } from '../src/api/types';
import {
  cutText,
  lasted,
  linksOf,
  noneText,
  openText,
  placeText,
  reasonText,
  silenceFilters,
  silentText,
  sinceText,
  stateText,
  stateTone,
  storedText,
  trialSheet,
  trialText,
  valueText,
} from '../src/model/alerts';

const SECOND = 1e9;
const FLOW = '10.0.0.1:5000>10.0.0.2:80/17';

const ALERT: Alert = {
  id: '00000000000000a1',
  rule: 'deep "queue"',
  when: null,
  flow: { src: '10.0.0.1', dst: '10.0.0.2', sport: 5000, dport: 80, proto: 17 },
  text: FLOW,
  state: 'firing',
  ended: null,
  since: 1_000 * SECOND,
  until: null,
  last_seen: null,
  count: 1,
  episodes: [],
  metric: 'queue_occupancy',
  value: 80_000,
  threshold: 64_000,
  node: 103,
  interface: null,
  queue: 2,
  recorded: null,
  acknowledged: null,
  silence: null,
};

test('only what nobody has looked at is red', () => {
  const note = { by: 'a', at: 1, comment: '' };
  const states = [
    {},
    { acknowledged: note },
    { silence: 3, acknowledged: note },
    { state: 'resolved' as const },
  ];
  const found = states.map((change) => ({ ...ALERT, ...change }));
  assert.deepEqual(found.map(stateText), ['firing', 'acknowledged', 'silenced', 'resolved']);
  assert.deepEqual(found.map(stateTone), ['bad', 'warn', 'muted', 'muted']);
});

test('where nobody was asked it says by what it is known', () => {
  assert.match(storedText(true), /^As exported by the collectors/);
  assert.match(storedText(false), /^As stored/);
});

test('an alert says what was compared, and where', () => {
  assert.equal(valueText(ALERT), '80 k > 64 k device units');
  assert.equal(valueText({ ...ALERT, metric: 'hop_latency', value: 1_000, threshold: 2_000 }), '1 µs < 2 µs');
  assert.equal(valueText({ ...ALERT, value: null }), '–');
  assert.equal(placeText(ALERT), '103 queue 2');
  assert.equal(placeText({ ...ALERT, interface: 7 }), '103 interface 7 queue 2');
  assert.equal(placeText({ ...ALERT, node: null }), '–');
  assert.equal(reasonText(ALERT), 'queue occupancy 80 k > 64 k device units at 103 queue 2');
  assert.equal(reasonText({ ...ALERT, metric: null }), '');
});

test('how long it lasts', () => {
  assert.equal(sinceText(ALERT, 1_095 * SECOND), '1 min');
  assert.equal(sinceText({ ...ALERT, since: null }, 0), 'beginning not stored');
  const over: Alert = { ...ALERT, state: 'resolved', until: 1_007 * SECOND };
  assert.equal(sinceText(over, 9_999 * SECOND), '7 s');
  assert.equal(sinceText({ ...over, until: null }, 0), '–');
  assert.deepEqual(
    [ALERT, over, { ...over, until: null }, { ...ALERT, since: null }].map((one) =>
      lasted(one, 1_095 * SECOND),
    ),
    [95, 7, null, null],
  );
});

test('an alert whose end is not stored lasts until now only if the collector says so', () => {
  assert.equal(openText(ALERT, true), 'now');
  assert.equal(openText(ALERT, false), 'the end of this time');
  assert.equal(openText({ ...ALERT, state: 'resolved' }, true), 'an unknown time');
});

test('a list without alerts says what it knows', () => {
  assert.equal(noneText(false).title, 'No alerts');
  assert.deepEqual(noneText(true), { title: 'No firing alerts', text: 'Ended alerts are hidden.' });
});

test('what the list of alerts leaves out is said', () => {
  const answer: Alerts = {
    alerts: [ALERT],
    confirmed: true,
    firing: 1,
    silent: 0,
    silent_after_s: 5,
    from: 0,
    to: 1,
    known_since: null,
    total: 1,
    unacknowledged: 1,
  };
  assert.equal(cutText(answer), '');
  assert.equal(cutText({ ...answer, total: 502 }), '501 more are not shown.');
  assert.match(
    cutText({ ...answer, total: 502, known_since: 1_000 * SECOND }),
    /^501 more .* are not listed or counted\.$/,
  );
});

test('alerts that fire only because no report came are counted', () => {
  const answer = { firing: 8, silent: 0, silent_after_s: 5 } as Alerts;
  const rest = 'until a report shows that the rule is false, or the flow expires.';
  assert.equal(silentText(answer), '');
  assert.equal(
    silentText({ ...answer, silent: 3 }),
    `3 of their flows have sent no reports for 5 s or more: they fire ${rest}`,
  );
  assert.match(silentText({ ...answer, silent: 8 }), /^All of their flows have sent no reports /);
  assert.equal(
    silentText({ ...answer, firing: 1, silent: 1 }),
    `Its flow has sent no reports for 5 s or more: it fires ${rest}`,
  );
});

test('an alert leads to the moment, the flow, the queue and the recording', () => {
  const recorded = { since: 999 * SECOND, until: 1_002 * SECOND };
  const links = linksOf({ ...ALERT, recorded });
  const around = { from: '1970-01-01T00:14:40.000Z', to: '1970-01-01T00:18:40.000Z' };
  assert.deepEqual(links, [
    { text: 'The moment', page: 'events', argument: '', query: { ...around, filter: `flow == "${FLOW}"` } },
    { text: 'The flow', page: 'flow', argument: FLOW, query: around },
    {
      text: 'The queue',
      page: 'queues',
      argument: '',
      query: { ...around, at: '103.2/1970-01-01T00:16:35.000Z/1970-01-01T00:16:45.000Z' },
    },
    {
      text: 'The recording',
      page: 'queues',
      argument: '',
      query: { ...around, at: '103.2/1970-01-01T00:16:39.000Z/1970-01-01T00:16:42.000Z' },
    },
  ]);
  assert.deepEqual(
    linksOf({ ...ALERT, node: null, text: null, flow: null }).map(({ text }) => text),
    ['The moment'],
  );
});

test('filters of silences name the rule and the flow', () => {
  const filters = (alert: Alert): string[] => silenceFilters(alert).map(({ filter }) => filter);
  assert.deepEqual(filters({ ...ALERT, rule: 'slow flow' }), [
    `rule == "slow flow" and flow == "${FLOW}"`,
    'rule == "slow flow"',
    `flow == "${FLOW}"`,
  ]);
  assert.deepEqual(
    filters({ ...ALERT, text: null, flow: null }),
    ['rule ~ "deep "'],
    'no text has quotes in it',
  );
});

test('what a rule would have done is a sentence', () => {
  const trial: Trial = {
    fault: null,
    from: 0,
    to: 60 * SECOND,
    times: 12,
    at_most: false,
    flows: 3,
    already: 1,
    column: SECOND,
    counts: [],
    firings: [],
    events: 0,
    notes: [],
  };
  assert.match(
    trialText(trial),
    /^It would have fired 12 times for 3 flows from .* It was already true for 1 flow/,
  );
  assert.match(
    trialText({ ...trial, times: 1, flows: 1, already: 0 }),
    /^It would have fired once for 1 flow from /,
  );
  assert.match(trialText({ ...trial, at_most: true }), /^It would have fired at most 12 times for 3 flows /);
  assert.match(
    trialText({ ...trial, times: 1, flows: 1, at_most: true }),
    /^It would have fired at most once for 1 flow /,
  );
  assert.match(trialText({ ...trial, times: 0, at_most: true }), /^It would not have fired from /);
  const { flow } = ALERT;
  assert.ok(flow);
  const metric = 'hop_latency' as const;
  const firing = { ts: SECOND, until: null, flow, text: FLOW, metric, value: 7, node: 3 };
  const sheet = trialSheet(
    {
      ...trial,
      firings: [firing],
      notes: ['Judged by stored events.'],
    },
    'hops > 2',
  );
  assert.deepEqual(sheet.rows, [[SECOND, null, FLOW, 3, 'hop_latency', 7]]);
  assert.match(
    sheet.cut ?? '',
    /^Rule: hops > 2\. It would have fired 12 times .* The latest 1 of 12 times are listed\. Judged by stored events\.$/,
  );
  assert.equal(trialText({ ...trial, fault: { position: 0, length: 1, message: 'x' } }), '');
});
