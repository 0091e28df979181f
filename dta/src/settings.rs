//! The configuration section `[collector.memory]` and its checks: memory that DTA translators write by RDMA, and the stores
//! in it.

use std::{collections::BTreeSet, net::SocketAddr, path::PathBuf, time::Duration};

use crate::fields::Fields;
use crate::key_write::Policy;

use settings::{
    choice, named_setting,
    problems::Problems,
    read::{Node, Reader, Value},
    section,
    setting::{Setting, Shown},
    values::{Size, from_text, id_range, integer, refuse, with_unit},
};
use wire::dta::{hash::Family, layout::SketchKind};

const COUNTS: [(&str, u64); 7] = [
    ("k", 1 << 10),
    ("K", 1 << 10),
    ("Ki", 1 << 10),
    ("M", 1 << 20),
    ("Mi", 1 << 20),
    ("G", 1 << 30),
    ("Gi", 1 << 30),
];
/// Maximum number of stores of one memory.
pub const MAX_STORES: usize = 64;
/// Maximum number of lists of one memory.
pub const MAX_LISTS: u64 = 65_536;

named_setting! { Policy = "\"first\", \"majority\" or \"strict\""; }

section! {
    /// Memory that translators write by RDMA (RoCEv2). An RDMA device executes the writes without this machine's processors;
    /// without a device, a software responder does. `[[collector.memory.stores]]` defines the contents. Regions are files, so
    /// that they survive a restart and other processes can map them. See [the how-to](../how-to/dta.md).
    pub struct MemorySettings("[collector.memory]") {
        /// Address and port that receive RoCEv2: one address of this machine, not a wildcard, because RoCEv2's checksum (ICRC) covers
        /// it. The ICRC also covers the destination port: on every port it is that of port 4791, as RDMA devices require behind a
        /// port translation. Other analysers then report a wrong ICRC; `hopwise decode --roce-port` does not.
        pub listen: SocketAddr = SocketAddr::from(([127, 0, 0, 1], 4791)),
        /// The RoCEv2 responder. `socket`: this program, with a UDP socket; needs no capabilities. `xdp`: a program in the kernel,
        /// on `interface`, before the network stack; the stores are then in kernel memory. They are written to the files in
        /// `directory` at a clean stop and read from there at the start; a crash loses everything received since the start. `xdp`
        /// needs CAP_BPF, CAP_NET_ADMIN and CAP_PERFMON; if it is not available, hopwise does not start. `verbs`: the RDMA device
        /// that has the address of `listen`, by libibverbs; `directory` must then be on a tmpfs or hugetlbfs.
        pub mode: MemoryMode = MemoryMode::Socket,
        /// The interface for `mode = "xdp"`; it must have the address of `listen`.
        pub interface: Option<String> = None,
        /// Address and port (TCP) at which translators request the list of stores and their queue pairs. Without `secret_file`,
        /// anyone who can connect can write the memory: keep it inside a trusted network.
        pub exchange: SocketAddr = SocketAddr::from(([127, 0, 0, 1], 18515)),
        /// A file with a secret of 16 to 1024 characters without spaces (`openssl rand -hex 32`), not world-readable (`chmod 600`).
        /// With it, the exchange accepts only translators that have the same secret. A reload reads the file again. It protects the
        /// exchange, not RoCEv2: see [the how-to](../how-to/dta.md).
        pub secret_file: Option<PathBuf> = None,
        /// Directory of the regions' files: on a tmpfs (`/dev/shm`), a mounted hugetlbfs (2 MiB pages), or a disk.
        pub directory: PathBuf = PathBuf::from("/dev/shm/hopwise"),
        /// Answer when the copies of a key differ. `first`: the first copy with the key's checksum; `majority`:
        /// the value of most copies; `strict`: an answer only if all such copies agree.
        pub policy: Policy = Policy::Majority,
        /// Queue pairs that translators may hold at the same time.
        pub queue_pairs: usize = 256,
        /// Socket receive buffer to ask the kernel for.
        pub receive_buffer: Size = Size(16 << 20),
        /// Copies of stores in files, on request and by schedule.
        pub snapshots: SnapshotSettings = SnapshotSettings::default(),
        /// The stores in the memory.
        pub stores: Vec<RegionSettings> = Vec::new(),
    }
}

