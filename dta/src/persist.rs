//! Persistence of stores whose live memory is lost with the process, such as memory of the kernel's RoCEv2 responder. Files
//! are loaded at the start and saved at a clean stop; in between, a lock file in the directory marks them as stale.

use std::{
    fs::{self, File, TryLockError},
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use crate::DtaStore;
use memory::Region;

/// Name of the lock file. It carries an advisory lock, so a file left by a crash does not block the next start.
pub const LOCK_FILE: &str = "in-kernel";
/// Number of bytes copied at once.
const PIECE: usize = 1 << 20;

/// Marks the files of a directory as stale until it is dropped.
#[derive(Debug)]
pub struct KernelLock {
    path: PathBuf,
    _locked: File,
    /// The previous holder exited without removing the lock file, so the files are stale.
    pub left_behind: bool,
}

impl KernelLock {
    /// Acquires the lock.
    ///
    /// [`io::ErrorKind::WouldBlock`] if another process holds the lock; otherwise the file system's error, for example if
    /// the directory is not writable.
    pub fn acquire(directory: &Path) -> io::Result<Self> {
        let path = directory.join(LOCK_FILE);
        let left_behind = path.exists();
        let file = File::options()
            .create(true)
            .truncate(false)
            .write(true)
            .open(&path)?;
        match file.try_lock() {
            Ok(()) => Ok(Self {
                path,
                _locked: file,
                left_behind,
            }),
            Err(TryLockError::WouldBlock) => Err(io::ErrorKind::WouldBlock.into()),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }
}

impl Drop for KernelLock {
    fn drop(&mut self) {
        // A remaining file is harmless: no process holds its lock.
        let _ = fs::remove_file(&self.path);
    }
}

/// Returns whether another process holds the directory's lock, so that its files are stale.
pub fn is_locked(directory: &Path) -> bool {
    let Ok(file) = File::open(directory.join(LOCK_FILE)) else {
        return false;
    };
    matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock))
}

/// Copies a saved store into memory, which must be zeroed and long enough.
///
/// # Errors
/// An I/O error, if the file was truncated meanwhile.
pub fn load(saved: &DtaStore, into: &Region) -> io::Result<()> {
    copy(saved.region(), into)
}

/// Saves a store to its file atomically. After an error the previous file is unchanged.
///
/// # Errors
/// The file system's error, usually a full device.
pub fn save(store: &DtaStore, file: &Path) -> io::Result<()> {
    let temp_file = file.with_extension("begun");
    // A leftover of an earlier attempt.
    let _ = fs::remove_file(&temp_file);
    let region = Arc::clone(store.region());
    let written = Region::create_file(&temp_file, region.len()).and_then(|out| {
        copy(&region, &out)?;
        out.sync()
    });
    written
        .and_then(|()| fs::rename(&temp_file, file))
        .inspect_err(|_| {
            // Removes the useless partial file. The first error is reported, not this one.
            let _ = fs::remove_file(&temp_file);
        })
}

/// Copies the length of the shorter region. Skips pieces of zeros: the target is already zeroed, and untouched pages take
/// no memory.
fn copy(from: &Region, to: &Region) -> io::Result<()> {
    let mut piece = vec![0; PIECE];
    let len = from.len().min(to.len());
    for at in (0..len).step_by(PIECE) {
        let count = (len - at).min(PIECE as u64) as usize;
        let piece = &mut piece[..count];
        from.read(at, piece).map_err(io::Error::other)?;
        if piece.iter().any(|byte| *byte != 0) {
            to.write(at, piece).map_err(io::Error::other)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn directory(name: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("hopwise-kept-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).unwrap();
        path
    }

    #[test]
    fn a_mark_holds_while_its_owner_lives_and_what_a_crash_leaves_is_only_a_file() {
        let directory = directory("mark");
        assert!(!is_locked(&directory));
        let mark = KernelLock::acquire(&directory).unwrap();
        assert!(!mark.left_behind && is_locked(&directory));
        assert!(KernelLock::acquire(&directory).unwrap_err().kind() == io::ErrorKind::WouldBlock);
        drop(mark);
        assert!(!is_locked(&directory) && !directory.join(LOCK_FILE).exists());
        fs::write(directory.join(LOCK_FILE), "").unwrap();
        assert!(!is_locked(&directory));
        assert!(KernelLock::acquire(&directory).unwrap().left_behind);
        fs::remove_dir_all(directory).unwrap();
    }

    #[test]
    fn a_copy_equals_its_source() {
        let region = |len| Region::anonymous(len, false).unwrap();
        let (from, to) = (region(3 * PIECE as u64 + 4096), region(3 * PIECE as u64 + 8192));
        let last = from.len() - 1;
        for at in [0, 2 * PIECE as u64 - 3, last] {
            from.write(at, &[7]).unwrap();
        }
        copy(&from, &to).unwrap();
        let (mut one, mut two) = (vec![0; from.len() as usize], vec![0; from.len() as usize]);
        from.read(0, &mut one).unwrap();
        to.read(0, &mut two).unwrap();
        assert!(one == two && two[last as usize] == 7);
    }
}
