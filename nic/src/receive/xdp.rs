//! The XDP receive paths: AF_XDP sockets on all queues, and the steering program in front of them.

use super::watch::Steering;
use super::{OpenInterface, Options, RxPath, Watch, receiver};
use crate::bpf::{Attachment, LoadOptions, Mode, Object};
use crate::error::Error;
use crate::link::{Link, LinkState, set_program};
use crate::source::Source;
use crate::udp::{self, Burst, Group};
use crate::xdp::{self, BindMode};

/// Names of the steering program and its maps in the object.
const PROGRAM: &str = "hopwise_steer";
const SOCKETS: &str = "sockets";
const PORTS: &str = "ports";
const LONGEST: &str = "longest";
/// Maximum number of frames of all queues together, unless a queue would get fewer than [`FEWEST_FRAMES`].
const MAX_FRAMES: u32 = 1 << 16;
/// Minimum number of frames per queue: with fewer, it loses frames whenever its reader waits to be scheduled.
const FEWEST_FRAMES: u32 = 1 << 11;

pub(super) fn open(link: Link, bind_mode: BindMode, options: &Options) -> Result<OpenInterface, Error> {
    let program = options
        .program
        .ok_or_else(|| unsupported(&link, "there is no steering program".to_owned()))?;
    let state = up_state(&link)?;
    make_room(&link, &state)?;
    let queues = link.queues();
    let memory = memory(state.mtu, queues, &options.xdp);
    let (sources, pages) = xdp::open(&link, queues, bind_mode, options.threads, &memory)?;
    let load = LoadOptions {
        max_entries: vec![(SOCKETS, queues)],
        constants: vec![(LONGEST, memory.max_packet_len())],
    };
    let object = Object::load(program, &load)?;
    name_ports(&object, &options.ports)?;
    let sockets = object.map(SOCKETS)?;
    let mut counted = Vec::new();
    for (queue, socket) in sources.iter().flat_map(xdp::XskSource::sockets) {
        sockets.update_socket(queue, socket)?;
        let copy = socket.try_clone_to_owned();
        counted.push(copy.map_err(Error::failed("dup", link.name()))?);
    }
    // Opened before the program redirects anything, so that no datagram is lost in between.
    let mut warnings = Vec::new();
    let stack_source = stack_source(&link, options, &mut warnings)?;
    let mode = if bind_mode == BindMode::Generic {
        Mode::Generic
    } else {
        Mode::Native
    };
    let attached = attach(&object, PROGRAM, &link, mode)?;
    let steering = Steering::new(object, attached, counted, bind_mode);
    Ok(OpenInterface {
        sources: sources
            .into_iter()
            .map(|source| Box::new(source) as Box<dyn Source>)
            .collect(),
        stack_source,
        rx_path: match bind_mode {
            BindMode::ZeroCopy => RxPath::ZeroCopy,
            BindMode::Copy => RxPath::Native,
            BindMode::Generic => RxPath::Generic,
        },
        queues,
        pages: Some(pages),
        tried: Vec::new(),
        warnings,
        watch: Watch::of_steering(link, steering)?,
    })
}

/// Returns the state of the interface, or an error if it is down.
pub(super) fn up_state(link: &Link) -> Result<LinkState, Error> {
    let state = link.state()?.unwrap_or_default();
    if state.up {
        return Ok(state);
    }
    let advice = format!("the interface is down: `ip link set {} up`", link.name());
    Err(unsupported(link, advice))
}

fn unsupported(link: &Link, advice: String) -> Error {
    let source = std::io::Error::from_raw_os_error(libc::EOPNOTSUPP);
    Error::new("XDP", link.name(), source).with_advice(advice)
}

/// Attaches a program to the interface, or explains why the driver or the kernel refused it.
pub(super) fn attach(object: &Object, program: &str, link: &Link, mode: Mode) -> Result<Attachment, Error> {
    object
        .attach(program, link.index(), mode)
        .map_err(|error| explain(error, link, mode))
}

/// Returns the bytes of memory that the XDP receive paths need on an interface with this MTU and this many receive queues.
pub fn memory_needed(mtu: Option<u32>, queues: u32, options: &xdp::Options) -> u64 {
    let memory = memory(mtu, queues, options);
    u64::from(memory.frame_size) * u64::from(memory.frames_per_queue) * u64::from(queues.max(1))
}

/// Adjusts the memory settings: frames long enough for the interface with two VLAN tags, and fewer of them per queue if there
/// are many queues.
fn memory(mtu: Option<u32>, queues: u32, options: &xdp::Options) -> xdp::Options {
    // Ethernet header and two VLAN tags, bytes.
    const ETHERNET_AND_TAGS: u32 = 14 + 2 * 4;
    let needed = mtu.unwrap_or(1500).saturating_add(ETHERNET_AND_TAGS);
    let frame_size = if needed > options.max_packet_len() {
        4096
    } else {
        options.frame_size
    };
    let share = (MAX_FRAMES / queues.max(1)).max(FEWEST_FRAMES);
    // Rounded down to a power of two.
    let share = 1 << share.ilog2();
    xdp::Options {
        frame_size,
        frames_per_queue: options.frames_per_queue.min(share),
        ..options.clone()
    }
}

