//! Parser for P4Info in the text format of Protocol Buffers (<https://protobuf.dev/reference/protobuf/textformat-spec/>), as
//! `p4c --p4runtime-files x.txtpb` writes it.

/// Maximum length of the text, bytes.
const MAX_BYTES: usize = 4 << 20;
/// Maximum nesting depth of messages.
const MAX_DEPTH: usize = 16;

/// A message: its fields in order, not typed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Message {
    pub(crate) fields: Vec<Field>,
}

/// A field of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Field {
    pub(crate) name: String,
    /// Line number where the field begins, from 1.
    pub(crate) line: usize,
    pub(crate) item: Item,
}

/// The value of a field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Item {
    /// A number or the name of an enumeration value.
    Word(String),
    /// A string without quotation marks; it need not be UTF-8.
    String(Vec<u8>),
    /// A message within the message.
    Message(Message),
}

impl Message {
    /// Parses a message from its text.
    ///
    /// # Errors
    /// A sentence with the line number if the text is invalid.
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

    /// Returns the nested messages of the fields with this name.
    pub fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a Self> {
        let fields = self.fields.iter().filter(move |field| field.name == name);
        fields.filter_map(|field| match &field.item {
            Item::Message(message) => Some(message),
            Item::Word(_) | Item::String(_) => None,
        })
    }

    /// Returns the first nested message with this name.
    pub fn first<'a>(&'a self, name: &'a str) -> Option<&'a Self> {
        self.all(name).next()
    }

    /// Returns the scalar value of the field with this name; empty if it is absent.
    pub fn text(&self, name: &str) -> &str {
        let mut fields = self.fields.iter().filter(|field| field.name == name);
        let found = fields.find_map(|field| match &field.item {
            Item::Word(word) => Some(word.as_str()),
            Item::String(bytes) => str::from_utf8(bytes).ok(),
            Item::Message(_) => None,
        });
        found.unwrap_or_default()
    }

    /// Returns the number in the field with this name; 0 if it is absent or not a number.
    pub fn number(&self, name: &str) -> u32 {
        self.text(name).parse().unwrap_or(0)
    }
}

/// The remaining text, and the current line number.
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

    /// Consumes and returns the next `bytes` bytes.
    fn advance(&mut self, bytes: usize) -> &'a str {
        let (text, rest) = self.rest.split_at(bytes);
        self.line += text.matches('\n').count();
        self.rest = rest;
        text
    }

    /// Skips white space and comments.
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

    /// Reads one or more adjacent strings, which are concatenated.
    fn quoted(&mut self) -> Result<Vec<u8>, String> {
        let mut bytes = Vec::new();
        while self.rest.starts_with('"') {
            self.advance(1);
            loop {
                match self.rest.chars().next() {
                    None => return self.wrong("a string does not end"),
                    Some('"') => break,
                    Some('\\') => {
                        self.advance(1);
                        let Some((byte, length)) = escaped(self.rest.as_bytes()) else {
                            return self.wrong("an escape in a string is not known");
                        };
                        bytes.push(byte);
                        self.advance(length);
                    }
                    Some(c) => bytes.extend(self.advance(c.len_utf8()).bytes()),
                }
            }
            self.advance(1);
            self.skip();
        }
        Ok(bytes)
    }

    /// Parses fields up to the end of the text or a closing brace, which is not consumed.
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
            let line = self.line;
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
                Some(b'"') => Item::String(self.quoted()?),
                _ if is_scalar => Item::Word(self.word()?),
                _ => return self.wrong("`:` or `{` is missing"),
            };
            message.fields.push(Field { name, line, item });
            self.skip();
            if self.rest.starts_with([',', ';']) {
                self.advance(1);
            }
        }
    }
}

/// Decodes an escape sequence after its backslash. Returns the byte, and the length of the sequence.
fn escaped(bytes: &[u8]) -> Option<(u8, usize)> {
    match *bytes.first()? {
        b'n' => Some((b'\n', 1)),
        b'r' => Some((b'\r', 1)),
        b't' => Some((b'\t', 1)),
        same @ (b'"' | b'\'' | b'\\') => Some((same, 1)),
        b'0'..=b'7' => {
            let digits = bytes.iter().take(3);
            let length = digits.take_while(|byte| (b'0'..=b'7').contains(*byte)).count();
            let digits = str::from_utf8(&bytes[..length]).ok()?;
            Some((u8::from_str_radix(digits, 8).ok()?, length))
        }
        b'x' => {
            let digits = str::from_utf8(bytes.get(1..3)?).ok()?;
            Some((u8::from_str_radix(digits, 16).ok()?, 3))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::binary::info;
    use crate::message::{
        MatchType, P4Action, P4ActionRef, P4Counter, P4Info, P4MatchField, P4Param, P4Table, Preamble, Scope,
    };

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
