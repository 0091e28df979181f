//! Collects values of gNMI notifications in one JSON tree, whether the device sends subtrees as JSON or single leaves.
//!
//! Names lose their module prefix (`openconfig-interfaces:interface` becomes `interface`), because its position varies.

use serde_json::{Map, Number, Value as Json};

use crate::message::{Notification, Path, PathElem, Value};

/// Maximum number of entries of a list.
const MAX_ENTRIES: usize = 8192;
/// Maximum number of steps of a path. Each step is a level of the tree, and the tree is dropped recursively.
const MAX_STEPS: usize = 64;

/// A JSON tree of values.
#[derive(Clone, Debug, PartialEq)]
pub struct Tree(Json);

impl Default for Tree {
    fn default() -> Self {
        Self(Json::Object(Map::new()))
    }
}

impl Tree {
    /// Merges the values of a notification into the tree.
    ///
    /// # Errors
    /// A sentence if a value is not JSON, or if a list or a path is too long.
    pub fn add(&mut self, notification: &Notification) -> Result<(), String> {
        let prefix = notification.prefix.iter().flat_map(|path| &path.elem);
        for update in &notification.update {
            let Some(value) = update.val.as_ref().and_then(|val| val.value.as_ref()) else {
                continue;
            };
            let json = json(value)?;
            let steps_of_prefix = notification.prefix.as_ref().map_or(0, |path| path.elem.len());
            let steps_of_path = update.path.as_ref().map_or(0, |path| path.elem.len());
            if steps_of_prefix + steps_of_path > MAX_STEPS {
                return Err(format!("the device sends a path of more than {MAX_STEPS} steps"));
            }
            let steps = prefix
                .clone()
                .chain(update.path.iter().flat_map(|path| &path.elem));
            let mut node = &mut self.0;
            for step in steps {
                node = descend(node, step)?;
            }
            merge(node, json)?;
        }
        Ok(())
    }

    /// Returns the value at a path, or `None` if there is none. Keys in the path are ignored.
    pub fn at(&self, path: &Path) -> Option<&Json> {
        path.elem
            .iter()
            .try_fold(&self.0, |node, step| child(node, local(&step.name)))
    }
}

/// Removes the module prefix from a name.
pub(crate) fn local(name: &str) -> &str {
    name.rsplit_once(':').map_or(name, |(_, name)| name)
}

/// Returns a member of an object, or `None` if `json` is not an object.
pub(crate) fn child<'a>(json: &'a Json, name: &str) -> Option<&'a Json> {
    json.as_object()?.get(name)
}

/// Renders a leaf as text, so that a number equals the string of that number. `None` for containers.
pub(crate) fn leaf(json: &Json) -> Option<String> {
    match json {
        Json::String(text) => Some(text.clone()),
        Json::Number(number) => Some(number.to_string()),
        Json::Bool(value) => Some(value.to_string()),
        _ => None,
    }
}

fn json(value: &Value) -> Result<Json, String> {
    Ok(match value {
        Value::StringVal(text) | Value::AsciiVal(text) => Json::String(text.clone()),
        Value::IntVal(number) => Json::from(*number),
        Value::UintVal(number) => Json::from(*number),
        Value::BoolVal(value) => Json::Bool(*value),
        Value::DoubleVal(number) => Number::from_f64(*number).map_or(Json::Null, Json::Number),
        Value::JsonVal(bytes) | Value::JsonIetfVal(bytes) => serde_json::from_slice(bytes)
            .map_err(|error| format!("the device sends what is not JSON: {error}"))?,
    })
}

/// Returns the child of `node` that a step names, creating it if needed.
fn descend<'a>(node: &'a mut Json, step: &PathElem) -> Result<&'a mut Json, String> {
    let below = object(node).entry(local(&step.name)).or_insert(Json::Null);
    if step.key.is_empty() {
        return Ok(below);
    }
    let list = array(below);
    // Leaves of an entry usually arrive together, so search from the end.
    let index = list.iter().rposition(|entry| has_keys(entry, step));
    let index = match index {
        Some(index) => index,
        None if list.len() < MAX_ENTRIES => {
            let keys = step
                .key
                .iter()
                .map(|(name, value)| (local(name).to_owned(), value.clone().into()));
            list.push(Json::Object(keys.collect()));
            list.len() - 1
        }
        None => return Err(too_many(&step.name)),
    };
    Ok(&mut list[index])
}

