//! UDP sockets that receive and send many datagrams per system call (`recvmmsg`, `sendmmsg`).
//!
//! The speed of a receiver depends on the number of datagrams per call. One that calls again at once gets two or three per
//! call, and the sender spends time waking it. So a receiver that gets few datagrams at a high rate waits briefly
//! ([`Options::batch_wait`]) before it calls again.

mod arrivals;
mod burst;
mod drops;
mod receiver;
mod send;
mod sender;
mod socket;
mod source;
#[cfg(test)]
mod tests;

use std::time::Duration;

pub use burst::{Burst, DEFAULT_SLOT_SIZE, DEFAULT_SLOTS, JUMBO_SLOT_SIZE};
pub use drops::Drops;
pub use receiver::Receiver;
pub use send::SendOutcome;
pub use sender::{SEGMENTS_PER_CALL, Sender};
pub(crate) use socket::any_address;
pub use source::{Buffered, Group};

/// Maximum of [`Options::batch_wait`], 200 us.
pub const MAX_BATCH_WAIT: Duration = Duration::from_micros(200);

/// Settings of a [`Receiver`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Options {
    /// Bytes of datagrams that the kernel queues until they are read. A burst of 300-byte reports at 1 M/s that has to wait 50
    /// ms needs about 40 MB, because the kernel also counts its overhead, about 500 bytes per datagram. More than
    /// `net.core.rmem_max` needs `CAP_NET_ADMIN`; see [`Receiver::warning`].
    pub recv_buffer: usize,
    /// Time to wait for more datagrams after few arrived at a high rate; at most [`MAX_BATCH_WAIT`], 0 disables waiting. The
    /// kernel adds the thread's timer slack, 50 us by default. At a low rate no datagram is delayed.
    pub batch_wait: Duration,
    /// Lets several sockets share the port; the kernel distributes senders over them.
    pub reuse_port: bool,
    /// Receives datagrams of one sender and one length merged in one buffer, as the NIC's driver or the sender's kernel merged
    /// them (UDP GRO), which is far cheaper than one by one. Needs CAP_BPF: the kernel counts a dropped buffer as one datagram,
    /// so a filter must count instead. Without CAP_BPF, datagrams are received one by one. The filter also distinguishes wrong
    /// checksums from a full buffer ([`Receiver::drops`]). The burst must come from [`Receiver::burst`].
    pub merge: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            recv_buffer: 16 << 20,
            batch_wait: Duration::from_micros(50),
            reuse_port: false,
            merge: false,
        }
    }
}

/// Size of the kernel's receive buffer, as requested and as granted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RecvBuffer {
    /// Bytes requested with [`Options::recv_buffer`].
    pub requested: usize,
    /// Bytes that the kernel granted.
    pub granted: usize,
}
