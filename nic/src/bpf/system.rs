//! The `bpf` system call: the commands that we need and `aya` does not offer.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Commands of bpf(2) (Linux, uapi/linux/bpf.h).
pub(super) mod command {
    pub(in super::super) const MAP_LOOKUP: u32 = 1;
    pub(in super::super) const MAP_UPDATE: u32 = 2;
    pub(in super::super) const MAP_DELETE: u32 = 3;
    pub(in super::super) const MAP_NEXT_KEY: u32 = 4;
    pub(in super::super) const PROG_TEST_RUN: u32 = 10;
    pub(in super::super) const PROG_BY_ID: u32 = 13;
    pub(in super::super) const MAP_BY_ID: u32 = 14;
    pub(in super::super) const LINK_CREATE: u32 = 28;
}

/// Arguments of the commands about one element.
#[repr(C)]
#[derive(Default)]
pub(super) struct Element {
    pub(super) map: u32,
    pub(super) pad: u32,
    pub(super) key: u64,
    pub(super) value: u64,
    pub(super) flags: u64,
}

/// Arguments of a test run.
#[repr(C)]
#[derive(Default)]
pub(super) struct TestRun {
    pub(super) program: u32,
    pub(super) verdict: u32,
    pub(super) data_in_len: u32,
    pub(super) data_out_len: u32,
    pub(super) data_in: u64,
    pub(super) data_out: u64,
    pub(super) repeat: u32,
    pub(super) duration: u32,
    pub(super) context_in_len: u32,
    pub(super) context_out_len: u32,
    pub(super) context_in: u64,
    pub(super) context_out: u64,
    pub(super) flags: u32,
    pub(super) cpu: u32,
    pub(super) batch: u32,
    pub(super) pad: u32,
}

/// Arguments of attaching by a link.
#[repr(C)]
#[derive(Default)]
pub(super) struct LinkCreate {
    pub(super) program: u32,
    pub(super) target: u32,
    pub(super) attach_type: u32,
    pub(super) flags: u32,
    pub(super) rest: [u64; 4],
}

/// Arguments of opening something by its number.
#[repr(C)]
pub(super) struct Number {
    pub(super) id: u32,
    pub(super) next: u32,
    pub(super) flags: u32,
}

/// Sealed: the structs above, which have the layout that the kernel expects for their commands.
pub(super) trait Arguments {}
impl Arguments for Element {}
impl Arguments for TestRun {}
impl Arguments for LinkCreate {}
impl Arguments for Number {}

impl Element {
    pub(super) fn of(map: BorrowedFd<'_>) -> Self {
        Self {
            map: map.as_raw_fd().cast_unsigned(),
            ..Self::default()
        }
    }
}

/// Calls the kernel.
///
/// # Safety
/// `arguments` are those of `command`, and every address in them points to memory of the length that the command reads or
/// writes, which nothing else uses until the call returns.
pub(super) unsafe fn bpf<A: Arguments>(command: u32, arguments: &mut A) -> io::Result<i32> {
    // SAFETY: the struct is alive and of the length we pass; the caller guarantees what its addresses point to.
    let result = unsafe {
        libc::syscall(
            libc::SYS_bpf,
            command,
            std::ptr::from_mut(arguments),
            size_of::<A>(),
        )
    };
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(result as i32)
    }
}
