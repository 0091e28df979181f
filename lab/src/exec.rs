//! Runs a program in the namespace of a host or switch.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::Command;

use super::remote::Lab;
use terminal::CliError;

/// Replaces this process by the program, in the namespace of a host or a switch. Returns only on failure.
pub(crate) fn exec(lab: &Lab, node: &str, command: &[OsString]) -> CliError {
    if lab.topology.find(node).is_none() {
        let names: Vec<&str> = lab
            .topology
            .nodes()
            .map(|node| lab.topology.name_of(node))
            .collect();
        return CliError::new(format!(
            "there is no host `{node}` in the lab {}; there are {}",
            lab.topology.name,
            names.join(", ")
        ));
    }
    let Some((program, arguments)) = command.split_first() else {
        return CliError::new("name a program to run, after `--`");
    };
    // The thread that enters the namespace must also call exec.
    match nic::netns::within(&lab.namespace(node), || {
        Command::new(program).args(arguments).exec()
    }) {
        Ok(error) => CliError::io(
            format!("cannot run {}", program.display()),
            error,
            "check its name; it is a program of this machine",
        ),
        Err(error) => CliError::new(format!("cannot enter {node}: {error}; use sudo")),
    }
}
