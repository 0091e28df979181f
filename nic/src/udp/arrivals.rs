//! A BPF filter on a UDP socket that counts the arriving datagrams with a correct checksum. The kernel's own drop counter is
//! not enough: it counts a buffer with several merged datagrams as one, and counts a wrong checksum like a full receive buffer.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use super::drops::Arrived;
use crate::sys;
use crate::sys::bpf::{self, Element, command};

/// The counter's map. The filter itself belongs to its socket.
#[derive(Debug)]
pub(super) struct DatagramCounter(OwnedFd);

/// (Number of datagrams, number of buffers).
type Counts = [u64; 2];

impl DatagramCounter {
    /// Attaches the filter. Needs CAP_BPF, unless the system permits everyone to load socket filters.
    pub(super) fn attach(socket: &OwnedFd) -> io::Result<Self> {
        let counter = bpf::array_of_one(size_of::<Counts>() as u32)?;
        let instructions = program(counter.as_raw_fd());
        let program = bpf::load(bpf::SOCKET_FILTER, &instructions, c"Dual MIT/GPL", 0, [0; 16])?;
        sys::set(
            socket,
            libc::SOL_SOCKET,
            libc::SO_ATTACH_BPF,
            &program.as_raw_fd(),
        )?;
        Ok(Self(counter))
    }

    /// Returns the arrivals since the filter was attached, including datagrams dropped for lack of memory. The kernel verifies
    /// checksums before it runs the filter, so datagrams with a wrong checksum are not included.
    pub(super) fn read(&self) -> io::Result<Arrived> {
        let key = 0_u32;
        let mut value: Counts = [0; 2];
        let mut element = Element::of(self.0.as_fd());
        element.key = &raw const key as u64;
        element.value = &raw mut value as u64;
        // SAFETY: the kernel reads the four bytes of the key and writes the sixteen of the value, which live through the call.
        unsafe { bpf::bpf(command::MAP_LOOKUP, &mut element) }?;
        let [datagrams, buffers] = value;
        Ok(Arrived { datagrams, buffers })
    }
}

/// Encodes a BPF instruction; `to` is the destination register and `from` the source register.
const fn instruction(code: u8, to: u8, from: u8, offset: i16, value: i32) -> u64 {
    let registers = if cfg!(target_endian = "little") {
        to | from << 4
    } else {
        to << 4 | from
    };
    let [o0, o1] = offset.to_ne_bytes();
    let [v0, v1, v2, v3] = value.to_ne_bytes();
    u64::from_ne_bytes([code, registers, o0, o1, v0, v1, v2, v3])
}

/// Returns a program that adds the number of datagrams in a buffer to the first word of `map` and 1 to the second, and accepts
/// the buffer.
fn program(map: i32) -> [u64; 14] {
    /// Offsets in `struct __sk_buff`.
    const LEN: i16 = 0;
    const GSO_SIZE: i16 = 176;
    const UDP_HEADER: i32 = 8;
    [
        // r2 = gso_size, the length of each datagram but the last, 0 if there is only one; r3 = 1; skip the division if r2 is
        // 0.
        instruction(0x61, 2, 1, GSO_SIZE, 0),
        instruction(0xb7, 3, 0, 0, 1),
        instruction(0x15, 2, 0, 4, 0),
        // r3 = (len - header + r2 - 1) / r2, rounding up.
        instruction(0x61, 3, 1, LEN, 0),
        instruction(0x0f, 3, 2, 0, 0),
        instruction(0x07, 3, 0, 0, -UDP_HEADER - 1),
        instruction(0x3f, 3, 2, 0, 0),
        // r4 = the two words; atomically add r3 to the first and 1 to the second.
        instruction(0x18, 4, 2, 0, map),
        instruction(0, 0, 0, 0, 0),
        instruction(0xdb, 4, 3, 0, 0),
        instruction(0xb7, 5, 0, 0, 1),
        instruction(0xdb, 4, 5, 8, 0),
        // Accept all bytes.
        instruction(0xb7, 0, 0, 0, -1),
        instruction(0x95, 0, 0, 0, 0),
    ]
}
