//! Access to BPF maps by whole keys and values: `bpf(2)` for elements, shared memory for arrays, and ring buffers.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use aya::maps::{MapData, RingBuf};

use super::program;
use crate::error::Error;
use crate::sys::bpf::{Element, bpf, command};

/// A map of a loaded object. Keys and values are bytes of exactly the map's sizes.
#[derive(Debug)]
pub struct Map {
    fd: OwnedFd,
    name: String,
    key: usize,
    value: usize,
    entries: u32,
    id: u32,
    /// For a per-CPU map, the number of possible CPUs: there is a value for each, padded to a multiple of eight bytes.
    cpus: Option<usize>,
    /// True for hash maps.
    hashed: bool,
}

impl Map {
    pub(super) fn of(name: &str, map: &aya::maps::Map) -> Result<Self, Error> {
        use aya::maps::Map as Kind;
        let per_cpu = matches!(
            map,
            Kind::PerCpuArray(_) | Kind::PerCpuHashMap(_) | Kind::PerCpuLruHashMap(_)
        );
        let hashed = matches!(
            map,
            Kind::HashMap(_) | Kind::LruHashMap(_) | Kind::PerCpuHashMap(_) | Kind::PerCpuLruHashMap(_)
        );
        let data = data(map).ok_or_else(|| program::missing("usable map", name))?;
        let about = format!("map {name}");
        let info = data
            .info()
            .map_err(|error| Error::new("bpf", &about, io::Error::other(error.to_string())))?;
        let fd = data.fd().as_fd().try_clone_to_owned();
        let fd = fd.map_err(Error::failed("bpf", about))?;
        let cpus = per_cpu.then(possible_cpus).transpose()?;
        Ok(Self {
            fd,
            name: name.to_owned(),
            key: info.key_size() as usize,
            value: info.value_size() as usize,
            entries: info.max_entries(),
            id: info.id(),
            cpus,
            hashed,
        })
    }

    /// Returns another handle of the same map.
    ///
    /// # Errors
    /// Too many open files.
    pub fn try_clone(&self) -> Result<Self, Error> {
        let fd = self.fd.try_clone().map_err(|source| self.error("dup", source))?;
        Ok(Self {
            fd,
            name: self.name.clone(),
            ..*self
        })
    }

    /// Returns the kernel's ID of the map, as `bpftool map` shows it.
    pub fn id(&self) -> u32 {
        self.id
    }

    /// Returns the map's name in the object.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns whether it is a hash map, in which keys can be added and removed.
    pub fn is_hashed(&self) -> bool {
        self.hashed
    }

    /// Returns the maximum number of entries.
    pub fn capacity(&self) -> u32 {
        self.entries
    }

    /// Returns the bytes of a key, and of a value (of one CPU).
    pub fn sizes(&self) -> (usize, usize) {
        (self.key, self.value)
    }

    /// Returns the bytes that the kernel reads or writes for one value.
    fn span(&self) -> usize {
        self.cpus
            .map_or(self.value, |cpus| self.value.next_multiple_of(8) * cpus)
    }

    fn check(&self, what: &'static str, actual: usize, expected: usize) -> Result<(), Error> {
        if actual == expected {
            return Ok(());
        }
        let text = format!("a {what} of {actual} bytes, where the map has {expected}");
        Err(self.error("bpf", io::Error::new(io::ErrorKind::InvalidInput, text)))
    }

    fn error(&self, call: &'static str, source: io::Error) -> Error {
        Error::new(call, format!("map {}", self.name), source)
    }

    /// Reads the value of `key` into `value`. Returns `false` if there is none. For a per-CPU map, `value` receives the values
    /// of all possible CPUs, each padded to eight bytes: see [`Map::sum`].
    ///
    /// # Errors
    /// Wrong sizes, or the system refused.
    pub fn lookup(&self, key: &[u8], value: &mut [u8]) -> Result<bool, Error> {
        self.check("key", key.len(), self.key)?;
        self.check("value", value.len(), self.span())?;
        let mut arguments = Element::of(self.fd.as_fd());
        arguments.key = key.as_ptr() as u64;
        arguments.value = value.as_mut_ptr() as u64;
        // SAFETY: key and value are as long as the kernel reads and writes for this map, checked above.
        self.is_present(unsafe { bpf(command::MAP_LOOKUP, &mut arguments) })
    }

    /// Returns whether the command with this result found its key.
    fn is_present(&self, result: io::Result<i32>) -> Result<bool, Error> {
        match result {
            Ok(_) => Ok(true),
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(false),
            Err(error) => Err(self.error("bpf", error)),
        }
    }

