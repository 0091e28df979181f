//! Keeps the reports of an intent at or under its budget: coarser at once, finer in small steps.
//!
//! Every interval, the [`Controller`] compares the rate of reports with the budget. Above it, it raises the threshold in proportion, at
//! least twofold. Well below it, it lowers the threshold by an eighth, but at most by a sixteenth of the bounds: the rate must not grow by
//! more than the room in one step. It never leaves the bounds of the operator. While a threshold is in force, no suppressed value differs
//! from the last reported one by more than it: that is what [`Move`] states.
//!
//! At the coarsest threshold, it also halves the share of packets that are measured, where the bounds allow that.

use std::fmt;

/// What is controlled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Detail {
    /// Threshold of the filter, in the metric's unit.
    pub threshold: u64,
    /// One packet of this many is measured.
    pub sample: u32,
}

impl fmt::Display for Detail {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self { threshold, sample: 0 | 1 } => write!(f, "threshold {threshold}"),
            Self { threshold: 0, sample } => write!(f, "1 in {sample} packets"),
            Self { threshold, sample } => write!(f, "threshold {threshold}, 1 in {sample} packets"),
        }
    }
}

/// Bounds that the operator gave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Finest detail; the controller returns to it when there is room.
    pub finest: Detail,
    /// Coarsest detail.
    pub coarsest: Detail,
}

/// Why the detail was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// More reports than the budget.
    Above,
    /// Room for more.
    Room,
    /// More reports than the budget, at the coarsest detail: the operator must raise the budget or widen the bounds.
    AtBound,
}

/// A change of the detail.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Move {
    /// Time, ns.
    pub at: u64,
    /// Why.
    pub reason: Reason,
    /// Reports per second that caused it.
    pub rate: f64,
    /// The budget, reports per second.
    pub budget: u64,
    /// Before.
    pub from: Detail,
    /// After.
    pub to: Detail,
}

impl fmt::Display for Move {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rate, budget, from, to, .. } = self;
        match self.reason {
            Reason::AtBound => write!(
                f,
                "{rate:.0} reports/s exceed the budget of {budget} at the coarsest detail allowed ({to}); raise the budget or the bounds"
            ),
            Reason::Above | Reason::Room => {
                let why = if self.reason == Reason::Above { "exceed" } else { "leave room in" };
                write!(f, "{rate:.0} reports/s {why} the budget of {budget}: ")?;
                if from.threshold != to.threshold {
                    write!(
                        f,
                        "threshold {} → {}: suppressed values differ by at most this",
                        from.threshold, to.threshold
                    )
                } else {
                    write!(f, "1 in {} → 1 in {} packets", from.sample, to.sample)
                }
            }
        }
    }
}

/// Time between two decisions, ns: a change must show in the rate before the next.
pub const INTERVAL: u64 = 1_000_000_000;

/// There is room below this share of the budget, percent. The gap keeps the controller from oscillating around the budget.
const ROOM: u64 = 70;

/// How many times higher the threshold becomes at most in one step: a rate of one second may be an exception.
const GREATEST_STEP: f64 = 8.0;

/// The controller of one intent.
#[derive(Clone, Debug)]
pub struct Controller {
    budget: u64,
    bounds: Bounds,
    detail: Detail,
    last: Option<u64>,
    at_bound: bool,
}

impl Controller {
    /// A controller at the finest detail. `budget` is in reports per second.
    pub fn new(budget: u64, bounds: Bounds) -> Self {
        Self { budget, bounds, detail: bounds.finest, last: None, at_bound: false }
    }

    /// The detail in force.
    pub fn detail(&self) -> Detail {
        self.detail
    }

    /// A change could not be made.
    pub fn undo(&mut self, step: &Move) {
        self.detail = step.from;
    }

    /// Takes the current rate of reports, per second; returns a change to make.
    pub fn observe(&mut self, rate: f64, now: u64) -> Option<Move> {
        if self.last.is_some_and(|last| now < last.saturating_add(INTERVAL)) {
            return None;
        }
        self.last = Some(now);
        let budget = self.budget as f64;
        let from = self.detail;
        let (reason, to) = if rate > budget {
            (Reason::Above, self.coarser(rate / budget.max(1.0)))
        } else if rate < budget * ROOM as f64 / 100.0 {
            (Reason::Room, self.finer())
        } else {
            return None;
        };
        let stuck = reason == Reason::Above && to == from;
        // Reported once, not every second.
        if to == from && (!stuck || std::mem::replace(&mut self.at_bound, true)) {
            return None;
        }
        self.at_bound = stuck;
        self.detail = to;
        let reason = if stuck { Reason::AtBound } else { reason };
        Some(Move { at: now, reason, rate, budget: self.budget, from, to })
    }

