#![allow(clippy::unwrap_used, reason = "a test panics")]

use settings::read::Reader;
use settings::setting::{Setting, tables};

use super::*;
use crate::map;
use crate::program::{LocalSettings, Program};
use crate::programs::Included;
use crate::text::Message;
use crate::translate::Entries;

pub(super) const AGGREGATOR: &str = r#"
kind = "agg_nf"
r = 3
registers = 16
destinations = [
    { to = "192.0.2.100:32767", port = 4, source = "192.0.2.1", source_mac = "02:00:00:00:00:01", mac = "02:00:00:00:01:00" },
    { to = "[fd00::9]:32767", port = 5, source = "fd00::1", source_mac = "02:00:00:00:00:02", mac = "02:00:00:00:01:01" },
]
cross_connect = [{ from = 1, to = 2 }]
timer_frames = { ports = [64], every = "100ms" }
"#;

pub(super) const TRANSLATOR: &str = r#"
report_ports = [1, 2]
reporters = [{ id = 7, address = "10.0.0.7" }, { id = 8, address = "10.0.0.8" }]
timer_frames = { ports = [64], every = "1s" }
[[collectors]]
address = "192.0.2.200"
port = 3
source = "198.51.100.1"
source_mac = "02:00:00:00:00:03"
mac = "02:00:00:00:01:00"
unreliable = 0x100
reliable = 0x101
own = 0x5101
rate = 1000000
stores = [
    { kind = "key-write", id = 1, address = 0x7f0000000000, rkey = 8002, slots = 1024, data = 20 },
    { kind = "key-increment", id = 1, address = 0x7f0001000000, rkey = 8002, slots = 4096 },
    { kind = "append", id = 10, address = 0x7f0002000000, rkey = 8002, lists = 3, entry = 4, entries = 64, batch = 16 },
    { kind = "postcarding", id = 5, address = 0x7f0003000000, rkey = 8002, slots = 256, hops = 5, places = 8 },
    { kind = "sketch", id = 4, address = 0x7f0004000000, rkey = 8002, sketch = "count-min", depth = 4, columns = 9, reporters = 2 },
]
[[collectors]]
address = "192.0.2.201"
port = 4
source = "198.51.100.1"
source_mac = "02:00:00:00:00:04"
mac = "02:00:00:00:01:01"
unreliable = 0x102
reliable = 0x103
stores = [{ kind = "key-write", id = 1, address = 0x7f0000000000, rkey = 8002, slots = 16, data = 64 }]
"#;

fn read<T: Setting>(text: &str) -> T {
    let mut reader = Reader::new(text);
    let root = reader.parse(tables::<T>).unwrap_or_else(|| panic!("{text}"));
    let read = T::read(&root, &mut reader);
    reader.finish("t.toml").unwrap_or_else(|error| panic!("{error}"));
    read.unwrap()
}

fn aggregator(text: &str) -> Result<Role, String> {
    read::<AggregatorSettings>(text).role(11)
}

fn translator(text: &str) -> Result<Role, String> {
    read::<TranslatorSettings>(text).role()
}

/// The entries as text, as the manager writes them.
fn entries(program: &str, role: Role) -> Vec<String> {
    let included = Included::named(program).unwrap();
    let name = included.map.unwrap();
    let map = map::read(map::shipped(name).unwrap(), name).unwrap();
    let local = LocalSettings {
        role: Some(role),
        ..LocalSettings::default()
    };
    let program =
        Program::new(&map, &included.info().unwrap(), &local).unwrap_or_else(|all| panic!("{all:#?}"));
    let entries = program
        .encode_all([&manager::device::Rule::Forwarding], &Entries::new())
        .unwrap();
    entries.iter().map(|entry| program.describe(entry)).collect()
}

