//! The system calls on sockets, each in a safe function.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::time::Duration;

use crate::error::Error;
use crate::sys;

/// A UDP socket of the family of `address`; IPv6 sockets receive IPv6 only.
pub(super) fn open(address: SocketAddr) -> Result<OwnedFd, Error> {
    let family = if address.is_ipv6() {
        libc::AF_INET6
    } else {
        libc::AF_INET
    };
    // SAFETY: no pointers.
    let fd = unsafe { libc::socket(family, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) };
    if fd < 0 {
        return Err(Error::socket("socket", address));
    }
    // SAFETY: the kernel just returned this descriptor, and nothing else owns it.
    let socket = unsafe { OwnedFd::from_raw_fd(fd) };
    if address.is_ipv6() {
        set(&socket, libc::IPPROTO_IPV6, libc::IPV6_V6ONLY, 1)
            .map_err(|source| Error::new("setsockopt IPV6_V6ONLY", address, source))?;
    }
    Ok(socket)
}

/// A UDP socket for every address, of both families unless there is no IPv6, on one device or all; and the address to bind.
pub(super) fn open_any(port: u16, device: Option<&str>) -> Result<(OwnedFd, SocketAddr), Error> {
    let v6 = SocketAddr::from((Ipv6Addr::UNSPECIFIED, port));
    let (socket, address) = match open(v6) {
        Ok(socket) => {
            set(&socket, libc::IPPROTO_IPV6, libc::IPV6_V6ONLY, 0)
                .map_err(|source| Error::new("setsockopt IPV6_V6ONLY", v6, source))?;
            (socket, v6)
        }
        Err(error) if error.errno() == Some(libc::EAFNOSUPPORT) => {
            let v4 = SocketAddr::from((Ipv4Addr::UNSPECIFIED, port));
            (open(v4)?, v4)
        }
        Err(error) => return Err(error),
    };
    if let Some(device) = device {
        sys::bind_to_device(&socket, device)
            .map_err(|source| Error::new("setsockopt SO_BINDTODEVICE", device, source))?;
    }
    Ok((socket, address))
}

/// Opens a UDP socket as [`open_any`] does, and binds it.
pub(crate) fn any_address(port: u16, device: Option<&str>) -> Result<OwnedFd, Error> {
    let (socket, address) = open_any(port, device)?;
    bind(&socket, address)?;
    Ok(socket)
}

pub(super) fn bind(socket: &OwnedFd, address: SocketAddr) -> Result<(), Error> {
    let (name, len) = Name::of(address);
    // SAFETY: `name` is a socket address of `len` bytes that lives through the call.
    let result = unsafe { libc::bind(socket.as_raw_fd(), (&raw const name).cast(), len) };
    if result < 0 {
        Err(Error::socket("bind", address))
    } else {
        Ok(())
    }
}

pub(super) fn connect(socket: &OwnedFd, address: SocketAddr) -> Result<(), Error> {
    let (name, len) = Name::of(address);
    // SAFETY: `name` is a socket address of `len` bytes that lives through the call.
    let result = unsafe { libc::connect(socket.as_raw_fd(), (&raw const name).cast(), len) };
    if result < 0 {
        Err(Error::socket("connect", address))
    } else {
        Ok(())
    }
}

/// The address the socket is bound to, with the port the kernel chose.
pub(super) fn local_address(socket: &OwnedFd) -> Result<SocketAddr, Error> {
    let mut name = Name::default();
    let mut len = size_of::<Name>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `len` bytes, the size of `name`.
    let result = unsafe { libc::getsockname(socket.as_raw_fd(), (&raw mut name).cast(), &raw mut len) };
    if result < 0 {
        Err(Error::last("getsockname", ""))
    } else {
        Ok(name.address())
    }
}

pub(super) fn set(socket: &OwnedFd, level: i32, option: i32, value: i32) -> io::Result<()> {
    set_value(socket, level, option, &value)
}

/// A blocking receive call returns after `longest` (less than a second) without a datagram.
pub(super) fn set_recv_timeout(socket: &OwnedFd, longest: Duration) -> io::Result<()> {
    let timeout = libc::timeval {
        tv_sec: 0,
        tv_usec: libc::suseconds_t::from(longest.subsec_micros()),
    };
    set_value(socket, libc::SOL_SOCKET, libc::SO_RCVTIMEO, &timeout)
}

fn set_value<T: Copy>(socket: &OwnedFd, level: i32, option: i32, value: &T) -> io::Result<()> {
    let (pointer, len) = (
        std::ptr::from_ref(value).cast(),
        size_of::<T>() as libc::socklen_t,
    );
    // SAFETY: the kernel reads `len` bytes, the size of `value`, which lives through the call.
    let result = unsafe { libc::setsockopt(socket.as_raw_fd(), level, option, pointer, len) };
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}

