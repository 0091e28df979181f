//! The vectors of the data plane: what the switch in Rust makes of their packets, the program makes of them as well. Measurements are those
//! that BMv2 has: microseconds, and one queue for each port.

use std::sync::Arc;

use dataplane::report::Version;
use dataplane::switch::{Config, Congestion, L4Checksum};
use dataplane::watchlist::Mode;
use dataplane::{Filter, Watch};
use detect::Match;
use p4_model::{Arrival, Program};
use testkit::vectors::Kind;

use crate::packets::is_beyond;
use crate::pair::{AVAILABLE, Pair, Tables};
use crate::reader::{Line, Vector, of_kind};

/// The part of a switch that a vector needs and the program does not have.
fn lacks(vector: &Vector) -> Option<&'static str> {
    let has = |key: &str, word: &str| {
        vector
            .lines
            .iter()
            .any(|line| line.key == key && line.words.iter().any(|have| have == word))
    };
    let set = |key: &str, name: &str, value: &str| {
        vector.lines.iter().any(|line| {
            line.key == key
                && line
                    .fields
                    .get(name)
                    .is_some_and(|have| value.is_empty() || have == value)
        })
    };
    let lines = |key: &str| vector.lines.iter().any(|line| line.key == key);
    let history = ["previous(", "change(", "average(", "+for+"];
    let rules = vector
        .lines
        .iter()
        .filter(|line| line.key == "filter")
        .filter_map(|line| line.fields.get("rule"));
    let remembers = rules
        .into_iter()
        .any(|rule| history.iter().any(|word| rule.contains(word)));
    let edges = vector.lines.iter().filter_map(|line| line.fields.get("edge"));
    let mtus = vector.lines.iter().filter_map(|line| line.fields.get("mtu"));
    Some(match () {
        () if has("config", "sf") || set("watch", "mode", "sf") || lines("register") => "SF-INT",
        () if remembers => "rules with history",
        () if lines("role") => "roles of flows",
        () if has("config", "mark") && set("config", "port", "") => "a UDP port as mark",
        () if set("config", "hop_by_hop", "true") => "IPv6 options",
        () if set("config", "treatment", "zero") => "L4 checksums set to 0",
        () if edges.collect::<std::collections::BTreeSet<_>>().len() > 1 => "edges that change",
        () if mtus.collect::<std::collections::BTreeSet<_>>().len() > 1 => "MTUs that change",
        () => return None,
    })
}

fn config(vector: &Vector) -> Config {
    let mut config = Config::default();
    for line in vector.lines.iter().filter(|line| line.key == "config") {
        if line
            .fields
            .get("treatment")
            .is_some_and(|treatment| treatment == "leave")
        {
            config.l4_checksum = L4Checksum::Leave;
        }
        if line.fields.get("version").is_some_and(|version| version == "1.0") {
            config.format.version = Version::V10;
        }
        if let (Some(rise), Some(fall), Some(quota)) = (line.get("rise"), line.get("fall"), line.get("quota"))
        {
            config.congestion = Some(Congestion { rise, fall, quota });
        }
        config.available = line.hex16("available").unwrap_or(config.available);
    }
    config.available &= AVAILABLE;
    config
}

fn watch(line: &Line) -> Watch {
    assert!(
        line.fields.keys().all(|key| key != "src" && key != "dst"),
        "the test does not map prefixes"
    );
    let mode = match line.need::<String>("mode").as_str() {
        "md10" => Mode::Md10,
        "mx21" => Mode::Mx21,
        "postcard" => Mode::Postcard,
        _ => Mode::Md21,
    };
    let flows = Match {
        proto: line.get("proto"),
        ..Match::default()
    };
    Watch {
        mode,
        bitmap: line.hex16("bitmap").unwrap(),
        hops: line.need("hops"),
        ..Watch::new(flows)
    }
}

fn filter(line: &Line) -> Filter {
    let prefix = |name: &str| line.get(name).map(|prefix: String| prefix.parse().unwrap());
    let flows = Match {
        proto: line.get("proto"),
        src: prefix("src"),
        dst: prefix("dst"),
        ..Match::default()
    };
    Filter {
        flows,
        detector: line.detector(),
    }
}

/// The time that BMv2 has: 48 bits.
fn micros(ns: u64) -> u64 {
    (ns / 1000) & ((1 << 48) - 1)
}

/// Sends the packets of a vector through both switches. Returns how many.
fn run(program: &Arc<Program>, vector: &Vector) -> Result<usize, String> {
    let (config, mut mtu, mut edges, mut border) = (config(vector), 1500, (false, false), false);
    for line in vector.lines.iter().filter(|line| line.key == "visit") {
        mtu = line.get("mtu").unwrap_or(mtu);
        edges = match line.get::<String>("edge").as_deref() {
            Some("in") => (true, false),
            Some("out") => (false, true),
            Some("both") => (true, true),
            _ => edges,
        };
        border |= line.get::<String>("edge").as_deref() == Some("border");
    }
    let watches: Vec<Watch> = vector
        .lines
        .iter()
        .filter(|line| line.key == "watch")
        .map(watch)
        .collect();
    let filters: Vec<Filter> = vector
        .lines
        .iter()
        .filter(|line| line.key == "filter")
        .map(filter)
        .collect();
    let node = vector
        .lines
        .iter()
        .find(|line| line.key == "node")
        .map(|line| line.words[0].parse().unwrap());
    let node = node.unwrap();
    let (config, watches, filters) = (&config, &watches, &filters);
    let tables = Tables {
        node,
        config,
        watches,
        filters,
        mtu,
        edges,
        border,
        routes_half: false,
    };
    let mut pair = Pair::with(program, &tables);
    let (mut arrival, mut passed) = (
        Arrival {
            port: 1,
            ..Arrival::default()
        },
        0,
    );
    for line in &vector.lines {
        match line.key.as_str() {
            "visit" => {
                arrival.ingress_ts = line.get("ingress_ts").map_or(arrival.ingress_ts, micros);
                arrival.egress_ts = line.get("egress_ts").map_or(arrival.egress_ts, micros);
                arrival.deq_qdepth = line.get("queue").unwrap_or(arrival.deq_qdepth);
            }
            "in" if !is_beyond(&line.bytes) => {
                pair.pass(&line.bytes, arrival)?;
                passed += 1;
            }
            _ => {}
        }
    }
    Ok(passed)
}

#[test]
fn switch_vectors_are_the_same() {
    let program = Arc::new(Program::read(crate::PROGRAM).unwrap());
    let (mut passed, mut without) = (0, Vec::new());
    for vector in of_kind("switch") {
        match lacks(&vector) {
            Some(what) => without.push(what),
            None => {
                passed += run(&program, &vector).unwrap_or_else(|error| panic!("{}: {error}", vector.name))
            }
        }
    }
    without.sort_unstable();
    without.dedup();
    let known = [
        "IPv6 options",
        "L4 checksums set to 0",
        "MTUs that change",
        "SF-INT",
        "a UDP port as mark",
        "roles of flows",
        "rules with history",
    ];
    assert_eq!(without, known);
    assert!(passed >= 25, "only {passed} packets");
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
            let watches = [Watch::new(Match::default())];
            let (config, watches, filters) = (&config, &watches, &[]);
            let (border, routes_half) = (false, false);
            let tables = Tables {
                node: 7,
                config,
                watches,
                filters,
                mtu: 1500,
                edges,
                border,
                routes_half,
            };
            if is_beyond(&vector.bytes) {
                continue;
            }
            let mut pair = Pair::with(&program, &tables);
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
    assert!(passed >= 148, "only {passed} packets");
}
