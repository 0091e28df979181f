//! The files of an export: its cursors, and what the other system will never take.

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

/// The files of one stream of one export.
#[derive(Debug)]
pub(super) struct Files {
    dir: PathBuf,
    cursor: Arc<SavedFile>,
    rejected: PathBuf,
    /// Bytes of rejected records that are kept, at most.
    limit: u64,
}

impl Files {
    /// In the directory of a store; `limit`: bytes of rejected records.
    pub(super) fn new(store: &Path, export: &str, stream: Stream, limit: u64) -> Self {
        Self::named(
            &store.join("export"),
            &format!("{export}.{}", stream.name()),
            limit,
        )
    }

    /// In a directory, with names that begin with this.
    pub(super) fn named(dir: &Path, name: &str, limit: u64) -> Self {
        Self {
            cursor: SavedFile::new(dir.join(format!("{name}.cursor")), MODE),
            rejected: dir.join(format!("{name}.rejected.jsonl")),
            dir: dir.to_owned(),
            limit,
        }
    }

    /// The cursor; `None`: there is none yet.
    ///
    /// # Errors
    /// It cannot be read: one sentence that says what to do.
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

    /// Whether there is a cursor, of whatever content.
    pub(super) fn has_begun(&self) -> bool {
        self.cursor.path().exists()
    }

    /// Saves the cursor so that a crash leaves the old one or the new one.
    pub(super) fn save(&self, cursor: &Cursor) -> Result<(), String> {
        fs::create_dir_all(&self.dir)
            .and_then(|()| self.cursor.replace(cursor.to_string().into_bytes()))
            .map_err(|error| format!("{}: {error}", self.cursor.path().display()))
    }

    /// Keeps the [`line()`] of a record.
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

/// A record that the other system will never take, with its words.
pub(super) fn line(record: &Record, collector: &str, words: &str) -> Vec<u8> {
    let mut line = b"{\"words\":".to_vec();
    line.extend_from_slice(serde_json::Value::from(words).to_string().as_bytes());
    line.extend_from_slice(b",\"record\":");
    json::write(record, collector, &mut line);
    line.extend_from_slice(b"}\n");
    line
}

/// Records say who communicates with whom: other users cannot read them.
pub(super) const MODE: u32 = 0o640;

#[cfg(test)]
mod tests {
    use super::*;
    use export::Position;
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
        let record = Record::Loss(Box::new(loss(7, Some(1))));
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
