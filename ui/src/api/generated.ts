// Generated from the types of the API by `make docs`; do not edit.

/** The body of `/alerts/acknowledge`. */
export type Acknowledge = {
  /** `false` withdraws the acknowledgement. */
  acknowledged?: boolean;
  /** Comment, shown with the alert. */
  comment?: string;
  /** Id of the alert: 16 hexadecimal digits. */
  id: string;
};

/** Who acknowledged an alert. */
export type Acknowledged = {
  /** Time of the acknowledgement, nanoseconds since the Unix epoch. */
  at: number;
  /** The name of the token, otherwise the name in the request. */
  by: string;
  /** The comment of the person who acknowledged it. */
  comment: string;
};

/** The response of `/activity`: counts over time. */
export type Activity = {
  /** Length of a part, nanoseconds. Reports are counted by the minute: those of a minute are spread evenly over shorter parts. */
  column: number;
  /** Events later than this are not known yet. */
  events_to: number;
  /** Beginning of the span, nanoseconds since the Unix epoch. */
  from: number;
  /** Events of the whole span by kind. */
  kinds: NamedCounts;
  /** The parts in which something was counted, in ascending order of time. Nothing was received in the other parts. */
  points: Array<ActivityPoint>;
  /** Reports later than this are not known yet: they are stored by the minute, after its end. */
  reports_to: number;
  /** End of the span, nanoseconds since the Unix epoch; not included in it. */
  to: number;
};

/** Counts of a part of a span. */
export type ActivityPoint = {
  /** Number of events of any kind. */
  events: number;
  /** Reports that never arrived. */
  lost: number;
  /** Number of reports that had a latency of their flow. Others are not stored by the minute. With `mode = "kernel"`, a number of samples: reports with a significant change, and one per flow and second. */
  reports: number;
  /** Start of the part, nanoseconds since the Unix epoch. */
  ts: number;
};

/** Counters: `connections = accepted + refused + pending`. */
export type AdmissionView = {
  /** Connections accepted since the start. */
  accepted: number;
  /** True while the balance holds. */
  balanced: boolean;
  /** Connections: `connections = accepted + refused + pending`. */
  connections: number;
  /** Connections without a response yet. */
  pending: number;
  /** Connections refused, by reason. */
  refused: NamedCounts;
  /** Whether translators must prove that they know a secret. */
  secret: boolean;
};

/** The aggregator's counters, as `/api/v1/aggregator` returns them. */
export type Aggregator = {
  /** True while the balance holds. */
  balanced: boolean;
  /** Memory of the registers, bytes. */
  bytes: number;
  /** Datagrams longer than 9,216 bytes, truncated. */
  cut: number;
  /** Datagrams received on the input. */
  datagrams: number;
  /** Destinations of the aggregates. */
  forward: Array<AggregatorForward>;
  /** True when it sends plain Telemetry Report 2.0. */
  interop: boolean;
  /** Datagrams dropped in the kernel. */
  kernel_drops: number;
  /** Kind of aggregation, as configured. */
  kind: string;
  /** Address or interface on which it receives postcards. */
  listen: string;
  /** Missing values, which no summary includes. */
  missing_values: number;
  /** Subsystems of nodes: all that are tracked, at most 4,096. */
  nodes: Array<AggregatorNode>;
  /** Datagrams of those that are not tracked, because the table was full; their losses are not counted. */
  nodes_full: number;
  /** Registers that hold postcards. */
  occupied: number;
  /** Postcards that wait in registers. */
  pending: number;
  /** Postcards received in these reports. */
  postcards: number;
  /** Postcards per datagram or summary. */
  r: number;
  /** Reports that are not postcards for this aggregator, by reason. */
  refused: NamedCounts;
  /** Number of registers that were allocated. */
  registers: number;
  /** Reports decoded from these datagrams. */
  reports: number;
  /** Postcards sent, by cause: `full` (R postcards), `timer`, `evicted` (another node or flow needed the register), `stopped`. */
  sent: Record<string, AggregatorSent>;
  /** Datagrams that could not be decoded, by reason. */
  unreadable: NamedCounts;
};

/** A destination of aggregates. */
export type AggregatorForward = {
  /** Payload of these datagrams, bytes. */
  bytes: number;
  /** Datagrams passed to the kernel. */
  datagrams: number;
  /** Datagrams that the kernel refused for another reason. */
  failed: number;
  /** Datagrams that the kernel refused for lack of memory. */
  no_buffers: number;
  /** Address of the destination. */
  to: string;
};

/** Sequence numbers of the postcards of a node's subsystem. */
export type AggregatorNode = {
  /** Datagrams received more than once. */
  duplicated: number;
  /** Subsystem of the node. */
  hw_id: number;
  /** Sequence numbers never received. */
  lost: number;
  /** Node id in the postcards. */
  node: number;
  /** Datagrams with a sequence number. */
  numbered: number;
  /** Datagrams received after one with a higher sequence number. */
  reordered: number;
  /** Restarts of the sequence. */
  restarts: number;
  /** Bits of its sequence numbers: 22 (Telemetry Report 2.0) or 32. A subsystem that sends both has two entries. */
  seq_bits: number;
};

/** Postcards sent for one cause. */
export type AggregatorSent = {
  /** Datagrams sent for this cause. */
  datagrams: number;
  /** Postcards in them, or in their summaries. */
  postcards: number;
};

/** A rule, and a flow for which it is or was true. */
export type Alert = {
  /** Who has acknowledged it since it began. */
  acknowledged: Acknowledged | null;
  /** In a console: the collectors that reported it, where it can be acknowledged and silenced; a console does not have that state. */
  collectors?: Array<string>;
  /** Number of times it started firing in the span. */
  count: number;
  /** Reason for its end: `false`, the rule is no longer true; `flow`, the flow ended; `stale`, no end is stored, and the collector does not have the alert now, so that the end is unknown. Null while it is firing. */
  ended: "false" | "flow" | "stale" | null;
  /** The latest periods for which it was true, oldest first. */
  episodes: Array<Episode>;
  /** The flow for which the rule is or was true. */
  flow: Flow | null;
  /** The same for this rule and flow, whenever it comes back: 16 hexadecimal digits. Exports call it `alert`. */
  id: string;
  /** The egress interface of the hop that has the value; null if the packet carried none. */
  interface: number | null;
  /** Time of the flow's latest report, nanoseconds since the Unix epoch; null unless the collector has confirmed that the alert fires. */
  last_seen: number | null;
  /** The metric in the comparison that last made the rule true. */
  metric: "flow_path" | "flow_latency" | "hop_latency" | "queue_occupancy" | "queue_congestion" | "link_utilization" | null;
  /** The node that has the value. */
  node: number | null;
  /** The queue that has the value. */
  queue: number | null;
  /** Reports around it were recorded: from when, until when. */
  recorded: Episode | null;
  /** The name of the rule. */
  rule: string;
  /** The silence that covers it now. */
  silence: number | null;
  /** Start of the latest occurrence, nanoseconds since the Unix epoch; null if it is not stored, or not yet. */
  since: number | null;
  /** `firing` while the rule is true, `resolved` afterwards. */
  state: "firing" | "resolved";
  /** The flow as text. */
  text: string | null;
  /** The value that it was compared with. */
  threshold: number | null;
  /** End of the latest occurrence, nanoseconds since the Unix epoch; null while it is firing, or if the end is unknown. */
  until: number | null;
  /** Value of the metric at that time, in the unit of the metric. */
  value: number | null;
  /** Condition of the rule, or null if the rule is not in the configuration. */
  when: string | null;
};

/** The response of `/alerts`: alerts that fire now or fired in a span of time. */
export type Alerts = {
  /** Alerts that fire at the end of the span, and those that fired in it, worst first. If the span ends now, all are listed that the collector has, whatever is stored. */
  alerts: Array<Alert>;
  /** True if the collector has confirmed which alerts are firing; otherwise they are as stored. A console never has this confirmation. */
  confirmed: boolean;
  /** Number of firing alerts. */
  firing: number;
  /** Beginning of the span, nanoseconds since the Unix epoch. */
  from: number;
  /** Set if there are more rule events than are read: only those since this time are counted, and older alerts are missing. */
  known_since: number | null;
  /** Number of firing alerts whose flow has sent no report for `silent_after_s`: they fire because no report has shown the opposite. 0 if the collector has not confirmed the alerts. */
  silent: number;
  /** Time without reports after which the flow of an alert counts as silent, seconds. */
  silent_after_s: number;
  /** End of the span, nanoseconds since the Unix epoch. */
  to: number;
  /** Total number, including those beyond the limit. */
  total: number;
  /** Number of these that are neither acknowledged nor silenced. */
  unacknowledged: number;
};

/** `/queues/{node}`: the flows that filled a queue. */
export type Burst = {
  /** Time at which the queue began to fill, nanoseconds since the Unix epoch. */
  begun: number | null;
  /** Without reports: flows whose hop latency at the node changed in that time, the greatest first. */
  changes: Array<HopChange>;
  /** In a console: the collectors that received reports of the node in this time, at most 16; `lacks` says if there are more. */
  collectors?: Array<string>;
  /** Reported drops at the node, by reason. */
  drops: Array<DropCount>;
  /** The flows, the one with the most packets in the rise first. */
  flows: Array<BurstFlow>;
  /** Egress interface of the queue, or null for all. */
  interface: number | null;
  /** In a console: sentences that name missing data and where to find it. */
  lacks?: Array<string>;
  /** Greatest occupancy in the rollups of the time, in the device's unit; null if there are none. If the stored reports reach less than half of it, they are not those of the burst: `flows` says who used the queue, and not who filled it. */
  measured: number | null;
  /** Node id, as in reports. */
  node: number;
  /** Occupancy at that time, in the device's unit; null if the reports have none: then the peak is the longest time in the node. */
  occupancy: number | null;
  /** Packets in the order of time; one of so many that it is at most 2000. */
  packets: Array<BurstPacket>;
  /** Time at which the queue was fullest, nanoseconds since the Unix epoch; null if no report of the time is stored. */
  peak: number | null;
  /** Queue id, or null for all queues of the node. */
  queue: number | null;
  /** The recordings that cover a part of the time. If empty, there are only the other reports in the store. */
  recordings: Array<Recording>;
  /** Reports of all packets. */
  reports: number;
  /** Reports of packets that were in it while it filled. All counts are of the network's reports: those that were left out are included. */
  rise: number;
  /** Number of flows that passed the queue. */
  total_flows: number;
  /** Whether there are more reports, drops or changes than were read: counts are too low. */
  truncated: boolean;
};

/** A flow's part in a burst. */
export type BurstFlow = {
  /** Time at which its first packet left, nanoseconds since the Unix epoch. */
  first: number;
  /** The flow, or null for packets whose flow is unknown. */
  flow: Flow | null;
  /** Time at which its last packet left, nanoseconds since the Unix epoch. */
  last: number;
  /** Longest hop latency of a packet since the queue began to fill, ns. */
  longest: number | null;
  /** Node ids in forwarding order; null where a node id is unavailable. */
  path: Array<number | null>;
  /** Number of reports of all its packets. */
  reports: number;
  /** Number of reports of its packets that were in the queue while it filled. */
  rise: number;
  /** The flow as text. */
  text: string | null;
  /** The sum of these times, ns. */
  waited: number;
};

/** A packet that passed a queue. */
export type BurstPacket = {
  /** Index of its flow in `flows`; null if it is not among them. */
  flow: number | null;
  /** Time inside the node, nanoseconds. */
  latency: number | null;
  /** Queue occupancy that the packet reported, in the device's unit. */
  occupancy: number | null;
  /** Time at which it left, nanoseconds since the Unix epoch. */
  ts: number;
};

/** Result of the store calculator. */
export type Calculation = {
  /** Share of keys whose copies differ. */
  ambiguous: number;
  /** Share of all keys that are answered. */
  answered: number;
  /** The result for each number of copies. */
  by_copies: Array<CalculationChoice>;
  /** Memory of the store, bytes. */
  bytes: number;
  /** Copies of each key. */
  copies: number;
  /** Share of keys that are answered as unknown. */
  empty: number;
  /** Probability that a key that was never reported is answered. */
  false_answer: number;
  /** Keys that are reported in total. */
  keys: number;
  /** Keys per slot of the store. */
  load: number;
  /** Share of slots that are written at the end. */
  occupied: number;
  /** Probability that the oldest key is answered. */
  oldest: number;
  /** Slots of the store. */
  slots: number;
  /** Share of keys with a wrong answer. */
  wrong: number;
};

/** Result for one number of copies. */
export type CalculationChoice = {
  /** Share of all keys that are answered. */
  answered: number;
  /** Copies of each key. */
  copies: number;
  /** Probability that the oldest key is answered. */
  oldest: number;
};

/** A completion at the cursor. */
export type Completion = {
  /** Description, one line; may be empty. */
  about: string;
  /** The first unit that it replaces, up to the cursor. */
  from: number;
  /** Text to insert at the cursor. */
  text: string;
};

