use std::fmt::Write;
use std::path::{Path, PathBuf};

use dataplane::dta::{Context, Outbox, PacketFacts, Reporter};
use wire::int::{Layout, Stack};
use wire::{FlowKey, Hop};

use super::*;
use crate::for_tests;

fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/dta")
}

/// The reporter of an example, and its sent datagrams.
struct Example {
    reporter: Reporter,
    out: Outbox,
}

impl Example {
    fn of(name: &str) -> Self {
        let text = std::fs::read_to_string(directory().join(name)).unwrap();
        let switch = for_tests::parse(&text).unwrap_or_else(|error| panic!("{error}"));
        let config = switch.dta.unwrap().config(switch.node).unwrap();
        let mut reporter = Reporter::new(config).unwrap();
        let mut out = Outbox::default();
        reporter.tick(1, &mut out);
        Self { reporter, out }
    }

    /// The sent datagrams, as hexadecimal digits: base header, sub-header, the rest.
    fn sent(&mut self) -> Vec<String> {
        let hex = |bytes: &[u8]| {
            bytes.iter().fold(String::new(), |mut text, byte| {
                let _ = write!(text, "{byte:02x}");
                text
            })
        };
        let sent = self
            .out
            .datagrams()
            .map(|one| format!("{} {}", hex(&one.payload[..8]), hex(&one.payload[8..])));
        let sent = sent.collect();
        self.out.clear();
        sent
    }

    fn packets(&mut self, flow: &FlowKey, count: u32, now: u64) {
        let packet = PacketFacts {
            bytes: 100,
            from_edge: true,
            to_edge: true,
            ..PacketFacts::default()
        };
        let known = Context {
            flow: Some(flow),
            packet,
            ..Context::new(Trigger::Packet, 11)
        };
        (0..count).for_each(|_| self.reporter.packet(&known, now, &mut self.out));
    }
}

fn flow() -> FlowKey {
    FlowKey::v4([10, 0, 0, 1], [10, 0, 0, 2], Some((1234, 80)), 6)
}

/// The key of [`flow`].
const FLOW: &str = "0a0000010a00000204d2005006";

/// This switch's own measurement.
fn metadata() -> Hop {
    Hop {
        node_id: Some(15),
        ingress_if: Some(1),
        egress_if: Some(2),
        hop_latency: Some(0x1234),
        queue_id: Some(3),
        queue_occupancy: Some(0x0001_0000),
        ingress_ts: Some(0x0102_0304_0506_0708),
        egress_ts: Some(0x0102_0304_0506_193c),
        ..Hop::default()
    }
}

/// A path of five nodes; the second and the last have 64 KiB in their queues.
fn path(example: &mut Example, flow: &FlowKey) {
    // Node, interfaces, queue; the most recent first.
    let record = |node: u32, queue: u32| [node, 0x0001_0002, 0x0300_0000 | queue];
    let words = [
        record(14, 0xffff),
        record(13, 0),
        record(12, 0x1_0000),
        record(11, 7),
    ]
    .concat();
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_be_bytes()).collect();
    let layout = Layout::int_2(0xd000, 3, false).unwrap();
    let metadata = metadata();
    let known = Context {
        flow: Some(flow),
        stack: Stack {
            bytes: &bytes,
            layout,
            count: 4,
        },
        metadata: Some(&metadata),
        ..Context::new(Trigger::Path, 11)
    };
    example.reporter.report(&known, 5, &mut example.out);
}

fn happens(example: &mut Example, trigger: Trigger, reason: Option<u8>) {
    let (flow, metadata) = (flow(), metadata());
    let known = Context {
        flow: Some(&flow),
        metadata: Some(&metadata),
        reason,
        ..Context::new(trigger, 11)
    };
    example.reporter.report(&known, 5, &mut example.out);
}

