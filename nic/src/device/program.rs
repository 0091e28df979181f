//! The few calls of bpf(2) that diagnosis needs: the name of a program, and a test of loading and attaching one.
//!
//! [`crate::bpf`] loads the real programs. This module needs no object file, so that it works before anything else does.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use super::netlink::text;
use super::{Attached, Mode, OUR_PROGRAMS};
use crate::error::Error;

/// Commands of bpf(2), from linux/bpf.h.
mod command {
    pub(super) const PROG_LOAD: i32 = 5;
    pub(super) const PROG_GET_FD_BY_ID: i32 = 13;
    pub(super) const OBJ_GET_INFO_BY_FD: i32 = 15;
    pub(super) const LINK_CREATE: i32 = 28;
}

/// `BPF_PROG_TYPE_XDP` of `enum bpf_prog_type`.
const TYPE_XDP: u32 = 6;

/// `BPF_XDP` of `enum bpf_attach_type`.
const ATTACH_XDP: u32 = 37;

/// The two instructions of a program that lets everything pass: `r0 = XDP_PASS; exit`.
static PASS: [u64; 2] = [0x0000_0002_0000_00b7, 0x95];

/// The arguments of a call: the beginning of `union bpf_attr`, as bytes; the other bytes are zero. The kernel accepts any
/// length up to a page, as long as bytes that it does not know are zero.
#[repr(C, align(8))]
struct Attr([u8; 64]);

impl Attr {
    fn new() -> Self {
        Self([0; 64])
    }

    fn put<const N: usize>(mut self, at: usize, bytes: [u8; N]) -> Self {
        self.0[at..at + N].copy_from_slice(&bytes);
        self
    }

    fn u32(self, at: usize, value: u32) -> Self {
        self.put(at, value.to_ne_bytes())
    }

    fn pointer<T>(self, at: usize, pointer: *const T) -> Self {
        self.put(at, (pointer as u64).to_ne_bytes())
    }

    /// # Safety
    /// Pointers in it lead to what the command reads or writes there, and nothing else uses that memory meanwhile.
    unsafe fn call(&self, command: i32) -> io::Result<i32> {
        // SAFETY: the kernel reads `size_of::<Self>()` bytes of `self`; for pointers in them the caller promised.
        let result = unsafe { libc::syscall(libc::SYS_bpf, command, self.0.as_ptr(), self.0.len()) };
        if result < 0 {
            Err(io::Error::last_os_error())
        } else {
            Ok(result as i32)
        }
    }

    /// As [`Attr::call`], for a command that returns a descriptor.
    ///
    /// # Safety
    /// As for [`Attr::call`]; and the command returns a descriptor.
    unsafe fn open(&self, command: i32) -> io::Result<OwnedFd> {
        // SAFETY: the caller's promise covers `call`; the kernel just returned this descriptor, and nothing else owns it.
        unsafe { self.call(command).map(|fd| OwnedFd::from_raw_fd(fd)) }
    }
}

/// The program with its name, if this process may read it.
pub(crate) fn named(program: Attached) -> Attached {
    let name = name(program.id);
    let ours = name.as_ref().map(|name| name.starts_with(OUR_PROGRAMS));
    Attached {
        name,
        ours,
        ..program
    }
}

fn name(id: u32) -> Option<String> {
    /// Where `bpf_prog_info` has the name, and its end.
    const NAME: std::ops::Range<usize> = 64..80;
    // SAFETY: no pointers; the command returns a descriptor.
    let program = unsafe { Attr::new().u32(0, id).open(command::PROG_GET_FD_BY_ID) }.ok()?;
    let mut info = [0u8; NAME.end];
    let attr = Attr::new()
        .u32(0, program.as_raw_fd() as u32)
        .u32(4, info.len() as u32)
        .pointer(8, info.as_mut_ptr());
    // SAFETY: the kernel writes at most the length given, that of `info`; the pointers in `info` itself are zero, so that it
    // writes nowhere else.
    unsafe { attr.call(command::OBJ_GET_INFO_BY_FD) }.ok()?;
    Some(text(&info[NAME]))
}

/// Loads the program that passes everything, with support for frames in several buffers as the real programs have; on kernels
/// without it (before Linux 5.18), without.
pub(super) fn pass() -> Result<OwnedFd, Error> {
    /// The flag `BPF_F_XDP_HAS_FRAGS` of linux/bpf.h.
    const FRAGS: u32 = 1 << 5;
    match load(FRAGS) {
        Err(error) if error.errno() == Some(libc::EINVAL) => load(0),
        loaded => loaded,
    }
}

fn load(flags: u32) -> Result<OwnedFd, Error> {
    let mut name = [0; 16];
    let own = b"hopwise_try";
    name[..own.len()].copy_from_slice(own);
    let attr = Attr::new()
        .u32(0, TYPE_XDP)
        .u32(4, PASS.len() as u32)
        .pointer(8, PASS.as_ptr())
        // No licence: it uses no function that requires one.
        .pointer(16, c"".as_ptr())
        .u32(44, flags)
        .put(48, name);
    // SAFETY: instructions and licence are static; the command returns a descriptor.
    unsafe { attr.open(command::PROG_LOAD) }.map_err(|source| Error::new("bpf", "BPF_PROG_LOAD", source))
}

/// Attaches a program until the returned descriptor is closed.
pub(super) fn attach(program: &OwnedFd, index: u32, mode: Mode) -> Result<OwnedFd, Error> {
    /// `XDP_FLAGS_DRV_MODE`, `XDP_FLAGS_SKB_MODE` and `XDP_FLAGS_HW_MODE` of linux/if_link.h.
    const FLAGS: [u32; 3] = [1 << 2, 1 << 1, 1 << 3];
    let flags = match mode {
        Mode::Native => FLAGS[0],
        Mode::Generic => FLAGS[1],
        Mode::Offloaded => FLAGS[2],
    };
    let attr = Attr::new()
        .u32(0, program.as_raw_fd() as u32)
        .u32(4, index)
        .u32(8, ATTACH_XDP)
        .u32(12, flags);
    // SAFETY: no pointers; the command returns a descriptor.
    unsafe { attr.open(command::LINK_CREATE) }.map_err(|source| Error::new("bpf", "BPF_LINK_CREATE", source))
}
