//! Generates man pages and shell completions from the definition of a command line, for packagers.

use std::{fs, io, path::Path};

use clap::Command;
use clap_complete::Shell;

use crate::CliError;

/// Writes the man pages of a command and its subcommands into the folder `man` of a directory.
///
/// # Errors
/// A file cannot be written.
pub fn man_pages(command: Command, directory: &Path) -> Result<(), CliError> {
    let folder = directory.join("man");
    fs::create_dir_all(&folder)
        .and_then(|()| clap_mangen::generate_to(command, &folder))
        .map_err(|error| cannot_write(directory, error))
}

/// Writes completions of the program `name` for bash, zsh and fish into the folder `completions` of a directory.
///
/// # Errors
/// A file cannot be written.
pub fn completions(name: &str, mut command: Command, directory: &Path) -> Result<(), CliError> {
    let folder = directory.join("completions");
    fs::create_dir_all(&folder)
        .and_then(|()| {
            [Shell::Bash, Shell::Zsh, Shell::Fish]
                .into_iter()
                .try_for_each(|shell| {
                    clap_complete::generate_to(shell, &mut command, name, &folder).map(drop)
                })
        })
        .map_err(|error| cannot_write(directory, error))
}

/// Creates the error for a directory of generated files that cannot be written.
pub fn cannot_write(directory: &Path, error: io::Error) -> CliError {
    CliError::io(
        format!("cannot write to {}", directory.display()),
        error,
        "name a writable directory",
    )
}
