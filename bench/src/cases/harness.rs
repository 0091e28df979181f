//! Measures a case: warm-up, several runs, the median as the result, and a description of the machine.

use std::fs;
use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use crate::program::Program;
use terminal::CliError;
use terminal::json::{self, Object};

/// How long to measure.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan<'p> {
    /// Runs; the median of them is reported.
    pub(super) runs: u32,
    /// Time of one run. The warm-up takes half of it.
    pub(super) each: Duration,
    /// The parts of the program that some cases measure.
    pub(super) program: &'p dyn Program,
}

impl Plan<'_> {
    /// Whether runs are so short that they only test the benchmark itself. Cases then prepare less data than their names say;
    /// their conditions state how much.
    pub(super) fn is_trial(&self) -> bool {
        self.each < Duration::from_millis(50)
    }

    /// Runs that are not counted, of cases that need more than half a run to warm up.
    pub(super) fn warm_ups(&self) -> u32 {
        u32::from(!self.is_trial())
    }

    /// Flows of a case that is named for `flows`.
    pub(super) fn flows(&self, flows: u32) -> u32 {
        const MAX_IN_TRIAL: u32 = 10_000;
        if self.is_trial() { flows.min(MAX_IN_TRIAL) } else { flows }
    }
}

/// Result of a case.
#[derive(Debug)]
pub(super) struct Outcome {
    /// Its name.
    pub(super) name: &'static str,
    /// Nanoseconds per operation, one per run, in the order of the runs.
    pub(super) ns_per_op: Vec<f64>,
    /// What was measured, and on which machine.
    pub(super) conditions: Conditions,
}

/// Result of [`measure`].
#[derive(Debug)]
pub(super) struct Measured {
    /// Nanoseconds per operation, one per run.
    pub(super) ns_per_op: Vec<f64>,
    /// CPU time of this thread per operation, ns. A value below the elapsed time means that other threads used the core, and
    /// that the result is pessimistic. `None` where the system does not report it.
    pub(super) on_core: Option<f64>,
}

/// Why a case has no result.
#[derive(Debug)]
pub(super) enum Failure {
    /// This machine or user cannot run the case; the reason.
    Skipped(String),
    /// The case failed.
    Failed(CliError),
}

impl From<CliError> for Failure {
    fn from(error: CliError) -> Self {
        Self::Failed(error)
    }
}

