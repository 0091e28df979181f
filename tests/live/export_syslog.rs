//! Exports to syslog.

use std::{fs, process::Command, time::Instant};

use super::{
    export::{exported, own},
    export_redis::check,
    servers::{Process, free_port, front, is_installed},
};
use crate::support::{
    TempDir, hopwise,
    server::{Server, TIMEOUT, report},
    tls,
};

/// An rsyslog that writes the structured data of each message into a file.
struct Rsyslog {
    process: Option<Process>,
    port: u16,
    directory: TempDir,
}

impl Rsyslog {
    fn start() -> Option<Self> {
        if !is_installed("exports to syslog", "rsyslogd") {
            return None;
        }
        let mut rsyslog = Self {
            process: None,
            port: free_port(),
            directory: TempDir::new(),
        };
        rsyslog.run();
        Some(rsyslog)
    }

    fn run(&mut self) {
        let file = |name: &str| self.directory.join(name).display().to_string();
        let text = format!(
            "module(load=\"imtcp\")\ninput(type=\"imtcp\" port=\"{}\" address=\"127.0.0.1\")\nglobal(workDirectory=\"{}\")\n\
             template(name=\"t\" type=\"string\" string=\"%structured-data%\\n\")\n\
             if $app-name == \"hopwise\" then action(type=\"omfile\" file=\"{}\" template=\"t\")\n",
            self.port,
            file(""),
            file("messages")
        );
        fs::write(file("rsyslog.conf"), text).unwrap();
        let _ = fs::remove_file(file("pid"));
        let mut command = Command::new("rsyslogd");
        command.args(["-n", "-f", &file("rsyslog.conf"), "-i", &file("pid")]);
        self.process = Some(Process::start(&mut command, &self.directory, self.port));
    }

    /// These parameters of the messages, a line each, once there are so many.
    fn messages(&self, count: usize) -> Vec<String> {
        let value = |data: &str, name: &str| -> String {
            let rest = data
                .split_once(&format!(" {name}=\""))
                .map_or("", |(_, rest)| rest);
            rest.split('"').next().unwrap().to_owned()
        };
        let start = Instant::now();
        loop {
            let text = fs::read_to_string(self.directory.join("messages")).unwrap_or_default();
            let mut lines: Vec<String> = text
                .lines()
                .map(|data| FIELDS.map(|field| value(data, field)).join("\t"))
                .collect();
            if lines.len() >= count {
                lines.sort();
                return lines;
            }
            assert!(start.elapsed() < TIMEOUT, "{} of {count}: {text}", lines.len());
            crate::support::pause();
        }
    }
}

const FIELDS: [&str; 7] = ["id", "ts", "kind", "metric", "flow", "node", "value"];

/// The events of the store in the same form.
fn events(server: &Server) -> Vec<String> {
    let text = own(server, &format!("SELECT {} FROM events", FIELDS.join(", ")));
    let mut lines: Vec<String> = text.lines().map(|line| line.replace("\\N", "")).collect();
    lines.sort();
    lines
}

fn drain(server: &Server) {
    let drained = hopwise([
        "export",
        "drain",
        "--wait",
        "100",
        "--api",
        &format!("http://{}", server.api),
    ]);
    assert_eq!(drained.code, Some(0), "{drained:?}");
}

#[test]
fn rsyslog_has_the_events_of_the_store_through_a_kill() {
    let Some(mut rsyslog) = Rsyslog::start() else {
        return;
    };
    let directory = TempDir::new();
    let config = format!(
        "[exports.log]\nkind = \"syslog\"\nurl = \"tcp://127.0.0.1:{}\"\nlinger = \"0s\"\n",
        rsyslog.port
    );
    let here = format!("export log: 127.0.0.1:{} has what is needed", rsyslog.port);
    assert_eq!(check(&directory, &config), (Some(0), here));
    let server = Server::start(&config);
    let reports = |from: u32| (from..from + 100).map(|n| report(n, 1000 + n as u16, [1000, 2000, 3000]));
    server.send(reports(0));
    server.settled(100);
    drain(&server);
    let first = events(&server);
    assert_eq!(rsyslog.messages(first.len()), first);
    // What it has read but not written is lost with it, without a word: here it has written all.
    rsyslog.process.take().unwrap().kill();
    server.send(reports(100));
    server.settled(200);
    let view = exported(&server, "failing", |view| view["last_error"].is_string());
    let refused = format!(
        "a request failed: no connection to 127.0.0.1:{}: Connection refused (os error 111); correct the url, or start the server",
        rsyslog.port
    );
    assert_eq!(view["last_error"], refused);
    rsyslog.run();
    drain(&server);
    let all = events(&server);
    assert!(all.len() > first.len());
    assert_eq!(rsyslog.messages(all.len()), all);
}

#[test]
fn syslog_goes_through_tls() {
    let Some(rsyslog) = Rsyslog::start() else { return };
    let front = front("server", ([127, 0, 0, 1], rsyslog.port).into());
    let directory = TempDir::new();
    let config = |ca: &str| {
        format!(
            "[exports.log]\nkind = \"syslog\"\nurl = \"tls://{front}\"\nlinger = \"0s\"\nca = {:?}\n",
            tls::file(ca)
        )
    };
    let sentence = format!(
        "export log: the certificate of {front} is not from an authority that is trusted here; name the file with the authority's certificate as the CA"
    );
    assert_eq!(check(&directory, &config("other.pem")), (Some(1), sentence));
    let server = Server::start(&config("ca.pem"));
    server.send((0..50).map(|n| report(n, 1000 + n as u16, [1000, 2000, 3000])));
    server.settled(50);
    drain(&server);
    let all = events(&server);
    assert_eq!(rsyslog.messages(all.len()), all);
}
