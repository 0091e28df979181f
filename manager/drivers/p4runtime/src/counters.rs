//! Counters of a P4 program that hopwise shows: the counter arrays that a pipeline map names, and the conversion of counts
//! read from the device into named counters.

use std::collections::{BTreeMap, BTreeSet};

use manager::driver::Counter;
use settings::read::{Node, Reader, span_of};
use settings::section;

use crate::entry::CounterReading;

/// Maximum number of counter names in a map. A name counts once for all objects of an array.
pub const MAX_NAMES: usize = 128;
/// Maximum number of counters shown per device.
pub const MAX_COUNTERS: usize = 1024;

section! {
    /// An array of counters.
    pub struct CounterSettings("an array of counters of the map") {
        /// Name of the array.
        pub(crate) array: String = String::new(),
        /// Name of each counter of it, from the first one on; an empty name leaves one out.
        pub(crate) names: Vec<String> = Vec::new(),
        /// The array has as many counters as there are names for each of several objects, such as `"filter"`: those of object 0 come first. Not
        /// set: its counters are the device's.
        pub(crate) each: Option<String> = None,
    }
}

fn is_name(name: &str) -> bool {
    name.len() <= 40
        && name
            .bytes()
            .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_')
}

/// Checks the counters of a map, and reports problems to `reader`.
pub(crate) fn check(all: &[CounterSettings], root: &Node<'_>, reader: &mut Reader<'_>) {
    let mut names = BTreeSet::new();
    for (index, counters) in all.iter().enumerate() {
        let place = index.to_string();
        if counters
            .each
            .as_deref()
            .is_some_and(|object| object.is_empty() || !is_name(object))
        {
            let message = "an object has a name of at most 40 lower-case letters, digits and `_`";
            reader.refuse(span_of(root, &["counters", &place, "each"]), message);
        }
        for (number, name) in counters
            .names
            .iter()
            .enumerate()
            .filter(|(_, name)| !name.is_empty())
        {
            let path = ["counters", &place, "names", &number.to_string()];
            if !is_name(name) {
                let message = "a counter has a name of at most 40 lower-case letters, digits and `_`";
                reader.refuse(span_of(root, &path), message);
            } else if !names.insert((&counters.each, name)) {
                reader.refuse(
                    span_of(root, &path),
                    format!("there is a counter `{name}` already"),
                );
            }
        }
    }
    if names.len() > MAX_NAMES {
        let message = format!("a map names at most {MAX_NAMES} counters; leave out some");
        reader.refuse(span_of(root, &["counters"]), message);
    }
}

/// The named counter arrays of a device's program, by P4Runtime id.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Counters(BTreeMap<u32, CounterSettings>);

impl Counters {
    /// Adds an array with `size` counters.
    ///
    /// # Errors
    /// A description of the mismatch between the array's size and the names.
    pub(crate) fn add(&mut self, id: u32, size: i64, settings: &CounterSettings) -> Result<(), String> {
        let CounterSettings { array, names, each } = settings;
        let size = usize::try_from(size).unwrap_or(0);
        let count = names.len();
        self.0.insert(id, settings.clone());
        match each {
            _ if size < count => Err(format!(
                "`{array}` has {size} counters, and the map names {count}"
            )),
            Some(each) if size % count.max(1) != 0 => Err(format!(
                "`{array}` has {size} counters, which are not {count} for each {each}"
            )),
            _ => Ok(()),
        }
    }

    /// Returns the ids of the arrays.
    pub(crate) fn arrays(&self) -> impl Iterator<Item = u32> {
        self.0.keys().copied()
    }

    /// Names the counters. Returns them sorted, the device's own first. Objects with only zero counts are omitted.
    pub(crate) fn name_counters(&self, readings: impl Iterator<Item = CounterReading>) -> Vec<Counter> {
        let mut named = Vec::new();
        let mut of_objects: BTreeMap<(&str, usize), Vec<(&str, u64)>> = BTreeMap::new();
        for CounterReading {
            array,
            index,
            packets,
        } in readings
        {
            let Some(CounterSettings { names, each, .. }) = self.0.get(&array) else {
                continue;
            };
            // In an array with objects, object i has the counters from i * names.len() on.
            let name_index = if each.is_some() {
                index % names.len().max(1)
            } else {
                index
            };
            let Some(name) = names.get(name_index).filter(|name| !name.is_empty()) else {
                continue;
            };
            match each {
                None => named.push(Counter {
                    object: None,
                    about: None,
                    name: name.clone(),
                    packets,
                }),
                Some(each) => {
                    of_objects
                        .entry((each, index / names.len()))
                        .or_default()
                        .push((name, packets));
                }
            }
        }
        named.sort_unstable();
        named.dedup_by(|a, b| a.name == b.name);
        for ((each, number), mut counters) in of_objects {
            counters.sort_unstable();
            counters.dedup_by_key(|(name, _)| *name);
            if counters.iter().all(|(_, packets)| *packets == 0) {
                continue;
            }
            named.extend(counters.into_iter().map(|(name, packets)| Counter {
                object: Some(format!("{each} {number}")),
                about: None,
                name: name.to_owned(),
                packets,
            }));
        }
        named.truncate(MAX_COUNTERS);
        named
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reading(array: u32, index: usize, packets: u64) -> CounterReading {
        CounterReading {
            array,
            index,
            packets,
        }
    }

    #[test]
    fn counters_of_objects_have_their_numbers() {
        let of = |array: &str, each: Option<&str>, names: &[&str]| CounterSettings {
            array: array.to_owned(),
            names: names.iter().map(|name| (*name).to_owned()).collect(),
            each: each.map(str::to_owned),
        };
        let mut counters = Counters::default();
        assert_eq!(
            counters.add(1, 4, &of("packets", None, &["plain", "", "refused"])),
            Ok(())
        );
        assert_eq!(
            counters.add(
                2,
                9,
                &of("decisions", Some("filter"), &["suppressed", "", "event"])
            ),
            Ok(())
        );
        let decisions = (0..9).map(|index| reading(2, index, if index < 3 { 0 } else { 10 + index as u64 }));
        // A place behind the names, and an array that the map does not name.
        let others = [
            reading(1, 2, 7),
            reading(1, 0, 0),
            reading(1, 3, 9),
            reading(3, 0, 5),
        ];
        let named = counters.name_counters(decisions.chain(others));
        let named: Vec<(Option<&str>, &str, u64)> = named
            .iter()
            .map(|counter| (counter.object.as_deref(), counter.name.as_str(), counter.packets))
            .collect();
        let expected = [
            (None, "plain", 0),
            (None, "refused", 7),
            (Some("filter 1"), "event", 15),
            (Some("filter 1"), "suppressed", 13),
            (Some("filter 2"), "event", 18),
            (Some("filter 2"), "suppressed", 16),
        ];
        assert_eq!(named, expected);
        let wrong = [
            (
                2,
                of("packets", None, &["a", "b", "c"]),
                "`packets` has 2 counters, and the map names 3",
            ),
            (
                4,
                of("f", Some("filter"), &["a", "b", "c"]),
                "`f` has 4 counters, which are not 3 for each filter",
            ),
        ];
        for (size, settings, expected) in wrong {
            assert_eq!(counters.add(9, size, &settings), Err(expected.to_owned()));
        }
    }
}
