//! `hopwise check`

use std::{path::PathBuf, process::ExitCode};

use crate::error::CliError;

/// Say what is wrong with a configuration; start nothing
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Configuration file; without it the defaults are checked
    #[arg(short, long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,

    /// Print the configuration in force, defaults included
    #[arg(long)]
    pub(crate) dump: bool,
}

/// Runs the command.
pub(crate) fn run(_args: Args) -> Result<ExitCode, CliError> {
    Err(CliError::new("`hopwise check` is not there yet in this build; `hopwise --help` lists the commands"))
}
