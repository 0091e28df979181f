//! The map of a DTA deployment with several collectors: a JSON file that assigns keys, lists and sketches to collectors.
//! Reporters use it to choose a collector, and queries use it to find the same one.
//!
//! A key's hash selects one of 256 buckets, and each bucket belongs to a collector. When a collector is added, a share of
//! the buckets moves to it, and the old assignment stays in the map for keys that were not reported since.

use std::{
    fs,
    io::{self, Read},
    net::SocketAddr,
    path::Path,
};

use dataplane::dta::{MAX_COLLECTORS, Spread};
use serde::{Deserialize, Serialize};

use crate::key::Key;

/// Format version of the file.
const VERSION: u32 = 1;
/// Maximum length of a map file, bytes.
const MAX_FILE: u64 = 4 << 20;

/// Assigns keys, lists and sketches to collectors.
///
/// ```
/// use dta::CollectorMap;
/// use dta::collector_map::Collector;
///
/// let collector = |name: &str| Collector { name: name.into(), api: format!("http://{name}:8080"), reports: None };
/// let map = CollectorMap::even(vec![collector("a"), collector("b"), collector("c")])?;
/// let key: dta::key::Key = "10.0.0.1:1234>10.0.0.2:80/6".parse()?;
/// assert_eq!(map.collectors_of_key(&key).len(), 1);
/// assert_eq!(map.shares().iter().sum::<usize>(), 256);
///
/// // A fourth collector gets a quarter of the keys; the others keep theirs.
/// let (grown, moved) = map.grown(collector("d"), 0)?;
/// assert_eq!((grown.collectors.len(), moved), (4, 64));
/// # Ok::<(), String>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CollectorMap {
    version: u32,
    /// The collectors; a collector's index is its number.
    pub collectors: Vec<Collector>,
    /// The collector of each of the 256 buckets.
    keys: Vec<u8>,
    /// Lists with an assigned collector. Other lists are assigned round-robin.
    #[serde(default)]
    lists: Vec<ListRange>,
    /// The collector of all sketches.
    #[serde(default)]
    sketches: u8,
    /// Value of `keys` before the map last grew, for keys that were not reported since.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    keys_before: Option<Vec<u8>>,
}

/// A collector with its addresses.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Collector {
    /// Name of the collector.
    pub name: String,
    /// URL of its API.
    pub api: String,
    /// Address on which its translator receives reports.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reports: Option<SocketAddr>,
}

/// The reason why a map could not be loaded.
#[derive(Debug)]
pub enum LoadError {
    /// The file cannot be read.
    Read(io::Error),
    /// The file is not valid JSON for a map.
    Json(serde_json::Error),
    /// The map's contents are invalid; the text says why.
    Tables(String),
}

/// An inclusive range of list IDs that belongs to one collector.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ListRange {
    first: u32,
    last: u32,
    collector: u8,
}

impl CollectorMap {
    /// Creates a map that distributes keys and lists evenly.
    ///
    /// # Errors
    /// A message if there are no collectors, too many, or two with the same name.
    pub fn even(collectors: Vec<Collector>) -> Result<Self, String> {
        let keys = Spread::even(collectors.len()).by_key().to_vec();
        let map = Self {
            version: VERSION,
            collectors,
            keys,
            lists: Vec::new(),
            sketches: 0,
            keys_before: None,
        };
        map.spread()?;
        Ok(map)
    }

    /// Loads and validates a map file.
    ///
    /// # Errors
    /// [`LoadError`] if the file cannot be read, or is not a map.
    pub fn load(file: &Path) -> Result<Self, LoadError> {
        let mut text = String::new();
        let opened = fs::File::open(file).map_err(LoadError::Read)?;
        opened
            .take(MAX_FILE)
            .read_to_string(&mut text)
            .map_err(LoadError::Read)?;
        let map: Self = serde_json::from_str(&text).map_err(LoadError::Json)?;
        map.spread().map_err(LoadError::Tables)?;
        Ok(map)
    }

    /// Validates the map and builds the lookup tables.
    ///
    /// # Errors
    /// A message that describes the first problem.
    pub fn spread(&self) -> Result<Spread, String> {
        if self.version != VERSION {
            return Err(format!(
                "a map of version {}; this program reads version {VERSION}",
                self.version
            ));
        }
        if self.collectors.len() > MAX_COLLECTORS {
            let count = self.collectors.len();
            return Err(format!("{count} collectors; a map has at most {MAX_COLLECTORS}"));
        }
        for (index, collector) in self.collectors.iter().enumerate() {
            if self.collectors[..index]
                .iter()
                .any(|other| other.name == collector.name)
            {
                return Err(format!(
                    "two collectors are called `{}`; rename one",
                    collector.name
                ));
            }
        }
        let lists = self
            .lists
            .iter()
            .map(|range| (range.first, range.last, range.collector))
            .collect();
        if let Some(before) = &self.keys_before {
            Spread::new(
                self.collectors.len(),
                Some(table(before)?),
                Vec::new(),
                self.sketches,
            )?;
        }
        Spread::new(
            self.collectors.len(),
            Some(table(&self.keys)?),
            lists,
            self.sketches,
        )
    }

