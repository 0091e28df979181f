//! The driver against a P4Runtime server that checks what the specification demands.

#![allow(clippy::unwrap_used, reason = "a test panics")]

mod support;

use std::net::SocketAddr;
use std::sync::Arc;

use manager::device::{Answer, Change, Encoding, L4Checksum, Mode, Request, Rule, Rules, Watch};
use manager::driver::{Counter, Message};
use manager::flows::{ANY_PORT, FlowMatch};
use p4runtime::client::{Calls, Client, Tls};
use p4runtime::driver::Load;
use p4runtime::message::*;
use prost::Message as _;
use support::bench::{Bench, settings};
use support::info;
use support::server::{Conduct, Server};

fn add(rules: &Rules) -> Vec<Change> {
    rules.iter().cloned().map(Change::Add).collect()
}

fn watch(port: u16, bits: u16) -> Rule {
    let key = FlowMatch {
        dport: (port, port),
        sport: ANY_PORT,
        ..FlowMatch::default()
    };
    Rule::Watch(Arc::new(Watch {
        key,
        mode: Mode::Md,
        bits,
        hops: 6,
        sample: 1,
        drops: true,
    }))
}

fn rules() -> Rules {
    let session = Rule::Session("192.0.2.9:32766".parse().unwrap());
    let encoding = Rule::Encoding(Encoding {
        dscp: 23,
        l4_checksum: L4Checksum::Leave,
    });
    let mut rules = Rules::from([
        session,
        encoding,
        Rule::Source(1),
        watch(80, 0xa000),
        watch(443, 0x8000),
    ]);
    rules.extend([1, 2, 3].map(Rule::Sink));
    rules.extend([0, 2].map(Rule::Instruction));
    rules
}

async fn onos() -> (Server, SocketAddr) {
    Server::start(Some(&info("onos-int"))).await
}

/// Another client of the device.
async fn other(address: SocketAddr, id: Uint128) -> (Client, Calls) {
    let mut client = Client::connect(&settings(address, "onos-int").peer, None, id)
        .await
        .unwrap();
    client.next().await.unwrap();
    let calls = client.calls();
    (client, calls)
}

#[tokio::test]
async fn rules_are_installed_read_back_changed_and_removed() {
    let (server, address) = onos().await;
    let mut bench = Bench::new(settings(address, "onos-int"));
    assert_eq!(bench.claim().await, Answer::Claimed);
    assert!(
        matches!(&bench.events[..], [Message::Facts(7, facts)] if facts.capabilities.watch_entries == 1024)
    );
    let before = bench.read().await;
    assert_eq!((before.rules.len(), before.foreign.len()), (0, 0));

    assert_eq!(bench.apply(&before.etag, add(&rules())).await, Answer::Applied);
    let filled = bench.read().await;
    assert_eq!((filled.rules, filled.foreign), (rules(), vec![]));
    assert_ne!(filled.etag, before.etag);
    // Session, report, three sinks, transit, source, two entries of the watchlist: in an order that the device cannot change.
    assert_eq!(server.switch().entities(), 9);
    assert_eq!(server.switch().writes, [1, 1, 3, 1, 1, 2]);

    let changes = vec![Change::Remove(watch(80, 0xa000)), Change::Add(watch(80, 0xf000))];
    assert_eq!(bench.apply(&filled.etag, changes).await, Answer::Applied);
    let changed = bench.read().await;
    assert!(changed.rules.contains(&watch(80, 0xf000)) && changed.rules.len() == rules().len());

    let all = changed.rules.iter().cloned().map(Change::Remove).collect();
    assert_eq!(bench.apply(&changed.etag, all).await, Answer::Applied);
    assert_eq!(bench.read().await.rules, Rules::new());
    assert_eq!(server.switch().entities(), 0);
}

