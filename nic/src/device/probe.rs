//! Probes which receive paths an interface supports: attaches an XDP program that passes every frame, binds an AF_XDP socket,
//! and removes both.
//!
//! On some drivers, attaching a program takes the link down for a short time, and a zero-copy bind resets a queue.

use std::os::fd::OwnedFd;

use super::{Mode, program};
use crate::error::Error;
use crate::sys::{self, Mapping};

const FRAMES: u32 = 64;
const FRAME: u32 = 4096;
/// Number of attempts to bind to a busy queue.
const BIND_TRIES: u32 = 20;

/// Result for each receive path, best first. `None` if it was not probed, because a better one works.
#[derive(Debug)]
pub struct Probe {
    /// AF_XDP in the driver, zero-copy (the NIC writes into the socket's memory).
    pub zero_copy: Result<(), Error>,
    /// AF_XDP in the driver, with a copy per frame.
    pub native: Option<Result<(), Error>>,
    /// AF_XDP in the kernel's network stack (generic XDP).
    pub generic: Option<Result<(), Error>>,
    /// AF_PACKET: a ring in addition to the network stack.
    pub packet: Option<Result<(), Error>>,
}

/// Probes the receive paths of the interface with this index in the current network namespace, from the best down to the first
/// that works.
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
    let packet = sys::socket(libc::AF_PACKET, libc::SOCK_RAW, 0).map(drop);
    result.packet = Some(packet.map_err(Error::failed("socket", "AF_PACKET")));
    result
}

fn in_mode(index: u32, mode: Mode, zero_copy: bool) -> Result<(), Error> {
    let program = program::pass()?;
    // Declared before the socket, so that the program is detached after the socket is closed.
    let _attached = program::attach(&program, index, mode)?;
    Socket::open()?.bind(index, zero_copy)
}

/// Returns whether the kernel has AF_XDP sockets; `None` without CAP_NET_RAW, because the kernel then refuses to say.
pub(super) fn has_af_xdp() -> Option<bool> {
    match Socket::open() {
        Ok(_) => Some(true),
        Err(error) if error.errno() == Some(libc::EAFNOSUPPORT) => Some(false),
        Err(_) => None,
    }
}

/// An AF_XDP socket with the minimum that a bind needs. Its rings are not mapped, because it receives nothing.
#[derive(Debug)]
struct Socket {
    // Closed before the memory is unmapped; until then the kernel pins its pages.
    socket: OwnedFd,
    memory: Mapping,
}

impl Socket {
    fn open() -> Result<Self, Error> {
        let socket =
            sys::socket(libc::AF_XDP, libc::SOCK_RAW, 0).map_err(Error::failed("socket", "AF_XDP"))?;
        let memory = Mapping::anonymous((FRAMES * FRAME) as usize, 0).map_err(Error::failed("mmap", ""))?;
        Ok(Self { socket, memory })
    }

    fn bind(&self, index: u32, zero_copy: bool) -> Result<(), Error> {
        let memory = libc::xdp_umem_reg {
            addr: self.memory.start().as_ptr() as u64,
            len: u64::from(FRAMES * FRAME),
            chunk_size: FRAME,
            headroom: 0,
            flags: 0,
            tx_metadata_len: 0,
        };
        sys::set(&self.socket, libc::SOL_XDP, libc::XDP_UMEM_REG, &memory)
            .map_err(Error::failed("setsockopt XDP_UMEM_REG", ""))?;
        for (option, call) in [
            (libc::XDP_UMEM_FILL_RING, "setsockopt XDP_UMEM_FILL_RING"),
            (
                libc::XDP_UMEM_COMPLETION_RING,
                "setsockopt XDP_UMEM_COMPLETION_RING",
            ),
            (libc::XDP_RX_RING, "setsockopt XDP_RX_RING"),
        ] {
            sys::set(&self.socket, libc::SOL_XDP, option, &FRAMES).map_err(Error::failed(call, ""))?;
        }
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
        let about = if zero_copy { "AF_XDP zero-copy" } else { "AF_XDP" };
        sys::bind_when_free(&self.socket, &name, BIND_TRIES).map_err(Error::failed("bind", about))
    }
}
