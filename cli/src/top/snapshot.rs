//! The tables of `hopwise top`: requests flows, nodes and links, and renders them under the status and the loss budget.

use std::cmp::Reverse;

use serde::Serialize;
use std::time::Duration;

use super::{
    Order, View,
    state::{FlowName, Page, Range, Target},
};
use crate::remote::{self, fetch};
use net::client::{Client, escape};
use terminal::{Align, CliError, Table, Terminal, Tone, plot, units};
use view::{Evidence, Flows, Links, Names, NodeView, Nodes, QueueView, StatusView};

/// Responses from which the tables are drawn; `--json` prints them.
#[derive(Serialize, Debug)]
pub(super) struct Snapshot {
    status: StatusView,
    flows: Flows,
    nodes: Nodes,
    links: Links,
    #[serde(skip)]
    names: Names,
}

impl Snapshot {
    /// Requests all tables. `range` has the URL parameters of a time range, each preceded by `&`.
    pub(super) fn fetch(client: &Client, order: Order, filter: &str, range: &str) -> Result<Self, CliError> {
        let sort = if order == Order::Rate {
            "reports"
        } else {
            "latency"
        };
        let filter = escape(filter);
        Ok(Self {
            status: fetch(client, "/status")?,
            flows: fetch(
                client,
                &format!("/flows?limit=100&sort={sort}&filter={filter}{range}"),
            )?,
            nodes: fetch(client, &format!("/nodes?limit=4096{range}"))?,
            links: fetch(client, &format!("/links?limit=4096{range}"))?,
            names: remote::names(client),
        })
    }

    /// Renders the status and one table for printing once.
    pub(super) fn render(&self, page: &Page, range: Range, client: &Client, terminal: Terminal) -> String {
        let (table, _) = self.table(page, Some(terminal.height.saturating_sub(6)));
        let body = if table.is_empty() {
            format!("{}\n", self.empty_text(page.view))
        } else {
            table.render()
        };
        format!("{}\n{body}", self.header(page, range, client, terminal))
    }

    /// Renders the table, scrolled to the selected row, which has a mark. `used_lines` is the number of lines used above.
    pub(super) fn body(&self, page: &Page, terminal: Terminal, used_lines: usize) -> String {
        let (table, rows) = self.table(page, None);
        if table.is_empty() {
            return format!("{}\n", self.empty_text(page.view));
        }
        let visible_rows = terminal.height.saturating_sub(used_lines).max(1);
        let selected = page.selected.min(rows.len().saturating_sub(1));
        let first = (selected + 1).saturating_sub(visible_rows);
        let text = table.indented(2).render();
        let mut lines = text.lines();
        let mut out = lines.next().unwrap_or_default().to_owned() + "\n";
        for (row, line) in lines.enumerate().skip(first).take(visible_rows) {
            let line = match row == selected {
                true => terminal.paint(
                    Tone::Strong,
                    &format!("\u{25b8}{}", line.get(1..).unwrap_or(line)),
                ),
                false => line.to_owned(),
            };
            out.push_str(&line);
            out.push('\n');
        }
        out
    }

    /// Builds the table of the page's view, and the target of each row. `limit` limits the number of flows.
    pub(super) fn table(&self, page: &Page, limit: Option<usize>) -> (Table, Vec<Target>) {
        match page.view {
            View::Flows => self.flow_table(limit.unwrap_or(usize::MAX)),
            View::Nodes => self.node_table(page.order),
            View::Links => self.link_table(page.order),
        }
    }

    /// Returns whether the server is a console, which answers from ClickHouse.
    pub(super) fn is_console(&self) -> bool {
        self.status.console == Some(true)
    }

