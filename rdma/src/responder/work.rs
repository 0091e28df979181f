//! Executes one request packet on its queue pair by the rules of the InfiniBand specification (volume 1, chapter 9).
//!
//! RC: a gap causes one NAK, a duplicate is answered again without execution, and an error stops the queue pair. UC: there
//! are no responses, and after a loss execution continues with the next message.

use wire::Refusal;
use wire::roce::{Aeth, Nak, Opcode, Packet, Psn, Syndrome, Transport};

use super::config::Config;
use super::queue_pair::{Open, QueuePair, QueuePairState};
use super::regions::{Access, Entry, Regions};
use super::stats::{Reason, Stats};
use super::{Completion, Output};

/// Maximum length of a response, bytes.
const MAX_RESPONSE_LEN: usize = 128;

/// The outcome of a packet.
pub(super) enum Verdict {
    Executed,
    Duplicate,
    Dropped(Reason),
}

/// Borrowed state for the execution of one packet.
pub(super) struct Work<'a, O> {
    pub(super) config: &'a Config,
    pub(super) regions: &'a Regions,
    pub(super) stats: &'a mut Stats,
    pub(super) out: &'a mut O,
}

/// A validated packet of a write.
struct Step {
    /// The region's index and the payload's offset in its memory; `None` if the message is empty.
    target: Option<(u8, u64)>,
    /// The unfinished message after this packet; `None` if the message is complete.
    open: Option<Open>,
    /// The message's region index, the offset of its first byte in the memory, and its length in bytes.
    message: (Option<u8>, u64, u32),
}

