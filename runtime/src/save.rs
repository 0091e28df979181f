//! Atomic replacement of files (temporary file, fsync, rename), and protection of state files against other programs.
//!
//! State that the next start needs (cursors, acknowledgements, known links, rules) is a [`SavedFile`]: if another program
//! removes it while this process runs, it is written again; if another program replaces it, it is left alone and no longer
//! written.

use std::{
    collections::BTreeSet,
    fs::{self, File, OpenOptions, Permissions},
    io::{self, Write},
    os::unix::fs::{MetadataExt as _, OpenOptionsExt, PermissionsExt as _, fchown},
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, Weak,
        atomic::{AtomicU64, Ordering},
    },
    time::SystemTime,
};

use store::{FileChange, FileIdentity, temp_file};

use crate::lock::lock;

/// All saved files in use.
static SAVED_FILES: Mutex<Vec<Weak<SavedFile>>> = Mutex::new(Vec::new());
/// Number of files that were written again.
static RESTORED_COUNT: AtomicU64 = AtomicU64::new(0);
/// Files that another program replaced and that are therefore no longer written.
static REPLACED_FILES: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());
/// Error message for a file that another program replaced.
pub const NOT_WRITTEN: &str =
    "it was replaced while hopwise ran; restart hopwise to continue with the new file";

/// A state file that the next start reads. While it is in use, [`restore`] rewrites it if it was removed. If another program
/// replaced or modified it, that is taken for an operator's intent: this process stops writing it, and the next start reads it.
#[derive(Debug)]
pub struct SavedFile {
    path: PathBuf,
    mode: u32,
    content: Mutex<Content>,
}

/// The content last written or read.
#[derive(Debug, Default)]
struct Content {
    /// Version of the file when it was last written or read; `None` if it never was.
    version: Option<Version>,
    bytes: Vec<u8>,
    /// A removed file could not be rewritten, and that was logged.
    restore_failed: bool,
}

/// Version of a file: identity, size and modification time.
#[derive(Clone, PartialEq, Debug)]
struct Version {
    identity: FileIdentity,
    len: u64,
    modified: Option<SystemTime>,
}

impl Version {
    fn read(path: &Path) -> Option<Self> {
        let metadata = fs::metadata(path).ok()?;
        let identity = FileIdentity::read(path)?;
        Some(Self {
            identity,
            len: metadata.len(),
            modified: metadata.modified().ok(),
        })
    }
}

impl Content {
    fn new(path: &Path, bytes: Vec<u8>) -> Self {
        Self {
            version: Version::read(path),
            bytes,
            restore_failed: false,
        }
    }

    /// Returns the change that another program made to the file since it was written or read. A replacement with the same bytes
    /// is accepted as the same file.
    fn change(&mut self, path: &Path) -> Option<FileChange> {
        let version = self.version.as_ref()?;
        if version.identity.change() == Some(FileChange::Removed) {
            return Some(FileChange::Removed);
        }
        let metadata = Version::read(path);
        if metadata.as_ref() == Some(version) {
            return None;
        }
        match fs::read(path) {
            Ok(bytes) if bytes == self.bytes => {
                self.version = metadata;
                None
            }
            Ok(_) => Some(FileChange::Replaced),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Some(FileChange::Removed),
            // The contents cannot be compared.
            Err(_) => version.identity.change(),
        }
    }
}

impl SavedFile {
    /// Registers the file at `path`. It is written with this mode.
    pub fn new(path: PathBuf, mode: u32) -> Arc<Self> {
        let file = Arc::new(Self {
            path,
            mode,
            content: Mutex::default(),
        });
        let mut all = lock(&SAVED_FILES);
        all.retain(|file| file.strong_count() > 0);
        all.push(Arc::downgrade(&file));
        file
    }

    /// Returns the path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Replaces the file atomically: a crash leaves the old or the new content. On return, the new one survives a power
    /// failure.
    ///
    /// # Errors
    /// It cannot be written, or another program replaced it, in which case it stays unchanged.
    pub fn replace(&self, bytes: Vec<u8>) -> io::Result<()> {
        let mut content = lock(&self.content);
        if content.change(&self.path) == Some(FileChange::Replaced) {
            set_replaced(&self.path, true);
            return Err(io::Error::other(NOT_WRITTEN));
        }
        replace(&self.path, self.mode, &bytes)?;
        set_replaced(&self.path, false);
        *content = Content::new(&self.path, bytes);
        Ok(())
    }

