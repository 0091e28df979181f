//! Files that are replaced as a whole. Those that must be there for the next start, such as cursors, acknowledgements, known links and
//! rules, are written again if something removes them while this process runs. A file that something else replaced is left as it is.

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

/// The files that are in use.
static SAVED: Mutex<Vec<Weak<SavedFile>>> = Mutex::new(Vec::new());
static RESTORED: AtomicU64 = AtomicU64::new(0);
/// Files that another program replaced, and that are not written any more.
static REPLACED: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());

/// A file that must be there for the next start. As long as this is in use, [`restore`] writes it again if something removes it. If
/// something else replaces or changes it, an operator wants that one: it is not written any more, and the next start reads it.
#[derive(Debug)]
pub struct SavedFile {
    path: PathBuf,
    mode: u32,
    content: Mutex<Content>,
}

/// The content that was written last, or read.
#[derive(Debug, Default)]
struct Content {
    /// The file as it was when it was written or read last; `None` if it never was.
    version: Option<Version>,
    bytes: Vec<u8>,
    /// The file was not there, and could not be written again; that was logged.
    failed: bool,
}

/// A file between two changes.
#[derive(Clone, PartialEq, Debug)]
struct Version {
    identity: FileIdentity,
    len: u64,
    modified: Option<SystemTime>,
}

impl Version {
    fn of(path: &Path) -> Option<Self> {
        let found = fs::metadata(path).ok()?;
        let identity = FileIdentity::read(path)?;
        Some(Self {
            identity,
            len: found.len(),
            modified: found.modified().ok(),
        })
    }
}

impl Content {
    fn new(path: &Path, bytes: Vec<u8>) -> Self {
        Self {
            version: Version::of(path),
            bytes,
            failed: false,
        }
    }

    /// Returns the change that another program made to the file since it was written or read. A copy with the same content is as good as
    /// the file.
    fn change(&mut self, path: &Path) -> Option<FileChange> {
        let version = self.version.as_ref()?;
        if version.identity.change() == Some(FileChange::Removed) {
            return Some(FileChange::Removed);
        }
        let found = Version::of(path);
        if found.as_ref() == Some(version) {
            return None;
        }
        match fs::read(path) {
            Ok(bytes) if bytes == self.bytes => {
                self.version = found;
                None
            }
            Ok(_) => Some(FileChange::Replaced),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Some(FileChange::Removed),
            // It cannot be said.
            Err(_) => version.identity.change(),
        }
    }
}

impl SavedFile {
    /// Returns the file at `path`, which gets this mode when it is written.
    pub fn new(path: PathBuf, mode: u32) -> Arc<Self> {
        let file = Arc::new(Self {
            path,
            mode,
            content: Mutex::default(),
        });
        let mut all = lock(&SAVED);
        all.retain(|one| one.strong_count() > 0);
        all.push(Arc::downgrade(&file));
        file
    }

    /// Returns the path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Replaces the file. A crash leaves the old content or the new one; on return, the new one survives a power failure.
    ///
    /// # Errors
    /// It cannot be written, or something else replaced it: what is there stays.
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

    /// Reads it.
    ///
    /// # Errors
    /// It cannot be read, or there is none.
    pub fn read(&self) -> io::Result<Vec<u8>> {
        let mut content = lock(&self.content);
        let bytes = fs::read(&self.path)?;
        set_replaced(&self.path, false);
        *content = Content::new(&self.path, bytes.clone());
        Ok(bytes)
    }

    /// Writes the file again if another program removed it, and names it in the log if another program replaced it.
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
                RESTORED.fetch_add(1, Ordering::Relaxed);
                content.version = Version::of(&self.path);
                content.failed = false;
                tracing::warn!(
                    file = %self.path.display(),
                    "a file was removed by something else while hopwise ran, and is written again"
                );
            }
            Err(error) => {
                if !std::mem::replace(&mut content.failed, true) {
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

/// Sets whether another program replaced a file, which is then not written any more. The log names it once.
pub fn set_replaced(path: &Path, is_replaced: bool) {
    let mut all = lock(&REPLACED);
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

/// Returns the files that another program replaced and that are not written any more.
pub fn replaced() -> Vec<String> {
    lock(&REPLACED)
        .iter()
        .map(|path| path.display().to_string())
        .collect()
}

/// The error of a file that another program replaced.
pub const NOT_WRITTEN: &str =
    "it was replaced while hopwise ran; restart hopwise to continue with the new file";

/// Writes the files again that another program removed since they were written or read. May wait for the disk.
pub fn restore() {
    let all: Vec<Arc<SavedFile>> = lock(&SAVED).iter().filter_map(Weak::upgrade).collect();
    all.iter().for_each(|file| file.restore());
}

/// Returns the number of files that were written again.
pub fn restored() -> u64 {
    RESTORED.load(Ordering::Relaxed)
}

/// Replaces a file, which gets this mode. A crash leaves the old content or the new one; on return, the new one survives a power failure.
///
/// # Errors
/// It cannot be written: the old content is still there.
pub fn replace(file: &Path, mode: u32, content: &[u8]) -> io::Result<()> {
    let temp = temp_file(file);
    let out = OpenOptions::new()
        .create(true)
        .truncate(true)
        .write(true)
        .mode(mode)
        .open(&temp)?;
    finish(out, &temp, file, content)
}

/// Replaces a file that is there, and not by way of a link. The new one has its mode and its group.
///
/// # Errors
/// It cannot be written, or cannot have that mode or group: the old file is still there.
pub fn replace_alike(file: &Path, content: &[u8]) -> io::Result<()> {
    let found = fs::metadata(file)?;
    // A name that nobody else writes to, in this process or in another one.
    let temp = temp_file(&file.with_extension(format!("{}-{}", std::process::id(), nic::time::now())));
    let out = OpenOptions::new()
        .create_new(true)
        .write(true)
        .mode(0o600)
        .open(&temp)?;
    let done = make_alike(&out, &found).and_then(|()| finish(out, &temp, file, content));
    if done.is_err() {
        // It may have got its name already.
        let _ = fs::remove_file(&temp);
    }
    done
}

fn make_alike(file: &File, found: &fs::Metadata) -> io::Result<()> {
    if file.metadata()?.gid() != found.gid() {
        fchown(file, None, Some(found.gid()))?;
    }
    file.set_permissions(Permissions::from_mode(found.mode() & 0o7777))
}

fn finish(mut out: File, temp: &Path, file: &Path, content: &[u8]) -> io::Result<()> {
    out.write_all(content)?;
    publish(&out, temp, file)
}

/// Gives the file that is complete at `temp` its name. On return it survives a power failure.
///
/// # Errors
/// It cannot be written to the disk, or renamed.
pub fn publish(out: &File, temp: &Path, file: &Path) -> io::Result<()> {
    out.sync_all()?;
    fs::rename(temp, file)?;
    // The name, too, must be on disk.
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
