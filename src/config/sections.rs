//! The tables of the configuration file. The doc comments are the manual: `docs/reference/config.md` is made from them.

use std::{collections::BTreeMap, net::SocketAddr, path::PathBuf, time::Duration};

use detect::{PortRange, Prefix};

use super::{
    memory::MemorySettings,
    values::{Amount, FlowIdSetting, LinkSetting, Listen, Marker},
};
use settings::{
    choice, section,
    values::{Protocol, Secret, Size},
};

section! {
    /// How reports come in, how the work is spread, and the bounds of every table. All memory is bounded by these numbers.
    pub(crate) struct CollectorSettings("[collector]") {
        /// Receive reports, keep them, show the pages. Not set: yes, unless the file holds a `[switch]`, `[translator]` or `[aggregator]`
        /// and no `[collector]`.
        pub(crate) enabled: Option<bool> = None,
        /// Where to listen. `udp://*:PORT` is every address of this machine, IPv4 and IPv6; each such entry has its own socket and
        /// thread. `xdp://INTERFACE` takes reports from an interface past the kernel's network stack, which bears several times
        /// as many; `[collector.xdp]` says how. It takes UDP datagrams to port 32766, or to the ports that are written, as in
        /// `xdp://eth1:32766,5000` (at most eight); everything else goes its usual way.
        pub(crate) listen: Vec<Listen> = vec![Listen::UdpAny(32766), Listen::UdpAny(32767)],
        /// Open the sockets of `udp://` in this network namespace (`ip netns list`), while the API stays in the program's own: for
        /// reports that come by a management network which the rest of the machine does not see. Entering it needs root.
        pub(crate) namespace: Option<String> = None,
        /// UDP ports of aggregates: what an aggregator makes of postcards (see `[aggregator]`). What comes to one of them, by
        /// whichever input, is read as such, and what comes to any other port as reports. Only ports that `listen` names are
        /// listened to.
        pub(crate) aggregate_ports: Vec<u16> = vec![32767],
        /// Threads that decode and keep state. One is enough for any UDP socket: the receiving threads then do the work
        /// themselves, on one state. With more, reports are spread by their inner flow, so that one busy reporter can use them
        /// all; but a datagram that groups several reports goes where its first flow belongs, and each worker watches nodes,
        /// queues and links by itself, so that a change of one of these can be told twice.
        pub(crate) workers: usize = 1,
        /// Socket receive buffer to ask the kernel for. The kernel grants at most `net.core.rmem_max` unless the program has
        /// CAP_NET_ADMIN; what was granted is logged at start.
        pub(crate) receive_buffer: Size = Size(16 << 20),
        /// Datagrams taken from a socket at once.
        pub(crate) burst: usize = 64,
        /// Longest datagram; a longer one is cut and refused.
        pub(crate) datagram: Size = Size(9216),
        /// Bursts that may wait for a worker (with more than one worker). What does not fit is dropped and counted.
        pub(crate) worker_queue: usize = 32,
        /// Records of each kind (events, roll-ups, flows, drops, losses) in one batch on its way to the store. What does not
        /// fit is dropped and counted.
        pub(crate) batch: usize = 4096,
        /// Batches that may wait between the workers and the store. What does not fit is dropped and counted.
        pub(crate) result_queue: usize = 16,
        /// Flows to remember, in all workers together. When the table is full, flows that were not seen for long make room.
        pub(crate) max_flows: usize = 262_144,
        /// Queues (node and queue id) to remember, per worker.
        pub(crate) max_queues: usize = 16_384,
        /// Links (node and egress interface) to remember, per worker.
        pub(crate) max_links: usize = 16_384,
        /// Nodes to remember, per worker.
        pub(crate) max_nodes: usize = 4_096,
        /// Reporters (address, node and subsystem) to remember for loss accounting.
        pub(crate) max_sources: usize = 4_096,
        /// A flow, queue or link that is not seen for so long expires, with an event.
        pub(crate) flow_timeout: Duration = Duration::from_secs(60),
        /// Push the latest values of everything periodically, changed or not; `0s` turns it off.
        pub(crate) push_interval: Duration = Duration::from_secs(10),
        /// What of its privileges (Linux capabilities) the program keeps when it has started. `reopen`: those that opening an
        /// `xdp://` input again takes, held by the one thread that does it; without such an input none. `none`: none, so that
        /// an interface that went away and came back is read by UDP until a restart. `all`: those it was started with.
        pub(crate) capabilities: Capabilities = Capabilities::Reopen,
        /// How interfaces are read.
        pub(crate) xdp: XdpSettings = XdpSettings::default(),
        /// How SF-INT reports become paths.
        pub(crate) sf: SfSettings = SfSettings::default(),
        /// How postcards are joined into paths.
        pub(crate) postcards: PostcardSettings = PostcardSettings::default(),
        /// Memory that translators write by RDMA.
        pub(crate) memory: Option<MemorySettings> = None,
    }
}

