//! Settings of the DTA translator: collectors and their stores, rates, timers, limits and triggers. Times are in ns.

use core::fmt;
use core::net::IpAddr;

use wire::dta::artifact;
use wire::dta::hash::Family;
use wire::dta::layout::{BadGeometry, Geometry};

use super::trigger::{MAX_TRIGGERS, Trigger};
use rdma::transport::MAX_WRITE;

/// Maximum number of collectors of a translator.
pub const MAX_COLLECTORS: usize = 16;
/// Maximum number of stores in a collector's memory.
pub const MAX_STORES: usize = 64;
/// Maximum number of lists in a collector's memory.
pub const MAX_LISTS: u32 = 1 << 16;
const MAX_LISTS_AND_ONE: u32 = MAX_LISTS + 1;
/// Maximum number of hops of a Postcarding path.
pub const MAX_HOPS: u8 = 64;
/// Maximum number of reporters whose columns are merged into one sketch.
pub const MAX_SKETCH_REPORTERS: u32 = 4096;
/// Maximum local memory for one collector's pending batches, sketches and postcards, bytes.
pub const MAX_BYTES: u64 = 2 << 30;
/// Maximum number of reporters with sequence state.
pub const MAX_REPORTERS: usize = 1 << 20;

/// Settings of a [`super::Translator`].
#[derive(Clone, PartialEq, Debug)]
pub struct Config {
    /// Collectors by number; `None` until [`super::Translator::attach`] announces the collector's memory.
    pub collectors: Vec<Option<CollectorConfig>>,
    /// Report layouts that are accepted.
    pub accept: Accept,
    /// Capacity of two tables: reporters with sequence state (per collector), and rate-limited senders.
    pub reporters: usize,
    /// Reporter IDs bound to an address. Reports with such an ID from another address are refused.
    pub known: Vec<PinnedReporter>,
    /// Bind every other reporter ID to the first address that uses it, until it is silent for [`Config::idle`].
    pub bind: bool,
    /// Maximum reporter IDs bound to one address, so that an address that invents IDs cannot fill the table.
    pub owned: u32,
    /// A reporter or sender expires after this time without a report, ns.
    pub idle: u64,
    /// Reports per second from one sender address; 0: no limit.
    pub reporter_rate: u64,
    /// Reports that a sender may send in a burst above its rate.
    pub reporter_burst: u32,
    /// Minimum time between two NACKs for the same gap, ns.
    pub nack_interval: u64,
    /// Acknowledge a duplicate of a reporter's last report, even without `acks`, at most once in `nack_interval`. The
    /// reporter then stops retransmitting it. The P4 program sends no such ACK.
    pub acknowledge_repeated: bool,
    /// NACKs sent for a gap before it is given up and counted as lost.
    pub nack_limit: u8,
    /// Send an ACK for every 64 essential reports received in order.
    pub acks: bool,
    /// Validity of a congestion notice, ns.
    pub hold: u64,
    /// Maximum copies of a Key-Write at congestion levels 0 to 3.
    pub copies: [u8; 4],
    /// Maximum time that an entry waits for its batch to fill, ns.
    pub append_timer: u64,
    /// Maximum time that a postcard waits for the other hops of its path, ns.
    pub postcard_timer: u64,
    /// Capacity of the cache of incomplete paths per Postcarding store; a power of two.
    pub postcards: usize,
    /// Maximum time that an epoch of a sketch stays open, ns.
    pub sketch_timer: u64,
    /// Complete sketch columns that are written together (C in the DTA paper).
    pub sketch_columns: u32,
    /// Local memory per collector for essential and high-priority reports that must wait, bytes.
    pub local: usize,
    /// Triggers that append an entry to a list when a report fulfils their conditions.
    pub triggers: Vec<Trigger>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            collectors: Vec::new(),
            accept: Accept::V1,
            reporters: 1 << 16,
            known: Vec::new(),
            bind: true,
            owned: 4096,
            idle: 10_000_000_000,
            reporter_rate: 0,
            reporter_burst: 4096,
            nack_interval: 1_000_000,
            acknowledge_repeated: true,
            nack_limit: 3,
            acks: false,
            hold: 500_000,
            copies: [4, 2, 1, 1],
            append_timer: 1_000_000,
            postcard_timer: 10_000_000,
            postcards: 1 << 14,
            sketch_timer: 1_000_000_000,
            sketch_columns: 64,
            local: 4 << 20,
            triggers: Vec::new(),
        }
    }
}

