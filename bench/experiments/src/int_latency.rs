//! Experiment `int-latency`: the latency that INT adds to a packet in a software switch (INTCollector, Fig. 9). Real packets
//! pass, one at a time, through the processes of hopwise's switch and of BMv2, each between two veth links.

mod bmv2;
mod hopwise;
mod lane;

use std::thread;

use super::{
    page::{Cell, Comparison, Findings, Outcome as _, Table, fixed, line_series, linear, row},
    rows::{Observations, Results, Rows, judgement},
    settings::{Parameter, Settings},
    timing::Spread,
};
use crate::figures::failed;
use lane::Lane;
use terminal::CliError;

pub(super) const PARAMETERS: &[Parameter] = &[
    Parameter::runs(),
    Parameter::scaled("packets", [&[2_000], &[300], &[20]], 10..=1_000_000)
        .help("packets through each switch in a run"),
];

/// The paper's latency added by INT, us.
const PAPER_ADDED_US: f64 = 0.692;
/// The paper's share of that in the latency with INT.
const PAPER_SHARE: f64 = 0.01587;
const PERCENTILES: [f64; 9] = [1.0, 5.0, 10.0, 25.0, 50.0, 75.0, 90.0, 95.0, 99.0];

/// The INT role of a switch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Task {
    /// The switch forwards packets without INT.
    Plain,
    /// The switch adds INT, and packets leave with it.
    Source,
    /// The switch adds INT, strips it again, and reports each packet.
    SourceAndSink,
}

const TASKS: [(Task, &str); 3] = [
    (Task::Plain, "no INT"),
    (Task::Source, "source"),
    (Task::SourceAndSink, "source and sink"),
];

/// Packets after which the receiving host announces itself again, because a switch forgets hosts that send nothing.
const ANNOUNCE: u64 = 10;
/// The orders in which the switches get a packet. Over six packets, each comes first, and after each other one, equally often.
const ORDERS: [[usize; 3]; 6] = [[0, 1, 2], [2, 1, 0], [1, 2, 0], [0, 2, 1], [2, 0, 1], [1, 0, 2]];

/// The results of one switch in all runs.
#[derive(Debug, Default)]
struct Measured {
    /// Medians of the runs, ns.
    medians: Vec<f64>,
    /// Medians of the differences from the same switch without INT, one run each, ns.
    added: Vec<f64>,
    /// Latencies of all packets, ns.
    all: Vec<f64>,
    /// Number of packets that did not come back.
    lost: u64,
}

/// Runs the experiment. Fails without root, `ip` or the program `hopwise`, or if a switch does not forward.
pub(super) fn run(settings: &Settings) -> Result<Findings, CliError> {
    let (program, of) = hopwise::program()?;
    let own = hopwise::lanes(&program)?;
    let (bmv2, version) = match bmv2::lanes() {
        Ok((lanes, version)) => (Some(lanes), version),
        Err(why) => {
            eprintln!("SKIPPED BMv2: {why}");
            (None, format!("not measured: {why}"))
        }
    };
    let mut switches = vec![("hopwise", own)];
    switches.extend(bmv2.map(|lanes| ("BMv2", lanes)));
    let mut measured: Vec<(&str, [Measured; 3])> = Vec::new();
    for (name, lanes) in &mut switches {
        // A separate thread, because it stays pinned to its core.
        let of_tasks = thread::scope(|scope| {
            scope
                .spawn(|| {
                    lane::be_the_host();
                    let mut of_tasks: [Measured; 3] = Default::default();
                    (0..settings.value("runs"))
                        .for_each(|_| measure(lanes, settings.value("packets"), &mut of_tasks));
                    of_tasks
                })
                .join()
        })
        .map_err(|_| failed("a thread panicked"))?;
        measured.push((*name, of_tasks));
    }
    if let Some((name, _)) = measured
        .iter()
        .find(|(_, tasks)| tasks.iter().any(|task| task.all.is_empty()))
    {
        return Err(CliError::new(format!(
            "{name} lost every packet; free the machine's cores, and try again"
        )));
    }
    Ok(findings(&measured, [of, format!("BMv2: {version}")]))
}

