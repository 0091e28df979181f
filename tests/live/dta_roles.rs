//! DTA's roles end to end, each part with failures of its own: the artifact's packets, IPv6, snapshots by schedule, triggers,
//! immediates; and in network namespaces a translator and two collectors under the load of `hopwise report`, where one collector is killed
//! and restarted.

use std::{
    fs,
    net::{Ipv6Addr, SocketAddr, UdpSocket},
    path::Path,
    process::Stdio,
    sync::Arc,
};

use dta::{Answer, DtaStore, Next, Policy};
use memory::Region;
use nic::netns::Namespace;
use serde_json::{Value, json};
use wire::dta::Operation;

use crate::support::roles::{
    self, FLOW, Program, Reporter, collector, connected, escape, flow, memory as memory_at, path_of,
    translator, translator_at, within,
};
use crate::support::{TempDir, command, hex, hopwise, skipped, text};

/// Offset of the body of a region.
const BODY: u64 = dta::BODY;

fn store(file: &Path) -> DtaStore {
    DtaStore::open(Arc::new(Region::open_read_only(file).unwrap())).unwrap()
}

/// The complete body of a region.
fn body(file: &Path) -> Vec<u8> {
    let store = store(file);
    let mut body = vec![0; store.body_len() as usize];
    store.region().read(BODY, &mut body).unwrap();
    body
}

/// A body of zeros except these bytes at these offsets.
fn zeros_but(len: usize, parts: &[(usize, &str)]) -> Vec<u8> {
    let mut body = vec![0; len];
    for (at, digits) in parts {
        let bytes = hex(digits);
        body[*at..at + bytes.len()].copy_from_slice(&bytes);
    }
    body
}

/// The artifact's stores: its packets have no store ID, so all have ID 0.
const ARTIFACT: &str = r#"
[[collector.memory.stores]]
name = "values"
kind = "key-write"
hash = "artifact"
id = 0
slots = "64K"
data = 4
[[collector.memory.stores]]
name = "entries"
kind = "append"
hash = "artifact"
lists = "0-3"
entry = 4
entries = 16
batch = 4
tagged = false
[[collector.memory.stores]]
name = "counts"
kind = "key-increment"
hash = "artifact"
id = 0
slots = "64K"
[[collector.memory.stores]]
name = "postcards"
kind = "postcarding"
hash = "artifact"
id = 0
slots = "64K"
"#;

/// Batches and paths are never ended by the timer.
const PATIENT: &str = "layout = \"artifact\"\nflush = \"60s\"\npostcard_timeout = \"60s\"";

#[test]
fn reports_of_senders_that_are_not_allowed_are_refused_and_counted() {
    let directory = TempDir::new();
    let at = directory.join("");
    // There is no collector; refused reports wait for nothing.
    let settings = translator(
        &["127.0.0.1:1".parse().unwrap()],
        "allow = [\"10.0.0.0/8\", \"2001:db8::/32\"]",
    );
    let stage = Program::start(&at, "t.toml", &settings);
    let mut reporter = Reporter::new(stage.reports[0]);
    (0..3).for_each(|first| reporter.key_write(&flow(), &path_of(first)));
    let dta = stage.translator("refused", |dta| dta["reports"] == 3);
    assert_eq!(
        (
            &dta["unreadable"],
            &dta["dropped"],
            &dta["queued"],
            &dta["balanced"]
        ),
        (
            &json!({"sender_not_allowed": 3}),
            &json!({}),
            &0.into(),
            &true.into()
        ),
        "{dta:#}"
    );
}

#[test]
fn the_artifacts_packets_make_the_memory_of_section_5_2_byte_for_byte() {
    let directory = TempDir::new();
    let at = directory.join("");
    let settings = memory_at(&at, "memory", "127.0.0.1", "") + ARTIFACT;
    let keeper = Program::start(&at, "c.toml", &settings);
    let stage = Program::start(&at, "t.toml", &translator(&[keeper.memory.unwrap().1], PATIENT));
    stage.translator("connected", |dta| connected(dta, 0));
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let send = |packet: &str| assert!(socket.send_to(&hex(packet), stage.reports[0]).unwrap() > 9);
    // The examples of 5.2, in both forms; more entries to fill a batch, and the other hops of the path: 11, 200, 13, 14, 15.
    send("0100020a 00000100 00029a");
    send("012a4002 0a000001 0000029a");
    for entry in ["deadbeef", "00000001", "00000002", "00000003"] {
        send(&format!("0200 00000003 {entry}"));
    }
    send("0300020a 00000100 00000000 000005");
    for (hop, value) in [(2, 200), (1, 11), (3, 13), (5, 15), (4, 14)] {
        send(&format!("0400 0a000001 {hop:02x} {value:08x}"));
    }
    // DTA v1 is refused here.
    send("14000000 00000007 02030d00 00010000 0000000c 0a000001 0a000002 04d20050 06");
    let dta = stage.translator("all accepted", |dta| {
        dta["reports"] == 13 && dta["collectors"][0]["unacknowledged"] == 0
    });
    assert_eq!(
        (&dta["balanced"], &dta["layout"]),
        (&true.into(), &json!("artifact")),
        "{dta:#}"
    );
    assert_eq!(dta["unreadable"].as_object().unwrap().len(), 1, "{dta:#}");
    // Four writes of values, one of entries, one of a path, two additions.
    keeper.wait("/api/v1/dta", "executed", |view| view["executed"] == 8);
    let file = |name: &str| at.join("memory").join(format!("{name}.region"));
    let value = "67512d79 0000029a";
    assert!(body(&file("values")) == zeros_but(8 << 16, &[(13863 * 8, value), (1713 * 8, value)]));
    let entries = "efbeadde 01000000 02000000 03000000";
    assert!(body(&file("entries")) == zeros_but(4 * 64, &[(3 * 64, entries)]));
    let five = "05";
    assert!(body(&file("counts")) == zeros_but(8 << 16, &[(13863 * 8, five), (1713 * 8, five)]));
    // Each word masked with a CRC of the key; slot 0fee by the CRC-32 of the key, 39fe0fee.
    let path = "ff08a507 ed1fb65a 58b45878 2d2a23d4 e0d4b8d4";
    assert!(body(&file("postcards")) == zeros_but(32 << 16, &[(0x0fee * 32, path)]));
    answers_of_the_artifact(&keeper, &at.join("memory"));
}

