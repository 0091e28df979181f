//! Experiment `monitor-rate`: INT reports per second of one core, by hops and items (Programmable Event Detection, Fig. 3).

use std::cmp::Ordering;

use collector::Batch;
use testkit::workload::collector::{Case, Input};
use wire::{Decoder, Dialect, Profile};

use super::{
    page::{Comparison, Findings, Table, fixed, linear, mark_series, row},
    rows::{Observations, Results, Row, Rows, judgement, listed},
    settings::{Parameter, Settings},
    timing,
};
use crate::figures::decode_payloads;
use terminal::{CliError, units};

pub(super) const PARAMETERS: &[Parameter] = &[
    Parameter::runs(),
    Parameter::span(&[100]),
    Parameter::new("flows", &[1_000], 1..=1_000_000).help("flows of the reports"),
    Parameter::new("nodes", &[1, 2, 3, 4], 1..=8).help("hops of a report"),
    Parameter::new("items", &[1, 2, 4, 8], 1..=8).help("items of each hop, in the order of the bitmap"),
];

/// A capacity in the paper's text.
#[derive(Clone, Copy)]
struct PaperPoint {
    hops: u64,
    items: u64,
    /// Reports per second, in thousands.
    rate: f64,
}

const PAPER: [PaperPoint; 3] = [
    PaperPoint {
        hops: 1,
        items: 1,
        rate: 3_593.0,
    },
    PaperPoint {
        hops: 1,
        items: 4,
        rate: 2_976.0,
    },
    PaperPoint {
        hops: 4,
        items: 8,
        rate: 1_204.0,
    },
];

/// Reports to measure: hops of a report, items of each hop, and their workload.
struct MeasuredCase {
    hops: u64,
    items: u64,
    case: Case,
}

pub(super) fn run(settings: &Settings) -> Result<Findings, CliError> {
    let mut cases = Vec::new();
    for &hops in settings.list("nodes") {
        for &items in settings.list("items") {
            let case = Case {
                flows: settings.value("flows") as u32,
                hops: hops as u8,
                bitmap: 0xff00 & !(0xffff >> items),
                ..Case::PLAIN
            };
            cases.push(MeasuredCase { hops, items, case });
        }
    }
    let decoded = timing::in_turn(settings, &cases, |measured| decoding(settings, &measured.case))?;
    let handled = timing::in_turn(settings, &cases, |measured| all(settings, &measured.case))?;
    let columns = "hops,items,values,decoding_ns,decoding_ns_min,decoding_ns_max,all_ns,\
        all_ns_min,all_ns_max,all_kps,paper_kps";
    let mut table = Table::new("rate", "Reports by hops and items, on one core", columns);
    for (MeasuredCase { hops, items, .. }, (decoding, all)) in
        cases.into_iter().zip(decoded.into_iter().zip(handled))
    {
        let paper = PAPER
            .iter()
            .find(|point| (point.hops, point.items) == (hops, items));
        table.push(row![
            hops,
            items,
            hops * items,
            decoding.cells(1),
            all.cells(1),
            fixed(rate(all.median), 0),
            paper.map(|point| fixed(point.rate, 0)),
        ]);
    }
    let lines = table.lines("hops", "hopwise, {} hops", "items", "all_ns");
    let mut series: Vec<_> = lines.into_iter().map(|line| line.map(rate)).collect();
    for hops in [1, 4] {
        let points = PAPER
            .iter()
            .filter(|point| point.hops == hops)
            .map(|point| (point.items as f64, point.rate))
            .collect();
        series.push(mark_series(&format!("the paper, {hops} hops"), points));
    }
    table.plot(
        "Reports per second of one core (Fig. 3)",
        "different programs, different processors",
        [linear("items of each hop"), linear("reports per second (k)")],
        series,
    );
    Ok(Findings::new(METHOD, CONDITIONS.map(str::to_owned), [table]))
}

const METHOD: &str = "Reports of Telemetry Report 1.0 with INT 1.0 in memory are decoded and passed through the state of flows and hops and the detection of \
                      changes; no value changes. The rate is the inverse of the CPU time of a report on one core.";
