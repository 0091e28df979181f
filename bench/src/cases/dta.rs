//! Direct Telemetry Access on one core, in process: the translator, the responder, queries and followers.

use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::figures::reports::{BURST, KEY, Reports, append_store, key_write_store, sketch_store};
use dta::{Answer, Next, Policy};
use memory::{Pages, Region};
use rdma::workload;
use translator::StoreEntry;
use wire::dta::hash::Family;

use super::harness::{Conditions, Failure, Outcome, Plan, measure, middle};
use crate::figures::joined::Joined;
use crate::figures::keys::{Key, Keys, Kind, mix};
use crate::figures::slots::Slots;
use crate::figures::{failed, large, unwritten};
use terminal::CliError;

/// A run of a few milliseconds is a test of the bench itself: then little memory is enough.
const SHORT: Duration = Duration::from_millis(50);
/// Bytes of a path of five nodes.
const PATH: usize = 20;
/// Columns of the sketch (1 MiB), and its reporters.
const COLUMNS: u32 = 1 << 16;
const REPORTERS: u32 = 4;
/// Writes in a round of the responder and of the plain loop beside it.
const WRITES: usize = 2048;
/// Keys in a turn of queries, each asked once.
const ASKED: usize = 2048;
/// Entries of a list that is followed.
const FOLLOWED: u64 = 1 << 24;

/// Bytes of memory for a case.
fn bytes(plan: &Plan) -> u64 {
    if plan.each < SHORT { 16 << 20 } else { large() }
}

/// The words for the pages under a region.
fn pages(region: &Region) -> &'static str {
    match region.pages() {
        Pages::Huge2M => "2 MiB",
        Pages::Transparent => "transparent, asked for",
        Pages::Small => "4 KiB",
    }
}

/// Nanoseconds per operation of each run: the median of its turns, so that a turn in which another program had the core does
/// not count. A turn returns its measured time and its operations; all turns do the same work.
fn rounds(
    plan: &Plan,
    mut turn: impl FnMut() -> Result<(Duration, u64), CliError>,
) -> Result<Vec<f64>, Failure> {
    let mut found = Vec::new();
    for run in 0..=plan.runs {
        let (span, begun) = (if run == 0 { plan.each / 2 } else { plan.each }, Instant::now());
        let mut turns = Vec::new();
        while begun.elapsed() < span || turns.len() < 4 {
            let (took, operations) = turn()?;
            turns.push(took.as_nanos() as f64 / operations.max(1) as f64);
        }
        // The first was the warm-up.
        if run > 0 {
            found.push(middle(turns));
        }
    }
    Ok(found)
}

/// What goes through the translator.
struct Translated {
    store: StoreEntry,
    reports: Reports,
    /// Operations in a report.
    count: u64,
    /// Bursts after which all begins anew: every list has written a batch, every reporter its sketch.
    bursts: u64,
    operation: &'static str,
}

fn translated(name: &str) -> Result<Translated, CliError> {
    let lists = append_store(16, 1 << 16, 16);
    let (store, reports, count, bursts, operation) = match name {
        "dta-key-write" => {
            (key_write_store(1 << 20, PATH as u16), Reports::key_write(2, &[7; PATH]), 1, 8, "one report")
        }
        "dta-append" => (lists, Reports::append(1, 16), 1, 16, "one entry, one in each report"),
        "dta-append-16" => (lists, Reports::append(16, 16), 16, 16, "one entry, sixteen in each report"),
        "dta-sketch-merge" => (
            sketch_store(COLUMNS, REPORTERS),
            Reports::sketch_merge(COLUMNS, REPORTERS),
            1,
            u64::from(COLUMNS / 64 * REPORTERS) / BURST as u64,
            "one report of 64 columns",
        ),
        _ => return Err(CliError::new(format!("`{name}` is not a case of the translator"))),
    };
    Ok(Translated { store, reports: reports.map_err(unwritten)?, count, bursts, operation })
}

