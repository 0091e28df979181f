//! The driver, and the manager's reconciler with it, against a P4Runtime server that refuses, is slow, or forgets.

#![allow(clippy::unwrap_used, reason = "a test panics")]

mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use manager::device::{
    Answer, Change, DeviceEvent, Encoding, L4Checksum, Mode, NodeId, OtherEntries, Request, Restart, Rule,
    Rules, Watch,
};
use manager::driver::Message;
use manager::flows::FlowMatch;
use manager::inventory::DevicePorts;
use manager::reconcile::{Order, Reconciler, Target, Timing};
use p4runtime::driver::{Driver, Load, Settings};
use p4runtime::message::{Cookie, TableEntry};
use prost::Message as _;
use support::bench::{Bench, TERM, settings};
use support::info;
use support::server::Server;
use tokio::sync::mpsc;
use tonic::{Code, Status};

const PROGRAM: &str = "onos-int";
const GET: &str = "GetForwardingPipelineConfig";
const SET: &str = "SetForwardingPipelineConfig";

fn load(name: &str, config: &[u8]) -> Arc<Load> {
    Arc::new(Load::new(info(name).encode_to_vec(), config.to_vec()))
}

fn with_load(address: std::net::SocketAddr) -> Settings {
    Settings {
        load: Some(load(PROGRAM, b"program")),
        ..settings(address, PROGRAM)
    }
}

fn sinks(ports: &[u32]) -> Vec<Change> {
    ports.iter().map(|port| Change::Add(Rule::Sink(*port))).collect()
}

/// An entry of the watchlist.
fn watch(dport: u16) -> Rule {
    let key = FlowMatch {
        proto: Some(6),
        dport: (dport, dport),
        ..FlowMatch::default()
    };
    Rule::Watch(Arc::new(Watch {
        key,
        mode: Mode::Md,
        bits: 0x8000,
        hops: 4,
        sample: 1,
        drops: true,
    }))
}

/// How often a program was loaded, and entries of tables.
fn counts(server: &Server) -> (usize, usize) {
    let switch = server.switch();
    (switch.loads, switch.entries.len())
}

#[tokio::test]
async fn only_a_device_that_says_that_it_has_no_program_gets_one() {
    let codes = (1..=16)
        .map(Code::from_i32)
        .filter(|code| *code != Code::FailedPrecondition);
    for code in codes {
        let (server, address) = Server::start(Some(&info(PROGRAM))).await;
        let mut bench = Bench::new(with_load(address));
        assert_eq!(bench.claim().await, Answer::Claimed);
        let etag = bench.read().await.etag;
        assert_eq!(bench.apply(&etag, sinks(&[1, 2])).await, Answer::Applied);
        server
            .switch()
            .refusals
            .insert(GET, Status::new(code, "agent busy"));
        server.switch().restart_stream();
        let expected = match code {
            Code::Unavailable | Code::DeadlineExceeded | Code::Cancelled | Code::Unauthenticated => {
                Answer::Unreachable("agent busy".to_owned())
            }
            Code::PermissionDenied => {
                Answer::Unreachable("another client is primary; stop it, or set `role`".to_owned())
            }
            code => Answer::Refused(format!("agent busy ({code:?})")),
        };
        bench.lost().await;
        assert_eq!(bench.claim().await, expected, "{code:?}");
        assert_eq!(counts(&server), (0, 2), "{code:?}");
        server.switch().refusals.clear();
        assert_eq!(bench.claim().await, Answer::Claimed, "{code:?}");
        assert_eq!(counts(&server), (0, 2), "{code:?}");
    }
    for answers_empty in [false, true] {
        let (server, address) = Server::start(None).await;
        server.switch().answers_empty = answers_empty;
        let mut bench = Bench::new(with_load(address));
        assert_eq!(
            bench.claim().await,
            Answer::Unreachable("its program is being loaded".to_owned())
        );
        while bench.claim().await != Answer::Claimed {}
        assert_eq!(server.switch().loads, 1);
    }
    // With P4Info that is not returned, it has a program all the same.
    let (server, address) = Server::start(Some(&p4runtime::message::P4Info::default())).await;
    server.switch().cookie = Some(Cookie { cookie: 7 });
    let expected = "it does not give the P4Info of its program (DataLoss)";
    assert_eq!(
        Bench::new(with_load(address)).claim().await,
        Answer::Refused(expected.to_owned())
    );
    assert_eq!(server.switch().loads, 0);
}