settings::choice! {
    /// Layouts of reports that are read: wire-formats 5.2 and 5.3.
    #[derive(Default)]
    pub enum Accept("\"v1\", \"artifact\" or \"both\"") {
        /// Only layouts of DTA v1.
        #[default]
        V1 = "v1",
        /// Only layouts of the artifact.
        Artifact = "artifact",
        /// Both; by the first byte.
        Both = "both",
    }
}

/// A reporter ID and its address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PinnedReporter {
    /// ID of the reporter.
    pub reporter: u32,
    /// The only address that may use the ID.
    pub address: IpAddr,
}

/// A collector's memory, as announced in the exchange, and its rate limit.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct CollectorConfig {
    /// The stores in its memory.
    pub stores: Vec<StoreEntry>,
    /// Rate limit towards the collector.
    pub rate: Rate,
}

/// Rate limit towards a collector. The closer the traffic comes to it, the higher the congestion level.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rate {
    /// Operations per second; 0: no limit.
    pub messages: u64,
    /// Bytes of frames per second, counting [`Rate::OVERHEAD`] for each operation; 0: no limit.
    pub bytes: u64,
    /// Burst size as the time that it takes at this rate, ns. Congestion level 1 begins when half of the burst is used,
    /// level 2 at three quarters, and level 3 at fifteen sixteenths.
    pub burst: u64,
}

impl Rate {
    /// Bytes of an RDMA WRITE ONLY frame around its data: Ethernet 14, IPv4 20, UDP 8, BTH 12, RETH 16, ICRC 4.
    pub const OVERHEAD: u64 = 74;
    /// A rate without limits.
    pub const UNLIMITED: Self = Self {
        messages: 0,
        bytes: 0,
        burst: 10_000_000,
    };
}

impl Default for Rate {
    fn default() -> Self {
        Self::UNLIMITED
    }
}

/// A store, which is one region of a collector's memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StoreEntry {
    /// Region number in operations, see [`RemoteAddr`](rdma::transport::RemoteAddr).
    pub region: u16,
    /// Store ID or sketch ID, unique per kind of store. Lists have their IDs in the geometry.
    pub id: u16,
    /// Layout of the region's bytes. A Postcarding store with [`Family::Artifact`](wire::dta::hash::Family) has the slots
    /// of the published DTA code: five words, each masked with a CRC of the key.
    pub geometry: Geometry,
    /// For a sketch: number of reporters that must deliver a column to complete it.
    pub reporters: u32,
    /// For bare lists of 4-byte entries: store every entry little-endian, as the published DTA code does. If `false`, only
    /// entries from reports in its layouts are stored little-endian.
    pub swapped: bool,
}

impl StoreEntry {
    /// Creates a store entry; a sketch has one reporter.
    pub const fn new(region: u16, id: u16, geometry: Geometry) -> Self {
        Self {
            region,
            id,
            geometry,
            reporters: 1,
            swapped: false,
        }
    }
}