section! {
    /// How SF-INT reports, each of which holds the record of one node, are joined into the paths of packets. Only what is
    /// proven to be a whole path is told as one; see [the design](../design/sf-int.md).
    pub(crate) struct SfSettings("[collector.sf]") {
        /// The Remaining Hop Count that sources write into packets, before they count themselves. With it, whether a set of
        /// records is whole is certain. Not set: it is learned from the reports of each profile, which takes some of them,
        /// wants all sources of a profile to write the same, and learns nothing where no path has more than two nodes.
        pub(crate) hop_limit: Option<u8> = None,
        /// Sets in a row that must agree on a flow's path before it is believed, at the flow's start and when it changes.
        pub(crate) confirmations: usize = 2,
        /// Time after which an incomplete set is given up.
        pub(crate) timeout: Duration = Duration::from_secs(1),
        /// Flows to remember, in all workers together: about 300 bytes each.
        pub(crate) max_flows: usize = 65_536,
        /// Sets to remember, in all workers together: about 140 bytes each, and 64 per record.
        pub(crate) max_sets: usize = 131_072,
        /// Nodes of the longest path, the sink among them.
        pub(crate) max_nodes: usize = 16,
    }
}

choice! {
    /// What privileges remain after the start.
    pub(crate) enum Capabilities("\"reopen\", \"none\" or \"all\"") {
        /// What opening an input again takes.
        Reopen = "reopen",
        /// None.
        None = "none",
        /// All it was started with.
        All = "all",
    }
}

section! {
    /// How postcards (one report of each node that a packet passes) are put together into what one INT report would say: the
    /// packet's path and latency. The order comes from time stamps where the profile has `clocks = "synchronised"`, else from
    /// the hop limit (TTL) of the packet in the postcard, else from `links`. Without any of them the values of the nodes are
    /// kept, and there is no path.
    pub(crate) struct PostcardSettings("[collector.postcards]") {
        /// How long a postcard waits for the others of its packet. Longer than an aggregator's timer.
        pub(crate) timeout: Duration = Duration::from_millis(100),
        /// Postcards pending at a time, in all workers together, about 200 bytes each; 0: none are joined.
        pub(crate) max_pending: usize = 65_536,
        /// Without a packet in the postcards, those are of one packet whose stamps follow each other by at most this: the longest
        /// time that a packet takes from one node to the next.
        pub(crate) proximity: Duration = Duration::from_millis(1),
        /// A path that is not the one known is told when so many packets in a row took it.
        pub(crate) confirmations: u32 = 2,
        /// The same while sequence numbers are missing, and for a path that only lacks nodes of the known one.
        pub(crate) confirmations_after_loss: u32 = 4,
        /// Links between nodes as "NODE:EGRESS-NODE:INGRESS", such as "7:3-5:1": each direction by itself. When any are written, a
        /// path whose first or last interface is on one of them lacks a node, and is not told.
        pub(crate) links: Vec<LinkSetting> = Vec::new(),
        /// Flow IDs that are not the CRC-32C of the 5-tuple, as "ID=FLOW", such as "7=10.0.0.1:5000>10.0.0.2:80/17".
        pub(crate) flow_ids: Vec<FlowIdSetting> = Vec::new(),
    }
}

