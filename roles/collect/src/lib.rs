//! The collector role: inputs, fan-out to workers, recorders, result queues and replay of captures, with their settings. The
//! `collector` crate holds the processing of reports itself.
#![forbid(unsafe_code)]

pub mod backlog;
pub mod capabilities;
pub mod capture;
pub mod datagram;
pub mod fanout;
pub mod flight_recorder;
pub mod flow_index;
pub mod hop_recorder;
pub mod input;
pub mod kernel;
pub mod known_links;
pub mod live;
pub mod monitor;
pub mod pipeline;
pub mod record_queue;
pub mod recorder;
pub mod replay;
pub mod settings;
pub mod topology;
pub mod triggers;
pub mod watermarks;
pub mod worker;
