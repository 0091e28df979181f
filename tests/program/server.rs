//! The whole program over real sockets: reports go in by UDP, answers come out by HTTP, and the numbers add up.

use std::{io::BufRead, net::UdpSocket};

use serde_json::{Value, json};

use crate::support::server::{self, Server, assert_balanced, dropped, report, run, stage};
use crate::support::{TempDir, schema, skipped};

/// A flow without the ages of its hops' values: a second may pass between two requests.
fn without_ages(mut flow: Value) -> Value {
    for hop in flow["hops"].as_array_mut().unwrap() {
        for age in ["latest_queue_age_s", "latest_link_age_s"] {
            hop[age].take();
        }
    }
    flow
}

/// Thresholds that report every change of 50 µs.
const RULES: &str =
    "[[rules]]\nname = \"slow\"\nwhen = \"flow_latency > 500us\"\n[nodes]\n101 = \"leaf 1\"\n";

#[test]
fn reports_become_flows_events_rollups_and_rows() {
    let server = Server::start(RULES);
    let calm = (0..10).map(|seq| report(seq, 5000, [1_000, 2_000, 3_000]));
    server.send(calm.chain([report(10, 5000, [1_000, 900_000, 3_000])]));
    server.settled(11);

    let flows = server.json("/api/v1/flows?limit=5&sort=latency");
    assert_eq!(
        (&flows["total"], flows["flows"].as_array().unwrap().len()),
        (&json!(1), 1)
    );
    let age = server.json("/api/v1/status")["now"].as_u64().unwrap() - flows["as_of"].as_u64().unwrap();
    assert!(age < 60_000_000_000, "{age} ns");
    let flow = &flows["flows"][0];
    assert_eq!(flow["text"], "10.0.0.1:5000>10.0.0.2:80/17");
    assert_eq!(
        flow["flow"],
        json!({"src": "10.0.0.1", "dst": "10.0.0.2", "sport": 5000, "dport": 80, "proto": 17})
    );
    assert_eq!(
        (&flow["path"], &flow["flow_latency"]),
        (&json!([101, 102, 103]), &json!(904_000))
    );
    assert_eq!(
        (&flow["basis"], &flow["reports"]),
        (&json!("hop_sum"), &json!(11))
    );

    let detail = |name: &str| without_ages(server.json(&format!("/api/v1/flows/{name}")));
    let by_id = detail(flow["id"].as_str().unwrap());
    assert_eq!(by_id, detail("10.0.0.1:5000%3E10.0.0.2:80%2F17"));
    assert_eq!(
        (&by_id["path_length"], &by_id["truncated"]),
        (&json!(3), &json!(false))
    );
    let second = &by_id["hops"][1];
    assert_eq!(
        (&second["node"], &second["hop_latency"], &second["queue"]),
        (&json!(102), &json!(900_000), &json!(3))
    );
    assert_eq!(
        (&second["queue_occupancy"], &second["link_utilization"]),
        (&json!(900), &json!(0.25))
    );
    let latest = (
        &second["latest_queue_occupancy"],
        &second["latest_link_utilization"],
    );
    assert_eq!(latest, (&json!(900), &json!(0.25)));

    let nodes = server.json("/api/v1/nodes");
    let first = &nodes["nodes"][0];
    assert_eq!(
        (&first["node"], &first["name"], &first["reports"]),
        (&json!(101), &json!("leaf 1"), &json!(11))
    );
    assert_eq!(
        first["queues"],
        json!([{"queue": 3, "interface": 2, "occupancy": 1, "max": 1, "unit": "bytes"}])
    );
    let links = server.json("/api/v1/links");
    let ends: Vec<_> = links["links"]
        .as_array()
        .unwrap()
        .iter()
        .map(|link| (link["from"].clone(), link["to"].clone()))
        .collect();
    assert_eq!(ends, [(json!(101), json!(102)), (json!(102), json!(103))]);
    let paths = server.json("/api/v1/paths");
    assert_eq!(
        paths,
        json!({"paths": [{"path": [101, 102, 103], "flows": 1, "reports": 11}], "next": null})
    );

    let on = server.json("/api/v1/events?kind=rule_on");
    assert_eq!(
        (on["events"].as_array().unwrap().len(), &on["events"][0]["rule"]),
        (1, &json!("slow"))
    );
    let changed = server.json("/api/v1/events?kind=change&node=102&metric=hop_latency");
    let event = &changed["events"][0];
    assert_eq!(
        (&event["value"], &event["previous"], &event["threshold"]),
        (&json!(900_000), &json!(2_000), &json!(50_000))
    );
    filters_select(&server);
    let table = server
        .query("SELECT kind, count(*) FROM events WHERE metric = 'flow_path' GROUP BY kind")
        .json();
    assert_eq!(
        (&table["columns"], &table["rows"]),
        (&json!(["kind", "count(*)"]), &json!([["new", 1]]))
    );
}

