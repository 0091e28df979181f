//! First values of a flow, as words behind its path: the flow latency in two words, its basis, then the latency of each hop.

use detect::Metric;

use crate::event::{Basis, Event, FirstValues, Kind};

/// A word, or both words of the flow latency, without a value.
pub(super) const NOTHING: u32 = u32::MAX;

/// Words before the hop latencies.
const HEAD: usize = 3;

/// The number of nodes, if this is the event of a new path.
fn nodes(event: &Event) -> Option<usize> {
    let is_new_path = event.kind == Kind::New && event.metric == Some(Metric::FlowPath);
    event
        .value
        .filter(|_| is_new_path)
        .and_then(|nodes| usize::try_from(nodes).ok())
}

/// Words to add for first values: none if `path` already has them, or the event can have none.
pub(super) fn words(event: &Event, path: &[u32]) -> usize {
    nodes(event)
        .filter(|nodes| *nodes == path.len() && *nodes > 0)
        .map_or(0, |nodes| HEAD + nodes)
}

/// Separates first values from the path.
pub(super) fn split<'a>(event: &Event, words: &'a [u32]) -> (&'a [u32], Option<FirstValues<'a>>) {
    let all = (words, None);
    let Some((path, rest)) = nodes(event).and_then(|nodes| words.split_at_checked(nodes)) else {
        return all;
    };
    let Some(([low, high, basis], hop_latencies)) = rest.split_first_chunk::<HEAD>() else {
        return all;
    };
    let latency = u64::from(*high) << 32 | u64::from(*low);
    let values = FirstValues {
        flow_latency: Some(latency).filter(|latency| *latency != u64::MAX),
        basis: Basis::ALL.get(*basis as usize).copied().unwrap_or_default(),
        hop_latencies,
    };
    (path, Some(values).filter(|values| !values.is_empty()))
}

/// Writes the value of `event` behind the path of `new`. False: it has no place there.
pub(super) fn take(new: &Event, words: &mut [u32], event: &Event) -> bool {
    let parts = nodes(new).and_then(|nodes| words.split_at_mut_checked(nodes));
    let Some((path, rest)) = parts else { return false };
    let (Some((head, hops)), Some(value)) = (rest.split_first_chunk_mut::<HEAD>(), event.value) else {
        return false;
    };
    if event.metric == Some(Metric::FlowLatency) {
        let free = head[0] == NOTHING && head[1] == NOTHING && value != u64::MAX;
        if free {
            *head = [value as u32, (value >> 32) as u32, event.basis as u32];
        }
        return free;
    }
    // A node that the path visits twice has a latency at each of its places.
    let place = path
        .iter()
        .zip(hops)
        .find(|(node, hop)| event.node == Some(**node) && **hop == NOTHING);
    match (place, u32::try_from(value)) {
        (Some((_, hop)), Ok(value)) if value != NOTHING => {
            *hop = value;
            true
        }
        _ => false,
    }
}
