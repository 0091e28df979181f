//! How flows and events are named in addresses: by their ids, and by their places in an order.

use collector::FlowRank;
use store::EventRank;

/// The regular expression of a cursor.
pub(super) const PATTERN: &str = "^[0-9a-f]{1,16}-[0-9a-f]{1,16}$";

/// The form of `next` and `after`.
pub(super) fn cursor(FlowRank(value, id): FlowRank) -> String {
    format!("{value:x}-{id:016x}")
}

/// Reads a text that [`cursor`] wrote.
pub(super) fn parse_cursor(text: &str) -> Option<FlowRank> {
    let (value, id) = text.split_once('-')?;
    Some(FlowRank(parse_id(value)?, parse_id(id)?))
}

/// The form of `next` and `after` of events.
pub(super) fn event_cursor(EventRank { ts, id }: EventRank) -> String {
    cursor(FlowRank(ts, id))
}

/// Reads a text that [`event_cursor`] wrote.
pub(super) fn parse_event_cursor(text: &str) -> Option<EventRank> {
    parse_cursor(text).map(|FlowRank(ts, id)| EventRank { ts, id })
}

/// An id as responses have it.
pub(super) fn parse_id(text: &str) -> Option<u64> {
    let is_id = (1..=16).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_id.then(|| u64::from_str_radix(text, 16).ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_reads_what_it_writes() {
        for rank in [FlowRank(0, 0), FlowRank(u64::MAX, u64::MAX), FlowRank(17, 4)] {
            assert_eq!(parse_cursor(&cursor(rank)), Some(rank));
            let FlowRank(ts, id) = rank;
            let event = EventRank { ts, id };
            assert_eq!(parse_event_cursor(&event_cursor(event)), Some(event));
        }
        for text in [
            "",
            "-",
            "1",
            "1-",
            "-1",
            "+1-1",
            "1-+1",
            "00000000000000001-1",
            "1-1-1",
            "g-1",
        ] {
            assert_eq!(parse_cursor(text), None, "{text}");
        }
    }
}
