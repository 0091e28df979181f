// Generated from the types of the API by `make docs`; do not edit.

/** Counters: `connections = accepted + refused + pending`. */
export type AdmissionView = {
  accepted: number;
  adds_up: boolean;
  connections: number;
  pending: number;
  refused: NamedCounts;
  /** Whether translators must prove that they know a secret. */
  secret: boolean;
};

/** `/api/v1/aggregator`. */
export type Aggregator = {
  adds_up: boolean;
  bytes: number;
  cut: number;
  datagrams: number;
  forward: Array<AggregatorForward>;
  interop: boolean;
  kernel_drops: number;
  kind: string;
  listen: string;
  missing_values: number;
  nodes: Array<AggregatorNode>;
  nodes_full: number;
  occupied: number;
  pending: number;
  postcards: number;
  r: number;
  refused: NamedCounts;
  registers: number;
  reports: number;
  sent: Record<string, AggregatorSent>;
  unreadable: NamedCounts;
};

/** A destination. */
export type AggregatorForward = {
  bytes: number;
  datagrams: number;
  failed: number;
  no_buffers: number;
  to: string;
};

/** Sequence numbers of a node's postcards. */
export type AggregatorNode = {
  duplicated: number;
  hw_id: number;
  late: number;
  lost: number;
  node: number;
  numbered: number;
  restarts: number;
};

/** What was sent for one cause. */
export type AggregatorSent = {
  datagrams: number;
  postcards: number;
};

/** Result of the store calculator. */
export type Calculation = {
  /** Share of keys whose copies differ. */
  ambiguous: number;
  /** Share of all keys that are answered. */
  answered: number;
  /** The result for each number of copies. */
  by_copies: Array<CalculationChoice>;
  /** Bytes of memory. */
  bytes: number;
  /** Copies of each key. */
  copies: number;
  /** Share of keys that are answered as unknown. */
  empty: number;
  /** Probability that a key that was never reported is answered. */
  false_answer: number;
  /** Keys. */
  keys: number;
  /** Keys per slot. */
  load: number;
  /** Share of slots that are written at the end. */
  occupied: number;
  /** Probability that the oldest key is answered. */
  oldest: number;
  /** Slots. */
  slots: number;
  /** Share of keys with a wrong answer. */
  wrong: number;
};

/** Result for one number of copies. */
export type CalculationChoice = {
  /** Share of all keys that are answered. */
  answered: number;
  /** Copies. */
  copies: number;
  /** Probability that the oldest key is answered. */
  oldest: number;
};

/** How much was counted. */
export type CountAnswer = {
  /** Which collector was asked, where a map chose one. */
  collector?: string | null;
  /** ... with this probability. */
  confidence: number;
  /** Counters that were read. */
  copies: number;
  /** The estimate is too large by no more than this ... */
  error: number;
  /** Never too small. */
  estimate: number;
  /** The key. */
  key: string;
  /** The store's name. */
  store: string;
  /** Everything that was counted, under all keys. */
  total: number;
};

export type Error = {
  error: string;
};

/** An event. Values are in the unit of the metric. */
export type Event = {
  /** How the value was obtained. */
  basis: "measured" | "hop_sum" | "corrected" | "unsynchronised" | "hop_limit" | "stamps" | "topology";
  /** The flow. */
  flow: Flow | null;
  /** Record id, derived from the content: 16 hexadecimal digits. */
  id: string;
  /** Interface id. */
  interface: number | null;
  /** What happened. */
  kind: "new" | "change" | "path_change" | "path_loop" | "rule_on" | "rule_off" | "drop" | "loss" | "expired" | "hop_limit" | "mtu" | "latest";
  /** The metric that changed. */
  metric: "flow_path" | "flow_latency" | "hop_latency" | "queue_occupancy" | "queue_congestion" | "link_utilization" | null;
  /** Node id. */
  node: number | null;
  /** Node ids in forwarding order; null where a node id is unavailable. */
  path: Array<number | null>;
  /** Value reported before. */
  previous: number | null;
  /** Queue id. */
  queue: number | null;
  /** Drop reason, the code of the device. */
  reason: number | null;
  /** Name of the reason, where the profiles agree on one. */
  reason_name: string | null;
  /** Rule that became true or false. */
  rule: string | null;
  /** The flow as text. */
  text: string | null;
  /** Threshold that was passed. */
  threshold: number | null;
  /** Receive time, nanoseconds since the Unix epoch. */
  ts: number;
  /** New value, in the unit of the metric. */
  value: number | null;
};

