//! Thresholds: by how much a value must change to be reported, per metric, with per-flow overrides.
//!
//! # Precedence of overrides
//! For each metric separately, the most specific override applies that matches the flow *and* sets the metric. Of two
//! matching overrides, that is
//! 1. the one with the larger sum of source and destination prefix lengths (0 for an absent prefix);
//! 2. then the one that matches fewer pairs of ports (source range size times destination range size);
//! 3. then the one that names a protocol;
//! 4. then the one that comes first in the file.
//!
//! # Joint thresholds
//! If several parties each want every change above their own threshold ([`Thresholds::with_least`]), the smallest threshold
//! of those that match a flow applies. Joint thresholds take precedence over overrides.

use std::collections::HashSet;
use std::fmt;
use std::str::FromStr;

use wire::FlowKey;

use crate::metric::Metric;
use crate::prefix::Prefix;

/// Maximum number of overrides in a [`Thresholds`]. A new flow is compared with each.
pub const MAX_OVERRIDES: usize = 1024;
/// Maximum number of different threshold sets that overlapping overrides may produce.
pub const MAX_SETS: usize = 4096;

/// A threshold per metric, in the metric's unit, indexed by `Metric as usize`. 0 reports every change.
pub type Set = [u64; Metric::COUNT];

/// The values of an override, per metric; `None` leaves the metric to a less specific override.
pub type Override = [Option<u64>; Metric::COUNT];

/// Ports from `first` to `last`, inclusive.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct PortRange {
    first: u16,
    last: u16,
}

impl PortRange {
    /// Every port, including flows without ports.
    pub const ANY: Self = Self {
        first: 0,
        last: u16::MAX,
    };

    /// Creates the range from `first` to `last`, inclusive.
    ///
    /// # Errors
    /// [`ThresholdError::Ports`] if `first` is greater than `last`.
    pub fn new(first: u16, last: u16) -> Result<Self, ThresholdError> {
        if first > last {
            return Err(ThresholdError::Ports {
                text: format!("{first}-{last}"),
            });
        }
        Ok(Self { first, last })
    }

    /// Returns the first and the last port.
    pub fn bounds(&self) -> (u16, u16) {
        (self.first, self.last)
    }

    /// Returns whether the range contains `port`. Only [`PortRange::ANY`] contains flows without ports.
    #[inline]
    pub fn contains(&self, port: Option<u16>) -> bool {
        port.map_or(*self == Self::ANY, |port| self.first <= port && port <= self.last)
    }

    fn intersection(&self, other: &Self) -> Option<Self> {
        Self::new(self.first.max(other.first), self.last.min(other.last)).ok()
    }

    fn size(&self) -> u64 {
        u64::from(self.last) - u64::from(self.first) + 1
    }
}

impl Default for PortRange {
    fn default() -> Self {
        Self::ANY
    }
}

/// Parses a port or a range of ports, written `80` or `1000-2000`.
impl FromStr for PortRange {
    type Err = ThresholdError;

    fn from_str(text: &str) -> Result<Self, ThresholdError> {
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        let range = match [first, last].map(|port| port.trim().parse()) {
            [Ok(first), Ok(last)] => Self::new(first, last).ok(),
            _ => None,
        };
        range.ok_or_else(|| ThresholdError::Ports {
            text: text.to_owned(),
        })
    }
}

impl fmt::Display for PortRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.first == self.last {
            write!(f, "{}", self.first)
        } else {
            write!(f, "{}-{}", self.first, self.last)
        }
    }
}

/// The flows to which an override applies. The default matches every flow.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Match {
    /// Prefix of the source address.
    pub src: Option<Prefix>,
    /// Prefix of the destination address.
    pub dst: Option<Prefix>,
    /// Range of source ports.
    pub src_port: PortRange,
    /// Range of destination ports.
    pub dst_port: PortRange,
    /// The IP protocol number.
    pub proto: Option<u8>,
}

