// The fabric's state in the shapes of /api/v1.
import { flowText, ns } from './fabric.mjs';
import { portOf } from './queues.mjs';

function input(known) {
  const how = { kind: 'udp', up: true, message: null, interface: null, queues: 0, tried: [], reopened: 0 };
  const counts = { datagrams: 0, bytes: 0, kernel_drops: 0, truncated: 0, receive_buffer: 16777216 };
  return { ...how, ...counts, drops: {}, passed: {}, device_drops: 0, handled_in_kernel: 0, ...known };
}

/** A socket, an interface on a slower receive path, and an interface that was removed. */
function inputs(read, dropped) {
  const half = Math.floor(read / 2);
  const busy = dropped === 0 ? {} : { ring_full: dropped };
  const zero = 'the driver mlx5_core has no free XDP queues; `ethtool -L eth1 combined 8` makes room';
  return [
    input({
      listen: 'xdp://eth1',
      kind: 'xdp-native',
      interface: 'eth1',
      queues: 4,
      tried: [{ rx_path: 'xdp-zerocopy', reason: zero }],
      datagrams: half,
      bytes: half * 304,
      drops: busy,
      passed: { fragment: 12 },
    }),
    input({
      listen: 'xdp://eth2',
      kind: 'xdp-zerocopy',
      up: false,
      message: 'the interface was removed',
      interface: 'eth2',
    }),
    input({ listen: 'udp://0.0.0.0:32766', datagrams: read - half, bytes: (read - half) * 304 }),
  ];
}

export function status(fabric, empty) {
  if (empty) return emptyStatus();
  const t = fabric.totals;
  const received = t.expected - t.lost;
  const read = received - t.kernel;
  const decoded = read - t.truncated - t.nested;
  const stage = (name, into, drops, waiting = 0) => {
    const out = into - Object.values(drops).reduce((a, b) => a + b, 0) - waiting;
    return { stage: name, in: into, out, drops };
  };
  return {
    version: '0.1.0-mock',
    uptime_s: fabric.now - fabric.started,
    now: Date.now() * 1e6,
    rates: { reports: fabric.rate.reports, events: fabric.rate.events, datagrams: fabric.rate.reports },
    loss_budget: [
      stage('network', t.expected, { lost: t.lost }),
      stage('kernel', received, { ring_full: t.kernel }),
      stage('decode', read, { truncated: t.truncated, nested: t.nested }),
      stage('state', decoded, {}),
      stage('queue', t.records, {}, 40),
      stage('store', t.records - 40, {}, 12),
    ],
    inputs: inputs(read, t.kernel),
    sources: sources(fabric),
    sources_total: sources(fabric).length,
    tables: [
      { name: 'flows', used: fabric.flows.length, capacity: 100000, evicted: 0, refused: 0 },
      { name: 'queues', used: 6, capacity: 16384, evicted: 0, refused: 0 },
      { name: 'links', used: 16, capacity: 16384, evicted: 0, refused: 0 },
      { name: 'nodes', used: 6, capacity: 4096, evicted: 0, refused: 0 },
      { name: 'sources', used: 5, capacity: 8, evicted: 0, refused: 0 },
    ],
    store: {
      state: 'Ok',
      written: t.records - 52,
      queue: 12,
      shed: 0,
      last_commit: ns(fabric.now),
      bytes: t.records * 140,
      problems: [],
    },
    workers: [],
  };
}

function emptyStatus() {
  const stages = ['network', 'kernel', 'decode', 'state', 'queue', 'store'];
  return {
    version: '0.1.0-mock',
    uptime_s: 4,
    now: Date.now() * 1e6,
    rates: { reports: 0, events: 0, datagrams: 0 },
    loss_budget: stages.map((stage) => ({ stage, in: 0, out: 0, drops: {} })),
    inputs: [input({ listen: 'udp://0.0.0.0:32766' })],
    sources: [],
    sources_total: 0,
    tables: [{ name: 'flows', used: 0, capacity: 100000, evicted: 0, refused: 0 }],
    store: { state: 'Ok', written: 0, queue: 0, shed: 0, last_commit: null, bytes: 0, problems: [] },
    workers: [],
  };
}

