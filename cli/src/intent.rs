//! `hopwise intent`: declares which flows a manager measures, plans and applies the changes, and stops or starts all INT,
//! through the API of a running hopwise.

mod describe;
mod progress;

use std::{collections::BTreeMap, path::PathBuf, process::ExitCode, time::Duration};

use manager::budget::Budget;
use serde_json::{Map, Value, json};
use settings::{read, setting::Setting};

use super::remote::Api;
use manage_role::role::view::{DomainView, IntentView, IntentsView, ManagerHistoryView, PlanView};
use net::client::{Client, Condition, Error as ClientError, escape};
use terminal::{Align, CliError, Table, Terminal, Tone, units};

/// Declare which flows to measure: a manager turns intents into rules on switches
///
/// Talks to a running hopwise with [manager]. An intent says which flows are measured and what is measured; the manager knows
/// where that has to be done, applies it in an order in which no INT reaches a host, and says whether reports arrive.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:
  hopwise intent plan web --dport 80,443 --proto tcp --watch hop_latency    what would change, and what it costs
  hopwise intent add web --dport 80,443 --proto tcp --watch hop_latency     add it, and wait until reports arrive
  hopwise intent list                                                       every intent and whether it works
  hopwise intent rm web
  hopwise intent stop                                                       all INT, at once; `start` undoes it")]
pub struct Args {
    #[command(subcommand)]
    command: Command,

    #[command(flatten)]
    api: Api,
}

#[derive(clap::Subcommand, Debug)]
enum Command {
    /// Add an intent to those in force
    Add(Add),
    /// Show what adding an intent would change; without arguments, the pending changes
    Plan(Plan),
    /// List intents and their states
    List(Output),
    /// Show one intent with its devices and notes
    Show(Name),
    /// Remove one or more intents
    Rm(Names),
    /// Approve the pending changes
    Apply,
    /// Show the history: actions, who took them, and their results
    History(History),
    /// Remove all INT from the devices, and wait until they have none; the intents stay
    Stop(Wait),
    /// Install the intents again, and wait until the devices have them
    Start(Wait),
}

#[derive(clap::Args, Debug)]
struct Wait {
    /// Seconds to wait for the devices; 0: do not wait
    #[arg(long, value_name = "SECONDS", default_value_t = 10)]
    wait: u64,
}

#[derive(clap::Args, Debug)]
struct Output {
    /// JSON instead of a table
    #[arg(long)]
    json: bool,
}

#[derive(clap::Args, Debug)]
struct Name {
    /// Name of the intent
    name: String,

    /// JSON instead of text
    #[arg(long)]
    json: bool,
}

#[derive(clap::Args, Debug)]
struct Names {
    /// Names of the intents to remove
    #[arg(required = true, value_name = "NAME")]
    names: Vec<String>,

    /// JSON instead of text: the remaining intents
    #[arg(long)]
    json: bool,
}

#[derive(clap::Args, Debug)]
struct History {
    /// Only this intent or device
    subject: Option<String>,

    /// Maximum number of entries
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    limit: u32,

    /// JSON instead of a table
    #[arg(long)]
    json: bool,
}

#[derive(clap::Args, Debug)]
#[command(group = clap::ArgGroup::new("what").required(true).args(["name", "file"]), after_help = "Examples:
  hopwise intent add web --dst 10.20.0.0/16 --dport 80,443 --proto tcp
  hopwise intent add slow --dport 9000 --watch hop_latency --filter per_hop --threshold hop_latency=100us
  hopwise intent add rack1 --edges leaf1 --watch queue_occupancy --until 2h
  hopwise intent add deep --dport 443 --rule 'max(queue_occupancy) > 50' --then queue_occupancy --then-for 1m
  hopwise intent add --file intents.toml")]
struct Add {
    #[command(flatten)]
    intent: IntentOptions,

    /// Add the intents of a TOML file
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,

    /// Replace the intent of this name, if there is one; without it, that is refused
    #[arg(long)]
    replace: bool,

    /// Seconds to wait until reports arrive; 0: do not wait
    #[arg(long, value_name = "SECONDS", default_value_t = 10)]
    wait: u64,

