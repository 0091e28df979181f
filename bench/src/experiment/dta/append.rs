//! Entries per second, by batch, number of lists and size of a list (Fig. 7).

use crate::figures::reports::{Reports, append_store};

use super::speed::{self, Speed};
use crate::figures::unwritten;
use crate::svg::Plot;
use crate::{
    experiment::{
        page::{Cell, Comparison, Findings, Table, line_series, linear, mark_series},
        rows::{Observations, Results, Row, Rows, extremes},
        settings::Settings,
        timing::{self, Spread},
    },
    figures::pipeline::Pipeline,
};
use terminal::CliError;

const BATCHES: [u16; 5] = [1, 2, 4, 8, 16];
const LISTS: [u32; 4] = [1, 4, 16, 255];
/// Entries of a list in the first table.
const ENTRIES: u64 = 1 << 16;
/// Entries of a list in the second table.
const SIZES: [u64; 4] = [1 << 8, 1 << 12, 1 << 16, 1 << 22];
/// Entries in one report. The paper's generator also packed several entries into a report, because its packet rate was limited.
const COUNTS: [usize; 2] = [1, 16];
/// Bytes on the wire in addition to each frame, and limits of the paper's link and NIC, as in [`super::key_write`].
const FRAME_OVERHEAD: f64 = 24.0;
const LINK: f64 = 100e9;
const NIC: f64 = 100e6;

struct Point {
    batch: u16,
    lists: u32,
    entries: u64,
    /// Entries in a report.
    count: usize,
    speed: Speed,
}

impl Point {
    /// Nanoseconds per entry.
    fn translate(&self) -> f64 {
        self.speed.translate.median / self.count as f64
    }

    fn respond(&self) -> f64 {
        self.speed.respond.median / self.count as f64
    }

    /// Entries per second on one core.
    fn rate(&self) -> f64 {
        self.rates().median
    }

    fn rates(&self) -> Spread {
        self.speed.both().map(|ns| 1e9 * self.count as f64 / ns)
    }

    /// Entries per second at which hopwise's frames saturate the paper's NIC or link.
    fn nic(&self) -> f64 {
        let (frames, bytes) = (self.speed.frames / self.count as f64, self.speed.bytes / self.count as f64);
        (LINK / (8.0 * (bytes + FRAME_OVERHEAD * frames))).min(NIC / frames)
    }
}

/// Number of reports after which every list has written a batch and all lists have the same number of pending entries as before.
pub(super) fn cycle(batch: u16, lists: u32, count: usize) -> u64 {
    (u64::from(batch) * u64::from(lists)).div_ceil(count as u64).max(lists.into())
}

fn point(settings: &Settings, batch: u16, lists: u32, entries: u64, count: usize) -> Result<Point, CliError> {
    let mut pipeline = Pipeline::new(&[append_store(lists, entries, batch)])?;
    let mut reports = Reports::append(count, lists).map_err(unwritten)?;
    let speed = speed::measure(settings, &mut pipeline, &mut reports, cycle(batch, lists, count))?;
    Ok(Point { batch, lists, entries, count, speed })
}

pub(in super::super) fn run(settings: &Settings) -> Result<Findings, CliError> {
    let mut points = Vec::new();
    for count in COUNTS {
        for batch in BATCHES {
            for lists in LISTS {
                points.push(point(settings, batch, lists, ENTRIES, count)?);
            }
        }
    }
    let mut sizes = Vec::new();
    for entries in SIZES {
        sizes.push(point(settings, 16, 1, entries, 16)?);
    }
    Ok(findings(&points, &sizes))
}

fn rows(points: &[Point]) -> Vec<Vec<Cell>> {
    let row = |one: &Point| {
        let [median, min, max] = one.rates().map(|rate| rate / 1e6).cells(1);
        vec![
            u64::from(one.batch).into(),
            u64::from(one.lists).into(),
            one.entries.into(),
            (one.count as u64).into(),
            Cell::Figure(one.translate(), 2),
            Cell::Figure(one.respond(), 2),
            Cell::Figure(1e3 / one.translate(), 1),
            Cell::Figure(1e3 / one.respond(), 1),
            median,
            min,
            max,
            Cell::Figure(one.speed.bytes / one.count as f64, 1),
            Cell::Figure(one.nic() / 1e6, 0),
        ]
    };
    points.iter().map(row).collect()
}

