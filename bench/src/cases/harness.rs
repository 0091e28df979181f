//! Measures a benchmark case: warm-up, several runs, the median as the result, and the conditions (machine, load, workload).

use std::fs;
use std::hint::black_box;
use std::time::{Duration, Instant};

use experiments::machine::{Machine, on_core};
use terminal::CliError;
use terminal::json::{self, Object};

/// Number and length of the runs of a case.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    /// Number of runs, of which the median is reported.
    pub(super) runs: u32,
    /// Time of one run. The warm-up takes half of it.
    pub(super) each: Duration,
}

impl Plan {
    /// Returns whether runs are so short that they only test the benchmark itself. Cases then prepare less data.
    pub(super) fn is_trial(&self) -> bool {
        self.each < Duration::from_millis(50)
    }

    /// Returns the number of uncounted runs for cases that need more than half a run to warm up.
    pub(super) fn warm_ups(&self) -> u32 {
        u32::from(!self.is_trial())
    }

    /// Returns the number of flows of a case: `flows`, or fewer in a trial.
    pub(super) fn flows(&self, flows: u32) -> u32 {
        const MAX_IN_TRIAL: u32 = 10_000;
        if self.is_trial() {
            flows.min(MAX_IN_TRIAL)
        } else {
            flows
        }
    }
}

/// Measures how much CPU time other programs use, from the times of the whole machine and of this process.
#[derive(Clone, Copy, Debug)]
pub(super) struct LoadMeter {
    at: Instant,
    /// Ticks of the machine (all programs, interrupts, time stolen by the hypervisor), and ticks of this process.
    ticks: Option<(u64, u64)>,
}

/// Ticks per second in `/proc/stat` and `/proc/PID/stat` (`USER_HZ`), the same on every Linux.
const TICKS_PER_SECOND: f64 = 100.0;

/// Cores used by other programs above which the machine is busy, so that times may be too high.
const BUSY: f64 = 0.1;

impl LoadMeter {
    pub(super) fn start() -> Self {
        Self {
            at: Instant::now(),
            ticks: Self::ticks(),
        }
    }

    fn ticks() -> Option<(u64, u64)> {
        let machine = used_ticks(&fs::read_to_string("/proc/stat").ok()?)?;
        Some((
            machine,
            process_ticks(&fs::read_to_string("/proc/self/stat").ok()?)?,
        ))
    }

    /// Returns the cores that other programs have used since the start, on average.
    pub(super) fn others(&self) -> Option<f64> {
        let ((all, own), (all_before, own_before)) = (Self::ticks()?, self.ticks?);
        let used = (all - all_before) as f64 - (own - own_before) as f64;
        Some((used / TICKS_PER_SECOND / self.at.elapsed().as_secs_f64()).max(0.0))
    }
}

/// Returns the ticks in which cores were not idle, summed over all cores, from `/proc/stat`.
fn used_ticks(stat: &str) -> Option<u64> {
    let fields = stat.lines().next()?.strip_prefix("cpu ")?.split_whitespace();
    // Fields: user, nice, system, idle, iowait, irq, softirq, steal. Guest time is part of user time.
    let used = fields.take(8).enumerate().filter(|(at, _)| !(3..=4).contains(at));
    used.map(|(_, ticks)| ticks.parse::<u64>().ok()).sum()
}

/// Returns user and system time in ticks, including ended child processes, from `/proc/PID/stat`. The second field, in
/// parentheses, may contain anything, so parsing starts after the last `)`.
fn process_ticks(stat: &str) -> Option<u64> {
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let ticks = fields.get(11..15)?.iter().map(|field| field.parse::<u64>().ok());
    ticks.sum()
}

#[derive(Debug)]
pub(super) struct Outcome {
    pub(super) name: &'static str,
    /// Nanoseconds per operation, one per run, in the order of the runs.
    pub(super) ns_per_op: Vec<f64>,
    /// The workload, and the machine.
    pub(super) conditions: Conditions,
    /// Cores that other programs used during the measurement.
    others: Option<f64>,
}

/// The result of a call of [`measure`].
#[derive(Debug)]
pub(super) struct Measured {
    /// Nanoseconds per operation, one per run.
    pub(super) ns_per_op: Vec<f64>,
    /// CPU time of this thread per operation, ns, if known. Below the elapsed time, other threads used the core.
    pub(super) on_core: Option<f64>,
}

/// The reason why a case has no result.
#[derive(Debug)]
pub(super) enum Failure {
    /// This machine or user cannot run the case, for this reason.
    Skipped(String),
    Failed(CliError),
}

impl Failure {
    /// Skips a case that needs root, or something that this machine lacks.
    pub(super) fn needs(what: &str, error: impl std::fmt::Display) -> Self {
        Self::Skipped(format!("needs {what}, so run it as root ({error})"))
    }
}

impl From<CliError> for Failure {
    fn from(error: CliError) -> Self {
        Self::Failed(error)
    }
}

