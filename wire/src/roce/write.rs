//! Builds RoCEv2 frames to send.
//!
//! All frames of a queue pair with the same opcode and length have equal headers up to the PSN. A [`Writer`] caches these
//! headers and the ICRC over them, so that a frame costs little more than its payload.

use super::{
    ATOMIC_LEN, Aeth, AtomicEth, BTH_LEN, CNP_LEN, ICRC_LEN, IMMEDIATE_LEN, MAX_PAYLOAD, Nak, Opcode, PORT,
    Psn, RETH_LEN, Reth, Syndrome, Transport, field, icrc,
};
use crate::bytes::{put_u16, put_u24, put_u32, put_u64};
use crate::checksum;
use crate::crc::{ChooseCrc32, Crc32, choose_crc_32, crc_32_update};
use crate::ethernet::ethertype::{IPV4, IPV6, VLAN};
use crate::packet::UDP;
use crate::refusal::{EmitError, Refusal};
use core::fmt;
use core::net::IpAddr;

/// Length of the longest header template: Ethernet, VLAN tag, IPv6, UDP, BTH.
const MAX_TEMPLATE_LEN: usize = 14 + 4 + 40 + 8 + BTH_LEN;
/// Bytes of the BTH that change per packet: acknowledgement request and PSN.
const VARIABLE_LEN: usize = 4;
/// First byte of an IPv4 header without options.
const VERSION_4_IHL_5: u8 = 0x45;
/// IPv4 flag "don't fragment".
const DONT_FRAGMENT: u16 = 0x4000;
/// Number of header templates that a writer caches.
const TEMPLATES: usize = 8;

/// The network path of frames: addresses and header fields below the transport layer.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Path {
    /// MAC address of the sender.
    pub source_mac: [u8; 6],
    /// MAC address of the next hop.
    pub destination_mac: [u8; 6],
    /// Control information of the VLAN tag, if there is one.
    pub vlan: Option<u16>,
    /// IP address of the sender.
    pub source: IpAddr,
    /// Destination IP address, of the same family.
    pub destination: IpAddr,
    /// UDP source port, 0xC000 to 0xFFFF. It is the same for all packets of a queue pair, so that ECMP keeps them on one
    /// path.
    pub source_port: u16,
    /// Type of service or traffic class. 2 is ECT(0), which lets switches mark congestion.
    pub tos: u8,
    /// Hop limit (IPv6) or TTL (IPv4).
    pub hop_limit: u8,
    /// IPv6 flow label, 20 bits.
    pub flow_label: u32,
    /// IPv4 identification. 0 is correct without fragmentation, and equals what a UDP socket sends.
    pub identification: u16,
}

impl Path {
    /// Creates a path with default values: no VLAN tag, ECT(0), hop limit 64; identification, flow label and MAC addresses
    /// are 0.
    pub const fn new(source: IpAddr, destination: IpAddr, source_port: u16) -> Self {
        Self {
            source_mac: [0; 6],
            destination_mac: [0; 6],
            vlan: None,
            source,
            destination,
            source_port,
            tos: 2,
            hop_limit: 64,
            flow_label: 0,
            identification: 0,
        }
    }

    /// Returns the length of the headers before the BTH, bytes. A UDP socket sends the frame without them.
    pub const fn headers_len(&self) -> usize {
        let ethernet = if self.vlan.is_some() { 18 } else { 14 };
        ethernet + if self.source.is_ipv4() { 20 } else { 40 } + 8
    }

