//! Cases `aggregate-unfold…`: the collector unpacks aggregates of postcards on one core, in process.

use collector::Batch;
use testkit::workload::collector::aggregate::CASES;

use super::harness::{Conditions, Failure, Outcome, Plan, measure, workload};
use terminal::CliError;

/// Aggregates per clock reading.
const AGGREGATES: u32 = 200;
const BATCH: usize = 8192;

/// Measures the time per postcard, from the UDP payload through checks and flow, node and queue state.
pub(super) fn unfold(name: &'static str, plan: &Plan) -> Result<Outcome, Failure> {
    let case = workload(CASES, name, |case| case.name)?;
    let mut collector = case.collector();
    let mut feed = case.feed();
    let mut batch = Batch::with_capacity(BATCH);
    // Warm-up over all flows: the first postcard of a flow is an event and must not be measured.
    let mut warmed_up = 0;
    while warmed_up < feed.postcards() {
        warmed_up += feed.deliver(&mut collector, &mut batch);
        batch.clear();
    }
    let before = collector.stats().postcards;
    let measured = measure(plan, || {
        let mut postcards = 0;
        for _ in 0..AGGREGATES {
            postcards += feed.deliver(&mut collector, &mut batch);
        }
        batch.clear();
        Ok(postcards)
    })?;
    let stats = collector.stats();
    if !stats.state_balance().is_balanced()
        || !stats.decode_balance().is_balanced()
        || !stats.postcards.balance().is_balanced()
    {
        return Err(CliError::new("the collector's counters do not balance").into());
    }
    let joined = (stats.postcards.joined - before.joined) as f64
        / (stats.postcards.received - before.received).max(1) as f64;
    let included =
        "checks, flow by its ID, per-hop, node and queue state, thresholds, loss accounting, rollups; no I/O";
    let conditions = Conditions::of("one postcard", included)
        .number("flows", case.flows)
        .number("r", case.r)
        .number("payload_bytes", feed.payload_len())
        .ratio("joined_per_postcard", joined);
    Ok(Outcome::measured(name, measured, conditions))
}
