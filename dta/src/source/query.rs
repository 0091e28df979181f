//! Queries of DTA stores for the API and the commands: calls the reader that fits the store's kind and converts its result
//! to JSON types.

use crate::{Next, Plan, Policy, QueryError, SketchCopy, SketchError};
use wire::dta::layout::{BlockTrailer, Geometry, SketchKind};

use super::answer::{
    Answer, CountAnswer, Entry, Epoch, ExpectedView, ListView, Shape, SketchAnswer, StoreView, TailAnswer,
    Values,
};
use super::{DtaSource, SourceStore};
use crate::{
    fields::{Fields, hex},
    key::Key,
};

/// Number of slots sampled to estimate a store's load.
const OCCUPANCY_SAMPLE: u64 = 16_384;

/// Writes per slot with which a store is full for all practical purposes.
const WRITES_PER_FULL_SLOT: f64 = 16.0;

/// Options of a key query.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct KeyQuery {
    /// Policy that decides which copies are accepted.
    pub policy: Policy,
    /// Copies to read, 1 to 4.
    pub copies: u8,
    /// Largest value that nodes report in postcards. It allows paths in the artifact's layout to be verified.
    pub largest: Option<u32>,
}

impl Default for KeyQuery {
    fn default() -> Self {
        Self {
            policy: Policy::Majority,
            copies: 4,
            largest: None,
        }
    }
}

fn invalid_query(error: QueryError) -> String {
    format!("{error}; ask otherwise")
}

impl SourceStore {
    /// Describes the store's structure and estimates its occupancy.
    pub fn view(&self) -> StoreView {
        let header = self.store.header();
        let occupied = self
            .store
            .occupancy(OCCUPANCY_SAMPLE)
            .map(|(written, sampled)| written as f64 / sampled.max(1) as f64);
        let slots = match header.geometry {
            Geometry::KeyWrite { slots, .. } => Some(slots),
            _ => None,
        };
        let expected = slots
            .zip(occupied)
            .map(|(slots, occupied)| expected_views(slots, occupied))
            .unwrap_or_default();
        StoreView {
            name: header.name.clone(),
            id: header.id,
            shape: shape_view(&header.geometry),
            fields: Some(header.fields.clone()).filter(|fields| !fields.is_empty()),
            bytes: self.store.body_len(),
            pages: self.pages().to_owned(),
            created: header.created,
            snapshot: header.snapshot,
            file: self.file.as_ref().map(|file| file.display().to_string()),
            occupied,
            expected,
        }
    }

    /// Looks up a key and returns its data, or its path for Postcarding.
    ///
    /// # Errors
    /// A message if the store is of another kind, or the query is invalid.
    pub fn get(&self, key: &Key, query: KeyQuery) -> Result<Answer, String> {
        if let Some(reader) = self.store.key_write() {
            return self.query_data(&reader, key, query);
        }
        if let Some(reader) = self.store.paths() {
            return self.query_path(&reader, key, query.largest);
        }
        Err(self.wrong_kind_error("get"))
    }

    fn query_data(
        &self,
        reader: &crate::KeyWriteReader,
        key: &Key,
        query: KeyQuery,
    ) -> Result<Answer, String> {
        let mut data = vec![0; reader.data_len()];
        let result = reader
            .get(key.bytes(), query.policy, query.copies, &mut data)
            .map_err(invalid_query)?;
        let mut answer = self.empty_answer(key);
        match result {
            crate::Answer::Found { copies, agreeing } => {
                answer.answer = "found".to_owned();
                answer.copies = Some(copies);
                answer.agreeing = Some(agreeing);
                answer.data = Some(hex(&data));
                answer.fields = self.fields.as_ref().map(|fields| decoded(fields, &data));
            }
            crate::Answer::Empty => answer.answer = "empty".to_owned(),
            crate::Answer::Ambiguous { copies, agreeing } => {
                answer.answer = "ambiguous".to_owned();
                answer.copies = Some(copies);
                answer.agreeing = Some(agreeing);
            }
            crate::Answer::Torn => answer.answer = "torn".to_owned(),
        }
        Ok(answer)
    }

