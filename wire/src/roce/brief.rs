//! Fast path for RDMA WRITE ONLY packets: validates a frame by comparison with the headers of an earlier one.
//!
//! Writes of one queue pair with the same length have equal headers, except for fields that change per packet or on the
//! path. Once [`Packet::parse`](super::Packet::parse) has accepted one such frame, the others need only a masked comparison
//! of a few words and the ICRC of the remaining bytes, because the ICRC of the constant part is cached. Frames that differ
//! are left to [`Packet`](super::Packet); nothing is refused here.

use super::{BTH_LEN, ICRC_LEN, Opcode, Packet, Psn, RETH_LEN, Reth, icrc};
use crate::bytes::{array_at, u32_at};
use crate::crc::{ChooseCrc32, Crc32, choose_crc_32, crc_32_update};
use crate::{ethernet, ipv4, ipv6, udp};

/// Number of cached header templates.
const TEMPLATES: usize = 8;
/// Bytes of the base transport header (BTH) that change per packet: acknowledgement request and PSN.
const VARIABLE_LEN: usize = 4;
/// Offset of the part that changes per packet, after Ethernet, IP and UDP headers and the constant part of the BTH.
const TAIL_V4: usize = ethernet::HEADER_LEN + ipv4::HEADER_LEN + udp::HEADER_LEN + BTH_LEN - VARIABLE_LEN;
const TAIL_V6: usize = ethernet::HEADER_LEN + ipv6::HEADER_LEN + udp::HEADER_LEN + BTH_LEN - VARIABLE_LEN;
/// Distance from the changing part to the payload, bytes.
const TO_PAYLOAD: usize = VARIABLE_LEN + RETH_LEN;
/// Number and start of the compared words. They end two bytes into the changing part, which the mask excludes.
const WORDS_V4: usize = 5;
const WORDS_V6: usize = 8;
const START_V4: usize = TAIL_V4 + 2 - 8 * WORDS_V4;
const START_V6: usize = TAIL_V6 + 2 - 8 * WORDS_V6;

/// Bits that must be equal, from EtherType to queue pair. The others may change on the path, where the ICRC does not cover
/// them, or change per packet.
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
/// Length of all headers before the payload, bytes.
const HEAD_V4: usize = TAIL_V4 + TO_PAYLOAD;
const HEAD_V6: usize = TAIL_V6 + TO_PAYLOAD;
/// Offsets in the RDMA extended transport header (RETH); the virtual address comes first.
const RETH_RKEY: usize = 8;
const RETH_DMA_LEN: usize = 12;
/// Offset of the EtherType.
const ETHERTYPE: usize = 12;
/// Offsets of the low byte of the IPv4 total length, and of the IPv6 payload length.
const IP_LEN_LOW_V4: usize = 17;
const IP_LEN_LOW_V6: usize = 19;

const fn mask(bytes: [u8; 8]) -> u64 {
    u64::from_ne_bytes(bytes)
}

/// The fields of a WRITE ONLY packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Brief<'a> {
    /// PSN of the packet.
    pub psn: Psn,
    /// The packet requests an acknowledgement.
    pub ack_request: bool,
    /// Destination of the write; `len` is the payload's length.
    pub reth: Reth,
    /// The data to write.
    pub payload: &'a [u8],
}

/// Fields of a frame that is not validated.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UncheckedWrite {
    /// PSN of the packet.
    pub psn: Psn,
    /// Virtual destination address in the region.
    pub address: u64,
    /// R_Key of the destination region.
    pub rkey: u32,
}

/// Template of a queue pair's write headers for one payload length.
#[derive(Clone, Copy, Debug)]
pub struct HeaderTemplate {
    words: [u64; WORDS_V6],
    update_crc: Crc32,
    /// ICRC register before the range of [`uncached_range`].
    prefix_crc: icrc::Running,
    payload_len: u32,
    v6: bool,
}

