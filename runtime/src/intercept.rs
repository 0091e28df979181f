//! Channel between the switch and the translator in one process: DTA reports that the switch intercepted in one direction,
//! messages to their reporters in the other.
//!
//! Each direction has a slot for one batch. The sender stages datagrams in a batch of its own and swaps it with the slot when
//! the receiver has emptied the slot: one lock per burst, and no copy. A full batch accepts no more datagrams, so a direction
//! holds at most three batches.
//!
//! Every accepted datagram is received or counted as lost: a closing sender hands over everything staged, and `close` returns
//! the number of datagrams that the other end, already closed, cannot receive.

use std::{
    io::{Read, Write},
    net::SocketAddr,
    os::{
        fd::{AsFd, BorrowedFd},
        unix::net::UnixStream,
    },
    sync::{Arc, Mutex, TryLockError},
};

use crate::lock::lock;
use terminal::CliError;

/// Maximum payload bytes in a batch.
const MAX_BYTES: usize = 1 << 20;
/// Maximum datagrams of a batch.
const MAX_DATAGRAMS: usize = 8192;

/// The switch's end: sends reports and receives replies.
#[derive(Debug)]
pub struct SwitchEnd {
    /// Intercepted destinations, by index.
    pub destinations: Vec<SocketAddr>,
    /// Sends the intercepted reports to the translator.
    pub reports: Sender,
    /// Receives the translator's messages to reporters.
    pub replies: Receiver,
}

/// The translator's end: receives reports and sends replies.
#[derive(Debug)]
pub struct TranslatorEnd {
    /// Receives the reports that the switch intercepted.
    pub reports: Receiver,
    /// Sends messages to reporters through the switch.
    pub replies: Sender,
}

/// Creates the connected ends of the switch and the translator.
///
/// # Errors
/// The process has reached its limit on open files.
pub fn pair(destinations: Vec<SocketAddr>) -> Result<(SwitchEnd, TranslatorEnd), CliError> {
    let (reports, intercepted) = direction().map_err(direction_error)?;
    let (messages, replies) = direction().map_err(direction_error)?;
    Ok((
        SwitchEnd {
            destinations,
            reports,
            replies,
        },
        TranslatorEnd {
            reports: intercepted,
            replies: messages,
        },
    ))
}

fn direction_error(error: std::io::Error) -> CliError {
    CliError::io(
        "cannot connect the switch and the translator",
        error,
        "raise the limit on open files",
    )
}

fn direction() -> std::io::Result<(Sender, Receiver)> {
    let slot = Arc::new(Mutex::new(Slot::default()));
    let (wake, wake_receiver) = UnixStream::pair()?;
    wake.set_nonblocking(true)?;
    wake_receiver.set_nonblocking(true)?;
    let sender = Sender {
        staged: Batch::default(),
        slot: Arc::clone(&slot),
        wake,
    };
    Ok((
        sender,
        Receiver {
            current: Batch::default(),
            slot,
            wake_receiver,
        },
    ))
}

/// State that the two ends of a direction share.
#[derive(Debug, Default)]
struct Slot {
    batch: Batch,
    /// True once the receiver has closed.
    closed: bool,
}

/// Datagrams, each with its peer and the index of its destination.
#[derive(Debug, Default)]
pub struct Batch {
    bytes: Vec<u8>,
    datagrams: Vec<Datagram>,
}

#[derive(Clone, Copy, Debug)]
struct Datagram {
    start: usize,
    end: usize,
    destination: usize,
    peer: SocketAddr,
}

impl Batch {
    /// Adds a datagram. Returns false if the batch is full.
    fn push(&mut self, destination: usize, peer: SocketAddr, payload: &[u8]) -> bool {
        let start = self.bytes.len();
        let end = start + payload.len();
        if end > MAX_BYTES || self.datagrams.len() == MAX_DATAGRAMS {
            return false;
        }
        self.bytes.extend_from_slice(payload);
        self.datagrams.push(Datagram {
            start,
            end,
            destination,
            peer,
        });
        true
    }

    /// Appends all datagrams of `other`, even beyond the limits of a batch.
    fn append(&mut self, other: &mut Self) {
        let offset = self.bytes.len();
        self.bytes.append(&mut other.bytes);
        let moved = other.datagrams.drain(..);
        self.datagrams.extend(moved.map(|datagram| Datagram {
            start: datagram.start + offset,
            end: datagram.end + offset,
            ..datagram
        }));
    }

