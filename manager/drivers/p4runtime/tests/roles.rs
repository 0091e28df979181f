//! Devices outside the domain: aggregators and translators whose entries follow from their settings, against a P4Runtime server that checks what
//! the specification demands, in the model of BMv2, and in BMv2 itself, where it is installed.

#![allow(clippy::unwrap_used, reason = "a test panics")]

mod support;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use manager::device::{Answer, Change, Request, Rule, Rules};
use manager::driver::{Counter, Message};
use p4_model::{Arrival, Key as ModelKey, Switch as Model};
use p4runtime::client::Client;
use p4runtime::driver::Settings;
use p4runtime::entry::{Content, Entry, Field, Key};
use p4runtime::map;
use p4runtime::message::*;
use p4runtime::program::{LocalSettings, Program};
use p4runtime::programs::Included;
use p4runtime::roles::{AggregatorSettings, Role, TranslatorSettings};
use p4runtime::translate::Entries;
use settings::read::Reader;
use settings::setting::{Setting, tables};
use support::bench::{Bench, settings};
use support::bmv2::{self, CPU_PORT, claimed, free_port};
use support::server::Server;
use support::{local, shipped};
use wire::aggregate::{Aggregate, Kind};
use wire::dta::hash;
use wire::dta::layout::put_slot;
use wire::roce::{Head, Path, Psn, Reth, Transport as Service, Writer};

/// What it sends goes to the controller, so that tests see it.
const AGGREGATOR: &str = r#"
kind = "agg_n"
r = 2
registers = 16
destinations = [{ to = "192.0.2.100:32767", port = 64, source = "192.0.2.1", source_mac = "02:00:00:00:00:01", mac = "02:00:00:00:01:00" }]
timer_frames = { ports = [64], every = "100ms" }
"#;

const TRANSLATOR: &str = r#"
report_ports = [64]
reporters = [{ id = 7, address = "10.0.0.7" }]
timer_frames = { ports = [64], every = "100ms" }
[[collectors]]
address = "192.0.2.200"
port = 64
source = "198.51.100.1"
source_mac = "02:00:00:00:00:03"
mac = "02:00:00:00:01:00"
unreliable = 0x100
reliable = 0x101
own = 0x5101
stores = [
    { kind = "key-write", id = 1, address = 0x7f0000000000, rkey = 8002, slots = 1, data = 4 },
    { kind = "append", id = 10, address = 0x7f0002000000, rkey = 8002, entry = 4, entries = 64, batch = 16 },
]
"#;

fn read<T: Setting>(text: &str) -> T {
    let mut reader = Reader::new(text);
    let read = reader
        .parse(tables::<T>)
        .and_then(|root| T::read(&root, &mut reader));
    reader.finish("t.toml").unwrap_or_else(|error| panic!("{error}"));
    read.unwrap()
}

fn aggregator(text: &str) -> Role {
    read::<AggregatorSettings>(text).role(7).unwrap()
}

fn translator(text: &str) -> Role {
    read::<TranslatorSettings>(text).role().unwrap()
}

fn with(address: SocketAddr, map: &str, role: Role) -> Settings {
    let local = LocalSettings {
        report: None,
        routes: Vec::new(),
        mtus: Vec::new(),
        role: Some(role),
        ..local()
    };
    Settings {
        local,
        ..settings(address, map)
    }
}

fn forwarding() -> Rules {
    [Rule::Forwarding].into()
}

/// Applies what is missing, and checks that it is there.
async fn fill(bench: &mut Bench) {
    let state = bench.read().await;
    assert_eq!(state.rules, Rules::new());
    assert_eq!(
        bench
            .apply(&state.etag, vec![Change::Add(Rule::Forwarding)])
            .await,
        Answer::Applied
    );
    assert_eq!(bench.read().await.rules, forwarding());
}

