//! A RoCEv2 responder in software: executes remote writes and fetch-and-adds in memory, without an RDMA device.
//!
//! Frames go in, memory changes, and responses come out; there is no socket, clock or thread. It supports RC and UC queue
//! pairs, writes of any length with or without an immediate value, sends of one packet, and fetch-and-add. It does not
//! support reads or compare-and-swap, which DTA does not need.
//!
//! Nothing from the network is trusted. [`wire::roce::Packet::parse`] checks what does not depend on connections (lengths,
//! padding, version, partition key, ICRC). The responder then checks each packet against its queue pair (peer, transport,
//! PSN) and each address against its region. A packet that fails any check changes no byte, and is counted: see
//! [`Stats::is_balanced`].
//!
//! The rules follow the InfiniBand specification, volume 1, chapter 9. Where it leaves a choice, the responder does what
//! Linux's `rdma_rxe` does: for example, it executes a late packet on a UC queue pair if the packet begins a message.

mod config;
mod execution;
mod queue_pair;
mod regions;
mod serve;
mod stats;

pub use config::{
    AccessFlags, Config, ConfigError, Order, QueuePairConfig, QueuePairError, RegisterError, Registered,
    Registration,
};
pub use queue_pair::QueuePairState;
pub use stats::{Reason, Stats};

use wire::Refusal;
use wire::roce::{Packet, Path, Psn};

use crate::seed::mix;
use queue_pair::QueuePair;
use regions::Regions;
use serve::Server;

/// The completion of a write with an immediate value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Completion {
    /// Number of the queue pair.
    pub queue_pair: u32,
    /// Immediate value of the message.
    pub immediate: u32,
    /// The region ([`Registration::region`]) and the message's offset in it, bytes; `None` for an empty message.
    pub location: Option<(u16, u64)>,
    /// Bytes written by the message.
    pub len: u32,
}

/// Receives a responder's output. Implementations must not block.
pub trait Output {
    /// Sends a response frame to the requester along this path. For a UDP socket, skip the headers up to UDP.
    fn respond(&mut self, path: &Path, frame: &[u8]);
    /// Reports a write with an immediate value.
    fn complete(&mut self, _completion: &Completion) {}
    /// Reports a SEND message received on this queue pair.
    fn sent(&mut self, _pair: u32, _message: &[u8]) {}
}

/// A RoCEv2 responder with its regions and queue pairs: see the [module](self).
///
/// ```
/// use std::sync::Arc;
///
/// use memory::Region;
/// use rdma::responder::{Config, Order, QueuePairConfig, QueuePairState, Registration, Responder, AccessFlags};
/// use wire::roce::{Path, Psn, Transport};
///
/// let memory = Arc::new(Region::anonymous(4096, false)?);
/// let mut responder = Responder::new(Config::default())?;
/// let (access, order) = (AccessFlags::WRITE, Order::HeadLast);
/// let at = responder.register(&Registration { memory, start: 0, len: 4096, access, order, region: 0 })?;
/// let path = Path::new([10, 0, 0, 2].into(), [10, 0, 0, 1].into(), 0xc001);
/// let (peer, psn) = (0x11, Psn::new(100));
/// let pair = responder.connect(&QueuePairConfig { transport: Transport::Uc, path, peer, psn, mtu: 1024, receives: 0 })?;
/// assert_eq!(responder.expected(pair), Some(psn));
///
/// // `process` accepts frames. Memory can be deregistered and a queue pair destroyed while others stay in use.
/// assert!(responder.deregister(at.rkey) && responder.disconnect(pair));
/// assert_eq!(responder.state(pair), None::<QueuePairState>);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Responder {
    regions: Regions,
    generation: u32,
    server: Server,
}

impl Responder {
    /// Creates a responder without regions and queue pairs.
    ///
    /// # Errors
    /// [`ConfigError`] for invalid settings.
    pub fn new(config: Config) -> Result<Self, ConfigError> {
        config.check()?;
        Ok(Self {
            regions: Regions::new(config.regions, mix(config.seed)),
            generation: mix(config.seed) as u32 & 0x7ff,
            server: Server::new(config),
        })
    }

    /// Registers memory for remote access.
    ///
    /// # Errors
    /// [`RegisterError`] if there is no free region, or the memory cannot be registered.
    pub fn register(&mut self, registration: &Registration) -> Result<Registered, RegisterError> {
        self.regions.register(registration)
    }