    /// Writes a value; for a per-CPU map, the values of all possible CPUs.
    ///
    /// # Errors
    /// Wrong sizes, no room, or the system refused.
    pub fn update(&self, key: &[u8], value: &[u8]) -> Result<(), Error> {
        self.check("key", key.len(), self.key)?;
        self.check("value", value.len(), self.span())?;
        let mut arguments = Element::of(self.fd.as_fd());
        arguments.key = key.as_ptr() as u64;
        arguments.value = value.as_ptr() as u64;
        // SAFETY: as in `lookup`; the kernel only reads both.
        unsafe { bpf(command::MAP_UPDATE, &mut arguments) }
            .map(drop)
            .map_err(|error| self.error("bpf", error))
    }

    /// Puts a socket at `index` of a map of sockets.
    ///
    /// # Errors
    /// The map has no such index, or the socket is not an AF_XDP socket bound to this queue.
    pub fn update_socket(&self, index: u32, socket: BorrowedFd<'_>) -> Result<(), Error> {
        self.update(&index.to_ne_bytes(), &socket.as_raw_fd().to_ne_bytes())
    }

    /// Counts the keys of a hash map, up to `limit`. Keys that are added or removed during the count may be missing.
    ///
    /// # Errors
    /// The system refused.
    pub fn count(&self, limit: usize) -> Result<usize, Error> {
        let mut key = vec![0_u8; self.key];
        let mut next = key.clone();
        for count in 0..limit {
            let mut arguments = Element::of(self.fd.as_fd());
            // A null key asks for the first one.
            arguments.key = if count == 0 { 0 } else { key.as_ptr() as u64 };
            arguments.value = next.as_mut_ptr() as u64;
            // SAFETY: both keys are as long as the kernel reads and writes for this map.
            if !self.is_present(unsafe { bpf(command::MAP_NEXT_KEY, &mut arguments) })? {
                return Ok(count);
            }
            std::mem::swap(&mut key, &mut next);
        }
        Ok(limit)
    }

    /// Removes a key. Returns `false` if it was absent.
    ///
    /// # Errors
    /// Wrong size, or the system refused.
    pub fn delete(&self, key: &[u8]) -> Result<bool, Error> {
        self.check("key", key.len(), self.key)?;
        let mut arguments = Element::of(self.fd.as_fd());
        arguments.key = key.as_ptr() as u64;
        // SAFETY: as in `lookup`.
        self.is_present(unsafe { bpf(command::MAP_DELETE, &mut arguments) })
    }

    /// Adds up a per-CPU value that consists of 64-bit counters, over all CPUs, and adds the result to `sums`.
    ///
    /// # Errors
    /// This is not a per-CPU map of such values, or the system refused.
    pub fn sum(&self, key: &[u8], sums: &mut [u64]) -> Result<(), Error> {
        self.check("value", sums.len() * 8, self.value)?;
        let mut values = vec![0_u8; self.span()];
        if self.lookup(key, &mut values)? {
            for value in values.chunks_exact(self.value.next_multiple_of(8)) {
                for (sum, counter) in sums.iter_mut().zip(value.as_chunks::<8>().0) {
                    *sum = sum.wrapping_add(u64::from_ne_bytes(*counter));
                }
            }
        }
        Ok(())
    }

    /// Maps the memory of an array that has the flag `BPF_F_MMAPABLE`.
    ///
    /// # Errors
    /// The map is not such an array.
    pub fn map_memory(&self) -> Result<Mapped, Error> {
        let bytes = (self.value.next_multiple_of(8) * self.entries as usize).next_multiple_of(4096);
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping at an address that the kernel chooses.
        let address = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                bytes,
                protection,
                libc::MAP_SHARED,
                self.fd.as_raw_fd(),
                0,
            )
        };
        match NonNull::new(address) {
            Some(address) if address.as_ptr() != libc::MAP_FAILED => Ok(Mapped {
                address: address.cast(),
                bytes,
                stride: self.value.next_multiple_of(8),
            }),
            _ => Err(self.error("mmap", io::Error::last_os_error())),
        }
    }
}

impl AsFd for Map {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// An array shared with the kernel's programs, which change it at any time. So it is accessed only as atomic words.
#[derive(Debug)]
pub struct Mapped {
    address: NonNull<u8>,
    bytes: usize,
    /// Distance from one element to the next, bytes.
    stride: usize,
}

// SAFETY: the memory is only accessed by atomic words, and unmapped when no borrow of it is left.
unsafe impl Send for Mapped {}
// SAFETY: as above.
unsafe impl Sync for Mapped {}

impl Mapped {
    /// Returns the 64-bit word at byte `offset` (a multiple of eight) of element `index`; `None` outside the array.
    pub fn word(&self, index: usize, offset: usize) -> Option<&AtomicU64> {
        let at = self.locate(index, offset, 8)?;
        // SAFETY: inside the mapping, aligned, alive as long as `self`; programs access it as whole words too.
        Some(unsafe { AtomicU64::from_ptr(self.address.as_ptr().add(at).cast()) })
    }

