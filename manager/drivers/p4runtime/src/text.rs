//! P4Info in the text form that compilers write (`.p4info.txtpb`).

use crate::message::{
    MatchType, P4Action, P4ActionRef, P4Counter, P4DirectCounter, P4Info, P4MatchField, P4Param, P4Table,
    Preamble, Scope,
};

/// Maximum length of the text, bytes.
const MAX_BYTES: usize = 4 << 20;
/// Upper limit of the depth of nested messages.
const MAX_DEPTH: usize = 16;

/// A message with its fields in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Message {
    fields: Vec<(String, Item)>,
}

/// The value of a field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Item {
    /// A number, a word, or a string without its quotation marks.
    Text(String),
    /// A message inside the message.
    Message(Message),
}

impl Message {
    /// Parses a text.
    ///
    /// # Errors
    /// A sentence with the line if it is no such text.
    pub fn read(text: &str) -> Result<Self, String> {
        if text.len() > MAX_BYTES {
            return Err(format!("it has more than {MAX_BYTES} bytes; give a P4Info file"));
        }
        let mut reader = Reader { rest: text, line: 1 };
        let message = reader.message(0)?;
        if reader.rest.is_empty() {
            Ok(message)
        } else {
            reader.wrong("a `}` too many")
        }
    }

    /// Returns the messages of this name.
    pub fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a Self> {
        self.fields
            .iter()
            .filter(move |(field, _)| field == name)
            .filter_map(|(_, item)| match item {
                Item::Message(message) => Some(message),
                Item::Text(_) => None,
            })
    }

    /// Returns the first message of this name.
    pub fn first<'a>(&'a self, name: &'a str) -> Option<&'a Self> {
        self.all(name).next()
    }

    /// Returns the value of this name; empty if it is absent.
    pub fn text(&self, name: &str) -> &str {
        let found = self.fields.iter().find_map(|(field, item)| match item {
            Item::Text(text) if field == name => Some(text.as_str()),
            _ => None,
        });
        found.unwrap_or_default()
    }

    /// Returns the number of this name; 0 if it is absent or not a number.
    pub fn number(&self, name: &str) -> u32 {
        self.text(name).parse().unwrap_or(0)
    }

    fn preamble(&self) -> Option<Preamble> {
        let preamble = self.first("preamble")?;
        Some(Preamble {
            id: preamble.number("id"),
            name: preamble.text("name").to_owned(),
            alias: preamble.text("alias").to_owned(),
        })
    }
}

struct Reader<'a> {
    rest: &'a str,
    line: usize,
}

impl<'a> Reader<'a> {
    fn wrong<T>(&self, what: &str) -> Result<T, String> {
        Err(format!(
            "line {}: {what}; not a valid P4Info text file",
            self.line
        ))
    }

    /// Returns the next bytes and skips them.
    fn advance(&mut self, bytes: usize) -> &'a str {
        let (text, rest) = self.rest.split_at(bytes);
        self.line += text.matches('\n').count();
        self.rest = rest;
        text
    }

    /// Skips blanks and comments.
    fn skip(&mut self) {
        loop {
            let blank = self.rest.len() - self.rest.trim_start().len();
            self.advance(blank);
            if !self.rest.starts_with('#') {
                return;
            }
            let end = self.rest.find('\n').unwrap_or(self.rest.len());
            self.advance(end);
        }
    }

    fn word(&mut self) -> Result<String, String> {
        let end = self
            .rest
            .find(|c: char| !c.is_ascii_alphanumeric() && !"_-+.[]".contains(c));
        match self.advance(end.unwrap_or(self.rest.len())) {
            "" => self.wrong("a name or a value is missing"),
            word => Ok(word.to_owned()),
        }
    }

    fn quoted(&mut self) -> Result<String, String> {
        self.advance(1);
        let mut escaped = false;
        let end = self.rest.find(|c| {
            let ends = c == '"' && !escaped;
            escaped = c == '\\' && !escaped;
            ends
        });
        let Some(end) = end else {
            return self.wrong("a string does not end");
        };
        let text = self
            .advance(end)
            .replace("\\\"", "\"")
            .replace("\\n", "\n")
            .replace("\\\\", "\\");
        self.advance(1);
        Ok(text)
    }

    fn message(&mut self, depth: usize) -> Result<Message, String> {
        if depth > MAX_DEPTH {
            return self.wrong("messages are nested too deeply");
        }
        let mut message = Message::default();
        loop {
            self.skip();
            if self.rest.is_empty() || self.rest.starts_with('}') {
                return Ok(message);
            }
            let name = self.word()?;
            self.skip();
            let is_scalar = self.rest.starts_with(':');
            if is_scalar {
                self.advance(1);
                self.skip();
            }
            let item = match self.rest.as_bytes().first() {
                Some(b'{') => {
                    self.advance(1);
                    let inner = self.message(depth + 1)?;
                    if self.rest.is_empty() {
                        return self.wrong("a `}` is missing");
                    }
                    self.advance(1);
                    Item::Message(inner)
                }
                Some(b'"') => Item::Text(self.quoted()?),
                _ if is_scalar => Item::Text(self.word()?),
                _ => return self.wrong("`:` or `{` is missing"),
            };
            message.fields.push((name, item));
        }
    }
}

