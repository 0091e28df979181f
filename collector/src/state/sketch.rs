//! Quantiles (p50, p99) from a bounded pool of HDR histograms.
//!
//! A quantile is the lowest recorded value that at least this share of the values does not exceed (nearest rank): of two values
//! that each half of the reports has, the median is the lower one. It is never a value between two.
//!
//! Values have two significant digits (an error below 1 %) and saturate at [`HIGHEST`]. A histogram takes 14 KiB; it is
//! allocated at first use and then reused, so there are no allocations in the steady state.

use hdrhistogram::Histogram;

/// The largest value that is not saturated: 17 s in ns.
pub(crate) const HIGHEST: u64 = 1 << 34;

/// Index of a histogram in the pool, or [`Handle::NONE`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Handle(u32);

impl Handle {
    pub(crate) const NONE: Self = Self(u32::MAX);

    pub(crate) fn is_none(self) -> bool {
        self == Self::NONE
    }
}

/// A pool of histograms of a fixed capacity.
#[derive(Debug)]
pub(crate) struct Sketches {
    /// The histograms allocated so far.
    histograms: Vec<Histogram<u32>>,
    /// Indexes of unused histograms.
    free: Vec<u32>,
    capacity: usize,
    refused: u64,
}

impl Sketches {
    pub(crate) fn with_capacity(capacity: usize) -> Self {
        Self {
            histograms: Vec::with_capacity(capacity),
            free: Vec::with_capacity(capacity),
            capacity,
            refused: 0,
        }
    }

    /// Returns an empty histogram, or [`Handle::NONE`] if all are in use.
    pub(crate) fn acquire(&mut self) -> Handle {
        if let Some(free) = self.free.pop() {
            return Handle(free);
        }
        if self.histograms.len() < self.capacity
            && let Ok(fresh) = Histogram::new_with_bounds(1, HIGHEST, 2)
        {
            self.histograms.push(fresh);
            return Handle(self.histograms.len() as u32 - 1);
        }
        self.refused += 1;
        Handle::NONE
    }

    /// Records a value that stands for `weight` values.
    #[inline]
    pub(crate) fn record(&mut self, handle: Handle, value: u64, weight: u32) {
        if let Some(histogram) = self.histograms.get_mut(handle.0 as usize) {
            histogram.saturating_record_n(value, weight);
        }
    }

    /// Returns median and 99th percentile, or `None` if nothing was recorded.
    pub(crate) fn quantiles(&self, handle: Handle) -> Option<(u64, u64)> {
        let histogram = self
            .histograms
            .get(handle.0 as usize)
            .filter(|histogram| !histogram.is_empty())?;
        Some((
            histogram.value_at_quantile(0.5),
            histogram.value_at_quantile(0.99),
        ))
    }

    /// Returns a histogram to the pool.
    pub(crate) fn release(&mut self, handle: Handle) {
        if let Some(histogram) = self.histograms.get_mut(handle.0 as usize) {
            histogram.reset();
            self.free.push(handle.0);
        }
    }

    pub(crate) fn table(&self) -> crate::stats::Table {
        crate::stats::Table {
            used: (self.histograms.len() - self.free.len()) as u64,
            capacity: self.capacity as u64,
            evicted: 0,
            refused: self.refused,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{HIGHEST, Sketches};

    #[test]
    fn quantiles_are_within_one_percent_and_weights_count() {
        let mut sketches = Sketches::with_capacity(2);
        let (one, weighted) = (sketches.acquire(), sketches.acquire());
        assert_eq!(sketches.quantiles(one), None);
        for value in 1..=10_000 {
            sketches.record(one, value, 1);
            sketches.record(weighted, value, if value <= 100 { 100 } else { 1 });
        }
        let near = |(p50, p99): (u64, u64), expected: (u64, u64)| {
            assert!(
                p50.abs_diff(expected.0) * 100 <= expected.0 && p99.abs_diff(expected.1) * 100 <= expected.1
            );
        };
        near(sketches.quantiles(one).unwrap(), (5_000, 9_900));
        near(sketches.quantiles(weighted).unwrap(), (100, 9_801));
    }

    #[test]
    fn of_two_values_of_half_of_the_reports_each_the_median_is_the_lower() {
        let mut sketches = Sketches::with_capacity(1);
        let halves = sketches.acquire();
        sketches.record(halves, 100, 500);
        sketches.record(halves, 40, 500);
        assert_eq!(sketches.quantiles(halves), Some((40, 100)));
    }

    #[test]
    fn the_pool_is_bounded_and_reused_empty() {
        let mut sketches = Sketches::with_capacity(1);
        let only = sketches.acquire();
        assert!(sketches.acquire().is_none());
        sketches.record(only, u64::MAX, 3);
        assert!(sketches.quantiles(only).unwrap().0 >= HIGHEST);
        sketches.release(only);
        assert_eq!(sketches.acquire(), only);
        assert_eq!((sketches.quantiles(only), sketches.table().refused), (None, 1));
    }
}
