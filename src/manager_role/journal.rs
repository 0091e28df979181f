//! What a manager keeps on disk: intents that were added while it ran, and the history.

use std::path::Path;

use crate::text;
use manager::intent::Intent;
use rusqlite::{Connection, Error, OptionalExtension, params};
use serde_json::Value;
use terminal::CliError;

/// The journal; in memory only without a file.
#[derive(Debug)]
pub(super) struct Journal {
    database: Connection,
    /// How often what is kept has changed, the history apart.
    revision: u64,
}

/// An intent as it is kept.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Kept {
    /// Its keys, as in `[[intents]]`.
    pub(super) body: Value,
    /// Who added it.
    pub(super) by: String,
    /// When, ns since 1970.
    pub(super) added: u64,
}

/// An entry of the history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    /// When, ns since 1970.
    pub(super) time: u64,
    /// Who.
    pub(super) by: String,
    /// What was done: `add`, `replace`, `remove`, `end`, `drill_down`, `apply`, `stop`, `start`; or what happened to a device.
    pub(super) action: String,
    /// The intent or the device.
    pub(super) subject: String,
    /// For people.
    pub(super) text: String,
}

impl Entry {
    /// An entry. Texts may be those of devices: they are cut, and control characters are replaced.
    pub(super) fn new(time: u64, [by, action, subject, text]: [&str; 4]) -> Self {
        let short = |text: &str| text::bounded(text, MAX_SUBJECT);
        let lines: Vec<String> = text.lines().map(|line| text::bounded(line, MAX_TEXT)).collect();
        Self {
            time,
            by: short(by),
            action: short(action),
            subject: short(subject),
            text: lines.join("\n").chars().take(MAX_TEXT).collect(),
        }
    }
}

impl Journal {
    /// Opens the file, and makes it if it does not exist.
    ///
    /// # Errors
    /// It is no journal, or cannot be written; the message says what to do.
    pub(super) fn open(file: Option<&Path>) -> Result<Self, CliError> {
        let open = || {
            let database = match file {
                Some(file) => Connection::open(file)?,
                None => Connection::open_in_memory()?,
            };
            database.execute_batch(
                "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;
                 CREATE TABLE IF NOT EXISTS intents (
                     name TEXT PRIMARY KEY, body TEXT NOT NULL, by TEXT NOT NULL, added INTEGER NOT NULL) STRICT;
                 CREATE TABLE IF NOT EXISTS history (
                     id INTEGER PRIMARY KEY, time INTEGER NOT NULL, by TEXT NOT NULL, action TEXT NOT NULL,
                     subject TEXT NOT NULL, text TEXT NOT NULL) STRICT;
                 CREATE TABLE IF NOT EXISTS settings (name TEXT PRIMARY KEY, value INTEGER NOT NULL) STRICT;",
            )?;
            Ok(Self { database, revision: 0 })
        };
        open().map_err(|error: Error| {
            let file = file.map_or_else(|| "the journal".into(), |file| file.display().to_string());
            CliError::new(format!("cannot open {file}: {error}; correct [manager] state, or remove the file"))
        })
    }

    /// A term, at least `least`: above that of every earlier run, and of other managers that took theirs earlier. In microseconds, so that
    /// two managers do not take the same.
    ///
    /// # Errors
    /// It cannot be saved.
    pub(super) fn next_term(&mut self, now: u64, least: u64) -> Result<u64, Error> {
        let last = self.setting("term")?.unwrap_or(0);
        let term = (now / 1_000).max(last + 1).max(least);
        self.set("term", term)?;
        Ok(term)
    }

    /// A number that changes with the intents and with the stop of all INT, as long as the program runs.
    pub(super) fn revision(&self) -> u64 {
        self.revision
    }

    /// Whether all INT was stopped by hand.
    ///
    /// # Errors
    /// The file cannot be read.
    pub(super) fn is_stopped(&self) -> Result<bool, Error> {
        Ok(self.setting("stopped")? == Some(1))
    }

