//! The common frames in one stride: Ethernet, IPv4 without options or IPv6 with at most our option, UDP or TCP, and INT-MD 2.x or
//! SF-INT behind the usual marks.
//!
//! It sees what [`Seen::of`] sees, or says nothing: whatever is unusual, cut or wrong is left to the general walk. Tests hold
//! the two together over all vectors and spoilt packets.

use wire::ethernet::ethertype;
use wire::int::sf::{OPTION, State};
use wire::int::shim::Shim2;
use wire::int::{Flags, Layout, Mark, Mode, Original, Sf, Version, header, layout, shim};
use wire::{FlowKey, Profile, geneve, ipv4, ipv6, tcp, udp, vxlan};

use super::{Carried, HOP_BY_HOP, Headers, OPTION_HEAD, Seen, TCP, UDP};

const IP: usize = 14;

/// The layout of the latest records seen: flows of one network have few instruction bitmaps.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cache {
    bitmap: u16,
    layout: Layout,
}

impl Cache {
    pub(crate) const NEW: Self = Self { bitmap: 0, layout: Layout::EMPTY };

    /// The layout of records of a bitmap and of so many words, if the two agree.
    #[inline]
    fn layout(&mut self, bitmap: u16, hop_ml: u8) -> Option<Layout> {
        if self.bitmap != bitmap {
            let layout = Layout::int_2(bitmap, layout::words_2(bitmap), false).ok()?;
            *self = Self { bitmap, layout };
        }
        (self.layout.words() == hop_ml && hop_ml != 0).then_some(self.layout)
    }
}

/// Where the L4 header is.
#[derive(Clone, Copy)]
struct Start<'a> {
    /// Up to the IP packet's own end.
    bytes: &'a [u8],
    headers: Headers,
    sport: u16,
    dport: u16,
}

/// What a switch sees in a common frame; `None` says nothing about it.
#[inline(always)]
pub(crate) fn read(frame: &[u8], profile: &Profile, cache: &mut Cache) -> Option<Seen> {
    match u16_at(frame.first_chunk::<54>()?, 12) {
        ethertype::IPV4 => read_v4(frame, profile, cache),
        ethertype::IPV6 => read_v6(frame, profile, cache),
        _ => None,
    }
}

#[inline(always)]
fn read_v4(frame: &[u8], profile: &Profile, cache: &mut Cache) -> Option<Seen> {
    let head = frame.first_chunk::<{ IP + ipv4::HEADER_LEN }>()?;
    let common = head[IP] == 0x45 && u16_at(head, IP + 6) & 0x3fff == 0;
    let bytes = frame.get(..IP + usize::from(u16_at(head, IP + 2)))?;
    let sum: u32 = (IP..IP + ipv4::HEADER_LEN).step_by(2).map(|at| u32::from(u16_at(head, at))).sum();
    let sum = (sum & 0xffff) + (sum >> 16);
    if !common || (sum & 0xffff) + (sum >> 16) != 0xffff {
        return None;
    }
    let start = Start::of(bytes, IP + ipv4::HEADER_LEN, head[IP + 9], head[IP + 1] >> 2, false)?;
    let [src, dst] = [u32_at(head, IP + 12), u32_at(head, IP + 16)].map(u32::to_be_bytes);
    start.marked(profile, cache, |ports, proto| FlowKey::v4(src, dst, Some(ports), proto))
}

