//! User space's side of the RoCEv2 responder in the kernel: manages memory, regions, queue pairs, completions and counters.
//!
//! The responder runs in front of a [`rdma::responder::Responder`], which allocates all rkeys and numbers: a region or queue
//! pair is created there, and then registered here under the same rkey or number. The kernel executes and acknowledges requests
//! for its regions and queue pairs without user space. Frames for other queue pairs pass to the stack, and so to the socket of
//! that responder. Both write the same memory.
//!
//! It supports reliable and unreliable queue pairs with a path MTU of up to 2048 bytes, over Ethernet without VLAN tags. See
//! `docs/design/xdp-responder.md`.

mod layout;

use std::fmt;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use memory::{Access, Region};
use nic::Error;
use nic::bpf::{LoadOptions, Map, Mapped, Object, Ring};
use nic::receive::{self, Filter};
use rdma::responder::{AccessFlags, Completion, Order, Output, QueuePairConfig, QueuePairState, Registered};
use wire::roce::Psn;

use crate::bytes::{u16_at, u32_at, u64_at};
pub use layout::Counted;
use layout::{CHUNK, COUNTERS, MAX_PAYLOAD, MAX_QUEUE_PAIRS, MAX_REGIONS, queue_pair, region};

/// Options of the responder.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Options {
    /// Bytes of memory for all regions together, rounded up to whole MiB. The kernel allocates all of it.
    pub memory: u64,
    /// Bytes of the ring of completions, a power of two of at least a page. A record has 32 bytes, plus the payload of a send.
    pub completions: u32,
    /// Receiver-not-ready timer code; see [`rdma::responder::Config::not_ready_timer`].
    pub not_ready_timer: u8,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            memory: 64 << 20,
            completions: 1 << 20,
            not_ready_timer: 14,
        }
    }
}

/// The reason why the kernel refuses a region or queue pair. A responder in user space may accept it.
#[derive(Debug)]
pub enum Refused {
    /// The slot of this rkey or number is in use.
    InUse,
    /// The region is empty, outside the memory, or permits atomic operations and does not begin at a multiple of eight.
    Range,
    /// The path MTU is not 256, 512, 1024 or 2048.
    Mtu,
    /// The addresses of the path are of different families.
    Addresses,
    /// A system call failed.
    System(Error),
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InUse => f.write_str("the kernel's slot for this rkey or number is in use"),
            Self::Range => f.write_str(
                "the region is empty, outside the kernel's memory, or permits atomic operations and does not begin at a multiple \
                 of eight",
            ),
            Self::Mtu => f.write_str("the kernel supports path MTUs of 256, 512, 1024 and 2048 only"),
            Self::Addresses => f.write_str("one end of the path is IPv4 and the other IPv6"),
            Self::System(error) => write!(f, "{error}"),
        }
    }
}

impl std::error::Error for Refused {}

impl From<Error> for Refused {
    fn from(error: Error) -> Self {
        Self::System(error)
    }
}

/// The responder; see the module's documentation. Program and memory outlive this value as long as an attachment or a mapped
/// region exists.
#[derive(Debug)]
pub struct Rdma {
    object: Object,
    memory: Map,
    memory_len: u64,
    regions: Array,
    queue_pairs: Array,
    control: Mapped,
    responses: Map,
    results: Map,
    counters: Map,
    completions: Ring,
}

/// An array, accessed as whole elements or as single words.
#[derive(Debug)]
struct Array {
    map: Map,
    memory: Mapped,
}

impl Array {
    fn open(object: &Object, name: &str) -> Result<Self, Error> {
        let map = object.map(name)?;
        Ok(Self {
            map: map.try_clone()?,
            memory: map.map_memory()?,
        })
    }
}

impl Rdma {
    /// Name of the kernel program.
    pub const PROGRAM: &str = "hopwise_rdma";

