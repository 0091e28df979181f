//! The flows that an intent selects, and their expansion into watchlist entries.

use std::cmp::Reverse;
use std::fmt;

use detect::{Match, PortRange, Prefix};

/// Maximum number of entries of one intent, both directions together. A longer list would fill the table of any switch.
pub const MAX_ENTRIES: usize = 4096;
/// Range of all ports, which also matches packets without ports.
pub const ANY_PORT: Ports = (0, u16::MAX);

/// A range of ports: the first and the last, both included.
pub type Ports = (u16, u16);

/// The flows of an intent. A flow matches if each list contains a matching element; an empty list matches everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Flows {
    /// Source prefixes, IPv4 or IPv6.
    pub src: Vec<Prefix>,
    /// Destination prefixes, IPv4 or IPv6.
    pub dst: Vec<Prefix>,
    /// Ranges of source ports.
    pub sport: Vec<Ports>,
    /// Ranges of destination ports.
    pub dport: Vec<Ports>,
    /// Numbers of IP protocols.
    pub proto: Vec<u8>,
    /// DSCP, 0 to 63, before INT marks the packet.
    pub dscp: Vec<u8>,
}

/// The key of one watchlist entry: all fields must match.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FlowMatch {
    /// Source prefix; `None` matches any.
    pub src: Option<Prefix>,
    /// Destination prefix; `None` matches any.
    pub dst: Option<Prefix>,
    /// Range of source ports.
    pub sport: Ports,
    /// Range of destination ports.
    pub dport: Ports,
    /// IP protocol number; `None` matches any.
    pub proto: Option<u8>,
    /// DSCP; `None` matches any value.
    pub dscp: Option<u8>,
}

impl Default for FlowMatch {
    /// Returns a match for every flow.
    fn default() -> Self {
        Self {
            src: None,
            dst: None,
            sport: ANY_PORT,
            dport: ANY_PORT,
            proto: None,
            dscp: None,
        }
    }
}

impl FlowMatch {
    /// Returns the same flows in the opposite direction.
    #[must_use]
    pub fn reversed(&self) -> Self {
        Self {
            src: self.dst,
            dst: self.src,
            sport: self.dport,
            dport: self.sport,
            ..*self
        }
    }

    /// Returns the flows that both keys match, or `None` if there are none.
    pub fn intersection(&self, other: &Self) -> Option<Self> {
        let dscp = match (self.dscp, other.dscp) {
            (Some(a), Some(b)) if a != b => return None,
            (a, b) => a.or(b),
        };
        let both = self.to_match().intersection(&other.to_match())?;
        Some(Self {
            src: both.src,
            dst: both.dst,
            sport: both.src_port.bounds(),
            dport: both.dst_port.bounds(),
            proto: both.proto,
            dscp,
        })
    }

    /// Returns whether source and destination belong to different IP versions; such a key matches no packet.
    pub fn mixes_families(&self) -> bool {
        matches!((self.src, self.dst), (Some(src), Some(dst)) if src.is_v6() != dst.is_v6())
    }

    /// Returns the precedence of the entry. Of two nested keys, the narrower has the greater precedence. It depends on the key
    /// alone, so that a new intent never renumbers existing entries. Bits from the most significant: sum of prefix lengths
    /// (9), narrowness of the ports (33), protocol given (1), DSCP given (1).
    pub fn precedence(&self) -> u64 {
        let narrow = (1_u64 << 32) - size(self.sport) * size(self.dport);
        (prefix_bits(self.src) + prefix_bits(self.dst)) << 35
            | narrow << 2
            | u64::from(self.proto.is_some()) << 1
            | u64::from(self.dscp.is_some())
    }

    /// Returns a sort key that orders entries from specific to general.
    pub fn by_precedence(&self) -> impl Ord + use<> {
        (Reverse(self.precedence()), *self)
    }

    /// Converts the key to the type of the data plane and the collector, which has no DSCP.
    pub fn to_match(&self) -> Match {
        Match {
            src: self.src,
            dst: self.dst,
            src_port: port_range(self.sport),
            dst_port: port_range(self.dport),
            proto: self.proto,
        }
    }
}

impl fmt::Display for FlowMatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut words = Vec::new();
        words.extend(self.src.map(|prefix| format!("from {prefix}")));
        words.extend(self.dst.map(|prefix| format!("to {prefix}")));
        words.extend(self.proto.map(|proto| match proto {
            6 => "TCP".to_owned(),
            17 => "UDP".to_owned(),
            other => format!("protocol {other}"),
        }));
        words.extend(ports_text("source port", self.sport));
        words.extend(ports_text("port", self.dport));
        words.extend(self.dscp.map(|dscp| format!("DSCP {dscp}")));
        if words.is_empty() {
            f.write_str("all flows")
        } else {
            f.write_str(&words.join(", "))
        }
    }
}

/// Returns the length of a prefix plus 1, or 0 for any address.
fn prefix_bits(prefix: Option<Prefix>) -> u64 {
    prefix.map_or(0, |prefix| u64::from(prefix.len()) + 1)
}

fn size((first, last): Ports) -> u64 {
    u64::from(last) - u64::from(first) + 1
}

fn port_range((first, last): Ports) -> PortRange {
    PortRange::new(first, last).unwrap_or(PortRange::ANY)
}

