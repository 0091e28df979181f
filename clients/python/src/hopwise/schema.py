"""Types of the API's responses: dictionaries, as they come. Times are nanoseconds since the Unix epoch.

Made from api/src/openapi.json by scripts/build-python-client; do not edit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypedDict

if TYPE_CHECKING:
    from typing_extensions import NotRequired


EventKind = Literal["new", "change", "path_change", "path_loop", "rule_on", "rule_off", "drop", "loss", "expired", "hop_limit", "mtu", "latest", "packet_loss"]


Metric = Literal["flow_path", "flow_latency", "hop_latency", "queue_occupancy", "queue_congestion", "link_utilization"]


FlowOrder = Literal["last_seen", "latency", "reports"]


class Device(TypedDict):
    """A device, its state and its ports."""

    # Where the driver finds it.
    address: str
    # Capabilities reported by the driver; null if not known yet.
    capabilities: DeviceCapabilities | None
    # Counters of its program since its start, with the names of its pipeline map.
    counters: list[DeviceCounter]
    # Function of a device outside the domain, as text; null for a switch.
    does: str | None
    # The driver that configures it.
    driver: str
    # Number of unexpected rules.
    extra: int
    # Entries of its filters.
    filter_entries: DeviceEntries
    # Entries of other controllers.
    foreign: list[str]
    # Labels of the inventory.
    labels: list[str]
    # Number of missing rules.
    missing: int
    # The name in the inventory.
    name: str
    # The device's node id.
    node: int
    # The ports, by number.
    ports: list[DevicePort]
    # True if INT that reaches it stays inside the domain.
    ready: bool
    # `switch`: a node of the domain; outside it, `aggregator` or `translator`.
    role: str
    # Those of them by rule.
    rule_filters: DeviceEntries
    # Rules as last read, as text; null if never read.
    rules: list[str] | None
    # A sentence, if its reports do not arrive; null otherwise, or if unknown.
    silence: str | None
    # `unreachable`, `connecting`, `reading`, `in_sync`, `drift`, `applying`, `unconfirmed`, `failed` or
    # `standby`.
    state: str
    # The state in one sentence.
    text: str
    # Entries of its watchlist.
    watch_entries: DeviceEntries


class DeviceCapabilities(TypedDict):
    """Capabilities of a device."""

    # Algorithms of its filters.
    filters: list[str]
    # Metadata that it can add to a packet.
    instructions: str
    # Treatments of the L4 checksum that it supports.
    l4_checksum: list[str]
    # Capabilities of the keys of its watchlist: `ipv6`, `prefixes`, `wildcards`, `ranges`, `dscp`.
    matches: list[str]
    # Modes in which it can be source and sink.
    modes: list[str]
    # After a restart: `keeps` its rules, `waits` for its manager, or `forwards` without rules.
    restart: str
    # It can measure one packet of N.
    sampling: bool
    # It can remove INT.
    sink: bool


class DeviceCounter(TypedDict):
    """A counter of a device."""

    # Description of that object, such as the rule of a filter and its flows; null if unknown.
    about: str | None
    # Meaning of the counter.
    name: str
    # The filter, mapping or the like of the program that it belongs to, such as `filter 3`; null for the device
    # itself. Objects that have counted nothing are left out.
    object: str | None
    # Packets that were counted.
    packets: int


class DeviceEntries(TypedDict):
    """Entries of a table of a device."""

    # Entries that belong to none of its rules, such as those of other controllers, as last read.
    others: int
    # Entries that fit, of all controllers together.
    size: int
    # Entries of this manager.
    used: int


class DeviceNeighbour(TypedDict):
    """A neighbour of a port, as LLDP announces it."""

    # Reason why this neighbour is not a link, or null if it is one.
    note: str | None
    # The port id: usually the name of an interface.
    port: str
    # The system name, or the chassis id.
    system: str


class DevicePlan(TypedDict):
    """Changes of one device."""

    # Number of rules to add.
    added: int
    # The changes in the order in which they are applied, as text.
    changes: list[str]
    # The name of the device.
    name: str
    # The device's node id.
    node: int
    # Number of rules to remove.
    removed: int


class DevicePort(TypedDict):
    """A port of a device."""

    # Longest IP packet, bytes.
    mtu: int | None
    # Name of the interface.
    name: str | None
    # The neighbour, from received LLDP.
    neighbour: DeviceNeighbour | None
    # The port was part of a link, and INT may still leave by it: do not connect hosts. The history announces it
    # with `edge_ready`.
    opening: bool
    # The other end: a port of a device, or the hosts that the inventory has there, the first three by name.
    peer: str | None
    # The number of the port.
    port: int
    # `fabric`, `edge`, `unused` or `disputed`.
    role: str
    # It is an INT sink now.
    sink: bool
    # It is an INT source now.
    source: bool


class Devices(TypedDict):
    """All devices with their states."""

    # The devices, by node id.
    devices: list[Device]


class Domain(TypedDict):
    """The domain of devices that carry INT."""

    # True if this manager is active, false if another one has taken over.
    acting: bool
    # Addresses to which devices send reports.
    collectors: list[str]
    # Contradicting facts, as text.
    contradictions: list[str]
    # State copied from the other manager (`[manager] peer`), as a sentence; null if this manager is active or
    # copies nothing.
    copy: str | None
    # Number of devices in the domain.
    devices: int
    # DSCP that marks packets with INT.
    dscp: int
    # DTA collectors of the map that devices get; empty: they have their own.
    dta_collectors: list[str]
    # Names of hosts, for `at.between` of intents: the first thousand.
    hosts: list[str]
    # Number of devices in sync.
    in_sync: int
    # Treatment of the L4 checksum of packets with INT.
    l4_checksum: str
    # Links between devices: node and port of both ends.
    links: list[list[int]]
    # Links of the longest path between two edge devices.
    longest_path: int
    # True if changes need approval (`[manager] apply = "manual"`); otherwise they wait only until the network
    # is stable.
    manual: bool
    # All INT was stopped by an operator.
    stopped: bool
    # Links without enough evidence to carry INT, as text: `[[inventory.links]] between = …` accepts one.
    suggestions: list[str]
    # Pending changes, as the text of `/plan`; empty if there are none.
    waits: str


class Event(TypedDict):
    """An event. Values are in the unit of the metric."""

    # Method by which the value was obtained.
    basis: Literal["measured", "hop_sum", "corrected", "unsynchronised", "hop_limit", "timestamps", "topology"]
    # The flow, or null if the event is about a node.
    flow: Flow | None
    # Flow latency of the same report, ns, if the event is the path of a new flow.
    flow_latency: NotRequired[int | None]
    # Hop latencies of the same report, ns, in the order of the path, if the event is the path of a new flow;
    # null where unavailable.
    hop_latencies: NotRequired[list[int | None]]
    # Record id, derived from the content: 16 hexadecimal digits.
    id: str
    # Id of the interface, if the event is about one.
    interface: int | None
    # Kind of the event.
    kind: Literal["new", "change", "path_change", "path_loop", "rule_on", "rule_off", "drop", "loss", "expired", "hop_limit", "mtu", "latest", "packet_loss"]
    # Method by which the flow latency was obtained.
    latency_basis: NotRequired[Literal["measured", "hop_sum", "corrected", "unsynchronised", "hop_limit", "timestamps", "topology"] | None]
    # The metric that changed.
    metric: Literal["flow_path", "flow_latency", "hop_latency", "queue_occupancy", "queue_congestion", "link_utilization"] | None
    # Node id, if the event is about a node.
    node: int | None
    # Node ids in forwarding order; null where a node id is unavailable.
    path: list[int | None]
    # Value reported before, in the unit of the metric.
    previous: int | None
    # Id of the queue, if the event is about one.
    queue: int | None
    # Drop reason, the code of the device.
    reason: int | None
    # Name of the reason, where the profiles agree on one.
    reason_name: str | None
    # Rule that became true or false.
    rule: str | None
    # The flow as text.
    text: str | None
    # Threshold that was exceeded, in the unit of the metric.
    threshold: int | None
    # Receive time, nanoseconds since the Unix epoch.
    ts: int
    # New value, in the unit of the metric.
    value: int | None


class Events(TypedDict):
    """The response of `/events`: a page of stored events."""

    # Events in descending order of time.
    events: list[Event]
    # `after` of the next page; null when there are no more.
    next: str | None


class Evidence(TypedDict):
    """Support for the losses in the network. A datagram received supports the loss of 128 others of its
    stream."""

    # Datagrams received in the streams in which any are missing.
    datagrams: int
    # Datagrams missing beyond that: after a long outage that has just ended, or because of forged sequence
    # numbers. Neither in `in` nor in `drops`.
    unconfirmed: int


class Export(TypedDict):
    """One stream of one export. `read` = `delivered` + `left_out` + `rejected` + `held`."""

    # Bytes of one batch, at most.
    batch_size: int
    # When these were counted.
    counted: int
    # Records that the server has stored.
    delivered: int
    # Records that the store, or Kafka, deleted before they were sent; of hops, those of files that were deleted
    # or damaged.
    expired: int
    # The export: NAME of `[exports.NAME]`.
    export: str
    # Requests that failed in a way that may pass.
    failed: int
    # Records in memory, neither delivered nor rejected yet.
    held: int
    # The system that receives.
    kind: str
    # Error of the last request, until one succeeds.
    last_error: str | None
    # When a request was last answered for each of its records.
    last_success: int | None
    # Records that do not apply to this system, such as events that are not alerts; of an outlet, offsets
    # without a message.
    left_out: int
    # Bytes of its batches, requests and hops in memory.
    memory: int
    # Bytes that it may hold: its part of the memory of all exports.
    memory_limit: int
    # Time of the oldest record in memory: how far this export lags.
    oldest: int | None
    # The partition of the stream's topic, for an outlet; null for an export. An outlet reads Kafka instead of
    # the store.
    partition: int | None
    # Records read from the store since the start.
    read: int
    # Requests that were refused for their content.
    refused: int
    # Records permanently rejected by the server, and for an outlet messages that cannot be read; they are saved
    # to a file, with the reason.
    rejected: int
    # Records that were sent again.
    repeated: int
    # Number of requests sent.
    requests: int
    # Times that the store's count of records, or a partition, was reset; the number of records lost then is
    # unknown.
    restarted: int
    # Address of the system: host and port.
    server: str
    # Hops dropped because the system accepted them more slowly than they arrived.
    shed: int
    # Number of silenced alerts among these.
    silenced: int
    # Name of the stream, such as `events`.
    stream: str
    # Requests without an answer in time.
    timed_out: int
    # Requests that were refused for their credentials.
    unauthorised: int
    # Times that the cursor could not be saved.
    unsaved: int
    # Rejected records that could not be written to that file.
    unwritten: int
    # Committed records in the store that are still pending, including those in memory.
    waiting: int


class Exports(TypedDict):
    """The exports of a process."""

    # Each stream of each export.
    exports: list[Export]
    # Bytes that all of them may hold together.
    memory: int
    # All of them as a stage of the loss budget.
    stage: Stage


class FileProblem(TypedDict):
    """A problem of a file of the store."""

    # Name of the file in the store's directory.
    file: str
    # When it was found, nanoseconds since the Unix epoch.
    found: int
    # Kind of the problem.
    kind: Literal["unreadable", "damaged", "removed", "replaced"]
    # The reason and the remedy.
    message: str
    # Records that this process stored in the file and that are no longer in the store.
    records: int


class Flow(TypedDict):
    """A 5-tuple. When only the Flow ID is known, `src` holds it (`flow-id:0x0000f10a`) and `dst` is empty."""

    # Destination port; null where the packet had none.
    dport: int | None
    # Destination address; empty if only the Flow ID is known.
    dst: str
    # Protocol number of the IP header, such as 6 for TCP.
    proto: int
    # Source port; null where the packet had none.
    sport: int | None
    # Source address, or the Flow ID.
    src: str


class FlowDetail(TypedDict):
    """A flow with its hops in forwarding order."""

    # Method by which the latency was obtained.
    basis: Literal["measured", "hop_sum", "corrected", "unsynchronised", "hop_limit", "timestamps", "topology"]
    # Receive time of the first report, nanoseconds since the Unix epoch; of a span of time, the beginning of
    # its minute, ten minutes or hour.
    first_seen: int
    # The 5-tuple of the flow.
    flow: Flow
    # Latest latency, nanoseconds; of a span of time, the largest.
    flow_latency: int | None
    # Hops in forwarding order.
    hops: list[Hop]
    # Flow id: 16 hexadecimal digits.
    id: str
    # True where the path may lack nodes: it is only known from packets whose hop limit, MTU or room of an IOAM
    # trace was exhausted, or from a node that reported its queue.
    incomplete: NotRequired[bool | None]
    # The intents that its reports serve; absent without a manager in this process.
    intents: NotRequired[list[str] | None]
    # Receive time of the latest report, nanoseconds since the Unix epoch; of a span of time, the end of its
    # minute, ten minutes or hour.
    last_seen: int
    # Latencies of the span of time, if one was asked for.
    latencies: NotRequired[Latencies | None]
    # Node ids in forwarding order; null where a node id is unavailable.
    path: list[int | None]
    # Method by which the order of the path was obtained.
    path_basis: NotRequired[Literal["measured", "hop_sum", "corrected", "unsynchronised", "hop_limit", "timestamps", "topology"] | None]
    # Nodes of the path: more than in `path` when `truncated`.
    path_length: int
    # The span of time, if one was asked for: then a hop has the latency that was reported last before its end,
    # and nothing else.
    range: NotRequired[Range | None]
    # Reports so far, or of the span of time; in the latter with `mode = "kernel"`, a number of samples: reports
    # with a significant change, and one per flow and second.
    reports: int
    # The 5-tuple as text.
    text: str
    # True when not every hop of the path is stored: the table `hops` was full.
    truncated: bool


class FlowState(TypedDict):
    """Latest state of a flow."""

    # Method by which the latency was obtained.
    basis: Literal["measured", "hop_sum", "corrected", "unsynchronised", "hop_limit", "timestamps", "topology"]
    # Receive time of the first report, nanoseconds since the Unix epoch; of a span of time, the beginning of
    # its minute, ten minutes or hour.
    first_seen: int
    # The 5-tuple of the flow.
    flow: Flow
    # Latest latency, nanoseconds; of a span of time, the largest.
    flow_latency: int | None
    # Flow id: 16 hexadecimal digits.
    id: str
    # True where the path may lack nodes: it is only known from packets whose hop limit, MTU or room of an IOAM
    # trace was exhausted, or from a node that reported its queue.
    incomplete: NotRequired[bool | None]
    # Receive time of the latest report, nanoseconds since the Unix epoch; of a span of time, the end of its
    # minute, ten minutes or hour.
    last_seen: int
    # Latencies of the span of time, if one was asked for.
    latencies: NotRequired[Latencies | None]
    # Node ids in forwarding order; null where a node id is unavailable.
    path: list[int | None]
    # Method by which the order of the path was obtained.
    path_basis: NotRequired[Literal["measured", "hop_sum", "corrected", "unsynchronised", "hop_limit", "timestamps", "topology"] | None]
    # Nodes of the path: more than in `path` when `truncated`.
    path_length: int
    # Reports so far, or of the span of time; in the latter with `mode = "kernel"`, a number of samples: reports
    # with a significant change, and one per flow and second.
    reports: int
    # The 5-tuple as text.
    text: str
    # True when not every hop of the path is stored: the table `hops` was full.
    truncated: bool


class Flows(TypedDict):
    """The response of `/flows`: a page of flows."""

    # Time as of which flows were sorted, filtered and counted, nanoseconds since the Unix epoch: at most 1 µs
    # ago for each flow of a worker, and the time it took to read them. Their values are current.
    as_of: int
    # `true` if more flows may match than `total`, because the filter uses values of nodes, which are looked up
    # for a part of the flows at a time. A page may then have fewer flows than its limit; continue at `next`.
    at_least: NotRequired[bool | None]
    # Flows that match, largest first.
    flows: list[FlowState]
    # `after` of the next page; null on the last.
    next: str | None
    # The span of time, if one was asked for; otherwise the response is about now.
    range: NotRequired[Range | None]
    # Number of matching flows. A flow that was evicted and returned during the count is counted twice.
    total: int


class History(TypedDict):
    """A flow over time."""

    # Paths, each with the time of its first report.
    paths: list[PathSince]
    # Latencies over time. A point without a latency and hops begins a time without reports, which lasts to the
    # next point.
    series: list[HistoryPoint]
    # True when there are more points than the limit.
    truncated: bool


class HistoryPoint(TypedDict):
    """Latencies of a flow at one time."""

    # Method by which the latency was obtained.
    basis: Literal["measured", "hop_sum", "corrected", "unsynchronised", "hop_limit", "timestamps", "topology"]
    # Flow latency at that time, nanoseconds.
    flow_latency: int | None
    # Latency of each node.
    hops: list[HopLatency]
    # Time, nanoseconds since the Unix epoch.
    ts: int


class Hop(TypedDict):
    """One hop of a flow: the values that the flow's latest packet carried, and beside them the latest of its
    queue and link."""

    # Id of the egress interface.
    egress_if: int | None
    # Time inside the node, nanoseconds.
    hop_latency: int | None
    # Hop latency of the latest report, nanoseconds, if it is implausible, rounded down to 18 significant bits;
    # `hop_latency` is null then. It is longer than `max_hop_latency` of the profile, or its timestamps are
    # wrong: the ingress is 0, or later than the egress. It is in no other number.
    implausible_latency: NotRequired[int | None]
    # Id of the ingress interface.
    ingress_if: int | None
    # Age of that value, seconds.
    latest_link_age_s: int | None
    # Latest utilization of the egress link as a fraction of 1, from a packet of any flow.
    latest_link_utilization: float | None
    # Age of that value, seconds.
    latest_queue_age_s: int | None
    # Latest occupancy of the queue, from a packet of any flow.
    latest_queue_occupancy: int | None
    # Utilization of the egress link when this flow's packet passed, as a fraction of 1.
    link_utilization: float | None
    # Node id, or null if the packet did not carry it.
    node: int | None
    # Id of the queue that the packet passed.
    queue: int | None
    # Congestion status of the queue when this flow's packet passed, in the unit of the device.
    queue_congestion: int | None
    # Occupancy of the queue when this flow's packet passed, in the unit of the device.
    queue_occupancy: int | None


class HopLatency(TypedDict):
    """Time inside one node."""

    # Time inside the node, nanoseconds.
    latency: int
    # Node id, or null if unavailable.
    node: int | None


class HostName(TypedDict):
    """The name of a host."""

    # One of its addresses.
    address: str
    # Name of the host.
    name: str
    # Source of the name: `file`, the inventory; `dns`, where `[names] dns` is on.
    origin: str


class Input(TypedDict):
    """A listening socket or an interface."""

    # Bytes of these datagrams, without headers; in kernel mode of those passed to user space.
    bytes: int
    # True if datagrams with a wrong UDP checksum are dropped. False with AF_XDP (`xdp-…`), which delivers what
    # the NIC accepts: a report that was damaged on the way is read as it is.
    checksums_verified: bool
    # Number of datagrams received.
    datagrams: int
    # Frames that the interface dropped before the XDP program, for any destination.
    device_drops: int
    # Datagrams addressed to this input and not received, by reason; includes `kernel_drops`.
    drops: NamedCounts
    # Datagrams without a significant change, processed in the kernel (`mode = "kernel"`).
    handled_in_kernel: int
    # Interface; null for a socket.
    interface: str | None
    # Drops in the kernel.
    kernel_drops: int
    # Receive path of the input.
    kind: Literal["udp", "packet", "xdp-generic", "xdp-native", "xdp-zerocopy", "kernel-generic", "kernel-native"]
    # Address or interface, as configured.
    listen: str
    # Reason why it does not receive.
    message: str | None
    # Frames for this input that the XDP program passed to the stack, by reason; a socket receives them.
    passed: NamedCounts
    # Queues of the interface that are read; 0 for a socket.
    queues: int
    # Size of the receive buffer of the socket, bytes.
    receive_buffer: int
    # Times it was reopened.
    reopened: int
    # Faster receive paths that were not used, with the reason.
    tried: list[Tried]
    # Datagrams longer than the buffer.
    truncated: int
    # True while it receives.
    up: bool


class Intent(TypedDict):
    """An intent and its state."""

    # Time of the addition, nanoseconds since the Unix epoch.
    added: int
    # The user who added it.
    by: str
    # Devices that have its entries, or shall have them.
    devices: list[str]
    # End time, nanoseconds since the Unix epoch, or null for never.
    end: int | None
    # The version, for `If-Match`.
    etag: str
    # Flows that matched, among those that the collector knows.
    flows: int
    # Metadata that each node on the path adds.
    instructions: str | None
    # The intent's keys, as in `[[intents]]`.
    intent: dict[str, Any]
    # The mode in which its packets are measured; the modes, where other intents take a part of them.
    mode: str | None
    # The name of the intent.
    name: str
    # Notes for the operator.
    notes: list[str]
    # `file`: in the configuration, and changed only there; `api`: added while running; `drill_down`: installed
    # for a while by the rule of another one.
    origin: str
    # The other intent, of a drill-down.
    parent: str | None
    # Reports of its flows per second.
    rate: float
    # The active rules for its packets, as text: mode, metadata that each node adds, bytes, goodput. The first
    # one applies to most packets.
    rules: list[str]
    # `stopped`, `refused`, `pending`, `installed`, `seen`, `complete` or `silent`.
    state: str
    # The state in one sentence.
    text: str


class IntentCost(TypedDict):
    """Cost of an intent."""

    # Bytes of INT in a packet on the last link, for paths of 1, 2, … links up to the longest.
    bytes: list[int]
    # The basis of the estimate, or the reason why there is none.
    expectation: str
    # Share of a link's capacity that full packets keep on the longest path, 0 to 1.
    goodput: float
    # Metadata that each node on the path adds.
    instructions: str
    # The mode in which its packets will be measured.
    mode: str
    # Their bit/s, or null if not known yet.
    report_bits: float | None
    # Expected reports per second, or null if not known yet.
    reports: float | None


class Intents(TypedDict):
    """All intents with their states."""

    # The intents, by name.
    intents: list[Intent]


class InterfaceName(TypedDict):
    """The name of an interface."""

    # Interface id in INT.
    interface: int
    # Name of the interface.
    name: str


class Latencies(TypedDict):
    """Flow latencies of a span of time."""

    # Largest flow latency, nanoseconds.
    max: int
    # Mean flow latency, nanoseconds.
    mean: int
    # Smallest flow latency, nanoseconds.
    min: int


# A link, learned from paths.
Link = TypedDict(
    "Link",
    {
        "egress_if": "int | None",
        "flows": "int",
        "from": "int",
        "hop_latency": "int | None",
        "ingress_if": "int | None",
        "last_seen": "int",
        "queue_occupancy": "int | None",
        "to": "int",
        "utilization": "float | None",
    },
)


class Links(TypedDict):
    """The response of `/links`: a page of links."""

    # Links by their ends.
    links: list[Link]
    # `offset` of the next page; null on the last.
    next: int | None
    # The span of time, if one was asked for; otherwise the response is about now.
    range: NotRequired[Range | None]


# Counts by name, for example drops by reason.
NamedCounts: TypeAlias = "dict[str, int]"


class Names(TypedDict):
    """Names of nodes, interfaces, hosts and drop reasons."""

    # Drop reasons with a name on which the profiles agree, by code.
    drop_reasons: list[ReasonName]
    # Hosts with a name, by address.
    hosts: list[HostName]
    # Nodes with a name, or with interfaces that have one, by id.
    nodes: list[NodeNames]


class Node(TypedDict):
    """Latest state of a node."""

    # Drop reports of this node.
    drops: int
    # Time inside the node, nanoseconds; quantiles of the last second with values.
    hop_latency: Spread
    # Implausible hop latencies of this node, not included in the numbers above.
    implausible_latencies: int
    # Receive time of the latest, nanoseconds since the Unix epoch; of a span of time, the end of its minute,
    # ten minutes or hour.
    last_seen: int
    # Name of the node, as configured.
    name: str | None
    # Node id, as in reports.
    node: int
    # Queues of the node.
    queues: list[Queue]
    # Reports with a hop of this node.
    reports: int


class NodeNames(TypedDict):
    """Names of a node."""

    # Interfaces of the node that have a name, by number.
    interfaces: list[InterfaceName]
    # Name of the node, or null if it has none.
    name: str | None
    # Node id, as in reports.
    node: int


class Nodes(TypedDict):
    """The response of `/nodes`: a page of nodes."""

    # `after` of the next page; null on the last.
    next: int | None
    # Nodes in ascending order of their ids.
    nodes: list[Node]
    # The span of time, if one was asked for; otherwise the response is about now.
    range: NotRequired[Range | None]


class PathSince(TypedDict):
    """A path and the time of its first report."""

    # Node ids in forwarding order; null where a node id is unavailable.
    path: list[int | None]
    # Time, nanoseconds since the Unix epoch.
    ts: int


class PathUse(TypedDict):
    """A path and its use."""

    # Flows on this path.
    flows: int
    # Node ids in forwarding order; null where a node id is unavailable.
    path: list[int | None]
    # Reports of flows on this path, since the path is known; in a span of time, those of minutes at whose end a
    # flow had it.
    reports: int


class Paths(TypedDict):
    """The response of `/paths`: a page of paths."""

    # `offset` of the next page; null on the last.
    next: int | None
    # Paths, most used first.
    paths: list[PathUse]
    # The span of time, if one was asked for; otherwise the response is about now.
    range: NotRequired[Range | None]


class Plan(TypedDict):
    """Changes from the actual to the desired state."""

    # Cost of the intent; null in a plan that is not for one intent.
    cost: IntentCost | None
    # The changes of each device.
    devices: list[DevicePlan]
    # Notes for the operator.
    notes: list[str]
    # The plan in a few lines.
    text: str


class Postcards(TypedDict):
    """Accounting of postcards: `received = joined + pending + sum of partial + sum of unjoinable`."""

    # Number of aggregates received.
    aggregates: int
    # Postcards whose Flow ID belongs to several flows.
    ambiguous: int
    # Postcards of sets that gave or confirmed a path.
    joined: int
    # Postcards that waited and were not joined, by reason.
    partial: NamedCounts
    # Postcards that wait for others.
    pending: int
    # Number of postcards received.
    received: int
    # Postcards whose Flow ID belongs to one known flow.
    resolved: int
    # Sets that gave or confirmed a path.
    sets: int
    # Number of summaries in aggregates.
    summaries: int
    # Number of postcards in aggregates.
    unfolded: int
    # Postcards that never waited, by reason.
    unjoinable: NamedCounts


class Queue(TypedDict):
    """A queue of a node."""

    # Egress interface of the queue, or null if the reports have none.
    interface: int | None
    # Largest occupancy, in the unit of the device.
    max: int | None
    # Last occupancy, in the unit of the device.
    occupancy: int | None
    # Queue id, or null for all queues of the node, as in summaries.
    queue: int | None
    # Unit in which the device measures occupancy.
    unit: str


# The span of time of a response.
Range = TypedDict(
    "Range",
    {
        "from": "int",
        "to": "int",
        "truncated": "bool",
    },
)


class RateHistory(TypedDict):
    """The response of `/rates`: rates of the last minutes."""

    # One entry per second, at most the last 15 minutes, oldest first.
    rates: list[RatesThen]


class Rates(TypedDict):
    """Mean rates of the last five seconds."""

    # Datagrams received per second.
    datagrams: float
    # Events per second, of any kind.
    events: float
    # Reports received per second.
    reports: float


class RatesThen(TypedDict):
    """Rates at one time."""

    # Datagrams received per second.
    datagrams: float
    # Events per second, of any kind.
    events: float
    # Reports received per second.
    reports: float
    # Time, nanoseconds since the Unix epoch.
    ts: int


class ReasonName(TypedDict):
    """The name of a drop reason."""

    # Code of the device.
    code: int
    # Name of the reason.
    name: str


# Role of a requester.
Role: TypeAlias = "Literal[\"read\"] | Literal[\"operate\"]"


class Rollup(TypedDict):
    """One metric of one key over one interval."""

    # Number of values in the interval.
    count: int
    # Flow as text, if the values are those of a flow.
    flow: str | None
    # Id of the interface, if the values are those of a link.
    interface: int | None
    # Length of the interval, seconds.
    interval: int
    # Largest value, in the unit of the metric.
    max: int
    # Metric of the values.
    metric: Literal["flow_path", "flow_latency", "hop_latency", "queue_occupancy", "queue_congestion", "link_utilization"]
    # Smallest value, in the unit of the metric.
    min: int
    # Node id, if the values are those of a node.
    node: int | None
    # Median of the values, in the unit of the metric.
    p50: int | None
    # 99th percentile of the values, in the unit of the metric.
    p99: int | None
    # Id of the queue, if the values are those of a queue.
    queue: int | None
    # Sum of the values, in the unit of the metric.
    sum: int
    # Start of the interval, nanoseconds since the Unix epoch.
    ts: int


class Rollups(TypedDict):
    """The response of `/rollups`: stored rollups."""

    # Rollups in ascending order of time.
    rollups: list[Rollup]
    # True when the limits left out older ones.
    truncated: bool


class Rows(TypedDict):
    """The response of `/query`."""

    # Names of the columns.
    columns: list[str]
    # Duration of the query, milliseconds.
    elapsed_ms: float
    # Remarks on the response.
    notes: list[str]
    # Rows; a cell is a string, a number or null.
    rows: list[list[Any]]
    # True when there are more rows than the limits allow.
    truncated: bool


class SessionView(TypedDict):
    """The requester's role, and the token's name."""

    # In a console: addresses of the pages of collectors, by their names, as configured.
    collectors: NotRequired[dict[str, str]]
    # Whether this is a console, which answers from ClickHouse and has no live state.
    console: bool
    # The name of the token; null if it has none, or none is needed.
    name: str | None
    # Whether the API needs a token.
    needs_token: bool
    # `read`: every request that only reads. `operate`: every request.
    role: Role


class Source(TypedDict):
    """A sequence-numbered stream of reports, or an address without a readable report."""

    # False when the sequence number has not advanced (also after one report only), or is that of several nodes;
    # then `lost` is meaningless.
    countable: bool
    # Number of reports received more than once.
    duplicated: int
    # Subsystem of the node.
    hw_id: int | None
    # Receive time of the latest report, nanoseconds since the Unix epoch.
    last_seen: int
    # Reports lost before the collector.
    lost: int
    # Several nodes send from this address, and their reports do not say which.
    mixed: bool
    # Name of the node, as configured.
    name: str | None
    # Node id, or null if the reports do not carry it.
    node: int | None
    # Refused datagrams and reports, by reason.
    refused: NamedCounts
    # Reports out of order.
    reordered: int
    # Reports with a sequence number.
    reports: int
    # Restarts of the sequence.
    restarts: int
    # Address of the reporter.
    source: str
    # Reports missing in addition, more than those received support: not counted as lost.
    unconfirmed: int
    # Version of the reports.
    version: str


class Spread(TypedDict):
    """Last value, smallest, largest and quantiles; null where nothing was measured."""

    # The last measured value.
    latest: int | None
    # The largest measured value.
    max: int | None
    # The smallest measured value.
    min: int | None
    # Median of the values.
    p50: int | None
    # 99th percentile of the values.
    p99: int | None


# One stage of the loss budget: `in = out + sum of drops + queued`.
Stage = TypedDict(
    "Stage",
    {
        "drops": "NamedCounts",
        "evidence": "Evidence | None",
        "in": "int",
        "out": "int",
        "queued": "int",
        "stage": "Literal[\"network\", \"nic\", \"kernel\", \"fanout\", \"decode\", \"join\", \"state\", \"queue\", \"store\", \"export\"]",
        "unit": "Literal[\"datagrams\", \"reports\", \"records\"]",
    },
)


class Status(TypedDict):
    """State of the whole program."""

    # True in a console: it receives nothing, so that there are no rates, losses, inputs and tables to show.
    console: NotRequired[bool | None]
    # Implausible hop latencies, not included in any other metric.
    implausible_latencies: int
    # Sockets and interfaces that receive reports.
    inputs: list[Input]
    # Losses, stage by stage.
    loss_budget: list[Stage]
    # Time of the response, nanoseconds since the Unix epoch.
    now: int
    # Accounting of postcards and their joins.
    postcards: Postcards
    # Mean rates of the last five seconds.
    rates: Rates
    # Refused reports by reason, those inside accepted datagrams included.
    refused: NamedCounts
    # State files, such as cursors, that something else replaced while hopwise ran. They are not written until a
    # restart.
    replaced_files: list[str]
    # Sequence-numbered streams of reports, and addresses without a readable report; at most 512. If there are
    # more, these are those with the most losses and refused reports, then the busiest.
    sources: list[Source]
    # Number of all these streams and addresses.
    sources_total: int
    # The store; null when it is off.
    store: Store | None
    # Clients of the live stream.
    streams: Streams
    # Tables of bounded size.
    tables: list[Table]
    # Seconds since the start.
    uptime_s: float
    # Version of the program.
    version: str
    # Worker threads of the collector.
    workers: list[Worker]


class Store(TypedDict):
    """State of the store."""

    # Size of all files on disk, bytes.
    bytes: int
    # Number of records committed since the start.
    committed: int
    # Records that could not be written.
    failed: int
    # Number of files of the store.
    files: int
    # Failed attempts to index such a file; until a retry succeeds, queries read the whole file.
    index_failures: int
    # Files written without indexes on events at a high rate, and indexed when they were complete.
    indexed_later: int
    # Time of the last commit, nanoseconds since the Unix epoch.
    last_commit: int | None
    # Reason why the state is not `ok`.
    message: str | None
    # Files that cannot be used or are damaged and are not in `problems`, which lists 64 of them.
    more_problems: int
    # Files removed or replaced by anything but retention while hopwise ran.
    moved_files: int
    # Files that cannot be used or are damaged, as long as they are there, and what happened to files while they
    # were in use.
    problems: list[FileProblem]
    # Records in the queue.
    queue: int
    # Records of `committed` that were in files that were removed, replaced or set aside.
    removed: int
    # Damaged files that were set aside since the start.
    set_aside: int
    # Records dropped because the queue was full.
    shed: int
    # State of the store.
    state: Literal["ok", "full", "degraded", "failing", "closed"]
    # Number of records written since the start.
    written: int


class Streams(TypedDict):
    """Clients of the live stream."""

    # Number of clients connected now.
    clients: int
    # Number of events sent to clients.
    sent: int
    # Events dropped because a client was too slow.
    shed: int


class Table(TypedDict):
    """Usage of a table of bounded size."""

    # Maximum number of entries.
    capacity: int
    # Entries replaced by newer ones.
    evicted: int
    # Name of the table.
    name: str
    # Entries refused because the table was full.
    refused: int
    # Number of entries in use.
    used: int


class Tried(TypedDict):
    """A receive path that was not used."""

    # Reason why it was not used.
    reason: str
    # Receive path that was tried.
    rx_path: str


class Worker(TypedDict):
    """Counters of a worker thread."""

    # Number of datagrams processed.
    datagrams: int
    # Number of reports processed.
    reports: int
    # Number of the worker, from 0.
    worker: int