    /// Writes Ethernet, IP and UDP headers for a UDP payload of `len` bytes.
    fn emit(&self, len: usize, out: &mut [u8]) {
        out[..6].copy_from_slice(&self.destination_mac);
        out[6..12].copy_from_slice(&self.source_mac);
        let mut at = 12;
        if let Some(control) = self.vlan {
            put_u16(out, at, VLAN);
            put_u16(out, at + 2, control);
            at += 4;
        }
        put_u16(out, at, if self.source.is_ipv4() { IPV4 } else { IPV6 });
        let out = &mut out[at + 2..];
        let udp_len = (len + 8) as u16;
        let ip_len = match (self.source, self.destination) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                out[..20].fill(0);
                out[0] = VERSION_4_IHL_5;
                out[1] = self.tos;
                put_u16(out, 2, udp_len + 20);
                put_u16(out, 4, self.identification);
                put_u16(out, 6, DONT_FRAGMENT);
                out[8] = self.hop_limit;
                out[9] = UDP;
                out[12..16].copy_from_slice(&source.octets());
                out[16..20].copy_from_slice(&destination.octets());
                let sum = checksum::of(&out[..20]);
                put_u16(out, 10, sum);
                20
            }
            _ => {
                let word = 6 << 28 | u32::from(self.tos) << 20 | self.flow_label & 0x000f_ffff;
                put_u32(out, 0, word);
                put_u16(out, 4, udp_len);
                out[6] = UDP;
                out[7] = self.hop_limit;
                out[8..24].copy_from_slice(&widen(self.source));
                out[24..40].copy_from_slice(&widen(self.destination));
                40
            }
        };
        let out = &mut out[ip_len..];
        put_u16(out, 0, self.source_port);
        put_u16(out, 2, PORT);
        put_u16(out, 4, udp_len);
        put_u16(out, 6, 0);
    }
}

fn widen(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
        IpAddr::V6(address) => address.octets(),
    }
}

/// Source and destination address have different families.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MixedFamilies;

impl fmt::Display for MixedFamilies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("source and destination must both be IPv4, or both IPv6")
    }
}

impl core::error::Error for MixedFamilies {}

/// The BTH fields that change per packet.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Head {
    /// Packet sequence number (PSN).
    pub psn: Psn,
    /// An acknowledgement is requested.
    pub ack_request: bool,
    /// Solicited event: wakes the receiver.
    pub solicited: bool,
}

impl Head {
    /// Creates a head without acknowledgement request and solicited event.
    pub const fn new(psn: Psn) -> Self {
        Self {
            psn,
            ack_request: false,
            solicited: false,
        }
    }
}

/// The properties of a frame that its header template depends on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct TemplateKey {
    /// Opcode number in the BTH.
    opcode: u8,
    /// Flags of the BTH.
    flags: u8,
    payload_len: u16,
}

/// The common headers of all frames with the same opcode, solicited event bit and length.
#[derive(Clone, Debug)]
struct HeaderTemplate {
    /// The frames that have these headers, or `None` if the template is unused.
    key: Option<TemplateKey>,
    /// ICRC of the constant bytes, rewound by the last `prefix_len` of them.
    crc: icrc::Running,
    crc_function: Crc32,
    prefix_len: usize,
    bytes: [u8; MAX_TEMPLATE_LEN],
}

impl HeaderTemplate {
    #[inline(always)]
    fn copy_to(&self, out: &mut [u8]) {
        // Constant lengths for IPv4 and IPv6 without a tag avoid a call to memcpy.
        if let Ok(out) = <&mut [u8; 14 + 20 + 8 + BTH_LEN]>::try_from(&mut *out) {
            out.copy_from_slice(&self.bytes[..14 + 20 + 8 + BTH_LEN]);
        } else if let Ok(out) = <&mut [u8; 14 + 40 + 8 + BTH_LEN]>::try_from(&mut *out) {
            out.copy_from_slice(&self.bytes[..14 + 40 + 8 + BTH_LEN]);
        } else {
            out.copy_from_slice(&self.bytes[..out.len()]);
        }
    }
}

/// Builds complete frames of one queue pair in the caller's memory.
#[derive(Clone, Debug)]
pub struct Writer {
    path: Path,
    transport: Transport,
    queue_pair: u32,
    /// Length of a header template, bytes.
    len: usize,
    choose: ChooseCrc32,
    templates: [HeaderTemplate; TEMPLATES],
}