/// Queries the same by the commands.
fn answers_of_the_artifact(keeper: &Program, directory: &Path) {
    for source in [["--api", &keeper.url()], ["--directory", text(directory)]] {
        let ask = |args: &[&str]| {
            let run = hopwise(args.iter().chain(&source));
            (run.code, run.stdout + &run.stderr)
        };
        assert_eq!(
            ask(&["get", "values", "10.0.0.1"]),
            (Some(0), "0x0000029a  (2 of 2 copies)\n".to_owned())
        );
        let (code, output) = ask(&["get", "postcards", "10.0.0.1"]);
        assert!(
            code == Some(0)
                && output.starts_with("hop 1: 11, hop 2: 200, hop 3: 13, hop 4: 14, hop 5: 15  (unproven: "),
            "{output}"
        );
        let known = ["get", "postcards", "10.0.0.1", "--largest", "200"];
        assert_eq!(
            ask(&known),
            (
                Some(0),
                "hop 1: 11, hop 2: 200, hop 3: 13, hop 4: 14, hop 5: 15\n".to_owned()
            )
        );
        let (code, output) = ask(&["get", "postcards", "10.0.0.1", "--largest", "199"]);
        assert!(code == Some(1) && output.starts_with("empty"), "{output}");
        assert!(ask(&["count", "counts", "10.0.0.1"]).1.starts_with("5  ("));
        let (code, output) = ask(&["get", "0", "10.0.0.1"]);
        let which = "have the number 0; use the name instead";
        assert!(
            code != Some(0) && output.contains(which) && output.contains("values"),
            "{output}"
        );
    }
}

#[test]
fn everything_goes_by_ipv6_as_well() {
    if let Err(error) = UdpSocket::bind((Ipv6Addr::LOCALHOST, 0)) {
        return skipped(&format!("DTA by IPv6: there is no [::1] here ({error})"));
    }
    let directory = TempDir::new();
    let at = directory.join("");
    let settings = memory_at(&at, "memory", "[::1]", "") + roles::STORES;
    let keeper = Program::start(&at, "c.toml", &settings);
    let (roce, exchange) = keeper.memory.unwrap();
    assert!(roce.is_ipv6() && exchange.is_ipv6());
    let stage = Program::start(&at, "t.toml", &translator_at("[::1]", &[exchange], ""));
    stage.translator("connected", |dta| connected(dta, 0));
    assert!(stage.reports[0].is_ipv6());
    // 2001:db8::1, port 1, to 2001:db8::2, port 2, by UDP: 37 bytes.
    let (six, key) = (
        "[2001:db8::1]:1 > [2001:db8::2]:2 udp",
        hex("20010db8000000000000000000000001 20010db8000000000000000000000002 0001 0002 11"),
    );
    let mut reporter = Reporter::new(stage.reports[0]);
    reporter.send(
        true,
        false,
        Operation::KeyWrite {
            copies: 3,
            store: 1,
            key: &key,
            data: &path_of(41),
        },
    );
    reporter.send(
        false,
        false,
        Operation::KeyWrite {
            copies: 2,
            store: 1,
            key: &flow(),
            data: &path_of(51),
        },
    );
    reporter.send(
        true,
        false,
        Operation::KeyIncrement {
            copies: 2,
            store: 2,
            delta: 9,
            key: &key,
        },
    );
    let run = hopwise([
        "report",
        "--to",
        &stage.reports[0].to_string(),
        "append",
        "--list",
        "10",
        "--entry",
        "000000aa",
        "--entry",
        "000000bb",
    ]);
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    let settled = |dta: &Value| dta["reports"] == 4 && dta["entries"]["buffered"] == 0;
    let dta = stage.translator("all done", |dta| {
        settled(dta) && dta["collectors"][0]["unacknowledged"] == 0
    });
    assert_eq!(
        (&dta["balanced"], &dta["dropped"]),
        (&true.into(), &json!({})),
        "{dta:#}"
    );
    // Five slots, two additions, one batch.
    let view = keeper.wait("/api/v1/dta", "executed", |view| view["executed"] == 8);
    assert_eq!(
        (&view["balanced"], &view["refused"], &view["dropped"]),
        (&true.into(), &json!({}), &json!({}))
    );
    let get = |key: &str| keeper.get(&format!("/api/v1/dta/stores/paths/get?key={}", escape(key)));
    assert_eq!(get(six)["fields"]["value"], json!([41, 42, 43, 44, 45]));
    assert_eq!(
        (&get(six)["copies"], &get(FLOW)["fields"]["value"][0]),
        (&3.into(), &51.into())
    );
    let count = keeper.get(&format!("/api/v1/dta/stores/bytes/count?key={}", escape(six)));
    assert_eq!(count["estimate"], 9);
    let tail = keeper.get("/api/v1/dta/lists/10");
    let data = |index: usize| tail["entries"][index]["data"].clone();
    assert_eq!(
        [data(0), data(1)],
        ["000000aa", "000000bb"].map(Value::from),
        "{tail}"
    );
}

