//! The common packet, read in one glance: a write in one packet, like one that was seen before.
//!
//! All writes of one queue pair with the same length begin with the same bytes, but for fields that routers change. Once
//! [`Packet::parse`](super::Packet::parse) has accepted one of them, the others need only a comparison with its beginning, and the
//! CRC of what comes after. Whatever is not alike is left to [`Packet`](super::Packet): nothing is refused here.

use super::{BTH_LEN, ICRC_LEN, Opcode, Packet, Psn, RETH_LEN, Reth, icrc};
use crate::bytes::{array_at, u32_at};

/// How many beginnings are kept.
const KEPT: usize = 8;
/// Bytes of the base transport header that change with each packet.
const CHANGING: usize = 4;
/// Where the changing part begins: Ethernet, IP and UDP headers, and what comes before in the base transport header.
const TAIL_V4: usize = 14 + 20 + 8 + BTH_LEN - CHANGING;
const TAIL_V6: usize = 14 + 40 + 8 + BTH_LEN - CHANGING;
/// From the changing part on to the payload.
const TO_PAYLOAD: usize = CHANGING + RETH_LEN;
/// The words that are compared: they end two bytes into the changing part, and those are masked.
const WORDS_V4: usize = 5;
const WORDS_V6: usize = 8;
const START_V4: usize = TAIL_V4 + 2 - 8 * WORDS_V4;
const START_V6: usize = TAIL_V6 + 2 - 8 * WORDS_V6;

/// What must be alike of EtherType to queue pair, by bytes; the rest may be changed on the way, and the CRC does not cover it, or
/// it changes with each packet.
const MASK_V4: [u64; WORDS_V4] = [
    mask([0xff, 0xff, 0xff, 0, 0xff, 0xff, 0xff, 0xff]), // EtherType, version, (service), length, identification
    mask([0xff, 0xff, 0, 0xff, 0, 0, 0xff, 0xff]), // fragment, (time to live), protocol, (checksum), source
    mask([0xff; 8]),                               // source, destination, port
    mask([0xff, 0xff, 0xff, 0xff, 0, 0, 0xff, 0xff]), // port, length, (checksum), opcode, flags
    mask([0xff, 0xff, 0, 0xff, 0xff, 0xff, 0, 0]), // partition, (congestion), queue pair, (changing)
];
const MASK_V6: [u64; WORDS_V6] = [
    mask([0, 0, 0, 0, 0xff, 0xff, 0xf0, 0]), // (Ethernet source), EtherType, version, (class, label)
    mask([0, 0, 0xff, 0xff, 0xff, 0, 0xff, 0xff]), // (label), length, next, (hop limit), source
    mask([0xff; 8]),
    mask([0xff; 8]),
    mask([0xff; 8]),
    mask([0xff; 8]),                                  // destination, port
    mask([0xff, 0xff, 0xff, 0xff, 0, 0, 0xff, 0xff]), // port, length, (checksum), opcode, flags
    mask([0xff, 0xff, 0, 0xff, 0xff, 0xff, 0, 0]),    // partition, (congestion), queue pair, (changing)
];

const fn mask(bytes: [u8; 8]) -> u64 {
    u64::from_ne_bytes(bytes)
}

/// What matters of a write in one packet, without immediate data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Brief<'a> {
    /// Its number.
    pub psn: Psn,
    /// An acknowledgement is wanted.
    pub ack_request: bool,
    /// Where it goes; its length is the payload's.
    pub reth: Reth,
    /// What is written.
    pub payload: &'a [u8],
}

#[derive(Clone, Debug)]
struct Beginning {
    words: [u64; WORDS_V6],
    /// CRC of what comes before the changing part and `run_up`.
    crc: icrc::Running,
    payload_len: u16,
    /// Bytes from the changing part on to the CRC; 0: no frame is like this one.
    tail_len: u16,
    /// Bytes before the changing part that `crc` leaves out. Where they have others than the frame that was learned, the CRC
    /// is not right, and the frame is not read here.
    run_up: u16,
}

/// Beginnings that one queue pair has seen.
#[derive(Clone, Debug)]
pub struct Beginnings([Beginning; KEPT]);

impl Default for Beginnings {
    fn default() -> Self {
        Self::new()
    }
}

impl Beginnings {
    /// Nothing was seen.
    pub fn new() -> Self {
        Self(core::array::from_fn(|_| Beginning {
            words: [0; WORDS_V6],
            crc: icrc::Running::new(0),
            payload_len: 0,
            tail_len: 0,
            run_up: 0,
        }))
    }

    /// Where a frame without VLAN tag names its queue pair, if it is long enough. Anything may stand there.
    #[inline(always)]
    pub fn queue_pair(frame: &[u8]) -> Option<u32> {
        let at = match frame.get(12)? {
            0x08 => TAIL_V4 - 4,
            _ => TAIL_V6 - 4,
        };
        Some(u32_at(frame.get(at..at + 4)?, 0) & 0x00ff_ffff)
    }

