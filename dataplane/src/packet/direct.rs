//! Fast path of the parser, for common frames: Ethernet, IPv4 without options or IPv6 with at most the INT option, UDP or TCP,
//! and INT-MD 2.x or SF-INT with the usual marks.
//!
//! It returns the same result as [`ParsedPacket::parse`], or `None`: the general parser reads unusual, truncated and malformed
//! frames. Tests compare the two over all vectors and corrupted packets.

use wire::ethernet::ethertype;
use wire::int::sf::{OPTION, State};
use wire::int::shim::Shim2;
use wire::int::{Flags, Layout, Mode, Sf, Version, header, layout, shim};
use wire::packet::{Mark, Original};
use wire::{FlowKey, Profile, geneve, ipv4, ipv6, tcp, udp, vxlan};

use super::{CarriedInt, HOP_BY_HOP, Headers, OPTION_HEAD, ParsedPacket, TCP, UDP};

/// Offset of the IP header, after an Ethernet header without VLAN tags.
const IP: usize = 14;
/// Bit U of SF-INT, in the second byte of its header.
const URGENT: u8 = 0x80;
/// State bits of SF-INT, in the same byte.
const STATE: u8 = 0x60;

/// Layout of the latest records. Flows of one network use few instruction bitmaps.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cache {
    bitmap: u16,
    layout: Layout,
}

impl Cache {
    /// Returns the record layout of the latest frame.
    #[inline]
    pub(crate) fn layout(&self) -> &Layout {
        &self.layout
    }

    pub(crate) const NEW: Self = Self {
        bitmap: 0,
        layout: Layout::EMPTY,
    };

    /// Returns whether records of `bitmap` have `hop_ml` words, and caches their layout.
    #[inline(always)]
    fn fits(&mut self, bitmap: u16, hop_ml: u8) -> bool {
        if self.bitmap != bitmap {
            let Ok(layout) = Layout::int_2(bitmap, layout::words_2(bitmap), false) else {
                return false;
            };
            *self = Self { bitmap, layout };
        }
        self.layout.words() == hop_ml && hop_ml != 0
    }
}

/// A common frame: the header fields that the switch needs.
#[derive(Clone, Copy)]
pub(crate) struct Common {
    pub(crate) headers: Headers,
    /// Offset of the end of the IP packet.
    pub(crate) ip_end: usize,
    /// Source and destination port of the flow, as before INT was inserted.
    ports: (u16, u16),
    proto: u8,
    pub(crate) int: Option<Int>,
}

/// INT-MD 2.x or SF-INT in a common frame.
#[derive(Clone, Copy)]
pub(crate) struct Int {
    pub(crate) mark: Mark,
    pub(crate) original: Original,
    /// Offset of the shim.
    pub(crate) shim: usize,
    /// Offset of the first byte after INT.
    pub(crate) end: usize,
    /// Length of metadata header and stack, in words.
    pub(crate) words: u8,
    /// First byte of the metadata header: version and flags.
    first: u8,
    pub(crate) hop_ml: u8,
    pub(crate) remaining: u8,
    pub(crate) bitmap: u16,
    /// DS ID, DS Instruction and DS Flags; with SF-INT, the first is the packet ID.
    domain: [u16; 3],
    /// U and State of SF-INT, as on the wire; 0 without SF-INT.
    sf: u8,
}

/// Reads a common frame. `None` means only that the fast path does not support it.
#[inline(always)]
pub(crate) fn read(frame: &[u8], profile: &Profile, cache: &mut Cache) -> Option<Common> {
    match u16_at(frame.first_chunk::<54>()?, 12) {
        ethertype::IPV4 => read_v4(frame, profile, cache),
        ethertype::IPV6 => read_v6(frame, profile, cache),
        _ => None,
    }
}

