//! The vectors of SF-INT: what the switch in Rust makes of their packets and registers, the program makes of them as well. Measurements
//! are those that BMv2 has: microseconds, and one queue for each port.

use std::sync::Arc;

use dataplane::Watch;
use dataplane::sf::{Entry as Record, Form, Urgent};
use dataplane::switch::Config;
use dataplane::watchlist::Mode;
use detect::Match;
use p4_model::{Arrival, Program};
use testkit::vectors::Kind;
use wire::FlowKey;
use wire::int::sf::State;

use crate::flows::is_beyond;
use crate::pair::{AVAILABLE, Pair, Tables};
use crate::reader::{Line, Vector, of_kind};

/// The part of a switch that a vector needs and the program does not have.
fn lacks(vector: &Vector) -> Option<&'static str> {
    let configs = || vector.lines.iter().filter(|line| line.key == "config");
    let set = |name: &str, value: &str| {
        configs().any(|line| {
            line.fields
                .get(name)
                .is_some_and(|have| value.is_empty() || have == value)
        })
    };
    Some(match () {
        () if set("port", "") => "a UDP port as mark",
        () if set("form", "stack") => "both records on the stack",
        () if set("single", "true") => "one register for all flows",
        () => return None,
    })
}

fn is_of_sf(vector: &Vector) -> bool {
    vector.name.starts_with("sf_")
}

fn config(vector: &Vector) -> Config {
    let mut config = Config {
        available: AVAILABLE,
        ..Config::default()
    };
    for line in vector.lines.iter().filter(|line| line.key == "config") {
        config.available = line.hex16("available").unwrap_or(config.available);
        config.sf.aging = line.get("aging").unwrap_or(config.sf.aging);
        config.sf.urgent = Urgent {
            every: line.get("urgent_every"),
            queue: line.get("urgent_queue"),
        };
        if line.get::<String>("form").is_some_and(|form| form == "compact") {
            config.sf.form = Form::Compact;
        }
    }
    config.available &= AVAILABLE;
    config
}

fn flow(line: &Line) -> FlowKey {
    let ports = line.get("sport").zip(line.get("dport"));
    FlowKey::new(line.need("src"), line.need("dst"), ports, line.need("proto"))
}

/// The time that BMv2 has: 48 bits.
fn micros(ns: u64) -> u64 {
    (ns / 1000) & ((1 << 48) - 1)
}

/// Sends the packets of a vector through both switches. Returns how many.
fn run(program: &Arc<Program>, vector: &Vector) -> Result<usize, String> {
    let find = |key: &'static str| vector.lines.iter().filter(move |line| line.key == key);
    let edge = find("visit")
        .find_map(|line| line.get::<String>("edge"))
        .unwrap_or_default();
    let edges = (edge == "in" || edge == "both", edge == "out" || edge == "both");
    let watch = |line: &Line| Watch {
        mode: Mode::Sf,
        bitmap: line.hex16("bitmap").unwrap(),
        hops: line.need("hops"),
        ..Watch::new(Match::default())
    };
    let watches: Vec<Watch> = find("watch").map(watch).collect();
    let node = find("node").next().unwrap().words[0].parse().unwrap();
    let (config, watches) = (&config(vector), &watches);
    let mut pair = Pair::with(
        program,
        &Tables {
            node,
            config,
            watches,
            edges,
            border: edge == "border",
        },
    );
    let (mut arrival, mut passed) = (
        Arrival {
            port: 1,
            ..Arrival::default()
        },
        0,
    );
    for line in &vector.lines {
        match line.key.as_str() {
            "register" => {
                let record = line.octets("record").unwrap();
                let entry = Record {
                    state: State::from_name(&line.need::<String>("state")).unwrap(),
                    packet_id: line.need("packet_id"),
                    bitmap: line.hex16("bitmap").unwrap(),
                    since: line.need("since"),
                    record: &record,
                };
                pair.put(&flow(line), &entry);
            }
            "wipe" => pair.wipe(),
            "visit" => {
                arrival.ingress_ts = line.get("ingress_ts").map_or(arrival.ingress_ts, micros);
                arrival.egress_ts = line.get("egress_ts").map_or(arrival.egress_ts, micros);
                arrival.deq_qdepth = line.get("queue").unwrap_or(arrival.deq_qdepth);
                if let Some(mtu) = line.get("mtu") {
                    pair.set_mtu(mtu);
                }
            }
            "in" => {
                pair.pass(&line.bytes, arrival)?;
                passed += 1;
            }
            _ => {}
        }
    }
    Ok(passed)
}

