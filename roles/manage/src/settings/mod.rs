//! Settings of a manager: the table `[manager]`, with checks against `[inventory]` and `[[intents]]`.

use std::{collections::BTreeMap, net::SocketAddr, path::PathBuf, sync::Arc, time::Duration};

use ::files::Confirm;
use detect::{Match, Metric};
use manager::{
    ApplyMode, ManagerSettings as CoreSettings,
    compile::{Collector, DomainSettings},
    device::{DtaMap, Encoding, L4Checksum},
    drill_down::Limits,
    flows::FlowMatch,
    intent::{self, BudgetSetting, Intent},
    inventory::{self, Device, Inventory, InventorySettings},
    reconcile::Timing,
};

use rustls::ClientConfig;

pub mod files;
pub mod gnmi;
pub mod p4runtime;

use self::{
    files::{FilesFormat, FilesSettings},
    gnmi::GnmiSettings,
    p4runtime::P4RuntimeSettings,
};
use net::tls::{self, Part};
use runtime::{
    collector_map,
    control::{IntentDetection, IntentRule},
};
use settings::{
    read::{Node, Reader, span_of},
    section,
    values::{Clocks, Secret},
};
use view::rules::dta_map;

section! {
    /// A manager of INT: it turns `[[intents]]` into rules on the devices of `[inventory]`, applies them in an order in which no
    /// INT reaches a host, and keeps the devices in sync.
    pub struct ManagerSettings("[manager]") {
        /// Collectors to which devices send their reports. Several share the devices by capacity and distance.
        pub collectors: Vec<CollectorEntry> = Vec::new(),
        /// A map of DTA collectors (`hopwise map`), read at the start and by a reload. Every switch with `[switch.dta]` and
        /// `[switch.managed]` gets it and sends its DTA reports to the collectors of the map, which overrides its own file. Not
        /// set: switches keep their maps.
        pub dta_map: Option<PathBuf> = None,
        /// DSCP that marks packets with INT in the whole domain, 1 to 63.
        pub dscp: u8 = 23,
        /// Treatment of the L4 checksum of packets with INT in the whole domain; see `[switch] l4_checksum`.
        pub l4_checksum: L4Checksum = L4Checksum::Update,
        /// Whether the clocks of all devices are synchronised.
        pub clocks: Clocks = Clocks::Free,
        /// Whether changes of the network are applied automatically, or after approval by an operator.
        pub apply: ApplyMode = ApplyMode::Auto,
        /// Time for which the network must be stable before a change is applied.
        pub calm: Duration = Duration::from_secs(1),
        /// Interval at which a device that reports no change is read again; for a slow device at least four times the duration of a
        /// read.
        pub poll: Duration = Duration::from_secs(10),
        /// Time in which a device must answer a request, `"100ms"` to `"10m"`. After a timeout, the device's limit doubles, up to
        /// 64 s or this time; once it answers, its limit is four times the duration of the answer.
        pub request_timeout: Duration = Duration::from_secs(2),
        /// The longest time that a packet spends in the domain: the queues and links of the longest path. A sink remains for this
        /// long after the last source is removed.
        pub drain: Duration = Duration::from_secs(2),
        /// Start on standby, and take over when no other manager is active: when at least half of the devices, and more than report
        /// the opposite, have received no lease renewal for the time of `lease`. Of two managers, at least one needs this.
        pub standby: bool = false,
        /// Time without a lease renewal after which a manager on standby takes over. An active manager renews its lease once a
        /// second.
        pub lease: Duration = Duration::from_secs(10),
        /// The API of the other manager, such as `"https://10.9.0.2:8080"`. While on standby, this manager copies the intents added
        /// there, once a second.
        pub peer: Option<String> = None,
        /// Token for the API of the other manager; the role `read` suffices. Not set: `token`.
        pub peer_token: Option<Secret> = None,
        /// Limits of the drill-downs (`report.then`) of intents.
        pub drill_downs: DrillDownSettings = DrillDownSettings::default(),
        /// File with the intents that were added while running, and with the history. Not set: both are lost when the program
        /// stops.
        pub state: Option<PathBuf> = None,
        /// Folder with files of `[[intents]]`: each `*.toml`, in the order of the names. They are read with this file, also at a
        /// reload, and shown as its intents.
        pub intents: Option<PathBuf> = None,
        /// Devices with the driver `files` that read a format other than text, by name.
        [live] pub files: BTreeMap<String, FilesSettings> = BTreeMap::new(),
        /// Devices with the driver `gnmi`, by name.
        [live] pub gnmi: BTreeMap<String, GnmiSettings> = BTreeMap::new(),
        /// Devices with the driver `p4runtime`, by name.
        [live] pub p4runtime: BTreeMap<String, P4RuntimeSettings> = BTreeMap::new(),
        /// Network namespace from which hopwise switches are reached; `{device}` stands for a device's name. Not set: that of this
        /// process.
        pub namespace: Option<String> = None,
        /// Token for the API of the devices, with the role `operate`.
        pub token: Option<Secret> = None,
        /// Send `token` and `peer_token` to other hosts without encryption, too. Anyone who can read the network can then configure the devices.
        pub unencrypted: bool = false,
        /// PEM file with the certificate authorities to trust for devices with an `https://` address; those of the system are not
        /// trusted.
        pub ca: Option<PathBuf> = None,
        /// PEM file with the certificate that the manager shows to devices with `[api] tls.client_ca`, and the authorities between.
        pub certificate: Option<PathBuf> = None,
        /// PEM file with the certificate's private key.
        pub key: Option<PathBuf> = None,
    }
}

