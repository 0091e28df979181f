//! Lab switches of kind `bmv2`: BMv2's `simple_switch_grpc`, which starts without a P4 program. The manager in the
//! collector's process loads `hopwise-int` or `hopwise-sf` over P4Runtime and writes the tables.
//!
//! This module builds the command line of the switch and its section `[manager.p4runtime.NAME]`.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use settings::setting::Shown;
use terminal::CliError;

use crate::plan::{mac, management_address, management_mac};
use crate::tables::{entry, plain, table};
use crate::{file::P4Program, routes::routes, topology::Topology};

/// Name of the BMv2 executable, looked up on `PATH`.
pub(crate) const PROGRAM: &str = "simple_switch_grpc";
/// Address of the P4Runtime server, inside the switch's namespace.
pub(crate) const P4RUNTIME: &str = "127.0.0.1:9559";
/// P4Runtime device ID; 1 is also the manager's default.
const DEVICE_ID: &str = "1";

/// Returns the path of the BMv2 executable.
///
/// # Errors
/// The executable is not on `PATH`.
pub(crate) fn program(topology: &Topology) -> Result<PathBuf, CliError> {
    find_in(std::env::var_os("PATH").as_deref()).ok_or_else(|| {
        let names = topology.switches.iter().enumerate().filter(|(index, _)| topology.is_bmv2(*index));
        let names: Vec<&str> = names.map(|(_, switch)| switch.name.as_str()).collect();
        CliError::new(format!(
            "`{PROGRAM}` is not on PATH, and the lab needs it for switches of kind \"bmv2\" ({}); install BMv2, or remove `kind`",
            names.join(", ")
        ))
    })
}

fn find_in(path: Option<&OsStr>) -> Option<PathBuf> {
    std::env::split_paths(path?)
        .map(|folder| folder.join(PROGRAM))
        .find(|file| file.is_file())
}

/// Returns whether a command line runs this executable.
pub(crate) fn is_bmv2_command(command: &[String]) -> bool {
    let program = command.first().map(|program| Path::new(program).file_name());
    program.flatten().is_some_and(|name| name == PROGRAM)
}

/// Builds the arguments of `simple_switch_grpc` for a switch of the topology.
pub(crate) fn arguments(topology: &Topology, switch: usize) -> Vec<String> {
    let mut arguments: Vec<String> = [
        "--no-p4",
        "--device-id",
        DEVICE_ID,
        "--log-console",
        "--log-level",
        "warn",
    ]
    .map(str::to_owned)
    .into();
    let ports = &topology.switches[switch].ports;
    let link_ports = ports.iter().map(|port| {
        (
            port.number,
            topology.links[port.link].interfaces[port.end].as_str(),
        )
    });
    let report_port = (report_port(topology, switch), crate::plan::MANAGEMENT);
    for (number, interface) in link_ports.chain([report_port]) {
        arguments.extend(["-i".to_owned(), format!("{number}@{interface}")]);
    }
    arguments.extend(["--", "--grpc-server-addr", P4RUNTIME].map(str::to_owned));
    arguments
}

/// Number of the port by which reports leave: the one after the ports with links. It is the interface to the
/// management network.
fn report_port(topology: &Topology, switch: usize) -> u16 {
    topology.switches[switch].ports.len() as u16 + 1
}

/// Builds the section `[manager.p4runtime.NAME]` of a switch: its program, the headers of its reports, MTUs and routes.
pub(crate) fn settings(topology: &Topology, switch: usize) -> Shown {
    let report = table([
        ("port", plain(report_port(topology, switch))),
        ("source", plain(management_address(switch).to_string())),
        ("source_mac", plain(management_mac(switch, true))),
        ("mac", plain(management_mac(switch, false))),
    ]);
    let ports = &topology.switches[switch].ports;
    let mtus = ports.iter().map(|port| {
        table([
            ("port", plain(port.number)),
            ("mtu", plain(topology.links[port.link].mtu)),
        ])
    });
    let routes = routes(topology, switch, &[]).into_iter().filter_map(|route| {
        // The P4 program holds one next hop per destination, so only the first of several equal-cost ports is used.
        let port = ports
            .iter()
            .find(|port| Some(&port.number) == route.ports.first())?;
        let link = &topology.links[port.link];
        Some(table([
            ("to", plain(route.to.to_string())),
            ("port", plain(port.number)),
            ("source_mac", plain(mac(topology, link, port.end))),
            ("mac", plain(mac(topology, link, 1 - port.end))),
        ]))
    });
    let program = match topology.p4_program() {
        P4Program::Int => "hopwise-int",
        P4Program::Sf => "hopwise-sf",
    };
    Shown::Table(vec![
        entry("map", plain(program)),
        entry("report", report),
        entry("load", Shown::Table(vec![entry("program", plain(program))])),
        entry("mtus", Shown::List(mtus.collect())),
        entry("routes", Shown::List(routes.collect())),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "name = \"t\"
        [[hosts]]
        name = \"h1\"
        address = \"10.0.1.1\"
        [[hosts]]
        name = \"h2\"
        address = \"10.0.2.1\"
        address6 = \"fd00:2::1\"
        [[switches]]
        name = \"s1\"
        kind = \"bmv2\"
        [[switches]]
        name = \"s2\"
        [[links]]
        between = [\"h1\", \"s1\"]
        [[links]]
        between = [\"s1\", \"s2\"]
        [[links]]
        between = [\"h2\", \"s2\"]
        [collector]";

    fn topology(file: &str) -> Topology {
        crate::load::parse_example(file)
    }

    #[test]
    fn a_switch_has_its_ports_and_one_for_reports() {
        let topology = topology(FILE);
        assert_eq!([0, 1].map(|switch| topology.is_bmv2(switch)), [true, false]);
        let expected = "--no-p4 --device-id 1 --log-console --log-level warn -i 1@s1-h1 -i 2@s1-s2 -i 3@mgmt -- --grpc-server-addr 127.0.0.1:9559";
        assert_eq!(arguments(&topology, 0).join(" "), expected);
        assert!(is_bmv2_command(&[
            "/usr/bin/simple_switch_grpc".to_owned(),
            "--no-p4".to_owned()
        ]));
        assert!(
            !is_bmv2_command(&["hopwise".to_owned(), "simple_switch_grpc".to_owned()])
                && !is_bmv2_command(&[])
        );
    }

    #[test]
    fn the_manager_knows_its_routes_and_how_reports_leave() {
        let expected = "map = \"hopwise-int\"

[report]
port = 3
source = \"172.31.255.10\"
source_mac = \"02:6d:00:00:01:01\"
mac = \"02:6d:00:00:02:01\"

[load]
program = \"hopwise-int\"

[[mtus]]
port = 1
mtu = 1500

[[mtus]]
port = 2
mtu = 2140

[[routes]]
to = \"10.0.1.1\"
port = 1
source_mac = \"02:73:00:00:01:01\"
mac = \"02:68:00:00:01:01\"

[[routes]]
to = \"10.0.2.1\"
port = 2
source_mac = \"02:73:00:00:01:02\"
mac = \"02:73:00:00:02:01\"

[[routes]]
to = \"fd00:2::1\"
port = 2
source_mac = \"02:73:00:00:01:02\"
mac = \"02:73:00:00:02:01\"
";
        assert_eq!(settings(&topology(FILE), 0).to_toml(), expected);
        let sf = FILE.replace("kind = \"bmv2\"", "kind = \"bmv2\"\nprogram = \"sf\"");
        let expected = expected.replace("hopwise-int", "hopwise-sf");
        assert_eq!(settings(&topology(&sf), 0).to_toml(), expected);
    }
}
