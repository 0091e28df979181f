//! Values of entries as people write them: addresses as addresses.

use std::net::{Ipv4Addr, Ipv6Addr};

use crate::entry::{Bytes, Field};

/// The way in which the values of a field or parameter are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notation {
    /// As a number.
    Number,
    /// As a MAC address.
    Mac,
    /// As an IPv4 address.
    Ipv4,
    /// As an IPv6 address.
    Ipv6,
}

impl Notation {
    /// That of a field or parameter with this name and width.
    pub fn new(name: &str, bits: i32) -> Self {
        let has = |words: &[&str]| name.split(['_', '.']).any(|word| words.contains(&word));
        match bits {
            48 if has(&["mac"]) => Self::Mac,
            32 if has(&["ip", "ipv4"]) => Self::Ipv4,
            128 if has(&["ip", "ipv6"]) => Self::Ipv6,
            _ => Self::Number,
        }
    }

    /// A value.
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

    /// The values of a field.
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

    /// The length of the prefix of addresses that a mask is.
    fn prefix(self, mask: &Bytes) -> Option<u32> {
        let bits: u32 = match self {
            Self::Ipv4 => 32,
            Self::Ipv6 => 128,
            Self::Mac | Self::Number => return None,
        };
        let ones = (mask.number()? << (128 - bits)).leading_ones();
        (mask.number()?.count_ones() == ones).then_some(ones)
    }
}
