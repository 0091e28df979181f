//! Safe wrappers for system calls on sockets and memory.

pub(crate) mod bpf;

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;
use std::time::Duration;

use crate::error::Error;

/// Socket option of linux/if_packet.h, available since Linux 4.20.
pub(crate) const PACKET_IGNORE_OUTGOING: i32 = 23;
/// Flag of a fanout group (linux/if_packet.h). A group has a hook of its own, for which [`PACKET_IGNORE_OUTGOING`] has no effect.
/// Older kernels refuse the flag.
pub(crate) const PACKET_FANOUT_FLAG_IGNORE_OUTGOING: u32 = 0x4000;
/// Advice when a socket that receives whole frames cannot be opened.
pub(crate) const NET_RAW_MISSING: &str = "CAP_NET_RAW is missing: grant it, or run as root";

/// Plain data: any bytes may be written over it, and it may be read as bytes.
///
/// # Safety
/// Every bit pattern is a valid value of the type.
pub(crate) unsafe trait Plain: Copy {}

macro_rules! plain {
    ($($type:ty),+ $(,)?) => {
        // SAFETY: integers, and structures of integers.
        $(unsafe impl Plain for $type {})+
    };
}

plain!(
    u32,
    i32,
    [u32; 9],
    libc::timeval,
    libc::sockaddr_ll,
    libc::sockaddr_xdp,
    libc::packet_mreq,
    libc::tpacket_req,
    libc::tpacket_req3,
    libc::tpacket_stats,
    libc::tpacket_stats_v3,
    libc::xdp_umem_reg,
    libc::xdp_statistics,
    libc::xdp_mmap_offsets,
    libc::xdp_options,
);

/// Converts the result of a system call: a negative number is an error, whose reason is in errno.
pub(crate) fn check(result: impl TryInto<usize>) -> io::Result<usize> {
    result.try_into().map_err(|_| io::Error::last_os_error())
}

/// Describes bytes that a system call only reads.
pub(crate) fn vector_of(bytes: &[u8]) -> libc::iovec {
    libc::iovec {
        iov_base: bytes.as_ptr().cast_mut().cast(),
        iov_len: bytes.len(),
    }
}

/// Opens a socket, with close-on-exec set.
pub(crate) fn socket(family: i32, kind: i32, protocol: i32) -> io::Result<OwnedFd> {
    // SAFETY: no pointers.
    let fd = unsafe { libc::socket(family, kind | libc::SOCK_CLOEXEC, protocol) };
    check(fd)?;
    // SAFETY: the kernel just returned this descriptor, and nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Opens a socket for whole frames of `interface`. Its protocol is 0, so it receives nothing until it is bound.
pub(crate) fn packet_socket(interface: &str) -> Result<OwnedFd, Error> {
    socket(libc::AF_PACKET, libc::SOCK_RAW, 0).map_err(|source| {
        let missing = matches!(source.raw_os_error(), Some(libc::EPERM | libc::EACCES));
        let error = Error::new("socket AF_PACKET", interface, source);
        if missing {
            error.with_advice(NET_RAW_MISSING.to_owned())
        } else {
            error
        }
    })
}

/// Sets a socket option.
pub(crate) fn set<T: Plain>(socket: &impl AsFd, level: i32, option: i32, value: &T) -> io::Result<()> {
    let pointer = std::ptr::from_ref(value).cast();
    let len = size_of::<T>() as libc::socklen_t;
    // SAFETY: the kernel reads `len` bytes, the size of `value`, which lives through the call.
    check(unsafe { libc::setsockopt(socket.as_fd().as_raw_fd(), level, option, pointer, len) }).map(drop)
}

/// Binds the socket to a device, by name.
pub(crate) fn bind_to_device(socket: &impl AsFd, name: &str) -> io::Result<()> {
    let fd = socket.as_fd().as_raw_fd();
    let len = name.len() as libc::socklen_t;
    let pointer = name.as_ptr().cast();
    // SAFETY: the kernel reads `len` bytes from `name`.
    check(unsafe { libc::setsockopt(fd, libc::SOL_SOCKET, libc::SO_BINDTODEVICE, pointer, len) }).map(drop)
}

/// Attaches a classic BPF program that decides what the socket receives.
pub(crate) fn attach_filter(socket: &impl AsFd, filter: &[libc::sock_filter]) -> io::Result<()> {
    let program = libc::sock_fprog {
        len: u16::try_from(filter.len()).map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))?,
        // The kernel only reads; its header has no const.
        filter: filter.as_ptr().cast_mut(),
    };
    let fd = socket.as_fd().as_raw_fd();
    let len = size_of_val(&program) as libc::socklen_t;
    let pointer = (&raw const program).cast();
    // SAFETY: the kernel reads the structure and `len` instructions where it points to; both live through the call.
    check(unsafe { libc::setsockopt(fd, libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, pointer, len) }).map(drop)
}