/// The reason why settings are invalid.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ConfigError {
    /// The number of collectors is 0 or too large.
    Collectors,
    /// No collector has this number.
    NoCollector,
    /// A collector has too many stores.
    Stores,
    /// Two stores of a kind have this ID, or two ranges of lists contain it.
    Twice(u32),
    /// The store, list or sketch with this ID has an invalid setting, described by the text.
    Geometry(u32, &'static str),
    /// The geometry of the store, list or sketch with this ID is invalid.
    Shape(u32, BadGeometry),
    /// Pending lists, sketches and postcards would need this many bytes of local memory, more than allowed.
    Memory(u64),
    /// The name of an invalid setting, and its permitted values.
    Setting(&'static str, &'static str),
    /// The trigger with this index is invalid; the text says why.
    Trigger(usize, &'static str),
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Collectors => write!(f, "there must be 1 to {MAX_COLLECTORS} collectors"),
            Self::NoCollector => f.write_str("there is no collector of this number"),
            Self::Stores => write!(f, "a collector has at most {MAX_STORES} stores"),
            Self::Twice(id) => {
                write!(
                    f,
                    "ID {id} is used twice: IDs of stores of a kind, and of lists, must differ"
                )
            }
            Self::Geometry(id, what) => write!(f, "store, list or sketch {id}: {what}"),
            Self::Shape(id, why) => write!(f, "store, list or sketch {id}: {why}"),
            Self::Memory(bytes) => write!(
                f,
                "batches, sketches and postcards of this collector would take {} MiB here, more than {} MiB: fewer lists, \
                 smaller batches, or fewer columns",
                bytes >> 20,
                MAX_BYTES >> 20
            ),
            Self::Setting(name, what) => write!(f, "{name} must be {what}"),
            Self::Trigger(index, what) => write!(f, "trigger {}: {what}", index + 1),
        }
    }
}

impl core::error::Error for ConfigError {}

impl Config {
    /// Validates the settings. Whether triggers fit their lists is only known when a collector is attached: see
    /// [`super::Translator::unfit_trigger`].
    ///
    /// # Errors
    /// The first invalid setting, as a [`ConfigError`].
    pub fn check(&self) -> Result<(), ConfigError> {
        if self.collectors.is_empty() || self.collectors.len() > MAX_COLLECTORS {
            return Err(ConfigError::Collectors);
        }
        let settings = [
            (
                "reporters",
                "1 to 1048576",
                (1..=MAX_REPORTERS).contains(&self.reporters),
            ),
            ("idle", "above 0", self.idle > 0),
            ("reporter_burst", "above 0", self.reporter_burst > 0),
            ("hold", "at least 1000: a microsecond", self.hold >= 1_000),
            ("nack_limit", "above 0", self.nack_limit > 0),
            (
                "copies",
                "1 to 4",
                self.copies.iter().all(|copies| (1..=4).contains(copies)),
            ),
            ("append_timer", "above 0", self.append_timer > 0),
            ("postcard_timer", "above 0", self.postcard_timer > 0),
            ("sketch_timer", "above 0", self.sketch_timer > 0),
            (
                "postcards",
                "a power of two, 4 to 16777216",
                self.postcards.is_power_of_two() && (4..=1 << 24).contains(&self.postcards),
            ),
            (
                "sketch_columns",
                "1 to 65536",
                (1..=1 << 16).contains(&self.sketch_columns),
            ),
            ("local", "at most 1 GiB", self.local <= 1 << 30),
            ("triggers", "at most 64", self.triggers.len() <= MAX_TRIGGERS),
            (
                "known",
                "no more than reporters, for each collector",
                self.known.len() * self.collectors.len() <= self.reporters,
            ),
        ];
        if let Some((name, what, _)) = settings.into_iter().find(|(_, _, good)| !good) {
            return Err(ConfigError::Setting(name, what));
        }
        for (index, trigger) in self.triggers.iter().enumerate() {
            trigger
                .check()
                .map_err(|what| ConfigError::Trigger(index, what))?;
        }
        self.collectors
            .iter()
            .flatten()
            .try_for_each(|collector| collector.check(self.postcards))
    }
}