/// Returns the byte range of a frame that the cached ICRC does not cover, including the frame's own ICRC. It starts up to
/// twelve bytes before the changing part, so that its length is a multiple of 16. If those extra bytes differ from the
/// learned frame, the ICRC does not match and the fast path does not apply.
#[inline(always)]
fn uncached_range(tail: usize, payload_len: usize) -> (usize, usize) {
    let len = TO_PAYLOAD + payload_len.next_multiple_of(4) + ICRC_LEN;
    (tail - icrc::Running::prefix_len(len), tail + len)
}

impl HeaderTemplate {
    /// Parses a WRITE ONLY frame that matches this template and has a correct ICRC. All matching frames are for the same
    /// queue pair and have the same payload length.
    #[inline(always)]
    pub fn read<'a>(&self, frame: &'a [u8]) -> Option<Brief<'a>> {
        if self.v6 {
            self.read_at::<WORDS_V6, START_V6, HEAD_V6>(frame, &MASK_V6, self.payload_len as usize)
        } else {
            self.read_at::<WORDS_V4, START_V4, HEAD_V4>(frame, &MASK_V4, self.payload_len as usize)
        }
    }

    /// Like [`read`](Self::read), for IPv4 and payloads of `LEN` bytes only. The constant length saves a third of the work.
    #[inline(always)]
    pub fn read_v4<'a, const LEN: usize>(&self, frame: &'a [u8]) -> Option<Brief<'a>> {
        self.read_at::<WORDS_V4, START_V4, HEAD_V4>(frame, &MASK_V4, LEN)
    }

    /// Reads the fields at the offsets of such a write without validation, for prefetching only. Returns `None` if the
    /// frame is too short.
    #[inline(always)]
    pub fn peek(&self, frame: &[u8]) -> Option<UncheckedWrite> {
        let head = if self.v6 {
            frame.get(HEAD_V6 - HEAD_V4..)?
        } else {
            frame
        };
        let head = head.first_chunk::<HEAD_V4>()?;
        Some(UncheckedWrite {
            psn: Psn::new(u32_at(head, TAIL_V4)),
            address: u64::from_be_bytes(array_at(head, HEAD_V4 - RETH_LEN)),
            rkey: u32_at(head, HEAD_V4 - RETH_LEN + RETH_RKEY),
        })
    }

    /// Returns whether matching writes are over IPv6.
    #[inline]
    pub fn is_v6(&self) -> bool {
        self.v6
    }

    /// Returns the payload length of matching writes, bytes.
    #[inline]
    pub fn payload_len(&self) -> u32 {
        self.payload_len
    }

    #[inline(always)]
    fn read_at<'a, const WORDS: usize, const START: usize, const HEAD: usize>(
        &self,
        frame: &'a [u8],
        mask: &[u64; WORDS],
        len: usize,
    ) -> Option<Brief<'a>> {
        let tail = HEAD - TO_PAYLOAD;
        let (start, end) = uncached_range(tail, len);
        let frame = frame.get(..end)?;
        let head = frame.first_chunk::<HEAD>()?;
        // ECN congestion marks are left to the full parser.
        let is_marked = if HEAD == HEAD_V4 {
            head[15] & 3 == 3
        } else {
            head[15] >> 4 & 3 == 3
        };
        let has_same_len = u32_at(head, HEAD - RETH_LEN + RETH_DMA_LEN) as usize == len;
        if is_marked || !has_same_len || self.difference::<WORDS, START>(head, mask) != 0 {
            return None;
        }
        if !self
            .prefix_crc
            .ends_with_crc(self.update_crc, frame.get(start..)?)
        {
            return None;
        }
        let payload = frame.get(HEAD..HEAD + len)?;
        let ack_request_and_psn = u32_at(head, tail);
        let address = u64::from_be_bytes(array_at(head, HEAD - RETH_LEN));
        let reth = Reth {
            address,
            rkey: u32_at(head, HEAD - RETH_LEN + RETH_RKEY),
            len: len as u32,
        };
        Some(Brief {
            psn: Psn::new(ack_request_and_psn),
            ack_request: ack_request_and_psn >> 31 != 0,
            reth,
            payload,
        })
    }

    /// Returns the bits in which a frame's headers differ from the template.
    #[inline(always)]
    fn difference<const WORDS: usize, const START: usize>(&self, head: &[u8], mask: &[u64; WORDS]) -> u64 {
        let mut bits = 0;
        for (index, mask) in mask.iter().enumerate() {
            bits |= u64::from_ne_bytes(array_at(head, START + 8 * index)) & mask ^ self.words[index];
        }
        bits
    }
}

