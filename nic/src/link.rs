//! State of an interface that is received from, polled by sockets that belong to the namespace in which they were opened.

use crate::device::ethtool::Ethtool;
use crate::device::link::{self, LinkSelector};
use crate::device::netlink::{Netlink, put};
use crate::device::{Attached, Mode};
use crate::error::Error;
use crate::sys;

/// Constants of linux/rtnetlink.h and linux/if_link.h.
const RTM_SETLINK: u16 = 19;
const IFLA_XDP: u16 = 43;
const IFLA_XDP_FD: u16 = 1;
const IFLA_XDP_FLAGS: u16 = 3;
const NESTED: u16 = 0x8000;
/// Size of `struct ifinfomsg`, bytes.
const INFO: usize = 16;

/// A network interface, by name and index.
#[derive(Debug)]
pub(crate) struct Link {
    name: String,
    index: u32,
    netlink: Netlink,
    ethtool: Ethtool,
}

/// State of an interface.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(crate) struct LinkState {
    /// Frames that the device or its driver dropped on reception, for any receiver.
    pub(crate) dropped: u64,
    /// XDP programs on the interface.
    pub(crate) programs: Vec<Attached>,
    /// MTU: the longest packet without the Ethernet header, bytes.
    pub(crate) mtu: Option<u32>,
    /// True if the interface is administratively up.
    pub(crate) up: bool,
}

impl Link {
    /// Opens the interface `name` of the caller's network namespace.
    pub(crate) fn open(name: &str) -> Result<Self, Error> {
        Ok(Self {
            name: name.to_owned(),
            index: sys::interface_index(name).map_err(Error::failed("open interface", name))?,
            netlink: Netlink::open(libc::NETLINK_ROUTE)?,
            ethtool: Ethtool::open(name)?,
        })
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn index(&self) -> u32 {
        self.index
    }

    pub(crate) fn netlink(&self) -> &Netlink {
        &self.netlink
    }

    /// Returns the current state of the interface, or `None` if it was removed.
    pub(crate) fn state(&self) -> Result<Option<LinkState>, Error> {
        let Some(found) = link::get(&self.netlink, LinkSelector::Index(self.index))? else {
            return Ok(None);
        };
        Ok(Some(LinkState {
            dropped: found.lost.map_or(0, |lost| lost.dropped + lost.missed),
            programs: found.xdp.unwrap_or_default(),
            mtu: found.mtu,
            up: found.up,
        }))
    }

    /// Returns the number of receive queues in use; 1 if the driver does not report it.
    pub(crate) fn queues(&self) -> u32 {
        self.ethtool
            .queues()
            .map_or(1, |queues| queues.receiving())
            .max(1)
    }

    pub(crate) fn driver(&self) -> Option<String> {
        self.ethtool.driver().map(|(name, _)| name)
    }
}

/// Attaches the XDP program of this descriptor by netlink, if none is attached. A descriptor of -1 detaches the current one.
pub(crate) fn set_program(netlink: &Netlink, index: u32, descriptor: i32, mode: Mode) -> Result<(), Error> {
    /// The flag `XDP_FLAGS_UPDATE_IF_NOEXIST` of linux/if_link.h.
    const IF_NONE: u32 = 1;
    let flags = mode.flag() | if descriptor >= 0 { IF_NONE } else { 0 };
    let mut inner = Vec::new();
    put(&mut inner, IFLA_XDP_FD, &descriptor.to_ne_bytes());
    put(&mut inner, IFLA_XDP_FLAGS, &flags.to_ne_bytes());
    let mut body = vec![0; INFO];
    // `ifi_index` of `ifinfomsg`.
    body[4..8].copy_from_slice(&index.to_ne_bytes());
    put(&mut body, IFLA_XDP | NESTED, &inner);
    netlink.request(RTM_SETLINK, &body)
}

/// Returns the XDP programs on an interface; empty if it was removed.
pub(crate) fn programs(netlink: &Netlink, index: u32) -> Result<Vec<Attached>, Error> {
    Ok(link::get(netlink, LinkSelector::Index(index))?
        .and_then(|found| found.xdp)
        .unwrap_or_default())
}