/// The same conditions select flows as they are now and stored events; a wrong one is refused with its place.
fn filters_select(server: &Server) {
    let encoded = |text: &str| {
        text.bytes()
            .map(|byte| format!("%{byte:02x}"))
            .collect::<String>()
    };
    for (text, flows, events) in [
        ("src in 10.0.0.0/24 and dport == 80", 1, 1),
        ("src in 10.1.0.0/16", 0, 0),
        ("path ~ 101>*>103", 1, 0),
        ("node == \"leaf 1\"", 1, 0),
        ("hop_latency > 899us", 1, 1),
        ("queue_occupancy > 900 or hop_latency < 900us", 0, 0),
        ("flow_latency == 904us and not proto == tcp", 1, 0),
        ("10.0.0.1:5000", 1, 1),
    ] {
        let flows_found = server.json(&format!("/api/v1/flows?filter={}", encoded(text)));
        assert_eq!(flows_found["total"], json!(flows), "{text}");
        let path = format!(
            "/api/v1/events?kind=change&metric=hop_latency&filter={}",
            encoded(text)
        );
        let found = server.json(&path);
        assert_eq!(
            (found["events"].as_array().unwrap().len(), &found["next"]),
            (events, &json!(null)),
            "{text}"
        );
    }
    for (view, text, message) in [
        (
            "flows",
            "kind == drop",
            "the filter is wrong at character 1: kind is a field of events, not of flows",
        ),
        (
            "events",
            "node == \"spine 9\"",
            "the filter is wrong at character 9: no node has the name \"spine 9\"; write an id such as 101, or a name of the inventory",
        ),
    ] {
        let refused = server.get(&format!("/api/v1/{view}?filter={}", encoded(text)));
        assert_eq!((refused.status, &refused.json()["error"]), (400, &json!(message)));
    }
    let help = server.json(&format!(
        "/api/v1/filter?view=flows&text={}&at=8",
        encoded("node == le")
    ));
    assert_eq!(
        help["completions"],
        json!([{"from": 8, "text": "\"leaf 1\"", "about": "node"}])
    );
    assert_eq!(help["fault"]["position"], json!(8));
}

#[test]
fn methods_and_hosts_that_browsers_never_send_are_refused() {
    let server = Server::start("");
    for (method, path, status) in [
        ("GET", "/", 200),
        ("HEAD", "/", 200),
        ("TRACE", "/", 405),
        ("POST", "/", 405),
        ("OPTIONS", "*", 405),
        ("CONNECT", "example.org:80", 405),
        ("TRACE", "/api/v1/status", 405),
        ("POST", "/api/v1/nothing", 404),
        ("DELETE", "/api/v1/status/nothing", 404),
        ("GET", "/metrics/", 404),
        ("GET", "//api/v1/status", 404),
    ] {
        let answer = server.ask(method, path, &format!("Host: {}\r\n", server.api), "");
        assert_eq!(answer.status, status, "{method} {path}: {answer:?}");
    }
    let hosts = format!("Host: {0}\r\nHost: {0}\r\n", server.api);
    let twice = server.ask("GET", "/api/v1/status", &hosts, "");
    assert_eq!(twice.status, 400, "{twice:?}");
}

/// The system's files have a name for 127.0.0.1, if nothing else.
#[test]
fn hosts_that_are_asked_for_get_names_by_dns() {
    if std::fs::read_to_string("/etc/hosts").is_ok_and(|hosts| !hosts.contains("127.0.0.1")) {
        return skipped("names by DNS: /etc/hosts has no 127.0.0.1");
    }
    let server =
        Server::start("names.dns = true\n[[inventory.hosts]]\nname = \"h2\"\naddresses = [\"10.0.0.2\"]\n");
    let mut datagram = report(0, 5000, [1_000, 2_000, 3_000]);
    let source = datagram
        .windows(4)
        .position(|bytes| bytes == [10, 0, 0, 1])
        .unwrap();
    datagram[source..source + 4].copy_from_slice(&[127, 0, 0, 1]);
    server.send([datagram]);
    server.settled(1);
    let hosts = || server.json("/api/v1/names")["hosts"].as_array().unwrap().clone();
    let h2 = json!({"address": "10.0.0.2", "name": "h2", "origin": "file"});
    // Nobody has asked for the flow.
    assert_eq!(hosts(), std::slice::from_ref(&h2));
    assert_eq!(server.json("/api/v1/flows")["total"], json!(1));
    let found = loop {
        if let [first, second] = &hosts()[..] {
            break (first.clone(), second.clone());
        }
    };
    let local = json!({"address": "127.0.0.1", "name": found.1["name"], "origin": "dns"});
    assert_eq!(found, (h2, local));
    assert!(found.1["name"].is_string());
    let metrics = server.get("/metrics").body;
    assert!(
        metrics.contains("\nhopwise_dns_lookups_total{result=\"found\"} "),
        "{metrics}"
    );
}