#[test]
fn each_row_of_table_2_has_an_example_that_is_a_good_file() {
    let mut names: Vec<String> = std::fs::read_dir(directory())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    // No rows of the table: the file of a host, and the collector's.
    names.retain(|name| !["host-reporter.toml", "collector.toml"].contains(&name.as_str()));
    let expected = [
        "int-congestion-events.toml",
        "int-path-tracing.toml",
        "marple-host-counters-added.toml",
        "marple-host-counters.toml",
        "marple-lossy-connections.toml",
        "netseer-loss-events.toml",
        "packetscope-flow.toml",
        "packetscope-loss.toml",
        "pint.toml",
        "sketch-aroma.toml",
        "sketch-count-min.toml",
        "sketch-count.toml",
        "sketch-hyperloglog.toml",
        "sonata-query-results.toml",
        "sonata-raw-tuples.toml",
        "turboflow.toml",
    ];
    assert_eq!(names, expected);
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/how-to/report-by-dta.md");
    let page = std::fs::read_to_string(page).unwrap();
    for name in names {
        Example::of(&name);
        assert!(page.contains(&name), "the how-to does not name {name}");
    }
}

#[test]
fn int_path_tracing() {
    let mut example = Example::of("int-path-tracing.toml");
    path(&mut example, &flow());
    let nodes = "0000000b0000000c0000000d0000000e0000000f";
    assert_eq!(
        example.sent(),
        [format!("110000000000000b 020d001400010000{FLOW}{nodes}")]
    );
}

#[test]
fn int_congestion_events() {
    let mut example = Example::of("int-congestion-events.toml");
    path(&mut example, &flow());
    assert!(example.sent().is_empty(), "they wait for others");
    example.reporter.tick(1_000_005, &mut example.out);
    assert_eq!(
        example.sent(),
        ["121000000000000b 0000000100040200000c0002000f0002"]
    );
}

#[test]
fn marple_host_counters() {
    for (name, of) in [
        (
            "marple-host-counters.toml",
            ["111000000000000b 0204000400020000", "00000005"],
        ),
        (
            "marple-host-counters-added.toml",
            ["135000010000000b 02040003000000000000000000000005", ""],
        ),
    ] {
        let mut example = Example::of(name);
        example.packets(&flow(), 5, 500_000_000);
        (0..20).for_each(|step| example.reporter.tick(1_000_000_000 + step, &mut example.out));
        assert_eq!(example.sent(), [format!("{}0a000001{}", of[0], of[1])]);
    }
}

#[test]
fn marple_lossy_connections() {
    let mut example = Example::of("marple-lossy-connections.toml");
    example.packets(&flow(), 99, 5);
    happens(&mut example, Trigger::Drop, Some(1));
    happens(&mut example, Trigger::Drop, Some(1));
    assert!(example.sent().is_empty(), "99 are too few to say");
    example.packets(&flow(), 100, 5);
    assert_eq!(
        example.sent(),
        [format!("126000010000000b 00000002000d0100{FLOW}")],
        "once"
    );
}

#[test]
fn netseer_loss_events() {
    let mut example = Example::of("netseer-loss-events.toml");
    happens(&mut example, Trigger::Drop, Some(7));
    assert_eq!(
        example.sent(),
        [format!("12e000010000000b 0000000300120100{FLOW}0000000f07")]
    );
}

#[test]
fn sonata_query_results() {
    let mut example = Example::of("sonata-query-results.toml");
    for (host, packets) in [(1, 1000), (2, 1001), (3, 2000)] {
        let flow = FlowKey::v4([192, 0, 2, 1], [10, 0, 0, host], Some((4000, 22)), 6);
        example.packets(&flow, packets, 5);
    }
    example.packets(&flow(), 5000, 5);
    example.reporter.tick(1_000_000_000, &mut example.out);
    let result = "00000002 00000bb9 0a000003 000007d0".replace(' ', "");
    assert_eq!(
        example.sent(),
        [format!("111000000000000b 040400100004000000000007{result}")]
    );
}

