//! A RoCEv2 packet, read and checked.

use super::{
    AETH_LEN, ATOMIC_LEN, Aeth, AtomicEth, BTH_LEN, Bth, CNP_LEN, ICRC_LEN, MAX_PAYLOAD, Opcode, PMTUS, PORT,
    RETH_LEN, Reth, field, icrc, is_default_partition,
};
use crate::bytes::{array_at, put_u16, try_u16, u16_at, u32_at};
use crate::refusal::Refusal;
use crate::walk::{IPV4, IPV6, QINQ, QINQ_OLD, UDP, VLAN};
use core::net::IpAddr;

/// VLAN tags that are stepped over.
const MAX_TAGS: usize = 4;
/// Do not fragment.
const DF: u16 = 0x4000;

/// Between whom a packet goes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Ends {
    /// From.
    pub source: IpAddr,
    /// To.
    pub destination: IpAddr,
    /// UDP source port; the destination's is [`PORT`].
    pub source_port: u16,
}

/// A packet whose headers, lengths and CRC are good. What is wrong with what it asks for is its [`fault`](Self::fault): that is
/// answered, on a reliable connection, and not passed over in silence (6.3).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Packet<'a> {
    /// Ethernet source, for the way back; zero if the frame was not seen.
    pub source_mac: [u8; 6],
    /// Ethernet destination; zero if the frame was not seen.
    pub destination_mac: [u8; 6],
    /// Between whom it goes.
    pub ends: Ends,
    /// A switch has marked congestion on its way (ECN 3); not known without the IP header.
    pub congestion: bool,
    /// Base transport header.
    pub bth: Bth,
    /// Where a write goes.
    pub reth: Option<Reth>,
    /// What an atomic operation does.
    pub atomic: Option<AtomicEth>,
    /// Immediate data.
    pub immediate: Option<u32>,
    /// What an acknowledgement says.
    pub aeth: Option<Aeth>,
    /// What was there before an atomic operation.
    pub atomic_ack: Option<u64>,
    /// What it carries, without pad bytes. Of opcodes that we do not carry out: all between base header and CRC.
    pub payload: &'a [u8],
    /// An invalid request: an unknown opcode, a wrong pad count or length. Only what one packet tells alone; the order of packets,
    /// rights and ranges are the responder's to check.
    pub fault: Option<Refusal>,
}

impl<'a> Packet<'a> {
    /// Reads and checks an Ethernet frame. IPv4 has no options, and IPv6 no extension headers.
    ///
    /// Checksums of IPv4 and UDP are not looked at: the CRC covers what matters.
    ///
    /// # Errors
    /// What is to be dropped without an answer.
    #[inline]
    pub fn parse(frame: &'a [u8]) -> Result<Self, Refusal> {
        let mut ethertype = try_u16(frame, 12).ok_or(Refusal::Truncated)?;
        let mut at = 14;
        for _ in 0..MAX_TAGS {
            if !matches!(ethertype, VLAN | QINQ | QINQ_OLD) {
                break;
            }
            ethertype = try_u16(frame, at + 2).ok_or(Refusal::Truncated)?;
            at += 4;
        }
        let packet = frame.get(at..).ok_or(Refusal::Truncated)?;
        let mut packet = match ethertype {
            IPV4 => Self::ipv4(packet),
            IPV6 => Self::ipv6(packet),
            _ => Err(Refusal::NotIp),
        }?;
        packet.destination_mac = array_at(frame, 0);
        packet.source_mac = array_at(frame, 6);
        Ok(packet)
    }

