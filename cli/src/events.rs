//! `hopwise events`: prints events of a running hopwise or of a store, or follows them live (server-sent events).

use std::time::{Duration, Instant};
use std::{path::PathBuf, process::ExitCode, thread};

use super::event_filter::Filter;
use super::remote::{Api, fetch, names};
use config::{Settings, build};
use net::client::{self, Client, Stream};
use terminal::text::json_line;
use terminal::{CliError, Terminal, Tone, units};
use view::{EventView, Events, Names};

/// Number of events in one request.
const PAGE_EVENTS: usize = 1000;
/// Maximum number of requests for one list.
const MAX_PAGES: usize = 1000;
/// Bounds of the exponential backoff between attempts to reconnect.
const MIN_PAUSE: Duration = Duration::from_millis(250);
const MAX_PAUSE: Duration = Duration::from_secs(4);
/// Age from which a connection counts as stable, so that its loss begins a new backoff.
const STABLE_AFTER: Duration = Duration::from_secs(5);

/// List events, newest last, or follow them live
///
/// Queries a running hopwise, or with --dir the store itself. Exit code 1 if no event matches.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:
  hopwise events                              the last 50
  hopwise events --follow --kind drop         drops as they happen
  hopwise events --filter 'reason == queue_full and node == leaf1'
  hopwise events --node 102 --metric queue_occupancy --limit 500
  hopwise events --from 2h --to 1h            of the hour before the last
  hopwise events --dir hopwise-data --flow '10.0.0.1:5000>10.0.0.2:80/17' --json")]
pub struct Args {
    /// Continue with new events
    #[arg(short, long, conflicts_with = "dir")]
    pub(crate) follow: bool,

    /// One JSON object per event
    #[arg(long)]
    pub(crate) json: bool,

    /// Directory of a store to read instead of querying a running hopwise
    #[arg(long, value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,

    /// With --dir: configuration file with the names of nodes, hosts and drop reasons
    #[arg(short, long, value_name = "FILE", requires = "dir")]
    pub(crate) config: Option<PathBuf>,

    /// Maximum number of events; the latest are listed
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(crate) limit: u32,

    /// With --follow: how long to wait for reconnection, seconds; 0 exits at once
    #[arg(long, value_name = "SECONDS", default_value_t = 30, requires = "follow", value_parser = clap::value_parser!(u64).range(..=86_400))]
    pub(crate) reconnect: u64,

    #[command(flatten)]
    pub(crate) filter: Filter,

    #[command(flatten)]
    pub(crate) api: Api,
}

/// Runs `hopwise events`, and returns its exit code.
pub fn run(mut args: Args) -> Result<ExitCode, CliError> {
    args.filter.check()?;
    let mut printer = Printer {
        json: args.json,
        terminal: Terminal::stdout(),
        line: String::new(),
        names: Names::default(),
    };
    let events = match &args.dir {
        Some(dir) => {
            if let Some(file) = &args.config {
                printer.names = build::names(&Settings::load(Some(file))?);
            }
            args.filter.resolve(&printer.names)?;
            super::stored::events(dir, &args.filter, args.limit, &printer.names)?
        }
        None => {
            let client = args.api.client()?;
            if !args.json || args.filter.has_node_name() {
                printer.names = names(&client);
            }
            args.filter.resolve(&printer.names)?;
            if args.follow {
                return follow(&client, &args, &mut printer);
            }
            latest(&client, &args.filter, args.limit as usize)?
        }
    };
    if events.is_empty() {
        terminal::note(format_args!(
            "no event matches; `hopwise events --follow` waits for new ones"
        ));
        return Ok(ExitCode::from(1));
    }
    events.iter().try_for_each(|event| printer.print(event))?;
    Ok(ExitCode::SUCCESS)
}

/// Requests the latest events that pass, oldest first; may take several pages, since the server cannot exclude `latest`.
fn latest(client: &Client, filter: &Filter, limit: usize) -> Result<Vec<EventView>, CliError> {
    let mut matching = Vec::new();
    let mut after = String::new();
    for _ in 0..MAX_PAGES {
        let Events { events, next } = fetch(
            client,
            &format!("/events?limit={PAGE_EVENTS}{after}{}", filter.query('&')),
        )?;
        matching.extend(events.into_iter().filter(|event| filter.passes(event)));
        match next {
            Some(next) if matching.len() < limit => after = format!("&after={next}"),
            _ => break,
        }
    }
    matching.truncate(limit);
    matching.reverse();
    Ok(matching)
}

