//! The role `translator`: settings of a P4 switch that translates DTA reports into RoCEv2 writes, and its entries.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use settings::section;
use settings::values::Rate;

use super::stores::{Offer, RegisterUse, StoreSettings, Waits};
use super::{CrossConnectSettings, Role, RoleEntry, RoleKind, TimerSettings, ipv4, mac, micros, port};

/// Capacities of the program: collectors, sequences (one per reporter and collector), and senders.
const COLLECTORS: usize = 16;
const REPORTERS: usize = 1024;
const SENDERS: usize = 1024;
/// Messages to reporters are cloned to the session with this number plus the port at which the report arrived.
const REPLY_SESSION: u32 = 512;
/// The multicast group for an operation whose packet is processed again, and the replica of that packet.
const AGAIN: (u32, u32) = (6, 7);
/// UDP source port of RoCEv2 to the first collector; others follow.
const SOURCE_PORT: u16 = 0xc000;
/// Permitted burst of operations to a collector, as ns at its rate.
const BURST: u64 = 10_000_000;

section! {
    /// A device with `role = "translator"`: DTA reports in, RoCEv2 out (`map = "hopwise-dta-translator"`). Over IPv4.
    pub struct TranslatorSettings("[manager.p4runtime.NAME.translator]") {
        /// The ports at which reports arrive. ACKs, NACKs and notices of congestion leave by them.
        pub(crate) report_ports: Vec<u32> = Vec::new(),
        /// The reporters whose essential reports, and columns of sketches, are accepted; of all collectors.
        pub(crate) reporters: Vec<ReporterSettings> = Vec::new(),
        /// Addresses of senders that have a rate of their own, and get notices of congestion. Others share one rate, and get none. Not set: those of
        /// `reporters`.
        pub(crate) senders: Option<Vec<IpAddr>> = None,
        /// Reports per second that one sender may send; more are dropped and counted. 0: no limit.
        pub(crate) reporter_rate: u64 = 0,
        /// Reports that a sender may send at once.
        pub(crate) reporter_burst: u32 = 4096,
        /// Time for which a notice of congestion holds.
        pub(crate) hold: Duration = Duration::from_micros(500),
        /// After so long, the numbers of a reporter that was silent are not compared with earlier ones.
        pub(crate) idle: Duration = Duration::from_secs(10),
        /// Shortest time between two NACKs to a reporter.
        pub(crate) nack_interval: Duration = Duration::from_millis(1),
        /// NACKs after which a gap is given up.
        pub(crate) nack_limit: u8 = 3,
        /// Acknowledge essential reports, one message per 64 of them.
        pub(crate) acknowledge: bool = false,
        /// Longest time that an entry waits for others of its list, as far as timer frames arrive.
        pub(crate) flush: Duration = Duration::from_millis(1),
        /// Longest time that a postcard waits for other hops, likewise.
        pub(crate) postcard_timeout: Duration = Duration::from_millis(100),
        /// Longest time that an epoch of a sketch waits for columns, likewise.
        pub(crate) sketch_timeout: Duration = Duration::from_secs(1),
        /// Columns of a sketch that are written together, at most; the program writes 64 bytes at once.
        pub(crate) sketch_columns: u32 = 16,
        /// The collectors, at most 16.
        pub(crate) collectors: Vec<CollectorSettings> = Vec::new(),
        /// Ports between which other packets pass.
        pub(crate) cross_connect: Vec<CrossConnectSettings> = Vec::new(),
        /// Timer frames. Without them, an entry waits until its batch is full, a path until its place is needed, and an epoch for all its columns.
        pub(crate) timer_frames: TimerSettings = TimerSettings::default(),
    }
}

section! {
    /// A reporter of a translator.
    pub struct ReporterSettings("[[manager.p4runtime.NAME.translator.reporters]]") {
        /// ID of the reporter.
        pub(crate) id: u32 = 0,
        /// The only address that may use it.
        pub(crate) address: Option<IpAddr> = None,
    }
}

