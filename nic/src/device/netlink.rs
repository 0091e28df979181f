//! A minimal netlink client: sends one request, reads one reply, and finds the attributes in it.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use crate::error::Error;
use crate::sys;

/// Bytes of `nlmsghdr`: length, type, flags, sequence, port.
const HEADER: usize = 16;
/// Message type of a reply that is an error number (`NLMSG_ERROR`).
const ERROR: u16 = 2;
/// Size of the reply buffer, bytes: a reply always fits (the kernel starts with at most 32 KiB, `NLMSG_GOODSIZE`).
const ANSWER: usize = 64 * 1024;

/// A netlink socket in the network namespace of the thread that opened it.
#[derive(Debug)]
pub(crate) struct Netlink {
    socket: OwnedFd,
}

impl Netlink {
    /// Opens a socket; `protocol` is `NETLINK_ROUTE` or `NETLINK_GENERIC`.
    pub(crate) fn open(protocol: i32) -> Result<Self, Error> {
        let socket = sys::socket(libc::AF_NETLINK, libc::SOCK_RAW, protocol);
        let socket = socket.map_err(Error::failed("socket", "AF_NETLINK"))?;
        Ok(Self { socket })
    }

    /// Sends a request of this type and returns the reply after its header.
    pub(crate) fn query(&self, kind: u16, body: &[u8]) -> Result<Vec<u8>, Error> {
        let bytes = self.exchange(kind, libc::NLM_F_REQUEST as u16, body)?;
        answer(&bytes)
            .map(<[u8]>::to_vec)
            .map_err(Error::failed("recv", "netlink"))
    }

    /// Sends a request of this type and reads its acknowledgement.
    pub(crate) fn request(&self, kind: u16, body: &[u8]) -> Result<(), Error> {
        let bytes = self.exchange(kind, (libc::NLM_F_REQUEST | libc::NLM_F_ACK) as u16, body)?;
        match answer(&bytes) {
            // Error number 0 is netlink's acknowledgement.
            Err(error) if error.raw_os_error() == Some(0) => Ok(()),
            Err(source) => Err(Error::new("recv", "netlink", source)),
            Ok(_) => Ok(()),
        }
    }

    fn exchange(&self, kind: u16, flags: u16, body: &[u8]) -> Result<Vec<u8>, Error> {
        let mut request = Vec::with_capacity(HEADER + body.len());
        request.extend_from_slice(&((HEADER + body.len()) as u32).to_ne_bytes());
        request.extend_from_slice(&kind.to_ne_bytes());
        request.extend_from_slice(&flags.to_ne_bytes());
        request.extend_from_slice(&[0; 8]);
        request.extend_from_slice(body);
        let fd = self.socket.as_raw_fd();
        // SAFETY: the kernel reads `request.len()` bytes of `request`, which lives through the call.
        let sent = unsafe { libc::send(fd, request.as_ptr().cast(), request.len(), 0) };
        sys::check(sent).map_err(Error::failed("send", "netlink"))?;
        let mut bytes = vec![0; ANSWER];
        // The kernel replies before `send` returns, so this never waits.
        // SAFETY: the kernel writes at most `bytes.len()` bytes.
        let len = unsafe { libc::recv(fd, bytes.as_mut_ptr().cast(), bytes.len(), libc::MSG_DONTWAIT) };
        bytes.truncate(sys::check(len).map_err(Error::failed("recv", "netlink"))?);
        Ok(bytes)
    }
}

/// Returns the body of the first message in `bytes`.
fn answer(bytes: &[u8]) -> io::Result<&[u8]> {
    match parts(bytes) {
        Some((ERROR, Some(code), _)) => Err(io::Error::from_raw_os_error((code as i32).saturating_neg())),
        Some((kind, _, body)) if kind != ERROR => Ok(body),
        _ => Err(io::Error::new(io::ErrorKind::InvalidData, "a truncated answer")),
    }
}

/// Returns the type of the first message, the number at the start of its body, and its body.
fn parts(bytes: &[u8]) -> Option<(u16, Option<u32>, &[u8])> {
    let len = u32_at(bytes, 0)? as usize;
    let body = bytes.get(HEADER..len)?;
    Some((u16_at(bytes, 4)?, u32_at(body, 0), body))
}

/// The attributes of a reply, up to the first malformed one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Attributes<'a>(pub(crate) &'a [u8]);