    /// Keeps whether all INT is stopped.
    ///
    /// # Errors
    /// It cannot be saved.
    pub(super) fn set_stopped(&mut self, stopped: bool) -> Result<(), Error> {
        self.revision += 1;
        self.set("stopped", u64::from(stopped))
    }

    /// The encoding of INT that was last in force on all devices.
    ///
    /// # Errors
    /// The file cannot be read.
    pub(super) fn encoding(&self) -> Result<Option<u64>, Error> {
        self.setting("encoding")
    }

    /// Keeps the encoding of INT that is in force on all devices.
    ///
    /// # Errors
    /// It cannot be saved.
    pub(super) fn set_encoding(&mut self, encoding: u64) -> Result<(), Error> {
        self.set("encoding", encoding)
    }

    fn setting(&self, name: &str) -> Result<Option<u64>, Error> {
        let found = self
            .database
            .query_row("SELECT value FROM settings WHERE name = ?1", [name], |row| row.get::<_, i64>(0));
        Ok(found.optional()?.and_then(|value| u64::try_from(value).ok()))
    }

    fn set(&mut self, name: &str, value: u64) -> Result<(), Error> {
        let value = i64::try_from(value).unwrap_or(i64::MAX);
        self.database.execute("INSERT OR REPLACE INTO settings VALUES (?1, ?2)", params![name, value])?;
        Ok(())
    }

    /// All intents, by name.
    ///
    /// # Errors
    /// The file cannot be read.
    pub(super) fn intents(&self) -> Result<Vec<(String, Kept)>, Error> {
        let mut query = self.database.prepare("SELECT name, body, by, added FROM intents ORDER BY name")?;
        let rows = query.query_map([], |row| {
            let body: String = row.get(1)?;
            let added: i64 = row.get(3)?;
            let body = serde_json::from_str(&body).unwrap_or_default();
            Ok((row.get(0)?, Kept { body, by: row.get(2)?, added: u64::try_from(added).unwrap_or(0) }))
        })?;
        rows.collect()
    }

    /// Keeps an intent, in place of the one of this name.
    ///
    /// # Errors
    /// It cannot be saved.
    pub(super) fn keep(&mut self, name: &str, kept: &Kept) -> Result<(), Error> {
        self.revision += 1;
        keep(&self.database, name, kept)
    }

    /// Forgets intents, and then keeps others: all, or nothing.
    ///
    /// # Errors
    /// It cannot be saved.
    pub(super) fn change(&mut self, gone: &[String], kept: &[(String, Intent, Kept)]) -> Result<(), Error> {
        self.revision += 1;
        let transaction = self.database.transaction()?;
        gone.iter().try_for_each(|name| forget(&transaction, name))?;
        kept.iter().try_for_each(|(name, _, kept)| keep(&transaction, name, kept))?;
        transaction.commit()
    }

    /// Forgets an intent.
    ///
    /// # Errors
    /// It cannot be saved.
    pub(super) fn forget(&mut self, name: &str) -> Result<(), Error> {
        self.revision += 1;
        forget(&self.database, name)
    }

    /// Adds an entry to the history, which keeps the last [`MAX_HISTORY`].
    ///
    /// # Errors
    /// It cannot be saved.
    pub(super) fn note(&mut self, entry: &Entry) -> Result<(), Error> {
        let Entry { time, by, action, subject, text } = entry;
        let time = i64::try_from(*time).unwrap_or(i64::MAX);
        self.database.execute(
            "INSERT INTO history (time, by, action, subject, text) VALUES (?1, ?2, ?3, ?4, ?5)",
            params![time, by, action, subject, text],
        )?;
        let last = self.database.last_insert_rowid();
        self.database.execute("DELETE FROM history WHERE id <= ?1", [last - MAX_HISTORY])?;
        Ok(())
    }

    /// The last entries, newest first. `subject`: only of this intent or device.
    ///
    /// # Errors
    /// The file cannot be read.
    pub(super) fn history(&self, subject: Option<&str>, limit: usize) -> Result<Vec<Entry>, Error> {
        let mut query = self.database.prepare(
            "SELECT time, by, action, subject, text FROM history WHERE ?1 IS NULL OR subject = ?1
             ORDER BY id DESC LIMIT ?2",
        )?;
        let rows = query.query_map(params![subject, limit as i64], |row| {
            let time: i64 = row.get(0)?;
            Ok(Entry {
                time: u64::try_from(time).unwrap_or(0),
                by: row.get(1)?,
                action: row.get(2)?,
                subject: row.get(3)?,
                text: row.get(4)?,
            })
        })?;
        rows.collect()
    }
}

