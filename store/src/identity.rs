//! Detects that a file was removed or replaced while it was open, by device, inode number and creation time.
//!
//! Also checks whether a file or directory is accessible, because SQLite does not say why it cannot open a file.

use std::fs;
use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process;
use std::time::SystemTime;

use nix::unistd::{AccessFlags, eaccess};

/// Identity of the file at a path when it was opened. Another device, inode number or creation time means another file.
///
/// A file system may reuse the inode number of a removed file at once. The creation time tells the two apart where the file
/// system stores it: ext4, XFS, Btrfs and tmpfs do.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct FileIdentity {
    pub(crate) path: PathBuf,
    device: u64,
    inode: u64,
    created: Option<SystemTime>,
}

wire::named! {
    /// Change at the path of an open file.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum FileChange, name {
        /// There is no file at the path.
        Removed => "removed",
        /// Another file is at the path.
        Replaced => "replaced",
    }
}

impl FileIdentity {
    /// Returns the identity of the file at `path`, or `None` if there is none.
    pub fn read(path: &Path) -> Option<Self> {
        let metadata = fs::metadata(path).ok()?;
        Some(Self::from_metadata(path, &metadata))
    }

    fn from_metadata(path: &Path, metadata: &fs::Metadata) -> Self {
        Self {
            path: path.to_owned(),
            device: metadata.dev(),
            inode: metadata.ino(),
            created: metadata.created().ok(),
        }
    }

    /// Returns the path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns what happened to the path since then, or `None` if it still names this file or cannot be examined.
    pub fn change(&self) -> Option<FileChange> {
        match fs::metadata(&self.path) {
            Ok(found) => (Self::from_metadata(&self.path, &found) != *self).then_some(FileChange::Replaced),
            Err(error) => match error.kind() {
                ErrorKind::NotFound | ErrorKind::NotADirectory => Some(FileChange::Removed),
                // The directory cannot be searched, so the file may still exist.
                _ => None,
            },
        }
    }

    /// Returns true unless [`FileIdentity::change`] finds that the file was removed or replaced.
    pub fn is_in_place(&self) -> bool {
        self.change().is_none()
    }
}

/// Checks that `path` is a regular file that this user may read, and write if `write` is set. SQLite does not say why it
/// cannot open a file, and blocks on a FIFO.
///
/// The file is not opened: with POSIX locks, closing it would release all locks of the process on it, including SQLite's.
pub(crate) fn check_access(path: &Path, write: bool) -> io::Result<()> {
    if !fs::metadata(path)?.is_file() {
        return Err(io::Error::new(ErrorKind::InvalidInput, "not a regular file"));
    }
    let wanted = if write {
        AccessFlags::R_OK | AccessFlags::W_OK
    } else {
        AccessFlags::R_OK
    };
    eaccess(path, wanted).map_err(io::Error::from)
}

/// Creates and deletes a probe file beside this one, and returns the system's error if that fails. Permissions alone do not
/// show that a file system was remounted read-only after an error.
pub(crate) fn check_directory(path: &Path) -> io::Result<()> {
    let probe = path.with_file_name(format!("hopwise-{}.tmp", process::id()));
    fs::File::create_new(&probe)?;
    fs::remove_file(&probe)
}
