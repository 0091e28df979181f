//! Receives and sends packets: AF_XDP, AF_PACKET and UDP sockets, capture files, RDMA verbs; and the system calls around them.
//!
//! This is one of the two crates with unsafe Rust, which system calls need. It knows nothing about telemetry reports.
//!
//! # Example
//! Datagrams from a UDP socket, many per system call:
//! ```no_run
//! use nic::Source as _;
//! use nic::udp::{Buffered, Burst, DEFAULT_SLOT_SIZE, DEFAULT_SLOTS, Options, Receiver};
//!
//! let receiver = Receiver::bind("0.0.0.0:32766".parse()?, &Options::default())?;
//! let mut source = Buffered::new(receiver, Burst::new(DEFAULT_SLOTS, DEFAULT_SLOT_SIZE));
//! let mut bytes = 0;
//! let received = source.receive(100, &mut |packets| {
//!     bytes += packets.iter().map(|packet| packet.data.len()).sum::<usize>();
//! })?;
//! assert!(received > 0 || bytes == 0);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod bpf;
pub mod capabilities;
pub mod capture;
pub mod device;
mod error;
pub mod frames;
mod link;
pub mod load;
pub mod netns;
pub mod pace;
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
