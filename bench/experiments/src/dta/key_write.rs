//! Experiment `dta-key-write`: Key-Write reports per second, by copies N and size of the data (DTA, Fig. 9). Translator and
//! responder run in one process, on one core, without a network.

use std::cmp::Ordering;

use crate::figures::reports::{Reports, key_write_store};
use translator::StoreEntry;
use wire::dta::layout::slot_stride;

use super::speed;
use crate::figures::unwritten;
use crate::{
    figures::pipeline::Pipeline,
    page::{Comparison, Findings, Outcome as _, Table, fixed, linear, row},
    rows::{Observations, Results, Row, Rows, judgement, listed},
    settings::Settings,
    timing,
};
use terminal::CliError;

const COPIES: [u8; 4] = [1, 2, 3, 4];
/// Bytes of data: a postcard (4), a path of five nodes (20), and sizes that fill slots of 16 to 128 bytes.
const DATA: [u16; 6] = [4, 12, 20, 28, 60, 124];
/// Bytes on the wire in addition to each frame: preamble, FCS, inter-frame gap.
const FRAME_OVERHEAD: f64 = 24.0;
/// The paper's link (bit/s) and the rate of its NIC (operations/s, section 5: "over 100 Mops").
const LINK: f64 = 100e9;
const NIC: f64 = 100e6;

/// Returns a Key-Write store as large as the scale of the run allows.
pub(super) fn store(settings: &Settings, data_len: u16) -> StoreEntry {
    key_write_store(speed::large(settings.scale) / slot_stride(data_len), data_len)
}

/// Returns the reports per second that saturate the paper's NIC or link, for reports of `frames` frames and `bytes` bytes.
pub(super) fn nic(frames: f64, bytes: f64) -> f64 {
    let bits = 8.0 * (bytes + FRAME_OVERHEAD * frames);
    (LINK / bits).min(NIC / frames)
}

pub(crate) fn run(settings: &Settings) -> Result<Findings, CliError> {
    let columns = "n,data_bytes,translator_ns,responder_ns,translator_mps,responder_mps,\
        one_core_mps,one_core_mps_min,one_core_mps_max,frame_bytes,nic_mps";
    let mut table = Table::new("rate", "Key-Writes by copies and size of the data", columns);
    let mut memory = String::new();
    for data in DATA {
        let mut pipeline = Pipeline::new(&[store(settings, data)])?;
        if let Some(store) = pipeline.stores().first() {
            let pages = store.region().pages();
            memory = format!("a store of {} MiB, pages: {pages:?}", store.body_len() >> 20);
        }
        for copies in COPIES {
            let mut reports = Reports::key_write(copies, &vec![7; data.into()]).map_err(unwritten)?;
            let speed = speed::measure(settings, &mut pipeline, &mut reports, 1)?;
            let times = [speed.translate.median, speed.respond.median];
            table.push(row![
                copies,
                data,
                times.map(|ns| fixed(ns, 1)),
                times.map(|ns| fixed(1e3 / ns, 2)),
                speed.both().map(|ns| 1e3 / ns).cells(2),
                fixed(speed.bytes, 0),
                fixed(nic(speed.frames, speed.bytes) / 1e6, 1),
            ]);
        }
    }
    // The table is sorted by size of the data; the plot has one line for each number of copies.
    let mut series: Vec<_> = COPIES
        .map(|n| table.line(&format!("N = {n}"), &[("n", &n.to_string())], "data_bytes", RATE))
        .into();
    for n in ["1", "2"] {
        let name = format!("the NIC in that paper, N = {n}");
        series.push(table.line(&name, &[("n", n)], "data_bytes", "nic_mps").marks());
    }
    let axes = [linear("data (bytes)"), linear("reports per second (M)")];
    let note = "one core: translator and responder";
    table.plot("Key-Writes per second (Fig. 9)", note, axes, series);
    Ok(Findings::new(
        "The translator receives Key-Write reports of random 5-tuples as UDP payloads, 64 at a time. The responder receives its RoCEv2 frames, \
         checks them (ICRC, queue pair, region) and writes to the region. Both run in one process on one core and are timed separately. There \
         is no NIC and no network; the paper measures its NIC there. The plot also shows the rate at which that NIC and its link would accept \
         these frames.",
        [memory, timing::CONDITION.into(), NIC_CONDITION.into()],
        [table],
    ))
}

pub(super) const NIC_CONDITION: &str = "the NIC: 100 M operations a second and 100 Gb/s, as in the paper, counting preamble, FCS and inter-frame gap of each frame";