    fn query_path(
        &self,
        reader: &crate::PostcardingReader,
        key: &Key,
        largest: Option<u32>,
    ) -> Result<Answer, String> {
        let mut hops = vec![None; usize::from(reader.hops())];
        let result = match largest {
            None => reader.get(key.bytes(), &mut hops),
            Some(largest) => reader.get_known(key.bytes(), &mut hops, |value| value <= largest),
        };
        let path = result.map_err(invalid_query)?;
        let mut answer = self.empty_answer(key);
        match path {
            crate::Path::Found { missing, .. } | crate::Path::Unproven { missing, .. } => {
                let hop_count = hops.iter().rposition(Option::is_some).map_or(0, |last| last + 1);
                hops.truncate(hop_count);
                let is_proven = matches!(path, crate::Path::Found { .. });
                answer.answer = if is_proven { "found" } else { "unproven" }.to_owned();
                answer.path = Some(hops);
                answer.missing = Some(missing);
            }
            crate::Path::Empty => answer.answer = "empty".to_owned(),
            crate::Path::Torn => answer.answer = "torn".to_owned(),
        }
        Ok(answer)
    }

    fn empty_answer(&self, key: &Key) -> Answer {
        Answer {
            store: self.name().to_owned(),
            key: key.to_string(),
            answer: String::new(),
            copies: None,
            agreeing: None,
            data: None,
            fields: None,
            path: None,
            missing: None,
            collector: None,
        }
    }

    /// Estimates a key's count. The error bound needs the sum of all counters, so every query reads the whole store.
    ///
    /// # Errors
    /// A message if the store is of another kind, or the query is invalid.
    pub fn count(&self, key: &Key, copies: u8) -> Result<CountAnswer, String> {
        let Some(reader) = self.store.counters() else {
            return Err(self.wrong_kind_error("count"));
        };
        let estimate = reader.estimate(key.bytes(), copies).map_err(invalid_query)?;
        let total = reader.total();
        let bound = reader.bound(copies, total);
        Ok(CountAnswer {
            store: self.name().to_owned(),
            key: key.to_string(),
            estimate,
            copies,
            total,
            error: bound.error,
            confidence: bound.confidence,
            collector: None,
        })
    }

    /// Queries a sketch for a key or as a whole, in one epoch or the newest. Returns at most `samples` samples.
    ///
    /// # Errors
    /// A message if the store is of another kind, the epoch is not in memory, or this kind of sketch cannot answer the
    /// query.
    pub fn sketch(
        &self,
        key: Option<&Key>,
        epoch: Option<u16>,
        samples: usize,
    ) -> Result<SketchAnswer, String> {
        let Some(reader) = self.store.sketch() else {
            return Err(self.wrong_kind_error("sketch"));
        };
        let mut copy = SketchCopy::new();
        match epoch {
            Some(epoch) => reader.copy_epoch(epoch, &mut copy),
            None => reader.copy_newest(&mut copy),
        }
        .map_err(|error| self.sketch_error(error))?;
        let (question, estimate) = match (copy.kind(), key) {
            (SketchKind::CountMin, Some(key)) => ("count", copy.count_min(key.bytes()).map(Some)),
            (SketchKind::Count, Some(key)) => ("count", copy.count(key.bytes()).map(Some)),
            (SketchKind::HyperLogLog, None) => ("distinct", copy.cardinality().map(Some)),
            (SketchKind::Aroma, None) => ("sampled_from", copy.sampled_from().map(Some)),
            (SketchKind::CountMin | SketchKind::Count, None) => ("epoch", Ok(None)),
            (_, Some(_)) => return Err(format!("`{}` has no keys; omit the key", self.name())),
        };
        let estimate = estimate.map_err(|error| self.sketch_error(error))?;
        let sampled_items = match copy.kind() {
            SketchKind::Aroma => copy
                .samples()
                .map(|sampled| sampled.take(samples).map(|sample| sample.item).collect()),
            _ => Ok(Vec::new()),
        };
        Ok(SketchAnswer {
            store: self.name().to_owned(),
            sketch: copy.kind().name().to_owned(),
            epoch: epoch_view(copy.trailer()),
            epochs: reader.epochs().into_iter().flatten().map(epoch_view).collect(),
            certain: copy.certain(),
            key: key.map(Key::to_string),
            question: question.to_owned(),
            estimate: estimate.map(|estimate| estimate.value),
            error: estimate.map(|estimate| estimate.bound.error),
            confidence: estimate.map(|estimate| estimate.bound.confidence),
            samples: sampled_items.map_err(|error| self.sketch_error(error))?,
        })
    }