async fn other(settings: &Settings) -> Client {
    let id = Uint128 {
        high: u64::MAX,
        low: 1,
    };
    let mut client = Client::connect(&settings.peer, None, id).await.unwrap();
    client.next().await.unwrap();
    client
}

fn group(id: u32, copies: &[(u32, u32)]) -> MulticastGroupEntry {
    let replica = |(port, instance): &(u32, u32)| Replica {
        port_kind: Some(PortKind::EgressPort(*port)),
        instance: *instance,
    };
    MulticastGroupEntry {
        multicast_group_id: id,
        replicas: copies.iter().map(replica).collect(),
    }
}

#[tokio::test]
async fn an_aggregator_is_filled_changed_and_filled_again() {
    let info = Included::named("aggregator").unwrap().info().unwrap();
    let (server, address) = Server::start(Some(&info)).await;
    let mut bench = Bench::new(with(address, "hopwise-aggregator", aggregator(AGGREGATOR)));
    assert_eq!(bench.claim().await, Answer::Claimed);
    fill(&mut bench).await;
    // Clone session, destination, settings, port of timer frames, port of postcards.
    assert_eq!(server.switch().entities(), 5);
    assert_eq!(server.switch().writes, [1, 3, 1]);

    // Other settings after a reload: what differs is changed, and nothing remains.
    let changed = AGGREGATOR
        .replace("r = 2", "r = 5")
        .replace("port = 64", "port = 9")
        .replace("agg_n", "agg");
    let changed = changed + "listen = [40000]\n";
    let mut newer = Bench::new(with(address, "hopwise-aggregator", aggregator(&changed)));
    newer.election.term += 1;
    assert_eq!(newer.claim().await, Answer::Claimed);
    fill(&mut newer).await;
    assert_eq!(newer.read().await.foreign, Vec::<String>::new());
    assert_eq!(server.switch().entities(), 5);
    let ports: Vec<Vec<u8>> = server
        .switch()
        .entries
        .iter()
        .map(|entry| {
            let Some(FieldMatchType::Exact(exact)) = &entry.r#match[0].field_match_type else {
                panic!("{entry:?}")
            };
            exact.value.clone()
        })
        .collect();
    assert!(
        ports.contains(&40_000_u16.to_be_bytes().to_vec())
            && !ports.contains(&32_766_u16.to_be_bytes().to_vec())
    );

    // A restart loses all of it.
    server.switch().restart();
    newer.lost().await;
    claimed(&mut newer).await;
    fill(&mut newer).await;
    assert_eq!(server.switch().entities(), 5);

    // Timer frames arrive, one for each register, again and again.
    let frames = aggregator(AGGREGATOR).frames;
    let mut bench = Bench::new(with(address, "hopwise-aggregator", aggregator(AGGREGATOR)));
    bench.election.term += 2;
    assert_eq!(bench.claim().await, Answer::Claimed);
    server.switch().packets.clear();
    for _ in 0..200 {
        tokio::time::sleep(Duration::from_millis(50)).await;
        if server.switch().packets.len() > 40 {
            break;
        }
    }
    let packets = server.switch().packets.clone();
    let first = frames.iter().position(|frame| *frame == packets[0]).unwrap();
    let expected = frames.iter().cycle().skip(first);
    assert!(
        packets.len() > 40 && packets.iter().zip(expected).all(|(a, b)| a == b),
        "{}",
        packets.len()
    );
    // Also while the device takes long to answer.
    server.switch().delays.insert("Read", Duration::from_secs(600));
    server.switch().packets.clear();
    let answer = bench.ask(Request::Read).await;
    assert!(server.switch().packets.len() > 40, "{answer:?}");
}