/// Reads an option that is an array of integers; returns how many the kernel filled in.
pub(super) fn get<const N: usize>(
    socket: &OwnedFd,
    level: i32,
    option: i32,
) -> io::Result<([u32; N], usize)> {
    let mut values = [0u32; N];
    let mut len = size_of_val(&values) as libc::socklen_t;
    // SAFETY: the kernel writes at most `len` bytes, the size of `values`, for which all bit patterns are values.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            level,
            option,
            values.as_mut_ptr().cast(),
            &raw mut len,
        )
    };
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok((values, len as usize / size_of::<u32>()))
    }
}

/// Waits for a datagram; false after `timeout_ms` or on a signal.
pub(super) fn wait_readable(socket: &OwnedFd, timeout_ms: u32) -> io::Result<bool> {
    let mut poll = libc::pollfd {
        fd: socket.as_raw_fd(),
        events: libc::POLLIN,
        revents: 0,
    };
    let timeout = i32::try_from(timeout_ms).unwrap_or(i32::MAX);
    // SAFETY: one `pollfd`, which lives through the call.
    let ready = unsafe { libc::poll(&raw mut poll, 1, timeout) };
    match ready {
        0 => Ok(false),
        1.. => Ok(true),
        _ => interrupted_is(false),
    }
}

/// After a failed call: `value` if a signal interrupted it, else the error.
pub(super) fn interrupted_is<T>(value: T) -> io::Result<T> {
    let error = io::Error::last_os_error();
    if error.kind() == io::ErrorKind::Interrupted {
        Ok(value)
    } else {
        Err(error)
    }
}

/// A socket address of either family, as the kernel writes it. Plain bytes: it is read field by field.
#[derive(Clone, Copy, Default)]
#[repr(C, align(8))]
pub(super) struct Name {
    bytes: [u8; 28],
}

/// It must be large enough for an IPv6 address.
const _: () = assert!(size_of::<Name>() >= size_of::<libc::sockaddr_in6>());

impl Name {
    /// In both families: the family, in host order, then the port.
    const PORT: usize = 2;
    const ADDRESS_V4: usize = 4;
    const FLOW_INFO_V6: usize = 4;
    const ADDRESS_V6: usize = 8;
    const SCOPE_V6: usize = 24;

    /// The name of `address` and its length.
    pub(super) fn of(address: SocketAddr) -> (Self, libc::socklen_t) {
        let mut name = Self::default();
        let family = if address.is_ipv6() {
            libc::AF_INET6
        } else {
            libc::AF_INET
        } as u16;
        name.put(0, &family.to_ne_bytes());
        name.put(Self::PORT, &address.port().to_be_bytes());
        match address {
            SocketAddr::V4(v4) => {
                name.put(Self::ADDRESS_V4, &v4.ip().octets());
                (name, size_of::<libc::sockaddr_in>() as libc::socklen_t)
            }
            SocketAddr::V6(v6) => {
                name.put(Self::FLOW_INFO_V6, &v6.flowinfo().to_be_bytes());
                name.put(Self::ADDRESS_V6, &v6.ip().octets());
                name.put(Self::SCOPE_V6, &v6.scope_id().to_ne_bytes());
                (name, size_of::<libc::sockaddr_in6>() as libc::socklen_t)
            }
        }
    }

    /// The address it names; anything but IPv6 is read as IPv4.
    #[inline]
    pub(super) fn address(&self) -> SocketAddr {
        let family = i32::from(u16::from_ne_bytes(self.get(0)));
        let port = u16::from_be_bytes(self.get(Self::PORT));
        if family == libc::AF_INET6 {
            // An IPv4 sender at a socket for both families.
            let ip = IpAddr::V6(Ipv6Addr::from(self.get::<16>(Self::ADDRESS_V6))).to_canonical();
            SocketAddr::new(ip, port)
        } else {
            SocketAddr::new(IpAddr::V4(Ipv4Addr::from(self.get::<4>(Self::ADDRESS_V4))), port)
        }
    }

    fn put(&mut self, at: usize, bytes: &[u8]) {
        self.bytes[at..at + bytes.len()].copy_from_slice(bytes);
    }

    #[inline]
    fn get<const N: usize>(&self, at: usize) -> [u8; N] {
        let mut bytes = [0; N];
        bytes.copy_from_slice(&self.bytes[at..at + N]);
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_convert_and_read_back() {
        for text in ["10.1.2.3:32766", "[2001:db8::1]:1", "[::]:0", "0.0.0.0:65535"] {
            let address: SocketAddr = text.parse().unwrap();
            assert_eq!(Name::of(address).0.address(), address);
        }
        assert_eq!(Name::of("10.0.0.1:1".parse().unwrap()).1, 16);
        assert_eq!(Name::of("[::1]:1".parse().unwrap()).1, 28);
    }
}
