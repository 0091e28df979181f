//! A filter on a UDP socket that counts what arrives at it with a correct checksum. The kernel's own counter of drops counts a buffer into
//! which it merged several datagrams as one, and counts a wrong checksum like a full receive buffer.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use super::drops::Arrived;

/// The counter; the filter itself belongs to its socket.
#[derive(Debug)]
pub(super) struct DatagramCounter(OwnedFd);

impl DatagramCounter {
    /// Attaches the filter. It needs CAP_BPF, unless the system permits everyone to load filters.
    pub(super) fn attach(socket: &OwnedFd) -> io::Result<Self> {
        const ARRAY: u32 = 2;
        let mut create = MapCreate {
            kind: ARRAY,
            key: 4,
            value: 16,
            entries: 1,
        };
        // SAFETY: the arguments of this command, without addresses.
        let counter = owned(unsafe { bpf(MAP_CREATE, &mut create) }?);
        let program = load(&program(counter.as_raw_fd()))?;
        let (fd, len) = (program.as_raw_fd(), size_of::<libc::c_int>() as libc::socklen_t);
        // SAFETY: the kernel reads `len` bytes, the size of `fd`, which lives through the call.
        let result = unsafe {
            let value = (&raw const fd).cast();
            libc::setsockopt(
                socket.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_ATTACH_BPF,
                value,
                len,
            )
        };
        if result < 0 {
            Err(io::Error::last_os_error())
        } else {
            Ok(Self(counter))
        }
    }

    /// Returns what arrived since the filter was attached, including what was dropped for lack of memory. The kernel
    /// verifies checksums before it asks a filter, so that datagrams with a wrong one are not included.
    pub(super) fn read(&self) -> io::Result<Arrived> {
        let (key, mut value) = (0_u32, [0_u64; 2]);
        let mut element = Element {
            map: self.0.as_raw_fd().cast_unsigned(),
            padding: 0,
            key: &raw const key as u64,
            value: &raw mut value as u64,
            flags: 0,
        };
        // SAFETY: the kernel reads the four bytes of the key and writes the sixteen of the value, which live through the call.
        unsafe { bpf(MAP_LOOKUP, &mut element) }?;
        let [datagrams, buffers] = value;
        Ok(Arrived { datagrams, buffers })
    }
}

fn owned(fd: i32) -> OwnedFd {
    // SAFETY: the kernel just returned this descriptor, and nothing else owns it.
    unsafe { OwnedFd::from_raw_fd(fd) }
}

fn load(instructions: &[Instruction]) -> io::Result<OwnedFd> {
    const SOCKET_FILTER: u32 = 1;
    let license = c"Dual MIT/GPL";
    let mut arguments = ProgramLoad {
        kind: SOCKET_FILTER,
        count: instructions.len() as u32,
        instructions: instructions.as_ptr() as u64,
        license: license.as_ptr() as u64,
    };
    // SAFETY: the kernel reads `count` instructions and the license, which live through the call.
    Ok(owned(unsafe { bpf(PROG_LOAD, &mut arguments) }?))
}

/// Commands of the system call `bpf` (Linux, uapi/linux/bpf.h).
const MAP_CREATE: u32 = 0;
const MAP_LOOKUP: u32 = 1;
const PROG_LOAD: u32 = 5;

/// Arguments of making a map.
#[repr(C)]
struct MapCreate {
    kind: u32,
    key: u32,
    value: u32,
    entries: u32,
}

/// Arguments of reading an element.
#[repr(C)]
struct Element {
    map: u32,
    padding: u32,
    key: u64,
    value: u64,
    flags: u64,
}

/// Arguments of loading a program, as far as they are not zero.
#[repr(C)]
struct ProgramLoad {
    kind: u32,
    count: u32,
    instructions: u64,
    license: u64,
}

/// Calls the kernel, for which further arguments are zero.
///
/// # Safety
/// `arguments` are those of `command`, and every address in them points to memory of the length that the command reads or writes, which
/// nothing else uses until the call returns.
unsafe fn bpf<A>(command: u32, arguments: &mut A) -> io::Result<i32> {
    // SAFETY: the structure lives through the call and has the length that we pass; the caller guarantees the addresses in it.
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

/// As the kernel reads it.
#[repr(C, align(8))]
struct Instruction {
    code: u8,
    registers: u8,
    offset: i16,
    value: i32,
}

impl Instruction {
    const fn new(code: u8, (to, from): (u8, u8), offset: i16, value: i32) -> Self {
        let registers = if cfg!(target_endian = "little") {
            to | from << 4
        } else {
            to << 4 | from
        };
        Self {
            code,
            registers,
            offset,
            value,
        }
    }
}

/// Adds the number of datagrams in a buffer to the first word of `map` and 1 to the second, and accepts the buffer.
fn program(map: i32) -> [Instruction; 14] {
    /// Offsets in `struct __sk_buff`.
    const LEN: i16 = 0;
    const GSO_SIZE: i16 = 176;
    const UDP_HEADER: i32 = 8;
    let i = Instruction::new;
    [
        // r3 = 1; the length of each datagram but the last is 0 if there is only one.
        i(0x61, (2, 1), GSO_SIZE, 0),
        i(0xb7, (3, 0), 0, 1),
        i(0x15, (2, 0), 4, 0),
        // r3 = (len - header + r2 - 1) / r2
        i(0x61, (3, 1), LEN, 0),
        i(0x0f, (3, 2), 0, 0),
        i(0x07, (3, 0), 0, -UDP_HEADER - 1),
        i(0x3f, (3, 2), 0, 0),
        // r4 = the two words; add r3 and 1 to them atomically.
        i(0x18, (4, 2), 0, map),
        i(0, (0, 0), 0, 0),
        i(0xdb, (4, 3), 0, 0),
        i(0xb7, (5, 0), 0, 1),
        i(0xdb, (4, 5), 8, 0),
        // Accept all bytes.
        i(0xb7, (0, 0), 0, -1),
        i(0x95, (0, 0), 0, 0),
    ]
}