section! {
    /// How `xdp://` inputs receive. The receive paths, each slower and with fewer requirements than the one before:
    /// `zero-copy` (the NIC writes into the program's memory), `native` (the driver copies), `generic` (the kernel copies, any
    /// driver), `packet` (a ring of packet sockets, no program on the interface), `udp` (a usual socket). The first that works
    /// is taken; the log and the status page name it, and why it is none before. `hopwise doctor` tells what would mend that.
    pub(crate) struct XdpSettings("[collector.xdp]") {
        /// Who decides what is an event. `user`: every report comes to the program. `kernel`: a program in the kernel keeps
        /// the latest values and sends up only reports in which there is something to tell; needs `workers = 1`. Where it
        /// cannot be loaded, reports come in as by `user`.
        pub(crate) mode: XdpMode = XdpMode::User,
        /// May the NIC write into the program's memory? `require` refuses everything slower, whatever `lowest` says.
        pub(crate) zero_copy: ZeroCopy = ZeroCopy::Auto,
        /// The last receive path that is good enough. If none down to it works, the program does not start; an input that
        /// goes away later is tried again until one works.
        pub(crate) lowest: RxPath = RxPath::Udp,
        /// Frames of memory per queue of the interface, a power of two from 64 to 65536: what can wait while the program is
        /// busy. A frame takes 2 KiB, or 4 KiB where the interface's packets may be longer than 1770 bytes; a queue so takes
        /// 8 MiB by default. All queues of an interface together have 65536 at most, unless that leaves a queue fewer than 2048.
        pub(crate) frames: u32 = 4096,
        /// Put the frames into huge pages when there are any free.
        pub(crate) huge_pages: bool = true,
        /// Memory of the ring between the kernel's program and ours (with `mode = "kernel"`), a power of two of at least 64 KiB.
        pub(crate) ring: Size = Size(16 << 20),
        /// Flows that the kernel's program remembers (with `mode = "kernel"`); not set: as many as `max_flows`. Reports of further
        /// flows come up to the program each time.
        pub(crate) kernel_flows: Option<u32> = None,
    }
}

choice! {
    /// Who decides what is an event.
    pub(crate) enum XdpMode("\"user\" or \"kernel\"") {
        /// We, for every report.
        User = "user",
        /// A program in the kernel, which tells what we must see.
        Kernel = "kernel",
    }
}

choice! {
    /// May frames be received without a copy?
    pub(crate) enum ZeroCopy("\"auto\", \"never\" or \"require\"") {
        /// Where it works.
        Auto = "auto",
        /// No.
        Never = "never",
        /// It must be.
        Require = "require",
    }
}

