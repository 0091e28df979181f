//! The driver against bmv2's `simple_switch_grpc`, which is found on PATH or in `HOPWISE_P4_TOOLS`, with our own program, and those
//! in the folder `HOPWISE_P4_PROGRAMS`: P4Info and JSON of a shipped map as `onos-int.bin` and `onos-int.json`, and likewise.

#![allow(clippy::unwrap_used, reason = "a test panics")]

mod support;

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use detect::Metric;
use manager::device::{Answer, Change, Encoding, Filter, FilterAlgorithm, Mode, Restart, Rule, Rules, Watch};
use manager::flows::FlowMatch;
use p4runtime::client::Client;
use p4runtime::driver::Load;
use p4runtime::map;
use p4runtime::message::{
    CloneSessionEntry, Entity, EntityKind, PacketReplicationEngineEntry, Replica, ReplicationKind, Uint128,
    Update, UpdateType,
};
use support::bench::{Bench, settings};
use support::bmv2::{Switch, claimed, free_port, skipped, tool};
use support::{PROGRAMS, program, shipped};

/// The switch, and the folder of compiled programs, if there is one.
fn tools() -> Option<(PathBuf, Option<PathBuf>)> {
    let programs: Option<OsString> = std::env::var_os("HOPWISE_P4_PROGRAMS");
    Some((tool("bmv2")?, programs.map(PathBuf::from)))
}

/// P4Info and JSON of a program.
fn compiled(map: &str, folder: Option<&PathBuf>) -> Option<(Vec<u8>, Vec<u8>)> {
    if let Some((info, config)) = map::program(map) {
        return Some((
            p4runtime::program::info(info.as_bytes().to_vec()).unwrap(),
            config,
        ));
    }
    let file = |end: &str| std::fs::read(folder?.join(format!("{map}.{end}"))).ok();
    file("bin").zip(file("json"))
}

fn rules(map: &str) -> Rules {
    let mut rules = Rules::from([Rule::Session("192.0.2.9:32766".parse().unwrap())]);
    let key = FlowMatch {
        src: Some("10.0.0.0/8".parse().unwrap()),
        dst: Some("10.1.2.3".parse().unwrap()),
        dport: (4789, 4789),
        ..FlowMatch::default()
    };
    let watch = |mode| {
        Rule::Watch(Arc::new(Watch {
            key,
            mode,
            bits: 0xa000,
            hops: 6,
            sample: 1,
            drops: true,
        }))
    };
    if program(map).capabilities().restart == Restart::Waits {
        rules.insert(Rule::Forwarding);
    }
    match shipped(map).encoding() {
        Some(Encoding { dscp, l4_checksum }) => {
            rules.insert(Rule::Encoding(Encoding { dscp, l4_checksum }));
            rules.extend([1, 2, 3].map(Rule::Sink));
            rules.extend([0, 2].map(Rule::Instruction));
            let is_sf = program(map).capabilities().modes.contains(&Mode::Sf);
            rules.extend([Rule::Source(1), watch(if is_sf { Mode::Sf } else { Mode::Md })]);
        }
        None => rules.extend([watch(Mode::Postcard)]),
    }
    if program(map)
        .capabilities()
        .filters
        .contains(&FilterAlgorithm::Rule)
    {
        // As the driver writes it when it has only the entries.
        let rule = Some("(loop or max(queue_occupancy@7) >= 50) and (hops < 9)".into());
        let (algorithm, metric) = (FilterAlgorithm::Rule, Metric::FlowPath);
        rules.insert(Rule::Filter(Arc::new(Filter {
            key,
            algorithm,
            metric,
            threshold: 0,
            rule,
        })));
    }
    rules
}

async fn fill(bench: &mut Bench, wanted: &Rules) {
    let state = bench.read().await;
    let removed = state.rules.difference(wanted).cloned().map(Change::Remove);
    let changes = removed
        .chain(wanted.difference(&state.rules).cloned().map(Change::Add))
        .collect();
    assert_eq!(bench.apply(&state.etag, changes).await, Answer::Applied);
    let state = bench.read().await;
    assert_eq!((&state.rules, state.foreign), (wanted, vec![]));
}