#[inline(always)]
fn read_v4(frame: &[u8], profile: &Profile, cache: &mut Cache) -> Option<Common> {
    let head = frame.first_chunk::<{ IP + ipv4::HEADER_LEN }>()?;
    let common = head[IP] == 0x45 && u16_at(head, IP + 6) & 0x3fff == 0;
    let bytes = frame.get(..IP + usize::from(u16_at(head, IP + 2)))?;
    // Sums 32-bit words; the carries are folded at the end (RFC 1071).
    let words = [0, 4, 8, 12, 16].map(|offset| u64::from(u32_at(head, IP + offset)));
    let sum = words[0] + words[1] + words[2] + words[3] + words[4];
    let sum = (sum & 0xffff) + (sum >> 16 & 0xffff) + (sum >> 32);
    let sum = (sum & 0xffff) + (sum >> 16);
    if !common || sum != 0xffff {
        return None;
    }
    let start = Start::parse(
        bytes,
        IP + ipv4::HEADER_LEN,
        head[IP + 9],
        head[IP + 1] >> 2,
        false,
    )?;
    start.read_int(profile, cache)
}

#[inline(always)]
fn read_v6(frame: &[u8], profile: &Profile, cache: &mut Cache) -> Option<Common> {
    const L4: usize = IP + ipv6::HEADER_LEN;
    let head = frame.first_chunk::<L4>()?;
    let payload = usize::from(u16_at(head, IP + 4));
    let bytes = frame
        .get(..L4 + payload)
        .filter(|_| head[IP] >> 4 == 6 && payload != 0)?;
    let dscp = (head[IP] << 4 | head[IP + 1] >> 4) >> 2;
    let next = head[IP + 6];
    if next != HOP_BY_HOP {
        return Start::parse(bytes, L4, next, dscp, true)?.read_int(profile, cache);
    }
    // The header may contain only the INT option and padding.
    let first = bytes
        .get(L4..)?
        .first_chunk::<{ OPTION_HEAD + OPTION_HEAD + shim::LEN + header::LEN_2 }>()?;
    let len = 8 + usize::from(first[1]) * 8;
    let end = L4 + OPTION_HEAD + OPTION_HEAD + usize::from(first[3]);
    let padding = bytes.get(end..L4 + len)?;
    let padded = match padding {
        [] | [0] => true,
        [1, rest @ ..] if rest.len() <= 6 => rest
            .first()
            .is_some_and(|len| usize::from(*len) + 1 == rest.len()),
        _ => false,
    };
    let shim = L4 + OPTION_HEAD + OPTION_HEAD;
    if first[2] != OPTION
        || !padded
        || end != shim + shim::LEN + usize::from(first[5]) * 4
        || first[4] & 0x0c != 0
    {
        return None;
    }
    let start = Start::parse(bytes, L4 + len, first[0], dscp, true)?;
    let headers = Headers {
        ip: IP,
        v6: true,
        l4: L4,
        proto: HOP_BY_HOP,
        dscp,
        l4_len: len,
    };
    Some(Common {
        headers,
        ip_end: bytes.len(),
        ports: (start.src_port, start.dst_port),
        proto: first[0],
        int: Some(Int::read(bytes, shim, Mark::Option, Original::default(), cache)?),
    })
}

/// A frame whose headers up to L4 are parsed.
#[derive(Clone, Copy)]
struct Start<'a> {
    /// Bytes up to the end of the IP packet.
    bytes: &'a [u8],
    headers: Headers,
    src_port: u16,
    dst_port: u16,
}

