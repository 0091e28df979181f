//! INT metadata headers: 2.0/2.1 (INT-MD and INT-MX), 1.0 and 0.5 (`docs/reference/wire-formats.md`, sections 1.3, 1.5 and
//! 1.6).
//!
//! [`Md2`], [`Mx2`], [`Md10`] and [`Md05`] are the headers' fields, for writers. [`Header`] is a view that transit nodes
//! modify in place. The `read_` functions parse header and stack into an [`Int`] with all checks of section 1.7. Private
//! bits of dialects are read but never written, except GÉANT's sequence number.

use super::layout::{Layouts, words, words_10};
use super::{Flags, Int, Layout, Mode, Sf, Stack, Version, sf};
use crate::bytes::{put_u16, u16_at};
use crate::profile::{Dialect, Profile};
use crate::refusal::Refusal;

/// Length of the INT 2.x header, bytes.
pub const LEN_2: usize = 12;
/// Length of the INT 1.0 and 0.5 headers, bytes.
pub const LEN_1: usize = 8;

mod field {
    use core::ops::RangeInclusive;

    pub(super) const FLAGS: usize = 0;
    pub(super) const M_OR_COUNT: usize = 1;
    pub(super) const HOP_ML: usize = 2;
    pub(super) const REMAINING: usize = 3;
    pub(super) const BITMAP: usize = 4;
    pub(super) const DS_ID: usize = 6;
    pub(super) const DS_INSTRUCTION: usize = 8;
    pub(super) const DS_FLAGS: usize = 10;
    pub(super) const RESERVED_10: usize = 6;
    pub(super) const FIVE_BITS: u8 = 0x1f;
    pub(super) const HOPS_05: RangeInclusive<usize> = 2..=3;
}

/// A view of a header that a transit node reads and modifies. Other bits, including reserved ones, stay unchanged.
#[derive(Clone, Copy, Debug)]
pub struct Header<T>(T);

impl<T: AsRef<[u8]>> Header<T> {
    /// Creates a view of the header, of any version, at the start of `buffer`.
    ///
    /// # Errors
    /// [`Refusal::IntTruncated`] if the header is incomplete.
    pub fn new_checked(buffer: T) -> Result<Self, Refusal> {
        let bytes = buffer.as_ref();
        let version = bytes.first().map_or(0, |first| first >> 4);
        let len = if version == 2 { LEN_2 } else { LEN_1 };
        if bytes.len() < len {
            Err(Refusal::IntTruncated)
        } else {
            Ok(Self(buffer))
        }
    }

    fn bytes(&self) -> &[u8] {
        self.0.as_ref()
    }

    /// Returns the header's version nibble.
    pub fn version(&self) -> u8 {
        self.bytes()[field::FLAGS] >> 4
    }

    /// Returns the flags: D, E and M of 2.x; C, E and M of 1.0.
    pub fn flags(&self) -> Flags {
        if self.version() == 2 {
            return flags_2(self.bytes());
        }
        low_flags(self.bytes()).with(Flags::MTU_EXCEEDED, self.bytes()[field::M_OR_COUNT] & 0x80 != 0)
    }

    /// Returns Hop ML, the four-byte words per hop (2.x and 1.0).
    pub fn hop_ml(&self) -> u8 {
        self.bytes()[field::HOP_ML] & field::FIVE_BITS
    }

    /// Returns the remaining hop count (2.x and 1.0).
    pub fn remaining(&self) -> u8 {
        self.bytes()[field::REMAINING]
    }

    /// Returns the header's instruction bitmap.
    pub fn bitmap(&self) -> u16 {
        u16_at(self.bytes(), field::BITMAP)
    }
}

impl<T: AsRef<[u8]> + AsMut<[u8]>> Header<T> {
    /// Sets the remaining hop count (2.x and 1.0).
    pub fn set_remaining(&mut self, remaining: u8) {
        self.0.as_mut()[field::REMAINING] = remaining;
    }

    /// Sets U, State and packet ID of SF-INT (2.x).
    #[inline(always)]
    pub fn set_sf(&mut self, sf: Sf) {
        let bits = sf::bits(Some((sf.urgent, sf.state)));
        let bytes = self.0.as_mut();
        let first = u16_at(bytes, field::FLAGS);
        put_u16(
            bytes,
            field::FLAGS,
            first & !sf::bits(Some((true, sf::State::High))) | bits,
        );
        put_u16(bytes, field::DS_ID, sf.packet_id);
    }

