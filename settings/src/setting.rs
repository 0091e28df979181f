//! The trait [`Setting`] for values in the configuration file, and the macros that declare tables and choices.
//!
//! `section!` declares a table of the file once; reading, defaults, unknown keys, the dump, reload and the reference page
//! follow from that declaration.

use std::collections::BTreeMap;

use super::read::{Node, Reader, Table, Value};

/// A value that a configuration file can hold.
pub trait Setting: Sized + Clone + PartialEq {
    /// Description of valid values, for the reference and for error messages: "a whole number", "a duration such as \"10s\"".
    const KIND: &'static str;

    /// True if it is or can contain a secret. Messages do not quote a value that cannot be read as such a setting.
    const IS_SECRET: bool = false;

    /// Reads the value. Records problems in `reader` and then returns `None`.
    fn read(node: &Node<'_>, reader: &mut Reader<'_>) -> Option<Self>;

    /// Returns the value for the dump, with secrets hidden.
    fn show(&self) -> Shown;

    /// For a reload: restores settings that cannot change at run time to `old`, and adds their names to `kept`.
    fn keep_fixed(&mut self, old: &Self, live: bool, path: &str, kept: &mut Vec<String>) {
        if !live && self != old {
            kept.push(path.to_owned());
            *self = old.clone();
        }
    }

    /// Adds the chapters of the reference page for this value; only tables have any.
    fn explain(_path: &str, _chapters: &mut Vec<Chapter>) {}
}

/// A value for output as TOML or JSON, in declaration order.
#[derive(Clone, Debug, PartialEq)]
pub enum Shown {
    /// A value that is not set.
    Nothing,
    /// A text, a number or a boolean.
    Plain(serde_json::Value),
    /// A list of plain values or of tables.
    List(Vec<Shown>),
    /// A table, in the order of its declaration.
    Table(Vec<(String, Shown)>),
}

/// A table of the file, with its description.
#[derive(Clone, Debug)]
pub struct Chapter {
    /// The heading in the file: `[api]`, `[profiles.NAME]`, `[[rules]]`.
    pub heading: String,
    /// Description of the table.
    pub text: String,
    /// The keys of the table.
    pub keys: Vec<Key>,
}

/// A key of a table, with its description.
#[derive(Clone, Debug)]
pub struct Key {
    /// The name in the file.
    pub name: &'static str,
    /// Description of valid values.
    pub kind: &'static str,
    /// The value of a file that does not set it.
    pub default: Shown,
    /// True if it can change while the program runs.
    pub live: bool,
    /// True for a secret, or a table or list that can hold one.
    pub is_secret: bool,
    /// Description of the key.
    pub text: String,
}

/// Records that `node` is not a valid `T`; `what` describes valid values.
pub fn refuse<T: Setting>(node: &Node<'_>, reader: &mut Reader<'_>, what: &str) -> Option<T> {
    if T::IS_SECRET {
        reader.expected_secret(node, what);
    } else {
        reader.expected(node, what);
    }
    None
}

/// Returns the tables that a file with a `T` may have.
pub fn tables<T: Setting>() -> Vec<Table> {
    let mut chapters = Vec::new();
    T::explain("", &mut chapters);
    chapters
        .into_iter()
        .map(|chapter| Table {
            heading: chapter.heading,
            keys: chapter.keys.iter().map(|key| key.name).collect(),
        })
        .collect()
}

/// Joins the lines of a doc comment.
pub fn paragraph(lines: &[&str]) -> String {
    lines
        .iter()
        .map(|line| line.strip_prefix(' ').unwrap_or(line))
        .collect::<Vec<_>>()
        .join("\n")
}

/// Formats the heading of a table at `path`.
pub fn heading(path: &str) -> String {
    match path.strip_suffix("[]") {
        Some(list) => format!("[[{list}]]"),
        None => format!("[{path}]"),
    }
}

/// Joins a path: `parent.name`, or `name` at the top.
pub fn join(parent: &str, name: &str) -> String {
    if parent.is_empty() {
        name.to_owned()
    } else {
        format!("{parent}.{name}")
    }
}