    /// JSON instead of text
    #[arg(long)]
    json: bool,
}

#[derive(clap::Args, Debug)]
struct Plan {
    #[command(flatten)]
    intent: IntentOptions,

    /// JSON instead of text
    #[arg(long)]
    json: bool,
}

/// An intent, as the options of the command line describe it.
#[derive(clap::Args, Debug)]
struct IntentOptions {
    /// Name of the intent: letters, digits, `.`, `_` and `-`
    name: Option<String>,

    /// Source networks or addresses
    #[arg(long, help_heading = "Flows", value_name = "PREFIX", value_delimiter = ',')]
    src: Vec<String>,

    /// Destination networks or addresses
    #[arg(long, help_heading = "Flows", value_name = "PREFIX", value_delimiter = ',')]
    dst: Vec<String>,

    /// Source ports or ranges
    #[arg(long, help_heading = "Flows", value_name = "PORT", value_delimiter = ',')]
    sport: Vec<String>,

    /// Destination ports or ranges
    #[arg(long, help_heading = "Flows", value_name = "PORT", value_delimiter = ',')]
    dport: Vec<String>,

    /// IP protocols: tcp, udp or a number
    #[arg(long, help_heading = "Flows", value_name = "PROTOCOL", value_delimiter = ',')]
    proto: Vec<String>,

    /// Also the opposite direction
    #[arg(long, help_heading = "Flows")]
    both_directions: bool,

    /// Metrics: flow_path, flow_latency, hop_latency, queue_occupancy, queue_congestion, link_utilization
    #[arg(
        long,
        help_heading = "Measurement",
        value_name = "METRIC",
        value_delimiter = ',',
        default_value = "flow_path,flow_latency,hop_latency"
    )]
    watch: Vec<String>,

    /// md, mx, postcard, sf, or auto: the cheapest that provides the watched metrics
    #[arg(long, help_heading = "Measurement", default_value = "auto")]
    mode: String,

    /// Measure one packet of this many
    #[arg(long, help_heading = "Measurement", value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    sample: u32,

    /// Names or labels of edge devices, with `*` for any text [default: everywhere]
    #[arg(long, help_heading = "Flows", value_name = "DEVICE", value_delimiter = ',')]
    edges: Vec<String>,

    /// Two hosts: only the flows between them
    #[arg(long, help_heading = "Flows", value_name = "HOST", num_args = 2)]
    between: Vec<String>,

    /// The packets that sinks report: per_hop, per_flow, change, or rule: those for which the rule is true [default: all]
    #[arg(long, help_heading = "Reports and events")]
    filter: Option<String>,

    /// A change above this is significant: for the filter of sinks, or without one for the events of the collector
    #[arg(long, help_heading = "Reports and events", value_name = "METRIC=VALUE", value_parser = threshold)]
    threshold: Vec<(String, String)>,

    /// A condition over the reports of its flows; an event is emitted when it becomes true or false
    #[arg(long, help_heading = "Reports and events", value_name = "CONDITION")]
    rule: Option<String>,

    /// When the rule becomes true: metrics to watch in addition, for a while
    #[arg(
        long,
        help_heading = "Reports and events",
        value_name = "METRIC",
        value_delimiter = ',',
        requires = "rule"
    )]
    then: Vec<String>,

    /// The flows that it measures: "this flow", "this queue" or "this path"
    #[arg(
        long,
        help_heading = "Reports and events",
        value_name = "FLOWS",
        default_value = "this flow",
        requires = "then"
    )]
    then_match: String,

    /// The time for which it measures them
    #[arg(
        long,
        help_heading = "Reports and events",
        value_name = "DURATION",
        default_value = "30s",
        requires = "then"
    )]
    then_for: String,

    /// Reports per second at most, or rates such as "2000 reports/s, 50 events/s": kept by raising the threshold
    #[arg(long, help_heading = "Reports and events", value_name = "RATES", value_parser = budget)]
    budget: Option<Budget>,

    /// When it ends: a duration such as 2h, or a time such as 2026-11-24T08:00:00Z
    #[arg(long, allow_hyphen_values = true)]
    until: Option<String>,

    /// Priority: of several intents for a flow, the one with the greatest number decides the mode
    #[arg(long, help_heading = "Measurement", default_value_t = 100)]
    priority: u32,
}

