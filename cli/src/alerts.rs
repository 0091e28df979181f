//! `hopwise alerts`: lists alerts (a rule and a flow for which it is true), acknowledges and silences them, through the API
//! of a running hopwise.

use std::process::ExitCode;

use serde_json::{Value, json};

use super::remote::{Api, fetch, names};
use terminal::text::json_line;
use terminal::{Align, CliError, Table, units};
use view::{AlertView, Alerts, Names, Silences};

/// Show alerts; acknowledge and silence them
///
/// An alert is a rule and a flow that it is true of. Talks to a running hopwise.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:
  hopwise alerts list                                  firing alerts, and those that ended in the last 15 minutes; exit code 1 if any is firing
  hopwise alerts list --from 7d                        likewise for the last week
  hopwise alerts acknowledge 9fad6c50414291bd --comment 'fan tray'
  hopwise alerts silence 'rule == \"deep queue\" and node == 101' --for 2h
  hopwise alerts silences                              list active silences
  hopwise alerts end 3                                 end a silence")]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand, Debug)]
enum Command {
    /// Show alerts, worst first
    List(List),
    /// Acknowledge an alert until it fires again
    Acknowledge(Acknowledge),
    /// Silence matching alerts for a time
    Silence(Silence),
    /// List the silences that are in force
    Silences(Show),
    /// End a silence before its time
    End(End),
}

#[derive(clap::Args, Debug)]
struct List {
    /// Beginning of the time: UTC such as 2026-11-26T03:10Z or 2026-11-26, an age such as 2h, or ns since 1970 (years 2000 to 2199)
    #[arg(long, value_name = "TIME", allow_hyphen_values = true, default_value = "15m", value_parser = super::store_query::time)]
    from: u64,

    /// List only firing alerts
    #[arg(long)]
    firing: bool,

    #[command(flatten)]
    show: Show,
}

#[derive(clap::Args, Debug)]
struct Acknowledge {
    /// ID of the alert, from `list`
    id: String,

    /// Comment to store with the acknowledgement
    #[arg(long, default_value = "")]
    comment: String,

    #[command(flatten)]
    api: Api,
}

#[derive(clap::Args, Debug)]
struct Silence {
    /// The alerts, by a filter of events, such as 'rule == slow and src in 10.0.1.0/24'
    filter: String,

    /// Duration of the silence
    #[arg(long = "for", value_name = "DURATION", default_value = "1h", value_parser = duration)]
    length: u64,

    /// Reason for the silence
    #[arg(long, default_value = "")]
    comment: String,

    #[command(flatten)]
    api: Api,
}

#[derive(clap::Args, Debug)]
struct End {
    /// Number of the silence, from `silences`
    id: u64,

    #[command(flatten)]
    api: Api,
}

#[derive(clap::Args, Debug)]
struct Show {
    /// JSON instead of a table
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    api: Api,
}

/// Runs `hopwise alerts`, and returns its exit code.
pub fn run(args: Args) -> Result<ExitCode, CliError> {
    match args.command {
        Command::List(args) => list(&args),
        Command::Acknowledge(Acknowledge { id, comment, api }) => {
            let body = json!({"id": id, "comment": comment});
            change(&api, "POST", "/alerts/acknowledge", &body)?;
            print(&format!("acknowledged {id}\n"))
        }
        Command::Silence(Silence {
            filter,
            length,
            comment,
            api,
        }) => {
            let body = json!({"filter": filter, "seconds": length, "comment": comment});
            let silence = change(&api, "POST", "/alerts/silences", &body)?;
            let until = silence["until"].as_u64().unwrap_or_default();
            print(&format!(
                "silence {} until {}\n",
                silence["id"],
                units::date_time(until)
            ))
        }
        Command::Silences(show) => silences(&show),
        Command::End(End { id, api }) => {
            change(&api, "DELETE", &format!("/alerts/silences/{id}"), &Value::Null)?;
            print(&format!("silence {id} has ended\n"))
        }
    }
}

fn list(args: &List) -> Result<ExitCode, CliError> {
    let state = if args.firing { "&state=firing" } else { "" };
    let path = format!("/alerts?from={}{state}", args.from);
    let client = args.show.api.client()?;
    let alerts: Alerts = fetch(&client, &path)?;
    if args.show.json {
        print(&json_line(&alerts)?)?;
    } else if alerts.alerts.is_empty() && !alerts.confirmed {
        print("no alert is stored; no collector has confirmed that nothing is wrong\n")?;
    } else if alerts.alerts.is_empty() {
        print("nothing is wrong\n")?;
    } else {
        print(&table(&alerts, &names(&client)))?;
    }
    Ok(if alerts.firing > 0 {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    })
}

fn table(alerts: &Alerts, names: &Names) -> String {
    let mut table = Table::new([
        ("id", Align::Left),
        ("state", Align::Left),
        ("rule", Align::Left),
        ("flow", Align::Left),
        ("where", Align::Left),
        ("value", Align::Right),
        ("since", Align::Left),
        ("times", Align::Right),
    ]);
    for alert in &alerts.alerts {
        table.row([
            alert.id.clone(),
            state(alert).to_owned(),
            alert.rule.clone(),
            alert.text.clone().unwrap_or_default(),
            location(alert, names),
            alert
                .value
                .map_or(String::new(), |value| value_text(alert, value)),
            alert
                .since
                .map_or_else(|| "not stored".to_owned(), units::date_time),
            units::count(alert.count),
        ]);
    }
    let mut text = table.render();
    if alerts.silent > 0 {
        text.push_str(&format!(
            "the flows of {} of {} have sent no reports for {} s or more: a rule stays true until a report shows that it is \
             false, or the flow expires\n",
            units::count(alerts.silent as u64),
            units::counted(alerts.firing as u64, "firing alert"),
            alerts.silent_after_s
        ));
    }
    if alerts.total > alerts.alerts.len() {
        text.push_str(&format!(
            "{} more are not shown\n",
            alerts.total - alerts.alerts.len()
        ));
    }
    if let Some(since) = alerts.known_since {
        text.push_str(&format!(
            "there are too many events of rules: before {}, alerts are missing\n",
            units::date_time(since)
        ));
    }
    text
}

