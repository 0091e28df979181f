//! Queries per second, by copies, and where they spend their time (Fig. 10).

use std::{hint::black_box, thread, time::Instant};

use dta::{Answer, KeyWriteReader, Policy};
use memory::Region;
use wire::dta::hash::{Family, slot, slots_n};

use super::speed;
use crate::figures::{
    failed,
    keys::{Key, Keys, Kind, mix},
    slots::Slots,
};
use crate::svg::Plot;
use crate::{
    cases::core_time,
    experiment::{
        page::{Cell, Comparison, Findings, Table, line_series, linear},
        rows::{Observations, Results, Row, Rows},
        settings::Settings,
        timing::{self, Spread},
    },
};
use terminal::CliError;

const COPIES: [u8; 4] = [1, 2, 3, 4];
/// Keys per query batch; and keys in the list that is queried repeatedly.
const BATCH: usize = 32;
const KEYS: u64 = 1 << 20;
/// Keys per timed round.
const ROUND: usize = 1024;
/// Bytes of a slot with a postcard.
const STRIDE: u64 = 8;
/// Threads.
const CORES: [usize; 2] = [1, 2];

/// Time per key, ns.
struct Point {
    copies: u8,
    /// Hashes and checksum only.
    hash: f64,
    /// Reading the slots only, at known addresses.
    memory: f64,
    /// Complete query, in batches.
    batch: f64,
    /// Fastest and slowest run of it.
    batch_ends: (f64, f64),
    /// Complete query, one key at a time, without prefetch, slots not in the cache.
    single: f64,
    /// Complete query with policy `first`: the first copy with a matching checksum.
    first: f64,
    /// Queries per second of all threads, by [`CORES`].
    rates: [f64; CORES.len()],
}

pub(in super::super) fn run(settings: &Settings) -> Result<Findings, CliError> {
    let slots = speed::large(settings.scale) / STRIDE;
    let store = Slots::new(slots, 4, Family::V1)?;
    // One key for every eight slots, four copies each.
    let written = slots / 8;
    let keys = Keys { kind: Kind::RandomTuples, seed: 10 };
    for number in 0..written {
        store.write(keys.key(number).as_ref(), &(number as u32).to_be_bytes(), 4)?;
    }
    // Half of the queried keys exist.
    let keys: Vec<Key> =
        (0..settings.scale.of(KEYS)).map(|number| keys.key(mix(number) % (2 * written))).collect();
    let points = COPIES
        .map(|copies| measure(settings, &store, &keys, copies))
        .into_iter()
        .collect::<Result<Vec<_>, _>>()?;
    Ok(findings(&points, slots, &format!("{:?}", store.region().pages())))
}

fn measure(settings: &Settings, store: &Slots, keys: &[Key], copies: u8) -> Result<Point, CliError> {
    let hash = match copies {
        1 => hashing::<1>(settings, keys),
        2 => hashing::<2>(settings, keys),
        3 => hashing::<3>(settings, keys),
        _ => hashing::<4>(settings, keys),
    }?;
    let (reader, slots) = (store.reader(), store.len());
    let addresses: Vec<u64> = keys
        .iter()
        .flat_map(|key| wire::dta::hash::hashes(key.as_ref()).slots.into_iter().take(copies.into()))
        .map(|hash| dta::BODY + slot(hash, slots) * STRIDE)
        .collect();
    let batch = querying(settings, reader, keys, copies, Policy::Majority)?;
    Ok(Point {
        copies,
        hash: hash.median,
        memory: loading(settings, store.region(), &addresses)?.median * f64::from(copies),
        batch: batch.median,
        batch_ends: (batch.min, batch.max),
        first: querying(settings, reader, keys, copies, Policy::First)?.median,
        single: single(settings, reader, keys, copies)?.median,
        rates: CORES.map(|cores| parallel(settings, reader, keys, copies, cores)),
    })
}