#[test]
fn snapshots_are_taken_by_schedule_and_old_ones_go() {
    let directory = TempDir::new();
    let at = directory.join("");
    let schedule = "snapshots = { every = \"1s\", keep = 2, stores = [\"paths\"] }";
    let keeper = Program::start(&at, "c.toml", &collector(&at, "memory", schedule));
    let stage = Program::start(&at, "t.toml", &translator(&[keeper.memory.unwrap().1], ""));
    stage.translator("connected", |dta| connected(dta, 0));
    let mut reporter = Reporter::new(stage.reports[0]);
    reporter.key_write(&flow(), &path_of(11));
    let path = format!("/api/v1/dta/stores/paths/get?key={}", escape(FLOW));
    keeper.wait(&path, "written", |answer| answer["answer"] == "found");
    let snapshots = |view: &Value| view["snapshots"].as_array().unwrap().clone();
    let newest = |view: &Value| {
        snapshots(view)
            .first()
            .and_then(|one| one["ts"].as_u64())
            .unwrap_or(0)
    };
    let list = "/api/v1/dta/snapshots";
    let before = newest(&keeper.get(list));
    // The next snapshot but one begins after the value was written. It exists for two seconds; if that is too short, retry.
    let kept = std::iter::repeat_with(|| {
        reporter.key_write(&flow(), &path_of(11));
        keeper.wait(&path, "written", |view| view["fields"]["value"][0] == 11);
        let now = newest(&keeper.get(list));
        let next = newest(&keeper.wait(list, "taken", |view| newest(view) > now));
        let kept = newest(&keeper.wait(list, "snapshot taken", |view| newest(view) > next));
        reporter.key_write(&flow(), &path_of(99));
        keeper.wait(&path, "overwritten", |view| view["fields"]["value"][0] == 99);
        let (status, snapshot) = keeper.ask("GET", &format!("{path}&snapshot={kept}"), "");
        (status == 200).then_some((kept, snapshot))
    });
    let (kept, snapshot) = kept.take(10).flatten().next().unwrap();
    assert_eq!(
        snapshot["fields"]["value"],
        json!([11, 12, 13, 14, 15]),
        "{snapshot}"
    );
    // Two snapshots of the store remain; the first is deleted.
    let view = keeper.wait(list, "pruned", |view| {
        let all = snapshots(view);
        newest(view) > kept && all.len() <= 2 && all.iter().all(|one| one["ts"].as_u64() > Some(before))
    });
    assert!(
        snapshots(&view).iter().all(|one| one["store"] == "paths"),
        "{view}"
    );
    let view = keeper.wait("/api/v1/dta", "counted", |view| {
        view["snapshots"]["taken"].as_u64() >= Some(3)
    });
    assert_eq!(view["snapshots"]["failed"], 0, "{view:#}");
}