    /// Deregisters memory and drops unfinished messages to it; returns `false` if no region has this R_Key.
    pub fn deregister(&mut self, rkey: u32) -> bool {
        self.regions.remove(rkey)
    }

    /// Creates a queue pair and returns its number.
    ///
    /// # Errors
    /// [`QueuePairError`] if there is no free queue pair, or for invalid settings.
    pub fn connect(&mut self, queue_pair: &QueuePairConfig) -> Result<u32, QueuePairError> {
        if !matches!(queue_pair.mtu, 256 | 512 | 1024 | 2048 | 4096) {
            return Err(QueuePairError::Mtu);
        }
        let index = self
            .server
            .queue_pairs
            .iter()
            .position(Option::is_none)
            .ok_or(QueuePairError::Full)?;
        // The slot is in the low 12 bits. The generation above it is never 0, since queue pairs 0 and 1 are reserved, and
        // changes with each connection, so that a slot's old number stays invalid.
        self.generation = self.generation % 0xfff + 1;
        let number = self.generation << 12 | index as u32;
        let new_queue_pair = QueuePair::new(number, queue_pair, self.server.config.atomic_depth);
        self.server.queue_pairs[index] = Some(new_queue_pair.map_err(|_| QueuePairError::Addresses)?);
        Ok(number)
    }

    /// Destroys a queue pair; returns `false` if no queue pair has this number.
    pub fn disconnect(&mut self, number: u32) -> bool {
        let is_known = self.queue_pair(number).is_some();
        if is_known {
            self.server.queue_pairs[(number & 0xfff) as usize] = None;
        }
        is_known
    }

    /// Hands a queue pair to another responder that uses the same number, for example one in the kernel. The number stays
    /// reserved here; returns `false` if it is unknown. Packets that still arrive here are dropped ([`Reason::Offloaded`]),
    /// because only one responder can track the PSN.
    pub fn offload(&mut self, number: u32) -> bool {
        let queue_pair = self
            .server
            .queue_pairs
            .get_mut((number & 0xfff) as usize)
            .and_then(Option::as_mut);
        let Some(queue_pair) = queue_pair.filter(|queue_pair| queue_pair.number == number) else {
            return false;
        };
        queue_pair.state = QueuePairState::Offloaded;
        true
    }

    /// Returns the PSN that a queue pair expects next; everything before it is executed. A requester needs it to reconnect.
    pub fn expected(&self, number: u32) -> Option<Psn> {
        self.queue_pair(number).map(|queue_pair| queue_pair.expected)
    }

    /// Returns the state of a queue pair.
    pub fn state(&self, number: u32) -> Option<QueuePairState> {
        self.queue_pair(number).map(|queue_pair| queue_pair.state)
    }

    /// Returns how many more messages with an immediate value, and sends, a queue pair accepts.
    pub fn receives(&self, number: u32) -> Option<u32> {
        self.queue_pair(number).map(|queue_pair| queue_pair.receives)
    }

    /// Adds receive credits to a queue pair.
    pub fn replenish(&mut self, number: u32, receives: u32) {
        if let Some(queue_pair) = self
            .server
            .queue_pairs
            .get_mut((number & 0xfff) as usize)
            .and_then(Option::as_mut)
            && queue_pair.number == number
        {
            queue_pair.receives = queue_pair.receives.saturating_add(receives);
        }
    }

    /// Returns the counters of the responder.
    pub fn stats(&self) -> &Stats {
        &self.server.stats
    }

    fn queue_pair(&self, number: u32) -> Option<&QueuePair> {
        self.server
            .queue_pairs
            .get((number & 0xfff) as usize)?
            .as_ref()
            .filter(|queue_pair| queue_pair.number == number)
    }

    /// Processes whole Ethernet frames in the order of arrival. Responses go to `out`; each queue pair sends at most one
    /// acknowledgement per call for its writes. Iterates over the frames twice, to prefetch memory before it is written.
    pub fn process<'a>(
        &mut self,
        frames: impl IntoIterator<Item = &'a [u8], IntoIter: Clone>,
        out: &mut impl Output,
    ) {
        self.server.process(&self.regions, frames, out);
    }

    /// Processes packets that are already parsed, as [`Packet::parse_udp`] does for a UDP socket.
    pub fn process_parsed<'a>(
        &mut self,
        packets: impl IntoIterator<Item = Result<Packet<'a>, Refusal>>,
        out: &mut impl Output,
    ) {
        self.server.process_parsed(&self.regions, packets, out);
    }
}
