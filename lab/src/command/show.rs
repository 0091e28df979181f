//! Output of `hopwise lab`: tables for people, JSON for programs.

use std::{net::SocketAddr, process::ExitCode};

use serde_json::{Value, json};

use crate::down::{self, RemovalCounts};
use crate::topology::{Host, Node, Topology, attached_switch};
use crate::up::{CreatedLab, DEFAULT_API};
use crate::{file::P4Program, managed, remote::Lab, restart::RestartTimes, state, traffic::PairStats};
use terminal::{Align, CliError, Table, Terminal, Tone, units};

pub(super) fn line(text: &str) -> Result<(), CliError> {
    print(&format!("{text}\n"))
}

fn print(text: &str) -> Result<(), CliError> {
    terminal::print(text)
}

fn print_json(value: &Value) -> Result<(), CliError> {
    print(&terminal::json::escaped(&format!("{value:#}\n")))
}

/// Prints the nodes of a new lab, its URL, and commands to try next.
pub(super) fn print_created(created: &CreatedLab) -> Result<(), CliError> {
    let CreatedLab {
        lab,
        has_web_page,
        address_in_use,
    } = created;
    let topology = &lab.topology;
    let terminal = Terminal::stdout();
    let sizes = [
        ("host", topology.hosts.len()),
        ("switch", topology.switches.len()),
        ("link", topology.links.len()),
    ];
    let sizes = sizes.map(|(noun, count)| count_text(count, noun));
    let mut out = format!("The lab {} is up: {}.\n\n", topology.name, sizes.join(", "));
    out += &hosts(topology);
    out.push('\n');
    out += &switches(topology);
    let pages = if *has_web_page {
        "The web page is at"
    } else {
        "This build has no web page; the API is at"
    };
    let url = terminal.paint(Tone::Strong, &format!("{}/", lab.state.api));
    out += &format!("\n{pages} {url}\n{}", api_hint(&lab.state.api, *address_in_use));
    out += &format!(
        "Configurations and logs of all processes: {}/\n\n",
        lab.directory.path().display()
    );
    out += "Try next (as root):\n";
    for (command, remark) in next_steps(topology) {
        out += &format!("  hopwise lab {command:<46} {remark}\n");
    }
    print(&out)
}

/// Returns what a user must know if the API is not at the address that commands use by default; otherwise an empty text.
fn api_hint(url: &str, in_use: Option<SocketAddr>) -> String {
    let mut out = in_use.map_or(String::new(), |address| {
        format!("({address} is in use by another program; `hopwise lab up --api ADDRESS FILE` chooses another address.)\n")
    });
    if url != format!("http://{}", SocketAddr::from(DEFAULT_API)) {
        out += &format!(
            "Add `--api {url}` to `hopwise events`, `path`, `intent` and other commands that query this lab.\n"
        );
    }
    out
}

fn count_text(count: usize, noun: &str) -> String {
    let plural = if noun.ends_with("ch") || noun.ends_with('s') {
        "es"
    } else {
        "s"
    };
    format!("{count} {noun}{}", if count == 1 { "" } else { plural })
}

/// Returns commands to try, with names from this lab, each with a remark.
fn next_steps(topology: &Topology) -> Vec<(String, &'static str)> {
    let (Some(first), Some(last)) = (topology.hosts.first(), topology.hosts.last()) else {
        return Vec::new();
    };
    let from = &first.name;
    let to = &last.name;
    let address = last
        .addresses
        .first()
        .map_or_else(String::new, |address| address.ip.to_string());
    let link = topology
        .links
        .iter()
        .find(|link| link.ends.iter().all(|end| matches!(end, Node::Switch(_))))
        .or_else(|| topology.links.first());
    let link = link.map_or("", |link| link.interfaces[0].as_str());
    vec![
        (
            format!("exec {from} -- ping -c 3 {address}"),
            "through the switches; the hosts see no INT",
        ),
        (
            format!("traffic flow {from} {to} --rate {} --for 30", rate(topology)),
            "see its path: Topology, Flow",
        ),
        (
            format!("traffic burst {from} {to} --packets 300"),
            "see the queue: Events",
        ),
        match (topology.has_bmv2(), topology.p4_program()) {
            (true, P4Program::Int) => (
                "mode mx".to_owned(),
                "each switch reports its own record; also md, postcard",
            ),
            (true, P4Program::Sf) => ("mode off".to_owned(), "nothing is measured, until `mode sf`"),
            // An intent does not choose INT 1.0.
            (false, _) if managed::is_managed(&topology.file) => (
                "mode sf".to_owned(),
                "one record per packet; also md, mx, postcard",
            ),
            (false, _) => (
                "mode sf".to_owned(),
                "one record per packet; also md, md10, mx, postcard",
            ),
        },
        match topology.switches.first().filter(|_| topology.has_bmv2()) {
            Some(switch) => (
                format!("fault restart {}", switch.name),
                "the manager configures it again",
            ),
            None => (format!("fault loss {link} 2%"), "undo: hopwise lab fault clear"),
        },
        (
            format!("capture {link} lab.pcap"),
            "packets of the link, for Wireshark",
        ),
        ("down".to_owned(), "remove everything"),
    ]
}

