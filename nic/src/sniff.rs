//! Captures every frame that passes an interface, in both directions, unmodified (AF_PACKET). For captures, not for receiving
//! reports.

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use crate::error::Error;
use crate::{sys, time};

/// Ioctl of linux/sockios.h: the timestamp of the frame that was read last.
const SIOCGSTAMPNS: u32 = 0x8907;
/// Size of the receive buffer, bytes.
const BUFFER: i32 = 16 << 20;

/// A socket that receives all frames of an interface.
#[derive(Debug)]
pub struct Frames {
    socket: OwnedFd,
    interface: String,
}

/// A frame that was captured.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Frame<'a> {
    /// Bytes from the Ethernet header on, as many as fit into the buffer.
    pub bytes: &'a [u8],
    /// Length of the whole frame, bytes.
    pub length: usize,
    /// Time at which the kernel received or sent it, ns since the epoch.
    pub received: u64,
}

impl Frames {
    /// Listens to an interface of the caller's namespace.
    ///
    /// # Errors
    /// There is no such interface, or CAP_NET_RAW is missing.
    pub fn open(interface: &str) -> Result<Self, Error> {
        let index = sys::interface_index(interface).map_err(Error::failed("if_nametoindex", interface))?;
        let socket = sys::packet_socket(interface)?;
        // Without CAP_NET_ADMIN the buffer keeps its default size.
        let _ = sys::set(&socket, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, &BUFFER);
        sys::bind_to_interface(&socket, index).map_err(Error::failed("bind", interface))?;
        let frames = Self {
            socket,
            interface: interface.to_owned(),
        };
        // The first request enables timestamps.
        let _ = frames.stamp();
        Ok(frames)
    }

    /// Reads the next frame into `buffer`. Returns `None` if there is none within `timeout_ms`.
    /// The interface was removed.
    /// # Errors
    /// The interface is gone.
    pub fn next<'a>(&mut self, buffer: &'a mut [u8], timeout_ms: u32) -> Result<Option<Frame<'a>>, Error> {
        let ready = sys::poll(&mut [sys::readable(self.socket.as_fd())], timeout_ms);
        if ready.map_err(Error::failed("poll", &self.interface))? == 0 {
            return Ok(None);
        }
        let start = buffer.as_mut_ptr().cast();
        let room = buffer.len();
        let flags = libc::MSG_TRUNC | libc::MSG_DONTWAIT;
        // SAFETY: the kernel writes at most `room` bytes into `buffer`, which is ours alone.
        let length = match sys::check(unsafe { libc::recv(self.socket.as_raw_fd(), start, room, flags) }) {
            Err(error) if error.raw_os_error() == Some(libc::EAGAIN) => return Ok(None),
            length => length.map_err(Error::failed("recv", &self.interface))?,
        };
        let received = self.stamp().unwrap_or_else(time::now);
        Ok(Some(Frame {
            bytes: &buffer[..length.min(room)],
            length,
            received,
        }))
    }

    /// Returns the number of frames lost because they were not read in time, since the last call.
    pub fn lost(&self) -> u64 {
        // SAFETY: integers, for which zero is a value.
        let none: libc::tpacket_stats_v3 = unsafe { std::mem::zeroed() };
        let stats = sys::get(&self.socket, libc::SOL_PACKET, libc::PACKET_STATISTICS, none);
        stats.map_or(0, |stats| u64::from(stats.tp_drops))
    }

    fn stamp(&self) -> Option<u64> {
        let mut stamp = MaybeUninit::<libc::timespec>::zeroed();
        // SAFETY: the kernel writes one `timespec`, exclusively ours through the call.
        let result = unsafe { libc::ioctl(self.socket.as_raw_fd(), SIOCGSTAMPNS as _, stamp.as_mut_ptr()) };
        // SAFETY: it was initialised with zeros, which is a value.
        let stamp = unsafe { stamp.assume_init() };
        let whole = u64::try_from(stamp.tv_sec).ok()?.checked_mul(1_000_000_000)?;
        (result == 0 && whole > 0).then(|| whole + stamp.tv_nsec as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netns::{Pair, send_frames, tests::skipped};

    #[test]
    fn frames_of_both_directions_are_seen_whole_or_cut() {
        let pair = match Pair::create() {
            Ok(pair) => pair,
            Err(error) => return skipped(&error),
        };
        // An EtherType for experiments: nothing else sends such frames.
        let frame = |fill: u8, length: usize| {
            [
                vec![2, 0, 0, 0, 0, fill, 2, 0, 0, 0, 0, 9, 0x88, 0xb5],
                vec![fill; length],
            ]
            .concat()
        };
        let mut frames = pair.far.run(|| Frames::open(Pair::DEVICE)).unwrap().unwrap();
        pair.near
            .run(|| send_frames(Pair::DEVICE, &[frame(1, 50), frame(2, 1000)]))
            .unwrap()
            .unwrap();
        pair.far
            .run(|| send_frames(Pair::DEVICE, &[frame(3, 60)]))
            .unwrap()
            .unwrap();
        let (mut found, mut buffer) = (Vec::new(), [0; 512]);
        while found.len() < 3 {
            let seen = frames.next(&mut buffer, 5_000).unwrap().unwrap();
            assert!(seen.received.abs_diff(time::now()) < 60_000_000_000);
            if seen.bytes[12..14] == [0x88, 0xb5] {
                found.push((seen.bytes[5], seen.bytes.len(), seen.length));
            }
        }
        assert_eq!(found, [(1, 64, 64), (2, 512, 1014), (3, 74, 74)]);
        assert_eq!(frames.lost(), 0);
        assert!(Frames::open("hopwise-none").is_err());
    }
}
