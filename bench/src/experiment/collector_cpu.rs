//! CPU time of the collector per report: by rate, and by flows, hops, fields and events (INTCollector, Figs. 11, 12 and 14).

use std::{cmp::Ordering, fs, path::PathBuf};

use collector::{Batch, Collector, Datagram};
use store::Store;
use testkit::workload::collector::{Case, Feed, Values};

use super::{
    loopback::{self, Served},
    page::{Cell, Comparison, Findings, Table, linear, log, mark_series},
    rows::{NOT_RUN, Observations, Results, Row, Rows, extremes, judgement, listed},
    settings::{Parameter, Settings},
    timing::{self, Spread},
};
use crate::{
    figures::failed,
    svg::{Plot, Series, Style},
};
use terminal::{CliError, units};

pub(super) const PARAMETERS: &[Parameter] = &[
    Parameter::runs(),
    Parameter::span(&[300]),
    Parameter::new(
        "rate",
        &[1_000, 10_000, 30_000, 100_000, 200_000, 400_000],
        100..=10_000_000,
    )
    .help("reports sent per second"),
    Parameter::new("flows", &[1, 10, 100, 500, 1_000, 2_000], 1..=1_000_000)
        .help("flows, with six hops and node IDs only"),
    Parameter::new("nodes", &[1, 2, 3, 4, 5, 6], 1..=6)
        .help("hops of a report, with 100 flows and all items"),
    Parameter::new("items", &[1, 2, 3, 4, 5, 6, 7, 8], 1..=8)
        .help("instructions, in the order of the bitmap, with 100 flows and six hops"),
    Parameter::new("events", &[0, 1_000, 10_000, 100_000, 1_000_000], 0..=1_000_000)
        .help("events per million reports, with 100 flows, three hops and all items"),
];

/// All eight instructions, which are the nine fields of the paper: level-1 interfaces are two.
const ALL: u16 = 0xff00;
/// Reports in a call of the collector.
const BURST: usize = 64;
const BATCH: usize = 8_192;
/// The lines that the paper fits to its measurements of CPU usage: name, per cent per 1,000 reports/s, and per cent when idle.
const PAPER: [(&str, f64, f64); 4] = [
    ("IntMon collector", 9.71, 1.64),
    ("INTCollector without event detection", 5.39, 3.69),
    ("Prometheus INT exporter", 0.175, 22.9),
    ("INTCollector", 0.00646, 0.082),
];

/// Names of the two series by rate.
const DETECTION: &str = "event detection";
const STORING: &str = "a stored row for each report";

/// The characteristics of Fig. 12, with the paper's last point of each.
const CHARACTERISTICS: [(&str, &str); 4] = [
    ("flows", "up to 8.79 % of the CPU for 2,000 flows"),
    ("hops", "up to 12.06 % for six hops"),
    ("instructions", "up to 12.59 % for all fields"),
    ("events per million reports", "up to 15.04 % for 1,000 events/s"),
];

/// Nanoseconds per report, from per cent of a core per 1,000 reports/s.
fn per_report(percent: f64) -> f64 {
    percent * 1e4
}

pub(super) fn run(settings: &Settings) -> Result<Findings, CliError> {
    let by_rate = by_rate(settings)?;
    let series = characteristics(settings)?;
    Ok(findings(&by_rate, &series))
}

/// The runs at one rate: with event detection only, or (`stores`) with a stored row for each report.
struct ByRate {
    wanted: u64,
    stores: bool,
    runs: Vec<Served>,
}

impl ByRate {
    fn spread(&self, of: fn(&Served) -> f64) -> Spread {
        Spread::of(self.runs.iter().map(of).collect())
    }
}

/// One flow of six hops with all items, over loopback.
fn by_rate(settings: &Settings) -> Result<Vec<ByRate>, CliError> {
    let constant = Case {
        flows: 1,
        hops: 6,
        bitmap: ALL,
        ..Case::PLAIN
    };
    let mut found = Vec::new();
    for stores in [false, true] {
        let case = if stores {
            Case {
                values: Values::Change,
                ..constant
            }
        } else {
            constant
        };
        let payloads: Vec<Vec<u8>> = case.feed().payloads().map(<[u8]>::to_vec).collect();
        for &wanted in settings.list("rate") {
            let runs = (0..settings.one("runs")).map(|_| once(settings, &case, &payloads, wanted, stores));
            found.push(ByRate {
                wanted,
                stores,
                runs: runs.collect::<Result<_, _>>()?,
            });
        }
    }
    Ok(found)
}

