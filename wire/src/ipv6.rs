//! IPv6 headers (RFC 8200), the chain of extension headers, and hop-by-hop and destination options, which can carry INT and
//! IOAM.

use crate::bytes::{array_at, put_u16, put_u32, u16_at, u32_at};
use crate::refusal::Refusal;

/// Length of the header, bytes.
pub const HEADER_LEN: usize = 40;
/// Next header: hop-by-hop options.
pub const HOP_BY_HOP: u8 = 0;
/// Next header: destination options.
pub const DESTINATION_OPTIONS: u8 = 60;
const ROUTING: u8 = 43;
const FRAGMENT: u8 = 44;
const AUTHENTICATION: u8 = 51;
const MOBILITY: u8 = 135;
const HOST_IDENTITY: u8 = 139;
const SHIM_6: u8 = 140;
/// Maximum number of extension headers read per packet.
const MAX_EXTENSIONS: usize = 8;

mod field {
    pub(super) const WORD: usize = 0;
    pub(super) const PAYLOAD_LEN: usize = 4;
    pub(super) const NEXT_HEADER: usize = 6;
    pub(super) const HOP_LIMIT: usize = 7;
    pub(super) const SRC: usize = 8;
    pub(super) const DST: usize = 24;
    pub(super) const PAYLOAD: usize = 40;
}

/// A view of an IPv6 packet, possibly truncated after its header.
#[derive(Clone, Copy, Debug)]
pub struct Packet<T>(T);

impl<T: AsRef<[u8]>> Packet<T> {
    /// Creates a view of `buffer`.
    ///
    /// # Errors
    /// [`Refusal::Truncated`] if the header is incomplete, [`Refusal::BadIpHeader`] if it is not an IPv6 header.
    pub fn new_checked(buffer: T) -> Result<Self, Refusal> {
        match buffer.as_ref() {
            [first, ..] if first >> 4 != 6 => Err(Refusal::BadIpHeader),
            bytes if bytes.len() < HEADER_LEN => Err(Refusal::Truncated),
            _ => Ok(Self(buffer)),
        }
    }

    fn bytes(&self) -> &[u8] {
        self.0.as_ref()
    }

    /// Returns the traffic class: DSCP in the top six bits, ECN in the low two.
    pub fn traffic_class(&self) -> u8 {
        (u32_at(self.bytes(), field::WORD) >> 20) as u8
    }

    /// Returns the flow label, twenty bits.
    pub fn flow_label(&self) -> u32 {
        u32_at(self.bytes(), field::WORD) & 0x000f_ffff
    }

    /// Returns the value of the payload length field.
    pub fn payload_len(&self) -> u16 {
        u16_at(self.bytes(), field::PAYLOAD_LEN)
    }

    /// Returns the next header number.
    pub fn next_header(&self) -> u8 {
        self.bytes()[field::NEXT_HEADER]
    }

    /// Returns the hop limit.
    pub fn hop_limit(&self) -> u8 {
        self.bytes()[field::HOP_LIMIT]
    }

    /// Returns the source IPv6 address.
    pub fn src(&self) -> [u8; 16] {
        array_at(self.bytes(), field::SRC)
    }

    /// Returns the destination IPv6 address.
    pub fn dst(&self) -> [u8; 16] {
        array_at(self.bytes(), field::DST)
    }
}

impl<'a> Packet<&'a [u8]> {
    /// Returns the payload up to the end of the packet, or of the buffer if it is shorter.
    pub fn payload(&self) -> &'a [u8] {
        let end = field::PAYLOAD + usize::from(self.payload_len());
        &self.0[field::PAYLOAD..end.min(self.0.len())]
    }
}

impl<T: AsRef<[u8]> + AsMut<[u8]>> Packet<T> {
    /// Sets DSCP and ECN.
    pub fn set_traffic_class(&mut self, class: u8) {
        let word = u32_at(self.bytes(), field::WORD);
        put_u32(
            self.0.as_mut(),
            field::WORD,
            word & !0x0ff0_0000 | u32::from(class) << 20,
        );
    }

