//! Converts P4Info (P4Runtime) from protobuf's text format, which `p4c` writes, into the binary encoding.
//!
//! Each function returns the fields of one message of `p4info.proto` or `p4types.proto`.

use prost::Message as _;
use prost::encoding::{WireType, encode_key, encode_varint};

use crate::message::P4Info;
use crate::text::{self, Field, Item};

const MATCH_TYPES: &[(&str, u64)] = &[
    ("EXACT", 2),
    ("LPM", 3),
    ("TERNARY", 4),
    ("RANGE", 5),
    ("OPTIONAL", 6),
];
const SCOPES: &[(&str, u64)] = &[("TABLE_AND_DEFAULT", 0), ("TABLE_ONLY", 1), ("DEFAULT_ONLY", 2)];
const UNITS: &[(&str, u64)] = &[("BYTES", 1), ("PACKETS", 2), ("BOTH", 3)];
const COLORS: &[(&str, u64)] = &[
    ("TWO_RATE_THREE_COLOR", 0),
    ("SINGLE_RATE_THREE_COLOR", 1),
    ("SINGLE_RATE_TWO_COLOR", 2),
];
const TIMEOUTS: &[(&str, u64)] = &[("NO_TIMEOUT", 0), ("NOTIFY_CONTROL", 1)];
const FLAGS: &[(&str, u64)] = &[("false", 0), ("true", 1)];

/// The kind of a field's value.
#[derive(Clone, Copy)]
enum Kind {
    Text,
    Number,
    /// An enumeration: names with their numbers.
    Word(&'static [(&'static str, u64)]),
    Message(Fields),
}

/// A field of a message.
#[derive(Clone, Copy)]
struct FieldType {
    name: &'static str,
    number: u32,
    kind: Kind,
}

const fn field(name: &'static str, number: u32, kind: Kind) -> FieldType {
    FieldType { name, number, kind }
}

/// Returns the fields of a message. It is a function because message types are recursive.
type Fields = fn() -> &'static [FieldType];

use Kind::{Message, Number, Text, Word};

fn p4info() -> &'static [FieldType] {
    const {
        &[
            field("pkg_info", 1, Message(package)),
            field("tables", 2, Message(table)),
            field("actions", 3, Message(action)),
            field("action_profiles", 4, Message(profile)),
            field("counters", 5, Message(counter)),
            field("direct_counters", 6, Message(direct)),
            field("meters", 7, Message(meter)),
            field("direct_meters", 8, Message(direct)),
            field("controller_packet_metadata", 9, Message(controller)),
            field("registers", 11, Message(register)),
            field("type_info", 200, Message(nothing)),
        ]
    }
}

fn nothing() -> &'static [FieldType] {
    const { &[] }
}

fn package() -> &'static [FieldType] {
    const {
        &[
            field("name", 1, Text),
            field("version", 2, Text),
            field("annotations", 4, Text),
            field("arch", 5, Text),
            field("organization", 6, Text),
            field("contact", 7, Text),
            field("url", 8, Text),
        ]
    }
}

fn preamble() -> &'static [FieldType] {
    const {
        &[
            field("id", 1, Number),
            field("name", 2, Text),
            field("alias", 3, Text),
            field("annotations", 4, Text),
            field("doc", 5, Message(doc)),
        ]
    }
}

fn doc() -> &'static [FieldType] {
    const { &[field("brief", 1, Text), field("description", 2, Text)] }
}

fn table() -> &'static [FieldType] {
    const {
        &[
            field("preamble", 1, Message(preamble)),
            field("match_fields", 2, Message(match_field)),
            field("action_refs", 3, Message(action_ref)),
            field("const_default_action_id", 4, Number),
            field("initial_default_action", 5, Message(call)),
            field("implementation_id", 6, Number),
            field("direct_resource_ids", 7, Number),
            field("size", 8, Number),
            field("idle_timeout_behavior", 9, Word(TIMEOUTS)),
            field("is_const_table", 10, Word(FLAGS)),
            field("has_initial_entries", 11, Word(FLAGS)),
        ]
    }
}

fn match_field() -> &'static [FieldType] {
    const {
        &[
            field("id", 1, Number),
            field("name", 2, Text),
            field("annotations", 3, Text),
            field("bitwidth", 4, Number),
            field("match_type", 5, Word(MATCH_TYPES)),
            field("doc", 6, Message(doc)),
            field("other_match_type", 7, Text),
            field("type_name", 8, Message(named)),
        ]
    }
}

fn action_ref() -> &'static [FieldType] {
    const {
        &[
            field("id", 1, Number),
            field("annotations", 2, Text),
            field("scope", 3, Word(SCOPES)),
        ]
    }
}

fn call() -> &'static [FieldType] {
    const {
        &[
            field("action_id", 1, Number),
            field("arguments", 4, Message(argument)),
        ]
    }
}

