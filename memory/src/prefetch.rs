//! Cache prefetch hints for x86-64 and AArch64; no-ops on other processors.

/// Prefetches the cache line of `target`'s first byte into the L1 cache. A hint without effect on results.
#[inline(always)]
pub fn prefetch<T: ?Sized>(target: &T) {
    let address = core::ptr::from_ref(target).cast::<i8>();
    fetch(address);
}

#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub(crate) fn fetch(address: *const i8) {
    use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
    // SAFETY: PREFETCHT0 has no architectural effect and does not fault on any address. Every x86-64 processor has SSE,
    // which it needs.
    unsafe { _mm_prefetch::<_MM_HINT_T0>(address) }
}

#[cfg(target_arch = "aarch64")]
#[inline(always)]
pub(crate) fn fetch(address: *const i8) {
    // SAFETY: PRFM is a hint: it does not fault, and changes no memory, registers, flags or stack.
    unsafe {
        core::arch::asm!("prfm pldl1keep, [{}]", in(reg) address, options(nostack, readonly, preserves_flags))
    }
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
#[inline(always)]
pub(crate) fn fetch(_address: *const i8) {}

/// Prefetches a cache line in exclusive state, for a write.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub(crate) fn fetch_to_write(address: *const i8) {
    // SAFETY: PREFETCHW is a hint: it does not fault and has no architectural effect. Processors without it treat it as a
    // no-op.
    unsafe {
        core::arch::asm!("prefetchw [{}]", in(reg) address, options(nostack, readonly, preserves_flags))
    }
}

#[cfg(target_arch = "aarch64")]
#[inline(always)]
pub(crate) fn fetch_to_write(address: *const i8) {
    // SAFETY: as for `fetch`.
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
