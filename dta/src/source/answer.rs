//! JSON types for descriptions of DTA stores and answers to queries, shared by the API and the commands. The doc comments
//! of the fields are the descriptions in the OpenAPI schema.

use std::fmt;

use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

/// A store of the collector's memory.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(rename = "MemoryStore"))]
pub struct StoreView {
    /// Name of the store.
    pub name: String,
    /// Store ID or sketch ID; for lists, the ID of the first one.
    pub id: u32,
    /// Structure of the store's contents.
    #[serde(flatten)]
    pub shape: Shape,
    /// Fields of data or entries.
    #[serde(default)]
    pub fields: Option<String>,
    /// Bytes of the body.
    pub bytes: u64,
    /// Page size of its memory: huge, transparent or small.
    pub pages: String,
    /// Creation time, nanoseconds since the Unix epoch.
    pub created: u64,
    /// Time of the snapshot; absent for the live store.
    #[serde(default)]
    pub snapshot: Option<u64>,
    /// Path of its file.
    #[serde(default)]
    pub file: Option<String>,
    /// Share of slots in use, estimated from a sample; absent for lists and sketches.
    #[serde(default)]
    pub occupied: Option<f64>,
    /// Expected answers at this occupancy, for each number of copies per key.
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
        /// Number of the store's lists.
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
        /// Kind of sketch: count-min, count, hyperloglog or aroma.
        sketch: String,
        /// Operation that merges sketches of several reporters: sum or max.
        merge: String,
        /// Rows of the sketch.
        depth: u8,
        /// Columns of the sketch.
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
    /// Returns the kind as a word.
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

/// Expected answers of a store at its occupancy.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(rename = "ExpectedAnswers"))]
pub struct ExpectedView {
    /// Copies of each key.
    pub copies: u8,
    /// Keys per slot of the store.
    pub load: f64,
    /// Share of all keys that are answered.
    pub answered: f64,
}

/// Answer to a key.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(rename = "KeyAnswer"))]
pub struct Answer {
    /// Name of the store that was read.
    pub store: String,
    /// The key, as a flow where it is one.
    pub key: String,
    /// found, empty (never reported, or overwritten), ambiguous (copies differ), unproven (a path in a slot of the artifact's layout, which does not
    /// identify its key) or torn (read during a write; query again).
    #[cfg_attr(test, schemars(extend("enum" = ["found", "empty", "ambiguous", "unproven", "torn"])))]
    pub answer: String,
    /// Copies that have the key's checksum.
    #[serde(default)]
    pub copies: Option<u8>,
    /// Number of them with this value.
    #[serde(default)]
    pub agreeing: Option<u8>,
    /// The data, in hexadecimal.
    #[serde(default)]
    pub data: Option<String>,
    /// The decoded data, by field name (`value` for a field without a name).
    #[serde(default)]
    #[cfg_attr(test, schemars(with = "Option<serde_json::Map<String, Value>>"))]
    pub fields: Option<Values>,
    /// For a path: the values of its hops in order; null for a missing hop.
    #[serde(default)]
    pub path: Option<Vec<Option<u32>>>,
    /// For a path: hops that are missing although a later one is present.
    #[serde(default)]
    pub missing: Option<u8>,
    /// The collector that answered, when a map selects it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub collector: Option<String>,
}

/// Count of a key.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct CountAnswer {
    /// Name of the store that was read.
    pub store: String,
    /// The key that was counted.
    pub key: String,
    /// The estimate; never too small.
    pub estimate: u64,
    /// Counters that were read.
    pub copies: u8,
    /// Sum over all keys.
    pub total: u64,
    /// Upper bound of the error, …
    pub error: f64,
    /// … with this probability.
    pub confidence: f64,
    /// The collector that answered, when a map selects it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub collector: Option<String>,
}

/// An epoch of a sketch.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(rename = "SketchEpoch"))]
pub struct Epoch {
    /// Number of the epoch.
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
    /// Name of the sketch.
    pub store: String,
    /// Kind of sketch: count-min, count, hyperloglog or aroma.
    pub sketch: String,
    /// The epoch of the answer.
    pub epoch: Epoch,
    /// Epochs in memory, newest first.
    pub epochs: Vec<Epoch>,
    /// False when columns of different epochs may be mixed.
    pub certain: bool,
    /// The key, if one was given.
    #[serde(default)]
    pub key: Option<String>,
    /// Kind of query: count (of a key), distinct (items), sampled_from (number of items that the sample represents).
    pub question: String,
    /// Estimate of the query; absent for a sample.
    #[serde(default)]
    pub estimate: Option<f64>,
    /// Upper bound of the error, …
    #[serde(default)]
    pub error: Option<f64>,
    /// … with this probability.
    #[serde(default)]
    pub confidence: Option<f64>,
    /// For a sample: the requested number of sampled items.
    #[serde(default)]
    pub samples: Vec<u32>,
}

/// A list of entries.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(rename = "List"))]
pub struct ListView {
    /// ID of the list.
    pub list: u32,
    /// The store it is in.
    pub store: String,
    /// Number of the newest batch; absent for empty and for untagged lists.
    #[serde(default)]
    pub newest: Option<u32>,
    /// Whether batches end in a sequence number and a checksum.
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
    /// Index in the batch, from 0.
    pub index: u16,
    /// Bytes of the entry, in hexadecimal.
    pub data: String,
    /// The decoded entry, by field name.
    #[serde(default)]
    #[cfg_attr(test, schemars(with = "Option<serde_json::Map<String, Value>>"))]
    pub fields: Option<Values>,
}

/// Entries of a list.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(rename = "ListTail"))]
pub struct TailAnswer {
    /// ID of the list.
    pub list: u32,
    /// The store it is in.
    pub store: String,
    /// The entries, oldest first.
    pub entries: Vec<Entry>,
    /// `from` of the next query.
    pub next: u32,
    /// Batches that were overwritten before they were read.
    pub overwritten: u64,
    /// Batches that were never complete.
    pub missing: u64,
}

/// Decoded values by field name, in layout order; a JSON object.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Values(pub Vec<(String, Value)>);

impl Values {
    /// Returns the value of a field, or `None` if there is no such field.
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.0
            .iter()
            .find(|(known, _)| known == name)
            .map(|(_, value)| value)
    }
}

impl Serialize for Values {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(name, value)| (name, value)))
    }
}

impl<'de> Deserialize<'de> for Values {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Pairs;
        impl<'de> Visitor<'de> for Pairs {
            type Value = Values;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Values, A::Error> {
                let mut values = Vec::new();
                while let Some(pair) = map.next_entry()? {
                    values.push(pair);
                }
                Ok(Values(values))
            }
        }
        deserializer.deserialize_map(Pairs)
    }
}
