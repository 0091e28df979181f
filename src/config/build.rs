//! From settings to what the other folders take: thresholds, rules, profiles, tables.

use std::sync::Arc;

use detect::{Detection, Match, Metric, PortRange, RuleError, RuleSet, ThresholdError, Thresholds};

use super::sections::{OverrideSettings, Settings};

/// The thresholds.
///
/// # Errors
/// Overrides that match nothing, or too many of them.
pub(crate) fn thresholds(settings: &Settings) -> Result<Thresholds, ThresholdError> {
    let defaults = &settings.thresholds;
    let mut set = [0; Metric::COUNT];
    for (metric, amount) in [
        (Metric::FlowLatency, defaults.flow_latency),
        (Metric::HopLatency, defaults.hop_latency),
        (Metric::QueueOccupancy, defaults.queue_occupancy),
        (Metric::QueueCongestion, defaults.queue_congestion),
        (Metric::LinkUtilization, defaults.link_utilization),
    ] {
        set[metric as usize] = amount.0;
    }
    Thresholds::new(set, defaults.r#override.iter().map(one_override).collect())
}

fn one_override(written: &OverrideSettings) -> (Match, [Option<u64>; Metric::COUNT]) {
    let mut values = [None; Metric::COUNT];
    for (metric, amount) in [
        (Metric::FlowLatency, written.flow_latency),
        (Metric::HopLatency, written.hop_latency),
        (Metric::QueueOccupancy, written.queue_occupancy),
        (Metric::QueueCongestion, written.queue_congestion),
        (Metric::LinkUtilization, written.link_utilization),
    ] {
        values[metric as usize] = amount.map(|amount| amount.0);
    }
    let matches = Match {
        src: written.src,
        dst: written.dst,
        sport: written.sport.unwrap_or(PortRange::ANY),
        dport: written.dport.unwrap_or(PortRange::ANY),
        proto: written.proto.map(|protocol| protocol.0),
    };
    (matches, values)
}

/// The rules.
///
/// # Errors
/// The first rule that is wrong.
pub(crate) fn rules(settings: &Settings) -> Result<RuleSet, RuleError> {
    let rules: Vec<_> = settings.rules.iter().map(|rule| (rule.name.clone(), rule.when.clone())).collect();
    RuleSet::compile(&rules)
}

/// All that decides what is told.
///
/// # Errors
/// A sentence; it cannot happen with settings that were checked.
pub(crate) fn detection(settings: &Settings, generation: u32) -> Result<Arc<Detection>, String> {
    let thresholds = thresholds(settings).map_err(|error| error.to_string())?;
    let rules = rules(settings).map_err(|error| error.to_string())?;
    Ok(Arc::new(Detection { thresholds, rules, generation }))
}