    /// Loads the program and allocates its memory.
    ///
    /// # Errors
    /// The kernel is older than 5.18, lacks a feature or memory, or permission is missing (CAP_BPF, CAP_NET_ADMIN,
    /// CAP_PERFMON).
    pub fn load(options: &Options) -> Result<Self, Error> {
        Self::load_object(crate::RDMA, options, LoadOptions::default())
    }

    /// Loads another object, with further options in `load`; for measurements.
    ///
    /// # Errors
    /// The same as for [`Rdma::load`].
    #[doc(hidden)]
    pub fn load_object(object: &[u8], options: &Options, mut load: LoadOptions<'_>) -> Result<Self, Error> {
        let chunks = options.memory.div_ceil(CHUNK).max(1);
        load.max_entries.extend([
            ("memory", u32::try_from(chunks).unwrap_or(u32::MAX)),
            ("completions", options.completions),
        ]);
        load.constants.extend([
            ("not_ready_timer", options.not_ready_timer.into()),
            ("weak_order", u32::from(!cfg!(target_arch = "x86_64"))),
        ]);
        let mut object = Object::load(object, &load)?;
        let completions = object.ring("completions")?;
        Ok(Self {
            memory: object.map("memory")?.try_clone()?,
            memory_len: chunks * CHUNK,
            regions: Array::open(&object, "regions")?,
            queue_pairs: Array::open(&object, "queue_pairs")?,
            control: object.map("rdma_control")?.map_memory()?,
            responses: object.map("responses")?.try_clone()?,
            results: object.map("results")?.try_clone()?,
            counters: object.map("rdma_counted")?.try_clone()?,
            completions,
            object,
        })
    }

    /// Attaches the program to one interface of the caller's network namespace, in native mode if the driver supports it.
    /// Dropping the result detaches it.
    ///
    /// # Errors
    /// The interface is down or does not exist, has another program, or does not support XDP.
    pub fn attach(&self, interface: &str) -> Result<Filter, Error> {
        let driver = nic::device::facts(interface)?.and_then(|facts| facts.driver);
        if let Some(redirect) = self.control.half(0, 0) {
            redirect.store(u32::from(driver.as_deref() == Some("veth")), Relaxed);
        }
        receive::filter(
            interface,
            &self.object,
            Self::PROGRAM,
            &receive::Options::default(),
        )
    }

    /// Returns the loaded object, for test runs and program ids.
    pub fn object(&self) -> &Object {
        &self.object
    }

    /// Returns the bytes of the memory.
    pub fn memory_len(&self) -> u64 {
        self.memory_len
    }

    /// Maps `len` bytes of the memory from `at` (both multiples of the page size) into user space.
    ///
    /// # Errors
    /// The range is outside the memory, or no address space is left.
    pub fn map(&self, at: u64, len: u64) -> std::io::Result<Region> {
        Region::from_fd(self.memory.as_fd(), at, len, Access::ReadWrite)
    }

    /// Registers a part of the memory, from byte `start` on, under the rkey, address and length that a responder gave to the
    /// same bytes. Completions carry `number`.
    ///
    /// # Errors
    /// See [`Refused`].
    pub fn register(
        &mut self,
        named: &Registered,
        start: u64,
        access: AccessFlags,
        order: Order,
        number: u16,
    ) -> Result<(), Refused> {
        let end = start.checked_add(named.len).ok_or(Refused::Range)?;
        if named.len == 0 || end > self.memory_len || access.atomic && !start.is_multiple_of(8) {
            return Err(Refused::Range);
        }
        let slot = named.rkey as usize % MAX_REGIONS;
        let key = self
            .regions
            .memory
            .half(slot, region::RKEY)
            .ok_or(Refused::InUse)?;
        if named.rkey == 0 || key.load(Relaxed) != 0 {
            return Err(Refused::InUse);
        }
        let entry = layout::region(named, start, access, order, number);
        self.regions.map.update(&(slot as u32).to_ne_bytes(), &entry)?;
        // Release: pairs with the program, which reads the other fields only if the rkey matches.
        key.store(named.rkey, Release);
        Ok(())
    }