choice! {
    /// The RoCEv2 responder that executes the writes.
    pub enum MemoryMode("\"socket\", \"xdp\" or \"verbs\"") {
        /// This program, by a UDP socket.
        Socket = "socket",
        /// A program in the kernel.
        Xdp = "xdp",
        /// An RDMA device (libibverbs).
        Verbs = "verbs",
    }
}

section! {
    /// Snapshots: copies of stores in files, which are read like the live stores (`hopwise get --snapshot FILE …`). Slots are
    /// overwritten with time; snapshots are not.
    pub struct SnapshotSettings("[collector.memory.snapshots]") {
        /// Interval between snapshots. Not set: only on request (`hopwise stores --take-snapshot`, or the API).
        pub every: Option<Duration> = None,
        /// Number of snapshots to keep per store; older ones are deleted.
        pub keep: usize = 6,
        /// Directory of the files. Not set: `snapshots` in the directory of the stores.
        pub directory: Option<PathBuf> = None,
        /// Names of the stores. Empty: all stores.
        pub stores: Vec<String> = Vec::new(),
    }
}

section! {
    /// A store: a region of memory with a structure. `kind` determines which keys a store has.
    pub struct RegionSettings("[[collector.memory.stores]]") {
        /// Name of the store and of its file: letters, digits, `-` and `_`.
        pub name: String = String::new(),
        /// Kind of the store. `key-write`: data by key. `append`: lists of entries. `key-increment`: counters by key. `sketch`: the
        /// sum, minimum or maximum of the sketches of many switches. `postcarding`: the values of the hops of a packet or flow, by
        /// key.
        pub kind: StoreKind = StoreKind::KeyWrite,
        /// Number of the store in reports: the store ID, or the sketch ID of a sketch. For lists, set `lists` instead.
        pub id: Option<u16> = None,
        /// Slots of `key-write`, `key-increment` and `postcarding`; a power of two. `hopwise calculate` computes the number.
        pub slots: Option<Count> = None,
        /// Bytes of data in a slot of `key-write`, 1 to 1024. Not set: the size of `value`.
        pub data: Option<u16> = None,
        /// Hash functions that map keys to slots. `artifact`: those of the code published with the paper, for its reporters; with
        /// them, copies hardly protect against overwriting. The artifact's reports do not name a store: use `id = 0`, and at most
        /// one such store of each kind. See [the wire formats](../reference/wire-formats.md).
        pub hash: Family = Family::V1,
        /// The lists of `append`: list IDs from-to, such as `"0-15"`, or one ID.
        pub lists: Option<ListRange> = None,
        /// Bytes of an entry of `append`. Not set: the size of `fields`.
        pub entry: Option<u16> = None,
        /// Entries in a list of `append`; a full list overwrites the oldest. A multiple of `batch`.
        pub entries: Count = Count(65_536),
        /// Entries in one write of the translator, 1 to 255.
        pub batch: u16 = 16,
        /// Write a sequence number and a checksum with every batch, so that readers detect new, partial and lost batches. `false`:
        /// bare entries, as in the paper; readers then detect only changed entries.
        pub tagged: bool = true,
        /// Maximum number of hops of a path in `postcarding`.
        pub hops: u8 = 5,
        /// Kind of the `sketch`, which determines how sketches are merged. `count-min`, `count`: sum; `hyperloglog`: maximum;
        /// `aroma`: samples.
        pub sketch: SketchKind = SketchKind::CountMin,
        /// Rows of a `sketch`, 1 to 16.
        pub depth: u8 = 4,
        /// Columns of a `sketch`.
        pub columns: Count = Count(65_536),
        /// Bytes of a counter of a `sketch`: 4 or 8.
        pub width: u8 = 4,
        /// Interval at which the counters of `key-increment` are cleared. Their values are kept as a snapshot
        /// (`[collector.memory.snapshots] keep`); without disk space for it the counters continue. Not set: they are never cleared.
        pub clear_every: Option<Duration> = None,
        /// Number of reporters whose sketches are merged: a column is written when all of them have sent it.
        pub reporters: u16 = 1,
        /// Format of the data of a key, for display: `u32[5]`, or with names `latency:u32 path:u32[4]`. Types: `u8`, `u16`, `u32`,
        /// `u64`, `ipv4`, `ipv6`, `mac`, `hex`.
        pub value: Option<FieldsSetting> = None,
        /// Format of an entry of a list, with names: `src:ipv4 dst:ipv4 sport:u16 dport:u16 proto:u8 node:u32 reason:u8`.
        pub fields: Option<FieldsSetting> = None,
        /// Emit every entry of these lists as an event of this kind, to the store, the live stream and the web UI. The entry's
        /// `fields` with the names `src`, `dst`, `sport`, `dport`, `proto`, `node`, `interface`, `queue`, `value`, `previous`,
        /// `threshold`, `reason` and `path` (a list of nodes) fill the event.
        pub events: Option<EventKind> = None,
        /// The metric of these events: `flow_path`, `flow_latency`, `hop_latency`, `queue_occupancy`, `queue_congestion` or
        /// `link_utilization`.
        pub metric: Option<String> = None,
    }
}

