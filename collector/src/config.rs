//! The configuration of a collector: table sizes, timeouts, and the units of devices.

use std::collections::BTreeMap;
use std::sync::Arc;

use detect::{Detection, Prefix};
use wire::FlowKey;

use crate::access::Access;
use crate::event::Nanos;

/// Clock synchronisation of the devices: whether timestamps of different nodes can be compared.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Clocks {
    /// Not synchronised: timestamps of different nodes cannot be compared. A flow's latency is the sum of its hop latencies.
    #[default]
    Free,
    /// Synchronised, for example by PTP. A flow's latency is its last egress timestamp minus its first ingress timestamp.
    Synchronised,
}

/// The units and clocks of a kind of device. Never guessed: the defaults are the specifications' units, in nanoseconds.
#[derive(Clone, PartialEq, Debug)]
pub struct Profile {
    /// The profile's name in the configuration.
    pub name: String,
    /// The settings with which its reports are decoded.
    pub wire: wire::Profile,
    /// Nanoseconds per unit of timestamps.
    pub timestamp_unit_ns: u32,
    /// Nanoseconds per unit of hop latency.
    pub latency_unit_ns: u32,
    /// The longest plausible hop latency, ns; 0 disables the limit. See [`HopView::implausible_latency`].
    ///
    /// [`HopView::implausible_latency`]: crate::HopView::implausible_latency
    pub max_hop_latency: Nanos,
    /// Unit of queue occupancy, for display.
    pub queue_unit: String,
    /// Utilization of the link that a reported value of 1 means: 0.01 if devices send percentages. Rounded to whole millionths,
    /// at least one.
    pub utilization_scale: f64,
    /// Whether timestamps of different nodes can be compared.
    pub clocks: Clocks,
    /// Names of drop reasons, for display.
    pub drop_reasons: BTreeMap<u8, String>,
}

impl Profile {
    /// Default of the longest plausible hop latency, ns: longer than any switch buffers a packet, and shorter than the uptime
    /// that a node without an ingress timestamp reports.
    pub const MAX_HOP_LATENCY: Nanos = 1_000_000_000;

    /// Creates a profile with nanoseconds, unsynchronised clocks, and utilization in millionths.
    pub fn new(name: impl Into<String>, wire: wire::Profile) -> Self {
        Self {
            name: name.into(),
            wire,
            timestamp_unit_ns: 1,
            latency_unit_ns: 1,
            max_hop_latency: Self::MAX_HOP_LATENCY,
            queue_unit: "bytes".to_owned(),
            utilization_scale: 1e-6,
            clocks: Clocks::Free,
            drop_reasons: BTreeMap::new(),
        }
    }

    /// Returns one unit of utilization in millionths of the link, at least 1.
    pub fn utilization_unit(&self) -> u32 {
        (self.utilization_scale * 1e6).round().clamp(1.0, 1e6) as u32
    }
}

impl Default for Profile {
    fn default() -> Self {
        Self::new("default", wire::Profile::default())
    }
}

/// The different profiles of a configuration. Reports and values name a profile by its number here, which is one byte; a profile
/// that several sources and nodes share is here once.
#[derive(Clone, Debug)]
pub struct DistinctProfiles<'c> {
    profiles: Vec<&'c Profile>,
    sources: Vec<(Prefix, u8)>,
    nodes: Vec<(u32, u8)>,
}

impl<'c> DistinctProfiles<'c> {
    /// Maximum number of different profiles.
    pub const MAX: usize = 1 << u8::BITS;

    /// Numbers the profiles of all sources and nodes; the default profile is number 0. Returns `None` if there are more than
    /// [`Self::MAX`] different ones.
    pub fn of(
        default: &'c Profile,
        sources: &'c [(Prefix, Profile)],
        nodes: &'c [(u32, Profile)],
    ) -> Option<Self> {
        let mut all = Self {
            profiles: vec![default],
            sources: Vec::with_capacity(sources.len()),
            nodes: Vec::with_capacity(nodes.len()),
        };
        for (prefix, profile) in sources {
            let number = all.number(profile, |known| {
                known.wire == profile.wire && known.has_units_of(profile)
            })?;
            all.sources.push((*prefix, number));
        }
        for (node, profile) in nodes {
            // Its reporter's profile decodes the record of a node.
            let number = all.number(profile, |known| known.has_units_of(profile))?;
            all.nodes.push((*node, number));
        }
        Some(all)
    }

