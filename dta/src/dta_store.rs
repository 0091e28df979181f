//! An opened DTA store: a memory region whose header page has been validated, and the readers for its layout.

use std::sync::Arc;

use memory::Region;
use wire::dta::layout::{COUNTER_LEN, Geometry, slot_stride};

use crate::append::Lists;
use crate::header::{BODY, HEADER_LEN, Header, HeaderError, region_len};
use crate::key_increment::KeyIncrementReader;
use crate::key_write::KeyWriteReader;
use crate::postcarding::PostcardingReader;
use crate::sketch::SketchReader;

/// A region of collector memory with its decoded header. Cheap to clone.
#[derive(Clone, Debug)]
pub struct DtaStore {
    region: Arc<Region>,
    header: Arc<Header>,
}

impl DtaStore {
    /// Creates a store in a zeroed region of at least [`region_len`] bytes.
    ///
    /// # Errors
    /// [`HeaderError::NotEmpty`] if the header page is not all zeros, so that no store is overwritten by mistake;
    /// [`HeaderError::TooShort`] and [`HeaderError::ReadOnly`] for an unsuitable region; other errors for an invalid
    /// `header`.
    pub fn create(region: Arc<Region>, header: &Header) -> Result<Self, HeaderError> {
        let page = header.encode()?;
        if region.len() < region_len(&header.geometry) {
            return Err(HeaderError::TooShort);
        }
        if !region.is(0, &[0; HEADER_LEN]) {
            return Err(HeaderError::NotEmpty);
        }
        // Writes the magic number last, so that an incomplete header page is not taken for a store.
        region
            .write_head_last(0, page.as_slice())
            .map_err(|_| HeaderError::ReadOnly)?;
        Ok(Self {
            region,
            header: Arc::new(header.clone()),
        })
    }

    /// Opens the store in a region and leaves its contents unchanged. The region may be live memory or a snapshot.
    ///
    /// # Errors
    /// [`HeaderError`] if the header page is invalid or does not fit the region.
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

    /// Returns the length of the body in bytes. The body begins at [`BODY`].
    pub fn body_len(&self) -> u64 {
        self.header.geometry.body_len()
    }

    /// Zeroes the whole body, which leaves an empty store with the same header.
    ///
    /// # Errors
    /// [`HeaderError::ReadOnly`] if the region cannot be written.
    pub fn clear(&self) -> Result<(), HeaderError> {
        self.region
            .zero(BODY..BODY + self.body_len())
            .map_err(|_| HeaderError::ReadOnly)
    }

    /// Subtracts the counters of an earlier copy from this Key-Increment store. Increments since the copy remain. Returns
    /// the sum of the subtracted counters modulo 2^64, or `None` for another kind of store or another geometry.
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

    /// Returns the reader of a Key-Write store, or `None` for another kind.
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

    /// Returns the lists of an Append store, or `None` for another kind.
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

    /// Returns the reader of a Key-Increment store, or `None` for another kind.
    pub fn counters(&self) -> Option<KeyIncrementReader> {
        let Geometry::KeyIncrement { slots, family } = self.geometry() else {
            return None;
        };
        Some(KeyIncrementReader::new(Arc::clone(&self.region), slots, family))
    }

    /// Returns the reader of a sketch, or `None` for another kind.
    pub fn sketch(&self) -> Option<SketchReader> {
        let Geometry::Sketch { kind, op, shape } = self.geometry() else {
            return None;
        };
        let id = self.header.id as u16;
        Some(SketchReader::new(Arc::clone(&self.region), id, kind, op, shape))
    }

    /// Returns the reader of a Postcarding store, or `None` for another kind.
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

    /// Samples about `sample` evenly spaced slots and returns how many of them were ever written, and how many were
    /// sampled. Returns `None` for lists and sketches.
    pub fn occupancy(&self, sample: u64) -> Option<(u64, u64)> {
        let (slots, stride) = match self.geometry() {
            Geometry::KeyWrite { slots, data_len, .. } => (slots, slot_stride(data_len)),
            Geometry::KeyIncrement { slots, .. } => (slots, 8),
            Geometry::Postcarding { slots, hops, .. } => (slots, wire::dta::layout::postcard_stride(hops)),
            Geometry::Append { .. } | Geometry::Sketch { .. } => return None,
        };
        let sampled = sample.clamp(1, slots);
        // Cannot overflow: slots, and so samples, are at most 2^31.
        let ats = (0..sampled).map(|index| BODY + index * slots / sampled * stride);
        let written = ats.filter(|at| {
            (0..stride)
                .step_by(8)
                .any(|word| self.region.load_u64(at + word) != Ok(0))
        });
        Some((written.count() as u64, sampled))
    }
}