fn ports_text(name: &str, (first, last): Ports) -> Option<String> {
    match (first, last) {
        ANY_PORT => None,
        _ if first == last => Some(format!("{name} {first}")),
        _ => Some(format!("{name} {first}-{last}")),
    }
}

/// The reason why flows have no entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlowsError {
    /// In every combination, source and destination have different IP versions.
    NoPacket,
    /// The flows expand to this many entries, more than [`MAX_ENTRIES`].
    TooMany(usize),
}

impl fmt::Display for FlowsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoPacket => f.write_str(
                "no packet has a source and a destination of different versions of IP; use prefixes of one version",
            ),
            Self::TooMany(count) => write!(
                f,
                "the lists of `match` multiply to {count} entries, at most {MAX_ENTRIES} are possible; use shorter lists or wider prefixes"
            ),
        }
    }
}

impl std::error::Error for FlowsError {}

/// Replaces each entry by one copy per value, set by `set`. Without values, the field keeps matching anything.
fn multiply<T: Copy>(entries: &mut Vec<FlowMatch>, values: &[T], set: impl Fn(&mut FlowMatch, T)) {
    if values.is_empty() {
        return;
    }
    let mut product = Vec::with_capacity(entries.len() * values.len());
    for entry in entries.iter() {
        for value in values {
            let mut entry = *entry;
            set(&mut entry, *value);
            product.push(entry);
        }
    }
    *entries = product;
}

impl Flows {
    /// Expands the flows into entries, sorted and without duplicates.
    ///
    /// # Errors
    /// [`FlowsError`] if no packet can match, or if there are more than [`MAX_ENTRIES`] entries.
    pub fn entries(&self, both_directions: bool) -> Result<Vec<FlowMatch>, FlowsError> {
        let factors = [
            self.src.len(),
            self.dst.len(),
            self.sport.len(),
            self.dport.len(),
            self.proto.len(),
            self.dscp.len(),
            1 + usize::from(both_directions),
        ];
        let count = factors.iter().fold(1_usize, |product, factor| {
            product.saturating_mul((*factor).max(1))
        });
        if count > MAX_ENTRIES {
            return Err(FlowsError::TooMany(count));
        }
        let mut entries = vec![FlowMatch::default()];
        multiply(&mut entries, &self.src, |entry, src| entry.src = Some(src));
        multiply(&mut entries, &self.dst, |entry, dst| entry.dst = Some(dst));
        multiply(&mut entries, &self.sport, |entry, sport| entry.sport = sport);
        multiply(&mut entries, &self.dport, |entry, dport| entry.dport = dport);
        multiply(&mut entries, &self.proto, |entry, proto| {
            entry.proto = Some(proto)
        });
        multiply(&mut entries, &self.dscp, |entry, dscp| entry.dscp = Some(dscp));
        entries.retain(|entry| !entry.mixes_families());
        if both_directions {
            let reversed: Vec<_> = entries.iter().map(FlowMatch::reversed).collect();
            entries.extend(reversed);
        }
        entries.sort_unstable();
        entries.dedup();
        if entries.is_empty() {
            Err(FlowsError::NoPacket)
        } else {
            Ok(entries)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prefix(text: &str) -> Prefix {
        text.parse().unwrap()
    }

    #[test]
    fn lists_multiply_and_mixed_families_are_left_out() {
        let flows = Flows {
            src: vec![prefix("10.0.0.0/8"), prefix("fd00::/16")],
            dst: vec![prefix("10.1.0.0/16"), prefix("fd01::/16")],
            dport: vec![(80, 80), (443, 443)],
            ..Flows::default()
        };
        let entries = flows.entries(false).unwrap();
        assert_eq!(entries.len(), 4);
        assert!(entries.iter().all(|entry| !entry.mixes_families()));
        assert_eq!(flows.entries(true).unwrap().len(), 8);
        let none = Flows {
            src: vec![prefix("10.0.0.0/8")],
            dst: vec![prefix("fd01::/16")],
            ..flows
        };
        assert_eq!(none.entries(true), Err(FlowsError::NoPacket));
    }

    #[test]
    fn long_lists_are_refused_before_they_are_built() {
        let ports: Vec<Ports> = (0..60_000).map(|port| (port, port)).collect();
        let flows = Flows {
            sport: ports.clone(),
            dport: ports,
            ..Flows::default()
        };
        assert_eq!(flows.entries(true), Err(FlowsError::TooMany(7_200_000_000)));
    }

    #[test]
    fn a_narrower_key_has_the_greater_precedence() {
        let mut rng = testkit::rng::Rng(1);
        let mut nested = 0;
        for _ in 0..20_000 {
            let mut key = || FlowMatch {
                src: [None, Some(prefix("10.0.0.0/8")), Some(prefix("10.1.0.0/16"))][rng.below(3)],
                dst: [None, Some(prefix("::/0")), Some(prefix("10.0.0.0/8"))][rng.below(3)],
                sport: [ANY_PORT, (80, 100), (80, 101)][rng.below(3)],
                dport: [ANY_PORT, (0, 65_534)][rng.below(2)],
                proto: [None, Some(6)][rng.below(2)],
                dscp: [None, Some(10)][rng.below(2)],
            };
            let (a, b) = (key(), key());
            if a != b && a.intersection(&b) == Some(a) {
                assert!(a.precedence() > b.precedence(), "{a} in {b}");
                nested += 1;
            }
        }
        assert!(nested > 100);
    }
}
