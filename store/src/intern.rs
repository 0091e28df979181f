//! Interning of flows, paths and rules: each distinct value has a small integer ID in its file.
//!
//! The tables in the file are authoritative; the maps here are bounded caches. A full map is cleared, and from then on a
//! value that is not in the map is looked up in the table before it is added. After a failed transaction the maps are
//! discarded with the file.

use std::collections::HashMap;
use std::fmt::{self, Write};
use std::hash::{BuildHasher as _, BuildHasherDefault, Hasher, RandomState};
use std::net::IpAddr;

use rusqlite::{Connection, OptionalExtension as _, Row, params};
use wire::FlowKey;

use crate::numbering::countable;
use crate::rows::{optional, text};

/// A full map of flows takes about 30 MB.
const MAX_FLOWS: usize = 1 << 18;
const MAX_PATHS: usize = 1 << 14;

/// The interned values of one file.
#[derive(Debug)]
pub(crate) struct Names {
    flows: InternMap<FlowMap>,
    paths: InternMap<HashMap<Box<[u32]>, i64>>,
    /// By index in the active rule set.
    rules: HashMap<u16, i64>,
    buffer: String,
}

impl Names {
    /// Loads the highest IDs of the file that `conn` has open. The maps start empty.
    pub(crate) fn open(conn: &Connection) -> rusqlite::Result<Self> {
        Ok(Self {
            flows: InternMap::new(highest_id(conn, "flow_key")?, MAX_FLOWS),
            paths: InternMap::new(highest_id(conn, "path_text")?, MAX_PATHS),
            rules: HashMap::new(),
            buffer: String::new(),
        })
    }

    /// Returns the number of flows in the file.
    pub(crate) fn flow_count(&self) -> i64 {
        self.flows.last
    }

    /// Clears the cache of rule IDs, because a new rule set is active.
    pub(crate) fn forget_rules(&mut self) {
        self.rules.clear();
    }

    /// Returns the ID of `flow` in this file, and adds the flow if it is new.
    #[inline]
    pub(crate) fn flow(&mut self, conn: &Connection, flow: &FlowKey) -> rusqlite::Result<i64> {
        match self.flows.get(flow) {
            Some(id) => Ok(id),
            None => self.new_flow(conn, flow),
        }
    }

    /// Returns the ID of `path`, or `None` for the empty path.
    #[inline]
    pub(crate) fn path(&mut self, conn: &Connection, path: &[u32]) -> rusqlite::Result<Option<i64>> {
        if path.is_empty() {
            return Ok(None);
        }
        match self.paths.map.get(path).copied() {
            Some(id) => Ok(Some(id)),
            None => self.new_path(conn, path).map(Some),
        }
    }

    /// Returns the ID of the rule with `index` in `rules`. An index beyond the list gets the name `rule <index>`.
    pub(crate) fn rule(&mut self, conn: &Connection, rules: &[String], index: u16) -> rusqlite::Result<i64> {
        if let Some(id) = self.rules.get(&index) {
            return Ok(*id);
        }
        let unnamed;
        let name = match rules.get(usize::from(index)) {
            Some(name) => name,
            None => {
                unnamed = format!("rule {index}");
                &unnamed
            }
        };
        let id = Self::rule_named(conn, name)?;
        self.rules.insert(index, id);
        Ok(id)
    }

    /// Returns the ID of the rule with this name.
    pub(crate) fn rule_named(conn: &Connection, name: &str) -> rusqlite::Result<i64> {
        conn.prepare_cached("INSERT INTO rule_text (rule) VALUES (?1) ON CONFLICT DO NOTHING")?
            .execute([name])?;
        conn.prepare_cached("SELECT id FROM rule_text WHERE rule = ?1")?
            .query_row([name], |row| row.get(0))
    }