#[tokio::test]
async fn the_program_of_a_device_is_compared_with_the_one_to_load() {
    // It has a table more than the map needs.
    let mut other = info(PROGRAM);
    let table = other.tables[0].clone();
    other.tables.push(table);
    let (server, address) = Server::start(Some(&other)).await;
    let mut bench = Bench::new(with_load(address));
    let expected = "its program is not that of `load`, and a program that a device has is not replaced: restart the device without it, or correct `load`";
    assert_eq!(bench.claim().await, Answer::Unreachable(expected.to_owned()));
    assert_eq!(server.switch().loads, 0);
    drop(bench);

    // The same P4Info, loaded by somebody else: it is driven, and that is said once.
    let (server, address) = Server::start(Some(&info(PROGRAM))).await;
    server.switch().cookie = Some(Cookie { cookie: 7 });
    let mut bench = Bench::new(with_load(address));
    assert_eq!(bench.claim().await, Answer::Claimed);
    assert_eq!(bench.claim().await, Answer::Claimed);
    let notes = bench
        .events
        .iter()
        .filter(|message| matches!(message, Message::Note(7, _)))
        .count();
    assert_eq!((notes, server.switch().loads), (1, 0));
    drop(bench);

    // The one that this driver loads has the cookie of its files.
    let (server, address) = Server::start(None).await;
    let mut bench = Bench::new(with_load(address));
    bench.claim().await;
    while bench.claim().await != Answer::Claimed {}
    assert!(
        !bench
            .events
            .iter()
            .any(|message| matches!(message, Message::Note(..)))
    );
    let first = server.switch().cookie;
    assert!(first.is_some());
    drop(bench);
    let newer = Settings {
        load: Some(load(PROGRAM, b"newer")),
        ..with_load(address)
    };
    let mut bench = Bench::new(newer);
    bench.election.term += 1;
    assert_eq!(bench.claim().await, Answer::Claimed);
    let notes = bench
        .events
        .iter()
        .filter(|message| matches!(message, Message::Note(7, _)))
        .count();
    let cookie = server.switch().cookie;
    assert_eq!((notes, cookie, server.switch().loads), (1, first, 1));
}

#[tokio::test]
async fn a_stream_that_breaks_while_a_program_is_loaded_is_a_loss_and_the_end_of_loading_is_reported() {
    let (server, address) = Server::start(None).await;
    server.switch().delays.insert(SET, Duration::from_secs(600));
    let mut bench = Bench::new(with_load(address));
    assert_eq!(
        bench.claim().await,
        Answer::Unreachable("its program is being loaded".to_owned())
    );
    server.switch().lose_program();
    server.switch().restart();
    bench.lost().await;
    server.switch().delays.clear();
    server.switch().lose_program();
    assert_eq!(
        bench.claim().await,
        Answer::Unreachable("its program is being loaded".to_owned())
    );
    while bench.message().await != Message::Event(7, DeviceEvent::Loaded) {}
    assert_eq!(bench.claim().await, Answer::Claimed);
    // One that refuses the program says so, and is claimed again.
    server.switch().lose_program();
    server
        .switch()
        .refusals
        .insert(SET, Status::invalid_argument("not for this chip"));
    assert_eq!(
        bench.claim().await,
        Answer::Unreachable("its program is being loaded".to_owned())
    );
    while bench.message().await != Message::Event(7, DeviceEvent::Loaded) {}
    let expected = "it does not accept the program: not for this chip (InvalidArgument)";
    assert_eq!(bench.claim().await, Answer::Unreachable(expected.to_owned()));
}