/** An intent that was added while the manager ran. */
export type CopiedIntent = {
  /** Time of the addition, nanoseconds since the Unix epoch. */
  added: number;
  /** The user who added it. */
  by: string;
  /** The intent's keys, as in `[[intents]]`. */
  intent: Record<string, unknown>;
  /** The name of the intent. */
  name: string;
};

/** Count of a key. */
export type CountAnswer = {
  /** The collector that answered, when a map selects it. */
  collector?: string | null;
  /** … with this probability. */
  confidence: number;
  /** Counters that were read. */
  copies: number;
  /** Upper bound of the error, … */
  error: number;
  /** The estimate; never too small. */
  estimate: number;
  /** The key that was counted. */
  key: string;
  /** Name of the store that was read. */
  store: string;
  /** Sum over all keys. */
  total: number;
};

/** A device, its state and its ports. */
export type Device = {
  /** Where the driver finds it. */
  address: string;
  /** Capabilities reported by the driver; null if not known yet. */
  capabilities: DeviceCapabilities | null;
  /** Counters of its program since its start, with the names of its pipeline map. */
  counters: Array<DeviceCounter>;
  /** Function of a device outside the domain, as text; null for a switch. */
  does: string | null;
  /** The driver that configures it. */
  driver: string;
  /** Number of unexpected rules. */
  extra: number;
  /** Entries of its filters. */
  filter_entries: DeviceEntries;
  /** Entries of other controllers. */
  foreign: Array<string>;
  /** Labels of the inventory. */
  labels: Array<string>;
  /** Number of missing rules. */
  missing: number;
  /** The name in the inventory. */
  name: string;
  /** The device's node id. */
  node: number;
  /** The ports, by number. */
  ports: Array<DevicePort>;
  /** True if INT that reaches it stays inside the domain. */
  ready: boolean;
  /** `switch`: a node of the domain; outside it, `aggregator` or `translator`. */
  role: string;
  /** Those of them by rule. */
  rule_filters: DeviceEntries;
  /** Rules as last read, as text; null if never read. */
  rules: Array<string> | null;
  /** A sentence, if its reports do not arrive; null otherwise, or if unknown. */
  silence: string | null;
  /** `unreachable`, `connecting`, `reading`, `in_sync`, `drift`, `applying`, `unconfirmed`, `failed` or `standby`. */
  state: string;
  /** The state in one sentence. */
  text: string;
  /** Entries of its watchlist. */
  watch_entries: DeviceEntries;
};

/** Capabilities of a device. */
export type DeviceCapabilities = {
  /** Algorithms of its filters. */
  filters: Array<string>;
  /** Metadata that it can add to a packet. */
  instructions: string;
  /** Treatments of the L4 checksum that it supports. */
  l4_checksum: Array<string>;
  /** Capabilities of the keys of its watchlist: `ipv6`, `prefixes`, `wildcards`, `ranges`, `dscp`. */
  matches: Array<string>;
  /** Modes in which it can be source and sink. */
  modes: Array<string>;
  /** After a restart: `keeps` its rules, `waits` for its manager, or `forwards` without rules. */
  restart: string;
  /** It can measure one packet of N. */
  sampling: boolean;
  /** It can remove INT. */
  sink: boolean;
};

/** A counter of a device. */
export type DeviceCounter = {
  /** Description of that object, such as the rule of a filter and its flows; null if unknown. */
  about: string | null;
  /** Meaning of the counter. */
  name: string;
  /** The filter, mapping or the like of the program that it belongs to, such as `filter 3`; null for the device itself. Objects that have counted nothing are left out. */
  object: string | null;
  /** Packets that were counted. */
  packets: number;
};

/** Entries of a table of a device. */
export type DeviceEntries = {
  /** Entries that belong to none of its rules, such as those of other controllers, as last read. */
  others: number;
  /** Entries that fit, of all controllers together. */
  size: number;
  /** Entries of this manager. */
  used: number;
};

/** A neighbour of a port, as LLDP announces it. */
export type DeviceNeighbour = {
  /** Reason why this neighbour is not a link, or null if it is one. */
  note: string | null;
  /** The port id: usually the name of an interface. */
  port: string;
  /** The system name, or the chassis id. */
  system: string;
};

/** Changes of one device. */
export type DevicePlan = {
  /** Number of rules to add. */
  added: number;
  /** The changes in the order in which they are applied, as text. */
  changes: Array<string>;
  /** The name of the device. */
  name: string;
  /** The device's node id. */
  node: number;
  /** Number of rules to remove. */
  removed: number;
};

/** A port of a device. */
export type DevicePort = {
  /** Longest IP packet, bytes. */
  mtu: number | null;
  /** Name of the interface. */
  name: string | null;
  /** The neighbour, from received LLDP. */
  neighbour: DeviceNeighbour | null;
  /** The port was part of a link, and INT may still leave by it: do not connect hosts. The history announces it with `edge_ready`. */
  opening: boolean;
  /** The other end: a port of a device, or the hosts that the inventory has there, the first three by name. */
  peer: string | null;
  /** The number of the port. */
  port: number;
  /** `fabric`, `edge`, `unused` or `disputed`. */
  role: string;
  /** It is an INT sink now. */
  sink: boolean;
  /** It is an INT source now. */
  source: boolean;
};

/** The state of a device. */
export type DeviceState = {
  /** Number of unexpected rules. */
  extra: number;
  /** Number of missing rules. */
  missing: number;
  /** The name of the device. */
  name: string;
  /** The device's node id. */
  node: number;
  /** True if INT that reaches it stays inside the domain. */
  ready: boolean;
  /** The state, as in `Device`. */
  state: string;
  /** The state in one sentence. */
  text: string;
};

/** All devices with their states. */
export type Devices = {
  /** The devices, by node id. */
  devices: Array<Device>;
};

/** The domain of devices that carry INT. */
export type Domain = {
  /** True if this manager is active, false if another one has taken over. */
  acting: boolean;
  /** Addresses to which devices send reports. */
  collectors: Array<string>;
  /** Contradicting facts, as text. */
  contradictions: Array<string>;
  /** State copied from the other manager (`[manager] peer`), as a sentence; null if this manager is active or copies nothing. */
  copy: string | null;
  /** Number of devices in the domain. */
  devices: number;
  /** DSCP that marks packets with INT. */
  dscp: number;
  /** DTA collectors of the map that devices get; empty: they have their own. */
  dta_collectors: Array<string>;
  /** Names of hosts, for `at.between` of intents: the first thousand. */
  hosts: Array<string>;
  /** Number of devices in sync. */
  in_sync: number;
  /** Treatment of the L4 checksum of packets with INT. */
  l4_checksum: string;
  /** Links between devices: node and port of both ends. */
  links: Array<Array<number>>;
  /** Links of the longest path between two edge devices. */
  longest_path: number;
  /** True if changes need approval (`[manager] apply = "manual"`); otherwise they wait only until the network is stable. */
  manual: boolean;
  /** All INT was stopped by an operator. */
  stopped: boolean;
  /** Links without enough evidence to carry INT, as text: `[[inventory.links]] between = …` accepts one. */
  suggestions: Array<string>;
  /** Pending changes, as the text of `/plan`; empty if there are none. */
  waits: string;
};

/** The state of the domain. */
export type DomainState = {
  /** True if this manager is active, false if another one has taken over. */
  acting: boolean;
  /** Number of devices in the domain. */
  devices: number;
  /** Number of devices in sync. */
  in_sync: number;
  /** All INT was stopped by an operator. */
  stopped: boolean;
  /** Pending changes, as the text of `/plan`; empty if there are none. */
  waits: string;
};

/** Drops with a reason. */
export type DropCount = {
  /** Number of drop reports. */
  count: number;
  /** Name of the reason, where the profiles agree on one. */
  name: string | null;
  /** Drop reason, the code of the device. */
  reason: number | null;
};

/** Dropped packets of one place and reason. */
export type Drops = {
  /** Egress interface at which they were dropped. */
  egress_if: number | null;
  /** Receive time of the first drop report, nanoseconds since the Unix epoch. */
  first: number;
  /** Number of flows with dropped packets. */
  flows: number;
  /** Receive time of the last drop report, nanoseconds since the Unix epoch. */
  last: number;
  /** The node that dropped them. */
  node: number | null;
  /** Drop reports: one per packet, as far as the node reports each. */
  packets: number;
  /** Id of the queue at which they were dropped. */
  queue: number | null;
  /** Drop reason, the code of the device. */
  reason: number | null;
  /** Name of the reason, from the profile. */
  reason_name: string | null;
  /** The node behind this interface at that time, from the latest packets. */
  to: number | null;
  /** Reason why that node is unknown; null if it is known, or if the interface is unknown. */
  to_unknown: string | null;
};

/** Election of the manager that may write: the higher one wins, first by term, then by epoch. */
export type Election = {
  /** Claims within the term. */
  epoch: number;
  /** Term of the manager's lease. */
  term: number;
};

/** A time that something lasted. */
export type Episode = {
  /** Start, nanoseconds since the Unix epoch, or null if it is no longer stored. */
  since: number | null;
  /** End, nanoseconds since the Unix epoch; null if it is still firing, or if the end is unknown. */
  until: number | null;
};

/** Reason for refusing a request. */
export type Error = {
  /** One sentence with the reason and the fix. */
  error: string;
};

/** An event. Values are in the unit of the metric. */
export type Event = {
  /** Method by which the value was obtained. */
  basis: "measured" | "hop_sum" | "corrected" | "unsynchronised" | "hop_limit" | "timestamps" | "topology";
  /** The flow, or null if the event is about a node. */
  flow: Flow | null;
  /** Flow latency of the same report, ns, if the event is the path of a new flow. */
  flow_latency?: number | null;
  /** Hop latencies of the same report, ns, in the order of the path, if the event is the path of a new flow; null where unavailable. */
  hop_latencies?: Array<number | null>;
  /** Record id, derived from the content: 16 hexadecimal digits. */
  id: string;
  /** Id of the interface, if the event is about one. */
  interface: number | null;
  /** Kind of the event. */
  kind: "new" | "change" | "path_change" | "path_loop" | "rule_on" | "rule_off" | "drop" | "loss" | "expired" | "hop_limit" | "mtu" | "latest" | "packet_loss";
  /** Method by which the flow latency was obtained. */
  latency_basis?: "measured" | "hop_sum" | "corrected" | "unsynchronised" | "hop_limit" | "timestamps" | "topology";
  /** The metric that changed. */
  metric: "flow_path" | "flow_latency" | "hop_latency" | "queue_occupancy" | "queue_congestion" | "link_utilization" | null;
  /** Node id, if the event is about a node. */
  node: number | null;
  /** Node ids in forwarding order; null where a node id is unavailable. */
  path: Array<number | null>;
  /** Value reported before, in the unit of the metric. */
  previous: number | null;
  /** Id of the queue, if the event is about one. */
  queue: number | null;
  /** Drop reason, the code of the device. */
  reason: number | null;
  /** Name of the reason, where the profiles agree on one. */
  reason_name: string | null;
  /** Rule that became true or false. */
  rule: string | null;
  /** The flow as text. */
  text: string | null;
  /** Threshold that was exceeded, in the unit of the metric. */
  threshold: number | null;
  /** Receive time, nanoseconds since the Unix epoch. */
  ts: number;
  /** New value, in the unit of the metric. */
  value: number | null;
};

/** The response of `/events`: a page of stored events. */
export type Events = {
  /** Events in descending order of time. */
  events: Array<Event>;
  /** `after` of the next page; null when there are no more. */
  next: string | null;
};

/** Support for the losses in the network. A datagram received supports the loss of 128 others of its stream. */
export type Evidence = {
  /** Datagrams received in the streams in which any are missing. */
  datagrams: number;
  /** Datagrams missing beyond that: after a long outage that has just ended, or because of forged sequence numbers. Neither in `in` nor in `drops`. */
  unconfirmed: number;
};

/** Expected answers of a store at its occupancy. */
export type ExpectedAnswers = {
  /** Share of all keys that are answered. */
  answered: number;
  /** Copies of each key. */
  copies: number;
  /** Keys per slot of the store. */
  load: number;
};

/** One stream of one export. `read` = `delivered` + `left_out` + `rejected` + `held`. */
export type Export = {
  /** Bytes of one batch, at most. */
  batch_size: number;
  /** When these were counted. */
  counted: number;
  /** Records that the server has stored. */
  delivered: number;
  /** Records that the store, or Kafka, deleted before they were sent; of hops, those of files that were deleted or damaged. */
  expired: number;
  /** The export: NAME of `[exports.NAME]`. */
  export: string;
  /** Requests that failed in a way that may pass. */
  failed: number;
  /** Records in memory, neither delivered nor rejected yet. */
  held: number;
  /** The system that receives. */
  kind: string;
  /** Error of the last request, until one succeeds. */
  last_error: string | null;
  /** When a request was last answered for each of its records. */
  last_success: number | null;
  /** Records that do not apply to this system, such as events that are not alerts; of an outlet, offsets without a message. */
  left_out: number;
  /** Bytes of its batches, requests and hops in memory. */
  memory: number;
  /** Bytes that it may hold: its part of the memory of all exports. */
  memory_limit: number;
  /** Time of the oldest record in memory: how far this export lags. */
  oldest: number | null;
  /** The partition of the stream's topic, for an outlet; null for an export. An outlet reads Kafka instead of the store. */
  partition: number | null;
  /** Records read from the store since the start. */
  read: number;
  /** Requests that were refused for their content. */
  refused: number;
  /** Records permanently rejected by the server, and for an outlet messages that cannot be read; they are saved to a file, with the reason. */
  rejected: number;
  /** Records that were sent again. */
  repeated: number;
  /** Number of requests sent. */
  requests: number;
  /** Times that the store's count of records, or a partition, was reset; the number of records lost then is unknown. */
  restarted: number;
  /** Address of the system: host and port. */
  server: string;
  /** Hops dropped because the system accepted them more slowly than they arrived. */
  shed: number;
  /** Number of silenced alerts among these. */
  silenced: number;
  /** Name of the stream, such as `events`. */
  stream: string;
  /** Requests without an answer in time. */
  timed_out: number;
  /** Requests that were refused for their credentials. */
  unauthorised: number;
  /** Times that the cursor could not be saved. */
  unsaved: number;
  /** Rejected records that could not be written to that file. */
  unwritten: number;
  /** Committed records in the store that are still pending, including those in memory. */
  waiting: number;
};

