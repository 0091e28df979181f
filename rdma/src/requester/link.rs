//! The requester's link to one collector: an unreliable queue pair (UC) for operations that may be lost, and a reliable one
//! (RC).
//!
//! An unreliable operation becomes frames at once and is not stored. A reliable operation goes to the retransmit buffer
//! (`retransmit.rs`), and [`CollectorLink::send_due`] sends it. RC allows only go-back-N: after a loss, everything from the
//! first unacknowledged packet is sent again.
//!
//! ```text
//! PSN:     unacknowledged         next            sent_end
//!               ▼                  ▼                 ▼
//!   ─ acked ─── │ ─── in flight ── │ ─ sent before ─ │ ── never sent ──►
//!                                    (after a rewind)
//! ```

use wire::roce::{self, Head, Nak, Opcode, Psn, Syndrome, Transport};

use super::config::{Config, Connection, End, Offer, REGIONS, RemoteRegion, UncertainFetchAdds};
use super::frames::{Framer, PacketPosition, Payload, Target, frames_for, max_frame_len};
use super::outbox::Outbox;
use super::retransmit::{Destination, Operation, OperationKind, RetransmitBuffer};
use super::stats::{GivenUp, Refused, Response, Stats};
use crate::seed::mix;
use crate::transport::{Blocked, Credit};

/// Smallest window, packets; losses do not reduce it further.
const MIN_WINDOW: u32 = 16;
/// Deadline of a timer that is not running.
const NEVER: u64 = u64::MAX;

wire::named! {
    /// The reason why a connection broke.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum Cause, name {
        /// No response after all retries.
        NoResponse => "no_response",
        /// NAK: invalid request (syndrome 0x61).
        InvalidRequest => "invalid_request",
        /// NAK: remote access error (syndrome 0x62).
        RemoteAccess => "remote_access",
        /// NAK: remote operational error (syndrome 0x63).
        RemoteOperational => "remote_operational",
    }
}

/// State of a link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    /// Never connected, or disconnected.
    Down,
    /// The collector is connected.
    Up,
    /// The reliable queue pair failed; the program must reconnect.
    Broken(Cause),
}

/// The sending half of a queue pair.
#[derive(Debug)]
struct QueuePair {
    framer: Framer,
    /// PSN of the next new packet.
    psn: Psn,
}

/// The link to one collector.
#[derive(Debug)]
pub(super) struct CollectorLink {
    collector: u8,
    pub(super) state: State,
    pub(super) event: Option<Cause>,
    generation: u32,
    seed: u64,
    offer: Option<Offer>,
    /// Local queue pairs of the current connection. `offer` above is for the next one.
    connected_offer: Option<Offer>,
    peer: Option<roce::Path>,
    mtu: u32,
    max_message: u32,
    regions: Box<[RemoteRegion]>,
    unreliable: Option<QueuePair>,
    /// Reliable queue pair; its `psn` follows the last operation in the retransmit buffer.
    reliable: Option<QueuePair>,
    retransmit: RetransmitBuffer,
    /// Position of the next operation to send, and how many of its packets are sent.
    cursor: u64,
    cursor_packets: u32,
    /// First unacknowledged PSN, next PSN to send, and the PSN after the highest one ever sent.
    unacknowledged: Psn,
    next: Psn,
    sent_end: Psn,
    outstanding_atomics: u32,
    atomic_depth: u32,
    /// Maximum number of packets in flight, see [`CollectorLink::apply_response`].
    window: u32,
    /// Expiry of the retransmission timer, ns.
    deadline: u64,
    consecutive_timeouts: u32,
    /// End of the pause after congestion or a loss, ns.
    paused_until: u64,
    /// End of the pause that an RNR NAK requests, ns.
    not_ready_until: u64,
    pub(super) stats: Stats,
}

