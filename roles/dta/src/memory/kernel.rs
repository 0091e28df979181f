//! The responder in the kernel (XDP), in front of the one in user space. It owns the memory and the queue pairs of all links.

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

/// Longest payload of a packet that it accepts, bytes.
pub(super) const MAX_PAYLOAD: u16 = 2048;
/// Maximum completions per read.
const BURST: usize = 1024;
/// Poll interval of the interface.
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

/// The attachment of the program to the interface.
#[derive(Debug, Default)]
struct Attached {
    on: Option<(Attachment, Watch)>,
    native: bool,
    /// The reason for which it is not attached, or not in native mode.
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

/// End offset, in the kernel's memory, of a region of `len` bytes at offset `offset`.
pub(super) fn end(offset: u64, len: u64) -> u64 {
    offset + len.next_multiple_of(PAGE)
}

impl Kernel {
    /// Loads the program with `memory` bytes, and attaches it to its interface.
    ///
    /// # Errors
    /// The missing requirement, and its remedy.
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

    /// `len` bytes of the memory, from `offset`.
    pub(super) fn map(&self, offset: u64, len: u64) -> std::io::Result<Region> {
        self.rdma().map(offset, len)
    }

    /// Registers a region, whose memory begins at `offset`, for remote access.
    pub(super) fn register(
        &self,
        named: &Registered,
        offset: u64,
        part: &Registration,
    ) -> Result<(), Refused> {
        self.rdma()
            .register(named, offset + part.start, part.access, part.order, part.region)
    }

    /// Takes over a queue pair whose peer has UDP port `port`. Responses go to the source MAC address of the request.
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

    /// Returns the program's counters. Packets that are processed while the CPUs' counters are read unbalance the sums;
    /// then they are read again.
    fn count(&self) -> Counted {
        let mut counted = Counted::default();
        for _ in 0..8 {
            // If the kernel cannot be read, all counters are zero.
            counted = self.rdma().counted().unwrap_or_default();
            if counted.is_balanced() {
                break;
            }
        }
        counted
    }

    /// Detaches it from the interface; when this returns, it writes no more.
    pub(super) fn close(&self, pairs: impl Iterator<Item = u32>) {
        *self.attached() = Attached::default();
        let mut rdma = self.rdma();
        pairs.for_each(|number| {
            rdma.disconnect(number);
        });
    }

    /// Forwards completions, until `stop`.
    ///
    /// # Errors
    /// Polling failed.
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

    /// Attaches it again whenever its interface was removed and is back, until `stop`.
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

    /// Detects that the interface or the attachment is gone.
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
