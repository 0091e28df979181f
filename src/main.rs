//! hopwise: collector for In-band Network Telemetry (INT).
#![forbid(unsafe_code)]

use std::process::ExitCode;

mod arguments;
mod commands;
mod lifecycle;
mod list_events;
mod log;

/// Exit codes: 0 success, 1 negative result (no match, check failed), 2 wrong usage or input.
fn main() -> ExitCode {
    terminal::exit_code(arguments::run())
}
