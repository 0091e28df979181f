//! Puts the postcards of one packet in forwarding order, and proves that none is missing.
//!
//! The order comes from the packet's hop limit, which every router decrements; or else from the configured links; or else from
//! timestamps, if the profile states that clocks are synchronised. Timestamps give an order but prove nothing: a lost postcard
//! leaves no gap in them. [`prove`] decides whether a path is complete; an incomplete path is not used.

use crate::config::Link;
use crate::decode::ABSENT;
use crate::decode::clock::{Difference, difference};
use crate::event::Basis;
use crate::state::pending::Postcard;
use crate::stats::Partial;

/// The configured links, sorted by each end.
#[derive(Clone, Default, Debug)]
pub(crate) struct Links {
    by_source: Vec<Link>,
    by_destination: Vec<Link>,
}

impl Links {
    pub(crate) fn new(links: &[Link]) -> Self {
        let mut by_source = links.to_vec();
        by_source.sort_unstable();
        by_source.dedup();
        let mut by_destination = by_source.clone();
        by_destination.sort_unstable_by_key(|link| link.to);
        Self {
            by_source,
            by_destination,
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.by_source.is_empty()
    }

    /// Returns (node, interface) at the other end of the postcard's egress link.
    fn successor(&self, postcard: &Postcard) -> Option<(u32, u32)> {
        let egress = exit(postcard)?;
        let index = self
            .by_source
            .binary_search_by_key(&egress, |link| link.from)
            .ok()?;
        self.by_source.get(index).map(|link| link.to)
    }

    /// Returns (node, interface) at the other end of the postcard's ingress link.
    fn predecessor(&self, postcard: &Postcard) -> Option<(u32, u32)> {
        let index = self
            .by_destination
            .binary_search_by_key(&entry(postcard)?, |link| link.to)
            .ok()?;
        self.by_destination.get(index).map(|link| link.from)
    }

    /// Returns whether a link connects `previous` to `next`; `None` if unknown.
    fn connects(&self, previous: &Postcard, next: &Postcard) -> Option<bool> {
        if let Some(to) = self.successor(previous) {
            return Some(entry(next).map_or(next.reading.node == to.0, |ingress| ingress == to));
        }
        let from = self.predecessor(next)?;
        let egress = exit(previous);
        // `previous` left by a port without a link, or its egress interface is unknown.
        Some(egress.is_none() && previous.reading.node == from.0)
    }

    /// Returns whether the packet entered the domain here; `None` if unknown.
    pub(crate) fn is_first(&self, postcard: &Postcard) -> Option<bool> {
        if self.predecessor(postcard).is_some() {
            return Some(false);
        }
        let is_from_outside = !self.is_empty() && entry(postcard).is_some();
        (postcard.entered || is_from_outside).then_some(true)
    }

    /// Returns whether the packet left the domain here, or is dropped by the next router; `None` if unknown.
    pub(crate) fn is_last(&self, postcard: &Postcard) -> Option<bool> {
        // The next router drops the packet, because its hop limit is used up.
        if postcard.hop_limit.is_some_and(|limit| limit <= 1) {
            return Some(true);
        }
        if self.successor(postcard).is_some() {
            return Some(false);
        }
        self.leaves(postcard).then_some(true)
    }

    /// Returns true if the packet went no further only because its hop limit was used up, so other packets may have a longer
    /// path.
    pub(crate) fn expires(&self, postcard: &Postcard) -> bool {
        postcard.hop_limit.is_some_and(|limit| limit <= 1) && !self.leaves(postcard)
    }

    /// Returns true if the packet left the domain here.
    fn leaves(&self, postcard: &Postcard) -> bool {
        let is_to_outside = !self.is_empty() && exit(postcard).is_some();
        self.successor(postcard).is_none() && (postcard.left || is_to_outside)
    }
}

/// Returns the node and its ingress interface, or `None` if the interface is unknown.
pub(crate) fn entry(postcard: &Postcard) -> Option<(u32, u32)> {
    let ingress = postcard.reading.link >> 16;
    (!postcard.reading.level_2 && ingress != 0xffff).then_some((postcard.reading.node, ingress))
}

/// Returns the node and its egress interface, or `None` if the interface is unknown.
pub(crate) fn exit(postcard: &Postcard) -> Option<(u32, u32)> {
    let egress = postcard.reading.egress();
    (egress != ABSENT).then_some((postcard.reading.node, egress))
}

impl Postcard {
    /// Returns the time from `base` to `stamp` in the device's unit, modulo 2^32 unless `wide`.
    pub(crate) fn after(stamp: u64, base: u64, wide: bool) -> i64 {
        if wide {
            stamp.wrapping_sub(base).cast_signed()
        } else {
            i64::from((stamp as u32).wrapping_sub(base as u32).cast_signed())
        }
    }

