//! Settings of the switch's DTA reporter: the table `[switch.dta]`, and its conversion to the reporter's configuration.

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use dataplane::dta::{
    Action, Condition, Config, ConfigError, Field, Mapping, Part, Retransmission, SendOptions, Spread,
    Trigger, sketches, table,
};
use detect::{PortRange, Prefix};
use wire::dta::{
    CONTROL_PORT, Priority,
    layout::{Columns, SketchKind},
};

use super::flow_match;
use dta::collector_map::CollectorMap;
use runtime::collector_map;

use settings::{
    choice,
    read::{Node, Reader, Value},
    section,
    setting::{Setting, Shown},
    values::{Protocol, as_nanoseconds},
};

section! {
    /// Reports by Direct Telemetry Access (DTA): small datagrams that a translator turns into writes to a collector's memory.
    /// They replace Telemetry Reports or are sent in addition. See [the how-to](../how-to/report-by-dta.md).
    pub struct DtaSettings("[switch.dta]") {
        /// Addresses of the collectors, in the order of their numbers from 0; a translator receives the reports to each address. At
        /// most 64. All reporters and queries need the same list, because it determines the collector of each key.
        pub collectors: Vec<SocketAddr> = Vec::new(),
        /// A map of the collectors (`hopwise map`), the same for all reporters and queries, read at the start and by a reload. It
        /// states which collector has which keys, lists and sketches, and, unless `collectors` is set, the addresses for reports. With
        /// `[switch.managed]`, a manager with `dta_map` hands out the map: it replaces this one, and neither `map` nor `collectors` is needed.
        pub map: Option<PathBuf> = None,
        /// Reporter ID. Not set: the node's id.
        pub reporter: Option<u32> = None,
        /// Also send Telemetry Reports.
        pub also_reports: bool = false,
        /// Address and port that receive control messages of translators; reports are sent from this address and another port. Do
        /// not change the port: a translator sends to the same port at all reporters. If two reporters share a machine, give each
        /// its own address.
        pub control: SocketAddr = SocketAddr::from(([0, 0, 0, 0], CONTROL_PORT)),
        /// Number of the collector that stores all sketches.
        pub sketch_collector: u8 = 0,
        /// Longest report, bytes of UDP payload.
        pub longest: u16 = 1400,
        /// After this time without another essential report, the last one is sent again; then after twice this time, four times,
        /// and so on, eight times in all. `0s`: never.
        pub probe: Duration = Duration::from_millis(20),
        /// Lists with a fixed collector; others are assigned to the collectors in turn.
        pub list: Vec<ListSettings> = Vec::new(),
        /// The mappings: what is reported, and when.
        pub report: Vec<MappingSettings> = Vec::new(),
        /// Tables of counters per key.
        pub table: Vec<TableSettings> = Vec::new(),
        /// Sketches that the switch maintains.
        pub sketch: Vec<SketchSettings> = Vec::new(),
    }
}

section! {
    /// Lists of one collector.
    pub struct ListSettings("[[switch.dta.list]]") {
        /// Number of the first list.
        pub first: u32 = 0,
        /// Last list. Not set: the first is the only one.
        pub last: Option<u32> = None,
        /// Number of the collector, from 0.
        pub collector: u8 = 0,
    }
}

