//! The tables of the configuration file. The doc comments are the manual: `docs/reference/config.md` is made from them.

use std::{collections::BTreeMap, net::SocketAddr, path::PathBuf, sync::Arc, time::Duration};

use detect::{PortRange, Prefix};
use rustls::ServerConfig;

use super::values::{FlowIdSetting, LinkSetting, Listen, Marker, NodeRange};
use dta_role::memory::settings::MemorySettings;
use net::tls;
use settings::{
    choice,
    read::{DeValue, Node, Reader},
    section,
    setting::{Chapter, Setting, Shown},
    values::{LatencyThreshold, Protocol, QueueThreshold, Secret, Size, UtilizationThreshold, refuse},
};

section! {
    /// Inputs, workers, and the capacity of every table. These numbers bound all memory.
    pub(crate) struct CollectorSettings("[collector]") {
        /// Receive reports, store them and serve the web UI. Default: yes, unless the file has a `[switch]`, `[aggregator]`,
        /// `[translator]`, `[reporter]` or `[console]` and no `[collector]`.
        pub(crate) enabled: Option<bool> = None,
        /// The name of this collector in records that it exports; no two of a fleet may have the same. Default: the host name.
        pub(crate) name: Option<String> = None,
        /// Inputs. `udp://*:PORT` listens on every address of this machine, IPv4 and IPv6, with a socket and a thread each.
        /// `xdp://INTERFACE` receives reports by AF_XDP, bypassing the kernel's network stack, at several times the rate; see
        /// `[collector.xdp]`. It takes UDP datagrams to port 32766, or to the listed ports, as in `xdp://eth1:32766,5000` (at
        /// most eight); all other traffic passes to the network stack.
        pub(crate) listen: Vec<Listen> = vec![Listen::UdpAny(32766), Listen::UdpAny(32767)],
        /// Who may report. Default: everyone who reaches a listener. See `[[collector.allow]]`.
        pub(crate) allow: Vec<AllowSettings> = Vec::new(),
        /// Open the sockets of `udp://` and of the memory in this network namespace (`ip netns list`), for reports from a management network
        /// that is separate from the rest of the machine. The API stays in the namespace of the program. Entering a namespace
        /// needs root.
        pub(crate) namespace: Option<String> = None,
        /// UDP ports of aggregates, which an aggregator makes of postcards (see `[aggregator]`). Every input decodes
        /// datagrams to these ports as aggregates and datagrams to all other ports as reports. The ports must also be in
        /// `listen`.
        pub(crate) aggregate_ports: Vec<u16> = vec![32767],
        /// Threads that decode reports and hold state. One is enough for any UDP socket: the receiving threads then do this
        /// work themselves, on shared state. With more, reports are distributed by inner flow, so that one busy reporter can
        /// use all workers. A datagram with several reports goes to the worker of its first flow. Each worker tracks nodes,
        /// queues and links on its own, so that a change of one of these can be reported twice.
        pub(crate) workers: usize = 1,
        /// Socket receive buffer to ask the kernel for. The kernel grants at most `net.core.rmem_max` unless the program has
        /// CAP_NET_ADMIN; the granted size is logged at the start.
        pub(crate) receive_buffer: Size = Size(16 << 20),
        /// Datagrams received from a socket at once.
        pub(crate) burst: usize = 64,
        /// Longest datagram; longer ones are truncated and refused.
        pub(crate) datagram: Size = Size(9216),
        /// Datagrams queued per worker (with more than one worker), bytes of memory. The thread of an input may fill as much as
        /// it leaves free; then it waits, and datagrams stay in its socket or ring, where the kernel counts those it drops.
        pub(crate) worker_queue: Size = Size(8 << 20),
        /// Records of each kind (events, rollups, flows, drops, losses) in one batch for the store. The rest is dropped and
        /// counted.
        pub(crate) batch: usize = 4096,
        /// Records queued between the workers and the live stream, bytes. The rest is dropped and counted: routine records
        /// before events, drops and losses. The records of one source may fill as many bytes as are still free.
        pub(crate) result_queue: Size = Size(32 << 20),
        /// Capacity of the flow table, over all workers. When the table is full, a new flow replaces a flow
        /// with one report, or at its second report a flow without one for 30 s.
        pub(crate) max_flows: usize = 262_144,
        /// Capacity of the queue table (node and queue ID), per worker.
        pub(crate) max_queues: usize = 16_384,
        /// Capacity of the link table (node and egress interface), per worker.
        pub(crate) max_links: usize = 16_384,
        /// Capacity of the node table, per worker.
        pub(crate) max_nodes: usize = 4_096,
        /// Reporters (address, node and subsystem) tracked for loss accounting.
        pub(crate) max_sources: usize = 4_096,
        /// A flow, queue or link without reports for this long expires, with an event. While a table of queues, links or nodes is
        /// more than half full, those in excess that had values in one second only expire after 5 s.
        pub(crate) flow_timeout: Duration = Duration::from_secs(60),
        /// Interval at which the latest state of each flow that sends reports is stored and exported, changed or not; `0s` turns it off. A flow that
        /// was silent for longer than one and a half intervals is shown with a gap.
        pub(crate) push_interval: Duration = Duration::from_secs(60),
        /// Linux capabilities that the program retains after the start. `reopen`: those needed to reopen an `xdp://` input,
        /// in the one thread that does so; none without such an input. `none`: none; an interface that disappears and returns
        /// is then read by UDP until a restart. `all`: all that the program was started with.
        pub(crate) capabilities: Capabilities = Capabilities::Reopen,
        /// Receiving by AF_XDP.
        pub(crate) xdp: XdpSettings = XdpSettings::default(),
        /// Reconstruction of paths from SF-INT reports.
        pub(crate) sf: SfSettings = SfSettings::default(),
        /// Reconstruction of paths from postcards.
        pub(crate) postcards: PostcardSettings = PostcardSettings::default(),
        /// Memory that translators write by RDMA.
        pub(crate) memory: Option<MemorySettings> = None,
    }
}

