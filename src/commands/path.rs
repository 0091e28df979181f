//! `hopwise path`

use std::process::ExitCode;

use crate::error::CliError;

/// Show the path of a flow, hop by hop
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// The flow, for example "10.0.0.1:5000>10.0.0.2:80/17"
    pub(crate) flow: String,

    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Runs the command.
pub(crate) fn run(_args: Args) -> Result<ExitCode, CliError> {
    Err(CliError::new("`hopwise path` is not there yet in this build; `hopwise --help` lists the commands"))
}
