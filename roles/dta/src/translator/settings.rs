//! Settings of the DTA translator: the table `[translator]` with its collectors, triggers and upstream.

use std::{
    net::{IpAddr, SocketAddr},
    path::{Path, PathBuf},
    time::Duration,
};

use dataplane::router::MAX_INTERCEPTED;
use detect::Prefix;
use translator::{Accept, Config, SectionConfig, Trigger};
use wire::dta::CONTROL_PORT;

use settings::{
    choice,
    problems::Problems,
    read::{Node, Reader},
    section,
    setting::{Setting, Shown},
    values::{Rate, Size, as_nanoseconds, from_text, integer, refuse, with_unit},
};

/// Accepted units and their factors.
const PER_SECOND: [(&str, u64); 8] = [
    ("/s", 1),
    ("k/s", 1_000),
    ("K/s", 1_000),
    ("M/s", 1_000_000),
    ("G/s", 1_000_000_000),
    ("k", 1_000),
    ("K", 1_000),
    ("M", 1_000_000),
];

section! {
    /// A translator of Direct Telemetry Access: it receives DTA reports by UDP and writes to collectors' memory by RDMA
    /// (RoCEv2). See [the how-to](../how-to/dta.md).
    pub struct TranslatorSettings("[translator]") {
        /// Address and port that receive reports for the first collector; others have their own `listen`.
        pub listen: SocketAddr = SocketAddr::from(([0, 0, 0, 0], 40040)),
        /// Addresses or networks that may send DTA reports, for all collectors, such as `["10.0.0.0/8"]`; datagrams of others are
        /// refused and counted as `sender_not_allowed`. Empty: everyone.
        pub allow: Vec<Prefix> = Vec::new(),
        /// Port of the reporters for NACKs and congestion notifications.
        pub control_port: u16 = 40044,
        /// Layout of reports. `v1`: as in [the wire formats](../reference/wire-formats.md). `artifact`: as in the code published
        /// with the paper, with the base header of three bytes (sequence numbers). `both`: distinguished by the first byte.
        pub layout: Accept = Accept::V1,
        /// Method of writing. `socket`: this program sends RoCEv2 packets by a UDP socket. `verbs`: the RDMA device that
        /// has the address `source`, by libibverbs.
        pub mode: TransportMode = TransportMode::Socket,
        /// Source address of RoCEv2 packets. Not set: the local address of the connection to the exchange.
        pub source: Option<IpAddr> = None,
        /// Local UDP port: source of RoCEv2 packets, destination of acknowledgements. 0: the kernel's choice. The ICRC of
        /// acknowledgements is that of destination port 4791, whatever the port is.
        pub source_port: u16 = 0,
        /// Bytes of data in the longest RoCEv2 packet: 256, 512, 1024, 2048 or 4096, so that it fits into the MTU.
        pub pmtu: u16 = 1024,
        /// Longest time that an entry waits for others of its list.
        pub flush: Duration = Duration::from_millis(1),
        /// Pending postcards, which wait for other hops, per collector.
        pub postcards: usize = 65_536,
        /// Longest time that a postcard waits for other hops.
        pub postcard_timeout: Duration = Duration::from_millis(100),
        /// Columns of a sketch that are written together, when all its reporters have sent them.
        pub sketch_columns: u32 = 64,
        /// Longest time that an epoch of a sketch waits for columns; then the incomplete epoch is written.
        pub sketch_timeout: Duration = Duration::from_secs(1),
        /// Reporters whose sequence numbers are tracked.
        pub reporters: usize = 65_536,
        /// Reports per second that one reporter may send; more are dropped and counted. Not set: no limit.
        pub reporter_rate: Option<PerSecond> = None,
        /// Acknowledge essential reports, one message per 64 of them.
        pub acknowledge: bool = false,
        /// Memory for reports of high priority that must wait while a collector is overloaded.
        pub waiting: Size = Size(16 << 20),
        /// Socket receive buffer to ask the kernel for.
        pub receive_buffer: Size = Size(16 << 20),
        /// A file with the secret of the collectors' `[collector.memory] secret_file`, for those without their own. A collector that
        /// cannot prove that it knows the secret is rejected. A reload reads the file again.
        pub secret_file: Option<PathBuf> = None,
        /// The collectors to write to.
        pub collectors: Vec<TargetSettings> = Vec::new(),
        /// Reports that are also appended to a list if a condition is true.
        pub triggers: Vec<TriggerSettings> = Vec::new(),
        /// A translator of the whole network that merges the sketches of its sections. Not set: this translator's are the whole
        /// network's.
        pub upstream: Option<UpstreamSettings> = None,
    }
}