/** `/events`. */
export type Events = {
  /** Events, newest first. */
  events: Array<Event>;
};

/** What a store that is so full can be expected to answer. */
export type ExpectedAnswers = {
  /** The share of all keys that are answered. */
  answered: number;
  /** Copies of every key. */
  copies: number;
  /** Keys per slot. */
  load: number;
};

/** A 5-tuple. When only the Flow ID is known, `src` holds it (`flow-id:0x0000f10a`) and `dst` is empty. */
export type Flow = {
  /** Destination port; null where the packet had none. */
  dport: number | null;
  /** Destination address. */
  dst: string;
  /** IP protocol number. */
  proto: number;
  /** Source port; null where the packet had none. */
  sport: number | null;
  /** Source address, or the Flow ID. */
  src: string;
};

/** A flow with its hops in forwarding order. */
export type FlowDetail = {
  /** How the latency was obtained. */
  basis: "measured" | "hop_sum" | "corrected" | "unsynchronised" | "hop_limit" | "stamps" | "topology";
  /** Receive time of the first report, nanoseconds since the Unix epoch. */
  first_seen: number;
  /** The 5-tuple. */
  flow: Flow;
  /** Latest latency, nanoseconds. */
  flow_latency: number | null;
  /** Hops in forwarding order. */
  hops: Array<Hop>;
  /** Flow id: 16 hexadecimal digits. */
  id: string;
  /** Receive time of the latest report, nanoseconds since the Unix epoch. */
  last_seen: number;
  /** Node ids in forwarding order; null where a node id is unavailable. */
  path: Array<number | null>;
  /** How the order of the path is known. */
  path_basis?: "measured" | "hop_sum" | "corrected" | "unsynchronised" | "hop_limit" | "stamps" | "topology";
  /** Reports so far. */
  reports: number;
  /** The 5-tuple as text. */
  text: string;
};

/** Latest state of a flow. */
export type FlowState = {
  /** How the latency was obtained. */
  basis: "measured" | "hop_sum" | "corrected" | "unsynchronised" | "hop_limit" | "stamps" | "topology";
  /** Receive time of the first report, nanoseconds since the Unix epoch. */
  first_seen: number;
  /** The 5-tuple. */
  flow: Flow;
  /** Latest latency, nanoseconds. */
  flow_latency: number | null;
  /** Flow id: 16 hexadecimal digits. */
  id: string;
  /** Receive time of the latest report, nanoseconds since the Unix epoch. */
  last_seen: number;
  /** Node ids in forwarding order; null where a node id is unavailable. */
  path: Array<number | null>;
  /** How the order of the path is known. */
  path_basis?: "measured" | "hop_sum" | "corrected" | "unsynchronised" | "hop_limit" | "stamps" | "topology";
  /** Reports so far. */
  reports: number;
  /** The 5-tuple as text. */
  text: string;
};

/** `/flows`. */
export type Flows = {
  /** Flows that match, largest first. */
  flows: Array<FlowState>;
  /** Number of flows that match. */
  total: number;
};

/** A flow over time. */
export type History = {
  /** Paths, each with the time of its first report. */
  paths: Array<PathSince>;
  /** Latencies over time. */
  series: Array<HistoryPoint>;
  /** True when there are more points than the limit. */
  truncated: boolean;
};

/** Latencies of a flow at one time. */
export type HistoryPoint = {
  /** How it was obtained. */
  basis: "measured" | "hop_sum" | "corrected" | "unsynchronised" | "hop_limit" | "stamps" | "topology";
  /** Flow latency, nanoseconds. */
  flow_latency: number | null;
  /** Latency of each node. */
  hops: Array<HopLatency>;
  /** Time, nanoseconds since the Unix epoch. */
  ts: number;
};

/** Last reported values of one hop of a flow. */
export type Hop = {
  /** Egress interface. */
  egress_if: number | null;
  /** Time inside the node, nanoseconds. */
  hop_latency: number | null;
  /** Ingress interface. */
  ingress_if: number | null;
  /** Utilization of the egress link as a fraction of 1. */
  link_utilization: number | null;
  /** Node id. */
  node: number | null;
  /** Queue id. */
  queue: number | null;
  /** Occupancy of the queue, in the unit of the device. */
  queue_occupancy: number | null;
};

