//! Generates the page of measured figures, ratios and verdicts from the output of `hopwise bench --all --json`.

mod bars;

use std::collections::HashMap;
use std::fmt::Write as _;

use serde_json::Value;

#[cfg(test)]
pub(crate) use bars::names as bar_names;
use bars::{Bar, bar_of};

/// Name and description of a case.
type Case = (&'static str, &'static str);

/// Renders the page of `outcomes`, one JSON object per line, in the order of `cases`. The error names a line that is no
/// outcome.
pub(crate) fn page(outcomes: &str, cases: &[Case]) -> Result<String, String> {
    let mut found = HashMap::new();
    for (at, line) in outcomes
        .lines()
        .enumerate()
        .filter(|(_, line)| !line.trim().is_empty())
    {
        let outcome = serde_json::from_str::<Value>(line).ok().and_then(Figure::read);
        let (name, figure) =
            outcome.ok_or_else(|| format!("line {}: no outcome of `hopwise bench`", at + 1))?;
        found.insert(name, figure);
    }
    let mut out = String::from(HEAD);
    let machines = machines(&found);
    conditions(&found, &machines, &mut out);
    let mut titles: Vec<&str> = Vec::new();
    for (name, _) in cases {
        if !titles.contains(&section(name)) {
            titles.push(section(name));
        }
    }
    for title in titles {
        let _ = write!(out, "\n## {title}\n\n{COLUMNS}");
        for case in cases.iter().filter(|(name, _)| section(name) == title) {
            row(*case, &found, &machines, &mut out);
        }
    }
    Ok(out)
}

const HEAD: &str = "\
# Performance: measured figures

Made by `hopwise bench --page` from [performance.jsonl](performance.jsonl), the output of `hopwise bench --all --json` on one machine. The same commands make the page of your machine.

Each figure is the median of the runs, in ns per operation, with the fastest and the slowest run. A *ratio* compares with another case or with a plain loop in the same run: ratios carry over to other machines, figures do not. The *bar* is the goal; the
table marks each miss. (busy): other programs used more than a tenth of a core meanwhile, so that the figure may be too high. For anything not in these tables, see the [notes](performance.md).
";

const COLUMNS: &str = "| case | measures | ns (range) | ratio | bar |\n| --- | --- | --- | --- | --- |\n";

struct Figure {
    median: f64,
    range: (f64, f64),
    busy: bool,
    conditions: Value,
}

impl Figure {
    fn read(outcome: Value) -> Option<(String, Self)> {
        let figure = Self {
            median: outcome.get("median")?.as_f64()?,
            range: (outcome.get("min")?.as_f64()?, outcome.get("max")?.as_f64()?),
            busy: outcome.get("busy")?.as_bool()?,
            conditions: outcome.get("conditions")?.clone(),
        };
        Some((outcome.get("name")?.as_str()?.to_owned(), figure))
    }

    fn machine(&self) -> String {
        let [cpu, cores, kernel] = ["cpu", "cores", "kernel"].map(|name| match self.conditions.get(name) {
            Some(Value::String(text)) => text.clone(),
            Some(other) => other.to_string(),
            None => String::new(),
        });
        format!("{cpu}, {cores} cores, Linux {kernel}")
    }

    fn condition(&self, name: &str) -> Option<f64> {
        self.conditions.get(name)?.as_f64()
    }
}

/// Returns the distinct machines of the outcomes, sorted.
fn machines(found: &HashMap<String, Figure>) -> Vec<String> {
    let mut machines: Vec<String> = found.values().map(Figure::machine).collect();
    machines.sort();
    machines.dedup();
    machines
}

/// Returns the mark of a row's machine: a letter if the outcomes are from several machines, otherwise nothing.
fn mark(machines: &[String], machine: &str) -> String {
    let at = machines
        .iter()
        .position(|one| one == machine)
        .filter(|_| machines.len() > 1);
    // The digit 10 in base 36 is `a`.
    at.and_then(|at| char::from_digit(at as u32 + 10, 36))
        .map_or_else(String::new, |letter| format!("{}: ", letter.to_ascii_uppercase()))
}

