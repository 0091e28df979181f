// A leaf–spine fabric with changing load: not a simulation, only plausible numbers. Time is given in seconds.
import { generator, hex16 } from './random.mjs';

export const LEAVES = [101, 102, 103, 104];
export const SPINES = [201, 202];
const WINDOW = 900;
const KEEP_EVENTS = 4000;

export class Fabric {
  constructor(start) {
    this.random = generator(7);
    this.started = start;
    this.now = start;
    this.flows = this.makeFlows(36);
    this.load = new Map([...LEAVES, ...SPINES].map((node) => [node, 0.2]));
    this.nodes = new Map(
      [...LEAVES, ...SPINES].map((node) => [node, { reports: 0, seen: [], last: 0, drops: 0 }]),
    );
    this.rollups = [];
    this.events = [];
    this.listeners = new Set();
    this.totals = {
      expected: 0,
      lost: 0,
      kernel: 0,
      truncated: 0,
      nested: 0,
      full: 0,
      records: 0,
      shed: 0,
      events: 0,
    };
    this.broken = false;
    this.minutes = new Map();
    this.rate = { reports: 0, events: 0 };
  }

  makeFlows(number) {
    return Array.from({ length: number }, (_, i) => {
      const from = LEAVES[i % 4];
      const to = LEAVES[(i + 1 + (Math.floor(i / 4) % 3)) % 4];
      const proto = i % 3 === 0 ? 17 : 6;
      const key = {
        src: i % 9 === 5 ? `2001:db8:${from}::${(i + 10).toString(16)}` : `10.0.${from - 100}.${10 + i}`,
        dst: i % 9 === 5 ? `2001:db8:${to}::50` : `10.0.${to - 100}.${50 + (i % 5)}`,
        sport: 40000 + i * 37,
        dport: [443, 80, 5432, 9092, 4791][i % 5],
        proto,
      };
      const spine = SPINES[i % SPINES.length];
      const path = [from, spine, to];
      const weight = 80 + Math.floor(this.random() * 600);
      const first = this.now + Math.floor(this.random() * 40);
      return {
        id: hex16(this.random),
        key,
        home: spine,
        path,
        weight,
        reports: 0,
        first,
        last: 0,
        hops: [],
        series: [],
        paths: [],
      };
    });
  }

  /** Advances the time by one second. */
  step() {
    this.now += 1;
    const age = this.now - this.started;
    const before = this.totals.events;
    this.moveLoads(age);
    this.breakAndMend(age);
    let reports = 0;
    for (const flow of this.flows) reports += this.report(flow);
    this.noticeLink();
    this.account(reports, age);
    this.rollUp(reports);
    this.rate = { reports, events: this.totals.events - before };
  }

  moveLoads(age) {
    for (const [node, load] of this.load) {
      const pull = 0.18 + 0.1 * Math.sin(age / 70 + node);
      this.load.set(node, Math.max(0.02, load + (pull - load) * 0.15 + (this.random() - 0.5) * 0.06));
    }
    // A microburst on one spine every two minutes.
    if (age % 120 >= 60 && age % 120 < 66) this.load.set(201, 0.93 + this.random() * 0.06);
  }

  breakAndMend(age) {
    const broken = age % 300 >= 200 && age % 300 < 260;
    if (broken === this.broken) return;
    this.broken = broken;
    for (const flow of this.flows) {
      if (flow.home !== 202 || ![102, 103].includes(flow.path[0])) continue;
      flow.path = [flow.path[0], broken ? 201 : 202, flow.path[2]];
      this.emit({ kind: 'path_change', metric: 'flow_path', flow, path: flow.path, value: 3 });
    }
  }

  report(flow) {
    if (this.now < flow.first) return 0;
    if (flow.reports === 0) this.emit({ kind: 'new', metric: 'flow_path', flow, path: flow.path, value: 3 });
    const hops = flow.path.map((node, i) => this.hop(flow, node, i));
    this.noticeChanges(flow, hops);
    const reports = Math.floor(flow.weight * (0.9 + this.random() * 0.2));
    flow.reports += reports;
    flow.last = this.now;
    flow.hops = hops;
    flow.latency = hops.reduce((sum, hop) => sum + hop.hop_latency, 0) + 1800;
    flow.series.push({
      ts: ns(this.now),
      flow_latency: flow.latency,
      hops: hops.map((h) => ({ node: h.node, latency: h.hop_latency })),
    });
    if (flow.series.length > WINDOW) flow.series.shift();
    const last = flow.paths.at(-1);
    if (!last || last.path.join() !== flow.path.join())
      flow.paths.push({ ts: ns(this.now), path: [...flow.path] });
    return reports;
  }