#[test]
fn sonata_raw_tuples() {
    let mut example = Example::of("sonata-raw-tuples.toml");
    let answer = |host| FlowKey::v4([192, 0, 2, 53], [10, 0, 0, host], Some((53, 0x1234)), 17);
    (0..4).for_each(|_| example.packets(&answer(7), 1, 5));
    example.packets(&flow(), 9, 5);
    example.reporter.tick(2_000_005, &mut example.out);
    let sent = example.sent();
    let [sent] = &sent[..] else { panic!("{sent:?}") };
    let tuple = "0a000007c0000235123400000064";
    assert!(sent.starts_with("120000000000000b 0000001"), "{sent}");
    assert!(sent.ends_with(&format!("000e0400{}", tuple.repeat(4))), "{sent}");
}

#[test]
fn pint() {
    use dataplane::dta::pint;
    let mut example = Example::of("pint.toml");
    let mut seen = std::collections::BTreeMap::new();
    for sport in 0..200_u16 {
        // All paths of the example are the same; packets differ in their receive time.
        let metadata = Hop {
            ingress_ts: Some(sport.into()),
            ..metadata()
        };
        let words: Vec<u8> = [14_u32, 13, 12, 11]
            .iter()
            .flat_map(|node| node.to_be_bytes())
            .collect();
        let stack = Stack {
            bytes: &words,
            layout: Layout::int_2(0x8000, 1, false).unwrap(),
            count: 4,
        };
        let flow = flow();
        let known = Context {
            flow: Some(&flow),
            stack,
            metadata: Some(&metadata),
            ..Context::new(Trigger::Path, 11)
        };
        example.reporter.report(&known, 5, &mut example.out);
    }
    for sent in example.sent() {
        let rest = sent
            .strip_prefix(&format!("110000000000000b 010e000100050000{FLOW}"))
            .unwrap();
        let [n, digest] = [0, 2].map(|at| u8::from_str_radix(&rest[at..at + 2], 16).unwrap());
        let hop = pint::hop(n, 5).unwrap();
        assert_eq!(digest, pint::digest([11, 12, 13, 14, 15][hop], n));
        seen.insert(n, digest);
    }
    assert_eq!(
        seen.keys().copied().collect::<Vec<_>>(),
        (0..16).collect::<Vec<_>>()
    );
}

#[test]
fn packetscope_flow_troubleshooting() {
    let mut example = Example::of("packetscope-flow.toml");
    happens(&mut example, Trigger::Hop, None);
    let value = "0001 0002 03 00010000 00001234 05060708".replace(' ', "");
    assert_eq!(
        example.sent(),
        [format!("110000000000000b 02110011000600000000000b{FLOW}{value}")]
    );
}

#[test]
fn packetscope_insight_into_losses() {
    let mut example = Example::of("packetscope-loss.toml");
    happens(&mut example, Trigger::Drop, Some(9));
    assert_eq!(
        example.sent(),
        ["126000010000000b 00000004000e0100".to_owned()
            + "0000000f"
            + "0001"
            + "0002"
            + "03"
            + "09"
            + "00000005"]
    );
}

#[test]
fn turboflow() {
    let mut example = Example::of("turboflow.toml");
    let mut added = 0;
    for i in 0..60_000_u32 {
        let flow = FlowKey::v4((i % 20_000).to_be_bytes(), [10, 0, 0, 2], Some((1, 2)), 17);
        example.packets(&flow, 1, 5);
    }
    (0..20).for_each(|step| example.reporter.tick(1_000_000_000 + step, &mut example.out));
    for _ in 0..200 {
        for sent in example.sent() {
            assert_eq!((&sent[..4], &sent[17..25]), ("1350", "020d0007"));
            added += u64::from_str_radix(&sent[33..49], 16).unwrap();
        }
        example.reporter.tick(1_500_000_000, &mut example.out);
    }
    let evicted = example
        .reporter
        .tables()
        .next()
        .map(|(_, stats)| stats.evicted)
        .unwrap();
    let kept: u64 = example
        .reporter
        .destinations(0)
        .map(|to| to.stats.overwritten)
        .sum();
    assert!(evicted > 20_000, "{evicted}");
    // Nothing was sent in between: the outbox, and then the ring, were full. Operations that did not fit are counted.
    assert!(added <= 60_000 && kept > 0, "{added}");
    assert!(example.reporter.mappings().all(|(_, stats)| stats.is_balanced()));
}

