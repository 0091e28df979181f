//! A JSON writer that keeps the order of fields and appends to a reusable buffer.
//!
//! `decode --json` writes one object per report; building a tree of values would take longer than decoding the report.

use std::{borrow::Cow, fmt::Write as _};

use crate::clean::is_control;

/// Value that can be written as JSON.
pub trait Value {
    /// Appends the value in JSON syntax.
    fn write(&self, out: &mut String);
}

/// Escapes control and bidirectional characters in JSON text as `\\u…`: the same data for a parser, harmless on a terminal.
/// Line ends and tabs are kept. TOML can be passed too, since its strings have the same escapes; only comments would change.
pub fn escaped(json: &str) -> Cow<'_, str> {
    if !json.contains(is_unsafe) {
        return json.into();
    }
    let mut out = String::with_capacity(json.len() + 16);
    for char in json.chars() {
        if is_unsafe(char) {
            escape(char, &mut out);
        } else {
            out.push(char);
        }
    }
    out.into()
}

fn is_unsafe(char: char) -> bool {
    is_control(char) && !matches!(char, '\n' | '\r' | '\t')
}

/// Appends the escape of a character below U+10000, as all control and bidirectional characters are.
fn escape(char: char, out: &mut String) {
    // Writing into a String cannot fail.
    let _ = write!(out, "\\u{:04x}", u32::from(char));
}

/// Writer for the fields of an object under construction.
#[derive(Debug)]
pub struct Object<'a> {
    out: &'a mut String,
    is_first: bool,
}