section! {
    /// Limits of the drill-downs (`report.then`) of intents. Drill-downs beyond them are not installed, and are recorded in the
    /// history.
    pub struct DrillDownSettings("[manager.drill_downs]") {
        /// Maximum number of concurrent drill-downs, up to 1,000; 0: none.
        pub at_once: u32 = 16,
        /// Maximum number of drill-downs that start within a minute, up to 10,000.
        pub per_minute: u32 = 30,
        /// Maximum duration of a drill-down, `"1s"` to `"1h"`; a longer `for` is shortened.
        pub longest: Duration = Duration::from_secs(600),
        /// Maximum number of flows of a drill-down with `match = "this queue"`, up to 1,000: those with the most reports.
        pub flows: u32 = 64,
    }
}

section! {
    /// A collector to which devices send reports.
    pub struct CollectorEntry("[[manager.collectors]]") {
        /// Where it receives reports: address and port.
        pub address: Option<SocketAddr> = None,
        /// This collector's share of the devices, relative to that of the others.
        pub capacity: u32 = 1,
        /// The device that the collector is connected to; nearer devices prefer it. Not set: unknown, and devices prefer a
        /// collector whose location is known.
        pub at: Option<String> = None,
        /// Maximum rate that all intents together may cause at the collector, as `budget` of an intent. To keep it, all intents
        /// that report there and allow coarser detail are made coarser. Events are counted only for the collector in this process.
        /// Not set: unlimited.
        pub budget: Option<BudgetSetting> = None,
    }
}

impl ManagerSettings {
    /// Returns the TLS configuration of connections to devices, or `None` without `ca`.
    ///
    /// # Errors
    /// A file is unusable.
    pub fn client(&self) -> Result<Option<Arc<ClientConfig>>, tls::Problem> {
        let identity = tls::Identity::from_files(self.certificate.as_deref(), self.key.as_deref())?;
        self.ca
            .as_deref()
            .map(|ca| tls::client(ca, identity.as_ref()))
            .transpose()
    }

    /// Reads the map of DTA collectors.
    ///
    /// # Errors
    /// The file is unreadable or not a map; the value is the message.
    pub fn collector_map(&self) -> Result<Option<Arc<DtaMap>>, String> {
        let Some(file) = &self.dta_map else {
            return Ok(None);
        };
        let map = collector_map::load(file).map_err(|error| error.to_string())?;
        let map = dta_map(&map).map_err(|error| format!("{}: {error}", file.display()))?;
        if map.text.len() > MAX_MAP {
            return Err(format!(
                "{} has {} KiB, and switches accept at most {} KiB; create it with fewer `--lists`",
                file.display(),
                map.text.len() / 1024,
                MAX_MAP / 1024
            ));
        }
        Ok(Some(Arc::new(map)))
    }

    /// Returns a warning if some collectors have no location although others have one.
    pub fn idle_collectors(&self) -> Option<String> {
        let (placed, others): (Vec<_>, Vec<_>) = self.collectors.iter().partition(|entry| entry.at.is_some());
        let others = others.iter().filter_map(|entry| Some(entry.address?.to_string()));
        let others = others.collect::<Vec<_>>().join(" and ");
        (!placed.is_empty() && !others.is_empty()).then(|| {
            format!(
                "{others} has no `at` in [manager] collectors, and gets only devices that cannot reach the others; write `at` for all of them or for none"
            )
        })
    }