/// Returns a rate that the switches can forward. BMv2 is a model: it forwards about a hundred packets per second on a
/// busy machine.
fn rate(topology: &Topology) -> &'static str {
    if topology.has_bmv2() {
        "500kbit/s"
    } else {
        "20Mbit/s"
    }
}

fn addresses(host: &Host) -> Vec<String> {
    host.addresses
        .iter()
        .map(|address| address.ip.to_string())
        .collect()
}

fn hosts(topology: &Topology) -> String {
    let mut table = Table::new([
        ("HOST", Align::Left),
        ("ADDRESS", Align::Left),
        ("SWITCH", Align::Left),
    ])
    .indented(2);
    for host in &topology.hosts {
        table.row([
            host.name.clone(),
            addresses(host).join(", "),
            topology.switches[attached_switch(topology, host)].name.clone(),
        ]);
    }
    table.render()
}

fn switches(topology: &Topology) -> String {
    let mut table = Table::new([
        ("SWITCH", Align::Left),
        ("NODE", Align::Right),
        ("PORTS", Align::Left),
    ])
    .indented(2);
    for switch in &topology.switches {
        let ports: Vec<String> = switch
            .ports
            .iter()
            .map(|port| format!("{} to {}", port.number, topology.node_name(port.peer)))
            .collect();
        table.row([switch.name.clone(), switch.node.to_string(), ports.join(", ")]);
    }
    table.render()
}

/// Prints how many processes and namespaces were removed.
pub(super) fn print_removed(lab: &str, removed: &RemovalCounts) -> Result<(), CliError> {
    let RemovalCounts {
        processes,
        namespaces,
    } = removed;
    line(&format!(
        "Removed the lab {lab}: {processes} processes ended, {namespaces} namespaces removed."
    ))
}

/// Prints the labs of this machine.
pub(super) fn list(labs: &[String], as_json: bool) -> Result<(), CliError> {
    if as_json {
        return print_json(&labs.iter().map(|lab| {
                        let state = state::Directory::for_lab(lab).state();
            json!({ "name": lab, "complete": state.is_some(), "api": state.as_ref().map(|state| &state.api), "file": state.map(|state| state.file) })
        }).collect());
    }
    if labs.is_empty() {
        return line("There is no lab; make one with `hopwise lab up FILE`.");
    }
    let mut table = Table::new([
        ("LAB", Align::Left),
        ("PAGES", Align::Left),
        ("FILE", Align::Left),
    ]);
    for lab in labs {
        match state::Directory::for_lab(lab).state() {
            Some(state) => table.row([lab.clone(), format!("{}/", state.api), state.file]),
            None => table.row([
                lab.clone(),
                "incomplete: hopwise lab down".to_owned(),
                String::new(),
            ]),
        }
    }
    print(&table.render())
}

/// Prints how long a switch took to restart and to get its rules back.
pub(super) fn print_restarted(
    switch: &str,
    RestartTimes { start, recovery }: RestartTimes,
) -> Result<(), CliError> {
    let recovery = match recovery {
        Some(time) => format!(
            "; {} ms later the manager had installed its rules",
            time.as_millis()
        ),
        None => String::new(),
    };
    line(&format!(
        "{switch} was killed and started again in {} ms{recovery}.",
        start.as_millis()
    ))
}