section! {
    /// Senders that may report. Reports are not authenticated: without an entry for a listener, everyone who reaches it can report
    /// any flow and any loss of any node. With an entry, the listener refuses datagrams of all other senders, and counts them as
    /// `sender_not_allowed` or `node_not_allowed`. UDP source addresses can be forged, so routers at the edge should also drop
    /// packets from outside with these addresses. Changes apply at the next start. Not for `xdp://` with `mode = "kernel"`.
    pub(crate) struct AllowSettings("[[collector.allow]]") {
        /// Addresses or networks of senders.
        pub(crate) from: Vec<Prefix> = Vec::new(),
        /// Node IDs in the headers of their datagrams (of an aggregate: the aggregator's), such as `["1-20", 35]`. Empty: any. If
        /// set, a datagram whose header names no node (Report 0.5 without metadata of its own) is refused.
        pub(crate) nodes: Vec<NodeRange> = Vec::new(),
        /// The listeners to which the entry applies, as they are written in `[collector] listen`. Empty: all.
        pub(crate) listen: Vec<Listen> = Vec::new(),
    }
}

section! {
    /// Reconstruction of packet paths from SF-INT reports, each of which holds the record of one node. Only paths proven
    /// complete are reported; see [the design](../design/sf-int.md).
    pub(crate) struct SfSettings("[collector.sf]") {
        /// The Remaining Hop Count that sources write into packets, before they decrement it. With it, completeness of a set
        /// of records is certain. Default: learned from the reports of each profile; this needs some reports, the same value
        /// in all sources of a profile, and a path of more than two nodes.
        pub(crate) hop_limit: Option<u8> = None,
        /// Consecutive sets that must agree on a flow's path before it is reported, at the start of a flow and after a
        /// change.
        pub(crate) confirmations: usize = 2,
        /// Time after which an incomplete set is discarded.
        pub(crate) timeout: Duration = Duration::from_secs(1),
        /// Capacity of the flow table, over all workers: about 300 bytes each.
        pub(crate) max_flows: usize = 65_536,
        /// Capacity of the set table, over all workers: about 140 bytes each, and 64 bytes per record.
        pub(crate) max_sets: usize = 131_072,
        /// Nodes of the longest path, including the sink.
        pub(crate) max_nodes: usize = 16,
    }
}

choice! {
    /// Capabilities that remain after the start.
    pub(crate) enum Capabilities("\"reopen\", \"none\" or \"all\"") {
        /// Those needed to reopen an input.
        Reopen = "reopen",
        /// None.
        None = "none",
        /// All it was started with.
        All = "all",
    }
}

