//! Creates memory regions by `mmap`: anonymous memory, files (also on hugetlbfs) and file descriptors such as BPF arrays.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::ptr::NonNull;

use crate::mapping::unmap;
use crate::region::{Access, Pages, Region};

/// Size of a large page on x86-64 and common AArch64 systems, bytes.
const LARGE_PAGE: usize = 2 << 20;

/// Smallest common page size, bytes. Where pages are larger, the kernel rounds lengths up.
const SMALL_PAGE: usize = 4096;

impl Region {
    /// Creates zeroed private memory, rounded up to whole pages. With `huge`, it uses pages of 2 MiB if enough are reserved
    /// (`vm.nr_hugepages`), otherwise transparent huge pages if the kernel provides them, otherwise small pages.
    /// [`Region::pages`] tells which.
    ///
    /// # Errors
    /// `InvalidInput` if the length is 0 or exceeds the address space; otherwise the kernel's error (out of memory).
    pub fn anonymous(len: u64, huge: bool) -> io::Result<Self> {
        let len = length(len)?;
        let plain = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        if huge {
            let whole = rounded(len, LARGE_PAGE)?;
            if let Ok(base) = map(None, whole, Access::ReadWrite, plain | libc::MAP_HUGETLB) {
                // SAFETY: freshly mapped for reading and writing, and not shared yet.
                return Ok(unsafe { Self::from_mapping(base, whole, Access::ReadWrite, Pages::Huge2M) });
            }
        }
        let whole = rounded(len, SMALL_PAGE)?;
        let base = if huge {
            map_aligned(whole)?
        } else {
            map(None, whole, Access::ReadWrite, plain)?
        };
        let pages = if huge { advise(base, whole) } else { Pages::Small };
        // SAFETY: freshly mapped for reading and writing, and not shared yet.
        Ok(unsafe { Self::from_mapping(base, whole, Access::ReadWrite, pages) })
    }

    /// Creates a file of `len` zero bytes with mode 0640 (minus the umask) and maps it shared, so that other processes can
    /// map it too. The length is rounded up to whole pages, huge ones on hugetlbfs. Memory or disk space is allocated at
    /// once, so that a shortage is an error here and not a SIGBUS later.
    ///
    /// # Errors
    /// `AlreadyExists` if the file exists, which is left alone; `InvalidInput` if the length is 0; otherwise the kernel's
    /// error. A file that could not be completed is removed.
    pub fn create_file(path: &Path, len: u64) -> io::Result<Self> {
        let len = length(len)?;
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .mode(0o640)
            .open(path)?;
        let made = fill(&file, len).and_then(|()| map_file(&file, Access::ReadWrite));
        if made.is_err() {
            // The file is empty and unused; a failure to remove it adds nothing to the first error.
            let _ = std::fs::remove_file(path);
        }
        made
    }

    /// Maps a whole file, shared, for reading and writing.
    ///
    /// # Errors
    /// `InvalidInput` for an empty file; otherwise the kernel's error (not found, permission denied).
    pub fn open_file(path: &Path) -> io::Result<Self> {
        map_file(
            &OpenOptions::new().read(true).write(true).open(path)?,
            Access::ReadWrite,
        )
    }

    /// Maps a whole file, shared and read-only. Writes by others are visible; writes through this region fail.
    ///
    /// # Errors
    /// `InvalidInput` for an empty file; otherwise the kernel's error (not found, permission denied).
    pub fn open_read_only(path: &Path) -> io::Result<Self> {
        map_file(&File::open(path)?, Access::Read)
    }

    /// Maps `len` bytes of a descriptor at `offset`, shared: a BPF array with `BPF_F_MMAPABLE`, or a memfd. The descriptor
    /// may be closed afterwards. `offset` must be a multiple of the page size. `len` is rounded up to whole pages, which
    /// the object must contain.
    ///
    /// # Errors
    /// `InvalidInput` if the length is 0; otherwise the kernel's error.
    pub fn from_fd(fd: BorrowedFd<'_>, offset: u64, len: u64, access: Access) -> io::Result<Self> {
        let len = rounded(length(len)?, SMALL_PAGE)?;
        let base = map(Some((fd, offset)), len, access, libc::MAP_SHARED)?;
        // SAFETY: freshly mapped with this access; others reach the pages only through their own mappings.
        Ok(unsafe { Self::from_mapping(base, len, access, Pages::Small) })
    }
}

fn invalid(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, what)
}

/// Returns the length as a `usize` that pointer arithmetic can span.
fn length(len: u64) -> io::Result<usize> {
    match usize::try_from(len) {
        Ok(0) => Err(invalid("an empty region")),
        Ok(len) if len <= isize::MAX as usize => Ok(len),
        _ => Err(invalid("a region larger than the address space")),
    }
}