impl CollectorLink {
    pub(super) fn new(collector: u8, config: &Config) -> Self {
        let seed = mix(config.seed ^ (u64::from(collector) << 32));
        let no_region = RemoteRegion {
            region: 0,
            address: 0,
            len: 0,
            rkey: 0,
        };
        Self {
            collector,
            state: State::Down,
            event: None,
            generation: seed as u32 & 0x3fff,
            seed,
            offer: None,
            connected_offer: None,
            peer: None,
            mtu: 1024,
            max_message: config.max_message.min(config.retransmit_bytes as u32),
            regions: vec![no_region; REGIONS].into(),
            unreliable: None,
            reliable: None,
            retransmit: RetransmitBuffer::new(config.retransmit_operations, config.retransmit_bytes),
            cursor: 0,
            cursor_packets: 0,
            unacknowledged: Psn::default(),
            next: Psn::default(),
            sent_end: Psn::default(),
            outstanding_atomics: 0,
            atomic_depth: 1,
            window: config.window,
            deadline: NEVER,
            consecutive_timeouts: 0,
            paused_until: 0,
            not_ready_until: 0,
            stats: Stats::default(),
        }
    }

    // Connecting.

    /// Creates queue pair numbers and first PSNs for the next connection. Numbers repeat after 32,767 connections, so that
    /// late packets of old connections do not match. The lowest bit tells reliable (1) from unreliable (0); the next eight
    /// hold the collector.
    pub(super) fn offer(&mut self) -> Offer {
        self.generation = self.generation % 0x7fff + 1;
        self.seed = mix(self.seed);
        let queue_pair = self.generation << 9 | u32::from(self.collector) << 1;
        let unreliable = End {
            queue_pair,
            psn: Psn::new(self.seed as u32 & 0xff_ffff),
        };
        let reliable = End {
            queue_pair: queue_pair | 1,
            psn: Psn::new((self.seed >> 24) as u32 & 0xff_ffff),
        };
        let offer = Offer { unreliable, reliable };
        self.offer = Some(offer);
        offer
    }

    pub(super) fn connect(&mut self, to: &Connection<'_>, config: &Config) -> Result<(), String> {
        check(to)?;
        let no_offer = "nothing was offered to this collector since its last connection";
        let offer = self.offer.take().ok_or(no_offer)?;
        if let Some(executed) = to.executed {
            self.acknowledge_executed(executed);
        }
        self.regions.fill(RemoteRegion {
            region: 0,
            address: 0,
            len: 0,
            rkey: 0,
        });
        for region in to.regions {
            self.regions[usize::from(region.region)] = *region;
        }
        self.peer = Some(to.path);
        self.mtu = to.mtu;
        self.atomic_depth = to.atomic_depth.max(1);
        let unreliable = to
            .unreliable
            .and_then(|queue_pair| Framer::new(&to.path, Transport::Uc, queue_pair));
        self.unreliable = unreliable.map(|framer| QueuePair {
            framer,
            psn: offer.unreliable.psn,
        });
        self.connected_offer = Some(offer);
        self.assign_new_psns(offer.reliable.psn, config.uncertain_fetch_adds);
        let psn = self.psn_after_buffer(offer);
        let reliable = to
            .reliable
            .and_then(|queue_pair| Framer::new(&to.path, Transport::Rc, queue_pair));
        self.reliable = reliable.map(|framer| QueuePair { framer, psn });
        self.state = State::Up;
        self.event = None;
        self.window = config.window;
        self.deadline = NEVER;
        self.consecutive_timeouts = 0;
        self.paused_until = 0;
        self.not_ready_until = 0;
        self.stats.connections += 1;
        Ok(())
    }

    /// Returns the PSN for the next operation, after those in the retransmit buffer.
    fn psn_after_buffer(&self, offer: Offer) -> Psn {
        if self.retransmit.first() == self.retransmit.end() {
            offer.reliable.psn
        } else {
            self.retransmit.at(self.retransmit.end() - 1).next_psn()
        }
    }

    /// Acknowledges the operations before `executed`, the PSN that the collector expected last.
    fn acknowledge_executed(&mut self, executed: Psn) {
        let ahead = executed.distance(self.unacknowledged);
        if self.connected_offer.is_some()
            && (0..=self.sent_end.distance(self.unacknowledged)).contains(&ahead)
        {
            self.acknowledge(executed);
            self.mark_rest_unsent();
        }
    }

    /// Marks the remaining operations as not executed, so that fetch-and-adds can be sent again without risk.
    fn mark_rest_unsent(&mut self) {
        for position in self.retransmit.first()..self.retransmit.end() {
            self.retransmit.operation_mut(position).was_sent = false;
        }
    }

