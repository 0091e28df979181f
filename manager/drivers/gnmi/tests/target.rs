//! The driver against a gNMI server that is not ours: `gnmi_target` of github.com/google/gnxi, a Go program with the OpenConfig models of
//! interfaces and systems, found on PATH. It has no master arbitration, no lists as a whole and no subscription to changes.

#![allow(clippy::unwrap_used, reason = "a test panics")]

use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use gnmi::{Driver, PathMap, Peer, Settings};
use manager::device::{
    Answer, Change, Command as Order, Election, Encoding, L4Checksum, Mode, Request, Rule, Rules, State,
    Watch,
};
use manager::driver::Message;
use manager::flows::FlowMatch;

/// What the models of that server have room for: interfaces with a description and an MTU.
const MAP: &str = r#"
device = "interfaces as a notice board"
arbitration = false
modes = ["md"]
bits = [0, 2]
matches = ["prefixes", "wildcards"]
l4_checksum = ["update"]
always_encoding = "dscp=23 l4_checksum=update"
lldp = ""

[defaults]
mode = "md"
bits = "0xa000"
sample = "1"
drops = "yes"

[[objects]]
rule = "session"
path = "/interfaces/interface"
name = "hopwise_session"
texts = { "config/name" = "hopwise_session", "config/description" = "{collector_address}" }
numbers = { "config/mtu" = "{collector_port}" }

[[objects]]
rule = "sink"
path = "/interfaces/interface"
name = "hopwise_sink_{port}"
texts = { "config/name" = "hopwise_sink_{port}", "config/description" = "sink" }

[[objects]]
rule = "instruction"
path = "/interfaces/interface"
name = "hopwise_bit_{bit}"
texts = { "config/name" = "hopwise_bit_{bit}" }

[[objects]]
rule = "source"
path = "/interfaces/interface"
name = "hopwise_source_{port}"
texts = { "config/name" = "hopwise_source_{port}" }

[[objects]]
rule = "watch"
path = "/interfaces/interface"
name = "hopwise_watch_{id}"
texts = { "config/name" = "hopwise_watch_{id}", "config/description" = "{dst}" }
numbers = { "config/mtu" = "{hops}" }
"#;

const CONFIG: &str = r#"{"openconfig-interfaces:interfaces": {"interface": [{"name": "admin", "config": {"name": "admin"}}]}}"#;

fn installed() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path)
        .map(|folder| folder.join("gnmi_target"))
        .find(|file| file.is_file());
    if found.is_none() {
        // Not by `println`, which the test harness captures.
        std::io::stderr()
            .write_all(b"SKIPPED gnmi_target: it is not installed (github.com/google/gnxi)\n")
            .unwrap();
    }
    found
}

/// A running server.
struct Target {
    process: Child,
    address: String,
    folder: PathBuf,
}

