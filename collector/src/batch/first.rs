//! Encoding of a flow's first values in a batch, as words after the nodes of its new path:
//!
//! ```text
//! path nodes … | latency, low | latency, high | basis | latency of hop 1, hop 2, …
//! ```

use detect::Metric;

use crate::event::{Basis, Event, FirstValues, Kind};

/// Null value: of a hop latency, or of both words of the flow latency.
pub(super) const NOTHING: u32 = u32::MAX;

/// Words before the hop latencies: flow latency (two) and its basis.
const HEAD: usize = 3;

/// Returns the number of path nodes, or `None` if this is not the event of a new path.
fn nodes(event: &Event) -> Option<usize> {
    let is_new_path = event.kind == Kind::New && event.metric == Some(Metric::FlowPath);
    event
        .value
        .filter(|_| is_new_path)
        .and_then(|nodes| usize::try_from(nodes).ok())
}

/// Returns the number of words to add for first values: 0 if `path` already has them, or the event cannot have any.
pub(super) fn words(event: &Event, path: &[u32]) -> usize {
    nodes(event)
        .filter(|nodes| *nodes == path.len() && *nodes > 0)
        .map_or(0, |nodes| HEAD + nodes)
}

/// Splits the words into (path, first values).
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

/// Writes the value of `event` after the path of `new`. Returns false if it does not belong there.
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
    // A node that the path visits twice has a latency at each position.
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