#[test]
fn reports_of_senders_that_are_not_allowed_are_refused_and_nothing_else() {
    for workers in [1, 2] {
        let found = |allow: &str| {
            let server = Server::start(&format!(
                "collector.workers = {workers}\nstore.reports = true\ncollector.allow = [{{ {allow} }}]"
            ));
            server.send((0..5).map(|seq| report(seq * 1000, 5000, [1, 2, 3])));
            let status = server.settled(5);
            assert_balanced(&status);
            let flows = server.json("/api/v1/flows")["total"].clone();
            let rows = server.query("SELECT count(*) FROM reports").json()["rows"][0][0].clone();
            (stage(&status, "decode")["drops"].clone(), flows, rows)
        };
        let refused = |reason: &str| (json!({reason: 5}), json!(0), json!(0));
        assert_eq!(
            found("from = [\"10.0.0.0/8\", \"::/0\"]"),
            refused("sender_not_allowed"),
            "{workers}"
        );
        assert_eq!(
            found("from = [\"127.0.0.1\"], nodes = [\"100-102\"]"),
            refused("node_not_allowed"),
            "{workers}"
        );
        let accepted = (json!({}), json!(1), json!(15));
        assert_eq!(
            found("from = [\"127.0.0.1\"], nodes = [103]"),
            accepted,
            "{workers}"
        );
    }
}

#[test]
fn every_answer_is_as_the_openapi_document_says() {
    let server = Server::start(RULES);
    server.send([
        report(0, 1, [1, 2, 3]),
        report(2, 2, [1, 2, 600_000]),
        vec![0xff; 40],
    ]);
    server.settled(3);
    let document = server.json("/api/v1/openapi.json");
    let id = server.json("/api/v1/flows")["flows"][0]["id"]
        .as_str()
        .unwrap()
        .to_owned();
    let mut asked = 0;
    for (path, methods) in document["paths"].as_object().unwrap() {
        let real = path.replace("{id}", &id).replace("{node}", "2");
        let schema =
            |method: &str| &methods[method]["responses"]["200"]["content"]["application/json"]["schema"];
        let answer = match path.as_str() {
            "/api/v1/events/stream" | "/metrics" | "/healthz" => continue,
            // Changes; the tests of alerts check their answers.
            path if path.starts_with("/api/v1/alerts/") && methods.get("get").is_none() => continue,
            // Paths of roles that this server does not have; the tests of these roles check their answers.
            path if [
                "/api/v1/switch",
                "/api/v1/translator",
                "/api/v1/aggregator",
                "/api/v1/reporter",
                "/api/v1/dta",
                "/api/v1/intents",
                "/api/v1/devices",
                "/api/v1/plan",
                "/api/v1/domain",
            ]
            .iter()
            .any(|role| path.starts_with(role)) =>
            {
                assert!(server.get(path).status >= 400, "{path}");
                continue;
            }
            "/api/v1/query" => server.query("SELECT * FROM events").json(),
            "/api/v1/config/reload" => server.ask("POST", path, "", "").json(),
            _ => server.json(&real),
        };
        let method = if methods.get("get").is_some() {
            "get"
        } else {
            "post"
        };
        schema::check(&document, schema(method), &answer, path);
        asked += 1;
    }
    assert_eq!(asked, 29);
    let refused = server.get("/api/v1/flows?sort=colour");
    assert_eq!(refused.status, 400);
    schema::check(
        &document,
        &json!({"$ref": "#/components/schemas/Error"}),
        &refused.json(),
        "error",
    );
}