impl<'a> Attributes<'a> {
    /// Returns the value of the first attribute of this type.
    pub(crate) fn value(mut self, kind: u16) -> Option<&'a [u8]> {
        self.find(|(found, _)| *found == kind).map(|(_, value)| value)
    }

    /// Returns the attributes nested in the first attribute of this type.
    pub(crate) fn nested(self, kind: u16) -> Option<Self> {
        self.value(kind).map(Self)
    }

    pub(crate) fn u32(self, kind: u16) -> Option<u32> {
        self.value(kind).and_then(|value| u32_at(value, 0))
    }

    pub(crate) fn u8(self, kind: u16) -> Option<u8> {
        self.value(kind)?.first().copied()
    }

    /// Returns the text of an attribute, without its terminating zero.
    pub(crate) fn text(self, kind: u16) -> Option<String> {
        self.value(kind).map(text)
    }
}

impl<'a> Iterator for Attributes<'a> {
    type Item = (u16, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        /// Mask of an attribute's type; the upper two bits are flags of the encoding.
        const TYPE: u16 = 0x3fff;
        let len = usize::from(u16_at(self.0, 0)?);
        let kind = u16_at(self.0, 2)?;
        let value = self.0.get(4..len)?;
        // Attributes are aligned to four bytes; the last one may lack its padding.
        self.0 = self.0.get(len.next_multiple_of(4)..).unwrap_or_default();
        Some((kind & TYPE, value))
    }
}

/// Appends a netlink attribute to a message.
pub(crate) fn put(out: &mut Vec<u8>, kind: u16, value: &[u8]) {
    out.extend_from_slice(&((4 + value.len()) as u16).to_ne_bytes());
    out.extend_from_slice(&kind.to_ne_bytes());
    out.extend_from_slice(value);
    out.resize(out.len().next_multiple_of(4), 0);
}

/// Returns the text before the first zero byte.
pub(crate) fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}

pub(crate) fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..at + 2)?.try_into().ok().map(u16::from_ne_bytes)
}

pub(crate) fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..at + 4)?.try_into().ok().map(u32::from_ne_bytes)
}

pub(crate) fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    bytes.get(at..at + 8)?.try_into().ok().map(u64::from_ne_bytes)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Returns an attribute that nests other attributes.
    pub(crate) fn nest(kind: u16, inside: &[(u16, &[u8])]) -> Vec<u8> {
        let mut value = Vec::new();
        for (kind, bytes) in inside {
            put(&mut value, *kind, bytes);
        }
        let mut out = Vec::new();
        put(&mut out, kind, &value);
        out
    }

    fn message(kind: u16, body: &[u8]) -> Vec<u8> {
        let mut out = ((HEADER + body.len()) as u32).to_ne_bytes().to_vec();
        out.extend_from_slice(&kind.to_ne_bytes());
        out.extend_from_slice(&[0; 10]);
        out.extend_from_slice(body);
        out
    }

    #[test]
    fn a_reply_is_its_body_or_its_error() {
        assert_eq!(answer(&message(16, b"body")).unwrap(), b"body");
        let error = answer(&message(ERROR, &(-libc::ENODEV).to_ne_bytes())).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::ENODEV));
        let whole = message(16, b"body");
        for len in 0..whole.len() {
            assert_eq!(
                answer(&whole[..len]).unwrap_err().kind(),
                io::ErrorKind::InvalidData,
                "{len}"
            );
        }
        assert!(answer(&message(ERROR, &[])).is_err());
    }

    #[test]
    fn attributes_are_found_between_unknown_ones() {
        let mut bytes = Vec::new();
        put(&mut bytes, 3, b"veth0\0");
        put(&mut bytes, 4, &1500u32.to_ne_bytes());
        bytes.extend(nest(0x8000 | 43, &[(2, &[1]), (4, &7u32.to_ne_bytes())]));
        let attributes = Attributes(&bytes);
        assert_eq!(attributes.text(3).as_deref(), Some("veth0"));
        assert_eq!(attributes.u32(4), Some(1500));
        let xdp = attributes.nested(43).unwrap();
        assert_eq!((xdp.u8(2), xdp.u32(4), xdp.u32(5)), (Some(1), Some(7), None));
        assert_eq!(
            attributes.into_iter().map(|(kind, _)| kind).collect::<Vec<_>>(),
            [3, 4, 43]
        );
    }

    #[test]
    fn attributes_that_are_cut_or_lie_about_their_length_are_not_there() {
        let mut bytes = Vec::new();
        put(&mut bytes, 4, &1500u32.to_ne_bytes());
        for len in 0..bytes.len() {
            assert_eq!(Attributes(&bytes[..len]).u32(4), None, "{len}");
        }
        for claimed in [0u16, 3, 200] {
            let lying = [&claimed.to_ne_bytes()[..], &bytes[2..]].concat();
            assert_eq!(Attributes(&lying).into_iter().count(), 0, "{claimed}");
        }
        // Shorter than a number.
        assert_eq!(Attributes(&nest(4, &[])).u32(4), None);
    }
}