#[tokio::test]
async fn published_programs_take_their_rules() {
    for (map, dscp) in [("geant-int", 32), ("fabric-tna", 0)] {
        let (server, address) = Server::start(Some(&info(map))).await;
        let mut bench = Bench::new(settings(address, map));
        assert_eq!(bench.claim().await, Answer::Claimed, "{map}");
        let mut wanted = Rules::from([Rule::Session("192.0.2.9:32766".parse().unwrap())]);
        if dscp > 0 {
            let encoding = Encoding {
                dscp,
                l4_checksum: L4Checksum::Leave,
            };
            wanted.extend([
                Rule::Encoding(encoding),
                Rule::Sink(1),
                Rule::Instruction(0),
                watch(80, 0x8000),
            ]);
        } else {
            let key = FlowMatch {
                dport: (80, 90),
                ..FlowMatch::default()
            };
            let mode = Mode::Postcard;
            let watch = Watch {
                key,
                mode,
                bits: 0xa000,
                hops: 6,
                sample: 1,
                drops: true,
            };
            wanted.insert(Rule::Watch(Arc::new(watch)));
        }
        let etag = bench.read().await.etag;
        assert_eq!(bench.apply(&etag, add(&wanted)).await, Answer::Applied, "{map}");
        let state = bench.read().await;
        assert_eq!((state.rules, state.foreign), (wanted, vec![]), "{map}");
        let all = state.etag;
        let none = bench.read().await.rules.into_iter().map(Change::Remove).collect();
        assert_eq!(bench.apply(&all, none).await, Answer::Applied, "{map}");
        assert_eq!(server.switch().entities(), 0, "{map}");
    }
}

#[tokio::test]
async fn a_restarted_manager_writes_nothing() {
    let (server, address) = onos().await;
    let mut first = Bench::new(settings(address, "onos-int"));
    first.claim().await;
    let etag = first.read().await.etag;
    assert_eq!(first.apply(&etag, add(&rules())).await, Answer::Applied);
    drop(first);
    server.switch().writes.clear();
    let mut second = Bench::new(settings(address, "onos-int"));
    second.election.term += 1;
    assert_eq!(second.claim().await, Answer::Claimed);
    let state = second.read().await;
    let (lacking, beyond) = (
        rules().difference(&state.rules).count(),
        state.rules.difference(&rules()).count(),
    );
    // It knows neither how INT is encoded, nor which instructions were asked for.
    assert_eq!((lacking, beyond), (1, 6));
    let wanted = rules();
    let removed = state.rules.difference(&wanted).cloned().map(Change::Remove);
    let added = rules()
        .difference(&state.rules)
        .cloned()
        .map(Change::Add)
        .collect::<Vec<_>>();
    assert_eq!(
        second.apply(&state.etag, removed.chain(added).collect()).await,
        Answer::Applied
    );
    assert_eq!(second.read().await.rules, rules());
    assert_eq!(server.switch().writes, Vec::<usize>::new());
}

#[tokio::test]
async fn the_manager_of_a_newer_term_takes_over() {
    let (_server, address) = onos().await;
    let (mut old, mut new) = (
        Bench::new(settings(address, "onos-int")),
        Bench::new(settings(address, "onos-int")),
    );
    old.claim().await;
    let etag = old.read().await.etag;
    new.election.term += 1;
    assert_eq!(new.claim().await, Answer::Claimed);
    assert_eq!(old.lost().await, "another client became primary");
    assert!(matches!(
        old.apply(&etag, add(&rules())).await,
        Answer::Unreachable(_)
    ));
    assert_eq!(old.claim().await, Answer::NotPrimary(new.election));
    // The new one is not disturbed.
    let etag = new.read().await.etag;
    assert_eq!(new.apply(&etag, add(&rules())).await, Answer::Applied);
}

#[tokio::test]
async fn a_late_request_of_an_older_claim_is_refused_by_the_device() {
    let (server, address) = onos().await;
    let mut bench = Bench::new(settings(address, "onos-int"));
    bench.claim().await;
    let (etag, older) = (bench.read().await.etag, bench.election);
    assert_eq!(bench.claim().await, Answer::Claimed);
    let changes = add(&rules());
    let answer = bench
        .ask(Request::Apply {
            election: older,
            etag,
            changes,
        })
        .await;
    assert_eq!(answer, Answer::Stale);
    // Also if it went by another way.
    let mut calls = other(address, Uint128 { high: 1, low: 1 }).await.1;
    let older = Uint128 {
        high: older.term,
        low: older.epoch,
    };
    let refused = calls.write(older, vec![Update::default()]).await;
    assert_eq!(refused, Err(p4runtime::client::Failure::NotPrimary));
    assert_eq!(server.switch().entities(), 0);
}