#[tokio::test]
async fn what_a_device_does_not_let_be_read_is_not_known_to_be_absent() {
    let (server, address) = Server::start(Some(&info(PROGRAM))).await;
    let mut bench = Bench::new(settings(address, PROGRAM));
    bench.claim().await;
    let etag = bench.read().await.etag;
    let session = vec![Change::Add(Rule::Session("192.0.2.9:32766".parse().unwrap()))];
    assert_eq!(bench.apply(&etag, session).await, Answer::Applied);
    let before = bench.read().await;
    for code in [
        Code::Internal,
        Code::Unknown,
        Code::Unimplemented,
        Code::ResourceExhausted,
    ] {
        server
            .switch()
            .refusals
            .insert("Session", Status::new(code, "agent busy"));
        let expected = Answer::Refused(format!("agent busy ({code:?})"));
        assert_eq!(bench.ask(Request::Read).await, expected);
        assert_eq!(bench.apply(&before.etag, sinks(&[1])).await, expected);
    }
    server.switch().refusals.clear();
    assert_eq!(bench.read().await, before);
    // The first word that it gives: there is none.
    server.switch().sessions.clear();
    assert!(
        !bench
            .read()
            .await
            .rules
            .iter()
            .any(|rule| matches!(rule, Rule::Session(_)))
    );
}

#[tokio::test]
async fn a_full_table_is_named_whatever_code_says_it() {
    let mut small = info(PROGRAM);
    let sink = small
        .tables
        .iter_mut()
        .find(|table| table.preamble.as_ref().unwrap().alias == "tb_set_sink");
    sink.unwrap().size = 2;
    let (server, address) = Server::start(Some(&small)).await;
    server.switch().full = Status::unknown("Error when adding match entry to target");
    let mut bench = Bench::new(settings(address, PROGRAM));
    bench.claim().await;
    let etag = bench.read().await.etag;
    assert_eq!(bench.apply(&etag, sinks(&[1])).await, Answer::Applied);
    server.switch().entries[0].metadata = b"theirs".to_vec();
    let etag = bench.read().await.etag;
    let expected = "it refused the entry of ingress.process_int_source_sink.tb_set_sink for standard_metadata.egress_spec 2 (ingress.process_int_source_sink.int_set_sink): the table is full: 3 entries do not fit into its 2, and one of them is of another controller; use fewer intents, or wider prefixes (Error when adding match entry to target)";
    assert_eq!(
        bench.apply(&etag, sinks(&[2, 3])).await,
        Answer::Refused(expected.to_owned())
    );
    // Where there is room, the words of the device are all that is known.
    let entry = |switch: &mut Vec<TableEntry>| switch.retain(|entry| entry.metadata == b"theirs");
    entry(&mut server.switch().entries);
    server
        .switch()
        .refusals
        .insert("Write", Status::unknown("driver bug"));
    let etag = bench.read().await.etag;
    let expected = "it refused the entry of ingress.process_int_source_sink.tb_set_sink for standard_metadata.egress_spec 2 (ingress.process_int_source_sink.int_set_sink): driver bug";
    assert_eq!(
        bench.apply(&etag, sinks(&[2])).await,
        Answer::Refused(expected.to_owned())
    );
}

#[tokio::test]
async fn a_write_that_is_refused_for_a_precondition_says_nothing_of_the_program() {
    let (server, address) = Server::start(Some(&info(PROGRAM))).await;
    let mut bench = Bench::new(with_load(address));
    bench.claim().await;
    let etag = bench.read().await.etag;
    server
        .switch()
        .refusals
        .insert("Write", Status::failed_precondition("warm restart"));
    let expected = "it refused the entry of ingress.process_int_source_sink.tb_set_sink for standard_metadata.egress_spec 1 (ingress.process_int_source_sink.int_set_sink): warm restart";
    assert_eq!(
        bench.apply(&etag, sinks(&[1])).await,
        Answer::Refused(expected.to_owned())
    );
}

