//! DTA in the real program: reports by UDP into a translator, RoCEv2 over loopback sockets into collectors' memory, queries by the
//! API and the commands, live, from the regions' files and from snapshots; and collectors that are killed and restarted.

use std::{fs, os::unix::fs::PermissionsExt, path::Path, thread, time::Duration};

use serde_json::{Value, json};
use wire::dta::{MergeOp, Operation};

use crate::support::roles::{
    FLOW, Program, Reporter, collector, connected, escape, flow, path_of, translator,
};
use crate::support::{TempDir, hex, hopwise, schema, text};

#[test]
fn every_primitive_arrives_and_is_asked_by_api_command_file_and_snapshot() {
    let directory = TempDir::new();
    let at = directory.join("");
    let mut keeper = Program::start(
        &at,
        "c.toml",
        &collector(&at, "memory", "snapshots = { keep = 2 }"),
    );
    let (_, exchange) = keeper.memory.unwrap();
    // The postcards of a path may arrive slowly.
    let patient = translator(&[exchange], "postcard_timeout = \"60s\"");
    let mut stage = Program::start(&at, "t.toml", &patient);
    stage.translator("connected", |dta| connected(dta, 0));
    let mut reporter = Reporter::new(stage.reports[0]);

    report_all(&mut reporter);

    let dta = stage.translator("all done", |dta| {
        let done = dta["completed"]
            .as_object()
            .unwrap()
            .values()
            .map(|n| n.as_u64().unwrap())
            .sum::<u64>();
        done == 10 && dta["entries"]["buffered"] == 0 && dta["collectors"][0]["unacknowledged"] == 0
    });
    assert_eq!(
        (&dta["reports"], &dta["balanced"]),
        (&10.into(), &true.into()),
        "{dta:#}"
    );

    answers(&keeper);
    as_documented(&keeper, &stage);
    let region = at.join("memory");
    commands(&["--api", &keeper.url()]);
    commands(&["--directory", text(&region)]);
    // The event, in the store, with all of its fields.
    let events = keeper.wait("/api/v1/events?kind=drop", "reported", |view| {
        view["events"][0].is_object()
    });
    let event = &events["events"][0];
    assert_eq!(
        (&event["node"], &event["reason"]),
        (&101.into(), &7.into()),
        "{events:#}"
    );
    assert_eq!(event["text"], "10.0.0.1:1234>10.0.0.2:80/6");
    // A snapshot answers as the live store did, even after the live store changed.
    let (status, taken) = keeper.ask("POST", "/api/v1/dta/snapshots", r#"{"stores": ["paths"]}"#);
    assert_eq!(
        (status, &taken["snapshots"][0]["store"]),
        (200, &json!("paths")),
        "{taken}"
    );
    let (file, ts) = (
        taken["snapshots"][0]["file"].as_str().unwrap(),
        &taken["snapshots"][0]["ts"],
    );
    reporter.key_write(&flow(), &path_of(99));
    let path = format!("/api/v1/dta/stores/paths/get?key={}", escape(FLOW));
    keeper.wait(&path, "overwritten", |view| {
        view["fields"]["value"] == json!([99, 100, 101, 102, 103])
    });
    assert_eq!(
        keeper.get(&format!("{path}&snapshot={ts}"))["fields"]["value"],
        json!([11, 12, 13, 14, 15])
    );
    let run = hopwise(["get", "paths", FLOW, "--snapshot", file]);
    assert_eq!(
        (run.code, run.stdout.as_str()),
        (Some(0), "[11,12,13,14,15]  (2 of 2 copies)\n"),
        "{}",
        run.stderr
    );
    // The counters of the memory add up, and nothing was refused.
    let view = keeper.get("/api/v1/dta");
    assert_eq!(
        (&view["balanced"], &view["missing"]),
        (&true.into(), &0.into()),
        "{view:#}"
    );
    assert_eq!(
        (&view["refused"], &view["dropped"]),
        (&json!({}), &json!({})),
        "{view:#}"
    );
    for line in [
        "hopwise_memory_fetch_adds_total 6",
        "hopwise_memory_entries_reported_total 1",
        "hopwise_memory_links 1",
    ] {
        metric(&keeper, line);
    }
    for line in [
        "hopwise_dta_reports_total 11",
        "hopwise_dta_completed_total{primitive=\"append\"} 2",
    ] {
        metric(&stage, line);
    }
    stage.stop();
    keeper.stop();
}

/// Waits for a line of the metrics: counters are published with a delay.
fn metric(program: &Program, line: &str) {
    program.wait("/metrics", line, |text| {
        text.as_str()
            .is_some_and(|text| text.lines().any(|one| one == line))
    });
}

/// One report or more of every primitive, ten in all.
fn report_all(reporter: &mut Reporter) {
    reporter.key_write(&flow(), &path_of(11));
    let entry = hex("0a0000010a00000204d2005006 00000065 07");
    reporter.send(
        true,
        true,
        Operation::Append {
            list: 2,
            entry_len: 18,
            entries: &entry,
        },
    );
    let plain: Vec<u8> = (0..40_u32).flat_map(u32::to_be_bytes).collect();
    reporter.send(
        true,
        false,
        Operation::Append {
            list: 10,
            entry_len: 4,
            entries: &plain,
        },
    );
    for _ in 0..3 {
        let key = [10, 0, 0, 1];
        reporter.send(
            true,
            false,
            Operation::KeyIncrement {
                copies: 2,
                store: 2,
                delta: 500,
                key: &key,
            },
        );
    }
    for (hop, value) in [(1, 21), (3, 23), (2, 22)] {
        reporter.send(
            false,
            false,
            Operation::Postcard {
                hop,
                path_len: 3,
                store: 3,
                value,
                key: &flow(),
            },
        );
    }
    let counters: Vec<u8> = (1..=16_u32).flat_map(u32::to_be_bytes).collect();
    let columns = Operation::SketchMerge {
        sketch: 4,
        epoch: 9,
        first_column: 0,
        depth: 2,
        width: 4,
        op: MergeOp::Sum,
        columns: 8,
        counters: &counters,
    };
    reporter.send(true, false, columns);
}

/// Queries by the API.
fn answers(keeper: &Program) {
    let key = escape(FLOW);
    let path = keeper.get(&format!("/api/v1/dta/stores/paths/get?key={key}"));
    assert_eq!(path["fields"]["value"], json!([11, 12, 13, 14, 15]), "{path}");
    assert_eq!((&path["answer"], &path["agreeing"]), (&json!("found"), &2.into()));
    assert_eq!(
        keeper.get("/api/v1/dta/stores/1/get?key=10.9.9.9")["answer"],
        "empty"
    );
    let postcards = keeper.get(&format!("/api/v1/dta/stores/postcards/get?key={key}"));
    assert_eq!(
        (&postcards["path"], &postcards["missing"]),
        (&json!([21, 22, 23]), &0.into())
    );
    let count = keeper.get("/api/v1/dta/stores/bytes/count?key=10.0.0.1");
    assert_eq!(
        (&count["estimate"], &count["total"]),
        (&1500.into(), &3000.into())
    );
    let sketch = keeper.get("/api/v1/dta/stores/heavy/sketch?key=10.0.0.1");
    assert_eq!(
        (&sketch["epoch"]["epoch"], &sketch["epoch"]["columns"]),
        (&9.into(), &8.into()),
        "{sketch}"
    );
    assert!(sketch["estimate"].as_f64().unwrap() >= 1.0);
    let tail = keeper.get("/api/v1/dta/lists/2");
    assert_eq!(tail["entries"][0]["fields"]["dst"], "10.0.0.2", "{tail}");
    let tail = keeper.get("/api/v1/dta/lists/10?limit=40");
    let values: Vec<_> = tail["entries"]
        .as_array()
        .unwrap()
        .iter()
        .map(|entry| entry["data"].clone())
        .collect();
    let expected: Vec<Value> = (0..40).map(|number| format!("{number:08x}").into()).collect();
    assert_eq!(values, expected);
    let lists = keeper.get("/api/v1/dta/lists");
    assert_eq!(lists["lists"].as_array().unwrap().len(), 5);
    let stores = keeper.get("/api/v1/dta/stores");
    assert_eq!(stores["stores"].as_array().unwrap().len(), 6);
    assert_eq!(stores["stores"][0]["expected"].as_array().unwrap().len(), 4);
    for (path, message) in [
        (
            "/api/v1/dta/stores/nope/get?key=1",
            "there is no store `nope`; there are paths, losses",
        ),
        ("/api/v1/dta/stores/paths/get", "the key is missing"),
        ("/api/v1/dta/stores/paths/get?key=x", "invalid key"),
        (
            "/api/v1/dta/stores/paths/count?key=1",
            "use hopwise get STORE KEY",
        ),
        (
            "/api/v1/dta/lists/77",
            "there is no list 77; there are 0 to 3 in losses, 10 to 10 in plain",
        ),
        ("/api/v1/dta/calculate?keys=0", "there must be a key"),
    ] {
        let (status, body) = keeper.ask("GET", path, "");
        assert!(
            (400..=404).contains(&status) && body["error"].as_str().unwrap().contains(message),
            "{path}: {body}"
        );
    }
}

/// Every answer conforms to the OpenAPI document.
fn as_documented(keeper: &Program, stage: &Program) {
    let document = keeper.get("/api/v1/openapi.json");
    let check = |path: &str, answer: &Value| {
        let schema =
            &document["paths"][path]["get"]["responses"]["200"]["content"]["application/json"]["schema"];
        assert!(schema.is_object(), "{path} is in the document");
        schema::check(&document, schema, answer, path);
    };
    for (path, query) in [
        ("/api/v1/dta", ""),
        ("/api/v1/dta/stores", ""),
        ("/api/v1/dta/lists", ""),
        ("/api/v1/dta/snapshots", ""),
        ("/api/v1/dta/calculate", "?keys=1M"),
    ] {
        check(path, &keeper.get(&format!("{path}{query}")));
    }
    for (store, what) in [
        ("paths", "get"),
        ("postcards", "get"),
        ("bytes", "count"),
        ("heavy", "sketch"),
    ] {
        let answer = keeper.get(&format!("/api/v1/dta/stores/{store}/{what}?key=10.0.0.1"));
        check(&format!("/api/v1/dta/stores/{{name}}/{what}"), &answer);
        check(
            "/api/v1/dta/stores/{name}",
            &keeper.get(&format!("/api/v1/dta/stores/{store}")),
        );
    }
    check("/api/v1/dta/lists/{list}", &keeper.get("/api/v1/dta/lists/2"));
    check("/api/v1/translator", &stage.get("/api/v1/translator"));
}

/// The same queries by the commands.
fn commands(from: &[&str]) {
    let ask = |args: &[&str]| {
        let run = hopwise(args.iter().chain(from));
        assert_eq!(run.code, Some(0), "{args:?}: {}", run.stderr);
        run.stdout
    };
    assert_eq!(
        ask(&["get", "paths", FLOW]),
        "[11,12,13,14,15]  (2 of 2 copies)\n"
    );
    assert_eq!(
        ask(&["get", "postcards", FLOW]),
        "hop 1: 21, hop 2: 22, hop 3: 23\n"
    );
    assert!(ask(&["count", "bytes", "10.0.0.1"]).starts_with("1,500  (true count: "));
    assert!(
        ask(&["sketch", "heavy", "10.0.0.1"]).starts_with("epoch 9, 8 columns of 1 reporter(s)\ncounted: ")
    );
    let tail = ask(&["tail", "2"]);
    assert!(
        tail.contains("src=10.0.0.1") && tail.contains("node=101"),
        "{tail}"
    );
    assert_eq!(ask(&["tail", "10", "--limit", "3", "--json"]).lines().count(), 3);
    for (list, batch, message) in [
        ("10", "99999", "list 10 has no batch 99999: its newest is "),
        ("3", "1", "list 3 is empty; --follow waits for entries"),
    ] {
        let run = hopwise(["tail", list, "--from", batch].iter().chain(from));
        assert!(
            run.code == Some(1) && run.stderr.contains(message),
            "{:?} {}",
            run.code,
            run.stderr
        );
    }
    let stores = ask(&["stores"]);
    assert!(
        stores.contains("key-write") && stores.contains("lists 0 to 3"),
        "{stores}"
    );
    let run = hopwise(["get", "paths", "10.9.9.9"].iter().chain(from));
    assert_eq!(
        (run.code, run.stdout.as_str()),
        (Some(1), "empty: never reported, or overwritten since\n")
    );
    let run = hopwise(["get", "paths", "10.9.9.9", "--copies", "1"].iter().chain(from));
    assert!(
        run.stdout.ends_with(" (read 1 of up to 4 copies)\n"),
        "{}",
        run.stdout
    );
    let run = hopwise(["get", "paths", "what"].iter().chain(from));
    assert_eq!(run.code, Some(2));
    assert!(run.stderr.contains("; write a flow such as"), "{}", run.stderr);
}

/// Keys `from..to`, each reported to the collector of its parity.
fn report_keys(reporters: &mut [Reporter; 2], keys: std::ops::Range<u32>) {
    for key in keys {
        let bytes = key.to_be_bytes();
        reporters[key as usize % 2].key_write(&bytes, &path_of(key));
        if key % 32 == 31 {
            thread::sleep(Duration::from_millis(1)); // no faster than a small socket buffer
        }
    }
}

/// Number of these keys that a collector answers.
fn known(region: &Path, keys: impl Iterator<Item = u32>) -> u64 {
    use dta::{Answer, DtaStore, Policy};
    let memory = memory::Region::open_read_only(&region.join("paths.region")).unwrap();
    let reader = DtaStore::open(std::sync::Arc::new(memory))
        .unwrap()
        .key_write()
        .unwrap();
    let mut data = [0; 20];
    let found = keys.filter(|key| {
        let answer = reader
            .get(&key.to_be_bytes(), Policy::Majority, 2, &mut data)
            .unwrap();
        let found = matches!(answer, Answer::Found { .. });
        assert!(
            !found || data[..] == path_of(*key)[..],
            "key {key} has another's data"
        );
        found
    });
    found.count() as u64
}

/// The sum of the counters of the object `what`.
fn sum(dta: &Value, what: &str) -> u64 {
    dta[what]
        .as_object()
        .unwrap()
        .values()
        .map(|count| count.as_u64().unwrap())
        .sum()
}

#[test]
fn a_collector_dies_and_comes_back_and_what_was_lost_is_known() {
    let directory = TempDir::new();
    let at = directory.join("");
    let first = Program::start(&at, "c0.toml", &collector(&at, "m0", ""));
    let mut second = Program::start(&at, "c1.toml", &collector(&at, "m1", ""));
    let exchanges = [first.memory.unwrap().1, second.memory.unwrap().1];
    let stage = Program::start(&at, "t.toml", &translator(&exchanges, ""));
    stage.translator("connected", |dta| connected(dta, 0) && connected(dta, 1));
    let mut reporters = [Reporter::new(stage.reports[0]), Reporter::new(stage.reports[1])];
    let done = |dta: &Value| dta["completed"]["key_write"].as_u64().unwrap();

    report_keys(&mut reporters, 0..1000);
    stage.translator("done", |dta| done(dta) == 1000);
    let executed = |view: &Value| view["executed"] == 1000; // 500 keys, two copies each
    second.wait("/api/v1/dta", "written", executed);
    first.wait("/api/v1/dta", "written", executed);

    second.kill();
    let before = stage.translator("noticed", |dta| !connected(dta, 1));
    report_keys(&mut reporters, 1000..2000);
    // Essential reports wait.
    for number in 0..100_u32 {
        let entry = number.to_be_bytes();
        reporters[1].send(
            true,
            false,
            Operation::Append {
                list: 10,
                entry_len: 4,
                entries: &entry,
            },
        );
    }
    let away = stage.translator("all taken", |dta| dta["reports"] == 2100);
    let lost = sum(&away, "dropped") - sum(&before, "dropped");
    assert_eq!(away["balanced"], true, "{away:#}");
    assert!(lost > 0, "{away:#}");

    // It restarts at the same address, with the contents of its memory.
    let exchange = second.memory.unwrap().1;
    let again = collector(&at, "m1", "").replacen(
        "exchange = \"127.0.0.1:0\"",
        &format!("exchange = \"{exchange}\""),
        1,
    );
    let second = Program::start(&at, "c1.toml", &again);
    stage.translator("connected again", |dta| connected(dta, 1) && dta["queued"] == 0);
    report_keys(&mut reporters, 2000..3000);
    let after = stage.translator("everything settled", |dta| {
        let settled = dta["queued"] == 0
            && dta["entries"]["buffered"] == 0
            && dta["collectors"][1]["unacknowledged"] == 0;
        dta["reports"] == 3100 && settled
    });
    assert_eq!(
        (&after["balanced"], &after["collectors"][1]["balanced"]),
        (&true.into(), &true.into()),
        "{after:#}"
    );
    // A collector that starts slowly may need a third.
    assert!(
        after["collectors"][1]["connections"].as_u64() >= Some(2),
        "{after:#}"
    );

    // The first collector lost nothing, the second exactly the counted reports.
    let frames = |number: usize| after["collectors"][number]["unreliable"].as_u64().unwrap();
    first.wait("/api/v1/dta", "written", |view| {
        view["executed"].as_u64().unwrap() >= frames(0)
    });
    second.wait("/api/v1/dta", "written", |view| {
        view["executed"].as_u64().unwrap() >= frames(1) - 1000
    });
    assert_eq!(known(&at.join("m0"), (0..3000).step_by(2)), 1500);
    let total_lost = sum(&after, "dropped");
    let found = known(&at.join("m1"), (1..3000).step_by(2));
    assert_eq!(found + total_lost, 1500, "{after:#}");
    // All entries of list 10 arrived, once and in order.
    let tail = second.get("/api/v1/dta/lists/10?limit=1000");
    let entries: Vec<_> = tail["entries"]
        .as_array()
        .unwrap()
        .iter()
        .map(|entry| entry["data"].clone())
        .collect();
    let expected: Vec<Value> = (0..100).map(|number| format!("{number:08x}").into()).collect();
    assert_eq!(entries, expected, "{tail}");
}

#[test]
fn a_translator_that_restarts_goes_on_behind_what_is_there() {
    let directory = TempDir::new();
    let at = directory.join("");
    let keeper = Program::start(&at, "c.toml", &collector(&at, "memory", ""));
    let exchange = keeper.memory.unwrap().1;
    let mut expected = Vec::new();
    for round in 0..3_u32 {
        let mut stage = Program::start(&at, "t.toml", &translator(&[exchange], ""));
        stage.translator("connected", |dta| connected(dta, 0));
        let mut reporter = Reporter::new(stage.reports[0]);
        for number in 0..20 {
            let value = round * 100 + number;
            expected.push(Value::from(format!("{value:08x}")));
            let entry = value.to_be_bytes();
            reporter.send(
                true,
                false,
                Operation::Append {
                    list: 10,
                    entry_len: 4,
                    entries: &entry,
                },
            );
        }
        stage.translator("taken", |dta| {
            dta["completed"]["append"] == 20 && dta["collectors"][0]["unacknowledged"] == 0
        });
        // Pending entries are written at the end.
        stage.stop();
    }
    let tail = keeper.wait("/api/v1/dta/lists/10?limit=1000", "there", |view| {
        view["entries"].as_array().unwrap().len() == 60
    });
    let entries: Vec<_> = tail["entries"]
        .as_array()
        .unwrap()
        .iter()
        .map(|entry| entry["data"].clone())
        .collect();
    assert_eq!(entries, expected);
    assert_eq!(tail["missing"], 0);
}

/// Writes a secret that only its owner may read.
fn put_secret(file: &Path, secret: &str) {
    fs::write(file, secret).unwrap();
    fs::set_permissions(file, fs::Permissions::from_mode(0o600)).unwrap();
}

#[test]
fn a_peer_with_another_secret_is_refused_until_it_has_the_right_one() {
    let directory = TempDir::new();
    let at = directory.join("");
    let [ours, theirs] = ["ours", "theirs"].map(|name| at.join(name));
    put_secret(&ours, "0123456789abcdef\n");
    put_secret(&theirs, "fedcba9876543210\n");
    let secret = |file: &Path| format!("secret_file = \"{}\"", file.display());
    let keeper = Program::start(&at, "c.toml", &collector(&at, "memory", &secret(&ours)));
    let stage = Program::start(
        &at,
        "t.toml",
        &translator(&[keeper.memory.unwrap().1], &secret(&theirs)),
    );
    let view = stage.translator("refused", |dta| {
        let message = dta["collectors"][0]["message"].as_str().unwrap_or_default();
        message.starts_with("refused: the secrets differ")
    });
    assert!(
        view["collectors"][0]["exchange_refused"]["wrong_secret"].as_u64() > Some(0),
        "{view}"
    );
    assert_eq!(
        (&view["collectors"][0]["exchange_secret"], connected(&view, 0)),
        (&true.into(), false)
    );
    let view = keeper.get("/api/v1/dta");
    assert_eq!(
        (&view["links"], &view["translators"]["secret"]),
        (&Value::Array(Vec::new()), &true.into())
    );

    // A file that everybody may read is rejected: nothing changes. A correct one is accepted without a restart.
    let reload = |program: &Program| program.ask("POST", "/api/v1/config/reload", "");
    fs::set_permissions(&theirs, fs::Permissions::from_mode(0o644)).unwrap();
    let (status, answer) = reload(&stage);
    assert!(
        status == 400 && answer.to_string().contains("everybody on this machine may read"),
        "{status} {answer}"
    );
    put_secret(&theirs, "0123456789abcdef");
    assert_eq!(reload(&stage).0, 200);
    stage.translator("connected", |dta| connected(dta, 0));

    // A new secret applies to new connections: this one stays.
    put_secret(&ours, "another-secret-of-both");
    assert_eq!(reload(&keeper).0, 200);
    // A link that was lost because a process was not scheduled is restored with the same secret.
    put_secret(&theirs, "another-secret-of-both");
    assert_eq!(reload(&stage).0, 200);
    let mut reporter = Reporter::new(stage.reports[0]);
    reporter.send(
        true,
        false,
        Operation::Append {
            list: 10,
            entry_len: 4,
            entries: &[0, 0, 0, 7],
        },
    );
    let tail = keeper.wait("/api/v1/dta/lists/10?limit=9", "there", |view| {
        view["next"] != 0 && view["entries"][0].is_object()
    });
    assert_eq!(tail["entries"][0]["data"], "00000007");
    let counts = keeper.get("/api/v1/dta")["translators"].clone();
    assert_eq!(
        (counts["accepted"].as_u64() >= Some(1), &counts["balanced"]),
        (true, &true.into()),
        "{counts}"
    );
    let refused = counts["refused"]["wrong_secret"].as_u64().unwrap();
    assert!(refused > 0, "{counts}");
    metric(
        &keeper,
        &format!("hopwise_memory_exchange_accepted_total {}", counts["accepted"]),
    );
    metric(
        &keeper,
        &format!("hopwise_memory_exchange_refused_total{{reason=\"wrong_secret\"}} {refused}"),
    );
}

#[test]
fn invalid_settings_are_reported_before_anything_starts() {
    let directory = TempDir::new();
    let at = directory.join("");
    let keeper = collector(&at, "memory", "");
    for (wrong, message) in [
        (
            keeper.replace(
                "listen = \"127.0.0.1:0\"\nexchange",
                "listen = \"0.0.0.0:4791\"\nexchange",
            ),
            "RoCEv2's checksum covers the address",
        ),
        (
            keeper.replace("slots = \"64K\"", "slots = 1000"),
            "write a power of two from 16 to 2G",
        ),
        (keeper.replace("id = 2", "id = 1"), "1 is the ID of `paths`"),
        (
            keeper.replace("lists = 10", "lists = \"3-9\""),
            "lists 0-3 are another store's",
        ),
        (
            keeper.replace("batch = 4", "batch = 5"),
            "write a multiple of `batch`",
        ),
        (keeper.replace("src:ipv4", "src:ipv5"), "there is no type `ipv5`"),
        (
            keeper.replace("events = \"drop\"", "events = \"dropp\""),
            "write \"new\", \"change\"",
        ),
        (translator(&[], ""), "no collector to write to"),
        (
            translator(&["127.0.0.1:1".parse().unwrap()], "pmtu = 1500"),
            "write 256, 512, 1024, 2048 or 4096",
        ),
        (
            translator(
                &["127.0.0.1:1".parse().unwrap()],
                "[[translator.triggers]]\nwhen = \"valu > 1\"\nentry = \"time\"",
            ),
            "there is no field `valu`",
        ),
    ] {
        let config = at.join("wrong.toml");
        fs::write(&config, &wrong).unwrap();
        let run = hopwise(["check", "-c", text(&config)]);
        assert_eq!(run.code, Some(2), "{wrong}");
        assert!(
            run.stderr.contains(message) && run.stderr.contains("wrong.toml:"),
            "{message}: {}",
            run.stderr
        );
    }
    // Port 0 is the memory of this process, which has none.
    let config = at.join("own.toml");
    fs::write(&config, translator(&["127.0.0.1:0".parse().unwrap()], "")).unwrap();
    let run = hopwise(["run", "-c", text(&config)]);
    assert_eq!(
        (run.code, run.stderr.contains("exchange port 0")),
        (Some(2), true),
        "{}",
        run.stderr
    );
    // A region of another geometry is not overwritten.
    let mut running = Program::start(&at, "c.toml", &keeper);
    running.stop();
    fs::write(
        &running.config,
        keeper.replace("slots = \"64K\"", "slots = \"32K\""),
    )
    .unwrap();
    let run = hopwise(["run", "-c", text(&running.config)]);
    assert_eq!(run.code, Some(2));
    assert!(
        run.stderr.contains("paths.region is there and has another shape"),
        "{}",
        run.stderr
    );
}