    fn is_empty(&self) -> bool {
        self.datagrams.is_empty()
    }

    fn len(&self) -> u64 {
        self.datagrams.len() as u64
    }

    fn clear(&mut self) {
        self.bytes.clear();
        self.datagrams.clear();
    }

    /// Iterates over the datagrams as `(destination index, peer, payload)`.
    pub fn datagrams(&self) -> impl Iterator<Item = (usize, SocketAddr, &[u8])> {
        self.datagrams.iter().map(|datagram| {
            (
                datagram.destination,
                datagram.peer,
                &self.bytes[datagram.start..datagram.end],
            )
        })
    }

    /// Iterates over runs of datagrams with the same destination: the destination's index, and peer and payload of each
    /// datagram.
    pub fn runs(&self) -> impl Iterator<Item = (usize, impl Iterator<Item = (SocketAddr, &[u8])>)> {
        let runs = self.datagrams.chunk_by(|a, b| a.destination == b.destination);
        runs.map(|run| {
            (
                run[0].destination,
                run.iter()
                    .map(|datagram| (datagram.peer, &self.bytes[datagram.start..datagram.end])),
            )
        })
    }
}

/// The sending end of a direction.
#[derive(Debug)]
pub struct Sender {
    staged: Batch,
    slot: Arc<Mutex<Slot>>,
    wake: UnixStream,
}

impl Sender {
    /// Stages a datagram. Returns false if the batch is full because the receiver does not keep up.
    pub fn push(&mut self, destination: usize, peer: SocketAddr, payload: &[u8]) -> bool {
        self.staged.push(destination, peer, payload)
    }

    /// Passes the staged datagrams to the receiver. Returns false if the previous batch is still in the slot; try again soon.
    pub fn flush(&mut self) -> bool {
        if self.staged.is_empty() {
            return true;
        }
        {
            let mut slot = match self.slot.try_lock() {
                Ok(slot) => slot,
                Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
                Err(TryLockError::WouldBlock) => return false,
            };
            if slot.closed || !slot.batch.is_empty() {
                return false;
            }
            std::mem::swap(&mut slot.batch, &mut self.staged);
        }
        // An error is harmless: a full socket buffer wakes the receiver anyway.
        let _ = self.wake.write(&[0]);
        true
    }

    /// Passes on all staged datagrams even if the slot is occupied; call it when nothing more will be sent. Returns the number
    /// of datagrams lost because the receiver has closed.
    pub fn close(&mut self) -> u64 {
        let mut slot = lock(&self.slot);
        if slot.closed {
            let lost = self.staged.len();
            self.staged.clear();
            return lost;
        }
        slot.batch.append(&mut self.staged);
        drop(slot);
        let _ = self.wake.write(&[0]);
        0
    }

    /// Returns whether datagrams are staged.
    pub fn is_pending(&self) -> bool {
        !self.staged.is_empty()
    }
}

/// The receiving end of a direction.
#[derive(Debug)]
pub struct Receiver {
    current: Batch,
    slot: Arc<Mutex<Slot>>,
    wake_receiver: UnixStream,
}

impl Receiver {
    /// Returns the next batch, which may be empty. The previous one is discarded.
    pub fn receive(&mut self) -> &Batch {
        self.current.clear();
        // Drain the wake-up socket before the slot: a batch that arrives in between wakes the receiver again.
        if matches!(self.wake_receiver.read(&mut [0; 64]), Ok(1..)) {
            std::mem::swap(&mut lock(&self.slot).batch, &mut self.current);
        }
        &self.current
    }

    /// Closes the receiver. Returns the number of datagrams lost because they were passed on but not received.
    pub fn close(&mut self) -> u64 {
        let mut slot = lock(&self.slot);
        slot.closed = true;
        let lost = slot.batch.len();
        slot.batch.clear();
        lost
    }

    /// Returns a descriptor that is readable when a batch is ready.
    pub fn as_fd(&self) -> BorrowedFd<'_> {
        self.wake_receiver.as_fd()
    }
}

