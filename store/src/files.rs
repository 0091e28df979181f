//! Names, listing, deleting and setting aside of the store's files.

use std::fmt;
use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use collector::event::Nanos;

use crate::config::Period;

/// Which file: its period and, when a period needed several, the part (from 1).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct FileId {
    /// Start of the period, seconds since the epoch.
    start: u64,
    hourly: bool,
    part: u32,
}

impl FileId {
    /// The first part of the period that holds `ts`.
    pub(crate) fn of(ts: Nanos, period: Period) -> Self {
        let length = period.nanos() / SECOND;
        Self { start: ts / SECOND / length * length, hourly: period == Period::Hour, part: 1 }
    }

    /// The next part of the same period.
    pub(crate) fn next_part(self) -> Self {
        Self { part: self.part + 1, ..self }
    }

    /// Whether both cover the same period.
    pub(crate) fn same_period(self, other: Self) -> bool {
        (self.start, self.hourly) == (other.start, other.hourly)
    }

    /// Whether `self` covers the period just before that of `other`.
    pub(crate) fn is_just_before(self, other: Self) -> bool {
        self.hourly == other.hourly && self.start + self.seconds() == other.start
    }

    /// The file with this name, if it is one of a store.
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
        let (year, rest) = (day.get(..4)?, day.get(4..)?);
        let (month, day) = rest.strip_prefix('-')?.split_once('-')?;
        let days = days_from_date(year.parse().ok()?, two_digits(month)?, two_digits(day)?)?;
        let id = Self { start: days * DAY + hour.unwrap_or(0) * HOUR, hourly: hour.is_some(), part };
        (id.to_string() == name).then_some(id)
    }

    fn seconds(self) -> u64 {
        if self.hourly { HOUR } else { DAY }
    }
}

/// The file's name.
impl fmt::Display for FileId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (year, month, day) = date_from_days(self.start / DAY);
        write!(f, "hopwise-{year:04}-{month:02}-{day:02}")?;
        if self.hourly {
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
    /// With its log.
    pub(crate) bytes: u64,
    /// When it was last written; what `max_age` applies to, since no record in it is newer.
    pub(crate) modified: SystemTime,
}

/// The store's files in `dir`, oldest period first. A file that is removed meanwhile is left out.
pub(crate) fn list(dir: &Path) -> io::Result<Vec<StoreFile>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let Some(id) = entry.file_name().to_str().and_then(FileId::parse) else { continue };
        let path = entry.path();
        let Ok(meta) = fs::metadata(&path) else { continue };
        let log = fs::metadata(beside(&path, "-wal"));
        let modified = meta.modified().unwrap_or(UNIX_EPOCH);
        let modified = log.as_ref().map_or(modified, |log| log.modified().unwrap_or(modified).max(modified));
        found.push(StoreFile { id, path, bytes: meta.len() + log.map_or(0, |log| log.len()), modified });
    }
    found.sort_by_key(|file| file.id);
    Ok(found)
}

/// The files of `found` (oldest first) to delete so that the rest is recent and small enough. Never `current`.
pub(crate) fn expired(
    found: &[StoreFile],
    current: Option<FileId>,
    now: SystemTime,
    max_age: Option<Duration>,
    max_bytes: Option<u64>,
) -> Vec<&StoreFile> {
    let mut bytes: u64 = found.iter().map(|file| file.bytes).sum();
    let mut gone = Vec::new();
    for file in found.iter().filter(|file| Some(file.id) != current) {
        let age = now.duration_since(file.modified).unwrap_or_default();
        let too_old = max_age.is_some_and(|limit| age > limit);
        let too_much = max_bytes.is_some_and(|limit| bytes > limit);
        if too_old || too_much {
            bytes -= file.bytes;
            gone.push(file);
        }
    }
    gone
}