/** The exports of a process. */
export type Exports = {
  /** Each stream of each export. */
  exports: Array<Export>;
  /** Bytes that all of them may hold together. */
  memory: number;
  /** All of them as a stage of the loss budget. */
  stage: Stage;
};

/** A problem of a file of the store. */
export type FileProblem = {
  /** Name of the file in the store's directory. */
  file: string;
  /** When it was found, nanoseconds since the Unix epoch. */
  found: number;
  /** Kind of the problem. */
  kind: "unreadable" | "damaged" | "removed" | "replaced";
  /** The reason and the remedy. */
  message: string;
  /** Records that this process stored in the file and that are no longer in the store. */
  records: number;
};

/** An error in a filter. Positions are in UTF-16 code units, as in browsers. */
export type FilterFault = {
  /** Length of the error, in UTF-16 code units; 0 at the end of the text. */
  length: number;
  /** The error, in one sentence. */
  message: string;
  /** Offset at which the error begins, in UTF-16 code units. */
  position: number;
};

/** A field of filters. */
export type FilterField = {
  /** Description of the field, in one line. */
  about: string;
  /** Name of the field in filters. */
  name: string;
};

/** The response of `/filter`: help for editing a filter. */
export type FilterHelp = {
  /** Completions at the cursor. */
  completions: Array<Completion>;
  /** The error in the filter, or null if it is valid. */
  fault: FilterFault | null;
  /** The fields that such a filter can have. */
  fields: Array<FilterField>;
};

/** A time at which a rule would have become true. */
export type Firing = {
  /** The flow for which it would have become true. */
  flow: Flow;
  /** The metric in the comparison that would have made the rule true. */
  metric: "flow_path" | "flow_latency" | "hop_latency" | "queue_occupancy" | "queue_congestion" | "link_utilization" | null;
  /** The node that has the value. */
  node: number | null;
  /** The flow as text. */
  text: string;
  /** Time at which it would have become true, nanoseconds since the Unix epoch. */
  ts: number;
  /** End time, nanoseconds since the Unix epoch, or null for the end of the span. */
  until: number | null;
  /** Value of the metric at that time, in the unit of the metric. */
  value: number | null;
};

/** Counters of the flight recorder since the start. An event that could start a recording is in one of them. */
export type FlightRecorder = {
  /** Events that arrived after their recording had ended. */
  late: number;
  /** Memory for datagrams, bytes. */
  memory: number;
  /** Events beyond the recordings of a minute. */
  over_budget: number;
  /** Events that have a recording. */
  recorded: number;
  /** Events whose subject was in the recording already. */
  repeated: number;
  /** Reports that were passed on to the store. */
  reports: number;
  /** Events that the recorder was too busy to look at. */
  shed: number;
  /** Events of more subjects than a recording has. */
  subjects_full: number;
};

/** A 5-tuple. When only the Flow ID is known, `src` holds it (`flow-id:0x0000f10a`) and `dst` is empty. */
export type Flow = {
  /** Destination port; null where the packet had none. */
  dport: number | null;
  /** Destination address; empty if only the Flow ID is known. */
  dst: string;
  /** Protocol number of the IP header, such as 6 for TCP. */
  proto: number;
  /** Source port; null where the packet had none. */
  sport: number | null;
  /** Source address, or the Flow ID. */
  src: string;
};

/** A flow with its hops in forwarding order. */
export type FlowDetail = {
  /** Method by which the latency was obtained. */
  basis: "measured" | "hop_sum" | "corrected" | "unsynchronised" | "hop_limit" | "timestamps" | "topology";
  /** Receive time of the first report, nanoseconds since the Unix epoch; of a span of time, the beginning of its minute, ten minutes or hour. */
  first_seen: number;
  /** The 5-tuple of the flow. */
  flow: Flow;
  /** Latest latency, nanoseconds; of a span of time, the largest. */
  flow_latency: number | null;
  /** Hops in forwarding order. */
  hops: Array<Hop>;
  /** Flow id: 16 hexadecimal digits. */
  id: string;
  /** True where the path may lack nodes: it is only known from packets whose hop limit, MTU or room of an IOAM trace was exhausted, or from a node that reported its queue. */
  incomplete?: boolean | null;
  /** The intents that its reports serve; absent without a manager in this process. */
  intents?: Array<string> | null;
  /** Receive time of the latest report, nanoseconds since the Unix epoch; of a span of time, the end of its minute, ten minutes or hour. */
  last_seen: number;
  /** Latencies of the span of time, if one was asked for. */
  latencies?: Latencies | null;
  /** Node ids in forwarding order; null where a node id is unavailable. */
  path: Array<number | null>;
  /** Method by which the order of the path was obtained. */
  path_basis?: "measured" | "hop_sum" | "corrected" | "unsynchronised" | "hop_limit" | "timestamps" | "topology";
  /** Nodes of the path: more than in `path` when `truncated`. */
  path_length: number;
  /** The span of time, if one was asked for: then a hop has the latency that was reported last before its end, and nothing else. */
  range?: Range | null;
  /** Reports so far, or of the span of time; in the latter with `mode = "kernel"`, a number of samples: reports with a significant change, and one per flow and second. */
  reports: number;
  /** The 5-tuple as text. */
  text: string;
  /** True when not every hop of the path is stored: the table `hops` was full. */
  truncated: boolean;
};

/** Latest state of a flow. */
export type FlowState = {
  /** Method by which the latency was obtained. */
  basis: "measured" | "hop_sum" | "corrected" | "unsynchronised" | "hop_limit" | "timestamps" | "topology";
  /** Receive time of the first report, nanoseconds since the Unix epoch; of a span of time, the beginning of its minute, ten minutes or hour. */
  first_seen: number;
  /** The 5-tuple of the flow. */
  flow: Flow;
  /** Latest latency, nanoseconds; of a span of time, the largest. */
  flow_latency: number | null;
  /** Flow id: 16 hexadecimal digits. */
  id: string;
  /** True where the path may lack nodes: it is only known from packets whose hop limit, MTU or room of an IOAM trace was exhausted, or from a node that reported its queue. */
  incomplete?: boolean | null;
  /** Receive time of the latest report, nanoseconds since the Unix epoch; of a span of time, the end of its minute, ten minutes or hour. */
  last_seen: number;
  /** Latencies of the span of time, if one was asked for. */
  latencies?: Latencies | null;
  /** Node ids in forwarding order; null where a node id is unavailable. */
  path: Array<number | null>;
  /** Method by which the order of the path was obtained. */
  path_basis?: "measured" | "hop_sum" | "corrected" | "unsynchronised" | "hop_limit" | "timestamps" | "topology";
  /** Nodes of the path: more than in `path` when `truncated`. */
  path_length: number;
  /** Reports so far, or of the span of time; in the latter with `mode = "kernel"`, a number of samples: reports with a significant change, and one per flow and second. */
  reports: number;
  /** The 5-tuple as text. */
  text: string;
  /** True when not every hop of the path is stored: the table `hops` was full. */
  truncated: boolean;
};

/** The response of `/flows`: a page of flows. */
export type Flows = {
  /** Time as of which flows were sorted, filtered and counted, nanoseconds since the Unix epoch: at most 1 µs ago for each flow of a worker, and the time it took to read them. Their values are current. */
  as_of: number;
  /** `true` if more flows may match than `total`, because the filter uses values of nodes, which are looked up for a part of the flows at a time. A page may then have fewer flows than its limit; continue at `next`. */
  at_least?: boolean | null;
  /** Flows that match, largest first. */
  flows: Array<FlowState>;
  /** `after` of the next page; null on the last. */
  next: string | null;
  /** The span of time, if one was asked for; otherwise the response is about now. */
  range?: Range | null;
  /** Number of matching flows. A flow that was evicted and returned during the count is counted twice. */
  total: number;
};

/** `/queues`: a heat map. */
export type Heat = {
  /** Length of a column, ns. */
  column: number;
  /** Start of the first column, nanoseconds since the Unix epoch. */
  from: number;
  /** Length of the rollups that were read, seconds. */
  interval: number;
  /** Metric that the map shows. */
  metric: "flow_path" | "flow_latency" | "hop_latency" | "queue_occupancy" | "queue_congestion" | "link_utilization";
  /** The rows, the greatest value first. */
  rows: Array<HeatRow>;
  /** End of the last column, nanoseconds since the Unix epoch. */
  to: number;
  /** Total number, including those beyond the limit. */
  total: number;
  /** True if there are more than the collector considers, so that some are missing. */
  truncated: boolean;
};

/** A row of a heat map. */
export type HeatRow = {
  /** Number of measured values. */
  count: number;
  /** Egress interface of a link, and of a queue if its packets carry one. */
  interface: number | null;
  /** Node id, or null if unavailable. */
  node: number | null;
  /** Queue id; null where the metric has none. */
  queue: number | null;
  /** The greatest value of each column; null where nothing was measured. */
  values: Array<number | null>;
  /** The greatest value of the row, in the unit of the metric. */
  worst: number;
};

/** A flow over time. */
export type History = {
  /** Paths, each with the time of its first report. */
  paths: Array<PathSince>;
  /** Latencies over time. A point without a latency and hops begins a time without reports, which lasts to the next point. */
  series: Array<HistoryPoint>;
  /** True when there are more points than the limit. */
  truncated: boolean;
};

/** Latencies of a flow at one time. */
export type HistoryPoint = {
  /** Method by which the latency was obtained. */
  basis: "measured" | "hop_sum" | "corrected" | "unsynchronised" | "hop_limit" | "timestamps" | "topology";
  /** Flow latency at that time, nanoseconds. */
  flow_latency: number | null;
  /** Latency of each node. */
  hops: Array<HopLatency>;
  /** Time, nanoseconds since the Unix epoch. */
  ts: number;
};

/** One hop of a flow: the values that the flow's latest packet carried, and beside them the latest of its queue and link. */
export type Hop = {
  /** Id of the egress interface. */
  egress_if: number | null;
  /** Time inside the node, nanoseconds. */
  hop_latency: number | null;
  /** Hop latency of the latest report, nanoseconds, if it is implausible, rounded down to 18 significant bits; `hop_latency` is null then. It is longer than `max_hop_latency` of the profile, or its timestamps are wrong: the ingress is 0, or later than the egress. It is in no other number. */
  implausible_latency?: number | null;
  /** Id of the ingress interface. */
  ingress_if: number | null;
  /** Age of that value, seconds. */
  latest_link_age_s: number | null;
  /** Latest utilization of the egress link as a fraction of 1, from a packet of any flow. */
  latest_link_utilization: number | null;
  /** Age of that value, seconds. */
  latest_queue_age_s: number | null;
  /** Latest occupancy of the queue, from a packet of any flow. */
  latest_queue_occupancy: number | null;
  /** Utilization of the egress link when this flow's packet passed, as a fraction of 1. */
  link_utilization: number | null;
  /** Node id, or null if the packet did not carry it. */
  node: number | null;
  /** Id of the queue that the packet passed. */
  queue: number | null;
  /** Congestion status of the queue when this flow's packet passed, in the unit of the device. */
  queue_congestion: number | null;
  /** Occupancy of the queue when this flow's packet passed, in the unit of the device. */
  queue_occupancy: number | null;
};

/** A flow whose hop latency changed. */
export type HopChange = {
  /** Number of changes of its hop latency. */
  changes: number;
  /** The flow, or null if unknown. */
  flow: Flow | null;
  /** The greatest hop latency, nanoseconds. */
  latency: number;
  /** The flow as text. */
  text: string | null;
};

/** `/flows/{id}/latencies`: latency of a flow's packets at each hop. A value holds until the next one is reported, or until the flow is silent. */
export type HopLatencies = {
  /** Upper bounds of the classes of latency, nanoseconds; the lowest class begins at 0. */
  bounds: Array<number>;
  /** Length of a column, nanoseconds. */
  column: number;
  /** The flow's own latency, time on links included. */
  flow: LatencySpread | null;
  /** Start of the first column, nanoseconds since the Unix epoch. */
  from: number;
  /** Each node that the flow passed, in the order of the latest path. */
  hops: Array<LatencySpread>;
  /** Number of nodes left out. */
  left_out: number;
  /** End of the last column, nanoseconds since the Unix epoch. */
  to: number;
  /** True if the oldest values are missing because there are too many. */
  truncated: boolean;
};