/// Ensures that the interface has no XDP program. Removes a program that a killed hopwise left on a kernel without BPF links.
pub(super) fn make_room(link: &Link, state: &LinkState) -> Result<(), Error> {
    for program in &state.programs {
        let program = crate::device::program::named(program.clone());
        let ours = program.ours == Some(true);
        // A program of another running hopwise is attached by a link, so this call fails for it.
        if ours && set_program(link.netlink(), link.index(), -1, program.mode).is_ok() {
            continue;
        }
        let name = program.name.as_deref().unwrap_or("of unknown name");
        let advice = if ours {
            format!(
                "another hopwise receives from this interface (program `{name}`, ID {}): stop it, or let it listen for both",
                program.id
            )
        } else {
            format!(
                "another XDP program is on this interface (`{name}`, ID {}): stop its owner, or detach it with \
                 `ip link set {} xdp off`",
                program.id,
                link.name()
            )
        };
        let source = std::io::Error::from_raw_os_error(libc::EBUSY);
        return Err(Error::new("XDP", link.name(), source).with_advice(advice));
    }
    Ok(())
}

/// Sets the bits of our ports in the program's map.
fn name_ports(object: &Object, ports: &[u16]) -> Result<(), Error> {
    let mut words = std::collections::BTreeMap::<u32, u64>::new();
    for port in ports {
        *words.entry(u32::from(port >> 6)).or_default() |= 1 << (port & 63);
    }
    let map = object.map(PORTS)?;
    words
        .iter()
        .try_for_each(|(word, bits)| map.update(&word.to_ne_bytes(), &bits.to_ne_bytes()))
}

/// Opens UDP sockets for the datagrams that the XDP program passes to the stack. If another process has bound a port, it
/// receives them instead, which is a warning and not an error.
pub(super) fn stack_source(
    link: &Link,
    options: &Options,
    warnings: &mut Vec<String>,
) -> Result<Option<Box<dyn Source>>, Error> {
    let mut receivers = Vec::new();
    for &port in &options.ports {
        match receiver(link, port, options) {
            Ok(receiver) => receivers.push(receiver),
            Err(error) if error.errno() == Some(libc::EADDRINUSE) => warnings.push(format!(
                "UDP port {port} is read by another socket: it gets the fragments and the frames that are too long for {}",
                link.name()
            )),
            Err(error) => return Err(error),
        }
    }
    if receivers.is_empty() {
        return Ok(None);
    }
    let burst = Burst::new(udp::DEFAULT_SLOTS, options.slot_size);
    Ok(Some(Box::new(Group::new(receivers, burst))))
}

/// Explains why a driver or the kernel refused the program.
fn explain(error: Error, link: &Link, mode: Mode) -> Error {
    let name = link.name();
    let advice = match error.errno() {
        Some(libc::EOPNOTSUPP) if mode == Mode::Native => "the driver cannot run XDP programs".to_owned(),
        Some(libc::EBUSY | libc::EEXIST) => {
            format!("another XDP program is on this interface: `ip link show {name}` names it")
        }
        Some(libc::ERANGE) => format!(
            "packets of this interface may be longer than its driver can give to XDP: `ip link set {name} mtu 1500` (on a veth at both ends)"
        ),
        Some(libc::EPERM | libc::EACCES) => "CAP_NET_ADMIN is missing: grant it, or run as root".to_owned(),
        Some(libc::EINVAL) => format!(
            "the driver refuses with the present settings; often because of large-receive-offload: `ethtool -K {name} lro off`"
        ),
        Some(libc::ENOSPC) if link.driver().as_deref() == Some("veth") => format!(
            "the other end of this veth sends on more queues than this end receives on: `ethtool -L {name} rx N` with as many, or \
             `ethtool -L PEER tx {}` there",
            link.queues()
        ),
        Some(libc::ENOMEM | libc::ENOSPC) => {
            format!(
                "the driver needs a transmit queue per CPU for XDP: `ethtool -L {name} combined N` with fewer queues leaves it some"
            )
        }
        _ => return error,
    };
    error.with_advice(advice)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_fits_the_interface() {
        let with = |mtu, queues| {
            let memory = memory(Some(mtu), queues, &xdp::Options::default());
            (memory.frame_size, memory.frames_per_queue)
        };
        // 2048 minus 256 for the driver, 14 for Ethernet and 8 for two tags.
        assert_eq!(with(1770, 1), (2048, 16384));
        assert_eq!(with(1771, 4), (4096, 16384));
        assert_eq!(with(1500, 5), (2048, 8192));
        assert_eq!(with(1500, 64), (2048, 2048));
        assert_eq!(with(u32::MAX, 0), (4096, 16384));
        let needed = |mtu, queues| memory_needed(mtu, queues, &xdp::Options::default());
        assert_eq!((needed(None, 0), needed(Some(9000), 8)), (32 << 20, 256 << 20));
    }
}