fn rounded(len: usize, page: usize) -> io::Result<usize> {
    len.checked_next_multiple_of(page)
        .ok_or_else(|| invalid("a region larger than the address space"))
}

/// Maps memory at an address that the kernel chooses.
fn map(
    from: Option<(BorrowedFd<'_>, u64)>,
    len: usize,
    access: Access,
    flags: i32,
) -> io::Result<NonNull<u8>> {
    let protection = libc::PROT_READ
        | if access == Access::ReadWrite {
            libc::PROT_WRITE
        } else {
            0
        };
    let (fd, offset) = from.map_or((-1, 0), |(fd, offset)| (fd.as_raw_fd(), offset));
    let offset = libc::off_t::try_from(offset).map_err(|_| invalid("an offset beyond any file"))?;
    // SAFETY: the kernel chooses the address, so no existing mapping is replaced; the descriptor is borrowed.
    let base = unsafe { libc::mmap(std::ptr::null_mut(), len, protection, flags, fd, offset) };
    if base == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    NonNull::new(base.cast()).ok_or_else(|| io::Error::other("mapped at address 0"))
}

/// Maps anonymous memory that starts at a large page boundary, so that large pages fit from the first byte. Maps too much,
/// and unmaps the ends.
fn map_aligned(len: usize) -> io::Result<NonNull<u8>> {
    let more = len
        .checked_add(LARGE_PAGE)
        .ok_or_else(|| invalid("a region larger than the address space"))?;
    let base = map(
        None,
        more,
        Access::ReadWrite,
        libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
    )?;
    let before = base.as_ptr().align_offset(LARGE_PAGE);
    let start = base.as_ptr().wrapping_add(before);
    let after = more - before - len;
    // SAFETY: both parts were just mapped and lie outside the part that remains. All are whole small pages.
    unsafe {
        if before > 0 {
            unmap(base, before);
        }
        if let (true, Some(end)) = (after > 0, NonNull::new(start.wrapping_add(len))) {
            unmap(end, after);
        }
    }
    NonNull::new(start).ok_or_else(|| io::Error::other("mapped at address 0"))
}

/// Sets the length of a new file and allocates its space.
fn fill(file: &File, len: usize) -> io::Result<()> {
    let len = rounded(len, block(file)?)?;
    file.set_len(len as u64)?;
    let bytes = libc::off_t::try_from(len).map_err(|_| invalid("longer than any file"))?;
    // SAFETY: the descriptor is open, and the call touches no memory of this process.
    match unsafe { libc::posix_fallocate(file.as_raw_fd(), 0, bytes) } {
        0 => Ok(()),
        // The file system does not support the call. Mapping works, but a shortage of space raises SIGBUS later.
        libc::EOPNOTSUPP | libc::EINVAL => Ok(()),
        error => Err(io::Error::from_raw_os_error(error)),
    }
}

fn map_file(file: &File, access: Access) -> io::Result<Region> {
    let len = length(file.metadata()?.len())?;
    let block = block(file)?;
    let base = map(Some((file.as_fd(), 0)), len, access, libc::MAP_SHARED)?;
    let pages = if block >= LARGE_PAGE {
        Pages::Huge2M
    } else {
        advise(base, len)
    };
    // SAFETY: freshly mapped with this access; others reach the pages only through their own mappings.
    Ok(unsafe { Region::from_mapping(base, len, access, pages) })
}

/// Returns the allocation unit of a file's memory, bytes: the page size of a hugetlbfs mount, or the small page.
fn block(file: &File) -> io::Result<usize> {
    let mut stat = std::mem::MaybeUninit::<libc::statfs>::uninit();
    // SAFETY: the descriptor is open, and the target is as large as the call writes.
    if unsafe { libc::fstatfs(file.as_raw_fd(), stat.as_mut_ptr()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call succeeded, so it filled the target.
    let stat = unsafe { stat.assume_init() };
    let huge = stat.f_type == libc::HUGETLBFS_MAGIC;
    Ok(if huge {
        usize::try_from(stat.f_bsize).unwrap_or(LARGE_PAGE)
    } else {
        SMALL_PAGE
    })
}

/// Requests transparent huge pages.
fn advise(base: NonNull<u8>, len: usize) -> Pages {
    // SAFETY: MADV_HUGEPAGE keeps the contents of the range, which was just mapped.
    let answer = unsafe { libc::madvise(base.as_ptr().cast(), len, libc::MADV_HUGEPAGE) };
    if answer == 0 && len >= LARGE_PAGE {
        Pages::Transparent
    } else {
        Pages::Small
    }
}