#[test]
fn sf_vectors_are_the_same() {
    let program = Arc::new(Program::read(crate::PROGRAM).unwrap());
    let (mut passed, mut without) = (0, Vec::new());
    for vector in of_kind("switch").into_iter().filter(is_of_sf) {
        match lacks(&vector) {
            Some(what) => without.push((vector.name.clone(), what)),
            None => {
                passed += run(&program, &vector).unwrap_or_else(|error| panic!("{}: {error}", vector.name))
            }
        }
    }
    without.sort_unstable();
    let known = [
        ("sf_single", "one register for all flows"),
        ("sf_sink_stack", "both records on the stack"),
        ("sf_source_ipv4_port", "a UDP port as mark"),
        ("sf_transit_ipv4_port", "a UDP port as mark"),
    ];
    let known = known.map(|(name, what)| (name.to_owned(), what));
    assert_eq!((without, passed), (known.to_vec(), 62));
}

/// The packets of the other vectors, at a source, a transit and a sink, and at one that is both source and sink.
#[test]
fn packets_of_vectors_are_the_same() {
    let program = Arc::new(Program::read(crate::PROGRAM).unwrap());
    let config = Config {
        available: AVAILABLE,
        ..Config::default()
    };
    let mut passed = 0;
    for vector in testkit::vectors::all()
        .iter()
        .filter(|vector| vector.kind == Kind::Packet)
    {
        for edges in [(true, false), (false, false), (false, true), (true, true)] {
            let watches = [Watch {
                mode: Mode::Sf,
                bitmap: 0xac00,
                ..Watch::new(Match::default())
            }];
            let (config, watches) = (&config, &watches);
            if is_beyond(&vector.bytes) {
                continue;
            }
            let mut pair = Pair::with(
                &program,
                &Tables {
                    node: 7,
                    config,
                    watches,
                    edges,
                    border: false,
                },
            );
            let arrival = Arrival {
                port: 1,
                ingress_ts: 5_000_000,
                egress_ts: 5_000_003,
                deq_qdepth: 64,
            };
            pair.pass(&vector.bytes, arrival)
                .unwrap_or_else(|error| panic!("{}: {error}", vector.name));
            passed += 1;
        }
    }
    assert!(passed >= 192, "only {passed} packets");
}

/// SF-INT behind another option.
fn second_option() -> Vec<u8> {
    const IP: usize = 14;
    let mut frame = testkit::vectors::bytes("sfint_pkt");
    frame.splice(IP + 42..IP + 42, [0x1e, 6, 1, 2, 3, 4, 5, 6]);
    frame[IP + 41] += 1;
    frame[IP + 5] += 8;
    frame
}

/// INT that is not SF-INT, or that is where no source inserts it, passes unchanged, and is refused; at the border it is dropped.
#[test]
fn other_int_is_refused() {
    let program = Arc::new(Program::read(crate::PROGRAM).unwrap());
    let config = Config {
        available: AVAILABLE,
        ..Config::default()
    };
    let of_vector = |name| (name, testkit::vectors::bytes(name));
    let second = ("second option", second_option());
    for (name, frame) in [
        of_vector("int21_md_tcp"),
        of_vector("int10_tcp"),
        of_vector("sfint_type_1_with_flag"),
        second,
    ] {
        for edges in [(false, false), (false, true), (true, false)] {
            let tables = Tables {
                node: 7,
                config: &config,
                watches: &[],
                edges,
                border: false,
            };
            let mut p4 = Pair::with(&program, &tables).p4;
            let sent = p4.process(
                &frame,
                &Arrival {
                    port: 1,
                    ..Arrival::default()
                },
            );
            let counts = p4.counter("packets").unwrap();
            assert_eq!(
                (counts[1], counts[12]),
                (1, u64::from(edges.0)),
                "{name} {edges:?}"
            );
            // Behind the hop limit, and IPv4's checksum.
            let got: Vec<&[u8]> = sent.iter().map(|sent| &sent.frame[26..]).collect();
            let wanted: &[&[u8]] = if edges.0 { &[] } else { &[&frame[26..]] };
            assert_eq!(got, wanted, "{name} {edges:?}");
        }
    }
}
