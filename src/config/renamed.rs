//! Names that changed before the first release: the reader, the API and the command line refuse an old one and name the new.
//!
//! An entry stays until files with the old name are out of use.

use toml::de::DeValue;

use settings::read::{Node, Reader};

/// Keys of the configuration file: the path of the old key, and its new name. A name without a dot stays in its table; one
/// with dots is a path from the top of the file. `*` stands for a name that the user chooses and for an element of a list.
const KEYS: &[(&str, &str)] = &[
    ("collector.rights", "capabilities"),
    ("collector.postcards.cards", "max_pending"),
    ("collector.postcards.confirmations_after_loss", "confirmations"),
    ("translator.forward", "aggregator.forward"),
    ("translator.kind", "aggregator.kind"),
    ("translator.r", "aggregator.r"),
    ("translator.timer", "aggregator.timer"),
    ("translator.registers", "aggregator.registers"),
    ("translator.ways", "aggregator.ways"),
    ("translator.aggregator", "aggregator.aggregator"),
    ("translator.spread", "aggregator.spread"),
    ("translator.interop", "aggregator.interop"),
    ("translator.profile", "aggregator.profile"),
];

/// Tables of the configuration file: the path of the old one, and of the new one.
const TABLES: &[(&str, &str)] = &[("translator.dta", "translator")];

/// Values of the configuration file: the path of the key, its old value and its new one.
const VALUES: &[(&str, &str, &str)] = &[
    ("collector.memory.mode", "card", "verbs"),
    ("translator.mode", "card", "verbs"),
];

/// Query parameters of the API: old and new.
const PARAMETERS: &[(&str, &str)] = &[];

/// Subcommands, options and names of benchmarks: old and new, as they are typed.
const ARGUMENTS: &[(&str, &str)] = &[
    ("mend", "restore"),
    ("stage-agg25", "aggregator-agg25"),
    ("stage-agg-nf-100k", "aggregator-agg-nf-100k"),
    ("stage-cor-nf-100k", "aggregator-cor-nf-100k"),
    ("rung-xdp-native", "rx-xdp-native"),
    ("rung-xdp-generic", "rx-xdp-generic"),
    ("rung-packet", "rx-packet"),
    ("rung-udp", "rx-udp"),
    ("xdp-detect-1k-told", "xdp-detect-1k-event"),
];

/// Refuses every old key and value of the file, each with its position.
pub(crate) fn refuse(root: &Node<'_>, reader: &mut Reader<'_>) {
    for (path, new) in KEYS {
        let (parent, old) = path
            .rsplit_once('.')
            .map_or(("", *path), |(parent, old)| (parent, old));
        for table in matching(root, parent) {
            let DeValue::Table(table) = table.get_ref() else {
                continue;
            };
            if let Some((key, _)) = table.get_key_value(old) {
                reader.renamed(key.span(), moved(parent, old, new));
            }
        }
    }
    for (path, new) in TABLES {
        let (parent, old) = path.rsplit_once('.').unwrap_or(("", path));
        for table in matching(root, parent) {
            let DeValue::Table(table) = table.get_ref() else {
                continue;
            };
            if let Some((key, _)) = table.get_key_value(old) {
                reader.renamed(key.span(), format!("`[{path}]` is now `[{new}]`"));
            }
        }
    }
    for (path, old, new) in VALUES {
        let key = path.trim_end_matches(".*").rsplit('.').next().unwrap_or(path);
        for value in matching(root, path) {
            if value.get_ref().as_str() == Some(old) {
                reader.renamed(
                    value.span(),
                    format!("`{key} = \"{old}\"` is now `{key} = \"{new}\"`"),
                );
            }
        }
    }
}

/// The sentence about an old key of the table `parent`.
fn moved(parent: &str, old: &str, new: &str) -> String {
    match new.rsplit_once('.') {
        Some((table, key)) if table != parent => {
            let from = if parent.is_empty() {
                String::new()
            } else {
                format!(" in [{parent}]")
            };
            format!("`{old}`{from} is now `{key}` in [{table}]")
        }
        _ => format!("`{old}` is now `{new}`"),
    }
}

/// The values under `path`, where `*` matches every key and every element.
fn matching<'a, 'i>(root: &'a Node<'i>, path: &str) -> Vec<&'a Node<'i>> {
    let mut found = vec![root];
    for step in path.split('.').filter(|step| !step.is_empty()) {
        let mut next = Vec::new();
        for node in found {
            match node.get_ref() {
                DeValue::Table(table) if step == "*" => next.extend(table.values()),
                DeValue::Table(table) => next.extend(table.get(step)),
                DeValue::Array(list) if step == "*" => next.extend(list.iter()),
                _ => {}
            }
        }
        found = next;
    }
    found
}