function sources(fabric) {
  const t = fabric.totals;
  const leaf = (node, i) => ({
    source: `192.0.2.${node - 100}`,
    node,
    hw_id: 0,
    version: '2.0',
    reports: Math.floor(t.expected / 5) - i * 1013,
    lost: node === 103 ? t.lost : 0,
    reordered: i * 7,
    duplicated: i === 1 ? 2 : 0,
    restarts: i === 3 ? 1 : 0,
    countable: true,
    last_seen: ns(fabric.now),
    refused: i === 0 ? { truncated: t.truncated } : {},
  });
  const silent = {
    ...leaf(105, 0),
    source: '192.0.2.77',
    node: null,
    hw_id: null,
    version: '0.5',
    countable: false,
    refused: { nested: t.nested },
  };
  return [...[101, 102, 103, 104].map(leaf), silent];
}

export function nodes(fabric) {
  return {
    nodes: [...fabric.nodes].map(([node, record]) => ({
      node,
      name: node > 200 ? `spine-${node - 200}` : `leaf-${node - 100}`,
      reports: record.reports,
      last_seen: ns(record.last),
      hop_latency: record.spread ?? null,
      queues: [
        {
          ...{ queue: 0, interface: portOf(node), unit: 'cells' },
          ...{ occupancy: Math.round(220 * fabric.load.get(node) ** 3), max: 204 },
        },
        ...Array.from({ length: 10 }, (_, port) => ({
          ...{ queue: 1, interface: port + 1, unit: 'cells' },
          ...{ occupancy: 0, max: 12 + port },
        })),
      ],
      drops: record.drops,
      implausible_latencies: 0,
    })),
  };
}

export function links(fabric) {
  const found = new Map();
  for (const flow of fabric.flows) {
    for (let i = 0; i + 1 < flow.hops.length; i += 1) {
      const [a, b] = [flow.hops[i], flow.hops[i + 1]];
      const id = `${a.node}>${b.node}`;
      const known = found.get(id);
      found.set(id, {
        from: a.node,
        to: b.node,
        egress_if: a.egress_if,
        ingress_if: b.ingress_if,
        utilization: a.link_utilization,
        queue_occupancy: a.queue_occupancy,
        hop_latency: a.hop_latency,
        flows: (known?.flows ?? 0) + 1,
        last_seen: ns(flow.last),
      });
    }
  }
  return { links: [...found.values()] };
}

function flowRow(flow) {
  return {
    id: flow.id,
    flow: flow.key,
    text: flowText(flow.key),
    path: flow.path,
    flow_latency: flow.latency ?? null,
    basis: flow.key.proto === 17 ? 'hop_sum' : 'measured',
    path_length: flow.path.length,
    truncated: false,
    reports: flow.reports,
    first_seen: ns(flow.first),
    last_seen: ns(flow.last),
  };
}

const ORDERS = {
  latency: (a, b) => (b.flow_latency ?? 0) - (a.flow_latency ?? 0),
  reports: (a, b) => b.reports - a.reports,
  last_seen: (a, b) => b.last_seen - a.last_seen,
};

/** The span of a question, ns, in whole minutes; null: now. */
function spanOf(query) {
  if (!query.has('from')) return null;
  const [from, to] = ['from', 'to'].map((name) => Number(query.get(name)));
  return { from: Math.floor(from / 6e10) * 6e10, to: Math.ceil(to / 6e10) * 6e10 };
}

/** Events are as they were; of reports the mock knows only how many come now. */
export function activity(fabric, query) {
  const now = Date.now() * 1e6;
  const { from, to } = spanOf(query) ?? { from: now - 900e9, to: now };
  const columns = Number(query.get('columns') ?? 180);
  const column = Math.max(1, Math.ceil((to - from) / 1e9 / columns)) * 1e9;
  const points = [];
  const kinds = {};
  for (let ts = from; ts < to; ts += column) {
    if (ts + column <= ns(fabric.started) || ts > ns(fabric.now)) continue;
    const events = fabric.events.filter((event) => event.ts >= ts && event.ts < ts + column);
    for (const { kind } of events) kinds[kind] = (kinds[kind] ?? 0) + 1;
    points.push({
      ts,
      reports: Math.round((fabric.rate.reports * column) / 1e9),
      events: events.length,
      lost: 0,
    });
  }
  const known = Math.min(to, ns(fabric.now));
  return { from, to, column, reports_to: known, events_to: known, points, kinds };
}

const UNKNOWN = {
  ingress_if: null,
  egress_if: null,
  queue: null,
  queue_occupancy: null,
  link_utilization: null,
};