/** Time inside one node. */
export type HopLatency = {
  /** Time inside the node, nanoseconds. */
  latency: number;
  /** Node id, or null if unavailable. */
  node: number | null;
};

/** The name of a host. */
export type HostName = {
  /** One of its addresses. */
  address: string;
  /** Name of the host. */
  name: string;
  /** Source of the name: `file`, the inventory; `dns`, where `[names] dns` is on. */
  origin: string;
};

/** A listening socket or an interface. */
export type Input = {
  /** Bytes of these datagrams, without headers; in kernel mode of those passed to user space. */
  bytes: number;
  /** True if datagrams with a wrong UDP checksum are dropped. False with AF_XDP (`xdp-…`), which delivers what the NIC accepts: a report that was damaged on the way is read as it is. */
  checksums_verified: boolean;
  /** Number of datagrams received. */
  datagrams: number;
  /** Frames that the interface dropped before the XDP program, for any destination. */
  device_drops: number;
  /** Datagrams addressed to this input and not received, by reason; includes `kernel_drops`. */
  drops: NamedCounts;
  /** Datagrams without a significant change, processed in the kernel (`mode = "kernel"`). */
  handled_in_kernel: number;
  /** Interface; null for a socket. */
  interface: string | null;
  /** Drops in the kernel. */
  kernel_drops: number;
  /** Receive path of the input. */
  kind: "udp" | "packet" | "xdp-generic" | "xdp-native" | "xdp-zerocopy" | "kernel-generic" | "kernel-native";
  /** Address or interface, as configured. */
  listen: string;
  /** Reason why it does not receive. */
  message: string | null;
  /** Frames for this input that the XDP program passed to the stack, by reason; a socket receives them. */
  passed: NamedCounts;
  /** Queues of the interface that are read; 0 for a socket. */
  queues: number;
  /** Size of the receive buffer of the socket, bytes. */
  receive_buffer: number;
  /** Times it was reopened. */
  reopened: number;
  /** Faster receive paths that were not used, with the reason. */
  tried: Array<Tried>;
  /** Datagrams longer than the buffer. */
  truncated: number;
  /** True while it receives. */
  up: boolean;
};

/** An intent and its state. */
export type Intent = {
  /** Time of the addition, nanoseconds since the Unix epoch. */
  added: number;
  /** The user who added it. */
  by: string;
  /** Devices that have its entries, or shall have them. */
  devices: Array<string>;
  /** End time, nanoseconds since the Unix epoch, or null for never. */
  end: number | null;
  /** The version, for `If-Match`. */
  etag: string;
  /** Flows that matched, among those that the collector knows. */
  flows: number;
  /** Metadata that each node on the path adds. */
  instructions: string | null;
  /** The intent's keys, as in `[[intents]]`. */
  intent: Record<string, unknown>;
  /** The mode in which its packets are measured; the modes, where other intents take a part of them. */
  mode: string | null;
  /** The name of the intent. */
  name: string;
  /** Notes for the operator. */
  notes: Array<string>;
  /** `file`: in the configuration, and changed only there; `api`: added while running; `drill_down`: installed for a while by the rule of another one. */
  origin: string;
  /** The other intent, of a drill-down. */
  parent: string | null;
  /** Reports of its flows per second. */
  rate: number;
  /** The active rules for its packets, as text: mode, metadata that each node adds, bytes, goodput. The first one applies to most packets. */
  rules: Array<string>;
  /** `stopped`, `refused`, `pending`, `installed`, `seen`, `complete` or `silent`. */
  state: string;
  /** The state in one sentence. */
  text: string;
};

/** Cost of an intent. */
export type IntentCost = {
  /** Bytes of INT in a packet on the last link, for paths of 1, 2, … links up to the longest. */
  bytes: Array<number>;
  /** The basis of the estimate, or the reason why there is none. */
  expectation: string;
  /** Share of a link's capacity that full packets keep on the longest path, 0 to 1. */
  goodput: number;
  /** Metadata that each node on the path adds. */
  instructions: string;
  /** The mode in which its packets will be measured. */
  mode: string;
  /** Their bit/s, or null if not known yet. */
  report_bits: number | null;
  /** Expected reports per second, or null if not known yet. */
  reports: number | null;
};

/** The state of an intent. */
export type IntentState = {
  /** The version of the intent. */
  etag: string;
  /** Flows that matched, among those that the collector knows. */
  flows: number;
  /** The name of the intent. */
  name: string;
  /** Reports of its flows per second. */
  rate: number;
  /** The state, as in `Intent`. */
  state: string;
  /** The state in one sentence. */
  text: string;
};

/** All intents with their states. */
export type Intents = {
  /** The intents, by name. */
  intents: Array<Intent>;
};

/** The name of an interface. */
export type InterfaceName = {
  /** Interface id in INT. */
  interface: number;
  /** Name of the interface. */
  name: string;
};

/** Answer to a key. */
export type KeyAnswer = {
  /** Number of them with this value. */
  agreeing: number | null;
  /** found, empty (never reported, or overwritten), ambiguous (copies differ), unproven (a path in a slot of the artifact's layout, which does not identify its key) or torn (read during a write; query again). */
  answer: "found" | "empty" | "ambiguous" | "unproven" | "torn";
  /** The collector that answered, when a map selects it. */
  collector?: string | null;
  /** Copies that have the key's checksum. */
  copies: number | null;
  /** The data, in hexadecimal. */
  data: string | null;
  /** The decoded data, by field name (`value` for a field without a name). */
  fields: Record<string, unknown> | null;
  /** The key, as a flow where it is one. */
  key: string;
  /** For a path: hops that are missing although a later one is present. */
  missing: number | null;
  /** For a path: the values of its hops in order; null for a missing hop. */
  path: Array<number | null> | null;
  /** Name of the store that was read. */
  store: string;
};

/** Flow latencies of a span of time. */
export type Latencies = {
  /** Largest flow latency, nanoseconds. */
  max: number;
  /** Mean flow latency, nanoseconds. */
  mean: number;
  /** Smallest flow latency, nanoseconds. */
  min: number;
};

/** Latencies over time, weighted by the time for which they held. */
export type LatencySpread = {
  /** Thousandths of the time of each column in each class; empty where nothing was reported. */
  classes: Array<Array<number>>;
  /** Largest value of the latency, nanoseconds. */
  max: number;
  /** Mean of the latency, nanoseconds. */
  mean: number;
  /** Mean of each column, nanoseconds; null where nothing was reported. */
  means: Array<number | null>;
  /** Median of each column, nanoseconds; null where nothing was reported. */
  medians: Array<number | null>;
  /** Node id; null of a node whose id is unavailable, and of the flow. */
  node: number | null;
  /** Median of the latency, nanoseconds. */
  p50: number;
  /** 90th percentile of the latency, nanoseconds. */
  p90: number;
  /** 90th percentile of each column, nanoseconds; null where nothing was reported. */
  p90s: Array<number | null>;
  /** 99th percentile of the latency, nanoseconds. */
  p99: number;
  /** 99th percentile of each column, nanoseconds; null where nothing was reported. */
  p99s: Array<number | null>;
  /** Time for which values are known, nanoseconds. */
  time: number;
  /** Number of stored values: changes that were larger than the threshold, and repeated ones. */
  values: number;
};

/** A link, learned from paths. */
export type Link = {
  /** Egress interface of the sending node; in a span of time, as it is known now. */
  egress_if: number | null;
  /** Flows on the link. */
  flows: number;
  /** Id of the sending node. */
  from: number;
  /** Time inside the sending node, nanoseconds; null in a span of time. */
  hop_latency: number | null;
  /** Ingress interface of the receiving node, likewise. */
  ingress_if: number | null;
  /** Receive time of the latest report, nanoseconds since the Unix epoch; of a span of time, when the last flow left the link, or the end of the minute, ten minutes or hour of its latest report. */
  last_seen: number;
  /** Occupancy of the egress queue, in the unit of the device; null in a span of time. */
  queue_occupancy: number | null;
  /** Id of the receiving node. */
  to: number;
  /** Utilization as a fraction of 1; of a span of time, the largest, if the egress interface is known. */
  utilization: number | null;
};

/** Losses of a link. */
export type LinkLoss = {
  /** Packets that the sending node reported as dropped on the way to this link: before it, not on it. */
  dropped: number;
  /** Id of the sending node. */
  from: number;
  /** Lower bound of the packets that were lost on the link: the difference of both ends, less what lost and repeated reports, and packets under way at the ends of the time, can explain. */
  lost: number | null;
  /** Upper bound of the packets that were lost on the link. */
  lost_most: number | null;
  /** Packets that the sending node reported as forwarded to it, or null if not counted. */
  sent: number | null;
  /** Id of the receiving node. */
  to: number;
  /** Reason why its losses are unknown. */
  unknown: string | null;
};

/** The response of `/links`: a page of links. */
export type Links = {
  /** Links by their ends. */
  links: Array<Link>;
  /** `offset` of the next page; null on the last. */
  next: number | null;
  /** The span of time, if one was asked for; otherwise the response is about now. */
  range?: Range | null;
};

/** A list of entries. */
export type List = {
  /** Whether its entries are reported as events. */
  events: boolean;
  /** ID of the list. */
  list: number;
  /** Number of the newest batch; absent for empty and for untagged lists. */
  newest: number | null;
  /** The store it is in. */
  store: string;
  /** Whether batches end in a sequence number and a checksum. */
  tagged: boolean;
};

/** An entry of a list. */
export type ListEntry = {
  /** Bytes of the entry, in hexadecimal. */
  data: string;
  /** The decoded entry, by field name. */
  fields: Record<string, unknown> | null;
  /** Index in the batch, from 0. */
  index: number;
  /** The number of its batch. */
  sequence: number;
};

/** Entries of a list. */
export type ListTail = {
  /** The entries, oldest first. */
  entries: Array<ListEntry>;
  /** ID of the list. */
  list: number;
  /** Batches that were never complete. */
  missing: number;
  /** `from` of the next query. */
  next: number;
  /** Batches that were overwritten before they were read. */
  overwritten: number;
  /** The store it is in. */
  store: string;
};

/** The response of `/dta/lists`. */
export type Lists = {
  /** Lists of all stores, at most `limit`. */
  lists: Array<List>;
};

/** `/losses`. Lost packets and lost reports are never added up: a report that did not arrive says nothing about its packet. */
export type LossMap = {
  /** Whether the packets of flows were counted at both ends of links. Otherwise `uncounted` says why not. */
  counted: boolean;
  /** Reports received after this time were not counted, because there are too many. Those of the last 5 s are never counted. */
  counted_until: number | null;
  /** Dropped packets as reported by nodes, largest count first. */
  drops: Array<Drops>;
  /** Flows that were left out of these counts, because their path changed in the span, passes a node twice or is not known. */
  left_out: number;
  /** The links of the span, largest loss first. */
  links: Array<LinkLoss>;
  /** Drops and links beyond the limit. */
  more: number;
  /** The span of time. */
  range: Range | null;
  /** Reports that never arrived, by the node that sent them; not lost packets. */
  reporters: Array<ReporterLoss>;
  /** Requirement for counting packets at both ends of links that is not met. */
  uncounted: string | null;
  /** Dropped packets of no known link, which are only in `drops`. */
  unplaced: number;
};

/** A change at the manager. The name of the event is its kind. */
export type ManagerChange = {
  change: DeviceState;
  kind: "device";
} | {
  change: IntentState;
  kind: "intent";
} | {
  change: {
    /** The name of it. */
    name: string;
    /** The kind of what was removed: `intent` or `device`. */
    what: string;
  };
  kind: "removed";
} | {
  change: DomainState;
  kind: "domain";
} | {
  change: ManagerHistoryEntry;
  kind: "history";
};

/** State that a manager on standby copies from the active one. */
export type ManagerCopy = {
  /** True if this manager is active; otherwise there are no intents here. */
  acting: boolean;
  /** The intents that were added while it ran, by name. */
  intents: Array<CopiedIntent>;
  /** All INT was stopped by an operator. */
  stopped: boolean;
};

/** The history, newest first. */
export type ManagerHistory = {
  /** The entries, newest first. */
  history: Array<ManagerHistoryEntry>;
};

/** An entry of the manager's history. */
export type ManagerHistoryEntry = {
  /** `add`, `replace`, `remove`, `end`, `drill_down`, `apply`, `stop`, `start`; the state of a device; `device`, `link`, `edge_ready`: changes of the inventory and of ports. */
  action: string;
  /** Origin of the action: the name in the request, `file` or `manager`. */
  by: string;
  /** The intent or device. */
  subject: string;
  /** A sentence about it. */
  text: string;
  /** Nanoseconds since the Unix epoch. */
  time: number;
};

