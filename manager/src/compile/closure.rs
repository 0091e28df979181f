//! The entries of one table, closed under intersection: wherever two keys overlap, their intersection is an entry too.
//!
//! The closed set is maintained incrementally. A new key is intersected with each member once, and a removal checks only the
//! members inside the removed key. After many changes at once, the set is rebuilt from scratch.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use detect::Prefix;

use crate::flows::FlowMatch;

/// Keys of one table, each with the slots of the intents that requested it, and their closure.
#[derive(Clone, Debug, Default)]
pub(super) struct Closure {
    base: Entries,
    /// All intersections, or `None` until they are computed.
    closed: Option<Entries>,
}

/// Keys of a table, each with the slots of the intents that the entry serves.
pub(super) type Entries = BTreeMap<FlowMatch, BTreeSet<usize>>;

impl Closure {
    /// Adds a key of an intent, and updates the closed set if it is computed.
    pub(super) fn add(&mut self, key: FlowMatch, slot: usize) {
        self.base.entry(key).or_default().insert(slot);
        let Some(closed) = &mut self.closed else { return };
        // Several members can have the same intersection with `key`; their intents are merged.
        let mut new: Vec<(FlowMatch, BTreeSet<usize>)> = vec![(key, BTreeSet::from([slot]))];
        for (member, slots) in closed.iter_mut() {
            match member.intersection(&key) {
                Some(both) if both == *member => drop(slots.insert(slot)),
                Some(both) => new.push((both, slots.clone())),
                None => {}
            }
        }
        for (key, slots) in new {
            let serves = closed.entry(key).or_default();
            serves.extend(slots);
            serves.insert(slot);
        }
    }

    /// Removes one key of an intent. The caller removes all keys of that intent.
    pub(super) fn remove(&mut self, key: &FlowMatch, slot: usize) {
        let Some(slots) = self.base.get_mut(key) else {
            return;
        };
        slots.remove(&slot);
        let is_gone = slots.is_empty();
        if is_gone {
            self.base.remove(key);
        }
        let Self {
            base,
            closed: Some(closed),
        } = self
        else {
            return;
        };
        closed.retain(|member, slots| {
            let is_inside = member.intersection(key).as_ref() == Some(member);
            if is_inside {
                slots.remove(&slot);
            }
            !(is_inside && is_gone) || is_intersection(member, base)
        });
    }

    /// Returns whether the closed set is computed.
    pub(super) fn is_closed(&self) -> bool {
        self.closed.is_some()
    }

    /// Returns the slots of the intents that a member of the closed set serves, or `None` if the set is not computed.
    pub(super) fn slots(&self, key: &FlowMatch) -> Option<&BTreeSet<usize>> {
        self.closed.as_ref()?.get(key)
    }

    /// Discards the closed set, because rebuilding it is faster than maintaining it through many changes.
    pub(super) fn reopen(&mut self) {
        self.closed = None;
    }

    /// Computes the closed set unless it exists. A set of more than `room` members is discarded.
    pub(super) fn close(&mut self, room: usize) {
        if self.closed.is_none() && self.base.len() <= room {
            self.closed = Some(self.build(room));
        }
        if self.closed.as_ref().is_some_and(|closed| closed.len() > room) {
            self.closed = None;
        }
    }

    /// Returns all entries, each with the intents that it serves. A result longer than `room` may be incomplete.
    pub(super) fn entries(&self, room: usize) -> Cow<'_, Entries> {
        match &self.closed {
            Some(closed) => Cow::Borrowed(closed),
            None if self.base.len() > room => Cow::Borrowed(&self.base),
            None => Cow::Owned(self.build(room)),
        }
    }

    /// Computes the closure key by key. A set closed under intersection remains closed when a new key is added together with
    /// its intersections with all members.
    fn build(&self, limit: usize) -> Entries {
        let mut entries = Entries::new();
        // Index by the address that more keys specify, so that fewer candidates are compared.
        let with_src = self.base.keys().filter(|key| key.src.is_some()).count();
        let with_dst = self.base.keys().filter(|key| key.dst.is_some()).count();
        let by_src = with_src >= with_dst;
        let mut index = Index::new(if by_src { |key| key.src } else { |key| key.dst });
        for (key, slots) in &self.base {
            for other in index.overlapping(key) {
                let Some(both) = key.intersection(&other) else {
                    continue;
                };
                if both != *key && both != other && entries.insert(both, BTreeSet::new()).is_none() {
                    index.add(both);
                }
            }
            entries.entry(*key).or_default().extend(slots);
            index.add(*key);
            if entries.len() > limit {
                return entries;
            }
        }
        complete(&self.base, &mut entries, &index);
        entries
    }
}

