//! The manager's journal, an SQLite database in WAL mode: intents added through the API, the history, and the few numbers that
//! must survive a restart (term, encoding, stop).

use std::{
    fs::{self, File},
    io,
    path::Path,
};

use manager::{
    intent::Intent,
    inventory::{Device, DeviceRole, DriverOptions},
};
use runtime::save;
use rusqlite::{Connection, OptionalExtension, Result as Sql, ffi, params};
use serde_json::Value;
use store::{Error, FileChange, FileIdentity, remove_database, temp_file};
use terminal::CliError;
use terminal::text;

use super::view::Entry;

/// FULL: a committed change survives a power failure.
const DURABLE: &str = "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;";
/// The path shown in errors of a journal without a file.
const IN_MEMORY: &str = "the journal";
/// The author of entries that no user requested.
const MANAGER: &str = "manager";
/// Maximum number of history entries of the manager, and of all others together.
const MAX_HISTORY: i64 = 5_000;
/// Number of entries after which the history is pruned.
const PRUNE: i64 = 64;
/// Number of the manager's entries about the same subject and action that stay separate within an [`HOUR`].
const SEPARATE: usize = 4;
/// Period in which repeated entries are aggregated, ns.
const HOUR: i64 = 3_600_000_000_000;
/// Maximum length of a subject, characters.
const MAX_SUBJECT: usize = 300;
/// Maximum length of a text, characters; a plan has several lines.
const MAX_TEXT: usize = 4_000;

/// The open journal, which is only in memory if no file is configured.
#[derive(Debug)]
pub(super) struct Journal {
    database: Connection,
    /// The identity of the file, to detect that it was removed or replaced.
    file: Option<FileIdentity>,
    /// Identities of the WAL and its index (`-wal`, `-shm`).
    logs: Vec<FileIdentity>,
    /// Number of changes of the intents and of the stop of all INT since the start.
    revision: u64,
}

/// An intent to copy from another manager.
#[derive(Debug, PartialEq)]
pub(super) struct CopiedIntent {
    pub(super) name: String,
    pub(super) intent: Intent,
    pub(super) stored: StoredIntent,
}

/// An intent as stored.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct StoredIntent {
    /// The intent's keys, as in `[[intents]]`.
    pub(super) body: Value,
    /// The user who added it.
    pub(super) by: String,
    /// Time of the addition, ns since the epoch.
    pub(super) added: u64,
}

impl Entry {
    /// Creates an entry. Texts may come from devices, so they are truncated and control characters are replaced.
    pub(super) fn new(time: u64, [by, action, subject, text]: [&str; 4]) -> Self {
        let [by, action, subject] = [by, action, subject].map(|text| text::bounded(text, MAX_SUBJECT));
        let lines: Vec<String> = text.lines().map(|line| text::bounded(line, MAX_TEXT)).collect();
        Self {
            time,
            by,
            action,
            subject,
            text: lines.join("\n").chars().take(MAX_TEXT).collect(),
        }
    }
}

impl Journal {
    /// Opens the file, creating it if necessary.
    ///
    /// # Errors
    /// The file is not a journal, or is not writable; the message suggests a fix.
    pub(super) fn open(file: Option<&Path>) -> Result<Self, CliError> {
        let folder = file
            .and_then(Path::parent)
            .filter(|folder| !folder.as_os_str().is_empty());
        if let Some(folder) = folder.filter(|folder| !folder.is_dir()) {
            let folder = folder.display();
            return Err(CliError::new(format!(
                "there is no folder {folder} for [manager] state; create it"
            )));
        }
        Self::open_database(file).map_err(|error| {
            let error = Error::sqlite(file.unwrap_or(Path::new(IN_MEMORY)), error);
            CliError::new(format!("cannot open [manager] state: {}", with_remedy(&error)))
        })
    }