#[tokio::test]
async fn another_controller_is_named_and_is_no_manager() {
    let (_server, address) = onos().await;
    let id = Uint128 {
        high: u64::MAX,
        low: 5,
    };
    let (client, _) = other(address, id).await;
    let mut bench = Bench::new(settings(address, "onos-int"));
    let expected = "another controller is primary with election id 340282366920938463444927863358058659845; stop it, or give `role`";
    assert_eq!(bench.claim().await, Answer::Unreachable(expected.to_owned()));
    drop(client);
    // The specification keeps the highest id: nobody below becomes primary.
    assert!(matches!(bench.claim().await, Answer::Unreachable(_)));
}

#[tokio::test]
async fn entries_of_others_are_shown_and_left_alone() {
    let (server, address) = onos().await;
    let mut bench = Bench::new(settings(address, "onos-int"));
    bench.claim().await;
    let theirs = bench.read().await;
    bench
        .apply(
            &theirs.etag,
            vec![Change::Add(Rule::Sink(1)), Change::Add(Rule::Sink(2))],
        )
        .await;
    server.switch().entries[0].metadata = b"theirs".to_vec();
    let state = bench.read().await;
    assert_eq!(state.rules.len(), 1);
    let name = "the entry of ingress.process_int_source_sink.tb_set_sink for standard_metadata.egress_spec 2 (ingress.process_int_source_sink.int_set_sink)";
    assert_eq!(state.foreign, [name]);
    let refused = bench.apply(&state.etag, vec![Change::Add(Rule::Sink(2))]).await;
    assert_eq!(
        refused,
        Answer::Refused(format!("{name} was installed by another controller; remove it"))
    );
    let etag = bench.read().await.etag;
    assert_eq!(
        bench.apply(&etag, vec![Change::Remove(Rule::Sink(1))]).await,
        Answer::Applied
    );
    assert_eq!(server.switch().entries.len(), 1);
}

#[tokio::test]
async fn a_change_by_others_makes_the_state_stale() {
    let (server, address) = onos().await;
    let mut bench = Bench::new(settings(address, "onos-int"));
    bench.claim().await;
    let etag = bench.read().await.etag;
    let session = CloneSessionEntry {
        session_id: 500,
        replicas: vec![Replica::default()],
        ..Default::default()
    };
    server.switch().sessions.insert(500, session);
    assert_eq!(bench.apply(&etag, add(&rules())).await, Answer::Stale);
    let state = bench.read().await;
    assert_eq!(state.foreign, ["clone session 500 (to port 0)"]);
}

#[tokio::test]
async fn a_device_without_metadata_takes_its_own_entries_by_their_form() {
    let (server, address) = onos().await;
    server.switch().keeps_metadata = false;
    server.switch().padded = true;
    let mut settings = settings(address, "onos-int");
    let text = format!(
        "metadata = false\n{}",
        p4runtime::map::shipped("onos-int").unwrap()
    );
    settings.map.1 = Arc::new(p4runtime::map::read(&text, "own.toml").unwrap());
    let mut bench = Bench::new(settings);
    bench.claim().await;
    let etag = bench.read().await.etag;
    assert_eq!(bench.apply(&etag, add(&rules())).await, Answer::Applied);
    let state = bench.read().await;
    assert_eq!((state.rules, state.foreign), (rules(), vec![]));
}

#[tokio::test]
async fn devices_that_lie_are_not_believed() {
    let (server, address) = onos().await;
    server.switch().conduct = Conduct::Idle;
    let mut bench = Bench::new(settings(address, "onos-int"));
    bench.claim().await;
    let etag = bench.read().await.etag;
    assert_eq!(
        bench.apply(&etag, vec![Change::Add(Rule::Sink(1))]).await,
        Answer::Applied
    );
    assert_eq!(bench.read().await.rules, Rules::new());

    server.switch().conduct = Conduct::Honest;
    let etag = bench.read().await.etag;
    assert_eq!(
        bench.apply(&etag, vec![Change::Add(Rule::Sink(1))]).await,
        Answer::Applied
    );
    server.switch().conduct = Conduct::Forger;
    let state = bench.read().await;
    assert_eq!(state.rules, Rules::new());
    assert_eq!(state.foreign.len(), 1);
    assert!(
        state.foreign[0].starts_with("remains of a rule: the entry of"),
        "{:?}",
        state.foreign
    );
}