    fn empty_text(&self, view: View) -> &'static str {
        if self.flows.range.is_some() {
            return match view {
                View::Flows => "no matching flows in this time",
                _ => "nothing is stored for this time",
            };
        }
        match view {
            View::Flows if self.status.rates.reports > 0.0 || !self.nodes.nodes.is_empty() => {
                "no flow matches"
            }
            _ => "no reports yet",
        }
    }

    /// Renders the lines above the table: status, inputs, losses, and the keys.
    pub(super) fn header(&self, page: &Page, range: Range, client: &Client, terminal: Terminal) -> String {
        let StatusView {
            version,
            uptime_s,
            rates,
            ..
        } = &self.status;
        let uptime = units::clock(Duration::from_secs_f64(uptime_s.clamp(0.0, 1e9)));
        let program = terminal.paint(Tone::Strong, &format!("hopwise {version}"));
        let reports = units::short(rates.reports);
        let events = units::short(rates.events);
        let tabs = [
            (View::Flows, "f flows"),
            (View::Nodes, "n nodes"),
            (View::Links, "l links"),
        ]
        .map(|(tab, name)| {
            if tab == page.view {
                terminal.paint(Tone::Strong, name)
            } else {
                name.into()
            }
        });
        let summary = match range {
            // A console has no live state, so it always returns a time range.
            Range::Now if self.flows.range.is_none() => format!(
                "{program}  {}  up {uptime}  {reports} reports/s  {events} events/s\n{}{}",
                client.url(),
                self.inputs(terminal),
                self.losses(terminal),
            ),
            _ => format!("{program}  {}\n{}", client.url(), self.time(terminal)),
        };
        let filter = match page.filter.trim() {
            "" => String::new(),
            filter => format!("   filter: {filter}"),
        };
        format!(
            "{summary}\n{}   s order: {}   q quit{filter}\n",
            tabs.join("  "),
            page.order.name()
        )
    }

    /// Formats the time range of the responses; empty for the live state.
    fn time(&self, terminal: Terminal) -> String {
        let Some(range) = self.flows.range else {
            return String::new();
        };
        let ranges = [self.flows.range, self.nodes.range, self.links.range];
        let truncated = ranges.into_iter().flatten().any(|range| range.truncated);
        let warning = if truncated {
            terminal.paint(
                Tone::Warn,
                "  incomplete: this time has more flows than are considered",
            )
        } else {
            String::new()
        };
        let time = terminal.paint(
            Tone::Strong,
            &format!("{} to {} UTC", to_minute(range.from), to_minute(range.to)),
        );
        let source = if self.is_console() {
            "ClickHouse"
        } else {
            "the store"
        };
        format!("{time}, from {source}   [ earlier  ] later  0 now{warning}")
    }

    /// Formats each interface's receive path and the inputs that are down (`in: xdp://eth1 by xdp-native`), not working UDP.
    fn inputs(&self, terminal: Terminal) -> String {
        let inputs = self
            .status
            .inputs
            .iter()
            .filter(|input| input.interface.is_some() || input.message.is_some());
        let texts: Vec<_> = inputs
            .map(|input| match &input.message {
                Some(reason) => terminal.paint(Tone::Bad, &format!("{} is down: {reason}", input.listen)),
                None => format!("{} by {}", input.listen, input.kind),
            })
            .collect();
        if texts.is_empty() {
            String::new()
        } else {
            format!("in: {}\n", texts.join(" · "))
        }
    }

    /// Formats the losses of each stage with its most frequent reason: `lost: network 12 (lost), unconfirmed 3 · kernel 0`.
    fn losses(&self, terminal: Terminal) -> String {
        let stages = self.status.loss_budget.iter().map(|stage| {
            let total: u64 = stage.drops.values().sum();
            let text = format!("{} {}", stage.stage, units::count(total));
            let text = match stage.drops.iter().max_by_key(|(_, count)| **count) {
                Some((reason, count)) if *count > 0 => {
                    terminal.paint(Tone::Bad, &format!("{text} ({reason})"))
                }
                _ => text,
            };
            match stage.evidence {
                Some(Evidence {
                    unconfirmed: count @ 1..,
                    ..
                }) => {
                    format!("{text}, unconfirmed {}", units::count(count))
                }
                _ => text,
            }
        });
        format!("lost: {}", stages.collect::<Vec<_>>().join(" · "))
    }

    /// Returns the table of flows, and what Enter opens on each row.
    fn flow_table(&self, limit: usize) -> (Table, Vec<Target>) {
        use Align::{Left, Right};
        let slowest = self
            .flows
            .flows
            .iter()
            .filter_map(|flow| flow.flow_latency)
            .max()
            .unwrap_or(0);
        let mut table = Table::new([
            ("LATENCY", Right),
            ("", Left),
            ("REPORTS", Right),
            ("FLOW", Left),
            ("PATH", Left),
        ]);
        let mut rows = Vec::new();
        for flow in self.flows.flows.iter().take(limit) {
            rows.push(Target::Flow(FlowName {
                id: flow.id.clone(),
                text: flow.text.clone(),
            }));
            table.row([
                flow.flow_latency.map_or("-".into(), units::nanos),
                plot::bar(flow.flow_latency.unwrap_or(0) as f64, slowest as f64, 12),
                units::count(flow.reports),
                flow.text.clone(),
                self.names.path(&flow.path),
            ]);
        }
        (table, rows)
    }

    /// Returns the table of nodes in this order, and what Enter opens on each row.
    fn node_table(&self, order: Order) -> (Table, Vec<Target>) {
        use Align::{Left, Right};
        let mut nodes: Vec<_> = self.nodes.nodes.iter().collect();
        nodes.sort_by_key(|node| {
            Reverse(match order {
                // For a past time range, only extremes are stored.
                Order::Latency => {
                    let latency = node.hop_latency;
                    latency.p99.or(latency.latest).or(latency.max).unwrap_or(0)
                }
                Order::Queue => fullest_queue(node).and_then(|queue| queue.occupancy).unwrap_or(0),
                Order::Rate => node.reports,
            })
        });
        let columns = [
            ("NODE", Right),
            ("NAME", Left),
            ("LATENCY", Right),
            ("P50", Right),
            ("P99", Right),
        ];
        let value_columns = [
            ("MAX", Right),
            ("IF", Right),
            ("QUEUE", Right),
            ("NOW", Right),
            ("MAX", Right),
            ("UNIT", Left),
        ];
        let count_columns = [("DROPS", Right), ("REPORTS", Right)];
        // Shown only if some node has implausible latencies.
        let implausible = nodes.iter().any(|node| node.implausible_latencies > 0);
        let implausible_column = implausible.then_some(("IMPLAUSIBLE", Right));
        let mut table = Table::new(
            columns
                .into_iter()
                .chain(value_columns)
                .chain(count_columns)
                .chain(implausible_column),
        );
        let rows = nodes.iter().map(|node| Target::Node(node.node)).collect();
        for node in nodes {
            let latency = node.hop_latency;
            let queue = fullest_queue(node);
            let row = [
                node.node.to_string(),
                node.name.clone().unwrap_or_default(),
                nanos_or_dash(latency.latest),
                nanos_or_dash(latency.p50),
                nanos_or_dash(latency.p99),
                nanos_or_dash(latency.max),
                queue
                    .and_then(|queue| queue.interface)
                    .map_or("-".into(), |interface| {
                        self.names.interface(Some(node.node), interface)
                    }),
                queue.map_or("-".into(), |queue| {
                    queue.queue.map_or("all".into(), |id| id.to_string())
                }),
                count_or_dash(queue.as_ref().and_then(|queue| queue.occupancy)),
                count_or_dash(queue.as_ref().and_then(|queue| queue.max)),
                queue.map(|queue| queue.unit.clone()).unwrap_or_default(),
                units::count(node.drops),
                units::count(node.reports),
            ];
            let implausible_column = implausible_column.map(|_| units::count(node.implausible_latencies));
            table.row(row.into_iter().chain(implausible_column));
        }
        (table, rows)
    }

    /// Returns the table of links in this order, and what Enter opens on each row.
    fn link_table(&self, order: Order) -> (Table, Vec<Target>) {
        use Align::{Left, Right};
        let mut links: Vec<_> = self.links.links.iter().collect();
        links.sort_by(|a, b| {
            match order {
                Order::Latency => a.hop_latency.cmp(&b.hop_latency),
                Order::Queue => a.queue_occupancy.cmp(&b.queue_occupancy),
                Order::Rate => a
                    .utilization
                    .unwrap_or(0.0)
                    .total_cmp(&b.utilization.unwrap_or(0.0)),
            }
            .reverse()
        });
        let columns = [
            ("LINK", Left),
            ("IF", Right),
            ("UTILIZATION", Right),
            ("", Left),
            ("QUEUE, DEVICE UNITS", Right),
        ];
        let mut table = Table::new(
            columns
                .into_iter()
                .chain([("NODE LATENCY", Right), ("FLOWS", Right)]),
        );
        let rows = links
            .iter()
            .map(|link| Target::Link(link.from, link.to))
            .collect();
        for link in links {
            table.row([
                format!("{} > {}", self.names.node(link.from), self.names.node(link.to)),
                link.egress_if.map_or("-".into(), |interface| {
                    self.names.interface(Some(link.from), interface)
                }),
                link.utilization
                    .map_or("-".into(), |share| format!("{:.1} %", share * 100.0)),
                plot::bar(link.utilization.unwrap_or(0.0), 1.0, 12),
                link.queue_occupancy.map_or("-".into(), units::count),
                link.hop_latency.map_or("-".into(), units::nanos),
                units::count(link.flows),
            ]);
        }
        (table, rows)
    }
}

