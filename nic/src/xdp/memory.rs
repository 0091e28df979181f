//! The UMEM: the memory of AF_XDP frames, shared with the kernel.

use std::io;

use crate::error::Error;
use crate::sys::Mapping;

/// Size of a huge page on x86-64 and arm64, bytes.
const HUGE: usize = 2 << 20;

/// Kind of the memory's pages. Larger pages cause fewer TLB misses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pages {
    /// Pages from the pool that the administrator reserved (`vm.nr_hugepages`).
    Huge,
    /// Transparent huge pages were requested; the kernel uses them where possible.
    Transparent,
    /// Ordinary pages of 4 KiB.
    Small,
}

/// The frames, contiguous in one mapping.
#[derive(Debug)]
pub(super) struct Umem {
    mapping: Mapping,
    /// Offset of the frames in the mapping, and their total size, bytes.
    start: usize,
    len: usize,
    frame_size: usize,
    pages: Pages,
}

impl Umem {
    pub(super) fn allocate(frame_size: usize, frames: usize, huge: bool) -> Result<Self, Error> {
        let len = (frame_size * frames).next_multiple_of(4096);
        if huge
            && let Ok(mapping) =
                Mapping::anonymous(len.next_multiple_of(HUGE), libc::MAP_HUGETLB | libc::MAP_POPULATE)
        {
            return Ok(Self {
                mapping,
                start: 0,
                len,
                frame_size,
                pages: Pages::Huge,
            });
        }
        // Space to align the start to a huge page.
        let mapping = Mapping::anonymous(len + HUGE, 0).map_err(|source| {
            let mib = len >> 20;
            let advice = format!("there is no memory for {frames} frames ({mib} MiB): configure fewer");
            Error::new("mmap", "AF_XDP frames", source).with_advice(advice)
        })?;
        let start = mapping.start().as_ptr().align_offset(HUGE).min(HUGE);
        let advised = huge && mapping.advise(libc::MADV_HUGEPAGE).is_ok();
        let pages = if advised { Pages::Transparent } else { Pages::Small };
        Ok(Self {
            mapping,
            start,
            len,
            frame_size,
            pages,
        })
    }

    pub(super) fn pages(&self) -> Pages {
        self.pages
    }

    pub(super) fn frame_size(&self) -> usize {
        self.frame_size
    }

    /// Returns the parameters that register the UMEM with the kernel.
    pub(super) fn registration(&self) -> libc::xdp_umem_reg {
        libc::xdp_umem_reg {
            addr: self.mapping.start().as_ptr() as u64 + self.start as u64,
            len: self.len as u64,
            chunk_size: self.frame_size as u32,
            headroom: 0,
            flags: 0,
            tx_metadata_len: 0,
        }
    }

    /// Returns the start address of the frame that contains `address`, as the fill ring needs it.
    #[inline]
    pub(super) fn frame_of(&self, address: u64) -> u64 {
        address - address % self.frame_size as u64
    }

    /// Returns the `len` bytes at `address`, or `None` if they are not all inside.
    ///
    /// # Safety
    /// The kernel passed the frame by a receive ring, and it is not returned to the kernel while the slice exists.
    #[inline]
    pub(super) unsafe fn bytes(&self, address: u64, len: u32) -> Option<&[u8]> {
        let at = usize::try_from(address).ok()?;
        let len = len as usize;
        if at.checked_add(len)? > self.len {
            return None;
        }
        let place = self.mapping.place(self.start + at, len)?;
        // SAFETY: inside the mapping, initialised (anonymous memory is zero at first), and the caller guarantees that nothing
        // writes there while the slice lives.
        Some(unsafe { std::slice::from_raw_parts(place.as_ptr(), len) })
    }

    /// Returns the two words before `address`, or zeros if they are not all inside.
    ///
    /// # Safety
    /// The same as for [`Umem::bytes`].
    #[inline]
    pub(super) unsafe fn before(&self, address: u64) -> [u64; 2] {
        const LEN: u64 = 2 * size_of::<u64>() as u64;
        let words = address.checked_sub(LEN).and_then(|start| {
            // SAFETY: guaranteed by the caller.
            let bytes = unsafe { self.bytes(start, LEN as u32) }?;
            Some([bytes.first_chunk::<8>()?, bytes.last_chunk::<8>()?])
        });
        words.map_or([0; 2], |words| words.map(|word| u64::from_ne_bytes(*word)))
    }
}

/// Explains why the kernel refused to register the memory.
pub(super) fn refused(source: io::Error, umem: &Umem) -> Error {
    let mib = umem.len.div_ceil(1 << 20);
    let advice = match source.raw_os_error() {
        Some(libc::ENOBUFS | libc::ENOMEM) => Some(format!(
            "{mib} MiB of memory may not be locked: grant CAP_IPC_LOCK, or raise the limit (`ulimit -l {}`, in a unit \
             `LimitMEMLOCK={mib}M`)",
            mib << 10
        )),
        _ => None,
    };
    let error = Error::new("setsockopt XDP_UMEM_REG", "", source);
    match advice {
        Some(advice) => error.with_advice(advice),
        None => error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_lead_to_their_frames_and_never_outside() {
        let umem = Umem::allocate(2048, 8, true).unwrap();
        assert_eq!(umem.frame_of(2048 * 3 + 256), 2048 * 3);
        assert_eq!(
            (umem.registration().addr % 4096, umem.registration().len),
            (0, 16384)
        );
        // SAFETY: this memory was not registered with the kernel.
        let bytes = |address, len| unsafe { umem.bytes(address, len) }.map(<[u8]>::len);
        assert_eq!(bytes(16384 - 100, 100), Some(100));
        assert_eq!(bytes(16384 - 100, 101), None);
        assert_eq!(bytes(u64::MAX, 1), None);
        assert_eq!(bytes(0, 0), Some(0));
    }

    #[test]
    fn a_refusal_to_lock_says_what_to_do() {
        let umem = Umem::allocate(2048, 4096, false).unwrap();
        assert_eq!(umem.pages(), Pages::Small);
        let error = refused(io::Error::from_raw_os_error(libc::ENOBUFS), &umem);
        assert_eq!(
            error.to_string(),
            "setsockopt XDP_UMEM_REG: 8 MiB of memory may not be locked: grant CAP_IPC_LOCK, or raise the limit \
             (`ulimit -l 8192`, in a unit `LimitMEMLOCK=8M`)"
        );
    }
}
