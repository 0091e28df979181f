import assert from 'node:assert/strict';
import { test } from 'node:test';
import * as ofFleet from '../src/model/fleet-sql';
// A test of the program executes these in ClickHouse's engine, and compares their rows with what the API of a console answers.
import executed from './fleet-sql.json';

const SPAN = { from: '1700000000000000000', to: '1700000060000000000' };
const fleet = { prefix: '', pairs: [['c1', 'c2']] };

test('the statements of a console are those that are executed in ClickHouse by another test', () => {
  const made = {
    events: ofFleet.eventsSql(fleet, {
      ...SPAN,
      kinds: ['change', 'new'],
      metric: 'hop_latency',
      limit: 9999,
    }),
    kinds: ofFleet.kindsSql(fleet, SPAN),
    rates: ofFleet.eventRatesSql(fleet, SPAN, 60_000_000_000),
    flows: ofFleet.slowestFlowsSql(fleet, SPAN, 50),
    heat: ofFleet.heatSql(fleet, SPAN, {
      metric: 'hop_latency',
      interval: 60,
      column: 60_000_000_000,
      rows: 3,
    }),
  };
  assert.deepEqual(made, executed);
});

test('a text stays a text in ClickHouse, and tables have their prefix', () => {
  const sql = ofFleet.eventsSql({ prefix: 'hw_', pairs: [] }, { flow: "a\\'b", node: '7', limit: 3 });
  assert.match(sql, /FROM hw_events\n    WHERE node = 7 AND flow = 'a\\\\''b'\n/);
  const flows = ofFleet.slowestFlowsSql({ prefix: 'hw_', pairs: [] }, SPAN, 3);
  assert.match(flows, /toString\(collector\) AS whose[^]*FROM hw_rollups AS piece FINAL/);
});

test('events with one id are copies only if at most ten seconds are between them', () => {
  const statements = [ofFleet.eventsSql(fleet, { limit: 3 }), ofFleet.kindsSql(fleet, SPAN)];
  for (const sql of statements) {
    assert.match(
      sql,
      /PARTITION BY id, nth ORDER BY ts [^]*next = 0 OR next > toUnixTimestamp64Nano\(ts\) \+ 10000000000\)/,
    );
    assert.doesNotMatch(sql, /LIMIT 1 BY|uniqExact/);
  }
});