choice! {
    /// The structure of a store.
    pub enum StoreKind("\"key-write\", \"append\", \"key-increment\", \"sketch\" or \"postcarding\"") {
        /// Data that is stored under keys.
        KeyWrite = "key-write",
        /// Lists to which reports append entries.
        Append = "append",
        /// Counters that are stored under keys.
        KeyIncrement = "key-increment",
        /// The merged sketch of several switches.
        Sketch = "sketch",
        /// Paths that are stored under keys.
        Postcarding = "postcarding",
    }
}

choice! {
    /// The kind of event that an entry becomes.
    pub enum EventKind("\"new\", \"change\", \"path_change\", \"drop\" or \"loss\"") {
        /// A key seen for the first time.
        New = "new",
        /// A significant change of a metric.
        Change = "change",
        /// A flow that takes another path.
        PathChange = "path_change",
        /// A dropped packet of a flow.
        Drop = "drop",
        /// Reports that are missing.
        Loss = "loss",
    }
}

/// A count: `65536`, `"64K"`, `"1M"`, `"4G"` (powers of 1024).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Count(pub u64);

impl Count {
    /// Parses a count as written in files and on the command line.
    pub fn parse(text: &str) -> Option<Self> {
        text.parse().ok().or_else(|| with_unit(text, &COUNTS)).map(Self)
    }
}

impl Setting for Count {
    const KIND: &'static str = "a whole number, or one with K, M or G (1024, 1024^2, 1024^3), such as \"1M\"";

    fn read(node: &Node<'_>, reader: &mut Reader<'_>) -> Option<Self> {
        match integer(node.get_ref()).map(u64::try_from) {
            Some(Ok(number)) => Some(Self(number)),
            Some(Err(_)) => refuse(node, reader),
            None => from_text(node, reader, Self::parse),
        }
    }

    fn show(&self) -> Shown {
        let unit = [("G", 30), ("M", 20), ("K", 10)].into_iter();
        let mut whole = unit.filter(|(_, bits)| self.0 > 0 && self.0.is_multiple_of(1 << bits));
        match whole.next() {
            Some((unit, bits)) => Shown::Plain(format!("{}{unit}", self.0 >> bits).into()),
            None => Shown::Plain(self.0.into()),
        }
    }
}

/// An inclusive range of list IDs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListRange {
    /// The first ID of the range.
    pub first: u32,
    /// The last ID of the range, included.
    pub last: u32,
}

impl ListRange {
    /// Returns the number of lists.
    pub fn count(self) -> u32 {
        (self.last - self.first).saturating_add(1)
    }
}

impl Setting for ListRange {
    const KIND: &'static str = "a list ID, or from-to such as \"0-15\"";

