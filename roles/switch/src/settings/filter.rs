//! Settings of event detection and of roles by flow: the lists `[[switch.filter]]` (which packets the sink reports) and
//! `[[switch.role]]`.

use std::time::Duration;

use dataplane::{
    filter::{FilterError, MAX_FILTERS, Units},
    watchlist::{Role, Roles},
};
use detect::{
    Algorithm, Detector, DetectorError, Match, Metric, PortRange, Prefix, Program, RuleError, RuleSet,
    detector::{Change, MAX_REGISTERS},
};

use super::flow_match;
use settings::{
    choice, section,
    setting::Setting,
    values::{
        Amount, Clocks, Fraction, LatencyThreshold, Protocol, QueueThreshold, UtilizationThreshold,
        as_nanoseconds,
    },
};

/// Maximum memory of the registers of all filters, bytes.
const MAX_BYTES: u64 = 128 << 20;
const MIXED: &str =
    "this matches nothing: one address is IPv4 and the other IPv6; correct one, or remove the table";

section! {
    /// Event detection: which packets the sink reports (with INT-MX and postcards: every switch, by its own values). The
    /// first filter that matches the flow applies; without a match, every packet is reported. SF-INT, drop and queue reports
    /// are not filtered.
    pub struct FilterSettings("[[switch.filter]]") {
        /// Source addresses to match.
        pub src: Option<Prefix> = None,
        /// Destination addresses to match.
        pub dst: Option<Prefix> = None,
        /// Source ports to match.
        pub sport: Option<PortRange> = None,
        /// Destination ports to match.
        pub dport: Option<PortRange> = None,
        /// IP protocol to match.
        pub proto: Option<Protocol> = None,
        /// Detection algorithm of the filter.
        pub algorithm: Option<FilterAlgorithm> = None,
        /// The metric to compare. For `per_hop`, `per_hop_of_flow`, `per_flow`, `moving_average`.
        pub metric: Option<FilterMetric> = None,
        /// A greater difference is reported; in the metric's unit, as in `[thresholds]`. For the same algorithms.
        pub threshold: Option<Amount> = None,
        /// Weight of a new value, in steps of 1/256. For `moving_average`. Not set: 0.25.
        pub alpha: Option<Fraction> = None,
        /// A condition in the language of `[[rules]]`. For `rule`.
        pub rule: Option<String> = None,
        /// Buckets of hop latency are 2 to the power of this, ns; 64 ignores it. For `change`. Not set: 17, 131 us.
        pub latency_bits: Option<u8> = None,
        /// Buckets of queue occupancy are 2 to the power of this, bytes; 64 ignores it. For `change`. Not set: 14, 16 KiB.
        pub queue_bits: Option<u8> = None,
        /// An unchanged flow is reported again after this time. For `change`. Not set: 1s. Must be below the collector's
        /// `flow_timeout`.
        pub keep_alive: Option<Duration> = None,
    }
}

choice! {
    /// Detection algorithm of a filter.
    pub enum FilterAlgorithm("\"noop\", \"per_hop\", \"per_hop_of_flow\", \"per_flow\", \"moving_average\", \"change\" or \"rule\"") {
        /// Every packet is reported.
        Noop = "noop",
        /// A hop's value differs from the last reported value of its node.
        PerHop = "per_hop",
        /// A hop's value differs from the last reported value of its node and flow.
        PerHopOfFlow = "per_hop_of_flow",
        /// The sum over the hops differs from the last reported sum of the flow.
        PerFlow = "per_flow",
        /// The moving average of that sum differs from the last reported one of the flow.
        MovingAverage = "moving_average",
        /// The path, or a bucket of a hop's latency or queue, changes.
        Change = "change",
        /// A rule is true.
        Rule = "rule",
    }
}

choice! {
    /// The metric that a filter compares.
    pub enum FilterMetric("\"flow_latency\", \"hop_latency\", \"queue_occupancy\", \"queue_congestion\" or \"link_utilization\"") {
        /// Along the whole path, ns.
        FlowLatency = "flow_latency",
        /// In a node, ns.
        HopLatency = "hop_latency",
        /// Device units; of this switch, bytes.
        QueueOccupancy = "queue_occupancy",
        /// Thresholds in units of the device.
        QueueCongestion = "queue_congestion",
        /// Thresholds in millionths of the link's rate.
        LinkUtilization = "link_utilization",
    }
}