#[test]
fn an_aggregator_is_entries() {
    let role = aggregator(AGGREGATOR).unwrap();
    assert_eq!(
        (role.kind, role.frames.len(), role.period.as_millis()),
        (RoleKind::Aggregator, 16, 100)
    );
    // Slot 9: EtherType, not `stop`, and its number.
    assert_eq!(role.frames[9][12..22], [0x88, 0xb5, 0, 0, 0, 0, 0, 0, 0, 9]);
    assert!(role.frames.iter().all(|frame| frame.len() == 60));
    assert_eq!(role.size(), [6, 0, 1]);
    let about = read::<AggregatorSettings>(AGGREGATOR).about();
    assert_eq!(
        about,
        "agg_nf of 3 postcards to 192.0.2.100:32767, [fd00::9]:32767"
    );
    let expected = [
        "the entry of destination for destination 0 (AggregatorIngress.send)",
        "the entry of destination for destination 1 (AggregatorIngress.send_v6)",
        "clone session 501 (to port 1)",
        "the default entry of aggregator (AggregatorIngress.aggregate)",
        "the entry of postcard_port for udp_dport 32766 (AggregatorIngress.accept_postcards)",
        "the entry of other for ingress_port 1 (AggregatorIngress.forward)",
        "the entry of timer_port for ingress_port 64 (AggregatorIngress.accept_timer)",
    ];
    assert_eq!(entries("aggregator", role), expected);
    let aggregate = aggregator(AGGREGATOR)
        .unwrap()
        .entries()
        .iter()
        .find_map(|entry| match &entry.form {
            Form::Table {
                table: "aggregator",
                params,
                ..
            } => Some(params.clone()),
            _ => None,
        });
    let numbers: Vec<u128> = aggregate.unwrap().into_iter().map(|(_, number)| number).collect();
    assert_eq!(numbers, [3, 3, 1000, 11, 15, 2, 0]);
}

#[test]
fn a_translator_is_entries() {
    let role = translator(TRANSLATOR).unwrap();
    // 3 lists, 8 places, 2 epochs.
    assert_eq!((role.kind, role.frames.len()), (RoleKind::Translator, 13));
    assert_eq!(
        role.frames[4][12..24],
        [0x88, 0xb5, 0, 0x40, 0, 1, 0, 0, 0, 5, 0, 0]
    );
    assert_eq!(role.size(), [26, 12, 2]);
    let about = read::<TranslatorSettings>(TRANSLATOR).about();
    assert_eq!(
        about,
        "DTA to 2 collector(s) with 6 store(s); 2 reporter(s) of essential reports"
    );
    let written = entries("dta_translator", role);
    for (part, number) in [
        ("multicast group ", 12),
        ("clone session ", 2),
        ("the entry of store ", 8),
        ("the entry of reporter ", 4),
        ("the entry of sender ", 2),
        ("the entry of queue_pair ", 4),
        ("the entry of answer ", 2),
        ("the entry of collector for ", 2),
        ("the entry of collector_rate ", 1),
        ("the default entry of ", 2),
        ("the entry of timer_port ", 1),
    ] {
        assert_eq!(
            written.iter().filter(|text| text.starts_with(part)).count(),
            number,
            "{part}: {written:#?}"
        );
    }
    assert_eq!(written.len(), 40);
    assert!(
        written.contains(&"multicast group 14 (to port 4)".to_owned()),
        "{written:#?}"
    );
}

#[test]
fn what_an_aggregator_cannot_do_is_refused() {
    for (from, to, part) in [
        (
            "r = 3",
            "r = 24",
            "r: an aggregate of `agg_nf` has at most 23 postcards",
        ),
        ("r = 3", "r = 0", "r: write at least 1"),
        (
            "registers = 16",
            "registers = 8192",
            "registers: write a power of two, at most 4096",
        ),
        (
            "registers = 16",
            "registers = 12",
            "registers: write a power of two",
        ),
        (
            "registers = 16",
            "registers = 4096",
            "timer_frames.every: 4096 frames in that time are more than 5000 per second; write at least \"820ms\"",
        ),
        (
            "ports = [64], every",
            "every",
            "timer_frames.ports: the switch's CPU port is missing",
        ),
        (
            "\"100ms\"",
            "\"1ms\"",
            "timer_frames.every: write \"10ms\" to \"1h\"",
        ),
        (
            "\"fd00::1\"",
            "\"10.0.0.1\"",
            "destinations[1].source: write an address of the same family as `to`",
        ),
        (
            "port = 5",
            "port = 0",
            "destinations[1].port: a port has a number from 1 to 510",
        ),
        (
            "02:00:00:00:01:01",
            "02:00",
            "destinations[1].mac: `02:00` is not a MAC address",
        ),
        ("r = 3", "listen = []", "listen: write the UDP ports"),
        ("from = 1", "from = 0", "from: a port has a number"),
    ] {
        let text = AGGREGATOR.replacen(from, to, 1);
        assert_ne!(text, AGGREGATOR, "{from}");
        let error = aggregator(&text).unwrap_err();
        assert!(error.starts_with(part), "{to}: {error}");
    }
    assert_eq!(aggregator("").unwrap_err(), "destinations: write 1 to 64");
    // A kind that holds no postcards has room for any number.
    assert!(
        aggregator(
            &AGGREGATOR
                .replace("agg_nf", "cor_nf")
                .replace("r = 3", "r = 1000")
        )
        .is_ok()
    );
}