const CONDITIONS: [&str; 3] = [
    "the paper's monitor receives by AF_XDP, and builds and drops a Kafka message per report, on one core of an Intel Xeon Silver 4114 \
     (2.20 GHz). Here: no I/O and no message, but state and detection",
    "the paper's points are those of its text, since the figure's data is not published. Its text also says \"and the throughput to 2771 \
     Kpps\" for four items, without saying for what",
    timing::CONDITION,
];

/// Measures decoding alone, ns per report: from the UDP payload to the report, reading the node ID of each hop.
pub(super) fn decoding(settings: &Settings, case: &Case) -> Result<f64, CliError> {
    let feed = case.feed();
    let payloads: Vec<&[u8]> = feed.payloads().collect();
    let mut bursts = payloads.chunks(256).cycle();
    let mut decoder = Decoder::new(Profile::new(Dialect::IntCollectorGen));
    timing::measure_once(settings, || {
        let burst = bursts.next().unwrap_or_default().iter().copied();
        Ok(decode_payloads(&mut decoder, burst))
    })
}

/// Measures decoding, state of flows and hops, and detection together, ns per report.
pub(super) fn all(settings: &Settings, case: &Case) -> Result<f64, CliError> {
    let mut collector = case.collector();
    let mut feed = case.feed();
    let mut batch = Batch::with_capacity(8_192);
    let mut warmed_up = 0;
    while warmed_up < 2 * feed.frames() {
        warmed_up += feed.burst(Input::Payloads, &mut collector, &mut batch);
        batch.clear();
    }
    timing::measure_once(settings, || {
        let reports = (0..4)
            .map(|_| feed.burst(Input::Payloads, &mut collector, &mut batch) as u64)
            .sum();
        batch.clear();
        Ok(reports)
    })
}

/// Converts ns per report to thousands of reports per second.
fn rate(ns: f64) -> f64 {
    1e6 / ns
}

/// Computes comparisons and remarks from the rows.
pub(super) fn observe(results: &Results) -> Observations {
    let rows = results.table("rate");
    let mut comparisons: Vec<Comparison> = PAPER.iter().map(|point| compare(&rows, *point)).collect();
    let mut remarks = Vec::new();
    let points = [("1", "1"), ("4", "1"), ("1", "4")];
    if let [Some(first), Some(hops), Some(items)] =
        points.map(|(hops, items)| rows.find(&[("hops", hops), ("items", items)]))
    {
        let [first, hops, items] = [first, hops, items].map(|row| row.spread("all_ns"));
        let [more_hops, more_items] = [hops, items].map(|spread| spread.minus(first).text(1));
        let added = format!("4 hops add {more_hops} ns, 4 items {more_items} ns");
        let verdict = match hops.order(items) {
            Some(Ordering::Greater) => "hops cost more, as in the paper",
            Some(_) => "items cost more, the opposite of the paper",
            None => "the runs do not say which costs more",
        };
        remarks.push(format!("Compared with 1 hop and 1 item, {added}: {verdict}."));
        comparisons.push(Comparison::new(
            "time that more hops and more items add to 1 hop with 1 item",
            "hops cost more than items",
            added,
        ));
    }
    remarks.extend(falling(&rows));
    remarks.extend(slower_decoding(&rows));
    remarks.push(judgement(
        "the programs do different work (no AF_XDP and no Kafka message here) and run on different processors, so neither the rates nor their shape \
         confirm or contradict the paper's monitor.",
    ));
    Observations::new(comparisons, remarks)
}

/// Compares a capacity in the paper's text with the row of the same hops and items.
fn compare(rows: &Rows, point: PaperPoint) -> Comparison {
    let PaperPoint {
        hops,
        items,
        rate: paper,
    } = point;
    let row = rows.find(&[("hops", &hops.to_string()), ("items", &items.to_string())]);
    let text = row.map(|row| {
        let [low, high] =
            ["all_ns_max", "all_ns_min"].map(|column| units::count(rate(row.number(column)).round() as u64));
        row.fill(&format!("{{all_kps}} ({low} to {high}) k/s"))
    });
    let paper = format!("{} k/s", units::count(paper as u64));
    Comparison::new(format!("hops {hops}, items {items}: reports/s"), paper, text)
}