/// Computes comparisons and remarks from the rows.
pub(crate) fn observe(results: &Results) -> Observations {
    let rows = results.table("rate");
    let comparisons = vec![
        Comparison::new(
            "reports/s, 4 B, N = 1",
            "about the NIC\u{2019}s message rate (100 M/s)",
            rows.fill(&at("1", "4"), "{one_core_mps~} M/s"),
        ),
        Comparison::new(
            "N = 2 compared with N = 1, 20 B",
            "half",
            ratio(&rows, at("2", "20"), at("1", "20")),
        ),
        Comparison::new(
            "N = 4 compared with N = 1, 20 B",
            "a quarter",
            ratio(&rows, at("4", "20"), at("1", "20")),
        ),
        Comparison::new(
            "20 B compared with 4 B, N = 1",
            "the same (until 100 Gb/s)",
            ratio(&rows, at("1", "20"), at("1", "4")),
        ),
    ];
    let ratios = rows
        .values("data_bytes")
        .into_iter()
        .map(|data| format!("{data} B {}", ratio(&rows, at("2", data), at("1", data)).text()));
    let mut remarks: Vec<String> = listed("Rate at N = 2 compared with N = 1: {}.", ratios)
        .into_iter()
        .collect();
    remarks.extend(listed(
        "Rows that contradict each other (more work is faster, outside the spread of the runs): {}. Do not quote these, nor ratios with them.",
        inversions(&rows).iter().map(|(less, more)| {
            let template = "N = {n}, {data_bytes} B: {one_core_mps~} M/s";
            format!("{}, but {}", less.fill(template), more.fill(template))
        }),
    ));
    remarks.extend(rows.find(&at("2", "20")).map(|row| {
        row.fill("One core makes {one_core_mps~} M/s of a path (20 B) with N = 2, translator and responder together; the paper\u{2019}s NIC accepts {nic_mps} M/s of them.")
    }));
    remarks.push(judgement(
        "with an RDMA NIC, the NIC does the responder's work, so the collector's CPU has none. Only the translator's time remains.",
    ));
    Observations::new(comparisons, remarks)
}

/// Selects the row of these copies and bytes of data.
fn at<'a>(copies: &'a str, data: &'a str) -> [(&'a str, &'a str); 2] {
    [("n", copies), ("data_bytes", data)]
}

const RATE: &str = "one_core_mps";

/// Returns the ratio of two rates, unless one of the rows is part of an inversion.
fn ratio(rows: &Rows, one: [(&str, &str); 2], other: [(&str, &str); 2]) -> Option<String> {
    let a = rows.find(&one)?;
    let b = rows.find(&other)?;
    let is_disturbed = inversions(rows)
        .iter()
        .flat_map(|pair| [pair.0, pair.1])
        .any(|row| row == a || row == b);
    if is_disturbed {
        return Some("not usable: a row contradicts another".into());
    }
    rows.ratio(RATE, &one, &other)
}

/// Finds neighbouring rows of which the one with more data or copies is faster: another program disturbed one of them.
fn inversions(rows: &Rows) -> Vec<(Row<'_>, Row<'_>)> {
    let mut pairs = Vec::new();
    for (fixed, varied) in [("n", "data_bytes"), ("data_bytes", "n")] {
        for value in rows.values(fixed) {
            let mut of_value = rows.with(&[(fixed, value)]);
            of_value.sort_by(|a, b| a.number(varied).total_cmp(&b.number(varied)));
            for pair in of_value.windows(2) {
                if pair[1].spread(RATE).order(pair[0].spread(RATE)) == Some(Ordering::Greater) {
                    pairs.push((pair[0], pair[1]));
                }
            }
        }
    }
    pairs
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::Scale;

    #[test]
    fn reported_data_is_in_memory_n_times() {
        let settings = Settings::new(Scale::Smallest, super::super::TIMED);
        let mut pipeline = Pipeline::new(&[store(&settings, 20)]).unwrap();
        for copies in COPIES {
            let before = pipeline.responded().messages;
            let mut reports = Reports::key_write(copies, &[7; 20]).unwrap();
            let speed = speed::measure(&settings, &mut pipeline, &mut reports, 1).unwrap();
            assert_eq!(
                (speed.frames, speed.bytes),
                (f64::from(copies), 98.0 * f64::from(copies))
            );
            let messages = pipeline.responded().messages - before;
            assert!(messages > 0 && messages.is_multiple_of(copies.into()));
        }
        let (written, sampled) = pipeline.stores()[0].occupancy(1 << 12).unwrap();
        assert!(written > 0, "{written} of {sampled}");
    }
    #[test]
    fn rows_in_which_more_work_is_faster_are_named() {
        const HEAD: &str = "n,data_bytes,one_core_mps,one_core_mps_min,one_core_mps_max\n";
        fn observed(rows: &str) -> Observations {
            observe(&Results::parse([("rate", &*format!("{HEAD}{rows}"))]))
        }
        let plausible = observed("1,4,8.00,7.00,9.00\n1,20,7.00,6.00,8.00\n2,4,5.00,4.00,6.00\n").remarks;
        assert_eq!(plausible.len(), 2, "{plausible:?}");
        assert_eq!(
            plausible[0],
            "Rate at N = 2 compared with N = 1: 4 B 0.62 (0.44 to 0.86); 20 B not run."
        );
        let noisy = observed("1,4,3.30,2.00,3.70\n1,20,3.50,3.00,4.00\n")
            .comparisons
            .unwrap();
        assert_eq!(
            noisy[3].hopwise,
            "1.06 (0.81 to 2.00), not distinguishable from 1"
        );
        let disturbed = observed("1,4,3.30,2.00,3.70\n1,12,7.85,7.70,7.90\n1,20,7.72,7.39,7.85\n");
        assert_eq!(
            disturbed.remarks[1],
            "Rows that contradict each other (more work is faster, outside the spread of the runs): N = 1, 4 B: 3.30 (2.00 to 3.70) M/s, but N = 1, 12 B: \
             7.85 (7.70 to 7.90) M/s. Do not quote these, nor ratios with them."
        );
        assert_eq!(
            disturbed.comparisons.unwrap()[3].hopwise,
            "not usable: a row contradicts another"
        );
    }
}
