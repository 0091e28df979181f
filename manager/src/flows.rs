//! Which flows an intent is about, and the entries of a watchlist that express it.

use std::cmp::Reverse;
use std::fmt;

use detect::{Match, PortRange, Prefix};

/// Entries that one intent may expand to, both directions together. A longer list is refused: it would fill the table of
/// any switch.
pub const MAX_ENTRIES: usize = 4096;

/// First and last port, both included.
pub type Ports = (u16, u16);

/// Every port, and packets without ports.
pub const ANY_PORT: Ports = (0, u16::MAX);

/// The flows of an intent. An empty list matches everything; a flow matches if each list has an element that matches.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Flows {
    /// Source prefixes.
    pub src: Vec<Prefix>,
    /// Destination prefixes.
    pub dst: Vec<Prefix>,
    /// Source ports.
    pub sport: Vec<Ports>,
    /// Destination ports.
    pub dport: Vec<Ports>,
    /// IP protocol numbers.
    pub proto: Vec<u8>,
    /// DSCP, 0 to 63, before INT marks the packet.
    pub dscp: Vec<u8>,
}

/// The key of one entry of a watchlist: a conjunction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FlowKey {
    /// Source prefix.
    pub src: Option<Prefix>,
    /// Destination prefix.
    pub dst: Option<Prefix>,
    /// Source ports.
    pub sport: Ports,
    /// Destination ports.
    pub dport: Ports,
    /// IP protocol number.
    pub proto: Option<u8>,
    /// DSCP.
    pub dscp: Option<u8>,
}

impl Default for FlowKey {
    /// Every flow.
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

impl FlowKey {
    /// The same flows in the opposite direction.
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

    /// The flows that both match; `None` if there are none.
    pub fn intersection(&self, other: &Self) -> Option<Self> {
        let both = Self {
            src: both(self.src, other.src, |a, b| a.intersection(&b))?,
            dst: both(self.dst, other.dst, |a, b| a.intersection(&b))?,
            sport: overlap(self.sport, other.sport)?,
            dport: overlap(self.dport, other.dport)?,
            proto: both(self.proto, other.proto, |a, b| (a == b).then_some(a))?,
            dscp: both(self.dscp, other.dscp, |a, b| (a == b).then_some(a))?,
        };
        (!both.mixes_families()).then_some(both)
    }

    /// Whether source and destination belong to different versions of IP: no packet does.
    pub fn mixes_families(&self) -> bool {
        matches!((self.src, self.dst), (Some(src), Some(dst)) if src.is_v6() != dst.is_v6())
    }

    /// Precedence of the entry: of two overlapping entries whose keys are nested, the narrower has the greater number.
    /// It depends on the key alone, so that a new intent never renumbers the entries of others. Bits from the top:
    /// prefix lengths (9), narrowness of the ports (33), protocol (1), DSCP (1).
    pub fn precedence(&self) -> u64 {
        let bits = |prefix: Option<Prefix>| prefix.map_or(0, |prefix| u64::from(prefix.len()) + 1);
        let size = |(first, last): Ports| u64::from(last) - u64::from(first) + 1;
        let narrow = (1_u64 << 32) - size(self.sport) * size(self.dport);
        (bits(self.src) + bits(self.dst)) << 35
            | narrow << 2
            | u64::from(self.proto.is_some()) << 1
            | u64::from(self.dscp.is_some())
    }

    /// Sorts from specific to general.
    pub fn by_precedence(&self) -> impl Ord + use<> {
        (Reverse(self.precedence()), *self)
    }

