//! Translates rules into objects of a gNMI device, and the objects read from the device back into rules.

use std::collections::{BTreeMap, BTreeSet};

use manager::device::{Rule, Rules};
use serde_json::{Map, Value as Json};
use sha2::{Digest, Sha256};

use crate::map::{Object, PathMap, keys_of};
use crate::message::{Path, PathElem};
use crate::path;
use crate::tree::{Tree, child, leaf, local};

/// An entry of a list on the device, or to be written to it.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// Path of the entry, with its key.
    pub path: Path,
    /// Leaves of the entry, nested like its containers.
    pub leaves: Map<String, Json>,
}

/// The objects found in the lists of a path map.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DeviceObjects {
    /// Rules, each with the texts of its objects' paths.
    pub rules: BTreeMap<Rule, BTreeSet<String>>,
    /// Paths of all objects, by their text.
    pub paths: BTreeMap<String, Path>,
    /// Paths of the objects that belong to no rule.
    pub foreign: Vec<String>,
}

impl DeviceObjects {
    /// Returns the rules without the paths of their objects.
    pub fn rules(&self) -> Rules {
        self.rules.keys().cloned().collect()
    }
}

type Values = BTreeMap<String, String>;

/// Returns the kind of a rule, and its keys with values, from the text format of the driver `files`.
fn pairs(rule: &Rule) -> (String, Values) {
    let line = files::rule_line(rule);
    let mut words = line.split(" #").next().unwrap_or_default().split_whitespace();
    let kind = words.next().unwrap_or_default().to_owned();
    let values = words.filter_map(|word| {
        let (key, value) = word.split_once('=')?;
        Some((key.to_owned(), value.to_owned()))
    });
    (kind, values.collect())
}

impl PathMap {
    /// Returns the objects of a rule. Rules that the device always follows have no objects.
    ///
    /// # Errors
    /// A sentence with a fix if the map cannot express the rule.
    pub fn entries(&self, rule: &Rule) -> Result<Vec<Entry>, String> {
        match (rule, &self.always_encoding) {
            (Rule::Instruction(_), _) if self.always_instructions => return Ok(Vec::new()),
            (Rule::Encoding(_), Some(always)) if always == rule => return Ok(Vec::new()),
            (Rule::Encoding(_), Some(always)) => {
                return Err(format!(
                    "this device always has `{always}`; correct `dscp` and `l4_checksum` of [manager]"
                ));
            }
            _ => {}
        }
        let (kind, values) = pairs(rule);
        let objects: Vec<&Object> = self.objects.iter().filter(|object| object.kind == kind).collect();
        if objects.is_empty() {
            return Err(format!("the path map has no object for `{kind}`; add one"));
        }
        // Each value must be readable from an object. Otherwise, the rule would differ at each read and be written forever.
        let known: BTreeSet<&str> = objects.iter().flat_map(|object| self.readable(object)).collect();
        for (key, value) in &values {
            let default = self.defaults.get(key);
            if !known.contains(key.as_str()) && default != Some(value) {
                return Err(format!(
                    "the path map has no place for {key}={value} of `{rule}`; add {{{key}}} to an object"
                ));
            }
        }
        let values = self.derived(rule, values);
        objects.into_iter().map(|object| entry(object, &values)).collect()
    }