/// Prints the live stream, and reconnects whenever it ends, until the time limit for reconnection.
fn follow(client: &Client, args: &Args, printer: &mut Printer) -> Result<ExitCode, CliError> {
    // The stream's endpoint has no filter by metric, so `drain` applies it.
    let stream_filter = Filter {
        metric: None,
        ..args.filter.clone()
    };
    let path = format!("/events/stream{}", stream_filter.query('?'));
    let mut backoff = ReconnectBackoff::new(Duration::from_secs(args.reconnect));
    let mut stream = client.stream(&path)?;
    loop {
        let connected_at = Instant::now();
        let cause = drain(stream, &args.filter, printer)?;
        if connected_at.elapsed() >= STABLE_AFTER {
            backoff = ReconnectBackoff::new(backoff.limit);
        }
        if args.reconnect > 0 {
            terminal::note(format_args!(
                "{cause}; waiting {} s for hopwise at {}",
                args.reconnect,
                client.url()
            ));
        }
        stream = reconnect(client, &path, &mut backoff, &cause)?;
        terminal::note(format_args!(
            "reconnected to {}; `hopwise events` lists the events in between",
            client.url()
        ));
    }
}

/// Prints events until the stream ends. Returns the cause of the end.
fn drain(stream: Stream, filter: &Filter, printer: &mut Printer) -> Result<String, CliError> {
    for message in stream {
        let message = match message {
            Ok(message) => message,
            Err(_) => return Ok("the live stream broke".to_owned()),
        };
        if message.event == "shed" {
            // The server's queue for this client was full; say that lines are missing.
            terminal::note(format_args!(
                "{} events were dropped: the reader of this output is too slow",
                message.data.trim()
            ));
            continue;
        }
        let event: EventView = serde_json::from_str(&message.data).map_err(|error| {
            CliError::new(format!(
                "the stream contains an event that this version cannot read: {error}"
            ))
        })?;
        if filter.passes(&event) {
            printer.print(&event)?;
        }
    }
    Ok("the live stream ended".to_owned())
}

/// Retries until the server answers or the time limit is over.
fn reconnect(
    client: &Client,
    path: &str,
    backoff: &mut ReconnectBackoff,
    cause: &str,
) -> Result<Stream, CliError> {
    while let Some(pause) = backoff.next(Instant::now()) {
        thread::sleep(pause);
        match client.stream(path) {
            Ok(stream) => return Ok(stream),
            // 4xx is final; all other errors may be temporary.
            Err(error @ client::Error::Refused { status: 400..500, .. }) => return Err(error.into()),
            Err(_) => {}
        }
    }
    let url = client.url();
    let waited = backoff.limit.as_secs();
    Err(CliError::new(match waited {
        0 => format!("{cause}; hopwise at {url} has stopped"),
        _ => format!("{cause}, and hopwise at {url} was not back after {waited} s; start it again"),
    }))
}

/// Exponential backoff of reconnection, with a time limit.
#[derive(Clone, Copy, PartialEq, Debug)]
struct ReconnectBackoff {
    limit: Duration,
    pause: Duration,
    /// Time at which the connection was lost; `None` until the first attempt.
    lost_at: Option<Instant>,
}

impl ReconnectBackoff {
    fn new(limit: Duration) -> Self {
        Self {
            limit,
            pause: MIN_PAUSE,
            lost_at: None,
        }
    }

    /// Returns the pause before the next attempt, or `None` once the time limit has passed.
    fn next(&mut self, now: Instant) -> Option<Duration> {
        let waited = now.saturating_duration_since(*self.lost_at.get_or_insert(now));
        let remaining = self
            .limit
            .checked_sub(waited)
            .filter(|remaining| !remaining.is_zero())?;
        let pause = self.pause.min(remaining);
        self.pause = (self.pause * 2).min(MAX_PAUSE);
        Some(pause)
    }
}

struct Printer {
    json: bool,
    terminal: Terminal,
    line: String,
    names: Names,
}

impl Printer {
    fn print(&mut self, event: &EventView) -> Result<(), CliError> {
        self.line = if self.json {
            json_line(event)?
        } else {
            sentence(event, &self.names, self.terminal) + "\n"
        };
        terminal::print(&self.line)
    }
}

