//! Access control of reports: the source prefixes that may send to each listener, and the node ids that each may claim.
//!
//! Reports are unauthenticated UDP datagrams: any host that reaches a listener can claim losses of any node. A listener with
//! [`Grant`]s accepts only datagrams from the senders in them; a listener without grants accepts every sender.
//!
//! A lookup is bounded and does not allocate: one binary search for each distinct prefix length, at most 161.

use std::collections::{BTreeMap, btree_map::Entry};
use std::net::IpAddr;

use detect::Prefix;
use wire::Refusal;

/// The IPv4-mapped addresses, `::ffff:0:0/96`.
const MAPPED: u128 = 0xffff_0000_0000;

/// A prefix of senders, and the nodes that they may claim.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Grant {
    /// The prefix that contains the senders' addresses.
    pub from: Prefix,
    /// Inclusive ranges of node ids; empty allows any node, and reports without a node id.
    pub nodes: Vec<(u32, u32)>,
}

/// The allowed senders of all listeners.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Access {
    /// Senders by listener number, `None` for an unrestricted listener; empty if no listener is restricted.
    listeners: Box<[Option<Senders>]>,
}

impl Access {
    /// Creates the access control from the grants of each listener, by its number; `None` lets every sender report there. If
    /// any listener is restricted, datagrams of listeners beyond the list are refused.
    pub fn new(listeners: impl IntoIterator<Item = Option<Vec<Grant>>>) -> Self {
        let all = listeners
            .into_iter()
            .map(|grants| grants.map(|grants| Senders::new(&grants)));
        let listeners: Vec<Option<Senders>> = all.collect();
        if listeners.iter().all(Option::is_none) {
            Self::default()
        } else {
            Self {
                listeners: listeners.into(),
            }
        }
    }

    /// Returns true if every sender may report to every listener.
    #[inline(always)]
    pub fn is_open(&self) -> bool {
        self.listeners.is_empty()
    }

    /// Checks whether `source` may send to `listener`. `node` reads the node id from the datagram's header; it is called only
    /// if the sender is restricted to some nodes.
    ///
    /// # Errors
    /// Returns the refusal if the sender or the node is not allowed, or the error of `node`.
    pub fn check(
        &self,
        listener: u16,
        source: &[u8; 16],
        node: impl FnOnce() -> Result<Option<u32>, Refusal>,
    ) -> Result<(), Refusal> {
        match self.listeners.get(usize::from(listener)) {
            Some(Some(senders)) => senders.check(source, node),
            Some(None) => Ok(()),
            None if self.is_open() => Ok(()),
            None => Err(Refusal::SenderNotAllowed),
        }
    }
}

/// The allowed senders of one listener.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Senders {
    /// One group per prefix length and address family.
    groups: Box<[Group]>,
}

/// The networks of one prefix length.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Group {
    mask: u128,
    v6: bool,
    /// The network addresses, sorted and without duplicates.
    networks: Box<[u128]>,
    /// The nodes of each network, in the order of `networks`.
    nodes: Box<[Nodes]>,
}

/// The node ranges of each network.
type Networks = BTreeMap<u128, Vec<(u32, u32)>>;

/// Sorted ranges that neither overlap nor touch; `None` allows any node.
type Nodes = Option<Box<[(u32, u32)]>>;

impl Senders {
    /// Creates the senders of these grants. Several grants of one prefix allow the union of their nodes.
    pub fn new(grants: &[Grant]) -> Self {
        let mut sorted: BTreeMap<(bool, u128), Networks> = BTreeMap::new();
        for Grant { from, nodes } in grants {
            let (network, mask) = bits(from);
            match sorted.entry((from.is_v6(), mask)).or_default().entry(network) {
                // One of the two allows any node.
                Entry::Occupied(mut ranges) if ranges.get().is_empty() || nodes.is_empty() => {
                    ranges.get_mut().clear()
                }
                Entry::Occupied(mut ranges) => ranges.get_mut().extend(nodes),
                Entry::Vacant(none) => {
                    none.insert(nodes.clone());
                }
            }
        }
        let groups = sorted.into_iter().map(|((v6, mask), networks)| Group {
            mask,
            v6,
            networks: networks.keys().copied().collect(),
            nodes: networks.values().map(|ranges| merged(ranges)).collect(),
        });
        Self {
            groups: groups.collect(),
        }
    }

