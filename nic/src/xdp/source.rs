//! A [`Source`] that reads one or more AF_XDP queues of an interface, and merges their frames by receive time.

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

/// Bursts per queue that one sweep reads at most.
const BURSTS_PER_TURN: usize = 4;
/// If a receive call finds this many frames, it need not wait for more.
const MANY: usize = BURST * BURSTS_PER_TURN;
/// Number of frames ahead of the current one that are prefetched.
const AHEAD: u32 = 6;
/// Bytes of a stamp: the time at which the steering program redirected the frame (monotonic clock, ns), then [`MARK`].
pub(super) const STAMP: u64 = 16;
/// Magic number that identifies a stamp; equals `MARK` in `xdp/src/steer/steer.bpf.c`.
const MARK: u64 = 0x686f_7077_6973_6521;

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
    /// The next frame of each socket.
    heads: Vec<Head>,
    picked: [Picked; BURST],
    drained: bool,
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
        let heads = vec![Head::default(); sockets.len()];
        Self {
            umem,
            sockets,
            poll_fds,
            pace: Pace::new(batch_wait),
            bind_mode,
            interface,
            stats: Stats::default(),
            heads,
            picked: [Picked::NONE; BURST],
            drained: false,
        }
    }

    /// Returns (queue, socket) for each socket.
    pub(crate) fn sockets(&self) -> impl Iterator<Item = (u32, BorrowedFd<'_>)> {
        self.sockets.iter().map(|socket| (socket.queue, socket.as_fd()))
    }

    /// Passes the received frames to `take`; frames of several queues are ordered by receive time.
    fn sweep(&mut self, take: &mut dyn FnMut(&[Packet<'_>])) -> usize {
        let mut total = 0;
        for _ in 0..BURSTS_PER_TURN * self.sockets.len() {
            let clock = Clock::read();
            let count = self.pick(&clock);
            if count > 0 {
                self.deliver_picked(&clock, count, take);
                self.give_back(count);
            }
            total += count;
            self.drained = count < BURST;
            if self.drained {
                break;
            }
        }
        total
    }

    /// Picks the next frames of all queues, at most [`BURST`], the earliest first. Returns their number.
    fn pick(&mut self, clock: &Clock) -> usize {
        let Self {
            umem,
            sockets,
            heads,
            picked,
            ..
        } = self;
        for (socket, head) in sockets.iter_mut().zip(&mut *heads) {
            *head = Head {
                available: socket.receive.available(BURST as u32),
                ..Head::default()
            };
            (0..AHEAD.min(head.available)).for_each(|index| fetch(umem, socket.receive.peek(index)));
            head.read(umem, socket, clock);
        }
        let mut count = 0;
        while let Some((queue, limit)) = earliest(heads) {
            let head = &mut heads[queue];
            let socket = &sockets[queue];
            while head.at <= limit && head.index < head.available && count < BURST {
                picked[count] = Picked {
                    frame: socket.receive.peek(head.index),
                    received: head.at,
                    queue: queue as u32,
                };
                count += 1;
                head.index += 1;
                head.read(umem, socket, clock);
            }
            if count == BURST {
                break;
            }
        }
        count
    }

    /// Lends the datagrams of the picked frames to `take`.
    #[inline]
    fn deliver_picked(&mut self, clock: &Clock, count: usize, take: &mut dyn FnMut(&[Packet<'_>])) {
        let Self {
            umem, picked, stats, ..
        } = self;
        let mut batch = PacketBatch::new();
        for picked in &picked[..count] {
            let libc::xdp_desc { addr, len, .. } = picked.frame;
            // SAFETY: the kernel passed us this frame; our caller returns it after `batch` is dropped.
            let bytes = unsafe { umem.bytes(addr, len) }.unwrap_or(&[]);
            match wire::frame::datagram(bytes) {
                Ok(datagram) => {
                    let source = SocketAddr::new(datagram.src, datagram.src_port);
                    let port = datagram.dst_port;
                    let packet = Packet {
                        data: datagram.payload,
                        source,
                        port,
                        received: clock.since_epoch(picked.received),
                        truncated: false,
                    };
                    batch.push(packet, stats, take);
                }
                Err(refusal) => refuse(stats, refusal),
            }
        }
        batch.deliver(stats, take);
        stats.bursts += 1;
    }

    /// Returns the picked frames to the kernel.
    fn give_back(&mut self, count: usize) {
        let Self {
            umem,
            sockets,
            picked,
            ..
        } = self;
        let mut frames = [0_u64; BURST];
        for run in picked[..count].chunk_by(|frame, next| frame.queue == next.queue) {
            let Some(socket) = run
                .first()
                .and_then(|first| sockets.get_mut(first.queue as usize))
            else {
                continue;
            };
            for (frame, picked) in frames.iter_mut().zip(run) {
                *frame = umem.frame_of(picked.frame.addr);
            }
            socket.receive.release(run.len() as u32);
            // The ring has entries for all of them, whatever the kernel has released so far.
            socket.fill.refill(&frames[..run.len()]);
            socket.wake_if_needed();
        }
    }

    /// Waits until a queue has frames, or the timeout expires.
    fn wait(&mut self, timeout_ms: u32) -> Result<(), Error> {
        let ready = sys::poll(&mut self.poll_fds, timeout_ms);
        if ready.map_err(Error::failed("poll", &self.interface))? > 0 {
            return Ok(());
        }
        // A removed interface does not wake the poll (`xsk_poll` checks only the rings), so its error must be read explicitly.
        let Some(error) = self.sockets.iter().find_map(sys::pending_error) else {
            return Ok(());
        };
        let is_removed = error.raw_os_error() == Some(libc::ENETDOWN);
        let error = Error::new("receive", &self.interface, error);
        Err(if is_removed {
            error.with_advice("the interface was removed".to_owned())
        } else {
            error
        })
    }
}

/// Returns the queue with the earliest next frame, and the time of the earliest next frame of all others.
fn earliest(heads: &[Head]) -> Option<(usize, u64)> {
    let waiting = heads
        .iter()
        .enumerate()
        .filter(|(_, head)| head.index < head.available);
    let (first, _) = waiting.clone().min_by_key(|(_, head)| head.at)?;
    let others = waiting.filter(|(queue, _)| *queue != first);
    Some((first, others.map(|(_, head)| head.at).min().unwrap_or(u64::MAX)))
}

/// The next frame of a queue, while frames are picked.
#[derive(Clone, Copy, Debug, Default)]
struct Head {
    index: u32,
    /// Number of frames that can be read.
    available: u32,
    /// Receive time of the frame by the monotonic clock, ns.
    at: u64,
}

impl Head {
    /// Reads the receive time of the frame at `index`, and prefetches a later frame.
    #[inline]
    fn read(&mut self, umem: &Umem, socket: &Socket, clock: &Clock) {
        if self.index + AHEAD < self.available {
            fetch(umem, socket.receive.peek(self.index + AHEAD));
        }
        if self.index < self.available {
            // SAFETY: as in `deliver_picked`.
            let stamp = unsafe { umem.before(socket.receive.peek(self.index).addr) };
            self.at = clock.received(stamp);
        }
    }
}

/// A frame to be passed on.
#[derive(Clone, Copy, Debug)]
struct Picked {
    frame: libc::xdp_desc,
    /// Receive time of the frame by the monotonic clock, ns.
    received: u64,
    queue: u32,
}

impl Picked {
    const NONE: Self = Self {
        frame: libc::xdp_desc {
            addr: 0,
            len: 0,
            options: 0,
        },
        received: 0,
        queue: 0,
    };
}

/// A reading of the monotonic and the wall clock at (almost) the same time, ns.
#[derive(Clone, Copy, Debug)]
struct Clock {
    monotonic: u64,
    now: u64,
}

impl Clock {
    fn read() -> Self {
        Self {
            monotonic: time::monotonic(),
            now: time::now(),
        }
    }

    /// Returns the time in a frame's stamp, or now if there is no stamp.
    #[inline]
    fn received(&self, stamp: [u64; 2]) -> u64 {
        match stamp {
            [at, MARK] if at <= self.monotonic => at,
            _ => self.monotonic,
        }
    }

    #[inline]
    fn since_epoch(&self, monotonic: u64) -> u64 {
        self.now.saturating_sub(self.monotonic.saturating_sub(monotonic))
    }
}

/// Prefetches the headers of a frame.
#[inline]
fn fetch(umem: &Umem, frame: libc::xdp_desc) {
    // SAFETY: as in `deliver_picked`.
    if let Some([first, ..]) = unsafe { umem.bytes(frame.addr, frame.len) } {
        memory::prefetch(first);
    }
    // The stamp is in the preceding cache line.
    // SAFETY: as above.
    if let Some([first, ..]) = unsafe { umem.bytes(frame.addr.saturating_sub(STAMP), 1) } {
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
        let datagrams_before = self.stats.datagrams;
        let mut frames = self.sweep(take);
        if frames == 0 && timeout_ms > 0 {
            self.wait(timeout_ms)?;
            frames = self.sweep(take);
        }
        self.pace.note(frames, MANY, time::monotonic());
        Ok((self.stats.datagrams - datagrams_before) as usize)
    }

    fn is_drained(&self) -> bool {
        self.drained
    }

    fn stats(&mut self) -> Stats {
        let mut stats = self.stats;
        for counted in self.sockets.iter().filter_map(Socket::statistics) {
            // In the copying modes, both counters increase if there is no free frame. In zero-copy mode the driver retries
            // instead, so the first counter does not count frames, and the NIC counts its own drops.
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
