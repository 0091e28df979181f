//! A queue pair that writes to remote memory, with registered slots from which the device reads the data.

use std::sync::Arc;

use memory::Region;

use super::library::{AtomicTarget, RdmaTarget, RemoteTarget, SIGNALED, SendRequest, Sge, operation};
use super::{Device, QueuePair, RegisteredRegion, WorkCompletion};
use crate::Error;

/// `IBV_WC_GENERAL_ERR`: stands for an error that has no completion.
const GENERAL_ERROR: u32 = 21;

/// The reason why a request was not accepted. A refused request has no effect.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refused {
    /// The maximum number of requests is outstanding: call [`Sender::poll`], then retry.
    Full,
    /// The data has more bytes than a slot.
    TooLong,
    /// The connection is broken; the device no longer accepts requests.
    Broken,
}

/// Sends requests in order, each from a slot of registered memory. A slot is free again once the device has completed its
/// request.
#[derive(Debug)]
pub struct Sender {
    pair: QueuePair,
    slots: RegisteredRegion,
    slot_len: usize,
    depth: u64,
    /// True if every request reports completion, because the caller accounts for each.
    signals_all: bool,
    /// Number of requests posted since the beginning.
    posted: u64,
    /// Number of requests completed since the beginning.
    completed: u64,
    /// The first completion status other than success. After it, no request is accepted.
    error_status: Option<u32>,
}

impl Sender {
    /// Creates a sender with `depth` slots (rounded up to a power of two) of `slot_len` bytes (rounded up to a multiple of 8).
    /// A reliable sender learns of each completion, an unreliable one of several together, after a further request.
    ///
    /// # Errors
    /// The memory or the queue pair cannot be created.
    pub fn new(device: &Device, reliable: bool, depth: u32, slot_len: usize) -> Result<Self, Error> {
        let depth = depth.max(4).next_power_of_two();
        let slot_len = slot_len.max(8).next_multiple_of(8);
        let bytes = u64::from(depth) * slot_len as u64;
        let region = Region::anonymous(bytes, false).map_err(|error| Error::new("mmap", bytes, error))?;
        let slots = device.register(Arc::new(region), false)?;
        let pair = device.queue_pair(reliable, depth, 0)?;
        Ok(Self {
            pair,
            slots,
            slot_len,
            depth: depth.into(),
            signals_all: reliable,
            posted: 0,
            completed: 0,
            error_status: None,
        })
    }

    /// Returns the queue pair, to connect it.
    pub fn queue_pair(&mut self) -> &mut QueuePair {
        &mut self.pair
    }

    /// Returns the number of requests that it accepts now.
    pub fn free_slots(&self) -> u32 {
        if self.error_status.is_some() {
            0
        } else {
            (self.depth - (self.posted - self.completed)) as u32
        }
    }

    /// Returns the number of requests posted since the beginning.
    pub fn posted(&self) -> u64 {
        self.posted
    }

    /// Returns the number of requests completed since the beginning.
    pub fn completed(&self) -> u64 {
        self.completed
    }

    /// Returns the bytes of a slot.
    pub fn slot_len(&self) -> usize {
        self.slot_len
    }

    /// Copies the data of a pending request, by its number from 0 on. Returns false if the request is not pending.
    pub fn copy_pending(&self, request: u64, out: &mut [u8]) -> bool {
        let offset = self.slot_offset(request);
        (self.completed..self.posted).contains(&request)
            && out.len() <= self.slot_len
            && self.slots.region().read(offset, out).is_ok()
    }

    /// Returns the first status other than success; after it nothing more is accepted.
    pub fn error_status(&self) -> Option<u32> {
        self.error_status
    }

    /// Writes `data` to remote memory. With immediate data, the remote CPU is notified.
    ///
    /// # Errors
    /// Returns the reason if the request was refused, without effect.
    pub fn write(
        &mut self,
        address: u64,
        rkey: u32,
        data: &[u8],
        immediate: Option<u32>,
    ) -> Result<(), Refused> {
        if data.len() > self.slot_len {
            return Err(Refused::TooLong);
        }
        let offset = self.free_slot()?;
        self.slots
            .region()
            .write(offset, data)
            .map_err(|_| Refused::TooLong)?;
        let target = RemoteTarget {
            rdma: RdmaTarget { address, rkey },
        };
        let operation = if immediate.is_some() {
            operation::WRITE_WITH_IMMEDIATE
        } else {
            operation::WRITE
        };
        self.post(offset, data.len(), operation, immediate.unwrap_or(0), target)
    }