#[test]
fn counters_begin_again_by_schedule_and_each_period_is_kept() {
    let directory = TempDir::new();
    let at = directory.join("");
    let settings = collector(&at, "memory", "snapshots = { keep = 100 }")
        .replace("name = \"bytes\"\n", "name = \"bytes\"\nclear_every = \"1s\"\n");
    let keeper = Program::start(&at, "c.toml", &settings);
    let stage = Program::start(&at, "t.toml", &translator(&[keeper.memory.unwrap().1], ""));
    stage.translator("connected", |dta| connected(dta, 0));
    let mut reporter = Reporter::new(stage.reports[0]);
    let (key, reports) = (flow(), 50);
    for _ in 0..reports {
        let operation = Operation::KeyIncrement {
            copies: 2,
            store: 2,
            delta: 7,
            key: &key,
        };
        reporter.send(false, false, operation);
    }
    keeper.wait("/api/v1/dta", "all added", |view| {
        view["fetch_adds"] == 2 * reports
    });
    let path = format!("/api/v1/dta/stores/bytes/count?copies=2&key={}", escape(FLOW));
    keeper.wait(&path, "cleared", |answer| {
        answer["estimate"] == 0 && answer["total"] == 0
    });
    // All periods together contain every count.
    let view = keeper.get("/api/v1/dta/snapshots");
    let kept = view["snapshots"].as_array().unwrap().iter().map(|one| {
        let answer = keeper.get(&format!("{path}&snapshot={}", one["ts"]));
        answer["estimate"].as_u64().unwrap()
    });
    assert_eq!(kept.sum::<u64>(), 7 * reports);
    keeper.wait("/api/v1/dta", "counted", |view| {
        view["snapshots"]["cleared"].as_u64() >= Some(1)
    });
}

#[test]
fn triggers_append_what_meets_a_condition_and_an_immediate_is_no_event() {
    let directory = TempDir::new();
    let at = directory.join("");
    let keeper = Program::start(&at, "c.toml", &collector(&at, "memory", ""));
    let trigger = "[[translator.triggers]]\noperation = \"key-write\"\nof = 1\nwhen = \"data[0:4] >= 1000\"\n\
                   list = 10\nentry = \"data[0:4]\"\nimmediate = true\n";
    let stage = Program::start(&at, "t.toml", &translator(&[keeper.memory.unwrap().1], trigger));
    stage.translator("connected", |dta| connected(dta, 0));
    let mut reporter = Reporter::new(stage.reports[0]);
    for first in [10_u32, 1000, 999, 5000, 1] {
        reporter.key_write(&first.to_be_bytes(), &path_of(first));
    }
    stage.translator("all done", |dta| {
        dta["completed"]["key_write"] == 5 && dta["entries"]["buffered"] == 0
    });
    let tail = keeper.wait("/api/v1/dta/lists/10", "two entries", |view| {
        view["entries"].as_array().unwrap().len() >= 2
    });
    let entries: Vec<_> = tail["entries"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one["data"].clone())
        .collect();
    assert_eq!(
        entries,
        ["000003e8", "00001388"].map(Value::from),
        "entries that met the condition, once, in order"
    );
    // An immediate of a store, and one of a followed list, whose entry is an event.
    reporter.send(
        false,
        true,
        Operation::KeyWrite {
            copies: 2,
            store: 1,
            key: &[7; 4],
            data: &path_of(7),
        },
    );
    let entry = hex("0a0000010a00000204d2005006 00000065 07");
    reporter.send(
        false,
        true,
        Operation::Append {
            list: 2,
            entry_len: 18,
            entries: &entry,
        },
    );
    let view = keeper.wait("/api/v1/dta", "four immediates and an entry", |view| {
        view["events"]["immediates"] == 4 && view["events"]["entries"] == 1
    });
    let shed = [
        &view["events"]["immediates_dropped"],
        &view["events"]["overwritten"],
        &view["events"]["missing"],
    ];
    assert_eq!(shed, [&json!(0); 3], "{view:#}");
    // The entry's event comes after those of all immediates: there is nothing but the entry's event.
    let kinds = |keeper: &Program| -> Vec<Value> {
        let events = keeper.get("/api/v1/events?limit=1000")["events"]
            .as_array()
            .unwrap()
            .clone();
        events.iter().map(|event| event["kind"].clone()).collect()
    };
    keeper.wait("/api/v1/dta", "the entry's event", |_| !kinds(&keeper).is_empty());
    assert_eq!(kinds(&keeper), [Value::from("drop")], "an immediate is no event");
}

