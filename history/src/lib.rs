//! History queries: answered from the local store, or in a console from ClickHouse, behind the trait [`History`]. Also runs
//! users' SQL in separate processes, and rebuilds alerts from stored rule events.
#![forbid(unsafe_code)]

pub mod alerts;
mod clickhouse;
mod local;
pub mod notes;
mod query;
pub mod sql;

pub use clickhouse::Remote;
pub use local::Local;
pub use query::{
    EventQuery, Exported, FlowQuery, FlowsQuery, FoundEvents, History, LinkEnds, LossQuery, PathQuery,
    Permit, QueueQuery, QueueRecords, RateQuery, RecordingQuery, ResponseFuture,
};
