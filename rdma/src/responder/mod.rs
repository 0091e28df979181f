//! The software end of RoCEv2: what an RDMA device does for remote writes and fetch-adds, without the device.
//!
//! No socket, clock or thread: frames go in, memory changes, answers come out. Reliable and unreliable connections; writes
//! of any length, with or without an immediate value, sends of one packet, fetch-and-add. Reading and swapping are not
//! offered: nobody needs them here, and what is not there cannot be abused.
//!
//! Nothing that comes from the network is believed. A packet is read and checked without knowledge of connections by
//! [`wire::roce::Packet::parse`] (lengths, padding, version, partition, ICRC); then against its queue pair (peer, transport, sequence),
//! and every address against its region. A packet that fails anywhere changes no byte. What was counted adds up:
//! [`Stats::is_balanced`].
//!
//! The rules are those of the InfiniBand specification, volume 1, chapter 9; where it leaves a choice, that of Linux's
//! `rdma_rxe`. A late packet of an unreliable connection that begins a message is executed, as there.

mod config;
mod queue_pair;
mod regions;
mod serve;
mod stats;
mod work;

pub use config::{
    Config, ConfigError, Order, QueuePairConfig, QueuePairError, RegisterError, Registered, Registration,
    Rights,
};
pub use queue_pair::QueuePairState;
pub use stats::{Reason, Stats};

use wire::Refusal;
use wire::roce::{Packet, Path, Psn};

use queue_pair::QueuePair;
use regions::Regions;
use serve::Server;

/// A write with an immediate value was completed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Completion {
    /// On which queue pair.
    pub queue_pair: u32,
    /// The value.
    pub immediate: u32,
    /// The region's number ([`Registration::region`]) and where in it the message begins; none for an empty message.
    pub place: Option<(u16, u64)>,
    /// Bytes written.
    pub len: u32,
}

/// What a responder has to say. Nothing of it may wait.
pub trait Out {
    /// A frame for the other end, to be sent along this path. A UDP socket sends what stands behind the UDP header.
    fn answer(&mut self, path: &Path, frame: &[u8]);
    /// A write with an immediate value.
    fn complete(&mut self, _completion: &Completion) {}
    /// A message that was sent to us, on this queue pair.
    fn sent(&mut self, _pair: u32, _message: &[u8]) {}
}

