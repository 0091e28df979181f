//! The files of a store's directory: their names, listing, retention, setting aside of damaged ones, and the writer's
//! lock.
//!
//! ```text
//! hopwise-2026-11-21.db              a day (UTC)
//! hopwise-2026-11-21T14.2.db         an hour, second part
//! hopwise-2026-11-21.db.corrupt-1    set aside because it is damaged
//! hopwise-2026-11-21.db.salvaged-1   set aside, and its readable records were copied
//! hopwise.lock                       locked by the process that writes
//! ```
//!
//! SQLite's WAL and shared memory are beside each database, with the suffixes `-wal` and `-shm`.

use std::fmt;
use std::fs::{self, File, Metadata, OpenOptions, Permissions, TryLockError};
use std::io;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _, fchown};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use collector::event::Nanos;
use settings::time::Date;

use crate::config::{Error, Period, WithPath as _};
use crate::directory::check_dir;
use crate::identity::{FileIdentity, check_access};

const CORRUPT_SUFFIX: &str = ".corrupt-";
const SALVAGED_SUFFIX: &str = ".salvaged-";
const SECOND: u64 = 1_000_000_000;
const HOUR: u64 = 3600;
const DAY: u64 = 24 * HOUR;
/// Name of the lock file. The process that locks it is the directory's writer.
pub(crate) const LOCK_FILE: &str = "hopwise.lock";
/// Mode of new files: owner reads and writes, group reads. The umask may restrict it further.
const FILE_MODE: u32 = 0o640;

/// Identity of a file: its period, and the part (from 1) if the period needed several files.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct FileId {
    /// Start of the period, seconds since the epoch.
    start: u64,
    is_hourly: bool,
    part: u32,
}

impl FileId {
    /// Returns the first part of the period that holds `ts`.
    pub(crate) fn containing(ts: Nanos, period: Period) -> Self {
        let length = period.nanos() / SECOND;
        Self {
            start: ts / SECOND / length * length,
            is_hourly: period == Period::Hour,
            part: 1,
        }
    }

    /// Returns the next part of the same period.
    pub(crate) fn next_part(self) -> Self {
        Self {
            part: self.part + 1,
            ..self
        }
    }

    /// Returns true if both cover the same period.
    pub(crate) fn same_period(self, other: Self) -> bool {
        (self.start, self.is_hourly) == (other.start, other.is_hourly)
    }

    /// Returns true if `self` covers the period just before that of `other`.
    pub(crate) fn is_just_before(self, other: Self) -> bool {
        self.is_hourly == other.is_hourly && self.start + self.seconds() == other.start
    }

    /// Returns true if the period holds `ts`.
    pub(crate) fn covers(self, ts: Nanos) -> bool {
        (self.start..self.start.saturating_add(self.seconds())).contains(&(ts / SECOND))
    }

    /// Returns true if the period overlaps the range from `from` to `to`, ns, both included. `None` means unbounded.
    pub(crate) fn overlaps(self, from: Option<Nanos>, to: Option<Nanos>) -> bool {
        let end = self.start.saturating_add(self.seconds());
        from.is_none_or(|from| from / SECOND < end) && to.is_none_or(|to| to / SECOND >= self.start)
    }

    /// Parses a file name. Returns `None` if it is not the name of a store's file.
    pub(crate) fn parse(name: &str) -> Option<Self> {
        let stem = name.strip_prefix("hopwise-")?.strip_suffix(".db")?;
        let (date, part) = match stem.split_once('.') {
            Some((date, part)) => (date, part.parse().ok().filter(|part| *part > 1)?),
            None => (stem, 1),
        };
        let (day, hour) = match date.split_once('T') {
            Some((day, hour)) => (day, Some(two_digits(hour).filter(|hour| *hour < 24)?)),
            None => (date, None),
        };
        let year = day.get(..4)?;
        let (month, day) = day.get(4..)?.strip_prefix('-')?.split_once('-')?;
        let date = Date {
            year: year.parse().ok()?,
            month: two_digits(month)?,
            day: two_digits(day)?,
        };
        let id = Self {
            start: u64::try_from(date.days()?).ok()? * DAY + hour.map_or(0, u64::from) * HOUR,
            is_hourly: hour.is_some(),
            part,
        };
        (id.to_string() == name).then_some(id)
    }

