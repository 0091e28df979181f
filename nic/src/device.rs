//! Facts about a network interface and about the machine that matter to a receiver of reports.
//!
//! Facts are what the kernel reports: by netlink, by the ioctls of `ethtool`, in /proc and /sys. A fact that it does not report
//! is `None`; nothing is guessed. The caller interprets them. Only [`probe`] changes anything on the machine.

pub(crate) mod ethtool;
pub(crate) mod link;
mod machine;
pub(crate) mod netlink;
mod probe;
pub(crate) mod program;
mod rdma;

use std::fs;
use std::path::Path;

pub use machine::{HugePages, Limits, Machine, machine};
pub use probe::{Probe, probe};
pub use rdma::{RdmaDevice, rdma_devices};

use crate::error::Error;
use ethtool::Ethtool;
use link::{Link, LinkSelector};
use netlink::Netlink;

/// Prefix of the names of hopwise's programs.
pub const OUR_PROGRAMS: &str = "hopwise_";

/// The properties of a network interface.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Facts {
    /// Name of the interface in this network namespace.
    pub name: String,
    /// Index of the interface in this network namespace.
    pub index: u32,
    /// True if the interface is administratively up, as by `ip link set … up`.
    pub up: bool,
    /// True if the link has a carrier.
    pub carrier: Option<bool>,
    /// MTU: the longest packet without the Ethernet header, bytes.
    pub mtu: Option<u32>,
    /// Kind of virtual interface, such as `"veth"` or `"bond"`; `None` for hardware.
    pub kind: Option<String>,
    /// Name of the driver.
    pub driver: Option<String>,
    /// Bus address of the device, such as `"0000:01:00.0"`.
    pub bus: Option<String>,
    /// NUMA node of its bus; also `None` on machines with a single node.
    pub numa: Option<u32>,
    /// Numbers of receive and transmit queues.
    pub queues: Option<Queues>,
    /// Receive descriptors per queue.
    pub rx_ring: Option<Level>,
    /// Offloads that affect receivers of frames.
    pub offloads: Offloads,
    /// XDP programs on the interface; may be empty.
    pub xdp: Option<Vec<Attached>>,
    /// XDP features of the driver. The kernel reports them since Linux 6.3.
    pub xdp_features: Option<XdpFeatures>,
    /// Peer interface of a veth.
    pub peer: Option<Peer>,
    /// Membership in a bridge, bond or team.
    pub member: Option<Member>,
    /// Frames that never reached any program.
    pub lost: Option<RxErrors>,
}

/// A current number and its maximum.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Level {
    /// The number in use now.
    pub now: u32,
    /// The maximum that the driver supports.
    pub max: u32,
}

/// Queues of an interface. Drivers have separate receive and transmit queues, combined ones, or both.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Queues {
    /// Queues that only receive.
    pub rx: Level,
    /// Queues that only send.
    pub tx: Level,
    /// Queues that do both.
    pub combined: Level,
}

impl Queues {
    /// Returns the number of queues that receive.
    pub fn receiving(&self) -> u32 {
        self.rx.now + self.combined.now
    }

    /// Returns the maximum number of queues that could receive.
    pub fn receiving_max(&self) -> u32 {
        self.rx.max.saturating_add(self.combined.max)
    }
}

/// State of an offload.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Feature {
    /// The offload is active.
    pub on: bool,
    /// True if the offload cannot be changed.
    pub fixed: bool,
}

/// Offloads, described by their names in `ethtool -k`.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Offloads {
    /// `large-receive-offload`: the device merges packets of a connection.
    pub lro: Option<Feature>,
    /// `generic-receive-offload`: the kernel merges packets.
    pub gro: Option<Feature>,
    /// `rx-gro-hw`: the device merges packets as the kernel would.
    pub gro_hw: Option<Feature>,
    /// `rx-gro-list`: the kernel chains packets, including UDP.
    pub gro_list: Option<Feature>,
    /// `rx-udp-gro-forwarding`: the kernel merges UDP datagrams although no socket requested it.
    pub udp_gro_forwarding: Option<Feature>,
    /// `rx-vlan-offload`: the device strips the VLAN tag from the frame.
    pub rx_vlan: Option<Feature>,
    /// `ntuple-filters`: the device steers flows to queues.
    pub ntuple: Option<Feature>,
}

