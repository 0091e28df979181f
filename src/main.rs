//! hopwise: In-band Network Telemetry, from the bytes on the wire to the answer on the screen.
#![forbid(unsafe_code)]

use std::process::ExitCode;

mod cli;
mod commands;
#[allow(dead_code)] // what is not read yet will be by the server
mod config;
mod error;
mod output;

/// Exit codes: 0 good, 1 the answer is no, 2 wrong usage or input.
fn main() -> ExitCode {
    match cli::run() {
        Ok(code) => code,
        Err(error) if error.is_closed_output() => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("hopwise: {error}");
            ExitCode::from(2)
        }
    }
}