    /// Returns the map with one more collector, and the number of buckets that move to it. Pins round-robin lists with an
    /// ID below `lists` to their current collector, because the new collector would change the rotation.
    ///
    /// # Errors
    /// A message if there are too many collectors, or the name is in use.
    pub fn grown(&self, new: Collector, lists: u32) -> Result<(Self, usize), String> {
        let old = self.spread()?;
        let keys = old.grown()?.to_vec();
        let mut collectors = self.collectors.clone();
        collectors.push(new);
        let moved = keys
            .iter()
            .zip(&self.keys)
            .filter(|(new, old)| new != old)
            .count();
        let mut ranges: Vec<ListRange> = self.lists.clone();
        for list in (0..lists).filter(|list| !ranges_have(&self.lists, *list)) {
            ranges.push(ListRange {
                first: list,
                last: list,
                collector: old.of_list(list),
            });
        }
        let keys_before = Some(self.keys.clone());
        let grown = Self {
            collectors,
            keys,
            lists: ranges,
            keys_before,
            ..self.clone()
        };
        grown.spread()?;
        Ok((grown, moved))
    }

    /// Returns the collectors that may have a key: the current one, and the one before the map last grew.
    pub fn collectors_of_key(&self, key: &Key) -> Vec<&Collector> {
        let value = usize::from(wire::dta::hash::collector_of(key.bytes()));
        let now = self.keys.get(value).copied();
        let before = self
            .keys_before
            .as_ref()
            .and_then(|keys| keys.get(value).copied())
            .filter(|old| Some(*old) != now);
        [now, before]
            .into_iter()
            .flatten()
            .filter_map(|number| self.collectors.get(usize::from(number)))
            .collect()
    }

    /// Returns the collector of a list, or `None` if the map is invalid.
    pub fn collector_of_list(&self, list: u32) -> Option<&Collector> {
        let number = self.spread().ok()?.of_list(list);
        self.collectors.get(usize::from(number))
    }

    /// Returns the collector of all sketches, or `None` if the map is invalid.
    pub fn collector_of_sketches(&self) -> Option<&Collector> {
        self.collectors.get(usize::from(self.sketches))
    }

    /// Returns the number of buckets (of 256) per collector.
    pub fn shares(&self) -> Vec<usize> {
        let mut shares = vec![0; self.collectors.len()];
        for number in &self.keys {
            if let Some(share) = shares.get_mut(usize::from(*number)) {
                *share += 1;
            }
        }
        shares
    }

    /// Returns the report address of each collector, by collector number.
    ///
    /// # Errors
    /// A message if a collector has no report address.
    pub fn reports(&self) -> Result<Vec<SocketAddr>, String> {
        let addresses = self.collectors.iter().map(|collector| {
            collector.reports.ok_or_else(|| {
                let name = &collector.name;
                format!("the map has no report address of `{name}`; create it with {name}=URL,ADDRESS:PORT")
            })
        });
        addresses.collect()
    }

    /// Renders the map as the contents of its file.
    pub fn to_text(&self) -> String {
        // Cannot fail: every field has a JSON form.
        serde_json::to_string(self).unwrap_or_default() + "\n"
    }
}

fn table(keys: &[u8]) -> Result<[u8; 256], String> {
    <[u8; 256]>::try_from(keys).map_err(|_| format!("{} keys, not 256", keys.len()))
}

