//! Cases `dta-…` and `rdma-…` in process, on one core: DTA translator, RoCEv2 responder, Key-Write queries, followers of lists.

use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use dta::{Answer, Next, Policy};
use experiments::figures::reports::{BURST, KEY, Reports, append_store, key_write_store, sketch_store};
use memory::{Pages, Region};
use testkit::workload::rdma::CASES;
use translator::StoreEntry;
use wire::dta::hash::Family;

use super::harness::{Conditions, Failure, Outcome, Plan, measure, median, workload};
use experiments::figures::keys::{Key, Keys, Kind, mix};
use experiments::figures::pipeline::Pipeline;
use experiments::figures::slots::Slots;
use experiments::figures::{failed, large, unwritten};
use terminal::CliError;

/// Runs shorter than this only test the benchmark itself, and use little memory.
const SHORT: Duration = Duration::from_millis(50);
/// Bytes of a path of five node IDs.
const PATH: usize = 20;
/// Columns of the sketch (1 MiB), and number of reporters.
const COLUMNS: u32 = 1 << 16;
const REPORTERS: u32 = 4;
/// Writes per round of the responder, and of the plain loop for comparison.
const WRITES: usize = 2048;
/// Keys per round of queries.
const KEYS: usize = 2048;
/// Entries of the list that is read.
const LIST_ENTRIES: u64 = 1 << 24;

/// Returns the bytes of memory for a case.
fn bytes(plan: &Plan) -> u64 {
    if plan.each < SHORT { 16 << 20 } else { large() }
}

/// Names the kind of pages of a region.
fn pages(region: &Region) -> &'static str {
    match region.pages() {
        Pages::Huge2M => "2 MiB",
        Pages::Transparent => "transparent huge pages",
        Pages::Small => "4 KiB",
    }
}

/// Measures the time per operation of each run, ns: the median of its rounds, which excludes rounds in which another program
/// used the core. A round returns its measured time and its number of operations; all rounds must do the same work.
fn rounds(
    plan: &Plan,
    mut round: impl FnMut() -> Result<(Duration, u64), CliError>,
) -> Result<Vec<f64>, Failure> {
    let mut found = Vec::new();
    for run in 0..=plan.runs {
        let span = if run == 0 { plan.each / 2 } else { plan.each };
        let begun = Instant::now();
        let mut times = Vec::new();
        while begun.elapsed() < span || times.len() < 4 {
            let (took, operations) = round()?;
            times.push(took.as_nanos() as f64 / operations.max(1) as f64);
        }
        // The first run is the warm-up.
        if run > 0 {
            found.push(median(times));
        }
    }
    Ok(found)
}

/// The input of a translator case.
struct TranslatorInput {
    store: StoreEntry,
    reports: Reports,
    /// Operations (entries or reports) in a report.
    count: u64,
    /// Bursts per round, after which every list has written whole batches, or every reporter its sketch.
    bursts: u64,
    operation: &'static str,
}

fn translator_input(name: &str) -> Result<TranslatorInput, CliError> {
    let lists = append_store(16, 1 << 16, 16);
    let (store, reports, count, bursts, operation) = match name {
        "dta-key-write" => (
            key_write_store(1 << 20, PATH as u16),
            Reports::key_write(2, &[7; PATH]),
            1,
            8,
            "one report",
        ),
        "dta-append" => (
            lists,
            Reports::append(1, 16),
            1,
            16,
            "one entry, one in each report",
        ),
        "dta-append-16" => (
            lists,
            Reports::append(16, 16),
            16,
            16,
            "one entry, sixteen in each report",
        ),
        "dta-sketch-merge" => (
            sketch_store(COLUMNS, REPORTERS),
            Reports::sketch_merge(COLUMNS, REPORTERS),
            1,
            u64::from(COLUMNS / 64 * REPORTERS) / BURST as u64,
            "one report of 64 columns",
        ),
        _ => return Err(CliError::new(format!("`{name}` is not a case of the translator"))),
    };
    Ok(TranslatorInput {
        store,
        reports: reports.map_err(unwritten)?,
        count,
        bursts,
        operation,
    })
}

