//! CPU time of the collector per report: by rate, and by flows, hops, fields and events (INTCollector, Figs. 11, 12 and 14).

use std::{fs, path::PathBuf};

use collector::{
    Batch, Collector, Datagram,
    workload::{Case, Feed, Values},
};
use store::{Policy, Store};

use super::{
    loopback::{self, Served},
    page::{Cell, Comparison, Findings, Table, linear, log, mark_series},
    settings::{Parameter, Settings},
    timing::{self, Spread},
};
use crate::{
    figures::failed,
    svg::{Plot, Series, Style},
};
use terminal::CliError;

pub(super) const PARAMETERS: &[Parameter] = &[
    Parameter::runs(),
    Parameter::span(&[300]),
    Parameter::new(
        "rate",
        &[1_000, 10_000, 30_000, 100_000, 200_000, 400_000],
        100..=10_000_000,
        "reports sent per second",
    ),
    Parameter::new(
        "flows",
        &[1, 10, 100, 500, 1_000, 2_000],
        1..=1_000_000,
        "flows, with six hops and node IDs only",
    ),
    Parameter::new("nodes", &[1, 2, 3, 4, 5, 6], 1..=6, "hops of a report, with 100 flows and all items"),
    Parameter::new(
        "items",
        &[1, 2, 3, 4, 5, 6, 7, 8],
        1..=8,
        "instructions, in the order of the bitmap, with 100 flows and six hops",
    ),
    Parameter::new(
        "events",
        &[0, 1_000, 10_000, 100_000, 1_000_000],
        0..=1_000_000,
        "events per million reports, with 100 flows, three hops and all items",
    ),
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
    let constant = Case { flows: 1, hops: 6, bitmap: ALL, ..Case::PLAIN };
    let mut found = Vec::new();
    for stores in [false, true] {
        let case = if stores { Case { values: Values::Change, ..constant } } else { constant };
        let payloads: Vec<Vec<u8>> = case.feed().payloads().map(<[u8]>::to_vec).collect();
        for &wanted in settings.list("rate") {
            let runs = (0..settings.one("runs")).map(|_| once(settings, &case, &payloads, (wanted, stores)));
            found.push(ByRate { wanted, stores, runs: runs.collect::<Result<_, _>>()? });
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
    (rate, stores): (u64, bool),
) -> Result<Served, CliError> {
    let directory =
        Directory(std::env::temp_dir().join(format!("hopwise-collector-cpu-{}", std::process::id())));
    fs::create_dir_all(&directory.0).map_err(failed)?;
    let config = store::Config { policy: Policy::Block, ..store::Config::new(&directory.0) };
    let store = if stores { Some(Store::open(config).map_err(failed)?) } else { None };
    let (mut collector, mut batch) = (case.collector(), Batch::with_capacity(BATCH));
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
                batch = store.submit(full).unwrap_or_else(|mut refused| {
                    refused.clear();
                    refused
                });
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
    paper: &'static str,
    points: Vec<(u64, Spread)>,
}

fn characteristics(settings: &Settings) -> Result<[Characteristic; 4], CliError> {
    let base = Case { flows: 100, hops: 6, bitmap: ALL, ..Case::PLAIN };
    let over = |name: &str, case: &dyn Fn(u64) -> (Case, u64)| -> Result<Vec<(u64, Spread)>, CliError> {
        let values = settings.list(name);
        let costs = timing::in_turn(settings, values, |value| {
            let (case, events) = case(*value);
            cost(settings, &case, events)
        })?;
        Ok(values.iter().copied().zip(costs).collect())
    };
    let flows = over("flows", &|flows| (Case { flows: flows as u32, bitmap: 0x8000, ..base }, 0))?;
    let hops = over("nodes", &|hops| (Case { hops: hops as u8, ..base }, 0))?;
    let items = over("items", &|items| (Case { bitmap: ALL & !(0xffff >> items), ..base }, 0))?;
    let events = over("events", &|events| (Case { hops: 3, values: Values::Change, ..base }, events))?;
    Ok([
        Characteristic { name: "flows", paper: "up to 8.79 % of the CPU for 2,000 flows", points: flows },
        Characteristic { name: "hops", paper: "up to 12.06 % for six hops", points: hops },
        Characteristic { name: "instructions", paper: "up to 12.59 % for all fields", points: items },
        Characteristic {
            name: "events per million reports",
            paper: "up to 15.04 % for 1,000 events/s",
            points: events,
        },
    ])
}

/// Nanoseconds per report. Of a million reports, `events` contain a change.
fn cost(settings: &Settings, case: &Case, events: u64) -> Result<f64, CliError> {
    let (mut collector, feed, mut batch) = (case.collector(), case.feed(), Batch::with_capacity(BATCH));
    let rounds = rounds(&feed, case.flows as usize);
    // All flows change in one of `period` rounds. The share is exact over a period if `events` divides a million.
    let period = 1_000_000_u64.checked_div(events).unwrap_or(u64::MAX);
    let (mut round, mut changed, mut now) = (0, 0, 1_700_000_000_000_000_000);
    let mut pass = |collector: &mut Collector| {
        round += 1;
        if rounds.len() > 1 && round % period == 0 {
            changed = 1 - changed;
        }
        for burst in rounds[changed].chunks(BURST) {
            now += 100 * burst.len() as u64;
            handle(collector, burst, now, &mut batch);
        }
        if batch.len() > BATCH / 2 {
            batch.clear();
        }
    };
    (0..2).for_each(|_| pass(&mut collector));
    // At least one period, and enough reports that the clock is read rarely; whole periods for the default numbers of events.
    let passes = if events == 0 { 1 } else { period }.max(2_048 / u64::from(case.flows));
    timing::once(settings, || {
        (0..passes).for_each(|_| pass(&mut collector));
        Ok(passes * u64::from(case.flows))
    })
}

/// The payloads of each pass over all flows.
fn rounds(feed: &Feed, flows: usize) -> Vec<Vec<&[u8]>> {
    feed.payloads().collect::<Vec<_>>().chunks(flows).map(<[&[u8]]>::to_vec).collect()
}

fn handle(collector: &mut Collector, payloads: &[&[u8]], now: u64, batch: &mut Batch) {
    let none = Datagram { payload: &[], source: [0; 16], src_port: 40_000, listener: 0, received: now };
    let mut datagrams = [none; BURST];
    for (slot, payload) in datagrams.iter_mut().zip(payloads) {
        slot.payload = payload;
    }
    collector.handle(&datagrams[..payloads.len()], batch);
}

fn rate_table(by_rate: &[ByRate]) -> Table {
    let name = |stores: bool| if stores { "a stored row for each report" } else { "event detection" };
    let row = |one: &ByRate| {
        let mut row = vec![name(one.stores).into(), one.wanted.into()];
        row.push(Cell::Figure(one.spread(Served::sent_per_second).median, 0));
        row.push(Cell::Figure(
            one.spread(|run| 100.0 * (run.sent - run.received) as f64 / run.sent as f64).median,
            2,
        ));
        row.extend(one.spread(Served::percent).cells(3));
        row.extend(one.spread(Served::ns_per_report).cells(0));
        row
    };
    let line = |stores: bool| Series {
        name: format!("hopwise, {}", name(stores)),
        style: Style::Line,
        points: by_rate
            .iter()
            .filter(|one| one.stores == stores)
            .map(|one| one.spread(Served::percent).point(one.spread(Served::received_per_second).median))
            .collect(),
    };
    let ends = by_rate
        .iter()
        .map(|one| one.wanted as f64)
        .fold((f64::INFINITY, 1.0_f64), |ends, rate| (ends.0.min(rate), ends.1.max(rate)));
    let paper = PAPER.iter().map(|(name, slope, rest)| {
        // The paper's line, up to 100 % of its core.
        let points = (0..=8).map(|step| ends.0 * (ends.1 / ends.0).powf(f64::from(step) / 8.0));
        let points = points.map(|rate| (rate, slope * rate / 1e3 + rest)).filter(|point| point.1 <= 100.0);
        mark_series(&format!("the paper, {name}"), points.collect())
    });
    Table {
        name: "rate",
        about: "CPU by report rate, over loopback; one flow, six hops, all items".into(),
        columns: vec![
            "hopwise",
            "wanted_per_s",
            "sent_per_s",
            "lost_percent",
            "cpu_percent",
            "cpu_percent_min",
            "cpu_percent_max",
            "ns_per_report",
            "ns_per_report_min",
            "ns_per_report_max",
        ],
        rows: by_rate.iter().map(row).collect(),
        plots: vec![Plot {
            note: "marks: the paper's fitted lines, on its machine".into(),
            title: "CPU by report rate (Fig. 11)".into(),
            x: log("reports per second"),
            y: log("CPU (per cent of a core)"),
            series: [false, true].map(line).into_iter().chain(paper).collect(),
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
    let plot = |one: &Characteristic| Plot {
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
            points: one.points.iter().map(|(value, spread)| spread.point(*value as f64)).collect(),
        }],
    };
    Table {
        name: "reports",
        about: "CPU time of a report by its characteristics, in process".into(),
        columns: vec!["by", "value", "ns_per_report", "ns_per_report_min", "ns_per_report_max"],
        rows: rows.collect(),
        plots: series.iter().map(plot).collect(),
    }
}

fn compared(by_rate: &[ByRate], series: &[Characteristic]) -> Vec<Comparison> {
    let best = |stores: bool| {
        let mut of_kind = by_rate.iter().filter(|one| one.stores == stores);
        let last = of_kind.rfind(|one| one.runs.iter().all(|run| run.sent == run.received));
        last.map_or("no rate without loss".into(), |one| {
            let cpu = one.spread(Served::ns_per_report).text(0);
            format!(
                "{cpu} ns at {} reports/s",
                terminal::units::count(one.spread(Served::sent_per_second).median.round() as u64)
            )
        })
    };
    let paper = |at: usize| {
        let (_, slope, _) = PAPER[at];
        format!(
            "{} ns ({slope} % per 1,000 reports/s)",
            terminal::units::count(per_report(slope).round() as u64)
        )
    };
    let mut rows = vec![
        Comparison::new("CPU per report, event detection (Fig. 11)", paper(3), best(false)),
        Comparison::new("CPU per report, every report stored", paper(1), best(true)),
        Comparison::new("CPU per report, IntMon collector", paper(0), "not run here"),
        Comparison::new("CPU per report, Prometheus INT exporter", paper(2), "not run here"),
    ];
    for one in series {
        let ends = one.points.first().zip(one.points.last());
        let text = ends.map_or(String::new(), |(first, last)| {
            format!("{:.0} ns for {}, {:.0} ns for {}", first.1.median, first.0, last.1.median, last.0)
        });
        rows.push(Comparison::new(format!("by {} (Fig. 12)", one.name), one.paper, text));
    }
    rows.push(Comparison::new(
        "with and without SR-IOV (Fig. 14)",
        "49.38 % less CPU at 2 Gb/s, 6.15 % less at 10 Gb/s",
        "not reproduced: needs a NIC with SR-IOV",
    ));
    rows
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
        comparisons: compared(by_rate, series),
        remarks: vec![
            "The paper's collector works in the kernel, before a socket; ours receives from a socket. At low rates, each wake-up of the thread \
             handles few reports, so the CPU time of a report falls as the rate grows."
                .into(),
            "The paper's text gives the CPU usage of Fig. 12 at the last point of each series, without the report rate, so a time per report cannot be \
             derived from it. Its statements are about the direction only: each characteristic raises the CPU usage."
                .into(),
        ],
        tables: vec![rate_table(by_rate), characteristics_table(series)],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_papers_slopes_are_times_per_report() {
        assert_eq!(PAPER.map(|one| per_report(one.1).round()), [97_100.0, 53_900.0, 1_750.0, 65.0]);
    }

    #[test]
    fn a_share_of_the_reports_are_events() {
        let case = Case { flows: 100, hops: 3, bitmap: ALL, values: Values::Change, ..Case::PLAIN };
        let feed = case.feed();
        let rounds = rounds(&feed, 100);
        let (mut collector, mut batch) = (case.collector(), Batch::with_capacity(BATCH));
        let mut pass = |round: usize| {
            rounds[round].chunks(BURST).for_each(|burst| handle(&mut collector, burst, 1, &mut batch));
            let events = batch.len();
            batch.clear();
            events
        };
        // After the first pass, only a change of rounds is an event.
        assert!(pass(0) > 100);
        assert_eq!(pass(0), 0);
        assert!(pass(1) >= 100 && pass(1) == 0);
    }
}