/// Formats an event as one line: time, kind, subject, location and values.
pub(super) fn sentence(event: &EventView, names: &Names, terminal: Terminal) -> String {
    let tone = match &*event.kind {
        "drop" | "loss" | "packet_loss" | "path_loop" => Tone::Bad,
        "rule_on" | "path_change" | "hop_limit" | "mtu" => Tone::Warn,
        "rule_off" => Tone::Good,
        _ => Tone::Dim,
    };
    let time = terminal.paint(Tone::Dim, &units::date_time(event.ts));
    let mut line = format!("{time}  {}", terminal.paint(tone, &format!("{:<11}", event.kind)));
    let subject = event.rule.as_deref().or(event.metric.as_deref()).unwrap_or("");
    push_part(&mut line, &format!("{subject:<16}"));
    if let Some(location) = location(event, names) {
        push_part(&mut line, &location);
    }
    if let Some(text) = &event.text {
        push_part(&mut line, text);
    }
    if let Some(hosts) = event
        .flow
        .as_ref()
        .and_then(|flow| names.hosts(&flow.src, &flow.dst))
    {
        push_part(&mut line, &format!("({hosts})"));
    }
    if !event.path.is_empty() {
        push_part(&mut line, &names.path(&event.path));
    }
    if let Some(latency) = event.flow_latency {
        let basis = event
            .latency_basis
            .as_deref()
            .filter(|basis| *basis != "measured");
        let basis = basis.map_or(String::new(), |basis| format!(" ({basis})"));
        push_part(&mut line, &format!("{}{basis}", units::nanos(latency)));
    }
    if let Some(change) = change(event) {
        push_part(&mut line, &change);
    }
    if let Some(reason) = event.reason {
        let name = event.reason_name.clone();
        let name = name.unwrap_or_else(|| names.drop_reason(reason));
        push_part(&mut line, &format!("reason {name}"));
    }
    if !matches!(&*event.basis, "" | "measured") && event.value.is_some() {
        push_part(&mut line, &format!("({})", event.basis));
    }
    line.trim_end().to_string()
}

/// Appends a part to the line. Control characters are replaced, since names and texts come from others.
fn push_part(line: &mut String, text: &str) {
    line.push_str("  ");
    line.extend(text.chars().map(|c| if c.is_control() { '·' } else { c }));
}

fn location(event: &EventView, names: &Names) -> Option<String> {
    let mut line = format!("node {}", names.node(event.node?));
    if let Some(queue) = event.queue {
        line.push_str(&format!(" queue {queue}"));
    }
    if let Some(interface) = event.interface {
        line.push_str(&format!(" if {}", names.interface(event.node, interface)));
    }
    Some(line)
}

/// Formats a change as `64 → 200 (threshold 10)`. `None` for `flow_path`, whose value is a number of hops: the path itself is
/// shown.
fn change(event: &EventView) -> Option<String> {
    let metric = event.metric.as_deref().unwrap_or("");
    let value = event.value.filter(|_| metric != "flow_path")?;
    let threshold = event.threshold.map_or(String::new(), |limit| {
        format!(" (threshold {})", amount(metric, limit))
    });
    let unit = match metric {
        "queue_occupancy" | "queue_congestion" => " device units",
        _ => "",
    };
    let value = amount(metric, value);
    Some(match event.previous {
        Some(previous) => format!("{} → {value}{unit}{threshold}", amount(metric, previous)),
        None => format!("{value}{unit}{threshold}"),
    })
}

