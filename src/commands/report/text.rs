//! Keys and bytes in text form.

use wire::dta::MergeOp;

use dta::fields::unhex;
use dta::key::Key;

/// Bytes in text form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Bytes(pub(super) Vec<u8>);

/// Hexadecimal digits; spaces, colons and a leading 0x do not matter.
pub(super) fn hex(text: &str) -> Result<Bytes, String> {
    let digits: String = text.chars().filter(|letter| !matches!(letter, ' ' | ':' | '_')).collect();
    let bytes = unhex(digits.strip_prefix("0x").unwrap_or(&digits));
    bytes.filter(|bytes| !bytes.is_empty()).map(Bytes).ok_or_else(|| {
        format!("{text:?} is not bytes; write pairs of hexadecimal digits, such as 0000000b0000000c")
    })
}

/// A key: a flow, an address, a number, bytes, or several of these.
pub(super) fn key(text: &str) -> Result<Bytes, String> {
    text.parse::<Key>().map(|key| Bytes(key.bytes().to_vec()))
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
