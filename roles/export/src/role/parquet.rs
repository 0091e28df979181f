//! Writes Parquet files to a directory, atomically: each is written under a temporary name, synced and renamed.

use std::{
    fs::{self, DirBuilder, File, OpenOptions},
    io::{self, ErrorKind, Write as _},
    os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
    process,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use export::{
    record::Stream,
    sink::{Batch, parquet},
};
use tokio::task;

use super::files::MODE;

/// The directory, and the files of the current batch.
#[derive(Debug)]
pub(super) struct ParquetLink {
    directory: Arc<Path>,
    files: Arc<Vec<parquet::File>>,
}

impl ParquetLink {
    /// Creates the link to a directory.
    pub(super) fn new(directory: PathBuf) -> Self {
        Self {
            directory: directory.into(),
            files: Arc::default(),
        }
    }

    pub(super) fn begin(&mut self, batch: &Batch<'_>) -> bool {
        self.files = Arc::new(parquet::files(batch));
        !self.files.is_empty()
    }

    /// Writes the files. A dropped future still writes them, and the next attempt replaces them with equal ones.
    pub(super) async fn send(&mut self) -> Result<(), String> {
        let directory = Arc::clone(&self.directory);
        let files = Arc::clone(&self.files);
        let written = task::spawn_blocking(move || files.iter().try_for_each(|file| write(&directory, file)));
        written.await.map_err(|error| error.to_string())?
    }

    /// Returns the memory of the current files, bytes.
    pub(super) fn bytes(&self) -> usize {
        self.files.iter().map(|file| file.content.capacity()).sum()
    }

    /// Checks that files can be written there.
    pub(super) fn probe(&self) -> Result<(), String> {
        let probe = self.directory.join(temp_name("probe"));
        let written = make(&self.directory)
            .and_then(|()| File::create(&probe)?.write_all(b"x"))
            .and_then(|()| fs::remove_file(&probe));
        written.map_err(|error| {
            let shown = self.directory.display();
            let remedy =
                settings::remedy(&error).unwrap_or("let the user of hopwise write there, or correct the url");
            format!("{shown}: {error}; {remedy}")
        })
    }

    /// Removes temporary files of this collector that an earlier process left. Their records are sent again, because the
    /// cursor has not moved.
    pub(super) fn clean(&self, stream: Stream, collector: &str) -> Result<(), String> {
        let stream = self.directory.join(stream.name());
        match remove_temp_files(&stream, collector) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                Err(format!("{}: {error}", stream.display()))
            }
            _ => Ok(()),
        }
    }
}

fn remove_temp_files(stream: &Path, collector: &str) -> io::Result<()> {
    for day in fs::read_dir(stream)? {
        let day = day?.path();
        if !day.is_dir() {
            continue;
        }
        for file in fs::read_dir(day)? {
            let file = file?;
            let name = file.file_name();
            if name.to_str().is_some_and(|name| is_temp_name(name, collector)) {
                tracing::info!(file = %file.path().display(), "an incomplete file was removed");
                fs::remove_file(file.path())?;
            }
        }
    }
    Ok(())
}

/// Returns a unique temporary name. It begins with a dot, so that readers skip the file.
fn temp_name(name: &str) -> String {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    format!(".{name}.{}-{}.begun", process::id(), COUNT.fetch_add(1, Relaxed))
}

fn is_temp_name(name: &str, collector: &str) -> bool {
    let rest = name
        .strip_prefix('.')
        .and_then(|name| name.strip_prefix(&parquet::prefix(collector)));
    // A digit (of the time) after the prefix shows that the file is not from a collector with a longer name.
    rest.is_some_and(|rest| rest.starts_with(|char: char| char.is_ascii_digit()) && rest.ends_with(".begun"))
}

fn write(root: &Path, file: &parquet::File) -> Result<(), String> {
    let directory = root.join(&file.directory);
    let temp_file = directory.join(temp_name(&file.name));
    let written = make(&directory)
        .and_then(|()| write_synced(&temp_file, &file.content))
        .and_then(|()| fs::rename(&temp_file, directory.join(&file.name)))
        .and_then(|()| sync(&directory));
    written.map_err(|error| {
        // Do not leave a partial file on a disk that may be full.
        _ = fs::remove_file(&temp_file);
        format!("{}: {error}", directory.display())
    })
}

fn write_synced(path: &Path, content: &[u8]) -> io::Result<()> {
    let mut file = OpenOptions::new()
        .create_new(true)
        .write(true)
        .mode(MODE)
        .open(path)?;
    file.write_all(content)?;
    file.sync_all()
}

/// Creates a directory and its parents durably.
fn make(directory: &Path) -> io::Result<()> {
    if directory.is_dir() {
        return Ok(());
    }
    let above = directory.parent();
    above.map_or(Ok(()), make)?;
    match DirBuilder::new().mode(0o750).create(directory) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
        made => made.and_then(|()| above.map_or(Ok(()), sync)),
    }
}

/// Syncs a directory, so that new names in it survive a power failure.
fn sync(directory: &Path) -> io::Result<()> {
    File::open(directory)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;
    use testkit::records::Dir;

    fn file() -> parquet::File {
        let (directory, name) = ("events/date=2026-11-26".to_owned(), "c-2026-1.parquet".to_owned());
        parquet::File {
            directory,
            name,
            content: b"PAR1".to_vec(),
        }
    }

    fn names(directory: &Path) -> Vec<String> {
        let mut names: Vec<String> = fs::read_dir(directory)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort_unstable();
        names
    }

    #[test]
    fn a_file_is_replaced_by_the_same_and_what_was_left_is_removed() {
        let dir = Dir::new("parquet-files");
        for _ in 0..2 {
            write(dir.path(), &file()).unwrap();
        }
        let day = dir.path().join("events/date=2026-11-26");
        assert_eq!(names(&day), ["c-2026-1.parquet"]);
        for name in [
            ".c-20261126T010000Z-1-0.parquet.1-2.begun",
            ".c-d-2026-1.parquet.1-2.begun",
            ".other",
        ] {
            fs::write(day.join(name), "").unwrap();
        }
        let link = ParquetLink::new(dir.path().to_owned());
        link.clean(Stream::Events, "c").unwrap();
        assert_eq!(
            names(&day),
            [".c-d-2026-1.parquet.1-2.begun", ".other", "c-2026-1.parquet"]
        );
        // Nothing was written of this stream yet.
        link.clean(Stream::Drops, "c").unwrap();
    }

    #[test]
    fn a_file_that_cannot_be_written_leaves_nothing_and_says_where() {
        let dir = Dir::new("parquet-full");
        let day = dir.path().join("events/date=2026-11-26");
        // A directory has the name: the file cannot get it.
        fs::create_dir_all(day.join("c-2026-1.parquet/x")).unwrap();
        let error = write(dir.path(), &file()).unwrap_err();
        assert!(error.starts_with(&format!("{}: ", day.display())), "{error}");
        assert_eq!(names(&day), ["c-2026-1.parquet"]);
        // What is no directory.
        fs::write(dir.path().join("file"), "").unwrap();
        let error = ParquetLink::new(dir.path().join("file/lake"))
            .probe()
            .unwrap_err();
        assert!(error.contains("let the user of hopwise write there"), "{error}");
        assert_eq!(ParquetLink::new(dir.path().join("new/lake")).probe(), Ok(()));
    }
}
