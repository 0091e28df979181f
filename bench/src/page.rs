//! Generates the page of measured figures, ratios, verdicts and reasons from the output of `hopwise bench --all --json`, and
//! compares such output with the bars.

mod bars;
mod outcomes;
mod verdict;

use std::fmt::Write as _;

#[cfg(test)]
pub(crate) use bars::names as bar_names;
use bars::{Goal, bars_of};
use outcomes::Outcomes;
pub(crate) use verdict::report;
use verdict::{Verdict, compare};

/// Name and description of a case.
type Case = (&'static str, &'static str);

/// Renders the page of `outcomes`, one JSON object per line, in the order of `cases`. The error names a line that is no
/// outcome.
pub(crate) fn page(outcomes: &str, cases: &[Case]) -> Result<String, String> {
    let outcomes = Outcomes::read(outcomes)?;
    let mut out = String::from(HEAD);
    let machines = outcomes.machines();
    conditions(&outcomes, &machines, &mut out);
    let mut titles: Vec<&str> = Vec::new();
    for (name, _) in cases {
        if !titles.contains(&section(name)) {
            titles.push(section(name));
        }
    }
    for title in titles {
        let _ = write!(out, "\n## {title}\n\n{COLUMNS}");
        let cases = cases.iter().filter(|(name, _)| section(name) == title);
        for case in cases.clone() {
            row(*case, &outcomes, &machines, &mut out);
        }
        reasons(cases.map(|(name, _)| *name), &outcomes, &mut out);
    }
    Ok(out)
}

const HEAD: &str = "\
# Performance: measured figures

Made by `hopwise bench --page` from [performance.jsonl](performance.jsonl), the output of `hopwise bench --all --json` on one machine. The same commands make the page of your machine.

Each figure is the median of the runs, in ns per operation, with the fastest and the slowest run. A *ratio* compares with another case or with a plain loop in the same run: ratios carry over to other machines, figures do not. The *bar* is the goal; the
table marks each miss, and the lines below it say why. (busy): other programs used more than a tenth of a core meanwhile, so that the figure may be too high. For anything not in these tables, see the [notes](performance.md).
";