impl Match {
    /// Returns whether all parts of the match hold for `flow`.
    #[inline]
    pub fn matches(&self, flow: &FlowKey) -> bool {
        if flow.known_id().is_some() {
            // Only the flow ID is known, not the addresses, so only an unconditional match applies.
            return *self == Self::default();
        }
        self.proto.is_none_or(|proto| proto == flow.proto())
            && self
                .src
                .is_none_or(|prefix| prefix.contains_octets(flow.src_octets()))
            && self
                .dst
                .is_none_or(|prefix| prefix.contains_octets(flow.dst_octets()))
            && self.src_port.contains(flow.src_port())
            && self.dst_port.contains(flow.dst_port())
    }

    /// Returns a sort key from general to specific, by criteria 1 to 3 of the module documentation.
    fn specificity(&self) -> impl Ord + use<> {
        let bits: u16 = [self.src, self.dst]
            .iter()
            .flatten()
            .map(|prefix| u16::from(prefix.len()))
            .sum();
        let port_pairs = self.src_port.size() * self.dst_port.size();
        (bits, std::cmp::Reverse(port_pairs), self.proto.is_some())
    }

    /// Returns the flows that both match, or `None` if there can be none.
    pub fn intersection(&self, other: &Self) -> Option<Self> {
        let intersection = Self {
            src: combine(self.src, other.src, |a, b| a.intersection(&b)).ok()?,
            dst: combine(self.dst, other.dst, |a, b| a.intersection(&b)).ok()?,
            src_port: self.src_port.intersection(&other.src_port)?,
            dst_port: self.dst_port.intersection(&other.dst_port)?,
            proto: combine(self.proto, other.proto, |a, b| (a == b).then_some(a)).ok()?,
        };
        (!intersection.mixes_families()).then_some(intersection)
    }

    /// Returns whether this match contains every flow that `other` matches.
    fn covers(&self, other: &Self) -> bool {
        self.intersection(other) == Some(*other)
    }

    fn mixes_families(&self) -> bool {
        matches!((self.src, self.dst), (Some(src), Some(dst)) if src.is_v6() != dst.is_v6())
    }
}

/// Two conditions exclude each other.
struct Disjoint;

/// Combines two optional conditions by `join`, which returns `None` if they exclude each other.
fn combine<T>(
    first: Option<T>,
    second: Option<T>,
    join: impl Fn(T, T) -> Option<T>,
) -> Result<Option<T>, Disjoint> {
    match (first, second) {
        (Some(first), Some(second)) => join(first, second).map(Some).ok_or(Disjoint),
        (condition, None) | (None, condition) => Ok(condition),
    }
}

/// The thresholds of all flows. [`Thresholds::set_for`] resolves them once per flow to the number of a set, which the
/// caller stores with the flow.
///
/// ```
/// use detect::{Match, Metric, Thresholds};
/// use wire::FlowKey;
///
/// // Hop latency: 100 us in general, 10 us for flows to 10.1.0.0/16. All other metrics: every change.
/// let mut defaults = [0; Metric::COUNT];
/// defaults[Metric::HopLatency as usize] = 100_000;
/// let mut fast = [None; Metric::COUNT];
/// fast[Metric::HopLatency as usize] = Some(10_000);
/// let to_fast = Match { dst: Some("10.1.0.0/16".parse()?), ..Match::default() };
/// let thresholds = Thresholds::new(defaults, vec![(to_fast, fast)])?;
///
/// let of = |flow: &FlowKey| thresholds.get(thresholds.set_for(flow))[Metric::HopLatency as usize];
/// assert_eq!(of(&"10.0.0.1:1234>10.1.0.7:80/6".parse()?), 10_000);
/// assert_eq!(of(&"10.0.0.1:1234>10.2.0.7:80/6".parse()?), 100_000);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Thresholds {
    /// Overrides from general to specific; a later one takes precedence.
    overrides: Vec<(Match, Override)>,
    /// All reachable sets; the first is the default.
    sets: Vec<Set>,
    /// Indices into `sets`, sorted by set, for binary search.
    sorted: Vec<u16>,
}