/// Parses P4Info from text.
///
/// # Errors
/// As [`Message::read`], or a sentence if it has no table.
pub fn info(text: &str) -> Result<P4Info, String> {
    let root = Message::read(text)?;
    let info = P4Info {
        tables: root.all("tables").map(table).collect(),
        actions: root.all("actions").map(action).collect(),
        counters: root.all("counters").map(counters).collect(),
        direct_counters: root.all("direct_counters").map(counter).collect(),
    };
    if info.tables.is_empty() {
        Err("it has no table; give a P4Info file".to_owned())
    } else {
        Ok(info)
    }
}

fn table(table: &Message) -> P4Table {
    P4Table {
        preamble: table.preamble(),
        match_fields: table.all("match_fields").map(match_field).collect(),
        action_refs: table.all("action_refs").map(action_ref).collect(),
        size: table.number("size").into(),
    }
}

fn match_field(field: &Message) -> P4MatchField {
    let match_type = match field.text("match_type") {
        "EXACT" => MatchType::Exact,
        "LPM" => MatchType::Lpm,
        "TERNARY" => MatchType::Ternary,
        "RANGE" => MatchType::Range,
        "OPTIONAL" => MatchType::Optional,
        _ => MatchType::Unspecified,
    };
    P4MatchField {
        id: field.number("id"),
        name: field.text("name").to_owned(),
        bitwidth: field.number("bitwidth") as i32,
        match_type: match_type.into(),
    }
}

fn action_ref(reference: &Message) -> P4ActionRef {
    let scope = match reference.text("scope") {
        "TABLE_ONLY" => Scope::TableOnly,
        "DEFAULT_ONLY" => Scope::DefaultOnly,
        _ => Scope::TableAndDefault,
    };
    P4ActionRef {
        id: reference.number("id"),
        scope: scope.into(),
    }
}

fn action(action: &Message) -> P4Action {
    let params = action.all("params").map(|param| P4Param {
        id: param.number("id"),
        name: param.text("name").to_owned(),
        bitwidth: param.number("bitwidth") as i32,
    });
    P4Action {
        preamble: action.preamble(),
        params: params.collect(),
    }
}

fn counters(counters: &Message) -> P4Counter {
    P4Counter {
        preamble: counters.preamble(),
        size: counters.number("size").into(),
    }
}

fn counter(counter: &Message) -> P4DirectCounter {
    P4DirectCounter {
        preamble: counter.preamble(),
        direct_table_id: counter.number("direct_table_id"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = r#"# a comment
tables {
  preamble { id: 7 name: "In.t" alias: "t" annotations: "@x(\"y\")" }
  match_fields { id: 1 name: "port" bitwidth: 9 match_type: EXACT }
  action_refs { id: 9 scope: DEFAULT_ONLY }
  size: 512
}
counters { preamble { id: 5 name: "In.c" alias: "c" } spec { unit: PACKETS } size: 16 }
actions: { preamble { id: 9 name: "In.a" alias: "a" } params { id: 1 name: "to" bitwidth: 9 } }
"#;

    #[test]
    fn tables_and_actions_are_read() {
        let preamble = |id, name: &str, alias: &str| {
            Some(Preamble {
                id,
                name: name.to_owned(),
                alias: alias.to_owned(),
            })
        };
        let exact = MatchType::Exact.into();
        let field = P4MatchField {
            id: 1,
            name: "port".to_owned(),
            bitwidth: 9,
            match_type: exact,
        };
        let reference = P4ActionRef {
            id: 9,
            scope: Scope::DefaultOnly.into(),
        };
        let table = P4Table {
            preamble: preamble(7, "In.t", "t"),
            match_fields: vec![field],
            action_refs: vec![reference],
            size: 512,
        };
        let params = vec![P4Param {
            id: 1,
            name: "to".to_owned(),
            bitwidth: 9,
        }];
        let action = P4Action {
            preamble: preamble(9, "In.a", "a"),
            params,
        };
        let counters = vec![P4Counter {
            preamble: preamble(5, "In.c", "c"),
            size: 16,
        }];
        let direct_counters = Vec::new();
        let wanted = P4Info {
            tables: vec![table],
            actions: vec![action],
            counters,
            direct_counters,
        };
        assert_eq!(info(TEXT), Ok(wanted));
        let annotations = Message::read(TEXT).unwrap();
        let preamble = annotations
            .first("tables")
            .and_then(|table| table.first("preamble"))
            .unwrap();
        assert_eq!(preamble.text("annotations"), "@x(\"y\")");
    }

    #[test]
    fn other_texts_are_refused() {
        for (text, why) in [
            (
                "tables {",
                "line 1: a `}` is missing; not a valid P4Info text file",
            ),
            (
                "\ntables }",
                "line 2: `:` or `{` is missing; not a valid P4Info text file",
            ),
            ("a: 1 }", "line 1: a `}` too many; not a valid P4Info text file"),
            (
                "a: \"b",
                "line 1: a string does not end; not a valid P4Info text file",
            ),
            (
                "a: ?",
                "line 1: a name or a value is missing; not a valid P4Info text file",
            ),
            ("", "it has no table; give a P4Info file"),
        ] {
            assert_eq!(info(text), Err(why.to_owned()), "{text}");
        }
        let deep = "a {".repeat(20);
        assert_eq!(
            Message::read(&deep),
            Err("line 1: messages are nested too deeply; not a valid P4Info text file".to_owned())
        );
    }
}