/// XDP features of a driver: `netdev_xdp_act` of linux/netdev.h.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct XdpFeatures(pub u64);

impl XdpFeatures {
    /// Returns whether the driver runs XDP programs natively, with the basic verdicts.
    pub fn native(self) -> bool {
        self.0 & 1 != 0
    }

    /// Returns whether programs can redirect frames, for example to an AF_XDP socket.
    pub fn redirect(self) -> bool {
        self.0 & 2 != 0
    }

    /// Returns whether the driver receives straight into the memory of an AF_XDP socket.
    pub fn zero_copy(self) -> bool {
        self.0 & 8 != 0
    }

    /// Returns whether the driver supports frames in several buffers.
    pub fn frags(self) -> bool {
        self.0 & 32 != 0
    }
}

wire::named! {
    /// The place where an XDP program runs.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum Mode, name {
        /// In the driver of the interface.
        Native => "native",
        /// In the kernel's network stack.
        Generic => "generic",
        /// In the device (NIC) itself.
        Offloaded => "offloaded",
    }
}

impl Mode {
    /// Returns `XDP_FLAGS_DRV_MODE`, `XDP_FLAGS_SKB_MODE` or `XDP_FLAGS_HW_MODE` of linux/if_link.h.
    pub(crate) fn flag(self) -> u32 {
        match self {
            Self::Native => 1 << 2,
            Self::Generic => 1 << 1,
            Self::Offloaded => 1 << 3,
        }
    }
}

/// An XDP program on an interface.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Attached {
    /// The kernel's ID of the program.
    pub id: u32,
    /// Name of the program, at most 15 bytes. Reading it needs CAP_SYS_ADMIN.
    pub name: Option<String>,
    /// Mode in which the program runs.
    pub mode: Mode,
    /// True if it is one of hopwise's programs; `None` if its name is unknown.
    pub ours: Option<bool>,
}

/// The peer interface of a veth.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Peer {
    /// Index of the peer in its namespace.
    pub index: u32,
    /// True if the peer is in another network namespace; then the fields below are unknown.
    pub elsewhere: bool,
    /// Name of the interface.
    pub name: Option<String>,
    /// Maximum transmission unit, bytes.
    pub mtu: Option<u32>,
    /// Number of transmit queues. Frames of a queue arrive on the receive queue of the same number.
    pub tx_queues: Option<u32>,
}

/// Membership of an interface in a bridge, bond or team.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Member {
    /// Kind of the device: `"bridge"`, `"bond"`, …
    pub kind: String,
    /// Name of the bridge or bond.
    pub of: Option<String>,
    /// Index of the bridge or bond.
    pub index: Option<u32>,
}

/// Frames lost before any program saw them, since the interface was created.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct RxErrors {
    /// Dropped by the kernel: no memory, or no receiver.
    pub dropped: u64,
    /// The device's buffer was full (`rx_fifo_errors`).
    pub overruns: u64,
    /// The device had no free descriptor (`rx_missed_errors`).
    pub missed: u64,
}

/// Returns the facts about an interface, or `None` if there is no interface of this name.
///
/// # Errors
/// Netlink does not work at all.
pub fn facts(interface: &str) -> Result<Option<Facts>, Error> {
    let netlink = Netlink::open(libc::NETLINK_ROUTE)?;
    let Some(link) = link::get(&netlink, LinkSelector::Name(interface))? else {
        return Ok(None);
    };
    let ethtool = Ethtool::open(&link.name)?;
    let driver = ethtool.driver();
    let (driver, bus) = driver.map_or((None, None), |(driver, bus)| (Some(driver), bus));
    let numa = numa(&link, bus.as_deref());
    let Link {
        name,
        index,
        up,
        carrier,
        mtu,
        kind,
        parent,
        peer,
        member,
        xdp,
        lost,
    } = link;
    Ok(Some(Facts {
        queues: ethtool.queues(),
        rx_ring: ethtool.rx_ring(),
        offloads: ethtool
            .features()
            .map(|known| ethtool::offloads(&known))
            .unwrap_or_default(),
        xdp: xdp.map(|programs| programs.into_iter().map(program::named).collect()),
        xdp_features: link::xdp_features(index),
        peer: peer.map(|peer| known_peer(&netlink, peer)),
        member: member.map(|member| {
            let master = member.index.and_then(|index| by_index(&netlink, index));
            Member {
                of: master.map(|link| link.name),
                ..member
            }
        }),
        bus: bus.or_else(|| parent.map(|(_, name)| name)),
        name,
        index,
        up,
        carrier,
        mtu,
        kind,
        driver,
        numa,
        lost,
    }))
}

