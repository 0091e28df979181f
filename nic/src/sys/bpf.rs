//! The commands of the bpf(2) system call that are needed here and that `aya` does not offer.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use super::check;

/// Program type `BPF_PROG_TYPE_SOCKET_FILTER` of `enum bpf_prog_type`.
pub(crate) const SOCKET_FILTER: u32 = 1;
/// Program type `BPF_PROG_TYPE_XDP` of `enum bpf_prog_type`.
pub(crate) const XDP: u32 = 6;

/// Commands of bpf(2) (Linux, uapi/linux/bpf.h).
pub(crate) mod command {
    pub(crate) const MAP_CREATE: u32 = 0;
    pub(crate) const MAP_LOOKUP: u32 = 1;
    pub(crate) const MAP_UPDATE: u32 = 2;
    pub(crate) const MAP_DELETE: u32 = 3;
    pub(crate) const MAP_NEXT_KEY: u32 = 4;
    pub(crate) const PROG_LOAD: u32 = 5;
    pub(crate) const PROG_TEST_RUN: u32 = 10;
    pub(crate) const PROG_BY_ID: u32 = 13;
    pub(crate) const MAP_BY_ID: u32 = 14;
    pub(crate) const INFO_BY_FD: u32 = 15;
    pub(crate) const LINK_CREATE: u32 = 28;
}

/// Arguments of creating a map.
#[repr(C)]
struct MapCreate {
    kind: u32,
    key: u32,
    value: u32,
    entries: u32,
}

/// Arguments of the commands on one element of a map.
#[repr(C)]
#[derive(Default)]
pub(crate) struct Element {
    pub(crate) map: u32,
    pub(crate) pad: u32,
    pub(crate) key: u64,
    pub(crate) value: u64,
    pub(crate) flags: u64,
}

/// Arguments of a test run.
#[repr(C)]
#[derive(Default)]
pub(crate) struct TestRun {
    pub(crate) program: u32,
    pub(crate) verdict: u32,
    pub(crate) data_in_len: u32,
    pub(crate) data_out_len: u32,
    pub(crate) data_in: u64,
    pub(crate) data_out: u64,
    pub(crate) repeat: u32,
    pub(crate) duration: u32,
    pub(crate) context_in_len: u32,
    pub(crate) context_out_len: u32,
    pub(crate) context_in: u64,
    pub(crate) context_out: u64,
    pub(crate) flags: u32,
    pub(crate) cpu: u32,
    pub(crate) batch: u32,
    pub(crate) pad: u32,
}

/// Arguments of loading a program, up to its name.
#[repr(C)]
struct ProgramLoad {
    kind: u32,
    count: u32,
    instructions: u64,
    license: u64,
    log: [u64; 2],
    kernel_version: u32,
    flags: u32,
    name: [u8; 16],
}

/// Arguments of attaching with a BPF link.
#[repr(C)]
#[derive(Default)]
struct LinkCreate {
    program: u32,
    target: u32,
    attach_type: u32,
    flags: u32,
    rest: [u64; 4],
}

/// Arguments of the commands that open an object by its ID.
#[repr(C)]
struct Number {
    id: u32,
    next: u32,
    flags: u32,
}

/// Arguments of reading the description of an open program.
#[repr(C)]
struct InfoByFd {
    fd: u32,
    len: u32,
    info: u64,
}

/// Sealed: the structs above, whose layout is what the kernel expects for their commands.
pub(crate) trait Arguments {}
impl Arguments for MapCreate {}
impl Arguments for Element {}
impl Arguments for TestRun {}
impl Arguments for ProgramLoad {}
impl Arguments for LinkCreate {}
impl Arguments for Number {}
impl Arguments for InfoByFd {}

impl Element {
    pub(crate) fn of(map: BorrowedFd<'_>) -> Self {
        Self {
            map: map.as_raw_fd().cast_unsigned(),
            ..Self::default()
        }
    }
}

/// Calls bpf(2). The kernel takes any further arguments as zero.
///
/// # Safety
/// `arguments` belong to `command`, and every address in them points to memory of the length that the command reads or writes,
/// which nothing else uses until the call returns.
pub(crate) unsafe fn bpf<A: Arguments>(command: u32, arguments: &mut A) -> io::Result<i32> {
    let address = std::ptr::from_mut(arguments);
    // SAFETY: the struct is alive and of the length we pass; the caller guarantees what its addresses point to.
    check(unsafe { libc::syscall(libc::SYS_bpf, command, address, size_of::<A>()) })
        .map(|result| result as i32)
}

