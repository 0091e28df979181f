//! Parses DTA triggers in the text form of the configuration: `when = "value >= 1000 and data[0:4] != 0"`,
//! `entry = "key[0:13] data[0:8] time"`.

use crate::trigger::{Condition, Field, Part, Relation};

/// Names of fields, for error messages.
const FIELDS: &str =
    "reporter, priority, essential, immediate, value, hop, path_length, key[FROM:BYTES] or data[FROM:BYTES]";

/// Parses conditions joined by `and`; an empty text gives none.
///
/// # Errors
/// A message with the problem and the correct form.
pub fn conditions(text: &str) -> Result<Vec<Condition>, String> {
    let parts = text.split(" and ").map(str::trim).filter(|part| !part.is_empty());
    parts.map(condition).collect()
}

fn condition(text: &str) -> Result<Condition, String> {
    const RELATIONS: [(&str, Relation); 6] = [
        (">=", Relation::GreaterOrEqual),
        ("<=", Relation::LessOrEqual),
        ("!=", Relation::NotEqual),
        ("==", Relation::Equal),
        (">", Relation::Greater),
        ("<", Relation::Less),
    ];
    let found = RELATIONS
        .iter()
        .find_map(|(sign, relation)| Some((text.split_once(sign)?, *relation)));
    let Some(((left, right), relation)) = found else {
        return Err(format!(
            "`{text}` compares nothing; write a field, one of >= <= != == > <, and a number"
        ));
    };
    let (name, mask) = match left.split_once('&') {
        Some((name, mask)) => (name, Some(mask)),
        None => (left, None),
    };
    let mask = match mask.map(|mask| number(mask.trim())) {
        None => u64::MAX,
        Some(Some(mask)) => mask,
        Some(None) => return Err(format!("`{text}`: write a mask such as 0xff behind &")),
    };
    let value = number(right.trim()).ok_or_else(|| format!("`{}` is not a number", right.trim()))?;
    let field =
        field(name.trim()).ok_or_else(|| format!("there is no field `{}`; use {FIELDS}", name.trim()))?;
    Ok(Condition {
        field,
        mask,
        relation,
        value,
    })
}

/// Parses the parts of an entry, separated by spaces or commas.
///
/// # Errors
/// A message with the problem and the correct form.
pub fn parts(text: &str) -> Result<Vec<Part>, String> {
    text.split([' ', ','])
        .filter(|word| !word.is_empty())
        .map(part)
        .collect()
}

fn part(word: &str) -> Result<Part, String> {
    if word == "time" {
        return Ok(Part::Time);
    }
    if let Some(("key", from, bytes)) = range(word) {
        let from = u8::try_from(from).map_err(|_| not_a_part(word))?;
        let bytes = u8::try_from(bytes).map_err(|_| not_a_part(word))?;
        return Ok(Part::Key(from, bytes));
    }
    if let Some(("data", from, bytes)) = range(word) {
        return Ok(Part::Data(from, bytes));
    }
    let (name, bytes) = word.rsplit_once(':').ok_or_else(|| not_a_part(word))?;
    let bytes = bytes.parse().map_err(|_| not_a_part(word))?;
    match (number(name), field(name)) {
        (Some(constant), _) => Ok(Part::Constant(constant, bytes)),
        (None, Some(field)) => Ok(Part::Field(field, bytes)),
        (None, None) => Err(not_a_part(word)),
    }
}

fn not_a_part(word: &str) -> String {
    format!(
        "`{word}` is not a part of an entry; write key[FROM:BYTES], data[FROM:BYTES], time, a field with its bytes as value:4, or a number \
                 with its bytes as 7:1"
    )
}

fn field(name: &str) -> Option<Field> {
    Some(match name {
        "reporter" => Field::Reporter,
        "priority" => Field::Priority,
        "essential" => Field::Essential,
        "immediate" => Field::Immediate,
        "value" => Field::Value,
        "hop" => Field::Hop,
        "path_length" => Field::PathLen,
        _ => match range(name)? {
            ("key", from, bytes) => Field::Key(u8::try_from(from).ok()?, u8::try_from(bytes).ok()?),
            ("data", from, bytes) => Field::Data(from, u8::try_from(bytes).ok()?),
            _ => return None,
        },
    })
}

/// Parses a name with an offset and a length, such as `data[4:2]`.
fn range(text: &str) -> Option<(&str, u16, u16)> {
    let (name, rest) = text.split_once('[')?;
    let (from, bytes) = rest.strip_suffix(']')?.split_once(':')?;
    Some((name, from.trim().parse().ok()?, bytes.trim().parse().ok()?))
}

fn number(text: &str) -> Option<u64> {
    match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions_and_entries_are_read() {
        let all = |field, relation, value| Condition {
            field,
            mask: u64::MAX,
            relation,
            value,
        };
        assert_eq!(
            conditions("value >= 1000 and data[4:2] & 0xff != 0x10 and priority == 2"),
            Ok(vec![
                all(Field::Value, Relation::GreaterOrEqual, 1000),
                Condition {
                    mask: 0xff,
                    ..all(Field::Data(4, 2), Relation::NotEqual, 16)
                },
                all(Field::Priority, Relation::Equal, 2),
            ])
        );
        assert_eq!(conditions(""), Ok(vec![]));
        assert_eq!(
            parts("key[0:13] data[0:8], time value:4 7:1 reporter:4"),
            Ok(vec![
                Part::Key(0, 13),
                Part::Data(0, 8),
                Part::Time,
                Part::Field(Field::Value, 4),
                Part::Constant(7, 1),
                Part::Field(Field::Reporter, 4),
            ])
        );
    }

    #[test]
    fn errors_are_reported() {
        for (text, message) in [
            ("value", "compares nothing"),
            ("valu > 1", "there is no field `valu`"),
            ("value > x", "`x` is not a number"),
            ("value & y > 1", "write a mask"),
        ] {
            assert!(conditions(text).unwrap_err().contains(message), "{text}");
        }
        for text in ["key", "key[0]", "valu:4", "value:x", "key[300:1]"] {
            assert!(
                parts(text).unwrap_err().contains("is not a part of an entry"),
                "{text}"
            );
        }
    }
}
