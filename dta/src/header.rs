//! The header page of a DTA store: 4096 bytes in front of a region's body that describe its layout, so that another
//! process, in another language, can map the region and query it.
//!
//! The header is written once, when the store is created. RDMA access covers only the body. Integers are little-endian; the
//! page ends with a CRC-32C. `docs/reference/memory-layout.md` specifies every byte.

use wire::crc::crc_32c;
use wire::dta::hash::Family;
use wire::dta::layout::{BadGeometry, Columns, Geometry, MergeOp, Ring, SketchKind};

/// Length of the header page, bytes.
pub const HEADER_LEN: usize = 4096;
/// Offset of the body in every region. Remote access covers only the body.
pub const BODY: u64 = HEADER_LEN as u64;
/// Format version that this crate reads and writes.
pub const VERSION: u16 = 1;
/// Magic number at the beginning of every region.
pub const MAGIC: [u8; 8] = *b"HOPWISE\x01";
/// Maximum length of a store's name, bytes.
pub const MAX_NAME: usize = 128;
/// Maximum length of the description of the fields, bytes.
pub const MAX_FIELDS: usize = 2048;
/// Written in native byte order. RDMA fetch-and-adds are native too, so a reader with the other byte order would misread
/// counters.
const BYTE_ORDER: u16 = 0x0102;
/// Length of the geometry in the header page, bytes.
const GEOMETRY_LEN: usize = 24;

/// Returns the length in bytes of a store's region: header page and body.
pub const fn region_len(geometry: &Geometry) -> u64 {
    BODY + geometry.body_len()
}

/// Byte offsets of the header's fields.
mod field {
    pub(super) const MAGIC: usize = 0;
    pub(super) const VERSION: usize = 8;
    pub(super) const BYTE_ORDER: usize = 10;
    pub(super) const HEADER_LEN: usize = 12;
    pub(super) const BODY_LEN: usize = 16;
    pub(super) const CREATED: usize = 24;
    pub(super) const SNAPSHOT: usize = 32;
    pub(super) const KIND: usize = 40;
    pub(super) const ID: usize = 44;
    /// 24 bytes whose meaning depends on the kind.
    pub(super) const GEOMETRY: usize = 48;
    pub(super) const NAME_LEN: usize = 96;
    pub(super) const FIELDS_LEN: usize = 98;
    pub(super) const NAME: usize = 128;
    pub(super) const FIELDS: usize = 256;
    pub(super) const CRC: usize = 4092;
}

/// Decoded contents of a header page.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Header {
    /// Name of the store, at most [`MAX_NAME`] bytes.
    pub name: String,
    /// Store ID or sketch ID; for lists, the ID of the first list.
    pub id: u32,
    /// The layout of the body.
    pub geometry: Geometry,
    /// The display layout of a value or entry (`src:ipv4 dst:ipv4 …`), at most [`MAX_FIELDS`] bytes. Not interpreted in
    /// this module.
    pub fields: String,
    /// Creation time of the store, ns since 1970.
    pub created: u64,
    /// Time of the snapshot, ns since 1970; `None` for the live store.
    pub snapshot: Option<u64>,
}

/// The reason why a store cannot be opened or created.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum HeaderError {
    /// The region is too short for a header page, or for the body that the header describes.
    TooShort,
    /// The region does not begin with [`MAGIC`].
    NotARegion,
    /// The region has another version of this format.
    Version(u16),
    /// The region was created on a machine with the other byte order, so its counters would be misread.
    ByteOrder,
    /// The header's CRC does not match.
    Damaged,
    /// The kind of store is unknown.
    Kind(u16),
    /// The geometry is invalid.
    Geometry(BadGeometry),
    /// The body length in the header does not match the geometry.
    BodyLength,
    /// A text is too long or not UTF-8.
    Text,
    /// The region to create a store in is not empty.
    NotEmpty,
    /// The region to create a store in is read-only.
    ReadOnly,
}

impl HeaderError {
    /// Returns the error's name for counters and JSON.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::TooShort => "too_short",
            Self::NotARegion => "not_a_region",
            Self::Version(_) => "version",
            Self::ByteOrder => "byte_order",
            Self::Damaged => "damaged",
            Self::Kind(_) => "kind",
            Self::Geometry(_) => "geometry",
            Self::BodyLength => "body_length",
            Self::Text => "text",
            Self::NotEmpty => "not_empty",
            Self::ReadOnly => "read_only",
        }
    }
}

