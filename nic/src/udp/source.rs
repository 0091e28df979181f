//! UDP receivers as a [`Source`].

use std::net::SocketAddr;
use std::os::fd::AsFd;

use super::{Burst, Receiver};
use crate::error::Error;
use crate::source::{Packet, PacketBatch, Source, Stats};
use crate::sys;

/// A UDP receiver and its burst buffer, as a [`Source`].
#[derive(Debug)]
pub struct Buffered {
    receiver: Receiver,
    burst: Burst,
}

impl Buffered {
    /// Creates a source that receives from `receiver` into `burst`.
    pub fn new(receiver: Receiver, mut burst: Burst) -> Self {
        burst.set_port(receiver.local_addr().port());
        Self { receiver, burst }
    }

    /// Returns the receiver of the socket.
    pub fn receiver(&self) -> &Receiver {
        &self.receiver
    }
}

/// Passes the packets of `burst` to `take`. The receiver has already counted them.
fn deliver(burst: &Burst, take: &mut dyn FnMut(&[Packet<'_>])) {
    let mut batch = PacketBatch::new();
    let mut counted = Stats::default();
    for packet in burst.iter() {
        batch.push(packet, &mut counted, take);
    }
    batch.deliver(&mut counted, take);
}

impl Source for Buffered {
    fn receive(&mut self, timeout_ms: u32, take: &mut dyn FnMut(&[Packet<'_>])) -> Result<usize, Error> {
        let filled = self.receiver.recv(&mut self.burst, timeout_ms)?;
        deliver(&self.burst, take);
        Ok(filled)
    }

    fn is_drained(&self) -> bool {
        self.burst.filled() < self.burst.slots()
    }

    fn stats(&mut self) -> Stats {
        self.receiver.stats()
    }

    fn address(&self) -> SocketAddr {
        self.receiver.local_addr()
    }

    fn kind(&self) -> &'static str {
        "udp"
    }
}

/// Several receivers read by one thread, for ports with little traffic, such as datagrams that XDP passes to the stack.
#[derive(Debug)]
pub struct Group {
    receivers: Vec<Receiver>,
    poll_fds: Vec<libc::pollfd>,
    burst: Burst,
    drained: bool,
}

impl Group {
    /// Creates a source that receives from all of `receivers` into `burst`.
    pub fn new(receivers: Vec<Receiver>, burst: Burst) -> Self {
        let poll_fds = receivers
            .iter()
            .map(|receiver| sys::readable(receiver.as_fd()))
            .collect();
        Self {
            receivers,
            poll_fds,
            burst,
            drained: false,
        }
    }
}

impl Source for Group {
    fn receive(&mut self, timeout_ms: u32, take: &mut dyn FnMut(&[Packet<'_>])) -> Result<usize, Error> {
        sys::poll(&mut self.poll_fds, timeout_ms).map_err(Error::failed("poll", ""))?;
        let mut handed = 0;
        self.drained = true;
        for (receiver, poll_fd) in self.receivers.iter_mut().zip(&self.poll_fds) {
            if poll_fd.revents != 0 {
                handed += receiver.recv(&mut self.burst, 0)?;
                self.drained &= self.burst.filled() < self.burst.slots();
                deliver(&self.burst, take);
            }
        }
        Ok(handed)
    }

    fn is_drained(&self) -> bool {
        self.drained
    }

    fn stats(&mut self) -> Stats {
        let mut sum = Stats::default();
        self.receivers
            .iter_mut()
            .for_each(|receiver| sum += receiver.stats());
        sum
    }

    fn address(&self) -> SocketAddr {
        self.receivers
            .first()
            .map_or_else(|| SocketAddr::from(([0, 0, 0, 0], 0)), Receiver::local_addr)
    }

    fn kind(&self) -> &'static str {
        "udp"
    }
}