/// Reads a socket option. Bytes beyond those that the kernel returns stay as in `value`.
pub(crate) fn get<T: Plain>(socket: &impl AsFd, level: i32, option: i32, mut value: T) -> io::Result<T> {
    let mut len = size_of::<T>() as libc::socklen_t;
    let fd = socket.as_fd().as_raw_fd();
    // SAFETY: the kernel writes at most `len` bytes, the size of `value`, for which all bit patterns are values.
    check(unsafe { libc::getsockopt(fd, level, option, (&raw mut value).cast(), &raw mut len) })?;
    Ok(value)
}

/// Waits at most `timeout_ms` until one of `poll_fds` can be read or has failed. A signal ends the wait early.
pub(crate) fn poll(poll_fds: &mut [libc::pollfd], timeout_ms: u32) -> io::Result<usize> {
    let timeout = i32::try_from(timeout_ms).unwrap_or(i32::MAX);
    // SAFETY: `poll_fds` is an array of that many structures, ours alone.
    unless_interrupted(unsafe { libc::poll(poll_fds.as_mut_ptr(), poll_fds.len() as libc::nfds_t, timeout) })
}

/// Does the same as [`poll`], with a timeout in nanoseconds, as precise as the thread's timer slack allows.
pub(crate) fn poll_precisely(poll_fds: &mut [libc::pollfd], timeout: Duration) -> io::Result<usize> {
    let timeout = libc::timespec {
        tv_sec: libc::time_t::try_from(timeout.as_secs()).unwrap_or(libc::time_t::MAX),
        tv_nsec: timeout.subsec_nanos().into(),
    };
    let count = poll_fds.len() as libc::nfds_t;
    // SAFETY: `poll_fds` is an array of that many structures, ours alone; the kernel reads the time; no mask of signals.
    unless_interrupted(unsafe {
        libc::ppoll(poll_fds.as_mut_ptr(), count, &raw const timeout, std::ptr::null())
    })
}

/// Returns the result of a poll, or 0 if a signal ended it.
fn unless_interrupted(result: i32) -> io::Result<usize> {
    match check(result) {
        Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(0),
        result => result,
    }
}

/// Binds a packet socket to an interface, for frames of every protocol.
pub(crate) fn bind_to_interface(socket: &impl AsFd, index: u32) -> io::Result<()> {
    // SAFETY: integers, for which zero is a value.
    let mut name: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    name.sll_family = libc::AF_PACKET as u16;
    name.sll_protocol = (libc::ETH_P_ALL as u16).to_be();
    name.sll_ifindex = index.cast_signed();
    bind(socket, &name)
}

/// Binds a socket; `name` is an address of its family.
fn bind<T: Plain>(socket: &impl AsFd, name: &T) -> io::Result<()> {
    let len = size_of::<T>() as libc::socklen_t;
    // SAFETY: the kernel reads `len` bytes, the size of `name`, which lives through the call.
    check(unsafe { libc::bind(socket.as_fd().as_raw_fd(), std::ptr::from_ref(name).cast(), len) }).map(drop)
}

/// Binds an AF_XDP socket, with up to `tries` attempts if its queue is busy: the kernel frees the queue of a closed socket with
/// a delay (`xp_put_pool` in net/xdp/xsk_buff_pool.c defers it to a work queue, under the lock of all interfaces).
pub(crate) fn bind_when_free(socket: &OwnedFd, name: &libc::sockaddr_xdp, tries: u32) -> io::Result<()> {
    // Pause between two attempts.
    const PAUSE: Duration = Duration::from_millis(10);
    let mut failures = 0;
    loop {
        match bind(socket, name) {
            Err(error) if error.raw_os_error() == Some(libc::EBUSY) && failures + 1 < tries => failures += 1,
            result => return result,
        }
        std::thread::sleep(PAUSE);
    }
}

/// Returns an entry for [`poll`] that waits until `fd` is readable.
pub(crate) fn readable(fd: BorrowedFd<'_>) -> libc::pollfd {
    libc::pollfd {
        fd: fd.as_raw_fd(),
        events: libc::POLLIN,
        revents: 0,
    }
}

/// Returns the pending error of a socket, if any, and clears it.
pub(crate) fn pending_error(socket: &impl AsFd) -> Option<io::Error> {
    let errno = get::<i32>(socket, libc::SOL_SOCKET, libc::SO_ERROR, 0).unwrap_or(0);
    (errno != 0).then(|| io::Error::from_raw_os_error(errno))
}

