//! Text form of fields in a configuration: parses and formats `name`, `name[count]`, `name:width` and constant numbers.

use std::fmt;
use std::str::FromStr;

use super::{Field, FieldError, FieldKind, MAX_KEY, NAMES, Number, max_of_width};

impl FromStr for Field {
    type Err = FieldError;

    fn from_str(text: &str) -> Result<Self, FieldError> {
        let text = text.trim();
        let (rest, width) = match text.split_once(':') {
            Some((rest, width)) => (rest.trim(), Some(parse_width(width.trim())?)),
            None => (text, None),
        };
        let (name, count) = match rest.split_once('[') {
            Some((name, count)) => {
                let count = count
                    .strip_suffix(']')
                    .and_then(|count| count.trim().parse::<u8>().ok());
                let Some(count) = count.filter(|count| *count > 0) else {
                    return Err(FieldError::Brackets(name.trim().to_owned(), 255));
                };
                (name.trim(), Some(count))
            }
            None => (rest, None),
        };
        if let Some(value) = parse_number(name) {
            let width = width.filter(|width| value <= max_of_width(*width) && count.is_none());
            let width = width.ok_or_else(|| FieldError::Width(text.to_owned()))?;
            return Ok(Self {
                what: FieldKind::Constant(value),
                width,
                count: 0,
            });
        }
        if let Some((number, _, usual)) = Number::ALL.iter().find(|(_, word, _)| *word == name) {
            if number.is_pint() && count.is_none() {
                return Err(FieldError::Brackets(name.to_owned(), 255));
            }
            if count.is_some() && !number.is_per_hop() && !number.is_pint() {
                return Err(FieldError::Fixed(text.to_owned()));
            }
            let count = count.unwrap_or(0);
            return Ok(Self {
                what: FieldKind::Number(*number),
                width: width.unwrap_or(*usual),
                count,
            });
        }
        named(name, text, width, count)
    }
}

/// Parses a field that is one of [`NAMES`].
fn named(name: &str, text: &str, width: Option<u8>, count: Option<u8>) -> Result<Field, FieldError> {
    let what = match name {
        "flow" => FieldKind::Flow { wide: false },
        "flow6" => FieldKind::Flow { wide: true },
        "src" => FieldKind::Address {
            source: true,
            wide: false,
        },
        "dst" => FieldKind::Address {
            source: false,
            wide: false,
        },
        "src6" => FieldKind::Address {
            source: true,
            wide: true,
        },
        "dst6" => FieldKind::Address {
            source: false,
            wide: true,
        },
        "key" => FieldKind::Key { top: false },
        "top_key" => FieldKind::Key { top: true },
        _ => return Err(FieldError::Unknown(name.to_owned())),
    };
    let is_key = matches!(what, FieldKind::Key { .. });
    if width.is_some() || (count.is_some() && !is_key) {
        return Err(FieldError::Fixed(text.to_owned()));
    }
    let longest = MAX_KEY as u8;
    if count.is_some_and(|count| count > longest) || (count.is_none() && name == "top_key") {
        return Err(FieldError::Brackets(name.to_owned(), longest.into()));
    }
    let width = NAMES
        .iter()
        .find(|(word, ..)| *word == name)
        .map_or(0, |(_, width, _)| *width);
    Ok(Field {
        what,
        width,
        count: count.unwrap_or(0),
    })
}

fn parse_width(text: &str) -> Result<u8, FieldError> {
    let bits = text.strip_prefix('u').and_then(|bits| bits.parse::<u8>().ok());
    let bits = bits.filter(|bits| bits.is_multiple_of(8) && (8..=64).contains(bits));
    bits.map(|bits| bits / 8)
        .ok_or_else(|| FieldError::Width(text.to_owned()))
}

/// Parses a decimal or hexadecimal (`0x`) number, which may have `_` between digits.
pub(in crate::dta) fn parse_number(text: &str) -> Option<u64> {
    if !text.starts_with(|first: char| first.is_ascii_digit()) {
        return None;
    }
    let text = text.replace('_', "");
    match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

impl fmt::Display for Field {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, usual) = match self.what {
            FieldKind::Constant(value) => return write!(f, "{value}:u{}", self.width * 8),
            FieldKind::Flow { wide } => (if wide { "flow6" } else { "flow" }, self.width),
            FieldKind::Address { source: true, wide } => (if wide { "src6" } else { "src" }, self.width),
            FieldKind::Address { source: false, wide } => (if wide { "dst6" } else { "dst" }, self.width),
            FieldKind::Key { top } => (if top { "top_key" } else { "key" }, self.width),
            FieldKind::Number(number) => {
                let found = Number::ALL.iter().find(|(other, ..)| *other == number);
                found.map_or(("", 0), |(_, word, width)| (*word, *width))
            }
        };
        f.write_str(name)?;
        if self.count > 0 {
            write!(f, "[{}]", self.count)?;
        }
        if self.width != usual {
            write!(f, ":u{}", self.width * 8)?;
        }
        Ok(())
    }
}