    /// The condition in the form of the data plane and the collector, which has no DSCP.
    pub fn to_match(&self) -> Match {
        let range = |(first, last)| PortRange::new(first, last).unwrap_or(PortRange::ANY);
        Match {
            src: self.src,
            dst: self.dst,
            src_port: range(self.sport),
            dst_port: range(self.dport),
            proto: self.proto,
        }
    }
}

impl fmt::Display for FlowKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut words = Vec::new();
        words.extend(self.src.map(|prefix| format!("from {prefix}")));
        words.extend(self.dst.map(|prefix| format!("to {prefix}")));
        words.extend(self.proto.map(|proto| match proto {
            6 => "TCP".to_owned(),
            17 => "UDP".to_owned(),
            other => format!("protocol {other}"),
        }));
        let ports = |name: &str, (first, last): Ports| match (first, last) {
            ANY_PORT => None,
            _ if first == last => Some(format!("{name} {first}")),
            _ => Some(format!("{name} {first}-{last}")),
        };
        words.extend(ports("source port", self.sport));
        words.extend(ports("port", self.dport));
        words.extend(self.dscp.map(|dscp| format!("DSCP {dscp}")));
        if words.is_empty() {
            f.write_str("all flows")
        } else {
            f.write_str(&words.join(", "))
        }
    }
}

fn both<T>(a: Option<T>, b: Option<T>, join: impl Fn(T, T) -> Option<T>) -> Option<Option<T>> {
    match (a, b) {
        (Some(a), Some(b)) => join(a, b).map(Some),
        (a, b) => Some(a.or(b)),
    }
}

fn overlap(a: Ports, b: Ports) -> Option<Ports> {
    let range = (a.0.max(b.0), a.1.min(b.1));
    (range.0 <= range.1).then_some(range)
}

/// Why flows have no entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlowsError {
    /// Every combination has a source and a destination of different versions of IP.
    NoPacket,
    /// More entries than [`MAX_ENTRIES`].
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

fn options<T: Copy>(list: &[T]) -> Vec<Option<T>> {
    if list.is_empty() {
        vec![None]
    } else {
        list.iter().copied().map(Some).collect()
    }
}

impl Flows {
    /// The entries that match these flows, sorted, without duplicates.
    ///
    /// # Errors
    /// No packet can match, or there are more than [`MAX_ENTRIES`].
    pub fn entries(&self, both_directions: bool) -> Result<Vec<FlowKey>, FlowsError> {
        let len = |n: usize| n.max(1);
        let addresses = len(self.src.len()).saturating_mul(len(self.dst.len()));
        let others = [
            self.sport.len(),
            self.dport.len(),
            self.proto.len(),
            self.dscp.len(),
        ];
        let count = others
            .iter()
            .fold(addresses, |product, n| product.saturating_mul(len(*n)));
        let count = count.saturating_mul(1 + usize::from(both_directions));
        if count > MAX_ENTRIES {
            return Err(FlowsError::TooMany(count));
        }
        let mut entries = vec![FlowKey::default()];
        let mut multiply = |set: &dyn Fn(&mut FlowKey, usize), n: usize| {
            let each = |entry: FlowKey| {
                (0..n).map(move |i| {
                    let mut entry = entry;
                    set(&mut entry, i);
                    entry
                })
            };
            entries = std::mem::take(&mut entries).into_iter().flat_map(each).collect();
        };
        let (src, dst, proto, dscp) = (
            options(&self.src),
            options(&self.dst),
            options(&self.proto),
            options(&self.dscp),
        );
        let (sport, dport) = (options(&self.sport), options(&self.dport));
        multiply(&|entry, i| entry.src = src[i], src.len());
        multiply(&|entry, i| entry.dst = dst[i], dst.len());
        multiply(
            &|entry, i| entry.sport = sport[i].unwrap_or(ANY_PORT),
            sport.len(),
        );
        multiply(
            &|entry, i| entry.dport = dport[i].unwrap_or(ANY_PORT),
            dport.len(),
        );
        multiply(&|entry, i| entry.proto = proto[i], proto.len());
        multiply(&|entry, i| entry.dscp = dscp[i], dscp.len());
        entries.retain(|entry| !entry.mixes_families());
        if both_directions {
            let reversed: Vec<_> = entries.iter().map(FlowKey::reversed).collect();
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
            let mut key = || FlowKey {
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
