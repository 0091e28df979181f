//! Intents: an operator's requests to measure flows, and the checks of their consistency, independent of the network.

mod file;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use detect::{Metric, RuleSet};
use settings::choice;

pub use self::file::{
    BudgetSetting, IntentSettings, build_and_check, chapters, read, read_one, read_settings,
};
pub use crate::instruction::amount_text;
pub use settings::time::text as time_text;

use crate::budget::{Bounds, Budget, Detail};
use crate::device::{FilterAlgorithm, Mode};
use crate::flows::{FlowMatch, Flows, FlowsError};
use crate::instruction::{self, Bits};

/// Maximum number of intents.
pub const MAX_INTENTS: usize = 1 << 16;

/// Maximum factor by which the budget controller may raise a threshold, unless the intent sets `coarsest`.
pub const COARSER: u64 = 64;

/// Shortest duration of a drill-down, ns.
pub const SHORTEST_DRILL_DOWN: u64 = 1_000_000_000;

/// The end of an intent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Until {
    /// The intent ends this long after it was added, ns.
    After(u64),
    /// The intent ends at this time, ns since 1970 (UTC).
    At(u64),
}

impl Until {
    /// Returns the end of an intent that is added at `now`, ns since 1970.
    pub fn end(self, now: u64) -> u64 {
        match self {
            Self::After(length) => now.saturating_add(length),
            Self::At(time) => time,
        }
    }
}

/// The part of the network where an intent applies.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct At {
    /// Names or labels of edge devices, where `*` stands for any text; empty for all edge devices.
    pub edges: Vec<String>,
    /// Two hosts, if only the flows between them are meant.
    pub between: Option<(String, String)>,
}

/// The reports that an intent requests, and the changes that become events.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reporting {
    /// The difference from the last reported value above which a change is significant, in the metric's unit.
    pub thresholds: BTreeMap<Metric, u64>,
    /// Maximum threshold that the budget controller may set, by metric; [`COARSER`] times the threshold if not given.
    pub coarsest: BTreeMap<Metric, u64>,
    /// Coarsest sampling, one packet in this many, that the budget controller may choose. `None` keeps the sampling.
    pub coarsest_sample: Option<u32>,
    /// A condition in the rule language, which the collector evaluates.
    pub rule: Option<String>,
    /// Algorithm by which the sinks select packets to report; `None` reports all.
    pub filter: Option<FilterAlgorithm>,
    /// The drill-down to start when the rule becomes true.
    pub then: Option<Then>,
}

choice! {
    /// The flows of a drill-down.
    pub enum Scope("\"this flow\", \"this queue\" or \"this path\"") {
        /// The flow of the event.
        Flow = "this flow",
        /// All flows through the queue of the event.
        Queue = "this queue",
        /// All flows with the source and destination of the event.
        Path = "this path",
    }
}

/// A drill-down: additional metrics to measure for some time after the rule became true.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Then {
    /// Metrics to measure in addition.
    pub watch: BTreeSet<Metric>,
    /// Flows to which the drill-down applies.
    pub scope: Scope,
    /// Duration of the drill-down, ns.
    pub length: u64,
}

/// An operator's request to measure flows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Intent {
    /// Unique name of the intent.
    pub name: String,
    /// Flows that are to be measured.
    pub flows: Flows,
    /// True if the opposite direction is measured as well.
    pub both_directions: bool,
    /// Metrics that are to be measured.
    pub watch: BTreeSet<Metric>,
    /// Mode of the measurement; `None` selects the cheapest one that provides the metrics.
    pub mode: Option<Mode>,
    /// Sampling: one packet in `sample` is measured; 1 measures all.
    pub sample: u32,
    /// Part of the network where the intent applies.
    pub at: At,
    /// Reports and events that the intent requests.
    pub reporting: Reporting,
    /// Upper limits of reports and events per second, which the budget controller enforces.
    pub budget: Budget,
    /// End of the intent; `None` if it never ends.
    pub until: Option<Until>,
    /// Priority: among overlapping intents, the one with the greatest number decides the mode.
    pub priority: u32,
}

impl Default for Intent {
    fn default() -> Self {
        Self {
            name: String::new(),
            flows: Flows::default(),
            both_directions: false,
            watch: BTreeSet::new(),
            mode: None,
            sample: 1,
            at: At::default(),
            reporting: Reporting::default(),
            budget: Budget::default(),
            until: None,
            priority: 100,
        }
    }
}

