//! hopwise: collector for In-band Network Telemetry (INT).
#![forbid(unsafe_code)]

use std::process::ExitCode;

mod active_config;
mod aggregator;
mod alerts;
mod api;
mod backlog;
mod capabilities;
mod cli;
mod commands;
mod config;
mod datagram;
mod doctor;
mod export_role;
mod fanout;
mod flight_recorder;
mod flow_index;
mod history;
mod hop_queue;
mod hop_recorder;
mod input;
mod kernel;
mod known_links;
mod lifecycle;
mod live;
mod log;
mod manager_role;
mod metrics;
mod monitor;
mod pipeline;
mod record_queue;
mod recorder;
mod rules;
mod sql;
mod switch;
mod topology;
mod triggers;
mod watermarks;
mod worker;

/// Exit codes: 0 success, 1 negative result (no match, check failed), 2 wrong usage or input.
fn main() -> ExitCode {
    match cli::run() {
        Ok(code) => code,
        Err(error) if error.is_closed_output() => ExitCode::SUCCESS,
        Err(error) => {
            terminal::note(error);
            ExitCode::from(2)
        }
    }
}
