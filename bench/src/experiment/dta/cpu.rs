//! Collection by DTA compared with collection by the CPU, that is, hopwise's collector and store (Fig. 6).

use std::{fs, path::PathBuf, time::Instant};

use crate::figures::reports::{Reports, append_store};
use collector::{
    Batch,
    workload::{Case, Input, Values},
};
use store::{Policy, Store};

use super::{
    append, key_write,
    speed::{self, Speed},
    timing,
};
use crate::figures::{failed, unwritten};
use crate::{
    experiment::{
        Scale,
        page::{Cell, Comparison, Findings, Table},
    },
    figures::pipeline::Pipeline,
};
use terminal::CliError;

/// Reports of paths of five nodes, with node IDs only, of 100,000 flows.
const PATHS: Case = Case { name: "paths", flows: 100_000, hops: 5, bitmap: 0x8000, values: Values::Constant };
/// Records in a batch of the collector.
const BATCH: usize = 8192;
/// Unit of CPU time in `/proc/PID/stat`: ticks per second.
const TICKS: f64 = 100.0;

/// A method of collection.
struct Method {
    name: &'static str,
    /// Nanoseconds of CPU time per report on the collector's machine, and on the translator's if there is one.
    collector: f64,
    translator: f64,
    /// RDMA writes per report.
    writes: f64,
}

pub(in super::super) fn run(scale: Scale) -> Result<Findings, CliError> {
    let mut methods = vec![
        Method {
            name: "INT reports, state of flows and hops",
            collector: state(scale)?,
            translator: 0.0,
            writes: 0.0,
        },
        Method {
            name: "INT reports, each stored with its indexes",
            collector: stored(scale)?,
            translator: 0.0,
            writes: 0.0,
        },
    ];
    let mut pipeline = Pipeline::new(&[key_write::store(scale, 4)])?;
    for (copies, name) in [(1, "DTA Key-Write, N = 1"), (2, "DTA Key-Write, N = 2")] {
        let mut reports = Reports::key_write(copies, &[7; 4]).map_err(unwritten)?;
        let speed = speed::measure(scale, &mut pipeline, &mut reports, 1)?;
        methods.push(dta_method(name, speed, 1.0));
    }
    for (batch, count, name) in [
        (4, 1, "DTA Append, B = 4"),
        (16, 1, "DTA Append, B = 16"),
        (16, 16, "DTA Append, B = 16, 16 entries a report (per entry)"),
    ] {
        let mut pipeline = Pipeline::new(&[append_store(16, 1 << 16, batch)])?;
        let mut reports = Reports::append(count, 16).map_err(unwritten)?;
        let speed = speed::measure(scale, &mut pipeline, &mut reports, append::cycle(batch, 16, count))?;
        methods.push(dta_method(name, speed, count as f64));
    }
    Ok(findings(&methods))
}

fn dta_method(name: &'static str, speed: Speed, count: f64) -> Method {
    Method {
        name,
        collector: speed.respond / count,
        translator: speed.translate / count,
        writes: speed.frames / count,
    }
}

