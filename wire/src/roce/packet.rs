//! Parsing and validation of received RoCEv2 packets: lengths, padding, transport version, partition key and ICRC.

use super::{
    AETH_LEN, ATOMIC_LEN, Aeth, AtomicEth, BTH_LEN, Bth, CNP_LEN, ICRC_LEN, MAX_PAYLOAD, Opcode, PMTUS, PORT,
    RETH_LEN, Reth, field, icrc, is_default_partition,
};
use crate::bytes::{array_at, put_u16, try_u16, u16_at};
use crate::packet::{IPV4, IPV6, UDP, is_tag};
use crate::refusal::Refusal;
use core::net::IpAddr;

/// Maximum number of VLAN tags that are skipped.
const MAX_TAGS: usize = 4;
/// MAC addresses of a packet without Ethernet header.
const NO_MACS: [u8; 12] = [0; 12];
/// IPv4 flag "don't fragment".
const DONT_FRAGMENT: u16 = 0x4000;

/// The endpoints of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Endpoints {
    /// Source IP address of the packet.
    pub source: IpAddr,
    /// Destination IP address of the packet.
    pub destination: IpAddr,
    /// UDP source port; the destination port is [`PORT`].
    pub source_port: u16,
}

/// A packet with valid headers, lengths and ICRC. If its request is invalid, [`fault`](Self::fault) has the cause: on a
/// reliable connection the responder then sends a NAK instead of dropping it silently.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Packet<'a> {
    /// Source MAC address, for replies; zero without an Ethernet header.
    pub source_mac: [u8; 6],
    /// Destination MAC address; zero without an Ethernet header.
    pub destination_mac: [u8; 6],
    /// Source and destination addresses of the packet.
    pub ends: Endpoints,
    /// A switch marked congestion (ECN 3); always `false` without the IP header.
    pub congestion: bool,
    /// Base transport header (BTH).
    pub bth: Bth,
    /// RDMA extended transport header of a write (RETH).
    pub reth: Option<Reth>,
    /// Extended transport header of an atomic operation.
    pub atomic: Option<AtomicEth>,
    /// Immediate data of a send or write.
    pub immediate: Option<u32>,
    /// ACK extended transport header (AETH).
    pub aeth: Option<Aeth>,
    /// Original value in an atomic acknowledgement.
    pub atomic_ack: Option<u64>,
    /// Payload without pad bytes. For unsupported opcodes, all bytes between BTH and ICRC.
    pub payload: &'a [u8],
    /// Invalid request: unknown opcode, wrong pad count or length. Contains only faults that a single packet shows; the
    /// responder checks packet order, access rights and ranges.
    pub fault: Option<Refusal>,
}

impl<'a> Packet<'a> {
    /// Parses and validates an Ethernet frame. IPv4 options and IPv6 extension headers are refused.
    ///
    /// IPv4 and UDP checksums are not checked, because the ICRC covers all fields that are used.
    ///
    /// # Errors
    /// [`Refusal`] for packets that must be dropped silently.
    #[inline]
    pub fn parse(frame: &'a [u8]) -> Result<Self, Refusal> {
        match frame.get(12..).and_then(|from| from.split_first_chunk::<2>()) {
            Some(([8, 0], packet)) => Self::ipv4(packet, frame),
            Some(([0x86, 0xdd], packet)) => Self::ipv6(packet, frame),
            _ => Self::tagged(frame),
        }
    }

    /// Parses a frame with VLAN tags, or one that is neither IPv4 nor IPv6.
    #[inline(never)]
    fn tagged(frame: &'a [u8]) -> Result<Self, Refusal> {
        let mut ethertype = try_u16(frame, 12).ok_or(Refusal::Truncated)?;
        let mut at = 14;
        for _ in 0..MAX_TAGS {
            if !is_tag(ethertype) {
                break;
            }
            ethertype = try_u16(frame, at + 2).ok_or(Refusal::Truncated)?;
            at += 4;
        }
        let packet = frame.get(at..).ok_or(Refusal::Truncated)?;
        match ethertype {
            IPV4 => Self::ipv4(packet, frame),
            IPV6 => Self::ipv6(packet, frame),
            _ => Err(Refusal::NotIp),
        }
    }