impl CollectorConfig {
    /// Validates the stores; `postcards` is the capacity for incomplete paths ([`Config::postcards`]).
    ///
    /// # Errors
    /// The first invalid setting, as a [`ConfigError`].
    pub fn check(&self, postcards: usize) -> Result<(), ConfigError> {
        if self.stores.len() > MAX_STORES {
            return Err(ConfigError::Stores);
        }
        if self.rate.burst == 0 {
            return Err(ConfigError::Setting("burst", "above 0"));
        }
        let mut bytes = 0u64;
        for (index, store) in self.stores.iter().enumerate() {
            store.check()?;
            if let Some(id) = self.stores[..index].iter().find_map(|other| other.overlap(store)) {
                return Err(ConfigError::Twice(id));
            }
            bytes = store.local_bytes(postcards).saturating_add(bytes);
        }
        let lists = self.stores.iter().map(|store| match store.geometry {
            Geometry::Append { lists, .. } => u64::from(lists),
            _ => 0,
        });
        if lists.sum::<u64>() > u64::from(MAX_LISTS) {
            return Err(ConfigError::Setting(
                "lists",
                "at most 65536 in all stores of a collector",
            ));
        }
        if bytes > MAX_BYTES {
            Err(ConfigError::Memory(bytes))
        } else {
            Ok(())
        }
    }
}

impl StoreEntry {
    /// Returns the ID space, the first ID in it, and the number of IDs that the store occupies.
    fn ids(&self) -> (&'static str, u64, u64) {
        match self.geometry {
            Geometry::Append {
                lists, first_list, ..
            } => (self.geometry.name(), first_list.into(), lists.into()),
            _ => (self.geometry.name(), self.id.into(), 1),
        }
    }

    /// Returns the lowest ID that both stores have, or `None` if their IDs differ.
    fn overlap(&self, other: &Self) -> Option<u32> {
        let (kind, first, count) = self.ids();
        let (others, second, seconds) = other.ids();
        let overlaps = kind == others && first < second + seconds && second < first + count;
        overlaps.then(|| first.max(second) as u32)
    }

    fn check(&self) -> Result<(), ConfigError> {
        let id = self.ids().1 as u32;
        self.geometry
            .check()
            .map_err(|reason| ConfigError::Shape(id, reason))?;
        let reason = match self.geometry {
            Geometry::Append {
                lists: MAX_LISTS_AND_ONE..,
                ..
            } => "there are at most 65536 lists",
            Geometry::Append { ring, .. } if ring.block_len() > MAX_WRITE as u64 => {
                "a batch has more than 65536 bytes: fewer or shorter entries"
            }
            Geometry::Append { ring, .. } if self.swapped && (ring.tagged || ring.entry_len != 4) => {
                "only bare lists of 4-byte entries are swapped"
            }
            Geometry::Postcarding {
                hops,
                family: Family::Artifact,
                ..
            } if hops != artifact::HOPS => "the artifact's paths have 5 hops",
            Geometry::Postcarding { hops, .. } if hops > MAX_HOPS => "a path has at most 64 hops here",
            Geometry::Sketch { .. } if !(1..=MAX_SKETCH_REPORTERS).contains(&self.reporters) => {
                "a sketch has 1 to 4096 reporters"
            }
            _ => return Ok(()),
        };
        Err(ConfigError::Geometry(id, reason))
    }

    /// Returns the approximate local memory of the translator for this store, bytes.
    fn local_bytes(&self, postcards: usize) -> u64 {
        match self.geometry {
            Geometry::KeyWrite { .. } | Geometry::KeyIncrement { .. } => 0,
            Geometry::Append { lists, ring, .. } => u64::from(lists).saturating_mul(ring.block_len() + 64),
            Geometry::Postcarding { hops, .. } => postcards as u64 * (112 + 4 * u64::from(hops)),
            Geometry::Sketch { shape, .. } => {
                let columns = 2 * u64::from(shape.columns);
                columns
                    .saturating_mul(shape.column_len() + 2)
                    .saturating_add(u64::from(self.reporters) * 24)
            }
        }
    }
}