    /// Returns the rule keys whose values can be read back from an object.
    fn readable<'o>(&self, object: &'o Object) -> Vec<&'o str> {
        let templates = object
            .leaves
            .values()
            .map(|(template, _)| template)
            .chain([&object.name]);
        let mut keys: Vec<&str> = templates
            .filter_map(|template| template.placeholder.as_deref())
            .collect();
        if keys.contains(&"interface") {
            keys.push("port");
        }
        if keys.contains(&"collector_address") && keys.contains(&"collector_port") {
            keys.push("collector");
        }
        keys
    }

    /// Adds the values of the derived placeholders. `id` is the first 6 bytes of a digest of the rule.
    fn derived(&self, rule: &Rule, mut values: Values) -> Values {
        let digest = Sha256::digest(files::rule_line(rule));
        values.insert(
            "id".to_owned(),
            digest.iter().take(6).map(|byte| format!("{byte:02x}")).collect(),
        );
        match rule {
            Rule::Sink(port) | Rule::Source(port) => {
                if let Some(interface) = self.ports.get(port) {
                    values.insert("interface".to_owned(), interface.clone());
                }
            }
            Rule::Session(collector) => {
                values.insert("collector_address".to_owned(), collector.ip().to_string());
                values.insert("collector_port".to_owned(), collector.port().to_string());
            }
            _ => {}
        }
        values
    }

    /// Reverts [`Self::derived`]: converts placeholder values to the keys of a rule, and adds the map's defaults.
    fn underived(&self, kind: &str, mut values: Values) -> Values {
        if let Some(interface) = values.remove("interface") {
            let port = self.ports.iter().find(|(_, name)| **name == interface);
            values.extend(port.map(|(port, _)| ("port".to_owned(), port.to_string())));
        }
        if let (Some(address), Some(port)) = (
            values.remove("collector_address"),
            values.remove("collector_port"),
        ) {
            // An IPv6 address needs brackets before the port.
            let address = if address.contains(':') {
                format!("[{address}]")
            } else {
                address
            };
            values.insert("collector".to_owned(), format!("{address}:{port}"));
        }
        let keys = keys_of(kind);
        values.retain(|key, _| keys.contains(&key.as_str()));
        for (key, value) in self
            .defaults
            .iter()
            .filter(|(key, _)| keys.contains(&key.as_str()))
        {
            values.entry(key.clone()).or_insert_with(|| value.clone());
        }
        values
    }

    /// Returns the rules that the device's lists represent, with their objects.
    pub fn device_objects(&self, tree: &Tree) -> DeviceObjects {
        let mut found = DeviceObjects::default();
        // The objects of one rule have the same kind, and the same placeholder value in their names.
        let mut groups: BTreeMap<(&str, String), Vec<(&Object, Entry)>> = BTreeMap::new();
        for object in &self.objects {
            for entry in entries_of(object, tree) {
                found.paths.insert(path::text(&entry.path), entry.path.clone());
                let name = entry.path.elem.last().and_then(|last| last.key.get(&object.key));
                if let Some(value) = name.and_then(|name| object.name.value(name)) {
                    groups
                        .entry((&object.kind, value.to_owned()))
                        .or_default()
                        .push((object, entry));
                }
            }
        }
        let mut ours = BTreeSet::new();
        for ((kind, _), group) in groups {
            let rule = self.rule(kind, &group);
            let is_whole = rule.as_ref().is_some_and(|rule| self.is_whole(rule, &group));
            let Some(rule) = rule else { continue };
            // A modified object may still insert INT, so it counts; a modified sink may not remove INT, so it does not.
            if is_whole || rule.inserted_bits() != 0 || matches!(rule, Rule::Source(_)) {
                let texts: BTreeSet<String> =
                    group.iter().map(|(_, entry)| path::text(&entry.path)).collect();
                ours.extend(texts.clone());
                found.rules.entry(rule).or_default().extend(texts);
            }
        }
        found.foreign = found
            .paths
            .keys()
            .filter(|text| !ours.contains(*text))
            .cloned()
            .collect();
        found
    }

    /// Reads the rule that a group of objects represents, or `None` if their values form no valid rule.
    fn rule(&self, kind: &str, group: &[(&Object, Entry)]) -> Option<Rule> {
        let mut values = Values::new();
        for (object, entry) in group {
            let name = entry
                .path
                .elem
                .last()
                .and_then(|last| last.key.get(&object.key))
                .cloned();
            let leaves = object.leaves.iter().filter_map(|(name, (template, _))| {
                Some((template, below(&entry.leaves, name, local).and_then(leaf)?))
            });
            for (template, text) in leaves.chain(name.map(|name| (&object.name, name))) {
                if let (Some(key), Some(value)) = (&template.placeholder, template.value(&text)) {
                    values.insert(key.clone(), value.to_owned());
                }
            }
        }
        let line = self
            .underived(kind, values)
            .into_iter()
            .fold(kind.to_owned(), |line, (key, value)| {
                // No valid value contains a space. Replace it, so that it cannot form another key.
                format!("{line} {key}={}", value.replace(char::is_whitespace, "?"))
            });
        files::parse_rule(&line).ok()
    }

    /// Returns whether the group consists of exactly the objects that the map produces for the rule.
    fn is_whole(&self, rule: &Rule, group: &[(&Object, Entry)]) -> bool {
        let Ok(desired) = self.entries(rule) else {
            return false;
        };
        let objects = self
            .objects
            .iter()
            .filter(|object| group.iter().any(|(own, _)| own.kind == object.kind));
        let mut pairs = objects.zip(&desired);
        desired.len() == group.len()
            && pairs.all(|(object, entry)| {
                group
                    .iter()
                    .any(|(own, actual)| *own == object && is_same(object, entry, actual))
            })
    }
}

