//! Learns links from the collector's flow paths: one node's egress interface is connected to the next one's ingress.
//!
//! Reports may be forged or outdated, so learned links only confirm or contradict other facts, or become suggestions.

use std::collections::{BTreeMap, BTreeSet};

use collector::{Collector, HopView};
use manager::device::{NodeId, PortId};

use super::clock::Now;
use runtime::monitor::CollectorMonitor;
use runtime::slice;

/// Interval between looks at the paths, ns.
const INTERVAL: u64 = 5_000_000_000;
/// Time without a flow after which a link is forgotten, ns.
const LIFETIME: u64 = 60_000_000_000;
/// Maximum number of links.
const MAX_LINKS: usize = 65_536;

/// The ends of a link, the lower one first.
pub(super) type LearnedLink = [(NodeId, PortId); 2];

/// The links learned so far.
#[derive(Debug, Default)]
pub(super) struct Learning {
    /// The links, and when they were last seen, ns, by the steady clock.
    seen: BTreeMap<LearnedLink, u64>,
    /// When to look again, likewise.
    next: u64,
}

impl Learning {
    /// Looks at flow paths at intervals. Returns all current links, or `None` if it is too early or the collector is busy.
    pub(super) async fn learn(
        &mut self,
        monitor: &impl CollectorMonitor,
        now: Now,
    ) -> Option<BTreeSet<LearnedLink>> {
        if now.steady < self.next {
            return None;
        }
        self.next = now.steady + INTERVAL;
        let mut learned = BTreeSet::new();
        let walked = monitor.walk(
            move |collector: &Collector, first: u32| {
                let mut part = BTreeSet::new();
                let next = slice::visit_flows(collector, first, |view| {
                    let recent = is_recent(view.row.last_seen, now);
                    if recent && !view.truncated && !view.looped && part.len() < MAX_LINKS {
                        part.extend(links(view.hops()));
                    }
                });
                (part, next)
            },
            |_, part: BTreeSet<LearnedLink>| {
                let room = MAX_LINKS.saturating_sub(learned.len());
                learned.extend(part.into_iter().take(room));
            },
        );
        // If the collector is too busy to answer, try again later.
        walked.await.ok()?;
        Some(self.update(&learned, now.steady))
    }

    /// Adds the links that flows use now, and expires old ones.
    fn update(&mut self, found: &BTreeSet<LearnedLink>, now: u64) -> BTreeSet<LearnedLink> {
        self.seen.retain(|_, seen| seen.saturating_add(LIFETIME) >= now);
        for link in found {
            if self.seen.len() < MAX_LINKS || self.seen.contains_key(link) {
                self.seen.insert(*link, now);
            }
        }
        unambiguous(self.seen.keys())
    }
}

/// Whether a flow has been reported lately, at `last_seen` by the clock of the collector: a time that is still to come is one before that
/// clock was set back.
fn is_recent(last_seen: u64, now: Now) -> bool {
    last_seen.abs_diff(now.wall) <= LIFETIME
}

/// Returns the links between consecutive hops with known interfaces.
fn links(hops: impl Iterator<Item = HopView>) -> Vec<LearnedLink> {
    let hops: Vec<HopView> = hops.collect();
    let links = hops.windows(2).filter_map(|pair| {
        let [from, to] = pair else { return None };
        let out = (from.node?, from.egress_if.filter(|port| *port != 0)?);
        let into = (to.node?, u32::from(to.ingress_if.filter(|port| *port != 0)?));
        (out.0 != into.0).then_some(if out < into { [out, into] } else { [into, out] })
    });
    links.collect()
}

/// Filters out links with an end that has several peers, because such a port is ambiguous.
fn unambiguous<'a>(links: impl Iterator<Item = &'a LearnedLink> + Clone) -> BTreeSet<LearnedLink> {
    let mut peers: BTreeMap<(NodeId, PortId), u32> = BTreeMap::new();
    for end in links.clone().flatten() {
        *peers.entry(*end).or_default() += 1;
    }
    links
        .filter(|link| link.iter().all(|end| peers[end] == 1))
        .copied()
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hop(node: u32, ingress: u16, egress: u32) -> HopView {
        HopView {
            node: Some(node),
            ingress_if: Some(ingress),
            egress_if: Some(egress),
            queue: None,
            hop_latency: None,
            implausible_latency: None,
            queue_occupancy: None,
            queue_congestion: None,
            link_utilization: None,
            queue_latest: None,
            link_latest: None,
        }
    }

    #[test]
    fn links_are_between_consecutive_hops_with_known_interfaces() {
        let path = [hop(13, 1, 2), hop(12, 1, 2), hop(11, 2, 1)];
        assert_eq!(links(path.into_iter()), [[(12, 1), (13, 2)], [(11, 2), (12, 2)]]);
        let unknown = HopView {
            node: None,
            ..hop(12, 1, 2)
        };
        assert!(links([hop(13, 1, 2), unknown, hop(11, 2, 1)].into_iter()).is_empty());
        let without = HopView {
            ingress_if: None,
            ..hop(12, 1, 2)
        };
        let path = [hop(13, 1, 2), without, hop(14, 3, 0), hop(11, 2, 1)];
        assert_eq!(links(path.into_iter()), [[(12, 2), (14, 3)]]);
    }

    #[test]
    fn a_flow_of_long_ago_teaches_nothing_after_the_clock_was_set_back() {
        let now = Now {
            steady: 0,
            wall: 10 * LIFETIME,
        };
        let recent = [9, 10, 11].map(|seen| is_recent(seen * LIFETIME, now));
        assert_eq!(recent, [true; 3]);
        assert!(!is_recent(9 * LIFETIME - 1, now) && !is_recent(20 * LIFETIME, now));
    }

    #[test]
    fn a_port_with_two_peers_teaches_nothing_and_links_expire() {
        let (a, b, c) = ([(1, 1), (2, 1)], [(1, 1), (3, 1)], [(2, 2), (3, 2)]);
        let mut learning = Learning::default();
        let found = |links: &[LearnedLink]| links.iter().copied().collect();
        assert_eq!(learning.update(&found(&[a, c]), 0), BTreeSet::from([a, c]));
        assert_eq!(learning.update(&found(&[b, c]), LIFETIME), BTreeSet::from([c]));
        assert_eq!(
            learning.update(&found(&[b]), LIFETIME + 1),
            BTreeSet::from([b, c])
        );
        assert_eq!(learning.update(&found(&[]), 2 * LIFETIME + 2), BTreeSet::new());
    }
}
