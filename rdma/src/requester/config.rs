//! Settings of the RoCEv2 requester, and the two messages of its connection setup: its [`Offer`] and the collector's
//! [`Connection`].

use wire::roce::{Path, Psn};

/// Maximum regions of a collector.
pub const REGIONS: usize = 256;

/// Settings that apply to the links of all collectors.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Config {
    /// Number of collectors, 1 to 256.
    pub collectors: usize,
    /// Capacity of the outbox over all collectors, bytes of frames.
    pub outbox_bytes: usize,
    /// Capacity of the outbox over all collectors, frames.
    pub outbox_frames: usize,
    /// Capacity of a collector's retransmit buffer, operations; rounded up to a power of two.
    pub retransmit_operations: usize,
    /// Capacity of a collector's retransmit buffer, bytes of data; rounded up to a power of two.
    pub retransmit_bytes: usize,
    /// Maximum length of a message, bytes.
    pub max_message: u32,
    /// Maximum unacknowledged packets in flight to a collector. Each loss halves the congestion window, but not below 16;
    /// acknowledgements grow it back to this value.
    pub window: u32,
    /// Operations between acknowledgement requests. The last packet before a pause always requests one.
    pub ack_every: u32,
    /// Timeout of a retransmission, ns.
    pub timeout: u64,
    /// Consecutive timeouts without a response before the connection counts as broken.
    pub retries: u32,
    /// Pause in sending to a collector after it reports missing packets, ns; 0: no pause.
    pub pause_on_loss: u64,
    /// Pause in sending to a collector after a congestion notification packet (CNP), ns.
    pub pause_on_congestion: u64,
    /// Policy for fetch-and-adds with an unknown outcome when the connection breaks.
    pub uncertain_fetch_adds: UncertainFetchAdds,
    /// Seed of queue pair numbers and PSNs; the same seed gives the same numbers.
    pub seed: u64,
}

/// The policy for fetch-and-adds that were sent but not acknowledged when a connection broke, if the collector no longer
/// knows the PSN that it expected.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum UncertainFetchAdds {
    /// Send them again. A counter is never too small, which the one-sided error of Count-Min needs.
    Again,
    /// Drop them. A counter is never too large.
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

impl Config {
    /// Validates the settings.
    ///
    /// # Errors
    /// The first invalid setting.
    pub fn check(&self) -> Result<(), String> {
        if self.collectors == 0 || self.collectors > 256 {
            return Err("a translator has 1 to 256 collectors".to_owned());
        }
        // PSNs have 24 bits. A small window lets the sign of a PSN difference order the packets in flight.
        let sizes = [
            (self.outbox_bytes, 1 << 30, "outbox_bytes"),
            (self.outbox_frames, 1 << 24, "outbox_frames"),
            (self.retransmit_operations, 1 << 20, "retransmit_operations"),
            (self.retransmit_bytes, 1 << 30, "retransmit_bytes"),
            (self.max_message as usize, 1 << 30, "max_message"),
            (self.window as usize, 1 << 20, "window"),
            (self.ack_every as usize, 1 << 20, "ack_every"),
        ];
        for (size, most, name) in sizes {
            if size == 0 || size > most {
                return Err(format!("{name} is 0 or too large"));
            }
        }
        if self.timeout == 0 {
            return Err("timeout is 0 or too large".to_owned());
        }
        Ok(())
    }
}

/// The requester's queue pairs, which a collector connects to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Offer {
    /// Local end of the unreliable queue pair.
    pub unreliable: End,
    /// Local end of the reliable queue pair.
    pub reliable: End,
}

/// One end of a queue pair: its number and its first PSN.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct End {
    /// Number of the queue pair.
    pub queue_pair: u32,
    /// The PSN of the first packet.
    pub psn: Psn,
}

/// A memory region that a collector announces.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RemoteRegion {
    /// Number of the region in [`crate::transport::RemoteAddr`], below [`REGIONS`].
    pub region: u16,
    /// Virtual address of the body's first byte.
    pub address: u64,
    /// Bytes of the body.
    pub len: u64,
    /// R_Key of the region.
    pub rkey: u32,
}

/// A collector's reply to an [`Offer`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Connection<'a> {
    /// Addresses from the requester to the collector.
    pub path: Path,
    /// Path MTU, bytes of payload: 256, 512, 1024, 2048 or 4096.
    pub mtu: u32,
    /// The collector's unreliable queue pair (UC). Without it, all operations use the reliable one.
    pub unreliable: Option<u32>,
    /// The collector's reliable queue pair (RC). Without it, reliable operations and fetch-and-adds are refused.
    pub reliable: Option<u32>,
    /// Maximum outstanding fetch-and-adds, at least 1.
    pub atomic_depth: u32,
    /// Regions that the collector announces.
    pub regions: &'a [RemoteRegion],
    /// The PSN that the collector expected next on the last reliable connection, if it still knows it. Everything before it
    /// is executed and is not sent again.
    pub executed: Option<Psn>,
}
