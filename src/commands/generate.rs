//! `hopwise generate`: man pages, shell completions and the configuration's reference, made from their definitions.

use std::{
    fs, io,
    path::{Path, PathBuf},
    process::ExitCode,
};

use terminal::CliError;

/// Write man pages, shell completions and the configuration reference (for packagers)
#[derive(clap::Args, Debug)]
#[command(hide = true)]
pub(crate) struct Args {
    /// Directory to write into; created if missing
    #[arg(value_name = "DIR")]
    pub(crate) directory: PathBuf,
}

/// Writes `man/hopwise*.1`, `completions/hopwise.*` and `config.md` under the directory. `command` defines the command line.
pub(crate) fn run(args: Args, mut command: clap::Command) -> Result<ExitCode, CliError> {
    write_all(&args.directory, &mut command).map_err(|error| {
        CliError::io(
            format!("cannot write to {}", args.directory.display()),
            error,
            "name a writable directory",
        )
    })?;
    Ok(ExitCode::SUCCESS)
}

fn write_all(directory: &Path, command: &mut clap::Command) -> io::Result<()> {
    let man = directory.join("man");
    let completions = directory.join("completions");
    fs::create_dir_all(&man).and_then(|()| fs::create_dir_all(&completions))?;
    clap_mangen::generate_to(command.clone(), &man)?;
    for shell in [
        clap_complete::Shell::Bash,
        clap_complete::Shell::Zsh,
        clap_complete::Shell::Fish,
    ] {
        clap_complete::generate_to(shell, command, "hopwise", &completions)?;
    }
    fs::write(directory.join("config.md"), config::reference())
}