    /// Marks the operations for this region as outdated; the next connection does not send them.
    pub(super) fn mark_outdated(&mut self, region: u16) {
        for position in self.retransmit.first()..self.retransmit.end() {
            let operation = self.retransmit.operation_mut(position);
            operation.outdated |= operation.to.region == region;
        }
    }

    /// Assigns the new connection's PSNs to the retransmit buffer. Operations that cannot be sent there are given up and
    /// keep zero packets.
    fn assign_new_psns(&mut self, first: Psn, uncertain: UncertainFetchAdds) {
        let mut psn = first;
        for position in self.retransmit.first()..self.retransmit.end() {
            let mut operation = *self.retransmit.at(position);
            let give_up_reason = self.check_resend(&operation, uncertain);
            if let Some(reason) = give_up_reason
                && operation.packets > 0
            {
                self.stats.given_up[reason as usize] += 1;
                self.stats.unacknowledged -= 1;
            }
            operation.packets = if give_up_reason.is_some() {
                0
            } else {
                frames_for(operation.len(), self.mtu)
            };
            operation.psn = psn;
            operation.was_sent = false;
            psn = operation.next_psn();
            *self.retransmit.operation_mut(position) = operation;
        }
        self.cursor = self.retransmit.first();
        self.cursor_packets = 0;
        self.unacknowledged = first;
        self.next = first;
        self.sent_end = first;
        self.outstanding_atomics = 0;
        self.forget_acknowledged();
    }

    /// Returns the reason to give up an operation, or `None` to send it on the new connection.
    fn check_resend(&mut self, operation: &Operation, uncertain: UncertainFetchAdds) -> Option<GivenUp> {
        let len = if matches!(operation.kind, OperationKind::Add(_)) {
            8
        } else {
            operation.len()
        };
        let is_obsolete = operation.packets == 0 || operation.outdated;
        if is_obsolete || self.target(operation.to, len).is_err() {
            return Some(GivenUp::NoPlace);
        }
        if operation.was_sent && matches!(operation.kind, OperationKind::Add(_)) {
            if uncertain == UncertainFetchAdds::GiveUp {
                return Some(GivenUp::Uncertain);
            }
            self.stats.uncertain_fetch_adds += 1;
        }
        if operation.was_sent && operation.immediate.is_some() {
            self.stats.uncertain_immediates += 1;
        }
        None
    }

    pub(super) fn disconnect(&mut self) {
        self.state = State::Down;
        self.event = None;
        self.deadline = NEVER;
    }

    /// Ends the connection because of an error that only a new connection can resolve.
    fn fail_connection(&mut self, cause: Cause) {
        self.state = State::Broken(cause);
        self.event = Some(cause);
        self.deadline = NEVER;
        self.stats.broken += 1;
    }

    // Accepting operations.

    /// Returns how many operations, with how many bytes of data in total, the link accepts now.
    pub(super) fn credit(&self, reliable: bool, outbox: &Outbox, now: u64) -> Credit {
        if self.connected_offer.is_none() {
            return Credit::NONE;
        }
        if reliable || self.unreliable.is_none() {
            return Credit {
                messages: self.retransmit.free() as u32,
                bytes: self.retransmit.free_bytes() as u64,
            };
        }
        if !self.may_send_unreliable(now) {
            return Credit::NONE;
        }
        // An operation's frames have at least one first frame, and long ones have more. Reserves half of the free frames
        // for each.
        let frames = outbox.free_frames().min(outbox.free_bytes() / max_frame_len(0));
        let messages = frames.div_ceil(2);
        let rest = outbox.free_bytes().saturating_sub(messages * max_frame_len(0));
        let further = (frames - messages).min(rest / max_frame_len(self.mtu));
        let bytes = ((further + 1) * self.mtu as usize).min(rest - further * max_frame_len(0));
        Credit {
            messages: messages as u32,
            bytes: bytes as u64,
        }
    }

    /// Returns whether the link now accepts `required.messages` operations with `required.bytes` of data in total.
    #[inline]
    pub(super) fn has_credit(&self, required: Credit, reliable: bool, outbox: &Outbox, now: u64) -> bool {
        if self.connected_offer.is_none() {
            return false;
        }
        let Credit { messages, bytes } = required;
        if reliable || self.unreliable.is_none() {
            return self.retransmit.free() as u64 >= u64::from(messages)
                && self.retransmit.free_bytes() as u64 >= bytes;
        }
        // Each message wastes less than one frame. The path MTU is a power of two, so a shift divides by it.
        let frames = u64::from(messages) + (bytes.saturating_sub(1) >> self.mtu.trailing_zeros());
        let required = frames
            .saturating_mul(max_frame_len(0) as u64)
            .saturating_add(bytes);
        self.may_send_unreliable(now)
            && frames <= outbox.free_frames() as u64
            && required <= outbox.free_bytes() as u64
    }