/// Returns whether `member` is one of the keys, or the intersection of the keys that contain it.
fn is_intersection(member: &FlowMatch, base: &Entries) -> bool {
    if base.contains_key(member) {
        return true;
    }
    let containing = base
        .keys()
        .filter(|key| key.intersection(member).as_ref() == Some(member));
    let all = containing
        .copied()
        .reduce(|all, key| all.intersection(&key).unwrap_or(all));
    all.as_ref() == Some(member)
}

/// Adds to each entry the intents of all keys that contain it.
fn complete(base: &Entries, entries: &mut Entries, index: &Index) {
    for (key, slots) in entries.iter_mut() {
        for wider in index.overlapping(key) {
            if wider != *key
                && wider.intersection(key).as_ref() == Some(key)
                && let Some(more) = base.get(&wider)
            {
                slots.extend(more);
            }
        }
    }
}

/// Keys indexed by one of their prefixes. Most keys that cannot overlap are never compared.
struct Index {
    /// Returns the indexed prefix of a key, its source or its destination.
    field: fn(&FlowMatch) -> Option<Prefix>,
    /// Keys without that prefix, which can overlap any key.
    any: Vec<FlowMatch>,
    by_prefix: BTreeMap<Prefix, Vec<FlowMatch>>,
    /// Prefix lengths that occur, with `true` for IPv6.
    lengths: BTreeSet<(bool, u8)>,
}

impl Index {
    fn new(field: fn(&FlowMatch) -> Option<Prefix>) -> Self {
        Self {
            field,
            any: Vec::new(),
            by_prefix: BTreeMap::new(),
            lengths: BTreeSet::new(),
        }
    }

    fn add(&mut self, key: FlowMatch) {
        let Some(prefix) = (self.field)(&key) else {
            return self.any.push(key);
        };
        let list = self.by_prefix.entry(prefix).or_default();
        if !list.contains(&key) {
            list.push(key);
            self.lengths.insert((prefix.is_v6(), prefix.len()));
        }
    }

    /// Returns the keys that overlap `key`.
    fn overlapping(&self, key: &FlowMatch) -> Vec<FlowMatch> {
        let mut found: Vec<FlowMatch> = self.any.clone();
        match (self.field)(key) {
            None => found.extend(self.by_prefix.values().flatten()),
            Some(prefix) => {
                let wider = self
                    .lengths
                    .range((prefix.is_v6(), 0)..(prefix.is_v6(), prefix.len()));
                for (_, len) in wider {
                    let list = shortened(&prefix, *len).and_then(|wider| self.by_prefix.get(&wider));
                    found.extend(list.into_iter().flatten());
                }
                // Prefixes are ordered by network address: those inside `prefix` lie between its first and its last address.
                let inside = self.by_prefix.range(prefix..=Prefix::from(last_address(&prefix)));
                found.extend(inside.flat_map(|(_, list)| list));
            }
        }
        found.retain(|other| other.intersection(key).is_some());
        found
    }
}

fn shortened(prefix: &Prefix, len: u8) -> Option<Prefix> {
    let network = match prefix.network() {
        IpAddr::V4(ip) => IpAddr::V4(Ipv4Addr::from(
            u32::from(ip) & !u32::MAX.checked_shr(len.into()).unwrap_or(0),
        )),
        IpAddr::V6(ip) => IpAddr::V6(Ipv6Addr::from(
            u128::from(ip) & !u128::MAX.checked_shr(len.into()).unwrap_or(0),
        )),
    };
    Prefix::new(network, len).ok()
}