section! {
    /// INT role of this switch for some flows, regardless of their ports. The first match applies.
    pub struct RoleSettings("[[switch.role]]") {
        /// Source addresses to match.
        pub src: Option<Prefix> = None,
        /// Destination addresses to match.
        pub dst: Option<Prefix> = None,
        /// Source ports to match.
        pub sport: Option<PortRange> = None,
        /// Destination ports to match.
        pub dport: Option<PortRange> = None,
        /// IP protocol to match.
        pub proto: Option<Protocol> = None,
        /// Role of the switch for these packets.
        pub role: Option<Role> = None,
    }
}

/// The filters and roles of a switch, with the settings on which they depend.
#[derive(Clone, Copy, Debug)]
pub struct FilterSet<'a> {
    /// The filters, in order: the first match applies.
    pub filters: &'a [FilterSettings],
    /// The roles, in order: the first match applies.
    pub roles: &'a [RoleSettings],
    /// Number of registers per filter.
    pub registers: usize,
    /// The clocks of the nodes, which determine whether timestamps of different nodes can be compared.
    pub clocks: Clocks,
}

/// A key of `[[switch.filter]]`, and the reason its value is invalid.
type Problem = (&'static str, String);

impl FilterSettings {
    fn flows(&self) -> Match {
        flow_match(self.src, self.dst, self.sport, self.dport, self.proto)
    }

    /// Compiles the rule, if there is one. The text of a rule is checked only here.
    fn program(&self) -> Result<Option<Program>, RuleError> {
        let Some(text) = self.rule.as_ref().filter(|text| !text.is_empty()) else {
            return Ok(None);
        };
        let rules = RuleSet::compile(&[("filter".to_owned(), text.clone())])?;
        Program::new(&rules).map(Some).map_err(|(_, reason)| RuleError {
            rule: "filter".to_owned(),
            text: text.clone(),
            position: 0,
            length: text.len(),
            message: format!(
                "this rule does not fit the switch's table: {reason}; shorten it, or split it into two filters"
            ),
        })
    }

    /// Returns the keys that are set although the algorithm does not use them.
    fn unused_keys(&self, algorithm: FilterAlgorithm) -> Vec<&'static str> {
        use FilterAlgorithm::{Change, MovingAverage, Noop, PerFlow, PerHop, PerHopOfFlow, Rule};
        let read: &[&str] = match algorithm {
            Noop => &[],
            PerHop | PerHopOfFlow | PerFlow => &["metric", "threshold"],
            MovingAverage => &["metric", "threshold", "alpha"],
            Change => &["latency_bits", "queue_bits", "keep_alive"],
            Rule => &["rule"],
        };
        let written = [
            ("metric", self.metric.is_some()),
            ("threshold", self.threshold.is_some()),
            ("alpha", self.alpha.is_some()),
            ("rule", self.rule.is_some()),
            ("latency_bits", self.latency_bits.is_some()),
            ("queue_bits", self.queue_bits.is_some()),
            ("keep_alive", self.keep_alive.is_some()),
        ];
        let idle = written
            .into_iter()
            .filter(|(key, written)| *written && !read.contains(key));
        idle.map(|(key, _)| key).collect()
    }

    /// Builds the algorithm. Returns `None` if the only problem is in the text of its rule, which [`rule_errors`] reports.
    fn detector(&self) -> Result<Option<Detector>, Problem> {
        let algorithm = self.algorithm.ok_or_else(|| {
            (
                "algorithm",
                "a filter needs an algorithm; add algorithm = \"per_flow\" or the like".to_owned(),
            )
        })?;
        let word = algorithm.name();
        let checked = match algorithm {
            FilterAlgorithm::Noop => return Ok(Some(Detector::noop())),
            FilterAlgorithm::Rule if self.rule.as_ref().is_none_or(String::is_empty) => {
                let message = "a rule is missing; add rule = \"flow_latency > 5ms\" or the like";
                return Err(("rule", message.to_owned()));
            }
            FilterAlgorithm::Rule => {
                let Ok(Some(program)) = self.program() else {
                    return Ok(None);
                };
                Algorithm::Rule(program.into())
            }
            FilterAlgorithm::Change => Algorithm::Change(self.change()?),
            FilterAlgorithm::PerHop => Algorithm::PerHop,
            FilterAlgorithm::PerHopOfFlow => Algorithm::PerHopOfFlow,
            FilterAlgorithm::PerFlow => Algorithm::PerFlow,
            FilterAlgorithm::MovingAverage => Algorithm::MovingAverage {
                alpha: self.weight()?,
            },
        };
        if matches!(checked, Algorithm::Rule(_) | Algorithm::Change(_)) {
            return Ok(Some(Detector {
                algorithm: checked,
                ..Detector::noop()
            }));
        }
        let named = self.metric.and_then(|metric| Metric::from_name(metric.name()));
        let metric = named.ok_or_else(|| {
            (
                "metric",
                format!("{word} compares a metric; add metric = \"queue_occupancy\" or the like"),
            )
        })?;
        let threshold = self.threshold.as_ref().ok_or_else(|| {
            (
                "threshold",
                format!("{word} needs a threshold; add threshold = \"100us\", or a number for queues"),
            )
        })?;
        let threshold = threshold.value(metric).ok_or_else(|| {
            (
                "threshold",
                format!("invalid value for {metric}; write {}", written_as(metric)),
            )
        })?;
        Ok(Some(Detector {
            algorithm: checked,
            metric,
            threshold,
        }))
    }

    fn change(&self) -> Result<Change, Problem> {
        let keep_alive = self.keep_alive.unwrap_or(Duration::from_secs(1));
        Ok(Change {
            latency_bits: ignored_bits("latency_bits", self.latency_bits.unwrap_or(17))?,
            queue_bits: ignored_bits("queue_bits", self.queue_bits.unwrap_or(14))?,
            keep_alive: as_nanoseconds(keep_alive),
        })
    }

    /// Returns the weight of a new value, in units of 1/256.
    fn weight(&self) -> Result<u8, Problem> {
        let millionths = u64::from(self.alpha.unwrap_or(Fraction(250_000)).0);
        let weight = u8::try_from((millionths * 256 + 500_000) / 1_000_000).unwrap_or(0);
        let message = "the weight of a new value is stored in 256ths; write a number from 0.004 to 0.996";
        Some(weight)
            .filter(|&weight| weight > 0)
            .ok_or_else(|| ("alpha", message.to_owned()))
    }
}