section! {
    /// A mapping from the switch's data to reports: the trigger, the conditions, the operation and its fields. See [the
    /// fields](dta-fields.md).
    pub struct MappingSettings("[[switch.dta.report]]") {
        /// A name for displays.
        pub name: String = String::new(),
        /// The trigger of the operation.
        pub on: Option<Trigger> = None,
        /// Name of the table, for triggers of a table.
        pub table: Option<String> = None,
        /// Source addresses to match.
        pub src: Option<Prefix> = None,
        /// Destination addresses to match.
        pub dst: Option<Prefix> = None,
        /// Source ports to match.
        pub sport: Option<PortRange> = None,
        /// Destination ports to match.
        pub dport: Option<PortRange> = None,
        /// IP protocol to match.
        pub proto: Option<Protocol> = None,
        /// Conditions that must all be met.
        pub when: Vec<ConditionSetting> = Vec::new(),
        /// Report one in this many of the matching occurrences.
        pub every: u32 = 1,
        /// Report each hop of a path separately, instead of the path. Postcards always do.
        pub each_hop: bool = false,
        /// The operation to send.
        pub operation: Option<OperationName> = None,
        /// Number of the store. For `key-write`, `key-increment`, `postcard`.
        pub store: Option<u16> = None,
        /// Copies in the store. For `key-write`, `key-increment`. Not set: 2.
        pub copies: Option<u8> = None,
        /// Fields of the key. For `key-write`, `key-increment`, `postcard`.
        pub key: Vec<FieldSetting> = Vec::new(),
        /// Fields of the value or the entry. For `key-write`, `append`.
        pub data: Vec<FieldSetting> = Vec::new(),
        /// The field to add. For `key-increment`.
        pub delta: Option<FieldSetting> = None,
        /// The field that each hop reports. For `postcard`.
        pub value: Option<FieldSetting> = None,
        /// Number of the list. For `append`.
        pub list: Option<u32> = None,
        /// Number of lists over which entries are spread, from `list` on. For `append`.
        pub lists: u16 = 1,
        /// Fields that select the list.
        pub spread: Vec<FieldSetting> = Vec::new(),
        /// Entries in one report. For `append`.
        pub entries: u8 = 1,
        /// Longest time that an entry waits for others.
        pub hold: Duration = Duration::from_millis(1),
        /// Priority under congestion: reports of low priority are dropped first.
        pub priority: Priority = Priority::Medium,
        /// Deliver reliably: reports are numbered, buffered, and retransmitted when a translator misses them.
        pub essential: bool = false,
        /// Sets the immediate flag, so that the collector's CPU is notified.
        pub immediate: bool = false,
    }
}

choice! {
    /// A DTA operation of a mapping.
    pub enum OperationName("\"key-write\", \"append\", \"key-increment\" or \"postcard\"") {
        /// A value under a key.
        KeyWrite = "key-write",
        /// An entry at the end of a list.
        Append = "append",
        /// Adds to the counters of a key.
        KeyIncrement = "key-increment",
        /// One hop of the path of a key.
        Postcard = "postcard",
    }
}

section! {
    /// Counters per key, in fixed memory: a new key evicts the key that occupies its slot.
    pub struct TableSettings("[[switch.dta.table]]") {
        /// Name of the table, for `table` of a report.
        pub name: String = String::new(),
        /// Fields of the key, at most 40 bytes.
        pub key: Vec<FieldSetting> = Vec::new(),
        /// Source address of packets to count.
        pub src: Option<Prefix> = None,
        /// Destination addresses to match.
        pub dst: Option<Prefix> = None,
        /// Source ports to match.
        pub sport: Option<PortRange> = None,
        /// Destination ports to match.
        pub dport: Option<PortRange> = None,
        /// IP protocol to match.
        pub proto: Option<Protocol> = None,
        /// Role of the switch at which a packet is counted, so that not every switch counts it.
        pub at: table::At = table::At::Anywhere,
        /// Records, a power of two; about 130 bytes each.
        pub slots: usize = 4096,
        /// Period after which records are reported and their counts restart; `0s`: never.
        pub period: Duration = Duration::ZERO,
        /// Records that do not meet these are neither reported at the end of a period nor counted in its window.
        pub having: Vec<ConditionSetting> = Vec::new(),
    }
}