    #[cold]
    fn new_flow(&mut self, conn: &Connection, flow: &FlowKey) -> rusqlite::Result<i64> {
        self.buffer.clear();
        // Writing to a string cannot fail.
        let _ = write!(self.buffer, "{flow}");
        if let Some(id) = self
            .flows
            .look_up(conn, "SELECT id FROM flow_key WHERE flow = ?1", &self.buffer)?
        {
            self.flows.insert(flow, id);
            return Ok(id);
        }
        // A flow of which only the INT Flow ID is known has no addresses.
        let (src, dst) = match flow.known_id() {
            Some(_) => (self.buffer.clone(), String::new()),
            None => (flow.src().to_string(), flow.dst().to_string()),
        };
        let id = self.flows.last + 1;
        conn.prepare_cached("INSERT INTO flow_key VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)")?
            .execute(params![
                id,
                self.buffer,
                src,
                dst,
                flow.src_port(),
                flow.dst_port(),
                flow.proto()
            ])?;
        self.flows.last = id;
        self.flows.insert(flow, id);
        Ok(id)
    }

    /// Formats hop latencies in the text form of a path.
    pub(crate) fn latencies(&mut self, latencies: &[u32]) -> &str {
        path_text(latencies, &mut self.buffer);
        &self.buffer
    }

    #[cold]
    fn new_path(&mut self, conn: &Connection, path: &[u32]) -> rusqlite::Result<i64> {
        path_text(path, &mut self.buffer);
        if let Some(id) =
            self.paths
                .look_up(conn, "SELECT id FROM path_text WHERE path = ?1", &self.buffer)?
        {
            self.paths.insert(path, id);
            return Ok(id);
        }
        let id = self.paths.last + 1;
        conn.prepare_cached("INSERT INTO path_text VALUES (?1, ?2)")?
            .execute(params![id, self.buffer])?;
        self.paths.last = id;
        self.paths.insert(path, id);
        Ok(id)
    }
}

/// Returns the highest ID in an interning table, or 0 if it is empty.
fn highest_id(conn: &Connection, table: &str) -> rusqlite::Result<i64> {
    let sql = format!("SELECT ifnull(max(id), 0) FROM {table}");
    countable(
        conn.query_row(&sql, [], |row| row.get(0))?,
        &format!("a number in {table}"),
    )
}

/// Writes `101>102>103` into `text`. An unavailable node or latency is `?`.
fn path_text(path: &[u32], text: &mut String) {
    text.clear();
    // Writing to a string cannot fail.
    let _ = write_path(path, text);
}

/// Writes a path to `out` in the format of [`path_text`].
pub(crate) fn write_path(path: &[u32], out: &mut impl Write) -> fmt::Result {
    for (i, node) in path.iter().enumerate() {
        let separator = if i == 0 { "" } else { ">" };
        match *node {
            u32::MAX => write!(out, "{separator}?")?,
            node => write!(out, "{separator}{node}")?,
        }
    }
    Ok(())
}

/// Parses the text of [`path_text`]. A part that is not a number becomes an unavailable node.
pub(crate) fn parse_path(text: &str) -> Vec<u32> {
    text.split('>')
        .map(|node| node.parse().unwrap_or(u32::MAX))
        .collect()
}

/// Returns the flow in the first five columns of a row, or `None` if they are not valid.
pub(crate) fn parse_flow(row: &Row<'_>) -> rusqlite::Result<Option<FlowKey>> {
    let src = text(row, 0)?;
    if let Some(key) = src.as_ref().and_then(|src| src.parse::<FlowKey>().ok()) {
        // The source column holds a Flow ID instead of an address.
        return Ok(Some(key));
    }
    let dst = text(row, 1)?;
    let addresses = parse_address(src).zip(parse_address(dst));
    let Some((src, dst)) = addresses else {
        return Ok(None);
    };
    let ports = optional::<u16>(row, 2)?.zip(optional(row, 3)?);
    Ok(optional(row, 4)?.map(|proto| FlowKey::new(src, dst, ports, proto)))
}

fn parse_address(text: Option<String>) -> Option<IpAddr> {
    text?.parse().ok()
}

/// A bounded map from value to ID, and the highest ID.
#[derive(Debug)]
struct InternMap<M> {
    map: M,
    capacity: usize,
    /// Highest ID that was assigned.
    last: i64,
    /// True if the map holds every value of the file: then a miss means that the value is new.
    is_complete: bool,
}

impl<M: Default> InternMap<M> {
    fn new(last: i64, capacity: usize) -> Self {
        Self {
            map: M::default(),
            capacity,
            last,
            is_complete: last == 0,
        }
    }

    fn look_up(&self, conn: &Connection, sql: &str, text: &str) -> rusqlite::Result<Option<i64>> {
        if self.is_complete {
            return Ok(None);
        }
        conn.prepare_cached(sql)?
            .query_row([text], |row| row.get(0))
            .optional()
    }

