//! The fast path on one core, in process: frames in memory to state, events in the batch of the normal path.

use collector::Batch;
use collector::workload::{CASES, Case, Input};
use wire::{Decoder, Dialect, Profile};

use super::harness::{Conditions, Failure, Outcome, Plan, measure};
use crate::error::CliError;

/// Bursts between two looks at the clock.
const BURSTS: u32 = 50;
/// Records in a batch; at half of it the batch goes to the normal path (here: is emptied).
const BATCH: usize = 8192;

fn workload(name: &str) -> Result<Case, CliError> {
    let case = CASES.into_iter().find(|case| case.name == name);
    case.ok_or_else(|| {
        CliError::new(format!("the collector has no workload `{name}`; this is a fault of this build"))
    })
}

/// `fastpath-…`: whole frames, Ethernet first, through decoding, state and threshold detection.
pub(super) fn collect(name: &'static str, plan: &Plan) -> Result<Outcome, Failure> {
    let case = workload(name)?;
    let (mut collector, mut feed) = (case.collector(), case.feed());
    let mut batch = Batch::with_capacity(BATCH);
    // Twice through all flows: the first report of each is news, and not what is measured.
    let mut warm = 0;
    while warm < 2 * feed.frames() {
        warm += feed.burst(Input::Frames, &mut collector, &mut batch);
        batch.clear();
    }
    let told = |collector: &collector::Collector| collector.stats().events.iter().sum::<u64>();
    let before = (told(&collector), collector.stats().reports);
    let measured = measure(plan, || {
        let mut reports = 0;
        for _ in 0..BURSTS {
            reports += feed.burst(Input::Frames, &mut collector, &mut batch) as u64;
            if batch.len() > BATCH / 2 {
                batch.clear();
            }
        }
        Ok(reports)
    })?;
    let stats = collector.stats();
    if stats.reports != stats.flow_reports + stats.unadmitted || stats.datagrams != stats.accepted {
        return Err(CliError::new("the collector's account does not balance").into());
    }
    let events = (told(&collector) - before.0) as f64 / (stats.reports - before.1).max(1) as f64;
    let included =
        "frame parsing, decoding, per-flow and per-hop state, thresholds, loss accounting, roll-ups; no I/O";
    let conditions = Conditions::of("one report", included)
        .number("flows", case.flows)
        .number("hops", case.hops)
        .number("items_per_hop", case.bitmap.count_ones())
        .number("frame_bytes", feed.frame_len())
        .ratio("events_per_report", events)
        .number("flows_not_admitted", stats.unadmitted)
        .number("table_bytes", collector.bytes())
        .share(&measured);
    Ok(Outcome::new(name, measured.ns_per_op, conditions))
}

/// `decode-only`: UDP payloads to reports with every hop located, and no state.
pub(super) fn decode(name: &'static str, plan: &Plan) -> Result<Outcome, Failure> {
    let case = workload("fastpath-6x8-1k")?;
    let feed = case.feed();
    let mut decoder = Decoder::new(Profile::new(Dialect::IntCollectorGen));
    let measured = measure(plan, || {
        let (mut reports, mut nodes) = (0, 0_u32);
        for payload in feed.payloads() {
            for report in decoder.reports(payload).flatten() {
                reports += 1;
                if let Some(int) = &report.int {
                    let records = int.stack.records();
                    nodes =
                        records.fold(nodes, |sum, record| sum.wrapping_add(int.stack.layout.node_id(record)));
                }
            }
        }
        std::hint::black_box(nodes);
        Ok(reports)
    })?;
    let conditions =
        Conditions::of("one report", "UDP payload to report, the node of each hop read; no state, no I/O")
            .number("hops", case.hops)
            .number("items_per_hop", case.bitmap.count_ones())
            .number("payload_bytes", feed.payloads().next().map_or(0, <[u8]>::len))
            .share(&measured);
    Ok(Outcome::new(name, measured.ns_per_op, conditions))
}