/// A problem of an intent that does not depend on the network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IntentError {
    /// The name is not 1 to 63 letters, digits, `.`, `_`, `-`.
    BadName(String),
    /// No metric is given.
    NothingWatched,
    /// The congestion of queues, which no instruction gives.
    Congestion,
    /// The flows expand to no entries, or to too many.
    Flows(FlowsError),
    /// The `sample` is 0.
    NoSample,
    /// A per-hop or per-flow filter needs exactly one threshold, not this number.
    FilterThresholds(usize),
    /// Filters do not work with SF-INT.
    FilterOfSf,
    /// The threshold is for a metric that is not watched, or that has no numeric value.
    Threshold(Metric),
    /// The rule does not compile.
    Rule(String),
    /// The filter `rule` is set, but `rule` is not.
    FilterWithoutRule,
    /// The drill-down `then` is set, but `rule` is not.
    ThenWithoutRule,
    /// The drill-down is shorter than [`SHORTEST_DRILL_DOWN`].
    ThenTooShort,
    /// The end lies in the past.
    Expired,
    /// A budget is set, but nothing can become coarser.
    BudgetWithoutBounds,
    /// A budget of events is set, but nothing that reduces events can become coarser.
    EventBudgetWithoutBounds,
    /// The coarsest sampling is not coarser than `sample`.
    CoarsestSample(u32),
    /// The maximum threshold of this metric is not above its threshold, or it has no threshold.
    Coarsest(Metric),
}

impl fmt::Display for IntentError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BadName(name) if name.is_empty() => {
                f.write_str("it has no name; use 1 to 63 letters, digits, `.`, `_` and `-`")
            }
            Self::BadName(name) => {
                write!(f, "`{name}` is not a name; use 1 to 63 letters, digits, `.`, `_` and `-`")
            }
            Self::NothingWatched => f.write_str("no metrics selected; write watch = [\"hop_latency\"] or more"),
            Self::Congestion => f.write_str(
                "INT 1.0 and later have no congestion status of a queue; watch queue_occupancy instead of queue_congestion",
            ),
            Self::Flows(error) => write!(f, "{error}"),
            Self::NoSample => f.write_str("a sample of 0 is invalid; write sample = \"1 in 1\" or more"),
            Self::FilterThresholds(count) => write!(
                f,
                "this filter compares one metric, and there are {count} thresholds; give exactly one, or use filter = \"change\""
            ),
            Self::FilterOfSf => {
                f.write_str("filters do not apply to SF-INT, whose reports are parts of sets; remove `filter` or use another mode")
            }
            Self::Threshold(metric) => {
                write!(f, "a threshold of {metric} has no effect; add a number to `watch` that it is for, or remove it")
            }
            Self::Rule(message) => write!(f, "{message}"),
            Self::FilterWithoutRule => f.write_str("the filter needs a condition; add `rule`"),
            Self::ThenWithoutRule => f.write_str("`then` needs a condition; add `rule`"),
            Self::ThenTooShort => f.write_str("`for` of `then` is too short for reports to arrive; write \"1s\" or more"),
            Self::Expired => f.write_str("`until` lies in the past; write a later time or a duration such as \"2h\""),
            Self::BudgetWithoutBounds => f.write_str(
                "a budget is kept by raising a threshold or by measuring fewer packets; add a filter per_hop or per_flow with a threshold above 0, or coarsest = { sample = \"1 in 64\" }, or remove it",
            ),
            Self::EventBudgetWithoutBounds => f.write_str(
                "a budget of events is kept by raising a threshold or by measuring fewer packets; add exactly one threshold above 0, or coarsest = { sample = \"1 in 64\" }, or remove it",
            ),
            Self::CoarsestSample(sample) => write!(
                f,
                "the coarsest sample is not below the share that is measured anyway; write more than \"1 in {sample}\", or remove it"
            ),
            Self::Coarsest(metric) => {
                write!(f, "the greatest threshold of {metric} is not above its threshold; raise it, or remove it")
            }
        }
    }
}

impl std::error::Error for IntentError {}

impl Intent {
    /// Checks everything that does not depend on the network. `now` is in ns since 1970.
    ///
    /// # Errors
    /// [`IntentError`], the first contradiction found.
    pub fn check(&self, now: u64) -> Result<(), IntentError> {
        if !crate::inventory::is_name(&self.name) {
            return Err(IntentError::BadName(self.name.clone()));
        }
        if self.watch.is_empty() {
            return Err(IntentError::NothingWatched);
        }
        if self.watch.contains(&Metric::QueueCongestion) {
            return Err(IntentError::Congestion);
        }
        self.entries().map_err(IntentError::Flows)?;
        if self.sample == 0 {
            return Err(IntentError::NoSample);
        }
        if self.until.is_some_and(|until| until.end(now) <= now) {
            return Err(IntentError::Expired);
        }
        self.check_reporting()
    }

