//! The store's files vanish, are damaged or cannot be opened while hopwise runs: what it says is true, and it goes on.

use std::{
    ffi::OsStr,
    fs,
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use crate::support::{
    command, hopwise,
    server::{Server, TIMEOUT, report, stage},
};

/// The file of the store.
fn file(server: &Server) -> std::path::PathBuf {
    let found = fs::read_dir(server.path("store"))
        .unwrap()
        .map(|entry| entry.unwrap().path());
    found
        .filter(|path| path.extension().is_some_and(|end| end == "db"))
        .max()
        .unwrap()
}

/// Sends reports of new flows, and waits until the store is done with them. Returns the status of the store.
fn store(server: &Server, from: u32) -> Value {
    let read = u64::from(from) + 100;
    server.send((from..from + 100).map(|seq| report(seq, seq as u16, [1, 2, 3])));
    server.wait_for("stored", |status| {
        stage(status, "kernel")["in"] == read
            && ["queue", "store"]
                .iter()
                .all(|name| stage(status, name)["queued"] == 0)
            && status["store"]["state"] == "ok"
    })["store"]
        .clone()
}

#[test]
fn a_store_that_is_removed_while_it_runs_is_said_to_be_lost() {
    let server = Server::start("");
    let before = store(&server, 0);
    let stored = before["committed"].as_u64().unwrap();
    assert!(stored > 0 && before["problems"] == json!([]), "{before}");
    fs::remove_dir_all(server.path("store")).unwrap();
    let after = store(&server, 100);
    let removed = after["removed"].as_u64().unwrap();
    assert!(removed >= stored && after["moved_files"] == json!(1), "{after}");
    let problem = &after["problems"][0];
    assert_eq!(
        (&problem["kind"], &problem["records"]),
        (&json!("removed"), &json!(removed)),
        "{after}"
    );
    let line = server.log_line("a file of the store has a problem");
    assert!(
        line.contains("kind=\"removed\"") && line.contains("while hopwise ran"),
        "{line}"
    );
    let metrics = server.get("/metrics").body;
    for metric in [
        "hopwise_store_files_moved_total 1".to_owned(),
        format!("hopwise_store_removed_records_total {removed}"),
    ] {
        assert!(metrics.lines().any(|line| line == metric), "{metric}");
    }
    let flows = server
        .query("SELECT count(DISTINCT flow) FROM events WHERE kind = 'new'")
        .json();
    assert_eq!(flows["rows"], json!([[100]]), "those of afterwards");
    notes_name_the_removal(&server, &problem["found"], &flows);
    server.signal("-TERM");
    let line = server.log_line("stopped stored=");
    let lost: u64 = line.split_once("lost=").unwrap().1.parse().unwrap();
    assert!(lost >= removed, "{line}");
    let (status, _directory) = server.stop();
    assert_eq!(status.code(), Some(1));
}

/// Answers about the time before `found` have a note about the file: those of SQL, of pages and of commands.
fn notes_name_the_removal(server: &Server, found: &Value, of_sql: &Value) {
    let found = found.as_u64().unwrap();
    let mark = "1 file of this time range (hopwise-";
    let note = of_sql["notes"][0].as_str().unwrap();
    let time = settings::time::text(found);
    let whole = format!("removed or replaced by something else, at {time}");
    assert!(note.contains(mark) && note.ends_with(&whole), "{note}");
    for path in ["/api/v1/events", "/api/v1/rollups", "/api/v1/events?kind=new"] {
        let answer = server.get(path);
        assert!(
            answer.status == 200 && answer.headers.contains(mark),
            "{answer:?}"
        );
    }
    let afterwards = server.get(&format!("/api/v1/events?from={}", found + 1));
    assert!(!afterwards.headers.contains("hopwise-notes"), "{afterwards:?}");
    let api = format!("http://{}", server.api);
    let run = hopwise(["events", "--api", &api, "--limit", "5"]);
    assert!(run.code == Some(0) && run.stderr.contains(mark), "{run:?}");
    assert_eq!(run.stderr.matches(mark).count(), 1, "{run:?}");
}

#[test]
fn a_damaged_file_is_named_and_can_be_salvaged() {
    let server = Server::start("");
    store(&server, 0);
    let path = file(&server);
    let (status, directory) = server.stop();
    assert_eq!(status.code(), Some(0));
    let mut bytes = fs::read(&path).unwrap();
    bytes[..100].fill(0x5a);
    fs::write(&path, bytes).unwrap();
    let server = Server::start_in(directory, "");
    let problem = server.json("/api/v1/status")["store"]["problems"][0].clone();
    let aside = format!("{}.corrupt-1", path.file_name().unwrap().to_string_lossy());
    assert_eq!(
        (&problem["kind"], &problem["file"]),
        (&json!("damaged"), &json!(aside)),
        "{problem}"
    );
    server.log_line("a file of the store has a problem");
    let count = || server.query("SELECT count(*) FROM flows").json();
    let answer = count();
    assert_eq!(answer["rows"], json!([[0]]));
    assert!(answer["notes"][0].as_str().unwrap().contains(&aside), "{answer}");
    for path in ["/api/v1/events", "/api/v1/rollups"] {
        let answer = server.get(path);
        assert!(
            answer.status == 200 && answer.headers.contains("hopwise-notes: [\""),
            "{answer:?}"
        );
        assert!(answer.headers.contains(&aside), "{answer:?}");
    }
    let answer = server.get("/api/v1/events?before=1000000000000000000");
    assert!(
        answer.status == 200 && !answer.headers.contains("hopwise-notes"),
        "{answer:?}"
    );
    let folder = server.path("store");
    let check = |more: &[&str]| {
        let mut words = vec![OsStr::new("store"), OsStr::new("check"), folder.as_os_str()];
        words.extend(more.iter().map(OsStr::new));
        hopwise(words)
    };
    let checked = check(&[]);
    assert_eq!(checked.code, Some(1), "{checked:?}");
    assert!(checked.stdout.contains("damaged"), "{checked:?}");
    let salvaged = check(&["--salvage", "--json"]);
    assert_eq!(salvaged.code, Some(1), "{salvaged:?}");
    let lines: Vec<Value> = salvaged
        .stdout
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let of_file = lines.iter().find(|line| line["file"] == json!(aside)).unwrap();
    assert_eq!(of_file["salvaged"]["records"]["flows"], json!(100), "{of_file}");
    assert_eq!(count()["rows"], json!([[100]]), "it is in answers again");
    assert_eq!(check(&[]).code, Some(0));
    server.wait_for("no problem", |status| status["store"]["problems"] == json!([]));
}

#[test]
fn a_file_of_state_that_is_replaced_is_named_and_never_overwritten() {
    let server = Server::start("");
    let silence = || {
        let body = json!({"filter": "node == 1", "seconds": 60}).to_string();
        server.ask(
            "POST",
            "/api/v1/alerts/silences",
            "X-Requested-By: anna\r\n",
            &body,
        )
    };
    assert_eq!(silence().status, 200);
    let path = server.path("store").join("alerts.json");
    let other = server.path("store").join("other");
    fs::write(&other, "an operator's").unwrap();
    fs::rename(&other, &path).unwrap();
    let refused = silence();
    assert_eq!(refused.status, 409, "{refused:?}");
    assert!(
        refused
            .body
            .contains("it was replaced while hopwise ran; restart hopwise"),
        "{refused:?}"
    );
    assert_eq!(fs::read_to_string(&path).unwrap(), "an operator's");
    assert_eq!(
        server.json("/api/v1/status")["replaced_files"],
        json!(["store/alerts.json"])
    );
    assert!(
        server
            .get("/metrics")
            .body
            .lines()
            .any(|line| line == "hopwise_files_replaced 1")
    );
    server.log_line("a file was replaced by something else while hopwise ran");
    // Whoever removes it wants ours.
    fs::remove_file(&path).unwrap();
    assert_eq!(silence().status, 200);
    let silences = server.json("/api/v1/alerts/silences");
    assert_eq!(
        silences["silences"].as_array().map(Vec::len),
        Some(2),
        "{silences}"
    );
}

#[test]
fn a_query_has_no_temporary_files_and_a_bound_of_memory() {
    let server = Server::start("api.query_timeout = \"2m\"");
    let answer = server.query(
        "WITH RECURSIVE r(a) AS (SELECT 1 UNION ALL SELECT a + 1 FROM r LIMIT 100000000) \
         SELECT count(DISTINCT printf('%0900d', a)) FROM r",
    );
    assert_eq!(answer.status, 400, "{answer:?}");
    assert!(
        answer.body.contains("needs more memory for what it sorts"),
        "{answer:?}"
    );
    assert_eq!(server.query("SELECT 1 AS one").json()["rows"], json!([[1]]));
}

#[test]
fn a_fifo_in_place_of_a_file_is_refused_and_a_pipe_of_the_shell_is_read() {
    let server = Server::start("");
    let (_, directory) = server.stop();
    let fifo = directory.join("fifo");
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    let key = directory.join("tls.toml");
    fs::write(
        &key,
        format!("api.tls = {{ certificate = {fifo:?}, key = {fifo:?} }}\n"),
    )
    .unwrap();
    for file in [&fifo, &key] {
        let mut child = command(["check".as_ref(), "-c".as_ref(), file.as_os_str()])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let begun = Instant::now();
        while child.try_wait().unwrap().is_none() {
            if begun.elapsed() > TIMEOUT {
                child.kill().unwrap();
                panic!("{} hangs", file.display());
            }
            thread::sleep(Duration::from_millis(10));
        }
        let output = child.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(2) && said.contains("FIFO"), "{said}");
    }
    let program = command(["check"]).get_program().to_owned();
    let piped = Command::new("bash")
        .args(["-c", "\"$0\" check -c <(echo 'collector.max_flows = 5000')"])
        .arg(program)
        .output()
        .unwrap();
    assert_eq!(piped.status.code(), Some(0), "{piped:?}");
}
