//! The state of `hopwise top` and its changes by keys: time range, table, order, filter, selected row, and the pages to go
//! back to.

use super::{Order, View, screen::Key};

const SECOND: u64 = 1_000_000_000;
/// Length of a range of which only one end is given.
const DEFAULT_LENGTH: u64 = 900 * SECOND;
/// Minimum length of a range after zooming in.
const MIN_LENGTH: u64 = 60 * SECOND;
/// Rows per step of the page keys.
const PAGE_ROWS: usize = 20;
/// Maximum number of pages to go back to.
const MAX_BACK_PAGES: usize = 32;
/// Maximum length of a filter, bytes.
const MAX_FILTER_LEN: usize = 4_000;

/// Time range of the screen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Range {
    /// Live state, not from the store.
    Now,
    /// Last so many ns, from the store.
    Last(u64),
    /// From one time to another, ns since the epoch, from the store.
    Between(u64, u64),
}

/// One page of the screen: a table or a flow.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Page {
    pub(super) view: View,
    pub(super) order: Order,
    pub(super) filter: String,
    pub(super) selected: usize,
    /// Flow that the page shows hop by hop; `None` for a table.
    pub(super) flow: Option<FlowName>,
}

/// Identifiers of a flow in the API.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct FlowName {
    pub(super) id: String,
    /// Text of the flow key.
    pub(super) text: String,
}

/// Target of a table row, which Enter opens.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum Target {
    Flow(FlowName),
    Node(u32),
    Link(u32, u32),
}

/// State that keys change.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct State {
    pub(super) range: Range,
    pub(super) page: Page,
    /// Earlier pages, to which the back key returns.
    back_pages: Vec<Page>,
    /// Text of the filter while it is being typed.
    pub(super) filter_input: Option<String>,
}

/// Action that follows a key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Action {
    /// Redraw with the responses at hand.
    Draw,
    /// Request the data again, then redraw.
    Fetch,
    Quit,
}

impl Range {
    /// Creates a range from the options `--from` and `--to`.
    pub(super) fn new(from: Option<u64>, to: Option<u64>, now: u64) -> Result<Self, String> {
        match (from, to) {
            (None, None) => Ok(Self::Now),
            (Some(from), None) if from < now => Ok(Self::Last(now - from)),
            (Some(_), None) => Err("--from is not in the past".to_owned()),
            (None, Some(to)) => Ok(Self::Between(to.saturating_sub(DEFAULT_LENGTH), to)),
            (Some(from), Some(to)) if from < to => Ok(Self::Between(from, to)),
            (Some(_), Some(_)) => Err("--from must be before --to".to_owned()),
        }
    }

    /// Formats the range as URL parameters, each preceded by `&`; empty for the live state.
    pub(super) fn query(self, now: u64) -> String {
        match self {
            Self::Now => String::new(),
            Self::Last(length) => format!("&from={}", now.saturating_sub(length)),
            Self::Between(from, to) => format!("&from={from}&to={to}"),
        }
    }

    /// Returns whether the range ends now, so that its data changes.
    pub(super) fn is_live(self) -> bool {
        !matches!(self, Self::Between(..))
    }

    /// Returns (from, to) of the range, ns since 1970.
    fn limits(self, now: u64) -> (u64, u64) {
        match self {
            Self::Now => (now.saturating_sub(DEFAULT_LENGTH), now),
            Self::Last(length) => (now.saturating_sub(length), now),
            Self::Between(from, to) => (from, to),
        }
    }

    fn earlier(self, now: u64) -> Self {
        let (from, to) = self.limits(now);
        Self::Between(from.saturating_sub(to - from), from)
    }

    fn later(self, now: u64) -> Self {
        let (from, to) = self.limits(now);
        let length = to - from;
        match to.saturating_add(length) {
            // A range that would reach into the future ends now instead.
            end if end >= now && length == DEFAULT_LENGTH => Self::Now,
            end if end >= now => Self::Last(length),
            end => Self::Between(to, end),
        }
    }

    /// Returns a range of twice or half the length around the same middle. A range that ends now still does.
    fn zoomed(self, now: u64, is_longer: bool) -> Self {
        let (from, to) = self.limits(now);
        let length = to - from;
        let new_length = if is_longer {
            length.saturating_mul(2)
        } else {
            (length / 2).max(MIN_LENGTH)
        };
        if self.is_live() {
            return Self::Last(new_length);
        }
        let middle = from + length / 2;
        let end = (middle.saturating_add(new_length / 2)).min(now);
        Self::Between(end.saturating_sub(new_length), end)
    }
}