section! {
    /// Joining of postcards (one report per node that a packet passes) into the path and latency that one INT report would
    /// contain. A path is reported only if no node can be missing: each step is one hop limit (TTL) or one of `links`, the first
    /// node is where the packet entered the network, the last where it left. The switches of this program mark both ends in their
    /// postcards; for others, give `links`. Otherwise the values of the nodes are kept without a path. Timestamps of
    /// `clocks = "synchronised"` give the latency.
    pub(crate) struct PostcardSettings("[collector.postcards]") {
        /// Time that a postcard waits for the others of its packet, and for the next after each of them. Must exceed the
        /// aggregator's timer.
        pub(crate) timeout: Duration = Duration::from_millis(100),
        /// Pending postcards, over all workers, about 200 bytes each; 0 turns joining off.
        pub(crate) max_pending: usize = 65_536,
        /// Without a packet in the postcards, postcards whose timestamps differ by at most this belong to one packet: the
        /// longest latency from one node to the next.
        pub(crate) proximity: Duration = Duration::from_millis(1),
        /// Consecutive packets that must take a new path before it is reported.
        pub(crate) confirmations: u32 = 2,
        /// All links between nodes as "NODE:EGRESS-NODE:INGRESS", such as "7:3-5:1", each direction separately. If any are given,
        /// a packet enters and leaves the network by interfaces without a link, and a path that begins or ends on a link lacks
        /// a node and is not reported.
        pub(crate) links: Vec<LinkSetting> = Vec::new(),
        /// Flow IDs that are not the CRC-32C of the 5-tuple, as "ID=FLOW", such as "7=10.0.0.1:5000>10.0.0.2:80/17".
        pub(crate) flow_ids: Vec<FlowIdSetting> = Vec::new(),
    }
}

section! {
    /// How `xdp://` inputs receive. There are five receive paths, from the fastest to the least demanding: `zero-copy` (AF_XDP, the
    /// NIC writes into the program's memory), `native` (AF_XDP, the driver copies), `generic` (AF_XDP, the kernel copies, any
    /// driver), `packet` (AF_PACKET ring, no program on the interface), `udp` (a UDP socket). The first that works is used;
    /// the log and the status page name it, and why no faster one works. `hopwise doctor` suggests fixes.
    pub(crate) struct XdpSettings("[collector.xdp]") {
        /// Where changes are detected. `user`: every report is passed to user space. `kernel`: a program in the kernel keeps
        /// the latest values and passes only reports with a significant change to user space; needs `workers = 1`. If it
        /// cannot be loaded, hopwise falls back to `user`.
        pub(crate) mode: XdpMode = XdpMode::User,
        /// Whether the NIC may write into the program's memory. `require` refuses every slower receive path, regardless of
        /// `lowest`.
        pub(crate) zero_copy: ZeroCopy = ZeroCopy::Auto,
        /// The slowest acceptable receive path. If neither it nor a faster one works, the program does not start; an input that
        /// fails later is retried until one works.
        pub(crate) lowest: RxPath = RxPath::Udp,
        /// Frames of memory per RX queue, a power of two from 64 to 65536: the backlog while the program is busy. A frame
        /// takes 2 KiB, or 4 KiB if the interface's packets may exceed 1770 bytes; a queue therefore takes 8 MiB by default.
        /// All queues of an interface together have at most 65536 frames, unless that leaves fewer than 2048 per queue.
        pub(crate) frames: u32 = 4096,
        /// Put the frames into huge pages if any are free.
        pub(crate) huge_pages: bool = true,
        /// Size of the ring buffer between the kernel program and user space (with `mode = "kernel"`), a power of two of at
        /// least 64 KiB.
        pub(crate) ring: Size = Size(16 << 20),
        /// Capacity of the kernel program's flow table (with `mode = "kernel"`). Default: `max_flows`. Every report of
        /// further flows is passed to user space.
        pub(crate) kernel_flows: Option<u32> = None,
    }
}

choice! {
    /// Where changes are detected.
    pub(crate) enum XdpMode("\"user\" or \"kernel\"") {
        /// In user space, from every report.
        User = "user",
        /// In the kernel; significant changes are passed to user space.
        Kernel = "kernel",
    }
}

choice! {
    /// Whether frames are received without a copy.
    pub(crate) enum ZeroCopy("\"auto\", \"never\" or \"require\"") {
        /// Where it works.
        Auto = "auto",
        /// No.
        Never = "never",
        /// Always; slower receive paths are refused.
        Require = "require",
    }
}