    /// Parses and validates a packet that starts with its IPv4 or IPv6 header.
    ///
    /// # Errors
    /// [`Refusal`] for packets that must be dropped silently.
    pub fn parse_ip(packet: &'a [u8]) -> Result<Self, Refusal> {
        match packet.first().map(|first| first >> 4) {
            Some(4) => Self::ipv4(packet, &NO_MACS),
            Some(6) => Self::ipv6(packet, &NO_MACS),
            Some(_) => Err(Refusal::NotIp),
            None => Err(Refusal::Truncated),
        }
    }

    /// Parses and validates a datagram that a UDP socket received on [`PORT`]. The ICRC covers the IP header, which is
    /// missing. It is assumed to be what Linux sends from an unconnected UDP socket with `IP_PMTUDISC_DO`: no options, and
    /// identification 0 for IPv4. Other headers lead to [`Refusal::BadIcrc`].
    ///
    /// # Errors
    /// [`Refusal`] for packets that must be dropped silently.
    #[inline]
    pub fn parse_udp(payload: &'a [u8], ends: Endpoints) -> Result<Self, Refusal> {
        let bth = payload.first_chunk::<BTH_LEN>().ok_or(Refusal::Truncated)?;
        let len = payload.len() + 8;
        let (Ok(udp_len), Ok(total)) = (u16::try_from(len), u16::try_from(len + 20)) else {
            return Err(Refusal::BadUdpLength);
        };
        let crc = match (ends.source, ends.destination) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                let mut head = [0; icrc::HEAD_V4];
                head[0] = 0x45;
                put_u16(&mut head, 2, total);
                put_u16(&mut head, 6, DONT_FRAGMENT);
                head[9] = UDP;
                head[12..16].copy_from_slice(&source.octets());
                head[16..20].copy_from_slice(&destination.octets());
                put_udp(&mut head[20..], ends.source_port, udp_len, bth);
                icrc::mask_v4(&mut head);
                icrc::extend(icrc::START, &head)
            }
            (IpAddr::V6(source), IpAddr::V6(destination)) => {
                let mut head = [0; icrc::HEAD_V6];
                head[0] = 0x60;
                put_u16(&mut head, 4, udp_len);
                head[6] = UDP;
                head[8..24].copy_from_slice(&source.octets());
                head[24..40].copy_from_slice(&destination.octets());
                put_udp(&mut head[40..], ends.source_port, udp_len, bth);
                icrc::mask_v6(&mut head);
                icrc::extend(icrc::START, &head)
            }
            _ => return Err(Refusal::NotIp),
        };
        let lower_layers = LowerLayers {
            macs: ([0; 6], [0; 6]),
            ends,
            congestion: false,
        };
        Self::transport(payload, lower_layers, |body| icrc::extend(crc, body))
    }

    #[inline(always)]
    fn ipv4(packet: &'a [u8], frame: &[u8]) -> Result<Self, Refusal> {
        let head = packet
            .first_chunk::<{ icrc::HEAD_V4 }>()
            .ok_or_else(|| short_v4(packet))?;
        let total = usize::from(u16_at(head, 2));
        if head[0] != 0x45 || total < 28 {
            return Err(Refusal::BadIpHeader);
        }
        if u16_at(head, 6) & 0x3fff != 0 {
            return Err(Refusal::Fragment);
        }
        if head[9] != UDP {
            return Err(Refusal::NotUdp);
        }
        let payload = udp(packet, 20, &array_at(head, 20), total)?;
        let ends = Endpoints {
            source: array_at::<4>(head, 12).into(),
            destination: array_at::<4>(head, 16).into(),
            source_port: u16_at(head, 20),
        };
        let lower_layers = LowerLayers {
            macs: macs(frame),
            ends,
            congestion: head[1] & 3 == 3,
        };
        let covered_len = 28 + payload.len() - ICRC_LEN;
        Self::transport(payload, lower_layers, |_| {
            icrc::of_v4(&packet[..covered_len], head)
        })
    }

    #[inline(always)]
    fn ipv6(packet: &'a [u8], frame: &[u8]) -> Result<Self, Refusal> {
        let head = packet
            .first_chunk::<{ icrc::HEAD_V6 }>()
            .ok_or_else(|| short_v6(packet))?;
        let total = 40 + usize::from(u16_at(head, 4));
        if head[0] >> 4 != 6 {
            return Err(Refusal::BadIpHeader);
        }
        if head[6] != UDP {
            return Err(Refusal::NotUdp);
        }
        let payload = udp(packet, 40, &array_at(head, 40), total)?;
        let ends = Endpoints {
            source: array_at::<16>(head, 8).into(),
            destination: array_at::<16>(head, 24).into(),
            source_port: u16_at(head, 40),
        };
        let lower_layers = LowerLayers {
            macs: macs(frame),
            ends,
            congestion: head[1] >> 4 & 3 == 3,
        };
        let covered_len = 48 + payload.len() - ICRC_LEN;
        Self::transport(payload, lower_layers, |_| {
            icrc::of_v6(&packet[..covered_len], head)
        })
    }

    /// Parses the transport headers. `crc_of` gets the bytes after the BTH and returns the packet's ICRC.
    ///
    /// Computes all fields before it builds the struct: copying a struct of this size, or changing it piecewise, costs more
    /// than the rest.
    #[inline(always)]
    fn transport(
        payload: &'a [u8],
        lower_layers: LowerLayers,
        crc_of: impl FnOnce(&[u8]) -> u32,
    ) -> Result<Self, Refusal> {
        let (header, rest) = payload.split_first_chunk::<BTH_LEN>().ok_or(Refusal::Truncated)?;
        let (body, crc) = rest.split_last_chunk::<ICRC_LEN>().ok_or(Refusal::Truncated)?;
        if crc_of(body) != u32::from_le_bytes(*crc) {
            return Err(Refusal::BadIcrc);
        }
        if header[field::FLAGS] & field::VERSION != 0 {
            return Err(Refusal::BadTransportVersion);
        }
        if !is_default_partition(header) {
            return Err(Refusal::BadPartitionKey);
        }
        let bth = Bth::parse(header);
        let (extension, rest) = Extension::split(bth.opcode, body).ok_or(Refusal::BadRoceLength)?;
        let (payload, fault) = carried(&bth, extension.reth.map_or(0, |reth| reth.len), rest);
        let Extension {
            reth,
            atomic,
            immediate,
            aeth,
            atomic_ack,
        } = extension;
        let LowerLayers {
            macs: (destination_mac, source_mac),
            ends,
            congestion,
        } = lower_layers;
        Ok(Self {
            source_mac,
            destination_mac,
            ends,
            congestion,
            bth,
            reth,
            atomic,
            immediate,
            aeth,
            atomic_ack,
            payload,
            fault,
        })
    }
}