/** A flow of the first five minutes, which has expired long ago: only a span of that time has it. */
function expired(fabric) {
  const key = { src: '10.0.9.9', dst: '10.0.3.50', sport: 9999, dport: 443, proto: 6 };
  const [first, last] = [fabric.started, fabric.started + 300];
  const path = [101, 201, 103];
  return { id: '00000000000000ee', key, path, latency: 42_000, reports: 300, first, last };
}

/** A flow as it was in a span; null: as it is. */
function rowIn(flow, span) {
  const row = flowRow(flow);
  if (span === null || !flow.series) return row;
  const points = flow.series.filter(({ ts }) => ts >= span.from && ts < span.to);
  const values = points.map(({ flow_latency }) => flow_latency);
  const last_seen = Math.min(row.last_seen, span.to);
  return { ...row, flow_latency: Math.max(...values), reports: points.length * flow.weight, last_seen };
}

export function flows(fabric, query) {
  const wanted = query.get('filter') ?? '';
  const span = spanOf(query);
  const isThere = ({ first, last }) => span === null || (ns(first) < span.to && ns(last) >= span.from);
  const all = span === null ? fabric.flows : [...fabric.flows, expired(fabric)];
  const seen = all.filter((flow) => flow.reports > 0 && isThere(flow)).map((flow) => rowIn(flow, span));
  const fitting = seen.filter((row) => row.text.includes(wanted));
  fitting.sort(ORDERS[query.get('sort') ?? 'last_seen'] ?? ORDERS.last_seen);
  return { flows: fitting.slice(0, Number(query.get('limit') ?? 100)), total: fitting.length };
}

function hopOf(hop) {
  return {
    ...hop,
    queue_congestion: null,
    latest_queue_occupancy: hop.queue_occupancy,
    latest_queue_age_s: 0,
    latest_link_utilization: hop.link_utilization,
    latest_link_age_s: 0,
  };
}

export function flow(fabric, id, query) {
  const gone = expired(fabric);
  if (query.has('from') && [gone.id, flowText(gone.key)].includes(id))
    return {
      ...flowRow(gone),
      hops: gone.path.map((node) => hopOf({ ...UNKNOWN, node, hop_latency: 9_000 })),
    };
  const found = fabric.flows.find((candidate) => [candidate.id, flowText(candidate.key)].includes(id));
  return found ? { ...flowRow(found), hops: found.hops.map(hopOf) } : null;
}

export function history(fabric, id) {
  const gone = expired(fabric);
  if ([gone.id, flowText(gone.key)].includes(id)) return { series: [], paths: [] };
  const found = fabric.flows.find((candidate) => [candidate.id, flowText(candidate.key)].includes(id));
  return found ? { series: found.series, paths: found.paths } : null;
}

export function paths(fabric) {
  const found = new Map();
  for (const { path, reports } of fabric.flows) {
    const known = found.get(path.join()) ?? { path, flows: 0, reports: 0 };
    found.set(path.join(), { path, flows: known.flows + 1, reports: known.reports + reports });
  }
  return { paths: [...found.values()] };
}

export function matches(event, query) {
  const { kind, node, metric, flow } = Object.fromEntries(query);
  const kinds = kind ? kind.split(',') : [];
  if (kinds.length > 0 && !kinds.includes(event.kind)) return false;
  if (node && String(event.node) !== node && !event.path.map(String).includes(node)) return false;
  if (metric && event.metric !== metric) return false;
  return !flow || (event.text ?? '').includes(flow);
}

export function events(fabric, query) {
  const before = Number(query.get('before') ?? Infinity);
  const [from, to] = [Number(query.get('from') ?? 0), Number(query.get('to') ?? Infinity)];
  const isThere = ({ ts }) => ts < before && ts >= from && ts <= to;
  const fitting = fabric.events.filter((event) => isThere(event) && matches(event, query));
  fitting.sort((a, b) => b.ts - a.ts);
  const first = Number(query.get('after') ?? 0);
  const end = first + Number(query.get('limit') ?? 100);
  return { events: fitting.slice(first, end), next: end < fitting.length ? String(end) : null };
}

export function rollups(fabric, query) {
  const from = Number(query.get('from') ?? 0);
  const wanted = { metric: query.get('metric'), node: query.get('node') };
  const matches = (rollup) =>
    rollup.ts >= from &&
    (!wanted.metric || rollup.metric === wanted.metric) &&
    (!wanted.node || String(rollup.node) === wanted.node);
  return { rollups: fabric.rollups.filter(matches) };
}
