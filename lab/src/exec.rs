//! `hopwise lab exec`: runs a program in the network namespace of a host or switch, as `ip netns exec` does.

use std::{ffi::OsString, os::unix::process::CommandExt, process::Command};

use super::remote::Lab;
use terminal::CliError;

/// Replaces this process by the program, in the node's namespace. Returns only on failure.
pub(crate) fn exec(lab: &Lab, node: &str, command: &[OsString]) -> CliError {
    if lab.topology.find_node(node).is_none() {
        let names: Vec<&str> = lab
            .topology
            .nodes()
            .map(|node| lab.topology.node_name(node))
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
    // setns(2) changes the namespace of the calling thread only, so the same thread must call exec.
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