/// Conditions of the measurement as pairs of name and value, in the order given.
#[derive(Clone, Default, Debug)]
pub(super) struct Conditions(Vec<(&'static str, Value)>);

#[derive(Clone, Debug)]
enum Value {
    Text(String),
    Number(u64),
    Ratio(f64),
}

impl Conditions {
    /// Creates conditions with a description of one operation, and of what its time includes.
    pub(super) fn of(operation: &str, included: &str) -> Self {
        Self::default()
            .text("operation", operation)
            .text("included", included)
    }

    pub(super) fn text(mut self, name: &'static str, text: impl Into<String>) -> Self {
        self.0.push((name, Value::Text(text.into())));
        self
    }

    pub(super) fn number(mut self, name: &'static str, number: impl TryInto<u64>) -> Self {
        self.0
            .push((name, Value::Number(number.try_into().unwrap_or(u64::MAX))));
        self
    }

    /// Adds a fraction or a rate.
    pub(super) fn ratio(mut self, name: &'static str, ratio: f64) -> Self {
        self.0.push((name, Value::Ratio((ratio * 1e4).round() / 1e4)));
        self
    }

    fn on_this_machine(self) -> Self {
        let machine = Machine::read();
        let with_machine = self
            .text("cpu", machine.cpu)
            .number("cores", machine.cores)
            .text("kernel", machine.kernel);
        match machine.load {
            Some(load) => with_machine.ratio("load_average", load),
            None => with_machine,
        }
    }

    /// Adds the number of cores that other programs used during the measurement.
    fn with_others(self, others: Option<f64>) -> Self {
        match others {
            Some(cores) => self.ratio("other_programs_cores", rounded(cores)),
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

    /// Formats the conditions as text: `flows: 1,000 · cores: 2`.
    pub(super) fn sentence(&self) -> String {
        self.0
            .iter()
            .map(|(name, value): &(&str, Value)| match value {
                Value::Text(text) => format!("{name}: {text}"),
                Value::Number(number) => format!("{name}: {}", terminal::units::count(*number)),
                Value::Ratio(ratio) => format!("{name}: {ratio}"),
            })
            .collect::<Vec<_>>()
            .join(" · ")
    }
}

impl Outcome {
    /// Creates an outcome from the time per operation of each run, ns.
    pub(super) fn new(name: &'static str, ns_per_op: Vec<f64>, conditions: Conditions) -> Self {
        Self {
            name,
            ns_per_op,
            conditions: conditions.on_this_machine(),
            others: None,
        }
    }

    /// Creates an outcome from the result of [`measure`].
    pub(super) fn measured(name: &'static str, measured: Measured, conditions: Conditions) -> Self {
        let conditions = match measured.on_core {
            Some(ns) => conditions.ratio("ns_on_core", rounded(ns)),
            None => conditions,
        };
        Self::new(name, measured.ns_per_op, conditions)
    }

    /// Adds the load by other programs since `load` was started.
    pub(super) fn under(self, load: &LoadMeter) -> Self {
        let others = load.others();
        Self {
            conditions: self.conditions.with_others(others),
            others,
            ..self
        }
    }

    /// Returns a warning if other programs used so much that the result may be too high.
    pub(super) fn warning(&self) -> Option<String> {
        let cores = self.others.filter(|cores| *cores > BUSY)?;
        Some(format!(
            "the machine was busy: other programs used {cores:.1} cores"
        ))
    }

    /// Returns the difference between the slowest and the fastest run, as a share of the median.
    pub(super) fn spread(&self) -> f64 {
        let (min, max) = self.range();
        (max - min) / self.median()
    }

    fn sorted(&self) -> Vec<f64> {
        let mut sorted = self.ns_per_op.clone();
        sorted.sort_by(f64::total_cmp);
        sorted
    }

    /// Returns the median of all runs, ns per operation.
    pub(super) fn median(&self) -> f64 {
        let sorted = self.sorted();
        let middle = sorted.len() / 2;
        match sorted.len() {
            0 => f64::NAN,
            n if n.is_multiple_of(2) => f64::midpoint(sorted[middle - 1], sorted[middle]),
            _ => sorted[middle],
        }
    }

    /// Returns the fastest and the slowest run, ns per operation.
    pub(super) fn range(&self) -> (f64, f64) {
        let sorted = self.sorted();
        (
            sorted.first().copied().unwrap_or(f64::NAN),
            sorted.last().copied().unwrap_or(f64::NAN),
        )
    }

    /// Formats the outcome as one line of JSON, with times in ns per operation.
    pub(super) fn json(&self) -> String {
        let (median, (min, max)) = (self.median(), self.range());
        let mut out = String::new();
        json::object(&mut out, |o| {
            o.field("name", self.name).field("ns_per_op", rounded(median));
            o.field("ops_per_s", (1e9 / median).round())
                .field("runs", self.ns_per_op.len());
            o.field("min", rounded(min))
                .field("median", rounded(median))
                .field("max", rounded(max));
            o.field("spread", rounded(self.spread()));
            o.field("busy", self.warning().is_some());
            o.object("conditions", |o| self.conditions.write(o));
        });
        out
    }
}

fn rounded(ns: f64) -> f64 {
    (ns * 100.0).round() / 100.0
}

/// Measures `body`, which does some operations and returns their number. A call should take between 10 us and 10 ms, so that
/// the cost of reading the clock is negligible and runs end on time.
pub(super) fn measure(
    plan: &Plan,
    mut body: impl FnMut() -> Result<u64, Failure>,
) -> Result<Measured, Failure> {
    run_for(plan.each / 2, &mut body)?;
    let mut ns_per_op = Vec::new();
    let mut operations = 0;
    let (measured, ns) = on_core(|| {
        for _ in 0..plan.runs {
            let (elapsed, done) = run_for(plan.each, &mut body)?;
            ns_per_op.push(elapsed.as_nanos() as f64 / done as f64);
            operations += done;
        }
        Ok::<_, Failure>(())
    });
    measured?;
    Ok(Measured {
        ns_per_op,
        on_core: (ns > 0).then_some(ns as f64 / operations.max(1) as f64),
    })
}

/// Returns the user and system time in a `stat` file of a process or thread: seconds, with a resolution of 10 ms.
pub(super) fn processor_time(path: &str) -> (f64, f64) {
    let text = fs::read_to_string(path).unwrap_or_default();
    let after = text.rsplit(')').next().unwrap_or("");
    let mut ticks = after.split_whitespace().skip(11);
    let [user, system] = [ticks.next(), ticks.next()]
        .map(|text| text.and_then(|text| text.parse::<f64>().ok()).unwrap_or(0.0) / TICKS_PER_SECOND);
    (user, system)
}

/// Finds the workload of a case by its name.
pub(super) fn workload<C>(
    cases: impl IntoIterator<Item = C>,
    name: &str,
    name_of: fn(&C) -> &'static str,
) -> Result<C, CliError> {
    let found = cases.into_iter().find(|case| name_of(case) == name);
    found.ok_or_else(|| CliError::new(format!("there is no workload `{name}`; this is a bug")))
}

/// Runs operations for at least `span`. Returns the elapsed time and the number of operations.
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

pub(super) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// Returns the median of a figure over the runs.
pub(super) fn median_of<T>(runs: &[T], figure: impl Fn(&T) -> f64) -> f64 {
    median(runs.iter().map(figure).collect())
}

/// Returns the sum of a counter over the runs.
pub(super) fn sum_of<T>(runs: &[T], counter: impl Fn(&T) -> u64) -> u64 {
    runs.iter().map(counter).sum()
}

/// Returns the error for a thread that could not be joined.
pub(super) fn panicked<E>(_: E) -> CliError {
    CliError::new("a thread of the benchmark panicked")
}

#[cfg(test)]
mod tests {
    use super::*;

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
        outcome.conditions = Conditions::of("one report", "decoding")
            .number("flows", 1000_u32)
            .ratio("ratio", 0.123_456);
        assert_eq!(
            outcome.json(),
            r#"{"name":"x","ns_per_op":12.35,"ops_per_s":80997894,"runs":3,"min":12.34,"median":12.35,"max":50,"spread":3.05,"busy":false,"conditions":{"operation":"one report","included":"decoding","flows":1000,"ratio":0.1235}}"#
        );
    }

    #[test]
    fn a_machine_on_which_other_programs_run_is_busy() {
        let stat = "cpu  100 20 30 4000 500 6 7 8 90 0\ncpu0 1 2 3 4 5 6 7 8 9 0\n";
        assert_eq!(used_ticks(stat), Some(100 + 20 + 30 + 6 + 7 + 8));
        let own = "12 (a (b) c) R 1 2 3 4 5 6 7 8 9 10 50 21 1 1 20 0";
        assert_eq!(process_ticks(own), Some(50 + 21 + 1 + 1));
        let beside = |others| {
            Outcome {
                others,
                ..Outcome::new("x", vec![1.0], Conditions::default())
            }
            .warning()
        };
        assert_eq!((beside(None), beside(Some(0.05))), (None, None));
        let warning = "the machine was busy: other programs used 0.9 cores";
        assert_eq!(beside(Some(0.93)).as_deref(), Some(warning));
    }

    #[test]
    fn every_run_is_counted_after_a_warm_up() {
        let plan = Plan {
            runs: 3,
            each: Duration::ZERO,
        };
        let mut calls = 0;
        let runs = measure(&plan, || {
            calls += 1;
            Ok(1)
        });
        assert_eq!((runs.map(|runs| runs.ns_per_op.len()).ok(), calls), (Some(3), 4));
    }
}
