//! Executes one request packet on its queue pair by the rules of the InfiniBand specification (volume 1, chapter 9).
//!
//! RC: a gap causes one NAK, a duplicate is answered again without execution, and an error stops the queue pair. UC: there
//! are no responses, and after a loss execution continues with the next message.

use wire::Refusal;
use wire::roce::{Aeth, Nak, Opcode, Packet, Psn, Syndrome, Transport};

use super::config::Config;
use super::queue_pair::{OpenMessage, QueuePair, QueuePairState};
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
pub(super) struct PacketExecution<'a, O> {
    pub(super) config: &'a Config,
    pub(super) regions: &'a Regions,
    pub(super) stats: &'a mut Stats,
    pub(super) out: &'a mut O,
}

/// A validated packet of a write.
struct ValidWrite {
    message: Message,
    /// Offset of the payload in the region's memory.
    payload_offset: u64,
    /// The unfinished message after this packet; `None` if the message is complete.
    open_message: Option<OpenMessage>,
}

/// The target of a write message.
#[derive(Clone, Copy)]
struct Message {
    /// Index of the region; `None` if the message is empty.
    region: Option<u8>,
    /// Offset of the message's first byte in the region's memory.
    start: u64,
    /// Length of the message, bytes.
    len: u32,
}

impl Message {
    const EMPTY: Self = Self {
        region: None,
        start: 0,
        len: 0,
    };
}

