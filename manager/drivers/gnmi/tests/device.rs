//! The driver against a server: objects in transactions and back, arbitration, changes by others, ports, and devices that misbehave.

mod support;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use gnmi::{Driver, PathMap, Peer, Settings};
use manager::device::{
    Answer, Change, Command, DeviceEvent, Election, Encoding, L4Checksum, Mode, Request, Rule, Rules, State,
    Watch,
};
use manager::driver::{Facts, Message, Neighbour, PortFacts};
use manager::flows::FlowMatch;
use serde_json::json;
use support::{Conduct, Server};
use tokio::runtime::Runtime;
use tonic::transport::{Certificate, Identity as TlsIdentity, ServerTlsConfig};

const TAM: &str = include_str!("../maps/sonic-tam.toml");

fn map(text: &str) -> Arc<PathMap> {
    Arc::new(PathMap::read(text, "map.toml").unwrap_or_else(|error| panic!("{error}")))
}

fn watch(hops: u8) -> Rule {
    let key = FlowMatch {
        src: "10.0.0.0/8".parse().ok(),
        dport: (443, 443),
        proto: Some(6),
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

/// One rule of each kind that the map knows.
fn rules() -> Rules {
    let encoding = Encoding {
        dscp: 23,
        l4_checksum: L4Checksum::Update,
    };
    let session = Rule::Session("[fd00::9]:9555".parse().expect("an address"));
    [
        Rule::Encoding(encoding),
        session,
        Rule::Sink(3),
        Rule::Instruction(2),
        Rule::Source(3),
        watch(8),
    ]
    .into()
}

fn election(term: u64) -> Election {
    Election { term, epoch: 1 }
}

/// A server, and a driver with what it reports.
struct Bench {
    runtime: Runtime,
    server: Server,
    address: SocketAddr,
}

impl Bench {
    fn new(conduct: Conduct) -> Self {
        let runtime = runtime();
        let (server, address) = runtime.block_on(Server::start());
        server.device().conduct = conduct;
        let interfaces = json!({"openconfig-interfaces:interface": [
            {"name": "Ethernet0", "state": {"ifindex": 3, "mtu": 9114}}, {"name": "Ethernet4", "state": {"ifindex": 4}}]});
        let lldp = json!([{"name": "Ethernet4", "neighbors": {"neighbor": [
            {"id": "1", "state": {"system-name": "leaf2", "port-id": "Ethernet8"}}]}}]);
        server.device().state.insert(
            "/interfaces/interface".to_owned(),
            interfaces["openconfig-interfaces:interface"].clone(),
        );
        server
            .device()
            .state
            .insert("/lldp/interfaces/interface".to_owned(), lldp);
        Self {
            runtime,
            server,
            address,
        }
    }

    fn driver(&self, text: &str) -> Talk {
        let user = Some(("admin".to_owned(), "secret".to_owned()));
        self.drive(
            Peer {
                user,
                ..Peer::default()
            },
            text,
        )
    }

    fn drive(&self, peer: Peer, text: &str) -> Talk {
        let (tell, messages) = channel();
        let peer = Peer {
            address: self.address.to_string(),
            ..peer
        };
        let _guard = self.runtime.enter();
        let tell = move |message| _ = tell.send(message);
        let driver = Driver::start(
            Settings {
                node: 7,
                peer,
                map: map(text),
            },
            tell,
        )
        .expect("a valid address");
        Talk {
            driver,
            messages,
            events: Vec::new(),
            next: 0,
        }
    }
}

/// The driver and the server run while a test waits.
fn runtime() -> Runtime {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build();
    runtime.expect("a runtime")
}

#[test]
fn a_device_that_asks_for_a_certificate_gets_the_one_of_the_manager() {
    let pem = |name: &str| {
        let file = format!("{}/../p4runtime/tests/tls/{name}.pem", env!("CARGO_MANIFEST_DIR"));
        std::fs::read(file).expect("a certificate or a key")
    };
    let (runtime, own) = (runtime(), TlsIdentity::from_pem(pem("server"), pem("server-key")));
    let tls = ServerTlsConfig::new()
        .identity(own)
        .client_ca_root(Certificate::from_pem(pem("ca")));
    let (server, address) = runtime.block_on(Server::start_with(|server| {
        server.tls_config(tls).expect("good certificates")
    }));
    let bench = Bench {
        runtime,
        server,
        address,
    };
    let peer = |identity| Peer {
        ca: Some(pem("ca")),
        name: Some("switch.test".to_owned()),
        identity,
        ..Peer::default()
    };
    let identity = Some((pem("client"), pem("client-key")));
    let mut talk = bench.drive(peer(identity.clone()), TAM);
    assert_eq!(talk.ask(Request::Claim(election(1))), Answer::Claimed);
    for wrong in [
        peer(None),
        Peer {
            name: Some("other.test".to_owned()),
            ..peer(identity)
        },
    ] {
        let answer = bench.drive(wrong, TAM).ask(Request::Claim(election(2)));
        assert!(matches!(answer, Answer::Unreachable(_)), "{answer:?}");
    }
}

/// A conversation with a driver.
struct Talk {
    driver: Driver,
    messages: Receiver<Message>,
    events: Vec<Message>,
    next: u64,
}

impl Talk {
    fn ask(&mut self, request: Request) -> Answer {
        self.next += 1;
        assert!(self.driver.send(Command {
            node: 7,
            id: self.next,
            request,
            limit: 2_000_000_000
        }));
        loop {
            match self
                .messages
                .recv_timeout(Duration::from_secs(60))
                .expect("an answer")
            {
                Message::Answer(7, id, answer) if id == self.next => return answer,
                event => self.events.push(event),
            }
        }
    }

    fn state(&mut self) -> State {
        match self.ask(Request::Read) {
            Answer::State(state) => state,
            other => panic!("{other:?}"),
        }
    }

    fn apply(&mut self, term: u64, changes: impl IntoIterator<Item = Change>) -> Answer {
        let etag = self.state().etag;
        self.ask(Request::Apply {
            election: election(term),
            etag,
            changes: changes.into_iter().collect(),
        })
    }

    /// Waits for a message that is no answer.
    fn wait(&mut self, is: impl Fn(&Message) -> bool) -> Message {
        loop {
            if let Some(at) = self.events.iter().position(&is) {
                return self.events.remove(at);
            }
            self.events.push(
                self.messages
                    .recv_timeout(Duration::from_secs(60))
                    .expect("a message"),
            );
        }
    }
}

#[test]
fn rules_become_objects_in_one_transaction_and_back() {
    let bench = Bench::new(Conduct::Honest);
    let mut talk = bench.driver(TAM);
    assert_eq!(talk.ask(Request::Claim(election(1))), Answer::Claimed);
    assert_eq!(talk.state().rules, Rules::new());
    assert_eq!(
        talk.apply(1, rules().into_iter().map(Change::Add)),
        Answer::Applied
    );
    let state = talk.state();
    assert_eq!((state.rules, state.foreign), (rules(), Vec::new()));
    let tables: Vec<(String, String)> = bench.server.device().entries.keys().cloned().collect();
    let tables: Vec<&str> = tables
        .iter()
        .filter_map(|(list, _)| list.rsplit('/').next())
        .collect();
    assert_eq!(
        tables,
        [
            "TAM_COLLECTOR_LIST",
            "TAM_FLOW_GROUP_LIST",
            "TAM_PORT_LIST",
            "TAM_PORT_LIST",
            "TAM_SESSION_LIST"
        ]
    );
    let collector = bench.server.device().entries.values().next().cloned();
    assert_eq!(
        collector,
        Some(json!({"name": "hopwise", "ip": "fd00::9", "port": 9555}))
    );
    assert!(
        bench
            .server
            .device()
            .users
            .iter()
            .all(|user| user == "admin secret")
    );

    let changes = [
        Change::Remove(watch(8)),
        Change::Add(watch(9)),
        Change::Remove(Rule::Instruction(2)),
    ];
    assert_eq!(talk.apply(1, changes), Answer::Applied);
    let mut after = rules();
    after.remove(&watch(8));
    after.remove(&Rule::Instruction(2));
    after.insert(watch(9));
    assert_eq!(talk.state().rules, after);
    assert_eq!(bench.server.device().entries.len(), 5);
}

#[test]
fn what_the_map_cannot_express_is_refused() {
    let bench = Bench::new(Conduct::Honest);
    let mut talk = bench.driver(TAM);
    assert_eq!(talk.ask(Request::Claim(election(1))), Answer::Claimed);
    let refused = |answer: Answer| match answer {
        Answer::Refused(reason) => reason,
        other => panic!("{other:?}"),
    };
    let other = Rule::Encoding(Encoding {
        dscp: 9,
        l4_checksum: L4Checksum::Update,
    });
    let reason = refused(talk.apply(1, [Change::Add(other)]));
    assert!(
        reason.starts_with("this device always has `INT marked by DSCP 23"),
        "{reason}"
    );
    let reason = refused(talk.apply(1, [Change::Add(Rule::Forwarding)]));
    assert_eq!(reason, "the path map has no object for `forwarding`; add one");
    let Rule::Watch(watch) = watch(8) else { return };
    let quiet = Rule::Watch(Arc::new(Watch {
        drops: false,
        ..(*watch).clone()
    }));
    let reason = refused(talk.apply(1, [Change::Add(quiet)]));
    assert!(
        reason.starts_with("the path map has no place for drops=no of"),
        "{reason}"
    );
    assert!(bench.server.device().entries.is_empty());
}

#[test]
fn an_older_election_writes_nothing() {
    let bench = Bench::new(Conduct::Honest);
    let (mut old, mut new) = (bench.driver(TAM), bench.driver(TAM));
    assert_eq!(old.ask(Request::Claim(election(5))), Answer::Claimed);
    let etag = old.state().etag;
    assert_eq!(new.ask(Request::Claim(election(6))), Answer::Claimed);
    let changes = vec![Change::Add(Rule::Sink(3))];
    for request in [
        Request::Apply {
            election: election(5),
            etag,
            changes,
        },
        Request::Claim(election(5)),
    ] {
        let answer = old.ask(request);
        let Answer::Unreachable(reason) = &answer else {
            panic!("{answer:?}")
        };
        assert!(
            reason.starts_with("denied: another manager has a higher election"),
            "{reason}"
        );
    }
    assert!(bench.server.device().entries.is_empty());
}

#[test]
fn changes_by_others_are_reported_and_objects_that_were_changed_are_no_sinks() {
    let bench = Bench::new(Conduct::Honest);
    let mut talk = bench.driver(TAM);
    assert_eq!(talk.ask(Request::Claim(election(1))), Answer::Claimed);
    assert_eq!(
        talk.apply(1, rules().into_iter().map(Change::Add)),
        Answer::Applied
    );
    let etag = talk.state().etag;
    {
        let mut device = bench.server.device();
        for ((_, key), entry) in &mut device.entries {
            if key == "hopwise_sink_3" {
                entry["role"] = json!("off");
            }
            if let Some(hops) = entry.get_mut("hop-limit") {
                *hops = json!(2);
            }
        }
        let theirs = (
            "/sonic-tam:sonic-tam/TAM_PORT/TAM_PORT_LIST".to_owned(),
            "uplink".to_owned(),
        );
        device
            .entries
            .insert(theirs, json!({"name": "uplink", "role": "sink"}));
        device.notify();
    }
    talk.wait(|message| *message == Message::Event(7, DeviceEvent::Changed));
    let state = talk.state();
    assert_ne!(state.etag, etag);
    // It inserts INT, whatever was changed.
    assert!(
        state.rules.contains(&watch(2)) && !state.rules.contains(&Rule::Sink(3)),
        "{:?}",
        state.rules
    );
    let list = "/sonic-tam:sonic-tam/TAM_PORT/TAM_PORT_LIST";
    assert_eq!(
        state.foreign,
        [
            format!("{list}[name=hopwise_sink_3]"),
            format!("{list}[name=uplink]")
        ]
    );
    let changes = vec![Change::Add(Rule::Sink(3))];
    assert_eq!(
        talk.ask(Request::Apply {
            election: election(1),
            etag,
            changes
        }),
        Answer::Stale
    );
    // Repaired, and what is another's stays.
    let changes = [
        Change::Remove(watch(2)),
        Change::Add(watch(8)),
        Change::Add(Rule::Sink(3)),
    ];
    assert_eq!(talk.apply(1, changes), Answer::Applied);
    let state = talk.state();
    assert_eq!(
        (state.rules, state.foreign),
        (rules(), vec![format!("{list}[name=uplink]")])
    );
}

#[test]
fn interfaces_and_neighbours_are_facts() {
    let bench = Bench::new(Conduct::Dumb);
    let mut talk = bench.driver(TAM);
    let Message::Facts(7, facts) = talk.wait(|message| matches!(message, Message::Facts(..))) else {
        return;
    };
    let port = |port, name: &str| PortFacts {
        port,
        name: Some(name.to_owned()),
        ..PortFacts::default()
    };
    let neighbour = Neighbour {
        system: "leaf2".to_owned(),
        port: "Ethernet8".to_owned(),
    };
    let expected = Facts {
        capabilities: map(TAM).capabilities().clone(),
        ports: vec![
            PortFacts {
                mtu: Some(9100),
                ..port(3, "Ethernet0")
            },
            PortFacts {
                neighbour: Some(neighbour),
                ..port(4, "Ethernet4")
            },
        ],
    };
    assert_eq!(*facts, expected);
}

#[test]
fn devices_that_misbehave_are_noticed() {
    let bench = Bench::new(Conduct::Lax);
    let mut talk = bench.driver(TAM);
    let Answer::Unreachable(reason) = talk.ask(Request::Claim(election(1))) else {
        panic!("claimed")
    };
    assert!(
        reason.starts_with("the device ignores master arbitration"),
        "{reason}"
    );
    // Unless the map says that this manager is alone.
    let mut alone = bench.driver(&format!("arbitration = false\n{TAM}"));
    assert_eq!(alone.ask(Request::Claim(election(1))), Answer::Claimed);
    assert_eq!(alone.apply(1, [Change::Add(Rule::Sink(3))]), Answer::Applied);

    bench.server.device().conduct = Conduct::Honest;
    assert_eq!(talk.ask(Request::Claim(election(2))), Answer::Claimed);
    bench.server.device().conduct = Conduct::Idle;
    assert_eq!(talk.apply(2, [Change::Add(Rule::Sink(4))]), Answer::Applied);
    assert_eq!(talk.state().rules, [Rule::Sink(3)].into());
    bench.server.device().conduct = Conduct::Full;
    assert_eq!(
        talk.apply(2, [Change::Add(Rule::Sink(4))]),
        Answer::Refused("the table is full".to_owned())
    );
    bench.server.device().conduct = Conduct::Mute;
    assert_eq!(
        talk.ask(Request::Read),
        Answer::Late("the device does not answer within 1.8 s".to_owned())
    );
}

#[test]
fn a_map_says_what_is_wrong_with_it() {
    let wrong = |from: &str, to: &str| {
        assert!(TAM.contains(from), "{from}");
        PathMap::read(&TAM.replacen(from, to, 1), "map.toml")
            .expect_err("a wrong map")
            .to_string()
    };
    for (from, to, message) in [
        (
            "rule = \"sink\"",
            "rule = \"sinks\"",
            "there is no rule `sinks`; use one of: encoding, session",
        ),
        (
            "name = \"hopwise_sink_{port}\"",
            "name = \"sink_{port}\"",
            "begin `name` with \"hopwise\"",
        ),
        (
            "\"{src}\"",
            "\"{source}\"",
            "`watch` has no `{source}`; use one of: src, dst",
        ),
        ("\"{src}\"", "\"{src\"", "`{src` needs one placeholder"),
        (
            "type = \"int\"",
            "type = \"{src}{dst}\"",
            "`{src}{dst}` needs one placeholder",
        ),
        (
            "always_instructions = true",
            "",
            "no object has rule = \"instruction\"; add one",
        ),
        (
            "always_encoding = \"dscp=23",
            "always_encoding = \"dscp=99",
            "invalid value `99` for `dscp`",
        ),
        (
            "modes = [\"md\"]",
            "modes = [\"all\"]",
            "there is no `all` here; correct it",
        ),
        (
            "/TAM_COLLECTOR_LIST\"",
            "/TAM_COLLECTOR_LIST[name=x]\"",
            "leave the keys of its last step out",
        ),
        (
            "path = \"/sonic-tam:sonic-tam/TAM_SESSION",
            "path = \"sonic tam/TAM_SESSION",
            "is not a path",
        ),
        (
            "bits = [0, 2, 3]",
            "bits = [16]",
            "an instruction bit is a number from 0 to 15",
        ),
        ("watch_entries", "wach_entries", "did you mean `watch_entries`?"),
    ] {
        let made = wrong(from, to);
        assert!(made.contains(message), "{made}");
    }
}
