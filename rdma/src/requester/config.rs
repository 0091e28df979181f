//! Settings of the requester, the offer to a collector, and its answer.

use wire::roce::{Path, Psn};

/// Maximum regions of a collector.
pub const REGIONS: usize = 256;

/// Settings of all links.
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
    /// Maximum unacknowledged packets in flight to a collector. Each loss halves the window, down to 16; acknowledgements
    /// grow it again.
    pub window: u32,
    /// Requests an acknowledgement at least once in this many operations, and with the last packet before a pause.
    pub ack_every: u32,
    /// Timeout of a retransmission, ns.
    pub timeout: u64,
    /// Retransmissions without a response until the connection counts as broken.
    pub retries: u32,
    /// Pause of all sending to a collector after it missed packets, ns; 0: no pause.
    pub pause_on_loss: u64,
    /// Pause of all sending to a collector after a congestion notification, ns.
    pub pause_on_congestion: u64,
    /// Policy for additions that may or may not have been executed when the connection broke.
    pub uncertain_fetch_adds: UncertainFetchAdds,
    /// Seed of queue pair numbers and PSNs; the same seed gives the same numbers.
    pub seed: u64,
}

/// The policy for additions that were sent and not acknowledged when a connection broke, if the collector no longer knows which
/// PSN it expected.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum UncertainFetchAdds {
    /// Send them again. A counter is never too small, as a Count-Min estimate requires.
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

impl Config {
    /// Validates the settings.
    ///
    /// # Errors
    /// The first invalid setting.
    pub fn check(&self) -> Result<(), String> {
        if self.collectors == 0 || self.collectors > 256 {
            return Err("a translator has 1 to 256 collectors".to_owned());
        }
        // The sign of a 24-bit difference must order the packets in flight.
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

/// Local queue pairs, for the collector to connect to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Offer {
    /// Local end of the unreliable queue pair.
    pub unreliable: End,
    /// Local end of the reliable queue pair.
    pub reliable: End,
}

/// The address and numbers of one end of a queue pair.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct End {
    /// Number of the queue pair.
    pub queue_pair: u32,
    /// The PSN of the first packet.
    pub psn: Psn,
}

/// A region as its collector announced it.
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

/// A collector's answer to an [`Offer`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Connection<'a> {
    /// Addresses from the requester to the collector.
    pub path: Path,
    /// Path MTU, bytes of payload: 256, 512, 1024, 2048 or 4096.
    pub mtu: u32,
    /// Number of its unreliable queue pair; without one all operations are reliable.
    pub unreliable: Option<u32>,
    /// Number of its reliable queue pair; without one there are no reliable operations and no additions.
    pub reliable: Option<u32>,
    /// Maximum outstanding additions, at least 1.
    pub atomic_depth: u32,
    /// Regions that the collector announces.
    pub regions: &'a [RemoteRegion],
    /// The PSN that it expected next on the last reliable connection of this link, if it still knows: everything before it
    /// is executed and not sent again.
    pub executed: Option<Psn>,
}
