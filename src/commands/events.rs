//! `hopwise events`

use std::process::ExitCode;

use crate::error::CliError;

/// List what happened, or follow it live
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Go on with what happens from now on
    #[arg(short, long)]
    pub(crate) follow: bool,

    /// One JSON object per event
    #[arg(long)]
    pub(crate) json: bool,
}

/// Runs the command.
pub(crate) fn run(_args: Args) -> Result<ExitCode, CliError> {
    Err(CliError::new("`hopwise events` is not there yet in this build; `hopwise --help` lists the commands"))
}
