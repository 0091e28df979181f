//! Flows whose path comes from INT, and from postcards.

use super::*;

/// A report of a packet with INT of the same flow.
fn with_int(nodes: &[u32]) -> Sent {
    Sent {
        flow: 0,
        hops: nodes.iter().map(|&id| node(id)).collect(),
        ..Sent::default()
    }
}

#[test]
fn a_flow_whose_path_comes_from_int_keeps_it() {
    let mut postcards = Postcards::free();
    for ident in 1..9 {
        postcards.bench.send(&with_int(&[1, 2, 3]));
        postcards.packet(ident, &[7, 5], &[0, 1]).wait();
    }
    assert_eq!(
        (postcards.path(), postcards.latency()),
        (vec![1, 2, 3], (Some(3000), Basis::HopSum, Basis::Measured))
    );
    assert_eq!(postcards.counts().unjoinable[Unjoinable::Int as usize], 16);
}

/// The mode of a running flow changes from INT-MD to postcards and back.
#[test]
fn a_path_of_int_ends_when_only_postcards_come() {
    for (nodes, event) in [
        (
            &[7, 6, 9][..],
            vec!["path_change flow_path flow=0 3->3 HopLimit path=7>6>9"],
        ),
        (&[7, 5, 9], vec![]),
    ] {
        let mut postcards = Postcards::free();
        postcards.bench.send(&with_int(&[7, 5, 9]));
        postcards.path_events();
        // Reports of INT may still be under way.
        postcards.packet(1, nodes, &[0, 1, 2]);
        postcards.bench.send(&with_int(&[7, 5, 9]));
        assert_eq!(
            (postcards.path(), postcards.latency().2),
            (vec![7, 5, 9], Basis::Measured)
        );
        for ident in 2..6 {
            postcards.packet(ident, nodes, &[0, 1, 2]).wait();
        }
        let sum = 100 * u64::from(nodes.iter().sum::<u32>());
        assert_eq!(postcards.path_events(), event);
        assert_eq!(
            (postcards.path(), postcards.latency()),
            (nodes.to_vec(), (Some(sum), Basis::HopSum, Basis::HopLimit))
        );
        postcards.bench.send(&with_int(&[7, 5, 9]));
        assert_eq!(
            (postcards.path(), postcards.latency()),
            (vec![7, 5, 9], (Some(3000), Basis::HopSum, Basis::Measured))
        );
        assert_eq!(
            postcards.path_events().len(),
            event.len(),
            "back on the old path, if it had changed"
        );
        postcards.counts();
    }
}

#[test]
fn a_latency_of_int_ends_with_it() {
    let mut postcards = Postcards::free();
    postcards.bench.send(&with_int(&[7, 5]));
    for ident in 1..4 {
        let without = |node, hop| Postcard {
            latency: None,
            ..Postcard::of(ident, node, hop)
        };
        postcards
            .deliver(without(7, 0))
            .deliver(without(5, 1).last())
            .wait();
    }
    assert_eq!(postcards.path(), [7, 5]);
    assert_eq!(postcards.latency(), (None, Basis::Measured, Basis::HopLimit));
}

/// After INT has ended, the values that a filter passes on are not compared with those from before.
#[test]
fn a_filter_forgets_the_path_with_int_and_values_are_reported_anew() {
    let mut postcards = Postcards::free();
    let removed = |postcards: &mut Postcards| {
        let mut removed = Vec::new();
        postcards.bench.collector.drain_removed(|one| removed.push(one));
        removed
    };
    postcards.bench.collector.track_removals(4);
    postcards.bench.send(&with_int(&[7, 5]));
    for ident in 1..6 {
        postcards.packet(ident, &[7, 5], &[0, 1]).wait();
    }
    assert_eq!(removed(&mut postcards), [Removed::Path(flow())]);
    // Values that the filter had when INT ended.
    let hops = [7, 5].map(|node| SuppressedHop {
        node,
        latency: 9,
        ..SuppressedHop::NOTHING
    });
    let (key, last_seen) = (flow(), postcards.bench.now);
    let late = SuppressedFlow {
        key,
        reports: 3,
        latency: Some(18),
        basis: Some(Basis::HopSum),
        hops: &hops,
        last_seen,
    };
    let Bench { collector, log, .. } = &mut postcards.bench;
    assert!(
        !collector.apply_suppressed(&late, log),
        "its path is not that of INT"
    );
    assert_eq!(postcards.latency(), (Some(1200), Basis::HopSum, Basis::HopLimit));
    assert_eq!(postcards.bench.collector.flow(&flow()).unwrap().row.reports, 14);
    postcards.bench.collected();
    postcards.bench.send(&with_int(&[7, 5]));
    let values = [
        "new hop_latency flow=0 node=7 1000",
        "new hop_latency flow=0 node=5 1000",
        "new flow_latency flow=0 2000 HopSum",
    ];
    let collected = postcards.bench.collected();
    assert_eq!(
        collected
            .lines()
            .filter(|line| line.contains("latency"))
            .collect::<Vec<_>>(),
        values
    );
    postcards.bench.send(&with_int(&[7, 5]));
    assert_eq!(postcards.bench.collected(), "");
    assert_eq!(removed(&mut postcards), []);
}

#[test]
fn drop_reports_do_not_keep_a_path_of_int() {
    let mut postcards = Postcards::free();
    postcards.bench.send(&with_int(&[7, 5, 9]));
    for ident in 1..5 {
        postcards.packet(ident, &[7, 6, 9], &[0, 1, 2]);
        let drop = Sent {
            flags: Flags::DROP,
            metadata: 0x22,
            reason: Some(1),
            ..with_int(&[8])
        };
        postcards.bench.send(&drop);
        postcards.wait();
    }
    assert_eq!(
        (postcards.path(), postcards.latency().2),
        (vec![7, 6, 9], Basis::HopLimit)
    );
}

#[test]
fn a_path_of_int_is_forgotten_when_nothing_shows_the_path() {
    let mut postcards = Postcards::free();
    postcards.bench.send(&with_int(&[7, 5, 9]));
    // The last node is unknown. Ten seconds, and more than 64 postcards.
    for ident in 1..42 {
        assert_eq!(postcards.path(), [7, 5, 9], "packet {ident}");
        postcards.packet(ident, &[7, 6, 9], &[0, 1]).wait();
    }
    assert_eq!(postcards.path(), [0; 0]);
    assert_eq!(postcards.latency().0, None);
    postcards.path_events();
    for ident in 50..53 {
        postcards.packet(ident, &[7, 6, 9], &[0, 1, 2]).wait();
    }
    assert_eq!(
        postcards.path_events(),
        ["new flow_path flow=0 3 HopLimit path=7>6>9"]
    );
}