fn argument() -> &'static [FieldType] {
    const { &[field("param_id", 2, Number), field("value", 3, Text)] }
}

fn action() -> &'static [FieldType] {
    const {
        &[
            field("preamble", 1, Message(preamble)),
            field("params", 2, Message(param)),
        ]
    }
}

fn param() -> &'static [FieldType] {
    const {
        &[
            field("id", 1, Number),
            field("name", 2, Text),
            field("annotations", 3, Text),
            field("bitwidth", 4, Number),
            field("doc", 5, Message(doc)),
            field("type_name", 6, Message(named)),
        ]
    }
}

fn profile() -> &'static [FieldType] {
    const {
        &[
            field("preamble", 1, Message(preamble)),
            field("table_ids", 2, Number),
            field("with_selector", 3, Word(FLAGS)),
            field("size", 4, Number),
            field("max_group_size", 5, Number),
        ]
    }
}

fn counter() -> &'static [FieldType] {
    const {
        &[
            field("preamble", 1, Message(preamble)),
            field("spec", 2, Message(spec)),
            field("size", 3, Number),
            field("index_type_name", 4, Message(named)),
        ]
    }
}

fn meter() -> &'static [FieldType] {
    counter()
}

fn direct() -> &'static [FieldType] {
    const {
        &[
            field("preamble", 1, Message(preamble)),
            field("spec", 2, Message(spec)),
            field("direct_table_id", 3, Number),
        ]
    }
}

fn spec() -> &'static [FieldType] {
    const { &[field("unit", 1, Word(UNITS)), field("type", 2, Word(COLORS))] }
}

fn controller() -> &'static [FieldType] {
    const {
        &[
            field("preamble", 1, Message(preamble)),
            field("metadata", 2, Message(metadata)),
        ]
    }
}

fn metadata() -> &'static [FieldType] {
    const {
        &[
            field("id", 1, Number),
            field("name", 2, Text),
            field("annotations", 3, Text),
            field("bitwidth", 4, Number),
            field("type_name", 5, Message(named)),
        ]
    }
}

fn register() -> &'static [FieldType] {
    const {
        &[
            field("preamble", 1, Message(preamble)),
            field("type_spec", 2, Message(data_type)),
            field("size", 3, Number),
            field("index_type_name", 4, Message(named)),
        ]
    }
}

fn named() -> &'static [FieldType] {
    const { &[field("name", 1, Text)] }
}

fn data_type() -> &'static [FieldType] {
    const {
        &[
            field("bitstring", 1, Message(bitstring)),
            field("bool", 2, Message(nothing)),
            field("tuple", 3, Message(tuple)),
            field("struct", 4, Message(named)),
            field("header", 5, Message(named)),
            field("enum", 9, Message(named)),
            field("serializable_enum", 11, Message(named)),
            field("new_type", 12, Message(named)),
        ]
    }
}

fn tuple() -> &'static [FieldType] {
    const { &[field("members", 1, Message(data_type))] }
}

fn bitstring() -> &'static [FieldType] {
    const {
        &[
            field("bit", 1, Message(width)),
            field("int", 2, Message(width)),
            field("varbit", 3, Message(width)),
        ]
    }
}

fn width() -> &'static [FieldType] {
    const { &[field("bitwidth", 1, Number), field("max_bitwidth", 1, Number)] }
}

/// Converts P4Info from the text format to the binary encoding. Unknown fields are errors, so that nothing is lost.
///
/// # Errors
/// A description of the problem with its line number.
pub fn to_binary(text: &str) -> Result<Vec<u8>, String> {
    let mut binary = Vec::new();
    encode(&text::Message::read(text)?, p4info(), true, &mut binary)?;
    Ok(binary)
}

/// Parses P4Info in the text format. Fields and enumeration names that this version does not know are skipped.
///
/// # Errors
/// A description of the problem with its line number, or that there is no table.
pub fn info(text: &str) -> Result<P4Info, String> {
    let mut binary = Vec::new();
    encode(&text::Message::read(text)?, p4info(), false, &mut binary)?;
    let info = P4Info::decode(binary.as_slice()).map_err(|error| error.to_string())?;
    if info.tables.is_empty() {
        Err("it has no table; give a P4Info file".to_owned())
    } else {
        Ok(info)
    }
}