/// `dta-key-write`, `dta-append…`, `dta-sketch-merge`: UDP payloads to whole RoCEv2 frames.
pub(super) fn translate(name: &'static str, plan: &Plan) -> Result<Outcome, Failure> {
    let Translated { store, mut reports, count, bursts, operation } = translated(name)?;
    let mut joined = Joined::new(&[store])?;
    let (mut frames, mut frame_bytes, mut given) = (0, 0, 0_u64);
    let times = rounds(plan, || {
        let mut took = Duration::ZERO;
        for _ in 0..bursts {
            let burst = reports.burst();
            let begun = Instant::now();
            joined.translate(burst);
            took += begun.elapsed();
            let waiting = joined.waiting();
            (frames, frame_bytes) = (frames + waiting.0, frame_bytes + waiting.1);
            joined.carry();
        }
        given += bursts * BURST as u64;
        Ok((took, bursts * BURST as u64 * count))
    })?;
    joined.finish();
    joined.check()?;
    let included = "UDP payload to whole RoCEv2 frames with ICRC: checks, hashing, batches or merging, queue pairs; no I/O";
    let mut conditions = Conditions::of(operation, included)
        .number("payload_bytes", reports.payload_len())
        .ratio("frames_per_report", frames as f64 / given as f64)
        .ratio("frame_bytes_per_report", frame_bytes as f64 / given as f64)
        .number("burst", BURST);
    if name == "dta-sketch-merge" {
        let merged = 1024.0 / middle(times.clone());
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

/// GB a second that a plain copy of memory moves, in this run.
fn copying(plan: &Plan) -> Result<f64, Failure> {
    const PIECE: usize = 1 << 20;
    let len = if plan.each < SHORT { PIECE } else { 256 * PIECE };
    let (from, mut to, mut at) = (vec![1_u8; len], vec![0_u8; len], 0);
    let times = rounds(plan, || {
        let begun = Instant::now();
        to[at..at + PIECE].copy_from_slice(black_box(&from[at..at + PIECE]));
        black_box(&mut to);
        at = (at + PIECE) % len;
        Ok((begun.elapsed(), PIECE as u64))
    })?;
    Ok(1.0 / middle(times))
}

/// `rdma-key-write`, `rdma-append`: frames in memory to bytes in a region.
pub(super) fn respond(name: &'static str, plan: &Plan) -> Result<Outcome, Failure> {
    let case = workload::CASES.into_iter().find(|case| case.name == name);
    let case = case.ok_or_else(|| CliError::new(format!("the collector has no workload `{name}`")))?;
    let memory = Arc::new(Region::anonymous(bytes(plan), true).map_err(failed)?);
    memory.populate().map_err(failed)?;
    let mut feed = case.feed(Arc::clone(&memory)).ok_or_else(|| failed("the region is too small"))?;
    let mut plain = Vec::new();
    let times = rounds(plan, || {
        feed.fill(WRITES).map_err(unwritten)?;
        let begun = Instant::now();
        let writes = feed.respond(BURST);
        let took = begun.elapsed();
        // In turns with it, at other places.
        feed.fill(WRITES).map_err(unwritten)?;
        let begun = Instant::now();
        feed.store();
        plain.push(begun.elapsed().as_nanos() as f64 / WRITES as f64);
        Ok((took, writes))
    })?;
    let stats = *feed.stats();
    if !stats.is_balanced() || stats.executed != stats.packets {
        return Err(CliError::new("the responder's account does not balance").into());
    }
    let plain = middle(plain);
    let included = "frame to memory: headers, ICRC, queue pair, region, the store; no I/O";
    let conditions = Conditions::of("one write", included)
        .number("write_bytes", case.len)
        .number("region_mib", memory.len() >> 20)
        .text("pages", pages(&memory))
        .text(
            "baseline",
            "a plain loop with prefetch that stores the same bytes at places of the same kind, in turns",
        )
        .ratio("baseline_ns", plain)
        .ratio("of_baseline", plain / middle(times.clone()));
    Ok(Outcome::new(name, times, conditions))
}

/// `dta-query`, `dta-query-cold`: random keys of a large store, N = 2.
pub(super) fn query(name: &'static str, plan: &Plan) -> Result<Outcome, Failure> {
    let slots = bytes(plan) / 32;
    let store = Slots::new(slots, PATH as u16, Family::V1)?;
    let (keys, written) = (Keys { kind: Kind::RandomTuples, seed: 10 }, slots / 8);
    let mut data = [7; PATH];
    for number in 0..written {
        data[..4].copy_from_slice(&(number as u32).to_be_bytes());
        store.write(keys.key(number).as_ref(), &data, 2)?;
    }
    // Half of what is asked for is there.
    let mut number = 0;
    let mut next = || {
        number += 1;
        keys.key(mix(number) % (2 * written))
    };
    let reader = store.reader();
    let (mut found, mut given) = (0_u64, 0_u64);
    let cold = name.ends_with("cold");
    let times = if cold {
        let mut out = [0; PATH];
        rounds(plan, || {
            // The next key is chosen by the answer, so that the processor cannot work ahead: of two, one is asked.
            let asked: Vec<[Key; 2]> = (0..ASKED).map(|_| [next(), next()]).collect();
            let (mut hit, begun) = (0, Instant::now());
            for keys in &asked {
                let answer = reader.get(keys[hit].as_ref(), Policy::Majority, 2, &mut out).map_err(failed)?;
                hit = usize::from(matches!(answer, Answer::Found { .. }));
                (found, given) = (found + hit as u64, given + 1);
            }
            Ok((begun.elapsed(), ASKED as u64))
        })?
    } else {
        let (mut out, mut answers) = (vec![0; ASKED * PATH], vec![Answer::Empty; ASKED]);
        rounds(plan, || {
            // Made and written down before: asking is what counts.
            let asked: Vec<[u8; KEY]> =
                (0..ASKED).filter_map(|_| next().as_ref().first_chunk().copied()).collect();
            let begun = Instant::now();
            reader.get_batch(&asked, Policy::Majority, 2, &mut out, &mut answers).map_err(failed)?;
            let took = begun.elapsed();
            found += answers.iter().filter(|answer| matches!(answer, Answer::Found { .. })).count() as u64;
            given += asked.len() as u64;
            Ok((took, asked.len() as u64))
        })?
    };
    let included = "key to value: five CRCs, both slots, checksums, both values compared (policy majority)";
    let conditions = Conditions::of("one key", included)
        .number("key_bytes", KEY)
        .number("value_bytes", PATH)
        .number("copies", 2_u32)
        .number("batch", if cold { 1 } else { ASKED })
        .number("slots", slots)
        .number("region_mib", store.region().len() >> 20)
        .text("pages", pages(store.region()))
        .number("large_pages_mib", store.region().huge_bytes().unwrap_or(0) >> 20)
        .ratio("found", found as f64 / given.max(1) as f64);
    Ok(Outcome::new(name, times, conditions))
}

/// `dta-follow`: a list of tagged batches, read from the oldest to the newest, over and over.
pub(super) fn follow(name: &'static str, plan: &Plan) -> Result<Outcome, Failure> {
    let entries = if plan.each < SHORT { 1 << 16 } else { FOLLOWED };
    let mut joined = Joined::new(&[append_store(1, entries, 16)])?;
    let mut reports = Reports::append_to(16, 0).map_err(unwritten)?;
    for _ in 0..entries / (16 * BURST as u64) {
        joined.translate(reports.burst());
        joined.carry();
    }
    joined.finish();
    joined.check()?;
    let lists = joined.stores().first().and_then(dta::DtaStore::lists);
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
    let (ring, copied) = (lists.ring(), copying(plan)?);
    let read = ring.block_len() as f64 / f64::from(ring.batch) / middle(measured.ns_per_op.clone());
    let included = "block to entries: copied out, sequence number and CRC-32C checked";
    let conditions = Conditions::of("one entry", included)
        .number("entry_bytes", ring.entry_len)
        .number("batch", ring.batch)
        .number("list_mib", ring.list_len() >> 20)
        .ratio("read_gbytes_per_s", read)
        .ratio("copied_gbytes_per_s", copied)
        .ratio("of_copy", read / copied)
        .on_core(&measured);
    Ok(Outcome::new(name, measured.ns_per_op, conditions))
}
