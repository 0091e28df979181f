//! Experiment `dta-polling`: read rate of Append lists by cores, with and without simultaneous collection (DTA, Fig. 8).

use std::{
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use crate::figures::reports::{Reports, append_store};
use dta::{Lists, Next};

use super::polling_parts::Parts;
use crate::figures::{available, failed, unwritten};
use crate::{
    figures::pipeline::Pipeline,
    machine::on_core,
    page::{Comparison, Findings, Outcome as _, Table, fixed, linear, row},
    rows::{Observations, Results, Rows, judgement, listed},
    settings::{Scale, Settings},
    timing::{self, Spread},
};
use terminal::{CliError, units};

/// Numbers of reader cores; the published measurements are from machines with two.
const CORES: [u32; 2] = [1, 2];
const BATCHES: [u16; 3] = [1, 4, 16];
/// Entries of a list if enough memory is available: 64 MiB.
const ENTRIES: u64 = 1 << 24;

pub(crate) fn run(settings: &Settings) -> Result<Findings, CliError> {
    let entries = match settings.scale {
        Scale::Full if available() > 4 << 30 => ENTRIES,
        Scale::Smallest => 1 << 12,
        _ => 1 << 16,
    };
    let columns = "batch,cores,collecting,read_mps,read_mps_min,read_mps_max,read_gbytes_per_s,\
        fraction_of_memcpy,collected_mps";
    let mut table = Table::new("rate", "Entries read by cores and batch", columns);
    let mut parts = Parts::new();
    let copy = copy_rate(settings)?;
    for batch in BATCHES {
        // One list per reader, and one more that is written at the same time.
        let lists = CORES[CORES.len() - 1] + 1;
        let mut pipeline = Pipeline::new(&[append_store(lists, entries, batch)])?;
        fill(&mut pipeline, lists, entries)?;
        if let Some(store) = pipeline.stores().first() {
            parts.measure(settings, store, batch)?;
        }
        let reader = pipeline.stores().first().and_then(dta::DtaStore::lists);
        let reader = reader.ok_or_else(|| failed("no lists"))?;
        for cores in CORES {
            for collecting in [false, true] {
                let (read, collected) = measure(settings, &mut pipeline, &reader, cores, collecting)?;
                let bytes = read.median / f64::from(batch) * reader.ring().block_len() as f64;
                table.push(row![
                    batch,
                    cores,
                    if collecting { "yes" } else { "no" },
                    read.map(|rate| rate / 1e6).cells(1),
                    fixed(bytes / 1e9, 2),
                    fixed(bytes / copy, 2),
                    fixed(collected.median / 1e6, 1),
                ]);
            }
        }
        pipeline.finish();
        pipeline.check()?;
    }
    let lines = [
        ("B = 16", "16", "no"),
        ("B = 16, collecting", "16", "yes"),
        ("B = 4", "4", "no"),
        ("B = 4, collecting", "4", "yes"),
        ("B = 1", "1", "no"),
    ]
    .map(|(name, batch, collecting)| {
        table.line(
            name,
            &[("batch", batch), ("collecting", collecting)],
            "cores",
            RATE,
        )
    });
    let axes = [linear("cores"), linear("entries per second (M)")];
    table.plot("Entries read per second (Fig. 8)", "", axes, lines.into());
    Ok(Findings::new(
        "Followers read full lists with entries of 4 bytes repeatedly, from the oldest batch to the newest. They copy each batch and check its \
         sequence number and CRC-32C. As in the paper, each core has a list and a thread. In a second series, another thread runs translator \
         and responder half of the time; it writes to one more list of the same store.",
        [
            format!(
                "lists of {} entries; rates are per second of a thread on a core, summed over the threads; on a machine with two \
                     cores, these may be hardware threads of one core",
                units::count(entries)
            ),
            format!("a copy of memory in the same run: {:.1} GB/s", copy / 1e9),
            timing::CONDITION.into(),
        ],
        [table, parts.table()],
    ))
}

/// Fills every list once.
fn fill(pipeline: &mut Pipeline, lists: u32, entries: u64) -> Result<(), CliError> {
    let mut reports = Reports::append(16, lists).map_err(unwritten)?;
    let mut left = u64::from(lists) * entries;
    while left > 0 {
        let burst = reports.burst();
        pipeline.translate(burst);
        pipeline.deliver();
        left = left.saturating_sub(16 * 64);
    }
    pipeline.finish();
    pipeline.check()
}

/// Measures entries read and entries collected, both per second.
fn measure(
    settings: &Settings,
    pipeline: &mut Pipeline,
    lists: &Lists,
    cores: u32,
    collecting: bool,
) -> Result<(Spread, Spread), CliError> {
    let mut reads = Vec::new();
    let mut collected = Vec::new();
    for _ in 0..settings.value("runs") {
        let (one, other) = once(timing::span(settings), pipeline, lists, cores, collecting)?;
        reads.push(one);
        collected.push(other);
    }
    Ok((Spread::of(reads), Spread::of(collected)))
}

/// Measures one run: entries read and entries collected, both per second of CPU time.
fn once(
    span: Duration,
    pipeline: &mut Pipeline,
    lists: &Lists,
    cores: u32,
    collecting: bool,
) -> Result<(f64, f64), CliError> {
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let stop = &stop;
        let readers: Vec<_> = (0..cores)
            .map(|list| scope.spawn(move || per_second(|| read(lists, list, stop))))
            .collect();
        let collector =
            collecting.then(|| scope.spawn(move || per_second(|| collect(pipeline, unread(lists), stop))));
        thread::sleep(span);
        // Relaxed: no other data depends on the flag.
        stop.store(true, Ordering::Relaxed);
        let collected = match collector {
            Some(collector) => collector.join().map_err(|_| failed("a thread panicked"))??,
            None => 0.0,
        };
        let rates = readers
            .into_iter()
            .map(|reader| reader.join().map_err(|_| failed("a thread panicked"))?);
        Ok((rates.sum::<Result<f64, CliError>>()?, collected))
    })
}