fn by_index(netlink: &Netlink, index: u32) -> Option<Link> {
    link::get(netlink, LinkSelector::Index(index)).ok().flatten()
}

fn known_peer(netlink: &Netlink, peer: Peer) -> Peer {
    if peer.elsewhere {
        return peer;
    }
    let Some(link) = by_index(netlink, peer.index) else {
        return peer;
    };
    let queues = Ethtool::open(&link.name)
        .ok()
        .and_then(|ethtool| ethtool.queues());
    let tx_queues = queues.map(|queues| queues.tx.now + queues.combined.now);
    Peer {
        name: Some(link.name),
        mtu: link.mtu,
        tx_queues,
        ..peer
    }
}

/// Returns the NUMA node of the bus. Reads the bus directory in /sys, because the interface's directory belongs to the network
/// namespace in which /sys was mounted.
fn numa(link: &Link, bus: Option<&str>) -> Option<u32> {
    let (kind, address) = match (&link.parent, bus) {
        (Some((kind, address)), _) => (kind.as_str(), address.as_str()),
        (None, address) => ("pci", address?),
    };
    // The names come from the kernel, but become parts of a path, so check them.
    if [kind, address]
        .iter()
        .any(|part| part.is_empty() || part.contains(['/', '\0']) || part.starts_with('.'))
    {
        return None;
    }
    let file = Path::new("/sys/bus")
        .join(kind)
        .join("devices")
        .join(address)
        .join("numa_node");
    // -1 means that the firmware does not report it; it does not parse as `u32`.
    fs::read_to_string(file).ok()?.trim().parse().ok()
}

/// Returns the interfaces of this network namespace, in the kernel's order.
///
/// # Errors
/// /proc is not mounted, or not readable.
pub fn interfaces() -> Result<Vec<String>, Error> {
    const DEVICES: &str = "/proc/thread-self/net/dev";
    let table = fs::read_to_string(DEVICES).map_err(Error::failed("open", DEVICES))?;
    Ok(devices(&table))
}

/// Returns the first column of the table, below its two lines of headings.
fn devices(table: &str) -> Vec<String> {
    let names = table.lines().skip(2).filter_map(|line| line.split_once(':'));
    names.map(|(name, _)| name.trim().to_owned()).collect()
}

/// Switches an offload, named as in `ethtool -k --json` (`"rx-gro"`, `"rx-vlan-hw-parse"`). For tests and measurements only: in
/// production the operator configures the interface.
///
/// # Errors
/// There is no such interface or offload, it is fixed, or CAP_NET_ADMIN is missing.
pub fn set_offload(interface: &str, offload: &str, on: bool) -> Result<(), Error> {
    let set = Ethtool::open(interface)?.set_feature(offload, on);
    set.map_err(Error::failed(
        "ioctl ETHTOOL_SFEATURES",
        format_args!("{interface} {offload}"),
    ))
}

/// Sets the number of receive and transmit queues. For tests and measurements, like [`set_offload`].
///
/// # Errors
/// There is no such interface, it does not support that many, or CAP_NET_ADMIN is missing.
pub fn set_queues(interface: &str, rx: u32, tx: u32) -> Result<(), Error> {
    let set = Ethtool::open(interface)?.set_queues(rx, tx);
    set.map_err(Error::failed("ioctl ETHTOOL_SCHANNELS", interface))
}

#[cfg(test)]
mod tests;
