//! Whether a path still names the file that was opened there.

use std::fs;
use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use nix::unistd::{AccessFlags, eaccess};

/// A file as it was when it was opened or written: the same path with another device or inode number is another file.
///
/// The number of a file is not given to another one as long as the first one is open.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct FileIdentity {
    pub(crate) path: PathBuf,
    device: u64,
    inode: u64,
}

/// A file that was open is not at its path any more.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Moved {
    /// There is no file at the path.
    Removed,
    /// Another file is at the path.
    Replaced,
}

impl FileIdentity {
    /// Returns the identity of the file at `path`, or `None` if there is none.
    pub fn of(path: &Path) -> Option<Self> {
        let found = fs::metadata(path).ok()?;
        Some(Self { path: path.to_owned(), device: found.dev(), inode: found.ino() })
    }

    /// The path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns what happened to the path since then, or `None` if it still names this file, or if that cannot be found out.
    pub fn moved(&self) -> Option<Moved> {
        match fs::metadata(&self.path) {
            Ok(found) if (found.dev(), found.ino()) == (self.device, self.inode) => None,
            Ok(_) => Some(Moved::Replaced),
            Err(error) => match error.kind() {
                ErrorKind::NotFound | ErrorKind::NotADirectory => Some(Moved::Removed),
                // The directory cannot be searched: the file may be there.
                _ => None,
            },
        }
    }

    /// Whether the path still names this file.
    pub fn is_in_place(&self) -> bool {
        Self::of(&self.path).as_ref() == Some(self)
    }
}

impl Moved {
    /// `removed` or `replaced`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Removed => "removed",
            Self::Replaced => "replaced",
        }
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
    let wanted = if write { AccessFlags::R_OK | AccessFlags::W_OK } else { AccessFlags::R_OK };
    eaccess(path, wanted).map_err(io::Error::from)
}
