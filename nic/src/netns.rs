//! Network namespaces for tests and measurements: real links between separate network stacks on one machine.
//!
//! They need root and `ip` of iproute2. A test that uses them prints a message and skips itself if they are missing.

use std::fs::File;
use std::io;
use std::net::{IpAddr, UdpSocket};
use std::os::fd::AsRawFd;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use crate::error::Error;
use crate::sys;

/// A network namespace, deleted on drop.
#[derive(Debug)]
pub struct Namespace {
    name: String,
}

impl Namespace {
    /// Creates a namespace with a unique name, and sets its loopback up.
    ///
    /// # Errors
    /// The process is not root, or `ip` is missing.
    pub fn create() -> Result<Self, Error> {
        /// Distinguishes the namespaces of one process. Relaxed: threads only need different numbers.
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("hopwise-{}-{number}", std::process::id());
        ip(&["netns", "add", &name])?;
        let namespace = Self { name };
        namespace.ip(&["link", "set", "lo", "up"])?;
        Ok(namespace)
    }

    /// Returns the name, as `ip netns` lists it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Runs `ip` inside the namespace.
    ///
    /// # Errors
    /// Returns the output of `ip` if it fails.
    pub fn ip(&self, arguments: &[&str]) -> Result<(), Error> {
        ip(&[&["-n", &self.name], arguments].concat())
    }

    /// Runs `work` inside the namespace; see [`within`].
    ///
    /// # Errors
    /// The same as for [`within`].
    pub fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T, Error> {
        within(&self.name, work)
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        // No caller is left to receive an error; `ip netns` shows a namespace that remains.
        let _ = ip(&["netns", "delete", &self.name]);
    }
}

