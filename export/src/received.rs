//! Decodes records that another process wrote, as protobuf or JSON; used by the outlet from Kafka to ClickHouse.
//!
//! The input is untrusted. A record is refused with a reason if it exceeds a limit, has a value of the wrong type, or lacks a
//! common field. Unknown enumeration names, such as event kinds of a later version, are kept as text. Records of a later schema
//! version are refused, because their additional fields would be lost.

mod json;
mod packed;
mod protobuf;

use wire::FlowKey;

use self::packed::Packed;
use crate::record::{COMMON, Field, FieldKind, Fields, SCHEMA, Stream, Value};

/// Maximum length of a message, bytes.
pub const MAX_MESSAGE: usize = 1 << 20;
/// Maximum length of a JSON message, bytes: parsing takes about thirty times as much memory. Records that hopwise writes are
/// shorter.
pub const MAX_JSON_MESSAGE: usize = 256 << 10;
/// Maximum length of a text, such as a name or a rule, bytes.
const MAX_TEXT: usize = 4096;
/// Maximum length of a text that does not count as long, bytes.
const MAX_SHORT_TEXT: usize = 64;
/// Maximum length of a list: nodes of a path.
const MAX_NUMBERS: usize = 4096;

/// A record of another process.
#[derive(Clone, PartialEq, Debug)]
pub struct Received {
    stream: Stream,
    id: u64,
    ts: u64,
    schema: u32,
    /// Total length of texts longer than [`MAX_SHORT_TEXT`], bytes.
    long_text_bytes: u32,
    /// The collector, followed by the fields after the common ones.
    fields: Packed,
}

/// The value of a field.
#[derive(Clone, PartialEq, Default, Debug)]
enum OwnedValue {
    #[default]
    Absent,
    Number(u64),
    Id(u64),
    Text(Box<str>),
    Numbers(Box<[u32]>),
    Flow(FlowKey),
    Address([u8; 16]),
}

/// Error: the reason why a record cannot be decoded.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Unreadable(
    /// The reason as a sentence.
    pub String,
);

impl Received {
    /// Decodes a record: a JSON object if it begins with `{`, otherwise protobuf.
    ///
    /// # Errors
    /// It is not a valid record, or has a later schema version.
    pub fn read(stream: Stream, bytes: &[u8]) -> Result<Self, Unreadable> {
        if bytes.len() > MAX_MESSAGE {
            return Err(Unreadable(format!(
                "it has {} bytes; at most {MAX_MESSAGE} are read",
                bytes.len()
            )));
        }
        let mut parts = Parts::new(stream);
        match bytes.first() {
            None => return Err(Unreadable("it is empty".to_owned())),
            // `{` (0x7b) would be the tag of an obsolete protobuf group, which is never sent.
            Some(b'{') if bytes.len() > MAX_JSON_MESSAGE => {
                return Err(Unreadable(format!(
                    "it is an object of JSON of {} bytes; at most {MAX_JSON_MESSAGE} are read",
                    bytes.len()
                )));
            }
            Some(b'{') => json::read(bytes, &mut parts)?,
            Some(_) => protobuf::read(bytes, &mut parts)?,
        }
        parts.finish()
    }

    /// Returns the stream of the record.
    pub fn stream(&self) -> Stream {
        self.stream
    }

    /// Returns the id of the record: equal records have equal ids.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Returns the event time, ns since 1970.
    pub fn ts(&self) -> u64 {
        self.ts
    }

    /// Returns the size on the heap, bytes. Long texts count twice: while a request is built, it may contain a second copy of
    /// each.
    pub fn heap(&self) -> usize {
        self.fields.len() + self.long_text_bytes as usize
    }
}

