//! Objects of a path map as SONiC's CONFIG_DB: for devices that are configured by its JSON instead of by gNMI.
//!
//! The table of an object is the container of its list (`TAM_PORT` of `…/TAM_PORT/TAM_PORT_LIST`), or the list itself. Values are texts, as
//! CONFIG_DB has them.

use std::collections::BTreeMap;

use manager::device::Rules;
use serde_json::{Value as Json, json};

use crate::map::PathMap;
use crate::message::PathElem;
use crate::objects::Entry;
use crate::tree::local;

/// Tables with their objects, by key, with their fields.
type Tables = BTreeMap<String, BTreeMap<String, BTreeMap<String, String>>>;

impl PathMap {
    /// All objects of rules, as `config load` reads them.
    ///
    /// # Errors
    /// The map, or CONFIG_DB, cannot express a rule; a sentence that says what to do.
    pub fn config_db(&self, rules: &Rules) -> Result<Json, String> {
        Ok(json!(self.tables(rules)?))
    }

    /// What leads from rules to others, as JSON Patch (RFC 6902), which `config apply-patch` reads. Objects are added to tables that exist.
    ///
    /// # Errors
    /// As [`PathMap::config_db`].
    pub fn config_db_patch(&self, before: &Rules, after: &Rules) -> Result<Json, String> {
        let (before, after) = (self.tables(before)?, self.tables(after)?);
        let of = |tables: &Tables, table: &str, key: &str| {
            tables.get(table).and_then(|objects| objects.get(key)).cloned()
        };
        let mut patch = Vec::new();
        let all = |tables: &Tables| -> Vec<(String, String)> {
            let keys = |(table, objects): (&String, &BTreeMap<String, _>)| {
                objects
                    .keys()
                    .map(|key| (table.clone(), key.clone()))
                    .collect::<Vec<_>>()
            };
            tables.iter().flat_map(keys).collect()
        };
        for (table, key) in all(&before).into_iter().rev() {
            if of(&after, &table, &key).is_none() {
                patch.push(json!({"op": "remove", "path": pointer(&table, &key)}));
            }
        }
        for (table, key) in all(&after) {
            let fields = of(&after, &table, &key);
            if fields != of(&before, &table, &key) {
                patch.push(json!({"op": "add", "path": pointer(&table, &key), "value": fields}));
            }
        }
        Ok(Json::Array(patch))
    }

    fn tables(&self, rules: &Rules) -> Result<Tables, String> {
        let mut tables = Tables::new();
        for rule in rules {
            for entry in self.entries(rule)? {
                let (table, key) = place(&entry)?;
                let leaves = entry.leaves.iter().filter(|(name, _)| !is_key(&entry, name));
                tables.entry(table).or_default().insert(key, fields(leaves)?);
            }
        }
        Ok(tables)
    }
}

fn place(entry: &Entry) -> Result<(String, String), String> {
    let [before @ .., list] = entry.path.elem.as_slice() else {
        return Err("an object has no path; correct `path` in the map".to_owned());
    };
    let name = |elem: &PathElem| local(&elem.name).to_owned();
    let table = before
        .last()
        .filter(|_| list.name.ends_with("_LIST"))
        .map_or_else(|| name(list), name);
    let mut keys = list.key.values();
    match (keys.next(), keys.next()) {
        (Some(key), None) => Ok((table, key.clone())),
        _ => Err(format!(
            "an object of {table} has several keys, which CONFIG_DB joins by `|`; correct the map"
        )),
    }
}

/// Whether a leaf is the key of the list, which is the key of the object here.
fn is_key(entry: &Entry, leaf: &str) -> bool {
    entry
        .path
        .elem
        .last()
        .is_some_and(|list| list.key.contains_key(leaf))
}

fn fields<'a>(
    leaves: impl Iterator<Item = (&'a String, &'a Json)>,
) -> Result<BTreeMap<String, String>, String> {
    let field = |(name, value): (&String, &Json)| match value {
        Json::String(text) => Ok((name.clone(), text.clone())),
        Json::Number(number) => Ok((name.clone(), number.to_string())),
        Json::Bool(is) => Ok((name.clone(), is.to_string())),
        _ => Err(format!(
            "CONFIG_DB has no containers in an object: `{name}`; correct the map"
        )),
    };
    leaves.map(field).collect()
}

/// A path of JSON Patch.
fn pointer(table: &str, key: &str) -> String {
    let escaped = |name: &str| name.replace('~', "~0").replace('/', "~1");
    format!("/{}/{}", escaped(table), escaped(key))
}
