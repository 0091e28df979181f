//! Collection by DTA compared with collection by the CPU, that is, hopwise's collector and store (Fig. 6).

use std::{fs, path::PathBuf};

use crate::figures::reports::{Reports, append_store};
use collector::Batch;
use nic::time::process_cpu_time;
use store::Store;
use testkit::workload::collector::{Case, Input, Values};

use super::{
    append, key_write,
    speed::{self, Speed},
};
use crate::figures::{failed, unwritten};
use crate::svg::{Axis, Plot, Series, Style};
use crate::{
    experiment::{
        page::{Cell, Comparison, Findings, Table, linear, log},
        rows::{NOT_RUN, Observations, Results, Rows, judgement},
        settings::Settings,
        timing::{self, Spread},
    },
    figures::pipeline::Pipeline,
};
use terminal::CliError;

/// Reports of paths of five nodes, with node IDs only, of 100,000 flows.
const PATHS: Case = Case {
    name: "paths",
    flows: 100_000,
    hops: 5,
    bitmap: 0x8000,
    ..Case::PLAIN
};
/// Records in a batch of the collector.
const BATCH: usize = 8192;

/// A method of collection.
struct Method {
    name: &'static str,
    /// Nanoseconds of CPU time per report on the collector's machine, and on the translator's if there is one.
    collector: Spread,
    translator: Spread,
    /// RDMA writes per report.
    writes: f64,
    /// Rows, slots or entries that a report leaves in the store.
    rows: f64,
}

const NOTHING: Spread = Spread {
    median: 0.0,
    min: 0.0,
    max: 0.0,
};

pub(in super::super) fn run(settings: &Settings) -> Result<Findings, CliError> {
    let (stored, rows) = stored(settings)?;
    let on_cpu = [(STATE, state(settings)?, 0.0), (ROW, stored, rows)];
    let mut methods: Vec<Method> = on_cpu
        .map(|(name, collector, rows)| Method {
            name,
            collector,
            translator: NOTHING,
            writes: 0.0,
            rows,
        })
        .into();
    let mut pipeline = Pipeline::new(&[key_write::store(settings, 4)])?;
    for (copies, name) in [(1, "DTA Key-Write, N = 1"), (2, "DTA Key-Write, N = 2")] {
        let mut reports = Reports::key_write(copies, &[7; 4]).map_err(unwritten)?;
        let speed = speed::measure(settings, &mut pipeline, &mut reports, 1)?;
        methods.push(dta_method(name, speed, copies.into()));
    }
    for (batch, name) in [(4, "DTA Append, B = 4"), (16, "DTA Append, B = 16")] {
        let mut pipeline = Pipeline::new(&[append_store(16, 1 << 16, batch)])?;
        let mut reports = Reports::append(1, 16).map_err(unwritten)?;
        let speed = speed::measure(settings, &mut pipeline, &mut reports, append::cycle(batch, 16, 1))?;
        methods.push(dta_method(name, speed, 1.0));
    }
    Ok(findings(&methods))
}

fn dta_method(name: &'static str, speed: Speed, rows: f64) -> Method {
    Method {
        name,
        collector: speed.respond,
        translator: speed.translate,
        writes: speed.frames,
        rows,
    }
}

/// Nanoseconds per report in the collector: decoding, state, thresholds. The values are constant and nothing is stored.
fn state(settings: &Settings) -> Result<Spread, CliError> {
    let case = Case {
        flows: settings.scale.of(PATHS.flows.into()) as u32,
        ..PATHS
    };
    let mut collector = case.collector();
    let mut feed = case.feed();
    let mut batch = Batch::with_capacity(BATCH);
    let mut warmed_up = 0;
    while warmed_up < 2 * feed.frames() {
        warmed_up += feed.burst(Input::Payloads, &mut collector, &mut batch);
        batch.clear();
    }
    timing::of(settings, || {
        let mut reports = 0;
        for _ in 0..8 {
            reports += feed.burst(Input::Payloads, &mut collector, &mut batch) as u64;
        }
        batch.clear();
        Ok(reports)
    })
}