    /// Sets the E flag: a hop could not add metadata because the remaining hop count was 0.
    pub fn set_hops_exceeded(&mut self) {
        let bit = if self.version() == 2 { 4 } else { 1 };
        self.0.as_mut()[field::FLAGS] |= bit;
    }

    /// Sets the M flag: a hop could not add metadata because of the MTU (2.x and 1.0).
    pub fn set_mtu_exceeded(&mut self) {
        if self.version() == 2 {
            self.0.as_mut()[field::FLAGS] |= 2;
        } else {
            self.0.as_mut()[field::M_OR_COUNT] |= 0x80;
        }
    }
}

/// The fields of an INT-MD 2.x header.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Md2 {
    /// Flags D, E and M.
    pub flags: Flags,
    /// Hop ML, the four-byte words per hop.
    pub hop_ml: u8,
    /// Remaining hop count: hops that may still add a record.
    pub remaining: u8,
    /// Instruction bitmap: requested items.
    pub bitmap: u16,
    /// Domain Specific ID; the packet ID if `sf` is set.
    pub ds_id: u16,
    /// DS Instruction: requested domain-specific items.
    pub ds_instruction: u16,
    /// DS Flags, defined by the domain.
    pub ds_flags: u16,
    /// SF-INT: the U flag, and the state of the carried record.
    pub sf: Option<(bool, sf::State)>,
}

impl Md2 {
    /// Parses a header. The caller checks the version and everything that depends on the stack.
    ///
    /// # Errors
    /// [`Refusal::IntTruncated`] if the header is incomplete; [`Refusal::BadSfHeader`] if it is an SF-INT header with an
    /// invalid state.
    pub fn parse(bytes: &[u8]) -> Result<Self, Refusal> {
        let header = bytes.get(..LEN_2).ok_or(Refusal::IntTruncated)?;
        Ok(Self {
            sf: sf::of_bits(u16_at(header, field::FLAGS))?,
            ..Self::plain(header)
        })
    }

    /// Creates the header that an SF-INT source writes.
    pub const fn stateful(hop_ml: u8, remaining: u8, bitmap: u16, sf: Sf) -> Self {
        Self {
            flags: Flags(0),
            hop_ml,
            remaining,
            bitmap,
            ds_id: sf.packet_id,
            ds_instruction: 0,
            ds_flags: 0,
            sf: Some((sf.urgent, sf.state)),
        }
    }

    /// Reads the fields of plain INT from a complete header.
    fn plain(header: &[u8]) -> Self {
        Self {
            flags: flags_2(header),
            hop_ml: header[field::HOP_ML] & field::FIVE_BITS,
            remaining: header[field::REMAINING],
            bitmap: u16_at(header, field::BITMAP),
            ds_id: u16_at(header, field::DS_ID),
            ds_instruction: u16_at(header, field::DS_INSTRUCTION),
            ds_flags: u16_at(header, field::DS_FLAGS),
            sf: None,
        }
    }

    /// Writes the header, 12 bytes.
    ///
    /// # Panics
    /// If `out` is shorter than [`LEN_2`].
    pub fn emit(&self, out: &mut [u8]) {
        let flags = 2 << 4
            | u8::from(self.flags.contains(Flags::DISCARD)) << 3
            | u8::from(self.flags.contains(Flags::HOPS_EXCEEDED)) << 2
            | u8::from(self.flags.contains(Flags::MTU_EXCEEDED)) << 1;
        put_u16(out, field::FLAGS, u16::from(flags) << 8 | sf::bits(self.sf));
        out[field::HOP_ML] = self.hop_ml & field::FIVE_BITS;
        out[field::REMAINING] = self.remaining;
        put_u16(out, field::BITMAP, self.bitmap);
        put_u16(out, field::DS_ID, self.ds_id);
        put_u16(out, field::DS_INSTRUCTION, self.ds_instruction);
        put_u16(out, field::DS_FLAGS, self.ds_flags);
    }
}