/// A cache of header templates learned from a queue pair's frames.
#[derive(Clone, Debug)]
pub struct HeaderTemplates {
    choose_crc: ChooseCrc32,
    templates: [HeaderTemplate; TEMPLATES],
}

impl Default for HeaderTemplates {
    fn default() -> Self {
        Self::new()
    }
}

impl HeaderTemplates {
    /// Creates an empty cache.
    pub fn new() -> Self {
        Self::with_crc(choose_crc_32)
    }

    /// Creates an empty cache that uses the caller's CRC functions.
    pub fn with_crc(choose: ChooseCrc32) -> Self {
        // No frame has these words.
        let prefix_crc = icrc::Running::new(0);
        let words = [u64::MAX; WORDS_V6];
        Self {
            templates: [HeaderTemplate {
                words,
                update_crc: crc_32_update,
                prefix_crc,
                payload_len: 0,
                v6: false,
            }; TEMPLATES],
            choose_crc: choose,
        }
    }

    /// Reads the destination queue pair at the offset of a write frame without VLAN tag. Returns `None` if the frame is too
    /// short for a write. The frame is not validated.
    #[inline(always)]
    pub fn queue_pair(frame: &[u8]) -> Option<u32> {
        let head = frame.first_chunk::<HEAD_V4>()?;
        let number = if head[ETHERTYPE] == 0x08 {
            u32_at(head, TAIL_V4 - 4)
        } else {
            u32_at(head, TAIL_V6 - 4)
        };
        Some(number & 0x00ff_ffff)
    }

    /// Returns the template that a frame may match, selected by the low byte of its IP length.
    #[inline]
    pub fn of(&self, frame: &[u8]) -> Option<&HeaderTemplate> {
        let head = frame.first_chunk::<HEAD_V4>()?;
        let len = if head[ETHERTYPE] == 0x08 {
            head[IP_LEN_LOW_V4]
        } else {
            head[IP_LEN_LOW_V6]
        };
        Some(&self.templates[usize::from(len >> 2) & (TEMPLATES - 1)])
    }

    /// Parses a WRITE ONLY frame that matches a [learned](Self::learn) one and has a correct ICRC.
    #[inline]
    pub fn read<'a>(&self, frame: &'a [u8]) -> Option<Brief<'a>> {
        self.of(frame)?.read(frame)
    }

    /// Caches the headers of a frame from which `packet` was parsed, if it is a valid WRITE ONLY without VLAN tag. IPv4
    /// frames with a nonzero identification are not cached, because it changes per packet.
    pub fn learn(&mut self, frame: &[u8], packet: &Packet<'_>) {
        if packet.bth.opcode != Opcode::WriteOnly || packet.fault.is_some() {
            return;
        }
        let payload_len = packet.payload.len();
        let v4 = uncached_range(TAIL_V4, payload_len);
        let v6 = uncached_range(TAIL_V6, payload_len);
        let prefix_len = TAIL_V4 - v4.0;
        let learned = match frame.get(ETHERTYPE..ETHERTYPE + 2) {
            Some([0x08, 0x00]) if frame.get(18..20) == Some(&[0, 0]) => {
                masked_words::<WORDS_V4, START_V4, TAIL_V4>(frame, &MASK_V4)
                    .map(|words| (words, crc_v4(frame, prefix_len), v4, IP_LEN_LOW_V4))
            }
            Some([0x86, 0xdd]) => masked_words::<WORDS_V6, START_V6, TAIL_V6>(frame, &MASK_V6)
                .map(|words| (words, crc_v6(frame, prefix_len), v6, IP_LEN_LOW_V6)),
            _ => None,
        };
        if let Some((words, Some(prefix_crc), range, len_at)) = learned {
            self.templates[usize::from(frame[len_at]) >> 2 & (TEMPLATES - 1)] = HeaderTemplate {
                words,
                update_crc: (self.choose_crc)(range.1 - range.0),
                prefix_crc,
                payload_len: payload_len as u32,
                v6: len_at == IP_LEN_LOW_V6,
            };
        }
    }
}