fn keep(database: &Connection, name: &str, kept: &Kept) -> Result<(), Error> {
    let added = i64::try_from(kept.added).unwrap_or(i64::MAX);
    database.execute(
        "INSERT OR REPLACE INTO intents VALUES (?1, ?2, ?3, ?4)",
        params![name, kept.body.to_string(), kept.by, added],
    )?;
    Ok(())
}

fn forget(database: &Connection, name: &str) -> Result<(), Error> {
    database.execute("DELETE FROM intents WHERE name = ?1", [name])?;
    Ok(())
}

/// Entries of the history that are kept.
const MAX_HISTORY: i64 = 10_000;
/// Characters of a subject.
const MAX_SUBJECT: usize = 300;
/// Characters of a text: a plan has several lines.
const MAX_TEXT: usize = 4_000;

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn entry(time: u64, subject: &str) -> Entry {
        let by = "eve@desk".to_owned();
        Entry { time, by, action: "add".to_owned(), subject: subject.to_owned(), text: "1 device".to_owned() }
    }

    #[test]
    fn what_is_kept_survives_the_program() {
        let file = std::env::temp_dir().join(format!("hopwise-journal-{}.sqlite", std::process::id()));
        let mut journal = Journal::open(Some(&file)).unwrap();
        let kept = Kept {
            body: json!({"name": "a", "watch": ["hop_latency"]}),
            by: "eve@desk".to_owned(),
            added: 5,
        };
        journal.keep("a", &kept).unwrap();
        journal.keep("b", &kept).unwrap();
        journal.forget("b").unwrap();
        journal.set_stopped(true).unwrap();
        journal.note(&entry(7, "a")).unwrap();
        journal.note(&entry(8, "b")).unwrap();
        let first = journal.next_term(9_000, 0).unwrap();
        drop(journal);
        let mut again = Journal::open(Some(&file)).unwrap();
        assert_eq!(again.intents().unwrap(), [("a".to_owned(), kept)]);
        assert_eq!(again.history(None, 9).unwrap(), [entry(8, "b"), entry(7, "a")]);
        assert_eq!(again.history(Some("a"), 9).unwrap(), [entry(7, "a")]);
        assert!(again.is_stopped().unwrap());
        // Even when the clock has gone back.
        assert_eq!((first, again.next_term(0, 0).unwrap()), (9, 10));
        assert_eq!(again.next_term(0, 70).unwrap(), 70);
        drop(again);
        std::fs::write(&file, "this is no database, and long enough to be one").unwrap();
        assert!(Journal::open(Some(&file)).unwrap_err().to_string().contains("remove the file"));
        for end in ["", "-wal", "-shm"] {
            let _ = std::fs::remove_file(format!("{}{end}", file.display()));
        }
    }

    #[test]
    fn an_entry_is_short_whatever_a_device_says() {
        let long = format!("refused\n\u{7}{}", "x".repeat(1 << 20));
        let entry = Entry::new(1, ["manager", "failed", "s1\n", &long]);
        assert_eq!((entry.subject.as_str(), entry.text.chars().count()), ("s1\u{fffd}", MAX_TEXT));
        assert!(entry.text.starts_with("refused\n\u{fffd}xx"), "{}", &entry.text[..20]);
    }

    #[test]
    fn the_history_is_bounded() {
        let mut journal = Journal::open(None).unwrap();
        journal.database.execute_batch("PRAGMA synchronous = OFF").unwrap();
        (0..MAX_HISTORY as u64 + 10).for_each(|time| journal.note(&entry(time, "a")).unwrap());
        assert_eq!(journal.history(None, usize::MAX >> 1).unwrap().len(), MAX_HISTORY as usize);
    }
}
