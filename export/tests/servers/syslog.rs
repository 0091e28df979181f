//! rsyslog.

use std::io::Write as _;
use std::net::TcpStream;
use std::process::Command;

use collector::event::Kind;
use export::sink::syslog::{Options, Syslog};

use crate::server::{Server, TempDir, free_port, is_installed};
use crate::support::*;

fn our_lines(log: &std::path::Path) -> Vec<String> {
    std::fs::read_to_string(log)
        .unwrap_or_default()
        .lines()
        .filter(|line| line.contains("|leaf1|"))
        .map(str::to_owned)
        .collect::<Vec<_>>()
}

#[test]
fn rsyslog_reads_the_messages() {
    if !is_installed("rsyslogd", "rsyslog") {
        return;
    }
    let files = TempDir::new();
    let port = free_port();
    let config = files.path().join("rsyslog.conf");
    let log = files.path().join("messages");
    let text = format!(
        "module(load=\"imtcp\")\ninput(type=\"imtcp\" port=\"{port}\" address=\"127.0.0.1\")\nglobal(workDirectory=\"{}\")\n\
         template(name=\"t\" type=\"string\" string=\"%syslogfacility-text%.%syslogseverity-text%|%timestamp:::date-rfc3339%|%hostname%\
         |%app-name%|%procid%|%msgid%|%structured-data%|%msg%\\n\")\n*.* action(type=\"omfile\" file=\"{}\" template=\"t\")\n",
        files.path().display(),
        log.display()
    );
    std::fs::write(&config, text).unwrap();
    let mut command = Command::new("rsyslogd");
    command
        .arg("-n")
        .arg("-f")
        .arg(&config)
        .arg("-i")
        .arg(files.path().join("pid"));
    let mut server = Server::start(&mut command, port, files);
    let syslog = Syslog::new(&Options {
        hostname: "leaf1".to_owned(),
        ..Options::default()
    })
    .unwrap();
    let mut bytes = Vec::new();
    batch("c\"]\n1", &[rule(1, Kind::RuleOn), dropped()], |batch| {
        syslog.write(batch, &mut bytes)
    });
    TcpStream::connect(("127.0.0.1", port))
        .unwrap()
        .write_all(&bytes)
        .unwrap();
    server.wait("writes both messages", |_| our_lines(&log).len() == 2);
    assert_eq!(
        our_lines(&log),
        [
            r#"local0.warning|2026-11-26T01:00:00.000000Z|leaf1|hopwise|-|rule_on|[hopwise@32473 id="0000000000000001" ts="1795654800000000001" collector="c\"\] 1" schema="1" kind="rule_on" flow="10.0.0.1:1234>10.0.0.2:80/6" rule="deep \"queue\" \\ a=b, c\]  é" basis="measured"]|rule_on deep "queue" \ a=b, c]  é 10.0.0.1:1234>10.0.0.2:80/6"#,
            r#"local0.warning|2026-11-26T01:00:00.000000Z|leaf1|hopwise|-|drops|[hopwise@32473 id="0000000000000abc" ts="1795654800000000000" collector="c\"\] 1" schema="1" flow="flow-id:0x0000f10a" node="5" queue="0" egress_if="2" reason="71"]|drops flow-id:0x0000f10a node 5"#,
        ]
    );
}