    fn open_database(file: Option<&Path>) -> Sql<Self> {
        let database = match file {
            Some(file) => Connection::open(file)?,
            None => Connection::open_in_memory()?,
        };
        database.execute_batch(DURABLE)?;
        database.execute_batch(
                "CREATE TABLE IF NOT EXISTS intents (
                     name TEXT PRIMARY KEY, body TEXT NOT NULL, by TEXT NOT NULL, added INTEGER NOT NULL) STRICT;
                 CREATE TABLE IF NOT EXISTS history (
                     id INTEGER PRIMARY KEY, time INTEGER NOT NULL, by TEXT NOT NULL, action TEXT NOT NULL,
                     subject TEXT NOT NULL, text TEXT NOT NULL) STRICT;
                 CREATE INDEX IF NOT EXISTS history_of ON history (subject, action);
                 CREATE TABLE IF NOT EXISTS repeats (
                     id INTEGER PRIMARY KEY, times INTEGER NOT NULL, first INTEGER NOT NULL) STRICT;
                 CREATE TABLE IF NOT EXISTS opening (
                     node INTEGER NOT NULL, port INTEGER NOT NULL, PRIMARY KEY (node, port)) STRICT;
                 CREATE TABLE IF NOT EXISTS devices (
                     node INTEGER PRIMARY KEY, name TEXT NOT NULL, driver TEXT NOT NULL, address TEXT NOT NULL,
                     confirm TEXT, ports TEXT NOT NULL) STRICT;
                 CREATE TABLE IF NOT EXISTS settings (name TEXT PRIMARY KEY, value INTEGER NOT NULL) STRICT;",
            )?;
        Ok(Self {
            database,
            file: file.and_then(FileIdentity::read),
            logs: file.map_or_else(Vec::new, logs_of),
            revision: 0,
        })
    }

    /// Adds the path of the file, and the system's reason if there is one, to an SQLite error.
    fn with_path<T>(&self, result: Sql<T>) -> Result<T, Error> {
        let path = self
            .file
            .as_ref()
            .map_or(Path::new(IN_MEMORY), FileIdentity::path);
        result.map_err(|error| Error::sqlite(path, error))
    }

    /// Changes the database, after restoring a removed file.
    fn write<T>(&mut self, change: impl FnOnce(&mut Connection) -> Sql<T>) -> Result<T, Error> {
        self.restore()?;
        let result = change(&mut self.database);
        self.with_path(result)
    }

    /// Writes the file again if it or its WAL was removed. The open database still has all of its contents.
    ///
    /// # Errors
    /// The file cannot be written, or another file has replaced it. In the latter case the manager must be restarted.
    pub(super) fn restore(&mut self) -> Result<(), Error> {
        let Some(file) = &self.file else { return Ok(()) };
        let change = file.change();
        save::set_replaced(file.path(), change == Some(FileChange::Replaced));
        match change {
            Some(FileChange::Replaced) => {
                let moved = ffi::Error::new(ffi::SQLITE_READONLY_DBMOVED);
                let message = Some(save::NOT_WRITTEN.to_owned());
                self.with_path(Err(rusqlite::Error::SqliteFailure(moved, message)))
            }
            None if self.logs.iter().all(FileIdentity::is_in_place) => Ok(()),
            None | Some(FileChange::Removed) => {
                let path = file.path().to_owned();
                let temp = temp_file(&path);
                path.parent()
                    .map_or(Ok(()), fs::create_dir_all)
                    // Remove the remains of a failed attempt.
                    .and_then(|()| remove_database(&temp))
                    .map_err(|error| Error::Io(path.clone(), error))?;
                self.database
                    .execute("VACUUM INTO ?1", [temp.to_string_lossy()])
                    .map_err(|error| Error::sqlite(&temp, error))?;
                replace_file(&temp, &path).map_err(|error| Error::Io(path.clone(), error))?;
                self.database = self.with_path(reopen(&path))?;
                self.file = FileIdentity::read(&path);
                self.logs = logs_of(&path);
                tracing::warn!(
                    file = %path.display(),
                    "the journal or its log was removed while hopwise ran, and is written again"
                );
                Ok(())
            }
        }
    }

    /// Returns a new term (election ID) of at least `least`. It exceeds the terms of all earlier runs, and those of other
    /// managers that started earlier. Terms are times in microseconds, so two managers hardly choose the same.
    ///
    /// # Errors
    /// The term cannot be saved.
    pub(super) fn next_term(&mut self, now: u64, least: u64) -> Result<u64, Error> {
        let last = self.setting("term")?.unwrap_or(0);
        let term = (now / 1_000).max(last + 1).max(least);
        self.set("term", term)?;
        Ok(term)
    }

    /// Returns a number that changes, during this run, with the intents and the stop of all INT.
    pub(super) fn revision(&self) -> u64 {
        self.revision
    }

    /// Returns whether an operator stopped all INT.
    ///
    /// # Errors
    /// The file cannot be read.
    pub(super) fn is_stopped(&self) -> Result<bool, Error> {
        Ok(self.setting("stopped")? == Some(1))
    }

    /// Stores whether all INT is stopped.
    ///
    /// # Errors
    /// The setting cannot be saved.
    pub(super) fn set_stopped(&mut self, stopped: bool) -> Result<(), Error> {
        self.revision += 1;
        self.set("stopped", u64::from(stopped))
    }

    /// Returns the INT encoding that was last active on all devices.
    ///
    /// # Errors
    /// The file cannot be read.
    pub(super) fn encoding(&self) -> Result<Option<u64>, Error> {
        self.setting("encoding")
    }

    /// Stores the INT encoding that is active on all devices.
    ///
    /// # Errors
    /// The encoding cannot be saved.
    pub(super) fn set_encoding(&mut self, encoding: u64) -> Result<(), Error> {
        self.set("encoding", encoding)
    }

    /// Stores whether a port that left a link still has to be announced as an edge port.
    ///
    /// # Errors
    /// The change cannot be saved.
    pub(super) fn set_opening(&mut self, node: u32, port: u32, opening: bool) -> Result<(), Error> {
        let change = match opening {
            true => "INSERT OR REPLACE INTO opening VALUES (?1, ?2)",
            false => "DELETE FROM opening WHERE node = ?1 AND port = ?2",
        };
        self.write(|database| database.execute(change, [node, port]).map(drop))
    }

    /// Returns the ports that still have to be announced as edge ports.
    ///
    /// # Errors
    /// The file cannot be read.
    pub(super) fn opening(&self) -> Result<Vec<(u32, u32)>, Error> {
        self.with_path(read_opening(&self.database))
    }

    /// Stores the driven devices and their ports.
    ///
    /// # Errors
    /// The devices cannot be saved.
    pub(super) fn set_devices(&mut self, devices: &[(Device, Vec<u32>)]) -> Result<(), Error> {
        self.write(|database| replace_devices(database, devices))
    }

    /// Returns the devices driven by the last run, and their ports.
    ///
    /// # Errors
    /// The file cannot be read.
    pub(super) fn devices(&self) -> Result<Vec<(Device, Vec<u32>)>, Error> {
        self.with_path(read_devices(&self.database))
    }

    fn setting(&self, name: &str) -> Result<Option<u64>, Error> {
        let stored = self
            .database
            .query_row("SELECT value FROM settings WHERE name = ?1", [name], |row| {
                row.get::<_, i64>(0)
            });
        let value = self.with_path(stored.optional())?;
        Ok(value.and_then(|value| u64::try_from(value).ok()))
    }

    fn set(&mut self, name: &str, value: u64) -> Result<(), Error> {
        let value = i64::try_from(value).unwrap_or(i64::MAX);
        let change = "INSERT OR REPLACE INTO settings VALUES (?1, ?2)";
        self.write(|database| database.execute(change, params![name, value]).map(drop))
    }

    /// Returns all intents, by name.
    ///
    /// # Errors
    /// The file cannot be read.
    pub(super) fn intents(&self) -> Result<Vec<(String, StoredIntent)>, Error> {
        self.with_path(read_intents(&self.database))
    }

    /// Stores an intent, replacing one with the same name.
    ///
    /// # Errors
    /// The intent cannot be saved.
    pub(super) fn save_intent(&mut self, name: &str, intent: &StoredIntent) -> Result<(), Error> {
        self.revision += 1;
        self.write(|database| insert_intent(database, name, intent))
    }

    /// Removes intents and stores others, in one transaction.
    ///
    /// # Errors
    /// The intents cannot be saved.
    pub(super) fn replace_intents(
        &mut self,
        removed: &[String],
        changed: &[CopiedIntent],
    ) -> Result<(), Error> {
        self.revision += 1;
        self.write(|database| replace_intents(database, removed, changed))
    }

    /// Removes an intent.
    ///
    /// # Errors
    /// The removal cannot be saved.
    pub(super) fn forget(&mut self, name: &str) -> Result<(), Error> {
        self.revision += 1;
        self.write(|database| forget(database, name))
    }

    /// Adds an entry to the history, which retains the last [`MAX_HISTORY`] entries of the manager and as many of others. The
    /// manager's entries about one subject and action are aggregated: beyond [`SEPARATE`] in an [`HOUR`], a new one replaces
    /// the last one and counts the repetitions, so that a flapping device does not displace other entries.
    ///
    /// # Errors
    /// The entry cannot be saved.
    pub(super) fn note(&mut self, entry: &Entry) -> Result<(), Error> {
        self.write(|database| insert_note(database, entry))
    }

    /// Returns the latest entries, newest first. With `subject`, only those about that intent or device.
    ///
    /// # Errors
    /// The file cannot be read.
    pub(super) fn history(&self, subject: Option<&str>, limit: usize) -> Result<Vec<Entry>, Error> {
        self.with_path(read_history(&self.database, subject, limit))
    }
}

