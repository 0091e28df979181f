//! `hopwise doctor`: checks kernel, capabilities, limits and interfaces (see `examine`) and prints problems with their fixes.

use std::{path::PathBuf, process::ExitCode};

use crate::examine::{self, Check, Depth, Examined, Expected, Input, Report, Requirements, Verdict};
use config::Settings;
use terminal::{CliError, Terminal, Tone, units::counted};

mod json;

const EXAMPLES: &str = "\
Examples:
  hopwise doctor                        the defaults and the hardware
  hopwise doctor eth1 eth2              whether AF_XDP works on these, and by which receive path
  hopwise doctor -c hopwise.toml        the inputs of a configuration
  hopwise doctor eth1 --try             attach a pass-through program; a driver may reset the link for a moment
Exit codes: 0 no blocking problem, 1 a blocking problem, 2 wrong usage.";
/// Indentation of a check's details, columns.
const INDENT: usize = 14;

/// Check readiness and suggest fixes
///
/// Checks the kernel, capabilities, limits and interfaces: those named here and those of the configuration. Without either,
/// checks the defaults and the hardware of this machine. Changes nothing.
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Interfaces to receive reports on, as xdp://INTERFACE
    #[arg(value_name = "INTERFACE")]
    pub(crate) interfaces: Vec<String>,

    /// Check the inputs of this configuration
    #[arg(short, long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,

    /// Attach an XDP program to each interface and open a socket there, for a moment
    #[arg(long = "try")]
    pub(crate) attempt: bool,

    /// Also check that the inputs' UDP ports are free (they are not while hopwise runs)
    #[arg(long)]
    pub(crate) ports: bool,

    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

/// Runs `hopwise doctor`, and returns its exit code.
pub fn run(args: Args) -> Result<ExitCode, CliError> {
    let mut requirements = Requirements::new(&Settings::load(args.config.as_deref())?);
    if args.config.is_none() {
        if args.interfaces.is_empty() {
            requirements.inputs.extend(examine::candidates());
        } else {
            requirements.inputs.clear();
        }
    }
    for name in &args.interfaces {
        let name = name.strip_prefix("xdp://").unwrap_or(name);
        if !requirements
            .inputs
            .iter()
            .any(|input| input.interface.as_deref() == Some(name))
        {
            requirements.inputs.push(Input::interface(name, true));
        }
    }
    let report = examine::examine(
        &requirements,
        Depth {
            try_rx_paths: args.attempt,
            try_ports: args.ports,
        },
    )?;
    let out = if args.json {
        json::report(&report)
    } else {
        text(&report, Terminal::stdout())
    };
    terminal::print(&out)?;
    Ok(if report.verdict() == Verdict::Blocking {
        ExitCode::from(1)
    } else {
        ExitCode::SUCCESS
    })
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
            out.push_str(&receive_paths(expected));
        }
        list(&mut out, &examined.checks, terminal);
    }
    out.push('\n');
    out.push_str(&summary(report));
    out
}

fn title(examined: &Examined) -> String {
    let requested = if examined.input.requested {
        ""
    } else {
        " (not requested)"
    };
    format!("{}{requested}", examined.input.listen)
}

/// Formats the expected receive path, and the reason why each faster one does not work.
fn receive_paths(expected: &Expected) -> String {
    let certainty = if expected.is_probed { "tried" } else { "expected" };
    let mut out = format!("  {certainty}: {}", expected.rx_path.name());
    if !expected.uncertain.is_empty() {
        let uncertain: Vec<&str> = expected.uncertain.iter().map(|rx_path| rx_path.name()).collect();
        out.push_str(&format!(", perhaps {} (--try finds out)", uncertain.join(" or ")));
    }
    out.push('\n');
    for (rx_path, reason) in &expected.excluded {
        out.push_str(&format!("    not {}: {reason}\n", rx_path.name()));
    }
    out
}

/// Appends a line for each check; unless it is ok, also its reason and its fix.
fn list(out: &mut String, checks: &[Check], terminal: Terminal) {
    let widest = checks.iter().map(|check| check.name.len()).max().unwrap_or(0);
    for Check {
        name,
        verdict,
        finding,
        reason,
        fix,
    } in checks
    {
        let (words, tone) = words(*verdict);
        let verdict_text = terminal.paint(tone, &format!("{words:<10}"));
        let name = format!("{:<widest$}", name.replace('_', " "));
        out.push_str(&format!("  {verdict_text}  {name}  {finding}\n"));
        if *verdict == Verdict::Ok {
            continue;
        }
        for line in lines(reason, terminal.width.saturating_sub(INDENT)) {
            out.push_str(&format!("{:INDENT$}{}\n", "", terminal.paint(Tone::Dim, &line)));
        }
        if let Some(command) = fix {
            out.push_str(&format!("{:INDENT$}$ {command}\n", ""));
        }
    }
}

/// Wraps a text into lines of at most `width` columns; a longer word gets its own line.
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

/// Returns the word and colour of a verdict.
fn words(verdict: Verdict) -> (&'static str, Tone) {
    match verdict {
        Verdict::Ok => ("ok", Tone::Good),
        Verdict::Unknown => ("unknown", Tone::Dim),
        Verdict::Suboptimal => ("suboptimal", Tone::Warn),
        Verdict::Blocking => ("blocking", Tone::Bad),
    }
}

fn summary(report: &Report) -> String {
    let requested = report.inputs.iter().filter(|examined| examined.input.requested);
    let checks = report
        .checks
        .iter()
        .chain(requested.flat_map(|examined| &examined.checks));
    let mut blocking = 0;
    let mut suboptimal = 0;
    for check in checks {
        blocking += u64::from(check.verdict == Verdict::Blocking);
        suboptimal += u64::from(check.verdict == Verdict::Suboptimal);
    }
    match (blocking, suboptimal) {
        (0, 0) => "ok\n".to_owned(),
        (0, better) => format!("ok; {} suboptimal\n", counted(better, "check")),
        (blocking, better) => format!("{blocking} blocking, {better} suboptimal\n"),
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
