//! Starts BMv2's `simple_switch` with the P4 program `int.p4` for the experiment `int-latency`, and configures its tables.

use std::io::Write as _;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::{
    TASKS, Task,
    lane::{Lane, Testbed},
};

/// Path of the compiled program, relative to the root of the repository.
const PROGRAM: &str = "p4/v1model/int.json";
/// Time limit within which the switch must accept commands.
const START: Duration = Duration::from_secs(60);

/// Starts one switch for each task. Returns them and the version of BMv2, or a sentence that says why BMv2 cannot be measured.
pub(super) fn lanes() -> Result<([Lane; 3], String), String> {
    let said = Command::new("simple_switch").arg("--version").output();
    let version = said.map_err(|_| "`simple_switch` is not on PATH")?.stdout;
    let version = format!(
        "simple_switch {}, as found on PATH",
        String::from_utf8_lossy(&version).trim()
    );
    let text = std::fs::read_to_string(PROGRAM);
    let text = text.map_err(|_| format!("{PROGRAM} is not here; run it in the folder of the repository"))?;
    let program: Value = serde_json::from_str(&text).map_err(|error| format!("{PROGRAM}: {error}"))?;
    let lanes: Vec<Lane> = TASKS
        .iter()
        .map(|(task, _)| lane(&program, *task))
        .collect::<Result<_, _>>()?;
    Ok((lanes.try_into().map_err(|_| "there are three tasks")?, version))
}

fn lane(program: &Value, task: Task) -> Result<Lane, String> {
    let testbed = Testbed::new().map_err(|error| error.to_string())?;
    let json = std::env::current_dir()
        .map_err(|error| error.to_string())?
        .join(PROGRAM);
    let mut command = Command::new("simple_switch");
    command
        .args(["-i", "1@left", "-i", "2@right", "-i", "3@rest"])
        .arg(json);
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let process = testbed.start(command).map_err(|error| error.to_string())?;
    configure(&testbed, &commands(program, task)?)?;
    testbed.ready(process).map_err(|error| error.to_string())
}

/// Executes commands with `simple_switch_CLI`, and retries until the switch accepts connections.
fn configure(testbed: &Testbed, commands: &str) -> Result<(), String> {
    let begun = Instant::now();
    loop {
        let done = testbed
            .switch
            .run(|| -> std::io::Result<std::process::Output> {
                let mut cli = Command::new("simple_switch_CLI");
                cli.stdin(Stdio::piped())
                    .stdout(Stdio::piped())
                    .stderr(Stdio::null());
                let mut cli = cli.spawn()?;
                if let Some(mut stdin) = cli.stdin.take() {
                    stdin.write_all(commands.as_bytes())?;
                }
                cli.wait_with_output()
            })
            .map_err(|error| error.to_string())?;
        let done = done.map_err(|error| format!("`simple_switch_CLI`: {error}"))?;
        let said = String::from_utf8_lossy(&done.stdout);
        if done.status.success() && !said.contains("Could not connect") {
            let wrong = said
                .lines()
                .find(|line| line.contains("Error") || line.contains("Invalid"));
            return wrong.map_or(Ok(()), |line| Err(format!("`simple_switch_CLI`: {line}")));
        }
        if begun.elapsed() > START {
            return Err("`simple_switch` does not start".to_owned());
        }
    }
}

/// Returns the commands of `simple_switch_CLI` that configure a task.
fn commands(program: &Value, task: Task) -> Result<String, String> {
    let mut text = String::new();
    let host = [
        ("port", 2),
        ("src_mac", 0x0200_0000_0002),
        ("dst_mac", 0x0200_0000_0006),
    ];
    text += &command(program, "table_add route_v4", "next_hop", "10.0.2.0/24", &host)?;
    text += &command(program, "table_add port_mtu", "set_mtu", "2", &[("mtu", 2_000)])?;
    if task == Task::Plain {
        return Ok(text);
    }
    // Instruction bits 0 to 5: node ID, interfaces, hop latency, queue, both timestamps (8 words).
    let items = 0xfc00;
    text += &command(
        program,
        "table_set_default node",
        "set_node",
        "",
        &[("node", 1), ("available", items)],
    )?;
    text += &command(program, "table_add source_port", "from_edge", "1", &[])?;
    // Any packet to 10.0.2.0/24 over UDP.
    let any = "0&&&0 0x0a000200&&&0xffffff00 17&&&0xff 0&&&0 0->65535 0->65535";
    let watch = [("remaining_hops", 8), ("instructions", items), ("words", 8)];
    text += &command(program, "table_add watchlist_v4", "watch_md_21", any, &watch)?;
    if task == Task::SourceAndSink {
        text += &command(program, "table_add sink_port", "to_edge", "2", &[])?;
        let macs = [("src_mac", 0x0200_0000_0901), ("dst_mac", 0x0200_0000_0902)];
        let to = [
            macs[0],
            macs[1],
            ("src_ip", 0x0a09_0001),
            ("dst_ip", 0x0a09_0002),
            ("dst_port", 32_766),
        ];
        text += &command(program, "table_set_default report_session", "report_to", "", &to)?;
        // Clone session 500, which the program uses for reports, to port 3.
        text.push_str("mirroring_add 500 3\n");
    }
    Ok(text)
}

/// Returns one command line. An entry of a ternary table needs a priority.
fn command(
    program: &Value,
    command: &str,
    action: &str,
    key: &str,
    values: &[(&str, u64)],
) -> Result<String, String> {
    let arrow = if key.is_empty() { "" } else { "=>" };
    let priority = if key.contains("&&&") { "10" } else { "" };
    let values = parameters(program, action, values)?;
    Ok(format!("{command} {action} {key} {arrow} {values} {priority}\n"))
}

fn name(value: &Value) -> &str {
    value["name"].as_str().unwrap_or_default()
}

/// Returns the parameters of an action in the program's order; those that `values` does not name are 0.
fn parameters(program: &Value, action: &str, values: &[(&str, u64)]) -> Result<String, String> {
    let mut actions = program["actions"].as_array().into_iter().flatten();
    let found = actions.find(|one| name(one).rsplit('.').next() == Some(action));
    let found = found.ok_or_else(|| format!("{PROGRAM} has no action `{action}`"))?;
    let names: Vec<&str> = found["runtime_data"]
        .as_array()
        .into_iter()
        .flatten()
        .map(name)
        .collect();
    if let Some((unknown, _)) = values.iter().find(|(name, _)| !names.contains(name)) {
        return Err(format!("`{action}` of {PROGRAM} has no parameter `{unknown}`"));
    }
    let in_order = names.iter().map(|name| {
        let value = values.iter().find(|(parameter, _)| parameter == name);
        value.map_or(0, |(_, value)| *value).to_string()
    });
    Ok(in_order.collect::<Vec<_>>().join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_commands_have_all_parameters_of_the_program() {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../..")
            .join(PROGRAM);
        let program: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
        let commands = commands(&program, Task::SourceAndSink).unwrap();
        let route = "table_add route_v4 next_hop 10.0.2.0/24 => 2 2199023255554 2199023255558 ";
        assert_eq!(commands.lines().next(), Some(route));
        assert_eq!(commands.lines().count(), 8, "{commands}");
        let unknown = parameters(&program, "next_hop", &[("ports", 1)]);
        assert_eq!(
            unknown,
            Err(format!("`next_hop` of {PROGRAM} has no parameter `ports`"))
        );
    }
}