/// Says where more items take less time, by more than the spread of the runs.
fn falling(rows: &Rows) -> Option<String> {
    let mut places = Vec::new();
    for hops in rows.values("hops") {
        let of_hops = rows.with(&[("hops", hops)]);
        for pair in of_hops.windows(2) {
            if pair[1].spread("all_ns").order(pair[0].spread("all_ns")) == Some(Ordering::Less) {
                let [fewer, more] = [pair[0], pair[1]].map(|row| row.fill("{all_ns~} ns with {items:item}"));
                places.push(format!("{}: {fewer}, {more}", pair[0].fill("{hops:hop}")));
            }
        }
    }
    listed("The time does not always rise with the items. {}.", places)
}

/// Says where decoding alone takes longer than decoding with state and detection, by more than the spread of the runs.
fn slower_decoding(rows: &Rows) -> Option<String> {
    let slower: Vec<_> = rows
        .iter()
        .filter(|row| row.spread("decoding_ns").order(row.spread("all_ns")) == Some(Ordering::Greater))
        .collect();
    let most = slower.iter().max_by(|a, b| excess(a).total_cmp(&excess(b)))?;
    Some(format!(
        "Decoding alone is slower than everything in {} of {}, most at {}. It is measured with the decoder of all formats, while the collector has a fast \
         path for these reports, so it is not a part of the total.",
        slower.len(),
        units::counted(rows.iter().count() as u64, "row"),
        most.fill("{hops:hop} and {items:item}: {decoding_ns~} and {all_ns~} ns")
    ))
}

/// Returns the time by which decoding alone exceeds decoding with state and detection, ns.
fn excess(row: &Row<'_>) -> f64 {
    row.number("decoding_ns") - row.number("all_ns")
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str =
        "hops,items,decoding_ns,decoding_ns_min,decoding_ns_max,all_ns,all_ns_min,all_ns_max,all_kps\n";

    #[test]
    fn the_shape_is_that_of_the_rows() {
        fn remarks(rows: &str) -> Vec<String> {
            observe(&Results::parse([("rate", &*format!("{HEAD}{rows}"))])).remarks
        }
        let like_the_paper = remarks("1,1,9,9,9,20,20,20,1\n1,4,9,9,9,21,21,21,1\n4,1,9,9,9,40,40,40,1\n");
        assert_eq!(like_the_paper.len(), 2, "{like_the_paper:?}");
        assert_eq!(
            like_the_paper[0],
            "Compared with 1 hop and 1 item, 4 hops add 20.0 (20.0 to 20.0) ns, 4 items 1.0 (1.0 to 1.0) ns: hops cost more, as in the paper."
        );
        let opposite = remarks("1,1,30,29,31,20,20,21,1\n1,4,9,9,9,18,17,19,1\n4,1,9,9,9,15,14,16,1\n");
        assert!(
            opposite[0].ends_with("ns: items cost more, the opposite of the paper."),
            "{opposite:?}"
        );
        assert_eq!(
            opposite[1],
            "The time does not always rise with the items. 1 hop: 20 (20 to 21) ns with 1 item, 18 (17 to 19) ns with 4 items."
        );
        assert!(
            opposite[2].starts_with(
                "Decoding alone is slower than everything in 1 of 3 rows, most at 1 hop and 1 item: 30 (29 to 31) and 20 (20 to 21) ns."
            ),
            "{opposite:?}"
        );
        let noisy = remarks("1,1,30,19,31,20,16,21,1\n1,4,9,9,9,18,14,19,1\n4,1,9,9,9,15,14,17,1\n");
        assert_eq!(noisy.len(), 2, "{noisy:?}");
        assert!(
            noisy[0].ends_with("the runs do not say which costs more."),
            "{noisy:?}"
        );
    }
}
