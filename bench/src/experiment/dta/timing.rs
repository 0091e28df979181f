//! Time per operation, on a machine that other programs use too.

use std::{
    hint::black_box,
    time::{Duration, Instant},
};

use crate::experiment::Scale;
use terminal::CliError;

/// The median; NaN without values.
pub(super) fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures.get(figures.len() / 2).copied().unwrap_or(f64::NAN)
}

/// Nanoseconds per operation: the median of many short rounds, which excludes rounds in which another program used the core.
/// `work` does the operations of one round, for some ten microseconds, and returns their number.
pub(super) fn of(scale: Scale, mut work: impl FnMut() -> Result<u64, CliError>) -> Result<f64, CliError> {
    let span = Duration::from_micros(scale.of(500_000));
    // A tenth to warm up.
    let warm_up = Instant::now();
    while warm_up.elapsed() < span / 10 {
        black_box(work()?);
    }
    let (started, mut rounds) = (Instant::now(), Vec::new());
    while started.elapsed() < span || rounds.len() < 16 {
        let round = Instant::now();
        let operations = black_box(work()?);
        rounds.push(round.elapsed().as_nanos() as f64 / operations.max(1) as f64);
    }
    Ok(median(rounds))
}

/// The condition that applies to every result of [`of`].
pub(super) fn condition() -> String {
    let machine = crate::cases::machine();
    format!("measured: median of many rounds of some ten microseconds; {machine}")
}
