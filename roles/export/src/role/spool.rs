//! The files of a hop spool: hops that a system accepts too slowly wait in memory first, and then in numbered files.

use std::{
    fs::{self, File},
    io::{self, ErrorKind, Read},
    path::{Path, PathBuf},
    sync::Arc,
};

use export::{
    record::Stream,
    spool::{self, Effect, SegmentFile, Spool},
};

use super::files::Files;
use crate::settings::ExportSettings;
use runtime::hop_queue::HopQueue;
use runtime::save;

/// Opens the queue of an export's hops, with the existing spool files.
///
/// # Errors
/// The files or the cursor are unreadable; a sentence with a suggested fix.
pub(super) fn open(store: &Path, export: &str, settings: &ExportSettings) -> Result<Arc<HopQueue>, String> {
    let cursor = Files::new(store, export, Stream::Hops, 0)
        .cursor()?
        .unwrap_or_default();
    let files = SpoolFiles::new(store, export);
    let listed = files.list().map_err(|error| {
        format!(
            "{}: {error}; {}",
            files.dir.display(),
            settings::remedy(&error).unwrap_or("let hopwise read and write there")
        )
    })?;
    let (limits, inbox) = settings.hop_limits();
    Ok(HopQueue::new(Spool::new(limits, &cursor, listed), inbox))
}

/// The directory of an export's spool files.
#[derive(Debug)]
pub(super) struct SpoolFiles {
    dir: PathBuf,
}

impl SpoolFiles {
    /// Names the directory, below the directory of a store.
    pub(super) fn new(store: &Path, export: &str) -> Self {
        Self {
            dir: store.join("export").join(format!("{export}.hops.spool")),
        }
    }

    fn file(&self, number: u64) -> PathBuf {
        self.dir.join(format!("{number:020}.hops"))
    }

    /// Lists the number, records and bytes of each file. Removes incomplete files.
    fn list(&self) -> io::Result<Vec<SegmentFile>> {
        fs::create_dir_all(&self.dir)?;
        let mut found = Vec::new();
        for entry in fs::read_dir(&self.dir)? {
            let path = entry?.path();
            let name = path
                .file_name()
                .and_then(|name| name.to_str())
                .and_then(|name| name.split_once('.'));
            let Some((number, end)) = name else { continue };
            match (end, number.parse::<u64>()) {
                ("hops.tmp", Ok(_)) => fs::remove_file(&path)?,
                ("hops", Ok(number)) => {
                    let mut file = File::open(&path)?;
                    let bytes = usize::try_from(file.metadata()?.len()).unwrap_or(usize::MAX);
                    let mut header = Vec::new();
                    file.by_ref()
                        .take(spool::header_len() as u64)
                        .read_to_end(&mut header)?;
                    // Every record takes at least a byte, so a greater number means that the file is damaged.
                    let most = bytes.saturating_sub(spool::header_len()) as u64;
                    let records = spool::parse_header(&header).filter(|records| *records <= most);
                    if records.is_none() {
                        tracing::warn!(file = %path.display(), "not a spool file; it is deleted");
                    }
                    found.push(SegmentFile {
                        number,
                        records: records.unwrap_or(0),
                        bytes,
                    });
                }
                _ => {}
            }
        }
        Ok(found)
    }

    /// Executes all pending writes and deletions of the spool. Returns the errors.
    pub(super) fn execute(&self, queue: &HopQueue, now: u64) -> Vec<String> {
        let mut errors = Vec::new();
        while let Some(effect) = queue.with(|spool| spool.poll(now)) {
            let done = match &effect {
                Effect::Write { number, bytes } => fs::create_dir_all(&self.dir).and_then(|()| {
                    save::replace(&self.file(*number), super::files::MODE, &spool::seal(bytes))
                }),
                Effect::Delete(number) => match fs::remove_file(self.file(*number)) {
                    Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
                    done => done,
                },
            };
            queue.with(|spool| match effect {
                Effect::Write { number, .. } => spool.written(number, done.is_ok(), now),
                Effect::Delete(_) => spool.deleted(done.is_ok(), now),
            });
            errors.extend(done.err().map(|error| format!("{}: {error}", self.dir.display())));
        }
        errors
    }

    /// Loads a file, or returns `None` if it is gone.
    pub(super) fn load(&self, number: u64) -> io::Result<Option<Vec<u8>>> {
        match fs::read(self.file(number)) {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            // A bad sector stays bad, so continue with the next file.
            Err(error) if error.raw_os_error() == Some(EIO) => {
                tracing::warn!(file = number, %error, "a spool file cannot be read; it is skipped");
                Ok(None)
            }
            read => read.map(Some),
        }
    }
}

/// The error number of an I/O error on Linux.
const EIO: i32 = 5;

/// An export's hop queue and its files.
#[derive(Debug)]
pub(super) struct HopSpool {
    pub(super) queue: Arc<HopQueue>,
    pub(super) files: SpoolFiles,
}

impl HopSpool {
    /// Moves hops between inbox, memory and files until the queue is closed, and then writes the rest to files. Blocks.
    pub(super) fn keep(&self, export: &str) {
        while self.queue.wait() {
            self.execute(export);
        }
        self.queue.with(Spool::stop);
        self.execute(export);
        let hops = self.queue.with(Spool::abandon);
        if hops > 0 {
            tracing::warn!(
                export,
                hops,
                "hops were lost: they could not be written before the stop"
            );
        }
    }

    fn execute(&self, export: &str) {
        for error in self.files.execute(&self.queue, nic::time::monotonic()) {
            tracing::warn!(export, error, "hops cannot be written");
        }
    }
}
