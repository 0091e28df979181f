//! Events, rollups, flows, drops and losses on disk, and SQL over them.
//!
//! # Requirements
//!
//! Store 400,000 events per second and core with their indexes, answer `WHERE flow = '…' AND ts > …` over 20 M events in
//! less than 100 ms, lose at most the last second at a `kill -9`, and never block collection: a full or slow disk causes only
//! the loss of rows, which are counted.
//!
//! # Invariants
//!
//! * **Accounts balance.** At any time, `submitted = committed + shed + failed + queued` ([`Stats`]), counted in records.
//! * **One writer.** A lock file keeps a second process from writing into the same directory. Readers need no lock.
//! * **Batches are atomic.** A transaction holds everything that is derived from a batch: rows, interned names, the
//!   sequence number, the file's time range. SQLite's write-ahead log commits all of it or nothing.
//! * **Documented names are views.** Tables are compact and may change with the schema version; the views `events`,
//!   `rollups`, `flows`, `drops`, `losses`, `reports`, `recordings` are the public interface, and any SQLite tool can read them:
//!   no function of ours is needed.
//!
//! # On disk
//!
//! One file per period, named by its start in UTC: `hopwise-2026-11-21.db` (day) or `hopwise-2026-11-21T14.db` (hour); a
//! file that has grown past its share of `max_bytes` is continued in `hopwise-2026-11-21.2.db`. A batch goes into the file
//! of its newest record, as a whole; records that are late by at most one period go into the current file. Each file therefore
//! stores its real time range (table `meta`), and readers use that, not the name.
//!
//! Values that repeat are interned per file: flows (`flow_key`), paths (`path_text`), rules (`rule_text`). A flow has a
//! small number counted from 1, so rows are short and two flows never share one.
//!
//! Rows are clustered by time (`PRIMARY KEY (ts, seq) WITHOUT ROWID`): "the latest" and "since" are one range. An index on
//! the flow over the whole file would touch a random page per insert; so its first column is `chunk`, the row's sequence
//! number divided by 65,536: inserts stay within one megabyte that is in the cache, and a query for a flow searches each chunk
//! once (SQLite's skip-scan, some 5 µs per chunk). The planner does this only with suitable statistics, so the
//! store writes `sqlite_stat1` itself when it creates a file.
//!
//! One `INSERT OR FAIL` inserts many rows: cursors stay open, and at the right edge of trees that grow there.
//!
//! At a high rate of records a file is written without the indexes on events, which are built from sorted entries when it is
//! complete (module `indexer`). Bounded: events in such a file, and files that wait.
//!
//! # Reading
//!
//! A query runs on a read-only connection in which each documented name is the union of that view over the files of its
//! time range, behind an authorizer that knows only our tables and functions that compute; with limits on time, rows,
//! bytes and sizes. A file may be written, deleted or set aside meanwhile: committed rows are visible, those of a
//! deleted file are missing, and a file that cannot be read is skipped with a warning.
//!
//! # Measured
//!
//! On two cores that were busy with other things (AMD EPYC), with the example `store-bench` of this crate: 20 M events of 50,000
//! flows with a million
//! rollups, 750,000 events per second of processor time, 124 bytes each; then a flow's events since a point in time in 2 to 25 ms,
//! the latest 200 of any kind, node or flow in less than 4 ms (70 ms for a rare kind at one node), a node's rollups of the
//! last quarter of an hour in 20 ms, all warm. A query that reads all 20 M rows takes 3 s (one column) to more than the ten
//! seconds that a query may take (groups by flow): such queries need a time range.
//!
//! # Recovery
//!
//! Opening a file after a crash is SQLite's own recovery of the write-ahead log. A file that is damaged is renamed to
//! `….corrupt-N` with its log, counted, named ([`Stats::problems`]) and replaced by a new one; [`check()`] saves what can be read. A file of
//! a newer schema is not changed, and the error says so. When a write fails (disk full, I/O error), the transaction is lost: its records
//! are counted as failed, the file is closed, and once a second the next batch is written to test whether there is space again. Until
//! then batches are shed.
//!
//! A file, its log or the directory may be removed or replaced by something else while they are open. Writing would go on into a file that
//! nobody finds. So at the beginning and at the end of each transaction device and inode of the path are compared with those of the open
//! file: what went into another one is lost, counted, and storing goes on at the path. Of all other files the same is found out every few
//! seconds. Whether the directory can be used is checked as often as transactions are committed. At the start, only the file of the current period must open; others are named.
//!
//! # Example
//! ```
//! use collector::{Batch, FlowRow, Output as _, event::Basis};
//! use store::{Config, QueryOptions, Reader, Store, Value};
//!
//! let dir = std::env::temp_dir().join(format!("hopwise-store-lib-{}", std::process::id()));
//! let store = Store::open(Config::new(&dir))?;
//! let mut batch = Batch::with_capacity(64);
//! let ts = 1_795_269_600_000_000_000; // 2026-11-21 14:00 UTC
//! let flow = "10.0.0.1:1234>10.0.0.2:80/6".parse()?;
//! let row = FlowRow { flow, flow_latency: Some(42_000), basis: Basis::Measured, first_seen: ts, last_seen: ts, reports: 1 };
//! batch.flow(&row, &[1, 2, 3]);
//! store.submit(batch);
//! store.flush();
//!
//! let reader = Reader::open(&dir)?;
//! let table = reader.query("SELECT reports, path FROM flows WHERE flow_latency > 1000", &QueryOptions::default())?;
//! assert_eq!(table.columns, ["reports", "path"]);
//! assert_eq!((table.rows.len(), &table.rows[0][0]), (1, &Value::Int(1)));
//! # drop(store);
//! # std::fs::remove_dir_all(&dir)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]

