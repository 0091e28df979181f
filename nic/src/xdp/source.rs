//! Some queues of an interface as a [`Source`].

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

use wire::Refusal;

use super::BindMode;
use super::memory::Umem;
use super::socket::Socket;
use crate::error::Error;
use crate::pace::Pace;
use crate::source::{BURST, Packet, PacketBatch, Source, Stats};
use crate::{sys, time};

/// Bursts taken from one queue before the next queue.
const BURSTS_PER_TURN: usize = 4;
/// A receive that found this many frames need not wait for more.
const MANY: usize = BURST * BURSTS_PER_TURN;
/// Prefetch distance, frames.
const AHEAD: u32 = 6;

/// AF_XDP sockets of one or more queues, read by one thread.
#[derive(Debug)]
pub struct XskSource {
    umem: Arc<Umem>,
    sockets: Vec<Socket>,
    poll_fds: Vec<libc::pollfd>,
    pace: Pace,
    bind_mode: BindMode,
    interface: String,
    stats: Stats,
}

impl XskSource {
    pub(super) fn new(
        umem: Arc<Umem>,
        sockets: Vec<Socket>,
        bind_mode: BindMode,
        interface: &str,
        batch_wait: Duration,
    ) -> Self {
        let poll_fds = sockets
            .iter()
            .map(|socket| sys::readable(socket.as_fd()))
            .collect();
        let interface = interface.to_owned();
        Self {
            umem,
            sockets,
            poll_fds,
            pace: Pace::new(batch_wait),
            bind_mode,
            interface,
            stats: Stats::default(),
        }
    }

    /// The sockets with the queue of each.
    pub(crate) fn sockets(&self) -> impl Iterator<Item = (u32, BorrowedFd<'_>)> {
        self.sockets.iter().map(|socket| (socket.queue, socket.as_fd()))
    }

    /// Passes on the received frames, queue by queue.
    fn sweep(&mut self, take: &mut dyn FnMut(&[Packet<'_>])) -> usize {
        let Self {
            umem, sockets, stats, ..
        } = self;
        let mut found = 0;
        for socket in sockets {
            for _ in 0..BURSTS_PER_TURN {
                let count = socket.receive.available(BURST as u32);
                if count == 0 {
                    break;
                }
                deliver_burst(umem, socket, count, stats, take);
                found += count as usize;
                if (count as usize) < BURST {
                    break;
                }
            }
        }
        found
    }

    /// Waits for something to read.
    fn wait(&mut self, timeout_ms: u32) -> Result<(), Error> {
        let failed = |source| Error::new("poll", &self.interface, source);
        if sys::poll(&mut self.poll_fds, timeout_ms).map_err(failed)? > 0 {
            return Ok(());
        }
        // A removed interface does not wake the poll (`xsk_poll` checks the rings only); its error must be read
        // explicitly.
        let Some(error) = self.sockets.iter().find_map(sys::pending_error) else {
            return Ok(());
        };
        let gone = error.raw_os_error() == Some(libc::ENETDOWN);
        let error = Error::new("receive", &self.interface, error);
        Err(if gone {
            error.with_advice("the interface is gone".to_owned())
        } else {
            error
        })
    }
}

/// Lends the next `count` frames of a queue (at most [`BURST`]) and returns them to the kernel.
#[inline]
fn deliver_burst(
    umem: &Umem,
    socket: &mut Socket,
    count: u32,
    stats: &mut Stats,
    take: &mut dyn FnMut(&[Packet<'_>]),
) {
    let received = time::now();
    let mut frames = [0_u64; BURST];
    {
        let mut batch = PacketBatch::new();
        for index in 0..AHEAD.min(count) {
            fetch(umem, socket.receive.peek(index));
        }
        for (index, frame) in (0..count).zip(&mut frames) {
            if index + AHEAD < count {
                fetch(umem, socket.receive.peek(index + AHEAD));
            }
            let libc::xdp_desc { addr, len, .. } = socket.receive.peek(index);
            *frame = umem.frame_of(addr);
            // SAFETY: the kernel passed us this frame; it is returned below, after `batch` is dropped.
            let bytes = unsafe { umem.bytes(addr, len) }.unwrap_or(&[]);
            match wire::frame::datagram(bytes) {
                Ok(datagram) => {
                    let source = SocketAddr::new(datagram.src, datagram.src_port);
                    let port = datagram.dst_port;
                    let packet = Packet {
                        data: datagram.payload,
                        source,
                        port,
                        received,
                        truncated: false,
                    };
                    batch.push(packet, stats, take);
                }
                Err(refusal) => refuse(stats, refusal),
            }
        }
        batch.deliver(stats, take);
    }
    stats.bursts += 1;
    socket.receive.release(count);
    // The ring has entries for all of them, whatever the kernel has released so far.
    socket.fill.refill(&frames[..count as usize]);
    socket.wake_if_needed();
}

/// Prefetches the headers of a frame.
#[inline]
fn fetch(umem: &Umem, frame: libc::xdp_desc) {
    // SAFETY: as in `deliver_burst`.
    if let Some([first, ..]) = unsafe { umem.bytes(frame.addr, frame.len) } {
        memory::prefetch(first);
    }
}

#[cold]
fn refuse(stats: &mut Stats, refusal: Refusal) {
    stats.refused[refusal.index()] += 1;
}

impl Source for XskSource {
    fn receive(&mut self, timeout_ms: u32, take: &mut dyn FnMut(&[Packet<'_>])) -> Result<usize, Error> {
        if let Some(wait) = self.pace.wait_first() {
            time::sleep(wait);
        }
        let before = self.stats.datagrams;
        let mut found = self.sweep(take);
        if found == 0 && timeout_ms > 0 {
            self.wait(timeout_ms)?;
            found = self.sweep(take);
        }
        self.pace.note(found, MANY, time::monotonic());
        Ok((self.stats.datagrams - before) as usize)
    }

    fn stats(&mut self) -> Stats {
        let mut stats = self.stats;
        for counted in self.sockets.iter().filter_map(Socket::statistics) {
            // Without a free frame both counters increase, in the modes that copy. In zero-copy mode the driver retries instead:
            // then the first counter does not count frames, and the NIC counts its own drops.
            let starved = match self.bind_mode {
                BindMode::ZeroCopy => 0,
                BindMode::Copy | BindMode::Generic => {
                    counted.rx_fill_ring_empty_descs.min(counted.rx_dropped)
                }
            };
            stats.fill_empty += starved;
            stats.kernel_drops += counted.rx_dropped - starved;
            stats.ring_full += counted.rx_ring_full;
        }
        stats
    }

    fn address(&self) -> SocketAddr {
        SocketAddr::new(IpAddr::V6(Ipv6Addr::UNSPECIFIED), 0)
    }

    fn kind(&self) -> &'static str {
        self.bind_mode.kind()
    }
}