/** Time inside one node. */
export type HopLatency = {
  /** Time inside the node, nanoseconds. */
  latency: number;
  /** Node id. */
  node: number | null;
};

/** A listening socket or an interface. */
export type Input = {
  /** Bytes of these datagrams, without headers; in kernel mode of those passed to user space. */
  bytes: number;
  /** Datagrams received. */
  datagrams: number;
  /** Datagrams without a significant change, processed in the kernel (`mode = "kernel"`). */
  decided_in_kernel: number;
  /** Frames that the interface dropped before the XDP program, for any destination. */
  device_drops: number;
  /** Datagrams addressed to this input and not received, by reason; includes `kernel_drops`. */
  drops: NamedCounts;
  /** Interface; null for a socket. */
  interface: string | null;
  /** Drops in the kernel. */
  kernel_drops: number;
  /** How it receives. */
  kind: "udp" | "packet" | "xdp-generic" | "xdp-native" | "xdp-zerocopy" | "kernel-generic" | "kernel-native";
  /** Address or interface, as configured. */
  listen: string;
  /** Why it does not receive. */
  message: string | null;
  /** Frames for this input that the XDP program passed to the stack, by reason; a socket receives them. */
  passed: NamedCounts;
  /** Queues of the interface that are read; 0 for a socket. */
  queues: number;
  /** Size of the receive buffer of the socket, bytes. */
  receive_buffer: number;
  /** Times it was reopened. */
  reopened: number;
  /** Faster ways to receive that were not used, with the reason. */
  tried: Array<Tried>;
  /** Datagrams longer than the buffer. */
  truncated: number;
  /** True while it receives. */
  up: boolean;
};

/** What a store knows of a key. */
export type KeyAnswer = {
  /** How many of them have this value. */
  agreeing: number | null;
  /** found, empty (never reported, or overwritten), ambiguous (copies differ), unproven (a path in a slot of the artifact's, which does not say whose it is) or torn (being written; ask again). */
  answer: string;
  /** Which collector was asked, where a map chose one. */
  collector?: string | null;
  /** Copies that have the key's checksum. */
  copies: number | null;
  /** The data, in hexadecimal. */
  data: string | null;
  /** What the data means, by the names of the fields (`value` for one without a name). */
  fields: Record<string, unknown> | null;
  /** The key, as a flow where it is one. */
  key: string;
  /** Of a path: hops that were not seen although a later one was. */
  missing: number | null;
  /** Of a path: the hops' values in order; null for one that was not seen. */
  path: Array<number | null> | null;
  /** The store's name. */
  store: string;
};

/** A link, learnt from paths. */
export type Link = {
  /** Egress interface of the sending node. */
  egress_if: number | null;
  /** Flows on the link. */
  flows: number;
  /** Sending node. */
  from: number;
  /** Time inside the sending node, nanoseconds. */
  hop_latency: number | null;
  /** Ingress interface of the receiving node. */
  ingress_if: number | null;
  /** Receive time of the latest report, nanoseconds since the Unix epoch. */
  last_seen: number;
  /** Occupancy of the egress queue, in the unit of the device. */
  queue_occupancy: number | null;
  /** Receiving node. */
  to: number;
  /** Utilization as a fraction of 1. */
  utilization: number | null;
};

/** `/links`. */
export type Links = {
  /** All links. */
  links: Array<Link>;
};

/** A list. */
export type List = {
  /** Are its entries told as events? */
  events: boolean;
  /** Its ID. */
  list: number;
  /** The number of the newest batch; absent for an empty list, and for bare ones. */
  newest: number | null;
  /** The store it is in. */
  store: string;
  /** Is it written with numbers and checksums? */
  tagged: boolean;
};

/** An entry of a list. */
export type ListEntry = {
  /** Its bytes, in hexadecimal. */
  data: string;
  /** What they mean. */
  fields: Record<string, unknown> | null;
  /** Its place in the batch, from 0. */
  index: number;
  /** The number of its batch. */
  sequence: number;
};

/** Entries of a list. */
export type ListTail = {
  /** The entries, oldest first. */
  entries: Array<ListEntry>;
  /** Batches that were overwritten before they were read. */
  lapped: number;
  /** The list. */
  list: number;
  /** Batches that never came, or not whole. */
  missing: number;
  /** Ask from here for what comes next. */
  next: number;
  /** The store it is in. */
  store: string;
};

