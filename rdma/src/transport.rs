//! The interface between the translator, which decides on operations, and the transport, which carries them to memory.

use core::fmt;

/// Maximum bytes of one write that a [`Transport`] accepts.
pub const MAX_WRITE: usize = 1 << 16;

/// A region of a collector's memory, as announced in the exchange.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct RemoteAddr {
    /// Number of the collector.
    pub collector: u8,
    /// Number of the collector's region.
    pub region: u16,
}

/// The operations that a transport accepts now, until something is acknowledged or sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Credit {
    /// Number of operations that are accepted.
    pub messages: u32,
    /// Bytes of the operations' data.
    pub bytes: u64,
}

impl Credit {
    /// No credit: paused, broken, or not connected.
    pub const NONE: Self = Self {
        messages: 0,
        bytes: 0,
    };
    /// Credit without a limit.
    pub const UNLIMITED: Self = Self {
        messages: u32::MAX,
        bytes: u64::MAX,
    };

    /// Returns whether it suffices for `messages` operations with `bytes` of data in total.
    #[inline(always)]
    pub fn covers(self, messages: u32, bytes: u64) -> bool {
        self.messages >= messages && self.bytes >= bytes
    }
}

wire::named! {
    /// The reason why a transport did not accept an operation. Nothing of it was done.
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
    #[repr(u8)]
    pub enum Blocked, name {
        /// The maximum of outstanding operations is reached.
        Full => "full",
        /// The collector requested a pause, or its memory does not keep up.
        Paused => "paused",
        /// No connection to this collector.
        Broken => "broken",
        /// This collector has no such region, or the region does not permit the access.
        NoRegion => "no_region",
        /// The bytes do not lie within the region, or the address of a counter is not aligned.
        OutOfRegion => "out_of_region",
    }
}

impl Blocked {
    /// Returns whether the same operation can succeed later.
    pub const fn is_transient(self) -> bool {
        matches!(self, Self::Full | Self::Paused | Self::Broken)
    }
}

impl core::error::Error for Blocked {}

impl fmt::Display for Blocked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Carries operations to memory: RoCEv2 frames in software, an RDMA device, or a model of memory in tests.
///
/// Reliable operations of one collector are executed in the order of the calls; so are unreliable ones, unless they are lost. There is
/// no order between reliable and unreliable operations. The translator checks [`Transport::credit`] before it begins a report that takes
/// several operations: an idle transport should have credit for [`Transport::MIN_MESSAGES`].
pub trait Transport {
    /// Minimum credit of an idle transport, operations: the batches that the longest Append report can fill.
    const MIN_MESSAGES: u32 = 256;

    /// Returns the operations, and bytes of their data, that this collector accepts now, both together; none while paused.
    /// `reliable` is as in [`Transport::write`].
    fn credit(&self, collector: u8, reliable: bool) -> Credit;

    /// Returns whether this collector accepts `messages` operations now, with `bytes` of data in total. If so, it accepts all of
    /// them.
    #[inline(always)]
    fn has_credit(&self, collector: u8, messages: u32, bytes: u64, reliable: bool) -> bool {
        self.credit(collector, reliable).covers(messages, bytes)
    }

    /// Gives up unacknowledged operations for a region whose memory is gone: at the next connection to its collector they are not
    /// written to the memory that replaces it.
    fn give_up(&mut self, _region: RemoteAddr) {}

    /// Returns whether this collector is connected. Without a connection there is no credit either, but not because of load:
    /// drops are counted separately.
    fn is_connected(&self, _collector: u8) -> bool {
        true
    }

    /// Writes `data` at `offset` of the region's body. With `reliable` the write goes to a reliable queue pair and is retransmitted until it
    /// is acknowledged; otherwise the network may lose it. An immediate value notifies the collector's CPU, also without data.
    ///
    /// # Errors
    /// [`Blocked`]; nothing was done.
    fn write(
        &mut self,
        to: RemoteAddr,
        offset: u64,
        data: &[u8],
        immediate: Option<u32>,
        reliable: bool,
    ) -> Result<(), Blocked>;

    /// Adds to the u64 (native to the collector) at `offset`, modulo 2^64. Atomic and always reliable. An immediate value notifies the
    /// collector's CPU after the addition.
    ///
    /// # Errors
    /// [`Blocked`]; nothing was done.
    fn add(&mut self, to: RemoteAddr, offset: u64, delta: u64, immediate: Option<u32>)
    -> Result<(), Blocked>;
}
