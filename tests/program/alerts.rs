//! Alerts over real sockets: since when, how often and where; what people say about them; and rules that are tried and enabled.

use serde_json::{Value, json};

use crate::support::{
    hopwise, schema,
    server::{Server, report},
};

const RULES: &str = "[[rules]]\nname = \"deep\"\nwhen = \"max(queue_occupancy) > 500\"\n\
    [[rules]]\nname = \"calm\"\nwhen = \"hops > 9\"\n";
const OPERATE: &str = "X-Requested-By: anna\r\n";
/// The occupancy of a hop's queue is a thousandth of its latency.
const CALM: [u32; 3] = [1_000, 2_000, 3_000];
const DEEP: [u32; 3] = [1_000, 900_000, 3_000];

/// The alerts, once they are as wanted.
fn alerts(server: &Server, what: &str, good: impl Fn(&Value) -> bool) -> Value {
    let start = std::time::Instant::now();
    loop {
        let answer = server.json("/api/v1/alerts");
        if good(&answer) {
            return answer;
        }
        assert!(
            start.elapsed() < crate::support::server::TIMEOUT,
            "never {what}: {answer:#}"
        );
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
}

/// One fires, and its beginning is stored. The collector knows of it before.
fn is_stored(answer: &Value) -> bool {
    answer["firing"] == 1 && answer["alerts"][0]["since"].is_u64()
}

#[test]
fn what_fires_is_listed_although_its_beginning_is_not_stored() {
    let server = Server::start(RULES);
    server.send([report(0, 5000, CALM), report(1, 5000, DEEP)]);
    let stored = alerts(&server, "firing", is_stored);
    // As retention does, and whoever deletes the files of a store.
    for file in std::fs::read_dir(server.path("store")).unwrap().flatten() {
        if file.file_name().to_string_lossy().contains(".db") {
            std::fs::remove_file(file.path()).unwrap();
        }
    }
    let left = alerts(&server, "without its beginning", |answer| {
        answer["alerts"][0]["since"].is_null()
    });
    let [before, after] = [&stored, &left].map(|answer| &answer["alerts"][0]);
    assert_eq!(
        json!([
            left["firing"],
            left["unacknowledged"],
            left["confirmed"],
            left["total"]
        ]),
        json!([1, 1, true, 1])
    );
    assert_eq!(
        json!([
            after["id"],
            after["rule"],
            after["text"],
            after["state"],
            after["ended"]
        ]),
        json!([before["id"], "deep", before["text"], "firing", null])
    );
    let api = format!("http://{}", server.api);
    for words in [&["list"][..], &["list", "--firing"]] {
        let run = hopwise([&["alerts"], words, &["--api", &api]].concat());
        assert!(run.code == Some(1) && run.stdout.contains("deep"), "{run:?}");
    }
}

fn post(server: &Server, path: &str, body: Value) -> Value {
    let answer = server.ask(
        "POST",
        &format!("/api/v1/alerts/{path}"),
        OPERATE,
        &body.to_string(),
    );
    assert_eq!(answer.status, 200, "{path} {body}: {answer:?}");
    let document = server.json("/api/v1/openapi.json");
    let operation = &document["paths"][format!("/api/v1/alerts/{path}")]["post"];
    let schema = &operation["responses"]["200"]["content"]["application/json"]["schema"];
    schema::check(&document, schema, &answer.json(), path);
    answer.json()
}

#[test]
fn an_alert_has_a_place_a_beginning_and_an_end_and_notes_survive_a_restart() {
    let server = Server::start(RULES);
    let id = begins_and_ends(&server);
    // It comes back: for that, nobody has acknowledged it.
    server.send([report(4, 5000, DEEP)]);
    let again = alerts(&server, "back", is_stored);
    let one = &again["alerts"][0];
    assert_eq!(
        (&again["unacknowledged"], &one["acknowledged"], &one["count"]),
        (&json!(1), &json!(null), &json!(2))
    );
    assert_eq!(one["episodes"].as_array().unwrap().len(), 2);
    let silence = post(
        &server,
        "silences",
        json!({"filter": "rule == deep and queue == 3", "seconds": 3600}),
    );
    post(&server, "acknowledge", json!({"id": id}));
    let silenced = server.json("/api/v1/alerts");
    assert_eq!(
        (&silenced["alerts"][0]["silence"], &silenced["unacknowledged"]),
        (&silence["id"], &json!(0))
    );

    let (_, directory) = server.stop();
    is_known_after_a_restart(&Server::start_in(directory, RULES), &silence);
}

/// The id of the alert.
fn begins_and_ends(server: &Server) -> String {
    server.send([
        report(0, 5000, CALM),
        report(1, 5001, CALM),
        report(2, 5000, DEEP),
    ]);
    let first = alerts(server, "firing", is_stored);
    assert_eq!(
        (&first["confirmed"], &first["unacknowledged"], &first["total"]),
        (&json!(true), &json!(1), &json!(1))
    );
    let one = &first["alerts"][0];
    assert_eq!(
        json!([
            one["rule"],
            one["when"],
            one["text"],
            one["state"],
            one["count"],
            one["ended"],
            one["until"]
        ]),
        json!([
            "deep",
            "max(queue_occupancy) > 500",
            "10.0.0.1:5000>10.0.0.2:80/17",
            "firing",
            1,
            null,
            null
        ])
    );
    // The guilty queue, and what it had.
    assert_eq!(
        json!([
            one["metric"],
            one["value"],
            one["threshold"],
            one["node"],
            one["queue"]
        ]),
        json!(["queue_occupancy", 900, 500, 102, 3])
    );
    let stored = server
        .query("SELECT min(ts) FROM events WHERE kind = 'rule_on'")
        .json();
    assert_eq!(one["since"], stored["rows"][0][0]);

    let id = one["id"].as_str().unwrap();
    post(server, "acknowledge", json!({"id": id, "comment": "known"}));
    let acknowledged = server.json("/api/v1/alerts");
    assert_eq!(acknowledged["unacknowledged"], 0);
    let note = &acknowledged["alerts"][0]["acknowledged"];
    assert_eq!((&note["by"], &note["comment"]), (&json!("anna"), &json!("known")));

    server.send([report(3, 5000, CALM)]);
    // The collector knows of its end before that is stored.
    let over = alerts(server, "resolved", |answer| {
        answer["alerts"][0]["ended"] == "false"
    });
    let one = &over["alerts"][0];
    assert_eq!(
        (&one["state"], &one["ended"], &one["count"]),
        (&json!("resolved"), &json!("false"), &json!(1))
    );
    assert!(one["until"].as_u64() > one["since"].as_u64(), "{one}");

    id.to_owned()
}

fn is_known_after_a_restart(server: &Server, silence: &Value) {
    let later = alerts(server, "confirmed", |answer| answer["confirmed"] == true);
    let one = &later["alerts"][0];
    // The flow is not in the collector that was started again.
    assert_eq!(
        (&one["state"], &one["ended"], &one["count"]),
        (&json!("resolved"), &json!("stale"), &json!(2))
    );
    assert_eq!(one["acknowledged"]["by"], "anna");
    let silences = server.json("/api/v1/alerts/silences");
    assert_eq!(silences["silences"][0]["filter"], "rule == deep and queue == 3");
    server.send([report(0, 5000, DEEP)]);
    let last = alerts(server, "heard again", |answer| answer["firing"] == 1);
    assert_eq!(
        last["alerts"][0]["count"], 2,
        "it lasted: nobody said that it was over"
    );
    let path = format!("/api/v1/alerts/silences/{}", silence["id"]);
    assert_eq!(server.ask("DELETE", &path, "", "").json()["active"], false);
    assert_eq!(server.ask("DELETE", &path, "", "").status, 404);
    assert_eq!(server.json("/api/v1/alerts?state=resolved")["total"], 0);
}

#[test]
fn what_is_wrong_is_refused_and_a_reader_may_only_try() {
    let token = |name: &str, role: &str, token: &str| {
        format!("[[api.tokens]]\nname = \"{name}\"\nrole = \"{role}\"\ntoken = \"{token}\"\n")
    };
    let tokens = token("r", "read", "readreadreadread") + &token("o", "operate", "0123456789abcdef");
    let server = Server::start(&format!("{tokens}{RULES}"));
    let ask = |token: &str, method: &str, path: &str, body: Value| {
        let headers = format!("Authorization: Bearer {token}\r\n");
        let answer = server.ask(
            method,
            &format!("/api/v1/alerts{path}"),
            &headers,
            &body.to_string(),
        );
        (
            answer.status,
            answer.json()["error"].as_str().unwrap_or_default().to_owned(),
        )
    };
    let (read, operate) = ("readreadreadread", "0123456789abcdef");
    let id = json!({"id": "0123456789abcdef"});
    let silence = |filter: &str, seconds: u64| json!({"filter": filter, "seconds": seconds});
    for (path, body) in [
        ("/acknowledge", id.clone()),
        ("/silences", silence("node == 1", 60)),
        ("/rules", json!({"name": "a", "when": "hops > 1"})),
    ] {
        assert_eq!(ask(read, "POST", path, body).0, 403, "{path}");
    }
    assert_eq!(ask(read, "POST", "/try", json!({"when": "hops > 1"})).0, 200);
    assert_eq!(ask(operate, "POST", "/acknowledge", id).0, 200);
    for (path, body, words) in [
        ("/acknowledge", json!({"id": "x"}), "invalid alert id"),
        (
            "/acknowledge",
            json!({"id": "0123456789abcdef", "comment": "x".repeat(501)}),
            "longer than 500",
        ),
        (
            "/silences",
            silence("sorce == 1", 60),
            "the filter is wrong at character 1",
        ),
        ("/silences", silence(" ", 60), "needs a filter"),
        ("/silences", silence("node == 1", 0), "out of range"),
        (
            "/rules",
            json!({"name": "deep", "when": "hops > 1"}),
            "another rule has this name",
        ),
        ("/rules", json!({"name": "new", "when": "hops >"}), "rule `new`"),
        ("/try", json!({"whence": 1}), "unknown field"),
    ] {
        let (status, error) = ask(operate, "POST", path, body);
        assert!(status == 400 && error.contains(words), "{path}: {status} {error}");
    }
    assert_eq!(ask(operate, "DELETE", "/silences/7", Value::Null).0, 404);
}

#[test]
fn a_rule_is_tried_on_the_past_and_then_enabled() {
    let server = Server::start(RULES);
    // Twice deep, with calm between; another flow stays calm.
    let latencies = [CALM, DEEP, CALM, DEEP, CALM];
    server.send(
        latencies
            .iter()
            .enumerate()
            .map(|(seq, latencies)| report(seq as u32, 5000, *latencies)),
    );
    server.send([report(5, 5001, CALM)]);
    server.settled(6);
    alerts(&server, "over", |answer| {
        answer["alerts"][0]["count"] == 2 && answer["firing"] == 0
    });
    let tried = post(&server, "try", json!({"when": "max(hop_latency) > 500us"}));
    assert_eq!(
        (
            &tried["fault"],
            &tried["times"],
            &tried["flows"],
            &tried["already"]
        ),
        (&json!(null), &json!(2), &json!(1), &json!(0))
    );
    let firing = &tried["firings"][0];
    assert_eq!(
        json!([firing["text"], firing["value"], firing["node"], firing["metric"]]),
        json!(["10.0.0.1:5000>10.0.0.2:80/17", 900_000, 102, "hop_latency"])
    );
    let counts: u64 = tried["counts"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(Value::as_u64)
        .sum();
    assert_eq!(counts, 2);
    assert!(
        tried["notes"][0].as_str().unwrap().contains("not every report"),
        "{tried}"
    );
    assert_eq!(tried["at_most"], false);
    // As the rule that was evaluated for each report.
    assert_eq!(
        post(&server, "try", json!({"when": "max(queue_occupancy) > 500"}))["times"],
        2
    );
    assert_eq!(
        post(&server, "try", json!({"when": "flow_latency > 1s"}))["times"],
        0
    );
    let wrong = post(&server, "try", json!({"when": "é < flow_latencie"}));
    assert_eq!(
        (&wrong["fault"]["position"], &wrong["times"]),
        (&json!(0), &json!(0)),
        "{wrong}"
    );
    let lasting = post(&server, "try", json!({"when": "max(hop_latency) > 500us for 3"}));
    assert_eq!(
        (&lasting["times"], &lasting["at_most"]),
        (&json!(2), &json!(true)),
        "{lasting}"
    );
    assert!(
        lasting["notes"][1].as_str().unwrap().contains("counts reports"),
        "{lasting}"
    );
    let history = post(&server, "try", json!({"when": "previous(hops) > 2"}));
    assert!(
        history["fault"]["message"]
            .as_str()
            .unwrap()
            .contains("cannot be tried"),
        "{history}"
    );

    let enabled = post(
        &server,
        "rules",
        json!({"name": "slow", "when": "max(hop_latency) > 500us"}),
    );
    assert_eq!(
        (&enabled["enabled"], &enabled["reason"]),
        (&json!(true), &json!(null)),
        "{enabled}"
    );
    let written = std::fs::read_to_string(server.path("hopwise.toml")).unwrap();
    assert!(written.ends_with(enabled["text"].as_str().unwrap()), "{written}");
    server.send([report(6, 5001, DEEP)]);
    alerts(&server, "evaluated at once", |answer| {
        answer["alerts"]
            .as_array()
            .unwrap()
            .iter()
            .any(|one| one["rule"] == "slow" && one["state"] == "firing")
    });
}
