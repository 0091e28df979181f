//! Reusable memory for one burst of datagrams, laid out for `recvmmsg`.

use std::fmt;
use std::ptr::NonNull;

use super::socket::Name;
use crate::source::Packet;
use crate::time::nanoseconds;

/// Number of slots in [`Burst::default`].
pub const DEFAULT_SLOTS: usize = 64;
/// Bytes of a slot in [`Burst::default`]; fits any report in a frame of 1,500 bytes.
pub const DEFAULT_SLOT_SIZE: usize = 2048;
/// Bytes of a slot for networks with jumbo frames.
pub const JUMBO_SLOT_SIZE: usize = 9216;

/// Maximum number of slots of a burst, the limit of one `recvmmsg`.
const MAX_SLOTS: usize = 1024;
/// Maximum number of slots for merged datagrams, 2 MiB in total.
const MAX_MERGED_SLOTS: usize = 32;
/// Bytes of a slot for merged datagrams: the kernel merges up to this length.
const MERGED_SLOT_SIZE: usize = 65535;
/// Bytes of a cache line.
const LINE: usize = 64;

/// Memory for a burst of datagrams with their senders and receive times. It owns its memory, can move between threads, and is
/// reused by [`super::Receiver::recv`].
pub struct Burst {
    /// The datagrams, one slot after another.
    data: Block<u8>,
    slot_size: usize,
    /// Distance from one slot to the next, bytes.
    stride: usize,
    names: Block<Name>,
    controls: Block<Control>,
    /// One element per slot, which points into `data`. Written once at creation, and read by the kernel.
    _vectors: Block<libc::iovec>,
    /// One element per slot, which points into all of the above.
    headers: Block<libc::mmsghdr>,
    /// Number of filled slots.
    filled: usize,
    /// The datagrams in the filled slots.
    located: Vec<Located>,
    /// Number of datagrams in the filled slots that are left out.
    forged: u64,
    /// Maximum number of bytes of a datagram that are returned.
    longest: usize,
    /// Port of the socket that fills the burst.
    port: u16,
}

/// Position of a datagram in a slot.
#[derive(Clone, Copy, Debug)]
struct Located {
    slot: u32,
    start: u32,
    len: u32,
    truncated: bool,
    received: u64,
}

impl Burst {
    /// Creates a burst for a receiver that merges datagrams: at most `slots` (1 to 32) merged buffers, with datagrams of at
    /// most `longest` bytes.
    pub(super) fn merged(slots: usize, longest: usize) -> Self {
        Self {
            longest,
            ..Self::new(slots.min(MAX_MERGED_SLOTS), MERGED_SLOT_SIZE)
        }
    }

    /// Creates a burst of `slots` datagrams (1 to 1024) of at most `slot_size` bytes (64 to 65535) each. Values outside are
    /// clamped.
    pub fn new(slots: usize, slot_size: usize) -> Self {
        let slots = slots.clamp(1, MAX_SLOTS);
        let slot_size = slot_size.clamp(64, 65535);
        // An odd number of cache lines: at a power of two, all slots would map to the same few cache sets.
        let stride = (slot_size.div_ceil(LINE) | 1) * LINE;
        let data = Block::new(slots * stride, || 0);
        let names = Block::new(slots, Name::default);
        let controls = Block::new(slots, Control::default);
        let mut slot = 0;
        let vectors = Block::new(slots, || {
            let iov_base = data.at(slot * stride).cast();
            slot += 1;
            libc::iovec {
                iov_base,
                iov_len: slot_size,
            }
        });
        let mut slot = 0;
        let headers = Block::new(slots, || {
            // SAFETY: an mmsghdr is integers and pointers, for which zero (null) is a value.
            let mut header: libc::mmsghdr = unsafe { std::mem::zeroed() };
            header.msg_hdr.msg_name = names.at(slot).cast();
            header.msg_hdr.msg_iov = vectors.at(slot);
            header.msg_hdr.msg_iovlen = 1;
            header.msg_hdr.msg_control = controls.at(slot).cast();
            slot += 1;
            header
        });
        let mut burst = Self {
            data,
            slot_size,
            stride,
            names,
            controls,
            _vectors: vectors,
            headers,
            filled: slots,
            located: Vec::with_capacity(slots),
            forged: 0,
            longest: slot_size,
            port: 0,
        };
        burst.clear();
        burst
    }