/// Returns a thread's operations per second of CPU time, which excludes other programs, or of wall time if CPU time is unknown.
pub(super) fn per_second(work: impl FnOnce() -> Result<u64, CliError>) -> Result<f64, CliError> {
    let begun = Instant::now();
    let (count, cpu_time) = on_core(work);
    let cpu_time = if cpu_time == 0 {
        begun.elapsed().as_nanos() as u64
    } else {
        cpu_time
    };
    Ok(count? as f64 * 1e9 / cpu_time.max(1) as f64)
}

/// Returns the last list, which no reader reads.
fn unread(lists: &Lists) -> u32 {
    lists.ids().last().unwrap_or(0)
}

/// Reads a list repeatedly until `stop` is set. Returns the number of entries read.
fn read(lists: &Lists, list: u32, stop: &AtomicBool) -> Result<u64, CliError> {
    // Without pinning, the rate is lower but still valid.
    let _ = nic::time::pin(list as usize);
    let mut entries = 0;
    let mut sum = 0_u64;
    loop {
        let mut follower = lists.from_oldest(list).ok_or_else(|| failed("no such list"))?;
        loop {
            match follower.next() {
                Next::Batch { entries: bytes, .. } => {
                    entries += bytes.len() as u64 / 4;
                    sum = sum.wrapping_add(bytes.first().copied().unwrap_or(0).into());
                }
                Next::Nothing => break,
                other => return Err(failed(format!("an idle list returned {other:?}"))),
            }
            if stop.load(Ordering::Relaxed) {
                std::hint::black_box(sum);
                return Ok(entries);
            }
        }
    }
}

/// Appends to one list half of the time until `stop` is set. Returns the number of entries written.
fn collect(pipeline: &mut Pipeline, list: u32, stop: &AtomicBool) -> Result<u64, CliError> {
    let mut reports = Reports::append_to(16, list).map_err(unwritten)?;
    let before = pipeline.translated().entries.written;
    while !stop.load(Ordering::Relaxed) {
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_millis(1) {
            pipeline.translate(reports.burst());
            pipeline.deliver();
        }
        thread::sleep(begun.elapsed());
    }
    Ok(pipeline.translated().entries.written - before)
}

/// Measures the bytes per second of a memory copy, for comparison in the same run.
fn copy_rate(settings: &Settings) -> Result<f64, CliError> {
    const CHUNK: usize = 1 << 20;
    let len = (settings.scale.scale(256) as usize) * CHUNK;
    let from = vec![1_u8; len];
    let mut to = vec![0_u8; len];
    let mut at = 0;
    let ns = timing::measure(settings, || {
        to[at..at + CHUNK].copy_from_slice(std::hint::black_box(&from[at..at + CHUNK]));
        std::hint::black_box(&mut to);
        at = (at + CHUNK) % len;
        Ok(CHUNK as u64)
    })?;
    Ok(1e9 / ns.median)
}

