//! Snapshots of DTA stores: a copy with the same header page plus the time of the copy, which readers map and query like
//! the live store.
//!
//! The store is written during the copy, so a snapshot is not a point-in-time copy: each slot is as old as its read,
//! between the start and the end. But nothing half-written looks complete:
//! - Key-Write and Postcarding slots are read as readers read them. A slot that changes at each attempt is left empty and
//!   counted.
//! - Blocks of tagged lists carry CRCs, which readers check later. Bare lists have no such check.
//! - Counters are copied atomically, one by one.
//! - A sketch buffer whose epoch was overwritten during the copy gets no trailer.

use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use wire::dta::layout::{Columns, Geometry, SKETCH_TRAILER_LEN, postcard_stride, slot_stride};

use crate::dta_store::DtaStore;
use crate::header::BODY;
use crate::header::{HEADER_LEN, Header, HeaderError};
use crate::slots;

/// Maximum bytes returned at once.
pub const CHUNK: usize = 256 << 10;

/// A snapshot in progress. [`next`](Self::next) returns its bytes in order, starting with the header page.
#[derive(Debug)]
pub struct Snapshot {
    store: DtaStore,
    page: Option<Box<[u8; HEADER_LEN]>>,
    /// Region offset of the next chunk.
    at: u64,
    end: u64,
    buffer: Vec<u8>,
    /// Trailers of a sketch's two buffers when the snapshot began.
    trailers: [[u8; SKETCH_TRAILER_LEN]; 2],
    torn: u64,
}

impl Snapshot {
    /// Begins a snapshot with the time `now`, ns since 1970.
    ///
    /// # Errors
    /// None in practice: the store's header was encoded before.
    pub fn new(store: &DtaStore, now: u64) -> Result<Self, HeaderError> {
        let page = Header {
            snapshot: Some(now.max(1)),
            ..store.header().clone()
        }
        .encode()?;
        let mut snapshot = Self {
            store: store.clone(),
            page: Some(page),
            at: BODY,
            end: BODY + store.body_len(),
            buffer: Vec::with_capacity(CHUNK.max(HEADER_LEN)),
            trailers: [[0; SKETCH_TRAILER_LEN]; 2],
            torn: 0,
        };
        if let Some(shape) = snapshot.shape() {
            snapshot.trailers = [0, 1].map(|parity| snapshot.trailer(&shape, parity));
        }
        Ok(snapshot)
    }

    /// Returns the total length of all chunks, bytes.
    pub fn len(&self) -> u64 {
        self.end
    }

    /// Returns `false`: a snapshot is never empty.
    pub fn is_empty(&self) -> bool {
        false
    }

    /// Returns the number of slots and sketch buffers that changed at each attempt and are empty in the copy.
    pub fn torn(&self) -> u64 {
        self.torn
    }

    /// Returns the next bytes of the file, or `None` at the end.
    #[expect(clippy::should_implement_trait, reason = "the result borrows the snapshot")]
    pub fn next(&mut self) -> Option<&[u8]> {
        self.buffer.clear();
        if let Some(page) = self.page.take() {
            self.buffer.extend_from_slice(page.as_slice());
            return Some(&self.buffer);
        }
        if self.at >= self.end {
            return None;
        }
        let len = (self.end - self.at).min(CHUNK as u64) as usize;
        self.buffer.resize(len, 0);
        // In range: the body's length was checked against the geometry when the store was opened.
        let _ = self.store.region().read(self.at, &mut self.buffer);
        match self.store.geometry() {
            Geometry::KeyWrite { data_len, .. } => {
                self.settle(slot_stride(data_len), usize::from(data_len));
            }
            Geometry::Postcarding { hops, .. } => {
                self.settle(postcard_stride(hops), 4 * usize::from(hops));
            }
            Geometry::Sketch { shape, .. } => self.settle_trailers(&shape),
            Geometry::Append { .. } | Geometry::KeyIncrement { .. } => {}
        }
        self.at += len as u64;
        Some(&self.buffer)
    }

    /// Reads each slot of the chunk again, as a reader does, so that it is consistent. Slots that are still empty are
    /// skipped.
    fn settle(&mut self, stride: u64, data_len: usize) {
        fence(Ordering::Acquire);
        let region = Arc::clone(self.store.region());
        // A stride is a power of two and at most 2048, so a chunk contains whole slots.
        for (slot, at) in self
            .buffer
            .chunks_exact_mut(stride as usize)
            .zip((self.at..).step_by(stride as usize))
        {
            let Some((head, data)) = slot[..4 + data_len].split_first_chunk_mut::<4>() else {
                continue;
            };
            if *head == [0; 4] && data.iter().all(|byte| *byte == 0) && region.load_u64(at) == Ok(0) {
                continue;
            }
            let mut state = slots::SlotState::Torn;
            for _ in 0..4 {
                let Ok(now) = region.load_u64(at) else { break };
                let now = now.to_ne_bytes();
                *head = [now[0], now[1], now[2], now[3]];
                state = slots::read_slot(&region, at, u32::from_le_bytes(*head), data);
                // Zeros before other bytes may be a write in progress. A reader with a key of checksum 0 may accept them,
                // but here no key is known.
                if now == [0; 8] && state == slots::SlotState::Match && data_len > 4 {
                    state = slots::SlotState::Torn;
                }
                if matches!(state, slots::SlotState::Match | slots::SlotState::Empty) {
                    break;
                }
            }
            if state != slots::SlotState::Match {
                slot.fill(0);
                self.torn += u64::from(state != slots::SlotState::Empty);
            }
        }
    }

    fn shape(&self) -> Option<Columns> {
        match self.store.geometry() {
            Geometry::Sketch { shape, .. } => Some(shape),
            _ => None,
        }
    }

    fn trailer(&self, shape: &Columns, parity: u16) -> [u8; SKETCH_TRAILER_LEN] {
        let mut trailer = [0; SKETCH_TRAILER_LEN];
        // In range, as in `next`.
        let _ = self
            .store
            .region()
            .read(BODY + shape.trailer(parity), &mut trailer);
        trailer
    }

    /// Overwrites the chunk's part of each trailer with the trailer from the beginning of the snapshot, or with zeros if it
    /// has changed since. A trailer may be split between two chunks.
    fn settle_trailers(&mut self, shape: &Columns) {
        fence(Ordering::Acquire);
        let chunk = self.at..self.at + self.buffer.len() as u64;
        for parity in [0, 1] {
            let start = BODY + shape.trailer(parity);
            let trailer = start..start + SKETCH_TRAILER_LEN as u64;
            let common = trailer.start.max(chunk.start)..trailer.end.min(chunk.end);
            if common.is_empty() {
                continue;
            }
            let began = self.trailers[usize::from(parity)];
            let same = self.trailer(shape, parity) == began;
            for at in common.clone() {
                let byte = if same { began[(at - start) as usize] } else { 0 };
                self.buffer[(at - chunk.start) as usize] = byte;
            }
            self.torn += u64::from(!same && common.end == trailer.end);
        }
    }
}