section! {
    /// Sends each epoch of the sketches that this translator merged, for a section of the network, to the translator of the
    /// whole network, as a reporter. There, a sketch has the same ID, shape and kind, and as many `reporters` as there are sections; its
    /// `sketch_timeout` must be longer than those of the sections.
    pub struct UpstreamSettings("[translator.upstream]") {
        /// Address that receives reports at the other translator.
        pub to: Option<SocketAddr> = None,
        /// Reporter ID of this translator there; each section has its own.
        pub reporter: u32 = 1,
        /// The collector, by its index in `collectors` from 0, whose sketches are sent.
        pub collector: u8 = 0,
        /// IDs of the sketches to send. Empty: all.
        pub sketches: Vec<u16> = Vec::new(),
        /// Deliver reliably: reports are numbered, and retransmitted when the other translator misses them.
        pub essential: bool = true,
        /// Longest report, bytes of UDP payload.
        pub longest: u16 = 1400,
        /// Shortest time between two reports.
        pub pace: Duration = Duration::from_micros(20),
        /// Address and port that receive control messages of the other translator. If a reporter runs on this machine, give each its
        /// own address.
        pub control: SocketAddr = SocketAddr::from(([0, 0, 0, 0], CONTROL_PORT)),
    }
}

choice! {
    /// The method by which the translator writes into collectors' memory.
    pub enum TransportMode("\"socket\" or \"verbs\"") {
        /// This program, by a UDP socket.
        Socket = "socket",
        /// An RDMA device (libibverbs).
        Verbs = "verbs",
    }
}

section! {
    /// A collector whose memory is written.
    pub struct TargetSettings("[[translator.collectors]]") {
        /// The collector's `[collector.memory] exchange`. With port 0: the exchange in this process.
        pub exchange: Option<SocketAddr> = None,
        /// Address and port that receive reports for this collector. Not set for the first: `[translator] listen`.
        pub listen: Option<SocketAddr> = None,
        /// Addresses and ports to which reporters send reports for this collector, such as `["10.0.2.9:40040"]`. The switch of this process
        /// intercepts these reports on its ports, instead of forwarding them. Needs `[switch]` in the same file.
        pub intercept: Vec<SocketAddr> = Vec::new(),
        /// A file with the secret of this collector. Not set: `[translator] secret_file`.
        pub secret_file: Option<PathBuf> = None,
        /// RDMA messages per second that it supports: above it, reports of low priority are dropped first. Not set: no limit.
        pub rate: Option<PerSecond> = None,
        /// The same in bits, such as `"10Gbit/s"`.
        pub bandwidth: Option<Rate> = None,
    }
}

