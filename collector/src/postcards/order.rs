//! The cards of one packet in forwarding order, or why there is none.
//!
//! By time stamps where the profile says that clocks agree; else by the packet's hop limit, which every router lowers; else
//! by the links that the configuration names. Whatever gave the order, hop limits and links that are known must agree with
//! it: a hop limit that falls by two means a node whose card is missing.

use super::Card;
use crate::clock::{Difference, difference};
use crate::config::Link;
use crate::event::Basis;
use crate::reading::{NO_VALUE, egress};
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

    /// Where the way out of a card's node leads.
    fn behind(&self, card: &Card) -> Option<(u32, u32)> {
        let out = (card.reading.node, egress(card.reading.link, card.reading.level_2));
        let at = self.leaving.binary_search_by_key(&out, |link| link.from).ok()?;
        self.leaving.get(at).map(|link| link.to)
    }

    /// Where the way into a card's node comes from.
    fn before(&self, card: &Card) -> Option<(u32, u32)> {
        let at = self.entering.binary_search_by_key(&way_in(card)?, |link| link.to).ok()?;
        self.entering.get(at).map(|link| link.from)
    }

    /// Does the way out of `one` lead into `next`? `None`: not known.
    fn leads(&self, one: &Card, next: &Card) -> Option<bool> {
        self.behind(one).map(|to| way_in(next) == Some(to))
    }
}

/// The node and the interface by which the packet came into it; `None`: not known.
pub(crate) fn way_in(card: &Card) -> Option<(u32, u32)> {
    let ingress = card.reading.link >> 16;
    (!card.reading.level_2 && ingress != 0xffff).then_some((card.reading.node, ingress))
}

impl Card {
    /// Can its stamps be compared with other nodes'?
    pub(crate) fn has_time(&self) -> bool {
        self.units.synchronised && self.ingress != NO_VALUE && self.egress != NO_VALUE
    }

    /// A stamp as the time after `base`, in the device's unit: modulo 2^32 where a card has 32 bits only.
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

/// Puts the cards of one packet in forwarding order and says by what.
///
/// # Errors
/// Why there is no order, or which sign there is of a node that is missing.
pub(crate) fn arrange(cards: &mut [Card], links: &Links) -> Result<Basis, Partial> {
    let basis = if cards.iter().all(Card::has_time) {
        by_stamps(cards)?
    } else if cards.iter().all(|card| card.hop_limit.is_some()) && falls(cards) {
        Basis::HopLimit
    } else if !links.is_empty() {
        by_links(cards, links)?
    } else {
        return Err(Partial::NoOrder);
    };
    for pair in cards.windows(2) {
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
    let open = |card: Option<&Card>, beyond: fn(&Links, &Card) -> Option<(u32, u32)>| {
        card.is_some_and(|card| beyond(links, card).is_some())
    };
    if !links.is_empty() && (open(cards.first(), Links::before) || open(cards.last(), Links::behind)) {
        return Err(Partial::MissingHop);
    }
    Ok(basis)
}

fn by_stamps(cards: &mut [Card]) -> Result<Basis, Partial> {
    let wide = cards.iter().all(|card| card.wide);
    let base = cards.first().map_or(0, |card| card.ingress);
    cards.sort_unstable_by_key(|card| Card::after(card.ingress, base, wide));
    // A packet is in one node at a time.
    if cards.windows(2).all(|pair| pair[0].leaves_before(&pair[1])) {
        Ok(Basis::Stamps)
    } else {
        Err(Partial::Contradiction)
    }
}

/// Sorts by hop limit, the highest first. `false`: two are equal, as behind a bridge.
fn falls(cards: &mut [Card]) -> bool {
    cards.sort_unstable_by_key(|card| std::cmp::Reverse(card.hop_limit));
    cards.windows(2).all(|pair| pair[0].hop_limit != pair[1].hop_limit)
}

/// Follows the links from the card that none leads to.
fn by_links(cards: &mut [Card], links: &Links) -> Result<Basis, Partial> {
    for at in 0..cards.len() {
        let (done, left) = cards.split_at(at);
        let next = match done.last() {
            None => left.iter().position(|card| links.before(card).is_none()),
            Some(last) => left.iter().position(|card| links.leads(last, card) == Some(true)),
        };
        cards.swap(at, at + next.ok_or(Partial::MissingHop)?);
    }
    Ok(Basis::Topology)
}