/// Parses `METRIC=VALUE`. Latencies need a unit, since a bare number would mean nanoseconds.
fn threshold(text: &str) -> Result<(String, String), String> {
    let (metric, value) = text
        .split_once('=')
        .ok_or("write METRIC=VALUE, such as hop_latency=20us")?;
    if metric.ends_with("_latency") && value.bytes().all(|byte| byte.is_ascii_digit()) && value != "0" {
        return Err(format!(
            "{value} has no unit; write {metric}={value}us or {metric}={value}ms"
        ));
    }
    Ok((metric.to_owned(), value.to_owned()))
}

/// Parses a budget: a number of reports per second, or rates.
fn budget(text: &str) -> Result<Budget, String> {
    let rates = if text.parse::<u64>().is_ok() {
        format!("{text} reports/s")
    } else {
        text.to_owned()
    };
    rates
        .parse()
        .map_err(|()| "write reports per second, or \"2000 reports/s, 50 events/s\"".to_owned())
}

impl IntentOptions {
    /// Converts the options to the fields of `[[intents]]`.
    fn to_json(&self) -> Value {
        let mut flows = Map::new();
        let lists = [
            ("src", &self.src),
            ("dst", &self.dst),
            ("sport", &self.sport),
            ("dport", &self.dport),
            ("proto", &self.proto),
        ];
        for (key, list) in lists.into_iter().filter(|(_, list)| !list.is_empty()) {
            flows.insert(key.to_owned(), json!(list));
        }
        let mut intent = json!({"name": self.name, "watch": self.watch});
        if !flows.is_empty() {
            intent["match"] = Value::Object(flows);
        }
        if self.both_directions {
            intent["both_directions"] = json!(true);
        }
        if self.mode != "auto" {
            intent["mode"] = json!(self.mode);
        }
        if self.sample > 1 {
            intent["sample"] = json!(format!("1 in {}", self.sample));
        }
        match (self.edges.is_empty(), self.between.is_empty()) {
            (true, true) => {}
            (false, true) => intent["at"] = json!({"edges": self.edges}),
            (true, false) => intent["at"] = json!({"between": self.between}),
            (false, false) => intent["at"] = json!({"edges": self.edges, "between": self.between}),
        }
        let reporting = self.reporting();
        if !reporting.is_empty() {
            intent["report"] = Value::Object(reporting);
        }
        if let Some(budget) = self.budget {
            intent["budget"] = json!(budget.to_string());
        }
        if let Some(until) = &self.until {
            intent["until"] = json!(until);
        }
        if self.priority != 100 {
            intent["priority"] = json!(self.priority);
        }
        intent
    }
}

impl IntentOptions {
    /// Notes on standard error that every flow is measured, if the intent names no flows.
    fn note_if_all_flows(&self) {
        let selectors = [
            &self.src,
            &self.dst,
            &self.sport,
            &self.dport,
            &self.proto,
            &self.edges,
            &self.between,
        ];
        if selectors.iter().all(|list| list.is_empty()) {
            terminal::note(format_args!(
                "no flows are named, so all are measured; name them by --src, --dst, --sport, --dport or --proto"
            ));
        }
    }

    /// Builds the field `report` of the intent.
    fn reporting(&self) -> Map<String, Value> {
        let thresholds: BTreeMap<_, _> = self.threshold.iter().cloned().collect();
        let keys = [
            ("filter", self.filter.as_ref().map(|filter| json!(filter))),
            ("thresholds", (!thresholds.is_empty()).then(|| json!(thresholds))),
            ("rule", self.rule.as_ref().map(|rule| json!(rule))),
            (
                "then",
                (!self.then.is_empty())
                    .then(|| json!({"watch": self.then, "match": self.then_match, "for": self.then_for})),
            ),
        ];
        keys.into_iter()
            .filter_map(|(key, value)| Some((key.to_owned(), value?)))
            .collect()
    }
}

