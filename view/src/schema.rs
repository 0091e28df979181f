//! Allowed values of enumerated fields, for the generated OpenAPI schema.

use collector::{Kind, event::Basis};
use detect::Metric;
use serde_json::Value;

/// Returns the values with null added.
pub fn nullable(names: Vec<&'static str>) -> Vec<Value> {
    names.into_iter().map(Value::from).chain([Value::Null]).collect()
}

/// Returns the kinds of events.
pub fn kinds() -> Vec<&'static str> {
    Kind::ALL.map(Kind::name).to_vec()
}

/// Returns the names of all metrics.
pub fn metrics() -> Vec<&'static str> {
    Metric::ALL.map(Metric::name).to_vec()
}

/// Returns the bases of a flow latency.
pub fn bases() -> Vec<&'static str> {
    let all = [
        Basis::Measured,
        Basis::HopSum,
        Basis::Corrected,
        Basis::Unsynchronised,
        Basis::HopLimit,
        Basis::Timestamps,
        Basis::Topology,
    ];
    all.map(collector::event::Basis::name).to_vec()
}

/// Returns the stages of the loss budget, in the order of the data.
pub fn stages() -> Vec<&'static str> {
    vec![
        "network", "nic", "kernel", "fanout", "decode", "join", "state", "queue", "store", "export",
    ]
}

/// Returns the units of the counters of a stage.
pub fn units() -> Vec<&'static str> {
    vec!["datagrams", "reports", "records"]
}

/// Returns the kinds of inputs that can be open.
pub fn inputs() -> Vec<&'static str> {
    vec![
        "udp",
        "packet",
        "xdp-generic",
        "xdp-native",
        "xdp-zerocopy",
        "kernel-generic",
        "kernel-native",
    ]
}

/// Returns the states of the store.
pub fn store_states() -> Vec<&'static str> {
    store::State::ALL.map(store::State::name).to_vec()
}

/// Returns the problems that a file of the store can have.
pub fn file_problems() -> Vec<&'static str> {
    store::ProblemKind::ALL.map(store::ProblemKind::name).to_vec()
}