#[tokio::test]
async fn a_device_that_does_not_answer_is_lost() {
    let (server, address) = onos().await;
    let mut bench = Bench::new(settings(address, "onos-int"));
    bench.claim().await;
    server.switch().conduct = Conduct::Mute;
    let expected = format!("{address} does not answer within 1.8 s");
    let answer = bench.ask(Request::Read).await;
    // The counters may have been asked for before.
    let known = [
        Answer::Late(expected.clone()),
        Answer::Unreachable("it is not connected".to_owned()),
    ];
    assert!(known.contains(&answer), "{answer:?}");
    // The next attempt is a new connection.
    server.switch().conduct = Conduct::Honest;
    assert_eq!(bench.claim().await, Answer::Claimed);
    // It is noticed without being asked for, too.
    server.switch().conduct = Conduct::Mute;
    assert_eq!(bench.lost().await, expected);
}

#[tokio::test]
async fn a_refused_update_is_named() {
    let mut info = info("onos-int");
    let sink = info
        .tables
        .iter_mut()
        .find(|table| table.preamble.as_ref().unwrap().alias == "tb_set_sink");
    sink.unwrap().size = 2;
    let (server, address) = Server::start(Some(&info)).await;
    let mut bench = Bench::new(settings(address, "onos-int"));
    bench.claim().await;
    let etag = bench.read().await.etag;
    // The device executes a batch from its end.
    let expected = "it refused the entry of ingress.process_int_source_sink.tb_set_sink for standard_metadata.egress_spec 1 (ingress.process_int_source_sink.int_set_sink): the table is full: 3 entries do not fit into its 2; use fewer intents, or wider prefixes (table is full)";
    assert_eq!(
        bench.apply(&etag, add(&rules())).await,
        Answer::Refused(expected.to_owned())
    );
    // What was executed before stays, and what comes after the sinks was not sent.
    let state = bench.read().await;
    let sinks = state
        .rules
        .iter()
        .filter(|rule| matches!(rule, Rule::Sink(_)))
        .count();
    assert_eq!((sinks, server.switch().entities()), (2, 4));
}

#[tokio::test]
async fn a_restarted_device_is_noticed_and_filled_again() {
    let (server, address) = onos().await;
    let mut bench = Bench::new(settings(address, "onos-int"));
    bench.claim().await;
    let etag = bench.read().await.etag;
    bench.apply(&etag, add(&rules())).await;
    let etag = bench.read().await.etag;
    server.switch().restart();
    bench.lost().await;
    assert!(matches!(
        bench.apply(&etag, add(&rules())).await,
        Answer::Unreachable(_)
    ));
    assert_eq!(bench.claim().await, Answer::Claimed);
    let state = bench.read().await;
    assert!(
        !state.rules.iter().any(|rule| !matches!(rule, Rule::Encoding(_))),
        "{:?}",
        state.rules
    );
    assert_ne!(state.etag, etag);
    assert_eq!(bench.apply(&state.etag, add(&rules())).await, Answer::Applied);
    assert_eq!(bench.read().await.rules, rules());
}

#[tokio::test]
async fn a_program_is_loaded_into_an_empty_device_only() {
    let (server, address) = Server::start(None).await;
    let mut without = Bench::new(settings(address, "onos-int"));
    let expected = "it has no program; load one, or add `load` to the device";
    assert_eq!(without.claim().await, Answer::Unreachable(expected.to_owned()));
    drop(without);
    let mut with = settings(address, "onos-int");
    with.load = Some(Arc::new(Load::new(
        info("onos-int").encode_to_vec(),
        b"program".to_vec(),
    )));
    let mut bench = Bench::new(with.clone());
    bench.election.term += 1;
    assert_eq!(
        bench.claim().await,
        Answer::Unreachable("its program is being loaded".to_owned())
    );
    while bench.claim().await != Answer::Claimed {}
    // A device with another program keeps it.
    let other = info("geant-int").encode_to_vec();
    server.switch().program = Some(other.clone());
    let Answer::Unreachable(reason) = bench.claim().await else {
        panic!("claimed")
    };
    let expected = "its program does not fit the map `onos-int`: the program has no table `egress.process_int_report.tb_generate_report`";
    assert!(reason.starts_with(expected), "{reason}");
    assert_eq!(server.switch().program, Some(other));
}

