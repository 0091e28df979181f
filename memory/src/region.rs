//! Memory regions that other writers change at any time: another process, the kernel, or a NIC by RDMA.
//!
//! There are no references into a region. Bytes are copied in and out, every offset is checked, and the data itself
//! (checksums, sequence numbers) must tell a reader whether a copy is consistent. This crate does not interpret it.
//!
//! # Guarantees of a copy
//!
//! A copy consists of volatile accesses of at most 8 bytes, in ascending order. An access of 8 bytes at an offset that is a
//! multiple of 8 (or of 4 bytes at a multiple of 4) is atomic; of a longer copy, a reader may see a part.
//! [`Region::write_head_last`] orders its stores so that a reader can detect that.
//!
//! # Why this is sound
//!
//! The mapping is never a Rust allocation, and no reference into it exists, so a change from outside violates no compiler
//! assumption. The compiler neither invents nor omits volatile and atomic accesses. Two threads that access the same bytes
//! race as they would on device memory: each access sees some value, old or new.
//!
//! One case cannot be checked: another process may truncate a *file* under the mapping. An access to the removed part raises
//! SIGBUS. Keep region files where only trusted users can write.

use std::io;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

use crate::copy::{WORD, equal, load, store};

/// The access had no effect: some bytes are outside the region, the region is read-only, or the offset of an atomic access
/// is not a multiple of its size.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OutOfRange;

impl std::fmt::Display for OutOfRange {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("outside of the region (or read only, or not aligned)")
    }
}

impl std::error::Error for OutOfRange {}

/// The kind of pages behind a region.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pages {
    /// Reserved pages of 2 MiB (or larger, if the hugetlbfs mount has them) for the whole region.
    Huge2M,
    /// Transparent huge pages were requested and not refused; [`Region::huge_bytes`] tells how many there are.
    Transparent,
    /// Small pages of the processor, usually 4 KiB.
    Small,
}

/// Permitted access to a region.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// Reading only; every write returns [`OutOfRange`].
    Read,
    /// Both reading and writing.
    ReadWrite,
}

/// A mapping, usually shared by `Arc`. Dropping it unmaps the memory.
///
/// ```
/// use memory::{OutOfRange, Region};
///
/// let region = Region::anonymous(8192, false)?;
/// // A slot whose first 8 bytes appear last, so that a reader notices a slot that is half written.
/// region.write_head_last(4096, b"checksum and the data")?;
/// assert!(region.is(4096, b"checksum and the data"));
///
/// // A counter that several threads or processes may add to.
/// assert_eq!(region.fetch_add(0, 5), Ok(0));
/// assert_eq!(region.load_u64(0), Ok(5));
///
/// assert_eq!(region.write(8190, b"four"), Err(OutOfRange));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Region {
    base: NonNull<u8>,
    len: u64,
    /// `len`, or 0 if read-only, so that one comparison covers both errors.
    writable: u64,
    pages: Pages,
}

// SAFETY: the mapping is not bound to a thread, lives until drop, and is only touched by volatile and atomic accesses.
unsafe impl Send for Region {}
// SAFETY: as above; every method copes with any contents.
unsafe impl Sync for Region {}

impl Region {
    /// Creates a region from a mapping of `len` bytes at `base`.
    ///
    /// # Safety
    /// `base..base + len` is a page-aligned mapping that is readable (and writable, with [`Access::ReadWrite`]). The region
    /// owns it and unmaps it on drop, and no reference into it exists or will exist.
    pub(crate) unsafe fn from_mapping(base: NonNull<u8>, len: usize, access: Access, pages: Pages) -> Self {
        let len = len as u64;
        let writable = if access == Access::ReadWrite { len } else { 0 };
        Self {
            base,
            len,
            writable,
            pages,
        }
    }

    /// Returns the length in bytes.
    #[inline]
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Returns `false`: a region is never empty.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the kind of pages behind the region.
    pub fn pages(&self) -> Pages {
        self.pages
    }

    /// Returns whether the region can be written.
    pub fn is_writable(&self) -> bool {
        self.writable != 0
    }

