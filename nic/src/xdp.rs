//! Frames from AF_XDP sockets: rings shared with the kernel, over libc by hand.
//!
//! Frames lie in one piece of memory ([`Pages`]: huge pages when there are any) that all queues of an interface share
//! (`XDP_SHARED_UMEM`): one registration, one sum of locked memory, and a source may read several queues. Each queue has its
//! own share of the frames and its own two rings: by the fill ring we give frames to the kernel, by the receive ring they come
//! back with something in them. Frames are borrowed by the caller of [`Source::receive`](crate::Source::receive) for that call
//! and go back by the fill ring after it: a frame cannot outlive it, because the packet borrows it.
//!
//! A queue's receive ring has as many entries as it has frames, and its fill ring twice as many. So neither is ever full, no frame
//! is lost between them, and what comes too fast finds the fill ring empty, which the kernel notices before it copies anything.
//!
//! The time of a packet is when its burst was fetched: one reading of the clock for at most 64 frames. The kernel stamps no
//! frames on this path. Checksums of UDP are not verified on it either, for the stack does not see the frames.
//!
//! Over links inside a machine a sender may pass on several datagrams as one (UDP segmentation offload). A driver with an XDP
//! program has them taken apart before; XDP in the stack ([`Generic`](crate::receive::RxPath::Generic)) sees the whole as one
//! datagram. Switches send no such thing.

mod memory;
mod ring;
mod socket;
mod source;

use std::time::Duration;

pub use memory::Pages;
pub(crate) use socket::statistics;
pub use source::XskSource;

use crate::error::Error;
use crate::link::Link;
use memory::Umem;
use socket::{BindRequest, Socket};

/// How AF_XDP sockets are set up.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Options {
    /// Bytes of a frame's memory, 2048 or 4096; 256 of them are the driver's. Frames that do not fit go to the stack.
    pub frame_size: u32,
    /// Frames of a queue, a power of two: how many may wait. At 5 M frames/s 16,384 of them last 3 ms, which is about as long as
    /// the system makes a thread wait on a busy machine.
    pub frames_per_queue: u32,
    /// Huge pages are tried.
    pub huge_pages: bool,
    /// How long to wait for more when few frames came although many are coming; see
    /// [`udp::Options::batch_wait`](crate::udp::Options::batch_wait).
    pub batch_wait: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            frame_size: 2048,
            frames_per_queue: 16_384,
            huge_pages: true,
            batch_wait: Duration::from_micros(50),
        }
    }
}

impl Options {
    /// Bytes before a frame that are the driver's (`XDP_PACKET_HEADROOM`).
    const HEADROOM: u32 = 256;

    /// The longest frame that fits, bytes.
    pub fn longest(&self) -> u32 {
        self.frame_size.saturating_sub(Self::HEADROOM)
    }
}

/// How the sockets get frames: the bind mode of AF_XDP.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum BindMode {
    /// The NIC writes there.
    ZeroCopy,
    /// The driver copies.
    Copy,
    /// The stack copies.
    Generic,
}

impl BindMode {
    pub(crate) const fn kind(self) -> &'static str {
        match self {
            Self::ZeroCopy => "xdp-zerocopy",
            Self::Copy => "xdp-native",
            Self::Generic => "xdp-generic",
        }
    }
}

/// Opens a socket on each of the `queues` of an interface, and makes `threads` sources of them, or one per queue if there are
/// fewer queues.
pub(crate) fn open(
    link: &Link,
    queues: u32,
    bind_mode: BindMode,
    threads: usize,
    options: &Options,
) -> Result<(Vec<XskSource>, Pages), Error> {
    let size = (options.frame_size as usize, options.frames_per_queue as usize);
    let umem = Umem::allocate(size.0, size.1 * queues as usize, options.huge_pages)?;
    let pages = umem.pages();
    let umem = std::sync::Arc::new(umem);
    let mut sockets: Vec<Socket> = Vec::new();
    for queue in 0..queues {
        let wish = BindRequest {
            link,
            queue,
            frames: options.frames_per_queue,
            zero_copy: bind_mode == BindMode::ZeroCopy,
        };
        let socket = match sockets.first() {
            None => Socket::first(&wish, &umem)?,
            Some(first) => Socket::sharing(&wish, &umem, first)?,
        };
        sockets.push(socket);
    }
    let threads = threads.clamp(1, sockets.len().max(1));
    let mut groups: Vec<Vec<Socket>> = (0..threads).map(|_| Vec::new()).collect();
    for (queue, socket) in sockets.into_iter().enumerate() {
        groups[queue % threads].push(socket);
    }
    let source = |sockets| XskSource::new(umem.clone(), sockets, bind_mode, link.name(), options.batch_wait);
    Ok((groups.into_iter().map(source).collect(), pages))
}
