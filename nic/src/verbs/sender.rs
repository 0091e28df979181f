//! A queue pair that writes to remote memory, with registered slots from which the device reads the data.

use std::sync::Arc;

use memory::Region;

use super::library::{AddTo, SIGNALED, SendRequest, Sge, To, WriteTo, operation};
use super::{Device, Pair, Registered, WorkCompletion};
use crate::Error;

/// `IBV_WC_GENERAL_ERR`: stands for an error that has no completion.
const GENERAL_ERROR: u32 = 21;

/// The reason why a request was not accepted. A refused request has no effect.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refused {
    /// The maximum number of requests is outstanding: call [`Sender::collect`], then retry.
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
    pair: Pair,
    slots: Registered,
    slot_len: usize,
    depth: u64,
    /// True if every request reports completion, because the caller accounts for each.
    signals_all: bool,
    /// Number of requests posted, and number completed, since the beginning.
    given: u64,
    done: u64,
    /// The first completion status other than success.
    broken: Option<u32>,
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
        let pair = device.pair(reliable, depth, 0)?;
        Ok(Self {
            pair,
            slots,
            slot_len,
            depth: depth.into(),
            signals_all: reliable,
            given: 0,
            done: 0,
            broken: None,
        })
    }

    /// Returns the queue pair, to connect it.
    pub fn pair(&mut self) -> &mut Pair {
        &mut self.pair
    }

    /// Returns the number of requests that it accepts now.
    pub fn room(&self) -> u32 {
        if self.broken.is_some() {
            0
        } else {
            (self.depth - (self.given - self.done)) as u32
        }
    }

    /// Returns (number of requests posted, number completed).
    pub fn counts(&self) -> (u64, u64) {
        (self.given, self.done)
    }

    /// Returns the bytes of a slot.
    pub fn slot_len(&self) -> usize {
        self.slot_len
    }

    /// Copies the data of a pending request, by its number from 0 on. Returns false if the request is not pending.
    pub fn pending(&self, request: u64, out: &mut [u8]) -> bool {
        let at = (request & (self.depth - 1)) * self.slot_len as u64;
        (self.done..self.given).contains(&request)
            && out.len() <= self.slot_len
            && self.slots.region().read(at, out).is_ok()
    }

    /// Returns the first status other than success; after it nothing more is accepted.
    pub fn broken(&self) -> Option<u32> {
        self.broken
    }

    /// Writes `data` to remote memory. With immediate data, the remote CPU is notified.
    ///
    /// # Errors
    /// Returns the reason if the request was refused, without effect.
    pub fn write(
        &mut self,
        address: u64,
        key: u32,
        data: &[u8],
        immediate: Option<u32>,
    ) -> Result<(), Refused> {
        if data.len() > self.slot_len {
            return Err(Refused::TooLong);
        }
        let at = self.slot()?;
        self.slots
            .region()
            .write(at, data)
            .map_err(|_| Refused::TooLong)?;
        let to = To {
            write: WriteTo { address, rkey: key },
        };
        let operation = if immediate.is_some() {
            operation::WRITE_WITH_IMMEDIATE
        } else {
            operation::WRITE
        };
        self.post(at, data.len(), operation, immediate.unwrap_or(0), to)
    }

    /// Adds `delta` to eight bytes of remote memory (fetch-and-add). Only on a reliable pair.
    ///
    /// # Errors
    /// Returns the reason if the request was refused, without effect.
    pub fn add(&mut self, address: u64, key: u32, delta: u64) -> Result<(), Refused> {
        let at = self.slot()?;
        let to = To {
            add: AddTo {
                address,
                delta,
                swap: 0,
                rkey: key,
            },
        };
        self.post(at, 8, operation::FETCH_AND_ADD, 0, to)
    }

    /// Polls the device for completions.
    pub fn collect(&mut self) {
        let mut done = [WorkCompletion::default(); 16];
        loop {
            let done = self.pair.sent(&mut done);
            for done in done {
                // Requests complete in order, and only some report completion.
                if done.status == 0 && self.broken.is_none() {
                    self.done = self.done.max(done.work + 1);
                } else {
                    // Later requests were not executed either; their data stays in the slots.
                    self.broken = self.broken.or(Some(done.status));
                }
            }
            if done.len() < 16 {
                return;
            }
        }
    }

    fn slot(&self) -> Result<u64, Refused> {
        match self.room() {
            0 if self.broken.is_some() => Err(Refused::Broken),
            0 => Err(Refused::Full),
            _ => Ok((self.given & (self.depth - 1)) * self.slot_len as u64),
        }
    }

    fn post(&mut self, at: u64, len: usize, operation: u32, immediate: u32, to: To) -> Result<(), Refused> {
        // Each reported completion costs the device time. Unless all are wanted, request only four per round of the slots.
        let signaled = self.signals_all || self.given % (self.depth / 4) == self.depth / 4 - 1;
        let local = self.slots.address() + at;
        let piece = Sge {
            address: local,
            len: len as u32,
            lkey: self.slots.lkey,
        };
        let request = SendRequest {
            work: self.given,
            next: std::ptr::null(),
            pieces: &raw const piece,
            count: i32::from(len > 0),
            operation,
            flags: if signaled { SIGNALED } else { 0 },
            immediate: immediate.to_be(),
            to,
            others: [0; 7],
        };
        let raw = self.pair.raw.ok_or(Refused::Broken)?;
        let mut bad = std::ptr::null();
        // SAFETY: the pair is open, and with it its device; request and piece are copied. The slot lies inside the registered
        // memory, and is not used again before the device has done with it.
        let result =
            unsafe { ((*(*raw.as_ptr()).context).post_send)(raw.as_ptr(), &raw const request, &raw mut bad) };
        let posted = posted(result);
        match posted {
            Ok(()) => self.given += 1,
            // A retry would fail likewise.
            Err(Refused::Broken) => self.broken = self.broken.or(Some(GENERAL_ERROR)),
            Err(_) => {}
        }
        posted
    }
}

/// Interprets what `ibv_post_send` returned: 0 or an `errno`, which some providers negate. ENOMEM alone means that the queue is full
/// (manual page ibv_post_send(3)).
fn posted(result: libc::c_int) -> Result<(), Refused> {
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
        assert_eq!(posted(0), Ok(()));
        assert_eq!(posted(libc::ENOMEM), Err(Refused::Full));
        assert_eq!(posted(-libc::ENOMEM), Err(Refused::Full));
        for errno in [
            libc::EINVAL,
            libc::EFAULT,
            -libc::EINVAL,
            libc::EIO,
            libc::c_int::MIN,
        ] {
            assert_eq!(posted(errno), Err(Refused::Broken), "{errno}");
        }
    }
}