/// Checks a number of low bits in which a change is ignored.
fn ignored_bits(key: &'static str, bits: u8) -> Result<u8, Problem> {
    if bits > 64 {
        let message = "write a number from 0 to 63, or 64 to leave it out";
        return Err((key, message.to_owned()));
    }
    Ok(bits)
}

/// Describes the notation of a metric's threshold.
fn written_as(metric: Metric) -> &'static str {
    match metric {
        Metric::FlowLatency | Metric::HopLatency => LatencyThreshold::KIND,
        Metric::LinkUtilization => UtilizationThreshold::KIND,
        Metric::FlowPath | Metric::QueueOccupancy | Metric::QueueCongestion => QueueThreshold::KIND,
    }
}

/// Reports problems of filters and roles. [`rule_errors`] reports those inside rules.
pub fn check(set: &FilterSet<'_>, refuse: &mut dyn FnMut(&[&str], String)) {
    let registers = set.registers;
    if !registers.is_power_of_two() || registers > MAX_REGISTERS {
        let message = format!("write a power of two up to {MAX_REGISTERS}, such as 4096");
        refuse(&["switch", "filter_registers"], message);
    }
    if set.filters.len() > MAX_FILTERS {
        let message = format!(
            "{} filters are too many; keep at most {MAX_FILTERS}",
            set.filters.len()
        );
        refuse(&["switch", "filter"], message);
    }
    let mut bytes: u64 = 0;
    for (index, filter) in set.filters.iter().enumerate() {
        let position = index.to_string();
        if mixes(filter.src, filter.dst) {
            refuse(&["switch", "filter", &position], MIXED.to_owned());
        }
        if let Some(algorithm) = filter.algorithm {
            for key in filter.unused_keys(algorithm) {
                let message = format!(
                    "algorithm = \"{}\" does not read {key}; remove it",
                    algorithm.name()
                );
                refuse(&["switch", "filter", &position, key], message);
            }
        }
        match filter.detector() {
            Err((key, message)) => refuse(&["switch", "filter", &position, key], message),
            Ok(None) => {}
            Ok(Some(detector)) => {
                bytes = bytes.saturating_add(memory(&detector, registers));
                if let Err((key, message)) = check_detector(detector) {
                    refuse(&["switch", "filter", &position, key], message);
                }
            }
        }
    }
    if bytes > MAX_BYTES {
        let message = format!(
            "{} filters with {registers} registers take {} MiB, more than {} MiB; write fewer registers",
            set.filters.len(),
            bytes >> 20,
            MAX_BYTES >> 20
        );
        refuse(&["switch", "filter_registers"], message);
    }
    for (index, role) in set.roles.iter().enumerate() {
        let position = index.to_string();
        if mixes(role.src, role.dst) {
            refuse(&["switch", "role", &position], MIXED.to_owned());
        }
        if role.role.is_none() {
            let message = format!("which one? Add role = {}", Role::KIND);
            refuse(&["switch", "role", &position], message);
        }
    }
}

