//! Cases `fastpath-…`, `decode-only`, `flight-recorder` and `replay`: the collector on one core, in process.

use std::path::Path;

use collector::flight::{Chunk, ChunkStore, Ring};
use collector::{Batch, Collector, Datagram, Output};
use nic::capture::{self, LinkType, Writer};
use testkit::workload::collector::{CASES, Case, Feed, Input};
use wire::{Decoder, Dialect, Profile};

use super::harness::{Conditions, Failure, Outcome, Plan, measure, workload};
use collect_role::capture::{Account, bursts};
use collect_role::datagram::AggregatePorts;
use collect_role::replay::{Options, Replay, ReplayOutput, Speed};
use experiments::figures::decode_payloads;
use experiments::machine::Scratch;
use terminal::CliError;
use terminal::progress::Progress;

/// Bursts per clock reading.
const BURSTS: u32 = 50;
/// Capacity of a batch, in records. A batch that is half full is passed on, which here means cleared.
const BATCH: usize = 8192;

/// The workload of the cases without variants.
const USUAL: Case = CASES[0];

/// Measures frames, from the Ethernet header on, through decoding, state and threshold detection (`fastpath-…`).
pub(super) fn collect(name: &'static str, plan: &Plan) -> Result<Outcome, Failure> {
    let mut case = workload(CASES, name, |case| case.name)?;
    case.flows = plan.flows(case.flows);
    let mut collector = case.collector();
    let mut feed = case.feed();
    let mut batch = warm_up(&mut feed, &mut collector);
    let events_before: u64 = collector.stats().events.iter().sum();
    let reports_before = collector.stats().reports;
    let measured = measure(plan, || Ok(pass(&mut feed, &mut collector, &mut batch)))?;
    let stats = collector.stats();
    if stats.reports != stats.flow_reports + stats.unadmitted_total() || stats.datagrams != stats.accepted {
        return Err(CliError::new("the collector's counters do not balance").into());
    }
    let events = stats.events.iter().sum::<u64>() - events_before;
    let events = events as f64 / (stats.reports - reports_before).max(1) as f64;
    let included =
        "frame parsing, decoding, per-flow and per-hop state, thresholds, loss accounting, rollups; no I/O";
    let conditions = Conditions::of("one report", included)
        .text("format", case.format.describe())
        .text("order", case.order.describe())
        .text("cache", cache(&case, feed.bytes(), collector.bytes()))
        .number("rules", case.rules.len())
        .number("flows", case.flows)
        .number("hops", case.hops)
        .number("items_per_hop", case.bitmap.count_ones())
        .number("frame_bytes", feed.frame_len())
        .ratio("events_per_report", events)
        .number("flows_not_admitted", stats.unadmitted_total())
        .number("table_bytes", collector.bytes());
    Ok(Outcome::measured(name, measured, conditions))
}

/// Makes two passes over all flows, because the first report of a flow is an event. Returns an empty batch.
pub(super) fn warm_up(feed: &mut Feed, collector: &mut Collector) -> Batch {
    let mut batch = Batch::with_capacity(BATCH);
    let mut warmed_up = 0;
    while warmed_up < 2 * feed.frames() {
        warmed_up += feed.burst(Input::Frames, collector, &mut batch);
        batch.clear();
    }
    batch
}

/// Processes several bursts, as many as between two clock readings. Returns the number of reports.
pub(super) fn pass(feed: &mut Feed, collector: &mut Collector, batch: &mut Batch) -> u64 {
    let mut reports = 0;
    for _ in 0..BURSTS {
        reports += feed.burst(Input::Frames, collector, batch) as u64;
        if batch.len() > BATCH / 2 {
            batch.clear();
        }
    }
    reports
}

/// Describes the state of the caches when the measurement begins.
fn cache(case: &Case, frames: usize, state: usize) -> String {
    format!(
        "warm as far as it fits: {} in turn touch {:.1} MB of state and {:.1} MB of frames, read in order",
        terminal::units::counted(case.flows.into(), "flow"),
        state as f64 / 1e6,
        frames as f64 / 1e6
    )
}

/// Frames of the capture that `replay` replays.
const CAPTURED: usize = 500_000;

