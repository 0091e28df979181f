//! Cases `sf-join…`: the collector joins SF-INT reports into paths on one core, in process, from frames in memory to state.

use testkit::workload::collector::SF_CASES;

use super::fastpath::{pass, warm_up};
use super::harness::{Conditions, Failure, Outcome, Plan, measure, workload};
use terminal::CliError;

/// Measures frames, from the Ethernet header on, through decoding, joining, state and detection.
pub(super) fn run(name: &'static str, plan: &Plan) -> Result<Outcome, Failure> {
    let mut case = workload(SF_CASES, name, |case| case.name)?;
    case.flows = plan.flows(case.flows);
    let mut collector = case.collector();
    let mut feed = case.feed();
    let mut batch = warm_up(&mut feed, &mut collector);
    let before = collector.stats();
    let measured = measure(plan, || Ok(pass(&mut feed, &mut collector, &mut batch)))?;
    let stats = collector.stats().since(&before);
    let balanced = collector.stats().sf.balance().is_balanced() && stats.state_balance().is_balanced();
    // Every four reports complete a set; at most one set per flow is incomplete at the end.
    let due = (stats.sf.reports / 4).saturating_sub(u64::from(case.flows));
    if !balanced || stats.sf.reports != stats.reports || stats.sf.complete.sets < due {
        return Err(CliError::new("the collector's counters do not balance").into());
    }
    let included = "frame parsing, decoding, joining, per-flow and per-hop state, thresholds, loss accounting, rollups; \
                    no I/O";
    let conditions = Conditions::of("one report", included)
        .number("flows", case.flows)
        .number("nodes", 5)
        .number("items_per_record", 4)
        .number("frame_bytes", feed.frame_len())
        .ratio(
            "sets_per_report",
            stats.sf.complete.sets as f64 / stats.sf.reports.max(1) as f64,
        );
    Ok(Outcome::measured(name, measured, conditions))
}
