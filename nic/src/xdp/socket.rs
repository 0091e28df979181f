//! One AF_XDP socket, for one receive queue: creation, binding, and its rings.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use super::memory::{self, Umem};
use super::ring::{Fill, Receive, Ring};
use crate::error::Error;
use crate::link::Link;
use crate::sys::{self, Mapping};

/// Number of attempts to bind to a busy queue.
const BIND_TRIES: u32 = 200;

/// Parameters for binding a socket.
pub(super) struct BindRequest<'a> {
    pub(super) link: &'a Link,
    pub(super) queue: u32,
    /// Number of frames of this queue, and of entries of its receive ring.
    pub(super) frames: u32,
    pub(super) zero_copy: bool,
}

/// A bound socket with its rings.
#[derive(Debug)]
pub(super) struct Socket {
    fd: OwnedFd,
    pub(super) queue: u32,
    pub(super) fill: Fill,
    pub(super) receive: Receive,
}

impl Socket {
    /// Opens the first socket of an interface, which registers the memory.
    pub(super) fn first(request: &BindRequest<'_>, umem: &Umem) -> Result<Self, Error> {
        let fd = create(request)?;
        sys::set(&fd, libc::SOL_XDP, libc::XDP_UMEM_REG, &umem.registration())
            .map_err(|source| memory::refused(source, umem))?;
        let copy = if request.zero_copy {
            libc::XDP_ZEROCOPY
        } else {
            libc::XDP_COPY
        };
        Self::finish(fd, request, umem, libc::XDP_USE_NEED_WAKEUP | copy, 0)
    }

    /// Opens a further socket, which shares the memory and bind mode of the first.
    pub(super) fn sharing(request: &BindRequest<'_>, umem: &Umem, first: &Self) -> Result<Self, Error> {
        let fd = create(request)?;
        let shared = first.fd.as_raw_fd().cast_unsigned();
        Self::finish(fd, request, umem, libc::XDP_SHARED_UMEM, shared)
    }

    fn finish(
        fd: OwnedFd,
        request: &BindRequest<'_>,
        umem: &Umem,
        flags: u16,
        shared: u32,
    ) -> Result<Self, Error> {
        let places = request.frames;
        let name = request.link.name();
        let fill_places = Fill::entries(places);
        for (option, places, call) in [
            (
                libc::XDP_UMEM_FILL_RING,
                fill_places,
                "setsockopt XDP_UMEM_FILL_RING",
            ),
            // Nothing is sent, but the kernel requires this ring, so it gets the minimum size.
            (
                libc::XDP_UMEM_COMPLETION_RING,
                2,
                "setsockopt XDP_UMEM_COMPLETION_RING",
            ),
            (libc::XDP_RX_RING, places, "setsockopt XDP_RX_RING"),
        ] {
            sys::set(&fd, libc::SOL_XDP, option, &places).map_err(Error::failed(call, name))?;
        }
        let none = libc::xdp_ring_offset {
            producer: 0,
            consumer: 0,
            desc: 0,
            flags: 0,
        };
        let none = libc::xdp_mmap_offsets {
            rx: none,
            tx: none,
            fr: none,
            cr: none,
        };
        let offsets = sys::get(&fd, libc::SOL_XDP, libc::XDP_MMAP_OFFSETS, none)
            .map_err(Error::failed("getsockopt XDP_MMAP_OFFSETS", name))?;
        let fill_page = libc::XDP_UMEM_PGOFF_FILL_RING as libc::off_t;
        let mut fill = map(&fd, &offsets.fr, fill_page, fill_places)
            .map_err(Error::failed("mmap the fill ring", name))?;
        let receive = map(&fd, &offsets.rx, libc::XDP_PGOFF_RX_RING, places)
            .map_err(Error::failed("mmap the receive ring", name))?;
        bind(&fd, request, flags, shared)?;
        let size = umem.frame_size() as u64;
        let first = u64::from(request.queue) * u64::from(places);
        let frames: Vec<u64> = (0..u64::from(places))
            .map(|frame| (first + frame) * size)
            .collect();
        fill.refill(&frames);
        Ok(Self {
            fd,
            queue: request.queue,
            fill,
            receive,
        })
    }