section! {
    /// A sketch: a summary of all packets of an epoch, which the translator merges with those of other switches. All keys
    /// except `at` and the flows must be the same at all switches.
    pub struct SketchSettings("[[switch.dta.sketch]]") {
        /// A name for displays.
        pub name: String = String::new(),
        /// Number of the sketch.
        pub id: u16 = 0,
        /// Kind of the sketch.
        pub kind: Option<SketchKind> = None,
        /// Fields of the key: what is counted or distinguished.
        pub key: Vec<FieldSetting> = Vec::new(),
        /// The field to sample, as 32 bits: an IPv4 address, a Flow ID, or a number. For `aroma`.
        pub item: Option<FieldSetting> = None,
        /// Rows, 1 to 16.
        pub depth: u8 = 4,
        /// Columns of the sketch.
        pub columns: u32 = 4096,
        /// Bytes of a counter, 4 or 8. Not set: 4, or 8 for `aroma`.
        pub width: Option<u8> = None,
        /// Count bytes instead of packets. For `count-min`, `count`.
        pub bytes: bool = false,
        /// Source address of packets to count.
        pub src: Option<Prefix> = None,
        /// Destination addresses to match.
        pub dst: Option<Prefix> = None,
        /// Source ports to match.
        pub sport: Option<PortRange> = None,
        /// Destination ports to match.
        pub dport: Option<PortRange> = None,
        /// IP protocol to match.
        pub proto: Option<Protocol> = None,
        /// Role of the switch at which a packet is counted, so that not every switch counts it.
        pub at: table::At = table::At::Source,
        /// Length of an epoch. The sketch is sent when the epoch ends, at all switches at the same time if their clocks are
        /// synchronised.
        pub epoch: Duration = Duration::from_secs(10),
        /// Columns in a report.
        pub per_report: u8 = 64,
        /// Time between two reports.
        pub pace: Duration = Duration::from_micros(20),
        /// Priority under congestion: reports of low priority are dropped first.
        pub priority: Priority = Priority::Medium,
        /// Deliver reliably. If `false`, the next report reveals a lost one, except for the last.
        pub essential: bool = true,
        /// Sets the immediate flag, so that the collector's CPU is notified.
        pub immediate: bool = false,
    }
}

/// A field of a key or of data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FieldSetting(pub Field);

/// A condition for sending a report.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ConditionSetting(pub Condition);

fn fields(settings: &[FieldSetting]) -> Vec<Field> {
    settings.iter().map(|setting| setting.0).collect()
}

fn conditions(settings: &[ConditionSetting]) -> Vec<Condition> {
    settings.iter().map(|setting| setting.0).collect()
}

impl Setting for FieldSetting {
    const KIND: &'static str = "a field, such as \"flow\", \"node[5]\" or \"hop_latency:u16\"";

    fn read(node: &Node<'_>, reader: &mut Reader<'_>) -> Option<Self> {
        read_text(node, reader, Self::KIND).map(Self)
    }

    fn show(&self) -> Shown {
        Shown::Plain(self.0.to_string().into())
    }
}

impl Setting for ConditionSetting {
    const KIND: &'static str = "a condition, such as \"hop_latency > 500us\"";

    fn read(node: &Node<'_>, reader: &mut Reader<'_>) -> Option<Self> {
        read_text(node, reader, Self::KIND).map(Self)
    }

    fn show(&self) -> Shown {
        Shown::Plain(self.0.to_string().into())
    }
}

/// Reads a text whose parser provides the error message.
fn read_text<T: std::str::FromStr<Err: std::fmt::Display>>(
    node: &Node<'_>,
    reader: &mut Reader<'_>,
    kind: &str,
) -> Option<T> {
    let Value::String(text) = node.get_ref() else {
        reader.expected(node, kind);
        return None;
    };
    text.parse()
        .map_err(|error: T::Err| reader.refuse(node.span(), error.to_string()))
        .ok()
}

