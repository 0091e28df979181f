//! Budgets of intents and of collectors are kept, by thresholds and by sampling.

use std::time::Instant;

use serde_json::{Value, json};

use super::{Fabric, TIMEOUT, in_sync};

/// More reports than the budget raise the threshold at the switches.
#[test]
fn a_budget_is_kept_by_raising_the_threshold() {
    let Some(fabric) = Fabric::start() else { return };
    fabric.wait_for_devices("in sync", in_sync);
    let intent = json!({"name": "web", "match": {"dport": 5000}, "watch": ["hop_latency"], "mode": "md",
                        "report": {"filter": "per_hop", "thresholds": {"hop_latency": 10}}, "budget": "2 reports/s"});
    assert_eq!(
        fabric
            .manager
            .ask("PUT", "/api/v1/intents", &intent.to_string())
            .0,
        200
    );
    let threshold = || fabric.first_rule(2, "filter", "threshold");
    let begun = Instant::now();
    while threshold().is_none_or(|threshold| threshold < 40) {
        assert!(
            begun.elapsed() < TIMEOUT,
            "{:#}",
            fabric.manager.get("/api/v1/intents")
        );
        crate::support::pause();
    }
    let history = fabric.manager.get("/api/v1/domain/history?subject=web");
    let moves: Vec<_> = history["history"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|entry| entry["action"] == "budget")
        .collect();
    assert!(
        !moves.is_empty()
            && moves[0]["text"]
                .as_str()
                .unwrap()
                .contains("exceed the budget of 2"),
        "{history:#}"
    );
    // What the operator wrote stays as it is.
    let view = fabric.manager.get("/api/v1/intents/web");
    assert_eq!(view["intent"]["report"]["thresholds"], json!({"hop_latency": 10}));
    assert!(
        view["text"].as_str().unwrap().contains(" by a budget"),
        "{view:#}"
    );
}

/// A budget of events raises the threshold that the collector compares, although that does not reduce the reports that exceed the budget of the
/// collector; which then makes an intent coarser that has no budget of its own.
#[test]
fn budgets_of_events_and_of_the_collector_are_kept() {
    let budget = "collectors = [{ address = \"127.0.0.9:9555\", budget = \"2 reports/s\" }]\n";
    let Some(fabric) = Fabric::start_with(true, "", budget) else {
        return;
    };
    fabric.wait_for_devices("in sync", in_sync);
    let put = |name: &str, rest: Value| {
        let mut intent =
            json!({"name": name, "match": {"dport": 5000}, "watch": ["hop_latency"], "mode": "md"});
        intent
            .as_object_mut()
            .unwrap()
            .extend(rest.as_object().unwrap().clone());
        let answer = fabric.manager.ask("PUT", "/api/v1/intents", &intent.to_string());
        assert_eq!(answer.0, 200, "{answer:?}");
    };
    let moves = |name: &str, part: &str| {
        fabric
            .manager
            .wait(&format!("/api/v1/domain/history?subject={name}"), part, |view| {
                fabric.deliver();
                let texts = view["history"]
                    .as_array()
                    .unwrap()
                    .iter()
                    .filter(|entry| entry["action"] == "budget");
                texts
                    .filter_map(|entry| entry["text"].as_str())
                    .any(|text| text.contains(part))
            });
    };
    let coarser = |name: &str| {
        fabric
            .manager
            .wait(&format!("/api/v1/intents/{name}"), "coarser", |view| {
                fabric.deliver();
                view["text"]
                    .as_str()
                    .unwrap()
                    .contains("; threshold of hop_latency ")
            });
    };
    put(
        "slow",
        json!({"report": {"thresholds": {"hop_latency": 10}}, "budget": "1 events/s"}),
    );
    moves("slow", "events/s exceed the budget of 1: threshold 10 → ");
    coarser("slow");
    assert_eq!(fabric.manager.ask("DELETE", "/api/v1/intents/slow", "").0, 200);
    put(
        "web",
        json!({"report": {"filter": "per_hop", "thresholds": {"hop_latency": 10}}}),
    );
    moves(
        "web",
        "at the collector 127.0.0.9:9555 exceed the budget of 2: threshold 10 → ",
    );
    coarser("web");
}

/// An intent with a sample works, and a budget makes it coarser where there is no threshold.
#[test]
fn a_share_of_the_packets_is_measured() {
    let Some(fabric) = Fabric::start() else { return };
    fabric.wait_for_devices("in sync", in_sync);
    let put = |rest: Value| {
        let mut intent =
            json!({"name": "web", "match": {"dport": 5000}, "watch": ["hop_latency"], "mode": "md"});
        intent
            .as_object_mut()
            .unwrap()
            .extend(rest.as_object().unwrap().clone());
        let answer = fabric.manager.ask("PUT", "/api/v1/intents", &intent.to_string());
        assert_eq!(answer.0, 200, "{answer:?}");
    };
    put(json!({"sample": "1 in 4"}));
    fabric.wait_for_intent("complete");
    let counted = || {
        fabric.deliver();
        let counters = fabric.switches[0].get("/api/v1/switch/int");
        let count = |key: &str| counters["matched"][0][key].as_u64().unwrap_or(0);
        (count("packets"), count("measured"))
    };
    let begun = Instant::now();
    let (packets, measured) = loop {
        let counted = counted();
        if counted.0 >= 200 {
            break counted;
        }
        assert!(begun.elapsed() < TIMEOUT, "{counted:?}");
    };
    assert!(
        (packets / 6..packets / 3).contains(&measured),
        "{measured} of {packets}"
    );

    put(json!({"budget": "1 reports/s", "report": {"coarsest": {"sample": "1 in 16"}}}));
    let sample = || fabric.first_rule(0, "watch", "sample");
    let begun = Instant::now();
    while sample().is_none_or(|sample| sample < 8) {
        assert!(
            begun.elapsed() < TIMEOUT,
            "{:#}",
            fabric.manager.get("/api/v1/intents")
        );
        crate::support::pause();
    }
    fabric.manager.wait("/api/v1/intents/web", "a share", |view| {
        fabric.deliver();
        let text = view["text"].as_str().unwrap();
        text.contains("; 1 in ") && text.contains(" packets by a budget")
    });
}
