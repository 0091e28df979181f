//! `hopwise lab fault restart`: kills a switch (SIGKILL, as in a crash), restarts it, and measures the recovery time.

use std::time::{Duration, Instant};

use nic::process::Signal;
use terminal::CliError;

use crate::remote::Lab;
use crate::up::{StartedProcess, TIMEOUT};
use crate::{bmv2, down, managed};

/// Interval between two polls of the switch.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Durations of a restart and of the recovery.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RestartTimes {
    /// Time from the start of the process to its first answer.
    pub(crate) start: Duration,
    /// Time from that answer until the manager had restored its rules; `None` in a lab without a manager.
    pub(crate) recovery: Option<Duration>,
}

/// Kills the process of a switch, if it runs, and starts it again after `pause`. Waits until it answers and, in a managed
/// lab, until the manager has restored its rules.
///
/// # Errors
/// There is no such switch, or it does not start.
pub(crate) fn restart(lab: &Lab, switch: &str, pause: Duration) -> Result<RestartTimes, CliError> {
    let index = lab
        .topology
        .switches
        .iter()
        .position(|candidate| candidate.name == switch)
        .ok_or_else(|| {
            let names: Vec<&str> = lab
                .topology
                .switches
                .iter()
                .map(|switch| switch.name.as_str())
                .collect();
            CliError::new(format!(
                "there is no switch `{switch}`; there are {}",
                names.join(", ")
            ))
        })?;
    let is_bmv2 = lab.topology.is_bmv2(index);
    if is_bmv2 {
        // Before the kill: without the executable the switch could not be started again.
        bmv2::program(&lab.topology)?;
    }
    let file = lab
        .directory
        .file(&format!("{switch}.toml"))
        .to_string_lossy()
        .into_owned();
    let namespace = lab.namespace(switch);
    let kill_time = nic::time::now();
    for process in down::processes(&lab.directory)?
        .into_iter()
        .filter(|process| match is_bmv2 {
            true => bmv2::is_bmv2_command(&process.command()) && process.is_in(&namespace),
            false => process.command().contains(&file),
        })
    {
        process.signal(Signal::Kill).map_err(|error| {
            CliError::new(format!("cannot end process {}: {error}; use sudo", process.id()))
        })?;
        if !process.wait(TIMEOUT) {
            return Err(CliError::new(format!(
                "process {} does not end; try again",
                process.id()
            )));
        }
    }
    std::thread::sleep(pause);
    let restart_time = Instant::now();
    let mut child = StartedProcess::switch(&lab.directory, &lab.topology, index)?;
    while let Err(error) = lab.switch(index) {
        child.is_running()?;
        if restart_time.elapsed() > TIMEOUT {
            return Err(error);
        }
        std::thread::sleep(POLL_INTERVAL);
    }
    let start = restart_time.elapsed();
    if !managed::is_managed(&lab.topology.file) {
        return Ok(RestartTimes {
            start,
            recovery: None,
        });
    }
    // Ask the switch itself: the manager may not know yet that it was restarted and would still report it in sync.
    while !is_bmv2 && !has_forwarding_rule(lab, index)? {
        if restart_time.elapsed() > TIMEOUT {
            return Err(CliError::new(format!(
                "{switch} has no rules yet; `hopwise device show {switch}` shows why"
            )));
        }
        std::thread::sleep(POLL_INTERVAL);
    }
    if is_bmv2 {
        lab.wait_until_in_sync(switch, kill_time)?;
    }
    lab.wait_for_manager()?;
    Ok(RestartTimes {
        start,
        recovery: Some(restart_time.elapsed().saturating_sub(start)),
    })
}

/// Returns whether a switch has a forwarding rule.
fn has_forwarding_rule(lab: &Lab, switch: usize) -> Result<bool, CliError> {
    let rules = lab.rules(switch)?;
    let rules = rules["rules"].as_array().map(Vec::as_slice).unwrap_or_default();
    Ok(rules.iter().any(|rule| rule["kind"] == "forwarding"))
}