/// The table of a setting.
#[derive(Clone, Copy)]
enum SettingPlace {
    /// `[switch.dta]` itself.
    Dta,
    /// The table with this index in a list of `[switch.dta]`.
    List(&'static str, usize),
}

/// An invalid setting of `[switch.dta]`, and the reason.
struct InvalidSetting {
    place: SettingPlace,
    key: &'static str,
    reason: String,
}

impl InvalidSetting {
    /// Creates a problem of `[switch.dta]` itself.
    fn of_table(key: &'static str, reason: String) -> Self {
        Self {
            place: SettingPlace::Dta,
            key,
            reason,
        }
    }
}

impl MappingSettings {
    /// Returns a key that is set although its operation does not use it.
    fn unused_key(&self, operation: OperationName) -> Option<&'static str> {
        use OperationName::{Append, KeyIncrement, KeyWrite, Postcard};
        let defaults = Self::default();
        let written = [
            (
                "store",
                self.store.is_some(),
                &[KeyWrite, KeyIncrement, Postcard][..],
            ),
            ("copies", self.copies.is_some(), &[KeyWrite, KeyIncrement]),
            ("key", !self.key.is_empty(), &[KeyWrite, KeyIncrement, Postcard]),
            ("data", !self.data.is_empty(), &[KeyWrite, Append]),
            ("delta", self.delta.is_some(), &[KeyIncrement]),
            ("value", self.value.is_some(), &[Postcard]),
            ("list", self.list.is_some(), &[Append]),
            ("lists", self.lists != defaults.lists, &[Append]),
            ("spread", !self.spread.is_empty(), &[Append]),
            ("entries", self.entries != defaults.entries, &[Append]),
            ("hold", self.hold != defaults.hold, &[Append]),
        ];
        let idle = written
            .iter()
            .find(|(_, written, readers)| *written && !readers.contains(&operation));
        idle.map(|(key, ..)| *key)
    }

    /// Converts the keys that the operation uses; an error is the key and the problem.
    fn action(&self, operation: OperationName) -> Result<Action, (&'static str, String)> {
        if let Some(key) = self.unused_key(operation) {
            return Err((
                key,
                format!("\"{}\" does not use this key; remove it", operation.name()),
            ));
        }
        let store = self.store.ok_or((
            "store",
            "the store is missing; add store = 1 or the like".to_owned(),
        ));
        let key = fields(&self.key);
        let copies = self.copies.unwrap_or(2);
        Ok(match operation {
            OperationName::KeyWrite => Action::KeyWrite {
                store: store?,
                copies,
                key,
                data: fields(&self.data),
            },
            OperationName::KeyIncrement => {
                let FieldSetting(delta) = self
                    .delta
                    .ok_or_else(|| missing("delta", "\"packets\" or \"1:u8\""))?;
                Action::KeyIncrement {
                    store: store?,
                    copies,
                    key,
                    delta,
                }
            }
            OperationName::Postcard => {
                let FieldSetting(value) = self.value.ok_or_else(|| missing("value", "\"node\""))?;
                Action::Postcard {
                    store: store?,
                    key,
                    value,
                }
            }
            OperationName::Append => Action::Append {
                list: self.list.ok_or_else(|| missing("list", "5 or the like"))?,
                lists: self.lists,
                spread: fields(&self.spread),
                entry: fields(&self.data),
                entries: self.entries,
                hold: as_nanoseconds(self.hold),
            },
        })
    }

    /// Converts the settings of a mapping; an error is the key and the problem.
    fn mapping(&self, tables: &[TableSettings]) -> Result<Mapping, (&'static str, String)> {
        let on = self
            .on
            .ok_or_else(|| ("on", "say when; add on = \"path\" or the like".to_owned()))?;
        let operation = self.operation.ok_or_else(|| {
            (
                "operation",
                "say what is done; add operation = \"key-write\" or the like".to_owned(),
            )
        })?;
        let table = match &self.table {
            Some(name) => Some(
                tables
                    .iter()
                    .position(|table| table.name == *name)
                    .ok_or_else(|| {
                        (
                            "table",
                            format!("there is no table {name:?}; add [[switch.dta.table]] with this name"),
                        )
                    })?,
            ),
            None => None,
        };
        Ok(Mapping {
            name: self.name.clone(),
            on,
            table,
            flows: flow_match(self.src, self.dst, self.sport, self.dport, self.proto),
            when: conditions(&self.when),
            every: self.every,
            each_hop: self.each_hop,
            options: SendOptions {
                priority: self.priority,
                essential: self.essential,
                immediate: self.immediate,
            },
            action: self.action(operation)?,
        })
    }
}