/// The fields of an INT-MX 2.1 header.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Mx2 {
    /// D flag: the sink discards the packet.
    pub discard: bool,
    /// Instruction bitmap: requested items.
    pub bitmap: u16,
    /// Domain Specific ID of the header.
    pub ds_id: u16,
    /// DS Instruction: requested domain-specific items.
    pub ds_instruction: u16,
    /// DS Flags, defined by the domain.
    pub ds_flags: u16,
}

impl Mx2 {
    /// Parses a header. The caller checks the version.
    ///
    /// # Errors
    /// [`Refusal::IntTruncated`] if the header is incomplete.
    pub fn parse(bytes: &[u8]) -> Result<Self, Refusal> {
        let header = bytes.get(..LEN_2).ok_or(Refusal::IntTruncated)?;
        let Md2 {
            flags,
            bitmap,
            ds_id,
            ds_instruction,
            ds_flags,
            ..
        } = Md2::plain(header);
        Ok(Self {
            discard: flags.contains(Flags::DISCARD),
            bitmap,
            ds_id,
            ds_instruction,
            ds_flags,
        })
    }

    /// Writes the header, 12 bytes.
    ///
    /// # Panics
    /// If `out` is shorter than [`LEN_2`].
    pub fn emit(&self, out: &mut [u8]) {
        let flags = Flags::default().with(Flags::DISCARD, self.discard);
        let Self {
            bitmap,
            ds_id,
            ds_instruction,
            ds_flags,
            ..
        } = *self;
        Md2 {
            flags,
            bitmap,
            ds_id,
            ds_instruction,
            ds_flags,
            ..Md2::default()
        }
        .emit(out);
    }
}

/// The fields of an INT 1.0 header.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Md10 {
    /// Flags C, E and M.
    pub flags: Flags,
    /// Replication request, 0 to 3.
    pub replication: u8,
    /// Hop ML, the four-byte words per hop.
    pub hop_ml: u8,
    /// Remaining hop count: hops that may still add a record.
    pub remaining: u8,
    /// Instruction bitmap: requested items.
    pub bitmap: u16,
    /// Reserved 16 bits, which GÉANT uses for a sequence number.
    pub reserved: u16,
    /// The version nibble is 0 instead of 1, as ONOS writes it.
    pub version_zero: bool,
}

impl Md10 {
    /// Parses a header. A version nibble of 0 means ONOS.
    ///
    /// # Errors
    /// [`Refusal::IntTruncated`] if the header is incomplete.
    pub fn parse(bytes: &[u8]) -> Result<Self, Refusal> {
        let header = bytes.get(..LEN_1).ok_or(Refusal::IntTruncated)?;
        Ok(Self {
            flags: low_flags(header).with(Flags::MTU_EXCEEDED, header[field::M_OR_COUNT] & 0x80 != 0),
            replication: header[field::FLAGS] >> 2 & 3,
            hop_ml: header[field::HOP_ML] & field::FIVE_BITS,
            remaining: header[field::REMAINING],
            bitmap: u16_at(header, field::BITMAP),
            reserved: u16_at(header, field::RESERVED_10),
            version_zero: header[field::FLAGS] >> 4 == 0,
        })
    }

    /// Writes the header, 8 bytes.
    ///
    /// # Panics
    /// If `out` is shorter than [`LEN_1`].
    pub fn emit(&self, out: &mut [u8]) {
        out[field::FLAGS] = u8::from(!self.version_zero) << 4 | emit_low_flags(self.replication, self.flags);
        out[field::M_OR_COUNT] = u8::from(self.flags.contains(Flags::MTU_EXCEEDED)) << 7;
        out[field::HOP_ML] = self.hop_ml & field::FIVE_BITS;
        out[field::REMAINING] = self.remaining;
        put_u16(out, field::BITMAP, self.bitmap);
        put_u16(out, field::RESERVED_10, self.reserved);
    }
}

/// The fields of an INT 0.5 header.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Md05 {
    /// Flags C and E.
    pub flags: Flags,
    /// Replication request, 0 to 3.
    pub replication: u8,
    /// Max Hop Count: maximum number of records.
    pub max_hops: u8,
    /// Total Hop Count: number of records on the stack.
    pub total_hops: u8,
    /// Instruction bitmap. The instruction count on the wire is its number of set bits.
    pub bitmap: u16,
}

