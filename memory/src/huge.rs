//! Large pages under large tables: a table of hundreds of megabytes read at random spends most of its time walking page
//! tables when its pages are 4 KiB.

/// Result of the request for large pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HugePageAdvice {
    /// The kernel will use large pages where it can.
    Accepted,
    /// The memory is smaller than one large page, so no request was made.
    TooSmall,
    /// The kernel refused, or the system has no such call: the memory works as before, with small pages.
    Refused,
}

/// The large page of the processors we know, bytes.
const LARGE_PAGE: usize = 2 << 20;

/// Asks for large pages under the whole capacity of `table`, its unused part included. Best called right after
/// `Vec::with_capacity`, before the memory is touched. Contents are not affected.
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
    // SAFETY: MADV_HUGEPAGE keeps the contents of the range, and the range lies inside one live allocation of the
    // caller's vector, which is borrowed for the time of the call.
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
