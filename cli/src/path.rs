//! `hopwise path`: shows the path of a flow and the latency and queue of each hop, from a running hopwise or a store.

use std::{path::PathBuf, process::ExitCode};

use super::remote::{Api, fetch, names};
use config::{Settings, build};
use net::client::{Client, escape};
use terminal::text::json_line;
use terminal::{Align, CliError, Table, Terminal, Tone, plot, units};
use view::{FlowDetail, FlowView, Flows, HopView, Names};

/// Show the path of a flow, hop by hop
///
/// Queries a running hopwise, or with --dir the store itself. A part of the flow's text is enough; if several flows
/// match, they are listed. Exit code 1 if none matches.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:
  hopwise path '10.0.0.1:5000>10.0.0.2:80/17'
  hopwise path 10.0.0.1                      list every flow whose text contains this
  hopwise path 10.0.0.1:5000 --json")]
pub struct Args {
    /// The flow, for example "10.0.0.1:5000>10.0.0.2:80/17", or a part of it
    pub(crate) flow: String,

    /// One JSON object per matching flow
    #[arg(long)]
    pub(crate) json: bool,

    /// Directory of a store to read instead of querying a running hopwise
    #[arg(long, value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,

    /// With --dir: configuration file with the names of nodes and hosts
    #[arg(short, long, value_name = "FILE", requires = "dir")]
    pub(crate) config: Option<PathBuf>,

    /// Maximum number of flows
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) limit: u32,

    #[command(flatten)]
    pub(crate) api: Api,
}

/// Runs `hopwise path`, and returns its exit code.
pub fn run(args: Args) -> Result<ExitCode, CliError> {
    let (flows, names) = match &args.dir {
        Some(dir) => (
            super::stored::flows(dir, &args.flow, args.limit)?,
            match &args.config {
                Some(file) => build::names(&Settings::load(Some(file))?),
                None => Names::default(),
            },
        ),
        None => {
            let client = args.api.client()?;
            (fetch_flows(&client, &args.flow, args.limit)?, names(&client))
        }
    };
    if flows.is_empty() {
        terminal::note(format_args!(
            "no flow matches `{}`; `hopwise top` lists the latest flows",
            args.flow
        ));
        return Ok(ExitCode::from(1));
    }
    let mut out = String::new();
    if args.json {
        for flow in &flows {
            out.push_str(&json_line(flow)?);
        }
    } else if let [flow] = &flows[..] {
        out = render(flow, &names, Terminal::stdout());
    } else {
        out = list(&flows, &names);
    }
    terminal::print(&out)?;
    Ok(ExitCode::SUCCESS)
}

/// Requests the matching flows. If the text is exactly one flow, or only one matches, returns that flow with its hops.
fn fetch_flows(client: &Client, text: &str, limit: u32) -> Result<Vec<FlowDetail>, CliError> {
    let Flows { mut flows, .. } = fetch(client, &format!("/flows?limit={limit}&filter={}", escape(text)))?;
    if let Some(index) = flows.iter().position(|flow| flow.text == text) {
        flows = vec![flows.swap_remove(index)];
    }
    if let [flow] = &flows[..] {
        return Ok(vec![fetch(client, &format!("/flows/{}", flow.id))?]);
    }
    Ok(flows
        .into_iter()
        .map(|flow| FlowDetail {
            flow,
            ..FlowDetail::default()
        })
        .collect())
}

/// Formats several flows, one per line.
fn list(flows: &[FlowDetail], names: &Names) -> String {
    use Align::{Left, Right};
    let mut table = Table::new([
        ("FLOW", Left),
        ("PATH", Left),
        ("LATENCY", Right),
        ("REPORTS", Right),
    ]);
    for FlowDetail { flow, .. } in flows {
        table.row([
            flow.text.clone(),
            names.path(&flow.path),
            flow.flow_latency.map_or("-".into(), units::nanos),
            units::count(flow.reports),
        ]);
    }
    table.render()
}

