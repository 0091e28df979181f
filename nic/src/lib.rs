//! Frames in and out: UDP sockets, capture files; and what a worker needs of the system: clocks, cores.
//!
//! This is one of the two crates that may be unsafe, because system calls are. It knows nothing of what a report is.

pub mod bpf;
pub mod capabilities;
pub mod capture;
pub mod device;
mod error;
pub mod frames;
mod link;
pub mod load;
pub mod netns;
mod pace;
pub mod packet;
pub mod process;
pub mod receive;
pub mod sniff;
pub mod source;
mod sys;
pub mod time;
pub mod udp;
pub mod verbs;
pub mod xdp;

pub use error::Error;
pub use source::Source;
