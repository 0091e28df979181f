//! A store: a region with its header read.

use std::sync::Arc;

use memory::Region;
use wire::dta::layout::{COUNTER_LEN, Geometry, slot_stride};

use crate::append::Lists;
use crate::header::{BODY, HEADER_LEN, Header, HeaderError, region_len};
use crate::key_increment::KeyIncrementReader;
use crate::key_write::KeyWriteReader;
use crate::postcarding::PostcardingReader;
use crate::sketch::SketchReader;

/// A region of collector memory with its header. Cheap to clone; its methods return readers.
#[derive(Clone, Debug)]
pub struct DtaStore {
    region: Arc<Region>,
    header: Arc<Header>,
}

impl DtaStore {
    /// Creates a store in a zeroed region of at least [`region_len`] bytes.
    ///
    /// # Errors
    /// [`HeaderError::NotEmpty`] when there is anything in the header page, so that no store is overwritten by mistake;
    /// [`HeaderError::TooShort`], [`HeaderError::ReadOnly`], and the errors of an invalid `header`.
    pub fn create(region: Arc<Region>, header: &Header) -> Result<Self, HeaderError> {
        let page = header.encode()?;
        if region.len() < region_len(&header.geometry) {
            return Err(HeaderError::TooShort);
        }
        if !region.is(0, &[0; HEADER_LEN]) {
            return Err(HeaderError::NotEmpty);
        }
        // The magic last: an incomplete header page is not a store.
        region
            .write_head_last(0, page.as_slice())
            .map_err(|_| HeaderError::ReadOnly)?;
        Ok(Self {
            region,
            header: Arc::new(header.clone()),
        })
    }

    /// Opens the store in a region, live or a snapshot, with its contents as they are.
    ///
    /// # Errors
    /// [`HeaderError`]: the defect of the header page.
    pub fn open(region: Arc<Region>) -> Result<Self, HeaderError> {
        let mut page = Box::new([0; HEADER_LEN]);
        region
            .read(0, page.as_mut_slice())
            .map_err(|_| HeaderError::TooShort)?;
        let header = Header::decode(&page)?;
        if region.len() < region_len(&header.geometry) {
            return Err(HeaderError::TooShort);
        }
        Ok(Self {
            region,
            header: Arc::new(header),
        })
    }

    /// Returns the contents of the header page.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Returns the layout of the body.
    pub fn geometry(&self) -> Geometry {
        self.header.geometry
    }

    /// Returns the region, header page and body.
    pub fn region(&self) -> &Arc<Region> {
        &self.region
    }

    /// Returns the length of the body, which begins at [`BODY`], bytes.
    pub fn body_len(&self) -> u64 {
        self.header.geometry.body_len()
    }

    /// Makes the whole body zero: an empty store with the same header.
    ///
    /// # Errors
    /// [`HeaderError::ReadOnly`] if the region cannot be written.
    pub fn clear(&self) -> Result<(), HeaderError> {
        self.region
            .zero(BODY..BODY + self.body_len())
            .map_err(|_| HeaderError::ReadOnly)
    }

    /// Subtracts the counters of a copy from those of this key-increment store: counts in the copy are removed, and additions
    /// since then stay. Returns their sum, modulo 2^64; `None` for other kinds or another geometry.
    ///
    /// # Errors
    /// [`HeaderError::ReadOnly`] if the region cannot be written.
    pub fn subtract(&self, copy: &Self) -> Result<Option<u64>, HeaderError> {
        let Geometry::KeyIncrement { slots, .. } = self.geometry() else {
            return Ok(None);
        };
        if copy.geometry() != self.geometry() {
            return Ok(None);
        }
        let mut sum = 0_u64;
        for at in (BODY..BODY + slots * COUNTER_LEN).step_by(COUNTER_LEN as usize) {
            let counted = copy.region.load_u64(at).map_err(|_| HeaderError::TooShort)?;
            if counted != 0 {
                self.region
                    .fetch_add(at, counted.wrapping_neg())
                    .map_err(|_| HeaderError::ReadOnly)?;
                sum = sum.wrapping_add(counted);
            }
        }
        Ok(Some(sum))
    }

    /// Returns the reader of a key-write store; `None` for other kinds.
    pub fn key_write(&self) -> Option<KeyWriteReader> {
        let Geometry::KeyWrite {
            slots,
            data_len,
            family,
        } = self.geometry()
        else {
            return None;
        };
        Some(KeyWriteReader::new(
            Arc::clone(&self.region),
            slots,
            data_len,
            family,
        ))
    }

    /// Returns the lists of an append store; `None` for other kinds.
    pub fn lists(&self) -> Option<Lists> {
        let Geometry::Append {
            lists,
            first_list,
            ring,
        } = self.geometry()
        else {
            return None;
        };
        Some(Lists::new(Arc::clone(&self.region), lists, first_list, ring))
    }

    /// Returns the reader of a key-increment store; `None` for other kinds.
    pub fn counters(&self) -> Option<KeyIncrementReader> {
        let Geometry::KeyIncrement { slots, family } = self.geometry() else {
            return None;
        };
        Some(KeyIncrementReader::new(Arc::clone(&self.region), slots, family))
    }

    /// Returns the reader of a sketch; `None` for other kinds.
    pub fn sketch(&self) -> Option<SketchReader> {
        let Geometry::Sketch { kind, op, shape } = self.geometry() else {
            return None;
        };
        let id = self.header.id as u16;
        Some(SketchReader::new(Arc::clone(&self.region), id, kind, op, shape))
    }

    /// Returns the reader of a postcarding store; `None` for other kinds.
    pub fn paths(&self) -> Option<PostcardingReader> {
        let Geometry::Postcarding { slots, hops, family } = self.geometry() else {
            return None;
        };
        Some(PostcardingReader::new(
            Arc::clone(&self.region),
            slots,
            hops,
            family,
        ))
    }

    /// Counts how many of `sample` slots, evenly spread, are in use: (written, sampled). `None` for lists and sketches, which
    /// have no load.
    pub fn occupancy(&self, sample: u64) -> Option<(u64, u64)> {
        let (slots, stride) = match self.geometry() {
            Geometry::KeyWrite { slots, data_len, .. } => (slots, slot_stride(data_len)),
            Geometry::KeyIncrement { slots, .. } => (slots, 8),
            Geometry::Postcarding { slots, hops, .. } => (slots, wire::dta::layout::postcard_stride(hops)),
            Geometry::Append { .. } | Geometry::Sketch { .. } => return None,
        };
        let sampled = sample.clamp(1, slots);
        // Slots are at most 2^31, and so are samples.
        let ats = (0..sampled).map(|index| BODY + index * slots / sampled * stride);
        let written = ats.filter(|at| {
            (0..stride)
                .step_by(8)
                .any(|word| self.region.load_u64(at + word) != Ok(0))
        });
        Some((written.count() as u64, sampled))
    }
}