    /// Returns the address of the mapping, to register it with a device. Access the memory only through the methods.
    pub fn as_ptr(&self) -> *mut u8 {
        self.base.as_ptr()
    }

    /// Copies `bytes` to offset `at`, in ascending order.
    ///
    /// # Errors
    /// [`OutOfRange`]; nothing was written.
    #[inline]
    pub fn write(&self, at: u64, bytes: &[u8]) -> Result<(), OutOfRange> {
        let target = self.resolve(at, bytes.len(), self.writable)?;
        // SAFETY: `resolve` found the whole target inside the writable mapping.
        unsafe { store(target, bytes) };
        Ok(())
    }

    /// Copies `bytes` to offset `at` so that the first 8 bytes (the head) are zero while the rest is written: stores zero,
    /// then the rest, then the head. A reader that finds the same non-zero head before and after copying the rest has a
    /// consistent copy (or one of two writes with equal heads).
    ///
    /// Exactly 8 bytes are one atomic store. So are 5 to 7 bytes at a multiple of 8; the other bytes of that word are
    /// stored unchanged, so they must have no concurrent writer. Shorter data is written as by [`Region::write`].
    ///
    /// # Errors
    /// [`OutOfRange`], also if there are more than 8 bytes and `at` is not a multiple of 8; nothing was written.
    #[inline]
    pub fn write_head_last(&self, at: u64, bytes: &[u8]) -> Result<(), OutOfRange> {
        let Some((head, rest)) = bytes.split_first_chunk::<WORD>() else {
            return self.write_short(at, bytes);
        };
        if rest.is_empty() {
            return self.write(at, bytes);
        }
        let target = self.resolve(at, bytes.len(), self.writable)?;
        if !at.is_multiple_of(WORD as u64) {
            return Err(OutOfRange);
        }
        // SAFETY: `resolve` found the target inside the writable mapping; the base is page-aligned and `at` is a multiple
        // of 8.
        let word = unsafe { AtomicU64::from_ptr(target.cast()) };
        word.store(0, Ordering::Relaxed);
        // Pairs with a reader's acquire fence between its copy of the rest and its second load of the head.
        fence(Ordering::Release);
        // SAFETY: as above; `rest` ends where `bytes` ends.
        unsafe { store(target.add(WORD), rest) };
        // Pairs with a reader's first load of the head, an acquire load.
        word.store(u64::from_ne_bytes(*head), Ordering::Release);
        Ok(())
    }

    /// Writes fewer than 8 bytes as one word, if they start a word and fill more than half of it.
    #[inline]
    fn write_short(&self, at: u64, bytes: &[u8]) -> Result<(), OutOfRange> {
        let target = match self.aligned(at, WORD, self.writable) {
            Ok(target) if bytes.len() > WORD / 2 && bytes.len() < WORD => target,
            _ => return self.write(at, bytes),
        };
        // SAFETY: eight aligned bytes inside the writable mapping.
        let word = unsafe { AtomicU64::from_ptr(target.cast()) };
        let mut whole = word.load(Ordering::Relaxed).to_ne_bytes();
        whole[..bytes.len()].copy_from_slice(bytes);
        word.store(u64::from_ne_bytes(whole), Ordering::Relaxed);
        Ok(())
    }

    /// Writes the first part of data that arrives in several parts: zeroes the 8-byte head at `at` and writes `rest` behind
    /// it. The caller completes the data by storing the head with [`Region::store_u64`].
    ///
    /// # Errors
    /// [`OutOfRange`], also if `at` is not a multiple of 8; nothing was written.
    pub fn write_headless(&self, at: u64, rest: &[u8]) -> Result<(), OutOfRange> {
        let word = self.aligned(at, WORD, self.writable)?;
        // The rest may be empty; it follows the head.
        let target = self.resolve(
            at.checked_add(WORD as u64).ok_or(OutOfRange)?,
            rest.len(),
            self.writable,
        )?;
        // SAFETY: eight aligned bytes inside the writable mapping.
        unsafe { AtomicU64::from_ptr(word.cast()) }.store(0, Ordering::Relaxed);
        // As in `write_head_last`.
        fence(Ordering::Release);
        // SAFETY: `resolve` found the whole target inside the writable mapping.
        unsafe { store(target, rest) };
        Ok(())
    }

