//! The program `hopwise-lab`, which `hopwise lab` executes: runs a network of namespaces on this machine.
#![forbid(unsafe_code)]

use std::process::ExitCode;

use clap::Parser;

/// Parses the command line and runs the command. Exit codes: 0 success, 1 negative result, 2 wrong usage or input.
fn main() -> ExitCode {
    terminal::exit_code(lab::run(lab::Args::parse()))
}