const COLUMNS: [&str; 13] = [
    "batch",
    "lists",
    "list_entries",
    "report_entries",
    "translator_ns",
    "responder_ns",
    "translator_mps",
    "responder_mps",
    "one_core_mps",
    "one_core_mps_min",
    "one_core_mps_max",
    "frame_bytes_per_entry",
    "nic_mps",
];

fn findings(points: &[Point], sizes: &[Point]) -> Findings {
    let line = |count: usize, of: fn(&Point) -> f64| -> Vec<(f64, f64)> {
        let selected = points.iter().filter(|one| one.count == count && one.lists == 1);
        selected.map(|one| (f64::from(one.batch), of(one) / 1e6)).collect()
    };
    let responder = |one: &Point| 1e9 / one.respond();
    let translator = |one: &Point| 1e9 / one.translate();
    Findings {
        method: "The translator receives Append reports with entries of 4 bytes as UDP payloads, 64 at a time, for each list in turn. The responder \
                 receives its RoCEv2 frames, one per batch of B entries with a trailer. Both run in one process on one core and are timed separately. \
                 Reports have one entry in one series and sixteen in the other."
            .into(),
        conditions: vec![
            "tagged rings of 65,536 entries (other sizes in the last table); measured from UDP payload to bytes in memory; no NIC, no network".into(),
            timing::condition(),
            "the NIC: 100 M operations a second and 100 Gb/s, as in the paper, counting preamble, FCS and inter-frame gap of each frame".into(),
        ],
        tables: vec![
            Table {
                name: "batch",
                about: "Entries by batch and number of lists".into(),
                columns: COLUMNS.to_vec(),
                rows: rows(points),
                plots: vec![Plot {
                    note: "one list; one core each".into(),
                    title: "Entries per second (Fig. 7)".into(),
                    x: linear("batch (entries)"),
                    y: linear("entries per second (M)"),
                    series: vec![
                        line_series("responder, 16 a report", line(16, responder)),
                        line_series("translator, 16 a report", line(16, translator)),
                        line_series("both on one core, 16 a report", line(16, Point::rate)),
                        line_series("both, one a report", line(1, Point::rate)),
                        mark_series("the NIC in that paper", line(16, Point::nic)),
                    ],
                }],
            },
            Table {
                name: "size",
                about: "Entries by size of the list".into(),
                columns: COLUMNS.to_vec(),
                rows: rows(sizes),
                plots: Vec::new(),
            },
        ],
        ..Findings::default()
    }
}

/// Computes comparisons and remarks from the rows.
pub(in super::super) fn observe(results: &Results) -> Observations {
    let (rows, sizes) = (results.table("batch"), results.table("size"));
    let at = |batch: &str, lists: &str, count: &str, column: &str| {
        rows.number(&[("batch", batch), ("lists", lists), ("report_entries", count)], column)
    };
    let both = |column| {
        format!(
            "{:.1} M/s, 16 entries per report; one per report: {:.1} M/s",
            at("16", "1", "16", column),
            at("16", "1", "1", column)
        )
    };
    let ends = extremes(&sizes.with(&[]), "one_core_mps");
    let by_size = ends.map_or("not run".into(), |(low, high)| {
        format!("{} M/s to {} M/s", low.text("one_core_mps"), high.text("one_core_mps"))
    });
    let lists = 100.0 * (at("16", "255", "16", "one_core_mps") / at("16", "1", "16", "one_core_mps") - 1.0);
    let comparisons = vec![
        Comparison::new(
            "entries/s, B = 16, one list, one core",
            "over 1 G/s (the NIC\u{2019}s 100 M writes, 100 Gb/s)",
            both("one_core_mps"),
        ),
        Comparison::new("translator only, B = 16", "", both("translator_mps")),
        Comparison::new(
            "B = 4 compared with B = 1 (responder, one entry per report)",
            "4, then line rate",
            gains(&rows, "4", "responder_mps"),
        ),
        Comparison::new(
            "B = 16 compared with B = 1 (responder, one entry per report)",
            "line rate from B = 4 on",
            gains(&rows, "16", "responder_mps"),
        ),
        Comparison::new(
            "255 lists compared with one, B = 16",
            "less than 1 % faster",
            format!("{lists:+.0} %"),
        ),
        Comparison::new("size of the list", "no impact", by_size),
    ];
    let mut remarks: Vec<String> = ["4", "16"]
        .map(|batch| {
            format!(
                "B = {batch} compared with B = 1, one entry per report: responder {}; translator {}.",
                gains(&rows, batch, "responder_mps"),
                gains(&rows, batch, "translator_mps")
            )
        })
        .into();
    remarks.extend(noisiest(&rows));
    remarks.push(format!(
        "Frames of B = 16 with a trailer fill 100 Gb/s with {} M/s entries. The trailer costs 16 bytes per batch; with it, readers detect which batches are \
         new and complete.",
        at("16", "1", "16", "nic_mps")
    ));
    Observations { comparisons: Some(comparisons), remarks }
}