#[tokio::test]
async fn a_wrong_device_id_and_a_wrong_address_are_told() {
    let (_server, address) = onos().await;
    let mut wrong = settings(address, "onos-int");
    wrong.peer.device_id = 2;
    assert_eq!(
        Bench::new(wrong).claim().await,
        Answer::Refused("no such device (NotFound)".to_owned())
    );
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let closed = listener.local_addr().unwrap();
    drop(listener);
    let Answer::Unreachable(reason) = Bench::new(settings(closed, "onos-int")).claim().await else {
        panic!()
    };
    assert!(reason.contains("refused"), "{reason}");
}

#[tokio::test]
async fn reports_are_counted_where_the_program_counts_them() {
    let (server, address) = Server::start(Some(&info("fabric-tna"))).await;
    let mut bench = Bench::new(settings(address, "fabric-tna"));
    bench.claim().await;
    let etag = bench.read().await.etag;
    let session = Rule::Session("192.0.2.9:32766".parse().unwrap());
    assert_eq!(
        bench.apply(&etag, vec![Change::Add(session)]).await,
        Answer::Applied
    );
    for entry in &mut server.switch().entries {
        entry.counter_data = Some(CounterData {
            byte_count: 100,
            packet_count: 7,
        });
    }
    // Six entries make reports; that which excludes the reports themselves makes none.
    loop {
        if let Message::Reported(7, reported) = bench.message().await
            && reported.packets > 0
        {
            assert_eq!((reported.packets, reported.sent), (42, None));
            return;
        }
    }
}

#[tokio::test]
async fn counters_are_read_by_name_with_one_request_and_not_where_they_are_refused() {
    let (server, address) = Server::start(Some(&info("hopwise-sf"))).await;
    let id = |name: &str| {
        let info = info("hopwise-sf");
        let preambles = info.counters.into_iter().filter_map(|counter| counter.preamble);
        preambles
            .into_iter()
            .find(|preamble| preamble.alias == name)
            .unwrap()
            .id
    };
    let (packets, rules) = (id("packets"), id("sf_rules"));
    // More than the map has names for, and a number that no counter has.
    server.switch().counters = [(packets, (100..125).collect()), (rules, vec![1, 2, -3, 4])].into();
    let mut bench = Bench::new(settings(address, "hopwise-sf"));
    bench.claim().await;
    let reads = server.switch().reads;
    let counted = loop {
        if let Message::Counted(7, counted) = bench.message().await {
            break counted;
        }
    };
    assert_eq!(server.switch().reads, reads + 1);
    let expected = [
        ("edge_refused", 112),
        ("edge_stripped", 111),
        ("hops_exceeded", 103),
        ("malformed_stripped", 107),
        ("mtu_exceeded", 104),
        ("not_restorable", 105),
        ("plain", 100),
        ("plain_nodes", 116),
        ("recorded", 102),
        ("refused", 101),
        ("reported", 106),
        ("sf_rule_1", 2),
        ("sf_rule_2", 0),
        ("sf_rule_3", 4),
        ("swapped", 114),
        ("urgent", 115),
    ];
    let counter = |(name, packets): (&str, u64)| Counter {
        object: None,
        about: None,
        name: name.to_owned(),
        packets,
    };
    assert_eq!(counted, expected.map(counter));
    // A device that returns none is asked once, and is there.
    server.switch().counters.clear();
    let reads = server.switch().reads;
    while server.switch().reads == reads {
        tokio::task::yield_now().await;
    }
    assert_eq!(bench.claim().await, Answer::Claimed);
    bench.read().await;
}

