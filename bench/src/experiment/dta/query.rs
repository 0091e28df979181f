//! How many queries a second, by copies, and what they spend their time on (Fig. 10).

use std::{hint::black_box, thread, time::Instant};

use dta::{Answer, KeyWriteReader, Policy};
use memory::Region;
use wire::dta::hash::{Family, slot, slots_n};

use super::{speed, timing};
use crate::figures::{
    failed,
    keys::{Key, Keys, Kind, mix},
    slots::Slots,
};
use crate::svg::Plot;
use crate::{
    cases::core_time,
    experiment::{
        Scale,
        page::{Beside, Cell, Findings, Sheet, linear, ours},
    },
};
use terminal::CliError;

const COPIES: [u8; 4] = [1, 2, 3, 4];
/// Keys asked for at once; and keys in the list that is gone through.
const BATCH: usize = 32;
const ASKED: u64 = 1 << 20;
/// Keys in a turn that is timed.
const TURN: usize = 1024;
/// Bytes of a slot with a postcard.
const STRIDE: u64 = 8;
/// Threads.
const CORES: [usize; 2] = [1, 2];

/// What one key takes, ns.
struct Point {
    copies: u8,
    /// Hashes and checksum alone.
    hash: f64,
    /// The slots alone, places known.
    memory: f64,
    /// All of it, in batches.
    batch: f64,
    /// One key after the other, nothing asked for ahead, nothing in the cache.
    single: f64,
    /// The first copy that fits is taken.
    first: f64,
    /// Queries a second of all threads, by [`CORES`].
    rates: [f64; CORES.len()],
}

pub(in super::super) fn run(scale: Scale) -> Result<Findings, CliError> {
    let slots = speed::large(scale) / STRIDE;
    let store = Slots::new(slots, 4, Family::V1)?;
    // An eighth as many keys as slots, four copies each.
    let written = slots / 8;
    let keys = Keys { kind: Kind::RandomTuples, seed: 10 };
    for number in 0..written {
        store.write(keys.key(number).as_ref(), &(number as u32).to_be_bytes(), 4)?;
    }
    // Half of what is asked for is there.
    let asked: Vec<Key> = (0..scale.of(ASKED)).map(|number| keys.key(mix(number) % (2 * written))).collect();
    let points = COPIES
        .map(|copies| measure(scale, &store, &asked, copies))
        .into_iter()
        .collect::<Result<Vec<_>, _>>()?;
    Ok(findings(&points, slots, &format!("{:?}", store.region().pages())))
}

fn measure(scale: Scale, store: &Slots, asked: &[Key], copies: u8) -> Result<Point, CliError> {
    let hash = match copies {
        1 => hashing::<1>(scale, asked),
        2 => hashing::<2>(scale, asked),
        3 => hashing::<3>(scale, asked),
        _ => hashing::<4>(scale, asked),
    }?;
    let (reader, slots) = (store.reader(), store.len());
    let places: Vec<u64> = asked
        .iter()
        .flat_map(|key| wire::dta::hash::hashes(key.as_ref()).slots.into_iter().take(copies.into()))
        .map(|hash| dta::BODY + slot(hash, slots) * STRIDE)
        .collect();
    Ok(Point {
        copies,
        hash,
        memory: loading(scale, store.region(), &places)? * f64::from(copies),
        batch: asking(scale, reader, asked, copies, Policy::Majority)?,
        first: asking(scale, reader, asked, copies, Policy::First)?,
        single: single(scale, reader, asked, copies)?,
        rates: CORES.map(|cores| together(scale, reader, asked, copies, cores)),
    })
}

fn hashing<const N: usize>(scale: Scale, asked: &[Key]) -> Result<f64, CliError> {
    let mut turns = asked.chunks(TURN).cycle();
    timing::of(scale, || {
        let keys = turns.next().unwrap_or_default();
        for key in keys {
            black_box(slots_n::<N>(key.as_ref()));
        }
        Ok(keys.len() as u64)
    })
}

/// Reads places that are known, asked for ahead as the reader does.
fn loading(scale: Scale, region: &Region, places: &[u64]) -> Result<f64, CliError> {
    let mut turns = places.chunks(TURN).cycle();
    timing::of(scale, || {
        let places = turns.next().unwrap_or_default();
        for some in places.chunks(BATCH) {
            some.iter().for_each(|at| region.prefetch(*at));
            for at in some {
                black_box(region.load_u64(*at).unwrap_or(0));
            }
        }
        Ok(places.len() as u64)
    })
}

fn asking(
    scale: Scale,
    reader: &KeyWriteReader,
    asked: &[Key],
    copies: u8,
    policy: Policy,
) -> Result<f64, CliError> {
    let (mut out, mut answers) = ([0; BATCH * 4], [Answer::Empty; BATCH]);
    let mut turns = asked.chunks(TURN).cycle();
    timing::of(scale, || {
        let keys = turns.next().unwrap_or_default();
        for some in keys.chunks(BATCH) {
            let answered = reader.get_batch(some, policy, copies, &mut out, &mut answers);
            answered.map_err(|error| failed(format!("{error:?}")))?;
            black_box(&answers);
        }
        Ok(keys.len() as u64)
    })
}