/** The memory's state and counters, as `/api/v1/dta` returns them. */
export type Memory = {
  /** ACKs sent to translators. */
  acks: number;
  /** True while the balance holds. */
  balanced: boolean;
  /** Bytes of all stores. */
  bytes: number;
  /** Datagrams received by the socket. */
  datagrams: number;
  /** Directory of the regions. */
  directory: string;
  /** Packets decoded and not executed, by reason. */
  dropped: NamedCounts;
  /** Packets received again, and only acknowledged. */
  duplicates: number;
  /** Entries of lists reported as events. */
  events: MemoryEvents;
  /** Address of the exchange with translators. */
  exchange: string;
  /** Packets whose operation was executed. */
  executed: number;
  /** RDMA fetch-and-add operations done. */
  fetch_adds: number;
  /** Datagrams dropped in the kernel. */
  kernel_drops: number;
  /** The links of translators to this memory. */
  links: Array<MemoryLink>;
  /** Address that receives RoCEv2. */
  listen: string;
  /** RDMA writes and fetch-and-add operations done. */
  messages: number;
  /** Packets of unreliable queue pairs that are missing: PSNs that were skipped, less those that arrived reordered. */
  missing: number;
  /** The responder: socket, xdp or verbs. */
  mode: string;
  /** NAKs sent, by syndrome. */
  naks: NamedCounts;
  /** RoCEv2 packets: `packets = executed + duplicates + refused + dropped`. */
  packets: number;
  /** Policy when copies differ: first, majority or strict. */
  policy: string;
  /** Packets that could not be decoded, by reason. */
  refused: NamedCounts;
  /** Responses that the kernel did not send. */
  responses_unsent: number;
  /** Snapshots of the stores. */
  snapshots: MemorySnapshots;
  /** Connections to the exchange. */
  translators: AdmissionView;
  /** Bytes written into the stores. */
  written_bytes: number;
  /** The responder in the kernel. */
  xdp?: MemoryXdp | null;
};

/** Entries of lists, and immediates. */
export type MemoryEvents = {
  /** Entries of lists that were reported as events. */
  entries: number;
  /** Immediate values received with writes. */
  immediates: number;
  /** Immediates discarded because the queue was full; entries of lists are still reported. */
  immediates_dropped: number;
  /** Batches that were never complete. */
  missing: number;
  /** Batches that were overwritten before they were read. */
  overwritten: number;
};

/** The link of a translator. */
export type MemoryLink = {
  /** Connections established since the start. */
  connections: number;
  /** Address of the translator. */
  from: string;
  /** Random ID of the translator's process. */
  instance: string;
  /** The number of the link there. */
  link: number;
  /** State of its reliable queue pair: ready, error or gone. */
  reliable: string;
  /** Seconds since it connected or disconnected. */
  since_s: number;
  /** State of its unreliable queue pair: ready, error or gone. */
  unreliable: string;
  /** True while it is connected. */
  up: boolean;
};

/** Counters and files of snapshots. */
export type MemorySnapshots = {
  /** Number of times that counters were cleared (`clear_every`). */
  cleared: number;
  /** Directory of the files. */
  directory: string;
  /** Snapshots that could not be written. */
  failed: number;
  /** The last failure; null after a success. */
  message: string | null;
  /** Snapshots written since the start. */
  taken: number;
};

/** A store of the collector's memory. */
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
  /** Number of the store's lists. */
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
  /** Columns of the sketch. */
  columns: number;
  /** Rows of the sketch. */
  depth: number;
  kind: "sketch";
  /** Operation that merges sketches of several reporters: sum or max. */
  merge: string;
  /** Kind of sketch: count-min, count, hyperloglog or aroma. */
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
  /** Creation time, nanoseconds since the Unix epoch. */
  created: number;
  /** Expected answers at this occupancy, for each number of copies per key. */
  expected: Array<ExpectedAnswers>;
  /** Fields of data or entries. */
  fields: string | null;
  /** Path of its file. */
  file: string | null;
  /** Store ID or sketch ID; for lists, the ID of the first one. */
  id: number;
  /** Name of the store. */
  name: string;
  /** Share of slots in use, estimated from a sample; absent for lists and sketches. */
  occupied: number | null;
  /** Page size of its memory: huge, transparent or small. */
  pages: string;
  /** Time of the snapshot; absent for the live store. */
  snapshot: number | null;
};

/** The responder in the kernel. */
export type MemoryXdp = {
  /** Network interface of the kernel responder. */
  interface: string;
  /** Reason that it is not attached, or not in native mode. */
  message?: string | null;
  /** Whether it is attached in native mode, that is in the interface's driver, rather than in generic mode. */
  native: boolean;
  /** Packets that it processed, included in the total. */
  packets: number;
  /** Frames to the RoCEv2 port that it passed to the network stack. */
  passed: number;
  /** Responses that could not be sent. */
  responses_unsent: number;
  /** Whether it is attached. */
  up: boolean;
};

/** Counts by name, for example drops by reason. */
export type NamedCounts = Record<string, number>;

/** Names of nodes, interfaces, hosts and drop reasons. */
export type Names = {
  /** Drop reasons with a name on which the profiles agree, by code. */
  drop_reasons: Array<ReasonName>;
  /** Hosts with a name, by address. */
  hosts: Array<HostName>;
  /** Nodes with a name, or with interfaces that have one, by id. */
  nodes: Array<NodeNames>;
};

/** The body of a rule. */
export type NewRule = {
  /** Name of the rule, unique among `[[rules]]`. */
  name: string;
  /** The condition, as in `[[rules]]`. */
  when: string;
};

/** The body of a new silence. */
export type NewSilence = {
  /** Reason for the silence, shown with it. */
  comment?: string;
  /** Filter of events that selects the alerts: `rule == slow and src in 10.0.1.0/24`. */
  filter: string;
  /** Duration from now on, seconds; default: an hour. */
  seconds?: number | null;
};

/** Latest state of a node. */
export type Node = {
  /** Drop reports of this node. */
  drops: number;
  /** Time inside the node, nanoseconds; quantiles of the last second with values. */
  hop_latency: Spread;
  /** Implausible hop latencies of this node, not included in the numbers above. */
  implausible_latencies: number;
  /** Receive time of the latest, nanoseconds since the Unix epoch; of a span of time, the end of its minute, ten minutes or hour. */
  last_seen: number;
  /** Name of the node, as configured. */
  name: string | null;
  /** Node id, as in reports. */
  node: number;
  /** Queues of the node. */
  queues: Array<Queue>;
  /** Reports with a hop of this node. */
  reports: number;
};

/** Names of a node. */
export type NodeNames = {
  /** Interfaces of the node that have a name, by number. */
  interfaces: Array<InterfaceName>;
  /** Name of the node, or null if it has none. */
  name: string | null;
  /** Node id, as in reports. */
  node: number;
};

/** The response of `/nodes`: a page of nodes. */
export type Nodes = {
  /** `after` of the next page; null on the last. */
  next: number | null;
  /** Nodes in ascending order of their ids. */
  nodes: Array<Node>;
  /** The span of time, if one was asked for; otherwise the response is about now. */
  range?: Range | null;
};

/** A change of a flow's path. */
export type PathChange = {
  /** Node ids of the path after, likewise. */
  after: Array<number | null>;
  /** Node ids of the path before, in forwarding order; null where a node id is unavailable; empty: not stored. */
  before: Array<number | null>;
  /** The 5-tuple of the flow. */
  flow: Flow;
  /** Id of the flow: 16 hexadecimal digits. */
  id: string;
  /** The 5-tuple as text. */
  text: string;
  /** Receive time of the first report of the new path, nanoseconds since the Unix epoch. */
  ts: number;
};

/** The same change of the paths of several flows. */
export type PathChangeGroup = {
  /** Node ids of the path after, likewise. */
  after: Array<number | null>;
  /** Node ids of the path before, in forwarding order; null where a node id is unavailable; empty: not stored. */
  before: Array<number | null>;
  /** Number of changes: a flow may have changed back and forth. */
  changes: number;
  /** Time of the first change, nanoseconds since the Unix epoch. */
  first: number;
  /** Number of flows with this change. */
  flows: number;
  /** Time of the last change, nanoseconds since the Unix epoch. */
  last: number;
};

/** The response of `/paths/changes`: changes of flows' paths in a span of time. */
export type PathChanges = {
  /** The latest changes, newest first. */
  changes: Array<PathChange>;
  /** Number of such groups: `groups` has the first of them. */
  group_total: number;
  /** All changes, equal ones together; those of most flows first. */
  groups: Array<PathChangeGroup>;
  /** The span of time; `truncated`: it has more flows or changes than are considered. */
  range: Range | null;
  /** Number of changes: `changes` has the latest of them. */
  total: number;
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
  /** Reports of flows on this path, since the path is known; in a span of time, those of minutes at whose end a flow had it. */
  reports: number;
};

/** The response of `/paths/uses`: the paths that flows used in a span of time. */
export type PathUses = {
  /** The paths of the flows that were asked about. */
  forward: PathsOfDirection;
  /** The span of time. */
  range: Range | null;
  /** The paths of the opposite direction; null when all flows were asked about. */
  reverse: PathsOfDirection | null;
};

/** The response of `/paths`: a page of paths. */
export type Paths = {
  /** `offset` of the next page; null on the last. */
  next: number | null;
  /** Paths, most used first. */
  paths: Array<PathUse>;
  /** The span of time, if one was asked for; otherwise the response is about now. */
  range?: Range | null;
};

/** The paths of one direction. */
export type PathsOfDirection = {
  /** The receiver, if one was asked about. */
  dst: string | null;
  /** The flow, if one was asked about: its 5-tuple as text. */
  flow: string | null;
  /** Number of flows with reports. */
  flows: number;
  /** The paths, longest used first. */
  paths: Array<UsedPath>;
  /** Reports are known for each part of time of this length, nanoseconds; they were divided among its paths by time. */
  spread: number;
  /** The sender, if one was asked about. */
  src: string | null;
  /** Whether there are more flows, paths, or changes of a flow's path than are considered. */
  truncated: boolean;
  /** Reason why nothing is known. */
  unknown: string | null;
};

/** Changes from the actual to the desired state. */
export type Plan = {
  /** Cost of the intent; null in a plan that is not for one intent. */
  cost: IntentCost | null;
  /** The changes of each device. */
  devices: Array<DevicePlan>;
  /** Notes for the operator. */
  notes: Array<string>;
  /** The plan in a few lines. */
  text: string;
};

/** Accounting of postcards: `received = joined + pending + sum of partial + sum of unjoinable`. */
export type Postcards = {
  /** Number of aggregates received. */
  aggregates: number;
  /** Postcards whose Flow ID belongs to several flows. */
  ambiguous: number;
  /** Postcards of sets that gave or confirmed a path. */
  joined: number;
  /** Postcards that waited and were not joined, by reason. */
  partial: NamedCounts;
  /** Postcards that wait for others. */
  pending: number;
  /** Number of postcards received. */
  received: number;
  /** Postcards whose Flow ID belongs to one known flow. */
  resolved: number;
  /** Sets that gave or confirmed a path. */
  sets: number;
  /** Number of summaries in aggregates. */
  summaries: number;
  /** Number of postcards in aggregates. */
  unfolded: number;
  /** Postcards that never waited, by reason. */
  unjoinable: NamedCounts;
};

/** A queue of a node. */
export type Queue = {
  /** Egress interface of the queue, or null if the reports have none. */
  interface: number | null;
  /** Largest occupancy, in the unit of the device. */
  max: number | null;
  /** Last occupancy, in the unit of the device. */
  occupancy: number | null;
  /** Queue id, or null for all queues of the node, as in summaries. */
  queue: number | null;
  /** Unit in which the device measures occupancy. */
  unit: string;
};

/** The span of time of a response. */
export type Range = {
  /** Start of the span, nanoseconds since the Unix epoch: the requested one, rounded to a whole minute. */
  from: number;
  /** End of the span, likewise; not included in it. */
  to: number;
  /** True if the span has more flows, nodes or queues than are considered; the others are on no page. */
  truncated: boolean;
};

/** The response of `/rates`: rates of the last minutes. */
export type RateHistory = {
  /** One entry per second, at most the last 15 minutes, oldest first. */
  rates: Array<RatesThen>;
};

/** Mean rates of the last five seconds. */
export type Rates = {
  /** Datagrams received per second. */
  datagrams: number;
  /** Events per second, of any kind. */
  events: number;
  /** Reports received per second. */
  reports: number;
};

/** Rates at one time. */
export type RatesThen = {
  /** Datagrams received per second. */
  datagrams: number;
  /** Events per second, of any kind. */
  events: number;
  /** Reports received per second. */
  reports: number;
  /** Time, nanoseconds since the Unix epoch. */
  ts: number;
};

/** The name of a drop reason. */
export type ReasonName = {
  /** Code of the device. */
  code: number;
  /** Name of the reason. */
  name: string;
};