#[test]
fn sketches() {
    for (name, kind, op) in [
        ("sketch-count.toml", SketchKind::Count, 0),
        ("sketch-count-min.toml", SketchKind::CountMin, 0),
        ("sketch-hyperloglog.toml", SketchKind::HyperLogLog, 1),
        ("sketch-aroma.toml", SketchKind::Aroma, 3),
    ] {
        let mut example = Example::of(name);
        example.packets(&flow(), 10, 5);
        let mut columns = 0;
        for step in 0..500 {
            example
                .reporter
                .tick(10_000_000_000 + step * 1_000_000, &mut example.out);
            for sent in example.sent() {
                let body = &sent[17..];
                let number = |at: usize, len: usize| u64::from_str_radix(&body[at..at + len], 16).unwrap();
                // The last report is sent again while nothing follows it.
                if number(8, 8) < columns {
                    continue;
                }
                assert_eq!(
                    (number(8, 8), number(20, 2)),
                    (columns, op),
                    "{name}: first column, operation"
                );
                columns += number(22, 2);
            }
        }
        let (config, stats) = example.reporter.sketches().next().unwrap();
        assert_eq!(
            (config.kind, columns, stats.counted),
            (kind, u64::from(config.shape.columns), 10)
        );
    }
}

#[test]
fn errors_name_their_line() {
    let error = |text: &str| {
        let ports = "[switch]\nnode = 1\n[[switch.ports]]\nnumber = 1\ninterface = \"a\"\n[switch.dta]\n";
        for_tests::parse(&format!("{ports}{text}")).unwrap_err()
    };
    let first = |text: &str| error(text).lines().next().unwrap_or_default().to_owned();
    assert!(
        first("").starts_with("h.toml:6:") && error("").contains("nowhere to report to"),
        "{}",
        error("")
    );
    let to = "collectors = [\"10.0.0.9:40040\"]\n";
    let report = |rest: &str| {
        format!("{to}[[switch.dta.report]]\non = \"path\"\noperation = \"key-write\"\nstore = 1\n{rest}")
    };
    let unknown = error(&report("key = [\"flwo\"]\ndata = [\"node\"]\n"));
    let expected = "h.toml:12:8: there is no field `flwo`; docs/reference/dta-fields.md lists them";
    assert!(unknown.lines().any(|line| line == expected), "{unknown}");
    assert!(
        first(&report("key = [\"flow\"]\ndata = [\"packets\"]\n"))
            .starts_with("h.toml:13:8: `packets` is a field of table records")
    );
    assert!(
        first(&report(
            "key = [\"flow\"]\ndata = [\"node\"]\nwhen = [\"node\"]\n"
        ))
        .contains("is not a condition")
    );
    assert!(
        first(&report("key = [\"flow\"]\ndata = [\"node\"]\nlist = 3\n"))
            .starts_with("h.toml:14:8: \"key-write\"")
    );
    assert!(first(&format!("{to}[[switch.dta.report]]\non = \"drop\"\n")).contains("say what is done"));
    let table = format!(
        "{to}[[switch.dta.report]]\non = \"evicted\"\ntable = \"t\"\noperation = \"append\"\nlist = 1\ndata = [\"packets\"]\n"
    );
    assert!(
        first(&table).contains("there is no table \"t\""),
        "{}",
        first(&table)
    );
    let sketch = format!("{to}[[switch.dta.sketch]]\nkind = \"count-min\"\nkey = [\"flow\"]\ndepth = 17\n");
    assert!(
        first(&sketch).starts_with("h.toml:11:9: write 1 to 16 rows"),
        "{}",
        first(&sketch)
    );
    let twice = "collectors = [\"10.0.0.9:40040\", \"10.0.0.9:40040\"]\n";
    assert!(first(twice).contains("there twice"));
    assert!(first("collectors = [\"[::1]:40040\"]\n").contains("other family"));
    let list = format!("{to}[[switch.dta.list]]\nfirst = 4\ncollector = 1\n");
    assert!(first(&list).contains("no collector 1"), "{}", first(&list));
}

