//! Types of other crates that need a schema for the OpenAPI document; compiled for tests only.

/// Answers of the crate `dta`, compiled again here with schemas. A cargo feature for schemas would build `dta` and its
/// dependents twice, for the program and for the tests.
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
