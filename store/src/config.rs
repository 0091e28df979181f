//! Settings of a store, and the errors of opening one with what the user can do about them.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::errno::Errno;
use nix::unistd::{AccessFlags, eaccess, geteuid};
use rusqlite::ErrorCode;

use crate::identity::{FileChange, check_access, check_directory};

/// SQLite's extended code `SQLITE_IOERR_SHMSIZE`: the WAL's shared memory could not grow because the disk is full.
const IOERR_SHMSIZE: i32 = 4874;

settings::choice! {
    /// The time in UTC that one file covers.
    #[derive(Default)]
    pub enum Period("\"hour\" or \"day\"") {
        /// Each hour has a file of its own.
        Hour = "hour",
        /// Each day has a file of its own.
        #[default]
        Day = "day",
    }
}

impl Period {
    /// Returns the length of the period, ns.
    pub fn nanos(self) -> u64 {
        match self {
            Self::Hour => 3_600_000_000_000,
            Self::Day => 86_400_000_000_000,
        }
    }
}

/// Settings of a store.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Config {
    /// The directory of the files. Created when it does not exist.
    pub dir: PathBuf,
    /// The time that one file covers.
    pub period: Period,
    /// Maximum time between a record's arrival and its commit, and so the maximum loss at a `kill -9`.
    pub commit_every: Duration,
    /// Maximum batches in the writer's queue. With the batches' capacity, this bounds memory.
    pub queue_batches: usize,
    /// Delete files whose last write is older than this. `None` keeps them.
    pub max_age: Option<Duration>,
    /// Delete the oldest files when all files together exceed this many bytes; checked every few seconds. A file that
    /// reaches an eighth of it is continued in a new part, so that there are old files to delete. `None` means no
    /// limit.
    pub max_bytes: Option<u64>,
    /// Keep a row per hop of every decoded report (view `reports`). Off by default: it is by far the largest table.
    pub reports_table: bool,
}

impl Config {
    /// Returns the defaults: a file per day, a commit every second, 64 batches, no retention.
    pub fn new(dir: impl Into<PathBuf>) -> Self {
        Self {
            dir: dir.into(),
            period: Period::Day,
            commit_every: Duration::from_secs(1),
            queue_batches: 64,
            max_age: None,
            max_bytes: None,
            reports_table: false,
        }
    }
}

/// The reason why a store could not be opened.
#[derive(Debug)]
pub enum Error {
    /// The directory or a file in it cannot be used.
    Io(PathBuf, std::io::Error),
    /// This user lacks a permission on the directory or on one above it.
    Denied {
        /// The directory that does not permit it.
        path: PathBuf,
        /// The denied actions as verbs, such as "search".
        action: &'static str,
    },
    /// Another process writes here.
    Locked(PathBuf),
    /// Another process salvages files here.
    Salvaging(PathBuf),
    /// The file was written by a newer hopwise.
    Newer {
        /// The path of the file.
        path: PathBuf,
        /// The schema version of the file.
        found: u32,
        /// The newest version that this program knows.
        known: u32,
    },
    /// The file is an SQLite database that hopwise did not create.
    Foreign(PathBuf),
    /// The file has no contents yet, because it is being created.
    Empty(PathBuf),
    /// The file was removed or replaced while it was open.
    Moved(PathBuf, FileChange),
    /// SQLite failed on the file.
    Sqlite(PathBuf, rusqlite::Error),
}

impl Error {
    pub(crate) fn io(path: &Path, error: std::io::Error) -> Self {
        Self::Io(path.to_owned(), error)
    }

    /// Returns the error of a store's directory. Its path is the one that causes the error: the directory or one of its
    /// parents.
    pub(crate) fn directory(dir: &Path, error: std::io::Error) -> Self {
        use std::io::ErrorKind::{AlreadyExists, NotADirectory, PermissionDenied};
        let absolute_dir = std::path::absolute(dir).unwrap_or_else(|_| dir.to_owned());
        let mut from_root: Vec<&Path> = absolute_dir.ancestors().collect();
        from_root.reverse();
        match error.kind() {
            PermissionDenied => {
                let above = from_root.iter().take(from_root.len().saturating_sub(1));
                let closed = above.copied().find(|path| {
                    eaccess(*path, AccessFlags::X_OK).is_err_and(|error| error == Errno::EACCES)
                });
                Self::Denied {
                    path: closed.unwrap_or(&absolute_dir).to_owned(),
                    action: if closed.is_some() {
                        "search"
                    } else {
                        "list, open and create files in"
                    },
                }
            }
            AlreadyExists | NotADirectory => {
                let file = from_root
                    .iter()
                    .copied()
                    .find(|path| std::fs::metadata(path).is_ok_and(|found| !found.is_dir()));
                Self::io(file.unwrap_or(&absolute_dir), NotADirectory.into())
            }
            _ => Self::io(&absolute_dir, error),
        }
    }

