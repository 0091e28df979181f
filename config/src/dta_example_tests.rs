//! The examples of DTA as whole files: each is read back from its dump, and each reporter's store is one of the collector.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use ::settings::setting::Setting;
use serde_json::Value;

use super::Settings;

fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/dta")
}

/// Returns the stores of the collector, by what a report names: its kind, with the number of the store, the sketch or the list.
fn stores() -> BTreeMap<(String, u64), Value> {
    let settings = Settings::load(Some(&directory().join("collector.toml")));
    let settings = settings.unwrap_or_else(|error| panic!("{error}")).to_json();
    let mut stores = BTreeMap::new();
    for store in settings["collector"]["memory"]["stores"].as_array().unwrap() {
        let kind = store["kind"].as_str().unwrap();
        let numbers = match &store["lists"] {
            Value::Null => vec![store["id"].as_u64().unwrap()],
            Value::String(range) => {
                let (first, last) = range.split_once('-').unwrap();
                (first.parse().unwrap()..=last.parse().unwrap()).collect()
            }
            one => vec![one.as_u64().unwrap()],
        };
        for number in numbers {
            let earlier = stores.insert((kind.to_owned(), number), store.clone());
            assert_eq!(earlier, None, "two stores of {kind} {number}");
        }
    }
    let numbers: Vec<u64> = stores
        .keys()
        .filter(|(kind, _)| !["append", "sketch"].contains(&kind.as_str()))
        .map(|key| key.1)
        .collect();
    let different: BTreeSet<&u64> = numbers.iter().collect();
    assert_eq!(
        different.len(),
        numbers.len(),
        "stores of all kinds have numbers of their own: {numbers:?}"
    );
    stores
}

/// Returns a value, and a count such as `1K` as its number.
fn plain(value: &Value) -> Value {
    let count = value.as_str().and_then(dta::settings::Count::parse);
    count.map_or_else(|| value.clone(), |count| count.0.into())
}

#[test]
fn each_example_has_its_store_in_the_file_of_the_collector() {
    let mut stores = stores();
    let mut used = vec![("key-increment".to_owned(), 8)];
    for entry in std::fs::read_dir(directory()).unwrap() {
        let path = entry.unwrap().path();
        let file = path.file_name().unwrap().to_str().unwrap().to_owned();
        let named = std::fs::read_to_string(&path).unwrap();
        let settings = Settings::load(Some(&path)).unwrap();
        let Some(dta) = settings.switch.and_then(|switch| switch.dta) else {
            continue;
        };
        for report in &dta.report {
            let kind = report.operation.unwrap().name();
            let numbers = match report.list {
                Some(list) => (list..list + u32::from(report.lists)).map(u64::from).collect(),
                None => vec![u64::from(report.store.unwrap())],
            };
            for number in numbers {
                let key = (kind.to_owned(), number);
                let store = stores
                    .get(&key)
                    .unwrap_or_else(|| panic!("{file}: no store of {key:?}"));
                let name = store["name"].as_str().unwrap();
                assert!(
                    named.contains(&format!("is `{name}` of collector.toml")),
                    "{file}: {name}"
                );
                let reported: Vec<_> = report.data.iter().map(|field| field.0).collect();
                let shown = store["value"].as_str().or(store["fields"].as_str());
                let size = shown.map(|fields| fields.parse::<::dta::fields::Fields>().unwrap().size());
                assert_eq!(
                    size,
                    dataplane::dta::data_len(&reported).filter(|_| kind != "key-increment"),
                    "{file}: {name}"
                );
                used.push(key);
            }
        }
        for sketch in &dta.sketch {
            let sketch = sketch.show().to_json();
            let key = ("sketch".to_owned(), sketch["id"].as_u64().unwrap());
            let store = &stores[&key];
            for (ours, theirs) in [("kind", "sketch"), ("depth", "depth"), ("columns", "columns")] {
                assert_eq!(plain(&sketch[ours]), plain(&store[theirs]), "{file}: {ours}");
            }
            used.push(key);
        }
    }
    used.iter().for_each(|key| drop(stores.remove(key)));
    assert_eq!(stores, BTreeMap::new(), "stores of no example");
}

#[test]
fn the_dump_reads_back() {
    for entry in std::fs::read_dir(directory()).unwrap() {
        let settings = Settings::load(Some(&entry.unwrap().path())).unwrap();
        assert_eq!(Settings::parse(&settings.to_toml(), "dump"), Ok(settings));
    }
}
