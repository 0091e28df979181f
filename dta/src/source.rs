//! Opens the DTA stores behind the API and the query commands (`get`, `count`, `sketch`, `tail`): live in this process,
//! mapped from another process's files, or snapshots.

mod answer;
mod query;

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use crate::{DtaStore, HeaderError};
use memory::{Pages, Region};

pub use answer::{Answer, CountAnswer, Entry, ListView, Shape, SketchAnswer, StoreView, TailAnswer, Values};
pub use query::KeyQuery;

use crate::fields::Fields;

/// File name extension of store and snapshot files.
pub const EXTENSION: &str = "region";

/// A store with its file and field layout.
#[derive(Debug)]
pub struct SourceStore {
    /// The opened DTA store.
    pub store: DtaStore,
    /// File of the store, if there is one.
    pub file: Option<PathBuf>,
    /// Layout of its data or entries, if the header has a valid one.
    pub fields: Option<Fields>,
}

/// A set of stores, found by name or ID.
#[derive(Clone, Debug, Default)]
pub struct DtaSource {
    stores: Vec<Arc<SourceStore>>,
}

impl SourceStore {
    /// Creates a source store from a store and its file.
    pub fn new(store: DtaStore, file: Option<PathBuf>) -> Self {
        let fields = store.header().fields.parse().ok();
        Self { store, file, fields }
    }

    /// Opens the store in a file read-only.
    ///
    /// # Errors
    /// A message with the cause.
    pub fn open(file: &Path) -> Result<Self, String> {
        let region = Region::open_read_only(file)
            .map_err(|error| format!("cannot map {}: {error}", file.display()))?;
        let store = DtaStore::open(Arc::new(region)).map_err(|error| unreadable(file, error))?;
        Ok(Self::new(store, Some(file.to_owned())))
    }

    /// Returns the name of the store.
    pub fn name(&self) -> &str {
        &self.store.header().name
    }

    /// Returns the page size of its memory as a word, for the API.
    fn pages(&self) -> &'static str {
        match self.store.region().pages() {
            Pages::Huge2M => "huge",
            Pages::Transparent => "transparent",
            Pages::Small => "small",
        }
    }
}

/// Renders the error message for an unusable region file.
pub fn unreadable(file: &Path, error: HeaderError) -> String {
    format!("{}: {error}", file.display())
}

impl DtaSource {
    /// Creates a source from these stores.
    pub fn new(stores: Vec<Arc<SourceStore>>) -> Self {
        Self { stores }
    }

    /// Opens all stores in a directory.
    ///
    /// # Errors
    /// A message if the directory has no stores, a file cannot be read, or the kernel owns the memory.
    pub fn open(directory: &Path) -> Result<Self, String> {
        if crate::persist::is_locked(directory) {
            return Err(format!(
                "the memory of {} is in the kernel while its hopwise runs; leave --directory out to ask that one (--api), or ask a \
                 snapshot (--snapshot)",
                directory.display()
            ));
        }
        let entries = fs::read_dir(directory).map_err(|error| {
            format!(
                "cannot read {}: {error}; name a directory of regions",
                directory.display()
            )
        })?;
        let mut files: Vec<PathBuf> = entries
            .filter_map(|entry| Some(entry.ok()?.path()))
            .filter(|path| path.extension().is_some_and(|extension| extension == EXTENSION))
            .collect();
        files.sort();
        let stores = files
            .iter()
            .map(|file| SourceStore::open(file).map(Arc::new))
            .collect::<Result<Vec<_>, _>>()?;
        if stores.is_empty() {
            return Err(format!("there are no stores in {}", directory.display()));
        }
        Ok(Self { stores })
    }

    /// Returns all stores of this source.
    pub fn stores(&self) -> &[Arc<SourceStore>] {
        &self.stores
    }

    /// Returns the store with this name or, if the text is a number, with this ID. Lists are found by name only.
    ///
    /// # Errors
    /// A message with the existing stores if there is no match, or with the candidates if there are several.
    pub fn find(&self, name: &str) -> Result<&Arc<SourceStore>, String> {
        if let Some(named) = self.stores.iter().find(|store| store.name() == name) {
            return Ok(named);
        }
        let number: Option<u32> = name.parse().ok();
        let numbered: Vec<_> = self
            .stores
            .iter()
            .filter(|store| number == Some(store.store.header().id) && store.store.lists().is_none())
            .collect();
        match *numbered {
            [one] => Ok(one),
            [] => {
                let names: Vec<&str> = self.stores.iter().map(|store| store.name()).collect();
                Err(format!(
                    "there is no store `{name}`; there are {}",
                    names.join(", ")
                ))
            }
            ref several => {
                let names: Vec<&str> = several.iter().map(|store| store.name()).collect();
                Err(format!(
                    "{} have the number {name}; use the name instead",
                    names.join(" and ")
                ))
            }
        }
    }

    /// Returns the store that contains this list.
    ///
    /// # Errors
    /// A message with the existing lists if there is no match.
    pub fn find_list(&self, list: u32) -> Result<&Arc<SourceStore>, String> {
        let store = self
            .stores
            .iter()
            .find(|store| store.store.lists().is_some_and(|lists| lists.has(list)));
        store.ok_or_else(|| {
            let known = self.stores.iter().filter_map(|store| {
                let ids = store.store.lists()?.ids();
                let first = store.store.header().id;
                Some(format!(
                    "{first} to {} in {}",
                    first as usize + ids.len() - 1,
                    store.name()
                ))
            });
            let known: Vec<String> = known.collect();
            if known.is_empty() {
                "there are no lists here".to_owned()
            } else {
                format!("there is no list {list}; there are {}", known.join(", "))
            }
        })
    }
}