impl Thresholds {
    /// Creates thresholds from `defaults` and from `overrides` for the flows that they match.
    ///
    /// # Errors
    /// [`ThresholdError`] for more than [`MAX_OVERRIDES`] overrides, an override that cannot match, or overlaps that
    /// produce more than [`MAX_SETS`] sets.
    pub fn new(defaults: Set, overrides: Vec<(Match, Override)>) -> Result<Self, ThresholdError> {
        if overrides.len() > MAX_OVERRIDES {
            return Err(ThresholdError::TooManyOverrides {
                count: overrides.len(),
            });
        }
        if let Some(index) = overrides.iter().position(|(flows, _)| flows.mixes_families()) {
            return Err(ThresholdError::MixedFamilies { index });
        }
        let mut overrides = overrides;
        // The sort is stable. Reversing first puts the override that comes first in the file last among equally specific
        // ones, so that it takes precedence.
        overrides.reverse();
        overrides.sort_by_key(|(flows, _)| flows.specificity());
        let sets = reachable_sets(defaults, &overrides)?;
        let mut sorted: Vec<u16> = (0..sets.len() as u16).collect();
        sorted.sort_by_key(|&index| sets[usize::from(index)]);
        Ok(Self {
            overrides,
            sets,
            sorted,
        })
    }

    /// Creates thresholds from `defaults` and `overrides`, and from the joint thresholds `least`: of those that match a
    /// flow, the smallest value per metric applies, whatever the overrides say.
    ///
    /// # Errors
    /// As for [`Thresholds::new`], counting one override for each way in which they overlap.
    pub fn with_least(
        defaults: Set,
        overrides: Vec<(Match, Override)>,
        least: &[(Match, Override)],
    ) -> Result<Self, ThresholdError> {
        if let Some(index) = overrides.iter().position(|(flows, _)| flows.mixes_families()) {
            return Err(ThresholdError::MixedFamilies { index });
        }
        let mut joined = overlaps(least, &overrides)?;
        joined.extend(overrides);
        Self::new(defaults, joined)
    }

    /// Returns the number of the set that applies to `flow`, for [`Thresholds::get`]. Compares the flow with every override
    /// (a few ns each), so call it when a flow is new or the thresholds have changed, not per report.
    pub fn set_for(&self, flow: &FlowKey) -> u16 {
        if self.overrides.is_empty() {
            return 0;
        }
        let set = resolve(
            self.sets[0],
            self.overrides.iter().filter(|(flows, _)| flows.matches(flow)),
        );
        let position = self
            .sorted
            .binary_search_by_key(&&set, |&index| &self.sets[usize::from(index)]);
        debug_assert!(
            position.is_ok(),
            "new() enumerates every set that overrides add up to"
        );
        position.map_or(0, |position| self.sorted[position])
    }

    /// Returns the thresholds of a set numbered by [`Thresholds::set_for`], or the defaults for any other number.
    #[inline]
    pub fn get(&self, set: u16) -> &Set {
        self.sets.get(usize::from(set)).unwrap_or(&self.sets[0])
    }

    /// Returns the thresholds of a flow that no override matches.
    pub fn defaults(&self) -> &Set {
        &self.sets[0]
    }

    /// Returns the overrides from general to specific. Per metric, the last one that matches a flow and sets the metric
    /// applies.
    pub fn overrides(&self) -> &[(Match, Override)] {
        &self.overrides
    }

    /// Returns the number of different sets.
    pub fn set_count(&self) -> usize {
        self.sets.len()
    }
}

impl Default for Thresholds {
    /// Creates thresholds that report every change.
    fn default() -> Self {
        Self {
            overrides: Vec::new(),
            sets: vec![[0; Metric::COUNT]],
            sorted: vec![0],
        }
    }
}

