//! The exchange with a secret: peers with it, without it, with recorded messages only, and floods of connections.

use std::{
    net::Shutdown,
    sync::{Arc, mpsc::channel},
    time::Instant,
};

use super::admission::MAX_PENDING;
use super::client::{ExchangeLink, LinkEvent, Target};
use super::handshake::{HandshakeLimit, prove};
use super::secret::{Nonces, SecretFile, Side};
use super::server::{AccessControl, Host, Listening};
use super::tests::{Recorder, TIMEOUT, accept, any, hello};
use super::*;
use runtime::control::Control;
use runtime::control::StoppableThread;
use view::NamedCounts;

const SECRET: &str = "correct horse battery staple";
const OTHER: &str = "another secret of some length";

fn file(secret: &str) -> Arc<SecretFile> {
    SecretFile::fixed(&secret.replace(' ', "-"))
}

/// A collector that records its connections.
struct TestCollector {
    recorder: Arc<Recorder>,
    access: Arc<AccessControl>,
    at: std::net::SocketAddr,
    server: Option<StoppableThread>,
    control: Control,
}

impl TestCollector {
    fn open(secret: Option<&str>) -> Self {
        let (control, _messages) = Control::new();
        let (recorder, access) = (
            Arc::new(Recorder::default()),
            AccessControl::new(secret.map(file)),
        );
        let listening = Listening::open(any()).unwrap();
        let at = listening.address().unwrap();
        let host = Arc::clone(&recorder) as Arc<dyn Host>;
        let server = Some(listening.start(host, Arc::clone(&access), &control).unwrap());
        Self {
            recorder,
            access,
            at,
            server,
            control,
        }
    }

    fn connect(&self) -> Raw {
        Raw::new(TcpStream::connect(self.at).unwrap())
    }

    /// The outcomes of all ended and accepted connections; checks the balance.
    fn outcomes(&self) -> NamedCounts {
        let view = self.access.view();
        assert!(view.balanced, "{view:?}");
        let mut all = view.refused;
        if view.accepted > 0 {
            all.add("accepted", view.accepted);
        }
        all
    }

    /// The outcome for a translator with this secret.
    fn tried(&self, secret: Option<&str>) -> (LinkEvent, [u64; RefusalCause::COUNT]) {
        let (sender, events) = channel();
        let target = Target {
            collector: 0,
            exchange: self.at,
            secret: secret.map(file),
        };
        let link = ExchangeLink::start(target, sender, &self.control).unwrap();
        let outcome = loop {
            match events.recv_timeout(TIMEOUT).unwrap() {
                LinkEvent::Reached(_, _, commands) => commands.hello(hello("a1")),
                outcome => break outcome,
            }
        };
        let refusals = link.refusals().read();
        (outcome, refusals)
    }
}

/// A peer that sends arbitrary lines.
struct Raw {
    stream: TcpStream,
    lines: std::io::Lines<BufReader<TcpStream>>,
}

impl Raw {
    fn new(stream: TcpStream) -> Self {
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        let lines = BufReader::new(stream.try_clone().unwrap()).lines();
        Self { stream, lines }
    }

    fn send_line(&mut self, line: &[u8]) {
        self.stream.write_all(&[line, b"\n"].concat()).unwrap();
    }

    fn send(&mut self, message: &Message) {
        self.send_line(&write(message, None).unwrap());
    }

    /// The next line; empty when the other side has closed.
    fn receive_line(&mut self) -> String {
        self.lines
            .next()
            .transpose()
            .unwrap_or_default()
            .unwrap_or_default()
    }

    fn message(&mut self) -> Message {
        let line = self.receive_line();
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{line}: {error}"))
    }

    /// As a translator: begins, and returns the nonces of both sides.
    fn begin(&mut self) -> Nonces {
        let translator = [7; LEN];
        self.send(&Message::Begin(Begin {
            version: VERSION,
            nonce: hex(&translator),
        }));
        let Message::Challenge { nonce } = self.message() else {
            panic!("no challenge")
        };
        Nonces {
            translator,
            collector: read_nonce(&nonce).unwrap(),
        }
    }