/** The event that caused the recording of reports. */
export type Recording = {
  /** One report of this many was stored. */
  every: number;
  /** Flow of the event. */
  flow: Flow | null;
  /** Id of the event: 16 hexadecimal digits. */
  id: string;
  /** Kind of the event. */
  kind: "new" | "change" | "path_change" | "path_loop" | "rule_on" | "rule_off" | "drop" | "loss" | "expired" | "hop_limit" | "mtu" | "latest" | "packet_loss";
  /** True if a part was no longer in memory, so that reports are missing. */
  late: boolean;
  /** Metric of the event. */
  metric: "flow_path" | "flow_latency" | "hop_latency" | "queue_occupancy" | "queue_congestion" | "link_utilization" | null;
  /** Node of the event. */
  node: number | null;
  /** Queue of the event. */
  queue: number | null;
  /** Number of recorded reports that concern the event's subject. */
  reports: number;
  /** Name of the rule that became true. */
  rule: string | null;
  /** Reports are recorded from this receive time on, nanoseconds since the Unix epoch. */
  since: number;
  /** Time at which the event was observed, nanoseconds since the Unix epoch. */
  ts: number;
  /** Reports are recorded up to this receive time, nanoseconds since the Unix epoch. */
  until: number;
  /** Value of the event, in the unit of the metric. */
  value: number | null;
};

/** The response of `/recordings`: recordings of the flight recorder. */
export type Recordings = {
  /** The flight recorder since the start; null if it is off. */
  recorder: FlightRecorder | null;
  /** Recordings in descending order of time. */
  recordings: Array<Recording>;
  /** Whether there are more. */
  truncated: boolean;
};

/** The response of `/config/reload`. */
export type Reload = {
  /** Always true: a configuration that is refused is an error response. */
  reloaded: boolean;
  /** Changed settings that take effect only after a restart. */
  restart_required: Array<string>;
};

/** `/api/v1/reporter`: `received = reports + refused + suppressed + queue_full`, and, with the sums over `collectors`, `reports + retransmitted = sent + unsent + retransmit_buffered + overwritten`. */
export type Reporter = {
  /** The collectors to which it reports. */
  collectors: Array<ReporterCollector>;
  /** Address that receives control messages. */
  control: string;
  /** Control messages of translators that were processed. */
  controls: number;
  /** Control messages that are malformed, for another reporter, or from an unknown peer. */
  controls_refused: number;
  /** Reporter ID in the reports. */
  id: number;
  /** Path or address to which programs send reports. */
  listen: string;
  /** Reports dropped because the send queue was full. */
  queue_full: number;
  /** Failed attempts to receive from programs. */
  receive_errors: number;
  /** Datagrams of programs received. */
  received: number;
  /** Datagrams of programs that are no report, by reason. */
  refused: NamedCounts;
  /** Reports originated, without retransmissions. */
  reports: number;
  /** Datagrams sent to translators. */
  sent: number;
  /** Reports suppressed because of congestion. */
  suppressed: number;
  /** Datagrams that the kernel refused. */
  unsent: number;
};

/** Reports to a collector. */
export type ReporterCollector = {
  /** Address of the translator. */
  address: string;
  /** Congestion, 0 to 3. */
  congestion_level: number;
  /** Number of essential reports originated. */
  essential: number;
  /** Number of NACKs processed. */
  nacks: number;
  /** NACKs ignored: for a gap already being retransmitted, beyond the limit of retransmissions, or about reports never sent. */
  nacks_ignored: number;
  /** Essential reports overwritten before they were acknowledged. */
  overwritten: number;
  /** NACKs that refuse a report: no such store or list, or malformed. */
  refused: number;
  /** Essential reports in the retransmit buffer. */
  retransmit_buffered: number;
  /** Reports sent again, after a NACK or because none followed. */
  retransmitted: number;
  /** Reports that the translator dropped, by its own count. */
  translator_drops: number;
  /** Reports that a NACK requested and that were no longer in the retransmit buffer. */
  unavailable: number;
};

/** Reports of a node that did not arrive as they were sent. */
export type ReporterLoss = {
  /** Reports that arrived twice. */
  duplicated: number;
  /** Reports that never arrived, by their sequence numbers. */
  lost: number;
  /** Node id, or null if unknown. */
  node: number | null;
};

/** Role of a requester. */
export type Role = "read" | "operate";

/** One metric of one key over one interval. */
export type Rollup = {
  /** Number of values in the interval. */
  count: number;
  /** Flow as text, if the values are those of a flow. */
  flow: string | null;
  /** Id of the interface, if the values are those of a link. */
  interface: number | null;
  /** Length of the interval, seconds. */
  interval: number;
  /** Largest value, in the unit of the metric. */
  max: number;
  /** Metric of the values. */
  metric: "flow_path" | "flow_latency" | "hop_latency" | "queue_occupancy" | "queue_congestion" | "link_utilization";
  /** Smallest value, in the unit of the metric. */
  min: number;
  /** Node id, if the values are those of a node. */
  node: number | null;
  /** Median of the values, in the unit of the metric. */
  p50: number | null;
  /** 99th percentile of the values, in the unit of the metric. */
  p99: number | null;
  /** Id of the queue, if the values are those of a queue. */
  queue: number | null;
  /** Sum of the values, in the unit of the metric. */
  sum: number;
  /** Start of the interval, nanoseconds since the Unix epoch. */
  ts: number;
};

/** The response of `/rollups`: stored rollups. */
export type Rollups = {
  /** Rollups in ascending order of time. */
  rollups: Array<Rollup>;
  /** True when the limits left out older ones. */
  truncated: boolean;
};

/** The response of `/query`. */
export type Rows = {
  /** Names of the columns. */
  columns: Array<string>;
  /** Duration of the query, milliseconds. */
  elapsed_ms: number;
  /** Remarks on the response. */
  notes: Array<string>;
  /** Rows; a cell is a string, a number or null. */
  rows: Array<Array<unknown>>;
  /** True when there are more rows than the limits allow. */
  truncated: boolean;
};

/** A rule that a manager sets on a switch. */
export type Rule = {
  /** DSCP that marks packets with INT, 1 to 63. */
  dscp: number;
  kind: "encoding";
  /** `update`, `leave` or `zero`. */
  l4_checksum: string;
} | {
  /** Address and UDP port of the collector. */
  collector: string;
  kind: "session";
} | {
  kind: "dta_map";
  /** The map, as `hopwise map` writes it. */
  map: unknown;
} | {
  kind: "sink";
  /** Number of the port. */
  port: number;
} | {
  /** Bit of the instruction, 0 (the most significant) to 15. */
  bit: number;
  kind: "instruction";
} | {
  /** `noop`, `per_hop`, `per_flow`, `change` or `rule`. */
  algorithm: string;
  /** Flows that the filter applies to. */
  flows: RuleFlows;
  kind: "filter";
  /** The metric that is compared. */
  metric: string;
  /** The condition, if the algorithm is `rule`. */
  rule?: string | null;
  /** A greater difference is reported, in the metric's unit. */
  threshold: number;
} | {
  kind: "forwarding";
} | {
  kind: "source";
  /** Number of the port. */
  port: number;
} | {
  /** Instruction bitmap of the INT header. */
  bits: number;
  /** Dropped packets are reported. */
  drops: boolean;
  /** Flows that the entry matches. */
  flows: RuleFlows;
  /** Remaining hop count at the source. */
  hops: number;
  kind: "watch";
  /** `md`, `mx`, `postcard` or `sf`. */
  mode: string;
  /** One packet of this many is measured. */
  sample: number;
};

/** A change of a switch's rules. */
export type RuleChange = {
  add: Rule;
} | {
  remove: Rule;
};

/** Changes of a switch's rules, with the election of their writer. */
export type RuleChanges = {
  /** The changes in order; all are executed, or none. */
  changes: Array<RuleChange>;
  /** The election with which the writer claimed the switch. */
  election: Election;
};

/** The answer to a rule that was enabled. */
export type RuleEnabled = {
  /** True if it is evaluated and in the configuration file. */
  enabled: boolean;
  /** Reason why the rule is not enabled, or null if it is. */
  reason: string | null;
  /** The text in the configuration file, or to be added there. */
  text: string;
};

/** Flows: a packet must match every key that is given. */
export type RuleFlows = {
  /** First and last destination port. */
  dport?: Array<unknown> | null;
  /** DSCP of the IP header, 0 to 63. */
  dscp?: number | null;
  /** Destination network, in CIDR notation. */
  dst?: string | null;
  /** Protocol number of the IP header. */
  proto?: number | null;
  /** First and last source port. */
  sport?: Array<unknown> | null;
  /** Source network, in CIDR notation. */
  src?: string | null;
};

/** The requester's role, and the token's name. */
export type SessionView = {
  /** In a console: addresses of the pages of collectors, by their names, as configured. */
  collectors?: Record<string, string>;
  /** Whether this is a console, which answers from ClickHouse and has no live state. */
  console: boolean;
  /** The name of the token; null if it has none, or none is needed. */
  name: string | null;
  /** Whether the API needs a token. */
  needs_token: boolean;
  /** `read`: every request that only reads. `operate`: every request. */
  role: Role;
};

/** A silence: exports that notify people (webhook, Alertmanager, syslog) leave out the alerts that it covers. */
export type Silence = {
  /** Whether the silence is active now. */
  active: boolean;
  /** The name of the token, otherwise the name in the request. */
  by: string;
  /** Reason for the silence, as entered. */
  comment: string;
  /** Filter of events that selects the alerts. */
  filter: string;
  /** Start, nanoseconds since the Unix epoch. */
  from: number;
  /** Number of the silence, used to end it. */
  id: number;
  /** End, nanoseconds since the Unix epoch. */
  until: number;
};

/** The response of `/alerts/silences`. */
export type Silences = {
  /** Active silences and those that ended in the last week, newest first. */
  silences: Array<Silence>;
};

/** Result of a sketch query. */
export type SketchAnswer = {
  /** False when columns of different epochs may be mixed. */
  certain: boolean;
  /** … with this probability. */
  confidence: number | null;
  /** The epoch of the answer. */
  epoch: SketchEpoch;
  /** Epochs in memory, newest first. */
  epochs: Array<SketchEpoch>;
  /** Upper bound of the error, … */
  error: number | null;
  /** Estimate of the query; absent for a sample. */
  estimate: number | null;
  /** The key, if one was given. */
  key: string | null;
  /** Kind of query: count (of a key), distinct (items), sampled_from (number of items that the sample represents). */
  question: string;
  /** For a sample: the requested number of sampled items. */
  samples: Array<number>;
  /** Kind of sketch: count-min, count, hyperloglog or aroma. */
  sketch: string;
  /** Name of the sketch. */
  store: string;
};

/** An epoch of a sketch. */
export type SketchEpoch = {
  /** Columns that were written. */
  columns: number;
  /** Number of the epoch. */
  epoch: number;
  /** Reporters that were merged. */
  reporters: number;
};

/** A snapshot of a store. */
export type Snapshot = {
  /** Bytes of the file. */
  bytes: number;
  /** Name of the file. */
  file: string;
  /** Name of the store. */
  store: string;
  /** Slots that were being written at each attempt to read them, and are empty in the copy; absent for a snapshot of an earlier process. */
  torn: number | null;
  /** Start time, nanoseconds since the Unix epoch. */
  ts: number;
};

/** The stores of which to take a snapshot. */
export type SnapshotRequest = {
  /** Names of stores; none: those of the schedule, or all. */
  stores?: Array<string>;
};

/** The response of `/dta/snapshots`. */
export type Snapshots = {
  /** The snapshots on disk, newest first, or those that were just taken. */
  snapshots: Array<Snapshot>;
};

/** A sequence-numbered stream of reports, or an address without a readable report. */
export type Source = {
  /** False when the sequence number has not advanced (also after one report only), or is that of several nodes; then `lost` is meaningless. */
  countable: boolean;
  /** Number of reports received more than once. */
  duplicated: number;
  /** Subsystem of the node. */
  hw_id: number | null;
  /** Receive time of the latest report, nanoseconds since the Unix epoch. */
  last_seen: number;
  /** Reports lost before the collector. */
  lost: number;
  /** Several nodes send from this address, and their reports do not say which. */
  mixed: boolean;
  /** Name of the node, as configured. */
  name: string | null;
  /** Node id, or null if the reports do not carry it. */
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
  /** Reports missing in addition, more than those received support: not counted as lost. */
  unconfirmed: number;
  /** Version of the reports. */
  version: string;
};

/** Last value, smallest, largest and quantiles; null where nothing was measured. */
export type Spread = {
  /** The last measured value. */
  latest: number | null;
  /** The largest measured value. */
  max: number | null;
  /** The smallest measured value. */
  min: number | null;
  /** Median of the values. */
  p50: number | null;
  /** 99th percentile of the values. */
  p99: number | null;
};

/** The body of `/query`. */
export type SqlQuery = {
  /** Only files with records at or after, nanoseconds since the Unix epoch. */
  from?: number | null;
  /** Maximum number of rows; at most `[api] query_rows`. */
  limit?: number | null;
  /** A single SELECT statement. */
  sql: string;
  /** Only files with records at or before, nanoseconds since the Unix epoch. */
  to?: number | null;
};