/// Runs `hopwise intent`, and returns its exit code.
pub fn run(args: Args) -> Result<ExitCode, CliError> {
    let client = args.api.client()?;
    let out = match args.command {
        Command::Add(args) => return add(&client, &args),
        Command::Stop(Wait { wait }) => return stop_or_start(&client, true, Duration::from_secs(wait)),
        Command::Start(Wait { wait }) => return stop_or_start(&client, false, Duration::from_secs(wait)),
        Command::Plan(Plan { intent, json }) => {
            let answer = match intent.name {
                Some(_) => {
                    intent.note_if_all_flows();
                    client
                        .send("POST", "/intents/plan", &intent.to_json())
                        .map_err(explain_error)?
                }
                None => client.get("/plan")?,
            };
            if json {
                pretty(&answer)
            } else {
                plan(&parse_as(&client, answer)?)
            }
        }
        Command::List(Output { json }) => {
            let answer = client.get("/intents")?;
            if json {
                pretty(&answer)
            } else {
                list(&parse_as::<IntentsView>(&client, answer)?.intents)
            }
        }
        Command::Show(Name { name, json }) => {
            let answer = client
                .get(&format!("/intents/{}", escape(&name)))
                .map_err(explain_error)?;
            if json {
                pretty(&answer)
            } else {
                show(&parse_as(&client, answer)?)
            }
        }
        Command::Rm(Names { names, json }) => remove(&client, &names, json)?,
        Command::Apply => plan(&parse_as(
            &client,
            client.send("POST", "/plan/apply", &Value::Null)?,
        )?),
        Command::History(History { subject, limit, json }) => {
            let subject = subject
                .map(|subject| format!("&subject={}", escape(&subject)))
                .unwrap_or_default();
            let answer = client.get(&format!("/domain/history?limit={limit}{subject}"))?;
            if json {
                pretty(&answer)
            } else {
                history(&parse_as(&client, answer)?)
            }
        }
    };
    terminal::print(&out)?;
    Ok(ExitCode::SUCCESS)
}

/// Removes intents in the given order.
fn remove(client: &Client, names: &[String], json: bool) -> Result<String, CliError> {
    let mut out = String::new();
    let mut remaining = Value::Null;
    for name in names {
        let answer = client.send("DELETE", &format!("/intents/{}", escape(name)), &Value::Null);
        remaining = answer.map_err(|error| match out.is_empty() {
            true => explain_error(error),
            false => CliError::new(format!("{}; those before it were removed", explain_error(error))),
        })?;
        out.push_str(&format!("{name} is removed\n"));
    }
    Ok(if json { pretty(&remaining) } else { out })
}

/// Stops or starts all INT and waits for the devices. Exit code 1 if not all of them followed in time.
fn stop_or_start(client: &Client, stop: bool, limit: Duration) -> Result<ExitCode, CliError> {
    let path = if stop { "/domain/stop" } else { "/domain/start" };
    let mut state: DomainView = parse_as(client, client.send("POST", path, &Value::Null)?)?;
    let is_done = progress::wait_for_devices(client, &mut state, limit, Terminal::stderr().interactive)?;
    terminal::print(&domain(&state, is_done))?;
    Ok(if is_done || limit.is_zero() {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(1)
    })
}

/// Rewords an API error for the command line: options instead of JSON keys, commands instead of URL paths.
fn explain_error(error: ClientError) -> CliError {
    let ClientError::Refused { status, message } = error else {
        return error.into();
    };
    let message = match (status, split_option(&message)) {
        (400, Some((option, rest))) => format!("{option}: {rest}"),
        (404, _) if message.contains("no intent") => format!("{message} (`hopwise intent list`)"),
        (412, _) if message.contains("already") => format!("{message} (--replace)"),
        _ => return ClientError::Refused { status, message }.into(),
    };
    CliError::new(message)
}