/// Prints the state of a lab. Exit code 1 if one of its processes does not answer.
pub(super) fn status(name: Option<&str>, as_json: bool) -> Result<ExitCode, CliError> {
    let lab = Lab::open(name)?;
    let processes = down::processes(&lab.directory)?.len();
    let collector = lab.collector("/status");
    let switches: Vec<Result<Value, CliError>> = (0..lab.topology.switches.len())
        .map(|index| lab.switch(index))
        .collect();
    let is_healthy = collector.is_ok() && switches.iter().all(Result::is_ok);
    if as_json {
        print_json(&status_json(&lab, processes, collector, switches))?;
    } else {
        print(&status_text(&lab, processes, &collector, &switches))?;
    }
    Ok(ExitCode::from(u8::from(!is_healthy)))
}

fn answer(answer: Result<Value, CliError>) -> Value {
    match answer {
        Ok(value) => json!({ "reachable": true, "status": value }),
        Err(error) => json!({ "reachable": false, "error": error.to_string() }),
    }
}

fn status_json(
    lab: &Lab,
    processes: usize,
    collector: Result<Value, CliError>,
    switches: Vec<Result<Value, CliError>>,
) -> Value {
    let topology = &lab.topology;
    let hosts = topology.hosts.iter().map(|host| {
        json!({ "name": host.name, "addresses": addresses(host), "switch": topology.switches[attached_switch(topology, host)].name,
                "namespace": lab.namespace(&host.name) })
    });
    let links = topology.links.iter().map(|link| {
        json!({ "name": link.interfaces[0], "between": link.ends.map(|end| topology.node_name(end)), "interfaces": link.interfaces, "mtu": link.mtu })
    });
    let status = topology.switches.iter().zip(switches).map(|(switch, status)| {
        json!({ "name": switch.name, "node": switch.node, "namespace": lab.namespace(&switch.name), "process": answer(status) })
    });
    let faults = lab.state.conditions.descriptions();
    json!({
        "name": topology.name, "file": lab.state.file, "api": lab.state.api, "mode": lab.state.conditions.mode, "faults": faults,
        "processes": processes, "directory": lab.directory.path(),
        "hosts": hosts.collect::<Vec<_>>(), "links": links.collect::<Vec<_>>(), "switches": status.collect::<Vec<_>>(),
        "collector": answer(collector),
    })
}

fn status_text(
    lab: &Lab,
    processes: usize,
    collector: &Result<Value, CliError>,
    switches: &[Result<Value, CliError>],
) -> String {
    let topology = &lab.topology;
    let mut out = format!(
        "lab {}, made of {}, {}\n\n",
        topology.name,
        lab.state.file,
        count_text(processes, "process")
    );
    out += &hosts(topology);
    out.push('\n');
    out += &self::switches(topology);
    out += &format!("\n  measuring: {}\n", lab.state.conditions.mode_text());
    let mut faults = lab.state.conditions.descriptions();
    if faults.is_empty() {
        faults.push("none".to_owned());
    }
    out += &format!("  faults: {}\n", faults.join("; "));
    for state in lab.managed() {
        out += &format!("  {state}\n");
    }
    match collector {
        Ok(status) => {
            let received = status["loss_budget"]
                .as_array()
                .and_then(|stages| stages.iter().find(|stage| stage["stage"] == "decode")?["in"].as_u64());
            out += &format!(
                "  collector: {}/, {} datagrams of reports\n",
                lab.state.api,
                units::count(received.unwrap_or(0))
            );
        }
        Err(error) => out += &format!("  collector: {error}\n"),
    }
    for (switch, status) in topology.switches.iter().zip(switches) {
        if let Err(error) = status {
            out += &format!(
                "  {}: does not answer ({error}); its log: {}\n",
                switch.name,
                lab.directory.file(&format!("{}.log", switch.name)).display()
            );
        }
    }
    out
}