fn hashing<const N: usize>(settings: &Settings, keys: &[Key]) -> Result<Spread, CliError> {
    let mut rounds_of_keys = keys.chunks(ROUND).cycle();
    timing::of(settings, || {
        let keys = rounds_of_keys.next().unwrap_or_default();
        for key in keys {
            black_box(slots_n::<N>(key.as_ref()));
        }
        Ok(keys.len() as u64)
    })
}

/// Reads slots at known addresses, with prefetch as in the reader.
fn loading(settings: &Settings, region: &Region, addresses: &[u64]) -> Result<Spread, CliError> {
    let mut rounds_of_keys = addresses.chunks(ROUND).cycle();
    timing::of(settings, || {
        let addresses = rounds_of_keys.next().unwrap_or_default();
        for some in addresses.chunks(BATCH) {
            some.iter().for_each(|at| region.prefetch(*at));
            for at in some {
                black_box(region.load_u64(*at).unwrap_or(0));
            }
        }
        Ok(addresses.len() as u64)
    })
}

fn querying(
    settings: &Settings,
    reader: &KeyWriteReader,
    keys: &[Key],
    copies: u8,
    policy: Policy,
) -> Result<Spread, CliError> {
    let (mut out, mut answers) = ([0; BATCH * 4], [Answer::Empty; BATCH]);
    let mut rounds_of_keys = keys.chunks(ROUND).cycle();
    timing::of(settings, || {
        let keys = rounds_of_keys.next().unwrap_or_default();
        for some in keys.chunks(BATCH) {
            let answered = reader.get_batch(some, policy, copies, &mut out, &mut answers);
            answered.map_err(|error| failed(format!("{error:?}")))?;
            black_box(&answers);
        }
        Ok(keys.len() as u64)
    })
}

/// One key at a time: the next key depends on the answer, which prevents speculative execution.
fn single(
    settings: &Settings,
    reader: &KeyWriteReader,
    keys: &[Key],
    copies: u8,
) -> Result<Spread, CliError> {
    let (mut out, mut at) = ([0; 4], 0_usize);
    timing::of(settings, || {
        for _ in 0..128 {
            let key = keys[at % keys.len()];
            let answer = reader.get(key.as_ref(), Policy::Majority, copies, &mut out);
            let answer = answer.map_err(|error| failed(format!("{error:?}")))?;
            let found_it = usize::from(matches!(answer, Answer::Found { .. }));
            at += 7919 + black_box(found_it);
        }
        Ok(128)
    })
}

/// Queries per second of several threads, by CPU time; time that other programs use the cores does not count.
fn parallel(settings: &Settings, reader: &KeyWriteReader, keys: &[Key], copies: u8, cores: usize) -> f64 {
    let rounds = settings.scale.of(10);
    let query = |core: usize| {
        // Failing to pin makes the figures worse, not wrong.
        let _ = nic::time::pin(core);
        let (mut out, mut answers) = ([0; BATCH * 4], [Answer::Empty; BATCH]);
        let (begun, before) = (Instant::now(), core_time());
        for _ in 0..rounds {
            for some in keys.chunks(BATCH) {
                // The batch runs above have checked these queries for errors.
                let _ = reader.get_batch(some, Policy::Majority, copies, &mut out, &mut answers);
                black_box(&answers);
            }
        }
        let elapsed = begun.elapsed().as_nanos() as u64;
        let cpu_time = core_time().zip(before).map_or(elapsed, |(after, before)| after - before);
        (rounds * keys.len() as u64) as f64 * 1e9 / cpu_time.max(1) as f64
    };
    thread::scope(|scope| {
        let threads: Vec<_> = (0..cores).map(|core| scope.spawn(move || query(core))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap_or(f64::NAN)).sum()
    })
}