/// Encodes the fields of a message and appends them to `out`. Unknown fields and names are errors if `is_strict`, or else skipped.
fn encode(
    message: &text::Message,
    fields: &[FieldType],
    is_strict: bool,
    out: &mut Vec<u8>,
) -> Result<(), String> {
    for Field { name, line, item } in &message.fields {
        let Some(FieldType { number, kind, .. }) = fields.iter().find(|field| field.name == name) else {
            if is_strict {
                return refuse(*line, &format!("`{name}` is not known here"));
            }
            continue;
        };
        let value = match (kind, item) {
            (Number, Item::Word(word)) => match whole_number(word) {
                Some(value) => value,
                None => return refuse(*line, &format!("`{word}` is not a number")),
            },
            (Word(words), Item::Word(word)) => match words.iter().find(|(known, _)| known == word) {
                Some((_, value)) => *value,
                None if is_strict => return refuse(*line, &format!("`{word}` is not known here")),
                None => continue,
            },
            (Text, Item::String(bytes)) => {
                encode_bytes(*number, bytes, out);
                continue;
            }
            (Message(fields), Item::Message(inner)) => {
                let mut bytes = Vec::new();
                encode(inner, fields(), is_strict, &mut bytes)?;
                encode_bytes(*number, &bytes, out);
                continue;
            }
            _ => return refuse(*line, &format!("the value of `{name}` is of another kind")),
        };
        encode_key(*number, WireType::Varint, out);
        encode_varint(value, out);
    }
    Ok(())
}

fn encode_bytes(number: u32, bytes: &[u8], out: &mut Vec<u8>) {
    encode_key(number, WireType::LengthDelimited, out);
    encode_varint(bytes.len() as u64, out);
    out.extend_from_slice(bytes);
}

fn whole_number(word: &str) -> Option<u64> {
    match word.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => word.parse().ok(),
    }
}

fn refuse<T>(line: usize, what: &str) -> Result<T, String> {
    Err(format!(
        "line {line} of the P4Info: {what}; use the binary form (`p4c --p4runtime-files program.bin`)"
    ))
}

#[cfg(test)]
mod tests {
    use prost::Message as _;

    use super::to_binary;
    use crate::message::P4Info;

    const INT: &str = include_str!("../../../../p4/v1model/int.p4info.txtpb");

    #[test]
    fn the_text_of_a_compiler_becomes_its_message() {
        let text = "# proto-message: p4.config.v1.P4Info
tables { preamble { id: 33554433 name: \"a.t\" alias: \"t\" annotations: \"@name(\\\"t\\\")\" }
  match_fields { id: 1 name: \"f\" bitwidth: 9 match_type: LPM }
  initial_default_action { action_id: 5 arguments { param_id: 1 value: \"\\005\\334\" } }
  size: 300
}";
        let expected = [
            &[0x12, 53, 10, 25, 8, 129, 128, 128, 16, 18, 3][..],
            b"a.t",
            &[26, 1, b't', 34, 10],
            b"@name(\"t\")",
            &[18, 9, 8, 1, 18, 1, b'f', 32, 9, 40, 3],
            &[42, 10, 8, 5, 34, 6, 16, 1, 26, 2, 5, 220],
            &[64, 172, 2],
        ]
        .concat();
        assert_eq!(to_binary(text), Ok(expected));
        let info = P4Info::decode(to_binary(INT).unwrap().as_slice()).unwrap();
        assert_eq!(info.tables.len(), INT.matches("\ntables {").count());
        assert_eq!(info.actions.len(), INT.matches("\nactions {").count());
    }

    #[test]
    fn any_text_is_read_or_refused() {
        let end = "use the binary form (`p4c --p4runtime-files program.bin`)";
        let refusal = |text: &str| to_binary(text).unwrap_err().replace(end, "…");
        for (text, expected) in [
            (
                "tables {\n size: x }",
                "line 2 of the P4Info: `x` is not a number; …",
            ),
            (
                "tables {\n sizes: 1 }",
                "line 2 of the P4Info: `sizes` is not known here; …",
            ),
            (
                "tables { size: 1",
                "line 1: a `}` is missing; not a valid P4Info text file",
            ),
            ("}", "line 1: a `}` too many; not a valid P4Info text file"),
            (
                "pkg_info { arch: \"a\\q\" }",
                "line 1: an escape in a string is not known; not a valid P4Info text file",
            ),
            (
                "pkg_info { arch: \"a",
                "line 1: a string does not end; not a valid P4Info text file",
            ),
            (
                "pkg_info { arch }",
                "line 1: `:` or `{` is missing; not a valid P4Info text file",
            ),
        ] {
            assert_eq!(refusal(text), expected);
        }
        let nested = "registers { type_spec { tuple { ".to_owned() + &"members { tuple { ".repeat(20);
        assert!(refusal(&nested).contains("messages are nested too deeply"));
        // Messages are read independently of those before them, so that each is cut by itself.
        for message in INT.split_inclusive("\n}\n") {
            for cut in 0..message.len() {
                let _ = to_binary(&message[..cut]);
                let _ = to_binary(&format!("{}\\é\"{}", &message[..cut], &message[cut + 1..]));
            }
        }
    }
}