impl Writer {
    /// Creates a writer of frames to a remote queue pair (24 bits).
    ///
    /// # Errors
    /// [`MixedFamilies`] if the path's addresses have different families.
    pub fn new(path: Path, transport: Transport, queue_pair: u32) -> Result<Self, MixedFamilies> {
        if path.source.is_ipv4() != path.destination.is_ipv4() {
            return Err(MixedFamilies);
        }
        let len = path.headers_len() + BTH_LEN;
        Ok(Self {
            path,
            transport,
            queue_pair,
            len,
            choose: choose_crc_32,
            templates: core::array::from_fn(|_| HeaderTemplate {
                key: None,
                crc: icrc::Running::new(0),
                crc_function: crc_32_update,
                prefix_len: 0,
                bytes: [0; MAX_TEMPLATE_LEN],
            }),
        })
    }

    /// Uses the caller's CRC functions.
    #[must_use]
    pub fn with_crc(self, choose: ChooseCrc32) -> Self {
        Self { choose, ..self }
    }

    /// Returns the path of the frames.
    pub const fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the remote queue pair.
    pub const fn queue_pair(&self) -> u32 {
        self.queue_pair
    }

    /// Returns the length of the headers before the BTH, bytes.
    pub const fn headers_len(&self) -> usize {
        self.path.headers_len()
    }

    /// Returns the length of a frame with this opcode and payload, bytes.
    #[inline]
    pub const fn frame_len(&self, opcode: Opcode, payload_len: usize) -> usize {
        self.len + opcode.extension_len() + payload_len.next_multiple_of(4) + ICRC_LEN
    }

    /// Builds a WRITE ONLY and returns its length. `reth.len` must equal the payload's length.
    ///
    /// # Errors
    /// [`EmitError`] if `out` is too short, or a length is invalid.
    #[inline]
    pub fn write_only(
        &mut self,
        out: &mut [u8],
        head: Head,
        reth: Reth,
        payload: &[u8],
    ) -> Result<usize, EmitError> {
        check_len(payload.len() == reth.len as usize)?;
        self.write_only_by(out, head, reth, |dst| dst.copy_from_slice(payload))
    }

    /// Builds a WRITE ONLY of `reth.len` bytes, which `fill` writes in place.
    ///
    /// # Errors
    /// As for [`write_only`](Self::write_only).
    #[inline]
    pub fn write_only_by(
        &mut self,
        out: &mut [u8],
        head: Head,
        reth: Reth,
        fill: impl FnOnce(&mut [u8]),
    ) -> Result<usize, EmitError> {
        self.put(out, Opcode::WriteOnly, head, reth.len as usize, |ext, payload| {
            reth.emit(ext);
            fill(payload);
        })
    }

    /// Builds a WRITE ONLY with immediate data, which notifies the CPU; `fill` writes the payload as in
    /// [`write_only_by`](Self::write_only_by).
    ///
    /// # Errors
    /// As for [`write_only`](Self::write_only).
    #[inline]
    pub fn write_only_immediate_by(
        &mut self,
        out: &mut [u8],
        head: Head,
        reth: Reth,
        immediate: u32,
        fill: impl FnOnce(&mut [u8]),
    ) -> Result<usize, EmitError> {
        self.put(
            out,
            Opcode::WriteOnlyImmediate,
            head,
            reth.len as usize,
            |ext, payload| {
                reth.emit(ext);
                put_u32(ext, RETH_LEN, immediate);
                fill(payload);
            },
        )
    }

    /// Builds a WRITE ONLY with immediate data, which notifies the CPU.
    ///
    /// # Errors
    /// As for [`write_only`](Self::write_only).
    #[inline]
    pub fn write_only_immediate(
        &mut self,
        out: &mut [u8],
        head: Head,
        reth: Reth,
        immediate: u32,
        payload: &[u8],
    ) -> Result<usize, EmitError> {
        check_len(payload.len() == reth.len as usize)?;
        self.write_only_immediate_by(out, head, reth, immediate, |dst| dst.copy_from_slice(payload))
    }