    /// Returns whether unreliable operations can be sent now.
    #[inline]
    fn may_send_unreliable(&self, now: u64) -> bool {
        self.state == State::Up && now >= self.paused_until
    }

    /// Accepts a write. An unreliable write is framed at once; a reliable one goes to the retransmit buffer.
    pub(super) fn write(
        &mut self,
        to: Destination,
        payload: Payload<'_>,
        reliable: bool,
        now: u64,
        outbox: &mut Outbox,
    ) -> Result<(), Refused> {
        let Payload { data, immediate } = payload;
        if data.len() > self.max_message as usize {
            return Err(Refused::TooLong);
        }
        let target = self.target(to, data.len() as u32)?;
        if !reliable && self.unreliable.is_some() {
            if now < self.paused_until {
                return Err(Refused::Paused);
            }
            return self.write_now(target, payload, outbox);
        }
        if self.reliable.is_none() {
            return Err(Refused::NoReliable);
        }
        if !self.retransmit.push_write(to, [data, &[]], immediate) {
            return Err(Refused::RetransmitFull);
        }
        self.assign_psns();
        Ok(())
    }

    /// Accepts a fetch-and-add. An immediate value follows as an empty write, since FETCH AND ADD cannot carry one.
    pub(super) fn add(&mut self, to: Destination, delta: u64, immediate: Option<u32>) -> Result<(), Refused> {
        self.target(to, 8)?;
        if !to.offset.is_multiple_of(8) {
            return Err(Refused::Misaligned);
        }
        if self.reliable.is_none() {
            return Err(Refused::NoReliable);
        }
        if self.retransmit.free() < 1 + usize::from(immediate.is_some()) {
            return Err(Refused::RetransmitFull);
        }
        self.retransmit.push_add(to, delta);
        self.assign_psns();
        self.stats.fetch_adds += 1;
        if immediate.is_some() {
            self.retransmit.push_write(to, [&[], &[]], immediate);
            self.assign_psns();
        }
        Ok(())
    }

    /// Counts an operation that was not accepted.
    #[cold]
    pub(super) fn refuse(&mut self, reason: Refused) -> Blocked {
        self.stats.refused[reason as usize] += 1;
        match reason {
            Refused::Down => Blocked::Broken,
            Refused::Paused => Blocked::Paused,
            Refused::OutboxFull | Refused::RetransmitFull => Blocked::Full,
            Refused::NoRegion | Refused::NoReliable => Blocked::NoRegion,
            Refused::OutOfRange | Refused::Misaligned | Refused::TooLong => Blocked::OutOfRegion,
        }
    }

    /// Assigns PSNs to the newest operation in the retransmit buffer.
    fn assign_psns(&mut self) {
        let position = self.retransmit.end() - 1;
        let len = self.retransmit.at(position).len();
        let psn = self
            .reliable
            .as_ref()
            .map_or(Psn::default(), |queue_pair| queue_pair.psn);
        let operation = self.retransmit.operation_mut(position);
        operation.psn = psn;
        operation.packets = frames_for(len, self.mtu);
        let next_psn = operation.next_psn();
        if let Some(queue_pair) = &mut self.reliable {
            queue_pair.psn = next_psn;
        }
        self.stats.reliable += 1;
        self.stats.unacknowledged += 1;
    }

    /// Returns the remote address and R_Key of `len` bytes at an offset in a region.
    #[inline]
    fn target(&self, to: Destination, len: u32) -> Result<Target, Refused> {
        let Destination { region, offset } = to;
        let Some(known_region) = self.regions.get(usize::from(region)) else {
            return Err(Refused::NoRegion);
        };
        if known_region.len == 0 {
            return Err(if self.connected_offer.is_some() {
                Refused::NoRegion
            } else {
                Refused::Down
            });
        }
        match offset.checked_add(u64::from(len)) {
            Some(end) if end <= known_region.len => Ok(Target {
                address: known_region.address.wrapping_add(offset),
                rkey: known_region.rkey,
                len,
            }),
            _ => Err(Refused::OutOfRange),
        }
    }

