//! The deadband: values that are not a significant change.

/// An interval of values that are not reported. A single comparison decides whether a value is inside.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
pub(crate) struct Deadband {
    low: u64,
    /// `v` is inside when `v - low <= width`, wrapping.
    width: u64,
}

impl Deadband {
    /// No value is inside.
    pub(crate) const EMPTY: Self = Self {
        low: u64::MAX,
        width: 0,
    };

    /// From `low` to `high`, both included; empty if `high` is less than `low`.
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

    /// Whether `value` is inside.
    #[inline(always)]
    pub(crate) fn contains(&self, value: u64) -> bool {
        value.wrapping_sub(self.low) <= self.width
    }
}