#[test]
fn every_datagram_is_accounted_for() {
    let server = Server::start("collector.max_flows = 64");
    let good = report(0, 1, [1, 2, 3]);
    let mut datagrams: Vec<Vec<u8>> = (0..2_000)
        .map(|seq| report(seq, (seq % 500) as u16, [1, 2, seq * 1000]))
        .collect();
    datagrams.extend((0..good.len()).map(|length| good[..length].to_vec()));
    datagrams.extend((0..500_u32).map(|seed| (0..seed % 300).map(|i| (seed * 31 + i * 7) as u8).collect()));
    // Every tenth of these is missing in the sequence.
    datagrams.extend(
        (2_000..3_000)
            .filter(|seq| seq % 10 != 0)
            .map(|seq| report(seq, 1, [1, 2, 3])),
    );
    server.send(&datagrams);
    let status = server.settled(datagrams.len() as u64);
    assert_balanced(&status);
    let refused: u64 = status["refused"]
        .as_object()
        .unwrap()
        .values()
        .map(|count| count.as_u64().unwrap())
        .sum();
    assert!(refused >= 500, "{status:#}");
    assert!(dropped(&status, "decode") >= 500, "{status:#}");
    let flows = &status["tables"][0];
    let turned_away = flows["evicted"].as_u64().unwrap() + flows["refused"].as_u64().unwrap();
    assert!(
        flows["used"].as_u64() <= flows["capacity"].as_u64() && turned_away > 0,
        "{flows}"
    );
    assert_eq!(stage(&status, "kernel")["in"], datagrams.len());
}

#[test]
fn a_full_queue_sheds_and_counts() {
    // A batch holds 1,024 records of a kind; every report below emits at least four events, and the store's queue holds one batch.
    let server = Server::start(
        "collector.batch = 1024\ncollector.result_queue = \"1 MiB\"\nstore.queue = \"1 MiB\"\nthresholds.flow_latency = 0\nthresholds.hop_latency = 0",
    );
    // How many reports fill the queue depends on the machine, which writes meanwhile.
    let round = 40_000_u32;
    for begin in (0..10).map(|number| number * round) {
        let report_of = |seq: u32| {
            report(
                seq,
                (seq % 64) as u16,
                [seq * 7 % 9_000, seq * 5 % 9_000, seq % 9_000],
            )
        };
        let datagrams: Vec<Vec<u8>> = (begin..begin + round).map(report_of).collect();
        server.send(&datagrams);
        let status = server.settled(u64::from(begin + round));
        assert_balanced(&status);
        if dropped(&status, "queue") + dropped(&status, "store") > 0 {
            return;
        }
    }
    panic!("nothing was shed");
}

#[test]
fn several_workers_share_one_reporter_and_lose_nothing_unseen() {
    let server = Server::start("collector.workers = 3\ncollector.worker_queue = \"1 MiB\"");
    let datagrams: Vec<Vec<u8>> = (0..20_000_u32)
        .filter(|seq| seq % 100 != 50)
        .map(|seq| report(seq, (seq % 1_000) as u16, [1, 2, 3]))
        .collect();
    server.send(&datagrams);
    let status = server.settled(datagrams.len() as u64);
    assert_balanced(&status);
    let shares: Vec<u64> = status["workers"]
        .as_array()
        .unwrap()
        .iter()
        .map(|worker| worker["datagrams"].as_u64().unwrap())
        .collect();
    assert!(
        shares.len() == 3 && shares.iter().all(|share| *share > 0),
        "{shares:?}"
    );
    let taken = stage(&status, "fanout")["out"].as_u64().unwrap();
    assert_eq!(shares.iter().sum::<u64>(), taken);
    if dropped(&status, "fanout") == 0 && dropped(&status, "kernel") == 0 {
        assert_eq!(server.json("/api/v1/flows")["total"], 990);
    }
    let sources = server.wait_for("lost 199 or more", |status| {
        status["sources"][0]["lost"].as_u64() >= Some(199)
    });
    assert_eq!(sources["sources"].as_array().unwrap().len(), 1);
}

#[test]
fn every_report_is_stored_on_request() {
    let server = Server::start("store.reports = true");
    server.send([
        report(0, 1, [10, 20, 30]),
        vec![1; 20],
        report(1, 1, [11, 21, 31]),
    ]);
    let status = server.settled(3);
    assert_balanced(&status);
    let table = server
        .query("SELECT sequence, node, hop_latency FROM reports ORDER BY sequence, hop")
        .json();
    let rows = json!([
        [0, 101, 10],
        [0, 102, 20],
        [0, 103, 30],
        [1, 101, 11],
        [1, 102, 21],
        [1, 103, 31]
    ]);
    assert_eq!(table["rows"], rows, "{table}");
}

#[test]
fn the_live_stream_sends_events() {
    let server = Server::start("");
    let mut events = server.stream("/api/v1/events/stream?kind=new&flow=10.0.0.1:7%3E10.0.0.2:80/17");
    server.send([report(0, 6, [1, 2, 3]), report(1, 7, [1, 2, 3])]);
    let event: Value = loop {
        let mut line = String::new();
        events.read_line(&mut line).unwrap();
        if let Some(data) = line.strip_prefix("data: ") {
            break serde_json::from_str(data).unwrap();
        }
    };
    assert_eq!(
        (&event["kind"], &event["text"]),
        (&json!("new"), &json!("10.0.0.1:7>10.0.0.2:80/17"))
    );
    let document = server.json("/api/v1/openapi.json");
    schema::check(
        &document,
        &json!({"$ref": "#/components/schemas/Event"}),
        &event,
        "stream",
    );
}