    fn sketch_error(&self, error: SketchError) -> String {
        format!("`{}`: {error}", self.name())
    }

    fn wrong_kind_error(&self, command: &str) -> String {
        let kind = self.store.geometry().name();
        let suitable_command = match kind {
            "append" => "hopwise tail LIST",
            "key-increment" => "hopwise count STORE KEY",
            "sketch" => "hopwise sketch STORE [KEY]",
            _ => "hopwise get STORE KEY",
        };
        format!(
            "`{}` is a store of kind {kind}, which `{command}` cannot query; use {suitable_command}",
            self.name()
        )
    }
}

impl DtaSource {
    /// Returns the first `max_lists` lists with their newest batch. Reads the trailers of these lists only.
    pub fn lists(&self, is_event_list: impl Fn(&str) -> bool, max_lists: usize) -> Vec<ListView> {
        let mut views = Vec::new();
        for store in self.stores() {
            let Some(lists) = store.store.lists() else {
                continue;
            };
            let tagged = lists.ring().tagged;
            let events = is_event_list(store.name());
            views.extend(lists.ids().take(max_lists - views.len()).map(|list| ListView {
                list,
                store: store.name().to_owned(),
                newest: lists.newest(list),
                tagged,
                events,
            }));
        }
        views
    }

    /// Returns entries of a list, starting with batch `from`, or the newest ones without `from`. Returns whole batches, so
    /// there may be slightly more than `limit` entries.
    ///
    /// # Errors
    /// A message if there is no such list, or it is bare.
    pub fn tail(&self, list: u32, from: Option<u32>, limit: usize) -> Result<TailAnswer, String> {
        let store = self.find_list(list)?;
        let Some(lists) = store.store.lists() else {
            return Err(store.wrong_kind_error("tail"));
        };
        if !lists.ring().tagged {
            return Err(format!(
                "list {list} is bare (tagged = false): its entries have no sequence numbers, so new ones cannot be detected"
            ));
        }
        let batches = limit.div_ceil(usize::from(lists.ring().batch).max(1)) as u32;
        let newest = lists.newest(list);
        let follower = match (from, newest) {
            (Some(from), _) => lists.from_sequence(list, from),
            (None, Some(newest)) => {
                // Start `batches` before the newest batch, or with the oldest available one.
                let oldest = lists
                    .from_oldest(list)
                    .map_or(newest, |follower| follower.position());
                let available = BlockTrailer::ahead(newest, oldest).max(0) as u32;
                let batches_back = available.min(batches.saturating_sub(1));
                // Sequence numbers run from 1 to 2^32 - 1 and then continue with 1.
                let start =
                    (i64::from(newest) - 1 - i64::from(batches_back)).rem_euclid(i64::from(u32::MAX)) + 1;
                lists.from_sequence(list, start as u32)
            }
            (None, None) => lists.from_now(list),
        };
        let Some(mut follower) = follower else {
            return Err(store.wrong_kind_error("tail"));
        };
        let mut answer = TailAnswer {
            list,
            store: store.name().to_owned(),
            entries: Vec::new(),
            next: 0,
            overwritten: 0,
            missing: 0,
        };
        // Enough polls to skip lost batches.
        let mut empty_polls = 0;
        let max_empty_polls = follower.max_empty_polls();
        while answer.entries.len() < limit && empty_polls < max_empty_polls {
            let entry_len = follower.entry_len();
            let position = follower.position();
            match follower.next() {
                Next::Batch {
                    sequence, entries, ..
                } => {
                    empty_polls = 0;
                    store.append_entries(sequence, entries, entry_len, &mut answer.entries);
                }
                Next::Overwritten { lost } => {
                    empty_polls = 0;
                    answer.overwritten += lost;
                }
                Next::Missing { lost } => {
                    empty_polls = 0;
                    answer.missing += lost;
                }
                Next::Nothing | Next::Torn => {
                    // A batch after the newest one has not been written, so there is nothing to wait for.
                    if newest.is_none_or(|newest| BlockTrailer::ahead(newest, position) < 0) {
                        break;
                    }
                    empty_polls += 1;
                }
            }
        }
        answer.next = follower.position();
        if from.is_none() && answer.entries.len() > limit {
            answer.entries.drain(..answer.entries.len() - limit);
        }
        Ok(answer)
    }
}

