//! The role over loopback; the tests play the programs and the translator.

use std::net::UdpSocket;
use std::os::unix::{fs::PermissionsExt, net::UnixDatagram};
use std::time::Instant;

use wire::dta::control::{Body, Cause};
use wire::dta::{Control, Operation, Report};

use super::settings::LocalListen;
use super::*;

/// Time limit of every step.
const PATIENCE: Duration = Duration::from_secs(30);

/// A reporter, a program, and the translator of its collector.
struct Setup {
    worker: Worker,
    program: UdpSocket,
    translator: UdpSocket,
    now: u64,
}

impl Setup {
    fn new() -> Self {
        let translator = UdpSocket::bind("127.0.0.1:0").unwrap();
        translator.set_read_timeout(Some(PATIENCE)).unwrap();
        let settings = ReporterSettings {
            id: 7,
            collectors: vec![translator.local_addr().unwrap()],
            listen: LocalListen::Udp("127.0.0.1:0".parse().unwrap()),
            control: "127.0.0.1:0".parse().unwrap(),
            probe: Duration::ZERO,
            ..ReporterSettings::default()
        };
        let worker = Worker::open(&settings).unwrap();
        let program = UdpSocket::bind("127.0.0.1:0").unwrap();
        let Listener::Udp(socket) = &worker.listener else {
            panic!("a UDP socket")
        };
        program.connect(socket.local_addr().unwrap()).unwrap();
        Self {
            worker,
            program,
            translator,
            now: 1_000_000_000,
        }
    }

    /// Runs the reporter until `done`.
    fn until(&mut self, done: impl Fn(&Worker) -> bool) {
        let end = Instant::now() + PATIENCE;
        while !done(&self.worker) {
            assert!(Instant::now() < end, "{:?}", self.worker.view());
            self.now += 1_000_000;
            self.worker.poll(self.now);
        }
    }

    /// Sends lines of a program, and runs the reporter until it has taken them.
    fn send(&mut self, lines: &[&str]) {
        let before = self.worker.counts.received;
        lines
            .iter()
            .for_each(|line| assert_eq!(self.program.send(line.as_bytes()).unwrap(), line.len()));
        self.until(|worker| worker.counts.received == before + lines.len() as u64);
    }

    /// The reporter, the sequence if it is essential, and the data of the next Key-Write at the translator.
    fn next(&self) -> (u32, Option<u16>, Vec<u8>) {
        let mut bytes = [0; 2048];
        let len = self.translator.recv(&mut bytes).unwrap();
        let report = Report::parse(&bytes[..len]).unwrap();
        let Operation::KeyWrite { data, .. } = report.operation else {
            panic!("{report:?}")
        };
        (
            report.base.reporter,
            report.base.essential.then_some(report.base.sequence),
            data.to_vec(),
        )
    }

    /// Answers as the translator, and runs the reporter until it has processed the answer.
    fn answer(&mut self, body: Body) {
        let mut bytes = [0; 64];
        let len = Control {
            sequence: 0,
            reporter: 7,
            body,
        }
        .emit(&mut bytes)
        .unwrap();
        let before = self.worker.reporter.stats().controls;
        self.translator
            .send_to(&bytes[..len], self.worker.sockets.control_address())
            .unwrap();
        self.until(|worker| worker.reporter.stats().controls == before + 1);
    }

    /// The counters, which must be balanced.
    fn view(&self) -> ReporterView {
        let view = self.worker.view();
        let refused: u64 = view.refused.values().sum();
        assert_eq!(
            view.received,
            view.reports + refused + view.suppressed + view.queue_full,
            "{view:?}"
        );
        let to = &view.collectors[0];
        let pending = u64::from(to.retransmit_buffered) + to.overwritten;
        assert_eq!(
            view.reports + to.retransmitted,
            view.sent + view.unsent + pending,
            "{view:?}"
        );
        view
    }
}

