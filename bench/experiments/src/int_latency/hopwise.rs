//! Starts `hopwise run` in the role of a switch for the experiment `int-latency`.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::{
    TASKS, Task,
    lane::{Lane, Testbed},
};
use crate::figures::failed;
use terminal::{CliError, programs};

/// Finds the program `hopwise`, or the one that `HOPWISE_SWITCH` names. Also returns a sentence with its version.
pub(super) fn program() -> Result<(PathBuf, String), CliError> {
    let other = std::env::var_os("HOPWISE_SWITCH").map(PathBuf::from);
    let program = other
        .clone()
        .or_else(|| programs::find("hopwise"))
        .ok_or_else(|| CliError::new("needs the program `hopwise`, which it starts as a switch"))?;
    let said = Command::new(&program).arg("--version").output().map_err(failed)?;
    let version = String::from_utf8_lossy(&said.stdout).trim().to_owned();
    if !version.starts_with("hopwise ") {
        return Err(CliError::new(format!("{} is not hopwise", program.display())));
    }
    let of = if other.is_some() {
        ", of another build than the host's side"
    } else {
        ""
    };
    Ok((program, format!("the switches of hopwise: {version}{of}")))
}

/// Starts one switch for each task.
pub(super) fn lanes(program: &Path) -> Result<[Lane; 3], CliError> {
    let lanes: Vec<Lane> = TASKS
        .iter()
        .map(|(task, _)| lane(program, *task))
        .collect::<Result<_, _>>()?;
    lanes.try_into().map_err(|_| failed("there are three tasks"))
}

fn lane(program: &Path, task: Task) -> Result<Lane, CliError> {
    let testbed = Testbed::new()?;
    // The kernel's network stack sends the reports, here to a static neighbour that does not exist.
    for words in [
        "addr add 10.9.0.1/24 dev rest",
        "neigh add 10.9.0.2 lladdr 02:00:00:00:09:02 dev rest nud permanent",
    ] {
        testbed
            .switch
            .ip(&words.split(' ').collect::<Vec<_>>())
            .map_err(failed)?;
    }
    let file = std::env::temp_dir().join(format!("hopwise-latency-{}-{task:?}.toml", std::process::id()));
    std::fs::write(&file, config(task)).map_err(failed)?;
    let mut command = Command::new(program);
    command.arg("run").arg("--config").arg(&file);
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let process = testbed.start(command)?;
    let lane = testbed.ready(process);
    let _ = std::fs::remove_file(file);
    lane
}

fn config(task: Task) -> String {
    let watch = if task == Task::Plain {
        ""
    } else {
        "[[switch.watch]]\n"
    };
    let is_edge = task != Task::Source;
    format!(
        "[api]\nlisten = \"127.0.0.1:8080\"\n[switch]\nnode = 1\nlldp = false\nreports = \"10.9.0.2:32766\"\n\
         [[switch.routes]]\nto = \"10.0.2.0/24\"\nport = 2\n\
         [[switch.ports]]\nnumber = 1\ninterface = \"left\"\nedge = true\n\
         [[switch.ports]]\nnumber = 2\ninterface = \"right\"\nedge = {is_edge}\n{watch}"
    )
}