/// Turns joint thresholds into plain overrides with the same effect. Their matches are closed under intersection, and
/// intersected with the matches of `others`, so that no override is more specific. Each result has the smallest values of
/// all joint thresholds that cover it. The narrower of two equally specific matches comes first, so that it takes
/// precedence.
fn overlaps(
    least: &[(Match, Override)],
    others: &[(Match, Override)],
) -> Result<Vec<(Match, Override)>, ThresholdError> {
    let mut known_matches: HashSet<Match> = HashSet::new();
    let mut regions: Vec<Match> = Vec::new();
    for (flows, _) in least {
        let mut intersections: Vec<Match> = regions
            .iter()
            .filter_map(|region| region.intersection(flows))
            .collect();
        intersections.push(*flows);
        regions.extend(
            intersections
                .into_iter()
                .filter(|region| known_matches.insert(*region)),
        );
        if regions.len() > MAX_OVERRIDES {
            return Err(ThresholdError::TooManyOverrides { count: regions.len() });
        }
    }
    for index in 0..regions.len() {
        let intersections: Vec<Match> = others
            .iter()
            .filter_map(|(flows, _)| regions[index].intersection(flows))
            .filter(|region| known_matches.insert(*region))
            .collect();
        regions.extend(intersections);
        if regions.len() > MAX_OVERRIDES {
            return Err(ThresholdError::TooManyOverrides { count: regions.len() });
        }
    }
    let joined = regions.iter().map(|region| {
        let covering = least.iter().filter(|(flows, _)| flows.covers(region));
        let values =
            std::array::from_fn(|metric| covering.clone().filter_map(|(_, values)| values[metric]).min());
        (*region, values)
    });
    let mut joined: Vec<(Match, Override)> = joined.collect();
    joined.sort_by_key(|(region, _)| std::cmp::Reverse(joined_fields(region)));
    Ok(joined)
}

/// Returns the number of fields that a match names. Of two equally specific matches, the narrower names more (such as
/// `::/0`).
fn joined_fields(region: &Match) -> usize {
    [region.src.is_some(), region.dst.is_some(), region.proto.is_some()]
        .into_iter()
        .filter(|is_named| *is_named)
        .count()
}

fn resolve<'a>(mut set: Set, matching: impl Iterator<Item = &'a (Match, Override)>) -> Set {
    for (_, values) in matching {
        for (threshold, value) in set.iter_mut().zip(values) {
            *threshold = value.unwrap_or(*threshold);
        }
    }
    set
}

/// Returns every set that a flow can have, the default first. A flow's set depends on which overrides match it, and these
/// are the overrides that cover the intersection of their matches. So enumerating the intersections finds all sets.
fn reachable_sets(defaults: Set, overrides: &[(Match, Override)]) -> Result<Vec<Set>, ThresholdError> {
    let mut regions = vec![Match::default()];
    let mut known_matches: HashSet<Match> = regions.iter().copied().collect();
    for (flows, _) in overrides {
        for index in 0..regions.len() {
            if let Some(region) = regions[index].intersection(flows)
                && known_matches.insert(region)
            {
                regions.push(region);
            }
        }
        if regions.len() > MAX_SETS {
            return Err(ThresholdError::TooManySets);
        }
    }
    let mut sets = vec![defaults];
    let mut known_sets: HashSet<Set> = sets.iter().copied().collect();
    for region in regions {
        let set = resolve(
            defaults,
            overrides.iter().filter(|(flows, _)| flows.covers(&region)),
        );
        if known_sets.insert(set) {
            sets.push(set);
        }
    }
    Ok(sets)
}

/// The reason why thresholds are invalid.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ThresholdError {
    /// The text is not a port or a range of ports.
    Ports {
        /// The text that was rejected.
        text: String,
    },
    /// There are more than [`MAX_OVERRIDES`] overrides.
    TooManyOverrides {
        /// Number of overrides that were given.
        count: usize,
    },
    /// Source and destination prefixes have different address families.
    MixedFamilies {
        /// Index of the override in the file, from 0.
        index: usize,
    },
    /// Overlapping overrides produce more than [`MAX_SETS`] sets.
    TooManySets,
}