#[tokio::test]
async fn entries_of_others_are_counted_in_the_tables_that_they_fill() {
    let (server, address) = Server::start(Some(&info(PROGRAM))).await;
    let mut bench = Bench::new(settings(address, PROGRAM));
    bench.claim().await;
    let etag = bench.read().await.etag;
    let changes: Vec<Change> = (1..=3)
        .map(|port| Change::Add(watch(port)))
        .chain(sinks(&[1]))
        .collect();
    assert_eq!(bench.apply(&etag, changes).await, Answer::Applied);
    assert_eq!(bench.read().await.others, OtherEntries::default());
    let own = server.switch().entries.len();
    for entry in server.switch().entries.iter_mut().take(own - 1) {
        entry.metadata = b"theirs".to_vec();
    }
    let state = bench.read().await;
    let watches = state
        .rules
        .iter()
        .filter(|rule| matches!(rule, Rule::Watch(_)))
        .count();
    let foreign = state
        .foreign
        .iter()
        .filter(|text| text.contains("tb_int_source "))
        .count();
    assert!(foreign > 1, "{:?}", state.foreign);
    assert_eq!(
        (watches + foreign, state.others),
        (
            3,
            OtherEntries {
                watch: foreign,
                filter: 0
            }
        )
    );
}

#[tokio::test]
async fn commands_do_not_wait_for_counters() {
    let (server, address) = Server::start(Some(&info(PROGRAM))).await;
    server
        .switch()
        .delays
        .insert("Counters", Duration::from_secs(600));
    let mut bench = Bench::new(settings(address, PROGRAM));
    assert_eq!(bench.claim().await, Answer::Claimed);
    while server.switch().reads == 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    bench.read().await;
    assert_eq!(
        bench.lost().await,
        format!("{address} does not answer within 1.8 s")
    );
}

/// Devices under a reconciler, with their drivers, in real time.
struct Fleet {
    reconciler: Reconciler,
    drivers: BTreeMap<NodeId, Driver>,
    messages: mpsc::UnboundedReceiver<Message>,
    start: Instant,
    /// The states of all devices, in the order in which they appeared.
    states: Vec<String>,
}

impl Fleet {
    fn new(devices: Vec<Settings>, timing: Timing) -> Self {
        let (send, messages) = mpsc::unbounded_channel();
        let encoding = Encoding {
            dscp: 23,
            l4_checksum: L4Checksum::Leave,
        };
        let rules = Rules::from([
            Rule::Session("192.0.2.9:32766".parse().unwrap()),
            Rule::Encoding(encoding),
            Rule::Sink(1),
            Rule::Instruction(0),
        ]);
        let rules = Arc::new(rules);
        let ports = DevicePorts {
            edge: [1].into(),
            ..DevicePorts::default()
        };
        let mut reconciler = Reconciler::new(timing, Order::default());
        let mut targets = BTreeMap::new();
        let mut drivers = BTreeMap::new();
        for (index, mut settings) in devices.into_iter().enumerate() {
            let node = index as NodeId + 1;
            settings.local.node = node;
            let (name, restart) = (format!("d{node}"), Restart::Forwards);
            let (ports, rules) = (ports.clone(), Arc::clone(&rules));
            targets.insert(
                node,
                Target {
                    name,
                    ports,
                    rules,
                    restart,
                    room: None,
                    outside: false,
                },
            );
            let send = send.clone();
            drivers.insert(
                node,
                Driver::start(settings, move |message| drop(send.send(message))),
            );
        }
        reconciler.set_targets(targets, 1);
        reconciler.set_term(Some(TERM), 1);
        Self {
            reconciler,
            drivers,
            messages,
            start: Instant::now(),
            states: Vec::new(),
        }
    }

    fn now(&self) -> u64 {
        1 + u64::try_from(self.start.elapsed().as_nanos()).unwrap()
    }