#[test]
fn what_a_translator_cannot_do_is_refused() {
    for (from, to, part) in [
        (
            "slots = 1024, data = 20",
            "slots = 1000, data = 20",
            "collectors[0].stores[0]: slots must be a power of two",
        ),
        (
            "data = 20",
            "data = 18",
            "collectors[0].stores[0]: the program writes whole words, 4 to 64 bytes",
        ),
        (
            "data = 20",
            "data = 68",
            "collectors[0].stores[0]: the program writes whole words",
        ),
        (
            "0x7f0000000000",
            "0x7f0000000004",
            "collectors[0].stores[0]: `address` is a multiple of 8",
        ),
        (
            "batch = 16",
            "batch = 32",
            "collectors[0].stores[2]: a batch has a power of two of entries, together at most 64 bytes",
        ),
        (
            "entry = 4, entries = 64",
            "entry = 12, entries = 64",
            "collectors[0].stores[2]: an entry of a list has 4, 8, 16, 32 or 64 bytes",
        ),
        (
            "lists = 3",
            "lists = 1025",
            "collectors[0].stores[2]: the program has 1024 lists for all collectors",
        ),
        (
            "places = 8",
            "places = 6",
            "collectors[0].stores[3]: `places` is a power of two from 4 on",
        ),
        (
            "hops = 5",
            "hops = 17",
            "collectors[0].stores[3]: a path of the program has at most 16 hops",
        ),
        (
            "columns = 9",
            "columns = 9000",
            "collectors[0].stores[4]: the program has 16 sketches",
        ),
        (
            "depth = 4",
            "depth = 16, width = 8",
            "collectors[0].stores[4]: a column of a sketch has at most 64 bytes",
        ),
        (
            "kind = \"key-increment\"",
            "kind = \"key-write\"",
            "collectors[0].stores: two of a kind have the ID 1",
        ),
        (
            "192.0.2.201",
            "192.0.2.200",
            "collectors[1].reports: 192.0.2.200 is another collector's",
        ),
        (
            "192.0.2.201",
            "fd00::1",
            "collectors[1].address: the program knows IPv4 only",
        ),
        (
            "reliable = 0x103",
            "reliable = 0",
            "collectors[1].reliable: a queue pair has a number of 24 bits",
        ),
        (
            "report_ports = [1, 2]",
            "",
            "report_ports: the ports for messages to reporters are missing",
        ),
        ("id = 8", "id = 7", "reporters[1].id: 7 is written twice"),
        (
            "address = \"10.0.0.8\"",
            "",
            "reporters[1].address: write an address",
        ),
        (
            "[1, 2]",
            "[1, 2]\nreporter_rate = 1\nreporter_burst = 4000000000",
            "reporter_burst: it takes longer than 19 hours",
        ),
    ] {
        let text = TRANSLATOR.replacen(from, to, 1);
        let text = text.replace("\"10.0.0.7\" }, { id = 8,  }", "\"10.0.0.7\" }, { id = 8 }");
        assert_ne!(text, TRANSLATOR, "{from}");
        let error = translator(&text).unwrap_err();
        assert!(error.starts_with(part), "{to}: {error}");
    }
    assert_eq!(translator("").unwrap_err(), "collectors: write 1 to 16");
}

/// The limits here are those of the programs.
#[test]
fn limits_are_those_of_the_programs() {
    let size = |program: &str, kind: &str, name: &str| {
        let root = Message::read(Included::named(program).unwrap().text).unwrap();
        let is_named = |one: &&Message| one.first("preamble").is_some_and(|of| of.text("alias") == name);
        root.all(kind)
            .find(is_named)
            .unwrap_or_else(|| panic!("{program} has no {name}"))
            .number("size")
    };
    for (program, kind, name, expected) in [
        ("aggregator", "registers", "count_of", 4096),
        ("aggregator", "registers", "held_node", 4096 * 24),
        ("aggregator", "tables", "destination", 64),
        ("dta_translator", "registers", "heads", 1024),
        ("dta_translator", "registers", "seen_of", 4096),
        ("dta_translator", "registers", "newest_of", 16),
        ("dta_translator", "registers", "counters", 65_536),
        ("dta_translator", "registers", "delivered_of", 16_384),
        ("dta_translator", "tables", "store", 1024),
        ("dta_translator", "tables", "reporter", 1024),
        ("dta_translator", "tables", "sender", 1024),
        ("dta_translator", "tables", "collector", 16),
    ] {
        assert_eq!(size(program, kind, name), expected, "{program} {name}");
    }
}
