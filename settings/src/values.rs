//! Scalar setting types: numbers, durations, sizes, rates, addresses, thresholds and secrets, with their parsing and output.

use std::{
    fmt,
    net::{IpAddr, SocketAddr},
    path::PathBuf,
    str::FromStr,
    time::Duration,
};

use detect::{Metric, PortRange, Prefix, observation::UTILIZATION_ONE, prefix::PrefixError, rule::amount};

use super::{
    read::{Node, Reader, Value},
    setting::{self, Setting, Shown},
};

const RATES: [(&str, u64); 4] = [
    ("bit/s", 1),
    ("kbit/s", 1_000),
    ("Mbit/s", 1_000_000),
    ("Gbit/s", 1_000_000_000),
];
const DURATIONS: [(&str, u64); 7] = [
    ("ns", 1),
    ("us", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("h", 3_600_000_000_000),
    ("d", 86_400_000_000_000),
];
const SIZES: [(&str, u64); 5] = [
    ("B", 1),
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("TiB", 1 << 40),
];
/// Accepted units of sizes, including powers of ten.
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

crate::named_setting! {
    wire::aggregate::Kind = "\"agg\", \"agg_n\", \"agg_nf\", \"cor\", \"cor_n\" or \"cor_nf\"";
    wire::dta::Priority = "\"low\", \"medium\" or \"high\"";
    wire::dta::hash::Family = "\"v1\" or \"artifact\"";
    wire::dta::layout::SketchKind = "\"count-min\", \"count\", \"hyperloglog\" or \"aroma\"";
    wire::Dialect = "\"strict\", \"geant\", \"hostint\", \"intcollector-gen\", \"onos\" or \"p4int\"";
}

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
        let read = node
            .get_ref()
            .as_str()
            .filter(|text| !text.is_empty())
            .map(Self::from);
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
                read.or_else(|| match node.get_ref() {
                    // TOML integers are 64-bit signed.
                    Value::Integer(_) if <$type>::MAX as u128 >= i64::MAX as u128 => {
                        setting::refuse(node, reader, &format!("a whole number from 0 to {}", i64::MAX))
                    }
                    _ => refuse::<Self>(node, reader),
                })
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
            Value::Float(number) => number.to_f64(),
            other => integer(other).map(|number| number as f64),
        };
        match read {
            Some(number) if !f64::is_finite(number) => {
                reader.refuse(
                    node.span(),
                    format!("found {number}; write a finite number, such as 0.01"),
                );
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
        Shown::Plain(duration_text(as_nanoseconds(*self)).into())
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

/// A rate in bits per second.
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
        let unit = RATES
            .iter()
            .rev()
            .find(|(_, factor)| self.0.is_multiple_of(*factor));
        let (unit, factor) = *unit.unwrap_or(&RATES[0]);
        write!(f, "{}{unit}", self.0 / factor)
    }
}

/// A fraction of 1, in millionths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fraction(pub u32);

impl Setting for Fraction {
    const KIND: &'static str = "a number from 0 to 1, or a percentage such as \"0.1%\"";

    fn read(node: &Node<'_>, reader: &mut Reader<'_>) -> Option<Self> {
        let written = match node.get_ref() {
            Value::Float(number) => number.to_f64(),
            Value::String(text) => {
                let percent = text
                    .strip_suffix('%')
                    .and_then(|number| number.trim_end().parse::<f64>().ok());
                percent.map(|percent| percent / 100.0)
            }
            other => integer(other).map(|number| number as f64),
        };
        let part = written.filter(|part| (0.0..=1.0).contains(part));
        part.map(|part| Self((part * 1e6).round() as u32))
            .or_else(|| refuse(node, reader))
    }

    fn show(&self) -> Shown {
        Shown::Plain((f64::from(self.0) / 1e6).into())
    }
}

