//! The key of a DTA store: parses the text form that users type (a flow, an address, a number, hexadecimal bytes) into the
//! bytes that reporters hash, and prints it.

use std::{fmt, net::IpAddr, str::FromStr};

use wire::FlowKey;
use wire::dta::hash::{FlowBytes, MAX_KEY, flow_of};

use crate::fields::{hex, unhex};

/// Accepted forms of a key, for help texts and error messages.
pub const FORMS: &str = "a flow such as '10.0.0.1:1234 > 10.0.0.2:80 tcp' (or 10.0.0.1:1234>10.0.0.2:80/6), an address, a number \
                                (4 bytes; u8:7, u16:7, u64:7 for other widths), bytes as 0x0a000001, or several of these with commas between";

/// The bytes of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Key {
    bytes: Vec<u8>,
}

impl Key {
    /// Creates a key from bytes, without checking their number.
    pub fn new(bytes: &[u8]) -> Self {
        Self {
            bytes: bytes.to_vec(),
        }
    }

    /// Returns the bytes, 1 to 64 of them.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

impl FromStr for Key {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut bytes = Vec::new();
        for part in text.split(',') {
            let part = part.trim();
            bytes.extend(parse_part(part).ok_or_else(|| format!("invalid key {part:?}; write {FORMS}"))?);
        }
        match bytes.len() {
            1..=MAX_KEY => Ok(Self { bytes }),
            length => Err(format!("the key has {length} bytes; a key has 1 to {MAX_KEY}")),
        }
    }
}

fn parse_part(text: &str) -> Option<Vec<u8>> {
    if let Some(digits) = text.strip_prefix("0x").or_else(|| text.strip_prefix("hex:")) {
        return unhex(digits).filter(|bytes| !bytes.is_empty());
    }
    if text.contains('>') {
        return flow(text);
    }
    if let Ok(address) = text.parse::<IpAddr>() {
        return Some(octets(address));
    }
    if let Some((kind, number)) = text.split_once(':') {
        return match kind {
            "u8" => number.parse::<u8>().ok().map(|n| n.to_be_bytes().to_vec()),
            "u16" => number.parse::<u16>().ok().map(|n| n.to_be_bytes().to_vec()),
            "u32" => number.parse::<u32>().ok().map(|n| n.to_be_bytes().to_vec()),
            "u64" => number.parse::<u64>().ok().map(|n| n.to_be_bytes().to_vec()),
            _ => None,
        };
    }
    text.parse::<u32>().ok().map(|n| n.to_be_bytes().to_vec())
}

fn octets(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(v4) => v4.octets().to_vec(),
        IpAddr::V6(v6) => v6.octets().to_vec(),
    }
}

/// Parses a 5-tuple into its canonical key bytes. The protocol is a number or a name, after a slash or a space.
fn flow(text: &str) -> Option<Vec<u8>> {
    let (ends, protocol) = match text.rsplit_once('/') {
        Some(parts) => parts,
        None => text.trim_end().rsplit_once(' ')?,
    };
    let number = match protocol.trim() {
        "icmp" => "1",
        "tcp" => "6",
        "udp" => "17",
        "icmpv6" => "58",
        "sctp" => "132",
        number => number,
    };
    let (src, dst) = ends.split_once('>')?;
    let flow: FlowKey = format!("{}>{}/{number}", src.trim(), dst.trim()).parse().ok()?;
    FlowBytes::of(&flow).map(|key| key.as_slice().to_vec())
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match flow_of(&self.bytes) {
            Some(flow) => flow.fmt(f),
            None => write!(f, "0x{}", hex(&self.bytes)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flow_as_people_write_it_is_the_canonical_key() {
        // The test vector of `docs/reference/wire-formats.md`, section 5.6.
        let bytes = unhex("0a0000010a00000204d2005006").unwrap();
        for text in [
            "10.0.0.1:1234 > 10.0.0.2:80 tcp",
            "10.0.0.1:1234>10.0.0.2:80/6",
            "10.0.0.1:1234 > 10.0.0.2:80 / tcp",
            "0x0a0000010a00000204d2005006",
            "10.0.0.1,10.0.0.2,u16:1234,u16:80,u8:6",
        ] {
            assert_eq!(
                text.parse::<Key>().as_ref().map(Key::bytes),
                Ok(&bytes[..]),
                "{text}"
            );
        }
        let key: Key = "10.0.0.1:1234 > 10.0.0.2:80 tcp".parse().unwrap();
        assert_eq!(key.to_string(), "10.0.0.1:1234>10.0.0.2:80/6");
        let six: Key = "[2001:db8::1]:1>[2001:db8::2]:2/17".parse().unwrap();
        assert_eq!(
            (six.bytes().len(), six.to_string().as_str()),
            (37, "[2001:db8::1]:1>[2001:db8::2]:2/17")
        );
    }

    #[test]
    fn addresses_and_numbers_are_keys_and_the_rest_is_refused() {
        let bytes = |text: &str| text.parse::<Key>().map(|key| key.bytes);
        assert_eq!(bytes("10.0.0.1"), Ok(vec![10, 0, 0, 1]));
        assert_eq!(bytes("258"), Ok(vec![0, 0, 1, 2]));
        assert_eq!(bytes("u8:7"), Ok(vec![7]));
        assert_eq!(bytes("::1").map(|key| key.len()), Ok(16));
        for text in [
            "",
            "x",
            "0x1",
            "0x",
            "u8:256",
            "10.0.0.1:1>10.0.0.2:2",
            "10.0.0.1>::1/6",
            "10.0.0.1:1>10.0.0.2/6",
        ] {
            assert!(bytes(text).is_err(), "{text}");
        }
        assert!(
            bytes(&format!("0x{}", "00".repeat(65)))
                .unwrap_err()
                .contains("65 bytes")
        );
    }
}