    /// Returns the settings of the core, without the DTA map. `inventory` resolves the devices at the collectors.
    pub fn core(&self, inventory: &Inventory) -> CoreSettings {
        let collectors = self.collectors.iter().filter_map(|entry| {
            Some(Collector {
                address: entry.address?,
                capacity: entry.capacity.max(1),
                at: entry.at.as_deref().and_then(|name| inventory.node(name).ok()),
                budget: entry.budget.as_ref().map(|budget| budget.0).unwrap_or_default(),
            })
        });
        CoreSettings {
            domain: DomainSettings {
                encoding: Encoding {
                    dscp: self.dscp,
                    l4_checksum: self.l4_checksum,
                },
                synchronised: self.clocks == Clocks::Synchronised,
                collectors: collectors.collect(),
                dta_map: None,
            },
            // `batch`: a request with a thousand rules would exceed the size that a switch's API accepts.
            timing: Timing {
                timeout: nanoseconds(self.request_timeout),
                poll: nanoseconds(self.poll),
                drain: nanoseconds(self.drain),
                batch: 500,
                ..Timing::default()
            },
            apply: self.apply,
            calm: nanoseconds(self.calm),
            drill_downs: Limits {
                at_once: self.drill_downs.at_once as usize,
                per_minute: self.drill_downs.per_minute as usize,
                longest: nanoseconds(self.drill_downs.longest),
                flows: self.drill_downs.flows as usize,
            },
            ..CoreSettings::default()
        }
    }
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// Longest map of DTA collectors, bytes. A request with it must fit into the size that a switch's API accepts.
const MAX_MAP: usize = 192 << 10;

/// Reports inconsistent settings of manager, inventory and intents. `collects`: this process has a collector. Returns the
/// rules and thresholds that the intents delegate to the collector.
pub fn check(
    manager: Option<&ManagerSettings>,
    inventory: &InventorySettings,
    intents: &[intent::IntentSettings],
    collects: bool,
    root: &Node<'_>,
    reader: &mut Reader<'_>,
) -> IntentDetection {
    let table = root.get_ref().get("inventory");
    let inventory = table.map_or_else(Inventory::default, |node| {
        inventory::checked(inventory, node, reader)
    });
    let checked = check_intents(intents, collects, root, reader);
    let flows = checked
        .iter()
        .filter_map(|intent| Some((intent, matches(&intent.entries().ok()?))));
    let asked = asked(flows);
    let Some(manager) = manager else {
        if !intents.is_empty() {
            reader.refuse(
                span_of(root, &["intents"]),
                "intents need a manager; add [manager]",
            );
        }
        return asked;
    };
    check_collectors(manager, &inventory, collects, &mut |path, message| {
        reader.refuse(span_of(root, path), message);
    });
    check_manager(manager, &inventory, root, &mut |path, message| {
        reader.refuse(span_of(root, path), message);
    });
    asked
}

fn check_collectors(
    manager: &ManagerSettings,
    inventory: &Inventory,
    collects: bool,
    refuse: &mut impl FnMut(&[&str], String),
) {
    for (index, entry) in manager.collectors.iter().enumerate() {
        let index = index.to_string();
        let path = ["manager", "collectors", &index];
        if entry
            .address
            .is_none_or(|address| address.port() == 0 || address.ip().is_unspecified())
        {
            refuse(
                &path,
                "the address is missing; add address = \"192.0.2.9:9555\" or the like".to_owned(),
            );
        }
        if let Some(Err(error)) = entry.at.as_deref().map(|name| inventory.node(name)) {
            refuse(&path, error.to_string());
        }
        if !collects
            && entry
                .budget
                .as_ref()
                .is_some_and(|budget| budget.0.events.is_some())
        {
            refuse(&["manager", "collectors", &index, "budget"], NO_EVENTS.to_owned());
        }
    }
}

/// The error of a budget in events without a collector in this process.
const NO_EVENTS: &str = "events are counted by a collector in the manager's process, and there is none; run the manager in the collector's process, or write the budget in reports/s";

/// Reports problems of `[manager]` to `refuse`, with the setting's path. `root` is the whole file.
fn check_manager(
    manager: &ManagerSettings,
    inventory: &Inventory,
    root: &Node<'_>,
    refuse: &mut impl FnMut(&[&str], String),
) {
    if !(1..=63).contains(&manager.dscp) {
        refuse(&["manager", "dscp"], "write a number from 1 to 63".to_owned());
    }
    if let Err(message) = manager.collector_map() {
        refuse(&["manager", "dta_map"], message);
    }
    for (key, duration) in [
        ("calm", manager.calm),
        ("poll", manager.poll),
        ("drain", manager.drain),
    ] {
        if duration > Duration::from_secs(3600) || (key == "poll" && duration < Duration::from_millis(100)) {
            refuse(&["manager", key], "write \"100ms\" to \"1h\"".to_owned());
        }
    }
    if !(Duration::from_millis(100)..=Duration::from_secs(600)).contains(&manager.request_timeout) {
        refuse(
            &["manager", "request_timeout"],
            "write \"100ms\" to \"10m\"".to_owned(),
        );
    }
    let DrillDownSettings {
        at_once,
        per_minute,
        longest,
        flows,
    } = manager.drill_downs;
    for (key, value, range) in [
        ("at_once", at_once, 0..=1_000),
        ("per_minute", per_minute, 1..=10_000),
        ("flows", flows, 1..=1_000),
    ] {
        if !range.contains(&value) {
            let message = format!("write a number from {} to {}", range.start(), range.end());
            refuse(&["manager", "drill_downs", key], message);
        }
    }
    if !(Duration::from_secs(1)..=Duration::from_secs(3600)).contains(&longest) {
        refuse(
            &["manager", "drill_downs", "longest"],
            "write \"1s\" to \"1h\"".to_owned(),
        );
    }
    if let Err(problem) = manager.client() {
        let key = match problem.file {
            Part::Certificate => "certificate",
            Part::Key => "key",
            Part::Authorities => "ca",
        };
        refuse(&["manager", key], problem.message);
    }
    if !(Duration::from_secs(3)..=Duration::from_secs(3600)).contains(&manager.lease) {
        refuse(&["manager", "lease"], "write \"3s\" to \"1h\"".to_owned());
    }
    if manager.standby && !inventory.devices().any(|device| device.driver == "hopwise") {
        let message = "no device can report whether another manager is active: only devices with driver = \"hopwise\" do; remove the line";
        refuse(&["manager", "standby"], message.to_owned());
    }
    if let Some(Err(message)) = manager.peer.as_deref().map(|peer| check_peer(peer, manager)) {
        refuse(&["manager", "peer"], message);
    }
    check_devices(manager, inventory, root, refuse);
}

/// Checks that the other manager can be copied from.
fn check_peer(peer: &str, manager: &ManagerSettings) -> Result<(), String> {
    if !manager.standby {
        return Err("only a manager on standby copies from its peer; add standby = true".to_owned());
    }
    let (is_secure, authority) = tls::authority(peer);
    let key = manager.peer_token.as_ref().map(|_| "peer_token");
    if let Some(key) = key
        .or(manager.token.as_ref().map(|_| "token"))
        .filter(|_| !is_secure)
        && is_read_by_others(peer, manager)
    {
        return Err(in_the_clear("it", key));
    }
    if is_secure && manager.ca.is_none() {
        let message = "it has TLS; add ca = \"ca.pem\" to [manager], with the authority of its certificate";
        return Err(message.to_owned());
    }
    let has_port = authority
        .rsplit_once(':')
        .is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok());
    let is_named = !is_secure || tls::server_name(authority).is_some();
    if has_port && is_named {
        Ok(())
    } else {
        Err("write it like \"https://10.9.0.2:8080\"".to_owned())
    }
}