#[inline(always)]
fn read_v6(frame: &[u8], profile: &Profile, cache: &mut Cache) -> Option<Seen> {
    const L4: usize = IP + ipv6::HEADER_LEN;
    let head = frame.first_chunk::<L4>()?;
    let payload = usize::from(u16_at(head, IP + 4));
    let bytes = frame.get(..L4 + payload).filter(|_| head[IP] >> 4 == 6 && payload != 0)?;
    let (dscp, next) = ((head[IP] << 4 | head[IP + 1] >> 4) >> 2, head[IP + 6]);
    let octets = |at: usize| -> Option<[u8; 16]> { head.get(at..)?.first_chunk().copied() };
    let [src, dst] = [octets(IP + 8)?, octets(IP + 24)?];
    let flow = |ports, proto| FlowKey::v6(src, dst, Some(ports), proto);
    if next != HOP_BY_HOP {
        return Start::of(bytes, L4, next, dscp, true)?.marked(profile, cache, flow);
    }
    // Our option alone, and padding.
    let first =
        bytes.get(L4..)?.first_chunk::<{ OPTION_HEAD + OPTION_HEAD + shim::LEN + header::LEN_2 }>()?;
    let len = 8 + usize::from(first[1]) * 8;
    let end = L4 + OPTION_HEAD + OPTION_HEAD + usize::from(first[3]);
    let padding = bytes.get(end..L4 + len)?;
    let padded = match padding {
        [] | [0] => true,
        [1, rest @ ..] if rest.len() <= 6 => {
            rest.first().is_some_and(|len| usize::from(*len) + 1 == rest.len())
        }
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
    let start = Start::of(bytes, L4 + len, first[0], dscp, true)?;
    let headers = Headers { ip: IP, v6: true, l4: L4, proto: HOP_BY_HOP, dscp, l4_len: len };
    let flow = flow((start.sport, start.dport), first[0]);
    let int = Int { headers, mark: Mark::Option, original: Original::default(), shim };
    Some(Seen {
        flow: Some(flow),
        headers: Some(headers),
        carried: Some(int.read(bytes, cache)?),
        foreign: false,
    })
}

impl<'a> Start<'a> {
    /// UDP or TCP, if its header is whole and its length is that of the packet, and its ports announce no tunnel.
    #[inline(always)]
    fn of(bytes: &'a [u8], l4: usize, proto: u8, dscp: u8, v6: bool) -> Option<Self> {
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
        let (sport, dport) = (u16_at(head, 0), u16_at(head, 2));
        let headers = Headers { ip: IP, v6, l4, proto, dscp, l4_len };
        (!is_tunnel(dport)).then_some(Self { bytes, headers, sport, dport })
    }

    /// INT behind L4, if it is marked.
    #[inline(always)]
    fn marked(
        self,
        profile: &Profile,
        cache: &mut Cache,
        flow: impl FnOnce((u16, u16), u8) -> FlowKey,
    ) -> Option<Seen> {
        let Self { bytes, headers, sport, dport } = self;
        let body = headers.body();
        let by_port = headers.proto == UDP && dport == profile.int_udp_port && dport != 0;
        let nothing = bytes.len() <= body || !by_port && !profile.marks(headers.dscp);
        if nothing {
            let flow = Some(flow((sport, dport), headers.proto));
            return Some(Seen { flow, headers: Some(headers), carried: None, foreign: false });
        }
        let shim = bytes.get(body..)?.first_chunk::<{ shim::LEN }>()?;
        let (mark, port, original) = match (shim[0] >> 2 & 3, by_port) {
            (1, true) => {
                let port = u16_at(shim, 2);
                (Mark::Port, port, Original { port: Some(port), ..Original::default() })
            }
            (0, false) => (Mark::Dscp, dport, Original { dscp: Some(shim[3] >> 2), ..Original::default() }),
            _ => return None,
        };
        if is_tunnel(port) {
            return None;
        }
        let int = Int { headers, mark, original, shim: body };
        let flow = Some(flow((sport, port), headers.proto));
        Some(Seen { flow, headers: Some(headers), carried: Some(int.read(bytes, cache)?), foreign: false })
    }
}

/// A shim that was found.
struct Int {
    headers: Headers,
    mark: Mark,
    original: Original,
    shim: usize,
}

impl Int {
    /// INT-MD 2.x or SF-INT with whole records and no domain data.
    #[inline(always)]
    fn read(self, bytes: &[u8], cache: &mut Cache) -> Option<Carried> {
        let Self { headers, mark, original, shim } = self;
        let head = bytes.get(shim..)?.first_chunk::<{ shim::LEN + header::LEN_2 }>()?;
        let (kind, words) = (head[0] >> 4, head[1]);
        let end = shim + shim::LEN + usize::from(words) * 4;
        let stack = usize::from(words).checked_sub(header::LEN_2 / 4)?;
        let int = head.last_chunk::<{ header::LEN_2 }>()?;
        let (first, hop_ml, bitmap) = (u16_at(int, 0), int[2] & 0x1f, u16_at(int, 4));
        let [ds_id, ds_instruction, ds_flags] = [6, 8, 10].map(|at| u16_at(int, at));
        let layout = cache.layout(bitmap, hop_ml)?;
        let flagged = first & 0x0100 != 0;
        let sf = match kind {
            Shim2::MD if !flagged && (ds_id == 0 || ds_instruction == 0) => None,
            Shim2::SF if flagged && bitmap & 0x8001 == 0x8000 && ds_instruction == 0 && ds_flags == 0 => {
                let state = State::from_bits((first >> 5) as u8)?;
                Some(Sf { urgent: first & 0x0080 != 0, state, packet_id: ds_id })
            }
            _ => return None,
        };
        let whole = match sf {
            Some(sf) if !sf.urgent => stack == usize::from(hop_ml),
            _ => stack.is_multiple_of(usize::from(hop_ml)),
        };
        if int[0] >> 4 != 2 || !whole || end > bytes.len() {
            return None;
        }
        Some(Carried {
            headers,
            version: Version::V2,
            mode: Mode::Md,
            mark,
            original,
            flags: Flags(int[0] >> 3 & 1 | int[0] >> 1 & 2 | int[0] << 1 & 4),
            hop_ml,
            remaining: int[3],
            bitmap,
            domain: [ds_id, ds_instruction, ds_flags],
            replication: int[0] >> 2 & 3,
            layout,
            int_words: words,
            sf,
            shim,
            end,
        })
    }
}

#[inline]
fn u16_at(bytes: &[u8], at: usize) -> u16 {
    bytes.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |two| u16::from_be_bytes(*two))
}

