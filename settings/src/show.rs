//! Output of settings: TOML for the dump, JSON for the API, and the Markdown reference page.

use std::fmt::Write;

use super::setting::{Chapter, Key, Shown};

impl Shown {
    /// Converts to JSON. Unset values are null.
    pub fn to_json(&self) -> serde_json::Value {
        match self {
            Self::Nothing => serde_json::Value::Null,
            Self::Plain(value) => value.clone(),
            Self::List(list) => list.iter().map(Self::to_json).collect(),
            Self::Table(entries) => entries
                .iter()
                .map(|(key, value)| (key.clone(), value.to_json()))
                .collect(),
        }
    }

    /// Converts to a TOML document, omitting empty tables and unset values.
    pub fn to_toml(&self) -> String {
        let mut out = String::new();
        if let Self::Table(entries) = self {
            write_table(&mut out, "", entries);
        }
        out.trim_start().to_owned()
    }

    fn is_table_list(&self) -> bool {
        matches!(self, Self::List(list) if matches!(list.first(), Some(Self::Table(_))))
    }

    /// Formats the value on one line, for the right side of `=`.
    fn inline(&self) -> String {
        match self {
            Self::Nothing => String::new(),
            Self::Plain(serde_json::Value::String(text)) => quoted(text),
            // JSON numbers and booleans are valid TOML.
            Self::Plain(value) => value.to_string(),
            Self::List(list) => format!(
                "[{}]",
                list.iter().map(Self::inline).collect::<Vec<_>>().join(", ")
            ),
            Self::Table(entries) => {
                let pairs: Vec<_> = entries
                    .iter()
                    .map(|(k, v)| format!("{} = {}", key(k), v.inline()))
                    .collect();
                format!("{{ {} }}", pairs.join(", "))
            }
        }
    }
}

/// Writes plain keys first, then nested tables, as TOML requires.
fn write_table(out: &mut String, path: &str, entries: &[(String, Shown)]) {
    for (name, value) in entries {
        if !matches!(value, Shown::Nothing | Shown::Table(_)) && !value.is_table_list() {
            let _ = writeln!(out, "{} = {}", key(name), value.inline());
        }
    }
    for (name, value) in entries {
        let below = if path.is_empty() {
            key(name)
        } else {
            format!("{path}.{}", key(name))
        };
        match value {
            Shown::Table(children) if !children.is_empty() => {
                let _ = writeln!(out, "\n[{below}]");
                write_table(out, &below, children);
            }
            Shown::List(list) if value.is_table_list() => {
                for element in list {
                    let _ = writeln!(out, "\n[[{below}]]");
                    if let Shown::Table(children) = element {
                        write_table(out, &below, children);
                    }
                }
            }
            _ => {}
        }
    }
}

/// Formats a key, quoted where it must be.
fn key(name: &str) -> String {
    let bare = !name.is_empty()
        && name
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-');
    if bare { name.to_owned() } else { quoted(name) }
}

/// Formats a TOML basic string. JSON's escapes are valid in TOML, but JSON does not escape U+007F, which TOML forbids.
pub fn quoted(text: &str) -> String {
    serde_json::Value::from(text)
        .to_string()
        .replace('\u{7f}', "\\u007f")
}

/// Renders a page that begins with `head`, in Markdown.
pub fn page(head: &str, chapters: &[Chapter]) -> String {
    let mut out = head.to_owned();
    for chapter in chapters {
        let _ = write!(out, "\n## `{}`\n\n{}\n", chapter.heading, chapter.text);
        for key in &chapter.keys {
            write_key(&mut out, key);
        }
    }
    out
}

fn write_key(out: &mut String, key: &Key) {
    let default = match &key.default {
        Shown::Nothing => "not set".to_owned(),
        Shown::Table(_) => return,
        Shown::List(list) if list.is_empty() => "none".to_owned(),
        value => format!("`{}`", value.inline()),
    };
    let live = if key.live {
        " Can change while running."
    } else {
        ""
    };
    let _ = write!(
        out,
        "\n**`{}`** – {}; default: {default}.{live}\n\n{}\n",
        key.name, key.kind, key.text
    );
}

#[cfg(test)]
mod tests {
    use toml::de::{DeTable, DeValue};

    use super::*;

    fn only_entry<'a>(table: &'a DeTable<'_>) -> Option<(&'a str, &'a DeValue<'a>)> {
        let (key, value) = table.iter().next()?;
        Some((key.get_ref(), value.get_ref()))
    }

    #[test]
    fn a_table_becomes_toml_with_plain_keys_first() {
        let shown = Shown::Table(vec![
            (
                "list".into(),
                Shown::List(vec![Shown::Plain(1.into()), Shown::Plain("a\"b".into())]),
            ),
            ("none".into(), Shown::Nothing),
            (
                "below".into(),
                Shown::Table(vec![("x y".into(), Shown::Plain(true.into()))]),
            ),
            (
                "rows".into(),
                Shown::List(vec![Shown::Table(vec![("n".into(), Shown::Plain(2.into()))])]),
            ),
        ]);
        let expected = "list = [1, \"a\\\"b\"]\n\n[below]\n\"x y\" = true\n\n[[rows]]\nn = 2\n";
        assert_eq!(shown.to_toml(), expected);
        let text = toml::de::DeTable::parse(expected);
        assert!(text.is_ok(), "{text:?}");
    }

    #[test]
    fn every_character_of_a_key_and_a_value_is_read_again() {
        let characters = (0..=0xff).chain([0x2028, 0xfeff, 0xffff, 0x1_f600]);
        for character in characters.filter_map(char::from_u32) {
            let text = format!("a{character}b");
            let plain = Shown::Plain(text.as_str().into());
            let shown = Shown::Table(vec![(
                text.clone(),
                Shown::List(vec![plain.clone(), Shown::Table(vec![(text.clone(), plain)])]),
            )]);
            let dump = shown.to_toml();
            let root = match DeTable::parse(&dump) {
                Ok(root) => root.into_inner(),
                Err(error) => panic!("{character:?}: {error}"),
            };
            let Some((key, DeValue::Array(list))) = only_entry(&root) else {
                panic!("{dump}");
            };
            let [DeValue::String(plain), DeValue::Table(table)] = [list[0].get_ref(), list[1].get_ref()]
            else {
                panic!("{dump}");
            };
            let Some((inner_key, DeValue::String(value))) = only_entry(table) else {
                panic!("{dump}");
            };
            assert_eq!([key, plain, inner_key, value], [text.as_str(); 4]);
        }
    }
}
