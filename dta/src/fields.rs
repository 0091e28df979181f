//! The layout of a slot's or entry's bytes in text form, such as `src:ipv4 dst:ipv4 sport:u16 path:u32[5]`, and the decoder
//! that turns bytes into JSON values.

use std::{fmt, net::Ipv4Addr, net::Ipv6Addr, str::FromStr};

use serde_json::Value;

/// Maximum number of fields in a layout, and of elements in a field.
const MAX_FIELDS: usize = 256;

/// The type of a field. Numbers are in network byte order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Type {
    /// A number of one byte.
    U8,
    /// A number of two bytes.
    U16,
    /// A number of four bytes.
    U32,
    /// A number of eight bytes.
    U64,
    /// An IPv4 address, four bytes.
    Ipv4,
    /// An IPv6 address or a mapped IPv4 address, 16 bytes.
    Ipv6,
    /// An Ethernet address, six bytes.
    Mac,
    /// Bytes, shown in hexadecimal.
    Hex,
}

impl Type {
    const ALL: [(&'static str, Self, usize); 8] = [
        ("u8", Self::U8, 1),
        ("u16", Self::U16, 2),
        ("u32", Self::U32, 4),
        ("u64", Self::U64, 8),
        ("ipv4", Self::Ipv4, 4),
        ("ipv6", Self::Ipv6, 16),
        ("mac", Self::Mac, 6),
        ("hex", Self::Hex, 1),
    ];

    fn name(self) -> &'static str {
        Self::ALL
            .iter()
            .find(|(_, kind, _)| *kind == self)
            .map_or("", |(name, ..)| name)
    }

    fn size(self) -> usize {
        Self::ALL
            .iter()
            .find(|(_, kind, _)| *kind == self)
            .map_or(0, |(.., size)| *size)
    }
}

/// A field of a layout. The name is empty if the layout has a single unnamed field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    /// Name of the field, or empty.
    pub name: String,
    kind: Type,
    count: usize,
    /// Declared with brackets, so it is shown as a list even if it has one element.
    list: bool,
}

/// The fields of a slot or entry, packed in order without gaps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fields(Vec<Field>);

impl FromStr for Fields {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let fields = text.split([' ', ',']).filter(|word| !word.is_empty()).map(field);
        let fields = fields.collect::<Result<Vec<_>, _>>()?;
        if fields.is_empty() || fields.len() > MAX_FIELDS {
            return Err(format!(
                "write 1 to {MAX_FIELDS} fields, such as src:ipv4 port:u16 path:u32[5]"
            ));
        }
        for (index, field) in fields.iter().enumerate() {
            if fields[..index].iter().any(|other| other.name == field.name) {
                return Err(format!("two fields are called `{}`; rename one", field.name));
            }
        }
        Ok(Self(fields))
    }
}

fn field(word: &str) -> Result<Field, String> {
    let (name, kind) = word.split_once(':').unwrap_or(("", word));
    let (kind, count, list) = match kind.split_once('[') {
        Some((kind, count)) => {
            let count = count.strip_suffix(']').and_then(|count| count.parse().ok());
            (kind, count.filter(|count| (1..=MAX_FIELDS).contains(count)), true)
        }
        None => (kind, Some(1), false),
    };
    let Some(count) = count else {
        return Err(format!("`{word}`: write a count, such as u32[5]"));
    };
    let found = Type::ALL.iter().find(|(name, ..)| *name == kind);
    let Some((_, kind, _)) = found else {
        let names = Type::ALL.map(|(name, ..)| name).join(", ");
        return Err(format!(
            "there is no type `{kind}`; use one of {names}, and brackets for several, as in u32[5]"
        ));
    };
    Ok(Field {
        name: name.to_owned(),
        kind: *kind,
        count,
        list: list && *kind != Type::Hex,
    })
}

impl fmt::Display for Fields {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, field) in self.0.iter().enumerate() {
            let space = if index == 0 { "" } else { " " };
            let colon = if field.name.is_empty() { "" } else { ":" };
            write!(f, "{space}{}{colon}{}", field.name, field.kind.name())?;
            if field.list || field.count > 1 {
                write!(f, "[{}]", field.count)?;
            }
        }
        Ok(())
    }
}

impl Fields {
    /// Returns the total length of all fields, bytes.
    pub fn size(&self) -> usize {
        self.0.iter().map(|field| field.kind.size() * field.count).sum()
    }

