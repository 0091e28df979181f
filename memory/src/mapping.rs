//! System calls on an existing mapping: populate, sync, statistics and unmap.

use std::io;
use std::ptr::NonNull;

pub(crate) fn populate(base: NonNull<u8>, len: usize) -> io::Result<()> {
    // SAFETY: MADV_POPULATE_WRITE keeps contents; the range is a region's mapping.
    let answer = unsafe { libc::madvise(base.as_ptr().cast(), len, libc::MADV_POPULATE_WRITE) };
    match (answer, io::Error::last_os_error()) {
        (0, _) => Ok(()),
        // The kernel is older than 5.14: the caller touches the pages itself.
        (_, error) if error.kind() == io::ErrorKind::InvalidInput => Err(io::ErrorKind::Unsupported.into()),
        (_, error) => Err(error),
    }
}

pub(crate) fn sync(base: NonNull<u8>, len: usize) -> io::Result<()> {
    // SAFETY: MS_SYNC keeps contents; the range is a region's mapping.
    let answer = unsafe { libc::msync(base.as_ptr().cast(), len, libc::MS_SYNC) };
    if answer == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Returns the bytes of the range on huge pages: sums the fields of `/proc/self/smaps` over the mappings inside it.
pub(crate) fn huge_bytes(base: NonNull<u8>, len: u64) -> io::Result<u64> {
    let start = base.as_ptr() as u64;
    let inside = start..start + len;
    let account = std::fs::read_to_string("/proc/self/smaps")?;
    Ok(sum_huge(&account, &inside))
}

fn sum_huge(account: &str, inside: &std::ops::Range<u64>) -> u64 {
    const HUGE: [&str; 5] = [
        "AnonHugePages",
        "ShmemPmdMapped",
        "FilePmdMapped",
        "Shared_Hugetlb",
        "Private_Hugetlb",
    ];
    let mut counts = false;
    let mut kib = 0;
    for line in account.lines() {
        let Some(first) = line.split_ascii_whitespace().next() else {
            continue;
        };
        if let Some((start, _)) = first.split_once('-') {
            counts = u64::from_str_radix(start, 16).is_ok_and(|start| inside.contains(&start));
        } else if counts && HUGE.iter().any(|name| first.strip_suffix(':') == Some(name)) {
            kib += line
                .split_ascii_whitespace()
                .nth(1)
                .and_then(|text| text.parse().ok())
                .unwrap_or(0_u64);
        }
    }
    kib << 10
}

/// Removes a mapping.
///
/// # Safety
/// The mapping belongs to the caller, and nothing touches it afterwards.
pub(crate) unsafe fn unmap(base: NonNull<u8>, len: usize) {
    // SAFETY: the caller's promise. The call fails only for unaligned ranges, and then has no effect.
    unsafe { libc::munmap(base.as_ptr().cast(), len) };
}