/// Measures a capture file replayed through the whole collector, as in `hopwise replay` (`replay`).
pub(super) fn replay(name: &'static str, plan: &Plan) -> Result<Outcome, Failure> {
    let feed = USUAL.feed();
    let dir = Scratch::new(name)?;
    let file = dir.path().join("reports.pcap");
    let frames = if plan.is_trial() { 10_000 } else { CAPTURED };
    write(&file, feed.whole().cycle().take(frames)).map_err(|error| {
        CliError::new(format!(
            "{}: {error}; set TMPDIR to a directory with room",
            file.display()
        ))
    })?;
    let profile = Profile::new(Dialect::IntCollectorGen);
    let config = collector::Config {
        default_profile: collector::Profile::new("generator", profile),
        ..collector::Config::default()
    };
    let measured = measure(plan, || Ok(replay_once(&file, config.clone())?))?;
    let included =
        "reading the file (in the page cache), frame parsing, the collector with its start and end; no store";
    let conditions = Conditions::of("one report", included)
        .text("order", "flows in the order in which their state was created")
        .number("flows", USUAL.flows)
        .number("frames", frames)
        .number("frame_bytes", feed.frame_len());
    Ok(Outcome::measured(name, measured, conditions))
}

/// Replays a file at full speed. Returns the number of reports.
fn replay_once(file: &Path, config: collector::Config) -> Result<u64, CliError> {
    let options = Options {
        speed: Speed::Max,
        ports: vec![32_766],
        aggregate_ports: AggregatePorts::default(),
    };
    let mut replay = Replay::new(config, Discarded, options);
    let mut progress = Progress::new("", "frames", None).silenced(true);
    replay.begin(file);
    bursts(file, &mut Account::default(), &mut progress, |account, frames| {
        replay.add(frames, account);
    })?;
    Ok(replay.finish().collector.stats().reports)
}

/// An output that discards everything.
struct Discarded;

impl Output for Discarded {}

impl ReplayOutput for Discarded {}

fn write<'a>(file: &Path, frames: impl Iterator<Item = &'a [u8]>) -> Result<(), capture::Error> {
    const BEGIN: u64 = 1_767_268_800_000_000_000;
    let mut writer = Writer::create(file, LinkType::Ethernet)?;
    for (number, frame) in frames.enumerate() {
        writer.write(BEGIN + number as u64 * 100, frame)?;
    }
    writer.finish().map(|_| ())
}

/// Measures payloads copied into the flight recorder's ring of 64 MiB, as in `hopwise run` but without its lock.
pub(super) fn record(name: &'static str, plan: &Plan) -> Result<Outcome, Failure> {
    const MEMORY: usize = 64 << 20;
    let feed = USUAL.feed();
    let mut ring = Ring::new();
    let mut kept = ChunkStore::new(MEMORY / Chunk::BYTES);
    let mut spare = None;
    let mut received = 0;
    let bytes = feed.payloads().next().map_or(1, <[u8]>::len);
    // The first call fills the ring twice, as a warm-up.
    let mut warm_ups = 2 * MEMORY / bytes;
    let measured = measure(plan, || {
        let mut reports = 0;
        while reports == 0 || warm_ups > 0 {
            for payload in feed.payloads() {
                received += 1_000;
                let datagram = Datagram {
                    payload,
                    source: [1; 16],
                    src_port: 40_000,
                    listener: 0,
                    received,
                };
                if ring.is_full(&datagram)
                    && let Some(full) = ring.take(spare.take())
                {
                    spare = kept.add(full);
                }
                ring.push(&datagram);
                reports += 1;
                warm_ups = warm_ups.saturating_sub(1);
            }
        }
        Ok(reports)
    })?;
    let conditions = Conditions::of(
        "one report",
        "a datagram copied with its time and sender; no decoding",
    )
    .number("payload_bytes", bytes)
    .number("ring_bytes", MEMORY);
    Ok(Outcome::measured(name, measured, conditions))
}

/// Measures decoding of UDP payloads to reports with every hop located, without state (`decode-only`).
pub(super) fn decode(name: &'static str, plan: &Plan) -> Result<Outcome, Failure> {
    let feed = USUAL.feed();
    let mut decoder = Decoder::new(Profile::new(Dialect::IntCollectorGen));
    let measured = measure(plan, || Ok(decode_payloads(&mut decoder, feed.payloads())))?;
    let conditions = Conditions::of(
        "one report",
        "UDP payload to report, the node of each hop read; no state, no I/O",
    )
    .number("hops", USUAL.hops)
    .number("items_per_hop", USUAL.bitmap.count_ones())
    .number("payload_bytes", feed.payloads().next().map_or(0, <[u8]>::len));
    Ok(Outcome::measured(name, measured, conditions))
}
