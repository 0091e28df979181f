//! Measures the time per operation of an experiment's points in several runs ([`Spread`]), with arithmetic on such figures.
//!
//! A run is the median of many rounds of tens of microseconds. That excludes rounds in which another program used the core.

use std::{
    cmp::Ordering,
    hint::black_box,
    time::{Duration, Instant},
};

use super::{page::Cell, settings::Settings};
use crate::svg::{Point, separated};
use terminal::CliError;

/// Median, minimum and maximum of the runs of a point.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Spread {
    pub(super) median: f64,
    pub(super) min: f64,
    pub(super) max: f64,
}

impl Spread {
    /// Computes the figures of these runs; without runs they are NaN.
    pub(super) fn of(mut runs: Vec<f64>) -> Self {
        runs.sort_by(f64::total_cmp);
        let [min, median, max] = [0, runs.len() / 2, runs.len().saturating_sub(1)]
            .map(|index| runs.get(index).copied().unwrap_or(f64::NAN));
        Self { median, min, max }
    }

    /// Calls `run` as often as the setting `runs` says, and stops at the first error.
    pub(super) fn runs(
        settings: &Settings,
        mut run: impl FnMut() -> Result<f64, CliError>,
    ) -> Result<Self, CliError> {
        (0..settings.value("runs"))
            .map(|_| run())
            .collect::<Result<_, _>>()
            .map(Self::of)
    }

    /// Converts the figures to another quantity, such as a rate in place of a time. `convert` must be monotonic.
    pub(super) fn map(self, convert: impl Fn(f64) -> f64) -> Self {
        let ends = (convert(self.min), convert(self.max));
        Self {
            median: convert(self.median),
            min: ends.0.min(ends.1),
            max: ends.0.max(ends.1),
        }
    }

    /// Adds medians, minima and maxima. The result bounds the spread of the sum.
    pub(super) fn plus(self, other: Self) -> Self {
        Self {
            median: self.median + other.median,
            min: self.min + other.min,
            max: self.max + other.max,
        }
    }

    /// Subtracts the medians; minimum and maximum are the smallest and the largest difference that the runs allow.
    pub(super) fn minus(self, other: Self) -> Self {
        self.plus(Self {
            median: -other.median,
            min: -other.max,
            max: -other.min,
        })
    }

    /// Divides the medians; minimum and maximum are the smallest and the largest ratio that the runs allow.
    pub(super) fn over(self, other: Self) -> Self {
        Self {
            median: self.median / other.median,
            min: self.min / other.max,
            max: self.max / other.min,
        }
    }

    /// Compares two quantities; `None` if their runs overlap, or if minimum or maximum is unknown.
    pub(super) fn order(self, other: Self) -> Option<Ordering> {
        if self.max < other.min {
            Some(Ordering::Less)
        } else if self.min > other.max {
            Some(Ordering::Greater)
        } else {
            None
        }
    }

    /// Formats a ratio, and says if the runs do not distinguish it from 1.
    pub(super) fn ratio_text(self, decimals: usize) -> String {
        let one = Self {
            median: 1.0,
            min: 1.0,
            max: 1.0,
        };
        let unclear = if self.order(one).is_none() {
            ", not distinguishable from 1"
        } else {
            ""
        };
        format!("{}{unclear}", self.text(decimals))
    }

    /// Returns three table cells: median, minimum, maximum.
    pub(super) fn cells(self, decimals: usize) -> [Cell; 3] {
        [self.median, self.min, self.max].map(|figure| Cell::Figure(figure, decimals))
    }

    /// Returns a point of a plot, with whiskers.
    pub(super) fn point(self, x: f64) -> Point {
        Point {
            x,
            y: self.median,
            spread: Some((self.min, self.max)),
        }
    }

    /// Formats the figures: `12.3 (12.1 to 13.0)`, or `12.3 (spread unknown)`.
    pub(super) fn text(self, decimals: usize) -> String {
        let [median, min, max] =
            [self.median, self.min, self.max].map(|figure| separated(&format!("{figure:.decimals$}")));
        if self.min.is_nan() || self.max.is_nan() {
            return format!("{median} (spread unknown)");
        }
        format!("{median} ({min} to {max})")
    }
}

/// Returns the duration of each run of a point, from the setting `span`.
pub(super) fn span(settings: &Settings) -> Duration {
    Duration::from_millis(settings.value("span"))
}

