//! The order is safe: random intents, links, crashes, lost, doubled and delayed messages, and two managers at a time, over a simulated
//! fabric with packets in its queues. No packet with INT ever reaches a host, and in the end every device has what the
//! intents say. Without any one part of the order, the same runs find a violation.
//!
//! `HOPWISE_SAFETY_RUNS` sets the number of runs.

mod sim;

use manager::reconcile::Order;
use sim::{Faults, Run, Violation};

/// Runs of each kind when no number is given.
const RUNS: u64 = 1_000;

fn runs() -> u64 {
    std::env::var("HOPWISE_SAFETY_RUNS").ok().and_then(|text| text.parse().ok()).unwrap_or(RUNS)
}

fn all_safe(faults: Faults) {
    let (mut int, mut applied) = (0, 0);
    for seed in 0..runs() {
        let outcome = Run::new(seed, Order::default(), faults).finish();
        let stats = outcome.unwrap_or_else(|violation| panic!("seed {seed}, {faults:?}: {violation:?}"));
        int += stats.reported;
        applied += stats.applied;
    }
    // A network without INT and without changes would be safe, too.
    assert!(int > 100 * runs() && applied > 20 * runs(), "{int} reports, {applied} changes");
}

#[test]
fn no_int_leaves_by_an_edge_port_whatever_fails() {
    all_safe(Faults::ALL);
}

/// They are unconfirmed meanwhile, and may have any part of what they were handed.
#[test]
fn no_int_leaves_while_others_execute_the_changes_of_some_switches() {
    all_safe(Faults::SLOW);
}

#[test]
fn without_faults_every_report_is_complete() {
    all_safe(Faults::NONE);
}

/// No order can help against a switch that forwards without rules. It is filled again soon, and nothing leaves otherwise.
#[test]
fn switches_that_forward_without_rules_leak_only_after_a_restart() {
    let mut exposed = 0;
    for seed in 0..runs() {
        let outcome = Run::new(seed, Order::default(), Faults::OPEN).finish();
        exposed += outcome.unwrap_or_else(|violation| panic!("seed {seed}: {violation:?}")).exposed;
    }
    assert!(exposed > 0);
}

/// The first violation in as many runs.
fn found(order: Order, faults: Faults) -> Option<Violation> {
    (0..runs().max(RUNS)).find_map(|seed| Run::new(seed, order, faults).finish().err())
}

#[test]
fn a_source_before_its_sinks_is_found() {
    let order = Order { sources_wait_for_sinks: false, ..Order::default() };
    assert!(matches!(found(order, Faults::ALL), Some(Violation::Leak { .. })));
}

#[test]
fn a_sink_removed_before_packets_have_left_is_found() {
    let order = Order { sinks_wait_for_drain: false, ..Order::default() };
    assert!(matches!(found(order, Faults::NONE), Some(Violation::Leak { .. })));
}

#[test]
fn a_transit_removed_before_packets_have_left_is_found() {
    let order = Order { transits_wait_for_drain: false, ..Order::default() };
    assert!(matches!(found(order, Faults::NONE), Some(Violation::Incomplete { .. })));
}

#[test]
fn a_source_before_its_transits_is_found() {
    let order = Order { sources_wait_for_transits: false, ..Order::default() };
    assert!(matches!(found(order, Faults::NONE), Some(Violation::Incomplete { .. })));
}

#[test]
fn an_edge_port_before_its_sink_is_found() {
    let order = Order { edges_wait_for_sinks: false, ..Order::default() };
    assert!(matches!(found(order, Faults::NONE), Some(Violation::Leak { .. })));
}

#[test]
fn forwarding_before_the_border_is_closed_is_found() {
    let order = Order { forwarding_waits_for_sinks: false, ..Order::default() };
    assert!(matches!(found(order, Faults::ALL), Some(Violation::Leak { .. })));
}

#[test]
fn a_link_opened_before_its_peer_is_closed_is_found() {
    let order = Order { links_wait_for_peers: false, ..Order::default() };
    assert!(matches!(found(order, Faults::ALL), Some(Violation::Leak { .. })));
}
