// Queues over time, and one burst whose culprit is known: for every question about leaf 103.
import { LEAVES, SPINES } from './fabric.mjs';
import { generator } from './random.mjs';

const SECOND = 1e9;
/** The egress interface of the queue of each node. */
export const portOf = (node) => (LEAVES.includes(node) ? 11 : 3);
export const CULPRIT = '10.0.1.7:7001>10.0.3.50:9000/17';

export function heat(query) {
  const metric = query.get('metric') ?? 'queue_occupancy';
  const [from, to] = ['from', 'to'].map((name) => Number(query.get(name)));
  const columns = Number(query.get('columns') ?? 180);
  const column = Math.max(1, Math.ceil((to - from) / columns / SECOND)) * SECOND;
  const first = Math.floor(from / column) * column;
  const end = Math.ceil(to / column) * column;
  const random = generator(5);
  const hasQueue = metric.startsWith('queue');
  const rows = [...LEAVES, ...SPINES].map((node) => {
    const values = Array.from({ length: (end - first) / column }, (_, i) => {
      const time = (first + i * column) / SECOND;
      const isBurst = node === 103 && time % 60 < column / SECOND;
      if (node === 202 && i % 9 === 4) return null;
      return Math.round((isBurst ? 90_000 : 900) * (0.6 + random()));
    });
    const worst = Math.max(...values.map((value) => value ?? 0));
    const port = hasQueue ? portOf(node) : null;
    return { node, interface: port, queue: hasQueue ? 0 : null, worst, count: values.length, values };
  });
  rows.sort((a, b) => b.worst - a.worst);
  const shape = { metric, from: first, to: end, column, interval: 1 };
  return { ...shape, rows, total: rows.length, truncated: false };
}

export function burst(node, query) {
  const [queue, port] = ['queue', 'interface'].map((name) =>
    query.get(name) === null ? null : Number(query.get(name)),
  );
  const place = { node, queue, interface: port };
  const from = Number(query.get('from'));
  const nothing = {
    peak: null,
    occupancy: null,
    begun: null,
    rise: 0,
    measured: null,
    reports: 0,
    truncated: false,
  };
  const lists = { recordings: [], flows: [], total_flows: 0, packets: [], drops: [], changes: [] };
  if (node !== 103 || (port !== null && port !== portOf(node))) return { ...place, ...nothing, ...lists };
  const begun = from + 2e8;
  const peak = begun + 4e6;
  const packets = Array.from({ length: 120 }, (_, i) => ({
    ts: begun - 2e6 + i * 1e5,
    flow: i % 4 === 3 ? 1 : 0,
    occupancy: i < 20 ? 300 : i < 60 ? (i - 20) * 2500 : Math.max(300, (100 - i) * 2500),
    latency: 20_000 + i * 1000,
  }));
  const flow = (text, src, dst, sport, dport) => ({ flow: { src, dst, sport, dport, proto: 17 }, text });
  const times = { longest: 3e6, waited: 9e7, first: begun, last: peak + 1e6 };
  const flows = [
    {
      ...flow(CULPRIT, '10.0.1.7', '10.0.3.50', 7001, 9000),
      rise: 96,
      reports: 100,
      ...times,
      path: [101, 201, 103],
    },
    {
      ...flow('10.0.2.9:41000>10.0.3.50:443/17', '10.0.2.9', '10.0.3.50', 41000, 443),
      ...{ rise: 4, reports: 20, ...times, path: [102, 202, 103] },
    },
  ];
  const trigger = {
    ts: peak,
    id: '00000000000000aa',
    since: begun - 5e8,
    until: peak + 5e8,
    kind: 'rule_on',
    metric: null,
  };
  const subject = { flow: null, ...place, value: null, rule: 'deep queue' };
  const recordings = [{ ...trigger, ...subject, reports: 120, every: 1, late: false }];
  const drops = [{ reason: 71, name: 'queue_full', count: 12 }];
  const known = {
    peak,
    occupancy: 100_000,
    measured: 100_000,
    begun,
    rise: 100,
    reports: 120,
    truncated: false,
  };
  return { ...place, ...known, ...lists, recordings, flows, total_flows: 2, packets, drops };
}
