//! Receives and sends whole frames, for a program that switches them between interfaces. Uses AF_PACKET: a ring to receive
//! (TPACKET_V2, which delivers each frame at once, unlike the blocks of V3), and batches to send.
//!
//! Each frame states the work that its sender left to offloading ([`Unfinished`]): within one machine, checksums are not
//! computed and TCP is not segmented. VLAN tags that the kernel stripped are inserted again. A port does not receive frames
//! that this machine itself sends on its interface.

mod port;
#[cfg(test)]
mod tests;

use std::fs;
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::time::Duration;

pub use port::{Options, Port, ReceivedFrame, Stats, Unfinished};

use crate::error::Error;
use crate::sys;

/// Waits at most `timeout` until one of the descriptors can be read or has failed, with nanosecond precision as far as the
/// system supports it. A signal ends the wait early. `poll_fds` is reused memory.
///
/// # Errors
/// The system refused.
pub fn wait<'f>(
    descriptors: impl Iterator<Item = BorrowedFd<'f>>,
    poll_fds: &mut PollFds,
    timeout: Duration,
) -> Result<(), Error> {
    poll_fds.0.clear();
    poll_fds.0.extend(descriptors.map(sys::readable));
    sys::poll_precisely(&mut poll_fds.0, timeout)
        .map(drop)
        .map_err(Error::failed("ppoll", ""))
}

/// Reusable memory for the descriptors of [`wait`].
#[derive(Default)]
pub struct PollFds(Vec<libc::pollfd>);

impl std::fmt::Debug for PollFds {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("PollFds").field(&self.0.len()).finish()
    }
}

/// Keeps the kernel's own network stack from sending on an interface: disables IPv6 (which would configure an address and
/// send), ARP replies and forwarding. Returns a message for each setting that could not be changed.
pub fn silence(interface: &str) -> Vec<String> {
    // Protocol, setting and value in /proc/sys/net/PROTOCOL/conf/INTERFACE.
    const SETTINGS: [(&str, &str, &str); 3] = [
        ("ipv6", "disable_ipv6", "1"),
        ("ipv4", "arp_ignore", "8"),
        ("ipv4", "forwarding", "0"),
    ];
    let mut refused = Vec::new();
    for (family, name, value) in SETTINGS {
        let path = Path::new("/proc/sys/net")
            .join(family)
            .join("conf")
            .join(interface)
            .join(name);
        // Without IPv6 in the kernel there is nothing to disable.
        if !path.exists() || fs::read_to_string(&path).is_ok_and(|now| now.trim() == value) {
            continue;
        }
        if let Err(error) = fs::write(&path, value) {
            refused.push(format!("cannot write {value} to {}: {error}", path.display()));
        }
    }
    refused
}
