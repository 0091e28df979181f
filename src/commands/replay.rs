//! `hopwise replay`

use std::{path::PathBuf, process::ExitCode};

use crate::error::CliError;

/// Push a capture through the whole collector
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Captures: pcap or pcapng, gzip too
    #[arg(required = true, value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,

    /// How to read the bytes: strict, geant, hostint, intcollector-gen, onos, or a profile of the configuration
    #[arg(long, default_value = "strict")]
    pub(crate) profile: String,

    /// Configuration file: profiles, thresholds, rules
    #[arg(short, long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,

    /// Keep the results in this store
    #[arg(long, value_name = "DIR")]
    pub(crate) store: Option<PathBuf>,

    /// Print results as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Runs the command.
pub(crate) fn run(_args: Args) -> Result<ExitCode, CliError> {
    Err(CliError::new("`hopwise replay` is not there yet in this build; `hopwise --help` lists the commands"))
}
