//! Memory primitives for fast tables and shared memory: prefetching, huge pages, hardware CRCs, age-ordered lists, and
//! [`Region`]s that other processes, the kernel or a NIC write at any time.
//!
//! This is one of the two crates with unsafe Rust. It does not interpret the contents of memory.
//!
//! # Example
//! ```
//! # #[cfg(target_os = "linux")] {
//! let region = memory::Region::anonymous(4096, false)?; // zeroed
//! region.write(64, b"telemetry")?;
//! let mut found = [0; 9];
//! region.read(64, &mut found)?;
//! assert_eq!(&found, b"telemetry");
//! # }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod age_list;
#[cfg(target_os = "linux")]
mod copy;
mod crc;
mod crc32;
#[cfg(target_os = "linux")]
mod create;
mod huge;
#[cfg(target_os = "linux")]
mod mapping;
mod prefetch;
#[cfg(target_os = "linux")]
mod region;

pub use crc::crc_32c_update;
pub use crc32::{Crc32, crc_32};
pub use huge::{HugePageAdvice, advise_huge};
pub use prefetch::prefetch;
#[cfg(target_os = "linux")]
pub use region::{Access, OutOfRange, Pages, Region};