    /// Reads and checks what a UDP socket received on [`PORT`], of which the IP header was not seen. The CRC covers that header, so
    /// it is taken for what Linux sends from an unconnected UDP socket that must not fragment (`IP_PMTUDISC_DO`): no options, and
    /// over IPv4 identification 0. Anything else is [`Refusal::BadIcrc`].
    ///
    /// # Errors
    /// What is to be dropped without an answer.
    #[inline]
    pub fn parse_udp(payload: &'a [u8], ends: Ends) -> Result<Self, Refusal> {
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
                put_u16(&mut head, 6, DF);
                head[9] = UDP;
                head[12..16].copy_from_slice(&source.octets());
                head[16..20].copy_from_slice(&destination.octets());
                put_udp(&mut head[20..], ends.source_port, udp_len, bth);
                icrc::mask_v4(&mut head);
                icrc::go_on(icrc::START, &head)
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
                icrc::go_on(icrc::START, &head)
            }
            _ => return Err(Refusal::NotIp),
        };
        Self::transport(payload, crc, ends)
    }

    #[inline]
    fn ipv4(packet: &'a [u8]) -> Result<Self, Refusal> {
        let mut head = *packet.first_chunk::<{ icrc::HEAD_V4 }>().ok_or_else(|| short_v4(packet))?;
        let total = usize::from(u16_at(&head, 2));
        if head[0] != 0x45 || total < 28 {
            return Err(Refusal::BadIpHeader);
        }
        if u16_at(&head, 6) & 0x3fff != 0 {
            return Err(Refusal::Fragment);
        }
        if head[9] != UDP {
            return Err(Refusal::NotUdp);
        }
        let payload = udp(packet, 20, total)?;
        let ends = Ends {
            source: array_at::<4>(&head, 12).into(),
            destination: array_at::<4>(&head, 16).into(),
            source_port: u16_at(&head, 20),
        };
        let congestion = head[1] & 3 == 3;
        icrc::mask_v4(&mut head);
        let packet = Self::transport(payload, icrc::go_on(icrc::START, &head), ends)?;
        Ok(Self { congestion, ..packet })
    }

    #[inline]
    fn ipv6(packet: &'a [u8]) -> Result<Self, Refusal> {
        let mut head = *packet.first_chunk::<{ icrc::HEAD_V6 }>().ok_or_else(|| short_v6(packet))?;
        let total = 40 + usize::from(u16_at(&head, 4));
        if head[0] >> 4 != 6 {
            return Err(Refusal::BadIpHeader);
        }
        if head[6] != UDP {
            return Err(Refusal::NotUdp);
        }
        let payload = udp(packet, 40, total)?;
        let ends = Ends {
            source: array_at::<16>(&head, 8).into(),
            destination: array_at::<16>(&head, 24).into(),
            source_port: u16_at(&head, 40),
        };
        let congestion = head[1] >> 4 & 3 == 3;
        icrc::mask_v6(&mut head);
        let packet = Self::transport(payload, icrc::go_on(icrc::START, &head), ends)?;
        Ok(Self { congestion, ..packet })
    }

    /// `head_crc` is the CRC up to the end of the base transport header.
    #[inline]
    fn transport(payload: &'a [u8], head_crc: u32, ends: Ends) -> Result<Self, Refusal> {
        let (header, rest) = payload.split_first_chunk::<BTH_LEN>().ok_or(Refusal::Truncated)?;
        let (body, crc) = rest.split_last_chunk::<ICRC_LEN>().ok_or(Refusal::Truncated)?;
        if icrc::go_on(head_crc, body) != u32::from_le_bytes(*crc) {
            return Err(Refusal::BadIcrc);
        }
        if header[field::FLAGS] & field::VERSION != 0 {
            return Err(Refusal::BadTransportVersion);
        }
        if !is_default_partition(header) {
            return Err(Refusal::BadPartitionKey);
        }
        let mut packet = Self::empty(Bth::parse(header), ends);
        packet.body(body)?;
        Ok(packet)
    }

    #[inline]
    fn empty(bth: Bth, ends: Ends) -> Self {
        Self {
            source_mac: [0; 6],
            destination_mac: [0; 6],
            ends,
            congestion: false,
            bth,
            reth: None,
            atomic: None,
            immediate: None,
            aeth: None,
            atomic_ack: None,
            payload: &[],
            fault: None,
        }
    }

    /// What lies between base transport header and CRC.
    #[inline]
    fn body(&mut self, body: &'a [u8]) -> Result<(), Refusal> {
        let opcode = self.bth.opcode;
        let short = Refusal::BadRoceLength;
        let mut rest = body;
        if opcode.has_reth() {
            let (reth, after) = rest.split_first_chunk::<RETH_LEN>().ok_or(short)?;
            (self.reth, rest) = (Some(Reth::parse(reth)), after);
        }
        if opcode.has_immediate() {
            let (immediate, after) = rest.split_first_chunk::<4>().ok_or(short)?;
            (self.immediate, rest) = (Some(u32_at(immediate, 0)), after);
        }
        match opcode {
            Opcode::FetchAdd => {
                let (atomic, after) = rest.split_first_chunk::<ATOMIC_LEN>().ok_or(short)?;
                (self.atomic, rest) = (Some(AtomicEth::parse(atomic)), after);
            }
            Opcode::Acknowledge | Opcode::AtomicAcknowledge => {
                let (aeth, after) = rest.split_first_chunk::<AETH_LEN>().ok_or(short)?;
                (self.aeth, rest) = (Some(Aeth::parse(aeth)), after);
                if opcode == Opcode::AtomicAcknowledge {
                    let (original, after) = rest.split_first_chunk::<8>().ok_or(short)?;
                    (self.atomic_ack, rest) = (Some(u64::from_be_bytes(*original)), after);
                }
            }
            Opcode::Other(_) => {
                self.payload = rest;
                self.fault = Some(Refusal::BadRoceOpcode);
                return Ok(());
            }
            _ => {}
        }
        let len = rest.len().checked_sub(usize::from(self.bth.pad));
        self.payload = len.map_or(rest, |len| &rest[..len]);
        self.fault = if len.is_none() || !rest.len().is_multiple_of(4) {
            Some(Refusal::BadRocePad)
        } else if self.has_right_length() {
            None
        } else {
            Some(Refusal::BadRoceLength)
        };
        Ok(())
    }

    /// Does the payload's length fit opcode and message length, as far as one packet tells?
    #[inline]
    fn has_right_length(&self) -> bool {
        let len = self.payload.len();
        let whole = self.reth.map_or(0, |reth| reth.len as usize);
        match self.bth.opcode {
            Opcode::WriteOnly | Opcode::WriteOnlyImmediate => len == whole && len <= MAX_PAYLOAD,
            Opcode::WriteFirst => is_pmtu(len) && whole > len,
            Opcode::WriteMiddle => is_pmtu(len),
            Opcode::WriteLast | Opcode::WriteLastImmediate => (1..=MAX_PAYLOAD).contains(&len),
            Opcode::SendOnly => len <= MAX_PAYLOAD,
            Opcode::Cnp => len == CNP_LEN,
            Opcode::Acknowledge | Opcode::AtomicAcknowledge | Opcode::FetchAdd | Opcode::Other(_) => len == 0,
        }
    }
}