fn last_address(prefix: &Prefix) -> IpAddr {
    let len = u32::from(prefix.len());
    match prefix.network() {
        IpAddr::V4(ip) => IpAddr::V4(Ipv4Addr::from(
            u32::from(ip) | u32::MAX.checked_shr(len).unwrap_or(0),
        )),
        IpAddr::V6(ip) => IpAddr::V6(Ipv6Addr::from(
            u128::from(ip) | u128::MAX.checked_shr(len).unwrap_or(0),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use testkit::rng::Rng;

    fn key(rng: &mut Rng) -> FlowMatch {
        let mut prefix = || -> Option<Prefix> {
            let texts = [
                "",
                "10.0.0.0/8",
                "10.1.0.0/16",
                "10.1.2.0/24",
                "10.1.2.3",
                "fd00::/16",
                "fd00::1",
                "::/0",
            ];
            texts[rng.below(texts.len())].parse().ok()
        };
        let (src, dst) = (prefix(), prefix());
        let dport = [(0, u16::MAX), (80, 90), (85, 100), (443, 443)][rng.below(4)];
        FlowMatch {
            src,
            dst,
            dport,
            proto: [None, Some(6)][rng.below(2)],
            ..FlowMatch::default()
        }
    }

    /// The entries of the definition: all intersections of subsets, each with every intent that contains it.
    fn expected(base: &BTreeMap<FlowMatch, BTreeSet<usize>>) -> BTreeMap<FlowMatch, BTreeSet<usize>> {
        let mut keys: BTreeSet<FlowMatch> = base.keys().copied().collect();
        loop {
            let more: BTreeSet<FlowMatch> = keys
                .iter()
                .flat_map(|a| keys.iter().filter_map(|b| a.intersection(b)))
                .collect();
            if more.is_subset(&keys) {
                break;
            }
            keys.extend(more);
        }
        let serves = |key: &FlowMatch| {
            let containing = base
                .iter()
                .filter(|(wider, _)| wider.intersection(key).as_ref() == Some(key));
            containing.flat_map(|(_, slots)| slots.iter().copied()).collect()
        };
        keys.iter().map(|key| (*key, serves(key))).collect()
    }

    #[test]
    fn entries_are_all_intersections_with_the_intents_that_contain_them() {
        for seed in 0..300 {
            let mut rng = Rng(seed);
            let mut closure = Closure::default();
            for slot in 0..rng.below(9) {
                let key = key(&mut rng);
                if !key.mixes_families() {
                    closure.add(key, slot);
                }
            }
            assert_eq!(
                *closure.entries(usize::MAX),
                expected(&closure.base),
                "seed {seed}"
            );
        }
    }

    #[test]
    fn the_closed_set_follows_intents_that_come_and_go() {
        for seed in 0..300 {
            let mut rng = Rng(seed);
            let mut closure = Closure::default();
            closure.close(usize::MAX);
            let mut keys: BTreeMap<usize, Vec<FlowMatch>> = BTreeMap::new();
            for _ in 0..30 {
                let slot = rng.below(6);
                match keys.remove(&slot) {
                    Some(keys) => keys.iter().for_each(|key| closure.remove(key, slot)),
                    None => {
                        let list = (0..1 + rng.below(3)).map(|_| key(&mut rng));
                        let list: BTreeSet<_> = list.filter(|key| !key.mixes_families()).collect();
                        list.iter().for_each(|key| closure.add(*key, slot));
                        keys.insert(slot, list.into_iter().collect());
                    }
                }
                assert!(closure.closed.is_some());
                assert_eq!(
                    *closure.entries(usize::MAX),
                    expected(&closure.base),
                    "seed {seed}"
                );
            }
            closure.close(closure.entries(usize::MAX).len().saturating_sub(1));
            assert!(closure.closed.is_none() || closure.base.is_empty());
        }
    }

    #[test]
    fn what_is_removed_leaves_nothing() {
        let mut closure = Closure::default();
        closure.add(FlowMatch::default(), 1);
        closure.add(FlowMatch::default(), 2);
        closure.remove(&FlowMatch::default(), 1);
        assert_eq!(
            *closure.entries(usize::MAX),
            [(FlowMatch::default(), [2].into())].into()
        );
        closure.remove(&FlowMatch::default(), 2);
        assert!(closure.entries(usize::MAX).is_empty());
    }
}
