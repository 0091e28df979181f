//! Snapshots: consistent copies of stores in files, taken on request or on a schedule, and the periodic clearing of counters,
//! which is based on snapshots.

use std::{
    fs::{self, File},
    io::Write,
    path::{Path, PathBuf},
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use dta::Snapshot;
use serde::{Deserialize, Serialize};

use super::Memory;
use dta::source::{EXTENSION, SourceStore};

/// Poll interval, which bounds the delay of a stop.
const SLEEP: Duration = Duration::from_millis(50);

/// A snapshot of a store.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(rename = "Snapshot"))]
pub struct SnapshotView {
    /// Name of the store.
    pub store: String,
    /// Name of the file.
    pub file: String,
    /// Start time, nanoseconds since the Unix epoch.
    pub ts: u64,
    /// Bytes of the file.
    pub bytes: u64,
    /// Slots that were being written at each attempt to read them, and are empty in the copy; absent for a snapshot of an earlier process.
    #[serde(default)]
    pub torn: Option<u64>,
}

/// Counters of snapshots, and the lock that serialises them.
#[derive(Debug, Default)]
pub(crate) struct SnapshotLog {
    /// Locked while a snapshot is written. One at a time, because they read and write gigabytes.
    writing: Mutex<()>,
    taken: AtomicU64,
    failed: AtomicU64,
    last_error: Mutex<Option<String>>,
    cleared: AtomicU64,
}

/// The counts of snapshots since the start.
pub(crate) struct SnapshotSummary {
    pub(crate) taken: u64,
    pub(crate) failed: u64,
    pub(crate) last_error: Option<String>,
}

impl SnapshotLog {
    /// Returns the number of times that counters were cleared.
    pub(crate) fn cleared(&self) -> u64 {
        self.cleared.load(Ordering::Relaxed)
    }

    /// Returns the counts of snapshots, and the last error.
    pub(crate) fn summary(&self) -> SnapshotSummary {
        // Relaxed: independent counters.
        let error = self
            .last_error
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        SnapshotSummary {
            taken: self.taken.load(Ordering::Relaxed),
            failed: self.failed.load(Ordering::Relaxed),
            last_error: error,
        }
    }
}

impl Memory {
    /// Returns the directory in which snapshots are stored.
    pub fn snapshot_directory(&self) -> PathBuf {
        let configured = self.settings.snapshots.directory.clone();
        configured.unwrap_or_else(|| self.settings.directory.join("snapshots"))
    }

    /// Takes a snapshot of each named store; without names, of the scheduled stores, or all. Blocks on the disk.
    ///
    /// # Errors
    /// The failures, as one sentence.
    pub fn snapshot(&self, names: &[String]) -> Result<Vec<SnapshotView>, String> {
        let configured = &self.settings.snapshots.stores;
        let names = if names.is_empty() {
            configured.as_slice()
        } else {
            names
        };
        let mut stores = Vec::new();
        for name in names {
            stores.push(self.source.find(name)?);
        }
        if stores.is_empty() {
            stores.extend(self.source.stores());
        }
        let _writing = self
            .snapshots
            .writing
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let directory = self.snapshot_directory();
        let mut taken = Vec::new();
        let mut failed = Vec::new();
        for store in &stores {
            // Continue after a failure: if a snapshot fails for lack of space, old ones of other stores must still be deleted.
            match write(store, &directory) {
                Ok(snapshot) => {
                    self.snapshots.taken.fetch_add(1, Ordering::Relaxed);
                    prune(
                        &directory,
                        store.name(),
                        self.settings.snapshots.keep,
                        snapshot.ts,
                    );
                    taken.push(snapshot);
                }
                Err(error) => failed.push(error),
            }
        }
        if failed.is_empty() {
            return Ok(taken);
        }
        self.snapshots
            .failed
            .fetch_add(failed.len() as u64, Ordering::Relaxed);
        let error = failed.join("; ");
        *self
            .snapshots
            .last_error
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = Some(error.clone());
        Err(error)
    }

    /// Returns all snapshots, newest first.
    pub fn snapshot_list(&self) -> Vec<SnapshotView> {
        let mut views: Vec<SnapshotView> = self
            .source
            .stores()
            .iter()
            .flat_map(|store| {
                files(&self.snapshot_directory(), store.name())
                    .into_iter()
                    .map(move |file| (store, file))
            })
            .map(|(store, (ts, file))| SnapshotView {
                store: store.name().to_owned(),
                bytes: fs::metadata(&file).map_or(0, |metadata| metadata.len()),
                file: file.display().to_string(),
                ts,
                torn: None,
            })
            .collect();
        views.sort_by_key(|view| std::cmp::Reverse(view.ts));
        views
    }
}

impl Memory {
    /// Clears the counters of a store: takes a snapshot and subtracts its values, so that concurrent additions count for the
    /// next period. Blocks on the disk.
    ///
    /// # Errors
    /// The failure, as one sentence; the counters continue.
    fn clear(&self, name: &str) -> Result<(), String> {
        let snapshots = self.snapshot(&[name.to_owned()])?;
        let store = self.source.find(name)?;
        for period in snapshots {
            let copy = SourceStore::open(Path::new(&period.file))?;
            let sum = store
                .store
                .subtract(&copy.store)
                .map_err(|error| format!("`{name}`: {error}"))?;
            if sum.is_some() {
                self.snapshots.cleared.fetch_add(1, Ordering::Relaxed);
            }
        }
        Ok(())
    }
}

/// Clears counters on schedule, until `stop` is set.
pub(super) fn run_clearing(memory: &Memory, stop: &AtomicBool) {
    let cleared = memory.settings.stores.iter().filter_map(|store| {
        let every = store.clear_every?;
        Some((store.name.clone(), every, Instant::now() + every))
    });
    let mut stores: Vec<_> = cleared.collect();
    while !stop.load(Ordering::Relaxed) {
        std::thread::sleep(SLEEP);
        for (name, every, next) in &mut stores {
            if Instant::now() < *next {
                continue;
            }
            *next = Instant::now() + *every;
            if let Err(error) = memory.clear(name) {
                tracing::error!(store = name.as_str(), error, "counters are not cleared");
            }
        }
    }
}

/// Writes a snapshot. It is written to a temporary file, which is then renamed.
fn write(store: &SourceStore, directory: &Path) -> Result<SnapshotView, String> {
    let ts = nic::time::now();
    let file = directory.join(format!("{}@{ts}.{EXTENSION}", store.name()));
    let temp_file = directory.join(format!("{}.begun", store.name()));
    let mut snapshot = Snapshot::new(&store.store, ts).map_err(|error| error.to_string())?;
    let bytes = snapshot.len();
    let written = write_file(&mut snapshot, &temp_file).and_then(|()| fs::rename(&temp_file, &file));
    if let Err(error) = written {
        // The first error is the one to report.
        let _ = fs::remove_file(&temp_file);
        let directory = directory.display();
        return Err(format!(
            "cannot write a snapshot of `{}` to {directory}: {error}; {}",
            store.name(),
            settings::remedy(&error).unwrap_or("check that it exists and that this user may write there")
        ));
    }
    let torn = Some(snapshot.torn());
    Ok(SnapshotView {
        store: store.name().to_owned(),
        file: file.display().to_string(),
        ts,
        bytes,
        torn,
    })
}

/// Writes a snapshot to `file`, and waits until it is on disk.
fn write_file(snapshot: &mut Snapshot, file: &Path) -> std::io::Result<()> {
    if let Some(directory) = file.parent() {
        fs::create_dir_all(directory)?;
    }
    let mut out = File::create(file)?;
    while let Some(chunk) = snapshot.next() {
        out.write_all(chunk)?;
    }
    out.sync_all()
}

/// Returns the snapshots of a store with their times (ns since the epoch), oldest first.
fn files(directory: &Path, name: &str) -> Vec<(u64, PathBuf)> {
    let Ok(entries) = fs::read_dir(directory) else {
        return Vec::new();
    };
    let snapshots = entries.filter_map(|entry| {
        let path = entry.ok()?.path();
        let (store, ts) = path.file_stem()?.to_str()?.rsplit_once('@')?;
        let is_snapshot = store == name && path.extension().is_some_and(|extension| extension == EXTENSION);
        Some((ts.parse().ok()?, path.clone())).filter(|_| is_snapshot)
    });
    let mut files: Vec<_> = snapshots.collect();
    files.sort();
    files
}

/// Deletes all but the newest `keep`, of which the last one was written at `latest`: those with later times are from before the clock was
/// set back.
fn prune(directory: &Path, name: &str, keep: usize, latest: u64) {
    let mut files = files(directory, name);
    files.sort_by_key(|(ts, _)| (*ts <= latest, *ts));
    for (_, file) in files.iter().take(files.len().saturating_sub(keep)) {
        if let Err(error) = fs::remove_file(file) {
            tracing::warn!("cannot delete the old snapshot {}: {error}", file.display());
        }
    }
}

/// Takes snapshots on schedule, until `stop` is set.
pub(super) fn run_schedule(memory: &Memory, stop: &AtomicBool) {
    let Some(every) = memory.settings.snapshots.every else {
        return;
    };
    let mut next = Instant::now() + every;
    while !stop.load(Ordering::Relaxed) {
        std::thread::sleep(SLEEP);
        if Instant::now() >= next {
            next = Instant::now() + every;
            if let Err(error) = memory.snapshot(&[]) {
                tracing::error!("{error}");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use testkit::records::Dir;

    use super::*;

    #[test]
    fn a_snapshot_stays_after_the_clock_was_set_back() {
        let dir = Dir::new("snapshots-clock");
        let left = |latest: u64| {
            fs::write(dir.path().join(format!("flows@{latest}.{EXTENSION}")), "").unwrap();
            prune(dir.path(), "flows", 2, latest);
            let left = files(dir.path(), "flows");
            left.into_iter().map(|(ts, _)| ts).collect::<Vec<_>>()
        };
        assert_eq!(
            [7_000, 8_000, 9_000].map(left),
            [vec![7_000], vec![7_000, 8_000], vec![8_000, 9_000]]
        );
        // Back to 1,000.
        assert_eq!(
            [1_000, 1_500, 2_500].map(left),
            [vec![1_000, 9_000], vec![1_000, 1_500], vec![1_500, 2_500]]
        );
    }
}