impl State {
    pub(super) fn new(range: Range, view: View, order: Order, filter: &str) -> Self {
        let page = Page {
            view,
            order,
            filter: filter.to_owned(),
            selected: 0,
            flow: None,
        };
        Self {
            range,
            page,
            back_pages: Vec::new(),
            filter_input: None,
        }
    }

    /// Handles a key. `rows` are the targets of the table's rows.
    pub(super) fn press(&mut self, key: Key, rows: &[Target], now: u64) -> Action {
        if self.filter_input.is_some() {
            return self.edit_filter(key);
        }
        let last = rows.len().saturating_sub(1);
        match key {
            Key::Char('q' | 'Q' | '\u{3}' | '\u{4}') => return Action::Quit,
            Key::Up | Key::Char('k') => self.select(self.page.selected.saturating_sub(1)),
            Key::Down | Key::Char('j') => self.select((self.page.selected + 1).min(last)),
            Key::PageUp => self.select(self.page.selected.saturating_sub(PAGE_ROWS)),
            Key::PageDown => self.select((self.page.selected + PAGE_ROWS).min(last)),
            Key::Home => self.select(0),
            Key::End => self.select(last),
            Key::Enter | Key::Right => {
                // The table may have become shorter since the row was selected.
                let selected = rows.get(self.page.selected.min(last));
                let Some(target) = selected.filter(|_| self.page.flow.is_none()) else {
                    return Action::Draw;
                };
                self.enter(target.clone());
                return Action::Fetch;
            }
            Key::Escape | Key::Backspace | Key::Left => {
                let Some(previous) = self.back_pages.pop() else {
                    return Action::Draw;
                };
                self.page = previous;
                return Action::Fetch;
            }
            Key::Char('/') => self.filter_input = Some(self.page.filter.clone()),
            Key::Char(other) => return self.press_letter(other, now),
        }
        Action::Draw
    }

    /// Handles a letter: `f`, `n`, `l` select the table, `s` the order, the others move or stretch the time range.
    fn press_letter(&mut self, letter: char, now: u64) -> Action {
        let view = match letter {
            'f' => Some(View::Flows),
            'n' => Some(View::Nodes),
            'l' => Some(View::Links),
            _ => None,
        };
        if let Some(view) = view {
            (self.page.view, self.page.selected, self.page.flow) = (view, 0, None);
            return Action::Fetch;
        }
        match letter {
            's' => self.page.order = self.page.order.next(),
            '[' | '<' => self.range = self.range.earlier(now),
            ']' | '>' => self.range = self.range.later(now),
            '-' => self.range = self.range.zoomed(now, true),
            '+' => self.range = self.range.zoomed(now, false),
            '0' => self.range = Range::Now,
            _ => return Action::Draw,
        }
        Action::Fetch
    }

    fn select(&mut self, row: usize) {
        self.page.selected = row;
    }

    /// Opens the selected row: a flow's own page, or the flows of the node or link. The current page is kept to go back to.
    fn enter(&mut self, target: Target) {
        if self.back_pages.len() == MAX_BACK_PAGES {
            self.back_pages.remove(0);
        }
        self.back_pages.push(self.page.clone());
        let condition = match target {
            Target::Flow(flow) => {
                self.page.flow = Some(flow);
                return;
            }
            Target::Node(node) => format!("node == {node}"),
            Target::Link(from, to) => format!("path ~ {from}>{to}"),
        };
        // Parentheses, because the filter may contain `or`. A single word is a search text and must be quoted in a condition.
        self.page.filter = match self.page.filter.trim() {
            "" => condition,
            filter if filter.contains(char::is_whitespace) => format!("({filter}) and {condition}"),
            word => format!("\"{}\" and {condition}", word.trim_matches('"')),
        };
        (self.page.view, self.page.selected) = (View::Flows, 0);
    }