#[tokio::test]
async fn groups_of_others_are_shown_left_alone_and_named_when_in_the_way() {
    let info = Included::named("dta_translator").unwrap().info().unwrap();
    let (server, address) = Server::start(Some(&info)).await;
    server.switch().groups.insert(99, group(99, &[(9, 1)]));
    server.switch().groups.insert(3, group(3, &[(9, 8)]));
    let mut bench = Bench::new(with(address, "hopwise-dta-translator", translator(TRANSLATOR)));
    assert_eq!(bench.claim().await, Answer::Claimed);
    let state = bench.read().await;
    assert_eq!(
        state.foreign,
        ["multicast group 3 (to port 9)", "multicast group 99 (to port 9)"]
    );
    let refused = bench
        .apply(&state.etag, vec![Change::Add(Rule::Forwarding)])
        .await;
    let why = "multicast group 3 (to port 9) was installed by another controller; remove it";
    assert_eq!(refused, Answer::Refused(why.to_owned()));
    assert_eq!(server.switch().entities(), 2, "nothing is written");

    server.switch().groups.remove(&3);
    fill(&mut bench).await;
    let all = server.switch().entities();
    assert_eq!((all, server.switch().groups.len()), (1 + 6 + 1 + 11, 7));

    // The collector is behind another port: our groups follow, that of others does not.
    let moved = translator(&TRANSLATOR.replace("port = 64\nsource", "port = 5\nsource"));
    let mut newer = Bench::new(with(address, "hopwise-dta-translator", moved));
    newer.election.term += 1;
    assert_eq!(newer.claim().await, Answer::Claimed);
    fill(&mut newer).await;
    assert_eq!(server.switch().entities(), all);
    let port = |id: u32| server.switch().groups[&id].replicas[0].port_kind.clone();
    assert_eq!(
        [port(6), port(99)],
        [5, 9].map(|port| Some(PortKind::EgressPort(port)))
    );

    let state = newer.read().await;
    assert_eq!(
        newer
            .apply(&state.etag, vec![Change::Remove(Rule::Forwarding)])
            .await,
        Answer::Applied
    );
    assert_eq!(newer.read().await.foreign.len(), 1);
    assert_eq!(server.switch().entities(), 1);
}

/// A device that runs one of the programs.
trait Device {
    /// The frames that leave by the port of the controller after these, which arrive there. `most`: as many as are waited for.
    async fn process(&mut self, frames: &[Vec<u8>], most: usize) -> Vec<Vec<u8>>;
}

/// The model, with the entries of a role.
struct Modelled(Model);

impl Modelled {
    fn new(name: &str, role: Role) -> Self {
        let included = Included::named(name).unwrap();
        let info = included.info().unwrap();
        let map = included.map.unwrap();
        let (_, config) = map::program(map).unwrap();
        let mut model = Model::new(p4_model::Program::read(str::from_utf8(&config).unwrap()).unwrap());
        let local = LocalSettings {
            role: Some(role),
            ..LocalSettings::default()
        };
        let program = Program::new(&shipped(map), &info, &local).unwrap();
        for entry in program.encode_all(&forwarding(), &Entries::new()).unwrap() {
            install(&mut model, &info, &entry);
        }
        Self(model)
    }
}

impl Device for Modelled {
    async fn process(&mut self, frames: &[Vec<u8>], _: usize) -> Vec<Vec<u8>> {
        let arrival = Arrival {
            port: CPU_PORT as u16,
            ingress_ts: 1_000_000,
            egress_ts: 1_000_000,
            ..Arrival::default()
        };
        let mut sent = Vec::new();
        for frame in frames {
            for out in self.0.process(frame, &arrival) {
                assert_eq!(out.port, CPU_PORT as u16);
                sent.push(out.frame);
            }
        }
        sent
    }
}