/// Measures one run. Each packet number goes through every switch in turn, so that a disturbance affects all of them.
fn measure(lanes: &mut [Lane; 3], packets: u64, measured: &mut [Measured; 3]) {
    let (mut latencies, mut added): ([Vec<f64>; 3], [Vec<f64>; 3]) = Default::default();
    for number in 0..packets {
        let mut round = [None; 3];
        if number.is_multiple_of(ANNOUNCE) {
            lanes.iter_mut().for_each(Lane::announce);
        }
        for at in ORDERS[number as usize % ORDERS.len()] {
            round[at] = lanes[at].send(number).map(|ns| ns as f64);
            // The switch may still be sending its report.
            lane::pause(round[at].unwrap_or_default() as u64);
        }
        for (at, latency) in round.iter().enumerate() {
            match latency {
                Some(latency) => latencies[at].push(*latency),
                None => measured[at].lost += 1,
            }
            if let (Some(with), Some(without)) = (latency, round[0]) {
                added[at].push(with - without);
            }
        }
    }
    for ((of_run, added), measured) in latencies.into_iter().zip(added).zip(measured) {
        measured.medians.push(Spread::of(of_run.clone()).median);
        measured.added.push(Spread::of(added).median);
        measured.all.extend(of_run);
    }
}

/// Returns a percentile of sorted values; NaN if there are none.
fn percentile(sorted: &[f64], percent: f64) -> f64 {
    let last = sorted.len().saturating_sub(1);
    sorted
        .get((last as f64 * percent / 100.0).round() as usize)
        .copied()
        .unwrap_or(f64::NAN)
}

fn sorted(measured: &Measured) -> Vec<f64> {
    let mut all = measured.all.clone();
    all.sort_by(f64::total_cmp);
    all
}

fn findings(measured: &[(&str, [Measured; 3])], versions: [String; 2]) -> Findings {
    Findings::new(
        METHOD,
        CONDITIONS.map(str::to_owned).into_iter().chain(versions),
        [latency(measured), distribution(measured)],
    )
}

const METHOD: &str = "A host sends UDP packets of 200 bytes of payload over a veth link to a switch, and receives them over another one. The switch is a process in a network \
                      namespace of its own. One packet is under way at a time; its latency is the time from before the host sends it until the host sees it. Three \
                      processes of a switch, one for each row, get the packets in turn.";
const CONDITIONS: [&str; 4] = [
    "the host's thread on core 0, busy-waiting; the switches on core 1, sleeping until a packet arrives; between two packets a pause of 200 us and the latency of \
     the one before",
    "hopwise: INT-MD 2.1 with the default items; BMv2: `int.p4` of this project, INT-MD 2.1 with node id, interfaces, latency, queue and timestamps; \
     `no INT` is the same program without entries that measure",
    "the paper: a host and a switch (Wedge 100B) with and without INT, source, transit and sink enabled, mean of 10,000 packets; without INT, the switch has a program \
     without it",
    "`added_ns`: the median of the differences of packets with the same number, for each run; the median of the runs, `_min` and `_max` the smallest and largest run. \
     Likewise `median_ns`. Percentiles are of the packets of all runs",
];

/// Computes comparisons and remarks from the rows.
pub(super) fn observe(results: &Results) -> Observations {
    let rows = results.table("added");
    let comparisons: Vec<_> = rows
        .values("switch")
        .into_iter()
        .map(|switch| comparison(&rows, switch))
        .collect();
    let mut remarks: Vec<String> = rows
        .iter()
        .filter(|row| row.number("added_ns_min") <= 0.0 && row.number("added_ns_max") >= 0.0)
        .map(|row| {
            row.fill(
                "{switch}, {int}: in some runs INT added time, in others it took some away ({added_ns~} ns), so the runs do not show a difference.",
            )
        })
        .collect();
    remarks.extend(
        [
            "the paper's latency is that of a chip, two links and a NIC. Ours is that of a process on a core: two veth links, the system calls that send and \
             receive at both ends, and the wake-up of the process, which all packets have, with INT or without.",
            "a packet comes here when the switch has slept, so the times are not those of packets one after the other: see [switch-cost](switch-cost.md).",
        ]
        .map(judgement),
    );
    Observations::new(comparisons, remarks)
}

