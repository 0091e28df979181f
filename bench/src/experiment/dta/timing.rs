//! How long something takes, on a machine that has other work.

use std::{
    hint::black_box,
    time::{Duration, Instant},
};

use crate::experiment::Scale;
use terminal::CliError;

/// The middle one of some figures; of none, not a number.
pub(super) fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures.get(figures.len() / 2).copied().unwrap_or(f64::NAN)
}

/// Nanoseconds per operation, the median of many short turns: a turn in which another program had the core is long, and is none
/// of the middle ones. `work` does the operations of a turn, for some ten microseconds, and tells how many they were.
pub(super) fn of(scale: Scale, mut work: impl FnMut() -> Result<u64, CliError>) -> Result<f64, CliError> {
    let span = Duration::from_micros(scale.of(500_000));
    // A tenth to warm up.
    let warm = Instant::now();
    while warm.elapsed() < span / 10 {
        black_box(work()?);
    }
    let (started, mut turns) = (Instant::now(), Vec::new());
    while started.elapsed() < span || turns.len() < 16 {
        let turn = Instant::now();
        let operations = black_box(work()?);
        turns.push(turn.elapsed().as_nanos() as f64 / operations.max(1) as f64);
    }
    Ok(median(turns))
}

/// The condition that goes with every figure of [`of`].
pub(super) fn condition() -> String {
    let machine = crate::cases::machine();
    format!("measured: medians of turns of some ten microseconds; {machine}")
}