#[expect(clippy::too_many_lines, reason = "the words and columns of one page, in their order")]
fn findings(points: &[Point], slots: u64, pages: &str) -> Findings {
    let line = |of: fn(&Point) -> f64| points.iter().map(|one| (f64::from(one.copies), of(one))).collect();
    let row = |one: &Point| {
        let mut row = vec![u64::from(one.copies).into()];
        let rest = (one.batch - one.hash - one.memory).max(0.0);
        row.extend(
            [
                one.batch,
                one.batch_ends.0,
                one.batch_ends.1,
                one.hash,
                one.memory,
                rest,
                one.first,
                one.single,
            ]
            .map(|ns| Cell::Figure(ns, 1)),
        );
        row.extend(one.rates.map(|rate| Cell::Figure(rate / 1e6, 2)));
        row
    };
    Findings {
        method: "A store of postcards (4 bytes of data, 4 of checksum) holds random 5-tuples, one for every eight slots. The reader of `hopwise get` \
                 queries random keys, half of which are in the store. It reads and compares all N slots (policy `majority`, the paper's worst case). \
                 Hashing alone, and reading of known slots alone, are timed separately. In batches they overlap, so the parts can add up to more than \
                 the total."
            .into(),
        conditions: vec![
            format!("{slots} slots of 8 bytes ({} MiB), pages: {pages}, 13-byte keys, batches of {BATCH}", (slots * STRIDE) >> 20),
            timing::condition(),
            "single: one key at a time, and each answer determines the next key; two threads share the two hardware threads of one core if the machine \
             has no more"
                .into(),
        ],
        tables: vec![Table {
            name: "rate",
            about: "Time of a query and its parts, by copies".into(),
            columns: vec![
                "n", "batch_ns", "batch_ns_min", "batch_ns_max", "hash_ns", "memory_ns", "other_ns", "first_ns", "single_ns", "one_thread_mps", "two_threads_mps",
            ],
            rows: points.iter().map(row).collect(),
            plots: vec![
                Plot {
                    note: "in batches, policy majority".into(),
                    title: "Queries per second (Fig. 10a)".into(),
                    x: linear("copies"),
                    y: linear("queries per second (M)"),
                    series: vec![
                        line_series("one thread", line(|one| one.rates[0] / 1e6)),
                        line_series("two threads", line(|one| one.rates[1] / 1e6)),
                    ],
                },
                Plot {
                    note: "one thread; parts alone".into(),
                    title: "Time per query (Fig. 10b)".into(),
                    x: linear("copies"),
                    y: linear("per key (ns)"),
                    series: vec![
                        line_series("all, in batches", line(|one| one.batch)),
                        line_series("hashes and checksum", line(|one| one.hash)),
                        line_series("slots", line(|one| one.memory)),
                    ],
                },
            ],
        }],
        ..Findings::default()
    }
}

/// Computes comparisons and remarks from the rows.
pub(in super::super) fn observe(results: &Results) -> Observations {
    let rows = results.table("rate");
    let at = |copies: &str, column: &str| rows.number(&[("n", copies)], column);
    let million = |copies| format!("{:.1} M", 1e3 / at(copies, "batch_ns"));
    let comparisons = vec![
        Comparison::new(
            "queries/s, one core, N = 1, 2, 4",
            "a plot; the artifact\u{2019}s loop, compiled here for 4-byte keys: 8.1 M (first copy answers), 5.8 M (both read)",
            ["1", "2", "4"].map(million).join(", "),
        ),
        Comparison::new(
            "largest part of the time",
            "CRC hashes",
            rows.find(&[("n", "2")]).map_or("not run".into(), largest_part),
        ),
        Comparison::new(
            "two threads compared with one, N = 2",
            "near-linear",
            format!("{:.2}", at("2", "two_threads_mps") / at("2", "one_thread_mps")),
        ),
        Comparison::new(
            "N = 2, in batches / a single cold key",
            "",
            format!("{:.0} ns / {:.0} ns", at("2", "batch_ns"), at("2", "single_ns")),
        ),
        Comparison::new("wrong answers", "none seen", "none (see dta-answers)"),
    ];
    let mut remarks: Vec<String> =
        rows.iter().map(|row| format!("Largest part at {}.", largest_part(row))).collect();
    remarks.push(batches(&rows));
    remarks.extend(threads(&rows));
    remarks.push("The policy `first` reads a second slot only if the first has no answer.".into());
    Observations { comparisons: Some(comparisons), remarks }
}