#[test]
fn the_sketches_of_two_sections_are_merged_into_one() {
    let directory = TempDir::new();
    let at = directory.join("");
    let both = collector(&at, "whole", "").replace("reporters = 1", "reporters = 2");
    let whole = Program::start(&at, "whole.toml", &both);
    // A slow machine takes seconds to start the second section.
    let patient = "sketch_timeout = \"5m\"";
    let top = Program::start(&at, "top.toml", &translator(&[whole.memory.unwrap().1], patient));
    top.translator("connected", |dta| connected(dta, 0));
    let estimate =
        |keeper: &Program| keeper.get("/api/v1/dta/stores/heavy/sketch?key=10.0.0.1")["estimate"].clone();
    let mut sections = Vec::new();
    for number in 1..=2_u32 {
        let name = format!("section{number}");
        let keeper = Program::start(&at, &format!("{name}.toml"), &collector(&at, &name, ""));
        let upstream = format!(
            "[translator.upstream]\nto = \"{}\"\nreporter = {number}\nlongest = 100\ncontrol = \"127.0.0.1:0\"\n",
            top.reports[0]
        );
        let settings = translator(&[keeper.memory.unwrap().1], &upstream);
        let stage = Program::start(&at, &format!("stage{number}.toml"), &settings);
        stage.translator("connected", |dta| connected(dta, 0));
        let counters: Vec<u8> = (1..=16_u32)
            .flat_map(|value| (value * number).to_be_bytes())
            .collect();
        let operation = Operation::SketchMerge {
            sketch: 4,
            epoch: 9,
            first_column: 0,
            depth: 2,
            width: 4,
            op: wire::dta::MergeOp::Sum,
            columns: 8,
            counters: &counters,
        };
        Reporter::new(stage.reports[0]).send(false, false, operation);
        let dta = stage.translator("sent on", |dta| dta["upstream"]["epochs"] == 1);
        assert_eq!(
            (&dta["upstream"]["columns"], &dta["upstream"]["suppressed"]),
            (&8.into(), &0.into()),
            "{dta:#}"
        );
        let (_, metrics) = stage.ask("GET", "/metrics", "");
        for (name, value) in [("epochs", 1), ("columns", 8), ("suppressed", 0), ("unsent", 0)] {
            let labels = format!("reporter=\"{number}\",to=\"{}\"", top.reports[0]);
            let sample = format!("\nhopwise_dta_upstream_{name}_total{{{labels}}} {value}\n");
            assert!(metrics.as_str().unwrap().contains(&sample), "{sample}");
        }
        sections.push((keeper, stage));
    }
    top.translator("merged", |dta| {
        dta["completed"]["sketch_merge"] == 2 && dta["collectors"][0]["unacknowledged"] == 0
    });
    let one = estimate(&sections[0].0).as_f64().unwrap();
    let answer = whole.get("/api/v1/dta/stores/heavy/sketch?key=10.0.0.1");
    assert_eq!(
        (answer["estimate"].as_f64(), &answer["epoch"]["reporters"]),
        (Some(3.0 * one), &2.into()),
        "{answer}"
    );
}

#[test]
#[expect(clippy::too_many_lines, reason = "one scenario, from start to end")]
fn a_growth_made_once_reaches_those_who_report_and_those_who_ask() {
    let directory = TempDir::new();
    let at = directory.join("");
    let keepers = [0, 1].map(|number| {
        Program::start(
            &at,
            &format!("c{number}.toml"),
            &collector(&at, &format!("m{number}"), ""),
        )
    });
    let exchanges = [0, 1].map(|number: usize| keepers[number].memory.unwrap().1);
    let stage = Program::start(&at, "t.toml", &translator(&exchanges, ""));
    stage.translator("connected", |dta| connected(dta, 0) && connected(dta, 1));
    let one = |number: usize| format!("c{number}={},{}", keepers[number].url(), stage.reports[number]);
    let (old, new) = (at.join("old.json"), at.join("new.json"));
    fs::write(&old, hopwise(["map", "new", &one(0)]).stdout).unwrap();
    let report = |map: &Path, key: u32, first: u32| {
        let data: String = path_of(first).iter().map(|byte| format!("{byte:02x}")).collect();
        let (map, key) = (text(map), key.to_string());
        let run = hopwise([
            "report",
            "--map",
            map,
            "key-write",
            "--store",
            "1",
            "--key",
            &key,
            "--data",
            &data,
        ]);
        assert_eq!(run.code, Some(0), "{}", run.stderr);
    };
    (0..16).for_each(|key| report(&old, key, key));
    let grown = hopwise(["map", "grow", text(&old), &one(1)]);
    assert!(
        grown
            .stderr
            .contains("128 of 256 parts of the keys (50.0 %) move to `c1`"),
        "{}",
        grown.stderr
    );
    fs::write(&new, grown.stdout).unwrap();
    // Reports the second half of the keys, and every second key of the first half again.
    (16..32).for_each(|key| report(&new, key, key));
    (0..16).step_by(2).for_each(|key| report(&new, key, key + 100));
    let written = |dta: &Value| dta["completed"]["key_write"] == 40;
    let dta = stage.translator("done", written);
    let frames = |number: usize| dta["collectors"][number]["unreliable"].as_u64();
    for (number, keeper) in keepers.iter().enumerate() {
        keeper.wait("/api/v1/dta", "written", |view| {
            view["executed"].as_u64() == frames(number)
        });
    }
    // Calculated by hand from wire-formats 5.6: the second of two collectors has the keys whose CRC-32K begins with a 0 bit.
    let moved = |key: u32| wire::dta::hash::hashes(&key.to_be_bytes()).slots[2] >> 31 == 0;
    assert!((0..16).any(|key| key % 2 == 1 && moved(key)) && (0..16).any(|key| !moved(key)));
    for key in 0..32_u32 {
        let run = hopwise(["get", "paths", &key.to_string(), "--json", "--map", text(&new)]);
        let answer = &run.json()[0];
        let again = key < 16 && key % 2 == 0;
        let there = moved(key) && (key >= 16 || again);
        assert_eq!(
            answer["collector"],
            if there { "c1" } else { "c0" },
            "{key}: {answer}"
        );
        assert_eq!(
            answer["fields"]["value"][0],
            if again { key + 100 } else { key },
            "{key}: {answer}"
        );
    }
    the_stores_of_all(&new);
    // The new collector has no keys that did not move.
    let reader = store(&at.join("m1/paths.region")).key_write().unwrap();
    let there = |key: u32| {
        reader
            .get(&key.to_be_bytes(), Policy::First, 4, &mut [0; 20])
            .unwrap()
    };
    assert!(
        (0..32)
            .filter(|key| !moved(*key))
            .all(|key| there(key) == Answer::Empty)
    );
    let both = format!(
        "report --map {} --to 127.0.0.1:1 append --list 1 --entry 00",
        text(&new)
    );
    let refused = hopwise(both.split(' '));
    assert_eq!(refused.code, Some(2), "either a map or addresses");
    let silent = hopwise(["map", "new", "a=http://127.0.0.1:1"]);
    fs::write(&old, silent.stdout).unwrap();
    let refused = hopwise([
        "report",
        "--map",
        text(&old),
        "append",
        "--list",
        "1",
        "--entry",
        "00",
    ]);
    assert!(
        refused.code == Some(2) && refused.stderr.contains("no report address of `a`"),
        "{}",
        refused.stderr
    );
}