#[tokio::test]
async fn counters_of_filters_have_the_number_of_the_filter() {
    let array = |name: &str| {
        let all = info("hopwise-int").counters.into_iter();
        let found = all
            .filter_map(|one| Some((one.preamble?, one.size)))
            .find(|(one, _)| one.alias == name);
        found.map(|(preamble, size)| (preamble.id, size)).unwrap()
    };
    let (id, size) = array("filter_decisions");
    let (server, address) = Server::start(Some(&info("hopwise-int"))).await;
    let mut counters: Vec<i64> = vec![0; usize::try_from(size).unwrap()];
    counters[8..16].copy_from_slice(&[90, 0, 0, 1, 0, 9, 2, 77]);
    server.switch().counters = [(id, counters), (array("packets").0, Vec::new())].into();
    let mut bench = Bench::new(settings(address, "hopwise-int"));
    bench.claim().await;
    let counted = loop {
        if let Message::Counted(7, counted) = bench.message().await {
            break counted;
        }
    };
    // A filter that has decided nothing is left out, and the last counter of each has no name.
    let expected = [
        ("collisions", 2),
        ("ended", 0),
        ("event", 9),
        ("first", 1),
        ("keep_alive", 0),
        ("missing_value", 0),
        ("suppressed", 90),
    ];
    let counter = |(name, packets): (&str, u64)| Counter {
        object: Some("filter 1".to_owned()),
        about: None,
        name: name.to_owned(),
        packets,
    };
    assert_eq!(counted, expected.map(counter));
}

#[tokio::test]
async fn packets_that_match_the_watchlist_are_counted_where_its_entries_count() {
    let (server, address) = onos().await;
    let mut bench = Bench::new(settings(address, "onos-int"));
    bench.claim().await;
    let etag = bench.read().await.etag;
    assert_eq!(bench.apply(&etag, add(&rules())).await, Answer::Applied);
    let mut packets = 0;
    for entry in &mut server.switch().entries {
        packets += 100;
        entry.counter_data = Some(CounterData {
            byte_count: 9,
            packet_count: packets,
        });
    }
    let matched = loop {
        if let Message::Matched(7, matched) = bench.message().await
            && matched.iter().any(|(_, packets)| *packets > 0)
        {
            break matched;
        }
    };
    // Neither sinks nor sources count here, though their entries do.
    let ports: Vec<(u16, u64)> = matched
        .iter()
        .map(|(key, packets)| (key.dport.0, *packets))
        .collect();
    assert_eq!(ports, [(80, 700), (443, 800)]);
}

#[tokio::test]
async fn tls_needs_the_right_certificates() {
    let pem = |name: &str| -> Vec<u8> {
        std::fs::read(format!("{}/tests/tls/{name}.pem", env!("CARGO_MANIFEST_DIR"))).unwrap()
    };
    let identity = tonic::transport::Identity::from_pem(pem("server"), pem("server-key"));
    let clients = tonic::transport::Certificate::from_pem(pem("ca"));
    let tls = tonic::transport::ServerTlsConfig::new()
        .identity(identity)
        .client_ca_root(clients);
    let (_server, address) =
        Server::start_with(Some(&info("onos-int")), |server| server.tls_config(tls).unwrap()).await;
    let with = |tls: Option<Tls>| {
        let mut settings = settings(address, "onos-int");
        settings.peer.tls = tls;
        Bench::new(settings)
    };
    let client = Some((pem("client"), pem("client-key")));
    let right = Tls {
        ca: pem("ca"),
        identity: client.clone(),
        name: Some("switch.test".to_owned()),
    };
    assert_eq!(with(Some(right.clone())).claim().await, Answer::Claimed);
    for wrong in [
        None,
        Some(Tls {
            identity: None,
            ..right.clone()
        }),
        Some(Tls {
            name: Some("other.test".to_owned()),
            ..right.clone()
        }),
        Some(Tls {
            ca: pem("other-ca"),
            ..right.clone()
        }),
    ] {
        let answer = with(wrong.clone()).claim().await;
        assert!(matches!(answer, Answer::Unreachable(_)), "{wrong:?}: {answer:?}");
    }
}
