//! Permission check of a store's directory, made before anything is written to it.

use std::{fs, io::ErrorKind, path::Path};

use nix::unistd::{AccessFlags, eaccess};

use crate::config::Error;

/// Checks that `dir` is a directory in which this user may list, open and create files. Changes nothing in it.
pub(crate) fn check_dir(dir: &Path) -> Result<(), Error> {
    let dir_metadata = fs::metadata(dir).map_err(|error| Error::directory(dir, error))?;
    if !dir_metadata.is_dir() {
        return Err(Error::directory(dir, ErrorKind::NotADirectory.into()));
    }
    let wanted = AccessFlags::R_OK | AccessFlags::W_OK | AccessFlags::X_OK;
    eaccess(dir, wanted).map_err(|error| Error::directory(dir, error.into()))
}
