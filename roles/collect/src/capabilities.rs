//! Dropping Linux capabilities. Capabilities belong to threads, and a thread inherits them from its parent. So the process
//! drops most while it has one thread, starts the thread that reopens inputs, and then drops the rest in the main thread,
//! the parent of all others.

use crate::settings::Capabilities;
use nic::capabilities::{Cap, CapSet, current, drop_thread_to, drop_to};

/// Capabilities to open an interface. CAP_PERFMON is only for detection (`mode = "kernel"`) and collector memory (`mode = "xdp"`)
/// in the kernel: without it the verifier refuses a program that computes an address from the bytes of a frame.
const OPENING: [Cap; 5] = [
    Cap::BPF,
    Cap::NET_ADMIN,
    Cap::NET_RAW,
    Cap::IPC_LOCK,
    Cap::PERFMON,
];

/// Capabilities, dropped in two steps.
#[derive(Clone, Copy, Debug)]
pub struct CapabilityDrop {
    wanted: Capabilities,
    /// The capabilities that every thread keeps.
    retained: CapSet,
}

impl CapabilityDrop {
    /// The first step, when the inputs are open and before there are other threads. `opens_again`: some inputs must be opened
    /// again when they fail. `devices`: memory is registered with RDMA devices later.
    pub fn begin(wanted: Capabilities, opens_again: bool, devices: bool) -> Self {
        // The API may listen on a port below 1024. Root may have a store in a directory of another user, whose files
        // are created when they are needed.
        let root = current().is_ok_and(|capabilities| capabilities.root);
        let mut retained = vec![Cap::NET_BIND_SERVICE];
        retained.extend(root.then_some(Cap::DAC_OVERRIDE));
        retained.extend(devices.then_some(Cap::IPC_LOCK));
        let this = Self {
            wanted,
            retained: CapSet::of(&retained),
        };
        if wanted != Capabilities::All {
            if wanted == Capabilities::Reopen && opens_again {
                retained.extend(OPENING);
            }
            if let Err(error) = drop_to(CapSet::of(&retained)) {
                tracing::warn!(%error, "cannot drop capabilities; the process retains them");
            }
        }
        this
    }

    /// The second step, when the thread that reopens inputs runs.
    pub fn end(self) {
        if self.wanted == Capabilities::All {
            return;
        }
        match drop_thread_to(self.retained) {
            Ok(left) => tracing::debug!(effective = %left.effective, "capabilities dropped"),
            Err(error) => tracing::warn!(%error, "cannot drop capabilities; the process retains them"),
        }
    }
}

/// For a thread that reads an open interface: from the thread that opens it, it inherits more capabilities than it needs.
pub fn drop_to_reading(wanted: Capabilities) {
    if wanted != Capabilities::All {
        // Before Linux 5.19 even reading a map needs CAP_BPF. A thread that keeps more than it needs works as well.
        let _ = drop_thread_to(CapSet::of(&[Cap::BPF]));
    }
}
