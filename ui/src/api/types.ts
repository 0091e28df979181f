/** The JSON of `/api/v1`, as the pages use it. Times are nanoseconds since the epoch. */

export interface FlowKey {
  src: string;
  dst: string;
  sport: number | null;
  dport: number | null;
  proto: number;
}

export type Drops = Record<string, number>;

export interface BudgetStage {
  stage: string;
  /** What is counted; absent, the stage's name says it. */
  unit?: string;
  in: number;
  out: number;
  /** In the stage now: `in = out + drops + queued`. */
  queued?: number;
  drops: Drops;
}

export interface Input {
  listen: string;
  /** How it receives: udp, packet, xdp-generic, xdp-native, xdp-zerocopy, kernel-generic, kernel-native. */
  kind: string;
  up: boolean;
  /** Why it does not receive. */
  message: string | null;
  interface: string | null;
  queues: number;
  /** Faster ways to receive, and why they were not used. */
  tried: { rx_path: string; reason: string }[];
  reopened: number;
  datagrams: number;
  /** Of these, those without a significant change, aggregated in the kernel. */
  decided_in_kernel: number;
  bytes: number;
  kernel_drops: number;
  drops: Drops;
  /** Frames that came by a socket beside the interface's ring. */
  passed: Drops;
  device_drops: number;
}

export interface Source {
  source: string;
  name?: string | null;
  node: number | null;
  hw_id: number | null;
  version: string;
  reports: number;
  lost: number;
  reordered: number;
  duplicated: number;
  restarts: number;
  countable: boolean;
  last_seen: number;
  refused: Drops;
}

export interface TableFill {
  name: string;
  used: number;
  capacity: number;
  evicted: number;
  refused: number;
}

export interface StoreStatus {
  state: string;
  message?: string | null;
  written: number;
  queue: number;
  shed: number;
  last_commit: number | null;
  bytes: number;
}

/** Rates at one time, ns. */
export interface RatesThen {
  ts: number;
  reports: number;
  events: number;
  datagrams: number;
}

export interface Status {
  version: string;
  uptime_s: number;
  now: number;
  rates: { reports: number; events: number; datagrams: number };
  loss_budget: BudgetStage[];
  inputs: Input[];
  sources: Source[];
  tables: TableFill[];
  store: StoreStatus | null;
}

export interface Spread {
  latest: number | null;
  min: number | null;
  max: number | null;
  p50: number | null;
  p99: number | null;
}

export interface Queue {
  /** null: all queues of the node. */
  queue: number | null;
  occupancy: number | null;
  max: number | null;
  unit: string;
}

export interface Node {
  node: number;
  name: string | null;
  reports: number;
  last_seen: number;
  hop_latency: Spread | null;
  queues: Queue[];
  drops: number;
}

export interface Link {
  from: number;
  to: number;
  egress_if: number | null;
  ingress_if: number | null;
  utilization: number | null;
  queue_occupancy: number | null;
  hop_latency: number | null;
  flows: number | null;
  last_seen: number;
}

export interface Flow {
  id: string;
  flow: FlowKey;
  text: string;
  path: (number | null)[];
  flow_latency: number | null;
  basis: string;
  /** How the order of the path is known; absent from older servers. */
  path_basis?: string;
  reports: number;
  first_seen: number;
  last_seen: number;
}

export interface FlowHop {
  node: number | null;
  ingress_if: number | null;
  egress_if: number | null;
  queue: number | null;
  hop_latency: number | null;
  queue_occupancy: number | null;
  link_utilization: number | null;
}

export interface FlowDetail extends Flow {
  hops: FlowHop[];
}

export interface HistoryPoint {
  ts: number;
  flow_latency: number | null;
  hops: { node: number | null; latency: number | null }[];
}

export interface FlowHistory {
  series: HistoryPoint[];
  paths: { ts: number; path: (number | null)[] }[];
}

export interface PathUse {
  path: (number | null)[];
  flows: number;
  reports: number;
}

export interface TelemetryEvent {
  ts: number;
  id: string;
  kind: string;
  metric: string | null;
  flow: FlowKey | null;
  text: string | null;
  node: number | null;
  interface: number | null;
  queue: number | null;
  value: number | null;
  previous: number | null;
  threshold: number | null;
  rule: string | number | null;
  reason: string | number | null;
  basis: string | null;
  path: (number | null)[] | null;
}

export interface Rollup {
  ts: number;
  interval: number;
  metric: string;
  node: number | null;
  interface: number | null;
  queue: number | null;
  flow: string | FlowKey | null;
  count: number;
  min: number;
  max: number;
  sum: number;
  p50: number | null;
  p99: number | null;
}

export type Cell = string | number | boolean | null;

export interface QueryResult {
  columns: string[];
  rows: Cell[][];
  truncated: boolean;
  notes?: string[];
  elapsed_ms: number;
}