impl std::fmt::Display for HeaderError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::TooShort => f.write_str("shorter than its header says"),
            Self::NotARegion => f.write_str("not a region of hopwise"),
            Self::Version(found) => write!(f, "of format version {found}; this program reads {VERSION}"),
            Self::ByteOrder => f.write_str("made on a machine of the other byte order"),
            Self::Damaged => f.write_str("its header page is damaged"),
            Self::Kind(found) => write!(f, "of an unknown kind ({found})"),
            Self::Geometry(why) => write!(f, "its geometry is invalid: {why}"),
            Self::BodyLength => f.write_str("its length is not that of its geometry"),
            Self::Text => f.write_str("its name or the description of its fields is too long or not UTF-8"),
            Self::NotEmpty => f.write_str("it is not empty"),
            Self::ReadOnly => f.write_str("it cannot be written"),
        }
    }
}

impl std::error::Error for HeaderError {}

/// Returns the number of a kind of store in the header: the DTA operation that writes it.
const fn kind_of(geometry: &Geometry) -> u16 {
    match geometry {
        Geometry::KeyWrite { .. } => 1,
        Geometry::Append { .. } => 2,
        Geometry::KeyIncrement { .. } => 3,
        Geometry::Postcarding { .. } => 4,
        Geometry::Sketch { .. } => 5,
    }
}

const fn family_number(family: Family) -> u8 {
    match family {
        Family::Artifact => 0,
        Family::V1 => 1,
    }
}

impl Header {
    /// Encodes the header page.
    ///
    /// # Errors
    /// [`HeaderError::Geometry`] if the geometry is invalid; [`HeaderError::Text`] if a text is too long.
    pub fn encode(&self) -> Result<Box<[u8; HEADER_LEN]>, HeaderError> {
        self.geometry.check().map_err(HeaderError::Geometry)?;
        if self.name.len() > MAX_NAME || self.fields.len() > MAX_FIELDS {
            return Err(HeaderError::Text);
        }
        let mut out = Box::new([0; HEADER_LEN]);
        let page = out.as_mut_slice();
        put(page, field::MAGIC, MAGIC);
        put(page, field::VERSION, VERSION.to_le_bytes());
        put(page, field::BYTE_ORDER, BYTE_ORDER.to_ne_bytes());
        put(page, field::HEADER_LEN, (HEADER_LEN as u32).to_le_bytes());
        put(page, field::BODY_LEN, self.geometry.body_len().to_le_bytes());
        put(page, field::CREATED, self.created.to_le_bytes());
        put(page, field::SNAPSHOT, self.snapshot.unwrap_or(0).to_le_bytes());
        put(page, field::KIND, kind_of(&self.geometry).to_le_bytes());
        put(page, field::ID, self.id.to_le_bytes());
        put(page, field::GEOMETRY, encode_geometry(&self.geometry));
        put(page, field::NAME_LEN, (self.name.len() as u16).to_le_bytes());
        put(page, field::FIELDS_LEN, (self.fields.len() as u16).to_le_bytes());
        page[field::NAME..][..self.name.len()].copy_from_slice(self.name.as_bytes());
        page[field::FIELDS..][..self.fields.len()].copy_from_slice(self.fields.as_bytes());
        let crc = crc_32c(&page[..field::CRC]);
        put(page, field::CRC, crc.to_le_bytes());
        Ok(out)
    }

    /// Decodes a header page.
    ///
    /// # Errors
    /// The first problem found. [`HeaderError::NotEmpty`] and [`HeaderError::ReadOnly`] do not occur.
    pub fn decode(page: &[u8; HEADER_LEN]) -> Result<Self, HeaderError> {
        if bytes_at::<8>(page, field::MAGIC) != MAGIC {
            return Err(HeaderError::NotARegion);
        }
        // Checked before the CRC, which another version may keep elsewhere.
        match u16_at(page, field::VERSION) {
            VERSION => {}
            other => return Err(HeaderError::Version(other)),
        }
        let header_len = u32_at(page, field::HEADER_LEN);
        if u32_at(page, field::CRC) != crc_32c(&page[..field::CRC]) || header_len != HEADER_LEN as u32 {
            return Err(HeaderError::Damaged);
        }
        if u16::from_ne_bytes(bytes_at(page, field::BYTE_ORDER)) != BYTE_ORDER {
            return Err(HeaderError::ByteOrder);
        }
        let geometry = decode_geometry(u16_at(page, field::KIND), &bytes_at(page, field::GEOMETRY))?;
        geometry.check().map_err(HeaderError::Geometry)?;
        if u64_at(page, field::BODY_LEN) != geometry.body_len() {
            return Err(HeaderError::BodyLength);
        }
        Ok(Self {
            name: text(page, field::NAME_LEN, field::NAME, MAX_NAME)?,
            fields: text(page, field::FIELDS_LEN, field::FIELDS, MAX_FIELDS)?,
            id: u32_at(page, field::ID),
            geometry,
            created: u64_at(page, field::CREATED),
            snapshot: Some(u64_at(page, field::SNAPSHOT)).filter(|time| *time != 0),
        })
    }
}

