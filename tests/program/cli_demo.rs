//! `hopwise demo` and the commands that query a running hopwise: `top`, `path`, `events`.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdout, Stdio};

use serde_json::{Value, json};

use crate::support::{self, command, hopwise, schema};

/// A demo that runs until its time has expired; its output up to the end of the introduction.
struct Demo {
    child: Child,
    output: BufReader<ChildStdout>,
    introduction: String,
    api: String,
}

impl Demo {
    fn start(args: &[&str]) -> Self {
        let all = ["demo", "--listen", "127.0.0.1:0"].iter().chain(args);
        let mut child = command(all)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let mut introduction = String::new();
        while !introduction.contains("Ctrl-C ends it.\n") {
            assert!(output.read_line(&mut introduction).unwrap() > 0, "{introduction}");
        }
        let address = introduction
            .split("http://")
            .nth(1)
            .and_then(|rest| rest.split('/').next());
        let api = format!("http://{}", address.unwrap());
        Self {
            child,
            output,
            introduction,
            api,
        }
    }

    /// Ends it as Ctrl-C does.
    fn interrupt(self) -> (Option<i32>, String) {
        let pid = self.child.id().to_string();
        assert!(
            std::process::Command::new("kill")
                .args(["-INT", &pid])
                .status()
                .unwrap()
                .success()
        );
        self.end()
    }

    /// Waits for the end and returns the exit code and the output after the introduction.
    fn end(mut self) -> (Option<i32>, String) {
        let mut rest = String::new();
        self.output.read_to_string(&mut rest).unwrap();
        (self.child.wait().unwrap().code(), rest)
    }

    fn get(&self, path: &str) -> Value {
        let host = self.api.strip_prefix("http://").unwrap();
        let mut connection = std::net::TcpStream::connect(host).unwrap();
        write!(
            connection,
            "GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"
        )
        .unwrap();
        let mut answer = String::new();
        connection.read_to_string(&mut answer).unwrap();
        serde_json::from_str(answer.split("\r\n\r\n").nth(1).unwrap()).unwrap()
    }

    fn top(&self) -> Value {
        hopwise(["top", "--once", "--json", "--api", &self.api])
            .json()
            .remove(0)
    }
}

#[test]
#[expect(clippy::too_many_lines, reason = "one scenario, from start to end")]
fn every_report_of_the_demo_is_accounted_for_and_can_be_asked_about() {
    let demo = Demo::start(&[]);
    for promised in [
        "6 switches, 8 hosts, 60 flows",
        "0:05  microburst",
        "0:30  link leaf1-spine1",
        "The store is in",
    ] {
        assert!(demo.introduction.contains(promised), "{}", demo.introduction);
    }
    let store = demo
        .introduction
        .split("The store is in ")
        .nth(1)
        .unwrap()
        .lines()
        .next()
        .unwrap();
    let store = std::path::PathBuf::from(store.trim_end_matches('.'));

    // The stream lasts as long as the demo.
    let mut follow = command([
        "events",
        "--follow",
        "--json",
        "--kind",
        "drop",
        "--api",
        &demo.api,
        "--reconnect",
        "0",
    ])
    .stdout(Stdio::piped())
    .stderr(Stdio::piped())
    .spawn()
    .unwrap();

    // Traffic begins at once; the last of 60 flows after two seconds.
    let flow = patiently(|| {
        let snapshot = demo.top();
        let flows = snapshot["flows"]["flows"].as_array().unwrap().clone();
        let known = |what: &str| snapshot[what][what].as_array().unwrap().len();
        (known("nodes") == 6 && known("links") > 5).then(|| flows[0].clone())
    });
    let flow = flow.unwrap();
    assert_eq!(demo.top()["status"]["version"], json!(env!("CARGO_PKG_VERSION")));
    let text = flow["text"].as_str().unwrap();
    let path = hopwise(["path", "--json", "--api", &demo.api, text]).json();
    assert_eq!((path.len(), &path[0]["text"]), (1, &flow["text"]));
    let nodes: Vec<&Value> = path[0]["hops"]
        .as_array()
        .unwrap()
        .iter()
        .map(|hop| &hop["node"])
        .collect();
    assert_eq!(json!(nodes), path[0]["path"]);
    suggested_queries_of_the_demo_are_answered(&demo);
    let drawn = hopwise(["path", "--api", &demo.api, text]).stdout;
    assert!(drawn.lines().nth(2).unwrap().contains(" ─ leaf"), "{drawn}");
    for view in ["flows", "nodes", "links"] {
        let shown = hopwise(["top", "--once", "--view", view, "--api", &demo.api]);
        assert!(
            shown.stdout.starts_with("hopwise ") && shown.stdout.lines().count() > 5,
            "{}",
            shown.stdout
        );
    }
    flows_are_filtered(&demo, text);
    the_flows_that_filled_a_queue_are_named(&demo);
    assert!(store.is_dir());
    let mut drop = String::new();
    let mut drops = BufReader::new(follow.stdout.take().unwrap());
    drops.read_line(&mut drop).unwrap();
    let first: Value = serde_json::from_str(&drop).unwrap();
    assert_eq!((&first["kind"], &first["node"]), (&json!("drop"), &json!(201)));
    let demo_api = demo.api.clone();
    let (code, rest) = demo.interrupt();
    assert_eq!(code, Some(0), "{rest}");
    assert!(rest.contains("0:05  microburst"), "{rest}");
    assert_eq!(
        rest.matches("every one is accounted for.").count(),
        2,
        "reports, and DTA: {rest}"
    );
    // A report that is not essential, of a short flow, may be lost and counted if a process is not scheduled for seconds.
    let (_, known) = rest.split_once("The memory has the last path of ").unwrap();
    let (known, verdict) = known.split_once(' ').unwrap();
    assert!((56..=60).contains(&known.parse::<u32>().unwrap()), "{rest}");
    assert_eq!(
        verdict.trim_end(),
        "of 60 flows, and of the DTA reports every one is accounted for."
    );
    let memory = format!("/dev/shm/{}", store.file_name().unwrap().to_str().unwrap());
    assert!(!store.exists() && !std::path::Path::new(&memory).exists());

    drops.read_to_string(&mut drop).unwrap();
    let followed = follow.wait_with_output().unwrap();
    let message = format!(
        "hopwise: the live stream ended; hopwise at {} has stopped\n",
        demo_api
    );
    assert_eq!(
        (
            followed.status.code(),
            String::from_utf8(followed.stderr).unwrap()
        ),
        (Some(2), message)
    );
}

