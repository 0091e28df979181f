//! `hopwise check`

use std::{
    io::{Write, stdout},
    path::PathBuf,
    process::ExitCode,
};

use crate::{config::Settings, error::CliError};

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

/// Builds everything that the configuration describes and starts nothing.
pub(crate) fn run(args: Args) -> Result<ExitCode, CliError> {
    let settings = Settings::load(args.config.as_deref())?;
    let mut out = stdout().lock();
    let told = if args.dump { out.write_all(settings.to_toml().as_bytes()) } else { writeln!(out, "good") };
    told.map_err(CliError::output)?;
    Ok(ExitCode::SUCCESS)
}