fn ranges_have(ranges: &[ListRange], list: u32) -> bool {
    ranges
        .iter()
        .any(|range| (range.first..=range.last).contains(&list))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn collector(name: &str) -> Collector {
        Collector {
            name: name.to_owned(),
            api: format!("http://{name}:8080"),
            reports: None,
        }
    }

    #[test]
    fn a_map_grows_and_only_what_the_new_one_gets_moves() {
        let mut map = CollectorMap::even(vec![collector("c0")]).unwrap();
        for number in 1..20 {
            let (grown, moved) = map.grown(collector(&format!("c{number}")), 100).unwrap();
            assert_eq!(moved, 256 / (number + 1));
            let pairs = || map.keys.iter().zip(&grown.keys);
            assert!(pairs().all(|(old, new)| old == new || usize::from(*new) == number));
            let shares = grown.shares();
            assert_eq!(shares.iter().sum::<usize>(), 256);
            assert!(
                shares.iter().max().unwrap() - shares.iter().min().unwrap() <= 2,
                "{shares:?}"
            );
            for list in 0..100 {
                assert_eq!(
                    grown.collector_of_list(list),
                    map.collector_of_list(list),
                    "list {list} stays"
                );
            }
            // The grown map equals the table of a reporter that is configured with only the number of collectors.
            assert_eq!(grown.keys, Spread::even(number + 1).by_key());
            map = grown;
        }
    }

    #[test]
    fn the_tables_are_the_reporters_byte_for_byte() {
        let names = |count: usize| {
            (0..count)
                .map(|number| collector(&format!("c{number}")))
                .collect()
        };
        for count in 1..=16 {
            let map = CollectorMap::even(names(count)).unwrap();
            let even = Spread::even(count);
            assert_eq!(map.keys, even.by_key(), "{count} collectors");
            let read: CollectorMap = serde_json::from_str(&map.to_text()).unwrap();
            assert_eq!(read.spread(), Ok(even), "{count} collectors, through the file");
        }
        // After growth, every key goes where a reporter configured with one more collector sends it.
        let mut map = CollectorMap::even(names(1)).unwrap();
        for count in 2..=16 {
            let before = Spread::even(count - 1);
            map = map.grown(collector(&format!("c{}", count - 1)), 0).unwrap().0;
            let after = Spread::even(count);
            assert_eq!(
                map.spread().unwrap().by_key(),
                after.by_key(),
                "{count} collectors"
            );
            for number in 0..2000_u32 {
                let key = Key::new(&number.wrapping_mul(0x9e37_79b9).to_be_bytes());
                let (old, new) = (before.of_key(key.bytes()), after.of_key(key.bytes()));
                assert!(
                    old == new || usize::from(new) == count - 1,
                    "keys move to the new one only"
                );
                let asked: Vec<_> = map
                    .collectors_of_key(&key)
                    .iter()
                    .map(|one| one.name.clone())
                    .collect();
                let expected = if old == new { vec![new] } else { vec![new, old] };
                assert_eq!(
                    asked,
                    expected.iter().map(|one| format!("c{one}")).collect::<Vec<_>>()
                );
            }
        }
    }

    #[test]
    fn a_map_gives_all_report_addresses_or_names_the_collector_without_one() {
        let to = |port: u16| Some(SocketAddr::from(([10, 0, 0, 9], port)));
        let mut map = CollectorMap::even(vec![collector("a"), collector("b")]).unwrap();
        map.collectors[0].reports = to(40040);
        assert!(
            map.reports()
                .unwrap_err()
                .contains("no report address of `b`; create it with b=URL,ADDRESS:PORT")
        );
        map.collectors[1].reports = to(40041);
        assert_eq!(map.reports(), Ok(vec![to(40040).unwrap(), to(40041).unwrap()]));
        assert_eq!(serde_json::from_str::<CollectorMap>(&map.to_text()).unwrap(), map);
        // Files of versions without report addresses can still be read.
        let old = map.to_text().replace(r#","reports":"10.0.0.9:40040""#, "");
        assert_eq!(
            serde_json::from_str::<CollectorMap>(&old).unwrap().collectors[0],
            collector("a")
        );
    }

    #[test]
    fn a_key_that_moved_is_asked_for_in_both_places() {
        let map = CollectorMap::even(vec![collector("a")]).unwrap();
        let (grown, _) = map.grown(collector("b"), 0).unwrap();
        let names = |key: u32| -> Vec<String> {
            let key = Key::new(&key.to_be_bytes());
            grown
                .collectors_of_key(&key)
                .iter()
                .map(|collector| collector.name.clone())
                .collect()
        };
        let all: Vec<_> = (0..1000).map(names).collect();
        assert!(all.contains(&vec!["b".to_owned(), "a".to_owned()]) && all.contains(&vec!["a".to_owned()]));
        assert_eq!(
            all.iter().filter(|names| names.len() == 2).count(),
            all.iter().filter(|n| n[0] == "b").count()
        );
    }

    #[test]
    fn invalid_maps_are_refused() {
        assert!(CollectorMap::even(Vec::new()).is_err());
        assert!(
            CollectorMap::even(vec![collector("a"), collector("a")])
                .unwrap_err()
                .contains("two collectors")
        );
        let good = CollectorMap::even(vec![collector("a"), collector("b")]).unwrap();
        assert!(
            CollectorMap {
                version: 2,
                ..good.clone()
            }
            .spread()
            .unwrap_err()
            .contains("version 2")
        );
        assert!(
            CollectorMap {
                keys: vec![0; 255],
                ..good.clone()
            }
            .spread()
            .is_err()
        );
        assert!(
            CollectorMap {
                keys: vec![2; 256],
                ..good.clone()
            }
            .spread()
            .unwrap_err()
            .contains("no collector 2")
        );
        let read: CollectorMap = serde_json::from_str(&good.to_text()).unwrap();
        assert_eq!(read, good);
    }
}
