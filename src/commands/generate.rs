//! `hopwise generate`: man pages, shell completions and the configuration's reference, made from their definitions.

use std::{fs, path::PathBuf, process::ExitCode};

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
    let failed = |error| {
        CliError::io(
            format!("cannot write to {}", args.directory.display()),
            error,
            "name a writable directory",
        )
    };
    let man = args.directory.join("man");
    let completions = args.directory.join("completions");
    fs::create_dir_all(&man)
        .and_then(|()| fs::create_dir_all(&completions))
        .map_err(failed)?;
    clap_mangen::generate_to(command.clone(), &man).map_err(failed)?;
    for shell in [
        clap_complete::Shell::Bash,
        clap_complete::Shell::Zsh,
        clap_complete::Shell::Fish,
    ] {
        clap_complete::generate_to(shell, &mut command, "hopwise", &completions).map_err(failed)?;
    }
    fs::write(args.directory.join("config.md"), config::reference()).map_err(failed)?;
    Ok(ExitCode::SUCCESS)
}