/// Writes the names and the load of the machines.
fn conditions(found: &HashMap<String, Figure>, machines: &[String], out: &mut String) {
    let named: Vec<String> = machines
        .iter()
        .map(|machine| format!("{}{machine}", mark(machines, machine)))
        .collect();
    let loads = found
        .values()
        .filter_map(|figure| figure.condition("load_average"));
    let least = loads.clone().fold(f64::INFINITY, f64::min);
    let most = loads.fold(0.0, f64::max);
    let _ = writeln!(
        out,
        "\nMachine: {}; load average {least:.1} to {most:.1}.",
        named.join("; ")
    );
    if machines.len() > 1 {
        out.push_str(
            "Rows begin with the letter of their machine; figures of different machines are not compared.\n",
        );
    }
}

/// Returns the section of a case, by the prefix of its name.
fn section(name: &str) -> &'static str {
    const SECTIONS: &[(&str, &str)] = &[
        ("fastpath", "The fast path"),
        ("fanout", "The fast path"),
        ("decode", "The fast path"),
        ("replay", "The fast path"),
        ("sf-join", "The fast path"),
        ("switch", "Switches and the aggregator"),
        ("aggreg", "Switches and the aggregator"),
        ("udp", "Receiving"),
        ("rx", "Receiving"),
        ("xdp", "In the kernel"),
        ("rdma-xdp", "In the kernel"),
        ("dta", "Direct Telemetry Access"),
        ("rdma", "Direct Telemetry Access"),
        ("store", "The store"),
        ("manager", "The manager"),
        ("export", "Export"),
        ("live", "The whole program"),
    ];
    SECTIONS
        .iter()
        .find(|(prefix, _)| name.starts_with(prefix))
        .map_or("Others", |(_, title)| title)
}

fn row((name, about): Case, found: &HashMap<String, Figure>, machines: &[String], out: &mut String) {
    let Some(figure) = found.get(name) else {
        let _ = writeln!(out, "| `{name}` | {about} | not measured | | |");
        return;
    };
    let (least, most) = figure.range;
    let busy = if figure.busy { " (busy)" } else { "" };
    let _ = write!(
        out,
        "| `{name}` | {about} | {}{} ({} to {}){busy} |",
        mark(machines, &figure.machine()),
        short(figure.median),
        short(least),
        short(most)
    );
    match bar_of(name) {
        Some(bar) => compare(figure, bar, found, out),
        None => out.push_str(" | |\n"),
    }
}

/// Returns the median of a case in ns, if it was measured on this machine.
fn median_on(found: &HashMap<String, Figure>, case: &str, machine: &str) -> Option<f64> {
    found
        .get(case)
        .filter(|other| other.machine() == machine)
        .map(|other| other.median)
}

/// Writes the ratio and the verdict of a case with a goal.
fn compare(figure: &Figure, bar: &Bar, found: &HashMap<String, Figure>, out: &mut String) {
    let machine = figure.machine();
    let (value, ratio, wanted) = match *bar {
        Bar::Times { case, most } => {
            let times = median_on(found, case, &machine).map(|other| figure.median / other);
            (
                times,
                times.map(|times| format!("{times:.2} × `{case}`")),
                format!("at most {most} ×"),
            )
        }
        Bar::More { case, most } => {
            let more = median_on(found, case, &machine).map(|other| figure.median - other);
            (
                more,
                more.map(|more| format!("{more:+.1} ns to `{case}`")),
                format!("at most {most} ns more"),
            )
        }
        Bar::Share {
            condition,
            what,
            least,
        } => {
            let share = figure.condition(condition);
            (
                share,
                share.map(|share| format!("{share:.2} × {what}")),
                format!("at least {least} ×"),
            )
        }
        Bar::Of {
            condition,
            what,
            most,
        } => {
            let value = figure.condition(condition);
            (
                value,
                value.map(|value| format!("{value:.1} {what}")),
                format!("at most {most}"),
            )
        }
        Bar::Most(most) => (
            Some(figure.median),
            Some(String::new()),
            format!("at most {} ns", short(most)),
        ),
    };
    let verdict = match value.map(|value| bar.is_met(value)) {
        Some(true) => "met",
        Some(false) => "**missed**",
        None => "not measured",
    };
    let _ = writeln!(out, " {} | {wanted}: {verdict} |", ratio.unwrap_or_default());
}