/// Splits a message into the option for the key at its start, and the rest.
fn split_option(message: &str) -> Option<(&'static str, &str)> {
    let (key, rest) = message.strip_prefix('`')?.split_once("`: ")?;
    let options = [
        ("name", "NAME"),
        ("match.src", "--src"),
        ("match.dst", "--dst"),
        ("match.sport", "--sport"),
        ("match.dport", "--dport"),
        ("match.proto", "--proto"),
        ("watch", "--watch"),
        ("mode", "--mode"),
        ("at.edges", "--edges"),
        ("at.between", "--between"),
        ("report.filter", "--filter"),
        ("report.rule", "--rule"),
        ("report.then.watch", "--then"),
        ("report.then.match", "--then-match"),
        ("report.then.for", "--then-for"),
        ("until", "--until"),
    ];
    let is_threshold = key.starts_with("report.thresholds.");
    let option = options
        .into_iter()
        .find(|(key_name, _)| *key_name == key)
        .map(|(_, option)| option);
    option
        .or(is_threshold.then_some("--threshold"))
        .map(|option| (option, rest))
}

/// Adds intents and waits for their reports. Exit code 1 if reports of an intent did not arrive in time.
fn add(client: &Client, args: &Add) -> Result<ExitCode, CliError> {
    let bodies = match &args.file {
        None => {
            args.intent.note_if_all_flows();
            vec![args.intent.to_json()]
        }
        Some(file) => {
            let text = read::file(file).map_err(|error| {
                CliError::io(
                    format!("cannot read {}", file.display()),
                    error,
                    "name a readable TOML file",
                )
            })?;
            let settings = manager::intent::read_settings(&text, &file.to_string_lossy(), nic::time::now());
            let settings = settings.map_err(|error| CliError::new(error.to_string()))?;
            if settings.is_empty() {
                return Err(CliError::new(format!(
                    "{} has no [[intents]]; add one",
                    file.display()
                )));
            }
            settings
                .iter()
                .map(|settings| settings.show().to_written())
                .collect()
        }
    };
    let mut added: Vec<IntentView> = Vec::new();
    for body in &bodies {
        let result = condition(client, body, args.replace)
            .and_then(|condition| client.send_if(Some(&condition), "PUT", "/intents", body));
        let result = result.map_err(|error| match added.len() {
            0 => explain_error(error),
            count => CliError::new(format!(
                "{}; {count} of the file before it were added",
                explain_error(error)
            )),
        })?;
        added.push(parse_as(client, result)?);
    }
    let is_interactive = !args.json && Terminal::stderr().interactive;
    progress::wait(client, &mut added, Duration::from_secs(args.wait), is_interactive)?;
    let out = match args.json {
        true => pretty(&json!({"intents": added})),
        false => added.iter().map(show).collect::<Vec<_>>().join("\n"),
    };
    terminal::print(&out)?;
    let all_work = args.wait == 0
        || added
            .iter()
            .all(|intent| progress::has_reports(intent) || intent.state == "installed");
    Ok(if all_work {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(1)
    })
}

/// Returns the precondition of the request (If-Match): the intent is new or, with `--replace`, still has its current version.
fn condition(client: &Client, body: &Value, replace: bool) -> Result<Condition, ClientError> {
    let name = body.get("name").and_then(Value::as_str).filter(|_| replace);
    let Some(name) = name else {
        return Ok(Condition::IsNew);
    };
    match client.get(&format!("/intents/{}", escape(name))) {
        Ok(intent) => Ok(match intent.get("etag").and_then(Value::as_str) {
            Some(etag) => Condition::Has(etag.to_owned()),
            None => Condition::IsNew,
        }),
        Err(ClientError::Refused { status: 404, .. }) => Ok(Condition::IsNew),
        Err(error) => Err(error),
    }
}

fn parse_as<T: serde::de::DeserializeOwned>(client: &Client, value: Value) -> Result<T, CliError> {
    serde_json::from_value(value).map_err(|error| {
        CliError::new(format!(
            "the response of {} does not fit the API of this version: {error}",
            client.url()
        ))
    })
}

pub(super) fn pretty(value: &Value) -> String {
    terminal::json::escaped(&format!("{value:#}\n")).into_owned()
}

fn tone(state: &str) -> Tone {
    match state {
        "complete" | "in_sync" => Tone::Good,
        "seen" | "installed" => Tone::Strong,
        "refused" | "silent" => Tone::Bad,
        _ => Tone::Dim,
    }
}