section! {
    /// A collector of a translator: where its memory is, and the queue pairs that write it.
    pub struct CollectorSettings("[[manager.p4runtime.NAME.translator.collectors]]") {
        /// The address to which RoCEv2 goes.
        pub(crate) address: Option<IpAddr> = None,
        /// The address to which reporters send its reports. Not set: `address`. Reports to it are translated wherever they arrive.
        pub(crate) reports: Option<IpAddr> = None,
        /// The port of the device that leads to it.
        pub(crate) port: u32 = 0,
        /// Source address of RoCEv2.
        pub(crate) source: Option<IpAddr> = None,
        /// The MAC address of that port.
        pub(crate) source_mac: String = String::new(),
        /// The MAC address of the collector, or of the next router.
        pub(crate) mac: String = String::new(),
        /// UDP source port of RoCEv2. Not set: 49152 and the number of the collector.
        pub(crate) source_port: Option<u16> = None,
        /// The collector's number of its unreliable queue pair (UC).
        pub(crate) unreliable: u32 = 0,
        /// The collector's number of its reliable queue pair (RC).
        pub(crate) reliable: u32 = 0,
        /// The collector's number of the remote end of the reliable queue pair. The first packet has PSN 0; after a NAK, the PSN is that of the NAK.
        pub(crate) own: u32 = 1,
        /// RDMA operations per second that it supports: above it, reports of low priority are dropped first. 0: no limit.
        pub(crate) rate: u64 = 0,
        /// The same in bits, such as `"10Gbit/s"`.
        pub(crate) bandwidth: Option<Rate> = None,
        /// The stores in its memory.
        pub(crate) stores: Vec<StoreSettings> = Vec::new(),
    }
}

/// The connection that a collector offers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CollectorLink {
    /// IP address of the collector's RDMA interface.
    pub address: Ipv4Addr,
    /// Queue pair numbers: unreliable (UC), reliable (RC), and our end of the reliable one.
    pub queue_pairs: [u32; 3],
    /// The stores in its memory.
    pub stores: Vec<Offer>,
}

impl TranslatorSettings {
    /// Builds the role for this device.
    ///
    /// # Errors
    /// A sentence with the setting's key and the problem.
    pub fn role(&self) -> Result<Role, String> {
        if self.collectors.is_empty() || self.collectors.len() > COLLECTORS {
            return Err(format!("collectors: write 1 to {COLLECTORS}"));
        }
        let waits = Waits::new(
            self.flush,
            self.postcard_timeout,
            self.sketch_timeout,
            self.sketch_columns,
        )?;
        let mut entries = self.limits()?;
        let mut registers = RegisterUse::default();
        let mut destinations = BTreeSet::new();
        for (number, collector) in self.collectors.iter().enumerate() {
            let at = format!("collectors[{number}]");
            let link = collector.link().map_err(|error| format!("{at}.{error}"))?;
            let link_entries = collector.entries(number as u8, &link);
            entries.extend(link_entries.map_err(|error| format!("{at}.{error}"))?);
            for (index, store) in link.stores.iter().enumerate() {
                registers
                    .add(number as u8, store, &waits)
                    .map_err(|error| format!("{at}.stores[{index}]: {error}"))?;
            }
            let reports = collector.reports_to(&link);
            let reports = reports.map_err(|error| format!("{at}.{error}"))?;
            if !destinations.insert(reports) {
                return Err(format!(
                    "{at}.reports: {reports} is another collector's; give it an address of its own"
                ));
            }
        }
        check_duplicates(&registers.entries)?;
        entries.append(&mut registers.entries);
        Role::new(
            RoleKind::Translator,
            entries,
            registers.frames,
            &self.cross_connect,
            &self.timer_frames,
        )
    }

    /// Describes the role in a few words, for display.
    pub fn about(&self) -> String {
        let stores: usize = self
            .collectors
            .iter()
            .map(|collector| collector.stores.len())
            .sum();
        let collectors = self.collectors.len();
        let reporters = self.reporters.len();
        format!(
            "DTA to {collectors} collector(s) with {stores} store(s); {reporters} reporter(s) of essential reports"
        )
    }