fn comparison(rows: &Rows, switch: &str) -> Comparison {
    let texts = ["source and sink", "source"].map(|int| {
        let row = rows.find(&[("switch", switch), ("int", int)]);
        let text = row.map(|row| {
            format!(
                "{int}: {} us, {:.1} % of {:.1} us",
                row.spread("added_ns").map(|ns| ns / 1e3).text(2),
                100.0 * row.number("added_ns") / row.number("median_ns"),
                row.number("median_ns") / 1e3
            )
        });
        text.text()
    });
    Comparison::new(
        format!("{switch}: latency that INT adds, and its share of the latency with INT"),
        format!(
            "{} us, {:.3} % of {:.1} us (source, transit and sink)",
            PAPER_ADDED_US,
            PAPER_SHARE * 100.0,
            PAPER_ADDED_US / PAPER_SHARE
        ),
        texts.join("; "),
    )
}

fn latency(measured: &[(&str, [Measured; 3])]) -> Table {
    let columns = "switch,int,packets,lost,median_ns,median_ns_min,median_ns_max,mean_ns,\
        added_ns,added_ns_min,added_ns_max";
    let mut table = Table::new("added", "Latency with and without INT", columns);
    for (name, tasks) in measured {
        for (task, (kind, does)) in tasks.iter().zip(TASKS) {
            let added = if kind == Task::Plain {
                [const { Cell::Empty }; 3]
            } else {
                Spread::of(task.added.clone()).cells(0)
            };
            table.push(row![
                *name,
                does,
                task.all.len(),
                task.lost,
                Spread::of(task.medians.clone()).cells(0),
                fixed(task.all.iter().sum::<f64>() / task.all.len().max(1) as f64, 0),
                added,
            ]);
        }
    }
    table
}

fn distribution(measured: &[(&str, [Measured; 3])]) -> Table {
    let columns = "switch,int,p1,p5,p10,p25,p50,p75,p90,p95,p99";
    let mut table = Table::new("distribution", "Percentiles of the latency, ns", columns);
    for (name, tasks) in measured {
        let mut series = Vec::new();
        for (task, (_, does)) in tasks.iter().zip(TASKS) {
            let all = sorted(task);
            let percentiles = PERCENTILES.map(|percent| fixed(percentile(&all, percent), 0));
            table.push(row![*name, does, percentiles]);
            let points = (1..=99)
                .map(f64::from)
                .map(|percent| (percentile(&all, percent) / 1e3, percent));
            series.push(line_series(does, points.collect()));
        }
        let y = linear("packets with at most this latency (%)");
        let title = format!("Distribution of the latency through {name}");
        let note = "one packet at a time, over veth links";
        table.plot(title, note, [linear("latency (us)"), y], series);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_int_adds_is_the_difference_of_packets_with_the_same_number() {
        let measured = |added: f64| Measured {
            medians: vec![40_000.0 + added, 50_000.0 + added, 60_000.0 + added],
            added: vec![added - 100.0, added, added + 100.0],
            all: (0..=100).map(|at| 1_000.0 * f64::from(at)).collect(),
            lost: 1,
        };
        let page = findings(
            &[("hopwise", [measured(0.0), measured(500.0), measured(50.0)])],
            Default::default(),
        );
        let observed = observe(&Results::new(&page.tables));
        assert_eq!(
            observed.comparisons.unwrap()[0].hopwise,
            "source and sink: 0.05 (-0.05 to 0.15) us, 0.1 % of 50.0 us; source: 0.50 (0.40 to 0.60) us, 1.0 % of 50.5 us"
        );
        let unclear = "hopwise, source and sink: in some runs INT added time";
        let remarks = observed.remarks;
        assert!(
            remarks.len() == 3 && remarks[0].starts_with(unclear),
            "{remarks:?}"
        );
        let csv = page.tables[0].csv();
        assert_eq!(
            csv.lines().nth(2),
            Some("hopwise,source,101,1,50500,40500,60500,50000,500,400,600")
        );
        assert_eq!(
            page.tables[1].csv().lines().nth(1),
            Some("hopwise,no INT,1000,5000,10000,25000,50000,75000,90000,95000,99000")
        );
    }
}