    /// Copies the bytes at offset `at` to `out`, in ascending order.
    ///
    /// # Errors
    /// [`OutOfRange`]; `out` is unchanged.
    #[inline]
    pub fn read(&self, at: u64, out: &mut [u8]) -> Result<(), OutOfRange> {
        let source = self.resolve(at, out.len(), self.len)?;
        // SAFETY: `resolve` found the source inside the mapping.
        unsafe { load(source, out) };
        Ok(())
    }

    /// Copies the bytes at offset `at` to `out` and computes the CRC-32C of the first `covered` of them in the same pass
    /// (initial value and final XOR all ones). The CRC is `None` on a CPU without a CRC instruction.
    ///
    /// # Errors
    /// [`OutOfRange`]; `out` is unchanged.
    #[inline]
    pub fn read_with_crc_32c(
        &self,
        at: u64,
        out: &mut [u8],
        covered: usize,
    ) -> Result<Option<u32>, OutOfRange> {
        let source = self.resolve(at, out.len(), self.len)?;
        // SAFETY: `resolve` found the whole source inside the mapping.
        Ok(unsafe { crate::crc::load_with_crc(source, out, covered.min(out.len())) })
    }

    /// Returns whether the bytes at offset `at` currently equal `bytes`; `false` if out of range.
    #[inline]
    pub fn is(&self, at: u64, bytes: &[u8]) -> bool {
        let Ok(source) = self.resolve(at, bytes.len(), self.len) else {
            return false;
        };
        // SAFETY: `resolve` found the whole source inside the mapping.
        unsafe { equal(source, bytes) }
    }

    /// Atomically adds to the native-endian `u64` at offset `at`, modulo 2^64, and returns the value before.
    ///
    /// # Errors
    /// [`OutOfRange`], also if `at` is not a multiple of 8.
    #[inline]
    pub fn fetch_add(&self, at: u64, delta: u64) -> Result<u64, OutOfRange> {
        let target = self.aligned(at, WORD, self.writable)?;
        // SAFETY: eight aligned bytes inside the writable mapping. Relaxed, because a counter needs no order with other
        // memory.
        Ok(unsafe { AtomicU64::from_ptr(target.cast()) }.fetch_add(delta, Ordering::Relaxed))
    }

    /// Loads the native-endian `u64` at offset `at` (acquire: later loads return no older values).
    ///
    /// # Errors
    /// [`OutOfRange`], also if `at` is not a multiple of 8.
    #[inline]
    pub fn load_u64(&self, at: u64) -> Result<u64, OutOfRange> {
        let source = self.aligned(at, WORD, self.len)?;
        // SAFETY: eight aligned bytes inside the mapping; an atomic load of this size works on read-only memory.
        Ok(unsafe { AtomicU64::from_ptr(source.cast()) }.load(Ordering::Acquire))
    }

    /// Loads the native-endian `u32` at offset `at` (acquire: later loads return no older values).
    ///
    /// # Errors
    /// [`OutOfRange`], also if `at` is not a multiple of 4.
    #[inline]
    pub fn load_u32(&self, at: u64) -> Result<u32, OutOfRange> {
        let source = self.aligned(at, 4, self.len)?;
        // SAFETY: four aligned bytes inside the mapping; an atomic load of this size works on read-only memory.
        Ok(unsafe { AtomicU32::from_ptr(source.cast()) }.load(Ordering::Acquire))
    }

    /// Stores a native-endian `u64` at offset `at` (release: earlier stores become visible first).
    ///
    /// # Errors
    /// [`OutOfRange`], also if `at` is not a multiple of 8.
    #[inline]
    pub fn store_u64(&self, at: u64, value: u64) -> Result<(), OutOfRange> {
        let target = self.aligned(at, WORD, self.writable)?;
        // SAFETY: eight aligned bytes inside the writable mapping.
        unsafe { AtomicU64::from_ptr(target.cast()) }.store(value, Ordering::Release);
        Ok(())
    }