    /// Builds the entries for rate limits, sequence tracking, reporters and senders.
    fn limits(&self) -> Result<Vec<RoleEntry>, String> {
        let cost = cost(self.reporter_rate);
        let burst = u128::from(cost) * u128::from(self.reporter_burst);
        if burst >= 1 << 62 {
            return Err(
                "reporter_burst: it takes longer than 19 hours at `reporter_rate`; write less".to_owned(),
            );
        }
        let mut entries = vec![
            RoleEntry::default(
                "limits",
                "limit_by",
                vec![
                    ("cost", cost.into()),
                    ("burst", burst),
                    ("hold", micros(self.hold, "hold")?),
                    ("copies", 4),
                    ("copies_at_1", 2),
                    ("copies_at_2", 1),
                ],
            ),
            RoleEntry::default(
                "tracking",
                "track_by",
                vec![
                    ("idle", micros(self.idle, "idle")?),
                    ("interval", micros(self.nack_interval, "nack_interval")?),
                    ("nacks", self.nack_limit.into()),
                    ("acks", self.acknowledge.into()),
                ],
            ),
        ];
        for number in &self.report_ports {
            let number = port(*number, "report_ports")?;
            entries.push(RoleEntry::clone_session(REPLY_SESSION + number, number));
        }
        self.reporters(&mut entries)?;
        Ok(entries)
    }

    /// Adds the entries of reporters and senders.
    fn reporters(&self, entries: &mut Vec<RoleEntry>) -> Result<(), String> {
        let sequences = self.reporters.len() * self.collectors.len();
        if sequences > REPORTERS {
            return Err(format!(
                "reporters: the program has room for {REPORTERS} sequences, one for each reporter and collector; these are {sequences}"
            ));
        }
        if !self.reporters.is_empty() && self.report_ports.is_empty() {
            return Err("report_ports: the ports for messages to reporters are missing; write those at which reports arrive".to_owned());
        }
        let mut senders = BTreeSet::new();
        let mut ids = BTreeSet::new();
        for (index, reporter) in self.reporters.iter().enumerate() {
            let address = ipv4(reporter.address, &format!("reporters[{index}].address"))?;
            senders.insert(address);
            if !ids.insert(reporter.id) {
                return Err(format!(
                    "reporters[{index}].id: {} is written twice; remove one",
                    reporter.id
                ));
            }
            for collector in 0..self.collectors.len() {
                let key = vec![("collector", collector as u128), ("reporter", reporter.id.into())];
                let sequence = collector * self.reporters.len() + index;
                let params = vec![("index", sequence as u128), ("address", address.to_bits().into())];
                entries.push(RoleEntry::entry("reporter", key, "track", params));
            }
        }
        if let Some(all) = &self.senders {
            senders = all
                .iter()
                .map(|sender| ipv4(Some(*sender), "senders"))
                .collect::<Result<_, _>>()?;
        }
        if senders.len() > SENDERS {
            return Err(format!("senders: at most {SENDERS}; the others share a rate"));
        }
        for (index, sender) in senders.into_iter().enumerate() {
            let key = vec![("ipv4_src", sender.to_bits().into())];
            entries.push(RoleEntry::entry(
                "sender",
                key,
                "count_sender",
                vec![("index", index as u128)],
            ));
        }
        Ok(())
    }
}

impl CollectorSettings {
    /// Checks the settings of the connection and converts them.
    fn link(&self) -> Result<CollectorLink, String> {
        let address = ipv4(self.address, "address")?;
        for (key, number) in [
            ("unreliable", self.unreliable),
            ("reliable", self.reliable),
            ("own", self.own),
        ] {
            if !(1..1 << 24).contains(&number) {
                return Err(format!("{key}: a queue pair has a number of 24 bits, not 0"));
            }
        }
        let stores = self.stores.iter().map(StoreSettings::offer).collect();
        Ok(CollectorLink {
            address,
            queue_pairs: [self.unreliable, self.reliable, self.own],
            stores,
        })
    }

