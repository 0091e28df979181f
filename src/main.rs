//! The program `hopwise`: command line, and collector, manager and other roles, for In-band Network Telemetry (INT) and DTA.
#![forbid(unsafe_code)]

use std::process::ExitCode;

mod arguments;
mod commands;
mod lifecycle;
mod list_events;
mod log;

/// Parses the command line and runs the command. Exit codes: 0 success, 1 negative result (no match, …), 2 wrong usage.
fn main() -> ExitCode {
    terminal::exit_code(arguments::run())
}
