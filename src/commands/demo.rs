//! `hopwise demo`

use std::process::ExitCode;

use crate::error::CliError;

/// Run a simulated network into a real collector and show it
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Seed of the simulation
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
}

/// Runs the command.
pub(crate) fn run(_args: Args) -> Result<ExitCode, CliError> {
    Err(CliError::new("`hopwise demo` is not there yet in this build; `hopwise --help` lists the commands"))
}