    /// Creates senders from prefixes, each of which may claim any node; `None` (everyone may send) if there are no prefixes.
    pub fn of_prefixes(prefixes: &[Prefix]) -> Option<Self> {
        let grants: Vec<Grant> = prefixes
            .iter()
            .map(|from| Grant {
                from: *from,
                nodes: Vec::new(),
            })
            .collect();
        (!grants.is_empty()).then(|| Self::new(&grants))
    }

    /// Returns true if `source` is an allowed sender that may report without naming a node.
    pub fn contains(&self, source: IpAddr) -> bool {
        let source = match source {
            IpAddr::V4(address) => address.to_ipv6_mapped(),
            IpAddr::V6(address) => address,
        };
        self.check(&source.octets(), || Ok(None)).is_ok()
    }

    /// Checks whether `source` is an allowed sender, and may report as the node that `node` reads.
    ///
    /// # Errors
    /// See [`Access::check`].
    pub fn check(
        &self,
        source: &[u8; 16],
        node: impl FnOnce() -> Result<Option<u32>, Refusal>,
    ) -> Result<(), Refusal> {
        let source = u128::from_be_bytes(*source);
        let mut node = Some(node);
        let mut named = None;
        let mut refusal = Refusal::SenderNotAllowed;
        for group in &self.groups {
            let Some(nodes) = group.find(source) else { continue };
            let Some(ranges) = nodes else { return Ok(()) };
            if let Some(node) = node.take() {
                named = node()?;
            }
            if named.is_some_and(|node| contains(ranges, node)) {
                return Ok(());
            }
            refusal = Refusal::NodeNotAllowed;
        }
        Err(refusal)
    }
}

impl Group {
    fn find(&self, source: u128) -> Option<&Nodes> {
        // A short IPv6 prefix such as `::/0` would also contain the IPv4-mapped addresses.
        if self.v6 && source >> 32 == MAPPED >> 32 {
            return None;
        }
        let at = self.networks.binary_search(&(source & self.mask)).ok()?;
        self.nodes.get(at)
    }
}

fn contains(ranges: &[(u32, u32)], node: u32) -> bool {
    let after = ranges.partition_point(|(first, _)| *first <= node);
    after
        .checked_sub(1)
        .and_then(|at| ranges.get(at))
        .is_some_and(|(_, last)| node <= *last)
}

/// Sorts ranges, and merges those that overlap or touch; `None` for an empty list.
fn merged(ranges: &[(u32, u32)]) -> Nodes {
    let mut sorted = ranges.to_vec();
    sorted.sort_unstable();
    let mut merged: Vec<(u32, u32)> = Vec::with_capacity(sorted.len());
    for (first, last) in sorted {
        match merged.last_mut() {
            Some((_, end)) if first <= end.saturating_add(1) => *end = last.max(*end),
            _ => merged.push((first, last)),
        }
    }
    (!merged.is_empty()).then(|| merged.into())
}