fn read_opening(database: &Connection) -> Sql<Vec<(u32, u32)>> {
    let mut query = database.prepare("SELECT node, port FROM opening ORDER BY node, port")?;
    query
        .query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?
        .collect()
}

fn replace_devices(database: &mut Connection, devices: &[(Device, Vec<u32>)]) -> Sql<()> {
    let transaction = database.transaction()?;
    transaction.execute("DELETE FROM devices", [])?;
    for (
        Device {
            name,
            node,
            driver,
            address,
            options,
            ..
        },
        ports,
    ) in devices
    {
        transaction.execute(
            "INSERT INTO devices VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
            params![
                node,
                name,
                driver,
                address,
                options.confirm,
                Value::from(ports.as_slice()).to_string()
            ],
        )?;
    }
    transaction.commit()
}

fn read_devices(database: &Connection) -> Sql<Vec<(Device, Vec<u32>)>> {
    let mut query =
        database.prepare("SELECT node, name, driver, address, confirm, ports FROM devices ORDER BY node")?;
    let rows = query.query_map([], |row| {
        let ports: String = row.get(5)?;
        let device = Device {
            node: row.get(0)?,
            name: row.get(1)?,
            driver: row.get(2)?,
            address: row.get(3)?,
            options: DriverOptions { confirm: row.get(4)? },
            labels: Vec::new(),
            role: DeviceRole::Switch,
        };
        Ok((device, serde_json::from_str(&ports).unwrap_or_default()))
    })?;
    rows.collect()
}

