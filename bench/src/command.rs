//! The command line of the program `hopwise-bench`: `hopwise bench` by default, `hopwise experiment` after the word
//! `experiment`, man pages and completions after the word `generate`, and the work whose instructions a test counts after the word
//! `instructions`.

use std::{ffi::OsString, path::PathBuf, process::ExitCode};

use clap::{CommandFactory, Parser};
use terminal::{CliError, generate};

use crate::cases;

/// Write man pages and shell completions (for packagers)
#[derive(Parser, Debug)]
#[command(name = "hopwise-bench-generate", bin_name = "hopwise-bench generate")]
struct Generate {
    /// Directory to write into; created if missing
    #[arg(value_name = "DIR")]
    directory: PathBuf,
}

/// Runs the program; the first of `arguments` is its name. Wrong usage ends the process with code 2, help with code 0.
///
/// # Errors
/// Returns the error of the command.
pub fn run(arguments: impl Iterator<Item = OsString>) -> Result<ExitCode, CliError> {
    let arguments: Vec<OsString> = arguments.collect();
    match arguments.get(1).and_then(|word| word.to_str()) {
        Some("experiment") => experiments::run(experiments::Args::parse_from(&arguments[1..])),
        Some("instructions") => cases::run_for_instruction_counts(),
        Some("generate") => write(&Generate::parse_from(&arguments[1..])),
        _ => cases::run(cases::Args::parse_from(arguments)),
    }
}

fn write(args: &Generate) -> Result<ExitCode, CliError> {
    generate::man_pages(cases::Args::command(), &args.directory)?;
    generate::man_pages(experiments::Args::command(), &args.directory)?;
    generate::completions("hopwise-bench", cases::Args::command(), &args.directory)?;
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_definitions_are_consistent() {
        cases::Args::command().debug_assert();
        experiments::Args::command().debug_assert();
        Generate::command().debug_assert();
    }
}
