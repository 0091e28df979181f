//! Regions: memory that other writers change at any time.
//!
//! A region is a mapping that another process, the kernel or a NIC may write while this process reads it. So there are no
//! references into it: bytes are copied in and out, every offset is checked, and a reader must be able to detect from the bytes
//! whether they belong together. This crate does not interpret the bytes.
//!
//! # Guarantees of a copy
//!
//! Copies are made of volatile accesses of at most 8 bytes, in ascending order. An access of 8 bytes at an offset that is a
//! multiple of 8 (of 4 bytes at a multiple of 4) is atomic; a reader may see a part of a longer copy.
//! [`Region::write_head_last`] orders its stores so that a reader notices.
//!
//! # Why this is sound
//!
//! The mapping is never a Rust allocation and no reference into it exists, so that a change from outside violates no assumption of
//! the compiler; it neither invents nor omits volatile and atomic accesses. Two threads that access the same bytes race as they
//! would in a device's memory: each access sees some value, old or new.
//!
//! One case cannot be checked: another process may truncate a *file* under the mapping. An access to the removed part raises
//! SIGBUS. Keep region files where only trusted users can write.

use std::io;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

use crate::copy::{WORD, equal, load, store};

/// Nothing was done: not all bytes are inside the region, a write to a read-only region was requested, or the offset
/// of an atomic access is not a multiple of its size.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OutOfRange;

impl std::fmt::Display for OutOfRange {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("outside of the region (or read only, or not aligned)")
    }
}

impl std::error::Error for OutOfRange {}

/// The kind of pages of a region.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pages {
    /// Pages of 2 MiB (or larger, on such a hugetlbfs mount), all of them, reserved for this region.
    Huge2M,
    /// The kernel was asked for large pages where it can and did not refuse; [`Region::huge_bytes`] reports the result.
    Transparent,
    /// The processor's small pages, 4 KiB.
    Small,
}

/// Permitted access to a region.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// Reading only; every write is [`OutOfRange`].
    Read,
    /// Both reading and writing.
    ReadWrite,
}

/// A mapping, shared by `Arc`: see the module's text. Unmapped when dropped.
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
    /// `len`, or 0 when read only: one comparison for both refusals.
    writable: u64,
    pages: Pages,
}

// SAFETY: the mapping belongs to no thread, lives until drop, and is touched by volatile and atomic accesses only.
unsafe impl Send for Region {}
// SAFETY: as above; every method accepts whatever the bytes are at that time.
unsafe impl Sync for Region {}

impl Region {
    /// Returns a region over a mapping of `len` bytes that starts at `base`.
    ///
    /// # Safety
    /// `base..base + len` is mapped readable (and writable, with [`Access::ReadWrite`]), by `mmap` and aligned to a page,
    /// belongs to the region (which unmaps it on drop), and no reference into it exists or will.
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

    /// Always false: no region is empty.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the pages under it.
    pub fn pages(&self) -> Pages {
        self.pages
    }

    /// Returns whether the region can be written.
    pub fn is_writable(&self) -> bool {
        self.writable != 0
    }

    /// Returns the address of the mapping, for registering it with a device. Access the memory through the methods only.
    pub fn as_ptr(&self) -> *mut u8 {
        self.base.as_ptr()
    }

    /// Copies `bytes` to `at`, in ascending order.
    ///
    /// # Errors
    /// [`OutOfRange`]; nothing was written then.
    #[inline]
    pub fn write(&self, at: u64, bytes: &[u8]) -> Result<(), OutOfRange> {
        let target = self.resolve(at, bytes.len(), self.writable)?;
        // SAFETY: `resolve` found the whole target inside the writable mapping.
        unsafe { store(target, bytes) };
        Ok(())
    }

