//! `hopwise generate`, for packagers: writes man pages, shell completions and the configuration reference.

use std::{fs, path::PathBuf, process::ExitCode};

use terminal::{CliError, generate};

/// Commands that execute other programs, which generate their own man pages.
const EXTERNAL_COMMANDS: [&str; 3] = ["lab", "bench", "experiment"];

/// Write man pages, shell completions and the configuration reference (for packagers)
#[derive(clap::Args, Debug)]
#[command(hide = true)]
pub(crate) struct Args {
    /// Directory to write into; created if missing
    #[arg(value_name = "DIR")]
    pub(crate) directory: PathBuf,
}

/// Writes `man/hopwise*.1`, `completions/hopwise.*` and `config.md` under the directory. `command` defines the command line.
pub(crate) fn run(args: Args, command: clap::Command) -> Result<ExitCode, CliError> {
    generate::man_pages(command.clone(), &args.directory)?;
    EXTERNAL_COMMANDS
        .iter()
        .try_for_each(|name| fs::remove_file(args.directory.join(format!("man/hopwise-{name}.1"))))
        .and_then(|()| fs::write(args.directory.join("config.md"), config::reference()))
        .map_err(|error| generate::cannot_write(&args.directory, error))?;
    generate::completions("hopwise", command, &args.directory)?;
    Ok(ExitCode::SUCCESS)
}
