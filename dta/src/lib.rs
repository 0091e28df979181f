//! Collector memory: stores that a translator writes by RDMA, and how they are read.
//!
//! A **store** is a [`memory::Region`]: a header page that says what it is, and a body that is written from the network, at any moment and
//! without asking. Readers work on live memory, from any process that maps the region, and on snapshots alike:
//!
//! | kind | reader | answers |
//! | --- | --- | --- |
//! | key-write | [`KeyWriteReader`] | the value of a key, by a [`Policy`] |
//! | append | [`Lists`], [`Follower`] | the batches of a list, each once, or how many were missed |
//! | key-increment | [`CounterReader`] | a count that is never too small, with its bound |
//! | sketch | [`SketchReader`], [`SketchCopy`] | an epoch's estimates with their bounds |
//! | postcarding | [`PathReader`] | the hops of a key's path, and which are missing; the artifact's masked ones too |
//!
//! A read never disturbs the writer and is never trusted blindly: what was being written is read again, and what cannot be
//! told is said ([`Answer::Torn`], [`Answer::Ambiguous`], [`Next::Lapped`]).
//!
//! No file and no clock here: who opens files hands in regions, who knows the time hands it in.
//!
//! ```
//! use std::sync::Arc;
//! use dta::{Answer, Header, Policy, Store, region_len};
//! use wire::dta::{hash::{Family, hashes, slot}, layout::{Geometry, put_slot, slot_stride}};
//!
//! let geometry = Geometry::KeyWrite { slots: 1 << 10, data_len: 20, family: Family::V1 };
//! let region = Arc::new(memory::Region::anonymous(region_len(&geometry), false)?);
//! let header = Header { name: "paths".into(), id: 1, geometry, fields: "u32[5]".into(), created: 0, snapshot: None };
//! let store = Store::create(Arc::clone(&region), &header)?;
//!
//! // What a translator's write does:
//! let (key, mut bytes) = (b"a flow", [0; 24]);
//! let hashes = hashes(key);
//! put_slot(&mut bytes, hashes.checksum, b"twenty bytes of data", 20);
//! for n in 0..2 {
//!     let at = dta::BODY + slot(hashes.slots[n], 1 << 10) * slot_stride(20);
//!     region.write_head_last(at, &bytes)?;
//! }
//!
//! let reader = store.key_write().ok_or("a key-write store")?;
//! let mut value = [0; 20];
//! let answer = reader.get(key, Policy::Majority, 4, &mut value)?;
//! assert_eq!(answer, Answer::Found { copies: 2, agreeing: 2 });
//! assert_eq!(&value, b"twenty bytes of data");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]

pub mod append;
pub mod calculate;
pub mod calculator;
pub mod counters;
mod dta_store;
pub mod fields;
pub mod header;

pub mod key;
pub mod key_write;
pub mod map;
pub mod persist;
pub mod postcards;
pub mod sketch;
mod slots;
pub mod snapshot;
pub mod source;

pub use append::{BareFollower, Followed, Follower, Lists, Next, block_of};
pub use calculator::{Expected, Plan};
pub use counters::{Bound, CounterReader};
pub use dta_store::{BODY, Store, region_len};
pub use header::{HEADER_LEN, Header, HeaderError};
pub use key_write::{Answer, BadQuery, Copy, KeyWriteReader, Policy};
pub use postcards::{Path, PathReader};
pub use sketch::{Estimate, Sampled, SketchCopy, SketchError, SketchReader};
pub use snapshot::Snapshot;