    /// Deregisters a region. Returns `false` if no region has this rkey. After this returns, no request writes to the region.
    pub fn deregister(&mut self, key: u32) -> bool {
        let slot = key as usize % MAX_REGIONS;
        let Some(word) = self.regions.memory.half(slot, region::RKEY) else {
            return false;
        };
        if key == 0 || word.compare_exchange(key, 0, AcqRel, Relaxed).is_err() {
            return false;
        }
        // The program reads regions under a pair's lock. So once each lock was free, no earlier read is in progress.
        (0..MAX_QUEUE_PAIRS)
            .filter(|&slot| self.word(slot, queue_pair::NUMBER) != 0)
            .for_each(|slot| self.pass(slot));
        true
    }

    /// Adds a queue pair under the number that a responder gave it. If the path's MAC address is zero, responses go to the MAC
    /// address that sent the request.
    ///
    /// # Errors
    /// See [`Refused`].
    pub fn connect(&mut self, number: u32, config: &QueuePairConfig) -> Result<(), Refused> {
        self.connect_to(number, config, wire::roce::PORT)
    }

    /// Adds a queue pair whose responses go to another UDP port than RoCEv2's, for a requester that uses a socket. Their ICRC
    /// still covers RoCEv2's port (see [`Packet::parse_udp`](wire::roce::Packet::parse_udp)).
    ///
    /// # Errors
    /// See [`Refused`].
    pub fn connect_to(&mut self, number: u32, config: &QueuePairConfig, port: u16) -> Result<(), Refused> {
        if !matches!(config.mtu, 256 | 512 | 1024 | MAX_PAYLOAD) {
            return Err(Refused::Mtu);
        }
        if config.path.source.is_ipv4() != config.path.destination.is_ipv4() {
            return Err(Refused::Addresses);
        }
        let slot = number as usize % MAX_QUEUE_PAIRS;
        if number == 0 || number >> 24 != 0 || self.word(slot, queue_pair::NUMBER) != 0 {
            return Err(Refused::InUse);
        }
        let key = (slot as u32).to_ne_bytes();
        let templates = layout::response_templates(config, port).ok_or(Refused::Addresses)?;
        self.responses.update(&key, &templates)?;
        self.results.update(&key, &layout::saved_atomics())?;
        self.queue_pairs.map.update(&key, &layout::queue_pair(config))?;
        if let Some(word) = self.queue_pairs.memory.half(slot, queue_pair::NUMBER) {
            // Release: pairs with the program, which reads the other fields only if the number matches the packet's.
            word.store(number, Release);
        }
        Ok(())
    }

    /// Removes a queue pair. Returns `false` if none has this number. After this returns, none of its requests writes.
    pub fn disconnect(&mut self, number: u32) -> bool {
        let slot = number as usize % MAX_QUEUE_PAIRS;
        let Some(word) = self.queue_pairs.memory.half(slot, queue_pair::NUMBER) else {
            return false;
        };
        if number == 0 || word.compare_exchange(number, 0, AcqRel, Relaxed).is_err() {
            return false;
        }
        // The program checks the number again under the lock, so no request proceeds after this.
        self.pass(slot);
        true
    }

    /// Returns the state of a queue pair, or `None` if none has this number.
    pub fn state(&self, number: u32) -> Option<QueuePairState> {
        let error = self.of_pair(number, queue_pair::ERROR)?;
        Some(if error == 0 {
            QueuePairState::Ready
        } else {
            QueuePairState::Error
        })
    }

    /// Returns the expected PSN of a queue pair, or `None` if none has this number.
    pub fn expected(&self, number: u32) -> Option<Psn> {
        self.of_pair(number, queue_pair::EXPECTED).map(Psn::new)
    }

