//! Where datagrams come from, as a worker sees it.

use std::net::SocketAddr;

use crate::error::Error;

/// One datagram as it arrived. Borrowed from the source's memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Packet<'a> {
    /// The UDP payload, as much of it as fitted.
    pub data: &'a [u8],
    /// Who sent it.
    pub source: SocketAddr,
    /// When the kernel took it from the network, ns since the epoch.
    pub received: u64,
    /// It was longer than the slot: `data` is its beginning.
    pub truncated: bool,
}

/// What a source did so far. What was sent to it is `datagrams + kernel_drops`.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Stats {
    /// Datagrams handed out.
    pub datagrams: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Datagrams among them that were cut to the size of a slot.
    pub truncated: u64,
    /// Datagrams that the kernel dropped because nobody fetched them in time.
    pub kernel_drops: u64,
    /// Bursts that they came in: `datagrams / bursts` says how well system calls are used.
    pub bursts: u64,
}

/// An input of datagrams: a UDP socket, or a ring shared with the kernel.
///
/// The packets are lent for one call, so that a source may give them back to a ring right after it. Sources whose frames
/// begin at the Ethernet header parse down to the UDP payload themselves, by `wire::frame`.
pub trait Source: Send {
    /// Waits at most `timeout_ms` for datagrams and lends what has come, at least one burst of it, to `take`. Returns how
    /// many there were: 0 after the time-out, in which case `take` was not called.
    ///
    /// # Errors
    /// The system refused; the source may be asked again.
    fn receive(&mut self, timeout_ms: u32, take: &mut dyn FnMut(&[Packet<'_>])) -> Result<usize, Error>;

    /// What happened so far, read freshly from the kernel.
    fn stats(&mut self) -> Stats;

    /// The address listened on.
    fn address(&self) -> SocketAddr;

    /// `"udp"`; for people.
    fn kind(&self) -> &'static str;
}
