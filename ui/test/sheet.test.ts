import assert from 'node:assert/strict';
import { test } from 'node:test';
import { fileName, seriesSheet, sheetCsv, utcTime } from '../src/lib/sheet';

test('times are UTC with microseconds, and units stand in the header', () => {
  const sheet = {
    columns: [{ name: 'seen', time: true }, { name: 'flow' }, { name: 'latency', unit: 'ns' }],
    rows: [
      [1_767_225_599_999_999_900, '=cmd()', 1200],
      [null, '10.0.0.1:1>10.0.0.2:2/6', null],
    ],
  };
  assert.equal(
    sheetCsv(sheet),
    "seen (UTC),flow,latency (ns)\r\n2026-01-01T00:00:00.000000Z,'=cmd(),1200\r\n,10.0.0.1:1>10.0.0.2:2/6,\r\n",
  );
  assert.equal(utcTime(1_767_225_600_123_456_000), '2026-01-01T00:00:00.123456Z');
  assert.equal(utcTime(0), '1970-01-01T00:00:00.000000Z');
});

test('the last row of a file says what was cut, and has as many fields as the others', () => {
  const columns = [{ name: 'flow' }, { name: 'reports' }];
  const text = sheetCsv({ columns, rows: [['a', 1]], cut: 'the first 1 of 2,345 flows' });
  assert.equal(text, 'flow,reports\r\na,1\r\n"# the first 1 of 2,345 flows",\r\n');
});

test('a name says page, title and times, and is a file name everywhere', () => {
  const at = [Date.UTC(2026, 10, 26, 3, 10), Date.UTC(2026, 10, 26, 3, 20, 7)];
  assert.equal(
    fileName('queues', 'Queues over time', at, 'csv'),
    'hopwise_queues_queues-over-time_20261126T031000Z_20261126T032007Z.csv',
  );
  assert.equal(fileName('events', 'Events', [], 'png'), 'hopwise_events.png');
  assert.equal(fileName('flow', '../../Flow: 10.0.0.1 → é\n', [], 'csv'), 'hopwise_flow_flow-10-0-0-1-e.csv');
});

test('a chart is a table with its times', () => {
  const sheet = seriesSheet([1, 2.5], [{ name: 'leaf1', values: [3, null] }], 'ns');
  assert.equal(
    sheetCsv(sheet),
    'time (UTC),leaf1 (ns)\r\n1970-01-01T00:00:01.000000Z,3\r\n1970-01-01T00:00:02.500000Z,\r\n',
  );
});
