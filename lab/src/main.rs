//! `hopwise-lab`: a network on this machine, to observe and to break. `hopwise lab` executes it.
#![forbid(unsafe_code)]

use std::process::ExitCode;

use clap::Parser;

/// Exit codes: 0 success, 1 negative result, 2 wrong usage or input.
fn main() -> ExitCode {
    terminal::exit_code(lab::run(lab::Args::parse()))
}
