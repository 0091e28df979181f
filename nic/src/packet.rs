//! Frames from AF_PACKET: a ring shared with the kernel, which copies frames into it that a filter selects (TPACKET_V3).
//!
//! For interfaces on which XDP is in use or refused. The network stack processes the same frames, too: so that it does
//! not answer each datagram with "port unreachable", a UDP socket is bound to every port, with a filter that drops everything. Its drops
//! appear as `InErrors` of UDP in the system's statistics; they are a cost of this receive path, like the stack's own work on
//! each frame.
//!
//! The kernel reassembles fragments of IPv4 before they reach the ring. Fragments of IPv6 are not: the first of each
//! datagram, which names the port, is counted as refused.

mod filter;
mod ring;
#[cfg(test)]
mod tests;

pub use ring::Ring;

/// Settings of a [`Ring`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Options {
    /// The UDP ports to receive from.
    pub ports: Vec<u16>,
    /// Bytes of the ring, rounded to a multiple of a block (1 MiB), at least two.
    pub ring: usize,
    /// Binds UDP sockets that drop everything to the ports; without them, the stack answers datagrams with "port unreachable".
    pub hold_ports: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            ports: Vec::new(),
            ring: 32 << 20,
            hold_ports: true,
        }
    }
}
