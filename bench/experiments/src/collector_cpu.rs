//! Experiment `collector-cpu`: CPU time of the collector per report, by rate over loopback (INTCollector, Fig. 11), and in
//! process by flows, hops, instructions and events (Fig. 12).

use std::cmp::Ordering;

use collector::{Batch, Collector, Datagram};
use store::Store;
use testkit::workload::collector::{Case, Feed, Values};

use super::{
    loopback::{self, Served, Server},
    page::{Comparison, Findings, Table, fixed, linear, log, mark_series, row},
    rows::{Observations, Results, Row, Rows, extremes, judgement, listed},
    settings::{Parameter, Settings},
    timing::{self, Spread},
};
use crate::{
    figures::failed,
    machine::Scratch,
    svg::{Series, Style},
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

/// All eight instructions, which are the nine fields of the paper: the level-1 interface IDs are two fields.
const ALL: u16 = 0xff00;
/// Maximum number of reports in one call of the collector.
const BURST: usize = 64;
const BATCH: usize = 8_192;

/// A straight line that the paper fits to its measurements of CPU usage.
struct PaperLine {
    name: &'static str,
    /// Per cent of a core per 1,000 reports/s.
    slope: f64,
    /// Per cent of a core without reports.
    idle: f64,
}

impl PaperLine {
    const fn new(name: &'static str, slope: f64, idle: f64) -> Self {
        Self { name, slope, idle }
    }

    /// Returns the time per report in ns: 1 % of a core per 1,000 reports/s is 10 µs.
    fn ns_per_report(&self) -> f64 {
        self.slope * 1e4
    }

    fn text(&self) -> String {
        let ns = units::count(self.ns_per_report().round() as u64);
        format!("{ns} ns ({} % per 1,000 reports/s)", self.slope)
    }
}

const INTMON: PaperLine = PaperLine::new("IntMon collector", 9.71, 1.64);
const WITHOUT_DETECTION: PaperLine = PaperLine::new("INTCollector without event detection", 5.39, 3.69);
const PROMETHEUS: PaperLine = PaperLine::new("Prometheus INT exporter", 0.175, 22.9);
const INTCOLLECTOR: PaperLine = PaperLine::new("INTCollector", 0.00646, 0.082);

// Names of the two series by rate.
const DETECTION: &str = "event detection";
const STORING: &str = "a stored row for each report";

/// A characteristic of the reports in Fig. 12.
struct Characteristic {
    name: &'static str,
    /// The paper's last point.
    paper: &'static str,
}

impl Characteristic {
    const fn new(name: &'static str, paper: &'static str) -> Self {
        Self { name, paper }
    }
}

const FLOWS: Characteristic = Characteristic::new("flows", "up to 8.79 % of the CPU for 2,000 flows");
const HOPS: Characteristic = Characteristic::new("hops", "up to 12.06 % for six hops");
const INSTRUCTIONS: Characteristic = Characteristic::new("instructions", "up to 12.59 % for all fields");
const EVENTS: Characteristic =
    Characteristic::new("events per million reports", "up to 15.04 % for 1,000 events/s");

pub(super) fn run(settings: &Settings) -> Result<Findings, CliError> {
    let tables = [rate_table(&by_rate(settings)?), characteristics_table(settings)?];
    Ok(Findings::new(METHOD, CONDITIONS.map(str::to_owned), tables))
}

/// The runs at one rate, with event detection only or with a stored row for each report.
struct ByRate {
    name: &'static str,
    /// Reports per second that the sender aims at.
    wanted: u64,
    runs: Vec<Served>,
}

impl ByRate {
    fn spread(&self, of: fn(&Served) -> f64) -> Spread {
        Spread::of(self.runs.iter().map(of).collect())
    }
}

/// Measures one flow of six hops with all items, over loopback.
fn by_rate(settings: &Settings) -> Result<Vec<ByRate>, CliError> {
    let mut found = Vec::new();
    for (name, values) in [(DETECTION, Values::Constant), (STORING, Values::Change)] {
        let case = Case {
            flows: 1,
            hops: 6,
            bitmap: ALL,
            values,
            ..Case::PLAIN
        };
        let payloads: Vec<Vec<u8>> = case.feed().payloads().map(<[u8]>::to_vec).collect();
        for &wanted in settings.list("rate") {
            let runs = (0..settings.value("runs"))
                .map(|_| once(settings, &case, &payloads, wanted, name == STORING))
                .collect::<Result<_, _>>()?;
            found.push(ByRate { name, wanted, runs });
        }
    }
    Ok(found)
}

/// Measures one run: detection only, or a row in the store for each report.
fn once(
    settings: &Settings,
    case: &Case,
    payloads: &[Vec<u8>],
    rate: u64,
    stores: bool,
) -> Result<Served, CliError> {
    let directory = Scratch::new("collector-cpu")?;
    let store = stores.then(|| Store::open(store::Config::new(directory.path())));
    let store = store.transpose().map_err(failed)?;
    let mut server = Server::new(case.collector());
    let served = loopback::serve(payloads, rate, timing::span(settings), |datagrams| {
        let is_full = server.serve(datagrams, Collector::handle);
        let is_end = datagrams.is_empty();
        match &store {
            Some(store) if is_full || is_end => {
                let full = std::mem::take(&mut server.batch);
                server.batch = store.submit(full);
                if is_end {
                    store.flush();
                }
            }
            None if is_full => server.batch.clear(),
            _ => {}
        }
    })?;
    if let Some(store) = store {
        store.finish();
    }
    Ok(served)
}

/// Measures the CPU time by each characteristic of the reports, in process.
fn characteristics_table(settings: &Settings) -> Result<Table, CliError> {
    let base = Case {
        flows: 100,
        hops: 6,
        bitmap: ALL,
        ..Case::PLAIN
    };
    let columns = "by,value,ns_per_report,ns_per_report_min,ns_per_report_max";
    let about = "CPU time of a report by its characteristics, in process";
    let mut table = Table::new("reports", about, columns);
    by_value(settings, &mut table, FLOWS.name, "flows", |flows| Case {
        flows: flows as u32,
        bitmap: 0x8000,
        ..base
    })?;
    by_value(settings, &mut table, HOPS.name, "nodes", |hops| Case {
        hops: hops as u8,
        ..base
    })?;
    by_value(settings, &mut table, INSTRUCTIONS.name, "items", |items| Case {
        bitmap: ALL & !(0xffff >> items),
        ..base
    })?;
    by_value(settings, &mut table, EVENTS.name, "events", |_| Case {
        hops: 3,
        values: Values::Change,
        ..base
    })?;
    Ok(table)
}

/// Adds the time per report for each value of a parameter; `case` creates the workload for a value.
fn by_value(
    settings: &Settings,
    table: &mut Table,
    name: &str,
    parameter: &str,
    case: impl Fn(u64) -> Case,
) -> Result<(), CliError> {
    let values = settings.list(parameter);
    let costs = timing::in_turn(settings, values, |value| {
        let events = if parameter == "events" { *value } else { 0 };
        cost(settings, &case(*value), events)
    })?;
    for (value, cost) in values.iter().zip(costs) {
        table.push(row![name, *value, cost.cells(1)]);
    }
    // Values up to 20 differ by one, so their axis is linear. A logarithmic axis cannot show zero events.
    let is_wide = values.len() > 1 && values.last().is_some_and(|value| *value > 20);
    let x = if is_wide { log(name) } else { linear(name) };
    let line = table.line("hopwise", &[("by", name)], "value", NS);
    let title = format!("CPU time of a report by {name} (Fig. 12)");
    table.plot(title, "in process", [x, linear("per report (ns)")], vec![line]);
    Ok(())
}

/// Measures the time per report in ns. Of a million reports, `events` contain a change.
fn cost(settings: &Settings, case: &Case, events: u64) -> Result<f64, CliError> {
    let mut collector = case.collector();
    let feed = case.feed();
    let mut batch = Batch::with_capacity(BATCH);
    let rounds = rounds(&feed, case.flows as usize);
    // All flows change once per `period` rounds. The share is exact over a period if `events` divides a million.
    let period = 1_000_000_u64.checked_div(events).unwrap_or(u64::MAX);
    let mut round = 0;
    let mut variant = 0;
    let mut now = 1_700_000_000_000_000_000;
    // At least one period, and enough reports that the clock is read rarely; whole periods for the default numbers of events.
    let passes = if events == 0 { 1 } else { period }.max(2_048 / u64::from(case.flows));
    timing::measure_once(settings, || {
        for _ in 0..passes {
            round += 1;
            if rounds.len() > 1 && round % period == 0 {
                variant = 1 - variant;
            }
            for burst in rounds[variant].chunks(BURST) {
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

/// Groups the payloads by round, one pass over all flows each.
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

fn rate_table(by_rate: &[ByRate]) -> Table {
    let columns = "hopwise,wanted_per_s,sent_per_s,lost_percent,cpu_percent,cpu_percent_min,\
        cpu_percent_max,ns_per_report,ns_per_report_min,ns_per_report_max";
    let about = "CPU by report rate, over loopback; one flow, six hops, all items";
    let mut table = Table::new("rate", about, columns);
    let mut lines =
        [DETECTION, STORING].map(|name| Series::new(&format!("hopwise, {name}"), Style::Line, []));
    for one in by_rate {
        let percent = one.spread(Served::percent);
        table.push(row![
            one.name,
            one.wanted,
            fixed(one.spread(Served::sent_per_second).median, 0),
            fixed(one.spread(Served::lost_percent).median, 2),
            percent.cells(3),
            one.spread(Served::ns_per_report).cells(0),
        ]);
        let line = &mut lines[usize::from(one.name == STORING)];
        line.points
            .push(percent.point(one.spread(Served::received_per_second).median));
    }
    let wanted = by_rate.iter().map(|one| one.wanted as f64);
    let least = wanted.clone().fold(f64::INFINITY, f64::min);
    let most = wanted.fold(1.0, f64::max);
    let paper = [INTMON, WITHOUT_DETECTION, PROMETHEUS, INTCOLLECTOR]
        .into_iter()
        .map(|fitted| {
            // The paper's line, up to 100 % of a core.
            let rates = (0..=8).map(|step| least * (most / least).powf(f64::from(step) / 8.0));
            let points = rates.map(|rate| (rate, fitted.slope * rate / 1e3 + fitted.idle));
            mark_series(
                &format!("the paper, {}", fitted.name),
                points.filter(|point| point.1 <= 100.0).collect(),
            )
        });
    let axes = [log("reports per second"), log("CPU (per cent of a core)")];
    let note = "marks: the paper's fitted lines, on its machine";
    table.plot(
        "CPU by report rate (Fig. 11)",
        note,
        axes,
        lines.into_iter().chain(paper).collect(),
    );
    table
}

const METHOD: &str = "Reports as INTCollector's generator sends them (Telemetry Report 1.0, INT 1.0). By rate: a sender passes reports over loopback to one \
                      receiving thread with the collector. With event detection, the values are constant. Without, each report contains a change, which \
                      becomes a row of the store. By characteristics: the collector processes payloads in memory; no I/O, nothing is stored.";
const CONDITIONS: [&str; 3] = [
    "by rate: CPU time of the process without the sender, user and system. On loopback, the kernel does part of the receive work \
     in the sender's context, which is not counted; the paper's figures contain all of it",
    "the paper: one core of an Intel Core i5 3570 (3.4 GHz) in a virtual machine; the fast path in the kernel (XDP), in C, the rest in Python; \
     its values are those of its text, since the figures' data is not published",
    timing::CONDITION,
];

/// Computes comparisons and remarks from the rows.
pub(super) fn observe(results: &Results) -> Observations {
    let by_rate = results.table("rate");
    let series = results.table("reports");
    let mut comparisons = vec![
        Comparison::new(
            "CPU per report, event detection (Fig. 11)",
            INTCOLLECTOR.text(),
            range(&by_rate, DETECTION),
        ),
        Comparison::new(
            "CPU per report, every report stored (ours: one changed value of each report)",
            WITHOUT_DETECTION.text(),
            range(&by_rate, STORING),
        ),
        Comparison::new("CPU per report, IntMon collector", INTMON.text(), "not run here"),
        Comparison::new(
            "CPU per report, Prometheus INT exporter",
            PROMETHEUS.text(),
            "not run here",
        ),
    ];
    let mut remarks = Vec::new();
    for by in series.values("by") {
        let rows = series.with(&[("by", by)]);
        let Some((first, last)) = rows.first().zip(rows.last()) else {
            continue;
        };
        let paper = [FLOWS, HOPS, INSTRUCTIONS, EVENTS]
            .iter()
            .find(|characteristic| characteristic.name == by)
            .map_or("", |characteristic| characteristic.paper);
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
    Observations::new(comparisons, remarks)
}

const REMARKS: [&str; 3] = [
    "the paper's fast path works in the kernel (XDP), before a socket; this experiment receives from a socket, so its Fig. 11 is not repeated here. \
     `hopwise bench peers` runs INTCollector's XDP program beside those of hopwise (see the [figures](../reference/performance.md)).",
    "the stored figures are not comparable: the paper stores all values of a report, 6 hops with 9 fields; here one value of each report changes and is stored.",
    "the paper's text gives the CPU usage of Fig. 12 at the last point of each series, without the report rate, so a time per report cannot be derived \
     from it; only the direction can be compared, and the paper says that each characteristic raises the CPU usage.",
];

const NS: &str = "ns_per_report";
const OF_VALUE: &str = "{ns_per_report~} ns for {value}";

/// Describes the smallest and the largest time per report, with their rates.
fn range(by_rate: &Rows, kind: &str) -> Option<String> {
    let (low, high) = extremes(&by_rate.with(&[("hopwise", kind)]), NS)?;
    let template = "{ns_per_report~} ns at {wanted_per_s} reports/s";
    Some(format!("{} to {}", low.fill(template), high.fill(template)))
}

/// Says whether the time per report changes by more than the spread of the runs: from first to last value, and in between.
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

/// Compares a stored report with a detected one, at the highest rate of both series.
fn ratio(by_rate: &Rows) -> Option<String> {
    let detection = by_rate.with(&[("hopwise", DETECTION)]).last().copied()?;
    let storing = by_rate.with(&[("hopwise", STORING)]).last().copied()?;
    Some(format!(
        "At {} reports/s, the time of a report with a stored row, compared with one without, is {}; in the paper {:.0}.",
        storing.fill("{wanted_per_s}"),
        storing.spread(NS).over(detection.spread(NS)).ratio_text(1),
        WITHOUT_DETECTION.ns_per_report() / INTCOLLECTOR.ns_per_report()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_papers_slopes_are_times_per_report() {
        assert_eq!(
            [INTMON, WITHOUT_DETECTION, PROMETHEUS, INTCOLLECTOR].map(|line| line.ns_per_report().round()),
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