/// Returns whether a list entry has the keys of a step.
fn has_keys(entry: &Json, step: &PathElem) -> bool {
    step.key
        .iter()
        .all(|(name, value)| match child(entry, local(name)) {
            Some(Json::String(text)) => text == value,
            other => other.and_then(leaf).as_ref() == Some(value),
        })
}

fn too_many(name: &str) -> String {
    format!("the device has more than {MAX_ENTRIES} entries of `{name}`; this driver reads no more")
}

fn object(node: &mut Json) -> &mut Map<String, Json> {
    if !node.is_object() {
        *node = Json::Object(Map::new());
    }
    match node {
        Json::Object(map) => map,
        _ => unreachable!("made an object above"),
    }
}

fn array(node: &mut Json) -> &mut Vec<Json> {
    if !node.is_array() {
        *node = Json::Array(Vec::new());
    }
    match node {
        Json::Array(list) => list,
        _ => unreachable!("made a list above"),
    }
}

/// Merges a value into `node`: objects are merged, lists appended, leaves replaced.
fn merge(node: &mut Json, value: Json) -> Result<(), String> {
    match value {
        Json::Object(map) => {
            let own = object(node);
            for (name, value) in map {
                merge(own.entry(local(&name)).or_insert(Json::Null), value)?;
            }
        }
        Json::Array(list) => {
            let own = array(node);
            for entry in list {
                let mut made = Json::Null;
                merge(&mut made, entry)?;
                own.push(made);
            }
            if own.len() > MAX_ENTRIES {
                return Err(too_many("a list"));
            }
        }
        other => *node = other,
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{TypedValue, Update};
    use crate::path;
    use serde_json::json;

    fn update(path: &str, value: Value) -> Update {
        Update {
            path: path::parse(path).ok(),
            val: Some(TypedValue { value: Some(value) }),
        }
    }

    #[test]
    fn leaves_and_subtrees_give_the_same_tree() {
        let leaves = Notification {
            prefix: path::parse("/m:interfaces").ok(),
            update: vec![
                update("/interface[name=e1]/state/mtu", Value::UintVal(1514)),
                update("/interface[name=e2]/state/mtu", Value::UintVal(9000)),
                update(
                    "/interface[name=e1]/state/name",
                    Value::StringVal("e1".to_owned()),
                ),
            ],
            ..Notification::default()
        };
        let whole = json!({"m:interface": [
            {"name": "e1", "state": {"mtu": 1514, "name": "e1"}}, {"name": "e2", "m:state": {"mtu": 9000}}]});
        let whole = Notification {
            update: vec![update(
                "/interfaces",
                Value::JsonIetfVal(whole.to_string().into_bytes()),
            )],
            ..Notification::default()
        };
        let (mut one, mut other) = (Tree::default(), Tree::default());
        one.add(&leaves).unwrap();
        other.add(&whole).unwrap();
        assert_eq!(one, other);
        let interfaces = path::parse("/interfaces/interface").unwrap();
        assert_eq!(
            one.at(&interfaces).and_then(Json::as_array).map(Vec::len),
            Some(2)
        );
    }

    #[test]
    fn lists_without_an_end_are_refused() {
        let updates = (0..=MAX_ENTRIES).map(|n| update(&format!("/l[k={n}]/v"), Value::BoolVal(true)));
        let notification = Notification {
            update: updates.collect(),
            ..Notification::default()
        };
        assert!(
            Tree::default()
                .add(&notification)
                .unwrap_err()
                .contains("more than 8192 entries of `l`")
        );
        let broken = Notification {
            update: vec![update("/a", Value::JsonVal(vec![b'{']))],
            ..Notification::default()
        };
        assert!(
            Tree::default()
                .add(&broken)
                .unwrap_err()
                .starts_with("the device sends what is not JSON")
        );
    }
}