    /// Drives the devices until `is_done`.
    async fn until(&mut self, is_done: impl Fn(&Self) -> bool) {
        let begin = Instant::now();
        loop {
            let mut commands = Vec::new();
            self.reconciler.poll(self.now(), &mut commands);
            for command in commands {
                self.drivers[&command.node].send(command);
            }
            let states: BTreeSet<String> = self
                .reconciler
                .phases()
                .map(|(_, phase)| phase.to_string())
                .collect();
            for state in states {
                if self.states.last() != Some(&state) {
                    self.states.push(state);
                }
            }
            if is_done(self) {
                return;
            }
            assert!(
                begin.elapsed() < Duration::from_secs(600),
                "{:?}",
                self.reconciler.states().next()
            );
            let wait = self
                .reconciler
                .next_timeout()
                .map_or(1, |next| next.saturating_sub(self.now()));
            let message = tokio::time::timeout(Duration::from_nanos(wait), self.messages.recv()).await;
            match message.ok().flatten() {
                Some(Message::Answer(node, id, answer)) => {
                    self.reconciler.answer(node, id, answer, self.now());
                }
                Some(Message::Event(node, event)) => self.reconciler.event(node, event, self.now()),
                _ => {}
            }
        }
    }

    fn state(&self) -> String {
        self.reconciler.phase(1).unwrap().to_string()
    }
}

#[tokio::test]
async fn a_device_that_refuses_reads_or_loses_its_program_is_shown_and_filled_again() {
    let (server, address) = Server::start(Some(&info(PROGRAM))).await;
    let mut fleet = Fleet::new(vec![with_load(address)], Timing::default());
    fleet
        .until(|fleet| fleet.reconciler.in_sync() == fleet.reconciler.phases().count())
        .await;
    server
        .switch()
        .refusals
        .insert("Read", Status::unknown("driver bug"));
    // Its counters cannot be read either, so that this is noticed before the next poll.
    fleet
        .until(|fleet| fleet.state() == "failed: it refuses to be read: driver bug (Unknown)")
        .await;
    server.switch().refusals.clear();
    fleet
        .until(|fleet| fleet.reconciler.in_sync() == fleet.reconciler.phases().count())
        .await;

    let entries = server.switch().entities();
    assert_eq!(server.switch().loads, 0);
    server.switch().lose_program();
    fleet.states.clear();
    fleet
        .until(|fleet| {
            fleet.states.len() > 1 && fleet.reconciler.in_sync() == fleet.reconciler.phases().count()
        })
        .await;
    let loads = server.switch().loads;
    assert_eq!((loads, server.switch().entities()), (1, entries));
    let expected = [
        "failed: it refuses to be read: it has lost its program (no forwarding pipeline config)",
        "unreachable: its program is being loaded",
    ];
    let seen: Vec<&str> = fleet
        .states
        .iter()
        .map(String::as_str)
        .filter(|state| expected.contains(state))
        .collect();
    assert_eq!(seen, expected, "{:?}", fleet.states);
}

/// 200 devices that need more time for each answer than they have at first. `HOPWISE_SLOW_DEVICES_MS`: how much.
#[tokio::test]
async fn two_hundred_slow_devices_converge() {
    let ms = std::env::var("HOPWISE_SLOW_DEVICES_MS")
        .ok()
        .and_then(|ms| ms.parse().ok())
        .unwrap_or(100);
    let slow = Duration::from_millis(ms);
    let mut devices = Vec::new();
    let mut servers = Vec::new();
    for _ in 0..200 {
        let (server, address) = Server::start(Some(&info(PROGRAM))).await;
        server.switch().delays = [(GET, slow), ("Read", slow), ("Write", slow)].into();
        devices.push(settings(address, PROGRAM));
        servers.push(server);
    }
    let part = u64::try_from(slow.as_nanos()).unwrap();
    let timing = Timing {
        timeout: part * 2 / 5,
        longest: part * 64,
        retry: (part / 10, part * 6),
        ..Timing::default()
    };
    let mut fleet = Fleet::new(devices, timing);
    fleet
        .until(|fleet| fleet.reconciler.in_sync() == fleet.reconciler.phases().count())
        .await;
    let filled = servers[0].switch().entities();
    assert!(filled > 0 && servers.iter().all(|server| server.switch().entities() == filled));
}
