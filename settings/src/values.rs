//! The plain values of a configuration file: numbers, durations, sizes, addresses, secrets.

use std::{
    fmt,
    net::{IpAddr, SocketAddr},
    path::PathBuf,
    str::FromStr,
    time::Duration,
};

use detect::{PortRange, Prefix, prefix::PrefixError};
use toml::de::DeValue;

use super::{
    read::{Node, Reader},
    setting::{Setting, Shown},
};

impl Setting for bool {
    const KIND: &'static str = "true or false";

    fn read(node: &Node<'_>, reader: &mut Reader<'_>) -> Option<Self> {
        let read = node.get_ref().as_bool();
        read.or_else(|| refuse::<Self>(node, reader))
    }

    fn show(&self) -> Shown {
        Shown::Plain((*self).into())
    }
}

impl Setting for String {
    const KIND: &'static str = "a text in quotes";

    fn read(node: &Node<'_>, reader: &mut Reader<'_>) -> Option<Self> {
        let read = node.get_ref().as_str().map(str::to_owned);
        read.or_else(|| refuse::<Self>(node, reader))
    }

    fn show(&self) -> Shown {
        Shown::Plain(self.as_str().into())
    }
}

impl Setting for PathBuf {
    const KIND: &'static str = "a path in quotes";

    fn read(node: &Node<'_>, reader: &mut Reader<'_>) -> Option<Self> {
        let read = node.get_ref().as_str().filter(|text| !text.is_empty()).map(Self::from);
        read.or_else(|| refuse::<Self>(node, reader))
    }

    fn show(&self) -> Shown {
        Shown::Plain(self.to_string_lossy().into())
    }
}

impl Setting for SocketAddr {
    const KIND: &'static str = "an address with a port, such as \"127.0.0.1:8080\"";

    fn read(node: &Node<'_>, reader: &mut Reader<'_>) -> Option<Self> {
        from_text(node, reader, |text| text.parse().ok())
    }

    fn show(&self) -> Shown {
        Shown::Plain(self.to_string().into())
    }
}

impl Setting for IpAddr {
    const KIND: &'static str = "an address such as \"10.0.0.1\" or \"fd00::1\"";

    fn read(node: &Node<'_>, reader: &mut Reader<'_>) -> Option<Self> {
        from_text(node, reader, |text| text.parse().ok())
    }

    fn show(&self) -> Shown {
        Shown::Plain(self.to_string().into())
    }
}

/// Implements `Setting` for unsigned integers, with a description of the range.
macro_rules! unsigned {
    ($($type:ty: $kind:literal),*) => {$(
        impl Setting for $type {
            const KIND: &'static str = $kind;

            fn read(node: &Node<'_>, reader: &mut Reader<'_>) -> Option<Self> {
                let read = integer(node.get_ref()).and_then(|number| number.try_into().ok());
                read.or_else(|| refuse::<Self>(node, reader))
            }

            fn show(&self) -> Shown {
                Shown::Plain((*self).into())
            }
        }
    )*};
}

unsigned!(
    u8: "a whole number from 0 to 255",
    u16: "a whole number from 0 to 65535",
    u32: "a whole number from 0 to 4294967295",
    u64: "a whole number",
    usize: "a whole number"
);

impl Setting for f64 {
    const KIND: &'static str = "a number";

    fn read(node: &Node<'_>, reader: &mut Reader<'_>) -> Option<Self> {
        let read = match node.get_ref() {
            DeValue::Float(number) => number.as_str().replace('_', "").parse().ok(),
            other => integer(other).map(|number| number as f64),
        };
        match read {
            Some(number) if !f64::is_finite(number) => {
                reader.refuse(node.span(), format!("found {number}; write a finite number, such as 0.01"));
                None
            }
            read => read.or_else(|| refuse::<Self>(node, reader)),
        }
    }

    fn show(&self) -> Shown {
        Shown::Plain((*self).into())
    }
}

impl Setting for Duration {
    const KIND: &'static str = "a duration, such as \"10s\"";

    fn read(node: &Node<'_>, reader: &mut Reader<'_>) -> Option<Self> {
        from_text(node, reader, |text| nanoseconds(text).map(Self::from_nanos))
    }

    fn show(&self) -> Shown {
        Shown::Plain(duration_text(u64::try_from(self.as_nanos()).unwrap_or(u64::MAX)).into())
    }
}

