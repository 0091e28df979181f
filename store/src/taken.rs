//! Which paths flows took, of one file.

use std::collections::HashMap;

use collector::event::{Basis, Nanos};
use detect::Metric;
use rusqlite::{Connection, OptionalExtension as _, Row, params};

use crate::hasher::{FastMap, FastSet};
use crate::intern::parse_path;
use crate::schema::Features;

/// Paths, each once.
#[derive(Default, Debug)]
pub struct Paths {
    nodes: Vec<Vec<u32>>,
    places: HashMap<Vec<u32>, usize>,
    /// By their numbers in the present file.
    numbers: FastMap<i64, usize>,
}

impl Paths {
    /// Another file is read.
    pub(crate) fn next_file(&mut self) {
        self.numbers.clear();
    }

    /// The place of the path with this number in the file.
    pub(crate) fn place(&mut self, conn: &Connection, number: i64) -> rusqlite::Result<usize> {
        if let Some(place) = self.numbers.get(&number) {
            return Ok(*place);
        }
        let mut select = conn.prepare_cached("SELECT path FROM f0.path_text WHERE id = ?1")?;
        let text: String = select.query_row([number], |row| row.get(0))?;
        let place = self.of(parse_path(&text));
        self.numbers.insert(number, place);
        Ok(place)
    }

    /// Adds those of a file that was read alone. Returns the places that they have here, by those that they had.
    pub(crate) fn join(&mut self, other: Self) -> Vec<usize> {
        other.nodes.into_iter().map(|nodes| self.of(nodes)).collect()
    }

    /// The place of the path with these nodes.
    pub fn of(&mut self, nodes: Vec<u32>) -> usize {
        let next = self.nodes.len();
        *self.places.entry(nodes).or_insert_with_key(|nodes| {
            self.nodes.push(nodes.clone());
            next
        })
    }

    /// The nodes of each, by its place.
    pub fn into_nodes(self) -> Vec<Vec<u32>> {
        self.nodes
    }
}

/// When flows took which paths, by their numbers, in the order of time.
pub(crate) type Taken = FastMap<i64, Vec<(Nanos, i64)>>;

/// How the paths of flows, and how their latencies were obtained, are found in a file: one by one, or those of all flows in one pass.
pub(crate) enum Takings {
    Each { features: Features },
    All { bases: FastMap<i64, u8>, taken: Taken },
}

impl Takings {
    /// Of the flows with the numbers `wanted`. A pass is worth while for a good part of a file's flows. `with_bases`: it is asked how latencies
    /// were obtained.
    pub(crate) fn of(
        conn: &Connection,
        features: Features,
        span: (Nanos, Nanos),
        (wanted, with_bases): (&FastSet<i64>, bool),
    ) -> rusqlite::Result<Self> {
        if !are_many(conn, wanted.len())? {
            return Ok(Self::Each { features });
        }
        let (mut bases, mut at_last) = (FastMap::default(), FastMap::default());
        let mut select =
            conn.prepare_cached("SELECT flow, basis, first_seen, path FROM f0.flow_data WHERE ?1")?;
        let mut rows = select.query([with_bases || !features.spans])?;
        while let Some(row) = rows.next()? {
            let flow: i64 = row.get(0)?;
            if wanted.contains(&flow) {
                bases.insert(flow, row.get(1)?);
                if let Some(path) = row.get::<_, Option<i64>>(3)?.filter(|_| !features.spans) {
                    at_last.insert(flow, (unsigned(row, 2)?, path));
                }
            }
        }
        let mut taken = all_taken(conn, features, span, Some(wanted))?.0;
        // Without an event, the flow began in an earlier file, and kept its path.
        for (flow, path) in at_last {
            taken.entry(flow).or_insert_with(|| vec![path]);
        }
        Ok(Self::All { bases, taken })
    }

    /// How the latest latency of a flow was obtained.
    pub(crate) fn basis(&self, conn: &Connection, flow: i64) -> rusqlite::Result<Option<Basis>> {
        let number = match self {
            Self::Each { .. } => {
                let mut select = conn.prepare_cached("SELECT basis FROM f0.flow_data WHERE flow = ?1")?;
                select.query_row([flow], |row| row.get(0)).optional()?
            }
            Self::All { bases, .. } => bases.get(&flow).copied(),
        };
        Ok(number.and_then(|number: u8| Basis::ALL.get(usize::from(number)).copied()))
    }

