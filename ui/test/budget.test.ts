import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { BudgetStage, Source } from '../src/api/types';
import { stageView, Steady, totals, verdict } from '../src/model/budget';

const STAGES = ['network', 'kernel', 'decode', 'state', 'queue', 'store'] as const;

/** All stages with 100 in and 100 out, but for what is given. */
function budget(changes: Record<string, Partial<BudgetStage>> = {}): BudgetStage[] {
  return STAGES.map((stage) => ({ stage, in: 100, out: 100, drops: {}, evidence: null, ...changes[stage] }));
}

function source(countable: boolean, mixed = false): Source {
  const counts = { reports: 100, lost: 0, unconfirmed: 0, reordered: 0, duplicated: 0, restarts: 0 };
  return {
    source: '192.0.2.1',
    name: null,
    node: 1,
    hw_id: 0,
    version: '2.0',
    ...counts,
    countable,
    mixed,
    last_seen: 1,
    refused: {},
  };
}

function judge(
  changes: Record<string, Partial<BudgetStage>>,
  recent = { dropped: 0, lost: 0, seconds: 60 },
  sources: Source[] = [source(true)],
) {
  return verdict(budget(changes).map(stageView), sources, recent);
}

test('the headline without losses', () => {
  assert.deepEqual(judge({}), { tone: 'ok', headline: 'Everything accounted for: nothing lost', detail: '' });
});

test('a source that cannot be counted qualifies it', () => {
  const { tone, detail } = judge({}, undefined, [source(true), source(false)]);
  assert.equal(tone, 'ok');
  assert.equal(detail, 'Losses of 1 source are not countable: the sequence number does not advance.');
});

test('a source with one report, or without a readable one, is not called constant', () => {
  const sources = [0, 1].map((reports) => ({ ...source(false), reports }));
  assert.equal(judge({}, undefined, sources).detail, '');
});

test('a source of several nodes that cannot be counted qualifies it', () => {
  const { detail } = judge({}, undefined, [source(true), source(false, true)]);
  assert.equal(detail, 'Losses of 1 source are not countable: several nodes send from one address.');
});

test('a loss shows its number, stage, reason, and recent losses', () => {
  const lost = {
    network: { out: 97, drops: { lost: 3 } },
    queue: { out: 99, drops: { queue_full: 1, other: 0 } },
  };
  assert.deepEqual(judge(lost, { dropped: 2, lost: 1, seconds: 12 }), {
    tone: 'bad',
    headline: '3 reports lost in the network, 1 record shed at the queue',
    detail: 'Network: lost 3; Queue: queue full 1. 2 in the last 12 s.',
  });
  assert.equal(judge(lost).tone, 'warn');
});

test('missing reports without enough evidence are stated, and not counted', () => {
  const evidence = { unconfirmed: 5000, datagrams: 3 };
  const found = judge({ network: { in: 103, drops: { lost: 3 }, evidence } });
  assert.equal(found.headline, '3 reports lost in the network');
  assert.match(
    found.detail,
    /5.000 more reports missing, not confirmed as lost: the streams have only 3 datagrams\./,
  );
  assert.deepEqual(totals(budget({ network: { evidence } })), { dropped: 0, lost: 0 });
  assert.equal(judge({ network: { evidence } }).tone, 'warn');
});

test('what another system does not take is a warning, and not lost', () => {
  const stage: BudgetStage = {
    stage: 'export',
    unit: 'records',
    in: 9,
    out: 4,
    queued: 0,
    drops: { rejected: 5 },
    evidence: null,
  };
  const found = verdict([stageView(stage)], [source(true)], { dropped: 5, lost: 0, seconds: 60 });
  assert.equal(found.tone, 'warn');
  assert.equal(found.headline, '5 records not taken while exporting');
  assert.deepEqual(totals([stage]), { dropped: 5, lost: 0 });
});

test('refused reports alone are a warning', () => {
  const found = judge({ decode: { out: 98, drops: { truncated: 2 } } }, { dropped: 2, lost: 0, seconds: 60 });
  assert.equal(found.tone, 'warn');
  assert.equal(found.headline, '2 datagrams refused while decoding');
  assert.equal(found.detail, '2 in the last minute.');
});

test('nothing in means nothing to judge', () => {
  const nothing = Object.fromEntries(STAGES.map((stage) => [stage, { in: 0, out: 0 }]));
  assert.equal(judge(nothing).headline, 'Nothing received yet');
});

test('counters that disagree briefly are not reported', () => {
  const steady = new Steady();
  const settle = (out: number): number =>
    steady.settle(stageView({ stage: 'state', in: 100, out, drops: {} })).unexplained;
  assert.deepEqual([101, 100, 102, 102, 102, 100].map(settle), [0, 0, 0, 0, -2, 0]);
});

test('the unit and the queued number come from the server if present', () => {
  const view = stageView({
    stage: 'decode',
    unit: 'datagrams',
    in: 100,
    out: 90,
    queued: 4,
    drops: { nested: 3 },
  });
  assert.deepEqual([view.input, view.output, view.queued, view.unexplained], ['datagram', 'datagram', 4, 3]);
});

test('a stage with more output than input is a bug of hopwise', () => {
  const found = judge({ state: { out: 105 } });
  assert.equal(found.tone, 'bad');
  assert.equal(found.headline, 'The counters of stage state are unbalanced by 5');
});

test('the rest in a stage is queued; one datagram can hold several reports', () => {
  assert.equal(stageView({ stage: 'queue', in: 100, out: 90, drops: { shed: 4 } }).queued, 6);
  assert.equal(stageView({ stage: 'decode', in: 100, out: 250, drops: {} }).queued, 0);
});

test('drops are summed, the largest first', () => {
  const view = stageView({
    stage: 'decode',
    in: 100,
    out: 90,
    drops: { truncated: 3, nested: 7, unknown_version: 0 },
  });
  assert.deepEqual(view.drops, [
    { reason: 'nested', count: 7 },
    { reason: 'truncated', count: 3 },
  ]);
  assert.equal(view.dropped, 10);
  const found = totals(budget({ network: { drops: { lost: 3 } }, decode: { drops: { nested: 2 } } }));
  assert.deepEqual(found, { dropped: 5, lost: 3 });
});