/// Nanoseconds per report in the collector: decoding, state, thresholds. The values are constant and nothing is stored.
fn state(scale: Scale) -> Result<f64, CliError> {
    let case = Case { flows: scale.of(PATHS.flows.into()) as u32, ..PATHS };
    let (mut collector, mut feed, mut batch) = (case.collector(), case.feed(), Batch::with_capacity(BATCH));
    let mut warmed_up = 0;
    while warmed_up < 2 * feed.frames() {
        warmed_up += feed.burst(Input::Payloads, &mut collector, &mut batch);
        batch.clear();
    }
    timing::of(scale, || {
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

/// Nanoseconds of CPU time per report, all threads, when every report contains a change and its event is stored.
fn stored(scale: Scale) -> Result<f64, CliError> {
    let directory = Directory(std::env::temp_dir().join(format!("hopwise-dta-cpu-{}", std::process::id())));
    fs::create_dir_all(&directory.0).map_err(failed)?;
    let config =
        store::Config { policy: Policy::Block, max_bytes: Some(4 << 30), ..store::Config::new(&directory.0) };
    let store = Store::open(config).map_err(failed)?;
    let case =
        Case { flows: scale.of(PATHS.flows.into()) as u32, bitmap: 0xac00, values: Values::Change, ..PATHS };
    let (mut collector, mut feed, mut batch) = (case.collector(), case.feed(), Batch::with_capacity(BATCH));
    let (wanted, mut reports) = (scale.of(1_000_000), 0);
    let (before, begun) = (cpu_time(), Instant::now());
    while reports < wanted {
        reports += feed.burst(Input::Payloads, &mut collector, &mut batch) as u64;
        if batch.len() > BATCH / 2 {
            let full = std::mem::take(&mut batch);
            batch = store.submit(full).unwrap_or_else(|mut refused| {
                refused.clear();
                refused
            });
        }
    }
    store.flush();
    // Elapsed time if the system does not report CPU time.
    let seconds =
        cpu_time().zip(before).map_or(begun.elapsed().as_secs_f64(), |(after, before)| after - before);
    let stats = store.close();
    if stats.committed == 0 {
        return Err(failed("the store committed no events"));
    }
    Ok(seconds * 1e9 / reports as f64)
}

/// Seconds of CPU time of all threads of this process.
fn cpu_time() -> Option<f64> {
    let text = fs::read_to_string("/proc/self/stat").ok()?;
    let mut fields = text.rsplit(')').next()?.split_whitespace().skip(11);
    let mut ticks = || fields.next()?.parse::<f64>().ok();
    Some((ticks()? + ticks()?) / TICKS)
}

fn findings(methods: &[Method]) -> Findings {
    let rate = |ns: f64| if ns > 0.0 { Cell::Figure(1e3 / ns, 2) } else { Cell::Empty };
    let row = |method: &Method| {
        vec![
            method.name.into(),
            Cell::Figure(method.collector, 1),
            Cell::Figure(method.translator, 1),
            rate(method.collector),
            rate(method.collector + method.translator),
            Cell::Figure(method.writes, 3),
        ]
    };
    let at = |index: usize| methods.get(index).map_or(f64::NAN, |method| method.collector);
    let with_translator =
        |index: usize| methods.get(index).map_or(f64::NAN, |method| method.collector + method.translator);
    let times = |slow: f64, fast: f64| format!("{:.1} times", slow / fast);
    Findings {
        method: "The collector of hopwise processes payloads of reports of a path of five nodes (INT, 100,000 flows): decoding, flow and hop state, \
                 thresholds. In one series the values are constant. In the other, each report has a change, which becomes an event in the store; the \
                 store's indexes answer queries by flow. For comparison, DTA reports pass through translator and software responder into memory. As in \
                 the paper, packet I/O is not included."
            .into(),
        conditions: vec![
            "CPU time per report, one core; with the store: CPU time of all threads, from the first report to the last commit".into(),
            "key-write store as in dta-key-write with 4 bytes of data; lists as in dta-append, 16 of them".into(),
            timing::condition(),
        ],
        comparisons: vec![
            Comparison::new("Key-Write N = 2 compared with the collector and its indexed store", "an order of magnitude over the best CPU collector", format!("{} (responder only), {} (with translator)", times(at(1), at(3)), times(at(1), with_translator(3)))),
            Comparison::new("Append B = 16 compared with the collector and its indexed store", "an order of magnitude", format!("{} (responder only), {} (with translator)", times(at(1), at(5)), times(at(1), with_translator(5)))),
            Comparison::new("Key-Write N = 2 compared with the collector's state alone", "", format!("{} (responder only)", times(at(0), at(3)))),
            Comparison::new("cores of the collector machine used for collection", "0 (16 for the others)", "0 with an RDMA NIC; otherwise the responder time above"),
        ],
        remarks: vec![
            "The collector does more with a report: it tracks flows, hops and links, and emits an event at each change. A Key-Write only stores the \
             value for later queries."
                .into(),
            "The two can be combined: Key-Write for the data of every packet, and Append or an immediate for data that must become an event."
                .into(),
        ],
        tables: vec![Table {
            name: "methods",
            about: "Cost of collection, per report".into(),
            columns: vec![
                "method", "collector_ns", "translator_ns", "collector_mps", "one_core_mps", "writes_per_report",
            ],
            rows: methods.iter().map(row).collect(),
            plots: Vec::new(),
        }],
    }
}