#[tokio::test]
async fn rules_are_installed_read_back_and_restored() {
    let Some((program, folder)) = tools() else { return };
    for (map, _) in PROGRAMS {
        let Some(program_of_map) = compiled(map, folder.as_ref()) else {
            skipped("bmv2", &format!("no program of {map} in HOPWISE_P4_PROGRAMS"));
            continue;
        };
        let port = free_port();
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        let mut settings = settings(address, map);
        settings.load = Some(Arc::new(Load::new(program_of_map.0, program_of_map.1)));
        let switch = Switch::start(&program, port);
        let mut bench = Bench::new(settings.clone());
        claimed(&mut bench).await;
        let wanted = rules(map);
        fill(&mut bench, &wanted).await;

        // A restarted manager knows less, and writes nothing.
        let mut newer = Bench::new(settings);
        newer.election.term += 1;
        claimed(&mut newer).await;
        assert!(bench.lost().await.contains("another client"), "{map}");
        assert_eq!(bench.claim().await, Answer::NotPrimary(newer.election), "{map}");
        drop(bench);
        fill(&mut newer, &wanted).await;

        // Removed one by one, everything is gone.
        for rule in wanted.iter().rev() {
            let state = newer.read().await;
            assert!(state.rules.contains(rule), "{map}: {rule}");
            let done = newer.apply(&state.etag, vec![Change::Remove(rule.clone())]).await;
            assert_eq!(done, Answer::Applied, "{map}: {rule}");
        }
        let state = newer.read().await;
        assert_eq!((state.rules, state.foreign), (Rules::new(), vec![]), "{map}");

        // A restart loses everything, and is noticed.
        fill(&mut newer, &wanted).await;
        drop(switch);
        newer.lost().await;
        let _switch = Switch::start(&program, port);
        claimed(&mut newer).await;
        let left = newer.read().await.rules;
        assert!(
            left.iter().all(|rule| matches!(rule, Rule::Encoding(_))),
            "{map}: {left:?}"
        );
        fill(&mut newer, &wanted).await;
    }
}

#[tokio::test]
async fn entries_of_another_client_are_foreign() {
    let Some((program, folder)) = tools() else { return };
    // Both have the clone session 500.
    let other = compiled("onos-int", folder.as_ref());
    let map = if other.is_some() {
        "onos-int"
    } else {
        "hopwise-int"
    };
    let Some(compiled) = other.or_else(|| compiled(map, None)) else {
        return;
    };
    let port = free_port();
    let address = SocketAddr::from(([127, 0, 0, 1], port));
    let mut settings = settings(address, map);
    settings.load = Some(Arc::new(Load::new(compiled.0, compiled.1)));
    let _switch = Switch::start(&program, port);
    let mut bench = Bench::new(settings.clone());
    claimed(&mut bench).await;

    let id = Uint128 {
        high: u64::MAX,
        low: 1,
    };
    let mut other = Client::connect(&settings.peer, None, id).await.unwrap();
    other.next().await.unwrap();
    let replica = Replica {
        port_kind: Some(p4runtime::message::PortKind::EgressPort(2)),
        instance: 1,
    };
    let session = CloneSessionEntry {
        session_id: 500,
        replicas: vec![replica],
        ..CloneSessionEntry::default()
    };
    let session = PacketReplicationEngineEntry {
        r#type: Some(ReplicationKind::CloneSession(session)),
    };
    let entity = Some(Entity {
        entity: Some(EntityKind::PacketReplication(session)),
    });
    let update = Update {
        r#type: UpdateType::Insert.into(),
        entity,
    };
    assert_eq!(other.calls().write(id, vec![update]).await, Ok(()));
    let Answer::Unreachable(reason) = bench.claim().await else {
        panic!("claimed")
    };
    assert!(reason.starts_with("another controller is primary"), "{reason}");
    drop(other);
    claimed(&mut bench).await;
    let state = bench.read().await;
    assert_eq!(state.foreign, ["clone session 500 (to port 2)"]);
    let collector = Rule::Session("192.0.2.9:32766".parse().unwrap());
    let expected = "clone session 500 (to port 2) was installed by another controller; remove it";
    let refused = bench.apply(&state.etag, vec![Change::Add(collector)]).await;
    assert_eq!(refused, Answer::Refused(expected.to_owned()));
}