/// One flow of many, none, and a filter that is wrong.
fn flows_are_filtered(demo: &Demo, text: &str) {
    let of = |filter: &str| hopwise(["top", "--once", "--filter", filter, "--api", &demo.api]);
    assert!(of(&format!("flow == \"{text}\"")).stdout.contains("LATENCY"));
    assert!(of("proto == 1").stdout.ends_with("no flow matches\n"));
    let wrong = of("sorce == 10.0.0.1");
    assert!(
        wrong.code != Some(0) && wrong.stderr.contains("did you mean src?"),
        "{wrong:?}"
    );
}

/// The microburst of the script: four hosts send to one at once, and nobody else does much then.
fn the_flows_that_filled_a_queue_are_named(demo: &Demo) {
    let worst = patiently(|| {
        let heat = demo.get("/api/v1/queues?metric=queue_occupancy");
        let row = heat["rows"].as_array()?.first()?.clone();
        let column = row["values"]
            .as_array()?
            .iter()
            .position(|value| *value == row["worst"])? as u64;
        let from = heat["from"].as_u64()? + column * heat["column"].as_u64()?;
        let deep = row["worst"].as_u64()? > 64 << 10;
        deep.then(|| {
            (
                row["node"].clone(),
                row["queue"].clone(),
                from,
                from + heat["column"].as_u64().unwrap(),
            )
        })
    });
    let (node, queue, from, to) = worst.unwrap();
    let burst = patiently(|| {
        let path = format!("/api/v1/queues/{node}?queue={queue}&from={from}&to={to}");
        let burst = demo.get(&path);
        burst["peak"].is_u64().then_some(burst)
    });
    let burst = burst.unwrap();
    assert!(burst["measured"].as_u64() > Some(64 << 10), "{burst:#}");
    let flows = burst["flows"].as_array().unwrap();
    let of_burst = |flow: &&Value| flow["flow"]["dport"] == 9_000;
    let guilty = flows.iter().filter(of_burst).count();
    assert!(
        (2..=4).contains(&guilty) && flows.iter().take(guilty).all(|flow| of_burst(&flow)),
        "{burst:#}"
    );
    let rise: u64 = flows
        .iter()
        .take(guilty)
        .map(|flow| flow["rise"].as_u64().unwrap())
        .sum();
    assert!(rise * 4 >= burst["rise"].as_u64().unwrap() * 3, "{burst:#}");
    let recordings = demo.get("/api/v1/recordings");
    assert!(
        recordings["recorder"]["reports"].as_u64().unwrap() > 0,
        "{recordings:#}"
    );
    assert!(
        !recordings["recordings"].as_array().unwrap().is_empty(),
        "{recordings:#}"
    );
}