    /// Sets the payload length.
    pub fn set_payload_len(&mut self, len: u16) {
        put_u16(self.0.as_mut(), field::PAYLOAD_LEN, len);
    }

    /// Sets the next header.
    pub fn set_next_header(&mut self, next: u8) {
        self.0.as_mut()[field::NEXT_HEADER] = next;
    }

    /// Sets the hop limit.
    pub fn set_hop_limit(&mut self, limit: u8) {
        self.0.as_mut()[field::HOP_LIMIT] = limit;
    }
}

/// The fields of an IPv6 header.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Repr {
    /// Source IPv6 address of the packet.
    pub src: [u8; 16],
    /// Destination IPv6 address of the packet.
    pub dst: [u8; 16],
    /// Number of the next header.
    pub next_header: u8,
    /// Hop limit of the packet.
    pub hop_limit: u8,
    /// Traffic class: DSCP and ECN.
    pub traffic_class: u8,
    /// Flow label, twenty bits.
    pub flow_label: u32,
    /// Length of the payload, bytes.
    pub payload_len: u16,
}

impl Repr {
    /// Reads the fields of a packet's header.
    pub fn parse<T: AsRef<[u8]>>(packet: &Packet<T>) -> Self {
        Self {
            src: packet.src(),
            dst: packet.dst(),
            next_header: packet.next_header(),
            hop_limit: packet.hop_limit(),
            traffic_class: packet.traffic_class(),
            flow_label: packet.flow_label(),
            payload_len: packet.payload_len(),
        }
    }

    /// Returns the length of the header, bytes.
    pub const fn header_len(&self) -> usize {
        HEADER_LEN
    }

    /// Writes the header.
    ///
    /// # Panics
    /// If `out` is shorter than [`HEADER_LEN`].
    pub fn emit(&self, out: &mut [u8]) {
        let word = 6 << 28 | u32::from(self.traffic_class) << 20 | self.flow_label & 0x000f_ffff;
        put_u32(out, field::WORD, word);
        put_u16(out, field::PAYLOAD_LEN, self.payload_len);
        out[field::NEXT_HEADER] = self.next_header;
        out[field::HOP_LIMIT] = self.hop_limit;
        out[field::SRC..field::DST].copy_from_slice(&self.src);
        out[field::DST..field::PAYLOAD].copy_from_slice(&self.dst);
    }
}

/// Iterator over the extension headers of a packet that may be truncated.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Extensions<'a> {
    bytes: &'a [u8],
    /// Offset of the next header.
    pub(crate) at: usize,
    /// Number of the next header.
    pub(crate) next: u8,
    remaining: usize,
}

/// An extension header whose first eight bytes are present.
#[derive(Clone, Copy)]
pub(crate) struct Extension {
    pub(crate) kind: u8,
    pub(crate) at: usize,
    pub(crate) len: usize,
}

impl<'a> Extensions<'a> {
    /// Iterates over the headers starting at `at`; the first has the number `next`.
    pub(crate) fn new(bytes: &'a [u8], at: usize, next: u8) -> Self {
        Self {
            bytes,
            at,
            next,
            remaining: MAX_EXTENSIONS,
        }
    }

    /// Returns the bytes of a header, as far as the packet contains them.
    pub(crate) fn bytes_of(&self, header: Extension) -> &'a [u8] {
        let rest = self.bytes.get(header.at..).unwrap_or(&[]);
        rest.get(..header.len).unwrap_or(rest)
    }

    /// Returns whether an extension header comes next: the packet ends in it, or it is one too many to be read.
    pub(crate) fn is_at_extension(&self) -> bool {
        unit_of(self.next).is_some()
    }

    /// Returns whether a transport header comes next.
    pub(crate) fn is_at_transport(&self) -> bool {
        self.remaining > 0 && unit_of(self.next).is_none()
    }
}

/// Returns the unit in bytes of an extension header's length field, or `None` if it is not an extension header.
fn unit_of(kind: u8) -> Option<usize> {
    match kind {
        HOP_BY_HOP | ROUTING | DESTINATION_OPTIONS | MOBILITY | HOST_IDENTITY | SHIM_6 => Some(8),
        AUTHENTICATION => Some(4),
        FRAGMENT => Some(0),
        _ => None,
    }
}