    /// Adds `delta` to eight bytes of remote memory (fetch-and-add). Only on a reliable pair.
    ///
    /// # Errors
    /// Returns the reason if the request was refused, without effect.
    pub fn fetch_add(&mut self, address: u64, rkey: u32, delta: u64) -> Result<(), Refused> {
        let offset = self.free_slot()?;
        let target = RemoteTarget {
            atomic: AtomicTarget {
                address,
                compare_add: delta,
                swap: 0,
                rkey,
            },
        };
        self.post(offset, 8, operation::FETCH_AND_ADD, 0, target)
    }

    /// Polls the device for completions.
    pub fn poll(&mut self) {
        let mut buffer = [WorkCompletion::default(); 16];
        loop {
            let completions = self.pair.poll_sent(&mut buffer);
            for completion in completions {
                // Requests complete in order, and only some report completion.
                if completion.status == 0 && self.error_status.is_none() {
                    self.completed = self.completed.max(completion.wr_id + 1);
                } else {
                    // Later requests were not executed either; their data stays in the slots.
                    self.error_status = self.error_status.or(Some(completion.status));
                }
            }
            if completions.len() < 16 {
                return;
            }
        }
    }

    /// Returns the offset of a request's slot, bytes.
    fn slot_offset(&self, request: u64) -> u64 {
        (request & (self.depth - 1)) * self.slot_len as u64
    }

    /// Returns the offset of the next request's slot, bytes.
    fn free_slot(&self) -> Result<u64, Refused> {
        match self.free_slots() {
            0 if self.error_status.is_some() => Err(Refused::Broken),
            0 => Err(Refused::Full),
            _ => Ok(self.slot_offset(self.posted)),
        }
    }

    fn post(
        &mut self,
        offset: u64,
        len: usize,
        operation: u32,
        immediate: u32,
        target: RemoteTarget,
    ) -> Result<(), Refused> {
        // Each reported completion costs the device time. Unless the caller needs all, request only four per round of the slots.
        let signaled = self.signals_all || self.posted % (self.depth / 4) == self.depth / 4 - 1;
        let sge = Sge {
            address: self.slots.address() + offset,
            len: len as u32,
            lkey: self.slots.lkey,
        };
        let request = SendRequest {
            wr_id: self.posted,
            next: std::ptr::null(),
            sg_list: &raw const sge,
            num_sge: i32::from(len > 0),
            operation,
            flags: if signaled { SIGNALED } else { 0 },
            immediate: immediate.to_be(),
            target,
            unused: [0; 7],
        };
        let raw = self.pair.raw.ok_or(Refused::Broken)?;
        let mut failed = std::ptr::null();
        // SAFETY: the pair is open, and with it its device; request and entry are copied. The slot lies inside the registered
        // memory, and is not used again before the device has completed it.
        let result = unsafe {
            ((*(*raw.as_ptr()).context).post_send)(raw.as_ptr(), &raw const request, &raw mut failed)
        };
        let outcome = post_outcome(result);
        match outcome {
            Ok(()) => self.posted += 1,
            // A retry would fail likewise.
            Err(Refused::Broken) => self.error_status = self.error_status.or(Some(GENERAL_ERROR)),
            Err(_) => {}
        }
        outcome
    }
}

/// Interprets what `ibv_post_send` returned: 0 or an `errno`, which some providers negate. ENOMEM alone means that the queue is full
/// (manual page ibv_post_send(3)).
fn post_outcome(result: libc::c_int) -> Result<(), Refused> {
    match result.saturating_abs() {
        0 => Ok(()),
        libc::ENOMEM => Err(Refused::Full),
        _ => Err(Refused::Broken),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_full_queue_is_worth_a_retry() {
        assert_eq!(post_outcome(0), Ok(()));
        assert_eq!(post_outcome(libc::ENOMEM), Err(Refused::Full));
        assert_eq!(post_outcome(-libc::ENOMEM), Err(Refused::Full));
        for errno in [
            libc::EINVAL,
            libc::EFAULT,
            -libc::EINVAL,
            libc::EIO,
            libc::c_int::MIN,
        ] {
            assert_eq!(post_outcome(errno), Err(Refused::Broken), "{errno}");
        }
    }
}