/// A number of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size(pub u64);

impl Setting for Size {
    const KIND: &'static str = "a size, such as \"64 MiB\"";

    fn read(node: &Node<'_>, reader: &mut Reader<'_>) -> Option<Self> {
        from_text(node, reader, |text| bytes(text).map(Self))
    }

    fn show(&self) -> Shown {
        Shown::Plain(unit_text(self.0, &SIZES, " ").into())
    }
}

/// Bits per second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate(pub u64);

impl Setting for Rate {
    const KIND: &'static str = "a rate, such as \"100Mbit/s\"";

    fn read(node: &Node<'_>, reader: &mut Reader<'_>) -> Option<Self> {
        from_text(node, reader, |text| text.parse().ok())
    }

    fn show(&self) -> Shown {
        Shown::Plain(self.to_string().into())
    }
}

impl FromStr for Rate {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let read = with_unit(text, &RATES).filter(|&rate| rate > 0).map(Self);
        read.ok_or_else(|| format!("write {}", Self::KIND))
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unit = RATES.iter().rev().find(|(_, factor)| self.0.is_multiple_of(*factor));
        let (unit, factor) = *unit.unwrap_or(&RATES[0]);
        write!(f, "{}{unit}", self.0 / factor)
    }
}

const RATES: [(&str, u64); 4] =
    [("bit/s", 1), ("kbit/s", 1_000), ("Mbit/s", 1_000_000), ("Gbit/s", 1_000_000_000)];

/// A fraction of 1, in millionths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fraction(pub u32);

impl Setting for Fraction {
    const KIND: &'static str = "a number from 0 to 1, or a percentage such as \"0.1%\"";

    fn read(node: &Node<'_>, reader: &mut Reader<'_>) -> Option<Self> {
        let written = match node.get_ref() {
            DeValue::Float(number) => number.as_str().replace('_', "").parse().ok(),
            DeValue::String(text) => {
                let percent = text.strip_suffix('%').and_then(|number| number.trim_end().parse::<f64>().ok());
                percent.map(|percent| percent / 100.0)
            }
            other => integer(other).map(|number| number as f64),
        };
        let part = written.filter(|part| (0.0..=1.0).contains(part));
        part.map(|part| Self((part * 1e6).round() as u32)).or_else(|| refuse(node, reader))
    }

    fn show(&self) -> Shown {
        Shown::Plain((f64::from(self.0) / 1e6).into())
    }
}

impl Setting for Prefix {
    const KIND: &'static str = "a network such as \"10.0.0.0/8\", or one address";

    fn read(node: &Node<'_>, reader: &mut Reader<'_>) -> Option<Self> {
        let Some(text) = node.get_ref().as_str() else { return refuse(node, reader) };
        text.parse().map_err(|error: PrefixError| reader.refuse(node.span(), error.to_string())).ok()
    }

    fn show(&self) -> Shown {
        Shown::Plain(self.to_string().into())
    }
}

impl Setting for PortRange {
    const KIND: &'static str = "a port, or a range such as \"8000-8999\"";

    fn read(node: &Node<'_>, reader: &mut Reader<'_>) -> Option<Self> {
        match integer(node.get_ref()).map(u16::try_from) {
            Some(Ok(port)) => Self::new(port, port).ok(),
            Some(Err(_)) => refuse(node, reader),
            None => from_text(node, reader, |text| text.parse().ok()),
        }
    }

    fn show(&self) -> Shown {
        match self.bounds() {
            (first, last) if first == last => Shown::Plain(first.into()),
            _ => Shown::Plain(self.to_string().into()),
        }
    }
}

/// An IP protocol by number or by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Protocol(pub u8);

impl Setting for Protocol {
    const KIND: &'static str =
        "\"tcp\", \"udp\", \"sctp\", \"icmp\", \"icmpv6\", or a protocol number from 0 to 255";

    fn read(node: &Node<'_>, reader: &mut Reader<'_>) -> Option<Self> {
        if let Some(number) = integer(node.get_ref()) {
            return u8::try_from(number).ok().map(Self).or_else(|| refuse::<Self>(node, reader));
        }
        from_text(node, reader, |text| {
            let number = match text {
                "icmp" => 1,
                "tcp" => 6,
                "udp" => 17,
                "icmpv6" => 58,
                "sctp" => 132,
                _ => text.parse().ok()?,
            };
            Some(Self(number))
        })
    }