/// Formats a time with three digits.
fn short(ns: f64) -> String {
    match ns {
        ns if ns < 9.995 => format!("{ns:.2}"),
        ns if ns < 99.95 => format!("{ns:.1}"),
        ns if ns < 9_999.5 => format!("{ns:.0}"),
        ns => terminal::units::count(ns.round() as u64),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(name: &str, median: f64, conditions: &str) -> String {
        format!(
            r#"{{"name":"{name}","median":{median},"min":1,"max":20000,"busy":false,"conditions":{{"cpu":"C","cores":2,"kernel":"6","load_average":0.5{conditions}}}}}"#
        )
    }

    fn line<'a>(page: &'a str, name: &str) -> &'a str {
        page.lines()
            .find(|line| line.starts_with(&format!("| `{name}` |")))
            .unwrap()
    }

    #[test]
    fn figures_ratios_and_verdicts_follow_from_the_outcomes() {
        let outcomes = [
            ("fastpath-6x8-1k", outcome("fastpath-6x8-1k", 80.0, "")),
            ("fastpath-6x8-100k", outcome("fastpath-6x8-100k", 100.0, "")),
            (
                "fastpath-6x8-100k-shuffled",
                outcome("fastpath-6x8-100k-shuffled", 125.0, ""),
            ),
            (
                "fastpath-6x8-1m-shuffled",
                outcome("fastpath-6x8-1m-shuffled", 125.0, ""),
            ),
            ("fastpath-6x8-1k-rule", outcome("fastpath-6x8-1k-rule", 86.0, "")),
            ("fanout-2", outcome("fanout-2", 50.0, r#","speedup":1.69"#)),
            ("store-insert", outcome("store-insert", 1000.4, "")),
        ];
        let cases: Vec<Case> = outcomes
            .iter()
            .map(|(name, _)| (*name, "it"))
            .chain([("live-new-flows", "it")])
            .collect();
        let lines = outcomes.map(|(_, outcome)| outcome).join("\n");
        let page = page(&lines, &cases).unwrap();
        let end = |name: &str| {
            line(&page, name)
                .split(" | ")
                .skip(2)
                .collect::<Vec<_>>()
                .join(" | ")
        };
        let range = "(1.00 to 20,000)";
        assert_eq!(
            end("fastpath-6x8-100k-shuffled"),
            format!("125 {range} | 1.25 × `fastpath-6x8-100k` | at most 1.25 ×: met |")
        );
        assert_eq!(
            end("fastpath-6x8-1m-shuffled"),
            format!("125 {range} |  | at most 1.25 ×: not measured |")
        );
        assert_eq!(
            end("fastpath-6x8-1k-rule"),
            format!("86.0 {range} | +6.0 ns to `fastpath-6x8-1k` | at most 5 ns more: **missed** |")
        );
        assert_eq!(
            end("fanout-2"),
            format!("50.0 {range} | 1.69 × one worker | at least 1.7 ×: **missed** |")
        );
        assert_eq!(end("fastpath-6x8-1k"), format!("80.0 {range} | | |"));
        assert!(line(&page, "live-new-flows").contains("not measured"));
        assert!(page.contains("Machine: C, 2 cores, Linux 6; load average 0.5 to 0.5."));
    }

    #[test]
    fn figures_of_two_machines_are_marked_and_not_compared() {
        let (name, base) = ("fastpath-6x8-100k-shuffled", "fastpath-6x8-100k");
        let lines = [
            outcome(name, 125.0, ""),
            outcome(base, 100.0, "").replace("\"C\"", "\"D\""),
        ]
        .join("\n");
        let page = page(&lines, &[(name, "it"), (base, "it")]).unwrap();
        assert!(
            page.contains("Machine: A: C, 2 cores, Linux 6; B: D, 2 cores, Linux 6; load"),
            "{page}"
        );
        assert!(line(&page, name).contains("| A: 125 (1.00 to 20,000) |  | at most 1.25 ×: not measured |"));
        assert!(line(&page, base).contains("| B: 100 "));
    }

    #[test]
    fn a_line_that_is_no_outcome_is_an_error() {
        let bad = format!("{}\n{{}}", outcome("replay", 1.0, ""));
        assert_eq!(
            page(&bad, &[]),
            Err("line 2: no outcome of `hopwise bench`".to_owned())
        );
    }
}