fn missing(key: &'static str, example: &str) -> (&'static str, String) {
    (key, format!("it is missing; add {key} = {example}"))
}

impl TableSettings {
    fn table(&self) -> table::Config {
        table::Config {
            name: self.name.clone(),
            key: fields(&self.key),
            flows: flow_match(self.src, self.dst, self.sport, self.dport, self.proto),
            at: self.at,
            slots: self.slots,
            period: as_nanoseconds(self.period),
            having: conditions(&self.having),
        }
    }
}

impl SketchSettings {
    /// Converts the settings of a sketch; an error is the key and the problem.
    fn sketch(&self) -> Result<sketches::Config, (&'static str, String)> {
        let kind = self
            .kind
            .ok_or_else(|| ("kind", "say which; add kind = \"count-min\"".to_owned()))?;
        let counts = if self.bytes {
            sketches::Counts::Bytes
        } else {
            sketches::Counts::Packets
        };
        if self.bytes && matches!(kind, SketchKind::HyperLogLog | SketchKind::Aroma) {
            return Err((
                "bytes",
                "this kind counts keys, not packets; remove it".to_owned(),
            ));
        }
        let usual = if kind == SketchKind::Aroma { 8 } else { 4 };
        Ok(sketches::Config {
            name: self.name.clone(),
            id: self.id,
            kind,
            shape: Columns {
                depth: self.depth,
                columns: self.columns,
                width: self.width.unwrap_or(usual),
            },
            key: fields(&self.key),
            item: self.item.map(|item| item.0),
            counts,
            flows: flow_match(self.src, self.dst, self.sport, self.dport, self.proto),
            at: self.at,
            epoch: as_nanoseconds(self.epoch),
            per_report: self.per_report,
            pace: as_nanoseconds(self.pace),
            options: SendOptions {
                priority: self.priority,
                essential: self.essential,
                immediate: self.immediate,
            },
        })
    }
}

impl DtaSettings {
    /// Returns the configuration of the reporter on node `node`.
    ///
    /// # Errors
    /// The settings are inconsistent; the value is a message, and [`check`] gives the position.
    pub fn config(&self, node: u32) -> Result<Config, String> {
        self.build(node)
            .map_err(|invalid| format!("{}: {}", invalid.key, invalid.reason))
    }

    /// Returns the addresses for each collector's reports, and the assignment of keys to collectors, from the map if given.
    ///
    /// # Errors
    /// The map is unreadable, or contradicts the settings; the value is a message.
    pub fn destinations(&self) -> Result<(Vec<SocketAddr>, Spread), String> {
        self.spread()
            .map_err(|invalid| format!("{}: {}", invalid.key, invalid.reason))
    }

    /// Returns the destinations if the collectors come from a manager's map.
    ///
    /// # Errors
    /// The map contradicts the settings; the value is a message.
    pub fn destinations_of(&self, map: &CollectorMap) -> Result<(Vec<SocketAddr>, Spread), String> {
        let own = Self {
            collectors: Vec::new(),
            ..self.clone()
        };
        let destinations = own
            .with_map(map)
            .map_err(|invalid| format!("{}: {}", invalid.key, invalid.reason))?;
        match destinations
            .0
            .iter()
            .find(|to| to.is_ipv6() != self.control.is_ipv6())
        {
            Some(to) => Err(format!(
                "control: {} is of another family than the collector {to}",
                self.control
            )),
            None => Ok(destinations),
        }
    }

    /// Returns whether there are no collectors until the manager installs a map.
    pub fn waits_for_map(&self) -> bool {
        self.collectors.is_empty() && self.map.is_none()
    }