choice! {
    /// A way to read an interface, the best first.
    pub(crate) enum RxPath("\"zero-copy\", \"native\", \"generic\", \"packet\" or \"udp\"") {
        /// AF_XDP, the NIC writes into our memory.
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
    /// What a kind of device means by its numbers. A source without a profile is read by `[profiles.default]`; where that is
    /// not written, it is the standard in nanoseconds. The names `strict`, `geant`, `hostint`, `intcollector-gen` and `onos` are
    /// profiles of that dialect, ready to use; writing a table of such a name replaces it.
    pub(crate) struct ProfileSettings("[profiles.NAME]") {
        /// How the bytes are laid out.
        pub(crate) dialect: Dialect = Dialect::Strict,
        /// Duration of one tick of the time stamps.
        pub(crate) timestamp_unit: Duration = Duration::from_nanos(1),
        /// Duration of one tick of the hop latency.
        pub(crate) latency_unit: Duration = Duration::from_nanos(1),
        /// The device's unit of queue occupancy, for people: it is shown beside the numbers.
        pub(crate) queue_unit: String = "bytes".to_owned(),
        /// Factor from the device's link utilisation to a fraction of 1.
        pub(crate) utilization_scale: f64 = 1e-6,
        /// Do the clocks of different nodes agree? With `free` clocks a flow's latency is the sum of its hops', marked so.
        pub(crate) clocks: Clocks = Clocks::Free,
        /// DSCP that marks INT over TCP and UDP; not set: the dialect's.
        pub(crate) dscp: Option<u8> = None,
        /// Bits of the DSCP that count; 0 switches the mark off. Not set: the dialect's.
        pub(crate) dscp_mask: Option<u8> = None,
        /// A second DSCP that marks INT, compared whole. Not set: the dialect's.
        pub(crate) dscp_other: Option<u8> = None,
        /// UDP destination port that marks INT; 0 switches the mark off.
        pub(crate) int_udp_port: u16 = 33122,
        /// Eight bytes after the TCP or UDP header that announce INT.
        pub(crate) probe_marker: Option<Marker> = None,
        /// GRE protocol that announces INT.
        pub(crate) gre_protocol: u16 = 0x88b6,
        /// Where the INT shim lies in TCP.
        pub(crate) tcp_shim: TcpShim = TcpShim::AfterFixed,
        /// UDP ports of telemetry reports, at most eight with those of `listen`; a report about a packet to one of them is refused as nested.
        pub(crate) telemetry_ports: Vec<u16> = vec![32766],
        /// Names of the device's drop reasons, by code.
        pub(crate) drop_reasons: BTreeMap<u8, String> = BTreeMap::new(),
    }
}

choice! {
    /// How a device lays out its bytes; see `wire`.
    pub(crate) enum Dialect("\"strict\", \"geant\", \"hostint\", \"intcollector-gen\" or \"onos\"") {
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
    }
}

choice! {
    /// Where the shim lies in TCP.
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
    /// A sender of reports, by its address. The longest matching prefix wins.
    pub(crate) struct SourceSettings("[[sources]]") {
        /// The sender's address, or a network of senders.
        pub(crate) prefix: Option<Prefix> = None,
        /// Name of the profile that reads its reports.
        pub(crate) profile: String = "default".to_owned(),
        /// A name for people.
        pub(crate) name: Option<String> = None,
    }
}

section! {
    /// How far a value must move from the last value told before the change is told; 0 tells every change. In the metric's unit:
    /// nanoseconds for latencies (or write a duration), the device's unit for queues, millionths for links (or write a
    /// percentage).
    pub(crate) struct ThresholdSettings("[thresholds]") {
        /// Time from the first node's ingress to the last node's egress.
        pub(crate) flow_latency: Amount = Amount(50_000),
        /// Time inside a node.
        pub(crate) hop_latency: Amount = Amount(50_000),
        /// Occupancy of a queue, device units.
        pub(crate) queue_occupancy: Amount = Amount(50),
        /// Congestion status of a queue or occupancy of its buffer, device units.
        pub(crate) queue_congestion: Amount = Amount(50),
        /// Utilisation of an egress link.
        pub(crate) link_utilization: Amount = Amount(50_000),
        /// Other thresholds for some flows.
        pub(crate) r#override: Vec<OverrideSettings> = Vec::new(),
    }
}

section! {
    /// Thresholds for the flows that match; what is not set here is as in `[thresholds]`. Of several matches the most specific
    /// wins.
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
        pub(crate) flow_latency: Option<Amount> = None,
        /// See `[thresholds]`.
        pub(crate) hop_latency: Option<Amount> = None,
        /// See `[thresholds]`.
        pub(crate) queue_occupancy: Option<Amount> = None,
        /// See `[thresholds]`.
        pub(crate) queue_congestion: Option<Amount> = None,
        /// See `[thresholds]`.
        pub(crate) link_utilization: Option<Amount> = None,
    }
}

