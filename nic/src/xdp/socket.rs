//! One AF_XDP socket: one receive queue.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use super::memory::{self, Umem};
use super::ring::{Fill, Receive, Ring};
use crate::error::Error;
use crate::link::Link;
use crate::sys::{self, Mapping};
use crate::time;

/// Parameters of a socket's binding.
pub(super) struct BindRequest<'a> {
    pub(super) link: &'a Link,
    pub(super) queue: u32,
    /// Frames of this queue, and places of its receive ring.
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
    /// The first socket of an interface: registers the memory.
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

    /// A further socket, with the memory and bind mode of the first.
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
        let (places, name) = (request.frames, request.link.name());
        let failed = |call| move |source| Error::new(call, name, source);
        let fill_places = Fill::entries(places);
        let ring =
            |option, places: u32, call| sys::set(&fd, libc::SOL_XDP, option, &places).map_err(failed(call));
        ring(
            libc::XDP_UMEM_FILL_RING,
            fill_places,
            "setsockopt XDP_UMEM_FILL_RING",
        )?;
        // We send nothing, but the kernel requires this ring: so it has the minimum size.
        ring(
            libc::XDP_UMEM_COMPLETION_RING,
            2,
            "setsockopt XDP_UMEM_COMPLETION_RING",
        )?;
        ring(libc::XDP_RX_RING, places, "setsockopt XDP_RX_RING")?;
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
            .map_err(failed("getsockopt XDP_MMAP_OFFSETS"))?;
        let mut fill = map(
            &fd,
            &offsets.fr,
            libc::XDP_UMEM_PGOFF_FILL_RING as libc::off_t,
            fill_places,
        )
        .map_err(failed("mmap the fill ring"))?;
        let receive = map(&fd, &offsets.rx, libc::XDP_PGOFF_RX_RING, places)
            .map_err(failed("mmap the receive ring"))?;
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

    /// Counters of frames that the kernel dropped before the receive ring.
    pub(super) fn statistics(&self) -> Option<libc::xdp_statistics> {
        statistics(&self.fd)
    }

    /// Wakes a driver that sleeps because it had no frames.
    #[inline]
    pub(super) fn wake_if_needed(&self) {
        if self.fill.needs_wakeup() {
            self.wake();
        }
    }

    #[cold]
    fn wake(&self) {
        let fd = self.fd.as_raw_fd();
        // SAFETY: no pointers; nothing is received by this call. The next poll reports an error of this call.
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

/// Counters of frames that the kernel dropped before the receive ring of this socket.
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

/// Binds the socket. The kernel frees the queue of a closed socket with a delay, under the lock of all interfaces, so binding to a
/// busy queue is retried.
fn bind_when_free(fd: &OwnedFd, name: &libc::sockaddr_xdp) -> io::Result<()> {
    const TRIES: u32 = 200;
    const PAUSE: Duration = Duration::from_millis(10);
    let len = size_of_val(name) as libc::socklen_t;
    let mut tries = 0;
    loop {
        // SAFETY: `name` is a socket address of `len` bytes that lives through the call.
        let result = unsafe { libc::bind(fd.as_raw_fd(), std::ptr::from_ref(name).cast(), len) };
        if result == 0 {
            return Ok(());
        }
        let error = io::Error::last_os_error();
        tries += 1;
        if error.raw_os_error() != Some(libc::EBUSY) || tries == TRIES {
            return Err(error);
        }
        time::sleep(PAUSE);
    }
}

fn bind(fd: &OwnedFd, request: &BindRequest<'_>, flags: u16, shared: u32) -> Result<(), Error> {
    let name = libc::sockaddr_xdp {
        sxdp_family: libc::AF_XDP as u16,
        sxdp_flags: flags,
        sxdp_ifindex: request.link.index(),
        sxdp_queue_id: request.queue,
        sxdp_shared_umem_fd: shared,
    };
    let Err(source) = bind_when_free(fd, &name) else {
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
