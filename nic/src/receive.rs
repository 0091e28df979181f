//! Opens an interface on the fastest receive path that works. Tries the paths from the fastest down, and records for the
//! operator why each one failed.

mod filter;
mod watch;
mod xdp;

use std::fmt;

use crate::error::Error;
use crate::link::Link;
use crate::packet;
use crate::source::Source;
use crate::udp::{self, Buffered, Receiver};
use crate::xdp::BindMode;

pub use filter::{Filter, filter};
pub use watch::{Counters, State, Watch};
pub use xdp::memory_needed;

wire::named! {
    /// A receive path, ordered from the fastest down.
    #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
    pub enum RxPath, name {
        /// AF_XDP zero-copy: the NIC writes into our memory.
        ZeroCopy => "xdp-zerocopy",
        /// AF_XDP with a copy: the driver copies frames into our memory.
        Native => "xdp-native",
        /// AF_XDP with generic XDP: the network stack copies frames, with any driver.
        Generic => "xdp-generic",
        /// AF_PACKET: a ring in addition to the network stack.
        Packet => "packet",
        /// UDP sockets of the kernel's network stack.
        Udp => "udp",
    }
}

impl fmt::Display for RxPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Settings for opening an interface.
#[derive(Clone, Debug)]
pub struct Options {
    /// The UDP ports to receive from.
    pub ports: Vec<u16>,
    /// The first receive path tried.
    pub best: RxPath,
    /// The last receive path tried.
    pub worst: RxPath,
    /// The steering program (`xdp::STEER`); without it no XDP receive path is tried.
    pub program: Option<&'static [u8]>,
    /// Requested number of sources on an XDP receive path, each of which reads a share of the receive queues. At most one per
    /// queue.
    pub threads: usize,
    /// Memory of the XDP receive paths. An interface whose packets may exceed the frame size gets frames of 4096 bytes. An
    /// interface with more than four queues gets fewer frames per queue, about 65,536 in total.
    pub xdp: crate::xdp::Options,
    /// Size of the ring on the packet receive path, bytes.
    pub packet_ring: usize,
    /// Settings of UDP sockets: those of the UDP receive path, and those for datagrams that XDP leaves to the stack.
    pub udp: udp::Options,
    /// Bytes of a socket's slot; longer datagrams are truncated.
    pub slot_size: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            ports: Vec::new(),
            best: RxPath::ZeroCopy,
            worst: RxPath::Udp,
            program: None,
            threads: 1,
            xdp: crate::xdp::Options::default(),
            packet_ring: 32 << 20,
            udp: udp::Options::default(),
            slot_size: udp::JUMBO_SLOT_SIZE,
        }
    }
}

/// A receive path that was tried, and the reason why it does not work here.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Refused {
    /// The receive path that was refused.
    pub rx_path: RxPath,
    /// The error, with explanation and advice.
    pub reason: String,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.rx_path, self.reason)
    }
}

/// An interface opened for receiving.
pub struct OpenInterface {
    /// Sources of datagrams; each can be read by a different thread.
    pub sources: Vec<Box<dyn Source>>,
    /// On an XDP receive path, UDP sockets for what the program passes to the stack (fragments, frames too long); normally few
    /// datagrams. `None` on the other receive paths, and if other processes have bound all the ports.
    pub stack_source: Option<Box<dyn Source>>,
    /// The receive path in use.
    pub rx_path: RxPath,
    /// Number of the interface's receive queues that the sources read; 0 if the stack reads them.
    pub queues: u32,
    /// The kind of pages of the UMEM, on an XDP receive path.
    pub pages: Option<crate::xdp::Pages>,
    /// The faster receive paths, and the reasons why they do not work.
    pub tried: Vec<Refused>,
    /// Warnings for the operator about degraded operation.
    pub warnings: Vec<String>,
    /// Detects changes of the interface; poll it periodically. Dropping it detaches the program; the sources then return only
    /// what is still queued.
    pub watch: Watch,
}

impl fmt::Debug for OpenInterface {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenInterface")
            .field("rx_path", &self.rx_path)
            .field("tried", &self.tried)
            .field("sources", &self.sources.len())
            .finish_non_exhaustive()
    }
}

/// Error: no receive path works.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NoRxPath {
    /// Name of the interface.
    pub interface: String,
    /// The receive paths tried, and why each does not work.
    pub tried: Vec<Refused>,
}

impl fmt::Display for NoRxPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "nothing can be received from {}", self.interface)?;
        self.tried.iter().try_for_each(|refused| write!(f, "; {refused}"))
    }
}

impl std::error::Error for NoRxPath {}

/// Opens `interface`, of the caller's network namespace, on the fastest receive path that works, from `options.best` down to
/// `options.worst`.
///
/// # Errors
/// No receive path works; in particular, there may be no such interface.
pub fn open(interface: &str, options: &Options) -> Result<OpenInterface, NoRxPath> {
    let mut tried = Vec::new();
    let permitted = options.best..=options.worst;
    for rx_path in RxPath::ALL
        .into_iter()
        .filter(|rx_path| permitted.contains(rx_path))
    {
        match open_as(interface, rx_path, options) {
            Ok(opened) => return Ok(OpenInterface { tried, ..opened }),
            Err(error) => tried.push(Refused {
                rx_path,
                reason: error.to_string(),
            }),
        }
    }
    Err(NoRxPath {
        interface: interface.to_owned(),
        tried,
    })
}

fn open_as(interface: &str, rx_path: RxPath, options: &Options) -> Result<OpenInterface, Error> {
    let link = Link::open(interface)?;
    match rx_path {
        RxPath::ZeroCopy => xdp::open(link, BindMode::ZeroCopy, options),
        RxPath::Native => xdp::open(link, BindMode::Copy, options),
        RxPath::Generic => xdp::open(link, BindMode::Generic, options),
        RxPath::Packet => open_packet(link, options),
        RxPath::Udp => open_udp(link, options),
    }
}

fn open_packet(link: Link, options: &Options) -> Result<OpenInterface, Error> {
    let options = packet::Options {
        ports: options.ports.clone(),
        ring: options.packet_ring,
        hold_ports: true,
    };
    let ring = packet::Ring::open(link.name(), &options)?;
    open_without_xdp(link, RxPath::Packet, vec![Box::new(ring)], Vec::new())
}

fn open_udp(link: Link, options: &Options) -> Result<OpenInterface, Error> {
    let mut sources = Vec::<Box<dyn Source>>::new();
    let mut warnings = Vec::new();
    for &port in &options.ports {
        let merging = udp::Options {
            merge: true,
            ..options.udp.clone()
        };
        let receiver = Receiver::bind_any(port, Some(link.name()), &merging)?;
        warnings.extend(receiver.warning());
        let burst = receiver.burst(udp::DEFAULT_SLOTS, options.slot_size);
        sources.push(Box::new(Buffered::new(receiver, burst)));
    }
    open_without_xdp(link, RxPath::Udp, sources, warnings)
}

fn open_without_xdp(
    link: Link,
    rx_path: RxPath,
    sources: Vec<Box<dyn Source>>,
    warnings: Vec<String>,
) -> Result<OpenInterface, Error> {
    Ok(OpenInterface {
        sources,
        stack_source: None,
        rx_path,
        queues: 0,
        pages: None,
        tried: Vec::new(),
        warnings,
        watch: Watch::of_link(link)?,
    })
}

/// Opens a socket on a port, for datagrams that arrive on the interface.
fn receiver(link: &Link, port: u16, options: &Options) -> Result<Receiver, Error> {
    Receiver::bind_any(port, Some(link.name()), &options.udp)
}