section! {
    /// A condition over the metrics of a flow; when it becomes true or false, that is an event. At most 64 rules.
    pub(crate) struct RuleSettings("[[rules]]") {
        /// The rule's name in events.
        pub(crate) name: String = String::new(),
        /// The condition, for example `max(queue_occupancy) > 50 and flow_latency > 5ms`.
        pub(crate) when: String = String::new(),
    }
}

section! {
    /// What is kept on disk: SQLite files, one per period, so that any tool opens them and retention is deleting files.
    pub(crate) struct StoreSettings("[store]") {
        /// Keep events, roll-ups, flows, drops and losses on disk. Without it the live view still works.
        pub(crate) enabled: bool = true,
        /// Directory; made if it is not there. Not set: $STATE_DIRECTORY (systemd), else `hopwise-data` in the current directory.
        pub(crate) dir: Option<PathBuf> = None,
        /// Time that one file covers.
        pub(crate) period: Period = Period::Day,
        /// Longest time between arrival and disk. A crash loses at most this.
        pub(crate) commit_every: Duration = Duration::from_secs(1),
        /// Batches that may wait for the disk.
        pub(crate) queue: usize = 32,
        /// When the disk is too slow: `shed` drops results and counts them; `block` makes the workers wait, and what then does not
        /// fit in the sockets' buffers is lost in the kernel, and counted there.
        pub(crate) policy: Policy = Policy::Shed,
        /// Delete files whose period ended longer ago than this; not set: keep.
        [live] pub(crate) max_age: Option<Duration> = Some(Duration::from_secs(30 * 86_400)),
        /// Delete the oldest files when all are larger than this together; not set: no bound.
        [live] pub(crate) max_bytes: Option<Size> = Some(Size(100 << 30)),
        /// Keep every decoded report, one row per hop. Much data.
        pub(crate) reports: bool = false,
    }
}

choice! {
    /// Time that one file of the store covers.
    pub(crate) enum Period("\"hour\" or \"day\"") {
        /// An hour.
        Hour = "hour",
        /// A day (UTC).
        Day = "day",
    }
}

choice! {
    /// What to do when a queue is full.
    pub(crate) enum Policy("\"shed\" or \"block\"") {
        /// Drop and count.
        Shed = "shed",
        /// Wait.
        Block = "block",
    }
}

section! {
    /// The HTTP API and the pages.
    pub(crate) struct ApiSettings("[api]") {
        /// Address to serve on. Any other than a loopback address needs a `token`.
        pub(crate) listen: SocketAddr = SocketAddr::from(([127, 0, 0, 1], 8080)),
        /// What a client must show: `Authorization: Bearer TOKEN`, or `?token=TOKEN`. Make one with `openssl rand -hex 24`. Over a
        /// network, put a proxy with TLS in front.
        [live] pub(crate) token: Option<Secret> = None,
        /// Further names under which this machine is reached on a loopback address (a tunnel or a proxy); requests for any other
        /// host name are refused, so that web sites cannot reach the API through a visitor's browser.
        [live] pub(crate) hosts: Vec<String> = Vec::new(),
        /// Clients of the live stream at once.
        pub(crate) max_streams: usize = 64,
        /// Events that may wait for one client of the live stream; a slower one is shed, and told how many.
        pub(crate) stream_queue: usize = 1024,
        /// SQL queries at once; further ones are refused until one ends.
        pub(crate) max_queries: usize = 2,
        /// Longest time for a SQL query.
        pub(crate) query_timeout: Duration = Duration::from_secs(10),
        /// Most rows in an answer to a SQL query.
        pub(crate) query_rows: usize = 10_000,
    }
}

section! {
    /// The pages that show it all.
    pub(crate) struct UiSettings("[ui]") {
        /// Serve them.
        pub(crate) enabled: bool = true,
    }
}

section! {
    /// What the program says about itself, on standard error.
    pub(crate) struct LogSettings("[log]") {
        /// How much.
        [live] pub(crate) level: Level = Level::Info,
    }
}

choice! {
    /// How much to log.
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