/// Runs `work` on a new thread inside the network namespace `name`, and returns its result. Sockets created there stay in the
/// namespace, whichever thread uses them later. Threads started by `work` are inside, too.
///
/// # Errors
/// There is no such namespace, or this process may not enter it.
///
/// # Panics
/// Panics if `work` panics.
pub fn within<T: Send>(name: &str, work: impl FnOnce() -> T + Send) -> Result<T, Error> {
    // A separate thread, so that the caller's thread stays in its namespace.
    let entered = std::thread::scope(|scope| scope.spawn(|| enter(name).map(|()| work())).join());
    entered.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// Moves the calling thread into the network namespace `name`, permanently. Sockets and threads that it creates are inside,
/// too.
///
/// # Errors
/// There is no such namespace, or this process may not enter it.
pub fn enter(name: &str) -> Result<(), Error> {
    let path = Path::new("/run/netns").join(name);
    let namespace = File::open(&path).map_err(Error::failed("open", path.display()))?;
    // SAFETY: no pointers; the descriptor is open.
    let result = unsafe { libc::setns(namespace.as_raw_fd(), libc::CLONE_NEWNET) };
    sys::check(result).map(drop).map_err(Error::failed("setns", name))
}

/// Two new namespaces with one veth link between them; deleted on drop.
#[derive(Debug)]
pub struct Pair {
    /// The near side: 10.97.0.1 and fd97::1, on the device `veth0`.
    pub near: Namespace,
    /// The far side: 10.97.0.2 and fd97::2, on the device `veth0`.
    pub far: Namespace,
    /// Number of receive queues at each end, and of transmit queues.
    queues: u32,
}

impl Pair {
    /// Addresses of [`Pair::near`], IPv4 and IPv6.
    pub const NEAR: [IpAddr; 2] = addresses(1);
    /// Addresses of [`Pair::far`], IPv4 and IPv6.
    pub const FAR: [IpAddr; 2] = addresses(2);

    /// The device's name, on both sides.
    pub const DEVICE: &str = "veth0";

    const NEAR_MAC: &str = "02:00:00:00:00:01";
    const FAR_MAC: &str = "02:00:00:00:00:02";

    /// Creates the namespaces and the link. Each side has a static neighbour entry for the other, so that no datagram waits for
    /// address resolution (and is perhaps lost).
    ///
    /// # Errors
    /// The process is not root, or `ip` is missing.
    pub fn create() -> Result<Self, Error> {
        Self::with_queues(1)
    }

    /// Creates a pair with this many receive and transmit queues at each end.
    ///
    /// # Errors
    /// The process is not root, or `ip` is missing.
    pub fn with_queues(queues: u32) -> Result<Self, Error> {
        let pair = Self {
            near: Namespace::create()?,
            far: Namespace::create()?,
            queues,
        };
        pair.link()?;
        Ok(pair)
    }

    /// Creates the link, again if it was deleted.
    ///
    /// # Errors
    /// The link exists already, or `ip` failed otherwise.
    pub fn link(&self) -> Result<(), Error> {
        let queues = self.queues.to_string();
        let queues = ["numtxqueues", &queues, "numrxqueues", &queues];
        let near = ["link", "add", Self::DEVICE, "address", Self::NEAR_MAC];
        let far = ["peer", "name", Self::DEVICE, "address", Self::FAR_MAC];
        let netns = ["netns", &self.far.name];
        self.near
            .ip(&[&near[..], &queues, &["type", "veth"], &far, &queues, &netns].concat())?;
        for (side, own, other, other_mac) in [
            (&self.near, Self::NEAR, Self::FAR, Self::FAR_MAC),
            (&self.far, Self::FAR, Self::NEAR, Self::NEAR_MAC),
        ] {
            let [v4, v6] = own.map(|address| address.to_string());
            side.ip(&["address", "add", &format!("{v4}/24"), "dev", Self::DEVICE])?;
            side.ip(&[
                "address",
                "add",
                &format!("{v6}/64"),
                "dev",
                Self::DEVICE,
                "nodad",
            ])?;
            side.ip(&["link", "set", Self::DEVICE, "up"])?;
            for address in other.map(|address| address.to_string()) {
                side.ip(&[
                    "neighbour",
                    // `replace`, because another thread may have requested the entry already.
                    "replace",
                    &address,
                    "lladdr",
                    other_mac,
                    "dev",
                    Self::DEVICE,
                    "nud",
                    "permanent",
                ])?;
            }
        }
        self.wait_until_open()
    }

    /// Waits until the link passes datagrams, by sending until one arrives, in each direction and family. The kernel opens a
    /// link some time after it is set up, and silently drops earlier frames.
    fn wait_until_open(&self) -> Result<(), Error> {
        let sides = [
            (&self.near, Self::NEAR, &self.far, Self::FAR),
            (&self.far, Self::FAR, &self.near, Self::NEAR),
        ];
        for (from, sources, to, targets) in sides {
            for (source, target) in sources.into_iter().zip(targets) {
                let receiver = to.run(|| UdpSocket::bind((target, 0)))?;
                let sender = from.run(|| UdpSocket::bind((source, 0)))?;
                receiver
                    .and_then(|receiver| probe(&sender?, &receiver))
                    .map_err(Error::failed("probe", format_args!("{source} to {target}")))?;
            }
        }
        Ok(())
    }

    /// Returns the number of frames that the link itself dropped so far, in both directions, before any socket could count
    /// them. Compare two readings, because some drops may be from before the link was open.
    ///
    /// # Errors
    /// The statistics cannot be read.
    pub fn link_drops(&self) -> Result<u64, Error> {
        const STATISTICS: &str = "/proc/thread-self/net/dev";
        let mut dropped = 0;
        for side in [&self.near, &self.far] {
            let table = side.run(|| std::fs::read_to_string(STATISTICS))?;
            let table = table.map_err(Error::failed("open", STATISTICS))?;
            dropped += device_drops(&table, Self::DEVICE).unwrap_or(0);
        }
        Ok(dropped)
    }
}

/// Sends datagrams until one arrives, for at most 20 s.
fn probe(sender: &UdpSocket, receiver: &UdpSocket) -> io::Result<()> {
    // With a timeout of 10 ms each, 20 s in total.
    const TRIES: u32 = 2000;
    receiver.set_read_timeout(Some(Duration::from_millis(10)))?;
    let to = receiver.local_addr()?;
    for _ in 0..TRIES {
        // Some kernels refuse to send while the link is closed.
        let _ = sender.send_to(b"probe", to);
        match receiver.recv(&mut [0; 8]) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            other => return other.map(|_| ()),
        }
    }
    Err(io::Error::new(
        io::ErrorKind::TimedOut,
        "nothing arrives over the link",
    ))
}

/// Returns the drops received and sent from /proc/net/dev: the fourth of eight numbers in each direction.
fn device_drops(table: &str, device: &str) -> Option<u64> {
    let numbers = table
        .lines()
        .find_map(|line| line.trim_start().strip_prefix(device)?.strip_prefix(':'))?;
    let numbers: Vec<u64> = numbers
        .split_ascii_whitespace()
        .map_while(|number| number.parse().ok())
        .collect();
    Some(numbers.get(3)? + numbers.get(11)?)
}