impl SourceStore {
    fn append_entries(&self, sequence: u32, bytes: &[u8], entry_len: usize, answer: &mut Vec<Entry>) {
        for (index, entry) in bytes.chunks_exact(entry_len.max(1)).enumerate() {
            answer.push(Entry {
                sequence,
                index: index as u16,
                data: hex(entry),
                fields: self.fields.as_ref().map(|fields| decoded(fields, entry)),
            });
        }
    }
}

/// Decodes bytes into values by field name; an unnamed field becomes `value`.
pub(super) fn decoded(fields: &Fields, bytes: &[u8]) -> Values {
    Values(
        fields
            .decode(bytes)
            .into_iter()
            .map(|(name, value)| (if name.is_empty() { "value" } else { name }.to_owned(), value))
            .collect(),
    )
}

fn epoch_view(trailer: wire::dta::layout::SketchTrailer) -> Epoch {
    Epoch {
        epoch: trailer.epoch,
        columns: trailer.columns,
        reporters: trailer.reporters,
    }
}

fn shape_view(geometry: &Geometry) -> Shape {
    match *geometry {
        Geometry::KeyWrite {
            slots,
            data_len,
            family,
        } => Shape::KeyWrite {
            slots,
            data: data_len,
            hash: family.name().to_owned(),
        },
        Geometry::Append { lists, ring, .. } => Shape::Append {
            lists,
            entry: ring.entry_len,
            entries: ring.entries,
            batch: ring.batch,
            tagged: ring.tagged,
        },
        Geometry::KeyIncrement { slots, family } => Shape::KeyIncrement {
            slots,
            hash: family.name().to_owned(),
        },
        Geometry::Sketch { kind, op, shape } => Shape::Sketch {
            sketch: kind.name().to_owned(),
            merge: op.name().to_owned(),
            depth: shape.depth,
            columns: shape.columns,
            width: shape.width,
        },
        Geometry::Postcarding { slots, hops, family } => Shape::Postcarding {
            slots,
            hops,
            hash: family.name().to_owned(),
        },
    }
}

/// Returns the expected share of answered keys at this occupancy, for 1 to 4 copies per key.
fn expected_views(slots: u64, occupied: f64) -> Vec<ExpectedView> {
    let views = (1..=4).map(|copies: u8| {
        let load = Plan::load_of(occupied, copies);
        let load = if load.is_finite() {
            load
        } else {
            // A full store gives an infinite load; this many writes per slot give the same answers.
            WRITES_PER_FULL_SLOT / f64::from(copies)
        };
        let plan = Plan::new((load * slots as f64) as u64, slots, copies);
        ExpectedView {
            copies,
            load,
            answered: plan.answered(),
        }
    });
    views.collect()
}