choice! {
    /// A receive path of an interface, the fastest first.
    pub(crate) enum RxPath("\"zero-copy\", \"native\", \"generic\", \"packet\" or \"udp\"") {
        /// AF_XDP, the NIC writes into user-space memory.
        ZeroCopy = "zero-copy",
        /// AF_XDP, the driver runs the program, and copies.
        Native = "native",
        /// AF_XDP, the kernel runs the program, and copies.
        Generic = "generic",
        /// AF_PACKET with a ring.
        Packet = "packet",
        /// A UDP socket.
        Udp = "udp",
    }
}

section! {
    /// Names of hosts that are not in `[[inventory.hosts]]`.
    pub(crate) struct NamesSettings("[names]") {
        /// Look up hosts by DNS (PTR), in the background, as the system does: its files come first. Only addresses that a page or a
        /// command asks for, at most 20 a second; a name is cached for 1 h, and a negative answer for 10 min. The name servers see
        /// these addresses.
        pub(crate) dns: bool = false,
    }
}

section! {
    /// How a kind of device encodes its reports. `[profiles.default]` applies to sources without a profile; by default it
    /// follows the specification, in nanoseconds. `strict`, `geant`, `hostint`, `intcollector-gen`, `onos` and `p4int` are built-in
    /// profiles of these dialects; a table of the same name replaces one.
    pub(crate) struct ProfileSettings("[profiles.NAME]") {
        /// The dialect of INT and Telemetry Report.
        pub(crate) dialect: Dialect = Dialect::Strict,
        /// Duration of one tick of the timestamps.
        pub(crate) timestamp_unit: Duration = Duration::from_nanos(1),
        /// Duration of one tick of the hop latency. The transit delay of IOAM is in nanoseconds whatever this says.
        pub(crate) latency_unit: Duration = Duration::from_nanos(1),
        /// Longest plausible hop latency. A longer one is not used: it is counted and shown as implausible, as is one of a
        /// record whose ingress timestamp is 0 and whose egress timestamp is not. A switch without an ingress time, as for a
        /// packet that it cloned, reports its uptime as hop latency. `0s` turns both checks off.
        pub(crate) max_hop_latency: Duration = Duration::from_secs(1),
        /// The device's unit of queue occupancy, shown beside the values.
        pub(crate) queue_unit: String = "bytes".to_owned(),
        /// Factor from the device's link utilization to a fraction of 1.
        pub(crate) utilization_scale: f64 = 1e-6,
        /// Whether the clocks of nodes are synchronised. With `free` clocks, the latency of a flow is the sum of its hop
        /// latencies, and marked as such.
        pub(crate) clocks: Clocks = Clocks::Free,
        /// DSCP that marks INT over TCP and UDP; not set: the dialect's.
        pub(crate) dscp: Option<u8> = None,
        /// Mask of the DSCP comparison; 0 turns the mark off. Not set: the dialect's.
        pub(crate) dscp_mask: Option<u8> = None,
        /// A second DSCP that marks INT, compared without a mask. Not set: the dialect's.
        pub(crate) dscp_other: Option<u8> = None,
        /// UDP destination port that marks INT; 0 turns the mark off.
        pub(crate) int_udp_port: u16 = 33122,
        /// Probe marker: eight bytes after the TCP or UDP header that mark INT.
        pub(crate) probe_marker: Option<Marker> = None,
        /// GRE protocol that marks INT.
        pub(crate) gre_protocol: u16 = 0x88b6,
        /// Position of the INT shim in TCP.
        pub(crate) tcp_shim: TcpShim = TcpShim::AfterFixed,
        /// UDP ports of telemetry reports, at most eight with those of `listen`; a report of INT about a report to one of them is refused as nested.
        pub(crate) telemetry_ports: Vec<u16> = vec![32766],
        /// Names of the device's drop reasons, by code.
        pub(crate) drop_reasons: BTreeMap<u8, String> = BTreeMap::new(),
    }
}

choice! {
    /// A dialect of INT and Telemetry Report; see `wire`.
    pub(crate) enum Dialect("\"strict\", \"geant\", \"hostint\", \"intcollector-gen\", \"onos\" or \"p4int\"") {
        /// As specified.
        Strict = "strict",
        /// GEANT's data plane.
        Geant = "geant",
        /// Intel's Host-INT.
        HostInt = "hostint",
        /// INTCollector's generator.
        IntCollectorGen = "intcollector-gen",
        /// ONOS' basic pipeline.
        Onos = "onos",
        /// The p4-int family of P4 programs.
        P4Int = "p4int",
    }
}