section! {
    /// A report of `operation` for which `when` is true also appends an entry to a list: filtering while
    /// collecting, in the translator instead of in the collector.
    pub struct TriggerSettings("[[translator.triggers]]") {
        /// Operation of the reports. For `append`, each entry is examined.
        pub operation: TriggerOperation = TriggerOperation::KeyWrite,
        /// Only reports for this collector, by its index in `collectors` from 0; not set: for all.
        pub collector: Option<u8> = None,
        /// Only reports of this store, list or sketch; not set: of all.
        pub of: Option<u32> = None,
        /// Comparisons joined by `and`, such as `"value >= 1000 and data[0:4] != 0"`. Fields: `reporter`, `priority` (0 to 2),
        /// `essential`, `immediate` (0 or 1), `value` (of key-increments and postcards), `hop`, `path_length`, and bytes of key or data as a
        /// number: `key[FROM:BYTES]`, `data[FROM:BYTES]`. `FIELD & MASK` selects bits. Empty: every report.
        pub when: String = String::new(),
        /// The list that gets an entry, in the memory of the report's collector.
        pub list: u32 = 0,
        /// Contents of the entry, in order and as long as the list's entries: `key[FROM:BYTES]`, `data[FROM:BYTES]`, `time` (8
        /// bytes, ns), a field with its bytes (`value:4`), a number with its bytes (`7:1`).
        pub entry: String = String::new(),
        /// Notify the collector's program immediately (an RDMA immediate).
        pub immediate: bool = false,
        /// Shortest time between two entries of this trigger; `0s`: no limit.
        pub interval: Duration = Duration::ZERO,
    }
}

choice! {
    /// The operation of the reports that a trigger examines.
    pub enum TriggerOperation("\"key-write\", \"append\", \"key-increment\", \"postcard\" or \"sketch-merge\"") {
        /// Triggered by reports of Key-Write.
        KeyWrite = "key-write",
        /// Triggered by reports of Append.
        Append = "append",
        /// Triggered by reports of Key-Increment.
        KeyIncrement = "key-increment",
        /// Triggered by reports of Postcarding.
        Postcard = "postcard",
        /// Triggered by reports of Sketch-Merge.
        SketchMerge = "sketch-merge",
    }
}

/// A rate per second, such as `2000000` or `"2M/s"` (powers of 1000).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PerSecond(pub u64);

impl Setting for PerSecond {
    const KIND: &'static str = "a number per second, such as \"2M/s\"";

    fn read(node: &Node<'_>, reader: &mut Reader<'_>) -> Option<Self> {
        match integer(node.get_ref()).map(u64::try_from) {
            Some(Ok(number)) if number > 0 => Some(Self(number)),
            Some(_) => refuse(node, reader),
            None => from_text(node, reader, |text| {
                with_unit(text, &PER_SECOND).filter(|rate| *rate > 0).map(Self)
            }),
        }
    }

    fn show(&self) -> Shown {
        let mut units = [
            ("G/s", 1_000_000_000),
            ("M/s", 1_000_000),
            ("k/s", 1_000),
            ("/s", 1),
        ]
        .into_iter();
        let unit = units.find(|(_, factor)| self.0.is_multiple_of(*factor));
        let (unit, factor) = unit.unwrap_or(("/s", 1));
        Shown::Plain(format!("{}{unit}", self.0 / factor).into())
    }
}

impl TranslatorSettings {
    /// Returns the addresses that receive reports, by collector.
    pub fn listens(&self) -> Vec<SocketAddr> {
        let collectors = self.collectors.iter().enumerate();
        collectors
            .filter_map(|(index, collector)| collector.listen.or((index == 0).then_some(self.listen)))
            .collect()
    }

    /// Returns the destinations that the switch intercepts, each with its collector's index.
    pub fn intercepted(&self) -> Vec<(SocketAddr, u8)> {
        let collectors = self.collectors.iter().take(translator::MAX_COLLECTORS);
        (0..)
            .zip(collectors)
            .flat_map(|(number, collector)| collector.intercept.iter().map(move |to| (*to, number)))
            .collect()
    }

    /// Returns the file with a collector's secret, if there is one.
    pub fn secret_file<'s>(&'s self, collector: &'s TargetSettings) -> Option<&'s Path> {
        collector.secret_file.as_deref().or(self.secret_file.as_deref())
    }
}

