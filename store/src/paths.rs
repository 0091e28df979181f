//! Path history of flows within one file: which path each flow took from which time on.
//!
//! Newer files have a table of path starts (`taken_data`); for older ones the history is rebuilt from events. Few flows are
//! looked up one by one; for many, one pass reads all of them.

use std::collections::HashMap;

use collector::event::{Basis, Nanos};
use detect::Metric;
use rusqlite::{Connection, OptionalExtension as _, params};

use crate::hasher::{FastMap, FastSet};
use crate::intern::parse_path;
use crate::rows::{int, unsigned};
use crate::schema::Features;

/// The query for the latest paths of one flow.
const FLOW_PATHS_SQL: &str =
    "SELECT ts, path FROM f0.taken_data WHERE flow = ?1 AND ts < ?2 ORDER BY ts DESC LIMIT ?3";
/// In a file where only events name paths: the time from which a flow without one kept its path. Before the first event of the
/// file, it may have had another, which an earlier file has.
const KEPT_SINCE: &str = "max(first_seen, ifnull((SELECT min(ts) FROM f0.event_data), 0))";
/// Maximum number of paths of a flow per file; the latest are used.
pub const MAX_PATHS_PER_FLOW: usize = 100;
/// Minimum number of flows for which a file is read in one pass.
const MIN_SCAN_FLOWS: usize = 1_000;

/// A set of distinct paths, each with an index from 0.
#[derive(Default, Debug)]
pub struct Paths {
    nodes: Vec<Vec<u32>>,
    indexes: HashMap<Vec<u32>, usize>,
    /// Indexes by the path IDs of the current file.
    numbers: FastMap<i64, usize>,
}

impl Paths {
    /// Clears the path IDs before another file is read: they are valid in one file only.
    pub(crate) fn next_file(&mut self) {
        self.numbers.clear();
    }

    /// Returns the index of the path with this ID in the current file.
    pub(crate) fn index(&mut self, conn: &Connection, number: i64) -> rusqlite::Result<usize> {
        if let Some(index) = self.numbers.get(&number) {
            return Ok(*index);
        }
        let mut select = conn.prepare_cached("SELECT path FROM f0.path_text WHERE id = ?1")?;
        let text: String = select.query_row([number], |row| row.get(0))?;
        let index = self.insert(parse_path(&text));
        self.numbers.insert(number, index);
        Ok(index)
    }

    /// Adds the paths of another set. Returns their new indexes, in the order of their old ones.
    pub(crate) fn join(&mut self, other: Self) -> Vec<usize> {
        other.nodes.into_iter().map(|nodes| self.insert(nodes)).collect()
    }

    /// Returns the index of the path with these nodes, which is added if it is new.
    pub fn insert(&mut self, nodes: Vec<u32>) -> usize {
        let next = self.nodes.len();
        *self.indexes.entry(nodes).or_insert_with_key(|nodes| {
            self.nodes.push(nodes.clone());
            next
        })
    }

    /// Returns the nodes of each path, by its index.
    pub fn into_nodes(self) -> Vec<Vec<u32>> {
        self.nodes
    }
}

/// Path history by flow ID: start times with path IDs, in time order.
pub(crate) type PathTimes = FastMap<i64, Vec<(Nanos, i64)>>;

/// Access to a file's path history and to the basis of each flow's latency: by lookup, or from memory after one pass.
pub(crate) enum PathHistory {
    OnDemand {
        features: Features,
    },
    Loaded {
        bases: FastMap<i64, u8>,
        paths: PathTimes,
    },
}

