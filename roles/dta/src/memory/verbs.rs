//! The memory's responder on an RDMA device (`mode = "verbs"`). The device executes writes and atomics on the registered
//! regions; this program sees only immediates.

use std::{
    collections::BTreeMap,
    net::IpAddr,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU16, Ordering},
    },
    time::Duration,
};

use memory::Region;
use nic::verbs::{Device, Peer, QueuePair, RegisteredRegion, WorkCompletion};
use rdma::responder::{Completion, QueuePairConfig, QueuePairError, QueuePairState, Registered};
use wire::{
    dta::layout::{CHECKSUM_LEN, Geometry},
    roce::Transport,
};

use super::{Memory, Wake};
use dta::source::SourceStore;
use terminal::CliError;

/// Receive queue depth of a queue pair: immediates that may arrive before they are read.
const RECEIVES: u32 = 1024;
/// Poll interval of the completion queues for immediates.
const POLL_INTERVAL: Duration = Duration::from_millis(2);
/// First PSN of our side. It sends no requests, but the peer needs a value to connect.
const OWN_PSN: u32 = 0;

/// The RDMA device, with the regions and queue pairs of this memory.
#[derive(Debug)]
pub(super) struct Verbs {
    device: Device,
    regions: Mutex<Vec<RegisteredRegion>>,
    /// Queue pairs by number, each with its state.
    pairs: Mutex<BTreeMap<u32, (QueuePair, QueuePairState)>>,
    /// Maximum number of queue pairs.
    max_queue_pairs: usize,
    /// The smallest path MTU for which long slots were logged.
    warned_mtu: AtomicU16,
}

/// The reason why a queue pair was not created.
#[derive(Debug)]
pub(super) enum ConnectError {
    /// The maximum number of queue pairs exists.
    Full,
    /// The message of the responder, the device or the system.
    Refused(String),
}

impl From<nic::Error> for ConnectError {
    fn from(error: nic::Error) -> Self {
        Self::Refused(error.to_string())
    }
}

impl From<QueuePairError> for ConnectError {
    fn from(error: QueuePairError) -> Self {
        match error {
            QueuePairError::Full => Self::Full,
            error => Self::Refused(error.to_string()),
        }
    }
}

impl Verbs {
    /// Opens the device that has this address, for at most `max_queue_pairs` queue pairs.
    ///
    /// # Errors
    /// There is no such device; the message suggests a fix.
    pub(super) fn open(address: IpAddr, max_queue_pairs: usize) -> Result<Self, CliError> {
        let device = Device::open(address).map_err(|error| {
            CliError::new(format!(
                "[collector.memory] mode = \"verbs\": {error}; or write mode = \"socket\""
            ))
        })?;
        Ok(Self {
            device,
            regions: Mutex::default(),
            pairs: Mutex::default(),
            max_queue_pairs,
            warned_mtu: AtomicU16::new(u16::MAX),
        })
    }

    /// Warns of stores whose slots need several packets of `mtu` bytes; once for each store, and again if the MTU shrinks.
    pub(super) fn warn_of_long_slots<'s>(&self, stores: impl Iterator<Item = &'s SourceStore>, mtu: u16) {
        let warned = self.warned_mtu.fetch_min(mtu, Ordering::Relaxed);
        for store in stores {
            let len = match store.store.geometry() {
                Geometry::KeyWrite { data_len, .. } => CHECKSUM_LEN + usize::from(data_len),
                Geometry::Postcarding { hops, .. } => CHECKSUM_LEN + 4 * usize::from(hops),
                // Readers of these layouts check the end of a block, which a device writes last.
                Geometry::Append { .. } | Geometry::KeyIncrement { .. } | Geometry::Sketch { .. } => continue,
            };
            if len > usize::from(mtu) && len <= usize::from(warned) {
                tracing::warn!(
                    "the store `{}` has slots of {len} bytes, in several packets of {mtu}: a device writes them one after the other, so that a \
                     read at the same time may return half of another value; query with policy = \"majority\" or \"strict\", or raise the path MTU \
                     ([translator] pmtu, and the interfaces' MTU)",
                    store.name()
                );
            }
        }
    }

    fn pairs(&self) -> MutexGuard<'_, BTreeMap<u32, (QueuePair, QueuePairState)>> {
        self.pairs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the path MTU of the device, bytes.
    pub(super) fn mtu(&self) -> u16 {
        self.device.mtu()
    }

    /// Registers a region for remote writes, starting at byte `start`.
    ///
    /// # Errors
    /// The system does not allow it.
    pub(super) fn register(&self, region: &Arc<Region>, start: u64) -> Result<Registered, nic::Error> {
        let registered = self.device.register_from(Arc::clone(region), start, true)?;
        let remote = Registered {
            address: registered.address(),
            len: registered.len(),
            rkey: registered.key(),
        };
        self.regions
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(registered);
        Ok(remote)
    }

    /// Creates a queue pair.
    ///
    /// # Errors
    /// The limit is reached, or the device or the system refuses.
    pub(super) fn connect(&self, config: &QueuePairConfig) -> Result<u32, ConnectError> {
        let mut pairs = self.pairs();
        if pairs.len() >= self.max_queue_pairs {
            return Err(ConnectError::Full);
        }
        let mut pair = self
            .device
            .queue_pair(config.transport == Transport::Rc, 4, RECEIVES)?;
        let peer = Peer {
            address: config.path.destination,
            queue_pair: config.peer,
            psn: config.psn.value(),
            own_psn: OWN_PSN,
            mtu: config.mtu as u16,
        };
        pair.connect(&peer)?;
        pair.receive(RECEIVES)?;
        let number = pair.number();
        pairs.insert(number, (pair, QueuePairState::Ready));
        Ok(number)
    }

    pub(super) fn disconnect(&self, number: u32) -> bool {
        self.pairs().remove(&number).is_some()
    }

    pub(super) fn state(&self, number: u32) -> Option<QueuePairState> {
        self.pairs().get(&number).map(|(_, state)| *state)
    }

    /// Forwards immediates to the thread that follows lists, until `stop` is set.
    pub(super) fn forward_completions(&self, memory: &Memory, wake: &Wake, stop: &AtomicBool) {
        let mut completions = Vec::new();
        while !stop.load(Ordering::Relaxed) {
            for (number, (pair, state)) in self.pairs().iter_mut() {
                *state = receive(*number, pair, &mut completions).unwrap_or(*state);
            }
            if completions.is_empty() {
                std::thread::sleep(POLL_INTERVAL);
            }
            completions
                .drain(..)
                .for_each(|completion| memory.notify(completion, wake));
        }
    }
}

/// Reads the receive completions of a queue pair, and posts as many receives again. Returns the new state if it changed.
fn receive(number: u32, pair: &mut QueuePair, completions: &mut Vec<Completion>) -> Option<QueuePairState> {
    let mut buffer = [WorkCompletion::default(); 16];
    let mut received = 0;
    let mut has_failed = false;
    for completion in pair.poll_received(&mut buffer) {
        if completion.status == 0 {
            received += 1;
            // A device does not report the address that it wrote to, but the immediate names the store.
            completions.push(Completion {
                queue_pair: number,
                immediate: completion.immediate,
                location: None,
                len: completion.len,
            });
        } else {
            has_failed = true;
        }
    }
    let is_stuck = received > 0 && pair.receive(received).is_err();
    (has_failed || is_stuck).then_some(QueuePairState::Error)
}
