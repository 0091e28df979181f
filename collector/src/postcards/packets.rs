//! Which of a flow's postcards belong to one packet.

use super::MatchedBy;
use super::order::{entry, exit, has_equal};
use crate::state::pending::Postcard;

/// Moves duplicates to the end and returns their number. `postcards` are sorted by timestamp.
pub(super) fn move_duplicates(postcards: &mut [Postcard]) -> usize {
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

/// Whether a node has two postcards with one hop limit: they are of several packets, or of a loop of bridges.
pub(super) fn is_ambiguous(postcards: &[Postcard]) -> bool {
    has_equal(postcards, |postcard| (postcard.reading.node, postcard.hop_limit))
}

/// Whether one packet went through a loop of bridges. `postcards` are sorted by timestamp. It did if
/// - no other postcard has the first one's ingress interface, and no other has the last one's egress interface;
/// - all have the same hop limit, because bridges do not decrement it;
/// - whenever it entered a node again by the same interface, it came from the same node.
///
/// Several packets repeat the first or the last postcard; if a postcard is lost, a node follows another one than before.
pub(super) fn is_loop(postcards: &[Postcard]) -> bool {
    let Some((first, later)) = postcards.split_first() else {
        return false;
    };
    let first_entry = entry(first);
    if first_entry.is_none()
        || later
            .iter()
            .any(|postcard| entry(postcard).is_none() || entry(postcard) == first_entry)
    {
        return false;
    }
    let Some((last, earlier)) = postcards.split_last() else {
        return false;
    };
    if exit(last).is_none() || earlier.iter().any(|postcard| exit(postcard) == exit(last)) {
        return false;
    }
    if later.iter().any(|postcard| postcard.hop_limit != first.hop_limit) {
        return false;
    }
    let step = |pair: &[Postcard]| (pair[0].reading.node, entry(&pair[1]));
    postcards.windows(2).all(|pair| {
        let (from, into) = step(pair);
        let elsewhere = |(other, entry)| entry == into && other != from;
        from != pair[1].reading.node && !postcards.windows(2).map(step).any(elsewhere)
    })
}

/// Sorts postcards by match, packet and time. Returns the base of the timestamps of those matched by time, and whether all of
/// these have 64 bits.
pub(super) fn sort(postcards: &mut [Postcard], matched: impl Fn(&Postcard) -> MatchedBy) -> (u64, bool) {
    let timed = || {
        postcards
            .iter()
            .filter(|postcard| matched(postcard) == MatchedBy::Time)
    };
    let base = timed().next().map_or(0, |postcard| postcard.ingress);
    let wide = timed().all(|postcard| postcard.wide);
    postcards.sort_unstable_by_key(|postcard| match matched(postcard) {
        by @ MatchedBy::Time => (
            by as u8,
            0,
            Postcard::after(postcard.ingress, base, wide),
            postcard.reading.node,
        ),
        by => (
            by as u8,
            postcard.signature,
            postcard.received.cast_signed(),
            postcard.reading.node,
        ),
    });
    (base, wide)
}

/// Marks those of sorted postcards whose signature belongs to several packets, which timestamps can distinguish. `true`: there are
/// some.
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
pub(super) fn sort_by_packet(postcards: &mut [Postcard], sorted: &mut [Postcard]) -> Option<usize> {
    let base = postcards.first()?.ingress;
    let wide = postcards.iter().all(|postcard| postcard.wide);
    let begins = |postcard: &Postcard| Postcard::after(postcard.ingress, base, wide);
    sorted.sort_unstable_by_key(|postcard| (postcard.reading.node, begins(postcard)));
    let packets = sorted
        .iter()
        .take_while(|postcard| postcard.reading.node == sorted[0].reading.node)
        .count();
    let mut runs = sorted.chunk_by(|one, next| one.reading.node == next.reading.node);
    if !runs.all(|run| run.len() == packets) {
        return None;
    }
    let nodes = sorted.len() / packets;
    for (at, postcard) in postcards.iter_mut().enumerate() {
        *postcard = sorted[at % nodes * packets + at / nodes];
    }
    postcards
        .chunks_mut(nodes)
        .for_each(|packet| packet.sort_unstable_by_key(begins));
    // A packet must leave each node after the previous packet has entered the next node: then no other assignment is possible.
    let ends = |postcard: &Postcard| Postcard::after(postcard.egress, base, wide);
    let distinct = postcards.windows(nodes + 1).enumerate().all(|(at, window)| {
        let (one, later) = (&window[0], &window[nodes]);
        let same = one.reading.node == later.reading.node;
        let is_last = at % nodes + 1 == nodes;
        same && (is_last || begins(&window[1]) < ends(later))
    });
    distinct.then_some(nodes)
}

/// Whether all postcards of each node have the same interfaces and hop limit: then all packets took one path.
pub(super) fn agree_on_path(postcards: &[Postcard]) -> bool {
    let passage = |postcard: &Postcard| {
        (
            postcard.reading.link,
            postcard.reading.level_2,
            postcard.hop_limit,
        )
    };
    let mut rest = postcards;
    while let [postcard, others @ ..] = rest {
        let same_node = |other: &&Postcard| other.reading.node == postcard.reading.node;
        if others
            .iter()
            .find(same_node)
            .is_some_and(|other| passage(other) != passage(postcard))
        {
            return false;
        }
        rest = others;
    }
    true
}