#[test]
fn a_slow_reader_of_the_live_stream_is_notified_of_losses() {
    let server = Server::start("api.stream_queue = 1\napi.max_streams = 1");
    let mut events = server.stream("/api/v1/events/stream");
    let second = server.get("/api/v1/events/stream");
    assert_eq!(
        (
            second.status,
            second.json()["error"].as_str().unwrap().contains("max_streams")
        ),
        (503, true)
    );
    server.send((0..500).map(|seq| report(seq, seq as u16, [1, 2, 3])));
    let mut line = String::new();
    while line != "event: shed\n" {
        line.clear();
        events.read_line(&mut line).unwrap();
    }
    line.clear();
    events.read_line(&mut line).unwrap();
    let notice: Value = serde_json::from_str(line.strip_prefix("data: ").unwrap()).unwrap();
    assert!(notice["shed"].as_u64() > Some(0), "{notice}");
}

#[test]
fn without_the_token_every_request_is_rejected() {
    let server = Server::start("api.token = \"0123456789abcdef\"");
    for path in [
        "/api/v1/status",
        "/api/v1/events/stream",
        "/api/v1/config",
        "/api/v1/openapi.json",
        "/metrics",
    ] {
        let refused = server.get(path);
        assert_eq!(refused.status, 401, "{path}");
        assert!(
            refused.headers.contains("www-authenticate: Bearer"),
            "{refused:?}"
        );
    }
    let bearer = server.ask(
        "GET",
        "/api/v1/status",
        "Authorization: Bearer 0123456789abcdef\r\n",
        "",
    );
    assert_eq!(bearer.status, 200);
    assert_eq!(server.get("/api/v1/status?token=0123456789abcdef").status, 200);
    assert_eq!(
        (server.get("/healthz").status, server.get("/").status),
        (200, 200)
    );
    let config = server.get("/api/v1/config?token=0123456789abcdef");
    assert!(
        !config.body.contains("0123456789abcdef") && config.body.contains("(hidden)"),
        "{config:?}"
    );
}

#[test]
fn a_reload_that_removes_a_token_ends_its_streams() {
    let tokens = |names: &[&str]| {
        let each = names.iter().map(|name| {
            format!(
                "[[api.tokens]]\nname = \"{name}\"\ntoken = \"{name}-0123456789abcdef\"\nrole = \"read\"\n"
            )
        });
        format!("api.token = \"0123456789abcdef\"\n{}", each.collect::<String>())
    };
    let server = Server::start(&tokens(&["anna", "otto"]));
    let stream = |token: &str| server.stream(&format!("/api/v1/events/stream?token={token}"));
    let mut removed = stream("anna-0123456789abcdef");
    let mut kept = stream("otto-0123456789abcdef");
    server.reconfigure(&tokens(&["otto"]));
    let reload = "Authorization: Bearer 0123456789abcdef\r\n";
    assert_eq!(
        server.ask("POST", "/api/v1/config/reload", reload, "").status,
        200
    );
    // The last chunk of its response.
    let mut line = String::new();
    while line != "0\r\n" {
        line.clear();
        assert_ne!(
            removed.read_line(&mut line).unwrap(),
            0,
            "the last chunk is missing"
        );
    }
    server.send([report(1, 7, [1, 2, 3])]);
    while !line.starts_with("data: ") {
        line.clear();
        kept.read_line(&mut line).unwrap();
    }
}

/// A server with a manager, and three tokens.
fn with_roles() -> Server {
    Server::start(
        "[[api.tokens]]\ntoken = \"anna-reads-0123456\"\nname = \"anna\"\n\
         [[api.tokens]]\ntoken = \"otto-operates-0123\"\nname = \"otto\"\nrole = \"operate\"\n\
         [manager]\n[[inventory.devices]]\nname = \"s1\"\naddress = \"127.0.0.1:9\"\nports = 2\n",
    )
}