fn read_intents(database: &Connection) -> Sql<Vec<(String, StoredIntent)>> {
    let mut query = database.prepare("SELECT name, body, by, added FROM intents ORDER BY name")?;
    let rows = query.query_map([], |row| {
        let body: String = row.get(1)?;
        let added: i64 = row.get(3)?;
        let body = serde_json::from_str(&body).unwrap_or_default();
        Ok((
            row.get(0)?,
            StoredIntent {
                body,
                by: row.get(2)?,
                added: u64::try_from(added).unwrap_or(0),
            },
        ))
    })?;
    rows.collect()
}

fn replace_intents(database: &mut Connection, removed: &[String], changed: &[CopiedIntent]) -> Sql<()> {
    let transaction = database.transaction()?;
    removed.iter().try_for_each(|name| forget(&transaction, name))?;
    changed
        .iter()
        .try_for_each(|copied| insert_intent(&transaction, &copied.name, &copied.stored))?;
    transaction.commit()
}

/// Inserts a history entry. A repeated entry of the manager replaces the last one and counts.
fn insert_note(database: &mut Connection, entry: &Entry) -> Sql<()> {
    let Entry {
        time,
        by,
        action,
        subject,
        text,
    } = entry;
    let time = i64::try_from(*time).unwrap_or(i64::MAX);
    let database = database.transaction()?;
    let repeated = if by == MANAGER {
        repeated(&database, entry, time)?
    } else {
        None
    };
    database.execute(
        "INSERT INTO history (time, by, action, subject, text) VALUES (?1, ?2, ?3, ?4, ?5)",
        params![time, by, action, subject, text],
    )?;
    let id = database.last_insert_rowid();
    if let Some((times, first)) = repeated {
        database.execute("INSERT INTO repeats VALUES (?1, ?2, ?3)", [id, times, first])?;
    }
    if id % PRUNE == 0 {
        database.execute(
            "DELETE FROM history WHERE id IN (
                 SELECT id FROM history WHERE (by = ?1) = (?2 = ?1) ORDER BY id DESC LIMIT -1 OFFSET ?3)",
            params![MANAGER, by, MAX_HISTORY],
        )?;
        database.execute("DELETE FROM repeats WHERE id NOT IN (SELECT id FROM history)", [])?;
    }
    database.commit()
}