/** One stage of the loss budget: `in = out + sum of drops + queued`. */
export type Stage = {
  /** Number of dropped units, by reason. */
  drops: NamedCounts;
  /** Support for `lost`; null for stages other than `network`. */
  evidence: Evidence | null;
  /** Number of units that entered the stage. */
  in: number;
  /** Number of units that left it successfully. */
  out: number;
  /** Number of units in the stage now. */
  queued: number;
  /** Name of the stage. `nic` exists with interfaces, `fanout` with several workers, `join` with postcards or SF-INT, `export` with exports: all of them together, so that a record that two systems receive counts twice. */
  stage: "network" | "nic" | "kernel" | "fanout" | "decode" | "join" | "state" | "queue" | "store" | "export";
  /** Unit of the counter. */
  unit: "datagrams" | "reports" | "records";
};

/** State of the whole program. */
export type Status = {
  /** True in a console: it receives nothing, so that there are no rates, losses, inputs and tables to show. */
  console?: boolean | null;
  /** Implausible hop latencies, not included in any other metric. */
  implausible_latencies: number;
  /** Sockets and interfaces that receive reports. */
  inputs: Array<Input>;
  /** Losses, stage by stage. */
  loss_budget: Array<Stage>;
  /** Time of the response, nanoseconds since the Unix epoch. */
  now: number;
  /** Accounting of postcards and their joins. */
  postcards: Postcards;
  /** Mean rates of the last five seconds. */
  rates: Rates;
  /** Refused reports by reason, those inside accepted datagrams included. */
  refused: NamedCounts;
  /** State files, such as cursors, that something else replaced while hopwise ran. They are not written until a restart. */
  replaced_files: Array<string>;
  /** Sequence-numbered streams of reports, and addresses without a readable report; at most 512. If there are more, these are those with the most losses and refused reports, then the busiest. */
  sources: Array<Source>;
  /** Number of all these streams and addresses. */
  sources_total: number;
  /** The store; null when it is off. */
  store: Store | null;
  /** Clients of the live stream. */
  streams: Streams;
  /** Tables of bounded size. */
  tables: Array<Table>;
  /** Seconds since the start. */
  uptime_s: number;
  /** Version of the program. */
  version: string;
  /** Worker threads of the collector. */
  workers: Array<Worker>;
};

/** State of the store. */
export type Store = {
  /** Size of all files on disk, bytes. */
  bytes: number;
  /** Number of records committed since the start. */
  committed: number;
  /** Records that could not be written. */
  failed: number;
  /** Number of files of the store. */
  files: number;
  /** Failed attempts to index such a file; until a retry succeeds, queries read the whole file. */
  index_failures: number;
  /** Files written without indexes on events at a high rate, and indexed when they were complete. */
  indexed_later: number;
  /** Time of the last commit, nanoseconds since the Unix epoch. */
  last_commit: number | null;
  /** Reason why the state is not `ok`. */
  message: string | null;
  /** Files that cannot be used or are damaged and are not in `problems`, which lists 64 of them. */
  more_problems: number;
  /** Files removed or replaced by anything but retention while hopwise ran. */
  moved_files: number;
  /** Files that cannot be used or are damaged, as long as they are there, and what happened to files while they were in use. */
  problems: Array<FileProblem>;
  /** Records in the queue. */
  queue: number;
  /** Records of `committed` that were in files that were removed, replaced or set aside. */
  removed: number;
  /** Damaged files that were set aside since the start. */
  set_aside: number;
  /** Records dropped because the queue was full. */
  shed: number;
  /** State of the store. */
  state: "ok" | "full" | "degraded" | "failing" | "closed";
  /** Number of records written since the start. */
  written: number;
};

/** The response of `/dta/stores`. */
export type Stores = {
  /** All stores, in the order of the configuration. */
  stores: Array<MemoryStore>;
};

/** Clients of the live stream. */
export type Streams = {
  /** Number of clients connected now. */
  clients: number;
  /** Number of events sent to clients. */
  sent: number;
  /** Events dropped because a client was too slow. */
  shed: number;
};

/** State of a switch. */
export type Switch = {
  /** DTA reports; null without `[switch.dta]`. */
  dta: SwitchDta | null;
  /** ICMP errors suppressed by the rate limit. */
  errors_suppressed: number;
  /** Filters of the sink. */
  filters: Array<SwitchFilter>;
  /** Counters of INT processing. */
  int: SwitchInt;
  /** Name of the switch, as configured. */
  name: string | null;
  /** Addresses of hosts in the neighbour table. */
  neighbours: number;
  /** Node id in reports and INT metadata. */
  node: number;
  /** State and counters of the ports. */
  ports: Array<SwitchPort>;
  /** Datagrams with reports, by outcome. */
  reports: SwitchReports;
  /** INT roles, as in the configuration. */
  roles: Array<unknown>;
  /** Routes, as in the configuration. */
  routes: Array<Record<string, unknown>>;
  /** Balance of all frames. */
  totals: SwitchTotals;
  /** Watched flows, as in the configuration. */
  watch: Array<Record<string, unknown>>;
};

/** Capabilities of a switch. */
export type SwitchCapabilities = {
  /** Instruction bits that it can fill. */
  bits: number;
  /** It reports by DTA to the collectors of a map from its manager. */
  dta: boolean;
  /** Entries of its filter table. */
  filter_entries: number;
  /** It can measure one packet of N. */
  sampling: boolean;
  /** Entries of its watchlist. */
  watch_entries: number;
};

/** INT counters of a node. */
export type SwitchCounters = {
  /** Counters of packets, by their treatment. */
  int: SwitchInt;
  /** Lease of the manager that configures the switch, or null without `[switch.managed]`. */
  lease: SwitchLease | null;
  /** Entries of the watchlist that packets have matched; empty without `[switch.managed]`. */
  matched: Array<SwitchMatched>;
  /** Node id of the switch. */
  node: number;
  /** Counters of report datagrams, or null without reports. */
  reports: SwitchReports | null;
};

/** DTA reports of a switch. */
export type SwitchDta = {
  /** Unacknowledged reports, and entries pending for a full batch, that were lost when a map with fewer or other collectors arrived. */
  abandoned: number;
  /** The collectors to which it reports. */
  collectors: Array<ReporterCollector>;
  /** Control messages of translators that were processed. */
  controls: number;
  /** Control messages that are malformed, for another reporter, or from an unknown peer. */
  controls_refused: number;
  /** Collectors of the map that the manager sent, or null if there is no map: the switch then uses its own collectors, or waits for a map. */
  map: Array<string> | null;
  /** Reports by mapping, as `[[switch.dta.report]]`. */
  mappings: Array<SwitchDtaMapping>;
  /** Reports originated, without retransmissions. */
  reports: number;
  /** Datagrams sent to translators. */
  sent: number;
  /** Sketches that the switch maintains. */
  sketches: Array<SwitchDtaSketch>;
  /** Tables of counters per key. */
  tables: Array<SwitchDtaTable>;
  /** Datagrams that the kernel refused. */
  unsent: number;
};

/** Reports of a mapping: `operations = sent + pending + suppressed + missing_value + wrong_size + queue_full`. */
export type SwitchDtaMapping = {
  /** Operations without a value, or with an incomplete key. */
  missing_value: number;
  /** Name of the mapping, as configured. */
  name: string;
  /** The trigger of a report. */
  on: string;
  /** DTA operations; for Append, list entries. */
  operations: number;
  /** Entries that wait for a full batch. */
  pending: number;
  /** Operations dropped because the send queue was full. */
  queue_full: number;
  /** Operations that the mapping sent. */
  sent: number;
  /** Operations suppressed because of congestion. */
  suppressed: number;
  /** Operations whose key or value has the wrong size, such as an IPv6 address for a field of four bytes. */
  wrong_size: number;
};

/** A sketch of the switch. */
export type SwitchDtaSketch = {
  /** Columns sent to translators. */
  columns: number;
  /** Packets that the sketch counted. */
  counted: number;
  /** Epochs that the sketch completed. */
  epochs: number;
  /** Columns not sent before the end of the next epoch. */
  expired: number;
  /** ID of the sketch in reports. */
  id: number;
  /** NACKs of translators that were processed. */
  nacks: number;
  /** NACKs ignored: about columns never sent or no longer stored, or beyond the limit of retransmissions. */
  nacks_ignored: number;
  /** Name of the sketch, as configured. */
  name: string;
  /** Columns sent again after a NACK. */
  retransmitted: number;
  /** Columns suppressed because of congestion. */
  suppressed: number;
};

/** A table of counters. */
export type SwitchDtaTable = {
  /** Packets that the table counted. */
  counted: number;
  /** Records evicted by other records. */
  evicted: number;
  /** Name of the table, as configured. */
  name: string;
  /** Periods that the table completed. */
  periods: number;
  /** Records in the table. */
  records: number;
  /** Packets that lack a field of the key. */
  without_key: number;
};

/** A filter of the sink, and its decisions: each packet that it matched is in `reported` or `suppressed`. */
export type SwitchFilter = {
  /** Packets whose register held another flow or node; they were reported as the first of their key. */
  collisions: number;
  /** Packets reported, by reason. */
  reported: SwitchReported;
  /** Settings, as in the configuration. */
  settings: Record<string, unknown>;
  /** Packets that the filter suppressed. */
  suppressed: number;
};

/** INT counters; each packet is in one of the first eight. */
export type SwitchInt = {
  /** Packets whose L4 checksum was examined after INT was stripped: one of 64. */
  checksums_examined: number;
  /** Number of these packets with a wrong checksum, which hosts drop: see `l4_checksum` in `[switch]`. */
  checksums_wrong: number;
  /** Packets reported because they passed a congested queue (`quota`). */
  congested_reported: number;
  /** Number of drop reports. */
  drops_reported: number;
  /** Refused packets that arrived so, and carried more INT, or its mark, behind it: dropped. */
  edge_refused: number;
  /** Packets that arrived with INT from outside the domain: INT was removed, and they are counted again by their further treatment. */
  edge_stripped: number;
  /** Packets at the sink that `[[switch.filter]]` suppressed. */
  filtered: number;
  /** Remaining hop count was zero (E bit). */
  hops_exceeded: number;
  /** Metadata would exceed the MTU (M bit), or INT was not added for this reason. */
  mtu_exceeded: number;
  /** INT was not added because a sink could not restore the packet. */
  not_restorable: number;
  /** Number of packets without INT. */
  plain: number;
  /** Number of queue reports. */
  queues_reported: number;
  /** Packets to which this switch added its metadata. */
  recorded: number;
  /** Packets with malformed or unsupported INT. */
  refused: number;
  /** Number of packets that were reported. */
  reported: number;
  /** SF-INT: packets with metadata of another switch, received or from a register. */
  swapped: number;
};

/** The lease of a switch's manager. */
export type SwitchLease = {
  /** The highest election that claimed the switch. */
  election: Election;
  /** Time since that manager claimed it, changed its rules or renewed the lease, or since the start, ns. */
  silence: number;
};

/** The packets that have matched an entry of a watchlist where the switch measures. */
export type SwitchMatched = {
  /** The flows of the entry. */
  flows: RuleFlows;
  /** Those that were measured; fewer with `sample`. */
  measured: number;
  /** Packets since the entry was added. */
  packets: number;
};

/** A neighbour of a port, as LLDP (IEEE 802.1AB) announces it. */
export type SwitchNeighbour = {
  /** Chassis id of the neighbour. */
  chassis: string;
  /** The description of its port. */
  description: string | null;
  /** Port id of the neighbour, usually the name of an interface. */
  port: string;
  /** Other systems announce themselves on the same link. */
  several: boolean;
  /** System name of the neighbour, or its chassis id if it announces none. */
  system: string;
  /** Seconds for which an announcement is valid. */
  ttl: number;
};

/** State of a port. */
export type SwitchPort = {
  /** Frames dropped at this port, by reason. */
  drops: NamedCounts;
  /** Reason why the interface does not work; null while it works. */
  failed: string | null;
  /** Queue of frames that arrive at the port. */
  ingress_queue: SwitchQueue;
  /** Network interface of the port. */
  interface: string;
  /** MAC address; hosts send to it. */
  mac: string;
  /** MTU in effect, bytes. */
  mtu: number;
  /** The neighbour from received LLDP; null if there is none, or `lldp` is false. */
  neighbour: SwitchNeighbour | null;
  /** Number of the port, as configured. */
  number: number;
  /** Queue of frames that leave through the port. */
  queue: SwitchQueue;
  /** Frames received on this port. */
  received: number;
  /** Bytes of these frames. */
  received_bytes: number;
  /** Frames dropped under overload before they were read; not part of `received`. */
  ring_full: number;
  /** Frames sent on this port. */
  sent: number;
  /** Bytes of these frames. */
  sent_bytes: number;
  /** Settings, as in the configuration. */
  settings: Record<string, unknown>;
};

/** State of a queue. */
export type SwitchQueue = {
  /** Bytes in the queue now. */
  bytes: number;
  /** Frames in the queue now. */
  frames: number;
  /** Largest number of bytes that were queued. */
  max_bytes: number;
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
  /** Packets without a value that the filter needs. */
  missing_value: number;
};

/** Counters of datagrams with reports. */
export type SwitchReports = {
  /** Number of datagrams sent. */
  sent: number;
  /** Address of the collector, or null without one. */
  to: string | null;
  /** Datagrams not sent: no address is known, or the kernel refused them. */
  unsent: number;
};

