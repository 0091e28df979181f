//! The identity of a file: it shows if another file is at its path later.

use std::fs;
use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process;
use std::time::SystemTime;

use nix::unistd::{AccessFlags, eaccess};

/// A file as it was when it was opened or written. The same path with another device, inode number or creation time is another file.
///
/// A file system may reuse the inode number of a removed file for the next one. The creation time distinguishes the two where the file
/// system stores it: ext4, XFS, Btrfs and tmpfs do.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct FileIdentity {
    pub(crate) path: PathBuf,
    device: u64,
    inode: u64,
    created: Option<SystemTime>,
}

wire::named! {
    /// The reason why a file that was open is not at its path any more.
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

    /// Returns what happened to the path since then, or `None` if it still names this file, or if that cannot be found out.
    pub fn change(&self) -> Option<FileChange> {
        match fs::metadata(&self.path) {
            Ok(found) => (Self::from_metadata(&self.path, &found) != *self).then_some(FileChange::Replaced),
            Err(error) => match error.kind() {
                ErrorKind::NotFound | ErrorKind::NotADirectory => Some(FileChange::Removed),
                // The directory cannot be searched: the file may be there.
                _ => None,
            },
        }
    }

    /// Returns false if [`FileIdentity::change`] finds that another file or none is at the path.
    pub fn is_in_place(&self) -> bool {
        self.change().is_none()
    }
}

/// Checks that the file at `path` is a regular one, which this user may read and `write`. SQLite does not say why it cannot open a file,
/// and waits for the other end of a FIFO.
///
/// The file is not opened: closing it again would release every lock that the process has on it, SQLite's too.
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

/// Returns the error with which the system refuses to create a file beside this one. The access rights do not show a file system that
/// became read-only by itself.
pub(crate) fn check_directory(path: &Path) -> io::Result<()> {
    let probe = path.with_file_name(format!("hopwise-{}.tmp", process::id()));
    fs::File::create_new(&probe)?;
    fs::remove_file(&probe)
}
