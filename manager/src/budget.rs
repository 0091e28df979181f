//! Adaptive level of detail: keeps report and event rates within the budgets of intents and collectors. Detail gets coarser at
//! once and finer in small steps.
//!
//! Once per [`INTERVAL`], the [`Controller`] of an intent compares the measured rates with its own budget and with the budgets
//! of the collectors that its devices report to ([`Budgets`]). The most exceeded budget that a coarser detail can relieve
//! decides.
//!
//! - Above the budget, the controller multiplies the threshold by the excess, at least by 2.
//! - Below `ROOM` percent of it, the threshold falls by an eighth, but by at most a sixteenth of the permitted range, so
//!   that one step cannot use up all the room.
//! - At the coarsest threshold, the controller halves the share of measured packets, if the bounds permit. It raises the share
//!   only if the expected rate still fits: 1 in 2 remains as long as measuring every packet would exceed the budget.
//!
//! The detail never leaves the operator's bounds. While a threshold applies, a suppressed value differs from the last reported
//! one by at most this threshold; [`Move`] states that. A threshold that the collector applies, not a filter at the sinks,
//! reduces events but not reports. Too many reports then lower the share at once.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::SocketAddr;

/// Time between two decisions, ns. It gives a change the time to show in the rate before the next decision.
pub const INTERVAL: u64 = 1_000_000_000;
/// Share of the budget in percent below which detail gets finer. The gap to 100 keeps the controller from oscillating.
const ROOM: u64 = 70;
/// Share of the budget in percent that a greater share of packets may use, as expected. The margin absorbs varying rates.
const FILL: u64 = 90;
/// Upper limit of the factor by which the threshold rises in one step, because the rate of a single second may be an outlier.
const GREATEST_STEP: f64 = 8.0;

/// Limits per second. A budget without any limit restricts nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Budget {
    /// Upper limit of reports per second.
    pub reports: Option<u64>,
    /// Upper limit of events per second.
    pub events: Option<u64>,
}

impl Budget {
    /// Returns whether the budget limits nothing.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Pairs the rates with their limits. `collector` names the collector that receives them, or `None` for an intent alone.
    pub fn loads(&self, rates: Rates, collector: Option<SocketAddr>) -> impl Iterator<Item = Load> {
        let all = [
            (Unit::Reports, rates.reports, self.reports),
            (Unit::Events, rates.events, self.events),
        ];
        all.into_iter().filter_map(move |(unit, rate, budget)| {
            Some(Load {
                rate,
                budget: budget?,
                unit,
                collector,
            })
        })
    }
}

impl fmt::Display for Budget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let both = [(self.reports, Unit::Reports), (self.events, Unit::Events)];
        let limits: Vec<String> = both
            .iter()
            .filter_map(|(limit, unit)| Some(format!("{} {}", (*limit)?, unit.name())))
            .collect();
        f.write_str(&limits.join(", "))
    }
}

impl std::str::FromStr for Budget {
    type Err = ();

    /// Parses `2000 reports/s`, `50 events/s`, or both separated by a comma.
    fn from_str(text: &str) -> Result<Self, ()> {
        let mut budget = Self::default();
        for part in text.split(',') {
            let (number, unit) = part.trim().split_once(' ').ok_or(())?;
            let most = match unit.trim_start() {
                "reports/s" => &mut budget.reports,
                "events/s" => &mut budget.events,
                _ => return Err(()),
            };
            let number = number.parse().ok().filter(|number| *number > 0).ok_or(())?;
            if most.replace(number).is_some() {
                return Err(());
            }
        }
        Ok(budget)
    }
}

wire::named! {
    /// The quantity that a budget counts.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Unit, name {
        /// Reports of the data plane.
        Reports => "reports/s",
        /// Events of the collector.
        Events => "events/s",
    }
}

/// Rates of reports and events, per second.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Rates {
    /// Rate of reports per second.
    pub reports: f64,
    /// Rate of events per second; 0 if unknown.
    pub events: f64,
}

/// The load of a collector that has a budget.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CollectorLoad {
    /// Budget of the collector.
    pub budget: Budget,
    /// Total rates that arrive at this collector.
    pub rates: Rates,
    /// Start of the measurement, ns. Later changes of the detail do not show in the rates yet. `None` if unknown.
    pub since: Option<u64>,
}