    /// The paths that a flow took in a span, and the one that it took when the span began; the latest ones, in any order.
    pub(crate) fn taken(
        &mut self,
        conn: &Connection,
        flow: i64,
        span: (Nanos, Nanos),
    ) -> rusqlite::Result<Vec<(Nanos, i64)>> {
        match self {
            Self::Each { features } if features.spans => taken(conn, TAKEN, flow, span),
            Self::Each { .. } => {
                let paths = taken(conn, &from_events(), flow, span)?;
                match paths.is_empty() {
                    true => path_without_events(conn, flow),
                    false => Ok(paths),
                }
            }
            Self::All { taken, .. } => {
                let mut paths = taken.remove(&flow).unwrap_or_default();
                paths.drain(..paths.len() - paths.len().min(MOST_TAKEN));
                Ok(paths)
            }
        }
    }
}

/// Whether so many are a good part of the flows of the file.
fn are_many(conn: &Connection, flows: usize) -> rusqlite::Result<bool> {
    let mut select = conn.prepare_cached("SELECT value FROM f0.meta WHERE name = 'flows'")?;
    let all: Option<i64> = select.query_row([], |row| row.get(0)).optional()?.flatten();
    Ok(flows >= MANY_FLOWS && all.is_none_or(|all| int(flows as u64) >= all / 4))
}

/// The paths that all flows took in a span, in the order of time, and before them the one that each took when it began. Also says whether
/// there are more than are considered.
pub(crate) fn takings(
    conn: &Connection,
    features: Features,
    span: (Nanos, Nanos),
) -> rusqlite::Result<(Taken, bool)> {
    let (mut taken, is_cut) = all_taken(conn, features, span, None)?;
    if !features.spans {
        // Without an event, the flow began in an earlier file, and kept its path.
        let sql = "SELECT flow, first_seen, path FROM f0.flow_data WHERE path IS NOT NULL";
        let mut select = conn.prepare_cached(sql)?;
        let mut rows = select.query([])?;
        while let Some(row) = rows.next()? {
            if taken.len() < MOST_TAKINGS {
                let path = (unsigned(row, 1)?, row.get(2)?);
                taken.entry(row.get(0)?).or_insert_with(|| vec![path]);
            }
        }
    }
    Ok((taken, is_cut))
}

/// `wanted`: only of these flows. At most so many paths are considered otherwise; returns whether there are more.
fn all_taken(
    conn: &Connection,
    features: Features,
    (from, to): (Nanos, Nanos),
    wanted: Option<&FastSet<i64>>,
) -> rusqlite::Result<(Taken, bool)> {
    let mut taken = Taken::default();
    let mut kept_in_all = 0;
    let (mut present, mut paths, mut is_wanted) = (None, Vec::new(), false);
    let mut select = conn.prepare_cached(&taken_sql(features, false))?;
    let mut rows = select.query([i64::MAX])?;
    while let Some(row) = rows.next()? {
        let (flow, ts) = (row.get(0)?, unsigned(row, 1)?);
        if present != Some(flow) {
            // Those of a flow stand together.
            keep(&mut taken, present.filter(|_| is_wanted), &mut paths);
            (present, is_wanted) = (Some(flow), wanted.is_none_or(|wanted| wanted.contains(&flow)));
        }
        if !is_wanted {
            continue;
        }
        if wanted.is_none() && kept_in_all >= MOST_TAKINGS {
            keep(&mut taken, present, &mut paths);
            return Ok((taken, true));
        }
        if ts >= to {
            continue;
        }
        if ts <= from || paths.len() >= 2 * MOST_TAKEN {
            // Only the last one before the span, and the latest ones in it, are of interest.
            let kept = if ts <= from { 0 } else { MOST_TAKEN };
            let gone = paths.len() - kept.min(paths.len());
            paths.drain(..gone);
            kept_in_all -= gone;
        }
        paths.push((ts, row.get(2)?));
        kept_in_all += 1;
    }
    keep(&mut taken, present.filter(|_| is_wanted), &mut paths);
    Ok((taken, false))
}

/// Keeps the paths of a flow, also if there are none, and makes room for those of the next one.
fn keep(taken: &mut Taken, flow: Option<i64>, paths: &mut Vec<(Nanos, i64)>) {
    if let Some(flow) = flow {
        taken.insert(flow, paths.clone());
    }
    paths.clear();
}

