//! The few bpf(2) calls that diagnosis needs: reading the name of a program, and a trial of loading and attaching one.
//!
//! [`crate::bpf`] loads the real programs. This module needs no object file, so it works even if that fails.

use std::os::fd::{AsRawFd, OwnedFd};

use super::netlink::text;
use super::{Attached, Mode, OUR_PROGRAMS};
use crate::error::Error;
use crate::sys::bpf;

/// Adds the name of the program, if this process may read it.
pub(crate) fn named(program: Attached) -> Attached {
    let opened = bpf::program_by_id(program.id);
    let name = opened.and_then(|opened| bpf::program_name(&opened)).ok();
    let name = name.map(|name| text(&name));
    let ours = name.as_ref().map(|name| name.starts_with(OUR_PROGRAMS));
    Attached {
        name,
        ours,
        ..program
    }
}

/// Loads a program that passes every frame. It supports frames in several buffers, as the real programs do, unless the kernel
/// does not (before Linux 5.18).
pub(super) fn pass() -> Result<OwnedFd, Error> {
    /// The flag `BPF_F_XDP_HAS_FRAGS` of linux/bpf.h.
    const FRAGS: u32 = 1 << 5;
    match load(FRAGS) {
        Err(error) if error.errno() == Some(libc::EINVAL) => load(0),
        loaded => loaded,
    }
}

fn load(flags: u32) -> Result<OwnedFd, Error> {
    /// A program of two instructions that lets every frame pass: `r0 = XDP_PASS; exit`.
    const PASS: [u64; 2] = [0x0000_0002_0000_00b7, 0x95];
    // No licence is needed, because the program calls no GPL-only helper.
    bpf::load(bpf::XDP, &PASS, c"", flags, *b"hopwise_try\0\0\0\0\0")
        .map_err(Error::failed("bpf", "BPF_PROG_LOAD"))
}

/// Attaches a program until the returned descriptor is closed.
pub(super) fn attach(program: &OwnedFd, index: u32, mode: Mode) -> Result<OwnedFd, Error> {
    bpf::attach_xdp(program.as_raw_fd(), index, mode.flag()).map_err(Error::failed("bpf", "BPF_LINK_CREATE"))
}
