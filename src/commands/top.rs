//! `hopwise top`

use std::process::ExitCode;

use crate::error::CliError;

/// Watch the busiest flows, nodes and queues
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Print once and end
    #[arg(long)]
    pub(crate) once: bool,

    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Runs the command.
pub(crate) fn run(_args: Args) -> Result<ExitCode, CliError> {
    Err(CliError::new("`hopwise top` is not there yet in this build; `hopwise --help` lists the commands"))
}
