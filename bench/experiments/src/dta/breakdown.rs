//! Experiment `dta-breakdown`: CPU time per report of a CPU collector by step, from receiving to storing (DTA, Fig. 1).

use testkit::workload::collector::{Case, Values};

use super::cpu;
use crate::{
    loopback::{self, Served},
    monitor_rate,
    page::{Comparison, Findings, Table, fixed, linear, named, row},
    rows::{Observations, Results, Rows, judgement},
    settings::{Parameter, Settings},
    timing::{self, Spread},
};
use terminal::CliError;

pub(crate) const PARAMETERS: &[Parameter] = &[
    Parameter::runs(),
    Parameter::span(&[300]),
    Parameter::new("rate", &[100_000], 1_000..=1_000_000).help("reports per second of the receiving step"),
];

/// The paper's share of data wrangling and storing, per cent.
const PAPER_PERCENT: f64 = 93.0;
/// Their time in the paper as a multiple of the time of I/O.
const PAPER_TIMES_IO: f64 = 90.0;

pub(crate) fn run(settings: &Settings) -> Result<Findings, CliError> {
    let case = cpu::stored_case(settings);
    let payloads: Vec<Vec<u8>> = case.feed().payloads().take(4_096).map(<[u8]>::to_vec).collect();
    let receiving = Spread::runs(settings, || {
        let served = loopback::serve(
            &payloads,
            settings.value("rate"),
            timing::span(settings),
            |datagrams| {
                std::hint::black_box(datagrams);
            },
        )?;
        Ok(Served::ns_per_report(&served))
    })?;
    let constant = Case {
        values: Values::Constant,
        ..case
    };
    let decoding = Spread::runs(settings, || monitor_rate::decoding(settings, &constant))?;
    let state = Spread::runs(settings, || monitor_rate::all(settings, &constant))?;
    let stored = cpu::stored(settings)?.0;
    let columns = "measured,ns_per_report,ns_per_report_min,ns_per_report_max";
    let mut measured = Table::new("measured", "What was measured", columns);
    for (name, spread) in MEASURED.into_iter().zip([receiving, decoding, state, stored]) {
        measured.push(row![name, spread.cells(1)]);
    }
    // The last two steps are differences of medians, which have no spread.
    let each = [
        ("receive (I/O)", receiving.median),
        ("decode (parsing)", decoding.median),
        (
            "state and detection (wrangling)",
            (state.median - decoding.median).max(0.0),
        ),
        (
            "row and indexes (storing)",
            (stored.median - state.median).max(0.0),
        ),
    ];
    let sum: f64 = each.iter().map(|one| one.1).sum();
    let mut steps = Table::new(
        "steps",
        "CPU time of a report by step",
        "step,ns_per_report,percent",
    );
    for (name, ns) in each {
        steps.push(row![name, fixed(ns, 1), fixed(100.0 * ns / sum, 1)]);
    }
    let bars = steps.bars("hopwise", "percent");
    let axes = [named(["receive", "decode", "state", "store"]), linear("per cent")];
    let note = "the paper: wrangling and storing together 93 %";
    steps.plot("CPU time of a report by step (Fig. 1)", note, axes, vec![bars]);
    Ok(Findings::new(
        METHOD,
        CONDITIONS.map(str::to_owned),
        [steps, measured],
    ))
}

const METHOD: &str = "INT reports of paths of five nodes (100,000 flows), each with one change that becomes an indexed row of the store. Receiving is measured \
                      over loopback, with a receiver that discards; the other steps in process: decoding alone, with state and detection, and with the \
                      store. A step is the difference to the one before it.";
const CONDITIONS: [&str; 4] = [
    "receiving: CPU time of the receiving thread; on loopback, the kernel does part of that work in the sender's context, which is not counted",
    "decoding and state are measured with constant values; the cost of a change's event is in the last step",
    "the paper: Confluo, 100,000 reports, Intel Xeon Silver 4114 (2.20 GHz), I/O by DPDK; Confluo was not run here",
    timing::CONDITION,
];