impl Drop for Receiver {
    /// Closes the receiver after a panic. Normally it is already closed and its losses are counted.
    fn drop(&mut self) {
        self.close();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(port: u16) -> SocketAddr {
        SocketAddr::from(([10, 0, 0, 1], port))
    }

    #[test]
    fn batches_arrive_whole_and_in_order() {
        let (mut switch, mut translator) = pair(vec![peer(1)]).unwrap();
        assert!(switch.reports.flush() && translator.reports.receive().is_empty());
        for round in 0..3_u16 {
            assert!(switch.reports.push(0, peer(round), b"one") && switch.reports.push(1, peer(9), b""));
            assert!(switch.reports.flush());
            // The second waits until the first is taken.
            assert!(switch.reports.push(2, peer(7), b"later") && !switch.reports.flush());
            assert!(switch.reports.is_pending());
            let batch: Vec<_> = translator.reports.receive().datagrams().collect();
            assert_eq!(batch, [(0, peer(round), &b"one"[..]), (1, peer(9), &b""[..])]);
            assert!(switch.reports.flush() && !switch.reports.is_pending());
            let batch: Vec<_> = translator.reports.receive().datagrams().collect();
            assert_eq!(batch, [(2, peer(7), &b"later"[..])]);
            assert!(translator.reports.receive().is_empty());
        }
        assert!(translator.replies.push(0, peer(5), b"nack") && translator.replies.flush());
        assert_eq!(switch.replies.receive().datagrams().count(), 1);
    }

    #[test]
    fn a_receiver_that_does_not_keep_up_bounds_the_memory() {
        let (mut switch, mut translator) = pair(vec![peer(1)]).unwrap();
        let mut push = |size: usize| {
            let accepted =
                (0..2 * MAX_DATAGRAMS).take_while(|_| switch.reports.push(0, peer(1), &vec![7; size]));
            let accepted = accepted.count();
            switch.reports.flush();
            accepted
        };
        // In the slot, and staged.
        assert_eq!(
            (push(0), push(1000), push(1000)),
            (MAX_DATAGRAMS, MAX_BYTES / 1000, 0)
        );
        assert_eq!(translator.reports.receive().datagrams().count(), MAX_DATAGRAMS);
        assert!(switch.reports.flush());
        assert_eq!(translator.reports.receive().datagrams().count(), MAX_BYTES / 1000);
    }

    /// Stages `count` datagrams, and returns how many were accepted.
    fn send(sender: &mut Sender, count: usize) -> u64 {
        (0..count).filter(|_| sender.push(0, peer(1), b"report")).count() as u64
    }

    #[test]
    fn a_sender_that_closes_hands_over_all_that_it_accepted() {
        let (mut switch, mut translator) = pair(vec![peer(1)]).unwrap();
        let first = send(&mut switch.reports, 10);
        assert!(switch.reports.flush());
        let later = send(&mut switch.reports, MAX_DATAGRAMS + 7);
        assert!(!switch.reports.flush(), "the first batch is not taken");
        assert_eq!((first, later), (10, MAX_DATAGRAMS as u64), "7 found no room");
        assert_eq!((switch.reports.close(), switch.reports.is_pending()), (0, false));
        let received: Vec<_> = translator
            .reports
            .receive()
            .datagrams()
            .map(|(_, _, bytes)| bytes)
            .collect();
        assert_eq!(received, vec![&b"report"[..]; (first + later) as usize]);
        assert_eq!(translator.reports.close(), 0);
    }

    #[test]
    fn what_a_receiver_that_closes_leaves_is_counted_once() {
        let (mut switch, mut translator) = pair(vec![peer(1)]).unwrap();
        let first = send(&mut switch.reports, 10);
        assert!(switch.reports.flush());
        let received = translator.reports.receive().len();
        let second = send(&mut switch.reports, 20);
        assert!(switch.reports.flush());
        let third = send(&mut switch.reports, 30);
        let lost = (translator.reports.close(), switch.reports.close());
        assert_eq!((received, lost), (10, (20, 30)));
        assert_eq!(
            first + second + third,
            received + lost.0 + lost.1,
            "in = out + drops"
        );
        assert_eq!(
            (translator.reports.close(), switch.reports.close()),
            (0, 0),
            "counted once"
        );
        assert!(translator.reports.receive().is_empty() && switch.reports.flush());
    }

    #[test]
    fn a_sender_notices_that_the_receiver_is_gone() {
        let (mut switch, translator) = pair(vec![peer(1)]).unwrap();
        drop(translator);
        assert_eq!(send(&mut switch.reports, 5), 5);
        assert!(!switch.reports.flush() && switch.reports.is_pending());
        assert_eq!(switch.reports.close(), 5);
    }
}