#[inline]
fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |four| u32::from_be_bytes(*four))
}

fn is_tunnel(port: u16) -> bool {
    matches!(port, vxlan::PORT | vxlan::GPE_PORT | geneve::PORT)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::{Task, Workload};

    /// Spoils a few bytes, mostly early ones, and mends the IPv4 checksum now and then.
    fn spoil(frame: &mut Vec<u8>, dice: &mut impl FnMut() -> usize) {
        for _ in 0..1 + dice() % 3 {
            let at = (dice() % frame.len()).min(dice() % 160 + 1);
            let place = at.min(frame.len() - 1);
            match dice() % 8 {
                0 => frame.truncate(at.max(1)),
                1 => frame.extend([7; 3]),
                2 | 3 => frame[place] ^= 1 << (dice() % 8),
                _ => frame[place] = dice() as u8,
            }
        }
        if dice() % 2 == 0
            && frame.len() > IP
            && let Ok(mut header) = wire::ipv4::Packet::new_checked(&mut frame[IP..])
        {
            header.fill_checksum();
        }
    }

    /// Whatever it sees, the general walk sees too.
    #[test]
    fn what_is_seen_at_once_is_what_the_whole_walk_sees() {
        let mut state = 1_u64;
        let mut dice = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as usize
        };
        let by_port = Profile::default();
        let by_dscp = Profile { int_udp_port: 0, ..Profile::default() };
        let mut frames: Vec<Vec<u8>> = Vec::new();
        for (_, task) in Task::ALL {
            for v6 in [false, true] {
                let workload = Workload::new(task, v6).unwrap();
                frames.extend(workload.frames().iter().take(4).cloned());
                frames.push(crate::workload::template(1, v6));
            }
        }
        frames.extend(vectors());
        let (mut seen, mut cache) = (0, Cache::NEW);
        for round in 0..400 {
            for frame in &frames {
                let mut frame = frame.clone();
                if round > 0 {
                    spoil(&mut frame, &mut dice);
                }
                for profile in [&by_port, &by_dscp] {
                    if let Some(direct) = read(&frame, profile, &mut cache) {
                        seen += 1;
                        assert_eq!(Seen::of(&frame, profile), Ok(direct), "{frame:02x?}");
                    }
                }
            }
        }
        assert!(seen > 10_000, "only {seen} were seen at once");
    }

    /// The packets of all vectors, those of the switch too.
    fn vectors() -> Vec<Vec<u8>> {
        let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../vectors");
        let mut frames = Vec::new();
        for file in ["int.txt", "sfint.txt", "refusals.txt", "rulings.txt", "switch/sf.txt"] {
            let text = std::fs::read_to_string(root.join(file)).unwrap();
            let mut frame = Vec::new();
            for line in text.lines().chain([""]) {
                let (key, value) = line.split_once(':').unwrap_or(("", ""));
                if matches!(key, "hex" | "in" | "more") {
                    let digits: Vec<u8> =
                        value.chars().filter_map(|c| c.to_digit(16)).map(|digit| digit as u8).collect();
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