/// Measures the translator from UDP payloads to whole RoCEv2 frames (`dta-key-write`, `dta-append…`, `dta-sketch-merge`).
pub(super) fn translate(name: &'static str, plan: &Plan) -> Result<Outcome, Failure> {
    let TranslatorInput {
        store,
        mut reports,
        count,
        bursts,
        operation,
    } = translator_input(name)?;
    let mut pipeline = Pipeline::new(&[store])?;
    let mut frames = 0;
    let mut frame_bytes = 0;
    let mut sent = 0_u64;
    let times = rounds(plan, || {
        let mut took = Duration::ZERO;
        for _ in 0..bursts {
            let burst = reports.burst();
            let begun = Instant::now();
            pipeline.translate(burst);
            took += begun.elapsed();
            let pending = pipeline.pending();
            (frames, frame_bytes) = (frames + pending.0, frame_bytes + pending.1);
            pipeline.deliver();
        }
        sent += bursts * BURST as u64;
        Ok((took, bursts * BURST as u64 * count))
    })?;
    pipeline.finish();
    pipeline.check()?;
    let included = "UDP payload to whole RoCEv2 frames with ICRC: checks, hashing, batches or merging, queue pairs; no I/O";
    let mut conditions = Conditions::of(operation, included)
        .number("payload_bytes", reports.payload_len())
        .ratio("frames_per_report", frames as f64 / sent as f64)
        .ratio("frame_bytes_per_report", frame_bytes as f64 / sent as f64)
        .number("burst", BURST);
    if name == "dta-sketch-merge" {
        // A report has 64 columns of 16 bytes; bytes per ns are GB/s.
        let merged = 1024.0 / median(times.clone());
        let copied = copying(plan)?;
        conditions = conditions
            .number("columns", COLUMNS)
            .number("reporters", REPORTERS)
            .ratio("merged_gbytes_per_s", merged)
            .ratio("copied_gbytes_per_s", copied)
            .ratio("of_copy", merged / copied);
    }
    Ok(Outcome::new(name, times, conditions))
}

/// Measures a plain memory copy on this machine, in GB/s.
fn copying(plan: &Plan) -> Result<f64, Failure> {
    const PIECE: usize = 1 << 20;
    let len = if plan.each < SHORT { PIECE } else { 256 * PIECE };
    let from = vec![1_u8; len];
    let mut to = vec![0_u8; len];
    let mut at = 0;
    let times = rounds(plan, || {
        let begun = Instant::now();
        to[at..at + PIECE].copy_from_slice(black_box(&from[at..at + PIECE]));
        black_box(&mut to);
        at = (at + PIECE) % len;
        Ok((begun.elapsed(), PIECE as u64))
    })?;
    Ok(1.0 / median(times))
}

/// Measures the responder from frames in memory to bytes in a region (`rdma-key-write`, `rdma-append…`).
pub(super) fn respond(name: &'static str, plan: &Plan) -> Result<Outcome, Failure> {
    let case = workload(CASES, name, |case| case.name)?;
    let memory = Arc::new(Region::anonymous(bytes(plan), true).map_err(failed)?);
    memory.populate().map_err(failed)?;
    let mut feed = case
        .feed(Arc::clone(&memory))
        .ok_or_else(|| failed("the region is too small"))?;
    let mut plain = Vec::new();
    let times = rounds(plan, || {
        feed.fill(WRITES).map_err(unwritten)?;
        let begun = Instant::now();
        let writes = feed.respond(BURST);
        let took = begun.elapsed();
        // The plain loop runs after each round, at other addresses.
        feed.fill(WRITES).map_err(unwritten)?;
        let begun = Instant::now();
        feed.store();
        plain.push(begun.elapsed().as_nanos() as f64 / WRITES as f64);
        Ok((took, writes))
    })?;
    let stats = *feed.stats();
    if !stats.is_balanced() || stats.executed != stats.packets {
        return Err(CliError::new("the responder's counters do not balance").into());
    }
    let plain = median(plain);
    let included = "frame to memory: headers, ICRC, queue pair, region, the store; no I/O";
    let conditions = Conditions::of("one write", included)
        .number("write_bytes", case.len)
        .number("region_mib", memory.len() >> 20)
        .text("pages", pages(&memory))
        .text(
            "baseline",
            "a plain loop with prefetch that stores the same bytes at addresses of the same kind, alternately",
        )
        .ratio("baseline_ns", plain)
        .ratio("of_baseline", plain / median(times.clone()));
    Ok(Outcome::new(name, times, conditions))
}