fn taken(
    conn: &Connection,
    sql: &str,
    flow: i64,
    (from, to): (Nanos, Nanos),
) -> rusqlite::Result<Vec<(Nanos, i64)>> {
    let mut select = conn.prepare_cached(sql)?;
    let mut rows = select.query(params![flow, int(to), MOST_TAKEN as i64])?;
    let mut taken = Vec::new();
    while let Some(row) = rows.next()? {
        let ts = unsigned(row, 0)?;
        taken.push((ts, row.get(1)?));
        if ts <= from {
            break;
        }
    }
    Ok(taken)
}

/// The path of a flow that began in an earlier file and kept it, of a file in which only events say what was taken.
fn path_without_events(conn: &Connection, flow: i64) -> rusqlite::Result<Vec<(Nanos, i64)>> {
    let sql = "SELECT first_seen, path FROM f0.flow_data WHERE flow = ?1 AND path IS NOT NULL";
    let mut select = conn.prepare_cached(sql)?;
    let path = select
        .query_row([flow], |row| Ok((unsigned(row, 0)?, row.get(1)?)))
        .optional()?;
    match path {
        Some(path) if taken(conn, &from_events(), flow, (0, u64::MAX))?.is_empty() => Ok(vec![path]),
        _ => Ok(Vec::new()),
    }
}

/// As `TAKEN`, of files of earlier versions.
fn from_events() -> String {
    // `+` hides the kind: the index on flows is the one to use.
    format!(
        "SELECT ts, path FROM f0.event_data WHERE flow = ?1 AND ts < ?2 AND {} ORDER BY ts DESC, seq DESC LIMIT ?3",
        is_taken("+kind")
    )
}

/// From when on flows took paths: flow, time and path, before the time `?1`; `is_one`: of the flow `?2`.
pub(crate) fn taken_sql(features: Features, is_one: bool) -> String {
    let one = if is_one { " AND flow = ?2" } else { "" };
    match features.spans {
        true => format!("SELECT flow, ts, path FROM f0.taken_data WHERE ts < ?1{one} ORDER BY flow, ts"),
        false => {
            // `+` hides the kind where the index on flows is the one to use.
            let kind = if is_one { "+kind" } else { "kind" };
            format!(
                "SELECT flow, ts, path FROM f0.event_data WHERE ts < ?1{one} AND {} ORDER BY flow, ts, seq",
                is_taken(kind)
            )
        }
    }
}

/// As [`crate::summary::is_taken`].
fn is_taken(kind: &str) -> String {
    format!(
        "{kind} IN (SELECT id FROM f0.kind_name WHERE kind IN ('new', 'path_change', 'path_loop')) AND metric = {} \
         AND flow IS NOT NULL AND path IS NOT NULL",
        Metric::FlowPath as i64
    )
}

/// A stored number, which is not negative.
pub(crate) fn unsigned(row: &Row<'_>, i: usize) -> rusqlite::Result<u64> {
    Ok(u64::try_from(row.get::<_, i64>(i)?).unwrap_or(0))
}

/// As a parameter; larger values are those of the maximum.
pub(crate) fn int(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

const TAKEN: &str =
    "SELECT ts, path FROM f0.taken_data WHERE flow = ?1 AND ts < ?2 ORDER BY ts DESC LIMIT ?3";

/// Paths of a flow in a file that are considered: the latest.
pub const MOST_TAKEN: usize = 100;
/// Paths of all flows of a file that are considered: some 50 MB.
const MOST_TAKINGS: usize = 1_000_000;
/// From so many flows on, a file may be read as a whole.
const MANY_FLOWS: usize = 1_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_of_files_that_were_read_alone_keep_their_order() {
        let of = |nodes: std::ops::Range<u32>| {
            let mut paths = Paths::default();
            nodes.for_each(|node| {
                paths.of(vec![node]);
            });
            paths
        };
        let mut all = Paths::default();
        assert_eq!(all.join(of(0..40)), (0..40).collect::<Vec<_>>());
        assert_eq!(all.join(of(30..60)), (30..60).collect::<Vec<_>>());
        assert_eq!(
            all.into_nodes(),
            (0..60).map(|node| vec![node]).collect::<Vec<_>>()
        );
    }
}