    fn number(&mut self, profile: &'c Profile, is_same: impl Fn(&Profile) -> bool) -> Option<u8> {
        let known = self.profiles.iter().position(|known| is_same(known));
        let number = u8::try_from(known.unwrap_or(self.profiles.len())).ok()?;
        if known.is_none() {
            self.profiles.push(profile);
        }
        Some(number)
    }

    /// Returns the profiles in the order of their numbers.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &'c Profile> {
        self.profiles.iter().copied()
    }

    /// Returns the profile with this number.
    pub(crate) fn get(&self, number: u8) -> &'c Profile {
        // There is always a first profile, and every number is from here.
        self.profiles
            .get(usize::from(number))
            .unwrap_or(&self.profiles[0])
    }

    /// Returns the number of each source's profile.
    pub(crate) fn sources(&self) -> impl Iterator<Item = (Prefix, u8)> {
        self.sources.iter().copied()
    }

    /// Returns the number of each node's profile.
    pub(crate) fn nodes(&self) -> impl Iterator<Item = (u32, u8)> {
        self.nodes.iter().copied()
    }
}

impl Profile {
    /// Returns true if a value means the same under both profiles.
    fn has_units_of(&self, other: &Self) -> bool {
        Units::from(self) == Units::from(other) && self.queue_unit == other.queue_unit
    }
}

/// Selects the rollups that are computed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rollups {
    /// One rollup per second and key.
    pub seconds: bool,
    /// One rollup per minute and key, including flows.
    pub minutes: bool,
    /// Maximum number of quantile sketches, 14 KiB each. A key in use needs two, and three for a short time after each second.
    pub sketches: usize,
}

impl Default for Rollups {
    fn default() -> Self {
        Self {
            seconds: true,
            minutes: true,
            sketches: 2048,
        }
    }
}

/// Settings for joining SF-INT records into paths.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct JoinConfig {
    /// Flows in the table, about 300 bytes each.
    pub max_flows: usize,
    /// Sets in the table, 140 bytes each plus 64 bytes per record.
    pub max_sets: usize,
    /// Maximum number of nodes of a path, including the sink.
    pub max_nodes: usize,
    /// Time after which an incomplete set is closed, ns.
    pub timeout: Nanos,
    /// Initial Remaining Hop Count at the sources, before they decrement it themselves; `None` to learn it.
    pub hop_limit: Option<u8>,
    /// Number of consecutive sets that must prove a path before it is confirmed, at least 1.
    pub confirmations: u8,
}

impl Default for JoinConfig {
    fn default() -> Self {
        Self {
            max_flows: 16_384,
            max_sets: 32_768,
            max_nodes: 16,
            timeout: 1_000_000_000,
            hop_limit: None,
            confirmations: 2,
        }
    }
}

/// A directed link between two nodes, from an egress interface to an ingress interface.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Link {
    /// The node and its egress interface.
    pub from: (u32, u32),
    /// The node and its ingress interface.
    pub to: (u32, u32),
}

/// Settings for joining postcards into paths.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PostcardConfig {
    /// Time that a postcard waits for the others of its packet, and after the latest of them, ns. Must be longer than the timer
    /// of the aggregators.
    pub timeout: Nanos,
    /// Maximum number of pending postcards, about 150 bytes each; 0 disables joining.
    pub max_pending: usize,
    /// Longest time from one node to the next, ns, for postcards that are joined by timestamps.
    pub proximity: Nanos,
    /// Number of consecutive sets that must agree on a path before it is confirmed.
    pub confirmations: u8,
    /// All links between nodes, which prove that no node of a path is missing.
    pub links: Vec<Link>,
    /// Flow IDs that are not the CRC-32C of the flow's 5-tuple.
    pub flow_ids: Vec<(u32, FlowKey)>,
}

impl Default for PostcardConfig {
    fn default() -> Self {
        Self {
            timeout: 100_000_000,
            max_pending: 65_536,
            proximity: 1_000_000,
            confirmations: 2,
            links: Vec::new(),
            flow_ids: Vec::new(),
        }
    }
}