fn list(intents: &[IntentView]) -> String {
    if intents.is_empty() {
        return "no intents; `hopwise intent add --help` shows how to add one\n".to_owned();
    }
    use Align::{Left, Right};
    let mut table = Table::new([
        ("INTENT", Left),
        ("STATE", Left),
        ("MODE", Left),
        ("FLOWS", Right),
        ("REPORTS/S", Right),
        ("", Left),
    ]);
    for intent in intents {
        table.row([
            intent.name.clone(),
            intent.state.clone(),
            intent.mode.clone().unwrap_or_else(|| "-".to_owned()),
            units::count(intent.flows),
            units::short(intent.rate),
            intent.text.clone(),
        ]);
    }
    table.render()
}

fn show(intent: &IntentView) -> String {
    let terminal = Terminal::stdout();
    let mut out = format!(
        "{}  {}  {}\n",
        terminal.paint(Tone::Strong, &intent.name),
        terminal.paint(tone(&intent.state), &intent.state),
        intent.text
    );
    let mut lines = describe::lines(intent);
    lines.extend(intent.rules.iter().map(|rule| ("active", rule.clone())));
    lines.push(("devices", intent.devices.join(", ")));
    let end = intent
        .end
        .map_or_else(String::new, |end| format!(", ends {}", units::date_time(end)));
    lines.push((
        "added",
        format!("{} by {}{end}", units::date_time(intent.added), intent.by),
    ));
    if let Some(parent) = &intent.parent {
        lines.push(("of", format!("{parent}, whose rule became true")));
    }
    lines.extend(intent.notes.iter().map(|note| ("note", note.clone())));
    for (key, text) in lines {
        out.push_str(&format!("  {key:<11}{text}\n"));
    }
    out
}

fn plan(plan: &PlanView) -> String {
    let mut out = format!("{}\n", plan.text);
    for device in &plan.devices {
        out.push_str(&format!("\n{} (node {})\n", device.name, device.node));
        device
            .changes
            .iter()
            .for_each(|change| out.push_str(&format!("  {change}\n")));
    }
    if let Some(cost) = &plan.cost {
        let bytes: Vec<String> = cost.bytes.iter().map(ToString::to_string).collect();
        out.push_str(&format!("\nmode {}: {}\n", cost.mode, cost.instructions));
        if !bytes.is_empty() {
            out.push_str(&format!(
                "bytes in a packet on the last of 1, 2, … links: {}; goodput on the longest path {:.1} %\n",
                bytes.join(", "),
                cost.goodput * 100.0
            ));
        }
        match (cost.reports, cost.report_bits) {
            (Some(reports), Some(bits)) => out.push_str(&format!(
                "reports expected: {}/s, {:.3} Mb/s ({})\n",
                units::short(reports),
                bits / 1e6,
                cost.expectation
            )),
            _ => out.push_str(&format!("reports expected: {}\n", cost.expectation)),
        }
    }
    plan.notes
        .iter()
        .for_each(|note| out.push_str(&format!("note: {note}\n")));
    out
}

fn history(history: &ManagerHistoryView) -> String {
    use Align::Left;
    let mut table = Table::new([
        ("TIME", Left),
        ("WHO", Left),
        ("WHAT", Left),
        ("OF", Left),
        ("", Left),
    ]);
    for entry in history.history.iter().rev() {
        let cells = [&entry.by, &entry.action, &entry.subject, &entry.text].map(String::clone);
        table.row([units::date_time(entry.time)].into_iter().chain(cells));
    }
    table.render()
}