fn to_minute(ts: u64) -> String {
    units::date_time(ts).chars().take(16).collect()
}

fn fullest_queue(node: &NodeView) -> Option<&QueueView> {
    node.queues.iter().max_by_key(|queue| queue.occupancy)
}

fn nanos_or_dash(value: Option<u64>) -> String {
    value.map_or("-".into(), units::nanos)
}

fn count_or_dash(value: Option<u64>) -> String {
    value.map_or("-".into(), units::count)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn snapshot() -> Snapshot {
        let status = json!({"version": "0.1.0", "uptime_s": 192, "now": 5,
            "rates": {"reports": 12_300.0, "events": 40.0, "datagrams": 12_300.0},
            "loss_budget": [
                {"stage": "network", "in": 112, "out": 100, "drops": {"lost": 12}, "evidence": {"unconfirmed": 3, "datagrams": 100}},
                {"stage": "kernel", "in": 100, "out": 100, "drops": {"receive_buffer": 0}}]});
        let flow = json!({"id": "00", "flow": {"src": "10.0.0.1", "dst": "10.0.0.2", "sport": 1, "dport": 2, "proto": 6},
            "text": "10.0.0.1:1>10.0.0.2:2/6", "path": [1, null, 3], "flow_latency": 1_500_000, "basis": "hop_sum",
            "reports": 1_000, "first_seen": 1, "last_seen": 2});
        let nodes = json!({"nodes": [
            {"node": 1, "name": null, "reports": 9, "last_seen": 2, "hop_latency": {"latest": 5}, "queues": [], "drops": 0},
            {"node": 3, "name": "leaf3", "reports": 5, "last_seen": 2, "hop_latency": {"latest": 900, "p50": 800, "p99": 990,
             "min": 1, "max": 1_000}, "queues": [{"queue": 0, "interface": 7, "occupancy": 64, "max": 200, "unit": "packets"}], "drops": 2}]});
        let links = json!({"links": [{"from": 1, "to": 3, "egress_if": 2, "ingress_if": null, "utilization": 0.5,
            "queue_occupancy": 64, "hop_latency": 900, "flows": 4, "last_seen": 2}]});
        Snapshot {
            status: serde_json::from_value(status).unwrap(),
            flows: serde_json::from_value(json!({"flows": [flow], "total": 1})).unwrap(),
            nodes: serde_json::from_value(nodes).unwrap(),
            links: serde_json::from_value(links).unwrap(),
            names: Names::default(),
        }
    }

    fn page(view: View, order: Order) -> Page {
        Page {
            view,
            order,
            filter: String::new(),
            selected: 0,
            flow: None,
        }
    }

    fn render(view: View, order: Order) -> String {
        let client = Client::new("127.0.0.1:1", None).unwrap();
        snapshot().render(&page(view, order), Range::Now, &client, Terminal::plain())
    }

    #[test]
    fn flows_show_latency_and_path_under_the_loss_budget() {
        assert_eq!(
            render(View::Flows, Order::Latency),
            "hopwise 0.1.0  http://127.0.0.1:1  up 3:12  12.3 k reports/s  40.0 events/s
lost: network 12 (lost), unconfirmed 3 · kernel 0
f flows  n nodes  l links   s order: latency   q quit

LATENCY                REPORTS  FLOW                     PATH
1.50 ms  ████████████    1,000  10.0.0.1:1>10.0.0.2:2/6  1>?>3
"
        );
    }

    #[test]
    fn interfaces_are_shown_with_their_receive_path() {
        let input = |listen: &str, interface: Option<&str>, message: Option<&str>| view::InputView {
            listen: listen.to_owned(),
            kind: "xdp-native".into(),
            interface: interface.map(str::to_owned),
            message: message.map(str::to_owned),
            ..Default::default()
        };
        let mut texts = snapshot();
        assert_eq!(texts.inputs(Terminal::plain()), "");
        texts.status.inputs = vec![
            input("udp://0.0.0.0:1", None, None),
            input("xdp://eth1", Some("eth1"), None),
            input("xdp://eth2", Some("eth2"), Some("the interface was removed")),
        ];
        let expected = "in: xdp://eth1 by xdp-native · xdp://eth2 is down: the interface was removed\n";
        assert_eq!(texts.inputs(Terminal::plain()), expected);
    }

    #[test]
    fn nodes_are_in_the_requested_order() {
        let rows = |order| {
            render(View::Nodes, order)
                .lines()
                .skip(5)
                .map(str::to_string)
                .collect::<Vec<_>>()
        };
        let slow =
            "   3  leaf3   900 ns  800 ns  990 ns  1.00 us   7      0   64  200  packets      2        5";
        let busy =
            "   1            5 ns       -       -        -   -      -    -    -               0        9";
        assert_eq!(rows(Order::Latency), [slow, busy]);
        assert_eq!(rows(Order::Rate), [busy, slow]);
    }

    #[test]
    fn links_show_their_utilization() {
        let texts = render(View::Links, Order::Rate);
        assert_eq!(
            texts.lines().skip(4).collect::<Vec<_>>(),
            [
                "LINK   IF  UTILIZATION          QUEUE, DEVICE UNITS  NODE LATENCY  FLOWS",
                "1 > 3   2       50.0 %  ██████                   64        900 ns      4"
            ]
        );
    }

    #[test]
    fn another_time_is_named_and_has_no_losses_of_now() {
        let mut past = snapshot();
        let from = 1_795_269_600_000_000_000;
        let range = view::RangeView {
            from,
            to: from + 600_000_000_000,
            truncated: true,
        };
        past.flows.range = Some(range);
        let client = Client::new("127.0.0.1:1", None).unwrap();
        let mut page = page(View::Nodes, Order::Latency);
        page.filter = "node == 3".to_owned();
        let texts = past.render(&page, Range::Between(from, range.to), &client, Terminal::plain());
        let lines: Vec<&str> = texts.lines().take(3).collect();
        assert_eq!(
            lines,
            [
                "hopwise 0.1.0  http://127.0.0.1:1",
                "2026-11-21 14:00 to 2026-11-21 14:10 UTC, from the store   [ earlier  ] later  0 now  incomplete: this time has more flows than are considered",
                "f flows  n nodes  l links   s order: latency   q quit   filter: node == 3",
            ]
        );
    }

    #[test]
    fn a_console_names_the_time_that_it_answers_about() {
        let mut console = snapshot();
        let from = 1_795_269_600_000_000_000;
        console.flows.range = Some(view::RangeView {
            from,
            to: from + 900_000_000_000,
            truncated: false,
        });
        console.status = serde_json::from_value(json!({"version": "0.1.0", "console": true})).unwrap();
        let client = Client::new("127.0.0.1:1", None).unwrap();
        let page = page(View::Flows, Order::Latency);
        let texts = console.render(&page, Range::Now, &client, Terminal::plain());
        let lines: Vec<&str> = texts.lines().take(2).collect();
        let time = "2026-11-21 14:00 to 2026-11-21 14:15 UTC, from ClickHouse   [ earlier  ] later  0 now";
        assert_eq!(lines, ["hopwise 0.1.0  http://127.0.0.1:1", time]);
    }

    #[test]
    fn the_selected_row_is_marked_and_on_the_screen() {
        let terminal = Terminal {
            height: 8,
            ..Terminal::plain()
        };
        let mut page = page(View::Nodes, Order::Latency);
        page.selected = 1;
        let (_, rows) = snapshot().table(&page, None);
        assert_eq!(rows, [Target::Node(3), Target::Node(1)]);
        let body = snapshot().body(&page, terminal, 3);
        assert!(
            body.lines().nth(2).unwrap().starts_with("\u{25b8}    1"),
            "{body}"
        );
        // With room for one row, it is the selected one.
        let body = snapshot().body(&page, terminal, 7);
        assert_eq!(body.lines().count(), 2);
        assert!(body.lines().nth(1).unwrap().contains("\u{25b8}    1"), "{body}");
    }
}
