//! Helpers to build and change TOML configurations as nested tables of [`Shown`] values. A path is a list of keys.

use settings::setting::Shown;

/// Builds a key and its value.
pub(crate) fn entry(name: &str, value: Shown) -> (String, Shown) {
    (name.to_owned(), value)
}

pub(crate) fn plain(value: impl Into<serde_json::Value>) -> Shown {
    Shown::Plain(value.into())
}

pub(crate) fn table<const N: usize>(entries: [(&str, Shown); N]) -> Shown {
    Shown::Table(
        entries
            .into_iter()
            .map(|(key, value)| entry(key, value))
            .collect(),
    )
}

pub(crate) fn text(value: &Shown) -> Option<&str> {
    match value {
        Shown::Plain(value) => value.as_str(),
        _ => None,
    }
}

/// Sets a key of a table, replacing an earlier value.
pub(crate) fn set(entries: &mut Vec<(String, Shown)>, key: &str, value: Shown) {
    match entries.iter_mut().find(|(existing, _)| existing == key) {
        Some((_, existing)) => *existing = value,
        None => entries.push(entry(key, value)),
    }
}

/// Returns the value at `path`, or `None` if a key is missing.
pub(crate) fn get_at<'a>(table: &'a Shown, path: &[&str]) -> Option<&'a Shown> {
    path.iter().try_fold(table, |table, key| match table {
        Shown::Table(entries) => entries
            .iter()
            .find(|(existing, _)| existing == key)
            .map(|(_, value)| value),
        _ => None,
    })
}

/// Sets the value at `path`; creates missing tables.
pub(crate) fn set_at(table: &mut Shown, path: &[&str], value: Shown) {
    let (Shown::Table(entries), [key, rest @ ..]) = (table, path) else {
        return;
    };
    if rest.is_empty() {
        return set(entries, key, value);
    }
    if !entries.iter().any(|(existing, _)| existing == key) {
        entries.push(entry(key, Shown::Table(Vec::new())));
    }
    if let Some((_, inner)) = entries.iter_mut().find(|(existing, _)| existing == key) {
        set_at(inner, rest, value);
    }
}

/// Sets the value at `path` unless it is set.
pub(crate) fn default_at(table: &mut Shown, path: &[&str], value: Shown) {
    if get_at(table, path).is_none() {
        set_at(table, path, value);
    }
}
