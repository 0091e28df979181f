//! The formulas against a simulation that writes keys into a real store and queries them.

use dta::{Answer, Plan, Policy};

use crate::support::{key, key_write, write_copies};

/// Fills a store of 2^14 slots with `keys` keys and queries all of them, and as many that were never written.
fn simulate(keys: u64, copies: u8) -> (f64, f64) {
    let store = key_write(1 << 14, 4);
    for number in 0..keys {
        write_copies(
            &store,
            &key(number),
            &(number as u32).to_le_bytes(),
            0..usize::from(copies),
        );
    }
    let reader = store.key_write().unwrap();
    let found = |number: u64| {
        let mut value = [0; 4];
        let answer = reader
            .get(&key(number), Policy::First, copies, &mut value)
            .unwrap();
        let right = matches!(answer, Answer::Found { .. });
        assert!(
            !right || u64::from(u32::from_le_bytes(value)) == number,
            "another key's value"
        );
        u32::from(right)
    };
    let all: u32 = (0..keys).map(found).sum();
    let old: u32 = (0..keys / 16).map(found).sum();
    let absent: u32 = (keys..2 * keys)
        .map(|number| {
            u32::from(matches!(
                reader.get(&key(number), Policy::First, copies, &mut [0; 4]),
                Ok(Answer::Found { .. })
            ))
        })
        .sum();
    assert_eq!(
        absent,
        0,
        "a chance of {}",
        Plan::new(keys, 1 << 14, copies).false_answer() * keys as f64
    );
    (f64::from(all) / keys as f64, f64::from(old) / (keys / 16) as f64)
}

#[test]
fn simulation_agrees_with_the_formula() {
    for keys in [1 << 12, 1 << 13, 1 << 14, 1 << 15] {
        for copies in [1, 2, 3, 4] {
            let plan = Plan::new(keys, 1 << 14, copies);
            let (all, old) = simulate(keys, copies);
            // Four standard deviations of a binomial distribution.
            let near = |seen: f64, expected: f64, of: u64| {
                let spread = (expected * (1.0 - expected) / of as f64).sqrt();
                assert!(
                    (seen - expected).abs() < 4.0 * spread + 1e-3,
                    "{keys} {copies}: {seen} for {expected}"
                );
            };
            near(all, plan.answered(), keys);
            // The oldest sixteenth of the keys, at its mean age.
            near(old, plan.answered_at(keys - 1 - keys / 32), keys / 16);
        }
    }
}

#[test]
fn loads_of_section_5_2_come_out() {
    let share = |copies| (Plan::new(32768, 65536, copies).answered() * 100.0).round();
    assert_eq!([1, 2, 4].map(share), [79.0, 83.0, 80.0]);
    let full = |copies| (Plan::new(65536, 65536, copies).answered() * 100.0).round();
    assert_eq!([1, 2, 4].map(full), [63.0, 62.0, 50.0]);
}

#[test]
fn the_formula_matches_a_manual_calculation() {
    // Two slots, one copy, two keys: the newer key is there, the older with probability 1/2.
    let plan = Plan::new(2, 2, 1);
    assert!((plan.answered_at(0) - 1.0).abs() < 1e-12 && (plan.answered_at(1) - 0.5).abs() < 1e-12);
    assert!((plan.answered() - 0.75).abs() < 1e-12);
    assert!((plan.occupied() - 0.75).abs() < 1e-12);
    // Four slots, two copies, one later key: both copies are lost with probability 1 - 2·(3/4)^2 + (1/2)^2 = 1/8.
    assert!((Plan::new(2, 4, 2).answered_at(1) - 0.875).abs() < 1e-12);
    // One slot: only the newest.
    assert!((Plan::new(10, 1, 1).answered() - 0.1).abs() < 1e-12);
    assert_eq!(Plan::new(0, 16, 2).answered(), 1.0);
}

