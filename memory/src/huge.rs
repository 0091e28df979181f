//! Transparent huge pages for large tables. With 4 KiB pages, random reads of a table of hundreds of megabytes spend most
//! of their time in TLB misses.

/// Size of a large page on x86-64 and common AArch64 systems, bytes.
const LARGE_PAGE: usize = 2 << 20;

/// Result of a request for huge pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HugePageAdvice {
    /// The kernel will use huge pages where it can.
    Accepted,
    /// The memory is smaller than one huge page, so nothing was requested.
    TooSmall,
    /// The kernel refused or lacks the call; the memory works with small pages.
    Refused,
}

/// Requests huge pages for the whole capacity of `table`. Works best right after `Vec::with_capacity`, before the memory is
/// touched. Contents are not affected.
pub fn advise_huge<T>(table: &Vec<T>) -> HugePageAdvice {
    let start = table.as_ptr() as usize;
    let end = start + table.capacity() * size_of::<T>();
    let first = start.next_multiple_of(LARGE_PAGE);
    let last = end - end % LARGE_PAGE;
    if size_of::<T>() == 0 || first >= last {
        return HugePageAdvice::TooSmall;
    }
    advise(first, last - first)
}

#[cfg(target_os = "linux")]
fn advise(start: usize, length: usize) -> HugePageAdvice {
    // SAFETY: MADV_HUGEPAGE keeps the contents of the range, and the range lies inside the live allocation of the caller's
    // vector, which is borrowed during the call.
    let answer = unsafe { libc::madvise(start as *mut libc::c_void, length, libc::MADV_HUGEPAGE) };
    if answer == 0 {
        HugePageAdvice::Accepted
    } else {
        HugePageAdvice::Refused
    }
}

#[cfg(not(target_os = "linux"))]
fn advise(_start: usize, _length: usize) -> HugePageAdvice {
    HugePageAdvice::Refused
}

#[cfg(test)]
mod tests {
    use super::{HugePageAdvice, LARGE_PAGE, advise_huge};

    #[test]
    fn a_small_table_is_left_alone() {
        assert_eq!(advise_huge(&vec![0_u8; 4096]), HugePageAdvice::TooSmall);
        assert_eq!(advise_huge(&Vec::<u64>::new()), HugePageAdvice::TooSmall);
        assert_eq!(advise_huge(&vec![(); 10]), HugePageAdvice::TooSmall);
    }

    #[test]
    fn a_large_table_keeps_its_contents() {
        let mut table: Vec<u64> = Vec::with_capacity(4 * LARGE_PAGE / 8);
        table.push(42);
        let advice = advise_huge(&table);
        assert_ne!(advice, HugePageAdvice::TooSmall);
        table.resize(4 * LARGE_PAGE / 8, 7);
        assert_eq!((table[0], table[1], *table.last().unwrap()), (42, 7, 7));
    }
}
