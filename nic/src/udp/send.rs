//! Sends from a receiver's own socket, to any address. For protocols in which both ends send from a known port, and whose
//! packets have a checksum over the IP header, so that all of its fields must be known in advance (RoCEv2).

use std::io;
use std::net::SocketAddr;
use std::os::fd::AsRawFd;

use super::Receiver;
use super::socket::Name;
use crate::error::Error;
use crate::sys;

/// Maximum number of datagrams per system call.
const PER_CALL: usize = 64;

/// Outcome of sending a burst.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SendOutcome {
    /// Datagrams that the kernel accepted.
    pub sent: u64,
    /// Datagrams for which the kernel had no memory.
    pub no_buffers: u64,
    /// Datagrams that the kernel refused for any other reason: too long for the path, no route.
    pub failed: u64,
    /// The errno of the last failed datagram.
    pub errno: Option<i32>,
}

impl Receiver {
    /// Disables fragmentation of datagrams. IPv4 datagrams then have "don't fragment" set and, because this socket is not
    /// connected, identification 0.
    ///
    /// # Errors
    /// The system refused.
    pub fn never_fragment(&self) -> Result<(), Error> {
        let address = self.local_addr();
        let (level, option, value, name) = if address.is_ipv6() {
            (
                libc::IPPROTO_IPV6,
                libc::IPV6_MTU_DISCOVER,
                libc::IPV6_PMTUDISC_DO,
                "setsockopt IPV6_MTU_DISCOVER",
            )
        } else {
            (
                libc::IPPROTO_IP,
                libc::IP_MTU_DISCOVER,
                libc::IP_PMTUDISC_DO,
                "setsockopt IP_MTU_DISCOVER",
            )
        };
        sys::set(self.owned(), level, option, &value).map_err(Error::failed(name, address))
    }

    /// Sends datagrams, 64 per system call, each to its address. Waits while the send buffer is full. Skips and counts a
    /// datagram that the kernel refuses.
    pub fn send<'d>(&mut self, datagrams: impl IntoIterator<Item = (SocketAddr, &'d [u8])>) -> SendOutcome {
        let mut outcome = SendOutcome::default();
        let mut datagrams = datagrams.into_iter();
        loop {
            // SAFETY: integers and pointers, for which zero (null) is a value.
            let mut vectors: [libc::iovec; PER_CALL] = unsafe { std::mem::zeroed() };
            // SAFETY: as above.
            let mut headers: [libc::mmsghdr; PER_CALL] = unsafe { std::mem::zeroed() };
            let mut names = [Name::default(); PER_CALL];
            let mut count = 0;
            for (to, data) in datagrams.by_ref().take(PER_CALL) {
                let (name, length) = Name::of(to);
                names[count] = name;
                vectors[count] = sys::vector_of(data);
                let header = &mut headers[count].msg_hdr;
                header.msg_name = (&raw mut names[count]).cast();
                header.msg_namelen = length;
                header.msg_iov = &raw mut vectors[count];
                header.msg_iovlen = 1;
                count += 1;
            }
            if count == 0 {
                return outcome;
            }
            let mut first = 0;
            while first < count {
                first += self.send_headers(&mut headers[first..count], &mut outcome);
            }
        }
    }

    /// Sends the first of these messages. Returns how many were sent or skipped, at least one.
    fn send_headers(&self, headers: &mut [libc::mmsghdr], outcome: &mut SendOutcome) -> usize {
        let fd = self.owned().as_raw_fd();
        let count = headers.len() as libc::c_uint;
        loop {
            // SAFETY: `count` headers, each with a name and one vector over a payload; the kernel reads them, and all live
            // through the call.
            let sent = unsafe { libc::sendmmsg(fd, headers.as_mut_ptr(), count, 0) };
            if let Ok(sent) = usize::try_from(sent)
                && sent > 0
            {
                outcome.sent += sent as u64;
                return sent;
            }
            let error = io::Error::last_os_error();
            match error.raw_os_error() {
                // "Port unreachable" was received for an earlier datagram; the kernel reports it once.
                Some(libc::ECONNREFUSED | libc::EINTR) => {}
                Some(libc::ENOBUFS | libc::ENOMEM | libc::EAGAIN) => {
                    outcome.no_buffers += 1;
                    return 1;
                }
                errno => {
                    outcome.failed += 1;
                    outcome.errno = errno;
                    return 1;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::{Burst, Options};
    use super::*;

    fn receiver(address: &str) -> Receiver {
        let options = Options {
            recv_buffer: 1 << 16,
            batch_wait: Duration::ZERO,
            ..Options::default()
        };
        Receiver::bind(address.parse().unwrap(), &options).unwrap()
    }

    #[test]
    fn each_datagram_goes_to_its_address_and_too_long_ones_are_skipped() {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let (mut from, mut one, mut two) = (receiver(address), receiver(address), receiver(address));
            from.never_fragment().unwrap();
            let long = vec![7; 70_000];
            let (a, b) = (one.local_addr(), two.local_addr());
            let sent = from.send([(a, &b"first"[..]), (b, b"second"), (a, &long), (a, b"third")]);
            let expected = SendOutcome {
                sent: 3,
                failed: 1,
                errno: Some(libc::EMSGSIZE),
                ..SendOutcome::default()
            };
            assert_eq!(sent, expected);
            let mut burst = Burst::new(8, 2048);
            let mut take = |receiver: &mut Receiver, most: usize| {
                let mut got = Vec::new();
                while got.len() < most {
                    assert!(receiver.recv(&mut burst, 5000).unwrap() > 0);
                    got.extend(burst.iter().map(|packet| (packet.source, packet.data.to_vec())));
                }
                got
            };
            let source = from.local_addr();
            assert_eq!(
                take(&mut one, 2),
                [(source, b"first".to_vec()), (source, b"third".to_vec())]
            );
            assert_eq!(take(&mut two, 1), [(source, b"second".to_vec())]);
        }
    }

    #[test]
    fn many_are_sent_in_several_calls() {
        let (mut from, mut to) = (receiver("127.0.0.1:0"), receiver("127.0.0.1:0"));
        let address = to.local_addr();
        let data: Vec<[u8; 2]> = (0..150_u16).map(u16::to_be_bytes).collect();
        assert_eq!(
            from.send(data.iter().map(|bytes| (address, &bytes[..]))).sent,
            150
        );
        let (mut burst, mut got) = (Burst::new(64, 64), Vec::new());
        while got.len() < 150 {
            assert!(to.recv(&mut burst, 5000).unwrap() > 0);
            got.extend(burst.iter().map(|packet| [packet.data[0], packet.data[1]]));
        }
        assert_eq!(got, data);
    }
}
