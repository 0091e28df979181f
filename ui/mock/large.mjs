// A made-up fat tree of 1,000 nodes and 8,000 links (both directions): 40 pods of 20 leaves and 4 spines, 40 cores.
import { generator, hex16 } from './random.mjs';

const PODS = 40;
const LEAVES = 20;
const SPINES = 4;
const CORES = 40;
const UPLINKS = 5;
/** The pods in which something is wrong, and the leaf. */
export const HOT = { pod: 17, leaf: 3 };

const leafId = (pod, leaf) => 1000 + pod * 100 + leaf + 1;
const spineId = (pod, spine) => 1000 + pod * 100 + 50 + spine + 1;
const coreId = (core) => 100 + core + 1;
const coreOf = (pod, spine, i) => coreId(spine * 10 + ((pod + i) % 10));

export class Large {
  constructor() {
    const random = generator(11);
    this.names = new Map();
    const pairs = [];
    for (let core = 0; core < CORES; core += 1) this.names.set(coreId(core), `core${core + 1}`);
    for (let pod = 0; pod < PODS; pod += 1) {
      for (let leaf = 0; leaf < LEAVES; leaf += 1)
        this.names.set(leafId(pod, leaf), `pod${pod + 1}-leaf${leaf + 1}`);
      for (let spine = 0; spine < SPINES; spine += 1) {
        this.names.set(spineId(pod, spine), `pod${pod + 1}-spine${spine + 1}`);
        for (let leaf = 0; leaf < LEAVES; leaf += 1) pairs.push([leafId(pod, leaf), spineId(pod, spine)]);
        for (let i = 0; i < UPLINKS; i += 1) pairs.push([spineId(pod, spine), coreOf(pod, spine, i)]);
      }
    }
    this.hot = leafId(HOT.pod - 1, HOT.leaf - 1);
    this.nodes = [...this.names].map(([node, name]) => nodeRow(node, name, this.hot, random));
    this.links = pairs
      .flatMap(([a, b]) => [
        [a, b],
        [b, a],
      ])
      .map(([from, to]) => linkRow(from, to, this.hot, random));
    this.flows = Array.from({ length: 2000 }, (_, i) => flowRow(i, random));
  }

  paths() {
    return this.flows.map(({ path }) => ({ path, flows: 1, reports: 100 }));
  }
}

const NOW = 1_795_000_000e9;

function nodeRow(node, name, hot, random) {
  const worst = node === hot ? 6e6 : 2_000 + random() * 60_000;
  return {
    node,
    name,
    reports: 1000,
    last_seen: NOW,
    hop_latency: { latest: worst / 2, min: 500, max: worst, p50: worst / 3, p99: worst },
    queues: [
      {
        ...{ queue: 0, interface: null, unit: 'cells' },
        ...{ occupancy: 3, max: node === hot ? 950 : Math.floor(random() * 40) },
      },
    ],
    drops: 0,
    implausible_latencies: 0,
  };
}

function linkRow(from, to, hot, random) {
  return {
    from,
    to,
    egress_if: to % 64,
    ingress_if: from % 64,
    utilization: from === hot ? 0.98 : random() * 0.6,
    queue_occupancy: from === hot ? 800 : Math.floor(random() * 30),
    hop_latency: from === hot ? 5e6 : 1_000 + random() * 50_000,
    flows: 1 + Math.floor(random() * 40),
    last_seen: NOW,
  };
}

function flowRow(i, random) {
  const [a, b] = [i % PODS, Math.floor(random() * PODS)];
  const [from, to] = [(i * 7) % LEAVES, Math.floor(random() * LEAVES)];
  const spine = Math.floor(random() * SPINES);
  const up = Math.floor(random() * UPLINKS);
  const path =
    a === b
      ? [leafId(a, from), spineId(a, spine), leafId(a, (from + 1) % LEAVES)]
      : [leafId(a, from), spineId(a, spine), coreOf(a, spine, up), spineId(b, spine), leafId(b, to)];
  const src = `10.${a}.${from}.${1 + (i % 3)}`;
  const dst = `10.${b}.${a === b ? (from + 1) % LEAVES : to}.${1 + (i % 2)}`;
  const key = { src, dst, sport: 40_000 + i, dport: 443, proto: 6 };
  return {
    id: hex16(random),
    flow: key,
    text: `${src}:${key.sport}>${dst}:443/6`,
    path,
    flow_latency: 20_000 + i * 10,
    basis: 'measured',
    path_length: path.length,
    truncated: false,
    reports: 100,
    first_seen: NOW - 60e9,
    last_seen: NOW - i * 1e6,
  };
}

/** The answer at a path; undefined: as of the small fabric. */
export function largeAnswer(large, path, query) {
  const limit = Number(query.get('limit') ?? 100);
  if (path === 'nodes') return { nodes: large.nodes.slice(0, limit), next: null };
  if (path === 'links') return { links: large.links.slice(0, limit), next: null };
  if (path === 'paths') return { paths: large.paths().slice(0, limit), next: null };
  if (path === 'flows') {
    const wanted = query.get('filter') ?? '';
    const fitting = large.flows.filter(({ text }) => text.includes(wanted));
    if (query.get('sort') === 'latency') fitting.sort((a, b) => b.flow_latency - a.flow_latency);
    return { flows: fitting.slice(0, limit), total: fitting.length, next: null, as_of: NOW };
  }
  const id = /^flows\/(\w+)$/.exec(path)?.[1];
  return id ? large.flows.find((flow) => flow.id === id) : undefined;
}