/// Two collectors, as a map names them.
fn the_stores_of_all(map: &Path) {
    let stores = &hopwise(["stores", "--json", "--map", text(map)]).json()[0]["stores"];
    let paths = stores
        .as_array()
        .unwrap()
        .iter()
        .filter(|store| store["name"] == "paths");
    assert_eq!(
        paths.map(|store| store["collector"].clone()).collect::<Vec<_>>(),
        ["c0", "c1"]
    );
    let table = hopwise(["stores", "--map", text(map)]).stdout;
    assert!(
        table.starts_with("collector  store")
            && table
                .lines()
                .any(|line| line.starts_with("c1 ") && line.contains(" losses ")),
        "{table}"
    );
    let table = hopwise(["stores", "--take-snapshot", "paths", "--map", text(map)]).stdout;
    assert_eq!(
        table
            .lines()
            .map(|line| line.split(' ').next().unwrap())
            .collect::<Vec<_>>(),
        ["collector", "c0", "c1"]
    );
    // An unavailable collector does not hide the others.
    let known: Value = serde_json::from_str(&fs::read_to_string(map).unwrap()).unwrap();
    let c1 = format!("c1={}", known["collectors"][1]["api"].as_str().unwrap());
    let away = map.with_file_name("away.json");
    fs::write(
        &away,
        hopwise(["map", "new", "away=http://127.0.0.1:1", &c1]).stdout,
    )
    .unwrap();
    let run = hopwise(["stores", "--map", text(&away)]);
    assert_eq!(run.code, Some(1));
    assert!(
        run.stderr.contains("hopwise: away: ") && run.stdout.contains("\nc1 "),
        "{} {}",
        run.stderr,
        run.stdout
    );
}

#[test]
fn unacknowledged_operations_are_reported_at_exit() {
    let directory = TempDir::new();
    let at = directory.join("");
    let mut keeper = Program::start(&at, "c.toml", &collector(&at, "memory", ""));
    let mut stage = Program::start(&at, "t.toml", &translator(&[keeper.memory.unwrap().1], ""));
    stage.translator("connected", |dta| connected(dta, 0));
    keeper.kill();
    stage.translator("lost", |dta| !connected(dta, 0));
    let mut reporter = Reporter::new(stage.reports[0]);
    for key in 0..3_u32 {
        let (key, data) = (key.to_be_bytes(), path_of(key));
        reporter.send(
            true,
            false,
            Operation::KeyWrite {
                copies: 2,
                store: 1,
                key: &key,
                data: &data,
            },
        );
    }
    // Two copies of each.
    stage.translator("unacknowledged", |dta| {
        dta["collectors"][0]["unacknowledged"] == 6
    });
    let said = stage.stop();
    assert!(
        said.iter()
            .any(|line| line.contains("and 6 operations that were not acknowledged")),
        "{said:#?}"
    );
}

/// A reporter, a translator and two collectors, each in a namespace of its own; the translator has a link to each.
struct Network {
    reporter: Namespace,
    translator: Namespace,
    collectors: [Namespace; 2],
}

impl Network {
    fn new() -> Result<Self, nic::Error> {
        let network = Self {
            reporter: Namespace::create()?,
            translator: Namespace::create()?,
            collectors: [Namespace::create()?, Namespace::create()?],
        };
        let others = [&network.reporter, &network.collectors[0], &network.collectors[1]];
        for (number, other) in (1..).zip(others) {
            let (here, there) = (format!("10.98.{number}.1/24"), format!("10.98.{number}.2/24"));
            let device = format!("to{number}");
            let peer = ["peer", "name", "eth0", "netns", other.name()];
            network
                .translator
                .ip(&[&["link", "add", &device, "type", "veth"], &peer[..]].concat())?;
            for (side, address, device) in [
                (&network.translator, here, device.as_str()),
                (other, there, "eth0"),
            ] {
                side.ip(&["address", "add", &address, "dev", device])?;
                side.ip(&["link", "set", device, "up"])?;
            }
        }
        Ok(network)
    }