    /// Returns the counters of frames that the kernel dropped before the receive ring.
    pub(super) fn statistics(&self) -> Option<libc::xdp_statistics> {
        statistics(&self.fd)
    }

    /// Wakes a driver that sleeps because it had no free frames.
    #[inline]
    pub(super) fn wake_if_needed(&self) {
        if self.fill.needs_wakeup() {
            self.wake();
        }
    }

    #[cold]
    fn wake(&self) {
        let fd = self.fd.as_raw_fd();
        // SAFETY: no pointers, and the call receives nothing. The next poll reports an error of this call.
        unsafe {
            libc::recvfrom(
                fd,
                std::ptr::null_mut(),
                0,
                libc::MSG_DONTWAIT,
                std::ptr::null_mut(),
                std::ptr::null_mut(),
            )
        };
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Returns the counters of frames that the kernel dropped before the receive ring of this socket.
pub(crate) fn statistics(socket: &impl AsFd) -> Option<libc::xdp_statistics> {
    let none = libc::xdp_statistics {
        rx_dropped: 0,
        rx_invalid_descs: 0,
        tx_invalid_descs: 0,
        rx_ring_full: 0,
        rx_fill_ring_empty_descs: 0,
        tx_ring_empty_descs: 0,
    };
    sys::get(socket, libc::SOL_XDP, libc::XDP_STATISTICS, none).ok()
}

fn create(request: &BindRequest<'_>) -> Result<OwnedFd, Error> {
    sys::socket(libc::AF_XDP, libc::SOCK_RAW, 0).map_err(|source| {
        let advice = match source.raw_os_error() {
            Some(libc::EAFNOSUPPORT) => "this kernel was built without AF_XDP (CONFIG_XDP_SOCKETS)",
            Some(libc::EPERM | libc::EACCES) => sys::NET_RAW_MISSING,
            _ => return Error::new("socket AF_XDP", request.link.name(), source),
        };
        Error::new("socket AF_XDP", request.link.name(), source).with_advice(advice.to_owned())
    })
}

fn map<T: Copy>(
    fd: &OwnedFd,
    offsets: &libc::xdp_ring_offset,
    page: libc::off_t,
    places: u32,
) -> io::Result<Ring<T>> {
    let memory = Mapping::shared(fd, page, Ring::<T>::bytes(offsets, places))?;
    Ring::new(memory, offsets, places).ok_or_else(|| io::Error::from_raw_os_error(libc::EINVAL))
}

fn bind(fd: &OwnedFd, request: &BindRequest<'_>, flags: u16, shared: u32) -> Result<(), Error> {
    let name = libc::sockaddr_xdp {
        sxdp_family: libc::AF_XDP as u16,
        sxdp_flags: flags,
        sxdp_ifindex: request.link.index(),
        sxdp_queue_id: request.queue,
        sxdp_shared_umem_fd: shared,
    };
    let Err(source) = sys::bind_when_free(fd, &name, BIND_TRIES) else {
        return Ok(());
    };
    let about = format!("{} queue {}", request.link.name(), request.queue);
    let advice = match source.raw_os_error() {
        Some(libc::EOPNOTSUPP) if request.zero_copy => {
            "the driver has no zero-copy mode (or not for these settings)".to_owned()
        }
        Some(libc::EBUSY) => {
            "another AF_XDP socket reads this queue: stop the program that has it (`ss -A xdp -p`)".to_owned()
        }
        Some(libc::EINVAL) => format!(
            "the interface has no receive and transmit queue {0}: `ethtool -l {1}` shows how many it has, and `ethtool -L {1}` sets them",
            request.queue,
            request.link.name()
        ),
        Some(libc::ENETDOWN) => format!("the interface is down: `ip link set {} up`", request.link.name()),
        _ => return Err(Error::new("bind AF_XDP", about, source)),
    };
    Err(Error::new("bind AF_XDP", about, source).with_advice(advice))
}