#[test]
fn a_token_that_may_only_read_changes_nothing() {
    let server = with_roles();
    let ask = |method: &str, path: &str, token: &str, body: &str| {
        server.ask(method, path, &format!("Authorization: Bearer {token}\r\n"), body)
    };
    let document = ask("GET", "/api/v1/openapi.json", "anna-reads-0123456", "").json();
    let mut refused = Vec::new();
    for (path, methods) in document["paths"].as_object().unwrap() {
        for (method, operation) in methods.as_object().unwrap() {
            if path.ends_with("/stream") {
                continue;
            }
            let real = path
                .replace("{number}", "1")
                .replace("{id}", "1")
                .replace("{name}", "s1");
            let answer = ask(&method.to_uppercase(), &real, "anna-reads-0123456", "");
            assert_ne!(answer.status, 401, "{method} {path}");
            assert_eq!(
                operation["security"].is_array(),
                answer.status == 403,
                "{method} {path}: {answer:?}"
            );
            if answer.status == 403 {
                refused.push(format!("{method} {path}"));
                let why = "this token may only read; use one with role = \"operate\" in [[api.tokens]] to change something";
                assert_eq!(answer.json(), json!({"error": why}));
            } else {
                assert!(
                    method == "get"
                        || ["/api/v1/query", "/api/v1/intents/plan", "/api/v1/alerts/try"]
                            .contains(&path.as_str())
                );
            }
        }
    }
    // The paths of other roles are refused before it is known whether this process has the role.
    assert_eq!(refused.len(), 19, "{refused:#?}");
    for method in ["POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "BREW"] {
        let path = if method == "POST" {
            "/api/v1/query/"
        } else {
            "/api/v1/query"
        };
        assert_eq!(
            ask(method, path, "anna-reads-0123456", "").status,
            403,
            "{method}"
        );
    }
    let operating = ask("POST", "/api/v1/domain/stop", "otto-operates-0123", "");
    assert_eq!(operating.status, 200, "{operating:?}");
}

#[test]
fn a_session_is_what_the_token_says() {
    let server = with_roles();
    let session = |token: &str| server.get(&format!("/api/v1/session?token={token}")).json();
    assert_eq!(
        session("anna-reads-0123456"),
        json!({"role": "read", "name": "anna", "needs_token": true, "console": false})
    );
    assert_eq!(
        session("otto-operates-0123"),
        json!({"role": "operate", "name": "otto", "needs_token": true, "console": false})
    );
    assert_eq!(server.get("/api/v1/session").status, 401);
    // Whoever has a token cannot act under another name.
    let claims = "Authorization: Bearer otto-operates-0123\r\nX-Requested-By: anna\r\n";
    assert_eq!(server.ask("POST", "/api/v1/domain/stop", claims, "").status, 200);
    let history = server
        .get("/api/v1/domain/history?token=anna-reads-0123456")
        .json();
    let stop = history["history"]
        .as_array()
        .unwrap()
        .iter()
        .find(|entry| entry["action"] == "stop")
        .unwrap();
    assert_eq!(stop["by"], "otto");
    let shown = server.get("/api/v1/config?token=anna-reads-0123456").body;
    assert!(
        !shown.contains("0123456") && shown.contains("\"anna\""),
        "{shown}"
    );
    let open = Server::start("");
    assert_eq!(
        open.json("/api/v1/session"),
        json!({"role": "operate", "name": null, "needs_token": false, "console": false})
    );
}

#[test]
fn another_host_name_and_another_web_site_are_refused() {
    let server = Server::start("");
    let rebound = server.ask("GET", "/api/v1/status", "Host: evil.example\r\n", "");
    assert_eq!(rebound.status, 403);
    let foreign = server.ask(
        "POST",
        "/api/v1/config/reload",
        "Origin: https://evil.example\r\n",
        "",
    );
    assert_eq!(foreign.status, 403);
    assert!(
        !foreign.headers.to_lowercase().contains("access-control"),
        "{foreign:?}"
    );
}

#[test]
fn wrong_requests_are_refused_in_words() {
    let server = Server::start("");
    let refusal =
        |answer: server::Answer| (answer.status, answer.json()["error"].as_str().unwrap().to_owned());
    let cases = [
        (
            server.get("/api/v1/nothing"),
            404,
            "there is no /api/v1/nothing; /api/v1/openapi.json lists all paths",
        ),
        (
            server.get("/api/v1/query"),
            405,
            "/api/v1/query does not support this method; /api/v1/openapi.json lists the methods",
        ),
        (
            server.get("/api/v1/status?verbose=1"),
            400,
            "there is no parameter `verbose` here; remove it",
        ),
        (
            server.get("/api/v1/flows/zz"),
            400,
            "\"zz\" is not a flow; use its 16-digit id, or its text such as 10.0.0.1:5000>10.0.0.2:80/17",
        ),
        (
            server.ask("POST", "/api/v1/config/reload", "", "").clone(),
            200,
            "",
        ),
    ];
    for (answer, status, message) in cases.into_iter().take(4) {
        assert_eq!(refusal(answer), (status, message.to_owned()));
    }
    for sql in [
        "DROP TABLE events",
        "ATTACH 'x' AS y",
        "SELECT * FROM nothing",
        "SELEC",
        "",
    ] {
        let (status, error) = refusal(server.query(sql));
        assert!(status == 400 && error.len() > 10, "{sql}: {error}");
    }
    let huge = server.ask("POST", "/api/v1/query", "", &"x".repeat(300_000));
    assert_eq!(huge.status, 400, "{huge:?}");
    assert_eq!(
        server.ask("POST", "/api/v1/query", "", "{\"sqll\": 1}").status,
        400
    );
}

