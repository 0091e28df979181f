//! `hopwise store check`: verifies each database file of a store with SQLite's `quick_check`, and with `--salvage`
//! copies the readable records of damaged files into new ones.

use std::collections::HashMap;
use std::fs::{self, File, TryLockError};
use std::path::{Path, PathBuf};

use collector::event::Nanos;
use rusqlite::Connection;

use crate::config::{Error, WithPath as _};
use crate::files::{self, DirLock, FileId, Listing};
use crate::identity::check_access;
use crate::join;
use crate::salvage::{self, Records, Salvaged};

const CACHE_KIB: usize = 16 << 10;
/// Maximum errors listed per file.
const MAX_FAULTS: u32 = 3;

wire::named! {
    /// The state of a file.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum FileState, name {
        /// SQLite finds no errors in it.
        Good => "good",
        /// It was just created and has no contents yet.
        Empty => "empty",
        /// The contents are damaged.
        Damaged => "damaged",
        /// It was damaged, and its readable records were copied to another file.
        Salvaged => "salvaged",
        /// It cannot be opened, has a newer schema version, or belongs to another program.
        Unreadable => "unreadable",
    }
}

/// The result of checking one file of a store.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FileCheck {
    /// Name of the file in the directory.
    pub file: String,
    /// The state of the file.
    pub state: FileState,
    /// The reason why the file is not good or not salvaged.
    pub message: Option<String>,
    /// Size of the file with its log, bytes.
    pub bytes: u64,
    /// Times of the oldest and the newest record, if they could be read.
    pub time: Option<[Nanos; 2]>,
    /// Record counts; `None` if they could not be read.
    pub records: Option<Records>,
    /// The records that this check salvaged from it.
    pub salvaged: Option<Salvaged>,
}

impl FileCheck {
    fn add_message(&mut self, text: &str) {
        let earlier = self
            .message
            .take()
            .map_or_else(String::new, |earlier| earlier + "; ");
        self.message = Some(earlier + text);
    }
}

/// Checks the files in `dir`, oldest first. This reads each page, about a second per gigabyte, and works while another
/// process writes there.
///
/// With `salvage`, the readable records of each damaged file that was set aside are copied to a new file, and the
/// damaged file is renamed. Damaged files that are still in place are set aside first, unless a process writes to the
/// store. [`FileCheck::message`] says why a file was not salvaged.
///
/// # Errors
/// The directory cannot be read, or another process salvages files there.
pub fn check(dir: &Path, salvage: bool) -> Result<Vec<FileCheck>, Error> {
    let Listing {
        files,
        not_files,
        set_aside,
    } = files::scan(dir).with_path(dir)?;
    let mut all: Vec<(FileId, PathBuf)> = files
        .into_iter()
        .chain(set_aside.iter().cloned())
        .map(|file| (file.id, file.path))
        .collect();
    all.extend(not_files);
    all.sort();
    let mut lock = None;
    let mut checks = Vec::with_capacity(all.len());
    for (id, path) in all {
        let mut checked = check_file(&path);
        let is_set_aside = set_aside.iter().any(|aside| aside.path == path);
        if files::is_salvaged(&path) {
            checked.state = FileState::Salvaged;
            checked.message = Some("delete it once you no longer need it".to_owned());
        } else if is_set_aside && checked.state == FileState::Good {
            checked.state = FileState::Damaged;
            checked.message = Some("it was set aside, although SQLite finds no fault with it".to_owned());
        }
        if salvage && checked.state == FileState::Damaged {
            if lock.is_none() {
                lock = Some(lock_salvage(dir)?);
            }
            match salvage_file(dir, id, path, is_set_aside) {
                Ok(salvaged) => checked.salvaged = Some(salvaged),
                Err(Error::Locked(_)) => {
                    checked.add_message("a process is writing here: stop it to salvage this file");
                }
                Err(error) => checked.add_message(&format!("it cannot be salvaged: {error}")),
            }
        }
        checks.push(checked);
    }
    Ok(checks)
}

/// Locks the directory itself, so that only one process salvages files in it.
fn lock_salvage(dir: &Path) -> Result<File, Error> {
    let lock = File::open(dir).with_path(dir)?;
    match lock.try_lock() {
        Ok(()) => Ok(lock),
        Err(TryLockError::WouldBlock) => Err(Error::Salvaging(dir.to_owned())),
        Err(TryLockError::Error(error)) => Err(Error::io(dir, error)),
    }
}

/// Salvages a damaged file. A file that was not set aside may be in use, so it is set aside under the store's lock. The
/// lock is released before the copy, so that a collector can start meanwhile.
fn salvage_file(dir: &Path, id: FileId, path: PathBuf, is_set_aside: bool) -> Result<Salvaged, Error> {
    let aside = if is_set_aside {
        path
    } else {
        let _lock = DirLock::acquire_like(dir, &path)?;
        files::set_aside(&path).with_path(&path)?
    };
    salvage::salvage(dir, id, &aside)
}

fn check_file(path: &Path) -> FileCheck {
    let wal = files::with_suffix(path, "-wal");
    let bytes = [path, &wal]
        .into_iter()
        .filter_map(|file| fs::metadata(file).ok())
        .map(|meta| meta.len())
        .sum();
    let mut checked = FileCheck {
        file: crate::problems::name_of(path),
        state: FileState::Good,
        message: None,
        bytes,
        time: None,
        records: None,
        salvaged: None,
    };
    match read(path, &mut checked) {
        Ok(()) => {}
        Err(Error::Empty(_)) => checked.state = FileState::Empty,
        Err(error) => {
            checked.state = if error.is_damage() {
                FileState::Damaged
            } else {
                FileState::Unreadable
            };
            checked.add_message(&error.to_string());
        }
    }
    checked
}

fn read(path: &Path, checked: &mut FileCheck) -> Result<(), Error> {
    check_access(path, false).with_path(path)?;
    let conn = join::single(path, CACHE_KIB)?;
    if let Ok(meta) = join::read_meta(path) {
        let from = meta_number(&meta, "from");
        let to = meta_number(&meta, "to");
        checked.time = from.zip(to).map(<[Nanos; 2]>::from);
        checked.records = Some(Records {
            events: meta_number(&meta, "events").unwrap_or(0),
            rollups: meta_number(&meta, "rollups").unwrap_or(0),
            flows: meta_number(&meta, "flows").unwrap_or(0),
            drops: meta_number(&meta, "drops").unwrap_or(0),
            losses: meta_number(&meta, "losses").unwrap_or(0),
        });
    }
    for fault in list_faults(&conn).with_path(path)? {
        checked.state = FileState::Damaged;
        checked.add_message(fault.trim().lines().next().unwrap_or_default());
    }
    Ok(())
}

fn meta_number(meta: &HashMap<String, i64>, name: &str) -> Option<u64> {
    u64::try_from(*meta.get(name)?).ok()
}

/// Returns up to [`MAX_FAULTS`] errors that SQLite finds.
fn list_faults(conn: &Connection) -> rusqlite::Result<Vec<String>> {
    let mut select = conn.prepare(&format!("PRAGMA f0.quick_check({MAX_FAULTS})"))?;
    let mut faults = Vec::new();
    for fault in select.query_map([], |row| row.get::<_, String>(0))? {
        faults.push(fault?);
    }
    faults.retain(|fault| fault != "ok");
    Ok(faults)
}