    /// Builds a WRITE FIRST. `reth.len` is the message's length; the payload has the length of the path MTU.
    ///
    /// # Errors
    /// As for [`write_only`](Self::write_only).
    pub fn write_first(
        &mut self,
        out: &mut [u8],
        head: Head,
        reth: Reth,
        payload: &[u8],
    ) -> Result<usize, EmitError> {
        check_len(payload.len().is_multiple_of(4) && payload.len() < reth.len as usize)?;
        self.put(out, Opcode::WriteFirst, head, payload.len(), |ext, dst| {
            reth.emit(ext);
            dst.copy_from_slice(payload);
        })
    }

    /// Builds a WRITE MIDDLE.
    ///
    /// # Errors
    /// As for [`write_only`](Self::write_only).
    pub fn write_middle(&mut self, out: &mut [u8], head: Head, payload: &[u8]) -> Result<usize, EmitError> {
        check_len(payload.len().is_multiple_of(4) && !payload.is_empty())?;
        self.put(out, Opcode::WriteMiddle, head, payload.len(), |_, dst| {
            dst.copy_from_slice(payload)
        })
    }

    /// Builds a WRITE LAST.
    ///
    /// # Errors
    /// As for [`write_only`](Self::write_only).
    pub fn write_last(&mut self, out: &mut [u8], head: Head, payload: &[u8]) -> Result<usize, EmitError> {
        check_len(!payload.is_empty())?;
        self.put(out, Opcode::WriteLast, head, payload.len(), |_, dst| {
            dst.copy_from_slice(payload)
        })
    }

    /// Builds a WRITE LAST with immediate data, which notifies the CPU.
    ///
    /// # Errors
    /// As for [`write_only`](Self::write_only).
    pub fn write_last_immediate(
        &mut self,
        out: &mut [u8],
        head: Head,
        immediate: u32,
        payload: &[u8],
    ) -> Result<usize, EmitError> {
        check_len(!payload.is_empty())?;
        self.put(
            out,
            Opcode::WriteLastImmediate,
            head,
            payload.len(),
            |ext, dst| {
                put_u32(ext, 0, immediate);
                dst.copy_from_slice(payload);
            },
        )
    }

    /// Builds a SEND ONLY, a message for the receive queue.
    ///
    /// # Errors
    /// As for [`write_only`](Self::write_only).
    pub fn send(&mut self, out: &mut [u8], head: Head, payload: &[u8]) -> Result<usize, EmitError> {
        self.put(out, Opcode::SendOnly, head, payload.len(), |_, dst| {
            dst.copy_from_slice(payload)
        })
    }

    /// Builds a FETCH AND ADD on eight bytes (RC only). `atomic.compare` is 0.
    ///
    /// # Errors
    /// [`EmitError`] if `out` is too short, or the transport service is not RC.
    #[inline]
    pub fn fetch_add(&mut self, out: &mut [u8], head: Head, atomic: AtomicEth) -> Result<usize, EmitError> {
        self.put(out, Opcode::FetchAdd, head, 0, |ext, _| atomic.emit(ext))
    }

    /// Builds an ACK of all requests up to `psn` (RC only, like the following methods).
    ///
    /// # Errors
    /// As for [`fetch_add`](Self::fetch_add).
    #[inline]
    pub fn ack(&mut self, out: &mut [u8], psn: Psn, msn: u32) -> Result<usize, EmitError> {
        self.acknowledge(
            out,
            psn,
            Aeth {
                syndrome: Syndrome::ACK,
                msn,
            },
        )
    }

    /// Builds a NAK of `psn`; for a sequence error, `psn` is the expected one.
    ///
    /// # Errors
    /// As for [`fetch_add`](Self::fetch_add).
    pub fn nak(&mut self, out: &mut [u8], psn: Psn, nak: Nak, msn: u32) -> Result<usize, EmitError> {
        self.acknowledge(
            out,
            psn,
            Aeth {
                syndrome: Syndrome::Nak(nak),
                msn,
            },
        )
    }

    /// Builds an RNR NAK of `psn`. `timer` is a code, see [`rnr_nanoseconds`](super::rnr_nanoseconds).
    ///
    /// # Errors
    /// As for [`fetch_add`](Self::fetch_add).
    pub fn rnr(&mut self, out: &mut [u8], psn: Psn, timer: u8, msn: u32) -> Result<usize, EmitError> {
        self.acknowledge(
            out,
            psn,
            Aeth {
                syndrome: Syndrome::Rnr(timer),
                msn,
            },
        )
    }