    /// Sets the destination port of the datagrams.
    pub(super) fn set_port(&mut self, port: u16) {
        self.port = port;
    }

    /// Returns the number of datagrams in the burst.
    pub fn len(&self) -> usize {
        self.located.len()
    }

    /// Returns whether the burst is empty.
    pub fn is_empty(&self) -> bool {
        self.located.is_empty()
    }

    /// Returns the number of datagrams, or buffers of merged datagrams, that fit.
    pub fn slots(&self) -> usize {
        self.headers.len
    }

    /// Returns the number of filled slots. It is less than the number of datagrams if these are merged.
    pub(super) fn filled(&self) -> usize {
        self.filled
    }

    /// Returns the maximum number of bytes of a datagram.
    pub fn slot_size(&self) -> usize {
        self.slot_size
    }

    /// Removes all datagrams from the burst.
    pub fn clear(&mut self) {
        let filled = self.filled;
        for header in &mut self.headers.as_mut_slice()[..filled] {
            // The kernel has overwritten these with the number of bytes it used.
            header.msg_hdr.msg_namelen = size_of::<Name>() as libc::socklen_t;
            header.msg_hdr.msg_controllen = size_of::<Control>();
            header.msg_hdr.msg_flags = 0;
        }
        self.filled = 0;
        self.forged = 0;
        self.located.clear();
    }

    /// Returns the datagrams in order of arrival.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Packet<'_>> {
        self.located.iter().map(|located| self.at(located))
    }

    /// Returns the datagram with this index, in order of arrival.
    ///
    /// # Panics
    /// Panics if `index` is not below [`Burst::len`].
    #[inline]
    pub fn packet(&self, index: usize) -> Packet<'_> {
        self.at(&self.located[index])
    }

    #[inline]
    fn at(&self, located: &Located) -> Packet<'_> {
        let slot = located.slot as usize;
        let start = slot * self.stride + located.start as usize;
        Packet {
            data: &self.data.as_slice()[start..][..located.len as usize],
            source: self.names.as_slice()[slot].address(),
            port: self.port,
            received: located.received,
            truncated: located.truncated,
        }
    }

    /// Returns the socket's drop counter at the time the last datagram was queued. The kernel reports it only once it is not 0.
    pub(super) fn drop_counter(&self) -> Option<u32> {
        self.filled
            .checked_sub(1)
            .and_then(|last| self.control_data(last).drops)
    }

    /// Returns (bytes of all datagrams, as far as they fit; number of truncated datagrams).
    pub(super) fn totals(&self) -> (u64, u64) {
        self.located.iter().fold((0, 0), |(bytes, truncated), located| {
            (
                bytes + u64::from(located.len),
                truncated + u64::from(located.truncated),
            )
        })
    }

    /// Returns the number of datagrams that were left out, because their sender has an IPv4-mapped address in an IPv6 packet. A
    /// socket for both families names the sender of an IPv4 packet in the same way, and it would pass for that one.
    pub(super) fn forged(&self) -> u64 {
        self.forged
    }

    /// Returns the headers into which `recvmmsg` writes, and their number. The caller has emptied the burst.
    pub(crate) fn room(&mut self) -> (*mut libc::mmsghdr, usize) {
        (self.headers.at(0), self.headers.len)
    }

    /// Records that the kernel filled the first `filled` slots.
    pub(crate) fn set_filled(&mut self, filled: usize) {
        self.filled = filled.min(self.headers.len);
    }

    /// Locates the datagrams in the filled slots. `fetched` is their receive time if they have no timestamp from the kernel.
    pub(super) fn locate(&mut self, fetched: u64) {
        self.located.clear();
        self.forged = 0;
        for slot in 0..self.filled {
            let header = &self.headers.as_slice()[slot];
            let control_data = self.control_data(slot);
            let len = (header.msg_len as usize).min(self.slot_size);
            if control_data.is_ipv6 && self.names.as_slice()[slot].is_ipv4_mapped() {
                let segment = control_data.segment.map_or(len, |segment| segment as usize);
                self.forged += len.div_ceil(segment.max(1)).max(1) as u64;
                continue;
            }
            let cut = header.msg_hdr.msg_flags & libc::MSG_TRUNC != 0;
            let received = control_data.received.unwrap_or(fetched);
            let segment = control_data
                .segment
                .map_or(len, |segment| segment as usize)
                .clamp(1, self.slot_size);
            let mut start = 0;
            loop {
                let end = (start + segment).min(len);
                let truncated = end - start > self.longest || cut && end == len;
                self.located.push(Located {
                    slot: slot as u32,
                    start: start as u32,
                    len: (end - start).min(self.longest) as u32,
                    truncated,
                    received,
                });
                start = end;
                if start == len {
                    break;
                }
            }
        }
    }

    #[inline]
    fn control_data(&self, slot: usize) -> ControlData {
        let used = self.headers.as_slice()[slot].msg_hdr.msg_controllen;
        let control = &self.controls.as_slice()[slot].bytes;
        ControlData::parse(&control[..used.min(control.len())])
    }
}

