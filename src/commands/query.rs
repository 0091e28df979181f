//! `hopwise query`

use std::{path::PathBuf, process::ExitCode};

use crate::error::CliError;

/// Ask the store in SQL
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// The question, for example "SELECT * FROM events LIMIT 10"
    pub(crate) sql: String,

    /// Directory of the store
    #[arg(long, value_name = "DIR")]
    pub(crate) store: Option<PathBuf>,

    /// How to print the answer
    #[arg(long, value_enum, default_value_t = Format::Table)]
    pub(crate) format: Format,
}

/// How an answer is printed.
#[derive(clap::ValueEnum, Clone, Copy, Debug)]
pub(crate) enum Format {
    /// Aligned columns
    Table,
    /// One JSON object per row
    Json,
    /// Comma-separated values with a header
    Csv,
}

/// Runs the command.
pub(crate) fn run(_args: Args) -> Result<ExitCode, CliError> {
    Err(CliError::new("`hopwise query` is not there yet in this build; `hopwise --help` lists the commands"))
}
