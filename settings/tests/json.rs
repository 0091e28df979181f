//! JSON is read as the same settings as TOML, with the same problems.

#![allow(clippy::unwrap_used, reason = "a test panics")]

use std::time::Duration;

use serde_json::json;
use settings::json;
use settings::read::{Reader, node_at, span_of};
use settings::section;
use settings::setting::{Setting, tables};

section! {
    /// A port.
    struct Port("ports") {
        /// The number of the port.
        pub(crate) number: u16 = 0,
        /// The delay of packets.
        pub(crate) delay: Option<Duration> = None,
    }
}

section! {
    /// A switch.
    struct Switch("the switch") {
        /// The name of the switch.
        pub(crate) name: String = String::new(),
        /// The share of packets.
        pub(crate) share: f64 = 1.0,
        /// The ports of the switch.
        pub(crate) ports: Vec<Port> = Vec::new(),
        /// Whether it forwards.
        pub(crate) up: bool = true,
    }
}

fn of_toml(text: &str) -> (Option<Switch>, Vec<String>) {
    let mut reader = Reader::new(text);
    let root = reader.parse(tables::<Switch>).unwrap();
    let read = Switch::read(&root, &mut reader);
    (read, reader.messages())
}

#[test]
fn json_gives_the_settings_of_the_same_toml() {
    let toml = "name = \"s \\\"1\\\"\"\nshare = 0.25\nports = [{ number = 7, delay = \"2ms\" }, { number = 8 }]\nup = false\n";
    let body = json!({
        "name": "s \"1\"", "share": 0.25, "up": false,
        "ports": [{"number": 7, "delay": "2ms"}, null, {"number": 8, "delay": null}],
    });
    let (read, problems) = of_toml(toml);
    assert_eq!(problems, Vec::<String>::new());
    assert_eq!(json::read::<Switch>(&body), Ok(read.unwrap()));
}

#[test]
fn json_has_the_problems_of_the_same_toml() {
    for (toml, body) in [
        ("name = 5", json!({"name": 5})),
        ("share = \"much\"", json!({"share": "much"})),
        (
            "ports = [{ number = 70000 }]",
            json!({"ports": [{"number": 70_000}]}),
        ),
        ("ports = { number = 1 }", json!({"ports": {"number": 1}})),
        ("prots = []", json!({"prots": []})),
        (
            "name = -1\nup = 0.5\nports = [1.5]",
            json!({"name": -1, "ports": [1.5], "up": 0.5}),
        ),
    ] {
        let mut expected = of_toml(toml).1;
        let error = json::read::<Switch>(&body).unwrap_err();
        let mut found: Vec<&str> = error.split("; ").collect();
        // The advice on a key has a semicolon of its own.
        let mut expected: Vec<&str> = expected.iter_mut().flat_map(|text| text.split("; ")).collect();
        found.sort_unstable();
        expected.sort_unstable();
        assert_eq!(found, expected, "{toml}");
    }
}

#[test]
fn positions_of_json_lead_to_the_keys() {
    let body = json!({"name": "a", "ports": [{"number": 1}, {"number": 2, "delay": "x"}]});
    let root = json::tree(&body);
    let mut reader = Reader::new("");
    assert!(Switch::read(&root, &mut reader).is_some());
    let keys: Vec<Vec<String>> = reader
        .messages_by_key(&root)
        .into_iter()
        .map(|(keys, _)| keys)
        .collect();
    assert_eq!(keys, [["ports", "delay"]]);
    let second = node_at(&root, &["ports", "1"]);
    assert_eq!(
        span_of(second, &["delay"]),
        span_of(&root, &["ports", "1", "delay"])
    );
    // A value that is not there has the position of the nearest one around it.
    assert_eq!(
        span_of(&root, &["ports", "9", "delay"]),
        span_of(&root, &["ports"])
    );
}