/// Conditions of the measurement, in the order given.
#[derive(Clone, Default, Debug)]
pub(super) struct Conditions(Vec<(&'static str, Value)>);

#[derive(Clone, Debug)]
enum Value {
    Text(String),
    Number(u64),
    Ratio(f64),
}

impl Conditions {
    /// Describes one operation, and what its time includes.
    pub(super) fn of(operation: &str, included: &str) -> Self {
        Self::default().text("operation", operation).text("included", included)
    }

    /// Adds a text.
    pub(super) fn text(mut self, name: &'static str, text: impl Into<String>) -> Self {
        self.0.push((name, Value::Text(text.into())));
        self
    }

    /// Adds an integer.
    pub(super) fn number(mut self, name: &'static str, number: impl TryInto<u64>) -> Self {
        self.0.push((name, Value::Number(number.try_into().unwrap_or(u64::MAX))));
        self
    }

    /// Adds a fraction or a rate.
    pub(super) fn ratio(mut self, name: &'static str, ratio: f64) -> Self {
        self.0.push((name, Value::Ratio((ratio * 1e4).round() / 1e4)));
        self
    }

    /// Adds the machine and its load.
    fn on_this_machine(self) -> Self {
        let machine = Machine::read();
        let with_machine =
            self.text("cpu", machine.cpu).number("cores", machine.cores).text("kernel", machine.kernel);
        match machine.load {
            Some(load) => with_machine.ratio("load_average", load),
            None => with_machine,
        }
    }

    /// Adds the CPU time of the measuring thread.
    pub(super) fn on_core(self, measured: &Measured) -> Self {
        match measured.on_core {
            Some(ns) => self.ratio("ns_on_core", rounded(ns)),
            None => self,
        }
    }

    fn write(&self, object: &mut Object<'_>) {
        for (name, value) in &self.0 {
            match value {
                Value::Text(text) => object.field(name, text),
                Value::Number(number) => object.field(name, *number),
                Value::Ratio(ratio) => object.field(name, *ratio),
            };
        }
    }

    /// The text form: `flows: 1,000 · cores: 2`.
    pub(super) fn sentence(&self) -> String {
        let field = |(name, value): &(&str, Value)| match value {
            Value::Text(text) => format!("{name}: {text}"),
            Value::Number(number) => format!("{name}: {}", terminal::units::count(*number)),
            Value::Ratio(ratio) => format!("{name}: {ratio}"),
        };
        self.0.iter().map(field).collect::<Vec<_>>().join(" · ")
    }
}

struct Machine {
    cpu: String,
    cores: usize,
    kernel: String,
    load: Option<f64>,
}

impl Machine {
    fn read() -> Self {
        let info = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let model = info.lines().find_map(|line| line.strip_prefix("model name")?.split_once(':'));
        let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        let known = |text: &str| if text.is_empty() { "unknown".to_string() } else { text.to_string() };
        Self {
            cpu: known(model.map_or("", |(_, name)| name.trim())),
            cores: thread::available_parallelism().map_or(1, usize::from),
            kernel: known(kernel.trim()),
            load: fs::read_to_string("/proc/loadavg")
                .ok()
                .and_then(|text| text.split(' ').next()?.parse().ok()),
        }
    }
}

/// Describes the machine.
pub(crate) fn machine() -> String {
    let Machine { cpu, cores, kernel, .. } = Machine::read();
    format!("{cpu}, {cores} cores, Linux {kernel}")
}

/// Load average of the last minute.
pub(crate) fn load() -> Option<f64> {
    Machine::read().load
}

impl Outcome {
    /// An outcome from the time per operation of each run.
    pub(super) fn new(name: &'static str, ns_per_op: Vec<f64>, conditions: Conditions) -> Self {
        Self { name, ns_per_op, conditions: conditions.on_this_machine() }
    }

    fn sorted(&self) -> Vec<f64> {
        let mut sorted = self.ns_per_op.clone();
        sorted.sort_by(f64::total_cmp);
        sorted
    }

    /// The median over all runs.
    pub(super) fn median(&self) -> f64 {
        let sorted = self.sorted();
        let middle = sorted.len() / 2;
        match sorted.len() {
            0 => f64::NAN,
            n if n.is_multiple_of(2) => f64::midpoint(sorted[middle - 1], sorted[middle]),
            _ => sorted[middle],
        }
    }

    /// Fastest and slowest run.
    pub(super) fn range(&self) -> (f64, f64) {
        let sorted = self.sorted();
        (sorted.first().copied().unwrap_or(f64::NAN), sorted.last().copied().unwrap_or(f64::NAN))
    }

    /// The JSON form: times in ns per operation.
    pub(super) fn json(&self) -> String {
        let (median, (min, max)) = (self.median(), self.range());
        let mut out = String::new();
        json::object(&mut out, |o| {
            o.field("name", self.name).field("ns_per_op", rounded(median));
            o.field("ops_per_s", (1e9 / median).round()).field("runs", self.ns_per_op.len());
            o.field("min", rounded(min)).field("median", rounded(median)).field("max", rounded(max));
            o.object("conditions", |o| self.conditions.write(o));
        });
        out
    }
}

fn rounded(ns: f64) -> f64 {
    (ns * 100.0).round() / 100.0
}

/// Measures `body`, which does some operations and returns how many. A body should take between 10 us and 10 ms, so that
/// the cost of reading the clock is negligible and runs end on time.
pub(super) fn measure(
    plan: &Plan<'_>,
    mut body: impl FnMut() -> Result<u64, Failure>,
) -> Result<Measured, Failure> {
    run_for(plan.each / 2, &mut body)?;
    let before = core_time();
    let (mut ns_per_op, mut operations) = (Vec::new(), 0);
    for _ in 0..plan.runs {
        let (elapsed, done) = run_for(plan.each, &mut body)?;
        ns_per_op.push(elapsed.as_nanos() as f64 / done as f64);
        operations += done;
    }
    let on_core =
        before.zip(core_time()).map(|(before, after)| (after - before) as f64 / operations.max(1) as f64);
    Ok(Measured { ns_per_op, on_core })
}

/// CPU time of this thread, ns.
pub(crate) fn core_time() -> Option<u64> {
    fs::read_to_string("/proc/thread-self/schedstat").ok()?.split(' ').next()?.parse().ok()
}

/// Runs operations for at least `span`; returns the elapsed time and the number of operations.
fn run_for(
    span: Duration,
    body: &mut impl FnMut() -> Result<u64, Failure>,
) -> Result<(Duration, u64), Failure> {
    let started = Instant::now();
    let mut operations = 0;
    loop {
        operations += black_box(body()?);
        let elapsed = started.elapsed();
        if elapsed >= span && operations > 0 {
            return Ok((elapsed, operations));
        }
    }
}

/// The median.
pub(super) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// A temporary directory, removed on drop.
pub(super) struct Scratch(PathBuf);

impl Scratch {
    /// Creates a directory in the system's temporary directory, or in `TMPDIR`.
    pub(super) fn new(case: &str) -> Result<Self, CliError> {
        let path = std::env::temp_dir().join(format!("hopwise-bench-{case}-{}", std::process::id()));
        std::fs::create_dir_all(&path).map_err(|error| {
            CliError::io(
                format!("cannot create {}", path.display()),
                error,
                "set TMPDIR to a writable directory",
            )
        })?;
        Ok(Self(path))
    }

    /// Its path.
    pub(super) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // Failure is harmless: the directory is among the temporary files.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::program::Switch;

    /// Stub for cases that do not need the program.
    #[derive(Debug)]
    struct NoProgram;

    impl Program for NoProgram {
        fn each_chunk(&self, _: &[nic::source::Packet<'_>], _: &mut dyn FnMut(&[collector::Datagram<'_>])) {}

        fn replay(&self, _: &Path, _: collector::Config) -> Result<u64, CliError> {
            Ok(0)
        }

        fn open_switch(&self, _: &str) -> Result<Box<dyn Switch>, CliError> {
            Err(CliError::new("no switch"))
        }
    }

    #[test]
    fn the_result_is_the_median() {
        let outcome = |runs: &[f64]| Outcome::new("x", runs.to_vec(), Conditions::default());
        assert_eq!(outcome(&[30.0, 10.0, 20.0]).median(), 20.0);
        assert_eq!(outcome(&[40.0, 10.0, 20.0, 30.0]).median(), 25.0);
        assert_eq!(outcome(&[30.0, 10.0, 20.0]).range(), (10.0, 30.0));
    }

    #[test]
    fn the_json_form_contains_the_measurement_and_its_conditions() {
        let mut outcome = Outcome::new("x", vec![50.0, 12.344, 12.346], Conditions::default());
        outcome.conditions =
            Conditions::of("one report", "decoding").number("flows", 1000_u32).ratio("ratio", 0.123_456);
        assert_eq!(
            outcome.json(),
            r#"{"name":"x","ns_per_op":12.35,"ops_per_s":80997894,"runs":3,"min":12.34,"median":12.35,"max":50,"conditions":{"operation":"one report","included":"decoding","flows":1000,"ratio":0.1235}}"#
        );
    }

    #[test]
    fn every_run_is_counted_after_a_warm_up() {
        let plan = Plan { runs: 3, each: Duration::ZERO, program: &NoProgram };
        let mut calls = 0;
        let runs = measure(&plan, || {
            calls += 1;
            Ok(1)
        });
        assert_eq!((runs.map(|runs| runs.ns_per_op.len()).ok(), calls), (Some(3), 4));
    }
}
