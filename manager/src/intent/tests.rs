use settings::setting::{Setting, tables};

use super::*;

/// The example of the reference.
const EXAMPLE: &str = r#"
[[intents]]
name = "storage"
match = { dst = ["10.20.0.0/16", "fd00:20::/32"], proto = "tcp", dport = ["3260", "8000-8999"] }
both_directions = true
watch = ["hop_latency", "queue_occupancy", "link_utilization"]
mode = "auto"
sample = "1 in 10"
at = { edges = ["leaf*"], between = ["h1", "h9"] }
report = { thresholds = { hop_latency = "20us" }, rule = "max(queue_occupancy) > 50", filter = "per_hop" }
budget = "2000 reports/s"
until = "2h"
priority = 7
"#;

const HOUR: u64 = 3_600_000_000_000;

#[test]
fn an_intent_is_read_whole() {
    let read = read(EXAMPLE, "i.toml", 0).unwrap();
    let expected = Intent {
        name: "storage".to_owned(),
        flows: Flows {
            dst: vec!["10.20.0.0/16".parse().unwrap(), "fd00:20::/32".parse().unwrap()],
            dport: vec![(3260, 3260), (8000, 8999)],
            proto: vec![6],
            ..Flows::default()
        },
        both_directions: true,
        watch: [
            Metric::HopLatency,
            Metric::QueueOccupancy,
            Metric::LinkUtilization,
        ]
        .into(),
        mode: None,
        sample: 10,
        at: At {
            edges: vec!["leaf*".to_owned()],
            between: Some(("h1".to_owned(), "h9".to_owned())),
        },
        reporting: Reporting {
            thresholds: [(Metric::HopLatency, 20_000)].into(),
            rule: Some("max(queue_occupancy) > 50".to_owned()),
            filter: Some(FilterAlgorithm::PerHop),
            ..Reporting::default()
        },
        budget: Budget {
            reports: Some(2000),
            events: None,
        },
        until: Some(Until::After(2 * HOUR)),
        priority: 7,
    };
    assert_eq!(read, [expected]);
    assert_eq!(read[0].bits(false), 0xf100);
    assert_eq!(read[0].entries().unwrap().len(), 8);
}

#[test]
fn a_minimal_intent_watches_all_flows() {
    let text = "[[intents]]\nname = \"a\"\nwatch = [\"flow_path\"]\nmatch = \"all\"";
    let expected = Intent {
        name: "a".to_owned(),
        watch: [Metric::FlowPath].into(),
        ..Intent::default()
    };
    assert_eq!(read(text, "i.toml", 0).unwrap(), [expected]);
}