/// Formats the state of the domain. `is_done` is true if the devices have reached it.
fn domain(domain: &DomainView, is_done: bool) -> String {
    let state = match (domain.stopped, is_done) {
        (true, true) => "all INT is stopped",
        (true, false) => "INT is being stopped",
        (false, true) => "the intents are installed",
        (false, false) => "the intents are being installed",
    };
    let hint = if is_done {
        ""
    } else {
        "; `hopwise device list` shows the state of the others"
    };
    let devices = units::counted(domain.devices as u64, "device");
    format!("{state}: {} of {devices} in sync{hint}\n", domain.in_sync)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: Args,
    }

    #[test]
    fn an_intent_on_the_command_line_is_one_of_the_file() {
        let line = "intent add web --dst 10.0.0.0/8,10.1.0.0/16 --dport 80,8000-8999 --proto tcp --both-directions \
            --watch hop_latency --mode mx --sample 10 --edges leaf* --between h1 h9 --filter per_hop --threshold hop_latency=20us \
            --rule hops>2 --then queue_occupancy --then-for 1m --until 2h --priority 7";
        let Line { args } = Line::parse_from(line.split_whitespace());
        let Command::Add(add) = args.command else { panic!() };
        let body = add.intent.to_json();
        let intent = manager::intent::read_one(&settings::json::tree(&body), 0).unwrap();
        assert_eq!(
            (intent.name.as_str(), intent.priority, intent.both_directions),
            ("web", 7, true)
        );
        assert_eq!(
            (intent.flows.dport, intent.sample),
            (vec![(80, 80), (8000, 8999)], 10)
        );
        assert_eq!(intent.at.between, Some(("h1".to_owned(), "h9".to_owned())));
        assert_eq!(
            intent.reporting.thresholds.values().collect::<Vec<_>>(),
            [&20_000]
        );
        assert_eq!(intent.reporting.rule.as_deref(), Some("hops>2"));
        let then = intent.reporting.then.unwrap();
        assert_eq!((then.scope.name(), then.length), ("this flow", 60_000_000_000));
        let budget = |text: &str| {
            let line = Line::try_parse_from(["intent", "add", "all", "--budget", text]).ok()?;
            let Command::Add(add) = line.args.command else {
                panic!()
            };
            add.intent.to_json()["budget"].as_str().map(str::to_owned)
        };
        assert_eq!(budget("2000").as_deref(), Some("2000 reports/s"));
        assert_eq!(budget("9 events/s").as_deref(), Some("9 events/s"));
        assert_eq!(budget("9 apples"), None);
        let Line { args } = Line::parse_from(["intent", "add", "all"]);
        let Command::Add(add) = args.command else { panic!() };
        assert_eq!(
            add.intent.to_json(),
            json!({"name": "all", "watch": ["flow_path", "flow_latency", "hop_latency"]})
        );
        assert!(Line::try_parse_from(["intent", "add"]).is_err());
    }

    #[test]
    fn refusals_name_options_and_commands() {
        let text = |status, message: &str| {
            explain_error(ClientError::Refused {
                status,
                message: message.to_owned(),
            })
            .to_string()
        };
        assert_eq!(
            text(400, "`match.dport`: found the text \"x\"; write y"),
            "--dport: found the text \"x\"; write y"
        );
        assert_eq!(text(400, "`report.thresholds.hop_latency`: z"), "--threshold: z");
        assert_eq!(text(400, "something else"), "something else");
        assert_eq!(
            text(404, "there is no intent `a`; b"),
            "there is no intent `a`; b (`hopwise intent list`)"
        );
        assert_eq!(
            text(412, "there is an intent `a` already; c"),
            "there is an intent `a` already; c (--replace)"
        );
    }

    #[test]
    fn what_the_devices_have_not_done_is_not_said_to_be_done() {
        let view = |stopped, in_sync| {
            let text = format!(
                r#"{{"acting": true, "stopped": {stopped}, "dscp": 23, "l4_checksum": "update", "collectors": [],
                "devices": 2, "in_sync": {in_sync}, "longest_path": 1, "links": [], "contradictions": [], "hosts": []}}"#
            );
            serde_json::from_str(&text).unwrap()
        };
        assert_eq!(
            domain(&view(true, 2), true),
            "all INT is stopped: 2 of 2 devices in sync\n"
        );
        let waits = "INT is being stopped: 1 of 2 devices in sync; `hopwise device list` shows the state of the others\n";
        assert_eq!(domain(&view(true, 1), false), waits);
    }

    #[test]
    fn a_latency_without_a_unit_is_refused() {
        assert_eq!(
            threshold("hop_latency=20"),
            Err("20 has no unit; write hop_latency=20us or hop_latency=20ms".to_owned())
        );
        assert!(threshold("hop_latency=20us").is_ok() && threshold("queue_occupancy=20").is_ok());
    }
}