/** Rules of a managed switch. */
export type SwitchRules = {
  /** Features and table sizes of the switch. */
  capabilities: SwitchCapabilities;
  /** The highest election that claimed the switch. */
  election: Election;
  /** Version of the rules; claims, changes and restarts change it. */
  etag: string;
  /** Whether the switch forwards packets. */
  forwarding: boolean;
  /** Name of the switch, as configured. */
  name: string | null;
  /** Changes of the neighbours of ports since the start. */
  neighbour_changes: number;
  /** Node id of the switch. */
  node: number;
  /** Ports of the switch. */
  ports: Array<SwitchRulesPort>;
  /** The active rules, in canonical order. */
  rules: Array<Rule>;
};

/** A port, for a manager. */
export type SwitchRulesPort = {
  /** Whether the port connects hosts, not another switch. */
  edge: boolean;
  /** Name of its network interface. */
  interface: string;
  /** Longest IP packet, bytes. */
  mtu: number;
  /** The neighbour from received LLDP; null if there is none, or `lldp` is false. */
  neighbour: SwitchNeighbour | null;
  /** Number of the port. */
  number: number;
  /** Whether the port is up. */
  up: boolean;
};

/** Every frame: `received + originated = sent + consumed + queued + dropped`. */
export type SwitchTotals = {
  /** True while the balance holds. */
  balanced: boolean;
  /** ARP, neighbour discovery, LLDP and other frames for the switch itself, and intercepted reports. */
  consumed: number;
  /** Frames dropped for any reason. */
  dropped: number;
  /** Frames dropped, by reason. */
  drops: NamedCounts;
  /** DTA reports with VLAN tags, which are forwarded instead of intercepted. */
  intercept_tagged: number;
  /** Consumed frames that were DTA reports for the translator of this process. */
  intercepted: number;
  /** ARP, neighbour discovery, ICMP and LLDP frames that the switch sent itself, and messages of a translator to reporters. */
  originated: number;
  /** In queues, on links, or waiting for address resolution. */
  queued: number;
  /** Frames received on all ports. */
  received: number;
  /** Originated frames that were messages of the translator to reporters. */
  replies: number;
  /** Messages to reporters without a route, or longer than the MTU; not part of `originated`. */
  replies_refused: number;
  /** Frames dropped under overload before they were read; not part of `received`. */
  ring_full: number;
  /** Frames sent on all ports. */
  sent: number;
};

/** Usage of a table of bounded size. */
export type Table = {
  /** Maximum number of entries. */
  capacity: number;
  /** Entries replaced by newer ones. */
  evicted: number;
  /** Name of the table. */
  name: string;
  /** Entries refused because the table was full. */
  refused: number;
  /** Number of entries in use. */
  used: number;
};

/** `/traffic`: values over time, stacked by groups. */
export type Traffic = {
  /** Dimensions by which values are grouped. */
  by: Array<string>;
  /** Length of a column, ns. */
  column: number;
  /** Columns before this time were not counted, because the span has more data than one response reads; null if all were counted. */
  counted_from: number | null;
  /** True if values are counts, which can be stacked. False if values are measurements: a column has their mean. */
  counts: boolean;
  /** Beginning of the first column, nanoseconds since the Unix epoch. */
  from: number;
  /** The greatest groups, the greatest first. */
  groups: Array<TrafficRow>;
  /** Later data is not known yet: reports of flows are stored per minute, after its end. The column of this time is incomplete. */
  known_to: number;
  /** Dimensions and fields of the filter that the values lack: such values are grouped as unknown, or do not match. */
  lacks: Array<string>;
  /** Measure to sum. `reports` counts reports of flows as devices send them: fewer than packets where devices sample or filter. With `mode = "kernel"`, it counts samples: reports with a significant change, and one per flow and second. */
  measure: string;
  /** Number of other groups; a lower bound if `truncated`. */
  other_groups: number;
  /** All other groups together. */
  others: TrafficRow;
  /** True if a value may be in several groups, such as all nodes of a path, so that their sum can exceed the total. */
  overlapping: boolean;
  /** End of the last column, nanoseconds since the Unix epoch. */
  to: number;
  /** Everything that matches, each value once. */
  total: TrafficRow;
  /** True if there are more groups, or flows with paths, than are kept separate. Later ones are counted among the others, or as unknown. */
  truncated: boolean;
  /** The unit of values. */
  unit: string;
};

/** A group, or several together. */
export type TrafficRow = {
  /** Number of values in all columns. */
  count: number;
  /** A filter that selects exactly this group, by each dimension, or null if there is none. */
  filters: Array<string | null>;
  /** The group by each dimension, or null if unknown. Empty for several groups together. */
  key: Array<string | null>;
  /** The greatest value; null for counters. */
  max: number | null;
  /** Mean of the values; null for counters. */
  mean: number | null;
  /** The value of each column: a number of reports or events, or a mean; null where nothing was stored at all, where it is not known yet, or where nothing was measured. */
  values: Array<number | null>;
};

/** The translator's state and counters, as `/api/v1/translator` returns them. */
export type Translator = {
  /** True while the balance holds. */
  balanced: boolean;
  /** The collectors to which it writes. */
  collectors: Array<TranslatorCollector>;
  /** Reports completed, by primitive. */
  completed: NamedCounts;
  /** Copies of Key-Write reports. */
  copies: TranslatorCopies;
  /** Reports dropped, by reason. */
  dropped: NamedCounts;
  /** Buffered entries of Append reports. */
  entries: TranslatorBuffer;
  /** Counters of essential reports. */
  essential: TranslatorEssential;
  /** RDMA fetch-and-add operations sent to collectors. */
  fetch_adds: number;
  /** Writes with an immediate value. */
  immediates: number;
  /** Reports that the switch of this process intercepts; null without `intercept`. */
  intercepted: TranslatorIntercepted | null;
  /** Layouts that it accepts: v1, artifact or both. */
  layout: string;
  /** Messages to reporters, by kind. */
  messages: NamedCounts;
  /** Bytes of data in writes and fetch-and-add operations. */
  operation_bytes: number;
  /** Buffered values of Postcarding reports. */
  postcards: TranslatorBuffer;
  /** Reports queued in local memory until there is credit. */
  queued: number;
  /** Bytes of these reports. */
  queued_bytes: number;
  /** Reports received: = completed + dropped + unreadable + queued. */
  reports: number;
  /** Datagrams received where collectors send responses that are not responses. */
  responses_unreadable: NamedCounts;
  /** Reports that could not be decoded, by reason. */
  unreadable: NamedCounts;
  /** Sketches sent to another translator; null without `[translator.upstream]`. */
  upstream: TranslatorUpstream | null;
  /** RDMA writes sent to collectors. */
  writes: number;
};

/** Entries or postcards that the translator buffers to write them together. */
export type TranslatorBuffer = {
  /** Items accepted from reports. */
  accepted: number;
  /** Items that wait in buffers now. */
  buffered: number;
  /** Items dropped when a collector returned with other stores. */
  dropped: number;
  /** Items written to collectors. */
  written: number;
};

/** A collector to which the translator writes. */
export type TranslatorCollector = {
  /** Operations that the collector acknowledged. */
  acknowledged: number;
  /** True while the balance holds. */
  balanced: boolean;
  /** Connections that broke since the start. */
  broken: number;
  /** Number of the collector in reports. */
  collector: number;
  /** Congestion, 0 to 3. */
  congestion_level: number;
  /** Connections established since the start. */
  connections: number;
  /** Datagrams received for this collector. */
  datagrams: number;
  /** Address of its exchange. */
  exchange: string;
  /** Exchange attempts that one side refused, by reason. */
  exchange_refused: NamedCounts;
  /** Whether the collector must prove that it knows the shared secret. */
  exchange_secret: boolean;
  /** Bytes of these packets. */
  frame_bytes: number;
  /** RoCEv2 packets sent, without retransmissions. */
  frames: number;
  /** Operations given up, by reason. */
  given_up: NamedCounts;
  /** Datagrams dropped in the kernel. */
  kernel_drops: number;
  /** Address that receives its reports. */
  listen: string;
  /** Reason that it is not connected. */
  message: string | null;
  /** Operations that the link refused, by reason. */
  refused: NamedCounts;
  /** Operations that need an acknowledgement: = acknowledged + unacknowledged + given_up. */
  reliable: number;
  /** Responses of the collector, by kind. */
  responses: NamedCounts;
  /** Restarts of its memory. */
  restarts: number;
  /** Packets sent more than once. */
  retransmitted: number;
  /** down, up or broken. */
  state: string;
  /** Names of its stores. */
  stores: Array<string>;
  /** Destination of RoCEv2; null while not connected. */
  target: string | null;
  /** Timeouts of the retransmission timer. */
  timeouts: number;
  /** Datagrams longer than the buffer. */
  truncated: number;
  /** Operations not acknowledged yet. */
  unacknowledged: number;
  /** Fetch-and-add operations that may have been done twice. */
  uncertain_fetch_adds: number;
  /** Operations sent without acknowledgement. */
  unreliable: number;
  /** Frames that the kernel refused. */
  unsent: number;
};

/** Copies of Key-Write reports. */
export type TranslatorCopies = {
  /** Copies that the transport refused. */
  dropped: number;
  /** Copies that reports requested. */
  requested: number;
  /** Copies skipped under load. */
  skipped: number;
  /** Copies that were written. */
  written: number;
};

/** Counters of essential reports. */
export type TranslatorEssential = {
  /** Essential reports that were accepted. */
  accepted: number;
  /** Requested by a NACK and never received. */
  lost: number;
  /** Reporters whose sequence numbers are tracked. */
  reporters: number;
  /** Restarts of reporters that were detected. */
  restarts: number;
};

/** Reports that the switch of this process intercepts. */
export type TranslatorIntercepted = {
  /** Destinations whose reports the translator intercepts. */
  destinations: Array<string>;
  /** Messages to reporters passed to the switch. */
  replies: number;
  /** Messages dropped because the switch did not keep up. */
  replies_dropped: number;
  /** Reports from the switch, included in `reports` of the translator. */
  reports: number;
};

/** The sketches of a section, sent to another translator. */
export type TranslatorUpstream = {
  /** Columns sent for the first time. */
  columns: number;
  /** Epochs of which every column was sent. */
  epochs: number;
  /** Columns not sent before their buffer was needed for another epoch. */
  expired: number;
  /** NACKs that requested columns again. */
  nacks: number;
  /** Reporter ID that the next translator sees. */
  reporter: number;
  /** Columns sent again because of a NACK. */
  retransmitted: number;
  /** Datagrams sent to the next translator. */
  sent: number;
  /** Columns not sent because of congestion, or because they are longer than a report. */
  suppressed: number;
  /** Address of the other translator. */
  to: string;
  /** Datagrams that the kernel refused. */
  unsent: number;
};

/** `/alerts/try`: the alerts that a rule would have caused. */
export type Trial = {
  /** Number of flows for which it was already true at the start of the span. */
  already: number;
  /** True if these counts are upper bounds; `notes` has the reason. */
  at_most: boolean;
  /** Length of a part, nanoseconds. */
  column: number;
  /** Number of times it would have become true in each part. */
  counts: Array<number>;
  /** Stored events that were read. */
  events: number;
  /** The error in the rule, or null if it is valid and was tried. */
  fault: FilterFault | null;
  /** The latest times at which it would have become true, newest first. */
  firings: Array<Firing>;
  /** Number of flows for which it would have become true. */
  flows: number;
  /** The span that was judged, which is shorter than the requested one if that has too many events. */
  from: number;
  /** Limits of this result, as sentences. */
  notes: Array<string>;
  /** Number of times it would have become true. */
  times: number;
  /** End of the span, nanoseconds since the Unix epoch. */
  to: number;
};

/** A receive path that was not used. */
export type Tried = {
  /** Reason why it was not used. */
  reason: string;
  /** Receive path that was tried. */
  rx_path: string;
};

/** The body of `/alerts/try`. */
export type TryRule = {
  /** Start of the span, nanoseconds since the Unix epoch; default: 15 minutes before its end. */
  from?: number | null;
  /** End of the span, nanoseconds since the Unix epoch; default: now. */
  to?: number | null;
  /** The condition, as in `[[rules]]`. */
  when: string;
};

/** Use of a path. */
export type UsedPath = {
  /** Start of its use in the span, nanoseconds since the Unix epoch. */
  first: number;
  /** Flows that took it. */
  flows: number;
  /** End of its use in the span, nanoseconds since the Unix epoch. */
  last: number;
  /** Node ids in forwarding order; null where a node id is unavailable. Empty if the path was not stored. */
  path: Array<number | null>;
  /** Their reports in that time, without those of the current minute. With `mode = "kernel"`, a number of samples: reports with a significant change, and one per flow and second. */
  reports: number;
  /** The part of the time of all paths, from 0 to 1. */
  share: number;
  /** Total time for which they used it, nanoseconds. */
  time: number;
};

/** Counters of a worker thread. */
export type Worker = {
  /** Number of datagrams processed. */
  datagrams: number;
  /** Number of reports processed. */
  reports: number;
  /** Number of the worker, from 0. */
  worker: number;
};