choice! {
    /// Position of the INT shim in TCP.
    pub(crate) enum TcpShim("\"after-fixed\" or \"after-options\"") {
        /// After the 20 fixed bytes, before the options.
        AfterFixed = "after-fixed",
        /// After the options.
        AfterOptions = "after-options",
    }
}

choice! {
    /// Whether clocks of different nodes can be compared.
    pub(crate) enum Clocks("\"free\" or \"synchronised\"") {
        /// Each node counts its own time.
        Free = "free",
        /// PTP or similar keeps them together.
        Synchronised = "synchronised",
    }
}

section! {
    /// Senders of reports, by address. The longest matching prefix applies.
    pub(crate) struct SourceSettings("[[sources]]") {
        /// The sender's address, or a network of senders.
        pub(crate) prefix: Option<Prefix> = None,
        /// Name of the profile of its reports.
        pub(crate) profile: String = "default".to_owned(),
        /// A display name.
        pub(crate) name: Option<String> = None,
    }
}

section! {
    /// A node, by its id. `12 = "leaf1"` in `[nodes]` is short for a table with a name.
    pub(crate) struct NodeSettings("[nodes.ID]") {
        /// A display name.
        pub(crate) name: Option<String> = None,
        /// Name of the profile whose units apply to this node's values, regardless of the reporter: in a network with two vendors,
        /// the nodes of one INT stack can use different units. The dialect stays that of the source. Not with `mode = "kernel"`;
        /// changes apply at the next start.
        pub(crate) profile: Option<String> = None,
    }
}

/// A node: its name alone, or a table.
#[derive(Clone, Debug, PartialEq, Default)]
pub(crate) struct NodeEntry(pub(crate) NodeSettings);

impl NodeEntry {
    /// A node of which only the name is known.
    pub(crate) fn named(name: String) -> Self {
        Self(NodeSettings {
            name: Some(name),
            profile: None,
        })
    }
}

impl Setting for NodeEntry {
    const KIND: &'static str = "a name in quotes, or a table with `name` and `profile`";

    fn read(node: &Node<'_>, reader: &mut Reader<'_>) -> Option<Self> {
        match node.get_ref() {
            DeValue::Table(_) => NodeSettings::read(node, reader).map(Self),
            DeValue::String(name) => Some(Self::named(name.to_string())),
            _ => refuse::<Self>(node, reader),
        }
    }

    fn show(&self) -> Shown {
        match (&self.0.name, &self.0.profile) {
            (Some(name), None) => Shown::Plain(name.as_str().into()),
            _ => self.0.show(),
        }
    }

    fn explain(path: &str, chapters: &mut Vec<Chapter>) {
        NodeSettings::explain(path, chapters);
    }
}

section! {
    /// Thresholds of significant changes: a value is reported when it differs from the last reported value by more than the
    /// threshold; 0 reports every change. Each is written as in a rule: a latency as a duration, a queue in the device's unit, a
    /// link as a percentage.
    pub(crate) struct ThresholdSettings("[thresholds]") {
        /// Time from the first node's ingress to the last node's egress.
        pub(crate) flow_latency: LatencyThreshold = LatencyThreshold(50_000),
        /// Time inside a node.
        pub(crate) hop_latency: LatencyThreshold = LatencyThreshold(50_000),
        /// Occupancy of a queue.
        pub(crate) queue_occupancy: QueueThreshold = QueueThreshold(50),
        /// Congestion status of a queue or occupancy of its buffer.
        pub(crate) queue_congestion: QueueThreshold = QueueThreshold(50),
        /// Utilization of an egress link.
        pub(crate) link_utilization: UtilizationThreshold = UtilizationThreshold(50_000),
        /// Thresholds for some flows.
        pub(crate) r#override: Vec<OverrideSettings> = Vec::new(),
    }
}