impl fmt::Display for ThresholdError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ports { text } => {
                write!(
                    f,
                    "`{text}` is not a range of ports: write one port, or two in rising order, as in 1000-2000"
                )
            }
            Self::TooManyOverrides { count } => {
                write!(
                    f,
                    "{count} threshold overrides are too many: at most {MAX_OVERRIDES}"
                )
            }
            Self::MixedFamilies { index } => {
                let number = index + 1;
                write!(
                    f,
                    "threshold override {number} matches nothing: one address is IPv4 and the other is IPv6"
                )
            }
            Self::TooManySets => {
                write!(
                    f,
                    "threshold overrides overlap in more than {MAX_SETS} ways: give each match all its values"
                )
            }
        }
    }
}

impl std::error::Error for ThresholdError {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    const DEFAULTS: Set = [0, 1, 2, 3, 4, 5];

    fn flow(src: &str, dst: &str, ports: Option<(u16, u16)>, proto: u8) -> FlowKey {
        FlowKey::new(src.parse().unwrap(), dst.parse().unwrap(), ports, proto)
    }

    fn only(metric: Metric, value: u64) -> Override {
        let mut values = [None; Metric::COUNT];
        values[metric as usize] = Some(value);
        values
    }

    fn src(prefix: &str) -> Match {
        Match {
            src: Some(prefix.parse().unwrap()),
            ..Match::default()
        }
    }

    fn dst(prefix: &str) -> Match {
        Match {
            dst: Some(prefix.parse().unwrap()),
            ..Match::default()
        }
    }

    /// Returns the hop latency threshold of `10.1.1.1:1000>10.2.2.2:80/6` when the overrides give 100, 101, … in file order.
    fn winner(matches: &[Match]) -> u64 {
        let overrides = (100..)
            .zip(matches)
            .map(|(value, m)| (*m, only(Metric::HopLatency, value)))
            .collect();
        let thresholds = Thresholds::new(DEFAULTS, overrides).unwrap();
        let flow = flow("10.1.1.1", "10.2.2.2", Some((1000, 80)), 6);
        thresholds.get(thresholds.set_for(&flow))[Metric::HopLatency as usize]
    }

    #[test]
    fn without_a_match_the_defaults_hold() {
        assert_eq!(winner(&[]), 2);
        assert_eq!(winner(&[src("10.9.0.0/16"), dst("2001:db8::/32")]), 2);
    }

    #[test]
    fn the_greater_sum_of_prefix_lengths_wins_first() {
        let ports = |low, high| PortRange::new(low, high).unwrap();
        let broad_but_narrow_ports = Match {
            src_port: ports(1000, 1000),
            dst_port: ports(80, 80),
            proto: Some(6),
            ..src("10.1.0.0/16")
        };
        assert_eq!(winner(&[broad_but_narrow_ports, src("10.1.0.0/17")]), 101);
        // The prefix lengths 8 + 16 sum to more than 23.
        let pair = Match {
            dst: Some("10.2.0.0/16".parse().unwrap()),
            ..src("10.0.0.0/8")
        };
        assert_eq!(winner(&[pair, src("10.1.0.0/23"), dst("10.2.2.0/23")]), 100);
    }

    #[test]
    fn narrower_ports_win_then_a_protocol_then_the_first_in_the_file() {
        let dst_port = |text: &str| Match {
            dst_port: text.parse().unwrap(),
            ..src("10.1.0.0/16")
        };
        let tcp = |m: Match| Match { proto: Some(6), ..m };
        assert_eq!(
            winner(&[dst_port("0-1023"), dst_port("80-81"), dst_port("79-81")]),
            101
        );
        assert_eq!(winner(&[tcp(dst_port("79-81")), dst_port("80")]), 101);
        assert_eq!(winner(&[dst_port("80"), tcp(dst_port("80"))]), 101);
        assert_eq!(winner(&[dst_port("80"), dst_port("80"), dst_port("80")]), 100);
        assert_eq!(winner(&[tcp(dst_port("80-81")), tcp(dst_port("79-80"))]), 100);
    }