/// The new name of a query parameter.
pub(crate) fn parameter(old: &str) -> Option<&'static str> {
    lookup(PARAMETERS, old)
}

/// The new name of a subcommand or option.
pub(crate) fn argument(old: &str) -> Option<&'static str> {
    lookup(ARGUMENTS, old)
}

fn lookup(names: &[(&'static str, &'static str)], old: &str) -> Option<&'static str> {
    names.iter().find(|(name, _)| *name == old).map(|(_, new)| *new)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Settings;
    use settings::setting::Setting;

    /// Every key of the file as a path, with `*` for names that the user chooses and for elements of lists.
    fn keys() -> Vec<String> {
        let mut chapters = Vec::new();
        Settings::explain("", &mut chapters);
        let path = |heading: &str| {
            let table = heading.trim_start_matches('[').trim_end_matches(']');
            let steps = table.split('.').map(|step| match step {
                "NAME" | "ID" | "CODE" => "*".to_owned(),
                step => step.to_owned(),
            });
            let table = steps.collect::<Vec<_>>().join(".").replace("[]", ".*");
            if heading.starts_with("[[") {
                format!("{table}.*")
            } else {
                table
            }
        };
        let of = |chapter: &settings::setting::Chapter| {
            let table = path(&chapter.heading);
            let dot = if table.is_empty() { "" } else { "." };
            chapter
                .keys
                .iter()
                .map(|key| format!("{table}{dot}{}", key.name))
                .collect::<Vec<_>>()
        };
        chapters.iter().flat_map(of).collect()
    }

    /// A file with `value` under `path`.
    fn file(path: &str, value: &str) -> String {
        path.split('.')
            .rev()
            .fold(value.to_owned(), |inner, step| match step {
                "*" => format!("[{inner}]"),
                step => format!("{{ {step} = {inner} }}"),
            })
    }

    /// The message about `value` under `path`, where every `*` is an element of a list.
    fn message(path: &str, value: &str) -> String {
        let (first, rest) = path.split_once('.').unwrap_or((path, ""));
        let inner = if rest.is_empty() {
            value.to_owned()
        } else {
            file(rest, value)
        };
        Settings::parse(&format!("{first} = {inner}\n"), "h.toml")
            .map_or_else(|e| e.to_string(), |_| String::new())
    }

    #[test]
    fn every_old_key_is_refused_with_the_new_name_which_exists() {
        let keys = keys();
        for (path, new) in KEYS {
            let (parent, old) = path.rsplit_once('.').unwrap_or(("", path));
            assert!(!keys.contains(&(*path).to_owned()), "{path} still exists");
            let target = if new.contains('.') || parent.is_empty() {
                (*new).to_owned()
            } else {
                format!("{parent}.{new}")
            };
            assert!(keys.contains(&target), "{target} does not exist");
            let error = message(path, "1");
            assert!(error.contains(&moved(parent, old, new)), "{path}: {error}");
            assert!(!error.contains("there is no key"), "{path}: {error}");
        }
    }

    #[test]
    fn every_old_table_is_refused_with_the_new_name_which_exists() {
        let keys = keys();
        for (path, new) in TABLES {
            assert!(
                !keys.iter().any(|key| key.starts_with(&format!("{path}."))),
                "{path} still exists"
            );
            assert!(
                keys.iter().any(|key| key.starts_with(&format!("{new}."))),
                "{new} does not exist"
            );
            let error = message(path, "{}");
            assert!(
                error.contains(&format!("`[{path}]` is now `[{new}]`")),
                "{path}: {error}"
            );
            assert!(!error.contains("there is no key"), "{path}: {error}");
        }
    }

    #[test]
    fn every_old_value_is_refused_with_the_new_one() {
        let keys = keys();
        for (path, old, new) in VALUES {
            assert!(
                keys.contains(&path.trim_end_matches(".*").to_owned()),
                "{path} does not exist"
            );
            let error = message(path, &format!("\"{old}\""));
            let expected = format!("= \"{old}\"` is now `");
            assert!(
                error.contains(&expected) && error.contains(&format!("= \"{new}\"`")),
                "{path}: {error}"
            );
            assert!(
                !error.contains("found the text"),
                "one message for one fault: {error}"
            );
            let accepted = message(path, &format!("\"{new}\""));
            assert!(
                !accepted.contains("found the text"),
                "{path} = {new} is refused: {accepted}"
            );
        }
    }

    #[test]
    fn a_key_that_moved_to_another_table_names_both_tables() {
        assert_eq!(moved("collector", "old", "new"), "`old` is now `new`");
        assert_eq!(
            moved("translator", "timer", "aggregator.timer"),
            "`timer` in [translator] is now `timer` in [aggregator]"
        );
    }
}