mod blocks;
mod check;
mod config;
mod directory;
pub mod facts;
mod files;
mod follower;
mod group_by;
mod guard;
mod hasher;
mod identity;
mod indexer;
mod intern;
mod join;
mod keys;
mod losses;
mod moved;
mod numbering;
mod path_use;
mod paths;
mod problems;
mod queries;
mod query;
mod queues;
mod rates;
mod reader;
mod reports;
mod rows;
mod salvage;
mod schema;
mod segment;
mod shared;
mod spans;
mod stats;
mod store;
mod summary;
mod traffic;
mod watch;
mod writer;

pub use check::{FileCheck, FileState, check};
pub use config::{Config, Error, Period};
pub use files::{remove as remove_database, temp_file};
pub use follower::{Chunk, Follower, StoredRecord, StreamPosition};
pub use group_by::{
    Dimension, FlowParts, Group, Grouping, Measure, Needed, Part, Prefixes, Source, Sums, Traffic,
    TrafficQuery, reports_known_to,
};
pub use identity::{FileChange, FileIdentity};
pub use losses::{DropKey, DropSum, LinkCount, Losses, ReporterLoss};
pub use moved::MovedFiles;
pub use path_use::{
    ChangeGroup, ChangeTally, FlowSelector, PathChange, PathChanges, PathPart, PathUse, PathUses, UseTally,
    use_pieces,
};
pub use paths::{MAX_PATHS_PER_FLOW, Paths};
pub use problems::{FileProblem, ProblemKind, Problems};
pub use query::{QueryError, QueryErrorKind, QueryOptions, Table, Value};
pub use queues::{
    Heat, HeatCells, HeatFilter, HeatKey, HeatRow, MAX_COLUMNS, PassageRow, QueueFilter, RecordingRow,
    RecordingWindow,
};
pub use rates::{RatePoint, RateSpan, RateTally};
pub use reader::Reader;
pub use reports::ReportRow;
pub use rows::{
    EventFilter, EventRank, EventRow, FirstRow, FlowHistory, FlowPoint, FlowState, RecordFilter,
    RollupFilter, Totals,
};
pub use salvage::{Records, Salvaged};
pub use spans::{
    FlowFilter, FlowSpan, FlowSpans, NodeSpans, PathSpan, Piece, SeriesKey, Span, SpanSum, rank_paths,
};
pub use stats::{State, Stats};
pub use store::Store;
pub use traffic::{Columns, Counted, EventGroup, EventParts, Tally};