    #[test]
    fn metrics_are_decided_independently() {
        let overrides = vec![
            (src("10.0.0.0/8"), [None, Some(10), Some(10), None, None, None]),
            (src("10.1.0.0/16"), [None, None, Some(16), Some(16), None, None]),
        ];
        let thresholds = Thresholds::new(DEFAULTS, overrides).unwrap();
        let set = |src| *thresholds.get(thresholds.set_for(&flow(src, "10.2.2.2", None, 1)));
        assert_eq!(set("10.1.0.1"), [0, 10, 16, 16, 4, 5]);
        assert_eq!(set("10.2.0.1"), [0, 10, 10, 3, 4, 5]);
        assert_eq!(set("11.0.0.1"), DEFAULTS);
        assert_eq!(thresholds.set_count(), 3);
    }

    #[test]
    fn a_flow_without_ports_matches_only_where_every_port_does() {
        let web = Match {
            dst_port: "80".parse().unwrap(),
            ..Match::default()
        };
        let thresholds = Thresholds::new(DEFAULTS, vec![(web, only(Metric::FlowLatency, 9))]).unwrap();
        assert_ne!(
            thresholds.set_for(&flow("10.0.0.1", "10.0.0.2", Some((1, 80)), 6)),
            0
        );
        assert_eq!(thresholds.set_for(&flow("10.0.0.1", "10.0.0.2", None, 6)), 0);
        assert!(PortRange::ANY.contains(None));
    }

    #[test]
    fn overrides_that_never_match_or_exceed_the_limit_are_refused() {
        let mixed = Match {
            dst: Some("::/0".parse().unwrap()),
            ..src("10.0.0.0/8")
        };
        let refused = |overrides| Thresholds::new(DEFAULTS, overrides).unwrap_err();
        let empty = [None; Metric::COUNT];
        assert_eq!(
            refused(vec![(src("::/0"), empty), (mixed, empty)]),
            ThresholdError::MixedFamilies { index: 1 }
        );
        let many = vec![(Match::default(), empty); MAX_OVERRIDES + 1];
        assert_eq!(refused(many), ThresholdError::TooManyOverrides { count: 1025 });
        // Seventy nested ranges of one metric crossed with seventy of another: 4,900 sets.
        let ports = |port, values| {
            (
                Match {
                    src_port: PortRange { first: 0, last: port },
                    ..Match::default()
                },
                values,
            )
        };
        let crossing = |port, values| {
            (
                Match {
                    dst_port: PortRange { first: 0, last: port },
                    ..Match::default()
                },
                values,
            )
        };
        let overrides = (1..=70u16)
            .flat_map(|n| {
                let value = u64::from(n) * 1000;
                [
                    ports(n * 10, only(Metric::HopLatency, value)),
                    crossing(n * 10, only(Metric::FlowLatency, value)),
                ]
            })
            .collect();
        assert_eq!(refused(overrides), ThresholdError::TooManySets);
        for text in ["", "80-", "90-80", "65536", "a"] {
            assert_eq!(
                text.parse::<PortRange>(),
                Err(ThresholdError::Ports { text: text.into() })
            );
        }
    }

    /// Returns the definition, implemented without sorting or enumeration: for each metric the best matching override.
    fn by_definition(overrides: &[(Match, Override)], flow: &FlowKey) -> Set {
        let mut set = DEFAULTS;
        for metric in Metric::ALL {
            let mut best: Option<&(Match, Override)> = None;
            for candidate in overrides
                .iter()
                .filter(|(m, o)| m.matches(flow) && o[metric as usize].is_some())
            {
                if best.is_none_or(|best| candidate.0.specificity() > best.0.specificity()) {
                    best = Some(candidate);
                }
            }
            set[metric as usize] = best
                .and_then(|(_, o)| o[metric as usize])
                .unwrap_or(set[metric as usize]);
        }
        set
    }