    /// Builds the frames of an unreliable write directly in the outbox.
    #[inline]
    fn write_now(
        &mut self,
        target: Target,
        payload: Payload<'_>,
        outbox: &mut Outbox,
    ) -> Result<(), Refused> {
        if self.state != State::Up {
            return Err(Refused::Down);
        }
        let Some(queue_pair) = &mut self.unreliable else {
            return Err(Refused::Down);
        };
        let frames = frames_for(target.len, self.mtu);
        let bytes = frames as usize * max_frame_len(0) + target.len as usize;
        if !outbox.has_space(frames as usize, bytes) {
            return Err(Refused::OutboxFull);
        }
        for index in 0..frames {
            let head = Head::new(queue_pair.psn);
            let position = PacketPosition { index, mtu: self.mtu };
            let len = queue_pair
                .framer
                .write(outbox.space(), head, &target, position, payload);
            outbox.push(self.collector, len);
            self.stats.bytes += len as u64;
            queue_pair.psn = queue_pair.psn.next();
        }
        self.stats.frames += u64::from(frames);
        self.stats.unreliable += 1;
        Ok(())
    }

    // Sending reliable operations.

    /// Builds frames of reliable operations until the window, a pause or the outbox stops it.
    pub(super) fn send_due(&mut self, now: u64, config: &Config, outbox: &mut Outbox) {
        if self.state != State::Up || now < self.paused_until || now < self.not_ready_until {
            return;
        }
        while self.may_send(outbox, 1) {
            let operation = *self.retransmit.at(self.cursor);
            if operation.packets == 0 {
                self.cursor += 1;
                continue;
            }
            let last = self.cursor_packets + 1 == operation.packets;
            // Every `ack_every`-th operation requests an acknowledgement.
            let requests_ack = last && self.cursor.is_multiple_of(u64::from(config.ack_every));
            self.send(
                &operation,
                requests_ack || !self.can_continue(last, outbox),
                outbox,
            );
            if last {
                self.outstanding_atomics += u32::from(matches!(operation.kind, OperationKind::Add(_)));
                self.cursor += 1;
                self.cursor_packets = 0;
            } else {
                self.cursor_packets += 1;
            }
            if self.deadline == NEVER {
                self.deadline = now.saturating_add(config.timeout);
            }
        }
    }

    /// Returns whether `packets` more packets can be sent from the cursor on.
    fn may_send(&self, outbox: &Outbox, packets: u32) -> bool {
        let in_flight = self.next.distance(self.unacknowledged).max(0) as u32;
        self.cursor < self.retransmit.end()
            && in_flight + packets <= self.window
            && outbox.has_space(packets as usize, packets as usize * max_frame_len(self.mtu))
            && (self.outstanding_atomics < self.atomic_depth
                || !matches!(self.retransmit.at(self.cursor).kind, OperationKind::Add(_)))
    }

    /// Returns whether another packet can follow the packet at the cursor at once. If not, the packet at the cursor must
    /// request an acknowledgement, or the link would stall. Returns `false` if in doubt.
    fn can_continue(&self, last: bool, outbox: &Outbox) -> bool {
        let next = self.cursor + u64::from(last);
        next < self.retransmit.end() && self.retransmit.at(next).packets > 0 && self.may_send(outbox, 2) && {
            // The packet at the cursor may be a fetch-and-add too, so one more may be outstanding by then.
            let fetch_adds = matches!(self.retransmit.at(next).kind, OperationKind::Add(_));
            !fetch_adds || self.outstanding_atomics + 1 < self.atomic_depth
        }
    }

