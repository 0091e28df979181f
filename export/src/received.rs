//! Records as they come back: read from the form in which another process wrote them, protobuf or JSON.
//!
//! Nothing in them is believed. What is longer than a limit, has another type, or lacks what each record has, is none: the reason is a
//! sentence. Words that are not known here, such as the kind of an event of a later version, are kept as they are; so are the values of all
//! known fields. A record of a later version of the schema may have fields that would be lost, and is refused.

mod json;
mod packed;
mod protobuf;

use wire::FlowKey;

use self::packed::Packed;
use crate::record::{COMMON, Field, FieldKind, Fields, SCHEMA, Stream, Value};

/// A record of another process.
#[derive(Clone, PartialEq, Debug)]
pub struct Received {
    stream: Stream,
    id: u64,
    ts: u64,
    schema: u32,
    /// Bytes of its long texts.
    long: u32,
    /// The collector, and the fields after the common ones.
    rest: Packed,
}

/// A value.
#[derive(Clone, PartialEq, Default, Debug)]
enum Held {
    #[default]
    Absent,
    Number(u64),
    Id(u64),
    Text(Box<str>),
    Numbers(Box<[u32]>),
    Flow(FlowKey),
    Address([u8; 16]),
}

/// Why bytes are no record that can be read here.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Unreadable(
    /// A sentence.
    pub String,
);

/// The longest message that is read.
pub const LONGEST: usize = 1 << 20;
/// The longest one of JSON: to read it takes some thirty times its length. The longest one that hopwise writes is shorter.
pub const LONGEST_JSON: usize = 256 << 10;
/// The longest text in one: names, rules.
const TEXT: usize = 4096;
/// Longer texts are no names.
const SHORT: usize = 64;
/// The most numbers in a list: nodes of a path.
const NUMBERS: usize = 4096;

impl Received {
    /// Reads a record: an object of JSON if it begins like one, else protobuf.
    ///
    /// # Errors
    /// It is none, or one that is not understood here.
    pub fn read(stream: Stream, bytes: &[u8]) -> Result<Self, Unreadable> {
        if bytes.len() > LONGEST {
            return Err(Unreadable(format!(
                "it has {} bytes; at most {LONGEST} are read",
                bytes.len()
            )));
        }
        let mut parts = Parts::new(stream);
        match bytes.first() {
            None => return Err(Unreadable("it is empty".to_owned())),
            // A group of protobuf begins with this byte, too; no message of ours has any.
            Some(b'{') if bytes.len() > LONGEST_JSON => {
                return Err(Unreadable(format!(
                    "it is an object of JSON of {} bytes; at most {LONGEST_JSON} are read",
                    bytes.len()
                )));
            }
            Some(b'{') => json::read(bytes, &mut parts)?,
            Some(_) => protobuf::read(bytes, &mut parts)?,
        }
        parts.finish()
    }

    /// Its stream.
    pub fn stream(&self) -> Stream {
        self.stream
    }

    /// The same for the same thing.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Event time, ns.
    pub fn ts(&self) -> u64 {
        self.ts
    }

    /// Bytes that it has in memory beside itself. Long texts count twice: if each record has another one, a request has them twice while it
    /// is made.
    pub fn heap(&self) -> usize {
        self.rest.len() + self.long as usize
    }
}

impl Fields for Received {
    fn visit_fields(&self, mut each: impl FnMut(&'static Field, Value<'_>)) {
        let [id, ts, collector, schema] = &COMMON;
        let mut rest = self.rest.reader();
        each(id, Value::Id(self.id));
        each(ts, Value::Number(self.ts));
        rest.visit(0, collector, &mut each);
        each(schema, Value::Number(self.schema.into()));
        for (place, field) in (1..).zip(self.stream.fields()) {
            rest.visit(place, field, &mut each);
        }
    }
}

/// A record that is being read.
struct Parts {
    stream: Stream,
    /// Of the common fields, then of the others.
    values: Vec<Held>,
}

impl Parts {
    fn new(stream: Stream) -> Self {
        Self {
            stream,
            values: vec![Held::Absent; COMMON.len() + stream.fields().len()],
        }
    }

    /// The field that this is true of, and the place of its value; `None`: it is not known here.
    fn place(&mut self, is: impl Fn(&Field) -> bool) -> Option<(&'static Field, &mut Held)> {
        let fields = COMMON.iter().chain(self.stream.fields());
        fields.zip(&mut self.values).find(|(field, _)| is(field))
    }

    fn finish(self) -> Result<Received, Unreadable> {
        let Self { stream, mut values } = self;
        let rest = values.split_off(COMMON.len());
        let lacks =
            |field: &Field| Unreadable(format!("it has no {}: it is no record of hopwise", field.name));
        let [id, ts, collector, schema] = &COMMON;
        let mut common = values.into_iter();
        let mut next = || common.next().unwrap_or_default();
        let Held::Id(id) = next() else {
            return Err(lacks(id));
        };
        let Held::Number(ts) = next() else {
            return Err(lacks(ts));
        };
        let name = next();
        let Held::Text(_) = &name else {
            return Err(lacks(collector));
        };
        let Held::Number(version) = next() else {
            return Err(lacks(schema));
        };
        if version == 0 || version > SCHEMA {
            return Err(Unreadable(format!(
                "it is of version {version} of the schema, and this hopwise knows those up to {SCHEMA}; upgrade it"
            )));
        }
        let values = || std::iter::once(&name).chain(&rest);
        let long = values().map(|held| {
            if let Held::Text(text) = held {
                text.len()
            } else {
                0
            }
        });
        let long: usize = long.filter(|len| *len > SHORT).sum();
        let [long, schema] = [long, version as usize].map(|number| u32::try_from(number).unwrap_or(u32::MAX));
        Ok(Received {
            stream,
            id,
            ts,
            schema,
            long,
            rest: Packed::new(values()),
        })
    }
}

fn wrong(field: &Field) -> Unreadable {
    Unreadable(format!("its {} is not of the type of that field", field.name))
}

fn held_text(field: &Field, text: &str) -> Result<Held, Unreadable> {
    match text.len() <= TEXT {
        true => Ok(Held::Text(text.into())),
        false => Err(Unreadable(format!(
            "its {} is longer than {TEXT} bytes",
            field.name
        ))),
    }
}

fn held_numbers(field: &Field, numbers: Vec<u32>) -> Result<Held, Unreadable> {
    match numbers.len() <= NUMBERS {
        true => Ok(Held::Numbers(numbers.into())),
        false => Err(too_many(field)),
    }
}

fn too_many(field: &Field) -> Unreadable {
    Unreadable(format!("its {} has more than {NUMBERS} numbers", field.name))
}

/// An IPv4 address has four bytes, and is held as all others.
fn held_address(bytes: &[u8]) -> Option<[u8; 16]> {
    match *bytes {
        [a, b, c, d] => Some(std::net::Ipv4Addr::new(a, b, c, d).to_ipv6_mapped().octets()),
        _ => bytes.try_into().ok(),
    }
}