impl Target {
    fn start(program: &Path, options: &[&str]) -> Self {
        let port = TcpListener::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap()
            .port();
        let address = format!("127.0.0.1:{port}");
        let folder = std::env::temp_dir().join(format!("hopwise-gnmi-{}-{port}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("config.json"), CONFIG).unwrap();
        let mut command = Command::new(program);
        command.args([
            "-bind_address",
            &address,
            "-username",
            "admin",
            "-password",
            "secret",
            "-config",
        ]);
        command.arg(folder.join("config.json")).args(options);
        let process = command
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let start = Instant::now();
        while TcpStream::connect(&address).is_err() {
            assert!(
                start.elapsed() < Duration::from_secs(60),
                "gnmi_target does not listen"
            );
            std::thread::yield_now();
        }
        Self {
            process,
            address,
            folder,
        }
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

struct Talk {
    runtime: tokio::runtime::Runtime,
    driver: Driver,
    messages: Receiver<Message>,
    next: u64,
}

impl Talk {
    fn new(peer: Peer) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let (sender, messages) = channel();
        let map = Arc::new(PathMap::read(MAP, "map.toml").unwrap_or_else(|error| panic!("{error}")));
        let guard = runtime.enter();
        let driver = Driver::start(Settings { node: 7, peer, map }, move |message| {
            _ = sender.send(message)
        })
        .unwrap();
        drop(guard);
        Self {
            runtime,
            driver,
            messages,
            next: 0,
        }
    }

    fn ask(&mut self, request: Request) -> Answer {
        self.next += 1;
        assert!(self.driver.send(Order {
            node: 7,
            id: self.next,
            request,
            limit: 2_000_000_000
        }));
        loop {
            if let Message::Answer(7, id, answer) =
                self.messages.recv_timeout(Duration::from_secs(60)).unwrap()
                && id == self.next
            {
                return answer;
            }
        }
    }

    fn state(&mut self) -> State {
        match self.ask(Request::Read) {
            Answer::State(state) => state,
            other => panic!("{other:?}"),
        }
    }

    fn apply(&mut self, changes: impl IntoIterator<Item = Change>) -> Answer {
        let etag = self.state().etag;
        self.ask(Request::Apply {
            election: ELECTION,
            etag,
            changes: changes.into_iter().collect(),
        })
    }
}

const ELECTION: Election = Election { term: 1, epoch: 1 };

fn watch(hops: u8) -> Rule {
    let key = FlowMatch {
        dst: "10.0.0.0/8".parse().ok(),
        ..FlowMatch::default()
    };
    Rule::Watch(Arc::new(Watch {
        key,
        mode: Mode::Md,
        bits: 0xa000,
        hops,
        sample: 1,
        drops: true,
    }))
}

fn rules() -> Rules {
    let encoding = Encoding {
        dscp: 23,
        l4_checksum: L4Checksum::Update,
    };
    let session = Rule::Session("192.0.2.9:9555".parse().unwrap());
    [
        Rule::Encoding(encoding),
        session,
        Rule::Sink(3),
        Rule::Instruction(2),
        Rule::Source(3),
        watch(80),
    ]
    .into()
}

fn user(password: &str) -> Option<(String, String)> {
    Some(("admin".to_owned(), password.to_owned()))
}

#[test]
fn rules_are_written_read_and_removed() {
    let Some(program) = installed() else { return };
    let target = Target::start(&program, &["-notls"]);
    let mut talk = Talk::new(Peer {
        address: target.address.clone(),
        user: user("secret"),
        ..Peer::default()
    });
    assert_eq!(talk.ask(Request::Claim(ELECTION)), Answer::Claimed);
    let empty = talk.state();
    assert_eq!((empty.rules, empty.foreign.len()), (Rules::new(), 1));
    assert_eq!(talk.apply(rules().into_iter().map(Change::Add)), Answer::Applied);
    let state = talk.state();
    assert_eq!(
        (state.rules, state.foreign),
        (rules(), vec!["/interfaces/interface[name=admin]".to_owned()])
    );

    assert_eq!(
        talk.apply([Change::Remove(watch(80)), Change::Add(watch(90))]),
        Answer::Applied
    );
    let mut expected = rules();
    expected.remove(&watch(80));
    expected.insert(watch(90));
    assert_eq!(talk.state().rules, expected);
    let etag = empty.etag;
    assert_eq!(
        talk.ask(Request::Apply {
            election: ELECTION,
            etag,
            changes: Vec::new()
        }),
        Answer::Stale
    );

    // The model allows MTUs of 16 bits only: the transaction is refused as a whole, and says why.
    let session = Rule::Session("[fd00::9]:9555".parse().unwrap());
    let removals = expected.iter().cloned().map(Change::Remove);
    assert_eq!(
        talk.apply(removals.chain([Change::Add(session.clone())])),
        Answer::Applied
    );
    assert_eq!(talk.state().rules, [session].into());
    talk.runtime.shutdown_background();
}

#[test]
fn users_and_certificates_are_checked() {
    let Some(program) = installed() else { return };
    let file = |name: &str| format!("{}/../p4runtime/tests/tls/{name}", env!("CARGO_MANIFEST_DIR"));
    let (cert, key, ca) = (file("server.pem"), file("server-key.pem"), file("ca.pem"));
    let target = Target::start(&program, &["-insecure", "-cert", &cert, "-key", &key, "-ca", &ca]);
    let peer = |ca: &str, password: &str| Peer {
        address: target.address.clone(),
        user: user(password),
        ca: Some(std::fs::read(file(ca)).unwrap()),
        name: Some("switch.test".to_owned()),
        identity: None,
    };
    let mut talk = Talk::new(peer("ca.pem", "secret"));
    assert_eq!(talk.ask(Request::Claim(ELECTION)), Answer::Claimed);
    assert_eq!(talk.apply([Change::Add(Rule::Sink(1))]), Answer::Applied);
    assert_eq!(talk.state().rules, [Rule::Sink(1)].into());

    for (peer, part) in [
        (peer("ca.pem", "wrong"), "not authorized"),
        (peer("other-ca.pem", "secret"), "certificate"),
    ] {
        let mut talk = Talk::new(peer);
        // This server asks for the user at reads and writes only.
        let answer = match talk.ask(Request::Claim(ELECTION)) {
            Answer::Claimed => talk.ask(Request::Read),
            other => other,
        };
        let text = format!("{answer:?}");
        assert!(
            matches!(
                answer,
                Answer::Unreachable(_) | Answer::Refused(_) | Answer::NotPrimary(_)
            ),
            "{text}"
        );
        assert!(text.contains(part), "{text}");
        talk.runtime.shutdown_background();
    }
    talk.runtime.shutdown_background();
}