    /// Copies `bytes` to `at` such that the first 8 bytes are zero until the rest is complete: stores zero there, then the rest,
    /// then the first 8 bytes. A reader that finds the same non-zero first 8 bytes before and after copying the rest has the bytes
    /// of one write (or of two with equal first bytes). Exactly 8 bytes are one word and stored atomically; so are 5 to 7 (a
    /// checksum of 4 bytes with 1 to 3 of data) at a multiple of 8: the other bytes of the word are stored again unchanged, so
    /// there must be no concurrent writer to them. Other short data is written as by [`Region::write`].
    ///
    /// # Errors
    /// [`OutOfRange`], also when `at` is no multiple of 8 and there are more than 8 bytes; nothing was written then.
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
        // SAFETY: `resolve` found the whole target inside the writable mapping, the base is aligned to a page and `at` to 8.
        let word = unsafe { AtomicU64::from_ptr(target.cast()) };
        word.store(0, Ordering::Relaxed);
        // Pairs with the acquire fence of a reader between its copy of the rest and its second look at the word.
        fence(Ordering::Release);
        // SAFETY: as above; `rest` ends where `bytes` ends.
        unsafe { store(target.add(WORD), rest) };
        // Pairs with the reader's first look at the word, an acquire load.
        word.store(u64::from_ne_bytes(*head), Ordering::Release);
        Ok(())
    }

    /// Fewer than 8 bytes as one word, if they begin one and are more than half of it.
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

    /// Returns the first piece of data that is written in several: as [`Region::write_head_last`] without its last step. The first 8
    /// bytes are zero afterwards; when all pieces are written, store them with [`Region::store_u64`] as a native word.
    ///
    /// # Errors
    /// [`OutOfRange`], also when `at` is no multiple of 8; nothing was written then.
    pub fn write_headless(&self, at: u64, rest: &[u8]) -> Result<(), OutOfRange> {
        let word = self.aligned(at, WORD, self.writable)?;
        // The rest may be empty; it follows the word.
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

    /// Copies the bytes at `at` to `out`, in ascending order.
    ///
    /// # Errors
    /// [`OutOfRange`]; `out` is untouched then.
    #[inline]
    pub fn read(&self, at: u64, out: &mut [u8]) -> Result<(), OutOfRange> {
        let source = self.resolve(at, out.len(), self.len)?;
        // SAFETY: `resolve` found the whole source inside the mapping.
        unsafe { load(source, out) };
        Ok(())
    }

    /// Copies the bytes at `at` to `out` and computes the CRC-32C of the first `covered` of them in the same pass (initial value and
    /// final XOR all ones); `None` on a processor without an instruction for it.
    ///
    /// # Errors
    /// [`OutOfRange`]; `out` is untouched then.
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

    /// Returns whether the bytes at `at` are `bytes` now; `false` also out of range.
    #[inline]
    pub fn is(&self, at: u64, bytes: &[u8]) -> bool {
        let Ok(source) = self.resolve(at, bytes.len(), self.len) else {
            return false;
        };
        // SAFETY: `resolve` found the whole source inside the mapping.
        unsafe { equal(source, bytes) }
    }

    /// Adds to the native u64 at `at`, modulo 2^64, as one atomic step; returns the value before.
    ///
    /// # Errors
    /// [`OutOfRange`], also when `at` is no multiple of 8.
    #[inline]
    pub fn fetch_add(&self, at: u64, delta: u64) -> Result<u64, OutOfRange> {
        let target = self.aligned(at, WORD, self.writable)?;
        // SAFETY: eight aligned bytes inside the writable mapping. A counter needs no order with other memory.
        Ok(unsafe { AtomicU64::from_ptr(target.cast()) }.fetch_add(delta, Ordering::Relaxed))
    }

    /// Returns the native u64 at `at`. Later loads return no older values (acquire).
    ///
    /// # Errors
    /// [`OutOfRange`], also when `at` is no multiple of 8.
    #[inline]
    pub fn load_u64(&self, at: u64) -> Result<u64, OutOfRange> {
        let source = self.aligned(at, WORD, self.len)?;
        // SAFETY: eight aligned bytes inside the mapping; an atomic load of this size works on read-only memory.
        Ok(unsafe { AtomicU64::from_ptr(source.cast()) }.load(Ordering::Acquire))
    }

    /// Returns the native u32 at `at`. Later loads return no older values (acquire).
    ///
    /// # Errors
    /// [`OutOfRange`], also when `at` is no multiple of 4.
    #[inline]
    pub fn load_u32(&self, at: u64) -> Result<u32, OutOfRange> {
        let source = self.aligned(at, 4, self.len)?;
        // SAFETY: four aligned bytes inside the mapping; an atomic load of this size works on read-only memory.
        Ok(unsafe { AtomicU32::from_ptr(source.cast()) }.load(Ordering::Acquire))
    }

    /// Stores a native u64 at `at`; earlier stores become visible before it (release).
    ///
    /// # Errors
    /// [`OutOfRange`], also when `at` is no multiple of 8.
    #[inline]
    pub fn store_u64(&self, at: u64, value: u64) -> Result<(), OutOfRange> {
        let target = self.aligned(at, WORD, self.writable)?;
        // SAFETY: eight aligned bytes inside the writable mapping.
        unsafe { AtomicU64::from_ptr(target.cast()) }.store(value, Ordering::Release);
        Ok(())
    }

    /// Stores a native u32 at `at`; earlier stores become visible before it (release).
    ///
    /// # Errors
    /// [`OutOfRange`], also when `at` is no multiple of 4.
    #[inline]
    pub fn store_u32(&self, at: u64, value: u32) -> Result<(), OutOfRange> {
        let target = self.aligned(at, 4, self.writable)?;
        // SAFETY: four aligned bytes inside the writable mapping.
        unsafe { AtomicU32::from_ptr(target.cast()) }.store(value, Ordering::Release);
        Ok(())
    }

    /// Asks for the cache line at `at`, to read it. A hint; nothing happens out of range.
    #[inline]
    pub fn prefetch(&self, at: u64) {
        if at < self.len {
            crate::prefetch::fetch(self.base.as_ptr().wrapping_add(at as usize).cast());
        }
    }

    /// Asks for the cache line at `at`, to write it. A hint; nothing happens out of range.
    #[inline]
    pub fn prefetch_write(&self, at: u64) {
        if at < self.writable {
            crate::prefetch::fetch_to_write(self.base.as_ptr().wrapping_add(at as usize).cast());
        }
    }

    /// Makes a range zero, in ascending order.
    ///
    /// # Errors
    /// [`OutOfRange`]; nothing was written then.
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

    /// Touches every page for writing without changing it, so that the first real write causes no page faults. Takes
    /// seconds for gigabytes.
    ///
    /// # Errors
    /// The error of the kernel: no memory, most likely. Nothing is done to a read-only region.
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

    /// Writes changes to the file under the region, if there is one, and waits for it.
    ///
    /// # Errors
    /// The error of the kernel.
    pub fn sync(&self) -> io::Result<()> {
        crate::mapping::sync(self.base, self.len as usize)
    }

    /// Bytes of the region on large pages now. Pages that were never touched are not counted.
    ///
    /// # Errors
    /// The kernel's account of this process's memory cannot be read.
    pub fn huge_bytes(&self) -> io::Result<u64> {
        crate::mapping::huge_bytes(self.base, self.len)
    }

    /// Returns the address of `at..at + len`, if that lies in the first `limit` bytes.
    #[inline(always)]
    fn resolve(&self, at: u64, len: usize, limit: u64) -> Result<*mut u8, OutOfRange> {
        match at.checked_add(len as u64) {
            // `at` fits a usize: it is at most `limit`, which is at most the mapping's length.
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
        // SAFETY: the mapping is the region's own (`from_mapping`) and nothing refers into it any more.
        unsafe { crate::mapping::unmap(self.base, self.len as usize) };
    }
}