/// Measures the time per operation of `work`, ns. A call of `work` does the operations of one round, for tens of microseconds,
/// and returns their number. An error of `work` ends the measurement.
pub(super) fn measure(
    settings: &Settings,
    mut work: impl FnMut() -> Result<u64, CliError>,
) -> Result<Spread, CliError> {
    let span = span(settings);
    warm_up(span, &mut work)?;
    Spread::runs(settings, || run(span, &mut work))
}

/// Measures one run as [`measure`] does, for [`in_turn`].
pub(super) fn measure_once(
    settings: &Settings,
    mut work: impl FnMut() -> Result<u64, CliError>,
) -> Result<f64, CliError> {
    let span = span(settings);
    warm_up(span, &mut work)?;
    run(span, &mut work)
}

/// Measures all points once, then again, so that a disturbance of some seconds does not affect all runs of one point.
pub(super) fn in_turn<P>(
    settings: &Settings,
    points: &[P],
    mut measure: impl FnMut(&P) -> Result<f64, CliError>,
) -> Result<Vec<Spread>, CliError> {
    let mut runs = vec![Vec::new(); points.len()];
    for _ in 0..settings.value("runs") {
        for (point, runs) in points.iter().zip(&mut runs) {
            runs.push(measure(point)?);
        }
    }
    Ok(runs.into_iter().map(Spread::of).collect())
}

/// Runs `work` for half the duration of a run, without measuring it.
fn warm_up(span: Duration, work: &mut impl FnMut() -> Result<u64, CliError>) -> Result<(), CliError> {
    let started = Instant::now();
    while started.elapsed() < span / 2 {
        black_box(work()?);
    }
    Ok(())
}

/// Returns the median of the rounds of one run, ns per operation.
fn run(span: Duration, work: &mut impl FnMut() -> Result<u64, CliError>) -> Result<f64, CliError> {
    let started = Instant::now();
    let mut rounds = Vec::new();
    while started.elapsed() < span || rounds.len() < 3 {
        let round = Instant::now();
        let operations = black_box(work()?);
        rounds.push(round.elapsed().as_nanos() as f64 / operations.max(1) as f64);
    }
    Ok(Spread::of(rounds).median)
}

/// The condition that applies to every result of [`measure`].
pub(super) const CONDITION: &str = "measured: each run is the median of many rounds of tens of microseconds on one core; figures are the \
                                    median of the runs, `_min` and `_max` the smallest and largest run";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spread_keeps_its_order_when_times_become_rates() {
        let spread = Spread::of(vec![5.0, 2.0, 4.0]);
        assert_eq!(
            spread,
            Spread {
                median: 4.0,
                min: 2.0,
                max: 5.0
            }
        );
        assert_eq!(
            spread.map(|ns| 20.0 / ns),
            Spread {
                median: 5.0,
                min: 4.0,
                max: 10.0
            }
        );
        assert_eq!(spread.text(1), "4.0 (2.0 to 5.0)");
        assert_eq!(spread.map(|ns| 1e3 * ns).text(0), "4,000 (2,000 to 5,000)");
    }

    #[test]
    fn only_runs_that_do_not_overlap_have_an_order() {
        let low = Spread {
            median: 4.0,
            min: 2.0,
            max: 5.0,
        };
        let near = Spread {
            median: 6.0,
            min: 5.0,
            max: 9.0,
        };
        let high = Spread {
            median: 8.0,
            min: 6.0,
            max: 10.0,
        };
        let unknown = Spread {
            median: 100.0,
            min: f64::NAN,
            max: f64::NAN,
        };
        assert_eq!(low.order(high), Some(Ordering::Less));
        assert_eq!(high.order(low), Some(Ordering::Greater));
        assert_eq!(low.order(near), None);
        assert_eq!(unknown.order(low), None);
        assert_eq!(high.over(low).ratio_text(1), "2.0 (1.2 to 5.0)");
        assert_eq!(
            near.over(low).ratio_text(1),
            "1.5 (1.0 to 4.5), not distinguishable from 1"
        );
        assert_eq!(
            unknown.over(low).ratio_text(0),
            "25 (spread unknown), not distinguishable from 1"
        );
        assert_eq!(
            high.minus(low),
            Spread {
                median: 4.0,
                min: 1.0,
                max: 8.0
            }
        );
    }
}