fn text(page: &[u8], len: usize, at: usize, longest: usize) -> Result<String, HeaderError> {
    let len = usize::from(u16_at(page, len));
    if len > longest {
        return Err(HeaderError::Text);
    }
    std::str::from_utf8(&page[at..at + len])
        .map(str::to_owned)
        .map_err(|_| HeaderError::Text)
}

fn encode_geometry(geometry: &Geometry) -> [u8; GEOMETRY_LEN] {
    let mut out = [0; GEOMETRY_LEN];
    match *geometry {
        Geometry::KeyWrite {
            slots,
            data_len,
            family,
        } => {
            put(&mut out, 0, slots.to_le_bytes());
            put(&mut out, 8, data_len.to_le_bytes());
            out[10] = family_number(family);
        }
        Geometry::KeyIncrement { slots, family } => {
            put(&mut out, 0, slots.to_le_bytes());
            out[10] = family_number(family);
        }
        Geometry::Postcarding { slots, hops, family } => {
            put(&mut out, 0, slots.to_le_bytes());
            put(&mut out, 8, u16::from(hops).to_le_bytes());
            out[10] = family_number(family);
        }
        Geometry::Append {
            lists,
            first_list,
            ring,
        } => {
            put(&mut out, 0, ring.entries.to_le_bytes());
            put(&mut out, 8, ring.entry_len.to_le_bytes());
            put(&mut out, 10, ring.batch.to_le_bytes());
            out[12] = u8::from(ring.tagged);
            put(&mut out, 16, lists.to_le_bytes());
            put(&mut out, 20, first_list.to_le_bytes());
        }
        Geometry::Sketch { kind, op, shape } => {
            put(&mut out, 0, shape.columns.to_le_bytes());
            out[4..8].copy_from_slice(&[shape.depth, shape.width, kind as u8, op as u8]);
        }
    }
    out
}

fn decode_geometry(kind: u16, bytes: &[u8; GEOMETRY_LEN]) -> Result<Geometry, HeaderError> {
    let slots = u64_at(bytes, 0);
    let family = match bytes[10] {
        0 => Ok(Family::Artifact),
        1 => Ok(Family::V1),
        _ => Err(HeaderError::Kind(kind)),
    };
    Ok(match kind {
        1 => Geometry::KeyWrite {
            slots,
            data_len: u16_at(bytes, 8),
            family: family?,
        },
        2 => {
            let ring = Ring {
                entry_len: u16_at(bytes, 8),
                entries: u64_at(bytes, 0),
                batch: u16_at(bytes, 10),
                tagged: bytes[12] != 0,
            };
            Geometry::Append {
                lists: u32_at(bytes, 16),
                first_list: u32_at(bytes, 20),
                ring,
            }
        }
        3 => Geometry::KeyIncrement {
            slots,
            family: family?,
        },
        4 => {
            let hops =
                u8::try_from(u16_at(bytes, 8)).map_err(|_| HeaderError::Geometry(BadGeometry::Hops))?;
            Geometry::Postcarding {
                slots,
                hops,
                family: family?,
            }
        }
        5 => {
            let shape = Columns {
                depth: bytes[4],
                columns: u32_at(bytes, 0),
                width: bytes[5],
            };
            let unknown = HeaderError::Kind(kind);
            let op = MergeOp::from_number(bytes[7]).ok_or(unknown)?;
            Geometry::Sketch {
                kind: SketchKind::from_number(bytes[6]).ok_or(unknown)?,
                op,
                shape,
            }
        }
        _ => return Err(HeaderError::Kind(kind)),
    })
}

fn put<const N: usize>(page: &mut [u8], at: usize, bytes: [u8; N]) {
    page[at..at + N].copy_from_slice(&bytes);
}

fn bytes_at<const N: usize>(page: &[u8], at: usize) -> [u8; N] {
    std::array::from_fn(|index| page[at + index])
}

fn u16_at(page: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(bytes_at(page, at))
}

fn u32_at(page: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes_at(page, at))
}

fn u64_at(page: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes_at(page, at))
}
