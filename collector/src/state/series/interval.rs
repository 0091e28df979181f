//! Totals of one interval of a series (a second or a minute), and the summary made from them.

use crate::event::Nanos;
use crate::state::sketch::{Handle, Sketches};

/// Totals of one interval.
#[derive(Clone, Copy, Debug)]
pub(super) struct Totals {
    pub(super) count: u64,
    pub(super) least: u64,
    pub(super) greatest: u64,
    pub(super) sum: u64,
    pub(super) sketch: Handle,
    /// Some values arrived as a summary and are in no sketch, so there are no quantiles.
    pub(super) merged: bool,
}

/// Count, range and sum of values that were summarized elsewhere, by an aggregator.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Merged {
    pub(crate) count: u64,
    pub(crate) min: u64,
    pub(crate) max: u64,
    pub(crate) sum: u64,
}

impl Merged {
    /// Returns the minimum or the maximum, whichever is further from the last reported value, if it is beyond `threshold`.
    pub(crate) fn outside(&self, last: u64, threshold: u64) -> Option<u64> {
        let far = if last.abs_diff(self.min) > last.abs_diff(self.max) {
            self.min
        } else {
            self.max
        };
        (last.abs_diff(far) > threshold).then_some(far)
    }
}

impl Totals {
    pub(super) const NOTHING: Self = Self {
        count: 0,
        least: u64::MAX,
        greatest: 0,
        sum: 0,
        sketch: Handle::NONE,
        merged: false,
    };

    pub(super) fn add(&mut self, other: &Self) {
        self.count += other.count;
        self.least = self.least.min(other.least);
        self.greatest = self.greatest.max(other.greatest);
        self.sum = self.sum.saturating_add(other.sum);
        self.merged |= other.merged;
    }

    /// Ends the interval: computes its summary and releases the sketch.
    pub(super) fn finish(&self, sketches: &mut Sketches) -> Summary {
        let quantiles = sketches.quantiles(self.sketch).filter(|_| !self.merged);
        sketches.release(self.sketch);
        // A sketch returns the upper end of a bucket; clamp it to the exact extremes.
        Summary {
            count: self.count,
            min: self.least,
            max: self.greatest,
            sum: self.sum,
            p50: quantiles.map(|(p50, _)| p50.clamp(self.least, self.greatest)),
            p99: quantiles.map(|(_, p99)| p99.clamp(self.least, self.greatest)),
        }
    }
}

/// Summary of a finished interval.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Summary {
    /// Number of values in the interval.
    pub count: u64,
    /// Minimum of the values.
    pub min: u64,
    /// Maximum of the values.
    pub max: u64,
    /// Sum of the values.
    pub sum: u64,
    /// Median, if there was a sketch.
    pub p50: Option<u64>,
    /// 99th percentile, if there was a sketch.
    pub p99: Option<u64>,
}

/// The second that ends, and what to emit for it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Closing {
    /// Start of the second, ns.
    pub(crate) start: Nanos,
    /// Whether its minute ends with it.
    pub(crate) ends_minute: bool,
    /// Seconds until the next one begins: 1, or more if there were no reports.
    pub(crate) elapsed: u32,
    /// Seconds without a value after which a key is removed.
    pub(crate) timeout: u32,
    /// Whether rollups of one second go to the output.
    pub(crate) emits_seconds: bool,
    /// Whether rollups of one minute go to the output.
    pub(crate) emits_minutes: bool,
}

impl Closing {
    /// Returns the start of the minute of this second, ns.
    pub(super) fn minute_start(&self) -> Nanos {
        self.start - self.start % 60_000_000_000
    }
}