    fn read(node: &Node<'_>, reader: &mut Reader<'_>) -> Option<Self> {
        if let Value::Integer(_) = node.get_ref() {
            let one = integer(node.get_ref()).and_then(|number| u32::try_from(number).ok());
            return one
                .map(|id| Self { first: id, last: id })
                .or_else(|| refuse(node, reader));
        }
        from_text(node, reader, |text| {
            id_range(text).map(|(first, last)| Self { first, last })
        })
    }

    fn show(&self) -> Shown {
        match self.count() {
            1 => Shown::Plain(self.first.into()),
            _ => Shown::Plain(format!("{}-{}", self.first, self.last).into()),
        }
    }
}

/// The field layout of a value or entry, as a setting.
#[derive(Clone, Debug, PartialEq)]
pub struct FieldsSetting(pub Fields);

impl Setting for FieldsSetting {
    const KIND: &'static str = "fields such as \"src:ipv4 port:u16 path:u32[5]\"";

    fn read(node: &Node<'_>, reader: &mut Reader<'_>) -> Option<Self> {
        let Some(text) = node.get_ref().as_str() else {
            return refuse(node, reader);
        };
        text.parse()
            .map(Self)
            .map_err(|error: String| reader.refuse(node.span(), error))
            .ok()
    }

    fn show(&self) -> Shown {
        Shown::Plain(self.0.to_string().into())
    }
}

impl MemorySettings {
    /// Returns a warning if other machines can reach the exchange without a secret.
    pub fn missing_secret_warning(&self) -> Option<String> {
        (self.secret_file.is_none() && !self.exchange.ip().to_canonical().is_loopback()).then(|| {
            format!(
                "any host that reaches the exchange at {} can write collector memory: set secret_file for [collector.memory] and its translators (openssl rand -hex 32 > FILE; chmod 600 FILE)",
                self.exchange
            )
        })
    }
}

impl RegionSettings {
    /// Returns the bytes of data in a slot of `key-write`: `data`, or the size of `value`.
    pub fn data_len(&self) -> usize {
        self.data.map_or_else(
            || self.value.as_ref().map_or(0, |fields| fields.0.size()),
            usize::from,
        )
    }

    /// Returns the bytes of an entry of `append`: `entry`, or the size of `fields`.
    pub fn entry_len(&self) -> usize {
        self.entry.map_or_else(
            || self.fields.as_ref().map_or(0, |fields| fields.0.size()),
            usize::from,
        )
    }

    /// Returns the ID space of the store's kind: sketches have their own IDs.
    fn group(&self) -> &'static str {
        match self.kind {
            StoreKind::Sketch => "sketch",
            _ => "store",
        }
    }
}

/// Reports the problems of `[collector.memory]`. `refuse` takes the path of the setting and a message.
pub fn check(memory: &MemorySettings, refuse: &mut dyn FnMut(&[&str], String)) {
    let mut problems = Problems::new(&["collector", "memory"], refuse);
    if memory.listen.ip().is_unspecified() {
        problems.add(
            "listen",
            "RoCEv2's checksum covers the address; write one of this machine, such as \"10.0.0.9:4791\"",
        );
    }
    check_mode(memory, &mut problems);
    if !(2..=4096).contains(&memory.queue_pairs) {
        problems.add(
            "queue_pairs",
            "write a number from 2 to 4096; a translator takes two",
        );
    }
    if memory.stores.is_empty() {
        problems.add(
            "stores",
            "no store, so nothing can be written; add [[collector.memory.stores]]",
        );
    }
    if memory.stores.len() > MAX_STORES {
        problems.add("stores", "at most 64 stores; remove some");
    }
    let lists: u64 = memory
        .stores
        .iter()
        .filter_map(|store| store.lists)
        .map(|range| u64::from(range.count()))
        .sum();
    if lists > MAX_LISTS {
        problems.add(
            "stores",
            "at most 65536 lists in all stores together; remove some",
        );
    }
    check_snapshots(memory, refuse);
    for (index, store) in memory.stores.iter().enumerate() {
        let position = index.to_string();
        let before = &memory.stores[..index];
        let table = ["collector", "memory", "stores", &position];
        let mut problems = Problems::new(&table, refuse);
        check_names(store, before, &mut problems);
        check_shape(store, &mut problems);
        check_events(store, &mut problems);
        check_clearing(store, memory.mode, &mut problems);
    }
}

