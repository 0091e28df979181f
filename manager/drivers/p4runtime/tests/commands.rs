//! Entries as commands of `simple_switch_CLI`: as text, and for the program itself where it is on PATH or in `HOPWISE_P4_TOOLS`.

#![allow(clippy::unwrap_used, reason = "a test panics")]

mod support;

use std::io::Write;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use detect::Metric;
use manager::device::{Filter, FilterAlgorithm, Mode, Rule, Rules, Watch};
use manager::flows::FlowMatch;
use p4runtime::commands::commands;
use support::{info, local, shipped};

fn rules() -> Rules {
    let watch = |key, mode| {
        Rule::Watch(Arc::new(Watch {
            key,
            mode,
            bits: 0xa000,
            hops: 8,
            sample: 1,
            drops: true,
        }))
    };
    let to = |dst: &str| FlowMatch {
        dst: dst.parse().ok(),
        ..FlowMatch::default()
    };
    [
        Rule::Session("192.0.2.9:32766".parse().unwrap()),
        Rule::Sink(1),
        Rule::Instruction(0),
        Rule::Instruction(2),
        Rule::Filter(Arc::new(Filter {
            key: to("10.1.0.0/16"),
            algorithm: FilterAlgorithm::PerHop,
            metric: Metric::QueueOccupancy,
            threshold: 64,
            rule: None,
        })),
        Rule::Forwarding,
        Rule::Source(1),
        watch(
            FlowMatch {
                dport: (443, 450),
                proto: Some(6),
                ..to("10.1.0.0/16")
            },
            Mode::Md,
        ),
        watch(to("fd00:1::/32"), Mode::Postcard),
    ]
    .into()
}

fn written() -> String {
    commands(&shipped("hopwise-int"), &info("hopwise-int"), &local(), &rules()).unwrap()
}

#[test]
fn rules_of_our_program_are_these_commands() {
    assert_eq!(written(), EXPECTED);
}

#[test]
fn what_the_commands_cannot_say_is_refused() {
    let text = p4runtime::map::shipped("hopwise-int").unwrap();
    let text = text.replacen("clone_session = 500", "clone_session = 500\ntruncate = 128", 1);
    let map = p4runtime::map::read(&text, "m.toml").unwrap();
    let error = commands(&map, &info("hopwise-int"), &local(), &rules()).unwrap_err();
    assert!(error.contains("cannot truncate copies"), "{error}");
    let error = commands(&shipped("onos-int"), &info("geant-int"), &local(), &Rules::new()).unwrap_err();
    assert!(error.starts_with("the map does not fit the program: "), "{error}");
}

fn tool(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let more = std::env::var_os("HOPWISE_P4_TOOLS")
        .into_iter()
        .map(PathBuf::from);
    std::env::split_paths(&path)
        .chain(more)
        .map(|folder| folder.join(name))
        .find(|file| file.is_file())
}

struct Switch(Child);

impl Drop for Switch {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The program takes each command, twice in a row, and the tables then have what the commands say.
#[test]
fn bmv2_takes_the_commands() {
    let (Some(switch), Some(cli)) = (tool("simple_switch"), tool("simple_switch_CLI")) else {
        // Not by `println`, which the test harness captures.
        let _ = std::io::stderr()
            .write_all(b"SKIPPED bmv2_takes_the_commands: simple_switch_CLI is not installed\n");
        return;
    };
    let json = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../p4/v1model/int.json");
    let port = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port()
        .to_string();
    let mut command = Command::new(switch);
    command
        .args(["--thrift-port", &port])
        .arg(json)
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let _running = Switch(command.spawn().unwrap());
    let counts = [
        "watchlist_v4",
        "watchlist_v6",
        "filter_v4",
        "sink_port",
        "source_port",
    ];
    let asked: String = counts
        .iter()
        .map(|table| format!("table_num_entries {table}\n"))
        .collect();
    let text = format!("{0}{0}{asked}", written());
    let begun = Instant::now();
    let said = loop {
        let mut cli = Command::new(&cli);
        cli.args(["--thrift-port", &port])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        let mut cli = cli.spawn().unwrap();
        cli.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
        let done = cli.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&done.stdout).into_owned();
        if done.status.success() && !said.contains("Could not connect") {
            break said;
        }
        assert!(
            begun.elapsed() < Duration::from_secs(60),
            "simple_switch does not start: {said}"
        );
    };
    assert!(!said.contains("Error") && !said.contains("Invalid"), "{said}");
    let numbers: Vec<&str> = said
        .lines()
        .filter_map(|line| line.rsplit(": ").next())
        .filter(|last| !last.is_empty() && last.bytes().all(|byte| byte.is_ascii_digit()))
        .collect();
    // The flow of the reports is excluded in the first one.
    assert_eq!(
        numbers[numbers.len() - counts.len()..],
        ["2", "1", "1", "1", "1"],
        "{said}"
    );
}