/// Checks each device's driver and its settings.
fn check_devices(
    manager: &ManagerSettings,
    inventory: &Inventory,
    root: &Node<'_>,
    refuse: &mut impl FnMut(&[&str], String),
) {
    for device in inventory.devices() {
        let at = index_of(root, &device.name);
        let checked = match device.driver.as_str() {
            driver if device.role.is_outside() && driver != "p4runtime" => Err((
                "",
                format!(
                    "only driver = \"p4runtime\" drives a device with a role outside the domain: the role {} of hopwise itself is in its own file",
                    device.role.name()
                ),
            )),
            "gnmi" => with_table(device, &manager.gnmi, "192.0.2.11:9339")
                .and_then(|settings| settings.driver(device).map(drop)),
            "p4runtime" => with_table(device, &manager.p4runtime, "192.0.2.11:9559")
                .and_then(|settings| settings.driver(device).map(drop)),
            "files" => files(manager, device),
            _ => driver(device)
                .and_then(|()| secure(device, manager))
                .map_err(|message| ("", message)),
        };
        match checked {
            Ok(()) => {}
            Err(("", message)) => refuse(&["inventory", "devices", &at], message),
            Err((key, message)) => refuse(&["manager", &device.driver, &device.name, key], message),
        }
    }
    let tables = (manager.gnmi.keys().map(|name| ("gnmi", name)))
        .chain(manager.p4runtime.keys().map(|name| ("p4runtime", name)))
        .chain(manager.files.keys().map(|name| ("files", name)));
    for (driver, name) in tables {
        if !inventory
            .devices()
            .any(|device| device.name == *name && device.driver == driver)
        {
            let message =
                format!("[inventory] has no device `{name}` with driver = \"{driver}\"; correct the name");
            refuse(&["manager", driver, name], message);
        }
    }
}