    /// Returns true if the cause is a full disk.
    pub fn is_full(&self) -> bool {
        match self {
            Self::Sqlite(_, error) => {
                error.sqlite_error_code() == Some(ErrorCode::DiskFull)
                    || error
                        .sqlite_error()
                        .is_some_and(|error| error.extended_code == IOERR_SHMSIZE)
            }
            Self::Io(_, error) => error.kind() == std::io::ErrorKind::StorageFull,
            _ => false,
        }
    }

    /// Returns an SQLite error at this file. Where SQLite says only that it cannot open or write a file, the cause is
    /// looked up in the file system and returned instead.
    pub fn sqlite(path: &Path, error: rusqlite::Error) -> Self {
        use ErrorCode::{CannotOpen, PermissionDenied, ReadOnly, SystemIoFailure};
        let reason = match error.sqlite_error_code() {
            Some(CannotOpen) => check_access(path, false),
            Some(PermissionDenied | ReadOnly) => check_access(path, true),
            // A file system that was remounted read-only makes SQLite report an I/O error.
            Some(SystemIoFailure) => check_directory(path).or_else(|error| match error.kind() {
                std::io::ErrorKind::ReadOnlyFilesystem => Err(error),
                _ => Ok(()),
            }),
            _ => Ok(()),
        };
        match reason {
            Err(reason) => Self::io(path, reason),
            Ok(()) => Self::Sqlite(path.to_owned(), error),
        }
    }

    /// Returns true if the path is not a regular file, or if this process may not open it.
    pub(crate) fn is_denied(&self) -> bool {
        use std::io::ErrorKind::{InvalidInput, PermissionDenied};
        match self {
            Self::Denied { .. } => true,
            Self::Io(_, error) => matches!(error.kind(), PermissionDenied | InvalidInput),
            _ => false,
        }
    }

    /// Returns true if the contents of the file are damaged.
    pub(crate) fn is_damage(&self) -> bool {
        use ErrorCode::{DatabaseCorrupt, NotADatabase};
        match self {
            Self::Sqlite(_, error) => {
                matches!(error.sqlite_error_code(), Some(DatabaseCorrupt | NotADatabase))
            }
            _ => false,
        }
    }
}

/// Adds the path of a file to an I/O or SQLite error.
pub(crate) trait WithPath<T> {
    fn with_path(self, path: &Path) -> Result<T, Error>;
}

impl<T> WithPath<T> for std::io::Result<T> {
    fn with_path(self, path: &Path) -> Result<T, Error> {
        self.map_err(|error| Error::io(path, error))
    }
}

impl<T> WithPath<T> for rusqlite::Result<T> {
    fn with_path(self, path: &Path) -> Result<T, Error> {
        self.map_err(|error| Error::sqlite(path, error))
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(path, error) => {
                let path = path.display();
                let reason = error.to_string();
                let reason = reason.split(" (os error").next().unwrap_or(&reason);
                let remedy = match error.kind() {
                    std::io::ErrorKind::InvalidInput => "move it away",
                    std::io::ErrorKind::NotADirectory => "move it away, or set another directory",
                    _ => settings::remedy(error)
                        .unwrap_or("check that it exists and that this user may write there"),
                };
                write!(f, "{path}: {reason}; {remedy}")
            }
            Self::Denied { path, action } => write!(
                f,
                "{path}: permission denied: user {} may not {action} this directory; `ls -ld {path}` shows its owner and \
                 mode, and `chmod` or `chown` changes them",
                geteuid(),
                path = path.display()
            ),
            Self::Locked(path) => write!(
                f,
                "another hopwise is writing to {}; stop it, or give this one a directory of its own",
                path.display()
            ),
            Self::Salvaging(path) => write!(
                f,
                "another `hopwise store check --salvage` is running in {}; wait until it has finished",
                path.display()
            ),
            Self::Newer { path, found, known } => write!(
                f,
                "{} has schema {found}, this hopwise knows {known}; use the newer hopwise, or move the file away",
                path.display()
            ),
            Self::Foreign(path) => {
                write!(
                    f,
                    "{} is a database, but not of hopwise; move it away",
                    path.display()
                )
            }
            Self::Empty(path) => write!(f, "{} is empty; wait until something was stored", path.display()),
            Self::Moved(path, change) => write!(
                f,
                "{} was {} while it was open; its records are lost, and storing continues at its path; find out what \
                 deletes or restores files there, and stop hopwise before restoring files",
                path.display(),
                change.name()
            ),
            Self::Sqlite(path, _) if self.is_full() => {
                write!(f, "{}: the disk is full; free space there", path.display())
            }
            Self::Sqlite(path, error) => write!(f, "{}: {error}", path.display()),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io(_, error) => Some(error),
            Self::Sqlite(_, error) => Some(error),
            Self::Denied { .. }
            | Self::Locked(_)
            | Self::Salvaging(_)
            | Self::Newer { .. }
            | Self::Foreign(_)
            | Self::Empty(_)
            | Self::Moved(..) => None,
        }
    }
}
