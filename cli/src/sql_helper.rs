//! `hopwise sql-helper`: process that runs SQL queries for a running hopwise, so they cannot exhaust its memory. Internal.

use std::{path::PathBuf, process::ExitCode};

use terminal::CliError;

use history::sql;

/// Answers SQL queries of a running hopwise, which starts it.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Directory of the store.
    directory: PathBuf,
}

/// Serves queries on standard input until it is closed.
pub fn run(args: Args) -> Result<ExitCode, CliError> {
    sql::helper::serve(&args.directory)
}