impl Md05 {
    /// Parses a header. The caller checks version and instruction count.
    ///
    /// # Errors
    /// [`Refusal::IntTruncated`] if the header is incomplete.
    pub fn parse(bytes: &[u8]) -> Result<Self, Refusal> {
        let header = bytes.get(..LEN_1).ok_or(Refusal::IntTruncated)?;
        Ok(Self {
            flags: low_flags(header),
            replication: header[field::FLAGS] >> 2 & 3,
            max_hops: header[*field::HOPS_05.start()],
            total_hops: header[*field::HOPS_05.end()],
            bitmap: u16_at(header, field::BITMAP),
        })
    }

    /// Writes the header, 8 bytes.
    ///
    /// # Panics
    /// If `out` is shorter than [`LEN_1`].
    pub fn emit(&self, out: &mut [u8]) {
        out[field::FLAGS] = emit_low_flags(self.replication, self.flags);
        out[field::M_OR_COUNT] = self.bitmap.count_ones() as u8;
        out[field::HOPS_05].copy_from_slice(&[self.max_hops, self.total_hops]);
        put_u16(out, field::BITMAP, self.bitmap);
        put_u16(out, field::RESERVED_10, 0);
    }
}

fn emit_low_flags(replication: u8, flags: Flags) -> u8 {
    (replication & 3) << 2
        | u8::from(flags.contains(Flags::DISCARD)) << 1
        | u8::from(flags.contains(Flags::HOPS_EXCEEDED))
}

#[inline]
fn flags_2(header: &[u8]) -> Flags {
    let first = header[field::FLAGS];
    Flags(first >> 3 & 1 | first >> 1 & 2 | first << 1 & 4)
}

fn low_flags(header: &[u8]) -> Flags {
    let first = header[field::FLAGS];
    Flags::default()
        .with(Flags::DISCARD, first & 2 != 0)
        .with(Flags::HOPS_EXCEEDED, first & 1 != 0)
}

/// Returns the replication request of an INT 1.0 or 0.5 header; 0 without a first byte.
pub fn replication(header: &[u8]) -> u8 {
    header.first().map_or(0, |first| first >> 2 & 3)
}

/// Facts about a header that only its encapsulation tells.
#[derive(Clone, Copy)]
pub(crate) struct Carrier<'p> {
    pub(crate) profile: &'p Profile,
    /// MD or MX, from the type of the shim or Geneve option.
    pub(crate) mode: Mode,
    /// Maximum number of records in a non-urgent packet of SF-INT; 0 if the shim is of plain INT.
    pub(crate) sf_records: u8,
}

/// Parses INT 2.x header and stack from exactly the bytes that the length field covers. Writes the result to `out`, because
/// an [`Int`] is large and moving it costs as much as parsing it.
#[inline(always)]
pub(crate) fn read_2<'a>(
    out: &mut Option<Int<'a>>,
    bytes: &'a [u8],
    carrier: Carrier<'_>,
    layouts: &mut Layouts,
) -> Result<(), Refusal> {
    let Some((header, data)) = bytes.split_at_checked(LEN_2) else {
        return Err(Refusal::BadIntLength);
    };
    let mut flags = flags_2(header);
    let ds_id = u16_at(header, field::DS_ID);
    let ds_instruction = u16_at(header, field::DS_INSTRUCTION);
    if carrier.sf_records != 0 || sf::is_set(u16_at(header, field::FLAGS)) && carrier.mode == Mode::Md {
        return read_sf(out, header, data, carrier, layouts);
    }
    let domain = ds_id != 0 && ds_instruction != 0;
    let mut hop_ml = header[field::HOP_ML] & field::FIVE_BITS;
    let mut remaining = header[field::REMAINING];
    let bitmap = u16_at(header, field::BITMAP);
    let mut stack = Stack::EMPTY;
    let mut source_only = data;
    if carrier.mode == Mode::Mx {
        if ds_instruction == 0 && !data.is_empty() {
            return Err(Refusal::BadIntLength);
        }
        (flags, hop_ml, remaining) = (Flags(flags.0 & Flags::DISCARD.0), 0, 0);
    } else {
        if hop_ml == 0 && !data.is_empty() {
            return Err(Refusal::BadHopMl);
        }
        let layout = layouts.int_2(bitmap, hop_ml, domain)?;
        let known = if domain {
            usize::from(carrier.profile.source_only_words(ds_id)) * 4
        } else {
            0
        };
        let shared = data.len().checked_sub(known).ok_or(Refusal::BadIntLength)?;
        let count = layout.records(shared / 4);
        let (bytes, rest) = data
            .split_at_checked(count * layout.len())
            .ok_or(Refusal::PartialHop)?;
        // Words after the last record were added by the source, if the domain allows that. For a known domain their number
        // is fixed.
        if rest.len() != known && (known > 0 || !domain) {
            return Err(Refusal::PartialHop);
        }
        (stack, source_only) = (
            Stack {
                bytes,
                layout: *layout,
                count: count as u8,
            },
            rest,
        );
    }
    *out = Some(Int {
        version: Version::V2,
        mode: carrier.mode,
        flags,
        hop_ml,
        remaining,
        bitmap,
        ds_id,
        ds_instruction,
        ds_flags: u16_at(header, field::DS_FLAGS),
        stack,
        source_only,
        seq: None,
        sf: None,
    });
    Ok(())
}

