//! Reads the output of `hopwise bench --json`: one outcome per line.

use std::collections::HashMap;

use serde_json::Value;

/// The result of one case.
pub(super) struct Figure {
    /// Median of the runs, ns per operation.
    pub(super) median: f64,
    /// The fastest and the slowest run, ns per operation.
    pub(super) range: (f64, f64),
    /// True if other programs used more than a tenth of a core meanwhile.
    pub(super) busy: bool,
    conditions: Value,
}

impl Figure {
    fn read(outcome: &Value) -> Option<(String, Self)> {
        let figure = Self {
            median: outcome.get("median")?.as_f64()?,
            range: (outcome.get("min")?.as_f64()?, outcome.get("max")?.as_f64()?),
            busy: outcome.get("busy")?.as_bool()?,
            conditions: outcome.get("conditions")?.clone(),
        };
        Some((outcome.get("name")?.as_str()?.to_owned(), figure))
    }

    /// Describes the machine on which the case was measured.
    pub(super) fn machine(&self) -> String {
        let [cpu, cores, kernel] = ["cpu", "cores", "kernel"].map(|name| match self.conditions.get(name) {
            Some(Value::String(text)) => text.clone(),
            Some(other) => other.to_string(),
            None => String::new(),
        });
        format!("{cpu}, {cores} cores, Linux {kernel}")
    }

    /// Returns a numeric condition of the measurement.
    pub(super) fn condition(&self, name: &str) -> Option<f64> {
        self.conditions.get(name)?.as_f64()
    }
}

/// The outcomes of a file, by the names of their cases.
pub(super) struct Outcomes(HashMap<String, Figure>);

impl Outcomes {
    /// Reads one JSON object per line. Of several outcomes of a case, the last one counts. The error names a line that is no
    /// outcome.
    pub(super) fn read(text: &str) -> Result<Self, String> {
        let mut figures = HashMap::new();
        for (at, line) in text
            .lines()
            .enumerate()
            .filter(|(_, line)| !line.trim().is_empty())
        {
            let outcome = serde_json::from_str::<Value>(line)
                .ok()
                .and_then(|outcome| Figure::read(&outcome));
            let (name, figure) =
                outcome.ok_or_else(|| format!("line {}: no outcome of `hopwise bench`", at + 1))?;
            figures.insert(name, figure);
        }
        Ok(Self(figures))
    }

    /// Returns the result of a case, if it was measured.
    pub(super) fn figure(&self, case: &str) -> Option<&Figure> {
        self.0.get(case)
    }

    /// Returns the median of a case in ns, if it was measured on this machine.
    pub(super) fn median_on(&self, case: &str, machine: &str) -> Option<f64> {
        self.figure(case)
            .filter(|figure| figure.machine() == machine)
            .map(|figure| figure.median)
    }

    /// Returns the distinct machines of the outcomes, sorted.
    pub(super) fn machines(&self) -> Vec<String> {
        let mut machines: Vec<String> = self.0.values().map(Figure::machine).collect();
        machines.sort();
        machines.dedup();
        machines
    }

    /// Returns the lowest and the highest load average at the start of a case.
    pub(super) fn loads(&self) -> (f64, f64) {
        self.0
            .values()
            .filter_map(|figure| figure.condition("load_average"))
            .fold((f64::INFINITY, 0.0), |(least, most), load| {
                (least.min(load), most.max(load))
            })
    }
}
