//! gNMI paths as text: `/interfaces/interface[name=eth0]/state`, or with an origin before the slash (`openconfig:/…`).

use std::collections::BTreeMap;

use crate::message::{Path, PathElem};

/// Maximum number of steps in a path.
const MAX_STEPS: usize = 64;

/// Parses a path from its text.
///
/// # Errors
/// A sentence that describes the problem and shows a valid path.
pub fn parse(text: &str) -> Result<Path, String> {
    let (origin, mut rest) = text
        .split_once('/')
        .ok_or_else(|| not_a_path(text, "it has no `/`"))?;
    let origin = origin.strip_suffix(':').unwrap_or(origin);
    if !origin
        .chars()
        .all(|c| c.is_ascii_alphanumeric() || "-_".contains(c))
    {
        return Err(not_a_path(text, "it begins with neither `/` nor an origin"));
    }
    let mut elem = Vec::new();
    loop {
        let end = rest.find(['/', '[']).unwrap_or(rest.len());
        let (name, after) = rest.split_at(end);
        if name.is_empty() || name.contains(']') {
            return Err(not_a_path(text, "a step has no name"));
        }
        let (key, after) = keys(after).ok_or_else(|| not_a_path(text, "a key is not [name=value]"))?;
        elem.push(PathElem {
            name: name.to_owned(),
            key,
        });
        if elem.len() > MAX_STEPS {
            return Err(not_a_path(text, "it has too many steps"));
        }
        rest = match after.strip_prefix('/') {
            Some(next) => next,
            None if after.is_empty() => break,
            None => return Err(not_a_path(text, "something follows a key")),
        };
    }
    Ok(Path {
        origin: origin.to_owned(),
        elem,
        target: String::new(),
    })
}

fn not_a_path(text: &str, reason: &str) -> String {
    format!("`{text}` is not a path: {reason}; write \"/interfaces/interface[name=eth0]\" or the like")
}

/// Parses `[name=value]` keys at the start of `text`. Returns them and the rest of the text, or `None` if they are malformed.
/// A value ends at the next `]`.
fn keys(mut text: &str) -> Option<(BTreeMap<String, String>, &str)> {
    let mut keys = BTreeMap::new();
    while let Some(inner) = text.strip_prefix('[') {
        let (pair, after) = inner.split_once(']')?;
        let (name, value) = pair.split_once('=').filter(|(name, _)| !name.is_empty())?;
        keys.insert(name.to_owned(), value.to_owned());
        text = after;
    }
    Some((keys, text))
}

/// Renders a path as text, the inverse of [`parse`].
pub fn text(path: &Path) -> String {
    let mut text = if path.origin.is_empty() {
        String::new()
    } else {
        format!("{}:", path.origin)
    };
    for elem in &path.elem {
        text.push('/');
        text.push_str(&elem.name);
        for (name, value) in &elem.key {
            text.push_str(&format!("[{name}={value}]"));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_survive_text() {
        for path in [
            "/a",
            "openconfig:/interfaces/interface[name=eth0/1]/state",
            "/m:t/L[a=1][b=]",
        ] {
            assert_eq!(parse(path).map(|parsed| text(&parsed)), Ok(path.to_owned()));
        }
        let parsed = parse("o:/l[k=v]").unwrap();
        assert_eq!(parsed.origin, "o");
        assert_eq!(parsed.elem[0].key, [("k".to_owned(), "v".to_owned())].into());
    }

    #[test]
    fn what_is_no_path_is_refused() {
        for text in [
            "", "a", "/", "/a//b", "/a[k]", "/a[=v]", "/a[k=v", "/a[k=v]b", "a b/c", "/a]",
        ] {
            let message = parse(text).unwrap_err();
            assert!(
                message.starts_with(&format!("`{text}` is not a path: ")),
                "{message}"
            );
        }
        assert!(parse(&"/a".repeat(65)).is_err());
    }
}
