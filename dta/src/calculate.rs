//! The store calculator behind `hopwise calculate` and the API: computes slots, copies, memory and the probability that a
//! query succeeds for a number of keys.

use wire::dta::layout::slot_stride;

use crate::Plan;
pub use crate::calculation::{Calculation, Choice};

/// The input of the calculation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Requirements {
    /// Distinct keys to store, each written once.
    pub keys: u64,
    /// Number of slots; `None` for the smallest that reaches `answered`.
    pub slots: Option<u64>,
    /// Copies of each key; `None` for the number that answers most keys.
    pub copies: Option<u8>,
    /// Bytes of data in a slot.
    pub data: u16,
    /// Share of the keys to be answered, between 0 and 1.
    pub answered: f64,
}

/// Calculates the sizes and probabilities.
///
/// # Errors
/// A message that says which input is impossible.
pub fn calculate(requirements: &Requirements) -> Result<Calculation, String> {
    if requirements.keys == 0 || !(1..=1024).contains(&requirements.data) {
        return Err("there must be a key, and 1 to 1024 bytes of data".to_owned());
    }
    if !(requirements.answered > 0.0 && requirements.answered < 1.0) {
        return Err("the share to be answered is above 0 and below 1, such as 0.99".to_owned());
    }
    if requirements
        .copies
        .is_some_and(|copies| !(1..=4).contains(&copies))
    {
        return Err("a key has 1 to 4 copies; leave them out for the best number".to_owned());
    }
    let slots = match requirements.slots {
        Some(slots) if slots.is_power_of_two() && slots <= 1 << 31 => slots,
        Some(_) => return Err("slots are a power of two, at most 2G".to_owned()),
        None => min_slots(requirements)?,
    };
    let copies = requirements
        .copies
        .unwrap_or_else(|| Plan::new(requirements.keys, slots, 1).best_copies());
    let plan = Plan::new(requirements.keys, slots, copies);
    let expected = plan.expected();
    Ok(Calculation {
        keys: requirements.keys,
        slots,
        copies,
        bytes: slots * slot_stride(requirements.data),
        load: plan.load(),
        occupied: plan.occupied(),
        answered: plan.answered(),
        oldest: oldest(requirements.keys, slots, copies),
        empty: expected.empty,
        ambiguous: expected.ambiguous,
        wrong: expected.wrong,
        false_answer: plan.false_answer(),
        by_copies: (1..=4)
            .map(|copies| Choice {
                copies,
                answered: Plan::new(requirements.keys, slots, copies).answered(),
                oldest: oldest(requirements.keys, slots, copies),
            })
            .collect(),
    })
}

/// Returns the probability that a query for the oldest key succeeds.
fn oldest(keys: u64, slots: u64, copies: u8) -> f64 {
    Plan::new(keys, slots, copies).answered_at(keys.saturating_sub(1))
}