    /// Stores a native-endian `u32` at offset `at` (release: earlier stores become visible first).
    ///
    /// # Errors
    /// [`OutOfRange`], also if `at` is not a multiple of 4.
    #[inline]
    pub fn store_u32(&self, at: u64, value: u32) -> Result<(), OutOfRange> {
        let target = self.aligned(at, 4, self.writable)?;
        // SAFETY: four aligned bytes inside the writable mapping.
        unsafe { AtomicU32::from_ptr(target.cast()) }.store(value, Ordering::Release);
        Ok(())
    }

    /// Prefetches the cache line at offset `at` for reading. Does nothing if out of range.
    #[inline]
    pub fn prefetch(&self, at: u64) {
        if at < self.len {
            crate::prefetch::fetch(self.base.as_ptr().wrapping_add(at as usize).cast());
        }
    }

    /// Prefetches the cache line at offset `at` for writing. Does nothing if out of range.
    #[inline]
    pub fn prefetch_write(&self, at: u64) {
        if at < self.writable {
            crate::prefetch::fetch_to_write(self.base.as_ptr().wrapping_add(at as usize).cast());
        }
    }

    /// Zeroes a range, in ascending order.
    ///
    /// # Errors
    /// [`OutOfRange`]; nothing was written.
    pub fn zero(&self, range: Range<u64>) -> Result<(), OutOfRange> {
        const ZEROS: [u8; 4096] = [0; 4096];
        let len = range.end.checked_sub(range.start).ok_or(OutOfRange)?;
        self.resolve(
            range.start,
            usize::try_from(len).map_err(|_| OutOfRange)?,
            self.writable,
        )?;
        for at in range.clone().step_by(ZEROS.len()) {
            let count = (range.end - at).min(ZEROS.len() as u64) as usize;
            self.write(at, &ZEROS[..count])?;
        }
        Ok(())
    }

    /// Touches every page for writing without changing it, so that later writes cause no page faults. Takes seconds for
    /// gigabytes. Does nothing on a read-only region.
    ///
    /// # Errors
    /// The kernel's error, usually out of memory.
    pub fn populate(&self) -> io::Result<()> {
        if !self.is_writable() {
            return Ok(());
        }
        match crate::mapping::populate(self.base, self.len as usize) {
            Err(error) if error.kind() == io::ErrorKind::Unsupported => {
                let mut pages = (0..self.len).step_by(4096);
                pages
                    .try_for_each(|at| self.fetch_add(at, 0).map(drop))
                    .map_err(io::Error::other)
            }
            answer => answer,
        }
    }

    /// Flushes changes to the underlying file, if any, and waits for completion (`msync`).
    ///
    /// # Errors
    /// The kernel's error.
    pub fn sync(&self) -> io::Result<()> {
        crate::mapping::sync(self.base, self.len as usize)
    }

    /// Returns how many bytes of the region are on huge pages now. Untouched pages are not counted.
    ///
    /// # Errors
    /// `/proc/self/smaps` cannot be read.
    pub fn huge_bytes(&self) -> io::Result<u64> {
        crate::mapping::huge_bytes(self.base, self.len)
    }

    /// Returns the address of `at..at + len` if the range lies within the first `limit` bytes.
    #[inline(always)]
    fn resolve(&self, at: u64, len: usize, limit: u64) -> Result<*mut u8, OutOfRange> {
        match at.checked_add(len as u64) {
            // `at` fits a `usize`, because it is at most the mapping's length.
            Some(end) if end <= limit => Ok(self.base.as_ptr().wrapping_add(at as usize)),
            _ => Err(OutOfRange),
        }
    }

    #[inline(always)]
    fn aligned(&self, at: u64, size: usize, limit: u64) -> Result<*mut u8, OutOfRange> {
        if !at.is_multiple_of(size as u64) {
            return Err(OutOfRange);
        }
        self.resolve(at, size, limit)
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: the region owns the mapping (`from_mapping`), and nothing refers to it any more.
        unsafe { crate::mapping::unmap(self.base, self.len as usize) };
    }
}