/// Formats one flow: its path as a drawing, its latency and reports, and a table of hops.
fn render(detail: &FlowDetail, names: &Names, terminal: Terminal) -> String {
    let flow = &detail.flow;
    let mut out = format!("{}\n\n", terminal.paint(Tone::Strong, &flow.text));
    out.push_str(&format!("  {}\n\n", path_line(flow, names)));
    let latency = flow.flow_latency.map_or("unknown".into(), units::nanos);
    let basis = Some(&*flow.basis).filter(|basis| !matches!(*basis, "" | "measured"));
    let basis = basis.filter(|_| flow.flow_latency.is_some());
    let notes: Vec<String> = basis
        .map(|basis| explain(basis).to_owned())
        .into_iter()
        .chain(parts(detail))
        .collect();
    out.push_str(&format!(
        "  latency {latency}{} · {} · last seen {}\n",
        match notes.is_empty() {
            true => String::new(),
            false => format!(" ({})", notes.join("; ")),
        },
        units::counted(flow.reports, "report"),
        units::date_time(flow.last_seen)
    ));
    if flow.truncated {
        out.push_str(&format!(
            "  path truncated: {} of {} hops are stored, because the table of hops is full\n",
            detail.hops.len(),
            flow.path_length
        ));
    }
    let table = hops(detail, names);
    if !table.is_empty() {
        out.push('\n');
        out.push_str(&table.indented(2).render());
    }
    let has_queue = |hop: &HopView| hop.queue_occupancy.or(hop.latest_queue_occupancy).is_some();
    if detail.hops.iter().any(has_queue) {
        out.push_str("\n  OCCUPANCY and QUEUE NOW are in device units.\n");
    }
    out
}

/// Returns the shares of nodes and links in a latency that was measured from end to end, or `None` if a hop's latency is
/// unknown or the hops' values are of other packets.
fn parts(detail: &FlowDetail) -> Option<String> {
    let flow = &detail.flow;
    if !matches!(&*flow.basis, "" | "measured" | "corrected") {
        return None;
    }
    let hops = detail.hops.iter().map(|hop| hop.hop_latency);
    let nodes: u64 = hops.sum::<Option<u64>>().filter(|nodes| *nodes > 0)?;
    let links = flow.flow_latency?.checked_sub(nodes)?;
    Some(format!(
        "nodes {}, links {}",
        units::nanos(nodes),
        units::nanos(links)
    ))
}

/// Draws a path as `10.0.0.1 ─ 101 ─ 102 ─ 10.0.0.2`, with names instead of ids and addresses where known.
fn path_line(flow: &FlowView, names: &Names) -> String {
    let src = names.host(&flow.flow.src);
    let dst = names.host(&flow.flow.dst);
    if flow.path.is_empty() {
        return format!("{src} ─ … ─ {dst}  (no report with a path)");
    }
    let mut names_on_path = vec![src];
    names_on_path.extend(
        flow.path
            .iter()
            .map(|node| node.map_or("?".to_string(), |node| names.node(node))),
    );
    names_on_path.push(dst);
    names_on_path.join(" ─ ")
}

fn explain(basis: &str) -> &str {
    match basis {
        "hop_sum" => "sum of the hops, without links",
        "corrected" => "corrected by an estimated clock offset",
        "unsynchronised" => "the clocks disagree; not usable as a latency",
        "hop_limit" => "joined from postcards, in the order of the packet's hop limit",
        "timestamps" => "joined from postcards, in the order of their timestamps",
        "topology" => "joined from postcards, in the order of the links of the configuration",
        other => other,
    }
}

fn hops(flow: &FlowDetail, names: &Names) -> Table {
    use Align::{Left, Right};
    let slowest = flow
        .hops
        .iter()
        .filter_map(|hop| hop.hop_latency)
        .max()
        .unwrap_or(0);
    let columns = [
        ("NODE", Right),
        ("IN", Right),
        ("OUT", Right),
        ("LATENCY", Right),
        ("", Left),
    ];
    let values = [
        ("QUEUE", Right),
        ("OCCUPANCY", Right),
        ("LINK", Right),
        ("QUEUE NOW", Left),
    ];
    let mut table = Table::new(columns.into_iter().chain(values));
    for hop in &flow.hops {
        table.row([
            hop.node.map_or("?".into(), |node| names.node(node)),
            or_dash(
                hop.ingress_if
                    .map(|interface| names.interface(hop.node, interface)),
            ),
            or_dash(
                hop.egress_if
                    .map(|interface| names.interface(hop.node, interface)),
            ),
            // `~`: the collector stores an implausible latency rounded to 18 significant bits.
            or_dash(
                hop.hop_latency.map(units::nanos).or(hop
                    .implausible_latency
                    .map(|latency| format!("~{}", units::nanos(latency)))),
            ),
            match hop.implausible_latency {
                Some(_) => "implausible".into(),
                None => plot::bar(hop.hop_latency.unwrap_or(0) as f64, slowest as f64, 20),
            },
            or_dash(hop.queue.map(|queue| queue.to_string())),
            or_dash(hop.queue_occupancy.map(units::count)),
            or_dash(
                hop.link_utilization
                    .map(|share| format!("{:.1} %", share * 100.0)),
            ),
            or_dash(hop.latest_queue_occupancy.map(|latest| {
                let age = hop.latest_queue_age_s.unwrap_or(0);
                format!("{} ({age} s ago)", units::count(latest))
            })),
        ]);
    }
    table
}