/// Measures queries of random keys in a large Key-Write store, N = 2 (`dta-query`, `dta-query-cold`).
pub(super) fn query(name: &'static str, plan: &Plan) -> Result<Outcome, Failure> {
    let slots = bytes(plan) / 32;
    let store = Slots::new(slots, PATH as u16, Family::V1)?;
    let keys = Keys {
        kind: Kind::RandomTuples,
        seed: 10,
    };
    let written = slots / 8;
    let mut data = [7; PATH];
    for number in 0..written {
        data[..4].copy_from_slice(&(number as u32).to_be_bytes());
        store.write(keys.key(number).as_ref(), &data, 2)?;
    }
    // Half of the queried keys exist.
    let mut queried_keys = (1..).map(|number| keys.key(mix(number) % (2 * written)));
    let reader = store.reader();
    let mut found = 0_u64;
    let mut queried = 0_u64;
    let cold = name.ends_with("cold");
    let times = if cold {
        let mut out = [0; PATH];
        rounds(plan, || {
            // The answer selects one of two next keys, so that the processor cannot overlap queries speculatively.
            let keys: Vec<Key> = queried_keys.by_ref().take(2 * KEYS).collect();
            let mut hit = 0;
            let begun = Instant::now();
            for pair in keys.as_chunks::<2>().0 {
                let answer = reader
                    .get(pair[hit].as_ref(), Policy::Majority, 2, &mut out)
                    .map_err(failed)?;
                hit = usize::from(matches!(answer, Answer::Found { .. }));
                found += hit as u64;
                queried += 1;
            }
            Ok((begun.elapsed(), KEYS as u64))
        })?
    } else {
        let mut out = vec![0; KEYS * PATH];
        let mut answers = vec![Answer::Empty; KEYS];
        rounds(plan, || {
            // The keys are generated before the measured part.
            let keys = queried_keys.by_ref().take(KEYS);
            let keys: Vec<[u8; KEY]> = keys
                .filter_map(|key| key.as_ref().first_chunk().copied())
                .collect();
            let begun = Instant::now();
            reader
                .get_batch(&keys, Policy::Majority, 2, &mut out, &mut answers)
                .map_err(failed)?;
            let took = begun.elapsed();
            found += answers
                .iter()
                .filter(|answer| matches!(answer, Answer::Found { .. }))
                .count() as u64;
            queried += keys.len() as u64;
            Ok((took, keys.len() as u64))
        })?
    };
    let included = "key to value: five CRCs, both slots, checksums, both values compared (policy majority)";
    let conditions = Conditions::of("one key", included)
        .number("key_bytes", KEY)
        .number("value_bytes", PATH)
        .number("copies", 2_u32)
        .number("batch", if cold { 1 } else { KEYS })
        .number("slots", slots)
        .number("region_mib", store.region().len() >> 20)
        .text("pages", pages(store.region()))
        .number("large_pages_mib", store.region().huge_bytes().unwrap_or(0) >> 20)
        .ratio("found", found as f64 / queried.max(1) as f64);
    Ok(Outcome::new(name, times, conditions))
}

/// Measures a reader of a list of tagged batches, from the oldest to the newest, repeatedly (`dta-follow…`).
pub(super) fn follow(name: &'static str, plan: &Plan) -> Result<Outcome, Failure> {
    let entries = if plan.each < SHORT { 1 << 16 } else { LIST_ENTRIES };
    let batch: u16 = if name.ends_with("-4") { 4 } else { 16 };
    let mut pipeline = Pipeline::new(&[append_store(1, entries, batch)])?;
    let mut reports = Reports::append_to(batch.into(), 0).map_err(unwritten)?;
    for _ in 0..entries / (u64::from(batch) * BURST as u64) {
        pipeline.translate(reports.burst());
        pipeline.deliver();
    }
    pipeline.finish();
    pipeline.check()?;
    let lists = pipeline.stores().first().and_then(dta::DtaStore::lists);
    let lists = lists.ok_or_else(|| failed("no lists"))?;
    let mut follower = lists.from_oldest(0).ok_or_else(|| failed("no list"))?;
    let mut sum = 0_u64;
    let measured = measure(plan, || {
        let mut read = 0;
        while read < 1 << 14 {
            match follower.next() {
                Next::Batch { entries, .. } => {
                    sum += u64::from(entries.first().copied().unwrap_or(0));
                    read += entries.len() as u64 / 4;
                }
                Next::Nothing => follower = lists.from_oldest(0).ok_or_else(|| failed("no list"))?,
                other => return Err(failed(format!("a list at rest: {other:?}")).into()),
            }
        }
        Ok(read)
    })?;
    black_box(sum);
    let ring = lists.ring();
    let copied = copying(plan)?;
    let read = ring.block_len() as f64 / f64::from(ring.batch) / median(measured.ns_per_op.clone());
    let included = "block to entries: copied out, sequence number and CRC-32C checked";
    let conditions = Conditions::of("one entry", included)
        .number("entry_bytes", ring.entry_len)
        .number("batch", ring.batch)
        .number("list_mib", ring.list_len() >> 20)
        .ratio("read_gbytes_per_s", read)
        .ratio("copied_gbytes_per_s", copied)
        .ratio("of_copy", read / copied);
    Ok(Outcome::measured(name, measured, conditions))
}