    fn show(&self) -> Shown {
        Shown::Plain(self.0.into())
    }
}

/// A text that is never shown.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(pub String);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(hidden)")
    }
}

impl Setting for Secret {
    const KIND: &'static str = "a text of at least 16 characters, without spaces";

    fn read(node: &Node<'_>, reader: &mut Reader<'_>) -> Option<Self> {
        match node.get_ref().as_str() {
            Some(text) if text.len() >= 16 && text.bytes().all(|b| b.is_ascii_graphic()) => {
                Some(Self(text.to_owned()))
            }
            // The message does not repeat the value, since it may be a secret.
            _ => {
                reader.refuse(node.span(), format!("write {}", Self::KIND));
                None
            }
        }
    }

    fn show(&self) -> Shown {
        Shown::Plain("(hidden)".into())
    }
}

/// Records that `node` is not a `T`.
pub fn refuse<T: Setting>(node: &Node<'_>, reader: &mut Reader<'_>) -> Option<T> {
    reader.expected(node, T::KIND);
    None
}

/// Reads a value that is written as a string, with `parse`; other types are a problem.
pub fn from_text<T: Setting>(
    node: &Node<'_>,
    reader: &mut Reader<'_>,
    parse: impl FnOnce(&str) -> Option<T>,
) -> Option<T> {
    node.get_ref().as_str().and_then(parse).or_else(|| refuse(node, reader))
}

/// A whole number, in any of TOML's notations.
pub fn integer(value: &DeValue<'_>) -> Option<i64> {
    let number = value.as_integer()?;
    i64::from_str_radix(&number.as_str().replace('_', ""), number.radix()).ok()
}

const DURATIONS: [(&str, u64); 7] = [
    ("ns", 1),
    ("us", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("h", 3_600_000_000_000),
    ("d", 86_400_000_000_000),
];

const SIZES: [(&str, u64); 5] =
    [("B", 1), ("KiB", 1 << 10), ("MiB", 1 << 20), ("GiB", 1 << 30), ("TiB", 1 << 40)];

/// Units of sizes in input, including powers of ten.
const READ_SIZES: [(&str, u64); 8] = [
    ("B", 1),
    ("kB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("TiB", 1 << 40),
];

/// A duration in words as nanoseconds: "250ms", "1.5h".
pub fn nanoseconds(text: &str) -> Option<u64> {
    with_unit(text, &DURATIONS)
}

/// A size in words as bytes: "64 MiB", "1.5GB".
pub fn bytes(text: &str) -> Option<u64> {
    with_unit(text, &READ_SIZES)
}

/// Nanoseconds in the largest unit that divides them.
pub fn duration_text(nanoseconds: u64) -> String {
    unit_text(nanoseconds, &DURATIONS, "")
}

/// A number with one of these units, each with its factor: "64 MiB", "1.5h".
pub fn with_unit(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.')?;
    let (number, unit) = text.split_at(digits);
    let (_, factor) = units.iter().find(|(name, _)| *name == unit.trim_start())?;
    if let Ok(whole) = number.parse::<u64>() {
        return whole.checked_mul(*factor);
    }
    let scaled = number.parse::<f64>().ok()? * *factor as f64;
    // Above 2^53 a float cannot represent every integer; such values are refused.
    (scaled <= 9e15).then_some(scaled.round() as u64)
}

fn unit_text(value: u64, units: &[(&str, u64)], space: &str) -> String {
    let unit = units.iter().rev().find(|(_, factor)| value != 0 && value.is_multiple_of(*factor));
    let (name, factor) = unit.copied().unwrap_or((if units.len() == SIZES.len() { "B" } else { "s" }, 1));
    format!("{}{space}{name}", value / factor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_and_sizes_read_and_write_with_their_units() {
        let read = ["250ms", "1.5h", "0s", "10", "ms", "-1s", "3x", "99999999999d"].map(nanoseconds);
        let none = None;
        assert_eq!(read, [Some(250_000_000), Some(5_400_000_000_000), Some(0), none, none, none, none, none]);
        assert_eq!(
            [0, 1_000, 90_000_000_000, 86_400_000_000_000].map(duration_text),
            ["0s", "1us", "90s", "1d"]
        );
        assert_eq!(with_unit("64 MiB", &SIZES), Some(64 << 20));
        assert_eq!(unit_text(64 << 20, &SIZES, " "), "64 MiB");
    }
}
