//! What stores answer, as it is written and read as JSON.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// A store.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(rename = "MemoryStore"))]
pub struct StoreView {
    /// Its name.
    pub name: String,
    /// DtaStore ID or sketch ID; of lists the first one's.
    pub id: u32,
    /// Its structure.
    #[serde(flatten)]
    pub shape: Shape,
    /// What data or entries mean.
    #[serde(default)]
    pub fields: Option<String>,
    /// Bytes of the body.
    pub bytes: u64,
    /// The pages under it: huge, transparent or small.
    pub pages: String,
    /// When it was made, ns since the epoch.
    pub created: u64,
    /// When this copy of it was taken; absent for the live store.
    #[serde(default)]
    pub snapshot: Option<u64>,
    /// The file it lies in.
    #[serde(default)]
    pub file: Option<String>,
    /// The share of slots that hold something, from a sample; absent for lists and sketches.
    #[serde(default)]
    pub occupied: Option<f64>,
    /// What follows from that, if every key was written with so many copies.
    #[serde(default)]
    pub expected: Vec<ExpectedView>,
}

/// The structure of a store.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(rename = "MemoryStoreShape"))]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Shape {
    /// Slots of a checksum and data, addressed by hashes of the key.
    KeyWrite {
        /// Slots, a power of two.
        slots: u64,
        /// Bytes of data in a slot.
        data: u16,
        /// The family of hash functions: `v1` or `artifact`.
        hash: String,
    },
    /// Lists of entries, each a ring.
    Append {
        /// Lists.
        lists: u32,
        /// Bytes of an entry.
        entry: u16,
        /// Entries of a ring.
        entries: u64,
        /// Entries of a batch.
        batch: u16,
        /// Batches end in a sequence number and a checksum.
        tagged: bool,
    },
    /// Counters, addressed by hashes of the key.
    KeyIncrement {
        /// Counters, a power of two.
        slots: u64,
        /// The family of hash functions.
        hash: String,
    },
    /// A sketch, two epochs of it.
    Sketch {
        /// Which: count-min, count, hyperloglog or aroma.
        sketch: String,
        /// How sketches of several reporters are merged: sum or max.
        merge: String,
        /// Rows.
        depth: u8,
        /// Columns.
        columns: u32,
        /// Bytes of a counter.
        width: u8,
    },
    /// Slots of one value per hop, addressed by hashes of the key.
    Postcarding {
        /// Slots, a power of two.
        slots: u64,
        /// Hops of a slot.
        hops: u8,
        /// The family of hash functions.
        hash: String,
    },
}

impl Shape {
    /// The kind as a word.
    pub fn kind(&self) -> &'static str {
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
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(rename = "ExpectedAnswers"))]
pub struct ExpectedView {
    /// Copies of every key.
    pub copies: u8,
    /// Keys per slot.
    pub load: f64,
    /// The share of all keys that are answered.
    pub answered: f64,
}

/// What a store knows of a key.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(rename = "KeyAnswer"))]
pub struct Answer {
    /// The store's name.
    pub store: String,
    /// The key, as a flow where it is one.
    pub key: String,
    /// found, empty (never reported, or overwritten), ambiguous (copies differ), unproven (a path in a slot of the artifact's, which does not say
    /// whose it is) or torn (being written; ask again).
    #[cfg_attr(test, schemars(extend("enum" = ["found", "empty", "ambiguous", "unproven", "torn"])))]
    pub answer: String,
    /// Copies that have the key's checksum.
    #[serde(default)]
    pub copies: Option<u8>,
    /// How many of them have this value.
    #[serde(default)]
    pub agreeing: Option<u8>,
    /// The data, in hexadecimal.
    #[serde(default)]
    pub data: Option<String>,
    /// What the data means, by the names of the fields (`value` for one without a name).
    #[serde(default)]
    pub fields: Option<Map<String, Value>>,
    /// Of a path: the hops' values in order; null for one that was not seen.
    #[serde(default)]
    pub path: Option<Vec<Option<u32>>>,
    /// Of a path: hops that were not seen although a later one was.
    #[serde(default)]
    pub missing: Option<u8>,
    /// Which collector was asked, where a map chose one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub collector: Option<String>,
}

/// How much was counted.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct CountAnswer {
    /// The store's name.
    pub store: String,
    /// The key.
    pub key: String,
    /// Never too small.
    pub estimate: u64,
    /// Counters that were read.
    pub copies: u8,
    /// Everything that was counted, under all keys.
    pub total: u64,
    /// The estimate is too large by no more than this ...
    pub error: f64,
    /// ... with this probability.
    pub confidence: f64,
    /// Which collector was asked, where a map chose one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub collector: Option<String>,
}

/// An epoch of a sketch.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(rename = "SketchEpoch"))]
pub struct Epoch {
    /// Its number.
    pub epoch: u16,
    /// Columns that were written.
    pub columns: u32,
    /// Reporters that were merged.
    pub reporters: u32,
}

/// Result of a sketch query.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct SketchAnswer {
    /// The sketch's name.
    pub store: String,
    /// What kind it is.
    pub sketch: String,
    /// The epoch that was asked.
    pub epoch: Epoch,
    /// The epochs that are there, the newest first.
    pub epochs: Vec<Epoch>,
    /// False where columns of a newer epoch may be among those of an older one.
    pub certain: bool,
    /// The key, where one was asked for.
    #[serde(default)]
    pub key: Option<String>,
    /// Kind of query: count (of a key), distinct (things), sampled_from (how many things the sample stands for).
    pub question: String,
    /// The answer.
    #[serde(default)]
    pub estimate: Option<f64>,
    /// It is wrong by no more than this ...
    #[serde(default)]
    pub error: Option<f64>,
    /// ... with this probability.
    #[serde(default)]
    pub confidence: Option<f64>,
    /// Of a sample: what was sampled, as many as were asked for.
    #[serde(default)]
    pub samples: Vec<u32>,
}

/// A list.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(rename = "List"))]
pub struct ListView {
    /// Its ID.
    pub list: u32,
    /// The store it is in.
    pub store: String,
    /// The number of the newest batch; absent for an empty list, and for bare ones.
    #[serde(default)]
    pub newest: Option<u32>,
    /// Is it written with numbers and checksums?
    pub tagged: bool,
    /// Whether its entries are reported as events.
    pub events: bool,
}

/// An entry of a list.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(rename = "ListEntry"))]
pub struct Entry {
    /// The number of its batch.
    pub sequence: u32,
    /// Its place in the batch, from 0.
    pub index: u16,
    /// Its bytes, in hexadecimal.
    pub data: String,
    /// What they mean.
    #[serde(default)]
    pub fields: Option<Map<String, Value>>,
}

/// Entries of a list.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(rename = "ListTail"))]
pub struct TailAnswer {
    /// The list.
    pub list: u32,
    /// The store it is in.
    pub store: String,
    /// The entries, oldest first.
    pub entries: Vec<Entry>,
    /// Ask from here for what comes next.
    pub next: u32,
    /// Batches that were overwritten before they were read.
    pub lapped: u64,
    /// Batches that never came, or not whole.
    pub missing: u64,
}
