//! What a responder is made of.

use core::fmt;
use std::sync::Arc;

use memory::Region;
use wire::roce::{Path, Psn, Transport};

/// Settings of a responder.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Config {
    /// Queue pairs, 1 to 4096.
    pub queue_pairs: usize,
    /// Regions, 1 to 256.
    pub regions: usize,
    /// Atomic operations per queue pair whose results are kept, to answer repeated requests; 1 to 4096. The other end
    /// must not have more of them under way.
    pub atomic_depth: u32,
    /// Code of the wait that a requester is told when the receive queue is empty (0 to 31: see
    /// [`wire::roce::rnr_nanoseconds`]).
    pub not_ready_timer: u8,
    /// Where keys and numbers begin; the same seed gives the same ones.
    pub seed: u64,
}

impl Default for Config {
    fn default() -> Self {
        Self { queue_pairs: 256, regions: 64, atomic_depth: 128, not_ready_timer: 14, seed: 0 }
    }
}

/// Settings that cannot be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ConfigError(pub &'static str);

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl core::error::Error for ConfigError {}

impl Config {
    /// Whether a responder can be made of this.
    ///
    /// # Errors
    /// The first setting that cannot be.
    pub fn check(&self) -> Result<(), ConfigError> {
        let checks = [
            ((1..=4096).contains(&self.queue_pairs), "a responder has 1 to 4096 queue pairs"),
            ((1..=256).contains(&self.regions), "a responder has 1 to 256 regions"),
            ((1..=4096).contains(&self.atomic_depth), "the depth of atomic operations is 1 to 4096"),
            (self.not_ready_timer < 32, "the timer code of \"receiver not ready\" is 0 to 31"),
        ];
        match checks.iter().find(|(good, _)| !good) {
            Some((_, why)) => Err(ConfigError(why)),
            None => Ok(()),
        }
    }
}

/// What remote requests may do with a region.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rights {
    /// Write.
    pub write: bool,
    /// Fetch and add.
    pub atomic: bool,
}

impl Rights {
    /// Write and add.
    pub const ALL: Self = Self { write: true, atomic: true };
    /// Write only.
    pub const WRITE: Self = Self { write: true, atomic: false };
}

/// In which order the bytes of one message become visible to readers of the memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Order {
    /// Ascending.
    #[default]
    Ascending,
    /// The first eight bytes last, where they lie on a multiple of eight: readers of slots with a checksum in front then
    /// notice a slot that is half written. Of a message of several packets they are zero until the last packet came.
    HeadLast,
}

/// Memory for remote requests.
#[derive(Clone, Debug)]
pub struct Registration {
    /// The memory.
    pub memory: Arc<Region>,
    /// Where in it the part begins that requests may touch.
    pub start: u64,
    /// Bytes of this part.
    pub len: u64,
    /// What they may do.
    pub rights: Rights,
    /// Order of bytes.
    pub order: Order,
    /// A number of the caller's, told with completions.
    pub region: u16,
}

/// How remote requests name registered memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Registered {
    /// The address of its first byte. No address of this process.
    pub address: u64,
    /// Bytes.
    pub len: u64,
    /// Its key.
    pub rkey: u32,
}

/// Memory that cannot be registered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RegisterError {
    /// All places are taken.
    Full,
    /// Empty, read-only, not wholly inside the memory, or longer than 1 TiB.
    Range,
    /// It is to take atomic operations and does not begin at a multiple of eight.
    Alignment,
}

impl fmt::Display for RegisterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Full => "no more regions can be registered",
            Self::Range => "the region is empty, read only, longer than 1 TiB, or not inside its memory",
            Self::Alignment => {
                "the region is to take atomic operations and does not begin at a multiple of eight"
            }
        })
    }
}

impl core::error::Error for RegisterError {}

/// A requester's queue pair, to be answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct QueuePairConfig {
    /// Reliable or not.
    pub transport: Transport,
    /// Addresses from us to it.
    pub path: Path,
    /// Its queue pair's number.
    pub peer: u32,
    /// The number of its first packet.
    pub psn: Psn,
    /// Payload bytes of a packet: 256, 512, 1024, 2048 or 4096.
    pub mtu: u32,
    /// Messages with an immediate value, and sends, that it may make before [`Responder::replenish`](super::Responder::replenish).
    pub receives: u32,
}

/// A queue pair that cannot be made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum QueuePairError {
    /// All places are taken.
    Full,
    /// Not 256, 512, 1024, 2048 or 4096.
    Mtu,
    /// One end of the path is IPv4 and the other IPv6.
    Addresses,
}

impl fmt::Display for QueuePairError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Full => "no more queue pairs can be made",
            Self::Mtu => "the path MTU is not 256, 512, 1024, 2048 or 4096",
            Self::Addresses => "one end of the path is IPv4 and the other IPv6",
        })
    }
}

impl core::error::Error for QueuePairError {}