#[test]
fn every_outcome_is_listed() {
    for (keys, slots, copies) in [
        (1_u64 << 20, 1_u64 << 20, 2_u8),
        (1 << 26, 1 << 20, 4),
        (100, 1 << 30, 1),
    ] {
        for checksum_bits in [0, 8, 32] {
            let plan = Plan {
                checksum_bits,
                ..Plan::new(keys, slots, copies)
            };
            for expected in [plan.expected(), plan.expected_at(keys / 2)] {
                let sum = expected.found + expected.empty + expected.ambiguous + expected.wrong;
                assert!((sum - 1.0).abs() < 1e-9, "{plan:?} {expected:?}");
            }
        }
    }
    // A checksum of 8 bits, all slots overwritten by other keys: one wrong answer in 256 for one copy.
    let plan = Plan {
        checksum_bits: 8,
        ..Plan::new(1 << 20, 1 << 10, 1)
    };
    assert!((plan.expected_at(1 << 20).wrong - 1.0 / 256.0).abs() < 1e-9);
    assert!((plan.false_answer() - 1.0 / 256.0).abs() < 1e-6);
    // With 32 bits the probability of a wrong answer is 2^-32 for each copy.
    let absent = Plan::new(1 << 30, 1 << 20, 2).false_answer();
    assert!((absent * (1_u64 << 32) as f64 - 2.0).abs() < 1e-3, "{absent}");
}

#[test]
fn advice_follows_the_formula() {
    assert_eq!(
        [0.1, 0.5, 1.0, 3.0].map(|load| Plan::new((load * 1e6) as u64, 1_000_000, 1).best_copies()),
        [4, 2, 1, 1]
    );
    let slots = Plan::new(1_000_000, 1, 2).slots_for(0.999).unwrap();
    assert!(Plan::new(1_000_000, slots, 2).answered() >= 0.999);
    assert!(Plan::new(1_000_000, slots / 2, 2).answered() < 0.999);
    assert_eq!(Plan::new(u64::MAX / 4, 1, 2).slots_for(0.999), None);
    for copies in [1, 2, 4] {
        let plan = Plan::new(1 << 14, 1 << 15, copies);
        assert!((Plan::load_of(plan.occupied(), copies) - plan.load()).abs() < 1e-3);
    }
    assert_eq!(Plan::load_of(1.0, 2), f64::INFINITY);
}

#[test]
fn the_bucket_edges_have_numbers() {
    // One slot, by hand: the newest key is there, every older one is lost; a single key is answered.
    for copies in 1..=4 {
        let plan = Plan::new(10, 1, copies);
        assert_eq!(
            (
                plan.answered_at(0),
                plan.answered_at(1),
                plan.answered_at(u64::MAX)
            ),
            (1.0, 0.0, 0.0)
        );
        assert!((plan.answered() - 0.1).abs() < 1e-12, "{}", plan.answered());
        let one = Plan::new(1, 1, copies);
        assert_eq!((one.answered(), one.occupied(), one.load()), (1.0, 1.0, 1.0));
    }
    // Values out of range are clamped.
    assert_eq!(Plan::new(5, 0, 0), Plan::new(5, 1, 1));
    assert_eq!(Plan::new(5, 8, 9), Plan::new(5, 8, 4));
    // No key: nothing is written, and nothing is answered falsely.
    let none = Plan::new(0, 16, 2);
    assert_eq!(
        (none.load(), none.occupied(), none.false_answer(), none.answered()),
        (0.0, 0.0, 0.0, 1.0)
    );
    assert_eq!(
        (none.slots_for(1.0), Plan::new(u64::MAX, 1, 4).slots_for(0.5)),
        (Some(1), None)
    );
    for keys in [0, 1, 2, 1 << 31, u64::MAX] {
        for slots in [1, 2, 3, 1 << 31, u64::MAX] {
            for copies in 1..=4 {
                let plan = Plan::new(keys, slots, copies);
                let ages =
                    [0, 1, keys, u64::MAX].map(|later| (plan.answered_at(later), plan.expected_at(later)));
                let all = ages.into_iter().chain([(plan.answered(), plan.expected())]);
                for (answered, predicted) in all {
                    let parts = [
                        predicted.found,
                        predicted.empty,
                        predicted.ambiguous,
                        predicted.wrong,
                    ];
                    assert!(
                        parts
                            .iter()
                            .chain([&answered])
                            .all(|one| (0.0..=1.0).contains(one)),
                        "{plan:?} {predicted:?}"
                    );
                    assert!(
                        (parts.iter().sum::<f64>() - 1.0).abs() < 1e-6,
                        "{plan:?} {predicted:?}"
                    );
                }
                assert!((1..=4).contains(&plan.best_copies()) && (0.0..=1.0).contains(&plan.occupied()));
            }
        }
    }
    let (full, empty) = (Plan::load_of(1.0, 2), Plan::load_of(0.0, 2));
    assert_eq!(
        (full, empty, Plan::load_of(2.0, 0)),
        (f64::INFINITY, 0.0, f64::INFINITY)
    );
}
