//! AF_XDP sockets: receives frames through rings shared with the kernel, directly over libc.
//!
//! All queues of an interface share one UMEM ([`Pages`]: huge pages if available; `XDP_SHARED_UMEM`), which is registered and
//! locked once, so a source may read several queues. Each queue has its own frames and two rings: hopwise posts free frames to
//! the fill ring, and the kernel returns filled ones in the receive ring. The caller of
//! [`Source::receive`](crate::Source::receive) borrows frames for the duration of the call; afterwards they return to the fill
//! ring.
//!
//! The receive ring of a queue has as many entries as the queue has frames, and its fill ring has twice as many. So neither is
//! ever full, and no frame is lost between them. Under overload the fill ring runs empty, and the kernel drops a frame before
//! it copies it.
//!
//! The timestamp of a packet is the time at which the steering program redirected it; the program writes it in front of the
//! frame. A source of several queues passes on their frames in the order of these times. The kernel publishes frames of a queue
//! in batches of up to 64, so frames of different queues may be out of order by as many. If a driver leaves no space for
//! metadata, the timestamp is the time at which the burst was fetched, and the order holds only within a queue. UDP checksums
//! are not verified, because the stack does not see the frames.
//!
//! Over virtual links a sender may pass several datagrams as one frame (UDP segmentation offload). The kernel segments it
//! before a driver's XDP program runs, but generic XDP ([`Generic`](crate::receive::RxPath::Generic)) sees one long datagram.
//! Switches never send such frames.

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

/// Settings of AF_XDP sockets.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Options {
    /// Bytes of a UMEM frame, 2048 or 4096, of which 256 are headroom for the driver. Longer packets go to the stack.
    pub frame_size: u32,
    /// UMEM frames per queue, a power of two: the number of packets that can be queued. At 5 M frames/s, 16,384 frames last 3
    /// ms, about the scheduling delay of a thread on a busy machine.
    pub frames_per_queue: u32,
    /// Use huge pages if available.
    pub huge_pages: bool,
    /// Time to wait for more frames after a small burst at a high rate; see
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
    /// Bytes before a packet that the driver reserves (`XDP_PACKET_HEADROOM`).
    const HEADROOM: u32 = 256;

    /// Returns the maximum length of a packet that fits, bytes.
    pub fn max_packet_len(&self) -> u32 {
        self.frame_size.saturating_sub(Self::HEADROOM)
    }
}

/// Bind mode of AF_XDP sockets, which determines who writes a packet into the UMEM.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum BindMode {
    /// The NIC writes into the UMEM.
    ZeroCopy,
    /// The driver copies the packet.
    Copy,
    /// The stack copies the packet.
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
    let frames = options.frames_per_queue as usize * queues as usize;
    let umem = Umem::allocate(options.frame_size as usize, frames, options.huge_pages)?;
    let pages = umem.pages();
    let umem = std::sync::Arc::new(umem);
    let mut sockets: Vec<Socket> = Vec::new();
    for queue in 0..queues {
        let request = BindRequest {
            link,
            queue,
            frames: options.frames_per_queue,
            zero_copy: bind_mode == BindMode::ZeroCopy,
        };
        let socket = match sockets.first() {
            None => Socket::first(&request, &umem)?,
            Some(first) => Socket::sharing(&request, &umem, first)?,
        };
        sockets.push(socket);
    }
    let threads = threads.clamp(1, sockets.len().max(1));
    let mut groups: Vec<Vec<Socket>> = (0..threads).map(|_| Vec::new()).collect();
    for (queue, socket) in sockets.into_iter().enumerate() {
        groups[queue % threads].push(socket);
    }
    let sources = groups
        .into_iter()
        .map(|sockets| XskSource::new(umem.clone(), sockets, bind_mode, link.name(), options.batch_wait));
    Ok((sources.collect(), pages))
}