/** `/dta/lists`. */
export type Lists = {
  lists: Array<List>;
};

/** `/api/v1/dta`. */
export type Memory = {
  acks: number;
  adds: number;
  adds_up: boolean;
  answers_lost: number;
  /** Bytes of all stores. */
  bytes: number;
  datagrams: number;
  directory: string;
  dropped: NamedCounts;
  duplicates: number;
  events: MemoryEvents;
  /** Where translators ask. */
  exchange: string;
  executed: number;
  kernel_drops: number;
  links: Array<MemoryLink>;
  /** Where RoCEv2 comes to. */
  listen: string;
  messages: number;
  /** Packets of unreliable queue pairs that are missing: numbers that were skipped, less those that came late. */
  missing: number;
  /** Who answers. */
  mode: string;
  naks: NamedCounts;
  packets: number;
  policy: string;
  refused: NamedCounts;
  snapshots: MemorySnapshots;
  /** Connections to the exchange. */
  translators: AdmissionView;
  written_bytes: number;
  /** The kernel's part of it. */
  xdp?: MemoryXdp | null;
};

/** What became of entries. */
export type MemoryEvents = {
  /** Entries of lists that were told as events. */
  entries: number;
  /** Immediates that were seen. */
  immediates: number;
  /** Immediates for which there was no room; entries of lists are told all the same. */
  immediates_shed: number;
  /** Batches that were overwritten before they were read. */
  lapped: number;
  /** Batches that never came whole. */
  missing: number;
};

/** A translator's link. */
export type MemoryLink = {
  connections: number;
  from: string;
  /** The translator's mark. */
  instance: string;
  /** The number of the link there. */
  link: number;
  reliable: string;
  /** Seconds since it came or went. */
  since_s: number;
  /** How its queue pairs stand: up, or error. */
  unreliable: string;
  up: boolean;
};

/** Snapshots. */
export type MemorySnapshots = {
  directory: string;
  failed: number;
  message: string | null;
  taken: number;
};

/** A store. */
export type MemoryStore = ({
  /** Bytes of data in a slot. */
  data: number;
  /** The family of hash functions: `v1` or `artifact`. */
  hash: string;
  kind: "key-write";
  /** Slots, a power of two. */
  slots: number;
} | {
  /** Entries of a batch. */
  batch: number;
  /** Entries of a ring. */
  entries: number;
  /** Bytes of an entry. */
  entry: number;
  kind: "append";
  /** Lists. */
  lists: number;
  /** Batches end in a sequence number and a checksum. */
  tagged: boolean;
} | {
  /** The family of hash functions. */
  hash: string;
  kind: "key-increment";
  /** Counters, a power of two. */
  slots: number;
} | {
  /** Columns. */
  columns: number;
  /** Rows. */
  depth: number;
  kind: "sketch";
  /** How sketches of several reporters are merged: sum or max. */
  merge: string;
  /** Which: count-min, count, hyperloglog or aroma. */
  sketch: string;
  /** Bytes of a counter. */
  width: number;
} | {
  /** The family of hash functions. */
  hash: string;
  /** Hops of a slot. */
  hops: number;
  kind: "postcarding";
  /** Slots, a power of two. */
  slots: number;
}) & {
  /** Bytes of the body. */
  bytes: number;
  /** When it was made, ns since the epoch. */
  created: number;
  /** What follows from that, if every key was written with so many copies. */
  expected: Array<ExpectedAnswers>;
  /** What data or entries mean. */
  fields: string | null;
  /** The file it lies in. */
  file: string | null;
  /** DtaStore ID or sketch ID; of lists the first one's. */
  id: number;
  /** Its name. */
  name: string;
  /** The share of slots that hold something, from a sample; absent for lists and sketches. */
  occupied: number | null;
  /** The pages under it: huge, transparent or small. */
  pages: string;
  /** When this copy of it was taken; absent for the live store. */
  snapshot: number | null;
};