/// Each change at the manager is a message of its stream, as the OpenAPI document says.
#[test]
fn the_progress_of_an_intent_is_streamed() {
    let demo = Demo::start(&[]);
    let document = demo.get("/api/v1/openapi.json");
    let host = demo.api.strip_prefix("http://").unwrap();
    let mut stream = std::net::TcpStream::connect(host).unwrap();
    stream
        .set_read_timeout(Some(std::time::Duration::from_secs(60)))
        .unwrap();
    write!(
        stream,
        "GET /api/v1/domain/stream HTTP/1.1\r\nHost: {host}\r\n\r\n"
    )
    .unwrap();
    let mut lines = BufReader::new(stream).lines().map(Result::unwrap);
    let mut next = || loop {
        let kind = lines.find(|line| line.starts_with("event: ")).unwrap();
        let data = lines.next().unwrap();
        let change: Value = serde_json::from_str(data.strip_prefix("data: ").unwrap()).unwrap();
        schema::check(
            &document,
            &json!({"$ref": "#/components/schemas/ManagerChange"}),
            &change,
            "stream",
        );
        assert_eq!(
            Some(&change["kind"]),
            kind.strip_prefix("event: ").map(|kind| json!(kind)).as_ref()
        );
        // Figures are repeated.
        if change["kind"] != "intent" || change["change"]["name"] == "all" {
            return change;
        }
    };
    let devices = demo.get("/api/v1/devices")["devices"].as_array().unwrap().len();
    let of = |change: &Value| (change["kind"].clone(), change["change"]["name"].clone());
    // It begins with all states.
    let first: Vec<_> = std::iter::repeat_with(&mut next)
        .take_while(|change| change["kind"] != "domain")
        .collect();
    let known = first.iter().filter(|change| change["kind"] == "device").count();
    assert_eq!((known, devices), (6, 6), "{first:?}");
    let add = [
        "intent",
        "add",
        "all",
        "--watch",
        "flow_path,link_utilization",
        "--json",
        "--api",
        &demo.api,
    ];
    let added: Value = serde_json::from_str(&hopwise(add).stdout).unwrap();
    assert!(
        matches!(added["intents"][0]["state"].as_str(), Some("seen" | "complete")),
        "{added:?}"
    );
    let mut seen = Vec::new();
    while !seen.iter().any(|(kind, name, state): &(Value, Value, Value)| {
        *kind == "intent" && *name == "all" && *state == "complete"
    }) {
        let change = next();
        let (kind, name) = of(&change);
        seen.push((kind, name, change["change"]["state"].clone()));
        if change["kind"] == "history" && change["change"]["subject"] == "all" {
            assert_eq!(change["change"]["action"], "add");
        }
    }
    let kinds: std::collections::BTreeSet<_> = seen.iter().map(|(kind, ..)| kind.as_str().unwrap()).collect();
    // A device may have everything before its state is compared again.
    assert!(
        ["history", "intent"].iter().all(|kind| kinds.contains(kind)),
        "{seen:?}"
    );
    // A name that is taken is replaced only if that is said.
    let again = hopwise(add);
    assert!(
        again.code != Some(0) && again.stderr.contains("there is an intent `all` already"),
        "{}",
        again.stderr
    );
    let before = demo.get("/api/v1/intents/all")["etag"].clone();
    let replaced = hopwise(add.iter().chain(&["--replace", "--wait", "0"]));
    assert_eq!(replaced.code, Some(0), "{}", replaced.stderr);
    assert_ne!(demo.get("/api/v1/intents/all")["etag"], before);
    hopwise(["intent", "rm", "all", "--api", &demo.api]);
    while of(&next()) != (json!("removed"), json!("all")) {}
    assert_eq!(demo.interrupt().0, Some(0));
}

/// Retries until there is an answer, for a minute.
fn patiently<T>(ask: impl FnMut() -> Option<T>) -> Option<T> {
    let start = std::time::Instant::now();
    std::iter::repeat_with(ask)
        .take_while(|_| start.elapsed().as_secs() < 60)
        .flatten()
        .next()
}

