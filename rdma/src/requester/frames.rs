//! Frames of one queue pair.

use wire::crc::crc_32_update;
use wire::roce::{AtomicEth, Head, Opcode, Path, Psn, Reth, Segments, Transport, Writer};

/// Where an operation goes, in the collector's own terms.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Target {
    pub(super) address: u64,
    pub(super) rkey: u32,
    pub(super) len: u32,
}

/// Frames that a message of so many bytes takes.
#[inline]
pub(super) fn frames_for(len: u32, mtu: u32) -> u32 {
    Segments::count(len as usize, mtu as u16) as u32
}

/// Bytes of a frame with so much payload, at most: with the longest headers that there are.
#[inline]
pub(super) const fn most_bytes(payload: u32) -> usize {
    payload as usize + HEADERS
}

/// Ethernet with a VLAN tag, IPv6, UDP, base header, the longest extension, padding, CRC.
const HEADERS: usize = 18 + 40 + 8 + 12 + 28 + 3 + 4;

/// Makes the frames of one queue pair.
#[derive(Debug)]
pub(super) struct Framer(Writer);

impl Framer {
    /// Of a queue pair to the other end's number; none if the path's addresses are of two families.
    pub(super) fn new(path: &Path, transport: Transport, queue_pair: u32) -> Option<Self> {
        // By the processor's instructions, where there are any for this length.
        let choose = |len| memory::crc_32(len).unwrap_or(crc_32_update);
        Writer::new(*path, transport, queue_pair).ok().map(|writer| Self(writer.with_crc(choose)))
    }

    /// A frame of a write: the `index`th of the packets that the message takes. Its length; 0 if `out` is too short.
    #[inline]
    pub(super) fn write(
        &mut self,
        out: &mut [u8],
        head: Head,
        target: &Target,
        (index, mtu): (u32, u32),
        (data, immediate): (&[u8], Option<u32>),
    ) -> usize {
        let reth = Reth { address: target.address, rkey: target.rkey, len: target.len };
        if target.len <= mtu {
            let made = match immediate {
                None => self.0.write_only(out, head, reth, data),
                Some(immediate) => self.0.write_only_immediate(out, told(head), reth, immediate, data),
            };
            return made.unwrap_or(0);
        }
        self.segment(out, head, reth, (index, mtu), (data, immediate))
    }

    fn segment(
        &mut self,
        out: &mut [u8],
        head: Head,
        reth: Reth,
        (index, mtu): (u32, u32),
        (data, immediate): (&[u8], Option<u32>),
    ) -> usize {
        let at = index as usize * mtu as usize;
        let end = (at + mtu as usize).min(data.len());
        let Some(part) = data.get(at..end) else { return 0 };
        let made = match (immediate, at, end == data.len()) {
            (_, 0, _) => self.0.write_first(out, head, reth, part),
            (_, _, false) => self.0.write_middle(out, head, part),
            (None, _, true) => self.0.write_last(out, head, part),
            (Some(immediate), _, true) => self.0.write_last_immediate(out, told(head), immediate, part),
        };
        made.unwrap_or(0)
    }

    /// A frame of an addition.
    #[inline]
    pub(super) fn add(&mut self, out: &mut [u8], psn: Psn, target: &Target, delta: u64) -> usize {
        let head = Head { psn, ack_request: true, solicited: false };
        let atomic = AtomicEth { address: target.address, rkey: target.rkey, add: delta, compare: 0 };
        self.0.fetch_add(out, head, atomic).unwrap_or(0)
    }
}

/// Whoever is told is woken.
fn told(head: Head) -> Head {
    Head { solicited: true, ..head }
}

const _: () = assert!(
    HEADERS >= wire::roce::MAX_FRAME - wire::roce::MAX_PAYLOAD && Opcode::FetchAdd.extension_len() <= 28
);