    /// Builds an acknowledgement with any AETH.
    ///
    /// # Errors
    /// As for [`fetch_add`](Self::fetch_add).
    #[inline]
    pub fn acknowledge(&mut self, out: &mut [u8], psn: Psn, aeth: Aeth) -> Result<usize, EmitError> {
        self.put(out, Opcode::Acknowledge, Head::new(psn), 0, |ext, _| {
            aeth.emit(ext)
        })
    }

    /// Builds an ATOMIC ACKNOWLEDGE with the original value.
    ///
    /// # Errors
    /// As for [`fetch_add`](Self::fetch_add).
    pub fn atomic_ack(
        &mut self,
        out: &mut [u8],
        psn: Psn,
        msn: u32,
        original: u64,
    ) -> Result<usize, EmitError> {
        self.put(out, Opcode::AtomicAcknowledge, Head::new(psn), 0, |ext, _| {
            Aeth {
                syndrome: Syndrome::ACK,
                msn,
            }
            .emit(ext);
            put_u64(ext, 4, original);
        })
    }

    /// Builds a congestion notification packet (CNP).
    ///
    /// # Errors
    /// [`EmitError`] if `out` is too short.
    pub fn cnp(&mut self, out: &mut [u8]) -> Result<usize, EmitError> {
        self.put(out, Opcode::Cnp, Head::default(), CNP_LEN, |_, payload| {
            payload.fill(0)
        })
    }

    /// Builds a frame; `fill` writes extension headers and payload.
    #[inline]
    fn put(
        &mut self,
        out: &mut [u8],
        opcode: Opcode,
        head: Head,
        payload_len: usize,
        fill: impl FnOnce(&mut [u8], &mut [u8]),
    ) -> Result<usize, EmitError> {
        let number = opcode
            .number(self.transport)
            .ok_or(EmitError::Invalid(Refusal::BadRoceOpcode))?;
        check_len(payload_len <= MAX_PAYLOAD)?;
        let len = self.frame_len(opcode, payload_len);
        let out = out.get_mut(..len).ok_or(EmitError::Short(len))?;
        let (start, body) = out.split_at_mut(self.len);
        let template = self.template(number, opcode, head.solicited, payload_len);
        template.copy_to(start);
        let variable = if head.ack_request { 0x8000_0000 } else { 0 } | head.psn.value();
        let variable_offset = start.len() - VARIABLE_LEN;
        put_u32(start, variable_offset, variable);
        let (extension, rest) = body.split_at_mut(opcode.extension_len());
        let (payload, end) = rest.split_at_mut(payload_len);
        fill(extension, payload);
        let pad = end.len() - ICRC_LEN;
        end[..pad].fill(0);
        let crc = template.crc.finish(
            template.crc_function,
            &out[variable_offset - (template.prefix_len & 15)..len - ICRC_LEN],
        );
        out[len - ICRC_LEN..].copy_from_slice(&crc.to_le_bytes());
        Ok(len)
    }

    /// Returns the cached template for such frames, and creates it if needed.
    #[inline]
    fn template(
        &mut self,
        number: u8,
        opcode: Opcode,
        solicited: bool,
        payload_len: usize,
    ) -> &HeaderTemplate {
        let pad = (payload_len.wrapping_neg() & 3) as u8;
        let flags = field::MIGRATED | if solicited { field::SOLICITED } else { 0 } | pad << 4;
        let key = TemplateKey {
            opcode: number,
            flags,
            payload_len: payload_len as u16,
        };
        let index = (usize::from(number) ^ payload_len >> 2) % TEMPLATES;
        if self.templates[index].key != Some(key) {
            self.fill_template(index, key, opcode, payload_len);
        }
        &self.templates[index]
    }

