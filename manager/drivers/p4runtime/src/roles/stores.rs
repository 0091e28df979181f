//! DTA stores of the collectors, as entries of the program `dta_translator`, and the registers that they occupy.

use std::time::Duration;

use settings::{choice, section};
use wire::dta::hash::Family;
use wire::dta::layout::{Columns, Geometry, Ring, SketchKind, postcard_stride, slot_stride};

use super::{RoleEntry, frame, micros};

/// Maximum number of 4-byte words that the program writes at once.
const WORDS: u64 = 16;
/// Register capacities of the program: lists, incomplete paths, sketches, their 4-byte counters and columns (both epochs
/// together), and the total of stores and lists of all collectors.
const LISTS: u32 = 1024;
const PATHS: u32 = 4096;
const SKETCHES: u32 = 16;
const SKETCH_WORDS: u64 = 65_536;
const SKETCH_COLUMNS: u64 = 16_384;
const STORES: usize = 1024;

section! {
    /// A store of a collector's memory, with the keys of `[[collector.memory.stores]]` of the collector.
    pub struct StoreSettings("[[manager.p4runtime.NAME.translator.collectors.stores]]") {
        /// Kind of the store: `key-write`, `append`, `key-increment`, `sketch` or `postcarding`.
        pub(crate) kind: P4StoreKind = P4StoreKind::KeyWrite,
        /// Store ID, or sketch ID; of lists, the first list ID.
        pub(crate) id: u32 = 0,
        /// Address of the store in the collector's memory, a multiple of 8: a number, such as `0x7f0012340000`.
        pub(crate) address: u64 = 0,
        /// R_Key of its memory region.
        pub(crate) rkey: u32 = 0,
        /// Slots of `key-write`, `key-increment` and `postcarding`; a power of two.
        pub(crate) slots: u64 = 0,
        /// Bytes of data in a slot of `key-write`, a multiple of 4 up to 64.
        pub(crate) data: u16 = 4,
        /// Number of lists of `append`. They are bare (`tagged = false` in the collector's memory).
        pub(crate) lists: u32 = 1,
        /// Bytes of an entry of `append`: 4, 8, 16, 32 or 64.
        pub(crate) entry: u16 = 4,
        /// Entries in a list of `append`; a multiple of `batch`.
        pub(crate) entries: u64 = 65_536,
        /// Entries in one write of `append`: a power of two, together at most 64 bytes.
        pub(crate) batch: u16 = 1,
        /// Hops of the longest path of `postcarding`, at most 16.
        pub(crate) hops: u8 = 5,
        /// Incomplete paths of `postcarding` that wait in the device; a power of two from 4 on. All stores together have 4,096.
        pub(crate) places: u32 = 1024,
        /// Kind of the `sketch`: `count-min`, `count`, `hyperloglog` or `aroma`.
        pub(crate) sketch: SketchKind = SketchKind::CountMin,
        /// Rows of a `sketch`; a column of it has at most 64 bytes.
        pub(crate) depth: u8 = 4,
        /// Columns of a `sketch`.
        pub(crate) columns: u32 = 0,
        /// Bytes of a counter of a `sketch`: 4 or 8.
        pub(crate) width: u8 = 4,
        /// Reporters whose sketches are merged.
        pub(crate) reporters: u32 = 1,
    }
}

choice! {
    /// The structure of a store.
    pub enum P4StoreKind("\"key-write\", \"append\", \"key-increment\", \"sketch\" or \"postcarding\"") {
        /// Data that is stored under keys.
        KeyWrite = "key-write",
        /// Lists of entries of one size.
        Append = "append",
        /// Counters that are stored under keys.
        KeyIncrement = "key-increment",
        /// A sketch of network-wide counters.
        Sketch = "sketch",
        /// Paths that are stored under keys.
        Postcarding = "postcarding",
    }
}

/// A store that a collector offers in its memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offer {
    /// Store or sketch ID. For lists, the geometry has the ids.
    pub id: u32,
    /// Layout of the store.
    pub geometry: Geometry,
    /// Address of the store in the collector's memory.
    pub address: u64,
    /// R_Key of the store's memory region.
    pub rkey: u32,
    /// Number of reporters whose sketches are merged.
    pub reporters: u32,
    /// Number of incomplete postcard paths that can wait.
    pub places: u32,
}

impl StoreSettings {
    /// Converts the settings into an offer.
    pub(super) fn offer(&self) -> Offer {
        let family = Family::V1;
        let geometry = match self.kind {
            P4StoreKind::KeyWrite => Geometry::KeyWrite {
                slots: self.slots,
                data_len: self.data,
                family,
            },
            P4StoreKind::KeyIncrement => Geometry::KeyIncrement {
                slots: self.slots,
                family,
            },
            P4StoreKind::Postcarding => Geometry::Postcarding {
                slots: self.slots,
                hops: self.hops,
                family,
            },
            P4StoreKind::Append => {
                let ring = Ring {
                    entry_len: self.entry,
                    entries: self.entries,
                    batch: self.batch,
                    tagged: false,
                };
                Geometry::Append {
                    lists: self.lists,
                    first_list: self.id,
                    ring,
                }
            }
            P4StoreKind::Sketch => {
                let kind = self.sketch;
                let shape = Columns {
                    depth: self.depth,
                    columns: self.columns,
                    width: self.width,
                };
                Geometry::Sketch {
                    kind,
                    op: kind.op(),
                    shape,
                }
            }
        };
        let Self {
            id,
            address,
            rkey,
            reporters,
            places,
            ..
        } = *self;
        Offer {
            id,
            geometry,
            address,
            rkey,
            reporters,
            places,
        }
    }
}