    /// Reads a frame that is a write in one packet, begins as one that was [learned](Self::learn), and has a good CRC.
    #[inline(always)]
    pub fn read<'a>(&self, frame: &'a [u8]) -> Option<Brief<'a>> {
        if *frame.get(12)? == 0x08 {
            // Marked congestion is somebody's business.
            if frame.get(15)? & 3 == 3 {
                return None;
            }
            self.read_at::<WORDS_V4, START_V4, TAIL_V4>(frame, &MASK_V4, usize::from(*frame.get(17)?))
        } else {
            if frame.get(15)? >> 4 & 3 == 3 {
                return None;
            }
            self.read_at::<WORDS_V6, START_V6, TAIL_V6>(frame, &MASK_V6, usize::from(*frame.get(19)?))
        }
    }

    #[inline(always)]
    fn read_at<'a, const WORDS: usize, const START: usize, const TAIL: usize>(
        &self,
        frame: &'a [u8],
        mask: &[u64; WORDS],
        len: usize,
    ) -> Option<Brief<'a>> {
        let known = &self.0[len >> 2 & (KEPT - 1)];
        let (head, tail) = frame.split_at_checked(TAIL)?;
        let (tail, rest) = tail.split_at_checked(usize::from(known.tail_len))?;
        let covered = frame.get(TAIL - usize::from(known.run_up & 15)..TAIL + tail.len())?;
        let crc = rest.first_chunk::<ICRC_LEN>()?;
        let (front, body) = tail.split_first_chunk::<TO_PAYLOAD>()?;
        let payload = body.get(..usize::from(known.payload_len))?;
        if differ::<WORDS, START>(head, front, known, mask) != 0
            || known.crc.finish(covered) != u32::from_le_bytes(*crc)
        {
            return None;
        }
        let changing = u32_at(front, 0);
        let reth = Reth {
            address: u64::from_be_bytes(array_at(front, CHANGING)),
            key: u32_at(front, CHANGING + 8),
            len: u32_at(front, CHANGING + 12),
        };
        if reth.len != u32::from(known.payload_len) {
            return None;
        }
        Some(Brief { psn: Psn::new(changing), ack_request: changing >> 31 != 0, reth, payload })
    }

    /// Keeps the beginning of a frame from which `packet` was read, if it is a write in one packet without immediate data, fault or
    /// VLAN tag. IPv4 identifications other than 0 change from packet to packet and are not kept.
    pub fn learn(&mut self, frame: &[u8], packet: &Packet<'_>) {
        if packet.bth.opcode != Opcode::WriteOnly || packet.fault.is_some() {
            return;
        }
        let payload_len = packet.payload.len();
        let tail_len = TO_PAYLOAD + payload_len.next_multiple_of(4);
        let run_up = icrc::Running::run_up(tail_len);
        let learned = match frame.get(12..14) {
            Some([0x08, 0x00]) if frame.get(18..20) == Some(&[0, 0]) => {
                learned::<WORDS_V4, START_V4, TAIL_V4>(frame, &MASK_V4)
                    .map(|words| (words, crc_v4(frame, run_up), 17))
            }
            Some([0x86, 0xdd]) => learned::<WORDS_V6, START_V6, TAIL_V6>(frame, &MASK_V6)
                .map(|words| (words, crc_v6(frame, run_up), 19)),
            _ => None,
        };
        if let Some((words, Some(crc), len_at)) = learned {
            self.0[usize::from(frame[len_at]) >> 2 & (KEPT - 1)] = Beginning {
                words,
                crc,
                payload_len: payload_len as u16,
                tail_len: tail_len as u16,
                run_up: run_up as u16,
            };
        }
    }
}

/// Bits in which a frame's beginning differs from a known one.
#[inline(always)]
fn differ<const WORDS: usize, const START: usize>(
    head: &[u8],
    front: &[u8; TO_PAYLOAD],
    known: &Beginning,
    mask: &[u64; WORDS],
) -> u64 {
    let mut bits = 0;
    for (index, mask) in mask.iter().enumerate() {
        let at = START + 8 * index;
        let word = if index + 1 < WORDS {
            u64::from_ne_bytes(array_at(head, at))
        } else {
            // The last one reaches into the changing part.
            let mut bytes = [0; 8];
            bytes[..6].copy_from_slice(&array_at::<6>(head, at));
            bytes[6..].copy_from_slice(&front[..2]);
            u64::from_ne_bytes(bytes)
        };
        bits |= (word & mask) ^ known.words[index];
    }
    bits
}

fn learned<const WORDS: usize, const START: usize, const TAIL: usize>(
    frame: &[u8],
    mask: &[u64; WORDS],
) -> Option<[u64; WORDS_V6]> {
    let mut words = [0; WORDS_V6];
    let bytes = frame.get(START..TAIL + 2)?;
    for ((word, bytes), mask) in words.iter_mut().zip(bytes.chunks_exact(8)).zip(mask) {
        *word = u64::from_ne_bytes(array_at(bytes, 0)) & mask;
    }
    Some(words)
}

