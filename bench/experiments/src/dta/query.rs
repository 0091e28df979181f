//! Experiment `dta-query`: Key-Write queries per second by copies N, and time of hashing and of reading slots (DTA, Fig. 10).

use std::{cmp::Ordering, hint::black_box, thread};

use dta::{Answer, KeyWriteReader, Policy};
use memory::Region;
use wire::dta::hash::{Family, slot, slots_n};

use super::{polling, speed};
use crate::figures::{
    failed,
    keys::{Key, Keys, Kind, mix},
    slots::Slots,
};
use crate::{
    page::{Cell, Comparison, Findings, Table, fixed, linear, row},
    rows::{Observations, Results, Row, Rows, listed},
    settings::Settings,
    timing::{self, Spread},
};
use terminal::{CliError, units};

const COPIES: [u8; 4] = [1, 2, 3, 4];
/// Keys per query batch, and number of different keys that are queried repeatedly.
const BATCH: usize = 32;
const KEYS: u64 = 1 << 20;
/// Keys per timed round.
const ROUND: usize = 1024;
/// Bytes of a slot: 4 of checksum, 4 of data (one postcard).
const STRIDE: u64 = 8;
const CORES: [usize; 2] = [1, 2];

pub(crate) fn run(settings: &Settings) -> Result<Findings, CliError> {
    let slots = speed::large(settings.scale) / STRIDE;
    let store = Slots::new(slots, 4, Family::V1)?;
    // One key for every eight slots, with four copies each.
    let written = slots / 8;
    let keys = Keys {
        kind: Kind::RandomTuples,
        seed: 10,
    };
    for number in 0..written {
        store.write(keys.key(number).as_ref(), &(number as u32).to_be_bytes(), 4)?;
    }
    // Numbers up to twice those written, so half of the queried keys exist.
    let keys: Vec<Key> = (0..settings.scale.scale(KEYS))
        .map(|number| keys.key(mix(number) % (2 * written)))
        .collect();
    let columns = "n,batch_ns,batch_ns_min,batch_ns_max,hash_ns,memory_ns,other_ns,first_ns,\
        single_ns,single_ns_min,single_ns_max,one_thread_mps,two_threads_mps";
    let mut table = Table::new("rate", "Time of a query and its parts, by copies", columns);
    for copies in COPIES {
        table.push(measure(settings, &store, &keys, copies)?);
    }
    let lines = [
        ("one thread", "one_thread_mps"),
        ("two threads", "two_threads_mps"),
    ]
    .map(|(name, column)| table.line(name, &[], "n", column));
    let axes = [linear("copies"), linear("queries per second (M)")];
    let note = "in batches, policy majority";
    table.plot("Queries per second (Fig. 10a)", note, axes, lines.into());
    let lines = [
        ("all, in batches", "batch_ns"),
        ("hashes and checksum", "hash_ns"),
        ("slots", "memory_ns"),
    ]
    .map(|(name, column)| table.line(name, &[], "n", column));
    let axes = [linear("copies"), linear("per key (ns)")];
    table.plot(
        "Time per query (Fig. 10b)",
        "one thread; parts alone",
        axes,
        lines.into(),
    );
    Ok(Findings::new(
        "A store of postcards (4 bytes of data, 4 of checksum) holds random 5-tuples, one for every eight slots. The reader of `hopwise get` \
         queries random keys, half of which are in the store. It reads and compares all N slots (policy `majority`, the paper's worst case). \
         Hashing alone, and reading of known slots alone, are timed separately. In batches they overlap, so the parts can add up to more than \
         the total.",
        [
            format!(
                "{} slots of 8 bytes ({} MiB), pages: {:?}, 13-byte keys, batches of {BATCH}",
                units::count(slots),
                units::count((slots * STRIDE) >> 20),
                store.region().pages()
            ),
            timing::CONDITION.into(),
            "single: one key at a time, and each answer determines the next key; two threads share the two hardware threads of one core if the machine \
             has no more"
                .into(),
        ],
        [table],
    ))
}

/// Measures one row of the table: the query and its parts for a number of copies.
fn measure(settings: &Settings, store: &Slots, keys: &[Key], copies: u8) -> Result<Vec<Cell>, CliError> {
    let hash = match copies {
        1 => hashing::<1>(settings, keys),
        2 => hashing::<2>(settings, keys),
        3 => hashing::<3>(settings, keys),
        _ => hashing::<4>(settings, keys),
    }?
    .median;
    let reader = store.reader();
    let slots = store.slots();
    let addresses: Vec<u64> = keys
        .iter()
        .flat_map(|key| {
            wire::dta::hash::hashes(key.as_ref())
                .slots
                .into_iter()
                .take(copies.into())
        })
        .map(|hash| dta::BODY + slot(hash, slots) * STRIDE)
        .collect();
    // `loading` gives the time per slot; a query reads one slot per copy.
    let batch = querying(settings, reader, keys, copies, Policy::Majority)?;
    let memory = loading(settings, store.region(), &addresses)?.median * f64::from(copies);
    let rest = (batch.median - hash - memory).max(0.0);
    let first = querying(settings, reader, keys, copies, Policy::First)?.median;
    let single = single(settings, reader, keys, copies)?;
    let rates = CORES.map(|cores| parallel(settings, reader, keys, copies, cores));
    Ok(row![
        copies,
        batch.cells(1),
        [hash, memory, rest, first].map(|ns| fixed(ns, 1)),
        single.cells(1),
        rates.map(|rate| fixed(rate / 1e6, 2)),
    ])
}