/// Timeouts of the program in µs, and the maximum number of sketch columns that it writes at once.
#[derive(Clone, Copy, Debug)]
pub(super) struct Waits {
    pub(super) append: u128,
    pub(super) postcard: u128,
    pub(super) sketch: u128,
    pub(super) columns: u32,
}

impl Waits {
    /// Converts the settings of a translator; an error names the key.
    pub(super) fn new(
        append: Duration,
        postcard: Duration,
        sketch: Duration,
        columns: u32,
    ) -> Result<Self, String> {
        Ok(Self {
            append: micros(append, "flush")?,
            postcard: micros(postcard, "postcard_timeout")?,
            sketch: micros(sketch, "sketch_timeout")?,
            columns,
        })
    }
}

/// The registers occupied so far, with the entries and timer frames of the stores.
#[derive(Debug, Default)]
pub(super) struct RegisterUse {
    lists: u32,
    places: u32,
    sketches: u32,
    words: u64,
    columns: u64,
    pub(super) entries: Vec<RoleEntry>,
    pub(super) frames: Vec<Vec<u8>>,
}

impl RegisterUse {
    /// Adds a store of a collector, and allocates its registers.
    ///
    /// # Errors
    /// A sentence if the program cannot serve the store.
    pub(super) fn add(&mut self, collector: u8, offer: &Offer, waits: &Waits) -> Result<(), String> {
        offer.geometry.check().map_err(|why| why.to_string())?;
        if !offer.address.is_multiple_of(8) || offer.address == 0 {
            return Err("`address` is a multiple of 8, and not 0".to_owned());
        }
        if !matches!(offer.geometry, Geometry::Append { .. }) && u16::try_from(offer.id).is_err() {
            return Err("a store has an `id` of 16 bits".to_owned());
        }
        self.geometry(collector, offer, waits)?;
        if self.entries.len() > STORES {
            return Err(format!(
                "the program has room for {STORES} stores and lists of all collectors"
            ));
        }
        Ok(())
    }

    fn geometry(&mut self, collector: u8, offer: &Offer, waits: &Waits) -> Result<(), String> {
        match offer.geometry {
            Geometry::KeyWrite {
                slots,
                data_len,
                family,
            } => {
                check_family(family)?;
                let params = slot_params(
                    offer,
                    slots,
                    slot_stride(data_len),
                    ("data_words", words(data_len)?.into()),
                );
                self.store(store_key(collector, 1, offer.id), "slots", params);
                Ok(())
            }
            Geometry::KeyIncrement { slots, family } => {
                check_family(family)?;
                let params = slot_params(offer, slots, 8, ("data_words", 0));
                self.store(store_key(collector, 3, offer.id), "slots", params);
                Ok(())
            }
            Geometry::Append {
                lists,
                first_list,
                ring,
            } => self.append(collector, offer, lists, first_list, ring, waits),
            Geometry::Postcarding { slots, hops, family } => {
                check_family(family)?;
                self.postcards(collector, offer, slots, hops, waits)
            }
            Geometry::Sketch { kind, shape, .. } => self.sketch(collector, offer, kind, shape, waits),
        }
    }

    fn store(&mut self, key: super::Numbers, action: &'static str, params: super::Numbers) {
        self.entries.push(RoleEntry::entry("store", key, action, params));
    }

    /// Adds a timer frame: collector, DTA opcode in the upper nibble, index, and store or list id.
    fn timer(&mut self, collector: u8, opcode: u8, index: u16, id: u32) {
        let content = [
            &[collector, opcode << 4][..],
            &index.to_be_bytes(),
            &id.to_be_bytes(),
        ]
        .concat();
        self.frames.push(frame(&content));
    }

    /// Adds the lists of an Append store; each occupies a register and has a timer frame.
    fn append(
        &mut self,
        collector: u8,
        offer: &Offer,
        lists: u32,
        first_list: u32,
        ring: Ring,
        waits: &Waits,
    ) -> Result<(), String> {
        if ring.tagged {
            return Err(
                "the program writes bare lists; set tagged = false in the collector's memory".to_owned(),
            );
        }
        if ![4, 8, 16, 32, 64].contains(&ring.entry_len) {
            return Err("an entry of a list has 4, 8, 16, 32 or 64 bytes".to_owned());
        }
        let words = u64::from(ring.entry_len) / 4 * u64::from(ring.batch);
        if !ring.batch.is_power_of_two() || words > WORDS {
            return Err("a batch has a power of two of entries, together at most 64 bytes".to_owned());
        }
        if u32::try_from(ring.entries).is_err() {
            return Err("a list has at most 4,294,967,295 entries".to_owned());
        }
        if lists > LISTS - self.lists {
            return Err(format!("the program has {LISTS} lists for all collectors"));
        }
        for (list, number) in (0..lists).zip(self.lists..) {
            let params = vec![
                ("address", u128::from(offer.address + ring.offset(list.into(), 0))),
                ("rkey", offer.rkey.into()),
                ("index", number.into()),
                ("batch_size", ring.batch.into()),
                ("entries", ring.entries.into()),
                ("entry_words", u128::from(ring.entry_len / 4)),
                ("timer", waits.append),
            ];
            self.store(store_key(collector, 2, first_list + list), "ring", params);
            self.timer(collector, 2, 0, first_list + list);
        }
        self.lists += lists;
        Ok(())
    }