    fn random_match(random: &mut Random) -> Match {
        let ranges = ["0-65535", "0-1", "1-2", "2", "1"];
        let v4 = [
            "0.0.0.0/0",
            "0.0.0.0/1",
            "10.0.0.0/8",
            "10.0.0.0/31",
            "10.0.0.1/32",
        ];
        let v6 = ["::/0", "2001:db8::/32", "2001:db8::1/128"];
        let prefixes: &[&str] = if random.below(3) == 0 { &v6 } else { &v4 };
        let mut prefix = || (random.below(2) == 0).then(|| random.pick(prefixes).parse().unwrap());
        Match {
            src: prefix(),
            dst: prefix(),
            src_port: random.pick(&ranges).parse().unwrap(),
            dst_port: random.pick(&ranges).parse().unwrap(),
            proto: (random.below(2) == 0).then(|| random.below(2) as u8),
        }
    }

    fn random_flow(random: &mut Random) -> FlowKey {
        let v6 = ["2001:db8::1", "2001:db8::2", "::1"];
        let v4 = ["10.0.0.0", "10.0.0.1", "10.0.0.2", "200.0.0.1"];
        let addresses: &[&str] = if random.below(3) == 0 { &v6 } else { &v4 };
        let ports = random.maybe(|r| (r.below(4) as u16, r.below(4) as u16));
        flow(
            random.pick(addresses),
            random.pick(addresses),
            ports,
            random.below(3) as u8,
        )
    }

    fn random_override(random: &mut Random) -> (Match, Override) {
        let flows = random_match(random);
        (flows, std::array::from_fn(|_| random.maybe(|r| r.below(100))))
    }

    #[test]
    fn of_several_that_apply_together_the_least_does() {
        let mut random = Random::new(7);
        for round in 0..300 {
            let mut list = |most| -> Vec<(Match, Override)> {
                let list = (0..random.below(most)).map(|_| random_override(&mut random));
                list.filter(|(flows, _)| !flows.mixes_families()).collect()
            };
            let (overrides, least) = (list(5), list(5));
            let thresholds = Thresholds::with_least(DEFAULTS, overrides.clone(), &least).unwrap();
            for _ in 0..50 {
                let flow = random_flow(&mut random);
                let mut expected = by_definition(&overrides, &flow);
                for (metric, value) in expected.iter_mut().enumerate() {
                    let matching = least.iter().filter(|(flows, _)| flows.matches(&flow));
                    *value = matching
                        .filter_map(|(_, values)| values[metric])
                        .min()
                        .unwrap_or(*value);
                }
                let found = thresholds.get(thresholds.set_for(&flow));
                assert_eq!(
                    *found, expected,
                    "{round}: {flow} under {overrides:?} and {least:?}"
                );
            }
        }
        let many = vec![(Match::default(), [Some(1); Metric::COUNT]); 3000];
        assert!(Thresholds::with_least(DEFAULTS, Vec::new(), &many).is_ok());
        let ports = (0..=1024).map(|n| {
            (
                Match {
                    dst_port: PortRange { first: n, last: n },
                    ..Match::default()
                },
                many[0].1,
            )
        });
        let refused = Thresholds::with_least(DEFAULTS, Vec::new(), &ports.collect::<Vec<_>>()).unwrap_err();
        assert_eq!(refused, ThresholdError::TooManyOverrides { count: 1025 });
    }

    #[test]
    fn any_set_of_overrides_resolves_as_defined() {
        let mut random = Random::new(1);
        for _ in 0..300 {
            let overrides: Vec<(Match, Override)> = (0..random.below(8))
                .map(|_| random_override(&mut random))
                .collect();
            let thresholds = Thresholds::new(DEFAULTS, overrides.clone()).unwrap();
            for _ in 0..50 {
                let flow = random_flow(&mut random);
                let found = thresholds.get(thresholds.set_for(&flow));
                assert_eq!(
                    *found,
                    by_definition(&overrides, &flow),
                    "{flow} under {overrides:?}"
                );
            }
        }
    }
}