/** The responder in the kernel. */
export type MemoryXdp = {
  interface: string;
  /** Why it is not on it, or not in its driver. */
  message?: string | null;
  /** In the interface's driver; else the generic way. */
  native: boolean;
  /** Packets that it took: a part of all. */
  packets: number;
  /** Frames to RoCEv2's port that it left to the stack, and so to the socket. */
  passed: number;
  /** Answers that found no room. */
  unanswered: number;
  /** Is it on it? */
  up: boolean;
};

/** NamedCounts by name, for example drops by reason. */
export type NamedCounts = Record<string, number>;

/** A node. */
export type Node = {
  /** Drop reports of this node. */
  drops: number;
  /** Time inside the node, nanoseconds; quantiles of the last second with values. */
  hop_latency: Spread;
  /** Receive time of the latest, nanoseconds since the Unix epoch. */
  last_seen: number;
  /** Name, as configured. */
  name: string | null;
  /** Node id. */
  node: number;
  /** Its queues. */
  queues: Array<Queue>;
  /** Reports with a hop of this node. */
  reports: number;
};

/** `/nodes`. */
export type Nodes = {
  /** All nodes. */
  nodes: Array<Node>;
};

/** A path and the time of its first report. */
export type PathSince = {
  /** Node ids in forwarding order; null where a node id is unavailable. */
  path: Array<number | null>;
  /** Time, nanoseconds since the Unix epoch. */
  ts: number;
};

/** A path and its use. */
export type PathUse = {
  /** Flows on this path. */
  flows: number;
  /** Node ids in forwarding order; null where a node id is unavailable. */
  path: Array<number | null>;
  /** Reports of these flows. */
  reports: number;
};

/** `/paths`. */
export type Paths = {
  /** Paths, most used first. */
  paths: Array<PathUse>;
};

/** What became of postcards: `received = joined + pending + sum of partial + sum of unjoinable`. */
export type Postcards = {
  /** Aggregates of an aggregator, and the postcards and summaries in them. */
  aggregates: number;
  ambiguous: number;
  /** Postcards of sets that gave, or confirmed, a path; and those sets. */
  joined: number;
  /** Pending once and not joined, by reason. */
  partial: NamedCounts;
  /** Waiting for others. */
  pending: number;
  received: number;
  /** Postcards whose Flow ID stood for a known flow, and those whose ID stands for several. */
  resolved: number;
  sets: number;
  summaries: number;
  unfolded: number;
  /** Never pending, by reason. */
  unjoinable: NamedCounts;
};

/** A queue of a node. */
export type Queue = {
  /** Largest value. */
  max: number | null;
  /** Last value. */
  occupancy: number | null;
  /** Queue id; null: all queues of the node, as reported by summaries. */
  queue: number | null;
  /** Unit of the device. */
  unit: string;
};

/** `/rates`. */
export type RateHistory = {
  /** One entry per second, at most the last 15 minutes, oldest first. */
  rates: Array<RatesThen>;
};

/** Rates over the last few seconds. */
export type Rates = {
  /** Datagrams per second. */
  datagrams: number;
  /** Events per second. */
  events: number;
  /** Reports per second. */
  reports: number;
};

/** Rates at one time. */
export type RatesThen = {
  /** Datagrams per second. */
  datagrams: number;
  /** Events per second. */
  events: number;
  /** Reports per second. */
  reports: number;
  /** Time, nanoseconds since the Unix epoch. */
  ts: number;
};

/** The answer of `/config/reload`. */
export type Reload = {
  /** Settings of the new file that stay as they were until a restart. */
  kept: Array<string>;
  reloaded: boolean;
};

/** One metric of one key over one interval. */
export type Rollup = {
  /** Number of values. */
  count: number;
  /** Flow as text. */
  flow: string | null;
  /** Interface id. */
  interface: number | null;
  /** Length of the interval, seconds. */
  interval: number;
  /** Largest value. */
  max: number;
  /** Metric. */
  metric: "flow_path" | "flow_latency" | "hop_latency" | "queue_occupancy" | "queue_congestion" | "link_utilization";
  /** Smallest value. */
  min: number;
  /** Node id. */
  node: number | null;
  /** Median. */
  p50: number | null;
  /** 99th percentile. */
  p99: number | null;
  /** Queue id. */
  queue: number | null;
  /** Sum of the values. */
  sum: number;
  /** Start of the interval, nanoseconds since the Unix epoch. */
  ts: number;
};

/** `/rollups`. */
export type Rollups = {
  /** Roll-ups in ascending order of time. */
  rollups: Array<Rollup>;
};