/// Parses SF-INT header and record (section 3.2) to `out`. Accepts two records here, although only reports may have them:
/// see [`Int::is_single_record`] and its callers.
#[inline(never)]
fn read_sf<'a>(
    out: &mut Option<Int<'a>>,
    header: &'a [u8],
    data: &'a [u8],
    carrier: Carrier<'_>,
    layouts: &mut Layouts,
) -> Result<(), Refusal> {
    if carrier.sf_records == 0 || !sf::is_set(u16_at(header, field::FLAGS)) {
        return Err(Refusal::SfMismatch);
    }
    let Md2 {
        flags,
        hop_ml,
        remaining,
        bitmap,
        ds_id,
        ds_instruction,
        ds_flags,
        sf,
    } = Md2::parse(header)?;
    let Some((urgent, state)) = sf else {
        return Err(Refusal::SfMismatch);
    };
    sf::check(bitmap, ds_instruction, ds_flags)?;
    let layout = layouts.int_2(bitmap, hop_ml, false)?;
    // Without a shim, as in a compact report, no length byte limits the words; `records` is exact for whole records only.
    let count = layout.records(data.len() / 4);
    if count * layout.len() != data.len() {
        return Err(if urgent {
            Refusal::PartialHop
        } else {
            Refusal::BadSfStack
        });
    }
    // The remaining hop count has 8 bits: no path has more hops.
    if urgent && count > usize::from(u8::MAX) {
        return Err(Refusal::TooManyHops);
    }
    if !urgent && !(1..=usize::from(carrier.sf_records)).contains(&count) {
        return Err(Refusal::BadSfStack);
    }
    *out = Some(Int {
        version: Version::V2,
        mode: Mode::Md,
        flags,
        hop_ml,
        remaining,
        bitmap,
        ds_id: 0,
        ds_instruction,
        ds_flags,
        stack: Stack {
            bytes: data,
            layout: *layout,
            count: count as u8,
        },
        source_only: &[],
        seq: None,
        sf: Some(Sf {
            urgent,
            state,
            packet_id: ds_id,
        }),
    });
    Ok(())
}

/// Parses INT 1.0 header and stack from exactly the bytes that the length field covers.
#[inline(always)]
pub(crate) fn read_10<'a>(
    out: &mut Option<Int<'a>>,
    bytes: &'a [u8],
    carrier: Carrier<'_>,
    layouts: &mut Layouts,
) -> Result<(), Refusal> {
    let Some((header, data)) = bytes.split_at_checked(LEN_1) else {
        return Err(Refusal::BadIntLength);
    };
    let hop_ml = header[field::HOP_ML] & field::FIVE_BITS;
    let bitmap = u16_at(header, field::BITMAP);
    if hop_ml == 0 && !data.is_empty() {
        return Err(Refusal::BadHopMl);
    }
    let dialect = carrier.profile.dialect;
    let record = Layout::words_10(bitmap, hop_ml, data.len() / 4, dialect);
    let layout = layouts.int_10(bitmap, record, dialect)?;
    let count = layout.records(data.len() / 4);
    if count * layout.len() != data.len() {
        return Err(Refusal::PartialHop);
    }
    let reserved = u16_at(header, field::RESERVED_10);
    *out = Some(Int {
        version: Version::V10,
        mode: Mode::Md,
        flags: low_flags(header).with(Flags::MTU_EXCEEDED, header[field::M_OR_COUNT] & 0x80 != 0),
        hop_ml,
        remaining: header[field::REMAINING],
        bitmap,
        ds_id: 0,
        ds_instruction: 0,
        ds_flags: 0,
        stack: Stack {
            bytes: data,
            layout: *layout,
            count: count as u8,
        },
        source_only: &[],
        seq: (dialect == Dialect::Geant).then_some(u32::from(reserved)),
        sf: None,
    });
    Ok(())
}