impl<'a> Start<'a> {
    /// Reads UDP or TCP if its header is complete, its length matches the packet, and its destination port is not that of a
    /// tunnel.
    #[inline(always)]
    fn parse(bytes: &'a [u8], l4: usize, proto: u8, dscp: u8, v6: bool) -> Option<Self> {
        let rest = bytes.get(l4..)?;
        let head = rest.first_chunk::<{ udp::HEADER_LEN }>()?;
        let l4_len = match proto {
            UDP if usize::from(u16_at(head, 4)) == rest.len() => udp::HEADER_LEN,
            TCP => {
                let words = usize::from(rest.first_chunk::<{ tcp::HEADER_LEN }>()?[12] >> 4);
                if words < 5 || words * 4 > rest.len() {
                    return None;
                }
                tcp::HEADER_LEN
            }
            _ => return None,
        };
        let headers = Headers {
            ip: IP,
            v6,
            l4,
            proto,
            dscp,
            l4_len,
        };
        let dst_port = u16_at(head, 2);
        (!is_tunnel(dst_port)).then_some(Self {
            bytes,
            headers,
            src_port: u16_at(head, 0),
            dst_port,
        })
    }

    /// Reads the INT after L4 if the DSCP or the destination port marks it.
    #[inline(always)]
    fn read_int(self, profile: &Profile, cache: &mut Cache) -> Option<Common> {
        let Self {
            bytes,
            headers,
            src_port,
            dst_port,
        } = self;
        let common = Common {
            headers,
            ip_end: bytes.len(),
            ports: (src_port, dst_port),
            proto: headers.proto,
            int: None,
        };
        let body = headers.body();
        let by_port = headers.proto == UDP && dst_port == profile.int_udp_port && dst_port != 0;
        if bytes.len() <= body || !by_port && !profile.marks(headers.dscp) {
            return Some(common);
        }
        let shim = bytes.get(body..)?.first_chunk::<{ shim::LEN }>()?;
        let (mark, port, original) = match (shim[0] >> 2 & 3, by_port) {
            (1, true) => {
                let port = u16_at(shim, 2);
                (
                    Mark::Port,
                    port,
                    Original {
                        port: Some(port),
                        ..Original::default()
                    },
                )
            }
            (0, _) if profile.marks(headers.dscp) => (
                Mark::Dscp,
                dst_port,
                Original {
                    dscp: Some(shim[3] >> 2),
                    ..Original::default()
                },
            ),
            _ => return None,
        };
        if is_tunnel(port) {
            return None;
        }
        let int = Int::read(bytes, body, mark, original, cache)?;
        Some(Common {
            ports: (src_port, port),
            int: Some(int),
            ..common
        })
    }
}

impl Int {
    /// Reads the INT-MD 2.x or SF-INT after the shim at `shim`, if it has whole records and no domain data.
    #[inline(always)]
    fn read(bytes: &[u8], shim: usize, mark: Mark, original: Original, cache: &mut Cache) -> Option<Self> {
        let head = bytes
            .get(shim..)?
            .first_chunk::<{ shim::LEN + header::LEN_2 }>()?;
        let kind = head[0] >> 4;
        let words = head[1];
        let end = shim + shim::LEN + usize::from(words) * 4;
        let stack = usize::from(words).checked_sub(header::LEN_2 / 4)?;
        let int = head.last_chunk::<{ header::LEN_2 }>()?;
        let flags = u16_at(int, 0);
        let hop_ml = int[2] & 0x1f;
        let bitmap = u16_at(int, 4);
        let [ds_id, ds_instruction, ds_flags] = [6, 8, 10].map(|offset| u16_at(int, offset));
        if !cache.fits(bitmap, hop_ml) {
            return None;
        }
        let has_sf_flag = flags & 0x0100 != 0;
        let sf = match kind {
            Shim2::MD if !has_sf_flag && (ds_id == 0 || ds_instruction == 0) => 0,
            // The state is checked below: it is never 0.
            Shim2::SF if has_sf_flag && bitmap & 0x8001 == 0x8000 && ds_instruction | ds_flags == 0 => {
                flags as u8 & (URGENT | STATE)
            }
            _ => return None,
        };
        let has_whole_records = if sf != 0 && sf & URGENT == 0 {
            stack == usize::from(hop_ml)
        } else {
            cache.layout.records(stack) * usize::from(hop_ml) == stack
        };
        if kind == Shim2::SF && sf & STATE == 0 {
            return None;
        }
        if int[0] >> 4 != 2 || !has_whole_records || end > bytes.len() {
            return None;
        }
        Some(Self {
            mark,
            original,
            shim,
            end,
            words,
            first: int[0],
            hop_ml,
            remaining: int[3],
            bitmap,
            domain: [ds_id, ds_instruction, ds_flags],
            sf,
        })
    }