fn mixes(src: Option<Prefix>, dst: Option<Prefix>) -> bool {
    src.zip(dst).is_some_and(|(src, dst)| src.is_v6() != dst.is_v6())
}

/// Returns the memory of a filter's registers, bytes.
fn memory(detector: &Detector, registers: usize) -> u64 {
    let cells = match &detector.algorithm {
        Algorithm::Noop => return 0,
        Algorithm::Rule(program) => u64::from(program.used),
        _ => 0,
    };
    // A register takes 24 bytes, plus 8 for each value that a rule compares.
    (registers as u64).saturating_mul(24 + 8 * cells)
}

/// Checks an algorithm's settings.
fn check_detector(detector: Detector) -> Result<(), Problem> {
    let filter = dataplane::Filter {
        flows: Match::default(),
        detector,
    };
    match dataplane::Filters::new(vec![filter], 1, Units::default()) {
        Ok(_) => Ok(()),
        Err(FilterError::Detector {
            error: DetectorError::NotPerHop(metric),
            ..
        }) => {
            let message = format!(
                "{metric} belongs to the flow, not to a hop; write algorithm = \"per_flow\", or metric = \"hop_latency\""
            );
            Err(("metric", message))
        }
        Err(FilterError::Detector { error, .. }) => Err(("algorithm", error.to_string())),
        Err(error) => Err(("algorithm", error.to_string())),
    }
}

/// Returns the errors in the rules of filters, each with its filter's index.
pub fn rule_errors(filters: &[FilterSettings]) -> Vec<(usize, RuleError)> {
    let errors = filters.iter().enumerate();
    errors
        .filter_map(|(index, filter)| Some((index, filter.program().err()?)))
        .collect()
}

/// Builds the filters, with empty registers.
///
/// # Errors
/// A sentence. Checked settings never fail.
pub fn filters(set: &FilterSet<'_>) -> Result<dataplane::Filters, String> {
    let filters = set.filters.iter().map(|filter| match filter.detector() {
        Ok(Some(detector)) => Ok(dataplane::Filter {
            flows: filter.flows(),
            detector,
        }),
        Ok(None) => Err("a filter's rule is wrong".to_owned()),
        Err((_, message)) => Err(message),
    });
    let filters = filters.collect::<Result<_, _>>()?;
    let units = Units {
        synchronised: set.clocks == Clocks::Synchronised,
        ..Units::default()
    };
    dataplane::Filters::new(filters, set.registers, units).map_err(|error| error.to_string())
}

/// Builds the roles by flow.
pub fn roles(settings: &[RoleSettings]) -> Roles {
    let roles = settings.iter().filter_map(|written| {
        let flows = flow_match(
            written.src,
            written.dst,
            written.sport,
            written.dport,
            written.proto,
        );
        Some((flows, written.role?))
    });
    Roles::new(roles.collect())
}
