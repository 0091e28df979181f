//! bmv2's `simple_switch_grpc`, where it is installed: on PATH, or in `HOPWISE_P4_TOOLS`.

use std::io::Write;
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use manager::device::Answer;

use super::bench::Bench;

/// The switch's port for packets of its controller.
pub(crate) const CPU_PORT: u32 = 64;

/// The program; `None`: a line was written that says that it is missing.
pub(crate) fn tool(test: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let more = std::env::var_os("HOPWISE_P4_TOOLS")
        .into_iter()
        .map(PathBuf::from);
    let found = std::env::split_paths(&path).chain(more).find_map(|folder| {
        let file = folder.join("simple_switch_grpc");
        file.is_file().then_some(file)
    });
    if found.is_none() {
        skipped(test, "simple_switch_grpc is not installed");
    }
    found
}

pub(crate) fn skipped(test: &str, missing: &str) {
    // Not by `println`, which the test harness captures.
    let line = format!("SKIPPED {test}: {missing}\n");
    std::io::stderr().write_all(line.as_bytes()).unwrap();
}

pub(crate) fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port()
}

/// A switch without a program.
pub(crate) struct Switch(Child);

impl Switch {
    pub(crate) fn start(program: &PathBuf, port: u16) -> Self {
        let mut command = Command::new(program);
        command.args([
            "--no-p4",
            "--device-id",
            "1",
            "--thrift-port",
            &free_port().to_string(),
            "--",
        ]);
        command.args([
            "--grpc-server-addr",
            &format!("127.0.0.1:{port}"),
            "--cpu-port",
            &CPU_PORT.to_string(),
        ]);
        Self(
            command
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .unwrap(),
        )
    }
}

impl Drop for Switch {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Claims until the switch is there and has its program.
pub(crate) async fn claimed(bench: &mut Bench) {
    for _ in 0..600 {
        match bench.claim().await {
            Answer::Claimed => return,
            // It starts, or has not seen yet that another controller has left.
            Answer::Unreachable(reason)
                if ["refused", "loaded", "another controller"]
                    .iter()
                    .any(|one| reason.contains(one)) =>
            {
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
            other => panic!("{other:?}"),
        }
    }
    panic!("the switch does not start");
}
