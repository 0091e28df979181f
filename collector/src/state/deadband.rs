//! The deadband of a metric: the interval of values that are no significant change, and therefore no event.

/// An interval of values that are not reported. One comparison tests whether a value is inside.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
pub(crate) struct Deadband {
    low: u64,
    /// A value `v` is inside if `v - low <= width`, with wrapping subtraction.
    width: u64,
}

impl Deadband {
    /// The interval that contains (almost) no value: only `u64::MAX`, which is no measurement.
    pub(crate) const EMPTY: Self = Self {
        low: u64::MAX,
        width: 0,
    };

    /// Returns the interval from `low` to `high`, inclusive; empty if `high` is less than `low`.
    #[inline(always)]
    pub(crate) fn between(low: u64, high: u64) -> Self {
        if low <= high {
            Self {
                low,
                width: high - low,
            }
        } else {
            Self::EMPTY
        }
    }

    /// Returns whether `value` is inside the deadband.
    #[inline(always)]
    pub(crate) fn contains(&self, value: u64) -> bool {
        value.wrapping_sub(self.low) <= self.width
    }
}