    /// Reads the file, and accepts its present version.
    ///
    /// # Errors
    /// It does not exist or cannot be read.
    pub fn read(&self) -> io::Result<Vec<u8>> {
        let mut content = lock(&self.content);
        let bytes = fs::read(&self.path)?;
        set_replaced(&self.path, false);
        *content = Content::new(&self.path, bytes.clone());
        Ok(bytes)
    }

    /// Rewrites the file if another program removed it, and logs if another program replaced it.
    fn restore(&self) {
        let mut content = lock(&self.content);
        let change = content.change(&self.path);
        set_replaced(&self.path, change == Some(FileChange::Replaced));
        if change != Some(FileChange::Removed) {
            return;
        }
        let directory = self.path.parent().map_or(Ok(()), fs::create_dir_all);
        match directory.and_then(|()| replace(&self.path, self.mode, &content.bytes)) {
            Ok(()) => {
                RESTORED_COUNT.fetch_add(1, Ordering::Relaxed);
                content.version = Version::read(&self.path);
                content.restore_failed = false;
                tracing::warn!(
                    file = %self.path.display(),
                    "a file was removed by something else while hopwise ran, and is written again"
                );
            }
            Err(error) => {
                if !std::mem::replace(&mut content.restore_failed, true) {
                    tracing::error!(
                        file = %self.path.display(),
                        error = %error,
                        "a file was removed by something else while hopwise ran, and cannot be written again"
                    );
                }
            }
        }
    }
}

impl Drop for SavedFile {
    fn drop(&mut self) {
        set_replaced(&self.path, false);
    }
}

/// Marks a file as replaced by another program, or clears the mark. A new mark is logged once.
pub fn set_replaced(path: &Path, is_replaced: bool) {
    let mut all = lock(&REPLACED_FILES);
    if !is_replaced {
        all.remove(path);
    } else if all.insert(path.to_owned()) {
        tracing::error!(
            file = %path.display(),
            "a file was replaced by something else while hopwise ran, and is no longer written: restart hopwise to continue with \
             the new file"
        );
    }
}

/// Returns the files that another program replaced and that are no longer written.
pub fn replaced() -> Vec<String> {
    lock(&REPLACED_FILES)
        .iter()
        .map(|path| path.display().to_string())
        .collect()
}

/// Rewrites all saved files that another program removed. May block on disk I/O.
pub fn restore() {
    let all: Vec<Arc<SavedFile>> = lock(&SAVED_FILES).iter().filter_map(Weak::upgrade).collect();
    all.iter().for_each(|file| file.restore());
}

/// Returns the number of files rewritten so far.
pub fn restored() -> u64 {
    RESTORED_COUNT.load(Ordering::Relaxed)
}

/// Replaces a file atomically, with this mode. A crash leaves the old or the new content; on return, the new one survives a
/// power failure.
///
/// # Errors
/// It cannot be written; the old content remains.
pub fn replace(file: &Path, mode: u32, content: &[u8]) -> io::Result<()> {
    let temp = temp_file(file);
    let out = OpenOptions::new()
        .create(true)
        .truncate(true)
        .write(true)
        .mode(mode)
        .open(&temp)?;
    write_and_publish(out, &temp, file, content)
}

/// Replaces an existing file; a symbolic link is replaced itself, not its target. The new file keeps mode and group.
///
/// # Errors
/// It cannot be written or cannot get that mode or group; the old file remains.
pub fn replace_alike(file: &Path, content: &[u8]) -> io::Result<()> {
    let metadata = fs::metadata(file)?;
    // A name that no other writer uses, in this process or another.
    let temp = temp_file(&file.with_extension(format!("{}-{}", std::process::id(), nic::time::now())));
    let out = OpenOptions::new()
        .create_new(true)
        .write(true)
        .mode(0o600)
        .open(&temp)?;
    let result =
        copy_group_and_mode(&out, &metadata).and_then(|()| write_and_publish(out, &temp, file, content));
    if result.is_err() {
        // Fails if it was renamed already.
        let _ = fs::remove_file(&temp);
    }
    result
}