/// The part that takes most of a query in a batch.
fn largest_part(row: Row<'_>) -> String {
    let parts = [
        ("hash_ns", "hashing"),
        ("memory_ns", "reading known slots"),
        ("other_ns", "the rest (neither of the two)"),
    ];
    let part =
        parts.into_iter().max_by(|a, b| row.number(a.0).total_cmp(&row.number(b.0))).unwrap_or(parts[0]);
    let share = 100.0 * row.number(part.0) / row.number("batch_ns");
    format!(
        "N = {}: {}, {} of {} ns ({share:.0} %)",
        row.text("n"),
        part.1,
        row.text(part.0),
        row.text("batch_ns")
    )
}

/// Compares queries in batches, with prefetch, with single ones.
fn batches(rows: &Rows) -> String {
    let is_faster = |row: &Row<'_>| row.number("batch_ns") < row.number("single_ns");
    let texts = rows.iter().map(|row| {
        let than = if is_faster(&row) { "faster" } else { "not faster" };
        format!("N = {}: {} and {} ns ({than})", row.text("n"), row.text("batch_ns"), row.text("single_ns"))
    });
    let verdict = if rows.iter().all(|row| is_faster(&row)) {
        "Batches are faster at every N"
    } else {
        "These rows do not show that prefetching a batch hides memory latency"
    };
    format!(
        "Batches with prefetch and single cold keys: {}. {verdict}.",
        texts.collect::<Vec<_>>().join("; ")
    )
}

/// Names ratios of two threads to one above 2, which two threads cannot have.
fn threads(rows: &Rows) -> Option<String> {
    let ratio = |row: &Row<'_>| row.number("two_threads_mps") / row.number("one_thread_mps");
    let above: Vec<String> = rows
        .iter()
        .filter(|row| ratio(row) > 2.0)
        .map(|row| format!("N = {}: {:.2}", row.text("n"), ratio(&row)))
        .collect();
    (!above.is_empty()).then(|| {
        format!("Two threads have more than twice the rate of one ({}). That is not plausible: do not quote the rates by threads.", above.join("; "))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    #[test]
    fn parts_batches_and_threads_are_those_of_the_rows() {
        let head = "n,batch_ns,hash_ns,memory_ns,other_ns,single_ns,one_thread_mps,two_threads_mps\n";
        let remarks = |row: &str| observe(&Results::parse([("rate", &*format!("{head}{row}"))])).remarks;
        assert_eq!(
            remarks("2,100.0,70.0,20.0,10.0,200.0,10.00,18.00\n"),
            [
                "Largest part at N = 2: hashing, 70.0 of 100.0 ns (70 %).",
                "Batches with prefetch and single cold keys: N = 2: 100.0 and 200.0 ns (faster). Batches are faster at every N.",
                "The policy `first` reads a second slot only if the first has no answer."
            ]
        );
        assert_eq!(
            remarks("2,98.2,7.9,33.8,56.4,90.0,10.00,21.00\n")[..3],
            [
                "Largest part at N = 2: the rest (neither of the two), 56.4 of 98.2 ns (57 %).",
                "Batches with prefetch and single cold keys: N = 2: 98.2 and 90.0 ns (not faster). These rows do not show that prefetching a batch hides \
                 memory latency.",
                "Two threads have more than twice the rate of one (N = 2: 2.10). That is not plausible: do not quote the rates by threads."
            ]
        );
    }
}