/// A rate together with its limit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Load {
    /// Measured rate, per second.
    pub rate: f64,
    /// Upper limit, per second.
    pub budget: u64,
    /// Unit of the rate and the limit.
    pub unit: Unit,
    /// The collector whose total load this is, or `None` for the load of the intent alone.
    pub collector: Option<SocketAddr>,
}

impl Load {
    /// Returns the rate as a multiple of the budget.
    fn excess(&self) -> f64 {
        self.rate / (self.budget as f64).max(1.0)
    }
}

impl fmt::Display for Load {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.0} {}", self.rate, self.unit.name())?;
        self.collector
            .map_or(Ok(()), |collector| write!(f, " at the collector {collector}"))
    }
}

/// The level of detail that a controller sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Detail {
    /// Threshold, in the metric's unit; 0 if the intent has no adjustable threshold.
    pub threshold: u64,
    /// Sampling: one packet in `sample` is measured.
    pub sample: u32,
}

impl fmt::Display for Detail {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self {
                threshold,
                sample: 0 | 1,
            } => write!(f, "threshold {threshold}"),
            Self { threshold: 0, sample } => write!(f, "1 in {sample} packets"),
            Self { threshold, sample } => write!(f, "threshold {threshold}, 1 in {sample} packets"),
        }
    }
}

/// Bounds of the detail, set by the operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Finest detail; the controller returns to it when there is room.
    pub finest: Detail,
    /// Coarsest detail that is permitted.
    pub coarsest: Detail,
    /// True if filters at the sinks apply the threshold: a higher one then reduces reports, and not only events.
    pub filters: bool,
}

/// The reason for a change of the detail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The rate exceeds the budget.
    Above,
    /// The budget has room for more.
    Room,
    /// The last budget that applied was removed.
    NoBudget,
    /// The rate exceeds the budget at the coarsest detail. The operator must raise the budget or widen the bounds.
    AtBound,
}

/// A change of the detail.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Move {
    /// Time of the change, ns.
    pub at: u64,
    /// Reason for the change.
    pub reason: Reason,
    /// The load that caused the change. If no budget applies now, the last known load.
    pub load: Load,
    /// Detail before the change.
    pub from: Detail,
    /// Detail after the change.
    pub to: Detail,
}

impl fmt::Display for Move {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { load, from, to, .. } = self;
        let budget = load.budget;
        match self.reason {
            Reason::AtBound => write!(
                f,
                "{load} exceed the budget of {budget}, and no coarser detail is allowed that reduces them ({to}); raise the budget or the bounds"
            ),
            Reason::Above | Reason::Room | Reason::NoBudget => {
                match self.reason {
                    Reason::Above => write!(f, "{load} exceed the budget of {budget}: ")?,
                    Reason::NoBudget => f.write_str("no budget applies: ")?,
                    _ => write!(f, "{load} leave room in the budget of {budget}: ")?,
                }
                let threshold = (from.threshold != to.threshold).then(|| {
                    format!(
                        "threshold {} → {}: suppressed values differ by at most this",
                        from.threshold, to.threshold
                    )
                });
                let sample = (from.sample != to.sample)
                    .then(|| format!("1 in {} → 1 in {} packets", from.sample, to.sample));
                f.write_str(&threshold.into_iter().chain(sample).collect::<Vec<_>>().join("; "))
            }
        }
    }
}

/// The controller of one intent.
#[derive(Clone, Debug)]
pub struct Controller {
    bounds: Bounds,
    detail: Detail,
    /// Time of the last decision, ns.
    last: Option<u64>,
    /// The load behind the last decision.
    load: Option<Load>,
    /// True after [`Reason::AtBound`] was reported, until the load fits again.
    at_bound: bool,
}

impl Controller {
    /// Creates a controller at the finest detail.
    pub fn new(bounds: Bounds) -> Self {
        Self {
            bounds,
            detail: bounds.finest,
            last: None,
            load: None,
            at_bound: false,
        }
    }

    /// Returns the detail that applies now.
    pub fn detail(&self) -> Detail {
        self.detail
    }

    /// Returns whether the detail is as fine as the operator requested.
    pub fn is_finest(&self) -> bool {
        self.detail == self.bounds.finest
    }

    /// Returns whether rates measured since `since`, ns, already reflect the last decision.
    fn shows(&self, since: u64) -> bool {
        self.last.is_none_or(|last| since >= last)
    }

    /// Reverts a change that could not be applied.
    pub fn undo(&mut self, step: &Move) {
        self.detail = step.from;
    }

