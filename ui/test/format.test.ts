import assert from 'node:assert/strict';
import { test } from 'node:test';
import * as f from '../src/lib/format';

const table = (rows: [string, string][]): void => {
  for (const [got, wanted] of rows) assert.equal(got, wanted);
};

test('durations take the unit in which they are readable', () => {
  table([
    [f.duration(0), '0 ns'],
    [f.duration(850), '850 ns'],
    [f.duration(999.6), '1 µs'],
    [f.duration(1200), '1.2 µs'],
    [f.duration(48_000), '48 µs'],
    [f.duration(1_234_567), '1.23 ms'],
    [f.duration(2.5e9), '2.5 s'],
    [f.duration(-1500), '-1.5 µs'],
    [f.duration(null), '–'],
    [f.duration(undefined), '–'],
    [f.duration(Number.NaN), '–'],
  ]);
});

test('counts take SI prefixes and never read 1000 of a smaller one', () => {
  table([
    [f.count(0), '0'],
    [f.count(950), '950'],
    [f.count(999.7), '1 k'],
    [f.count(999_700), '1 M'],
    [f.count(12_433), '12.4 k'],
    [f.count(3_100_000), '3.1 M'],
    [f.count(0.25), '0.25'],
    [f.count(null), '–'],
  ]);
});

test('exact counts are grouped and keep every digit', () => {
  table([
    [f.exact(7), '7'],
    [f.exact(1234), '1\u202f234'],
    [f.exact(10_956_034), '10\u202f956\u202f034'],
  ]);
});

test('bytes', () => {
  table([
    [f.bytes(0), '0 B'],
    [f.bytes(1023), '1023 B'],
    [f.bytes(1536), '1.5 KiB'],
    [f.bytes(3_330_537_664), '3.1 GiB'],
  ]);
});

test('a small loss never reads as none', () => {
  table([
    [f.percent(0), '0 %'],
    [f.percent(0.5), '50 %'],
    [f.percent(1), '100 %'],
    [f.percent(0.000062), '0.006 %'],
    [f.percent(62 / 1e8), '0.00006 %'],
  ]);
});

test('times ago', () => {
  const now = 1_795_296_688e9;
  table([
    [f.ago(now, now), 'now'],
    [f.ago(now - 42e9, now), '42 s ago'],
    [f.ago(now - 59.7e9, now), '1 min ago'],
    [f.ago(now - 7 * 60e9, now), '7 min ago'],
    [f.ago(now - 12_000e9, now), '3 h 20 min ago'],
    [f.ago(now - 200_000e9, now), '2 d 7 h ago'],
    [f.ago(0, now), 'never'],
    [f.ago(null, now), 'never'],
  ]);
});

test('metric values have the unit of their metric', () => {
  table([
    [f.metricValue('hop_latency', 1200), '1.2 µs'],
    [f.metricValue('queue_occupancy', 1200), '1.2 k'],
    [f.metricValue('link_utilization', 410_000), '41 %'],
    [f.metricValue(null, 3), '3'],
  ]);
});

test('flows and paths', () => {
  const flow = { src: '10.0.1.5', dst: '10.0.3.9', sport: 41000, dport: 443, proto: 6 };
  table([
    [f.flowName(flow), '10.0.1.5:41000 → 10.0.3.9:443 TCP'],
    [f.flowName({ ...flow, src: '2001:db8::1', proto: 47 }), '[2001:db8::1]:41000 → 10.0.3.9:443 proto 47'],
    [f.flowName({ ...flow, sport: null, dport: null, proto: 1 }), '10.0.1.5 → 10.0.3.9 ICMP'],
    [f.pathText([101, null, 102]), '101 › ? › 102'],
    [f.pathText([]), '–'],
  ]);
});

test('a time has its day where the time of day does not say it', () => {
  const at = new Date(2026, 10, 26, 21, 4, 7, 123).getTime() * 1e6;
  assert.equal(f.timeWithin(at, 900e9), '21:04:07');
  assert.equal(f.timeWithin(at, 86_400e9), '11-26 21:04:07');
});
