//! What links are made of: settings, what is offered to a collector, and what it answered.

use core::fmt;

use wire::roce::{Path, Psn};

/// Regions that a collector may tell of.
pub const REGIONS: usize = 256;

/// Settings of all links.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Config {
    /// Collectors, 1 to 256.
    pub collectors: usize,
    /// Bytes of frames that may wait to be sent, over all collectors.
    pub outbox_bytes: usize,
    /// Frames that may wait to be sent, over all collectors.
    pub outbox_frames: usize,
    /// Operations that a collector may leave unacknowledged; rounded up to a power of two.
    pub retransmit_operations: usize,
    /// Bytes that they may write; rounded up to a power of two.
    pub retransmit_bytes: usize,
    /// Longest message, bytes.
    pub max_message: u32,
    /// Unacknowledged packets in flight to a collector, at most. Halved by each loss, down to 16, and won back.
    pub window: u32,
    /// An acknowledgement is asked for at least once in so many operations, and with the last before a pause.
    pub ack_every: u32,
    /// Without an answer for so long everything unacknowledged is sent again, ns.
    pub timeout: u64,
    /// Without an answer after so many times the connection counts as broken.
    pub retries: u32,
    /// When a collector missed packets, everything to it stops for so long, ns; 0: does not stop.
    pub pause_on_loss: u64,
    /// When a collector or the network says "congestion", everything to it stops for so long, ns.
    pub pause_on_congestion: u64,
    /// Additions of which nobody knows whether they were made when the connection broke.
    pub uncertain_fetch_adds: UncertainFetchAdds,
    /// Where the numbers of queue pairs and packets begin; the same seed gives the same numbers.
    pub seed: u64,
}

/// What to do with additions that were sent and not answered when a connection broke, and the collector cannot say how
/// far it came.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum UncertainFetchAdds {
    /// Make them again. A counter is never too small, which is what a Count-Min estimate promises.
    Again,
    /// Give them up. A counter is never too large.
    GiveUp,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            collectors: 1,
            outbox_bytes: 1 << 20,
            outbox_frames: 4096,
            retransmit_operations: 4096,
            retransmit_bytes: 1 << 20,
            max_message: 1 << 16,
            window: 1024,
            ack_every: 16,
            timeout: 20_000_000,
            retries: 7,
            pause_on_loss: 0,
            pause_on_congestion: 50_000,
            uncertain_fetch_adds: UncertainFetchAdds::Again,
            seed: 0,
        }
    }
}

/// Settings that cannot be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ConfigError {
    /// Not 1 to 256 collectors.
    Collectors,
    /// A size of 0, or too large to number packets by.
    Size(&'static str),
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Collectors => f.write_str("a translator has 1 to 256 collectors"),
            Self::Size(name) => write!(f, "{name} is 0 or too large"),
        }
    }
}

impl core::error::Error for ConfigError {}

impl Config {
    /// Whether links can be made of this.
    ///
    /// # Errors
    /// The first setting that cannot be.
    pub fn check(&self) -> Result<(), ConfigError> {
        if self.collectors == 0 || self.collectors > 256 {
            return Err(ConfigError::Collectors);
        }
        // Packets in flight must be told apart by the sign of a 24-bit difference.
        let good = |value: usize, most: usize| (1..=most).contains(&value);
        let sizes = [
            (good(self.outbox_bytes, 1 << 30), "outbox_bytes"),
            (good(self.outbox_frames, 1 << 24), "outbox_frames"),
            (good(self.retransmit_operations, 1 << 20), "retransmit_operations"),
            (good(self.retransmit_bytes, 1 << 30), "retransmit_bytes"),
            (good(self.max_message as usize, 1 << 30), "max_message"),
            (good(self.window as usize, 1 << 20), "window"),
            (good(self.ack_every as usize, 1 << 20), "ack_every"),
            (self.timeout > 0, "timeout"),
        ];
        match sizes.iter().find(|(good, _)| !good) {
            Some((_, name)) => Err(ConfigError::Size(name)),
            None => Ok(()),
        }
    }
}

/// A queue pair of ours, for the other end to connect to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Offer {
    /// The unreliable one.
    pub unreliable: End,
    /// The reliable one.
    pub reliable: End,
}

/// One end of a queue pair.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct End {
    /// Its number.
    pub queue_pair: u32,
    /// The number of the first packet.
    pub psn: Psn,
}

/// A region of a collector, as it told of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RemoteRegion {
    /// The number by which [`crate::transport::RemoteAddr`] names it, below [`REGIONS`].
    pub region: u16,
    /// The address that it gave the body's first byte.
    pub address: u64,
    /// Bytes of the body.
    pub len: u64,
    /// Its key.
    pub rkey: u32,
}

/// What a collector answered to an [`Offer`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Connection<'a> {
    /// Addresses from us to it.
    pub path: Path,
    /// Payload bytes of a packet, at most: 256, 512, 1024, 2048 or 4096.
    pub mtu: u32,
    /// The number of its unreliable queue pair; without one everything is reliable.
    pub unreliable: Option<u32>,
    /// The number of its reliable queue pair; without one nothing is kept and nothing added.
    pub reliable: Option<u32>,
    /// Additions that may wait for their answer at a time, at least 1.
    pub atomic_depth: u32,
    /// Its regions.
    pub regions: &'a [RemoteRegion],
    /// The packet that it expected next on the last reliable connection of this link, if it still knows: what came
    /// before that is done, and will not be done twice.
    pub executed: Option<Psn>,
}

/// A connection that cannot be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ConnectError {
    /// There is no such collector.
    NoCollector,
    /// Nothing was offered since the last connection.
    NoOffer,
    /// Not 256, 512, 1024, 2048 or 4096.
    Mtu,
    /// Neither an unreliable nor a reliable queue pair.
    NoQueuePair,
    /// A region's number is too large, or its addresses run over the end.
    Region(u16),
    /// One end of the path is IPv4 and the other IPv6.
    Addresses,
}

impl fmt::Display for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoCollector => f.write_str("there is no collector of this number"),
            Self::NoOffer => f.write_str("nothing was offered to this collector since its last connection"),
            Self::Mtu => f.write_str("the path MTU is not 256, 512, 1024, 2048 or 4096"),
            Self::NoQueuePair => f.write_str("the collector named no queue pair"),
            Self::Region(region) => write!(f, "region {region}: number or addresses are too large"),
            Self::Addresses => f.write_str("one end of the path is IPv4 and the other IPv6"),
        }
    }
}

impl core::error::Error for ConnectError {}