/// Checks the mode, the interface and the address together.
fn check_mode(memory: &MemorySettings, problems: &mut Problems<'_>) {
    match (memory.mode, &memory.interface) {
        (MemoryMode::Socket, None) => return,
        (MemoryMode::Verbs, None) => {}
        (MemoryMode::Socket | MemoryMode::Verbs, Some(_)) => {
            return problems.add(
                "interface",
                "only mode = \"xdp\" has an interface; remove the line, or set mode",
            );
        }
        (MemoryMode::Xdp, None) => {
            problems.add("mode", "on which interface? add interface = \"eth1\" or the like");
        }
        (MemoryMode::Xdp, Some(_)) => {}
    }
    if memory.listen.port() != wire::roce::PORT {
        problems.add(
            "listen",
            "this mode receives RoCEv2 only on its own port; write 4791",
        );
    }
    if memory.listen.ip().is_loopback() {
        let what = "this mode receives RoCEv2 on an interface; write an address of the interface that translators can reach";
        problems.add("listen", what);
    }
}

fn check_snapshots(memory: &MemorySettings, refuse: &mut dyn FnMut(&[&str], String)) {
    let settings = &memory.snapshots;
    let mut problems = Problems::new(&["collector", "memory", "snapshots"], refuse);
    if !(1..=10_000).contains(&settings.keep) {
        problems.add("keep", "write a number from 1 to 10000");
    }
    if settings.every.is_some_and(|every| every.as_secs() < 1) {
        problems.add("every", "write at least \"1s\"");
    }
    let known: BTreeSet<&str> = memory.stores.iter().map(|store| store.name.as_str()).collect();
    for name in &settings.stores {
        if !known.contains(name.as_str()) {
            problems.add(
                "stores",
                format!("there is no store `{name}`; write the name of one"),
            );
        }
    }
}

/// Checks that a store's name and IDs are valid and not used by the stores before it.
fn check_names(store: &RegionSettings, before: &[RegionSettings], problems: &mut Problems<'_>) {
    if store.name.is_empty() || store.name.len() > 31 || !store.name.bytes().all(is_name_byte) {
        problems.add("name", "a store needs a name of 1 to 31 letters, digits, - and _");
    } else if before.iter().any(|other| other.name == store.name) {
        problems.add(
            "name",
            format!("there are two stores `{}`; rename one", store.name),
        );
    }
    if store.kind == StoreKind::Append {
        match store.lists {
            None => problems.add("lists", "which lists? add lists = \"0-15\" or the like"),
            Some(own) => {
                let same = before.iter().filter_map(|other| other.lists);
                if let Some(other) = same
                    .clone()
                    .find(|other| other.first <= own.last && own.first <= other.last)
                {
                    let message = format!(
                        "lists {}-{} are another store's; every list ID belongs to one",
                        other.first, other.last
                    );
                    problems.add("lists", message);
                }
            }
        }
        return;
    }
    match store.id {
        None => problems.add("id", "the store needs an ID; add id = 1 or the like"),
        Some(id) => {
            if let Some(other) = before
                .iter()
                .find(|other| other.id == Some(id) && is_confusable(other, store))
            {
                problems.add(
                    "id",
                    format!("{id} is the ID of `{}`; choose another", other.name),
                );
            }
        }
    }
}

fn is_name_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_'
}

/// Returns whether a report could mean either of two stores with the same ID. Reports of the published DTA code name no
/// store, so store 0 of each kind may coexist.
fn is_confusable(one: &RegionSettings, other: &RegionSettings) -> bool {
    let both_artifact = one.hash == Family::Artifact && other.hash == Family::Artifact;
    one.group() == other.group() && !(both_artifact && one.kind != other.kind)
}