    /// Decodes the values in `bytes` in order, with their names. Stops at the first field for which there are too few
    /// bytes.
    pub fn decode<'f>(&'f self, bytes: &[u8]) -> Vec<(&'f str, Value)> {
        let mut rest = bytes;
        let mut values = Vec::with_capacity(self.0.len());
        for field in &self.0 {
            let Some((own, after)) = rest.split_at_checked(field.kind.size() * field.count) else {
                break;
            };
            values.push((field.name.as_str(), field.value(own)));
            rest = after;
        }
        values
    }

    /// Returns the field `name` as a number, or `None` if it is missing or longer than eight bytes.
    pub fn number(&self, bytes: &[u8], name: &str) -> Option<u64> {
        let own = self.bytes(bytes, name)?;
        (own.len() <= 8).then(|| big_endian(own))
    }

    /// Returns the bytes of the field `name`, or `None` if it is missing.
    pub fn bytes<'b>(&self, bytes: &'b [u8], name: &str) -> Option<&'b [u8]> {
        let index = self.0.iter().position(|field| field.name == name)?;
        let at: usize = self.0[..index]
            .iter()
            .map(|field| field.kind.size() * field.count)
            .sum();
        bytes.get(at..at + self.0[index].kind.size() * self.0[index].count)
    }

    /// Returns the elements of the field `name`, or `None` if it is not a list of numbers.
    pub fn list(&self, bytes: &[u8], name: &str) -> Option<Vec<u64>> {
        let field = self.0.iter().find(|field| field.name == name)?;
        let size = field.kind.size();
        let elements = self.bytes(bytes, name)?.chunks_exact(size);
        (size <= 8 && field.list).then(|| elements.map(big_endian).collect())
    }
}

impl Field {
    fn value(&self, bytes: &[u8]) -> Value {
        if self.kind == Type::Hex {
            return hex(bytes).into();
        }
        let mut elements = bytes
            .chunks_exact(self.kind.size())
            .map(|own| self.read_element(own));
        if self.list {
            elements.collect()
        } else {
            elements.next().unwrap_or_default()
        }
    }

    fn read_element(&self, bytes: &[u8]) -> Value {
        match self.kind {
            Type::U8 | Type::U16 | Type::U32 | Type::U64 => big_endian(bytes).into(),
            Type::Ipv4 => Ipv4Addr::from(big_endian(bytes) as u32).to_string().into(),
            Type::Ipv6 => {
                let mut octets = [0; 16];
                octets[..bytes.len().min(16)].copy_from_slice(&bytes[..bytes.len().min(16)]);
                // IPv4 addresses are stored as mapped IPv6 addresses (`::ffff:a.b.c.d`).
                Ipv6Addr::from(octets).to_canonical().to_string().into()
            }
            Type::Mac => bytes
                .iter()
                .map(|byte| format!("{byte:02x}"))
                .collect::<Vec<_>>()
                .join(":")
                .into(),
            Type::Hex => hex(bytes).into(),
        }
    }
}

fn big_endian(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0, |number, byte| number << 8 | u64::from(*byte))
}

/// Renders bytes as hexadecimal digits.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Parses pairs of hexadecimal digits; returns `None` for any other text.
pub fn unhex(text: &str) -> Option<Vec<u8>> {
    let digits = text.as_bytes();
    if !digits.len().is_multiple_of(2) {
        return None;
    }
    digits
        .chunks(2)
        .map(|pair| {
            let high = char::from(pair[0]).to_digit(16)?;
            let low = char::from(pair[1]).to_digit(16)?;
            Some((high << 4 | low) as u8)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_become_values_in_the_order_of_the_fields() {
        let fields: Fields = "src:ipv4 port:u16 path:u32[2], rest:hex[3]".parse().unwrap();
        assert_eq!(fields.size(), 17);
        let bytes = [10, 0, 0, 1, 4, 210, 0, 0, 0, 11, 0, 0, 1, 0, 0xab, 0xcd, 0xef];
        let expected = [
            ("src", Value::from("10.0.0.1")),
            ("port", 1234.into()),
            ("path", vec![11, 256].into()),
            ("rest", "abcdef".into()),
        ];
        assert_eq!(fields.decode(&bytes), expected);
        assert_eq!(
            fields.decode(&bytes[..7]).len(),
            2,
            "truncated fields are left out"
        );
        assert_eq!(fields.number(&bytes, "port"), Some(1234));
        assert_eq!(fields.list(&bytes, "path"), Some(vec![11, 256]));
        assert_eq!(fields.number(&bytes, "dst"), None);
        assert_eq!(fields.to_string(), "src:ipv4 port:u16 path:u32[2] rest:hex[3]");
        assert_eq!(fields.to_string().parse(), Ok(fields));
    }

    #[test]
    fn invalid_layouts_are_refused_with_a_suggestion() {
        for (text, expected) in [
            ("", "write 1 to 256 fields"),
            ("a:u9", "there is no type `u9`"),
            ("a:u8 a:u16", "two fields are called `a`"),
            ("a:u8[0]", "write a count"),
            ("a:u8[999999999]", "write a count"),
            ("a:u8[2", "write a count"),
        ] {
            let error = text.parse::<Fields>().map(|_| ()).unwrap_err();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }
}
