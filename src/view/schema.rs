//! Value sets of named fields, for the generated schema.

use collector::{Kind, event::Basis};
use detect::Metric;
use serde_json::Value;

/// The answers of the crate `dta`, compiled again with schemas. A cargo feature with schemas would build `dta` and its dependents
/// twice, for the program and for the tests.
#[allow(
    dead_code,
    unreachable_pub,
    reason = "a module of the crate `dta`: only its schemas are used here"
)]
#[path = "../../dta/src/source/answer.rs"]
pub(crate) mod answer;
#[allow(
    dead_code,
    unreachable_pub,
    reason = "a module of the crate `dta`: only its schemas are used here"
)]
#[path = "../../dta/src/calculation.rs"]
pub(crate) mod calculation;

/// The same values, and null.
pub(crate) fn nullable(names: Vec<&'static str>) -> Vec<Value> {
    names.into_iter().map(Value::from).chain([Value::Null]).collect()
}

pub(crate) fn kinds() -> Vec<&'static str> {
    Kind::ALL.map(Kind::name).to_vec()
}

pub(crate) fn metrics() -> Vec<&'static str> {
    Metric::ALL.map(Metric::name).to_vec()
}

pub(crate) fn bases() -> Vec<&'static str> {
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

pub(crate) fn stages() -> Vec<&'static str> {
    vec![
        "network", "nic", "kernel", "fanout", "decode", "join", "state", "queue", "store", "export",
    ]
}

pub(crate) fn units() -> Vec<&'static str> {
    vec!["datagrams", "reports", "records"]
}

pub(crate) fn inputs() -> Vec<&'static str> {
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

pub(crate) fn store_states() -> Vec<&'static str> {
    vec!["ok", "full", "failing", "closed"]
}

pub(crate) fn file_problems() -> Vec<&'static str> {
    store::ProblemKind::ALL.map(store::ProblemKind::name).to_vec()
}