section! {
    /// Thresholds for matching flows; keys that are not set are as in `[thresholds]`. Of several matches, the most specific
    /// applies.
    pub(crate) struct OverrideSettings("[[thresholds.override]]") {
        /// Source address of the flow.
        pub(crate) src: Option<Prefix> = None,
        /// Destination address of the flow.
        pub(crate) dst: Option<Prefix> = None,
        /// Source port.
        pub(crate) sport: Option<PortRange> = None,
        /// Destination port.
        pub(crate) dport: Option<PortRange> = None,
        /// IP protocol.
        pub(crate) proto: Option<Protocol> = None,
        /// See `[thresholds]`.
        pub(crate) flow_latency: Option<LatencyThreshold> = None,
        /// See `[thresholds]`.
        pub(crate) hop_latency: Option<LatencyThreshold> = None,
        /// See `[thresholds]`.
        pub(crate) queue_occupancy: Option<QueueThreshold> = None,
        /// See `[thresholds]`.
        pub(crate) queue_congestion: Option<QueueThreshold> = None,
        /// See `[thresholds]`.
        pub(crate) link_utilization: Option<UtilizationThreshold> = None,
    }
}

section! {
    /// A condition over the metrics of a flow. An event is emitted when it becomes true or false. At most 64 rules.
    pub(crate) struct RuleSettings("[[rules]]") {
        /// The rule's name in events.
        pub(crate) name: String = String::new(),
        /// The condition, for example `max(queue_occupancy) > 50 and flow_latency > 5ms`.
        pub(crate) when: String = String::new(),
    }
}

section! {
    /// Storage in SQLite files, one per period: any SQLite tool opens them, and retention deletes whole files.
    pub(crate) struct StoreSettings("[store]") {
        /// Store events, rollups, flows, drops and losses on disk. Without it, the live view still works.
        pub(crate) enabled: bool = true,
        /// Directory, created if missing. Default: $STATE_DIRECTORY (systemd), otherwise `hopwise-data` in the current
        /// directory.
        pub(crate) dir: Option<PathBuf> = None,
        /// Period of one file.
        pub(crate) period: Period = Period::Day,
        /// Interval between commits. A crash loses at most this.
        pub(crate) commit_every: Duration = Duration::from_secs(1),
        /// Records queued for the disk, bytes, shared as in `result_queue`.
        pub(crate) queue: Size = Size(64 << 20),
        /// When the disk is too slow: `shed` drops records and counts them; `block` makes the workers wait, and the kernel
        /// then drops and counts what does not fit into the socket buffers.
        pub(crate) policy: Policy = Policy::Shed,
        /// Delete files whose period ended longer ago than this. Not set: never.
        [live] pub(crate) max_age: Option<Duration> = Some(Duration::from_secs(30 * 86_400)),
        /// Delete the oldest files when the total size exceeds this. Not set: unlimited.
        [live] pub(crate) max_bytes: Option<Size> = Some(Size(100 << 30)),
        /// Store every decoded report, one row per hop. This takes a lot of space.
        pub(crate) reports: bool = false,
    }
}

choice! {
    /// Period of one file of the store.
    pub(crate) enum Period("\"hour\" or \"day\"") {
        /// An hour.
        Hour = "hour",
        /// A day (UTC).
        Day = "day",
    }
}

choice! {
    /// Policy for a full queue.
    pub(crate) enum Policy("\"shed\" or \"block\"") {
        /// Drop and count.
        Shed = "shed",
        /// Wait.
        Block = "block",
    }
}

section! {
    /// The HTTP API and the web UI.
    pub(crate) struct ApiSettings("[api]") {
        /// Address to listen on. Any other than a loopback address needs a `token`.
        pub(crate) listen: SocketAddr = SocketAddr::from(([127, 0, 0, 1], 8080)),
        /// Bearer token that clients must send: `Authorization: Bearer TOKEN`, or `?token=TOKEN`. Generate one with `openssl
        /// rand -hex 24`. Its role is `operate`. For access over a network, set `tls`.
        [live] pub(crate) token: Option<Secret> = None,
        /// Further tokens, each with a role and a name.
        [live] pub(crate) tokens: Vec<TokenSettings> = Vec::new(),
        /// Serve it over TLS.
        [live] pub(crate) tls: Option<TlsSettings> = None,
        /// Additional host names accepted on a loopback address (behind a tunnel or a proxy). Requests with any other `Host`
        /// are refused, as a defence against DNS rebinding.
        [live] pub(crate) hosts: Vec<String> = Vec::new(),
        /// Concurrent clients of the live stream.
        pub(crate) max_streams: usize = 64,
        /// Events queued per client of the live stream; a slower client loses events and receives the number of lost ones.
        pub(crate) stream_queue: usize = 1024,
        /// Concurrent SQL queries; further ones are refused.
        pub(crate) max_queries: usize = 2,
        /// Timeout of a SQL query; in a console, of every answer.
        pub(crate) query_timeout: Duration = Duration::from_secs(10),
        /// Maximum rows in the result of a SQL query.
        pub(crate) query_rows: usize = 10_000,
    }
}