/// A directory of a store, removed on drop.
struct Directory(PathBuf);

impl Drop for Directory {
    fn drop(&mut self) {
        // Failure is harmless: the directory is among the temporary files.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// One run: detection only, or a row in the store for each report.
fn once(
    settings: &Settings,
    case: &Case,
    payloads: &[Vec<u8>],
    rate: u64,
    stores: bool,
) -> Result<Served, CliError> {
    let directory =
        Directory(std::env::temp_dir().join(format!("hopwise-collector-cpu-{}", std::process::id())));
    fs::create_dir_all(&directory.0).map_err(failed)?;
    let config = store::Config {
        ..store::Config::new(&directory.0)
    };
    let store = if stores {
        Some(Store::open(config).map_err(failed)?)
    } else {
        None
    };
    let mut collector = case.collector();
    let mut batch = Batch::with_capacity(BATCH);
    let mut ticked = 0;
    let served = loopback::serve(payloads, rate, timing::span(settings), |datagrams| {
        collector.handle(datagrams, &mut batch);
        let now = datagrams.last().map_or(ticked, |last| last.received);
        if now.saturating_sub(ticked) >= 20_000_000 {
            ticked = now;
            collector.tick(now, &mut batch);
        }
        match &store {
            Some(store) if batch.len() > BATCH / 2 || datagrams.is_empty() => {
                let full = std::mem::take(&mut batch);
                batch = store.submit(full);
                if datagrams.is_empty() {
                    store.flush();
                }
            }
            None if batch.len() > BATCH / 2 => batch.clear(),
            _ => {}
        }
    })?;
    if let Some(store) = store {
        store.finish();
    }
    Ok(served)
}

/// CPU time by one characteristic of the reports, in process.
struct Characteristic {
    name: &'static str,
    points: Vec<(u64, Spread)>,
}

fn characteristics(settings: &Settings) -> Result<[Characteristic; 4], CliError> {
    let base = Case {
        flows: 100,
        hops: 6,
        bitmap: ALL,
        ..Case::PLAIN
    };
    let flows = by_value(settings, "flows", |flows| {
        let case = Case {
            flows: flows as u32,
            bitmap: 0x8000,
            ..base
        };
        (case, 0)
    })?;
    let hops = by_value(settings, "nodes", |hops| {
        let case = Case {
            hops: hops as u8,
            ..base
        };
        (case, 0)
    })?;
    let items = by_value(settings, "items", |items| {
        let case = Case {
            bitmap: ALL & !(0xffff >> items),
            ..base
        };
        (case, 0)
    })?;
    let events = by_value(settings, "events", |events| {
        let case = Case {
            hops: 3,
            values: Values::Change,
            ..base
        };
        (case, events)
    })?;
    Ok([
        ("flows", flows),
        ("hops", hops),
        ("instructions", items),
        ("events per million reports", events),
    ]
    .map(|(name, points)| Characteristic { name, points }))
}

/// The time of a report for each value of a parameter; `case` makes a workload of the value, with its events.
fn by_value(
    settings: &Settings,
    name: &str,
    case: impl Fn(u64) -> (Case, u64),
) -> Result<Vec<(u64, Spread)>, CliError> {
    let values = settings.list(name);
    let costs = timing::in_turn(settings, values, |value| {
        let (case, events) = case(*value);
        cost(settings, &case, events)
    })?;
    Ok(values.iter().copied().zip(costs).collect())
}

/// Nanoseconds per report. Of a million reports, `events` contain a change.
fn cost(settings: &Settings, case: &Case, events: u64) -> Result<f64, CliError> {
    let mut collector = case.collector();
    let feed = case.feed();
    let mut batch = Batch::with_capacity(BATCH);
    let rounds = rounds(&feed, case.flows as usize);
    // All flows change in one of `period` rounds. The share is exact over a period if `events` divides a million.
    let period = 1_000_000_u64.checked_div(events).unwrap_or(u64::MAX);
    let mut round = 0;
    let mut changed = 0;
    let mut now = 1_700_000_000_000_000_000;
    // At least one period, and enough reports that the clock is read rarely; whole periods for the default numbers of events.
    let passes = if events == 0 { 1 } else { period }.max(2_048 / u64::from(case.flows));
    timing::once(settings, || {
        for _ in 0..passes {
            round += 1;
            if rounds.len() > 1 && round % period == 0 {
                changed = 1 - changed;
            }
            for burst in rounds[changed].chunks(BURST) {
                now += 100 * burst.len() as u64;
                handle(&mut collector, burst, now, &mut batch);
            }
            if batch.len() > BATCH / 2 {
                batch.clear();
            }
        }
        Ok(passes * u64::from(case.flows))
    })
}

/// The payloads of each pass over all flows.
fn rounds(feed: &Feed, flows: usize) -> Vec<Vec<&[u8]>> {
    feed.payloads()
        .collect::<Vec<_>>()
        .chunks(flows)
        .map(<[&[u8]]>::to_vec)
        .collect()
}

/// Processes up to a burst of payloads, all received at `now`.
pub(super) fn handle(collector: &mut Collector, payloads: &[impl AsRef<[u8]>], now: u64, batch: &mut Batch) {
    let none = Datagram {
        payload: &[],
        source: [0; 16],
        src_port: 40_000,
        listener: 0,
        received: now,
    };
    let mut datagrams = [none; BURST];
    for (slot, payload) in datagrams.iter_mut().zip(payloads) {
        slot.payload = payload.as_ref();
    }
    collector.handle(&datagrams[..payloads.len()], batch);
}

fn series_name(stores: bool) -> &'static str {
    if stores { STORING } else { DETECTION }
}

fn rate_table(by_rate: &[ByRate]) -> Table {
    let ends = by_rate
        .iter()
        .map(|one| one.wanted as f64)
        .fold((f64::INFINITY, 1.0_f64), |ends, rate| {
            (ends.0.min(rate), ends.1.max(rate))
        });
    let paper = PAPER.iter().map(|(name, slope, rest)| {
        // The paper's line, up to 100 % of its core.
        let points = (0..=8).map(|step| ends.0 * (ends.1 / ends.0).powf(f64::from(step) / 8.0));
        let points = points
            .map(|rate| (rate, slope * rate / 1e3 + rest))
            .filter(|point| point.1 <= 100.0);
        mark_series(&format!("the paper, {name}"), points.collect())
    });
    Table {
        name: "rate",
        about: "CPU by report rate, over loopback; one flow, six hops, all items".into(),
        columns: "hopwise,wanted_per_s,sent_per_s,lost_percent,cpu_percent,cpu_percent_min,\
            cpu_percent_max,ns_per_report,ns_per_report_min,ns_per_report_max"
            .into(),
        rows: by_rate
            .iter()
            .map(|one| {
                let mut row = vec![series_name(one.stores).into(), one.wanted.into()];
                row.push(Cell::Figure(one.spread(Served::sent_per_second).median, 0));
                row.push(Cell::Figure(
                    one.spread(|run| 100.0 * (run.sent - run.received) as f64 / run.sent as f64)
                        .median,
                    2,
                ));
                row.extend(one.spread(Served::percent).cells(3));
                row.extend(one.spread(Served::ns_per_report).cells(0));
                row
            })
            .collect(),
        plots: vec![Plot {
            note: "marks: the paper's fitted lines, on its machine".into(),
            title: "CPU by report rate (Fig. 11)".into(),
            x: log("reports per second"),
            y: log("CPU (per cent of a core)"),
            series: [false, true]
                .map(|stores| Series {
                    name: format!("hopwise, {}", series_name(stores)),
                    style: Style::Line,
                    points: by_rate
                        .iter()
                        .filter(|one| one.stores == stores)
                        .map(|one| {
                            one.spread(Served::percent)
                                .point(one.spread(Served::received_per_second).median)
                        })
                        .collect(),
                })
                .into_iter()
                .chain(paper)
                .collect(),
        }],
    }
}

fn characteristics_table(series: &[Characteristic]) -> Table {
    let rows = series.iter().flat_map(|one| {
        one.points.iter().map(|(value, spread)| {
            let mut row = vec![one.name.into(), (*value).into()];
            row.extend(spread.cells(1));
            row
        })
    });
    Table {
        name: "reports",
        about: "CPU time of a report by its characteristics, in process".into(),
        columns: "by,value,ns_per_report,ns_per_report_min,ns_per_report_max".into(),
        rows: rows.collect(),
        plots: series
            .iter()
            .map(|one| Plot {
                note: "in process".into(),
                title: format!("CPU time of a report by {} (Fig. 12)", one.name),
                // Zero events have no place on a logarithmic axis, and are in the table.
                x: if one.points.len() > 1 && one.points[one.points.len() - 1].0 > 20 {
                    log(one.name)
                } else {
                    linear(one.name)
                },
                y: linear("per report (ns)"),
                series: vec![Series {
                    name: "hopwise".into(),
                    style: Style::Line,
                    points: one
                        .points
                        .iter()
                        .map(|(value, spread)| spread.point(*value as f64))
                        .collect(),
                }],
            })
            .collect(),
    }
}

fn findings(by_rate: &[ByRate], series: &[Characteristic]) -> Findings {
    Findings {
        method: "Reports as INTCollector's generator sends them (Telemetry Report 1.0, INT 1.0). By rate: a sender passes reports over loopback to one \
                 receiving thread with the collector. With event detection, the values are constant. Without, each report contains a change, which \
                 becomes a row of the store. By characteristics: the collector processes payloads in memory; no I/O, nothing is stored."
            .into(),
        conditions: vec![
            "by rate: CPU time of the process without the sender, user and system. On loopback, the kernel does part of the receive work \
             in the sender's context, which is not counted; the paper's figures contain all of it"
                .into(),
            "the paper: one core of an Intel Core i5 3570 (3.4 GHz) in a virtual machine; the fast path in the kernel (XDP), in C, the rest in Python; \
             its values are those of its text, since the figures' data is not published"
                .into(),
            timing::condition(),
        ],
        tables: vec![rate_table(by_rate), characteristics_table(series)],
        ..Findings::default()
    }
}

/// Computes comparisons and remarks from the rows.
pub(super) fn observe(results: &Results) -> Observations {
    let by_rate = results.table("rate");
    let series = results.table("reports");
    let mut comparisons = vec![
        Comparison::new(
            "CPU per report, event detection (Fig. 11)",
            paper(3),
            range(&by_rate, DETECTION),
        ),
        Comparison::new(
            "CPU per report, every report stored (ours: one changed value of each report)",
            paper(1),
            range(&by_rate, STORING),
        ),
        Comparison::new("CPU per report, IntMon collector", paper(0), "not run here"),
        Comparison::new(
            "CPU per report, Prometheus INT exporter",
            paper(2),
            "not run here",
        ),
    ];
    let mut remarks = Vec::new();
    for by in series.values("by") {
        let rows = series.with(&[("by", by)]);
        let Some((first, last)) = rows.first().zip(rows.last()) else {
            continue;
        };
        let paper = CHARACTERISTICS
            .iter()
            .find(|one| one.0 == by)
            .map_or("", |one| one.1);
        let ends = format!("{}, {}", first.fill(OF_VALUE), last.fill(OF_VALUE));
        remarks.push(direction(by, &rows, &ends));
        comparisons.push(Comparison::new(format!("by {by} (Fig. 12)"), paper, ends));
    }
    comparisons.push(Comparison::new(
        "with and without SR-IOV (Fig. 14)",
        "49.38 % less CPU at 2 Gb/s, 6.15 % less at 10 Gb/s",
        "not reproduced: needs a NIC with SR-IOV",
    ));
    remarks.extend(ratio(&by_rate));
    remarks.extend(REMARKS.map(judgement));
    Observations {
        comparisons: Some(comparisons),
        remarks,
    }
}

const REMARKS: [&str; 3] = [
    "the paper's fast path works in the kernel (XDP), before a socket; this experiment receives from a socket, so its Fig. 11 is not repeated here. \
     `hopwise bench peers` runs INTCollector's XDP program beside those of hopwise (see the [figures](../reference/performance.md)).",
    "storing is not like with like: the paper stores all values of a report, 6 hops with 9 fields; here one value of each report changes and is stored.",
    "the paper's text gives the CPU usage of Fig. 12 at the last point of each series, without the report rate, so a time per report cannot be derived \
     from it; only the direction can be compared, and the paper says that each characteristic raises the CPU usage.",
];

const NS: &str = "ns_per_report";
const OF_VALUE: &str = "{ns_per_report~} ns for {value}";

/// The paper's time of a report for a line of [`PAPER`].
fn paper(at: usize) -> String {
    let slope = PAPER[at].1;
    format!(
        "{} ns ({slope} % per 1,000 reports/s)",
        units::count(per_report(slope).round() as u64)
    )
}

/// Smallest and largest time of a report, by rate.
fn range(by_rate: &Rows, kind: &str) -> String {
    extremes(&by_rate.with(&[("hopwise", kind)]), NS).map_or_else(
        || NOT_RUN.into(),
        |ends| {
            let [low, high] =
                [ends.0, ends.1].map(|row| row.fill("{ns_per_report~} ns at {wanted_per_s} reports/s"));
            format!("{low} to {high}")
        },
    )
}

/// Says whether a characteristic changes the time of a report by more than the spread of the runs, over all and between neighbours.
fn direction(by: &str, rows: &[Row<'_>], ends: &str) -> String {
    let whole = match rows
        .first()
        .zip(rows.last())
        .and_then(|(first, last)| last.spread(NS).order(first.spread(NS)))
    {
        Some(Ordering::Greater) => "rises, as in the paper",
        Some(_) => "falls, unlike in the paper",
        None => "does not change by more than the runs differ",
    };
    let falls = rows
        .windows(2)
        .filter(|pair| pair[1].spread(NS).order(pair[0].spread(NS)) == Some(Ordering::Less))
        .map(|pair| format!("{} to {}", pair[0].fill("{value}"), pair[1].fill("{value}")));
    let between = listed(" It falls from {}.", falls).unwrap_or_default();
    format!("By {by}, the time of a report {whole}: {ends}.{between}")
}

/// Compares a stored with a detected report at the highest rate of both series.
fn ratio(by_rate: &Rows) -> Option<String> {
    let detection = by_rate.with(&[("hopwise", DETECTION)]).last().copied()?;
    let storing = by_rate.with(&[("hopwise", STORING)]).last().copied()?;
    Some(format!(
        "At {} reports/s, the time of a report with a stored row, compared with one without, is {}; in the paper {:.0}.",
        storing.fill("{wanted_per_s}"),
        storing.spread(NS).over(detection.spread(NS)).ratio_text(1),
        per_report(PAPER[1].1) / per_report(PAPER[3].1)
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_papers_slopes_are_times_per_report() {
        assert_eq!(
            PAPER.map(|one| per_report(one.1).round()),
            [97_100.0, 53_900.0, 1_750.0, 65.0]
        );
    }

    #[test]
    fn a_share_of_the_reports_are_events() {
        let case = Case {
            flows: 100,
            hops: 3,
            bitmap: ALL,
            values: Values::Change,
            ..Case::PLAIN
        };
        let feed = case.feed();
        let rounds = rounds(&feed, 100);
        let (mut collector, mut batch) = (case.collector(), Batch::with_capacity(BATCH));
        let mut pass = |round: usize| {
            rounds[round]
                .chunks(BURST)
                .for_each(|burst| handle(&mut collector, burst, 1, &mut batch));
            let events = batch.len();
            batch.clear();
            events
        };
        // After the first pass, only a change of rounds is an event.
        assert!(pass(0) > 100);
        assert_eq!(pass(0), 0);
        assert!(pass(1) >= 100 && pass(1) == 0);
    }

    #[test]
    fn directions_and_ratios_are_those_of_the_rows() {
        let ends = "ns_per_report,ns_per_report_min,ns_per_report_max";
        let rate = format!(
            "hopwise,wanted_per_s,{ends}\nevent detection,1000,500,400,600\na stored row for each report,1000,5000,4000,6000\n"
        );
        let rows = "flows,1,120,110,130\nflows,2,140,131,150\nflows,3,32,30,40\nhops,1,10,9,11\nhops,2,20,19,21\nitems,1,10,9,11\nitems,2,11,10,12\n";
        let reports = format!("by,value,{ends}\n{rows}");
        let observed = observe(&Results::parse([("rate", &*rate), ("reports", &*reports)]));
        assert_eq!(
            observed.remarks[..4],
            [
                "By flows, the time of a report falls, unlike in the paper: 120 (110 to 130) ns for 1, 32 (30 to 40) ns for 3. It falls from 2 to 3.",
                "By hops, the time of a report rises, as in the paper: 10 (9 to 11) ns for 1, 20 (19 to 21) ns for 2.",
                "By items, the time of a report does not change by more than the runs differ: 10 (9 to 11) ns for 1, 11 (10 to 12) ns for 2.",
                "At 1,000 reports/s, the time of a report with a stored row, compared with one without, is 10.0 (6.7 to 15.0); in the paper 834."
            ]
        );
    }
}
