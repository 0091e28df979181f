//! A software RoCEv2 endpoint: the [requester] sends RDMA WRITE and FETCH AND ADD as UDP frames, and the
//! [responder] executes them in memory.
//!
//! The crate has no I/O, clock or threads: frames and the time (ns) go in, frames come out. The DTA translator uses the
//! requester; the collector's memory service uses the responder.
//!
//! # Example
//! A requester writes 24 bytes into the memory of a responder, reliably, and adds to a counter after them:
//! ```
//! use std::sync::Arc;
//!
//! use memory::Region;
//! use rdma::requester::{Config, Connection, Links, RemoteRegion};
//! use rdma::responder::{self, Order, QueuePairConfig, Registration, Responder, AccessFlags};
//! use rdma::transport::{RemoteAddr, Transport as _};
//! use wire::roce::{Packet, Path, Transport};
//!
//! // The collector: memory, and a responder that executes requests in it.
//! let memory = Arc::new(Region::anonymous(8192, false)?);
//! let mut responder = Responder::new(responder::Config::default())?;
//! let region = Arc::clone(&memory);
//! let (access, order) = (AccessFlags::ALL, Order::Ascending);
//! let at = responder.register(&Registration { memory: region, start: 4096, len: 4096, access, order, region: 0 })?;
//!
//! // The requester offers queue pairs; the responder makes its ends of them. (The exchange of these values is not RDMA.)
//! let (near, far) = ([10, 0, 0, 1].into(), [10, 0, 0, 2].into());
//! let mut links = Links::new(Config::default())?;
//! let offer = links.offer(0).ok_or("collector 0")?;
//! let mut connect = |transport, end: rdma::requester::End| {
//!     let path = Path::new(far, near, 0xc001);
//!     responder.connect(&QueuePairConfig { transport, path, peer: end.queue_pair, psn: end.psn, mtu: 1024, receives: 0 })
//! };
//! let connection = Connection {
//!     path: Path::new(near, far, 0xc001),
//!     mtu: 1024,
//!     unreliable: Some(connect(Transport::Uc, offer.unreliable)?),
//!     reliable: Some(connect(Transport::Rc, offer.reliable)?),
//!     atomic_depth: 16,
//!     regions: &[RemoteRegion { region: 0, address: at.address, len: at.len, rkey: at.rkey }],
//!     executed: None,
//! };
//! links.connect(0, &connection, 0)?;
//!
//! // Collects the responses.
//! #[derive(Default)]
//! struct Responses(Vec<Vec<u8>>);
//! impl responder::Output for Responses {
//!     fn respond(&mut self, _path: &Path, frame: &[u8]) {
//!         self.0.push(frame.to_vec());
//!     }
//! }
//!
//! let to = RemoteAddr { collector: 0, region: 0 };
//! let mut responses = Responses::default();
//! links.write(to, 0, &[7; 24], None, true)?;
//! links.add(to, 24, 5, None)?;
//! while links.flush(0) > 0 {
//!     responder.process(links.frames().map(|(_, frame)| frame), &mut responses);
//!     links.sent();
//!     for frame in responses.0.drain(..) {
//!         links.receive(0, &Packet::parse(&frame)?);
//!     }
//! }
//! assert!(memory.is(4096, &[7; 24]));
//! assert_eq!(memory.load_u64(4096 + 24)?, 5);
//! assert_eq!(links.stats(0).map(|stats| stats.acknowledged), Some(2));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]

pub mod requester;
pub mod responder;
mod seed;
pub mod transport;