/// Returns (network, mask), with IPv4 mapped into IPv6.
fn bits(prefix: &Prefix) -> (u128, u128) {
    let (network, length) = match prefix.network() {
        IpAddr::V4(v4) => (MAPPED | u128::from(u32::from(v4)), prefix.len() + 96),
        IpAddr::V6(v6) => (u128::from(v6), prefix.len()),
    };
    (
        network,
        u128::MAX.checked_shl(128 - u32::from(length)).unwrap_or(0),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grant(from: &str, nodes: &[(u32, u32)]) -> Grant {
        Grant {
            from: from.parse().unwrap(),
            nodes: nodes.to_vec(),
        }
    }

    fn octets(address: &str) -> [u8; 16] {
        match address.parse().unwrap() {
            IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
            IpAddr::V6(v6) => v6.octets(),
        }
    }

    #[test]
    fn a_sender_is_allowed_by_any_prefix_that_contains_it() {
        let access = Access::new([
            Some(vec![
                grant("10.0.0.0/8", &[(1, 20)]),
                grant("10.1.0.0/16", &[]),
                grant("2001:db8::/32", &[(7, 7)]),
            ]),
            None,
            Some(Vec::new()),
        ]);
        let (sender, named) = (Err(Refusal::SenderNotAllowed), Err(Refusal::NodeNotAllowed));
        let cases = [
            (0, "10.2.0.1", Some(20), Ok(())),
            (0, "10.2.0.1", Some(21), named),
            (0, "10.2.0.1", None, named),
            (0, "10.1.0.1", Some(21), Ok(())),
            (0, "10.1.0.1", None, Ok(())),
            (0, "11.0.0.1", Some(1), sender),
            (0, "2001:db8::1", Some(7), Ok(())),
            (0, "2001:db9::1", Some(7), sender),
            (0, "::ffff:10.1.0.1", Some(7), Ok(())),
            (1, "192.0.2.1", None, Ok(())),
            (2, "10.1.0.1", None, sender),
            // A listener that is not configured has no allowed senders.
            (3, "10.1.0.1", None, sender),
            (u16::MAX, "10.1.0.1", None, sender),
        ];
        for (listener, source, node, expected) in cases {
            let found = access.check(listener, &octets(source), || Ok(node));
            assert_eq!(found, expected, "{source} as {node:?} to {listener}");
        }
    }

    #[test]
    fn without_grants_everyone_may_report() {
        for access in [Access::default(), Access::new([None, None])] {
            assert!(access.is_open());
            assert_eq!(
                access.check(9, &octets("192.0.2.1"), || Err(Refusal::Truncated)),
                Ok(())
            );
        }
        assert!(!Access::new([None, Some(Vec::new())]).is_open());
    }

    #[test]
    fn all_of_one_family_is_not_all_of_the_other() {
        let v6 = Access::new([Some(vec![grant("::/0", &[])])]);
        let v4 = Access::new([Some(vec![grant("0.0.0.0/0", &[])])]);
        let allowed = |access: &Access, source: &str| access.check(0, &octets(source), || Ok(None)).is_ok();
        assert_eq!(
            [
                allowed(&v6, "2001:db8::1"),
                allowed(&v6, "10.0.0.1"),
                allowed(&v6, "::1")
            ],
            [true, false, true]
        );
        assert_eq!(
            [
                allowed(&v4, "2001:db8::1"),
                allowed(&v4, "10.0.0.1"),
                allowed(&v4, "::1")
            ],
            [false, true, false]
        );
    }

    #[test]
    fn grants_of_one_prefix_add_up() {
        let nodes = |grants: &[Grant]| -> Vec<u32> {
            let senders = Senders::new(grants);
            (0..30)
                .filter(|node| senders.check(&octets("10.0.0.1"), || Ok(Some(*node))).is_ok())
                .collect()
        };
        let some = [
            grant("10.0.0.0/8", &[(3, 5), (9, 9)]),
            grant("10.0.0.0/8", &[(4, 6), (7, 7)]),
        ];
        assert_eq!(nodes(&some), [3, 4, 5, 6, 7, 9]);
        let any = [
            grant("10.0.0.0/8", &[(3, 5)]),
            grant("10.0.0.0/8", &[]),
            grant("10.0.0.0/8", &[(9, 9)]),
        ];
        assert_eq!(nodes(&any).len(), 30);
        assert_eq!(
            nodes(&[grant("10.0.0.0/8", &[(28, u32::MAX), (0, 1)])]),
            [0, 1, 28, 29]
        );
    }

    #[test]
    fn a_sender_with_any_node_is_not_read_and_a_malformed_header_is_refused_by_its_reason() {
        let any = Senders::new(&[grant("10.0.0.0/8", &[])]);
        assert_eq!(any.check(&octets("10.0.0.1"), || panic!("read")), Ok(()));
        let some = Senders::new(&[grant("10.0.0.0/8", &[(1, 2)])]);
        assert_eq!(
            some.check(&octets("11.0.0.1"), || panic!("read")),
            Err(Refusal::SenderNotAllowed)
        );
        assert_eq!(
            some.check(&octets("10.0.0.1"), || Err(Refusal::Truncated)),
            Err(Refusal::Truncated)
        );
    }

    #[test]
    fn many_prefixes_of_every_length_are_found() {
        let mut grants = Vec::new();
        for length in 1..=32_u8 {
            let network = u32::MAX << (32 - length) & 0x5555_5555;
            grants.push(grant(
                &format!("{}/{length}", std::net::Ipv4Addr::from(network)),
                &[(length.into(), length.into())],
            ));
        }
        let senders = Senders::new(&grants);
        // The address is in all of the prefixes, and may claim the nodes of each.
        for node in 1..=32 {
            assert_eq!(
                senders.check(&octets("85.85.85.85"), || Ok(Some(node))),
                Ok(()),
                "{node}"
            );
        }
        assert_eq!(
            senders.check(&octets("85.85.85.85"), || Ok(Some(33))),
            Err(Refusal::NodeNotAllowed)
        );
        // Without its last bit the address is not in the longest prefix.
        assert_eq!(
            senders.check(&octets("85.85.85.84"), || Ok(Some(32))),
            Err(Refusal::NodeNotAllowed)
        );
    }
}
