//! Renders objects of a path map in the schema of SONiC's CONFIG_DB, for devices that use its JSON files instead of gNMI.
//!
//! The table of an object is the container of its list (`TAM_PORT` of `…/TAM_PORT/TAM_PORT_LIST`), or the list itself if there
//! is none. All values are strings, as in CONFIG_DB.

use std::collections::BTreeMap;

use manager::device::Rules;
use serde_json::{Value as Json, json};

use crate::map::PathMap;
use crate::objects::Entry;
use crate::tree::local;

/// Tables, each with its objects by key, each with its fields.
type Tables = BTreeMap<String, BTreeMap<String, BTreeMap<String, String>>>;

impl PathMap {
    /// Renders all objects of `rules` for `config load`.
    ///
    /// # Errors
    /// A sentence with a fix if the map or CONFIG_DB cannot express a rule.
    pub fn config_db(&self, rules: &Rules) -> Result<Json, String> {
        Ok(json!(self.tables(rules)?))
    }

    /// Renders the changes from `before` to `after` as a JSON Patch (RFC 6902) for `config apply-patch`. Tables must exist.
    ///
    /// # Errors
    /// A sentence with a fix if the map or CONFIG_DB cannot express a rule.
    pub fn config_db_patch(&self, before: &Rules, after: &Rules) -> Result<Json, String> {
        let before = self.tables(before)?;
        let after = self.tables(after)?;
        let mut patch = Vec::new();
        for (table, objects) in before.iter().rev() {
            for key in objects.keys().rev() {
                if object(&after, table, key).is_none() {
                    patch.push(json!({"op": "remove", "path": pointer(table, key)}));
                }
            }
        }
        for (table, objects) in &after {
            for (key, fields) in objects {
                if object(&before, table, key) != Some(fields) {
                    patch.push(json!({"op": "add", "path": pointer(table, key), "value": fields}));
                }
            }
        }
        Ok(Json::Array(patch))
    }

    fn tables(&self, rules: &Rules) -> Result<Tables, String> {
        let mut tables = Tables::new();
        for rule in rules {
            for entry in self.entries(rule)? {
                let (table, key) = table_and_key(&entry)?;
                let leaves = entry.leaves.iter().filter(|(name, _)| !is_key(&entry, name));
                tables.entry(table).or_default().insert(key, fields(leaves)?);
            }
        }
        Ok(tables)
    }
}

fn object<'t>(tables: &'t Tables, table: &str, key: &str) -> Option<&'t BTreeMap<String, String>> {
    tables.get(table)?.get(key)
}

/// Returns an object's table, and its key in that table.
fn table_and_key(entry: &Entry) -> Result<(String, String), String> {
    let [before @ .., list] = entry.path.elem.as_slice() else {
        return Err("an object has no path; correct `path` in the map".to_owned());
    };
    // In SONiC's YANG models, the container of a `…_LIST` has the name of the table.
    let named = match before.last() {
        Some(container) if list.name.ends_with("_LIST") => container,
        _ => list,
    };
    let table = local(&named.name).to_owned();
    let mut keys = list.key.values();
    match (keys.next(), keys.next()) {
        (Some(key), None) => Ok((table, key.clone())),
        _ => Err(format!(
            "an object of {table} has several keys, which CONFIG_DB joins by `|`; correct the map"
        )),
    }
}

/// Returns whether a leaf is a key of the list. CONFIG_DB has it as the object's key, not as a field.
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
    let fields = leaves.map(|(name, value)| match value {
        Json::String(text) => Ok((name.clone(), text.clone())),
        Json::Number(number) => Ok((name.clone(), number.to_string())),
        Json::Bool(value) => Ok((name.clone(), value.to_string())),
        _ => Err(format!(
            "CONFIG_DB has no containers in an object: `{name}`; correct the map"
        )),
    });
    fields.collect()
}

/// Returns the JSON Pointer (RFC 6901) of an object.
fn pointer(table: &str, key: &str) -> String {
    format!("/{}/{}", escaped(table), escaped(key))
}

fn escaped(name: &str) -> String {
    name.replace('~', "~0").replace('/', "~1")
}
