//! Flow ids and pagination cursors (`RANK-ID`, both hexadecimal) as text in URLs, for lists of flows and events.

use collector::FlowRank;
use store::EventRank;

/// Regular expression that cursors match.
pub(super) const PATTERN: &str = "^[0-9a-f]{1,16}-[0-9a-f]{1,16}$";

/// Formats the rank of a flow as the cursor for `next` and `after`.
pub(super) fn format_cursor(FlowRank(value, id): FlowRank) -> String {
    format!("{value:x}-{id:016x}")
}

/// Parses a cursor of [`format_cursor`]; `None` if it is invalid.
pub(super) fn parse_cursor(text: &str) -> Option<FlowRank> {
    let (value, id) = text.split_once('-')?;
    Some(FlowRank(parse_id(value)?, parse_id(id)?))
}

/// Formats the rank of an event as the cursor for `next` and `after`.
pub(super) fn event_cursor(EventRank { ts, id }: EventRank) -> String {
    format_cursor(FlowRank(ts, id))
}

/// Parses a cursor of events; `None` if it is invalid.
pub(super) fn parse_event_cursor(text: &str) -> Option<EventRank> {
    parse_cursor(text).map(|FlowRank(ts, id)| EventRank { ts, id })
}

/// Parses an id of 1 to 16 hexadecimal digits; `None` if it is invalid.
pub(super) fn parse_id(text: &str) -> Option<u64> {
    // `from_str_radix` also accepts a sign.
    let is_id = (1..=16).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_id.then(|| u64::from_str_radix(text, 16).ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_is_parsed_as_it_was_formatted() {
        for rank in [FlowRank(0, 0), FlowRank(u64::MAX, u64::MAX), FlowRank(17, 4)] {
            assert_eq!(parse_cursor(&format_cursor(rank)), Some(rank));
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