#[test]
fn figures_for_prometheus_name_no_flow() {
    let server = Server::start("");
    server.send((0..100).map(|seq| report(seq, seq as u16, [1, 2, 3])));
    server.settled(100);
    let answer = server.get("/metrics");
    assert!(answer.headers.contains("text/plain; version=0.0.4"), "{answer:?}");
    assert!(
        answer.body.contains("\nhopwise_reports_total 100\n"),
        "{}",
        answer.body
    );
    assert!(answer.body.contains("\nhopwise_source_lost_total{node=\"103\",hw_id=\"1\",source=\"127.0.0.1\",version=\"1.0\",listener=\"0\"} 0\n"));
    assert!(!answer.body.contains("10.0.0."), "{}", answer.body);
    for line in answer.body.lines().filter(|line| !line.starts_with('#')) {
        let (name, value) = line.rsplit_once(' ').unwrap();
        let known = name.starts_with("hopwise_") || name.starts_with("process_");
        assert!(
            known && (value == "NaN" || value.parse::<f64>().is_ok()),
            "{line}"
        );
    }
}

#[test]
fn a_stop_keeps_what_was_received() {
    let server = Server::start("");
    server.send((0..1_000).map(|seq| report(seq, seq as u16, [1, 2, 3])));
    server.wait_for("read", |status| stage(status, "kernel")["in"] == 1_000);
    let (status, directory) = server.stop();
    assert_eq!(status.code(), Some(0));
    let again = Server::start_in(directory, "");
    let stored = again
        .query("SELECT count(DISTINCT flow) FROM events WHERE kind = 'new'")
        .json();
    assert_eq!(stored["rows"], json!([[1_000]]));
    let flows = again.query("SELECT count(*), sum(reports) FROM flows").json();
    assert_eq!(flows["rows"], json!([[1_000, 1_000]]));
}

#[test]
fn a_queue_has_the_unit_of_who_reports_it() {
    let server = Server::start(
        "[profiles.x]\nqueue_unit = \"cells\"\n[[sources]]\nprefix = \"10.0.0.0/8\"\nprofile = \"strict\"\n\
         [[sources]]\nprefix = \"127.0.0.1\"\nprofile = \"x\"\n",
    );
    server.send([report(0, 1, [1_000, 1_000, 1_000])]);
    server.settled(1);
    let nodes = server.json("/api/v1/nodes");
    assert_eq!(nodes["nodes"][0]["queues"][0]["unit"], "cells", "{nodes}");
}

#[test]
fn a_reload_changes_what_can_change_and_names_the_rest() {
    let server = Server::start("[thresholds]\nhop_latency = 1000000\n");
    server.send([report(0, 1, [1_000, 1_000, 1_000])]);
    server.settled(1);
    server.reconfigure("collector.burst = 8\n[thresholds]\nhop_latency = 10\n[nodes]\n101 = \"renamed\"\n");
    let answer = server.ask("POST", "/api/v1/config/reload", "", "").json();
    assert_eq!(
        answer,
        json!({"reloaded": true, "restart_required": ["collector.burst"]})
    );
    server.send([report(1, 1, [1_100, 1_000, 1_000])]);
    server.settled(2);
    let changed = server.json("/api/v1/events?kind=change&metric=hop_latency");
    assert_eq!(
        (&changed["events"][0]["node"], &changed["events"][0]["threshold"]),
        (&json!(101), &json!(10))
    );
    assert_eq!(server.json("/api/v1/nodes")["nodes"][0]["name"], "renamed");
    assert_eq!(server.json("/api/v1/config")["collector"]["burst"], 64);
    assert_eq!(
        server.json("/api/v1/flows")["flows"][0]["reports"],
        2,
        "state survives"
    );
}

