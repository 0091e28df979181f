//! The interface between the DTA translator, which decides on RDMA operations, and the transport that carries them to
//! collector memory.

use core::fmt;

/// Maximum bytes of one write that a [`Transport`] accepts.
pub const MAX_WRITE: usize = 1 << 16;

/// A memory region of a collector, as announced in the connection setup.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct RemoteAddr {
    /// Number of the collector.
    pub collector: u8,
    /// Number of the collector's region.
    pub region: u16,
}

/// The operations that a transport accepts now. It grows again when operations are sent or acknowledged.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Credit {
    /// Number of operations accepted.
    pub messages: u32,
    /// Bytes of data accepted, over all operations.
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

    /// Returns whether the credit covers `messages` operations with `bytes` of data in total.
    #[inline(always)]
    pub fn covers(self, messages: u32, bytes: u64) -> bool {
        self.messages >= messages && self.bytes >= bytes
    }
}

wire::named! {
    /// The reason why a transport refused an operation. The operation had no effect.
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
    #[repr(u8)]
    pub enum Blocked, name {
        /// Too many operations are outstanding.
        Full => "full",
        /// Sending is paused, or the collector's memory does not keep up.
        Paused => "paused",
        /// The collector is not connected.
        Broken => "broken",
        /// The collector has no such region, or the region does not permit the access.
        NoRegion => "no_region",
        /// Some bytes lie outside the region, or a counter's address is not aligned.
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

/// Carries RDMA operations to memory: as RoCEv2 frames in software, through an RDMA device, or into a model in tests.
///
/// Reliable operations of one collector are executed in call order. Unreliable ones are too, except that some may be lost.
/// Reliable and unreliable operations are not ordered with each other. The translator checks [`Transport::credit`] before a
/// report that needs several operations; an idle transport should have credit for [`Transport::MIN_MESSAGES`].
pub trait Transport {
    /// Operations that an idle transport must accept: as many batches as the longest Append report can fill.
    const MIN_MESSAGES: u32 = 256;

    /// Returns how many operations, with how many bytes in total, this collector accepts now; none while paused. `reliable`
    /// is as in [`Transport::write`].
    fn credit(&self, collector: u8, reliable: bool) -> Credit;

    /// Returns whether this collector accepts all of `messages` operations with `bytes` of data in total now.
    #[inline(always)]
    fn has_credit(&self, collector: u8, messages: u32, bytes: u64, reliable: bool) -> bool {
        self.credit(collector, reliable).covers(messages, bytes)
    }

    /// Drops unacknowledged operations for a region whose memory is gone, so that they do not reach the memory that
    /// replaces it after the next connection.
    fn give_up(&mut self, _region: RemoteAddr) {}

    /// Returns whether this collector is connected. Callers use it to count drops without a connection separately from
    /// drops under load.
    fn is_connected(&self, _collector: u8) -> bool {
        true
    }

    /// Writes `data` at byte `offset` of the region. A reliable write is retransmitted until it is acknowledged; an
    /// unreliable one may be lost. An immediate value notifies the collector's CPU, even if `data` is empty.
    ///
    /// # Errors
    /// [`Blocked`] if the write was refused; it had no effect.
    fn write(
        &mut self,
        to: RemoteAddr,
        offset: u64,
        data: &[u8],
        immediate: Option<u32>,
        reliable: bool,
    ) -> Result<(), Blocked>;

    /// Adds `delta` to the `u64` (in the collector's byte order) at byte `offset`, modulo 2^64. The addition is atomic and
    /// always reliable. An immediate value notifies the collector's CPU after it.
    ///
    /// # Errors
    /// [`Blocked`] if the addition was refused; it had no effect.
    fn add(&mut self, to: RemoteAddr, offset: u64, delta: u64, immediate: Option<u32>)
    -> Result<(), Blocked>;
}
