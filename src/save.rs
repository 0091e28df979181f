//! Files that are replaced as a whole. Those that must be there for the next start, such as cursors, acknowledgements, known links and
//! rules, are written again if something removes them while this process runs.

use std::{
    fs::{self, File, OpenOptions, Permissions},
    io::{self, Write},
    os::unix::fs::{MetadataExt as _, OpenOptionsExt, PermissionsExt as _, fchown},
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, Weak,
        atomic::{AtomicU64, Ordering},
    },
};

use store::FileIdentity;

use crate::lock::lock;

/// The files that are in use.
static SAVED: Mutex<Vec<Weak<SavedFile>>> = Mutex::new(Vec::new());
static RESTORED: AtomicU64 = AtomicU64::new(0);

/// A file that must be there for the next start. As long as this is in use, [`restore`] writes it again if something removes it.
#[derive(Debug)]
pub(crate) struct SavedFile {
    path: PathBuf,
    mode: u32,
    content: Mutex<Content>,
}

/// What was written last, or read.
#[derive(Debug, Default)]
struct Content {
    /// `None`: nothing yet.
    identity: Option<FileIdentity>,
    bytes: Vec<u8>,
    /// It was not there, and could not be written again; that was logged.
    failed: bool,
}

impl SavedFile {
    /// The file at `path`, which gets this mode when it is written.
    pub(crate) fn new(path: PathBuf, mode: u32) -> Arc<Self> {
        let file = Arc::new(Self { path, mode, content: Mutex::default() });
        let mut all = lock(&SAVED);
        all.retain(|one| one.strong_count() > 0);
        all.push(Arc::downgrade(&file));
        file
    }

    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Replaces it. A crash leaves the old content or the new one; on return, the new one survives a power failure.
    ///
    /// # Errors
    /// It cannot be written: the old content is still there.
    pub(crate) fn replace(&self, bytes: Vec<u8>) -> io::Result<()> {
        let mut content = lock(&self.content);
        replace(&self.path, self.mode, &bytes)?;
        *content = Content { identity: FileIdentity::of(&self.path), bytes, failed: false };
        Ok(())
    }

    /// Reads it.
    ///
    /// # Errors
    /// It cannot be read, or there is none.
    pub(crate) fn read(&self) -> io::Result<Vec<u8>> {
        let mut content = lock(&self.content);
        let bytes = fs::read(&self.path)?;
        *content = Content { identity: FileIdentity::of(&self.path), bytes: bytes.clone(), failed: false };
        Ok(bytes)
    }

    /// Writes it again if something removed or replaced it.
    fn restore(&self) {
        let mut content = lock(&self.content);
        let Some(moved) = content.identity.as_ref().and_then(FileIdentity::moved) else { return };
        let directory = self.path.parent().map_or(Ok(()), fs::create_dir_all);
        match directory.and_then(|()| replace(&self.path, self.mode, &content.bytes)) {
            Ok(()) => {
                RESTORED.fetch_add(1, Ordering::Relaxed);
                content.identity = FileIdentity::of(&self.path);
                content.failed = false;
                tracing::warn!(
                    file = %self.path.display(),
                    change = moved.name(),
                    "a file was changed by something else while hopwise ran, and is written again"
                );
            }
            Err(error) => {
                if !std::mem::replace(&mut content.failed, true) {
                    tracing::error!(
                        file = %self.path.display(),
                        change = moved.name(),
                        error = %error,
                        "a file was changed by something else while hopwise ran, and cannot be written again"
                    );
                }
            }
        }
    }
}

/// Writes the files again that something removed or replaced since they were written or read. May wait for the disk.
pub(crate) fn restore() {
    let all: Vec<Arc<SavedFile>> = lock(&SAVED).iter().filter_map(Weak::upgrade).collect();
    all.iter().for_each(|file| file.restore());
}

/// How many files were written again.
pub(crate) fn restored() -> u64 {
    RESTORED.load(Ordering::Relaxed)
}

