//! Cache of the flow keys of each file by their interned ID. An ID's meaning never changes within a file, so each key is
//! parsed only once.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};

use rusqlite::{Connection, OptionalExtension as _};
use wire::FlowKey;

use crate::hasher::Seeded;
use crate::identity::FileIdentity;
use crate::intern::parse_flow;

/// Maximum number of cached flows over all files: about 20 MB.
const MAX_KEYS: usize = 500_000;
/// Number of sequential reads that take as long as one lookup.
const READS_PER_LOOKUP: usize = 8;

/// A set of flows.
pub(crate) type FlowSet = HashSet<FlowKey, Seeded>;

/// Flow keys by file, for the files that queries have used.
#[derive(Default, Debug)]
pub(crate) struct FlowKeyCache(Mutex<HashMap<FileIdentity, FlowKeys>>);

/// Flow keys in the order of their IDs, which start at 1; `None` for an ID without a valid flow.
type FlowKeys = Arc<Vec<Option<FlowKey>>>;

/// Lookup of a file's flow keys by ID.
pub(crate) enum Keys {
    /// All keys are in memory.
    Loaded(FlowKeys),
    /// Each lookup reads the file.
    OnDemand,
}

impl FlowKeyCache {
    /// Returns the lookup for `file`. `lookups` is the number of lookups expected now; few lookups do not justify loading many
    /// keys.
    pub(crate) fn load(
        &self,
        conn: &Connection,
        file: &FileIdentity,
        lookups: usize,
    ) -> rusqlite::Result<Keys> {
        let known = self.lock().get(file).cloned().unwrap_or_default();
        let known_count = known.len();
        let count = last_id(conn)?;
        if count <= known_count {
            return Ok(Keys::Loaded(known));
        }
        // Loading many keys is not worth it for a few lookups.
        if count > MAX_KEYS || count - known_count > lookups.saturating_mul(READS_PER_LOOKUP) {
            return Ok(Keys::OnDemand);
        }
        let mut keys = known;
        read_remaining(conn, Arc::make_mut(&mut keys), count)?;
        self.insert(file, &keys);
        Ok(Keys::Loaded(keys))
    }

    /// Returns those of the `wanted` flows that a file has, with their IDs, in ascending order of the IDs.
    pub(crate) fn find(
        &self,
        conn: &Connection,
        file: &FileIdentity,
        wanted: &FlowSet,
    ) -> rusqlite::Result<Vec<(i64, FlowKey)>> {
        let mut found = Vec::new();
        if wanted.len().saturating_mul(READS_PER_LOOKUP) < last_id(conn)? {
            for flow in wanted {
                found.extend(find_flow(conn, *flow)?.map(|number| (number, *flow)));
            }
            found.sort_unstable_by_key(|(number, _)| *number);
            return Ok(found);
        }
        if let Keys::Loaded(keys) = self.load(conn, file, usize::MAX)? {
            let present = (1..).zip(keys.iter());
            let wanted =
                present.filter_map(|(number, key)| Some((number, key.filter(|key| wanted.contains(key))?)));
            return Ok(wanted.collect());
        }
        let mut select =
            conn.prepare_cached("SELECT src, dst, sport, dport, proto, id FROM f0.flow_key ORDER BY id")?;
        let mut rows = select.query([])?;
        while let Some(row) = rows.next()? {
            if let Some(flow) = parse_flow(row)?.filter(|flow| wanted.contains(flow)) {
                found.push((row.get(5)?, flow));
            }
        }
        Ok(found)
    }

    /// Removes files that are not `present` from the cache.
    pub(crate) fn retain(&self, present: impl Fn(&FileIdentity) -> bool) {
        self.lock().retain(|file, _| present(file));
    }

    pub(crate) fn clear(&self) {
        self.lock().clear();
    }

    fn insert(&self, file: &FileIdentity, keys: &FlowKeys) {
        let mut files = self.lock();
        files.remove(file);
        let mut sum: usize = files.values().map(|keys| keys.len()).sum();
        while sum + keys.len() > MAX_KEYS {
            // Any victim will do: all files are equally fast to read again.
            let Some(other) = files.keys().next().cloned() else {
                break;
            };
            sum -= files.remove(&other).map_or(0, |keys| keys.len());
        }
        files.insert(file.clone(), Arc::clone(keys));
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<FileIdentity, FlowKeys>> {
        // A panic cannot leave a partial entry.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Keys {
    /// Returns the flow with this ID, or `None` if the file has no such flow.
    pub(crate) fn get(&self, conn: &Connection, number: i64) -> rusqlite::Result<Option<FlowKey>> {
        match self {
            Self::Loaded(keys) => {
                let index = number.checked_sub(1).and_then(|i| usize::try_from(i).ok());
                Ok(index.and_then(|i| keys.get(i).copied()).flatten())
            }
            Self::OnDemand => {
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

/// Returns the largest ID of a flow in a file, or 0 if it has none.
fn last_id(conn: &Connection) -> rusqlite::Result<usize> {
    let last: i64 = conn
        .prepare_cached("SELECT ifnull(max(id), 0) FROM f0.flow_key")?
        .query_row([], |row| row.get(0))?;
    Ok(usize::try_from(last).unwrap_or(usize::MAX))
}

/// Finds a flow's ID in a file.
pub(crate) fn find_flow(conn: &Connection, flow: FlowKey) -> rusqlite::Result<Option<i64>> {
    let mut select = conn.prepare_cached("SELECT id FROM f0.flow_key WHERE flow = ?1")?;
    select.query_row([flow.to_string()], |row| row.get(0)).optional()
}

/// Appends the flows with IDs above those in `keys`, up to `count`.
fn read_remaining(conn: &Connection, keys: &mut Vec<Option<FlowKey>>, count: usize) -> rusqlite::Result<()> {
    let sql = "SELECT src, dst, sport, dport, proto, id FROM f0.flow_key WHERE id > ?1 AND id <= ?2";
    let mut select = conn.prepare_cached(sql)?;
    let mut rows = select.query([keys.len() as i64, count as i64])?;
    while let Some(row) = rows.next()? {
        let index = usize::try_from(row.get::<_, i64>(5)? - 1).unwrap_or(usize::MAX);
        if index < count {
            keys.resize(keys.len().max(index + 1), None);
            keys[index] = parse_flow(row)?;
        }
    }
    keys.resize(count, None);
    Ok(())
}