section! {
    /// TLS of the API. A reload reads the files again; existing connections stay open.
    pub(crate) struct TlsSettings("[api.tls]") {
        /// PEM file with the certificate, followed by the intermediate certificates.
        pub(crate) certificate: Option<PathBuf> = None,
        /// PEM file with the certificate's private key.
        pub(crate) key: Option<PathBuf> = None,
        /// PEM file with certificate authorities: only clients with a certificate from one of them are served. Not set: all
        /// clients.
        pub(crate) client_ca: Option<PathBuf> = None,
    }
}

impl TlsSettings {
    /// What a server needs.
    ///
    /// # Errors
    /// A file is missing or cannot be used.
    pub(crate) fn server(&self) -> Result<Arc<ServerConfig>, tls::Problem> {
        let identity = tls::Identity::of(self.certificate.as_deref(), self.key.as_deref())?;
        let missing = || tls::Problem {
            file: tls::Part::Certificate,
            message: "add certificate = \"server.pem\" and key = \"server.key\"".to_owned(),
        };
        tls::server(&identity.ok_or_else(missing)?, self.client_ca.as_deref())
    }

    /// A warning if the certificate is one that some clients refuse.
    pub(crate) fn warning(&self) -> Option<String> {
        let identity = tls::Identity::of(self.certificate.as_deref(), self.key.as_deref());
        identity.ok().flatten()?.authority_warning()
    }
}

impl ApiSettings {
    /// What a server needs for TLS, if it is set.
    ///
    /// # Errors
    /// A file cannot be used.
    pub(crate) fn server(&self) -> Result<Option<Arc<ServerConfig>>, tls::Problem> {
        self.tls.as_ref().map(TlsSettings::server).transpose()
    }

    /// `http` or `https`.
    pub(crate) fn scheme(&self) -> &'static str {
        if self.tls.is_some() { "https" } else { "http" }
    }

    /// Whether requests need a token.
    pub(crate) fn needs_token(&self) -> bool {
        self.token.is_some() || !self.tokens.is_empty()
    }
}

section! {
    /// A token of one person or program.
    pub(crate) struct TokenSettings("[[api.tokens]]") {
        /// The token; see `[api] token`.
        pub(crate) token: Option<Secret> = None,
        /// Role of the token's bearer.
        pub(crate) role: Role = Role::Read,
        /// Name of the bearer, recorded in the manager's history with each action.
        pub(crate) name: String = String::new(),
    }
}

choice! {
    /// What the bearer of a token may do.
    pub(crate) enum Role("\"read\" or \"operate\"") {
        /// Read everything, and change nothing.
        Read = "read",
        /// Everything.
        Operate = "operate",
    }
}

section! {
    /// The web UI.
    pub(crate) struct UiSettings("[ui]") {
        /// Serve the web UI.
        pub(crate) enabled: bool = true,
    }
}

section! {
    /// The log, on standard error.
    pub(crate) struct LogSettings("[log]") {
        /// Level.
        [live] pub(crate) level: Level = Level::Info,
        /// Format of the lines: text, or one JSON object per line.
        pub(crate) format: LogFormat = LogFormat::Text,
    }
}

choice! {
    /// Form of the lines of the log.
    pub(crate) enum LogFormat("\"text\" or \"json\"") {
        /// For people; in colour on a terminal.
        Text = "text",
        /// A JSON object per line, for programs: `timestamp`, `level`, `message`, and the values that belong to it.
        Json = "json",
    }
}

choice! {
    /// Log level.
    pub(crate) enum Level("\"error\", \"warn\", \"info\", \"debug\" or \"trace\"") {
        /// What failed.
        Error = "error",
        /// And what may need attention.
        Warn = "warn",
        /// And starts, stops, reloads.
        Info = "info",
        /// And why.
        Debug = "debug",
        /// And everything.
        Trace = "trace",
    }
}
