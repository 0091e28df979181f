//! Result types of the store calculator, as returned by the API and `hopwise calculate`: the share of keys that a Key-Write
//! store of a given size answers.

use serde::{Deserialize, Serialize};

/// Result of the store calculator.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Calculation {
    /// Keys that are reported in total.
    pub keys: u64,
    /// Slots of the store.
    pub slots: u64,
    /// Copies of each key.
    pub copies: u8,
    /// Memory of the store, bytes.
    pub bytes: u64,
    /// Keys per slot of the store.
    pub load: f64,
    /// Share of slots that are written at the end.
    pub occupied: f64,
    /// Share of all keys that are answered.
    pub answered: f64,
    /// Probability that the oldest key is answered.
    pub oldest: f64,
    /// Share of keys that are answered as unknown.
    pub empty: f64,
    /// Share of keys whose copies differ.
    pub ambiguous: f64,
    /// Share of keys with a wrong answer.
    pub wrong: f64,
    /// Probability that a key that was never reported is answered.
    pub false_answer: f64,
    /// The result for each number of copies.
    pub by_copies: Vec<Choice>,
}

/// Result for one number of copies.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(rename = "CalculationChoice"))]
pub struct Choice {
    /// Copies of each key.
    pub copies: u8,
    /// Share of all keys that are answered.
    pub answered: f64,
    /// Probability that the oldest key is answered.
    pub oldest: f64,
}