    /// Returns to the requested detail, because no budget applies now. Returns the change, if any.
    pub fn release(&mut self, now: u64) -> Option<Move> {
        let from = self.detail;
        let to = self.bounds.finest;
        if from == to {
            return None;
        }
        let load = self.load?;
        self.detail = to;
        self.at_bound = false;
        Some(Move {
            at: now,
            reason: Reason::NoBudget,
            load,
            from,
            to,
        })
    }

    /// Compares the current rates with their budgets and returns a change to make.
    pub fn observe(&mut self, loads: impl IntoIterator<Item = Load>, now: u64) -> Option<Move> {
        if self.last.is_some_and(|last| now < last.saturating_add(INTERVAL)) {
            return None;
        }
        let loads: Vec<Load> = loads.into_iter().collect();
        let load = greatest(&loads, |_| true)?;
        self.last = Some(now);
        self.load = Some(load);
        let from = self.detail;
        // A load that no coarser detail relieves must not block the others.
        let relieved = greatest(&loads, |load| load.excess() > 1.0 && self.coarser(load) != from);
        let room = greatest(&loads, |load| self.is_raised_by_finer(load))
            .filter(|load| load.excess() * 100.0 < ROOM as f64);
        let (reason, cause, to) = match (relieved, room) {
            (Some(load), _) => (Reason::Above, load, self.coarser(&load)),
            (None, Some(load)) => (Reason::Room, load, self.finer(&load)),
            (None, None) if load.excess() > 1.0 => (Reason::AtBound, load, from),
            (None, None) => return None,
        };
        let is_silent = match reason {
            // Reported once, not at every interval.
            Reason::AtBound => std::mem::replace(&mut self.at_bound, true),
            Reason::Above | Reason::Room | Reason::NoBudget => {
                self.at_bound &= load.excess() > 1.0;
                to == from
            }
        };
        self.detail = to;
        (!is_silent).then_some(Move {
            at: now,
            reason,
            load: cause,
            from,
            to,
        })
    }

    /// Returns whether the next finer detail may raise this rate. A threshold at the collector does not affect reports.
    fn is_raised_by_finer(&self, load: &Load) -> bool {
        self.bounds.filters || load.unit == Unit::Events || self.detail.sample > self.bounds.finest.sample
    }

    /// Returns the next coarser detail. Raises the threshold in proportion to the excess, because few changes exceed the
    /// raised threshold; at the coarsest threshold, halves the share of packets.
    fn coarser(&self, load: &Load) -> Detail {
        let Detail { threshold, sample } = self.detail;
        let most = self.bounds.coarsest;
        let helps = self.bounds.filters || load.unit == Unit::Events;
        if helps && threshold < most.threshold {
            let times = load.excess().ceil().clamp(2.0, GREATEST_STEP) as u64;
            let raised = threshold.saturating_mul(times).max(threshold.saturating_add(1));
            Detail {
                threshold: raised.min(most.threshold),
                sample,
            }
        } else {
            Detail {
                threshold,
                sample: sample.saturating_mul(2).min(most.sample).max(sample),
            }
        }
    }

    /// Returns the next finer detail: first a greater share of packets, then a lower threshold.
    fn finer(&self, load: &Load) -> Detail {
        let Detail { threshold, sample } = self.detail;
        let least = self.bounds.finest;
        if sample > least.sample {
            // The share 1/N grows by 1/16, to 1/N + 1/16, whatever N is.
            let finer = u64::from(sample) * 16 / (u64::from(sample) + 16);
            let finer = (finer as u32).clamp(least.sample, sample - 1);
            // Reports and events are proportional to the share, and the step from 1 in 2 to every packet doubles them.
            let fits = (f64::from(sample) * load.excess() * 100.0 / FILL as f64).ceil() as u32;
            Detail {
                threshold,
                sample: finer.max(fits).min(sample),
            }
        } else {
            let most = self.bounds.coarsest.threshold.saturating_sub(least.threshold) / 16;
            let step = most.min(threshold / 8).max(1);
            Detail {
                threshold: threshold.saturating_sub(step).max(least.threshold),
                sample,
            }
        }
    }
}

/// Returns the load with the greatest excess among those that `applies` accepts.
fn greatest(loads: &[Load], applies: impl Fn(&Load) -> bool) -> Option<Load> {
    loads
        .iter()
        .filter(|load| applies(load))
        .max_by(|one, other| one.excess().total_cmp(&other.excess()))
        .copied()
}

