//! Experiment `dta-append`: entries per second of Append, by batch size B, number of lists and list length (DTA, Fig. 7).
//! Translator and responder run in one process, on one core, without a network.

use crate::figures::reports::{Reports, append_store};

use super::{
    key_write,
    speed::{self, Speed},
};
use crate::figures::unwritten;
use crate::{
    figures::pipeline::Pipeline,
    page::{Comparison, Findings, Outcome as _, Table, fixed, linear, row},
    rows::{Observations, Results, Row, Rows, extremes, judgement, listed},
    settings::Settings,
    timing,
};
use terminal::CliError;

const BATCHES: [u16; 5] = [1, 2, 4, 8, 16];
const LISTS: [u32; 4] = [1, 4, 16, 255];
/// Ring size in entries of each list, in the first table.
const ENTRIES: u64 = 1 << 16;
/// Ring sizes in entries, in the second table.
const SIZES: [u64; 4] = [1 << 8, 1 << 12, 1 << 16, 1 << 22];
/// Entries in one report. The paper's generator also packs several entries into a report, because its packet rate is limited.
const COUNTS: [usize; 2] = [1, 16];

/// Returns the entries per second at which hopwise's frames saturate the paper's NIC or link, in reports of `count` entries.
fn nic(speed: &Speed, count: f64) -> f64 {
    key_write::nic(speed.frames / count, speed.bytes / count)
}

/// Returns the number of reports after which every list has written whole batches, so that rounds of this length do equal work.
pub(super) fn cycle(batch: u16, lists: u32, count: usize) -> u64 {
    (u64::from(batch) * u64::from(lists))
        .div_ceil(count as u64)
        .max(lists.into())
}

/// Measures and adds one row: batch size, number of lists, entries per list (`entries`) and per report (`count`).
fn measure(
    settings: &Settings,
    table: &mut Table,
    batch: u16,
    lists: u32,
    entries: u64,
    count: usize,
) -> Result<(), CliError> {
    let mut pipeline = Pipeline::new(&[append_store(lists, entries, batch)])?;
    let mut reports = Reports::append(count, lists).map_err(unwritten)?;
    let speed = speed::measure(settings, &mut pipeline, &mut reports, cycle(batch, lists, count))?;
    let per_report = count as f64;
    let times = [speed.translate, speed.respond].map(|spread| spread.median / per_report);
    table.push(row![
        batch,
        lists,
        entries,
        count,
        times.map(|ns| fixed(ns, 2)),
        times.map(|ns| fixed(1e3 / ns, 1)),
        speed.both().map(|ns| 1e3 * per_report / ns).cells(1),
        fixed(speed.bytes / per_report, 1),
        fixed(nic(&speed, per_report) / 1e6, 0),
    ]);
    Ok(())
}

pub(crate) fn run(settings: &Settings) -> Result<Findings, CliError> {
    let mut table = Table::new("batch", "Entries by batch and number of lists", COLUMNS);
    for count in COUNTS {
        for batch in BATCHES {
            for lists in LISTS {
                measure(settings, &mut table, batch, lists, ENTRIES, count)?;
            }
        }
    }
    let series = [
        ("responder, 16 a report", "16", "responder_mps"),
        ("translator, 16 a report", "16", "translator_mps"),
        ("both on one core, 16 a report", "16", RATE),
        ("both, one a report", "1", RATE),
        ("the NIC in that paper", "16", "nic_mps"),
    ]
    .map(|(name, count, column)| {
        table.line(
            name,
            &[("report_entries", count), ("lists", "1")],
            "batch",
            column,
        )
    });
    let [first, second, third, fourth, nic] = series;
    let axes = [linear("batch (entries)"), linear("entries per second (M)")];
    let lines = vec![first, second, third, fourth, nic.marks()];
    table.plot(
        "Entries per second (Fig. 7)",
        "one list; one core each",
        axes,
        lines,
    );
    let mut sizes = Table::new("size", "Entries by size of the list", COLUMNS);
    for entries in SIZES {
        measure(settings, &mut sizes, 16, 1, entries, 16)?;
    }
    Ok(Findings::new(
        METHOD,
        CONDITIONS.map(str::to_owned),
        [table, sizes],
    ))
}

const COLUMNS: &str = "batch,lists,list_entries,report_entries,translator_ns,responder_ns,\
    translator_mps,responder_mps,one_core_mps,one_core_mps_min,one_core_mps_max,\
    frame_bytes_per_entry,nic_mps";
const METHOD: &str = "The translator receives Append reports with entries of 4 bytes as UDP payloads, 64 at a time, for each list in turn. The responder \
                      receives its RoCEv2 frames, one per batch of B entries with a trailer. Both run in one process on one core and are timed separately. \
                      Reports have one entry in one series and sixteen in the other.";
const CONDITIONS: [&str; 3] = [
    "tagged rings of 65,536 entries (other sizes in the last table); measured from UDP payload to bytes in memory; no NIC, no network",
    timing::CONDITION,
    key_write::NIC_CONDITION,
];