#[inline]
fn is_pmtu(len: usize) -> bool {
    PMTUS.iter().any(|pmtu| usize::from(*pmtu) == len)
}

/// What UDP carries in an IP packet of `total` bytes, whose header has `header` bytes; the packet has a UDP header.
#[inline]
fn udp(packet: &[u8], header: usize, total: usize) -> Result<&[u8], Refusal> {
    if u16_at(packet, header + 2) != PORT {
        return Err(Refusal::NotRoce);
    }
    let len = usize::from(u16_at(packet, header + 4));
    if len < 8 || header + len > total {
        return Err(Refusal::BadUdpLength);
    }
    if len < 8 + BTH_LEN + ICRC_LEN {
        return Err(Refusal::BadRoceLength);
    }
    packet.get(header + 8..header + len).ok_or(Refusal::Truncated)
}

/// UDP header and base transport header of a head.
#[inline]
fn put_udp(out: &mut [u8], source_port: u16, len: u16, bth: &[u8; BTH_LEN]) {
    put_u16(out, 0, source_port);
    put_u16(out, 2, PORT);
    put_u16(out, 4, len);
    out[8..8 + BTH_LEN].copy_from_slice(bth);
}

/// Why an IPv4 packet is too short for RoCEv2.
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

/// Why an IPv6 packet is too short for RoCEv2.
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

/// A packet that is whole and yet too short for RoCEv2 is something else; one that was cut is truncated.
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