fn crc_v4(frame: &[u8], run_up: usize) -> Option<icrc::Running> {
    let mut head = *frame.get(14..)?.first_chunk::<{ icrc::HEAD_V4 }>()?;
    icrc::mask_v4(&mut head);
    let crc = icrc::go_on(icrc::START, &head[..icrc::HEAD_V4 - CHANGING]);
    Some(icrc::Running::before(crc, frame.get(TAIL_V4 - run_up..TAIL_V4)?))
}

fn crc_v6(frame: &[u8], run_up: usize) -> Option<icrc::Running> {
    let mut head = *frame.get(14..)?.first_chunk::<{ icrc::HEAD_V6 }>()?;
    icrc::mask_v6(&mut head);
    let crc = icrc::go_on(icrc::START, &head[..icrc::HEAD_V6 - CHANGING]);
    Some(icrc::Running::before(crc, frame.get(TAIL_V6 - run_up..TAIL_V6)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::roce::{Head, Path, Transport, Writer};
    use core::net::IpAddr;

    fn frame(ends: (IpAddr, IpAddr), psn: u32, len: usize) -> ([u8; 512], usize) {
        let mut out = [0; 512];
        let path = Path::new(ends.0, ends.1, 0xc123);
        let mut writer = Writer::new(path, Transport::Uc, 0x1234).unwrap();
        let reth = Reth { address: 0x1122_3344_5566_7788, key: 9, len: len as u32 };
        let head = Head { psn: Psn::new(psn), ack_request: psn & 1 == 1, solicited: false };
        let payload: [u8; 300] = core::array::from_fn(|i| (i as u32 + psn) as u8);
        let written = writer.write_only(&mut out, head, reth, &payload[..len]).unwrap();
        (out, written)
    }

    fn ends() -> [(IpAddr, IpAddr); 2] {
        let v6 = |last| IpAddr::from([0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last]);
        [([10, 0, 0, 1].into(), [10, 0, 0, 2].into()), (v6(1), v6(2))]
    }

    #[test]
    fn what_is_read_in_brief_is_what_the_parser_reads() {
        for ends in ends() {
            let mut known = Beginnings::new();
            for psn in 0..400 {
                let (bytes, len) = frame(ends, psn, psn as usize % 301);
                let frame = &bytes[..len];
                let packet = Packet::parse(frame).unwrap();
                assert_eq!(known.read(frame), None);
                assert_eq!(Beginnings::queue_pair(frame), Some(0x1234));
                known.learn(frame, &packet);
                let expected = Brief {
                    psn: packet.bth.psn,
                    ack_request: packet.bth.ack_request,
                    reth: packet.reth.unwrap(),
                    payload: packet.payload,
                };
                assert_eq!(known.read(frame), Some(expected));
                let (mut longer, len) = (bytes, len + 5);
                longer[len - 5..len].fill(0xee);
                assert_eq!(known.read(&longer[..len]), Some(expected), "trailing bytes are not the packet's");
            }
        }
    }

    #[test]
    fn a_changed_bit_is_either_free_to_change_or_not_read_in_brief() {
        for ends in ends() {
            let mut known = Beginnings::new();
            let (bytes, len) = frame(ends, 7, 22);
            known.learn(&bytes[..len], &Packet::parse(&bytes[..len]).unwrap());
            for bit in 0..len * 8 {
                let mut changed = bytes;
                changed[bit / 8] ^= 1 << (bit % 8);
                let brief = known.read(&changed[..len]);
                let packet = Packet::parse(&changed[..len]);
                match (brief, packet) {
                    (Some(brief), Ok(packet)) => {
                        assert_eq!((Some(brief.reth), brief.payload), (packet.reth, packet.payload));
                        assert_eq!(packet.bth.queue_pair, 0x1234);
                    }
                    (None, _) => {}
                    (Some(_), Err(refusal)) => panic!("bit {bit} is read in brief and refused: {refusal}"),
                }
            }
            for short in 0..len {
                assert_eq!(known.read(&bytes[..short]), None);
            }
        }
    }

    #[test]
    fn immediates_and_faults_are_not_learned() {
        let path = Path::new([10, 0, 0, 1].into(), [10, 0, 0, 2].into(), 0xc123);
        let mut writer = Writer::new(path, Transport::Uc, 0x1234).unwrap();
        let mut out = [0; 256];
        let reth = Reth { address: 0, key: 0, len: 8 };
        let len = writer.write_only_immediate(&mut out, Head::default(), reth, 5, &[0; 8]).unwrap();
        let mut known = Beginnings::new();
        known.learn(&out[..len], &Packet::parse(&out[..len]).unwrap());
        assert_eq!(known.read(&out[..len]), None);
    }
}