fn or_dash(value: Option<String>) -> String {
    value.unwrap_or_else(|| "-".into())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn flow() -> FlowDetail {
        serde_json::from_value(json!({"id": "0a", "text": "10.0.1.1:5000>10.0.2.2:6000/17", "path": [101, 102, null],
            "flow": {"src": "10.0.1.1", "dst": "10.0.2.2", "sport": 5000, "dport": 6000, "proto": 17},
            "flow_latency": 14_000_000, "basis": "hop_sum", "reports": 500, "first_seen": 1, "last_seen": 1_000_000_000,
            "hops": [{"node": 101, "ingress_if": 1, "egress_if": 2, "queue": 0, "hop_latency": 1_000_000, "queue_occupancy": 3,
                    "latest_queue_occupancy": 0, "latest_queue_age_s": 2},
                {"node": 102, "hop_latency": 13_000_000, "queue": 0, "queue_occupancy": 200, "link_utilization": 0.5},
                {"node": 104, "implausible_latency": 3_600_000_000_000_u64}, {"node": null}]}))
        .unwrap()
    }

    #[test]
    fn a_path_is_drawn_with_its_latencies() {
        assert_eq!(
            render(&flow(), &Names::default(), Terminal::plain()),
            "10.0.1.1:5000>10.0.2.2:6000/17

  10.0.1.1 ─ 101 ─ 102 ─ ? ─ 10.0.2.2

  latency 14.0 ms (sum of the hops, without links) · 500 reports · last seen 1970-01-01 00:00:01.000Z

  NODE  IN  OUT  LATENCY                        QUEUE  OCCUPANCY    LINK  QUEUE NOW
   101   1    2  1.00 ms  █▌                        0          3       -  0 (2 s ago)
   102   -    -  13.0 ms  ████████████████████      0        200  50.0 %  -
   104   -    -  ~3600 s  implausible               -          -       -  -
     ?   -    -        -                            -          -       -  -

  OCCUPANCY and QUEUE NOW are in device units.
"
        );
    }

    #[test]
    fn a_latency_from_end_to_end_is_split_into_nodes_and_links() {
        let mut state = flow();
        state.flow.basis = "measured".into();
        assert_eq!(parts(&state), None, "a hop's latency is unknown");
        state.hops.truncate(2);
        state.flow.flow_latency = Some(14_500_000);
        assert_eq!(parts(&state).as_deref(), Some("nodes 14.0 ms, links 500 us"));
        let text = render(&state, &Names::default(), Terminal::plain());
        assert!(
            text.contains("  latency 14.5 ms (nodes 14.0 ms, links 500 us) · 500 reports"),
            "{text}"
        );
        state.flow.flow_latency = Some(13_000_000);
        assert_eq!(parts(&state), None, "the hops' values are of other packets");
    }

    #[test]
    fn a_flow_of_postcards_has_hops_and_no_path() {
        let mut state = flow();
        state.flow.path.clear();
        assert_eq!(
            path_line(&state.flow, &Names::default()),
            "10.0.1.1 ─ … ─ 10.0.2.2  (no report with a path)"
        );
        assert!(render(&state, &Names::default(), Terminal::plain()).contains("\n   101   1    2  1.00 ms"));
    }

    #[test]
    fn several_flows_are_listed() {
        assert_eq!(
            list(&[flow()], &Names::default()),
            "FLOW                            PATH       LATENCY  REPORTS
10.0.1.1:5000>10.0.2.2:6000/17  101>102>?  14.0 ms      500
"
        );
    }
}