/// Prints loss and latency of generated traffic. Exit code 1 if no packet arrived.
pub(super) fn traffic(stats: &[PairStats], as_json: bool) -> Result<ExitCode, CliError> {
    let sent: u64 = stats.iter().map(|pair| pair.sent).sum();
    let received: u64 = stats.iter().map(|pair| pair.received).sum();
    let lost: u64 = stats.iter().map(PairStats::lost).sum();
    let refused: u64 = stats.iter().map(|pair| pair.refused).sum();
    let reordered: u64 = stats.iter().map(|pair| pair.reordered).sum();
    if as_json {
        let pairs: Vec<Value> = stats.iter().map(|pair| {
            json!({ "from": pair.between[0], "to": pair.between[1], "sent": pair.sent, "refused": pair.refused, "received": pair.received,
                    "lost": pair.lost(), "reordered": pair.reordered, "delay_ns": latencies(pair).map(|[min, mean, max]| json!({ "min": min, "mean": mean, "max": max })) })
        }).collect();
        print_json(
            &json!({ "sent": sent, "refused": refused, "received": received, "lost": lost, "reordered": reordered, "pairs": pairs }),
        )?;
    } else {
        print(&stats_table(stats))?;
        let refusal_note = if refused > 0 {
            format!(" The senders' kernels rejected {} more.", units::count(refused))
        } else {
            String::new()
        };
        line(&format!(
            "\n{} packets sent, {} received, {} lost, {} reordered.{refusal_note}",
            units::count(sent),
            units::count(received),
            units::count(lost),
            units::count(reordered)
        ))?;
    }
    Ok(ExitCode::from(u8::from(received == 0)))
}

/// Returns minimum, mean and maximum latency, ns; `None` if no packet arrived.
fn latencies(stats: &PairStats) -> Option<[u64; 3]> {
    let mean = stats.latency_sum.checked_div(stats.received.into())?;
    Some([
        stats.min_latency,
        u64::try_from(mean).unwrap_or(u64::MAX),
        stats.max_latency,
    ])
}

fn stats_table(stats: &[PairStats]) -> String {
    let right = [
        "SENT",
        "RECEIVED",
        "LOST",
        "REORDERED",
        "MIN",
        "MEAN",
        "MAX LATENCY",
    ]
    .map(|name| (name, Align::Right));
    let mut table = Table::new(
        [("FROM", Align::Left), ("TO", Align::Left)]
            .into_iter()
            .chain(right),
    );
    for pair in stats {
        let counts = [pair.sent, pair.received, pair.lost(), pair.reordered].map(units::count);
        let times = latencies(pair).map_or([const { String::new() }; 3], |times| times.map(units::nanos));
        table.row(pair.between.clone().into_iter().chain(counts).chain(times));
    }
    table.render()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SWITCHES: &str = "name = \"t\"\n[collector]\n[[switches]]\nname = \"s1\"\n[[switches]]\nname = \"s2\"\n\
        [[hosts]]\nname = \"h1\"\naddress = \"10.0.0.1\"\n[[hosts]]\nname = \"h2\"\naddress = \"10.0.0.2\"\n\
        [[links]]\nbetween = [\"h1\", \"s1\"]\n[[links]]\nbetween = [\"h2\", \"s2\"]\n[[links]]\nbetween = [\"s1\", \"s2\"]\n";

    /// The modes that a new lab suggests.
    fn suggested(text: &str) -> String {
        let topology = crate::load::parse_example(text);
        let steps = next_steps(&topology).into_iter();
        steps
            .filter(|(command, _)| command.starts_with("mode"))
            .map(|(command, remark)| format!("{command}: {remark}"))
            .collect()
    }

    #[test]
    fn only_modes_that_the_lab_accepts_are_suggested() {
        // Without intents in the file, the manager has one of its own.
        assert_eq!(
            suggested(SWITCHES),
            "mode sf: one record per packet; also md, mx, postcard"
        );
        let watched = format!("{SWITCHES}[[watch]]\nmode = \"md\"\n");
        assert!(suggested(&watched).ends_with("also md, md10, mx, postcard"));
    }

    #[test]
    fn commands_for_an_api_at_another_address_are_explained() {
        assert_eq!(api_hint("http://127.0.0.1:8080", None), "");
        let hint = api_hint("http://127.0.0.1:39485", Some(DEFAULT_API.into()));
        assert_eq!(
            hint,
            "(127.0.0.1:8080 is in use by another program; `hopwise lab up --api ADDRESS FILE` chooses another address.)\n\
             Add `--api http://127.0.0.1:39485` to `hopwise events`, `path`, `intent` and other commands that query this lab.\n"
        );
    }
}