/// Computes comparisons and remarks from the rows. A step is the difference of two measurements and combines their spreads.
pub(crate) fn observe(results: &Results) -> Observations {
    let rows = results.table("measured");
    let [receiving, decoding, state, stored] =
        MEASURED.map(|name| rows.spread(&[("measured", name)], "ns_per_report"));
    let steps = [receiving, decoding, state.minus(decoding), stored.minus(state)];
    let later = stored.minus(decoding);
    let is_run = rows.iter().count() > 0;
    let comparisons = vec![
        Comparison::new(
            "state, detection and storing: share of the CPU time",
            format!("{} % (wrangling and storing)", PAPER_PERCENT),
            is_run.then(|| {
                format!(
                    "{} % with the socket's time, {} % without it",
                    share(later, receiving.plus(decoding)).text(0),
                    share(later, decoding).text(0)
                )
            }),
        ),
        Comparison::new(
            "the same compared with I/O",
            format!("almost {} times", PAPER_TIMES_IO),
            is_run.then(|| later.over(receiving).ratio_text(1)),
        ),
    ];
    let mut remarks: Vec<String> = largest(&results.table("steps"), steps).into_iter().collect();
    remarks.push(judgement(
        "the paper's I/O is DPDK, ours a socket, so neither the ratio to I/O nor a share of the time with I/O is comparable. The share without I/O is \
         closer to a comparison, but of another collector and another store.",
    ));
    Observations::new(comparisons, remarks)
}

/// Names of the four measurements; the third includes the second, and the fourth the third.
const MEASURED: [&str; 4] = [
    "receiving",
    "decoding",
    "decoding, state, detection",
    "all of these, and storing",
];

/// Returns the share of `part` in the sum of `part` and `other`, per cent.
fn share(part: Spread, other: Spread) -> Spread {
    other.over(part).map(|ratio| 100.0 / (1.0 + ratio))
}

/// Says which step is the largest, if the runs distinguish it from the second largest.
fn largest(table: &Rows, steps: [Spread; 4]) -> Option<String> {
    let mut steps: Vec<_> = table.values("step").into_iter().zip(steps).collect();
    steps.sort_by(|a, b| b.1.median.total_cmp(&a.1.median));
    let [most, second, ..] = steps.as_slice() else {
        return None;
    };
    let [first, next] = [most, second].map(|step| format!("\"{}\", {} ns", step.0, step.1.text(0)));
    Some(match most.1.order(second.1) {
        Some(_) => format!("The largest step is {first}."),
        None => format!("The runs do not say which step is the largest: {first}; {next}."),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    #[test]
    fn shares_and_the_largest_step_follow_from_the_measurements() {
        const STEPS: &str = "step,ns_per_report,percent\nreceive,0,0\ndecode,0,0\nstate,0,0\nstore,0,0\n";
        fn observed(storing: &str) -> Observations {
            let measured = format!(
                "measured,ns_per_report,ns_per_report_min,ns_per_report_max\nreceiving,100,90,110\ndecoding,60,60,60\n\
                 \"decoding, state, detection\",90,90,90\n\"all of these, and storing\",{storing}\n"
            );
            observe(&Results::parse([("steps", STEPS), ("measured", &*measured)]))
        }
        let clear = observed("100,100,100");
        assert_eq!(
            clear.remarks[0],
            "The largest step is \"receive\", 100 (90 to 110) ns."
        );
        let hopwise: Vec<_> = clear
            .comparisons
            .unwrap()
            .into_iter()
            .map(|one| one.hopwise)
            .collect();
        assert_eq!(
            hopwise,
            [
                "20 (19 to 21) % with the socket's time, 40 (40 to 40) % without it",
                "0.4 (0.4 to 0.4)"
            ]
        );
        assert_eq!(
            observed("180,170,300").remarks[0],
            "The runs do not say which step is the largest: \"receive\", 100 (90 to 110) ns; \"store\", 90 (80 to 210) ns."
        );
    }
}
