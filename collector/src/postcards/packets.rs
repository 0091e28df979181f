//! Which of a flow's postcards belong to one packet.

use super::MatchedBy;
use super::order::{any_alike, way_in, way_out};
use crate::state::pending::Postcard;

/// Moves postcards that came twice to the end and returns how many. They lie in the order of their stamps.
pub(super) fn move_repeats(postcards: &mut [Postcard]) -> usize {
    let mut distinct = 0;
    for at in 0..postcards.len() {
        let again = postcards[..distinct]
            .iter()
            .rev()
            .take_while(|postcard| postcard.ingress == postcards[at].ingress);
        if !again.into_iter().any(|postcard| postcard.repeats(&postcards[at])) {
            postcards.swap(distinct, at);
            distinct += 1;
        }
    }
    postcards.len() - distinct
}

/// Did a node see the packet twice, with the same hop limit? Then they are several packets, or a loop of bridges.
pub(super) fn is_ambiguous(postcards: &[Postcard]) -> bool {
    any_alike(postcards, |postcard| (postcard.reading.node, postcard.hop_limit))
}

/// Did one packet go through a loop? `postcards` lie in the order of their stamps. It entered the first node once, from outside; and
/// wherever it came by again, by the same interface, it came from the same node; it left the last node once, and bridges lowered no hop
/// limit. Of several packets the first postcard has its like, or the last where they came by several ways, and where one of theirs was
/// lost, nodes seem to follow others than before.
pub(super) fn is_loop(postcards: &[Postcard]) -> bool {
    let Some((first, later)) = postcards.split_first() else { return false };
    let first_entry = way_in(first);
    if first_entry.is_none()
        || later.iter().any(|postcard| way_in(postcard).is_none() || way_in(postcard) == first_entry)
    {
        return false;
    }
    let Some((last, earlier)) = postcards.split_last() else { return false };
    if way_out(last).is_none() || earlier.iter().any(|postcard| way_out(postcard) == way_out(last)) {
        return false;
    }
    if later.iter().any(|postcard| postcard.hop_limit != first.hop_limit) {
        return false;
    }
    let step = |pair: &[Postcard]| (pair[0].reading.node, way_in(&pair[1]));
    postcards.windows(2).all(|pair| {
        let (from, into) = step(pair);
        let elsewhere = |(other, entry)| entry == into && other != from;
        from != pair[1].reading.node && !postcards.windows(2).map(step).any(elsewhere)
    })
}

/// Sorts postcards by match, packet and time. Returns the base of the stamps of those that are matched by time, and whether
/// all of them are wide.
pub(super) fn sort(postcards: &mut [Postcard], matched: impl Fn(&Postcard) -> MatchedBy) -> (u64, bool) {
    let timed = || postcards.iter().filter(|postcard| matched(postcard) == MatchedBy::Time);
    let base = timed().next().map_or(0, |postcard| postcard.ingress);
    let wide = timed().all(|postcard| postcard.wide);
    postcards.sort_unstable_by_key(|postcard| match matched(postcard) {
        by @ MatchedBy::Time => {
            (by as u8, 0, Postcard::after(postcard.ingress, base, wide), postcard.reading.node)
        }
        by => (by as u8, postcard.signature, postcard.received.cast_signed(), postcard.reading.node),
    });
    (base, wide)
}

/// Of sorted postcards, marks those whose signature several packets share and whose stamps distinguish them. `true`: there are some.
pub(super) fn mark_shared(postcards: &mut [Postcard], matched: impl Fn(&Postcard) -> MatchedBy) -> bool {
    let mut any = false;
    let alike =
        |one: &Postcard, next: &Postcard| matched(one) == matched(next) && one.signature == next.signature;
    for set in postcards.chunk_by_mut(alike) {
        if matched(&set[0]) == MatchedBy::Signature && set.iter().all(Postcard::has_time) && is_ambiguous(set)
        {
            set.iter_mut().for_each(|postcard| postcard.shared = true);
            any = true;
        }
    }
    any
}

/// Sorts the postcards of several packets by packet and returns how many nodes each packet passed. `None`: they cannot be
/// distinguished. `sorted` holds the same postcards.
pub(super) fn pair_up(postcards: &mut [Postcard], sorted: &mut [Postcard]) -> Option<usize> {
    let base = postcards.first()?.ingress;
    let wide = postcards.iter().all(|postcard| postcard.wide);
    let begins = |postcard: &Postcard| Postcard::after(postcard.ingress, base, wide);
    sorted.sort_unstable_by_key(|postcard| (postcard.reading.node, begins(postcard)));
    let packets =
        sorted.iter().take_while(|postcard| postcard.reading.node == sorted[0].reading.node).count();
    let mut runs = sorted.chunk_by(|one, next| one.reading.node == next.reading.node);
    if !runs.all(|run| run.len() == packets) {
        return None;
    }
    let nodes = sorted.len() / packets;
    for (at, postcard) in postcards.iter_mut().enumerate() {
        *postcard = sorted[at % nodes * packets + at / nodes];
    }
    postcards.chunks_mut(nodes).for_each(|packet| packet.sort_unstable_by_key(begins));
    // Each packet must leave a node after the one before it has come to the next: then no other pairs are possible.
    let ends = |postcard: &Postcard| Postcard::after(postcard.egress, base, wide);
    let distinct = postcards.windows(nodes + 1).enumerate().all(|(at, window)| {
        let (one, later) = (&window[0], &window[nodes]);
        let same = one.reading.node == later.reading.node;
        let is_last = at % nodes + 1 == nodes;
        same && (is_last || begins(&window[1]) < ends(later))
    });
    distinct.then_some(nodes)
}

/// Do all postcards of each node agree on how the flow passes it? Then packets that cannot be distinguished took one path.
pub(super) fn is_one_way(postcards: &[Postcard]) -> bool {
    let way = |postcard: &Postcard| (postcard.reading.link, postcard.reading.level_2, postcard.hop_limit);
    let mut rest = postcards;
    while let [postcard, others @ ..] = rest {
        let same_node = |other: &&Postcard| other.reading.node == postcard.reading.node;
        if others.iter().find(same_node).is_some_and(|other| way(other) != way(postcard)) {
            return false;
        }
        rest = others;
    }
    true
}
