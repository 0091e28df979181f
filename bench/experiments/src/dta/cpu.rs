//! Experiment `dta-cpu`: CPU time per report of collection by DTA, compared with hopwise's CPU collector (DTA, Fig. 6).

use crate::figures::reports::{Reports, append_store};
use collector::Batch;
use nic::time::process_cpu_time;
use store::Store;
use testkit::workload::collector::{Case, Input, Values};

use super::{append, key_write, speed};
use crate::figures::{failed, unwritten};
use crate::svg::{Series, Style};
use crate::{
    figures::pipeline::Pipeline,
    machine::Scratch,
    page::{Comparison, Findings, Table, fixed, log, named, row},
    rows::{Observations, Results, Rows, judgement},
    settings::Settings,
    timing::{self, Spread},
};
use terminal::CliError;

/// INT reports of 100,000 flows, with paths of five nodes and node IDs only.
const PATHS: Case = Case {
    name: "paths",
    flows: 100_000,
    hops: 5,
    bitmap: 0x8000,
    ..Case::PLAIN
};
/// Capacity of the collector's output batch, in records.
const BATCH: usize = 8192;

const NOTHING: Spread = Spread {
    median: 0.0,
    min: 0.0,
    max: 0.0,
};

pub(crate) fn run(settings: &Settings) -> Result<Findings, CliError> {
    let columns = "method,collector_ns,collector_ns_min,collector_ns_max,translator_ns,\
        translator_ns_min,translator_ns_max,collector_mps,one_core_mps,\
        writes_per_report,rows_per_report";
    let mut methods = Methods {
        table: Table::new("methods", "CPU time per report", columns),
        both: Vec::new(),
    };
    let (stored, rows) = stored(settings)?;
    methods.push(STATE, [state(settings)?, NOTHING], 0.0, 0.0);
    methods.push(ROW, [stored, NOTHING], 0.0, rows);
    let mut pipeline = Pipeline::new(&[key_write::store(settings, 4)])?;
    for (copies, name) in [(1, "DTA Key-Write, N = 1"), (2, "DTA Key-Write, N = 2")] {
        let mut reports = Reports::key_write(copies, &[7; 4]).map_err(unwritten)?;
        let speed = speed::measure(settings, &mut pipeline, &mut reports, 1)?;
        methods.push(
            name,
            [speed.respond, speed.translate],
            speed.frames,
            copies.into(),
        );
    }
    for (batch, name) in [(4, "DTA Append, B = 4"), (16, "DTA Append, B = 16")] {
        let mut pipeline = Pipeline::new(&[append_store(16, 1 << 16, batch)])?;
        let mut reports = Reports::append(1, 16).map_err(unwritten)?;
        let speed = speed::measure(settings, &mut pipeline, &mut reports, append::cycle(batch, 16, 1))?;
        methods.push(name, [speed.respond, speed.translate], speed.frames, 1.0);
    }
    Ok(Findings::new(
        METHOD,
        CONDITIONS.map(str::to_owned),
        [methods.table()],
    ))
}

const METHOD: &str = "Each row is the cost of one report. The collector of hopwise processes payloads of INT reports of a path of five nodes (100,000 \
                      flows): decoding, flow and hop state, thresholds. In the first row the values are constant and nothing is stored. In the second, \
                      each report has one change, which becomes one row of the store, with indexes that answer queries by flow. DTA reports, with one \
                      value or entry of 4 bytes each, pass through translator and software responder into memory. As in the paper, packet I/O is not \
                      included.";
const CONDITIONS: [&str; 4] = [
    "CPU time per report, one core; with the store: CPU time of all threads, from the first report to the last commit",
    "key-write store as in dta-key-write with 4 bytes of data; lists as in dta-append, 16 of them; one entry in a report",
    "the CPU collectors of the paper (INTCollector with Prometheus or InfluxDB, Confluo) were not run here",
    timing::CONDITION,
];

/// The table of collection methods, and for each the time of collector and translator together.
struct Methods {
    table: Table,
    both: Vec<Spread>,
}

impl Methods {
    /// Adds a method. `times` are the CPU times per report on the collector's and on the translator's machine, `writes` the
    /// RDMA writes per report, and `rows` the rows, slots or entries that a report leaves in the store.
    fn push(&mut self, name: &str, times: [Spread; 2], writes: f64, rows: f64) {
        let [collector, translator] = times;
        let both = collector.plus(translator);
        let rates = [collector.median, both.median].map(|ns| fixed(1e3 / ns, 2));
        let rest = [fixed(writes, 3), fixed(rows, 2)];
        self.table
            .push(row![name, collector.cells(1), translator.cells(1), rates, rest]);
        self.both.push(both);
    }

    fn table(mut self) -> Table {
        let both = Series {
            name: "collector and translator".into(),
            style: Style::Bars,
            points: (0_u32..)
                .zip(self.both)
                .map(|(at, both)| both.point(at.into()))
                .collect(),
        };
        let bars = vec![self.table.bars("collector", "collector_ns"), both];
        let x = named(["state", "row", "KW, N = 1", "KW, N = 2", "A, B = 4", "A, B = 16"]);
        let note = "median, minimum and maximum of the runs; KW: Key-Write, A: Append";
        self.table.plot(
            "CPU time per report (Fig. 6)",
            note,
            [x, log("per report (ns)")],
            bars,
        );
        self.table
    }
}

/// Measures the collector's time per report, ns: decoding, state, thresholds. The values are constant and nothing is stored.
fn state(settings: &Settings) -> Result<Spread, CliError> {
    let case = Case {
        flows: settings.scale.scale(PATHS.flows.into()) as u32,
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
    timing::measure(settings, || {
        let mut reports = 0;
        for _ in 0..8 {
            reports += feed.burst(Input::Payloads, &mut collector, &mut batch) as u64;
        }
        batch.clear();
        Ok(reports)
    })
}

/// Returns a workload whose reports contain one change each. They carry node IDs and hop latencies only: with timestamps, the
/// flow's latency would change too, and add a second row per report.
pub(super) fn stored_case(settings: &Settings) -> Case {
    let flows = settings.scale.scale(PATHS.flows.into()) as u32;
    Case {
        flows,
        bitmap: 0xa000,
        values: Values::Change,
        ..PATHS
    }
}

/// Measures CPU time per report of all threads (ns) if each report adds one event to the store. Also returns rows per report.
pub(super) fn stored(settings: &Settings) -> Result<(Spread, f64), CliError> {
    let directory = Scratch::new("dta-cpu")?;
    let config = store::Config {
        max_bytes: Some(4 << 30),
        ..store::Config::new(directory.path())
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
    let wanted = settings.scale.scale(200_000);
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

// Names of the methods of the CPU collector.
const STATE: &str = "INT report, state of flows and hops";
const ROW: &str = "INT report, one indexed row";

/// Computes comparisons and remarks from the rows.
pub(crate) fn observe(results: &Results) -> Observations {
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
    Observations::new(comparisons, remarks.into())
}

/// Compares the time of a CPU method with a DTA method: with the responder alone, and with responder and translator.
fn times(rows: &Rows, slow: &str, fast: &str) -> Option<String> {
    let slow = rows.find(&[("method", slow)])?.spread("collector_ns");
    let fast = rows.find(&[("method", fast)])?;
    let responder = fast.spread("collector_ns");
    let both = responder.plus(fast.spread("translator_ns"));
    Some(format!(
        "with the responder {}; with responder and translator {}",
        slow.over(responder).ratio_text(1),
        slow.over(both).ratio_text(1)
    ))
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