    /// Returns whether a manager's map may be used: the settings contain nothing that a map determines.
    pub fn accepts_map(&self) -> bool {
        self.list.is_empty() && self.sketch_collector == 0
    }

    /// Returns the collectors' addresses, and the assignment of keys to collectors.
    fn spread(&self) -> Result<(Vec<SocketAddr>, Spread), InvalidSetting> {
        let lists = self
            .list
            .iter()
            .map(|list| (list.first, list.last.unwrap_or(list.first), list.collector));
        let Some(file) = &self.map else {
            let spread = Spread::new(
                self.collectors.len(),
                None,
                lists.collect(),
                self.sketch_collector,
            );
            return Ok((
                self.collectors.clone(),
                spread.map_err(|reason| InvalidSetting::of_table("collectors", reason))?,
            ));
        };
        let map =
            collector_map::load(file).map_err(|error| InvalidSetting::of_table("map", error.to_string()))?;
        self.with_map(&map)
    }

    fn with_map(&self, map: &CollectorMap) -> Result<(Vec<SocketAddr>, Spread), InvalidSetting> {
        let own_lists = !self.list.is_empty();
        let own_sketches = self.sketch_collector != 0;
        if own_lists || own_sketches {
            let reason = "the map says who keeps it; remove this, or the map".to_owned();
            let key = if own_lists { "list" } else { "sketch_collector" };
            return Err(InvalidSetting::of_table(key, reason));
        }
        let spread = map
            .spread()
            .map_err(|reason| InvalidSetting::of_table("map", reason))?;
        if self.collectors.is_empty() {
            return Ok((
                map.reports()
                    .map_err(|reason| InvalidSetting::of_table("map", reason))?,
                spread,
            ));
        }
        if self.collectors.len() != spread.collectors() {
            let own = self.collectors.len();
            let there = spread.collectors();
            let reason =
                format!("there are {own}, and {there} in the map; name as many, in the map's order, or none");
            return Err(InvalidSetting::of_table("collectors", reason));
        }
        Ok((self.collectors.clone(), spread))
    }

    /// Builds the configuration of the DTA reporter for this node.
    fn build(&self, node: u32) -> Result<Config, InvalidSetting> {
        let mut config = Config {
            reporter: self.reporter.unwrap_or(node),
            max_report_len: self.longest.into(),
            retransmission: Retransmission {
                probe: as_nanoseconds(self.probe),
                ..Retransmission::default()
            },
            ..Config::default()
        };
        // Nothing is reported until the manager has installed the map.
        config.spread = if self.waits_for_map() {
            Spread::even(1)
        } else {
            self.spread()?.1
        };
        for (index, report) in self.report.iter().enumerate() {
            let mapping = report
                .mapping(&self.table)
                .map_err(|(key, reason)| InvalidSetting {
                    place: SettingPlace::List("report", index),
                    key,
                    reason,
                })?;
            config.mappings.push(mapping);
        }
        config.tables = self.table.iter().map(TableSettings::table).collect();
        for (index, sketch) in self.sketch.iter().enumerate() {
            let sketch = sketch.sketch().map_err(|(key, reason)| InvalidSetting {
                place: SettingPlace::List("sketch", index),
                key,
                reason,
            })?;
            config.sketches.push(sketch);
        }
        dataplane::dta::check(&config).map_err(
            |ConfigError {
                 part,
                 key,
                 why: reason,
             }| {
                let place = match part {
                    Part::Reporter => SettingPlace::Dta,
                    Part::Mapping(index) => SettingPlace::List("report", index),
                    Part::Table(index) => SettingPlace::List("table", index),
                    Part::Sketch(index) => SettingPlace::List("sketch", index),
                };
                let key = if key == "map" { "report" } else { key };
                InvalidSetting { place, key, reason }
            },
        )?;
        Ok(config)
    }
}