    /// Adds a Postcarding store. Each incomplete path that can wait has a timer frame.
    fn postcards(
        &mut self,
        collector: u8,
        offer: &Offer,
        slots: u64,
        hops: u8,
        waits: &Waits,
    ) -> Result<(), String> {
        let places = offer.places;
        if u64::from(hops) > WORDS {
            return Err(format!("a path of the program has at most {WORDS} hops"));
        }
        if !places.is_power_of_two() || places < 4 || places > PATHS - self.places {
            return Err(format!(
                "`places` is a power of two from 4 on; all stores together have {PATHS}"
            ));
        }
        let mut params = slot_params(offer, slots, postcard_stride(hops), ("hops", hops.into()));
        params.extend([
            ("first", u128::from(self.places)),
            ("places", u128::from(places) - 1),
            ("timer", waits.postcard),
        ]);
        self.store(store_key(collector, 4, offer.id), "paths", params);
        // `places` is at most 4,096, so the index fits.
        for index in 0..places {
            self.timer(collector, 4, index as u16, offer.id);
        }
        self.places += places;
        Ok(())
    }

    /// Adds a sketch. It occupies counters and columns for two epochs.
    fn sketch(
        &mut self,
        collector: u8,
        offer: &Offer,
        kind: SketchKind,
        shape: Columns,
        waits: &Waits,
    ) -> Result<(), String> {
        let column_words = u64::from(shape.depth) * u64::from(shape.width / 4);
        if column_words > WORDS {
            return Err("a column of a sketch has at most 64 bytes".to_owned());
        }
        let words = 2 * column_words * u64::from(shape.columns);
        let columns = 2 * u64::from(shape.columns);
        if self.sketches == SKETCHES
            || words > SKETCH_WORDS - self.words
            || columns > SKETCH_COLUMNS - self.columns
        {
            return Err(format!(
                "the program has {SKETCHES} sketches, which have together {SKETCH_WORDS} counters of 4 bytes and {SKETCH_COLUMNS} columns for two epochs each"
            ));
        }
        if !(1..=0xffff).contains(&offer.reporters) {
            return Err("`reporters` is 1 to 65535".to_owned());
        }
        let batch = u64::from(waits.columns).min(WORDS / column_words).max(1);
        let params = vec![
            ("address", offer.address.into()),
            ("rkey", offer.rkey.into()),
            ("index", self.sketches.into()),
            ("word", self.words.into()),
            ("column", self.columns.into()),
            ("columns", shape.columns.into()),
            ("depth", shape.depth.into()),
            ("width", shape.width.into()),
            ("op", kind.op() as u128),
            // Counters of a count-min sketch saturate at the maximum.
            ("saturates", (kind == SketchKind::CountMin).into()),
            ("reporters", offer.reporters.into()),
            ("batch_size", batch.into()),
            ("timer", waits.sketch),
        ];
        self.store(store_key(collector, 5, offer.id), "sketch", params);
        // One timer frame for each of the two epochs.
        for parity in 0..2 {
            self.timer(collector, 5, parity, offer.id);
        }
        self.sketches += 1;
        self.words += words;
        self.columns += columns;
        Ok(())
    }
}

/// Builds the key of a store's entry. `opcode` is the DTA opcode of its reports.
fn store_key(collector: u8, opcode: u8, id: u32) -> super::Numbers {
    vec![
        ("collector", collector.into()),
        ("opcode", opcode.into()),
        ("id", id.into()),
    ]
}

/// Returns the number of 4-byte words, if the program can write them at once.
fn words(bytes: u16) -> Result<u16, String> {
    match bytes {
        4..=64 if bytes.is_multiple_of(4) => Ok(bytes / 4),
        _ => Err("the program writes whole words, 4 to 64 bytes".to_owned()),
    }
}

fn check_family(family: Family) -> Result<(), String> {
    match family {
        Family::V1 => Ok(()),
        Family::Artifact => Err("the program has the hash functions `v1` only".to_owned()),
    }
}

/// Builds the parameters of an action on slots. `last` is the parameter that differs between actions.
fn slot_params(offer: &Offer, slots: u64, stride: u64, last: (&'static str, u128)) -> super::Numbers {
    vec![
        ("address", offer.address.into()),
        ("rkey", offer.rkey.into()),
        ("slot_mask", u128::from(slots) - 1),
        ("stride", stride.trailing_zeros().into()),
        last,
    ]
}