#[test]
fn wrong_intents_are_located_with_advice() {
    let cases = [
        (
            "nme = \"x\"",
            "2:1: there is no key `nme` in [[intents]]; did you mean `name`?",
        ),
        (
            "name = \"x\"",
            "1:1: no metrics selected; write watch = [\"hop_latency\"] or more",
        ),
        (
            "name = \"x\"\nwatch = [\"queue_congestion\"]",
            "3:9: INT 1.0 and later have no congestion status of a queue; watch queue_occupancy",
        ),
        (
            "watch = [\"latency\"]",
            "2:10: found the text \"latency\"; write \"flow_path\", ",
        ),
        (
            "name = \"x\"\nwatch = [\"flow_path\"]\nsample = \"1 in 0\"",
            "4:10: found the text \"1 in 0\"; write ",
        ),
        (
            "name = \"x\"\nwatch = [\"flow_path\"]\nuntil = \"1999-01-01T00:00:00Z\"",
            "4:9: `until` lies in the past; write a later time",
        ),
        (
            "name = \"x\"\nwatch = [\"hop_latency\"]\nreport = { filter = \"per_hop\" }",
            "4:10: this filter compares one metric, and there are 0 thresholds; give exactly one",
        ),
        (
            "name = \"x\"\nwatch = [\"flow_path\"]\nmatch = { src = \"10.0.0.0/8\", dst = \"fd00::/8\" }",
            "4:9: no packet has a source and a destination of different versions of IP; use",
        ),
        (
            "name = \"x\"\nwatch = [\"flow_path\"]\nmatch = { dscp = 64 }",
            "4:18: found the number 64; write a DSCP",
        ),
        (
            "name = \"x\"\nwatch = [\"flow_path\"]\nmatch = { src = [] }",
            "4:17: an empty list matches nothing;",
        ),
        (
            "name = \"x\"\nwatch = [\"flow_path\"]\nat = { between = [\"h1\"] }",
            "4:18: `between` is for two different hosts;",
        ),
        (
            "name = \"x\"\nwatch = [\"hop_latency\"]\nreport = { thresholds = { queue_occupancy = 3 } }",
            "4:10: a threshold of queue_occupancy has no effect;",
        ),
        (
            "name = \"x\"\nwatch = [\"flow_path\"]\n[[intents]]\nname = \"x\"\nwatch = [\"flow_path\"]",
            "5:8: two intents are named `x`; rename one",
        ),
    ];
    let now = 1_700_000_000_000_000_000;
    for (text, message) in cases {
        let error = read(&format!("[[intents]]\n{text}"), "i.toml", now)
            .unwrap_err()
            .to_string();
        assert!(
            error.starts_with(&format!("i.toml:{message}")),
            "{message}\n{error}"
        );
    }
}

#[test]
fn patterns_match_names() {
    let matches = |pattern| ["leaf1", "leaf", "spine1"].map(|name| matches_pattern(pattern, name));
    assert_eq!(matches("leaf*"), [true, true, false]);
    assert_eq!(matches("*1"), [true, false, true]);
    assert_eq!(matches("*"), [true; 3]);
    assert_eq!(matches("leaf1"), [true, false, false]);
    assert_eq!(matches("l*a*1"), [true, false, false]);
    assert!(!matches_pattern("aa*aa", "aaa"));
}

#[test]
fn the_reference_has_all_tables() {
    let headings: Vec<String> = chapters().into_iter().map(|chapter| chapter.heading).collect();
    let expected = [
        "[[intents]]",
        "[intents[].match]",
        "[intents[].at]",
        "[intents[].report]",
        "[intents[].report.thresholds]",
        "[intents[].report.coarsest]",
        "[intents[].report.then]",
    ];
    assert_eq!(headings, expected);
}

/// Reads an intent that is written as a TOML table.
fn read_one(table: &str, now: u64) -> Result<Intent, String> {
    let text = format!("intent = {table}");
    let root = settings::read::Reader::new(&text).parse(Vec::new).unwrap();
    super::read_one(root.get_ref().get("intent").unwrap(), now)
}

/// What is shown is read again as the same intent: the manager stores intents in this form.
#[test]
fn an_intent_is_shown_as_it_is_written() {
    let table = r#"{ name = "storage", match = { dst = ["10.20.0.0/16", "10.30.0.0/16"], proto = "tcp", dport = "3260-3270", dscp = 10 }, both_directions = true, watch = ["hop_latency", "link_utilization"], mode = "md", sample = "1 in 10", at = { edges = ["leaf*"], between = ["h1", "h9"] }, report = { thresholds = { hop_latency = "20us" }, rule = "hop_latency > 1 ms", filter = "per_hop", coarsest = { hop_latency = "1ms", sample = "1 in 100" }, then = { watch = ["queue_occupancy"], match = "this queue", for = "10s" } }, budget = "2000 reports/s, 9 events/s", until = "2h", priority = 7 }"#;
    let text = format!("intents = [{table}]");
    let mut reader = settings::read::Reader::new(&text);
    let root = reader.parse(tables::<Vec<IntentSettings>>).unwrap();
    let list = root.get_ref().get("intents").unwrap();
    let settings = Vec::<IntentSettings>::read(list, &mut reader).unwrap();
    let shown = settings[0].show().to_written();
    let read = super::read_one(&settings::json::tree(&shown), 5);
    assert_eq!(read, read_one(table, 5), "{shown}");
    assert_eq!(read, Ok(settings[0].intent()));
    assert_eq!(read.unwrap().name, "storage");
    // Both forms of a protocol number.
    let proto = |written: &str| {
        read_one(
            &format!("{{ name = \"a\", watch = [\"flow_path\"], match = {{ proto = {written} }} }}"),
            5,
        )
    };
    assert_eq!(proto("17"), proto("\"17\""));
    let refused = proto("\"300\"").unwrap_err();
    assert!(
        refused.starts_with("`match.proto`: found the text \"300\"; write "),
        "{refused}"
    );
    let one = read_one("{ name = \"a\", watch = [\"foo\"] }", 5).unwrap_err();
    assert!(
        one.starts_with("`watch`: found the text \"foo\"") && !one.contains("no metrics selected"),
        "{one}"
    );
    assert!(
        read_one("{ name = \"a\" }", 5)
            .unwrap_err()
            .contains("no metrics selected")
    );
}

