//! Queries about the past, answered from the store of this process, or in a console from ClickHouse; SQL of users in processes of
//! its own; and alerts, from the stored events of rules.
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
