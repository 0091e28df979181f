//! What stores answer, as it is written and read as JSON.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// A store.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct StoreView {
    /// Its name.
    pub(crate) name: String,
    /// Store ID or sketch ID; of lists the first one's.
    pub(crate) id: u32,
    /// Its structure.
    #[serde(flatten)]
    pub(crate) shape: Shape,
    /// What data or entries mean.
    #[serde(default)]
    pub(crate) fields: Option<String>,
    /// Bytes of the body.
    pub(crate) bytes: u64,
    /// The pages under it: huge, transparent or small.
    pub(crate) pages: String,
    /// When it was made, ns since the epoch.
    pub(crate) created: u64,
    /// When this copy of it was taken; absent for the live store.
    #[serde(default)]
    pub(crate) snapshot: Option<u64>,
    /// The file it lies in.
    #[serde(default)]
    pub(crate) file: Option<String>,
    /// The share of slots that hold something, from a sample; absent for lists and sketches.
    #[serde(default)]
    pub(crate) occupied: Option<f64>,
    /// What follows from that, if every key was written with so many copies.
    #[serde(default)]
    pub(crate) expected: Vec<ExpectedView>,
}

/// The structure of a store.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub(crate) enum Shape {
    KeyWrite { slots: u64, data: u16, hash: String },
    Append { lists: u32, entry: u16, entries: u64, batch: u16, tagged: bool },
    KeyIncrement { slots: u64, hash: String },
    Sketch { sketch: String, merge: String, depth: u8, columns: u32, width: u8 },
    Postcarding { slots: u64, hops: u8, hash: String },
}

impl Shape {
    /// The kind as a word.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Self::KeyWrite { .. } => "key-write",
            Self::Append { .. } => "append",
            Self::KeyIncrement { .. } => "key-increment",
            Self::Sketch { .. } => "sketch",
            Self::Postcarding { .. } => "postcarding",
        }
    }
}

/// What a store that is so full can be expected to answer.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct ExpectedView {
    /// Copies of every key.
    pub(crate) copies: u8,
    /// Keys per slot.
    pub(crate) load: f64,
    /// The share of all keys that are answered.
    pub(crate) answered: f64,
}

/// What a store knows of a key.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Answer {
    /// The store's name.
    pub(crate) store: String,
    /// The key, as a flow where it is one.
    pub(crate) key: String,
    /// found, empty (never reported, or overwritten), ambiguous (copies differ), unproven (a path in a slot of the artifact's, which does not say
    /// whose it is) or torn (being written; ask again).
    pub(crate) answer: String,
    /// Copies that have the key's checksum.
    #[serde(default)]
    pub(crate) copies: Option<u8>,
    /// How many of them have this value.
    #[serde(default)]
    pub(crate) agreeing: Option<u8>,
    /// The data, in hexadecimal.
    #[serde(default)]
    pub(crate) data: Option<String>,
    /// What the data means, by the names of the fields (`value` for one without a name).
    #[serde(default)]
    pub(crate) fields: Option<Map<String, Value>>,
    /// Of a path: the hops' values in order; null for one that was not seen.
    #[serde(default)]
    pub(crate) path: Option<Vec<Option<u32>>>,
    /// Of a path: hops that were not seen although a later one was.
    #[serde(default)]
    pub(crate) missing: Option<u8>,
    /// Which collector was asked, where a map chose one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) collector: Option<String>,
}

/// How much was counted.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct CountAnswer {
    /// The store's name.
    pub(crate) store: String,
    /// The key.
    pub(crate) key: String,
    /// Never too small.
    pub(crate) estimate: u64,
    /// Counters that were read.
    pub(crate) copies: u8,
    /// Everything that was counted, under all keys.
    pub(crate) total: u64,
    /// The estimate is too large by no more than this ...
    pub(crate) error: f64,
    /// ... with this probability.
    pub(crate) confidence: f64,
    /// Which collector was asked, where a map chose one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) collector: Option<String>,
}

/// An epoch of a sketch.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Epoch {
    /// Its number.
    pub(crate) epoch: u16,
    /// Columns that were written.
    pub(crate) columns: u32,
    /// Reporters that were merged.
    pub(crate) reporters: u32,
}

/// What a sketch says.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct SketchAnswer {
    /// The sketch's name.
    pub(crate) store: String,
    /// What kind it is.
    pub(crate) sketch: String,
    /// The epoch that was asked.
    pub(crate) epoch: Epoch,
    /// The epochs that are there, the newest first.
    pub(crate) epochs: Vec<Epoch>,
    /// False where columns of a newer epoch may be among those of an older one.
    pub(crate) certain: bool,
    /// The key, where one was asked for.
    #[serde(default)]
    pub(crate) key: Option<String>,
    /// What the question was: count (of a key), distinct (things), sampled_from (how many things the sample stands for).
    pub(crate) question: String,
    /// The answer.
    #[serde(default)]
    pub(crate) estimate: Option<f64>,
    /// It is wrong by no more than this ...
    #[serde(default)]
    pub(crate) error: Option<f64>,
    /// ... with this probability.
    #[serde(default)]
    pub(crate) confidence: Option<f64>,
    /// Of a sample: what was sampled, as many as were asked for.
    #[serde(default)]
    pub(crate) samples: Vec<u32>,
}

/// A list.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct ListView {
    /// Its ID.
    pub(crate) list: u32,
    /// The store it is in.
    pub(crate) store: String,
    /// The number of the newest batch; absent for an empty list, and for bare ones.
    #[serde(default)]
    pub(crate) newest: Option<u32>,
    /// Is it written with numbers and checksums?
    pub(crate) tagged: bool,
    /// Are its entries told as events?
    pub(crate) events: bool,
}

/// An entry of a list.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Entry {
    /// The number of its batch.
    pub(crate) sequence: u32,
    /// Its place in the batch, from 0.
    pub(crate) index: u16,
    /// Its bytes, in hexadecimal.
    pub(crate) data: String,
    /// What they mean.
    #[serde(default)]
    pub(crate) fields: Option<Map<String, Value>>,
}

/// Entries of a list.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct TailAnswer {
    /// The list.
    pub(crate) list: u32,
    /// The store it is in.
    pub(crate) store: String,
    /// The entries, oldest first.
    pub(crate) entries: Vec<Entry>,
    /// Ask from here for what comes next.
    pub(crate) next: u32,
    /// Batches that were overwritten before they were read.
    pub(crate) lapped: u64,
    /// Batches that never came, or not whole.
    pub(crate) missing: u64,
}