fn masked_words<const WORDS: usize, const START: usize, const TAIL: usize>(
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

fn crc_v4(frame: &[u8], prefix_len: usize) -> Option<icrc::Running> {
    let mut head = *frame
        .get(ethernet::HEADER_LEN..)?
        .first_chunk::<{ icrc::HEAD_V4 }>()?;
    icrc::mask_v4(&mut head);
    let crc = icrc::extend(icrc::START, &head[..icrc::HEAD_V4 - VARIABLE_LEN]);
    Some(icrc::Running::rewind(
        crc,
        frame.get(TAIL_V4 - prefix_len..TAIL_V4)?,
    ))
}

fn crc_v6(frame: &[u8], prefix_len: usize) -> Option<icrc::Running> {
    let mut head = *frame
        .get(ethernet::HEADER_LEN..)?
        .first_chunk::<{ icrc::HEAD_V6 }>()?;
    icrc::mask_v6(&mut head);
    let crc = icrc::extend(icrc::START, &head[..icrc::HEAD_V6 - VARIABLE_LEN]);
    Some(icrc::Running::rewind(
        crc,
        frame.get(TAIL_V6 - prefix_len..TAIL_V6)?,
    ))
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
        let reth = Reth {
            address: 0x1122_3344_5566_7788,
            rkey: 9,
            len: len as u32,
        };
        let head = Head {
            psn: Psn::new(psn),
            ack_request: psn & 1 == 1,
            solicited: false,
        };
        let payload: [u8; 300] = core::array::from_fn(|i| (i as u32 + psn) as u8);
        let written = writer.write_only(&mut out, head, reth, &payload[..len]).unwrap();
        (out, written)
    }

    fn ends() -> [(IpAddr, IpAddr); 2] {
        let v6 = |last| IpAddr::from([0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last]);
        [([10, 0, 0, 1].into(), [10, 0, 0, 2].into()), (v6(1), v6(2))]
    }

    #[test]
    fn the_brief_reader_agrees_with_the_parser() {
        for ends in ends() {
            let mut known = HeaderTemplates::new();
            for psn in 0..400 {
                let (bytes, len) = frame(ends, psn, psn as usize % 301);
                let frame = &bytes[..len];
                let packet = Packet::parse(frame).unwrap();
                assert_eq!(known.read(frame), None);
                assert_eq!(HeaderTemplates::queue_pair(frame), Some(0x1234));
                known.learn(frame, &packet);
                let expected = Brief {
                    psn: packet.bth.psn,
                    ack_request: packet.bth.ack_request,
                    reth: packet.reth.unwrap(),
                    payload: packet.payload,
                };
                assert_eq!(known.read(frame), Some(expected));
                let mut longer = bytes;
                let len = len + 5;
                longer[len - 5..len].fill(0xee);
                assert_eq!(
                    known.read(&longer[..len]),
                    Some(expected),
                    "trailing bytes are not the packet's"
                );
            }
        }
    }

    #[test]
    fn a_changed_bit_is_either_free_to_change_or_not_read_in_brief() {
        for ends in ends() {
            let mut known = HeaderTemplates::new();
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
        let reth = Reth {
            address: 0,
            rkey: 0,
            len: 8,
        };
        let len = writer
            .write_only_immediate(&mut out, Head::default(), reth, 5, &[0; 8])
            .unwrap();
        let mut known = HeaderTemplates::new();
        known.learn(&out[..len], &Packet::parse(&out[..len]).unwrap());
        assert_eq!(known.read(&out[..len]), None);
    }
}