const COLUMNS: &str = "| case | measures | ns (range) | ratio | bar |\n| --- | --- | --- | --- | --- |\n";

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
fn conditions(outcomes: &Outcomes, machines: &[String], out: &mut String) {
    let named: Vec<String> = machines
        .iter()
        .map(|machine| format!("{}{machine}", mark(machines, machine)))
        .collect();
    let (least, most) = outcomes.loads();
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
        ("peer", "Compared with another collector"),
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

fn row((name, about): Case, outcomes: &Outcomes, machines: &[String], out: &mut String) {
    let _ = write!(out, "| `{name}` | {about} | ");
    match outcomes.figure(name) {
        Some(figure) => {
            let (least, most) = figure.range;
            let _ = write!(
                out,
                "{}{} ({} to {}){} |",
                mark(machines, &figure.machine()),
                short(figure.median),
                short(least),
                short(most),
                if figure.busy { " (busy)" } else { "" },
            );
        }
        None => out.push_str("not measured |"),
    }
    let mut values = Vec::new();
    let mut goals = Vec::new();
    for bar in bars_of(name) {
        let comparison = compare(bar, outcomes);
        let verdict = match comparison.verdict {
            Verdict::Missed => "**missed**",
            other => other.word(),
        };
        goals.push(format!("{}: {verdict}", comparison.wanted));
        // The median is in the column before.
        if !matches!(bar.goal, Goal::Most(_)) && !comparison.value.is_empty() {
            values.push(comparison.value);
        }
    }
    if goals.is_empty() {
        out.push_str(" | |\n");
    } else {
        let _ = writeln!(out, " {} | {} |", values.join("; "), goals.join("; "));
    }
}

/// Writes why the cases of a section miss their bars. Cases with the same reason share a line.
fn reasons(cases: impl Iterator<Item = &'static str>, outcomes: &Outcomes, out: &mut String) {
    let mut lines: Vec<(&str, Vec<String>)> = Vec::new();
    for bar in cases.flat_map(bars_of) {
        let Some(reason) = bar.reason else { continue };
        if compare(bar, outcomes).verdict != Verdict::Missed {
            continue;
        }
        let name = format!("`{}`", bar.case);
        match lines.iter_mut().find(|(known, _)| *known == reason) {
            Some((_, names)) => names.push(name),
            None => lines.push((reason, vec![name])),
        }
    }
    if !lines.is_empty() {
        out.push_str("\nWhy bars are missed:\n\n");
    }
    for (reason, names) in lines {
        let _ = writeln!(out, "- {}: {reason}", names.join(", "));
    }
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

    /// Returns a line of an outcome; `conditions` begins with a comma if it is not empty.
    pub(super) fn outcome(name: &str, median: f64, conditions: &str) -> String {
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
                outcome("fastpath-6x8-100k-shuffled", 135.0, ""),
            ),
            (
                "fastpath-6x8-1m-shuffled",
                outcome("fastpath-6x8-1m-shuffled", 125.0, ""),
            ),
            ("fastpath-6x8-1k-rule", outcome("fastpath-6x8-1k-rule", 86.0, "")),
            ("fanout-2", outcome("fanout-2", 50.0, r#","of_limit":0.89"#)),
            (
                "peer-6x8-1k",
                outcome(
                    "peer-6x8-1k",
                    400.0,
                    r#","peer_to_hopwise":5.99,"peer_to_hopwise_kernel":3.5"#,
                ),
            ),
            ("replay", outcome("replay", 105.0, "")),
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
            format!("135 {range} | 1.35 × `fastpath-6x8-100k` | at most 1.35 ×: met |")
        );
        assert_eq!(
            end("fastpath-6x8-1m-shuffled"),
            format!("125 {range} |  | at most 1.5 ×: not measured |")
        );
        assert_eq!(
            end("fastpath-6x8-1k-rule"),
            format!("86.0 {range} | +6.0 ns to `fastpath-6x8-1k` | at most 5 ns more: **missed** |")
        );
        assert_eq!(
            end("fanout-2"),
            format!("50.0 {range} | 0.89 × two threads that share nothing | at least 0.9 ×: **missed** |")
        );
        assert_eq!(
            end("peer-6x8-1k"),
            format!(
                "400 {range} | 5.99 × hopwise in user space; 3.50 × hopwise in the kernel \
                 | at least 6 × hopwise in user space: **missed**; at least 3.5 × hopwise in the kernel: met |"
            )
        );
        assert_eq!(end("fastpath-6x8-1k"), format!("80.0 {range} | | |"));
        assert_eq!(
            end("live-new-flows"),
            "not measured |  | at most 10,000 ns: not measured |"
        );
        assert!(page.contains("Machine: C, 2 cores, Linux 6; load average 0.5 to 0.5."));
    }

    #[test]
    fn the_reasons_of_missed_bars_are_below_the_table() {
        let lines = [
            outcome("fastpath-6x8-1k", 100.0, ""),
            outcome("fastpath-mx21-6x8-1k", 340.0, ""),
            outcome("fastpath-tr05-6x8-1k", 320.0, ""),
            outcome("replay", 120.0, ""),
        ]
        .join("\n");
        let names = [
            "fastpath-6x8-1k",
            "fastpath-mx21-6x8-1k",
            "fastpath-tr05-6x8-1k",
            "replay",
        ];
        let page = page(&lines, &names.map(|name| (name, "it"))).unwrap();
        let (_, reasons) = page.split_once("\nWhy bars are missed:\n\n").unwrap();
        assert!(
            reasons.starts_with("- `fastpath-mx21-6x8-1k`, `fastpath-tr05-6x8-1k`: The fast read"),
            "{reasons}"
        );
        assert!(!reasons.contains("replay"), "a met bar: {reasons}");
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
        assert!(line(&page, name).contains("| A: 125 (1.00 to 20,000) |  | at most 1.35 ×: not measured |"));
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
