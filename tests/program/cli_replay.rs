//! `hopwise replay`, and the commands that query the store it fills.

use std::{
    collections::BTreeMap,
    io::Write as _,
    path::Path,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use crate::support::{self, FIRST_TS, TempDir, capture, hex, hopwise, report_frame, text};

/// Report 2.0 of node 3 with this sequence number: ports 7 to 8, queue 1 with 64 in it, about 10.0.0.1:1234>10.0.0.2:80/6.
fn report(seq: u32) -> Vec<u8> {
    let mut bytes = hex("20400000 00000003 140e0220 50000000 00000000 00070008 01000040
         45000578 00034000 3d06247b 0a000001 0a000002 04d20050 00000001 00000002 50102000 beef0000");
    bytes[..4].copy_from_slice(&(0x2040_0000 | seq).to_be_bytes());
    report_frame(&bytes)
}

pub(super) fn replay(args: &[&str]) -> support::Run {
    hopwise(["replay"].iter().chain(args))
}

#[test]
fn a_congested_switch_is_found() {
    let run = replay(&[
        "--profile",
        "onos",
        "--json",
        text(&capture("onos-int10-congested.pcap")),
    ]);
    let [found] = &run.json()[..] else {
        panic!("one object")
    };
    assert_eq!(
        (run.code, &found["frames"], &found["reports"]),
        (Some(0), &json!(4000), &json!(4000))
    );
    assert_eq!(
        found["paths"],
        json!([{"path": [101, 102, 103], "flows": 8, "reports": 4000}])
    );
    assert_eq!(
        (&found["flows_total"], found["flows"].as_array().unwrap().len()),
        (&json!(8), 8)
    );
    let queue = |node: usize| &found["nodes"][node]["queues"][0];
    assert_eq!(
        (&queue(1)["max"], &queue(1)["unit"], &queue(1)["count"]),
        (&json!(200), &json!("packets"), &json!(4000))
    );
    assert!([0, 2].iter().all(|node| queue(*node)["max"].as_u64() <= Some(64)));
    // The device's microseconds become nanoseconds.
    assert_eq!(found["nodes"][1]["hop_latency"]["min"], json!(92_000));
    assert_eq!(
        found["sources"],
        json!([{"source": "10.0.3.3", "node": 103, "hw_id": 1, "version": "1.0", "reports": 4000, "lost": 0,
            "unconfirmed": 0, "recovered": 0, "reordered": 0, "duplicated": 0, "restarts": 0, "countable": false,
            "mixed": false}])
    );
}

#[test]
fn a_queue_has_the_unit_of_who_reports_it() {
    let dir = TempDir::new();
    let config = dir.join("hopwise.toml");
    let other =
        "[profiles.x]\nqueue_unit = \"cells\"\n[[sources]]\nprefix = \"10.9.0.0/16\"\nprofile = \"x\"\n";
    std::fs::write(
        &config,
        format!("{other}[[sources]]\nprefix = \"10.0.3.3\"\nprofile = \"onos\"\n"),
    )
    .unwrap();
    let run = replay(&[
        "-c",
        text(&config),
        "--json",
        text(&capture("onos-int10-congested.pcap")),
    ]);
    let nodes = &run.json()[0]["nodes"];
    assert!(
        (0..3).all(|node| nodes[node]["queues"][0]["unit"] == "packets"),
        "{nodes}"
    );
}

#[test]
fn names_of_the_configuration_replace_ids() {
    let dir = TempDir::new();
    let (config, store) = (dir.join("hopwise.toml"), dir.join("store"));
    let settings = "[nodes]\n101 = \"leaf1\"\n[[inventory.devices]]\nname = \"spine\"\nnode = 102\naddress = \"127.0.0.1:9\"\n\
        [[inventory.hosts]]\nname = \"h1\"\naddresses = [\"10.0.1.1\"]\n";
    std::fs::write(&config, settings).unwrap();
    let capture = capture("onos-int10-congested.pcap");
    let run = replay(&[
        "-c",
        text(&config),
        "--profile",
        "onos",
        "--store",
        text(&store),
        text(&capture),
    ]);
    let line = |start: &str| {
        run.stdout
            .lines()
            .find(|line| line.trim_start().starts_with(start))
            .map(str::to_owned)
    };
    assert!(
        line("8").is_some_and(|line| line.ends_with("leaf1 > spine > 103")),
        "{}",
        run.stdout
    );
    for node in ["leaf1 ", "spine ", "103 "] {
        assert!(line(node).is_some(), "{node}: {}", run.stdout);
    }
    assert!(run.stdout.contains(" (h1>10."), "{}", run.stdout);
    let ask = |extra: &[&str]| {
        let sql = "SELECT DISTINCT path, src FROM flows";
        hopwise(["query", "--dir", text(&store), sql].iter().chain(extra)).stdout
    };
    let cells = |text: String| -> Vec<String> { text.split_whitespace().map(str::to_owned).collect() };
    assert_eq!(
        cells(ask(&["-c", text(&config)])),
        ["path", "src", "leaf1>spine>103", "h1"]
    );
    assert_eq!(cells(ask(&[])), ["path", "src", "101>102>103", "10.0.1.1"]);
    let csv = ask(&["-c", text(&config), "--format", "csv"]);
    assert_eq!(csv, "path,src\r\n101>102>103,10.0.1.1\r\n");
}

#[test]
fn a_capture_is_read_as_the_listeners_of_its_ports_would() {
    let dir = TempDir::new();
    let config = dir.join("hopwise.toml");
    let capture = dir.capture("reports.pcap", &[report(1), report(2)]);
    let found = |allow: &str| {
        std::fs::write(&config, allow).unwrap();
        let run = replay(&["-c", text(&config), "--json", text(&capture)]);
        (run.json()[0]["reports"].clone(), run.json()[0]["refused"].clone())
    };
    assert_eq!(found(""), (json!(2), json!({})));
    // The frames are from 192.0.2.1, about node 3, to port 32766.
    let allow = "[[collector.allow]]\nfrom = [\"192.0.2.0/24\"]\n";
    assert_eq!(found(allow), (json!(2), json!({})));
    assert_eq!(
        found(&format!("{allow}nodes = [4]\n")),
        (json!(0), json!({"node_not_allowed": 2}))
    );
    let other = "[[collector.allow]]\nfrom = [\"10.0.0.0/8\"]\n";
    assert_eq!(found(other), (json!(0), json!({"sender_not_allowed": 2})));
    assert_eq!(
        found(&format!("{other}listen = [\"udp://*:32767\"]\n")),
        (json!(2), json!({}))
    );
}

#[test]
fn paths_without_latencies_give_paths_and_no_latency() {
    let run = replay(&[
        "--profile",
        "onos",
        "--json",
        text(&capture("onos-int10-path-only.pcap")),
    ]);
    let found = &run.json()[0];
    assert_eq!(
        found["paths"],
        json!([{"path": [101, 102, 103], "flows": 8, "reports": 500}])
    );
    assert!(
        found["flows"]
            .as_array()
            .unwrap()
            .iter()
            .all(|flow| flow["flow_latency"] == Value::Null)
    );
    let node = |node: u32| json!({"node": node, "queues": [], "links": []});
    assert_eq!(found["nodes"], json!([node(101), node(102), node(103)]));
}

#[test]
fn uncountable_losses_are_named_in_the_text_output() {
    let run = replay(&["--profile", "onos", text(&capture("onos-int10-congested.pcap"))]);
    for line in [
        "    8    4,000  101 > 102 > 103",
        " 102  queue_occupancy   interface 2 queue 0   4,000        0       84     200  packets",
        "10.0.3.3   103   1      1.0      4,000     -     -      -         -  not countable: its sequence number has not advanced",
    ] {
        assert!(
            run.stdout.lines().any(|found| found == line),
            "{line}\n{}",
            run.stdout
        );
    }
}

#[test]
fn each_gap_is_explained() {
    let dir = TempDir::new();
    // 3 and 4 are missing and 4 arrives late; 6 arrives twice; 8 and 9 never arrive.
    let frames: Vec<Vec<u8>> = [1, 2, 5, 4, 6, 6, 7, 10].map(report).to_vec();
    let file = dir.capture("gaps.pcap", &frames);
    let run = replay(&["--explain-loss", "--json", text(&file)]);
    let found = &run.json()[0];
    let note = |offset: u64, what: &str, first: u32, count: u32| {
        json!({"ts": FIRST_TS + offset * 1000, "source": "192.0.2.1", "node": 3, "hw_id": 1, "what": what,
            "first": first, "count": count})
    };
    let expected = [
        note(2, "gap", 3, 2),
        note(3, "reordered", 4, 1),
        note(5, "duplicate", 6, 1),
        note(7, "gap", 8, 2),
        note(7, "lost", 3, 1),
        note(7, "lost", 8, 2),
    ];
    assert_eq!(found["sequence"], json!(expected));
    let source = &found["sources"][0];
    assert_eq!(
        [&source["lost"], &source["reordered"], &source["duplicated"]].map(|count| count.as_u64()),
        [Some(3), Some(1), Some(1)]
    );
    let text_output = replay(&["--explain-loss", text(&file)]).stdout;
    assert!(
        text_output.contains("2023-11-14 22:13:20.000Z  192.0.2.1     3   1  lost           8      2"),
        "{text_output}"
    );
}

#[test]
fn a_replay_fills_a_store() {
    let dir = TempDir::new();
    let store = dir.join("store");
    let file = dir.capture("few.pcap", &[1, 2, 3].map(report));
    let run = replay(&["--json", "--store", text(&store), text(&file)]);
    let written = run.json()[0]["store"]["written"].as_u64().unwrap();
    assert!(written > 0);
    let ask = |sql: &str, format: &str| hopwise(["query", "--dir", text(&store), "--format", format, sql]);
    // Three reports of one node are not a path yet: reports of other nodes may be missing.
    let sql = "SELECT flow, path, reports FROM flows";
    assert_eq!(
        ask(sql, "csv").stdout,
        "flow,path,reports\r\n10.0.0.1:1234>10.0.0.2:80/6,,3\r\n"
    );
    assert_eq!(
        ask(sql, "json").json(),
        [json!({"flow": "10.0.0.1:1234>10.0.0.2:80/6", "path": null, "reports": 3})]
    );
    assert_eq!(
        ask(sql, "table").stdout,
        "flow                         path  reports\n10.0.0.1:1234>10.0.0.2:80/6              3\n"
    );
    let events = hopwise([
        "events",
        "--dir",
        text(&store),
        "--json",
        "--metric",
        "queue_occupancy",
    ])
    .json();
    let [event] = &events[..] else {
        panic!("{events:?}")
    };
    assert_eq!(
        (
            &event["kind"],
            &event["node"],
            &event["queue"],
            &event["value"],
            &event["ts"]
        ),
        (&json!("new"), &json!(3), &json!(1), &json!(64), &json!(FIRST_TS))
    );
}

#[test]
#[expect(clippy::too_many_lines, reason = "one scenario, from start to end")]
fn stored_events_are_filtered_by_a_condition() {
    let dir = TempDir::new();
    let store = dir.join("store");
    replay(&[
        "--profile",
        "onos",
        "--store",
        text(&store),
        text(&capture("onos-int10-congested.pcap")),
    ]);
    let count = |sql: &str| {
        let run = hopwise(["query", "--dir", text(&store), "--format", "json", sql]);
        run.json()[0]["n"].as_u64().unwrap()
    };
    let found = |condition: &str| {
        let run = hopwise([
            "events",
            "--dir",
            text(&store),
            "--json",
            "--limit",
            "100000",
            "--filter",
            condition,
        ]);
        if run.code == Some(1) {
            0
        } else {
            run.json().len() as u64
        }
    };
    let changes = "kind = 'change' AND metric = 'queue_occupancy' AND value > 50";
    for (condition, sql) in [
        ("kind == change and queue_occupancy > 50", changes),
        (
            "not kind == latest and src == 10.0.1.1",
            "kind <> 'latest' AND src = '10.0.1.1'",
        ),
        (
            "kind == new and path ~ 101>*>103",
            "kind = 'new' AND path = '101>102>103'",
        ),
        (
            "kind == latest and node in (101, 103)",
            "kind = 'latest' AND node IN (101, 103)",
        ),
        ("host in 192.0.2.0/24", "0"),
    ] {
        assert_eq!(
            found(condition),
            count(&format!("SELECT count(*) AS n FROM events WHERE {sql}")),
            "{condition}"
        );
    }
    assert!(count(&format!("SELECT count(*) AS n FROM events WHERE {changes}")) > 0);
    let time = |offset| {
        count(&format!(
            "SELECT ts AS n FROM events ORDER BY ts LIMIT 1 OFFSET {offset}"
        ))
    };
    let (from, to) = (time(100).to_string(), time(300).to_string());
    for filter in [
        &[][..],
        &[
            "--filter",
            "node in (101, 102, 103) or not node in (101, 102, 103)",
        ],
    ] {
        let all = [
            "events",
            "--dir",
            text(&store),
            "--json",
            "--limit",
            "100000",
            "--from",
            &from,
            "--to",
            &to,
        ];
        let listed = hopwise(all.iter().chain(filter)).json().len() as u64;
        let node = if filter.is_empty() {
            "1"
        } else {
            "node IS NOT NULL"
        };
        let sql = format!("ts >= {from} AND ts <= {to} AND kind <> 'latest' AND {node}");
        assert_eq!(
            listed,
            count(&format!("SELECT count(*) AS n FROM events WHERE {sql}")),
            "{filter:?}"
        );
        assert!(listed > 50, "{listed} events");
    }
    let wrong = hopwise([
        "events",
        "--dir",
        text(&store),
        "--filter",
        "kind == drop and src > 10.0.0.1",
    ]);
    let expected =
        "src is compared by == != in\n  kind == drop and src > 10.0.0.1\n                       ^\n";
    assert!(
        wrong.code == Some(2) && wrong.stderr.ends_with(expected),
        "{wrong:?}"
    );
}

/// In a terminal that `script` makes.
#[test]
fn a_query_without_sql_is_a_shell() {
    let dir = TempDir::new();
    let store = dir.join("store");
    let file = dir.capture("few.pcap", &[1, 2, 3].map(report));
    replay(&["--store", text(&store), text(&file)]);
    let piped = |input: &str, program: &str, args: &[&str]| {
        let mut child = Command::new(program)
            .args(args)
            .env("XDG_STATE_HOME", dir.join("state"))
            .env("TERM", "dumb")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        String::from_utf8(child.wait_with_output().unwrap().stdout).unwrap()
    };
    let program = env!("CARGO_BIN_EXE_hopwise");
    let query = ["query", "--dir", text(&store), "--format", "csv"];
    assert_eq!(
        piped("SELECT count(*) AS n FROM flows;\n", program, &query),
        "n\r\n1\r\n"
    );
    if Command::new("script").arg("--version").output().is_err() {
        return support::skipped("the shell of `hopwise query`: script is not installed (bsdutils)");
    }
    let shell = format!("{program} query --dir {} --format csv", text(&store));
    let input = ".schema flows\nSELECT reports\nFROM flows;\nSELECT no_such;\n.quit\n";
    let shown = piped(input, "script", &["-qec", &shell, "/dev/null"]);
    for part in [
        "flows: flow, ",
        "reports\r\r\n3\r\r\n",
        "hopwise: no such column: no_such",
    ] {
        assert!(shown.contains(part), "{part:?} is not in {shown:?}");
    }
    let history = std::fs::read_to_string(dir.join("state/hopwise/query_history")).unwrap();
    assert!(history.contains("SELECT reports FROM flows;"), "{history}");
}

/// The processes that run the queries about this store.
fn helpers(store: &Path) -> Vec<String> {
    let wanted = format!("sql-helper\0{}\0", text(store));
    let is_helper = |pid: &String| {
        std::fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| line.ends_with(wanted.as_bytes()))
    };
    let processes = std::fs::read_dir("/proc").unwrap();
    processes
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter(is_helper)
        .collect()
}

#[test]
fn a_shell_asks_one_process() {
    let dir = TempDir::new();
    let (store, shown) = (dir.join("store"), dir.join("shown"));
    replay(&[
        "--store",
        text(&store),
        text(&dir.capture("few.pcap", &[1, 2].map(report))),
    ]);
    if Command::new("script").arg("--version").output().is_err() {
        return support::skipped("the process of a shell: script is not installed (bsdutils)");
    }
    let shell = format!(
        "{} query --dir {} --format csv",
        env!("CARGO_BIN_EXE_hopwise"),
        text(&store)
    );
    let mut child = Command::new("script")
        .args(["-qec", &shell, "/dev/null"])
        .env("XDG_STATE_HOME", dir.join("state"))
        .env("TERM", "dumb")
        .stdin(Stdio::piped())
        .stdout(std::fs::File::create(&shown).unwrap())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    let mut found = Vec::new();
    for word in ["one", "two"] {
        writeln!(input, "SELECT '{word}' || '!' AS said;").unwrap();
        // The line that is echoed has the parts of it only.
        let said = || {
            std::fs::read_to_string(&shown)
                .unwrap()
                .contains(&format!("{word}!"))
        };
        let deadline = Instant::now() + Duration::from_secs(60);
        while !said() {
            assert!(Instant::now() < deadline, "no answer");
            std::thread::sleep(Duration::from_millis(20));
        }
        found.push(helpers(&store));
    }
    writeln!(input, ".quit").unwrap();
    child.wait().unwrap();
    assert_eq!(found[0].len(), 1, "{found:?}");
    assert_eq!(found[0], found[1]);
}

#[test]
fn sql_works_after_an_upgrade_of_the_running_program() {
    let dir = TempDir::new();
    let store = dir.join("store");
    replay(&[
        "--store",
        text(&store),
        text(&dir.capture("few.pcap", &[1, 2].map(report))),
    ]);
    let program = support::public_copy(&dir);
    let mut child = Command::new(&program)
        .args(["query", "--dir", text(&store), "--format", "csv"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // A package manager renames the new file over the old one.
    std::fs::write(dir.join("new"), "another program").unwrap();
    std::fs::rename(dir.join("new"), &program).unwrap();
    child
        .stdin
        .take()
        .unwrap()
        .write_all(b"SELECT count(*) AS n FROM flows;\n")
        .unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(
        String::from_utf8_lossy(&output.stdout),
        "n\r\n1\r\n",
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

#[test]
fn a_path_is_drawn_out_of_a_store() {
    let dir = TempDir::new();
    let store = dir.join("store");
    replay(&[
        "--profile",
        "onos",
        "--store",
        text(&store),
        text(&capture("onos-int10-congested.pcap")),
    ]);
    let path = |flow: &str| hopwise(["path", "--dir", text(&store), flow]);
    let one = path("10.0.1.1:5000");
    assert_eq!(
        one.stdout.lines().nth(2),
        Some("  10.0.1.1 ─ 101 ─ 102 ─ 103 ─ 10.0.2.2")
    );
    assert_eq!(path("10.0.1.1").stdout.lines().count(), 9);
    let none = path("10.9.9.9");
    assert_eq!((none.code, none.stdout.as_str()), (Some(1), ""));
    let json = hopwise([
        "path",
        "--dir",
        text(&store),
        "--json",
        "10.0.1.1:5000>10.0.2.2:6000/17",
    ])
    .json();
    assert_eq!(
        (&json[0]["path"], &json[0]["reports"]),
        (&json!([101, 102, 103]), &json!(449))
    );
}

#[test]
fn questions_that_cannot_be_answered_say_why() {
    let dir = TempDir::new();
    let store = dir.join("store");
    replay(&[
        "--store",
        text(&store),
        text(&dir.capture("few.pcap", &[1, 2].map(report))),
    ]);
    let ask = |sql: &str| hopwise(["query", "--dir", text(&store), sql]);
    let wrong = ask("SELECT kin FROM events");
    assert_eq!(wrong.code, Some(2));
    assert!(
        wrong.stderr.starts_with("hopwise: no such column: kin"),
        "{}",
        wrong.stderr
    );
    assert!(
        wrong.stderr.ends_with("\n  SELECT kin FROM events\n         ^\n"),
        "{}",
        wrong.stderr
    );
    for refused in ["DELETE FROM events", "ATTACH 'x' AS y", "PRAGMA user_version"] {
        assert_eq!(ask(refused).code, Some(2), "{refused}");
    }
    let few = hopwise([
        "query",
        "--dir",
        text(&store),
        "--limit",
        "1",
        "--format",
        "csv",
        "SELECT kind FROM events UNION ALL SELECT kind FROM events",
    ]);
    assert_eq!((few.code, few.stdout.lines().count()), (Some(0), 2));
    assert_eq!(
        few.stderr,
        "hopwise: only 1 row shown of a longer result; narrow the query or raise --limit\n"
    );
    // A step of SQLite that takes minutes, and a result of 100 MB.
    let endless = "SELECT length(trim(printf('%.*c', 1000000, '0'), printf('%.*c', 80000, '1') || '0'))";
    let slow = hopwise(["query", "--dir", text(&store), "--timeout", "0.3", endless]);
    assert_eq!((slow.code, slow.stdout.as_str()), (Some(2), ""));
    assert!(
        slow.stderr.contains("took longer than 0.3 s") && slow.stderr.contains("--timeout"),
        "{}",
        slow.stderr
    );
    let many = "WITH RECURSIVE c(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM c LIMIT 1000) SELECT printf('%.*c', 100000, 'x') FROM c";
    let long = hopwise(["query", "--dir", text(&store), "--format", "csv", many]);
    assert!(
        long.stdout.len() < 9 << 20 && long.stdout.len() > 1 << 20,
        "{}",
        long.stdout.len()
    );
    assert!(
        long.stderr
            .ends_with("the result is larger than 8 MiB; select fewer columns, or split the query\n"),
        "{}",
        long.stderr
    );
    let (none, file) = (dir.join("none"), dir.join("file"));
    std::fs::write(&file, "").unwrap();
    for args in [vec!["query", "SELECT 1"], vec!["events"], vec!["path", "x"]] {
        for path in [&none, &file] {
            let nowhere = hopwise(args.iter().copied().chain(["--dir", text(path)]));
            let message = format!(
                "hopwise: there is no store in {}; name the directory of one with --dir\n",
                path.display()
            );
            assert_eq!((nowhere.code, nowhere.stderr), (Some(2), message));
        }
    }
}

#[test]
fn a_store_in_use_and_a_wrong_configuration_are_one_sentence() {
    let dir = TempDir::new();
    let config = dir.join("hopwise.toml");
    std::fs::write(&config, "[collector]\nmax_flow = 1\n").unwrap();
    let run = replay(&["-c", text(&config), "x.pcap"]);
    assert_eq!((run.code, run.stdout.as_str()), (Some(2), ""));
    assert!(
        run.stderr.contains("hopwise.toml:2") && run.stderr.contains("max_flows"),
        "{}",
        run.stderr
    );
    assert_eq!(replay(&["--speed", "fast", "x.pcap"]).code, Some(2));
    assert_eq!(replay(&[text(&dir.join("none.pcap"))]).code, Some(2));
}

#[test]
fn thresholds_and_rules_of_a_configuration_hold() {
    let dir = TempDir::new();
    let config = dir.join("hopwise.toml");
    std::fs::write(
        &config,
        "[thresholds]\nhop_latency = \"10s\"\nflow_latency = \"10s\"\nqueue_occupancy = 1000\n
[[rules]]\nname = \"full\"\nwhen = \"max(queue_occupancy) > 150\"\n",
    )
    .unwrap();
    let file = capture("onos-int10-congested.pcap");
    let run = replay(&["-c", text(&config), "--profile", "onos", "--json", text(&file)]);
    let events = &run.json()[0]["events"];
    assert_eq!((&events["change"], &events["new"]), (&json!(0), &json!(46)));
    assert!(events["rule_on"].as_u64() > Some(0), "{events}");
}

#[test]
fn flows_and_rules_end_in_a_pause_of_the_capture_as_they_do_live() {
    let dir = TempDir::new();
    let config = dir.join("hopwise.toml");
    std::fs::write(
        &config,
        "[collector]\nflow_timeout = \"5s\"\n[[rules]]\nname = \"full\"\nwhen = \"max(queue_occupancy) > 50\"\n",
    )
    .unwrap();
    // Three times five reports with 90 in a queue, with a pause of a minute before each, and of years before the last.
    let report = hex("14000041 00000001 00000000 00000005 02000000 00020200 00000001 0800455c 00440008 40003d06 294d0a00 00010a01
         000204d2 00160000 03e80000 07d05010 20000000 00000100 07281000 02069000 00000000 00010200 005a0000 00020000
         0000");
    let frames: Vec<_> = (0..15_u8)
        .map(|number| {
            let mut numbered = report.clone();
            numbered[11] = number;
            report_frame(&numbered)
        })
        .collect();
    let mut bytes = support::pcap(&frames);
    let record = 16 + frames[0].len();
    for (index, header) in bytes[24..].chunks_mut(record).enumerate() {
        let pause = [0, 60, 300_000_000][index / 5];
        let seconds = FIRST_TS / 1_000_000_000 + pause;
        header[..4].copy_from_slice(&(seconds as u32).to_le_bytes());
    }
    let file = dir.join("paused.pcap");
    std::fs::write(&file, bytes).unwrap();
    for speed in ["max", "10000000000x"] {
        let run = replay(&["-c", text(&config), "--speed", speed, "--json", text(&file)]);
        let found = &run.json()[0];
        let events = &found["events"];
        assert_eq!(
            (&events["rule_on"], &events["rule_off"], &found["reports"]),
            (&json!(3), &json!(2), &json!(15)),
            "{speed}: {events}"
        );
    }
}

/// A frame of a pcapng file: its interface, its time since [`FIRST_TS`] in ms, and its bytes.
pub(super) type OfInterface = (u32, i64, Vec<u8>);

/// A pcapng file with two interfaces whose timestamps are ns.
pub(super) fn pcapng(frames: &[OfInterface]) -> Vec<u8> {
    fn block(out: &mut Vec<u8>, kind: u32, body: &[u8]) {
        let length = (12 + body.len().next_multiple_of(4)) as u32;
        out.extend([kind, length].map(u32::to_le_bytes).concat());
        out.extend(body);
        out.resize(out.len().next_multiple_of(4), 0);
        out.extend(length.to_le_bytes());
    }
    let mut out = Vec::new();
    block(&mut out, 0x0a0d_0d0a, &hex("4d3c2b1a 0100 0000 ffffffffffffffff"));
    for _ in 0..2 {
        block(
            &mut out,
            1,
            &hex("0100 0000 00000400 0900 0100 09000000 00000000"),
        );
    }
    for (interface, milliseconds, frame) in frames {
        let ts = FIRST_TS.saturating_add_signed(milliseconds * 1_000_000);
        let length = frame.len() as u32;
        let words = [*interface, (ts >> 32) as u32, ts as u32, length, length];
        block(
            &mut out,
            6,
            &[&words.map(u32::to_le_bytes).concat()[..], frame].concat(),
        );
    }
    out
}

/// The second of rollups, since [`FIRST_TS`], and the count of values in it.
fn values_by_second(store: &Path) -> BTreeMap<i64, u64> {
    let sql = "SELECT ts, sum(count) AS n FROM rollups WHERE interval = 1 AND metric = 'queue_occupancy' GROUP BY ts ORDER BY ts";
    let rows = hopwise(["query", "--dir", text(store), "--format", "json", sql]).json();
    rows.iter()
        .map(|row| {
            let second = row["ts"].as_i64().unwrap() - FIRST_TS as i64;
            (second / 1_000_000_000, row["n"].as_u64().unwrap())
        })
        .collect()
}

/// Replays frames from a file, or a pipe. Returns the result as text and JSON, and the values of each second.
fn replay_interfaces(frames: &[OfInterface], is_pipe: bool) -> (String, Value, BTreeMap<i64, u64>) {
    let dir = TempDir::new();
    let (store, file, config) = (
        dir.join("store"),
        dir.join("two.pcapng"),
        dir.join("hopwise.toml"),
    );
    std::fs::write(&file, pcapng(frames)).unwrap();
    std::fs::write(&config, "[collector]\nflow_timeout = \"5s\"\n").unwrap();
    let run = |extra: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_hopwise"));
        command.args(["replay", "-c", text(&config)]).args(extra);
        if is_pipe {
            let mut child = command
                .arg("-")
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()
                .unwrap();
            let bytes = std::fs::read(&file).unwrap();
            child.stdin.take().unwrap().write_all(&bytes).unwrap();
            child.wait_with_output().unwrap().stdout
        } else {
            command.arg(&file).output().unwrap().stdout
        }
    };
    let json = serde_json::from_slice(&run(&["--store", text(&store), "--json"])).unwrap();
    let text = String::from_utf8(run(&[])).unwrap();
    (text, json, values_by_second(&store))
}

/// Reports of two nodes, 20 a second each, which alternate; the first one is silent for four seconds. The clock of the second interface
/// is ahead by so much, ms.
pub(super) fn alternating(ahead: i64) -> Vec<OfInterface> {
    let mut frames = Vec::new();
    for number in 0..400_u32 {
        let at = i64::from(number) * 50;
        if !(4000..8000).contains(&at) {
            // One number is late.
            let seq = [number, number + 1, number - number.min(1)]
                [usize::from(number == 20) + 2 * usize::from(number == 21)];
            frames.push((0, at, report(seq)));
        }
        let mut other = report(number);
        // Its node, and the inner source port.
        let at_port = other.len() - 20;
        assert_eq!((other[42 + 7], other[at_port]), (3, 4));
        other[42 + 7] = 4;
        other[at_port] = 5;
        frames.push((1, at + 5 + ahead, other));
    }
    frames
}

#[test]
fn interfaces_of_a_capture_have_clocks_of_their_own() {
    let (_, expected, values) = replay_interfaces(&alternating(0), false);
    assert!(expected.get("clocks").is_none());
    for ahead in [-3_600_000, -37_000, -3000, 3000, 37_000, 3_600_000] {
        let frames = alternating(ahead);
        let (text, found, counted) = replay_interfaces(&frames, false);
        let clock = &found["clocks"][0];
        assert_eq!(
            (&clock["interface"], &clock["reference"]),
            (&json!(1), &json!(0)),
            "{ahead}"
        );
        let sentence = format!(
            "two.pcapng: the clocks of interfaces 0 and 1 differ by {}; times are those of interface 0\n",
            terminal::units::nanos(clock["ahead_ns"].as_i64().unwrap().unsigned_abs())
        );
        assert!(text.contains(&sentence), "{sentence}: {text}");
        let difference = clock["ahead_ns"].as_i64().unwrap() / 1_000_000;
        assert!(difference.abs_diff(ahead) < 50, "{ahead}: {difference}");
        assert_eq!(counted, values, "{ahead}");
        for name in ["events", "reports", "flows_total"] {
            assert_eq!(found[name], expected[name], "{ahead} {name}");
        }
        let lost = |found: &Value| {
            found["sources"]
                .as_array()
                .unwrap()
                .iter()
                .map(|of| of["lost"].clone())
                .collect::<Vec<_>>()
        };
        assert_eq!(lost(&found), lost(&expected), "{ahead}");
        // Of a pipe, nothing is lost either, but the first frames may set the time.
        let (text, found, counted) = replay_interfaces(&frames, true);
        assert!(
            text.contains("the clocks of interfaces 0 and 1 differ by "),
            "{ahead}: {text}"
        );
        assert_eq!(found["reports"], expected["reports"], "{ahead}");
        assert_eq!(
            counted.values().sum::<u64>(),
            values.values().sum::<u64>(),
            "{ahead}"
        );
        assert!(counted.len() <= values.len() + 3, "{ahead}: {counted:?}");
    }
}

#[test]
fn interfaces_one_after_the_other_are_not_compared_and_a_step_of_a_clock_is_one() {
    // Another interface, a minute later or earlier; and the clock of both, which is set back.
    for (pause, is_alternating) in [(60_000, false), (-60_000, false), (-60_000, true)] {
        let mut frames = Vec::new();
        let mut seconds = BTreeMap::new();
        for number in 0..80_u32 {
            let is_later = number >= 40;
            let at = i64::from(number) * 250 + if is_later { pause } else { 0 };
            let interface = if is_alternating {
                number % 2
            } else {
                u32::from(is_later)
            };
            frames.push((interface, at, report(number)));
            // A single frame that is behind may be out of order, so it counts with those before it.
            let is_single = pause < 0 && (number == 40 || is_alternating && number == 41);
            let second = if is_single { 9 } else { at.div_euclid(1000) };
            *seconds.entry(second).or_insert(0) += 1;
        }
        let (text, found, counted) = replay_interfaces(&frames, false);
        assert!(!text.contains("differ by"), "{text}");
        assert!(found.get("clocks").is_none(), "{found}");
        assert_eq!(counted, seconds, "{pause} {is_alternating}");
        assert_eq!(found["sources"][0]["lost"], json!(0));
    }
}

#[test]
fn a_clock_that_is_set_back_is_noticed_where_frames_are_seldom() {
    for (pause, back) in [
        (1000, 3_600_000),
        (2500, 3_600_000),
        (5000, 3_600_000),
        (60_000, 7_200_000),
        (7000, 30_000),
    ] {
        let mut frames = Vec::new();
        let mut seconds = BTreeMap::new();
        for number in 0..60_u32 {
            let at = i64::from(number) * pause - if number < 20 { 0 } else { back };
            frames.push((0, at, report(number)));
            // A single frame that is behind may be out of order, so it counts with those before it.
            let second = if number == 20 { 19 * pause } else { at }.div_euclid(1000);
            *seconds.entry(second).or_insert(0) += 1;
        }
        let (_, found, counted) = replay_interfaces(&frames, false);
        assert_eq!(counted, seconds, "{pause} {back}");
        assert_eq!(found["sources"][0]["lost"], json!(0));
    }
}

#[test]
fn a_capture_whose_clock_is_set_back_is_counted_in_its_own_seconds() {
    // Parts: the second in which each begins, and its number of reports, four a second. A flow expires after each, and in the pause of a day
    // also the queue.
    for (parts, expired) in [
        (vec![(0_i64, 40), (-3600, 60)], 1),
        (vec![(0, 40), (-15, 60)], 1),
        (vec![(0, 40), (86_400, 2), (10, 60)], 3),
        // A single one that is ahead has a wrong time, and counts with those before it.
        (vec![(0, 40), (86_400, 1), (10, 60)], 2),
        (vec![(0, 40), (-86_400, 1), (10, 60)], 2),
    ] {
        let dir = TempDir::new();
        let (config, store, file) = (dir.join("hopwise.toml"), dir.join("store"), dir.join("back.pcap"));
        std::fs::write(&config, "[collector]\nflow_timeout = \"5s\"\n").unwrap();
        let mut frames = Vec::new();
        let mut times = Vec::new();
        for (part, (start, count)) in parts.iter().enumerate() {
            for number in 0..*count {
                let mut frame = report(frames.len() as u32);
                // The inner source port: each part has a flow of its own.
                let at = frame.len() - 20;
                frame[at + 1] = part as u8;
                frames.push(frame);
                let second = FIRST_TS as i64 / 1_000_000_000 + start + number / 4;
                times.push((second as u32, (number % 4) as u32 * 250_000_000));
            }
        }
        let mut bytes = support::pcap(&frames);
        let record = 16 + frames[0].len();
        for (header, (second, nanos)) in bytes[24..].chunks_mut(record).zip(&times) {
            header[..4].copy_from_slice(&second.to_le_bytes());
            header[4..8].copy_from_slice(&nanos.to_le_bytes());
        }
        std::fs::write(&file, bytes).unwrap();
        let run = replay(&[
            "-c",
            text(&config),
            "--store",
            text(&store),
            "--json",
            text(&file),
        ]);
        let found = &run.json()[0];
        let sql = "SELECT ts, sum(count) AS n FROM rollups WHERE interval = 1 AND metric = 'queue_occupancy' \
                   AND node = 3 GROUP BY ts ORDER BY ts";
        let rows = hopwise(["query", "--dir", text(&store), "--format", "json", sql]).json();
        let counted: BTreeMap<u64, u64> = rows
            .iter()
            .map(|row| {
                (
                    row["ts"].as_u64().unwrap() / 1_000_000_000,
                    row["n"].as_u64().unwrap(),
                )
            })
            .collect();
        let mut right = BTreeMap::new();
        let mut before = 0;
        let is_single = parts.contains(&(86_400, 1));
        for second in times.iter().map(|(second, _)| u64::from(*second)) {
            // The first frame after the step may be out of order: it is counted in the second before.
            if is_single && second > before + 10 && before > 0 {
                *right.entry(before).or_insert(0) += 1;
                continue;
            }
            let counted_in = if second + 2 < before { before } else { second };
            *right.entry(counted_in).or_insert(0) += 1;
            before = second;
        }
        assert_eq!(counted, right, "{parts:?}");
        assert_eq!(found["sources"][0]["lost"], json!(0), "{parts:?}");
        assert_eq!(found["events"]["expired"], json!(expired), "{parts:?}: {found}");
    }
}

/// Writes captures, replays them as `order` says, and returns the result as JSON, the text, and the values of each second.
pub(super) fn replay_files(
    files: &[Vec<OfInterface>],
    order: &[usize],
) -> (Value, String, BTreeMap<i64, u64>) {
    let dir = TempDir::new();
    let (store, config) = (dir.join("store"), dir.join("hopwise.toml"));
    std::fs::write(&config, "[collector]\nflow_timeout = \"5s\"\n").unwrap();
    let names: Vec<_> = (0..files.len())
        .map(|at| dir.join(&format!("{at}.pcapng")))
        .collect();
    for (name, frames) in names.iter().zip(files) {
        std::fs::write(name, pcapng(frames)).unwrap();
    }
    let args = |extra: &[&str]| {
        let ordered = order.iter().map(|at| text(&names[*at]));
        let all: Vec<&str> = ["-c", text(&config)]
            .into_iter()
            .chain(extra.iter().copied())
            .chain(ordered)
            .collect();
        replay(&all)
    };
    let found = args(&["--json", "--store", text(&store)]).json().remove(0);
    (found, args(&[]).stdout, values_by_second(&store))
}

/// Returns the part of a result of `replay --json` that is about reports, not about files.
pub(super) fn outcome(found: &Value) -> Value {
    let sources: Vec<Value> = found["sources"]
        .as_array()
        .unwrap()
        .iter()
        .map(|of| {
            json!([
                of["reports"],
                of["lost"],
                of["unconfirmed"],
                of["reordered"],
                of["duplicated"],
                of["restarts"]
            ])
        })
        .collect();
    json!([found["reports"], found["events"], found["flows_total"], sources])
}

#[test]
fn captures_are_merged_by_time_in_whatever_order_they_are_named() {
    let all = alternating(0);
    let (expected, text, values) = replay_files(std::slice::from_ref(&all), &[0]);
    assert!(
        expected.get("overlapping").is_none() && !text.contains("overlap"),
        "{text}"
    );
    // The files of a ring, one after the other; and frames that two or three points captured by turns, or at the same time for a while.
    let ring: Vec<Vec<OfInterface>> = all.chunks(250).map(<[_]>::to_vec).collect();
    let part = |is_of: &dyn Fn(usize) -> bool| -> Vec<OfInterface> {
        let of = all.iter().enumerate().filter(|(at, _)| is_of(*at));
        of.map(|(_, frame)| frame.clone()).collect()
    };
    let turns: Vec<_> = (0..3).map(|file| part(&|at| at / 40 % 3 == file)).collect();
    let longer = vec![
        part(&|at| at < 200 || at % 2 == 0),
        part(&|at| at >= 200 && at % 2 == 1),
    ];
    for (files, overlapping) in [(ring, 0), (turns, 3), (longer, 2)] {
        let forward: Vec<usize> = (0..files.len()).collect();
        let backward: Vec<usize> = forward.iter().rev().copied().collect();
        for order in [forward, backward] {
            let (found, text, counted) = replay_files(&files, &order);
            assert_eq!(outcome(&found), outcome(&expected), "{order:?}");
            assert_eq!(counted, values, "{order:?}");
            let named = found
                .get("overlapping")
                .map_or(0, |files| files.as_array().unwrap().len());
            assert_eq!(named, overlapping, "{order:?}");
            let sentence = format!("{overlapping} files overlap in time (");
            assert_eq!(text.contains(&sentence), overlapping > 0, "{text}");
        }
    }
    // One that cannot be read to its end hides no other.
    let dir = TempDir::new();
    let (broken, whole) = (dir.join("broken.pcapng"), dir.join("whole.pcapng"));
    let bytes = pcapng(&all);
    std::fs::write(&broken, &bytes[..bytes.len() / 2]).unwrap();
    std::fs::write(&whole, pcapng(&[(0, 60_000, report(400))])).unwrap();
    let run = replay(&["--json", self::text(&whole), self::text(&broken)]);
    assert_eq!(run.code, Some(2), "{run:?}");
    assert!(run.stderr.contains("broken.pcapng"), "{}", run.stderr);
    let reports = run.json()[0]["reports"].as_u64().unwrap();
    assert!(reports > 200, "{reports}");
}

#[test]
fn one_wrong_time_far_ahead_changes_nothing_but_its_own_report() {
    let year = 365 * 86_400_000;
    let all = alternating(0);
    let (expected, _, values) = replay_files(std::slice::from_ref(&all), &[0]);
    for ahead in [11_000, 3_600_000, year] {
        for wrong in [0, 1, 2, 101, 150, 300, 500] {
            let mut frames = all.clone();
            frames[wrong].1 += ahead;
            let split: Vec<Vec<OfInterface>> = [0, 1]
                .map(|odd| {
                    let of = frames.iter().enumerate().filter(|(at, _)| at / 30 % 2 == odd);
                    of.map(|(_, frame)| frame.clone()).collect()
                })
                .to_vec();
            for files in [vec![frames], split] {
                let order: Vec<usize> = (0..files.len()).collect();
                let (found, text, counted) = replay_files(&files, &order);
                assert_eq!(
                    outcome(&found),
                    outcome(&expected),
                    "{ahead} {wrong} {}",
                    files.len()
                );
                assert_eq!(found["ignored_times"], json!({"ahead": 1}), "{ahead} {wrong}");
                assert!(
                    text.contains("10 s ahead and not confirmed by the next one: 1\n"),
                    "{text}"
                );
                // It counts with the report before it, which may be of the second before.
                let differences: u64 = values
                    .iter()
                    .map(|(second, count)| counted.get(second).copied().unwrap_or(0).abs_diff(*count))
                    .sum();
                assert!(
                    counted.len() <= values.len() && differences <= 2,
                    "{ahead} {wrong}: {counted:?}"
                );
            }
        }
        // The clock makes a step, or there is a pause: the times are right.
        let mut frames = all.clone();
        frames[200..].iter_mut().for_each(|frame| frame.1 += ahead);
        let (found, text, _) = replay_files(&[frames], &[0]);
        assert!(
            found.get("ignored_times").is_none() && !text.contains("ignored times"),
            "{ahead}"
        );
        assert_eq!(found["reports"], expected["reports"], "{ahead}");
    }
}
