//! The order is safe: random intents, links, crashes, lost, doubled and delayed messages, and two managers at a time, over a simulated
//! fabric with packets in its queues. No packet with INT ever reaches a host, every packet has the fate that it would have without
//! INT and arrives as it was sent, and in the end every device has what the intents say. Without any one part of the order, the same runs find a violation.
//!
//! `HOPWISE_SAFETY_RUNS` sets the number of runs.

mod sim;

use manager::reconcile::Order;
use sim::{Faults, Run, Violation};

/// Runs of each kind when no number is given.
const RUNS: u64 = 1_000;

fn runs() -> u64 {
    std::env::var("HOPWISE_SAFETY_RUNS")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(RUNS)
}

fn all_safe(faults: Faults) {
    let (mut int, mut applied, mut delivered, mut encodings) = (0, 0, 0, 0);
    for seed in 0..runs() {
        let outcome = Run::new(seed, Order::default(), faults).finish();
        let stats = outcome.unwrap_or_else(|violation| panic!("seed {seed}, {faults:?}: {violation:?}"));
        int += stats.reported;
        applied += stats.applied;
        delivered += stats.delivered;
        encodings += stats.encodings;
    }
    // A network without INT and without changes would be safe, too.
    let enough = int > 100 * runs() && applied > 20 * runs() && delivered > 500 * runs() && encodings > 0;
    assert!(
        enough,
        "{int} reports, {applied} changes, {delivered} packets delivered, {encodings} encodings"
    );
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

/// Two managers with a lease: the one on standby takes over from one that has failed, or that is only cut off and still acts.
#[test]
fn no_int_leaves_while_a_manager_on_standby_takes_over() {
    let (mut int, mut failed, mut cut_off, mut again) = (0, 0, 0, 0);
    for seed in 0..runs() {
        let outcome = Run::new(seed, Order::default(), Faults::STANDBY).finish();
        let stats = outcome.unwrap_or_else(|violation| panic!("seed {seed}: {violation:?}"));
        int += stats.reported;
        failed += stats.take_overs.0 - stats.take_overs.1;
        cut_off += stats.take_overs.1;
        again += stats.claimed_again;
    }
    eprintln!("took over {failed} times from a failed manager, {cut_off} times from one that still acted");
    eprintln!("claimed again {again} times what another one had claimed and left");
    assert!(
        int > 50 * runs() && failed > runs() / 2 && cut_off > runs() / 10 && again > 0,
        "{int} {failed} {cut_off} {again}"
    );
}

/// A device that leaves the inventory is emptied first, and driven until then.
#[test]
fn no_int_leaves_while_devices_leave_the_inventory_and_return() {
    all_safe(Faults::MEMBERS_AND_ALL);
    let emptied = (0..runs() / 4).map(|seed| {
        let outcome = Run::new(seed, Order::default(), Faults::MEMBERS).finish();
        outcome
            .unwrap_or_else(|violation| panic!("seed {seed}: {violation:?}"))
            .emptied
    });
    let emptied: u64 = emptied.sum();
    assert!(emptied > runs() / 8, "{emptied} devices were emptied");
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
        exposed += outcome
            .unwrap_or_else(|violation| panic!("seed {seed}: {violation:?}"))
            .exposed;
    }
    assert!(exposed > 0);
}

/// The first violation in as many runs.
fn found(order: Order, faults: Faults) -> Option<Violation> {
    (0..runs().max(RUNS)).find_map(|seed| Run::new(seed, order, faults).finish().err())
}

/// Whether one of as many runs lets INT out, whatever else others violate.
fn leaks(order: Order, faults: Faults) -> bool {
    let violation = |seed| Run::new(seed, order, faults).finish().err();
    (0..runs().max(RUNS))
        .filter_map(violation)
        .any(|one| matches!(one, Violation::Leak { .. }))
}

/// An older manager would go on changing a device.
#[test]
fn switches_that_execute_requests_of_every_election_are_found() {
    let violation = found(Order::default(), Faults::UNFENCED);
    assert!(violation.is_some());
}

/// Packets would be dropped for the length of INT.
#[test]
fn intents_without_the_check_of_the_mtu_are_found() {
    assert!(matches!(
        found(Order::default(), Faults::NO_MTUS),
        Some(Violation::Fate { .. })
    ));
}

#[test]
fn a_source_before_its_sinks_is_found() {
    let order = Order {
        sources_wait_for_sinks: false,
        ..Order::default()
    };
    assert!(leaks(order, Faults::ALL));
}

#[test]
fn a_sink_removed_before_the_sources_is_found() {
    let order = Order {
        sinks_wait_for_sources: false,
        ..Order::default()
    };
    assert!(matches!(found(order, Faults::NONE), Some(Violation::Leak { .. })));
}

/// What the other devices do is not known before they are claimed.
#[test]
fn a_sink_removed_before_all_devices_are_claimed_is_found() {
    let order = Order {
        sinks_wait_for_claims: false,
        ..Order::default()
    };
    let violation = found(order, Faults::ALL);
    assert!(
        matches!(
            violation,
            Some(Violation::Leak { .. } | Violation::Changed { .. })
        ),
        "{violation:?}"
    );
}

#[test]
fn an_encoding_that_changes_before_packets_have_left_is_found() {
    let order = Order {
        encodings_wait_for_drain: false,
        ..Order::default()
    };
    let violation = found(order, Faults::NONE);
    assert!(
        matches!(
            violation,
            Some(Violation::Leak { .. } | Violation::Changed { .. })
        ),
        "{violation:?}"
    );
}

#[test]
fn a_transit_removed_before_the_sources_is_found() {
    let order = Order {
        transits_wait_for_sources: false,
        ..Order::default()
    };
    assert!(matches!(
        found(order, Faults::NONE),
        Some(Violation::Incomplete { .. })
    ));
}

#[test]
fn a_sink_removed_before_packets_have_left_is_found() {
    let order = Order {
        sinks_wait_for_drain: false,
        ..Order::default()
    };
    assert!(matches!(found(order, Faults::NONE), Some(Violation::Leak { .. })));
}

#[test]
fn a_transit_removed_before_packets_have_left_is_found() {
    let order = Order {
        transits_wait_for_drain: false,
        ..Order::default()
    };
    assert!(matches!(
        found(order, Faults::NONE),
        Some(Violation::Incomplete { .. })
    ));
}

#[test]
fn a_source_before_its_transits_is_found() {
    let order = Order {
        sources_wait_for_transits: false,
        ..Order::default()
    };
    assert!(matches!(
        found(order, Faults::NONE),
        Some(Violation::Incomplete { .. })
    ));
}

#[test]
fn an_edge_port_before_its_sink_is_found() {
    let order = Order {
        edges_wait_for_sinks: false,
        ..Order::default()
    };
    assert!(matches!(found(order, Faults::NONE), Some(Violation::Leak { .. })));
}

#[test]
fn forwarding_before_the_border_is_closed_is_found() {
    let order = Order {
        forwarding_waits_for_sinks: false,
        ..Order::default()
    };
    assert!(leaks(order, Faults::ALL));
}

/// The first link of a network: entries from before do not know its MTU.
#[test]
fn a_link_opened_before_its_packets_have_room_is_found() {
    let order = Order {
        links_wait_for_room: false,
        ..Order::default()
    };
    assert!(matches!(found(order, Faults::NONE), Some(Violation::Fate { .. })));
}

#[test]
fn a_link_opened_before_its_peer_is_closed_is_found() {
    let order = Order {
        links_wait_for_peers: false,
        ..Order::default()
    };
    assert!(matches!(found(order, Faults::ALL), Some(Violation::Leak { .. })));
}