    #[cold]
    fn fill_template(&mut self, index: usize, key: TemplateKey, opcode: Opcode, payload_len: usize) {
        let headers = self.path.headers_len();
        let len = self.frame_len(opcode, payload_len) - headers;
        let template = &mut self.templates[index];
        template.key = Some(key);
        self.path.emit(len, &mut template.bytes);
        let bth = &mut template.bytes[headers..headers + BTH_LEN];
        bth.fill(0);
        bth[field::OPCODE] = key.opcode;
        bth[field::FLAGS] = key.flags;
        put_u16(bth, field::PARTITION, 0xffff);
        bth[field::CONGESTION] = if opcode == Opcode::Cnp { field::BECN } else { 0 };
        put_u24(bth, field::QUEUE_PAIR, self.queue_pair);
        let crc = if self.path.source.is_ipv4() {
            let mut masked = [0; icrc::HEAD_V4];
            masked.copy_from_slice(&template.bytes[headers - 28..headers + BTH_LEN]);
            icrc::mask_v4(&mut masked);
            icrc::extend(icrc::START, &masked[..icrc::HEAD_V4 - VARIABLE_LEN])
        } else {
            let mut masked = [0; icrc::HEAD_V6];
            masked.copy_from_slice(&template.bytes[headers - 48..headers + BTH_LEN]);
            icrc::mask_v6(&mut masked);
            icrc::extend(icrc::START, &masked[..icrc::HEAD_V6 - VARIABLE_LEN])
        };
        let constant_len = headers + BTH_LEN - VARIABLE_LEN;
        let covered_len = len - (BTH_LEN - VARIABLE_LEN) - ICRC_LEN;
        template.prefix_len = icrc::Running::prefix_len(covered_len);
        template.crc_function = (self.choose)(template.prefix_len + covered_len);
        template.crc = icrc::Running::rewind(
            crc,
            &template.bytes[constant_len - template.prefix_len..constant_len],
        );
    }
}

#[inline(always)]
fn check_len(is_valid: bool) -> Result<(), EmitError> {
    if is_valid {
        Ok(())
    } else {
        Err(EmitError::Invalid(Refusal::BadRoceLength))
    }
}

/// A packet of a segmented write.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Segment {
    /// [`Opcode::WriteOnly`], or first, middle or last; without immediate data.
    pub opcode: Opcode,
    /// Offset of its payload in the message, bytes.
    pub at: usize,
    /// Length of its payload, bytes.
    pub len: usize,
}

/// Iterator over the packets of a write over a path MTU. Only the last may be shorter than the MTU.
#[derive(Clone, Copy, Debug)]
pub struct Segments {
    len: usize,
    pmtu: usize,
    at: usize,
    is_done: bool,
}

impl Segments {
    /// Segments a message of `len` bytes; an empty message has one packet. A path MTU of 0 counts as 256.
    #[inline]
    pub const fn new(len: usize, pmtu: u16) -> Self {
        let pmtu = if pmtu == 0 { 256 } else { pmtu as usize };
        Self {
            len,
            pmtu,
            at: 0,
            is_done: false,
        }
    }

    /// Returns the number of packets, which is also the number of PSNs used.
    #[inline]
    pub const fn count(len: usize, pmtu: u16) -> usize {
        let pmtu = if pmtu == 0 { 256 } else { pmtu as usize };
        if len == 0 { 1 } else { len.div_ceil(pmtu) }
    }
}

impl Iterator for Segments {
    type Item = Segment;

    #[inline]
    fn next(&mut self) -> Option<Segment> {
        if self.is_done {
            return None;
        }
        let left = self.len - self.at;
        let at = self.at;
        let len = left.min(self.pmtu);
        self.at += len;
        self.is_done = len == left;
        let opcode = match (at == 0, self.is_done) {
            (true, true) => Opcode::WriteOnly,
            (true, false) => Opcode::WriteFirst,
            (false, false) => Opcode::WriteMiddle,
            (false, true) => Opcode::WriteLast,
        };
        Some(Segment { opcode, at, len })
    }
}

// A template has space for all headers before the extended transport headers; the atomic one is the longest of those.
const _: () = assert!(MAX_TEMPLATE_LEN >= 18 + 40 + 8 + BTH_LEN && ATOMIC_LEN > RETH_LEN + IMMEDIATE_LEN);
