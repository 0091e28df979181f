//! A queue pair at the responder: which packet comes next, and what is under way.

use wire::crc::{Crc32, crc_32_update};
use wire::roce::{Beginnings, MixedFamilies, Psn, Transport, Writer};

use super::config::QueuePairConfig;

/// A message of several packets that is under way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Open {
    /// Where its first byte went: region and offset in the memory.
    pub(super) index: u8,
    /// The region's key: another region in the same place is another one.
    pub(super) rkey: u32,
    pub(super) start: u64,
    /// The first eight bytes, where they are kept back until all of it is there ([`Entry::holds_back`]).
    ///
    /// [`Entry::holds_back`]: super::regions::Entry::holds_back
    pub(super) head: u64,
    /// Its length, and how much has come.
    pub(super) total: u32,
    pub(super) done: u32,
}

/// An atomic operation that was executed.
#[derive(Clone, Copy, Debug)]
struct Saved {
    psn: Psn,
    original: u64,
}

/// How a queue pair stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum QueuePairState {
    /// It takes packets.
    Ready,
    /// It answered with an error and takes none any more.
    Error,
    /// Another responder executes its packets: see [`Responder::lend`](super::Responder::lend).
    Lent,
}

/// A queue pair.
#[derive(Debug)]
pub(super) struct QueuePair {
    pub(super) number: u32,
    pub(super) transport: Transport,
    pub(super) writer: Writer,
    /// Beginnings of its packets.
    pub(super) beginnings: Beginnings,
    pub(super) mtu: u32,
    pub(super) state: QueuePairState,
    /// The next packet.
    pub(super) expected: Psn,
    /// Messages completed, 24 bits of it.
    pub(super) messages: u32,
    /// Nothing but the expected packet is worth another negative acknowledgement.
    pub(super) nak_sent: bool,
    /// An acknowledgement is owed.
    pub(super) owes: bool,
    /// It is in the list of those that owed one.
    pub(super) listed: bool,
    pub(super) open: Option<Open>,
    /// Messages with an immediate, and sends, that may still come.
    pub(super) receives: u32,
    saved: Box<[Saved]>,
    saved_next: usize,
}

/// Computes CRCs by the processor's own instructions, where there are any for this length.
pub(super) fn choose_crc(len: usize) -> Crc32 {
    memory::crc_32(len).unwrap_or(crc_32_update)
}

impl QueuePair {
    pub(super) fn new(
        number: u32,
        config: &QueuePairConfig,
        atomic_depth: u32,
    ) -> Result<Self, MixedFamilies> {
        let depth = if config.transport == Transport::Rc { atomic_depth as usize } else { 0 };
        Ok(Self {
            number,
            transport: config.transport,
            writer: Writer::new(config.path, Transport::Rc, config.peer)?,
            beginnings: Beginnings::with_crc(choose_crc),
            mtu: config.mtu,
            state: QueuePairState::Ready,
            expected: config.psn,
            messages: 0,
            nak_sent: false,
            owes: false,
            listed: false,
            open: None,
            receives: config.receives,
            // A result that no request asks for: half the number space away from the first packet.
            saved: vec![Saved { psn: config.psn.plus(1 << 23), original: 0 }; depth].into(),
            saved_next: 0,
        })
    }

    /// The number of the write in one packet that is simply executed; none if no write is.
    #[inline]
    pub(super) fn takes(&self) -> Option<Psn> {
        (self.open.is_none() && self.state == QueuePairState::Ready).then_some(self.expected)
    }

    /// So many of them were, one after the other; whether an acknowledgement is owed that was not before.
    #[inline]
    pub(super) fn advance(&mut self, count: u32, ack_request: bool) -> bool {
        self.expected = self.expected.plus(count);
        self.messages = (self.messages + count) & 0xff_ffff;
        self.nak_sent = false;
        if self.transport != Transport::Rc || !ack_request {
            return false;
        }
        self.owes = true;
        !std::mem::replace(&mut self.listed, true)
    }

    /// One more message was completed.
    pub(super) fn complete(&mut self) {
        self.messages = (self.messages + 1) & 0xff_ffff;
    }

    /// Keeps the result of an atomic operation; the oldest one makes room.
    pub(super) fn save(&mut self, psn: Psn, original: u64) {
        if let Some(place) = self.saved.get_mut(self.saved_next) {
            *place = Saved { psn, original };
            self.saved_next = (self.saved_next + 1) % self.saved.len();
        }
    }

    /// The result of the atomic operation that had this number.
    pub(super) fn saved(&self, psn: Psn) -> Option<u64> {
        self.saved.iter().find(|saved| saved.psn == psn).map(|saved| saved.original)
    }
}
