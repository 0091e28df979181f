//! `hopwise decode`

use std::{path::PathBuf, process::ExitCode};

use crate::error::CliError;

/// Print what the reports in a capture say
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Captures: pcap or pcapng, gzip too
    #[arg(required = true, value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,

    /// One JSON object per report
    #[arg(long)]
    pub(crate) json: bool,

    /// How to read the bytes: strict, geant, hostint, intcollector-gen, onos, or a profile of the configuration
    #[arg(long, default_value = "strict")]
    pub(crate) profile: String,

    /// Configuration file with profiles
    #[arg(short, long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
}

/// Runs the command.
pub(crate) fn run(_args: Args) -> Result<ExitCode, CliError> {
    Err(CliError::new("`hopwise decode` is not there yet in this build; `hopwise --help` lists the commands"))
}