    /// Returns the time (ns) that separates this file from the preceding ones: they have no records at or after it.
    /// `earliest` is the time of the first record in this file.
    pub(crate) fn lower_bound(self, earliest: Nanos) -> Nanos {
        if self.part > 1 {
            earliest
        } else {
            earliest.min(self.start.saturating_mul(SECOND))
        }
    }

    fn seconds(self) -> u64 {
        if self.is_hourly { HOUR } else { DAY }
    }
}

impl fmt::Display for FileId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Date { year, month, day } = Date::from_days((self.start / DAY) as i64);
        write!(f, "hopwise-{year:04}-{month:02}-{day:02}")?;
        if self.is_hourly {
            write!(f, "T{:02}", self.start % DAY / HOUR)?;
        }
        if self.part > 1 {
            write!(f, ".{}", self.part)?;
        }
        f.write_str(".db")
    }
}

/// A file in the directory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct StoreFile {
    pub(crate) id: FileId,
    pub(crate) path: PathBuf,
    /// Size of the file and its WAL, bytes.
    pub(crate) bytes: u64,
    /// Size of the WAL, bytes.
    pub(crate) wal_bytes: u64,
    /// Time of the last write to the file or its WAL. No record in it is newer, so `max_age` is compared with it.
    pub(crate) modified: SystemTime,
}

/// The content of the directory of a store.
#[derive(Default, Debug)]
pub(crate) struct Listing {
    /// The files, oldest period first.
    pub(crate) files: Vec<StoreFile>,
    /// Paths that are named like a store's file but are a directory, FIFO or device. Opening one could block.
    pub(crate) not_files: Vec<(FileId, PathBuf)>,
    /// Damaged files that were set aside, with the IDs of their former names.
    pub(crate) set_aside: Vec<StoreFile>,
}

impl Listing {
    pub(crate) fn contains(&self, id: FileId) -> bool {
        self.files.iter().any(|file| file.id == id) || self.not_files.iter().any(|(other, _)| *other == id)
    }
}

/// Lists `dir`. A file that disappears during the scan is left out.
pub(crate) fn scan(dir: &Path) -> io::Result<Listing> {
    let mut listing = Listing::default();
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let name = entry.file_name();
        let Some(name) = name.to_str() else { continue };
        let path = entry.path();
        let aside = parse_set_aside(name);
        let Some(id) = aside.or_else(|| FileId::parse(name)) else {
            continue;
        };
        let meta = match fs::metadata(&path) {
            Ok(meta) => meta,
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            // The directory may be listed but not searched.
            Err(error) => return Err(error),
        };
        if aside.is_none() && !meta.is_file() {
            listing.not_files.push((id, path));
            continue;
        }
        let wal = fs::metadata(with_suffix(&path, "-wal"));
        let modified = meta.modified().unwrap_or(UNIX_EPOCH);
        let modified = wal
            .as_ref()
            .map_or(modified, |wal| wal.modified().unwrap_or(modified).max(modified));
        let wal_bytes = wal.map_or(0, |wal| wal.len());
        let files = if aside.is_some() {
            &mut listing.set_aside
        } else {
            &mut listing.files
        };
        files.push(StoreFile {
            id,
            path,
            bytes: meta.len() + wal_bytes,
            wal_bytes,
            modified,
        });
    }
    listing.files.sort_by_key(|file| file.id);
    listing.not_files.sort();
    listing
        .set_aside
        .sort_by(|a, b| (a.id, &a.path).cmp(&(b.id, &b.path)));
    Ok(listing)
}

/// Lists the store's files in `dir`, oldest period first.
pub(crate) fn list(dir: &Path) -> io::Result<Vec<StoreFile>> {
    scan(dir).map(|listing| listing.files)
}