/// Declares a table: a struct with a default and a description per key. A key marked `[live]` can change while the program
/// runs.
#[macro_export]
macro_rules! section {
    ($(#[doc = $doc:literal])+ $vis:vis struct $name:ident($place:literal) {
        $($(#[doc = $text:literal])+ $([$live:ident])? pub $(($scope:tt))? $field:ident: $type:ty = $default:expr),* $(,)?
    }) => {
        $(#[doc = $doc])+
        #[derive(Clone, Debug, PartialEq)]
        $vis struct $name {
            $($(#[doc = $text])+ pub $(($scope))? $field: $type),*
        }

        impl Default for $name {
            fn default() -> Self {
                Self { $($field: $default),* }
            }
        }

        impl $crate::setting::Setting for $name {
            const KIND: &'static str = concat!("the table ", $place);

            const IS_SECRET: bool = false $(|| <$type as $crate::setting::Setting>::IS_SECRET)*;

            fn read(
                node: &$crate::read::Node<'_>,
                reader: &mut $crate::read::Reader<'_>,
            ) -> Option<Self> {
                let $crate::read::Value::Table(table) = node.get_ref() else {
                    return $crate::setting::refuse::<Self>(node, reader, Self::KIND);
                };
                let names = [$(stringify!($field).trim_start_matches("r#")),*];
                let mut section = Self::default();
                for (key, value) in table {
                    let name: &str = key.get_ref();
                    let mut index = 0;
                    $(
                        if name == names[index] {
                            if let Some(read) = $crate::setting::Setting::read(value, reader) {
                                section.$field = read;
                            }
                            continue;
                        }
                        index += 1;
                    )*
                    let _ = index;
                    reader.unknown(key.span(), name, value, $place, &names);
                }
                Some(section)
            }

            fn show(&self) -> $crate::setting::Shown {
                $crate::setting::Shown::Table(vec![$((
                    stringify!($field).trim_start_matches("r#").to_owned(),
                    $crate::setting::Setting::show(&self.$field),
                )),*])
            }

            fn keep_fixed(&mut self, old: &Self, live: bool, path: &str, kept: &mut Vec<String>) {
                $(
                    let name = stringify!($field).trim_start_matches("r#");
                    let live_here = live || $crate::setting::is_live(&[$(stringify!($live))?]);
                    let path_here = $crate::setting::join(path, name);
                    $crate::setting::Setting::keep_fixed(
                        &mut self.$field, &old.$field, live_here, &path_here, kept,
                    );
                )*
            }

            fn explain(path: &str, chapters: &mut Vec<$crate::setting::Chapter>) {
                let defaults = Self::default();
                chapters.push($crate::setting::Chapter {
                    heading: $crate::setting::heading(path),
                    text: $crate::setting::paragraph(&[$($doc),+]),
                    keys: vec![$($crate::setting::Key {
                        name: stringify!($field).trim_start_matches("r#"),
                        kind: <$type as $crate::setting::Setting>::KIND,
                        default: $crate::setting::Setting::show(&defaults.$field),
                        live: $crate::setting::is_live(&[$(stringify!($live))?]),
                        is_secret: <$type as $crate::setting::Setting>::IS_SECRET,
                        text: $crate::setting::paragraph(&[$($text),+]),
                    }),*],
                });
                $(<$type as $crate::setting::Setting>::explain(
                    &$crate::setting::join(path, stringify!($field).trim_start_matches("r#")),
                    chapters,
                );)*
            }
        }
    };
}

/// Implements [`Setting`](crate::setting::Setting) for enums by their names, using `name` and `from_name`.
#[macro_export]
macro_rules! named_setting {
    ($($type:ty = $kind:literal;)+) => {
        $(impl $crate::setting::Setting for $type {
            const KIND: &'static str = $kind;

            fn read(
                node: &$crate::read::Node<'_>,
                reader: &mut $crate::read::Reader<'_>,
            ) -> Option<Self> {
                let read = node.get_ref().as_str().and_then(Self::from_name);
                read.or_else(|| $crate::setting::refuse::<Self>(node, reader, Self::KIND))
            }

            fn show(&self) -> $crate::setting::Shown {
                $crate::setting::Shown::Plain(self.name().into())
            }
        })+
    };
}

/// Declares a choice between words.
#[macro_export]
macro_rules! choice {
    ($(#[doc = $doc:literal])+ $(#[derive($($derived:ident),+)])? $vis:vis enum $name:ident($kind:literal) {
        $($(#[$about:meta])+ $variant:ident = $word:literal),+ $(,)?
    }) => {
        $(#[doc = $doc])+
        #[derive(Clone, Copy, Debug, PartialEq, Eq $(, $($derived),+)?)]
        $vis enum $name {
            $($(#[$about])+ $variant),+
        }

        impl $name {
            /// All choices, in the order of their declaration.
            #[allow(dead_code, reason = "only some lists are needed")]
            $vis const ALL: [Self; [$($word),+].len()] = [$(Self::$variant),+];

            /// Returns the name in the file.
            $vis fn name(self) -> &'static str {
                match self { $(Self::$variant => $word),+ }
            }

            /// Returns the choice with this name.
            $vis fn from_name(name: &str) -> Option<Self> {
                match name { $($word => Some(Self::$variant),)+ _ => None }
            }
        }

        $crate::named_setting! { $name = $kind; }
    };
}

impl<T: Setting> Setting for Option<T> {
    const KIND: &'static str = T::KIND;

    const IS_SECRET: bool = T::IS_SECRET;

    fn read(node: &Node<'_>, reader: &mut Reader<'_>) -> Option<Self> {
        T::read(node, reader).map(Some)
    }

    fn show(&self) -> Shown {
        self.as_ref().map_or(Shown::Nothing, Setting::show)
    }

    fn keep_fixed(&mut self, old: &Self, live: bool, path: &str, kept: &mut Vec<String>) {
        if let (Some(new), Some(old)) = (self.as_mut(), old) {
            return new.keep_fixed(old, live, path, kept);
        }
        if !live && self != old {
            kept.push(path.to_owned());
            self.clone_from(old);
        }
    }

    fn explain(path: &str, chapters: &mut Vec<Chapter>) {
        T::explain(path, chapters);
    }
}

impl<T: Setting> Setting for Vec<T> {
    const KIND: &'static str = "a list";

    const IS_SECRET: bool = T::IS_SECRET;

    fn read(node: &Node<'_>, reader: &mut Reader<'_>) -> Option<Self> {
        let Value::Array(list) = node.get_ref() else {
            return refuse::<Self>(node, reader, &format!("a list, each element {}", T::KIND));
        };
        let read: Vec<T> = list
            .iter()
            .filter_map(|element| T::read(element, reader))
            .collect();
        (read.len() == list.len()).then_some(read)
    }

    fn show(&self) -> Shown {
        Shown::List(self.iter().map(Setting::show).collect())
    }

    fn explain(path: &str, chapters: &mut Vec<Chapter>) {
        T::explain(&format!("{path}[]"), chapters);
    }
}

/// A key of a table whose keys the user chooses.
pub trait Name: Sized + Clone + Ord + ToString {
    /// The placeholder for the name in the reference.
    const PLACEHOLDER: &'static str;
    /// Parses it; the error describes valid values.
    fn parse(text: &str) -> Result<Self, &'static str>;
}

impl Name for String {
    const PLACEHOLDER: &'static str = "NAME";

    fn parse(text: &str) -> Result<Self, &'static str> {
        Ok(text.to_owned())
    }
}

impl Name for u32 {
    const PLACEHOLDER: &'static str = "ID";

    fn parse(text: &str) -> Result<Self, &'static str> {
        text.parse().map_err(|_| "a node id, a whole number such as 101")
    }
}

impl Name for u8 {
    const PLACEHOLDER: &'static str = "CODE";

    fn parse(text: &str) -> Result<Self, &'static str> {
        text.parse().map_err(|_| "a code from 0 to 255")
    }
}

impl<K: Name, T: Setting> Setting for BTreeMap<K, T> {
    const KIND: &'static str = "a table";

    const IS_SECRET: bool = T::IS_SECRET;

    fn read(node: &Node<'_>, reader: &mut Reader<'_>) -> Option<Self> {
        let Value::Table(table) = node.get_ref() else {
            return refuse::<Self>(node, reader, "a table");
        };
        let mut map = Self::new();
        for (key, value) in table {
            match K::parse(key.get_ref()) {
                Ok(name) => {
                    if let Some(read) = T::read(value, reader) {
                        map.insert(name, read);
                    }
                }
                Err(what) => {
                    reader.hide(value);
                    let message = format!("`{}` cannot be a key here; write {what}", key.get_ref());
                    reader.refuse(key.span(), message);
                }
            }
        }
        Some(map)
    }

    fn show(&self) -> Shown {
        Shown::Table(
            self.iter()
                .map(|(name, value)| (name.to_string(), value.show()))
                .collect(),
        )
    }

    fn explain(path: &str, chapters: &mut Vec<Chapter>) {
        T::explain(&format!("{path}.{}", K::PLACEHOLDER), chapters);
    }
}

/// Returns true if a key was declared with `[live]`. The macro passes one mark or none.
pub fn is_live(marks: &[&str]) -> bool {
    !marks.is_empty()
}