#[test]
fn a_map_says_who_keeps_what_and_where_reports_go() {
    let file = std::env::temp_dir().join(format!("hopwise-map-{}.json", std::process::id()));
    let switch = |rest: &str| {
        let file = file.display();
        format!(
            "[switch]\nnode = 1\n[[switch.ports]]\nnumber = 1\ninterface = \"a\"\n[switch.dta]\nmap = \"{file}\"\n{rest}"
        )
    };
    let dta = |rest: &str| for_tests::parse(&switch(rest)).map(|switch| switch.dta.unwrap());
    let error = |rest: &str| {
        dta(rest)
            .unwrap_err()
            .to_string()
            .lines()
            .next()
            .unwrap()
            .to_owned()
    };
    assert!(error("").starts_with("h.toml:7:7: cannot read "), "{}", error(""));
    // By hand: 200 values to the second collector, list 7 too, sketches to the third, which has nothing else.
    let keys: Vec<u8> = (0..256).map(|value| u8::from(value < 200)).collect();
    let mut map = serde_json::json!({
        "version": 1,
        "collectors": [
            {"name": "a", "api": "http://a", "reports": "10.0.0.9:40040"},
            {"name": "b", "api": "http://b", "reports": "10.0.0.10:40040"},
            {"name": "c", "api": "http://c", "reports": "10.0.0.11:40040"},
        ],
        "keys": keys,
        "lists": [{"first": 7, "last": 7, "collector": 1}],
        "sketches": 2,
    });
    std::fs::write(&file, map.to_string()).unwrap();
    let spread = dta("").unwrap().config(1).unwrap().spread;
    assert_eq!(spread.by_key()[..], keys);
    assert_eq!(
        (spread.of_list(7), spread.of_list(9), spread.of_sketches()),
        (1, 0, 2)
    );
    let at = |end: &str| format!("10.0.0.{end}").parse().unwrap();
    let of_map = [at("9:40040"), at("10:40040"), at("11:40040")];
    assert_eq!(
        dta("").unwrap().destinations().map(|(addresses, _)| addresses),
        Ok(of_map.to_vec())
    );
    let metadata = "collectors = [\"10.0.0.1:1\", \"10.0.0.2:1\", \"10.0.0.3:1\"]\n";
    assert_eq!(
        dta(metadata)
            .unwrap()
            .destinations()
            .map(|(addresses, _)| addresses),
        Ok(vec![at("1:1"), at("2:1"), at("3:1")]),
        "the file's own go before"
    );
    assert_eq!(dta(metadata).unwrap().config(1).unwrap().spread, spread);
    let few = "collectors = [\"10.0.0.1:1\"]\n";
    assert!(
        error(few).contains("there are 1, and 3 in the map"),
        "{}",
        error(few)
    );
    assert!(error("sketch_collector = 1\n").starts_with("h.toml:8:20: the map says who keeps it"));
    assert!(error("[[switch.dta.list]]\nfirst = 4\n").contains("the map says who keeps it"));
    assert!(error("control = \"[::]:40044\"\n").contains("another family than `control`"));
    map["collectors"][1]["reports"] = serde_json::Value::Null;
    std::fs::write(&file, map.to_string()).unwrap();
    assert!(
        error("").contains("has no report address of `b`"),
        "{}",
        error("")
    );
    std::fs::write(&file, "{}").unwrap();
    assert!(error("").contains("is no map of collectors"), "{}", error(""));
    std::fs::remove_file(&file).unwrap();
}

#[test]
fn the_reference_page_of_fields_is_what_the_source_says() {
    testkit::compare_page("docs/reference/dta-fields.md", &super::fields_page());
}