/// Returns the former ID of a damaged file from its name: `….corrupt-N`, or `….salvaged-N` after it was salvaged.
fn parse_set_aside(name: &str) -> Option<FileId> {
    let (name, number) = [CORRUPT_SUFFIX, SALVAGED_SUFFIX]
        .iter()
        .find_map(|mark| name.rsplit_once(mark))?;
    let is_number = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    if is_number { FileId::parse(name) } else { None }
}

/// Returns true if the path names a damaged file whose records were salvaged.
pub(crate) fn is_salvaged(path: &Path) -> bool {
    path.to_string_lossy().contains(SALVAGED_SUFFIX)
}

/// Returns the files of `files_by_age` (oldest first) to delete to satisfy `max_age` and `max_bytes`, never the one at
/// `current`.
pub(crate) fn expired<'a>(
    files_by_age: &'a [StoreFile],
    current: Option<&Path>,
    now: SystemTime,
    max_age: Option<Duration>,
    max_bytes: Option<u64>,
) -> Vec<&'a StoreFile> {
    let mut bytes: u64 = files_by_age.iter().map(|file| file.bytes).sum();
    let mut expired = Vec::new();
    for file in files_by_age.iter().filter(|file| Some(&*file.path) != current) {
        let age = now.duration_since(file.modified).unwrap_or_default();
        let too_old = max_age.is_some_and(|limit| age > limit);
        let too_much = max_bytes.is_some_and(|limit| bytes > limit);
        if too_old || too_much {
            bytes -= file.bytes;
            expired.push(file);
        }
    }
    expired
}

