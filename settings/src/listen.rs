//! Listen addresses for Telemetry Reports: UDP sockets (`udp://*:32766`), or AF_XDP on an interface (`xdp://eth1:32766,5000`).

use std::{fmt, net::SocketAddr, str::FromStr};

use super::{
    read::{Node, Reader},
    setting::{Setting, Shown},
    values::from_text,
};

/// Default UDP port of reports.
pub const TELEMETRY_PORT: u16 = 32766;
/// Maximum ports per interface, as many as a decoding profile has.
const MAX_PORTS: usize = 8;

/// An input of reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Listen {
    /// UDP on every address of this machine, both families.
    UdpAny(u16),
    /// UDP on one address.
    Udp(SocketAddr),
    /// UDP datagrams to these ports that arrive on an interface.
    Xdp {
        /// Name of the network interface.
        interface: String,
        /// The ports, at least one.
        ports: Vec<u16>,
    },
}

impl Listen {
    /// Returns the UDP ports on which reports arrive.
    pub fn ports(&self) -> Vec<u16> {
        match self {
            Self::UdpAny(port) => vec![*port],
            Self::Udp(address) => vec![address.port()],
            Self::Xdp { ports, .. } => ports.clone(),
        }
    }

    /// Returns true if only this machine can reach it.
    pub fn is_loopback(&self) -> bool {
        match self {
            Self::UdpAny(_) => false,
            Self::Udp(address) => address.ip().to_canonical().is_loopback(),
            Self::Xdp { interface, .. } => interface == "lo",
        }
    }

    /// Returns the interface of an XDP input.
    pub fn interface(&self) -> Option<&str> {
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
        let listen = match text.strip_prefix("xdp://") {
            Some(device) => xdp(device),
            None => text.strip_prefix("udp://").and_then(udp),
        };
        listen.ok_or_else(|| format!("write {}", Self::KIND))
    }
}

/// Parses `*:32766` or `10.0.0.1:32766`.
fn udp(address: &str) -> Option<Listen> {
    match address.strip_prefix("*:") {
        Some(port) => port.parse().ok().map(Listen::UdpAny),
        None => address.parse().ok().map(Listen::Udp),
    }
}

/// Parses `eth1`, `eth1:32766` or `eth1:32766,5000`.
fn xdp(device: &str) -> Option<Listen> {
    let (name, port_list) = match device.split_once(':') {
        Some((name, port_list)) => (name, Some(port_list)),
        None => (device, None),
    };
    // The kernel's rules for interface names: at most 15 bytes, no slash, colon or space.
    let is_valid = (1..=15).contains(&name.len())
        && name != "."
        && name != ".."
        && name.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'/');
    let mut ports = match port_list {
        Some(port_list) => port_list
            .split(',')
            .map(|port| port.parse().ok())
            .collect::<Option<Vec<u16>>>()?,
        None => vec![TELEMETRY_PORT],
    };
    ports.sort_unstable();
    ports.dedup();
    let is_valid = is_valid && ports.len() <= MAX_PORTS && !ports.contains(&0);
    is_valid.then(|| Listen::Xdp {
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