    /// Edits the filter while it is typed. Enter applies it, Escape leaves the old one.
    fn edit_filter(&mut self, key: Key) -> Action {
        let Some(text) = &mut self.filter_input else {
            return Action::Draw;
        };
        match key {
            Key::Char('\u{3}' | '\u{4}') => return Action::Quit,
            Key::Char(letter) if !letter.is_control() && text.len() < MAX_FILTER_LEN => text.push(letter),
            Key::Backspace => {
                text.pop();
            }
            Key::Escape => self.filter_input = None,
            Key::Enter => {
                self.page.filter = self.filter_input.take().unwrap_or_default();
                self.page.selected = 0;
                return Action::Fetch;
            }
            _ => {}
        }
        Action::Draw
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 1_795_269_600 * SECOND;

    fn state() -> State {
        State::new(Range::Now, View::Nodes, Order::Latency, "")
    }

    #[test]
    fn times_are_paged_back_and_never_into_the_future() {
        let hour = 3_600 * SECOND;
        let mut state = State::new(Range::Last(hour), View::Flows, Order::Rate, "");
        let mut press = |letter| {
            assert_eq!(state.press(Key::Char(letter), &[], NOW), Action::Fetch);
            state.range
        };
        assert_eq!(press('['), Range::Between(NOW - 2 * hour, NOW - hour));
        assert_eq!(press('['), Range::Between(NOW - 3 * hour, NOW - 2 * hour));
        assert_eq!(press(']'), Range::Between(NOW - 2 * hour, NOW - hour));
        assert_eq!(press('+'), Range::Between(NOW - 7 * hour / 4, NOW - 5 * hour / 4));
        assert_eq!(press('-'), Range::Between(NOW - 2 * hour, NOW - hour));
        assert_eq!(press(']'), Range::Last(hour));
        assert_eq!(press('-'), Range::Last(2 * hour));
        assert_eq!(press('0'), Range::Now);
        assert_eq!(
            [press('['), press(']')],
            [
                Range::Between(NOW - 2 * DEFAULT_LENGTH, NOW - DEFAULT_LENGTH),
                Range::Now
            ]
        );
        let given = |from, to| Range::new(from, to, NOW);
        assert_eq!(given(Some(NOW - hour), None), Ok(Range::Last(hour)));
        assert_eq!(
            given(None, Some(NOW)),
            Ok(Range::Between(NOW - DEFAULT_LENGTH, NOW))
        );
        assert!(given(Some(NOW), None).is_err() && given(Some(5), Some(5)).is_err());
    }

    #[test]
    fn a_node_leads_to_its_flows_a_flow_to_its_hops_and_back() {
        let mut state = state();
        state.page.filter = "src == 10.0.0.1 or port == 80".to_owned();
        let nodes = [Target::Node(3), Target::Node(7)];
        assert_eq!(state.press(Key::Down, &nodes, NOW), Action::Draw);
        assert_eq!(state.press(Key::Down, &nodes, NOW), Action::Draw);
        assert_eq!(
            (state.page.selected, state.press(Key::Enter, &nodes, NOW)),
            (1, Action::Fetch)
        );
        assert_eq!(state.page.filter, "(src == 10.0.0.1 or port == 80) and node == 7");
        assert_eq!((state.page.view, state.page.selected), (View::Flows, 0));
        let flow = FlowName {
            id: "00ab".to_owned(),
            text: "a>b".to_owned(),
        };
        state.press(Key::Enter, &[Target::Flow(flow.clone())], NOW);
        assert_eq!(state.page.flow, Some(flow));
        assert_eq!(
            state.press(Key::Enter, &[], NOW),
            Action::Draw,
            "a hop leads nowhere"
        );
        assert_eq!(state.press(Key::Escape, &[], NOW), Action::Fetch);
        assert!(state.page.flow.is_none() && state.back_pages.len() == 1);
        state.press(Key::Backspace, &[], NOW);
        assert_eq!(
            (state.page.view, state.page.selected, state.back_pages.len()),
            (View::Nodes, 1, 0)
        );
        // Nothing is behind the first page.
        assert_eq!(state.press(Key::Escape, &nodes, NOW), Action::Draw);
        state.page.filter = "10.0.0.1".to_owned();
        state.press(Key::Enter, &[Target::Link(1, 2)], NOW);
        assert_eq!(state.page.filter, "\"10.0.0.1\" and path ~ 1>2");
        let parsed = filter::Filter::parse(&state.page.filter, filter::View::Flows, &filter::no_names);
        assert!(parsed.is_ok(), "{parsed:?}");
    }

    #[test]
    fn a_filter_is_written_and_applies_when_it_is_done() {
        let mut state = state();
        let mut press = |key| {
            (
                state.press(key, &[], NOW),
                state.filter_input.clone(),
                state.page.filter.clone(),
            )
        };
        press(Key::Char('/'));
        press(Key::Char('q'));
        press(Key::Char('é'));
        assert_eq!(
            press(Key::Backspace),
            (Action::Draw, Some("q".to_owned()), String::new())
        );
        assert_eq!(press(Key::Enter), (Action::Fetch, None, "q".to_owned()));
        press(Key::Char('/'));
        press(Key::Char('x'));
        assert_eq!(
            press(Key::Escape),
            (Action::Draw, None, "q".to_owned()),
            "given up"
        );
        assert_eq!(press(Key::Char('q')).0, Action::Quit);
    }
}