/// The words that may follow an INT 0.5 stack.
#[derive(Clone, Copy)]
pub(crate) enum Tail {
    /// None: the carrier is VXLAN-GPE or Geneve.
    None,
    /// Exactly the 4-byte tail header.
    Whole,
    /// host-int's sequence number and tail, either or both of which a sink may have removed.
    Private,
}

/// Returns the length of shim, header, stack and tail of INT 0.5 in words, computed from the header's counts, or 0 if it is
/// truncated.
pub(crate) fn length_05(header: &[u8]) -> usize {
    let Some(header) = header.get(..LEN_1) else {
        return 0;
    };
    let instructions = usize::from(header[field::M_OR_COUNT] & field::FIVE_BITS);
    (super::shim::LEN + LEN_1 + super::shim::TAIL_LEN) / 4
        + instructions * usize::from(header[*field::HOPS_05.end()])
}

/// Parses INT 0.5 header and stack, and returns the remaining bytes too. `bytes` are those that the length field covers,
/// including the tail.
pub(crate) fn read_05<'a>(
    bytes: &'a [u8],
    tail: Tail,
    layouts: &mut Layouts,
) -> Result<(Int<'a>, &'a [u8]), Refusal> {
    let Some((header, data)) = bytes.split_at_checked(LEN_1) else {
        return Err(Refusal::BadIntLength);
    };
    let bitmap = u16_at(header, field::BITMAP);
    let instructions = header[field::M_OR_COUNT] & field::FIVE_BITS;
    let [max_hops, total_hops] = [header[*field::HOPS_05.start()], header[*field::HOPS_05.end()]];
    if instructions != words(bitmap, 0) || instructions == 0 && total_hops > 0 {
        return Err(Refusal::BadInstructionCount);
    }
    if total_hops > max_hops {
        return Err(Refusal::TooManyHops);
    }
    let stack = usize::from(instructions) * 4 * usize::from(total_hops);
    let Some((records, rest)) = data.split_at_checked(stack) else {
        return Err(Refusal::BadIntLength);
    };
    let fits = match tail {
        Tail::None => rest.is_empty(),
        Tail::Whole => rest.len() == 4,
        Tail::Private => rest.len() <= 8,
    };
    if !fits {
        return Err(Refusal::BadIntLength);
    }
    let int = Int {
        version: Version::V05,
        mode: Mode::Md,
        flags: low_flags(header),
        hop_ml: 0,
        remaining: max_hops,
        bitmap,
        ds_id: 0,
        ds_instruction: 0,
        ds_flags: 0,
        stack: Stack {
            bytes: records,
            layout: *layouts.int_05(bitmap),
            count: total_hops,
        },
        source_only: &[],
        seq: None,
        sf: None,
    };
    Ok((int, rest))
}

/// Returns whether a header with version nibble 0 has the counts of INT 1.0, as some implementations write it. HopML may
/// count words or items: see [`Layout::words_10`].
#[inline]
pub(crate) fn is_10_under_version_0(header: &[u8]) -> bool {
    let Some(header) = header.get(..LEN_1) else {
        return false;
    };
    let bitmap = u16_at(header, field::BITMAP);
    let instructions = header[field::M_OR_COUNT] & field::FIVE_BITS;
    let hop_ml = header[field::HOP_ML] & field::FIVE_BITS;
    let items = bitmap.count_ones();
    u32::from(instructions) != items && (hop_ml == words_10(bitmap) || u32::from(hop_ml) == items)
}