/// Replaces a file, which gets this mode. A crash leaves the old content or the new one; on return, the new one survives a power failure.
///
/// # Errors
/// It cannot be written: the old content is still there.
pub(crate) fn replace(file: &Path, mode: u32, content: &[u8]) -> io::Result<()> {
    let begun = file.with_extension("begun");
    let out = OpenOptions::new().create(true).truncate(true).write(true).mode(mode).open(&begun)?;
    finish(out, &begun, file, content)
}

/// Replaces a file that is there, and not by way of a link. The new one has its mode and its group.
///
/// # Errors
/// It cannot be written, or cannot have that mode or group: the old file is still there.
pub(crate) fn replace_alike(file: &Path, content: &[u8]) -> io::Result<()> {
    let found = fs::metadata(file)?;
    // A name that nobody else writes to, in this process or in another one.
    let begun = file.with_extension(format!("{}-{}.begun", std::process::id(), nic::time::now()));
    let out = OpenOptions::new().create_new(true).write(true).mode(0o600).open(&begun)?;
    let is_alike = || {
        if out.metadata()?.gid() != found.gid() {
            fchown(&out, None, Some(found.gid()))?;
        }
        out.set_permissions(Permissions::from_mode(found.mode() & 0o7777))
    };
    let done = is_alike().and_then(|()| finish(out, &begun, file, content));
    if done.is_err() {
        // It may have got its name already.
        let _ = fs::remove_file(&begun);
    }
    done
}

fn finish(mut out: File, begun: &Path, file: &Path, content: &[u8]) -> io::Result<()> {
    out.write_all(content)?;
    out.sync_all()?;
    fs::rename(begun, file)?;
    // The name, too, must be on disk.
    let directory = file.parent().filter(|parent| !parent.as_os_str().is_empty());
    File::open(directory.unwrap_or(Path::new(".")))?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;
    use testkit::records::Dir;

    #[test]
    fn a_file_that_something_removes_or_replaces_is_written_again() {
        let dir = Dir::new("restore");
        let folder = dir.path().join("export");
        fs::create_dir(&folder).unwrap();
        let file = folder.join("lake.cursor");
        let text = || fs::read_to_string(&file).unwrap_or_default();
        let saved = SavedFile::new(file.clone(), 0o640);
        saved.restore();
        assert!(!file.exists(), "nothing was written yet");
        saved.replace(b"one".to_vec()).unwrap();
        restore();
        assert_eq!(text(), "one");
        fs::remove_dir_all(&folder).unwrap();
        restore();
        assert_eq!((text(), fs::metadata(&file).unwrap().mode() & 0o777), ("one".to_owned(), 0o640));
        // What was read counts as well.
        let replace_by = |text: &str| {
            fs::write(folder.join("other"), text).unwrap();
            fs::rename(folder.join("other"), &file).unwrap();
        };
        replace_by("two");
        assert_eq!(saved.read().unwrap(), b"two");
        replace_by("three");
        restore();
        assert_eq!(text(), "two");
        assert!(restored() >= 2);
        // A file that is not in use any more is not written again.
        drop(saved);
        fs::remove_file(&file).unwrap();
        restore();
        assert!(!file.exists());
    }

    #[test]
    fn a_file_is_replaced_by_one_of_its_mode_and_group() {
        let dir = Dir::new("alike");
        let file = dir.path().join("h.toml");
        fs::write(&file, "old").unwrap();
        let own = fs::metadata(&file).unwrap().gid();
        // Only who may give files away can have one of another group.
        let other = own + 1;
        let is_given = std::os::unix::fs::chown(&file, None, Some(other)).is_ok();
        // A mode that no usual umask leaves to a new file.
        fs::set_permissions(&file, Permissions::from_mode(0o662)).unwrap();
        replace_alike(&file, b"new").unwrap();
        let found = fs::metadata(&file).unwrap();
        assert_eq!((found.mode() & 0o7777, found.gid()), (0o662, if is_given { other } else { own }));
        assert_eq!(fs::read(&file).unwrap(), b"new");
        assert_eq!(dir.names(), ["h.toml"], "nothing else stays");
        assert!(replace_alike(&dir.path().join("none"), b"new").is_err());
    }
}
