//! Frames from AF_PACKET: a ring shared with the kernel, which copies there what a filter picks (TPACKET_V3).
//!
//! For interfaces on which XDP is in use or refused. The network stack processes the same frames, too: so that it does
//! not answer each datagram with "port unreachable", a UDP socket holds every port, with a filter that keeps nothing. Its drops
//! appear as `InErrors` of UDP in the system's statistics; they are the price of this receive path, as is the stack's own work on each
//! frame.
//!
//! Fragments of IPv4 are put together by the kernel before the ring gets them. Fragments of IPv6 are not: the first of each
//! datagram, which names the port, is counted as refused.

mod filter;
mod ring;
#[cfg(test)]
mod tests;

pub use ring::Ring;

/// How a [`Ring`] is set up.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Options {
    /// The UDP ports whose datagrams are wanted.
    pub ports: Vec<u16>,
    /// Bytes of the ring, moved to a multiple of a block (1 MiB), at least two.
    pub ring: usize,
    /// Holds the ports with UDP sockets that keep nothing; without, the stack answers datagrams with "port unreachable".
    pub hold_ports: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self { ports: Vec::new(), ring: 32 << 20, hold_ports: true }
    }
}
