//! The two AF_XDP rings of a queue. Each has one producer and one consumer; the kernel is one of them.
//!
//! A position counts up and wraps at 2^32; its lowest bits are the index in the ring. The producer publishes entries by storing
//! its position with release, and the consumer loads it with acquire; the same holds for the consumer's position and the
//! entries that it frees (kernel: net/xdp/xsk_queue.h, "The structure of the shared state of the rings", and
//! `xskq_prod_submit`, `__xskq_cons_release`, `__xskq_cons_peek`).

use std::marker::PhantomData;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::sys::Mapping;

/// A ring in memory shared with the kernel. The first four numbers are offsets in that memory.
#[derive(Debug)]
pub(super) struct Ring<T> {
    memory: Mapping,
    producer: usize,
    consumer: usize,
    flags: usize,
    entries: usize,
    /// Number of entries minus one.
    mask: u32,
    /// Position of this side, which only this side changes.
    own: u32,
    /// Last known position of the other side.
    other: u32,
    entry: PhantomData<T>,
}

/// The fill ring: addresses of frames for the kernel.
pub(super) type Fill = Ring<u64>;
/// The receive ring: frames from the kernel.
pub(super) type Receive = Ring<libc::xdp_desc>;

impl<T: Copy> Ring<T> {
    /// Returns the bytes to map for a ring of `places` entries (a power of two).
    pub(super) fn bytes(offsets: &libc::xdp_ring_offset, places: u32) -> usize {
        offsets.desc as usize + places as usize * size_of::<T>()
    }

    /// Creates a ring. Returns `None` if the offsets do not fit the memory, which a correct kernel never causes.
    pub(super) fn new(memory: Mapping, offsets: &libc::xdp_ring_offset, places: u32) -> Option<Self> {
        let mask = places.checked_sub(1).filter(|mask| places & mask == 0)?;
        Some(Self {
            producer: offset_of_array::<u32>(&memory, offsets.producer, 1)?,
            consumer: offset_of_array::<u32>(&memory, offsets.consumer, 1)?,
            flags: offset_of_array::<u32>(&memory, offsets.flags, 1)?,
            entries: offset_of_array::<T>(&memory, offsets.desc, places as usize)?,
            memory,
            mask,
            own: 0,
            other: 0,
            entry: PhantomData,
        })
    }

    fn word(&self, at: usize) -> &AtomicU32 {
        // SAFETY: `new` checked that the word is inside and aligned; both sides access it as a whole.
        unsafe { AtomicU32::from_ptr(self.memory.start().as_ptr().add(at).cast()) }
    }

    /// Returns the entry at `position`.
    #[inline]
    fn entry(&self, position: u32) -> *mut T {
        let place = (position & self.mask) as usize;
        // SAFETY: `new` checked that `mask + 1` entries are inside, and aligned.
        unsafe {
            self.memory
                .start()
                .as_ptr()
                .add(self.entries)
                .cast::<T>()
                .add(place)
        }
    }
}

/// Returns the offset if `count` values of the type are inside the memory and aligned there.
fn offset_of_array<T>(memory: &Mapping, offset: u64, count: usize) -> Option<usize> {
    let offset = usize::try_from(offset).ok()?;
    memory.place(offset, count * size_of::<T>())?;
    offset.is_multiple_of(align_of::<T>()).then_some(offset)
}

impl Fill {
    /// Returns the number of ring entries for this many frames: twice as many. The kernel publishes frames in the receive ring
    /// before it releases their entries in the fill ring (`xsk_flush` in net/xdp/xsk.c), so all frames may be returned while
    /// all entries still seem to be in use.
    pub(super) fn entries(frames: u32) -> u32 {
        frames.saturating_mul(2)
    }

    /// Returns frames to the kernel. With [`Fill::entries`] they always fit; otherwise returns the number of frames that did
    /// not.
    #[inline]
    pub(super) fn refill(&mut self, frames: &[u64]) -> usize {
        let places = self.mask + 1;
        if places - self.own.wrapping_sub(self.other) < frames.len() as u32 {
            // Acquire: pairs with the kernel's release in `__xskq_cons_release`, so that it has read the entries it frees.
            self.other = self.word(self.consumer).load(Ordering::Acquire);
        }
        let free = places - self.own.wrapping_sub(self.other);
        let count = frames.len().min(free as usize);
        for &frame in &frames[..count] {
            // SAFETY: a free entry; the kernel reads it only after the store below.
            unsafe { self.entry(self.own).write(frame) };
            self.own = self.own.wrapping_add(1);
        }
        // Release: pairs with the kernel's acquire in `__xskq_cons_peek`, so that it sees the entries written, and our reads of
        // the frames done.
        self.word(self.producer).store(self.own, Ordering::Release);
        frames.len() - count
    }

    /// Returns whether the driver sleeps and must be woken to process the new entries.
    #[inline]
    pub(super) fn needs_wakeup(&self) -> bool {
        // Relaxed: only a hint; the positions order the entries.
        self.word(self.flags).load(Ordering::Relaxed) & libc::XDP_RING_NEED_WAKEUP != 0
    }
}

impl Receive {
    /// Returns the number of received frames, at most `max`.
    #[inline]
    pub(super) fn available(&mut self, max: u32) -> u32 {
        let known = self.other.wrapping_sub(self.own);
        if known >= max {
            return max;
        }
        // Acquire: pairs with the kernel's release in `xskq_prod_submit`, so that the entries and the frames are written.
        self.other = self.word(self.producer).load(Ordering::Acquire);
        self.other.wrapping_sub(self.own).min(max)
    }