/** The answer of `/query`. */
export type Rows = {
  columns: Array<string>;
  elapsed_ms: number;
  notes: Array<string>;
  rows: Array<Array<unknown>>;
  truncated: boolean;
};

/** What a sketch says. */
export type SketchAnswer = {
  /** False where columns of a newer epoch may be among those of an older one. */
  certain: boolean;
  /** ... with this probability. */
  confidence: number | null;
  /** The epoch that was asked. */
  epoch: SketchEpoch;
  /** The epochs that are there, the newest first. */
  epochs: Array<SketchEpoch>;
  /** It is wrong by no more than this ... */
  error: number | null;
  /** The answer. */
  estimate: number | null;
  /** The key, where one was asked for. */
  key: string | null;
  /** What the question was: count (of a key), distinct (things), sampled_from (how many things the sample stands for). */
  question: string;
  /** Of a sample: what was sampled, as many as were asked for. */
  samples: Array<number>;
  /** What kind it is. */
  sketch: string;
  /** The sketch's name. */
  store: string;
};

/** An epoch of a sketch. */
export type SketchEpoch = {
  /** Columns that were written. */
  columns: number;
  /** Its number. */
  epoch: number;
  /** Reporters that were merged. */
  reporters: number;
};

/** A snapshot that was taken. */
export type Snapshot = {
  /** Bytes of the file. */
  bytes: number;
  /** Its file. */
  file: string;
  /** The store. */
  store: string;
  /** When it was begun, ns since the epoch. */
  ts: number;
  /** Slots that were being written whenever looked at, and are empty in the copy; absent for one taken by an earlier process. */
  unsettled: number | null;
};

/** What to take a snapshot of. */
export type SnapshotRequest = {
  /** Names of stores; none: those of the schedule, or all. */
  stores: Array<string>;
};

/** `/dta/snapshots`. */
export type Snapshots = {
  snapshots: Array<Snapshot>;
};

/** A sequence-numbered stream of reports, or an address without a readable report. */
export type Source = {
  /** False when the sequence number never advances; then `lost` means nothing. */
  countable: boolean;
  /** Duplicate reports. */
  duplicated: number;
  /** Subsystem of the node. */
  hw_id: number | null;
  /** Receive time of the latest report, nanoseconds since the Unix epoch. */
  last_seen: number;
  /** Reports lost before the collector. */
  lost: number;
  /** Name of the node, as configured. */
  name: string | null;
  /** Node id. */
  node: number | null;
  /** Refused datagrams and reports, by reason. */
  refused: NamedCounts;
  /** Reports out of order. */
  reordered: number;
  /** Reports with a sequence number. */
  reports: number;
  /** Restarts of the sequence. */
  restarts: number;
  /** Address of the reporter. */
  source: string;
  /** Version of the reports. */
  version: string;
};

/** Last value, smallest, largest and quantiles; null where nothing was measured. */
export type Spread = {
  /** Last value. */
  latest: number | null;
  /** Largest value. */
  max: number | null;
  /** Smallest value. */
  min: number | null;
  /** Median. */
  p50: number | null;
  /** 99th percentile. */
  p99: number | null;
};

/** The body of `/query`. */
export type SqlQuery = {
  from: number | null;
  limit: number | null;
  sql: string;
  to: number | null;
};

/** One stage of the loss budget: `in = out + sum of drops + held`. */
export type Stage = {
  /** Drops by reason. */
  drops: NamedCounts;
  /** In the stage now. */
  held: number;
  /** Number in. */
  in: number;
  /** Number out. */
  out: number;
  /** Name of the stage. `nic` exists with interfaces, `fanout` with several workers, `join` with postcards or SF-INT. */
  stage: "network" | "nic" | "kernel" | "fanout" | "decode" | "join" | "state" | "queue" | "store";
  /** What is counted. */
  unit: "datagrams" | "reports" | "records";
};