    /// Starts or restarts a collector, with the same memory and the same addresses.
    fn collector(&self, number: usize, at: &Path) -> Program {
        let address = format!("10.98.{}.2", number + 2);
        let settings = memory_at(at, &format!("m{number}"), &address, "")
            .replace(
                &format!("listen = \"{address}:0\""),
                &format!("listen = \"{address}:4791\""),
            )
            .replace(
                &format!("exchange = \"{address}:0\""),
                &format!("exchange = \"{address}:18515\""),
            );
        let stores = "[[collector.memory.stores]]\nname = \"values\"\nkind = \"key-write\"\nid = 1\nslots = \"1M\"\ndata = 4\n\
                      [[collector.memory.stores]]\nname = \"entries\"\nkind = \"append\"\nlists = \"10-11\"\nentry = 4\nentries = 65536\n";
        let name = format!("c{number}.toml");
        Program::start_in(
            Some(self.collectors[number].name()),
            at,
            &name,
            &(settings + stores),
        )
    }

    fn translator(&self, at: &Path) -> Program {
        let exchanges: [SocketAddr; 2] = ["10.98.2.2:18515", "10.98.3.2:18515"].map(|to| to.parse().unwrap());
        let settings = translator_at("10.98.1.1", &exchanges, "").replace("control_port = 0\n", "");
        Program::start_in(Some(self.translator.name()), at, "t.toml", &settings)
    }

    /// Starts `hopwise report … load …`.
    fn load(&self, stage: &Program, how: &[&str], load: &[&str]) -> std::process::Child {
        let to: Vec<String> = stage.reports.iter().map(SocketAddr::to_string).collect();
        let ends = ["report", "--json", "--to", &to[0], "--to", &to[1]];
        let args = [&ends[..], how, &["load"], load].concat();
        within(Some(self.reporter.name()), &command(args))
            .stdout(Stdio::piped())
            .spawn()
            .unwrap()
    }
}

/// The summary of a load.
fn ended(load: std::process::Child) -> Value {
    let output = load.wait_with_output().unwrap();
    serde_json::from_slice(&output.stdout).unwrap()
}

fn sum(dta: &Value, what: &str) -> u64 {
    dta[what]
        .as_object()
        .unwrap()
        .values()
        .map(|count| count.as_u64().unwrap())
        .sum()
}

