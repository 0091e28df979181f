//! The files of an export's stream: its cursor, which is the position of delivery, and permanently rejected records.

use std::{
    fs::{self, OpenOptions},
    io::{self, ErrorKind, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    sync::Arc,
};

use export::{
    Cursor, json,
    record::{Record, Stream},
};

use runtime::save::SavedFile;

/// File mode: records show who communicates with whom, so other users must not read them.
pub(super) const MODE: u32 = 0o640;

/// The files of one stream of one export.
#[derive(Debug)]
pub(super) struct Files {
    dir: PathBuf,
    cursor: Arc<SavedFile>,
    rejected: PathBuf,
    /// Maximum size of the file of rejected records, bytes.
    limit: u64,
}

impl Files {
    /// Creates the names of the files below a store's directory. `limit` is the maximum size of the rejected records, bytes.
    pub(super) fn new(store: &Path, export: &str, stream: Stream, limit: u64) -> Self {
        Self::named(
            &store.join("export"),
            &format!("{export}.{}", stream.name()),
            limit,
        )
    }

    /// Creates the names of the files in a directory, beginning with `name`.
    pub(super) fn named(dir: &Path, name: &str, limit: u64) -> Self {
        Self {
            cursor: SavedFile::new(dir.join(format!("{name}.cursor")), MODE),
            rejected: dir.join(format!("{name}.rejected.jsonl")),
            dir: dir.to_owned(),
            limit,
        }
    }

    /// Reads the cursor; returns `None` if there is none yet.
    ///
    /// # Errors
    /// The file is unreadable; a sentence with a suggested fix.
    pub(super) fn cursor(&self) -> Result<Option<Cursor>, String> {
        let shown = self.cursor.path().display();
        match self.cursor.read() {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(format!("cannot read {shown}: {error}")),
            Ok(text) => String::from_utf8_lossy(&text)
                .parse()
                .map(Some)
                .map_err(|error| format!("{shown}: {error}")),
        }
    }

    /// Returns whether there is a cursor file, whatever its content.
    pub(super) fn has_begun(&self) -> bool {
        self.cursor.path().exists()
    }

    /// Saves the cursor atomically: a crash leaves either the old or the new one.
    pub(super) fn save(&self, cursor: &Cursor) -> Result<(), String> {
        fs::create_dir_all(&self.dir)
            .and_then(|()| self.cursor.replace(cursor.to_string().into_bytes()))
            .map_err(|error| format!("{}: {error}", self.cursor.path().display()))
    }

    /// Appends the [`line()`] of a rejected record to its file.
    pub(super) fn keep(&self, line: &[u8]) -> Result<(), String> {
        self.append(line)
            .map_err(|error| format!("{}: {error}", self.rejected.display()))
    }

    fn append(&self, line: &[u8]) -> io::Result<()> {
        fs::create_dir_all(&self.dir)?;
        let mut file = OpenOptions::new()
            .create(true)
            .append(true)
            .mode(MODE)
            .open(&self.rejected)?;
        if file.metadata()?.len() + line.len() as u64 > self.limit {
            return Err(io::Error::other(
                "it has reached the size that `rejected` allows; move it away",
            ));
        }
        file.write_all(line)
    }
}

/// Formats a permanently rejected record as a JSON line, with the server's error message.
pub(super) fn line(record: &Record, collector: &str, words: &str) -> Vec<u8> {
    let mut line = b"{\"words\":".to_vec();
    line.extend_from_slice(serde_json::Value::from(words).to_string().as_bytes());
    line.extend_from_slice(b",\"record\":");
    json::write(record, collector, &mut line);
    line.extend_from_slice(b"}\n");
    line
}

#[cfg(test)]
mod tests {
    use super::*;
    use export::Position;
    use export::record::LossRecord;
    use testkit::records::{Dir, loss};

    #[test]
    fn a_cursor_is_saved_and_read_and_a_damaged_one_is_no_beginning() {
        let dir = Dir::new("export-files");
        let files = Files::new(dir.path(), "lake", Stream::Events, 1000);
        assert_eq!(files.cursor(), Ok(None));
        let cursor = Cursor {
            settled: Position { file: 3, row: 9 },
            batch_end: None,
        };
        files.save(&cursor).unwrap();
        assert_eq!(files.cursor(), Ok(Some(cursor)));
        let path = dir.path().join("export/lake.events.cursor");
        fs::write(&path, "hopwise cursor 1\nsettled 3:9\n").unwrap();
        let error = files.cursor().unwrap_err();
        assert!(error.contains("lake.events.cursor: not a cursor"), "{error}");
    }

    #[test]
    fn what_is_rejected_is_kept_with_the_words_up_to_a_limit() {
        let dir = Dir::new("export-rejected");
        let files = Files::new(dir.path(), "lake", Stream::Losses, 1000);
        let record = Record::Loss(Box::new(LossRecord {
            loss: loss(7, Some(1)),
            number: 0,
        }));
        let mut kept = 0;
        while files.keep(&line(&record, "c", "no \"such\" column")).is_ok() {
            kept += 1;
        }
        let text = fs::read_to_string(dir.path().join("export/lake.losses.rejected.jsonl")).unwrap();
        assert!(text.len() <= 1000 && kept >= 2, "{text}");
        for line in text.lines() {
            let value: serde_json::Value = serde_json::from_str(line).unwrap();
            assert_eq!(
                (&value["words"], &value["record"]["node"]),
                (&"no \"such\" column".into(), &1.into())
            );
        }
    }
}
