//! Settings of the collector role: `[collector]` and its subtables, `[profiles]`, `[[sources]]`, `[nodes]`, `[thresholds]` and
//! `[[rules]]`.

mod build;
pub mod flight_recorder;
mod values;

use std::{collections::BTreeMap, time::Duration};

use detect::Prefix;
use dta::settings::MemorySettings;
use model::{NodeEntry, ProfileSettings, RuleSettings, SourceSettings, ThresholdSettings};
use settings::listen::Listen;
use settings::{choice, section, values::Size};

pub use build::{agreed_drop_reasons, receive_on};
pub use values::{FlowIdSetting, LinkSetting, NodeRange};

/// The tables of a configuration file that the collector role reads.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CollectSettings {
    /// The table `[collector]` of the file.
    pub collector: CollectorSettings,
    /// The tables `[profiles.NAME]`, by name.
    pub profiles: BTreeMap<String, ProfileSettings>,
    /// The list `[[sources]]` of the file.
    pub sources: Vec<SourceSettings>,
    /// The tables `[nodes.ID]`, by node ID.
    pub nodes: BTreeMap<u32, NodeEntry>,
    /// The table `[thresholds]` of the file.
    pub thresholds: ThresholdSettings,
    /// The list `[[rules]]` of the file.
    pub rules: Vec<RuleSettings>,
}

section! {
    /// Inputs, workers, and the capacity of every table. These numbers bound all memory.
    pub struct CollectorSettings("[collector]") {
        /// Receive reports, store them and serve the web UI. Default: yes, unless the file has a `[switch]`, `[aggregator]`,
        /// `[translator]`, `[reporter]` or `[console]` and no `[collector]`.
        pub enabled: Option<bool> = None,
        /// The name of this collector in records that it exports; no two of a fleet may have the same. Default: the host name.
        pub name: Option<String> = None,
        /// Inputs. `udp://*:PORT` listens on every address of this machine, IPv4 and IPv6, with a socket and a thread each.
        /// `xdp://INTERFACE` receives reports by AF_XDP, bypassing the kernel's network stack, at several times the rate; see
        /// `[collector.xdp]`. It takes UDP datagrams to port 32766, or to the listed ports, as in `xdp://eth1:32766,5000` (at
        /// most eight); all other traffic passes to the network stack.
        pub listen: Vec<Listen> = vec![Listen::UdpAny(32766), Listen::UdpAny(32767)],
        /// Who may report. Default: everyone who reaches a listener. See `[[collector.allow]]`.
        pub allow: Vec<AllowSettings> = Vec::new(),
        /// Open the sockets of `udp://` and of the memory in this network namespace (`ip netns list`), for reports from a management network
        /// that is separate from the rest of the machine. The API stays in the namespace of the program. Entering a namespace
        /// needs root.
        pub namespace: Option<String> = None,
        /// UDP ports of aggregates, which an aggregator makes of postcards (see `[aggregator]`). Every input decodes
        /// datagrams to these ports as aggregates and datagrams to all other ports as reports. The ports must also be in
        /// `listen`.
        pub aggregate_ports: Vec<u16> = vec![32767],
        /// Threads that decode reports and hold state. One is enough for any UDP socket: the receiving threads then do this
        /// work themselves, on shared state. With more, reports are distributed by inner flow, so that one busy reporter can
        /// use all workers; a datagram with reports of several flows is divided among their workers. Each worker tracks nodes,
        /// queues and links on its own, so that a change of one of these can be reported twice.
        pub workers: usize = 1,
        /// Socket receive buffer to ask the kernel for. The kernel grants at most `net.core.rmem_max` unless the program has
        /// CAP_NET_ADMIN; the granted size is logged at the start.
        pub receive_buffer: Size = Size(16 << 20),
        /// Datagrams received from a socket at once.
        pub burst: usize = 64,
        /// Longest datagram; longer ones are truncated and refused.
        pub datagram: Size = Size(9216),
        /// Datagrams queued per worker (with more than one worker), bytes of memory. The thread of an input may fill as much as
        /// it leaves free; then it waits, and datagrams stay in its socket or ring, where the kernel counts those it drops.
        pub worker_queue: Size = Size(8 << 20),
        /// Records of each kind (events, rollups, flows, drops, losses) in one batch for the store. The rest is dropped and
        /// counted.
        pub batch: usize = 4096,
        /// Records queued between the workers and the live stream, bytes. The rest is dropped and counted: routine records
        /// before events, drops and losses. The records of one source may fill as many bytes as are still free.
        pub result_queue: Size = Size(32 << 20),
        /// Capacity of the flow table, over all workers. When the table is full, a new flow replaces a flow
        /// with one report, or at its second report a flow without one for 30 s.
        pub max_flows: usize = 262_144,
        /// Capacity of the queue table (node, egress interface and queue ID), per worker.
        pub max_queues: usize = 16_384,
        /// Capacity of the link table (node and egress interface), per worker.
        pub max_links: usize = 16_384,
        /// Capacity of the node table, per worker.
        pub max_nodes: usize = 4_096,
        /// Reporters (address, node and subsystem) tracked for loss accounting.
        pub max_sources: usize = 4_096,
        /// A flow, queue or link without reports for this long expires, with an event. While a table of queues, links or nodes is
        /// more than half full, those in excess that had values in one second only expire after 5 s.
        pub flow_timeout: Duration = Duration::from_secs(60),
        /// Interval at which the latest state of each flow that sends reports is stored and exported, changed or not; `0s` turns it off. A flow that
        /// was silent for longer than three intervals is shown with a gap; a shorter silence may be.
        pub push_interval: Duration = Duration::from_secs(60),
        /// Linux capabilities that the program retains after the start. `reopen`: those needed to reopen an `xdp://` input,
        /// in the one thread that does so; none without such an input. `none`: none; an interface that disappears and returns
        /// is then read by UDP until a restart. `all`: all that the program was started with.
        pub capabilities: Capabilities = Capabilities::Reopen,
        /// Settings of inputs that receive by AF_XDP.
        pub xdp: XdpSettings = XdpSettings::default(),
        /// Reconstruction of paths from SF-INT reports.
        pub sf: SfSettings = SfSettings::default(),
        /// Reconstruction of paths from postcards.
        pub postcards: PostcardSettings = PostcardSettings::default(),
        /// Memory that translators write by RDMA.
        pub memory: Option<MemorySettings> = None,
    }
}