#[test]
fn an_implausible_latency_is_a_field_of_its_own() {
    let server = Server::start("[thresholds]\nhop_latency = 10\n");
    server.send([
        report(0, 5000, [1_000, 2_000, 3_000]),
        report(1, 5000, [1_000, 3_000_000_000, 3_000]),
    ]);
    server.settled(2);
    let flow = server.json("/api/v1/flows/10.0.0.1:5000%3E10.0.0.2:80%2F17");
    let latencies: Vec<_> = flow["hops"]
        .as_array()
        .unwrap()
        .iter()
        .map(|hop| {
            (
                hop["hop_latency"].as_u64(),
                hop["implausible_latency"].as_u64().map(|ns| ns >> 20),
            )
        })
        .collect();
    assert_eq!(
        latencies,
        [
            (Some(1_000), None),
            (None, Some(3_000_000_000 >> 20)),
            (Some(3_000), None)
        ]
    );
    let nodes = server.json("/api/v1/nodes");
    let counts: Vec<_> = nodes["nodes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|node| node["implausible_latencies"].clone())
        .collect();
    assert_eq!(counts, [json!(0), json!(1), json!(0)]);
    assert!(
        server
            .get("/metrics")
            .body
            .contains("hopwise_implausible_latencies_total 1")
    );
    let changed = server.json("/api/v1/events?kind=change&metric=hop_latency");
    assert_eq!(changed["events"], json!([]));
}

#[test]
fn a_bad_reload_changes_nothing_and_says_why() {
    let server = Server::start("[nodes]\n101 = \"old\"\n");
    let before = server.json("/api/v1/config");
    server.reconfigure("[nodes]\n101 = 7\n");
    let answer = server.ask("POST", "/api/v1/config/reload", "", "");
    let error = answer.json()["error"].as_str().unwrap().to_owned();
    assert!(
        answer.status == 400
            && error
                .contains("found the number 7; write a name in quotes, or a table with `name` and `profile`"),
        "{error}"
    );
    assert_eq!(server.json("/api/v1/config"), before);
    server.log_line("configuration not reloaded");
    server.signal("-HUP");
    server.log_line("configuration not reloaded");
    server.reconfigure("[nodes]\n101 = \"new\"\n");
    server.signal("-HUP");
    server.log_line("configuration reloaded");
    assert_eq!(server.json("/api/v1/config")["nodes"]["101"], "new");
}

#[test]
fn a_failed_start_is_one_sentence_and_exit_code_2() {
    let taken = UdpSocket::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let server = Server::start("");
    let failure = |config: String| {
        let directory = TempDir::new();
        let file = directory.join("hopwise.toml");
        std::fs::write(&file, config).unwrap();
        let output = run(&file, &directory).output().unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        let last = stderr.lines().last().unwrap_or("").to_owned();
        (output.status.code(), last)
    };
    let own = "api.listen = \"127.0.0.1:0\"\nstore.dir = \"s\"\n";
    let (code, line) = failure(format!("{own}collector.listen = [\"udp://127.0.0.1:{port}\"]\n"));
    assert!(
        code == Some(2) && line.contains("another program listens on UDP port"),
        "{line}"
    );
    let api = format!(
        "collector.listen = [\"udp://127.0.0.1:0\"]\nstore.dir = \"s\"\napi.listen = \"{}\"\n",
        server.api
    );
    let (code, line) = failure(api);
    assert!(
        code == Some(2) && line.contains("stop the other program, or set another port in [api] listen"),
        "{line}"
    );
    let store = server.path("store");
    let (code, line) = failure(format!(
        "api.listen = \"127.0.0.1:0\"\ncollector.listen = [\"udp://127.0.0.1:0\"]\nstore.dir = {store:?}\n"
    ));
    assert!(
        code == Some(2) && line.starts_with("hopwise: ") && line.contains("store"),
        "{line}"
    );
}

#[test]
fn a_log_in_json_is_an_object_per_line() {
    let directory = TempDir::new();
    let file = directory.join("hopwise.toml");
    let config = "log.format = \"json\"\nstore.dir = \"s\"\napi.listen = \"127.0.0.1:0\"\n\
                  collector.listen = [\"udp://127.0.0.1:0\"]\n";
    std::fs::write(&file, config).unwrap();
    let mut child = run(&file, &directory)
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let lines = std::io::BufReader::new(child.stderr.take().unwrap()).lines();
    let mut objects = lines.map(|line| -> Value {
        let line = line.unwrap();
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"))
    });
    let served = objects.find(|object| {
        object["url"]
            .as_str()
            .is_some_and(|url| url.starts_with("http://"))
    });
    child.kill().unwrap();
    child.wait().unwrap();
    let served = served.unwrap();
    assert_eq!(served["level"], "INFO");
    assert!(
        served["message"].is_string() && served["timestamp"].as_str().unwrap().ends_with('Z'),
        "{served}"
    );
}