fn read_history(database: &Connection, subject: Option<&str>, limit: usize) -> Sql<Vec<Entry>> {
    let mut query = database.prepare(
        "SELECT time, by, action, subject, text, times, first FROM history LEFT JOIN repeats USING (id)
         WHERE ?1 IS NULL OR subject = ?1 ORDER BY id DESC LIMIT ?2",
    )?;
    let rows = query.query_map(params![subject, limit as i64], |row| {
        let time: i64 = row.get(0)?;
        let mut text: String = row.get(4)?;
        if let (Some(times), Some(first)) = (row.get::<_, Option<i64>>(5)?, row.get::<_, Option<i64>>(6)?) {
            let seconds = time.saturating_sub(first).max(0) / 1_000_000_000;
            text.push_str(&format!(" ({times} times in {seconds} s; the last one is shown)"));
        }
        let time = u64::try_from(time).unwrap_or(0);
        Ok(Entry {
            time,
            by: row.get(1)?,
            action: row.get(2)?,
            subject: row.get(3)?,
            text,
        })
    })?;
    rows.collect()
}

/// Replaces the file with a copy of the database.
fn replace_file(temp: &Path, path: &Path) -> io::Result<()> {
    let out = File::open(temp)?;
    out.sync_all()?;
    // Otherwise SQLite would apply the old file's WAL to the new file.
    logs_of(path)
        .iter()
        .try_for_each(|log| fs::remove_file(log.path()))?;
    save::publish(&out, temp, path)
}

/// Opens the file that has been written again.
fn reopen(path: &Path) -> Sql<Connection> {
    let database = Connection::open(path)?;
    database.execute_batch(DURABLE)?;
    database.query_row("SELECT count(*) FROM sqlite_schema", [], |_| Ok(()))?;
    Ok(database)
}

/// Returns the message of an error at the start, with a suggested fix.
pub(super) fn with_remedy(error: &Error) -> String {
    match error {
        Error::Sqlite(..) if !error.is_full() => {
            format!(
                "{error}; name another file, or move this one away: its intents and its history are then missing"
            )
        }
        _ => error.to_string(),
    }
}