/// One key at a time: the next key depends on the answer, so that the processor cannot work ahead.
fn single(scale: Scale, reader: &KeyWriteReader, asked: &[Key], copies: u8) -> Result<f64, CliError> {
    let (mut out, mut at) = ([0; 4], 0_usize);
    timing::of(scale, || {
        for _ in 0..128 {
            let key = asked[at % asked.len()];
            let answer = reader.get(key.as_ref(), Policy::Majority, copies, &mut out);
            let answer = answer.map_err(|error| failed(format!("{error:?}")))?;
            let found_it = usize::from(matches!(answer, Answer::Found { .. }));
            at += 7919 + black_box(found_it);
        }
        Ok(128)
    })
}

/// Queries a second of several threads, each by its time on a core: what other programs take of the cores is left out.
fn together(scale: Scale, reader: &KeyWriteReader, asked: &[Key], copies: u8, cores: usize) -> f64 {
    let rounds = scale.of(10);
    let ask = |core: usize| {
        // Where it cannot be pinned the figures are worse, not wrong.
        let _ = nic::time::pin(core);
        let (mut out, mut answers) = ([0; BATCH * 4], [Answer::Empty; BATCH]);
        let (begun, before) = (Instant::now(), core_time());
        for _ in 0..rounds {
            for some in asked.chunks(BATCH) {
                // What can be wrong with a query was asked before.
                let _ = reader.get_batch(some, Policy::Majority, copies, &mut out, &mut answers);
                black_box(&answers);
            }
        }
        let went_by = begun.elapsed().as_nanos() as u64;
        let worked = core_time().zip(before).map_or(went_by, |(after, before)| after - before);
        (rounds * asked.len() as u64) as f64 * 1e9 / worked.max(1) as f64
    };
    thread::scope(|scope| {
        let threads: Vec<_> = (0..cores).map(|core| scope.spawn(move || ask(core))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap_or(f64::NAN)).sum()
    })
}

#[expect(clippy::too_many_lines, reason = "the words and columns of one page, in their order")]
fn findings(points: &[Point], slots: u64, pages: &str) -> Findings {
    let at = |copies: u8, of: fn(&Point) -> f64| {
        points.iter().find(|one| one.copies == copies).map_or(f64::NAN, of)
    };
    let line = |of: fn(&Point) -> f64| points.iter().map(|one| (f64::from(one.copies), of(one))).collect();
    let row = |one: &Point| {
        let mut row = vec![u64::from(one.copies).into()];
        let rest = (one.batch - one.hash - one.memory).max(0.0);
        row.extend(
            [one.batch, one.hash, one.memory, rest, one.first, one.single].map(|ns| Cell::Figure(ns, 1)),
        );
        row.extend(one.rates.map(|rate| Cell::Figure(rate / 1e6, 2)));
        row
    };
    let share = |copies| format!("{:.0} %", 100.0 * at(copies, |one| one.hash / one.batch));
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
        beside: vec![
            Beside::new("queries/s, one core, N = 1, 2, 4", "a plot; the artifact\u{2019}s loop, compiled here for 4-byte keys: 8.1 M (first copy answers), 5.8 M (both read)", format!("{:.1} M, {:.1} M, {:.1} M", 1e3 / at(1, |one| one.batch), 1e3 / at(2, |one| one.batch), 1e3 / at(4, |one| one.batch))),
            Beside::new("largest part of the time", "CRC hashes", format!("N = 2: hashing {}, the rest is memory latency and comparison", share(2))),
            Beside::new("two threads compared with one, N = 2", "near-linear", format!("{:.2} (two threads of one core)", at(2, |one| one.rates[1] / one.rates[0]))),
            Beside::new("N = 2, in batches / a single cold key", "", format!("{:.0} ns / {:.0} ns", at(2, |one| one.batch), at(2, |one| one.single))),
            Beside::new("wrong answers", "none seen", "none (see dta-answers)"),
        ],
        remarks: vec![
            "One pass over a key computes all five CRCs, so hashing no longer takes most of the time, as it did with a general CRC library. Memory \
             latency does; prefetching a batch's slots before the first read hides most of it."
                .into(),
            "The policy `first` reads a second slot only if the first has no answer.".into(),
        ],
        sheets: vec![Sheet {
            name: "rate",
            about: "Time of a query and its parts, by copies".into(),
            columns: vec![
                "n", "batch_ns", "hash_ns", "memory_ns", "rest_ns", "first_ns", "single_ns", "one_thread_mps", "two_threads_mps",
            ],
            rows: points.iter().map(row).collect(),
            plots: vec![
                Plot {
                    note: "in batches, policy majority".into(),
                    title: "Queries per second (Fig. 10a)".into(),
                    x: linear("copies"),
                    y: linear("queries per second (M)"),
                    series: vec![
                        ours("one thread", line(|one| one.rates[0] / 1e6)),
                        ours("two threads", line(|one| one.rates[1] / 1e6)),
                    ],
                },
                Plot {
                    note: "one thread; parts alone".into(),
                    title: "What a query takes (Fig. 10b)".into(),
                    x: linear("copies"),
                    y: linear("per key (ns)"),
                    series: vec![
                        ours("all, in batches", line(|one| one.batch)),
                        ours("hashes and checksum", line(|one| one.hash)),
                        ours("slots", line(|one| one.memory)),
                    ],
                },
            ],
        }],
    }
}