/// Checks the sizes for the store's kind.
fn check_shape(store: &RegionSettings, problems: &mut Problems<'_>) {
    let slotted = matches!(
        store.kind,
        StoreKind::KeyWrite | StoreKind::KeyIncrement | StoreKind::Postcarding
    );
    if slotted
        && !store
            .slots
            .is_some_and(|slots| slots.0.is_power_of_two() && (16..=1 << 31).contains(&slots.0))
    {
        problems.add(
            "slots",
            "write a power of two from 16 to 2G, such as slots = \"1M\"",
        );
    }
    match store.kind {
        StoreKind::KeyWrite => {
            if !(1..=1024).contains(&store.data_len()) {
                problems.add(
                    "data",
                    "a slot holds 1 to 1024 bytes; add data = 20, or name the fields with value = \"u32[5]\"",
                );
            }
            if store
                .value
                .as_ref()
                .is_some_and(|value| value.0.size() > store.data_len())
            {
                problems.add(
                    "value",
                    "these fields are longer than `data`; make data larger, or leave it out",
                );
            }
        }
        StoreKind::Append => {
            if !(1..=1024).contains(&store.entry_len()) {
                problems.add(
                    "entry",
                    "an entry has 1 to 1024 bytes; add entry = 18, or name the fields with fields = \"…\"",
                );
            }
            if store
                .fields
                .as_ref()
                .is_some_and(|fields| fields.0.size() > store.entry_len())
            {
                problems.add(
                    "fields",
                    "these fields are longer than `entry`; make entry larger, or leave it out",
                );
            }
            if !(1..=255).contains(&store.batch) {
                problems.add("batch", "write a number from 1 to 255");
            } else if store.entries.0 < 2 * u64::from(store.batch)
                || !store.entries.0.is_multiple_of(store.batch.into())
            {
                problems.add("entries", "write a multiple of `batch`, at least twice as many");
            }
        }
        StoreKind::KeyIncrement => {}
        StoreKind::Postcarding => {
            if !(1..=32).contains(&store.hops) {
                problems.add("hops", "write a number from 1 to 32");
            }
        }
        StoreKind::Sketch => check_sketch(store, problems),
    }
}

fn check_clearing(store: &RegionSettings, mode: MemoryMode, problems: &mut Problems<'_>) {
    let Some(every) = store.clear_every else { return };
    let message = match store.kind {
        _ if mode == MemoryMode::Verbs => {
            "additions of an RDMA device are not atomic with those of a processor; remove it, or set another mode"
        }
        StoreKind::KeyIncrement if every.as_secs() < 1 => "write at least \"1s\"",
        StoreKind::KeyIncrement => return,
        _ => "only counters (key-increment) are cleared; remove it",
    };
    problems.add("clear_every", message);
}

fn check_sketch(store: &RegionSettings, problems: &mut Problems<'_>) {
    if !(1..=16).contains(&store.depth) {
        problems.add("depth", "write a number from 1 to 16");
    }
    if !matches!(store.width, 4 | 8) {
        problems.add("width", "a counter has 4 or 8 bytes");
    }
    if !(1..=1 << 28).contains(&store.columns.0) {
        problems.add("columns", "write a number from 1 to 256M");
    }
    if store.reporters == 0 {
        problems.add(
            "reporters",
            "write how many switches send this sketch, at least 1",
        );
    }
}

/// Checks the settings that turn list entries into events.
fn check_events(store: &RegionSettings, problems: &mut Problems<'_>) {
    if store.events.is_some() && (store.kind != StoreKind::Append || store.fields.is_none()) {
        let what = "only entries of lists whose `fields` are known become events; add fields = \"src:ipv4 …\", or remove the line";
        problems.add("events", what);
    }
    if let Some(name) = &store.metric
        && detect::Metric::from_name(name).is_none()
    {
        let names = detect::Metric::ALL.map(detect::Metric::name).join(", ");
        problems.add(
            "metric",
            format!("there is no metric `{name}`; use one of {names}"),
        );
    }
}