section! {
    /// Senders that may report. Reports are not authenticated: without an entry for a listener, everyone who reaches it can report
    /// any flow and any loss of any node. With an entry, the listener refuses datagrams of all other senders, and counts them as
    /// `sender_not_allowed` or `node_not_allowed`. UDP source addresses can be forged, so routers at the edge should also drop
    /// packets from outside with these addresses. Changes apply at the next start. Not for `xdp://` with `mode = "kernel"`.
    pub struct AllowSettings("[[collector.allow]]") {
        /// Addresses or networks of senders.
        pub from: Vec<Prefix> = Vec::new(),
        /// Node IDs in the headers of their datagrams (of an aggregate: the aggregator's), such as `["1-20", 35]`. Empty: any. If
        /// set, a datagram whose header names no node (Report 0.5 without metadata of its own) is refused.
        pub nodes: Vec<NodeRange> = Vec::new(),
        /// The listeners to which the entry applies, as they are written in `[collector] listen`. Empty: all.
        pub listen: Vec<Listen> = Vec::new(),
    }
}

section! {
    /// Reconstruction of packet paths from SF-INT reports, each of which holds the record of one node. Only paths proven
    /// complete are reported; see [the design](../design/sf-int.md).
    pub struct SfSettings("[collector.sf]") {
        /// The Remaining Hop Count that sources write into packets, before they decrement it. With it, completeness of a set
        /// of records is certain. Default: learned from the reports of each profile; this needs some reports, the same value
        /// in all sources of a profile, and a path of more than two nodes.
        pub hop_limit: Option<u8> = None,
        /// Consecutive sets that must agree on a flow's path before it is reported, at the start of a flow and after a
        /// change.
        pub confirmations: usize = 2,
        /// Time after which an incomplete set is discarded.
        pub timeout: Duration = Duration::from_secs(1),
        /// Capacity of the flow table, over all workers: about 300 bytes each.
        pub max_flows: usize = 65_536,
        /// Capacity of the set table, over all workers: about 140 bytes each, and 64 bytes per record.
        pub max_sets: usize = 131_072,
        /// Nodes of the longest path, including the sink.
        pub max_nodes: usize = 16,
    }
}

