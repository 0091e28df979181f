//! Probes the receive paths of an interface: attaches an XDP program that passes every frame, binds an AF_XDP socket, and
//! removes both.
//!
//! On some drivers, attaching a program takes the link down for a short time, and a zero-copy bind resets a queue.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::time::Duration;

use super::{Mode, program};
use crate::error::Error;
use crate::time;

/// Result for each receive path, best first. `None`: not probed, because a better one works.
#[derive(Debug)]
pub struct Probe {
    /// AF_XDP in the driver, zero-copy.
    pub zero_copy: Result<(), Error>,
    /// AF_XDP in the driver, with a copy.
    pub native: Option<Result<(), Error>>,
    /// AF_XDP in the kernel's network stack (generic XDP).
    pub generic: Option<Result<(), Error>>,
    /// AF_PACKET, a ring in addition to the stack.
    pub packet: Option<Result<(), Error>>,
}

/// Probes the receive paths of the interface with this index in this network namespace, from the best to the first that
/// works.
pub fn probe(index: u32) -> Probe {
    let mut result = Probe {
        zero_copy: in_mode(index, Mode::Native, true),
        native: None,
        generic: None,
        packet: None,
    };
    if result.zero_copy.is_ok() {
        return result;
    }
    let native = result.native.insert(in_mode(index, Mode::Native, false));
    if native.is_ok() {
        return result;
    }
    let generic = result.generic.insert(in_mode(index, Mode::Generic, false));
    if generic.is_ok() {
        return result;
    }
    result.packet = Some(packet());
    result
}

fn in_mode(index: u32, mode: Mode, zero_copy: bool) -> Result<(), Error> {
    let program = program::pass()?;
    // Declared before the socket, so that it is detached after the socket is closed.
    let _attached = program::attach(&program, index, mode)?;
    let socket = Socket::open()?;
    socket.bind(index, zero_copy)
}

fn packet() -> Result<(), Error> {
    // Protocol 0: the socket receives nothing.
    // SAFETY: no pointers.
    let fd = unsafe { libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) };
    if fd < 0 {
        return Err(Error::last("socket", "AF_PACKET"));
    }
    // SAFETY: the kernel just returned this descriptor, and nothing else owns it.
    drop(unsafe { OwnedFd::from_raw_fd(fd) });
    Ok(())
}

/// True if the kernel has AF_XDP sockets. `None` without CAP_NET_RAW: then the kernel does not say.
pub(super) fn has_af_xdp() -> Option<bool> {
    match Socket::open() {
        Ok(_) => Some(true),
        Err(error) if error.errno() == Some(libc::EAFNOSUPPORT) => Some(false),
        Err(_) => None,
    }
}

/// An AF_XDP socket with the minimum that a bind needs. The rings are not mapped, because it receives nothing.
#[derive(Debug)]
struct Socket {
    // Dropped before the memory is unmapped.
    socket: OwnedFd,
    memory: Memory,
}

const FRAMES: u32 = 64;
const FRAME: u32 = 4096;

impl Socket {
    fn open() -> Result<Self, Error> {
        // SAFETY: no pointers.
        let fd = unsafe { libc::socket(libc::AF_XDP, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) };
        if fd < 0 {
            return Err(Error::last("socket", "AF_XDP"));
        }
        // SAFETY: the kernel just returned this descriptor, and nothing else owns it.
        let socket = unsafe { OwnedFd::from_raw_fd(fd) };
        Ok(Self {
            socket,
            memory: Memory::new((FRAMES * FRAME) as usize)?,
        })
    }

    fn set<T>(&self, option: i32, value: &T, call: &'static str) -> Result<(), Error> {
        let (pointer, len) = (
            std::ptr::from_ref(value).cast(),
            size_of::<T>() as libc::socklen_t,
        );
        // SAFETY: the kernel reads `len` bytes, the size of `value`. Memory that it refers to belongs to `self` and outlives the
        // socket.
        let result =
            unsafe { libc::setsockopt(self.socket.as_raw_fd(), libc::SOL_XDP, option, pointer, len) };
        if result < 0 {
            Err(Error::last(call, ""))
        } else {
            Ok(())
        }
    }

    fn bind(&self, index: u32, zero_copy: bool) -> Result<(), Error> {
        let memory = Registration {
            address: self.memory.start as u64,
            len: self.memory.len as u64,
            frame: FRAME,
            headroom: 0,
            flags: 0,
            metadata: 0,
        };
        self.set(libc::XDP_UMEM_REG, &memory, "setsockopt XDP_UMEM_REG")?;
        self.set(libc::XDP_UMEM_FILL_RING, &FRAMES, "setsockopt XDP_UMEM_FILL_RING")?;
        self.set(
            libc::XDP_UMEM_COMPLETION_RING,
            &FRAMES,
            "setsockopt XDP_UMEM_COMPLETION_RING",
        )?;
        self.set(libc::XDP_RX_RING, &FRAMES, "setsockopt XDP_RX_RING")?;
        let name = libc::sockaddr_xdp {
            sxdp_family: libc::AF_XDP as u16,
            sxdp_flags: if zero_copy {
                libc::XDP_ZEROCOPY
            } else {
                libc::XDP_COPY
            },
            sxdp_ifindex: index,
            sxdp_queue_id: 0,
            sxdp_shared_umem_fd: 0,
        };
        let how = if zero_copy { "AF_XDP zero-copy" } else { "AF_XDP" };
        let mut error = self.bind_to(&name, how);
        for _ in 0..BUSY_RETRIES {
            if !matches!(&error, Err(error) if error.errno() == Some(libc::EBUSY)) {
                break;
            }
            time::sleep(Duration::from_millis(5));
            error = self.bind_to(&name, how);
        }
        error
    }

    fn bind_to(&self, name: &libc::sockaddr_xdp, how: &str) -> Result<(), Error> {
        let len = size_of_val(name) as libc::socklen_t;
        // SAFETY: `name` is a socket address of `len` bytes that lives through the call.
        let result = unsafe { libc::bind(self.socket.as_raw_fd(), std::ptr::from_ref(name).cast(), len) };
        if result < 0 {
            Err(Error::last("bind", how))
        } else {
            Ok(())
        }
    }
}

/// Retries of a bind to a busy queue: the kernel detaches a closed socket from its queue some time after `close`
/// (`xp_put_pool` in net/xdp/xsk_buff_pool.c defers it to a work queue).
const BUSY_RETRIES: u32 = 40;

/// `xdp_umem_reg` since Linux 6.8; older kernels read a prefix.
#[repr(C)]
struct Registration {
    address: u64,
    len: u64,
    frame: u32,
    headroom: u32,
    flags: u32,
    metadata: u32,
}

const _: () = assert!(size_of::<Registration>() == 32);

#[derive(Debug)]
struct Memory {
    start: *mut libc::c_void,
    len: usize,
}

impl Memory {
    fn new(len: usize) -> Result<Self, Error> {
        let (access, kind) = (
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
        );
        // SAFETY: a new mapping at an address that the kernel chooses.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), len, access, kind, -1, 0) };
        if start == libc::MAP_FAILED {
            return Err(Error::new("mmap", "", io::Error::last_os_error()));
        }
        Ok(Self { start, len })
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: our own mapping, of this length. The socket that used it is closed; until then the kernel pins the pages.
        unsafe { libc::munmap(self.start, self.len) };
    }
}