/// Computes comparisons and remarks from the rows.
pub(crate) fn observe(results: &Results) -> Observations {
    let rows = results.table("batch");
    let comparisons = vec![
        Comparison::new(
            "entries/s, B = 16, one list, one core",
            "over 1 G/s (the NIC\u{2019}s 100 M writes, 100 Gb/s)",
            rows.fill(&at("16", "1", "16"), "{one_core_mps~} M/s, 16 entries per report"),
        ),
        Comparison::new(
            "B = 4 compared with B = 1 (one core, one entry per report)",
            "4, then line rate",
            gains(&rows, "4"),
        ),
        Comparison::new(
            "B = 16 compared with B = 1 (one core, one entry per report)",
            "line rate from B = 4 on",
            gains(&rows, "16"),
        ),
        Comparison::new(
            "255 lists compared with one, B = 16, 16 entries per report",
            "less than 1 % faster",
            rows.ratio(RATE, &at("16", "255", "16"), &at("16", "1", "16")),
        ),
        Comparison::new("size of the list", "no impact", by_size(&results.table("size"))),
    ];
    let mut remarks: Vec<String> = noisiest(&rows).into_iter().collect();
    remarks.extend(rows.find(&at("16", "1", "16")).map(|row| {
        row.fill("The paper\u{2019}s NIC and link accept {nic_mps} M/s entries in frames of B = 16 with a trailer.")
    }));
    remarks.push(judgement(
        "the trailer costs 16 bytes per batch; with it, readers detect which batches are new and complete. The paper's lists have none.",
    ));
    Observations::new(comparisons, remarks)
}

const RATE: &str = "one_core_mps";

/// Selects the row of this batch, number of lists and number of entries per report.
fn at<'a>(batch: &'a str, lists: &'a str, count: &'a str) -> [(&'a str, &'a str); 3] {
    [("batch", batch), ("lists", lists), ("report_entries", count)]
}

/// Describes the gain of a batch size over B = 1, by number of lists.
fn gains(rows: &Rows, batch: &str) -> Option<String> {
    let gains = rows.values("lists").into_iter().filter_map(|lists| {
        let name = rows.find(&[("lists", lists)])?.fill("{lists:list}");
        let ratio = rows.ratio(RATE, &at(batch, lists, "1"), &at("1", lists, "1"));
        Some(format!("{name}: {}", ratio.text()))
    });
    listed("{}", gains)
}

/// Describes the slowest and the fastest list size, and whether the runs distinguish them.
fn by_size(sizes: &Rows) -> Option<String> {
    let (low, high) = extremes(&sizes.with(&[]), RATE)?;
    let verdict = match low.spread(RATE).order(high.spread(RATE)) {
        Some(_) => "the size changes the rate",
        None => "the runs do not distinguish the sizes",
    };
    let template = "{one_core_mps~} M/s with {list_entries} entries";
    Some(format!(
        "{}, {}: {verdict}",
        low.fill(template),
        high.fill(template)
    ))
}

/// Describes the row whose runs differ most.
fn noisiest(rows: &Rows) -> Option<String> {
    let most = rows.iter().max_by(|a, b| unrest(a).total_cmp(&unrest(b)))?;
    Some(most.fill("The runs differ most at B = {batch}, {lists:list}, report_entries {report_entries}: {one_core_mps~} M/s on one core."))
}

/// Returns the ratio of the largest to the smallest rate of a row's runs.
fn unrest(row: &Row<'_>) -> f64 {
    let runs = row.spread(RATE);
    runs.max / runs.min
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::Scale;

    #[test]
    fn every_entry_reaches_its_list() {
        let settings = Settings::new(Scale::Smallest, super::super::TIMED);
        for (batch, lists) in [(1, 1), (16, 4), (16, 255)] {
            let mut pipeline = Pipeline::new(&[append_store(lists, 1 << 12, batch)]).unwrap();
            let mut reports = Reports::append(16, lists).unwrap();
            speed::measure(&settings, &mut pipeline, &mut reports, cycle(batch, lists, 16)).unwrap();
            let entries = pipeline.translated().entries;
            assert_eq!(
                (entries.accepted, entries.dropped, entries.pending),
                (entries.written, 0, 0)
            );
            let heads: u64 = pipeline.stores()[0]
                .lists()
                .unwrap()
                .heads()
                .map(|(_, head)| u64::from(head.unwrap_or(0)))
                .sum();
            assert!(heads > 0 && heads <= entries.written);
            if batch == 16 {
                assert_eq!(heads, entries.written / 16, "batches are full");
            }
        }
    }

    #[test]
    fn gains_are_those_of_all_lists() {
        let csv = "batch,lists,list_entries,report_entries,one_core_mps,one_core_mps_min,one_core_mps_max\n\
                   1,1,256,1,9.0,5.0,10.0\n1,4,4096,1,9.0,8.0,10.0\n4,1,256,1,36.0,35.0,37.0\n4,4,4096,1,9.9,9.0,10.0\n";
        let observed = observe(&Results::parse([("batch", csv), ("size", csv)]));
        assert_eq!(
            observed.remarks[0],
            "The runs differ most at B = 1, 1 list, report_entries 1: 9.0 (5.0 to 10.0) M/s on one core."
        );
        let comparisons = observed.comparisons.unwrap();
        assert_eq!(
            comparisons[1].hopwise,
            "1 list: 4.00 (3.50 to 7.40); 4 lists: 1.10 (0.90 to 1.25), not distinguishable from 1"
        );
        assert_eq!(
            comparisons[4].hopwise,
            "9.0 (5.0 to 10.0) M/s with 256 entries, 36.0 (35.0 to 37.0) M/s with 256 entries: the size changes the rate"
        );
    }
}
