//! The postcards of one packet in forwarding order, or why there is none.
//!
//! By timestamps if the profile declares synchronised clocks; else by the packet's hop limit, which every router lowers; else
//! by the links that the configuration names. In each case, hop limits and links that are known must agree with
//! it: a hop limit that falls by two means a node whose postcard is missing.

use crate::config::Link;
use crate::decode::clock::{Difference, difference};
use crate::decode::egress;
use crate::event::Basis;
use crate::state::pending::Postcard;
use crate::stats::Partial;

/// The links that are known, both ways round.
#[derive(Clone, Default, Debug)]
pub(crate) struct Links {
    leaving: Vec<Link>,
    entering: Vec<Link>,
}

impl Links {
    pub(crate) fn new(links: &[Link]) -> Self {
        let mut leaving = links.to_vec();
        leaving.sort_unstable();
        leaving.dedup();
        let mut entering = leaving.clone();
        entering.sort_unstable_by_key(|link| link.to);
        Self { leaving, entering }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.leaving.is_empty()
    }

    /// Where the way out of a postcard's node leads.
    fn behind(&self, postcard: &Postcard) -> Option<(u32, u32)> {
        let out = (postcard.reading.node, egress(postcard.reading.link, postcard.reading.level_2));
        let at = self.leaving.binary_search_by_key(&out, |link| link.from).ok()?;
        self.leaving.get(at).map(|link| link.to)
    }

    /// Where the way into a postcard's node comes from.
    fn before(&self, postcard: &Postcard) -> Option<(u32, u32)> {
        let at = self.entering.binary_search_by_key(&way_in(postcard)?, |link| link.to).ok()?;
        self.entering.get(at).map(|link| link.from)
    }

    /// Does the way out of `one` lead into `next`? `None`: not known.
    fn leads(&self, one: &Postcard, next: &Postcard) -> Option<bool> {
        self.behind(one).map(|to| way_in(next) == Some(to))
    }
}

/// The node and the interface by which the packet came into it; `None`: not known.
pub(crate) fn way_in(postcard: &Postcard) -> Option<(u32, u32)> {
    let ingress = postcard.reading.link >> 16;
    (!postcard.reading.level_2 && ingress != 0xffff).then_some((postcard.reading.node, ingress))
}

impl Postcard {
    /// A stamp as the time after `base`, in the device's unit: modulo 2^32 where a postcard has 32 bits only.
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

/// Sorts the postcards of one packet in forwarding order; returns the basis of the order.
///
/// # Errors
/// Why there is no order, or which sign there is of a node that is missing.
pub(crate) fn arrange(postcards: &mut [Postcard], links: &Links) -> Result<Basis, Partial> {
    let basis = if postcards.iter().all(Postcard::has_time) {
        by_stamps(postcards)?
    } else if postcards.iter().all(|postcard| postcard.hop_limit.is_some()) && falls(postcards) {
        Basis::HopLimit
    } else if !links.is_empty() {
        by_links(postcards, links)?
    } else {
        return Err(Partial::NoOrder);
    };
    for pair in postcards.windows(2) {
        let [one, next] = pair else { continue };
        if let (Some(one), Some(next)) = (one.hop_limit, next.hop_limit) {
            match one.checked_sub(next) {
                Some(0 | 1) => {}
                Some(_) => return Err(Partial::MissingHop),
                None => return Err(Partial::Contradiction),
            }
        }
        if links.leads(one, next) == Some(false) {
            return Err(Partial::MissingHop);
        }
    }
    let open = |postcard: Option<&Postcard>, beyond: fn(&Links, &Postcard) -> Option<(u32, u32)>| {
        postcard.is_some_and(|postcard| beyond(links, postcard).is_some())
    };
    if !links.is_empty() && (open(postcards.first(), Links::before) || open(postcards.last(), Links::behind))
    {
        return Err(Partial::MissingHop);
    }
    Ok(basis)
}

fn by_stamps(postcards: &mut [Postcard]) -> Result<Basis, Partial> {
    let wide = postcards.iter().all(|postcard| postcard.wide);
    let base = postcards.first().map_or(0, |postcard| postcard.ingress);
    postcards.sort_unstable_by_key(|postcard| Postcard::after(postcard.ingress, base, wide));
    // A packet is in one node at a time.
    if postcards.windows(2).all(|pair| pair[0].leaves_before(&pair[1])) {
        Ok(Basis::Stamps)
    } else {
        Err(Partial::Contradiction)
    }
}

/// Sorts by hop limit, the highest first. `false`: two are equal, as behind a bridge.
fn falls(postcards: &mut [Postcard]) -> bool {
    postcards.sort_unstable_by_key(|postcard| std::cmp::Reverse(postcard.hop_limit));
    postcards.windows(2).all(|pair| pair[0].hop_limit != pair[1].hop_limit)
}

/// Follows the links from the postcard that none leads to.
fn by_links(postcards: &mut [Postcard], links: &Links) -> Result<Basis, Partial> {
    for at in 0..postcards.len() {
        let (done, left) = postcards.split_at(at);
        let next = match done.last() {
            None => left.iter().position(|postcard| links.before(postcard).is_none()),
            Some(last) => left.iter().position(|postcard| links.leads(last, postcard) == Some(true)),
        };
        postcards.swap(at, at + next.ok_or(Partial::MissingHop)?);
    }
    Ok(Basis::Topology)
}