fn copy_group_and_mode(file: &File, metadata: &fs::Metadata) -> io::Result<()> {
    if file.metadata()?.gid() != metadata.gid() {
        fchown(file, None, Some(metadata.gid()))?;
    }
    file.set_permissions(Permissions::from_mode(metadata.mode() & 0o7777))
}

fn write_and_publish(mut out: File, temp: &Path, file: &Path, content: &[u8]) -> io::Result<()> {
    out.write_all(content)?;
    publish(&out, temp, file)
}

/// Renames the complete file at `temp` to its final name. On return it survives a power failure.
///
/// # Errors
/// It cannot be synced or renamed.
pub fn publish(out: &File, temp: &Path, file: &Path) -> io::Result<()> {
    out.sync_all()?;
    fs::rename(temp, file)?;
    // The directory entry must be on disk, too.
    let directory = file.parent().filter(|parent| !parent.as_os_str().is_empty());
    File::open(directory.unwrap_or(Path::new(".")))?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;
    use testkit::records::Dir;

    #[test]
    fn a_file_that_something_removes_is_written_again() {
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
        assert_eq!(
            (text(), fs::metadata(&file).unwrap().mode() & 0o777),
            ("one".to_owned(), 0o640)
        );
        assert!(restored() >= 1);
        // Also when the next content is there before.
        fs::remove_file(&file).unwrap();
        saved.replace(b"two".to_vec()).unwrap();
        assert_eq!(text(), "two");
        // A file that is not in use any more is not written again.
        drop(saved);
        fs::remove_file(&file).unwrap();
        restore();
        assert!(!file.exists());
    }

    #[test]
    fn a_file_that_something_replaces_or_changes_is_not_written_any_more() {
        let dir = Dir::new("replaced");
        let file = dir.path().join("alerts.json");
        let other = dir.path().join("other");
        let is_named = || replaced().contains(&file.display().to_string());
        for way in ["rename", "remove and create", "in place"] {
            let saved = SavedFile::new(file.clone(), 0o640);
            saved.replace(b"ours".to_vec()).unwrap();
            let put = |text: &str| match way {
                "rename" => {
                    fs::write(&other, text).unwrap();
                    fs::rename(&other, &file).unwrap();
                }
                "in place" => fs::write(&file, text).unwrap(),
                _ => {
                    fs::remove_file(&file).unwrap();
                    fs::write(&file, text).unwrap();
                }
            };
            // A copy of the same content changes nothing.
            put("ours");
            restore();
            assert!(!is_named(), "{way}");
            saved.replace(b"ours, too".to_vec()).unwrap();
            put("an operator's");
            restore();
            assert!(is_named(), "{way}");
            let refused = saved.replace(b"newer".to_vec()).unwrap_err();
            assert_eq!(refused.to_string(), NOT_WRITTEN, "{way}");
            restore();
            assert_eq!(fs::read_to_string(&file).unwrap(), "an operator's", "{way}");
            // Whoever removes it again wants ours.
            fs::remove_file(&file).unwrap();
            restore();
            assert_eq!(
                (fs::read_to_string(&file).unwrap(), is_named()),
                ("ours, too".to_owned(), false)
            );
            put("an operator's");
            restore();
            assert!(is_named(), "{way}");
            // The next one to use it goes on with it.
            drop(saved);
            let saved = SavedFile::new(file.clone(), 0o640);
            assert_eq!(saved.read().unwrap(), b"an operator's");
            saved.replace(b"newer".to_vec()).unwrap();
            assert_eq!(
                (fs::read_to_string(&file).unwrap(), is_named()),
                ("newer".to_owned(), false),
                "{way}"
            );
        }
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
        assert_eq!(
            (found.mode() & 0o7777, found.gid()),
            (0o662, if is_given { other } else { own })
        );
        assert_eq!(fs::read(&file).unwrap(), b"new");
        assert_eq!(dir.names(), ["h.toml"], "nothing else stays");
        assert!(replace_alike(&dir.path().join("none"), b"new").is_err());
    }
}