/// Runs every query that the demo prints, unchanged, until it has an answer.
fn suggested_queries_of_the_demo_are_answered(demo: &Demo) {
    let questions: Vec<Vec<String>> = (demo.introduction.lines())
        // The program is named by its path if it is not on PATH.
        .filter_map(|line| line.strip_prefix("  ").filter(|line| !line.starts_with(' ')))
        .filter_map(|line| Some(line.split_once("hopwise ")?.1))
        .map(|line| {
            line.split(' ')
                .filter(|word| *word != "--follow")
                .map(|word| word.replace('\'', ""))
                .collect()
        })
        .collect();
    let commands: Vec<&str> = questions.iter().map(|words| words[0].as_str()).collect();
    assert_eq!(
        commands,
        ["get", "get", "count", "sketch", "tail", "tail", "tail"],
        "{}",
        demo.introduction
    );
    let answers: Vec<Value> = (questions.iter())
        .map(|words| {
            let asked = || hopwise(words.iter().map(String::as_str).chain(["--json"]));
            // A sketch after its first two seconds, long queues and losses after five; estimates grow with the packets that were sent.
            let grown = |answer: &Value| match words[0].as_str() {
                "count" => answer["estimate"].as_u64() > Some(100),
                "sketch" => answer["estimate"].as_f64() > Some(10.0),
                _ => true,
            };
            let answered =
                |run: &support::Run| run.code == Some(0) && !run.stdout.is_empty() && grown(&run.json()[0]);
            let run = patiently(|| Some(asked()).filter(answered));
            run.unwrap_or_else(|| panic!("{words:?}: {}", asked().stderr))
                .json()
                .remove(0)
        })
        .collect();
    let flow = &questions[0][2];
    let path = hopwise(["path", "--json", "--api", &demo.api, flow])
        .json()
        .remove(0);
    let mut nodes = path["path"].as_array().unwrap().clone();
    assert_eq!(nodes.len(), 3, "{path}");
    assert_eq!(
        answers[1]["path"].as_array().map(Vec::len),
        Some(3),
        "a latency for each hop: {}",
        answers[1]
    );
    nodes.resize(5, json!(0));
    assert_eq!(answers[0]["fields"]["path"], json!(nodes), "the path of {flow}");
    let latency = answers[0]["fields"]["latency"].as_u64();
    assert!(
        latency.is_some_and(|latency| (1_000..1_000_000_000).contains(&latency)),
        "{}",
        answers[0]
    );
    assert!(answers[4]["fields"]["nodes"].as_u64() > Some(0), "{}", answers[4]);
    assert_eq!(
        answers[5]["fields"]["node"],
        json!(201),
        "the queue to h8 is long at the spine"
    );
    assert_eq!(
        answers[6]["fields"]["reason"],
        json!(71),
        "a full queue: {}",
        answers[6]
    );
    let answer = demo.get("/api/v1/rates");
    assert!(
        answer["rates"]
            .as_array()
            .unwrap()
            .iter()
            .any(|then| then["reports"].as_f64() > Some(1_000.0)),
        "{answer}"
    );
}

#[test]
fn an_interrupted_demo_ends_with_its_account_and_keeps_its_store() {
    let dir = support::TempDir::new();
    let store = dir.join("store");
    let demo = Demo::start(&["--store", support::text(&store), "--seed", "3"]);
    // Some flows are between hosts of one leaf, whose single node must report for longer before this is a path.
    while demo.top()["flows"]["total"].as_u64() < Some(25) {}
    let (code, rest) = demo.interrupt();
    assert_eq!(code, Some(0), "{rest}");
    assert!(rest.trim_end().ends_with("every one is accounted for."), "{rest}");
    let asked = hopwise([
        "events",
        "--dir",
        support::text(&store),
        "--kind",
        "new",
        "--metric",
        "flow_path",
        "--json",
    ]);
    assert!(asked.json().len() >= 10);
}

#[test]
fn a_demo_ends_when_its_time_is_over() {
    let (code, rest) = Demo::start(&["--for", "1", "--no-store"]).end();
    assert_eq!(code, Some(0), "{rest}");
    assert!(rest.contains("After 0:01"), "{rest}");
}

#[test]
fn follow_waits_for_reconnection() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let server = std::thread::spawn(move || {
        // A server that stops, is started again, and stops for good.
        for ts in 1..=2 {
            let (connection, _) = listener.accept().unwrap();
            let mut lines = BufReader::new(&connection).lines();
            while !lines.next().unwrap().unwrap().is_empty() {}
            let event = json!({"ts": ts, "kind": "drop"});
            let head = "HTTP/1.1 200 OK\r\n\r\n";
            (&connection)
                .write_all(format!("{head}data: {event}\n\n").as_bytes())
                .unwrap();
        }
    });
    let run = hopwise(["events", "--follow", "--json", "--reconnect", "1", "--api", &url]);
    server.join().unwrap();
    let times: Vec<Value> = run.json().iter().map(|event| event["ts"].clone()).collect();
    assert_eq!((run.code, times), (Some(2), vec![json!(1), json!(2)]));
    let lost = format!("hopwise: the live stream ended; waiting 1 s for hopwise at {url}");
    let message = format!(
        "{lost}\nhopwise: reconnected to {url}; `hopwise events` lists the events in between\n{lost}\nhopwise: the live \
         stream ended, and hopwise at {url} was not back after 1 s; start it again\n"
    );
    assert_eq!(run.stderr, message);
}