/// Aggregates repeated entries of the manager. If the last hour has [`SEPARATE`] entries like this one, deletes the latest of
/// them, and returns how many entries the new one represents and the time of the first.
fn repeated(database: &Connection, entry: &Entry, now: i64) -> Sql<Option<(i64, i64)>> {
    let mut query = database.prepare_cached(
        "SELECT id, time, times, first FROM history LEFT JOIN repeats USING (id)
         WHERE subject = ?1 AND action = ?2 AND by = ?3 AND time > ?4 AND time <= ?5 ORDER BY id DESC LIMIT ?6",
    )?;
    let since = now.saturating_sub(HOUR);
    // Those that are still to come are of a clock that was set back.
    let like = params![entry.subject, entry.action, MANAGER, since, now, SEPARATE as i64];
    let rows = query.query_map(like, |row| {
        let (times, first): (Option<i64>, Option<i64>) = (row.get(2)?, row.get(3)?);
        Ok(RepeatedEntry {
            id: row.get(0)?,
            times: times.unwrap_or(1),
            first: first.unwrap_or(row.get(1)?),
        })
    })?;
    let rows: Vec<RepeatedEntry> = rows.collect::<Result<_, _>>()?;
    let Some(RepeatedEntry { id, times, first }) = rows.first().copied().filter(|_| rows.len() == SEPARATE)
    else {
        return Ok(None);
    };
    database.execute("DELETE FROM history WHERE id = ?1", [id])?;
    database.execute("DELETE FROM repeats WHERE id = ?1", [id])?;
    Ok(Some((times.saturating_add(1), first)))
}

/// A row of the history.
#[derive(Clone, Copy)]
struct RepeatedEntry {
    id: i64,
    /// Number of equal entries that it stands for.
    times: i64,
    /// Time of the first one, ns since the epoch.
    first: i64,
}

fn insert_intent(database: &Connection, name: &str, intent: &StoredIntent) -> Sql<()> {
    let added = i64::try_from(intent.added).unwrap_or(i64::MAX);
    database.execute(
        "INSERT OR REPLACE INTO intents VALUES (?1, ?2, ?3, ?4)",
        params![name, intent.body.to_string(), intent.by, added],
    )?;
    Ok(())
}

fn forget(database: &Connection, name: &str) -> Sql<()> {
    database.execute("DELETE FROM intents WHERE name = ?1", [name])?;
    Ok(())
}

/// Returns the WAL and its index, which exist while the database is open.
fn logs_of(path: &Path) -> Vec<FileIdentity> {
    let logs = ["-wal", "-shm"].into_iter().filter_map(|end| {
        let mut name = path.as_os_str().to_owned();
        name.push(end);
        FileIdentity::read(Path::new(&name))
    });
    logs.collect()
}