    /// The cause of the refusal, and its message.
    fn refused(&mut self) -> (String, String) {
        let message = self.message();
        let Message::Refused {
            reason,
            cause: Some(cause),
        } = message
        else {
            panic!("{message:?}")
        };
        assert_eq!(self.receive_line(), "", "then it closes");
        (cause, reason)
    }
}

fn proof(secret: &str, side: Side, nonces: &Nonces) -> Message {
    Message::Proof {
        proof: hex(&file(secret).current().proof(side, nonces)),
    }
}

#[test]
fn a_peer_with_the_secret_is_accepted() {
    let collector = TestCollector::open(Some(SECRET));
    let (outcome, refusals) = collector.tried(Some(SECRET));
    let LinkEvent::Accepted(0, got) = outcome else {
        panic!("{outcome:?}")
    };
    assert_eq!((*got, refusals), (accept(), [0; RefusalCause::COUNT]));
    assert_eq!(collector.outcomes(), [("accepted", 1)]);
    assert_eq!(collector.recorder.read()[0], "a1 came");
}

#[test]
fn a_peer_with_another_secret_is_refused_and_learns_nothing() {
    let collector = TestCollector::open(Some(SECRET));
    let (outcome, refusals) = collector.tried(Some(OTHER));
    let LinkEvent::Lost(0, reason) = outcome else {
        panic!("{outcome:?}")
    };
    assert!(
        reason.starts_with("refused: the secrets differ: give [collector.memory] secret_file"),
        "{reason}"
    );
    assert_eq!(refusals[RefusalCause::WrongSecret as usize], 1);
    assert_eq!(collector.outcomes(), [("wrong_secret", 1)]);
    assert!(collector.recorder.read().is_empty());
}

#[test]
fn a_collector_with_a_secret_refuses_a_translator_without() {
    let collector = TestCollector::open(Some(SECRET));
    let (outcome, refusals) = collector.tried(None);
    let LinkEvent::Lost(0, reason) = outcome else {
        panic!("{outcome:?}")
    };
    assert!(
        reason.contains("set [translator] secret_file to a file with the secret"),
        "{reason}"
    );
    assert_eq!(refusals[RefusalCause::NoSecret as usize], 1);
    assert_eq!(collector.outcomes(), [("no_secret", 1)]);
    assert!(collector.recorder.read().is_empty());
}

#[test]
fn a_translator_with_a_secret_refuses_a_collector_without() {
    let collector = TestCollector::open(None);
    let (outcome, refusals) = collector.tried(Some(SECRET));
    let LinkEvent::Lost(0, reason) = outcome else {
        panic!("{outcome:?}")
    };
    assert!(
        reason.contains("this collector has no secret: set [collector.memory] secret_file"),
        "{reason}"
    );
    assert_eq!(refusals[RefusalCause::NotSecured as usize], 1);
    assert_eq!(collector.outcomes(), [("not_secured", 1)]);
}

/// Impostors of a collector: their response to `begin`, and to the proof.
#[test]
fn an_impostor_collector_gets_no_hello() {
    let accept = Message::Accept(accept());
    let nonce = Message::Challenge {
        nonce: hex(&[9; LEN]),
    };
    let short = Message::Challenge {
        nonce: "00ff".to_owned(),
    };
    let mirrored = |lines: &str| serde_json::from_str::<Message>(lines).unwrap();
    for (first, second, cause) in [
        (accept.clone(), None, RefusalCause::NoSecret),
        (Message::Keepalive, None, RefusalCause::NoSecret),
        (short, None, RefusalCause::Malformed),
        (nonce.clone(), Some(accept), RefusalCause::Malformed),
        (
            nonce.clone(),
            Some(Message::Proof {
                proof: hex(&[0; LEN]),
            }),
            RefusalCause::WrongSecret,
        ),
        // The translator's own proof, sent back.
        (nonce, None, RefusalCause::WrongSecret),
    ] {
        let listener = std::net::TcpListener::bind(any()).unwrap();
        let (control, _messages) = Control::new();
        let (sender, events) = channel();
        let target = Target {
            collector: 0,
            exchange: listener.local_addr().unwrap(),
            secret: Some(file(SECRET)),
        };
        let link = ExchangeLink::start(target, sender, &control).unwrap();
        let mut collector = Raw::new(listener.accept().unwrap().0);
        assert!(matches!(collector.message(), Message::Begin(_)));
        let challenged = matches!(first, Message::Challenge { .. }) && cause != RefusalCause::Malformed
            || second.is_some();
        collector.send(&first);
        if challenged {
            let shown = collector.receive_line();
            assert!(matches!(mirrored(&shown), Message::Proof { .. }), "{shown}");
            collector.send(&second.unwrap_or_else(|| mirrored(&shown)));
        }
        let outcome = events.recv_timeout(TIMEOUT).unwrap();
        assert!(matches!(outcome, LinkEvent::Lost(..)), "{outcome:?}");
        assert_eq!(collector.receive_line(), "", "no hello");
        assert_eq!(link.refusals().read()[cause as usize], 1, "{cause:?}");
    }
}

