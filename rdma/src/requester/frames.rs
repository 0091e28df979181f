//! Builds the RoCEv2 frames of one queue pair: RDMA WRITE in one or several packets, and FETCH AND ADD.

use wire::crc::crc_32_update;
use wire::roce::{AtomicEth, Head, Opcode, Path, Psn, Reth, Segments, Transport, Writer};

// Ethernet with a VLAN tag, IPv6, UDP, BTH, AtomicETH (the longest extension), padding, ICRC.
const MAX_HEADERS_LEN: usize = 18 + 40 + 8 + 12 + 28 + 3 + 4;

/// Remote address, R_Key and length of an operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Target {
    pub(super) address: u64,
    pub(super) rkey: u32,
    pub(super) len: u32,
}

/// Returns the number of packets that a message of `len` bytes needs at this path MTU.
#[inline]
pub(super) fn frames_for(len: u32, mtu: u32) -> u32 {
    Segments::count(len as usize, mtu as u16) as u32
}

/// The data and immediate value of a write.
#[derive(Clone, Copy, Debug)]
pub(super) struct Payload<'a> {
    pub(super) data: &'a [u8],
    pub(super) immediate: Option<u32>,
}

/// The position of a packet in its message.
#[derive(Clone, Copy, Debug)]
pub(super) struct PacketPosition {
    pub(super) index: u32,
    /// The path MTU, bytes of payload.
    pub(super) mtu: u32,
}

/// Returns the maximum length in bytes of a frame with this payload, assuming the longest headers.
#[inline]
pub(super) const fn max_frame_len(payload: u32) -> usize {
    payload as usize + MAX_HEADERS_LEN
}

/// Builds the frames of one queue pair, with cached headers.
#[derive(Debug)]
pub(super) struct Framer(Writer);

impl Framer {
    /// Creates a framer that sends to the remote queue pair `queue_pair`, or returns `None` if the path mixes IPv4 and
    /// IPv6.
    pub(super) fn new(path: &Path, transport: Transport, queue_pair: u32) -> Option<Self> {
        let writer = Writer::new(*path, transport, queue_pair).ok()?;
        // Uses the CPU's CRC instructions if they are faster at this length.
        let writer = writer.with_crc(|len| memory::crc_32(len).unwrap_or(crc_32_update));
        Some(Self(writer))
    }

    /// Builds one packet of a write in `out` and returns the frame's length, or 0 if `out` is too short.
    #[inline]
    pub(super) fn write(
        &mut self,
        out: &mut [u8],
        head: Head,
        target: &Target,
        position: PacketPosition,
        payload: Payload<'_>,
    ) -> usize {
        let reth = Reth {
            address: target.address,
            rkey: target.rkey,
            len: target.len,
        };
        let Payload { data, immediate } = payload;
        if target.len <= position.mtu {
            let frame_len = match immediate {
                None => self.0.write_only(out, head, reth, data),
                Some(immediate) => self
                    .0
                    .write_only_immediate(out, solicited(head), reth, immediate, data),
            };
            return frame_len.unwrap_or(0);
        }
        self.segment(out, head, reth, position, payload)
    }

    fn segment(
        &mut self,
        out: &mut [u8],
        head: Head,
        reth: Reth,
        position: PacketPosition,
        payload: Payload<'_>,
    ) -> usize {
        let Payload { data, immediate } = payload;
        let start = position.index as usize * position.mtu as usize;
        let end = (start + position.mtu as usize).min(data.len());
        let Some(data) = data.get(start..end) else {
            return 0;
        };
        let frame_len = match (immediate, start, end == payload.data.len()) {
            (_, 0, _) => self.0.write_first(out, head, reth, data),
            (_, _, false) => self.0.write_middle(out, head, data),
            (None, _, true) => self.0.write_last(out, head, data),
            (Some(immediate), _, true) => self.0.write_last_immediate(out, solicited(head), immediate, data),
        };
        frame_len.unwrap_or(0)
    }

    /// Builds a fetch-and-add in `out` and returns the frame's length, or 0 if `out` is too short.
    #[inline]
    pub(super) fn add(&mut self, out: &mut [u8], psn: Psn, target: &Target, delta: u64) -> usize {
        let head = Head {
            psn,
            ack_request: true,
            solicited: false,
        };
        let atomic = AtomicEth {
            address: target.address,
            rkey: target.rkey,
            add: delta,
            compare: 0,
        };
        self.0.fetch_add(out, head, atomic).unwrap_or(0)
    }
}

/// Sets the solicited event bit, so that the immediate value wakes the collector's program.
fn solicited(head: Head) -> Head {
    Head {
        solicited: true,
        ..head
    }
}

const _: () = assert!(
    MAX_HEADERS_LEN >= wire::roce::MAX_FRAME - wire::roce::MAX_PAYLOAD
        && Opcode::FetchAdd.extension_len() <= 28
);
