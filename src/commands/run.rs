//! `hopwise run`

use std::{path::PathBuf, process::ExitCode};

use crate::error::CliError;

/// Receive reports, keep what matters, serve the API and the pages
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Configuration file; without it the defaults hold
    #[arg(short, long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
}

/// Runs the command.
pub(crate) fn run(_args: Args) -> Result<ExitCode, CliError> {
    Err(CliError::new("`hopwise run` is not there yet in this build; `hopwise --help` lists the commands"))
}