/// Smallest and largest gain of a batch over B = 1, with their numbers of lists.
fn gains(rows: &Rows, batch: &str, column: &str) -> String {
    let rate = |batch: &str, lists: &str| {
        rows.number(&[("batch", batch), ("lists", lists), ("report_entries", "1")], column)
    };
    let mut gains: Vec<(f64, &str)> = rows
        .values("lists")
        .into_iter()
        .map(|lists| (rate(batch, lists) / rate("1", lists), lists))
        .collect();
    gains.sort_by(|a, b| a.0.total_cmp(&b.0));
    match (gains.first(), gains.last()) {
        (Some(low), Some(high)) => {
            format!("{:.1} ({} lists) to {:.1} ({} lists)", low.0, low.1, high.0, high.1)
        }
        _ => "not run".into(),
    }
}

/// The row whose runs differ most.
fn noisiest(rows: &Rows) -> Option<String> {
    let spread = |row: &Row<'_>| row.number("one_core_mps_max") / row.number("one_core_mps_min");
    let most = rows.iter().max_by(|a, b| spread(a).total_cmp(&spread(b)))?;
    Some(format!(
        "The runs differ most at B = {}, {} lists, {} entries per report: {} to {} M/s on one core.",
        most.text("batch"),
        most.text("lists"),
        most.text("report_entries"),
        most.text("one_core_mps_min"),
        most.text("one_core_mps_max")
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::settings::Scale;

    #[test]
    fn every_entry_reaches_its_list() {
        let settings = Settings::new(Scale::Smallest, super::super::TIMED);
        for (batch, lists) in [(1, 1), (16, 4), (16, 255)] {
            let mut pipeline = Pipeline::new(&[append_store(lists, 1 << 12, batch)]).unwrap();
            let mut reports = Reports::append(16, lists).unwrap();
            speed::measure(&settings, &mut pipeline, &mut reports, cycle(batch, lists, 16)).unwrap();
            let entries = pipeline.translated().entries;
            assert_eq!((entries.accepted, entries.dropped, entries.pending), (entries.written, 0, 0));
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
        let csv = "batch,lists,report_entries,translator_mps,responder_mps,one_core_mps_min,one_core_mps_max\n\
                   1,1,1,10.0,50.0,5.0,10.0\n1,4,1,20.0,100.0,9.0,9.0\n4,1,1,40.0,250.0,9.0,9.0\n4,4,1,40.0,300.0,9.0,9.0\n";
        let observed = observe(&Results::parse([("batch", csv)]));
        assert_eq!(
            observed.remarks[0],
            "B = 4 compared with B = 1, one entry per report: responder 3.0 (4 lists) to 5.0 (1 lists); translator 2.0 (4 lists) to 4.0 (1 lists)."
        );
        assert_eq!(
            observed.remarks[2],
            "The runs differ most at B = 1, 1 lists, 1 entries per report: 5.0 to 10.0 M/s on one core."
        );
    }
}