/** State of the whole program. */
export type Status = {
  /** Sockets and interfaces. */
  inputs: Array<Input>;
  /** Losses, stage by stage. */
  loss_budget: Array<Stage>;
  /** Time of the answer, nanoseconds since the Unix epoch. */
  now: number;
  /** Outcome of postcards. */
  postcards: Postcards;
  /** Rates over the last few seconds. */
  rates: Rates;
  /** Refused reports by reason, those inside accepted datagrams included. */
  refused: NamedCounts;
  /** Sequence-numbered streams of reports, and addresses without a readable report. */
  sources: Array<Source>;
  /** The store; null when it is off. */
  store: Store | null;
  /** Clients of the live stream. */
  streams: Streams;
  /** Bounded tables. */
  tables: Array<Table>;
  /** Seconds since the start. */
  uptime_s: number;
  /** Version of the program. */
  version: string;
  /** Worker threads. */
  workers: Array<Worker>;
};

/** State of the store. */
export type Store = {
  /** Bytes on disk. */
  bytes: number;
  /** Records committed. */
  committed: number;
  /** Records that could not be written. */
  failed: number;
  /** Files. */
  files: number;
  /** Time of the last commit, nanoseconds since the Unix epoch. */
  last_commit: number | null;
  /** Why the state is not `ok`. */
  message: string | null;
  /** Records in the queue. */
  queue: number;
  /** Records dropped because the queue was full. */
  shed: number;
  /** State. */
  state: "ok" | "full" | "failing" | "closed";
  /** Records written. */
  written: number;
};

/** `/dta/stores`. */
export type Stores = {
  stores: Array<MemoryStore>;
};

/** Clients of the live stream. */
export type Streams = {
  /** Clients connected. */
  clients: number;
  /** Events sent. */
  sent: number;
  /** Events dropped because a client was too slow. */
  shed: number;
};

/** A switch now. */
export type Switch = {
  /** What it reported by DTA, if it does. */
  dta: SwitchDta | null;
  errors_suppressed: number;
  filters: Array<SwitchFilter>;
  int: SwitchInt;
  name: string | null;
  /** Hosts' addresses that are known. */
  neighbours: number;
  node: number;
  ports: Array<SwitchPort>;
  reports: SwitchReports;
  /** As in the configuration. */
  roles: unknown;
  /** As in the configuration. */
  routes: unknown;
  totals: SwitchTotals;
  /** As in the configuration. */
  watch: unknown;
};

/** What a switch reported by DTA. */
export type SwitchDta = {
  collectors: Array<SwitchDtaCollector>;
  /** Control messages heeded. */
  controls: number;
  /** Control messages that could not be read, were for another, or came from a stranger. */
  controls_refused: number;
  /** Datagrams for which there was no way. */
  lost: number;
  mappings: Array<SwitchDtaMapping>;
  /** Reports made, resent ones not among them. */
  reports: number;
  /** Datagrams sent. */
  sent: number;
  sketches: Array<SwitchDtaSketch>;
  tables: Array<SwitchDtaTable>;
};

/** The way to a collector. */
export type SwitchDtaCollector = {
  address: string;
  dropped_there: number;
  essential: number;
  forgotten: number;
  /** Congestion, 0 to 3. */
  level: number;
  nacks: number;
  overwritten: number;
  refused: number;
  resent: number;
  waiting: number;
};

/** `made = sent + pending + suppressed + absent + size + no_room`. */
export type SwitchDtaMapping = {
  absent: number;
  made: number;
  name: string;
  no_room: number;
  on: string;
  pending: number;
  sent: number;
  size: number;
  suppressed: number;
};

export type SwitchDtaSketch = {
  again: number;
  columns: number;
  counted: number;
  epochs: number;
  id: number;
  late: number;
  name: string;
  suppressed: number;
};

export type SwitchDtaTable = {
  counted: number;
  evicted: number;
  keyless: number;
  name: string;
  periods: number;
  records: number;
};

/** A filter of the sink, and its decisions: each packet that it matched is in `reported` or `suppressed`. */
export type SwitchFilter = {
  collisions: number;
  reported: SwitchReported;
  /** As in the configuration. */
  settings: unknown;
  suppressed: number;
};

/** What INT did; every packet is in one of the first eight. */
export type SwitchInt = {
  congested_reported: number;
  drops_reported: number;
  filtered: number;
  hops_exceeded: number;
  mtu_exceeded: number;
  plain: number;
  queues_reported: number;
  recorded: number;
  refused: number;
  reported: number;
  swapped: number;
};

/** A port now. */
export type SwitchPort = {
  drops: NamedCounts;
  /** Why nothing goes through its interface, if so. */
  failed: string | null;
  in_queue: SwitchQueue;
  interface: string;
  mac: string;
  mtu: number;
  number: number;
  queue: SwitchQueue;
  received: number;
  received_bytes: number;
  ring_full: number;
  sent: number;
  sent_bytes: number;
  /** As in the configuration. */
  settings: unknown;
};