    fn reports_to(&self, link: &CollectorLink) -> Result<Ipv4Addr, String> {
        self.reports
            .map_or(Ok(link.address), |reports| ipv4(Some(reports), "reports"))
    }

    /// Builds the entries of collector `number`, except for its stores.
    fn entries(&self, number: u8, link: &CollectorLink) -> Result<Vec<RoleEntry>, String> {
        let source_mac = mac(&self.source_mac).map_err(|error| format!("source_mac: {error}"))?;
        let next_mac = mac(&self.mac).map_err(|error| format!("mac: {error}"))?;
        let to = port(self.port, "port")?;
        let source = ipv4(self.source, "source")?;
        let [unreliable, reliable, own] = link.queue_pairs;
        let mut entries = groups(number, to);
        for (index, queue_pair) in [unreliable, reliable].into_iter().enumerate() {
            let params = vec![
                ("src_mac", source_mac.into()),
                ("dst_mac", next_mac.into()),
                ("src_ip", source.to_bits().into()),
                ("dst_ip", link.address.to_bits().into()),
                (
                    "src_port",
                    self.source_port.unwrap_or(SOURCE_PORT + u16::from(number)).into(),
                ),
                ("queue_pair", queue_pair.into()),
            ];
            entries.push(RoleEntry::entry(
                "queue_pair",
                vec![("queue_pair", u128::from(number) * 2 + index as u128)],
                "send_to",
                params,
            ));
        }
        let key = vec![
            ("ipv4_src", link.address.to_bits().into()),
            ("queue_pair", own.into()),
        ];
        entries.push(RoleEntry::entry(
            "answer",
            key,
            "resynchronise",
            vec![("index", u128::from(number) * 2 + 1)],
        ));
        if self.rate > 0 || self.bandwidth.is_some() {
            let bytes = self.bandwidth.map_or(0, |rate| (rate.0 / 8).max(1));
            let params = vec![
                ("message", cost(self.rate).into()),
                ("byte", cost(bytes).into()),
                ("burst", u128::from(BURST) << 16),
            ];
            entries.push(RoleEntry::entry(
                "collector_rate",
                vec![("collector", number.into())],
                "meter_by",
                params,
            ));
        }
        let key = vec![("ipv4_dst", self.reports_to(link)?.to_bits().into())];
        entries
            .push(RoleEntry::entry("collector", key, "translate", vec![("collector", number.into())]).last());
        Ok(entries)
    }
}

/// Builds the multicast groups of a collector behind `port`: for one to five copies of an operation, and for one operation
/// whose packet is processed again.
fn groups(number: u8, port: u32) -> Vec<RoleEntry> {
    let first = u32::from(number) * 8;
    let (group, replica) = AGAIN;
    let mut groups: Vec<RoleEntry> = (1..group)
        .map(|copies| RoleEntry::group(first + copies, (1..=copies).map(|copy| (port, copy)).collect()))
        .collect();
    groups.push(RoleEntry::group(first + group, vec![(port, 1), (port, replica)]));
    groups
}

/// Returns the cost of one unit at `rate` per second, in ns with 16 fraction bits; 0 means no limit.
fn cost(rate: u64) -> u64 {
    (1_000_000_000_u64 << 16).checked_div(rate).unwrap_or(0)
}

/// Checks that the stores of each kind have different ids, and the lists, too.
fn check_duplicates(entries: &[RoleEntry]) -> Result<(), String> {
    let mut keys = BTreeSet::new();
    for entry in entries {
        let super::Form::Table { key, .. } = &entry.form else {
            continue;
        };
        if !keys.insert(key) {
            let [(_, collector), _, (_, id)] = key.as_slice() else {
                continue;
            };
            return Err(format!(
                "collectors[{collector}].stores: two of a kind have the ID {id}; give each its own"
            ));
        }
    }
    Ok(())
}