  hop(flow, node, i) {
    const load = this.load.get(node);
    const latency = Math.round(600 + (900 * load) / Math.max(0.03, 1.02 - load) + this.random() * 250);
    const record = this.nodes.get(node);
    record.reports += flow.weight;
    record.last = this.now;
    record.seen.push(latency);
    const port = (n) => (n > 200 ? n - 200 : n - 100);
    return {
      node,
      ingress_if: i === 0 ? 10 : port(flow.path[i - 1]),
      egress_if: i === 2 ? 11 : port(flow.path[i + 1]),
      queue: 0,
      hop_latency: latency,
      queue_occupancy: Math.round(220 * load ** 3),
      link_utilization: Math.min(1, load * (0.8 + this.random() * 0.2)),
    };
  }

  /** A small event every second, so that the live stream has data. */
  noticeLink() {
    const value = Math.round(1e6 * this.load.get(202));
    const previous = this.link ?? value;
    this.link = value;
    this.emit({
      kind: 'change',
      metric: 'link_utilization',
      node: 202,
      interface: 3,
      value,
      previous,
      threshold: 1000,
    });
  }

  noticeChanges(flow, hops) {
    for (const [i, hop] of hops.entries()) {
      const reported = flow.reported?.[hop.node];
      flow.reported ??= {};
      if (reported === undefined) flow.reported[hop.node] = hop.hop_latency;
      else if (Math.abs(hop.hop_latency - reported) > 2000) {
        this.emit({
          kind: 'change',
          metric: 'hop_latency',
          flow,
          node: hop.node,
          value: hop.hop_latency,
          previous: reported,
          threshold: 2000,
        });
        flow.reported[hop.node] = hop.hop_latency;
      }
      const slow = hop.queue_occupancy > 120;
      if (i === 1 && slow !== Boolean(flow.slow)) {
        flow.slow = slow;
        this.emit({ kind: slow ? 'rule_on' : 'rule_off', flow, node: hop.node, rule: 'deep_queue' });
        const value = hop.queue_occupancy;
        this.emit({
          kind: 'change',
          metric: 'queue_occupancy',
          node: hop.node,
          queue: 0,
          value,
          previous: slow ? 4 : 180,
          threshold: 50,
        });
      }
      if (hop.queue_occupancy > 170 && this.random() < 0.08) {
        this.nodes.get(hop.node).drops += 1;
        this.emit({
          kind: 'drop',
          flow,
          node: hop.node,
          queue: 0,
          interface: hop.egress_if,
          reason: 71,
          reason_name: 'tail_drop',
        });
      }
    }
  }

  account(reports, age) {
    const total = this.totals;
    total.expected += reports;
    total.records += 260;
    if (age % 95 === 0) {
      const lost = 3 + Math.floor(this.random() * 9);
      total.expected += lost;
      total.lost += lost;
      this.emit({ kind: 'loss', node: 103, value: lost });
    }
    if (age % 40 === 0) total.truncated += 1;
    if (age % 130 === 0) total.nested += 2;
    if (age % 210 === 0) total.kernel += 64;
  }

  rollUp(reports) {
    for (const [node, record] of this.nodes) {
      const sorted = record.seen.sort((a, b) => a - b);
      record.seen = [];
      if (sorted.length === 0) continue;
      const at = (part) => sorted[Math.min(sorted.length - 1, Math.floor(part * sorted.length))];
      const spread = { min: sorted[0], max: sorted.at(-1), p50: at(0.5), p99: at(0.99) };
      record.spread = { latest: at(0.5), ...spread };
      const sum = sorted.reduce((a, b) => a + b, 0);
      const ids = { metric: 'hop_latency', node, interface: null, queue: null, flow: null };
      this.rollups.push({ ts: ns(this.now), interval: 1, ...ids, count: sorted.length * 40, sum, ...spread });
    }
    const minute = this.now - (this.now % 60);
    this.minutes.set(minute, (this.minutes.get(minute) ?? 0) + reports);
    const old = ns(this.now - WINDOW);
    while (this.rollups[0]?.ts < old) this.rollups.shift();
  }

  emit({ flow = null, ...fields }) {
    this.totals.events += 1;
    const event = {
      ts: ns(this.now) + Math.floor(this.random() * 9e8),
      id: hex16(this.random),
      metric: null,
      flow: flow?.key ?? null,
      text: flow ? flowText(flow.key) : null,
      node: null,
      interface: null,
      queue: null,
      value: null,
      previous: null,
      threshold: null,
      rule: null,
      reason: null,
      reason_name: null,
      basis: 'measured',
      path: [],
      ...fields,
    };
    this.events.push(event);
    if (this.events.length > KEEP_EVENTS) this.events.shift();
    for (const listener of this.listeners) listener(event);
  }
}

export function ns(seconds) {
  return seconds * 1e9;
}

export function flowText(key) {
  const end = (host, port) => (host.includes(':') ? `[${host}]:${port}` : `${host}:${port}`);
  return `${end(key.src, key.sport)}>${end(key.dst, key.dport)}/${key.proto}`;
}