/// Deletes a database file with its WAL and shared memory.
///
/// # Errors
/// One of them exists and cannot be deleted.
pub fn remove(path: &Path) -> io::Result<()> {
    for suffix in ["", "-wal", "-shm"] {
        match fs::remove_file(with_suffix(path, suffix)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

/// Renames a damaged file and its WAL to the first unused name `….corrupt-N`, for examination. Returns the new path.
pub(crate) fn set_aside(path: &Path) -> io::Result<PathBuf> {
    let mut number = 1;
    let aside = loop {
        let aside = with_suffix(path, &format!("{CORRUPT_SUFFIX}{number}"));
        if !aside.exists() && !with_suffix(path, &format!("{SALVAGED_SUFFIX}{number}")).exists() {
            break aside;
        }
        number += 1;
    };
    rename(path, &aside)?;
    Ok(aside)
}

/// Renames a file that was set aside from `….corrupt-N` to `….salvaged-N`. Returns the new path.
pub(crate) fn mark_salvaged(path: &Path) -> io::Result<PathBuf> {
    let to = PathBuf::from(path.to_string_lossy().replace(CORRUPT_SUFFIX, SALVAGED_SUFFIX));
    rename(path, &to)?;
    Ok(to)
}

fn rename(path: &Path, aside: &Path) -> io::Result<()> {
    fs::rename(path, aside)?;
    for suffix in ["-wal", "-shm"] {
        match fs::rename(with_suffix(path, suffix), with_suffix(aside, suffix)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

/// Returns `path` with `suffix` appended to its name.
pub(crate) fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

fn two_digits(text: &str) -> Option<u8> {
    (text.len() == 2).then(|| text.parse().ok())?
}

/// Exclusive lock of a store's directory. Only the process that holds it writes there.
#[derive(Debug)]
pub(crate) struct DirLock {
    file: File,
    identity: Option<FileIdentity>,
}

impl DirLock {
    /// Acquires the lock. Creates the directory if it does not exist.
    pub(crate) fn acquire(dir: &Path) -> Result<Self, Error> {
        fs::create_dir_all(dir).map_err(|error| Error::directory(dir, error))?;
        check_dir(dir)?;
        Self::acquire_file(dir, None)
    }

    /// Acquires the lock for a command that may run as another user than the store. A new lock file gets the owner and
    /// mode of the file at `template`.
    pub(crate) fn acquire_like(dir: &Path, template: &Path) -> Result<Self, Error> {
        Self::acquire_file(dir, Some(template))
    }

    fn acquire_file(dir: &Path, template: Option<&Path>) -> Result<Self, Error> {
        let path = dir.join(LOCK_FILE);
        let is_missing = match check_access(&path, true) {
            Ok(()) => false,
            Err(error) if error.kind() == io::ErrorKind::NotFound => true,
            Err(error) => return Err(Error::io(&path, error)),
        };
        let file = match template {
            Some(template) if is_missing => create_like(&path, template),
            _ => private_file_options()
                .create(true)
                .truncate(false)
                .write(true)
                .open(&path),
        };
        let file = file.with_path(&path)?;
        file.try_lock().map_err(|error| match error {
            TryLockError::WouldBlock => Error::Locked(dir.to_owned()),
            TryLockError::Error(error) => Error::io(&path, error),
        })?;
        Ok(Self {
            file,
            identity: FileIdentity::read(&path),
        })
    }

    /// Returns true if the lock file was removed or replaced, so that another process could lock the new one.
    pub(crate) fn is_moved(&self) -> bool {
        self.identity
            .as_ref()
            .is_none_or(|identity| identity.change().is_some())
    }
}

impl Drop for DirLock {
    fn drop(&mut self) {
        // Explicit, because closing may not unlock: a child process that is being spawned may briefly share the
        // descriptor.
        let _ = self.file.unlock();
    }
}

/// Creates a file with the owner, group and mode of the one at `template`. Fails if the file exists or if this user may
/// not change its owner.
pub(crate) fn create_like(path: &Path, template: &Path) -> io::Result<File> {
    let target = fs::metadata(template)?;
    let file = private_file_options().create_new(true).write(true).open(path)?;
    if let Err(error) = copy_owner_and_mode(&file, &target) {
        // A file with the wrong owner would keep the store from writing to it.
        fs::remove_file(path)?;
        return Err(error);
    }
    Ok(file)
}

fn copy_owner_and_mode(file: &File, target: &Metadata) -> io::Result<()> {
    let current = file.metadata()?;
    if (current.uid(), current.gid()) != (target.uid(), target.gid()) {
        fchown(file, Some(target.uid()), Some(target.gid()))?;
    }
    file.set_permissions(Permissions::from_mode(target.mode() & 0o777))
}

/// Returns the name under which the file at `path` is written until it is complete.
pub fn temp_file(path: &Path) -> PathBuf {
    with_suffix(path, ".tmp")
}

/// Returns options for a new file that other users cannot read: it shows who communicates with whom.
pub(crate) fn private_file_options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.mode(FILE_MODE);
    options
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOV_21_14H: Nanos = 1_795_269_600_000_000_000 + 1_234_567_890;

    #[test]
    fn a_file_is_named_by_its_period_in_utc() {
        let day = FileId::containing(NOV_21_14H, Period::Day);
        let hour = FileId::containing(NOV_21_14H, Period::Hour);
        let names = [
            day,
            hour,
            day.next_part(),
            hour.next_part().next_part(),
            FileId::containing(0, Period::Day),
        ]
        .map(|id| id.to_string());
        assert_eq!(
            names,
            [
                "hopwise-2026-11-21.db",
                "hopwise-2026-11-21T14.db",
                "hopwise-2026-11-21.2.db",
                "hopwise-2026-11-21T14.3.db",
                "hopwise-1970-01-01.db"
            ]
        );
    }

    #[test]
    fn every_name_reads_back_as_its_file() {
        for hours in (0..24 * 366 * 401).step_by(7919) {
            for period in [Period::Day, Period::Hour] {
                let id = FileId::containing(hours * HOUR * SECOND, period);
                assert_eq!(FileId::parse(&id.to_string()), Some(id));
                assert_eq!(FileId::parse(&id.next_part().to_string()), Some(id.next_part()));
            }
        }
    }

    #[test]
    fn unrelated_files_are_left_alone() {
        for name in [
            "hopwise-2026-11-21.db-wal",
            "hopwise-2026-11-21.db.corrupt-1",
            "hopwise-2026-02-29.db",
            "hopwise-2026-13-01.db",
            "hopwise-2026-11-21T24.db",
            "hopwise-2026-1-21.db",
            "hopwise-2026-11-21.1.db",
            "hopwise-2026-11-21.02.db",
            "hopwise-+026-11-21.db",
            "hopwise-é26-11-21.db",
            "hopwise-.db",
            "notes.db",
        ] {
            assert_eq!(FileId::parse(name), None, "{name}");
        }
    }

    #[test]
    fn the_oldest_go_first_and_the_current_never() {
        let now = UNIX_EPOCH + Duration::from_secs(1_000_000);
        let found: Vec<StoreFile> = (0..4)
            .map(|day| StoreFile {
                id: FileId::containing(day * DAY * SECOND, Period::Day),
                path: PathBuf::from(format!("{day}")),
                bytes: 100,
                wal_bytes: 0,
                modified: now - Duration::from_secs((4 - day) * 100),
            })
            .collect();
        let current = Some(&*found[3].path);
        let gone = |age: Option<u64>, bytes: Option<u64>| -> Vec<u64> {
            expired(&found, current, now, age.map(Duration::from_secs), bytes)
                .iter()
                .map(|file| file.id.start / DAY)
                .collect()
        };
        assert_eq!(gone(None, None), [] as [u64; 0]);
        assert_eq!(gone(Some(300), None), [0]);
        assert_eq!(gone(Some(0), None), [0, 1, 2]);
        assert_eq!(gone(None, Some(400)), [] as [u64; 0]);
        assert_eq!(gone(None, Some(399)), [0]);
        assert_eq!(gone(None, Some(0)), [0, 1, 2]);
        assert_eq!(gone(Some(300), Some(200)), [0, 1]);
    }

    #[test]
    fn a_damaged_file_is_kept_under_another_name_with_its_log() {
        let dir = testkit::records::Dir::new("aside");
        for round in 1..=2_usize {
            let path = dir.path().join("hopwise-2026-11-21.db");
            fs::write(&path, format!("db {round}")).unwrap();
            fs::write(with_suffix(&path, "-wal"), format!("wal {round}")).unwrap();
            let aside = set_aside(&path).unwrap();
            assert_eq!(
                aside,
                dir.path().join(format!("hopwise-2026-11-21.db.corrupt-{round}"))
            );
            assert_eq!(fs::read_to_string(&aside).unwrap(), format!("db {round}"));
            assert_eq!(
                fs::read_to_string(with_suffix(&aside, "-wal")).unwrap(),
                format!("wal {round}")
            );
            let found = scan(dir.path()).unwrap();
            assert!(found.files.is_empty() && found.set_aside.len() == round);
            let listed = &found.set_aside[round - 1];
            assert_eq!(
                (listed.id, &listed.path),
                (FileId::containing(NOV_21_14H, Period::Day), &aside)
            );
            assert_eq!((listed.bytes, listed.wal_bytes), (9, 5));
        }
        // A number is not given again after a file was salvaged.
        let first = mark_salvaged(&dir.path().join("hopwise-2026-11-21.db.corrupt-1")).unwrap();
        assert!(is_salvaged(&first) && first.ends_with("hopwise-2026-11-21.db.salvaged-1"));
        assert_eq!(scan(dir.path()).unwrap().set_aside.len(), 2);
        let path = dir.path().join("hopwise-2026-11-21.db");
        fs::write(&path, "db").unwrap();
        assert!(
            set_aside(&path)
                .unwrap()
                .ends_with("hopwise-2026-11-21.db.corrupt-3")
        );
    }

    #[test]
    fn what_is_no_file_is_listed_apart_and_never_opened() {
        let dir = testkit::records::Dir::new("not-files");
        let path = |name: &str| dir.path().join(name);
        fs::create_dir(path("hopwise-2026-11-20.db")).unwrap();
        std::os::unix::fs::symlink("/dev/zero", path("hopwise-2026-11-19.db")).unwrap();
        fs::write(path("hopwise-2026-11-21.db"), "").unwrap();
        let found = scan(dir.path()).unwrap();
        assert_eq!((found.files.len(), found.not_files.len()), (1, 2));
        for (_, path) in &found.not_files {
            let refused = check_access(path, true).unwrap_err();
            assert_eq!(refused.to_string(), "not a regular file");
        }
        assert!(check_access(&path("hopwise-2026-11-21.db"), true).is_ok());
    }
}