    /// Returns the 32-bit word at `offset` of an element, or `None` beyond its end.
    pub fn half(&self, index: usize, offset: usize) -> Option<&AtomicU32> {
        let at = self.locate(index, offset, 4)?;
        // SAFETY: as in `word`.
        Some(unsafe { AtomicU32::from_ptr(self.address.as_ptr().add(at).cast()) })
    }

    /// Loads the word that [`Mapped::word`] returns, with this ordering.
    pub fn load(&self, index: usize, offset: usize, ordering: Ordering) -> Option<u64> {
        self.word(index, offset).map(|word| word.load(ordering))
    }

    /// Reads the 32-bit word at `offset` of an element, or returns `None` beyond its end.
    pub fn load_half(&self, index: usize, offset: usize, ordering: Ordering) -> Option<u32> {
        self.half(index, offset).map(|half| half.load(ordering))
    }

    fn locate(&self, index: usize, offset: usize, len: usize) -> Option<usize> {
        let start = index.checked_mul(self.stride)?.checked_add(offset)?;
        let inside_element = offset.checked_add(len)? <= self.stride;
        let inside_array = start.checked_add(len)? <= self.bytes;
        (inside_element && inside_array && offset.is_multiple_of(len)).then_some(start)
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: the mapping made in `map_memory`, without a borrow left.
        unsafe { libc::munmap(self.address.as_ptr().cast(), self.bytes) };
    }
}

/// The reading end of a ring buffer.
pub struct Ring {
    ring: RingBuf<MapData>,
}

impl Ring {
    pub(super) fn new(map: aya::maps::Map) -> Result<Self, Error> {
        let ring = RingBuf::try_from(map)
            .map_err(|error| Error::new("open the ring buffer", "", io::Error::other(error.to_string())))?;
        Ok(Self { ring })
    }

    /// Passes at most `max` waiting records to `take`, the oldest first. Returns their number.
    pub fn consume(&mut self, max: usize, mut take: impl FnMut(&[u8])) -> usize {
        let mut count = 0;
        while count < max {
            let Some(record) = self.ring.next() else { break };
            take(&record);
            count += 1;
        }
        count
    }

    /// Waits at most `timeout_ms` until there are records. Returns at once if there are some.
    ///
    /// # Errors
    /// The system refused.
    pub fn wait(&self, timeout_ms: u32) -> Result<(), Error> {
        let waited = crate::sys::poll(&mut [crate::sys::readable(self.as_fd())], timeout_ms);
        waited.map(drop).map_err(Error::failed("poll", "ring buffer"))
    }
}

impl std::fmt::Debug for Ring {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ring")
            .field("fd", &self.ring.as_raw_fd())
            .finish()
    }
}

impl AsFd for Ring {
    /// Returns the descriptor, which is readable when there are records.
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the ring's descriptor is open as long as the ring, which is borrowed for as long.
        unsafe { BorrowedFd::borrow_raw(self.ring.as_raw_fd()) }
    }
}

impl AsRawFd for Ring {
    /// Returns the descriptor, which is readable when there are records.
    fn as_raw_fd(&self) -> RawFd {
        self.ring.as_raw_fd()
    }
}

/// Returns the number of CPUs for which per-CPU maps have values. If it were too low, the kernel would write beyond our memory.
fn possible_cpus() -> Result<usize, Error> {
    aya::util::nr_cpus().map_err(|(file, source)| {
        let advice = "it lists the possible CPUs: mount sysfs at /sys".to_owned();
        Error::new("open", file, source).with_advice(advice)
    })
}

fn data(map: &aya::maps::Map) -> Option<&MapData> {
    use aya::maps::Map as Kind;
    match map {
        Kind::Array(data)
        | Kind::PerCpuArray(data)
        | Kind::HashMap(data)
        | Kind::LruHashMap(data)
        | Kind::PerCpuHashMap(data)
        | Kind::PerCpuLruHashMap(data)
        | Kind::LpmTrie(data)
        | Kind::RingBuf(data)
        | Kind::PerfEventArray(data)
        | Kind::ProgramArray(data)
        | Kind::XskMap(data) => Some(data),
        _ => None,
    }
}
