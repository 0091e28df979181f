//! The RDMA responder in the kernel: an XDP program in front of the responder in user space. It owns the memory and the queue
//! pairs of all links; packets that it does not process pass to the socket.

use std::{
    os::fd::{AsFd, OwnedFd},
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use memory::Region;
use nic::{bpf::Attachment, frames::PollFds, receive::RxPath, receive::State, receive::Watch};
use rdma::responder::{QueuePairConfig, QueuePairState, Registered, Registration};
use wire::roce::{Path, Psn};
use xdp::rdma::{Counted, Options, Rdma, Refused};

use super::{Memory, Responses, SLEEP, Wake};
use dta::settings::MemorySettings;
use terminal::CliError;

/// Largest path MTU that the program supports, bytes.
pub(super) const MAX_PAYLOAD: u16 = 2048;
/// Maximum number of completions per read.
const BURST: usize = 1024;
/// Interval of checks of the interface and the attachment.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// Alignment of regions, bytes.
const PAGE: u64 = 4096;

/// The loaded kernel program and its attachment.
#[derive(Debug)]
pub(super) struct Kernel {
    interface: String,
    rdma: Mutex<Rdma>,
    attached: Mutex<Attached>,
    completions: OwnedFd,
}

/// The attachment of the program to its interface.
#[derive(Debug, Default)]
struct Attached {
    /// The attachment, and the watch on the interface; `None` while detached.
    on: Option<(Attachment, Watch)>,
    native: bool,
    /// The reason it is not attached, or not in native mode.
    message: Option<String>,
}

/// State of the attachment, and counters.
#[derive(Debug)]
pub(super) struct KernelStatus {
    pub(super) interface: String,
    pub(super) up: bool,
    pub(super) native: bool,
    pub(super) message: Option<String>,
    pub(super) counted: Counted,
}

/// Returns the end offset in the kernel's memory of a region of `len` bytes at `offset`, rounded up to a page.
pub(super) fn end(offset: u64, len: u64) -> u64 {
    offset + len.next_multiple_of(PAGE)
}

impl Kernel {
    /// Loads the program with `memory` bytes, and attaches it to its interface.
    ///
    /// # Errors
    /// The unmet requirement; the message suggests a fix.
    pub(super) fn open(settings: &MemorySettings, memory: u64) -> Result<Self, CliError> {
        let interface = settings.interface.as_deref().unwrap_or_default();
        let rdma = Rdma::load(&Options { memory, ..Options::default() }).map_err(|error| {
            let takes = "it needs Linux 5.18, CAP_BPF, CAP_NET_ADMIN and CAP_PERFMON, and as much free memory as the stores are large";
            refused("the responder cannot be loaded into the kernel", &format_args!("{error} ({takes})"))
        })?;
        let completions = rdma
            .completions_fd()
            .map_err(|error| refused("no descriptor is left", &error))?;
        let kernel = Self {
            interface: interface.to_owned(),
            rdma: Mutex::new(rdma),
            attached: Mutex::default(),
            completions,
        };
        kernel
            .attach()
            .map_err(|error| refused(&format!("the interface {interface} cannot be used"), &error))?;
        Ok(kernel)
    }

    fn rdma(&self) -> MutexGuard<'_, Rdma> {
        self.rdma.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn attached(&self) -> MutexGuard<'_, Attached> {
        self.attached.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn attach(&self) -> Result<(), nic::Error> {
        let filter = self.rdma().attach(&self.interface)?;
        for warning in &filter.warnings {
            tracing::warn!("{warning}");
        }
        let native = filter.rx_path == RxPath::Native;
        let message = filter.tried.first().map(ToString::to_string);
        tracing::info!(
            "RoCEv2 is answered in the kernel, on {} ({})",
            self.interface,
            if native { "native mode" } else { "generic mode" }
        );
        *self.attached() = Attached {
            on: Some((filter.attached, filter.watch)),
            native,
            message,
        };
        Ok(())
    }

    /// Maps `len` bytes of the memory, starting at `offset`.
    pub(super) fn map(&self, offset: u64, len: u64) -> std::io::Result<Region> {
        self.rdma().map(offset, len)
    }

    /// Registers a region for remote access. Its memory begins at `offset`.
    pub(super) fn register(
        &self,
        named: &Registered,
        offset: u64,
        part: &Registration,
    ) -> Result<(), Refused> {
        self.rdma()
            .register(named, offset + part.start, part.access, part.order, part.region)
    }

    /// Hands a queue pair over to the kernel. `port` is the peer's UDP port; responses go to each request's source MAC.
    pub(super) fn connect(&self, number: u32, pair: &QueuePairConfig, port: u16) -> Result<(), Refused> {
        let path = Path {
            destination_mac: [0; 6],
            ..pair.path
        };
        self.rdma()
            .connect_to(number, &QueuePairConfig { path, ..*pair }, port)
    }

    pub(super) fn disconnect(&self, number: u32) -> bool {
        self.rdma().disconnect(number)
    }

    pub(super) fn expected(&self, number: u32) -> Option<Psn> {
        self.rdma().expected(number)
    }

    pub(super) fn state(&self, number: u32) -> Option<QueuePairState> {
        self.rdma().state(number)
    }

    /// Returns the state of the attachment and the counters.
    pub(super) fn status(&self) -> KernelStatus {
        let counted = self.count();
        let attached = self.attached();
        KernelStatus {
            interface: self.interface.clone(),
            up: attached.on.is_some(),
            native: attached.native,
            message: attached.message.clone(),
            counted,
        }
    }

    /// Returns the program's counters. Packets processed during the read of the per-CPU counters unbalance the sums, so it
    /// retries a few times.
    fn count(&self) -> Counted {
        let mut counted = Counted::default();
        for _ in 0..8 {
            // Counters are zero if the kernel cannot be read.
            counted = self.rdma().counted().unwrap_or_default();
            if counted.is_balanced() {
                break;
            }
        }
        counted
    }

    /// Detaches the program. When this returns, the kernel writes no more to the memory.
    pub(super) fn close(&self, pairs: impl Iterator<Item = u32>) {
        *self.attached() = Attached::default();
        let mut rdma = self.rdma();
        pairs.for_each(|number| {
            rdma.disconnect(number);
        });
    }

    /// Forwards completions until `stop` is set, and then those already queued.
    ///
    /// # Errors
    /// Polling the ring failed.
    pub(super) fn forward_completions(
        &self,
        memory: &Memory,
        wake: &Wake,
        stop: &AtomicBool,
    ) -> Result<(), nic::Error> {
        let mut poll_fds = PollFds::default();
        let mut completed = Responses::default();
        loop {
            let ending = stop.load(Ordering::Relaxed);
            let timeout = if ending {
                Duration::ZERO
            } else {
                Duration::from_millis(SLEEP.into())
            };
            nic::frames::wait(std::iter::once(self.completions.as_fd()), &mut poll_fds, timeout)?;
            let mut rdma = self.rdma();
            rdma.completed(BURST, &mut completed);
            // Return the consumed receive to the queue pair.
            for pair in completed.received.drain(..) {
                rdma.replenish(pair, 1);
            }
            for completion in completed.completions.drain(..) {
                memory.notify(completion, wake);
            }
            if ending {
                return Ok(());
            }
        }
    }

    /// Reattaches the program whenever its interface reappears, until `stop` is set.
    pub(super) fn reattach(&self, stop: &AtomicBool) {
        let mut next = Instant::now() + CHECK_INTERVAL;
        while !stop.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_millis(SLEEP.into()));
            if Instant::now() < next {
                continue;
            }
            next = Instant::now() + CHECK_INTERVAL;
            self.check_attachment();
            if self.attached().on.is_none()
                && let Err(error) = self.attach()
            {
                self.attached().message = Some(error.to_string());
            }
        }
    }

    /// Detects that the interface was removed or the program detached.
    fn check_attachment(&self) {
        let mut attached = self.attached();
        let Some((attachment, watch)) = &mut attached.on else {
            return;
        };
        let reason = match (watch.check(), attachment.replaced()) {
            (Ok(State::Gone), _) => "there is no such interface any more",
            (_, Ok(Some(_))) => "the program was detached from the interface",
            _ => return,
        };
        tracing::warn!(
            "{}: {reason}; RoCEv2 is not answered until the program is attached again",
            self.interface
        );
        (attached.on, attached.message) = (None, Some(reason.to_owned()));
    }
}

fn refused(problem: &str, error: &dyn std::fmt::Display) -> CliError {
    CliError::new(format!(
        "[collector.memory] mode = \"xdp\": {problem}: {error}; fix that (`hopwise doctor -c FILE` helps), or set mode = \
         \"socket\", which needs no capabilities and no interface"
    ))
}
