//! Cases `aggregator-…`: the aggregator on one core, in process, from datagrams with postcards to payloads of aggregates.

use aggregator::Aggregator;
use testkit::workload::aggregator::{CASES, LEN, NODES};

use super::harness::{Conditions, Failure, Outcome, Plan, measure, workload};
use terminal::CliError;

/// Datagrams per call, as in a burst from a socket.
const BURST: usize = 64;
/// Bursts per clock reading.
const BURSTS: usize = 50;

#[derive(Default)]
struct CountingOutput {
    datagrams: u64,
}

impl aggregator::Output for CountingOutput {
    fn send(&mut self, _: usize, payload: &[u8]) {
        self.datagrams += 1;
        std::hint::black_box(payload);
    }
}

/// Measures the time per postcard: reading the datagram, collecting in a register, writing the aggregate.
pub(super) fn run(name: &'static str, plan: &Plan) -> Result<Outcome, Failure> {
    let case = workload(CASES, name, |case| case.name)?;
    let mut aggregator =
        Aggregator::new(case.config()).map_err(|error| CliError::new(format!("{name}: {error}")))?;
    let datagrams = case.datagrams();
    let mut out = CountingOutput::default();
    let mut now = 0;
    let mut bursts = datagrams.chunks(BURST * LEN).cycle();
    let measured = measure(plan, || {
        let mut postcards = 0;
        for burst in bursts.by_ref().take(BURSTS) {
            now += 1000;
            aggregator.ingest(now, burst.chunks_exact(LEN), &mut out);
            postcards += (burst.len() / LEN) as u64;
        }
        Ok(postcards)
    })?;
    let stats = aggregator.stats();
    let aggregates: u64 = stats.sent.iter().map(|sent| sent.aggregates).sum();
    if !stats.is_balanced() || aggregates != out.datagrams || stats.postcards != stats.datagrams {
        return Err(CliError::new("the aggregator's counters do not balance").into());
    }
    let evicted = stats.sent[aggregator::Cause::Evicted as usize].aggregates;
    let included = "UDP payload to UDP payload: reading, sequence numbers, register, writing; no I/O";
    let conditions = Conditions::of("one postcard", included)
        .text("kind", case.kind.name())
        .number("r", case.r)
        .number("nodes", NODES)
        .number("flows", case.flows)
        .number("payload_bytes", LEN)
        .ratio(
            "aggregates_per_postcard",
            aggregates as f64 / stats.postcards.max(1) as f64,
        )
        .ratio("evicted_of_aggregates", evicted as f64 / aggregates.max(1) as f64)
        .number("register_bytes", aggregator.config().bytes());
    Ok(Outcome::measured(name, measured, conditions))
}
