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

/// Unsigned numbers: each type with its range in words.
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
pub(crate) struct Size(pub(crate) u64);

impl Setting for Size {
    const KIND: &'static str = "a size, such as \"64 MiB\"";

    fn read(node: &Node<'_>, reader: &mut Reader<'_>) -> Option<Self> {
        from_text(node, reader, |text| with_unit(text, &READ_SIZES).map(Self))
    }

    fn show(&self) -> Shown {
        Shown::Plain(unit_text(self.0, &SIZES, " ").into())
    }
}

/// Bits per second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rate(pub(crate) u64);

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

/// A part of 1, in millionths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fraction(pub(crate) u32);

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

/// Eight bytes that are looked for in packets. As text, because the numbers of the file have 63 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Marker(pub(crate) u64);

impl Setting for Marker {
    const KIND: &'static str = "eight bytes in hexadecimal, such as \"a5a55a5a494e5421\"";

    fn read(node: &Node<'_>, reader: &mut Reader<'_>) -> Option<Self> {
        from_text(node, reader, |text| {
            let digits = text.strip_prefix("0x").unwrap_or(text);
            let whole = digits.len() == 16 && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
            u64::from_str_radix(digits, 16).ok().filter(|_| whole).map(Self)
        })
    }

    fn show(&self) -> Shown {
        Shown::Plain(format!("{:016x}", self.0).into())
    }
}

/// A threshold: a number in the metric's unit; a duration gives nanoseconds, a percentage millionths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Amount(pub(crate) u64);

impl Setting for Amount {
    const KIND: &'static str = "a whole number, a duration such as \"500us\", or a percentage such as \"5%\"";

    fn read(node: &Node<'_>, reader: &mut Reader<'_>) -> Option<Self> {
        match integer(node.get_ref()) {
            Some(number) => u64::try_from(number).ok().map(Self).or_else(|| refuse::<Self>(node, reader)),
            None => from_text(node, reader, |text| match text.strip_suffix('%') {
                Some(percent) => {
                    let percent =
                        percent.trim_end().parse::<f64>().ok().filter(|p| (0.0..=100.0).contains(p))?;
                    Some(Self((percent * 10_000.0).round() as u64))
                }
                None => nanoseconds(text).map(Self),
            }),
        }
    }

    fn show(&self) -> Shown {
        Shown::Plain(self.0.into())
    }
}

/// Where reports come in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Listen {
    /// UDP on every address of this machine, both families.
    UdpAny(u16),
    /// UDP on one address.
    Udp(SocketAddr),
    /// What arrives on an interface for these UDP ports.
    Xdp {
        /// The interface's name.
        interface: String,
        /// The ports, at least one.
        ports: Vec<u16>,
    },
}

/// The port of reports where none is written.
pub(crate) const TELEMETRY_PORT: u16 = 32766;

/// Ports of one interface: as many as a profile has.
const MAX_PORTS: usize = 8;

impl Listen {
    /// The UDP ports.
    pub(crate) fn ports(&self) -> Vec<u16> {
        match self {
            Self::UdpAny(port) => vec![*port],
            Self::Udp(address) => vec![address.port()],
            Self::Xdp { ports, .. } => ports.clone(),
        }
    }

    /// The interface, if it is one.
    pub(crate) fn interface(&self) -> Option<&str> {
        match self {
            Self::Xdp { interface, .. } => Some(interface),
            Self::UdpAny(_) | Self::Udp(_) => None,
        }
    }
}

impl fmt::Display for Listen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UdpAny(port) => write!(f, "udp://*:{port}"),
            Self::Udp(address) => write!(f, "udp://{address}"),
            Self::Xdp { interface, ports } if ports == &[TELEMETRY_PORT] => write!(f, "xdp://{interface}"),
            Self::Xdp { interface, ports } => {
                let ports: Vec<String> = ports.iter().map(u16::to_string).collect();
                write!(f, "xdp://{interface}:{}", ports.join(","))
            }
        }
    }
}

impl FromStr for Listen {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let read = || {
            if let Some(device) = text.strip_prefix("xdp://") {
                return xdp(device);
            }
            let address = text.strip_prefix("udp://")?;
            match address.strip_prefix("*:") {
                Some(port) => port.parse().ok().map(Self::UdpAny),
                None => address.parse().ok().map(Self::Udp),
            }
        };
        read().ok_or_else(|| format!("write {}", Self::KIND))
    }
}

/// `eth1`, `eth1:32766`, `eth1:32766,5000`.
fn xdp(device: &str) -> Option<Listen> {
    let (name, listed) = match device.split_once(':') {
        Some((name, listed)) => (name, Some(listed)),
        None => (device, None),
    };
    // What the kernel allows as a name: at most 15 bytes, no slash, colon or space.
    let allowed = |byte: u8| byte.is_ascii_graphic() && byte != b'/';
    let good =
        !name.is_empty() && name.len() <= 15 && name != "." && name != ".." && name.bytes().all(allowed);
    let mut ports = match listed {
        Some(listed) => listed.split(',').map(|port| port.parse().ok()).collect::<Option<Vec<u16>>>()?,
        None => vec![TELEMETRY_PORT],
    };
    ports.sort_unstable();
    ports.dedup();
    let good = good && ports.len() <= MAX_PORTS && !ports.contains(&0);
    good.then(|| Listen::Xdp { interface: name.to_owned(), ports })
}