    fn send(&mut self, operation: &Operation, ack_request: bool, outbox: &mut Outbox) {
        let Ok(target) = self.target(operation.to, operation.len()) else {
            return;
        };
        let Some(queue_pair) = &mut self.reliable else {
            return;
        };
        let out = outbox.space();
        let len = match operation.kind {
            OperationKind::Add(delta) => queue_pair.framer.add(out, self.next, &target, delta),
            OperationKind::Write(_) => {
                let data = self.retransmit.data(self.cursor);
                let position = PacketPosition {
                    index: self.cursor_packets,
                    mtu: self.mtu,
                };
                let payload = Payload {
                    data,
                    immediate: operation.immediate,
                };
                let head = Head {
                    psn: self.next,
                    ack_request,
                    solicited: false,
                };
                queue_pair.framer.write(out, head, &target, position, payload)
            }
        };
        outbox.push(self.collector, len);
        self.stats.frames += 1;
        self.stats.bytes += len as u64;
        self.retransmit.operation_mut(self.cursor).was_sent = true;
        let is_retransmission = self.next.distance(self.sent_end) < 0;
        self.stats.retransmitted += u64::from(is_retransmission);
        self.next = self.next.next();
        if !is_retransmission {
            self.sent_end = self.next;
        }
    }

    /// Moves the cursor back to the first unacknowledged packet.
    fn rewind(&mut self) {
        self.cursor = self.retransmit.first();
        self.next = self.unacknowledged;
        self.outstanding_atomics = 0;
        self.cursor_packets = if self.cursor < self.retransmit.end() {
            self.unacknowledged
                .distance(self.retransmit.at(self.cursor).psn)
                .max(0) as u32
        } else {
            0
        };
    }

    // Receiving.

    /// Processes a packet to one of the local queue pairs.
    pub(super) fn receive(&mut self, now: u64, packet: &roce::Packet<'_>, config: &Config) {
        let response = self.process(now, packet, config);
        self.stats.responses[response as usize] += 1;
    }

    fn process(&mut self, now: u64, packet: &roce::Packet<'_>, config: &Config) -> Response {
        let queue_pair = packet.bth.queue_pair;
        let Some(connected_offer) = self.connected_offer.filter(|connected_offer| {
            queue_pair == connected_offer.unreliable.queue_pair
                || queue_pair == connected_offer.reliable.queue_pair
        }) else {
            return Response::UnknownQueuePair;
        };
        if self.state != State::Up {
            return Response::UnknownQueuePair;
        }
        if self
            .peer
            .is_none_or(|peer| packet.ends.source != peer.destination)
        {
            return Response::WrongPeer;
        }
        match packet.bth.opcode {
            _ if packet.fault.is_some() => Response::Unexpected,
            Opcode::Cnp => {
                self.paused_until = now.saturating_add(config.pause_on_congestion);
                Response::Congestion
            }
            Opcode::Acknowledge | Opcode::AtomicAcknowledge
                if queue_pair == connected_offer.reliable.queue_pair =>
            {
                match packet.aeth {
                    Some(aeth) => self.apply_response(now, packet.bth.psn, aeth.syndrome, config),
                    None => Response::Unexpected,
                }
            }
            _ => Response::Unexpected,
        }
    }

    /// Handles an acknowledgement or NAK with this PSN.
    fn apply_response(&mut self, now: u64, psn: Psn, syndrome: Syndrome, config: &Config) -> Response {
        let ahead = psn.distance(self.unacknowledged);
        if ahead < 0 || ahead >= self.sent_end.distance(self.unacknowledged) {
            return Response::Stale;
        }
        let response = match syndrome {
            Syndrome::Ack(_) => {
                self.acknowledge(psn.next());
                Response::Ack
            }
            Syndrome::Rnr(timer) => {
                self.acknowledge(psn);
                self.rewind();
                self.not_ready_until = now.saturating_add(roce::rnr_nanoseconds(timer));
                Response::ReceiverNotReady
            }
            Syndrome::Nak(Nak::SequenceError) => {
                self.acknowledge(psn);
                self.rewind();
                self.shrink_window(config);
                self.paused_until = self.paused_until.max(now.saturating_add(config.pause_on_loss));
                Response::SequenceError
            }
            Syndrome::Nak(nak) => return self.apply_refusal(psn, nak),
            Syndrome::Reserved(_) => return Response::Unexpected,
        };
        self.consecutive_timeouts = 0;
        let is_in_flight = self.next.distance(self.unacknowledged) > 0;
        // During an RNR pause nothing is in flight; the timer starts again with the next packet.
        self.deadline = if is_in_flight {
            now.saturating_add(config.timeout)
        } else {
            NEVER
        };
        if response == Response::Ack {
            // The window grows by one packet, and by an eighth of the packets that this ACK covers beyond the first.
            self.window = (self.window + 1 + ahead as u32 / 8).min(config.window);
        }
        response
    }