/// Deletes a file with its log and its shared memory.
pub(crate) fn remove(path: &Path) -> io::Result<()> {
    for suffix in ["", "-wal", "-shm"] {
        match fs::remove_file(beside(path, suffix)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

/// Renames a damaged file and its log to the first unused name `….corrupt-N`, for examination. Returns the name.
pub(crate) fn set_aside(path: &Path) -> io::Result<PathBuf> {
    let mut number = 1;
    let aside = loop {
        let aside = beside(path, &format!(".corrupt-{number}"));
        if !aside.exists() {
            break aside;
        }
        number += 1;
    };
    fs::rename(path, &aside)?;
    for suffix in ["-wal", "-shm"] {
        match fs::rename(beside(path, suffix), beside(&aside, suffix)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    Ok(aside)
}

/// `path` with `suffix` appended to its name.
pub(crate) fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

fn two_digits(text: &str) -> Option<u64> {
    (text.len() == 2).then(|| text.parse().ok())?
}

/// Days since 1970-01-01 of a date in the proleptic Gregorian calendar; `None` for a date that does not exist.
fn days_from_date(year: u64, month: u64, day: u64) -> Option<u64> {
    if year < 1970 || !(1..=12).contains(&month) || day < 1 || day > month_length(year, month) {
        return None;
    }
    let before = |year: u64| year * 365 + year / 4 - year / 100 + year / 400;
    let months: u64 = (1..month).map(|month| month_length(year, month)).sum();
    Some(before(year - 1) - before(1969) + months + day - 1)
}

/// Year, month and day, `days` after 1970-01-01.
fn date_from_days(days: u64) -> (u64, u64, u64) {
    // At most one year too early, because a year has at least 365 days; the loops below correct it.
    let mut year = 1970 + days / 366;
    while days_from_date(year + 1, 1, 1).is_some_and(|start| start <= days) {
        year += 1;
    }
    let mut rest = days - days_from_date(year, 1, 1).unwrap_or(0);
    let mut month = 1;
    while rest >= month_length(year, month) {
        rest -= month_length(year, month);
        month += 1;
    }
    (year, month, rest + 1)
}

fn month_length(year: u64, month: u64) -> u64 {
    let leap = year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    match month {
        2 => 28 + u64::from(leap),
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

const SECOND: u64 = 1_000_000_000;
const HOUR: u64 = 3600;
const DAY: u64 = 24 * HOUR;

/// Options for a file that other users cannot read: it contains who communicates with whom.
pub(crate) fn private() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.mode(MODE);
    options
}

/// The owner writes, the group reads; the umask may restrict it further.
const MODE: u32 = 0o640;

#[cfg(test)]
mod tests {
    use super::*;

    const NOV_21_14H: Nanos = 1_795_269_600_000_000_000 + 1_234_567_890;

    #[test]
    fn a_file_is_named_by_its_period_in_utc() {
        let day = FileId::of(NOV_21_14H, Period::Day);
        let hour = FileId::of(NOV_21_14H, Period::Hour);
        let names = [day, hour, day.next_part(), hour.next_part().next_part(), FileId::of(0, Period::Day)]
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
                let id = FileId::of(hours * HOUR * SECOND, period);
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
                id: FileId::of(day * DAY * SECOND, Period::Day),
                path: PathBuf::from(format!("{day}")),
                bytes: 100,
                modified: now - Duration::from_secs((4 - day) * 100),
            })
            .collect();
        let current = Some(found[3].id);
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
        for round in 1..=2 {
            let path = dir.path().join("hopwise-2026-11-21.db");
            fs::write(&path, format!("db {round}")).unwrap();
            fs::write(beside(&path, "-wal"), format!("wal {round}")).unwrap();
            let aside = set_aside(&path).unwrap();
            assert_eq!(aside, dir.path().join(format!("hopwise-2026-11-21.db.corrupt-{round}")));
            assert_eq!(fs::read_to_string(&aside).unwrap(), format!("db {round}"));
            assert_eq!(fs::read_to_string(beside(&aside, "-wal")).unwrap(), format!("wal {round}"));
            assert!(list(dir.path()).unwrap().is_empty());
        }
    }
}