/// Appends an object; `write_fields` writes its fields.
pub fn object(out: &mut String, write_fields: impl FnOnce(&mut Object<'_>)) {
    out.push('{');
    let mut object = Object { out, is_first: true };
    write_fields(&mut object);
    out.push('}');
}

impl Object<'_> {
    /// Writes a field with this value.
    pub fn field(&mut self, name: &str, value: impl Value) -> &mut Self {
        self.name(name);
        value.write(self.out);
        self
    }

    /// Writes a field if there is a value; otherwise nothing.
    pub fn present(&mut self, name: &str, value: Option<impl Value>) -> &mut Self {
        if let Some(value) = value {
            self.field(name, value);
        }
        self
    }

    /// Writes a field whose value is an object.
    pub fn object(&mut self, name: &str, write_fields: impl FnOnce(&mut Object<'_>)) -> &mut Self {
        self.name(name);
        object(self.out, write_fields);
        self
    }

    /// Writes a field whose value is an array of objects, one per item.
    pub fn objects<T>(
        &mut self,
        name: &str,
        items: impl IntoIterator<Item = T>,
        mut write_fields: impl FnMut(T, &mut Object<'_>),
    ) -> &mut Self {
        self.name(name);
        self.out.push('[');
        for (index, item) in items.into_iter().enumerate() {
            if index > 0 {
                self.out.push(',');
            }
            object(self.out, |inner| write_fields(item, inner));
        }
        self.out.push(']');
        self
    }

    fn name(&mut self, name: &str) {
        if !self.is_first {
            self.out.push(',');
        }
        self.is_first = false;
        name.write(self.out);
        self.out.push(':');
    }
}

macro_rules! integers {
    ($($kind:ty)*) => {
        $(impl Value for $kind {
            fn write(&self, out: &mut String) {
                // Writing into a String cannot fail.
                let _ = write!(out, "{self}");
            }
        })*
    };
}
integers!(u8 u16 u32 u64 usize i64);

impl Value for f64 {
    fn write(&self, out: &mut String) {
        if self.is_finite() {
            let _ = write!(out, "{self}");
        } else {
            out.push_str("null");
        }
    }
}

impl Value for bool {
    fn write(&self, out: &mut String) {
        out.push_str(if *self { "true" } else { "false" });
    }
}

impl Value for str {
    fn write(&self, out: &mut String) {
        out.push('"');
        for c in self.chars() {
            match c {
                '"' => out.push_str("\\\""),
                '\\' => out.push_str("\\\\"),
                '\n' => out.push_str("\\n"),
                '\r' => out.push_str("\\r"),
                '\t' => out.push_str("\\t"),
                c if is_control(c) => escape(c, out),
                c => out.push(c),
            }
        }
        out.push('"');
    }
}

impl Value for String {
    fn write(&self, out: &mut String) {
        self.as_str().write(out);
    }
}

impl<T: Value + ?Sized> Value for &T {
    fn write(&self, out: &mut String) {
        (**self).write(out);
    }
}

impl<T: Value> Value for Option<T> {
    fn write(&self, out: &mut String) {
        match self {
            Some(value) => value.write(out),
            None => out.push_str("null"),
        }
    }
}

impl<T: Value> Value for [T] {
    fn write(&self, out: &mut String) {
        out.push('[');
        for (index, item) in self.iter().enumerate() {
            if index > 0 {
                out.push(',');
            }
            item.write(out);
        }
        out.push(']');
    }
}

impl<T: Value> Value for Vec<T> {
    fn write(&self, out: &mut String) {
        self.as_slice().write(out);
    }
}

/// Value written as a JSON string in its `Display` form, such as an address or a flow.
#[derive(Debug)]
pub struct Text<T>(pub T);

impl<T: std::fmt::Display> Value for Text<T> {
    fn write(&self, out: &mut String) {
        out.push('"');
        let start = out.len();
        let _ = write!(out, "{}", self.0);
        if out[start..]
            .bytes()
            .any(|b| !matches!(b, b' '..=b'~') || matches!(b, b'"' | b'\\'))
        {
            let text = out.split_off(start);
            out.pop();
            text.write(out);
            return;
        }
        out.push('"');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_keeps_the_order_of_its_fields() {
        let mut out = String::new();
        object(&mut out, |o| {
            o.field("b", 1_u64)
                .field("a", Some("x"))
                .present("none", None::<u8>);
            o.field("null", None::<u8>)
                .field("list", &[Some(1_u32), None][..]);
            o.object("o", |o| {
                o.field("f", 0.5).field("inf", f64::INFINITY).field("t", true);
            });
            o.objects("rows", [1_u8, 2], |n, o| {
                o.field("n", n);
            });
        });
        assert_eq!(
            out,
            r#"{"b":1,"a":"x","null":null,"list":[1,null],"o":{"f":0.5,"inf":null,"t":true},"rows":[{"n":1},{"n":2}]}"#
        );
    }

    #[test]
    fn special_characters_in_strings_are_escaped() {
        let mut out = String::new();
        "a\"b\\c\n\r\t\u{1}é".write(&mut out);
        Text("x\"y\nz").write(&mut out);
        Text(7).write(&mut out);
        assert_eq!(out, "\"a\\\"b\\\\c\\n\\r\\t\\u0001é\"\"x\\\"y\\nz\"\"7\"");
    }

    #[test]
    fn control_and_bidirectional_characters_are_escaped_everywhere() {
        const HOSTILE: &str = "\u{1b}]\u{7f}\u{9b}\u{202e}\u{2066}é";
        const ESCAPED: &str = "\"\\u001b]\\u007f\\u009b\\u202e\\u2066é\"";
        let mut out = String::new();
        HOSTILE.write(&mut out);
        Text(HOSTILE).write(&mut out);
        object(&mut out, |o| _ = o.field(HOSTILE, 1_u8));
        assert_eq!(out, format!("{ESCAPED}{ESCAPED}{{{ESCAPED}:1}}"));
        assert_eq!(
            escaped(&format!("[\n\t\"{HOSTILE}\"]\r\n")),
            format!("[\n\t{ESCAPED}]\r\n")
        );
        assert!(matches!(escaped("{\"a\": \"é\"}\n"), Cow::Borrowed(_)));
    }
}