/// The software end of RoCEv2: see the [module](self).
///
/// ```
/// use std::sync::Arc;
///
/// use memory::Region;
/// use rdma::responder::{Config, Order, QueuePairConfig, QueuePairState, Registration, Responder, Rights};
/// use wire::roce::{Path, Psn, Transport};
///
/// let memory = Arc::new(Region::anonymous(4096, false)?);
/// let mut responder = Responder::new(Config::default())?;
/// let (rights, order) = (Rights::WRITE, Order::HeadLast);
/// let at = responder.register(&Registration { memory, start: 0, len: 4096, rights, order, region: 0 })?;
/// let path = Path::new([10, 0, 0, 2].into(), [10, 0, 0, 1].into(), 0xc001);
/// let (peer, psn) = (0x11, Psn::new(100));
/// let pair = responder.connect(&QueuePairConfig { transport: Transport::Uc, path, peer, psn, mtu: 1024, receives: 0 })?;
/// assert_eq!(responder.expected(pair), Some(psn));
///
/// // Frames go in by `take`. Memory is closed, and a queue pair destroyed, while others go on.
/// assert!(responder.deregister(at.key) && responder.disconnect(pair));
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
    /// A responder with neither regions nor queue pairs.
    ///
    /// # Errors
    /// Settings that cannot be.
    pub fn new(config: Config) -> Result<Self, ConfigError> {
        config.check()?;
        Ok(Self {
            regions: Regions::new(config.regions, mix(config.seed)),
            generation: mix(config.seed) as u32 & 0x7ff,
            server: Server::new(config),
        })
    }

    /// Opens memory to requests.
    ///
    /// # Errors
    /// No place, or not memory that can be opened.
    pub fn register(&mut self, what: &Registration) -> Result<Registered, RegisterError> {
        self.regions.register(what)
    }

    /// Closes memory again; `false` if no region has this key. What is under way into it is dropped.
    pub fn deregister(&mut self, rkey: u32) -> bool {
        self.regions.remove(rkey)
    }

    /// Makes a queue pair and tells its number.
    ///
    /// # Errors
    /// No place, or a path MTU that cannot be.
    pub fn connect(&mut self, queue_pair: &QueuePairConfig) -> Result<u32, QueuePairError> {
        if !matches!(queue_pair.mtu, 256 | 512 | 1024 | 2048 | 4096) {
            return Err(QueuePairError::Mtu);
        }
        let index = self.server.queue_pairs.iter().position(Option::is_none).ok_or(QueuePairError::Full)?;
        // Never 0 or 1, which mean other things, and not the number that this place had last.
        self.generation = self.generation % 0xfff + 1;
        let number = self.generation << 12 | index as u32;
        let made = QueuePair::new(number, queue_pair, self.server.config.atomic_depth);
        self.server.queue_pairs[index] = Some(made.map_err(|_| QueuePairError::Addresses)?);
        Ok(number)
    }

    /// Forgets a queue pair; `false` if there is none of this number.
    pub fn disconnect(&mut self, number: u32) -> bool {
        let found = self.queue_pair(number).is_some();
        if found {
            self.server.queue_pairs[(number & 0xfff) as usize] = None;
        }
        found
    }

    /// Keeps the number of a queue pair, and leaves its packets to another responder, which was given that number; `false` if there is none
    /// of it. Packets that come here all the same are dropped ([`Reason::Lent`]): only one of both can know the sequence.
    pub fn lend(&mut self, number: u32) -> bool {
        let queue_pair = self.server.queue_pairs.get_mut((number & 0xfff) as usize).and_then(Option::as_mut);
        let Some(queue_pair) = queue_pair.filter(|queue_pair| queue_pair.number == number) else {
            return false;
        };
        queue_pair.state = QueuePairState::Lent;
        true
    }

    /// The packet that a queue pair expects next: everything before it is done. For a requester that connects again.
    pub fn expected(&self, number: u32) -> Option<Psn> {
        self.queue_pair(number).map(|queue_pair| queue_pair.expected)
    }

    /// How a queue pair stands.
    pub fn state(&self, number: u32) -> Option<QueuePairState> {
        self.queue_pair(number).map(|queue_pair| queue_pair.state)
    }

    /// Messages with an immediate, and sends, that a queue pair may still make.
    pub fn receives(&self, number: u32) -> Option<u32> {
        self.queue_pair(number).map(|queue_pair| queue_pair.receives)
    }

    /// Lets a queue pair make so many more messages with an immediate, or sends.
    pub fn replenish(&mut self, number: u32, receives: u32) {
        if let Some(queue_pair) =
            self.server.queue_pairs.get_mut((number & 0xfff) as usize).and_then(Option::as_mut)
            && queue_pair.number == number
        {
            queue_pair.receives = queue_pair.receives.saturating_add(receives);
        }
    }

    /// What was counted.
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

    /// Takes whole Ethernet frames, in the order they came. Answers go to `out`; acknowledgements of writes once for all
    /// frames of this call. They are gone through twice: the memory of later ones is asked for before earlier ones are executed.
    pub fn take<'a>(
        &mut self,
        frames: impl IntoIterator<Item = &'a [u8], IntoIter: Clone>,
        out: &mut impl Out,
    ) {
        self.server.take(&self.regions, frames, out);
    }

    /// The same for packets that were read, or refused, before: from a UDP socket by [`Packet::parse_udp`].
    pub fn take_parsed<'a>(
        &mut self,
        packets: impl IntoIterator<Item = Result<Packet<'a>, Refusal>>,
        out: &mut impl Out,
    ) {
        self.server.take_parsed(&self.regions, packets, out);
    }
}

/// Numbers that look like no sequence (the finisher of SplitMix64).
fn mix(seed: u64) -> u64 {
    let mut z = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