impl Iterator for Extensions<'_> {
    type Item = Extension;

    fn next(&mut self) -> Option<Extension> {
        let kind = self.next;
        let unit = unit_of(kind)?;
        let head = self
            .bytes
            .get(self.at..self.at + 8)
            .filter(|_| self.remaining > 0)?;
        self.next = head[0];
        if kind == FRAGMENT && u16_at(head, 2) & 0xfff8 != 0 {
            // A later fragment has no transport header.
            self.remaining = 0;
            return None;
        }
        let header = Extension {
            kind,
            at: self.at,
            len: 8 + usize::from(head[1]) * unit,
        };
        self.at += header.len;
        self.remaining -= 1;
        Some(header)
    }
}

/// An option in an options header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Opt<'a> {
    /// Option type; 0 is Pad1, 1 is PadN.
    pub kind: u8,
    /// Option data; Pad1 has none.
    pub data: &'a [u8],
}

impl Opt<'_> {
    const PAD1: u8 = 0;
    const PADN: u8 = 1;

    fn len(&self) -> usize {
        if self.kind == Self::PAD1 {
            1
        } else {
            2 + self.data.len()
        }
    }
}

/// A hop-by-hop or destination options header.
#[derive(Clone, Copy, Debug)]
pub struct OptionsHeader<'a>(&'a [u8]);

impl<'a> OptionsHeader<'a> {
    /// Creates a view of the header at the start of `bytes`.
    ///
    /// # Errors
    /// [`Refusal::Truncated`] if the header is incomplete.
    pub fn new_checked(bytes: &'a [u8]) -> Result<Self, Refusal> {
        let [_, units, ..] = bytes else {
            return Err(Refusal::Truncated);
        };
        bytes
            .get(..8 + usize::from(*units) * 8)
            .map(Self)
            .ok_or(Refusal::Truncated)
    }

    /// Returns the number of the header that follows.
    pub fn next_header(&self) -> u8 {
        self.0[0]
    }

    /// Returns the length of the header, bytes.
    pub fn header_len(&self) -> usize {
        self.0.len()
    }

    /// Iterates over the options, including padding. Ends before an option that exceeds the header.
    pub fn options(&self) -> Options<'a> {
        Options(&self.0[2..])
    }
}

/// Iterator over the options of a header, including padding.
#[derive(Clone, Debug)]
pub struct Options<'a>(&'a [u8]);

impl<'a> Iterator for Options<'a> {
    type Item = Opt<'a>;

    fn next(&mut self) -> Option<Opt<'a>> {
        let (kind, tail) = self.0.split_first()?;
        if *kind == Opt::PAD1 {
            self.0 = tail;
            return Some(Opt {
                kind: *kind,
                data: &[],
            });
        }
        let (len, tail) = tail.split_first()?;
        let (data, rest) = tail.split_at_checked(usize::from(*len))?;
        self.0 = rest;
        Some(Opt { kind: *kind, data })
    }
}

/// Writes an options header with `options`, padded to a multiple of 8 bytes, and returns its length.
///
/// The caller aligns an option by inserting a PadN before it.
///
/// # Panics
/// If `out` is too short, or an option's data exceeds 255 bytes.
pub fn emit_options(next_header: u8, options: &[Opt<'_>], out: &mut [u8]) -> usize {
    let used = 2 + options.iter().map(Opt::len).sum::<usize>();
    let len = used.next_multiple_of(8);
    let out = &mut out[..len];
    out[0] = next_header;
    out[1] = (len / 8 - 1) as u8;
    let mut at = 2;
    for option in options {
        out[at] = option.kind;
        if option.kind != Opt::PAD1 {
            assert!(option.data.len() <= 255);
            out[at + 1] = option.data.len() as u8;
            out[at + 2..at + option.len()].copy_from_slice(option.data);
        }
        at += option.len();
    }
    match len - at {
        0 => {}
        1 => out[at] = Opt::PAD1,
        pad => {
            out[at..].fill(0);
            (out[at], out[at + 1]) = (Opt::PADN, (pad - 2) as u8);
        }
    }
    len
}