    /// `excess`: how many times the budget the rate is. Few reports pass a threshold that is that much higher.
    fn coarser(&self, excess: f64) -> Detail {
        let Detail { threshold, sample } = self.detail;
        let most = self.bounds.coarsest;
        if threshold < most.threshold {
            let times = excess.ceil().clamp(2.0, GREATEST_STEP) as u64;
            let raised = threshold.saturating_mul(times).max(threshold.saturating_add(1));
            Detail { threshold: raised.min(most.threshold), sample }
        } else {
            Detail { threshold, sample: sample.saturating_mul(2).min(most.sample).max(sample) }
        }
    }

    fn finer(&self) -> Detail {
        let Detail { threshold, sample } = self.detail;
        let least = self.bounds.finest;
        if sample > least.sample {
            // An equal step in the share of packets, not in N.
            let finer = u64::from(sample) * 16 / (u64::from(sample) + 16);
            Detail { threshold, sample: (finer as u32).clamp(least.sample, sample - 1) }
        } else {
            let most = self.bounds.coarsest.threshold.saturating_sub(least.threshold) / 16;
            let step = most.min(threshold / 8).max(1);
            Detail { threshold: threshold.saturating_sub(step).max(least.threshold), sample }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use testkit::rng::Rng;

    const BOUNDS: Bounds = Bounds {
        finest: Detail { threshold: 1_000, sample: 1 },
        coarsest: Detail { threshold: 64_000, sample: 8 },
    };

    #[test]
    fn detail_falls_in_proportion_above_and_grows_by_steps_below() {
        let mut controller = Controller::new(1000, BOUNDS);
        let text = |change: Option<Move>| change.map(|change| change.to_string());
        let first = "5000 reports/s exceed the budget of 1000: threshold 1000 → 5000: suppressed values differ by at most this";
        assert_eq!(text(controller.observe(5000.0, 0)).as_deref(), Some(first));
        assert_eq!(controller.observe(5000.0, INTERVAL / 2), None);
        let mut details = Vec::new();
        for second in 1..10 {
            let change = controller.observe(5000.0, second * INTERVAL);
            details.push((controller.detail().threshold, controller.detail().sample));
            if second == 6 {
                assert_eq!(change.map(|change| change.reason), Some(Reason::AtBound));
            }
            if second > 6 {
                assert_eq!(change, None);
            }
        }
        let expected = [
            (25_000, 1),
            (64_000, 1),
            (64_000, 2),
            (64_000, 4),
            (64_000, 8),
            (64_000, 8),
            (64_000, 8),
            (64_000, 8),
            (64_000, 8),
        ];
        assert_eq!(details, expected);
        assert_eq!(controller.observe(800.0, 20 * INTERVAL), None);
        controller.observe(100.0, 30 * INTERVAL);
        assert_eq!(controller.detail(), Detail { threshold: 64_000, sample: 5 });
    }

    /// Values whose changes are exponential: reports/s fall with the threshold. The rate stays at the budget.
    #[test]
    fn the_rate_converges_below_the_budget_and_within_the_bounds() {
        for seed in 0..50 {
            let mut rng = Rng(seed);
            let load = 2_000.0 + rng.below(20_000) as f64;
            let mut controller = Controller::new(1000, BOUNDS);
            let mut above = 0;
            for second in 0..300 {
                let Detail { threshold, sample } = controller.detail();
                assert!((1_000..=64_000).contains(&threshold) && (1..=8).contains(&sample));
                let rate = load * (-(threshold as f64) / 15_000.0).exp() / f64::from(sample);
                above += u32::from(second > 20 && rate > 1000.0);
                controller.observe(rate, second * INTERVAL);
            }
            assert!(above < 60, "seed {seed}: above the budget in {above} of 280 seconds");
        }
    }

    #[test]
    fn quiet_flows_return_to_the_finest_detail() {
        let mut controller = Controller::new(1000, BOUNDS);
        for second in 0..60 {
            controller.observe(if second < 10 { 9e9 } else { 0.0 }, second * INTERVAL);
        }
        assert_eq!(controller.detail(), BOUNDS.finest);
    }
}