    /// Handles a NAK that refuses the operation at `psn` and ends the connection. Everything before it is executed. The
    /// next connection sends the operation again, because its region may have a new R_Key; after a second refusal it is
    /// given up.
    fn apply_refusal(&mut self, psn: Psn, nak: Nak) -> Response {
        let (cause, response) = match nak {
            Nak::InvalidRequest => (Cause::InvalidRequest, Response::InvalidRequest),
            Nak::RemoteAccess => (Cause::RemoteAccess, Response::RemoteAccess),
            Nak::RemoteOperational => (Cause::RemoteOperational, Response::RemoteOperational),
            Nak::SequenceError | Nak::Other(_) => return Response::Unexpected,
        };
        self.acknowledge(psn);
        let first = self.retransmit.first();
        if first < self.retransmit.end() {
            let operation = self.retransmit.operation_mut(first);
            if operation.was_refused {
                self.retransmit.pop();
                self.stats.given_up[GivenUp::RefusedTwice as usize] += 1;
                self.stats.unacknowledged -= 1;
            } else {
                operation.was_refused = true;
            }
        }
        self.rewind();
        self.mark_rest_unsent();
        self.fail_connection(cause);
        response
    }

    /// Acknowledges everything before `end`.
    fn acknowledge(&mut self, end: Psn) {
        self.unacknowledged = end;
        self.forget_acknowledged();
        if self.next.distance(end) < 0 || self.cursor < self.retransmit.first() {
            // A late acknowledgement covers packets that are about to be sent again: skip them.
            self.rewind();
        }
    }

    /// Removes operations from the retransmit buffer that are fully acknowledged or given up.
    fn forget_acknowledged(&mut self) {
        while self.retransmit.first() < self.retransmit.end() {
            let operation = self.retransmit.at(self.retransmit.first());
            if operation.next_psn().distance(self.unacknowledged) > 0 {
                return;
            }
            let was_given_up = operation.packets == 0;
            let add = matches!(operation.kind, OperationKind::Add(_));
            if !was_given_up {
                self.stats.acknowledged += 1;
                self.stats.unacknowledged -= 1;
            }
            if add && self.retransmit.first() < self.cursor {
                self.outstanding_atomics = self.outstanding_atomics.saturating_sub(1);
            }
            self.retransmit.pop();
        }
    }

    // Time.

    /// Returns the time at which [`tick`](Self::tick) has work, ns; `u64::MAX` if never.
    pub(super) fn deadline(&self, now: u64) -> u64 {
        if self.state != State::Up {
            return NEVER;
        }
        let pause = self.paused_until.max(self.not_ready_until);
        let resume = if self.cursor < self.retransmit.end() && pause > now {
            pause
        } else {
            NEVER
        };
        self.deadline.min(resume)
    }

    /// Handles an expired timer: sends everything in flight again, or breaks the connection after too many attempts.
    pub(super) fn tick(&mut self, now: u64, config: &Config) {
        if self.state != State::Up || now < self.deadline {
            return;
        }
        self.stats.timeouts += 1;
        self.consecutive_timeouts += 1;
        if self.consecutive_timeouts > config.retries {
            self.fail_connection(Cause::NoResponse);
            return;
        }
        self.rewind();
        self.shrink_window(config);
        self.deadline = NEVER;
    }

    /// Halves the window after a loss, down to [`MIN_WINDOW`] or to a configured window that is smaller.
    fn shrink_window(&mut self, config: &Config) {
        self.window = (self.window / 2).max(MIN_WINDOW.min(config.window));
    }
}

fn check(to: &Connection<'_>) -> Result<(), String> {
    if !matches!(to.mtu, 256 | 512 | 1024 | 2048 | 4096) {
        return Err("the path MTU is not 256, 512, 1024, 2048 or 4096".to_owned());
    }
    if to.unreliable.is_none() && to.reliable.is_none() {
        return Err("the collector named no queue pair".to_owned());
    }
    if to.path.source.is_ipv4() != to.path.destination.is_ipv4() {
        return Err("one end of the path is IPv4 and the other IPv6".to_owned());
    }
    for region in to.regions {
        if usize::from(region.region) >= REGIONS || region.address.checked_add(region.len).is_none() {
            return Err(format!(
                "region {}: number or addresses are too large",
                region.region
            ));
        }
    }
    Ok(())
}