/// Reports problems of `[translator]`. `refuse` receives the path of a setting and a message.
pub fn check(dta: &TranslatorSettings, refuse: &mut dyn FnMut(&[&str], String)) {
    let mut problems = Problems::new(&["translator"], refuse);
    if dta.collectors.is_empty() {
        problems.add(
            "collectors",
            "no collector to write to; add [[translator.collectors]] with exchange = \"10.0.0.9:18515\"",
        );
    }
    if dta.collectors.len() > translator::MAX_COLLECTORS {
        problems.add(
            "collectors",
            "at most 16 collectors; start another translator for the rest",
        );
    }
    if dta.mode == TransportMode::Verbs && dta.source.is_none() {
        problems.add(
            "mode",
            "which RDMA device? add source = \"10.0.0.5\", its address",
        );
    }
    if ![256, 512, 1024, 2048, 4096].contains(&dta.pmtu) {
        problems.add("pmtu", "write 256, 512, 1024, 2048 or 4096");
    }
    if dta.flush.is_zero() || dta.flush.as_secs() > 60 {
        problems.add("flush", "write \"1us\" to \"60s\"");
    }
    if dta.postcard_timeout.is_zero() || dta.postcard_timeout.as_secs() > 60 {
        problems.add("postcard_timeout", "write \"1us\" to \"60s\"");
    }
    for (index, collector) in dta.collectors.iter().enumerate() {
        let position = index.to_string();
        let table = ["translator", "collectors", &position];
        let mut problems = Problems::new(&table, refuse);
        if collector.exchange.is_none() {
            problems.add(
                "exchange",
                "write the collector's [collector.memory] exchange, such as \"10.0.0.9:18515\"",
            );
        }
        let listen = collector.listen.or((index == 0).then_some(dta.listen));
        let before = dta.listens();
        match listen {
            None => problems.add(
                "listen",
                "reports for different collectors come to different ports; add listen = \"0.0.0.0:40041\"",
            ),
            Some(own) if own.port() != 0 && before[..index.min(before.len())].contains(&own) => {
                problems.add(
                    "listen",
                    format!("{own} is another collector's; write another port"),
                );
            }
            Some(_) => {}
        }
    }
    triggers(dta, refuse);
    if let Some(upstream) = &dta.upstream {
        upstream.check(dta.collectors.len(), refuse);
    }
    if !dta.collectors.is_empty()
        && let Err(translator::ConfigError::Setting(name, what)) = dta.config().check()
    {
        let key = if name == "local" { "waiting" } else { name };
        refuse(&["translator", key], format!("write {what}"));
    }
}

/// Reports problems of the destinations to intercept. `has_switch`: the file configures a switch.
pub fn check_intercept(dta: &TranslatorSettings, has_switch: bool, refuse: &mut dyn FnMut(&[&str], String)) {
    let mut before: Vec<SocketAddr> = Vec::new();
    for (index, collector) in dta.collectors.iter().enumerate() {
        for (at, to) in collector.intercept.iter().enumerate() {
            let index = index.to_string();
            let at = at.to_string();
            let list = ["translator", "collectors", &index, "intercept"];
            let mut problems = Problems::new(&list, refuse);
            if !has_switch {
                problems.add(
                    &at,
                    "only a switch in this process can intercept; add [switch], or remove this",
                );
            } else if to.port() == 0 || !is_routed(to.ip()) {
                problems.add(&at, "write the unicast address and the port that reporters send to, such as \"10.0.2.9:40040\"");
            } else if before.contains(to) {
                problems.add(&at, format!("{to} is written twice; remove one"));
            } else if before.len() == MAX_INTERCEPTED {
                problems.add(&at, format!("at most {MAX_INTERCEPTED} destinations in all"));
            }
            before.push(*to);
        }
    }
}

/// Returns whether a switch forwards packets to an address.
fn is_routed(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => {
            !(v4.is_unspecified()
                || v4.is_loopback()
                || v4.is_multicast()
                || v4.is_broadcast()
                || v4.is_link_local())
        }
        IpAddr::V6(v6) => {
            !(v6.is_unspecified()
                || v6.is_loopback()
                || v6.is_multicast()
                || v6.is_unicast_link_local()
                || v6.to_ipv4_mapped().is_some())
        }
    }
}

