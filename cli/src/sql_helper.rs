//! `hopwise sql-helper`: a process in which a running hopwise executes SQL queries. Not for interactive use.

use std::{path::PathBuf, process::ExitCode};

use terminal::CliError;

use history::sql;

/// Answers SQL queries of a running hopwise, which starts it.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Directory of the store.
    directory: PathBuf,
}

/// Answers one query on standard input, as the process that the API starts for each.
pub fn run(args: Args) -> Result<ExitCode, CliError> {
    sql::helper::serve(&args.directory)
}
