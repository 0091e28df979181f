//! Removes a lab: its processes, its network namespaces and its directory. A lab that was created only in part is removed in
//! the same way, because everything is found by the lab's name.

use std::time::{Duration, Instant};
use std::{fs, io::ErrorKind, path::Path, process::Command};

use nic::process::{self, Process, Signal};

use super::state::{self, Directory};
use terminal::CliError;

/// Maximum wait for processes to exit after SIGTERM, and again after SIGKILL.
const TIMEOUT: Duration = Duration::from_secs(3);
/// Maximum number of scans for processes: one may start another before it handles the signal.
const MAX_SCANS: usize = 5;

/// Number of objects that were removed.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct RemovalCounts {
    /// Number of processes that were ended.
    pub(crate) processes: usize,
    /// Number of namespaces deleted, each with its interfaces.
    pub(crate) namespaces: usize,
}

/// Removes a lab: its processes, its namespaces with everything in them, its directory. Missing parts are ignored.
///
/// # Errors
/// A process, a namespace or the directory cannot be removed.
pub(crate) fn down(directory: &Directory) -> Result<RemovalCounts, CliError> {
    let lock = directory.lock()?;
    let removed = remove(directory);
    drop(lock);
    removed
}

/// Removes a lab whose lock the caller holds.
pub(crate) fn remove(directory: &Directory) -> Result<RemovalCounts, CliError> {
    let mut removed = RemovalCounts::default();
    for _ in 0..MAX_SCANS {
        let terminated = terminate(&processes(directory)?)?;
        removed.processes += terminated;
        if terminated == 0 {
            break;
        }
    }
    for name in state::namespaces(directory.lab()) {
        ip(&["netns", "delete", &name])?;
        removed.namespaces += 1;
    }
    match fs::remove_dir_all(directory.path()) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            return Err(CliError::io(
                format!("cannot remove {}", directory.path().display()),
                error,
                "the lab needs root: use sudo",
            ));
        }
        _ => {}
    }
    if let Some(parent) = directory.path().parent() {
        // Succeeds only if the directory is empty; other labs may exist.
        let _ = fs::remove_dir(parent);
    }
    Ok(removed)
}

/// Returns the processes of a lab: any in its namespaces, any that was started with a configuration file in its directory,
/// and `ip` commands that still run for it.
pub(crate) fn processes(directory: &Directory) -> Result<Vec<Process>, CliError> {
    let candidates =
        process::all().map_err(|error| CliError::new(format!("cannot look for processes: {error}")))?;
    let own_id = std::process::id();
    let namespaces = state::namespaces(directory.lab());
    let prefix = super::plan::prefix(directory.lab());
    Ok(candidates
        .into_iter()
        .filter(|process| {
            let command = process.command();
            process.id() != own_id
                && (is_hopwise_run(&command, directory.path())
                    || is_ip_for(&command, &prefix)
                    || namespaces.iter().any(|name| process.is_in(name)))
        })
        .collect())
}

/// Returns whether this is `ip … NAMESPACE …` with a namespace of this prefix.
fn is_ip_for(command: &[String], prefix: &str) -> bool {
    let Some((program, arguments)) = command.split_first() else {
        return false;
    };
    Path::new(program).file_name().is_some_and(|name| name == "ip")
        && arguments.iter().any(|argument| argument.starts_with(prefix))
}

/// Returns whether this is `hopwise run -c FILE` with a file in that directory.
pub(crate) fn is_hopwise_run(command: &[String], directory: &Path) -> bool {
    match command {
        [_, run, option, file, ..] => {
            run == "run"
                && option == "-c"
                && Path::new(file).parent().is_some_and(|parent| parent == directory)
        }
        _ => false,
    }
}

/// Ends processes by SIGTERM, then by SIGKILL. Returns their number.
fn terminate(processes: &[Process]) -> Result<usize, CliError> {
    for signal in [Signal::Terminate, Signal::Kill] {
        for process in processes.iter().filter(|process| !process.has_ended()) {
            process.signal(signal).map_err(|error| {
                CliError::new(format!("cannot end process {}: {error}; use sudo", process.id()))
            })?;
        }
        let start = Instant::now();
        if processes
            .iter()
            .all(|process| process.wait(TIMEOUT.saturating_sub(start.elapsed())))
        {
            break;
        }
    }
    Ok(processes.len())
}

/// Runs `ip` with these arguments.
///
/// # Errors
/// `ip` failed; the message contains its standard error.
pub(crate) fn ip(arguments: &[&str]) -> Result<(), CliError> {
    let output = Command::new("ip").args(arguments).output().map_err(|error| {
        CliError::io(
            "cannot run `ip`",
            error,
            "install iproute2 (apt-get install iproute2)",
        )
    })?;
    if output.status.success() {
        return Ok(());
    }
    let stderr = String::from_utf8_lossy(&output.stderr);
    Err(CliError::new(format!(
        "`ip {}` failed: {}",
        arguments.join(" "),
        stderr.trim()
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_of_a_lab_is_identified_by_its_configuration_file() {
        let directory = Path::new("/run/hopwise/lab-a");
        let run = |arguments: &[&str]| {
            is_hopwise_run(
                &arguments
                    .iter()
                    .map(|argument| (*argument).to_owned())
                    .collect::<Vec<_>>(),
                directory,
            )
        };
        assert!(run(&[
            "/usr/bin/hopwise",
            "run",
            "-c",
            "/run/hopwise/lab-a/collector.toml"
        ]));
        assert!(!run(&[
            "/usr/bin/hopwise",
            "run",
            "-c",
            "/run/hopwise/lab-ab/collector.toml"
        ]));
        assert!(!run(&["/usr/bin/hopwise", "run", "-c", "/etc/hopwise.toml"]));
        assert!(!run(&["vi", "/run/hopwise/lab-a/collector.toml"]));
        assert!(!run(&["hopwise", "run"]));
        assert!(!run(&[]));
        let ip = |arguments: &[&str]| {
            is_ip_for(
                &arguments
                    .iter()
                    .map(|argument| (*argument).to_owned())
                    .collect::<Vec<_>>(),
                "hw-a-",
            )
        };
        assert!(ip(&["ip", "netns", "add", "hw-a-h1"]));
        assert!(ip(&["/sbin/ip", "-n", "hw-a-h1", "link"]));
        assert!(!ip(&["ip", "netns", "add", "hw-ab-h1"]));
        assert!(!ip(&["echo", "hw-a-h1"]));
    }
}