/// Reports inconsistent settings. `managed`: a manager may install the map. `refuse` receives the path of the setting below
/// `[switch]`, and a message.
pub fn check(settings: &DtaSettings, node: u32, managed: bool, refuse: &mut dyn FnMut(&[&str], String)) {
    if settings.waits_for_map() && !managed {
        let reason = "nowhere to report to; add collectors = [\"192.0.2.100:40040\"] or the like".to_owned();
        return refuse(&["dta", "collectors"], reason);
    }
    if settings.waits_for_map() && !settings.accepts_map() {
        let key = if settings.list.is_empty() {
            "sketch_collector"
        } else {
            "list"
        };
        let reason = "the map of the manager says who keeps it; remove this, or add `collectors`".to_owned();
        return refuse(&["dta", key], reason);
    }
    for (index, collector) in settings.collectors.iter().enumerate() {
        if settings.collectors[..index].contains(collector) {
            refuse(
                &["dta", "collectors", &index.to_string()],
                "it is there twice; remove one".to_owned(),
            );
        }
        if collector.is_ipv6() != settings.control.is_ipv6() {
            let reason = "`control` is of the other family; write control = \"[::]:40044\" for IPv6";
            refuse(&["dta", "collectors", &index.to_string()], reason.to_owned());
        }
    }
    let of_map = settings.map.as_ref().filter(|_| settings.collectors.is_empty());
    let addresses = of_map
        .and_then(|_| settings.destinations().ok())
        .map(|(addresses, _)| addresses)
        .unwrap_or_default();
    if addresses
        .iter()
        .any(|address| address.is_ipv6() != settings.control.is_ipv6())
    {
        let reason = "reports go to an address of another family than `control`; write control = \"[::]:40044\" for IPv6";
        refuse(&["dta", "map"], reason.to_owned());
    }
    for (index, table) in settings.table.iter().enumerate() {
        if table.name.is_empty() {
            refuse(
                &["dta", "table", &index.to_string()],
                "a table needs a name".to_owned(),
            );
        } else if settings.table[..index]
            .iter()
            .any(|other| other.name == table.name)
        {
            let reason = format!("there are two tables {:?}; rename one", table.name);
            refuse(&["dta", "table", &index.to_string(), "name"], reason);
        }
    }
    if let Err(InvalidSetting { place, key, reason }) = settings.build(node) {
        match place {
            SettingPlace::Dta => refuse(&["dta", key], reason),
            SettingPlace::List(list, index) => refuse(&["dta", list, &index.to_string(), key], reason),
        }
    }
}

/// Returns the reference page of the fields, in Markdown.
#[cfg(test)]
fn fields_page() -> String {
    use dataplane::dta::field::{NAMES, NUMBERS};
    let mut page = "# Fields of DTA reports\n\nThe fields of keys, data and conditions of `[[switch.dta.report]]`, of tables and of sketches. \
This page is generated.\n\nA field is written as its name, `hop_latency`; with another width, `hop_latency:u16` \
(u8, u16, u24, … u64). A field of a hop can also be a list over the first hops of the path, `node[5]`, with zero for hops that the \
path does not have. A number with a width, `7:u32`, is a constant. Numbers are big-endian. A number that does not fit is reported as \
one less than the largest; of times and `packet_id` the low bits are reported. An unknown value is all ones; in a key, and as `delta` \
or `value`, it prevents the report, which is counted (`missing_value`).\n\nA condition is a numeric field, an operator (`==`, `!=`, \
`<`, `<=`, `>`, `>=`) and a number: `\"hop_latency > 500us\"`, `\"loss_rate >= 1%\"`, `\"queue_occupancy >= 64KiB\"`. A condition on \
an unknown value is not met.\n\n| field | bytes in data | meaning |\n| --- | --- | --- |\n"
        .to_owned();
    for (name, bytes, text) in NAMES.iter().chain(NUMBERS) {
        let bytes = if *bytes == 0 {
            "N".to_owned()
        } else {
            bytes.to_string()
        };
        page.push_str(&format!("| `{name}` | {bytes} | {} |\n", text.trim()));
    }
    page
}

#[cfg(test)]
mod tests;