fn install(model: &mut Model, info: &P4Info, entry: &Entry) {
    let alias = |preamble: &Option<Preamble>| preamble.as_ref().unwrap().alias.clone();
    let port = |bytes: &p4runtime::entry::Bytes| bytes.number().unwrap() as u16;
    match (&entry.key, &entry.content) {
        (Key::Clone(session), Content::Copies { replicas, .. }) => {
            model.set_session(*session, port(&replicas[0].port))
        }
        (Key::Group(group), Content::Copies { replicas, .. }) => {
            let copies: Vec<_> = replicas
                .iter()
                .map(|copy| (port(&copy.port), copy.instance as u16))
                .collect();
            model.set_group(*group as u16, &copies);
        }
        (Key::Default(id) | Key::Table { table: id, .. }, Content::Action(action, params)) => {
            let table = info
                .tables
                .iter()
                .find(|table| table.preamble.as_ref().unwrap().id == *id)
                .unwrap();
            let action = info
                .actions
                .iter()
                .find(|one| one.preamble.as_ref().unwrap().id == *action)
                .unwrap();
            let parameters: Vec<u128> = action
                .params
                .iter()
                .map(|one| params[&one.id].number().unwrap())
                .collect();
            let (table_name, action) = (alias(&table.preamble), alias(&action.preamble));
            let Key::Table { fields, .. } = &entry.key else {
                return model.set_default(&table_name, &action, &parameters).unwrap();
            };
            let exact = |field: &P4MatchField| match &fields[&field.id] {
                Field::Exact(value) => ModelKey::Exact(value.number().unwrap()),
                other => panic!("{other}"),
            };
            let keys = table.match_fields.iter().map(exact).collect();
            model
                .insert(
                    &table_name,
                    &p4_model::Entry {
                        keys,
                        priority: 0,
                        action,
                        parameters,
                    },
                )
                .unwrap();
        }
        other => panic!("{other:?}"),
    }
}

/// BMv2, filled by the driver. Between its fillings, another controller sends packets and gets those that leave.
struct Live {
    settings: Settings,
    _switch: bmv2::Switch,
}

impl Live {
    async fn new(test: &str, name: &str, role: Role) -> Option<Self> {
        let program = bmv2::tool(test)?;
        let port = free_port();
        let mut settings = with(SocketAddr::from(([127, 0, 0, 1], port)), name, role);
        let (info, config) = map::program(name).unwrap();
        let info = p4runtime::program::info(info.as_bytes().to_vec()).unwrap();
        settings.load = Some(Arc::new(p4runtime::driver::Load::new(info, config)));
        let switch = bmv2::Switch::start(&program, port);
        let mut bench = Bench::new(settings.clone());
        claimed(&mut bench).await;
        fill(&mut bench).await;
        Some(Self {
            settings,
            _switch: switch,
        })
    }

    /// The driver's counters when one of them has reached a number, that the device goes on having its rule, and nothing of others.
    async fn counted(&self, name: &str, packets: u64) -> Vec<(String, u64)> {
        let mut bench = Bench::new(self.settings.clone());
        claimed(&mut bench).await;
        let state = bench.read().await;
        assert_eq!((state.rules, state.foreign), (forwarding(), vec![]));
        // They are read once a second.
        for _ in 0..200 {
            let Message::Counted(7, counters) = bench.message().await else {
                continue;
            };
            let named = |one: &Counter| one.object.is_none() && one.name == name && one.packets >= packets;
            if counters.iter().any(named) {
                let counted = counters.into_iter().filter(|one| one.packets > 0);
                return counted.map(|one| (one.name, one.packets)).collect();
            }
        }
        panic!("{name} does not reach {packets}")
    }
}

impl Device for Live {
    async fn process(&mut self, frames: &[Vec<u8>], most: usize) -> Vec<Vec<u8>> {
        let mut client = other(&self.settings).await;
        for frame in frames {
            let packet = StreamRequest::Packet(PacketOut {
                payload: frame.clone(),
            });
            client
                .send(StreamMessageRequest { update: Some(packet) })
                .unwrap();
        }
        let mut sent = Vec::new();
        while sent.len() < most {
            let message = tokio::time::timeout(Duration::from_secs(20), client.next()).await;
            let message =
                message.unwrap_or_else(|_| panic!("only {} of {most} frames: {sent:02x?}", sent.len()));
            if let Some(StreamResponse::Packet(packet)) = message.unwrap().update {
                sent.push(packet.payload);
            }
        }
        sent
    }
}