/// An intent whose detail can become coarser, with its current rates.
#[derive(Clone, Debug)]
pub struct BudgetedIntent<'a> {
    /// Name of the intent.
    pub name: &'a str,
    /// Bounds of its detail.
    pub bounds: Bounds,
    /// The intent's own budget.
    pub budget: Budget,
    /// Rates of the intent. If they are `None` (unknown), its own budget does not take part in the decision.
    pub rates: Option<Rates>,
    /// Collectors that the intent's devices report to.
    pub collectors: Vec<SocketAddr>,
}

/// The budgets of all intents and collectors.
#[derive(Clone, Debug, Default)]
pub struct Budgets {
    controllers: BTreeMap<String, Controller>,
    /// Collectors over their budgets whose intents cannot become coarser.
    stuck: BTreeSet<SocketAddr>,
}

impl Budgets {
    /// Returns the detail of an intent, or `None` if it has no controller and so the requested detail.
    pub fn detail(&self, name: &str) -> Option<Detail> {
        self.controllers.get(name).map(Controller::detail)
    }

    /// Returns the detail of an intent if it is coarser than requested.
    pub fn coarser(&self, name: &str) -> Option<Detail> {
        self.controllers
            .get(name)
            .filter(|controller| !controller.is_finest())
            .map(Controller::detail)
    }

    /// Removes the state of an intent.
    pub fn forget(&mut self, name: &str) {
        self.controllers.remove(name);
    }

    /// Removes the state of all intents and collectors.
    pub fn clear(&mut self) {
        *self = Self::default();
    }

    /// Reverts an intent's change that could not be applied.
    pub fn undo(&mut self, name: &str, step: &Move) {
        if let Some(controller) = self.controllers.get_mut(name) {
            controller.undo(step);
        }
    }

