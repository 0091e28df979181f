//! A connected UDP socket that sends bursts of datagrams.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, OwnedFd};

use super::socket;
use crate::error::Error;
use crate::sys;

/// Maximum number of datagrams that [`Sender::send_segments`] hands to the kernel at once.
pub const SEGMENTS_PER_CALL: usize = 64;

/// A UDP socket that sends to one address.
#[derive(Debug)]
pub struct Sender {
    socket: OwnedFd,
    to: SocketAddr,
}

impl Sender {
    /// Opens a socket that sends from `from` (with port 0 the kernel chooses) to `to`.
    ///
    /// # Errors
    /// The port is in use, the address is not ours, or there is no route; the error says what to do.
    pub fn connect(from: SocketAddr, to: SocketAddr) -> Result<Self, Error> {
        let socket = socket::open(to)?;
        socket::bind(&socket, from)?;
        socket::connect(&socket, to)?;
        Ok(Self { socket, to })
    }

    /// Returns the address sent from.
    ///
    /// # Errors
    /// The system refused.
    pub fn local_addr(&self) -> Result<SocketAddr, Error> {
        socket::local_address(&self.socket)
    }

    /// Sends each payload as a datagram, 64 per system call, and waits while the send buffer is full. Returns how many the
    /// kernel accepted: all, unless an error occurred after some of them. An unreachable port at the other end is not an error.
    ///
    /// # Errors
    /// The first datagram could not be sent, for example because it is too long.
    pub fn send_burst(&mut self, payloads: &[&[u8]]) -> Result<usize, Error> {
        // Maximum number of datagrams per `sendmmsg` call.
        const PER_CALL: usize = 64;
        let mut sent = 0;
        while sent < payloads.len() {
            let chunk = &payloads[sent..payloads.len().min(sent + PER_CALL)];
            // SAFETY: integers and pointers, for which zero (null) is a value.
            let mut vectors: [libc::iovec; PER_CALL] = unsafe { std::mem::zeroed() };
            // SAFETY: as above.
            let mut headers: [libc::mmsghdr; PER_CALL] = unsafe { std::mem::zeroed() };
            for ((payload, vector), header) in chunk.iter().zip(&mut vectors).zip(&mut headers) {
                *vector = sys::vector_of(payload);
                header.msg_hdr.msg_iov = &raw mut *vector;
                header.msg_hdr.msg_iovlen = 1;
            }
            let fd = self.socket.as_raw_fd();
            let count = chunk.len() as libc::c_uint;
            // SAFETY: `count` headers, each with one vector that spans a payload; the kernel reads them, and all live through
            // the call.
            let result = unsafe { libc::sendmmsg(fd, headers.as_mut_ptr(), count, 0) };
            match self.outcome(result as isize) {
                Ok(more) => sent += more,
                Err(error) if sent == 0 => return Err(error),
                Err(_) => break,
            }
        }
        Ok(sent)
    }

    /// Sends `data` as datagrams of `segment` bytes (the last one may be shorter), up to [`SEGMENTS_PER_CALL`] per call, with
    /// UDP segmentation offload. This is the fastest way to generate load. Returns the number of datagrams sent.
    ///
    /// # Errors
    /// The same as for [`Sender::send_burst`]; a segment must fit into the MTU.
    pub fn send_segments(&mut self, data: &[u8], segment: u16) -> Result<usize, Error> {
        /// Maximum payload of a UDP datagram over IPv4, which the kernel checks before it segments.
        const LONGEST: usize = 65507;
        let segment_len = usize::from(segment.max(1));
        let per_call = (LONGEST / segment_len).clamp(1, SEGMENTS_PER_CALL) * segment_len;
        let mut sent = 0;
        for chunk in data.chunks(per_call) {
            match self.send_one_segmented(chunk, segment) {
                Ok(()) => sent += chunk.len().div_ceil(segment_len),
                Err(error) if sent == 0 => return Err(error),
                Err(_) => break,
            }
        }
        Ok(sent)
    }

    fn send_one_segmented(&self, data: &[u8], segment: u16) -> Result<(), Error> {
        let mut vector = sys::vector_of(data);
        let mut control = SegmentControl::new(segment);
        // SAFETY: integers and pointers, for which zero (null) is a value.
        let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
        header.msg_iov = &raw mut vector;
        header.msg_iovlen = 1;
        header.msg_control = (&raw mut control).cast();
        header.msg_controllen = size_of::<SegmentControl>();
        loop {
            // SAFETY: one header, with one vector that spans `data` and one control message; the kernel reads them, and all
            // live through the call.
            let result = unsafe { libc::sendmsg(self.socket.as_raw_fd(), &raw const header, 0) };
            if self.outcome(result)? > 0 || data.is_empty() {
                return Ok(());
            }
        }
    }

    /// Returns the result of a send call, or 0 if it must be repeated.
    fn outcome(&self, result: isize) -> Result<usize, Error> {
        if let Ok(sent) = usize::try_from(result) {
            return Ok(sent);
        }
        let error = io::Error::last_os_error();
        match error.kind() {
            // "Port unreachable" was received for an earlier datagram; the kernel reports it once.
            io::ErrorKind::ConnectionRefused | io::ErrorKind::Interrupted => Ok(0),
            _ => Err(Error::new("sendmmsg", self.to, error)),
        }
    }
}

/// The control message for segmentation (`UDP_SEGMENT`): a header, then the segment length.
#[repr(C)]
struct SegmentControl {
    header: libc::cmsghdr,
    segment: u16,
    padding: [u8; size_of::<usize>() - 2],
}

impl SegmentControl {
    fn new(segment: u16) -> Self {
        let header = libc::cmsghdr {
            cmsg_len: size_of::<libc::cmsghdr>() + size_of::<u16>(),
            cmsg_level: libc::SOL_UDP,
            cmsg_type: libc::UDP_SEGMENT,
        };
        Self {
            header,
            segment,
            padding: [0; size_of::<usize>() - 2],
        }
    }
}