/// A temporary directory, removed on drop.
struct Directory(PathBuf);

impl Drop for Directory {
    fn drop(&mut self) {
        // Failure is harmless: the directory is among the temporary files.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Reports with one change each. Node IDs and hop latencies only: with timestamps, the flow's latency would change too, and add a
/// second row per report.
pub(super) fn stored_case(settings: &Settings) -> Case {
    let flows = settings.scale.of(PATHS.flows.into()) as u32;
    Case {
        flows,
        bitmap: 0xa000,
        values: Values::Change,
        ..PATHS
    }
}

/// Nanoseconds of CPU time per report, all threads, when every report contains one change and its event is stored; and the rows
/// per report.
pub(super) fn stored(settings: &Settings) -> Result<(Spread, f64), CliError> {
    let directory = Directory(std::env::temp_dir().join(format!("hopwise-dta-cpu-{}", std::process::id())));
    fs::create_dir_all(&directory.0).map_err(failed)?;
    let config = store::Config {
        max_bytes: Some(4 << 30),
        ..store::Config::new(&directory.0)
    };
    let store = Store::open(config).map_err(failed)?;
    let case = stored_case(settings);
    let mut collector = case.collector();
    let mut feed = case.feed();
    let mut batch = Batch::with_capacity(BATCH);
    let mut warmed_up = 0;
    while warmed_up < feed.frames() {
        warmed_up += feed.burst(Input::Payloads, &mut collector, &mut batch);
        batch.clear();
    }
    let wanted = settings.scale.of(200_000);
    let mut all = 0;
    let spread = Spread::runs(settings, || {
        let before = process_cpu_time();
        let mut reports = 0;
        while reports < wanted {
            reports += feed.burst(Input::Payloads, &mut collector, &mut batch) as u64;
            if batch.len() > BATCH / 2 || reports >= wanted {
                let full = std::mem::take(&mut batch);
                batch = store.submit(full);
            }
        }
        store.flush();
        all += reports;
        Ok((process_cpu_time() - before).as_nanos() as f64 / reports as f64)
    })?;
    let stats = store.finish();
    if stats.committed == 0 {
        return Err(failed("the store committed no events"));
    }
    Ok((spread, stats.committed as f64 / all as f64))
}

fn table(methods: &[Method]) -> Table {
    let collectors: Vec<Spread> = methods.iter().map(|method| method.collector).collect();
    let both: Vec<Spread> = methods
        .iter()
        .map(|method| method.collector.plus(method.translator))
        .collect();
    let bars =
        [("collector", collectors), ("collector and translator", both)].map(|(name, spreads)| Series {
            name: name.into(),
            style: Style::Bars,
            points: (0_u32..)
                .zip(spreads)
                .map(|(at, spread)| spread.point(at.into()))
                .collect(),
        });
    let categories = ["state", "row", "KW, N = 1", "KW, N = 2", "A, B = 4", "A, B = 16"]
        .map(str::to_owned)
        .into();
    Table {
        name: "methods",
        about: "CPU time per report".into(),
        columns: "method,collector_ns,collector_ns_min,collector_ns_max,translator_ns,\
            translator_ns_min,translator_ns_max,collector_mps,one_core_mps,\
            writes_per_report,rows_per_report"
            .into(),
        rows: methods
            .iter()
            .map(|method| {
                let mut row = vec![method.name.into()];
                row.extend(method.collector.cells(1));
                row.extend(method.translator.cells(1));
                let ns = [
                    method.collector.median,
                    method.collector.median + method.translator.median,
                ];
                row.extend(ns.map(|ns| {
                    if ns > 0.0 {
                        Cell::Figure(1e3 / ns, 2)
                    } else {
                        Cell::Empty
                    }
                }));
                row.extend([Cell::Figure(method.writes, 3), Cell::Figure(method.rows, 2)]);
                row
            })
            .collect(),
        plots: vec![Plot {
            note: "median, minimum and maximum of the runs; KW: Key-Write, A: Append".into(),
            title: "CPU time per report (Fig. 6)".into(),
            x: Axis {
                categories,
                ..linear("")
            },
            y: log("per report (ns)"),
            series: bars.into(),
        }],
    }
}

fn findings(methods: &[Method]) -> Findings {
    Findings {
        method: "Each row is the cost of one report. The collector of hopwise processes payloads of INT reports of a path of five nodes (100,000 \
                 flows): decoding, flow and hop state, thresholds. In the first row the values are constant and nothing is stored. In the second, \
                 each report has one change, which becomes one row of the store, with indexes that answer queries by flow. DTA reports, with one \
                 value or entry of 4 bytes each, pass through translator and software responder into memory. As in the paper, packet I/O is not \
                 included."
            .into(),
        conditions: vec![
            "CPU time per report, one core; with the store: CPU time of all threads, from the first report to the last commit".into(),
            "key-write store as in dta-key-write with 4 bytes of data; lists as in dta-append, 16 of them; one entry in a report".into(),
            "the CPU collectors of the paper (INTCollector with Prometheus or InfluxDB, Confluo) were not run here".into(),
            timing::condition(),
        ],
        tables: vec![table(methods)],
        ..Findings::default()
    }
}

/// Methods of the CPU collector.
const STATE: &str = "INT report, state of flows and hops";
const ROW: &str = "INT report, one indexed row";

/// Computes comparisons and remarks from the rows.
pub(in super::super) fn observe(results: &Results) -> Observations {
    const ORDER: &str = "an order of magnitude over the best CPU collector";
    let rows = results.table("methods");
    let comparisons = vec![
        Comparison::new(
            "time of an indexed row compared with Key-Write N = 2",
            ORDER,
            times(&rows, ROW, "DTA Key-Write, N = 2"),
        ),
        Comparison::new(
            "time of an indexed row compared with Append B = 16",
            ORDER,
            times(&rows, ROW, "DTA Append, B = 16"),
        ),
        Comparison::new(
            "time of the collector's state alone compared with Key-Write N = 2",
            "",
            times(&rows, STATE, "DTA Key-Write, N = 2"),
        ),
    ];
    let remarks = [
        "the paper's baseline is another program than ours, so the factors are not the paper's factors. They compare two ways of collection in hopwise. With an \
         RDMA NIC, no core of the collector's machine is used; without one, the responder's time is that of the table.",
        "the rows do not do the same work. The collector keeps the state of flows, hops and links, and finds the change; a Key-Write and an Append store the \
         value for later queries.",
    ]
    .map(judgement);
    Observations {
        comparisons: Some(comparisons),
        remarks: remarks.into(),
    }
}

/// The time of a method compared with another's: that of the responder, and with the translator.
fn times(rows: &Rows, slow: &str, fast: &str) -> String {
    let [slow, fast] = [slow, fast].map(|method| rows.find(&[("method", method)]));
    slow.zip(fast).map_or_else(
        || NOT_RUN.into(),
        |(slow, fast)| {
            let slow = slow.spread("collector_ns");
            let responder = fast.spread("collector_ns");
            let both = responder.plus(fast.spread("translator_ns"));
            format!(
                "with the responder {}; with responder and translator {}",
                slow.over(responder).ratio_text(1),
                slow.over(both).ratio_text(1)
            )
        },
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn factors_have_the_spread_of_their_rows() {
        let csv = "method,collector_ns,collector_ns_min,collector_ns_max,translator_ns,translator_ns_min,translator_ns_max\n\
                   \"INT report, one indexed row\",100,90,110,0,0,0\n\"DTA Key-Write, N = 2\",10,9,11,10,10,10\n";
        let observed = observe(&Results::parse([("methods", csv)]));
        assert_eq!(
            observed.comparisons.unwrap()[0].hopwise,
            "with the responder 10.0 (8.2 to 12.2); with responder and translator 5.0 (4.3 to 5.8)"
        );
    }
}