    #[inline(always)]
    pub(crate) fn sf(&self) -> Option<Sf> {
        let state = State::from_bits(self.sf >> 5)?;
        Some(Sf {
            urgent: self.sf & URGENT != 0,
            state,
            packet_id: self.domain[0],
        })
    }

    /// Returns whether this is SF-INT that is not urgent, which carries one record.
    #[inline(always)]
    pub(crate) fn is_single(&self) -> bool {
        self.sf != 0 && self.sf & URGENT == 0
    }

    /// Returns the flags D, E and M.
    #[inline(always)]
    pub(crate) fn flags(&self) -> Flags {
        Flags(self.first >> 3 & 1 | self.first >> 1 & 2 | self.first << 1 & 4)
    }
}

impl Common {
    /// Returns the flow before INT of `frame`, from which this was read.
    #[inline(always)]
    pub(crate) fn flow(&self, frame: &[u8]) -> Option<FlowKey> {
        let ports = Some(self.ports);
        let proto = self.proto;
        if self.headers.v6 {
            let [src, dst] = frame.get(IP + 8..)?.first_chunk::<32>()?.as_chunks::<16>().0 else {
                return None;
            };
            return Some(FlowKey::v6(*src, *dst, ports, proto));
        }
        let [src, dst] = frame.get(IP + 12..)?.first_chunk::<8>()?.as_chunks::<4>().0 else {
            return None;
        };
        Some(FlowKey::v4(*src, *dst, ports, proto))
    }

    #[inline(always)]
    pub(crate) fn flow_id(&self, frame: &[u8]) -> Option<u32> {
        let (src_port, dst_port) = self.ports;
        if self.headers.v6 {
            let (addresses, _) = frame.get(IP + 8..)?.first_chunk::<32>()?.as_chunks::<16>();
            let [src, dst] = addresses else { return None };
            let [src, dst] = [u128::from_be_bytes(*src), u128::from_be_bytes(*dst)];
            return Some(FlowKey::flow_id_v6(src, dst, src_port, dst_port, self.proto));
        }
        let addresses = frame.get(IP + 12..)?.first_chunk::<8>()?;
        let src = u32_at(addresses, 0);
        let dst = u32_at(addresses, 4);
        Some(FlowKey::flow_id_v4(src, dst, src_port, dst_port, self.proto))
    }

    /// Converts to the result of [`ParsedPacket::parse`]. `cache` must be the one used for reading, and not used since.
    pub(crate) fn parse_fully(self, frame: &[u8], cache: &Cache) -> ParsedPacket {
        let carried = self.int.as_ref().map(|int| CarriedInt {
            headers: self.headers,
            version: Version::V2,
            mode: Mode::Md,
            mark: int.mark,
            original: int.original,
            flags: int.flags(),
            hop_ml: int.hop_ml,
            remaining: int.remaining,
            bitmap: int.bitmap,
            domain: int.domain,
            replication: int.first >> 2 & 3,
            version_zero: false,
            layout: cache.layout,
            source_only: 0,
            int_words: int.words,
            sf: int.sf(),
            shim: int.shim,
            end: int.end,
        });
        ParsedPacket {
            flow: self.flow(frame),
            headers: Some(self.headers),
            carried,
            unsupported: false,
        }
    }
}

#[inline]
fn u16_at(bytes: &[u8], at: usize) -> u16 {
    bytes
        .get(at..)
        .and_then(|rest| rest.first_chunk())
        .map_or(0, |two| u16::from_be_bytes(*two))
}