fn location(alert: &AlertView, names: &Names) -> String {
    let interface = alert
        .interface
        .map(|interface| names.interface(alert.node, interface));
    let parts = [
        alert.node.map(|node| names.node(node)),
        interface.map(|interface| format!("interface {interface}")),
        alert.queue.map(|queue| format!("queue {queue}")),
    ];
    parts.into_iter().flatten().collect::<Vec<_>>().join(" ")
}

fn state(alert: &AlertView) -> &str {
    match (&*alert.state, &alert.silence, &alert.acknowledged) {
        ("firing", Some(_), _) => "silenced",
        ("firing", None, Some(_)) => "acknowledged",
        (state, ..) => state,
    }
}

fn value_text(alert: &AlertView, value: u64) -> String {
    match alert.metric.as_deref() {
        Some("flow_latency" | "hop_latency") => units::nanos(value),
        Some("link_utilization") => format!("{:.1} %", value as f64 / 1e4),
        Some("queue_occupancy" | "queue_congestion") => format!("{} device units", units::count(value)),
        _ => units::count(value),
    }
}

fn silences(show: &Show) -> Result<ExitCode, CliError> {
    let Silences { mut silences } = fetch(&show.api.client()?, "/alerts/silences")?;
    silences.retain(|silence| silence.active);
    if show.json {
        return print(&json_line(&Silences { silences })?);
    }
    if silences.is_empty() {
        return print("no active silences\n");
    }
    let columns = [
        ("silence", Align::Right),
        ("filter", Align::Left),
        ("until", Align::Left),
        ("by", Align::Left),
        ("comment", Align::Left),
    ];
    let mut table = Table::new(columns);
    for silence in silences {
        table.row([
            silence.id.to_string(),
            silence.filter,
            units::date_time(silence.until),
            silence.by,
            silence.comment,
        ]);
    }
    print(&table.render())
}

fn change(api: &Api, method: &str, path: &str, body: &Value) -> Result<Value, CliError> {
    api.client()?
        .send(method, path, body)
        .map_err(|error| CliError::new(error.to_string()))
}

fn print(text: &str) -> Result<ExitCode, CliError> {
    terminal::print(text)?;
    Ok(ExitCode::SUCCESS)
}

fn duration(text: &str) -> Result<u64, String> {
    super::store_query::seconds(text)
        .filter(|seconds| *seconds > 0)
        .ok_or_else(|| format!("invalid duration {text:?}; write one such as 30m, 2h or 7d"))
}

#[cfg(test)]
mod tests {
    use view::NamesView;

    use super::*;

    #[test]
    fn lengths_of_time_are_read() {
        let read = ["90s", "30m", "2h", "7d"].map(|text| duration(text).unwrap());
        assert_eq!(read, [90, 1_800, 7_200, 604_800]);
        for wrong in ["", "h", "2", "2w", "-1h", "0h", "99999999999999999999h", "é"] {
            assert!(duration(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_table_says_what_is_left_out() {
        let alert = |state: &'static str| AlertView {
            id: "9fad6c50414291bd".to_owned(),
            state: state.into(),
            rule: "slow".to_owned(),
            metric: Some("hop_latency".into()),
            value: Some(1_500),
            node: Some(101),
            queue: Some(2),
            count: 3,
            ..AlertView::default()
        };
        let silenced = AlertView {
            silence: Some(1),
            ..alert("firing")
        };
        let all = vec![alert("firing"), silenced, alert("resolved")];
        let names: NamesView = serde_json::from_value(json!({
            "nodes": [{"node": 101, "name": "leaf1", "interfaces": []}], "hosts": []}))
        .unwrap();
        let alerts = Alerts {
            alerts: all,
            total: 5,
            firing: 2,
            silent: 1,
            silent_after_s: 5,
            known_since: Some(0),
            ..Alerts::default()
        };
        let text = table(&alerts, &names.into());
        for part in [
            "1 of 2 firing alerts",
            "no reports for 5 s or more",
            "firing",
            "silenced",
            "resolved",
            "leaf1 queue 2",
            "1.50 us",
            "2 more are not shown",
            "alerts are missing",
        ] {
            assert!(text.contains(part), "{part} in {text}");
        }
    }

    #[test]
    fn an_alert_is_at_the_queue_of_a_port() {
        let names = Names::default();
        let place = |node, interface, queue| {
            let alert = AlertView {
                node,
                interface,
                queue,
                ..AlertView::default()
            };
            location(&alert, &names)
        };
        assert_eq!(place(Some(101), Some(2), Some(3)), "101 interface 2 queue 3");
        assert_eq!(place(Some(101), None, Some(3)), "101 queue 3");
        assert_eq!(place(Some(101), None, None), "101");
        assert_eq!(place(None, None, None), "");
    }
}
