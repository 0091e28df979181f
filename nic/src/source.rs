//! Sources of datagrams: the trait between receive paths and workers.

use std::mem::MaybeUninit;
use std::net::SocketAddr;

use wire::RefusalCounts;

use crate::error::Error;

/// Maximum number of packets delivered at once.
pub(crate) const BURST: usize = 64;

/// A received datagram, borrowed from the source's memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Packet<'a> {
    /// The UDP payload, as many bytes as fit into the slot.
    pub data: &'a [u8],
    /// Address and port of the sender.
    pub source: SocketAddr,
    /// The UDP port it was sent to.
    pub port: u16,
    /// Time at which the kernel received it, ns since the epoch.
    pub received: u64,
    /// True if the datagram was longer than the slot, so that `data` is only its beginning.
    pub truncated: bool,
}

/// Counters of a source. The number of datagrams sent to it is [`datagrams`](Self::datagrams) + [`lost`](Self::lost); each
/// reason of loss has a separate counter.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Stats {
    /// Number of datagrams delivered.
    pub datagrams: u64,
    /// Bytes of the datagrams delivered.
    pub bytes: u64,
    /// Datagrams among them that were truncated to the slot size.
    pub truncated: u64,
    /// Datagrams among them that the kernel suppressed; always 0 for sources that deliver everything they receive.
    pub handled_in_kernel: u64,
    /// Datagrams that the kernel dropped because they were not read in time, or because memory was short.
    pub kernel_drops: u64,
    /// Datagrams dropped because of a wrong UDP checksum: by the kernel, as far as known ([`Receiver::drops`]), or by the reader
    /// of a packet socket. AF_XDP sockets deliver what the NIC accepted, and verify nothing.
    ///
    /// [`Receiver::drops`]: crate::udp::Receiver::drops
    pub bad_checksum: u64,
    /// Frames dropped because the receive ring was full, that is, not read fast enough.
    pub ring_full: u64,
    /// Frames dropped because the fill ring was empty, that is, frames were not returned fast enough.
    pub fill_empty: u64,
    /// Frames without a readable datagram, by [`Refusal::index`](wire::Refusal::index).
    pub refused: RefusalCounts,
    /// Number of bursts: `datagrams / bursts` is the number of datagrams per system call.
    pub bursts: u64,
}

impl Stats {
    /// Returns the number of datagrams sent to the source and not delivered.
    pub fn lost(&self) -> u64 {
        self.kernel_drops
            + self.bad_checksum
            + self.ring_full
            + self.fill_empty
            + self.refused.iter().sum::<u64>()
    }

    /// Returns the difference from `before`, an earlier reading of the same source.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        let mut refused = self.refused;
        for (now, before) in refused.iter_mut().zip(before.refused) {
            *now = now.saturating_sub(before);
        }
        Self {
            datagrams: self.datagrams.saturating_sub(before.datagrams),
            bytes: self.bytes.saturating_sub(before.bytes),
            truncated: self.truncated.saturating_sub(before.truncated),
            handled_in_kernel: self.handled_in_kernel.saturating_sub(before.handled_in_kernel),
            kernel_drops: self.kernel_drops.saturating_sub(before.kernel_drops),
            bad_checksum: self.bad_checksum.saturating_sub(before.bad_checksum),
            ring_full: self.ring_full.saturating_sub(before.ring_full),
            fill_empty: self.fill_empty.saturating_sub(before.fill_empty),
            refused,
            bursts: self.bursts.saturating_sub(before.bursts),
        }
    }
}

impl std::ops::AddAssign for Stats {
    fn add_assign(&mut self, other: Self) {
        self.datagrams += other.datagrams;
        self.bytes += other.bytes;
        self.truncated += other.truncated;
        self.handled_in_kernel += other.handled_in_kernel;
        self.kernel_drops += other.kernel_drops;
        self.bad_checksum += other.bad_checksum;
        self.ring_full += other.ring_full;
        self.fill_empty += other.fill_empty;
        self.refused
            .iter_mut()
            .zip(other.refused)
            .for_each(|(sum, more)| *sum += more);
        self.bursts += other.bursts;
    }
}

/// An input of datagrams: a UDP socket, or a ring shared with the kernel.
///
/// The packets are borrowed for one call, so that a source can return them to a ring right after it. Sources of whole frames
/// parse down to the UDP payload themselves, with `wire::frame`.
pub trait Source: Send {
    /// Waits at most `timeout_ms` for datagrams, and passes the received ones to `take` in one or more batches. Returns their
    /// number; if it is 0, `take` was not called.
    ///
    /// # Errors
    /// The system refused; the call may be repeated.
    fn receive(&mut self, timeout_ms: u32, take: &mut dyn FnMut(&[Packet<'_>])) -> Result<usize, Error>;

    /// Returns whether the latest call of [`Source::receive`] left nothing waiting: it passed on every datagram that had
    /// arrived before it. Otherwise this holds only for those that arrived before the latest one passed on.
    fn is_drained(&self) -> bool;

    /// Returns the counters, read from the kernel now.
    fn stats(&mut self) -> Stats;

    /// Returns the address listened on.
    fn address(&self) -> SocketAddr;

    /// Returns the kind for display: `"udp"`, `"packet"`, `"xdp-generic"`, `"xdp-native"` or `"xdp-zerocopy"`.
    fn kind(&self) -> &'static str;
}

/// Packets collected for delivery. On the stack; elements are uninitialised until pushed.
pub(crate) struct PacketBatch<'a> {
    packets: [MaybeUninit<Packet<'a>>; BURST],
    len: usize,
}

impl<'a> PacketBatch<'a> {
    #[inline]
    pub(crate) fn new() -> Self {
        Self {
            packets: [const { MaybeUninit::uninit() }; BURST],
            len: 0,
        }
    }

    /// Adds a packet, and delivers all to `take` when the batch is full. Returns the number delivered.
    #[inline]
    pub(crate) fn push(
        &mut self,
        packet: Packet<'a>,
        stats: &mut Stats,
        take: &mut dyn FnMut(&[Packet<'_>]),
    ) -> usize {
        stats.bytes += packet.data.len() as u64;
        stats.truncated += u64::from(packet.truncated);
        self.packets[self.len].write(packet);
        self.len += 1;
        if self.len == BURST {
            self.deliver(stats, take)
        } else {
            0
        }
    }

    /// Lends the collected packets to `take`, if there are any. Returns their number.
    #[inline]
    pub(crate) fn deliver(&mut self, stats: &mut Stats, take: &mut dyn FnMut(&[Packet<'_>])) -> usize {
        let len = std::mem::take(&mut self.len);
        if len > 0 {
            stats.datagrams += len as u64;
            // SAFETY: the first `len` were written by `push`.
            take(unsafe { self.packets[..len].assume_init_ref() });
        }
        len
    }
}