fn hashing<const N: usize>(settings: &Settings, keys: &[Key]) -> Result<Spread, CliError> {
    let mut rounds_of_keys = keys.chunks(ROUND).cycle();
    timing::measure(settings, || {
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
    timing::measure(settings, || {
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
    let mut out = [0; BATCH * 4];
    let mut answers = [Answer::Empty; BATCH];
    let mut rounds_of_keys = keys.chunks(ROUND).cycle();
    timing::measure(settings, || {
        let keys = rounds_of_keys.next().unwrap_or_default();
        for some in keys.chunks(BATCH) {
            let answered = reader.get_batch(some, policy, copies, &mut out, &mut answers);
            answered.map_err(|error| failed(format!("{error:?}")))?;
            black_box(&answers);
        }
        Ok(keys.len() as u64)
    })
}

/// Measures one key at a time. The next key depends on the answer, so that queries cannot overlap by speculative execution.
fn single(
    settings: &Settings,
    reader: &KeyWriteReader,
    keys: &[Key],
    copies: u8,
) -> Result<Spread, CliError> {
    let mut out = [0; 4];
    let mut at = 0_usize;
    timing::measure(settings, || {
        for _ in 0..128 {
            let key = keys[at % keys.len()];
            let answer = reader.get(key.as_ref(), Policy::Majority, copies, &mut out);
            let answer = answer.map_err(|error| failed(format!("{error:?}")))?;
            let found_it = usize::from(matches!(answer, Answer::Found { .. }));
            // A prime stride, so that the keys are cold.
            at += 7919 + black_box(found_it);
        }
        Ok(128)
    })
}

/// Measures the queries per second of several threads, by CPU time, so that time taken by other programs does not count.
fn parallel(settings: &Settings, reader: &KeyWriteReader, keys: &[Key], copies: u8, cores: usize) -> f64 {
    let rounds = settings.scale.scale(10);
    thread::scope(|scope| {
        let threads: Vec<_> = (0..cores)
            .map(|core| {
                scope.spawn(move || {
                    // Without pinning, the figures are lower but still valid.
                    let _ = nic::time::pin(core);
                    let mut out = [0; BATCH * 4];
                    let mut answers = [Answer::Empty; BATCH];
                    polling::per_second(|| {
                        for some in (0..rounds).flat_map(|_| keys.chunks(BATCH)) {
                            // `querying` has already run these queries and reported errors.
                            let _ = reader.get_batch(some, Policy::Majority, copies, &mut out, &mut answers);
                            black_box(&answers);
                        }
                        Ok(rounds * keys.len() as u64)
                    })
                    .unwrap_or(f64::NAN)
                })
            })
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap_or(f64::NAN))
            .sum()
    })
}

/// Computes comparisons and remarks from the rows.
pub(crate) fn observe(results: &Results) -> Observations {
    let rows = results.table("rate");
    let two = rows.find(&[("n", "2")]);
    let comparisons = vec![
        Comparison::new(
            "queries/s, one core, N = 1, 2, 4",
            "a plot; the artifact\u{2019}s loop, compiled here for 4-byte keys: 8.1 M (first copy answers), 5.8 M (both read)",
            queries(&rows),
        ),
        Comparison::new(
            "largest part of the time, N = 2",
            "CRC hashes",
            two.map(largest_part),
        ),
        Comparison::new(
            "two threads compared with one, N = 2",
            "near-linear",
            two.map(|row| threads(&row).unwrap_or_else(|| "not plausible: see the remark".into())),
        ),
        Comparison::new(
            "N = 2, in batches / a single cold key",
            "",
            rows.fill(&[("n", "2")], "{batch_ns~} ns / {single_ns~} ns"),
        ),
        Comparison::new(
            "wrong answers",
            "none seen",
            "not counted here: see [dta-answers](dta-answers.md)",
        ),
    ];
    let mut remarks: Vec<String> = rows
        .iter()
        .map(|row| row.fill(&format!("Largest part at N = {{n}}: {}.", largest_part(row))))
        .collect();
    remarks.extend(batches(&rows));
    remarks.extend(listed(
        "Rates of one thread and of two at {}: two threads cannot have more than twice the rate of one. Do not quote the rates by threads.",
        rows.iter().filter(|row| threads(row).is_none()).map(|row| row.fill("N = {n}: {one_thread_mps} and {two_threads_mps} M/s")),
    ));
    Observations::new(comparisons, remarks)
}

/// Lists the queries per second of one core, in batches, for N = 1, 2 and 4.
fn queries(rows: &Rows) -> Option<String> {
    let rates = rows
        .iter()
        .filter(|row| row.text("n") != "3")
        .map(|row| format!("{} M", row.spread("batch_ns").map(|ns| 1e3 / ns).text(1)));
    listed("{}", rates)
}

/// Says which part of a batched query takes most time, if the spread allows it: hashing, reading slots, or the remaining time.
fn largest_part(row: Row<'_>) -> String {
    let hash = row.number("hash_ns");
    let memory = row.number("memory_ns");
    let rest = row.spread("batch_ns").map(|ns| ns - hash - memory);
    let largest = hash.max(memory);
    let name = if hash > memory {
        "hashing"
    } else {
        "reading known slots"
    };
    let of = row.fill("of {batch_ns~} ns");
    match rest.order(Spread {
        median: largest,
        min: largest,
        max: largest,
    }) {
        Some(Ordering::Greater) => {
            format!(
                "the rest (neither hashing nor reading known slots), {} ns {of}",
                rest.text(1)
            )
        }
        Some(_) => format!("{name}, {largest:.1} ns {of}"),
        None => format!(
            "not decided by the runs: {name} {largest:.1} ns, the rest {} ns {of}",
            rest.text(1)
        ),
    }
}

/// Compares queries in batches, which prefetch, with single queries.
fn batches(rows: &Rows) -> Option<String> {
    let texts = rows.iter().map(|row| {
        let verdict = match row.spread("batch_ns").order(row.spread("single_ns")) {
            Some(Ordering::Less) => "faster in batches",
            Some(_) => "slower in batches",
            None => "not distinguished",
        };
        row.fill(&format!(
            "N = {{n}}: {{batch_ns~}} and {{single_ns~}} ns, {verdict}"
        ))
    });
    listed(
        "Queries in batches with prefetch, and of single cold keys: {}.",
        texts,
    )
}

/// Returns the ratio of two threads to one, without spread; `None` if it is above 2, which is impossible.
fn threads(row: &Row<'_>) -> Option<String> {
    let ratio = row.number("two_threads_mps") / row.number("one_thread_mps");
    (ratio <= 2.0).then(|| format!("{ratio:.2} (measured once)"))
}

#[cfg(test)]
mod tests {
    use super::*;
    #[test]
    fn parts_batches_and_threads_are_those_of_the_rows() {
        const HEAD: &str = "n,batch_ns,batch_ns_min,batch_ns_max,hash_ns,memory_ns,single_ns,single_ns_min,single_ns_max,one_thread_mps,two_threads_mps\n";
        fn observed(row: &str) -> Observations {
            observe(&Results::parse([("rate", &*format!("{HEAD}{row}"))]))
        }
        assert_eq!(
            observed("2,100.0,99.0,101.0,70.0,20.0,200.0,190.0,210.0,10.00,18.00\n").remarks,
            [
                "Largest part at N = 2: hashing, 70.0 ns of 100.0 (99.0 to 101.0) ns.",
                "Queries in batches with prefetch, and of single cold keys: N = 2: 100.0 (99.0 to 101.0) and 200.0 (190.0 to 210.0) ns, faster in batches."
            ]
        );
        let disturbed = observed("2,100.0,80.0,110.0,10.0,40.0,90.0,85.0,95.0,10.00,21.00\n");
        assert_eq!(
            disturbed.remarks,
            [
                "Largest part at N = 2: not decided by the runs: reading known slots 40.0 ns, the rest 50.0 (30.0 to 60.0) ns of 100.0 (80.0 to 110.0) ns.",
                "Queries in batches with prefetch, and of single cold keys: N = 2: 100.0 (80.0 to 110.0) and 90.0 (85.0 to 95.0) ns, not distinguished.",
                "Rates of one thread and of two at N = 2: 10.00 and 21.00 M/s: two threads cannot have more than twice the rate of one. Do not quote the rates \
                 by threads."
            ]
        );
        assert_eq!(
            disturbed.comparisons.unwrap()[2].hopwise,
            "not plausible: see the remark"
        );
        let rest = observed("2,100.0,95.0,105.0,10.0,30.0,90.0,85.0,94.0,10.00,18.00\n").remarks;
        assert!(
            rest[0].contains("the rest (neither hashing nor reading known slots), 60.0 (55.0 to 65.0) ns"),
            "{rest:?}"
        );
        assert!(rest[1].ends_with("slower in batches."), "{rest:?}");
    }
}
