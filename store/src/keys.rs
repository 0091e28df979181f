//! The flows of files by their numbers. What a number means in a file never changes, so a flow is read from its text once.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use rusqlite::{Connection, OptionalExtension as _};
use wire::FlowKey;

use crate::identity::FileIdentity;
use crate::intern::parse_flow;

/// The flows of files, as far as they were asked for.
#[derive(Default, Debug)]
pub(crate) struct KnownKeys(Mutex<HashMap<FileIdentity, Numbered>>);

/// The flows of a file with the numbers from 1 on; a number without a flow has none.
type Numbered = Arc<Vec<Option<FlowKey>>>;

/// How the flows of a file are found.
pub(crate) enum Keys {
    /// In memory.
    Known(Numbered),
    /// One by one, in the file.
    Each,
}

impl KnownKeys {
    /// The flows of `file`, of which `wanted` are asked for now.
    pub(crate) fn of(&self, conn: &Connection, file: &FileIdentity, wanted: usize) -> rusqlite::Result<Keys> {
        let known = self.lock().get(file).cloned();
        let before = known.as_ref().map_or(0, |known| known.len());
        let last: i64 = conn
            .prepare_cached("SELECT ifnull(max(id), 0) FROM f0.flow_key")?
            .query_row([], |row| row.get(0))?;
        let all = usize::try_from(last).unwrap_or(usize::MAX);
        if let Some(known) = known.as_ref().filter(|_| all <= before) {
            return Ok(Keys::Known(Arc::clone(known)));
        }
        // Many flows for the sake of a few are not read.
        if all > MOST_KEYS || all - before > wanted.saturating_mul(WORTH) {
            return Ok(Keys::Each);
        }
        let mut keys = known.unwrap_or_default();
        read_from(conn, Arc::make_mut(&mut keys), all)?;
        self.keep(file, &keys);
        Ok(Keys::Known(keys))
    }

    /// Forgets files that are not `present`.
    pub(crate) fn retain(&self, present: impl Fn(&FileIdentity) -> bool) {
        self.lock().retain(|file, _| present(file));
    }

    /// Forgets everything.
    pub(crate) fn clear(&self) {
        self.lock().clear();
    }

    fn keep(&self, file: &FileIdentity, keys: &Numbered) {
        let mut files = self.lock();
        files.remove(file);
        let mut sum: usize = files.values().map(|keys| keys.len()).sum();
        while sum + keys.len() > MOST_KEYS {
            // Any other: all are read again as fast.
            let Some(other) = files.keys().next().cloned() else {
                break;
            };
            sum -= files.remove(&other).map_or(0, |keys| keys.len());
        }
        files.insert(file.clone(), Arc::clone(keys));
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<FileIdentity, Numbered>> {
        // What is in it is complete, whatever a thread did that panicked.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Keys {
    /// The flow with this number.
    pub(crate) fn get(&self, conn: &Connection, number: i64) -> rusqlite::Result<Option<FlowKey>> {
        match self {
            Self::Known(keys) => {
                let place = number
                    .checked_sub(1)
                    .and_then(|place| usize::try_from(place).ok());
                Ok(place.and_then(|place| keys.get(place).copied()).flatten())
            }
            Self::Each => {
                let sql = "SELECT src, dst, sport, dport, proto FROM f0.flow_key WHERE id = ?1";
                Ok(conn
                    .prepare_cached(sql)?
                    .query_row([number], parse_flow)
                    .optional()?
                    .flatten())
            }
        }
    }
}

/// Reads the flows whose numbers are higher than those known, up to `all`.
fn read_from(conn: &Connection, keys: &mut Vec<Option<FlowKey>>, all: usize) -> rusqlite::Result<()> {
    let sql = "SELECT src, dst, sport, dport, proto, id FROM f0.flow_key WHERE id > ?1 AND id <= ?2";
    let mut select = conn.prepare_cached(sql)?;
    let mut rows = select.query([keys.len() as i64, all as i64])?;
    while let Some(row) = rows.next()? {
        let place = usize::try_from(row.get::<_, i64>(5)? - 1).unwrap_or(usize::MAX);
        if place < all {
            keys.resize(keys.len().max(place + 1), None);
            keys[place] = parse_flow(row)?;
        }
    }
    keys.resize(all, None);
    Ok(())
}

/// Flows in memory, of all files: some 20 MB.
const MOST_KEYS: usize = 500_000;
/// Reading so many flows in their order takes as long as finding one.
const WORTH: usize = 8;
