//! Drops Linux capabilities in two steps. Capabilities belong to threads, and a thread inherits those of its parent.
//!
//! 1. While the process has a single thread, it drops what no part of it needs.
//! 2. After it has started the thread that reopens inputs, the main thread, the parent of all later threads, drops the rest.

use crate::settings::Capabilities;
use nic::capabilities::{Cap, CapSet, current, drop_thread_to, drop_to};

/// Capabilities for opening an interface. CAP_PERFMON is needed only for programs that compute an address from the bytes of a
/// frame (detection, `mode = "kernel"`, and collector memory, `mode = "xdp"`): the verifier rejects them without it.
const OPENING: [Cap; 5] = [
    Cap::BPF,
    Cap::NET_ADMIN,
    Cap::NET_RAW,
    Cap::IPC_LOCK,
    Cap::PERFMON,
];

/// The capabilities to drop, between the two steps.
#[derive(Clone, Copy, Debug)]
pub struct CapabilityDrop {
    requested: Capabilities,
    /// The capabilities that every thread keeps.
    retained: CapSet,
}

impl CapabilityDrop {
    /// Performs the first step, once the inputs are open and before other threads exist. `opens_again`: some inputs are
    /// reopened after a failure. `devices`: memory is registered with RDMA devices later, which needs CAP_IPC_LOCK.
    pub fn begin(requested: Capabilities, opens_again: bool, devices: bool) -> Self {
        // NET_BIND_SERVICE: the API may listen on a port below 1024. DAC_OVERRIDE: root may have a store in another user's
        // directory, and creates files there as needed.
        let root = current().is_ok_and(|capabilities| capabilities.root);
        let mut retained = vec![Cap::NET_BIND_SERVICE];
        retained.extend(root.then_some(Cap::DAC_OVERRIDE));
        retained.extend(devices.then_some(Cap::IPC_LOCK));
        let capability_drop = Self {
            requested,
            retained: CapSet::of(&retained),
        };
        if requested != Capabilities::All {
            if requested == Capabilities::Reopen && opens_again {
                retained.extend(OPENING);
            }
            if let Err(error) = drop_to(CapSet::of(&retained)) {
                tracing::warn!(%error, "cannot drop capabilities; the process retains them");
            }
        }
        capability_drop
    }

    /// Performs the second step, once the thread that reopens inputs runs.
    pub fn end(self) {
        if self.requested == Capabilities::All {
            return;
        }
        match drop_thread_to(self.retained) {
            Ok(remaining) => tracing::debug!(effective = %remaining.effective, "capabilities dropped"),
            Err(error) => tracing::warn!(%error, "cannot drop capabilities; the process retains them"),
        }
    }
}

/// Drops the capabilities of a thread that reads an open interface. It inherited more from the thread that opened it.
pub fn drop_to_reading(requested: Capabilities) {
    if requested != Capabilities::All {
        // Before Linux 5.19 even reading a map needs CAP_BPF. A failure is harmless: the thread only keeps more than it needs.
        let _ = drop_thread_to(CapSet::of(&[Cap::BPF]));
    }
}
