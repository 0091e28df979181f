//! Where a collector on the CPU spends its time: receiving, decoding, state and detection, storing (Fig. 1).

use collector::workload::{Case, Values};

use super::cpu;
use crate::experiment::{
    loopback::{self, Served},
    monitor_rate,
    page::{Cell, Comparison, Findings, Table, linear},
    rows::{Observations, Results, extremes, judgement},
    settings::{Parameter, Settings},
    timing::{self, Spread},
};
use crate::svg::{Axis, Plot, Series, Style};
use terminal::CliError;

pub(in super::super) const PARAMETERS: &[Parameter] = &[
    Parameter::runs(),
    Parameter::span(&[300]),
    Parameter::new("rate", &[100_000], 1_000..=1_000_000, "reports per second of the receiving step"),
];

/// The paper's share of data wrangling and storing, and the ratio of both to I/O.
const PAPER: (f64, f64) = (93.0, 90.0);

/// Nanoseconds of CPU time per report of each step.
struct Steps {
    receiving: Spread,
    decoding: Spread,
    state: Spread,
    stored: Spread,
}

impl Steps {
    /// Name and time of each step; a difference of medians has no spread.
    fn each(&self) -> [(&'static str, f64); 4] {
        [
            ("receive (I/O)", self.receiving.median),
            ("decode (parsing)", self.decoding.median),
            ("state and detection (wrangling)", (self.state.median - self.decoding.median).max(0.0)),
            ("row and indexes (storing)", (self.stored.median - self.state.median).max(0.0)),
        ]
    }
}

pub(in super::super) fn run(settings: &Settings) -> Result<Findings, CliError> {
    let case = cpu::stored_case(settings);
    let payloads: Vec<Vec<u8>> = case.feed().payloads().take(4_096).map(<[u8]>::to_vec).collect();
    let receiving = Spread::runs(settings, || {
        let served = loopback::serve(&payloads, settings.one("rate"), timing::span(settings), |datagrams| {
            std::hint::black_box(datagrams);
        })?;
        Ok(Served::ns_per_report(&served))
    })?;
    let constant = Case { values: Values::Constant, ..case };
    let steps = Steps {
        receiving,
        decoding: Spread::runs(settings, || monitor_rate::decoding(settings, &constant))?,
        state: Spread::runs(settings, || monitor_rate::all(settings, &constant))?,
        stored: cpu::stored(settings)?.0,
    };
    Ok(findings(&steps))
}

fn findings(steps: &Steps) -> Findings {
    let each = steps.each();
    let sum: f64 = each.iter().map(|one| one.1).sum();
    let row = |one: &(&str, f64)| {
        vec![Cell::from(one.0), Cell::Figure(one.1, 1), Cell::Figure(100.0 * one.1 / sum, 1)]
    };
    let measured = [
        ("receiving", steps.receiving),
        ("decoding", steps.decoding),
        ("decoding, state, detection", steps.state),
        ("all of these, and storing", steps.stored),
    ];
    let measured_row = |(name, spread): &(&str, Spread)| {
        let mut row = vec![Cell::from(*name)];
        row.extend(spread.cells(1));
        row
    };
    let bars = (0_u32..).zip(&each).map(|(at, one)| (f64::from(at), 100.0 * one.1 / sum));
    Findings {
        method: "INT reports of paths of five nodes (100,000 flows), each with one change that becomes an indexed row of the store. Receiving is measured \
                 over loopback, with a receiver that discards; the other steps in process: decoding alone, with state and detection, and with the \
                 store. A step is the difference to the one before it."
            .into(),
        conditions: vec![
            "receiving: CPU time of the receiving thread; on loopback, the kernel does part of that work in the sender's context, which is not counted"
                .into(),
            "decoding and state are measured with constant values; the cost of a change's event is in the last step".into(),
            "the paper: Confluo, 100,000 reports, Intel Xeon Silver 4114 (2.20 GHz), I/O by DPDK; Confluo was not run here".into(),
            timing::condition(),
        ],
        tables: vec![
            Table {
                name: "steps",
                about: "CPU time of a report by step".into(),
                columns: vec!["step", "ns_per_report", "percent"],
                rows: each.iter().map(row).collect(),
                plots: vec![Plot {
                    note: "the paper: wrangling and storing together 93 %".into(),
                    title: "CPU time of a report by step (Fig. 1)".into(),
                    x: Axis { categories: ["receive", "decode", "state", "store"].map(str::to_owned).into(), ..linear("") },
                    y: linear("per cent"),
                    series: vec![Series::new("hopwise", Style::Bars, bars)],
                }],
            },
            Table {
                name: "measured",
                about: "What was measured".into(),
                columns: vec!["measured", "ns_per_report", "ns_per_report_min", "ns_per_report_max"],
                rows: measured.iter().map(measured_row).collect(),
                plots: Vec::new(),
            },
        ],
        ..Findings::default()
    }
}

/// Computes comparisons and remarks from the rows.
pub(in super::super) fn observe(results: &Results) -> Observations {
    let rows = results.table("steps");
    let ns: Vec<f64> = rows.iter().map(|row| row.number("ns_per_report")).collect();
    let sum: f64 = ns.iter().sum();
    let receiving = ns.first().copied().unwrap_or(f64::NAN);
    let later: f64 = ns.iter().skip(2).sum();
    let (share, without) = (100.0 * later / sum, 100.0 * later / (sum - receiving));
    let comparisons = vec![
        Comparison::new(
            "state, detection and storing: share of the CPU time",
            format!("{} % (wrangling and storing)", PAPER.0),
            format!("{share:.0} % with the socket's time, {without:.0} % without it"),
        ),
        Comparison::new(
            "the same compared with I/O",
            format!("almost {} times", PAPER.1),
            format!("{:.1} times", later / receiving),
        ),
    ];
    let mut remarks = Vec::new();
    if let Some((_, most)) = extremes(&rows.with(&[]), "ns_per_report") {
        remarks.push(format!(
            "The largest step is \"{}\": {} of {sum:.0} ns ({} %).",
            most.text("step"),
            most.text("ns_per_report"),
            most.text("percent")
        ));
    }
    remarks.push(judgement(
        "the paper's I/O is DPDK, ours a socket, so neither the ratio to I/O nor a share of the time with I/O is comparable. The share without I/O is \
         closer to a comparison, but of another collector and another store.",
    ));
    Observations { comparisons: Some(comparisons), remarks }
}

#[cfg(test)]
mod tests {
    use super::*;
    #[test]
    fn shares_are_given_with_and_without_the_socket() {
        let csv = "step,ns_per_report,percent\nreceive,100.0,50.0\ndecode,60.0,30.0\nstate,30.0,15.0\nstore,10.0,5.0\n";
        let observed = observe(&Results::parse([("steps", csv)]));
        assert_eq!(observed.remarks[0], "The largest step is \"receive\": 100.0 of 200 ns (50.0 %).");
        let hopwise: Vec<_> = observed.comparisons.unwrap().into_iter().map(|one| one.hopwise).collect();
        assert_eq!(hopwise, ["20 % with the socket's time, 40 % without it", "0.4 times"]);
    }
}
