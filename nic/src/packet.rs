//! Receives frames with AF_PACKET: a ring shared with the kernel, into which it copies the frames that a BPF filter selects
//! (TPACKET_V3).
//!
//! For interfaces on which XDP is in use or refused. The network stack processes the same frames, too. To keep it from
//! answering each datagram with "port unreachable", a UDP socket is bound to every port, with a filter that drops everything.
//! These drops appear as `InErrors` of UDP in the system's statistics. They are a cost of this receive path, like the stack's
//! own work per frame.
//!
//! The kernel reassembles IPv4 fragments before they reach the ring, but not IPv6 fragments: the first fragment of each
//! datagram, which has the port, is counted as refused.

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
    /// Bytes of the ring, rounded down to a multiple of a block (1 MiB), but at least two blocks.
    pub ring: usize,
    /// Binds UDP sockets that drop everything to the ports. Without them, the stack answers datagrams with "port unreachable".
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