/// A datagram over IPv4 without a UDP checksum.
fn datagram(from: [u8; 4], to: [u8; 4], port: u16, payload: &[u8]) -> Vec<u8> {
    let mut head = vec![0x45, 0, 0, 0, 0, 7, 0x40, 0, 64, 17, 0, 0];
    head[2..4].copy_from_slice(&(28 + payload.len() as u16).to_be_bytes());
    head.extend_from_slice(&[from, to].concat());
    let sum = wire::checksum::of(&head);
    head[10..12].copy_from_slice(&sum.to_be_bytes());
    let udp = [40_001, port, 8 + payload.len() as u16, 0]
        .map(u16::to_be_bytes)
        .concat();
    let mut frame = [
        &[2, 0, 0, 0, 0, 9, 2, 0, 0, 0, 0, 8, 8, 0][..],
        &head,
        &udp,
        payload,
    ]
    .concat();
    frame.resize(frame.len().max(60), 0);
    frame
}

/// Postcards of a node, about flows 1, 2, …
fn postcards(node: u32, number: u32) -> Vec<u8> {
    let mut out = [&[0x20, 0, 0, 1][..], &node.to_be_bytes()].concat();
    for flow in 1..=number {
        out.extend_from_slice(&[0x10, 8, 6, 0, 0x1c, 0, 0x50, 0x43, 0x80, 0, 0, 0]);
        out.extend_from_slice(&(40 + flow).to_be_bytes());
        out.extend_from_slice(&1_000_u64.to_be_bytes());
        out.extend_from_slice(&1_500_u64.to_be_bytes());
        out.extend_from_slice(&flow.to_be_bytes());
    }
    datagram([10, 0, 0, 7], [192, 0, 2, 1], 32_766, &out)
}

/// Three postcards of a node: two leave at once, the third with a timer frame.
async fn aggregates(device: &mut impl Device) {
    let sent = device.process(&[postcards(5, 3)], 1).await;
    assert_eq!(sent.len(), 1, "{sent:02x?}");
    let (ip, payload) = (&sent[0][14..34], &sent[0][42..]);
    assert_eq!(
        (&sent[0][..14], wire::checksum::of(ip)),
        (&[2, 0, 0, 0, 1, 0, 2, 0, 0, 0, 0, 1, 8, 0][..], 0)
    );
    assert_eq!(
        (&ip[12..], &sent[0][36..38]),
        (&[192, 0, 2, 1, 192, 0, 2, 100][..], &[0x7f, 0xff][..])
    );
    let aggregate = Aggregate::parse(payload).unwrap();
    assert_eq!(
        (aggregate.header().kind, aggregate.header().aggregator),
        (Kind::AggNode, 7)
    );
    let seen: Vec<_> = aggregate
        .postcards()
        .map(|one| (one.node(), one.flow_id(), one.queue(), one.hop_latency()))
        .collect();
    let postcard = |flow| (Some(5), Some(flow), Some((0, 40 + flow)), Some(500));
    assert_eq!(seen, [postcard(1), postcard(2)]);
}

#[tokio::test]
async fn postcards_become_aggregates_in_the_model() {
    let role = aggregator(AGGREGATOR);
    let frames = role.frames.clone();
    let mut model = Modelled::new("aggregator", role);
    aggregates(&mut model).await;
    // The third waits for the timer, 1 ms.
    let arrival = Arrival {
        port: CPU_PORT as u16,
        ingress_ts: 1_001_000,
        egress_ts: 1_001_000,
        ..Arrival::default()
    };
    let late: Vec<_> = frames
        .iter()
        .flat_map(|frame| model.0.process(frame, &arrival))
        .collect();
    assert_eq!(late.len(), 1);
    let aggregate = Aggregate::parse(&late[0].frame[42..]).unwrap();
    assert_eq!(
        aggregate.postcards().map(|one| one.flow_id()).collect::<Vec<_>>(),
        [Some(3)]
    );
    assert_eq!(model.0.counter("sent").unwrap()[..2], [1, 1]);
}