    /// Clears the map if its `len` entries reach the capacity.
    fn make_room(&mut self, len: usize) {
        if len >= self.capacity {
            self.map = M::default();
            self.is_complete = false;
        }
    }
}

impl InternMap<HashMap<Box<[u32]>, i64>> {
    fn insert(&mut self, path: &[u32], id: i64) {
        self.make_room(self.map.len());
        self.map.insert(path.into(), id);
    }
}

impl InternMap<FlowMap> {
    #[inline]
    fn get(&self, flow: &FlowKey) -> Option<i64> {
        let (known, id) = self.map.map.get(&self.map.hash(flow))?;
        (known == flow).then_some(*id)
    }

    fn insert(&mut self, flow: &FlowKey, id: i64) {
        self.make_room(self.map.map.len());
        if self.map.map.insert(self.map.hash(flow), (*flow, id)).is_some() {
            // Two flows share a 64-bit hash, which is extremely rare: they evict each other from the map.
            self.is_complete = false;
        }
    }
}

/// Map of flows by a fast seeded hash, so that a sender cannot provoke collisions. A hit compares the whole key.
#[derive(Debug)]
struct FlowMap {
    seed: u64,
    map: HashMap<u64, (FlowKey, i64), BuildHasherDefault<IdentityHasher>>,
}

impl FlowMap {
    #[inline]
    fn hash(&self, flow: &FlowKey) -> u64 {
        flow.hash(self.seed)
    }
}

impl Default for FlowMap {
    fn default() -> Self {
        Self {
            seed: RandomState::new().hash_one(0),
            map: HashMap::default(),
        }
    }
}

/// Identity hasher for keys that are hashes already.
#[derive(Default)]
struct IdentityHasher(u64);

impl Hasher for IdentityHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes
            .iter()
            .for_each(|byte| self.0 = self.0 << 8 ^ u64::from(*byte));
    }

    #[inline]
    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flow(n: u32) -> FlowKey {
        let [a, b, c, d] = n.to_be_bytes();
        FlowKey::v4([10, b, c, d], [20, a, 0, 1], Some((1, 2)), 17)
    }

    #[test]
    fn names_keep_their_numbers_across_forgetting_and_opening_again() {
        let conn = Connection::open_in_memory().unwrap();
        conn.execute_batch(crate::schema::SQL).unwrap();
        let mut names = Names::open(&conn).unwrap();
        names.flows.capacity = 3;
        let numbers: Vec<i64> = (0..10).map(|n| names.flow(&conn, &flow(n)).unwrap()).collect();
        assert_eq!(numbers, (1..=10).collect::<Vec<i64>>());
        assert!(names.flows.map.map.len() <= 3);
        let again: Vec<i64> = (0..10).map(|n| names.flow(&conn, &flow(n)).unwrap()).collect();
        assert_eq!(again, numbers);
        let mut reopened = Names::open(&conn).unwrap();
        let again: Vec<i64> = (0..11).map(|n| reopened.flow(&conn, &flow(n)).unwrap()).collect();
        assert_eq!(again, (1..=11).collect::<Vec<i64>>());
    }

    #[test]
    fn a_rule_is_known_by_the_name_it_had_when_it_fired() {
        let conn = Connection::open_in_memory().unwrap();
        conn.execute_batch(crate::schema::SQL).unwrap();
        let mut names = Names::open(&conn).unwrap();
        let (a, b) = ("slow".to_owned(), "full".to_owned());
        let first = [a.clone(), b.clone()];
        let slow = names.rule(&conn, &first, 0).unwrap();
        let full = names.rule(&conn, &first, 1).unwrap();
        names.forget_rules();
        assert_eq!(names.rule(&conn, &[b, a], 0).unwrap(), full);
        assert_ne!(slow, full);
        assert!(names.rule(&conn, &first, 7).unwrap() > full);
    }

    #[test]
    fn a_path_reads_back_from_its_text() {
        for path in [&[101, 102, 103][..], &[7], &[1, u32::MAX, 3], &[u32::MAX]] {
            let mut text = String::new();
            path_text(path, &mut text);
            assert_eq!(parse_path(&text), path, "{text}");
        }
    }
}