choice! {
    /// Capabilities that remain after the start.
    pub enum Capabilities("\"reopen\", \"none\" or \"all\"") {
        /// Those needed to reopen an input.
        Reopen = "reopen",
        /// All capabilities are dropped.
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
    pub struct PostcardSettings("[collector.postcards]") {
        /// Time that a postcard waits for the others of its packet, and for the next after each of them. Must exceed the
        /// aggregator's timer.
        pub timeout: Duration = Duration::from_millis(100),
        /// Pending postcards, over all workers, about 200 bytes each; 0 turns joining off.
        pub max_pending: usize = 65_536,
        /// Without a packet in the postcards, postcards whose timestamps differ by at most this belong to one packet: the
        /// longest latency from one node to the next.
        pub proximity: Duration = Duration::from_millis(1),
        /// Consecutive packets that must take a new path before it is reported.
        pub confirmations: u32 = 2,
        /// All links between nodes as "NODE:EGRESS-NODE:INGRESS", such as "7:3-5:1", each direction separately. If any are given,
        /// a packet enters and leaves the network by interfaces without a link, and a path that begins or ends on a link lacks
        /// a node and is not reported.
        pub links: Vec<LinkSetting> = Vec::new(),
        /// Flow IDs that are not the CRC-32C of the 5-tuple, as "ID=FLOW", such as "7=10.0.0.1:5000>10.0.0.2:80/17".
        pub flow_ids: Vec<FlowIdSetting> = Vec::new(),
    }
}

section! {
    /// Receiving by `xdp://` inputs. There are five receive paths, from the fastest to the least demanding: `zero-copy` (AF_XDP, the
    /// NIC writes into the program's memory), `native` (AF_XDP, the driver copies), `generic` (AF_XDP, the kernel copies, any
    /// driver), `packet` (AF_PACKET ring, no program on the interface), `udp` (a UDP socket). The first that works is used;
    /// the log and the status page name it, and why no faster one works. `hopwise doctor` suggests fixes.
    pub struct XdpSettings("[collector.xdp]") {
        /// Where changes are detected. `user`: every report is passed to user space. `kernel`: a program in the kernel keeps
        /// the latest values and passes only reports with a significant change to user space; needs `workers = 1`. If it
        /// cannot be loaded, hopwise falls back to `user`.
        pub mode: XdpMode = XdpMode::User,
        /// Whether the NIC may write into the program's memory. `require` refuses every slower receive path, regardless of
        /// `lowest`.
        pub zero_copy: ZeroCopy = ZeroCopy::Auto,
        /// The slowest acceptable receive path. If neither it nor a faster one works, the program does not start; an input that
        /// fails later is retried until one works.
        pub lowest: RxPath = RxPath::Udp,
        /// Frames of memory per RX queue, a power of two from 64 to 65536: the backlog while the program is busy. A frame
        /// takes 2 KiB, or 4 KiB if the interface's packets may exceed 1770 bytes; a queue therefore takes 8 MiB by default.
        /// All queues of an interface together have at most 65536 frames, unless that leaves fewer than 2048 per queue.
        pub frames: u32 = 4096,
        /// Put the frames into huge pages if any are free.
        pub huge_pages: bool = true,
        /// Size of the ring buffer between the kernel program and user space (with `mode = "kernel"`), a power of two of at
        /// least 64 KiB.
        pub ring: Size = Size(16 << 20),
        /// Capacity of the kernel program's flow table (with `mode = "kernel"`). Default: `max_flows`. Every report of
        /// further flows is passed to user space.
        pub kernel_flows: Option<u32> = None,
    }
}

choice! {
    /// Where changes are detected.
    pub enum XdpMode("\"user\" or \"kernel\"") {
        /// In user space, from every report.
        User = "user",
        /// In the kernel; significant changes are passed to user space.
        Kernel = "kernel",
    }
}

choice! {
    /// Whether frames are received without a copy.
    pub enum ZeroCopy("\"auto\", \"never\" or \"require\"") {
        /// Used where the driver supports it.
        Auto = "auto",
        /// Frames are always copied.
        Never = "never",
        /// Always; slower receive paths are refused.
        Require = "require",
    }
}

choice! {
    /// A receive path of an interface, the fastest first.
    pub enum RxPath("\"zero-copy\", \"native\", \"generic\", \"packet\" or \"udp\"") {
        /// AF_XDP, the NIC writes into user-space memory.
        ZeroCopy = "zero-copy",
        /// AF_XDP, the driver runs the program, and copies.
        Native = "native",
        /// AF_XDP, the kernel runs the program, and copies.
        Generic = "generic",
        /// AF_PACKET with a ring.
        Packet = "packet",
        /// A UDP socket of the kernel.
        Udp = "udp",
    }
}

choice! {
    /// Policy for a full queue.
    pub enum Policy("\"shed\" or \"block\"") {
        /// Drop what does not fit, and count it.
        Shed = "shed",
        /// Wait until the queue has space.
        Block = "block",
    }
}
