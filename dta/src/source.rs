//! Stores for queries: live in this process, live in another one (their files mapped), or snapshots. The queries and answers are
//! those of the API and of the commands.

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

/// File name extension of stores and snapshots.
pub const EXTENSION: &str = "region";

/// A store with its file and its fields.
#[derive(Debug)]
pub struct SourceStore {
    /// The store.
    pub store: DtaStore,
    /// Its file, if there is one.
    pub file: Option<PathBuf>,
    /// The fields of its data or entries.
    pub fields: Option<Fields>,
}

/// Stores, by name and by number.
#[derive(Clone, Debug, Default)]
pub struct DtaSource {
    stores: Vec<Arc<SourceStore>>,
}

impl SourceStore {
    /// A store and its file.
    pub fn new(store: DtaStore, file: Option<PathBuf>) -> Self {
        let fields = store.header().fields.parse().ok();
        Self { store, file, fields }
    }

    /// The store in a file, for reading only.
    ///
    /// # Errors
    /// One sentence with the cause.
    pub fn open(file: &Path) -> Result<Self, String> {
        let region = Region::open_read_only(file)
            .map_err(|error| format!("cannot map {}: {error}", file.display()))?;
        let store = DtaStore::open(Arc::new(region)).map_err(|error| unreadable(file, error))?;
        Ok(Self::new(store, Some(file.to_owned())))
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.store.header().name
    }

    /// The pages under it, as a word.
    fn pages(&self) -> &'static str {
        match self.store.region().pages() {
            Pages::Huge2M => "huge",
            Pages::Transparent => "transparent",
            Pages::Small => "small",
        }
    }
}

/// Error text for an unusable region file.
pub fn unreadable(file: &Path, error: HeaderError) -> String {
    format!("{}: {error}", file.display())
}

impl DtaSource {
    /// These stores.
    pub fn new(stores: Vec<Arc<SourceStore>>) -> Self {
        Self { stores }
    }

    /// All stores of a directory.
    ///
    /// # Errors
    /// The directory has no stores, or a file cannot be read: a sentence.
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

    /// All of them.
    pub fn stores(&self) -> &[Arc<SourceStore>] {
        &self.stores
    }

    /// The store with this name or, if the text is a number, with this ID.
    ///
    /// # Errors
    /// There is none: a sentence that lists the existing stores.
    pub fn find(&self, name: &str) -> Result<&Arc<SourceStore>, String> {
        if let Some(named) = self.stores.iter().find(|store| store.name() == name) {
            return Ok(named);
        }
        let number: Option<u32> = name.parse().ok();
        let has = |store: &&Arc<SourceStore>| {
            number == Some(store.store.header().id) && store.store.lists().is_none()
        };
        let numbered: Vec<_> = self.stores.iter().filter(has).collect();
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

    /// The store in which this list is.
    ///
    /// # Errors
    /// There is none: a sentence.
    pub fn find_list(&self, list: u32) -> Result<&Arc<SourceStore>, String> {
        let has = |store: &&Arc<SourceStore>| store.store.lists().is_some_and(|lists| lists.has(list));
        self.stores.iter().find(has).ok_or_else(|| {
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
            match known.is_empty() {
                true => "there are no lists here".to_owned(),
                false => format!("there is no list {list}; there are {}", known.join(", ")),
            }
        })
    }
}
