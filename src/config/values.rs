//! The values of a configuration file that only this program has: where to listen, thresholds, links, Flow IDs.

use std::{fmt, net::SocketAddr, str::FromStr};

use detect::{Metric, observation::UTILIZATION_ONE};
use settings::{
    read::{DeValue, Node, Reader},
    setting::{Setting, Shown},
    values::{duration_text, from_text, id_range, integer, percent_text, refuse, threshold},
};

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

/// A threshold of a metric that another key names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Amount(String);

impl Amount {
    /// A value in the smallest unit of its metric: ns, device units, millionths.
    pub(crate) fn new(metric: Metric, value: u64) -> Self {
        Self(match metric {
            Metric::FlowLatency | Metric::HopLatency => duration_text(value),
            // A greater difference cannot be.
            Metric::LinkUtilization => percent_text(value.min(UTILIZATION_ONE)),
            _ => value.to_string(),
        })
    }

    /// The value in that unit; `None`: the written unit is not one of the metric's.
    pub(crate) fn value(&self, metric: Metric) -> Option<u64> {
        threshold(metric, &self.0)
    }
}

impl Setting for Amount {
    const KIND: &'static str =
        "as in `[thresholds]`: a duration such as \"500us\", a whole number, or a percentage such as \"5%\"";

    fn read(node: &Node<'_>, reader: &mut Reader<'_>) -> Option<Self> {
        let read = match node.get_ref() {
            DeValue::String(text) => Some(text.to_string()),
            DeValue::Float(number) => Some(number.as_str().to_owned()),
            other => integer(other).map(|number| number.to_string()),
        };
        let is_amount = |text: &String| {
            Metric::ALL
                .iter()
                .any(|metric| threshold(*metric, text).is_some())
        };
        read.filter(is_amount).map(Self).or_else(|| refuse(node, reader))
    }

    fn show(&self) -> Shown {
        match self.0.parse::<u64>() {
            Ok(number) => Shown::Plain(number.into()),
            Err(_) => Shown::Plain(self.0.as_str().into()),
        }
    }
}

/// An input of reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Listen {
    /// UDP on every address of this machine, both families.
    UdpAny(u16),
    /// UDP on one address.
    Udp(SocketAddr),
    /// UDP datagrams to these ports that arrive on an interface.
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

    /// Whether only this machine reaches it.
    pub(crate) fn is_loopback(&self) -> bool {
        match self {
            Self::UdpAny(_) => false,
            Self::Udp(address) => address.ip().to_canonical().is_loopback(),
            Self::Xdp { interface, .. } => interface == "lo",
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
        Some(listed) => listed
            .split(',')
            .map(|port| port.parse().ok())
            .collect::<Option<Vec<u16>>>()?,
        None => vec![TELEMETRY_PORT],
    };
    ports.sort_unstable();
    ports.dedup();
    let good = good && ports.len() <= MAX_PORTS && !ports.contains(&0);
    good.then(|| Listen::Xdp {
        interface: name.to_owned(),
        ports,
    })
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

/// Node ids, both ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NodeRange(pub(crate) u32, pub(crate) u32);

impl Setting for NodeRange {
    const KIND: &'static str = "a node ID, or from-to such as \"1-20\"";

    fn read(node: &Node<'_>, reader: &mut Reader<'_>) -> Option<Self> {
        if let DeValue::Integer(_) = node.get_ref() {
            let one = integer(node.get_ref()).and_then(|number| u32::try_from(number).ok());
            return one
                .map(|id| Self(id, id))
                .or_else(|| refuse::<Self>(node, reader));
        }
        from_text(node, reader, |text| {
            id_range(text).map(|(first, last)| Self(first, last))
        })
    }

    fn show(&self) -> Shown {
        match self {
            Self(first, last) if first == last => Shown::Plain((*first).into()),
            Self(first, last) => Shown::Plain(format!("{first}-{last}").into()),
        }
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
            Some(Self(collector::config::Link {
                from: end(from)?,
                to: end(to)?,
            }))
        })
    }

    fn show(&self) -> Shown {
        let collector::config::Link { from, to } = self.0;
        Shown::Plain(format!("{}:{}-{}:{}", from.0, from.1, to.0, to.1).into())
    }
}

/// A Flow ID and its flow.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interface_reads_and_writes_with_its_ports() {
        let read = |text: &str| text.parse::<Listen>().map(|listen| listen.to_string());
        let good = [
            "xdp://eth1",
            "xdp://eth1:32766",
            "xdp://eth1.100:5000,32766,5000",
            "xdp://lan@1:1",
        ]
        .map(read);
        let shown = [
            "xdp://eth1",
            "xdp://eth1",
            "xdp://eth1.100:5000,32766",
            "xdp://lan@1:1",
        ];
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
}