/// Returns whether a device's entry has the keys and leaves of the desired one. Other leaves are ignored.
fn is_same(object: &Object, desired: &Entry, actual: &Entry) -> bool {
    let desired_keys = desired.path.elem.last().map(|last| &last.key);
    let actual_keys = actual.path.elem.last().map(|last| &last.key);
    desired_keys == actual_keys
        && object.leaves.keys().all(|name| {
            let desired = below(&desired.leaves, name, |name| name);
            let actual = below(&actual.leaves, name, local);
            desired.and_then(leaf) == actual.and_then(leaf)
        })
}

/// Builds the object of a rule from placeholder values. Leaves whose placeholder has no value are omitted.
fn entry(object: &Object, values: &Values) -> Result<Entry, String> {
    let name = object.name.fill(values).ok_or_else(|| {
        let placeholder = object.name.placeholder.as_deref().unwrap_or_default();
        format!("`{{{placeholder}}}` of `{}` has no value; add the interface of the port to `ports` of the path map", object.kind)
    })?;
    let mut path = object.path.clone();
    if let Some(last) = path.elem.last_mut() {
        *last = PathElem {
            name: last.name.clone(),
            key: [(object.key.clone(), name.clone())].into(),
        };
    }
    let mut leaves = Map::from_iter([(object.key.clone(), Json::String(name))]);
    for (leaf, (template, is_number)) in &object.leaves {
        let Some(text) = template.fill(values) else {
            continue;
        };
        let value = match text.parse::<u64>() {
            Ok(number) if *is_number => Json::from(number),
            Err(_) if *is_number => {
                return Err(format!(
                    "`{text}` for `{leaf}` is not a number; write it into `texts`"
                ));
            }
            _ => Json::String(text),
        };
        insert(&mut leaves, leaf, value);
    }
    Ok(Entry { path, leaves })
}

/// Returns the value at `path` in `leaves`: `config/mtu` is the leaf `mtu` in the container `config`. `named` maps each step
/// to the name used in `leaves`.
fn below<'l>(leaves: &'l Map<String, Json>, path: &str, named: fn(&str) -> &str) -> Option<&'l Json> {
    let mut steps = path.split('/');
    let first = leaves.get(named(steps.next()?))?;
    steps.try_fold(first, |place, step| child(place, named(step)))
}

/// Inserts a value at `path`, creating containers. A checked map has no leaf inside another leaf.
fn insert(leaves: &mut Map<String, Json>, path: &str, value: Json) {
    match path.split_once('/') {
        None => _ = leaves.insert(path.to_owned(), value),
        Some((container, rest)) => {
            let below = leaves
                .entry(container)
                .or_insert_with(|| Json::Object(Map::new()));
            if let Json::Object(below) = below {
                insert(below, rest, value);
            }
        }
    }
}

/// Returns the entries of an object's list, which is either a list with key leaves, or a table (JSON object) by name.
fn entries_of(object: &Object, tree: &Tree) -> Vec<Entry> {
    let named: Vec<(String, &Json)> = match tree.at(&object.path) {
        Some(Json::Array(list)) => list
            .iter()
            .filter_map(|entry| Some((child(entry, local(&object.key)).and_then(leaf)?, entry)))
            .collect(),
        Some(Json::Object(table)) => table.iter().map(|(name, entry)| (name.clone(), entry)).collect(),
        _ => Vec::new(),
    };
    let entries = named.into_iter().filter_map(|(name, entry)| {
        let leaves = entry.as_object()?.clone();
        let mut path = object.path.clone();
        if let Some(last) = path.elem.last_mut() {
            last.key = [(object.key.clone(), name)].into();
        }
        Some(Entry { path, leaves })
    });
    entries.collect()
}