impl Default for Burst {
    fn default() -> Self {
        Self::new(DEFAULT_SLOTS, DEFAULT_SLOT_SIZE)
    }
}

impl fmt::Debug for Burst {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Burst")
            .field("len", &self.len())
            .field("slots", &self.slots())
            .field("slot_size", &self.slot_size)
            .finish_non_exhaustive()
    }
}

/// Buffer for the control messages of a slot.
#[derive(Clone, Copy)]
#[repr(C, align(8))]
struct Control {
    bytes: [u8; 128],
}

impl Default for Control {
    fn default() -> Self {
        Self { bytes: [0; 128] }
    }
}

/// Control data from the kernel about a slot.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
struct ControlData {
    received: Option<u64>,
    drops: Option<u32>,
    /// Bytes of each merged datagram in the slot, except the last.
    segment: Option<u32>,
    /// The datagrams came in IPv6 packets: they have a hop limit.
    is_ipv6: bool,
}

impl ControlData {
    /// Parses control messages: length (including the header), level, type, data, padded to words.
    #[inline]
    fn parse(mut control: &[u8]) -> Self {
        const WORD: usize = size_of::<usize>();
        const HEADER: usize = WORD + 8;
        let mut control_data = Self::default();
        while let Some((header, _)) = control.split_at_checked(HEADER) {
            let len = usize::from_ne_bytes(array(&header[..WORD]));
            let level = i32::from_ne_bytes(array(&header[WORD..]));
            let kind = i32::from_ne_bytes(array(&header[WORD + 4..]));
            let Some(data) = control.get(HEADER..len) else {
                break;
            };
            match (level, kind) {
                (libc::SOL_SOCKET, libc::SCM_TIMESTAMPNS) if data.len() >= 16 => {
                    let seconds = i64::from_ne_bytes(array(data));
                    let nanos = i64::from_ne_bytes(array(&data[8..]));
                    control_data.received = Some(nanoseconds(seconds, nanos));
                }
                (libc::SOL_SOCKET, libc::SO_RXQ_OVFL) if data.len() >= 4 => {
                    control_data.drops = Some(u32::from_ne_bytes(array(data)));
                }
                (libc::IPPROTO_IPV6, libc::IPV6_HOPLIMIT) => control_data.is_ipv6 = true,
                (libc::SOL_UDP, libc::UDP_GRO) if data.len() >= 4 => {
                    control_data.segment = Some(u32::from_ne_bytes(array(data)));
                }
                _ => {}
            }
            control = control.get(len.next_multiple_of(WORD)..).unwrap_or(&[]);
        }
        control_data
    }
}

/// Returns the first `N` bytes, which the caller has checked to be present.
#[inline]
fn array<const N: usize>(bytes: &[u8]) -> [u8; N] {
    let mut array = [0; N];
    array.copy_from_slice(&bytes[..N]);
    array
}