#[test]
fn replayed_lines_are_refused() {
    let collector = TestCollector::open(Some(SECRET));
    let mut first = collector.connect();
    let nonces = first.begin();
    let shown = proof(SECRET, Side::Translator, &nonces);
    first.send(&shown);
    assert_eq!(first.message(), proof(SECRET, Side::Collector, &nonces));
    // A replay of recorded messages: the collector has drawn another nonce.
    let mut again = collector.connect();
    let later = again.begin();
    assert_ne!(later.collector, nonces.collector);
    again.send(&shown);
    assert_eq!(again.refused().0, "wrong_secret");
    // And the collector's own proof, sent back to it.
    let mut third = collector.connect();
    let nonces = third.begin();
    third.send(&proof(SECRET, Side::Collector, &nonces));
    assert_eq!(third.refused().0, "wrong_secret");
    assert_eq!(collector.outcomes(), [("wrong_secret", 2)]);
}

#[test]
fn after_the_proofs_only_what_is_sealed_counts() {
    let collector = TestCollector::open(Some(SECRET));
    let proved = || {
        let mut raw = collector.connect();
        let nonces = raw.begin();
        raw.send(&proof(SECRET, Side::Translator, &nonces));
        assert!(matches!(raw.message(), Message::Proof { .. }));
        (raw, file(SECRET).current().seals(Side::Translator, &nonces))
    };
    let good = |seals: &mut Seals| write(&Message::Hello(hello("a1")), Some(seals)).unwrap();
    // Without a tag; altered in transit; with the tag of another position; truncated.
    type Corrupt = fn(Vec<u8>, Vec<u8>) -> Vec<u8>;
    let corruptions: [Corrupt; 4] = [
        |line, _| line[65..].to_vec(),
        |line, _| {
            String::from_utf8(line)
                .unwrap()
                .replace("\"a1\"", "\"b2\"")
                .into_bytes()
        },
        |_, next| next,
        |line, _| line[..40].to_vec(),
    ];
    for corrupt in corruptions {
        let (mut raw, mut seals) = proved();
        let (line, next) = (good(&mut seals), good(&mut seals));
        raw.send_line(&corrupt(line, next));
        let answer = raw.receive_line();
        assert!(answer.contains("\"cause\":\"forged\""), "{answer}");
    }
    let (mut raw, mut seals) = proved();
    raw.send_line(&good(&mut seals));
    let answer = raw.receive_line();
    let Received::Message(answer) = read(answer.as_bytes(), Some(&mut seals)) else {
        panic!("{answer}")
    };
    assert_eq!(*answer, Message::Accept(accept()));
    assert_eq!(collector.outcomes(), [("accepted", 1), ("forged", 4)]);
}

