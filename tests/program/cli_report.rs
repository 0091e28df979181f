//! `hopwise report` sends the given reports and processes a translator's control messages. The test plays the translator.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::time::Duration;

use wire::dta::control::{Body, Cause};
use wire::dta::{Control, Operation, Priority, Report};

use crate::support::{command, hopwise};

/// A socket of a translator, with an address that no other test has.
struct Translator {
    socket: UdpSocket,
    to: SocketAddr,
    /// Address on which the reporter listens.
    control: SocketAddr,
}

impl Translator {
    fn new(number: u8) -> Self {
        let [high, low] = (std::process::id() as u16).to_be_bytes();
        let at = |last: u8| Ipv4Addr::new(127, high.max(1), low, last);
        let socket = UdpSocket::bind((at(number), 0)).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let to = socket.local_addr().unwrap();
        Self {
            socket,
            to,
            control: (at(number + 100), 40044).into(),
        }
    }

    fn args<'a>(&self, rest: &[&'a str]) -> Vec<String> {
        let start = [
            "report".to_owned(),
            "--to".to_owned(),
            self.to.to_string(),
            "--control".to_owned(),
            self.control.to_string(),
        ];
        start
            .into_iter()
            .chain(rest.iter().map(|text: &&'a str| (*text).to_owned()))
            .collect()
    }

    fn receive(&self) -> (Vec<u8>, SocketAddr) {
        let mut bytes = [0; 2048];
        let (len, from) = self.socket.recv_from(&mut bytes).unwrap();
        (bytes[..len].to_vec(), from)
    }

    fn answer(&self, body: Body) {
        let mut bytes = [0; 32];
        let len = Control {
            sequence: 0,
            reporter: 7,
            body,
        }
        .emit(&mut bytes)
        .unwrap();
        self.socket.send_to(&bytes[..len], self.control).unwrap();
    }
}

#[test]
#[expect(clippy::too_many_lines, reason = "one scenario, from start to end")]
fn one_report_of_each_kind_goes_out_as_written() {
    let translator = Translator::new(1);
    let flow = "10.0.0.1:1234>10.0.0.2:80/6";
    let key = [10, 0, 0, 1, 10, 0, 0, 2, 0x04, 0xd2, 0, 80, 6];
    let two = [0, 0, 0, 1, 0, 0, 0, 2];
    let cases: [(&[&str], Operation<'_>); 5] = [
        (
            &[
                "key-write",
                "--store",
                "1",
                "--key",
                flow,
                "--data",
                "0000000b0000000c",
            ],
            Operation::KeyWrite {
                copies: 2,
                store: 1,
                key: &key,
                data: &[0, 0, 0, 11, 0, 0, 0, 12],
            },
        ),
        (
            &["append", "--list", "5", "--entry", "a0a1", "--entry", "b0b1"],
            Operation::Append {
                list: 5,
                entry_len: 2,
                entries: &[0xa0, 0xa1, 0xb0, 0xb1],
            },
        ),
        (
            &[
                "key-increment",
                "--store",
                "2",
                "--key",
                "10.0.0.1",
                "--by",
                "5",
                "--copies",
                "4",
            ],
            Operation::KeyIncrement {
                copies: 4,
                store: 2,
                delta: 5,
                key: &[10, 0, 0, 1],
            },
        ),
        (
            &[
                "postcard",
                "--store",
                "3",
                "--key",
                flow,
                "--hop",
                "2",
                "--path-len",
                "3",
                "--value",
                "12",
            ],
            Operation::Postcard {
                hop: 2,
                path_len: 3,
                store: 3,
                value: 12,
                key: &key,
            },
        ),
        (
            &[
                "sketch",
                "--sketch",
                "4",
                "--epoch",
                "17",
                "--depth",
                "2",
                "--op",
                "max",
                "--counters",
                "1,2",
            ],
            Operation::SketchMerge {
                sketch: 4,
                epoch: 17,
                first_column: 0,
                depth: 2,
                width: 4,
                op: wire::dta::MergeOp::Max,
                columns: 1,
                counters: &two,
            },
        ),
    ];
    for (args, operation) in cases {
        let run = hopwise(
            translator.args(&[&["--reporter", "7", "--immediate", "--priority", "high"], args].concat()),
        );
        assert_eq!(
            (run.code, run.stdout.as_str()),
            (Some(0), "1 report sent\n"),
            "{}",
            run.stderr
        );
        let (bytes, _) = translator.receive();
        let report = Report::parse(&bytes).unwrap();
        assert_eq!(report.operation, operation);
        let base = report.base;
        assert_eq!(
            (base.reporter, base.priority, base.immediate, base.essential),
            (7, Priority::High, true, false)
        );
    }
}

#[test]
fn an_essential_report_is_over_when_it_is_acknowledged_and_ends_with_1_when_it_is_not() {
    let words = [
        "--reporter",
        "7",
        "--essential",
        "append",
        "--list",
        "5",
        "--entry",
        "a0",
        "--wait",
    ];
    let translator = Translator::new(5);
    let child = command(translator.args(&[&words[..], &["60000"]].concat()))
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let (first, _) = translator.receive();
    let last = Report::parse(&first).unwrap().base.sequence;
    // It sends the last report again, because nothing says that it arrived.
    assert_eq!(translator.receive().0, first);
    translator.answer(Body::Ack { last });
    let output = child.wait_with_output().unwrap();
    assert_eq!(
        (
            output.status.code(),
            String::from_utf8_lossy(&output.stdout).as_ref()
        ),
        (Some(0), "1 report sent\n")
    );
    for (wait, code, sentence) in [
        ("100", 1, "did not acknowledge in time"),
        ("0", 0, "1 report sent\n"),
    ] {
        let translator = Translator::new(5);
        let output = command(translator.args(&[&words[..], &[wait]].concat()))
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        assert_eq!(
            (output.status.code(), text.contains(sentence)),
            (Some(code), true),
            "{text}"
        );
    }
}

#[test]
fn an_essential_report_is_sent_again_when_it_is_missed_and_a_refusal_ends_with_1() {
    let translator = Translator::new(2);
    let args = [
        "--reporter",
        "7",
        "--essential",
        "--wait",
        "5000",
        "--json",
        "append",
        "--list",
        "5",
        "--entry",
        "a0",
    ];
    let child = command(translator.args(&args))
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let (first, from) = translator.receive();
    let sequence = Report::parse(&first).unwrap().base.sequence;
    assert_eq!(from.ip(), translator.control.ip(), "answers find the reporter");
    translator.answer(Body::Nack {
        cause: Cause::Gap,
        last: sequence.wrapping_sub(1),
        trigger: sequence,
    });
    assert_eq!(translator.receive().0, first);
    let begun = std::time::Instant::now();
    translator.answer(Body::Nack {
        cause: Cause::Unknown,
        last: sequence,
        trigger: sequence,
    });
    let output = child.wait_with_output().unwrap();
    assert!(
        begun.elapsed() < std::time::Duration::from_secs(4),
        "a refusal is an answer"
    );
    let summary: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(
        (output.status.code(), &summary["refused"], &summary["nacks"]),
        (Some(1), &1.into(), &1.into()),
        "{summary}"
    );
    assert_eq!(
        (&summary["reports"], summary["retransmitted"].as_u64() >= Some(1)),
        (&1.into(), true)
    );
}

#[test]
fn a_load_keeps_its_rate_and_is_all_there() {
    let translator = Translator::new(3);
    let args = [
        "--json",
        "load",
        "key-write",
        "--rate",
        "2000",
        "--count",
        "150",
        "--keys",
        "50",
        "--data",
        "8",
    ];
    let started = std::time::Instant::now();
    let child = command(translator.args(&args))
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut keys = std::collections::BTreeSet::new();
    for number in 0..150_u32 {
        let (bytes, _) = translator.receive();
        let Operation::KeyWrite { key, data, .. } = Report::parse(&bytes).unwrap().operation else {
            panic!()
        };
        assert_eq!(data, [number.to_be_bytes(), [0; 4]].concat());
        keys.insert(key.to_vec());
    }
    let output = child.wait_with_output().unwrap();
    let summary: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(
        (output.status.code(), &summary["sent"], keys.len()),
        (Some(0), &150.into(), 50)
    );
    assert!(
        started.elapsed() >= Duration::from_millis(70),
        "150 at 2000 a second"
    );
}

#[test]
fn invalid_reports_are_refused_with_a_remedy() {
    let refused = |args: &[&str]| {
        let run = hopwise(["report"].iter().chain(args));
        assert_eq!(run.code, Some(2), "{args:?}");
        run.stderr
    };
    assert!(refused(&["key-write", "--store", "1", "--key", "here", "--data", "00"]).contains("invalid key"));
    assert!(refused(&["append", "--list", "1", "--entry", "0"]).contains("hexadecimal"));
    assert!(
        refused(&["append", "--list", "1", "--entry", "00", "--entry", "0000"]).contains("differ in length")
    );
    assert!(refused(&["sketch", "--sketch", "1", "--depth", "2", "--counters", "1,2,3"]).contains("columns"));
    assert!(
        refused(&[
            "postcard",
            "--store",
            "1",
            "--key",
            "1",
            "--hop",
            "3",
            "--path-len",
            "2",
            "--value",
            "1"
        ])
        .contains("no such report")
    );
    assert!(
        refused(&[
            "--to",
            "127.0.0.1:1",
            "--to",
            "[::1]:1",
            "append",
            "--list",
            "1",
            "--entry",
            "00"
        ])
        .contains("all by IPv4")
    );
}