    /// Checks thresholds, filter, rule, drill-down and budget against each other.
    fn check_reporting(&self) -> Result<(), IntentError> {
        let Reporting {
            thresholds,
            coarsest,
            coarsest_sample,
            rule,
            filter,
            then,
        } = &self.reporting;
        for (metric, most) in coarsest {
            if thresholds.get(metric).is_none_or(|least| most <= least) {
                return Err(IntentError::Coarsest(*metric));
            }
        }
        for metric in thresholds.keys() {
            if *metric == Metric::FlowPath || !self.watch.contains(metric) {
                return Err(IntentError::Threshold(*metric));
            }
        }
        let compares_one = matches!(filter, Some(FilterAlgorithm::PerHop | FilterAlgorithm::PerFlow));
        if compares_one && thresholds.len() != 1 {
            return Err(IntentError::FilterThresholds(thresholds.len()));
        }
        if coarsest_sample.is_some_and(|most| most <= self.sample) {
            return Err(IntentError::CoarsestSample(self.sample));
        }
        if coarsest_sample.is_none() {
            let compared = self.compared().is_some();
            if self.budget.reports.is_some() && !(compared && filter.is_some()) {
                return Err(IntentError::BudgetWithoutBounds);
            }
            if self.budget.events.is_some() && !compared {
                return Err(IntentError::EventBudgetWithoutBounds);
            }
        }
        if filter.is_some() && self.mode == Some(Mode::Sf) {
            return Err(IntentError::FilterOfSf);
        }
        if let Some(rule) = rule {
            RuleSet::compile(&[(self.name.clone(), rule.clone())])
                .map_err(|error| IntentError::Rule(error.to_string()))?;
        }
        if *filter == Some(FilterAlgorithm::Rule) && rule.is_none() {
            return Err(IntentError::FilterWithoutRule);
        }
        if then.is_some() && rule.is_none() {
            return Err(IntentError::ThenWithoutRule);
        }
        if then.as_ref().is_some_and(|then| then.watch.is_empty()) {
            return Err(IntentError::NothingWatched);
        }
        if then
            .as_ref()
            .is_some_and(|then| then.watch.contains(&Metric::QueueCongestion))
        {
            return Err(IntentError::Congestion);
        }
        if then
            .as_ref()
            .is_some_and(|then| then.length < SHORTEST_DRILL_DOWN)
        {
            return Err(IntentError::ThenTooShort);
        }
        Ok(())
    }

    /// Returns the bounds for changes of threshold and sampling by budgets, or `None` if nothing can become coarser.
    pub fn bounds(&self) -> Option<Bounds> {
        if self.compared().is_none() && self.reporting.coarsest_sample.is_none() {
            return None;
        }
        let (least, most) = match self.compared() {
            Some((metric, least)) => {
                let most = self.reporting.coarsest.get(&metric).copied();
                (least, most.unwrap_or(least.saturating_mul(COARSER)))
            }
            None => (0, 0),
        };
        let coarsest = Detail {
            threshold: most,
            sample: self.reporting.coarsest_sample.unwrap_or(self.sample),
        };
        let finest = Detail {
            threshold: least,
            sample: self.sample,
        };
        Some(Bounds {
            finest,
            coarsest,
            filters: self.reporting.filter.is_some(),
        })
    }

    /// Returns a copy of this intent with a fixed detail, which budgets do not change.
    #[must_use]
    pub fn with_detail(&self, detail: Detail) -> Self {
        let mut intent = self.clone();
        if let Some((metric, _)) = self.compared() {
            intent.reporting.thresholds.insert(metric, detail.threshold);
        }
        intent.sample = detail.sample;
        intent.reporting.coarsest.clear();
        intent.reporting.coarsest_sample = None;
        intent.budget = Budget::default();
        intent
    }

    /// Returns the threshold that budgets can raise: the filter's, or without a filter the only one. `None` if it is 0.
    fn compared(&self) -> Option<(Metric, u64)> {
        let compares = match self.reporting.filter {
            None => self.reporting.thresholds.len() == 1,
            Some(filter) => matches!(filter, FilterAlgorithm::PerHop | FilterAlgorithm::PerFlow),
        };
        if !compares {
            return None;
        }
        let (metric, least) = self.reporting.thresholds.iter().next()?;
        (*least > 0).then_some((*metric, *least))
    }

    /// Returns whether devices must support sampling for this intent.
    pub fn samples(&self) -> bool {
        self.sample > 1 || self.reporting.coarsest_sample.is_some()
    }

    /// Returns the watchlist entries for its flows, independent of `at`.
    ///
    /// # Errors
    /// [`FlowsError`] if no packet can match or there are too many entries.
    pub fn entries(&self) -> Result<Vec<FlowMatch>, FlowsError> {
        self.flows.entries(self.both_directions)
    }

    /// Returns the instruction bits that the watched metrics need. `synchronised` says whether the domain's clocks are.
    pub fn bits(&self, synchronised: bool) -> Bits {
        let all = self
            .watch
            .iter()
            .map(|metric| instruction::metric_bits(*metric, synchronised));
        all.fold(instruction::bit(instruction::NODE_ID), |bits, more| bits | more)
    }
}

/// Returns whether `name` matches `pattern`, where `*` stands for any text.
pub fn matches_pattern(pattern: &str, name: &str) -> bool {
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = name.strip_prefix(first) else {
        return false;
    };
    let mut last = None;
    for part in parts {
        // The text parts before the last one match as early as possible.
        if let Some(part) = last.replace(part) {
            let Some((_, after)) = rest.split_once(part) else {
                return false;
            };
            rest = after;
        }
    }
    last.map_or(rest.is_empty(), |last| rest.ends_with(last))
}