#[test]
fn without_a_running_hopwise_the_message_says_how_to_start_one() {
    // A port that was free a moment ago.
    let free = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    for args in [
        vec!["top", "--once"],
        vec!["path", "x"],
        vec!["events"],
        vec!["events", "--follow"],
    ] {
        let run = hopwise(args.iter().copied().chain(["--api", &format!("http://{free}")]));
        assert_eq!((run.code, run.stdout.as_str()), (Some(2), ""), "{args:?}");
        assert!(
            run.stderr.starts_with("hopwise: cannot reach hopwise at ")
                && run.stderr.contains(&free.to_string()),
            "{}",
            run.stderr
        );
        assert!(run.stderr.contains("`hopwise demo`"), "{}", run.stderr);
    }
    assert_eq!(hopwise(["top", "--api", "https://x"]).code, Some(2));
    assert_eq!(hopwise(["events", "--kind", "drops"]).code, Some(2));
    assert_eq!(
        hopwise(["demo", "--listen", "0.0.0.0:0", "--no-store"]).code,
        Some(2)
    );
}

#[test]
fn a_demo_may_begin_with_a_past() {
    let dir = support::TempDir::new();
    let store = dir.join("store");
    // The past begins one minute before the demo, which begins later than this.
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let past = since.unwrap().as_nanos() as u64 - 60_000_000_000;
    let demo = Demo::start(&["--past", "1", "--store", support::text(&store), "--seed", "5"]);
    assert!(
        demo.introduction
            .starts_with("Simulating 1 minute of history at full speed;"),
        "{}",
        demo.introduction
    );
    let now = demo.get("/api/v1/status")["now"].as_u64().unwrap();
    // The link failed before this collector began: it goes on with what was known of links.
    let losses = demo.get(&format!("/api/v1/losses?from={past}&to={now}"));
    let down: Vec<_> = losses["drops"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|one| one["reason_name"] == "link_down")
        .collect();
    assert!(
        down.len() > 1 && down.iter().all(|one| one["to"].is_u64()),
        "{losses}"
    );
    let (code, rest) = demo.interrupt();
    assert_eq!(code, Some(0), "{rest}");
    // The collector began while datagrams were in flight, and lost none of them.
    assert!(rest.contains("every one is accounted for."), "{rest}");
    let statement = "SELECT min(ts), max(ts), count(*) FROM events WHERE kind = 'path_change'";
    let asked = hopwise([
        "query",
        "--format",
        "json",
        "--dir",
        support::text(&store),
        statement,
    ])
    .json()
    .remove(0);
    let [first, last, count] = ["min(ts)", "max(ts)", "count(*)"].map(|name| asked[name].as_u64().unwrap());
    // A link fails in second 30 of each simulated minute and is restored in second 38.
    assert!(
        first > past && last < now && count > 10,
        "{past} {first} {last} {now} {count}"
    );
    assert!(last - first > 7_000_000_000, "{first} {last}");
}

#[test]
fn a_port_that_is_taken_while_the_past_is_simulated_is_replaced() {
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = free.local_addr().unwrap().to_string();
    drop(free);
    let mut child = command(["demo", "--listen", &address, "--past", "1", "--for", "1"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut output = BufReader::new(child.stdout.take().unwrap());
    let mut text = String::new();
    assert!(output.read_line(&mut text).unwrap() > 0);
    assert!(text.starts_with("Simulating 1 minute"), "{text}");
    let _taken = std::net::TcpListener::bind(&address).unwrap();
    output.read_to_string(&mut text).unwrap();
    let hint = format!("({address} is in use by another program; --listen chooses another address.)\n");
    assert!(text.contains(&hint), "{text}");
    let mut progress = String::new();
    child
        .stderr
        .take()
        .unwrap()
        .read_to_string(&mut progress)
        .unwrap();
    assert!(progress.contains("simulated 0 of 1 minutes"), "{progress}");
    assert_eq!(child.wait().unwrap().code(), Some(0), "{text}{progress}");
}