impl PathHistory {
    /// Prepares the history of the flows with the IDs `selected`. One pass over the file pays off for a good part of its flows.
    /// `with_bases` also reads the latency bases.
    pub(crate) fn read(
        conn: &Connection,
        features: Features,
        from: Nanos,
        to: Nanos,
        selected: &FastSet<i64>,
        with_bases: bool,
    ) -> rusqlite::Result<Self> {
        if !is_scan_worthwhile(conn, selected.len())? {
            return Ok(Self::OnDemand { features });
        }
        let mut bases = FastMap::default();
        let mut latest = FastMap::default();
        let mut select = conn.prepare_cached(&format!(
            "SELECT flow, basis, {KEPT_SINCE}, path FROM f0.flow_data WHERE ?1"
        ))?;
        let mut rows = select.query([with_bases || !features.spans])?;
        while let Some(row) = rows.next()? {
            let flow: i64 = row.get(0)?;
            if selected.contains(&flow) {
                bases.insert(flow, row.get(1)?);
                if !features.spans
                    && let Some(path) = row.get::<_, Option<i64>>(3)?
                {
                    latest.insert(flow, (unsigned(row, 2)?, path));
                }
            }
        }
        let mut paths = read_in_order(conn, features, from, to, selected)?;
        // A flow without an event began in an earlier file and kept its path.
        for (flow, path) in latest {
            paths.entry(flow).or_insert_with(|| vec![path]);
        }
        Ok(Self::Loaded { bases, paths })
    }

    /// Returns the basis of a flow's latest latency.
    pub(crate) fn basis(&self, conn: &Connection, flow: i64) -> rusqlite::Result<Option<Basis>> {
        let number = match self {
            Self::OnDemand { .. } => {
                let mut select = conn.prepare_cached("SELECT basis FROM f0.flow_data WHERE flow = ?1")?;
                select.query_row([flow], |row| row.get(0)).optional()?
            }
            Self::Loaded { bases, .. } => bases.get(&flow).copied(),
        };
        Ok(number.and_then(|number: u8| Basis::ALL.get(usize::from(number)).copied()))
    }

    /// Returns the latest paths of a flow in a time span and the one it had at the start, in any order.
    pub(crate) fn paths(
        &mut self,
        conn: &Connection,
        flow: i64,
        from: Nanos,
        to: Nanos,
    ) -> rusqlite::Result<Vec<(Nanos, i64)>> {
        match self {
            Self::OnDemand { features } if features.spans => {
                latest_paths(conn, FLOW_PATHS_SQL, flow, from, to)
            }
            Self::OnDemand { .. } => {
                let paths = latest_paths(conn, &flow_paths_from_events(), flow, from, to)?;
                if paths.is_empty() {
                    path_without_events(conn, flow)
                } else {
                    Ok(paths)
                }
            }
            Self::Loaded { paths, .. } => {
                let mut paths = paths.remove(&flow).unwrap_or_default();
                paths.drain(..paths.len().saturating_sub(MAX_PATHS_PER_FLOW));
                Ok(paths)
            }
        }
    }
}

/// Returns true if this many flows are a good part (a quarter) of the file's.
fn is_scan_worthwhile(conn: &Connection, flows: usize) -> rusqlite::Result<bool> {
    let mut select = conn.prepare_cached("SELECT value FROM f0.meta WHERE name = 'flows'")?;
    let flow_count: Option<i64> = select.query_row([], |row| row.get(0)).optional()?.flatten();
    Ok(flows >= MIN_SCAN_FLOWS && flow_count.is_none_or(|count| int(flows as u64) >= count / 4))
}

/// Reads the paths of the `selected` flows in one pass.
fn read_in_order(
    conn: &Connection,
    features: Features,
    from: Nanos,
    to: Nanos,
    selected: &FastSet<i64>,
) -> rusqlite::Result<PathTimes> {
    let mut paths_by_flow = PathTimes::default();
    // The current flow, and the last unwanted one: the rows of a flow are adjacent.
    let mut current: Option<i64> = None;
    let mut skipped: Option<i64> = None;
    let mut paths = Vec::new();
    let mut select = conn.prepare_cached(&paths_sql(features, false))?;
    let mut rows = select.query([i64::MAX])?;
    while let Some(row) = rows.next()? {
        let flow: i64 = row.get(0)?;
        let ts = unsigned(row, 1)?;
        if skipped == Some(flow) {
            continue;
        }
        if current != Some(flow) {
            if let Some(previous) = current.take() {
                // Cloned to get an exact capacity; the buffer is reused.
                paths_by_flow.insert(previous, paths.clone());
            }
            paths.clear();
            if !selected.contains(&flow) {
                skipped = Some(flow);
                continue;
            }
            current = Some(flow);
        }
        if ts >= to {
            continue;
        }
        if ts <= from || paths.len() >= 2 * MAX_PATHS_PER_FLOW {
            // Only the last path before the span and the latest ones within it are kept.
            let limit = if ts <= from { 0 } else { MAX_PATHS_PER_FLOW };
            paths.drain(..paths.len().saturating_sub(limit));
        }
        paths.push((ts, row.get(2)?));
    }
    if let Some(flow) = current {
        paths_by_flow.insert(flow, paths);
    }
    Ok(paths_by_flow)
}