impl Setting for Listen {
    const KIND: &'static str = "an address such as \"udp://*:32766\", \"udp://10.0.0.1:32766\" or \"udp://[::1]:32766\", or an interface such \
                                as \"xdp://eth1\" or \"xdp://eth1:32766,5000\" (at most eight ports)";

    fn read(node: &Node<'_>, reader: &mut Reader<'_>) -> Option<Self> {
        from_text(node, reader, |text| text.parse().ok())
    }

    fn show(&self) -> Shown {
        Shown::Plain(self.to_string().into())
    }
}

/// One direction of a link between two nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LinkSetting(pub(crate) collector::config::Link);

impl Setting for LinkSetting {
    const KIND: &'static str = "a link as \"NODE:EGRESS-NODE:INGRESS\", such as \"7:3-5:1\"";

    fn read(node: &Node<'_>, reader: &mut Reader<'_>) -> Option<Self> {
        from_text(node, reader, |text| {
            let end = |text: &str| {
                let (node, interface) = text.split_once(':')?;
                Some((node.trim().parse().ok()?, interface.trim().parse().ok()?))
            };
            let (from, to) = text.split_once('-')?;
            Some(Self(collector::config::Link { from: end(from)?, to: end(to)? }))
        })
    }

    fn show(&self) -> Shown {
        let collector::config::Link { from, to } = self.0;
        Shown::Plain(format!("{}:{}-{}:{}", from.0, from.1, to.0, to.1).into())
    }
}

/// The flow that a Flow ID means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FlowIdSetting(pub(crate) u32, pub(crate) wire::FlowKey);

impl Setting for FlowIdSetting {
    const KIND: &'static str =
        "a Flow ID and its flow as \"ID=FLOW\", such as \"0xf10a=10.0.0.1:5000>10.0.0.2:80/17\"";

    fn read(node: &Node<'_>, reader: &mut Reader<'_>) -> Option<Self> {
        from_text(node, reader, |text| {
            let (id, flow) = text.split_once('=')?;
            let id: wire::FlowKey = format!("flow-id:{}", id.trim()).parse().ok()?;
            let flow: wire::FlowKey = flow.trim().parse().ok()?;
            Some(Self(id.known_id()?, flow)).filter(|_| flow.known_id().is_none())
        })
    }

    fn show(&self) -> Shown {
        Shown::Plain(format!("{:#x}={}", self.0, self.1).into())
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
pub(crate) struct Protocol(pub(crate) u8);

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
                _ => return None,
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
pub(crate) struct Secret(pub(crate) String);

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
            // The refusal does not repeat what was written: it may well be a secret.
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

pub(super) fn refuse<T: Setting>(node: &Node<'_>, reader: &mut Reader<'_>) -> Option<T> {
    reader.expected(node, T::KIND);
    None
}

pub(super) fn from_text<T: Setting>(
    node: &Node<'_>,
    reader: &mut Reader<'_>,
    parse: impl FnOnce(&str) -> Option<T>,
) -> Option<T> {
    node.get_ref().as_str().and_then(parse).or_else(|| refuse(node, reader))
}

pub(super) fn integer(value: &DeValue<'_>) -> Option<i64> {
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

/// Sizes as they are read: powers of ten as well.
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
pub(crate) fn nanoseconds(text: &str) -> Option<u64> {
    with_unit(text, &DURATIONS)
}

/// Nanoseconds in the largest unit that divides them.
pub(crate) fn duration_text(nanoseconds: u64) -> String {
    unit_text(nanoseconds, &DURATIONS, "")
}

pub(super) fn with_unit(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.')?;
    let (number, unit) = text.split_at(digits);
    let (_, factor) = units.iter().find(|(name, _)| *name == unit.trim_start())?;
    if let Ok(whole) = number.parse::<u64>() {
        return whole.checked_mul(*factor);
    }
    let scaled = number.parse::<f64>().ok()? * *factor as f64;
    // Above 2^53 a float no longer holds every whole number; nobody writes such a fraction on purpose.
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
    fn an_interface_reads_and_writes_with_its_ports() {
        let read = |text: &str| text.parse::<Listen>().map(|listen| listen.to_string());
        let good =
            ["xdp://eth1", "xdp://eth1:32766", "xdp://eth1.100:5000,32766,5000", "xdp://lan@1:1"].map(read);
        let shown = ["xdp://eth1", "xdp://eth1", "xdp://eth1.100:5000,32766", "xdp://lan@1:1"];
        assert_eq!(good, shown.map(|text| Ok(text.to_owned())));
        let bad = [
            "xdp://",
            "xdp://eth1:",
            "xdp://a/b",
            "xdp://..",
            "xdp://sixteen-letters-",
            "xdp://e:0",
            "xdp://e:70000",
        ];
        assert!(bad.map(read).iter().all(Result::is_err), "{:?}", bad.map(read));
        assert!(read("xdp://e:1,2,3,4,5,6,7,8,9").is_err());
    }

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
