//! Where operations go: the seam between what the translator decides and what carries it to memory.

use core::fmt;

/// Most bytes of one write: what is larger is no operation that a [`Transport`] takes.
pub const MAX_WRITE: usize = 1 << 16;

/// A region of a collector's memory, as the exchange told it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct RemoteAddr {
    /// Which collector.
    pub collector: u8,
    /// Which of its regions.
    pub region: u16,
}

/// What a transport takes now, until something was acknowledged or sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Credit {
    /// Operations.
    pub messages: u32,
    /// Bytes of their data.
    pub bytes: u64,
}

impl Credit {
    /// None: paused, broken, or not connected.
    pub const NONE: Self = Self { messages: 0, bytes: 0 };
    /// No limit.
    pub const UNLIMITED: Self = Self { messages: u32::MAX, bytes: u64::MAX };

    /// Does this fit?
    #[inline(always)]
    pub fn covers(self, messages: u32, bytes: u64) -> bool {
        self.messages >= messages && self.bytes >= bytes
    }
}

/// Why an operation was not taken. Nothing of it was done.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum Blocked {
    /// Everything that may be outstanding is.
    Full,
    /// The collector asked for a pause, or its memory does not keep up.
    Paused,
    /// There is no connection to this collector now.
    Broken,
    /// This collector has no such region, or none with this right.
    NoRegion,
    /// The bytes do not lie within the region, or the address of a counter is not aligned.
    OutOfRegion,
}

impl Blocked {
    /// The reason as a word.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::Paused => "paused",
            Self::Broken => "broken",
            Self::NoRegion => "no_region",
            Self::OutOfRegion => "out_of_region",
        }
    }

    /// May the same operation be taken later?
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

/// What carries operations to memory: RoCEv2 frames of our own making, an RDMA device, a model of memory in tests.
///
/// Operations of one collector that are kept are done in the order in which they were given; the others too, unless they are lost.
/// Between kept ones and others there is no order. The translator asks for [`Transport::credit`] before it begins what takes several
/// operations: a transport that has no more than its outstanding operations to wait for should have room for [`Transport::MIN_MESSAGES`].
pub trait Transport {
    /// Operations for which an idle transport must have room at once: the batches that the longest Append report can fill.
    const MIN_MESSAGES: u32 = 256;

    /// Operations, and bytes of their data, that this collector takes now, both together; none while paused. `keep` as in
    /// [`Transport::write`].
    fn credit(&self, collector: u8, keep: bool) -> Credit;

    /// Does this collector take so many operations now, with so many bytes of data between them? What says yes takes them all.
    #[inline(always)]
    fn has_credit(&self, collector: u8, messages: u32, bytes: u64, keep: bool) -> bool {
        self.credit(collector, keep).covers(messages, bytes)
    }

    /// The memory of this region is gone: what is kept for it and was not acknowledged is given up when its collector is connected
    /// again, and not written to the memory that comes in its place.
    fn give_up(&mut self, _place: RemoteAddr) {}

    /// Is this collector there? While it is not, there is no room either, but not because of load: what that costs is counted apart.
    fn is_connected(&self, _collector: u8) -> bool {
        true
    }

    /// Writes `data` at `offset` of the region's body. `keep`: it must arrive (a reliable queue pair; kept until it was acknowledged);
    /// otherwise the network may lose it. With an immediate value the collector's CPU is told. No data and an immediate is only that.
    ///
    /// # Errors
    /// Nothing was done.
    fn write(
        &mut self,
        place: RemoteAddr,
        offset: u64,
        data: &[u8],
        immediate: Option<u32>,
        keep: bool,
    ) -> Result<(), Blocked>;

    /// Adds to the u64 (native to the collector) at `offset`, modulo 2^64. Atomic, and always kept. With an immediate value the
    /// collector's CPU is told after it was done.
    ///
    /// # Errors
    /// Nothing was done.
    fn add(
        &mut self,
        place: RemoteAddr,
        offset: u64,
        delta: u64,
        immediate: Option<u32>,
    ) -> Result<(), Blocked>;
}