#[inline]
fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes
        .get(at..)
        .and_then(|rest| rest.first_chunk())
        .map_or(0, |four| u32::from_be_bytes(*four))
}

fn is_tunnel(port: u16) -> bool {
    matches!(port, vxlan::PORT | vxlan::GPE_PORT | geneve::PORT)
}

#[cfg(test)]
mod tests {
    use super::*;
    use testkit::workload::switch::{Task, Workload, template};

    /// Corrupts a few bytes, mostly early ones, and sometimes recomputes the IPv4 checksum.
    fn corrupt(frame: &mut Vec<u8>, rng: &mut impl FnMut() -> usize) {
        for _ in 0..1 + rng() % 3 {
            let at = (rng() % frame.len()).min(rng() % 160 + 1);
            let place = at.min(frame.len() - 1);
            match rng() % 8 {
                0 => frame.truncate(at.max(1)),
                1 => frame.extend([7; 3]),
                2 | 3 => frame[place] ^= 1 << (rng() % 8),
                _ => frame[place] = rng() as u8,
            }
        }
        if rng().is_multiple_of(2)
            && frame.len() > IP
            && let Ok(mut header) = wire::ipv4::Packet::new_checked(&mut frame[IP..])
        {
            header.fill_checksum();
        }
    }

    /// Its result equals that of the general walk.
    #[test]
    fn the_direct_parser_agrees_with_the_full_walk() {
        let mut state = 1_u64;
        let mut rng = || {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as usize
        };
        let by_port = Profile::default();
        let by_dscp = Profile {
            int_udp_port: 0,
            ..Profile::default()
        };
        let mut frames: Vec<Vec<u8>> = Vec::new();
        for (_, task) in Task::ALL {
            for v6 in [false, true] {
                let workload = Workload::new(task, v6).unwrap();
                frames.extend(workload.frames().iter().take(4).cloned());
                frames.push(template(1, v6));
            }
        }
        frames.extend(vectors());
        let (mut parsed, mut cache) = (0, Cache::NEW);
        for round in 0..400 {
            for frame in &frames {
                let mut frame = frame.clone();
                if round > 0 {
                    corrupt(&mut frame, &mut rng);
                }
                for profile in [&by_port, &by_dscp] {
                    if let Some(direct) = read(&frame, profile, &mut cache) {
                        parsed += 1;
                        let flow_id = direct.flow_id(&frame);
                        assert_eq!(direct.flow(&frame).map(|flow| flow.flow_id()), flow_id);
                        let direct = direct.parse_fully(&frame, &cache);
                        assert_eq!(ParsedPacket::parse(&frame, profile), Ok(direct), "{frame:02x?}");
                    }
                }
            }
        }
        assert!(parsed > 10_000, "only {parsed} were seen at once");
    }

    /// Returns the packets of all vectors, those of the switch too.
    fn vectors() -> Vec<Vec<u8>> {
        let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../vectors");
        let mut frames = Vec::new();
        for file in [
            "int.txt",
            "sfint.txt",
            "refusals.txt",
            "rulings.txt",
            "switch/sf.txt",
        ] {
            let text = std::fs::read_to_string(root.join(file)).unwrap();
            let mut frame = Vec::new();
            for line in text.lines().chain([""]) {
                let (key, value) = line.split_once(':').unwrap_or(("", ""));
                if matches!(key, "hex" | "in" | "more") {
                    let digits: Vec<u8> = value
                        .chars()
                        .filter_map(|c| c.to_digit(16))
                        .map(|digit| digit as u8)
                        .collect();
                    if key == "in" {
                        frames.push(std::mem::take(&mut frame));
                    }
                    frame.extend(digits.chunks_exact(2).map(|pair| pair[0] << 4 | pair[1]));
                } else if !frame.is_empty() {
                    frames.push(std::mem::take(&mut frame));
                }
            }
        }
        frames.retain(|frame| frame.len() > 20);
        assert!(frames.len() > 200);
        frames
    }
}
