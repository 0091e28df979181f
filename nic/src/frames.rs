//! Whole frames in and out of interfaces, for a program that switches them: AF_PACKET, with a ring to receive
//! (TPACKET_V2: each frame is delivered at once, unlike the blocks of V3) and batches to send.
//!
//! Each frame states the work that its sender left to offloading ([`Unfinished`]): between the network stacks of one machine
//! checksums are not computed and TCP is not segmented. VLAN tags that the kernel stripped are inserted again. A port does not receive frames that
//! the machine itself sends through its interface.

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

/// Waits until one of `ports` or `other` can be read or has failed, at most `timeout`, to the nanosecond as far as the system
/// can. A signal ends it as the timeout does. `poll_fds` is reused memory.
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

/// The descriptors of [`wait`].
#[derive(Default)]
pub struct PollFds(Vec<libc::pollfd>);

impl std::fmt::Debug for PollFds {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("PollFds").field(&self.0.len()).finish()
    }
}

/// Stops the kernel's own network stack from sending on an interface: no IPv6 (it would configure an address and send), no ARP replies, no
/// forwarding. Returns a message for each setting that could not be changed.
pub fn silence(interface: &str) -> Vec<String> {
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
        // Without IPv6 in the kernel there is nothing to switch off.
        if !path.exists() || fs::read_to_string(&path).is_ok_and(|now| now.trim() == value) {
            continue;
        }
        if let Err(error) = fs::write(&path, value) {
            refused.push(format!("cannot write {value} to {}: {error}", path.display()));
        }
    }
    refused
}