    /// Compares the rates of intents and collectors with their budgets.
    ///
    /// Returns the changes to make, by intent, and the loads of collectors over budget whose intents cannot become coarser.
    /// Each such load is returned once, until there is room again. An intent does not change until new rates of all its
    /// collectors are known.
    pub fn observe(
        &mut self,
        intents: &[BudgetedIntent<'_>],
        collectors: &BTreeMap<SocketAddr, CollectorLoad>,
        now: u64,
    ) -> (Vec<(String, Move)>, Vec<Load>) {
        let mut moves = Vec::new();
        for intent in intents {
            let own = intent
                .rates
                .into_iter()
                .flat_map(|rates| intent.budget.loads(rates, None));
            let receiving: Vec<(SocketAddr, &CollectorLoad)> = intent
                .collectors
                .iter()
                .filter_map(|address| Some((*address, collectors.get(address)?)))
                .collect();
            let controller = self.controllers.get(intent.name);
            let is_current = receiving.iter().all(|(_, collector)| {
                collector
                    .since
                    .is_some_and(|since| controller.is_none_or(|controller| controller.shows(since)))
            });
            if !is_current {
                continue;
            }
            let shared = receiving
                .iter()
                .flat_map(|(address, collector)| collector.budget.loads(collector.rates, Some(*address)));
            let loads: Vec<Load> = own.chain(shared).collect();
            let step = if !loads.is_empty() {
                let controller = self
                    .controllers
                    .entry(intent.name.to_owned())
                    .or_insert_with(|| Controller::new(intent.bounds));
                controller.observe(loads, now)
            } else if intent.budget.is_empty() {
                // The intent's devices now report to collectors without a budget.
                self.controllers
                    .get_mut(intent.name)
                    .and_then(|controller| controller.release(now))
            } else {
                None
            };
            moves.extend(step.map(|step| (intent.name.to_owned(), step)));
        }
        (moves, self.stuck(intents, collectors))
    }

    /// Returns the loads of newly overloaded collectors that no intent can relieve.
    fn stuck(
        &mut self,
        intents: &[BudgetedIntent<'_>],
        collectors: &BTreeMap<SocketAddr, CollectorLoad>,
    ) -> Vec<Load> {
        // Collectors with at least one intent that can still become coarser.
        let able: BTreeSet<SocketAddr> = intents
            .iter()
            .filter(|intent| self.detail(intent.name) != Some(intent.bounds.coarsest))
            .flat_map(|intent| intent.collectors.iter().copied())
            .collect();
        let mut stuck = Vec::new();
        for (address, CollectorLoad { budget, rates, since }) in collectors {
            if since.is_none() {
                continue;
            }
            let loads: Vec<Load> = budget.loads(*rates, Some(*address)).collect();
            let Some(load) = greatest(&loads, |_| true) else {
                continue;
            };
            if load.excess() * 100.0 < ROOM as f64 {
                self.stuck.remove(address);
            } else if load.excess() > 1.0 && !able.contains(address) && self.stuck.insert(*address) {
                stuck.push(load);
            }
        }
        stuck
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use testkit::rng::Rng;

    const BOUNDS: Bounds = Bounds {
        finest: Detail {
            threshold: 1_000,
            sample: 1,
        },
        coarsest: Detail {
            threshold: 64_000,
            sample: 8,
        },
        filters: true,
    };

    fn reports(rate: f64) -> [Load; 1] {
        [Load {
            rate,
            budget: 1000,
            unit: Unit::Reports,
            collector: None,
        }]
    }

    #[test]
    fn detail_falls_in_proportion_above_and_grows_by_steps_below() {
        let mut controller = Controller::new(BOUNDS);
        let text = |change: Option<Move>| change.map(|change| change.to_string());
        let first = "5000 reports/s exceed the budget of 1000: threshold 1000 → 5000: suppressed values differ by at most this";
        assert_eq!(
            text(controller.observe(reports(5000.0), 0)).as_deref(),
            Some(first)
        );
        assert_eq!(controller.observe(reports(5000.0), INTERVAL / 2), None);
        let mut details = Vec::new();
        for second in 1..10 {
            let change = controller.observe(reports(5000.0), second * INTERVAL);
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
        assert_eq!(controller.observe(reports(800.0), 20 * INTERVAL), None);
        controller.observe(reports(100.0), 30 * INTERVAL);
        assert_eq!(
            controller.detail(),
            Detail {
                threshold: 64_000,
                sample: 5
            }
        );
    }

    /// Values whose changes are exponential: reports/s fall with the threshold. The rate stays at the budget.
    #[test]
    fn the_rate_converges_below_the_budget_and_within_the_bounds() {
        for seed in 0..50 {
            let mut rng = Rng(seed);
            let load = 2_000.0 + rng.below(20_000) as f64;
            let mut controller = Controller::new(BOUNDS);
            let mut above = 0;
            for second in 0..300 {
                let Detail { threshold, sample } = controller.detail();
                assert!((1_000..=64_000).contains(&threshold) && (1..=8).contains(&sample));
                let rate = load * (-(threshold as f64) / 15_000.0).exp() / f64::from(sample);
                above += u32::from(second > 20 && rate > 1000.0);
                controller.observe(reports(rate), second * INTERVAL);
            }
            assert!(
                above < 60,
                "seed {seed}: above the budget in {above} of 280 seconds"
            );
        }
    }

    #[test]
    fn quiet_flows_return_to_the_finest_detail() {
        let mut controller = Controller::new(BOUNDS);
        for second in 0..60 {
            controller.observe(reports(if second < 10 { 9e9 } else { 0.0 }), second * INTERVAL);
        }
        assert_eq!(controller.detail(), BOUNDS.finest);
    }

    /// Seconds of a constant load at which nothing but the share of packets can change: how often it does after half a minute, and the least
    /// and the greatest rate then. Rates vary by this share, as the one of a second does.
    fn sampled(controller: &mut Controller, load: f64, start: u64, varying: f64) -> (u32, f64, f64) {
        let mut rng = Rng(start);
        let (mut changes, mut least, mut most) = (0, f64::MAX, 0.0_f64);
        for second in 0..130 {
            let share = load / f64::from(controller.detail().sample);
            let rate = share * (1.0 + varying * (rng.below(2_001) as f64 / 1_000.0 - 1.0));
            if second >= 30 {
                (least, most) = (least.min(rate), most.max(rate));
            }
            let moved = controller.observe(reports(rate), (start + second) * INTERVAL);
            changes += u32::from(second >= 30 && moved.is_some());
        }
        (changes, least, most)
    }

    const SAMPLED: Bounds = Bounds {
        finest: Detail {
            threshold: 0,
            sample: 1,
        },
        coarsest: Detail {
            threshold: 0,
            sample: 64,
        },
        filters: false,
    };

    /// A budget that only fewer packets keep: under a constant load, the share is constant, the budget is used, and it is not exceeded. Where rates vary,
    /// one of them may still show room after half a minute.
    #[test]
    fn a_share_of_packets_is_constant_under_a_constant_load() {
        for (load, varying) in (1..300).flat_map(|tens| [0.0, 0.05].map(|varying| (tens * 97, varying))) {
            let mut controller = Controller::new(SAMPLED);
            let load = f64::from(load);
            let (changes, least, most) = sampled(&mut controller, load, 0, varying);
            let used = if load > 900.0 {
                420.0
            } else {
                load * (1.0 - varying)
            };
            let context = format!("{load} reports/s: {changes} changes, {least} to {most} reports/s");
            assert!(
                changes <= u32::from(varying > 0.0) && most <= 1_000.0 && least >= used,
                "{context}"
            );
        }
    }

    /// The share follows a load that changes, up and down, and every packet is measured again when there is room.
    #[test]
    fn a_share_of_packets_follows_the_load() {
        let mut controller = Controller::new(SAMPLED);
        let mut samples = Vec::new();
        for (index, load) in [800.0, 1_300.0, 40_000.0, 1_300.0, 6_000.0, 880.0]
            .into_iter()
            .enumerate()
        {
            let (changes, least, most) = sampled(&mut controller, load, 1_000 * index as u64, 0.0);
            assert!(
                changes == 0 && (600.0..=1_000.0).contains(&least) && most == least,
                "{load}: {least}"
            );
            samples.push(controller.detail().sample);
        }
        assert_eq!(samples, [1, 2, 45, 2, 8, 1]);
    }

    /// An intent that no budget concerns any more is measured as it was asked for.
    #[test]
    fn an_intent_is_fine_again_when_its_devices_report_elsewhere() {
        let share = CollectorLoad {
            budget: Budget {
                reports: Some(100),
                events: None,
            },
            rates: Rates {
                reports: 900.0,
                events: 0.0,
            },
            since: Some(0),
        };
        let collectors = BTreeMap::from([(at(1), share)]);
        let kept = |last| BudgetedIntent {
            name: "a",
            bounds: BOUNDS,
            budget: Budget::default(),
            rates: Some(Rates::default()),
            collectors: vec![at(last)],
        };
        let mut budgets = Budgets::default();
        let mut observe = |last, second| {
            let (moves, stuck) = budgets.observe(&[kept(last)], &collectors, second * INTERVAL);
            assert_eq!(stuck.len(), usize::from(last == 2 && second == 1));
            moves
                .iter()
                .map(|(name, step)| format!("{name}: {step}"))
                .collect::<Vec<_>>()
        };
        assert_eq!(observe(1, 0).len(), 1);
        let text = "a: no budget applies: threshold 8000 → 1000: suppressed values differ by at most this";
        assert_eq!(observe(2, 1), [text]);
        assert_eq!(observe(2, 2), Vec::<String>::new());
        assert_eq!(budgets.coarser("a"), None);
    }

    /// Rates that were measured before the last change, or are not known, are no evidence: nothing is changed, and nothing is taken back.
    #[test]
    fn rates_that_do_not_show_the_last_change_decide_nothing() {
        let kept = [BudgetedIntent {
            name: "a",
            bounds: BOUNDS,
            // It alone would leave room.
            budget: Budget {
                reports: Some(1_000),
                events: None,
            },
            rates: Some(Rates::default()),
            collectors: vec![at(1), at(2)],
        }];
        let budget = Budget {
            reports: Some(100),
            events: None,
        };
        let share = |reports, since| CollectorLoad {
            budget,
            rates: Rates { reports, events: 0.0 },
            since,
        };
        let mut budgets = Budgets::default();
        let mut observe = |one, other, second| {
            let collectors = BTreeMap::from([(at(1), share(10.0, one)), (at(2), share(200.0, other))]);
            let (moves, stuck) = budgets.observe(&kept, &collectors, second * INTERVAL);
            assert_eq!(stuck, []);
            moves.first().map(|(_, step)| step.to.threshold)
        };
        assert_eq!(observe(Some(0), None, 1), None);
        assert_eq!(observe(Some(0), Some(0), 2), Some(2_000));
        assert_eq!(observe(Some(2 * INTERVAL), Some(INTERVAL), 3), None);
        assert_eq!(observe(Some(2 * INTERVAL), None, 4), None);
        assert_eq!(observe(Some(2 * INTERVAL), Some(2 * INTERVAL), 5), Some(4_000));
    }

    /// What is written is read again; anything else is refused.
    #[test]
    fn a_budget_is_written_as_rates() {
        let budget = |text: &str| text.parse::<Budget>();
        let both = Budget {
            reports: Some(2000),
            events: Some(50),
        };
        assert_eq!(budget("2000 reports/s, 50 events/s"), Ok(both));
        assert_eq!(budget("50 events/s,2000  reports/s"), Ok(both));
        assert_eq!(both.to_string(), "2000 reports/s, 50 events/s");
        assert_eq!(
            budget("7 events/s"),
            Ok(Budget {
                events: Some(7),
                ..Budget::default()
            })
        );
        for wrong in [
            "",
            "2000",
            "0 events/s",
            "5 reports",
            "1 events/s, 2 events/s",
            "1 events/s,",
            "-1 events/s",
        ] {
            assert_eq!(budget(wrong), Err(()), "{wrong}");
        }
    }

    /// A threshold of the collector does not reduce reports, and a filter's reduces both.
    #[test]
    fn events_raise_the_threshold_and_reports_lower_the_share() {
        let load = |unit, rate| Load {
            rate,
            budget: 10,
            unit,
            collector: None,
        };
        for (filters, unit, expected) in [
            (
                false,
                Unit::Reports,
                Detail {
                    threshold: 1_000,
                    sample: 2,
                },
            ),
            (
                false,
                Unit::Events,
                Detail {
                    threshold: 2_000,
                    sample: 1,
                },
            ),
            (
                true,
                Unit::Reports,
                Detail {
                    threshold: 2_000,
                    sample: 1,
                },
            ),
        ] {
            let mut controller = Controller::new(Bounds { filters, ..BOUNDS });
            let other = if unit == Unit::Events {
                Unit::Reports
            } else {
                Unit::Events
            };
            let step = controller
                .observe([load(other, 5.0), load(unit, 15.0)], 0)
                .unwrap();
            assert_eq!(
                (step.to, controller.detail(), step.load.unit),
                (expected, expected, unit)
            );
            // Room is only where both have room, but reports do not become more by a threshold of the collector.
            let step = controller.observe([load(other, 8.0), load(unit, 1.0)], INTERVAL);
            let lower = Detail {
                threshold: 1_750,
                sample: 1,
            };
            let lower = (!filters && unit == Unit::Events).then_some(lower);
            assert_eq!(step.map(|step| step.to), lower);
            assert!(
                controller
                    .observe([load(other, 1.0), load(unit, 1.0)], 2 * INTERVAL)
                    .is_some()
            );
        }
    }

    /// What nothing can relieve does not keep the rest from being kept, and is reported once.
    #[test]
    fn a_budget_that_cannot_be_kept_leaves_the_others_alone() {
        let coarsest = Detail {
            threshold: 64_000,
            sample: 1,
        };
        let mut controller = Controller::new(Bounds {
            filters: false,
            coarsest,
            ..BOUNDS
        });
        let load = |unit, rate| Load {
            rate,
            budget: 10,
            unit,
            collector: None,
        };
        let mut observe = |second, events| {
            let loads = [load(Unit::Reports, 900.0), load(Unit::Events, events)];
            controller
                .observe(loads, second * INTERVAL)
                .map(|step| step.to_string())
                .unwrap_or_default()
        };
        let hidden = "suppressed values differ by at most this";
        assert_eq!(
            observe(0, 15.0),
            format!("15 events/s exceed the budget of 10: threshold 1000 → 2000: {hidden}")
        );
        let stuck = "900 reports/s exceed the budget of 10, and no coarser detail is allowed that reduces them (threshold 2000); raise the budget or the bounds";
        assert_eq!([observe(1, 8.0), observe(2, 8.0)], [stuck, ""]);
        assert_eq!(
            observe(3, 1.0),
            format!("1 events/s leave room in the budget of 10: threshold 2000 → 1750: {hidden}")
        );
        assert_eq!(observe(4, 8.0), "");
    }

    fn at(last: u8) -> SocketAddr {
        ([192, 0, 2, last], 9555).into()
    }

    /// Reports and events of an intent with this detail: values change exponentially, and every fourth change is an event.
    fn simulated(load: f64, bounds: Bounds, detail: Option<Detail>) -> Rates {
        let Detail { threshold, sample } = detail.unwrap_or(bounds.finest);
        let measured = load / f64::from(sample);
        let changes = measured * (-(threshold as f64) / 15_000.0).exp();
        Rates {
            reports: if bounds.filters { changes } else { measured },
            events: changes / 4.0,
        }
    }

    /// Intents of random loads share two collectors. Each collector stays at its budget in the long run, so does each intent; what reports to a
    /// collector without a budget, and within its own, stays as fine as it was asked for; when the load ends, all are fine again.
    #[test]
    fn collectors_and_intents_are_kept_at_their_budgets() {
        for seed in 0..40 {
            let mut rng = Rng(seed);
            let both = Budget {
                reports: Some(3_000),
                events: Some(500),
            };
            let of = |index: usize, rng: &mut Rng| {
                let budget = Budget {
                    reports: (index == 0).then_some(400),
                    events: None,
                };
                let bounds = Bounds {
                    filters: index != 1,
                    ..BOUNDS
                };
                (
                    format!("i{index}"),
                    bounds,
                    budget,
                    at(1 + u8::from(index > 3)),
                    500.0 + rng.below(8_000) as f64,
                )
            };
            let intents: Vec<_> = (0..6).map(|index| of(index, &mut rng)).collect();
            let (mut budgets, mut above, mut own) = (Budgets::default(), 0, 0);
            for second in 0..500_u64 {
                let rates = |(name, bounds, _, _, load): &(String, Bounds, Budget, SocketAddr, f64)| {
                    simulated(
                        if second < 300 { *load } else { 0.0 },
                        *bounds,
                        budgets.detail(name),
                    )
                };
                let since = Some(second.saturating_sub(1) * INTERVAL);
                let share = CollectorLoad {
                    since,
                    ..CollectorLoad::default()
                };
                let mut sums = BTreeMap::from([
                    (
                        at(1),
                        CollectorLoad {
                            budget: both,
                            ..share
                        },
                    ),
                    (at(2), share),
                ]);
                for intent in &intents {
                    let sum = &mut sums.get_mut(&intent.3).unwrap().rates;
                    let more = rates(intent);
                    *sum = Rates {
                        reports: sum.reports + more.reports,
                        events: sum.events + more.events,
                    };
                }
                let kept: Vec<BudgetedIntent<'_>> = (intents.iter())
                    .map(|intent| BudgetedIntent {
                        name: &intent.0,
                        bounds: intent.1,
                        budget: intent.2,
                        rates: Some(rates(intent)),
                        collectors: vec![intent.3],
                    })
                    .collect();
                let Rates { reports, events } = sums[&at(1)].rates;
                if (30..300).contains(&second) {
                    above += u32::from(reports > 3_000.0 || events > 500.0);
                    own += u32::from(kept[0].rates.unwrap().reports > 400.0);
                }
                let (moves, stuck) = budgets.observe(&kept, &sums, second * INTERVAL);
                assert_eq!(stuck, []);
                assert!(moves.iter().all(|(name, _)| name < &"i4".to_owned()), "{moves:?}");
                for (_, step) in moves {
                    let Detail { threshold, sample } = step.to;
                    assert!((1_000..=64_000).contains(&threshold) && (1..=8).contains(&sample));
                }
            }
            assert!(
                above < 60 && own < 60,
                "seed {seed}: {above} and {own} of 270 seconds above the budget"
            );
            assert!(
                intents.iter().all(|(name, ..)| budgets.coarser(name).is_none()),
                "seed {seed}"
            );
        }
    }

    // That nothing can be done is reported once, and again after there was room.
    #[test]
    fn a_collector_that_nothing_can_relieve_is_reported_once() {
        let budget = Budget {
            reports: Some(100),
            events: None,
        };
        let mut budgets = Budgets::default();
        let mut second = 0;
        let mut observe = |reports| {
            second += 1;
            let share = CollectorLoad {
                budget,
                rates: Rates { reports, events: 0.0 },
                since: Some(0),
            };
            let collectors = BTreeMap::from([(at(1), share)]);
            budgets
                .observe(&[], &collectors, second * INTERVAL)
                .1
                .iter()
                .map(Load::to_string)
                .collect::<Vec<_>>()
        };
        assert_eq!(observe(500.0), ["500 reports/s at the collector 192.0.2.1:9555"]);
        let reported: Vec<usize> = [500.0, 90.0, 500.0, 50.0, 500.0]
            .map(|rate| observe(rate).len())
            .into();
        assert_eq!(reported, [0, 0, 0, 0, 1]);
    }
}