    fn leaves_before(&self, next: &Self) -> bool {
        let wide = self.wide && next.wide;
        matches!(difference(self.egress, next.ingress, wide), Difference::Later(_))
    }
}

/// Puts the postcards of one packet in forwarding order, proves that none is missing, and returns the basis of the order.
///
/// # Errors
/// Returns the reason if there is no order, or a node may be missing.
pub(crate) fn arrange(postcards: &mut [Postcard], links: &Links) -> Result<Basis, Partial> {
    let basis = if sort_by_hop_limit(postcards) {
        Basis::HopLimit
    } else if !links.is_empty() && has_distinct_nodes(postcards) {
        sort_by_links(postcards, links)?;
        Basis::Topology
    } else if has_stamps(postcards) {
        sort_by_stamps(postcards);
        Basis::Timestamps
    } else {
        return Err(Partial::NoOrder);
    };
    // A packet leaves a node before it enters the next one.
    if has_stamps(postcards) && !postcards.windows(2).all(|pair| pair[0].leaves_before(&pair[1])) {
        return Err(Partial::Contradiction);
    }
    prove(postcards, links)?;
    Ok(basis)
}

/// Proves that the packet passed these nodes and no others: each step is one link or decrements the hop limit by one, and the
/// packet entered at the first node and left at the last, but at no node between. Otherwise the postcards may be of several
/// packets that look alike, whose hop limits differ by the length of their path.
fn prove(postcards: &[Postcard], links: &Links) -> Result<(), Partial> {
    for pair in postcards.windows(2) {
        let [previous, next] = pair else { continue };
        if links.leaves(previous) || links.is_first(next) == Some(true) {
            return Err(Partial::Contradiction);
        }
        let is_next = match (previous.hop_limit, next.hop_limit) {
            (Some(previous), Some(next)) => match previous.checked_sub(next) {
                Some(steps @ (0 | 1)) => steps == 1,
                Some(_) => return Err(Partial::MissingHop),
                None => return Err(Partial::Contradiction),
            },
            _ => false,
        };
        match links.connects(previous, next) {
            Some(true) => {}
            Some(false) => return Err(Partial::MissingHop),
            None if is_next => {}
            None => return Err(Partial::Unproven),
        }
    }
    let (Some(first), Some(last)) = (postcards.first(), postcards.last()) else {
        return Err(Partial::NoOrder);
    };
    let ends = [links.is_first(first), links.is_last(last)];
    if ends.contains(&Some(false)) {
        Err(Partial::MissingHop)
    } else if ends.contains(&None) {
        Err(Partial::Unproven)
    } else {
        Ok(())
    }
}

fn has_stamps(postcards: &[Postcard]) -> bool {
    postcards.iter().all(Postcard::has_time)
}

fn sort_by_stamps(postcards: &mut [Postcard]) {
    let wide = postcards.iter().all(|postcard| postcard.wide);
    let base = postcards.first().map_or(0, |postcard| postcard.ingress);
    postcards.sort_unstable_by_key(|postcard| Postcard::after(postcard.ingress, base, wide));
}

/// Sorts by hop limit, highest first. Returns `false` if one has no hop limit, or two are equal, as after a bridge.
fn sort_by_hop_limit(postcards: &mut [Postcard]) -> bool {
    if postcards.iter().any(|postcard| postcard.hop_limit.is_none()) {
        return false;
    }
    postcards.sort_unstable_by_key(|postcard| std::cmp::Reverse(postcard.hop_limit));
    postcards
        .windows(2)
        .all(|pair| pair[0].hop_limit != pair[1].hop_limit)
}

/// Sorts along the links, from the postcard without a predecessor.
fn sort_by_links(postcards: &mut [Postcard], links: &Links) -> Result<(), Partial> {
    for index in 0..postcards.len() {
        let (sorted, remaining) = postcards.split_at(index);
        let next = match sorted.last() {
            None => remaining
                .iter()
                .position(|postcard| links.predecessor(postcard).is_none()),
            Some(last) => remaining
                .iter()
                .position(|postcard| links.connects(last, postcard) == Some(true)),
        };
        postcards.swap(index, index + next.ok_or(Partial::MissingHop)?);
    }
    Ok(())
}

pub(super) fn has_distinct_nodes(postcards: &[Postcard]) -> bool {
    !has_equal(postcards, |postcard| postcard.reading.node)
}

pub(super) fn has_equal<T: PartialEq>(postcards: &[Postcard], value: impl Fn(&Postcard) -> T) -> bool {
    let mut rest = postcards;
    while let [postcard, others @ ..] = rest {
        if others.iter().any(|other| value(other) == value(postcard)) {
            return true;
        }
        rest = others;
    }
    false
}