impl Fields for Received {
    fn visit_fields(&self, mut each: impl FnMut(&'static Field, Value<'_>)) {
        let [id, ts, collector, schema] = &COMMON;
        let mut rest = self.fields.reader();
        each(id, Value::Id(self.id));
        each(ts, Value::Number(self.ts));
        rest.visit(0, collector, &mut each);
        each(schema, Value::Number(self.schema.into()));
        for (index, field) in (1..).zip(self.stream.fields()) {
            rest.visit(index, field, &mut each);
        }
    }
}

/// A record during decoding.
struct Parts {
    stream: Stream,
    /// Values of the common fields, then of the stream's fields.
    values: Vec<OwnedValue>,
}

impl Parts {
    fn new(stream: Stream) -> Self {
        Self {
            stream,
            values: vec![OwnedValue::Absent; COMMON.len() + stream.fields().len()],
        }
    }

    /// Finds a field and its value. Returns `None` for an unknown field.
    fn find(&mut self, is_sought: impl Fn(&Field) -> bool) -> Option<(&'static Field, &mut OwnedValue)> {
        let fields = COMMON.iter().chain(self.stream.fields());
        fields.zip(&mut self.values).find(|(field, _)| is_sought(field))
    }

    fn finish(self) -> Result<Received, Unreadable> {
        let Self { stream, mut values } = self;
        let rest = values.split_off(COMMON.len());
        let mut common = values.into_iter().zip(&COMMON);
        let Some((OwnedValue::Id(id), _)) = common.next() else {
            return Err(missing_field(&COMMON[0]));
        };
        let Some((OwnedValue::Number(ts), _)) = common.next() else {
            return Err(missing_field(&COMMON[1]));
        };
        let Some((collector @ OwnedValue::Text(_), _)) = common.next() else {
            return Err(missing_field(&COMMON[2]));
        };
        let Some((OwnedValue::Number(version), _)) = common.next() else {
            return Err(missing_field(&COMMON[3]));
        };
        if version == 0 || version > SCHEMA {
            return Err(Unreadable(format!(
                "it is of version {version} of the schema, and this hopwise knows those up to {SCHEMA}; upgrade it"
            )));
        }
        let values = std::iter::once(&collector).chain(&rest);
        let mut long_text_bytes = 0;
        for value in values.clone() {
            if let OwnedValue::Text(text) = value
                && text.len() > MAX_SHORT_TEXT
            {
                long_text_bytes += text.len();
            }
        }
        Ok(Received {
            stream,
            id,
            ts,
            schema: u32::try_from(version).unwrap_or(u32::MAX),
            long_text_bytes: u32::try_from(long_text_bytes).unwrap_or(u32::MAX),
            fields: Packed::new(values),
        })
    }
}

fn missing_field(field: &Field) -> Unreadable {
    Unreadable(format!("not a hopwise record: it has no {}", field.name))
}

fn wrong_type(field: &Field) -> Unreadable {
    Unreadable(format!("its {} is not of the type of that field", field.name))
}

fn text_value(field: &Field, text: &str) -> Result<OwnedValue, Unreadable> {
    if text.len() > MAX_TEXT {
        let reason = format!("its {} is longer than {MAX_TEXT} bytes", field.name);
        return Err(Unreadable(reason));
    }
    Ok(OwnedValue::Text(text.into()))
}

fn numbers_value(field: &Field, numbers: Vec<u32>) -> Result<OwnedValue, Unreadable> {
    if numbers.len() > MAX_NUMBERS {
        return Err(too_many(field));
    }
    Ok(OwnedValue::Numbers(numbers.into()))
}

fn too_many(field: &Field) -> Unreadable {
    Unreadable(format!("its {} has more than {MAX_NUMBERS} numbers", field.name))
}

/// Converts an address of 4 or 16 bytes, with IPv4 mapped into IPv6. Returns `None` for another length.
fn parse_address(bytes: &[u8]) -> Option<[u8; 16]> {
    match *bytes {
        [a, b, c, d] => Some(std::net::Ipv4Addr::new(a, b, c, d).to_ipv6_mapped().octets()),
        _ => bytes.try_into().ok(),
    }
}