impl<O: Output> Work<'_, O> {
    /// Executes a packet if it comes from the peer and fits the queue pair's state and transport.
    #[inline]
    pub(super) fn execute(&mut self, queue_pair: &mut QueuePair, packet: &Packet<'_>) -> Verdict {
        if packet.ends.source != queue_pair.writer.path().destination {
            return Verdict::Dropped(Reason::WrongPeer);
        }
        match queue_pair.state {
            QueuePairState::Ready => {}
            QueuePairState::Error => return Verdict::Dropped(Reason::QueuePairInError),
            QueuePairState::Offloaded => return Verdict::Dropped(Reason::Offloaded),
        }
        if packet.bth.transport != Some(queue_pair.transport) || is_response(packet.bth.opcode) {
            return Verdict::Dropped(Reason::WrongTransport);
        }
        if queue_pair.transport == Transport::Rc {
            self.reliable(queue_pair, packet)
        } else {
            self.unreliable(queue_pair, packet)
        }
    }

    // Unreliable connections (UC).

    #[inline]
    fn unreliable(&mut self, queue_pair: &mut QueuePair, packet: &Packet<'_>) -> Verdict {
        let psn = packet.bth.psn;
        let begins = begins(packet.bth.opcode);
        let ahead = psn.distance(queue_pair.expected);
        if ahead != 0 {
            self.count_gap(ahead);
        }
        // The rest of an unfinished message is lost after a gap, and when another message begins.
        if ahead != 0 || begins {
            self.abandon(queue_pair);
        }
        queue_pair.expected = psn.next();
        if !begins && queue_pair.open.is_none() {
            return Verdict::Dropped(Reason::FirstMissing);
        }
        match self.run(queue_pair, packet) {
            Ok(_) => Verdict::Executed,
            Err(reason) => {
                self.abandon(queue_pair);
                Verdict::Dropped(reason)
            }
        }
    }

    /// Counts skipped PSNs, or a packet that arrived late. `ahead` is its distance from the expected PSN.
    #[cold]
    fn count_gap(&mut self, ahead: i32) {
        if ahead > 0 {
            self.stats.skipped += u64::from(ahead.unsigned_abs());
        } else {
            self.stats.out_of_order += 1;
            self.stats.out_of_order_by += u64::from(ahead.unsigned_abs());
        }
    }

    fn abandon(&mut self, queue_pair: &mut QueuePair) {
        if queue_pair.open.take().is_some() {
            self.stats.abandoned += 1;
        }
    }

    // Reliable connections (RC).

    #[inline]
    fn reliable(&mut self, queue_pair: &mut QueuePair, packet: &Packet<'_>) -> Verdict {
        let ahead = packet.bth.psn.distance(queue_pair.expected);
        if ahead > 0 {
            if !queue_pair.nak_sent {
                self.send_nak(queue_pair, Syndrome::Nak(Nak::SequenceError));
            }
            return Verdict::Dropped(Reason::Ahead);
        }
        if ahead < 0 {
            return self.duplicate(queue_pair, packet);
        }
        let psn = packet.bth.psn;
        match if packet.atomic.is_some() {
            self.add(queue_pair, packet)
        } else {
            self.run(queue_pair, packet)
        } {
            Ok(original) => {
                queue_pair.nak_sent = false;
                queue_pair.expected = psn.next();
                match original {
                    Some(original) => self.respond_atomic(queue_pair, psn, original),
                    None => queue_pair.ack_due |= packet.bth.ack_request,
                }
                Verdict::Executed
            }
            Err(reason) => {
                self.respond_with_error(queue_pair, reason);
                Verdict::Dropped(reason)
            }
        }
    }

    /// Answers a duplicate without executing it again.
    fn duplicate(&mut self, queue_pair: &mut QueuePair, packet: &Packet<'_>) -> Verdict {
        if packet.atomic.is_none() {
            queue_pair.ack_due = true;
            return Verdict::Duplicate;
        }
        match queue_pair.saved(packet.bth.psn) {
            Some(original) => {
                self.respond_atomic(queue_pair, packet.bth.psn, original);
                Verdict::Duplicate
            }
            None => Verdict::Dropped(Reason::ResultOverwritten),
        }
    }

    fn respond_with_error(&mut self, queue_pair: &mut QueuePair, reason: Reason) {
        let syndrome = match reason {
            Reason::NoReceive => Syndrome::Rnr(self.config.not_ready_timer),
            Reason::BadRkey | Reason::AccessDenied | Reason::OutOfRange => Syndrome::Nak(Nak::RemoteAccess),
            _ => Syndrome::Nak(Nak::InvalidRequest),
        };
        self.send_nak(queue_pair, syndrome);
        if reason != Reason::NoReceive {
            queue_pair.state = QueuePairState::Error;
            self.abandon(queue_pair);
        }
    }

    // Both transport services.

    /// Executes a packet of a write or a send. Returns `Ok(None)`: only atomic operations have a result.
    #[inline]
    fn run(&mut self, queue_pair: &mut QueuePair, packet: &Packet<'_>) -> Result<Option<u64>, Reason> {
        let opcode = packet.bth.opcode;
        if let Some(fault) = packet.fault {
            return Err(if fault == Refusal::BadRoceOpcode {
                Reason::BadOpcode
            } else {
                Reason::BadLength
            });
        }
        if begins(opcode) == queue_pair.open.is_some() {
            return Err(Reason::BadSequence);
        }
        let needs_receive = packet.immediate.is_some() || opcode == Opcode::SendOnly;
        if needs_receive && queue_pair.receives == 0 {
            return Err(Reason::NoReceive);
        }
        if opcode == Opcode::SendOnly {
            return self.send(queue_pair, packet);
        }
        let mut step = self.check(queue_pair, packet)?;
        if let Some((index, at)) = step.target
            && let Some(entry) = self.regions.at(index)
        {
            self.store(entry, at, packet.payload, queue_pair.open, &mut step);
        }
        queue_pair.open = step.open;
        if step.open.is_none() {
            queue_pair.complete();
            self.stats.messages += 1;
            if let Some(immediate) = packet.immediate {
                self.notify(queue_pair, &step, immediate);
            }
        }
        Ok(None)
    }

    /// Stores a packet's payload at memory offset `at`; `open` is the unfinished message before this packet.
    #[inline]
    fn store(&mut self, entry: &Entry, at: u64, payload: &[u8], open: Option<Open>, step: &mut Step) {
        self.stats.bytes += payload.len() as u64;
        let start = step.message.1;
        let done = open.map_or(0, |open| open.done);
        let mut head = open.map_or(0, |open| open.head);
        match &mut step.open {
            None if open.is_none() => entry.store(at, payload),
            None => entry.store_part(start, done, payload, true, &mut head),
            Some(next) => {
                entry.store_part(start, done, payload, false, &mut head);
                next.head = head;
            }
        }
    }

    /// Completes a message with an immediate value: consumes a receive and informs the output.
    fn notify(&mut self, queue_pair: &mut QueuePair, step: &Step, immediate: u32) {
        queue_pair.receives -= 1;
        self.stats.completions += 1;
        let (index, at, len) = step.message;
        let location = index
            .and_then(|index| self.regions.at(index))
            .map(|entry| (entry.region, entry.offset(at)));
        self.out.complete(&Completion {
            queue_pair: queue_pair.number,
            immediate,
            location,
            len,
        });
    }

    /// Executes a SEND ONLY packet: consumes a receive and passes the payload to the output.
    fn send(&mut self, queue_pair: &mut QueuePair, packet: &Packet<'_>) -> Result<Option<u64>, Reason> {
        if packet.payload.len() > queue_pair.mtu as usize {
            return Err(Reason::BadLength);
        }
        queue_pair.receives -= 1;
        queue_pair.complete();
        self.stats.messages += 1;
        self.stats.completions += 1;
        self.out.sent(queue_pair.number, packet.payload);
        Ok(None)
    }

    /// Validates a packet of a write: its region, its range, and its length against the message's progress.
    #[inline]
    fn check(&self, queue_pair: &QueuePair, packet: &Packet<'_>) -> Result<Step, Reason> {
        let len = packet.payload.len() as u32;
        let ends = ends(packet.bth.opcode);
        let (index, start, total, done) = match (&packet.reth, queue_pair.open) {
            (Some(reth), _) if reth.len == 0 => (None, 0, 0, 0),
            (Some(reth), _) => {
                let (index, at) = self
                    .regions
                    .find(reth.rkey, reth.address, reth.len, Access::Write)?;
                (Some(index), at, reth.len, 0)
            }
            (None, Some(open)) => {
                // The region may have been deregistered and its index reused.
                self.regions
                    .at(open.index)
                    .filter(|entry| entry.has(open.rkey))
                    .ok_or(Reason::BadRkey)?;
                (Some(open.index), open.start, open.total, open.done)
            }
            (None, None) => return Err(Reason::BadSequence),
        };
        let left = total - done;
        let good = if ends {
            len == left && len <= queue_pair.mtu
        } else {
            len == queue_pair.mtu && len < left
        };
        if !good {
            return Err(Reason::BadLength);
        }
        let at = start + u64::from(done);
        let open = match index {
            Some(index) if !ends => {
                let rkey = packet
                    .reth
                    .as_ref()
                    .map(|reth| reth.rkey)
                    .or(queue_pair.open.map(|open| open.rkey));
                Some(Open {
                    index,
                    rkey: rkey.unwrap_or(0),
                    start,
                    head: 0,
                    total,
                    done: done + len,
                })
            }
            _ => None,
        };
        Ok(Step {
            target: index.map(|index| (index, at)),
            open,
            message: (index, start, total),
        })
    }

    /// Executes a fetch-and-add. Saves its result, so that a duplicate gets the same response.
    fn add(&mut self, queue_pair: &mut QueuePair, packet: &Packet<'_>) -> Result<Option<u64>, Reason> {
        if packet.fault.is_some() {
            return Err(Reason::BadLength);
        }
        if queue_pair.open.is_some() {
            return Err(Reason::BadSequence);
        }
        let atomic = packet.atomic.as_ref().ok_or(Reason::BadLength)?;
        let (index, at) = self
            .regions
            .find(atomic.rkey, atomic.address, 8, Access::Atomic)?;
        if !atomic.address.is_multiple_of(8) {
            return Err(Reason::Misaligned);
        }
        let entry = self.regions.at(index).ok_or(Reason::BadRkey)?;
        let original = entry
            .memory
            .fetch_add(at, atomic.add)
            .map_err(|_| Reason::Misaligned)?;
        queue_pair.save(packet.bth.psn, original);
        queue_pair.complete();
        self.stats.messages += 1;
        self.stats.fetch_adds += 1;
        Ok(Some(original))
    }

    // Responses.

    /// Acknowledges everything before the expected PSN.
    pub(super) fn acknowledge(&mut self, queue_pair: &mut QueuePair) {
        // Adding 2^24 - 1 subtracts one from a 24-bit PSN.
        let psn = queue_pair.expected.plus(0xff_ffff);
        self.stats.acks += 1;
        self.respond(queue_pair, psn, Syndrome::ACK);
    }

    fn send_nak(&mut self, queue_pair: &mut QueuePair, syndrome: Syndrome) {
        // Index in `Stats::naks`.
        let kind = match syndrome {
            Syndrome::Nak(Nak::SequenceError) => 0,
            Syndrome::Rnr(_) => 1,
            _ => 2,
        };
        self.stats.naks[kind] += 1;
        // A NAK also acknowledges everything before it.
        queue_pair.ack_due = false;
        queue_pair.nak_sent = true;
        self.respond(queue_pair, queue_pair.expected, syndrome);
    }

    fn respond(&mut self, queue_pair: &mut QueuePair, psn: Psn, syndrome: Syndrome) {
        let mut frame = [0; MAX_RESPONSE_LEN];
        let aeth = Aeth {
            syndrome,
            msn: queue_pair.messages,
        };
        // Cannot fail: a response has no payload and fits the buffer.
        let len = queue_pair.writer.acknowledge(&mut frame, psn, aeth).unwrap_or(0);
        self.out.respond(queue_pair.writer.path(), &frame[..len]);
    }

    fn respond_atomic(&mut self, queue_pair: &mut QueuePair, psn: Psn, original: u64) {
        let mut frame = [0; MAX_RESPONSE_LEN];
        let len = queue_pair
            .writer
            .atomic_ack(&mut frame, psn, queue_pair.messages, original)
            .unwrap_or(0);
        if psn.next() == queue_pair.expected {
            queue_pair.ack_due = false;
        }
        self.stats.atomic_acks += 1;
        self.out.respond(queue_pair.writer.path(), &frame[..len]);
    }
}

/// Returns whether a packet is the first of a message.
#[inline]
fn begins(opcode: Opcode) -> bool {
    !matches!(
        opcode,
        Opcode::WriteMiddle | Opcode::WriteLast | Opcode::WriteLastImmediate
    )
}

/// Returns whether a packet is the last of a message.
#[inline]
fn ends(opcode: Opcode) -> bool {
    !matches!(opcode, Opcode::WriteFirst | Opcode::WriteMiddle)
}

/// Returns whether a packet with this opcode goes to a requester.
#[inline]
fn is_response(opcode: Opcode) -> bool {
    matches!(
        opcode,
        Opcode::Acknowledge | Opcode::AtomicAcknowledge | Opcode::Cnp
    )
}
