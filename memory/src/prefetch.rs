//! Prefetch: a hint, never an access.

/// Asks the processor to bring the cache line of `target`'s first byte into its first-level cache. A hint: no effect on
/// what the program computes, and no instruction at all on processors other than x86-64 and AArch64.
#[inline(always)]
pub fn prefetch<T: ?Sized>(target: &T) {
    let address = core::ptr::from_ref(target).cast::<i8>();
    fetch(address);
}

#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub(crate) fn fetch(address: *const i8) {
    use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
    // SAFETY: PREFETCHT0 reads and writes nothing that the program can see and does not fault on any address; SSE, which
    // it needs, is part of every x86-64 processor.
    unsafe { _mm_prefetch::<_MM_HINT_T0>(address) }
}

#[cfg(target_arch = "aarch64")]
#[inline(always)]
pub(crate) fn fetch(address: *const i8) {
    // SAFETY: PRFM is a hint: it does not fault, and changes neither memory, registers, flags nor the stack.
    unsafe {
        core::arch::asm!("prfm pldl1keep, [{}]", in(reg) address, options(nostack, readonly, preserves_flags))
    }
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
#[inline(always)]
pub(crate) fn fetch(_address: *const i8) {}

/// Prefetches a line that will be written: it is fetched in exclusive state.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub(crate) fn fetch_to_write(address: *const i8) {
    // SAFETY: PREFETCHW is a hint: it does not fault, changes nothing that the program can see, and processors without it
    // treat it as a no-op.
    unsafe {
        core::arch::asm!("prefetchw [{}]", in(reg) address, options(nostack, readonly, preserves_flags))
    }
}

#[cfg(target_arch = "aarch64")]
#[inline(always)]
pub(crate) fn fetch_to_write(address: *const i8) {
    // SAFETY: as for reading.
    unsafe {
        core::arch::asm!("prfm pstl1keep, [{}]", in(reg) address, options(nostack, readonly, preserves_flags))
    }
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
#[inline(always)]
pub(crate) fn fetch_to_write(_address: *const i8) {}

#[cfg(test)]
mod tests {
    use super::prefetch;

    #[test]
    fn prefetching_changes_nothing() {
        let table = vec![7_u64; 1024];
        for line in table.chunks(8) {
            prefetch(line);
        }
        prefetch(&table[..0]);
        assert_eq!(table, vec![7_u64; 1024]);
    }
}