/** A queue now. */
export type SwitchQueue = {
  bytes: number;
  frames: number;
  most_bytes: number;
};

/** Reasons for which packets were reported. */
export type SwitchReported = {
  /** The rule was true for the previous packet. */
  ended: number;
  /** The algorithm detected an event. */
  event: number;
  /** The first packet of its key. */
  first: number;
  /** The keep-alive time passed. */
  keep_alive: number;
  /** Values are missing. */
  missing_value: number;
};

/** Datagrams with reports. */
export type SwitchReports = {
  lost: number;
  sent: number;
  to: string | null;
};

/** Every frame: `received + made = sent + handled + held + dropped`. */
export type SwitchTotals = {
  adds_up: boolean;
  dropped: number;
  drops: NamedCounts;
  handled: number;
  held: number;
  made: number;
  received: number;
  ring_full: number;
  sent: number;
};

/** A bounded table. */
export type Table = {
  /** Maximum number of entries. */
  capacity: number;
  /** Entries replaced by newer ones. */
  evicted: number;
  /** Name. */
  name: string;
  /** Entries that found no room. */
  refused: number;
  /** Entries in use. */
  used: number;
};

/** `dta` in `/api/v1/translator`. */
export type Translator = {
  adds: number;
  adds_up: boolean;
  /** What came from collectors, or to where their answers come, and is none. */
  answers_unreadable: NamedCounts;
  collectors: Array<TranslatorCollector>;
  copies: TranslatorCopies;
  done: NamedCounts;
  dropped: NamedCounts;
  entries: TranslatorHeld;
  essential: TranslatorEssential;
  immediates: number;
  layout: string;
  /** Messages to reporters, by kind. */
  messages: NamedCounts;
  operation_bytes: number;
  postcards: TranslatorHeld;
  /** Reports taken: = done + dropped + unreadable + waiting. */
  reports: number;
  unreadable: NamedCounts;
  /** Reports in local memory, until there is room. */
  waiting: number;
  waiting_bytes: number;
  writes: number;
};

/** A collector. */
export type TranslatorCollector = {
  acknowledged: number;
  adds_up: boolean;
  broken: number;
  collector: number;
  connections: number;
  cut: number;
  datagrams: number;
  exchange: string;
  /** Times the exchange came to nothing because one side refused the other, by reason. */
  exchange_refused: NamedCounts;
  /** Must the collector prove that it knows a secret? */
  exchange_secret: boolean;
  frame_bytes: number;
  frames: number;
  given_up: NamedCounts;
  heard: NamedCounts;
  held: number;
  /** Operations that must arrive: = acknowledged + held + given_up. */
  kept: number;
  kernel_drops: number;
  /** Congestion, 0 to 3. */
  level: number;
  /** Where its reports come to. */
  listen: string;
  /** Why it is not connected. */
  message: string | null;
  /** Operations that were not taken, by reason. */
  refused: NamedCounts;
  repeated: number;
  /** How many times its memory was another one. */
  restarts: number;
  /** down, up or broken. */
  state: string;
  stores: Array<string>;
  target: string | null;
  timeouts: number;
  uncertain_adds: number;
  /** Operations that may be lost. */
  unkept: number;
  /** Frames that the kernel did not take. */
  unsent: number;
};

/** Copies of Key-Write. */
export type TranslatorCopies = {
  asked: number;
  lost: number;
  /** Left out under load. */
  spared: number;
  written: number;
};

/** Essential reports. */
export type TranslatorEssential = {
  accepted: number;
  /** Numbers that were asked for again and never came. */
  lost: number;
  reporters: number;
  restarts: number;
};

/** What is collected before it is written. */
export type TranslatorHeld = {
  held: number;
  lost: number;
  taken: number;
  written: number;
};

/** A way to receive that was not used. */
export type Tried = {
  /** Why it was not used. */
  reason: string;
  /** Way to receive. */
  rx_path: string;
};

/** A worker thread. */
export type Worker = {
  /** Datagrams processed. */
  datagrams: number;
  /** Reports processed. */
  reports: number;
  /** Number, from 0. */
  worker: number;
};
