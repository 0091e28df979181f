//! The screen of one flow in `hopwise top`: its hops, the paths that it took, and its events.

use super::state::{FlowName, Range};
use crate::events::sentence;
use crate::remote::{self, fetch};
use net::client::{Client, escape};
use terminal::{Align, CliError, Table, Terminal, Tone, plot, units};
use view::{Events, FlowDetail, HistoryView, Names};

/// Limits of the requests, and the number of paths that fit on a screen.
const MAX_PATHS: usize = 50;
const MAX_EVENTS: usize = 20;
const SHOWN_PATHS: usize = 8;

/// Responses from which the screen is drawn.
#[derive(Debug)]
pub(super) struct Detail {
    flow: FlowDetail,
    /// Path history; the error text if the server has no store.
    history: Result<HistoryView, String>,
    events: Result<Events, String>,
    names: Names,
}

impl Detail {
    /// Requests a flow with its history and events. `range` has the URL parameters of a time range, each preceded by `&`.
    pub(super) fn fetch(client: &Client, flow: &FlowName, range: &str) -> Result<Self, CliError> {
        // By id in memory, by text in the store, which has an index on it.
        let name = if range.is_empty() {
            escape(&flow.id)
        } else {
            escape(&flow.text)
        };
        let text = escape(&flow.text);
        let flow = fetch(
            client,
            &format!("/flows/{name}?{}", range.trim_start_matches('&')),
        )?;
        let history = fetch(client, &format!("/flows/{text}/history?limit={MAX_PATHS}{range}"));
        let events = fetch(client, &format!("/events?limit={MAX_EVENTS}&flow={text}{range}"));
        Ok(Self {
            flow,
            history: history.map_err(|error| error.to_string()),
            events: events.map_err(|error| error.to_string()),
            names: remote::names(client),
        })
    }

    /// Renders the whole screen as text.
    pub(super) fn render(&self, range: Range, terminal: Terminal) -> String {
        let flow = &self.flow.flow;
        let title = terminal.paint(Tone::Strong, &terminal::printable(&flow.text));
        let latency = flow.flow_latency.map_or("no latency".to_owned(), |latency| {
            let is_now = range == Range::Now && self.flow.range.is_none();
            let label = if is_now { "latency" } else { "greatest latency" };
            format!("{label} {}", units::nanos(latency))
        });
        let mut out = format!(
            "{title}\n{latency}   {} reports   {} to {} UTC   esc back\n\n",
            units::count(flow.reports),
            to_second(flow.first_seen),
            to_second(flow.last_seen)
        );
        out.push_str(&self.hops().render());
        out.push_str("\npaths\n");
        match &self.history {
            Err(reason) => out.push_str(&format!("  {reason}\n")),
            Ok(history) if history.paths.is_empty() => out.push_str("  none stored in this time\n"),
            Ok(history) => {
                for since in history.paths.iter().rev().take(SHOWN_PATHS) {
                    out.push_str(&format!(
                        "  {}  {}\n",
                        to_second(since.ts),
                        self.names.path(&since.path)
                    ));
                }
            }
        }
        out.push_str("\nevents, latest first\n");
        match &self.events {
            Err(reason) => out.push_str(&format!("  {reason}\n")),
            Ok(events) if events.events.is_empty() => out.push_str("  none stored in this time\n"),
            Ok(events) => {
                for event in &events.events {
                    out.push_str(&format!("  {}\n", sentence(event, &self.names, terminal)));
                }
            }
        }
        out
    }

    fn hops(&self) -> Table {
        use Align::{Left, Right};
        let slowest = self
            .flow
            .hops
            .iter()
            .filter_map(|hop| hop.hop_latency)
            .max()
            .unwrap_or(0);
        let columns = [
            ("HOP", Right),
            ("NODE", Left),
            ("LATENCY", Right),
            ("", Left),
            ("QUEUE", Right),
            ("OCCUPANCY, DEVICE UNITS", Right),
        ];
        let mut table = Table::new(columns);
        for (i, hop) in self.flow.hops.iter().enumerate() {
            table.row([
                (i + 1).to_string(),
                hop.node.map_or("?".to_owned(), |node| self.names.node(node)),
                hop.hop_latency.map_or("-".to_owned(), units::nanos),
                plot::bar(hop.hop_latency.unwrap_or(0) as f64, slowest as f64, 12),
                hop.queue.map_or("-".to_owned(), |queue| queue.to_string()),
                hop.queue_occupancy.map_or("-".to_owned(), units::count),
            ]);
        }
        table
    }
}

fn to_second(ts: u64) -> String {
    units::date_time(ts).chars().take(19).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_flow_is_shown_with_its_hops_paths_and_events() {
        let flow = json!({"id": "00", "flow": {"src": "10.0.0.1", "dst": "10.0.0.2", "sport": 1, "dport": 2, "proto": 6},
            "text": "10.0.0.1:1>10.0.0.2:2/6\u{1b}", "path": [1, null], "flow_latency": 1_500_000, "basis": "hop_sum",
            "reports": 1_000, "first_seen": 1_000_000_000, "last_seen": 2_000_000_000,
            "hops": [{"node": 1, "hop_latency": 1_000, "queue": 3, "queue_occupancy": 64}, {"node": null}]});
        let history = json!({"series": [], "paths": [{"ts": 0, "path": [1, 2]}, {"ts": 1_000_000_000, "path": [1, null]}], "truncated": false});
        let detail = Detail {
            flow: serde_json::from_value(flow).unwrap(),
            history: Ok(serde_json::from_value(history).unwrap()),
            events: Err("the store is off".to_owned()),
            names: Names::default(),
        };
        let expected = "10.0.0.1:1>10.0.0.2:2/6·
greatest latency 1.50 ms   1,000 reports   1970-01-01 00:00:01 to 1970-01-01 00:00:02 UTC   esc back

HOP  NODE  LATENCY                QUEUE  OCCUPANCY, DEVICE UNITS
  1  1     1.00 us  ████████████      3                       64
  2  ?           -                    -                        -

paths
  1970-01-01 00:00:01  1>?
  1970-01-01 00:00:00  1>2

events, latest first
  the store is off
";
        assert_eq!(detail.render(Range::Last(1), Terminal::plain()), expected);
    }
}