fn triggers(dta: &TranslatorSettings, refuse: &mut dyn FnMut(&[&str], String)) {
    for (index, trigger) in dta.triggers.iter().enumerate() {
        let position = index.to_string();
        let table = ["translator", "triggers", &position];
        let mut problems = Problems::new(&table, refuse);
        if let Err(error) = translator::trigger_text::conditions(&trigger.when) {
            problems.add("when", error);
        }
        match translator::trigger_text::parts(&trigger.entry) {
            Err(error) => problems.add("entry", error),
            Ok(_) => {
                if let Some(Err(what)) = trigger.built().map(|built| built.check()) {
                    problems.add("entry", what);
                }
            }
        }
    }
}

impl TriggerSettings {
    /// Returns the translator's form of the trigger, or `None` if it is invalid.
    pub fn built(&self) -> Option<Trigger> {
        Some(Trigger {
            // Opcodes of the DTA base header.
            opcode: match self.operation {
                TriggerOperation::KeyWrite => 1,
                TriggerOperation::Append => 2,
                TriggerOperation::KeyIncrement => 3,
                TriggerOperation::Postcard => 4,
                TriggerOperation::SketchMerge => 5,
            },
            collector: self.collector,
            target: self.of,
            conditions: translator::trigger_text::conditions(&self.when).ok()?,
            list: self.list,
            entry: translator::trigger_text::parts(&self.entry).ok()?,
            immediate: self.immediate,
            interval: as_nanoseconds(self.interval),
        })
    }
}

impl TranslatorSettings {
    /// Returns the translator's configuration, without collectors, which connect later.
    pub fn config(&self) -> Config {
        Config {
            collectors: vec![None; self.collectors.len()],
            accept: self.layout,
            reporters: self.reporters,
            reporter_rate: self.reporter_rate.map_or(0, |rate| rate.0),
            acks: self.acknowledge,
            append_timer: as_nanoseconds(self.flush),
            postcard_timer: as_nanoseconds(self.postcard_timeout),
            postcards: self.postcards,
            sketch_columns: self.sketch_columns,
            sketch_timer: as_nanoseconds(self.sketch_timeout),
            local: usize::try_from(self.waiting.0).unwrap_or(usize::MAX),
            triggers: self.triggers.iter().filter_map(TriggerSettings::built).collect(),
            ..Config::default()
        }
    }
}

impl UpstreamSettings {
    fn check(&self, collectors: usize, refuse: &mut dyn FnMut(&[&str], String)) {
        let mut problems = Problems::new(&["translator", "upstream"], refuse);
        match self.to {
            None => problems.add(
                "to",
                "write the address of the other translator, such as \"10.0.0.9:40040\"",
            ),
            Some(to) if to.is_ipv4() != self.control.is_ipv4() => {
                problems.add("control", "write an address of the same family as `to`");
            }
            Some(_) => {}
        }
        if collectors > 0 && usize::from(self.collector) >= collectors {
            problems.add(
                "collector",
                "there is no such collector; write an index of [[translator.collectors]], from 0",
            );
        }
        if !(100..=9000).contains(&self.longest) {
            problems.add("longest", "write 100 to 9000");
        }
        if self.pace.as_secs() > 1 {
            problems.add("pace", "write \"0s\" to \"1s\"");
        }
    }

    /// Returns the configuration of the section of the network.
    pub fn config(&self) -> SectionConfig {
        SectionConfig {
            collector: self.collector,
            sketches: self.sketches.clone(),
            longest: self.longest.into(),
            pace: as_nanoseconds(self.pace),
        }
    }
}

