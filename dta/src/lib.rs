//! DTA stores: collector memory that a Direct Telemetry Access translator writes by RDMA, and the readers that query it.
//!
//! A **DTA store** is a [`memory::Region`] with a header page that describes its layout, and a body that RDMA writes at any
//! time without locks. Readers work on live memory, from any process that maps the region, and on snapshots:
//!
//! | kind | reader | result |
//! | --- | --- | --- |
//! | key-write | [`KeyWriteReader`] | the value of a key, by a [`Policy`] |
//! | append | [`Lists`], [`Follower`] | the batches of a list, each once, and how many were lost |
//! | key-increment | [`KeyIncrementReader`] | a count that is never too small, with its error bound |
//! | sketch | [`SketchReader`], [`SketchCopy`] | estimates of one epoch, with their error bounds |
//! | postcarding | [`PostcardingReader`] | the hops of a key's path, and which are missing |
//!
//! A read never blocks the writer. Readers detect concurrent writes, retry, and report the cases that they cannot decide
//! ([`Answer::Torn`], [`Answer::Ambiguous`], [`Next::Overwritten`]).
//!
//! The other modules: [`source`] opens the stores of a process, a directory or a snapshot and answers queries;
//! [`collector_map`] assigns keys to collectors; [`calculate`] sizes Key-Write stores; [`fields`] and [`key`] parse the
//! text form of values and keys. In names and comments, *artifact* means the code published with the DTA paper, whose
//! memory layouts this crate also reads.
//!
//! There is no network, clock or thread here: callers pass regions and the time.
//!
//! ```
//! use std::sync::Arc;
//! use dta::{Answer, DtaStore, Header, Policy, region_len};
//! use wire::dta::{hash::{Family, hashes, slot}, layout::{Geometry, put_slot, slot_stride}};
//!
//! let geometry = Geometry::KeyWrite { slots: 1 << 10, data_len: 20, family: Family::V1 };
//! let region = Arc::new(memory::Region::anonymous(region_len(&geometry), false)?);
//! let header = Header { name: "paths".into(), id: 1, geometry, fields: "u32[5]".into(), created: 0, snapshot: None };
//! let store = DtaStore::create(Arc::clone(&region), &header)?;
//!
//! // A translator's write:
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
mod calculation;
pub mod calculator;
pub mod collector_map;
mod dta_store;
pub mod fields;
pub mod header;
pub mod key;
pub mod key_increment;
pub mod key_write;
pub mod persist;
pub mod postcarding;
mod query;
pub mod report_text;
pub mod settings;
pub mod sketch;
mod slots;
pub mod snapshot;
pub mod source;

pub use append::{BareFollower, Follower, FollowerStats, Lists, Next, block_of};
pub use calculator::{Expected, Plan};
pub use collector_map::CollectorMap;
pub use dta_store::DtaStore;
pub use header::{BODY, HEADER_LEN, Header, HeaderError, region_len};
pub use key_increment::{Bound, KeyIncrementReader};
pub use key_write::{Answer, Copy, KeyWriteReader, Policy};
pub use postcarding::{Path, PostcardingReader};
pub use query::QueryError;
pub use sketch::{Estimate, Sampled, SketchCopy, SketchError, SketchReader};
pub use snapshot::Snapshot;