/// Computes comparisons and remarks from the rows.
pub(crate) fn observe(results: &Results) -> Observations {
    let rows = results.table("rate");
    let parts = results.table("parts");
    let comparisons = vec![
        Comparison::new(
            "entries/s, one core, B = 16",
            "a plot (its lists have no trailer and no check); see the next table",
            rows.fill(&at("16", "1", "no"), "{read_mps~} M/s"),
        ),
        Comparison::new(
            "two cores compared with one, B = 16",
            "near-linear",
            rows.ratio(RATE, &at("16", "2", "no"), &at("16", "1", "no")),
        ),
        Comparison::new(
            "with collection compared with without, one core, B = 16",
            "negligible impact",
            rows.ratio(RATE, &at("16", "1", "yes"), &at("16", "1", "no")),
        ),
        Comparison::new(
            "entries collected at the same time",
            "600 M/s by the NIC",
            rows.fill(&at("16", "1", "yes"), "{collected_mps} M/s by one thread, half of the time"),
        ),
        Comparison::new(
            "reading as the paper does, without trailer and check: entries/s, one core, B = 16",
            "a plot",
            parts.fill(&[("batch", "16")], "{bare_mps~} M/s; hopwise's reader {reader_mps~} M/s"),
        ),
        Comparison::new(
            "work per read (Fig. 8b), B = 16",
            "advance a pointer, wrap around, read the memory",
            parts.fill(
                &[("batch", "16")],
                "pointer {pointer_ns} ns, with read {and_read_ns} ns, with CRC {and_crc_ns} ns, with sequence number and trailer {and_sequence_ns} ns",
            ),
        ),
    ];
    let mut remarks: Vec<String> = listed(
        "Reading with collection compared with without: {}.",
        with_collection(&rows),
    )
    .into_iter()
    .collect();
    remarks.extend(readers(&rows, &parts));
    remarks.extend(
        [
            "rates count the time that readers run on a core. The core that runs collection here, which a NIC would replace, is not included; its effect on caches \
             and memory is. In the paper, a NIC writes to memory and takes no core; here a thread does, and two readers and that thread share two cores.",
            "each batch has a trailer of 16 bytes and a check, even with one entry, so B also determines the speed of reading.",
        ]
        .map(judgement),
    );
    Observations::new(comparisons, remarks)
}

const RATE: &str = "read_mps";

/// Selects the row of this batch and number of cores, with or without collection.
fn at<'a>(batch: &'a str, cores: &'a str, collecting: &'a str) -> [(&'a str, &'a str); 3] {
    [("batch", batch), ("cores", cores), ("collecting", collecting)]
}

/// Describes the effect of collection on reading, by batch and cores.
fn with_collection(rows: &Rows) -> Vec<String> {
    rows.with(&[("collecting", "yes")])
        .iter()
        .map(|row| {
            let without = at(row.text("batch"), row.text("cores"), "no");
            let with = at(row.text("batch"), row.text("cores"), "yes");
            let ratio = rows.ratio(RATE, &with, &without).text();
            row.fill(&format!("B = {{batch}}, {{cores:core}} {ratio}"))
        })
        .collect()
}

/// Warns if the same reader has different rates in both tables.
fn readers(rows: &Rows, parts: &Rows) -> Option<String> {
    let row = rows.find(&at("16", "1", "no"))?;
    let part = parts.find(&[("batch", "16")])?;
    row.spread(RATE).order(part.spread("reader_mps"))?;
    Some(format!(
        "The reader of B = 16 on one core has {} in the first table and {} in the second, which the spread of the runs does not explain. The cause is not \
         known: do not compare the tables.",
        row.fill("{read_mps~} M/s"),
        part.fill("{reader_mps~} M/s")
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_and_the_two_readers_are_those_of_the_rows() {
        fn remarks(reader: &str) -> Vec<String> {
            let rate = "batch,cores,collecting,read_mps,read_mps_min,read_mps_max,collected_mps\n\
                        16,1,no,800,790,810,0\n16,1,yes,400,390,410,124\n";
            let parts = format!("batch,reader_mps,reader_mps_min,reader_mps_max\n16,{reader}\n");
            observe(&Results::parse([("rate", rate), ("parts", &*parts)])).remarks
        }
        let different = remarks("1354,1345,1363");
        assert_eq!(
            different[0],
            "Reading with collection compared with without: B = 16, 1 core 0.50 (0.48 to 0.52)."
        );
        assert!(
            different[1].starts_with(
                "The reader of B = 16 on one core has 800 (790 to 810) M/s in the first table and 1,354 (1,345 to 1,363) M/s in the second"
            ),
            "{different:?}"
        );
        assert_eq!(remarks("820,805,830").len(), different.len() - 1);
    }
}