impl TargetSettings {
    /// Returns the limits on operations and bytes per second; 0 means no limit.
    pub fn limit(&self) -> translator::Rate {
        translator::Rate {
            messages: self.rate.map_or(0, |rate| rate.0),
            bytes: self.bandwidth.map_or(0, |rate| rate.0 / 8),
            ..translator::Rate::UNLIMITED
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use settings::{read::span_of, setting::tables};

    section! {
        /// A file with a translator alone.
        struct File("the file") {
            /// The translator.
            pub(crate) translator: Option<TranslatorSettings> = None,
        }
    }

    /// Reads and checks a file. `has_switch`: the program's file would also have a switch.
    fn parse(text: &str, has_switch: bool) -> Result<TranslatorSettings, String> {
        let mut reader = Reader::new(text);
        let root = reader
            .parse(tables::<File>)
            .ok_or_else(|| reader.messages().concat())?;
        let file = File::read(&root, &mut reader).unwrap_or_default();
        reader.end_values(&root);
        let translator = file.translator.ok_or_else(|| "no translator".to_owned())?;
        let mut refuse = |path: &[&str], message: String| reader.refuse(span_of(&root, path), message);
        check(&translator, &mut refuse);
        check_intercept(&translator, has_switch, &mut refuse);
        reader.finish("t.toml").map_err(|error| error.to_string())?;
        Ok(translator)
    }

    fn read(upstream: &str) -> Result<TranslatorSettings, String> {
        let collectors = "[[translator.collectors]]\nexchange = \"10.0.0.9:18515\"\n";
        let text = format!("[translator]\n{collectors}[translator.upstream]\n{upstream}");
        parse(&text, false)
    }

    #[test]
    fn a_section_names_the_other_translator_and_its_sketches() {
        let settings =
            read("to = \"10.0.0.8:40040\"\nreporter = 7\nsketches = [4]\npace = \"1ms\"\n").unwrap();
        let upstream = settings.upstream.unwrap();
        let expected = SectionConfig {
            collector: 0,
            sketches: vec![4],
            longest: 1400,
            pace: 1_000_000,
        };
        assert_eq!(
            (upstream.config(), upstream.reporter, upstream.essential),
            (expected, 7, true)
        );
    }

    #[test]
    fn what_a_section_cannot_do_is_refused() {
        let to = "to = \"10.0.0.8:40040\"\n";
        for (text, word) in [
            ("", "address of the other translator"),
            ("to = \"[::1]:40040\"\n", "same family"),
            (&format!("{to}collector = 1\n"), "no such collector"),
            (&format!("{to}longest = 50\n"), "100 to 9000"),
            (&format!("{to}pace = \"2s\"\n"), "\"0s\" to \"1s\""),
        ] {
            assert!(read(text).unwrap_err().contains(word), "{text}");
        }
    }

    #[test]
    fn destinations_to_intercept_need_a_switch_and_are_unicast() {
        let read = |has_switch: bool, intercept: &str| {
            let text = format!(
                "[translator]\n[[translator.collectors]]\nexchange = \"10.0.0.9:18515\"\nintercept = [{intercept}]\n\
                 [[translator.collectors]]\nexchange = \"10.0.0.8:18515\"\nlisten = \"0.0.0.0:40041\"\n\
                 intercept = [\"10.0.2.8:40040\"]\n"
            );
            parse(&text, has_switch).map(|translator| translator.intercepted())
        };
        let at = |text: &str| text.parse::<SocketAddr>().unwrap();
        let found = read(true, "\"10.0.2.9:40040\", \"[fd00::9]:7\"").unwrap();
        assert_eq!(
            found,
            [
                (at("10.0.2.9:40040"), 0),
                (at("[fd00::9]:7"), 0),
                (at("10.0.2.8:40040"), 1)
            ]
        );
        for (has_switch, intercept, line, word) in [
            (false, "\"10.0.2.9:40040\"", "t.toml:4", "only a switch"),
            (true, "\"10.0.2.9:0\"", "t.toml:4", "unicast"),
            (true, "\"127.0.0.1:40040\"", "t.toml:4", "unicast"),
            (true, "\"[fe80::1]:40040\"", "t.toml:4", "unicast"),
            (true, "\"10.0.2.8:40040\"", "t.toml:8", "written twice"),
        ] {
            let error = read(has_switch, intercept).unwrap_err();
            assert!(error.contains(word) && error.contains(line), "{error}");
        }
        let many: Vec<String> = (0..64).map(|port| format!("\"10.0.2.9:{}\"", port + 1)).collect();
        assert!(read(true, &many.join(", ")).unwrap_err().contains("at most 64"));
    }
}
