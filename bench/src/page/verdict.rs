//! Compares outcomes with the bars, for the page and for `hopwise bench --bars`.

use terminal::{Align, Table};

use super::bars::{BARS, Bar, Goal, bars_of};
use super::outcomes::{Figure, Outcomes};
use super::short;

/// Whether a case reaches a goal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Verdict {
    Met,
    Missed,
    /// The case, or one that it is compared with, was not measured on this machine.
    NotMeasured,
}

impl Verdict {
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Met => "met",
            Self::Missed => "missed",
            Self::NotMeasured => "not measured",
        }
    }
}

/// A bar compared with the outcomes.
pub(super) struct Comparison {
    pub(super) verdict: Verdict,
    /// The compared value with its unit, in Markdown; empty if it was not measured.
    pub(super) value: String,
    /// The goal in words, which name what it is compared with if the case has several bars.
    pub(super) wanted: String,
}

/// Compares the outcome of a bar's case with its goal.
pub(super) fn compare(bar: &Bar, outcomes: &Outcomes) -> Comparison {
    let figure = outcomes.figure(bar.case);
    let value = figure.and_then(|figure| value_of(&bar.goal, figure, outcomes));
    let verdict = match value.map(|value| bar.goal.is_met(value)) {
        Some(true) => Verdict::Met,
        Some(false) => Verdict::Missed,
        None => Verdict::NotMeasured,
    };
    Comparison {
        verdict,
        value: value.map_or_else(String::new, |value| describe(&bar.goal, value)),
        wanted: wanted(bar),
    }
}

fn value_of(goal: &Goal, figure: &Figure, outcomes: &Outcomes) -> Option<f64> {
    match *goal {
        Goal::Times { case, .. } => {
            let other = outcomes.median_on(case, &figure.machine())?;
            Some(figure.median / other)
        }
        Goal::More { case, .. } => {
            let other = outcomes.median_on(case, &figure.machine())?;
            Some(figure.median - other)
        }
        Goal::Share { condition, .. } | Goal::Of { condition, .. } => figure.condition(condition),
        Goal::Most(_) => Some(figure.median),
    }
}

fn describe(goal: &Goal, value: f64) -> String {
    match *goal {
        Goal::Times { case, .. } => format!("{value:.2} × `{case}`"),
        Goal::More { case, .. } => format!("{value:+.1} ns to `{case}`"),
        Goal::Share { what, .. } => format!("{value:.2} × {what}"),
        Goal::Of { what, .. } => format!("{value:.1} {what}"),
        Goal::Most(_) => format!("{} ns", short(value)),
    }
}

fn wanted(bar: &Bar) -> String {
    match bar.goal {
        Goal::Share { least, what, .. } if bars_of(bar.case).nth(1).is_some() => {
            format!("at least {least} × {what}")
        }
        Goal::Times { most, .. } => format!("at most {most} ×"),
        Goal::More { most, .. } => format!("at most {most} ns more"),
        Goal::Share { least, .. } => format!("at least {least} ×"),
        Goal::Of { most, .. } => format!("at most {most}"),
        Goal::Most(most) => format!("at most {} ns", short(most)),
    }
}

/// The comparison of all bars with the outcomes of a file.
pub(crate) struct Report {
    /// A table, and a line with the counts.
    pub(crate) text: String,
    /// Number of bars that are missed without a known reason.
    pub(crate) unexplained: usize,
}

/// Compares all bars with `outcomes`, one JSON object per line. The error names a line that is no outcome.
pub(crate) fn report(outcomes: &str) -> Result<Report, String> {
    Ok(report_of(BARS, &Outcomes::read(outcomes)?))
}

fn report_of(bars: &[Bar], outcomes: &Outcomes) -> Report {
    let columns = ["case", "value", "bar", "verdict", "reason"];
    let mut table = Table::new(columns.map(|name| (name, Align::Left)));
    let mut verdicts = Vec::new();
    let mut unexplained = 0;
    for bar in bars {
        let Comparison {
            verdict,
            value,
            wanted,
        } = compare(bar, outcomes);
        let is_missed = verdict == Verdict::Missed;
        unexplained += usize::from(is_missed && bar.reason.is_none());
        let reason = bar.reason.filter(|_| is_missed).unwrap_or_default();
        let [case, word] = [bar.case, verdict.word()].map(str::to_owned);
        table.row([case, plain(&value), wanted, word, plain(reason)]);
        verdicts.push(verdict);
    }
    let [met, missed, not_measured] = [Verdict::Met, Verdict::Missed, Verdict::NotMeasured]
        .map(|wanted| verdicts.iter().filter(|verdict| **verdict == wanted).count());
    Report {
        text: format!(
            "{}\n{met} met, {missed} missed ({unexplained} without a known reason), {not_measured} not measured\n",
            table.render()
        ),
        unexplained,
    }
}

/// Removes the marks of code in Markdown.
fn plain(text: &str) -> String {
    text.replace('`', "")
}

#[cfg(test)]
mod tests {
    use super::super::tests::outcome;
    use super::*;

    const fn most(case: &'static str, reason: Option<&'static str>) -> Bar {
        Bar {
            case,
            goal: Goal::Most(100.0),
            reason,
        }
    }

    #[test]
    fn a_missed_bar_without_a_reason_is_counted_and_one_that_was_not_measured_is_not() {
        let lines = [
            outcome("replay", 100.4, ""),
            outcome("decode-only", 101.0, ""),
            outcome("sf-join", 101.0, ""),
        ]
        .join("\n");
        let outcomes = Outcomes::read(&lines).unwrap();
        let bars = [
            most("replay", Some("never shown")),
            most("decode-only", Some("It has `one`.")),
            most("sf-join", None),
            most("outlet", None),
        ];
        let report = report_of(&bars, &outcomes);
        assert_eq!(report.unexplained, 1);
        assert_eq!(
            report.text,
            "case         value   bar             verdict       reason\n\
             replay       100 ns  at most 100 ns  met\n\
             decode-only  101 ns  at most 100 ns  missed        It has one.\n\
             sf-join      101 ns  at most 100 ns  missed\n\
             outlet               at most 100 ns  not measured\n\
             \n1 met, 2 missed (1 without a known reason), 1 not measured\n"
        );
    }

    #[test]
    fn exactly_the_bars_that_the_published_figures_miss_have_a_reason() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/reference/performance.jsonl");
        let outcomes = Outcomes::read(&std::fs::read_to_string(path).unwrap()).unwrap();
        for bar in BARS {
            let Comparison { verdict, value, .. } = compare(bar, &outcomes);
            let case = bar.case;
            match (verdict, bar.reason) {
                (Verdict::Missed, None) => panic!(
                    "{case}: performance.jsonl misses the bar ({value}): say why in bench/src/page/bars.rs, in a sentence"
                ),
                (Verdict::Met | Verdict::NotMeasured, Some(_)) => panic!(
                    "{case}: {} in performance.jsonl ({value}): remove the reason from bench/src/page/bars.rs",
                    verdict.word()
                ),
                _ => {}
            }
            assert!(bar.reason.is_none_or(|reason| reason.ends_with('.')), "{case}");
        }
    }
}