impl Drop for Journal {
    fn drop(&mut self) {
        if let Err(error) = self.restore() {
            tracing::error!(%error, "the journal is lost");
        }
        if let Some(file) = &self.file {
            save::set_replaced(file.path(), false);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use testkit::records::Dir;

    use super::*;

    fn entry(time: u64, subject: &str) -> Entry {
        let by = "eve@desk".to_owned();
        Entry {
            time,
            by,
            action: "add".to_owned(),
            subject: subject.to_owned(),
            text: "1 device".to_owned(),
        }
    }

    #[test]
    fn a_full_disk_is_named_with_its_remedy() {
        let dir = Dir::new("journal-full");
        let file = dir.path().join("manager.db");
        let mut journal = Journal::open(Some(&file)).unwrap();
        // The file cannot grow any more.
        journal
            .database
            .execute_batch("PRAGMA max_page_count = 1")
            .unwrap();
        let full = (0..1000).find_map(|time| journal.note(&entry(time, "a")).err());
        assert_eq!(
            full.unwrap().to_string(),
            format!("{}: the disk is full; free space there", file.display())
        );
    }

    #[test]
    fn a_journal_that_is_removed_is_written_again_and_a_replaced_one_is_refused() {
        let dir = Dir::new("journal");
        let folder = dir.path().join("state");
        fs::create_dir(&folder).unwrap();
        let file = folder.join("manager.db");
        let mut journal = Journal::open(Some(&file)).unwrap();
        journal.note(&entry(7, "a")).unwrap();
        fs::remove_dir_all(&folder).unwrap();
        journal.note(&entry(8, "b")).unwrap();
        let found = |file: &Path| {
            let journal = Journal::open(Some(file)).unwrap();
            journal.history(None, 9).unwrap()
        };
        assert_eq!(found(&file), [entry(8, "b"), entry(7, "a")]);
        // Also one that nothing is written into any more.
        fs::remove_dir_all(&folder).unwrap();
        drop(journal);
        assert_eq!(found(&file), [entry(8, "b"), entry(7, "a")]);
        let mut journal = Journal::open(Some(&file)).unwrap();
        fs::copy(&file, folder.join("copy")).unwrap();
        fs::rename(folder.join("copy"), &file).unwrap();
        let refused = journal.note(&entry(9, "c")).unwrap_err().to_string();
        assert!(
            refused.contains("was replaced while hopwise ran; restart hopwise"),
            "{refused}"
        );
        assert!(save::replaced().contains(&file.display().to_string()));
        drop(journal);
        assert_eq!(found(&file), [entry(8, "b"), entry(7, "a")]);
    }

    #[test]
    fn what_was_added_survives_a_crash_after_its_log_was_removed() {
        let dir = Dir::new("journal-log");
        let file = dir.path().join("manager.db");
        let mut journal = Journal::open(Some(&file)).unwrap();
        journal.note(&entry(7, "a")).unwrap();
        for end in ["-wal", "-shm"] {
            fs::remove_file(format!("{}{end}", file.display())).unwrap();
            journal.note(&entry(8, "b")).unwrap();
            // The files as a crash leaves them.
            let after = Dir::new("journal-crash");
            for name in dir.names() {
                fs::copy(dir.path().join(&name), after.path().join(&name)).unwrap();
            }
            let found = Journal::open(Some(&after.path().join("manager.db"))).unwrap();
            assert_eq!(
                found.history(None, 9).unwrap(),
                journal.history(None, 9).unwrap(),
                "{end}"
            );
            assert_eq!(
                found.history(None, 9).unwrap().last(),
                Some(&entry(7, "a")),
                "{end}"
            );
        }
    }

    #[test]
    fn what_is_kept_survives_the_program() {
        let file = std::env::temp_dir().join(format!("hopwise-journal-{}.sqlite", std::process::id()));
        let mut journal = Journal::open(Some(&file)).unwrap();
        let kept = StoredIntent {
            body: json!({"name": "a", "watch": ["hop_latency"]}),
            by: "eve@desk".to_owned(),
            added: 5,
        };
        journal.save_intent("a", &kept).unwrap();
        journal.save_intent("b", &kept).unwrap();
        journal.forget("b").unwrap();
        journal.set_stopped(true).unwrap();
        let device = Device {
            name: "s7".to_owned(),
            node: 7,
            driver: "files".to_owned(),
            address: "/tmp/s7".to_owned(),
            options: DriverOptions {
                confirm: Some("written".to_owned()),
            },
            labels: Vec::new(),
            role: DeviceRole::Switch,
        };
        journal
            .set_devices(&[(
                Device {
                    node: 6,
                    ..device.clone()
                },
                vec![],
            )])
            .unwrap();
        journal.set_devices(&[(device.clone(), vec![1, 2])]).unwrap();
        for (port, opening) in [(1, true), (2, true), (1, false)] {
            journal.set_opening(7, port, opening).unwrap();
        }
        journal.note(&entry(7, "a")).unwrap();
        journal.note(&entry(8, "b")).unwrap();
        let first = journal.next_term(9_000, 0).unwrap();
        drop(journal);
        let mut again = Journal::open(Some(&file)).unwrap();
        assert_eq!(again.intents().unwrap(), [("a".to_owned(), kept)]);
        assert_eq!(again.history(None, 9).unwrap(), [entry(8, "b"), entry(7, "a")]);
        assert_eq!(again.history(Some("a"), 9).unwrap(), [entry(7, "a")]);
        assert!(again.is_stopped().unwrap());
        assert_eq!(again.devices().unwrap(), [(device, vec![1, 2])]);
        assert_eq!(again.opening().unwrap(), [(7, 2)]);
        // Even when the clock has gone back.
        assert_eq!((first, again.next_term(0, 0).unwrap()), (9, 10));
        assert_eq!(again.next_term(0, 70).unwrap(), 70);
        drop(again);
        std::fs::write(&file, "this is no database, and long enough to be one").unwrap();
        assert!(
            Journal::open(Some(&file))
                .unwrap_err()
                .to_string()
                .contains("move this one away")
        );
        for end in ["", "-wal", "-shm"] {
            let _ = std::fs::remove_file(format!("{}{end}", file.display()));
        }
    }

    #[test]
    fn an_entry_is_short_whatever_a_device_says() {
        let long = format!("refused\n\u{7}{}", "x".repeat(1 << 20));
        let entry = Entry::new(1, ["manager", "failed", "s1\n", &long]);
        assert_eq!(
            (entry.subject.as_str(), entry.text.chars().count()),
            ("s1\u{fffd}", MAX_TEXT)
        );
        assert!(
            entry.text.starts_with("refused\n\u{fffd}xx"),
            "{}",
            &entry.text[..20]
        );
    }

    #[test]
    fn the_history_is_bounded() {
        let mut journal = Journal::open(None).unwrap();
        journal
            .database
            .execute_batch("PRAGMA synchronous = OFF")
            .unwrap();
        (0..MAX_HISTORY as u64 + 3 * PRUNE as u64).for_each(|time| journal.note(&entry(time, "a")).unwrap());
        let len = journal.history(None, usize::MAX >> 1).unwrap().len() as i64;
        assert!((MAX_HISTORY..MAX_HISTORY + PRUNE).contains(&len), "{len}");
    }

    #[test]
    fn what_happens_again_and_again_displaces_nothing() {
        const S: u64 = 1_000_000_000;
        let mut journal = Journal::open(None).unwrap();
        journal.note(&entry(1, "a")).unwrap();
        let mut note = |second: u64, action: &str, subject: &str| {
            let text = format!("since {second}");
            journal
                .note(&Entry::new(second * S, [MANAGER, action, subject, &text]))
                .unwrap();
        };
        for second in 1..=1_000 {
            note(2 * second, "unreachable", "leaf1");
            note(2 * second + 1, "in_sync", "leaf1");
        }
        note(2_002, "unreachable", "leaf2");
        let all = journal.history(None, 100).unwrap();
        let texts = |action: &str, subject: &str| -> Vec<&str> {
            let of = all
                .iter()
                .filter(|one| (one.action.as_str(), one.subject.as_str()) == (action, subject));
            of.map(|one| one.text.as_str()).collect()
        };
        let merged = "since 2000 (997 times in 1992 s; the last one is shown)";
        assert_eq!(
            texts("unreachable", "leaf1"),
            [merged, "since 6", "since 4", "since 2"]
        );
        assert_eq!(
            (
                texts("in_sync", "leaf1").len(),
                texts("unreachable", "leaf2").len()
            ),
            (4, 1)
        );
        // What a person did is still there.
        assert_eq!((all.len(), all.last()), (10, Some(&entry(1, "a"))));
    }

    #[test]
    fn entries_before_the_clock_was_set_back_are_not_repeated_by_those_after_it() {
        const S: u64 = 1_000_000_000;
        let mut journal = Journal::open(None).unwrap();
        for second in (0..6).map(|second| 9_000 + second).chain(1_000..1_006) {
            let entry = Entry::new(second * S, [MANAGER, "in_sync", "leaf1", ""]);
            journal.note(&entry).unwrap();
        }
        let all = journal.history(None, 100).unwrap();
        let shown: Vec<(u64, &str)> = all.iter().map(|one| (one.time / S, one.text.as_str())).collect();
        let merged = " (3 times in 2 s; the last one is shown)";
        let after = [(1_005, merged), (1_002, ""), (1_001, ""), (1_000, "")];
        let before = [(9_005, merged), (9_002, ""), (9_001, ""), (9_000, "")];
        assert_eq!(shown, [after, before].concat());
    }
}