/// Formats a value with the unit of its metric.
fn amount(metric: &str, value: u64) -> String {
    match metric {
        "flow_latency" | "hop_latency" => units::nanos(value),
        // The unit is a millionth of the link's rate.
        "link_utilization" => format!("{:.1} %", value as f64 / 1e4),
        _ => units::count(value),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use view::NamesView;

    fn shown(event: serde_json::Value) -> String {
        sentence(
            &serde_json::from_value(event).unwrap(),
            &Names::default(),
            Terminal::plain(),
        )
    }

    #[test]
    fn names_stand_for_ids() {
        let names: NamesView = serde_json::from_value(json!({
            "drop_reasons": [{"code": 26, "name": "acl deny"}],
            "nodes": [{"node": 7, "name": "leaf1", "interfaces": [{"interface": 3, "name": "Ethernet8"}]}],
            "hosts": [{"address": "10.0.0.1", "name": "h1"}]}))
        .unwrap();
        let flow = json!({"src": "10.0.0.1", "dst": "10.0.0.2", "sport": 1, "dport": 2, "proto": 6});
        let event = json!({"ts": 0, "kind": "drop", "node": 7, "interface": 3, "reason": 26, "flow": flow,
            "text": "10.0.0.1:1>10.0.0.2:2/6", "path": [7, 8]});
        assert_eq!(
            sentence(
                &serde_json::from_value(event).unwrap(),
                &names.into(),
                Terminal::plain()
            ),
            "1970-01-01 00:00:00.000Z  drop                           node leaf1 if Ethernet8  10.0.0.1:1>10.0.0.2:2/6  \
             (h1>10.0.0.2)  leaf1>8  reason acl deny"
        );
    }

    #[test]
    fn an_event_reads_as_a_line() {
        assert_eq!(
            shown(
                json!({"ts": 1_250_000_000_u64, "kind": "change", "metric": "queue_occupancy", "node": 102, "queue": 0,
                "value": 200, "previous": 64, "threshold": 10, "basis": "measured", "flow": null, "path": []})
            ),
            "1970-01-01 00:00:01.250Z  change       queue_occupancy   node 102 queue 0  64 → 200 device units (threshold 10)"
        );
        assert_eq!(
            shown(
                json!({"ts": 0, "kind": "new", "metric": "flow_path", "text": "10.0.0.1:1>10.0.0.2:2/6", "value": 2,
                "path": [1, null], "basis": "measured"})
            ),
            "1970-01-01 00:00:00.000Z  new          flow_path         10.0.0.1:1>10.0.0.2:2/6  1>?"
        );
        assert_eq!(
            shown(
                json!({"ts": 0, "kind": "change", "metric": "flow_latency", "text": "a\u{1b}[2J", "value": 1500,
                "basis": "hop_sum"})
            ),
            "1970-01-01 00:00:00.000Z  change       flow_latency      a·[2J  1.50 us  (hop_sum)"
        );
        let drop = json!({"ts": 0, "kind": "drop", "node": 7, "reason": 128, "reason_name": "link_down"});
        assert_eq!(
            shown(drop),
            "1970-01-01 00:00:00.000Z  drop                           node 7  reason link_down"
        );
        assert_eq!(
            shown(json!({"ts": 0, "kind": "drop", "node": 7, "interface": 3, "reason": 26})),
            "1970-01-01 00:00:00.000Z  drop                           node 7 if 3  reason 26"
        );
    }

    #[test]
    fn pauses_double_until_the_time_limit() {
        let start = Instant::now();
        let (mut backoff, mut now, mut pauses) =
            (ReconnectBackoff::new(Duration::from_secs(10)), start, Vec::new());
        while let Some(pause) = backoff.next(now) {
            pauses.push(pause.as_millis());
            now += pause;
        }
        assert_eq!(pauses, [250, 500, 1000, 2000, 4000, 2250]);
        assert_eq!(ReconnectBackoff::new(Duration::ZERO).next(start), None);
    }

    #[test]
    fn a_filter_is_sent_to_the_server_and_applied_locally() {
        let filter = Filter {
            kind: Some("drop".into()),
            node_id: Some(7),
            flow: Some("a>b/6".into()),
            to: Some(5),
            ..Filter::default()
        };
        assert_eq!(filter.query('?'), "?kind=drop&node=7&flow=a%3Eb%2F6&to=5");
        let event = |node: u32| {
            serde_json::from_value(json!({"ts": 0, "kind": "drop", "node": node, "text": "a>b/6"})).unwrap()
        };
        assert_eq!(
            [filter.passes(&event(7)), filter.passes(&event(8))],
            [true, false]
        );
        let times = Filter {
            from: Some(1),
            ..filter.clone()
        };
        assert!(!times.passes(&event(7)), "before the first time");
        let latest = serde_json::from_value(json!({"ts": 0, "kind": "latest"})).unwrap();
        let wanted = Filter {
            kind: Some("latest".into()),
            ..Filter::default()
        };
        assert_eq!(
            [Filter::default().passes(&latest), wanted.passes(&latest)],
            [false, true]
        );
    }

    #[test]
    fn a_node_and_a_drop_reason_are_found_by_their_names() {
        let names: NamesView = serde_json::from_value(json!({
            "nodes": [{"node": 7, "name": "leaf1", "interfaces": []}], "hosts": [],
            "drop_reasons": [{"code": 71, "name": "queue_full"}, {"code": 128, "name": "link_down"}]}))
        .unwrap();
        let names = Names::from(names);
        let resolved = |node: &str| {
            let mut filter = Filter {
                node: Some(node.to_owned()),
                ..Filter::default()
            };
            filter
                .resolve(&names)
                .map(|()| filter.query('?'))
                .map_err(|error| error.to_string())
        };
        assert_eq!(
            ["leaf1", "102"].map(resolved),
            [Ok("?node=7".to_owned()), Ok("?node=102".to_owned())]
        );
        assert_eq!(
            resolved("leaf9").unwrap_err(),
            "no node has the name `leaf9`; write a node id such as 102, or a name that `hopwise top` lists"
        );
        let filter = Filter {
            filter: Some("node == leaf1 and reason == link_down".into()),
            ..Filter::default()
        };
        let condition = filter.condition(&names).unwrap().unwrap();
        let facts = |reason: u8| filter::Facts {
            node: Some(7),
            reason: Some(reason),
            ..filter::Facts::default()
        };
        assert_eq!(
            [128, 71].map(|reason| condition.matches(&facts(reason))),
            [true, false]
        );
    }

    #[test]
    fn an_unknown_kind_is_refused_with_the_known_ones() {
        let wrong = Filter {
            kind: Some("drops".into()),
            ..Filter::default()
        };
        assert_eq!(
            wrong.check().unwrap_err().to_string(),
            "`drops` is not a kind of event; use one of new, change, path_change, path_loop, rule_on, rule_off, drop, \
             loss, expired, hop_limit, mtu, latest, packet_loss"
        );
    }
}