#[tokio::test]
async fn postcards_become_aggregates_in_bmv2() {
    let test = "postcards_become_aggregates_in_bmv2";
    let Some(mut live) = Live::new(test, "hopwise-aggregator", aggregator(AGGREGATOR)).await else {
        return;
    };
    aggregates(&mut live).await;
    // The third is sent by a timer frame of the manager.
    let counted = live.counted("sent_timer", 1).await;
    let expected = [("postcards", 3), ("sent_full", 1), ("sent_timer", 1)];
    assert_eq!(
        counted,
        expected.map(|(name, packets)| (name.to_owned(), packets))
    );
}

/// A Key-Write of four bytes with this number of copies.
fn key_write(flags: u8, copies: u8, data: [u8; 4]) -> Vec<u8> {
    let head = [0x11, flags, 0, 9, 0, 0, 0, 7, copies, 2, 0, 4, 0, 1, 0, 0];
    datagram(
        [10, 0, 0, 7],
        [192, 0, 2, 200],
        40_040,
        &[&head[..], b"ab", &data].concat(),
    )
}

/// The frame of a write to the only slot of the store.
fn write(service: Service, psn: u32, data: [u8; 4]) -> Vec<u8> {
    let path = Path::new([198, 51, 100, 1].into(), [192, 0, 2, 200].into(), 0xc000);
    let (source_mac, destination_mac) = ([2, 0, 0, 0, 0, 3], [2, 0, 0, 0, 1, 0]);
    let is_reliable = service == Service::Rc;
    let mut writer = Writer::new(
        Path {
            source_mac,
            destination_mac,
            ..path
        },
        service,
        0x100 + u32::from(is_reliable),
    )
    .unwrap();
    let (mut slot, mut out) = ([0; 8], vec![0; 256]);
    put_slot(&mut slot, hash::hashes(b"ab").checksum, &data, 4).unwrap();
    let head = Head {
        psn: Psn::new(psn),
        ack_request: is_reliable,
        solicited: false,
    };
    let reth = Reth {
        address: 0x7f00_0000_0000,
        rkey: 8002,
        len: 8,
    };
    let len = writer.write_only(&mut out, head, reth, &slot).unwrap();
    out.truncate(len);
    out
}

/// Two copies by the unreliable queue pair, and an essential report by the reliable one, each with the ICRC of our own writer.
async fn operations(device: &mut impl Device) {
    let reports = [key_write(0x20, 2, [1, 2, 3, 4]), key_write(0x60, 1, [5, 6, 7, 8])];
    let mut sent = device.process(&reports, 3).await;
    let mut expected = [
        write(Service::Uc, 0, [1, 2, 3, 4]),
        write(Service::Uc, 1, [1, 2, 3, 4]),
        write(Service::Rc, 0, [5, 6, 7, 8]),
    ];
    sent.sort();
    expected.sort();
    assert_eq!(sent, expected);
}

#[tokio::test]
async fn reports_become_rocev2_in_the_model() {
    operations(&mut Modelled::new("dta_translator", translator(TRANSLATOR))).await;
}

#[tokio::test]
async fn reports_become_rocev2_in_bmv2() {
    let test = "reports_become_rocev2_in_bmv2";
    let Some(mut live) = Live::new(test, "hopwise-dta-translator", translator(TRANSLATOR)).await else {
        return;
    };
    operations(&mut live).await;
    let counted = live.counted("completed", 2).await;
    assert_eq!(
        counted,
        [("accepted", 1), ("completed", 2)].map(|(name, packets)| (name.to_owned(), packets))
    );
}