/// Does the same as [`bpf`], for a command that returns a descriptor.
///
/// # Safety
/// The same as for [`bpf`]; and the command returns a descriptor.
unsafe fn open<A: Arguments>(command: u32, arguments: &mut A) -> io::Result<OwnedFd> {
    // SAFETY: the caller guarantees the call; the kernel just returned this descriptor, and nothing else owns it.
    unsafe { bpf(command, arguments).map(|fd| OwnedFd::from_raw_fd(fd)) }
}

/// Creates an array of one element of `value` bytes, with keys of four bytes.
pub(crate) fn array_of_one(value: u32) -> io::Result<OwnedFd> {
    // `BPF_MAP_TYPE_ARRAY` of linux/bpf.h.
    const ARRAY: u32 = 2;
    let mut arguments = MapCreate {
        kind: ARRAY,
        key: 4,
        value,
        entries: 1,
    };
    // SAFETY: no addresses; the command returns a descriptor.
    unsafe { open(command::MAP_CREATE, &mut arguments) }
}

/// Loads a program of type [`SOCKET_FILTER`] or [`XDP`], without the verifier's log.
pub(crate) fn load(
    kind: u32,
    instructions: &[u64],
    license: &CStr,
    flags: u32,
    name: [u8; 16],
) -> io::Result<OwnedFd> {
    let mut arguments = ProgramLoad {
        kind,
        count: instructions.len() as u32,
        instructions: instructions.as_ptr() as u64,
        license: license.as_ptr() as u64,
        log: [0; 2],
        kernel_version: 0,
        flags,
        name,
    };
    // SAFETY: the kernel reads `count` instructions and the license, which live through the call; the command returns a
    // descriptor.
    unsafe { open(command::PROG_LOAD, &mut arguments) }
}

/// Attaches an XDP program to an interface, until the returned descriptor is closed. `flags` are the XDP_FLAGS of
/// linux/if_link.h.
pub(crate) fn attach_xdp(program: RawFd, interface: u32, flags: u32) -> io::Result<OwnedFd> {
    /// `BPF_XDP` of `enum bpf_attach_type`.
    const ATTACH_TYPE: u32 = 37;
    let mut arguments = LinkCreate {
        program: program.cast_unsigned(),
        target: interface,
        attach_type: ATTACH_TYPE,
        flags,
        ..LinkCreate::default()
    };
    // SAFETY: no addresses; the command returns a descriptor.
    unsafe { open(command::LINK_CREATE, &mut arguments) }
}

/// Opens the program with this ID.
pub(crate) fn program_by_id(id: u32) -> io::Result<OwnedFd> {
    let mut arguments = Number {
        id,
        next: 0,
        flags: 0,
    };
    // SAFETY: no addresses; the command returns a descriptor.
    unsafe { open(command::PROG_BY_ID, &mut arguments) }
}

/// Opens the map with this ID.
pub(crate) fn map_by_id(id: u32) -> io::Result<OwnedFd> {
    let mut arguments = Number {
        id,
        next: 0,
        flags: 0,
    };
    // SAFETY: no addresses; the command returns a descriptor.
    unsafe { open(command::MAP_BY_ID, &mut arguments) }
}

/// Returns the name of a program: up to 15 bytes, then zeros.
pub(crate) fn program_name(program: &OwnedFd) -> io::Result<[u8; 16]> {
    /// Position of the name in `bpf_prog_info`.
    const NAME: std::ops::Range<usize> = 64..80;
    let mut info = [0_u8; NAME.end];
    let mut arguments = InfoByFd {
        fd: program.as_fd().as_raw_fd().cast_unsigned(),
        len: info.len() as u32,
        info: info.as_mut_ptr() as u64,
    };
    // SAFETY: the kernel writes at most the given length, the length of `info`. The pointers in `info` itself are zero, so it
    // writes nowhere else.
    unsafe { bpf(command::INFO_BY_FD, &mut arguments) }?;
    let mut name = [0; 16];
    name.copy_from_slice(&info[NAME]);
    Ok(name)
}