const fn addresses(host: u8) -> [IpAddr; 2] {
    let v4 = std::net::Ipv4Addr::new(10, 97, 0, host);
    let v6 = std::net::Ipv6Addr::new(0xfd97, 0, 0, 0, 0, 0, 0, host as u16);
    [IpAddr::V4(v4), IpAddr::V6(v6)]
}

fn ip(arguments: &[&str]) -> Result<(), Error> {
    let about = arguments.join(" ");
    let output = Command::new("ip")
        .args(arguments)
        .output()
        .map_err(Error::failed("ip", &about))?;
    if output.status.success() {
        return Ok(());
    }
    let stderr = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Err(Error::new("ip", about, io::Error::other(stderr)))
}

/// Sends unmodified frames on an interface of the caller's namespace.
///
/// # Errors
/// The process is not root, there is no such interface, or a frame is too long for it.
pub fn send_frames(interface: &str, frames: &[Vec<u8>]) -> Result<(), Error> {
    let index = sys::interface_index(interface).map_err(Error::failed("if_nametoindex", interface))?;
    let socket = sys::packet_socket(interface)?;
    // SAFETY: integers, for which zero is a value.
    let mut name: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    name.sll_family = libc::AF_PACKET as u16;
    name.sll_ifindex = index.cast_signed();
    name.sll_halen = 6;
    let fd = socket.as_raw_fd();
    let len = size_of_val(&name) as libc::socklen_t;
    for frame in frames {
        let start = frame.as_ptr().cast();
        // SAFETY: the kernel reads the frame and a socket address of `len` bytes; both live through the call.
        let sent = unsafe { libc::sendto(fd, start, frame.len(), 0, (&raw const name).cast(), len) };
        sys::check(sent).map_err(Error::failed("sendto", interface))?;
    }
    Ok(())
}

#[cfg(test)]
pub(crate) mod tests {
    use std::io::Write as _;

    use super::*;

    /// Prints that a test lacks a requirement, bypassing the test runner, which captures the output of passing tests.
    pub(crate) fn skipped(error: &Error) {
        let _ = writeln!(std::io::stderr(), "SKIPPED network namespaces: {error}");
    }

    #[test]
    fn device_drops_are_the_fourth_numbers() {
        let table = "Inter-|   Receive\n face |bytes\n    lo: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16\n veth0: 9 9 9 5 9 9 9 9 9 9 9 7 9 9 9 9\n";
        assert_eq!(device_drops(table, "veth0"), Some(12));
        assert_eq!(device_drops(table, "lo"), Some(16));
        assert_eq!(device_drops(table, "eth0"), None);
        assert_eq!(device_drops("veth0: 1 2", "veth0"), None);
    }

    #[test]
    fn a_namespace_that_is_not_there_cannot_be_entered() {
        let error = within("hopwise-none", || ()).unwrap_err();
        assert_eq!((error.call(), error.errno()), ("open", Some(libc::ENOENT)));
        assert!(
            error.to_string().starts_with("open /run/netns/hopwise-none: "),
            "{error}"
        );
    }

    #[test]
    fn a_pair_is_linked_and_leaves_nothing_behind() {
        let pair = match Pair::create() {
            Ok(pair) => pair,
            Err(error) => return skipped(&error),
        };
        let names = [pair.near.name().to_owned(), pair.far.name().to_owned()];
        for (near, far) in Pair::NEAR.into_iter().zip(Pair::FAR) {
            let bound = pair.far.run(|| UdpSocket::bind((far, 0))).unwrap().unwrap();
            let sender = pair.near.run(|| UdpSocket::bind((near, 0))).unwrap().unwrap();
            sender.send_to(b"over", bound.local_addr().unwrap()).unwrap();
            bound.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
            let mut buffer = [0; 8];
            let (len, from) = bound.recv_from(&mut buffer).unwrap();
            assert_eq!(
                (&buffer[..len], from),
                (&b"over"[..], sender.local_addr().unwrap())
            );
        }
        let drops = pair.link_drops().unwrap();
        assert_eq!(pair.link_drops().unwrap(), drops);
        drop(pair);
        assert!(names.iter().all(|name| within(name, || ()).is_err()));
    }
}