#[test]
fn truncated_lines_are_refused() {
    let collector = TestCollector::open(Some(SECRET));
    let begin = |nonce: &str, version: u32| {
        Message::Begin(Begin {
            version,
            nonce: nonce.to_owned(),
        })
    };
    for (first, cause) in [
        (begin("00ff", 1), "malformed"),
        (begin(&"x".repeat(64), 1), "malformed"),
        (begin(&hex(&[7; LEN]), 9), "version"),
        (Message::Keepalive, "malformed"),
    ] {
        let mut raw = collector.connect();
        raw.send(&first);
        assert_eq!(raw.refused().0, cause, "{first:?}");
    }
    let mut raw = collector.connect();
    let nonces = raw.begin();
    let Message::Proof { proof } = proof(SECRET, Side::Translator, &nonces) else {
        panic!()
    };
    raw.send(&Message::Proof {
        proof: proof[..62].to_owned(),
    });
    assert_eq!(raw.refused().0, "wrong_secret");
    // A message that only a collector sends.
    let mut raw = collector.connect();
    raw.begin();
    raw.send(&Message::Refused {
        reason: "for the log".to_owned(),
        cause: Some("full".to_owned()),
    });
    assert_eq!(
        raw.refused(),
        ("malformed".to_owned(), "expected a proof".to_owned())
    );
    // Disconnected in the middle of a line.
    let mut raw = collector.connect();
    raw.begin();
    raw.stream.write_all(br#"{"type":"proof","pro"#).unwrap();
    raw.stream.shutdown(Shutdown::Write).unwrap();
    assert_eq!(raw.receive_line(), "");
    // A line longer than an unauthenticated peer may send.
    let mut raw = collector.connect();
    raw.send_line(&[b'x'; MAX_SHORT_LINE]);
    assert!(raw.refused().1.contains("longer than 4 KiB"));
    let expected = [
        ("closed", 1),
        ("malformed", 5),
        ("version", 1),
        ("wrong_secret", 1),
    ];
    assert_eq!(collector.outcomes(), expected);
}

#[test]
fn a_full_admission_queue_does_not_block_others() {
    let mut collector = TestCollector::open(Some(SECRET));
    // Each is registered before the next connects, so that their order is known.
    let mut idle: Vec<Raw> = (0..MAX_PENDING).map(|_| collector.connect()).collect();
    for raw in &mut idle {
        raw.begin();
    }
    let (outcome, _) = collector.tried(Some(SECRET));
    assert!(matches!(outcome, LinkEvent::Accepted(..)), "{outcome:?}");
    assert_eq!(idle[0].receive_line(), "", "the oldest is evicted");
    let view = collector.access.view();
    assert_eq!(
        (view.pending, view.refused["evicted"]),
        (MAX_PENDING as u64 - 1, 1)
    );
    assert_eq!(collector.outcomes(), [("accepted", 1), ("evicted", 1)]);
    collector.server = None;
    let stopped = ("stopped", MAX_PENDING as u64 - 1);
    assert_eq!(collector.outcomes(), [("accepted", 1), ("evicted", 1), stopped]);
}

#[test]
fn a_new_secret_holds_from_the_next_connection_on() {
    let path = std::env::temp_dir().join(format!("hopwise-exchange-secret-{}", std::process::id()));
    let put = |secret: &str| {
        use std::os::unix::fs::PermissionsExt;
        std::fs::write(&path, secret.replace(' ', "-")).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
    };
    put(SECRET);
    let secret = SecretFile::open(Some(&path)).unwrap().unwrap();
    let knows = |text: &str| {
        let nonces = Nonces {
            translator: [1; LEN],
            collector: [2; LEN],
        };
        let [now, other] = [secret.current(), file(text).current()];
        now.is_proof(&other.proof(Side::Translator, &nonces), Side::Translator, &nonces)
    };
    put(OTHER);
    let fresh = secret.reread().unwrap();
    assert!(knows(SECRET) && !knows(OTHER), "read, and not yet in force");
    fresh.activate();
    assert!(knows(OTHER) && !knows(SECRET));
    put("short");
    assert!(
        secret.reread().is_err() && knows(OTHER),
        "a bad file changes nothing"
    );
    std::fs::remove_file(&path).unwrap();
    assert!(SecretFile::open(None).unwrap().is_none());
}

#[test]
fn a_collector_that_says_nothing_is_left_in_time() {
    let listener = std::net::TcpListener::bind(any()).unwrap();
    let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let _silent = listener.accept().unwrap();
    let mut lines = Connection::new(stream, Duration::from_millis(1)).unwrap();
    let limit = HandshakeLimit {
        deadline: Instant::now(),
        stopped: &|| false,
    };
    let refused = prove(&mut lines, &file(SECRET).current(), &limit).unwrap_err();
    assert_eq!(refused.cause, RefusalCause::Timeout);
}