    /// Returns the remaining receive credits, for messages with an immediate and for sends.
    pub fn receives(&self, number: u32) -> Option<u32> {
        self.of_pair(number, queue_pair::RECEIVES)
    }

    /// Adds receive credits, up to a total of 2^31.
    pub fn replenish(&mut self, number: u32, receives: u32) {
        let Some(left) = self.receives(number) else { return };
        if let Some(word) = self
            .queue_pairs
            .memory
            .half(number as usize % MAX_QUEUE_PAIRS, queue_pair::RECEIVES)
        {
            // The program can only decrement it in the meantime, so the sum does not overflow.
            word.fetch_add(receives.min((1_u32 << 31).saturating_sub(left)), AcqRel);
        }
    }

    /// Reports at most `most` completed messages to `out`. Returns their number.
    pub fn completed(&mut self, most: usize, out: &mut impl Output) -> usize {
        self.completions.consume(most, |record| report(record, out))
    }

    /// Waits at most `timeout_ms` for a completion.
    ///
    /// # Errors
    /// The system refused.
    pub fn wait(&self, timeout_ms: u32) -> Result<(), Error> {
        self.completions.wait(timeout_ms)
    }

    /// Returns the counters, summed over all CPUs.
    ///
    /// # Errors
    /// The system refused.
    pub fn counted(&self) -> Result<Counted, Error> {
        let mut words = [0; COUNTERS];
        self.counters.sum(&0_u32.to_ne_bytes(), &mut words)?;
        Ok(Counted::of(&words))
    }

    fn word(&self, slot: usize, offset: usize) -> u32 {
        // Acquire: pairs with the exchange with which the program releases a pair's lock.
        self.queue_pairs
            .memory
            .load_half(slot, offset, Acquire)
            .unwrap_or(0)
    }

    fn of_pair(&self, number: u32, offset: usize) -> Option<u32> {
        let slot = number as usize % MAX_QUEUE_PAIRS;
        (number != 0 && self.word(slot, queue_pair::NUMBER) == number).then(|| self.word(slot, offset))
    }

    /// Waits until every current holder of the pair's lock has released it.
    fn pass(&self, slot: usize) {
        let Some(lock) = self.queue_pairs.memory.half(slot, queue_pair::LOCK) else {
            return;
        };
        // Pairs with the program's lock and unlock. The program holds the lock for some microseconds at most, and this thread
        // cannot interrupt it.
        while lock.compare_exchange(0, 1, AcqRel, Relaxed).is_err() {
            std::thread::yield_now();
        }
        lock.store(0, Release);
    }
}

impl Rdma {
    /// Returns a descriptor that is readable when there are completions, to wait without borrowing the responder.
    ///
    /// # Errors
    /// No descriptor is left.
    pub fn completions_fd(&self) -> std::io::Result<OwnedFd> {
        self.completions.as_fd().try_clone_to_owned()
    }
}

impl AsRawFd for Rdma {
    /// Returns the descriptor, which is readable when there are completions.
    fn as_raw_fd(&self) -> RawFd {
        self.completions.as_raw_fd()
    }
}

/// Parses a `struct completion` with the payload behind it, and reports it to `out`.
fn report(record: &[u8], out: &mut impl Output) {
    // Kinds of completions.
    const WRITE: u16 = 1;
    const SEND: u16 = 2;
    let Some((head, text)) = record.split_first_chunk::<24>() else {
        return;
    };
    let pair = u32_at(head, 0);
    let len = u32_at(head, 16);
    let kind = u16_at(head, 22);
    if kind == SEND {
        out.sent(pair, text.get(..len as usize).unwrap_or(text));
        return;
    }
    out.complete(&Completion {
        queue_pair: pair,
        immediate: u32_at(head, 4),
        location: (kind == WRITE).then(|| (u16_at(head, 20), u64_at(head, 8))),
        len,
    });
}
