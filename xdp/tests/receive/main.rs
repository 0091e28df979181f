//! Receiving by AF_XDP: the steering program by test runs, and the fallback through the receive paths in network namespaces.
//!
//! They need root; without it, each prints that it is skipped.

// The helpers are part of the tests.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::io::Write as _;

mod fallback;
mod frames;
mod load;
mod steering;

/// Prints that a test lacks a requirement, bypassing the test runner, which captures output of passing tests. Everything
/// but a missing permission is a failure.
fn skipped<T>(test: &str, error: &nic::Error) -> Option<T> {
    const MISSING: [i32; 2] = [1, 13];
    assert!(
        error.errno().is_none_or(|errno| MISSING.contains(&errno)),
        "{error}"
    );
    let _ = writeln!(std::io::stderr(), "SKIPPED {test}: {error}");
    None
}