#[test]
fn a_budget_moves_threshold_and_sample_within_bounds() {
    let intent = |keys: &str| {
        let table = format!(
            "{{ name = \"a\", watch = [\"hop_latency\"], budget = \"10 reports/s\", report = {{ {keys} }} }}"
        );
        read_one(&table, 0)
    };
    let bounds = |keys: &str| {
        let intent = intent(keys).unwrap();
        let Bounds {
            coarsest: Detail { threshold, sample },
            ..
        } = intent.bounds()?;
        let moved = intent.with_detail(Detail { threshold, sample });
        assert_eq!((moved.check(0), moved.sample), (Ok(()), sample));
        assert_eq!(
            moved.reporting.thresholds.values().next().copied().unwrap_or(0),
            threshold
        );
        Some((threshold, sample))
    };
    let filter = "filter = \"per_hop\", thresholds = { hop_latency = \"1us\" }";
    assert_eq!(bounds(filter), Some((64_000, 1)));
    assert_eq!(
        bounds(&format!("{filter}, coarsest = {{ hop_latency = \"5us\" }}")),
        Some((5_000, 1))
    );
    assert_eq!(bounds("coarsest = { sample = \"1 in 64\" }"), Some((0, 64)));
    assert_eq!(
        bounds(&format!("{filter}, coarsest = {{ sample = \"1 in 8\" }}")),
        Some((64_000, 8))
    );
    for (keys, reason) in [
        ("filter = \"change\"", "add a filter per_hop or per_flow"),
        (
            "coarsest = { sample = \"1 in 1\" }",
            "is not below the share that is measured anyway",
        ),
        (
            "filter = \"per_hop\", thresholds = { hop_latency = 0 }",
            "a threshold above 0",
        ),
        (
            &format!("{filter}, coarsest = {{ hop_latency = \"1us\" }}"),
            "is not above its threshold",
        ),
        (
            &format!("{filter}, coarsest = {{ link_utilization = \"1%\" }}"),
            "is not above its threshold",
        ),
    ] {
        let error = intent(keys).unwrap_err();
        assert!(error.contains(reason), "{error}");
    }
    // Of events, the threshold may be the collector's.
    let events = |keys: &str| {
        let table =
            "{ name = \"a\", watch = [\"hop_latency\"], budget = \"10 events/s\", report = { KEYS } }";
        read_one(&table.replace("KEYS", keys), 0).map(|intent| intent.bounds().map(|bounds| bounds.filters))
    };
    assert_eq!(events("thresholds = { hop_latency = \"1us\" }"), Ok(Some(false)));
    assert_eq!(events(filter), Ok(Some(true)));
    assert!(
        events("rule = \"hops > 2\"")
            .unwrap_err()
            .contains("add exactly one threshold above 0")
    );
}