/// Returns the smallest number of slots that reaches the requested share, for the given number of copies or the best one.
fn min_slots(requirements: &Requirements) -> Result<u64, String> {
    let choices = requirements.copies.map_or(1..=4, |copies| copies..=copies);
    let slots = choices
        .filter_map(|copies| Plan::new(requirements.keys, 1, copies).slots_for(requirements.answered))
        .min();
    slots.ok_or_else(|| {
        "that takes more than 2^31 slots; spread the keys over several stores or collectors".to_owned()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_is_made_as_large_as_it_must_be() {
        let requirements = Requirements {
            keys: 1_000_000,
            slots: None,
            copies: None,
            data: 20,
            answered: 0.99,
        };
        let made = calculate(&requirements).unwrap();
        assert!(made.answered >= 0.99 && made.slots.is_power_of_two(), "{made:?}");
        assert_eq!(made.bytes, made.slots * 32);
        let half = Requirements {
            slots: Some(made.slots / 2),
            ..requirements
        };
        let less = calculate(&half).unwrap();
        assert!(
            less.by_copies.iter().all(|choice| choice.answered < 0.99),
            "{less:?}"
        );
    }

    #[test]
    fn one_copy_at_load_one_is_the_formula() {
        // The average of (1 - 1/M)^age over all ages, for M = keys: 1 - 1/e.
        let requirements = Requirements {
            keys: 1 << 20,
            slots: Some(1 << 20),
            copies: Some(1),
            data: 4,
            answered: 0.99,
        };
        let made = calculate(&requirements).unwrap();
        assert!(
            (made.answered - (1.0 - (-1.0_f64).exp())).abs() < 1e-4,
            "{made:?}"
        );
        assert!((made.oldest - (-1.0_f64).exp()).abs() < 1e-4, "{made:?}");
        assert_eq!((made.bytes, made.by_copies.len()), (8 << 20, 4));
    }

    #[test]
    fn the_smallest_and_the_largest_have_numbers() {
        for keys in [1, 2, 3, 1 << 31, u64::MAX] {
            for slots in [1, 2, 4, 1 << 31] {
                for copies in 1..=4 {
                    let requirements = Requirements {
                        keys,
                        slots: Some(slots),
                        copies: Some(copies),
                        data: 1,
                        answered: 0.5,
                    };
                    let made = calculate(&requirements).unwrap();
                    let shares = [
                        made.occupied,
                        made.answered,
                        made.oldest,
                        made.empty,
                        made.ambiguous,
                        made.wrong,
                        made.false_answer,
                    ];
                    let choices = made
                        .by_copies
                        .iter()
                        .flat_map(|choice| [choice.answered, choice.oldest]);
                    assert!(
                        shares
                            .into_iter()
                            .chain(choices)
                            .all(|share| (0.0..=1.0).contains(&share)),
                        "{made:?}"
                    );
                    assert!(made.load.is_finite() && made.bytes == slots * 8, "{made:?}");
                }
            }
        }
        // Worked by hand: a single key in one slot is answered; of two keys in one slot, only the newer one is.
        let of = |keys| {
            calculate(&Requirements {
                keys,
                slots: Some(1),
                copies: Some(1),
                data: 4,
                answered: 0.5,
            })
            .unwrap()
        };
        assert_eq!((of(1).answered, of(1).oldest, of(1).occupied), (1.0, 1.0, 1.0));
        assert_eq!((of(2).answered, of(2).oldest), (0.5, 0.0));
        // An overwritten key, here half of the keys, is answered wrongly by chance with probability 2^-32.
        assert!(
            (of(2).empty - (0.5 - 0.5 / 2_f64.powi(32))).abs() < 1e-15,
            "{}",
            of(2).empty
        );
    }

    #[test]
    fn impossible_requirements_are_errors() {
        let requirements = Requirements {
            keys: 1,
            slots: Some(3),
            copies: None,
            data: 20,
            answered: 0.99,
        };
        assert!(calculate(&requirements).unwrap_err().contains("power of two"));
        assert!(
            calculate(&Requirements {
                slots: None,
                answered: 1.0,
                ..requirements
            })
            .unwrap_err()
            .contains("share")
        );
        assert!(
            calculate(&Requirements {
                keys: 0,
                ..requirements
            })
            .unwrap_err()
            .contains("there must be a key")
        );
        assert!(
            calculate(&Requirements {
                data: 0,
                slots: None,
                ..requirements
            })
            .unwrap_err()
            .contains("1 to 1024 bytes")
        );
        assert!(
            calculate(&Requirements {
                data: 1025,
                slots: None,
                ..requirements
            })
            .unwrap_err()
            .contains("1 to 1024 bytes")
        );
        for copies in [0, 5, 255] {
            let many = Requirements {
                copies: Some(copies),
                slots: None,
                ..requirements
            };
            assert!(
                calculate(&many).unwrap_err().contains("1 to 4 copies"),
                "{copies}"
            );
        }
        for slots in [0, 1 << 32, u64::MAX] {
            assert!(
                calculate(&Requirements {
                    slots: Some(slots),
                    ..requirements
                })
                .unwrap_err()
                .contains("power of two")
            );
        }
        for answered in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            assert!(
                calculate(&Requirements {
                    slots: None,
                    answered,
                    ..requirements
                })
                .unwrap_err()
                .contains("share")
            );
        }
        assert!(
            calculate(&Requirements {
                slots: None,
                keys: 1 << 40,
                ..requirements
            })
            .unwrap_err()
            .contains("2^31")
        );
    }
}