/// An array on the heap that never moves. Both this code and the kernel access it through the pointer made at its creation, so
/// pointers into it stay valid when the owner moves.
struct Block<T> {
    start: NonNull<T>,
    len: usize,
}

impl<T> Block<T> {
    fn new(len: usize, make: impl FnMut() -> T) -> Self {
        let values: Box<[T]> = std::iter::repeat_with(make).take(len).collect();
        let start = NonNull::from(Box::leak(values)).cast();
        Self { start, len }
    }

    /// Returns the address of element `index`.
    fn at(&self, index: usize) -> *mut T {
        assert!(index < self.len);
        // SAFETY: `index` is inside the allocation.
        unsafe { self.start.as_ptr().add(index) }
    }

    #[inline]
    fn as_slice(&self) -> &[T] {
        // SAFETY: `start` points to `len` initialised elements, which live as long as `self`. The kernel writes to them only
        // inside `Receiver::recv`, which holds the burst's only reference.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }

    fn as_mut_slice(&mut self) -> &mut [T] {
        // SAFETY: as for `as_slice`; `&mut self` is exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

impl<T> Drop for Block<T> {
    fn drop(&mut self) {
        let slice = NonNull::slice_from_raw_parts(self.start, self.len);
        // SAFETY: this is the box leaked in `new`, and nothing uses it any more.
        drop(unsafe { Box::from_raw(slice.as_ptr()) });
    }
}

// SAFETY: the pointers inside a burst lead to its own blocks, which move with it, and nothing is bound to a thread.
unsafe impl Send for Burst {}
// SAFETY: a shared burst is only read; no method changes anything behind `&self`.
unsafe impl Sync for Burst {}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a control message as the kernel would write it.
    fn message(kind: i32, data: &[u8]) -> Vec<u8> {
        let mut bytes = (size_of::<usize>() + 8 + data.len()).to_ne_bytes().to_vec();
        bytes.extend(libc::SOL_SOCKET.to_ne_bytes());
        bytes.extend(kind.to_ne_bytes());
        bytes.extend(data);
        bytes.resize(bytes.len().next_multiple_of(size_of::<usize>()), 0);
        bytes
    }

    #[test]
    fn marks_are_found_in_any_order_and_cut_ones_are_absent() {
        let time = [7i64.to_ne_bytes(), 5i64.to_ne_bytes()].concat();
        let stamp = message(libc::SCM_TIMESTAMPNS, &time);
        let drops = message(libc::SO_RXQ_OVFL, &9u32.to_ne_bytes());
        let other = message(77, &[1, 2, 3]);
        let full = ControlData {
            received: Some(7_000_000_005),
            drops: Some(9),
            segment: None,
            is_ipv6: false,
        };
        assert_eq!(ControlData::parse(&[&stamp[..], &drops, &other].concat()), full);
        assert_eq!(ControlData::parse(&[&other[..], &drops, &stamp].concat()), full);
        assert_eq!(ControlData::parse(&[]), ControlData::default());
        let both = [&stamp[..], &drops].concat();
        for end in 0..both.len() {
            let found = ControlData::parse(&both[..end]);
            assert_eq!(found.received, (end >= 32).then_some(7_000_000_005), "{end}");
            assert_eq!(found.drops, (end >= 52).then_some(9), "{end}");
        }
        let mut endless = stamp.clone();
        endless[..8].copy_from_slice(&0usize.to_ne_bytes());
        assert_eq!(ControlData::parse(&endless), ControlData::default());
        endless[..8].copy_from_slice(&usize::MAX.to_ne_bytes());
        assert_eq!(ControlData::parse(&endless), ControlData::default());
    }

    #[test]
    fn sizes_are_moved_into_their_bounds() {
        let sizes = |burst: Burst| (burst.slots(), burst.slot_size(), burst.len());
        assert_eq!(sizes(Burst::default()), (64, 2048, 0));
        assert_eq!(sizes(Burst::new(0, 0)), (1, 64, 0));
        assert_eq!(sizes(Burst::new(2, JUMBO_SLOT_SIZE)), (2, 9216, 0));
        assert_eq!(sizes(Burst::new(usize::MAX, usize::MAX)), (1024, 65535, 0));
    }
}