/// Writes the correct ICRC at the end of a frame, for tests and tools that modify packets. Nothing else is checked.
///
/// # Errors
/// [`Refusal`] if the frame is not a UDP datagram, or too short for the headers and the ICRC.
pub fn seal(frame: &mut [u8]) -> Result<(), Refusal> {
    let mut ethertype = try_u16(frame, 12).ok_or(Refusal::Truncated)?;
    let mut at = 14;
    while is_tag(ethertype) {
        ethertype = try_u16(frame, at + 2).ok_or(Refusal::Truncated)?;
        at += 4;
    }
    let header = match ethertype {
        IPV4 => 20,
        IPV6 => 40,
        _ => return Err(Refusal::NotIp),
    };
    let packet = &mut frame[at..];
    let len = usize::from(try_u16(packet, header + 4).ok_or(Refusal::Truncated)?);
    if len < 8 + BTH_LEN + ICRC_LEN {
        return Err(Refusal::BadRoceLength);
    }
    let packet = packet.get_mut(..header + len).ok_or(Refusal::Truncated)?;
    let (covered, crc) = packet
        .split_last_chunk_mut::<ICRC_LEN>()
        .ok_or(Refusal::Truncated)?;
    let sum = match (header, covered.first_chunk(), covered.first_chunk()) {
        (20, Some(head), _) => icrc::of_v4(covered, head),
        (40, _, Some(head)) => icrc::of_v6(covered, head),
        _ => return Err(Refusal::Truncated),
    };
    *crc = sum.to_le_bytes();
    Ok(())
}

