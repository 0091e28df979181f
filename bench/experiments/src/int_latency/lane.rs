//! The testbed of `int-latency`: a switch process between two veth links, and the measuring host at their other ends.
//!
//! ```text
//! host namespace          switch namespace
//!   near  ── veth ──  left  ┐
//!                           ├ switch process, pinned to core 1
//!   far   ── veth ──  right ┘     rest ── veth ── nowhere   (reports)
//! ```

use std::time::{Duration, Instant};

use crate::figures::{failed, packets};
use crate::machine::Process;
use nic::{
    frames::{self, Options, Port},
    netns::Namespace,
    time,
};
use terminal::CliError;

/// Bytes of the UDP payload.
const PAYLOAD: usize = 200;
/// Cores of the host's thread and of the switches.
const HOST: usize = 0;
const SWITCH: usize = 1;
/// IPv4 and MAC address of the receiving host.
const HOST_ADDRESS: [u8; 4] = [10, 0, 2, 6];
const HOST_MAC: [u8; 6] = [2, 0, 0, 0, 0, 6];
/// Time after which a packet counts as lost, ns.
const LOST: u64 = 50_000_000;
/// Pause between two packets, ns.
const PAUSE: u64 = 200_000;
/// Time limit within which a switch must begin to forward.
const START: Duration = Duration::from_secs(30);

/// Busy-waits for [`PAUSE`] and `more` nanoseconds.
pub(super) fn pause(more: u64) {
    let until = time::monotonic() + PAUSE + more;
    while time::monotonic() < until {
        std::hint::spin_loop();
    }
}

/// Pins this thread to the host's core.
pub(super) fn be_the_host() {
    // Without pinning, the latencies are larger but still valid.
    let _ = time::pin(HOST);
}

/// The namespaces of the host and of the switch, with their links. The switch sends reports to `rest`, which leads nowhere.
#[derive(Debug)]
pub(super) struct Testbed {
    host: Namespace,
    pub(super) switch: Namespace,
}

impl Testbed {
    pub(super) fn new() -> Result<Self, CliError> {
        let [host, switch] = [Namespace::create(), Namespace::create()].map(|created| {
            created.map_err(|error| {
                CliError::new(format!("needs root and `ip`, for network namespaces ({error})"))
            })
        });
        let host = host?;
        let switch = switch?;
        for (near, far) in [("near", "left"), ("far", "right")] {
            let peer = ["peer", "name", far, "mtu", "2000", "netns", switch.name()];
            host.ip(&[&["link", "add", near, "mtu", "2000", "type", "veth"], &peer[..]].concat())
                .map_err(failed)?;
        }
        switch
            .ip(&["link", "add", "rest", "type", "veth", "peer", "name", "nowhere"])
            .map_err(failed)?;
        for (side, device) in [
            (&host, "near"),
            (&host, "far"),
            (&switch, "left"),
            (&switch, "right"),
            (&switch, "rest"),
            (&switch, "nowhere"),
        ] {
            // The kernel must not send frames of its own, such as neighbour discovery.
            side.run(|| frames::silence(device)).map_err(failed)?;
            side.ip(&["link", "set", device, "up"]).map_err(failed)?;
        }
        Ok(Self { host, switch })
    }

    /// Starts `program` in the switch's namespace, on the core of the switches.
    pub(super) fn start(&self, mut program: std::process::Command) -> Result<Process, CliError> {
        let started = self.switch.run(|| {
            // A process inherits the CPU affinity of the thread that starts it.
            let _ = time::pin(SWITCH);
            program.spawn()
        });
        Ok(Process(started.map_err(failed)?.map_err(failed)?))
    }

    /// Waits until the switch forwards a packet.
    pub(super) fn ready(self, process: Process) -> Result<Lane, CliError> {
        let options = Options {
            frame_len: 2064,
            ..Options::default()
        };
        let [near, far] = ["near", "far"].map(|device| {
            let opened = self.host.run(|| Port::open(device, &options));
            opened.and_then(|opened| opened).map_err(failed)
        });
        let ports = [near?, far?];
        let mut lane = Lane {
            process,
            ports,
            frame: [frame()],
            testbed: self,
        };
        let begun = Instant::now();
        while {
            lane.announce();
            lane.send(u64::MAX).is_none()
        } {
            if begun.elapsed() > START {
                return Err(CliError::new("a switch forwards nothing; see its settings"));
            }
            if let Ok(Some(status)) = lane.process.0.try_wait() {
                return Err(CliError::new(format!("a switch ended: {status}")));
            }
        }
        Ok(lane)
    }
}

/// A switch that forwards, and the host's ports at both ends.
#[derive(Debug)]
pub(super) struct Lane {
    // Fields are dropped in this order: the process ends before its namespaces are removed.
    process: Process,
    ports: [Port; 2],
    frame: [Vec<u8>; 1],
    #[expect(dead_code, reason = "its namespaces live as long as this")]
    testbed: Testbed,
}

impl Lane {
    /// Tells the switch where the receiving host is (RFC 5227, 1.1: an ARP announcement).
    pub(super) fn announce(&mut self) {
        let host = [&HOST_MAC[..], &HOST_ADDRESS].concat();
        let frame = [
            &[0xff; 6][..],
            &HOST_MAC,
            &[8, 6, 0, 1, 8, 0, 6, 4, 0, 1],
            &host,
            &[0; 6],
            &HOST_ADDRESS,
        ]
        .concat();
        self.ports[1].send(&[frame]);
    }

    /// Sends a packet that ends with `number`. Returns the nanoseconds until it comes back, or `None` if it is lost.
    pub(super) fn send(&mut self, number: u64) -> Option<u64> {
        let [near, far] = &mut self.ports;
        let end = self.frame[0].len() - 8;
        self.frame[0][end..].copy_from_slice(&number.to_be_bytes());
        let sent = time::monotonic();
        near.send(&self.frame);
        loop {
            let mut is_back = false;
            far.receive(1, &mut |arrived| {
                is_back |= arrived.data.ends_with(&number.to_be_bytes())
            });
            let took = time::monotonic() - sent;
            if is_back {
                return Some(took);
            }
            if took > LOST {
                return None;
            }
            std::hint::spin_loop();
        }
    }
}

/// Returns a UDP packet to the receiving host, addressed to the MAC of port 1 of the switch (node 1).
fn frame() -> Vec<u8> {
    let mac = dataplane::router::Port::mac_for(1, 1);
    packets::udp(mac, ([10, 0, 1, 5], 1_000), (HOST_ADDRESS, 2_000), PAYLOAD)
}
