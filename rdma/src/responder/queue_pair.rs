//! State of one queue pair at the RoCEv2 responder: the expected PSN, the unfinished message and saved atomic results.

use wire::crc::{Crc32, crc_32_update};
use wire::roce::{HeaderTemplates, MixedFamilies, Psn, Transport, Writer};

use super::config::QueuePairConfig;

/// An unfinished message of several packets.
#[derive(Clone, Copy, Debug)]
pub(super) struct OpenMessage {
    /// Index of the region.
    pub(super) index: u8,
    /// R_Key of the region, because another region may reuse its index.
    pub(super) rkey: u32,
    /// Offset of the message's first byte in the region's memory.
    pub(super) start: u64,
    /// The message's first eight bytes, if they are written last ([`Entry::writes_head_last`]).
    ///
    /// [`Entry::writes_head_last`]: super::regions::Entry::writes_head_last
    pub(super) head: u64,
    /// Length of the message, bytes.
    pub(super) len: u32,
    /// Number of its bytes that have arrived.
    pub(super) received: u32,
}

/// The saved result of an executed atomic operation: the counter's original value.
#[derive(Clone, Copy, Debug)]
struct SavedAtomic {
    psn: Psn,
    original: u64,
}

/// State of a queue pair.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum QueuePairState {
    /// The queue pair accepts packets.
    Ready,
    /// The queue pair sent an error NAK and accepts no more packets.
    Error,
    /// Another responder executes its packets; see [`Responder::offload`](super::Responder::offload).
    Offloaded,
}

/// A queue pair of the responder.
#[derive(Debug)]
pub(super) struct QueuePair {
    pub(super) number: u32,
    pub(super) transport: Transport,
    pub(super) writer: Writer,
    /// Header templates of its recent packets, for the fast path.
    pub(super) templates: HeaderTemplates,
    pub(super) mtu: u32,
    pub(super) state: QueuePairState,
    pub(super) expected: Psn,
    /// Completed messages modulo 2^24 (MSN of the AETH).
    pub(super) messages: u32,
    /// A NAK was sent. The next NAK may follow only after the expected packet has arrived.
    pub(super) nak_sent: bool,
    /// An acknowledgement is due.
    pub(super) ack_due: bool,
    /// The queue pair is in the server's list of due acknowledgements.
    pub(super) is_ack_listed: bool,
    pub(super) open_message: Option<OpenMessage>,
    /// Receive credits left for messages with an immediate value and for sends.
    pub(super) receives: u32,
    saved_atomics: Box<[SavedAtomic]>,
    next_saved: usize,
}

/// Returns the CPU's CRC function if it is faster at this length, or the table-based one.
pub(super) fn choose_crc(len: usize) -> Crc32 {
    memory::crc_32(len).unwrap_or(crc_32_update)
}

impl QueuePair {
    pub(super) fn new(
        number: u32,
        config: &QueuePairConfig,
        atomic_depth: u32,
    ) -> Result<Self, MixedFamilies> {
        let depth = if config.transport == Transport::Rc {
            atomic_depth as usize
        } else {
            0
        };
        Ok(Self {
            number,
            transport: config.transport,
            writer: Writer::new(config.path, Transport::Rc, config.peer)?,
            templates: HeaderTemplates::with_crc(choose_crc),
            mtu: config.mtu,
            state: QueuePairState::Ready,
            expected: config.psn,
            messages: 0,
            nak_sent: false,
            ack_due: false,
            is_ack_listed: false,
            open_message: None,
            receives: config.receives,
            // A PSN that no request can have: half the sequence space from the first packet.
            saved_atomics: vec![
                SavedAtomic {
                    psn: config.psn.plus(1 << 23),
                    original: 0
                };
                depth
            ]
            .into(),
            next_saved: 0,
        })
    }

    /// Returns the PSN that a single-packet write must have for the fast path, or `None` if the fast path is not allowed.
    #[inline]
    pub(super) fn fast_path_psn(&self) -> Option<Psn> {
        (self.open_message.is_none() && self.state == QueuePairState::Ready).then_some(self.expected)
    }

    /// Advances past `count` packets that the fast path executed. Returns `true` if the queue pair must be added to the
    /// list of due acknowledgements.
    #[inline]
    pub(super) fn advance(&mut self, count: u32, ack_request: bool) -> bool {
        self.expected = self.expected.plus(count);
        self.messages = (self.messages + count) & 0xff_ffff;
        self.nak_sent = false;
        if self.transport != Transport::Rc || !ack_request {
            return false;
        }
        self.ack_due = true;
        !std::mem::replace(&mut self.is_ack_listed, true)
    }

    /// Counts a completed message.
    pub(super) fn complete(&mut self) {
        self.messages = (self.messages + 1) & 0xff_ffff;
    }

    /// Saves the result of an atomic operation, replacing the oldest one.
    pub(super) fn save_atomic(&mut self, psn: Psn, original: u64) {
        if let Some(oldest) = self.saved_atomics.get_mut(self.next_saved) {
            *oldest = SavedAtomic { psn, original };
            self.next_saved = (self.next_saved + 1) % self.saved_atomics.len();
        }
    }

    /// Returns the saved result of the atomic operation with this PSN.
    pub(super) fn saved_atomic(&self, psn: Psn) -> Option<u64> {
        self.saved_atomics
            .iter()
            .find(|saved| saved.psn == psn)
            .map(|saved| saved.original)
    }
}
