//! `hopwise doctor`

use std::{
    io::{Write, stdout},
    path::PathBuf,
    process::ExitCode,
};

use crate::{
    config::Settings,
    doctor::{self, Check, Depth, Examined, Expected, Input, Report, Verdict, Wishes},
};
use terminal::CliError;
use terminal::{Terminal, Tone, units::counted};

mod json;

/// Say whether this machine can do it, and what would mend it
///
/// Looks at the kernel, at rights and limits, and at the interfaces: those that are named, and those of the configuration.
/// Without either it looks at the defaults and at what hardware there is. Nothing is changed.
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Interfaces that reports are to come in by, as xdp://INTERFACE
    #[arg(value_name = "INTERFACE")]
    pub(crate) interfaces: Vec<String>,

    /// Examine the inputs of this configuration
    #[arg(short, long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,

    /// Really attach a program to each interface and open a socket there, for a moment
    #[arg(long = "try")]
    pub(crate) attempt: bool,

    /// Also see whether the inputs' UDP ports are free (they are not while hopwise runs)
    #[arg(long)]
    pub(crate) ports: bool,

    /// One JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

const EXAMPLES: &str = "\
Examples:
  hopwise doctor                        the defaults, and what the hardware could do
  hopwise doctor eth1 eth2              can these be read by AF_XDP, and how fast a way is it
  hopwise doctor -c hopwise.toml        the inputs of a configuration
  hopwise doctor eth1 --try             attach a program that lets everything pass, and see: a driver may take the link
                                        down for a moment
Exit codes: 0 good, 1 something is in the way of what was asked for, 2 wrong usage.";

/// Examines and tells.
pub(crate) fn run(args: Args) -> Result<ExitCode, CliError> {
    let mut wishes = Wishes::of(&Settings::load(args.config.as_deref())?);
    if args.config.is_none() {
        if args.interfaces.is_empty() {
            wishes.inputs.extend(doctor::candidates());
        } else {
            wishes.inputs.clear();
        }
    }
    for name in &args.interfaces {
        let name = name.strip_prefix("xdp://").unwrap_or(name);
        if !wishes.inputs.iter().any(|input| input.interface.as_deref() == Some(name)) {
            wishes.inputs.push(Input::interface(name, true));
        }
    }
    let report = doctor::examine(&wishes, Depth { try_rungs: args.attempt, try_ports: args.ports })?;
    let told = if args.json { json::report(&report) } else { text(&report, Terminal::stdout()) };
    stdout().lock().write_all(told.as_bytes()).map_err(CliError::output)?;
    Ok(if report.verdict() == Verdict::Blocking { ExitCode::from(1) } else { ExitCode::SUCCESS })
}

fn text(report: &Report, terminal: Terminal) -> String {
    let mut out = terminal.paint(Tone::Strong, "this machine");
    out.push('\n');
    list(&mut out, &report.checks, terminal);
    for examined in &report.inputs {
        out.push('\n');
        out.push_str(&terminal.paint(Tone::Strong, &title(examined)));
        out.push('\n');
        if let Some(expected) = &examined.expected {
            out.push_str(&ladder(expected));
        }
        list(&mut out, &examined.checks, terminal);
    }
    out.push('\n');
    out.push_str(&summary(report));
    out
}

fn title(examined: &Examined) -> String {
    let asked = if examined.input.asked { "" } else { " (not asked for)" };
    format!("{}{asked}", examined.input.listen)
}

/// What it will be, and why it is nothing better.
fn ladder(expected: &Expected) -> String {
    let sure = if expected.tried { "tried" } else { "expected" };
    let mut out = format!("  {sure}: {}", expected.rung.name());
    if !expected.perhaps.is_empty() {
        let perhaps: Vec<&str> = expected.perhaps.iter().map(|rung| rung.name()).collect();
        out.push_str(&format!(", perhaps {} (--try finds out)", perhaps.join(" or ")));
    }
    out.push('\n');
    for (rung, reason) in &expected.not {
        out.push_str(&format!("    not {}: {reason}\n", rung.name()));
    }
    out
}

/// One line per check; what is not good says why, and what to do.
fn list(out: &mut String, checks: &[Check], terminal: Terminal) {
    let widest = checks.iter().map(|check| check.name.len()).max().unwrap_or(0);
    for Check { name, verdict, found, why, mend } in checks {
        let (words, tone) = words(*verdict);
        let verdict_shown = terminal.paint(tone, &format!("{words:<15}"));
        let name = format!("{:<widest$}", name.replace('_', " "));
        out.push_str(&format!("  {verdict_shown}  {name}  {found}\n"));
        if *verdict == Verdict::Good {
            continue;
        }
        for line in lines(why, terminal.width.saturating_sub(INDENT)) {
            out.push_str(&format!("{:INDENT$}{}\n", "", terminal.paint(Tone::Dim, &line)));
        }
        if let Some(command) = mend {
            out.push_str(&format!("{:INDENT$}$ {command}\n", ""));
        }
    }
}

/// Columns before what is said about a check.
const INDENT: usize = 19;

/// The text in lines of at most `width` columns, if its words allow it.
fn lines(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split(' ') {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

fn words(verdict: Verdict) -> (&'static str, Tone) {
    match verdict {
        Verdict::Good => ("good", Tone::Good),
        Verdict::Unknown => ("unknown", Tone::Dim),
        Verdict::Better => ("could be better", Tone::Warn),
        Verdict::Blocking => ("in the way", Tone::Bad),
    }
}

fn summary(report: &Report) -> String {
    let asked = report.inputs.iter().filter(|examined| examined.input.asked);
    let checks = report.checks.iter().chain(asked.flat_map(|examined| &examined.checks));
    let count = |verdict| checks.clone().filter(|check| check.verdict == verdict).count() as u64;
    match (count(Verdict::Blocking), count(Verdict::Better)) {
        (0, 0) => "good\n".to_owned(),
        (0, better) => format!("good; {} could be better\n", counted(better, "thing")),
        (1, better) => format!("1 thing is in the way, {better} could be better\n"),
        (blocking, better) => format!("{blocking} things are in the way, {better} could be better\n"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_are_broken_between_words() {
        assert_eq!(lines("one two three", 7), ["one two", "three"]);
        assert_eq!(lines("immeasurable", 3), ["immeasurable"]);
        assert_eq!(lines("", 10), [""]);
    }
}