/// The configuration of a collector. Table sizes determine the memory that is reserved at the start; each field states its
/// cost.
#[derive(Clone, Debug)]
pub struct Config {
    /// Flows in the table: about 480 bytes each with six hops, 42 more for each further hop (memory is reserved for 16 each),
    /// and 8 more for each cell of the rule history.
    pub max_flows: usize,
    /// Queues (node, egress interface and queue ID) in the table: about 550 bytes each.
    pub max_queues: usize,
    /// Links (node and egress interface) in the table, about 550 bytes each.
    pub max_links: usize,
    /// Nodes in the table, about 550 bytes each.
    pub max_nodes: usize,
    /// Reporters in the table, for loss accounting and refusals by source, about 450 bytes each.
    pub max_sources: usize,
    /// Silence after which a flow or key expires, ns.
    pub flow_timeout: Nanos,
    /// Interval at which the latest state of each active flow is pushed, ns; 0 = never.
    pub push_interval: Nanos,
    /// The rollups that are computed.
    pub rollup: Rollups,
    /// Hash seed, which prevents senders from targeting one bucket of a table. Equal seeds and inputs give equal outputs.
    pub seed: u64,
    /// The senders that may report to each listener; every sender by default.
    pub access: Arc<Access>,
    /// Profiles by source prefix; the longest prefix wins. With those of nodes, at most [`DistinctProfiles::MAX`] different
    /// ones.
    pub profiles: Vec<(Prefix, Profile)>,
    /// The profile of all other sources.
    pub default_profile: Profile,
    /// Profiles by node id, whose units replace those of the reporter's profile; each node at most once. If there are any,
    /// reports are read one hop at a time.
    pub node_profiles: Vec<(u32, Profile)>,
    /// Thresholds and rules at the start.
    pub detection: Arc<Detection>,
    /// Settings for joining SF-INT records.
    pub sf: JoinConfig,
    /// Enables loss accounting here; `false` if a [`crate::Sequencer`] in front of several collectors does it.
    pub sequence: bool,
    /// Settings for joining postcards into paths.
    pub postcards: PostcardConfig,
}

impl Config {
    /// Returns the different profiles, or `None` if there are more than [`DistinctProfiles::MAX`].
    pub fn distinct_profiles(&self) -> Option<DistinctProfiles<'_>> {
        DistinctProfiles::of(&self.default_profile, &self.profiles, &self.node_profiles)
    }
}

impl Default for Config {
    fn default() -> Self {
        Self {
            max_flows: 65_536,
            max_queues: 16_384,
            max_links: 16_384,
            max_nodes: 4096,
            max_sources: 4096,
            flow_timeout: 60_000_000_000,
            push_interval: 10_000_000_000,
            rollup: Rollups::default(),
            seed: 0x6a09_e667_f3bc_c908,
            access: Arc::default(),
            profiles: Vec::new(),
            default_profile: Profile::default(),
            node_profiles: Vec::new(),
            detection: Arc::new(Detection::default()),
            sf: JoinConfig::default(),
            sequence: true,
            postcards: PostcardConfig::default(),
        }
    }
}

/// The numbers of a profile, prepared for use on every report.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Units {
    pub(crate) stamp_ns: u32,
    pub(crate) latency_ns: u32,
    pub(crate) utilization: u32,
    pub(crate) synchronised: bool,
    /// The longest plausible hop latency, ns, or [`Units::UNLIMITED`].
    pub(crate) max_latency: Nanos,
}

impl Units {
    /// A limit that no latency exceeds.
    pub(crate) const UNLIMITED: Nanos = Nanos::MAX;

    /// Nanoseconds and millionths, clocks not synchronised; for callers that compute nothing from timestamps.
    pub(crate) const NONE: Self = Self {
        stamp_ns: 1,
        latency_ns: 1,
        utilization: 1,
        synchronised: false,
        max_latency: Self::UNLIMITED,
    };

    /// Returns the nanoseconds per unit of this hop's latency.
    pub(crate) fn of_latency(&self, hop: &wire::Hop) -> u32 {
        if hop.latency_in_ns { 1 } else { self.latency_ns }
    }

    /// Returns true if values have the same meaning under both.
    pub(crate) fn same_as(&self, other: &Self) -> bool {
        *self
            == Self {
                max_latency: self.max_latency,
                ..*other
            }
    }
}

impl From<&Profile> for Units {
    fn from(profile: &Profile) -> Self {
        Self {
            stamp_ns: profile.timestamp_unit_ns.max(1),
            latency_ns: profile.latency_unit_ns.max(1),
            utilization: profile.utilization_unit(),
            synchronised: profile.clocks == Clocks::Synchronised,
            max_latency: match profile.max_hop_latency {
                0 => Self::UNLIMITED,
                limit => limit,
            },
        }
    }
}
