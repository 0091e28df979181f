//! Settings of the RoCEv2 responder, its memory regions and its queue pairs.

use core::fmt;
use std::sync::Arc;

use memory::Region;
use wire::roce::{Path, Psn, Transport};

/// Settings of a responder.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Config {
    /// Maximum queue pairs, 1 to 4096.
    pub queue_pairs: usize,
    /// Maximum regions, 1 to 256.
    pub regions: usize,
    /// Results of atomic operations saved per queue pair, to answer retransmitted requests; 1 to 4096. The requester must
    /// not have more atomics outstanding.
    pub atomic_depth: u32,
    /// RNR NAK timer code (0 to 31, see [`wire::roce::rnr_nanoseconds`]), sent when the receive queue is empty.
    pub not_ready_timer: u8,
    /// Seed of R_Keys and queue pair numbers; the same seed gives the same numbers.
    pub seed: u64,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            queue_pairs: 256,
            regions: 64,
            atomic_depth: 128,
            not_ready_timer: 14,
            seed: 0,
        }
    }
}

/// A setting is invalid; the text says which.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ConfigError(pub &'static str);

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl core::error::Error for ConfigError {}

impl Config {
    /// Validates the settings.
    ///
    /// # Errors
    /// The first invalid setting.
    pub fn check(&self) -> Result<(), ConfigError> {
        let checks = [
            (
                (1..=4096).contains(&self.queue_pairs),
                "a responder has 1 to 4096 queue pairs",
            ),
            (
                (1..=256).contains(&self.regions),
                "a responder has 1 to 256 regions",
            ),
            (
                (1..=4096).contains(&self.atomic_depth),
                "the depth of atomic operations is 1 to 4096",
            ),
            (
                self.not_ready_timer < 32,
                "the timer code of \"receiver not ready\" is 0 to 31",
            ),
        ];
        match checks.iter().find(|(is_valid, _)| !is_valid) {
            Some((_, message)) => Err(ConfigError(message)),
            None => Ok(()),
        }
    }
}

/// Remote access that a region permits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AccessFlags {
    /// Writes are permitted in the region.
    pub write: bool,
    /// Fetch-and-adds are permitted in the region.
    pub atomic: bool,
}

impl AccessFlags {
    /// Permits writes and fetch-and-adds.
    pub const ALL: Self = Self {
        write: true,
        atomic: true,
    };
    /// Permits writes, but no atomic operations.
    pub const WRITE: Self = Self {
        write: true,
        atomic: false,
    };
}

/// The order in which the bytes of one message become visible to readers of the memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Order {
    /// Bytes in ascending order.
    #[default]
    Ascending,
    /// The first eight bytes come last, if they are aligned to eight. Readers of slots that start with a checksum can then
    /// detect a half-written slot. During a message of several packets these bytes are zero.
    HeadLast,
}

/// Memory to register for remote access.
#[derive(Clone, Debug)]
pub struct Registration {
    /// Memory that contains the accessible part.
    pub memory: Arc<Region>,
    /// Offset of the accessible part in that memory, bytes.
    pub start: u64,
    /// Length of the accessible part, bytes.
    pub len: u64,
    /// Access that requesters get.
    pub access: AccessFlags,
    /// Order in which the bytes of a message become visible.
    pub order: Order,
    /// The caller's number for the region, repeated in completions.
    pub region: u16,
}

/// The remote address and R_Key of registered memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Registered {
    /// Virtual address for requests. It is not an address in this process.
    pub address: u64,
    /// Length of the registered memory, bytes.
    pub len: u64,
    /// R_Key of the registered memory.
    pub rkey: u32,
}

/// The reason why memory cannot be registered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RegisterError {
    /// All region slots are in use.
    Full,
    /// The range is empty, read-only, outside the memory, or longer than 1 TiB.
    Range,
    /// The range permits atomic operations but does not start at a multiple of eight.
    Alignment,
}

impl fmt::Display for RegisterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Full => "no more regions can be registered",
            Self::Range => "the region is empty, read only, longer than 1 TiB, or not inside its memory",
            Self::Alignment => {
                "the region permits atomic operations and does not begin at a multiple of eight"
            }
        })
    }
}

impl core::error::Error for RegisterError {}

/// A queue pair to be created for a requester.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct QueuePairConfig {
    /// Transport service, reliable or not.
    pub transport: Transport,
    /// Addresses from the responder to the requester.
    pub path: Path,
    /// The requester's queue pair number.
    pub peer: u32,
    /// PSN of the requester's first packet.
    pub psn: Psn,
    /// Path MTU, bytes of payload: 256, 512, 1024, 2048 or 4096.
    pub mtu: u32,
    /// Receive credits. Each send, or message with an immediate value, uses one;
    /// [`Responder::replenish`](super::Responder::replenish) adds more.
    pub receives: u32,
}

/// The reason why a queue pair cannot be created.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum QueuePairError {
    /// All queue pair slots are in use.
    Full,
    /// The MTU is not 256, 512, 1024, 2048 or 4096.
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