impl<O: Output> PacketExecution<'_, O> {
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
            self.execute_rc(queue_pair, packet)
        } else {
            self.execute_uc(queue_pair, packet)
        }
    }

    // Unreliable connections (UC).

    #[inline]
    fn execute_uc(&mut self, queue_pair: &mut QueuePair, packet: &Packet<'_>) -> Verdict {
        let psn = packet.bth.psn;
        let is_first = is_first(packet.bth.opcode);
        let ahead = psn.distance(queue_pair.expected);
        if ahead != 0 {
            self.count_gap(ahead);
        }
        // The rest of an unfinished message is lost after a gap, and when another message begins.
        if ahead != 0 || is_first {
            self.abandon_message(queue_pair);
        }
        queue_pair.expected = psn.next();
        if !is_first && queue_pair.open_message.is_none() {
            return Verdict::Dropped(Reason::FirstMissing);
        }
        match self.execute_request(queue_pair, packet) {
            Ok(_) => Verdict::Executed,
            Err(reason) => {
                self.abandon_message(queue_pair);
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

    fn abandon_message(&mut self, queue_pair: &mut QueuePair) {
        if queue_pair.open_message.take().is_some() {
            self.stats.abandoned += 1;
        }
    }

    // Reliable connections (RC).

    #[inline]
    fn execute_rc(&mut self, queue_pair: &mut QueuePair, packet: &Packet<'_>) -> Verdict {
        let ahead = packet.bth.psn.distance(queue_pair.expected);
        if ahead > 0 {
            if !queue_pair.nak_sent {
                self.send_nak(queue_pair, Syndrome::Nak(Nak::SequenceError));
            }
            return Verdict::Dropped(Reason::Ahead);
        }
        if ahead < 0 {
            return self.answer_duplicate(queue_pair, packet);
        }
        let psn = packet.bth.psn;
        match if packet.atomic.is_some() {
            self.fetch_add(queue_pair, packet)
        } else {
            self.execute_request(queue_pair, packet)
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
    fn answer_duplicate(&mut self, queue_pair: &mut QueuePair, packet: &Packet<'_>) -> Verdict {
        if packet.atomic.is_none() {
            queue_pair.ack_due = true;
            return Verdict::Duplicate;
        }
        match queue_pair.saved_atomic(packet.bth.psn) {
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
            self.abandon_message(queue_pair);
        }
    }

    // Both transport services.

    /// Executes a packet of a write or a send. Returns `Ok(None)`: only atomic operations have a result.
    #[inline]
    fn execute_request(
        &mut self,
        queue_pair: &mut QueuePair,
        packet: &Packet<'_>,
    ) -> Result<Option<u64>, Reason> {
        let opcode = packet.bth.opcode;
        if let Some(fault) = packet.fault {
            return Err(if fault == Refusal::BadRoceOpcode {
                Reason::BadOpcode
            } else {
                Reason::BadLength
            });
        }
        if is_first(opcode) == queue_pair.open_message.is_some() {
            return Err(Reason::BadSequence);
        }
        let needs_receive = packet.immediate.is_some() || opcode == Opcode::SendOnly;
        if needs_receive && queue_pair.receives == 0 {
            return Err(Reason::NoReceive);
        }
        if opcode == Opcode::SendOnly {
            return self.send(queue_pair, packet);
        }
        let mut write = self.validate_write(queue_pair, packet)?;
        if let Some(region) = write.message.region
            && let Some(entry) = self.regions.at(region)
        {
            self.store_payload(entry, packet.payload, queue_pair.open_message, &mut write);
        }
        queue_pair.open_message = write.open_message;
        if write.open_message.is_none() {
            queue_pair.complete();
            self.stats.messages += 1;
            if let Some(immediate) = packet.immediate {
                self.notify(queue_pair, &write, immediate);
            }
        }
        Ok(None)
    }

    /// Stores a packet's payload. `previous` is the unfinished message before this packet.
    #[inline]
    fn store_payload(
        &mut self,
        entry: &Entry,
        payload: &[u8],
        previous: Option<OpenMessage>,
        write: &mut ValidWrite,
    ) {
        self.stats.bytes += payload.len() as u64;
        let start = write.message.start;
        let received = previous.map_or(0, |message| message.received);
        let mut head = previous.map_or(0, |message| message.head);
        match &mut write.open_message {
            None if previous.is_none() => entry.store(write.payload_offset, payload),
            None => entry.store_part(start, received, payload, true, &mut head),
            Some(message) => {
                entry.store_part(start, received, payload, false, &mut head);
                message.head = head;
            }
        }
    }

    /// Completes a message with an immediate value: consumes a receive and informs the output.
    fn notify(&mut self, queue_pair: &mut QueuePair, write: &ValidWrite, immediate: u32) {
        queue_pair.receives -= 1;
        self.stats.completions += 1;
        let Message { region, start, len } = write.message;
        let location = region
            .and_then(|region| self.regions.at(region))
            .map(|entry| (entry.region, entry.region_offset(start)));
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
    fn validate_write(&self, queue_pair: &QueuePair, packet: &Packet<'_>) -> Result<ValidWrite, Reason> {
        let len = packet.payload.len() as u32;
        let is_last = is_last(packet.bth.opcode);
        let (message, received) = match (&packet.reth, queue_pair.open_message) {
            (Some(reth), _) if reth.len == 0 => (Message::EMPTY, 0),
            (Some(reth), _) => {
                let (region, start) = self
                    .regions
                    .find(reth.rkey, reth.address, reth.len, Access::Write)?;
                let message = Message {
                    region: Some(region),
                    start,
                    len: reth.len,
                };
                (message, 0)
            }
            (None, Some(open)) => {
                // The region may have been deregistered and its index reused.
                self.regions
                    .at(open.index)
                    .filter(|entry| entry.has_rkey(open.rkey))
                    .ok_or(Reason::BadRkey)?;
                let message = Message {
                    region: Some(open.index),
                    start: open.start,
                    len: open.len,
                };
                (message, open.received)
            }
            (None, None) => return Err(Reason::BadSequence),
        };
        let remaining = message.len - received;
        let has_expected_len = if is_last {
            len == remaining && len <= queue_pair.mtu
        } else {
            len == queue_pair.mtu && len < remaining
        };
        if !has_expected_len {
            return Err(Reason::BadLength);
        }
        let open_message = match message.region {
            Some(index) if !is_last => {
                let rkey = packet
                    .reth
                    .as_ref()
                    .map(|reth| reth.rkey)
                    .or(queue_pair.open_message.map(|open| open.rkey));
                Some(OpenMessage {
                    index,
                    rkey: rkey.unwrap_or(0),
                    start: message.start,
                    head: 0,
                    len: message.len,
                    received: received + len,
                })
            }
            _ => None,
        };
        Ok(ValidWrite {
            message,
            payload_offset: message.start + u64::from(received),
            open_message,
        })
    }

    /// Executes a fetch-and-add. Saves its result, so that a duplicate gets the same response.
    fn fetch_add(&mut self, queue_pair: &mut QueuePair, packet: &Packet<'_>) -> Result<Option<u64>, Reason> {
        if packet.fault.is_some() {
            return Err(Reason::BadLength);
        }
        if queue_pair.open_message.is_some() {
            return Err(Reason::BadSequence);
        }
        let atomic = packet.atomic.as_ref().ok_or(Reason::BadLength)?;
        let (region, offset) = self
            .regions
            .find(atomic.rkey, atomic.address, 8, Access::Atomic)?;
        if !atomic.address.is_multiple_of(8) {
            return Err(Reason::Misaligned);
        }
        let entry = self.regions.at(region).ok_or(Reason::BadRkey)?;
        let original = entry
            .memory
            .fetch_add(offset, atomic.add)
            .map_err(|_| Reason::Misaligned)?;
        queue_pair.save_atomic(packet.bth.psn, original);
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
        let nak_kind = match syndrome {
            Syndrome::Nak(Nak::SequenceError) => 0,
            Syndrome::Rnr(_) => 1,
            _ => 2,
        };
        self.stats.naks[nak_kind] += 1;
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
fn is_first(opcode: Opcode) -> bool {
    !matches!(
        opcode,
        Opcode::WriteMiddle | Opcode::WriteLast | Opcode::WriteLastImmediate
    )
}

/// Returns whether a packet is the last of a message.
#[inline]
fn is_last(opcode: Opcode) -> bool {
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
