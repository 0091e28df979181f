//! Groups the pending postcards of a flow by packet: finds duplicates, loops, and the postcards of packets in close succession.

use super::MatchedBy;
use super::order::{entry, exit, has_equal};
use crate::state::pending::Postcard;

/// Moves duplicates to the end, and returns their number. `postcards` are sorted by timestamp.
pub(super) fn move_duplicates(postcards: &mut [Postcard]) -> usize {
    let mut distinct = 0;
    for index in 0..postcards.len() {
        let earlier = postcards[..distinct]
            .iter()
            .rev()
            .take_while(|postcard| postcard.ingress == postcards[index].ingress);
        if !earlier
            .into_iter()
            .any(|postcard| postcard.repeats(&postcards[index]))
        {
            postcards.swap(distinct, index);
            distinct += 1;
        }
    }
    postcards.len() - distinct
}

/// Returns true if a node has two postcards with the same hop limit: they are from several packets, or from a loop of bridges.
pub(super) fn is_ambiguous(postcards: &[Postcard]) -> bool {
    has_equal(postcards, |postcard| (postcard.reading.node, postcard.hop_limit))
}

/// Returns true if one packet went through a loop of bridges. `postcards` are sorted by timestamp. The conditions are:
/// - no other postcard has the first one's ingress interface, and no other has the last one's egress interface;
/// - all have the same hop limit, because bridges do not decrement it;
/// - whenever the packet entered a node again by the same interface, it came from the same node.
///
/// Several packets would repeat the first or the last postcard; if a postcard is lost, a node follows another one than before.
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
    postcards.windows(2).all(|pair| {
        let previous_node = pair[0].reading.node;
        let ingress = entry(&pair[1]);
        let is_also_entered_from_elsewhere = postcards
            .windows(2)
            .any(|other| entry(&other[1]) == ingress && other[0].reading.node != previous_node);
        previous_node != pair[1].reading.node && !is_also_entered_from_elsewhere
    })
}

/// The timestamps of the postcards that are matched by time.
#[derive(Clone, Copy)]
pub(super) struct Timestamps {
    /// Timestamp from which the others are counted.
    pub(super) base: u64,
    /// All timestamps have 64 bits.
    pub(super) wide: bool,
}

/// Sorts postcards by match, packet and time. Returns the timestamps of those matched by time.
pub(super) fn sort(postcards: &mut [Postcard], is_linked: bool) -> Timestamps {
    let mut timed = postcards
        .iter()
        .filter(|postcard| MatchedBy::of_one(postcard, is_linked) == MatchedBy::Time);
    let base = timed.clone().next().map_or(0, |postcard| postcard.ingress);
    let wide = timed.all(|postcard| postcard.wide);
    postcards.sort_unstable_by_key(|postcard| match MatchedBy::of_one(postcard, is_linked) {
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
    Timestamps { base, wide }
}

/// Marks the postcards, which are sorted, whose signature belongs to several packets that timestamps can distinguish. Returns
/// true if there are any.
pub(super) fn mark_shared(postcards: &mut [Postcard], is_linked: bool) -> bool {
    let mut has_shared = false;
    let sets = postcards.chunk_by_mut(|previous, next| {
        MatchedBy::of_one(previous, is_linked) == MatchedBy::of_one(next, is_linked)
            && previous.signature == next.signature
    });
    for set in sets {
        let is_by_signature = MatchedBy::of_one(&set[0], is_linked) == MatchedBy::Signature;
        if is_by_signature && set.iter().all(Postcard::has_time) && is_ambiguous(set) {
            set.iter_mut().for_each(|postcard| postcard.shared = true);
            has_shared = true;
        }
    }
    has_shared
}

/// Sorts the postcards of several packets by packet, and returns the number of nodes per packet, or `None` if the packets
/// cannot be distinguished. `sorted` has the same postcards.
pub(super) fn sort_by_packet(postcards: &mut [Postcard], sorted: &mut [Postcard]) -> Option<usize> {
    let base = postcards.first()?.ingress;
    let wide = postcards.iter().all(|postcard| postcard.wide);
    sorted.sort_unstable_by_key(|postcard| {
        (
            postcard.reading.node,
            Postcard::after(postcard.ingress, base, wide),
        )
    });
    let packets = sorted
        .iter()
        .take_while(|postcard| postcard.reading.node == sorted[0].reading.node)
        .count();
    let mut runs = sorted.chunk_by(|previous, next| previous.reading.node == next.reading.node);
    if !runs.all(|run| run.len() == packets) {
        return None;
    }
    let nodes = sorted.len() / packets;
    for (index, postcard) in postcards.iter_mut().enumerate() {
        *postcard = sorted[index % nodes * packets + index / nodes];
    }
    for packet in postcards.chunks_mut(nodes) {
        packet.sort_unstable_by_key(|postcard| Postcard::after(postcard.ingress, base, wide));
    }
    // No other assignment is possible if a packet leaves each node only after the previous packet has entered the next node.
    let is_distinct = postcards.windows(nodes + 1).enumerate().all(|(index, window)| {
        let earlier = &window[0];
        let later = &window[nodes];
        let is_same_node = earlier.reading.node == later.reading.node;
        let is_last = index % nodes + 1 == nodes;
        let entered = Postcard::after(window[1].ingress, base, wide);
        is_same_node && (is_last || entered < Postcard::after(later.egress, base, wide))
    });
    is_distinct.then_some(nodes)
}

/// Returns true if all postcards of each node have the same interfaces and hop limit, so that all packets took one path.
pub(super) fn agree_on_path(postcards: &[Postcard]) -> bool {
    let mut rest = postcards;
    while let [postcard, others @ ..] = rest {
        let next = others
            .iter()
            .find(|other| other.reading.node == postcard.reading.node);
        let has_same_path = next.is_none_or(|next| {
            next.reading.link == postcard.reading.link
                && next.reading.level_2 == postcard.reading.level_2
                && next.hop_limit == postcard.hop_limit
        });
        if !has_same_path {
            return false;
        }
        rest = others;
    }
    true
}
