//! Objects of the template for SONiC as CONFIG_DB.

use std::sync::Arc;

use gnmi::PathMap;
use manager::device::{Mode, Rule, Rules, Watch};
use manager::flows::FlowMatch;
use serde_json::json;

fn map() -> PathMap {
    let text = gnmi::shipped("sonic-tam").expect("a map of this name");
    PathMap::read(text, "sonic-tam").unwrap_or_else(|error| panic!("{error}"))
}

fn watch(hops: u8, sample: u32) -> Rule {
    let key = FlowMatch {
        src: "10.0.0.0/8".parse().ok(),
        dport: (443, 443),
        proto: Some(6),
        ..FlowMatch::default()
    };
    Rule::Watch(Arc::new(Watch {
        key,
        mode: Mode::Md,
        bits: 0xa000,
        hops,
        sample,
        drops: true,
    }))
}

#[test]
fn rules_are_objects_of_config_db_and_changes_a_patch() {
    let session = Rule::Session("[fd00::9]:9555".parse().expect("an address"));
    let (first, second) = (watch(8, 1), watch(8, 10));
    let before: Rules = [session.clone(), Rule::Sink(3), Rule::Instruction(2), first].into();
    let map = map();
    let all = map.config_db(&before).expect("all can be expressed");
    let id = all["TAM_SESSION"]
        .as_object()
        .and_then(|objects| objects.keys().next())
        .expect("a session")
        .clone();
    let group = json!({"src-ip-prefix": "10.0.0.0/8", "l4-dst-port": "443", "ip-protocol": "6"});
    let expected = json!({
        "TAM_COLLECTOR": {"hopwise": {"ip": "fd00::9", "port": "9555"}},
        "TAM_PORT": {"hopwise_sink_3": {"role": "sink", "ifindex": "3"}},
        "TAM_FLOW_GROUP": {&id: group},
        "TAM_SESSION": {&id: {"type": "int", "flow-group": &id, "collector": "hopwise", "instruction-bitmap": "0xa000",
                              "hop-limit": "8", "sample-rate": "1"}},
    });
    assert_eq!(all, expected);

    let after: Rules = [session, Rule::Source(3), second].into();
    let new = map.config_db(&after).expect("all can be expressed");
    let other = new["TAM_SESSION"]
        .as_object()
        .and_then(|objects| objects.keys().next())
        .expect("a session")
        .clone();
    let patch = map
        .config_db_patch(&before, &after)
        .expect("all can be expressed");
    let expected = json!([
        {"op": "remove", "path": format!("/TAM_SESSION/{id}")},
        {"op": "remove", "path": "/TAM_PORT/hopwise_sink_3"},
        {"op": "remove", "path": format!("/TAM_FLOW_GROUP/{id}")},
        {"op": "add", "path": format!("/TAM_FLOW_GROUP/{other}"), "value": new["TAM_FLOW_GROUP"][&other]},
        {"op": "add", "path": "/TAM_PORT/hopwise_source_3", "value": {"role": "source", "ifindex": "3"}},
        {"op": "add", "path": format!("/TAM_SESSION/{other}"), "value": new["TAM_SESSION"][&other]},
    ]);
    assert_eq!(patch, expected);
    assert_eq!(map.config_db_patch(&after, &after), Ok(json!([])));
}

#[test]
fn what_the_map_cannot_express_is_refused() {
    let filter = manager::device::Filter {
        key: FlowMatch::default(),
        algorithm: manager::device::FilterAlgorithm::Change,
        metric: detect::Metric::HopLatency,
        threshold: 0,
        rule: None,
    };
    let error = map()
        .config_db(&[Rule::Filter(Arc::new(filter))].into())
        .expect_err("no object is a filter");
    assert!(error.contains("no object for `filter`"), "{error}");
}