/// Fields of the lower layers.
struct LowerLayers {
    /// Destination and source MAC address.
    macs: ([u8; 6], [u8; 6]),
    ends: Endpoints,
    congestion: bool,
}

/// Returns the destination and source MAC address of a frame that is long enough.
#[inline(always)]
fn macs(frame: &[u8]) -> ([u8; 6], [u8; 6]) {
    (array_at(frame, 0), array_at(frame, 6))
}

/// The extended transport headers after the BTH.
#[derive(Default)]
struct Extension {
    reth: Option<Reth>,
    atomic: Option<AtomicEth>,
    immediate: Option<u32>,
    aeth: Option<Aeth>,
    atomic_ack: Option<u64>,
}

impl Extension {
    /// Splits the extended transport headers of an opcode from the payload.
    #[inline(always)]
    fn split(opcode: Opcode, body: &[u8]) -> Option<(Self, &[u8])> {
        let none = Self::default();
        Some(match opcode {
            Opcode::WriteOnly | Opcode::WriteFirst => {
                let (reth, rest) = body.split_first_chunk::<RETH_LEN>()?;
                (
                    Self {
                        reth: Some(Reth::parse(reth)),
                        ..none
                    },
                    rest,
                )
            }
            Opcode::WriteOnlyImmediate => {
                let (reth, rest) = body.split_first_chunk::<RETH_LEN>()?;
                let (immediate, rest) = rest.split_first_chunk::<4>()?;
                let immediate = Some(u32::from_be_bytes(*immediate));
                (
                    Self {
                        reth: Some(Reth::parse(reth)),
                        immediate,
                        ..none
                    },
                    rest,
                )
            }
            Opcode::WriteLastImmediate => {
                let (immediate, rest) = body.split_first_chunk::<4>()?;
                (
                    Self {
                        immediate: Some(u32::from_be_bytes(*immediate)),
                        ..none
                    },
                    rest,
                )
            }
            Opcode::FetchAdd => {
                let (atomic, rest) = body.split_first_chunk::<ATOMIC_LEN>()?;
                (
                    Self {
                        atomic: Some(AtomicEth::parse(atomic)),
                        ..none
                    },
                    rest,
                )
            }
            Opcode::Acknowledge => {
                let (aeth, rest) = body.split_first_chunk::<AETH_LEN>()?;
                (
                    Self {
                        aeth: Some(Aeth::parse(aeth)),
                        ..none
                    },
                    rest,
                )
            }
            Opcode::AtomicAcknowledge => {
                let (aeth, rest) = body.split_first_chunk::<AETH_LEN>()?;
                let (original, rest) = rest.split_first_chunk::<8>()?;
                let atomic_ack = Some(u64::from_be_bytes(*original));
                (
                    Self {
                        aeth: Some(Aeth::parse(aeth)),
                        atomic_ack,
                        ..none
                    },
                    rest,
                )
            }
            Opcode::SendOnly | Opcode::WriteMiddle | Opcode::WriteLast | Opcode::Cnp | Opcode::Other(_) => {
                (none, body)
            }
        })
    }
}

/// Returns the payload in `rest`, and its fault, if any. `whole` is the RETH's message length.
#[inline(always)]
fn carried<'a>(bth: &Bth, whole: u32, rest: &'a [u8]) -> (&'a [u8], Option<Refusal>) {
    if let Opcode::Other(_) = bth.opcode {
        return (rest, Some(Refusal::BadRoceOpcode));
    }
    match rest.len().checked_sub(usize::from(bth.pad)) {
        Some(len) if rest.len().is_multiple_of(4) => {
            let fault = if has_right_length(bth.opcode, len, whole as usize) {
                None
            } else {
                Some(Refusal::BadRoceLength)
            };
            (&rest[..len], fault)
        }
        Some(len) => (&rest[..len], Some(Refusal::BadRocePad)),
        None => (rest, Some(Refusal::BadRocePad)),
    }
}