fn latest_paths(
    conn: &Connection,
    sql: &str,
    flow: i64,
    from: Nanos,
    to: Nanos,
) -> rusqlite::Result<Vec<(Nanos, i64)>> {
    let mut select = conn.prepare_cached(sql)?;
    let mut rows = select.query(params![flow, int(to), MAX_PATHS_PER_FLOW as i64])?;
    let mut paths = Vec::new();
    while let Some(row) = rows.next()? {
        let ts = unsigned(row, 0)?;
        paths.push((ts, row.get(1)?));
        if ts <= from {
            break;
        }
    }
    Ok(paths)
}

/// Returns the path of a flow that began in an earlier file and kept it, for files where only events name paths.
fn path_without_events(conn: &Connection, flow: i64) -> rusqlite::Result<Vec<(Nanos, i64)>> {
    let sql = format!("SELECT {KEPT_SINCE}, path FROM f0.flow_data WHERE flow = ?1 AND path IS NOT NULL");
    let mut select = conn.prepare_cached(&sql)?;
    let path = select
        .query_row([flow], |row| Ok((unsigned(row, 0)?, row.get(1)?)))
        .optional()?;
    match path {
        Some(path) if latest_paths(conn, &flow_paths_from_events(), flow, 0, u64::MAX)?.is_empty() => {
            Ok(vec![path])
        }
        _ => Ok(Vec::new()),
    }
}

/// Returns the query for the paths of one flow in files of earlier schema versions.
fn flow_paths_from_events() -> String {
    // `+` hides the column from the planner, so that it uses the index on flows.
    format!(
        "SELECT ts, path FROM f0.event_data WHERE flow = ?1 AND ts < ?2 AND {} ORDER BY ts DESC, seq DESC LIMIT ?3",
        path_events("+kind")
    )
}

/// Returns the query for flow, time and path of each path change before time `?1`, only of flow `?2` if `one_flow` is set.
pub(crate) fn paths_sql(features: Features, one_flow: bool) -> String {
    let condition = if one_flow { " AND flow = ?2" } else { "" };
    if features.spans {
        return format!(
            "SELECT flow, ts, path FROM f0.taken_data WHERE ts < ?1{condition} ORDER BY flow, ts"
        );
    }
    // `+` hides the column from the planner where the index on flows is better.
    let kind = if one_flow { "+kind" } else { "kind" };
    format!(
        "SELECT flow, ts, path FROM f0.event_data WHERE ts < ?1{condition} AND {} ORDER BY flow, ts, seq",
        path_events(kind)
    )
}

/// Returns the SQL condition for events that set a flow's path; must agree with [`crate::summary::sets_path`].
fn path_events(kind: &str) -> String {
    format!(
        "{kind} IN (SELECT id FROM f0.kind_name WHERE kind IN ('new', 'path_change', 'path_loop')) AND metric = {} \
         AND flow IS NOT NULL AND path IS NOT NULL",
        Metric::FlowPath as i64
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_of_files_that_were_read_alone_keep_their_order() {
        let of = |nodes: std::ops::Range<u32>| {
            let mut paths = Paths::default();
            nodes.for_each(|node| {
                paths.insert(vec![node]);
            });
            paths
        };
        let mut paths_by_flow = Paths::default();
        assert_eq!(paths_by_flow.join(of(0..40)), (0..40).collect::<Vec<_>>());
        assert_eq!(paths_by_flow.join(of(30..60)), (30..60).collect::<Vec<_>>());
        assert_eq!(
            paths_by_flow.into_nodes(),
            (0..60).map(|node| vec![node]).collect::<Vec<_>>()
        );
    }
}