/// Checks the settings of a device with the driver `files`. The error is a key and the reason its value is invalid.
fn files(manager: &ManagerSettings, device: &Device) -> Result<(), (&'static str, String)> {
    driver(device).map_err(|message| ("", message))?;
    let Some(settings) = manager.files.get(&device.name) else {
        return Ok(());
    };
    if settings.format == FilesFormat::ConfigDb && device.options.confirm.as_deref() == Some("written") {
        // Otherwise the next change would replace the patch, whether or not it had been applied.
        let message = format!(
            "a patch starts from rules that the device is known to have, and with confirm = \"written\" they are not known; remove `confirm` of `{}`",
            device.name
        );
        return Err(("format", message));
    }
    settings.format(device).map(drop)
}

/// Returns the index of a device in the configuration, as a step of a path.
fn index_of(root: &Node<'_>, name: &str) -> String {
    let devices = root
        .get_ref()
        .get("inventory")
        .and_then(|table| table.get_ref().get("devices"));
    let devices = devices.and_then(|devices| devices.get_ref().as_array());
    let index = devices.and_then(|devices| {
        devices.iter().position(|device| {
            let written = device.get_ref().get("name");
            written.and_then(|written| written.get_ref().as_str()) == Some(name)
        })
    });
    index.map(|index| index.to_string()).unwrap_or_default()
}

/// Checks that a device with TLS can be verified, and that the token is not sent in the clear over a shared network.
fn secure(device: &Device, manager: &ManagerSettings) -> Result<(), String> {
    let Device {
        name,
        driver,
        address,
        ..
    } = device;
    if driver != "hopwise" {
        return Ok(());
    }
    if !address.starts_with("https://") {
        let is_read = manager.token.is_some() && is_read_by_others(address, manager);
        return if is_read {
            Err(in_the_clear(&format!("`{name}`"), "token"))
        } else {
            Ok(())
        };
    }
    if manager.ca.is_none() {
        return Err(format!(
            "`{name}` has TLS; add ca = \"ca.pem\" to [manager], with the authority of its certificate"
        ));
    }
    let authority = tls::authority(address).1;
    let named = tls::server_name(authority).is_some()
        && authority
            .rsplit_once(':')
            .is_some_and(|(_, port)| port.parse::<u16>().is_ok());
    if named {
        Ok(())
    } else {
        Err(format!(
            "write the address of `{name}` like https://10.9.0.11:8080"
        ))
    }
}

/// Returns whether data sent to an address without TLS crosses a network that others may read.
fn is_read_by_others(address: &str, manager: &ManagerSettings) -> bool {
    !manager.unencrypted && !address.is_empty() && !tls::is_loopback(tls::authority(address).1)
}

fn in_the_clear(to: &str, key: &str) -> String {
    format!(
        "{to} would get `{key}` of [manager] without encryption; write its address like https://10.9.0.11:8080, or unencrypted = true in [manager] if this network is private"
    )
}

