//! The store calculator: for so many keys, how many slots and copies, what memory it takes, and how likely a key is answered.

use collector::stores::Plan;
use serde::{Deserialize, Serialize};
use wire::dta::layout::slot_stride;

/// What is to be calculated.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Wish {
    /// Different keys, each written once, while the store is asked for them.
    pub(crate) keys: u64,
    /// Slots; none: as many as `answered` takes.
    pub(crate) slots: Option<u64>,
    /// Copies; none: those with which most keys are answered.
    pub(crate) copies: Option<u8>,
    /// Bytes of data in a slot.
    pub(crate) data: u16,
    /// The share of keys to be answered.
    pub(crate) answered: f64,
}

/// What comes of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Calculation {
    /// Keys.
    pub(crate) keys: u64,
    /// Slots.
    pub(crate) slots: u64,
    /// Copies of each key.
    pub(crate) copies: u8,
    /// Bytes of memory.
    pub(crate) bytes: u64,
    /// Keys per slot.
    pub(crate) load: f64,
    /// The share of slots that are written at the end.
    pub(crate) occupied: f64,
    /// The share of all keys that are answered.
    pub(crate) answered: f64,
    /// The chance that the oldest key is answered.
    pub(crate) oldest: f64,
    /// The share of keys for which the answer is that nothing is known.
    pub(crate) empty: f64,
    /// The share of keys whose copies differ.
    pub(crate) ambiguous: f64,
    /// The share of keys that are answered wrongly.
    pub(crate) wrong: f64,
    /// The chance that a key which was never reported is answered.
    pub(crate) false_answer: f64,
    /// The same for each number of copies.
    pub(crate) by_copies: Vec<Choice>,
}

/// What so many copies would give.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Choice {
    /// Copies.
    pub(crate) copies: u8,
    /// The share of all keys that are answered.
    pub(crate) answered: f64,
    /// The chance that the oldest key is answered.
    pub(crate) oldest: f64,
}

/// Calculates.
///
/// # Errors
/// Numbers that cannot be: a sentence.
pub(crate) fn calculate(wish: &Wish) -> Result<Calculation, String> {
    if wish.keys == 0 || !(1..=1024).contains(&wish.data) {
        return Err("there must be a key, and 1 to 1024 bytes of data".to_owned());
    }
    if !(wish.answered > 0.0 && wish.answered < 1.0) {
        return Err("the share to be answered is above 0 and below 1, such as 0.99".to_owned());
    }
    let slots = match wish.slots {
        Some(slots) if slots.is_power_of_two() && slots <= 1 << 31 => slots,
        Some(_) => return Err("slots are a power of two, at most 2G".to_owned()),
        None => least_slots(wish)?,
    };
    let copies = wish.copies.unwrap_or_else(|| Plan::new(wish.keys, slots, 1).best_copies());
    let plan = Plan::new(wish.keys, slots, copies);
    let expected = plan.expected();
    let oldest = |copies| Plan::new(wish.keys, slots, copies).answered_at(wish.keys.saturating_sub(1));
    let choice = |copies| Choice {
        copies,
        answered: Plan::new(wish.keys, slots, copies).answered(),
        oldest: oldest(copies),
    };
    Ok(Calculation {
        keys: wish.keys,
        slots,
        copies,
        bytes: slots * slot_stride(wish.data),
        load: plan.load(),
        occupied: plan.occupied(),
        answered: plan.answered(),
        oldest: oldest(copies),
        empty: expected.empty,
        ambiguous: expected.ambiguous,
        wrong: expected.wrong,
        false_answer: plan.false_answer(),
        by_copies: (1..=4).map(choice).collect(),
    })
}

/// The least slots with which enough keys are answered, by the given copies or the best.
fn least_slots(wish: &Wish) -> Result<u64, String> {
    let choices = wish.copies.map_or(1..=4, |copies| copies..=copies);
    let slots = choices.filter_map(|copies| Plan::new(wish.keys, 1, copies).slots_for(wish.answered)).min();
    slots.ok_or_else(|| {
        "that takes more than 2^31 slots; spread the keys over several stores or collectors".to_owned()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_is_made_as_large_as_it_must_be() {
        let wish = Wish { keys: 1_000_000, slots: None, copies: None, data: 20, answered: 0.99 };
        let made = calculate(&wish).unwrap();
        assert!(made.answered >= 0.99 && made.slots.is_power_of_two(), "{made:?}");
        assert_eq!(made.bytes, made.slots * 32);
        let half = Wish { slots: Some(made.slots / 2), ..wish };
        let less = calculate(&half).unwrap();
        assert!(less.by_copies.iter().all(|choice| choice.answered < 0.99), "{less:?}");
    }

    #[test]
    fn one_copy_at_load_one_is_the_formula() {
        // The average of (1 - 1/M)^age over all ages, for M = keys: 1 - 1/e.
        let wish = Wish { keys: 1 << 20, slots: Some(1 << 20), copies: Some(1), data: 4, answered: 0.99 };
        let made = calculate(&wish).unwrap();
        assert!((made.answered - (1.0 - (-1.0_f64).exp())).abs() < 1e-4, "{made:?}");
        assert!((made.oldest - (-1.0_f64).exp()).abs() < 1e-4, "{made:?}");
        assert_eq!((made.bytes, made.by_copies.len()), (8 << 20, 4));
    }

    #[test]
    fn what_cannot_be_is_told() {
        let wish = Wish { keys: 1, slots: Some(3), copies: None, data: 20, answered: 0.99 };
        assert!(calculate(&wish).unwrap_err().contains("power of two"));
        assert!(calculate(&Wish { slots: None, answered: 1.0, ..wish }).unwrap_err().contains("share"));
        assert!(calculate(&Wish { keys: 0, ..wish }).is_err());
        assert!(calculate(&Wish { slots: None, keys: 1 << 40, ..wish }).unwrap_err().contains("2^31"));
    }
}
