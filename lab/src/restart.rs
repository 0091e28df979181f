//! A switch that crashes, and is started again.

use std::time::{Duration, Instant};

use nic::process::Signal;
use terminal::CliError;

use crate::bmv2;
use crate::down;
use crate::managed;
use crate::remote::Lab;
use crate::up::StartedProcess;

/// Maximum time until the process has ended, and until the new one answers.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Interval between two polls.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// The durations of a restart.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Restarted {
    /// From the start of the process until it answered.
    pub(crate) start: Duration,
    /// From then on until the manager had filled it again; `None` in a lab without a manager.
    pub(crate) filled: Option<Duration>,
}

/// Kills the process of a switch without a warning, if it runs, and starts it again after `pause`. The manager configures it.
///
/// # Errors
/// There is no such switch, or it does not start.
pub(crate) fn restart(lab: &Lab, switch: &str, pause: Duration) -> Result<Restarted, CliError> {
    let index = lab
        .topology
        .switches
        .iter()
        .position(|known| known.name == switch)
        .ok_or_else(|| {
            let all: Vec<&str> = lab
                .topology
                .switches
                .iter()
                .map(|switch| switch.name.as_str())
                .collect();
            CliError::new(format!(
                "there is no switch `{switch}`; there are {}",
                all.join(", ")
            ))
        })?;
    let is_bmv2 = lab.topology.is_bmv2(index);
    if is_bmv2 {
        // A switch that cannot be started again is not ended.
        bmv2::program(&lab.topology)?;
    }
    let file = lab
        .directory
        .file(&format!("{switch}.toml"))
        .to_string_lossy()
        .into_owned();
    let namespace = lab.namespace(switch);
    let killed = nic::time::now();
    for process in down::processes(&lab.directory)?
        .into_iter()
        .filter(|process| match is_bmv2 {
            true => bmv2::is_run_of(&process.command()) && process.is_in(&namespace),
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
    let begun = Instant::now();
    let mut child = StartedProcess::switch(&lab.directory, &lab.topology, index)?;
    while let Err(error) = lab.switch(index) {
        child.is_running()?;
        if begun.elapsed() > TIMEOUT {
            return Err(error);
        }
        std::thread::sleep(POLL_INTERVAL);
    }
    let start = begun.elapsed();
    if !managed::is_managed(&lab.topology.file) {
        return Ok(Restarted { start, filled: None });
    }
    // The switch itself says so: the manager may not know yet that it was away.
    while !is_bmv2 && !forwards(lab, index)? {
        if begun.elapsed() > TIMEOUT {
            return Err(CliError::new(format!(
                "{switch} has no rules yet; `hopwise device show {switch}` shows why"
            )));
        }
        std::thread::sleep(POLL_INTERVAL);
    }
    if is_bmv2 {
        lab.wait_until_filled(switch, killed)?;
    }
    lab.wait_for_manager()?;
    Ok(Restarted {
        start,
        filled: Some(begun.elapsed().saturating_sub(start)),
    })
}

/// Whether a switch has a forwarding rule.
fn forwards(lab: &Lab, switch: usize) -> Result<bool, CliError> {
    let rules = lab.rules(switch)?;
    let rules = rules["rules"].as_array().map(Vec::as_slice).unwrap_or_default();
    Ok(rules.iter().any(|rule| rule["kind"] == "forwarding"))
}