/// Returns the settings of a device's driver from its table in `[manager]`, after checking the device's keys.
fn with_table<'a, T>(
    device: &Device,
    tables: &'a BTreeMap<String, T>,
    example: &str,
) -> Result<&'a T, (&'static str, String)> {
    let Device { name, driver, .. } = device;
    let message = if device.options.confirm.is_some() {
        format!("`confirm` of `{name}` belongs to driver = \"files\"; remove it")
    } else if device.address.is_empty() {
        format!("the address of `{name}` is missing; add address = \"{example}\" or the like to the device")
    } else if let Some(settings) = tables.get(name) {
        return Ok(settings);
    } else {
        format!("the settings of `{name}` are missing; add [manager.{driver}.{name}]")
    };
    Err(("", message))
}

/// Checks a device's driver, and the keys that only some drivers accept.
fn driver(device: &Device) -> Result<(), String> {
    let Device {
        name,
        driver,
        address,
        options,
        ..
    } = device;
    match driver.as_str() {
        "hopwise" if options.confirm.is_some() => Err(format!(
            "`confirm` of `{name}` belongs to driver = \"files\"; remove it"
        )),
        "hopwise" => Ok(()),
        "files" if address.is_empty() => Err(format!(
            "the directory of `{name}` is missing; add address = \"/var/lib/hopwise/{name}\""
        )),
        "files" => match options.confirm.as_deref().map(Confirm::from_name) {
            Some(None) => Err(format!("confirm of `{name}` is \"applied\" or \"written\"")),
            _ => Ok(()),
        },
        _ => Err(format!(
            "there is no driver `{driver}` for `{name}`; use \"hopwise\", \"p4runtime\", \"gnmi\" or \"files\""
        )),
    }
}

/// Reports inconsistent `[[intents]]` of a file. `collects`: this process has a collector.
pub fn check_intents(
    intents: &[intent::IntentSettings],
    collects: bool,
    root: &Node<'_>,
    reader: &mut Reader<'_>,
) -> Vec<Intent> {
    let checked = intent::build_and_check(intents, root, reader, nic::time::now());
    for (index, intent) in checked.iter().enumerate() {
        if let Err((key, message)) = supported(intent, collects) {
            reader.refuse(span_of(root, &["intents", &index.to_string(), key]), message);
        }
    }
    checked
}

/// Refuses intents that this process cannot execute.
///
/// # Errors
/// A key of the intent, and a sentence with a suggested fix.
pub fn supported(intent: &Intent, collects: bool) -> Result<(), (&'static str, String)> {
    if intent.budget.events.is_some() && !collects {
        return Err(("budget", NO_EVENTS.to_owned()));
    }
    if !asks(intent) {
        return Ok(());
    }
    if !collects {
        let message = "a rule, or thresholds without a filter, are evaluated by a collector in the manager's process, and there is none; run the manager in the collector's process, or remove them";
        return Err(("report", message.to_owned()));
    }
    if !intent.flows.dscp.is_empty() {
        let message = "reports do not say which DSCP a flow has, so that a rule or thresholds cannot be for some; remove `dscp`, or `report`";
        return Err(("report", message.to_owned()));
    }
    Ok(())
}

/// Returns whether the collector has to evaluate a rule or thresholds for an intent.
pub fn asks(intent: &Intent) -> bool {
    let reporting = &intent.reporting;
    reporting.rule.is_some() || (reporting.filter.is_none() && !reporting.thresholds.is_empty())
}

/// Returns the rules and thresholds that intents, each with its flows, delegate to the collector.
pub fn asked<'a>(intents: impl IntoIterator<Item = (&'a Intent, Vec<Match>)>) -> IntentDetection {
    let mut asked = IntentDetection::default();
    for (intent, flows) in intents.into_iter().filter(|(intent, _)| asks(intent)) {
        let reporting = &intent.reporting;
        if reporting.filter.is_none() && !reporting.thresholds.is_empty() {
            let values = Metric::ALL.map(|metric| reporting.thresholds.get(&metric).copied());
            asked
                .thresholds
                .extend(flows.iter().map(|flows| (*flows, values)));
        }
        if let Some(when) = &reporting.rule {
            asked.rules.push(IntentRule {
                name: intent.name.clone(),
                when: when.clone(),
                flows,
            });
        }
    }
    asked
}

/// Converts an intent's flows to the collector's form.
pub fn matches(keys: &[FlowMatch]) -> Vec<Match> {
    keys.iter().map(FlowMatch::to_match).collect()
}
