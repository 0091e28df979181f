//! The telemetry store: writes events, rollups, flows, drops and losses into SQLite files, one per day or hour, and answers
//! SQL and the queries of the UI over them.
//!
//! # Requirements
//!
//! Store 400,000 events per second and core with their indexes, answer `WHERE flow = '…' AND ts > …` over 20 M events in
//! less than 100 ms, lose at most the last second at a `kill -9`, and never block collection: a full or slow disk causes only
//! the loss of rows, which are counted.
//!
//! # Invariants
//!
//! * **Counters balance.** At any time, `submitted = committed + shed + failed + queued` ([`Stats`]), counted in records.
//! * **One writer.** A lock file keeps a second process from writing into the same directory. Readers need no lock.
//! * **Batches are atomic.** A transaction holds everything that is derived from a batch: rows, interned names, the sequence
//!   number, the file's time range. SQLite's write-ahead log commits all of it or nothing.
//! * **Documented names are views.** Tables are compact and may change with the schema version. The views `events`,
//!   `rollups`, `flows`, `drops`, `losses`, `reports`, `recordings` are the public interface. They use no custom functions,
//!   so any SQLite tool can read them.
//!
//! # On disk
//!
//! There is one file per period, named by its start in UTC: `hopwise-2026-11-21.db` (day) or `hopwise-2026-11-21T14.db`
//! (hour). A file that has outgrown its share of `max_bytes` is continued in `hopwise-2026-11-21.2.db`. A batch goes as a
//! whole into the file of its newest record; records that are late by at most one period go into the current file. Each file
//! therefore stores its real time range (table `meta`), and readers use that, not the name.
//!
//! Repeated values are interned per file: flows (`flow_key`), paths (`path_text`), rules (`rule_text`). IDs are small
//! integers from 1, so rows are short.
//!
//! Rows are clustered by time (`PRIMARY KEY (ts, seq) WITHOUT ROWID`), so "latest" and "since" are single range scans. An
//! index on the flow over the whole file would touch a random page per insert. Its first column is therefore `chunk`, the
//! row's sequence number divided by 65,536: inserts stay within one cached megabyte, and a query for a flow searches each
//! chunk once (SQLite's skip-scan, about 5 µs per chunk). The planner does this only with suitable statistics, so the store
//! writes `sqlite_stat1` itself when it creates a file.
//!
//! One `INSERT OR FAIL` statement inserts many rows: b-tree cursors stay open, at the right edge of trees that grow there.
//!
//! At a high rate, a file is written without the indexes on events. They are built from sorted entries when the file is
//! complete (module `indexer`). The number of events in such a file and the number of files that wait are bounded.
//!
//! # Reading
//!
//! A query runs on a read-only connection in which each documented view is the union over the files of its time range. An
//! authorizer permits only hopwise's tables and pure functions; time, rows, bytes and sizes are limited. Files may be
//! written, deleted or set aside during a query: committed rows are visible, rows of a deleted file are missing, and a file
//! that cannot be read is skipped with a warning.
//!
//! # Measured
//!
//! With the example `store-bench` on two shared cores (AMD EPYC): 20 M events of 50,000 flows with a million rollups are
//! inserted at 750,000 events per second of CPU time and take 124 bytes each. With a warm cache, a flow's events since a
//! point in time take 2 to 25 ms, the latest 200 of any kind, node or flow less than 4 ms (70 ms for a rare kind at one
//! node), and a node's rollups of the last 15 minutes 20 ms. A query that reads all 20 M rows takes from 3 s (one column) to
//! more than the limit of 10 s (grouped by flow); such queries need a time range.
//!
//! # Recovery
//!
//! After a crash, SQLite recovers a file from its write-ahead log. A damaged file is renamed to `….corrupt-N` with its log,
//! counted, listed in [`Stats::problems`] and replaced by a new one; [`check()`] salvages its readable records. A file with a
//! newer schema is left unchanged, and the error says so. When a write fails (disk full, I/O error), the transaction is lost,
//! its records are counted as failed and the file is closed. Once a second the next batch is written as a probe; until one
//! succeeds, batches are shed.
//!
//! A file, its log or the directory may be removed or replaced while they are open, and writes would then go into a file that
//! nobody can find. Therefore the device and inode of the path are compared with the open file's at the beginning and end of
//! each transaction: records written into a file that is gone are counted as lost, and storing continues at the path. Other
//! files are checked every few seconds, the directory with each commit. At the start, only the file of the current period
//! must open; problems of other files are reported.
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
pub mod burst;
mod check;
mod config;
mod directory;
mod earlier;
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
mod path_spans;
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
mod taken;
mod traffic;
mod watch;
mod writer;

pub use check::{FileCheck, FileState, check};
pub use config::{Config, Error, Period};
pub use earlier::EarlierState;
pub use files::{remove as remove_database, temp_file};
pub use follower::{Chunk, Follower, StoredRecord, StreamPosition};
pub use group_by::{
    Dimension, FlowParts, Group, Grouping, Measure, Needed, Part, Prefixes, Source, Sums, Traffic,
    TrafficQuery, reports_known_to,
};
pub use guard::VIEWS;
pub use identity::{FileChange, FileIdentity};
pub use losses::{DropKey, DropSum, LinkCount, Losses, ReporterLoss};
pub use moved::MovedFiles;
pub use path_spans::{MovedFlows, PathSpan, PathSpans, PathTally, divided_note};
pub use path_use::{
    ChangeGroup, ChangeTally, FlowSelector, Lifetime, PathChange, PathChanges, PathPart, PathUse, PathUses,
    UseTally, use_pieces,
};
pub use paths::{MAX_PATHS_PER_FLOW, Paths};
pub use problems::{FileProblem, ProblemKind, Problems};
pub use query::{QueryError, QueryErrorKind, QueryOptions, Table, Value};
pub use queues::{
    Heat, HeatCells, HeatFilter, HeatRow, MAX_COLUMNS, PassageRow, QueueFilter, RecordingRow, RecordingWindow,
};
pub use rates::{RatePoint, RateSpan, RateTally};
pub use reader::Reader;
pub use reports::ReportRow;
pub use rows::{
    EventFilter, EventRank, EventRow, FirstRow, FlowHistory, FlowPoint, FlowState, RecordFilter,
    RollupFilter, Totals,
};
pub use salvage::{Records, Salvaged};
pub use spans::{FlowFilter, FlowSpan, FlowSpans, NodeSpans, Piece, SeriesKey, Span, SpanSum};
pub use stats::{State, Stats};
pub use store::Store;
pub use taken::unknown_paths_note;
pub use traffic::{Columns, Counted, EventGroup, EventParts, Tally};