#[test]
fn lines_of_programs_become_reports_and_refusals_are_counted() {
    let mut setup = Setup::new();
    let long = "x".repeat(MAX_LINE + 100);
    setup.send(&[
        "key-write store=1 key=10.0.0.1 data=0a",
        "key-write store=1 key=10.0.0.1",
        &long,
        "key-write store=1 key=10.0.0.2 data=0b essential",
        "write",
    ]);
    let sequence = setup.worker.reporter.destinations(0).next().unwrap().last;
    assert_eq!(setup.next(), (7, None, vec![10]));
    assert_eq!(setup.next(), (7, sequence, vec![11]));
    let view = setup.view();
    assert_eq!((view.received, view.reports, view.sent), (5, 2, 2));
    let refused: Vec<_> = view
        .refused
        .iter()
        .map(|(reason, count)| (reason.to_string(), *count))
        .collect();
    let expected = [("missing_word", 1), ("too_long", 1), ("unknown_operation", 1)];
    assert_eq!(
        refused,
        expected.map(|(reason, count)| (reason.to_owned(), count))
    );
}

#[test]
fn a_nack_of_the_translator_is_answered_with_the_missing_reports() {
    let mut setup = Setup::new();
    let lines = ["0a", "0b", "0c"].map(|data| format!("key-write store=1 key=1 data={data} essential"));
    setup.send(&[&lines[0], &lines[1], &lines[2]]);
    let sent = [setup.next(), setup.next(), setup.next()];
    let last = sent[0].1.unwrap();
    setup.answer(Body::Nack {
        cause: Cause::Gap,
        last,
        trigger: last.wrapping_add(3),
    });
    assert_eq!([setup.next(), setup.next()], [sent[1].clone(), sent[2].clone()]);
    let view = setup.view();
    let to = &view.collectors[0];
    assert_eq!(
        (view.reports, view.sent, to.retransmitted, to.nacks),
        (3, 5, 2, 1)
    );
}

#[test]
fn congestion_suppresses_low_priority_and_a_refusal_is_counted() {
    let mut setup = Setup::new();
    setup.answer(Body::Congestion {
        level: 1,
        hold_us: 10_000_000,
        dropped: 4,
    });
    setup.send(&[
        "key-write store=1 key=1 data=0a priority=low",
        "key-write store=1 key=1 data=0b",
        "key-write store=1 key=1 data=0c priority=high",
    ]);
    assert_eq!([setup.next().2, setup.next().2], [vec![11], vec![12]]);
    setup.answer(Body::Nack {
        cause: Cause::Unknown,
        last: 0,
        trigger: 0,
    });
    let view = setup.view();
    let to = &view.collectors[0];
    assert_eq!(
        (view.reports, view.suppressed, to.refused, to.translator_drops),
        (2, 1, 1, 4)
    );
}

#[test]
fn a_unix_socket_is_for_user_and_group_and_replaces_an_abandoned_one() {
    let path = std::env::temp_dir().join(format!("hopwise-reporter-{}.sock", std::process::id()));
    let listen = LocalListen::Unix(path.clone());
    drop(UnixDatagram::bind(&path).unwrap());
    let listener = Listener::open(&listen).unwrap();
    assert_eq!(
        std::fs::metadata(&path).unwrap().permissions().mode() & 0o777,
        0o660
    );
    assert!(Listener::open(&listen).is_err(), "a socket in use");
    let begin = format!(".{}", path.file_name().unwrap().to_string_lossy());
    let left = std::fs::read_dir(path.parent().unwrap()).unwrap();
    let left = left.filter(|file| {
        file.as_ref()
            .unwrap()
            .file_name()
            .to_string_lossy()
            .starts_with(&begin)
    });
    assert_eq!(left.count(), 0, "nothing is left, also after a failure");
    let program = UnixDatagram::unbound().unwrap();
    program.send_to(b"one", &path).unwrap();
    let mut line = [0; 8];
    assert_eq!(
        (
            listener.recv(&mut line).unwrap(),
            listener.recv(&mut line).unwrap()
        ),
        (Some(3), None)
    );
    drop(listener);
    assert!(!path.exists());
}