const EXPECTED: &str = "\
table_clear IntEgress.watchlist.watchlist_v6
table_clear IntEgress.watchlist.watchlist_v4
table_clear IntEgress.entrance.source_port
table_clear IntIngress.route_v6
table_clear IntIngress.route_v4
table_clear IntEgress.edges.port_mtu
table_clear IntEgress.filter.filter_v6
table_clear IntEgress.filter.filter_v4
table_clear IntEgress.decide.filter_rules
table_clear IntEgress.decide.filter_term_15
table_clear IntEgress.decide.filter_term_14
table_clear IntEgress.decide.filter_term_13
table_clear IntEgress.decide.filter_term_12
table_clear IntEgress.decide.filter_term_11
table_clear IntEgress.decide.filter_term_10
table_clear IntEgress.decide.filter_term_9
table_clear IntEgress.decide.filter_term_8
table_clear IntEgress.decide.filter_term_7
table_clear IntEgress.decide.filter_term_6
table_clear IntEgress.decide.filter_term_5
table_clear IntEgress.decide.filter_term_4
table_clear IntEgress.decide.filter_term_3
table_clear IntEgress.decide.filter_term_2
table_clear IntEgress.decide.filter_term_1
table_clear IntEgress.decide.filter_term_0
table_reset_default IntEgress.node
table_clear IntEgress.entrance.border_port
table_clear IntEgress.edges.sink_port
table_reset_default IntEgress.report.report_session
mirroring_add 500 4
table_set_default IntEgress.report.report_session IntEgress.report.report_to 0x20000000001 0x20000000009 0xc0000201 0xc0000209 0x7ffe
table_add IntEgress.watchlist.watchlist_v4 IntEgress.watchlist.watch_nothing 0x0&&&0x0 0xc0000209&&&0xffffffff 0x11&&&0xff 0x0&&&0x0 0x0->0xffff 0x7ffe->0x7ffe => 2130706432
table_add IntEgress.edges.sink_port IntEgress.edges.to_edge 0x1 =>
table_add IntEgress.entrance.border_port IntEgress.entrance.from_border 0x1 =>
table_set_default IntEgress.node IntEgress.set_node 0x7 0xfc00 0x0
table_add IntEgress.filter.filter_v4 IntEgress.filter.filter_per_hop 0x0&&&0x0 0xa010000&&&0xffff0000 0x0&&&0x0 0x0->0xffff 0x0->0xffff => 0x2 0x3 0x40 2147483629
table_add IntEgress.edges.port_mtu IntEgress.edges.set_mtu 0x2 => 0x85c
table_add IntIngress.route_v4 IntIngress.next_hop 0xa000100/24 => 0x1 0x20000000011 0x20000000012
table_add IntIngress.route_v4 IntIngress.next_hop 0x0/0 => 0x3 0x20000000011 0x20000000012
table_add IntIngress.route_v6 IntIngress.next_hop 0xfd000002000000000000000000000001/128 => 0x2 0x20000000011 0x20000000012
table_add IntEgress.entrance.source_port IntEgress.entrance.from_edge 0x1 =>
table_add IntEgress.watchlist.watchlist_v4 IntEgress.watchlist.watch_md_21 0x0&&&0x0 0xa010000&&&0xffff0000 0x6&&&0xff 0x0&&&0x0 0x0->0xffff 0x1bb->0x1c2 => 0x8 0xa000 0x2 0x1 0x1 0x0 2147418100
table_add IntEgress.watchlist.watchlist_v6 IntEgress.watchlist.watch_postcard 0x0&&&0x0 0xfd000001000000000000000000000000&&&0xffffffff000000000000000000000000 0x0&&&0x0 0x0&&&0x0 0x0->0xffff 0x0->0xffff => 0xa000 0x1 0x1 2147483613
";