/// Returns the index of a network interface in the caller's network namespace.
pub(crate) fn interface_index(name: &str) -> io::Result<u32> {
    let name = std::ffi::CString::new(name).map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))?;
    // SAFETY: a string that ends in zero and lives through the call.
    match unsafe { libc::if_nametoindex(name.as_ptr()) } {
        0 => Err(io::Error::last_os_error()),
        index => Ok(index),
    }
}

/// Returns the 32-bit number at `at` in the machine's byte order, or 0 outside `bytes`.
#[inline]
pub(crate) fn word(bytes: &[u8], at: usize) -> u32 {
    bytes
        .get(at..)
        .and_then(|bytes| bytes.first_chunk())
        .map_or(0, |chunk| u32::from_ne_bytes(*chunk))
}

/// Returns the 16-bit number at `at` in the machine's byte order, or 0 outside `bytes`.
#[inline]
pub(crate) fn half(bytes: &[u8], at: usize) -> u16 {
    bytes
        .get(at..)
        .and_then(|bytes| bytes.first_chunk())
        .map_or(0, |chunk| u16::from_ne_bytes(*chunk))
}

/// Memory from `mmap`, unmapped on drop.
#[derive(Debug)]
pub(crate) struct Mapping {
    start: NonNull<u8>,
    len: usize,
}

impl Mapping {
    /// Maps memory shared with the kernel through `descriptor`; its pages are populated at once.
    pub(crate) fn shared(descriptor: &impl AsFd, offset: libc::off_t, len: usize) -> io::Result<Self> {
        let fd = descriptor.as_fd().as_raw_fd();
        Self::new(len, libc::MAP_SHARED | libc::MAP_POPULATE, fd, offset)
    }

    /// Maps zeroed private memory; `flags` are added to the default flags.
    pub(crate) fn anonymous(len: usize, flags: i32) -> io::Result<Self> {
        Self::new(len, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | flags, -1, 0)
    }

    /// Advises the kernel how the memory will be used.
    pub(crate) fn advise(&self, advice: i32) -> io::Result<()> {
        // SAFETY: our own mapping; the advice used here does not change its contents.
        check(unsafe { libc::madvise(self.start.as_ptr().cast(), self.len, advice) }).map(drop)
    }

    fn new(len: usize, flags: i32, fd: i32, offset: libc::off_t) -> io::Result<Self> {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping, at an address the kernel chooses: it overlaps no other.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), len, access, flags, fd, offset) };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = NonNull::new(start.cast()).ok_or_else(|| io::Error::from_raw_os_error(libc::ENOMEM))?;
        Ok(Self { start, len })
    }

    /// Returns the first address of the mapping.
    pub(crate) fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// Returns the address of `at`, if `len` bytes from there are inside the mapping.
    #[inline]
    pub(crate) fn place(&self, at: usize, len: usize) -> Option<NonNull<u8>> {
        let end = at.checked_add(len)?;
        // SAFETY: `at` is inside the mapping or at its end.
        (end <= self.len).then(|| unsafe { self.start.add(at) })
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping made in `new`; all pointers into it borrowed this mapping. It cannot fail.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.len) };
    }
}

// SAFETY: memory is not bound to a thread.
unsafe impl Send for Mapping {}
// SAFETY: a shared `Mapping` gives out addresses, not references; code that creates a reference states why it is sound.
unsafe impl Sync for Mapping {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_inside_the_mapping() {
        let mapping = Mapping::anonymous(4096, 0).unwrap();
        assert_eq!(mapping.place(0, 4096), Some(mapping.start()));
        assert!(mapping.place(4096, 0).is_some());
        assert_eq!(mapping.place(1, 4096), None);
        assert_eq!(mapping.place(usize::MAX, 2), None);
    }

    #[test]
    fn refusals_are_errors() {
        assert_eq!(
            interface_index("hopwise-none").unwrap_err().raw_os_error(),
            Some(libc::ENODEV)
        );
        assert_eq!(
            interface_index("a\0b").unwrap_err().raw_os_error(),
            Some(libc::EINVAL)
        );
        assert!(interface_index("lo").is_ok());
        assert_eq!(
            Mapping::anonymous(0, 0).unwrap_err().raw_os_error(),
            Some(libc::EINVAL)
        );
        let socket = socket(libc::AF_INET, libc::SOCK_DGRAM, 0).unwrap();
        assert_eq!(
            bind_to_device(&socket, "hopwise-none")
                .unwrap_err()
                .raw_os_error(),
            Some(libc::ENODEV)
        );
        assert!(pending_error(&socket).is_none());
        assert_eq!(poll(&mut [readable(socket.as_fd())], 0).unwrap(), 0);
    }
}
