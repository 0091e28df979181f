//! Safe wrappers for the system calls on UDP sockets, and conversion of socket addresses.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsRawFd, OwnedFd};

use crate::error::Error;
use crate::sys;

/// Opens a UDP socket of the family of `address`; IPv6 sockets receive only IPv6.
pub(super) fn open(address: SocketAddr) -> Result<OwnedFd, Error> {
    let family = if address.is_ipv6() {
        libc::AF_INET6
    } else {
        libc::AF_INET
    };
    let socket = sys::socket(family, libc::SOCK_DGRAM, 0).map_err(Error::on_socket("socket", address))?;
    if address.is_ipv6() {
        set_v6_only(&socket, address, true)?;
    }
    Ok(socket)
}

fn set_v6_only(socket: &OwnedFd, address: SocketAddr, on: bool) -> Result<(), Error> {
    sys::set(socket, libc::IPPROTO_IPV6, libc::IPV6_V6ONLY, &i32::from(on))
        .map_err(Error::failed("setsockopt IPV6_V6ONLY", address))
}

/// Opens a UDP socket for every address, of both families if there is IPv6, on one device or all. Returns it with the address
/// to bind.
pub(super) fn open_any(port: u16, device: Option<&str>) -> Result<(OwnedFd, SocketAddr), Error> {
    let v6 = SocketAddr::from((Ipv6Addr::UNSPECIFIED, port));
    let (socket, address) = match open(v6) {
        Ok(socket) => {
            set_v6_only(&socket, v6, false)?;
            (socket, v6)
        }
        Err(error) if error.errno() == Some(libc::EAFNOSUPPORT) => {
            let v4 = SocketAddr::from((Ipv4Addr::UNSPECIFIED, port));
            (open(v4)?, v4)
        }
        Err(error) => return Err(error),
    };
    if let Some(device) = device {
        sys::bind_to_device(&socket, device).map_err(Error::failed("setsockopt SO_BINDTODEVICE", device))?;
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
    sys::check(result)
        .map(drop)
        .map_err(Error::on_socket("bind", address))
}

pub(super) fn connect(socket: &OwnedFd, address: SocketAddr) -> Result<(), Error> {
    let (name, len) = Name::of(address);
    // SAFETY: `name` is a socket address of `len` bytes that lives through the call.
    let result = unsafe { libc::connect(socket.as_raw_fd(), (&raw const name).cast(), len) };
    sys::check(result)
        .map(drop)
        .map_err(Error::on_socket("connect", address))
}

/// Returns the address the socket is bound to, with the port the kernel chose.
pub(super) fn local_address(socket: &OwnedFd) -> Result<SocketAddr, Error> {
    let mut name = Name::default();
    let mut len = size_of::<Name>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `len` bytes, the size of `name`.
    let result = unsafe { libc::getsockname(socket.as_raw_fd(), (&raw mut name).cast(), &raw mut len) };
    sys::check(result).map_err(Error::failed("getsockname", ""))?;
    Ok(name.address())
}

/// A socket address of either family, as the kernel writes it. Plain bytes, which are read field by field.
#[derive(Clone, Copy, Default)]
#[repr(C, align(8))]
pub(super) struct Name {
    bytes: [u8; 28],
}

// Large enough for an IPv6 address.
const _: () = assert!(size_of::<Name>() >= size_of::<libc::sockaddr_in6>());

impl Name {
    /// Offset of the port in addresses of both families, after the family in host byte order.
    const PORT: usize = 2;
    const ADDRESS_V4: usize = 4;
    const FLOW_INFO_V6: usize = 4;
    const ADDRESS_V6: usize = 8;
    const SCOPE_V6: usize = 24;

    /// Converts an address. Returns it with its length.
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

    /// Returns the address; anything but IPv6 is read as IPv4.
    #[inline]
    pub(super) fn address(&self) -> SocketAddr {
        let family = i32::from(u16::from_ne_bytes(self.get(0)));
        let port = u16::from_be_bytes(self.get(Self::PORT));
        if family == libc::AF_INET6 {
            // An IPv4 sender at a socket for both families becomes an IPv4 address.
            let ip = IpAddr::V6(Ipv6Addr::from(self.get::<16>(Self::ADDRESS_V6))).to_canonical();
            SocketAddr::new(ip, port)
        } else {
            SocketAddr::new(IpAddr::V4(Ipv4Addr::from(self.get::<4>(Self::ADDRESS_V4))), port)
        }
    }

    /// Returns whether this is an IPv6 address that stands for an IPv4 address.
    #[inline]
    pub(super) fn is_ipv4_mapped(&self) -> bool {
        i32::from(u16::from_ne_bytes(self.get(0))) == libc::AF_INET6
            && self.get::<12>(Self::ADDRESS_V6) == [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff]
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