/// Declares a threshold type: its description, its parser, which accepts the notation of rules, and its output.
macro_rules! thresholds {
    ($($(#[doc = $doc:literal])+ $name:ident: $kind:literal, $read:expr, $show:expr;)+) => {$(
        $(#[doc = $doc])+
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub struct $name(pub u64);

        impl Setting for $name {
            const KIND: &'static str = $kind;

            fn read(node: &Node<'_>, reader: &mut Reader<'_>) -> Option<Self> {
                let read: fn(&str) -> Option<u64> = $read;
                let read = match node.get_ref() {
                    Value::String(text) => read(text),
                    Value::Float(number) => read(number.as_str()),
                    other => integer(other).and_then(|number| read(&number.to_string())),
                };
                read.map(Self).or_else(|| refuse(node, reader))
            }

            fn show(&self) -> Shown {
                let show: fn(u64) -> Shown = $show;
                show(self.0)
            }
        }
    )+};
}

thresholds! {
    /// A threshold of a latency, ns.
    LatencyThreshold: "a duration such as \"500us\", or a number of nanoseconds",
        |text| threshold(Metric::HopLatency, text),
        |value| Shown::Plain(duration_text(value).into());
    /// A threshold of a queue, in the device's unit.
    QueueThreshold: "a whole number in the device's unit, such as 50",
        |text| threshold(Metric::QueueOccupancy, text),
        |value| Shown::Plain(value.into());
    /// A threshold of a link's utilization, millionths.
    UtilizationThreshold: "a percentage such as \"5%\", or a number from 0 to 1",
        |text| threshold(Metric::LinkUtilization, text),
        |value| Shown::Plain(percent_text(value).into());
}

/// Parses a threshold into the metric's smallest unit. Accepts the notation of rules and, for latencies, any duration.
pub fn threshold(metric: Metric, text: &str) -> Option<u64> {
    match (amount(metric, text), metric) {
        (Ok(threshold), _) => Some(threshold),
        (Err(_), Metric::FlowLatency | Metric::HopLatency) => nanoseconds(text),
        (Err(_), _) => None,
    }
}

/// Formats millionths as a percentage.
pub fn percent_text(millionths: u64) -> String {
    let text = format!("{}.{:04}", millionths / 10_000, millionths % 10_000);
    format!("{}%", text.trim_end_matches('0').trim_end_matches('.'))
}

/// A threshold whose metric is named by another key, kept in its written form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Amount(String);

impl Amount {
    /// Formats a value in the smallest unit of its metric: ns, device units, millionths.
    pub fn new(metric: Metric, value: u64) -> Self {
        Self(match metric {
            Metric::FlowLatency | Metric::HopLatency => duration_text(value),
            // Larger differences are impossible.
            Metric::LinkUtilization => percent_text(value.min(UTILIZATION_ONE)),
            _ => value.to_string(),
        })
    }

    /// Returns the value in the metric's smallest unit, or `None` if the written unit does not fit the metric.
    pub fn value(&self, metric: Metric) -> Option<u64> {
        threshold(metric, &self.0)
    }
}

impl Setting for Amount {
    const KIND: &'static str =
        "as in `[thresholds]`: a duration such as \"500us\", a whole number, or a percentage such as \"5%\"";

    fn read(node: &Node<'_>, reader: &mut Reader<'_>) -> Option<Self> {
        let read = match node.get_ref() {
            Value::String(text) => Some(text.to_string()),
            Value::Float(number) => Some(number.as_str().to_owned()),
            other => integer(other).map(|number| number.to_string()),
        };
        read.filter(|text| {
            Metric::ALL
                .iter()
                .any(|metric| threshold(*metric, text).is_some())
        })
        .map(Self)
        .or_else(|| refuse(node, reader))
    }

    fn show(&self) -> Shown {
        match self.0.parse::<u64>() {
            Ok(number) => Shown::Plain(number.into()),
            Err(_) => Shown::Plain(self.0.as_str().into()),
        }
    }
}

crate::choice! {
    /// Whether clocks of different nodes can be compared.
    pub enum Clocks("\"free\" or \"synchronised\"") {
        /// Each node counts its own time.
        Free = "free",
        /// PTP or similar keeps them together.
        Synchronised = "synchronised",
    }
}

impl Setting for Prefix {
    const KIND: &'static str = "a network such as \"10.0.0.0/8\", or one address";

    fn read(node: &Node<'_>, reader: &mut Reader<'_>) -> Option<Self> {
        let Some(text) = node.get_ref().as_str() else {
            return refuse(node, reader);
        };
        text.parse()
            .map_err(|error: PrefixError| reader.refuse(node.span(), error.to_string()))
            .ok()
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
            return u8::try_from(number)
                .ok()
                .map(Self)
                .or_else(|| refuse::<Self>(node, reader));
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

    const IS_SECRET: bool = true;

    fn read(node: &Node<'_>, reader: &mut Reader<'_>) -> Option<Self> {
        // Keeps other problems on its line from quoting it.
        reader.hide(node);
        match node.get_ref().as_str() {
            Some(text) if text.len() >= 16 && text.bytes().all(|b| b.is_ascii_graphic()) => {
                Some(Self(text.to_owned()))
            }
            _ => refuse(node, reader),
        }
    }

    fn show(&self) -> Shown {
        Shown::Plain("(hidden)".into())
    }
}

/// Records that `node` is not a `T`.
pub fn refuse<T: Setting>(node: &Node<'_>, reader: &mut Reader<'_>) -> Option<T> {
    setting::refuse(node, reader, T::KIND)
}

/// Reads a value from a string with `parse`; other types are a problem.
pub fn from_text<T: Setting>(
    node: &Node<'_>,
    reader: &mut Reader<'_>,
    parse: impl FnOnce(&str) -> Option<T>,
) -> Option<T> {
    node.get_ref()
        .as_str()
        .and_then(parse)
        .or_else(|| refuse(node, reader))
}

/// Returns an integer in any of TOML's notations.
pub fn integer(value: &Value<'_>) -> Option<i64> {
    match value {
        Value::Integer(number) => number.to_i64(),
        _ => None,
    }
}

/// Returns a duration in nanoseconds, at most `u64::MAX`.
pub fn as_nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// Parses a duration, "250ms" or "1.5h", and returns it in nanoseconds.
pub fn nanoseconds(text: &str) -> Option<u64> {
    with_unit(text, &DURATIONS)
}

/// Parses a size, "64 MiB" or "1.5GB", and returns it in bytes.
pub fn bytes(text: &str) -> Option<u64> {
    with_unit(text, &READ_SIZES)
}

/// Formats nanoseconds in the largest unit that divides them.
pub fn duration_text(nanoseconds: u64) -> String {
    unit_text(nanoseconds, &DURATIONS, "")
}

/// Formats a duration for messages, rounded to tenths of a second, or to milliseconds below a tenth: "24.1
/// s", "2 s", "35 ms".
pub fn rounded_text(duration: Duration) -> String {
    if duration < Duration::from_millis(100) {
        return format!("{} ms", duration.as_millis());
    }
    let tenths = (duration.as_millis() + 50) / 100;
    match (tenths / 10, tenths % 10) {
        (seconds, 0) => format!("{seconds} s"),
        (seconds, tenths) => format!("{seconds}.{tenths} s"),
    }
}

/// Parses an ID range such as `0-15`, `0..15` or `7` into both ends. Returns `None` if it is malformed or empty.
pub fn id_range(text: &str) -> Option<(u32, u32)> {
    let (first, last) = text
        .split_once("..")
        .or_else(|| text.split_once('-'))
        .unwrap_or((text, text));
    let first = first.trim().parse().ok()?;
    let last = last.trim().parse().ok()?;
    (first <= last).then_some((first, last))
}

/// Parses a number with one of these units and scales it by the unit's factor: "64 MiB", "1.5h".
pub fn with_unit(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.')?;
    let (number, unit) = text.split_at(digits);
    let (_, factor) = units.iter().find(|(name, _)| *name == unit.trim_start())?;
    if let Ok(whole) = number.parse::<u64>() {
        return whole.checked_mul(*factor);
    }
    let scaled = number.parse::<f64>().ok()? * *factor as f64;
    // A float cannot represent every integer above 2^53, so larger fractions are refused.
    (scaled <= 9e15).then_some(scaled.round() as u64)
}

fn unit_text(value: u64, units: &[(&str, u64)], space: &str) -> String {
    let unit = units
        .iter()
        .rev()
        .find(|(_, factor)| value != 0 && value.is_multiple_of(*factor));
    let (name, factor) = unit
        .copied()
        .unwrap_or((if units.len() == SIZES.len() { "B" } else { "s" }, 1));
    format!("{}{space}{name}", value / factor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_threshold_has_the_units_of_its_metric() {
        fn read<T: Setting>(text: &str) -> Result<Shown, String> {
            let mut reader = Reader::new(text);
            let root = reader.parse(setting::tables::<T>);
            let node = root.as_ref().and_then(|root| root.get_ref().get("x"));
            match node.and_then(|node| T::read(node, &mut reader)) {
                Some(value) => Ok(value.show()),
                None => Err(reader.messages().join("; ")),
            }
        }
        let plain = |value: serde_json::Value| Ok(Shown::Plain(value));
        for (written, expected) in [
            ("\"500us\"", "500us"),
            ("\"1m\"", "1m"),
            ("\"7 µs\"", "7us"),
            ("5", "5ns"),
            ("0", "0s"),
        ] {
            assert_eq!(
                read::<LatencyThreshold>(&format!("x = {written}")),
                plain(expected.into()),
                "{written}"
            );
        }
        for (written, expected) in [("50", 50), ("\"64k\"", 64_000), ("\"50\"", 50)] {
            assert_eq!(
                read::<QueueThreshold>(&format!("x = {written}")),
                plain(expected.into()),
                "{written}"
            );
        }
        for (written, expected) in [("\"5%\"", "5%"), ("0.0525", "5.25%"), ("1", "100%"), ("0", "0%")] {
            assert_eq!(
                read::<UtilizationThreshold>(&format!("x = {written}")),
                plain(expected.into()),
                "{written}"
            );
        }
        let refused = |text: &str, what: &str| Err(format!("found the text {text:?}; write {what}"));
        assert_eq!(
            read::<LatencyThreshold>("x = \"5%\""),
            refused("5%", LatencyThreshold::KIND)
        );
        assert_eq!(
            read::<QueueThreshold>("x = \"500us\""),
            refused("500us", QueueThreshold::KIND)
        );
        assert_eq!(
            read::<QueueThreshold>("x = \"5%\""),
            refused("5%", QueueThreshold::KIND)
        );
        assert_eq!(
            read::<UtilizationThreshold>("x = \"5us\""),
            refused("5us", UtilizationThreshold::KIND)
        );
        let whole = format!("found the number 50000; write {}", UtilizationThreshold::KIND);
        assert_eq!(read::<UtilizationThreshold>("x = 50000"), Err(whole));
    }

    #[test]
    fn durations_and_sizes_read_and_write_with_their_units() {
        let read = ["250ms", "1.5h", "0s", "10", "ms", "-1s", "3x", "99999999999d"].map(nanoseconds);
        let none = None;
        assert_eq!(
            read,
            [
                Some(250_000_000),
                Some(5_400_000_000_000),
                Some(0),
                none,
                none,
                none,
                none,
                none
            ]
        );
        assert_eq!(
            [0, 1_000, 90_000_000_000, 86_400_000_000_000].map(duration_text),
            ["0s", "1us", "90s", "1d"]
        );
        assert_eq!(
            [24_132_780_896, 1_960_000_000, 300_000_000, 99_999_999, 0]
                .map(|ns| rounded_text(Duration::from_nanos(ns))),
            ["24.1 s", "2 s", "0.3 s", "99 ms", "0 ms"]
        );
        assert_eq!(with_unit("64 MiB", &SIZES), Some(64 << 20));
        assert_eq!(unit_text(64 << 20, &SIZES, " "), "64 MiB");
    }
}
