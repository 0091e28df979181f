//! `hopwise bench`

use std::process::ExitCode;

use crate::error::CliError;

/// Measure on this machine the figures we publish
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Cases to run
    #[arg(value_name = "NAME")]
    pub(crate) names: Vec<String>,

    /// Name the cases
    #[arg(long)]
    pub(crate) list: bool,

    /// One JSON object per case
    #[arg(long)]
    pub(crate) json: bool,
}

/// Runs the command.
pub(crate) fn run(_args: Args) -> Result<ExitCode, CliError> {
    Err(CliError::new("`hopwise bench` is not there yet in this build; `hopwise --help` lists the commands"))
}
