//! What the kernel says of a network interface: by netlink and ethtool, over sockets of the namespace they were opened in.

#![allow(dead_code)]

mod netlink;

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use crate::error::Error;
use crate::sys;

pub(crate) use netlink::XdpProgram;

/// An interface that is watched.
#[derive(Debug)]
pub(crate) struct Link {
    name: String,
    index: u32,
    route: OwnedFd,
    control: OwnedFd,
}

/// How an interface is.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct LinkState {
    /// Receive queues that the driver could have.
    pub(crate) most_queues: u32,
    /// Frames that the device or its driver dropped on reception, whoever they were for.
    pub(crate) dropped: u64,
    /// The XDP program in front of the driver's or the stack's path.
    pub(crate) program: Option<XdpProgram>,
    /// Longest packet, bytes, without the Ethernet header.
    pub(crate) mtu: u32,
}

impl Link {
    /// The interface `name` of the caller's network namespace.
    pub(crate) fn open(name: &str) -> Result<Self, Error> {
        let failed = |call| move |source| Error::new(call, name, source);
        let index = sys::interface_index(name).map_err(failed("open interface"))?;
        let route = sys::socket(libc::AF_NETLINK, libc::SOCK_RAW, libc::NETLINK_ROUTE);
        let control = sys::socket(libc::AF_INET, libc::SOCK_DGRAM, 0);
        Ok(Self {
            name: name.to_owned(),
            index,
            route: route.map_err(failed("socket AF_NETLINK"))?,
            control: control.map_err(failed("socket"))?,
        })
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn index(&self) -> u32 {
        self.index
    }

    /// How it is now; `None` when it is gone.
    pub(crate) fn state(&self) -> Result<Option<LinkState>, Error> {
        match netlink::link(&self.route, self.index) {
            Ok(state) => Ok(Some(state)),
            Err(error) if error.raw_os_error() == Some(libc::ENODEV) => Ok(None),
            Err(source) => Err(Error::new("netlink", &self.name, source)),
        }
    }

    /// Takes the XDP program off, if it is still the one of `expected`'s descriptor or no matter which.
    pub(crate) fn remove_program(&self, native: bool) -> io::Result<()> {
        netlink::set_xdp(&self.route, self.index, -1, native)
    }

    /// Receive queues in use.
    pub(crate) fn queues(&self) -> Option<u32> {
        /// `ETHTOOL_GCHANNELS`; the answer is the maxima, then the numbers, of rx, tx, other and combined channels.
        const CHANNELS: u32 = 0x3c;
        let mut words = [0_u32; 9];
        words[0] = CHANNELS;
        self.ethtool(&mut words).ok()?;
        let [.., rx, _tx, _other, combined] = words;
        (rx + combined > 0).then_some(rx + combined)
    }

    /// The driver's name.
    pub(crate) fn driver(&self) -> Option<String> {
        /// `ETHTOOL_GDRVINFO`; the name follows the command, in 32 bytes.
        const DRIVER: u32 = 3;
        let mut words = [0_u32; 49];
        words[0] = DRIVER;
        self.ethtool(&mut words).ok()?;
        let name: Vec<u8> = words[1..9].iter().flat_map(|word| word.to_ne_bytes()).collect();
        let end = name.iter().position(|&byte| byte == 0).unwrap_or(name.len());
        Some(String::from_utf8_lossy(&name[..end]).into_owned())
    }

    /// Asks the driver. `words` begins with a command and is as long as that command's structure.
    fn ethtool(&self, words: &mut [u32]) -> io::Result<()> {
        /// `struct ifreq` with its pointer.
        #[repr(C)]
        struct Request {
            name: [u8; libc::IFNAMSIZ],
            data: *mut u32,
            pad: [u64; 2],
        }
        let mut request = Request { name: [0; libc::IFNAMSIZ], data: words.as_mut_ptr(), pad: [0; 2] };
        let bytes = self.name.as_bytes();
        let len = bytes.len().min(libc::IFNAMSIZ - 1);
        request.name[..len].copy_from_slice(&bytes[..len]);
        // SAFETY: the request is as long as the kernel's; it leads to memory as long as the command's structure.
        let result = unsafe { libc::ioctl(self.control.as_raw_fd(), libc::SIOCETHTOOL, &raw mut request) };
        if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }
}