/// Returns whether the payload's length fits the opcode and message length, as far as a single packet shows.
#[inline(always)]
fn has_right_length(opcode: Opcode, len: usize, whole: usize) -> bool {
    match opcode {
        Opcode::WriteOnly | Opcode::WriteOnlyImmediate => len == whole && len <= MAX_PAYLOAD,
        Opcode::WriteFirst => is_pmtu(len) && whole > len,
        Opcode::WriteMiddle => is_pmtu(len),
        Opcode::WriteLast | Opcode::WriteLastImmediate => (1..=MAX_PAYLOAD).contains(&len),
        Opcode::SendOnly => len <= MAX_PAYLOAD,
        Opcode::Cnp => len == CNP_LEN,
        Opcode::Acknowledge | Opcode::AtomicAcknowledge | Opcode::FetchAdd | Opcode::Other(_) => len == 0,
    }
}

#[inline]
fn is_pmtu(len: usize) -> bool {
    PMTUS.iter().any(|pmtu| usize::from(*pmtu) == len)
}

/// Returns the UDP payload of an IP packet of `total` bytes whose IP header has `at` bytes; `header` is the UDP header.
#[inline(always)]
fn udp<'a>(packet: &'a [u8], at: usize, header: &[u8; 8], total: usize) -> Result<&'a [u8], Refusal> {
    if u16_at(header, 2) != PORT {
        return Err(Refusal::NotRoce);
    }
    let len = usize::from(u16_at(header, 4));
    if len < 8 || at + len > total {
        return Err(Refusal::BadUdpLength);
    }
    if len < 8 + BTH_LEN + ICRC_LEN {
        return Err(Refusal::BadRoceLength);
    }
    packet.get(at + 8..at + len).ok_or(Refusal::Truncated)
}

/// Writes the UDP header and the BTH.
#[inline]
fn put_udp(out: &mut [u8], source_port: u16, len: u16, bth: &[u8; BTH_LEN]) {
    put_u16(out, 0, source_port);
    put_u16(out, 2, PORT);
    put_u16(out, 4, len);
    out[8..8 + BTH_LEN].copy_from_slice(bth);
}

/// Returns the refusal of an IPv4 packet that is too short for RoCEv2.
#[cold]
fn short_v4(packet: &[u8]) -> Refusal {
    short(
        packet,
        20,
        9,
        |first| first == 0x45,
        || try_u16(packet, 2).is_none_or(|len| usize::from(len) > packet.len()),
    )
}

/// Returns the refusal of an IPv6 packet that is too short for RoCEv2.
#[cold]
fn short_v6(packet: &[u8]) -> Refusal {
    short(
        packet,
        40,
        6,
        |first| first >> 4 == 6,
        || try_u16(packet, 4).is_none_or(|len| usize::from(len) + 40 > packet.len()),
    )
}

/// Returns the refusal of a short packet: a complete one that is too short for RoCEv2 is something else, and an incomplete
/// one is truncated.
fn short(
    packet: &[u8],
    header: usize,
    protocol: usize,
    good: fn(u8) -> bool,
    cut: impl Fn() -> bool,
) -> Refusal {
    if packet.first().is_some_and(|first| !good(*first)) {
        return Refusal::BadIpHeader;
    }
    match packet.get(..header) {
        Some(head) if head[protocol] != UDP => Refusal::NotUdp,
        Some(_) if cut() => Refusal::Truncated,
        Some(_) => match try_u16(packet, header + 2) {
            Some(PORT) => Refusal::BadRoceLength,
            Some(_) => Refusal::NotRoce,
            None => Refusal::Truncated,
        },
        None => Refusal::Truncated,
    }
}