    /// Returns the available frame with this index.
    #[inline]
    pub(super) fn peek(&self, index: u32) -> libc::xdp_desc {
        debug_assert!(self.other.wrapping_sub(self.own) > index);
        // SAFETY: inside the ring, and published by the kernel, which does not write there before the entry is freed.
        unsafe { self.entry(self.own.wrapping_add(index)).read() }
    }

    /// Frees the entries of the first `count` frames.
    #[inline]
    pub(super) fn release(&mut self, count: u32) {
        self.own = self.own.wrapping_add(count);
        // Release: pairs with the kernel's acquire in `xskq_prod_nb_free`, so that our reads of the entries are done.
        self.word(self.consumer).store(self.own, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    /// Both sides of a ring in ordinary memory; the second mapping is the kernel's view of the same pages.
    fn offsets() -> libc::xdp_ring_offset {
        libc::xdp_ring_offset {
            producer: 0,
            consumer: 64,
            desc: 192,
            flags: 128,
        }
    }

    fn ring<T: Copy>(places: u32) -> Ring<T> {
        let memory = Mapping::anonymous(4096, 0).unwrap();
        Ring::new(memory, &offsets(), places).unwrap()
    }

    #[test]
    fn rings_with_invalid_sizes_are_refused() {
        let memory = || Mapping::anonymous(4096, 0).unwrap();
        assert!(Receive::new(memory(), &offsets(), 0).is_none());
        assert!(Receive::new(memory(), &offsets(), 3).is_none());
        assert!(Receive::new(memory(), &offsets(), 256).is_none());
        assert!(
            Receive::new(
                memory(),
                &libc::xdp_ring_offset {
                    producer: 2,
                    ..offsets()
                },
                4
            )
            .is_none()
        );
        assert!(
            Receive::new(
                memory(),
                &libc::xdp_ring_offset {
                    flags: 5000,
                    ..offsets()
                },
                4
            )
            .is_none()
        );
        assert_eq!(Receive::bytes(&offsets(), 4), 192 + 64);
        assert_eq!(Fill::bytes(&offsets(), 4), 192 + 32);
    }

    #[test]
    fn a_full_fill_ring_leaves_what_does_not_fit_and_positions_wrap() {
        let mut fill = ring::<u64>(4);
        fill.own = u32::MAX - 1;
        fill.other = u32::MAX - 1;
        fill.word(fill.consumer).store(u32::MAX - 1, Ordering::Release);
        assert_eq!(fill.refill(&[1, 2, 3]), 0);
        assert_eq!(fill.word(fill.producer).load(Ordering::Acquire), 1);
        assert_eq!(fill.refill(&[4, 5]), 1);
        // The kernel takes three.
        fill.word(fill.consumer).store(1, Ordering::Release);
        assert_eq!(fill.refill(&[5, 6, 7, 8]), 1);
        assert!(!fill.needs_wakeup());
        fill.word(fill.flags).store(1, Ordering::Release);
        assert!(fill.needs_wakeup());
    }

    #[test]
    fn frames_fit_although_the_kernel_completes_them_late() {
        const FRAMES: [u64; 4] = [0, 1, 2, 3];
        let mut fill = ring::<u64>(Fill::entries(FRAMES.len() as u32));
        for round in 1..100_u32 {
            assert_eq!(fill.refill(&FRAMES), 0, "the frames of round {round}");
            // The kernel took these and published them in the receive ring, but reported only the previous round as consumed.
            fill.word(fill.consumer)
                .store((round - 1) * FRAMES.len() as u32, Ordering::Release);
        }
    }

    #[test]
    fn frames_come_in_order_while_a_thread_plays_the_kernel() {
        const FRAMES: u64 = 20_000;
        let mut receive = ring::<libc::xdp_desc>(8);
        let kernel = Arc::new(Mapping::anonymous(4096, 0).unwrap());
        // The thread writes to the ring's memory, as the kernel does.
        let (start, entries) = (receive.memory.start().as_ptr() as usize, receive.entries);
        let playing = std::thread::spawn(move || {
            let _kept = kernel;
            let word = |at: usize| {
                // SAFETY: the ring lives until this thread is joined.
                unsafe { AtomicU32::from_ptr((start + at) as *mut u32) }
            };
            for number in 0..FRAMES {
                let position = number as u32;
                while position.wrapping_sub(word(64).load(Ordering::Acquire)) >= 8 {
                    std::thread::yield_now();
                }
                let place = (start + entries) as *mut libc::xdp_desc;
                let frame = libc::xdp_desc {
                    addr: number * 3,
                    len: position,
                    options: 0,
                };
                // SAFETY: a free entry of the ring.
                unsafe { place.add((position & 7) as usize).write(frame) };
                word(0).store(position.wrapping_add(1), Ordering::Release);
            }
        });
        let mut next = 0;
        while next < FRAMES {
            let count = receive.available(5);
            for index in 0..count {
                let frame = receive.peek(index);
                assert_eq!((frame.addr, frame.len), (next * 3, next as u32));
                next += 1;
            }
            receive.release(count);
            if count == 0 {
                std::thread::yield_now();
            }
        }
        playing.join().unwrap();
        assert_eq!(receive.available(5), 0);
    }
}
