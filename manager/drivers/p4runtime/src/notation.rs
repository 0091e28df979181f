//! Renders the values of match fields for display, with addresses in their usual notation.

use std::net::{Ipv4Addr, Ipv6Addr};

use crate::entry::{Bytes, Field};

/// The notation in which a field's or parameter's values are displayed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notation {
    /// Written as a number.
    Number,
    /// Written as a MAC address.
    Mac,
    /// Written as an IPv4 address.
    Ipv4,
    /// Written as an IPv6 address.
    Ipv6,
}

impl Notation {
    /// Chooses the notation for a field or parameter by its width in bits and by words in its name.
    pub fn new(name: &str, bits: i32) -> Self {
        match bits {
            48 if has_word(name, &["mac"]) => Self::Mac,
            32 if has_word(name, &["ip", "ipv4"]) => Self::Ipv4,
            128 if has_word(name, &["ip", "ipv6"]) => Self::Ipv6,
            _ => Self::Number,
        }
    }

    /// Renders a value in this notation.
    pub fn value(self, value: &Bytes) -> String {
        let number = value.number().unwrap_or(0);
        match self {
            Self::Number => value.to_string(),
            Self::Ipv4 => Ipv4Addr::from(number as u32).to_string(),
            Self::Ipv6 => Ipv6Addr::from(number).to_string(),
            Self::Mac => {
                let octets = number.to_be_bytes();
                octets[10..]
                    .iter()
                    .map(|octet| format!("{octet:02x}"))
                    .collect::<Vec<_>>()
                    .join(":")
            }
        }
    }

    /// Renders a match field's value, with prefix length, range or mask.
    pub fn field(self, field: &Field) -> String {
        match field {
            Field::Exact(value) | Field::Optional(value) => self.value(value),
            Field::Lpm(value, length) => format!("{}/{length}", self.value(value)),
            Field::Range(low, high) => format!("{}-{}", self.value(low), self.value(high)),
            Field::Ternary(value, mask) => match self.prefix(mask) {
                Some(length) => format!("{}/{length}", self.value(value)),
                None => format!("{} & {}", self.value(value), self.value(mask)),
            },
        }
    }

    /// Returns the prefix length that is equal to an address mask, or `None` if the mask has another form.
    fn prefix(self, mask: &Bytes) -> Option<u32> {
        let bits: u32 = match self {
            Self::Ipv4 => 32,
            Self::Ipv6 => 128,
            Self::Mac | Self::Number => return None,
        };
        // Move the address to the top of the 128 bits, so that its leading ones count.
        let ones = (mask.number()? << (128 - bits)).leading_ones();
        (mask.number()?.count_ones() == ones).then_some(ones)
    }
}

fn has_word(name: &str, words: &[&str]) -> bool {
    name.split(['_', '.']).any(|word| words.contains(&word))
}