/// The key of a load with this number: a 5-tuple of UDP (`hopwise report load --seed`).
fn load_key(number: u64, seed: u64) -> [u8; 13] {
    let mix = |value: u64| {
        let value = (value ^ value >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let value = (value ^ value >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        value ^ value >> 31
    };
    let first = mix(number.wrapping_add(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15)));
    let mut key = [17; 13];
    key[..8].copy_from_slice(&first.to_be_bytes());
    key[8..12].copy_from_slice(&mix(first).to_be_bytes()[..4]);
    key
}

/// Reports of each part of the load.
const PART: u64 = 1500;

#[test]
fn in_namespaces_a_collector_dies_under_load_and_what_was_lost_is_known() {
    let network = match Network::new() {
        Ok(network) => network,
        Err(error) => return skipped(&format!("DTA in namespaces: this needs root ({error})")),
    };
    let directory = TempDir::new();
    let at = directory.join("");
    let keepers = [0, 1].map(|number| network.collector(number, &at));
    let stage = network.translator(&at);
    stage.translator("connected", |dta| connected(dta, 0) && connected(dta, 1));
    let [first, mut second] = keepers;

    let (after, suppressed) = values(&network, &stage, &first, &mut second, &at);
    let lost = |number: usize| after["collectors"][number]["kernel_drops"].as_u64().unwrap();
    // The reporters' table maps keys to collectors. Each missing value is counted by a reason.
    let spread = dataplane::dta::Spread::even(2);
    let dropped = sum(&after, "dropped");
    for (number, dropped) in [(0, 0), (1, dropped + suppressed)] {
        let reader = store(&at.join(format!("m{number}/values.region")))
            .key_write()
            .unwrap();
        let keys = (1..=3).flat_map(|seed| (0..PART).map(move |of| (of, load_key(of, seed))));
        let own: Vec<_> = keys
            .filter(|(_, key)| usize::from(spread.of_key(key)) == number)
            .collect();
        let found = own.iter().filter(|(of, key)| {
            let mut value = [0; 4];
            let answer = reader.get(key, Policy::Majority, 2, &mut value).unwrap();
            let found = matches!(answer, Answer::Found { .. });
            assert!(
                !found || value == (*of as u32).to_be_bytes(),
                "another key's value"
            );
            found
        });
        let (found, own) = (found.count() as u64, own.len() as u64);
        assert!(own > 3 * PART / 2 - 200, "about half of all keys");
        assert_eq!(
            found + dropped + lost(number),
            own,
            "collector {number}: {after:#}"
        );
    }

    essential_entries(&network, &stage, &mut second, &at);
}

/// Values before, during and after the absence of the second collector; returns the translator's counters at the end, and the number of
/// reports that the reporter suppressed because the translator requested it.
fn values(
    network: &Network,
    stage: &Program,
    first: &Program,
    second: &mut Program,
    at: &Path,
) -> (Value, u64) {
    let (mut sent, suppressed) = (0, std::cell::Cell::new(0));
    let mut load = |seed: &str| {
        let count = PART.to_string();
        let args = [
            "key-write",
            "--store",
            "1",
            "--data",
            "4",
            "--rate",
            "3000",
            "--count",
            &count,
        ];
        let keys = ["--keys", "1000000", "--seed", seed];
        let summary = ended(network.load(stage, &[], &[&args[..], &keys].concat()));
        let suppressed_now = summary["suppressed"].as_u64().unwrap();
        assert_eq!(
            (&summary["reports"], &summary["unsent"]),
            (&(PART - suppressed_now).into(), &0.into()),
            "{summary}"
        );
        suppressed.set(suppressed.get() + suppressed_now);
        sent += PART - suppressed_now;
        stage.translator("all accepted", |dta| {
            let drops: u64 = (0..2)
                .map(|one| dta["collectors"][one]["kernel_drops"].as_u64().unwrap())
                .sum();
            dta["reports"].as_u64().unwrap() + drops == sent && dta["queued"] == 0
        })
    };
    let before = load("1");
    let frames = |dta: &Value, number: usize| dta["collectors"][number]["unreliable"].as_u64().unwrap();
    let executed = |view: &Value| {
        ["executed", "missing"]
            .map(|of| view[of].as_u64().unwrap())
            .iter()
            .sum::<u64>()
    };
    for (number, keeper) in [(0, first), (1, &*second)] {
        keeper.wait("/api/v1/dta", "written", |view| {
            executed(view) == frames(&before, number)
        });
    }
    second.kill();
    stage.translator("noticed", |dta| !connected(dta, 1));
    let away = load("2");
    assert!(
        sum(&away, "dropped") + suppressed.get() > PART / 2 - 200 && away["balanced"] == true,
        "{away:#}"
    );
    *second = network.collector(1, at);
    stage.translator("connected again", |dta| connected(dta, 1));
    let after = load("3");
    assert_eq!(
        (&after["balanced"], sum(&after, "dropped")),
        (&true.into(), sum(&away, "dropped")),
        "{after:#}"
    );
    // Each collector executed the operations sent to it, or counted them as missing.
    first.wait("/api/v1/dta", "written", |view| {
        executed(view) == frames(&after, 0)
    });
    let since = frames(&after, 1) - frames(&before, 1);
    second.wait("/api/v1/dta", "written", |view| executed(view) == since);
    (after, suppressed.get())
}

/// Entries that must arrive, to a list of each collector; the second is restarted meanwhile: all entries arrive, once and in order.
fn essential_entries(network: &Network, stage: &Program, second: &mut Program, at: &Path) {
    let count = (2 * PART).to_string();
    let args = [
        "append", "--list", "10", "--lists", "2", "--data", "4", "--rate", "2000", "--count", &count,
    ];
    let how = ["--essential", "--priority", "high", "--wait", "2000"];
    let load = network.load(stage, &how, &args);
    stage.translator("begun", |dta| {
        dta["completed"]["append"].as_u64() > Some(PART / 2)
    });
    second.kill();
    stage.translator("noticed", |dta| !connected(dta, 1));
    *second = network.collector(1, at);
    let summary = ended(load);
    let dta = stage.translator("settled", |dta| {
        let held = |one: usize| dta["collectors"][one]["unacknowledged"] == 0;
        let all = dta["completed"]["append"] == 2 * PART;
        connected(dta, 1)
            && dta["queued"] == 0
            && dta["entries"]["buffered"] == 0
            && held(0)
            && held(1)
            && all
    });
    assert_eq!(dta["balanced"], true, "{dta:#}");
    let lost = [
        &summary["unsent"],
        &summary["suppressed"],
        &summary["unavailable"],
        &dta["entries"]["dropped"],
    ];
    assert_eq!(
        (&summary["reports"], lost),
        (&(2 * PART).into(), [&json!(0); 4]),
        "{summary} {dta:#}"
    );
    for (number, list) in [(0, 10), (1, 11)] {
        let lists = store(&at.join(format!("m{number}/entries.region")))
            .lists()
            .unwrap();
        let (mut follower, mut found) = (lists.from_sequence(list, 1).unwrap(), Vec::new());
        while let Next::Batch { entries, .. } = follower.next() {
            found.extend(
                entries
                    .chunks(4)
                    .map(|entry| u32::from_be_bytes(entry.try_into().unwrap())),
            );
        }
        let expected: Vec<u32> = (number..2 * PART as u32).step_by(2).collect();
        assert_eq!(found, expected, "list {list}: {dta:#}");
    }
}
