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
use nic::verbs::{Device, Pair, Peer, WorkCompletion};
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
    regions: Mutex<Vec<nic::verbs::Registered>>,
    /// Queue pairs by number, each with its state.
    pairs: Mutex<BTreeMap<u32, (Pair, QueuePairState)>>,
    /// Maximum number of queue pairs.
    most: usize,
    /// The smallest path MTU for which long slots were logged.
    warned_mtu: AtomicU16,
}

impl Verbs {
    /// Opens the device that has this address, for at most `most` queue pairs.
    ///
    /// # Errors
    /// There is no such device; the message suggests a fix.
    pub(super) fn open(address: IpAddr, most: usize) -> Result<Self, CliError> {
        let device = Device::open(address).map_err(|error| {
            CliError::new(format!(
                "[collector.memory] mode = \"verbs\": {error}; or write mode = \"socket\""
            ))
        })?;
        Ok(Self {
            device,
            regions: Mutex::default(),
            pairs: Mutex::default(),
            most,
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

    fn pairs(&self) -> MutexGuard<'_, BTreeMap<u32, (Pair, QueuePairState)>> {
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
        let named = Registered {
            address: registered.address(),
            len: registered.len(),
            rkey: registered.key(),
        };
        self.regions
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(registered);
        Ok(named)
    }

    /// Creates a queue pair.
    ///
    /// # Errors
    /// `Ok(QueuePairError::Full)` at the limit, `Err` if the device or the system refuses.
    pub(super) fn connect(
        &self,
        config: &QueuePairConfig,
    ) -> Result<u32, Result<QueuePairError, nic::Error>> {
        let mut pairs = self.pairs();
        if pairs.len() >= self.most {
            return Err(Ok(QueuePairError::Full));
        }
        let mut pair = self
            .device
            .pair(config.transport == Transport::Rc, 4, RECEIVES)
            .map_err(Err)?;
        let peer = Peer {
            address: config.path.destination,
            queue_pair: config.peer,
            psn: config.psn.value(),
            own_psn: OWN_PSN,
            mtu: config.mtu as u16,
        };
        pair.connect(&peer)
            .and_then(|()| pair.receive(RECEIVES))
            .map_err(Err)?;
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
fn receive(number: u32, pair: &mut Pair, completions: &mut Vec<Completion>) -> Option<QueuePairState> {
    let mut done = [WorkCompletion::default(); 16];
    let mut good = 0;
    let mut bad = false;
    for done in pair.received(&mut done) {
        if done.status == 0 {
            good += 1;
            let immediate = done.immediate;
            let len = done.len;
            // A device does not report the address that it wrote to, but the immediate names the store.
            completions.push(Completion {
                queue_pair: number,
                immediate,
                location: None,
                len,
            });
        } else {
            bad = true;
        }
    }
    let stuck = good > 0 && pair.receive(good).is_err();
    (bad || stuck).then_some(QueuePairState::Error)
}
