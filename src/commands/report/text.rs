//! Keys and bytes as people write them.

use std::net::IpAddr;

use wire::FlowKey;
use wire::dta::MergeOp;
use wire::dta::hash::{FlowBytes, MAX_KEY};

/// Bytes that were written as text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Bytes(pub(super) Vec<u8>);

/// Hexadecimal digits; spaces, colons and a leading 0x do not matter.
pub(super) fn hex(text: &str) -> Result<Bytes, String> {
    let digits: Vec<u8> = text
        .strip_prefix("0x")
        .unwrap_or(text)
        .bytes()
        .filter(|byte| !matches!(byte, b' ' | b':' | b'_'))
        .collect();
    let pair = |two: &[u8]| {
        let text = std::str::from_utf8(two).ok().filter(|text| !text.contains('+'))?;
        u8::from_str_radix(text, 16).ok().filter(|_| two.len() == 2)
    };
    let bytes: Option<Vec<u8>> = digits.chunks(2).map(pair).collect();
    bytes.filter(|bytes| !bytes.is_empty()).map(Bytes).ok_or_else(|| {
        format!("{text:?} is not bytes; write pairs of hexadecimal digits, such as 0000000b0000000c")
    })
}

/// A key: a flow, an address, a number of four bytes, or bytes.
pub(super) fn key(text: &str) -> Result<Bytes, String> {
    let text = text.trim();
    let bytes = if let Some(digits) = text.strip_prefix("0x") {
        hex(digits)?.0
    } else if let Ok(address) = text.parse::<IpAddr>() {
        match address {
            IpAddr::V4(address) => address.octets().to_vec(),
            IpAddr::V6(address) => address.octets().to_vec(),
        }
    } else if let Ok(number) = text.parse::<u32>() {
        number.to_be_bytes().to_vec()
    } else {
        let flow = flow(text).and_then(|flow| FlowBytes::of(&flow));
        let flow = flow.ok_or_else(|| {
            format!(
                "{text:?} is no key; write a flow such as 10.0.0.1:1234>10.0.0.2:80/6, an address, a number, or 0x0a000001"
            )
        })?;
        flow.as_slice().to_vec()
    };
    match bytes.len() {
        1..=MAX_KEY => Ok(Bytes(bytes)),
        len => Err(format!("a key has 1 to {MAX_KEY} bytes, not {len}")),
    }
}

/// `10.0.0.1:1234>10.0.0.2:80/6`, also with spaces, and the protocol's name behind a space.
fn flow(text: &str) -> Option<FlowKey> {
    let (ends, protocol) = match text.rsplit_once('/') {
        Some(parts) => parts,
        None => text.rsplit_once(' ')?,
    };
    let number = match protocol.trim() {
        "tcp" => "6",
        "udp" => "17",
        "icmp" => "1",
        "icmpv6" => "58",
        "sctp" => "132",
        number => number,
    };
    let ends: String = ends.chars().filter(|letter| *letter != ' ').collect();
    format!("{ends}/{number}").parse().ok()
}

/// How sketches are merged.
pub(super) fn merge_op(text: &str) -> Result<MergeOp, String> {
    MergeOp::from_name(text).ok_or_else(|| "write sum, max, min or sample".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_read_as_people_write_them() {
        let read = |text: &str| key(text).map(|bytes| bytes.0);
        let flow = vec![10, 0, 0, 1, 10, 0, 0, 2, 0x04, 0xd2, 0, 80, 6];
        for text in
            ["10.0.0.1:1234>10.0.0.2:80/6", "10.0.0.1:1234 > 10.0.0.2:80 tcp", "0x0a0000010a00000204d2005006"]
        {
            assert_eq!(read(text).as_ref(), Ok(&flow), "{text}");
        }
        assert_eq!(read("10.0.0.1"), Ok(vec![10, 0, 0, 1]));
        assert_eq!(read("258"), Ok(vec![0, 0, 1, 2]));
        assert_eq!(read("[2001:db8::1]:1>[2001:db8::2]:2/17").map(|key| key.len()), Ok(37));
        for text in ["", "0x", "0x123", "flow-id:7", "10.0.0.1:1>10.0.0.2/6", &"0x00".repeat(65)] {
            assert!(read(text).is_err(), "{text}");
        }
        assert_eq!(hex("00:01 0a"), Ok(Bytes(vec![0, 1, 10])));
        assert!(hex("0g").is_err() && hex("+1").is_err() && hex("012").is_err());
    }
}
